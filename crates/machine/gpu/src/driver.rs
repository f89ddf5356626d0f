//! `hal::Driver` for both runtimes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use pathline_hal::{
    BlockCopier, CallError, CallResult, ChainPart, CopyChoice, CpuAccess, DeviceInfo, Driver,
    EventId, GateId, KernelId, KernelLaunch, PeerAccess, StreamId,
};
use pathline_schema::{Bytes, KernelVariant, MemKind, MigrateHow, Ns, Place, Severity, Unit};

use super::blocks::GpuBlocks;
use super::compiler::KernelCompiler;
use super::device::{self, GpuProps};
use super::error::outcome;
use super::function_table::{Api, CallStatus, CopyBatch, NON_BLOCKING, RuntimeHandle};
use super::gate::{self, GateSlot, SLOTS, StreamGates};
use super::loaded_kernels::LoadedKernels;
use super::runtime_api::{CopyEnds, RuntimeApi, RuntimeHints};
use pathline_host::memory::HostMemory;

/// Operations that fit into a held stream. With one more, the call waits for the stream while the
/// thread that would open the gate waits for the call. The hardware queue has 1024 entries.
const QUEUE: u64 = 500;
pub(crate) const NOT_READY: i32 = 600;
const PEER_ALREADY_ENABLED: i32 = 704;

/// Calls the runtime and names the function in the error. Sound because its arguments are handles
/// that this driver holds, addresses that it has checked, and pointers to locals.
macro_rules! call {
    ($self:expr, $field:ident, $thing:expr, $($arg:expr),*) => {{
        let call = &$self.api.$field;
        // SAFETY: arguments are live handles of this driver, ranges inside buffers that it or the
        // host holds, or pointers to locals that outlive the call.
        let code = unsafe { (call.at)($($arg),*) };
        $self.outcome((call.name, code), &|| $thing.to_string())
    }};
}
pub(crate) use call;

/// The GPU runtime of this process.
pub struct GpuDriver {
    pub(crate) api: Api,
    pub(crate) dialect: Box<dyn RuntimeApi>,
    pub(crate) devices: Vec<GpuProps>,
    pub(crate) compiler: Option<KernelCompiler>,
    pub(crate) host: Rc<HostMemory>,
    pub(crate) blocks: RefCell<GpuBlocks>,
    pub(crate) loaded: RefCell<LoadedKernels>,
    /// Start addresses of the parts of a chain, by its address, its bytes and the loads of a part.
    pub(crate) chain_starts: RefCell<BTreeMap<(u64, u64, u64), Vec<u64>>>,
    pub(crate) peers: RefCell<BTreeSet<(u32, u32)>>,
    opened: RefCell<BTreeSet<u32>>,
    streams: RefCell<BTreeMap<u64, (u32, RuntimeHandle)>>,
    /// Streams that other code of the process created and destroys.
    adopted_streams: RefCell<BTreeSet<u64>>,
    /// Starts of blocks that other code of the process allocated and frees.
    pub(crate) adopted_blocks: RefCell<BTreeSet<u64>>,
    events: RefCell<BTreeMap<u64, (u32, RuntimeHandle)>>,
    /// Events that other code of the process created and destroys.
    adopted_events: RefCell<BTreeSet<u64>>,
    gates: RefCell<StreamGates>,
    made: Cell<u64>,
}

impl GpuDriver {
    pub(crate) fn open(
        api: Api,
        dialect: Box<dyn RuntimeApi>,
        compiler: Option<KernelCompiler>,
        host: Rc<HostMemory>,
    ) -> CallResult<Self> {
        // SAFETY: the first call of the library; it may be made again.
        let code = unsafe { (api.init.at)(0) };
        outcome(&*dialect, (api.init.name, code), &|| "this machine".into())?;
        Ok(Self {
            devices: device::all(&api, &*dialect)?,
            api,
            dialect,
            compiler,
            host,
            blocks: RefCell::default(),
            loaded: RefCell::default(),
            chain_starts: RefCell::default(),
            peers: RefCell::default(),
            opened: RefCell::default(),
            streams: RefCell::default(),
            adopted_streams: RefCell::default(),
            adopted_blocks: RefCell::default(),
            events: RefCell::default(),
            adopted_events: RefCell::default(),
            gates: RefCell::default(),
            made: Cell::new(0),
        })
    }

