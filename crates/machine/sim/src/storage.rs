//! Files of a simulated machine. Their content is kept as patterns. I/O is simulated event by event
//! ([`queue`]), and shares resources with other flows.

mod meta;
mod queue;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use meta::{MetaOutcome, MetaTimes};
use pathline_flow::{FlowOperation, IoParts, StoreKind, StoreModel};
use pathline_hal::{
    CallError, CallResult, FileStorage, GateId, IoDone, IoId, IoJob, MetaJob, WorkerRange, no_io,
};
use pathline_schema::{
    Bytes, CallTally, Flow, IoEngine, IoHistogram, IoOp, IoReading, IoSpec, MemKind, MetaOp, Mover,
    Ns, Place, Rank, Rate, Severity, StoreFacts, StripeLayout, Unit, VerifyResult,
};

use crate::memory::{BufferOwner, BufferSpot};
use crate::timeline::{LaneOp, LaneOwner};
use crate::world::{EffectKind, MemoryEffect, SimWorld, TransferLoad};
use queue::{QueueJob, QueueOutcome, StageCopy};

/// Size of a file of the suite: past any cache of a device.
const USUAL_SPAN: Bytes = Bytes::gib(16);

/// Sectors of the drives; I/O past the page cache has whole ones.
const SECTOR: u64 = 512;
/// The number of "no space left on device".
const ENOSPC: i64 = 28;

/// A file.
#[derive(Debug, Clone, Copy)]
struct SimFile {
    /// Address of its contents.
    address: u64,
    span: u64,
    /// The pattern that all of it holds, if it does.
    holds: Option<u64>,
}

/// I/O that is open.
struct SimOpenIo {
    io: IoSpec,
    workers: WorkerRange,
    store: u32,
    block: Bytes,
    parts: IoParts,
    operation: FlowOperation,
    stage: Option<StageCopy>,
    host: BufferSpot,
    gpu: Option<BufferSpot>,
    lane: u64,
    setup: BTreeMap<String, CallTally>,
    /// The submitted sample that was not reaped yet.
    pending: Option<(QueueOutcome, u64)>,
}

/// Metadata operations that are open.
struct SimOpenMeta {
    job: MetaJob,
    times: MetaTimes,
    lane: u64,
    /// The buffer that stands for the content of its files.
    content: Option<u64>,
    pending: Option<MetaOutcome>,
}

#[derive(Default)]
struct StorageState {
    next: u64,
    open: BTreeMap<IoId, SimOpenIo>,
    meta: BTreeMap<IoId, SimOpenMeta>,
    /// By store, whether they are written to, and number: files to read keep their pattern.
    files: BTreeMap<(u32, bool, u64), SimFile>,
}

/// The files as one rank sees them.
pub(crate) struct SimStorage {
    world: Rc<RefCell<SimWorld>>,
    rank: Rank,
    state: RefCell<StorageState>,
}

impl SimOpenIo {
    /// Its files and slots: number, offset in memory, bytes in slots.
    fn parts_of_memory(&self) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let files = self.io.file_count();
        let each = self.block.0 * self.io.slots() / files;
        (0..files).map(move |file| (file, file * each, each))
    }

    fn job(&self, ops: u64, (seed, spreads): (u64, bool)) -> QueueJob<'_> {
        let cache = self.parts.cache_rate.map_or(0.0, |rate| rate.time(self.block).0);
        QueueJob {
            io: self.io,
            workers: self.workers,
            parts: &self.parts,
            block: self.block.0,
            stage: self.stage,
            cache,
            ops,
            seed,
            spreads,
        }
    }
}

impl SimStorage {
    pub(crate) fn new(world: Rc<RefCell<SimWorld>>, rank: Rank) -> Self {
        Self { world, rank, state: RefCell::default() }
    }

    /// The flow that a job is.
    fn flow(&self, io: IoSpec, store: u32, block: Bytes, numa: u32, memory: Place) -> Flow {
        let file = Place { rank: self.rank, unit: Unit::Store(store), mem: MemKind::File };
        let by = Mover::Io { at: Unit::Numa(numa), io };
        let (src, dst) = if io.op == IoOp::Write { (memory, file) } else { (file, memory) };
        Flow { src, dst, by, bytes: block }
    }

