//! IOPS and bandwidth over engine, depth and workers.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, CaseTimes, IoCache, IoOp, IoOrder, IoSpec, MemKind};

use super::{IoEntry, IoQuantity, LabelPart, SUITE, labels};
use crate::figure::{BetterWhen, CurvesBody, Figure, FigureCell, SheetBody, SheetColumn};
use crate::figures::{frame, lines, values};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

/// Contents of one figure.
type RateKey = (Bytes, IoOrder, IoOp, IoCache);

/// Maximum rows of a table; the CSV has all.
const MAX_ROWS: usize = 64;

/// I/O between host memory and files: for each kind of work curves over the depth, and a table.
pub(super) fn figures(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Vec<Figure> {
    let mut kinds: BTreeMap<RateKey, Vec<IoEntry>> = BTreeMap::new();
    for job in jobs.iter().filter(|j| j.gpu().is_none()) {
        kinds.entry((job.block(), job.io.order, job.io.op, job.io.cache)).or_default().push(*job);
    }
    let mut figures = Vec::new();
    for (key, jobs) in &kinds {
        figures.extend(curves(run, *key, jobs));
    }
    // Kinds with few cases share a table.
    let mut few: Vec<IoEntry> = Vec::new();
    for (key, jobs) in &kinds {
        let measured: Vec<IoEntry> =
            jobs.iter().filter(|j| j.series().is_some()).copied().collect();
        if measured.len() < OWN_TABLE {
            few.extend(measured);
        } else {
            let heading = format!("{}: every figure", title(&measured));
            figures.extend(sheet(run, &id("all", *key), heading, measured));
        }
    }
    let heading = "Files and host memory: every figure of other I/O".to_owned();
    figures.extend(sheet(run, "storage-all-other", heading, few));
    figures
}

/// Minimum number of measured cases for a separate table.
const OWN_TABLE: usize = 4;

fn id(what: &str, (block, order, op, cache): RateKey) -> String {
    format!("storage-{what}-{order}-{op}-{block}-{cache}")
}

fn title(jobs: &[IoEntry<'_, '_>]) -> String {
    let Some(first) = jobs.first() else { return String::new() };
    let cache = match first.io.cache {
        IoCache::Direct => "O_DIRECT",
        IoCache::Cached => "from the page cache",
        IoCache::Cold => "through a cold page cache",
    };
    fmt::sentence(&format!("{}, {cache}", first.work()))
}

/// The usual quantity for such work.
fn quantity(key: RateKey) -> (IoQuantity, &'static str) {
    if key.1 == IoOrder::Rand { (IoQuantity::Iops, "IOPS") } else { (IoQuantity::Rate, "GB/s") }
}

fn main_cell(run: &RunView, job: &IoEntry<'_, '_>, asked: IoQuantity) -> FigureCell {
    if asked == IoQuantity::Rate { job.rate(run) } else { job.cell(asked) }
}

fn curves(run: &RunView, key: RateKey, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let (asked, unit) = quantity(key);
    // Lines with one point each add nothing to the table.
    let measured = || jobs.iter().filter(|j| j.series().is_some());
    if !measured().any(|a| measured().any(|b| siblings(a, b) && a.io.depth != b.io.depth)) {
        return None;
    }
    // If a depth was measured with several batches, the line uses the largest.
    let larger = |job: &IoEntry, other: &IoEntry| {
        siblings(job, other) && job.io.depth == other.io.depth && other.io.batch > job.io.batch
    };
    let shown: Vec<IoEntry> =
        jobs.iter().filter(|j| !jobs.iter().any(|o| larger(j, o))).copied().collect();
    let names = labels(&shown, &[LabelPart::Depth, LabelPart::Batch]);
    let points = shown
        .iter()
        .zip(names)
        .map(|(job, name)| (name, f64::from(job.io.depth), main_cell(run, job, asked)));
    let lines = lines(points);
    let best = jobs
        .iter()
        .filter_map(|j| Some((main_cell(run, j, asked).value?, j)))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let finding = format!(
        "{} at most{}.{}",
        with_unit(best.0, unit),
        how(best.1),
        plateau(jobs, asked).unwrap_or_default()
    );
    Some(
        frame(
            run,
            (SUITE, ""),
            id("depth", key),
            format!("{}, by I/Os in flight a worker", title(jobs)),
        )
        .finding(finding)
        .draw(CurvesBody::new("depth", (unit, BetterWhen::Higher), lines)),
    )
}

/// `93741 IOPS`, `2.91 GB/s`.
fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", fmt::number(value))
}

