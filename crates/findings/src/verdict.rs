//! The verdict on a node that a run allows.

use pathline_explain::figure::RunReport;
use pathline_explain::judge::{RunVerdict, judge};
use pathline_health::unlike_paths;
use pathline_schema::Journal;
use serde::Serialize;

/// The verdict in a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictState {
    /// Every path equals its equals, and no check failed. `pathline health` states with which power.
    NoFault,
    /// A path is slower than its equals; measuring again in a new process decides.
    Suspect,
    /// Cases failed, figures are impossible, or a link or GPU does not do what it reports.
    Faulty,
    /// Too little was measured, or other programs disturbed it.
    #[default]
    Unknown,
}

impl VerdictState {
    /// As it is printed.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoFault => "NO FAULT SEEN",
            Self::Suspect => "SUSPECT",
            Self::Faulty => "FAULTY",
            Self::Unknown => "CANNOT SAY",
        }
    }
}

/// The verdict and its reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunAnswer {
    /// The verdict.
    pub state: VerdictState,
    /// Why, in one sentence that names places and numbers.
    pub reason: String,
}

/// The verdict on a run.
pub(crate) fn verdict(journal: &Journal, _: &RunReport) -> RunAnswer {
    let (state, reason) = match judge(journal) {
        RunVerdict::Wrong => (VerdictState::Faulty, "a case failed or a figure cannot be right"),
        RunVerdict::CouldNotJudge => (VerdictState::Unknown, "no case has a figure"),
        RunVerdict::Fine if !unlike_paths(journal).is_empty() => {
            (VerdictState::Suspect, "a path is slower than its equals")
        }
        RunVerdict::Fine => (VerdictState::NoFault, "no path is slower than its equals"),
    };
    RunAnswer { state, reason: reason.to_owned() }
}
