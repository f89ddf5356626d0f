//! The GPU runtime of a simulated machine.

use std::cell::RefCell;
use std::rc::Rc;

use pathline_hal::{
    BlockCopier, CallError, CallResult, ChainPart, CopyChoice, CpuAccess, DeviceInfo, Driver,
    EventId, GateId, KernelId, KernelLaunch, PeerAccess, StreamId,
};
use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, Flow, KernelOp, KernelVariant, MemKind, MigrateHow, Mover, Ns,
    Place, Rank, RuntimeCall, Severity, Unit,
};

use crate::memory::{self, BufferSpot, StoredForm};
use crate::timeline::LaneOwner;
use crate::world::{EffectKind, LoadedKernel, MemoryEffect, SimWorld, TransferLoad, no_such};

/// The runtime as one rank sees it.
pub(crate) struct SimDriver {
    pub(crate) world: Rc<RefCell<SimWorld>>,
    pub(crate) rank: Rank,
}

/// Names the call that copies. The workers of a model have no threads, so nothing else is called:
/// their copies are part of the simulated I/O.
struct SimCopier {
    calls: [&'static str; 3],
}

impl SimCopier {
    fn no_thread<T>(&self) -> CallResult<T> {
        let reason = "the workers of a model copy in virtual time, with their I/O";
        Err(CallError::unsupported(self.call_name(), "a separate thread", reason))
    }
}

impl BlockCopier for SimCopier {
    fn call_name(&self) -> &'static str {
        self.calls[0]
    }
    fn blocking_call_name(&self, to_gpu: bool) -> &'static str {
        self.calls[if to_gpu { 1 } else { 2 }]
    }
    fn enter(&mut self) -> CallResult<()> {
        self.no_thread()
    }
    fn start(&mut self, _slot: usize, _dst: u64, _src: u64, _bytes: Bytes) -> CallResult<()> {
        self.no_thread()
    }
    fn is_done(&mut self, _slot: usize) -> CallResult<bool> {
        self.no_thread()
    }
    fn wait(&mut self, _slot: usize) -> CallResult<()> {
        self.no_thread()
    }
    fn copy(&mut self, _dst: u64, _src: u64, _bytes: Bytes) -> CallResult<()> {
        self.no_thread()
    }
}

const XNACK_OFF: &str = "unset HSA_XNACK or set it to 1";
const XNACK_ON: &str = "unset HSA_XNACK or set it to 0";

impl SimDriver {
    /// Enters the world with a call on a stream: the GPU, and whether what is written is damaged.
    pub(crate) fn enter_stream(
        &self,
        world: &mut SimWorld,
        call: &'static str,
        stream: StreamId,
    ) -> CallResult<(u32, bool)> {
        let gpu = world.stream_gpu(call, stream.0)?;
        Ok((gpu, world.enter(self.rank, call, Some(gpu))?))
    }

    /// Enters with a call on memory: where it lies.
    fn enter_memory(
        &self,
        world: &mut SimWorld,
        call: &'static str,
        address: u64,
        bytes: Bytes,
    ) -> CallResult<BufferSpot> {
        let spot = world.find(call, address, bytes);
        let gpu = spot.as_ref().ok().and_then(|&spot| world.place(spot).unit.gpu());
        world.enter(self.rank, call, gpu)?;
        spot
    }

    fn event_enter(
        &self,
        world: &mut SimWorld,
        call: &'static str,
        event: EventId,
        stream: StreamId,
    ) -> CallResult<()> {
        self.enter_stream(world, call, stream)?;
        let exists = world.timeline.event_exists(event.0);
        exists.then_some(()).ok_or_else(|| no_such(call, &format!("event {}", event.0)))
    }

    /// How `from` reaches memory of `to`: directly where a kernel can read it.
    fn access(
        &self,
        world: &mut SimWorld,
        call: &'static str,
        from: u32,
        to: u32,
    ) -> CallResult<PeerAccess> {
        world.gpu_known(call, to)?;
        let at = Unit::Gpu(from);
        let by = Mover::Kernel { at, variant: KernelVariant::standard(KernelOp::Read) };
        let place = |unit, mem| Place { rank: self.rank, unit, mem };
        let (src, dst) = (place(Unit::Gpu(to), MemKind::Vram), place(at, MemKind::Reg));
        let reads = Flow { src, dst, by, bytes: Bytes::mib(1) };
        let direct = from == to || world.operation(call, reads).is_ok();
        Ok(if direct { PeerAccess::Direct } else { PeerAccess::Staged })
    }

