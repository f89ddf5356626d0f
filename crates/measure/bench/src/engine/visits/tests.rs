//! How often, how long and when a case is sampled, with lanes whose times are set.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{
    CallResult, Clock, GateId, Host, HostDomain, Machine, StartGate, TeamId, TeamResult, TeamWork,
    ThreadTeam,
};
use pathline_schema::{
    Bytes, Conditions, CpuHow, FlowSeries, MemKind, Ns, RunSettings, StopReason, TimerKind,
    VerifyResult, WorldKind,
};

use crate::engine::tests::{machine, planned};
use crate::engine::{CaseEngine, RunningCase, default_settings};
use crate::lane::{BoundLane, LaneSample};

/// A lane whose operations take a set time each.
struct TimedLane<'m> {
    machine: &'m Machine,
    /// Repetitions of each sample so far.
    issued: Rc<RefCell<Vec<u64>>>,
    /// Time of one operation of the nth sample.
    each: fn(usize) -> Ns,
    most: u64,
    least: u64,
    repeats: bool,
    adds_up: bool,
    lands: bool,
    team: Option<ThreadTeam<'m>>,
}

impl BoundLane for TimedLane<'_> {
    fn issue(&mut self, _: &StartGate<'_>, reps: u64) -> CallResult<()> {
        self.issued.borrow_mut().push(reps);
        Ok(())
    }
    fn wait(&mut self) -> CallResult<LaneSample> {
        let nth = self.issued.borrow().len() - 1;
        let reps = self.issued.borrow()[nth];
        let time = (self.each)(nth) * reps as f64;
        self.machine.clock.sleep(time);
        Ok(LaneSample::of(time, reps))
    }
    fn timer(&self) -> TimerKind {
        TimerKind::Threads
    }
    fn engine(&self) -> String {
        "timed".to_owned()
    }
    fn repeats(&self) -> bool {
        self.repeats
    }
    fn most(&self) -> u64 {
        self.most
    }
    fn least(&self) -> u64 {
        self.least
    }
    fn adds_up(&self) -> bool {
        self.adds_up
    }
    fn lands(&self) -> bool {
        self.lands
    }
    fn team(&self) -> Option<&ThreadTeam<'_>> {
        self.team.as_ref()
    }
    fn spoil(&mut self) -> CallResult<()> {
        Ok(())
    }
    fn check(&self) -> CallResult<VerifyResult> {
        Ok(VerifyResult::Verified)
    }
}

/// A clock that takes 5 ms to read.
struct SlowClock(Cell<f64>);

impl Clock for SlowClock {
    fn now(&self) -> Ns {
        self.sleep(Ns::ms(5.0));
        Ns(self.0.get())
    }
    fn sleep(&self, time: Ns) {
        self.0.set(self.0.get() + time.0);
    }
    fn name(&self) -> &str {
        "slow"
    }
}

/// The host of a model that numbers the readings of its state.
struct BusyHost(Box<dyn Host>, Cell<u32>);

impl BusyHost {
    fn number(&self, name: &str) -> Conditions {
        self.1.set(self.1.get() + 1);
        Conditions([(name.to_owned(), f64::from(self.1.get()))].into())
    }
}

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $gives:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $gives { self.0.$name($($arg),*) })*
    };
}

impl Host for BusyHost {
    pass_on! {
        domains() -> Vec<HostDomain>;
        instructions() -> Vec<CpuHow>;
        alloc(numa: u32, mem: MemKind, bytes: Bytes) -> CallResult<u64>;
        free(address: u64) -> CallResult<()>;
        discard(address: u64) -> CallResult<()>;
        huge_bytes(address: u64) -> Option<Bytes>;
        page_domains(address: u64, bytes: Bytes) -> Option<BTreeMap<u32, u64>>;
        fill(address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()>;
        check(address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>>;
        check_stored(work: &TeamWork) -> CallResult<Option<u64>>;
        check_read(team: TeamId, work: &TeamWork, seed: u64) -> CallResult<bool>;
        team_create(numa: u32, threads: u32) -> CallResult<TeamId>;
        team_destroy(team: TeamId) -> CallResult<()>;
        submit(team: TeamId, gate: GateId, work: &TeamWork) -> CallResult<()>;
        reap(team: TeamId) -> CallResult<TeamResult>;
        gate_create() -> CallResult<GateId>;
        gate_release(gate: GateId) -> CallResult<()>;
        gate_destroy(gate: GateId) -> CallResult<()>;
    }
    fn conditions(&self) -> Conditions {
        self.number("probe")
    }
    fn cpu_use(&self) -> Conditions {
        self.number("own_cpus")
    }
}

const COPY: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB";
const LOADED: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB while \
    numa1.huge > numa1.huge by cpu@numa1[copy-memcpy-t1] x 1MiB";

/// Repetitions of each sample of one lane.
type Issued = Rc<RefCell<Vec<u64>>>;

fn timed_lane(machine: &Machine, each: fn(usize) -> Ns) -> (TimedLane<'_>, Issued) {
    let issued = Issued::default();
    let (most, least, repeats, adds_up, lands) = (1 << 20, 1, true, false, false);
    let (of, team) = (Rc::clone(&issued), None);
    let lane = TimedLane { machine, issued: of, each, most, least, repeats, adds_up, lands, team };
    (lane, issued)
}

/// A case without samples whose lane is replaced by this one.
fn with_lane<'m>(
    engine: &mut CaseEngine<'m>,
    case: &str,
    lanes: Vec<TimedLane<'m>>,
) -> RunningCase<'m> {
    let mut case = engine.bind(&planned(case)).unwrap();
    case.lanes = lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn BoundLane>).collect();
    (case.reps, case.background_reps, case.spent, case.warmup) = (1, 1, Ns::ZERO, 0);
    case
}

