//! `hal::Driver` over the CUDA driver API.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pathline_hal::{
    CallError, CopyEngine, DeviceInfo, Driver, EventId, GateId, KernelId, Launch, PeerAccess,
    Result, StreamId,
};
use pathline_schema::{Bytes, MigrateHow, Ns, Place, Severity, Variant};

use super::api::{Cuda, Handle};
use super::compiler::Compiler;
use super::device::{self, Device};
use super::error::outcome;
use super::gate::{self, Gates, SLOTS};
use super::kernels::Loaded;
use super::memory::Blocks;
use crate::memory::Memory;

/// Operations that fit into a stream that is held; with one more the call waits for the stream, and
/// whoever would open the gate waits for the call. The hardware queue has 1024 entries.
const QUEUE: u64 = 500;
/// `CU_STREAM_NON_BLOCKING`: no order with the legacy stream.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
const WAIT_GEQ: u32 = 0;
const NOT_SUPPORTED: i32 = 801;
const NOT_READY: i32 = 600;
const PEER_ALREADY_ENABLED: i32 = 704;

/// Calls the driver and names the function in the error. Its arguments are handles that this driver
/// holds, addresses that were looked up, and pointers to locals; that is what makes it sound.
macro_rules! cuda {
    ($self:expr, $field:ident, $name:literal, $thing:expr, $($arg:expr),*) => {{
        // SAFETY: arguments are live handles of this driver, ranges inside buffers that it or the
        // host holds, or pointers to locals that outlive the call.
        let code = unsafe { ($self.api.$field)($($arg),*) };
        $crate::cuda::error::outcome(&$self.api, code, $name, &|| $thing.to_string())
    }};
}
pub(crate) use cuda;

/// The CUDA runtime of this process.
pub(crate) struct CudaDriver {
    pub(crate) api: Cuda,
    pub(crate) devices: Vec<Device>,
    pub(crate) compiler: Option<Compiler>,
    pub(crate) host: Rc<Memory>,
    pub(crate) blocks: RefCell<Blocks>,
    pub(crate) loaded: RefCell<Loaded>,
    pub(crate) peers: RefCell<BTreeSet<(u32, u32)>>,
    contexts: RefCell<BTreeMap<u32, Handle>>,
    streams: RefCell<BTreeMap<u64, (u32, Handle)>>,
    events: RefCell<BTreeMap<u64, (u32, Handle)>>,
    gates: RefCell<Gates>,
    made: Cell<u64>,
}

impl CudaDriver {
    pub(crate) fn open(api: Cuda, compiler: Option<Compiler>, host: Rc<Memory>) -> Result<Self> {
        // SAFETY: the first call of the library; it may be made again.
        let code = unsafe { (api.init)(0) };
        outcome(&api, code, "cuInit", &|| "this machine".into())?;
        Ok(Self {
            devices: device::all(&api)?,
            api,
            compiler,
            host,
            blocks: RefCell::default(),
            loaded: RefCell::default(),
            peers: RefCell::default(),
            contexts: RefCell::default(),
            streams: RefCell::default(),
            events: RefCell::default(),
            gates: RefCell::default(),
            made: Cell::new(0),
        })
    }

    /// What each GPU says of itself.
    pub(crate) fn infos(&self) -> Vec<DeviceInfo> {
        self.devices.iter().map(|d| d.info.clone()).collect()
    }

    pub(crate) fn id(&self) -> u64 {
        self.made.set(self.made.get() + 1);
        self.made.get()
    }

    pub(crate) fn device(&self, call: &str, gpu: u32) -> Result<&Device> {
        self.devices.get(gpu as usize).ok_or_else(|| no_such(call, &format!("gpu{gpu}")))
    }

    /// Makes a GPU's primary context, which other libraries of the process share, the current one.
    pub(crate) fn enter(&self, call: &str, gpu: u32) -> Result<()> {
        let handle = self.device(call, gpu)?.handle;
        let known = self.contexts.borrow().get(&gpu).copied();
        let context = match known {
            Some(context) => context,
            None => {
                let mut context = 0;
                cuda!(
                    self,
                    retain,
                    "cuDevicePrimaryCtxRetain",
                    format!("gpu{gpu}"),
                    &raw mut context,
                    handle
                )?;
                self.contexts.borrow_mut().insert(gpu, context);
                context
            }
        };
        cuda!(self, set_current, "cuCtxSetCurrent", format!("gpu{gpu}"), context)
    }

    /// GPUs that have a context.
    pub(crate) fn opened(&self) -> Vec<u32> {
        self.contexts.borrow().keys().copied().collect()
    }

