//! Faults on order, so that every error path can be walked.

use std::collections::BTreeMap;

use pathline_hal::CallError;
use pathline_schema::Severity;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mishap {
    /// The call fails with this severity and reason. A [`Severity::Sticky`] one makes its GPU
    /// unusable: every later call on it fails.
    Fails(Severity, String),
    /// The call succeeds and one cache line of what it writes is wrong. Only for `copy`, `launch`,
    /// `migrate` and `host.submit`; on other calls nothing happens.
    Corrupts,
}

/// A fault that strikes one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name of the method of [`pathline_hal::Driver`], as `copy`, or of [`pathline_hal::Host`]
    /// behind `host.`, as `host.alloc`.
    pub call: String,
    /// Which call of that name; 1 is the first.
    pub nth: u64,
    /// What goes wrong.
    pub mishap: Mishap,
}

impl Fault {
    /// The `nth` call of `call` fails.
    pub fn fails(call: &str, nth: u64, severity: Severity) -> Self {
        let reason = format!("fault on order in call {nth}");
        Self { call: call.to_owned(), nth, mishap: Mishap::Fails(severity, reason) }
    }
    /// The `nth` call of `call` writes wrong bytes.
    pub fn corrupts(call: &str, nth: u64) -> Self {
        Self { call: call.to_owned(), nth, mishap: Mishap::Corrupts }
    }
}

/// Counts calls and says when one is struck.
#[derive(Debug, Default)]
pub(crate) struct Script {
    faults: Vec<Fault>,
    counts: BTreeMap<&'static str, u64>,
}

impl Script {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        Self { faults, counts: BTreeMap::new() }
    }

    /// Counts a call: whether what it writes is damaged, or its error.
    pub(crate) fn enter(
        &mut self,
        call: &'static str,
        gpu: Option<u32>,
    ) -> Result<bool, CallError> {
        if self.faults.is_empty() {
            return Ok(false);
        }
        let count = self.counts.entry(call).or_default();
        *count += 1;
        let struck = self.faults.iter().find(|f| f.call == call && f.nth == *count);
        match struck.map(|fault| &fault.mishap) {
            None => Ok(false),
            Some(Mishap::Corrupts) => Ok(true),
            Some(Mishap::Fails(severity, reason)) => {
                let thing = gpu.map_or("this machine".to_owned(), |gpu| format!("gpu{gpu}"));
                Err(CallError::new(*severity, call, thing, reason.as_str()))
            }
        }
    }
}