    /// Makes or keeps the files of a job, with the pattern where they are read.
    fn lay_out(
        &self,
        world: &mut SimWorld,
        (io, workers): (&IoSpec, WorkerRange),
        store: u32,
        seed: u64,
    ) -> CallResult<u64> {
        let unit = Unit::Store(store);
        let files = &mut self.state.borrow_mut().files;
        let mut made = 0;
        for number in 0..io.file_count() {
            let holds = (io.op != IoOp::Write).then_some(seed + number);
            let key = (store, io.writes(), workers.first_file(io) + number);
            if let Some(old) = files.get(&key).filter(|file| file.span < io.span.0) {
                world.memory.free(old.address);
                files.remove(&key);
            }
            let file = match files.get(&key) {
                Some(file) => *file,
                None => {
                    let place = Place { rank: self.rank, unit, mem: MemKind::File };
                    let room = world.memory.room(unit).map_or(0, |(free, _)| free);
                    let address = world.memory.alloc(place, io.span.0, BufferOwner::Storage);
                    let address = address.ok_or_else(|| no_space(world, store, io.span, room))?;
                    made += io.span.0;
                    SimFile { address, span: io.span.0, holds: None }
                }
            };
            let at = BufferSpot { base: file.address, offset: 0 };
            match holds {
                Some(seed) if file.holds != Some(seed) => {
                    world.memory.fill(at, file.span, seed, false);
                    made += file.span;
                }
                _ => {}
            }
            files.insert(key, SimFile { holds: holds.or(file.holds), ..file });
        }
        Ok(made)
    }

    /// The place of each file's contents, in order.
    fn spots(&self, open: &SimOpenIo) -> Vec<BufferSpot> {
        let files = &self.state.borrow().files;
        let first = open.workers.first_file(&open.io);
        let of = |number| files.get(&(open.store, open.io.writes(), first + number));
        (0..open.io.file_count())
            .filter_map(|number| Some(BufferSpot { base: of(number)?.address, offset: 0 }))
            .collect()
    }

    /// The files of an open job hold no whole pattern any more.
    fn mark(&self, open: &SimOpenIo) {
        let files = &mut self.state.borrow_mut().files;
        let first = open.workers.first_file(&open.io);
        for number in 0..open.io.file_count() {
            if let Some(file) = files.get_mut(&(open.store, open.io.writes(), first + number)) {
                file.holds = None;
            }
        }
    }

    fn with<T>(
        &self,
        call: &'static str,
        id: IoId,
        f: impl FnOnce(&mut SimWorld, &mut SimOpenIo, bool) -> CallResult<T>,
    ) -> CallResult<T> {
        // Taken out meanwhile, as what is done may need the other files.
        let mut open = self.state.borrow_mut().open.remove(&id).ok_or_else(|| no_io(call, id))?;
        let mut world = self.world.borrow_mut();
        let done = world
            .enter(self.rank, call, None)
            .and_then(|damages| f(&mut world, &mut open, damages));
        self.state.borrow_mut().open.insert(id, open);
        done
    }
}

/// The operation that keeps a lane busy: one unit of it takes a nanosecond.
fn busy_operation() -> FlowOperation {
    FlowOperation {
        uses: Vec::new(),
        cap: Rate(1.0),
        share: 1.0,
        queue: None,
        turn: None,
        alpha: Ns::ZERO,
        call: Ns::ZERO,
        blocking: false,
        spread: 0.0,
        step: Ns::ZERO,
        route: Vec::new(),
        engine: String::new(),
        stages: Vec::new(),
    }
}

/// Metadata operations.
impl SimStorage {
    fn with_meta<T>(
        &self,
        call: &'static str,
        id: IoId,
        f: impl FnOnce(&mut SimWorld, &mut SimOpenMeta) -> CallResult<T>,
    ) -> Option<CallResult<T>> {
        let mut state = self.state.borrow_mut();
        let open = state.meta.get_mut(&id)?;
        let mut world = self.world.borrow_mut();
        Some(world.enter(self.rank, call, None).and_then(|_| f(&mut world, open)))
    }

