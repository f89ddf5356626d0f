//! Causes for tables of nccl-tests and rccl-tests.

use std::collections::BTreeSet;

use pathline_paste::{CollectiveTable, NcclLog, PasteContext};
use pathline_schema::Collective;

use crate::draft::DraftAnswer;
use crate::draft::ProbeSubject;
use crate::log_answer;
use crate::node_facts::is_set;
use crate::node_facts::{NodeLimits, figure};
use crate::product_facts::FabricKind;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

/// Share of the links that a ring of NCCL reaches as busbw: 370 of 450 on H100, 160 of 200 on H800, 235 of
/// 300 on A100, 130 of 150 GB/s on V100 (statements of NCCL's authors in its issues; fixtures of this
/// repository: 0.80 to 0.83).
const RING_SHARE: f64 = 0.81;
/// Share of the links that NVLink SHARP reaches on the wire; its busbw is that times 2(n-1)/(n+1), because
/// each GPU moves (1 + 1/n) of the buffer each way, where the formula of busbw counts 2(n-1)/n.
const NVLS_SHARE: f64 = 0.686;
/// Share of xGMI that RCCL reaches: 64 GB/s links carry 48 (`ncclTopoXGMISpeed` of RCCL), rings less.
const XGMI_SHARE: f64 = 0.70;
/// Least time of a collective on one node and on several, us: half the full rate is reached where the
/// bytes take as long.
const START_US: [f64; 2] = [45.0, 130.0];
/// busbw that one channel of NCCL carries between GPUs joined by NVLink, GB/s: 370 over 16 channels.
const CHANNEL_GBS: f64 = 22.0;

