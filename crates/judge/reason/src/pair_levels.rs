//! Copies between pairs of GPUs: their limit, and what matrices show besides slow parts: blocks of GPUs, pairs of
//! unlike links, long times, unlike directions.

use std::collections::{BTreeMap, BTreeSet};

use pathline_paste::{CopyMeans, MatrixEnd, MatrixTool, RateCount, RateMatrix};

use crate::cause_table::CauseFacts;
use crate::checks::CheckPath;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::fitting_links::{assume_link, fitting_text, standard_links};
use crate::node_facts::{FactSource, NodeLimits};
use crate::outlier::{Outlier, median, slow_pairs};
use crate::product_facts::{FabricKind, nvlinks};
use crate::usual_share::{least_share, usual_share};

/// Rates of ordered pairs of GPUs, and what the links of each pair carry.
pub(crate) type PairRates = Vec<(u32, u32, f64)>;
pub(crate) type LinkRates = BTreeMap<(u32, u32), f64>;

/// Cells between two GPUs.
pub(crate) fn pairs(matrix: &RateMatrix) -> PairRates {
    let pair = |&(from, to, value): &(MatrixEnd, MatrixEnd, f64)| match (from, to) {
        (MatrixEnd::Gpu(a), MatrixEnd::Gpu(b)) if a != b && value > 0.0 => Some((a, b, value)),
        _ => None,
    };
    matrix.cells.iter().filter_map(pair).collect()
}

/// Rates of copies with the host in one direction, by GPU.
pub(crate) fn host_cells(
    matrix: &RateMatrix,
    inward: bool,
) -> impl Iterator<Item = (u32, f64)> + '_ {
    let rate = move |&(from, to, value): &(MatrixEnd, MatrixEnd, f64)| match (from, to) {
        (MatrixEnd::Host(_), MatrixEnd::Gpu(gpu)) if inward => Some((gpu, value)),
        (MatrixEnd::Gpu(gpu), MatrixEnd::Host(_)) if !inward => Some((gpu, value)),
        _ => None,
    };
    matrix.cells.iter().filter_map(rate).filter(|cell| cell.1 > 0.0)
}

/// Below this share of the rates inside of blocks those between blocks differ.
const BETWEEN: f64 = 0.9;

/// GPUs in blocks with faster pairs inside than between them, as a sentence.
pub(crate) fn describe_blocks(list: &[(u32, u32, f64)]) -> Option<String> {
    let gpus: BTreeSet<u32> = list.iter().flat_map(|pair| [pair.0, pair.1]).collect();
    let mut values: Vec<f64> = list.iter().map(|pair| pair.2).collect();
    values.sort_by(f64::total_cmp);
    // The widest gap parts the rates between blocks from those inside.
    let gap = values.windows(2).max_by(|a, b| {
        let ratio = |pair: &[f64]| pair.last().zip(pair.first()).map_or(1.0, |(b, a)| b / a);
        ratio(a).total_cmp(&ratio(b))
    })?;
    let (&below, &above) = gap.first().zip(gap.last())?;
    let mut block: BTreeMap<u32, u32> = gpus.iter().map(|gpu| (*gpu, *gpu)).collect();
    for &(a, b, value) in list.iter().filter(|pair| pair.2 >= above) {
        let (one, other) = (*block.get(&a)?, *block.get(&b)?);
        if one != other && value > 0.0 {
            block.values_mut().filter(|of| **of == other).for_each(|of| *of = one);
        }
    }
    let is_inside = |a: u32, b: u32| block.get(&a) == block.get(&b);
    let is_clean = list.iter().all(|&(a, b, value)| is_inside(a, b) == (value >= above));
    let mut blocks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (gpu, of) in &block {
        blocks.entry(*of).or_default().push(*gpu);
    }
    let is_parted = (4..=64).contains(&gpus.len())
        && blocks.len() > 1
        && blocks.values().all(|gpus| gpus.len() > 1)
        && below < above * BETWEEN
        && is_clean;
    let of = |inside: bool| -> Vec<f64> {
        list.iter().filter(|p| is_inside(p.0, p.1) == inside).map(|p| p.2).collect()
    };
    let (inside, between) = (median(&of(true))?, median(&of(false))?);
    let names = |gpus: &Vec<u32>| gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let names: Vec<String> = blocks.values().map(names).collect();
    let (names, [inside, between]) = (names.join(" and "), [inside, between].map(figure));
    is_parted
        .then(|| format!("blocks of GPUs {names}: {inside} GB/s inside, {between} between them"))
}

