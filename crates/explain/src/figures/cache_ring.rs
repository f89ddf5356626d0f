//! Processes behind different last-level caches that all send at once, next to one pair of them.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, CoreDistance, ShmCopies, SuiteId, Transport};

use super::sent_flows::SentFlow;
use super::{BetterWhen, Figure, FigureBody, FigureCell, grid};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::Shm;

/// What copies, as a row of the table.
type Method = (Transport, Option<ShmCopies>);

/// Whether a case has each process send to the next one, behind another cache.
pub(super) fn is_ring(sent: &SentFlow<'_, '_>) -> bool {
    sent.at_once > 2 && sent.wire.near == Some(CoreDistance::OtherL3)
}

/// The rate of each method: of one pair, of all together, and what each of all keeps of one alone.
pub(super) fn figure(run: &RunView, all: &[SentFlow<'_, '_>]) -> Option<Figure> {
    let rings: Vec<&SentFlow> = all.iter().filter(|sent| is_ring(sent)).collect();
    let processes = rings.iter().map(|sent| sent.at_once).max()?;
    let key = |sent: &SentFlow<'_, '_>| -> (Method, Bytes) {
        ((sent.wire.via, sent.wire.copies), sent.size())
    };
    let rate = |sent: &SentFlow<'_, '_>| run.cell(sent.entry, CaseQuantity::Payload);
    let mut rows: Vec<(Method, Bytes)> = rings.iter().map(|sent| key(sent)).collect();
    rows.sort_by_key(|(_, bytes)| *bytes);
    rows.dedup();
    let alone: BTreeMap<(Method, Bytes), FigureCell> = all
        .iter()
        .filter(|sent| {
            sent.at_once == 1
                && sent.wire.near == Some(CoreDistance::OtherL3)
                && sent.wire.op.window() == 1
                && sent.wire.op.kind() == "send"
        })
        .map(|sent| (key(sent), rate(sent)))
        .collect();
    let together: BTreeMap<(Method, Bytes), FigureCell> =
        rings.iter().map(|sent| (key(sent), rate(sent))).collect();
    let each = |row: &(Method, Bytes)| -> Option<f64> {
        let sum = together.get(row)?.value?;
        Some(sum / processes as f64 / alone.get(row)?.value?)
    };
    let worst =
        rows.iter().filter_map(|row| Some((row, each(row)?))).min_by(|a, b| a.1.total_cmp(&b.1));
    let finding = worst.map_or(String::new(), |(row, share)| {
        format!(
            "At the worst each process keeps {} of the rate of one pair alone: {}.",
            fmt::percent(share),
            label(row)
        )
    });
    let columns = [("one pair", &alone), ("all at once, sum", &together)];
    let at: Vec<usize> = (0..rows.len()).collect();
    let matrix = grid(
        ("copies", &at),
        ("", &[0_usize, 1]),
        ("GB/s", BetterWhen::Higher),
        (|row: usize| label(&rows[row]), |column: usize| columns[column].0.to_owned()),
        |row, column| columns[column].1.get(&rows[row]).cloned().unwrap_or_default(),
    );
    Some(Figure {
        id: "shm-ring".into(),
        suite: SUITE.into(),
        title: format!("{processes} processes, each behind another last-level cache, send at once"),
        finding,
        command: run.command(SUITE, ""),
        body: FigureBody::Matrix(matrix),
    })
}

fn label(((via, copies), bytes): &(Method, Bytes)) -> String {
    let how = copies.map_or_else(String::new, |copies| format!(" {copies}"));
    format!("{via}{how} x {}", bytes.rounded())
}
