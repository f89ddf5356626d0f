//! The rate of a case of files or messages while it is measured, as one line.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, Case, FlowSeries, Ns, Rate, SampledCase};

/// Totals of the cases in progress.
#[derive(Debug, Default)]
pub(crate) struct LiveRates {
    totals: BTreeMap<Case, LiveTotal>,
}

/// Measured so far of one case, of all its flows.
#[derive(Debug, Default, Clone, Copy)]
struct LiveTotal {
    bytes: f64,
    /// Duration of its samples.
    ns: f64,
}

impl LiveRates {
    /// The rate of the last sample of a visit, everything moved so far, and how far workers or ranks
    /// are apart. `None` of cases that neither files nor other processes take part in, and of those
    /// whose time is the result.
    pub(crate) fn add(&mut self, visit: &SampledCase) -> Option<String> {
        let first = visit.series.first()?;
        let is_shown = first.flow.by.is_on_files() || first.flow.by.wire().is_some();
        if !is_shown || !first.flow.by.has_rate() || first.moved_bytes.0 < 4096 {
            return None;
        }
        let total = self.totals.entry(visit.case.clone()).or_default();
        let of = |series: &FlowSeries| series.moved_bytes.as_f64() * series.samples_ns.len() as f64;
        total.bytes += visit.series.iter().map(of).sum::<f64>();
        total.ns += first.samples_ns.iter().sum::<f64>();
        let last = |series: &FlowSeries| {
            let ns = series.samples_ns.last().copied().filter(|ns| *ns > 0.0)?;
            Some(Rate::of(series.moved_bytes, Ns(ns)).0)
        };
        let now: f64 = visit.series.iter().filter_map(last).sum();
        let spread = spread(&visit.series).map_or(String::new(), |text| format!(", {text}"));
        Some(format!(
            "{} now, {} in {}{spread}",
            Rate(now),
            Bytes(total.bytes as u64).rounded(),
            Ns(total.ns)
        ))
    }

    /// Forgets a case that has its outcome.
    pub(crate) fn end(&mut self, case: &Case) {
        self.totals.remove(case);
    }
}

/// How much earlier the first worker or rank of the last sample ended than the last one, in percent
/// of the latter's time; `None` where one alone took part.
fn spread(series: &[FlowSeries]) -> Option<String> {
    let first = series.first()?;
    let workers: Vec<f64> = series
        .iter()
        .filter_map(|series| series.io.last())
        .flat_map(|io| io.worker_ns.iter().map(|&ns| ns as f64))
        .collect();
    let ranks: Vec<f64> = first.by_rank.values().filter_map(|ns| ns.last().copied()).collect();
    let (who, times) = if workers.len() > 1 { ("workers", workers) } else { ("ranks", ranks) };
    let latest = times.iter().copied().fold(0.0, f64::max);
    let earliest = times.iter().copied().fold(f64::INFINITY, f64::min);
    (times.len() > 1 && latest > 0.0)
        .then(|| format!("{who} within {:.0} %", (latest - earliest) / latest * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{IoReading, Rank, TimerKind};

    fn visit(text: &str, ns: &[f64], change: impl FnOnce(&mut FlowSeries)) -> SampledCase {
        let case: Case = text.parse().unwrap();
        let flow = *case.timed.first().unwrap();
        let mut series = FlowSeries::new(flow, TimerKind::Threads);
        series.moved_bytes = Bytes::mib(64);
        series.samples_ns = ns.to_vec();
        change(&mut series);
        SampledCase { case, suites: Vec::new(), series: vec![series] }
    }

    #[test]
    fn a_line_has_the_last_rate_all_bytes_and_the_spread() {
        let io =
            "store0.file > numa0.huge by uring@numa0[seq-read,direct,shared,1GiB,q8,n1,t2] x 1MiB";
        let mut rates = LiveRates::default();
        let workers = |series: &mut FlowSeries| {
            series.io = vec![IoReading { worker_ns: vec![30, 40], ..IoReading::default() }];
        };
        // 64 MiB in 32 ms are 2.1 GB/s; four samples have 256 MiB in 100 ms. (40 - 30) / 40 is 25 %.
        let ns = [20e6, 24e6, 24e6, 32e6];
        let line = rates.add(&visit(io, &ns, workers)).unwrap();
        assert_eq!(line, "2.10 GB/s now, 256MiB in 100 ms, workers within 25 %");
        // A second visit adds to the first; one worker has no spread.
        let line = rates.add(&visit(io, &ns, |_| ())).unwrap();
        assert_eq!(line, "2.10 GB/s now, 512MiB in 200 ms");
        rates.end(&io.parse().unwrap());
        let line = rates.add(&visit(io, &ns, |_| ())).unwrap();
        assert_eq!(line, "2.10 GB/s now, 256MiB in 100 ms");
    }

    #[test]
    fn messages_show_ranks_and_latencies_show_no_rate() {
        let mut rates = LiveRates::default();
        let window = "r0.numa0.paged > r1.numa0.paged by mpi@numa0[send-w64] x 1MiB";
        let ranks = |series: &mut FlowSeries| {
            series.by_rank = [(Rank(0), vec![9e6, 32e6]), (Rank(1), vec![9e6, 31.04e6])].into();
        };
        let line = rates.add(&visit(window, &[9e6, 32e6], ranks)).unwrap();
        assert!(line.ends_with("ranks within 3 %"), "{line}");
        let ping = "r0.numa0.paged > r1.numa0.paged by mpi@numa0[ping] x 8B";
        assert_eq!(rates.add(&visit(ping, &[9e6], |series| series.moved_bytes = Bytes(8))), None);
        let copy = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
        assert_eq!(rates.add(&visit(copy, &[9e6], |_| ())), None);
    }
}
