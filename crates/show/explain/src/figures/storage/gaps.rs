//! Latency that a GPU at the end adds to I/O, over depth and workers.

use std::collections::BTreeSet;

use pathline_schema::{CaseTimes, IoEngine, IoSpec, IoStage, MemKind, Place};

use super::{IoEntry, IoQuantity, SUITE};
use crate::figure::{Figure, FigureCell, GapsBody, PairedGap};
use crate::figures::{distinct, frame};
use crate::fmt;
use crate::run::RunView;
use crate::shown_value::ShownValue;

/// Exponent of throughput over I/Os in flight below which throughput is saturated: twice as many in
/// flight give less than 19 % more.
pub(super) const GROWS: f64 = 0.25;

/// Compared statistics.
const PANELS: [(&str, IoQuantity); 4] = [
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
        && plain(gpu.io) == plain(host.io)
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
    let io = IoSpec { depth: 1, batch: 1, threads: 1, ..*job.io };
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
    let depths: Vec<u32> =
        gpu.iter().map(|j| j.io.depth).collect::<BTreeSet<_>>().into_iter().collect();
    let threads: Vec<u32> =
        gpu.iter().map(|j| j.io.threads).collect::<BTreeSet<_>>().into_iter().collect();
    let panel = |asked: IoQuantity| -> Vec<Vec<PairedGap>> {
        let cell = |t: u32, d: u32| {
            let job = gpu.iter().find(|j| (j.io.threads, j.io.depth) == (t, d));
            job.map_or_else(PairedGap::default, |job| gap(job, jobs, asked))
        };
        threads.iter().map(|&t| depths.iter().map(|&d| cell(t, d)).collect()).collect()
    };
    let panels: Vec<(String, Vec<Vec<PairedGap>>)> =
        PANELS.iter().map(|(name, asked)| ((*name).to_owned(), panel(*asked))).collect();
    let cells = || panels.iter().flat_map(|p| p.1.iter().flatten());
    // A single cell is not a map; the stages show it.
    if cells().filter(|g| g.cell.value.is_some()).count() < 2 * PANELS.len() {
        return None;
    }
    let name = first.memory();
    let staging = first.staging();
    let io = first.io;
    let kind = match (io.stage, io.engine) {
        (Some(stage), _) => stage.to_string(),
        (None, engine) => engine.to_string(),
    };
    let at = first.flow.by.at();
    Some(
        frame(
            run,
            (SUITE, ""),
            format!(
                "storage-gap-{name}-store{}-{at}-{}-{}-{}-{}-{}-{kind}",
                first.store(),
                io.engine,
                io.order,
                io.op,
                first.block(),
                io.cache
            ),
            format!("{name} minus host: latency of {}, {staging}", first.work()),
        )
        .finding(match (threads.first(), depths.first()) {
            (Some(t), Some(d)) => {
                let lead = format!("With {} at depth {d}", fmt::threads(*t));
                finding(&lead, &name, &panels, "us")
            }
            _ => String::new(),
        })
        .draw(GapsBody {
            quantity: "latency".into(),
            unit: "us".into(),
            base: "host".into(),
            other: name,
            row_axis: "threads".into(),
            col_axis: "depth".into(),
            rows: threads.iter().map(u32::to_string).collect(),
            cols: depths.iter().map(u32::to_string).collect(),
            panels,
        }),
    )
}

/// The median of the differences of alternating samples, with its interval, which is widened by
/// their autocorrelation.
fn gap(job: &IoEntry<'_, '_>, jobs: &[IoEntry<'_, '_>], asked: IoQuantity) -> PairedGap {
    let case = Some(job.entry.case.clone());
    let absent = |why: String| PairedGap {
        cell: FigureCell { absent: Some(why), case: case.clone(), ..FigureCell::default() },
        ..PairedGap::default()
    };
    if let crate::run::EntryState::Absent(why) = job.entry.state {
        return absent(why.to_owned());
    }
    let Some(host) = host_of(job, jobs) else {
        return absent("the same I/O with host memory is not in this run".into());
    };
    if let crate::run::EntryState::Absent(why) = host.entry.state {
        return absent(format!("the same I/O with host memory has no figure: {why}"));
    }
    let apart: Vec<f64> =
        job.values(asked).into_iter().zip(host.values(asked)).map(|(a, b)| a - b).collect();
    let visits = job.series().map_or(&[][..], |s| &s.visits);
    let Some(shown) = ShownValue::new(&CaseTimes::from_values(&apart, visits)) else {
        return absent("no pair of samples has latencies".into());
    };
    // A difference of few pairs may be due to chance.
    let is_zero = shown.interval.is_none_or(|i| i.low <= 0.0 && i.high >= 0.0);
    let saturated = saturated(job, jobs)
        .map(|why| format!("{}: {why}", job.memory()))
        .or_else(|| saturated(&host, jobs).map(|why| format!("host: {why}")));
    PairedGap {
        cell: FigureCell {
            value: Some(shown.value),
            half_width: shown.half_width(),
            few: shown.few_samples(),
            case,
            ..FigureCell::default()
        },
        base: host.value(asked),
        other: job.value(asked),
        pairs: apart.len(),
        is_zero,
        saturated,
    }
}