/// ` by io_uring at depth 128 with 1 thread`.
fn how(job: &IoEntry<'_, '_>) -> String {
    let IoSpec { engine, depth, threads, .. } = *job.io;
    let engine = super::engine_label(engine);
    format!(" by {engine} at depth {depth} with {}", fmt::threads(threads))
}

/// The depth from which one worker of the best engine gains little.
fn plateau(jobs: &[IoEntry<'_, '_>], asked: IoQuantity) -> Option<String> {
    let best = jobs
        .iter()
        .filter_map(|j| Some((j.value(asked)?, j)))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let mut alike: Vec<&IoEntry> = jobs.iter().filter(|j| siblings(j, best.1)).collect();
    alike.sort_by_key(|j| j.io.depth);
    let mut depths: Vec<u32> = alike.iter().map(|j| j.io.depth).collect();
    depths.dedup();
    // Two depths show a difference, but not where it begins.
    if depths.len() < 3 {
        return None;
    }
    let at = alike.iter().find(|j| super::gaps::saturated(j, jobs).is_some())?;
    let reached = at.value(asked)? / best.0;
    Some(match reached < 0.995 {
        true => format!(
            " Throughput saturates near depth {}: {} of the best is reached there.",
            at.io.depth,
            fmt::percent(reached)
        ),
        false => format!(" Throughput saturates at depth {}.", at.io.depth),
    })
}

/// Whether two cases differ only in depth and batch.
fn siblings(a: &IoEntry<'_, '_>, b: &IoEntry<'_, '_>) -> bool {
    let plain = |job: &IoEntry| IoSpec { depth: 1, batch: 1, ..*job.io };
    plain(a) == plain(b) && (a.flow.src, a.flow.dst) == (b.flow.src, b.flow.dst)
}

fn column(name: &str, unit: &str, better: BetterWhen) -> SheetColumn {
    SheetColumn { name: name.into(), unit: unit.into(), better }
}

