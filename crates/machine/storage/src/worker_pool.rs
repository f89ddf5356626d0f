//! Workers of one open I/O: threads that sleep between rounds and start them together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use pathline_hal::{CallResult, IoDone};
use pathline_schema::{CallTally, IoReading, Ns};

use super::kernel_helpers::KernelHelpers;
use super::round_progress::{RoundProgress, RoundReport};
use pathline_host::clock::ClockOrigin;
use pathline_host::cpus;
use pathline_host::gate::StartLine;
use pathline_host::gate_table::GateWaiter;
use pathline_host::memory::MappedMemory;
use pathline_host::round_pool::{self, PoolRound, RoundPool};

/// A thread's part of each round.
pub(super) trait RoundWorker {
    /// Its number among the workers.
    fn index(&self) -> usize;
    /// Whether kernel threads may do its I/O.
    fn has_helpers(&self) -> bool {
        false
    }
    /// The functions that it calls, for records.
    fn describe(&self) -> String;
    /// Readies the state that a round of `ops` operations needs, untimed.
    fn arrange(&mut self, progress: &RoundProgress, ops: u64) {
        let _ = (progress, ops);
    }
    /// Does the operations of a round; of a check, one for each slot at its place.
    fn round(&mut self, progress: &RoundProgress, ops: u64, landing: bool) -> RoundReport;
    /// Operations of a check.
    fn landing_ops(&self) -> u64;
    /// Ends it, in its thread.
    fn close(&mut self, origin: ClockOrigin, calls: &mut CallTallies);
}

/// Calls by name, with what they took.
pub(super) type CallTallies = BTreeMap<String, CallTally>;

/// Adds a call that took so long.
pub(super) fn tally(calls: &mut CallTallies, name: &str, count: u64, ns: f64) {
    calls.entry(name.to_owned()).or_default().add(CallTally { count, ns });
}

/// Stack of a worker, in bytes: hundreds of them may be open.
const STACK: usize = 256 << 10;

/// The purpose of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundKind {
    /// A sample of this many operations.
    Sample(u64),
    /// A check.
    Landing,
    /// Preparation of a sample of this many operations.
    Arrange(u64),
}

/// The next round of all workers.
pub(crate) struct WorkerRound {
    kind: RoundKind,
    line: OnceLock<Arc<StartLine>>,
    progress: RoundProgress,
    reports: Mutex<Vec<RoundReport>>,
    /// Time of kernel threads for the workers before the round.
    helpers: KernelHelpers,
    /// Memory that the I/O uses, where this host allocated it.
    memory: Option<Arc<MappedMemory>>,
}

impl PoolRound for WorkerRound {
    fn line(&self) -> &OnceLock<Arc<StartLine>> {
        &self.line
    }
}

/// The shared state of the threads of one open I/O.
pub(crate) type WorkerPool = RoundPool<WorkerRound>;

impl WorkerRound {
    /// A worker's part of the round.
    fn run(self: Arc<Self>, worker: &mut dyn RoundWorker, line: &StartLine) {
        let workers = self.progress.done.len() as u32;
        let share_of = |ops| share(ops, workers, worker.index());
        let (ops, landing) = match self.kind {
            RoundKind::Sample(ops) => (share_of(ops), false),
            RoundKind::Landing => (worker.landing_ops(), true),
            RoundKind::Arrange(ops) => {
                let ops = share_of(ops);
                line.wait();
                return worker.arrange(&self.progress, ops);
            }
        };
        line.wait();
        let mut report = worker.round(&self.progress, ops, landing);
        report.worker = worker.index();
        if report.abandoned {
            // Never unmapped: the kernel may still write to it.
            std::mem::forget(self.memory.clone());
        }
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
    }
}

/// The I/Os of one of several workers.
fn share(ops: u64, workers: u32, index: usize) -> u64 {
    let workers = u64::from(workers.max(1));
    ops / workers + u64::from((index as u64) < ops % workers)
}

/// Makes a worker in its thread, since rings and contexts belong to threads; and ends it there.
pub(super) trait WorkerFactory: Send + 'static {
    fn make(self: Box<Self>, calls: &mut CallTallies) -> CallResult<Box<dyn RoundWorker>>;
}

/// Threads of workers, until they are closed.
pub(super) struct WorkerThreads {
    pub(super) pool: Arc<WorkerPool>,
    handles: Vec<JoinHandle<()>>,
    closing: mpsc::Receiver<CallTallies>,
    /// Calls that it took to open.
    pub(super) opening: CallTallies,
    /// The engine and its settings, as the first worker describes them.
    pub(super) description: String,
    /// Threads in whose place kernel threads may do I/O.
    helped: BTreeSet<u32>,
    origin: ClockOrigin,
}

/// The message of a thread whose worker is ready.
struct WorkerReady {
    index: usize,
    description: String,
    /// Its number, if kernel threads may do I/O in its place.
    helped: Option<u32>,
    calls: CallTallies,
}

