//! Latency that a GPU at the end adds to I/O, over depth and workers.

use pathline_schema::{CaseTimes, IoEngine, IoSpec, IoStage, MemKind, Place};

use super::{IoEntry, IoQuantity, SUITE};
use crate::figure::{Figure, FigureCell, GapsBody, PairedGap};
use crate::figures::{distinct, frame, sorted};
use crate::fmt;
use crate::run::{EntryState, RunView};
use crate::shown_value::ShownValue;

/// Exponent of throughput over I/Os in flight below which throughput is saturated: twice as many in
/// flight give less than 19 % more.
pub(super) const GROWS: f64 = 0.25;

/// Compared statistics of latencies.
pub(super) const LATENCIES: [(&str, IoQuantity); 4] = [
    ("min", IoQuantity::Min),
    ("p50", IoQuantity::Quantile(0.5)),
    ("p99", IoQuantity::Quantile(0.99)),
    ("max", IoQuantity::Max),
];

/// Whether a case with a GPU and one without do the same I/O.
pub(super) fn same_io(gpu: &IoEntry<'_, '_>, host: &IoEntry<'_, '_>) -> bool {
    let plain = |io: &IoSpec| IoSpec { stage: None, batch: 1, engine: IoEngine::Uring, ..*io };
    let engines = gpu.io.engine == host.io.engine || gpu.io.engine == IoEngine::Gds;
    host.gpu().is_none()
        && gpu.gpu().is_some()
        && engines
        && plain(&gpu.io) == plain(&host.io)
        && gpu.block() == host.block()
        && gpu.store() == host.store()
        && gpu.flow.by.at() == host.flow.by.at()
}

/// The same I/O with host memory at its end, preferably the memory through which blocks are staged.
pub(super) fn host_of<'b, 'a>(
    gpu: &IoEntry<'b, 'a>,
    jobs: &[IoEntry<'b, 'a>],
) -> Option<IoEntry<'b, 'a>> {
    let unlike = |host: &IoEntry| {
        let memory = match (gpu.io.stage.map(|stage| stage.through), host.flow.io_ends().1.mem) {
            (Some(through), mem) if mem == through => 0,
            // Registered memory was pageable; pinned memory may have large pages.
            (Some(through), mem) if mem == through.before_registration() => 1,
            (Some(MemKind::Pinned) | None, MemKind::Huge) => 1,
            (_, MemKind::Paged | MemKind::Huge) => 2,
            _ => 3,
        };
        (host.series().is_none(), host.io.batch != gpu.io.batch, memory)
    };
    jobs.iter().filter(|host| same_io(gpu, host)).min_by_key(|host| unlike(host)).copied()
}

/// Common properties of a map's cells.
type GapKey = (Place, Place, IoSpec, pathline_schema::Bytes, Option<IoStage>);

fn key(job: &IoEntry<'_, '_>) -> GapKey {
    let io = IoSpec { depth: 1, batch: 1, threads: 1, ..job.io };
    (job.flow.src, job.flow.dst, io, job.block(), job.io.stage)
}

