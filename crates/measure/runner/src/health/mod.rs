//! A health check: a process that touches no device asks others to measure, and answers in time.

mod examine;
mod process;
mod protocol;
mod server;
mod trained;

pub use examine::{HealthOutcome, HealthRequest, PathTimes, PhaseTimes, TwinReference, examine};
pub use protocol::{NodeView, ProbeFailure, ProbeFault};
pub use server::serve_health;
