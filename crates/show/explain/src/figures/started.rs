//! Non-blocking collectives with the overlap that they leave, and further operations of MPI by
//! size.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, Collective, OverlapWork, SuiteId, Transport, WireOp};

use super::pivot::{CellPivot, chart, least, most};
use super::sent_flows::{SentFlow, in_suite};
use super::{BetterWhen, Figure, FigureCell, SuiteFindings, frame, sorted};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

pub(super) const SUITES: &[SuiteId] = &[
    SuiteId::MpiMultiLatency,
    SuiteId::MpiOverlap,
    SuiteId::MpiPersistent,
    SuiteId::MpiWindows,
    SuiteId::MpiAtomics,
];

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let mut figures = overlap(run);
    figures.extend(times(run, SuiteId::MpiMultiLatency, "several round trips at once"));
    figures.extend(times(run, SuiteId::MpiOverlap, "non-blocking collectives"));
    figures.extend(times(run, SuiteId::MpiPersistent, "persistent operations"));
    figures.extend(times(run, SuiteId::MpiWindows, "kinds of windows and synchronisation"));
    figures.extend(times(run, SuiteId::MpiAtomics, "atomic operations"));
    SuiteFindings::new(figures, [])
}

/// The operation of a case, as a line of a chart.
fn name(sent: &SentFlow<'_, '_>) -> String {
    let wire = sent.wire;
    let mut text = wire.op.to_string();
    for word in [wire.window.map(|w| w.to_string()), wire.sync.map(|s| s.to_string())] {
        text.extend(word.map(|word| format!(",{word}")));
    }
    let at_once = match sent.at_once {
        0 | 1 => String::new(),
        n => format!(", {n} pairs"),
    };
    format!("{text}{at_once}, {}", sent.memories())
}

/// Times of all operations of a suite, by size.
fn times(run: &RunView, suite: SuiteId, what: &str) -> Option<Figure> {
    let all = in_suite(run, suite);
    let title = format!("{}: {what}, time by size", run.library(Transport::Mpi));
    let points = all.iter().map(|sent| sent.at_size(run, name(sent), CaseQuantity::StepUs));
    let axes = (CaseQuantity::StepUs, "B");
    chart((suite, suite.word()), title, axes, run, points, |lines| {
        let first = |line: &super::ChartLine| {
            let (x, cell) = line.points.first()?;
            let (us, size) = (fmt::number(cell.value?), Bytes(*x as u64));
            Some((cell.value?, format!("{} takes {us} us at {size}", line.name)))
        };
        let mut all: Vec<(f64, String)> = lines.iter().filter_map(first).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        match all.as_slice() {
            [] => String::new(),
            [one] => format!("{}.", one.1),
            [least, .., most] => format!("{}; {}.", least.1, most.1),
        }
    })
}

/// The overlap of each collective, size and memory, as OSU defines it: the part of the
/// communication's own time that work between its start and its end hides, in %.
fn overlap(run: &RunView) -> Vec<Figure> {
    let all = in_suite(run, SuiteId::MpiOverlap);
    let memories: BTreeSet<String> = all.iter().map(SentFlow::memories).collect();
    memories.into_iter().filter_map(|memory| of_memory(run, &all, &memory)).collect()
}

/// A collective, with or without tests while computing.
type OverlapRow = (Collective, bool);

fn of_memory(run: &RunView, all: &[SentFlow<'_, '_>], memory: &str) -> Option<Figure> {
    let here = || all.iter().filter(|sent| sent.memories() == memory);
    let row = |sent: &SentFlow<'_, '_>| -> Option<OverlapRow> {
        match sent.wire.op {
            WireOp::Overlapped { op, work: OverlapWork::Compute } => Some((op, false)),
            WireOp::Overlapped { op, work: OverlapWork::ComputeTest } => Some((op, true)),
            _ => None,
        }
    };
    let cell = |at: OverlapRow, size: Bytes| {
        let alone = WireOp::Overlapped { op: at.0, work: OverlapWork::Nothing };
        let of_size = || here().filter(|sent| sent.size() == size);
        let total = of_size().find(|sent| row(sent) == Some(at))?.entry;
        let pure = of_size().find(|sent| sent.wire.op == alone)?.entry;
        let compute = OverlapWork::read_compute(total.engine())?;
        let [t, p] = [total, pure].map(|entry| run.cell(entry, CaseQuantity::StepNs));
        let pure_ns = p.value?;
        let exposed = (t.value? - compute.0) / pure_ns;
        let value = (1.0 - exposed).clamp(0.0, 1.0) * 100.0;
        let half_width = 100.0
            * ((t.half_width / pure_ns).powi(2) + (exposed * p.half_width / pure_ns).powi(2))
                .sqrt();
        Some(FigureCell { half_width, ..FigureCell::stated(total, Some(value)) })
    };
    let rows = sorted(here().filter_map(row));
    let sizes = sorted(here().map(SentFlow::size));
    let pivot = CellPivot::filled(&rows, &sizes, |row, size| cell(*row, *size).unwrap_or_default());
    let values = || pivot.cells().filter_map(|(row, _, cell)| Some((cell.value?, *row)));
    let named = |(value, (op, tests)): (f64, OverlapRow)| {
        format!("{value:.0} % (i{op}{})", if tests { " with tests" } else { "" })
    };
    let (best, worst) = (named(most(values())?), named(least(values())?));
    let finding = format!(
        "Work between start and wait hides {worst} to {best} of the communication in {memory}."
    );
    let matrix = pivot.matrix(
        ("collective", |(op, tests)| format!("i{op}{}", if *tests { " + tests" } else { "" })),
        ("size", Bytes::to_string),
        ("%", BetterWhen::Higher),
    );
    let id = format!("mpi-overlap-{}", memory.replace(' ', "-"));
    let library = run.library(Transport::Mpi);
    let title = format!("{library}: communication that work hides, {memory}, %");
    Some(frame(run, (SuiteId::MpiOverlap, ""), id, title).finding(finding).draw(matrix))
}
