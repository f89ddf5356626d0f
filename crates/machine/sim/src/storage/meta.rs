//! Metadata operations of a simulated store, operation by operation: workers do one at a time, changes
//! of one folder exclude each other, and the store's service takes a limited number a second.

use std::collections::BTreeMap;

use pathline_flow::{IoCosts, MetaCosts, StoreModel};
use pathline_hal::{MetaJob, pattern};
use pathline_schema::{CallTally, IoFiles, IoHistogram, IoReading, MetaOp};

use crate::calendar::EventCalendar;

/// The costs of a job's operations, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MetaTimes {
    /// Of the thread: calls of the kernel.
    cpu: f64,
    /// Mean time at the store, without waiting.
    latency: f64,
    /// How far it spreads.
    spread: f64,
    /// Time of the store's service for each operation, one after the other.
    turn: f64,
    /// Time for which an operation has its folder to itself; 0 if it changes none.
    folder: f64,
    /// Time of a file's content.
    content: f64,
}

impl MetaTimes {
    pub(super) fn of(job: &MetaJob, store: &StoreModel, meta: &MetaCosts, io: &IoCosts) -> Self {
        let (latency, calls) = match job.meta.op {
            MetaOp::Create => (meta.create_us, 2.0),
            // Content and entry are on the store, by one more write, before the call returns.
            MetaOp::CreateSync => (meta.create_us + store.write_us + store.network_us, 3.0),
            MetaOp::Stat => (meta.stat_us, 1.0),
            MetaOp::Read | MetaOp::List => (meta.open_us, 2.0),
            MetaOp::Delete => (meta.delete_us, 1.0),
            MetaOp::Mkdir => (meta.mkdir_us, 1.0),
            MetaOp::Rmdir => (meta.rmdir_us, 1.0),
        };
        let writes = job.meta.op.creates_files();
        let moves = job.content() > 0 && (writes || job.meta.op == MetaOp::Read);
        let content = if moves {
            let bytes = job.content() as f64 / store.rate(writes).0;
            bytes + (store.network_us + io.syscall_us) * 1e3
        } else {
            0.0
        };
        Self {
            cpu: calls * io.syscall_us * 1e3,
            latency: (latency + store.network_us) * 1e3,
            spread: store.spread,
            turn: 1e9 / meta.ops_per_s,
            folder: if job.meta.op.is_once() { 1e9 / meta.folder_changes_per_s } else { 0.0 },
            content,
        }
    }
}

/// The result of a sample.
#[derive(Debug, Clone, Default)]
pub(super) struct MetaOutcome {
    pub(super) elapsed: f64,
    pub(super) ops: u64,
    pub(super) reading: IoReading,
}

/// Random numbers of a sample, and whether times spread.
pub(super) type MetaChance = (u64, bool);

/// Plays `ops` operations of a job.
pub(super) fn run(
    job: &MetaJob,
    times: &MetaTimes,
    ops: u64,
    (seed, spreads): MetaChance,
) -> MetaOutcome {
    let meta = &job.meta;
    let workers = u64::from(meta.threads);
    let mut calendar = EventCalendar::default();
    let mut left: Vec<u64> =
        (0..workers).map(|w| ops / workers + u64::from(w < ops % workers)).collect();
    (0..workers).for_each(|worker| calendar.put(0.0, worker));
    let (mut service, mut folders) = (0.0f64, BTreeMap::<(u64, u64), f64>::new());
    let (mut latency, mut draws, mut done) = (Vec::new(), 0, 0);
    let mut begun = vec![false; left.len()];
    let mut out = MetaOutcome { ops, ..MetaOutcome::default() };
    let mut ended = 0;
    while let Some((now, worker)) = calendar.pop() {
        let place = worker as usize;
        let (Some(mine), Some(busy)) = (left.get_mut(place), begun.get_mut(place)) else {
            continue;
        };
        done += u64::from(std::mem::replace(busy, *mine > 0));
        if *mine == 0 {
            // Workers without a share of the operations start and end at once.
            let worked = ops / workers + u64::from(worker < ops % workers) > 0;
            if worked && ended == 0 {
                (out.reading.first_done_ns, out.reading.first_done_ops) = (now, done);
            }
            ended += u64::from(worked);
            out.elapsed = out.elapsed.max(now);
            continue;
        }
        *mine -= 1;
        let nth = (*mine / u64::from(meta.files.max(1))) % u64::from(meta.dirs);
        let nth = if meta.op.is_of_folders() { 0 } else { nth };
        let key = if meta.folders == IoFiles::Own { (worker, nth) } else { (0, nth) };
        let asked = now + times.cpu;
        let free = folders.entry(key).or_default();
        let entered = if times.folder > 0.0 { asked.max(*free) } else { asked };
        *free = free.max(entered + times.folder);
        service = service.max(entered) + times.turn;
        draws += 1;
        let at_store = times.latency * factor(times.spread, seed, draws, spreads);
        let end = service.max(entered + times.folder) + at_store + times.content;
        latency.push(end - now);
        calendar.put(end, worker);
    }
    let ns: f64 = latency.iter().sum();
    out.reading.latency = IoHistogram::of(latency.iter().map(|ns| ns.round().max(1.0) as u64));
    out.reading.cpu_system_ns = times.cpu * ops as f64;
    let call = match meta.op {
        MetaOp::Create | MetaOp::CreateSync | MetaOp::Read | MetaOp::List => "openat",
        MetaOp::Stat => "fstatat",
        MetaOp::Mkdir => "mkdirat",
        MetaOp::Delete | MetaOp::Rmdir => "unlinkat",
    };
    out.reading.calls.insert(call.to_owned(), CallTally { count: ops, ns });
    out
}

