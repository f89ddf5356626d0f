//! Figures of suite storage-grid: the same I/O to host memory and to sets of GPUs, over workers and depth.

mod arms;

use std::collections::BTreeSet;

use pathline_schema::{
    Bytes, Case, CaseOutcome, CaseTimes, Flow, IoCache, IoFiles, IoHistogram, IoOp, IoOrder,
    IoSpec, IoStage, SuiteId, Unit,
};

use super::{IoQuantity, gaps, op_label, order_label};
use crate::figure::{
    BetterWhen, ChartLine, CurvesBody, Figure, FigureCell, GapsBody, PairedGap, SheetBody,
    SheetColumn,
};
use crate::figures::{SuiteFindings, distinct, frame, lines, sorted};
use crate::fmt;
use crate::run::{CaseQuantity, EntryState, RunEntry, RunView};
use crate::shown_value::ShownValue;

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
    for work in grid.works() {
        figures.extend(grid.gaps(work));
    }
    figures.extend(grid.far());
    figures.extend(grid.cached());
    figures.extend(grid.copies());
    let sentences = [grid.needs_sentence(&needs), grid.sets_sentence()];
    SuiteFindings::new(figures, sentences)
}

/// The I/O of a case to host memory, or to one or several GPUs that share its workers.
#[derive(Clone)]
struct GridShape<'a> {
    flow: &'a Flow,
    /// The I/O with the workers of all flows.
    io: IoSpec,
    /// GPUs at the end, ascending; empty of host memory.
    gpus: Vec<u32>,
}

/// Such a case with its results.
#[derive(Clone)]
struct GridCase<'b, 'a> {
    entry: &'b RunEntry<'a>,
    flow: &'a Flow,
    io: IoSpec,
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
        let files = match self.files {
            IoFiles::Shared => "shared file",
            IoFiles::Own => "a file a worker",
            IoFiles::Each => "an object a block",
        };
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

impl<'a> GridShape<'a> {
    /// `None` unless all flows of a case do the same I/O to different GPUs.
    fn new(case: &'a Case) -> Option<Self> {
        let flow = case.timed.first().filter(|_| case.background.is_empty())?;
        let first = *flow.by.io()?;
        let alike = |f: &Flow| {
            f.by == flow.by && f.bytes == flow.bytes && f.io_ends().0 == flow.io_ends().0
        };
        let ends: BTreeSet<Unit> = case.timed.iter().map(|f| f.io_ends().1.unit).collect();
        if !case.timed.iter().all(alike) || ends.len() != case.timed.len() {
            return None;
        }
        let gpus: Vec<u32> = ends.iter().filter_map(|unit| unit.gpu()).collect();
        if gpus.len() != case.timed.len() && case.timed.len() > 1 {
            return None;
        }
        let threads = first.threads.checked_mul(u32::try_from(case.timed.len()).ok()?)?;
        Some(Self { flow, io: IoSpec { threads, ..first }, gpus })
    }

    /// What it has in common with the cases of its heat map.
    fn work(&self) -> GridWork {
        work_of(self.flow, &self.io)
    }
}

fn work_of(flow: &Flow, io: &IoSpec) -> GridWork {
    let IoSpec { order, op, files, cache, .. } = *io;
    let store = flow.io_ends().0.unit.store().unwrap_or(0);
    GridWork { store, order, op, block: flow.bytes, files, cache, at: flow.by.at() }
}

impl<'b, 'a> GridCase<'b, 'a> {
    fn new(entry: &'b RunEntry<'a>) -> Option<Self> {
        let GridShape { flow, io, gpus } = GridShape::new(entry.case)?;
        Some(Self { entry, flow, io, gpus })
    }

    fn work(&self) -> GridWork {
        work_of(self.flow, &self.io)
    }

    fn end(&self) -> GridEnd {
        (self.gpus.clone(), self.io.stage)
    }

    fn is_measured(&self) -> bool {
        matches!(self.entry.state, EntryState::Sampled(_))
    }

