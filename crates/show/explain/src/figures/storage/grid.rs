//! Figures of suite storage-grid: the same I/O to host memory and to sets of GPUs, over workers and depth.

mod arms;

use pathline_schema::{
    Bytes, Case, Flow, IoCache, IoFiles, IoOp, IoOrder, IoSpec, IoStage, SuiteId, Unit,
};

use super::{IoEntry, IoQuantity, files_label, gaps, op_label, order_label};
use crate::figure::{BetterWhen, ChartLine, CurvesBody, Figure, FigureCell, GapsBody, SheetColumn};
use crate::figures::pivot::most;
use crate::figures::{SuiteFindings, distinct, frame, lines, sorted};
use crate::fmt;
use crate::measured_cases::measured;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::StorageGrid;

/// Share of the best rate that counts as reached.
const ENOUGH: f64 = 0.95;

/// Figures of the grid.
pub(in crate::figures) fn find(run: &RunView) -> SuiteFindings {
    let cells: Vec<GridCase> = run.suite(SUITE).filter_map(GridCase::new).collect();
    if cells.is_empty() {
        return SuiteFindings::default();
    }
    let grid = CaseGrid { run, cells };
    let mut figures = grid.rates_by_gpus();
    let needs = grid.needs();
    figures.extend(grid.needs_figures(&needs));
    figures.extend(grid.works().into_iter().flat_map(|work| grid.gaps(work)).flatten());
    figures.extend([grid.far(), grid.cached(), grid.copies()].into_iter().flatten());
    let sentences = [grid.needs_sentence(&needs), grid.sets_sentence()];
    SuiteFindings::new(figures, sentences)
}

/// The I/O of a case to host memory, or to one or several GPUs that share its workers.
#[derive(Clone)]
struct GridCase<'b, 'a> {
    job: IoEntry<'b, 'a>,
    /// GPUs at the end, ascending; empty of host memory.
    gpus: Vec<u32>,
}

/// What the cases of a heat map have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct GridWork {
    /// The store of the files.
    store: u32,
    /// Sequential or random.
    order: IoOrder,
    /// Reads or writes.
    op: IoOp,
    /// Bytes of an I/O.
    block: Bytes,
    /// One file, or one for each worker.
    files: IoFiles,
    /// Use of the page cache.
    cache: IoCache,
    /// NUMA domain of the workers' cores.
    at: Unit,
}

impl GridWork {
    /// `sequential reads of 1MiB, shared file`.
    fn text(&self) -> String {
        let files = files_label(self.files).unwrap_or("shared file");
        let (order, op) = (order_label(self.order), op_label(self.op));
        format!("{order} {op} of {}, {files}", self.block)
    }

    /// Unit of throughput of such I/O, and its value per GB/s.
    fn unit(&self) -> (&'static str, f64) {
        match self.order {
            IoOrder::Seq => ("GB/s", 1.0),
            IoOrder::Rand => ("kIOPS", 1e6 / self.block.as_f64()),
        }
    }
}

/// A set of GPUs and the staging of their blocks; no GPU and no staging is host memory.
type GridEnd = (Vec<u32>, Option<IoStage>);

/// `2 GPUs, blocking-pinned`, `gpu0, blocking-pinned`, `host`.
fn end_text(gpus: &[u32], stage: Option<IoStage>) -> String {
    let who = match gpus {
        [] => return "host".to_owned(),
        [one] => format!("gpu{one}"),
        several => format!("{} GPUs", several.len()),
    };
    stage.map_or(who.clone(), |stage| format!("{who}, {stage}"))
}

/// The first flow of a case, the I/O with the workers of all flows, and the GPUs; `None` unless all flows
/// do the same I/O to different GPUs.
fn shape(case: &Case) -> Option<(&Flow, IoSpec, Vec<u32>)> {
    let flow = case.timed.first().filter(|_| case.background.is_empty())?;
    let first = *flow.by.io()?;
    let alike =
        |f: &Flow| f.by == flow.by && f.bytes == flow.bytes && f.io_ends().0 == flow.io_ends().0;
    let ends = sorted(case.timed.iter().map(|f| f.io_ends().1.unit));
    if !case.timed.iter().all(alike) || ends.len() != case.timed.len() {
        return None;
    }
    let gpus: Vec<u32> = ends.iter().filter_map(|unit| unit.gpu()).collect();
    if gpus.len() != case.timed.len() && case.timed.len() > 1 {
        return None;
    }
    let threads = first.threads.checked_mul(u32::try_from(case.timed.len()).ok()?)?;
    Some((flow, IoSpec { threads, ..first }, gpus))
}

