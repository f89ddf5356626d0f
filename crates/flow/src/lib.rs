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

pub use desc::{DescError, MachineDesc, RuntimeEnv};
pub use duration::{
    EngineOrders, FlowTime, SetDurations, SetPredictor, TimeRange, TimeUncertainty,
};
pub use files::IoParts;
pub use measured::{MeasuredFlows, PathAlone, PathKey, RateInterval, SerialEngine, SharedResource};
pub use network::{
    FlowCeiling, FlowOperation, FlowPrediction, FlowResource, Network, NoPath, PathStage,
    ResourceUse,
};
pub use origin::{ConstantOrigin, GpuNumbering, ModelConstant};
pub use software::{CclModel, MessageSoftware, MpiModel, NetworkCost};
pub use solve::{
    ClosedQueue, ConcurrentRun, FlowDemand, FlowEnd, FlowSet, Limiter, LiveFlow, LiveFlows,
    MaxMinSolver, RateDemand, Stretch,
};
pub use storage::{EngineCost, IoCosts, IoCpu, StoreKind, StoreModel, TargetRequest};
