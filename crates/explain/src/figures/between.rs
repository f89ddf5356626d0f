//! What figures between processes share: names, lines over size, and the columns of other tools.

use pathline_schema::{
    Bytes, Flow, FlowSeries, Journal, MemKind, MessageOp, Rank, Transport, WireOp,
};

use super::{BetterWhen, CurvesBody, Figure, FigureBody, FigureCell, grid, lines};
use crate::run::{CaseQuantity, EntryState, RunEntry, RunView};

/// A flow between processes, with the case that times it.
#[derive(Clone, Copy)]
pub(super) struct SentFlow<'b, 'a> {
    pub(super) entry: &'b RunEntry<'a>,
    /// The first timed flow.
    pub(super) flow: &'a Flow,
    pub(super) wire: &'a MessageOp,
    /// How many are timed at once.
    pub(super) at_once: usize,
}

impl SentFlow<'_, '_> {
    pub(super) fn kind(&self) -> SendKind {
        SendKind { mem: self.flow.src.mem, staged: self.wire.via == Transport::MpiStaged }
    }
    pub(super) fn size(&self) -> Bytes {
        self.flow.bytes
    }
    /// How many take part in a collective: ranks, or GPUs of the one process.
    pub(super) fn partners(&self) -> usize {
        partners(self.flow)
    }
}

/// Ranks from first to last, or GPUs where the process is the same.
pub(crate) fn partners(flow: &Flow) -> usize {
    let between = |a: u32, b: u32| b.saturating_sub(a) as usize + 1;
    match (flow.src.unit.gpu(), flow.dst.unit.gpu()) {
        (Some(a), Some(b)) if flow.src.rank == flow.dst.rank => between(a, b),
        _ => between(flow.src.rank.0, flow.dst.rank.0),
    }
}

/// All of a suite.
pub(super) fn of<'b, 'a>(run: &'b RunView<'a>, suite: &'b str) -> Vec<SentFlow<'b, 'a>> {
    run.suite(suite)
        .filter_map(|entry| {
            let flow = entry.case.timed.first()?;
            let wire = flow.by.wire()?;
            Some(SentFlow { entry, flow, wire, at_once: entry.case.timed.len() })
        })
        .collect()
}

/// What messages are sent from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SendKind {
    pub(super) mem: MemKind,
    /// Through host memory by copies of ours, where the library takes nothing else.
    pub(super) staged: bool,
}

impl SendKind {
    pub(super) const fn of(mem: MemKind) -> Self {
        Self { mem, staged: false }
    }
    /// Its part of a figure's anchor.
    pub(super) fn id(self) -> String {
        if self.staged { format!("{}-staged", self.mem) } else { self.mem.to_string() }
    }
}

/// The memory that messages are sent from, as people call it.
pub(super) fn memory(kind: SendKind) -> &'static str {
    match kind.mem {
        MemKind::Vram if kind.staged => "device memory staged through the host",
        MemKind::Vram => "device memory",
        MemKind::Paged => "host memory",
        MemKind::Pinned => "pinned memory",
        MemKind::Managed => "managed memory",
        MemKind::Huge => "huge pages",
        mem => super::mem_words(mem),
    }
}

/// The library that carries it, as the first rank that has it says; else its way.
pub(super) fn library(run: &RunView, via: Transport) -> String {
    library_of(run.journal, via)
}

/// The same, of a journal.
pub(crate) fn library_of(journal: &Journal, via: Transport) -> String {
    let members = &journal.begin.ranks;
    let told = members.iter().find_map(|m| m.ways.get(&via.carrier()));
    // Versions and files follow the name.
    let name = told.and_then(|text| text.split([',', '(']).next()).map(str::trim);
    match (name.filter(|n| !n.is_empty()), via) {
        (Some(name), _) => name.to_owned(),
        (None, Transport::Mpi | Transport::MpiStaged) => "MPI".into(),
        (None, Transport::Ccl) => "NCCL or RCCL".into(),
        (None, Transport::Ucx) => "UCX".into(),
        (None, Transport::Shm) => "shared memory".into(),
        (None, Transport::Cma) => "process_vm_readv and writev".into(),
        (None, Transport::Xpmem) => "xpmem".into(),
    }
}

/// What a chart is called and how it is judged.
pub(super) struct ChartSpec<'c> {
    pub(super) id: &'c str,
    pub(super) suite: &'c str,
    pub(super) title: String,
    pub(super) quantity: CaseQuantity,
    pub(super) x_unit: &'c str,
    pub(super) pattern: &'c str,
}