/// What the links of a pair carry, where a matrix counts NVLinks and pairs have unlike numbers of them.
pub(crate) fn unlike_limits(node: Option<&NodeLimits>) -> Option<LinkRates> {
    let node = node?;
    let limit =
        |(pair, text): (&(u32, u32), &String)| Some((*pair, nvlinks(text)? * node.link_gbs));
    let limits: LinkRates = node.pair_links.iter().filter_map(limit).collect();
    let most = limits.values().copied().fold(0.0, f64::max);
    limits.values().any(|limit| *limit < most).then_some(limits)
}

/// The shares of their own links that pairs reach.
pub(crate) fn shares_of_links(list: &[(u32, u32, f64)], limits: &LinkRates) -> PairRates {
    let share =
        |&(a, b, value): &(u32, u32, f64)| Some((a, b, value / limits.get(&(a.min(b), a.max(b)))?));
    list.iter().filter_map(share).collect()
}

/// Pairs that reach less of their links than the others do of theirs.
pub(crate) fn slow_of_links(list: &[(u32, u32, f64)], limits: &LinkRates) -> Vec<Outlier> {
    let found = slow_pairs(&shares_of_links(list, limits));
    let name = |one: Outlier| {
        let text = format!(
            "{}: {:.0} % of what the other pairs reach of their links; one of two links would give half",
            one.part,
            one.share * 100.0
        );
        Outlier { text, ..one }
    };
    found.into_iter().map(name).collect()
}

/// A single access takes this many times the median of its matrix where it is slow.
const LONG_ACCESS: f64 = 5.0;

/// Pairs whose accesses take far longer than those of the others.
fn long_accesses(matrices: &[&RateMatrix]) -> Vec<Outlier> {
    let mut found: Vec<Outlier> = Vec::new();
    for matrix in matrices.iter().filter(|matrix| matrix.is_latency) {
        let list = pairs(matrix);
        let values: Vec<f64> = list.iter().map(|pair| pair.2).collect();
        let Some(usual) = median(&values) else { continue };
        for &(a, b, us) in list.iter().filter(|pair| pair.2 > usual * LONG_ACCESS) {
            let part = format!("gpu{}-gpu{}", a.min(b), a.max(b));
            if found.len() < 4 && found.iter().all(|one| one.part != part) {
                let (long, middle, test) = (figure(us), figure(usual), matrix.test.trim());
                let text = format!(
                    "{part}: an access takes {long} us, {middle} us in the median of {test}"
                );
                let check = "lspci -vvv | grep ACSCtl; dmesg | grep -i -e iommu -e xid -e aer; nvidia-smi topo -p2p r";
                let one = Outlier { is_row: false, ..Outlier::of_text(part, usual / us, text) };
                found.push(one.checked_by(check));
            }
        }
    }
    found
}

/// Median times of accesses with P2P on and off, us.
fn access_times(matrices: &[&RateMatrix]) -> Option<(f64, f64)> {
    let of = |on: bool| {
        let mine = matrices.iter().find(|m| m.is_latency && m.peer_access == Some(on))?;
        median(&pairs(mine).iter().map(|pair| pair.2).collect::<Vec<_>>())
    };
    of(true).zip(of(false))
}

/// A direction is slow below this share of the other one of the same GPUs.
pub(crate) const DIRECTION: f64 = 0.8;

