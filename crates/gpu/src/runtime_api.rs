//! What differs between the runtimes.

use std::ffi::c_void;
use std::fmt::Debug;
use std::os::fd::RawFd;

use pathline_hal::CopyChoice;
use pathline_schema::{MemKind, Severity};

use super::function_table::{Api, CallStatus, CopyBatch, RuntimeHandle};

/// Numbers of device attributes.
#[derive(Debug)]
pub struct AttributeNumbers {
    /// Number of multiprocessors or compute units.
    pub multiprocessors: i32,
    /// Kernels may touch pageable memory of the host.
    pub pageable_access: i32,
    /// Host and device may touch managed memory at the same time.
    pub concurrent_managed: i32,
    /// Peak clock of its memory, in kHz.
    pub memory_clock: i32,
    /// Width of its memory bus, in bits.
    pub memory_bus: i32,
}

/// Where the ends of a copy are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyEnds {
    /// Both in memory of one GPU.
    SameGpu,
    /// In memory of two GPUs.
    TwoGpus,
    /// At least one in pinned or managed memory of the host.
    Host,
    /// At least one in memory that the runtime does not know.
    Pageable,
}

/// Why something is not done, and the way out.
pub type CallRefusal = (&'static str, &'static str);

/// Reasons and ways out in the words of one runtime's users, and what a flag decides.
#[derive(Debug)]
pub struct RuntimeHints {
    /// Whose GPUs they are.
    pub vendor: &'static str,
    /// Variables that hide GPUs from a process.
    pub visible: &'static str,
    /// Where to look when two GPUs do not reach each other.
    pub peers: &'static str,
    /// Why there is no fine-grained device memory.
    pub no_fine: &'static str,
    /// Since when there is a call for a batch of copies.
    pub no_batch: CallRefusal,
    /// Why the faults of kernels bring no pages.
    pub no_faults: CallRefusal,
    /// That there is no compiler, and how to get one.
    pub no_compiler: CallRefusal,
    /// Whether managed pages of the host lie where the policy of their range says; else they are
    /// moved there by name.
    pub managed_lies_where_bound: bool,
}

/// The call of a library under a runtime that exports memory: address, bytes, where to store the file and
/// where to store the offset at which memory begins in it. It gives a status.
pub type ExportCall = unsafe extern "C" fn(*const c_void, usize, *mut RawFd, *mut u64) -> i32;

/// What exports device memory where the runtime itself has no call for it.
#[derive(Debug, Clone, Copy)]
pub struct MemoryExport {
    /// The name of the call.
    pub name: &'static str,
    /// The call; none if no library of this process has one.
    pub call: Option<ExportCall>,
    /// Why there is none, and the way out.
    pub refusal: CallRefusal,
    /// What a failed call may lack.
    pub way_out: &'static str,
}

/// A runtime that is bound.
#[derive(Debug)]
pub struct BoundDriver {
    /// Its functions.
    pub api: Api,
    /// What it does differently from other runtimes.
    pub dialect: Box<dyn RuntimeApi>,
    /// Major version: of CUDA, which the driver takes code of, or of HIP; 0 if it does not say.
    pub major: i32,
    /// Whether it only stands in for the real one.
    pub stands_in: bool,
}

/// Exported by the libraries that stand in for a driver in tests: what runs on them is a model.
pub const STAND_IN: &str = "pathline_stub";

/// What one runtime does in its own way. Each call gives the name of the function with its status.
///
/// Devices are numbers of the runtime, and calls that follow [`RuntimeApi::enter`] go to that device.
pub trait RuntimeApi: Debug {
    /// The name of the runtime: [`super::RuntimeDescription::name`].
    fn name(&self) -> &'static str;
    /// The numbers of its device attributes.
    fn attributes(&self) -> &'static AttributeNumbers;
    /// Reasons and ways out for its users.
    fn about(&self) -> &'static RuntimeHints;
    /// The runtime's own words for a status.
    fn status_text(&self, code: i32) -> String;
    /// What a status means for the case that met it.
    fn severity(&self, code: i32) -> Severity;
    /// What a user can do about a status; empty if nothing is known.
    fn way_out(&self, code: i32) -> &'static str;
    /// What to compile for: `sm_90`, `gfx90a:sramecc+:xnack-`.
    fn target(&self, device: i32) -> Result<String, CallStatus>;
    /// Whether the faults of kernels for that target bring managed pages, where host and device may
    /// touch them at the same time.
    fn faults(&self, target: &str) -> bool;
    /// Makes a device the one that calls of this thread go to.
    fn enter(&self, device: i32) -> CallStatus;
    /// Takes back what `enter` first did.
    fn leave(&self, device: i32);
    /// Lets `from` address memory of `to`; leaves `from` entered.
    fn enable_peer(&self, from: i32, to: i32) -> CallStatus;
    /// Enqueues a copy; addresses say where the ends are.
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus;
    /// What other threads call for a device; it may outlive this.
    fn thread_context(&self, device: i32) -> Result<Box<dyn ThreadContext>, CallStatus>;
    /// Enqueues copies by one call; none if there is no such call.
    fn copy_batch(&self, batch: &mut CopyBatch, stream: RuntimeHandle) -> Option<CallStatus>;
    /// The name of what `copy` calls.
    fn copy_name(&self) -> &'static str;
    /// What carries a copy, in words for the record.
    fn engine(&self, ends: CopyEnds, asked: CopyChoice) -> Result<&'static str, CallRefusal>;
    /// Flags that pinned memory of a kind is allocated with; `bound` if its pages are to follow the
    /// NUMA policy of the calling thread. Why not, if there is no such memory.
    fn host_flags(&self, mem: MemKind, bound: bool) -> Result<u32, &'static str>;
    /// Takes fine-grained memory of the device that was entered; none if there is no such call.
    fn fine_alloc(&self, bytes: usize) -> Option<(CallStatus, u64)>;
    /// A zeroed word that streams can wait for, where that takes memory of its own kind.
    fn signal_word(&self) -> Option<u64>;
    /// Gives such a word back.
    fn signal_free(&self, address: u64);
    /// Enqueues a wait until the word at `address` is `value` or more; none if the hardware cannot.
    fn wait_word(
        &self,
        stream: RuntimeHandle,
        address: u64,
        value: u32,
        signal: bool,
    ) -> Option<CallStatus>;
    /// What exports device memory as a dma-buf where the runtime has no
    /// `handle_of_range`.
    fn export(&self) -> MemoryExport;
    /// Lets launches of a function ask for that many bytes of dynamic shared memory.
    fn allow_shared(&self, function: RuntimeHandle, bytes: u32) -> CallStatus;
    /// Has a function loaded now and not at its first launch.
    fn load_now(&self, function: RuntimeHandle) -> CallStatus;
}

/// The calls of a runtime that a thread other than the driver's makes. It holds only numbers and addresses
/// of functions.
pub trait ThreadContext: Debug + Send {
    /// Makes the device the one that calls of this thread go to.
    fn enter(&self) -> CallStatus;
    /// Enqueues a copy; addresses say where the ends are.
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus;
    /// The name of what that calls.
    fn copy_name(&self) -> &'static str;
    /// The runtime's own words for a status.
    fn status_text(&self, code: i32) -> String;
    /// What a status means for the case that met it.
    fn severity(&self, code: i32) -> Severity;
}
