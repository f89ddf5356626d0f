//! MPI over UCX by each generation of UCX's protocols: times next to each other, and the difference.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Bytes, MemKind, SuiteId, Transport, UcxSetting};

use super::sent_flows::{self, SendKind, SentFlow, memory};
use super::{BetterWhen, Figure, FigureCell, SuiteFindings, frame, grid, is_apart, sorted};
use crate::fmt;
use crate::run::{CaseQuantity, EntryState, RunView};

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
    let mut found: BTreeMap<(Row, Bytes, UcxSetting), FigureCell> = BTreeMap::new();
    let mut order: Vec<Row> = Vec::new();
    for sent in all.iter().filter(|sent| host_kind(sent.kind()) == kind) {
        let (Some(switch), EntryState::Sampled(_)) = (sent.wire.switch, &sent.entry.state) else {
            continue;
        };
        let row = sent.wire.op.kind();
        if !order.contains(&row) {
            order.push(row);
        }
        // Windows by their time, too: more is worse in every row.
        found.insert((row, sent.size(), switch), run.cell(sent.entry, CaseQuantity::StepUs));
    }
    let sizes = sorted(found.keys().map(|key| key.1));
    if order.is_empty() {
        return Vec::new();
    }
    let cell = |row: Row, size: Bytes, switch| {
        found.get(&(row, size, switch)).cloned().unwrap_or_default()
    };
    let change = |row: Row, size: Bytes| change(&cell(row, size, OLD), &cell(row, size, NEW));
    let library = run.library(Transport::Mpi);
    let rows: Vec<(Row, UcxSetting)> =
        order.iter().flat_map(|&row| [(row, OLD), (row, NEW)]).collect();
    let times = grid(
        ("operation", &rows),
        ("size", &sizes),
        ("us", BetterWhen::Lower),
        (|(row, switch): (Row, UcxSetting)| label(row, switch), |size: Bytes| size.to_string()),
        |(row, switch), size| cell(row, size, switch),
    );
    let changes = grid(
        ("operation", &order),
        ("size", &sizes),
        ("%", BetterWhen::Lower),
        (|row: Row| row.to_owned(), |size: Bytes| size.to_string()),
        change,
    );
    let figure = |id: &str, title: String, finding: String, body| {
        frame(run, (SUITE, ""), format!("mpi-switches-{id}-{}", kind.id()), title)
            .finding(finding)
            .draw(body)
    };
    let memory = memory(kind);
    let points: Vec<(Row, Bytes, Option<f64>, bool)> = order
        .iter()
        .flat_map(|&row| sizes.iter().map(move |&size| (row, size)))
        .map(|(row, size)| {
            let (old, new) = (cell(row, size, OLD), cell(row, size, NEW));
            (row, size, change(row, size).value, is_apart(&old, &new))
        })
        .collect();
    vec![
        figure(
            "change",
            format!(
                "{library}: time by UCX's second generation of protocols over the first, {memory}"
            ),
            sentence(&points),
            changes,
        ),
        figure(
            "times",
            format!("{library}: time by each generation of UCX's protocols, {memory}"),
            String::new(),
            times,
        ),
    ]
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
        let least = differ.iter().copied().fold(f64::INFINITY, f64::min);
        let most = differ.iter().copied().fold(f64::NEG_INFINITY, f64::max);
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
    let short = text("Operations of up to 8 KiB", true);
    let long = text("Larger ones", false);
    [short, long].into_iter().flatten().collect::<Vec<_>>().join(" ")
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
