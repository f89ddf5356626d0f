//! Bandwidth between host memory and a GPU.

use pathline_schema::{Flow, GridSize, KernelOp, MemKind, MigrateHow, Mover, SuiteId};

use super::pivot::spread;
use super::{
    ALIKE, BarsBody, BetterWhen, Figure, FigureBar, FigureCell, SuiteFindings, distinct, extremes,
    frame, grid, is_host, mem_words, mover_words, published_clause, shares, sorted,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

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

/// The paths that the suite measured, in the order of the run.
fn paths<'a>(run: &RunView<'a>) -> Vec<HostPath<'a>> {
    run.suite(SUITE).filter_map(|entry| path(*entry)).collect()
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
    let (mem, mover) = (mem_words(host), mover_words(&flow.by, engine));
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
    let paths = paths(run);
    SuiteFindings::new(figures(run, &paths), [best_paths(run, &paths), slow_paths(run, &paths)])
}

fn figures(run: &RunView, paths: &[HostPath]) -> Vec<Figure> {
    let gpus = sorted(paths.iter().map(|w| w.gpu));
    let Some(&first) = gpus.first() else { return Vec::new() };
    let labels = distinct(paths.iter().map(|w| w.label.as_str()));
    let cell = |label: &str, gpu: u32| {
        let of = paths.iter().filter(|w| w.gpu == gpu && w.label == label);
        let largest = of.max_by_key(|w| w.entry.case.timed.first().map(|f| f.bytes));
        largest.map(|w| run.cell(&w.entry, CaseQuantity::Payload)).unwrap_or_default()
    };
    let mut figures = vec![bars(run, first, &labels, &cell)];
    if gpus.len() > 1 {
        figures.push(matrix(run, &gpus, &labels, &cell));
    }
    figures
}

/// A caution about two concurrent kernels of one GPU. On H200 the grid of the first one, a block
/// per tile, filled all multiprocessors, and the directions had 26 and 47 GB/s in one sample, 40
/// and 29 in another.
const WAITS_FOR_UNITS: &str = " Both ways by kernels, blocks of one copy can wait until those of the other leave a \
     multiprocessor: that is no limit of the link.";

/// Whether a bar is of kernels in both directions whose blocks exceed the GPU's capacity.
fn waits_for_units(bar: &FigureBar) -> bool {
    let tiled = |flow: &Flow| match flow.by {
        Mover::Kernel { variant, .. } => variant.grid == GridSize::Tiles,
        _ => false,
    };
    let timed = bar.cell.case.as_ref().map_or(&[][..], |case| &case.timed);
    timed.len() > 1 && timed.iter().any(tiled)
}

fn bars(
    run: &RunView,
    gpu: u32,
    labels: &[&str],
    cell: &impl Fn(&str, u32) -> FigureCell,
) -> Figure {
    let bars: Vec<FigureBar> = labels
        .iter()
        .map(|&label| FigureBar { label: label.into(), cell: cell(label, gpu) })
        .filter(|b| b.cell.case.is_some())
        .collect();
    let one_way = bars.iter().filter(|b| !b.label.contains("both ways"));
    let best = one_way.filter_map(|b| Some((b, b.cell.value?))).max_by(|a, b| a.1.total_cmp(&b.1));
    let finding = best.map_or(String::new(), |(bar, value)| {
        format!(
            "One way, {} is the fastest with {}{}.{}{}",
            bar.label,
            fmt::gbs(value),
            shares(std::iter::once(&bar.cell)),
            published_clause(bars.iter().map(|b| &b.cell)),
            if bars.iter().any(waits_for_units) { WAITS_FOR_UNITS } else { "" },
        )
    });
    frame(
        run,
        (SUITE, &format!("* > * by *@gpu{gpu}*")),
        "host-link",
        format!("Between gpu{gpu} and its host memory"),
    )
    .finding(finding)
    .draw(BarsBody::new(("GB/s", BetterWhen::Higher), bars))
}

fn matrix(
    run: &RunView,
    gpus: &[u32],
    labels: &[&str],
    cell: &impl Fn(&str, u32) -> FigureCell,
) -> Figure {
    let matrix = grid(
        ("path", labels),
        ("GPU", gpus),
        ("GB/s", BetterWhen::Higher),
        (|label: &str| label.to_owned(), |g: u32| g.to_string()),
        cell,
    );
    let finding = spread(&matrix);
    frame(run, (SUITE, ""), "host-link-all", "Between every GPU and its host memory")
        .finding(finding)
        .draw(matrix)
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
                let cell = run.cell(&w.entry, CaseQuantity::Payload);
                Some((w, cell.value?, cell))
            })
            .collect();
        let (_, most) = extremes(&of.iter().map(|w| w.1).collect::<Vec<_>>());
        let assumed = run.assumed.iter().filter_map(|entry| path(*entry));
        let mut assumed = assumed.filter(|w| w.inward == inward && moves_once(w));
        if assumed.any(|w| run.value(&w.entry, CaseQuantity::Payload) > Some(most)) {
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
    Some(format!(
        "Host to gpu{} is fastest with {}{below} ({}){back}.",
        path.gpu,
        fmt::gbs(value),
        path.label
    ))
}

/// Pageable memory and page migration compared with the fastest H2D path.
fn slow_paths(run: &RunView, paths: &[HostPath]) -> Option<String> {
    let best_of = |want: &dyn Fn(&HostPath) -> bool| {
        let chosen = paths.iter().filter(|w| w.inward && want(w));
        let values = chosen.filter_map(|w| run.value(&w.entry, CaseQuantity::Payload));
        values.max_by(f64::total_cmp)
    };
    let best = best_of(&|_| true)?;
    let parts: Vec<String> = [
        ("pageable copies reach", best_of(&|w| w.mem == MemKind::Paged)),
        ("page migration by faults", best_of(&|w| w.migrates == Some(MigrateHow::Fault))),
        (
            "zero-copy of managed memory",
            best_of(&|w| w.mem == MemKind::Managed && w.migrates.is_none()),
        ),
    ]
    .into_iter()
    .filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{name} {} ({} of the best)", fmt::gbs(value), fmt::percent(value / best)))
    })
    .collect();
    (!parts.is_empty()).then(|| format!("Into a GPU, {}.", fmt::list(&parts)))
}
