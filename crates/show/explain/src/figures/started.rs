//! Non-blocking collectives with the overlap that they leave, and further operations of MPI by
//! size.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, Collective, OverlapWork, SuiteId, Transport, WireOp};

use super::pivot::{CellPivot, least, most};
use super::sent_flows::{ChartSpec, SentFlow, in_suite};
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
    SuiteFindings::new(figures, Vec::<Option<String>>::new())
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
    let library = run.library(Transport::Mpi);
    let chart = ChartSpec::new(
        (suite, suite.word()),
        format!("{library}: {what}, time by size"),
        CaseQuantity::StepUs,
        "B",
    );
    let points = all
        .iter()
        .map(|sent| (name(sent), sent.size().as_f64(), run.cell(sent.entry, chart.quantity)));
    chart.draw(run, points, |lines| {
        let first = |line: &super::ChartLine| {
            let (x, cell) = line.points.first()?;
            Some((cell.value?, *x, line.name.clone()))
        };
        let mut all: Vec<(f64, f64, String)> = lines.iter().filter_map(first).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some(least), Some(most)) = (all.first(), all.last()) else { return String::new() };
        let one = |(us, x, name): &(f64, f64, String)| {
            format!("{name} takes {} us at {}", fmt::number(*us), Bytes(*x as u64))
        };
        if all.len() < 2 {
            format!("{}.", one(least))
        } else {
            format!("{}; {}.", one(least), one(most))
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
    let cell = |at: OverlapRow, size: Bytes| -> FigureCell {
        let found = here().find(|sent| row(sent) == Some(at) && sent.size() == size);
        let pure = here().find(|sent| {
            let alone = WireOp::Overlapped { op: at.0, work: OverlapWork::Nothing };
            sent.wire.op == alone && sent.size() == size
        });
        let (Some(total), Some(pure)) = (found, pure) else { return FigureCell::default() };
        let Some(compute) = OverlapWork::read_compute(total.entry.engine()) else {
            return FigureCell::default();
        };
        let (t, p) = (
            run.cell(total.entry, CaseQuantity::StepNs),
            run.cell(pure.entry, CaseQuantity::StepNs),
        );
        let (Some(total_ns), Some(pure_ns)) = (t.value, p.value) else {
            return FigureCell::default();
        };
        let exposed = (total_ns - compute.0) / pure_ns;
        let value = (1.0 - exposed).clamp(0.0, 1.0) * 100.0;
        let half_width = 100.0
            * ((t.half_width / pure_ns).powi(2) + (exposed * p.half_width / pure_ns).powi(2))
                .sqrt();
        FigureCell {
            value: Some(value),
            half_width,
            case: Some(total.entry.case.clone()),
            ..FigureCell::default()
        }
    };
    let places = here().filter_map(|sent| Some((row(sent)?, sent.size())));
    let mut pivot = CellPivot::new(places.map(|(row, size)| (row, size, cell(row, size)))).sorted();
    pivot.cols = sorted(here().map(SentFlow::size));
    let values = || pivot.cells().filter_map(|(row, cell)| Some((cell.value?, *row)));
    let (best, worst) = (most(values())?, least(values())?);
    let named = |(value, (op, tests)): (f64, OverlapRow)| {
        let tests = if tests { " with tests" } else { "" };
        format!("{value:.0} % (i{op}{tests})")
    };
    let finding = format!(
        "Work between start and wait hides {} to {} of the communication in {memory}.",
        named(worst),
        named(best)
    );
    let matrix = pivot.matrix(
        ("collective", |(op, tests)| format!("i{op}{}", if *tests { " + tests" } else { "" })),
        ("size", Bytes::to_string),
        ("%", BetterWhen::Higher),
    );
    Some(
        frame(
            run,
            (SuiteId::MpiOverlap, ""),
            format!("mpi-overlap-{}", memory.replace(' ', "-")),
            format!("{}: communication that work hides, {memory}, %", run.library(Transport::Mpi)),
        )
        .finding(finding)
        .draw(matrix),
    )
}
