//! Threads pinned to CPUs that sleep between jobs and start each job together.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use pathline_hal::{CallError, CallResult, TeamResult};
use pathline_schema::Ns;

use crate::clock::ClockOrigin;
use crate::gate::{StartLine, ThreadBarrier};
use crate::loops::{CpuLoop, LoopSpan};
use crate::memory::{ChaseChain, MappedMemory};
use crate::round_pool::{self, PoolRound, RoundPool};
use crate::thread_piece::ThreadPiece;
use crate::{chase, cpus, thread_clock};

/// Polls for the next job before a thread sleeps, if another core is free for the thread that
/// submits: 20 to 70 us on x86-64, about twice the time of a wake-up.
const IDLE_SPINS: u32 = 1000;

/// The work of each thread of a job.
pub(crate) enum ThreadTask {
    /// Only the barriers between isolated repetitions: the overhead of the harness.
    Nothing,
    /// Passes of a loop.
    Pass(CpuLoop),
    /// Steps along a chain.
    Chase {
        /// The chain.
        chain: ChaseChain,
        /// Address of the element at which it starts.
        start: u64,
        /// Number of loads, each dependent on the one before.
        steps: u64,
    },
    /// A store into every page of discarded memory.
    Touch {
        /// Bytes between two stores.
        page: usize,
    },
}

/// A thread's clock readings.
#[derive(Debug, Default)]
struct ThreadStamps {
    start: AtomicU64,
    end: AtomicU64,
    /// CPU time from just before the start to just after the end, ns; 0 if unknown.
    on_cpu: AtomicU64,
}

impl ThreadStamps {
    /// Time without a CPU since the team's `start`, ns: late at the start, or within its own piece.
    /// `None` if its CPU time is unknown.
    fn off_cpu(&self, start: u64) -> Option<u64> {
        let [own_start, end, on_cpu] =
            [&self.start, &self.end, &self.on_cpu].map(|stamp| stamp.load(Ordering::Relaxed));
        let late = own_start.saturating_sub(start);
        let part = end.saturating_sub(own_start);
        (on_cpu > 0).then(|| late + part.saturating_sub(on_cpu))
    }
}

/// Work of a team. Holds its memory.
pub(crate) struct TeamJob {
    /// The work of each thread.
    pub(crate) task: ThreadTask,
    /// Address of the source.
    pub(crate) src: u64,
    /// Address of the second source of a triad.
    pub(crate) other: u64,
    /// Address of the destination.
    pub(crate) dst: u64,
    /// Payload of a pass, in bytes.
    pub(crate) bytes: u64,
    /// The piece of each thread.
    pub(crate) pieces: Vec<ThreadPiece>,
    /// Number of passes.
    pub(crate) reps: u64,
    /// Whether threads wait for each other between passes.
    pub(crate) isolated: bool,
    /// Memory that it loads from, kept mapped.
    pub(crate) reads: Vec<Arc<MappedMemory>>,
    /// Memory that it stores to, kept mapped.
    pub(crate) writes: Option<Arc<MappedMemory>>,
    /// Divisor of times: passes, or steps of a chain.
    pub(crate) steps: u64,
    /// The barrier between isolated passes.
    pub(crate) between: ThreadBarrier,
    /// The start line of the threads; set when the gate opens.
    pub(crate) line: OnceLock<Arc<StartLine>>,
    /// Times and checksums of the threads.
    pub(crate) run: TeamRun,
}

/// Results of the threads.
pub(crate) struct TeamRun {
    origin: ClockOrigin,
    stamps: Vec<ThreadStamps>,
    /// Wrapping sum of the threads' sums of loaded words, or the address where a chase has ended.
    sink: AtomicU64,
    refused: AtomicBool,
}

impl TeamRun {
    /// Without results; times count from `origin`.
    pub(crate) fn new(origin: ClockOrigin, threads: u32) -> Self {
        Self {
            origin,
            stamps: (0..threads).map(|_| ThreadStamps::default()).collect(),
            sink: AtomicU64::new(0),
            refused: AtomicBool::new(false),
        }
    }
}

impl TeamJob {
    /// Sets the memory that the job stores to, and marks it as in use until the job is dropped.
    pub(crate) fn will_write(&mut self, mapping: Arc<MappedMemory>) {
        mapping.writers.fetch_add(1, Ordering::AcqRel);
        self.writes = Some(mapping);
    }

