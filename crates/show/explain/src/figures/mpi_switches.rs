//! MPI over UCX by each generation of UCX's protocols: times next to each other, and the difference.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, MemKind, SuiteId, Transport, UcxSetting};

use super::pivot::{CellPivot, US};
use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{
    BetterWhen, Figure, FigureCell, SuiteFindings, distinct, extremes, frame, is_apart, sorted,
};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::MpiSwitches;
/// The generations: what is compared, and with what.
const NEW: UcxSetting = UcxSetting::ProtoV2;
const OLD: UcxSetting = UcxSetting::ProtoV1;
/// Up to this size an operation is short.
const SHORT: Bytes = Bytes::kib(8);

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let all = sent_flows::in_suite(run, SUITE);
    let kinds: BTreeSet<SendKind> = all.iter().map(SentFlow::kind).map(host_kind).collect();
    SuiteFindings::new(kinds.into_iter().flat_map(|kind| figures(run, &all, kind)), [])
}

/// A barrier has no memory; it stands with those of host memory.
fn host_kind(kind: SendKind) -> SendKind {
    if kind.mem == MemKind::Reg { SendKind::from_kind(MemKind::Paged) } else { kind }
}

/// A row: the name of an operation, whatever its window is.
type Row = &'static str;

/// Times of one kind of memory, and the differences.
fn figures(run: &RunView, all: &[SentFlow<'_, '_>], kind: SendKind) -> Vec<Figure> {
    let of_kind = all.iter().filter(|sent| host_kind(sent.kind()) == kind);
    let point = |sent: &SentFlow| {
        let switch = sent.wire.switch.filter(|_| sent.entry.is_sampled())?;
        // Windows by their time, too: more is worse in every row.
        let cell = run.cell(sent.entry, CaseQuantity::StepUs);
        Some(((sent.wire.op.kind(), switch), sent.size(), cell))
    };
    let mut points: Vec<((Row, UcxSetting), Bytes, FigureCell)> =
        of_kind.filter_map(point).collect();
    // Of windows of several lengths the last counts.
    points.reverse();
    let order = distinct(points.iter().rev().map(|point| point.0.0));
    let rows: Vec<(Row, UcxSetting)> =
        order.iter().flat_map(|&row| [(row, OLD), (row, NEW)]).collect();
    let sizes = sorted(points.iter().map(|point| point.1));
    let times = CellPivot::new(points).with(&rows, &sizes);
    let both = |row: Row, size: &Bytes| [OLD, NEW].map(|by| times.cell(&(row, by), size));
    let changes = CellPivot::filled(&order, &sizes, |row, size| {
        let [old, new] = both(row, size);
        change(&old, &new)
    });
    let compared: Vec<(Row, Bytes, Option<f64>, bool)> = changes
        .cells()
        .map(|(row, size, cell)| {
            let [old, new] = both(row, size);
            (*row, *size, cell.value, is_apart(&old, &new))
        })
        .collect();
    let operation = |row: &Row| (*row).to_owned();
    let size = ("size", Bytes::to_string);
    let changes = changes.matrix(("operation", operation), size, ("%", BetterWhen::Lower));
    let times = times.matrix(("operation", |(row, switch)| label(row, *switch)), size, US);
    let (library, memory) = (run.library(Transport::Mpi), memory(kind));
    let figure = |id: &str, title: &str, finding: String, body| {
        let id = format!("mpi-switches-{id}-{}", kind.id());
        let title = format!("{library}: time by {title}, {memory}");
        frame(run, (SUITE, ""), id, title).finding(finding).draw(body)
    };
    let by_change = "UCX's second generation of protocols over the first";
    let by_times = "each generation of UCX's protocols";
    let figures = [
        figure("change", by_change, sentence(&compared), changes),
        figure("times", by_times, String::new(), times),
    ];
    figures.into_iter().filter(|_| !order.is_empty()).collect()
}

fn label(row: Row, switch: UcxSetting) -> String {
    let generation = if switch == NEW { "v2" } else { "v1" };
    let (name, value) = switch.setting();
    format!("{row}, {generation} ({name}={value})")
}

/// How much longer the new one takes than the old one, in percent.
fn change(old: &FigureCell, new: &FigureCell) -> FigureCell {
    let value = old.value.zip(new.value).map(|(old, new)| (new / old - 1.0) * 100.0);
    let relative = |cell: &FigureCell| cell.half_width / cell.value.unwrap_or(1.0);
    let half_width = value.map_or(0.0, |value| {
        // Errors of a quotient add up in squares.
        (100.0 + value) * relative(old).hypot(relative(new))
    });
    FigureCell { value, half_width, case: new.case.clone(), ..FigureCell::default() }
}

/// By how much the second generation is longer, of short operations and of long ones: the range of the
/// differences beyond their intervals.
fn sentence(points: &[(Row, Bytes, Option<f64>, bool)]) -> String {
    let text = |what: &str, short: bool| {
        let compared = points
            .iter()
            .filter(|(_, size, ..)| (*size <= SHORT) == short)
            .filter_map(|(.., value, apart)| value.map(|value| (value, *apart)));
        let compared: Vec<(f64, bool)> = compared.collect();
        let differ: Vec<f64> = compared.iter().filter(|(_, apart)| *apart).map(|v| v.0).collect();
        let (least, most) = extremes(&differ);
        let [lower, upper] = [least, most].map(fmt::number);
        let range = if lower == upper { lower } else { format!("{lower} to {upper}") };
        match (compared.len(), differ.len()) {
            (0, _) => None,
            (n, 0) => Some(format!("{what} take equally long ({n} compared).")),
            (n, differ) => Some(format!(
                "{what} take {range} % longer by the second generation ({differ} of {n} differ \
                 beyond their intervals)."
            )),
        }
    };
    let texts = [text("Operations of up to 8 KiB", true), text("Larger ones", false)];
    fmt::join_any(texts.into_iter().flatten(), " ").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(value: f64, half_width: f64) -> FigureCell {
        FigureCell { value: Some(value), half_width, ..FigureCell::default() }
    }

    #[test]
    fn overhead_is_in_percent_of_the_first_generation() {
        // 1.3 us over 1 us are +30 %; 3 % and 4 % of uncertainty are 5 % of 130.
        let cell = change(&cell(1.0, 0.03), &cell(1.3, 0.052));
        assert!((cell.value.unwrap() - 30.0).abs() < 1e-9);
        assert!((cell.half_width - 6.5).abs() < 1e-9);
        assert_eq!(change(&FigureCell::default(), &cell).value, None);
    }

    #[test]
    fn differences_within_their_intervals_are_none() {
        let at = |size, value, apart| ("all_reduce", Bytes(size), Some(value), apart);
        let text = sentence(&[at(8, 30.0, true), at(1024, 3.0, false), at(1 << 20, 2.0, false)]);
        let expected = "Operations of up to 8 KiB take 30.0 % longer by the second generation (1 of 2 \
                        differ beyond their intervals). Larger ones take equally long (1 compared).";
        assert_eq!(text, expected);
    }
}