    /// A stream's GPU and handle; the GPU's context is then current.
    pub(crate) fn stream(&self, call: &str, stream: StreamId) -> Result<(u32, Handle)> {
        let known = self.streams.borrow().get(&stream.0).copied();
        let (gpu, handle) = known.ok_or_else(|| no_such(call, &format!("stream {}", stream.0)))?;
        self.enter(call, gpu)?;
        Ok((gpu, handle))
    }

    fn event(&self, call: &str, event: EventId) -> Result<(u32, Handle)> {
        let known = self.events.borrow().get(&event.0).copied();
        known.ok_or_else(|| no_such(call, &format!("event {}", event.0)))
    }

    /// A new stream of a GPU.
    pub(crate) fn new_stream(&self, gpu: u32) -> Result<Handle> {
        self.enter("cuStreamCreate", gpu)?;
        let mut stream = 0;
        cuda!(
            self,
            stream_create,
            "cuStreamCreate",
            format!("gpu{gpu}"),
            &raw mut stream,
            NON_BLOCKING
        )?;
        Ok(stream)
    }
}

pub(crate) fn no_such(call: &str, thing: &str) -> CallError {
    CallError::unsupported(call, thing, "there is none of that number")
}

impl Driver for CudaDriver {
    fn name(&self) -> &str {
        "cuda"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(self.infos())
    }

    fn queue_depth(&self) -> u64 {
        QUEUE
    }

    fn memory(&self, gpu: u32) -> Result<(Bytes, Bytes)> {
        self.enter("cuMemGetInfo", gpu)?;
        let (mut free, mut total) = (0usize, 0usize);
        cuda!(self, mem_info, "cuMemGetInfo", format!("gpu{gpu}"), &raw mut free, &raw mut total)?;
        Ok((Bytes(free as u64), Bytes(total as u64)))
    }

    fn peer_access(&self, from: u32, to: u32) -> Result<PeerAccess> {
        const CALL: &str = "cuDeviceCanAccessPeer";
        let (a, b) = (self.device(CALL, from)?.handle, self.device(CALL, to)?.handle);
        let mut can = i32::from(from == to);
        if from != to {
            cuda!(
                self,
                can_access_peer,
                "cuDeviceCanAccessPeer",
                format!("gpu{from} to gpu{to}"),
                &raw mut can,
                a,
                b
            )?;
        }
        Ok(if can != 0 { PeerAccess::Direct } else { PeerAccess::Staged })
    }

    fn enable_peer(&self, from: u32, to: u32) -> Result<()> {
        const CALL: &str = "cuCtxEnablePeerAccess";
        let thing = || format!("gpu{from} to gpu{to}");
        if self.peer_access(from, to)? == PeerAccess::Staged {
            return Err(CallError::unsupported(
                CALL,
                thing(),
                "the driver gives no direct access between them",
            )
            .or_try("see `nvidia-smi topo -p2p r`"));
        }
        if from == to || self.peers.borrow().contains(&(from, to)) {
            return Ok(());
        }
        self.enter(CALL, to)?;
        let context =
            self.contexts.borrow().get(&to).copied().ok_or_else(|| no_such(CALL, &thing()))?;
        self.enter(CALL, from)?;
        // SAFETY: a live context.
        let code = unsafe { (self.api.enable_peer)(context, 0) };
        if code != PEER_ALREADY_ENABLED {
            outcome(&self.api, code, CALL, &thing)?;
        }
        self.peers.borrow_mut().insert((from, to));
        Ok(())
    }

    fn alloc(&self, place: Place, bytes: Bytes) -> Result<u64> {
        self.allocate(place, bytes)
    }
    fn free(&self, address: u64) -> Result<()> {
        self.release(address)
    }
    fn register(&self, address: u64, bytes: Bytes) -> Result<()> {
        self.lock_pages(address, bytes)
    }
    fn unregister(&self, address: u64) -> Result<()> {
        self.unlock_pages(address)
    }
    fn advise_zero_copy(&self, address: u64, bytes: Bytes, gpu: u32) -> Result<()> {
        self.stay_home(address, bytes, gpu)
    }

