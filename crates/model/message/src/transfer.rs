//! Transfers of a schedule, which wait for each other and share the machine.

use std::sync::Arc;

use pathline_flow::{FlowDemand, MaxMinSolver, RateDemand, ResourceUse};

/// The route of a transfer: shared resources, and its rate alone.
#[derive(Debug, Clone)]
pub(crate) struct TransferRoute {
    pub uses: Vec<ResourceUse>,
    /// GB/s, which is bytes per ns.
    pub cap: f64,
    /// Start of an idle engine, as the machine states it, ns.
    pub alpha: f64,
    /// Its weight where rates are shared out.
    pub share: f64,
}

impl TransferRoute {
    pub(crate) fn demand(&self) -> RateDemand<'_> {
        RateDemand { uses: &self.uses, cap: self.cap, share: self.share }
    }
}

/// One transfer of a schedule.
#[derive(Debug, Clone)]
pub(crate) struct ScheduledTransfer {
    pub path: Arc<TransferRoute>,
    pub bytes: f64,
    /// From the end of what it waits for to its first byte, ns.
    pub start: f64,
    /// From its last byte to its end, ns: what the receiver computes.
    pub tail: f64,
    /// Transfers that end before it starts; all stand before it.
    pub after: Vec<usize>,
}

impl ScheduledTransfer {
    pub(crate) fn demand(&self) -> FlowDemand<'_> {
        FlowDemand {
            start: self.start,
            tail: self.tail,
            after: &self.after,
            ..FlowDemand::new(self.path.demand(), self.bytes)
        }
    }
}

/// Rates of flows that run at once, GB/s.
pub(crate) fn rates(capacities: &[f64], flows: &[RateDemand<'_>]) -> Vec<f64> {
    let mut rates = Vec::new();
    MaxMinSolver::default().rates(capacities, flows, &mut rates);
    rates
}
