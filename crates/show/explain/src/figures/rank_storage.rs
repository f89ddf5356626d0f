//! Ranks that do I/O together: the sum over ranks, first done and last done.

use pathline_schema::{MetaOp, Mover, SuiteId};

use super::storage::{IoQuantity, io_cell, neutral_columns};
use super::{Figure, FigureCell, SuiteFindings, frame};
use crate::fmt;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::StorageRanks;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let of_ranks = |entry: &&RunEntry<'_>| entry.case.is_rank_io();
    let entries: Vec<&RunEntry<'_>> = run.entries.iter().filter(of_ranks).collect();
    SuiteFindings::new(sheet(run, &entries), [])
}

/// A quantity of all ranks together; metadata have no payload.
fn cell(entry: &RunEntry<'_>, asked: IoQuantity) -> FigureCell {
    let is_io = entry.series().iter().all(|series| series.flow.by.io().is_some());
    match asked == IoQuantity::Rate && !is_io {
        true => FigureCell::sampled(entry, &[], None),
        false => io_cell(entry, asked),
    }
}

/// `2 ranks, one file: seq-read of 1MiB, depth 8`.
fn label(entry: &RunEntry<'_>) -> String {
    let flows = &entry.case.timed;
    let Some(first) = flows.first() else { return String::new() };
    let file = first.io_ends().0;
    let one = flows.len() > 1 && flows.iter().all(|flow| flow.io_ends().0 == file);
    let files = if one { "one file" } else { "a file each" };
    let ranks = fmt::count(flows.len(), "rank");
    let work = match first.by {
        Mover::Io { io, .. } => {
            format!("{files}: {}-{} of {}, depth {}", io.order, io.op, first.bytes, io.depth)
        }
        Mover::Meta { meta, .. } => {
            let folders = matches!(meta.op, MetaOp::Mkdir | MetaOp::Rmdir);
            format!("{} of {} each", meta.op, if folders { "folders" } else { "files" })
        }
        _ => first.by.to_string(),
    };
    format!("{ranks}, {work}")
}

fn sheet(run: &RunView, entries: &[&RunEntry<'_>]) -> Option<Figure> {
    let columns = [
        (IoQuantity::Rate, "last done", "GB/s"),
        (IoQuantity::Iops, "last done", "/s"),
        (IoQuantity::FirstIops, "first done", "/s"),
        (IoQuantity::Spread, "slowest / fastest rank", ""),
    ];
    let row = |entry: &&RunEntry<'_>| {
        (label(entry), columns.map(|(asked, ..)| cell(entry, asked)).to_vec())
    };
    let finding = "Last done: the I/Os of all ranks over the time of the slowest. First done: the sum over \
                   ranks of their I/Os until the first worker of each ended, over that time. All ranks \
                   start together.";
    let figure = frame(run, (SUITE, ""), SUITE.word(), "Ranks that do I/O together");
    let rows = entries.iter().map(row);
    figure.finding(finding).draw_rows("ranks", neutral_columns(columns), rows)
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Flow, FlowSeries, IoReading, TimerKind};

    use super::*;

    #[test]
    fn sums_over_ranks() {
        let series = |ns: f64, first_ns: f64, first_ops: u64| {
            let text = "r1.store0.file > r1.numa0.huge by \
                        uring@numa0[seq-read,direct,shared,1GiB,q8,n1,t2] x 1MiB";
            let flow: Flow = text.parse().unwrap();
            let io = IoReading {
                first_done_ns: first_ns,
                first_done_ops: first_ops,
                ..IoReading::default()
            };
            FlowSeries {
                samples_ns: vec![ns],
                steps: 100,
                moved_bytes: pathline_schema::Bytes(100 << 20),
                io: vec![io],
                ..FlowSeries::new(flow, TimerKind::Threads)
            }
        };
        // 100 I/Os each: 200 in 20 ms are 10,000 a second, and 200 MiB in 20 ms 10.49 GB/s. By their
        // first workers 90 in 9 ms and 60 in 12 ms: 10,000 + 5,000 a second. 20 ms over 10 ms is 2.
        let all = [series(10e6, 9e6, 90), series(20e6, 12e6, 60)];
        let of = |asked: IoQuantity| asked.of_sample(&all, 0).unwrap();
        assert!((of(IoQuantity::Iops) - 1e4).abs() < 1e-6);
        assert!((of(IoQuantity::FirstIops) - 1.5e4).abs() < 1e-6);
        assert!((of(IoQuantity::Rate) - 200.0 * 1_048_576.0 / 20e6).abs() < 1e-9);
        assert!((of(IoQuantity::Spread) - 2.0).abs() < 1e-12);
        assert_eq!(IoQuantity::Iops.of_sample(&all, 1), None);
    }
}
