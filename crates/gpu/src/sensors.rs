//! What reads one GPU while it works.

use std::fmt::Debug;
use std::path::Path;

use pathline_schema::{GpuFacts, GpuState};

/// What reports on one GPU. Reading its state takes a few milliseconds at most, since it is read while
/// copies run. A field that is not reported is none.
pub(crate) trait GpuSensors: Debug {
    /// What does not change.
    fn facts(&self) -> GpuFacts;
    /// Clocks, power, temperature.
    fn state(&self) -> GpuState;
    /// Counters of errors and of bytes.
    fn counters(&self) -> GpuState;
}

/// Finds what reports on the GPU at a PCI address below a folder of devices, if its driver serves it.
pub(crate) type FindSensors = fn(&Path, &str) -> Option<Box<dyn GpuSensors>>;
