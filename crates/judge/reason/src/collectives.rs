//! Tables of nccl-tests and rccl-tests: what busbw counts, its limit (the links of a node, or its adapters), and what
//! gives such a figure.

use pathline_paste::{CollectiveRow, CollectiveTable};
use pathline_schema::Collective;

use crate::checks::CheckPath;
use crate::collective_causes::{CollectiveCase, certain_edit};
use crate::draft::{ASK_PRODUCT, DraftAnswer, ProbeSubject};
use crate::figures::figure;
use crate::node_facts::{AnswerBasis, FactSource, NodeLimits};
use crate::outlier::{ASYMMETRY, DIP, Outlier, falls_off, moving_rows, slow_rows};
use crate::product_facts::FabricKind;
use crate::score::ObservedFeature;
use crate::table_summary::{TableSummary, links_among};
use crate::usual_share::{least_share, usual_share};

/// Sizes that are named where both places differ.
const MAX_PLACES: usize = 4;
/// A row this much faster than the one of half its size shows no plateau.
const STILL_GROWS: f64 = 1.15;

/// The largest size is slower than the best from here on, as a share.
const STILL_LEVEL: f64 = 0.85;

/// The draft of an answer.
pub(crate) fn explain(table: &CollectiveTable, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits: node, log, context, .. } = basis;
    let shape = TableSummary::new(table, basis);
    let fitted = node.and_then(|node| node.fitted(shape.best, "ring.links"));
    let node = fitted.as_ref().or(node);
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
    let incomplete = match table.is_incomplete {
        true => "; the profiler's file does not say that every record was written",
        false => "",
    };
    let formula = format!(" = size / time x {}", figure(factor));
    let formula = if shape.is_guess && of_rows.is_none() { "" } else { &*formula };
    let by = match table.ranks {
        Some(1) => "no link carries it",
        _ => "one direction of a GPU's links, if a ring carries it",
    };
    let (ranks, gbs) = (shape.ranks_text(), figure(best));
    let meaning = format!(
        "{name} over {ranks}, GPU memory: busbw {gbs} GB/s (1e9 B/s){formula}; {by}{incomplete}"
    );
    let path = match shape.is_one_node() {
        true => CheckPath::NodeCollective,
        false => CheckPath::NetCollective,
    };
    let mut draft = DraftAnswer::new(path, meaning, best);
    if shape.nodes <= 1 {
        draft.subject = ProbeSubject::GpuPairs;
    }
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
    let is_usual = draft.is_usual(best);
    if let Some(growth) = shape.growth.filter(|growth| *growth > STILL_GROWS && !is_usual) {
        draft.note = format!(
            "the largest size still grows ({growth:.1} times the rate of half of it): no plateau is shown"
        );
    } else if shape.last < shape.best * STILL_LEVEL {
        let (last, best) = (figure(shape.last), figure(shape.best));
        draft.note = format!(
            "the largest size is slower ({last} GB/s) than the best ({best} GB/s): another algorithm or protocol \
             begins there, or the network drops packets"
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
    let out = moving_rows(&out);
    let inner = table.rows.iter().filter_map(|row| Some((row.bytes, row.in_place_busbw?)));
    let inner = moving_rows(&inner.filter(|row| row.1 >= 1.0).collect::<Vec<_>>());
    let mut found = slow_rows(&out, DIP);
    found.extend(falls_off(&out));
    for one in slow_rows(&inner, DIP) {
        if found.iter().all(|known| known.part != one.part) {
            found.push(Outlier { text: format!("in place, {}", one.text), ..one });
        }
    }
    // Of one size the same bytes move in either place.
    let both = inner.iter().filter_map(|&(bytes, inside)| {
        let (_, outside) = *out.iter().find(|row| row.0 == bytes)?;
        Some((bytes, inside, outside))
            .filter(|_| inside.max(outside) > ASYMMETRY * inside.min(outside))
    });
    for (bytes, inside, outside) in both.take(MAX_PLACES) {
        let ((slow, least), (other, most)) = match inside < outside {
            true => (("in place", inside), ("out of place", outside)),
            false => (("out of place", outside), ("in place", inside)),
        };
        let part = format!("{bytes} B");
        if found.iter().all(|known| known.part != part) {
            let one = Outlier::new(format!("{part} {slow}"), least, most, "GB/s", other);
            found.push(Outlier { part, ..one.of_row() });
        }
    }
    found
}

/// What an operation without a name may be.
pub(crate) const ALL_TO_ALL: &str = "it is an all-to-all";

/// Sets the limit of a table, the share of it that is usual, and what is asked without it.
pub(crate) fn set_limit(
    draft: &mut DraftAnswer,
    table: &CollectiveTable,
    shape: &TableSummary,
    node: Option<&NodeLimits>,
) {
    let is_known = |node: &&NodeLimits| match shape.is_one_node() {
        true => node.product.is_some() || node.fabric_gbs() > 0.0,
        false => node.nic_gbs > 0.0,
    };
    // What the adapters of a node carry together at least: a ring passes them with the rate of busbw, a tree of two
    // nodes with that of algbw.
    let rates = table.rows.iter().map(|row| (row.busbw, row.algbw));
    let (busbw, algbw) =
        rates.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((shape.best, shape.best));
    let least = if shape.nodes == 2 { busbw.min(algbw) } else { busbw };
    // A ring passes the links of each GPU too, at whose usual share they bound it as well as any network.
    let inner = node.filter(|node| !shape.is_one_node() && node.fabric == FabricKind::Switched);
    let inner = inner
        .filter(|node| node.nic_gbs <= 0.0 && least >= node.links_gbs * least_share("ring.inner"));
    if let Some(node) = inner {
        let text = format!("{}: of a ring within one node", node.link_text());
        return draft.set_limit(node.links_gbs, "ring.inner", text);
    }
    // What a node with one GPU sends and receives passes the PCIe of that GPU, however many adapters it has.
    let one = node
        .filter(|node| !shape.is_one_node() && shape.ranks == shape.nodes && node.c2c_gbs <= 0.0);
    let one = one.filter(|node| {
        let total = f64::from(node.nics.unwrap_or(1)) * node.nic_gbs;
        let is_full = least >= node.pcie_gbs * least_share("pair.pcie");
        node.pcie_gbs > 0.0 && (total > node.pcie_gbs || total <= 0.0 && is_full)
    });
    if let Some(node) = one {
        let text = node.pcie_source.each_way(node.pcie_gbs, "PCIe of a node's one GPU");
        let text = format!("{text}, whatever its adapters carry together");
        return draft.set_limit(node.pcie_gbs, "pair.pcie", text);
    }
    let counted = node.and_then(|node| node.nics).filter(|nics| *nics > 1);
    let Some(node) = node.filter(is_known) else {
        if shape.is_one_node() {
            return draft.ask_product();
        }
        draft.limit = unknown_network(table, busbw, least);
        draft.ask = match counted {
            Some(nics) => format!("of what rate are the {nics} adapters of a node?"),
            None => "how many adapters has a node, and of what rate?".to_owned(),
        };
        return;
    };
    match shape.is_one_node() {
        true => within_node(draft, shape, node),
        false => over_network(draft, table, shape, node),
    }
}

/// What a figure says of adapters that the paste does not state: their sum, never a single one.
fn unknown_network(table: &CollectiveTable, busbw: f64, least: f64) -> String {
    use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
    let is_ring = table
        .op
        .is_none_or(|op| [AllReduce, AllGather, ReduceScatter, Broadcast, Reduce].contains(&op));
    if table.is_sendrecv || !is_ring {
        return "unknown: busbw is of a rank, whose peers are on other nodes in part".to_owned();
    }
    let (ring, tree) = (figure(busbw), figure(least));
    let tree = format!(", {tree} if a tree of two nodes does");
    let tree = if least < busbw { &*tree } else { "" };
    format!("unknown: the adapters of a node together carry {ring} GB/s if a ring does it{tree}")
}

fn within_node(draft: &mut DraftAnswer, shape: &TableSummary, node: &NodeLimits) {
    draft.limit = node.link_text();
    draft.limit_gbs = Some(node.fabric_gbs()).filter(|gbs| *gbs > 0.0);
    let among = links_among(shape, node);
    if node.fabric == FabricKind::Meshed && among > 0.0 && among < node.links_gbs {
        let what = format!("the NVLinks among {} GPUs", shape.ranks);
        draft.limit_gbs = Some(among);
        draft.limit = node.links_source.each_way(among, &what);
    }
    if let Some(pair) = node.joined_gbs(shape.ranks) {
        draft.limit_gbs = Some(pair);
        draft.limit = FactSource::Paste.each_way(pair, "NVLinks among these GPUs");
    }
    // More than PCIe carries passes the bridge that the product may have.
    let bridge =
        node.product.map_or(0.0, |p| if shape.ranks > 2 { p.links_gbs } else { p.pair_gbs });
    let is_bridged = node.links_gbs <= 0.0 && node.pcie_gbs > 0.0 && shape.best > node.pcie_gbs;
    if bridge > 0.0 && is_bridged && draft.limit_gbs.is_some_and(|limit| shape.best > limit) {
        let (gbs, sheet) = (figure(bridge), figure(bridge * node.data_share()));
        let sheet = format!(" (line rate; {sheet} by the data sheet)");
        let sheet = if node.data_share() < 1.0 { &*sheet } else { "" };
        draft.limit_gbs = Some(bridge);
        draft.limit =
            format!("{gbs} GB/s each way{sheet}, all bridges between GPUs that the product takes");
        if shape.best < bridge * least_share("ring.links") {
            draft.condition = "all of them are fitted".to_owned();
        }
    }
    if draft.limit_gbs.is_none() {
        draft.ask = ASK_PRODUCT.to_owned();
    }
    let has_links = draft.limit_gbs.is_some_and(|gbs| gbs > node.pcie_gbs) || node.links_gbs > 0.0;
    draft.usual = usual_share(match has_links {
        true if node.product.is_some_and(|p| p.package_gbs > 0.0) => "ring.packages",
        true if node.fabric == FabricKind::Xgmi => "ring.xgmi",
        true => "ring.links",
        false if node.no_peer => "ring.host",
        false => "ring.pcie",
    });
    if !shape.is_placed && draft.condition.is_empty() && node.links_source != FactSource::Machine {
        draft.condition = "all ranks are on one node".to_owned();
        draft.ask = "on how many nodes are the ranks?".to_owned();
    }
}

fn over_network(
    draft: &mut DraftAnswer,
    table: &CollectiveTable,
    shape: &TableSummary,
    node: &NodeLimits,
) {
    let nics = node.nics.unwrap_or(1);
    let total = f64::from(nics) * node.nic_gbs;
    let (all, each, source) = (figure(total), figure(node.nic_gbs), node.nic_source.label());
    let text = format!("{all} GB/s of network each way, {nics} x {each} GB/s of a node ({source})");
    draft.set_limit(total, "ring.network", text);
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
        let each = figure(each);
        draft.limit += &format!("; {each} GB/s a rank, whose peers are on other nodes in part");
    }
    // One GPU of a node has one adapter as a rule.
    // More of them only raise the limit: below the usual share of one the figure is slow anyway.
    let limit = draft.limit_gbs.unwrap_or(total);
    let is_slow = draft.usual.is_some_and(|usual| shape.best < limit * usual.slow);
    // Nodes of a few cards without links have one; a full line of it says the same.
    let is_small = node.fabric == FabricKind::Pcie && shape.ranks <= 4 * shape.nodes;
    let is_full = draft.is_usual(shape.best);
    if node.nics.is_none() && shape.ranks > shape.nodes && !is_slow && !(is_small && is_full) {
        draft.condition = "a node has one adapter".to_owned();
        draft.ask = "how many adapters has a node?".to_owned();
    }
}
