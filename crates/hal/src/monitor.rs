//! Readings of GPUs under load.

use pathline_schema::{GpuFacts, GpuState};

/// Reads the state of GPUs: clocks, power, error counters. Needs no context on a GPU and does not
/// disturb its work.
pub trait Monitor {
    /// Facts that do not change during a run. `gpu` is its number in the machine's topology. `None`
    /// if no library reads that GPU.
    fn facts(&self, gpu: u32) -> Option<GpuFacts>;
    /// Present clocks, power, temperature, reasons for low clocks, and PCIe link. Takes at most a
    /// few milliseconds, since it runs during measurements.
    fn state(&self, gpu: u32) -> Option<GpuState>;
    /// Present error counters; other fields are `None`. May take longer.
    fn counters(&self, gpu: u32) -> Option<GpuState>;
    /// Failures of the library so far and their consequences, one line each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