impl ChartSpec<'_> {
    /// Lines of named points; none if nothing was measured.
    pub(super) fn draw(
        &self,
        run: &RunView,
        points: impl IntoIterator<Item = (String, f64, FigureCell)>,
        finding: impl FnOnce(&[super::ChartLine]) -> String,
    ) -> Option<Figure> {
        let lines = lines(points.into_iter().filter(|(_, _, cell)| cell.value.is_some()));
        if lines.is_empty() {
            return None;
        }
        let better = match self.quantity {
            CaseQuantity::Payload | CaseQuantity::Traffic => BetterWhen::Higher,
            CaseQuantity::StepNs | CaseQuantity::StepUs => BetterWhen::Lower,
        };
        Some(Figure {
            id: self.id.into(),
            suite: self.suite.into(),
            title: self.title.clone(),
            finding: finding(&lines),
            command: run.command(self.suite, self.pattern),
            body: FigureBody::Curves(CurvesBody {
                x_unit: self.x_unit.into(),
                y_unit: self.quantity.unit().into(),
                ceilings: Vec::new(),
                lines,
                marks: Vec::new(),
                better,
            }),
        })
    }
}

/// Half intervals that do not reach each other.
pub(super) fn apart(a: &FigureCell, b: &FigureCell) -> bool {
    match (a.value, b.value) {
        (Some(x), Some(y)) => (x - y).abs() > a.half_width + b.half_width,
        _ => false,
    }
}

/// What another tool would print of a case, from the times of single ranks; us.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CountedTimes {
    /// Of rank 0, or the first that took part: what OSU's programs of two ranks print.
    pub(crate) first: f64,
    /// Over ranks, of each rank's mean.
    pub(crate) mean: f64,
    /// The least of them.
    pub(crate) min: f64,
    /// The greatest of them.
    pub(crate) max: f64,
    /// Operations in all.
    pub(crate) operations: u64,
}

/// Times of one operation by rank, us. A window is one operation. Where ranks did not say, the
/// sample, which is the time of the latest, stands for all.
pub(crate) fn counted(series: &FlowSeries) -> Option<CountedTimes> {
    let reps = series.reps.max(1) as f64;
    let mean = |samples: &[f64]| {
        let n = samples.len();
        (n > 0).then(|| samples.iter().sum::<f64>() / n as f64 / reps / 1e3)
    };
    let ranks: Vec<(Rank, f64)> =
        series.by_rank.iter().filter_map(|(&rank, samples)| Some((rank, mean(samples)?))).collect();
    let whole = mean(&series.samples_ns)?;
    let first = ranks.iter().find(|(rank, _)| *rank == series.flow.src.rank).map(|r| r.1);
    let times: Vec<f64> =
        if ranks.is_empty() { vec![whole] } else { ranks.iter().map(|r| r.1).collect() };
    let (min, max) = super::extremes(&times);
    Some(CountedTimes {
        first: first.unwrap_or(whole),
        mean: times.iter().sum::<f64>() / times.len() as f64,
        min,
        max,
        operations: series.reps * series.samples_ns.len() as u64,
    })
}

/// The samples of an entry, if it has some.
pub(crate) fn series<'a>(entry: &RunEntry<'a>) -> &'a [FlowSeries] {
    if let EntryState::Sampled(series) = entry.state { series } else { &[] }
}

/// What OSU's program of two ranks would print: us of a ping, GB/s of windows.
pub(crate) fn osu_of_two(entry: &RunEntry) -> Option<f64> {
    let all = series(entry);
    let first = all.first()?;
    let counted = counted(first)?;
    let wire = first.flow.by.wire()?;
    match wire.op {
        WireOp::Ping => Some(counted.first),
        _ => {
            // Both ways: rank 0's time, and all that went.
            let bytes: f64 = all.iter().map(|s| s.flow.bytes.as_f64()).sum();
            let messages = f64::from(wire.op.window());
            let slowest = all
                .iter()
                .filter_map(self::counted)
                .map(|c| if all.len() > 1 { c.max } else { c.first })
                .fold(0.0, f64::max);
            Some(bytes * messages / (slowest * 1e3))
        }
    }
}

/// A cell of another tool's number for the same case.
pub(super) fn told(entry: &RunEntry, value: Option<f64>) -> FigureCell {
    FigureCell { value, case: Some(entry.case.clone()), ..FigureCell::default() }
}

/// A table of sizes by columns.
pub(super) fn table(
    (id, suite, title, finding): (&str, &str, String, String),
    run: &RunView,
    (unit, better): (&str, BetterWhen),
    (rows, cols): (&[String], &[String]),
    cell: impl Fn(usize, usize) -> FigureCell,
) -> Figure {
    let (r, c): (Vec<usize>, Vec<usize>) = ((0..rows.len()).collect(), (0..cols.len()).collect());
    let name = |names: &[String], at: usize| names.get(at).cloned().unwrap_or_default();
    let matrix = grid(
        ("size", &r),
        ("counted by", &c),
        (unit, better),
        (|at: usize| name(rows, at), |at: usize| name(cols, at)),
        cell,
    );
    Figure {
        id: id.into(),
        suite: suite.into(),
        title,
        finding,
        command: run.command(suite, ""),
        body: FigureBody::Matrix(matrix),
    }
}
