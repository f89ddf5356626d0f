//! Storage: IOPS, rates and latencies of I/O between files and memory, and their bottlenecks.

mod calls;
mod gaps;
mod grid;
mod latency;
mod limits;
mod rates;
mod sentences;
mod stages;
mod warnings;

use std::collections::BTreeSet;

use pathline_schema::{
    Bytes, Flow, FlowSeries, IoCache, IoEngine, IoFiles, IoHistogram, IoOp, IoOrder, IoReading,
    IoSpec, SuiteId,
};
use pathline_stats::SeriesSummary;

use super::{FigureCell, SuiteFindings};
use crate::figure::SheetColumn;
use crate::run::{CaseQuantity, RunEntry, RunView};

pub(super) use grid::find as find_grid;
pub(crate) use warnings::{conditions, warnings};

const SUITE: SuiteId = SuiteId::Storage;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let mut jobs = jobs(run);
    // The grid has its own figures.
    jobs.retain(|job| !is_grid_only(job.entry));
    if jobs.is_empty() {
        return SuiteFindings::default();
    }
    let mut figures = rates::figures(run, &jobs);
    figures.extend(rates::pages(run, &jobs));
    figures.extend(latency::figure(run, &jobs));
    figures.extend(gaps::figures(run, &jobs));
    figures.extend(stages::figure(run, &jobs));
    figures.extend(calls::figure(run, &jobs));
    figures.extend(rates::at_once(run, &jobs));
    SuiteFindings::new(figures, sentences::sentences(run, &jobs))
}

/// A case with a single I/O flow, or with flows that do the same.
#[derive(Clone, Copy)]
struct IoEntry<'b, 'a> {
    entry: &'b RunEntry<'a>,
    /// The first flow.
    flow: &'a Flow,
    /// The I/O, with the workers of all flows.
    io: IoSpec,
}

/// Whether only suite storage-grid lists a case.
fn is_grid_only(entry: &RunEntry) -> bool {
    !entry.suites.is_empty() && entry.suites.iter().all(|s| s == SuiteId::StorageGrid.word())
}

/// All single I/O flows, in the order of the run.
fn jobs<'b, 'a>(run: &'b RunView<'a>) -> Vec<IoEntry<'b, 'a>> {
    let job = |entry: &'b RunEntry<'a>| {
        let flow = entry.lone()?;
        Some(IoEntry { entry, flow, io: *flow.by.io()? })
    };
    run.entries.iter().filter_map(job).collect()
}

/// A quantity of I/O or of metadata.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum IoQuantity {
    /// Operations per second.
    Iops,
    /// Payload, GB/s.
    Rate,
    /// Operations per second until the first worker finished.
    FirstIops,
    /// Payload until the first worker finished, GB/s.
    FirstRate,
    /// Latency, us: minimum, a percentile, or maximum.
    Min,
    Quantile(f64),
    Max,
    /// CPU time of all workers, us per operation.
    Cpu,
    /// Requests to the block device per I/O.
    Requests,
    /// Time of the slowest flow over that of the fastest.
    Spread,
}

impl IoQuantity {
    /// Value of one sample of flows that run together: rates until the last one ended, those of first workers
    /// as a sum, and latencies of all.
    pub(super) fn of_sample(self, all: &[FlowSeries], nth: usize) -> Option<f64> {
        let times = || all.iter().filter_map(|s| s.samples_ns.get(nth).copied());
        let ns = times().reduce(f64::max)?;
        let ops = all.iter().map(|s| s.steps as f64).sum::<f64>();
        let sum = |of: fn(&FlowSeries, &IoReading) -> Option<f64>| -> Option<f64> {
            all.iter().map(|series| of(series, series.io.get(nth)?)).sum()
        };
        let value = match self {
            Self::Iops => ops / ns * 1e9,
            Self::Rate => all.iter().map(|s| s.moved_bytes.as_f64()).sum::<f64>() / ns,
            Self::FirstIops => sum(|_, r| Some(r.first_done_ops as f64 / r.first_done_ns * 1e9))?,
            Self::FirstRate => {
                sum(|s, r| Some(r.first_done_ops as f64 * s.flow.bytes.as_f64() / r.first_done_ns))?
            }
            Self::Cpu => sum(|_, r| Some(r.cpu_user_ns + r.cpu_system_ns))? / ops / 1e3,
            Self::Requests => sum(|_, r| Some(r.requests? as f64))? / ops,
            Self::Spread => ns / times().reduce(f64::min)?,
            Self::Min | Self::Quantile(_) | Self::Max => {
                self.of_histogram(&merged(all.iter().filter_map(|s| s.io.get(nth))))?
            }
        };
        (value.is_finite() && value >= 0.0).then_some(value)
    }

