//! One worker: keeps its slots busy, and notes when each I/O began and ended.

mod staged;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use pathline_hal::{BlockCopier, CallError, CallResult};
use pathline_schema::{Bytes, IoOp, IoOrder, IoSpec, Ns, PageFaults};

use super::block_error::{BlockIo, partial_io_error};
use super::engine::{BlockEngine, FinishedIo};
use super::io_tally::{BlockRandom, CallTimes, IoTimes};
use super::round_progress::{RoundProgress, RoundReport};
use super::worker_pool::{CallTallies, RoundWorker, tally};
use super::{gds, io_error};
use pathline_host::clock::{self, ClockOrigin};
use pathline_host::cpus;

/// The GPU's end of a worker.
pub(super) struct GpuStaging {
    pub(super) copier: Box<dyn BlockCopier>,
    pub(super) pipelined: bool,
    /// Address of slot 0 in the GPU's memory.
    pub(super) memory: u64,
}

/// The order of a worker's blocks.
#[derive(Debug)]
pub(super) struct BlockOrder {
    /// Blocks of the whole file.
    pub(super) all: u64,
    /// The part that it goes through in order.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Block of slot 0 in a check.
    pub(super) landing: u64,
    /// Number of its random sequence.
    pub(super) draw: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct IoSlot {
    write: bool,
    offset: u64,
    /// When its I/O was due, of a worker whose rate is limited.
    due: Option<u64>,
    begun: u64,
    issued: u64,
    reaped: u64,
    copied: u64,
}

/// Threads that sleep wake up this much later than they ask for, in ns.
const SPIN_NS: u64 = 200_000;
/// Longest sleep between two looks at whether another worker has failed, in ns.
const NAP_NS: u64 = 20_000_000;

/// The times at which the I/Os of a worker are due. They do not wait for I/Os that are late: an I/O that
/// could not begin in time counts its delay (no coordinated omission).
#[derive(Debug)]
struct IoSchedule {
    interval: f64,
    start: u64,
    taken: u64,
}

impl IoSchedule {
    fn new(interval: Ns) -> Self {
        Self { interval: interval.0, start: 0, taken: 0 }
    }
    fn begin(&mut self, now: u64) {
        (self.start, self.taken) = (now, 0);
    }
    /// When the next one is due.
    fn next(&self) -> u64 {
        self.start + (self.taken as f64 * self.interval) as u64
    }
    fn take(&mut self) -> u64 {
        let due = self.next();
        self.taken += 1;
        due
    }
}

/// A thread's own things.
pub(super) struct IoWorker {
    pub(super) index: usize,
    io: IoSpec,
    block: u32,
    /// Address of slot 0 in host memory.
    memory: u64,
    path: BlockOrder,
    file: PathBuf,
    pub(super) engine: Box<dyn BlockEngine>,
    staging: Option<GpuStaging>,
    sync: Option<std::sync::Arc<std::fs::File>>,
    rng: BlockRandom,
    next: u64,
    schedule: Option<IoSchedule>,
    /// Whether this round is a check.
    landing: bool,
    slots: Box<[IoSlot]>,
    free: Vec<u32>,
    ready: Vec<u32>,
    pushed: Vec<u32>,
    copying: VecDeque<u32>,
    ended: Vec<FinishedIo>,
    latency: IoTimes,
    device: IoTimes,
    copy: IoTimes,
    enters: CallTimes,
    copies: CallTimes,
    waits: CallTimes,
}

/// The parts of a worker.
pub(super) struct WorkerParts {
    pub(super) index: usize,
    pub(super) io: IoSpec,
    pub(super) block: u32,
    pub(super) memory: u64,
    pub(super) path: BlockOrder,
    pub(super) file: PathBuf,
    pub(super) engine: Box<dyn BlockEngine>,
    pub(super) staging: Option<GpuStaging>,
    /// The file whose data go to the device at the end of a round, within its time.
    pub(super) sync: Option<std::sync::Arc<std::fs::File>>,
}

impl RoundWorker for IoWorker {
    fn index(&self) -> usize {
        self.index
    }

    fn has_helpers(&self) -> bool {
        self.engine.has_helpers()
    }

    fn describe(&self) -> String {
        self.engine.describe()
    }

    fn landing_ops(&self) -> u64 {
        u64::from(self.io.depth)
    }

