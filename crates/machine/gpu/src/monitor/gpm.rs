//! Samples of a GPU's performance monitors by NVML (GPM, Hopper and later), and PCIe throughput of older GPUs.

use std::rc::Rc;

use super::nvidia::NvidiaDevice;
use super::nvml::NvmlLibrary;
use super::nvml_structs::{GpmQuery, GpmSupport};

/// A sample, which NVML allocated.
#[derive(Debug)]
pub(super) struct GpmSample {
    nvml: Rc<NvmlLibrary>,
    at: usize,
}

impl Drop for GpmSample {
    fn drop(&mut self) {
        if let Some(free) = self.nvml.api.gpm_free {
            // SAFETY: NVML allocated it, and nothing else frees it. There is no caller for an error.
            unsafe { (free.at)(self.at) };
        }
    }
}

impl NvidiaDevice {
    /// A sample of now; `None` where the GPU, the driver or the user has no monitors.
    pub(super) fn gpm_sample(&self) -> Option<GpmSample> {
        let (nvml, handle) = (&self.nvml, self.handle);
        let support: GpmSupport = nvml.stored(nvml.api.gpm_support, |call, out| {
            // SAFETY: the handle is NVML's own; reads the version and fills one structure of this layout.
            unsafe { call(handle, out) }
        })?;
        let (take, _) =
            (nvml.api.gpm_sample?, nvml.api.gpm_free.filter(|_| support.supported != 0)?);
        // SAFETY: stores one address.
        let at = nvml.stored(nvml.api.gpm_alloc, |call, out| unsafe { call(out) })?;
        let sample = GpmSample { nvml: Rc::clone(nvml), at };
        // SAFETY: the handle and the sample are NVML's own.
        (unsafe { (take.at)(handle, at) } == 0).then_some(sample)
    }

    /// MiB/s out of and into the GPU over PCIe between two samples.
    pub(super) fn gpm_pcie(&self, first: &GpmSample, last: &GpmSample) -> Option<[f64; 2]> {
        let samples = [first.at, last.at];
        let answer = self.nvml.stored(self.nvml.api.gpm_metrics, |call, out: *mut GpmQuery| {
            // SAFETY: `out` is a whole query, and both samples are alive.
            unsafe {
                (*out).samples = samples;
                call(out)
            }
        })?;
        let value = |nth: usize| {
            let metric = answer.metrics.get(nth)?;
            (metric.code == 0 && metric.value.is_finite() && metric.value >= 0.0)
                .then_some(metric.value)
        };
        Some([value(0)?, value(1)?])
    }

    /// KB/s out of and into the GPU over PCIe in the last 20 ms. Takes 40 ms for each.
    pub(super) fn pcie_window(&self) -> Option<[u32; 2]> {
        let one = |direction: i32| self.number_of(self.nvml.api.pcie_throughput, direction);
        Some([one(0)?, one(1)?])
    }
}
