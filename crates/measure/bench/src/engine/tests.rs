//! What sampling does with a lane that records its calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallError, CallResult, Machine, StartGate};
use pathline_schema::{
    Bytes, Case, JournalRecord, Ns, RunSettings, SampledCase, Severity, StopReason, TimerKind,
    VerifyResult,
};

use pathline_sim::SimOptions;

use super::{ByGpu, CaseEngine, RunningCase, default_settings, fits};
use crate::block_sample::SampledBlock;
use crate::lane::{BoundLane, LaneSample};
use crate::plan::PlannedCase;
use crate::pool;
use crate::task::{CaseTask, TaskEvent, TaskStep};

#[derive(Debug, Clone, Copy, PartialEq)]
enum LaneCall {
    Spoil,
    Mark,
    Issue,
    Land,
    Check,
}

type Verdict = fn() -> CallResult<VerifyResult>;

/// A copy that left the right bytes at first, whose later operations copy nothing.
struct IdleCopy<'m> {
    machine: &'m Machine,
    calls: Rc<RefCell<Vec<LaneCall>>>,
    /// Time of the nth sample, and of it without a CPU.
    times: fn(usize) -> (Ns, Ns),
    has_blocks: bool,
    /// If not by its bytes.
    verdict: Option<Verdict>,
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
    fn land(&mut self) -> CallResult<()> {
        self.calls.borrow_mut().push(LaneCall::Land);
        Ok(())
    }
    fn check(&self) -> CallResult<VerifyResult> {
        self.calls.borrow_mut().push(LaneCall::Check);
        if let Some(verdict) = self.verdict {
            return verdict();
        }
        if self.calls.borrow().contains(&LaneCall::Spoil) {
            return Err(CallError::new(Severity::Corrupt, "check", "a copy", "wrong bytes"));
        }
        Ok(VerifyResult::Verified)
    }
}

pub(super) fn machine() -> Machine {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap()
}

pub(super) fn planned(case: &str) -> PlannedCase {
    PlannedCase::new(case.parse().unwrap())
}