    fn submit_meta(&self, id: IoId, gate: GateId, ops: u64) -> Option<CallResult<()>> {
        self.with_meta("storage.submit", id, |world, open| {
            world.gate_known("storage.submit", gate.0)?;
            if open.pending.is_some() {
                return Err(not_reaped(id));
            }
            let meta = &open.job.meta;
            if meta.op.is_once() && ops > meta.items() {
                let reason = format!("a sample has at most {} operations", meta.items());
                return Err(CallError::unsupported("storage.submit", meta.to_string(), reason));
            }
            let chance = world.chance();
            let outcome = meta::run(&open.job, &open.times, ops, chance);
            // What the sample creates is removed before it, or the other order: as long again.
            if meta.op.is_once() {
                world.charge(self.rank, outcome.elapsed);
            }
            let issued = world.clock(self.rank);
            world.timeline.push(open.lane, issued, LaneOp::Hold(gate.0));
            if outcome.elapsed > 0.0 {
                let operation = Rc::new(busy_operation());
                let (src, dst, does) = (None, None, EffectKind::Read);
                let effect = MemoryEffect { src, dst, bytes: 0, does, damages: false };
                let load = TransferLoad { passes: 1.0, amount: outcome.elapsed, steps: 0.0 };
                world.enqueue(self.rank, open.lane, operation, load, effect);
            }
            open.pending = Some(outcome);
            Ok(())
        })
    }

    fn reap_meta(&self, id: IoId) -> Option<CallResult<IoDone>> {
        self.with_meta("storage.reap", id, |world, open| {
            let Some(outcome) = open.pending.take() else { return Err(no_work(id)) };
            let (lane, thing) = (open.lane, format!("I/O {}", id.0));
            let ended =
                world.block(self.rank, "storage.reap", &thing, |w| w.timeline.lane_idle(lane));
            if let Err(error) = ended {
                open.pending = Some(outcome);
                return Err(error);
            }
            if outcome.ops == 0 {
                return Ok(IoDone::default());
            }
            let elapsed = world.timeline.lane_busy_time(lane);
            let MetaOutcome { ops, mut reading, elapsed: alone } = outcome;
            // Jitter of the machine stretches all of a sample.
            let slower = elapsed / alone;
            reading.first_done_ns *= slower;
            if slower != 1.0 {
                reading.latency = stretched(&reading.latency, slower);
            }
            Ok(IoDone { elapsed: Ns(elapsed), ops, reading })
        })
    }

    fn close_meta(&self, id: IoId) -> Option<CallResult<BTreeMap<String, CallTally>>> {
        let open = self.state.borrow_mut().meta.remove(&id)?;
        let mut world = self.world.borrow_mut();
        let struck = world.enter(self.rank, "storage.close", None);
        if let Some(address) = open.content {
            world.memory.free(address);
        }
        let ended = world.lane_end(self.rank, "storage.close", &format!("I/O {}", id.0), open.lane);
        Some(ended.and(struck.map(|_| BTreeMap::new())))
    }
}

/// A histogram whose times all take longer by a factor.
fn stretched(of: &IoHistogram, factor: f64) -> IoHistogram {
    let longer = |ns: u64| (ns as f64 * factor).round() as u64;
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for &(bucket, n) in &of.counts {
        *counts.entry(IoHistogram::bucket(longer(IoHistogram::floor(bucket)))).or_default() += n;
    }
    IoHistogram {
        min_ns: longer(of.min_ns),
        max_ns: longer(of.max_ns),
        sum_ns: longer(of.sum_ns),
        counts: counts.into_iter().collect(),
    }
}

fn not_reaped(id: IoId) -> CallError {
    let (thing, reason) = (format!("I/O {}", id.0), "it has work that was not reaped");
    CallError::new(Severity::Transient, "storage.submit", thing, reason).or_try("reap first")
}

fn no_work(id: IoId) -> CallError {
    let (thing, reason) = (format!("I/O {}", id.0), "it was given no work");
    CallError::new(Severity::Transient, "storage.reap", thing, reason).or_try("submit first")
}

