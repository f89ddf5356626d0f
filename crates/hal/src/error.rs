//! A failed call, with a remedy.

use std::fmt;

use pathline_schema::{Rank, Severity};

/// A call to a machine that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CallError {
    /// The function that failed, by the name its manual uses.
    pub call: String,
    /// The object of the call: `8GiB at numa3`.
    pub thing: String,
    /// The number it returned; 0 if it has none.
    pub code: i64,
    /// The meaning of the number, as text.
    pub reason: String,
    /// The remedy for the user; empty if none is known.
    pub way_out: String,
    /// How bad it is.
    pub severity: Severity,
    /// The ranks that it came from; none where all of a case failed together. In a box, since every
    /// result has room for an error.
    pub ranks: Option<Box<FailedRanks>>,
}

/// The ranks that an error came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRanks(Vec<Rank>);

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, thing, code, reason, way_out, .. } = self;
        write!(f, "{call} on {thing}: {reason}")?;
        if *code != 0 {
            write!(f, " ({code})")?;
        }
        if way_out.is_empty() { Ok(()) } else { write!(f, "; {way_out}") }
    }
}

/// The outcome of a call to a machine.
pub type CallResult<T> = std::result::Result<T, CallError>;

impl CallError {
    /// A failed call without a code.
    pub fn new(
        severity: Severity,
        call: impl Into<String>,
        thing: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            call: call.into(),
            thing: thing.into(),
            code: 0,
            reason: reason.into(),
            way_out: String::new(),
            severity,
            ranks: None,
        }
    }
    /// A thing that this machine or library cannot do.
    pub fn unsupported(
        call: impl Into<String>,
        thing: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Unsupported, call, thing, reason)
    }
    /// The same with the number that the call returned.
    pub fn with_code(mut self, code: i64) -> Self {
        self.code = code;
        self
    }
    /// The same, which came from these ranks.
    pub fn of_ranks(mut self, ranks: Vec<Rank>) -> Self {
        self.ranks = (!ranks.is_empty()).then(|| Box::new(FailedRanks(ranks)));
        self
    }
    /// The ranks that it came from; empty where all of a case failed together.
    pub fn failed_ranks(&self) -> &[Rank] {
        self.ranks.as_ref().map_or(&[], |ranks| &ranks.0)
    }
    /// The same with a remedy for the user.
    pub fn or_try(mut self, way_out: impl Into<String>) -> Self {
        self.way_out = way_out.into();
        self
    }
}