/// Visits a case with such a lane to its end. Calls `look` with engine, case, reason and the lane's calls.
fn visit_to_the_end(
    times: fn(usize) -> (Ns, Ns),
    has_blocks: bool,
    look: impl Fn(&mut CaseEngine<'_>, &mut RunningCase<'_>, StopReason, &[LaneCall]),
) {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let entry = planned(COPY);
    let mut case = engine.bind(&entry).unwrap();
    let calls = Rc::new(RefCell::new(Vec::new()));
    let lane =
        IdleCopy { machine: &machine, calls: Rc::clone(&calls), times, has_blocks, verdict: None };
    case.lanes = vec![Box::new(lane)];
    (case.spent, case.reps) = (Ns::ZERO, 1);
    let reason = loop {
        // Another case was sampled since: each visit begins with an operation that no sample has.
        engine.sampled_last = 0;
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
        let issued = calls.iter().filter(|call| **call == LaneCall::Issue).count();
        assert_eq!(issued, case.samples() + 6, "one before each visit");
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
    let times = |nth| (Ns::ms(if nth == 7 { 300.0 } else { 1.0 }), Ns::ZERO);
    visit_to_the_end(times, false, |engine, case, _, calls| {
        assert!(case.spent > Ns::ms(300.0) && case.visits() < 6, "{:?}", case.series[0].visits);
        spoiled_before_the_last_visit(case, calls);
        assert!(engine.verify(case).is_err());
    });
}

/// 1 and 2 us in turn ask for more samples than a sixth of the most.
#[test]
fn no_visit_of_six_takes_more_than_a_sixth_of_the_samples() {
    let times = |nth| (Ns::us(1.0 + (nth % 2) as f64), Ns::ZERO);
    visit_to_the_end(times, false, |engine, case, _, _| {
        let most = case.series[0].visits.iter().max().copied();
        assert_eq!(most, Some(engine.settings.max_samples / 6));
    });
}

/// Threads without a CPU for 20 % of all samples, or of the first eight.
#[test]
fn disturbed_samples_do_not_end_a_case() {
    let all = |_| (Ns::ms(1.0), Ns::ms(0.2));
    visit_to_the_end(all, false, |_, case, reason, _| {
        assert_eq!((reason, case.visits()), (StopReason::Budget, 12));
    });
    let first = |nth| (Ns::ms(1.0), if nth < 11 { Ns::ms(0.2) } else { Ns::ZERO });
    visit_to_the_end(first, false, |_, case, reason, _| {
        assert!(reason == StopReason::Precise && (8..=10).contains(&case.visits()));
    });
}

const TWO_COPIES: &str =
    "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB & gpu2.vram > gpu3.vram by dma@gpu2 x 64MiB";

const COPY_AND_FILE: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB & store0.file > gpu2.vram by \
    uring@numa0[seq-read,direct,shared,1GiB,q4,n1,t1,pipelined-pinned] x 1MiB";

/// Every lane of a case is spoiled and judged; one that compared nothing, or not all, vouches for no path.
#[test]
fn each_lane_counts_in_the_verdict_of_a_case() {
    let fine: Verdict = || Ok(VerifyResult::Verified);
    let none: Verdict = || Ok(VerifyResult::Unverified("nothing".into()));
    let wrong: Verdict = || Err(CallError::new(Severity::Corrupt, "check", "a copy", "wrong"));
    let machine = machine();
    for (verdicts, sampled, expected, known) in [
        ([fine, fine], None, Ok(()), 2),
        ([fine, fine], Some(1), Ok(()), 0),
        ([fine, none], None, Err(false), 0),
        ([none, fine], None, Err(false), 0),
        ([fine, wrong], None, Err(true), 0),
        ([fine, wrong], Some(1), Err(true), 0),
    ] {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let mut case = engine.bind(&planned(TWO_COPIES)).unwrap();
        let calls = Rc::new(RefCell::new(Vec::new()));
        case.lanes.clear();
        for (verdict, has_blocks) in verdicts.into_iter().zip([true, false]) {
            let (calls, times, verdict) = (Rc::clone(&calls), undisturbed as _, Some(verdict));
            let lane = IdleCopy { machine: &machine, calls, times, has_blocks, verdict };
            case.lanes.push(Box::new(lane));
        }
        case.sampled = sampled;
        let of = match engine.verify(&mut case) {
            Ok(VerifyResult::Verified) => Ok(()),
            verdict => Err(verdict.is_err()),
        };
        assert_eq!((of, engine.verified.len()), (expected, known), "{sampled:?}");
        assert!(!case.has_blocks() && case.blocks(1)[0] != case.blocks(1)[1]);
        if sampled.is_some() || expected == Err(true) {
            continue;
        }
        // What a flow of files or messages left is compared after one more operation.
        case.entry = planned(COPY_AND_FILE);
        calls.borrow_mut().clear();
        (case.reps, engine.sampled_last) = (1, case.number);
        while engine.visit_to_compare(&mut case).unwrap().is_none() {}
        assert!(calls.borrow().iter().all(|call| *call == LaneCall::Issue), "spoiled in vain");
        calls.borrow_mut().clear();
        engine.verify(&mut case).unwrap();
        let steps = [LaneCall::Spoil, LaneCall::Issue, LaneCall::Land, LaneCall::Check];
        assert_eq!(*calls.borrow(), steps.map(|step| [step; 2]).concat());
    }
}

/// A sample of the bytes suffices only where every path of several had all of its bytes compared.
#[test]
fn blocks_are_compared_in_place_of_all_bytes_on_known_paths_only() {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let entry = planned(TWO_COPIES);
    for (flow, paths) in entry.case.timed.iter().zip(1..) {
        assert_eq!(engine.bind(&entry).unwrap().sampled, None);
        engine.verified.insert(super::copy_path(flow));
        assert_eq!(engine.verified.len(), paths);
    }
    assert!(engine.bind(&entry).unwrap().sampled.is_some());
    let one = planned("gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB");
    assert_eq!(engine.bind(&one).unwrap().sampled, None);
    // An operation shorter than 1 ms is timed as a difference.
    let differs = ["16B", "1GiB"].map(|size| {
        let entry = planned(&format!("gpu0.vram > gpu1.vram by dma@gpu0 x {size} isolated"));
        engine.bind(&entry).unwrap().differs
    });
    assert_eq!(differs, [true, false]);
    // A copy of 5 us takes 0.5 ms of repetitions, whatever was found for its class before.
    let short = planned("gpu0.vram > gpu1.vram by dma@gpu0 x 64KiB");
    engine.known_reps.learn(&short.case, 1, Ns::ms(1.0));
    assert!(engine.bind(&short).unwrap().reps > 50);
}

/// A search for repetitions returns the duration of one: what a sample takes, divided by them.
#[test]
fn repetitions_are_found_with_the_duration_of_one() {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    for case in ["gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB", TWO_COPIES] {
        let mut case = engine.bind(&planned(case)).unwrap();
        case.reps = 1;
        let each = engine.find_reps(&mut case).unwrap();
        let laps = engine.sample(&mut case).unwrap();
        let sample = laps.iter().map(|lap| lap.elapsed.0).fold(0.0, f64::max);
        assert!(sample >= 0.9 * engine.shortest(&case), "{sample} ns");
        assert!((each.0 * case.reps as f64 / sample - 1.0).abs() < 0.1, "{each} of {sample} ns");
    }
}

/// Whatever moves the bytes, its comparison fails while nothing was stored since the destination was spoiled.
#[test]
fn every_lane_that_stored_nothing_fails_its_comparison() {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    for case in [
        "gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB",
        "gpu0.vram > gpu1.vram by blit@gpu0 x 16MiB",
        "gpu0.vram > gpu1.vram by kernel@gpu1[copy-w16-u4-b256-g2sm] x 16MiB",
        "gpu0.vram > gpu2.vram by staged@gpu0[numa3] x 16MiB",
        "gpu0.vram > gpu1.vram by relay@gpu1[gpu2,2MiB,blit] x 16MiB",
        "numa3.paged > gpu0.vram by threads@gpu0[4] x 16MiB",
        "gpu0.vram > numa3.paged by threads@gpu0[4] x 16MiB",
        "numa3.pinned > gpu0.vram by blocks@gpu0[256-g8] x 8MiB",
        "numa0.huge > numa1.huge by cpu@numa0[copy-memcpy-t1] x 16MiB",
    ] {
        let mut case = engine.bind(&planned(case)).unwrap();
        for lane in &mut case.lanes {
            assert_eq!(lane.check().unwrap(), VerifyResult::Verified, "{}", case.entry.case);
            lane.spoil().unwrap();
            assert!(lane.check().is_err(), "{}", case.entry.case);
        }
    }
}

/// Visits are spread over eight budgets, 2 s at most, and over a longer budget. In a run that may be cut it is the
/// rest of the budget, or half of it if the start took more.
#[test]
fn visits_are_spread_over_what_a_run_can_afford() {
    let machine = machine();
    for (budget, spent, limit, over) in [
        (100.0, 0.0, 0.0, 800.0),
        (250.0, 200.0, 0.0, 2000.0),
        (1000.0, 0.0, 0.0, 2000.0),
        (3000.0, 500.0, 0.0, 2500.0),
        (240.0, 60.0, 1.0, 180.0),
        (240.0, 200.0, 1.0, 120.0),
    ] {
        let (case_budget, time_limit) = (Ns::ms(budget), Ns::ms(limit));
        let settings = RunSettings { case_budget, time_limit, ..default_settings(Bytes::gib(64)) };
        let mut engine = CaseEngine::new(&machine, settings);
        let mut case = engine.bind(&planned(TWO_COPIES)).unwrap();
        (case.spent, case.entry.span) = (Ns::ms(spent), 8.0);
        engine.spread_visits(&mut case);
        assert!(
            (case.stretch.0 * 6.0 / 1e6 - over).abs() < 1e-6,
            "{} of {over} ms",
            case.stretch * 6.0
        );
    }
}

const COPY: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB";

/// The second copy of a class has the repetitions of the first, of which one sample is enough; that lasts less than
/// twice the shortest.
#[test]
fn what_a_class_has_calibrated_is_not_calibrated_again() {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let [first, second] = [1, 2].map(|peer| {
        let copy = format!("gpu0.vram > gpu{peer}.vram by dma@gpu0 x 1MiB");
        engine.bind(&planned(&copy)).unwrap()
    });
    assert_eq!((second.reps, second.warmup), (first.reps, 1));
    assert!(first.warmup >= 4, "{}", first.warmup);
}

/// The first case that uses an engine loads it until 50 ms after the case was bound, of which its calibration takes
/// some. That time is no part of the case's budget.
#[test]
fn to_load_an_engine_costs_no_case_its_budget() {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let [first, second] = [1, 2].map(|peer| {
        let copy = format!("gpu0.vram > gpu{peer}.vram by dma@gpu0 x 1MiB");
        let begun = machine.clock.now();
        let case = engine.bind(&planned(&copy)).unwrap();
        let all = machine.clock.now() - begun;
        assert!(case.spent > Ns::ZERO && case.spent + case.load <= all, "{} of {all}", case.spent);
        case.load
    });
    assert!(first > Ns::ms(40.0) && second == Ns::ZERO, "{first}, {second}");
}

/// What the journal gets of a case that is interrupted at a visit.
fn records_until(visit: u32) -> (Vec<SampledCase>, PlannedCase) {
    let (machine, copy) = (machine(), planned("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB"));
    let (visits, mut records) = (Cell::new(0), Vec::<SampledCase>::new());
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let task = CaseTask { entries: vec![copy.clone()], carried: Vec::new() };
    let interrupt = || (visits.get() == visit).then(|| "a person".to_owned());
    let mut sink = |event: TaskEvent| {
        match event {
            TaskEvent::StepStarted { step: TaskStep::Visit, .. } => visits.set(visits.get() + 1),
            TaskEvent::Record(JournalRecord::Sampled(case)) => records.push(case),
            _ => {}
        }
        Ok(())
    };
    engine.measure(&task, &interrupt, &mut sink).unwrap();
    (records, copy)
}

/// The third visit is interrupted: the samples of the second, too few for a record, are written all the same.
/// A resumed case goes on with these samples and their repetitions, and writes none twice, unless another clock timed
/// them. Before the first visit there is nothing to write.
#[test]
fn no_sample_of_an_interrupted_case_is_lost_or_written_twice() {
    assert_eq!(records_until(1).0.len(), 0);
    let (mut records, copy) = records_until(3);
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let visits = |record: &SampledCase| record.series[0].visits.clone();
    assert_eq!(records.iter().map(visits).collect::<Vec<_>>(), [[3], [3]]);
    let later = records.pop().unwrap();
    records[0].add(later);
    records[0].series[0].reps += 1;
    let reps = records[0].series[0].reps;
    engine.carried.insert(copy.case.clone(), records.remove(0));
    let mut case = engine.bind(&copy).unwrap();
    assert_eq!((case.reps, case.samples()), (reps, 6));
    engine.visit(&mut case).unwrap();
    let new = &case.unwritten().series[0];
    assert_eq!((new.samples_ns.len(), &*new.visits, case.samples()), (3, &[3][..], 9));
    engine.carried.get_mut(&copy.case).unwrap().series[0].timer = TimerKind::Host;
    assert_eq!(engine.bind(&copy).unwrap().samples(), 0);
}

/// A copy timed as a difference, a sum of two ranks, reads of files by ranks and by one process: the bytes of an
/// operation in MiB, and the columns that have a value for each sample.
const RECORDED: [(&str, u64, &str); 4] = [
    ("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB isolated", 1, "start"),
    ("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x 2MiB", 2, "ranks"),
    (
        "r0.store0.file > r0.numa0.paged by uring@numa0[rand-read,direct,own,1GiB,q4,n1,t1] x 1MiB & \
         r1.store0.file > r1.numa0.paged by uring@numa0[rand-read,direct,own,1GiB,q4,n1,t1] x 1MiB",
        1,
        "io",
    ),
    (
        "store0.file > numa0.paged by uring@numa0[rand-read,direct,shared,1GiB,q4,n1,t2] x 1MiB",
        1,
        "io",
    ),
];

/// A record has each sample once in each of its columns, and later records only what is new. Without an interval a
/// figure may be wrong by all of it.
#[test]
fn records_have_each_sample_once_in_every_column() {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    let options = SimOptions { ranks: 2, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options).unwrap();
    for (text, mib, columns) in RECORDED {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let mut case = engine.bind(&planned(text)).unwrap();
        assert!((case.half_width() - 1.0).abs() < 1e-9, "{text}");
        let opened = &case.series[0];
        assert_eq!(opened.steps, opened.reps, "{text}");
        assert_eq!(opened.moved_bytes, Bytes::mib(mib * opened.reps), "{text}");
        for visits in [2, 1] {
            let before = case.samples();
            (0..visits).for_each(|_| engine.visit(&mut case).unwrap());
            let new = case.samples() - before;
            let written = case.unwritten().series.remove(0);
            assert_eq!((written.samples_ns.len(), written.visits.len()), (new, visits), "{text}");
            assert_eq!(written.visits.iter().sum::<u32>() as usize, new, "{text}");
            let lengths = [
                ("start", written.start_ns.len()),
                ("ranks", written.by_rank.values().map(Vec::len).sum::<usize>() / 2),
                ("io", written.io.len()),
            ];
            for (column, length) in lengths {
                let expected = if columns.contains(column) { new } else { 0 };
                assert_eq!(length, expected, "{text}: {column}");
            }
        }
        (0..3).for_each(|_| engine.visit(&mut case).unwrap());
        assert!(case.half_width() < 0.2, "{text}: {}", case.half_width());
    }
}

/// Each visit is due at a drawn moment of its stretch of time. Visits that are made when they are due lie 0 to 2
/// stretches apart, no distance comes back, and the nth is n stretches after the first, give or take one.
#[test]
fn visits_are_due_at_drawn_moments() {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let mut case = engine.bind(&planned(COPY)).unwrap();
    case.stretch = Ns::secs(1.0);
    let begun = machine.clock.now();
    let mut distances = Vec::new();
    for nth in 1..=8 {
        let visited = machine.clock.now();
        engine.visit(&mut case).unwrap();
        let stretches = |from: Ns| (case.due - from).0 / 1e9;
        assert!((stretches(begun) - f64::from(nth)).abs() < 1.0, "{nth}: {}", stretches(begun));
        distances.push(stretches(visited));
        machine.clock.sleep(case.due - machine.clock.now());
    }
    distances.sort_by(f64::total_cmp);
    assert!(distances.windows(2).all(|two| two[1] - two[0] > 1e-6), "{distances:?}");
    assert!(distances[0] > 0.0 && distances[7] < 2.0 && distances[7] - distances[0] > 0.2);
}

/// The next visit is that which is due first, at a random moment of the case's stretch of time.
#[test]
fn visits_follow_each_other_as_they_are_due() {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let mut open: Vec<_> =
        [COPY, TWO_COPIES, COPY_AND_FILE].map(|case| engine.bind(&planned(case)).unwrap()).into();
    open.iter_mut().zip([1e9, 1.0, 1e6]).for_each(|(case, stretch)| case.stretch = Ns(stretch));
    let mut order = Vec::new();
    let mut sink = |event: TaskEvent| {
        if let TaskEvent::StepStarted { case, .. } = event {
            order.push(case);
        }
        Ok(())
    };
    engine.take_turns(open, &|| Some("a person".into()), &mut sink).unwrap();
    assert_eq!(order, [TWO_COPIES, COPY_AND_FILE, COPY].map(|case| planned(case).case));
}

/// Cases share 64 GiB while their buffers fit: two of 16 and two of 15 GiB, which the third uses again, but not two
/// of 2 GiB more. What does not fit by itself is a batch of one, and so is the first case of a run that may be cut.
#[test]
fn cases_are_taken_together_while_their_buffers_fit() {
    let machine = machine();
    let batches = |time_limit: Ns, cases: &[(u32, u32)]| {
        let settings = RunSettings { time_limit, ..default_settings(Bytes::gib(64)) };
        let engine = CaseEngine::new(&machine, settings);
        let copy = |(threads, gib): &(u32, u32)| {
            planned(&format!(
                "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t{threads}] x {gib}GiB"
            ))
        };
        let mut waiting: VecDeque<PlannedCase> = cases.iter().map(copy).collect();
        let mut lengths = Vec::new();
        while !waiting.is_empty() {
            lengths.push(engine.take_batch(&mut waiting).len());
        }
        lengths
    };
    assert_eq!(batches(Ns::ZERO, &[(1, 16), (1, 15), (2, 16), (1, 2), (1, 1)]), [3, 2]);
    assert_eq!(batches(Ns::ZERO, &[(1, 40), (1, 1), (1, 2)]), [1, 2]);
    assert_eq!(batches(Ns::ms(1.0), &[(1, 1), (1, 2)]), [1, 1]);
}

/// Two buffers of 2^63 B are 2^64 B, which wraps to 0.
#[test]
fn sizes_that_no_machine_has_do_not_fit() {
    let desc = MachineDesc::preset("hgx-h200").expect("a preset");
    let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).expect("a machine");
    let case = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 9223372036854775808B";
    let buffers = pool::buffers(&case.parse().expect("a case")).collect();
    assert!(!fits(&machine, Bytes::gib(64), &buffers, &ByGpu::new()));
    // Two buffers each: of 64 GiB of the host, and of half of a GPU's 139 GiB.
    let host = ("numa0.huge", "cpu@numa0[copy-memcpy-t1]", [32, 33]);
    for (place, by, sizes) in [host, ("gpu0.vram", "dma@gpu0", [34, 35])] {
        let fit = sizes.map(|gib| {
            let case = format!("{place} > {place} by {by} x {gib}GiB").parse().expect("a case");
            fits(&machine, Bytes::gib(64), &pool::buffers(&case).collect(), &ByGpu::new())
        });
        assert_eq!(fit, [true, false], "{place}");
    }
}

