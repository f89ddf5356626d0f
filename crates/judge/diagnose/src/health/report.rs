//! The verdict on a node and what it rests on.

use pathline_schema::{Case, NodeVerdict};
use serde::Serialize;

use crate::culprit::Culprit;

/// A path that is slower than its peers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuspectPath {
    /// Index of its probe in the plan.
    pub probe: usize,
    /// Its label.
    pub path: String,
    /// Label of its class.
    pub class: String,
    /// Number of the other paths in the class.
    pub peers: usize,
    /// Median share of its speed that it loses against its peers: 0.056 is 5.6 % slower.
    pub loss: f64,
    /// Range of that share which holds the middle 95 % of the medians of rounds.
    pub loss_range: (f64, f64),
    /// Median time of one operation in ns.
    pub measured_ns: f64,
    /// Median time of its peers in ns.
    pub reference_ns: f64,
    /// log10 of the evidence that it is slow, of each process.
    pub evidence: Vec<f64>,
    /// Whether it was slow in every process, with enough evidence for the chosen alpha.
    pub confirmed: bool,
}

/// Share of its ceiling that a class of paths reaches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassShare {
    /// Label of the class.
    pub class: String,
    /// Number of its paths.
    pub paths: usize,
    /// Median time of one operation in ns; none if not measured.
    pub median_ns: Option<f64>,
    /// Median speed divided by the ceiling of the narrowest hop; none where no ceiling is known.
    pub of_ceiling: Option<f64>,
    /// Median speed divided by that of a healthy path, which an engine may hold below its ceiling; none
    /// where that is not known.
    pub of_expected: Option<f64>,
    /// The narrowest hop.
    pub narrowest: Option<String>,
}

/// What the measurement was able to show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestPower {
    /// Paths that were shown to be within the loss.
    pub cleared: usize,
    /// Paths of the plan.
    pub paths: usize,
    /// The loss that was ruled out for each cleared path, as a share.
    pub loss: f64,
    /// Probability at most, for each cleared path, that it is slower than that.
    pub miss: f64,
    /// Probability at most that a healthy node fails, if its paths are slow in no more processes than is
    /// assumed ([`crate::HealthSettings::state_share`]).
    pub alpha: f64,
    /// Rounds and processes that were measured.
    pub rounds: usize,
    /// Processes that were measured.
    pub processes: usize,
    /// One sentence for a reader.
    pub text: String,
}

/// The verdict on a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthReport {
    /// The verdict.
    pub state: NodeVerdict,
    /// Why, in at most 100 characters.
    pub reason: String,
    /// Paths that are slower than their peers, the slowest first.
    pub suspects: Vec<SuspectPath>,
    /// Parts that explain them, the most probable first.
    pub culprits: Vec<Culprit>,
    /// What the measurement was able to show.
    pub power: TestPower,
    /// Faults that need no statistics: a link at half width, a missing GPU.
    pub faults: Vec<String>,
    /// Observations that are no faults: corrected errors, equally slow classes.
    pub notes: Vec<String>,
    /// Classes and what they reach of their ceilings.
    pub classes: Vec<ClassShare>,
    /// Parts and paths on which the verdict says nothing.
    pub unseen: Vec<String>,
}

/// Writes a case as its text.
pub(crate) fn as_text<S: serde::Serializer>(case: &Case, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(case)
}