/// All statistics of each case.
fn sheet(run: &RunView, id: &str, title: String, mut jobs: Vec<IoEntry<'_, '_>>) -> Option<Figure> {
    let alike = |a: &IoEntry, b: &IoEntry| {
        (a.io.order, a.io.op, a.io.cache) == (b.io.order, b.io.op, b.io.cache)
    };
    let same = jobs.iter().all(|j| jobs.first().is_some_and(|first| alike(j, first)));
    let random = jobs.iter().all(|j| j.io.order == IoOrder::Rand);
    let (first, unit) =
        if random { (IoQuantity::FirstIops, "IOPS") } else { (IoQuantity::FirstRate, "GB/s") };
    jobs.sort_by_key(|j| {
        (
            j.store(),
            j.io.order,
            j.block(),
            j.io.op,
            j.io.cache,
            j.io.engine,
            j.io.threads,
            j.io.depth,
        )
    });
    let mut quantities = vec![
        (IoQuantity::Iops, column("last done", "IOPS", BetterWhen::Higher)),
        (IoQuantity::Rate, column("last done", "GB/s", BetterWhen::Higher)),
        (first, column("first done", unit, BetterWhen::Higher)),
        (IoQuantity::Min, column("min", "us", BetterWhen::Lower)),
        (IoQuantity::Quantile(0.5), column("p50", "us", BetterWhen::Lower)),
        (IoQuantity::Quantile(0.99), column("p99", "us", BetterWhen::Lower)),
        (IoQuantity::Quantile(0.999), column("p99.9", "us", BetterWhen::Lower)),
        (IoQuantity::Max, column("max", "us", BetterWhen::Lower)),
        (IoQuantity::Cpu, column("CPU an I/O", "us", BetterWhen::Lower)),
        (IoQuantity::Requests, column("requests an I/O", "", BetterWhen::Lower)),
    ];
    quantities.retain(|(asked, _)| jobs.iter().any(|job| job.cell(*asked).value.is_some()));
    let shown = &jobs[..jobs.len().min(MAX_ROWS)];
    let rows: Vec<(String, Vec<FigureCell>)> = shown
        .iter()
        .zip(labels(shown, &[]))
        .map(|(job, label)| {
            (label, quantities.iter().map(|(asked, _)| main_cell(run, job, *asked)).collect())
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    // Different kinds of work have no common best.
    let column = |column: SheetColumn| match same {
        true => column,
        false => SheetColumn { better: BetterWhen::Neither, ..column },
    };
    let more = match jobs.len() - shown.len() {
        0 => String::new(),
        n => format!(" {n} more are in the CSV."),
    };
    Some(frame(run, (SUITE, ""), id, title).finding(format!(
            "Last done: all I/Os over the time until the last worker ended; first done: \
             I/Os of all workers until the first one ended. Latencies of all samples together.{}{more}",
            processor(&jobs)
        )).draw(SheetBody {
            row_axis: "case".into(),
            columns: quantities.into_iter().map(|(_, c)| column(c)).collect(),
            rows,
        }))
}

/// Minimum and maximum CPU time per I/O.
fn processor(jobs: &[IoEntry<'_, '_>]) -> String {
    let mut all: Vec<(f64, &IoEntry)> =
        jobs.iter().filter_map(|j| Some((j.value(IoQuantity::Cpu)?, j))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(least), Some(most)) = (all.first(), all.last()) else { return String::new() };
    if least.0 == most.0 || least.0 <= 0.0 {
        return String::new();
    }
    format!(
        " An I/O costs {} us of CPU time at least{} and {} at most{}.",
        fmt::number(least.0),
        how(least.1),
        fmt::number(most.0),
        how(most.1)
    )
}

/// The same I/O with pageable and with huge-page memory.
pub(super) fn pages(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let memory = |job: &IoEntry| job.flow.io_ends().1;
    let twin = |job: &IoEntry| {
        jobs.iter()
            .find(|other| {
                other.io == job.io
                    && other.block() == job.block()
                    && memory(other).mem == MemKind::Huge
                    && memory(other).unit == memory(job).unit
                    && other.store() == job.store()
            })
            .copied()
    };
    let pairs: Vec<(IoEntry, IoEntry)> = jobs
        .iter()
        .filter(|j| memory(j).mem == MemKind::Paged && j.series().is_some())
        .filter_map(|j| Some((*j, twin(j).filter(|t| t.series().is_some())?)))
        .collect();
    let small: Vec<IoEntry> = pairs.iter().map(|p| p.0).collect();
    let rows: Vec<(String, Vec<FigureCell>)> = pairs
        .iter()
        .zip(labels(&small, &[]))
        .map(|((paged, huge), label)| {
            let cells = vec![
                paged.rate(run),
                huge.rate(run),
                gain(paged, huge),
                paged.cell(IoQuantity::Requests),
                huge.cell(IoQuantity::Requests),
            ];
            let text = if small.len() == 1 { paged.work() } else { label };
            (text, cells)
        })
        .collect();
    let best = rows
        .iter()
        .zip(&pairs)
        .filter_map(|((_, cells), pair)| Some((cells.get(2)?.value?, cells, pair.0)))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    // Adjacent blocks, which the block layer merges into one request, are different.
    let requests = match (best.1.get(3).and_then(|c| c.value), best.1.get(4).and_then(|c| c.value))
    {
        (Some(a), Some(b)) if a > b => format!(
            ", as {} requests of the device an I/O become {}",
            fmt::number(a),
            fmt::number(b)
        ),
        _ => String::new(),
    };
    Some(
        frame(
            run,
            (SUITE, "* > * by * x 1MiB"),
            "storage-pages",
            "What huge pages do: the same I/O with memory of small and of huge pages",
        )
        .finding(format!(
            "Most: {} times the rate for {}{requests}. A block on small pages is scattered over \
             memory, and the device takes only so many pieces in one request.",
            best.1.get(2)?.number_text()?,
            best.2.work()
        ))
        .draw(SheetBody {
            row_axis: "case".into(),
            columns: vec![
                column("small pages", "GB/s", BetterWhen::Higher),
                column("huge pages", "GB/s", BetterWhen::Higher),
                column("huge / small", "", BetterWhen::Higher),
                column("requests an I/O, small", "", BetterWhen::Lower),
                column("requests an I/O, huge", "", BetterWhen::Lower),
            ],
            rows,
        }),
    )
}

/// The ratio of two rates, from alternating samples.
fn gain(a: &IoEntry<'_, '_>, b: &IoEntry<'_, '_>) -> FigureCell {
    let ratios: Vec<f64> = a
        .values(IoQuantity::Rate)
        .into_iter()
        .zip(b.values(IoQuantity::Rate))
        .map(|(a, b)| b / a)
        .filter(|r| r.is_finite())
        .collect();
    let visits = a.series().map_or(&[][..], |s| &s.visits);
    FigureCell::derived(b.entry, &CaseTimes::from_values(&ratios, visits), None)
}

/// Several files, stores or GPUs at once, compared with the sum of the single rates.
pub(super) fn at_once(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let several = run
        .entries
        .iter()
        .filter(|e| e.case.timed.len() > 1 && e.case.timed.iter().all(|f| f.by.io().is_some()))
        .filter(|e| !super::is_grid_only(e));
    let mut shares = Vec::new();
    let bars: Vec<(String, FigureCell)> = several
        .map(|entry| {
            let flows = &entry.case.timed;
            let alone: Option<Vec<f64>> =
                flows.iter().map(|f| jobs.iter().find(|j| j.flow == f)?.rate(run).value).collect();
            let ceiling = alone.map(|rates| rates.iter().sum::<f64>());
            let cell = FigureCell { ceiling, ..run.cell(entry, CaseQuantity::Payload) };
            let label = ends(flows);
            if let (Some(value), Some(ceiling)) = (cell.value, ceiling.filter(|c| *c > 0.0)) {
                shares.push((value / ceiling, label.clone()));
            }
            (label, cell)
        })
        .collect();
    if values(bars.iter().map(|b| &b.1)).is_empty() {
        return None;
    }
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let share = shares.first().map_or(String::new(), |(share, label)| {
        format!(" The least of what each gets alone: {} ({label}).", fmt::percent(*share))
    });
    frame(run, (SUITE, ""), "storage-at-once", "Several at once, sum")
        .finding(format!("The ceiling is the sum of what each gets alone.{share}"))
        .draw_bars(("GB/s", BetterWhen::Higher), bars)
}

/// `store0 > gpu0, store1 > gpu1, sequential reads of 1MiB, shared file, pipelined-pinned, 2 threads,
/// depth 8`: every part in which cases of several flows may differ.
fn ends(flows: &[pathline_schema::Flow]) -> String {
    let mut texts: Vec<(String, usize)> = Vec::new();
    for flow in flows {
        let text = format!("{} > {}", flow.src.unit, flow.dst.unit);
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, n)) => *n += 1,
            None => texts.push((text, 1)),
        }
    }
    let text = |(text, n): (String, usize)| if n > 1 { format!("{n} x {text}") } else { text };
    let ends = texts.into_iter().map(text).collect::<Vec<_>>().join(", ");
    let work = flows.first().and_then(|f| {
        let io = f.by.io()?;
        let (order, op) = (super::order_label(io.order), super::op_label(io.op));
        let stage = io.stage.map_or(String::new(), |stage| format!(", {stage}"));
        let (files, threads) = match io.files {
            pathline_schema::IoFiles::Shared => ("", io.threads),
            pathline_schema::IoFiles::Own => (", a file a worker", io.threads),
            pathline_schema::IoFiles::Each => (", an object a block", io.threads),
        };
        Some(format!(
            ", {order} {op} of {}{files}{stage}, {} each, depth {}",
            f.bytes,
            fmt::threads(threads),
            io.depth
        ))
    });
    format!("{ends}{}", work.unwrap_or_default())
}
