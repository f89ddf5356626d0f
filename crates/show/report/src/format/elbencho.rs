//! File I/O in the output format of elbencho.

use std::fmt::{Display, Write as _};

use pathline_schema::{Bytes, CaseOutcome, FlowSeries, IoHistogram, IoOp, Journal};

use super::{nothing, world};

/// The output of elbencho 3 for the I/O of a run: a table for each case, as if each had been a
/// separate run, after a comment that names the case. All samples of a case form one phase: their
/// I/Os divided by the sum of their times. Numbers are truncated to integers as in elbencho. For
/// mixed I/O the record contains the sum of reads and writes, so only `total` is printed.
///
/// # Errors
/// The run has no file I/O.
pub fn elbencho(journal: &Journal) -> Result<String, String> {
    let mut text = String::new();
    for outcome in &journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        if m.case.timed.iter().all(|flow| flow.by.io().is_some()) && m.case.background.is_empty() {
            let _ = writeln!(text, "# pathline: {}{}", m.case, world(journal));
            phase(&mut text, journal, &m.series);
        }
    }
    if text.is_empty() {
        return Err(nothing("I/O of files", "storage --store FOLDER"));
    }
    Ok(text)
}

/// Sums over samples and flows.
#[derive(Default)]
struct IoSum {
    ns: f64,
    ops: f64,
    bytes: f64,
}

impl IoSum {
    fn per_second(&self, of: f64) -> f64 {
        if self.ns > 0.0 { of / self.ns * 1e9 } else { 0.0 }
    }
}

fn row(text: &mut String, [phase, what]: [&str; 2], first: impl Display, last: impl Display) {
    let sign =
        if what.is_empty() || what == "RESULT TYPE" || what.starts_with('=') { "" } else { ":" };
    let (first, last) = (first.to_string(), last.to_string());
    let _ = writeln!(text, "{phase:<11} {what:<17}{sign:>1} {first:>11} {last:>11}");
}

fn phase(text: &mut String, journal: &Journal, all: &[FlowSeries]) {
    let Some(series) = all.first() else { return };
    let Some(io) = series.flow.by.io() else { return };
    let mixed = matches!(io.op, IoOp::Mix { .. });
    let name = match io.op {
        IoOp::Read => "READ".to_owned(),
        IoOp::Write => "WRITE".to_owned(),
        IoOp::Mix { reads } => format!("RWMIX{reads}"),
    };
    let (first, last) = sums(all);
    row(text, ["OPERATION", "RESULT TYPE"], "FIRST DONE", "LAST DONE");
    row(text, ["===========", "================"], "==========", "=========");
    row(text, [&name, "Elapsed time"], elapsed(first.ns), elapsed(last.ns));
    let iops = |sum: &IoSum| truncated(sum.per_second(sum.ops));
    row(text, ["", if mixed { "IOPS total" } else { "IOPS" }], iops(&first), iops(&last));
    let mib = Bytes::mib(1).as_f64();
    let rate = |sum: &IoSum| truncated(sum.per_second(sum.bytes) / mib);
    let what = if mixed { "MiB/s total" } else { "Throughput MiB/s" };
    row(text, ["", what], rate(&first), rate(&last));
    row(text, ["", "Total MiB"], truncated(first.bytes / mib), truncated(last.bytes / mib));
    processor(text, journal, all, &last);
    each_worker(text, all);
    let latency = merged(all);
    latencies(text, &latency);
    text.push_str("---\n\n");
}

/// I/Os completed when the first worker ended, and at the end. Concurrent flows end with the
/// slowest.
fn sums(all: &[FlowSeries]) -> (IoSum, IoSum) {
    let (mut first, mut last) = (IoSum::default(), IoSum::default());
    let samples = all.iter().map(|s| s.samples_ns.len()).min().unwrap_or(0);
    for i in 0..samples {
        let at = |s: &FlowSeries| s.samples_ns.get(i).copied().unwrap_or(0.0);
        last.ns += all.iter().map(at).fold(0.0, f64::max);
        let done = |s: &FlowSeries| s.io.get(i).map_or(at(s), |r| r.first_done_ns);
        let begun = all.iter().map(done).fold(f64::INFINITY, f64::min);
        first.ns += begun;
        for series in all {
            let block = series.flow.bytes.as_f64();
            last.ops += series.steps as f64;
            last.bytes += series.moved_bytes.as_f64();
            // For another flow the count is known only up to the end of that flow's first worker: its
            // share until then.
            let ops = series.io.get(i).map_or(0.0, |r| r.first_done_ops as f64);
            let ops = if done(series) > 0.0 { ops * begun / done(series) } else { 0.0 };
            first.ops += ops;
            first.bytes += ops * block;
        }
    }
    (first, last)
}

