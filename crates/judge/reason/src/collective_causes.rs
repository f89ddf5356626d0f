//! What gives a figure of collectives: by arithmetic alone, within a node, over a network.

use pathline_paste::{CollectiveTable, NcclLog, PasteContext};
use pathline_schema::Collective;

use crate::cause_table::{CauseFacts, cause};
use crate::draft::DraftAnswer;
use crate::logs::{lacks_direct_channels, uses_sockets};
use crate::node_facts::{NodeLimits, is_set};
use crate::product_facts::FabricKind;
use crate::score::WorldEdit;
use crate::table_summary::{RING_SHARE, TableSummary, links_among};

/// Share of the data rate of the links that NVLink SHARP reaches on the wire; its busbw is that times 2(n-1)/(n+1), because
/// each GPU moves (1 + 1/n) of the buffer each way, where the formula of busbw counts 2(n-1)/n.
const NVLS_SHARE: f64 = 0.686;
/// Share of xGMI that RCCL reaches: 64 GB/s links carry 48 (`ncclTopoXGMISpeed` of RCCL), rings less.
const XGMI_SHARE: f64 = 0.70;
/// Least time of a collective on one node and on several, us: half the full rate is reached where the
/// bytes take as long.
const START_US: [f64; 2] = [45.0, 130.0];
/// busbw that one channel of NCCL carries between GPUs joined by NVLink, GB/s: 370 over 16 channels.
const CHANNEL_GBS: f64 = 22.0;

/// What follows from the table by arithmetic alone.
pub(crate) fn certain_edit(table: &CollectiveTable, best: f64) -> Option<WorldEdit> {
    if table.ranks == Some(1) || (best == 0.0 && table.average_busbw == Some(0.0)) {
        // Reductions to one rank, broadcasts and pairs have a factor of 1.
        let why = match best > 0.0 {
            true => "the figure is of a copy within the GPU",
            false => "the factor (n-1)/n is 0 for n = 1, whatever the GPU does",
        };
        return Some(CauseFacts::default().word("why", why).cause("collective.one-rank"));
    }
    if table.runs > 1 {
        let facts = CauseFacts::new(&[("runs", f64::from(table.runs))]);
        return Some(facts.cause("collective.separate-runs"));
    }
    if table.wrong > 0.0 {
        let sizes = table.rows.iter().filter(|row| row.wrong > 0.0).take(4);
        let sizes: Vec<String> = sizes.map(|row| format!("{} B", row.bytes)).collect();
        let facts = CauseFacts::new(&[("wrong", table.wrong)]).word("sizes", sizes.join(", "));
        return Some(facts.cause("collective.wrong-bytes"));
    }
    // Sizes that all take the time of a start: their rate is that of the size and no link's.
    let small = table.rows.iter().min_by_key(|row| row.bytes)?;
    let large = table.rows.iter().max_by_key(|row| row.bytes)?;
    let is_flat =
        large.time_us < small.time_us * 1.5 && large.bytes >= small.bytes.saturating_mul(64);
    let facts = CauseFacts::new(&[
        ("small_bytes", small.bytes as f64),
        ("small_us", small.time_us),
        ("large_bytes", large.bytes as f64),
        ("large_us", large.time_us),
    ]);
    (is_flat && small.bytes > 0 && small.time_us > 0.0)
        .then(|| facts.cause("collective.small-size#flat"))
}

/// One table with all that its causes depend on.
pub(crate) struct CollectiveCase<'a> {
    pub(crate) table: &'a CollectiveTable,
    pub(crate) shape: &'a TableSummary,
    /// The operation; none of pairs.
    pub(crate) op: Option<Collective>,
    /// busbw over algbw.
    pub(crate) factor: f64,
    pub(crate) log: Option<&'a NcclLog>,
    pub(crate) context: &'a PasteContext,
}

