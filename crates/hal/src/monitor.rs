//! Readings of GPUs while they work.

use pathline_schema::{GpuFacts, GpuState};

/// Reads the state of GPUs: clocks, power, error counters. It needs no context on a GPU and takes
/// nothing from what runs there.
pub trait Monitor {
    /// Facts that do not change during a run. `gpu` is the number that the machine's topology gives
    /// it; none if nothing reads that GPU.
    fn facts(&self, gpu: u32) -> Option<GpuFacts>;
    /// Clocks, power, temperature, reasons for low clocks and the PCIe link as they are now. Takes
    /// at most a few milliseconds, since it is read while operations run.
    fn state(&self, gpu: u32) -> Option<GpuState>;
    /// Error counters as they are now; the other fields stay none. They may take longer to read.
    fn counters(&self, gpu: u32) -> Option<GpuState>;
    /// Failures of the library that reads them so far and their consequences, a line each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