/// What a table shows.
struct TableSummary {
    ranks: u32,
    nodes: u32,
    /// Greatest busbw and the size at which it was reached.
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
        let stated = table.nodes.or(log.and_then(|log| log.nodes)).unwrap_or(1);
        let ranks = table.ranks.or(log.and_then(|log| log.ranks));
        // A list of devices that was cut names too few hosts: then the text's count, and no node has more
        // than 16 GPUs.
        let is_cut = ranks.is_none_or(|ranks| (table.devices.len() as u64) < u64::from(ranks));
        let written = context.nodes.filter(|_| is_cut && table.nodes.is_none()).unwrap_or(1);
        // DGX-2 has 16 GPUs a node, later ones 8.
        let is_later = node.and_then(|node| node.product).is_some_and(|p| p.name != "V100");
        let least = ranks.map_or(1, |ranks| ranks.div_ceil(if is_later { 8 } else { 16 }));
        let nodes = listed.max(stated).max(written.min(ranks.unwrap_or(u32::MAX))).max(least);
        let ranks = table.ranks.or(log.and_then(|log| log.ranks)).or(node.and_then(|n| n.gpus));
        let best = table.rows.iter().map(|row| row.busbw).fold(0.0, f64::max);
        let mut rows: Vec<_> = table.rows.iter().collect();
        rows.sort_by_key(|row| row.bytes);
        let last = rows.last().copied().copied().unwrap_or_default();
        // Growth from a size to its double tells starts from saturation.
        let before = rows
            .iter()
            .rev()
            .find(|row| row.bytes.saturating_mul(2) == last.bytes && row.busbw > 0.0);
        let growth = before.map(|row| last.busbw / row.busbw);
        let ranks = ranks.unwrap_or(2).max(1);
        Self { ranks, nodes, best, largest: last.bytes, last: last.busbw, growth }
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
    let op = table.op.unwrap_or(Collective::AllReduce);
    let factor = if table.is_sendrecv { 1.0 } else { op.bus_factor(shape.ranks as usize) };
    let name = match (table.op, table.is_sendrecv) {
        (_, true) => "sendrecv".to_owned(),
        (Some(op), _) => op.to_string(),
        _ => "collective".to_owned(),
    };
    let best = if shape.best > 0.0 { shape.best } else { table.average_busbw.unwrap_or(0.0) };
    let meaning = format!(
        "{name} over {} ranks{}: busbw {} GB/s (1e9 B/s) = size / time x {}; one direction of a GPU's links, if a ring carries it{}",
        shape.ranks,
        if shape.nodes > 1 { format!(" on {} nodes", shape.nodes) } else { String::new() },
        figure(best),
        figure(factor),
        if table.is_incomplete {
            "; the profiler's file does not say that every record was written"
        } else {
            ""
        },
    );
    let subject = if shape.nodes > 1 { ProbeSubject::Nothing } else { ProbeSubject::GpuPairs };
    let mut draft = DraftAnswer { meaning, value: Some(best), subject, ..DraftAnswer::default() };
    if table.ranks == Some(1) || (best == 0.0 && table.average_busbw == Some(0.0)) {
        draft.edits = vec![alone(table)];
        draft.limit = "none: a communicator of one rank sends nothing".to_owned();
        return draft;
    }
    if table.runs > 1 {
        draft.edits.push(
            WorldEdit::new("separate-runs", AnswerClass::SetUpSo, 1.0)
                .says(format!(
                    "{} processes print a header or a rank 0: each runs alone; nccl-tests is built without MPI, \
                     or with another MPI than the launcher's",
                    table.runs
                ))
                .decided_by("make MPI=1 MPI_HOME=... of the launcher's MPI; ldd all_reduce_perf | grep mpi")
                .certain(),
        );
        draft.limit = "none: the runs do not see each other".to_owned();
        return draft;
    }
    if table.wrong > 0.0 {
        let edit = WorldEdit::new("wrong-bytes", AnswerClass::HardwareSuspect, 1.0)
            .says(format!(
                "{} elements are wrong: the data path corrupts, no rate counts",
                table.wrong
            ))
            .decided_by("pathline health; NCCL_P2P_DISABLE=1 to see whether the peer path does it")
            .certain();
        draft.edits = vec![edit];
    }
    let Some(node) = node else {
        draft.limit = "unknown: the paste names no GPU and no links".to_owned();
        if let Some(gbits) = context.network_gbits {
            of_network_alone(&mut draft, op, gbits / 8.0, best, context);
        }
        shape.observe(&mut draft, table);
        if !draft.features.is_empty() {
            uneven_rows(&mut draft.edits, &shape, table);
        }
        // Transports and settings say something of any node.
        if let Some(log) = log {
            draft.edits.extend(log_answer::log_edits(log).into_iter().map(WorldEdit::likely));
        }
        return draft;
    };
    draft.limit = node.link_text();
    draft.limit_gbs =
        Some(if shape.nodes > 1 { network_gbs(node, &shape) } else { node.fabric_gbs() });
    if shape.nodes > 1 {
        draft.limit = format!(
            "{} GB/s of network each way on a node ({})",
            figure(network_gbs(node, &shape)),
            node.nic_source.label()
        );
    }
    draft.features.push(ObservedFeature::new("busbw", best.max(1e-3)));
    shape.observe(&mut draft, table);
    let edits = candidates(&shape, op, factor, node, log, context, table);
    draft.edits.extend(edits);
    draft
}

/// Causes where only the network between nodes is known: `line` is an adapter's rate, GB/s.
fn of_network_alone(
    draft: &mut DraftAnswer,
    op: Collective,
    line: f64,
    best: f64,
    context: &PasteContext,
) {
    let adapters = f64::from(context.adapters.unwrap_or(1));
    let nodes = f64::from(context.nodes.unwrap_or(2).max(2));
    // Each GPU of an all-to-all has its own adapter, and a part of its bytes stays on the node.
    let total = if op == Collective::AllToAll { line } else { line * adapters };
    let most = if op == Collective::AllToAll { nodes / (nodes - 1.0) } else { 1.0 };
    draft.limit = format!("{} GB/s of network each way (in the paste)", figure(total));
    draft.limit_gbs = Some(total);
    draft.features.push(ObservedFeature::new("busbw", best.max(1e-3)));
    let edit = |id, class, prior, share: f64, sigma| {
        WorldEdit::new(id, class, prior).expects("busbw", total * share, sigma)
    };
    let full = edit(
        "network-full",
        AnswerClass::AsExpected,
        0.5,
        0.92 * most.sqrt(),
        0.1 + most.ln() / 2.0,
    );
    draft.edits.push(
        full.says(format!("the network is full: {} of {} GB/s", figure(best), figure(total)))
            .decided_by("ib_write_bw of one adapter: the same share"),
    );
    if op == Collective::AllReduce && context.nodes.is_none_or(|nodes| nodes == 2) {
        draft.edits.push(
            edit("tree-of-two-nodes", AnswerClass::MeansSomethingElse, 0.15, 1.6, 0.2)
                .says("a tree of two nodes sends the buffer once each way: busbw is up to twice the network's rate")
                .decided_by("NCCL_ALGO=Ring: busbw falls to the network's rate"),
        );
    }
    draft.edits.push(
        edit("no-gpu-direct", AnswerClass::SetUpSo, 0.12, 0.4, 0.35)
            .says("RDMA goes through host memory: no GPUDirect RDMA")
            .decided_by("NCCL_DEBUG=INFO: `via NET/IB/0/GDRDMA`"),
    );
    draft.edits.push(
        edit("tcp", AnswerClass::SetUpSo, 0.12, 0.1, 1.0)
            .says("TCP sockets instead of RDMA")
            .decided_by("NCCL_DEBUG=INFO: `Using network`"),
    );
}

