//! Copies between host memory and GPUs.

use pathline_paste::{CopyMeans, PasteContext, RateCount, RateMatrix};

use crate::cause_table::{CauseFacts, cause};
use crate::checks::CheckPath;
use crate::draft::{ASK_PRODUCT, DraftAnswer};
use crate::figures::figure;
use crate::fitting_links::{assume_link, standard_links};
use crate::host_outliers::{shared_paths, slow_host_links};
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::outlier::{Outlier, RUN_SHARE, median};
use crate::pair_levels::{DIRECTION, host_cells, slow_direction};
use crate::product_facts::{PCIE_SHARE, ProductFacts, lanes_of, narrower_link};
use crate::score::ObservedFeature;
use crate::usual_share::{ABOVE, UsualShare, least_share, usual_share};
use crate::verdict::percent;

/// What to do where runs differ in their NUMA domain.
const NEAR_NODE: &str = "numactl with the GPU's domain (nvidia-smi topo -m: NUMA Affinity): the other is the far socket";

/// The bindings of the commands, where they differ.
fn commands_of_nodes(context: &PasteContext) -> String {
    let binding = |command: &String| {
        let (_, rest) = command.split_once("numactl ")?;
        let options: Vec<&str> = rest.split(' ').take_while(|word| word.starts_with('-')).collect();
        Some(options.join(" "))
    };
    let mut list: Vec<String> = context.commands.iter().filter_map(binding).collect();
    list.dedup();
    let runs = list.join(" and ");
    let text = format!("; the runs differ in numactl {runs}: memory or cores of the far socket");
    if list.len() > 1 { text } else { String::new() }
}

