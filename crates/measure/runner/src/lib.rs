//! The processes of a run: a supervisor and its worker, a coordinator and its ranks, children that try
//! libraries; and the machine that all of them work on.
//!
//! Every process is this program once more, with an internal command that the command line maps to one
//! of the `serve_*` functions. Nothing here prints or exits: what has to, goes through [`ProcessHooks`].

mod choice;
mod device_memory;
mod env;
mod health;
mod hooks;
mod leftovers;
mod link;
pub mod live;
mod machine;
mod member;
mod net;
mod origins;
mod probe;
mod process;
mod protocol;
mod ranks;
mod software;
mod survey;
mod text_file;
mod traffic;
mod trials;
mod worker;

pub use choice::{DeviceMemory, LibraryChoice, StorePlaces};
pub use device_memory::{find_on_path, serve_launch};
pub use env::{hostname, switches};
pub use health::{
    HealthOutcome, HealthRequest, NodeView, PathTimes, PhaseTimes, ProbeFailure, ProbeFault,
    TwinReference, examine, serve_health,
};
pub use hooks::ProcessHooks;
pub use leftovers::{CleanupNote, StoreCleanup};
pub use machine::{HostMachine, MachineChoice, MachineModel, OpenMachine, half_of_free};
pub use net::NetRanks;
pub use origins::{ModelVariants, OriginExecutor, assumed_cases};
pub use probe::{
    AdapterAnswer, DevicesAnswer, DirectAnswer, HostAnswer, LibraryProbe, ManagementAnswer,
    ProbeError, ProbeLimits, RuntimeAnswer, ask, ask_and_show, mpi_controls_with, serve_probe,
};
pub use protocol::{OpenSelector, ProcessEnd, RunRequest, WorkerFault};
pub use ranks::{
    JobSites, MeetingPlace, RankJob, RankKeeper, job_sites, joined, keep, keep_launched, serve_rank,
};
pub use software::{add_versions, ask_versions};
pub use survey::{HostSurvey, MachineSurvey};
pub use text_file::read_text;
pub use traffic::{HostTraffic, ModelTraffic, model_steps};
pub use trials::{
    CaseTrials, CommandTrials, MetricReader, ModelExecutor, TrialFile, TrialFileError, TrialSession,
};
pub use worker::{NoWorker, WorkerExecutor, serve_worker};
