//! IOPS and bandwidth over engine, depth and workers.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, IoCache, IoOp, IoOrder, IoSpec, MemKind};

use super::{IoEntry, IoQuantity, LabelPart, SUITE, files_label, labels};
use crate::figure::{BetterWhen, CurvesBody, Figure, FigureCell, SheetColumn};
use crate::figures::pivot::{GBS, US, least, most};
use crate::figures::{frame, lines, sorted};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

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
    let mut figures: Vec<Figure> =
        kinds.iter().filter_map(|(key, jobs)| curves(run, *key, jobs)).collect();
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

fn main_cell(run: &RunView, job: &IoEntry<'_, '_>, asked: IoQuantity) -> FigureCell {
    if asked == IoQuantity::Rate { job.rate(run) } else { job.cell(asked) }
}

fn curves(run: &RunView, key: RateKey, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    // The usual quantity for such work.
    let (asked, unit) = match key.1 {
        IoOrder::Rand => (IoQuantity::Iops, "IOPS"),
        IoOrder::Seq => (IoQuantity::Rate, "GB/s"),
    };
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
    let best = jobs.iter().filter_map(|j| Some((main_cell(run, j, asked).value?, j)));
    let (best, by) = most(best)?;
    let (best, how) = (fmt::number(best), how(by));
    let finding =
        format!("{best} {unit} at most{how}.{}", plateau(jobs, asked).unwrap_or_default());
    let title = format!("{}, by I/Os in flight a worker", title(jobs));
    let curves = CurvesBody::new("depth", (unit, BetterWhen::Higher), lines(points));
    Some(frame(run, (SUITE, ""), id("depth", key), title).finding(finding).draw(curves))
}

/// ` by io_uring at depth 128 with 1 thread`.
fn how(job: &IoEntry<'_, '_>) -> String {
    let IoSpec { engine, depth, threads, .. } = job.io;
    let engine = super::engine_label(engine);
    format!(" by {engine} at depth {depth} with {}", fmt::threads(threads))
}

/// The depth from which one worker of the best engine gains little.
fn plateau(jobs: &[IoEntry<'_, '_>], asked: IoQuantity) -> Option<String> {
    let (most, best) = most(jobs.iter().filter_map(|j| Some((j.value(asked)?, j))))?;
    let mut alike: Vec<&IoEntry> = jobs.iter().filter(|j| siblings(j, best)).collect();
    alike.sort_by_key(|j| j.io.depth);
    // Two depths show a difference, but not where it begins.
    if sorted(alike.iter().map(|j| j.io.depth)).len() < 3 {
        return None;
    }
    let at = alike.iter().find(|j| super::gaps::saturated(j, jobs).is_some())?;
    let (depth, reached) = (at.io.depth, at.value(asked)? / most);
    Some(match reached < 0.995 {
        true => {
            let share = fmt::percent(reached);
            format!(
                " Throughput saturates near depth {depth}: {share} of the best is reached there."
            )
        }
        false => format!(" Throughput saturates at depth {depth}."),
    })
}

/// Whether two cases differ only in depth and batch.
fn siblings(a: &IoEntry<'_, '_>, b: &IoEntry<'_, '_>) -> bool {
    let plain = |job: &IoEntry| IoSpec { depth: 1, batch: 1, ..job.io };
    plain(a) == plain(b) && (a.flow.src, a.flow.dst) == (b.flow.src, b.flow.dst)
}

