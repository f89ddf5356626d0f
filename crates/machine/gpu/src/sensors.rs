//! Sensors of one GPU, read during measurements.

use std::fmt::Debug;
use std::path::Path;

use pathline_hal::GpuUsers;
use pathline_schema::{GpuFacts, GpuState};

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
