//! A twin of a node, fitted from the records of its runs: the rate of each path alone, and the
//! resources that paths share, found from their mutual slowdown.
//!
//! Pure: records in, a machine file and a report out.

mod candidates;
mod data;
mod design;
mod fit;
mod judge;
mod model;
mod peers;
mod preset;
mod queues;
mod repeats;
mod report;
mod twin;
mod write;

pub use candidates::GroupOrigin;
pub use data::{CalibrateError, CalibrationData, CalibrationSet, MeasuredPath, NamedRun, PathEnds};
pub use design::{ChosenCase, SetDesign, choose_cases, first_cases};
pub use fit::{AtLeast, EarlierFit, FitStep, FittedGroup, FittedNode};
pub use judge::{ErrorStats, JudgedSet, SetClass, by_kind, judge};
pub use model::{FittedModel, FittedResource, ModelFlow, SetRunner, SetTimeline};
pub use peers::{PeerComparison, UnlikePart};
pub use preset::{PresetClass, PresetComparison};
pub use queues::FittedQueue;
pub use twin::{NodeTwin, calibrate};
