//! Failed calls, with a remedy.

use std::fmt;

use pathline_schema::{Rank, Severity};

/// A failed call to a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CallError {
    /// The function that failed, as its manual names it.
    pub call: String,
    /// The object of the call: `8GiB at numa3`.
    pub thing: String,
    /// The error code; 0 if there is none.
    pub code: i64,
    /// The meaning of the code, as text.
    pub reason: String,
    /// The remedy for the user; empty if none is known.
    pub way_out: String,
    /// Whether to retry, skip or stop.
    pub severity: Severity,
    /// The ranks that failed. Empty if the whole case failed. Boxed to keep results small.
    pub ranks: Option<Box<FailedRanks>>,
}

/// Ranks whose errors were merged into one.
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
    /// An error for something that this machine or library does not support.
    pub fn unsupported(
        call: impl Into<String>,
        thing: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Unsupported, call, thing, reason)
    }
    /// Adds the code that the call returned.
    pub fn with_code(mut self, code: i64) -> Self {
        self.code = code;
        self
    }
    /// Adds the ranks that failed.
    pub fn of_ranks(mut self, ranks: Vec<Rank>) -> Self {
        self.ranks = (!ranks.is_empty()).then(|| Box::new(FailedRanks(ranks)));
        self
    }
    /// The ranks that failed. Empty if the whole case failed.
    pub fn failed_ranks(&self) -> &[Rank] {
        self.ranks.as_ref().map_or(&[], |ranks| &ranks.0)
    }
    /// Adds a remedy for the user.
    pub fn or_try(mut self, way_out: impl Into<String>) -> Self {
        self.way_out = way_out.into();
        self
    }
}
