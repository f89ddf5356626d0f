//! Sensors of one GPU, read during measurements.

use std::fmt::Debug;
use std::path::Path;

use pathline_hal::{GpuUsers, TrafficMeter};
use pathline_host::clock::ClockOrigin;
use pathline_schema::{
    Gpu, GpuFacts, GpuState, LinkEnd, LinkKind, TrafficCounter, TrafficPath, TrafficReading,
    UncountedPath, Unit,
};

/// The sensors of one GPU. Reading its state takes a few milliseconds at most, since copies run
/// meanwhile. A field that is not reported is `None`.
pub(crate) trait GpuSensors: Debug {
    /// Constant properties.
    fn facts(&self) -> GpuFacts;
    /// Clocks, power, temperature.
    fn state(&self) -> GpuState;
    /// Counters of errors and of bytes.
    fn counters(&self) -> GpuState;
    /// Processes that compute on it.
    fn users(&self) -> Option<GpuUsers> {
        None
    }
}

/// Finds the sensors of the GPU at a PCI address below a folder of devices, if its driver has them.
pub(crate) type FindSensors = fn(&Path, &str) -> Option<Box<dyn GpuSensors>>;

/// Finds the counters of a GPU below a folder of devices. One without counters has a meter that says why.
pub(crate) type FindTraffic = fn(&Path, &Gpu, ClockOrigin) -> Box<dyn TrafficMeter>;

/// Why the memory of a GPU has no counter, of any vendor.
pub(crate) const NO_MEMORY_COUNTER: &str = "no driver counts the bytes of a GPU's memory";

/// A GPU that nothing counts.
#[derive(Debug)]
pub(crate) struct UncountedGpu([UncountedPath; 2]);

impl UncountedGpu {
    /// With the reason.
    pub(crate) fn new(gpu: &Gpu, why: String) -> Self {
        let (from, to) = (LinkEnd::Gpu(gpu.index), gpu.numa.map(LinkEnd::Numa));
        let host = TrafficPath::Links { from, to, kind: LinkKind::Pcie };
        let memory = TrafficPath::Memory(Unit::Gpu(gpu.index));
        Self([host, memory].map(|path| UncountedPath { path, why: why.clone() }))
    }
}

impl TrafficMeter for UncountedGpu {
    fn counters(&self) -> &[TrafficCounter] {
        &[]
    }

    fn read(&self) -> Vec<TrafficReading> {
        Vec::new()
    }

    fn uncounted(&self) -> &[UncountedPath] {
        &self.0
    }
}