fn alone(table: &CollectiveTable) -> WorldEdit {
    let says = if table.devices.len() > 1 {
        "each process is a communicator of one GPU: the factor (n-1)/n is 0 for n = 1"
    } else {
        "one rank: the factor (n-1)/n is 0 for n = 1, whatever the GPU does"
    };
    WorldEdit::new("one-rank", AnswerClass::SetUpSo, 1.0)
        .says(format!("{says}; nccl-tests is built without MPI=1, or run without -g"))
        .decided_by("make MPI=1 MPI_HOME=..., then mpirun again; or one process with -g GPUS")
        .certain()
}

/// Network of a node, GB/s.
fn network_gbs(node: &NodeLimits, shape: &TableSummary) -> f64 {
    let per_node = (shape.ranks / shape.nodes.max(1)).max(1);
    let nics = node.nics.unwrap_or(per_node.min(8));
    f64::from(nics) * node.nic_gbs
}

fn candidates(
    shape: &TableSummary,
    op: Collective,
    factor: f64,
    node: &NodeLimits,
    log: Option<&NcclLog>,
    context: &PasteContext,
    table: &CollectiveTable,
) -> Vec<WorldEdit> {
    let mut edits = Vec::new();
    let via = Transports::new(log, context);
    let check = "NCCL_DEBUG=INFO and `nvidia-smi topo -m`, pasted together with the table";
    let links = node.links_gbs;
    let steady = |edit: WorldEdit| edit.expects("growth", 1.01, 0.06).expects("cliff", 0.99, 0.05);
    let one_node = shape.nodes <= 1;
    let share = if node.fabric == FabricKind::Xgmi { XGMI_SHARE } else { RING_SHARE };
    let n = f64::from(shape.ranks);
    let reduces = op == Collective::AllReduce;
    let mut plateau = None;
    if one_node && links > 0.0 {
        // A ring over some GPUs of a mesh uses the links among them.
        let among = if node.fabric == FabricKind::Xgmi
            && shape.ranks < 8
            && node.gpus.unwrap_or(8) >= 8
            && links > 200.0
        {
            node.pair_gbs * (n - 1.0)
        } else {
            links
        };
        let ring = among * share;
        let is_forced =
            context.settings.get("NCCL_ALGO").is_some_and(|v| v.eq_ignore_ascii_case("ring"));
        let nvls =
            node.product.is_some_and(|p| p.nvls) && node.fabric == FabricKind::Switched && reduces;
        let nvls_off = is_set(context, "NCCL_NVLS_ENABLE", "0")
            || log.is_some_and(|l| l.nvls == Some(false))
            || is_forced;
        let sigma = if node.fabric == FabricKind::Xgmi { 0.2 } else { 0.07 };
        edits.push(steady(
            WorldEdit::new(
                "ring",
                AnswerClass::AsExpected,
                if nvls && !nvls_off { 0.2 } else { 0.4 },
            )
            .expects("busbw", ring, sigma)
            .says(format!(
                "a ring reaches {:.0} % of the links after packets and protocol: {} x {} = {} GB/s",
                share * 100.0,
                figure(among),
                share,
                figure(ring)
            ))
            .decided_by("nccl-tests with NCCL_ALGO=Ring: the same figure"),
        ));
        plateau = Some((ring, sigma));
        if nvls {
            let law = links * NVLS_SHARE * 2.0 * (n - 1.0) / (n + 1.0);
            let class = if law > links || shape.best > links {
                AnswerClass::MeansSomethingElse
            } else {
                AnswerClass::AsExpected
            };
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
            edits.push(steady(half_links(node, law, nvls_off)));
            if !nvls_off {
                plateau = Some((law, 0.05));
            }
        }
        let channels = table.channels.or(log.and_then(|log| log.channels));
        channels_and_links(&mut edits, channels, context, node, ring);
    }
    if let Some((full, sigma)) = plateau {
        too_small(&mut edits, shape, full, factor, sigma);
    }
    if one_node {
        through_host(&mut edits, node, &via, check);
    } else {
        let op = (!table.is_sendrecv).then_some(op);
        over_network(&mut edits, shape, node, &via, factor, op, context);
    }
    uneven_rows(&mut edits, shape, table);
    edits
}

