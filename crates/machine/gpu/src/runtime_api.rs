//! The differences between the runtimes.

use std::ffi::c_void;
use std::fmt::Debug;
use std::os::fd::RawFd;
use std::sync::Arc;

use pathline_hal::CopyChoice;
use pathline_schema::{Bytes, MemKind, Severity};

use super::caller_calls::CallerCalls;
use super::function_table::{Api, CallStatus, CopyBatch, RuntimeHandle};

/// Numbers of device attributes.
#[derive(Debug)]
pub struct AttributeNumbers {
    /// Number of multiprocessors or compute units.
    pub multiprocessors: i32,
    /// Whether kernels can access pageable host memory.
    pub pageable_access: i32,
    /// Whether host and device can access managed memory at the same time.
    pub concurrent_managed: i32,
    /// Peak clock of its memory, in kHz.
    pub memory_clock: i32,
    /// Width of its memory bus, in bits.
    pub memory_bus: i32,
    /// Bytes of the second-level cache.
    pub l2_size: i32,
    /// Whether CPU threads can access managed memory of a GPU without moving it.
    pub direct_managed: i32,
    /// Whether all memory of the GPU is mapped for the CPU (large BAR); none where the runtime maps none.
    pub large_bar: Option<i32>,
    /// Address of the word that a CPU stores to, to make its stores visible to the GPU (HDP flush).
    pub flush_word: Option<i32>,
}

/// The memory at the ends of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyEnds {
    /// Both in memory of one GPU.
    SameGpu,
    /// In memory of two GPUs.
    TwoGpus,
    /// At least one in pinned or managed host memory.
    Host,
    /// At least one in memory that the runtime does not know.
    Pageable,
}

/// Why an operation is not possible, and what to do.
pub type CallRefusal = (&'static str, &'static str);

/// Reasons and remedies in the terms of one runtime's users, and a behaviour flag.
#[derive(Debug)]
pub struct RuntimeHints {
    /// The vendor of its GPUs.
    pub vendor: &'static str,
    /// Variables that hide GPUs from a process.
    pub visible: &'static str,
    /// Where to look if two GPUs cannot access each other.
    pub peers: &'static str,
    /// Why there is no fine-grained device memory.
    pub no_fine: &'static str,
    /// Which version has a call for a batch of copies.
    pub no_batch: CallRefusal,
    /// Why CPU threads do not reach memory of a GPU.
    pub no_mapping: CallRefusal,
    /// Why kernel faults do not migrate pages.
    pub no_faults: CallRefusal,
    /// The error without a compiler, and how to get one.
    pub no_compiler: CallRefusal,
    /// Whether managed host pages follow the policy of their range; otherwise they are moved to
    /// their domain explicitly.
    pub managed_lies_where_bound: bool,
}

/// The export call of a library below a runtime: address, bytes, where to store the file and where
/// to store the offset of the memory in it. It returns a status.
pub type ExportCall = unsafe extern "C" fn(*const c_void, usize, *mut RawFd, *mut u64) -> i32;

/// The export of device memory where the runtime itself has no call for it.
#[derive(Debug, Clone, Copy)]
pub struct MemoryExport {
    /// The name of the call.
    pub name: &'static str,
    /// The call; `None` if no library of this process has one.
    pub call: Option<ExportCall>,
    /// Why it is missing, and what to do.
    pub refusal: CallRefusal,
    /// What to do after a failed call.
    pub way_out: &'static str,
}

/// A bound runtime.
#[derive(Debug)]
pub struct BoundDriver {
    /// Its functions.
    pub api: Api,
    /// Its differences from other runtimes.
    pub dialect: Box<dyn RuntimeApi>,
    /// Major version: of CUDA whose code the driver accepts, or of HIP; 0 if it is not reported.
    pub major: i32,
    /// Whether it is a stand-in for tests.
    pub stands_in: bool,
}

/// Symbol of the stand-in libraries for tests: results on them are a model's.
pub const STAND_IN: &str = "pathline_stub";

