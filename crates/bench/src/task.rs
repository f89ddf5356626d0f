//! What passes between a session and whoever measures for it: tasks in one direction, events in the
//! other.

use std::collections::BTreeMap;
use std::io;

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

/// What an executor at work reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "one at a time is on its way, into a file or a pipe")]
pub enum TaskEvent {
    /// A step begins: where an executor stopped of which nothing more comes.
    StepStarted {
        /// The case.
        case: Case,
        /// The step.
        step: TaskStep,
    },
    /// A line for the journal.
    Record(JournalRecord),
}

/// Takes events. Its error ends the work.
pub type EventSink<'t> = &'t mut dyn FnMut(TaskEvent) -> io::Result<()>;