    fn stream_create(&self, gpu: u32) -> Result<StreamId> {
        let stream = self.new_stream(gpu)?;
        let id = self.id();
        self.streams.borrow_mut().insert(id, (gpu, stream));
        self.ready_for_faults(gpu);
        Ok(StreamId(id))
    }
    fn stream_destroy(&self, stream: StreamId) -> Result<()> {
        let (gpu, handle) = self.stream("cuStreamDestroy", stream)?;
        self.streams.borrow_mut().remove(&stream.0);
        // What is pending completes; its memory may be freed next, which waits for it.
        cuda!(self, stream_destroy, "cuStreamDestroy", format!("a stream of gpu{gpu}"), handle)
    }
    fn stream_wait(&self, stream: StreamId) -> Result<()> {
        let (gpu, handle) = self.stream("cuStreamSynchronize", stream)?;
        cuda!(self, stream_wait, "cuStreamSynchronize", format!("a stream of gpu{gpu}"), handle)
    }
    fn stream_idle(&self, stream: StreamId) -> Result<bool> {
        let (gpu, handle) = self.stream("cuStreamQuery", stream)?;
        // SAFETY: a live stream.
        let code = unsafe { (self.api.stream_query)(handle) };
        if code == NOT_READY {
            return Ok(false);
        }
        outcome(&self.api, code, "cuStreamQuery", &|| format!("a stream of gpu{gpu}"))
            .map(|()| true)
    }

