//! Numbers: what a series of samples says, and how sure one may be of it.
//!
//! Pure functions over plain floats, in whatever unit the caller measures. Nothing here draws a
//! random number: the same samples always give the same answer.

mod binomial;
mod compare;
mod fit;
mod interval;
mod multiple;
mod order;
mod robust;
mod shape;
mod sign_evidence;
mod stop;
mod student;
mod summary;

pub use compare::{RunComparison, RunEstimate, RunNoise, between_runs, largest_deviation};
pub use fit::{LineFit, fit_line};
pub use interval::{MIN_VISITS, MedianInterval, median_interval, visit_medians};
pub use multiple::FalseDiscovery;
pub use order::{ascending, interpolated, nearest_rank};
pub use robust::hodges_lehmann;
pub use shape::{Mode, Modes, Unsteady, modes, unsteady};
pub use sign_evidence::{BestOfThree, SignEvidence};
pub use stop::{VISIT_SAMPLES, settled, visit_samples};
pub use student::t_quantile;
pub use summary::SeriesSummary;
