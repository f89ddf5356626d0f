//! Slowdown of a thread that loads memory behind the same last-level cache as a copy.

use pathline_schema::{Bytes, CpuHow, CpuOp, Flow, Mover, ShmCopies, SuiteId, Transport};

use super::pivot::CellPivot;
use super::{BetterWhen, Figure, FigureCell, SuiteFindings, frame, kept, values};
use crate::fmt;
use crate::run::{CaseQuantity, RunView};

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
    run.suite(SUITE)
        .filter_map(|entry| {
            let ([watched], [copy]) =
                (entry.case.timed.as_slice(), entry.case.background.as_slice())
            else {
                return None;
            };
            Some(BystanderCell { watched, copy, cell: kept(run, SUITE, entry, watched) })
        })
        .filter(|bystander| bystander.cell.value.is_some())
        .collect()
}

pub(super) fn find(run: &RunView) -> SuiteFindings {
    SuiteFindings::new(figures(run), [])
}

fn figures(run: &RunView) -> Option<Figure> {
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
        ("% of alone", BetterWhen::Higher),
    );
    let title = "Copies behind a shared cache: remaining rate of a bystander";
    frame(run, (SUITE, ""), "shm-bystander", title)
        .finding(sentence(&all).unwrap_or_default())
        .draw_any(matrix)
}

/// The most affected load, and its rate under each kind of copy.
fn sentence(all: &[BystanderCell<'_>]) -> Option<String> {
    let largest: Bytes = all.iter().map(|b| b.copy.bytes).max()?;
    let of_largest = || all.iter().filter(|b| b.copy.bytes == largest);
    let least = of_largest()
        .min_by(|a, b| a.cell.value.unwrap_or(100.0).total_cmp(&b.cell.value.unwrap_or(100.0)))?;
    if least.cell.value? + least.cell.half_width >= 100.0 {
        return Some("No bystander loses more than the interval of its measurement.".to_owned());
    }
    let part = |stores: BystanderStore, name: &str| {
        let cells = of_largest()
            .filter(|b| b.watched == least.watched && BystanderStore::from_flow(b.copy) == stores)
            .map(|b| &b.cell);
        let (low, high) = super::extremes(&values(cells));
        (low <= high).then(|| format!("{name} {} %", fmt::range(low, high)))
    };
    let parts: Vec<String> = [
        part(BystanderStore::Plain, "during copies with plain stores"),
        part(BystanderStore::Streaming, "during streaming copies"),
        part(BystanderStore::Kernel, "during copies by the kernel"),
    ]
    .into_iter()
    .flatten()
    .collect();
    Some(format!(
        "Of all, {} lose most. Of their rate alone they keep, {}; each copies {} at a time.",
        watched_label(least.watched),
        fmt::list(&parts),
        largest.rounded()
    ))
}