    /// Value of a latency quantity, us.
    fn of_histogram(self, all: &IoHistogram) -> Option<f64> {
        let us = match self {
            Self::Min => all.min_ns as f64,
            Self::Max => all.max_ns as f64,
            Self::Quantile(share) => all.quantile(share)?.0,
            _ => return None,
        };
        (!all.is_empty()).then_some(us / 1e3)
    }
}

/// One value per sample that has one.
fn values(all: &[FlowSeries], asked: IoQuantity) -> Vec<f64> {
    let samples = all.iter().map(|s| s.samples_ns.len()).min().unwrap_or(0);
    (0..samples).filter_map(|nth| asked.of_sample(all, nth)).collect()
}

fn merged<'r>(readings: impl Iterator<Item = &'r IoReading>) -> IoHistogram {
    let mut all = IoHistogram::default();
    readings.for_each(|reading| all.add(&reading.latency));
    all
}

/// The quantity with its interval. Latencies are over all samples; their interval is that of the
/// samples' values.
pub(super) fn io_cell(entry: &RunEntry, asked: IoQuantity) -> FigureCell {
    let all = entry.series();
    let latencies = merged(all.iter().flat_map(|s| &s.io));
    let cell = FigureCell::sampled(entry, &values(all, asked), asked.of_histogram(&latencies));
    // Extremes over all samples have no interval.
    if matches!(asked, IoQuantity::Min | IoQuantity::Max) { cell.exact() } else { cell }
}

