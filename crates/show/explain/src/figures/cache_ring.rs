//! Processes behind different last-level caches that all send at once, next to one pair of them.

use pathline_schema::{Bytes, CoreDistance, ShmCopies, SuiteId, Transport};

use super::pivot::{CellPivot, GBS, least};
use super::sent_flows::SentFlow;
use super::{Figure, frame};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

const SUITE: SuiteId = SuiteId::Shm;

/// Columns of the table.
const ALONE: &str = "one pair";
const TOGETHER: &str = "all at once, sum";

/// What copies, as a row of the table.
type Method = (Transport, Option<ShmCopies>);

/// Whether a case has each process send to the next one, behind another cache.
pub(super) fn is_ring(sent: &SentFlow<'_, '_>) -> bool {
    sent.at_once > 2 && sent.wire.near == Some(CoreDistance::OtherL3)
}

/// The rate of each method: of one pair, of all together, and what each of all keeps of one alone.
pub(super) fn figure(run: &RunView, all: &[SentFlow<'_, '_>]) -> Option<Figure> {
    let rings = || all.iter().filter(|sent| is_ring(sent));
    let processes = rings().map(|sent| sent.at_once).max()?;
    let of = |sent: &SentFlow<'_, '_>, column| {
        let key: (Method, Bytes) = ((sent.wire.via, sent.wire.copies), sent.size());
        (key, column, run.cell(sent.entry, CaseQuantity::Payload))
    };
    let is_alone = |sent: &&SentFlow<'_, '_>| {
        sent.at_once == 1
            && sent.wire.near == Some(CoreDistance::OtherL3)
            && sent.wire.op.window() == 1
            && sent.wire.op.kind() == "send"
    };
    let together = rings().map(|sent| of(sent, TOGETHER));
    let mut pivot =
        CellPivot::new(together.chain(all.iter().filter(is_alone).map(|s| of(s, ALONE))));
    pivot.rows.retain(|row| rings().any(|sent| of(sent, ALONE).0 == *row));
    pivot.rows.sort_by_key(|(_, bytes)| *bytes);
    pivot.cols = vec![ALONE, TOGETHER];
    let each = |row: &(Method, Bytes)| -> Option<f64> {
        let sum = pivot.cell(row, &TOGETHER).value?;
        Some(sum / processes as f64 / pivot.cell(row, &ALONE).value?)
    };
    let worst = least(pivot.rows.iter().filter_map(|row| Some((each(row)?, row))));
    let finding = worst.map_or(String::new(), |(share, row)| {
        let (share, copies) = (fmt::percent(share), label(row));
        format!("At the worst each process keeps {share} of the rate of one pair alone: {copies}.")
    });
    let title =
        format!("{processes} processes, each behind another last-level cache, send at once");
    let matrix = pivot.matrix(("copies", label), ("", |column| (*column).to_owned()), GBS);
    Some(frame(run, (SUITE, ""), "shm-ring", title).finding(finding).draw(matrix))
}

fn label(((via, copies), bytes): &(Method, Bytes)) -> String {
    let how = copies.map_or_else(String::new, |copies| format!(" {copies}"));
    format!("{via}{how} x {}", bytes.rounded())
}
