//! Whether a node is healthy, from samples of its paths.
//!
//! A [`HealthPlan`](plan::HealthPlan) says which paths to measure and which of them are peers. A
//! [`HealthMonitor`](monitor::HealthMonitor) takes the times, round by round, and says what to measure next.
//! Its [`HealthReport`](report::HealthReport) is the verdict.

pub(crate) mod coverage;
pub(crate) mod digest;
pub(crate) mod facts;
pub(crate) mod losses;
pub(crate) mod monitor;
pub(crate) mod next_step;
pub(crate) mod pace;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod steady;
pub(crate) mod twin;
pub(crate) mod verdict;