    /// One value per sample, over all flows: latencies of all together, rates until the last flow ended.
    fn values(&self, asked: IoQuantity) -> Vec<f64> {
        let all = self.entry.series();
        let samples = all.iter().map(|s| s.samples_ns.len()).min().unwrap_or(0);
        let value = |i: usize| {
            let ns = all.iter().filter_map(|s| s.samples_ns.get(i)).copied().fold(0.0, f64::max);
            match asked {
                IoQuantity::Iops => {
                    Some(all.iter().map(|s| s.steps as f64).sum::<f64>() / ns * 1e9)
                }
                IoQuantity::Rate => {
                    Some(all.iter().map(|s| s.moved_bytes.as_f64()).sum::<f64>() / ns)
                }
                _ => {
                    let mut latency = IoHistogram::default();
                    all.iter().filter_map(|s| s.io.get(i)).for_each(|r| latency.add(&r.latency));
                    asked.of_histogram(&latency)
                }
            }
        };
        (0..samples).filter_map(value).filter(|v| v.is_finite()).collect()
    }

    /// The value over all samples: the median, of latencies that of all together.
    fn value(&self, asked: IoQuantity) -> Option<f64> {
        let mut latency = IoHistogram::default();
        let readings = || self.entry.series().iter().flat_map(|s| &s.io);
        readings().for_each(|r| latency.add(&r.latency));
        let of_all = asked.of_histogram(&latency);
        of_all.or_else(|| Some(ShownValue::new(&self.times(asked))?.value))
    }

    fn visits(&self) -> &'a [u32] {
        self.entry.series().first().map_or(&[][..], |s| &s.visits)
    }

    fn times(&self, asked: IoQuantity) -> CaseTimes {
        CaseTimes::from_values(&self.values(asked), self.visits())
    }

