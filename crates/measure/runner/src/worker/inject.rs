//! Lets faults happen that were ordered, so that recovery can be tested on any machine.

use std::time::Duration;

use pathline_bench::{TaskEvent, TimerScope};

use crate::hooks::ProcessHooks;
use crate::protocol::{MachineOpening, OpenSelector, ProcessEnd, WorkerFault};

impl ProcessEnd {
    pub(super) fn happen(self, hooks: ProcessHooks) {
        // The supervisor shows the last line of a worker that is lost.
        (hooks.warn)(&format!("pathline: {self} on order"));
        match self {
            Self::Crash => (hooks.abort)(),
            Self::Exit => (hooks.exit)(3),
            Self::Hang => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
        }
    }
}

/// Lets happen what was ordered for the opening of the machine.
pub(super) fn at_open(opening: &MachineOpening, hooks: ProcessHooks) {
    let (gpus, again) = (opening.without.is_none(), opening.overhead == TimerScope::Known);
    for fault in &opening.request.faults {
        match fault {
            WorkerFault::Open(what, OpenSelector::Any) => what.happen(hooks),
            WorkerFault::Open(what, OpenSelector::WithGpus) if gpus => what.happen(hooks),
            WorkerFault::Open(what, OpenSelector::Again) if gpus && again => what.happen(hooks),
            _ => {}
        }
    }
}

/// The fault to inject in the step that begins with `event`.
pub(super) fn at(opening: &MachineOpening, event: &TaskEvent) -> Option<ProcessEnd> {
    let TaskEvent::StepStarted { case, step } = event else { return None };
    let again = opening.overhead == TimerScope::Known;
    opening.request.faults.iter().find_map(|fault| match fault {
        WorkerFault::At { what, step: when, first, text }
            if when == step && !(*first && again) && case.to_string().contains(text) =>
        {
            Some(*what)
        }
        _ => None,
    })
}

/// Calls of a simulated machine that fail on order.
pub(super) fn calls(faults: &[WorkerFault]) -> Vec<pathline_sim::FaultOrder> {
    let order = |fault: &WorkerFault| {
        let WorkerFault::Call { call, nth, severity, gpu } = fault else { return None };
        let order = pathline_sim::FaultOrder::fails(call, *nth, *severity);
        Some(gpu.map_or(order.clone(), |gpu| order.on(gpu)))
    };
    faults.iter().filter_map(order).collect()
}
