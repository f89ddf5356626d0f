//! Tables of nccl-tests and rccl-tests: what busbw counts, its limit, and what gives such a figure.

use std::collections::BTreeSet;

use pathline_paste::{CollectiveRow, CollectiveTable, NcclLog, PasteContext};
use pathline_schema::Collective;

use crate::checks::CheckPath;
use crate::draft::{DraftAnswer, ProbeSubject};
use crate::fitting_links::{PORTS, fitting_text};
use crate::logs::{lacks_direct_channels, uses_sockets};
use crate::node_facts::{FactSource, NodeLimits, figure, is_set};
use crate::outlier::{DIP, Outlier, falls_off, slow_rows};
use crate::product_facts::FabricKind;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// Share of the links that a ring of NCCL reaches as busbw: 370 of 450 on H100, 160 of 200 on H800, 235 of
/// 300 on A100, 130 of 150 GB/s on V100 (statements of NCCL's authors in its issues; fixtures of this
/// repository: 0.80 to 0.83).
const RING_SHARE: f64 = 0.81;
/// Share of the links that NVLink SHARP reaches on the wire; its busbw is that times 2(n-1)/(n+1), because
/// each GPU moves (1 + 1/n) of the buffer each way, where the formula of busbw counts 2(n-1)/n.
const NVLS_SHARE: f64 = 0.686;
/// Share of a ring's best rate that runs of other sizes and numbers of GPUs reach.
const PLATEAU: f64 = 0.9;
/// Share of xGMI that RCCL reaches: 64 GB/s links carry 48 (`ncclTopoXGMISpeed` of RCCL), rings less.
const XGMI_SHARE: f64 = 0.70;
/// Least time of a collective on one node and on several, us: half the full rate is reached where the
/// bytes take as long.
const START_US: [f64; 2] = [45.0, 130.0];
/// busbw that one channel of NCCL carries between GPUs joined by NVLink, GB/s: 370 over 16 channels.
const CHANNEL_GBS: f64 = 22.0;
/// A row this much faster than the one of half its size shows no plateau.
const STILL_GROWS: f64 = 1.15;

/// What an operation without a name may be.
const ALL_TO_ALL: &str = "it is an all-to-all";
/// The largest size is slower than the best from here on, as a share.
const STILL_LEVEL: f64 = 0.85;

/// What a table shows.
struct TableSummary {
    ranks: u32,
    nodes: u32,
    /// Whether NVLink joins all of its nodes.
    is_one_domain: bool,
    /// Whether something states the number of nodes: hosts of all ranks, a log, the text, or one process.
    is_placed: bool,
    /// Greatest busbw.
    best: f64,
    largest: u64,
    last: f64,
    growth: Option<f64>,
}

impl TableSummary {
    fn new(
        table: &CollectiveTable,
        log: Option<&NcclLog>,
        node: Option<&NodeLimits>,
        context: &PasteContext,
    ) -> Self {
        let hosts: BTreeSet<&str> =
            table.devices.iter().map(|device| device.host.as_str()).collect();
        let listed = u32::try_from(hosts.len().max(1)).unwrap_or(1);
        // Hosts that a log names count where no device list is pasted: each has a rank at least.
        let logged = log.and_then(|log| u32::try_from(log.hosts.len()).ok());
        let logged = logged.filter(|hosts| table.devices.is_empty() && *hosts > 1);
        let stated = table.nodes.or(log.and_then(|log| log.nodes)).or(logged).unwrap_or(1);
        let ranks = table.ranks.or(log.and_then(|log| log.ranks));
        // A list of devices that was cut names too few hosts: then the text's count, and no node has more
        // than 16 GPUs.
        let is_cut = ranks.is_none_or(|ranks| (table.devices.len() as u64) < u64::from(ranks));
        let written = context.nodes.filter(|_| is_cut && table.nodes.is_none()).unwrap_or(1);
        // DGX-2 has 16 GPUs a node, later ones 8.
        let is_later = node.and_then(|node| node.product).is_some_and(|p| p.name != "V100");
        let least = ranks.map_or(1, |ranks| ranks.div_ceil(if is_later { 8 } else { 16 }));
        let nodes = listed.max(stated).max(written.min(ranks.unwrap_or(u32::MAX))).max(least);
        let ranks = ranks.or(node.and_then(|n| n.gpus)).unwrap_or(2).max(1);
        let domain = log.and_then(|log| log.nvlink_domain);
        let best = table.rows.iter().map(|row| row.busbw).fold(0.0, f64::max);
        let mut rows: Vec<_> = table.rows.iter().collect();
        rows.sort_by_key(|row| row.bytes);
        let last = rows.last().copied().copied().unwrap_or_default();
        // Growth from a size to its double tells starts from saturation.
        let before = rows
            .iter()
            .rev()
            .find(|row| row.bytes.saturating_mul(2) == last.bytes && row.busbw > 0.0);
        Self {
            ranks,
            nodes,
            is_one_domain: domain.is_some_and(|size| size >= ranks),
            is_placed: !is_cut
                || nodes > 1
                || table.nodes.or(context.nodes).or(log.and_then(|log| log.nodes)).is_some()
                || table.gpus_per_thread.is_some_and(|gpus| gpus >= ranks),
            best,
            largest: last.bytes,
            last: last.busbw,
            growth: before.map(|row| last.busbw / row.busbw),
        }
    }

