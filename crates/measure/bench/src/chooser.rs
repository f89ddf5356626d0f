//! Plans whose next cases depend on the results so far.

use pathline_schema::{Case, CaseOutcome, RunBegin, Topology};

/// The results of a run so far.
#[derive(Debug, Clone, Copy)]
pub struct RunSoFar<'a> {
    /// Its first record.
    pub begin: &'a RunBegin,
    /// The machine.
    pub topology: &'a Topology,
    /// Measured cases, in order.
    pub outcomes: &'a [CaseOutcome],
}

/// The next cases of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CaseBatch {
    /// Indices among the cases that are left, each with a reason for the journal; an empty reason is not
    /// written.
    pub cases: Vec<(usize, String)>,
    /// What the choice rests on, for the journal; not written if empty.
    pub because: String,
    /// Whether no case follows these.
    pub is_last: bool,
}

/// Chooses the next cases of a plan. Cases that it never chooses are not measured.
pub trait CaseChooser {
    /// The next of the cases that are `left`.
    fn choose(&mut self, so_far: &RunSoFar<'_>, left: &[Case]) -> CaseBatch;
}