    fn round(&mut self, progress: &RoundProgress, ops: u64, landing: bool) -> RoundReport {
        self.landing = landing;
        self.free.clear();
        self.free.extend((0..self.io.depth).rev());
        let faults = self.engine.page_faults();
        let (user, system) = cpus::cpu_times();
        let start = progress.origin.ns();
        if let Some(schedule) = self.schedule.as_mut() {
            schedule.begin(start);
        }
        let outcome = match self.staging {
            None => self.run(progress, ops),
            Some(_) => self.run_staged(progress, ops),
        };
        if outcome.is_ok() && ops > 0 {
            // What it did takes as long as its limit says, even if the last I/O ends before.
            self.await_due(progress);
        }
        let mut report = RoundReport { start, ..RoundReport::default() };
        match outcome.and_then(|()| self.finish(progress, ops, &mut report)) {
            Ok(()) => {}
            Err(error) => {
                let lost = self.settle();
                report.abandoned = lost > 0;
                progress.fail(if lost > 0 { io_error::abandoned(error, lost) } else { error });
            }
        }
        report.end = progress.origin.ns();
        let (user_then, system_then) = cpus::cpu_times();
        if ops > 0 {
            progress.first_ended(report.end);
        }
        (report.user, report.system) = (user_then - user, system_then - system);
        report.faults = faults.zip(self.engine.page_faults()).map(|(before, after)| PageFaults {
            minor: after.minor.saturating_sub(before.minor),
            major: after.major.saturating_sub(before.major),
        });
        self.engine.forget_pages();
        self.account(&mut report);
        report
    }

    fn close(&mut self, origin: ClockOrigin, calls: &mut CallTallies) {
        let begun = origin.ns();
        if let Some(call) = self.engine.let_go() {
            tally(calls, call, 1, (origin.ns() - begun) as f64);
        }
    }
}

impl IoWorker {
    pub(super) fn new(parts: WorkerParts) -> Self {
        let WorkerParts { index, io, block, memory, path, file, engine, staging, sync } = parts;
        let depth = io.depth as usize;
        let rng = BlockRandom::new(0x5107_0000 + path.draw);
        let schedule = io.interval(Bytes(block.into())).map(IoSchedule::new);
        Self {
            index,
            block,
            memory,
            path,
            file,
            engine,
            staging,
            sync,
            rng,
            schedule,
            next: 0,
            landing: false,
            slots: vec![IoSlot::default(); depth].into_boxed_slice(),
            free: Vec::with_capacity(depth),
            ready: Vec::with_capacity(depth),
            pushed: Vec::with_capacity(depth),
            copying: VecDeque::with_capacity(depth),
            // Rings may hold twice as many.
            ended: Vec::with_capacity(2 * depth + 8),
            latency: IoTimes::new(),
            device: IoTimes::new(),
            copy: IoTimes::new(),
            enters: CallTimes::default(),
            copies: CallTimes::default(),
            waits: CallTimes::default(),
            io,
        }
    }

    /// Waits for what is in flight or copied, whose memory may be given back after the round. How many
    /// I/Os could not be waited for.
    fn settle(&mut self) -> u32 {
        if let Some(staging) = self.staging.as_mut() {
            for slot in self.copying.drain(..) {
                // A copy that cannot be waited for has failed, or its context is lost with it.
                let _ = staging.copier.wait(slot as usize);
            }
        }
        let lost = self.engine.settle();
        self.ready.clear();
        self.pushed.clear();
        self.ended.clear();
        lost
    }

    /// Brings what was written to the device.
    fn finish(
        &mut self,
        progress: &RoundProgress,
        ops: u64,
        report: &mut RoundReport,
    ) -> CallResult<()> {
        let Some(file) = self.sync.as_ref().filter(|_| ops > 0) else { return Ok(()) };
        let begun = progress.origin.ns();
        let synced = file.sync_data();
        let mut calls = CallTimes::default();
        calls.add(progress.origin.ns() - begun);
        report.calls.push(("fdatasync", calls));
        synced.map_err(|error| io_error::on("fdatasync", &self.file, &error))
    }

    fn account(&mut self, report: &mut RoundReport) {
        report.latency = self.latency.take();
        report.calls.push((self.engine.call(), std::mem::take(&mut self.enters)));
        if let Some(staging) = &self.staging {
            (report.device, report.copy) = (self.device.take(), self.copy.take());
            let (copies, waits) =
                (std::mem::take(&mut self.copies), std::mem::take(&mut self.waits));
            let copier = &staging.copier;
            let call = match (staging.pipelined, self.io.op) {
                (true, _) => copier.call_name(),
                (false, op) => copier.blocking_call_name(op == IoOp::Read),
            };
            report.calls.push((call, copies));
            if waits.count > 0 {
                report.calls.push(("wait for copy", waits));
            }
        }
    }

    /// Whether the next I/O is due: always without a limit, and in a check.
    #[inline]
    fn is_due(&self, progress: &RoundProgress) -> bool {
        match &self.schedule {
            Some(schedule) if !self.landing => schedule.next() <= progress.origin.ns(),
            _ => true,
        }
    }

