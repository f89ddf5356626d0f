//! Workers of one open I/O: threads that sleep between rounds and start them together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use pathline_hal::{CallError, CallResult, IoDone};
use pathline_schema::{CallTally, IoReading, Ns, Severity};

use super::helpers::KernelHelpers;
use super::worker::{IoWorker, RoundProgress, RoundReport};
use pathline_host::clock::ClockOrigin;
use pathline_host::cpus;
use pathline_host::gate::{self, StartLine};
use pathline_host::gate_table::GateWaiter;
use pathline_host::memory::MappedMemory;

/// Calls by name, with what they took.
pub(super) type CallTallies = BTreeMap<String, CallTally>;

/// Adds a call that took so long.
pub(super) fn tally(calls: &mut CallTallies, name: &str, count: u64, ns: f64) {
    calls.entry(name.to_owned()).or_default().add(CallTally { count, ns });
}

/// What all workers do next.
struct WorkerRound {
    ops: u64,
    landing: bool,
    line: OnceLock<Arc<StartLine>>,
    progress: RoundProgress,
    reports: Mutex<Vec<RoundReport>>,
    /// What kernel threads had spent for the workers before.
    helpers: KernelHelpers,
    /// Memory that the I/O uses, where this host allocated it.
    memory: Option<Arc<MappedMemory>>,
}

/// What threads look at.
pub(crate) struct WorkerPool {
    epoch: AtomicU32,
    stop: AtomicBool,
    round: Mutex<Option<Arc<WorkerRound>>>,
    done: AtomicU32,
    threads: u32,
    depth: u32,
}

impl GateWaiter for WorkerPool {
    fn threads(&self) -> u32 {
        self.threads
    }

    /// Lets the threads have their round; they start when all who share the line are there.
    fn start(&self, line: &Arc<StartLine>) {
        let round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(round) = round.as_ref().filter(|round| round.line.set(Arc::clone(line)).is_ok())
        else {
            // Nobody will come for its part of the line.
            line.cancel();
            return;
        };
        debug_assert!(round.progress.done.len() == self.threads as usize);
        self.done.store(0, Ordering::Relaxed);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        gate::wake(&self.epoch);
    }
}

impl WorkerPool {
    fn work(&self, worker: &mut IoWorker) {
        let mut seen = 0;
        loop {
            gate::sleep_while(&self.epoch, seen, 0);
            seen = self.epoch.load(Ordering::Acquire);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let round = self.round.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some((round, line)) = round.and_then(|r| r.line.get().cloned().map(|l| (r, l)))
            else {
                continue;
            };
            let ops = if round.landing {
                u64::from(self.depth)
            } else {
                share(round.ops, self.threads, worker.index)
            };
            line.meet();
            let report = worker.round(&round.progress, ops, round.landing);
            if report.abandoned {
                // Never unmapped: the kernel may still write to it.
                std::mem::forget(round.memory.clone());
            }
            round.reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
            drop(round);
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
                gate::wake(&self.done);
            }
        }
    }

    fn wait(&self) {
        loop {
            let done = self.done.load(Ordering::Acquire);
            if done >= self.threads {
                return;
            }
            gate::sleep_while(&self.done, done, 0);
        }
    }
}

/// The I/Os of one of several workers.
fn share(ops: u64, workers: u32, index: usize) -> u64 {
    let workers = u64::from(workers.max(1));
    ops / workers + u64::from((index as u64) < ops % workers)
}

/// What a thread needs to make its worker, by itself since rings and contexts belong to threads; and
/// what it does when it ends.
pub(super) trait WorkerFactory: Send + 'static {
    fn make(self: Box<Self>, calls: &mut CallTallies) -> CallResult<IoWorker>;
}

/// Threads, until they are sent home.
pub(super) struct WorkerThreads {
    pub(super) crew: Arc<WorkerPool>,
    handles: Vec<JoinHandle<()>>,
    closing: mpsc::Receiver<CallTallies>,
    /// Calls that it took to open.
    pub(super) opening: CallTallies,
    /// Which switches the engine has, as the first worker says.
    pub(super) words: String,
    /// Threads in whose place kernel threads may do I/O.
    helped: BTreeSet<u32>,
    origin: ClockOrigin,
}

/// What a thread says when its worker is there.
struct WorkerReady {
    index: usize,
    words: String,
    /// Its number, if kernel threads may do I/O in its place.
    helped: Option<u32>,
    calls: CallTallies,
}