/// The direction of host copies that is slower than the other one, by the same means.
pub(crate) fn slow_direction(matrices: &[&RateMatrix], is_c2c: bool) -> Option<Outlier> {
    // NVLink-C2C is slower towards the host by its protocol.
    let middle = |inward: bool, count: RateCount| {
        let mine = matrices.iter().filter(|m| {
            m.count == count && !m.is_latency && !m.concurrent && m.means != CopyMeans::Kernel
        });
        median(&mine.flat_map(|m| host_cells(m, inward)).map(|cell| cell.1).collect::<Vec<_>>())
    };
    let kinds = [(RateCount::OneWay, ""), (RateCount::OneOfBoth, " while both directions run")];
    let each = kinds.iter().filter(|_| !is_c2c).filter_map(|&(count, how)| {
        let (inward, outward) = (middle(true, count)?, middle(false, count)?);
        let (slow, fast, names) = match inward < outward {
            true => (inward, outward, ["H2D", "D2H"]),
            false => (outward, inward, ["D2H", "H2D"]),
        };
        let part = format!("{}{how}", names[0]);
        let peers = format!("{}{how}, of the same GPUs", names[1]);
        let one = Outlier::new(part, slow, fast, "GB/s", &peers).of_row();
        let check = "lspci -vv | grep -e MaxReadReq -e RlxdOrd; iommu=pt; performance governor; NPS and memory channels in use";
        Some(one.checked_by(check))
    });
    each.filter(|one| one.share < DIRECTION).min_by(|a, b| a.share.total_cmp(&b.share))
}

/// Longest time of a single access over a link, us: p2pBandwidthLatencyTest prints 1 to 3 us with P2P on PCIe, and 10 to
/// 30 us through the host.
const DIRECT_US: f64 = 5.0;

/// The answer to matrices of times.
pub(crate) fn times_alone(matrices: &[&RateMatrix]) -> DraftAnswer {
    let meaning = "times of single accesses and copies, no rates".to_owned();
    let mut draft = DraftAnswer::new(CheckPath::GpuPairs, meaning, None);
    draft.limit = "none: no rate is shown".to_owned();
    draft.outliers = long_accesses(matrices);
    let of = matrices.iter().filter(|m| m.is_latency && m.peer_access != Some(false));
    let cells = of.flat_map(|m| &m.cells).filter(|cell| cell.0 != cell.1);
    let direct = median(&cells.map(|cell| cell.2).collect::<Vec<_>>());
    if let Some(us) = direct.filter(|us| draft.outliers.is_empty() && *us <= DIRECT_US) {
        let facts = CauseFacts::new(&[("us", us), ("most", DIRECT_US)]);
        draft.edits.push(facts.cause("pair.direct-access"));
        return draft;
    }
    let times = access_times(matrices);
    if let Some((on, off)) = times.filter(|(on, off)| draft.outliers.is_empty() && on < off) {
        let facts = CauseFacts::new(&[("on", on), ("off", off)]);
        draft.edits.push(facts.cause("pair.direct-access#both"));
    }
    draft
}
/// GPUs on PCIe are behind other switches, root ports and sockets: which of them are peers, rates alone do not say. One
/// that is slower than the rest and still reaches what is usual of its link is a fact and no fault.
pub(crate) fn usual_for_another_slot(draft: &mut DraftAnswer, middle: f64) {
    let Some(least) = draft.usual.zip(draft.limit_gbs).map(|(usual, gbs)| usual.least * gbs) else {
        return;
    };
    let (usual, slow) =
        draft.outliers.drain(..).partition(|one: &Outlier| one.share * middle >= least);
    draft.outliers = slow;
    draft.also.extend(Vec::into_iter(usual).map(|one: Outlier| one.text));
}

/// What to run where a pair or GPU is slower than its peers, by the links of the product.
pub(crate) fn check_of_links(node: Option<&NodeLimits>) -> String {
    let pcie = "lspci -vv | grep LnkSta under load; ";
    let links = match node.and_then(|node| Some((node.fabric, node.product?.pair_gbs))) {
        Some((FabricKind::Pcie, 0.0)) => pcie.to_owned(),
        Some((FabricKind::Xgmi, _)) => format!("rocm-smi --showxgmierr; {pcie}"),
        Some(_) => format!("nvidia-smi nvlink -s; {pcie}"),
        None => format!("nvidia-smi nvlink -s, rocm-smi --showxgmierr; {pcie}"),
    };
    format!("{links}pathline health")
}

