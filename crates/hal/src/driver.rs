//! The thin, object-safe face of a GPU runtime. Handles are plain words; the facade gives them
//! owners.

use std::os::fd::OwnedFd;

use pathline_schema::{Bytes, KernelVariant, MigrateHow, Ns, Place, Rate};

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
    /// A point in a stream that can be waited for and timed.
    EventId,
    /// A kernel that is loaded on one GPU.
    KernelId,
    /// A barrier that holds streams and teams until it is released.
    GateId
);

/// The properties that a GPU reports.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// Its number.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// Compilation target: `gfx90a`, `sm_90`.
    pub arch: String,
    /// PCI address.
    pub pci: String,
    /// NUMA domain that it hangs on, if known.
    pub numa: Option<u32>,
    /// Device memory.
    pub memory: Bytes,
    /// Theoretical peak of its memory, from its clock and bus; none if the runtime does not say.
    pub memory_peak: Option<Rate>,
    /// Compute units or multiprocessors.
    pub compute_units: u32,
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
    /// Address of what is loaded; 0 if nothing is.
    pub src: u64,
    /// Address of what is stored; 0 if nothing is.
    pub dst: u64,
    /// Payload.
    pub bytes: Bytes,
}

/// The part of a pointer chain that one launch of a chase follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainPart {
    /// Number of the operation, from 0: operation `n` begins `n * steps` loads after the start of the
    /// chain, and goes around with it.
    pub nth: u64,
    /// Dependent loads.
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
    /// All GPUs that can be used.
    fn devices(&self) -> CallResult<Vec<DeviceInfo>>;
    /// Free and total device memory now.
    fn memory(&self, gpu: u32) -> CallResult<(Bytes, Bytes)>;
    /// How `from` reaches memory of `to`.
    fn peer_access(&self, from: u32, to: u32) -> CallResult<PeerAccess>;
    /// Lets kernels and engines of `from` address memory of `to`; again is fine.
    fn enable_peer(&self, from: u32, to: u32) -> CallResult<()>;

    /// Allocates device, pinned or managed memory at `place`. Pageable kinds are the host's.
    fn alloc(&self, place: Place, bytes: Bytes) -> CallResult<u64>;
    /// Frees what `alloc` gave.
    fn free(&self, address: u64) -> CallResult<()>;
    /// Page-locks host memory and makes it visible to GPUs.
    fn register(&self, address: u64, bytes: Bytes) -> CallResult<()>;
    /// Names of the calls that register and unregister, for the record.
    fn register_calls(&self) -> (&'static str, &'static str) {
        ("register", "unregister")
    }
    /// Takes `register` back.
    fn unregister(&self, address: u64) -> CallResult<()>;
    /// Exports device memory as a file that other drivers understand, and where in it the memory
    /// begins. Closing the file ends that.
    fn export_dmabuf(&self, address: u64, bytes: Bytes) -> CallResult<(OwnedFd, u64)> {
        let thing = format!("{bytes} at {address:#x}");
        Err(CallError::unsupported("export_dmabuf", thing, "this runtime exports no memory"))
    }
    /// Name of the call that exports memory, for the record.
    fn export_call(&self) -> &'static str {
        "export"
    }
    /// Advises that `gpu` accesses managed memory in place (zero-copy) and it stays at its home.
    fn advise_zero_copy(&self, address: u64, bytes: Bytes, gpu: u32) -> CallResult<()>;

    /// A new stream.
    fn stream_create(&self, gpu: u32) -> CallResult<StreamId>;
    /// Destroys a stream; its pending work completes first.
    fn stream_destroy(&self, stream: StreamId) -> CallResult<()>;
    /// Blocks the host until the stream is idle.
    fn stream_wait(&self, stream: StreamId) -> CallResult<()>;
    /// Whether the stream is idle; does not block.
    fn stream_idle(&self, stream: StreamId) -> CallResult<bool>;
    /// A new event, with timing.
    fn event_create(&self, gpu: u32) -> CallResult<EventId>;
    /// Destroys an event.
    fn event_destroy(&self, event: EventId) -> CallResult<()>;
    /// Enqueues the event.
    fn event_record(&self, event: EventId, stream: StreamId) -> CallResult<()>;
    /// Enqueues a wait for the event in another stream.
    fn stream_wait_event(&self, stream: StreamId, event: EventId) -> CallResult<()>;
    /// Time between two events that have completed.
    fn event_elapsed(&self, start: EventId, end: EventId) -> CallResult<Ns>;

    /// A new gate, closed.
    fn gate_create(&self) -> CallResult<GateId>;
    /// Enqueues a wait for the gate.
    fn gate_hold(&self, gate: GateId, stream: StreamId) -> CallResult<()>;
    /// Most operations that can be enqueued behind a closed gate on one stream. With more, the call
    /// waits for the gate, and who would open it may wait for the call.
    fn queue_depth(&self) -> u64 {
        u64::MAX
    }
    /// Opens the gate: everything that waits for it starts.
    fn gate_release(&self, gate: GateId) -> CallResult<()>;
    /// Destroys a gate, opening it first if it is closed.
    fn gate_destroy(&self, gate: GateId) -> CallResult<()>;

    /// Enqueues a copy. Where either end is pageable the call may block like the runtime's does.
    fn copy(
        &self,
        stream: StreamId,
        dst: u64,
        src: u64,
        bytes: Bytes,
        engine: CopyChoice,
    ) -> CallResult<()>;
    /// Enqueues many copies, each `(dst, src, bytes)`, by one call of the runtime. They may run in
    /// any order. Unsupported where the runtime has no such call.
    fn copy_batch(&self, stream: StreamId, copies: &[(u64, u64, Bytes)]) -> CallResult<()> {
        let thing = format!("{} copies on stream {}", copies.len(), stream.0);
        Err(CallError::unsupported("copy_batch", thing, "this runtime has no call for a batch"))
    }
    /// A copier with `slots` slots, whose copies to or from a GPU a separate thread makes.
    fn copier(&self, gpu: u32, slots: usize) -> CallResult<Box<dyn BlockCopier>> {
        let thing = format!("gpu{gpu}, {slots} slots");
        Err(CallError::unsupported("copier", thing, "this runtime copies from one thread only"))
    }
    /// The engine of such a copy between this pair, for the record: `copy engine`.
    fn copy_engine_name(&self, dst: u64, src: u64, engine: CopyChoice) -> String;
    /// Compiles if need be and loads a kernel.
    fn kernel(&self, gpu: u32, variant: &KernelVariant) -> CallResult<KernelId>;
    /// Unloads a kernel.
    fn kernel_unload(&self, kernel: KernelId) -> CallResult<()>;
    /// Enqueues a kernel.
    fn launch(&self, stream: StreamId, kernel: KernelId, launch: &KernelLaunch) -> CallResult<()>;
    /// Enqueues a chase over the chain that `launch` names, of which it follows a part. Launches one
    /// after the other run on different compute units, spread over all of them: units differ by 3 %
    /// in their distance from a link, and a single one is no picture of the GPU. A driver may know the
    /// parts of [`pathline_schema::CHASE_STEPS`] loads only.
    fn follow(
        &self,
        stream: StreamId,
        kernel: KernelId,
        launch: &KernelLaunch,
        part: ChainPart,
    ) -> CallResult<()>;
    /// Runs a read kernel once over memory that holds the pattern `seed` from its start, and waits.
    /// Whether the sum of all that the kernel read is that of the pattern: bytes that are wrong, missing
    /// or read twice change it, another order does not.
    fn check_read(&self, kernel: KernelId, launch: &KernelLaunch, seed: u64) -> CallResult<bool>;
    /// Enqueues the migration of managed memory to `to`; [`MigrateHow::Fault`] by a kernel that
    /// reads it on the stream's GPU.
    fn migrate(
        &self,
        stream: StreamId,
        address: u64,
        bytes: Bytes,
        to: Place,
        how: MigrateHow,
    ) -> CallResult<()>;

    /// Writes the pattern `seed` (see [`crate::pattern`]) from the device that holds the memory,
    /// and waits. For a chase buffer, `chain` lays a cycle of dependent pointers instead.
    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()>;
    /// Reads the pattern back on the device that holds the memory. The offset of the first wrong
    /// byte, if any.
    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>>;
}
