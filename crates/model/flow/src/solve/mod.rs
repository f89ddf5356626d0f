//! Flows share resources and end: the one place where this is computed.
//!
//! - [`MaxMinSolver`]: the rates of flows that run at once;
//! - [`ConcurrentRun`]: a set of flows that is known beforehand, from its start to its last end, with
//!   dependencies, queues, repetitions, starts and tails;
//! - [`LiveFlows`]: flows that come and go by the caller's clock;
//! - [`ClosedQueue`]: blocks that go round between files and a copy engine.

mod closed_queue;
mod concurrent;
mod limiter;
mod live;
mod max_min;
mod shared;

pub use closed_queue::ClosedQueue;
pub use concurrent::{ConcurrentRun, FlowDemand, FlowSet, Stretch};
pub use limiter::Limiter;
pub(crate) use limiter::limiter;
pub use live::{FlowEnd, LiveFlow, LiveFlows};
pub(crate) use max_min::MIN_SHARE;
pub use max_min::{MaxMinSolver, RateDemand};