fn sampled(case: &mut RunningCase<'_>, visits: &[u32], sample: Ns) {
    let count = visits.iter().sum::<u32>() as usize;
    for series in &mut case.series {
        *series = FlowSeries {
            samples_ns: vec![sample.0; count],
            visits: visits.to_vec(),
            ..series.clone()
        };
    }
}

/// Until its next visit a case runs whole operations of 1 ms: as many as fit, in samples of at most as many
/// as a lane takes, for at most twice its stretch. The first of a case without samples is one operation.
#[test]
fn a_wait_is_filled_with_whole_operations() {
    let mut machine = machine();
    machine.world = WorldKind::Real;
    for (due, stretch, most, repeats, last, expected) in [
        (10.5, 100.0, 1 << 20, true, 1.0, &[10][..]),
        (10.5, 100.0, 4, true, 1.0, &[4, 4, 2]),
        (3.5, 100.0, 4, false, 1.0, &[1, 1, 1]),
        (10.5, 100.0, 1 << 20, true, 0.0, &[1, 9]),
        (0.9, 100.0, 1 << 20, true, 1.0, &[]),
        (1.1, 100.0, 1 << 20, true, 1.0, &[1]),
        (-5.0, 100.0, 1 << 20, true, 1.0, &[]),
        (900.0, 2.25, 1 << 20, true, 1.0, &[4]),
    ] {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let (lane, issued) = timed_lane(&machine, |_| Ns::ms(1.0));
        let mut case = with_lane(&mut engine, COPY, vec![TimedLane { most, repeats, ..lane }]);
        sampled(&mut case, &[u32::from(last > 0.0)], Ns::ms(last * 3.0));
        (case.reps, case.stretch) = (3, Ns::ms(stretch));
        case.due = machine.clock.now() + Ns::ms(due);
        engine.pass_time(&mut case).unwrap();
        assert_eq!(*issued.borrow(), expected, "due in {due} ms");
        assert_eq!(case.reps, 3);
    }
}

/// Operations of nothing end a wait after 1000, and a model sleeps.
#[test]
fn no_wait_is_endless_and_a_model_sleeps() {
    for (world, operations) in [(WorldKind::Real, 1000), (WorldKind::Simulated(String::new()), 0)] {
        let mut machine = machine();
        machine.world = world;
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let (lane, issued) = timed_lane(&machine, |_| Ns::ZERO);
        let mut case = with_lane(&mut engine, COPY, vec![lane]);
        let begun = machine.clock.now();
        (case.due, case.stretch) = (begun + Ns::ms(900.0), Ns::ms(500.0));
        engine.pass_time(&mut case).unwrap();
        let waited = (machine.clock.now() - begun).0 / 1e6;
        assert_eq!(issued.borrow().len(), operations);
        assert_eq!((899.0..901.0).contains(&waited), operations == 0, "{waited} ms");
    }
}