    /// The place where a kernel of `gpu` finds a stretch. Managed pages that it may not reach in
    /// place come to it first, by faults.
    pub(crate) fn reach(
        &self,
        world: &mut SimWorld,
        stream: StreamId,
        gpu: u32,
        spot: BufferSpot,
        bytes: u64,
    ) -> CallResult<Place> {
        let here = Unit::Gpu(gpu);
        let place = world.place(spot);
        // Managed pages of another GPU are reached or moved without it.
        if let Unit::Gpu(owner) = place.unit
            && owner != gpu
            && place.mem != MemKind::Managed
            && !world.peers.contains(&(gpu, owner))
        {
            let thing = format!("memory of gpu{owner} from gpu{gpu}");
            let reason = "peer access is not enabled";
            return Err(CallError::new(Severity::Transient, "launch", thing, reason)
                .or_try("enable_peer first"));
        }
        let in_place = |b: &memory::SimBuffer| b.zero_copy.contains(&gpu);
        let stays = world.switches.xnack == Some(false)
            || world.memory.buffer(spot.base).is_some_and(in_place);
        if place.mem != MemKind::Managed || stays {
            return Ok(place);
        }
        self.move_pages(world, stream, (spot, bytes), here, MigrateHow::Fault, false)?;
        Ok(Place { unit: here, ..place })
    }

    /// Enqueues the migration of those pages of a stretch that are not at `to`.
    fn move_pages(
        &self,
        world: &mut SimWorld,
        stream: StreamId,
        (spot, bytes): (BufferSpot, u64),
        to: Unit,
        how: MigrateHow,
        damages: bool,
    ) -> CallResult<()> {
        let buffer = world.memory.buffer(spot.base);
        let away = buffer.and_then(|b| b.away_from(to, spot.offset, bytes));
        let Some((moved, from)) = away else { return Ok(()) };
        let at = |unit| Place { rank: self.rank, unit, mem: MemKind::Managed };
        let by = Mover::Migrate { at: to, how };
        let flow = Flow { src: at(from), dst: at(to), by, bytes: Bytes(moved) };
        let operation = world.operation("migrate", flow)?;
        let room = world.memory.room(to);
        if room.is_none_or(|(free, _)| free < moved) {
            return Err(out_of_memory("migrate", Bytes(moved), to, room));
        }
        world.charge(self.rank, operation.call.0);
        world.memory.migrate(spot, bytes, to);
        let effect =
            MemoryEffect { src: Some(spot), dst: None, bytes, does: EffectKind::Migrate, damages };
        world.enqueue(self.rank, stream.0, operation, TransferLoad::once(Bytes(moved)), effect);
        Ok(())
    }
}

/// The error for what does not fit.
pub(crate) fn out_of_memory(
    call: &'static str,
    bytes: Bytes,
    unit: Unit,
    room: Option<(u64, u64)>,
) -> CallError {
    let (free, total) = room.unwrap_or_default();
    let (free, total) = (Bytes(free).rounded(), Bytes(total).rounded());
    let thing = format!("{bytes} at {unit}");
    let reason = format!("out of memory: {free} of {total} are free");
    CallError::new(Severity::Exhausted, call, thing, reason).or_try("choose smaller sizes")
}

/// What a kernel stores that does not copy, if anything.
fn stored_form(variant: KernelVariant) -> Option<StoredForm> {
    let word = variant.align();
    match variant.op {
        KernelOp::Write => Some(StoredForm::Constant { word }),
        KernelOp::Triad => Some(StoredForm::Triad { word }),
        KernelOp::Copy | KernelOp::Read | KernelOp::Chase | KernelOp::Fma => None,
    }
}

