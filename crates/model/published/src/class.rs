//! Classes of rows, and the errors that each may have.

use crate::score::ErrorTarget;

/// The class of a row's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowClass {
    /// Between GPUs, 16 MiB and more.
    GpuBandwidth,
    /// Between a GPU and the host, 16 MiB and more.
    HostBandwidth,
    /// Within one GPU.
    Local,
    /// Below 16 MiB, or one of a series of sizes.
    Sweep,
    /// Copies of 16 B between GPUs, which a description carries as data.
    LatencyMatrix,
    /// Other times.
    Latency,
    /// Rates over other rates.
    Ratio,
    /// MPI point to point.
    Message,
    /// Collectives of MPI and RCCL.
    Collective,
    /// Wiring and datasheets.
    Fact,
}

impl RowClass {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GpuBandwidth => "GPU-GPU bandwidth",
            Self::HostBandwidth => "host bandwidth",
            Self::Local => "local bandwidth",
            Self::Sweep => "sweep",
            Self::LatencyMatrix => "latency matrix",
            Self::Latency => "latency",
            Self::Ratio => "ratio",
            Self::Message => "MPI point to point",
            Self::Collective => "collective",
            Self::Fact => "topology",
        }
    }
}

/// Name of the target of bandwidths of large transfers.
pub const BANDWIDTH: &str = "bandwidth";
/// Name of the target of sweeps.
pub const SWEEPS: &str = "sweeps";
/// Name of the target of messages.
pub const MESSAGES: &str = "messages";
/// Name of the target of facts.
pub const FACTS: &str = "topology";

/// The targets without `--within`.
pub const TARGETS: [ErrorTarget; 4] = [
    ErrorTarget { name: BANDWIDTH, median: 0.02, p95: Some(0.06) },
    ErrorTarget { name: SWEEPS, median: 0.05, p95: None },
    ErrorTarget { name: MESSAGES, median: 0.15, p95: None },
    ErrorTarget { name: FACTS, median: 0.0, p95: Some(0.01) },
];
