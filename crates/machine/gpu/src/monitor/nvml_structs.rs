//! Structures that functions of NVML fill: `nvml.h`, API version 13.

/// `nvmlUtilization_t`: percent of the last sample period, a sixth of a second to one second.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Utilization {
    /// Percent of time in which a kernel ran.
    pub(super) gpu: u32,
    memory: u32,
}

/// `NVML_GPM_METRIC_PCIE_TX_PER_SEC` and `RX`: MiB/s out of and into the GPU.
const PCIE: [u32; 2] = [20, 21];
/// Room for metrics: `NVML_GPM_METRIC_MAX` is 98 to 333 by driver, and only those asked for are written.
const ROOM: usize = 400;

/// `nvmlGpmSupport_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct GpmSupport {
    version: u32,
    pub(super) supported: u32,
}

impl Default for GpmSupport {
    fn default() -> Self {
        Self { version: 1, supported: 0 }
    }
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GpmMetric {
    pub(super) id: u32,
    pub(super) code: i32,
    pub(super) value: f64,
    /// Names and unit, which are not read.
    texts: [usize; 3],
}

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct GpmQuery {
    version: u32,
    pub(super) count: u32,
    pub(super) samples: [usize; 2],
    pub(super) metrics: [GpmMetric; ROOM],
}

impl Default for GpmQuery {
    /// Asks for PCIe.
    fn default() -> Self {
        let mut metrics = [GpmMetric::default(); ROOM];
        for (metric, id) in metrics.iter_mut().zip(PCIE) {
            metric.id = id;
        }
        Self { version: 1, count: PCIE.len() as u32, samples: [0; 2], metrics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_layout_of_the_header() {
        assert_eq!((size_of::<GpmSupport>(), size_of::<GpmMetric>()), (8, 40));
        assert_eq!(std::mem::offset_of!(GpmQuery, metrics), 24);
    }
}
