//! Tables of nccl-tests and rccl-tests: what busbw counts, its limit, and what gives such a figure.

use std::collections::BTreeSet;

use pathline_paste::{CollectiveRow, CollectiveTable, NcclLog, PasteContext};
use pathline_schema::Collective;

use crate::checks::CheckPath;
use crate::collective_causes::{CollectiveCase, certain_edit};
use crate::draft::{DraftAnswer, ProbeSubject};
use crate::fitting_links::{PORTS, fitting_text};
use crate::node_facts::{FactSource, NodeLimits, figure};
use crate::outlier::{DIP, Outlier, falls_off, slow_rows};
use crate::product_facts::FabricKind;
use crate::score::ObservedFeature;

/// Share of the links that a ring of NCCL reaches as busbw: 370 of 450 on H100, 160 of 200 on H800, 235 of
/// 300 on A100, 130 of 150 GB/s on V100 (statements of NCCL's authors in its issues; fixtures of this
/// repository: 0.80 to 0.83).
pub(crate) const RING_SHARE: f64 = 0.81;
/// Share of a ring's best rate that runs of other sizes and numbers of GPUs reach.
const PLATEAU: f64 = 0.9;
/// A row this much faster than the one of half its size shows no plateau.
const STILL_GROWS: f64 = 1.15;

/// What an operation without a name may be.
const ALL_TO_ALL: &str = "it is an all-to-all";
/// The largest size is slower than the best from here on, as a share.
const STILL_LEVEL: f64 = 0.85;

/// What a table shows.
pub(crate) struct TableSummary {
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    /// Whether NVLink joins all of its nodes.
    is_one_domain: bool,
    /// Whether something states the number of nodes: hosts of all ranks, a log, the text, or one process.
    is_placed: bool,
    /// Greatest busbw.
    best: f64,
    pub(crate) largest: u64,
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

    pub(crate) const fn is_one_node(&self) -> bool {
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
    let is_other = draft.condition == ALL_TO_ALL;
    let op = (!table.is_sendrecv).then_some(if is_other { Collective::AllToAll } else { op });
    let case = CollectiveCase { table, shape: &shape, op, factor, log, context };
    match node {
        Some(node) if shape.is_one_node() => {
            case.in_node(&mut draft, node);
            case.through_host(&mut draft, node);
        }
        Some(node) if node.nic_gbs > 0.0 && (is_other || draft.condition.is_empty()) => {
            let total = draft.limit_gbs.unwrap_or(node.nic_gbs);
            let total = node.nics.map_or(total, |nics| f64::from(nics) * node.nic_gbs);
            case.over_network(&mut draft, node, total);
        }
        _ => case.by_transport(&mut draft),
    }
    draft
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
pub(crate) fn links_among(shape: &TableSummary, node: &NodeLimits) -> f64 {
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
