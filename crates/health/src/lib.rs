//! Whether a node is healthy, from samples of its paths. Reaches no device and reads no clock.
//!
//! A [`HealthPlan`] says which paths to measure and which of them should be equal. A [`HealthMonitor`]
//! takes the times, round by round, and says what to measure next. Its [`HealthReport`] is the verdict.

mod coverage;
mod culprit;
mod digest;
mod edits;
mod facts;
mod labels;
mod monitor;
mod next_step;
mod pace;
mod plan;
mod report;
mod steady;
mod symmetry;
mod twin;
mod unlike_path;
mod verdict;

pub use digest::{CaseDigest, DigestError, HistoryComparison, MIN_HISTORY, RunDigest, SlowerCase};
pub use facts::{NodeFacts, TrainedLink};
pub use labels::TailKind;
pub use monitor::{HealthMonitor, HealthSettings};
pub use next_step::NextStep;
pub use pace::RoundPace;
pub use plan::{HealthPlan, HealthProbe, SymmetryClass};
pub use report::{ClassShare, Culprit, HealthReport, HealthState, SuspectPath, TestPower};
pub use twin::{
    REFERENCE_ERROR, ReferenceComparison, compare_with_reference, measured_in_runs,
    predicted_by_twin,
};
pub use unlike_path::{UnlikePath, compared_cases, unlike_paths};
