//! Slowdown of a thread that loads memory behind the same last-level cache as a copy.

use pathline_schema::{Bytes, CpuHow, CpuOp, Flow, Mover, ShmCopies, SuiteId, Transport};

use super::pivot::{CellPivot, OF_ALONE, least};
use super::{FigureCell, SuiteFindings, frame, kept, range_of};
use crate::fmt;
use crate::run::{CaseQuantity, RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Shm;

/// A thread that loads memory while a copy runs.
struct BystanderCell<'a> {
    watched: &'a Flow,
    copy: &'a Flow,
    /// Remaining share of its rate alone, in percent.
    cell: FigureCell,
}

/// Kind of stores of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BystanderStore {
    Plain,
    Streaming,
    /// The kernel's choice.
    Kernel,
}

impl BystanderStore {
    fn from_flow(copy: &Flow) -> Self {
        let streams = |how: CpuHow| if how.is_streaming() { Self::Streaming } else { Self::Plain };
        match &copy.by {
            Mover::Cpu { work, .. } => streams(work.how),
            Mover::Wire { wire, .. } => match wire.copies {
                Some(ShmCopies::InOut { copy_out, .. }) => streams(copy_out),
                Some(ShmCopies::Single(how)) => streams(how),
                _ => Self::Kernel,
            },
            _ => Self::Kernel,
        }
    }
}

/// `dependent loads over 4MiB`
fn watched_label(flow: &Flow) -> String {
    let chases = matches!(flow.by, Mover::Cpu { work, .. } if work.op == CpuOp::Chase);
    let how = if chases { "dependent loads" } else { "loads in a row" };
    format!("{how} over {}", flow.bytes.rounded())
}

/// `memcpy by a thread`, `avx512-nt by two processes`, `process_vm_readv by two processes`
fn copy_label(flow: &Flow) -> String {
    match &flow.by {
        Mover::Cpu { work, .. } => format!("{} by a thread", work.how),
        Mover::Wire { wire, .. } => {
            let how = match (wire.via, wire.copies) {
                (Transport::Cma, Some(ShmCopies::Read)) => "process_vm_readv".to_owned(),
                (Transport::Cma, Some(ShmCopies::Write)) => "process_vm_writev".to_owned(),
                (_, Some(ShmCopies::InOut { copy_in, copy_out })) if copy_in == copy_out => {
                    copy_in.to_string()
                }
                (_, Some(copies)) => copies.to_string(),
                (via, None) => via.to_string(),
            };
            format!("{how} by two processes")
        }
        by => by.kind().to_owned(),
    }
}

fn bystander_cells<'a>(run: &RunView<'a>) -> Vec<BystanderCell<'a>> {
    let bystander = |entry: &RunEntry<'a>| {
        let (watched, copy) = entry.one_during_one()?;
        let cell = kept(run, SUITE, entry, watched);
        cell.value.is_some().then_some(BystanderCell { watched, copy, cell })
    };
    run.suite(SUITE).filter_map(bystander).collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let all = bystander_cells(run);
    let row_label = |copy: &&Flow| {
        let alone = run.suite(SUITE).find(|e| e.lone() == Some(*copy));
        let rate = alone.and_then(|e| run.value(e, CaseQuantity::Payload));
        let rate = rate.map_or(String::new(), |rate| format!(", {} alone", fmt::gbs(rate)));
        format!("{} x {}{rate}", copy_label(copy), copy.bytes.rounded())
    };
    let matrix = CellPivot::new(all.iter().map(|b| (b.copy, b.watched, b.cell.clone()))).matrix(
        ("during", row_label),
        ("bystander", |watched| watched_label(watched)),
        OF_ALONE,
    );
    let title = "Copies behind a shared cache: remaining rate of a bystander";
    let framed = frame(run, (SUITE, ""), "shm-bystander", title);
    let finding = sentence(&all).unwrap_or_default();
    SuiteFindings::new(framed.finding(finding).draw_any(matrix), [])
}

/// The most affected load, and its rate under each kind of copy.
fn sentence(all: &[BystanderCell<'_>]) -> Option<String> {
    let largest: Bytes = all.iter().map(|b| b.copy.bytes).max()?;
    let of_largest = || all.iter().filter(|b| b.copy.bytes == largest);
    let (rate, slowest) = least(of_largest().map(|b| (b.cell.value.unwrap_or(100.0), b)))?;
    if rate + slowest.cell.half_width >= 100.0 {
        return Some("No bystander loses more than the interval of its measurement.".to_owned());
    }
    let part = |(stores, by): (BystanderStore, &str)| {
        let of_watched = of_largest().filter(|b| b.watched == slowest.watched);
        let cells = of_watched.filter(|b| BystanderStore::from_flow(b.copy) == stores);
        Some(format!("during {by} {} %", range_of(cells.map(|b| &b.cell))?))
    };
    let kinds = [
        (BystanderStore::Plain, "copies with plain stores"),
        (BystanderStore::Streaming, "streaming copies"),
        (BystanderStore::Kernel, "copies by the kernel"),
    ];
    let parts = fmt::list_any(kinds.into_iter().filter_map(part)).unwrap_or_default();
    let (loads, size) = (watched_label(slowest.watched), largest.rounded());
    Some(format!(
        "Of all, {loads} lose most. Of their rate alone they keep, {parts}; each copies {size} at a time."
    ))
}