/// A sample lasts 500 us, and its background twice as long. Threads see a background of 3 ms twice. A first
/// sample of 20 times the shortest is no cold start.
#[test]
fn repetitions_suit_the_timer_and_the_background() {
    let machine = machine();
    let us = |n: u32| -> fn(usize) -> Ns {
        match n {
            100 => |_| Ns::us(100.0),
            300 => |_| Ns::us(300.0),
            3000 => |_| Ns::ms(3.0),
            9900 => |_| Ns::ms(9.9),
            10_100 => |_| Ns::ms(10.1),
            // Twelve times as long the first time.
            _ => |nth| Ns::us(if nth == 0 { 1200.0 } else { 100.0 }),
        }
    };
    for (timed, background, threads, least, reps, background_reps, samples) in [
        (100, 300, false, 1, 5, 4, 2),
        (100, 300, true, 1, 6, 4, 2),
        (100, 3000, true, 1, 60, 4, 2),
        (100, 3000, false, 1, 5, 1, 2),
        (100, 300, false, 40, 40, 27, 2),
        (0, 300, false, 1, 5, 4, 3),
        (9900, 300, false, 1, 1, 66, 2),
        (10_100, 300, false, 1, 1, 68, 1),
    ] {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let (lane, issued) = timed_lane(&machine, us(timed));
        let team = threads.then(|| machine.team(0, 1).unwrap());
        let (loading, _) = timed_lane(&machine, us(background));
        let lanes = vec![TimedLane { least, team, ..lane }, loading];
        let mut case = with_lane(&mut engine, LOADED, lanes);
        let each = engine.find_reps(&mut case).unwrap();
        let last = if timed == 0 { 100.0 } else { f64::from(timed) };
        assert!((each.0 / last / 1e3 - 1.0).abs() < 1e-9, "{each}");
        let found = (case.reps, case.background_reps, issued.borrow().len());
        assert_eq!(found, (reps, background_reps, samples), "{timed} by {background} us");
    }
}

/// Times that fall by 5 % a sample never settle: a fifth of 250 ms ends the warm-up. One operation of the
/// share is enough, and where a case of the class has settled, two that agree.
#[test]
fn a_warm_up_takes_a_fifth_of_the_budget_at_most() {
    let machine = machine();
    let flat: fn(usize) -> Ns = |_| Ns::ms(1.0);
    let falling: fn(usize) -> Ns = |nth| Ns::ms(4.0 * 0.95_f64.powi(nth as i32));
    // 4 (1 - 0.95^n) / 0.05 reaches 50 at n = 20: 51.3.
    for (each, first, taken, load, samples) in [
        (falling, 4.0, false, 0.0, 20),
        (falling, 50.0, false, 0.0, 0),
        (flat, 1.0, false, 0.0, 4),
        (flat, 1.0, true, 0.0, 1),
        (flat, 1.0, true, 1.0, 3),
    ] {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let (lane, issued) = timed_lane(&machine, each);
        let mut case = with_lane(&mut engine, COPY, vec![lane]);
        case.load = Ns::ms(load);
        engine.warm(&mut case, Ns::ms(first), taken).unwrap();
        assert_eq!((issued.borrow().len(), case.warmup), (samples, samples as u32), "{first} ms");
    }
}

/// Another case has the caches: one operation, unless each takes 5 ms or its lane lands. A reading of the
/// state has them: a whole sample, unless that takes 20 ms or none was taken.
#[test]
fn what_caches_lost_is_fetched_before_a_visit() {
    let machine = machine();
    for (others, spoilt, last, reps, lands, expected) in [
        (true, false, 12.0, 3, false, &[1][..]),
        (true, false, 15.1, 3, false, &[]),
        (true, false, 12.0, 3, true, &[]),
        (false, false, 12.0, 3, false, &[]),
        (false, true, 12.0, 3, false, &[3]),
        (false, true, 19.9, 3, false, &[3]),
        (false, true, 20.1, 3, false, &[]),
        (false, true, 0.0, 3, false, &[]),
        (true, true, 12.0, 3, false, &[1, 3]),
    ] {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let (lane, issued) = timed_lane(&machine, |_| Ns::ms(4.0));
        let mut case = with_lane(&mut engine, COPY, vec![TimedLane { lands, ..lane }]);
        sampled(&mut case, &[u32::from(last > 0.0)], Ns::ms(last));
        case.reps = reps;
        engine.sampled_last = if others { 0 } else { case.number };
        engine.caches_spoilt.set(spoilt);
        engine.rewarm(&mut case).unwrap();
        let seen = issued.borrow().clone();
        assert_eq!(seen, expected, "{last} ms");
        assert_eq!(case.warmup, u32::from(seen.contains(&3)));
        assert_eq!(engine.caches_spoilt.get(), spoilt && case.warmup == 0);
        let ms = 4.0 * seen.iter().sum::<u64>() as f64;
        assert!((case.spent.0 / 1e6 - ms).abs() < 0.1, "{} of {ms} ms", case.spent);
    }
}