/// By what a latency differs from its mean: none is below `1 - spread`, the rest is exponential.
fn factor(spread: f64, seed: u64, draw: u64, spreads: bool) -> f64 {
    if !spreads || spread == 0.0 {
        return 1.0;
    }
    let bits = pattern::word(seed, draw) >> 11;
    let uniform = (bits as f64 + 0.5) / (1u64 << 53) as f64;
    1.0 - spread - spread * uniform.ln()
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Bytes, Flow};

    use super::*;

    fn job(args: &str, bytes: u64) -> MetaJob {
        let (a, b) = ("r0.numa0.reg", "r0.store0.file");
        let creates = args.starts_with("create") || args.starts_with("mkdir");
        let (src, dst) = if creates { (a, b) } else { (b, a) };
        let flow: Flow = format!("{src} > {dst} by meta@numa0[{args}] x 1B").parse().unwrap();
        MetaJob { meta: *flow.by.meta().unwrap(), store: 0, bytes: Bytes(bytes), numa: 0 }
    }

    fn times(turn: f64, folder: f64) -> MetaTimes {
        MetaTimes { cpu: 500.0, latency: 99_500.0, spread: 0.3, turn, folder, content: 0.0 }
    }

    #[test]
    fn latency_service_and_folder_each_limit() {
        let elapsed =
            |args: &str, times: MetaTimes, ops| run(&job(args, 1), &times, ops, (1, false)).elapsed;
        // One at a time: 0.5 us of calls, 1 us of service and 99.5 us at the store: 101 us each.
        let one = elapsed("stat,own,d1,f100,t1", times(1e3, 0.0), 100);
        assert!((one - 100.0 * 101e3).abs() < 1.0, "{one}");
        // 8 workers share the 800 operations: as long as 100 by one, and 7 us for the first turns.
        let eight = elapsed("stat,own,d1,f100,t8", times(1e3, 0.0), 800);
        assert!((100.0 * 101e3..100.0 * 101e3 + 8e3).contains(&eight), "{eight}");
        // A service of 50 us each is the limit of all: 800 x 50 us and one latency.
        let slow = elapsed("stat,own,d1,f100,t8", times(50e3, 0.0), 800);
        assert!((slow - (800.0 * 50e3 + 100e3)).abs() < 1e3, "{slow}");
        // One shared folder takes a change in 25 us: 800 of them 20 ms, own folders do not wait.
        let shared = elapsed("create,shared,d1,f100,t8", times(1e3, 25e3), 800);
        let own = elapsed("create,own,d1,f100,t8", times(1e3, 25e3), 800);
        assert!((shared - (800.0 * 25e3 + 100e3)).abs() < 2e3, "{shared}");
        assert!(own < 100.0 * 126e3 + 8e3, "{own}");
    }

    #[test]
    fn the_first_worker_ends_with_what_all_have_done() {
        // 3 operations by 2 workers: 2 and 1. The second worker ends after one each.
        let out = run(&job("stat,own,d1,f9,t2", 1), &times(1e3, 0.0), 3, (1, false));
        assert_eq!((out.reading.first_done_ops, out.reading.latency.count()), (2, 3));
        assert!(out.reading.first_done_ns < out.elapsed);
        let spread = run(&job("stat,own,d1,f9,t1", 1), &times(1e3, 0.0), 9, (1, true));
        assert!(spread.reading.latency.min_ns as f64 >= 0.7 * 99_500.0);
        assert!(spread.reading.latency.max_ns > spread.reading.latency.min_ns);
    }
}
