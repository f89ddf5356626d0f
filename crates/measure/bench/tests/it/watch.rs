//! The state of GPUs in the records of a simulated node, and the warnings that follow from it.

// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::fs;
use std::io::BufReader;

use pathline_bench::{
    JournalSession, KNOWN, LocalExecutor, MachineInfo, PlanScope, RunEvent, RunHeader, RunPlan,
    TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{Machine, Monitor};
use pathline_schema::{
    Bytes, CaseOutcome, GpuFacts, GpuState, Journal, MeasuredCase, PcieLink, Unit,
};
use tempfile::TempDir;

/// A monitor with given readings, on top of the simulator's, which takes 20 us a reading.
struct GivenReadings {
    inner: Box<dyn Monitor>,
    state: GpuState,
    /// Readings of the simulator per reading of this one.
    slow: u32,
    /// Replays that each reading of counters adds.
    replays: u64,
    counted: Cell<u64>,
}

impl Monitor for GivenReadings {
    fn facts(&self, _: u32) -> Option<GpuFacts> {
        Some(GpuFacts { max_sm_clock_mhz: Some(1980), ..GpuFacts::default() })
    }
    fn state(&self, gpu: u32) -> Option<GpuState> {
        (0..self.slow).for_each(|_| drop(self.inner.state(gpu)));
        Some(self.state.clone())
    }
    fn counters(&self, gpu: u32) -> Option<GpuState> {
        let state = self.inner.counters(gpu)?;
        let replays = self.counted.get();
        self.counted.set(replays + self.replays);
        Some(GpuState { pcie_replays: Some(replays), ..state })
    }
}

fn run(change: impl FnOnce(&mut Machine), case: &str) -> Journal {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    let mut machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    change(&mut machine);
    let scope = PlanScope {
        simulated: true,
        tuned: &KNOWN,
        ..PlanScope::new(&machine.topology, Bytes::gib(64))
    };
    let plan = RunPlan::new(&scope, &[], &[case.parse().unwrap()]).unwrap();
    assert!(!plan.entries.is_empty(), "{case}");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let header = RunHeader {
        host: "test".to_owned(),
        settings: default_settings(Bytes::gib(64)),
        ..RunHeader::default()
    };
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap();
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let mut executor = LocalExecutor::new(&machine, about, header.settings);
    session.run(&mut executor, &plan, header, &now, &|| None, &mut |_: RunEvent<'_>| {}).unwrap();
    Journal::read(BufReader::new(fs::File::open(&path).unwrap())).unwrap()
}

fn with_readings(state: GpuState, slow: u32, replays: u64) -> impl FnOnce(&mut Machine) {
    move |machine| {
        let inner = machine.monitor.take().unwrap();
        let counted = Cell::new(0);
        machine.monitor = Some(Box::new(GivenReadings { inner, state, slow, replays, counted }));
    }
}

fn measured(journal: &Journal) -> &MeasuredCase {
    let mut all = journal.outcomes.iter().filter_map(|outcome| match outcome {
        CaseOutcome::Measured(measured) => Some(measured.as_ref()),
        _ => None,
    });
    let first = all.next().unwrap();
    assert!(all.next().is_none());
    first
}

const PAIR: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
const HOST: &str = "numa0.pinned > gpu2.vram by dma@gpu2 x 256MiB";

fn codes(journal: &Journal) -> Vec<&str> {
    journal.notes.iter().map(|n| n.code.as_str()).filter(|c| c.contains('-')).collect()
}

#[test]
fn the_gpus_of_a_case_are_read_while_it_runs() {
    let journal = run(|_| (), PAIR);
    assert_eq!(journal.begin.gpus.len(), 8);
    assert_eq!(journal.begin.gpus[&Unit::Gpu(0)].nvlinks, Some((18, 18)));
    let gpus = &measured(&journal).gpus;
    assert_eq!(gpus.keys().copied().collect::<Vec<_>>(), [Unit::Gpu(0), Unit::Gpu(1)]);
    for readings in gpus.values() {
        let during = readings.during.as_ref().unwrap();
        assert_eq!((during.sm_clock_mhz, during.memory_clock_mhz), (Some(1980), Some(3201)));
        assert_eq!(during.throttle, Some(Vec::new()));
        assert_eq!(readings.before.pcie_replays, Some(0));
        assert_eq!(readings.after.ecc_corrected, Some(0));
    }
    assert!(codes(&journal).is_empty(), "{:?}", journal.notes);
    // Reading the GPUs changes no figure: the samples equal those of a machine without a monitor.
    let unread = run(|machine| machine.monitor = None, PAIR);
    assert!(measured(&unread).gpus.is_empty() && unread.begin.gpus.is_empty());
    assert_eq!(measured(&unread).series, measured(&journal).series);
}

#[test]
fn a_short_operation_is_repeated_for_the_reading() {
    // 1 MiB at some 390 GB/s is 3 us; a reading of two GPUs takes 40 us.
    let journal = run(|_| (), "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB");
    assert!(measured(&journal).gpus.values().all(|r| r.during.is_some()));
}

#[test]
fn a_reading_that_outlives_the_operations_is_dropped() {
    // 20000 x 20 us = 0.4 s a GPU; operations are made to run for 5 ms a GPU at most.
    let journal = run(with_readings(GpuState::default(), 20_000, 0), PAIR);
    assert!(measured(&journal).gpus.values().all(|r| r.during.is_none()));
}

#[test]
fn throttling_and_a_narrow_link_give_warnings() {
    let link = PcieLink { speed_gts: 16.0, width: 8, max_speed_gts: 32.0, max_width: 16 };
    let state = GpuState {
        sm_clock_mhz: Some(1755),
        throttle: Some(vec!["power cap".into()]),
        pcie: Some(link),
        ..GpuState::default()
    };
    let journal = run(with_readings(state.clone(), 1, 0), HOST);
    assert_eq!(codes(&journal), ["gpu-throttled", "pcie-below-max"]);
    let texts: Vec<&str> = journal.notes.iter().map(|n| n.text.as_str()).collect();
    assert_eq!(
        texts[0],
        "gpu2: clocks are held down while it runs by power cap; multiprocessors at 1755 of 1980 MHz"
    );
    // 16 x 8 / 8 x 128/130 = 15.8 GB/s and 32 x 16 / 8 x 128/130 = 63.0 GB/s.
    assert!(texts[1].starts_with("gpu2: its PCIe link is at 16 GT/s x8 under load, 15.8 GB/s"));
    assert!(texts[1].contains("32 GT/s x16, 63.0 GB/s"), "{}", texts[1]);
    assert_eq!(journal.notes[1].subject, measured(&journal).case.to_string());
    // Between GPUs the PCIe link carries nothing.
    assert!(!codes(&run(with_readings(state, 1, 0), PAIR)).contains(&"pcie-below-max"));
}

#[test]
fn counters_that_grow_during_a_case_give_a_warning() {
    let journal = run(with_readings(GpuState::default(), 1, 12), HOST);
    let [note] = journal.notes.as_slice() else { panic!("{:?}", journal.notes) };
    assert_eq!(note.code, "gpu-errors");
    assert!(note.text.starts_with("gpu2: 12 PCIe replays during this case"), "{}", note.text);
}