/// Reason if the latency of a case is that of a queue: throughput increased little from the next
/// fewer in flight. `None` if it increased, or if there is no such case.
pub(super) fn saturated(job: &IoEntry<'_, '_>, jobs: &[IoEntry<'_, '_>]) -> Option<String> {
    let here = job.value(IoQuantity::Iops)?;
    let alike = |other: &&IoEntry| {
        let plain = |io: &IoSpec| IoSpec { depth: 1, batch: 1, threads: 1, ..*io };
        plain(other.io) == plain(job.io)
            && (other.flow.src, other.flow.dst, other.flow.bytes)
                == (job.flow.src, job.flow.dst, job.flow.bytes)
    };
    let lower = |fixed: fn(&IoSpec) -> u32, varied: fn(&IoSpec) -> u32| {
        jobs.iter()
            .filter(alike)
            .filter(|o| fixed(o.io) == fixed(job.io) && varied(o.io) < varied(job.io))
            .max_by_key(|o| varied(o.io))
            .copied()
    };
    let less = [
        (lower(|io| io.threads, |io| io.depth), "depth"),
        (lower(|io| io.depth, |io| io.threads), "workers"),
    ];
    less.into_iter().find_map(|(other, what)| {
        let other = other?;
        let more = job.io.slots() as f64 / other.io.slots() as f64;
        let ratio = here / other.value(IoQuantity::Iops)?;
        queue_text(more, ratio, what)
    })
}

/// Why throughput is saturated that grew by `ratio` with `more` times as many in flight; `None` if it is not.
pub(super) fn queue_text(more: f64, ratio: f64, what: &str) -> Option<String> {
    let power = ratio.ln() / more.ln();
    (power < GROWS).then(|| {
        format!(
            "{} times the {what} {} the IOPS by {}",
            fmt::number(more).trim_end_matches(".00").trim_end_matches(".0"),
            if ratio >= 1.0 { "raise" } else { "lower" },
            fmt::percent((ratio - 1.0).abs())
        )
    })
}

/// The difference in the first cell of each panel, introduced by `lead`, and the marks of all cells.
pub(super) fn finding(
    lead: &str,
    name: &str,
    panels: &[(String, Vec<Vec<PairedGap>>)],
    unit: &str,
) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (statistic, rows) in panels {
        let first = rows.first().and_then(|r| r.first()).filter(|g| g.cell.value.is_some());
        let Some(gap) = first else { continue };
        let value = gap.cell.value.unwrap_or(0.0);
        parts.push(match gap.is_zero {
            true => format!("no difference in {statistic} distinguishable from zero"),
            false => format!(
                "{}{} {unit} in {statistic}",
                if value >= 0.0 { "+" } else { "" },
                gap.cell.number_text().unwrap_or_default()
            ),
        });
    }
    let all = || panels.iter().flat_map(|p| p.1.iter().flatten());
    let measured = all().filter(|g| g.cell.value.is_some()).count();
    let zero = all().filter(|g| g.is_zero).count();
    // Saturation applies to a cell, for all statistics.
    let first = panels.first().map(|p| &p.1);
    let saturated = first.into_iter().flatten().flatten().filter(|g| g.saturated.is_some()).count();
    let cells = first.into_iter().flatten().flatten().filter(|g| g.cell.value.is_some()).count();
    let zero = match zero {
        0 => format!("All {measured} differences are distinguishable from zero."),
        n => format!("{n} of {measured} differences are not distinguishable from zero."),
    };
    let queues = match saturated {
        0 => String::new(),
        n => format!(
            " In {n} of {cells} cells throughput no longer grows: there the difference measures \
             throughput, not the copy."
        ),
    };
    format!("{lead} {name} adds {}. {zero}{queues}", fmt::list(&parts))
}
