//! Flows whose bytes move now: what each has left, and when it ends.

use super::max_min::{MaxMinSolver, RateDemand};

/// How far a flow has come.
#[derive(Debug, Clone, Copy)]
struct FlowProgress {
    /// Payload that had not moved at `since`.
    left: f64,
    /// In ns.
    since: f64,
    /// GB/s, which is bytes per ns; below 0 until the first is known.
    rate: f64,
}

impl FlowProgress {
    fn settle(&mut self, now: f64) {
        if self.rate > 0.0 && self.left.is_finite() {
            self.left = (self.left - self.rate * (now - self.since)).max(0.0);
        }
        self.since = now;
    }

    fn end(&self) -> f64 {
        self.since + if self.left > 0.0 { self.left / self.rate } else { 0.0 }
    }
}

/// Flows by number, and the solver that gives them their rates.
///
/// The caller decides when a flow begins, when rates are shared out, and among which flows.
#[derive(Debug, Default)]
pub(super) struct SharedFlows {
    solver: MaxMinSolver,
    rates: Vec<f64>,
    flows: Vec<FlowProgress>,
}

impl SharedFlows {
    /// Forgets all flows and makes room for `count`.
    pub(super) fn reset(&mut self, count: usize) {
        self.flows.clear();
        self.grow(count);
    }

    /// Makes room for flows up to number `count`.
    pub(super) fn grow(&mut self, count: usize) {
        self.flows.resize(count, FlowProgress { left: 0.0, since: 0.0, rate: -1.0 });
    }

    /// A flow has `bytes` to move from `now` on.
    pub(super) fn begin(&mut self, flow: usize, now: f64, bytes: f64) {
        self.flows[flow] = FlowProgress { left: bytes, since: now, rate: -1.0 };
    }

    /// Moves a flow's bytes up to `now`.
    pub(super) fn settle(&mut self, flow: usize, now: f64) {
        self.flows[flow].settle(now);
    }

    /// What a flow has left at `now`.
    pub(super) fn left_at(&self, flow: usize, now: f64) -> f64 {
        let mut progress = self.flows[flow];
        progress.settle(now);
        progress.left
    }

    /// GB/s.
    pub(super) fn rate(&self, flow: usize) -> f64 {
        self.flows[flow].rate
    }

    /// When a flow ends if its rate does not change before; infinite or no number if never.
    pub(super) fn end(&self, flow: usize) -> f64 {
        self.flows[flow].end()
    }

    /// Shares the capacities out among some flows, from `now` on. Reports each flow whose
    /// rate changes, with its new end.
    pub(super) fn share<'a>(
        &mut self,
        now: f64,
        capacities: &[f64],
        among: &[usize],
        demand: impl Fn(usize) -> RateDemand<'a>,
        mut changed: impl FnMut(usize, f64),
    ) {
        if let &[only] = among {
            self.rates.clear();
            self.rates.push(demand(only).alone(capacities));
        } else {
            let demand = |i: usize| demand(among[i]);
            self.solver.rates_of(capacities, among.len(), demand, &mut self.rates);
        }
        for (&i, &rate) in among.iter().zip(&self.rates) {
            let flow = &mut self.flows[i];
            if rate != flow.rate {
                flow.settle(now);
                flow.rate = rate;
                changed(i, flow.end());
            }
        }
    }
}