    const fn is_one_node(&self) -> bool {
        self.nodes <= 1 || self.is_one_domain
    }

    /// How rates change with the size.
    fn observe(&self, draft: &mut DraftAnswer, table: &CollectiveTable) {
        if let Some(growth) = self.growth.filter(|g| *g > 0.0) {
            draft.features.push(ObservedFeature::new("growth", growth));
        }
        if self.best > 0.0 && self.last > 0.0 && table.rows.len() > 2 {
            draft.features.push(ObservedFeature::new("cliff", self.last / self.best));
        }
    }

    /// Share of the full rate at the largest size, if `full` is the busbw of infinite ones.
    fn size_share(&self, full: f64, factor: f64) -> f64 {
        let start = START_US.get(usize::from(self.nodes > 1)).copied().unwrap_or(45.0);
        // Bytes that take as long as the start: us x GB/s x 1000.
        let half = start * 1e3 * full / factor.max(0.1);
        let bytes = self.largest as f64;
        bytes / (bytes + half)
    }
}

/// Ranks of a collective on one node; none of one over several, or of one rank.
pub(crate) fn ranks_of_node(
    table: &CollectiveTable,
    node: Option<&NodeLimits>,
    log: Option<&NcclLog>,
    context: &PasteContext,
) -> Option<u32> {
    let shape = TableSummary::new(table, log, node, context);
    (shape.nodes == 1 && table.ranks != Some(1)).then_some(shape.ranks)
}