    pub(crate) fn outcome(&self, status: CallStatus, thing: &dyn Fn() -> String) -> CallResult<()> {
        outcome(&*self.dialect, status, thing)
    }

    /// The function that counts GPUs, for messages.
    pub fn count_call(&self) -> &'static str {
        self.api.device_count.name
    }

    /// Hints in the vocabulary of the runtime's users.
    pub fn about(&self) -> &'static RuntimeHints {
        self.dialect.about()
    }

    /// Properties of each GPU.
    pub fn infos(&self) -> Vec<DeviceInfo> {
        self.devices.iter().map(|d| d.info.clone()).collect()
    }

    /// The runtime's own number of each GPU.
    pub fn device_numbers(&self) -> Vec<i32> {
        self.devices.iter().map(|d| d.handle).collect()
    }

    pub(crate) fn id(&self) -> u64 {
        self.made.set(self.made.get() + 1);
        self.made.get()
    }

    pub(crate) fn device(&self, call: &str, gpu: u32) -> CallResult<&GpuProps> {
        self.devices.get(gpu as usize).ok_or_else(|| no_such(call, &format!("gpu{gpu}")))
    }

    /// Makes a GPU current for the calls of this thread.
    pub(crate) fn enter(&self, call: &str, gpu: u32) -> CallResult<()> {
        let handle = self.device(call, gpu)?.handle;
        self.outcome(self.dialect.enter(handle), &|| format!("gpu{gpu}"))?;
        self.opened.borrow_mut().insert(gpu);
        Ok(())
    }

    /// GPUs that have a context.
    pub(crate) fn opened(&self) -> Vec<u32> {
        self.opened.borrow().iter().copied().collect()
    }

    /// A stream's GPU and handle; makes the GPU's context current.
    pub(crate) fn stream(&self, call: &str, stream: StreamId) -> CallResult<(u32, RuntimeHandle)> {
        let known = self.streams.borrow().get(&stream.0).copied();
        let (gpu, handle) = known.ok_or_else(|| no_such(call, &format!("stream {}", stream.0)))?;
        self.enter(call, gpu)?;
        Ok((gpu, handle))
    }

    fn event(&self, call: &str, event: EventId) -> CallResult<(u32, RuntimeHandle)> {
        let known = self.events.borrow().get(&event.0).copied();
        known.ok_or_else(|| no_such(call, &format!("event {}", event.0)))
    }

    /// The kinds of memory at the ends of a copy.
    fn ends(&self, dst: u64, src: u64) -> CopyEnds {
        let blocks = self.blocks.borrow();
        let unit = |address| blocks.holding(address).map(|(_, block)| block.place.unit);
        match (unit(dst), unit(src)) {
            (Some(Unit::Gpu(a)), Some(Unit::Gpu(b))) if a == b => CopyEnds::SameGpu,
            (Some(Unit::Gpu(_)), Some(Unit::Gpu(_))) => CopyEnds::TwoGpus,
            (Some(_), Some(_)) => CopyEnds::Host,
            _ => CopyEnds::Pageable,
        }
    }

    /// Checks the ends of a copy, and marks the destination's contents as overwritten.
    fn check_copy(
        &self,
        dst: u64,
        src: u64,
        bytes: Bytes,
        thing: &dyn Fn() -> String,
    ) -> CallResult<()> {
        let ours = [self.reaches_copy(dst, bytes)?, self.reaches_copy(src, bytes)?];
        if ours == [false; 2] {
            let reason = "neither end is memory of a GPU or known to one";
            return Err(CallError::unsupported(self.dialect.copy_name(), thing(), reason));
        }
        self.overwritten(dst, bytes);
        Ok(())
    }

    /// The error that a GPU cannot address the memory of another.
    pub(crate) fn no_peer(&self, from: u32, to: u32) -> CallError {
        let thing = format!("gpu{from} to gpu{to}");
        let reason = "the driver allows no direct access between them";
        CallError::unsupported(self.api.can_access_peer.name, thing, reason)
            .or_try(self.about().peers)
    }

    /// The memory word of a gate, assigned when the gate is first held. The context of a GPU must
    /// be current.
    fn gate_word(&self, call: &str, gate: GateId) -> CallResult<GateSlot> {
        let mut gates = self.gates.borrow_mut();
        if gates.is_unheld(gate.0) {
            if !gates.ready() && gates.page == 0 {
                // One word at a time: few gates are open at once, and signals are scarce.
                match Some(())
                    .filter(|()| gates.signals.len() < SLOTS as usize)
                    .and_then(|()| self.dialect.signal_word())
                {
                    Some(word) => gates.adopt_signal(word),
                    None if gates.signals.is_empty() => {
                        gates.adopt(self.pinned(SLOTS * 4, MemKind::Pinned, false, "gates")?);
                    }
                    None => {}
                }
            }
            let full = || CallError::new(Severity::Exhausted, call, "gates", "too many at once");
            gates.make(gate.0).ok_or_else(full)?;
        }
        let slot = gates.made.get(&gate.0).copied();
        slot.ok_or_else(|| no_such(call, &format!("gate {}", gate.0)))
    }

    /// Creates a stream of a GPU.
    pub(crate) fn new_stream(&self, gpu: u32) -> CallResult<RuntimeHandle> {
        self.enter(self.api.stream_create.name, gpu)?;
        let mut stream = 0;
        call!(self, stream_create, format!("gpu{gpu}"), &raw mut stream, NON_BLOCKING)?;
        Ok(stream)
    }
}