    /// Waits until the next I/O is due. Sleeps as long as it wakes in time, and spins then.
    fn await_due(&self, progress: &RoundProgress) {
        let Some(schedule) = self.schedule.as_ref().filter(|_| !self.landing) else { return };
        while !progress.has_failed() {
            let left = schedule.next().saturating_sub(progress.origin.ns());
            if left == 0 {
                return;
            }
            if left > SPIN_NS {
                clock::pause(Duration::from_nanos((left - SPIN_NS).min(NAP_NS)));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Gives a slot its next block.
    #[inline]
    fn choose(&mut self, slot: u32) {
        let write = match self.io.op {
            IoOp::Read => false,
            IoOp::Write => true,
            IoOp::Mix { .. } if self.landing => true,
            IoOp::Mix { reads } => self.rng.below(100) >= u64::from(reads),
        };
        let block = if self.landing {
            self.path.landing + u64::from(slot)
        } else if self.io.order == IoOrder::Rand {
            self.rng.below(self.path.all)
        } else {
            let block = self.path.first + self.next;
            self.next += 1;
            if self.next >= self.path.count {
                self.next = 0;
            }
            block
        };
        // The I/Os of a check are not limited.
        let due = self.schedule.as_mut().filter(|_| !self.landing).map(IoSchedule::take);
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.write = write;
            slot.due = due;
            slot.offset = block * u64::from(self.block);
        }
    }

    /// A slot may have its next block; in a check it has one only.
    #[inline]
    fn release(&mut self, slot: u32) {
        if !self.landing {
            self.free.push(slot);
        }
    }

    #[inline]
    fn slot(&self, slot: u32) -> IoSlot {
        self.slots.get(slot as usize).copied().unwrap_or_default()
    }

    /// Between files and host memory.
    fn run(&mut self, progress: &RoundProgress, ops: u64) -> CallResult<()> {
        let (batch, mut left, mut flying, mut done) = (self.io.batch, ops, 0u32, 0u64);
        let mut failure = None;
        loop {
            let mut noted = 0;
            if left > 0 && flying == 0 {
                self.await_due(progress);
            }
            while noted < batch
                && left > 0
                && self.is_due(progress)
                && let Some(slot) = self.free.pop()
            {
                self.choose(slot);
                let IoSlot { write, offset, .. } = self.slot(slot);
                self.engine.push(slot, write, offset);
                self.pushed.push(slot);
                (noted, left) = (noted + 1, left - 1);
            }
            flying += noted;
            if flying == 0 {
                break;
            }
            // The kernel gets all that there is before it is waited for.
            let more = left > 0 && !self.free.is_empty();
            let wait = if more { 0 } else { batch.min(flying) };
            let before = progress.origin.ns();
            for slot in self.pushed.drain(..) {
                if let Some(slot) = self.slots.get_mut(slot as usize) {
                    slot.begun = slot.due.unwrap_or(before);
                }
            }
            if let Err(error) = self.engine.enter(wait, &mut self.ended) {
                return Err(self.refused(&error));
            }
            let after = progress.origin.ns();
            self.enters.add(after - before);
            let whole = self.block.cast_signed();
            while let Some((slot, result)) = self.ended.pop() {
                let at = self.slots.get(slot as usize).copied().unwrap_or_default();
                flying -= 1;
                self.release(slot);
                if result == whole {
                    self.latency.add(after - at.begun);
                    done += 1;
                } else if failure.is_none() {
                    failure = Some(self.ended(at, result));
                    left = 0;
                }
            }
            self.note(progress, done, &mut left);
        }
        failure.map_or(Ok(()), Err)
    }

    /// The error of a call that hands over and waits.
    fn refused(&mut self, error: &std::io::Error) -> CallError {
        let explained = self.engine.explain();
        explained.unwrap_or_else(|| io_error::on(self.engine.call(), &self.file, error))
    }

    /// The error of an I/O that did not do the whole of its block.
    fn ended(&mut self, at: IoSlot, result: i32) -> CallError {
        if let Some(error) = self.engine.explain() {
            return error;
        }
        let block = BlockIo { write: at.write, offset: at.offset, bytes: self.block };
        let meaning = gds::of_io(self.engine.call(), -result);
        partial_io_error(self.engine.call(), &self.file, block, result, meaning)
    }

    #[inline]
    fn note(&self, progress: &RoundProgress, done: u64, left: &mut u64) {
        progress.set_done(self.index, done);
        if progress.has_failed() {
            *left = 0;
        }
    }
}
