//! Copies between host memory and GPUs.

use pathline_paste::{CopyMeans, MatrixEnd, PasteContext, RateCount, RateMatrix};

use crate::checks::CheckPath;
use crate::copies::{EXACT, PCIE_SHARE};
use crate::draft::DraftAnswer;
use crate::fitting_links::{HOST_LINKS, assume_link};
use crate::host_outliers::{shared_paths, slow_host_links};
use crate::node_facts::{NodeLimits, figure};
use crate::outlier::{Outlier, RUN_SHARE, median};
use crate::pair_levels::{DIRECTION, slow_direction};
use crate::product_facts::narrower_link;
use crate::score::{AnswerClass, ObservedFeature, WorldEdit};

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
    match list.len() > 1 {
        true => format!(
            "; the runs differ in numactl {}: memory or cores of the far socket",
            list.join(" and ")
        ),
        false => String::new(),
    }
}

/// Runs of one test that are slower than the fastest one of the paste.
fn slow_runs(matrices: &[&RateMatrix], context: &PasteContext) -> Vec<Outlier> {
    let middle = |matrix: &RateMatrix| {
        median(&matrix.cells.iter().map(|cell| cell.2).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let mut found = Vec::new();
    for (at, matrix) in matrices.iter().enumerate() {
        let ends = |matrix: &RateMatrix| -> Vec<(MatrixEnd, MatrixEnd)> {
            matrix.cells.iter().map(|cell| (cell.0, cell.1)).collect()
        };
        let is_same = |other: &&&RateMatrix| {
            (&other.test, other.count, other.means, other.peer_access)
                == (&matrix.test, matrix.count, matrix.means, matrix.peer_access)
                && ends(other) == ends(matrix)
        };
        let nodes = commands_of_nodes(context);
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
    let cells = matrices.iter().filter(is_mine).flat_map(|m| &m.cells);
    let mut values: Vec<f64> = cells
        .filter_map(|&(from, to, value)| match (from, to) {
            (MatrixEnd::Host(_), MatrixEnd::Gpu(_)) if inward => Some(value),
            (MatrixEnd::Gpu(_), MatrixEnd::Host(_)) if !inward => Some(value),
            _ => None,
        })
        .collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    Some(HostRates { middle: median(&values)?, least, most, count: values.len() })
}

/// Host memory and GPUs.
pub(crate) fn with_host(
    matrices: &[&RateMatrix],
    node: Option<&NodeLimits>,
    context: &PasteContext,
) -> Option<DraftAnswer> {
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
    let say = |&(_, name, rates): &(&str, &str, Option<HostRates>)| {
        let rates = rates?;
        let spread = match rates.count > 1 {
            true => format!(" (worst {}, best {})", figure(rates.least), figure(rates.most)),
            false => String::new(),
        };
        Some(format!("{name} {}{spread}", figure(rates.middle)))
    };
    let parts: Vec<String> = kinds.iter().filter_map(say).collect();
    let is_duplex = both_in.or(both_out).is_some();
    let mut draft = DraftAnswer {
        meaning: format!(
            "host copies{}, GB/s (1e9 B/s): {}{}",
            if by_kernel { " by a kernel" } else { "" },
            parts.join(", "),
            if is_duplex { "; of two streams one is reported" } else { "" }
        ),
        value: Some(headline),
        path: CheckPath::HostCopies,
        ..DraftAnswer::default()
    };
    draft.outliers = slow_host_links(matrices, node);
    if draft.outliers.is_empty() {
        draft.outliers = slow_runs(matrices, context);
    }
    if draft.outliers.is_empty() {
        draft.outliers.extend(slow_direction(matrices, node));
    }
    for (id, _, rates) in kinds {
        let rate = rates.map(|rates| rates.middle).filter(|rate| *rate > 0.0);
        draft.features.extend(rate.map(|rate| ObservedFeature::new(id, rate)));
    }
    if let Some(rates) = inward.or(outward).filter(|rates| rates.count > 2) {
        let least = (rates.least / rates.middle).max(1e-3);
        draft.features.push(ObservedFeature::new("least", least));
    }
    draft.usual = Some((0.7, "pinned copies reach 70 to 93 % of PCIe"));
    if let (Some(inward), Some(outward), true) = (inward, outward, by_kernel)
        && inward.middle.min(outward.middle) < headline * DIRECTION
    {
        draft.note =
            "a kernel's accesses to host memory wait for each other: its rate is no link's"
                .to_owned();
        draft.ask =
            "what do host_to_device_memcpy_ce and device_to_host_memcpy_ce give?".to_owned();
    }
    let shared = shared_paths(&mut draft, matrices);
    if let Some(pcie) = node.map(|node| node.pcie_gbs).filter(|pcie| *pcie > 0.0) {
        draft.limit_gbs = Some(pcie);
        let source = node.map_or("", |node| node.pcie_source.label());
        draft.limit = format!("{} GB/s each way, PCIe ({source})", figure(pcie));
        host_edits(&mut draft, pcie, is_duplex, context);
        let is_host = |m: &&&RateMatrix| m.cells.iter().any(|cell| cell.0 != cell.1);
        if matrices.iter().filter(is_host).all(|matrix| matrix.test.contains("pageable")) {
            draft.limit.push_str(", of pinned memory");
            draft.edits.push(
                WorldEdit::new("pageable", AnswerClass::SetUpSo, 1.0)
                    .says("the tool says that the memory is pageable: the driver copies it through a pinned buffer by CPU")
                    .decided_by("the same with --memory=pinned")
                    .certain(),
            );
        }
        chip_to_chip(&mut draft, node, headline);
    } else {
        assume_link(&mut draft, headline, &HOST_LINKS);
        draft.ask = "which GPU product is it? `lspci -vv | grep LnkSta` of the GPU?".to_owned();
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

/// Copies over NVLink-C2C, where a module of Grace is faster than PCIe.
fn chip_to_chip(draft: &mut DraftAnswer, node: Option<&NodeLimits>, headline: f64) {
    let Some(node) = node.filter(|node| node.c2c_gbs > 0.0 && headline > node.pcie_gbs) else {
        return;
    };
    let c2c = node.c2c_gbs;
    draft.limit =
        format!("{} GB/s each way, NVLink-C2C ({})", figure(c2c), node.c2c_source.label());
    draft.limit_gbs = Some(c2c);
    draft.edits.push(
        WorldEdit::new("link-full", AnswerClass::AsExpected, 0.5)
            .expects("in", c2c * 0.85, 0.1)
            .expects("out", c2c * 0.68, 0.15)
            .expects("both-in", c2c * 0.5, 0.4)
            .expects("both-out", c2c * 0.5, 0.4)
            .expects("least", 0.97, 0.1)
            .says(format!(
                "NVLink-C2C: copies to the GPU reach 85 % of {} GB/s, copies from it 68 %",
                figure(c2c)
            ))
            .decided_by("pathline run host-link, on the node"),
    );
}

fn host_edits(draft: &mut DraftAnswer, pcie: f64, has_both: bool, context: &PasteContext) {
    let full = pcie * PCIE_SHARE;
    let edit = |id, class, prior, inward: f64, outward: f64, sigma: f64| {
        WorldEdit::new(id, class, prior)
            .expects("in", inward, sigma)
            .expects("out", outward, sigma)
            .expects("both-in", inward * 0.82, sigma.max(0.1) * 1.3)
            .expects("both-out", outward * 0.88, sigma.max(0.1) * 1.3)
            .expects("least", 0.96, 0.07)
    };
    draft.edits.push(
        edit("pcie-full", AnswerClass::AsExpected, 0.45, full, full, 0.09)
            .says(format!(
                "PCIe packets of 256 B with headers leave {:.0} %: {} of {} GB/s",
                PCIE_SHARE * 100.0,
                figure(full),
                figure(pcie)
            ))
            .decided_by("pathline run host-link, on the node"),
    );
    if has_both {
        draft.edits.push(
            WorldEdit::new("one-of-two-streams", AnswerClass::MeansSomethingElse, 0.5)
                .expects("in", full, 0.12)
                .expects("out", full, 0.12)
                .expects("both-in", full * 0.5, 0.3)
                .expects("both-out", full * 0.85, 0.3)
                .expects("least", 0.95, 0.15)
                .says("both directions run and one is printed: the other moves as much or more at the same time; reads of the host's memory wait behind writes on this host")
                .decided_by("add both directions: their sum is the duplex rate; pathline run host-link"),
        );
    }
    let narrower = draft.value.and_then(|value| narrower_link(value, pcie));
    let is_down = context.pcie.zip(context.pcie_most).is_some_and(|(now, most)| now != most);
    for (part, prior, what) in [
        (0.5, 0.12, "half the lanes or the generation below"),
        (0.25, 0.05, "a quarter of the lanes or two generations below"),
    ] {
        draft.edits.push(
            edit(
                "narrow-pcie",
                AnswerClass::HardwareSuspect,
                prior,
                full * part,
                full * part,
                0.08,
            )
            .slows_copies(part)
            .exact(EXACT)
            .seen(if is_down { 3.0 } else { 0.0 })
            .says(
                narrower.clone().unwrap_or_else(|| {
                    format!("PCIe runs at {what}: {} GB/s", figure(full * part))
                }),
            )
            .decided_by(
                "lspci -vv -s GPU | grep LnkSta under load, on the GPU and each bridge above it",
            ),
        );
    }
    draft.edits.push(
        edit("far-memory", AnswerClass::SetUpSo, 0.08, full * 0.65, full * 0.65, 0.2)
            .says("the buffers lie in another NUMA domain than the GPU's")
            .decided_by("numactl --cpunodebind=N --membind=N with the GPU's domain N"),
    );
}
