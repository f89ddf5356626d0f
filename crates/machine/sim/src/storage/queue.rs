//! One sample of I/O, event by event: workers, what they have in flight, and the stations that it
//! passes. A closed network of queues; its time starts at 0.
//!
//! A worker reaps completed I/Os, copies if a GPU is an end, submits as soon as a batch is free,
//! and else waits for a batch. A request passes its target's front, a channel, the bus and the
//! node's link; each serves in the order of arrival. Copies of all workers pass one engine.

use std::collections::BTreeMap;

use pathline_flow::IoParts;
use pathline_hal::{WorkerRange, pattern};
use pathline_schema::{Bytes, CallTally, IoCache, IoEngine, IoFiles, IoOp, IoOrder, IoSpec};

use crate::calendar::EventCalendar;

/// How a block gets to or from the GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageCopy {
    /// Whether the worker goes on meanwhile.
    pub(super) pipelined: bool,
    /// Time of the call.
    pub(super) call: f64,
    /// From the call's end to the first byte.
    pub(super) alpha: f64,
    /// Time of the bytes of one block.
    pub(super) moving: f64,
    /// Whether the engine is busy from the start on, not only while bytes move.
    pub(super) serial: bool,
    /// Names of the copy calls, into the GPU and out of it.
    pub(super) names: [&'static str; 2],
}

/// A sample to simulate.
pub(super) struct QueueJob<'a> {
    pub(super) io: IoSpec,
    pub(super) workers: WorkerRange,
    pub(super) parts: &'a IoParts,
    pub(super) block: u64,
    pub(super) stage: Option<StageCopy>,
    /// Time of a block between the page cache and memory; 0 past the cache.
    pub(super) cache: f64,
    pub(super) ops: u64,
    /// Seed of the random numbers.
    pub(super) seed: u64,
    /// Whether times spread.
    pub(super) spreads: bool,
}

/// The result of a sample. Times are ns from the start.
#[derive(Debug, Default)]
pub(super) struct QueueOutcome {
    pub(super) elapsed: f64,
    pub(super) first_done: f64,
    pub(super) first_done_ops: u64,
    /// End of each worker.
    pub(super) ends: Vec<f64>,
    pub(super) user: f64,
    pub(super) system: f64,
    pub(super) latency: Vec<f64>,
    /// With a GPU: the part of the I/O itself, and that of the copy.
    pub(super) device: Vec<f64>,
    pub(super) copy: Vec<f64>,
    pub(super) calls: BTreeMap<&'static str, CallTally>,
    pub(super) requests: u64,
}

/// The next event of a request or a worker.
#[derive(Debug, Clone, Copy)]
enum QueueEvent {
    /// A worker's thread goes on.
    Run(u32),
    /// A request comes to its target.
    Arrive(BlockRequest),
    /// It leaves its channel.
    Served(BlockRequest),
    /// It leaves the target's bus.
    Sent(BlockRequest),
    /// It is done.
    Done(BlockRequest),
    /// The copy of a slot has ended.
    Copied(u32, u32),
    /// The next I/O of a worker is due.
    Due(u32),
}

/// A request of a slot's block.
#[derive(Debug, Clone, Copy)]
struct BlockRequest {
    worker: u32,
    slot: u32,
    target: u32,
    bytes: u64,
    writes: bool,
}

#[derive(Debug)]
struct QueueTarget {
    front: f64,
    /// When each is free.
    channels: EventCalendar<()>,
    bus: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct QueueSlot {
    writes: bool,
    /// Requests that are not done.
    left: u32,
    /// When the block was begun: I/O or, of a write out of a GPU, copy.
    begun: f64,
    /// When it was handed to the kernel.
    handed: f64,
    /// When its copy was called for.
    copying: f64,
}

/// The wait of a thread.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ThreadWait {
    /// It runs, or is to run.
    No,
    /// Asleep in the kernel until this many I/Os are done; since when.
    Sleeps(usize, f64),
    /// Polling for an I/O or a copy; since when.
    Spins(f64),
    /// For what it wrote to be on the store.
    Flushes(f64),
    /// For the time at which its next I/O is due.
    Idles,
}

