//! Threads that sleep between rounds of work and start each round together: teams, which run CPU
//! loops, and workers of an I/O job.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use pathline_hal::{CallError, CallResult};
use pathline_schema::Severity;

use crate::gate::{self, StartLine};
use crate::gate_table::GateWaiter;

/// One round of work for all threads of a pool.
pub trait PoolRound: Send + Sync + 'static {
    /// The start line; set when the round may start.
    fn line(&self) -> &OnceLock<Arc<StartLine>>;
    /// Called once, before the threads are woken.
    fn on_start(&self) {}
}

/// The state that a pool shares with its threads.
pub struct RoundPool<R> {
    /// Incremented when a round starts.
    epoch: AtomicU32,
    stop: AtomicBool,
    /// The current round, from `submit` to the end of `reap`.
    round: Mutex<Option<Arc<R>>>,
    /// Threads that have finished the round and released it.
    done: AtomicU32,
    threads: u32,
    spins: u32,
}

impl<R: PoolRound> RoundPool<R> {
    /// For `threads` threads, each of which polls `spins` times for the next round before it
    /// sleeps.
    pub fn new(threads: u32, spins: u32) -> Self {
        Self {
            epoch: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            round: Mutex::new(None),
            done: AtomicU32::new(0),
            threads,
            spins,
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<R>>> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a round is not yet reaped.
    pub fn is_busy(&self) -> bool {
        self.slot().is_some()
    }

    /// Prepares a round, which begins with `start`. `thing` names the pool in an error.
    ///
    /// # Errors
    /// The previous round is not yet reaped.
    pub fn submit(&self, thing: &str, round: R) -> CallResult<()> {
        let mut slot = self.slot();
        if slot.is_some() {
            return Err(not_reaped_error(thing));
        }
        *slot = Some(Arc::new(round));
        Ok(())
    }

    /// Removes a round that has not started.
    pub fn withdraw(&self) {
        *self.slot() = None;
    }

    /// The loop of each thread: calls `work` once per round, until the pool stops. The memory of a
    /// round is released before the round counts as done.
    pub fn serve(&self, mut work: impl FnMut(Arc<R>, &StartLine)) {
        let mut seen = 0;
        loop {
            gate::sleep_while(&self.epoch, seen, self.spins);
            seen = self.epoch.load(Ordering::Acquire);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let round = self.slot().clone();
            let Some((round, line)) = round.and_then(|r| r.line().get().cloned().map(|l| (r, l)))
            else {
                continue;
            };
            work(round, &line);
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

    /// Waits for the end of the round and passes it to `sum_up`, before another round can start.
    ///
    /// # Errors
    /// There is no round, its gate is closed, or `sum_up` fails.
    pub fn reap<T>(&self, thing: &str, sum_up: impl FnOnce(&R) -> CallResult<T>) -> CallResult<T> {
        let round = self.slot().clone();
        let Some(round) = round else {
            return Err(CallError::unsupported("reap", thing, "it was given no work"));
        };
        if round.line().get().is_none() {
            let reason = "its gate is closed, so it would never end";
            return Err(
                CallError::unsupported("reap", thing, reason).or_try("release the gate first")
            );
        }
        self.wait();
        *self.slot() = None;
        sum_up(&round)
    }

    /// Waits for a round that has started, then ends the threads.
    pub fn end(&self, handles: &mut Vec<JoinHandle<()>>) {
        let started = self.slot().as_ref().is_some_and(|round| round.line().get().is_some());
        if started {
            self.wait();
        }
        *self.slot() = None;
        self.stop.store(true, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        gate::wake(&self.epoch);
        for thread in handles.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<R: PoolRound> GateWaiter for RoundPool<R> {
    fn threads(&self) -> u32 {
        self.threads
    }

    fn start(&self, line: &Arc<StartLine>) {
        let slot = self.slot();
        // A round starts once: a second line would be ignored, and never occurs.
        let Some(round) = slot.as_ref().filter(|round| round.line().set(Arc::clone(line)).is_ok())
        else {
            // Its threads will not arrive at the line.
            line.cancel();
            return;
        };
        round.on_start();
        drop(slot);
        self.done.store(0, Ordering::Relaxed);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        gate::wake(&self.epoch);
    }
}

/// The error for work submitted before the previous round was reaped.
pub fn not_reaped_error(thing: &str) -> CallError {
    let reason = "it has work that was not reaped";
    CallError::new(Severity::Transient, "submit", thing, reason).or_try("reap it first")
}

/// Starts a thread of a pool. `thing` names it in an error; `stack` is in bytes, `None` for the
/// system's default.
///
/// # Errors
/// The system cannot start another thread.
pub fn spawn(
    name: String,
    stack: Option<usize>,
    thing: &str,
    body: impl FnOnce() + Send + 'static,
) -> CallResult<JoinHandle<()>> {
    let mut builder = std::thread::Builder::new().name(name);
    if let Some(stack) = stack {
        builder = builder.stack_size(stack);
    }
    builder.spawn(body).map_err(|error| {
        CallError::new(Severity::Exhausted, "pthread_create", thing, error.to_string())
            .with_code(error.raw_os_error().unwrap_or(0).into())
            .or_try("use fewer threads, or raise ulimit -u")
    })
}

/// The error for a thread that could not be pinned: unpinned it would measure another path than the
/// case names.
pub fn pin_error(thing: &str, error: &io::Error) -> CallError {
    CallError::new(Severity::Transient, "sched_setaffinity", thing, error.to_string())
        .with_code(error.raw_os_error().unwrap_or(0).into())
        .or_try("the CPUs of this process have changed since it began: start again")
}