/// The facts of a store before it is opened.
fn facts(world: &SimWorld, number: u32, store: &StoreModel) -> StoreFacts {
    let nvme = store.kind == StoreKind::Nvme;
    let objects = store.kind == StoreKind::Object;
    let file_system = if objects { StoreFacts::OBJECTS } else { &store.file_system };
    let free = world.memory.room(Unit::Store(number)).map_or(0, |(free, _)| free);
    StoreFacts {
        path: store.path.clone(),
        file_system: file_system.to_owned(),
        device: if nvme && store.targets == 1 { "nvme0n1" } else { "" }.to_owned(),
        model: format!("simulated {}", if nvme { "NVMe" } else { "servers" }),
        numa: store.numa(),
        scheduler: if nvme { "none" } else { "" }.to_owned(),
        queues: if nvme { store.queues } else { 0 },
        polls: store.polls,
        logical_block: Bytes(SECTOR),
        max_request: Bytes(store.max_request_bytes),
        max_segments: store.max_segments,
        size: store.capacity(),
        stripes: if nvme || objects {
            Vec::new()
        } else {
            let (size, count) = (Bytes(store.stripe_bytes), store.targets);
            vec![StripeLayout { size, count, ..StripeLayout::default() }]
        },
        free: Bytes(free),
        span: USUAL_SPAN.min(Bytes(free / 4)),
        ..StoreFacts::default()
    }
}

fn no_space(world: &SimWorld, store: u32, span: Bytes, room: u64) -> CallError {
    let path = world.stores.get(store as usize).map_or("", |s| s.path.as_str());
    let thing = format!("a file of {span} in {path} (store{store})");
    let reason = format!("no space left on device: {} are free", Bytes(room).rounded());
    CallError::new(Severity::Exhausted, "fallocate", thing, reason)
        .with_code(ENOSPC)
        .or_try("choose a smaller --span")
}

/// How blocks get to or from the GPU.
fn stage(world: &SimWorld, io: &IoSpec, parts: &IoParts, block: Bytes) -> Option<StageCopy> {
    let (asked, copy) = (io.stage?, parts.stage.as_ref()?);
    let pipelined = asked.pipelined && !copy.blocking;
    let names = world.caps().copy_calls;
    let names = if asked.pipelined { [names[0]; 2] } else { [names[1], names[2]] };
    Some(StageCopy {
        pipelined,
        call: copy.call.0,
        alpha: copy.alpha.0,
        moving: parts.stage_rate.time(block).0,
        serial: copy.queue.is_some(),
        names,
    })
}

/// Calls of the engine to open, with their times.
fn setup(io: &IoSpec, parts: &IoParts, memory: u64) -> BTreeMap<String, CallTally> {
    let (open, threads) = (parts.cpu.open.0, u64::from(io.threads));
    let some = |count: u64, each: f64| CallTally { count, ns: each * count as f64 };
    let mut calls = BTreeMap::from([("openat".to_owned(), some(io.file_count(), open))]);
    let rings = match io.engine {
        IoEngine::Uring | IoEngine::UringPlain | IoEngine::UringPoll => Some("io_uring_setup"),
        IoEngine::Aio => Some("io_setup"),
        IoEngine::Sync | IoEngine::Gds => None,
        IoEngine::Mmap | IoEngine::MmapPlain | IoEngine::MmapPopulate => Some("mmap"),
        IoEngine::S3 => Some("connect"),
    };
    if let Some(name) = rings {
        calls.insert(name.to_owned(), some(threads, open));
    }
    if matches!(io.engine, IoEngine::Uring | IoEngine::UringPoll) {
        // Its buffers' pages are held once, and its files.
        let pages = memory.div_ceil(parts.page.max(1)) as f64 / threads.max(1) as f64;
        let each = parts.cpu.call.0 + pages * parts.cpu.hold.0;
        calls.insert("io_uring_register".to_owned(), some(2 * threads, each / 2.0));
    }
    calls
}

impl FileStorage for SimStorage {
    fn stores(&self) -> Vec<StoreFacts> {
        let world = self.world.borrow();
        (0..).zip(&world.stores).map(|(n, store)| facts(&world, n, store)).collect()
    }