#[derive(Debug)]
struct QueueWorker {
    /// I/Os that are not begun.
    left: u64,
    /// The next block of those in order.
    next: u64,
    free: Vec<u32>,
    /// Out of the GPU, ready to be written.
    ready: Vec<u32>,
    /// I/Os in flight.
    asked: usize,
    /// Copies in flight.
    copying: usize,
    /// I/Os that are done and not seen.
    done: Vec<u32>,
    copied: Vec<u32>,
    /// Requests of the page cache that are not on the store.
    dirty: u64,
    waits: ThreadWait,
    /// Whether it has synchronised its file.
    synced: bool,
    /// I/Os that were begun.
    begun: u64,
    /// Whether an event comes when its next I/O is due.
    awaits_due: bool,
}

struct QueueSim<'a> {
    job: &'a QueueJob<'a>,
    calendar: EventCalendar<QueueEvent>,
    draws: u64,
    targets: Vec<QueueTarget>,
    link: f64,
    engine: f64,
    workers: Vec<QueueWorker>,
    slots: Vec<QueueSlot>,
    finished: u64,
    running: u32,
    out: QueueOutcome,
}

/// Does all of a job.
pub(super) fn run(job: &QueueJob<'_>) -> QueueOutcome {
    let threads = u64::from(job.io.threads.max(1));
    let store = &job.parts.store;
    let target = || QueueTarget { front: 0.0, channels: free_at_once(store.channels), bus: 0.0 };
    let worker = |w: u64| QueueWorker {
        left: job.ops / threads + u64::from(w < job.ops % threads),
        next: 0,
        free: (0..job.io.depth).rev().collect(),
        ready: Vec::new(),
        asked: 0,
        copying: 0,
        done: Vec::new(),
        copied: Vec::new(),
        dirty: 0,
        waits: ThreadWait::No,
        synced: false,
        begun: 0,
        awaits_due: false,
    };
    let mut sim = QueueSim {
        job,
        calendar: EventCalendar::default(),
        draws: 0,
        targets: (0..store.targets).map(|_| target()).collect(),
        link: 0.0,
        engine: 0.0,
        workers: (0..threads).map(worker).collect(),
        slots: vec![QueueSlot::default(); job.io.slots() as usize],
        finished: 0,
        running: job.io.threads,
        out: QueueOutcome { ends: vec![0.0; threads as usize], ..QueueOutcome::default() },
    };
    let room = usize::try_from(job.ops).unwrap_or_default();
    sim.out.latency.reserve(room);
    for w in 0..job.io.threads {
        sim.calendar.put(0.0, QueueEvent::Run(w));
    }
    while let Some((at, what)) = sim.calendar.pop() {
        sim.happen(at, what);
    }
    sim.out
}

fn free_at_once(channels: u32) -> EventCalendar<()> {
    let mut free = EventCalendar::default();
    (0..channels).for_each(|_| free.put(0.0, ()));
    free
}

impl QueueJob<'_> {
    /// Time from one I/O of a worker to the next; 0 without a limit.
    fn interval(&self) -> f64 {
        self.io.interval(Bytes(self.block)).map_or(0.0, |ns| ns.0)
    }
}

