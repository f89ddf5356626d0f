//! From outcomes to figures, suite by suite.

mod between;
mod bystander;
mod collectives;
mod contention;
mod fan;
mod host;
mod host_link;
mod latency;
mod local;
mod managed;
mod messages;
mod numa_gpu;
mod overhead;
mod overlap;
mod pairs;
mod patterns;
mod registration;
mod routes;
mod shared_memory;
mod storage;
mod sweep;
mod switches;

use std::collections::BTreeSet;

use pathline_schema::{Case, Flow, MemKind, Mover, Unit};

use crate::figure::{
    BarsBody, BetterWhen, ChartLine, CurvesBody, Figure, FigureBar, FigureBody, FigureCell,
    MatrixBody, extremes,
};
use crate::fmt;
use crate::run::{CaseQuantity, EntryState, RunEntry, RunView};

pub(crate) use collectives::sentence as collectives_sentence;
pub(crate) use contention::{sentence as contention_sentence, shared as contention_shared};
pub(crate) use fan::{fans, sentence as fan_sentence};
pub(crate) use host::{chase_points, crossovers, touch_cost};
pub(crate) use host_link::{HostPath, ways};
pub(crate) use managed::sentence as managed_sentence;
pub(crate) use messages::sentence as messages_sentence;
pub(crate) use numa_gpu::sentence as numa_gpu_sentence;
pub(crate) use overhead::sentence as overhead_sentence;
pub(crate) use overlap::sentence as overlap_sentence;
pub(crate) use pairs::staged_sentence;
pub(crate) use pairs::{PairMover, levels_words, pairs};
pub(crate) use patterns::sentence as patterns_sentence;
pub(crate) use routes::{RouteSlowdown, slowdowns};
pub(crate) use shared_memory::sentence as shared_memory_sentence;
pub use storage::StorageSummary;
pub(crate) use storage::{
    conditions as storage_conditions, doubts as storage_doubts, sentences as storage_sentences,
};

/// All figures, in the order of the suites; last what no suite's figure shows.
pub(crate) fn all(run: &RunView) -> Vec<Figure> {
    let mut figures = host::figures(run);
    figures.extend(local::figures(run));
    figures.extend(host_link::figures(run));
    figures.extend(pairs::figures(run));
    figures.extend(pairs::latency(run));
    figures.extend(latency::figures(run));
    figures.extend(sweep::figures(run));
    figures.extend(fan::figures(run));
    figures.extend(patterns::figures(run));
    figures.extend(managed::figures(run));
    figures.extend(overhead::figures(run));
    figures.extend(overlap::figures(run));
    figures.extend(numa_gpu::figures(run));
    figures.extend(routes::figures(run));
    figures.extend(contention::figures(run));
    figures.extend(messages::figures(run));
    figures.extend(switches::figures(run));
    figures.extend(registration::figures(run));
    figures.extend(collectives::figures(run));
    figures.extend(shared_memory::figures(run));
    figures.extend(bystander::figures(run));
    figures.extend(storage::figures(run));
    let rest = others(run, &figures);
    figures.extend(rest);
    figures
}

/// The most cases that the figure of other cases shows; the CSV has them all.
const MOST_OTHERS: usize = 40;

fn others(run: &RunView, figures: &[Figure]) -> Option<Figure> {
    let shown: BTreeSet<&Case> =
        figures.iter().flat_map(Figure::cells).filter_map(|c| c.case.as_ref()).collect();
    let suites: BTreeSet<&str> = figures.iter().map(|f| f.suite.as_str()).collect();
    let rest: Vec<&RunEntry> = run
        .entries
        .iter()
        .filter(|e| matches!(e.state, EntryState::Sampled(_)) && !shown.contains(e.case))
        .filter(|e| !e.suites.iter().any(|s| suites.contains(s.as_str())))
        .filter(|e| !e.case.timed.iter().any(|f| f.by.is_chase()))
        .collect();
    if rest.is_empty() {
        return None;
    }
    let bar = |e: &&RunEntry| FigureBar {
        label: e.case.to_string(),
        cell: run.cell(e, CaseQuantity::Payload),
    };
    let bars: Vec<FigureBar> = rest.iter().take(MOST_OTHERS).map(bar).collect();
    let more = match rest.len().saturating_sub(MOST_OTHERS) {
        0 => String::new(),
        more => format!(" {more} more are in the CSV."),
    };
    Some(Figure {
        id: "cases".into(),
        suite: String::new(),
        title: "Other cases".into(),
        finding: format!(
            "{} beside the suites' figures.{more}",
            fmt::sentence(&fmt::count(rest.len(), "case"))
        ),
        command: run.journal.begin.command.join(" "),
        body: FigureBody::Bars(BarsBody { unit: "GB/s".into(), bars, better: BetterWhen::Higher }),
    })
}