impl CollectiveCase<'_> {
    /// NVLink or xGMI of a node: a ring, the switches, channels, links.
    pub(crate) fn in_node(&self, draft: &mut DraftAnswer, node: &NodeLimits) {
        let links = node.links_gbs;
        if links <= 0.0 {
            return;
        }
        let (shape, context) = (self.shape, self.context);
        let n = f64::from(shape.ranks);
        let (share, sigma) = match node.fabric {
            FabricKind::Xgmi => (XGMI_SHARE, 0.2),
            _ => (RING_SHARE * node.data_share(), 0.07),
        };
        let among = links_among(shape, node);
        let ring = among * share;
        let reduces = self.op == Some(Collective::AllReduce) && node.fabric == FabricKind::Switched;
        let nvls = reduces && node.product.is_some_and(|p| p.nvls);
        let nvls_off = is_set(context, "NCCL_NVLS_ENABLE", "0")
            || self.log.is_some_and(|log| log.nvls == Some(false))
            || is_set(context, "NCCL_ALGO", "ring");
        let law = links * NVLS_SHARE * node.data_share() * 2.0 * (n - 1.0) / (n + 1.0);
        let facts = CauseFacts::new(&[
            ("ring", ring),
            ("among", among),
            ("share", share),
            ("links", links),
            ("law", law),
            ("ranks", n),
            ("each", CHANNEL_GBS),
        ]);
        let prior = if nvls && !nvls_off { 0.2 } else { 0.4 };
        draft.edits.push(facts.with("sigma", sigma).with("prior", prior).cause("collective.ring"));
        let mut plateau = (ring, sigma);
        if nvls {
            let seen = if nvls_off { -3.0 } else { 0.5 };
            draft.edits.push(facts.cause("collective.nvls").seen(seen));
            if !nvls_off {
                plateau = (law, 0.05);
            }
        }
        self.channels(draft, &facts, ring);
        self.too_small(draft, plateau);
    }

    fn too_small(&self, draft: &mut DraftAnswer, (full, sigma): (f64, f64)) {
        let start = START_US.get(usize::from(self.shape.nodes > 1)).copied().unwrap_or(45.0);
        // Bytes that take as long as the start: us x GB/s x 1000.
        let half = start * 1e3 * full / self.factor.max(0.1);
        let bytes = self.shape.largest as f64;
        let part = bytes / (bytes + half);
        if part > 0.97 || bytes == 0.0 {
            return;
        }
        let facts = CauseFacts::new(&[
            ("full", full),
            ("part", part),
            ("sigma", 0.4 * (1.0 - part) + sigma),
            // part(S) / part(S/2): 2 where starts are all, 1 where none count.
            ("growth", 2.0 - part),
            ("mib", bytes / 1048576.0),
            ("starts", 1.0 - part),
        ]);
        draft.edits.push(facts.cause("collective.small-size"));
    }

    /// Channels that are set or logged, and the protocol that is set.
    fn channels(&self, draft: &mut DraftAnswer, facts: &CauseFacts, ring: f64) {
        let set = ["NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_CTAS"]
            .iter()
            .find_map(|name| self.context.settings.get(*name)?.parse::<u32>().ok());
        let known = set.or(self.table.channels).or(self.log.and_then(|log| log.channels));
        // Without a log half of the channels looks like half of the links.
        let counts = known.map_or_else(|| vec![1, 2, 4, 8], |known| vec![known]);
        let counts = counts.into_iter().map(f64::from);
        for count in counts.filter(|n| *n * CHANNEL_GBS < ring * 0.8) {
            let facts = facts
                .with("count", count)
                .with("rate", count * CHANNEL_GBS)
                .with("prior", if known.is_some() { 0.02 } else { 0.008 })
                .word("whose", if set.is_some() { " (set)" } else { "" });
            let edit = facts.cause("collective.few-channels");
            draft.edits.push(if known.is_some() { edit.seen(3.0).stated() } else { edit });
        }
        let protocol = self.context.settings.get("NCCL_PROTO").map(String::as_str);
        if let Some(protocol @ ("LL" | "LL128" | "ll" | "ll128")) = protocol {
            // LL carries 4 bytes of data with 4 of flags and synchronises in small steps; LL128 120 of 128.
            let part = if protocol.len() == 2 { 0.3 } else { 0.85 };
            let facts = facts.with("part", part).word("protocol", protocol);
            draft.edits.push(facts.cause("collective.protocol-set"));
        }
    }

    pub(crate) fn through_host(&self, draft: &mut DraftAnswer, node: &NodeLimits) {
        if node.pcie_gbs <= 0.0 {
            return;
        }
        let via = Transports::new(self.log, self.context);
        let has_links = node.links_gbs > 0.0;
        let no_peer = !has_links && node.no_peer;
        let is_known = via.shm || via.peer_off;
        let why = match () {
            () if via.peer_off => "P2P is switched off by a setting",
            () if via.shm => "the log shows SHM between GPUs",
            () if no_peer => "the driver of this product offers no P2P over PCIe",
            () => "P2P is not used (no access, or across sockets)",
        };
        let facts = CauseFacts::new(&[("pcie", node.pcie_gbs)]).word("why", why);
        let seen = match (is_known, via.known) {
            (true, _) => 3.0,
            (false, true) => -3.0,
            _ => 0.0,
        };
        let host = facts.cause(match (has_links, no_peer) {
            (true, _) => "collective.through-host-memory#with-links",
            (false, true) => "collective.through-host-memory#refused",
            (false, false) => "collective.through-host-memory",
        });
        let host = host.seen(seen);
        draft.edits.push(if is_known { host.stated() } else { host });
        if no_peer {
            return;
        }
        let seen = match (via.peer && !via.shm, is_known) {
            (true, _) => 1.5,
            (false, true) => -3.0,
            _ => 0.0,
        };
        let peer = match has_links {
            true => facts.cause("collective.pcie-peer#with-links"),
            false => facts.cause("collective.pcie-peer"),
        };
        draft.edits.push(peer.seen(seen));
    }

    /// What log and settings say of the transports, whatever the limit is.
    pub(crate) fn by_transport(&self, draft: &mut DraftAnswer) {
        let via = Transports::new(self.log, self.context);
        draft.edits.extend(match self.shape.is_one_node() {
            true if via.shm || via.peer_off => Some(cause("log.through-host-memory")),
            false if via.socket => Some(cause("collective.tcp")),
            false if via.direct == Some(false) => {
                let mut edit = CauseFacts::new(&[("full", 1.0)]).cause("collective.no-gpu-direct");
                edit.expects.clear();
                Some(edit)
            }
            _ => None,
        });
    }

    pub(crate) fn over_network(&self, draft: &mut DraftAnswer, node: &NodeLimits, total: f64) {
        let (edits, shape) = (&mut draft.edits, self.shape);
        let via = Transports::new(self.log, self.context);
        let one = node.nic_gbs;
        let nics = (total / one).round().max(1.0);
        let inner = match node.links_gbs > 0.0 {
            true => node.links_gbs * node.data_share() * RING_SHARE,
            false if node.pcie_gbs > 0.0 => node.pcie_gbs * 0.6,
            false => f64::INFINITY,
        };
        // All-to-all: of N nodes (N-1)/N of the bytes leave a node, each GPU's through its share of the
        // adapters (NCCL's author, nccl-tests#130); a pair of ranks has no more than that share either.
        let nodes = f64::from(shape.nodes);
        let per_gpu = total * nodes / f64::from(shape.ranks.max(1));
        let (full, pattern) = match self.op {
            Some(Collective::AllToAll) => (per_gpu * 0.92 * nodes / (nodes - 1.0), "all-to-all"),
            None => (per_gpu * 0.92, "pairs"),
            _ => ((total * 0.92).min(inner), "a ring"),
        };
        let rdma = match (via.socket, via.infiniband) {
            (true, _) => -4.0,
            (false, true) => 1.0,
            _ => 0.0,
        };
        let facts = CauseFacts::new(&[
            ("one", one),
            ("nics", nics),
            ("full", full),
            ("total", total),
            ("factor", self.factor),
            ("tree", (total * 0.9 * self.factor).min(inner * 1.3)),
        ])
        .word("pattern", pattern);
        edits.push(facts.cause("collective.network-full").seen(rdma));
        let reduces = self.op == Some(Collective::AllReduce) && shape.nodes == 2;
        if reduces || is_set(self.context, "NCCL_COLLNET_ENABLE", "1") {
            edits.push(facts.cause("collective.tree-of-two-nodes").seen(rdma));
        }
        match node.nics_used.map(f64::from) {
            Some(used) => {
                edits.push(facts.with("used", used).cause("collective.fewer-adapters#named"));
            }
            None if nics > 1.0 => edits.extend([1.0, nics / 2.0].map(|used| {
                facts.with("used", used).cause("collective.fewer-adapters").seen(rdma)
            })),
            None => {}
        }
        if via.socket {
            edits.push(cause("collective.tcp"));
        }
        if via.direct == Some(false) {
            edits.push(facts.cause("collective.no-gpu-direct"));
        }
    }
}

/// What the log and settings say of transports.
struct Transports {
    shm: bool,
    peer: bool,
    socket: bool,
    infiniband: bool,
    direct: Option<bool>,
    peer_off: bool,
    known: bool,
}

impl Transports {
    fn new(log: Option<&NcclLog>, context: &PasteContext) -> Self {
        let via = |part: &str| log.is_some_and(|log| log.has_transport(part));
        let off = [("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC"), ("NCCL_P2P_LEVEL", "0")];
        let peer_off = off.iter().any(|(name, value)| is_set(context, name, value));
        Self {
            shm: via("SHM"),
            peer: via("P2P"),
            socket: log.is_some_and(uses_sockets)
                || is_set(context, "NCCL_IB_DISABLE", "1")
                || is_set(context, "NCCL_NET", "Socket"),
            infiniband: via("NET/IB"),
            direct: via("NET/IB").then(|| via("GDRDMA") && !log.is_some_and(lacks_direct_channels)),
            peer_off,
            known: log.is_some_and(|log| !log.transports.is_empty()),
        }
    }
}
