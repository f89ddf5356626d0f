//! What a machine is. No vendor is named here.
//!
//! A [`Machine`] holds everything that has time or state. A real and a simulated machine are the
//! same struct with other boxes inside, and nothing outside them reads a clock.

mod driver;
mod error;
mod facade;
mod host;
pub mod kernel;
mod machine;
mod monitor;
pub mod pattern;
mod ranks;
mod registrar;
mod storage;

pub mod conformance;

pub use driver::{
    CopyEngine, DeviceInfo, Driver, EventId, GateId, KernelId, Launch, PeerAccess, StreamId,
};
pub use error::{CallError, FailedRanks, Result};
pub use facade::{Buffer, Event, Gate, Gpu, Kernel, Stream, Team};
pub use host::{Host, HostDomain, Reaped, TeamId, Work};
pub use machine::{Clock, Machine};
pub use monitor::Monitor;
pub use ranks::{
    Alone, DeviceClaim, ExchangeId, Meeting, Pace, Part, Port, Ranks, Span, Took, no_exchange,
};
pub use registrar::{RegionId, Registrar};
pub use storage::{Copier, GpuEnd, IoDone, IoId, IoJob, OpenIo, Storage, no_io};