impl QueueSim<'_> {
    /// A number from 0 to 1, never 0.
    fn uniform(&mut self) -> f64 {
        self.draws += 1;
        let bits = pattern::word(self.job.seed, self.draws) >> 11;
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Time of a request on its channel.
    fn latency(&mut self, writes: bool) -> f64 {
        let store = &self.job.parts.store;
        let (mean, spread) = (store.latency(writes).0, store.spread);
        if !self.job.spreads || spread == 0.0 {
            return mean;
        }
        let exponential = -self.uniform().ln();
        mean * (1.0 - spread + spread * exponential)
    }

    fn slot(&mut self, worker: u32, slot: u32) -> Option<&mut QueueSlot> {
        let at = worker as usize * self.job.io.depth as usize + slot as usize;
        self.slots.get_mut(at)
    }

    fn tally(&mut self, name: &'static str, ns: f64) {
        self.out.calls.entry(name).or_default().add(CallTally { count: 1, ns });
    }

    fn happen(&mut self, at: f64, what: QueueEvent) {
        match what {
            QueueEvent::Run(worker) => self.go_on(worker, at),
            QueueEvent::Arrive(part) => self.arrive(part, at),
            QueueEvent::Served(part) => {
                let rate = self.job.parts.store.rate(part.writes).0;
                let Some(target) = self.targets.get_mut(part.target as usize) else { return };
                target.bus = target.bus.max(at) + part.bytes as f64 / rate;
                let end = target.bus;
                self.calendar.put(end, QueueEvent::Sent(part));
            }
            QueueEvent::Sent(part) => match self.job.parts.store.client_gbs {
                Some(rate) => {
                    self.link = self.link.max(at) + part.bytes as f64 / rate;
                    self.calendar.put(self.link, QueueEvent::Done(part));
                }
                None => self.done(part, at),
            },
            QueueEvent::Done(part) => self.done(part, at),
            QueueEvent::Copied(worker, slot) => self.copied(worker, slot, at),
            QueueEvent::Due(worker) => self.due(worker, at),
        }
    }

    fn arrive(&mut self, part: BlockRequest, at: f64) {
        let turn = self.job.parts.store.turn(part.writes).0;
        let latency = self.latency(part.writes);
        let Some(target) = self.targets.get_mut(part.target as usize) else { return };
        target.front = target.front.max(at) + turn;
        let free = target.channels.pop().map_or(0.0, |(free, ())| free);
        let end = target.front.max(free) + latency;
        target.channels.put(end, ());
        self.out.requests += 1;
        self.calendar.put(end, QueueEvent::Served(part));
    }

    /// A request is done, and its I/O if it was the last.
    fn done(&mut self, part: BlockRequest, at: f64) {
        let cached = self.job.io.cache != IoCache::Direct && part.writes;
        if cached {
            let Some(worker) = self.workers.get_mut(part.worker as usize) else { return };
            worker.dirty -= 1;
            if let (0, ThreadWait::Flushes(since)) = (worker.dirty, worker.waits) {
                let wake = self.job.parts.cpu.wake.0;
                self.out.system += wake;
                self.tally("fdatasync", at + wake - since);
                self.resume(part.worker, at + wake);
            }
            return;
        }
        let Some(slot) = self.slot(part.worker, part.slot) else { return };
        slot.left -= 1;
        if slot.left > 0 {
            return;
        }
        let Some(worker) = self.workers.get_mut(part.worker as usize) else { return };
        worker.done.push(part.slot);
        self.wake(part.worker, at);
    }

    fn copied(&mut self, worker: u32, slot: u32, at: f64) {
        let Some(w) = self.workers.get_mut(worker as usize) else { return };
        w.copied.push(slot);
        self.wake(worker, at);
    }

    /// Lets a thread go on that waits for what has come.
    fn wake(&mut self, worker: u32, at: f64) {
        let Some(w) = self.workers.get(worker as usize) else { return };
        match w.waits {
            ThreadWait::Sleeps(need, since) if w.done.len() >= need => {
                // A wait by a separate call costs that call.
                let (submits, name) = self.names();
                let call = if submits == name { 0.0 } else { self.job.parts.cpu.call.0 };
                let wake = self.job.parts.cpu.wake.0 + call;
                self.out.system += wake;
                self.out.calls.entry(name).or_default().ns += at + wake - since;
                self.resume(worker, at + wake);
            }
            ThreadWait::Spins(since) => {
                self.out.user += at - since;
                self.resume(worker, at);
            }
            _ => {}
        }
    }

    fn resume(&mut self, worker: u32, at: f64) {
        if let Some(w) = self.workers.get_mut(worker as usize) {
            w.waits = ThreadWait::No;
            self.calendar.put(at, QueueEvent::Run(worker));
        }
    }

    /// The calls that submit and that wait.
    fn names(&self) -> (&'static str, &'static str) {
        match self.job.io.engine {
            IoEngine::Uring | IoEngine::UringPlain | IoEngine::UringPoll => {
                ("io_uring_enter", "io_uring_enter")
            }
            IoEngine::Aio => ("io_submit", "io_getevents"),
            IoEngine::Sync | IoEngine::Gds => match self.job.io.op {
                IoOp::Write => ("pwrite", "pwrite"),
                _ => ("pread", "pread"),
            },
            IoEngine::Mmap | IoEngine::MmapPlain | IoEngine::MmapPopulate => {
                ("copy of a mapping", "copy of a mapping")
            }
            IoEngine::S3 => {
                let write =
                    if self.job.io.files == IoFiles::Each { "PutObject" } else { "UploadPart" };
                let name = if self.job.io.op == IoOp::Write { write } else { "GetObject" };
                (name, name)
            }
        }
    }

    /// A thread runs until it has spent time or waits.
    fn go_on(&mut self, worker: u32, now: f64) {
        if self.reap_copy(worker, now) || self.reap_io(worker, now) {
            return;
        }
        if self.copy_out(worker, now) || self.submit(worker, now) {
            return;
        }
        self.rest(worker, now);
    }

    /// Reaps copies. Its cost is part of the loop's time.
    fn reap_copy(&mut self, worker: u32, now: f64) -> bool {
        while let Some(w) = self.workers.get_mut(worker as usize)
            && let Some(slot) = w.copied.pop()
        {
            w.copying -= 1;
            let Some(state) = self.slot(worker, slot).map(|s| *s) else { continue };
            self.out.copy.push(now - state.copying);
            if state.writes {
                if let Some(w) = self.workers.get_mut(worker as usize) {
                    w.ready.push(slot);
                }
            } else {
                self.end(worker, slot, now - state.begun);
            }
        }
        false
    }

    /// A block is where it should be.
    fn end(&mut self, worker: u32, slot: u32, took: f64) {
        self.out.latency.push(took);
        self.finished += 1;
        if let Some(w) = self.workers.get_mut(worker as usize) {
            w.free.push(slot);
        }
    }

    /// Sees the end of I/Os; what was read for a GPU is copied on. Whether that took time.
    fn reap_io(&mut self, worker: u32, now: f64) -> bool {
        while let Some(w) = self.workers.get_mut(worker as usize)
            && let Some(slot) = w.done.pop()
        {
            w.asked -= 1;
            let Some(state) = self.slot(worker, slot).map(|s| *s) else { continue };
            let cold = self.job.io.cache == IoCache::Cold && !state.writes;
            if self.job.stage.is_some() {
                self.out.device.push(now - state.handed);
            }
            match self.job.stage {
                Some(stage) if !state.writes => {
                    let from_cache = if cold { self.job.cache } else { 0.0 };
                    self.out.system += from_cache;
                    self.copy(worker, slot, stage, now + from_cache);
                    return true;
                }
                _ if cold => {
                    // Out of the page cache, by this thread.
                    self.out.system += self.job.cache;
                    let end = now + self.job.cache;
                    self.end(worker, slot, end - state.begun);
                    self.calendar.put(end, QueueEvent::Run(worker));
                    return true;
                }
                _ => self.end(worker, slot, now - state.begun),
            }
        }
        false
    }

    /// Calls for the copy of a slot. The thread goes on after the call, or at the copy's end.
    fn copy(&mut self, worker: u32, slot: u32, stage: StageCopy, now: f64) {
        let Some(state) = self.slot(worker, slot) else { return };
        state.copying = now;
        let name = stage.names[usize::from(state.writes)];
        let ready = now + stage.call;
        let end = if stage.serial {
            self.engine.max(ready) + stage.alpha + stage.moving
        } else {
            self.engine.max(ready + stage.alpha) + stage.moving
        };
        self.engine = end;
        if let Some(w) = self.workers.get_mut(worker as usize) {
            w.copying += 1;
        }
        self.calendar.put(end, QueueEvent::Copied(worker, slot));
        let until = if stage.pipelined { ready } else { end };
        self.out.user += until - now;
        self.tally(name, until - now);
        self.calendar.put(until, QueueEvent::Run(worker));
    }

    /// Begins the copy of a block that is to be written, if a slot is free. Whether it did.
    fn copy_out(&mut self, worker: u32, now: f64) -> bool {
        let Some(stage) = self.job.stage else { return false };
        let Some(w) = self.workers.get_mut(worker as usize) else { return false };
        // Mixed I/O reads into the GPU or writes out of it, which the slot decides as it is begun.
        let (due, allowed) = Self::allowed(self.job, w, now);
        if self.job.io.op == IoOp::Read || w.left == 0 || allowed == 0 {
            return false;
        }
        let Some(slot) = w.free.pop() else { return false };
        w.left -= 1;
        w.begun += 1;
        let writes = self.is_write();
        if let Some(state) = self.slot(worker, slot) {
            (state.writes, state.begun) = (writes, due.unwrap_or(now));
        }
        if writes {
            self.copy(worker, slot, stage, now);
            return true;
        }
        if let Some(w) = self.workers.get_mut(worker as usize) {
            w.ready.push(slot);
        }
        self.copy_out(worker, now)
    }

    fn is_write(&mut self) -> bool {
        match self.job.io.op {
            IoOp::Read => false,
            IoOp::Write => true,
            IoOp::Mix { reads } => self.uniform() * 100.0 >= f64::from(reads),
        }
    }

    /// Takes slots that can be submitted, up to a batch.
    fn take(&mut self, worker: u32, now: f64) -> Vec<u32> {
        let batch = self.job.io.batch as usize;
        let staged = self.job.stage.is_some() && self.job.io.op != IoOp::Read;
        let Some(w) = self.workers.get_mut(worker as usize) else { return Vec::new() };
        let can = if staged {
            w.ready.len()
        } else {
            w.free.len().min(usize::try_from(w.left).unwrap_or(usize::MAX))
        };
        let (due, allowed) = Self::allowed(self.job, w, now);
        // What is due goes at once, a batch or not.
        let limited = due.is_some();
        let can = if staged { can } else { can.min(allowed) };
        // Less than a batch goes only if nothing comes that would fill it.
        let coming = w.copying + if w.left > can as u64 || staged { w.asked } else { 0 };
        let coming = if staged && w.left == 0 { w.copying } else { coming };
        if can == 0 || (can < batch && coming > 0 && !limited) {
            return Vec::new();
        }
        let n = can.min(batch);
        if staged {
            return w.ready.drain(..n).collect();
        }
        w.left -= n as u64;
        w.begun += n as u64;
        let interval = self.job.interval();
        let slots: Vec<u32> = w.free.split_off(w.free.len() - n);
        for (&slot, nth) in slots.iter().zip(0..) {
            let writes = self.is_write();
            let begun = due.map_or(now, |due| due + f64::from(nth) * interval);
            if let Some(state) = self.slot(worker, slot) {
                (state.writes, state.begun) = (writes, begun);
            }
        }
        slots
    }

    /// Hands a batch to the kernel by one call, if there is one. Whether it did.
    fn submit(&mut self, worker: u32, now: f64) -> bool {
        let slots = self.take(worker, now);
        if slots.is_empty() {
            return false;
        }
        let cpu = self.job.parts.cpu;
        let mut at = now + cpu.call.0;
        let mut inline = Vec::new();
        for &slot in &slots {
            at += cpu.user.0 + cpu.kernel.0;
            let Some(state) = self.slot(worker, slot) else { continue };
            state.handed = now;
            let writes = state.writes;
            let cached = match self.job.io.cache {
                IoCache::Direct => false,
                IoCache::Cached => true,
                IoCache::Cold => writes,
            };
            if cached {
                at += self.job.cache;
                inline.push(slot);
            }
            if !cached || writes {
                self.ask(worker, slot, writes, at);
            }
        }
        self.out.user += cpu.user.0 * slots.len() as f64;
        self.out.system += at - now - cpu.user.0 * slots.len() as f64;
        let name = self.names().0;
        self.tally(name, at - now);
        if let Some(w) = self.workers.get_mut(worker as usize) {
            w.asked += slots.len();
            w.done.extend(inline);
        }
        self.calendar.put(at, QueueEvent::Run(worker));
        true
    }

    /// The requests of a slot's block set out.
    fn ask(&mut self, worker: u32, slot: u32, writes: bool, at: f64) {
        let offset = self.offset(worker);
        let (job, store) = (self.job, &self.job.parts.store);
        let back = writes && job.io.cache != IoCache::Direct;
        // The cache writes back in requests as large as they may be.
        let page = if back { store.max_request_bytes } else { job.parts.page };
        let start = at + store.network_us * 1e3;
        let mut parts = 0;
        for request in store.requests(offset, job.block, page) {
            let (target, bytes) = (request.target, request.bytes);
            parts += 1;
            self.calendar.put(
                start,
                QueueEvent::Arrive(BlockRequest { worker, slot, target, bytes, writes }),
            );
        }
        if back {
            if let Some(w) = self.workers.get_mut(worker as usize) {
                w.dirty += u64::from(parts);
            }
        } else if let Some(state) = self.slot(worker, slot) {
            state.left = parts;
        }
    }

    /// Offset of a worker's next block in its file.
    fn offset(&mut self, worker: u32) -> u64 {
        let io = &self.job.io;
        let blocks = (io.span.0 / self.job.block.max(1)).max(1);
        if io.order == IoOrder::Rand {
            return (self.uniform() * blocks as f64) as u64 * self.job.block;
        }
        let own = match io.files {
            IoFiles::Own => blocks,
            IoFiles::Shared | IoFiles::Each => {
                (blocks / u64::from(self.job.workers.of.max(1))).max(1)
            }
        };
        let number = u64::from(self.job.workers.first) + u64::from(worker);
        let first = if io.files == IoFiles::Own { 0 } else { number * own };
        let Some(w) = self.workers.get_mut(worker as usize) else { return 0 };
        let at = first + w.next % own;
        w.next += 1;
        at % blocks * self.job.block
    }

    /// When the next I/O of a worker is due, and how many are due now; `None` and all without a limit.
    fn allowed(job: &QueueJob<'_>, w: &QueueWorker, now: f64) -> (Option<f64>, usize) {
        let interval = job.interval();
        if interval == 0.0 {
            return (None, usize::MAX);
        }
        let due = w.begun as f64 * interval;
        let count = if due > now { 0 } else { ((now - due) / interval) as usize + 1 };
        (Some(due), count)
    }

    /// The next I/O of a worker is due.
    fn due(&mut self, worker: u32, now: f64) {
        let Some(w) = self.workers.get_mut(worker as usize) else { return };
        w.awaits_due = false;
        match w.waits {
            ThreadWait::No | ThreadWait::Flushes(_) => {}
            ThreadWait::Sleeps(..) | ThreadWait::Spins(_) | ThreadWait::Idles => {
                self.resume(worker, now);
            }
        }
    }

    /// Nothing can be begun: waits, or ends.
    fn rest(&mut self, worker: u32, now: f64) {
        let batch = self.job.io.batch as usize;
        let polls = self.job.io.engine == IoEngine::UringPoll;
        let aio = self.job.io.engine == IoEngine::Aio;
        let Some(w) = self.workers.get_mut(worker as usize) else { return };
        let (due, allowed) = Self::allowed(self.job, w, now);
        if let (Some(due), 0, true) = (due, allowed, w.left > 0) {
            if !w.awaits_due {
                w.awaits_due = true;
                self.calendar.put(due, QueueEvent::Due(worker));
            }
            if w.asked + w.copying == 0 {
                w.waits = ThreadWait::Idles;
                return;
            }
        }
        if w.asked + w.copying > 0 {
            if w.copying > 0 || polls {
                w.waits = ThreadWait::Spins(now);
            } else {
                w.waits = ThreadWait::Sleeps(batch.min(w.asked), now);
                if aio {
                    self.out.calls.entry("io_getevents").or_default().count += 1;
                }
            }
            return;
        }
        if !w.synced && self.job.io.writes() && self.job.io.cache != IoCache::Direct {
            w.synced = true;
            if w.dirty > 0 {
                w.waits = ThreadWait::Flushes(now);
                return;
            }
        }
        // What it did takes as long as its limit says, even if the last I/O ends before.
        let now = due.map_or(now, |due| due.max(now));
        if self.running == self.job.io.threads {
            (self.out.first_done, self.out.first_done_ops) = (now, self.finished);
        }
        self.running -= 1;
        if let Some(end) = self.out.ends.get_mut(worker as usize) {
            *end = now;
        }
        self.out.elapsed = self.out.elapsed.max(now);
    }
}