/// Curves from named points, lines in the order of their first point.
fn lines(points: impl IntoIterator<Item = (String, f64, FigureCell)>) -> Vec<ChartLine> {
    let mut lines: Vec<ChartLine> = Vec::new();
    for (name, x, cell) in points {
        let at = lines.iter().position(|l| l.name == name).unwrap_or_else(|| {
            lines.push(ChartLine { name, points: Vec::new() });
            lines.len() - 1
        });
        lines[at].points.push((x, cell));
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// A matrix over keys, with a way to find each cell.
fn grid<R: Copy, C: Copy>(
    (row_axis, rows): (&str, &[R]),
    (col_axis, cols): (&str, &[C]),
    (unit, better): (&str, BetterWhen),
    labels: (impl Fn(R) -> String, impl Fn(C) -> String),
    cell: impl Fn(R, C) -> FigureCell,
) -> MatrixBody {
    MatrixBody {
        unit: unit.into(),
        row_axis: row_axis.into(),
        col_axis: col_axis.into(),
        rows: rows.iter().map(|&r| labels.0(r)).collect(),
        cols: cols.iter().map(|&c| labels.1(c)).collect(),
        cells: rows.iter().map(|&r| cols.iter().map(|&c| cell(r, c)).collect()).collect(),
        better,
    }
}

/// Share of its rate alone, in per cent, that the timed flow of a case keeps beside its background.
fn kept(run: &RunView, suite: &str, entry: &RunEntry, timed: &Flow) -> FigureCell {
    let alone = run.suite(suite).find(|e| e.lone() == Some(timed));
    // A kernel that moves no bytes has no rate; its time says as much.
    let alone = alone.and_then(|e| run.value(e, CaseQuantity::StepNs));
    let cell = run.cell(entry, CaseQuantity::StepNs);
    let share = alone.zip(cell.value).map(|(alone, now)| 100.0 * alone / now);
    let relative = cell.value.map_or(0.0, |v| cell.half_width / v);
    FigureCell {
        value: share,
        half_width: share.unwrap_or(0.0) * relative,
        ceiling: Some(100.0),
        bound: None,
        published: None,
        way: cell.way.map(|way| crate::figure::LossBreakdown { losses: Vec::new(), ..way }),
        ..cell
    }
}

/// Values of cells that have one.
fn values<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> Vec<f64> {
    cells.filter_map(|c| c.value).collect()
}

/// Smallest and largest share of the ceiling, in words: ` (75-76 % of the peak)`.
fn shares<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> String {
    let shares: Vec<f64> = cells.filter_map(FigureCell::share_of_ceiling).collect();
    let (low, high) = extremes(&shares);
    match (shares.is_empty(), fmt::percent(low), fmt::percent(high)) {
        (true, ..) => String::new(),
        (false, a, b) if a == b => format!(" ({a} of the ceiling)"),
        (false, a, b) => format!(" ({}-{b} of the ceiling)", a.trim_end_matches(" %")),
    }
}

/// How far measured values are from published ones, for the finding of a figure.
fn published_words<'a>(cells: impl Iterator<Item = &'a FigureCell>) -> String {
    let ratios: Vec<f64> = cells
        .filter_map(|c| Some(c.value? / c.published.as_ref()?.value))
        .filter(|r| r.is_finite())
        .collect();
    if ratios.is_empty() {
        return String::new();
    }
    let worst = ratios.iter().map(|r| (r - 1.0).abs()).fold(0.0, f64::max);
    format!(
        " Against {}: at most {} apart.",
        fmt::count(ratios.len(), "published value"),
        fmt::percent(worst)
    )
}

/// A kind of memory as people call it.
fn mem_words(mem: MemKind) -> &'static str {
    match mem {
        MemKind::Vram => "device memory",
        MemKind::VramFine => "fine-grained device memory",
        MemKind::Pinned => "pinned",
        MemKind::PinnedNonCoherent => "pinned non-coherent",
        MemKind::PinnedWc => "pinned write-combined",
        MemKind::Registered => "registered",
        MemKind::RegisteredHuge => "registered huge-page",
        MemKind::Paged => "pageable",
        MemKind::Huge => "huge-page",
        MemKind::Managed => "managed",
        MemKind::Reg => "registers",
        MemKind::File => "files",
    }
}

/// What moves the bytes, as people call it; the record's word where it has one.
fn mover_words<'a>(mover: &Mover, engine: &'a str) -> &'a str {
    match mover {
        Mover::Dma { .. } if !engine.is_empty() => engine,
        Mover::Dma { .. } => "runtime copy",
        Mover::Blit { .. } => "blit kernel",
        Mover::Kernel { .. } => "kernel",
        Mover::Cpu { .. } => "threads",
        Mover::Migrate { .. } => "page migration",
        Mover::Staged { .. } => "staged copies",
        Mover::Batch { .. } => "batch of copies",
        Mover::Call { .. } => "runtime call",
        Mover::Wire { wire, .. } => wire.via.word(),
        Mover::Io { io, .. } => io.engine.word(),
    }
}

/// A figure of bars, if there is one with a case.
fn bars_figure(
    (id, suite, title): (&str, &str, String),
    finding: String,
    command: String,
    (unit, better): (&str, BetterWhen),
    bars: Vec<FigureBar>,
) -> Option<Figure> {
    let bars: Vec<FigureBar> = bars.into_iter().filter(|b| b.cell.case.is_some()).collect();
    (!bars.is_empty()).then(|| Figure {
        id: id.into(),
        suite: suite.into(),
        title,
        finding,
        command,
        body: FigureBody::Bars(BarsBody { unit: unit.into(), bars, better }),
    })
}

fn is_host(unit: Unit) -> bool {
    unit.numa().is_some()
}