/// Pairs of one kind of link have at least this share of the best one.
const ALIKE: f64 = 0.85;
/// Below this share of what copies staged in host memory get, P2P is not direct.
pub(crate) const SLOWER_THAN_STAGED: f64 = 0.8;

/// Where the links of pairs are not known: the standard link that the figure fits, and what to ask. `most` is the rate of
/// the best pair, `ratio` that of the figures with P2P on and off.
pub(crate) fn ask_for_links(
    draft: &mut DraftAnswer,
    tool: MatrixTool,
    most: f64,
    ratio: Option<f64>,
) {
    draft.ask =
        "which GPU product is it? `nvidia-smi topo -m` or `rocm-smi --showtopo`?".to_owned();
    let value = draft.value.unwrap_or(0.0);
    let links = standard_links(if tool.is_amd() { "amd-pair" } else { "pair" });
    if value < most * ALIKE {
        let text = fitting_text(most, &links);
        draft.limit = text.replacen("it would be", "the best pair would have", 1);
    } else {
        assume_link(draft, value, &links);
        if draft.usual == usual_share("pair.pcie") {
            usual_for_another_slot(draft, value);
        }
    }
    // Whatever the links are: P2P that is slower than its detour is not direct.
    if let Some(ratio) = ratio.filter(|ratio| *ratio < SLOWER_THAN_STAGED) {
        let facts = CauseFacts::new(&[("ratio", ratio)]);
        draft.edits.push(facts.cause("pair.peer-through-root"));
    }
}

/// The limit of a pair of GPUs: in a mesh of one link or more, the least number that carries it.
pub(crate) fn set_pair_limit(
    draft: &mut DraftAnswer,
    node: &NodeLimits,
    is_bridged: bool,
    gpus: usize,
) {
    let has_links = node.pair_gbs > 0.0;
    let most_links = (node.pair_gbs / node.link_gbs).round().max(1.0);
    let links = (draft.value.unwrap_or(0.0) / node.link_gbs).ceil().clamp(1.0, most_links);
    let is_mesh = node.fabric == FabricKind::Meshed && node.pair_links.is_empty();
    let is_mesh = is_mesh && node.links_source == FactSource::Assumed && most_links > 1.0;
    let package = node.product.map_or(0.0, |product| product.package_gbs);
    let limit = match has_links {
        true if is_mesh && !is_bridged => links * node.link_gbs,
        true => node.pair_gbs,
        false => node.pcie_gbs,
    };
    draft.limit_gbs = Some(limit);
    let [one, pair, inner] = [node.link_gbs, node.pair_gbs, package].map(figure);
    let source = node.links_source.label();
    draft.limit = match has_links {
        true if is_mesh && !is_bridged => format!(
            "{one} GB/s each way of one NVLink, {pair} of {most_links:.0}: pairs have one or more ({source})"
        ),
        true if package > 0.0 => format!(
            "{pair} GB/s each way of one link between packages, {inner} within a package ({source})"
        ),
        true => format!("{pair} GB/s each way between neighbours ({source})"),
        false => node.pcie_source.each_way(limit, "PCIe"),
    };
    four_gpu_board(draft, node, gpus);
}

/// Pairs of boards with four GPUs and no switch share the links of a GPU evenly: 4 of 12 NVLinks of an A100, 6 of 18
/// of an H100 (NVIDIA HGX, 4-GPU boards).
fn four_gpu_board(draft: &mut DraftAnswer, node: &NodeLimits, gpus: usize) {
    let is_open = node.fabric == FabricKind::Switched && node.links_source == FactSource::Assumed;
    let is_of_four = gpus == 4 || node.gpus == Some(4);
    let links = (node.links_gbs / node.link_gbs / 3.0).floor();
    let limit = links * node.link_gbs;
    let value = draft.value.unwrap_or(0.0);
    if is_open && is_of_four && (least_share("pair.nvlink")..=1.0).contains(&(value / limit)) {
        let [each, switched] = [limit, node.pair_gbs].map(figure);
        draft.limit_gbs = Some(limit);
        draft.limit = format!(
            "{each} GB/s each way, {links:.0} NVLinks a pair, as on boards of four GPUs without a switch; through a \
             switch it would be {switched}"
        );
    }
}