/// All statistics of each case.
fn sheet(run: &RunView, id: &str, title: String, mut jobs: Vec<IoEntry<'_, '_>>) -> Option<Figure> {
    let kind = |j: &IoEntry| (j.io.order, j.io.op, j.io.cache);
    let same = jobs.iter().all(|j| jobs.first().is_some_and(|first| kind(j) == kind(first)));
    let random = jobs.iter().all(|j| j.io.order == IoOrder::Rand);
    let (first, unit) = match random {
        true => (IoQuantity::FirstIops, "IOPS"),
        false => (IoQuantity::FirstRate, "GB/s"),
    };
    jobs.sort_by_key(|j| {
        let IoSpec { order, op, cache, engine, threads, depth, .. } = j.io;
        (j.store(), order, j.block(), op, cache, engine, threads, depth)
    });
    let (more, less) = (BetterWhen::Higher, BetterWhen::Lower);
    let mut quantities = vec![
        (IoQuantity::Iops, "last done", ("IOPS", more)),
        (IoQuantity::Rate, "last done", GBS),
        (first, "first done", (unit, more)),
        (IoQuantity::Min, "min", US),
        (IoQuantity::Quantile(0.5), "p50", US),
        (IoQuantity::Quantile(0.99), "p99", US),
        (IoQuantity::Quantile(0.999), "p99.9", US),
        (IoQuantity::Max, "max", US),
        (IoQuantity::Cpu, "CPU an I/O", US),
        (IoQuantity::Requests, "requests an I/O", ("", less)),
    ];
    quantities.retain(|(asked, ..)| jobs.iter().any(|job| job.cell(*asked).value.is_some()));
    let shown = &jobs[..jobs.len().min(MAX_ROWS)];
    let cells = |job: &IoEntry| quantities.iter().map(|q| main_cell(run, job, q.0)).collect();
    let rows = shown.iter().zip(labels(shown, &[])).map(|(job, label)| (label, cells(job)));
    // Different kinds of work have no common best.
    let columns = quantities.iter().map(|&(_, name, (unit, better))| match same {
        true => SheetColumn::new(name, (unit, better)),
        false => SheetColumn::neutral(name, unit),
    });
    let more = match jobs.len() - shown.len() {
        0 => String::new(),
        n => format!(" {n} more are in the CSV."),
    };
    let finding = format!(
        "Last done: all I/Os over the time until the last worker ended; first done: I/Os of all workers \
         until the first one ended. Latencies of all samples together.{}{more}",
        processor(&jobs)
    );
    frame(run, (SUITE, ""), id, title).finding(finding).draw_rows("case", columns, rows)
}

/// Minimum and maximum CPU time per I/O.
fn processor(jobs: &[IoEntry<'_, '_>]) -> String {
    let all = || jobs.iter().filter_map(|j| Some((j.value(IoQuantity::Cpu)?, j)));
    let (Some(low), Some(high)) = (least(all()), most(all())) else { return String::new() };
    if low.0 == high.0 || low.0 <= 0.0 {
        return String::new();
    }
    let [(least, by_least), (most, by_most)] =
        [low, high].map(|(us, job)| (fmt::number(us), how(job)));
    format!(" An I/O costs {least} us of CPU time at least{by_least} and {most} at most{by_most}.")
}

