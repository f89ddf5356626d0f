//! Physics: what a transfer may use, what it gets when others run beside it, how long it takes.
//!
//! Pure. The simulator runs this forward in virtual time; the report inverts it to say where the
//! bandwidth went.

mod calls;
mod carried;
mod cpu;
mod desc;
mod duration;
mod files;
mod hard_peak;
mod measured;
mod model;
mod network;
mod nvlink;
mod origin;
mod path;
pub mod routes;
mod software;
mod solve;
mod storage;

pub use desc::{DescError, MachineDesc, Switches};
pub use duration::{Doubt, Durations, FlowTime, Orders, Predictor, Span};
pub use files::IoParts;
pub use measured::{Known, Measured, PathAlone, PathKey, Queue, Shared};
pub use network::{Explanation, Network, NoPath, Operation, Prediction, Resource, Stage, Use};
pub use origin::{Constant, Numbering, Origin};
pub use software::{Ccl, Mpi, NetworkCost, Software};
pub use solve::{
    ClosedQueue, ConcurrentRun, FlowDemand, FlowEnd, FlowSet, Limiter, LiveFlow, LiveFlows,
    MaxMinSolver, RateDemand, Stretch,
};
pub use storage::{EngineCost, IoCosts, IoCpu, Request, Store, StoreKind};
