//! The interface of a machine. No vendor is named here.
//!
//! A [`Machine`] contains everything that has time or state. A real and a simulated machine are the
//! same struct with different implementations inside; no other code reads a clock.

mod driver;
mod element_pattern;
mod error;
mod facade;
mod group_layout;
mod host;
pub mod kernel;
mod machine;
mod monitor;
pub mod pattern;
mod random_word;
mod ranks;
mod registrar;
mod storage;
mod traffic;

pub mod conformance;

pub use driver::{
    ChainPart, CopyChoice, CpuAccess, DeviceInfo, Driver, EventId, GateId, KernelId, KernelLaunch,
    PeerAccess, StreamId,
};
pub use element_pattern::{ElementPattern, ElementRole};
pub use error::{CallError, CallResult, FailedRanks};
pub use facade::{GpuDevice, GpuEvent, GpuKernel, GpuStream, MachineBuffer, StartGate, ThreadTeam};
pub use group_layout::{GroupLayout, PatternRange};
pub use host::{Host, HostDomain, TeamId, TeamResult, TeamWork};
pub use machine::{Clock, Machine};
pub use monitor::{GpuProcess, GpuUsers, Monitor};
pub use ranks::{
    DeviceClaim, ExchangeId, ExchangeTable, FlowPart, FlowTime, LocalMemory, NoBarrier,
    RankBarrier, RankGroup, RepeatMode, TransportPort, no_exchange,
};
pub use registrar::{MemoryRegistrar, RegionId};
pub use storage::{
    BlockCopier, FilePart, FileStorage, GpuEnd, IoDone, IoId, IoJob, MetaJob, OpenIo, WorkerRange,
    no_io,
};
pub use traffic::{JoinedMeters, TrafficMeter};