fn work_of(flow: &Flow, io: &IoSpec) -> GridWork {
    let IoSpec { order, op, files, cache, .. } = *io;
    let store = flow.io_ends().0.unit.store().unwrap_or(0);
    GridWork { store, order, op, block: flow.bytes, files, cache, at: flow.by.at() }
}

impl<'b, 'a> GridCase<'b, 'a> {
    fn new(entry: &'b RunEntry<'a>) -> Option<Self> {
        let (flow, io, gpus) = shape(entry.case)?;
        Some(Self { job: IoEntry { entry, flow, io }, gpus })
    }

    fn work(&self) -> GridWork {
        work_of(self.job.flow, &self.job.io)
    }

    fn end(&self) -> GridEnd {
        (self.gpus.clone(), self.job.io.stage)
    }

    /// Workers, then depth.
    fn effort(&self) -> (u32, u32) {
        (self.job.io.threads, self.job.io.depth)
    }

    fn is_measured(&self) -> bool {
        self.job.entry.is_sampled()
    }
}

/// The effort that a rate needs, of one end and one kind of I/O.
struct NeededEffort<'g, 'b, 'a> {
    work: GridWork,
    end: GridEnd,
    best: &'g GridCase<'b, 'a>,
    enough: &'g GridCase<'b, 'a>,
}

struct CaseGrid<'r, 'b, 'a> {
    run: &'r RunView<'a>,
    cells: Vec<GridCase<'b, 'a>>,
}

