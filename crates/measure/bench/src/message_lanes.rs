//! Lanes of messages between processes: the messages of a case are bound, run and checked as one
//! exchange. They are all timed flows of a case, or its background.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{CallError, CallResult, ExchangeId, FlowTime, Machine, RankGroup, StartGate};
use pathline_schema::{
    Bytes, Cadence, Case, CpuSet, Flow, MessageOp, Ns, Rank, TimerKind, Transport, VerifyResult,
    WorldKind,
};

use crate::files;
use crate::lane::{BoundLane, LaneSample, MAX_REPS};

/// Shortest sample of repetitions back to back.
const STREAMED: Ns = Ns(10_000_000.0);
/// The same of large operations of NCCL and RCCL, whose rates are compared with other tools'. The start of a sample, which
/// waits for all ranks, and its end cost 90 us of 6 all_to_all of 1 GiB between two H100s, 0.9 %;
/// nccl-tests, with 20 operations, loses 0.15 %.
const STREAMED_LARGE: Ns = Ns(40_000_000.0);
/// Bytes of the smallest large operation.
const LARGE: Bytes = Bytes(512 << 20);
/// Time budgets of a case of large operations: 7 such samples and the warm-up.
const LARGE_BUDGETS: f64 = 3.0;

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
    /// `None` for I/O that ranks do together.
    wire: Option<MessageOp>,
    budgets: f64,
    most: u64,
    isolated: bool,
    /// Whether a sample must be long, [`STREAMED_LARGE`].
    large: bool,
    /// Whether other flows of the case are timed.
    has_other_flows: bool,
}

/// Whether a case has flows between processes.
pub(crate) fn is_between(case: &Case) -> bool {
    case.flows().any(|flow| flow.by.wire().is_some())
}

/// Whether other processes carry a case's flows: messages, and on a real machine I/O of ranks. The
/// ranks of a model are in this process.
pub(crate) fn is_of_ranks(machine: &Machine, case: &Case) -> bool {
    is_between(case) || (case.is_rank_io() && machine.world == WorldKind::Real)
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
    let carried = |flow: &&Flow| flow.by.wire().is_some() || flow.by.is_on_files();
    let flows = case.flows().filter(carried).enumerate();
    let isolated = case.cadence == Cadence::Isolated;
    let has_other_flows =
        !case.is_rank_io() && case.timed.iter().any(|flow| flow.by.wire().is_none());
    Ok(flows
        .map(|(nth, flow)| {
            let exchange = Rc::clone(&exchange);
            let wire = flow.by.wire().copied();
            let of_ccl = wire.is_some_and(|wire| wire.via == Transport::Ccl);
            let large = of_ccl && !isolated && flow.bytes >= LARGE;
            let budgets = match wire {
                None => files::BUDGETS,
                Some(_) if large => LARGE_BUDGETS,
                Some(_) => 1.0,
            };
            let once = flow.by.meta().filter(|meta| meta.op.is_once());
            let most = once.map_or(MAX_REPS, |meta| meta.items());
            Box::new(WireLane {
                exchange,
                nth,
                wire,
                budgets,
                most,
                isolated,
                large,
                has_other_flows,
            }) as Box<dyn BoundLane>
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
        let Some(FlowTime { elapsed, by_rank, io }) = took.borrow().get(self.nth).cloned() else {
            return Err(CallError::unsupported("run", "an exchange", "a flow has no time"));
        };
        // Half of a round trip counts.
        let directions = if self.wire.is_some_and(|wire| wire.op.is_ping()) { 2.0 } else { 1.0 };
        let one_direction = |ns: Ns| Ns(ns.0 / directions);
        let by_rank: BTreeMap<Rank, Ns> =
            by_rank.into_iter().map(|(rank, ns)| (rank, one_direction(ns))).collect();
        let steps = reps * self.messages();
        Ok(LaneSample { by_rank, io, ..LaneSample::of(one_direction(elapsed), steps) })
    }

    fn timer(&self) -> TimerKind {
        if self.wire.is_some() { TimerKind::Host } else { TimerKind::Threads }
    }

    fn engine(&self) -> String {
        self.exchange.ranks.engine(self.exchange.id)
    }

    fn min_sample(&self) -> Ns {
        match self.wire {
            None => files::SAMPLE,
            Some(_) if self.isolated => Ns::ZERO,
            Some(_) if self.large => STREAMED_LARGE,
            Some(_) => STREAMED,
        }
    }

    fn budgets(&self) -> f64 {
        self.budgets
    }

    fn most(&self) -> u64 {
        self.most
    }

    fn messages(&self) -> u64 {
        self.wire.map_or(1, |wire| u64::from(wire.op.window()))
    }

    fn lands(&self) -> bool {
        self.wire.is_none()
    }

    fn land(&mut self) -> CallResult<()> {
        if self.nth == 0 && self.lands() {
            self.exchange.verdict.take();
            return self.exchange.ranks.spoil(self.exchange.id);
        }
        Ok(())
    }

    fn spoil(&mut self) -> CallResult<()> {
        if self.nth == 0 && self.wire.is_some() {
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

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_sim::SimOptions;

    use super::*;

    /// Back to back, a sample of messages lasts 10 ms, one of NCCL from 512 MiB on 40 ms, for which a case has three
    /// times its budget. One that is timed alone has no least time.
    #[test]
    fn samples_of_messages_last_by_library_and_size() {
        let desc = MachineDesc::preset("hgx-h200").expect("a preset");
        let options = SimOptions { ranks: 2, ..SimOptions::default() };
        let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options);
        let machine = machine.expect("a machine");
        let sum = "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce]";
        for (case, shortest, budgets) in [
            (format!("{sum} x 511MiB"), 10.0, 1.0),
            (format!("{sum} x 512MiB"), 40.0, 3.0),
            (format!("{sum} x 512MiB isolated"), 0.0, 1.0),
        ] {
            let case: Case = case.parse().expect("a case");
            let lanes = bind(&machine, &case, &CpuSet::default()).expect("lanes");
            let found: Vec<(Ns, f64)> =
                lanes.iter().map(|lane| (lane.min_sample(), lane.budgets())).collect();
            assert_eq!(found, [(Ns::ms(shortest), budgets)], "{case}");
        }
    }
}