    fn execute(&self, index: usize, line: &StartLine) {
        if let Some(piece) = self.pieces.get(index) {
            line.wait();
            // Not before the line, where threads wait without a CPU. A switch at the end of either
            // call is outside both readings.
            let before = thread_clock::on_cpu_ns();
            let (start, end) = match self.task {
                ThreadTask::Touch { page } => self.touch(*piece, page),
                _ => self.passes(*piece),
            };
            let after = thread_clock::on_cpu_ns();
            let on_cpu =
                before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before));
            if let Some(stamps) = self.run.stamps.get(index) {
                stamps.start.store(start, Ordering::Relaxed);
                stamps.end.store(end, Ordering::Relaxed);
                stamps.on_cpu.store(on_cpu, Ordering::Relaxed);
            }
        }
    }

    fn passes(&self, piece: ThreadPiece) -> (u64, u64) {
        let at = piece.offset;
        let span = LoopSpan {
            dst: self.dst.wrapping_add(at) as *mut u8,
            src: self.src.wrapping_add(at) as *const u8,
            other: self.other.wrapping_add(at) as *const u8,
            len: piece.len as usize,
        };
        let mut sum = 0_u64;
        let start = self.run.origin.ns();
        match self.task {
            ThreadTask::Pass(body) => {
                let (calls, passes) = if self.isolated { (self.reps, 1) } else { (1, self.reps) };
                for call in 0..calls {
                    if call > 0 {
                        self.between.wait();
                    }
                    // SAFETY: `submit` has checked that the spans lie inside mappings that this job
                    // holds, without overlap, and that the processor supports the loop; pieces are
                    // disjoint.
                    sum = sum.wrapping_add(unsafe { body.passes(span, passes) });
                }
            }
            // SAFETY: `submit` found a whole chain there with `start` among its elements, and refuses
            // whatever would write to it.
            ThreadTask::Chase { start, steps, .. } => sum = unsafe { chase::follow(start, steps) },
            ThreadTask::Nothing if self.isolated => {
                (1..self.reps).for_each(|_| self.between.wait())
            }
            ThreadTask::Nothing | ThreadTask::Touch { .. } => {}
        }
        let end = self.run.origin.ns();
        self.run.sink.fetch_add(sum, Ordering::Relaxed);
        (start, end)
    }

    /// Touches fresh pages. Each pass first discards them, untimed.
    fn touch(&self, piece: ThreadPiece, page: usize) -> (u64, u64) {
        let Some(mapping) = &self.writes else { return (0, 0) };
        let start = (self.dst + piece.offset) as usize;
        let len = piece.len as usize;
        let back = len.next_multiple_of(mapping.grain).min(mapping.base + mapping.len - start);
        let mut spent = 0;
        for _ in 0..self.reps {
            if back > 0 && mapping.discard_range(start, back).is_err() {
                self.run.refused.store(true, Ordering::Relaxed);
            }
            self.between.wait();
            let begin = self.run.origin.ns();
            for at in (0..len).step_by(page) {
                // SAFETY: inside this thread's piece of a mapping that this job holds.
                unsafe { ((start + at) as *mut u8).write_volatile(1) };
            }
            spent += self.run.origin.ns() - begin;
            self.between.wait();
        }
        (0, spent)
    }

    /// Where its chase has ended, if it was one.
    fn chase_end(&self) -> Option<ChaseEnd> {
        match self.task {
            // Its one thread leaves the address there.
            ThreadTask::Chase { chain, .. } => {
                Some(ChaseEnd { chain, at: self.run.sink.load(Ordering::Relaxed) })
            }
            _ => None,
        }
    }

    /// What it has loaded, if it was a read.
    fn read_sum(&self) -> Option<ReadSum> {
        let ThreadTask::Pass(body) = self.task else { return None };
        body.reads().then(|| ReadSum {
            src: self.src,
            bytes: self.bytes,
            passes: self.reps,
            sum: self.run.sink.load(Ordering::Relaxed),
        })
    }

    fn reaped(&self) -> CallResult<TeamResult> {
        if self.run.refused.load(Ordering::Relaxed) {
            let reason = "the kernel did not take the pages back";
            return Err(CallError::unsupported("madvise", "first touch", reason)
                .or_try("reserved huge pages need Linux 5.18: enable transparent ones"));
        }
        // Empty pieces do not affect the start or the end of the work.
        let busy = |piece: &ThreadPiece| piece.len > 0 || matches!(self.task, ThreadTask::Nothing);
        let stamps =
            || self.run.stamps.iter().zip(&self.pieces).filter(|(_, p)| busy(p)).map(|(s, _)| s);
        let start = stamps().map(|s| s.start.load(Ordering::Relaxed)).min().unwrap_or(0);
        let end = stamps().map(|s| s.end.load(Ordering::Relaxed)).max().unwrap_or(0);
        let off_cpu = stamps().map(|s| s.off_cpu(start)).collect::<Option<Vec<u64>>>();
        // The time of first touches is a sum of passes, between which the pages are discarded.
        let whole = !matches!(self.task, ThreadTask::Touch { .. });
        let off_cpu = off_cpu.filter(|_| whole).and_then(|all| all.into_iter().max());
        Ok(TeamResult {
            elapsed: Ns(end.saturating_sub(start) as f64),
            steps: self.steps,
            off_cpu: off_cpu.map(|ns| Ns(ns as f64)),
        })
    }
}