/// The same I/O with pageable and with huge-page memory.
pub(super) fn pages(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let memory = |job: &IoEntry| job.flow.io_ends().1;
    let twin = |job: &IoEntry| {
        let ends = |job: &IoEntry| (job.io, job.block(), memory(job).unit, job.store());
        let same = |o: &&IoEntry| ends(o) == ends(job) && memory(o).mem == MemKind::Huge;
        jobs.iter().find(same).filter(|twin| twin.series().is_some())
    };
    let paged = |j: &&IoEntry| memory(j).mem == MemKind::Paged && j.series().is_some();
    let pairs: Vec<(&IoEntry, &IoEntry)> =
        jobs.iter().filter(paged).filter_map(|j| Some((j, twin(j)?))).collect();
    let small: Vec<IoEntry> = pairs.iter().map(|p| *p.0).collect();
    let row = |((paged, huge), label): (&(&IoEntry, &IoEntry), String)| {
        let [before, after] = [paged, huge].map(|job| job.cell(IoQuantity::Requests));
        let cells = vec![paged.rate(run), huge.rate(run), gain(paged, huge), before, after];
        (if small.len() == 1 { paged.work() } else { label }, cells)
    };
    let rows: Vec<(String, Vec<FigureCell>)> =
        pairs.iter().zip(labels(&small, &[])).map(row).collect();
    let gains = rows.iter().zip(&small);
    let gains = gains.filter_map(|((_, cells), job)| Some((cells.get(2)?.value?, (cells, job))));
    let (cells, job) = most(gains)?.1;
    let value = |nth: usize| cells.get(nth).and_then(|cell| cell.value);
    // Adjacent blocks, which the block layer merges into one request, are different.
    let requests = match value(3).zip(value(4)).filter(|(a, b)| a > b) {
        Some((a, b)) => {
            let [a, b] = [a, b].map(fmt::number);
            format!(", as {a} requests of the device an I/O become {b}")
        }
        None => String::new(),
    };
    let (times, work) = (cells.get(2)?.number_text()?, job.work());
    let (more, less) = (BetterWhen::Higher, BetterWhen::Lower);
    let columns = [
        SheetColumn::new("small pages", GBS),
        SheetColumn::new("huge pages", GBS),
        SheetColumn::new("huge / small", ("", more)),
        SheetColumn::new("requests an I/O, small", ("", less)),
        SheetColumn::new("requests an I/O, huge", ("", less)),
    ];
    let title = "What huge pages do: the same I/O with memory of small and of huge pages";
    frame(run, (SUITE, "* > * by * x 1MiB"), "storage-pages", title)
        .finding(format!(
            "Most: {times} times the rate for {work}{requests}. A block on small pages is scattered over \
             memory, and a request holds a limited number of segments."
        ))
        .draw_rows("case", columns, rows)
}

/// The ratio of two rates, from alternating samples.
fn gain(a: &IoEntry<'_, '_>, b: &IoEntry<'_, '_>) -> FigureCell {
    let mut ratios = a.paired(b, IoQuantity::Rate, |a, b| b / a);
    ratios.retain(|ratio| ratio.is_finite());
    let case = Some(b.entry.case.clone());
    FigureCell { case, ..FigureCell::sampled(a.entry, &ratios, None) }
}

/// Several files, stores or GPUs at once, compared with the sum of the single rates.
pub(super) fn at_once(run: &RunView, jobs: &[IoEntry<'_, '_>]) -> Option<Figure> {
    let several = run
        .entries
        .iter()
        .filter(|e| e.case.timed.len() > 1 && e.case.timed.iter().all(|f| f.by.io().is_some()))
        .filter(|e| !super::is_grid_only(e));
    let bar = |entry: &RunEntry| {
        let flows = &entry.case.timed;
        let alone: Option<Vec<f64>> =
            flows.iter().map(|f| jobs.iter().find(|j| j.flow == f)?.rate(run).value).collect();
        let ceiling = alone.map(|rates| rates.iter().sum::<f64>());
        (ends(flows), FigureCell { ceiling, ..run.cell(entry, CaseQuantity::Payload) })
    };
    let bars: Vec<(String, FigureCell)> = several.map(bar).collect();
    if bars.iter().all(|(_, cell)| cell.value.is_none()) {
        return None;
    }
    let shares = bars.iter().filter_map(|(label, cell)| Some((cell.share_of_ceiling()?, label)));
    let share = least(shares).map_or(String::new(), |(share, label)| {
        format!(" The least of what each gets alone: {} ({label}).", fmt::percent(share))
    });
    frame(run, (SUITE, ""), "storage-at-once", "Several at once, sum")
        .finding(format!("The ceiling is the sum of what each gets alone.{share}"))
        .draw_bars(GBS, bars)
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
        let (order, op, depth) = (super::order_label(io.order), super::op_label(io.op), io.depth);
        let files = files_label(io.files).map_or(String::new(), |files| format!(", {files}"));
        let stage = io.stage.map_or(String::new(), |stage| format!(", {stage}"));
        let (block, threads) = (f.bytes, fmt::threads(io.threads));
        Some(format!(", {order} {op} of {block}{files}{stage}, {threads} each, depth {depth}"))
    });
    format!("{ends}{}", work.unwrap_or_default())
}
