//! The object-safe interface of a GPU runtime. Handles are plain integers; the facade adds types
//! that release them.

use std::os::fd::OwnedFd;

use pathline_schema::{Bytes, KernelVariant, MigrateHow, Ns, PciAddress, Place, Rate};

use crate::{BlockCopier, CallError, CallResult};

macro_rules! handle {
    ($($(#[$doc:meta])* $name:ident),+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
    )+};
}
handle!(
    /// A queue of operations of one GPU.
    StreamId,
    /// A point in a stream, to wait for or to take a time at.
    EventId,
    /// A kernel that is loaded on one GPU.
    KernelId,
    /// A barrier that holds streams and teams until it is released.
    GateId
);

/// Properties that a GPU's runtime reports.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// Number among the GPUs of the runtime, from 0.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// Compilation target: `gfx90a`, `sm_90`.
    pub arch: String,
    /// PCI address.
    pub pci: PciAddress,
    /// NUMA domain that it is attached to, if known.
    pub numa: Option<u32>,
    /// Device memory.
    pub memory: Bytes,
    /// Theoretical peak bandwidth of its memory, from clock and bus width. `None` if the runtime
    /// does not report them.
    pub memory_peak: Option<Rate>,
    /// Compute units or multiprocessors.
    pub compute_units: u32,
    /// Second-level cache; 0 if the runtime does not report it.
    pub l2: Bytes,
    /// Whether kernels can demand-fault managed pages (XNACK, concurrent managed access).
    pub demand_migration: bool,
}

/// How one GPU reaches the memory of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAccess {
    /// Kernels and engines address it directly.
    Direct,
    /// The runtime stages through the host.
    Staged,
}

/// How CPU threads reach memory of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuAccess {
    /// Loads and stores go to where it lies, over the GPU's link if that is a GPU.
    InPlace,
    /// A touch moves its pages to the memory of the host, where they stay.
    Migrates,
}

/// The engine that a copy requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyChoice {
    /// The runtime's own choice under the environment it was started with.
    Auto,
    /// The runtime's copy kernel.
    Blit,
}

/// One kernel launch: a pass of the variant over `bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelLaunch {
    /// Source address; 0 if the kernel loads nothing.
    pub src: u64,
    /// Destination address; 0 if the kernel stores nothing.
    pub dst: u64,
    /// Payload in bytes.
    pub bytes: Bytes,
}

/// The part of a pointer chain that one launch of a chase follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainPart {
    /// Number of the operation, from 0: operation `n` begins `n * steps` loads after the start of
    /// the chain and wraps around at its end.
    pub nth: u64,
    /// Number of dependent loads.
    pub steps: u64,
}

/// A GPU runtime.
///
/// Addresses are those of the machine's one virtual address space: host memory from
/// [`crate::Host`] may be given to copies and kernels where the hardware allows it.
/// All `copy`, `launch`, `migrate`, `hold` and `record` calls enqueue and return.
pub trait Driver {
    /// Name of the runtime: `cuda`, `hip`, `sim`.
    fn name(&self) -> &str;
    /// All usable GPUs, by number.
    fn devices(&self) -> CallResult<Vec<DeviceInfo>>;
    /// Free and total device memory now.
    fn memory(&self, gpu: u32) -> CallResult<(Bytes, Bytes)>;
    /// How `from` reaches memory of `to`.
    fn peer_access(&self, from: u32, to: u32) -> CallResult<PeerAccess>;
    /// Lets kernels and copy engines of `from` address memory of `to`. May be called repeatedly.
    fn enable_peer(&self, from: u32, to: u32) -> CallResult<()>;