/// The draft of an answer.
pub(crate) fn explain(
    table: &CollectiveTable,
    node: Option<&NodeLimits>,
    log: Option<&NcclLog>,
    context: &PasteContext,
) -> DraftAnswer {
    let shape = TableSummary::new(table, log, node, context);
    // Without a name the rows say what the factor is: only a reduction to all has 1 or more.
    let of_rows = table.rows.iter().rev().find(|row| row.algbw >= 1.0 && table.op.is_none());
    let of_rows = of_rows.map(|row| row.busbw / row.algbw);
    let unnamed = match of_rows {
        Some(factor) if factor < 0.99 => Collective::AllGather,
        _ => Collective::AllReduce,
    };
    let op = table.op.unwrap_or(unnamed);
    let factor = if table.is_sendrecv { 1.0 } else { op.bus_factor(shape.ranks as usize) };
    let factor = of_rows.unwrap_or(factor);
    let name = match (table.op, table.is_sendrecv) {
        (_, true) => "sendrecv".to_owned(),
        (Some(op), _) => op.to_string(),
        _ => "collective".to_owned(),
    };
    let best = if shape.best > 0.0 { shape.best } else { table.average_busbw.unwrap_or(0.0) };
    let nodes = if shape.nodes > 1 { format!(" on {} nodes", shape.nodes) } else { String::new() };
    let incomplete = match table.is_incomplete {
        true => "; the profiler's file does not say that every record was written",
        false => "",
    };
    let mut draft = DraftAnswer {
        meaning: format!(
            "{name} over {} ranks{nodes}, GPU memory: busbw {} GB/s (1e9 B/s) = size / time x {}; one \
             direction of a GPU's links, if a ring carries it{incomplete}",
            shape.ranks,
            figure(best),
            figure(factor),
        ),
        value: Some(best),
        subject: if shape.nodes > 1 { ProbeSubject::Nothing } else { ProbeSubject::GpuPairs },
        path: if shape.is_one_node() {
            CheckPath::NodeCollective
        } else {
            CheckPath::NetCollective
        },
        ..DraftAnswer::default()
    };
    if let Some(edit) = certain_edit(table, best) {
        match edit.id {
            "one-rank" | "separate-runs" => draft.limit = "none: no rate counts here".to_owned(),
            _ => set_limit(&mut draft, table, &shape, node),
        }
        // Of wrong bytes and of starts no share counts.
        draft.limit_gbs = None;
        draft.edits.push(edit);
        return draft;
    }
    set_limit(&mut draft, table, &shape, node);
    draft.outliers = slow_sizes(table);
    draft.features.push(ObservedFeature::new("busbw", best.max(1e-3)));
    shape.observe(&mut draft, table);
    let is_usual = draft.usual.zip(draft.limit_gbs).is_some_and(|((u, _), l)| best >= u * l);
    if let Some(growth) = shape.growth.filter(|growth| *growth > STILL_GROWS && !is_usual) {
        draft.note = format!(
            "the largest size still grows ({growth:.1} times the rate of half of it): no plateau is shown"
        );
    } else if shape.last < shape.best * STILL_LEVEL {
        draft.note = format!(
            "the largest size is slower ({} GB/s) than the best ({} GB/s): another algorithm or protocol \
             begins there, or the network drops packets",
            figure(shape.last),
            figure(shape.best)
        );
    }
    let via = Transports::new(log, context);
    if let Some(node) = node.filter(|_| shape.is_one_node()) {
        in_node(&mut draft, &shape, op, factor, node, log, context, table);
        through_host(&mut draft.edits, node, &via);
    } else if let (Some(node), Some(total), true) = (
        node.filter(|node| node.nic_gbs > 0.0),
        draft.limit_gbs,
        draft.condition.is_empty() || draft.condition == ALL_TO_ALL,
    ) {
        let total = node.nics.map_or(total, |nics| f64::from(nics) * node.nic_gbs);
        let op = if draft.condition.is_empty() { op } else { Collective::AllToAll };
        let op = (!table.is_sendrecv).then_some(op);
        over_network(&mut draft.edits, &shape, node, total, &via, factor, op, context);
    } else {
        by_transport(&mut draft.edits, &via, shape.is_one_node());
    }
    draft
}

/// The sizes with wrong elements.
fn wrong_sizes(table: &CollectiveTable) -> String {
    let sizes = table.rows.iter().filter(|row| row.wrong > 0.0).take(4);
    sizes.map(|row| format!("{} B", row.bytes)).collect::<Vec<_>>().join(", ")
}

/// Sizes below their neighbours, in either place.
fn slow_sizes(table: &CollectiveTable) -> Vec<Outlier> {
    let best = table.rows.iter().max_by(|a, b| a.algbw.total_cmp(&b.algbw));
    let factor = best.map_or(1.0, |row| row.busbw / row.algbw.max(1e-9));
    // Small rates have two digits: times say more.
    let of_time = |row: &CollectiveRow| row.bytes as f64 / row.time_us.max(1e-3) / 1e3 * factor;
    let out: Vec<(u64, f64)> = table.rows.iter().map(|row| (row.bytes, of_time(row))).collect();
    let inner = table.rows.iter().filter_map(|row| Some((row.bytes, row.in_place_busbw?)));
    let inner: Vec<(u64, f64)> = inner.filter(|row| row.1 >= 1.0).collect();
    let mut found = slow_rows(&out, DIP);
    found.extend(falls_off(&out));
    for one in slow_rows(&inner, DIP) {
        if found.iter().all(|known| known.part != one.part) {
            found.push(Outlier { text: format!("in place, {}", one.text), ..one });
        }
    }
    found
}

