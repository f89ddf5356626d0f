//! Gates of this process, and the threads that each holds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use pathline_hal::{CallError, CallResult, GateId};

use crate::gate::StartLine;

/// Threads that a gate can hold.
pub trait GateWaiter {
    /// Number of threads that start together.
    fn threads(&self) -> u32;
    /// Starts them from a line shared with everything else behind the gate.
    fn start(&self, line: &Arc<StartLine>);
}

/// One gate.
#[derive(Default)]
struct HeldGate {
    /// Whether the gate is open; an open gate holds nothing.
    open: bool,
    /// Pools with submitted work.
    waiters: Vec<Arc<dyn GateWaiter>>,
}

/// All gates, by number.
#[derive(Default)]
pub struct GateTable(RefCell<BTreeMap<GateId, HeldGate>>);

impl GateTable {
    /// Adds a gate, closed.
    pub fn create(&self, gate: GateId) {
        self.0.borrow_mut().insert(gate, HeldGate::default());
    }

    /// Checks that a gate is in this table.
    ///
    /// # Errors
    /// No gate has this number.
    pub fn find(&self, call: &str, gate: GateId) -> CallResult<()> {
        self.0.borrow().contains_key(&gate).then_some(()).ok_or_else(|| no_gate(call))
    }

    /// Makes a gate hold threads with work. Behind an open gate they start at once.
    ///
    /// # Errors
    /// No gate has this number.
    pub fn hold<W: GateWaiter + 'static>(&self, gate: GateId, waiter: &Arc<W>) -> CallResult<()> {
        let mut gates = self.0.borrow_mut();
        let gate = gates.get_mut(&gate).ok_or_else(|| no_gate("submit"))?;
        gate.waiters.push(Arc::clone(waiter) as Arc<dyn GateWaiter>);
        if gate.open {
            gate.start_all();
        }
        Ok(())
    }

    /// Removes these threads from every gate.
    pub fn release<W: GateWaiter>(&self, waiter: &Arc<W>) {
        let at = Arc::as_ptr(waiter).cast::<()>();
        for gate in self.0.borrow_mut().values_mut() {
            gate.waiters.retain(|held| Arc::as_ptr(held).cast::<()>() != at);
        }
    }

    /// Opens a gate: all threads that it holds start together.
    ///
    /// # Errors
    /// No gate has this number.
    pub fn open(&self, gate: GateId) -> CallResult<()> {
        let mut gates = self.0.borrow_mut();
        gates.get_mut(&gate).ok_or_else(|| no_gate("gate_release"))?.start_all();
        Ok(())
    }

    /// Opens and removes a gate.
    ///
    /// # Errors
    /// No gate has this number.
    pub fn destroy(&self, gate: GateId) -> CallResult<()> {
        let gone = self.0.borrow_mut().remove(&gate);
        gone.ok_or_else(|| no_gate("gate_destroy"))?.start_all();
        Ok(())
    }
}

impl HeldGate {
    fn start_all(&mut self) {
        self.open = true;
        let waiters = std::mem::take(&mut self.waiters);
        let line = Arc::new(StartLine::new(waiters.iter().map(|w| w.threads()).sum()));
        waiters.iter().for_each(|waiter| waiter.start(&line));
    }
}

fn no_gate(call: &str) -> CallError {
    CallError::unsupported(call, "gate", "there is none of that number")
}