impl SimDriver {
    /// Enqueues a kernel; of a chase, `part` loads, or a whole pass if none.
    fn enqueue_kernel(
        &self,
        stream: StreamId,
        kernel: KernelId,
        launch: &KernelLaunch,
        part: Option<u64>,
    ) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let (gpu, damages) = self.enter_stream(&mut world, "launch", stream)?;
        let loaded = world.kernels.get(&kernel.0).copied().filter(|k| k.gpu == gpu);
        let Some(LoadedKernel { variant, .. }) = loaded else {
            return Err(no_such("launch", &format!("kernel {} of gpu{gpu}", kernel.0)));
        };
        if launch.bytes.0 == 0 {
            return Ok(());
        }
        world.bytes_fit("launch", launch.bytes)?;
        let run = variant.effect(launch.bytes);
        let mut stretch = |address, bytes: Bytes| -> CallResult<(Option<BufferSpot>, Place)> {
            if bytes.0 == 0 {
                return Ok((
                    None,
                    Place { rank: self.rank, unit: Unit::Gpu(gpu), mem: MemKind::Reg },
                ));
            }
            let spot = world.find("launch", address, bytes)?;
            Ok((Some(spot), self.reach(&mut world, stream, gpu, spot, bytes.0)?))
        };
        let (src, from) = stretch(launch.src, run.reads)?;
        let (dst, to) = stretch(launch.dst, run.writes)?;
        if run.chain > 0 {
            is_chain(&world, "launch", src, run.reads)?;
        } else if part.is_some() {
            let reason = "only a chase follows part of its memory";
            return Err(CallError::unsupported("follow", variant.to_string(), reason));
        }
        let by = Mover::Kernel { at: Unit::Gpu(gpu), variant };
        let flow = Flow { src: from, dst: to, by, bytes: launch.bytes };
        let operation = world.operation("launch", flow)?;
        world.charge(self.rank, operation.call.0);
        let does = match variant.op {
            KernelOp::Copy => EffectKind::Copy,
            _ => stored_form(variant).map_or(EffectKind::Read, EffectKind::Store),
        };
        let load = match run.chain {
            0 => TransferLoad::once(launch.bytes),
            whole => {
                let steps = part.unwrap_or(whole) as f64;
                TransferLoad { passes: 1.0, amount: 0.0, steps }
            }
        };
        let effect = MemoryEffect { src, dst, bytes: launch.bytes.0, does, damages };
        world.enqueue(self.rank, stream.0, operation, load, effect);
        Ok(())
    }
}

impl Driver for SimDriver {
    fn name(&self) -> &str {
        "sim"
    }