/// Half of a GPU's links down under NVLink SHARP, whose busbw is `law`.
fn half_links(node: &NodeLimits, law: f64, nvls_off: bool) -> WorldEdit {
    let links = (node.links_gbs / 25.0).round();
    WorldEdit::new("links-lost", AnswerClass::HardwareSuspect, 0.01)
        .expects("busbw", law * 0.5, 0.05)
        .seen(if nvls_off { -3.0 } else { 0.0 })
        .slows_copies(0.5)
        .says(format!(
            "{} of {links} NVLinks of a GPU down: half of {} GB/s",
            links / 2.0,
            figure(law)
        ))
        .decided_by("pathline health; nvidia-smi nvlink -s")
}

/// Rows that fall where others grow.
fn uneven_rows(edits: &mut Vec<WorldEdit>, shape: &TableSummary, table: &CollectiveTable) {
    edits.push(
        WorldEdit::new("falls-with-size", AnswerClass::Software, 0.05)
            .expects("cliff", 0.4, 0.5)
            .expects("growth", 0.95, 0.25)
            .seen(if shape.last > shape.best * 0.9 { -4.0 } else { 0.0 })
            .says(format!("large sizes are slower ({} GB/s at {} B) than the best ({} GB/s): another algorithm or protocol begins there, or the network drops packets", figure(shape.last), shape.largest, figure(shape.best)))
            .decided_by("NCCL_DEBUG_SUBSYS=TUNING at both sizes, and counters of the adapters (ethtool -S, discards)"),
    );
    // The average counts all sizes.
    if let Some(average) = table.average_busbw.filter(|average| shape.best > 1.8 * average) {
        edits.push(
            WorldEdit::new("small-size", AnswerClass::AsExpected, 0.02)
                .expects("busbw", shape.best, 0.3)
                .expects("growth", 1.05, 0.2)
                .expects("cliff", 0.97, 0.1)
                .says(format!(
                    "the average of {} GB/s counts all sizes, the small ones too: the largest has {} GB/s",
                    figure(average), figure(shape.best)
                ))
                .decided_by("the row of the largest size; -b 1G -e 8G"),
        );
    }
    let quicker = table.rows.windows(2).find_map(|pair| {
        let [before, after] = pair else { return None };
        // A row that is slow out of place alone had its connections to set up.
        let is_setup = before.in_place_busbw.is_some_and(|rate| rate > before.busbw * 1.5);
        let is_quicker =
            !is_setup && after.bytes > before.bytes && after.time_us < before.time_us * 0.7;
        (is_quicker && before.time_us > 0.0).then_some((before, after))
    });
    if let Some((before, after)) = quicker {
        edits.push(
            WorldEdit::new("protocol-switch", AnswerClass::Software, 0.15)
                .expects("cliff", shape.last / shape.best.max(1e-9), 0.2)
                .expects("growth", shape.growth.unwrap_or(1.0), 0.3)
                .expects("busbw", shape.best.max(1e-3), 1.0)
                .says(format!(
                    "{} B take {} us, {} B only {}: another algorithm or protocol begins there, and should begin sooner",
                    before.bytes, figure(before.time_us), after.bytes, figure(after.time_us)
                ))
                .decided_by("NCCL_DEBUG_SUBSYS=TUNING at both sizes; NCCL_ALGO and NCCL_PROTO one by one"),
        );
    }
    if let Some(row) = table.rows.iter().find(|row| {
        row.in_place_busbw.is_some_and(|i| {
            i > 0.0 && row.busbw > 0.0 && row.busbw / i < 0.5 && row.bytes > 1 << 24
        })
    }) {
        edits.push(WorldEdit::new("first-use", AnswerClass::MeansSomethingElse, 0.05).expects("busbw", shape.best, 0.3).says(format!("out of place {} GB/s, in place {:.1} at {} B: the first columns include connection setup", figure(row.busbw), row.in_place_busbw.unwrap_or(0.0), row.bytes)).decided_by("more warm-up: -w 20 -n 50"));
    }
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
            .says(format!("the largest size, {} MiB, is too small: starts take {:.0} % of the time, {} GB/s need GiB sizes", figure(shape.largest as f64 / 1048576.0), (1.0 - part) * 100.0, figure(full)))
            .decided_by("the same with -e 8G"),
    );
}