pub(crate) fn no_such(call: &str, thing: &str) -> CallError {
    CallError::unsupported(call, thing, "no such number")
}

impl Driver for GpuDriver {
    fn name(&self) -> &str {
        self.dialect.name()
    }

    fn devices(&self) -> CallResult<Vec<DeviceInfo>> {
        Ok(self.infos())
    }

    fn queue_depth(&self) -> u64 {
        QUEUE
    }

    fn memory(&self, gpu: u32) -> CallResult<(Bytes, Bytes)> {
        self.enter(self.api.mem_info.name, gpu)?;
        let (mut free, mut total) = (0usize, 0usize);
        call!(self, mem_info, format!("gpu{gpu}"), &raw mut free, &raw mut total)?;
        Ok((Bytes(free as u64), Bytes(total as u64)))
    }

    fn peer_access(&self, from: u32, to: u32) -> CallResult<PeerAccess> {
        let name = self.api.can_access_peer.name;
        let (a, b) = (self.device(name, from)?.handle, self.device(name, to)?.handle);
        let mut can = i32::from(from == to);
        if from != to {
            call!(self, can_access_peer, format!("gpu{from} to gpu{to}"), &raw mut can, a, b)?;
        }
        Ok(if can != 0 { PeerAccess::Direct } else { PeerAccess::Staged })
    }

    fn enable_peer(&self, from: u32, to: u32) -> CallResult<()> {
        let name = self.api.can_access_peer.name;
        let thing = || format!("gpu{from} to gpu{to}");
        if self.peer_access(from, to)? == PeerAccess::Staged {
            return Err(self.no_peer(from, to));
        }
        if from == to || self.peers.borrow().contains(&(from, to)) {
            return Ok(());
        }
        self.enter(name, to)?;
        let (here, there) = (self.device(name, from)?.handle, self.device(name, to)?.handle);
        let status = self.dialect.enable_peer(here, there);
        self.opened.borrow_mut().insert(from);
        if status.1 != PEER_ALREADY_ENABLED {
            self.outcome(status, &thing)?;
        }
        self.peers.borrow_mut().insert((from, to));
        Ok(())
    }