    fn devices(&self) -> CallResult<Vec<DeviceInfo>> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "devices", None)?;
        let demand_migration = world.switches.xnack != Some(false);
        let gpus = world.topology.gpus.iter().map(|gpu| DeviceInfo {
            index: gpu.index,
            name: gpu.name.clone(),
            arch: gpu.arch.clone(),
            pci: gpu.pci.clone(),
            numa: gpu.numa,
            memory: gpu.memory,
            memory_peak: gpu.memory_peak,
            compute_units: gpu.compute_units,
            l2: gpu.caches.iter().find(|c| c.level == 2).map_or(Bytes(0), |c| c.size),
            demand_migration,
        });
        Ok(gpus.collect())
    }

    fn memory(&self, gpu: u32) -> CallResult<(Bytes, Bytes)> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "memory", Some(gpu))?;
        let room = world.memory.room(Unit::Gpu(gpu));
        room.map(|(free, total)| (Bytes(free), Bytes(total)))
            .ok_or_else(|| no_such("memory", &format!("gpu{gpu}")))
    }

    fn peer_access(&self, from: u32, to: u32) -> CallResult<PeerAccess> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "peer_access", Some(from))?;
        self.access(&mut world, "peer_access", from, to)
    }

    fn enable_peer(&self, from: u32, to: u32) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "enable_peer", Some(from))?;
        if self.access(&mut world, "enable_peer", from, to)? == PeerAccess::Staged {
            let pair = format!("gpu{to} from gpu{from}");
            return Err(CallError::unsupported("enable_peer", pair, "no path between the two")
                .or_try("copy through the host"));
        }
        world.peers.insert((from, to));
        Ok(())
    }

    fn alloc(&self, place: Place, bytes: Bytes) -> CallResult<u64> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "alloc", place.unit.gpu())?;
        let thing = || format!("{bytes} at {place}");
        let grains = world.topology.any_gpu(|caps| caps.memory_grains);
        let gives = match (place.unit, place.mem) {
            (Unit::Gpu(_), MemKind::Vram | MemKind::Managed) => true,
            (
                Unit::Numa(_),
                MemKind::Pinned | MemKind::PinnedWc | MemKind::PinnedDefault | MemKind::Managed,
            ) => true,
            (Unit::Gpu(_), MemKind::VramFine) | (Unit::Numa(_), MemKind::PinnedNonCoherent) => {
                grains
            }
            _ => false,
        };
        if !gives {
            let reason = "the runtime has no such memory there";
            return Err(CallError::unsupported("alloc", thing(), reason).or_try(
                "ask for vram at a GPU, or for pinned or managed memory at a NUMA domain",
            ));
        }
        if bytes.0 == 0 {
            let reason = "an empty buffer";
            return Err(CallError::new(Severity::Transient, "alloc", thing(), reason)
                .or_try("allocate at least 1 byte"));
        }
        let room = world.memory.room(place.unit);
        if room.is_none() {
            return Err(no_such("alloc", &place.unit.to_string()));
        }
        let address = world
            .memory
            .alloc(place, bytes.0, memory::BufferOwner::Driver)
            .ok_or_else(|| out_of_memory("alloc", bytes, place.unit, room))?;
        world.charge_call(self.rank, RuntimeCall::Alloc, Some(place.mem), bytes);
        Ok(address)
    }

    fn free(&self, address: u64) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let struck = world.enter(self.rank, "free", None);
        let owned = |b: &&memory::SimBuffer| b.owner == memory::BufferOwner::Driver;
        let Some(buffer) = world.memory.buffer(address).filter(owned) else {
            return Err(no_such("free", &format!("buffer {address:#x}")));
        };
        let (mem, bytes) = (buffer.place.mem, Bytes(buffer.bytes));
        world.free(self.rank, "free", address)?;
        world.charge_call(self.rank, RuntimeCall::Free, Some(mem), bytes);
        struck.map(|_| ())
    }

    fn register(&self, address: u64, bytes: Bytes) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "register", None)?;
        let spot = world.find("register", address, bytes)?;
        let buffer = world.memory.buffer_mut(spot.base).filter(|b| {
            matches!(b.place.mem, MemKind::Paged | MemKind::Huge)
                && !b.registered
                && spot.offset == 0
        });
        let Some(buffer) = buffer else {
            let thing = format!("{bytes} at {address:#x}");
            let reason = "only whole pageable buffers that are not registered can be";
            return Err(CallError::new(Severity::Transient, "register", thing, reason));
        };
        buffer.registered = true;
        let mem = buffer.place.mem;
        world.charge_call(self.rank, RuntimeCall::Register, Some(mem), bytes);
        Ok(())
    }

    fn unregister(&self, address: u64) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "unregister", None)?;
        let buffer = world.memory.buffer_mut(address).filter(|b| b.registered);
        let thing = || format!("registered buffer {address:#x}");
        let buffer = buffer.ok_or_else(|| no_such("unregister", &thing()))?;
        buffer.registered = false;
        let (mem, bytes) = (buffer.place.mem, Bytes(buffer.bytes));
        world.charge_call(self.rank, RuntimeCall::Unregister, Some(mem), bytes);
        Ok(())
    }

    fn register_calls(&self) -> (&'static str, &'static str) {
        let [pin, unpin] = self.world.borrow().caps().pin_calls;
        (pin, unpin)
    }

    fn copier(&self, gpu: u32, _slots: usize) -> CallResult<Box<dyn BlockCopier>> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "copier", Some(gpu))?;
        Ok(Box::new(SimCopier { calls: world.caps().copy_calls }))
    }

    fn cpu_access(&self, address: u64, bytes: Bytes) -> CallResult<CpuAccess> {
        let mut world = self.world.borrow_mut();
        let spot = self.enter_memory(&mut world, "cpu_access", address, bytes)?;
        let src = world.place(spot);
        let Unit::Gpu(gpu) = src.unit else { return Ok(CpuAccess::InPlace) };
        let home = world.topology.gpus.iter().find(|g| g.index == gpu).and_then(|g| g.numa);
        let at = Unit::Numa(home.unwrap_or_default());
        let work = CpuWork { op: CpuOp::Read, how: CpuHow::Plain };
        let by = Mover::Cpu { at, work, threads: 1 };
        let dst = Place { unit: at, mem: MemKind::Reg, ..src };
        world.operation("cpu_access", Flow { src, dst, by, bytes }).map(|_| CpuAccess::InPlace)
    }

    fn flush_cpu_stores(&self, gpu: u32) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "flush_cpu_stores", Some(gpu)).map(|_| ())
    }

    fn advise_zero_copy(&self, address: u64, bytes: Bytes, gpu: u32) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "advise_zero_copy", Some(gpu))?;
        let spot = world.find("advise_zero_copy", address, bytes)?;
        let thing = format!("{bytes} at {}", world.place(spot));
        if world.switches.xnack == Some(true) {
            let reason = "with HSA_XNACK=1 managed pages migrate to the device that touches them";
            return Err(CallError::unsupported("advise_zero_copy", thing, reason).or_try(XNACK_ON));
        }
        let buffer = world.memory.buffer_mut(spot.base).filter(|b| b.place.mem == MemKind::Managed);
        let Some(buffer) = buffer else {
            let reason = "only managed memory takes advice";
            return Err(CallError::unsupported("advise_zero_copy", thing, reason)
                .or_try("allocate managed memory"));
        };
        buffer.zero_copy.insert(gpu);
        Ok(())
    }

    fn stream_create(&self, gpu: u32) -> CallResult<StreamId> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "stream_create", Some(gpu))?;
        world.charge_call(self.rank, RuntimeCall::Stream, None, Bytes(0));
        Ok(StreamId(world.timeline.lane_create(LaneOwner::Stream(gpu))))
    }

    fn stream_destroy(&self, stream: StreamId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let gpu = world.stream_gpu("stream_destroy", stream.0)?;
        let struck = world.enter(self.rank, "stream_destroy", Some(gpu));
        let thing = format!("stream {} of gpu{gpu}", stream.0);
        world.lane_end(self.rank, "stream_destroy", &thing, stream.0)?;
        struck.map(|_| ())
    }

    fn stream_wait(&self, stream: StreamId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let (gpu, _) = self.enter_stream(&mut world, "stream_wait", stream)?;
        let thing = format!("stream {} of gpu{gpu}", stream.0);
        // A wait that has to wait ends with the stream: its own cost is hidden.
        world.catch_up(self.rank);
        if world.timeline.lane_idle(stream.0).is_some() {
            world.charge_call(self.rank, RuntimeCall::Sync, None, Bytes(0));
            return Ok(());
        }
        world.block(self.rank, "stream_wait", &thing, |w| w.timeline.lane_idle(stream.0))
    }

    fn stream_idle(&self, stream: StreamId) -> CallResult<bool> {
        let mut world = self.world.borrow_mut();
        self.enter_stream(&mut world, "stream_idle", stream)?;
        world.catch_up(self.rank);
        Ok(world.timeline.lane_idle(stream.0).is_some())
    }

    fn event_create(&self, gpu: u32) -> CallResult<EventId> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "event_create", Some(gpu))?;
        Ok(EventId(world.timeline.event_create()))
    }

    fn event_destroy(&self, event: EventId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let struck = world.enter(self.rank, "event_destroy", None);
        if !world.timeline.event_exists(event.0) {
            return Err(no_such("event_destroy", &format!("event {}", event.0)));
        }
        world.timeline.event_destroy(event.0);
        struck.map(|_| ())
    }

    fn event_record(&self, event: EventId, stream: StreamId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        self.event_enter(&mut world, "event_record", event, stream)?;
        world.charge_call(self.rank, RuntimeCall::Event, None, Bytes(0));
        let issued = world.clock(self.rank);
        world.timeline.event_record(event.0, stream.0, issued);
        Ok(())
    }

    fn stream_wait_event(&self, stream: StreamId, event: EventId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        self.event_enter(&mut world, "stream_wait_event", event, stream)?;
        let issued = world.clock(self.rank);
        world.timeline.event_await(event.0, stream.0, issued);
        Ok(())
    }

    fn event_done(&self, event: EventId) -> CallResult<bool> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "event_done", None)?;
        if !world.timeline.event_exists(event.0) {
            return Err(no_such("event_done", &format!("event {}", event.0)));
        }
        world.catch_up(self.rank);
        Ok(world.timeline.event_time(event.0).is_some())
    }

    fn pause(&self, at_most: Ns) {
        self.world.borrow_mut().pause(self.rank, at_most.0);
    }

    fn event_elapsed(&self, start: EventId, end: EventId) -> CallResult<Ns> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "event_elapsed", None)?;
        world.catch_up(self.rank);
        let time = |event: EventId| {
            let thing = format!("event {}", event.0);
            if !world.timeline.event_exists(event.0) {
                return Err(no_such("event_elapsed", &thing));
            }
            world.timeline.event_time(event.0).ok_or_else(|| {
                let reason = "it has not happened";
                CallError::new(Severity::Transient, "event_elapsed", thing, reason)
                    .or_try("record it and wait for its stream")
            })
        };
        Ok(Ns(time(end)? - time(start)?))
    }

    fn gate_create(&self) -> CallResult<GateId> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "gate_create", None)?;
        Ok(GateId(world.timeline.gate_create()))
    }

    fn gate_hold(&self, gate: GateId, stream: StreamId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        self.enter_stream(&mut world, "gate_hold", stream)?;
        world.gate_known("gate_hold", gate.0)?;
        let issued = world.clock(self.rank);
        world.timeline.push(stream.0, issued, crate::timeline::LaneOp::Hold(gate.0));
        Ok(())
    }

    fn gate_release(&self, gate: GateId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.gate_release(self.rank, "gate_release", gate.0)
    }

    fn gate_destroy(&self, gate: GateId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.gate_destroy(self.rank, "gate_destroy", gate.0)
    }

    fn copy(
        &self,
        stream: StreamId,
        dst: u64,
        src: u64,
        bytes: Bytes,
        engine: CopyChoice,
    ) -> CallResult<()> {
        self.copy_by("copy", stream, (dst, src, bytes), |at| Self::copy_mover(at, engine))
    }

    fn copy_by_threads(
        &self,
        stream: StreamId,
        threads: u32,
        copy: (u64, u64, Bytes),
    ) -> Option<CallResult<()>> {
        Some(self.copy_by("copy", stream, copy, |at| Mover::Threads { at, threads }))
    }

    fn copy_batch(&self, stream: StreamId, copies: &[(u64, u64, Bytes)]) -> CallResult<()> {
        self.enqueue_batch(stream, copies)
    }

    fn block_copies(
        &self,
        gpu: u32,
        copies: &[(u64, u64, Bytes)],
        thread_blocks: u32,
    ) -> CallResult<KernelId> {
        self.make_list(gpu, copies, thread_blocks)
    }

    fn copy_blocks(&self, stream: StreamId, kernel: KernelId) -> CallResult<()> {
        self.enqueue_list(stream, kernel)
    }

    fn copy_engine_name(&self, dst: u64, src: u64, bytes: Bytes, engine: CopyChoice) -> String {
        let mut world = self.world.borrow_mut();
        let mut name = || -> CallResult<String> {
            let one = Bytes(1);
            let spots = (world.find("copy", dst, one)?, world.find("copy", src, one)?);
            let gpu = world.place(spots.1).unit.gpu().or(world.place(spots.0).unit.gpu());
            let gpu = gpu.unwrap_or_default();
            let by = Self::copy_mover(Unit::Gpu(gpu), engine);
            let operation = Self::copy_operation(&mut world, spots, bytes, by)?;
            Ok(operation.engine.clone())
        };
        name().unwrap_or_else(|error| error.reason)
    }

    fn kernel(&self, gpu: u32, variant: &KernelVariant) -> CallResult<KernelId> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "kernel", Some(gpu))?;
        let id = world.timeline.handle();
        world.kernels.insert(id, LoadedKernel { gpu, variant: *variant });
        Ok(KernelId(id))
    }

    fn kernel_unload(&self, kernel: KernelId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let struck = world.enter(self.rank, "kernel_unload", None);
        let known = world.kernels.remove(&kernel.0).is_some();
        if !known && world.lists.remove(&kernel.0).is_none() {
            return Err(no_such("kernel_unload", &format!("kernel {}", kernel.0)));
        }
        struck.map(|_| ())
    }

    fn launch(&self, stream: StreamId, kernel: KernelId, launch: &KernelLaunch) -> CallResult<()> {
        self.enqueue_kernel(stream, kernel, launch, None)
    }

    fn follow(
        &self,
        stream: StreamId,
        kernel: KernelId,
        launch: &KernelLaunch,
        part: ChainPart,
    ) -> CallResult<()> {
        self.enqueue_kernel(stream, kernel, launch, Some(part.steps))
    }

    fn check_read(&self, kernel: KernelId, launch: &KernelLaunch, seed: u64) -> CallResult<bool> {
        let mut world = self.world.borrow_mut();
        let read = world.kernels.get(&kernel.0).is_some_and(|k| k.variant.op == KernelOp::Read);
        if !read {
            return Err(no_such("check_read", &format!("read kernel {}", kernel.0)));
        }
        let spot = world.find("check_read", launch.src, launch.bytes)?;
        Ok(world.check(self.rank, spot, launch.bytes, seed).is_none())
    }

    fn check_stored(&self, kernel: KernelId, launch: &KernelLaunch) -> CallResult<Option<u64>> {
        let mut world = self.world.borrow_mut();
        let variant = world.kernels.get(&kernel.0).map(|loaded| loaded.variant);
        let form = variant.and_then(stored_form);
        let (Some(variant), Some(form)) = (variant, form) else {
            return Err(no_such("check_stored", &format!("write or triad kernel {}", kernel.0)));
        };
        let dst = world.find("check_stored", launch.dst, launch.bytes)?;
        let reads = variant.effect(launch.bytes).reads;
        let src = match reads {
            Bytes(0) => None,
            reads => Some(world.find("check_stored", launch.src, reads)?),
        };
        Ok(world.check_stored(self.rank, (dst, src), launch.bytes, form))
    }

    fn migrate(
        &self,
        stream: StreamId,
        address: u64,
        bytes: Bytes,
        to: Place,
        how: MigrateHow,
    ) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let (gpu, damages) = self.enter_stream(&mut world, "migrate", stream)?;
        let spot = world.find("migrate", address, bytes)?;
        let place = world.place(spot);
        let unable = |reason: &str, way_out: &str| {
            let thing = format!("{bytes} at {place} to {to}");
            Err(CallError::unsupported("migrate", thing, reason).or_try(way_out))
        };
        if place.mem != MemKind::Managed {
            return unable("only managed memory migrates", "allocate managed memory");
        }
        if how == MigrateHow::Fault {
            if world.switches.xnack == Some(false) {
                return unable("with HSA_XNACK=0 a kernel cannot fault pages in", XNACK_OFF);
            }
            if to.unit != Unit::Gpu(gpu) {
                return unable(
                    "a kernel's faults bring pages to its own GPU",
                    "use the target's stream, or a prefetch",
                );
            }
        }
        self.move_pages(&mut world, stream, (spot, bytes.0), to.unit, how, damages)
    }

    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let spot = self.enter_memory(&mut world, "fill", address, bytes)?;
        world.fill(self.rank, spot, bytes, seed, chain);
        Ok(())
    }

    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>> {
        let mut world = self.world.borrow_mut();
        let spot = self.enter_memory(&mut world, "check", address, bytes)?;
        Ok(world.check(self.rank, spot, bytes, seed))
    }
}

/// An error where a chase would follow what is no chain.
pub(crate) fn is_chain(
    world: &SimWorld,
    call: &'static str,
    spot: Option<BufferSpot>,
    bytes: Bytes,
) -> CallResult<()> {
    let chained = |spot: BufferSpot| {
        world.memory.buffer(spot.base).is_some_and(|b| b.is_chain(spot.offset, bytes.0))
    };
    if spot.is_some_and(chained) {
        return Ok(());
    }
    let reason = "the buffer holds no chain of pointers";
    Err(CallError::new(Severity::Transient, call, format!("a chase over {bytes}"), reason)
        .or_try("fill it as a chain first"))
}
