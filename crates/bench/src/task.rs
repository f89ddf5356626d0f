//! The data between a session and its executor: tasks in one direction, events in the other.

use std::collections::BTreeMap;
use std::io;

use pathline_schema::{Case, JournalRecord, SampledCase};
use serde::{Deserialize, Serialize};

use crate::plan::PlannedCase;

/// Returns why the run must end now, if so. Called between visits.
pub type InterruptCheck<'a> = &'a dyn Fn() -> Option<String>;

/// Cases to sample in turn: one group, or its remaining part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseTask {
    /// The cases. All need the same environment.
    pub entries: Vec<PlannedCase>,
    /// Samples that some of them already have.
    pub carried: Vec<SampledCase>,
}

impl CaseTask {
    /// Environment variables that the process must have been started with.
    pub fn env(&self) -> BTreeMap<String, String> {
        self.entries.first().map(|entry| entry.env.clone()).unwrap_or_default()
    }
}

/// A step of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskStep {
    /// Allocates and fills memory, compiles kernels, finds repetitions, warms up the case.
    Bind,
    /// A few samples.
    Visit,
    /// One more operation, and a comparison of every byte.
    Verify,
}

impl TaskStep {
    /// The step's name in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Visit => "visit",
            Self::Verify => "verify",
        }
    }
}

/// An event from an executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "one at a time is in transit, to a file or a pipe")]
pub enum TaskEvent {
    /// A step begins. The last one shows where a lost executor stopped.
    StepStarted {
        /// The case.
        case: Case,
        /// The step.
        step: TaskStep,
    },
    /// A line for the journal.
    Record(JournalRecord),
}

/// Receives events. Its error ends the work.
pub type EventSink<'t> = &'t mut dyn FnMut(TaskEvent) -> io::Result<()>;