impl WorkerThreads {
    /// Starts a thread for each recruit, on `cpus` in turn.
    pub(super) fn new(
        recruits: Vec<Box<dyn WorkerFactory>>,
        cpus: &[u32],
        origin: ClockOrigin,
    ) -> CallResult<Self> {
        let pool = Arc::new(WorkerPool::new(recruits.len() as u32, 0));
        let (sender, answers) = mpsc::channel();
        let (send_end, closing) = mpsc::channel();
        let mut all = Self {
            pool,
            handles: Vec::new(),
            closing,
            opening: CallTallies::new(),
            description: String::new(),
            helped: BTreeSet::new(),
            origin,
        };
        let asked = recruits.len();
        for (index, recruit) in recruits.into_iter().enumerate() {
            let cpu = cpus.get(index % cpus.len().max(1)).copied();
            let (pool, sender, send_end) =
                (Arc::clone(&all.pool), sender.clone(), send_end.clone());
            let body = move || {
                let mut calls = CallTallies::new();
                // Unpinned it would measure another path than the case names.
                let pinned = cpu.map_or(Ok(()), cpus::pin);
                let pinned =
                    pinned.map_err(|e| round_pool::pin_error(&format!("worker {index}"), &e));
                match pinned.and_then(|()| recruit.make(&mut calls)) {
                    Ok(mut worker) => {
                        let helped = worker.has_helpers().then(cpus::thread_id);
                        let description = worker.describe();
                        let _ = sender.send(Ok(WorkerReady { index, description, helped, calls }));
                        drop(sender);
                        pool.serve(|round: Arc<WorkerRound>, line| {
                            round.run(worker.as_mut(), line);
                        });
                        let mut calls = CallTallies::new();
                        worker.close(origin, &mut calls);
                        let _ = send_end.send(calls);
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                    }
                }
            };
            let thing = format!("worker {index} of {asked}");
            let name = format!("pathline-io{index}");
            all.handles.push(round_pool::spawn(name, Some(STACK), &thing, body)?);
        }
        drop(sender);
        let mut failure = None;
        for answer in answers {
            match answer {
                Ok(ready) => {
                    if ready.index == 0 {
                        all.description = ready.description;
                    }
                    all.helped.extend(ready.helped);
                    merge(&mut all.opening, ready.calls);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(all), Err)
    }

    /// Readies a round, which starts with its line.
    pub(super) fn submit(
        &self,
        kind: RoundKind,
        memory: Option<Arc<MappedMemory>>,
    ) -> CallResult<()> {
        let workers = self.pool.threads() as usize;
        self.pool.submit(
            "I/O",
            WorkerRound {
                kind,
                line: OnceLock::new(),
                progress: RoundProgress::new(self.origin, workers),
                reports: Mutex::new(Vec::with_capacity(workers)),
                helpers: KernelHelpers::now(&self.helped),
                memory,
            },
        )
    }

    /// Runs a round at once and waits for its end.
    pub(super) fn run(
        &self,
        kind: RoundKind,
        memory: Option<Arc<MappedMemory>>,
    ) -> CallResult<IoDone> {
        self.submit(kind, memory)?;
        self.pool.start(&Arc::new(StartLine::new(self.pool.threads())));
        self.reap()
    }

    /// Waits for the end of the round.
    pub(super) fn reap(&self) -> CallResult<IoDone> {
        self.pool.reap("I/O", |round| {
            let helpers = KernelHelpers::now(&self.helped).since(&round.helpers);
            if let Some(error) =
                round.progress.error.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                return Err(error);
            }
            let reports =
                std::mem::take(&mut *round.reports.lock().unwrap_or_else(PoisonError::into_inner));
            let mut done = sum_up(round, &reports);
            done.reading.cpu_system_ns += helpers;
            Ok(done)
        })
    }

    /// Ends the threads and gives the calls that opening and closing took.
    pub(super) fn end(mut self) -> CallTallies {
        self.pool.end(&mut self.handles);
        let mut calls = std::mem::take(&mut self.opening);
        self.closing.try_iter().for_each(|more| merge(&mut calls, more));
        calls
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        if !self.handles.is_empty() {
            self.pool.end(&mut self.handles);
        }
    }
}

fn merge(into: &mut CallTallies, from: CallTallies) {
    for (name, calls) in from {
        into.entry(name).or_default().add(calls);
    }
}

fn sum_up(round: &WorkerRound, reports: &[RoundReport]) -> IoDone {
    let start = reports.iter().map(|r| r.start).min().unwrap_or(0);
    let end = reports.iter().map(|r| r.end).max().unwrap_or(0);
    let since = |at: u64| at.saturating_sub(start) as f64;
    let (first, ops) = round.progress.first.get().copied().unwrap_or((end, 0));
    let mut reading =
        IoReading { first_done_ns: since(first), first_done_ops: ops, ..IoReading::default() };
    if reports.len() > 1 {
        let mut ends: Vec<(usize, u64)> =
            reports.iter().map(|r| (r.worker, r.end.saturating_sub(start))).collect();
        ends.sort_unstable();
        reading.worker_ns = ends.into_iter().map(|(_, ns)| ns).collect();
    }
    for report in reports {
        reading.cpu_user_ns += report.user;
        reading.cpu_system_ns += report.system;
        reading.latency.add(&report.latency);
        reading.device.add(&report.device);
        reading.copy.add(&report.copy);
        if let Some(faults) = report.faults {
            reading.faults.get_or_insert_default().add(faults);
        }
        for (name, calls) in &report.calls {
            reading.calls.entry((*name).to_owned()).or_default().add(calls.tally());
        }
    }
    let ops = round.progress.done.iter().map(|n| n.0.load(Ordering::Relaxed)).sum();
    IoDone { elapsed: Ns(since(end)), ops, reading }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        // 10 over 4: 3, 3, 2, 2.
        let of = |ops, workers| -> Vec<u64> {
            (0..workers).map(|i| share(ops, workers, i as usize)).collect()
        };
        assert_eq!(of(10, 4), [3, 3, 2, 2]);
        assert_eq!(of(1, 3), [1, 0, 0]);
    }
}