fn channels_and_links(
    edits: &mut Vec<WorldEdit>,
    logged: Option<u32>,
    context: &PasteContext,
    node: &NodeLimits,
    ring: f64,
) {
    let set = ["NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_CTAS"]
        .iter()
        .find_map(|name| context.settings.get(*name)?.parse::<u32>().ok());
    let channels = set.or(logged);
    for count in [1u32, 2, 4, 8] {
        let rate = f64::from(count) * CHANNEL_GBS;
        if rate > ring * 0.8 {
            continue;
        }
        let seen = match channels {
            Some(c) if c == count => 3.0,
            Some(_) => -3.0,
            None => 0.0,
        };
        let whose = if set.is_some() { " (set)" } else { "" };
        edits.push(
            WorldEdit::new("few-channels", AnswerClass::SetUpSo, if channels.is_some() { 0.02 } else { 0.008 })
                .expects("busbw", rate, 0.2)
                .expects("growth", 1.01, 0.06)
                .expects("cliff", 0.99, 0.05)
                .seen(seen)
                .says(format!("{count} channels{whose} of about {CHANNEL_GBS} GB/s carry {} GB/s; a node of these links wants 16 or more", figure(rate)))
                .decided_by("unset NCCL_*CHANNELS, tuner plugin and files: NCCL_TUNER_PLUGIN=none"),
        );
    }
    let protocol = context.settings.get("NCCL_PROTO").map(String::as_str);
    if let Some(protocol @ ("LL" | "LL128" | "ll" | "ll128")) = protocol {
        // LL carries 4 bytes of data with 4 of flags and synchronises in small steps; LL128 120 of 128.
        let part = if protocol.len() == 2 { 0.3 } else { 0.85 };
        edits.push(
            WorldEdit::new("protocol-set", AnswerClass::SetUpSo, 0.2)
                .expects("busbw", ring * part, 0.3)
                .expects("growth", 1.01, 0.06)
                .expects("cliff", 0.99, 0.05)
                .seen(3.0)
                .says(format!(
                    "NCCL_PROTO={protocol} is set: {} of the rate of Simple at large sizes",
                    part
                ))
                .decided_by("unset NCCL_PROTO"),
        );
    }
    if node.fabric == FabricKind::Xgmi {
        // A ring is as fast as its slowest bundle: of two or four links one or two are lost.
        for part in [0.5, 0.75] {
            edits.push(
                WorldEdit::new("links-lost", AnswerClass::HardwareSuspect, 0.01)
                    .expects("busbw", ring * part, 0.1)
                    .expects("growth", 1.01, 0.06)
                    .expects("cliff", 0.99, 0.05)
                    .slows_copies(part)
                    .says(format!(
                        "xGMI of a pair at {part} of its rate: {} GB/s",
                        figure(ring * part)
                    ))
                    .decided_by("pathline explain --here --check; pathline health"),
            );
        }
    }
    let total = (node.links_gbs / 25.0).round();
    if node.fabric == FabricKind::Switched && total >= 6.0 {
        for lost in [1.0, 2.0, total / 2.0] {
            let part = (total - lost) / total;
            edits.push(
                WorldEdit::new("links-lost", AnswerClass::HardwareSuspect, 0.01)
                    .expects("busbw", ring * part, 0.03)
                    .expects("growth", 1.01, 0.06)
                    .expects("cliff", 0.99, 0.05)
                    .slows_copies(part)
                    .says(format!(
                        "{lost} of {total} NVLinks of a GPU down: {} GB/s",
                        figure(ring * part)
                    ))
                    .decided_by("pathline health; nvidia-smi nvlink -s"),
            );
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
        let via = |part: &str| {
            log.is_some_and(|log| log.transports.keys().any(|name| name.contains(part)))
        };
        let net = via("NET/");
        let socket = log.is_some_and(|log| log.network.contains("Socket")) && net
            || via("NET/Socket")
            || is_set(context, "NCCL_IB_DISABLE", "1")
            || is_set(context, "NCCL_NET", "Socket");
        let peer_off = is_set(context, "NCCL_P2P_DISABLE", "1")
            || is_set(context, "NCCL_P2P_LEVEL", "LOC")
            || is_set(context, "NCCL_P2P_LEVEL", "0");
        Self {
            shm: via("SHM"),
            peer: via("P2P"),
            socket,
            infiniband: via("NET/IB"),
            direct: (via("NET/IB") && log.is_some_and(|l| !l.transports.is_empty()))
                .then(|| via("GDRDMA") && !log.is_some_and(log_answer::lacks_direct_channels)),
            peer_off,
            known: log.is_some_and(|log| !log.transports.is_empty()),
        }
    }
}

fn through_host(edits: &mut Vec<WorldEdit>, node: &NodeLimits, via: &Transports, check: &str) {
    let pcie = node.pcie_gbs;
    let has_links = node.links_gbs > 0.0;
    let no_peer = node.product.is_some_and(|p| !p.pcie_p2p);
    let shm_seen = if via.shm || via.peer_off {
        3.0
    } else if via.known {
        -3.0
    } else {
        0.0
    };
    let why = if via.peer_off {
        "P2P is switched off by a setting"
    } else if no_peer && !has_links {
        "the driver of this product offers no P2P over PCIe"
    } else {
        "P2P is not used (no access, or across sockets)"
    };
    let prior = match (has_links, no_peer) {
        (true, _) => 0.05,
        (false, true) => 0.6,
        (false, false) => 0.25,
    };
    let class = if no_peer && !has_links { AnswerClass::AsExpected } else { AnswerClass::SetUpSo };
    let flat = |edit: WorldEdit| edit.expects("growth", 1.01, 0.1).expects("cliff", 0.97, 0.08);
    edits.push(flat(
        WorldEdit::new("through-host-memory", class, prior)
            .expects("busbw", pcie * 0.27, 0.45)
            .seen(shm_seen)
            .says(format!("{why}: each byte goes through host memory, out and in; about {} of {} GB/s of PCIe", figure(pcie * 0.27), figure(pcie)))
            .decided_by(check),
    ));
    let peer_seen = if via.peer && !via.shm {
        1.5
    } else if via.shm || via.peer_off {
        -3.0
    } else {
        0.0
    };
    if !no_peer {
        let (prior, class) =
            if has_links { (0.04, AnswerClass::SetUpSo) } else { (0.35, AnswerClass::AsExpected) };
        let text = if has_links {
            "NVLink or xGMI is not used; P2P over PCIe"
        } else {
            "P2P over PCIe without other links"
        };
        edits.push(flat(
            WorldEdit::new("pcie-peer", class, prior)
                .expects("busbw", pcie * 0.7, 0.22)
                .seen(peer_seen)
                .says(format!(
                    "{text}: a ring gets about {} of {} GB/s",
                    figure(pcie * 0.7),
                    figure(pcie)
                ))
                .decided_by(check),
        ));
        edits.push(flat(
            WorldEdit::new("peer-through-root", AnswerClass::SetUpSo, 0.08)
                .expects("busbw", pcie * 0.12, 0.6)
                .seen(if via.peer && !has_links { 1.5 } else { -0.5 })
                .says("P2P is on, but its packets are sent up to the root port (ACS, IOMMU or a slow host bridge)")
                .decided_by("NCCL_P2P_DISABLE=1: faster if so; lspci -vvv | grep ACSCtl; dmesg | grep -i iommu"),
        ));
    }
    edits.push(flat(
        WorldEdit::new("narrow-pcie", AnswerClass::HardwareSuspect, 0.02)
            .expects("busbw", pcie * 0.35, 0.2)
            .says("PCIe of a GPU runs at half its width or speed")
            .decided_by("lspci -vv | grep LnkSta under load; pathline health"),
    ));
}

fn over_network(
    edits: &mut Vec<WorldEdit>,
    shape: &TableSummary,
    node: &NodeLimits,
    via: &Transports,
    factor: f64,
    op: Option<Collective>,
    context: &PasteContext,
) {
    let total = network_gbs(node, shape);
    let one = node.nic_gbs;
    let nics = (total / one).round().max(1.0);
    let inner =
        if node.links_gbs > 0.0 { node.links_gbs * RING_SHARE } else { node.pcie_gbs * 0.6 };
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
    let reduces = op == Some(Collective::AllReduce);
    let rdma = if via.socket {
        -4.0
    } else if via.infiniband {
        1.0
    } else {
        0.0
    };
    let sharp = is_set(context, "NCCL_COLLNET_ENABLE", "1");
    edits.push(steady(
        WorldEdit::new("network-full", AnswerClass::AsExpected, 0.3)
            .expects("busbw", full, 0.12)
            .seen(rdma)
            .says(format!(
                "{pattern} over {nics} adapters of {} GB/s: {} of {} GB/s a node, at most {} inside",
                figure(one),
                figure(full),
                figure(total),
                figure(inner)
            ))
            .decided_by("ib_write_bw of one adapter: the same share"),
    ));
    if reduces && shape.nodes == 2 || sharp {
        let tree = total * 0.9 * factor;
        let class = AnswerClass::MeansSomethingElse;
        edits.push(steady(
            WorldEdit::new("tree-of-two-nodes", class, 0.2)
                .expects("busbw", tree.min(inner * 1.3), 0.12)
                .seen(rdma)
                .says(format!("a tree of two nodes sends the buffer once each way: algbw is the network's rate, busbw {} times it", figure(factor)))
                .decided_by("NCCL_ALGO=Ring: busbw falls to the network's rate"),
        ));
    }
    if nics > 1.0 {
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
    let far = node.adapters_are_far;
    edits.push(steady(
        WorldEdit::new("gpu-far-from-adapter", AnswerClass::SetUpSo, if far { 0.3 } else { 0.02 })
            .expects("busbw", full * 0.25, 0.9)
            .seen(if via.socket { -4.0 } else if far { 2.0 } else { 0.0 })
            .says("the adapters are on another socket than the GPUs (SYS): GPUDirect RDMA is off there by default, and slow if forced")
            .decided_by("nvidia-smi topo -m: an adapter with PIX or PXB; NCCL_NET_GDR_LEVEL=SYS as a trial"),
    ));
    edits.push(steady(
        WorldEdit::new("tcp", AnswerClass::SetUpSo, 0.12)
            .expects("busbw", 2.0, if via.socket { 1.2 } else { 0.8 })
            .seen(if via.socket { 4.0 } else if via.infiniband { -4.0 } else { 0.0 })
            .says("NCCL uses TCP sockets: copies through host memory, a few GB/s whatever the adapter can")
            .decided_by("NCCL_DEBUG=INFO: `NET/IB` or a plugin must stand in `Using network`; NCCL_IB_DISABLE, NCCL_SOCKET_IFNAME"),
    ));
    edits.push(steady(
        WorldEdit::new("no-gpu-direct", AnswerClass::SetUpSo, 0.12)
            .expects("busbw", full * 0.4, 0.35)
            .seen(match via.direct { Some(false) => 3.0, Some(true) => -3.0, None => rdma.min(0.0) })
            .says("RDMA goes through host memory: no GPUDirect RDMA (peer memory module, DMA-BUF, or the adapter is too far)")
            .decided_by("NCCL_DEBUG=INFO: `via NET/IB/0/GDRDMA`; NCCL_NET_GDR_LEVEL=SYS as a trial"),
    ));
}