    fn cannot(&self, store: u32, io: &IoSpec, block: Bytes) -> Option<String> {
        let world = self.world.borrow();
        let Some(about) = world.stores.get(store as usize) else {
            return Some(format!("there is no store{store} here"));
        };
        if let Some(why) = facts(&world, store, about).cannot(io, block) {
            return Some(why);
        }
        let numa = world.topology.numa.iter().max_by_key(|d| d.cpus.len())?.id;
        let on_gpu = io.stage.is_some() || io.engine == IoEngine::Gds;
        let memory = match world.topology.gpus.first().filter(|_| on_gpu) {
            Some(gpu) => Place::new(Unit::Gpu(gpu.index), MemKind::Vram),
            None => Place::new(Unit::Numa(numa), MemKind::Paged),
        };
        world.io_parts(&self.flow(*io, store, block, numa, memory)).err()
    }

    fn open(&self, job: IoJob, seed: u64) -> CallResult<IoId> {
        self.world.borrow_mut().enter(self.rank, "storage.open", None)?;
        let thing = format!("{job:?}");
        let no = |why: String| {
            CallError::unsupported("storage.open", thing.clone(), why)
                .or_try("choose another engine, block or --span, or measure it on a real node")
        };
        let IoJob { io, workers, store, block, numa, host, gpu } = job;
        // Before its memory is looked for: GPU direct has none on the host.
        if let Some(why) = self.cannot(store, &io, block) {
            return Err(no(why));
        }
        let mut world = self.world.borrow_mut();
        let bytes = Bytes(block.0.saturating_mul(io.slots()));
        let spot = world.find("storage.open", host.address, bytes)?;
        let on_gpu = match &gpu {
            Some(end) => {
                world.gpu_known("storage.open", end.gpu)?;
                Some(world.find("storage.open", end.memory.address, bytes)?)
            }
            None => None,
        };
        let memory = world.place(on_gpu.unwrap_or(spot));
        let flow = self.flow(io, store, block, numa, memory);
        let parts = world.io_parts(&flow).map_err(&no)?;
        let operation = FlowOperation::clone(&*world.operation("storage.open", flow)?);
        let made = self.lay_out(&mut world, (&io, workers), store, seed)?;
        let time = parts.store.ceiling(true).0.time(Bytes(made));
        let setup = setup(&io, &parts, bytes.0);
        let calls: f64 = setup.values().map(|tally| tally.ns).sum();
        world.charge(self.rank, time.0 + calls);
        let stage = stage(&world, &io, &parts, block);
        let lane = world.timeline.lane_create(LaneOwner::Files(store, io.threads));
        let mut state = self.state.borrow_mut();
        state.next += 1;
        let id = IoId(state.next);
        let (host, gpu, pending) = (spot, on_gpu, None);
        let open = SimOpenIo {
            io,
            workers,
            store,
            block,
            parts,
            operation,
            stage,
            host,
            gpu,
            lane,
            setup,
            pending,
        };
        state.open.insert(id, open);
        Ok(id)
    }

    fn cannot_meta(&self, job: &MetaJob) -> Option<String> {
        let world = self.world.borrow();
        let Some(store) = world.stores.get(job.store as usize) else {
            return Some(format!("there is no store{} here", job.store));
        };
        if job.meta.op == MetaOp::List {
            return Some("the model does not say what it costs to list a folder".to_owned());
        }
        (store.meta.is_none() || world.io.is_none()).then(|| {
            format!("the model does not say what metadata operations of {} cost", store.path)
        })
    }

    fn open_meta(&self, job: MetaJob, _: u64) -> CallResult<IoId> {
        self.world.borrow_mut().enter(self.rank, "storage.open", None)?;
        let thing = || format!("{} of store{}", job.meta, job.store);
        if let Some(why) = self.cannot_meta(&job) {
            return Err(CallError::unsupported("storage.open", thing(), why)
                .or_try("measure it on a real node, or add [store.meta] to the machine file"));
        }
        let mut world = self.world.borrow_mut();
        let times = {
            let store = world.stores.get(job.store as usize);
            let costs = store.and_then(|store| Some((store, store.meta.as_ref()?)));
            let known = costs.zip(world.io.as_ref());
            known.map(|((store, meta), io)| MetaTimes::of(&job, store, meta, io))
        };
        let Some(times) = times else {
            return Err(CallError::unsupported("storage.open", thing(), "its costs are not known"));
        };
        let bytes = job.meta.items().saturating_mul(job.content());
        let content = if bytes > 0 {
            let unit = Unit::Store(job.store);
            let place = Place { rank: self.rank, unit, mem: MemKind::File };
            let room = world.memory.room(unit).map_or(0, |(free, _)| free);
            let address = world.memory.alloc(place, bytes, BufferOwner::Storage);
            Some(address.ok_or_else(|| no_space(&world, job.store, Bytes(bytes), room))?)
        } else {
            None
        };
        if !job.meta.op.is_once() {
            let laid = meta::run(&job, &times, job.meta.items(), (0, false)).elapsed;
            world.charge(self.rank, laid);
        }
        let lane = world.timeline.lane_create(LaneOwner::Files(job.store, job.meta.threads));
        let mut state = self.state.borrow_mut();
        state.next += 1;
        let id = IoId(state.next);
        state.meta.insert(id, SimOpenMeta { job, times, lane, content, pending: None });
        Ok(id)
    }

