//! What a driver has loaded on its GPUs.

use std::collections::BTreeMap;

use pathline_schema::KernelVariant;

use super::function_table::RuntimeHandle;

/// Kernels and their modules, by GPU.
#[derive(Debug, Default)]
pub(crate) struct LoadedKernels {
    /// Kernels in use: GPU, variant, function.
    pub(crate) kernels: BTreeMap<u64, (u32, KernelVariant, RuntimeHandle)>,
    /// Module and function by GPU, source and name. Modules stay for the life of the driver.
    pub(crate) functions: BTreeMap<(u32, String, &'static str), (RuntimeHandle, RuntimeHandle)>,
    /// A stream and eight bytes per GPU for the driver's own work.
    pub(crate) own: BTreeMap<u32, (RuntimeHandle, u64)>,
    /// Number of chain parts followed, which chooses the compute unit of the next one.
    pub(crate) followed: u64,
}
