//! Lanes of messages between processes: the messages of a case are bound, run and checked as one
//! exchange. They are all timed flows of a case, or its background.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{CallError, CallResult, ExchangeId, FlowTime, Machine, RankGroup, StartGate};
use pathline_schema::{Cadence, Case, CpuSet, MessageOp, Ns, Rank, TimerKind, VerifyResult};

use crate::lane::{BoundLane, LaneSample};

/// Shortest sample of repetitions back to back: a start that waits for all ranks and an end that
/// waits for the GPUs cost 10 to 15 us, 0.4 % of an all_reduce of 1 GiB between two H200s.
const STREAMED: Ns = Ns(10_000_000.0);

/// The state that all message flows of a case share.
struct BoundExchange<'m> {
    ranks: &'m dyn RankGroup,
    id: ExchangeId,
    reps: Cell<u64>,
    took: RefCell<Vec<FlowTime>>,
    verdict: RefCell<Option<VerifyResult>>,
}

impl Drop for BoundExchange<'_> {
    fn drop(&mut self) {
        // Ranks that cannot release it are lost, which the next step reports.
        let _ = self.ranks.release(self.id);
    }
}

/// One message flow. The first one acts for all.
struct WireLane<'m> {
    exchange: Rc<BoundExchange<'m>>,
    nth: usize,
    wire: MessageOp,
    isolated: bool,
    /// Whether other flows of the case are timed.
    has_other_flows: bool,
}

/// Whether a case has flows between processes.
pub(crate) fn is_between(case: &Case) -> bool {
    case.flows().any(|flow| flow.by.wire().is_some())
}

/// Binds the flows of a case between processes. Its other flows run on `busy_cpus`.
pub(crate) fn bind<'m>(
    machine: &'m Machine,
    case: &Case,
    busy_cpus: &CpuSet,
) -> CallResult<Vec<Box<dyn BoundLane + 'm>>> {
    let ranks = machine.ranks.as_deref().ok_or_else(|| {
        CallError::unsupported("bind", case.to_string(), "this run has one process")
            .or_try("start it with --ranks N or under mpirun")
    })?;
    let id = ranks.bind(case, busy_cpus)?;
    let (reps, took, verdict) = (Cell::new(1), RefCell::default(), RefCell::default());
    let exchange = Rc::new(BoundExchange { ranks, id, reps, took, verdict });
    let wires = case.flows().filter_map(|flow| flow.by.wire()).enumerate();
    let isolated = case.cadence == Cadence::Isolated;
    let has_other_flows = case.timed.iter().any(|flow| flow.by.wire().is_none());
    Ok(wires
        .map(|(nth, &wire)| {
            let exchange = Rc::clone(&exchange);
            Box::new(WireLane { exchange, nth, wire, isolated, has_other_flows })
                as Box<dyn BoundLane>
        })
        .collect())
}

impl BoundLane for WireLane<'_> {
    fn issue(&mut self, _: &StartGate<'_>, reps: u64) -> CallResult<()> {
        let BoundExchange { ranks, id, reps: wanted, .. } = &*self.exchange;
        wanted.set(reps);
        // A background starts when the gate of the timed flows opens.
        if self.has_other_flows && self.nth == 0 { ranks.begin(*id, reps) } else { Ok(()) }
    }

    fn wait(&mut self) -> CallResult<LaneSample> {
        let BoundExchange { ranks, id, reps, took, .. } = &*self.exchange;
        let reps = reps.get();
        if self.nth == 0 {
            *took.borrow_mut() =
                if self.has_other_flows { ranks.end(*id)? } else { ranks.run(*id, reps)? };
        }
        let Some(FlowTime { elapsed, by_rank }) = took.borrow().get(self.nth).cloned() else {
            return Err(CallError::unsupported("run", "an exchange", "a flow has no time"));
        };
        // Half of a round trip counts.
        let directions = if self.wire.op.is_ping() { 2.0 } else { 1.0 };
        let one_direction = |ns: Ns| Ns(ns.0 / directions);
        let by_rank: BTreeMap<Rank, Ns> =
            by_rank.into_iter().map(|(rank, ns)| (rank, one_direction(ns))).collect();
        let steps = reps * u64::from(self.wire.op.window());
        Ok(LaneSample { by_rank, ..LaneSample::of(one_direction(elapsed), steps) })
    }

    fn timer(&self) -> TimerKind {
        TimerKind::Host
    }

    fn engine(&self) -> String {
        self.exchange.ranks.engine(self.exchange.id)
    }

    fn min_sample(&self) -> Ns {
        if self.isolated { Ns::ZERO } else { STREAMED }
    }

    fn messages(&self) -> u64 {
        u64::from(self.wire.op.window())
    }

    fn spoil(&mut self) -> CallResult<()> {
        if self.nth == 0 {
            self.exchange.verdict.take();
            return self.exchange.ranks.spoil(self.exchange.id);
        }
        Ok(())
    }

    fn check(&self) -> CallResult<VerifyResult> {
        if let Some(verdict) = self.exchange.verdict.borrow().clone() {
            return Ok(verdict);
        }
        let verdict = self.exchange.ranks.check(self.exchange.id)?;
        *self.exchange.verdict.borrow_mut() = Some(verdict.clone());
        Ok(verdict)
    }
}
