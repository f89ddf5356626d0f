//! What a driver has loaded on its GPUs.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, KernelVariant};

use super::function_table::RuntimeHandle;

/// A list of ranges in page-locked memory, and the kernel that copies them.
#[derive(Debug)]
pub(crate) struct BlockList {
    pub(crate) gpu: u32,
    pub(crate) function: RuntimeHandle,
    pub(crate) thread_blocks: u32,
    pub(crate) address: u64,
    pub(crate) count: u64,
    /// What the kernel reads and what it writes: from the first to the last range of each buffer, start and bytes.
    pub(crate) spans: [Vec<(u64, Bytes)>; 2],
}

/// Kernels and their modules, by GPU.
#[derive(Debug, Default)]
pub(crate) struct LoadedKernels {
    /// Kernels in use: GPU, variant, function.
    pub(crate) kernels: BTreeMap<u64, (u32, KernelVariant, RuntimeHandle)>,
    /// Lists of ranges that kernels copy.
    pub(crate) lists: BTreeMap<u64, BlockList>,
    /// Module and function by GPU, source and name. Modules stay for the life of the driver.
    pub(crate) functions: BTreeMap<(u32, String, &'static str), (RuntimeHandle, RuntimeHandle)>,
    /// A stream and eight bytes per GPU for the driver's own work.
    pub(crate) own: BTreeMap<u32, (RuntimeHandle, u64)>,
    /// Number of chain parts followed, which chooses the compute unit of the next one.
    pub(crate) followed: u64,
}
