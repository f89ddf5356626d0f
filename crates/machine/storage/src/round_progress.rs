//! What the workers of a round share while it runs, and what each reports.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pathline_hal::{CallError, CallResult};
use pathline_host::clock::ClockOrigin;
use pathline_host::cpus;
use pathline_schema::{IoHistogram, PageFaults};

use super::io_tally::CallTimes;

/// A number that one thread writes and others read, alone in its cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct PaddedCounter(pub(super) AtomicU64);

/// The results of a worker in a round.
#[derive(Debug, Default)]
pub(super) struct RoundReport {
    /// Number of the worker in its job.
    pub(super) worker: usize,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) user: f64,
    pub(super) system: f64,
    pub(super) latency: IoHistogram,
    pub(super) device: IoHistogram,
    pub(super) copy: IoHistogram,
    pub(super) calls: Vec<(&'static str, CallTimes)>,
    /// Page faults, where blocks pass a mapping.
    pub(super) faults: Option<PageFaults>,
    /// Whether the kernel may still use the memory of the round.
    pub(super) abandoned: bool,
}

/// Progress that all workers of a round see.
#[derive(Debug)]
pub(super) struct RoundProgress {
    pub(super) origin: ClockOrigin,
    /// I/Os that each has completed.
    pub(super) done: Box<[PaddedCounter]>,
    /// When the first worker was done, and what all had completed then.
    pub(super) first: OnceLock<(u64, u64)>,
    /// Whether one of them cannot go on, so that the others stop.
    pub(super) failed: AtomicBool,
    pub(super) error: Mutex<Option<CallError>>,
}

impl RoundProgress {
    /// Runs the operations of one worker, and reports begin, end and CPU time of them. An error of `run`
    /// ends the round for all.
    pub(super) fn timed(&self, ops: u64, run: impl FnOnce() -> CallResult<()>) -> RoundReport {
        let (user, system) = cpus::cpu_times();
        let start = self.origin.ns();
        if let Err(error) = run() {
            self.fail(error);
        }
        let mut report = RoundReport { start, ..RoundReport::default() };
        report.end = self.origin.ns();
        if ops > 0 {
            self.first_ended(report.end);
        }
        let (user_then, system_then) = cpus::cpu_times();
        (report.user, report.system) = (user_then - user, system_then - system);
        report
    }

    pub(super) fn new(origin: ClockOrigin, workers: usize) -> Self {
        Self {
            origin,
            done: (0..workers).map(|_| PaddedCounter::default()).collect(),
            first: OnceLock::new(),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    /// Ends the round for all; the first reason is kept.
    pub(super) fn fail(&self, error: CallError) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    /// Whether another worker has failed, so that this one stops.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Notes the operations that a worker has completed.
    pub(super) fn set_done(&self, worker: usize, done: u64) {
        if let Some(counter) = self.done.get(worker) {
            counter.0.store(done, Ordering::Relaxed);
        }
    }

    /// Notes what all have completed when the first worker ends.
    pub(super) fn first_ended(&self, now: u64) {
        let _ = self.first.set((now, self.sum()));
    }

    fn sum(&self) -> u64 {
        self.done.iter().map(|n| n.0.load(Ordering::Relaxed)).sum()
    }
}
