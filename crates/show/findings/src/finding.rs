//! Findings: what was observed, what causes it, what to do about it, and what that gains.

use pathline_schema::{Case, SizeEffects};
use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingSeverity {
    /// Something is broken or slower than its peers.
    Fault,
    /// A different setting, path or placement is faster.
    Gain,
    /// Worth knowing before placing work.
    Note,
}

/// How an expected gain is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GainBasis {
    /// Both arms are in the run.
    Measured,
    /// One arm is the prediction of the model.
    Predicted,
    /// Both arms are in the run, and the run is a simulation.
    Simulated,
}

/// What an action gains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExpectedGain {
    /// Speed after the action divided by speed before: the least and the greatest over all places.
    pub factor: (f64, f64),
    /// How it is known.
    pub basis: GainBasis,
}

/// One side of a comparison that a finding rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FindingArm {
    /// What it is: `SDMA copy (hipMemcpyAsync)`.
    pub label: String,
    /// Its value.
    pub value: f64,
    /// Half width of its 95 % interval, in the same unit; none where it has no interval.
    pub half_width: Option<f64>,
    /// `GB/s`, `us`.
    pub unit: String,
    /// The case that gives it.
    #[serde(serialize_with = "as_text")]
    pub case: Case,
}

/// A conclusion that a reader can act on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name for tools: `engine-limits-pairs`. docs/understand/findings.md lists all.
    pub id: &'static str,
    /// How much it matters.
    pub severity: FindingSeverity,
    /// What was seen, with numbers, size and kind; one sentence.
    pub observation: String,
    /// The same in at most [`Finding::MAX_SHORT`] characters, the numbers first: a line of a list.
    pub short: String,
    /// What limits it: the narrowest hop or the rule; one sentence. Empty if the run does not show it.
    pub cause: String,
    /// What to do: the exact variable, flag, call or mask. Empty if nothing can be done.
    pub action: String,
    /// What the action gains, if it gains speed.
    pub gain: Option<ExpectedGain>,
    /// What the action costs: compute units, memory, overlap. Empty if nothing.
    pub cost: String,
    /// What its setting does by size, where it gains at some and loses at others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_size: Option<SizeEffects>,
    /// Paths and units that it concerns: `gpu0→gpu1`.
    pub places: Vec<String>,
    /// The values that are compared.
    pub arms: Vec<FindingArm>,
    /// GB/s lost without the action, summed over the places; the rank of a finding within its severity.
    pub weight: f64,
    /// Whether its values are those of a simulated machine.
    pub simulated: bool,
}

impl Finding {
    /// Characters that a short form may have.
    pub const MAX_SHORT: usize = 90;

    /// A finding of which only the observation is known yet.
    pub(crate) fn new(id: &'static str, severity: FindingSeverity, observation: String) -> Self {
        Self {
            id,
            severity,
            observation,
            short: String::new(),
            cause: String::new(),
            action: String::new(),
            gain: None,
            cost: String::new(),
            by_size: None,
            places: Vec::new(),
            arms: Vec::new(),
            weight: 0.0,
            simulated: false,
        }
    }
}

fn as_text<S: serde::Serializer>(case: &Case, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(case)
}