pub(super) fn figures(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Vec<Figure> {
    let keys: Vec<GapKey> = distinct(jobs.iter().filter(|j| j.gpu().is_some()).map(key));
    let of =
        |wanted: &GapKey| jobs.iter().filter(|j| key(j) == *wanted).copied().collect::<Vec<_>>();
    keys.iter().filter_map(|wanted| figure(run, &of(wanted), jobs)).collect()
}

fn figure(run: &RunView, gpu: &[IoEntry<'_, '_>], jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let first = gpu.first()?;
    let depths = sorted(gpu.iter().map(|j| j.io.depth));
    let threads = sorted(gpu.iter().map(|j| j.io.threads));
    let panels = panels(&LATENCIES, &threads, &depths, |t, d, asked| {
        let job = gpu.iter().find(|j| (j.io.threads, j.io.depth) == (*t, d))?;
        let of = |job: &IoEntry, name: &str| Some(format!("{name}: {}", saturated(job, jobs)?));
        let saturated = |host: &IoEntry| of(job, &job.memory()).or_else(|| of(host, "host"));
        Some(gap(job, host_of(job, jobs), (asked, 1.0), "latencies", saturated))
    });
    let measured = panels.iter().flat_map(|p| p.1.iter().flatten());
    // A single cell is not a map; the stages show it.
    if measured.filter(|g| g.cell.value.is_some()).count() < 2 * LATENCIES.len() {
        return None;
    }
    let (name, at, io) = (first.memory(), first.flow.by.at(), first.io);
    let kind = io.stage.map_or_else(|| io.engine.to_string(), |stage| stage.to_string());
    let id = format!(
        "storage-gap-{name}-store{}-{at}-{}-{}-{}-{}-{}-{kind}",
        first.store(),
        io.engine,
        io.order,
        io.op,
        first.block(),
        io.cache
    );
    let title = format!("{name} minus host: latency of {}, {}", first.work(), first.staging());
    let lead = format!("With {} at depth {}", fmt::threads(*threads.first()?), depths.first()?);
    Some(frame(run, (SUITE, ""), id, title).finding(finding(&lead, &name, &panels, "us")).draw(
        GapsBody {
            quantity: "latency".into(),
            unit: "us".into(),
            base: "host".into(),
            other: name,
            row_axis: "threads".into(),
            col_axis: "depth".into(),
            rows: threads.iter().map(u32::to_string).collect(),
            cols: depths.iter().map(u32::to_string).collect(),
            panels,
        },
    ))
}

/// A name, and gaps by row and depth.
pub(super) type GapPanel = (String, Vec<Vec<PairedGap>>);

/// A panel for each statistic; `None` of a gap is an empty cell.
pub(super) fn panels<R>(
    statistics: &[(&str, IoQuantity)],
    rows: &[R],
    depths: &[u32],
    gap: impl Fn(&R, u32, IoQuantity) -> Option<PairedGap>,
) -> Vec<GapPanel> {
    let cells = |row: &R, asked: IoQuantity| -> Vec<PairedGap> {
        depths.iter().map(|&depth| gap(row, depth, asked).unwrap_or_default()).collect()
    };
    let panel = |&(name, asked): &(&str, IoQuantity)| {
        (name.to_owned(), rows.iter().map(|row| cells(row, asked)).collect())
    };
    statistics.iter().map(panel).collect()
}

/// The median of the differences of alternating samples times a factor, with its interval, which is
/// widened by their autocorrelation. `what` a sample may lack.
pub(super) fn gap(
    job: &IoEntry<'_, '_>,
    host: Option<IoEntry<'_, '_>>,
    (asked, factor): (IoQuantity, f64),
    what: &str,
    saturated: impl FnOnce(&IoEntry<'_, '_>) -> Option<String>,
) -> PairedGap {
    let absent = |why: String| PairedGap {
        cell: FigureCell { absent: Some(why), ..FigureCell::stated(job.entry, None) },
        ..PairedGap::default()
    };
    if let EntryState::Absent(why) = job.entry.state {
        return absent(why.to_owned());
    }
    let Some(host) = host else {
        return absent("the same I/O with host memory is not in this run".into());
    };
    if let EntryState::Absent(why) = host.entry.state {
        return absent(format!("the same I/O with host memory has no figure: {why}"));
    }
    let apart: Vec<f64> =
        job.paired(&host, asked, |a, b| a - b).into_iter().map(|apart| apart * factor).collect();
    let times = CaseTimes::from_values(&apart, job.entry.visits());
    let Some(shown) = ShownValue::new(&times) else {
        return absent(format!("no pair of samples has {what}"));
    };
    PairedGap {
        cell: FigureCell::sampled(job.entry, &apart, None),
        base: host.value(asked).map(|v| v * factor),
        other: job.value(asked).map(|v| v * factor),
        pairs: apart.len(),
        // A difference of few pairs may be due to chance.
        is_zero: shown.interval.is_none_or(|i| i.low <= 0.0 && i.high >= 0.0),
        saturated: saturated(&host),
    }
}

/// Reason if the latency of a case is that of a queue: throughput increased little from the next
/// fewer in flight. `None` if it increased, or if there is no such case.
pub(super) fn saturated(job: &IoEntry<'_, '_>, jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let plain = |io: &IoSpec| IoSpec { depth: 1, batch: 1, threads: 1, ..*io };
    let ends = |job: &IoEntry| (job.flow.src, job.flow.dst, job.flow.bytes);
    let alike = jobs.iter().filter(|o| plain(&o.io) == plain(&job.io) && ends(o) == ends(job));
    saturated_among(job, alike)
}

/// The same, among cases that differ in depth and workers only.
pub(super) fn saturated_among<'j, 'b: 'j, 'a: 'b>(
    job: &IoEntry<'_, '_>,
    alike: impl Iterator<Item = &'j IoEntry<'b, 'a>> + Clone,
) -> Option<String> {
    let here = job.value(IoQuantity::Iops)?;
    let lower = |fixed: fn(&IoSpec) -> u32, varied: fn(&IoSpec) -> u32| {
        let fewer = alike.clone();
        let fewer =
            fewer.filter(|o| fixed(&o.io) == fixed(&job.io) && varied(&o.io) < varied(&job.io));
        fewer.max_by_key(|o| varied(&o.io))
    };
    let less = [
        (lower(|io| io.threads, |io| io.depth), "depth"),
        (lower(|io| io.depth, |io| io.threads), "workers"),
    ];
    less.into_iter().find_map(|(other, what)| {
        let more = job.io.slots() as f64 / other?.io.slots() as f64;
        queue_text(more, here / other?.value(IoQuantity::Iops)?, what)
    })
}

