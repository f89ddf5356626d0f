//! What differs between the runtimes.

use std::fmt::Debug;

use pathline_schema::{Mem, Severity};

use super::table::{Handle, Status};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "HIP is bound next")]
pub(crate) enum Family {
    /// NVIDIA's driver API.
    Cuda,
    /// AMD's runtime.
    Hip,
}

impl Family {
    /// As `hal::Driver::name` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }
}

/// Numbers of device attributes.
#[derive(Debug)]
pub(crate) struct Attributes {
    pub(crate) multiprocessors: i32,
    /// Kernels may touch pageable memory of the host.
    pub(crate) pageable_access: i32,
    /// Host and device may touch managed memory at the same time.
    pub(crate) concurrent_managed: i32,
    /// Peak clock of its memory, in kHz.
    pub(crate) memory_clock: i32,
    /// Width of its memory bus, in bits.
    pub(crate) memory_bus: i32,
}

/// Reasons and ways out in the words of one runtime's users.
#[derive(Debug)]
pub(crate) struct About {
    /// Where to look when two GPUs do not reach each other.
    pub(crate) peers: &'static str,
    /// Why a copy cannot be made to run as a kernel.
    pub(crate) blit: &'static str,
    /// Why there is no fine-grained device memory.
    pub(crate) vram_fine: &'static str,
    /// That there is no compiler, and how to get one.
    pub(crate) no_compiler: (&'static str, &'static str),
}

/// What one runtime does in its own way. Each call gives the name of the function with its status.
///
/// Devices are numbers of the runtime, and calls that follow [`Dialect::enter`] go to that device.
pub(crate) trait Dialect: Debug {
    fn family(&self) -> Family;
    fn attributes(&self) -> &'static Attributes;
    fn about(&self) -> &'static About;
    /// The runtime's own words for a status.
    fn words(&self, code: i32) -> String;
    /// What a status means for the case that met it.
    fn severity(&self, code: i32) -> Severity;
    /// What a user can do about a status; empty if nothing is known.
    fn way_out(&self, code: i32) -> &'static str;
    /// What to compile for: `sm_90`, `gfx90a:sramecc+:xnack-`.
    fn target(&self, device: i32) -> Result<String, Status>;
    /// Whether the faults of kernels for that target bring managed pages, where host and device may
    /// touch them at the same time.
    fn faults(&self, target: &str) -> bool;
    /// Makes a device the one that calls of this thread go to.
    fn enter(&self, device: i32) -> Status;
    /// Takes back what `enter` first did.
    fn leave(&self, device: i32);
    /// Lets `from` address memory of `to`; leaves `from` entered.
    fn enable_peer(&self, from: i32, to: i32) -> Status;
    /// Enqueues a copy; addresses say where the ends are.
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: Handle) -> Status;
    /// The name of what `copy` calls.
    fn copy_name(&self) -> &'static str;
    /// Flags that pinned memory of a kind is allocated with, `near` the thread's own NUMA policy
    /// where that can be asked for; why not, if there is no such memory.
    fn host_flags(&self, mem: Mem) -> Result<u32, &'static str>;
    /// Enqueues a wait until the word at `address` is `value` or more; none if the hardware cannot.
    fn wait_word(&self, stream: Handle, address: u64, value: u32) -> Option<Status>;
    /// Lets launches of a function ask for that many bytes of dynamic shared memory.
    fn allow_shared(&self, function: Handle, bytes: u32) -> Status;
    /// Has a function loaded now and not at its first launch.
    fn load_now(&self, function: Handle) -> Status;
}