/// What follows from the table by arithmetic alone.
fn certain_edit(table: &CollectiveTable, best: f64) -> Option<WorldEdit> {
    if table.ranks == Some(1) || (best == 0.0 && table.average_busbw == Some(0.0)) {
        return Some(
            WorldEdit::new("one-rank", AnswerClass::SetUpSo, 1.0)
                .says(
                    "a communicator of one rank: the factor (n-1)/n is 0 for n = 1, whatever the GPU does; \
                     nccl-tests is built without MPI=1, or run without -g",
                )
                .decided_by("make MPI=1 MPI_HOME=..., then mpirun again; or one process with -g GPUS")
                .certain(),
        );
    }
    if table.runs > 1 {
        return Some(
            WorldEdit::new("separate-runs", AnswerClass::SetUpSo, 1.0)
                .says(format!(
                    "{} processes print a header or a rank 0: each runs alone; nccl-tests is built without MPI, \
                     or with another MPI than the launcher's",
                    table.runs
                ))
                .decided_by("make MPI=1 MPI_HOME=... of the launcher's MPI; ldd all_reduce_perf | grep mpi")
                .certain(),
        );
    }
    if table.wrong <= 0.0 {
        return starts_alone(table);
    }
    Some(
        WorldEdit::new("wrong-bytes", AnswerClass::HardwareSuspect, 1.0)
            .says(format!(
                "{} elements are wrong at {}: no rate counts before they are right",
                table.wrong,
                wrong_sizes(table)
            ))
            .decided_by("pathline health; NCCL_P2P_DISABLE=1 to see whether the peer path does it")
            .certain(),
    )
}

/// Sizes that all take the time of a start: their rate is that of the size and no link's.
fn starts_alone(table: &CollectiveTable) -> Option<WorldEdit> {
    let small = table.rows.iter().min_by_key(|row| row.bytes)?;
    let large = table.rows.iter().max_by_key(|row| row.bytes)?;
    let is_flat =
        large.time_us < small.time_us * 1.5 && large.bytes >= small.bytes.saturating_mul(64);
    (is_flat && small.bytes > 0 && small.time_us > 0.0).then(|| {
        WorldEdit::new("small-size", AnswerClass::Unknown, 1.0)
            .says(format!(
                "{} B take {} us and {} B {} us: starts are the whole time, and no link is full",
                small.bytes,
                figure(small.time_us),
                large.bytes,
                figure(large.time_us)
            ))
            .decided_by("the same with -e 8G")
            .certain()
    })
}

fn set_limit(
    draft: &mut DraftAnswer,
    table: &CollectiveTable,
    shape: &TableSummary,
    node: Option<&NodeLimits>,
) {
    let is_known = |node: &&NodeLimits| match shape.is_one_node() {
        true => node.product.is_some() || node.fabric_gbs() > 0.0,
        false => node.nic_gbs > 0.0,
    };
    // A ring passes the links of each GPU too: at their usual share no other part holds it back.
    let inner = node.filter(|node| !shape.is_one_node() && node.fabric == FabricKind::Switched);
    let inner = inner
        .filter(|node| node.nic_gbs <= 0.0 && shape.best >= node.links_gbs * RING_SHARE * PLATEAU);
    if let Some(node) = inner {
        draft.limit = format!("{}: what one node reaches", node.link_text());
        draft.limit_gbs = Some(node.links_gbs);
        draft.usual = Some((
            RING_SHARE * PLATEAU,
            "as much as within one node, so the network does not hold it back",
        ));
        return;
    }
    let Some(node) = node.filter(is_known) else {
        draft.limit = match shape.is_one_node() {
            true => "unknown: the paste names no GPU product".to_owned(),
            false => format!("{} for each adapter of a node", fitting_text(shape.best, &PORTS)),
        };
        draft.ask = match shape.is_one_node() {
            true => "which GPU product is it?",
            false => "how many adapters has a node, and of what rate?",
        }
        .to_owned();
        return;
    };
    if shape.is_one_node() {
        draft.limit = node.link_text();
        draft.limit_gbs = Some(node.fabric_gbs()).filter(|gbs| *gbs > 0.0);
        let among = links_among(shape, node);
        if node.fabric == FabricKind::Meshed && among > 0.0 && among < node.links_gbs {
            draft.limit_gbs = Some(among);
            draft.limit = format!(
                "{} GB/s each way, the NVLinks among {} GPUs ({})",
                figure(among),
                shape.ranks,
                node.links_source.label()
            );
        }
        if let Some(pair) = node.joined_gbs(shape.ranks) {
            draft.limit_gbs = Some(pair);
            draft.limit =
                format!("{} GB/s each way, NVLinks among these GPUs (in the paste)", figure(pair));
        }
        if draft.limit_gbs.is_none() {
            draft.ask = "which GPU product is it?".to_owned();
        }
        let no_peer = node.product.is_some_and(|product| !product.pcie_p2p);
        draft.usual = Some(
            match draft.limit_gbs.is_some_and(|gbs| gbs > node.pcie_gbs) || node.links_gbs > 0.0 {
                true => (0.6, "collectives over GPU links reach 60 % and more at large sizes"),
                false if no_peer => (0.2, "rings through host memory reach 20 to 40 % of PCIe"),
                false => (0.55, "rings over PCIe with P2P reach 55 % and more"),
            },
        );
        if !shape.is_placed && node.links_source != FactSource::Machine {
            draft.condition = "all ranks are on one node".to_owned();
            draft.ask = "on how many nodes are the ranks?".to_owned();
        }
        return;
    }
    let nics = node.nics.unwrap_or(1);
    let total = f64::from(nics) * node.nic_gbs;
    draft.usual = Some((0.75, "collectives over a network reach 75 to 97 % of its adapters"));
    draft.limit_gbs = Some(total);
    draft.limit = format!(
        "{} GB/s of network each way, {nics} x {} GB/s of a node ({})",
        figure(total),
        figure(node.nic_gbs),
        node.nic_source.label()
    );
    // Of an all-to-all each rank has its part of the adapters, and what stays on the node needs none.
    let (ranks, nodes) = (f64::from(shape.ranks), f64::from(shape.nodes));
    let is_pair = table.is_sendrecv;
    let outward = if is_pair { 1.0 } else { (ranks - 1.0) / (ranks - ranks / nodes).max(1.0) };
    let each = (total * nodes / ranks).min(total) * outward;
    // An operation without a name that gets no more may be one.
    let may_be = table.op.is_none() && shape.best > 0.0 && shape.best <= each;
    if may_be && !is_pair && each < total * 0.99 {
        draft.condition = ALL_TO_ALL.to_owned();
    }
    if table.op == Some(Collective::AllToAll) || is_pair || may_be {
        draft.limit_gbs = Some(each);
        draft.limit.push_str(&format!(
            "; {} GB/s a rank, whose peers are on other nodes in part",
            figure(each)
        ));
    }
    // One GPU of a node has one adapter as a rule.
    if node.nics.is_none() && shape.ranks > shape.nodes {
        draft.condition = "a node has one adapter".to_owned();
        draft.ask = "how many adapters has a node?".to_owned();
    }
}