/// Runs of one test that are slower than the fastest one of the paste.
fn slow_runs(matrices: &[&RateMatrix], context: &PasteContext) -> Vec<Outlier> {
    let middle = |matrix: &RateMatrix| {
        median(&matrix.cells.iter().map(|cell| cell.2).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let mut found = Vec::new();
    let nodes = commands_of_nodes(context);
    for (at, matrix) in matrices.iter().enumerate() {
        let kind = |of: &RateMatrix| {
            let ends: Vec<_> = of.cells.iter().map(|cell| (cell.0, cell.1)).collect();
            (of.test.clone(), of.count, of.means, of.peer_access, ends)
        };
        let is_same = |other: &&&RateMatrix| kind(other) == kind(matrix);
        let best = matrices.iter().filter(is_same).map(|other| middle(other)).fold(0.0, f64::max);
        let nth = matrices.iter().take(at + 1).filter(is_same).count();
        if middle(matrix) < best * RUN_SHARE && found.len() < 4 {
            let part = format!("run {nth} of {}", matrix.test);
            let mut one =
                Outlier::new(part, middle(matrix), best, "GB/s", "the fastest run of it").of_row();
            one.text.push_str(&nodes);
            found.push(one.checked_by(if nodes.is_empty() { "" } else { NEAR_NODE }));
        }
    }
    found
}

/// Host copies of one kind: median, least, greatest, how many.
#[derive(Clone, Copy)]
struct HostRates {
    middle: f64,
    least: f64,
    most: f64,
    count: usize,
}

fn host_rates(
    matrices: &[&RateMatrix],
    inward: bool,
    count: RateCount,
    kernel: bool,
) -> Option<HostRates> {
    let is_mine = |m: &&&RateMatrix| {
        m.count == count && (m.means == CopyMeans::Kernel) == kernel && !m.concurrent
    };
    let cells = matrices.iter().filter(is_mine).flat_map(|m| host_cells(m, inward));
    let mut values: Vec<f64> = cells.map(|cell| cell.1).collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    Some(HostRates { middle: median(&values)?, least, most, count: values.len() })
}

/// A kernel whose copies are below this share of those of the copy engine is slow by itself.
const KERNEL: f64 = 0.5;

/// Copies by a kernel that are far below those of the copy engine over the same link, in the same direction.
fn slow_kernel(
    (name, engine, kernel): (&str, Option<HostRates>, Option<HostRates>),
) -> Option<Outlier> {
    let (engine, kernel) = engine.zip(kernel)?;
    let part = format!("{name} by a kernel");
    let one = Outlier::new(part, kernel.middle, engine.middle, "GB/s", "the copy engine").of_row();
    let check =
        "another version of the tool or driver; iommu=pt; the same between 256 KiB and 64 MiB (-b)";
    Some(one.checked_by(check)).filter(|one| one.share < KERNEL)
}

/// Every kind with its median, and its worst and best where it has several.
fn describe_rates(
    kinds: &[(&str, &str, Option<HostRates>)],
    by_kernel: bool,
    is_duplex: bool,
) -> String {
    let say = |&(_, name, rates): &(&str, &str, Option<HostRates>)| {
        let rates = rates?;
        let spread = match rates.count > 1 {
            true => format!(" (worst {}, best {})", figure(rates.least), figure(rates.most)),
            false => String::new(),
        };
        Some(format!("{name} {}{spread}", figure(rates.middle)))
    };
    let parts: Vec<String> = kinds.iter().filter_map(say).collect();
    let by = if by_kernel { " by a kernel" } else { "" };
    let reported = if is_duplex { "; of two streams one is reported" } else { "" };
    format!("host copies{by}, GB/s (1e9 B/s): {}{reported}", parts.join(", "))
}

/// Host memory and GPUs.
pub(crate) fn with_host(matrices: &[&RateMatrix], basis: AnswerBasis<'_>) -> Option<DraftAnswer> {
    let AnswerBasis { limits: node, context, .. } = basis;
    let one_way = |inward| host_rates(matrices, inward, RateCount::OneWay, false);
    let both = |inward| host_rates(matrices, inward, RateCount::OneOfBoth, false);
    let kernel = |inward| host_rates(matrices, inward, RateCount::OneWay, true);
    let by_kernel = one_way(true).is_none()
        && one_way(false).is_none()
        && (kernel(true).is_some() || kernel(false).is_some());
    let (inward, outward) = match by_kernel {
        true => (kernel(true), kernel(false)),
        false => (one_way(true), one_way(false)),
    };
    let (both_in, both_out) = (both(true), both(false));
    let kinds = [
        ("in", "H2D", inward),
        ("out", "D2H", outward),
        ("both-in", "H2D while D2H runs", both_in),
        ("both-out", "D2H while H2D runs", both_out),
    ];
    let headline =
        kinds.iter().filter_map(|kind| kind.2).map(|rates| rates.middle).fold(0.0, f64::max);
    if headline <= 0.0 {
        return None;
    }
    let is_duplex = both_in.or(both_out).is_some();
    let meaning = describe_rates(&kinds, by_kernel, is_duplex);
    let mut draft = DraftAnswer::new(CheckPath::HostCopies, meaning, headline);
    draft.outliers = slow_host_links(matrices, node);
    if draft.outliers.is_empty() {
        draft.outliers = slow_runs(matrices, context);
    }
    if draft.outliers.is_empty() {
        draft
            .outliers
            .extend(slow_direction(matrices, node.is_some_and(|node| node.c2c_gbs > 0.0)));
    }
    if draft.outliers.is_empty() && !by_kernel {
        let of = [("H2D", inward, kernel(true)), ("D2H", outward, kernel(false))];
        draft.outliers.extend(of.into_iter().filter_map(slow_kernel));
    }
    for (id, _, rates) in kinds {
        let rate = rates.map(|rates| rates.middle).filter(|rate| *rate > 0.0);
        draft.features.extend(rate.map(|rate| ObservedFeature::new(id, rate)));
    }
    if let Some(rates) = inward.or(outward).filter(|rates| rates.count > 2) {
        let least = (rates.least / rates.middle).max(1e-3);
        draft.features.push(ObservedFeature::new("least", least));
    }
    let is_one_way = inward.or(outward).is_some();
    draft.usual = usual_share(if is_one_way { "host.pcie" } else { "host.pcie-both" });
    if by_kernel {
        note_of_kernels(&mut draft, inward, outward, node);
    }
    let shared = shared_paths(&mut draft, matrices);
    let own = if is_one_way { [inward, outward] } else { [both_in, both_out] };
    let least = own.iter().flatten().map(|rates| rates.least).fold(f64::INFINITY, f64::min);
    if let Some(product) = node.and_then(|node| node.product).filter(|p| p.has_one_memory()) {
        within_one_memory(&mut draft, product);
    } else if let Some(node) = node.filter(|node| node.pcie_gbs > 0.0) {
        draft.limit_gbs = Some(node.pcie_gbs);
        draft.limit = node.pcie_source.each_way(node.pcie_gbs, node.host_link);
        if node.host_link == "PCIe" {
            host_edits(&mut draft, node, is_duplex, context);
        } else if is_one_way {
            draft.usual = usual_share("host.fabric");
        }
        let is_host = |m: &&&RateMatrix| m.cells.iter().any(|cell| cell.0 != cell.1);
        if matrices.iter().filter(is_host).all(|matrix| matrix.test.contains("pageable")) {
            draft.limit.push_str(", of pinned memory");
            draft.edits.push(cause("host.pageable"));
        }
        chip_to_chip(&mut draft, node, headline);
        draft.note_slowest("GPU", least);
    } else {
        assume_link(&mut draft, headline, &standard_links("host"));
        let is_named = node.is_some_and(|node| node.product.is_some());
        let which = if is_named { "what link has the GPU," } else { ASK_PRODUCT };
        draft.ask = format!("{which} `lspci -vv | grep LnkSta` of the GPU?");
    }
    // One direction of one GPU is what a full link gives.
    let sound = draft.edits.iter().find(|edit| edit.id == "pcie-full");
    let sound = sound.map(|edit| edit.expects.clone()).unwrap_or_default();
    draft.edits.extend(shared.into_iter().map(|mut edit| {
        edit.expects.extend(sound.iter().copied());
        edit
    }));
    Some(draft)
}

/// What two directions by a kernel say where they differ: no link is the reason if one of them fills it.
fn note_of_kernels(
    draft: &mut DraftAnswer,
    inward: Option<HostRates>,
    outward: Option<HostRates>,
    node: Option<&NodeLimits>,
) {
    let Some((inward, outward)) = inward.zip(outward) else { return };
    let is_inward = inward.middle > outward.middle;
    let (fast, slow, name) =
        if is_inward { (inward, outward, "H2D") } else { (outward, inward, "D2H") };
    if slow.middle >= fast.middle * DIRECTION {
        return;
    }
    draft.note =
        "a kernel's accesses to host memory wait for each other: its rate is no link's".to_owned();
    draft.ask = "what do host_to_device_memcpy_ce and device_to_host_memcpy_ce give?".to_owned();
    let share = node.map_or(0.0, |node| fast.least / node.pcie_gbs.max(1e-9));
    if (least_share("host.pcie")..ABOVE).contains(&share) {
        let each = if fast.count > 1 { " of every GPU" } else { "" };
        draft.note.push_str(&format!(
            "; {name}{each} has {} of the link and more, so link and slot are sound",
            percent(share)
        ));
    }
}

/// Copies of CPU and GPU that share their memory, which is read and written.
fn within_one_memory(draft: &mut DraftAnswer, product: &ProductFacts) {
    draft.value = draft.value.map(|gbs| gbs * 2.0);
    draft.limit_gbs = Some(product.memory_gbs);
    draft.limit = format!(
        "{} GB/s, theoretical peak of the one memory of CPU and GPU, which a copy reads and writes (assumed of the \
         product)",
        figure(product.memory_gbs)
    );
    // A copy engine or a fabric may have less.
    draft.usual = usual_share("memory.peak").map(|usual| UsualShare { slow: 0.0, ..usual });
    draft.path = CheckPath::Memory;
}

/// Copies over NVLink-C2C, where a module of Grace is faster than PCIe.
fn chip_to_chip(draft: &mut DraftAnswer, node: &NodeLimits, headline: f64) {
    let c2c = node.c2c_gbs;
    if c2c > 0.0 && headline > node.pcie_gbs {
        draft.set_limit(c2c, "host.c2c", node.c2c_source.each_way(c2c, "NVLink-C2C"));
        draft.edits.push(CauseFacts::new(&[("c2c", c2c)]).cause("host.link-full"));
    }
}

fn host_edits(draft: &mut DraftAnswer, node: &NodeLimits, has_both: bool, context: &PasteContext) {
    let (pcie, lanes) = (node.pcie_gbs, lanes_of(node.product));
    let facts =
        CauseFacts::new(&[("pcie", pcie), ("full", pcie * PCIE_SHARE), ("share", PCIE_SHARE)]);
    draft.edits.push(facts.cause("host.pcie-full"));
    if has_both {
        draft.edits.push(facts.cause("host.one-of-two-streams"));
    }
    let narrower = draft.value.and_then(|value| narrower_link(value, pcie, lanes));
    let is_down = context.pcie.zip(context.pcie_most).is_some_and(|(now, most)| now != most);
    for (key, what) in [
        ("host.narrow-pcie", "half the lanes or the generation below"),
        ("host.narrow-pcie#quarter", "a quarter of the lanes or two generations below"),
    ] {
        let narrower = narrower.clone().unwrap_or_else(|| format!("PCIe runs at {what}"));
        let edit = facts.word("narrower", narrower).cause(key);
        draft.edits.push(if is_down { edit.seen(3.0) } else { edit });
    }
    draft.edits.push(facts.cause("host.far-memory"));
}
