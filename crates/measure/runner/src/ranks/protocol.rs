//! Messages between the coordinator and a rank: one JSON value a line.

use pathline_hal::CallError;
use pathline_schema::{Case, CpuSet, IoReading, RankMember, Severity, VerifyResult};
use serde::{Deserialize, Serialize};

use super::component::{LostLibraries, RankComponent};
use crate::choice::{LibraryChoice, StorePlaces};
use crate::device_memory::MemoryClaim;

/// From the coordinator to a rank. Nothing in it names what is opened, loaded or executed: a rank takes that from
/// its own arguments and environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RankOrder {
    /// It belongs to this job, but cannot take part; the reason.
    Refuse(String),
    /// Open the machine and the libraries. First of all, once.
    Open(Box<RankEntry>),
    /// All ranks of the run.
    Know(Vec<RankMember>),
    /// Meet there, on one node; over the links, if there is no such place.
    Meet(Option<String>),
    /// All have come, in the middle of a step.
    Go,
    /// A rank will not come.
    Stop,
    /// Allocate and fill. Flows of the case that are not between processes have these CPUs.
    Bind(u64, Box<Case>, CpuSet),
    /// Connect.
    Join(u64, Vec<Vec<u8>>),
    /// Run that many repetitions.
    Run(u64, u64),
    /// The same, with an announcement before.
    Begin(u64, u64),
    /// Spoil what is to be received.
    Spoil(u64),
    /// Compare it.
    Check(u64),
    /// Say what carried the bytes.
    Engine(u64),
    /// End its connections: a step of it has failed in some rank.
    Disconnect(u64),
    /// Give it back.
    Release(u64),
    /// There is nothing more to do.
    End,
}

impl RankOrder {
    /// Name of the step at which ranks connect, and of the errors of connections that do not match.
    pub(super) const JOIN: &str = "join";

    /// Name of the step, for errors.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Refuse(_) => "refuse",
            Self::Open(_) => "open",
            Self::Know(_) | Self::Meet(_) | Self::Go | Self::Stop => "meet",
            Self::Bind(..) => "bind",
            Self::Join(..) => Self::JOIN,
            Self::Run(..) | Self::Begin(..) => "run",
            Self::Spoil(_) => "spoil",
            Self::Check(_) => "check",
            Self::Engine(_) => "engine",
            Self::Disconnect(_) => "disconnect",
            Self::Release(_) => "release",
            Self::End => "end",
        }
    }
}

/// How a rank begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RankEntry {
    /// Its number.
    pub(super) rank: u32,
    /// Number of ranks.
    pub(super) size: u32,
    /// Its number among its node's ranks, and their count; `None` if the rank knows better.
    pub(super) local: Option<(u32, u32)>,
    /// The libraries that the coordinator was started with. A rank that was started with others
    /// refuses.
    pub(super) expected: LibraryChoice,
    /// The places for files that it was started with, for the same.
    #[serde(default)]
    pub(super) stores: StorePlaces,
    /// Components that the rank leaves out.
    pub(super) left_out: LostLibraries,
}

/// From a rank to its coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RankAnswer {
    /// A child of the coordinator has begun.
    Begins,
    /// It opens that component next, which may kill it.
    Opening(RankComponent),
    /// The machine is open; and what its MPI reports about device memory.
    Opened(Box<RankMember>, Option<MemoryClaim>),
    /// Here, in the middle of a step, waiting for the others.
    Here,
    /// Done.
    Done,
    /// Its offer to the others.
    Bound(Vec<u8>),
    /// It begins, and answers again when it has finished.
    Begun,
    /// Times by flow, and the readings of I/O.
    Ran(Vec<Vec<f64>>, Vec<Option<IoReading>>),
    /// The result of the verification.
    Checked(VerifyResult),
    /// The engine that carried the bytes.
    Engine(String),
    /// Cases whose connections have ended.
    Disconnected(Vec<u64>),
    /// The step failed.
    Failed(RankFailure),
}

/// A failed call, as it passes between processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RankFailure {
    call: String,
    thing: String,
    code: i64,
    reason: String,
    way_out: String,
    severity: Severity,
}

impl From<CallError> for RankFailure {
    fn from(error: CallError) -> Self {
        let CallError { call, thing, code, reason, way_out, severity, .. } = error;
        Self { call, thing, code, reason, way_out, severity }
    }
}

impl RankFailure {
    /// The error, with the rank that it comes from.
    pub(super) fn into_error(self, rank: &str) -> CallError {
        let Self { call, thing, code, reason, way_out, severity } = self;
        let thing = format!("{thing} ({rank})");
        CallError { call, thing, code, reason, way_out, severity, ranks: None }
    }
}