/// Of quantities and names with units the columns, of which neither more nor less is better.
pub(super) fn neutral_columns<const N: usize>(
    all: [(IoQuantity, &str, &'static str); N],
) -> [SheetColumn; N] {
    all.map(|(_, name, unit)| SheetColumn::neutral(name, unit))
}

impl<'a> IoEntry<'_, 'a> {
    fn series(&self) -> Option<&'a FlowSeries> {
        self.entry.series().first()
    }

    /// One value per sample that has one.
    fn values(&self, asked: IoQuantity) -> Vec<f64> {
        values(self.entry.series(), asked)
    }

    /// Of the values of two cases that were sampled in turn what `of` makes of each two.
    fn paired(&self, other: &Self, asked: IoQuantity, of: fn(f64, f64) -> f64) -> Vec<f64> {
        let pairs = self.values(asked).into_iter().zip(other.values(asked));
        pairs.map(|(here, there)| of(here, there)).collect()
    }

    /// Latencies over all samples.
    fn latencies(&self) -> IoHistogram {
        merged(self.entry.series().iter().flat_map(|s| &s.io))
    }

    /// The quantity with its interval.
    fn cell(&self, asked: IoQuantity) -> FigureCell {
        io_cell(self.entry, asked)
    }

    /// The rate with its ceilings, as for other cases.
    fn rate(&self, run: &RunView) -> FigureCell {
        run.cell(self.entry, CaseQuantity::Payload)
    }

    fn value(&self, asked: IoQuantity) -> Option<f64> {
        self.cell(asked).value
    }

    /// The GPU at the other end.
    fn gpu(&self) -> Option<u32> {
        self.flow.io_ends().1.unit.gpu()
    }

    fn store(&self) -> u32 {
        self.flow.io_ends().0.unit.store().unwrap_or(0)
    }

    fn block(&self) -> Bytes {
        self.flow.bytes
    }

    /// Share of the time that its workers had a CPU, 0 to 1.
    fn busy(&self) -> Option<f64> {
        let series = self.series()?;
        let threads = f64::from(self.io.threads);
        let shares: Vec<f64> = series
            .samples_ns
            .iter()
            .zip(&series.io)
            .map(|(ns, r)| (r.cpu_user_ns + r.cpu_system_ns) / (ns * threads))
            .collect();
        SeriesSummary::of(&shares).map(|s| s.median)
    }

    /// `random reads of 4KiB`.
    fn work(&self) -> String {
        format!("{} {} of {}", order_label(self.io.order), op_label(self.io.op), self.block())
    }

    /// `huge pages`, `gpu0`.
    fn memory(&self) -> String {
        let (_, memory) = self.flow.io_ends();
        match memory.unit.gpu() {
            Some(gpu) => format!("gpu{gpu}"),
            None => match memory.mem {
                pathline_schema::MemKind::Huge => "huge pages".into(),
                mem => format!("{} memory", super::mem_words(mem)),
            },
        }
    }

    /// `pipelined, pinned`; empty without staging.
    fn staging(&self) -> String {
        match (self.io.stage, self.io.engine) {
            (Some(stage), _) => {
                let how = if stage.pipelined { "pipelined" } else { "blocking" };
                format!("{how}, {}", super::mem_words(stage.through))
            }
            (None, IoEngine::Gds) => "GPU direct".into(),
            (None, _) => String::new(),
        }
    }

    /// Its distinguishing properties, in the order of a label.
    fn parts(&self) -> Vec<(LabelPart, String)> {
        let io = self.io;
        let cache = match io.cache {
            IoCache::Direct => "O_DIRECT",
            IoCache::Cached => "page cache",
            IoCache::Cold => "page cache, cold",
        };
        let rate = io.rate.map_or(String::new(), |rate| format!("{rate}/s each"));
        let all = [
            (LabelPart::Store, format!("store{}", self.store())),
            (LabelPart::Memory, self.memory()),
            (LabelPart::Staging, self.staging()),
            (LabelPart::Order, order_label(io.order).to_owned()),
            (LabelPart::Op, op_label(io.op).trim_end_matches(',').to_owned()),
            (LabelPart::Block, self.block().to_string()),
            (LabelPart::Engine, engine_label(io.engine).to_owned()),
            (LabelPart::Cache, cache.to_owned()),
            // One file is the default and is not stated.
            (LabelPart::Files, files_label(io.files).unwrap_or_default().to_owned()),
            (LabelPart::Span, io.span.to_string()),
            (LabelPart::Numa, format!("cores of {}", self.flow.by.at())),
            (LabelPart::Threads, crate::fmt::threads(io.threads)),
            (LabelPart::Rate, rate),
            (LabelPart::Depth, format!("depth {}", io.depth)),
            (LabelPart::Batch, format!("{} a call", io.batch)),
        ];
        all.into_iter().filter(|(_, text)| !text.is_empty()).collect()
    }
}

/// A part of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LabelPart {
    Store,
    Memory,
    Staging,
    Order,
    Op,
    Block,
    Engine,
    Cache,
    Files,
    Span,
    Numa,
    Threads,
    Rate,
    Depth,
    Batch,
}

/// Labels of cases shown together, without common parts and without parts that others imply.
fn labels(jobs: &[IoEntry<'_, '_>], named_elsewhere: &[LabelPart]) -> Vec<String> {
    let parts: Vec<Vec<(LabelPart, String)>> = jobs.iter().map(IoEntry::parts).collect();
    let differs = |part: LabelPart| {
        let of = |p: &Vec<(LabelPart, String)>| {
            p.iter().find(|(kind, _)| *kind == part).map(|(_, text)| text.clone())
        };
        parts.iter().map(of).collect::<BTreeSet<_>>().len() > 1
    };
    let label = |parts: &[(LabelPart, String)], batches: bool| {
        let kept = parts.iter().filter(|(part, _)| {
            let named = !named_elsewhere.contains(part) && (*part != LabelPart::Batch || batches);
            named && differs(*part)
        });
        kept.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", ")
    };
    let plain: Vec<String> = parts.iter().map(|p| label(p, false)).collect();
    // A batch mostly follows its depth: it is named only if two cases are otherwise equal.
    let twice = |text: &String| plain.iter().filter(|t| *t == text).count() > 1;
    let named = parts.iter().zip(&plain).map(|(parts, text)| label(parts, twice(text)));
    named.zip(jobs).map(|(text, job)| if text.is_empty() { job.memory() } else { text }).collect()
}