/// Six visits of clean samples, 3 samples where the budget is spent, 12 visits or the most samples end a case.
/// A visit is the last but one if the sixth, the most samples or the end of the budget follow it.
#[test]
fn visits_samples_and_time_each_end_a_case() {
    let machine = machine();
    for (visits, min, spent, reason, may_stop) in [
        (&[3; 5][..], 6, 0.0, None, true),
        (&[3; 4], 6, 0.0, None, false),
        (&[3; 6], 6, 0.0, Some(StopReason::Precise), true),
        (&[3; 6], 19, 0.0, None, true),
        (&[1, 1], 6, 250.0, None, true),
        (&[2, 1], 6, 250.0, Some(StopReason::Budget), true),
        (&[2, 1], 6, 249.0, None, true),
        // Three samples of 10 ms and a tenth more are 33 ms.
        (&[2, 1], 6, 217.5, None, true),
        (&[2, 1], 6, 216.5, None, false),
        (&[1; 12], 30, 0.0, Some(StopReason::Precise), true),
        (&[1; 11], 30, 0.0, None, true),
        (&[40, 59], 6, 0.0, None, true),
        (&[40, 60], 6, 0.0, Some(StopReason::Budget), true),
        (&[40, 56], 6, 0.0, None, false),
        (&[40, 57], 6, 0.0, None, true),
    ] {
        let settings = RunSettings { min_samples: min, ..default_settings(Bytes::gib(64)) };
        let mut engine = CaseEngine::new(&machine, settings);
        let (lane, _) = timed_lane(&machine, |_| Ns::ms(10.0));
        let mut case = with_lane(&mut engine, COPY, vec![lane]);
        sampled(&mut case, visits, Ns::ms(10.0));
        case.spent = Ns::ms(spent);
        assert_eq!(engine.stop(&case), reason, "{visits:?}, {spent} ms");
        assert_eq!(engine.may_stop(&case), may_stop, "{visits:?}, {spent} ms");
    }
}

/// A visit takes three samples, one of 12.5 ms of 250 or longer, and none after the budget once there are three.
#[test]
fn a_visit_ends_by_its_samples_or_its_share_of_the_budget() {
    let machine = machine();
    let ms = |n: u32| -> fn(usize) -> Ns {
        match n {
            1 => |_| Ns::ms(1.0),
            6 => |_| Ns::ms(6.0),
            7 => |_| Ns::ms(7.0),
            12 => |_| Ns::ms(12.0),
            _ => |_| Ns::ms(13.0),
        }
    };
    for (each, before, spent, samples) in [
        (1, 0, 0.0, 3),
        (6, 0, 0.0, 3),
        (7, 0, 0.0, 2),
        (12, 0, 0.0, 2),
        (13, 0, 0.0, 1),
        (1, 0, 260.0, 3),
        (1, 2, 260.0, 1),
        (1, 1, 260.0, 2),
        (1, 2, 248.5, 2),
    ] {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let (lane, issued) = timed_lane(&machine, ms(each));
        let mut case = with_lane(&mut engine, COPY, vec![lane]);
        sampled(&mut case, &[before], ms(each)(0));
        (case.spent, case.stretch) = (Ns::ms(spent), Ns::ms(10.0));
        let begun = machine.clock.now();
        engine.visit(&mut case).unwrap();
        assert_eq!(case.series[0].visits, [before, samples], "{each} ms, {spent} ms spent");
        assert_eq!(issued.borrow().len(), samples as usize);
        let added = case.spent - Ns::ms(spent);
        assert!((added.0 / 1e6 - f64::from(samples * each)).abs() < 0.1, "{added}");
        // The rest of this stretch, and a random part of the next.
        let due = (case.due - begun).0 / 1e6;
        assert!((0.0..20.0).contains(&due), "{due} ms");
    }
}

/// Noise asks for more samples of a visit: for 16 of 1 ms, and of 6 ms for those of a sixth of the budget.
#[test]
fn a_visit_of_a_noisy_case_lasts_a_sixth_of_its_budget() {
    let machine = machine();
    let each: [fn(usize) -> Ns; 2] = [|_| Ns::ms(1.0), |_| Ns::ms(6.0)];
    for (each, samples) in each.into_iter().zip([16, 7]) {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let (lane, _) = timed_lane(&machine, each);
        let mut case = with_lane(&mut engine, COPY, vec![lane]);
        sampled(&mut case, &[4], Ns::ms(1.0));
        case.series[0].samples_ns = vec![1e6, 2e6, 1e6, 2e6];
        engine.visit(&mut case).unwrap();
        assert_eq!(case.series[0].visits, [4, samples]);
    }
}