    /// Allocates device, pinned or managed memory at `place`. Pageable memory comes from
    /// [`crate::Host`].
    fn alloc(&self, place: Place, bytes: Bytes) -> CallResult<u64>;
    /// Frees memory of [`Driver::alloc`].
    fn free(&self, address: u64) -> CallResult<()>;
    /// Lets copies use memory that other code of this process allocated, until it is forgotten. `place` says
    /// where it lies; host memory is page-locked.
    ///
    /// # Errors
    /// The runtime has only its own memory, or part of the range is known already.
    fn adopt_memory(&self, address: u64, bytes: Bytes, place: Place) -> CallResult<()> {
        let thing = format!("{bytes} at {address:#x}, {place}");
        let reason = "this runtime takes no memory of others";
        Err(CallError::unsupported("adopt_memory", thing, reason))
    }
    /// Forgets memory of [`Driver::adopt_memory`]. It stays allocated.
    ///
    /// # Errors
    /// No memory was adopted there.
    fn forget_memory(&self, address: u64) -> CallResult<()> {
        let reason = "this runtime takes no memory of others";
        Err(CallError::unsupported("forget_memory", format!("{address:#x}"), reason))
    }
    /// Page-locks host memory and makes it visible to GPUs.
    fn register(&self, address: u64, bytes: Bytes) -> CallResult<()>;
    /// Names of the functions that register and unregister, for records.
    fn register_calls(&self) -> (&'static str, &'static str) {
        ("register", "unregister")
    }
    /// Reverses [`Driver::register`].
    fn unregister(&self, address: u64) -> CallResult<()>;
    /// Exports device memory as a DMA-BUF file for other drivers, with the offset of the memory in
    /// it. The export ends when the file is closed.
    fn export_dmabuf(&self, address: u64, bytes: Bytes) -> CallResult<(OwnedFd, u64)> {
        let thing = format!("{bytes} at {address:#x}");
        Err(CallError::unsupported("export_dmabuf", thing, "this runtime exports no memory"))
    }
    /// Name of the function that exports memory, for records.
    fn export_call(&self) -> &'static str {
        "export"
    }
    /// Lets CPU threads of [`crate::Host`] work on memory of [`Driver::alloc`], until it is freed. May be called
    /// repeatedly.
    ///
    /// # Errors
    /// The runtime maps no such memory for the CPU.
    fn cpu_access(&self, address: u64, bytes: Bytes) -> CallResult<CpuAccess> {
        let thing = format!("{bytes} at {address:#x}");
        Err(CallError::unsupported(
            "cpu_access",
            thing,
            "this runtime gives its memory to GPUs only",
        ))
    }
    /// Makes visible to a GPU what CPU threads have stored to its memory.
    ///
    /// # Errors
    /// There is no such GPU.
    fn flush_cpu_stores(&self, _gpu: u32) -> CallResult<()> {
        Ok(())
    }
    /// Advises that `gpu` accesses managed memory in place (zero-copy) and it stays at its home.
    fn advise_zero_copy(&self, address: u64, bytes: Bytes, gpu: u32) -> CallResult<()>;

    /// Creates a stream.
    fn stream_create(&self, gpu: u32) -> CallResult<StreamId>;
    /// Destroys a stream; its pending work completes first.
    fn stream_destroy(&self, stream: StreamId) -> CallResult<()>;
    /// Names a stream that other code of this process created, until it is forgotten.
    ///
    /// # Errors
    /// The runtime has only its own streams.
    fn adopt_stream(&self, gpu: u32, handle: u64) -> CallResult<StreamId> {
        let reason = "this runtime takes no streams of others";
        Err(CallError::unsupported("adopt_stream", format!("{handle:#x} of gpu{gpu}"), reason))
    }
    /// Forgets a stream of [`Driver::adopt_stream`]. It stays open.
    ///
    /// # Errors
    /// No such stream was adopted.
    fn forget_stream(&self, stream: StreamId) -> CallResult<()> {
        let reason = "this runtime takes no streams of others";
        Err(CallError::unsupported("forget_stream", format!("stream {}", stream.0), reason))
    }
    /// Blocks the host until the stream is idle.
    fn stream_wait(&self, stream: StreamId) -> CallResult<()>;
    /// Whether the stream is idle; does not block.
    fn stream_idle(&self, stream: StreamId) -> CallResult<bool>;
    /// Creates an event with timing.
    fn event_create(&self, gpu: u32) -> CallResult<EventId>;
    /// Names an event that other code of this process created, until it is forgotten.
    ///
    /// # Errors
    /// The runtime has only its own events.
    fn adopt_event(&self, gpu: u32, handle: u64) -> CallResult<EventId> {
        let reason = "this runtime takes no events of others";
        Err(CallError::unsupported("adopt_event", format!("{handle:#x} of gpu{gpu}"), reason))
    }
    /// Forgets an event of [`Driver::adopt_event`]. It stays open.
    ///
    /// # Errors
    /// No such event was adopted.
    fn forget_event(&self, event: EventId) -> CallResult<()> {
        let reason = "this runtime takes no events of others";
        Err(CallError::unsupported("forget_event", format!("event {}", event.0), reason))
    }
    /// Destroys an event.
    fn event_destroy(&self, event: EventId) -> CallResult<()>;
    /// Enqueues the event.
    fn event_record(&self, event: EventId, stream: StreamId) -> CallResult<()>;
    /// Makes a stream wait for the event.
    fn stream_wait_event(&self, stream: StreamId, event: EventId) -> CallResult<()>;
    /// Whether an event that was recorded has completed; does not block.
    fn event_done(&self, event: EventId) -> CallResult<bool>;
    /// Lets a loop that polls wait until the next look may show something new, `at_most` that long.
    fn pause(&self, _at_most: Ns) {
        std::hint::spin_loop();
    }
    /// Time between two completed events.
    fn event_elapsed(&self, start: EventId, end: EventId) -> CallResult<Ns>;

    /// Creates a gate, closed.
    fn gate_create(&self) -> CallResult<GateId>;
    /// Makes a stream wait for the gate.
    fn gate_hold(&self, gate: GateId, stream: StreamId) -> CallResult<()>;
    /// Maximum number of operations behind a closed gate on one stream. More would block the
    /// caller, and deadlock if the caller is the thread that opens the gate.
    fn queue_depth(&self) -> u64 {
        u64::MAX
    }
    /// Opens the gate and starts everything that waits for it.
    fn gate_release(&self, gate: GateId) -> CallResult<()>;
    /// Destroys a gate, opening it first if it is closed.
    fn gate_destroy(&self, gate: GateId) -> CallResult<()>;

    /// Enqueues a copy. With pageable memory at either end the call may block, as the runtime's
    /// does.
    fn copy(
        &self,
        stream: StreamId,
        dst: u64,
        src: u64,
        bytes: Bytes,
        engine: CopyChoice,
    ) -> CallResult<()>;
    /// Enqueues copies `(dst, src, bytes)` by one call of the runtime; their order is undefined.
    /// Unsupported if the runtime has no such call.
    fn copy_batch(&self, stream: StreamId, copies: &[(u64, u64, Bytes)]) -> CallResult<()> {
        let thing = format!("{} copies on stream {}", copies.len(), stream.0);
        Err(CallError::unsupported("copy_batch", thing, "this runtime has no call for a batch"))
    }
    /// Copies between pageable memory and a GPU's by threads near that memory, and waits. None where the caller
    /// has to have the chunks copied itself: a model knows the whole as one operation.
    fn copy_by_threads(
        &self,
        _stream: StreamId,
        _threads: u32,
        _copy: (u64, u64, Bytes),
    ) -> Option<CallResult<()>> {
        None
    }
    /// Loads the kernel that copies ranges `(dst, src, bytes)` in place, by that many thread blocks, with the list
    /// of them. Unsupported where the GPU does not reach a range, or nothing compiles the kernel.
    fn block_copies(
        &self,
        gpu: u32,
        copies: &[(u64, u64, Bytes)],
        thread_blocks: u32,
    ) -> CallResult<KernelId> {
        let thing = format!("{} ranges on gpu{gpu}, {thread_blocks} thread blocks", copies.len());
        Err(CallError::unsupported("block_copies", thing, "this runtime has no such kernel"))
    }
    /// Enqueues all copies of [`Driver::block_copies`] as one kernel; their order is undefined.
    fn copy_blocks(&self, stream: StreamId, kernel: KernelId) -> CallResult<()> {
        let thing = format!("list {} on stream {}", kernel.0, stream.0);
        Err(CallError::unsupported("copy_blocks", thing, "this runtime has no such kernel"))
    }
    /// A copier with `slots` slots for a separate thread that copies to or from a GPU.
    fn copier(&self, gpu: u32, slots: usize) -> CallResult<Box<dyn BlockCopier>> {
        let thing = format!("gpu{gpu}, {slots} slots");
        Err(CallError::unsupported("copier", thing, "this runtime copies from one thread only"))
    }
    /// Name of the engine that carries such a copy of that size between these addresses, for records:
    /// `copy engine`.
    fn copy_engine_name(&self, dst: u64, src: u64, bytes: Bytes, engine: CopyChoice) -> String;
    /// Loads a kernel, compiled first if it is not cached.
    fn kernel(&self, gpu: u32, variant: &KernelVariant) -> CallResult<KernelId>;
    /// Unloads a kernel.
    fn kernel_unload(&self, kernel: KernelId) -> CallResult<()>;
    /// Enqueues a kernel.
    fn launch(&self, stream: StreamId, kernel: KernelId, launch: &KernelLaunch) -> CallResult<()>;
    /// Enqueues a chase over one part of the chain that `launch` names. Consecutive launches run on
    /// different compute units, spread over all of them: units differ by 3 % in their distance from
    /// a link, so that one unit does not represent the GPU. A driver may support only parts of
    /// [`pathline_schema::CHASE_STEPS`] loads.
    fn follow(
        &self,
        stream: StreamId,
        kernel: KernelId,
        launch: &KernelLaunch,
        part: ChainPart,
    ) -> CallResult<()>;
    /// Runs a read kernel once over memory that holds the pattern `seed` from its start, and waits
    /// for it. Returns whether the checksum of all loaded bytes matches the pattern: wrong, missing
    /// or repeated bytes change it, their order does not.
    fn check_read(&self, kernel: KernelId, launch: &KernelLaunch, seed: u64) -> CallResult<bool>;
    /// Compares the destination of a write or triad kernel with what one pass of it stores, once the
    /// pass has ended; the sources of a triad must still hold the bytes that it read. The offset of the
    /// first wrong element, if any. Written memory is compared where it lies, a triad by the kernel's
    /// GPU.
    ///
    /// # Errors
    /// The kernel is neither, or the comparison does not run.
    fn check_stored(&self, kernel: KernelId, launch: &KernelLaunch) -> CallResult<Option<u64>>;
    /// Enqueues the migration of managed memory to `to`. With [`MigrateHow::Fault`] a kernel on the
    /// stream's GPU reads the memory.
    fn migrate(
        &self,
        stream: StreamId,
        address: u64,
        bytes: Bytes,
        to: Place,
        how: MigrateHow,
    ) -> CallResult<()>;

    /// Writes the pattern `seed` (see [`crate::pattern`]) from the device that owns the memory, and
    /// waits. `chain` writes a cycle of dependent pointers instead, for a chase.
    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()>;
    /// Verifies the pattern on the device that owns the memory. Returns the offset of the first
    /// wrong byte, if any.
    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>>;
}
