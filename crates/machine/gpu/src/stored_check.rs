//! Comparing what write and triad kernels stored with what they should have.

use pathline_hal::{CallResult, KernelId, KernelLaunch, kernel};
use pathline_host::spread;
use pathline_schema::{KernelOp, KernelVariant};

use super::driver::{GpuDriver, no_such};

impl GpuDriver {
    /// The offset of the first element in the destination of a write or triad kernel that the kernel
    /// would not have stored.
    pub(crate) fn first_not_stored(
        &self,
        kernel: KernelId,
        launch: &KernelLaunch,
    ) -> CallResult<Option<u64>> {
        let known = self.loaded.borrow().kernels.get(&kernel.0).copied();
        let entry = known.and_then(|(_, variant, _)| kernel::stored_entry(&variant, launch.bytes));
        let ((gpu, variant, _), entry) = known
            .zip(entry)
            .ok_or_else(|| no_such("check", &format!("write or triad kernel {}", kernel.0)))?;
        let effect = variant.effect(launch.bytes);
        self.reaches_kernel(gpu, launch.dst, effect.writes)?;
        if variant.op == KernelOp::Triad {
            self.reaches_kernel(gpu, launch.src, effect.reads)?;
            return self.compare_on(gpu, entry, launch.src, launch);
        }
        let whole = kernel::whole_words(&variant, launch.bytes);
        match self.cpus_that_compare(launch.dst) {
            Some((cpus, page)) => {
                let (word, rest) = (kernel::WRITTEN_WORD, kernel::WRITTEN_BYTE);
                let (at, bytes) = (launch.dst, launch.bytes.0);
                // SAFETY: the range lies in a live buffer that the host may read.
                Ok(unsafe { spread::check_words(cpus, at, (whole, bytes), page, (word, rest)) })
            }
            None => {
                let holder = self.gpu_that_holds(launch.dst).unwrap_or(gpu);
                self.compare_on(holder, entry, whole, launch)
            }
        }
    }

    /// Loads the comparison for a kernel whose output is compared, so that a step of the case that may
    /// take long compiles it. On failure the comparison reports the reason.
    pub(crate) fn ready_to_compare(&self, gpu: u32, variant: &KernelVariant) {
        let tile = variant.tile();
        if let Some(entry) = kernel::stored_entry(variant, tile) {
            let _ = self.function(gpu, kernel::STORED, entry);
        }
    }

    fn compare_on(
        &self,
        gpu: u32,
        entry: &'static str,
        first_parameter: u64,
        launch: &KernelLaunch,
    ) -> CallResult<Option<u64>> {
        let parameters = [first_parameter, launch.dst, launch.bytes.0];
        self.lowest_offset(gpu, (kernel::STORED, entry), parameters)
    }
}
