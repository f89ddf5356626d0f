//! Measurement: suites make cases, a plan selects among them, lanes run them, the engine samples
//! until the figure is precise, a session writes the journal.
//!
//! Independent of vendors: everything goes through `pathline_hal`.

mod asked_cases;
mod bind;
mod block_places;
mod block_sample;
mod bounce;
mod calls;
mod case_figures;
mod chooser;
mod cpu_reach;
mod deadline;
mod device_failures;
#[cfg(test)]
#[path = "drawn_results/tests.rs"]
mod drawn_results;
mod engine;
mod environment;
mod estimate;
mod executor;
mod files;
mod gpu_requirement;
mod journal_file;
mod known_reps;
mod lane;
mod launched_ranks;
mod library_failures;
mod memory_type_check;
mod message_grid;
mod message_lanes;
mod meta;
mod multipath_lane;
mod needs;
mod no_match;
mod outlier_case;
mod outlier_search;
mod overhead;
mod pageable_lane;
mod plan;
mod pool;
mod quick_plan;
mod rank;
mod rank_files;
mod rank_mismatch;
mod result_warnings;
mod rounds;
mod scope;
mod session;
mod staged;
mod start;
mod suites;
mod sweep_cases;
mod task;
mod tune;
mod tuned;
mod unlike_peers;
mod warm_up;
mod watch;

pub use asked_cases::with_owning_ranks;
pub use case_figures::{CaseFigures, FigureMap, measure_cases};
pub use chooser::{CaseBatch, CaseChooser, RunSoFar};
pub use deadline::{deadline, files_time};
pub use engine::default_settings;
pub use estimate::{plan_time, probes as time_of_probes};
pub use executor::{Executor, LocalExecutor, LossCause, MachineInfo, TaskEnd, WorkerLoss};
pub use gpu_requirement::GpuRequirement;
pub use journal_file::{JournalFile, JournalFileError};
pub use message_grid::{MessageGrid, SizeStep};
pub use overhead::TimerScope;
pub use plan::{PlannedCase, RunPlan};
pub use rank::RankSide;
pub use rank_files::RankSample;
pub use rounds::{ProbeRounds, drawn_order};
pub use scope::{PlanScope, RandomDraw};
pub use session::{JournalSession, RunEvent, RunHeader, SessionError};
pub use suites::{CaseMaker, PROBE_BUDGET, SUITES, SuiteSpec, rails_of};
pub use task::{CaseTask, EventSink, InterruptCheck, TaskEvent, TaskStep};
pub use tune::{SearchStamp, searches, tune};
pub use tuned::{BestKernel, KNOWN, PathClass, TunedKernels};