    fn event_create(&self, gpu: u32) -> Result<EventId> {
        self.enter("cuEventCreate", gpu)?;
        let mut event = 0;
        cuda!(self, event_create, "cuEventCreate", format!("gpu{gpu}"), &raw mut event, 0)?;
        let id = self.id();
        self.events.borrow_mut().insert(id, (gpu, event));
        Ok(EventId(id))
    }
    fn event_destroy(&self, event: EventId) -> Result<()> {
        let (gpu, handle) = self.event("cuEventDestroy", event)?;
        self.events.borrow_mut().remove(&event.0);
        self.enter("cuEventDestroy", gpu)?;
        cuda!(self, event_destroy, "cuEventDestroy", format!("an event of gpu{gpu}"), handle)
    }
    fn event_record(&self, event: EventId, stream: StreamId) -> Result<()> {
        let (_, event) = self.event("cuEventRecord", event)?;
        let (gpu, stream) = self.stream("cuEventRecord", stream)?;
        cuda!(self, event_record, "cuEventRecord", format!("a stream of gpu{gpu}"), event, stream)
    }
    fn stream_wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        let (_, event) = self.event("cuStreamWaitEvent", event)?;
        let (gpu, stream) = self.stream("cuStreamWaitEvent", stream)?;
        cuda!(
            self,
            stream_wait_event,
            "cuStreamWaitEvent",
            format!("a stream of gpu{gpu}"),
            stream,
            event,
            0
        )
    }
    fn event_elapsed(&self, start: EventId, end: EventId) -> Result<Ns> {
        let (_, start) = self.event("cuEventElapsedTime", start)?;
        let (gpu, end) = self.event("cuEventElapsedTime", end)?;
        self.enter("cuEventElapsedTime", gpu)?;
        let mut ms = 0f32;
        cuda!(
            self,
            event_elapsed,
            "cuEventElapsedTime",
            format!("two events of gpu{gpu}"),
            &raw mut ms,
            start,
            end
        )?;
        Ok(Ns::ms(f64::from(ms)))
    }

    fn gate_create(&self) -> Result<GateId> {
        const CALL: &str = "cuMemHostAlloc";
        let mut gates = self.gates.borrow_mut();
        if gates.page == 0 {
            let first = self.opened().first().copied().unwrap_or(0);
            self.enter(CALL, first)?;
            gates.adopt(self.pinned(SLOTS * 4, 0, "gates")?);
        }
        let id = self.id();
        let full =
            || CallError::new(Severity::Exhausted, "gate_create", "gates", "too many at once");
        gates.make(id).ok_or_else(full)?;
        Ok(GateId(id))
    }
    fn gate_hold(&self, gate: GateId, stream: StreamId) -> Result<()> {
        const CALL: &str = "cuStreamWaitValue32";
        let slot = self.gates.borrow().made.get(&gate.0).copied();
        let slot = slot.ok_or_else(|| no_such(CALL, &format!("gate {}", gate.0)))?;
        let (gpu, stream) = self.stream(CALL, stream)?;
        let thing = || format!("a stream of gpu{gpu}");
        if let Some(wait) = self.api.wait_value {
            // SAFETY: a live stream, and a word that lives as long as the driver. With unified
            // addressing the device reaches portable pinned memory by the host's own address.
            let code = unsafe { wait(stream, slot.address, slot.opens_at, WAIT_GEQ) };
            if code != NOT_SUPPORTED {
                return outcome(&self.api, code, CALL, &thing);
            }
        }
        let Some(call) = self.api.host_function else {
            return Err(CallError::unsupported(CALL, thing(), "this driver cannot hold a stream")
                .or_try("a driver of CUDA 11.7 or newer is needed"));
        };
        let raw = Box::into_raw(Box::new(slot));
        // SAFETY: the function takes the box back, once.
        let code = unsafe { call(stream, gate::wait, raw.cast()) };
        if code != 0 {
            // SAFETY: it was not enqueued, so the box is still ours.
            drop(unsafe { Box::from_raw(raw) });
        }
        outcome(&self.api, code, "cuLaunchHostFunc", &thing)
    }
    fn gate_release(&self, gate: GateId) -> Result<()> {
        let slot = self.gates.borrow().made.get(&gate.0).copied();
        slot.map(|s| s.open()).ok_or_else(|| no_such("gate_release", &format!("gate {}", gate.0)))
    }
    fn gate_destroy(&self, gate: GateId) -> Result<()> {
        let gone = self.gates.borrow_mut().destroy(gate.0);
        gone.ok_or_else(|| no_such("gate_destroy", &format!("gate {}", gate.0)))
    }

    fn copy(
        &self,
        stream: StreamId,
        dst: u64,
        src: u64,
        bytes: Bytes,
        engine: CopyEngine,
    ) -> Result<()> {
        const CALL: &str = "cuMemcpyAsync";
        let (gpu, stream) = self.stream(CALL, stream)?;
        let thing = || format!("{bytes} by gpu{gpu}");
        if engine == CopyEngine::Blit {
            let reason = "CUDA has no switch that makes its copies run as kernels";
            return Err(CallError::unsupported(CALL, thing(), reason)
                .or_try("kernel[copy-...] measures the same by a kernel"));
        }
        let ours = [self.reaches_copy(dst, bytes)?, self.reaches_copy(src, bytes)?];
        if ours == [false; 2] {
            let reason = "neither end is memory of a GPU or known to one";
            return Err(CallError::unsupported(CALL, thing(), reason));
        }
        self.overwritten(dst);
        cuda!(self, copy, "cuMemcpyAsync", thing(), dst, src, bytes.0 as usize, stream)
    }
    fn copy_engine_name(&self, dst: u64, src: u64, _: CopyEngine) -> String {
        // Inside one GPU the driver takes an engine or a kernel of its own, and does not say which.
        let blocks = self.blocks.borrow();
        let owner = |address| blocks.holding(address).and_then(|(_, b)| b.place.unit.gpu());
        let local = owner(dst).is_some() && owner(dst) == owner(src);
        if local { "cuMemcpyAsync" } else { "copy engine" }.to_owned()
    }
    fn kernel(&self, gpu: u32, variant: &Variant) -> Result<KernelId> {
        self.make_kernel(gpu, variant)
    }
    fn kernel_unload(&self, kernel: KernelId) -> Result<()> {
        // The code stays for the next case that wants it.
        let gone = self.loaded.borrow_mut().kernels.remove(&kernel.0);
        gone.map(|_| ()).ok_or_else(|| no_such("kernel_unload", &format!("kernel {}", kernel.0)))
    }
    fn launch(&self, stream: StreamId, kernel: KernelId, launch: &Launch) -> Result<()> {
        let (gpu, handle) = self.stream("cuLaunchKernel", stream)?;
        self.pass(gpu, handle, kernel, launch)
    }
    fn migrate(
        &self,
        stream: StreamId,
        address: u64,
        bytes: Bytes,
        to: Place,
        how: MigrateHow,
    ) -> Result<()> {
        let (gpu, handle) = self.stream("cuMemPrefetchAsync", stream)?;
        self.move_pages(gpu, handle, (address, bytes), to, how)
    }
    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> Result<()> {
        self.write_pattern(address, bytes, seed, chain)
    }
    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> Result<Option<u64>> {
        self.find_wrong(address, bytes, seed)
    }
}

impl Drop for CudaDriver {
    /// Streams before what they use, memory before contexts. A failure has nobody to tell.
    fn drop(&mut self) {
        let gates: Vec<u64> = self.gates.borrow().made.keys().copied().collect();
        for gate in gates {
            let _ = self.gate_destroy(GateId(gate));
        }
        let streams: Vec<u64> = self.streams.borrow().keys().copied().collect();
        for stream in streams {
            let _ = self.stream_wait(StreamId(stream));
            let _ = self.stream_destroy(StreamId(stream));
        }
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
            let _ = cuda!(self, host_free, "cuMemFreeHost", "gates", page);
        }
        for gpu in self.opened() {
            if let Some(device) = self.devices.get(gpu as usize) {
                let _ =
                    cuda!(self, release, "cuDevicePrimaryCtxRelease", "a context", device.handle);
            }
        }
    }
}
