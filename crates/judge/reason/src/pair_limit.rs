//! The limit of copies between GPUs, and what to ask where their links are not known.

use pathline_paste::MatrixTool;

use crate::cause_table::CauseFacts;
use crate::draft::DraftAnswer;
use crate::figures::figure;
use crate::fitting_links::{assume_link, fitting_text, standard_links};
use crate::node_facts::{FactSource, NodeLimits};
use crate::product_facts::FabricKind;
use crate::usual_share::least_share;

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
        draft.limit = text.replacen("unknown: ", "unknown; of the best pair: ", 1);
    } else {
        assume_link(draft, value, &links);
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
