//! Bandwidth between host memory and a GPU.

use pathline_schema::{Flow, GridSize, KernelOp, MemKind, MigrateHow, Mover, SuiteId};

use super::pivot::{CellPivot, GBS, most, spread};
use super::{
    ALIKE, Figure, FigureCell, SuiteFindings, distinct, extremes, frame, is_host, mem_words,
    published_clause, shares, sorted,
};
use crate::fmt;
use crate::run::CaseQuantity::Payload;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::HostLink;

/// A path between host memory and a GPU.
#[derive(Debug, Clone)]
struct HostPath<'a> {
    gpu: u32,
    label: String,
    entry: RunEntry<'a>,
    /// Whether the data goes to the GPU only.
    inward: bool,
    mem: MemKind,
    /// Whether the pages migrate, by any mechanism.
    migrates: Option<MigrateHow>,
}

fn path(entry: RunEntry<'_>) -> Option<HostPath<'_>> {
    let first = entry.case.timed.first()?;
    let both = entry.both_ways().is_some();
    if !both && entry.lone().is_none() {
        return None;
    }
    let gpu = first.by.at().gpu()?;
    let host = if is_host(first.src.unit) { first.src } else { first.dst };
    let inward = is_host(first.src.unit) && !both;
    if !is_host(host.unit) {
        return None;
    }
    let label = label(first, both, host.mem, entry.engine());
    let migrates = match first.by {
        Mover::Migrate { how, .. } => Some(how),
        _ => None,
    };
    Some(HostPath { gpu, label, entry, inward, mem: host.mem, migrates })
}

fn label(flow: &Flow, both: bool, host: MemKind, engine: &str) -> String {
    let (mem, mover) = (mem_words(host), flow.by.label(engine));
    let inward = is_host(flow.src.unit);
    match flow.by {
        _ if both => format!("{mem} both ways, {mover}"),
        Mover::Migrate { how: MigrateHow::Fault, .. } => "page migration by faults".into(),
        Mover::Migrate { how: MigrateHow::Prefetch, .. } => "page migration by prefetch".into(),
        Mover::Kernel { variant, .. } if variant.passes > 1 => {
            format!("{mem} read {} times by a kernel, {}", variant.passes, flow.bytes.rounded())
        }
        Mover::Kernel { variant, .. } if variant.op == KernelOp::Read => {
            format!("{mem} read by a kernel")
        }
        Mover::Kernel { variant, .. } if variant.op == KernelOp::Write => {
            format!("{mem} written by a kernel")
        }
        _ if inward => format!("{mem} to GPU, {mover}"),
        _ => format!("GPU to {mem}, {mover}"),
    }
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let paths: Vec<HostPath> = run.suite(SUITE).filter_map(|entry| path(*entry)).collect();
    SuiteFindings::new(figures(run, &paths), [best_paths(run, &paths), slow_paths(run, &paths)])
}

/// A caution about two concurrent kernels of one GPU. On H200 the grid of the first one, a block
/// per tile, filled all multiprocessors, and the directions had 26 and 47 GB/s in one sample, 40
/// and 29 in another.
const WAITS_FOR_UNITS: &str = " Both ways by kernels, blocks of one copy can wait until those of the other leave a \
     multiprocessor: that is no limit of the link.";

/// Whether a cell is of kernels in both directions whose blocks exceed the GPU's capacity.
fn waits_for_units(cell: &FigureCell) -> bool {
    let tiled = |flow: &Flow| match flow.by {
        Mover::Kernel { variant, .. } => variant.grid == GridSize::Tiles,
        _ => false,
    };
    let timed = cell.case.as_ref().map_or(&[][..], |case| &case.timed);
    timed.len() > 1 && timed.iter().any(tiled)
}

/// The paths of the first GPU as bars, and those of all as a matrix.
fn figures(run: &RunView, paths: &[HostPath]) -> Vec<Figure> {
    let gpus = sorted(paths.iter().map(|w| w.gpu));
    let Some(&first) = gpus.first() else { return Vec::new() };
    let labels = distinct(paths.iter().map(|w| w.label.as_str()));
    let pivot = CellPivot::filled(&labels, &gpus, |&label, &gpu| {
        let of = paths.iter().filter(|w| w.gpu == gpu && w.label == label);
        let largest = of.max_by_key(|w| w.entry.case.timed.first().map(|f| f.bytes));
        largest.map(|w| run.cell(&w.entry, Payload)).unwrap_or_default()
    });
    let bars = labels.iter().map(|label| ((*label).to_owned(), pivot.cell(label, &first)));
    let mut bars: Vec<(String, FigureCell)> =
        bars.filter(|(_, cell)| cell.case.is_some()).collect();
    let rate = |bar: &(String, FigureCell)| bar.1.value.unwrap_or(0.0);
    bars.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let one_way = bars.iter().filter(|b| !b.0.contains("both ways"));
    let best = most(one_way.filter_map(|b| Some((b.1.value?, b))));
    let finding = best.map_or(String::new(), |(value, (label, cell))| {
        let (rate, share) = (fmt::gbs(value), shares(std::iter::once(cell)));
        let published = published_clause(bars.iter().map(|b| &b.1));
        let waits = bars.iter().any(|b| waits_for_units(&b.1));
        let waits = if waits { WAITS_FOR_UNITS } else { "" };
        format!("One way, {label} is the fastest with {rate}{share}.{published}{waits}")
    });
    let cases = format!("* > * by *@gpu{first}*");
    let title = format!("Between gpu{first} and its host memory");
    let of_first = frame(run, (SUITE, &cases), "host-link", title);
    let matrix = pivot.matrix(("path", |label| (*label).to_owned()), ("GPU", u32::to_string), GBS);
    let title = "Between every GPU and its host memory";
    let all = frame(run, (SUITE, ""), "host-link-all", title).finding(spread(&matrix)).draw(matrix);
    let all = Some(all).filter(|_| gpus.len() > 1);
    of_first.finding(finding).draw_bars(GBS, bars).into_iter().chain(all).collect()
}

/// Whether a path moves each byte once, so that its rate can be compared with others.
fn moves_once(path: &HostPath) -> bool {
    let once =
        |flow: &Flow| !matches!(flow.by, Mover::Kernel { variant, .. } if variant.passes > 1);
    path.entry.lone().is_some_and(once)
}

/// The fastest path in each direction; none where one that rests on assumed constants is faster.
fn best_paths(run: &RunView, paths: &[HostPath]) -> Option<String> {
    let best = |inward: bool| {
        let of: Vec<(&HostPath, f64, FigureCell)> = paths
            .iter()
            .filter(|w| w.inward == inward && moves_once(w))
            .filter_map(|w| {
                let cell = run.cell(&w.entry, Payload);
                Some((w, cell.value?, cell))
            })
            .collect();
        let (_, most) = extremes(&of.iter().map(|w| w.1).collect::<Vec<_>>());
        let assumed = run.assumed.iter().filter_map(|entry| path(*entry));
        let mut assumed = assumed.filter(|w| w.inward == inward && moves_once(w));
        if assumed.any(|w| run.value(&w.entry, Payload) > Some(most)) {
            return None;
        }
        of.into_iter().find(|w| w.1 >= ALIKE * most)
    };
    let (path, value, cell) = best(true)?;
    let below = cell.share_of_ceiling().zip(cell.ceiling).map_or(String::new(), |(share, peak)| {
        format!(", {} below the peak of {}", fmt::percent(1.0 - share), fmt::gbs(peak))
    });
    let back = best(false).map_or(String::new(), |(path, value, _)| {
        format!("; back {} ({})", fmt::gbs(value), path.label)
    });
    let (gpu, rate, label) = (path.gpu, fmt::gbs(value), &path.label);
    Some(format!("Host to gpu{gpu} is fastest with {rate}{below} ({label}){back}."))
}

/// Pageable memory and page migration compared with the fastest H2D path.
fn slow_paths(run: &RunView, paths: &[HostPath]) -> Option<String> {
    let best_of = |want: &dyn Fn(&HostPath) -> bool| {
        let chosen = paths.iter().filter(|w| w.inward && want(w));
        chosen.filter_map(|w| run.value(&w.entry, Payload)).max_by(f64::total_cmp)
    };
    let best = best_of(&|_| true)?;
    let in_place = best_of(&|w| w.mem == MemKind::Managed && w.migrates.is_none());
    let parts = [
        ("pageable copies reach", best_of(&|w| w.mem == MemKind::Paged)),
        ("page migration by faults", best_of(&|w| w.migrates == Some(MigrateHow::Fault))),
        ("zero-copy of managed memory", in_place),
    ];
    let parts = fmt::list_any(parts.into_iter().filter_map(|(name, value)| {
        let (rate, share) = (fmt::gbs(value?), fmt::percent(value? / best));
        Some(format!("{name} {rate} ({share} of the best)"))
    }));
    parts.map(|parts| format!("Into a GPU, {parts}."))
}
