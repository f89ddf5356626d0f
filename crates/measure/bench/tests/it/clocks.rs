//! Clocks of the host that stand still or jump: each case ends, with the samples that its timers took.

// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::fs;
use std::io::BufReader;

use pathline_bench::{
    JournalSession, LocalExecutor, MachineInfo, PlanScope, RunEvent, RunHeader, RunPlan,
    TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::Clock;
use pathline_schema::{
    Bytes, CaseOutcome, CaseTimes, Journal, MeasuredCase, Ns, RunSettings, StopReason,
};
use tempfile::TempDir;

/// A clock whose readings are changed, by their number.
struct ChangedClock {
    inner: Box<dyn Clock>,
    change: ChangeReading,
    readings: Cell<u32>,
}

impl Clock for ChangedClock {
    fn now(&self) -> Ns {
        self.readings.set(self.readings.get() + 1);
        (self.change)(self.inner.now(), self.readings.get())
    }
    fn sleep(&self, time: Ns) {
        self.inner.sleep(time);
    }
    fn name(&self) -> &str {
        "changed"
    }
}

/// What a clock shows instead of the time, by the number of the reading.
type ChangeReading = fn(Ns, u32) -> Ns;

const HOUR: Ns = Ns(3.6e12);

const COPY: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";

/// Measures a copy without noise.
fn measure(change: ChangeReading, settings: RunSettings) -> MeasuredCase {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    let options = pathline_sim::SimOptions { jitter: 0.0, ..pathline_sim::SimOptions::default() };
    let mut machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options).unwrap();
    let inner = machine.clock;
    machine.clock = Box::new(ChangedClock { inner, change, readings: Cell::new(0) });
    let scope = PlanScope { simulated: true, ..PlanScope::new(&machine.topology, Bytes::gib(64)) };
    let plan = RunPlan::new(&scope, &[], &[COPY.parse().unwrap()]).unwrap();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let header = RunHeader { host: "test".to_owned(), settings, ..RunHeader::default() };
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let mut executor = LocalExecutor::new(&machine, about, header.settings);
    let session = JournalSession::create(&path).unwrap();
    let now = || "2026-01-01T00:00:00Z".to_owned();
    session.run(&mut executor, &plan, header, &now, &|| None, &mut |_: RunEvent<'_>| {}).unwrap();
    let journal = Journal::read(BufReader::new(fs::File::open(&path).unwrap())).unwrap();
    let [CaseOutcome::Measured(measured)] = journal.outcomes.as_slice() else {
        panic!("{:?}", journal.outcomes)
    };
    MeasuredCase::clone(measured)
}

fn median(measured: &MeasuredCase) -> f64 {
    let mut times = CaseTimes::slowest_flow(&measured.series).ns;
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] / measured.series[0].reps as f64
}

#[test]
fn a_clock_that_jumps_changes_no_figure() {
    let settings = default_settings(Bytes::gib(64));
    let true_time = median(&measure(|now, _| now, settings));
    let changes: [(&str, ChangeReading); 5] = [
        ("stands still", |_, _| Ns(5e6)),
        ("an hour back", |now, nth| if nth < 20 { now } else { now - HOUR }),
        ("an hour on", |now, nth| if nth < 20 { now } else { now + HOUR }),
        ("10 ms back at each fifth reading", |now, nth| now - Ns(1e7 * f64::from(nth / 5))),
        ("back and on by turns", |now, nth| if nth % 2 == 0 { now } else { now - HOUR }),
    ];
    for (what, change) in changes {
        let measured = measure(change, settings);
        let samples = &measured.series[0].samples_ns;
        // A jump ahead spends the budget: three samples are left then, and no precision is claimed.
        let least = if measured.stop.reason == StopReason::Precise { 6 } else { 3 };
        assert!(
            (least..=settings.max_samples as usize).contains(&samples.len()),
            "{what}: {samples:?}"
        );
        assert!((median(&measured) / true_time - 1.0).abs() < 1e-6, "{what}: {samples:?}");
    }
}

/// A visit alone has no interval.
#[test]
fn one_visit_is_stored_without_precision() {
    let settings =
        RunSettings { min_samples: 1, max_samples: 1, ..default_settings(Bytes::gib(64)) };
    let measured = measure(|now, _| now, settings);
    let series = &measured.series[0];
    assert_eq!((series.samples_ns.len(), series.visits.as_slice()), (1, &[1][..]));
    assert_ne!(measured.stop.reason, StopReason::Precise);
}