    fn submit(&self, id: IoId, gate: GateId, ops: u64) -> CallResult<()> {
        if let Some(done) = self.submit_meta(id, gate, ops) {
            return done;
        }
        self.with("storage.submit", id, |world, open, _| {
            world.gate_known("storage.submit", gate.0)?;
            if open.pending.is_some() {
                return Err(not_reaped(id));
            }
            let issued = world.clock(self.rank);
            world.timeline.push(open.lane, issued, LaneOp::Hold(gate.0));
            let chance = world.chance();
            let outcome = queue::run(&open.job(ops, chance));
            if outcome.elapsed > 0.0 && ops > 0 {
                let moved = Bytes(open.block.0.saturating_mul(ops));
                // The events give its rate alone; other flows reduce it.
                let cap = Rate(moved.as_f64() / outcome.elapsed);
                let operation = Rc::new(FlowOperation { cap, ..open.operation.clone() });
                let (src, dst, bytes) = (Some(open.host), open.gpu, open.block.0);
                let effect =
                    MemoryEffect { src, dst, bytes, does: EffectKind::Read, damages: false };
                let load = TransferLoad::once(moved);
                world.enqueue(self.rank, open.lane, operation, load, effect);
            }
            open.pending = Some((outcome, ops));
            Ok(())
        })
    }

    fn reap(&self, id: IoId) -> CallResult<IoDone> {
        if let Some(done) = self.reap_meta(id) {
            return done;
        }
        self.with("storage.reap", id, |world, open, _| {
            let thing = format!("I/O {}", id.0);
            let Some((outcome, ops)) = open.pending.take() else { return Err(no_work(id)) };
            let lane = open.lane;
            let ended =
                world.block(self.rank, "storage.reap", &thing, |w| w.timeline.lane_idle(lane));
            if let Err(error) = ended {
                open.pending = Some((outcome, ops));
                return Err(error);
            }
            if ops == 0 {
                return Ok(IoDone::default());
            }
            let bytes = open.block.0 * open.io.slots();
            if open.io.op != IoOp::Write {
                world.memory.scramble(open.host, bytes);
                if let Some(gpu) = open.gpu {
                    world.memory.scramble(gpu, bytes);
                }
            }
            if open.io.writes() {
                // At random places: their content is unknown.
                for spot in self.spots(open) {
                    world.memory.scramble(spot, open.io.span.0);
                }
                self.mark(open);
            }
            let elapsed = world.timeline.lane_busy_time(lane);
            Ok(done(outcome, ops, elapsed))
        })
    }

    fn spoil(&self, id: IoId) -> CallResult<()> {
        if let Some(done) = self.with_meta("storage.spoil", id, |_, _| Ok(())) {
            return done;
        }
        self.with("storage.spoil", id, |world, open, _| {
            for (spot, (_, _, bytes)) in self.spots(open).into_iter().zip(open.parts_of_memory()) {
                world.memory.scramble(spot, bytes);
            }
            self.mark(open);
            Ok(())
        })
    }

