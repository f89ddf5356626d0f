//! Gates of this process, and the threads that each one holds back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use pathline_hal::{CallError, CallResult, GateId, TeamId};
use pathline_schema::Severity;

use crate::gate::StartLine;

/// Threads other than a team's that a gate can hold back.
pub trait GateWaiter {
    /// Number of threads that start together.
    fn threads(&self) -> u32;
    /// Starts them from a line that they share with everything else behind the gate.
    fn start(&self, line: &Arc<StartLine>);
}

/// One gate, with what it holds back until it opens.
#[derive(Default)]
pub struct HeldGate {
    /// An open gate holds nothing back.
    pub open: bool,
    /// Teams that have work.
    pub teams: Vec<TeamId>,
    /// Other threads that have work.
    pub waiters: Vec<Arc<dyn GateWaiter>>,
}

/// All gates, by number.
#[derive(Default)]
pub struct GateTable(pub RefCell<BTreeMap<GateId, HeldGate>>);

impl GateTable {
    /// Makes a gate hold back threads that have work; behind an open gate they start at once.
    ///
    /// # Errors
    /// No gate has this number.
    pub fn hold<W: GateWaiter + 'static>(&self, gate: GateId, waiter: &Arc<W>) -> CallResult<()> {
        let mut gates = self.0.borrow_mut();
        let gate = gates.get_mut(&gate).ok_or_else(|| {
            let reason = "there is none of that number";
            CallError::new(Severity::Transient, "submit", "gate".to_owned(), reason)
        })?;
        if gate.open {
            waiter.start(&Arc::new(StartLine::new(waiter.threads())));
        } else {
            gate.waiters.push(Arc::clone(waiter) as Arc<dyn GateWaiter>);
        }
        Ok(())
    }

    /// Takes these threads from behind every gate.
    pub fn release<W: GateWaiter>(&self, waiter: &Arc<W>) {
        let at = Arc::as_ptr(waiter).cast::<()>();
        for gate in self.0.borrow_mut().values_mut() {
            gate.waiters.retain(|held| Arc::as_ptr(held).cast::<()>() != at);
        }
    }
}