impl Drop for TeamJob {
    fn drop(&mut self) {
        if let Some(mapping) = &self.writes {
            mapping.writers.fetch_sub(1, Ordering::AcqRel);
            if self.line.get().is_some() {
                mapping.running.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

impl PoolRound for TeamJob {
    fn line(&self) -> &OnceLock<Arc<StartLine>> {
        &self.line
    }
    fn on_start(&self) {
        if let Some(mapping) = &self.writes {
            mapping.running.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Where a chase has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChaseEnd {
    /// Its chain.
    pub(crate) chain: ChaseChain,
    /// Address of the element that it reached.
    pub(crate) at: u64,
}

/// What reads of one span have loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadSum {
    /// Address of the span.
    pub(crate) src: u64,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
    /// Number of passes.
    pub(crate) passes: u64,
    /// Wrapping sum of the 8-byte words that all passes loaded.
    pub(crate) sum: u64,
}

impl ReadSum {
    /// With an earlier sum added, if that is of the same span.
    fn after(self, earlier: Option<Self>) -> Self {
        let same = |sum: &Self| (sum.src, sum.bytes) == (self.src, self.bytes);
        let (passes, sum) = earlier.filter(same).map_or((0, 0), |sum| (sum.passes, sum.sum));
        let (passes, sum) = (self.passes.wrapping_add(passes), self.sum.wrapping_add(sum));
        Self { passes, sum, ..self }
    }
}

/// A team of pinned threads.
pub(crate) struct PinnedTeam {
    /// The pool that its threads serve.
    pub(crate) pool: Arc<RoundPool<TeamJob>>,
    /// The CPU of each thread.
    pub(crate) cpus: Vec<u32>,
    /// Where its last chase has ended.
    pub(crate) chase_end: Cell<Option<ChaseEnd>>,
    /// What its reads of the last span that it read have loaded.
    pub(crate) read_sum: Cell<Option<ReadSum>>,
    threads: Vec<JoinHandle<()>>,
}

impl PinnedTeam {
    /// Starts a thread on each of `cpus`. `spare`: a core is left for the thread that submits.
    pub(crate) fn new(cpus: Vec<u32>, spare: bool) -> CallResult<Self> {
        let spins = if spare { IDLE_SPINS } else { 0 };
        let pool = Arc::new(RoundPool::new(cpus.len() as u32, spins));
        let (chase_end, read_sum) = (Cell::new(None), Cell::new(None));
        let mut team = Self { pool, cpus, chase_end, read_sum, threads: Vec::new() };
        let (ready, started) = mpsc::channel();
        for (index, &cpu) in team.cpus.iter().enumerate() {
            let (pool, ready) = (Arc::clone(&team.pool), ready.clone());
            let body = move || {
                let pinned = cpus::pin(cpu);
                let failed = pinned.is_err();
                let _ = ready.send(pinned.map_err(|error| (cpu, error)));
                drop(ready);
                if !failed {
                    pool.serve(|job: Arc<TeamJob>, line| job.execute(index, line));
                }
            };
            let (name, thing) = (format!("pathline-cpu{cpu}"), format!("cpu{cpu}"));
            team.threads.push(round_pool::spawn(name, None, &thing, body)?);
        }
        drop(ready);
        for pinned in started {
            pinned.map_err(|(cpu, error)| round_pool::pin_error(&format!("cpu{cpu}"), &error))?;
        }
        Ok(team)
    }

    /// Waits for the submitted job, which must have been started.
    pub(crate) fn reap(&self) -> CallResult<TeamResult> {
        self.pool.reap("team", |job| {
            self.chase_end.set(job.chase_end().or(self.chase_end.get()));
            let earlier = self.read_sum.get();
            self.read_sum.set(job.read_sum().map(|sum| sum.after(earlier)).or(earlier));
            job.reaped()
        })
    }
}

impl Drop for PinnedTeam {
    fn drop(&mut self) {
        self.pool.end(&mut self.threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_cpu_is_that_of_a_late_start_and_of_the_part_itself() {
        let stamps = |start: u64, end: u64, on_cpu: u64| ThreadStamps {
            start: start.into(),
            end: end.into(),
            on_cpu: on_cpu.into(),
        };
        // The team starts at 100: 20 late, and 50 of the 300 of its piece.
        assert_eq!(stamps(120, 420, 250).off_cpu(100), Some(70));
        // The readings are outside the piece, so that CPU time may exceed it.
        assert_eq!(stamps(100, 400, 301).off_cpu(100), Some(0));
        assert_eq!(stamps(100, 400, 0).off_cpu(100), None);
    }
}