/// Links that a ring over these GPUs has: in a mesh those among them, GB/s.
fn links_among(shape: &TableSummary, node: &NodeLimits) -> f64 {
    let of_pairs = node.pair_gbs * f64::from(shape.ranks.saturating_sub(1));
    let is_part = match node.fabric {
        FabricKind::Xgmi => {
            shape.ranks < 8 && node.gpus.unwrap_or(8) >= 8 && node.links_gbs > 200.0
        }
        FabricKind::Meshed => node.links_source == FactSource::Paste,
        _ => false,
    };
    if is_part { of_pairs.min(node.links_gbs) } else { node.links_gbs }
}

fn steady(edit: WorldEdit) -> WorldEdit {
    edit.expects("growth", 1.01, 0.06).expects("cliff", 0.99, 0.05)
}

/// NVLink or xGMI of a node: a ring, the switches, channels, links.
#[allow(clippy::too_many_arguments, reason = "the facts of one table")]
fn in_node(
    draft: &mut DraftAnswer,
    shape: &TableSummary,
    op: Collective,
    factor: f64,
    node: &NodeLimits,
    log: Option<&NcclLog>,
    context: &PasteContext,
    table: &CollectiveTable,
) {
    if node.links_gbs <= 0.0 {
        return;
    }
    let (edits, links) = (&mut draft.edits, node.links_gbs);
    let n = f64::from(shape.ranks);
    let is_xgmi = node.fabric == FabricKind::Xgmi;
    let (share, sigma) = if is_xgmi { (XGMI_SHARE, 0.2) } else { (RING_SHARE, 0.07) };
    let among = links_among(shape, node);
    let ring = among * share;
    let is_forced = is_set(context, "NCCL_ALGO", "ring");
    let reduces = op == Collective::AllReduce && node.fabric == FabricKind::Switched;
    let nvls = reduces && node.product.is_some_and(|p| p.nvls);
    let nvls_off = is_set(context, "NCCL_NVLS_ENABLE", "0")
        || log.is_some_and(|l| l.nvls == Some(false))
        || is_forced;
    let prior = if nvls && !nvls_off { 0.2 } else { 0.4 };
    edits.push(steady(
        WorldEdit::new("ring", AnswerClass::AsExpected, prior)
            .expects("busbw", ring, sigma)
            .says(format!(
                "a ring reaches {:.0} % of the links after packets and protocol: {} x {share} = {} GB/s",
                share * 100.0,
                figure(among),
                figure(ring)
            ))
            .decided_by("nccl-tests with NCCL_ALGO=Ring: the same figure"),
    ));
    let mut plateau = (ring, sigma);
    if nvls {
        let law = links * NVLS_SHARE * 2.0 * (n - 1.0) / (n + 1.0);
        let exceeds = law > links || shape.best > links;
        let class = if exceeds { AnswerClass::MeansSomethingElse } else { AnswerClass::AsExpected };
        edits.push(steady(
            WorldEdit::new("nvls", class, 0.35)
                .expects("busbw", law, 0.045)
                .seen(if nvls_off { -3.0 } else { 0.5 })
                .says(format!(
                    "NVLink SHARP sums in the switch: busbw is a formula here, not the wire's rate; {} x {NVLS_SHARE} x 2({n}-1)/({n}+1) = {} GB/s",
                    figure(links), figure(law)
                ))
                .decided_by("NCCL_NVLS_ENABLE=0: busbw falls to a ring's"),
        ));
        if !nvls_off {
            plateau = (law, 0.05);
        }
    }
    channels(edits, table.channels.or(log.and_then(|log| log.channels)), context, ring);
    too_small(edits, shape, plateau.0, factor, plateau.1);
}