    fn land(&self, id: IoId) -> CallResult<()> {
        let landed = self.with_meta("storage.land", id, |world, open| {
            let chance = world.chance();
            let each = u64::from(open.job.meta.threads);
            let elapsed = meta::run(&open.job, &open.times, each, chance).elapsed;
            world.charge(self.rank, elapsed);
            Ok(())
        });
        if let Some(done) = landed {
            return done;
        }
        self.with("storage.land", id, |world, open, damages| {
            let chance = world.chance();
            let outcome = queue::run(&open.job(open.io.slots(), chance));
            world.charge(self.rank, outcome.elapsed);
            let spots = self.spots(open);
            for (file, (_, offset, bytes)) in spots.into_iter().zip(open.parts_of_memory()) {
                let at = |spot: BufferSpot| BufferSpot { offset: spot.offset + offset, ..spot };
                let (host, gpu) = (at(open.host), open.gpu.map(at));
                let last = if open.io.op == IoOp::Read {
                    world.memory.copy(host, file, bytes);
                    gpu.inspect(|&gpu| world.memory.copy(gpu, host, bytes)).unwrap_or(host)
                } else {
                    if let Some(gpu) = gpu {
                        world.memory.copy(host, gpu, bytes);
                    }
                    world.memory.copy(file, host, bytes);
                    file
                };
                if damages {
                    world.memory.damage(last, bytes);
                }
            }
            if open.io.writes() {
                self.mark(open);
            }
            Ok(())
        })
    }

    fn check(&self, id: IoId, seed: u64) -> CallResult<VerifyResult> {
        let nothing = || VerifyResult::Unverified("the model keeps no names".to_owned());
        if let Some(done) = self.with_meta("storage.check", id, |_, _| Ok(nothing())) {
            return done;
        }
        self.with("storage.check", id, |world, open, _| {
            let all = open.block.0 * open.io.slots();
            let time = open.parts.store.ceiling(false).0.time(Bytes(all));
            world.charge(self.rank, time.0);
            for (spot, (file, _, bytes)) in self.spots(open).into_iter().zip(open.parts_of_memory())
            {
                if let Some(at) = world.memory.check(spot, bytes, seed + file) {
                    let path = &open.parts.store.path;
                    let thing = format!("{} of file {file} in {path}", Bytes(bytes));
                    let reason = format!("the byte at offset {at} is not the one that was written");
                    return Err(CallError::new(Severity::Corrupt, "verify", thing, reason)
                        .or_try("rerun this case alone; if it repeats, suspect the store"));
                }
            }
            Ok(VerifyResult::Verified)
        })
    }

    fn engine(&self, id: IoId) -> String {
        if self.state.borrow().meta.contains_key(&id) {
            return "simulated calls".to_owned();
        }
        self.state.borrow().open.get(&id).map_or_else(String::new, |o| o.operation.engine.clone())
    }

    fn close(&self, id: IoId) -> CallResult<BTreeMap<String, CallTally>> {
        if let Some(done) = self.close_meta(id) {
            return done;
        }
        let open = self.state.borrow_mut().open.remove(&id);
        let open = open.ok_or_else(|| no_io("storage.close", id))?;
        let mut world = self.world.borrow_mut();
        let struck = world.enter(self.rank, "storage.close", None);
        world.lane_end(self.rank, "storage.close", &format!("I/O {}", id.0), open.lane)?;
        struck.map(|_| open.setup)
    }
}

/// The result of a sample, slowed by contention on shared resources.
fn done(outcome: QueueOutcome, ops: u64, elapsed: f64) -> IoDone {
    let slower = if outcome.elapsed > 0.0 { elapsed / outcome.elapsed } else { 1.0 };
    let of = |times: &[f64]| IoHistogram::of(times.iter().map(|ns| (ns * slower).round() as u64));
    let calls = outcome
        .calls
        .iter()
        .map(|(&name, tally)| (name.to_owned(), CallTally { ns: tally.ns * slower, ..*tally }));
    let ends = || outcome.ends.iter().map(|ns| (ns * slower).round() as u64).collect();
    let reading = IoReading {
        first_done_ns: outcome.first_done * slower,
        first_done_ops: outcome.first_done_ops,
        worker_ns: if outcome.ends.len() > 1 { ends() } else { Vec::new() },
        cpu_user_ns: outcome.user,
        cpu_system_ns: outcome.system,
        latency: of(&outcome.latency),
        device: of(&outcome.device),
        copy: of(&outcome.copy),
        calls: calls.collect(),
        faults: None,
        requests: Some(outcome.requests),
    };
    IoDone { elapsed: Ns(elapsed), ops, reading }
}
