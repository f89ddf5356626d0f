//! Reductions by element type and operation: the rate at the largest size, the time at the smallest.

use pathline_schema::{
    Bytes, Collective, ElementReduction, ElementType, ReduceOp, SuiteId, Transport,
};

use super::collectives::bus_cell;
use super::pivot::{CellPivot, GBS, US};
use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{Figure, SuiteFindings, frame, sorted};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::CollectiveTypes;

/// Rates from this size on, times below.
const RATES_FROM: Bytes = Bytes::mib(1);

/// A measured reduction.
#[derive(Clone, Copy)]
struct TypedReduction<'b, 'a> {
    sent: SentFlow<'b, 'a>,
    op: Collective,
    reduced: ElementReduction,
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let all: Vec<TypedReduction> = sent_flows::in_suite(run, SUITE)
        .into_iter()
        .filter_map(|sent| {
            let (op, reduced) = (sent.wire.op.collective()?, sent.wire.op.reduced());
            Some(TypedReduction { sent, op, reduced })
        })
        .collect();
    let key = |one: &TypedReduction| (one.sent.wire.via, one.sent.kind(), one.sent.size());
    // The largest size first: it says what a type costs.
    let keys = sorted(all.iter().map(key)).into_iter().rev();
    let figures = keys.filter_map(|of| {
        let chosen = all.iter().filter(|one| key(one) == of).copied();
        table(run, of, &chosen.collect::<Vec<_>>())
    });
    SuiteFindings::new(figures, [])
}

fn table(
    run: &RunView,
    (via, kind, size): (Transport, SendKind, Bytes),
    all: &[TypedReduction<'_, '_>],
) -> Option<Figure> {
    let first = all.first()?;
    let rates = size >= RATES_FROM;
    let points = all.iter().map(|one| {
        let cell = match rates {
            true => bus_cell(run, &one.sent, one.op),
            false => run.cell(one.sent.entry, CaseQuantity::StepUs),
        };
        (one.reduced.element, one.reduced.by, cell)
    });
    let mut pivot = CellPivot::new(points);
    pivot.rows.sort_by_key(|row| ElementType::ALL.iter().position(|element| element == row));
    pivot.cols.sort_by_key(|col| ReduceOp::ALL.iter().position(|by| by == col));
    let (unit, what) = if rates { (GBS, "busbw") } else { (US, "time") };
    let mut values: Vec<(f64, f64, String)> = pivot
        .cells()
        .filter_map(|(element, by, cell)| {
            Some((cell.value?, cell.half_width, format!("{element} {by}")))
        })
        .collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (values.first()?, values.last()?);
    let [low, high, times] = [least.0, most.0, most.0 / least.0].map(fmt::number);
    let finding = match most.0 - least.0 <= most.1 + least.1 {
        true => format!("No type or operation differs: {high} {}.", unit.0),
        false => format!(
            "From {low} {} ({}) to {high} {} ({}), {times} times.",
            unit.0, least.2, unit.0, most.2
        ),
    };
    let (op, library) = (first.op, run.library(via));
    let (n, memory) = (first.sent.participants(), memory(kind));
    let title = format!(
        "{op} of {size} by {library} over {n} ranks, {memory}: {what} by type and operation"
    );
    let matrix =
        pivot.matrix(("type", ElementType::to_string), ("operation", ReduceOp::to_string), unit);
    let id = format!("{SUITE}-{via}-{}-{size}", kind.id());
    Some(frame(run, (SUITE, ""), id, title).finding(finding).draw(matrix))
}