    fn alloc(&self, place: Place, bytes: Bytes) -> CallResult<u64> {
        self.allocate(place, bytes)
    }
    fn free(&self, address: u64) -> CallResult<()> {
        self.release(address)
    }
    fn adopt_memory(&self, address: u64, bytes: Bytes, place: Place) -> CallResult<()> {
        self.adopt(address, bytes, place)
    }
    fn forget_memory(&self, address: u64) -> CallResult<()> {
        self.forget(address)
    }
    fn register(&self, address: u64, bytes: Bytes) -> CallResult<()> {
        self.lock_pages(address, bytes)
    }
    fn register_calls(&self) -> (&'static str, &'static str) {
        (self.api.host_register.name, self.api.host_unregister.name)
    }
    fn unregister(&self, address: u64) -> CallResult<()> {
        self.unlock_pages(address)
    }
    fn export_dmabuf(&self, address: u64, bytes: Bytes) -> CallResult<(OwnedFd, u64)> {
        self.export(address, bytes)
    }
    fn export_call(&self) -> &'static str {
        self.export_name()
    }
    fn cpu_access(&self, address: u64, bytes: Bytes) -> CallResult<CpuAccess> {
        self.lend_to_cpu(address, bytes)
    }
    fn flush_cpu_stores(&self, gpu: u32) -> CallResult<()> {
        self.flush_for(gpu)
    }
    fn advise_zero_copy(&self, address: u64, bytes: Bytes, gpu: u32) -> CallResult<()> {
        self.stay_home(address, bytes, gpu)
    }

    fn stream_create(&self, gpu: u32) -> CallResult<StreamId> {
        let stream = self.new_stream(gpu)?;
        let id = self.id();
        self.streams.borrow_mut().insert(id, (gpu, stream));
        self.ready_for_faults(gpu);
        Ok(StreamId(id))
    }
    fn adopt_stream(&self, gpu: u32, handle: u64) -> CallResult<StreamId> {
        self.enter("adopt_stream", gpu)?;
        let id = self.id();
        self.streams.borrow_mut().insert(id, (gpu, handle as RuntimeHandle));
        self.adopted_streams.borrow_mut().insert(id);
        Ok(StreamId(id))
    }
    fn forget_stream(&self, stream: StreamId) -> CallResult<()> {
        if !self.adopted_streams.borrow_mut().remove(&stream.0) {
            return Err(no_such("forget_stream", &format!("stream {}", stream.0)));
        }
        self.streams.borrow_mut().remove(&stream.0);
        Ok(())
    }
    fn stream_destroy(&self, stream: StreamId) -> CallResult<()> {
        let (gpu, handle) = self.stream(self.api.stream_destroy.name, stream)?;
        self.streams.borrow_mut().remove(&stream.0);
        // Pending work completes; freeing its memory waits for that.
        call!(self, stream_destroy, format!("a stream of gpu{gpu}"), handle)
    }
    fn stream_wait(&self, stream: StreamId) -> CallResult<()> {
        let (gpu, handle) = self.stream(self.api.stream_wait.name, stream)?;
        call!(self, stream_wait, format!("a stream of gpu{gpu}"), handle)
    }
    fn stream_idle(&self, stream: StreamId) -> CallResult<bool> {
        let (gpu, handle) = self.stream(self.api.stream_query.name, stream)?;
        let query = self.api.stream_query;
        // SAFETY: a live stream.
        let code = unsafe { (query.at)(handle) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.outcome((query.name, code), &|| format!("a stream of gpu{gpu}")).map(|()| true)
    }

    fn event_create(&self, gpu: u32) -> CallResult<EventId> {
        self.enter(self.api.event_create.name, gpu)?;
        let mut event = 0;
        call!(self, event_create, format!("gpu{gpu}"), &raw mut event, 0)?;
        let id = self.id();
        self.events.borrow_mut().insert(id, (gpu, event));
        Ok(EventId(id))
    }
    fn adopt_event(&self, gpu: u32, handle: u64) -> CallResult<EventId> {
        self.device("adopt_event", gpu)?;
        let id = self.id();
        self.events.borrow_mut().insert(id, (gpu, handle as RuntimeHandle));
        self.adopted_events.borrow_mut().insert(id);
        Ok(EventId(id))
    }
    fn forget_event(&self, event: EventId) -> CallResult<()> {
        if !self.adopted_events.borrow_mut().remove(&event.0) {
            return Err(no_such("forget_event", &format!("event {}", event.0)));
        }
        self.events.borrow_mut().remove(&event.0);
        Ok(())
    }
    fn event_destroy(&self, event: EventId) -> CallResult<()> {
        let (gpu, handle) = self.event(self.api.event_destroy.name, event)?;
        self.events.borrow_mut().remove(&event.0);
        self.enter(self.api.event_destroy.name, gpu)?;
        call!(self, event_destroy, format!("an event of gpu{gpu}"), handle)
    }
    fn event_record(&self, event: EventId, stream: StreamId) -> CallResult<()> {
        let (_, event) = self.event(self.api.event_record.name, event)?;
        let (gpu, stream) = self.stream(self.api.event_record.name, stream)?;
        call!(self, event_record, format!("a stream of gpu{gpu}"), event, stream)
    }
    fn stream_wait_event(&self, stream: StreamId, event: EventId) -> CallResult<()> {
        let (_, event) = self.event(self.api.stream_wait_event.name, event)?;
        let (gpu, stream) = self.stream(self.api.stream_wait_event.name, stream)?;
        call!(self, stream_wait_event, format!("a stream of gpu{gpu}"), stream, event, 0)
    }
    fn event_done(&self, event: EventId) -> CallResult<bool> {
        let Some(query) = self.api.event_query else {
            let reason = "this driver has no call that looks at an event";
            let thing = format!("event {}", event.0);
            return Err(CallError::unsupported("event_done", thing, reason));
        };
        let (gpu, handle) = self.event(query.name, event)?;
        // SAFETY: a live event.
        let code = unsafe { (query.at)(handle) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.outcome((query.name, code), &|| format!("an event of gpu{gpu}")).map(|()| true)
    }
    fn event_elapsed(&self, start: EventId, end: EventId) -> CallResult<Ns> {
        let (_, start) = self.event(self.api.event_elapsed.name, start)?;
        let (gpu, end) = self.event(self.api.event_elapsed.name, end)?;
        self.enter(self.api.event_elapsed.name, gpu)?;
        let mut ms = 0f32;
        call!(self, event_elapsed, format!("two events of gpu{gpu}"), &raw mut ms, start, end)?;
        Ok(Ns::ms(f64::from(ms)))
    }

    fn gate_create(&self) -> CallResult<GateId> {
        let id = self.id();
        self.gates.borrow_mut().create(id);
        Ok(GateId(id))
    }
    fn gate_hold(&self, gate: GateId, stream: StreamId) -> CallResult<()> {
        let name = "gate_hold";
        let (gpu, stream) = self.stream(name, stream)?;
        let thing = || format!("a stream of gpu{gpu}");
        let slot = self.gate_word(name, gate)?;
        if let Some(status) =
            self.dialect.wait_word(stream, slot.address, slot.opens_at, slot.signal)
        {
            return self.outcome(status, &thing);
        }
        let Some(call) = self.api.host_function else {
            return Err(CallError::unsupported(name, thing(), "this driver cannot hold a stream")
                .or_try("a newer driver is needed"));
        };
        let raw = Box::into_raw(Box::new(slot));
        // SAFETY: the function takes the box back, once.
        let code = unsafe { (call.at)(stream, gate::wait, raw.cast()) };
        if code != 0 {
            // SAFETY: it was not enqueued, so the box is still ours.
            drop(unsafe { Box::from_raw(raw) });
        }
        self.outcome((call.name, code), &thing)
    }
    fn gate_release(&self, gate: GateId) -> CallResult<()> {
        let opened = self.gates.borrow_mut().release(gate.0);
        opened.ok_or_else(|| no_such("gate_release", &format!("gate {}", gate.0)))
    }
    fn gate_destroy(&self, gate: GateId) -> CallResult<()> {
        let gone = self.gates.borrow_mut().destroy(gate.0);
        gone.ok_or_else(|| no_such("gate_destroy", &format!("gate {}", gate.0)))
    }

    fn copy(
        &self,
        stream: StreamId,
        dst: u64,
        src: u64,
        bytes: Bytes,
        engine: CopyChoice,
    ) -> CallResult<()> {
        let name = self.dialect.copy_name();
        let (gpu, stream) = self.stream(name, stream)?;
        let thing = || format!("{bytes} by gpu{gpu}");
        self.dialect
            .engine(self.ends(dst, src), bytes, engine)
            .map_err(|(why, way_out)| CallError::unsupported(name, thing(), why).or_try(way_out))?;
        self.check_copy(dst, src, bytes, &thing)?;
        self.outcome(self.dialect.copy(dst, src, bytes.0 as usize, stream), &thing)
    }
    fn copy_batch(&self, stream: StreamId, copies: &[(u64, u64, Bytes)]) -> CallResult<()> {
        let name = self.dialect.copy_name();
        let (gpu, stream) = self.stream(name, stream)?;
        let thing = || format!("{} copies by gpu{gpu}", copies.len());
        let mut batch = CopyBatch::default();
        for &(dst, src, bytes) in copies {
            self.check_copy(dst, src, bytes, &thing)?;
            batch.to.push(dst);
            batch.from.push(src);
            batch.bytes.push(bytes.0 as usize);
        }
        match self.dialect.copy_batch(&mut batch, stream) {
            Some(status) => self.outcome(status, &thing),
            None => {
                let (why, way_out) = self.about().no_batch;
                Err(CallError::unsupported("copy_batch", thing(), why).or_try(way_out))
            }
        }
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
        let (gpu, handle) = self.stream(self.api.launch.name, stream)?;
        self.launch_list(gpu, handle, kernel)
    }
    fn copier(&self, gpu: u32, slots: usize) -> CallResult<Box<dyn BlockCopier>> {
        self.new_copier(gpu, slots)
    }
    fn copy_engine_name(&self, dst: u64, src: u64, bytes: Bytes, engine: CopyChoice) -> String {
        self.dialect.engine(self.ends(dst, src), bytes, engine).unwrap_or("blit kernel").to_owned()
    }
    fn kernel(&self, gpu: u32, variant: &KernelVariant) -> CallResult<KernelId> {
        self.make_kernel(gpu, variant)
    }
    fn kernel_unload(&self, kernel: KernelId) -> CallResult<()> {
        if self.free_list(kernel)? {
            return Ok(());
        }
        // The code stays loaded for the next case that uses it.
        let gone = self.loaded.borrow_mut().kernels.remove(&kernel.0);
        gone.map(|_| ()).ok_or_else(|| no_such("kernel_unload", &format!("kernel {}", kernel.0)))
    }
    fn launch(&self, stream: StreamId, kernel: KernelId, launch: &KernelLaunch) -> CallResult<()> {
        let (gpu, handle) = self.stream(self.api.launch.name, stream)?;
        self.pass(gpu, handle, kernel, launch, None)
    }
    fn follow(
        &self,
        stream: StreamId,
        kernel: KernelId,
        launch: &KernelLaunch,
        part: ChainPart,
    ) -> CallResult<()> {
        let (gpu, handle) = self.stream(self.api.launch.name, stream)?;
        self.pass(gpu, handle, kernel, launch, Some(part))
    }
    fn check_read(&self, kernel: KernelId, launch: &KernelLaunch, seed: u64) -> CallResult<bool> {
        self.sum_is_right(kernel, launch, seed)
    }
    fn check_stored(&self, kernel: KernelId, launch: &KernelLaunch) -> CallResult<Option<u64>> {
        self.first_not_stored(kernel, launch)
    }
    fn migrate(
        &self,
        stream: StreamId,
        address: u64,
        bytes: Bytes,
        to: Place,
        how: MigrateHow,
    ) -> CallResult<()> {
        let (gpu, handle) = self.stream(self.api.prefetch.name, stream)?;
        self.move_pages(gpu, handle, (address, bytes), to, how)
    }
    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()> {
        self.write_pattern(address, bytes, seed, chain)
    }
    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>> {
        self.find_wrong(address, bytes, seed)
    }
}

impl Drop for GpuDriver {
    /// Streams before the objects they use, memory before contexts. Errors are ignored: `drop` has
    /// no caller to report to.
    fn drop(&mut self) {
        let gates: Vec<u64> = self.gates.borrow().made.keys().copied().collect();
        for gate in gates {
            // A gate that no stream waits for has no effect.
            let _ = self.gate_destroy(GateId(gate));
        }
        let adopted = self.adopted_streams.take();
        self.streams.borrow_mut().retain(|id, _| !adopted.contains(id));
        let adopted = self.adopted_blocks.take();
        self.blocks.borrow_mut().0.retain(|start, _| !adopted.contains(start));
        let streams: Vec<u64> = self.streams.borrow().keys().copied().collect();
        for stream in streams {
            let _ = self.stream_wait(StreamId(stream));
            let _ = self.stream_destroy(StreamId(stream));
        }
        let adopted = self.adopted_events.take();
        self.events.borrow_mut().retain(|id, _| !adopted.contains(id));
        let events: Vec<u64> = self.events.borrow().keys().copied().collect();
        for event in events {
            let _ = self.event_destroy(EventId(event));
        }
        self.unload();
        let blocks = self.blocks.borrow().starts();
        for address in blocks {
            let _ = self.release(address).or_else(|_| self.unlock_pages(address));
        }
        let page = self.gates.borrow().page;
        if page != 0 {
            let _ = call!(self, host_free, "gates", page);
        }
        let signals = std::mem::take(&mut self.gates.borrow_mut().signals);
        signals.into_iter().for_each(|signal| self.dialect.signal_free(signal));
        for gpu in self.opened() {
            if let Some(device) = self.devices.get(gpu as usize) {
                self.dialect.leave(device.handle);
            }
        }
    }
}