/// The steps and records of two cases of a batch, without repeated visits. An interrupted run starts
/// nothing more and verifies nothing.
#[test]
fn each_step_is_announced_and_a_run_that_ends_begins_nothing() {
    let cases = [COPY, "gpu1.vram > gpu0.vram by dma@gpu1 x 64MiB"];
    let trace = |most_checks: usize| {
        let machine = machine();
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let task = CaseTask { entries: cases.map(planned).to_vec(), carried: Vec::new() };
        let nth = |case: &Case| usize::from(*case != cases[0].parse().unwrap());
        let (mut events, checks) = (Vec::new(), Cell::new(0));
        let interrupt = || {
            checks.set(checks.get() + 1);
            (checks.get() > most_checks).then(|| "time".to_owned())
        };
        let mut sink = |event: TaskEvent| {
            let text = match event {
                TaskEvent::StepStarted { case, step } => format!("{}{}", step.word(), nth(&case)),
                TaskEvent::Record(JournalRecord::Measured(m)) => {
                    format!("measured{}", nth(&m.case))
                }
                TaskEvent::Record(JournalRecord::Sampled(_)) => return Ok(()),
                TaskEvent::Record(other) => format!("{other:?}"),
            };
            if events.last() != Some(&text) {
                events.push(text);
            }
            Ok(())
        };
        engine.measure(&task, &interrupt, &mut sink).unwrap();
        events.join(" ")
    };
    let whole = trace(usize::MAX);
    assert!(whole.starts_with("bind0 visit0 bind1 visit1 visit0 visit1"), "{whole}");
    assert!(whole.ends_with("verify0 measured0 visit1 verify1 measured1"), "{whole}");
    for (checks, expected) in [
        (0, ""),
        (1, "bind0"),
        (2, "bind0 visit0 bind1"),
        (3, "bind0 visit0 bind1 visit0"),
        (4, "bind0 visit0 bind1 visit1 visit0"),
    ] {
        assert_eq!(trace(checks), expected, "{checks}");
    }
}
