//! Metadata: files and folders a second, and the latency of each operation.

use pathline_schema::{
    CaseTimes, Flow, FlowSeries, IoFiles, IoHistogram, IoReading, MetaOp, MetaSpec, SuiteId,
};

use super::{Figure, FigureCell, SuiteFindings, frame};
use crate::figure::{SheetBody, SheetColumn};
use crate::fmt;
use crate::run::{EntryState, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Metadata;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let jobs: Vec<MetaEntry<'_, '_>> = run
        .entries
        .iter()
        .filter_map(|entry| {
            let flow = entry.lone()?;
            Some(MetaEntry { entry, flow, meta: flow.by.meta()? })
        })
        .collect();
    SuiteFindings::new(sheet(run, &jobs), [])
}

/// A case with a single flow of metadata operations.
#[derive(Clone, Copy)]
struct MetaEntry<'b, 'a> {
    entry: &'b RunEntry<'a>,
    flow: &'a Flow,
    meta: &'a MetaSpec,
}

/// A quantity of metadata operations.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MetaQuantity {
    /// Operations per second until the last worker ended.
    LastDone,
    /// Operations per second until the first worker ended.
    FirstDone,
    /// Latency, us: a quantile.
    Quantile(f64),
    /// The longest, us.
    Max,
    /// CPU time of all workers, us per operation.
    Cpu,
}

impl MetaQuantity {
    fn of_sample(self, ns: f64, reading: &IoReading, ops: f64) -> Option<f64> {
        let value = match self {
            Self::LastDone => ops / ns * 1e9,
            Self::FirstDone => reading.first_done_ops as f64 / reading.first_done_ns * 1e9,
            Self::Cpu => (reading.cpu_user_ns + reading.cpu_system_ns) / ops / 1e3,
            Self::Quantile(_) | Self::Max => self.of_latencies(&reading.latency)?,
        };
        (value.is_finite() && value >= 0.0).then_some(value)
    }

    fn of_latencies(self, all: &IoHistogram) -> Option<f64> {
        match self {
            Self::Quantile(share) => Some(all.quantile(share)?.0 / 1e3),
            Self::Max => (!all.is_empty()).then_some(all.max_ns as f64 / 1e3),
            _ => None,
        }
    }
}

impl<'a> MetaEntry<'_, 'a> {
    fn series(&self) -> Option<&'a FlowSeries> {
        match self.entry.state {
            EntryState::Sampled(all) => all.first(),
            EntryState::Absent(_) => None,
        }
    }

    /// A median over samples with its interval; of latencies, the value of all samples together.
    fn cell(&self, asked: MetaQuantity) -> FigureCell {
        let mut all = IoHistogram::default();
        let (mut values, mut visits) = (Vec::new(), &[][..]);
        if let Some(series) = self.series() {
            let ops = series.steps as f64;
            let samples = series.samples_ns.iter().zip(&series.io);
            values.extend(samples.filter_map(|(ns, io)| asked.of_sample(*ns, io, ops)));
            series.io.iter().for_each(|reading| all.add(&reading.latency));
            visits = &series.visits;
        }
        let times = CaseTimes::from_values(&values, visits);
        let cell = FigureCell::derived(self.entry, &times, asked.of_latencies(&all));
        // The longest of all has no interval.
        if asked == MetaQuantity::Max { cell.exact() } else { cell }
    }

    fn rate(&self) -> Option<f64> {
        self.cell(MetaQuantity::LastDone).value
    }

    /// `create, 4KiB each, 8 threads, shared folders`.
    fn label(&self, several_stores: bool) -> String {
        let MetaSpec { op, folders, threads, .. } = *self.meta;
        let mut parts = vec![op.word().to_owned()];
        if several_stores {
            let store = self.flow.io_ends().0.unit;
            parts.push(store.to_string());
        }
        if self.flow.bytes.0 > 1 {
            parts.push(format!("{} each", self.flow.bytes));
        }
        parts.push(fmt::threads(threads));
        if threads > 1 && folders == IoFiles::Shared {
            parts.push("shared folders".to_owned());
        }
        parts.join(", ")
    }
}

fn sheet(run: &RunView, jobs: &[MetaEntry<'_, '_>]) -> Option<Figure> {
    if jobs.is_empty() {
        return None;
    }
    // Different operations have no common best.
    let column = SheetColumn::neutral;
    let columns = [
        (MetaQuantity::LastDone, column("last done", "/s")),
        (MetaQuantity::FirstDone, column("first done", "/s")),
        (MetaQuantity::Quantile(0.5), column("p50", "us")),
        (MetaQuantity::Quantile(0.99), column("p99", "us")),
        (MetaQuantity::Max, column("max", "us")),
        (MetaQuantity::Cpu, column("CPU each", "us")),
    ];
    let store = |job: &MetaEntry| job.flow.io_ends().0.unit;
    let several = jobs.iter().any(|job| jobs.iter().any(|other| store(other) != store(job)));
    let row = |job: &MetaEntry| {
        (job.label(several), columns.iter().map(|(asked, _)| job.cell(*asked)).collect())
    };
    Some(
        frame(run, (SUITE, ""), SUITE.word(), "Files and folders a second")
            .finding(finding(jobs))
            .draw(SheetBody {
                row_axis: "operation".into(),
                rows: jobs.iter().map(row).collect(),
                columns: columns.into_iter().map(|(_, column)| column).collect(),
            }),
    )
}

/// What more workers gain, and what it costs them to share folders.
fn finding(jobs: &[MetaEntry<'_, '_>]) -> String {
    let alike = |a: &MetaEntry, b: &MetaEntry| {
        a.meta.op == b.meta.op
            && a.flow.bytes == b.flow.bytes
            && a.flow.io_ends().0 == b.flow.io_ends().0
    };
    let find = |job: &MetaEntry, threads: u32, folders: IoFiles| {
        let same = |o: &&MetaEntry| {
            alike(o, job) && o.meta.threads == threads && o.meta.folders == folders
        };
        jobs.iter().find(same).and_then(MetaEntry::rate)
    };
    let mut texts = Vec::new();
    let creates = jobs.iter().find(|job| {
        job.meta.op == MetaOp::Create && job.meta.threads > 1 && job.meta.folders == IoFiles::Own
    });
    if let Some(job) = creates {
        let threads = job.meta.threads;
        let (one, all) = (find(job, 1, IoFiles::Own), job.rate());
        if let (Some(one), Some(all)) = (one, all) {
            let times = fmt::number(all / one);
            texts.push(format!("{} create {times} times the files of one", fmt::threads(threads)));
        }
        let shared = find(job, threads, IoFiles::Shared);
        if let (Some(own), Some(shared)) = (job.rate(), shared) {
            let share = fmt::percent(shared / own);
            texts.push(format!("in folders that they share they create {share} of that"));
        }
    }
    let ends = "Last done: all operations over the time until the last worker ended. Names are looked \
                up in warm caches of the kernel";
    texts.push(ends.to_owned());
    let texts: Vec<String> = texts.iter().map(|text| fmt::sentence(text)).collect();
    format!("{}.", texts.join(". "))
}