    fn cell(&self, asked: IoQuantity) -> FigureCell {
        FigureCell::derived(self.entry, &self.times(asked), self.value(asked))
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
    fn host_of(&self, case: &GridCase<'b, 'a>) -> Option<&GridCase<'b, 'a>> {
        let (threads, depth) = (case.io.threads, case.io.depth);
        let mut hosts = self.of(case.work()).filter(|c| c.gpus.is_empty());
        hosts.find(|c| (c.io.threads, c.io.depth) == (threads, depth))
    }

    /// Sets of GPUs with their staging, by number of GPUs.
    fn ends(&self, work: GridWork) -> Vec<GridEnd> {
        let mut ends: Vec<GridEnd> =
            distinct(self.of(work).filter(|c| !c.gpus.is_empty()).map(GridCase::end));
        ends.sort_by_key(|(gpus, stage)| (gpus.len(), *stage));
        ends
    }

    /// Latency and throughput of GPUs minus those of the host, as two figures.
    fn gaps(&self, work: GridWork) -> Vec<Figure> {
        let latency: [(&str, IoQuantity); 4] = [
            ("min", IoQuantity::Min),
            ("p50", IoQuantity::Quantile(0.5)),
            ("p99", IoQuantity::Quantile(0.99)),
            ("max", IoQuantity::Max),
        ];
        let asked = if work.order == IoOrder::Rand { IoQuantity::Iops } else { IoQuantity::Rate };
        let unit = if work.order == IoOrder::Rand { "kIOPS" } else { "GB/s" };
        let of_latency = self.gap_figure(work, "latency", ("us", 1.0), &latency);
        let factor = if work.order == IoOrder::Rand { 1e-3 } else { 1.0 };
        let of_rate = self.gap_figure(work, "throughput", (unit, factor), &[("throughput", asked)]);
        of_latency.into_iter().chain(of_rate).collect()
    }

    fn gap_figure(
        &self,
        work: GridWork,
        quantity: &str,
        (unit, factor): (&str, f64),
        panels: &[(&str, IoQuantity)],
    ) -> Option<Figure> {
        let depths = sorted(self.of(work).map(|c| c.io.depth));
        let mut rows: Vec<(GridEnd, u32)> = Vec::new();
        for end in self.ends(work) {
            let threads = sorted(self.of(work).filter(|c| c.end() == end).map(|c| c.io.threads));
            rows.extend(threads.into_iter().map(|t| (end.clone(), t)));
        }
        let at = |(end, threads): &(GridEnd, u32), depth: u32| {
            let mut of_end = self.of(work).filter(|c| c.end() == *end);
            of_end.find(|c| (c.io.threads, c.io.depth) == (*threads, depth))
        };
        let panel = |asked: IoQuantity| -> Vec<Vec<PairedGap>> {
            let gap = |row: &(GridEnd, u32), depth: u32| {
                at(row, depth).map_or_else(PairedGap::default, |c| self.gap(c, asked, factor))
            };
            rows.iter().map(|row| depths.iter().map(|&d| gap(row, d)).collect()).collect()
        };
        let panels: Vec<(String, Vec<Vec<PairedGap>>)> =
            panels.iter().map(|(name, asked)| ((*name).to_owned(), panel(*asked))).collect();
        let first = rows.first()?;
        let any = panels.iter().flat_map(|p| p.1.iter().flatten()).any(|g| g.cell.value.is_some());
        any.then(|| {
            frame(
                self.run,
                (SUITE, &pattern(work)),
                format!(
                    "storage-grid-{quantity}-store{}-{}-{}-{}-{}",
                    work.store, work.order, work.op, work.block, work.files
                ),
                format!("GPUs minus host: {quantity} of {} (store{})", work.text(), work.store),
            )
            .finding(gaps::finding(
                &format!(
                    "With {} at depth {}",
                    fmt::threads(first.1),
                    depths.first().copied().unwrap_or(1)
                ),
                &end_text(&first.0.0, first.0.1),
                &panels,
                unit,
            ))
            .draw(GapsBody {
                quantity: quantity.into(),
                unit: unit.into(),
                base: "host".into(),
                other: "GPUs".into(),
                row_axis: "to, by, threads".into(),
                col_axis: "depth".into(),
                rows: rows
                    .iter()
                    .map(|((gpus, stage), threads)| {
                        format!("{}, {threads}", end_text(gpus, *stage))
                    })
                    .collect(),
                cols: depths.iter().map(u32::to_string).collect(),
                panels,
            })
        })
    }

    /// The median of the differences of samples taken in turn.
    fn gap(&self, case: &GridCase<'b, 'a>, asked: IoQuantity, factor: f64) -> PairedGap {
        let absent = |why: String| PairedGap {
            cell: FigureCell {
                absent: Some(why),
                case: Some(case.entry.case.clone()),
                ..FigureCell::default()
            },
            ..PairedGap::default()
        };
        if let EntryState::Absent(why) = case.entry.state {
            return absent(why.to_owned());
        }
        let Some(host) = self.host_of(case) else {
            return absent("the same I/O with host memory is not in this run".into());
        };
        if let EntryState::Absent(why) = host.entry.state {
            return absent(format!("the same I/O with host memory has no figure: {why}"));
        }
        let pairs = case.values(asked).into_iter().zip(host.values(asked));
        let apart: Vec<f64> = pairs.map(|(a, b)| (a - b) * factor).collect();
        let times = CaseTimes::from_values(&apart, case.visits());
        let Some(shown) = ShownValue::new(&times) else {
            return absent("no pair of samples has such values".into());
        };
        let saturated = self
            .saturated(case)
            .map(|why| format!("GPUs: {why}"))
            .or_else(|| self.saturated(host).map(|why| format!("host: {why}")));
        PairedGap {
            cell: FigureCell::derived(case.entry, &times, None),
            base: host.value(asked).map(|v| v * factor),
            other: case.value(asked).map(|v| v * factor),
            pairs: apart.len(),
            is_zero: shown.interval.is_none_or(|i| i.low <= 0.0 && i.high >= 0.0),
            // Throughput itself is what a saturated cell measures.
            saturated: saturated.filter(|_| !matches!(asked, IoQuantity::Iops | IoQuantity::Rate)),
        }
    }

    /// Why the latency of a case is that of a queue: it gained little over the next fewer in flight.
    fn saturated(&self, case: &GridCase<'b, 'a>) -> Option<String> {
        let here = case.value(IoQuantity::Iops)?;
        let end = case.end();
        let alike = || self.of(case.work()).filter(|c| c.end() == end);
        let fewer = alike()
            .filter(|c| c.io.threads == case.io.threads && c.io.depth < case.io.depth)
            .max_by_key(|c| c.io.depth)
            .map(|c| (c, "depth"));
        let fewer_workers = alike()
            .filter(|c| c.io.depth == case.io.depth && c.io.threads < case.io.threads)
            .max_by_key(|c| c.io.threads)
            .map(|c| (c, "workers"));
        [fewer, fewer_workers].into_iter().flatten().find_map(|(other, what)| {
            let more = case.io.slots() as f64 / other.io.slots() as f64;
            gaps::queue_text(more, here / other.value(IoQuantity::Iops)?, what)
        })
    }

    /// Throughput over the number of GPUs, with the most workers and the greatest depth.
    fn rates_by_gpus(&self) -> Vec<Figure> {
        let groups = distinct(self.works().into_iter().map(|w| (w.store, w.order, w.block)));
        groups.into_iter().filter_map(|group| self.rate_by_gpus(group)).collect()
    }

    fn rate_by_gpus(&self, (store, order, block): (u32, IoOrder, Bytes)) -> Option<Figure> {
        let works = self.works();
        let works: Vec<GridWork> = works
            .into_iter()
            .filter(|w| (w.store, w.order, w.block) == (store, order, block))
            .collect();
        let of_works = || works.iter().flat_map(|w| self.of(*w));
        let effort = of_works()
            .filter(|c| c.is_measured() && c.gpus.len() > 1)
            .map(|c| (c.io.threads, c.io.depth))
            .max()?;
        let same = || of_works().filter(|c| (c.io.threads, c.io.depth) == effort);
        let counts = sorted(same().map(|c| c.gpus.len()).filter(|n| *n > 0));
        let (unit, factor) = works.first()?.unit();
        let name = |c: &GridCase| {
            let files = match c.io.files {
                IoFiles::Shared => "shared",
                IoFiles::Own => "own",
                IoFiles::Each => "each",
            };
            let to = c.io.stage.map_or("host".to_owned(), |stage| stage.to_string());
            format!("{}, {files}, {to}", op_label(c.io.op))
        };
        let mut points: Vec<(String, f64, FigureCell)> = Vec::new();
        for case in same() {
            let cell = scaled(self.run.cell(case.entry, CaseQuantity::Payload), factor);
            let at: Vec<usize> = match case.gpus.len() {
                0 => counts.clone(),
                n => vec![n],
            };
            points.extend(at.into_iter().map(|n| (name(case), n as f64, cell.clone())));
        }
        let lines: Vec<ChartLine> = lines(points);
        let growth = lines.iter().filter(|l| !l.name.ends_with("host")).filter_map(|line| {
            let (first, last) = (line.points.first()?, line.points.last()?);
            Some((last.1.value? / first.1.value?, line, last.0))
        });
        let most = growth.max_by(|a, b| a.0.total_cmp(&b.0));
        let finding = most.map_or(String::new(), |(ratio, line, gpus)| {
            format!(
                "{gpus} GPUs get {} times the throughput of one at most ({}), with as many workers in all.",
                fmt::number(ratio),
                line.name
            )
        });
        Some(
            frame(
                self.run,
                (SUITE, ""),
                format!("storage-grid-gpus-store{store}-{order}-{block}"),
                format!(
                    "{} I/O of {block} over the number of GPUs: {} in all, depth {} (store{store})",
                    fmt::sentence(order_label(order)),
                    fmt::threads(effort.0),
                    effort.1
                ),
            )
            .finding(finding)
            .draw(CurvesBody::new("GPUs", (unit, BetterWhen::Higher), lines)),
        )
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
        let measured = self.run.journal.outcomes.iter().filter_map(|outcome| match outcome {
            CaseOutcome::Measured(m) => GridShape::new(&m.case),
            _ => None,
        });
        let of = measured.filter(|s| s.work() == work && (&s.gpus, s.io.stage) == (&end.0, end.1));
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
        let count = |n: u32, case: &GridCase| FigureCell {
            value: Some(f64::from(n)),
            case: Some(case.entry.case.clone()),
            ..FigureCell::default()
        };
        let row = |need: &&NeededEffort<'_, 'b, 'a>| {
            let (best, enough) = (need.best, need.enough);
            let rate = |c: &GridCase| self.run.cell(c.entry, CaseQuantity::Payload);
            let share = best.value(IoQuantity::Rate).zip(enough.value(IoQuantity::Rate));
            let cells = vec![
                count(enough.io.threads, enough),
                count(enough.io.depth, enough),
                rate(enough),
                enough.cell(IoQuantity::Iops),
                FigureCell {
                    value: share.map(|(best, enough)| 100.0 * enough / best),
                    case: Some(enough.entry.case.clone()),
                    ..FigureCell::default()
                },
                rate(best),
                count(best.io.threads, best),
                count(best.io.depth, best),
            ];
            let own = if need.work.files == IoFiles::Own { ", own files" } else { "" };
            (format!("{}{own}", end_text(&need.end.0, need.end.1)), cells)
        };
        let texts: Vec<String> = needs
            .iter()
            .filter(|n| n.work.files == IoFiles::Shared)
            .map(|n| {
                let workers = fmt::count(n.enough.io.threads as usize, "worker");
                let end = end_text(&n.end.0, n.end.1);
                format!("{end}: {workers} at depth {}", n.enough.io.depth)
            })
            .collect();
        let id = format!("storage-grid-workers-store{store}-{order}-{op}-{block}");
        let title = format!(
            "Fewest workers, then least depth, with 95 % of the best rate: {} {} of {block} \
             (store{store})",
            order_label(order),
            op_label(op)
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
        let finding = format!("{}.", fmt::sentence(&texts.join("; ")));
        Some(frame(self.run, (SUITE, ""), id, title).finding(finding).draw(SheetBody {
            row_axis: "to, by".into(),
            columns: columns.map(|(name, unit)| SheetColumn::neutral(name, unit)).into(),
            rows: needs.iter().map(row).collect(),
        }))
    }

    /// The fewest workers for the first GPU, by kind of I/O on a shared file.
    fn needs_sentence(&self, needs: &[NeededEffort<'_, 'b, 'a>]) -> Option<String> {
        let one = needs.iter().filter(|n| n.end.0.len() == 1 && n.work.files == IoFiles::Shared);
        let kinds = distinct(one.clone().map(|n| n.work));
        let texts: Vec<String> = kinds
            .iter()
            .filter_map(|work| {
                let fastest = one
                    .clone()
                    .filter(|n| n.work == *work)
                    .filter_map(|n| Some((n.best.value(IoQuantity::Rate)?, n)))
                    .max_by(|a, b| a.0.total_cmp(&b.0))?
                    .1;
                let GridWork { order, op, block, store, .. } = *work;
                let (unit, factor) = work.unit();
                let rate = fastest.enough.value(IoQuantity::Rate)? * factor;
                Some(format!(
                    "{} at depth {} for {} {} of {block} (store{store}, {} {unit})",
                    fmt::count(fastest.enough.io.threads as usize, "worker"),
                    fastest.enough.io.depth,
                    order_label(order),
                    op_label(op),
                    fmt::number(rate),
                ))
            })
            .collect();
        let gpu = one.clone().next()?.end.0.first()?;
        (!texts.is_empty())
            .then(|| format!("gpu{gpu} gets 95 % of its best rate with {}.", texts.join("; ")))
    }

    /// All GPUs at once compared with one, for sequential reads of a shared file.
    fn sets_sentence(&self) -> Option<String> {
        let best = |count: usize, work: GridWork| {
            let of = self.of(work).filter(move |c| c.gpus.len() == count);
            of.filter_map(|c| c.value(IoQuantity::Rate)).reduce(f64::max)
        };
        let works = self.works();
        let reads = works
            .iter()
            .find(|w| (w.order, w.op, w.files) == (IoOrder::Seq, IoOp::Read, IoFiles::Shared))?;
        let most = self.of(*reads).map(|c| c.gpus.len()).max().filter(|n| *n > 1)?;
        let (one, all) = (best(1, *reads)?, best(most, *reads)?);
        let host =
            best(0, *reads).map_or(String::new(), |h| format!(", host memory {}", fmt::gbs(h)));
        Some(format!(
            "From files into GPUs, {}: one gets {} at most, {most} at once {}{host}.",
            reads.text(),
            fmt::gbs(one),
            fmt::gbs(all),
        ))
    }
}

/// The fewest workers, then the smallest depth, whose rate is 95 % of the best; `None` with one number of workers.
fn needed_effort<'g, 'b, 'a>(
    work: GridWork,
    end: GridEnd,
    cases: Vec<&'g GridCase<'b, 'a>>,
) -> Option<NeededEffort<'g, 'b, 'a>> {
    let rate = |c: &GridCase| c.value(IoQuantity::Rate).unwrap_or(0.0);
    let best = cases.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let enough = cases.iter().copied().filter(|c| rate(c) >= ENOUGH * rate(best));
    let enough = enough.min_by_key(|c| (c.io.threads, c.io.depth))?;
    // With one number of workers nothing is known of fewer.
    let varied = cases.iter().any(|c| c.io.threads != best.io.threads);
    varied.then_some(NeededEffort { work, end, best, enough })
}

fn scaled(cell: FigureCell, factor: f64) -> FigureCell {
    FigureCell {
        value: cell.value.map(|v| v * factor),
        half_width: cell.half_width * factor,
        ceiling: cell.ceiling.map(|v| v * factor).filter(|_| factor == 1.0),
        bound: cell.bound.filter(|_| factor == 1.0),
        node: cell.node.filter(|_| factor == 1.0),
        path: cell.path.filter(|_| factor == 1.0),
        ..cell
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
