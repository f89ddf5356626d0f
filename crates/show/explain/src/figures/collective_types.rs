//! Reductions by element type and operation: the rate at the largest size, the time at the smallest.

use std::collections::BTreeSet;

use pathline_schema::{
    Bytes, Collective, ElementReduction, ElementType, ReduceOp, SuiteId, Transport,
};

use super::collectives::bus_cell;
use super::pivot::CellPivot;
use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{BetterWhen, Figure, SuiteFindings, frame};
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
    type TableKey = (Transport, SendKind, Bytes);
    let key = |one: &TypedReduction| -> TableKey {
        (one.sent.wire.via, one.sent.kind(), one.sent.size())
    };
    let keys: BTreeSet<TableKey> = all.iter().map(key).collect();
    // The largest size first: it says what a type costs.
    let figures = keys.into_iter().rev().filter_map(|of| {
        let chosen: Vec<TypedReduction> =
            all.iter().filter(|one| key(one) == of).copied().collect();
        table(run, of, &chosen)
    });
    SuiteFindings { figures: figures.collect(), sentences: Vec::new() }
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
    let (unit, better) =
        if rates { ("GB/s", BetterWhen::Higher) } else { ("us", BetterWhen::Lower) };
    let what = if rates { "busbw" } else { "time" };
    let places = pivot
        .rows
        .iter()
        .flat_map(|&element| pivot.cols.iter().map(move |&by| ElementReduction { element, by }));
    let mut values: Vec<(f64, f64, ElementReduction)> = places
        .filter_map(|reduced| {
            let cell = pivot.cell(&reduced.element, &reduced.by);
            Some((cell.value?, cell.half_width, reduced))
        })
        .collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (values.first()?, values.last()?);
    let name = |reduced: ElementReduction| format!("{} {}", reduced.element, reduced.by);
    let finding = if most.0 - least.0 <= most.1 + least.1 {
        format!("No type or operation differs: {} {unit}.", fmt::number(most.0))
    } else {
        format!(
            "From {} {unit} ({}) to {} {unit} ({}), {} times.",
            fmt::number(least.0),
            name(least.2),
            fmt::number(most.0),
            name(most.2),
            fmt::number(most.0 / least.0)
        )
    };
    let n = first.sent.participants();
    let title = format!(
        "{} of {size} by {} over {n} ranks, {}: {what} by type and operation",
        first.op,
        run.library(via),
        memory(kind)
    );
    let matrix = pivot.matrix(
        ("type", ElementType::to_string),
        ("operation", ReduceOp::to_string),
        (unit, better),
    );
    Some(
        frame(run, (SUITE, ""), format!("{SUITE}-{via}-{}-{size}", kind.id()), title)
            .finding(finding)
            .draw(matrix),
    )
}
