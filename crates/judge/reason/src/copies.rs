//! Matrices of copies: between GPUs, between host and GPUs, within a GPU's memory.

use std::collections::{BTreeMap, BTreeSet};

use pathline_paste::{
    CopyMeans, LineSpan, MatrixEnd, MatrixTool, PasteContext, RateCount, RateMatrix, TimedTransfer,
};

use crate::cause_table::CauseFacts;
use crate::checks::CheckPath;
use crate::draft::{DraftAnswer, ProbeSubject};
use crate::figures::figure;
use crate::host_copies::with_host;
use crate::host_outliers::{EXACT, by_gpu, slow_columns};
use crate::memory::explain_memory;
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::outlier::{Outlier, median, slow_pairs};
use crate::pair_levels::{
    PairRates, SLOWER_THAN_STAGED, ask_for_links, check_of_links, describe_blocks, pairs,
    set_pair_limit, shares_of_links, slow_of_links, unlike_limits, usual_for_another_slot,
};
use crate::product_facts::{FabricKind, PCIE_SHARE};
use crate::score::ObservedFeature;
use crate::usual_share::{UsualShare, usual_share};

/// Share of NVLink that a copy engine reaches: 16 of 17 flits are payload, 16 of 17 bits are not error
/// correction.
const NVLINK_SHARE: f64 = 0.885;
/// Share of xGMI that SDMA copies reach: 64 bytes in packets of 85 (`pathline model show mi250x`).
const XGMI_SHARE: f64 = 0.75;
/// One SDMA copy of an MI250X, whatever the links (KTH, Fig. 6c).
const SDMA_GBS: f64 = 50.4;
/// Share of PCIe that copies staged in host memory reach at most: row `pair.staged` of the usual shares.
const STAGED_MOST: f64 = 0.8;

