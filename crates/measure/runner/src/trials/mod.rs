//! Trials of `pathline advise`: cases of pathline, or the command of a user.

mod case_trials;
mod command_process;
mod command_trials;
mod model_executor;
mod trial_file;

pub use case_trials::CaseTrials;
pub use command_trials::{CommandTrials, MetricReader};
pub use model_executor::ModelExecutor;
pub use trial_file::{TrialFile, TrialFileError, TrialSession};