/// The calls that differ between runtimes. Each call returns the function's name with its status.
///
/// Devices are the runtime's numbers, and calls that follow [`RuntimeApi::enter`] go to that
/// device.
pub trait RuntimeApi: Debug {
    /// The name of the runtime: [`super::RuntimeDescription::name`].
    fn name(&self) -> &'static str;
    /// The numbers of its device attributes.
    fn attributes(&self) -> &'static AttributeNumbers;
    /// Reasons and remedies for its users.
    fn about(&self) -> &'static RuntimeHints;
    /// The runtime's own text for a status.
    fn status_text(&self, code: i32) -> String;
    /// The severity of a status for the case in which it occurred.
    fn severity(&self, code: i32) -> Severity;
    /// What a user can do about a status; empty if nothing is known.
    fn way_out(&self, code: i32) -> &'static str;
    /// The compile target: `sm_90`, `gfx90a:sramecc+:xnack-`.
    fn target(&self, device: i32) -> Result<String, CallStatus>;
    /// Whether kernel faults for that target migrate managed pages, where host and device can
    /// access them at the same time.
    fn faults(&self, target: &str) -> bool;
    /// Makes a device current for the calls of this thread.
    fn enter(&self, device: i32) -> CallStatus;
    /// Undoes the first `enter`.
    fn leave(&self, device: i32);
    /// Lets `from` address memory of `to`; leaves `from` current.
    fn enable_peer(&self, from: i32, to: i32) -> CallStatus;
    /// Enqueues a copy; the addresses decide its direction.
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus;
    /// The calls of other threads for a device; may outlive this.
    fn thread_context(&self, device: i32) -> Result<Box<dyn ThreadContext>, CallStatus>;
    /// The calls for copies on the thread of a caller; may outlive this.
    ///
    /// # Errors
    /// The functions that the library lacks.
    fn caller_calls(&self) -> Result<Arc<dyn CallerCalls>, String>;
    /// Enqueues copies by one call; `None` if there is no such call.
    fn copy_batch(&self, batch: &mut CopyBatch, stream: RuntimeHandle) -> Option<CallStatus>;
    /// The function that `copy` calls.
    fn copy_name(&self) -> &'static str;
    /// The engine of a copy of that size, as text for the record.
    fn engine(
        &self,
        ends: CopyEnds,
        bytes: Bytes,
        asked: CopyChoice,
    ) -> Result<&'static str, CallRefusal>;
    /// What copies, by kind of copy, where version and environment decide it.
    fn copy_rule(&self) -> Option<String> {
        None
    }
    /// Flags for pinned memory of a kind; `bound` if its pages must follow the NUMA policy of the
    /// calling thread. The error is why there is no such memory.
    fn host_flags(&self, mem: MemKind, bound: bool) -> Result<u32, &'static str>;
    /// Allocates fine-grained memory on the current device; `None` if there is no such call.
    fn fine_alloc(&self, bytes: usize) -> Option<(CallStatus, u64)>;
    /// A zeroed memory word that streams can wait for, where that needs a special kind of memory.
    fn signal_word(&self) -> Option<u64>;
    /// Frees such a word.
    fn signal_free(&self, address: u64);
    /// Enqueues a wait until the word at `address` is at least `value`; `None` if the hardware
    /// cannot.
    fn wait_word(
        &self,
        stream: RuntimeHandle,
        address: u64,
        value: u32,
        signal: bool,
    ) -> Option<CallStatus>;
    /// The dma-buf export of device memory where the runtime has no `handle_of_range`.
    fn export(&self) -> MemoryExport;
    /// Allows launches of a function to request that many bytes of dynamic shared memory.
    fn allow_shared(&self, function: RuntimeHandle, bytes: u32) -> CallStatus;
    /// Loads a function now rather than at its first launch.
    fn load_now(&self, function: RuntimeHandle) -> CallStatus;
}

/// The runtime calls of a thread other than the driver's. Holds only numbers and function
/// addresses.
pub trait ThreadContext: Debug + Send {
    /// Makes the device current for the calls of this thread.
    fn enter(&self) -> CallStatus;
    /// Enqueues a copy; the addresses decide its direction.
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus;
    /// The function that `copy` calls.
    fn copy_name(&self) -> &'static str;
    /// The runtime's own text for a status.
    fn status_text(&self, code: i32) -> String;
    /// The severity of a status for the case in which it occurred.
    fn severity(&self, code: i32) -> Severity;
}
