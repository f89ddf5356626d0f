//! Readings of GPUs under load.

use pathline_schema::{Bytes, GpuFacts, GpuState};

/// A process that computes on a GPU, as the driver lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its number, in some containers one of another namespace.
    pub number: u32,
    /// Memory of the GPU that it uses; none if the driver does not report it.
    pub memory: Option<Bytes>,
}

/// The processes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuUsers {
    /// Number of processes that are not this run's; none where their numbers do not tell.
    pub others: Option<u32>,
    /// All of them.
    pub listed: Vec<GpuProcess>,
}

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
    /// The processes on a GPU. `None` if the driver does not list them.
    fn users(&self, _gpu: u32) -> Option<GpuUsers> {
        None
    }
    /// Failures of the library so far and their consequences, one line each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
