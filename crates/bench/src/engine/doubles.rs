//! What sampling does with a lane that records its calls.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallError, CallResult, Machine, StartGate};
use pathline_schema::{Bytes, Ns, Severity, StopReason, TimerKind, VerifyResult};

use super::{CaseEngine, RunningCase, default_settings};
use crate::block_sample::SampledBlock;
use crate::lane::{BoundLane, LaneSample};
use crate::plan::PlannedCase;

#[derive(Debug, Clone, Copy, PartialEq)]
enum LaneCall {
    Spoil,
    Mark,
    Issue,
}

/// A copy that left the right bytes at first, whose later operations copy nothing.
struct IdleCopy<'m> {
    machine: &'m Machine,
    calls: Rc<RefCell<Vec<LaneCall>>>,
    /// Time of the nth sample, and of it without a CPU.
    times: fn(usize) -> (Ns, Ns),
    has_blocks: bool,
}

impl BoundLane for IdleCopy<'_> {
    fn issue(&mut self, _: &StartGate<'_>, _: u64) -> CallResult<()> {
        self.calls.borrow_mut().push(LaneCall::Issue);
        Ok(())
    }
    fn wait(&mut self) -> CallResult<LaneSample> {
        let issued = self.calls.borrow().iter().filter(|call| **call == LaneCall::Issue).count();
        let (time, lost) = (self.times)(issued - 1);
        self.machine.clock.sleep(time);
        Ok(LaneSample { off_cpu: Some(lost), ..LaneSample::of(time, 1) })
    }
    fn timer(&self) -> TimerKind {
        TimerKind::Threads
    }
    fn engine(&self) -> String {
        "idle".to_owned()
    }
    fn spoil(&mut self) -> CallResult<()> {
        self.calls.borrow_mut().push(LaneCall::Spoil);
        Ok(())
    }
    fn has_blocks(&self) -> bool {
        self.has_blocks
    }
    fn spoil_blocks(&mut self, blocks: &[SampledBlock]) -> CallResult<()> {
        // 64 MiB: both ends and up to four drawn places, 4 KiB each.
        assert!((2..=6).contains(&blocks.len()) && blocks.iter().all(|(_, bytes)| *bytes == 4096));
        self.calls.borrow_mut().push(LaneCall::Mark);
        Ok(())
    }
    fn check(&self) -> CallResult<VerifyResult> {
        if self.calls.borrow().contains(&LaneCall::Spoil) {
            return Err(CallError::new(Severity::Corrupt, "check", "a copy", "wrong bytes"));
        }
        Ok(VerifyResult::Verified)
    }
}

/// Visits a case with such a lane to its end. Calls `look` with engine, case, reason and the lane's calls.
fn visit_to_the_end(
    times: fn(usize) -> (Ns, Ns),
    has_blocks: bool,
    look: impl Fn(&mut CaseEngine<'_>, &mut RunningCase<'_>, StopReason, &[LaneCall]),
) {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let entry = PlannedCase {
        case: "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB".parse().unwrap(),
        suites: Vec::new(),
        skip: None,
        group: 0,
        env: BTreeMap::new(),
        budget: None,
    };
    let mut case = engine.bind(&entry).unwrap();
    let calls = Rc::new(RefCell::new(Vec::new()));
    let lane = IdleCopy { machine: &machine, calls: Rc::clone(&calls), times, has_blocks };
    case.lanes = vec![Box::new(lane)];
    (case.spent, case.reps) = (Ns::ZERO, 1);
    let reason = loop {
        if let Some(reason) = engine.visit_to_compare(&mut case).unwrap() {
            break reason;
        }
    };
    let calls = calls.borrow().clone();
    look(&mut engine, &mut case, reason, &calls);
}

fn undisturbed(_: usize) -> (Ns, Ns) {
    (Ns::ms(1.0), Ns::ZERO)
}

/// After destinations were spoiled, only samples that count ran.
fn spoiled_before_the_last_visit(case: &RunningCase<'_>, calls: &[LaneCall]) {
    let after = calls.iter().rev().take_while(|call| **call == LaneCall::Issue).count();
    assert!(calls.contains(&LaneCall::Spoil));
    assert_eq!(Some(after as u32), case.series[0].visits.last().copied());
}

#[test]
fn bytes_that_no_timed_operation_stored_are_not_verified() {
    visit_to_the_end(undisturbed, false, |engine, case, reason, calls| {
        assert_eq!((reason, case.visits()), (StopReason::Precise, 6));
        spoiled_before_the_last_visit(case, calls);
        assert!(engine.verify(case).is_err());
    });
}

/// What CPUs have just written is slow to store to once, and no timed operation is the one that pays.
#[test]
fn an_untimed_operation_takes_what_was_spoiled_and_timed_ones_correct_marks() {
    visit_to_the_end(undisturbed, true, |engine, case, _, calls| {
        let spoilt = calls.iter().position(|call| *call == LaneCall::Spoil).unwrap();
        let after = &calls[spoilt..];
        assert_eq!(after[..3], [LaneCall::Spoil, LaneCall::Issue, LaneCall::Mark]);
        spoiled_before_the_last_visit(case, calls);
        assert!(engine.verify(case).is_err());
    });
}

/// The sixth sample takes 300 ms of 250: nobody expected the third visit to be the last.
#[test]
fn another_visit_follows_an_unexpected_end() {
    let times = |nth| (Ns::ms(if nth == 5 { 300.0 } else { 1.0 }), Ns::ZERO);
    visit_to_the_end(times, false, |engine, case, _, calls| {
        assert!(case.spent > Ns::ms(300.0) && case.visits() < 6, "{:?}", case.series[0].visits);
        spoiled_before_the_last_visit(case, calls);
        assert!(engine.verify(case).is_err());
    });
}

/// Threads without a CPU for 20 % of all samples, or of the first eight.
#[test]
fn disturbed_samples_do_not_end_a_case() {
    let all = |_| (Ns::ms(1.0), Ns::ms(0.2));
    visit_to_the_end(all, false, |_, case, reason, _| {
        assert_eq!((reason, case.visits()), (StopReason::Budget, 12));
    });
    let first = |nth| (Ns::ms(1.0), if nth < 8 { Ns::ms(0.2) } else { Ns::ZERO });
    visit_to_the_end(first, false, |_, case, reason, _| {
        assert!(reason == StopReason::Precise && (8..=10).contains(&case.visits()));
    });
}
