//! The cases of a journal that were measured.

use pathline_schema::{CaseOutcome, Journal, MeasuredCase};

/// Measured cases, in the order of the run.
pub(crate) fn measured(journal: &Journal) -> impl Iterator<Item = &MeasuredCase> {
    journal.outcomes.iter().filter_map(|outcome| match outcome {
        CaseOutcome::Measured(measured) => Some(measured.as_ref()),
        _ => None,
    })
}