fn too_small(edits: &mut Vec<WorldEdit>, shape: &TableSummary, full: f64, factor: f64, sigma: f64) {
    let part = shape.size_share(full, factor);
    if part > 0.97 || shape.largest == 0 {
        return;
    }
    // part(S) / part(S/2): 2 where starts are all, 1 where none count.
    let growth = part / (part / (2.0 - part)).max(1e-6);
    edits.push(
        WorldEdit::new("small-size", AnswerClass::AsExpected, 0.3)
            .expects("busbw", full * part, 0.4 * (1.0 - part) + sigma)
            .expects("growth", growth, 0.08)
            .expects("cliff", 0.99, 0.05)
            .within(0.25)
            .says(format!("the largest size, {} MiB, is too small: starts take {:.0} % of the time, {} GB/s need GiB sizes", figure(shape.largest as f64 / 1048576.0), (1.0 - part) * 100.0, figure(full)))
            .decided_by("the same with -e 8G"),
    );
}

/// Channels that are set or logged, and the protocol that is set.
fn channels(edits: &mut Vec<WorldEdit>, logged: Option<u32>, context: &PasteContext, ring: f64) {
    let set = ["NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_CTAS"]
        .iter()
        .find_map(|name| context.settings.get(*name)?.parse::<u32>().ok());
    let known = set.or(logged);
    // Without a log half of the channels looks like half of the links.
    let counts = known.map_or_else(|| vec![1, 2, 4, 8], |known| vec![known]);
    for count in counts.into_iter().filter(|n| f64::from(*n) * CHANNEL_GBS < ring * 0.8) {
        let rate = f64::from(count) * CHANNEL_GBS;
        let whose = if set.is_some() { " (set)" } else { "" };
        let edit = steady(
            WorldEdit::new("few-channels", AnswerClass::SetUpSo, if known.is_some() { 0.02 } else { 0.008 })
                .expects("busbw", rate, 0.2)
                .says(format!("{count} channels{whose} of about {CHANNEL_GBS} GB/s carry {} GB/s; a node of these links wants 16 or more", figure(rate)))
                .decided_by("unset NCCL_*CHANNELS and tuner plugins; NCCL_TOPO_DUMP_FILE: compare `nvlink count` of each GPU"),
        );
        edits.push(if known.is_some() { edit.seen(3.0).stated() } else { edit });
    }
    let protocol = context.settings.get("NCCL_PROTO").map(String::as_str);
    if let Some(protocol @ ("LL" | "LL128" | "ll" | "ll128")) = protocol {
        // LL carries 4 bytes of data with 4 of flags and synchronises in small steps; LL128 120 of 128.
        let part = if protocol.len() == 2 { 0.3 } else { 0.85 };
        edits.push(steady(
            WorldEdit::new("protocol-set", AnswerClass::SetUpSo, 0.2)
                .expects("busbw", ring * part, 0.3)
                .seen(3.0)
                .stated()
                .says(format!(
                    "NCCL_PROTO={protocol} is set: {part} of the rate of Simple at large sizes"
                ))
                .decided_by("unset NCCL_PROTO"),
        ));
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
        let via = |part: &str| {
            log.is_some_and(|log| log.transports.keys().any(|name| name.contains(part)))
        };
        let peer_off = is_set(context, "NCCL_P2P_DISABLE", "1")
            || is_set(context, "NCCL_P2P_LEVEL", "LOC")
            || is_set(context, "NCCL_P2P_LEVEL", "0");
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

fn through_host(edits: &mut Vec<WorldEdit>, node: &NodeLimits, via: &Transports) {
    let pcie = node.pcie_gbs;
    if pcie <= 0.0 {
        return;
    }
    let has_links = node.links_gbs > 0.0;
    let no_peer = !has_links && node.product.is_some_and(|p| !p.pcie_p2p);
    let is_known = via.shm || via.peer_off;
    let why = match () {
        () if via.peer_off => "P2P is switched off by a setting",
        () if via.shm => "the log shows SHM between GPUs",
        () if no_peer => "the driver of this product offers no P2P over PCIe",
        () => "P2P is not used (no access, or across sockets)",
    };
    let prior = match (has_links, no_peer) {
        (true, _) => 0.05,
        (false, true) => 0.6,
        (false, false) => 0.25,
    };
    let class = if no_peer { AnswerClass::AsExpected } else { AnswerClass::SetUpSo };
    let flat = |edit: WorldEdit| edit.expects("growth", 1.01, 0.1).expects("cliff", 0.97, 0.08);
    let check = "NCCL_DEBUG=INFO and `nvidia-smi topo -m`, pasted together with the table";
    let mut add = |edit: WorldEdit, rate: f64, sigma: f64| {
        edits.push(flat(edit.expects("busbw", rate, sigma)));
    };
    let host = WorldEdit::new("through-host-memory", class, prior)
        .seen(if is_known {
            3.0
        } else if via.known {
            -3.0
        } else {
            0.0
        })
        .within(0.45)
        .says(format!(
            "{why}: each byte goes through host memory, out and in; about {} of {} GB/s of PCIe",
            figure(pcie * 0.27),
            figure(pcie)
        ))
        .decided_by(check);
    add(if is_known { host.stated() } else { host }, pcie * 0.27, 0.45);
    if !no_peer {
        let (prior, class, text) = match has_links {
            true => (0.04, AnswerClass::SetUpSo, "NVLink or xGMI is not used; P2P over PCIe"),
            false => (0.35, AnswerClass::AsExpected, "P2P over PCIe without other links"),
        };
        let seen = if via.peer && !via.shm {
            1.5
        } else if via.shm || via.peer_off {
            -3.0
        } else {
            0.0
        };
        add(
            WorldEdit::new("pcie-peer", class, prior)
                .seen(seen)
                .within(0.25)
                .says(format!(
                    "{text}: a ring gets about {} of {} GB/s",
                    figure(pcie * 0.7),
                    figure(pcie)
                ))
                .decided_by(check),
            pcie * 0.7,
            0.22,
        );
    }
}

/// What log and settings say of the transports, whatever the limit is.
fn by_transport(edits: &mut Vec<WorldEdit>, via: &Transports, is_one_node: bool) {
    if is_one_node {
        if via.shm || via.peer_off {
            edits.push(
                WorldEdit::new("through-host-memory", AnswerClass::SetUpSo, 0.25)
                    .stated()
                    .says("GPUs exchange through host memory (SHM), not P2P")
                    .decided_by("nvidia-smi topo -p2p r; NCCL_P2P_DISABLE, NCCL_P2P_LEVEL"),
            );
        }
    } else if via.socket {
        edits.push(tcp());
    } else if via.direct == Some(false) {
        edits.push(no_gpu_direct());
    }
}

fn tcp() -> WorldEdit {
    WorldEdit::new("tcp", AnswerClass::SetUpSo, 0.12)
        .expects("busbw", 2.0, 1.2)
        .seen(4.0)
        .stated()
        .says("NCCL uses TCP sockets: copies through host memory, a few GB/s whatever the adapter can")
        .decided_by("NCCL_DEBUG=INFO: `NET/IB` or a plugin must stand in `Using network`; NCCL_IB_DISABLE, NCCL_SOCKET_IFNAME")
}

fn no_gpu_direct() -> WorldEdit {
    WorldEdit::new("no-gpu-direct", AnswerClass::SetUpSo, 0.12)
        .stated()
        .says("RDMA goes through host memory: no GPUDirect RDMA (peer memory module, DMA-BUF, or the adapter is too far)")
        .decided_by("NCCL_DEBUG=INFO: `via NET/IB/0/GDRDMA`; NCCL_NET_GDR_LEVEL=SYS as a trial")
}

#[allow(clippy::too_many_arguments, reason = "the facts of one table")]
fn over_network(
    edits: &mut Vec<WorldEdit>,
    shape: &TableSummary,
    node: &NodeLimits,
    total: f64,
    via: &Transports,
    factor: f64,
    op: Option<Collective>,
    context: &PasteContext,
) {
    let one = node.nic_gbs;
    let nics = (total / one).round().max(1.0);
    let inner = match node.links_gbs > 0.0 {
        true => node.links_gbs * RING_SHARE,
        false if node.pcie_gbs > 0.0 => node.pcie_gbs * 0.6,
        false => f64::INFINITY,
    };
    let steady = |edit: WorldEdit| edit.expects("growth", 1.03, 0.1).expects("cliff", 0.97, 0.1);
    // All-to-all: of N nodes (N-1)/N of the bytes leave a node, each GPU's through its share of the
    // adapters (NCCL's author, nccl-tests#130); a pair of ranks has no more than that share either.
    let nodes = f64::from(shape.nodes);
    let per_gpu = total * nodes / f64::from(shape.ranks.max(1));
    let (full, pattern) = match op {
        Some(Collective::AllToAll) => (per_gpu * 0.92 * nodes / (nodes - 1.0), "all-to-all"),
        None => (per_gpu * 0.92, "pairs"),
        _ => ((total * 0.92).min(inner), "a ring"),
    };
    let rdma = if via.socket {
        -4.0
    } else if via.infiniband {
        1.0
    } else {
        0.0
    };
    edits.push(steady(
        WorldEdit::new("network-full", AnswerClass::AsExpected, 0.3)
            .expects("busbw", full, 0.12)
            .seen(rdma)
            .says(format!(
                "{pattern} over {nics} adapters of {} GB/s: {} of {} GB/s a node",
                figure(one),
                figure(full),
                figure(total),
            ))
            .decided_by("ib_write_bw of one adapter: the same share"),
    ));
    let reduces = op == Some(Collective::AllReduce) && shape.nodes == 2;
    if reduces || is_set(context, "NCCL_COLLNET_ENABLE", "1") {
        let tree = (total * 0.9 * factor).min(inner * 1.3);
        edits.push(steady(
            WorldEdit::new("tree-of-two-nodes", AnswerClass::MeansSomethingElse, 0.2)
                .expects("busbw", tree, 0.12)
                .seen(rdma)
                .says(format!("a tree of two nodes sends the buffer once each way: algbw is the network's rate, busbw {} times it", figure(factor)))
                .decided_by("NCCL_ALGO=Ring: busbw falls to the network's rate"),
        ));
    }
    if let Some(used) = node.nics_used.map(f64::from) {
        let text = format!(
            "the log or NCCL_IB_HCA names {used} of {nics} adapters: {} of {} GB/s",
            figure(one * used),
            figure(total)
        );
        edits.push(steady(
            WorldEdit::new("fewer-adapters", AnswerClass::SetUpSo, 0.3)
                .expects("busbw", one * used * 0.92, 0.15)
                .seen(3.0)
                .stated()
                .says(text)
                .decided_by("NCCL_DEBUG=INFO: `NET/IB : Using`; unset NCCL_IB_HCA"),
        ));
    } else if nics > 1.0 {
        for used in [1.0, nics / 2.0] {
            edits.push(steady(
                WorldEdit::new("fewer-adapters", AnswerClass::SetUpSo, 0.08)
                    .expects("busbw", one * used * 0.92, 0.15)
                    .seen(rdma)
                    .says(format!(
                        "{used} of {nics} adapters carry it: {} GB/s",
                        figure(one * used * 0.92)
                    ))
                    .decided_by(
                        "NCCL_DEBUG=INFO: adapters in `NET/IB : Using` and channels; NCCL_IB_HCA",
                    ),
            ));
        }
    }
    if via.socket {
        edits.push(steady(tcp()));
    }
    if via.direct == Some(false) {
        edits.push(steady(no_gpu_direct().expects("busbw", full * 0.4, 0.35).seen(3.0)));
    }
}