/// Files other than one that all workers share.
fn files_label(files: IoFiles) -> Option<&'static str> {
    match files {
        IoFiles::Shared => None,
        IoFiles::Own => Some("a file a worker"),
        IoFiles::Each => Some("an object a block"),
    }
}

fn order_label(order: IoOrder) -> &'static str {
    match order {
        IoOrder::Seq => "sequential",
        IoOrder::Rand => "random",
    }
}

fn op_label(op: IoOp) -> String {
    match op {
        IoOp::Read => "reads".into(),
        IoOp::Write => "writes".into(),
        IoOp::Mix { reads } => format!("I/Os, {reads} % reads,"),
    }
}

fn engine_label(engine: IoEngine) -> &'static str {
    match engine {
        IoEngine::Uring => "io_uring",
        IoEngine::UringPlain => "io_uring unregistered",
        IoEngine::UringPoll => "io_uring polled",
        IoEngine::Aio => "libaio",
        IoEngine::Sync => "pread/pwrite",
        IoEngine::Gds => "GPU direct",
        IoEngine::Mmap => "mmap",
        IoEngine::MmapPlain => "mmap without advice",
        IoEngine::MmapPopulate => "mmap, populated",
        IoEngine::S3 => "S3",
    }
}

/// Statistics of an I/O series in addition to its rate: medians over samples, latencies over all
/// samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorageSummary {
    /// Operations per second until the last worker finished.
    pub iops: Option<f64>,
    /// Operations per second until the first worker finished.
    pub first_iops: Option<f64>,
    /// Latencies in us: minimum, median, 99th, 99.9th percentile, maximum.
    pub latency: [Option<f64>; 5],
    /// CPU time per operation, us.
    pub cpu_us: Option<f64>,
    /// Requests to the device per operation.
    pub requests: Option<f64>,
}

impl StorageSummary {
    /// `None` if the series is not of I/O.
    pub fn from_series(series: &FlowSeries) -> Option<Self> {
        series.flow.by.io()?;
        let of = |asked| values(std::slice::from_ref(series), asked);
        let median = |asked| SeriesSummary::of(&of(asked)).map(|s| s.median);
        let all = merged(series.io.iter());
        let quantiles = [0.5, 0.99, 0.999].map(IoQuantity::Quantile);
        let [half, most, tail] = quantiles.map(|asked| asked.of_histogram(&all));
        let [min, max] = [IoQuantity::Min, IoQuantity::Max].map(|asked| asked.of_histogram(&all));
        Some(Self {
            iops: median(IoQuantity::Iops),
            first_iops: median(IoQuantity::FirstIops),
            latency: [min, half, most, tail, max],
            cpu_us: median(IoQuantity::Cpu),
            requests: median(IoQuantity::Requests),
        })
    }
    /// `, 93741 IOPS, p50 1350 us, p99 1800 us, 2.80 us of CPU an I/O`.
    pub(crate) fn text(&self) -> String {
        let number = crate::fmt::number;
        let [_, half, most, ..] = self.latency;
        let parts = [
            self.iops.map(|v| format!(", {} IOPS", number(v))),
            half.map(|v| format!(", p50 {} us", number(v))),
            most.map(|v| format!(", p99 {} us", number(v))),
            self.cpu_us.map(|v| format!(", {} us of CPU an I/O", number(v))),
        ];
        parts.into_iter().flatten().collect()
    }
}
