//! Physics: the resources of a transfer, its rate under contention, and its time.
//!
//! Pure. The simulator runs this forward in virtual time; the report inverts it to find where the
//! bandwidth went.

mod cluster;
mod cluster_file;
mod core_rates;
mod desc;
mod duration;
mod elements;
mod fault;
mod flow_path;
mod graph;
mod graph_units;
mod hard_peak;
mod measured;
mod model;
mod multipath;
mod network;
mod nvlink;
mod operation;
mod origin;
mod path;
mod presets;
pub mod routes;
mod runtime_env;
mod sensitivity;
mod simplex;
mod slice;
mod software;
mod solve;
mod stack;
mod storage;
mod switches;
mod traffic;
mod trust;

pub use cluster::ClusterDesc;
pub use cluster_file::join_node;
pub use core_rates::{CoreCache, CoreRates};
pub use desc::{DescError, MachineDesc};
pub use duration::{
    EngineOrders, FlowDuration, SetDurations, SetPredictor, TimeRange, TimeUncertainty,
};
pub use elements::{ElementKind, NodeElement};
pub use fault::{FaultEffect, FaultElement, MachineFault};
pub use measured::{MeasuredFlows, PathAlone, PathKey, RateInterval, SerialEngine, SharedResource};
pub use multipath::{
    HostLimits, MultipathPlan, PlanCache, PlanKey, PlanRequest, PlanTarget, ProbedNode,
    multipath_bound, plan_from_probe, plan_paths,
};
pub use network::{FlowCeiling, FlowPrediction, Network};
pub use nvlink::NVLINK_CODING;
pub use operation::{FlowOperation, FlowResource, KernelTurn, NoPath, PathStage, ResourceUse};
pub use origin::{GpuNumbering, ModelConstant};
pub use path::IoParts;
pub use runtime_env::RuntimeEnv;
pub use sensitivity::{ConstantEffect, DescVariants, FigureValues, find_effects};
pub use software::{
    CclModel, Ll128Cost, MessageSoftware, MpiModel, NetworkCost, NvlsCost, ProtocolTable,
    SharedMemoryCost,
};
pub use solve::{
    ClosedQueue, ConcurrentRun, FlowDemand, FlowEnd, FlowSet, Limiter, LiveFlow, LiveFlows,
    MaxMinSolver, RateDemand, Stretch,
};
pub use stack::{StackProfile, StackTimer};
pub use storage::{EngineCost, IoCosts, IoCpu, MetaCosts, StoreKind, StoreModel, TargetRequest};
pub use switches::{SwitchBundle, SwitchGraph, SwitchRoute};
pub use traffic::CountedResources;
pub use trust::{DecidingConstant, FigureForm, PredictionTrust, find_trust};