/// Why throughput is saturated that grew by `ratio` with `more` times as many in flight; `None` if it is not.
fn queue_text(more: f64, ratio: f64, what: &str) -> Option<String> {
    let power = ratio.ln() / more.ln();
    (power < GROWS).then(|| {
        let times = fmt::number(more);
        let times = times.trim_end_matches(".00").trim_end_matches(".0");
        let changes = if ratio >= 1.0 { "raise" } else { "lower" };
        let share = fmt::percent((ratio - 1.0).abs());
        format!("{times} times the {what} {changes} the IOPS by {share}")
    })
}

/// The difference in the first cell of each panel, introduced by `lead`, and the marks of all cells.
pub(super) fn finding(lead: &str, name: &str, panels: &[GapPanel], unit: &str) -> String {
    let part = |(statistic, rows): &GapPanel| {
        let gap = rows.first().and_then(|r| r.first())?;
        let (value, text) = (gap.cell.value?, gap.cell.number_text()?);
        let sign = if value >= 0.0 { "+" } else { "" };
        Some(match gap.is_zero {
            true => format!("no difference in {statistic} distinguishable from zero"),
            false => format!("{sign}{text} {unit} in {statistic}"),
        })
    };
    let parts = fmt::list_any(panels.iter().filter_map(part)).unwrap_or_default();
    let all = || panels.iter().flat_map(|p| p.1.iter().flatten());
    let is_measured = |g: &&PairedGap| g.cell.value.is_some();
    let measured = all().filter(is_measured).count();
    let zero = match all().filter(|g| g.is_zero).count() {
        0 => format!("All {measured} differences are distinguishable from zero."),
        n => format!("{n} of {measured} differences are not distinguishable from zero."),
    };
    // Saturation applies to a cell, for all statistics.
    let first = || panels.iter().take(1).flat_map(|p| p.1.iter().flatten());
    let cells = first().filter(is_measured).count();
    let queues = match first().filter(|g| g.saturated.is_some()).count() {
        0 => String::new(),
        n => format!(
            " In {n} of {cells} cells throughput no longer grows: there the difference measures \
             throughput, not the copy."
        ),
    };
    format!("{lead} {name} adds {parts}. {zero}{queues}")
}
