//! Faults on order, so that every error path can be walked.

use std::collections::{BTreeMap, BTreeSet};

use pathline_hal::CallError;
use pathline_schema::Severity;

/// The fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectedFault {
    /// The call fails with this severity and reason. A [`Severity::Sticky`] one makes its GPU
    /// unusable: every later call on it fails.
    Fails(Severity, String),
    /// The call succeeds and one cache line of what it writes is wrong. Only for `copy`, `copy_blocks`,
    /// `launch`, `migrate`, `host.submit` and `storage.land`; on other calls nothing happens.
    Corrupts,
}

/// A fault that strikes one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultOrder {
    /// Name of the method of [`pathline_hal::Driver`], as `copy`, or of [`pathline_hal::Host`]
    /// behind `host.`, as `host.alloc`, or of [`pathline_hal::FileStorage`] behind `storage.`.
    pub call: String,
    /// Number of the call of that name; 1 is the first.
    pub nth: u64,
    /// Only calls on this GPU count; all if none.
    pub gpu: Option<u32>,
    /// The fault.
    pub fault: InjectedFault,
}

impl FaultOrder {
    /// The `nth` call of `call` fails.
    pub fn fails(call: &str, nth: u64, severity: Severity) -> Self {
        let reason = format!("fault on order in call {nth}");
        Self {
            call: call.to_owned(),
            nth,
            gpu: None,
            fault: InjectedFault::Fails(severity, reason),
        }
    }
    /// The same with a given reason: `input/output error (EIO)`.
    pub fn with_reason(call: &str, nth: u64, severity: Severity, reason: &str) -> Self {
        let fault = InjectedFault::Fails(severity, reason.to_owned());
        Self { fault, ..Self::fails(call, nth, severity) }
    }
    /// The `nth` call of `call` writes wrong bytes.
    pub fn corrupts(call: &str, nth: u64) -> Self {
        Self { call: call.to_owned(), nth, gpu: None, fault: InjectedFault::Corrupts }
    }
    /// The same, of the calls on one GPU.
    pub fn on(self, gpu: u32) -> Self {
        Self { gpu: Some(gpu), ..self }
    }
}

/// Counts calls and decides which of them fail.
#[derive(Debug, Default)]
pub(crate) struct FaultScript {
    faults: Vec<FaultOrder>,
    /// Calls by name: of each GPU, and of all and none.
    counts: BTreeMap<(&'static str, Option<u32>), u64>,
}

impl FaultScript {
    pub(crate) fn new(faults: Vec<FaultOrder>) -> Self {
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
        for of in BTreeSet::from([None, gpu]) {
            *self.counts.entry((call, of)).or_default() += 1;
        }
        let is_due = |f: &FaultOrder| {
            let counts = f.gpu.is_none() || f.gpu == gpu;
            f.call == call && counts && self.counts.get(&(call, f.gpu)) == Some(&f.nth)
        };
        let struck = self.faults.iter().find(|f| is_due(f));
        match struck.map(|fault| &fault.fault) {
            None => Ok(false),
            Some(InjectedFault::Corrupts) => Ok(true),
            Some(InjectedFault::Fails(severity, reason)) => {
                let thing = gpu.map_or("this machine".to_owned(), |gpu| format!("gpu{gpu}"));
                Err(CallError::new(*severity, call, thing, reason.as_str()))
            }
        }
    }
}
