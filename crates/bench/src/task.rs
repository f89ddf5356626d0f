//! What passes between a session and who measures for it: tasks one way, words the other.

use std::collections::BTreeMap;

use pathline_schema::{Case, JournalRecord, SampledCase};
use serde::{Deserialize, Serialize};

use crate::plan::PlannedCase;

/// Says why the run must end now, if it must. Asked between visits.
pub type InterruptCheck<'a> = &'a dyn Fn() -> Option<String>;

/// Cases to be sampled in turn: one group, or what is left of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseTask {
    /// The cases. All want the same environment.
    pub entries: Vec<PlannedCase>,
    /// Samples that some of them already have.
    pub carried: Vec<SampledCase>,
}

impl CaseTask {
    /// Environment switches that the process must have been started with.
    pub fn env(&self) -> BTreeMap<String, String> {
        self.entries.first().map(|entry| entry.env.clone()).unwrap_or_default()
    }
}

/// What is being done with a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskStep {
    /// Memory is made and filled, kernels are compiled, repetitions are found, the case is warmed.
    Bind,
    /// A few samples.
    Visit,
    /// One more operation, and every byte is compared.
    Verify,
}

impl TaskStep {
    /// In one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Visit => "visit",
            Self::Verify => "verify",
        }
    }
}

/// What is heard of a crew at work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "one at a time is on its way, into a file or a pipe")]
pub enum TaskEvent {
    /// This begins now. Who hears nothing more knows where it stopped.
    Now {
        /// The case.
        case: Case,
        /// The step.
        doing: TaskStep,
    },
    /// A line for the journal.
    Say(JournalRecord),
}
