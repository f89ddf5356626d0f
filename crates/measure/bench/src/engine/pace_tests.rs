//! How often, how long and when a case is sampled, with lanes whose times are set.

use std::cell::RefCell;
use std::rc::Rc;

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallResult, Machine, StartGate, ThreadTeam};
use pathline_schema::{Bytes, FlowSeries, Ns, TimerKind, VerifyResult, WorldKind};

use super::{CaseEngine, RunningCase, default_settings};
use crate::lane::{BoundLane, LaneSample};
use crate::plan::PlannedCase;

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

fn machine() -> Machine {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap()
}

fn planned(case: &str) -> PlannedCase {
    PlannedCase::new(case.parse().unwrap())
}

const COPY: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB";
const LOADED: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB while \
    numa1.huge > numa1.huge by cpu@numa1[copy-memcpy-t1] x 1MiB";

/// Repetitions of each sample of one lane.
type Issued = Rc<RefCell<Vec<u64>>>;

fn timed_lane(machine: &Machine, each: fn(usize) -> Ns) -> (TimedLane<'_>, Issued) {
    let issued = Issued::default();
    let (most, least, repeats, adds_up, lands) = (1 << 20, 1, true, false, false);
    let lane = TimedLane {
        machine,
        issued: Rc::clone(&issued),
        each,
        most,
        least,
        repeats,
        adds_up,
        lands,
        team: None,
    };
    (lane, issued)
}

/// A case with this lane in place of its own, which has no sample yet.
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
            3000 => |_| Ns::us(3000.0),
            9900 => |_| Ns::us(9900.0),
            10_100 => |_| Ns::us(10_100.0),
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