impl<'b, 'a> CaseGrid<'_, 'b, 'a> {
    /// Kinds of direct I/O with workers near the store: the domain of most cases.
    fn works(&self) -> Vec<GridWork> {
        let all = distinct(self.cells.iter().map(GridCase::work));
        all.into_iter().filter(|w| w.cache == IoCache::Direct && self.is_near(w)).collect()
    }

    fn is_near(&self, work: &GridWork) -> bool {
        let cases = |at: Unit| {
            let of = |w: GridWork| w.store == work.store && w.at == at;
            self.cells.iter().filter(|c| of(c.work())).count()
        };
        let domains = distinct(self.cells.iter().map(|c| c.work().at));
        domains.into_iter().all(|other| cases(other) <= cases(work.at))
    }

    fn of(&self, work: GridWork) -> impl Iterator<Item = &GridCase<'b, 'a>> {
        self.cells.iter().filter(move |c| c.work() == work)
    }

    /// The case with the same workers and depth and another end.
    fn host_of(&self, case: &GridCase<'b, 'a>) -> Option<IoEntry<'b, 'a>> {
        let mut hosts = self.of(case.work()).filter(|c| c.gpus.is_empty());
        hosts.find(|c| c.effort() == case.effort()).map(|c| c.job)
    }

    /// Sets of GPUs with their staging, by number of GPUs.
    fn ends(&self, work: GridWork) -> Vec<GridEnd> {
        let mut ends: Vec<GridEnd> =
            distinct(self.of(work).filter(|c| !c.gpus.is_empty()).map(GridCase::end));
        ends.sort_by_key(|(gpus, stage)| (gpus.len(), *stage));
        ends
    }

    /// Latency and throughput of GPUs minus those of the host, as two figures.
    fn gaps(&self, work: GridWork) -> [Option<Figure>; 2] {
        let (asked, unit) = match work.order {
            IoOrder::Rand => (IoQuantity::Iops, ("kIOPS", 1e-3)),
            IoOrder::Seq => (IoQuantity::Rate, ("GB/s", 1.0)),
        };
        [
            self.gap_figure(work, "latency", ("us", 1.0), &gaps::LATENCIES),
            self.gap_figure(work, "throughput", unit, &[("throughput", asked)]),
        ]
    }

    fn gap_figure(
        &self,
        work: GridWork,
        quantity: &str,
        (unit, factor): (&str, f64),
        statistics: &[(&str, IoQuantity)],
    ) -> Option<Figure> {
        let depths = sorted(self.of(work).map(|c| c.job.io.depth));
        let mut rows: Vec<(GridEnd, u32)> = Vec::new();
        for end in self.ends(work) {
            let of_end = self.of(work).filter(|c| c.end() == end);
            let threads = sorted(of_end.map(|c| c.job.io.threads));
            rows.extend(threads.into_iter().map(|t| (end.clone(), t)));
        }
        let panels = gaps::panels(statistics, &rows, &depths, |(end, threads), depth, asked| {
            let mut of_end = self.of(work).filter(|c| c.end() == *end);
            let case = of_end.find(|c| c.effort() == (*threads, depth))?;
            // Throughput itself is what a saturated cell measures.
            let is_rate = matches!(asked, IoQuantity::Iops | IoQuantity::Rate);
            let saturated = |host: &IoEntry| match is_rate {
                true => None,
                false => self.saturated(case, host),
            };
            let host = self.host_of(case);
            Some(gaps::gap(&case.job, host, (asked, factor), "such values", saturated))
        });
        let ((gpus, stage), threads) = rows.first()?;
        let name = |(gpus, stage): &GridEnd| end_text(gpus, *stage);
        let any = panels.iter().flat_map(|p| p.1.iter().flatten()).any(|g| g.cell.value.is_some());
        let (threads, depth) = (fmt::threads(*threads), depths.first().copied().unwrap_or(1));
        let lead = format!("With {threads} at depth {depth}");
        let finding = gaps::finding(&lead, &end_text(gpus, *stage), &panels, unit);
        let GridWork { store, order, op, block, files, .. } = work;
        let id = format!("storage-grid-{quantity}-store{store}-{order}-{op}-{block}-{files}");
        let title = format!("GPUs minus host: {quantity} of {} (store{store})", work.text());
        let body = GapsBody {
            quantity: quantity.into(),
            unit: unit.into(),
            base: "host".into(),
            other: "GPUs".into(),
            row_axis: "to, by, threads".into(),
            col_axis: "depth".into(),
            rows: rows.iter().map(|(end, threads)| format!("{}, {threads}", name(end))).collect(),
            cols: depths.iter().map(u32::to_string).collect(),
            panels,
        };
        let framed = frame(self.run, (SUITE, &pattern(work)), id, title).finding(finding);
        any.then(|| framed.draw(body))
    }

    /// Why the latency of a case or of its host is that of a queue.
    fn saturated(&self, case: &GridCase<'b, 'a>, host: &IoEntry<'b, 'a>) -> Option<String> {
        let of = |job: &IoEntry, end: GridEnd, name: &str| {
            let alike = self.of(case.work()).filter(|c| c.end() == end).map(|c| &c.job);
            let alike: Vec<&IoEntry> = alike.collect();
            Some(format!("{name}: {}", gaps::saturated_among(job, alike.iter().copied())?))
        };
        of(&case.job, case.end(), "GPUs").or_else(|| of(host, (Vec::new(), host.io.stage), "host"))
    }

    /// Throughput over the number of GPUs, with the most workers and the greatest depth.
    fn rates_by_gpus(&self) -> Vec<Figure> {
        let groups = distinct(self.works().into_iter().map(|w| (w.store, w.order, w.block)));
        groups.into_iter().filter_map(|group| self.rate_by_gpus(group)).collect()
    }

    fn rate_by_gpus(&self, (store, order, block): (u32, IoOrder, Bytes)) -> Option<Figure> {
        let mut works = self.works();
        works.retain(|w| (w.store, w.order, w.block) == (store, order, block));
        let of_works = || works.iter().flat_map(|w| self.of(*w));
        let several = of_works().filter(|c| c.is_measured() && c.gpus.len() > 1);
        let effort = several.map(GridCase::effort).max()?;
        let same = || of_works().filter(|c| c.effort() == effort);
        let counts = sorted(same().map(|c| c.gpus.len()).filter(|n| *n > 0));
        let (unit, factor) = works.first()?.unit();
        let name = |c: &GridCase| {
            let files = match c.job.io.files {
                IoFiles::Shared => "shared",
                IoFiles::Own => "own",
                IoFiles::Each => "each",
            };
            let to = c.job.io.stage.map_or("host".to_owned(), |stage| stage.to_string());
            format!("{}, {files}, {to}", op_label(c.job.io.op))
        };
        let lines: Vec<ChartLine> = lines(same().flat_map(|case| {
            let cell = scaled(case.job.rate(self.run), factor);
            let at = match case.gpus.len() {
                0 => counts.clone(),
                n => vec![n],
            };
            at.into_iter().map(move |n| (name(case), n as f64, cell.clone()))
        }));
        let growth = lines.iter().filter(|l| !l.name.ends_with("host")).filter_map(|line| {
            let (first, last) = (line.points.first()?, line.points.last()?);
            Some((last.1.value? / first.1.value?, (&line.name, last.0)))
        });
        let finding = most(growth).map_or(String::new(), |(ratio, (line, gpus))| {
            let times = fmt::number(ratio);
            format!(
                "{gpus} GPUs get {times} times the throughput of one at most ({line}), with as many workers \
                 in all."
            )
        });
        let (kind, threads) = (fmt::sentence(order_label(order)), fmt::threads(effort.0));
        let depth = effort.1;
        let title = format!(
            "{kind} I/O of {block} over the number of GPUs: {threads} in all, depth {depth} (store{store})"
        );
        let id = format!("storage-grid-gpus-store{store}-{order}-{block}");
        let curves = CurvesBody::new("GPUs", (unit, BetterWhen::Higher), lines);
        Some(frame(self.run, (SUITE, ""), id, title).finding(finding).draw(curves))
    }

    /// For each kind of I/O and each end, the fewest workers, then the smallest depth, that reach 95 % of the
    /// best rate.
    fn needs(&self) -> Vec<NeededEffort<'_, 'b, 'a>> {
        let mut needs = Vec::new();
        for work in self.works() {
            let host = self.of(work).any(|c| c.gpus.is_empty());
            let ends = host.then(|| (Vec::new(), None)).into_iter().chain(self.ends(work));
            for end in ends {
                let of = self.of(work).filter(|c| c.end() == end && c.is_measured());
                let of: Vec<&GridCase> = of.collect();
                // The rest of what the run measured is left out here as disturbed or assumed.
                if of.len() == self.measured(work, &end) {
                    needs.extend(needed_effort(work, end, of));
                }
            }
        }
        needs
    }

    /// Number of cases with that end that the run measured.
    fn measured(&self, work: GridWork, end: &GridEnd) -> usize {
        let of =
            measured(self.run.journal).filter_map(|m| shape(&m.case)).filter(|(flow, io, gpus)| {
                work_of(flow, io) == work && (gpus, io.stage) == (&end.0, end.1)
            });
        of.count()
    }

    /// A table for each kind of I/O, shared and separate files together.
    fn needs_figures(&self, needs: &[NeededEffort<'_, 'b, 'a>]) -> Vec<Figure> {
        let kind = |w: &GridWork| (w.store, w.order, w.op, w.block);
        let kinds = distinct(needs.iter().map(|n| kind(&n.work)));
        let of = |wanted: &_| needs.iter().filter(|n| kind(&n.work) == *wanted).collect::<Vec<_>>();
        kinds.iter().filter_map(|wanted| self.needs_figure(&of(wanted))).collect()
    }

    fn needs_figure(&self, needs: &[&NeededEffort<'_, 'b, 'a>]) -> Option<Figure> {
        let GridWork { store, order, op, block, .. } = needs.first()?.work;
        let stated = |case: &GridCase, value: f64| FigureCell::stated(case.job.entry, Some(value));
        let effort = |case: &GridCase| {
            let (threads, depth) = case.effort();
            [threads, depth].map(|n| stated(case, f64::from(n)))
        };
        let row = |need: &&NeededEffort<'_, 'b, 'a>| {
            let (best, enough) = (need.best, need.enough);
            let share = best.job.value(IoQuantity::Rate).zip(enough.job.value(IoQuantity::Rate));
            let share = share.map(|(best, enough)| 100.0 * enough / best);
            let mut cells = effort(enough).to_vec();
            cells.push(enough.job.rate(self.run));
            cells.push(enough.job.cell(IoQuantity::Iops));
            cells.push(FigureCell::stated(enough.job.entry, share));
            cells.push(best.job.rate(self.run));
            cells.extend(effort(best));
            let own = if need.work.files == IoFiles::Own { ", own files" } else { "" };
            (format!("{}{own}", end_text(&need.end.0, need.end.1)), cells)
        };
        let shared = needs.iter().filter(|n| n.work.files == IoFiles::Shared);
        let texts = shared.map(|n| {
            let (end, (threads, depth)) = (end_text(&n.end.0, n.end.1), n.enough.effort());
            format!("{end}: {} at depth {depth}", fmt::count(threads as usize, "worker"))
        });
        let finding = fmt::sentence(&fmt::join_any(texts, "; ").unwrap_or_default()) + ".";
        let id = format!("storage-grid-workers-store{store}-{order}-{op}-{block}");
        let (order, op) = (order_label(order), op_label(op));
        let title = format!(
            "Fewest workers, then least depth, with 95 % of the best rate: {order} {op} of {block} \
             (store{store})"
        );
        let columns = [
            ("workers", ""),
            ("depth", ""),
            ("they reach", "GB/s"),
            ("they reach", "IOPS"),
            ("of the best", "%"),
            ("best", "GB/s"),
            ("best, workers", ""),
            ("best, depth", ""),
        ];
        let columns = columns.map(|(name, unit)| SheetColumn::neutral(name, unit));
        let framed = frame(self.run, (SUITE, ""), id, title).finding(finding);
        framed.draw_rows("to, by", columns, needs.iter().map(row))
    }

    /// The fewest workers for the first GPU, by kind of I/O on a shared file.
    fn needs_sentence(&self, needs: &[NeededEffort<'_, 'b, 'a>]) -> Option<String> {
        let one = || needs.iter().filter(|n| n.end.0.len() == 1 && n.work.files == IoFiles::Shared);
        let gpu = one().next()?.end.0.first()?;
        let part = |work: GridWork| {
            let of_work = one().filter(|n| n.work == work);
            let rates = of_work.filter_map(|n| Some((n.best.job.value(IoQuantity::Rate)?, n)));
            let enough = most(rates)?.1.enough;
            let GridWork { order, op, block, store, .. } = work;
            let ((unit, factor), (threads, depth)) = (work.unit(), enough.effort());
            let rate = fmt::number(enough.job.value(IoQuantity::Rate)? * factor);
            let workers = fmt::count(threads as usize, "worker");
            let (order, op) = (order_label(order), op_label(op));
            Some(format!(
                "{workers} at depth {depth} for {order} {op} of {block} (store{store}, {rate} {unit})"
            ))
        };
        let kinds = distinct(one().map(|n| n.work));
        let texts = fmt::join_any(kinds.into_iter().filter_map(part), "; ")?;
        Some(format!("gpu{gpu} gets 95 % of its best rate with {texts}."))
    }

    /// All GPUs at once compared with one, for sequential reads of a shared file.
    fn sets_sentence(&self) -> Option<String> {
        let best = |count: usize, work: GridWork| {
            let of = self.of(work).filter(move |c| c.gpus.len() == count);
            of.filter_map(|c| c.job.value(IoQuantity::Rate)).reduce(f64::max)
        };
        let works = self.works();
        let reads = works
            .iter()
            .find(|w| (w.order, w.op, w.files) == (IoOrder::Seq, IoOp::Read, IoFiles::Shared))?;
        let most = self.of(*reads).map(|c| c.gpus.len()).max().filter(|n| *n > 1)?;
        let (one, all) = (best(1, *reads)?, best(most, *reads)?);
        let host =
            best(0, *reads).map_or(String::new(), |h| format!(", host memory {}", fmt::gbs(h)));
        let (reads, one, all) = (reads.text(), fmt::gbs(one), fmt::gbs(all));
        Some(format!(
            "From files into GPUs, {reads}: one gets {one} at most, {most} at once {all}{host}."
        ))
    }
}

/// The fewest workers, then the smallest depth, whose rate is 95 % of the best; `None` with one number of workers.
fn needed_effort<'g, 'b, 'a>(
    work: GridWork,
    end: GridEnd,
    cases: Vec<&'g GridCase<'b, 'a>>,
) -> Option<NeededEffort<'g, 'b, 'a>> {
    let rate = |c: &GridCase| c.job.value(IoQuantity::Rate).unwrap_or(0.0);
    let best = cases.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let enough = cases.iter().copied().filter(|c| rate(c) >= ENOUGH * rate(best));
    let enough = enough.min_by_key(|c| c.effort())?;
    // With one number of workers nothing is known of fewer.
    let varied = cases.iter().any(|c| c.job.io.threads != best.job.io.threads);
    varied.then_some(NeededEffort { work, end, best, enough })
}

/// In another unit, without limits, which are in the first.
fn scaled(cell: FigureCell, factor: f64) -> FigureCell {
    match factor == 1.0 {
        true => cell,
        false => {
            let cell = cell.scaled(factor);
            FigureCell { ceiling: None, bound: None, node: None, path: None, ..cell }
        }
    }
}

/// A pattern of case texts that selects such I/O.
fn pattern(work: GridWork) -> String {
    let GridWork { store, order, op, block, files, cache, .. } = work;
    let by = format!("by uring@*[{order}-{op},{cache},{files},*] x {block}");
    match op {
        IoOp::Write => format!("* > store{store}.file {by}"),
        _ => format!("store{store}.file > * {by}"),
    }
}