/// The matrices of a paste, by tool.
pub(crate) fn by_tool<'a>(
    matrices: &[(LineSpan, &'a RateMatrix)],
) -> Vec<(LineSpan, &'static str, Vec<&'a RateMatrix>)> {
    let mut found: BTreeMap<MatrixTool, (LineSpan, Vec<&RateMatrix>)> = BTreeMap::new();
    for (span, matrix) in matrices {
        let (all, kept) = found.entry(matrix.tool).or_insert((*span, Vec::new()));
        all.last = all.last.max(span.last);
        kept.push(matrix);
    }
    found.into_iter().map(|(tool, (span, all))| (span, tool.name(), all)).collect()
}

/// Sums over all cells of matrices that were not pasted, of a number of GPUs that is not known.
pub(crate) fn sums_alone(sums: &[&RateMatrix]) -> DraftAnswer {
    let value = |matrix: &&RateMatrix| Some((matrix.test.clone(), matrix.cells.first()?.2));
    let all: Vec<(String, f64)> = sums.iter().filter_map(value).collect();
    let each = all.iter().take(12).map(|(test, gbs)| format!("{test} {}", figure(*gbs)));
    let first = all.first().map_or(0.0, |one| one.1);
    let [sum, of_4, of_8, of_16] = [1.0, 4.0, 8.0, 16.0].map(|gpus| figure(first / gpus));
    let each = each.collect::<Vec<_>>().join(", ");
    let meaning = format!("sums over all GPUs or pairs, GB/s (1e9 B/s): {each}");
    DraftAnswer {
        limit: format!(
            "unknown: a sum counts every GPU; {sum} is {of_4} of 4, {of_8} of 8 or {of_16} of 16"
        ),
        ask: "how many GPUs has the node, and which? The matrices above the sums show each"
            .to_owned(),
        note: "sums over an unknown number of GPUs".to_owned(),
        ..DraftAnswer::new(CheckPath::HostCopies, meaning, None)
    }
}

/// Drafts for the matrices of one tool: between GPUs, with the host, within a GPU.
pub(crate) fn explain_matrices(all: &[&RateMatrix], basis: AnswerBasis<'_>) -> Vec<DraftAnswer> {
    let node = basis.limits;
    // GPUs of another product have other links: they are no peers, and their limit is another one.
    let own = node.map(|node| &node.own_gpus).filter(|own| !own.is_empty());
    let kept: Vec<RateMatrix> = own.map_or_else(Vec::new, |own| {
        let is_own = |end: &MatrixEnd| !matches!(end, MatrixEnd::Gpu(gpu) if !own.contains(gpu));
        let of_own = |matrix: &&RateMatrix| RateMatrix {
            cells: matrix.cells.iter().filter(|c| is_own(&c.0) && is_own(&c.1)).copied().collect(),
            ..(*matrix).clone()
        };
        all.iter().map(of_own).collect()
    });
    let kept: Vec<&RateMatrix> = kept.iter().collect();
    let all = if own.is_some() { &kept[..] } else { all };
    let between = between_gpus(all, node);
    let host = with_host(all, basis);
    let between = between.map(|draft| DraftAnswer { subject: ProbeSubject::GpuPairs, ..draft });
    let host = host.map(|draft| DraftAnswer { subject: ProbeSubject::HostLinks, ..draft });
    between.into_iter().chain(host).chain(within_gpu(all, node)).collect()
}

/// Tests that copy within a GPU's memory and nothing else.
fn within_gpu(all: &[&RateMatrix], node: Option<&NodeLimits>) -> Option<DraftAnswer> {
    let is_local = |matrix: &&&RateMatrix| {
        matrix.cells.iter().all(|(from, to, _)| from == to && matches!(from, MatrixEnd::Gpu(_)))
    };
    let local = all.iter().filter(is_local).find(|matrix| !matrix.cells.is_empty())?;
    let values: Vec<f64> = local.cells.iter().map(|cell| cell.2).collect();
    // bandwidthTest counts bytes read and written, nvbandwidth those of the copy.
    let counts_both = local.tool == MatrixTool::BandwidthSample;
    let mut draft = explain_memory(median(&values)?, if counts_both { 1.0 } else { 2.0 }, node);
    let are_peers = node.is_none_or(|node| node.has_one_product);
    let slow = slow_columns(&by_gpu(local), "copies within its memory", are_peers);
    draft.outliers = slow.into_iter().map(|(_, one)| one).collect();
    Some(draft)
}

/// The matrix of the headline, and the one without peer access that it is compared with.
fn headline_matrices<'a>(
    matrices: &[&'a RateMatrix],
) -> Option<(&'a RateMatrix, Option<&'a RateMatrix>)> {
    let find = |on: Option<bool>, count: RateCount| {
        matrices.iter().copied().find(|m| {
            m.count == count && (on.is_none() || m.peer_access == on) && !pairs(m).is_empty()
        })
    };
    let on = find(Some(true), RateCount::OneWay)
        .or_else(|| find(None, RateCount::OneWay))
        .or_else(|| find(None, RateCount::OneOfBoth))
        .or_else(|| find(Some(true), RateCount::Sum))
        .or_else(|| find(None, RateCount::Sum))?;
    let off = find(Some(false), RateCount::OneWay)
        .filter(|_| on.peer_access == Some(true) && on.count == RateCount::OneWay);
    Some((on, off))
}

/// Pairs of GPUs. The headline is the median pair in one direction.
fn between_gpus(matrices: &[&RateMatrix], node: Option<&NodeLimits>) -> Option<DraftAnswer> {
    let (on, off) = headline_matrices(matrices)?;
    let mut list = pairs(on);
    // Pairs without access copy through the host whatever their links.
    let closed = node.map(|node| &node.no_access).filter(|closed| !closed.is_empty());
    let is_open = |(a, b, _): &(u32, u32, f64)| closed.is_none_or(|c| !c.contains(&(*a, *b)));
    let is_staged = on.peer_access == Some(false) || !list.iter().any(is_open);
    if !is_staged {
        list.retain(is_open);
    }
    let mut values: Vec<f64> = list.iter().map(|&(.., v)| v).collect();
    values.sort_by(f64::total_cmp);
    let middle = median(&values)?;
    let least = values.first().copied().unwrap_or(middle);
    let most = values.last().copied().unwrap_or(middle);
    let ways = if on.count == RateCount::Sum { 2.0 } else { 1.0 };
    let by = if on.means == CopyMeans::Kernel { "a kernel" } else { "copy engine" };
    let counted = match on.count {
        RateCount::Sum => "both directions, summed",
        RateCount::OneOfBoth => "one direction while both run",
        RateCount::OneWay => "one direction",
    };
    let (count, [usual, worst, best]) = (list.len(), [middle, least, most].map(figure));
    let meaning = format!(
        "copies between GPU memories by {by}, {count} pairs: median {usual} GB/s (1e9 B/s), worst {worst}, best \
         {best}; {counted}"
    );
    let mut draft = DraftAnswer::new(CheckPath::GpuPairs, meaning, middle / ways);
    draft.ways = ways;
    draft.outliers = outliers_of_pairs(matrices, node);
    draft.also.extend(describe_blocks(&pairs(on)));
    draft.also.extend(closed.and_then(|closed| staged_pairs(&pairs(on), closed)));
    let off: Option<Vec<f64>> = off.map(|off| pairs(off).iter().map(|pair| pair.2).collect());
    let ratio = off.and_then(|off| Some(middle / median(&off)?));
    draft.features.extend(ratio.map(|ratio| ObservedFeature::new("on-off", ratio)));
    if on.tool == MatrixTool::Rvs && on.count == RateCount::Sum {
        draft.condition =
            "the figure counts both directions together, which the tool does not say".to_owned();
    }
    let fitted = node.and_then(|node| node.fitted(middle / ways, "pair.nvlink"));
    let node = fitted.as_ref().or(node);
    let Some(node) = node.filter(|node| node.pair_gbs > 0.0 || node.pcie_gbs > 0.0) else {
        ask_for_links(&mut draft, on.tool, most / ways, ratio);
        return Some(draft);
    };
    // More than PCIe carries passes the bridge that the product may have.
    let bridge = node.product.map_or(0.0, |product| product.pair_gbs);
    let bridged =
        (!is_staged && node.pair_gbs <= 0.0 && middle / ways > node.pcie_gbs && bridge > 0.0)
            .then(|| NodeLimits { pair_gbs: bridge, fabric: FabricKind::Meshed, ..node.clone() });
    let staged = is_staged.then(|| NodeLimits {
        pair_gbs: 0.0,
        fabric: FabricKind::Pcie,
        pair_links: BTreeMap::new(),
        ..node.clone()
    });
    let node = bridged.as_ref().or(staged.as_ref()).unwrap_or(node);
    let gpus: BTreeSet<u32> = list.iter().flat_map(|pair| [pair.0, pair.1]).collect();
    set_pair_limit(&mut draft, node, bridged.is_some(), gpus.len());
    // Copies that pass host memory do not come so close to the link.
    let is_staged = is_staged || node.no_peer && middle / ways <= STAGED_MOST * node.pcie_gbs;
    draft.usual = usual_of_pairs(node, is_staged, ways > 1.0);
    if node.fabric == FabricKind::Pcie && !is_staged && node.peer_classes.is_empty() {
        usual_for_another_slot(&mut draft, middle / ways);
    }
    middle_of_unlike(&mut draft, node, &list, ways);
    let middle = draft.value.map_or(middle, |value| value * ways);
    draft.features.push(ObservedFeature::new("pair", middle / ways));
    let least = if unlike_limits(Some(node)).is_some() { middle } else { least };
    draft.features.push(ObservedFeature::new("least", (least / middle).max(1e-3)));
    pair_edits(&mut draft, node, ways, &list, ratio);
    // Pairs of a mesh have unlike links.
    if !matches!(node.fabric, FabricKind::Meshed | FabricKind::Xgmi) {
        draft.note_slowest("pair", least / ways);
    }
    Some(draft)
}

/// Where pairs have unlike links, the headline is the pair in the middle by the share of its links.
fn middle_of_unlike(draft: &mut DraftAnswer, node: &NodeLimits, list: &PairRates, ways: f64) {
    let Some(limits) = unlike_limits(Some(node)) else { return };
    let mut shares = shares_of_links(list, &limits);
    shares.sort_by(|a, b| a.2.total_cmp(&b.2));
    let Some((a, b, share)) = shares.get(shares.len() / 2).copied() else { return };
    let Some(limit) = limits.get(&(a.min(b), a.max(b))) else { return };
    draft.value = Some(share * limit / ways);
    draft.limit_gbs = Some(*limit);
    draft.limit = format!("{}; of gpu{a} and gpu{b} {} GB/s", node.wiring_text(), figure(*limit));
}

/// The pairs without peer access, whose bytes go through host memory.
fn staged_pairs(list: &[(u32, u32, f64)], closed: &BTreeSet<(u32, u32)>) -> Option<String> {
    let staged = list.iter().filter(|(a, b, _)| closed.contains(&(*a, *b)));
    let staged: Vec<f64> = staged.map(|pair| pair.2).collect();
    let gbs = figure(median(&staged)?);
    Some(format!("{} pairs without peer access, through host memory: {gbs} GB/s", staged.len()))
}

/// The share of their limit that copies between two GPUs reach at least.
fn usual_of_pairs(node: &NodeLimits, is_staged: bool, has_both: bool) -> Option<UsualShare> {
    usual_share(match node.fabric {
        FabricKind::Switched | FabricKind::Meshed => "pair.nvlink",
        FabricKind::Xgmi => "pair.xgmi",
        FabricKind::Pcie if is_staged => "pair.staged",
        FabricKind::Pcie if has_both => "pair.pcie-both",
        FabricKind::Pcie => "pair.pcie",
    })
}

/// Slow GPUs and pairs of every matrix, each once. Pairs with other links than the rest are no peers.
fn outliers_of_pairs(matrices: &[&RateMatrix], node: Option<&NodeLimits>) -> Vec<Outlier> {
    let mut found: Vec<Outlier> = Vec::new();
    let check = check_of_links(node);
    for matrix in matrices.iter().filter(|m| m.peer_access != Some(false)) {
        let list = pairs(matrix);
        if let Some(limits) = unlike_limits(node) {
            let slow = slow_of_links(&list, &limits).into_iter();
            let check = "nvidia-smi nvlink -s of both GPUs; pathline health";
            found.extend(slow.map(|one| one.checked_by(check)));
            continue;
        }
        let links = |a: u32, b: u32| {
            let named = node.and_then(|node| node.pair_links.get(&(a.min(b), a.max(b))));
            named.map(String::as_str).unwrap_or_default()
        };
        type PairClass<'a> = (Option<&'a usize>, &'a str);
        let mut classes: BTreeMap<PairClass<'_>, Vec<(u32, u32, f64)>> = BTreeMap::new();
        for &(a, b, value) in &list {
            let class = node.and_then(|node| node.peer_classes.get(&(a, b)));
            classes.entry((class, links(a, b))).or_default().push((a, b, value));
        }
        let total = node
            .filter(|node| node.fabric == FabricKind::Switched)
            .map_or(0.0, |node| (node.pair_gbs / node.link_gbs).round());
        for mut one in classes.values().flat_map(|class| slow_pairs(class)) {
            if found.iter().any(|known| known.part == one.part) || found.len() >= 4 {
                continue;
            }
            let left = one.share * total;
            // A link that is lost is lost for all pairs of its GPU and for both directions.
            let is_gpu = !one.part.contains('-');
            if is_gpu && total >= 4.0 && (left - left.round()).abs() < 0.15 && left.round() < total
            {
                one.text += &format!(": as {:.0} of {total:.0} NVLinks would carry", left.round());
            }
            found.push(one.checked_by(check.clone()));
        }
    }
    found
}

fn pair_edits(
    draft: &mut DraftAnswer,
    node: &NodeLimits,
    ways: f64,
    list: &[(u32, u32, f64)],
    ratio: Option<f64>,
) {
    let links = if node.pair_gbs > 0.0 { draft.limit_gbs.unwrap_or(node.pair_gbs) } else { 0.0 };
    let pcie = node.pcie_gbs;
    let (share, sigma, why) = match node.fabric {
        FabricKind::Xgmi => (XGMI_SHARE, 0.1, "xGMI packets carry 64 B in 85 B"),
        _ => (NVLINK_SHARE * node.data_share(), 0.08, "line coding and headers take the rest"),
    };
    let facts = CauseFacts::new(&[
        ("links", links),
        ("share", share),
        ("sigma", sigma),
        ("duplex", if ways > 1.0 { 0.93 } else { 1.0 }),
        ("gain", (links * share / (pcie * 0.6).max(1.0)).max(1.0)),
        ("sdma", SDMA_GBS),
        ("pcie", pcie),
    ]);
    if links > 0.0 {
        draft.edits.push(facts.word("why", why).cause("pair.link-full"));
    }
    if links > 0.0 && node.product.is_some_and(|p| p.name.starts_with("MI250")) {
        // Pairs of one package have four links: a kernel moves 150 GB/s there.
        let most = list.iter().map(|p| p.2).fold(0.0, f64::max) / ways;
        let capped = match most {
            m if m > 60.0 => -4.0,
            m if m > 45.0 => 3.0,
            _ => 0.0,
        };
        let edit = facts.cause("pair.sdma-cap").seen(capped);
        // The best pairs stop exactly there.
        let is_capped = (most / SDMA_GBS - 1.0).abs() < EXACT;
        draft.edits.push(if is_capped { edit.stated() } else { edit });
    }
    if pcie <= 0.0 {
        return;
    }
    let facts = facts.with("share", PCIE_SHARE);
    let no_peer = node.no_peer;
    match (node.pair_gbs > 0.0, no_peer) {
        (true, _) => draft.edits.push(facts.cause("pair.pcie-peer#with-links")),
        (false, false) => draft.edits.push(facts.cause("pair.pcie-peer")),
        (false, true) => {}
    }
    if let Some(ratio) = ratio.filter(|ratio| *ratio < SLOWER_THAN_STAGED) {
        // Where staged copies show that it is slower, it may be slower by any factor.
        let edit = CauseFacts::new(&[("ratio", ratio)]).cause("pair.peer-through-root");
        let edit = edit.expects("pair", pcie * 0.15, 1.0);
        draft.edits.push(edit.expects("least", 0.93, 0.15));
    }
    draft.edits.push(facts.cause(match (no_peer, node.pair_gbs > 0.0) {
        (true, false) => "pair.staged#refused",
        (true, true) => "pair.staged#no-peer",
        (false, true) => "pair.staged#with-links",
        (false, false) => "pair.staged",
    }));
}

/// Single transfers of TransferBench as a matrix; those of one test run at once.
pub(crate) fn transfer_matrix(list: &[TimedTransfer]) -> Option<RateMatrix> {
    let first = list.iter().max_by(|a, b| a.gbs.total_cmp(&b.gbs))?;
    let end = |text: &str| {
        let number = text.get(1..).and_then(|n| n.parse().ok());
        match text.get(..1) {
            Some("G" | "F") => number.map(MatrixEnd::Gpu),
            _ => Some(MatrixEnd::Host(number)),
        }
    };
    let cells =
        list.iter().filter_map(|t| Some((end(&t.source)?, end(&t.destination)?, t.gbs))).collect();
    let is_kernel = first.executor.starts_with("GPU");
    Some(RateMatrix {
        means: if is_kernel { CopyMeans::Kernel } else { CopyMeans::Engine },
        concurrent: list.iter().filter(|t| t.test == first.test).count() > 1,
        cells,
        ..RateMatrix::new(MatrixTool::TransferBench, "")
    })
}

/// Single transfers of TransferBench.
pub(crate) fn explain_transfers(list: &[TimedTransfer], basis: AnswerBasis<'_>) -> DraftAnswer {
    let best = list.iter().map(|t| t.gbs).fold(0.0, f64::max);
    let draft = DraftAnswer { value: Some(best), ..DraftAnswer::default() };
    let Some(matrix) = transfer_matrix(list) else { return draft };
    let context = &PasteContext::default();
    let found = explain_matrices(&[&matrix], AnswerBasis { context, ..basis });
    found.into_iter().next().unwrap_or(draft)
}