/// An operation of 10 us is timed as the difference of 20 and 10, which take 0.1 ms; one of 1 ms alone. A
/// background, and lanes whose operations do not add up, have no difference.
#[test]
fn a_short_operation_alone_is_timed_as_a_difference() {
    let machine = machine();
    for (case, adds_up, most, one, expected) in [
        (COPY, true, 1 << 20, 10.0, Some(10)),
        (COPY, true, 1 << 20, 33.0, Some(4)),
        (COPY, true, 12, 10.0, Some(6)),
        (COPY, true, 1, 10.0, Some(1)),
        (COPY, true, 1 << 20, 999.0, Some(1)),
        (COPY, true, 1 << 20, 1000.0, None),
        (COPY, false, 1 << 20, 10.0, None),
        (LOADED, true, 1 << 20, 10.0, None),
    ] {
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let lane = || {
            let (lane, issued) = timed_lane(&machine, |_| Ns::us(10.0));
            (TimedLane { adds_up, most, ..lane }, issued)
        };
        let ((first, issued), (second, _)) = (lane(), lane());
        let lanes = if case == COPY { vec![first] } else { vec![first, second] };
        let mut case = with_lane(&mut engine, case, lanes);
        engine.find_difference(&mut case, Ns::us(one));
        assert_eq!(case.differs.then_some(case.reps), expected, "{one} us");
        if let Some(reps) = expected {
            let (laps, starts) = engine.difference(&mut case).unwrap();
            let times = [laps[0].elapsed, starts[0]].map(|time| (time.0 / 1e3).round());
            assert_eq!((times, laps[0].steps), ([10.0 * reps as f64; 2], reps));
            assert_eq!((&*issued.borrow(), case.reps), (&vec![reps, 2 * reps], reps));
        }
    }
    // Twice the operations take no longer: four attempts.
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    let (lane, issued) = timed_lane(&machine, |nth| Ns::us(if nth % 2 == 0 { 20.0 } else { 10.0 }));
    let mut case = with_lane(&mut engine, COPY, vec![lane]);
    assert!(engine.difference(&mut case).is_err());
    assert_eq!(issued.borrow().len(), 8);
}

/// A reading of the state that takes 5 ms stays valid for 200 times as long; one that takes nothing for 0.2 s. The
/// use of CPUs is read each time, and only a probe that ran has the caches.
#[test]
fn a_reading_of_the_state_stays_valid_in_proportion_to_its_time() {
    for (clock, keeps) in [(None, 200.0), (Some(SlowClock(Cell::new(0.0))), 1000.0)] {
        let mut machine = machine();
        machine.host = Box::new(BusyHost(machine.host, Cell::default()));
        if let Some(clock) = clock {
            machine.clock = Box::new(clock);
        }
        let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
        let numbers = |engine: &mut CaseEngine<'_>| {
            engine.caches_spoilt.set(false);
            let Conditions(read) = engine.conditions();
            (read["probe"], read["own_cpus"], engine.caches_spoilt.get())
        };
        assert_eq!(numbers(&mut engine), (1.0, 2.0, true));
        let (read, until, _) = engine.state.clone().unwrap();
        assert!(((until - read).0 / 1e6 - keeps).abs() < 1.0, "{}", until - read);
        assert_eq!(numbers(&mut engine), (1.0, 3.0, false));
        machine.clock.sleep(until - read);
        assert_eq!(numbers(&mut engine), (4.0, 5.0, true));
    }
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    assert!(engine.conditions().0.is_empty() && !engine.caches_spoilt.get());
}

/// Copies through the host repeat in a sample unless each is timed alone, as those of an engine do.
#[test]
fn an_operation_that_is_timed_alone_does_not_repeat() {
    let machine = machine();
    let mut engine = CaseEngine::new(&machine, default_settings(Bytes::gib(64)));
    for by in ["staged@gpu0[numa0]", "dma@gpu0", "blit@gpu0", "kernel@gpu0[copy-w16-u4-b256-g2sm]"]
    {
        let repeats = ["", " isolated"].map(|cadence| {
            let case = format!("gpu0.vram > gpu1.vram by {by} x 1MiB{cadence}");
            engine.lanes(&case.parse().unwrap()).map(|lanes| lanes[0].repeats()).ok()
        });
        assert_eq!(repeats, [Some(true), Some(false)], "{by}");
    }
}
