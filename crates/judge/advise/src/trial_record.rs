//! What a runner gave, to be kept.

use serde::{Deserialize, Serialize};

use crate::guard_figure::TrialCost;

/// What a runner gave, in the order in which it was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialRecord {
    /// One repetition of an arm.
    Trial {
        /// [`crate::TrialArm::key`].
        arm: String,
        /// What it took.
        seconds: f64,
        /// Its cost, or why it has none.
        cost: Result<TrialCost, String>,
    },
    /// What shows whether the settings of an arm act.
    Evidence {
        /// [`crate::TrialArm::key`].
        arm: String,
        /// What it took.
        seconds: f64,
        /// As [`crate::TrialRunner::honoured`] returned it.
        shown: Option<Result<String, String>>,
    },
}

impl TrialRecord {
    /// What it took, in seconds.
    pub fn seconds(&self) -> f64 {
        match self {
            Self::Trial { seconds, .. } | Self::Evidence { seconds, .. } => *seconds,
        }
    }

    /// What it was asked about.
    pub(crate) fn subject_text(&self) -> String {
        match self {
            Self::Trial { arm, .. } => format!("a trial of {arm}"),
            Self::Evidence { arm, .. } => format!("the evidence of {arm}"),
        }
    }
}