impl WorkerThreads {
    /// Starts a thread for each recruit, on `cpus` in turn. `close` ends a worker.
    pub(super) fn new(
        recruits: Vec<Box<dyn WorkerFactory>>,
        cpus: &[u32],
        depth: u32,
        origin: ClockOrigin,
        close: fn(IoWorker, ClockOrigin, &mut CallTallies),
    ) -> CallResult<Self> {
        let crew = Arc::new(WorkerPool {
            epoch: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            round: Mutex::new(None),
            done: AtomicU32::new(0),
            threads: recruits.len() as u32,
            depth,
        });
        let (tell, hear) = mpsc::channel();
        let (tell_end, closing) = mpsc::channel();
        let mut all = Self {
            crew,
            handles: Vec::new(),
            closing,
            opening: CallTallies::new(),
            words: String::new(),
            helped: BTreeSet::new(),
            origin,
        };
        let asked = recruits.len();
        for (index, recruit) in recruits.into_iter().enumerate() {
            let cpu = cpus.get(index % cpus.len().max(1)).copied();
            let (crew, tell, tell_end) = (Arc::clone(&all.crew), tell.clone(), tell_end.clone());
            let body = move || {
                let mut calls = CallTallies::new();
                // Unpinned it would measure another path than the case says.
                let pinned = cpu.map_or(Ok(()), cpus::pin).map_err(|error| {
                    CallError::new(
                        Severity::Transient,
                        "sched_setaffinity",
                        format!("worker {index}"),
                        error.to_string(),
                    )
                    .or_try("the CPUs of this process have changed since it began: start again")
                });
                match pinned.and_then(|()| recruit.make(&mut calls)) {
                    Ok(mut worker) => {
                        let helped = worker.engine.has_helpers().then(cpus::thread);
                        let words = worker.engine.words();
                        let _ = tell.send(Ok(WorkerReady { index, words, helped, calls }));
                        drop(tell);
                        crew.work(&mut worker);
                        let mut calls = CallTallies::new();
                        close(worker, origin, &mut calls);
                        let _ = tell_end.send(calls);
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            };
            let thread = std::thread::Builder::new()
                .name(format!("pathline-io{index}"))
                .stack_size(256 << 10)
                .spawn(body);
            all.handles.push(thread.map_err(|error| {
                CallError::new(
                    Severity::Exhausted,
                    "pthread_create",
                    format!("worker {index} of {asked}"),
                    error.to_string(),
                )
                .with_code(error.raw_os_error().unwrap_or(0).into())
                .or_try("use fewer workers, or raise ulimit -u")
            })?);
        }
        drop(tell);
        let mut failure = None;
        for told in hear {
            match told {
                Ok(told) => {
                    if told.index == 0 {
                        all.words = told.words;
                    }
                    all.helped.extend(told.helped);
                    merge(&mut all.opening, told.calls);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(all), Err)
    }

    /// Readies a round, which starts with its line.
    pub(super) fn give(
        &self,
        ops: u64,
        landing: bool,
        memory: Option<Arc<MappedMemory>>,
    ) -> CallResult<()> {
        let mut round = self.crew.round.lock().unwrap_or_else(PoisonError::into_inner);
        if round.is_some() {
            let reason = "it has work that was not reaped";
            return Err(CallError::new(Severity::Transient, "submit", "I/O", reason)
                .or_try("reap it first"));
        }
        let workers = self.crew.threads as usize;
        *round = Some(Arc::new(WorkerRound {
            ops,
            landing,
            line: OnceLock::new(),
            progress: RoundProgress::new(self.origin, workers),
            reports: Mutex::new(Vec::with_capacity(workers)),
            helpers: KernelHelpers::now(&self.helped),
            memory,
        }));
        Ok(())
    }

    /// Takes back a round that has not been started.
    pub(super) fn take_back(&self) {
        *self.crew.round.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits for the end of the round.
    pub(super) fn reap(&self) -> CallResult<IoDone> {
        let refuse = |reason: &str| Err(CallError::unsupported("reap", "I/O", reason));
        let round = self.crew.round.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(round) = round else { return refuse("it was given no work") };
        if round.line.get().is_none() {
            return refuse("its gate is closed, so it would never end");
        }
        self.crew.wait();
        let helpers = KernelHelpers::now(&self.helped).since(&round.helpers);
        *self.crew.round.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(error) =
            round.progress.error.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            return Err(error);
        }
        let reports =
            std::mem::take(&mut *round.reports.lock().unwrap_or_else(PoisonError::into_inner));
        let mut done = sum_up(&round, &reports);
        done.reading.cpu_system_ns += helpers;
        Ok(done)
    }

    /// Sends the threads home. The calls that it took.
    pub(super) fn end(mut self) -> CallTallies {
        self.dismiss();
        let mut calls = std::mem::take(&mut self.opening);
        self.closing.try_iter().for_each(|more| merge(&mut calls, more));
        calls
    }

    fn dismiss(&mut self) {
        let started = {
            let round = self.crew.round.lock().unwrap_or_else(PoisonError::into_inner);
            round.as_ref().is_some_and(|round| round.line.get().is_some())
        };
        if started {
            self.crew.wait();
        }
        *self.crew.round.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.crew.stop.store(true, Ordering::Release);
        self.crew.epoch.fetch_add(1, Ordering::AcqRel);
        gate::wake(&self.crew.epoch);
        for thread in self.handles.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        if !self.handles.is_empty() {
            self.dismiss();
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
    for report in reports {
        reading.cpu_user_ns += report.user;
        reading.cpu_system_ns += report.system;
        reading.latency.add(&report.latency);
        reading.device.add(&report.device);
        reading.copy.add(&report.copy);
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