fn merged(all: &[FlowSeries]) -> IoHistogram {
    let mut latency = IoHistogram::default();
    all.iter().flat_map(|s| &s.io).for_each(|r| latency.add(&r.latency));
    latency
}

/// CPU time of the workers, as a share of all CPUs of the machine. Until the first worker ended it
/// is known only if there is one worker.
fn processor(text: &mut String, journal: &Journal, all: &[FlowSeries], last: &IoSum) {
    let cpus = journal.topology.host.cpus.len().max(1) as f64;
    let used: f64 = all.iter().flat_map(|s| &s.io).map(|r| r.cpu_user_ns + r.cpu_system_ns).sum();
    if last.ns <= 0.0 {
        return;
    }
    let percent = truncated(100.0 * used / (last.ns * cpus));
    let threads: u32 = all.iter().filter_map(|s| s.flow.by.io()).map(|io| io.threads).sum();
    let first = if threads == 1 { percent.to_string() } else { "N/A".into() };
    row(text, ["", "CPU util %"], first, percent);
}

fn latencies(text: &mut String, all: &IoHistogram) {
    let Some(mean) = all.mean() else { return };
    let us = |ns: f64| truncated(ns / 1e3);
    let left = |what: &str| format!("{:<11} {what:<17}:", "");
    let _ = writeln!(
        text,
        "{} [ min={} avg={} max={} ]",
        left("IO latency"),
        human(us(all.min_ns as f64)),
        human(us(mean.0)),
        human(us(all.max_ns as f64))
    );
    let at = |share: f64| all.quantile(share).map_or(0, |ns| (ns.0 / 1e3).ceil() as u64);
    let _ = writeln!(
        text,
        "{} [ 1%<={} 50%<={} 75%<={} 99%<={} 99.9%<={} ]",
        left("IO lat % us"),
        at(0.01),
        at(0.5),
        at(0.75),
        at(0.99),
        at(0.999)
    );
}

/// Time of each worker over all samples, flow by flow, as `--allelapsed` prints it.
fn each_worker(text: &mut String, all: &[FlowSeries]) {
    let threads: u32 = all.iter().filter_map(|s| s.flow.by.io()).map(|io| io.threads).sum();
    let mut times: Vec<u64> = Vec::new();
    for series in all {
        let workers = series.flow.by.io().map_or(0, |io| io.threads as usize);
        let mut sums = vec![0u64; workers];
        for (reading, ns) in series.io.iter().zip(&series.samples_ns) {
            // A flow's only worker ends with its flow.
            let alone = [*ns as u64];
            let ends = if workers == 1 { alone.as_slice() } else { reading.worker_ns.as_slice() };
            if ends.len() != workers {
                return;
            }
            sums.iter_mut().zip(ends).for_each(|(sum, ns)| *sum = sum.saturating_add(*ns));
        }
        times.extend(sums);
    }
    if threads > 1 {
        let each: String = times.iter().map(|ns| format!("{} ", ns / 1_000_000)).collect();
        let _ = writeln!(text, "{:<11} {:<17}: [ {each}]", "", "Time ms each");
    }
}

fn truncated(value: f64) -> u64 {
    value as u64
}

/// `482us`, `1.20ms`, `51.3ms`, `510ms`, `2.04s`.
fn human(us: u64) -> String {
    let (ms, s) = (us as f64 / 1e3, us as f64 / 1e6);
    match us {
        0..1_000 => format!("{us}us"),
        1_000..10_000 => format!("{ms:.2}ms"),
        10_000..100_000 => format!("{ms:.1}ms"),
        100_000..1_000_000 => format!("{ms:.0}ms"),
        1_000_000..10_000_000 => format!("{s:.2}s"),
        10_000_000..100_000_000 => format!("{s:.1}s"),
        _ => format!("{s:.0}s"),
    }
}

/// `900ms`, `1.024s`, `2m3.004s`, `1h0m5s`.
fn elapsed(ns: f64) -> String {
    let ms = truncated(ns / 1e6);
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    match (h, m, s) {
        (0, 0, 0) => format!("{ms}ms"),
        (0, 0, s) => format!("{s}.{:03}s", ms % 1000),
        (0, m, s) => format!("{m}m{s}.{:03}s", ms % 1000),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_scripts_know_them() {
        assert_eq!(
            [482, 1_204, 51_300, 510_000, 2_040_000].map(human),
            ["482us", "1.20ms", "51.3ms", "510ms", "2.04s"]
        );
        assert_eq!(
            [0.9e9, 1.024e9, 123.004e9, 3605e9].map(elapsed),
            ["900ms", "1.024s", "2m3.004s", "1h0m5s"]
        );
    }
}
