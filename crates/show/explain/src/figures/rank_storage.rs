//! Ranks that do I/O together: the sum over ranks, first done and last done.

use pathline_schema::{CaseTimes, FlowSeries, MetaOp, Mover, SuiteId};

use super::{Figure, FigureCell, SuiteFindings, frame};
use crate::figure::{SheetBody, SheetColumn};
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::StorageRanks;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let of_ranks = |entry: &&RunEntry<'_>| entry.case.is_rank_io();
    let entries: Vec<&RunEntry<'_>> = run.entries.iter().filter(of_ranks).collect();
    SuiteFindings::new(sheet(run, &entries), [])
}

/// A quantity of all ranks together.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RankQuantity {
    /// Operations a second until the last rank ended.
    LastDone,
    /// Operations a second until the first worker of each rank ended.
    FirstDone,
    /// Payload until the last rank ended, GB/s.
    Payload,
    /// Time of the slowest rank over that of the fastest.
    Spread,
}

impl RankQuantity {
    /// Its value in one sample of all flows.
    fn of_sample(self, all: &[FlowSeries], sample: usize) -> Option<f64> {
        let times: Vec<f64> =
            all.iter().filter_map(|series| series.samples_ns.get(sample).copied()).collect();
        let last = times.iter().copied().reduce(f64::max)?;
        let first = times.iter().copied().reduce(f64::min)?;
        let value = match self {
            Self::LastDone => all.iter().map(|s| s.steps as f64).sum::<f64>() / last * 1e9,
            Self::Payload if all.iter().any(|s| s.flow.by.io().is_none()) => return None,
            Self::Payload => all.iter().map(|s| s.moved_bytes.as_f64()).sum::<f64>() / last,
            Self::FirstDone => {
                let of = |series: &FlowSeries| {
                    let reading = series.io.get(sample)?;
                    Some(reading.first_done_ops as f64 / reading.first_done_ns * 1e9)
                };
                all.iter().map(of).sum::<Option<f64>>()?
            }
            Self::Spread => last / first,
        };
        value.is_finite().then_some(value)
    }
}

fn cell(entry: &RunEntry<'_>, asked: RankQuantity) -> FigureCell {
    let all = entry.series();
    let (samples, visits) =
        all.first().map_or((0, &[][..]), |first| (first.samples_ns.len(), &first.visits));
    let values: Vec<f64> = (0..samples).filter_map(|nth| asked.of_sample(all, nth)).collect();
    FigureCell::derived(entry, &CaseTimes::from_values(&values, visits), None)
}

/// `2 ranks, one file: seq-read of 1MiB, depth 8`.
fn label(entry: &RunEntry<'_>) -> String {
    let flows = &entry.case.timed;
    let Some(first) = flows.first() else { return String::new() };
    let file = first.io_ends().0;
    let one = flows.len() > 1 && flows.iter().all(|flow| flow.io_ends().0 == file);
    let files = if one { "one file" } else { "a file each" };
    let ranks = flows.len();
    let plural = if ranks == 1 { "" } else { "s" };
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
    format!("{ranks} rank{plural}, {work}")
}

fn sheet(run: &RunView, entries: &[&RunEntry<'_>]) -> Option<Figure> {
    if entries.is_empty() {
        return None;
    }
    let column = SheetColumn::neutral;
    let columns = [
        (RankQuantity::Payload, column("last done", "GB/s")),
        (RankQuantity::LastDone, column("last done", "/s")),
        (RankQuantity::FirstDone, column("first done", "/s")),
        (RankQuantity::Spread, column("slowest / fastest rank", "")),
    ];
    let row = |entry: &&RunEntry<'_>| {
        (label(entry), columns.iter().map(|(asked, _)| cell(entry, *asked)).collect())
    };
    let finding = "Last done: the I/Os of all ranks over the time of the slowest. First done: the sum over \
                   ranks of their I/Os until the first worker of each ended, over that time. All ranks \
                   start together.";
    let figure = frame(run, (SUITE, ""), SUITE.word(), "Ranks that do I/O together");
    Some(figure.finding(finding).draw(SheetBody {
        row_axis: "ranks".into(),
        rows: entries.iter().map(row).collect(),
        columns: columns.into_iter().map(|(_, column)| column).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Flow, IoReading, TimerKind};

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
        let of = |asked: RankQuantity| asked.of_sample(&all, 0).unwrap();
        assert!((of(RankQuantity::LastDone) - 1e4).abs() < 1e-6);
        assert!((of(RankQuantity::FirstDone) - 1.5e4).abs() < 1e-6);
        assert!((of(RankQuantity::Payload) - 200.0 * 1_048_576.0 / 20e6).abs() < 1e-9);
        assert!((of(RankQuantity::Spread) - 2.0).abs() < 1e-12);
        assert_eq!(RankQuantity::LastDone.of_sample(&all, 1), None);
    }
}
