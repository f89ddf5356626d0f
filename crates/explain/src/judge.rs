//! How a run went, from its journal alone. `pathline run` and `pathline report` exit by it.

use pathline_schema::{Journal, Outcome};

/// What the outcomes of a run come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunVerdict {
    /// Something was measured and nothing is wrong, even if a time limit cut the run.
    Fine,
    /// Something failed, or lines of the journal are broken and what they said is not known.
    Wrong,
    /// Nothing was measured.
    CouldNotJudge,
}

/// Judges a run.
pub fn judge(journal: &Journal) -> RunVerdict {
    let any = |is: fn(&Outcome) -> bool| journal.outcomes.iter().any(is);
    if any(|o| matches!(o, Outcome::Faulted(_))) || !journal.broken.is_empty() {
        RunVerdict::Wrong
    } else if any(|o| matches!(o, Outcome::Measured(_))) {
        RunVerdict::Fine
    } else {
        RunVerdict::CouldNotJudge
    }
}
