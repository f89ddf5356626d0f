//! Predicted durations of sets of flows equal the durations that the engine measures on the
//! simulated machine.

// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::BufReader;

use pathline_bench::{
    JournalSession, LocalExecutor, MachineInfo, PlanScope, RunEvent, RunHeader, RunPlan,
    TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{Bytes, Case, CaseOutcome, CasePattern, Journal, MeasuredCase};
use pathline_sim::SimOptions;
use tempfile::TempDir;

/// Measures cases on a preset without noise.
fn measure(desc: &MachineDesc, cases: &[String]) -> Vec<MeasuredCase> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(desc, RuntimeEnv::default(), &exact).unwrap();
    let scope = PlanScope { simulated: true, ..PlanScope::new(&machine.topology, Bytes::gib(64)) };
    let patterns: Vec<CasePattern> = cases.iter().map(|c| c.parse().unwrap()).collect();
    let plan = RunPlan::new(&scope, &[], &patterns).unwrap();
    let header = RunHeader {
        host: "test".to_owned(),
        settings: default_settings(Bytes::gib(64)),
        ..RunHeader::default()
    };
    let mut executor = LocalExecutor::new(
        &machine,
        MachineInfo::of(&machine, None, TimerScope::All),
        header.settings,
    );
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap();
    session.run(&mut executor, &plan, header, &now, &|| None, &mut |_: RunEvent<'_>| {}).unwrap();
    let journal = Journal::read(BufReader::new(fs::File::open(&path).unwrap())).unwrap();
    let measured = |o| match o {
        CaseOutcome::Measured(m) => *m,
        other => panic!("not measured: {other:?}"),
    };
    journal.outcomes.into_iter().map(measured).collect()
}

/// Random numbers that are the same everywhere.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Sets of 2 to 8 copies of a node of 8 GPUs, each path once: host and peers, 16 to 64 MiB.
fn sets(seed: u64, n: usize) -> Vec<String> {
    let mut state = seed;
    let mut set = || {
        let mut flows: Vec<String> = Vec::new();
        for _ in 0..2 + draw(&mut state, 7) {
            let (a, b) = (draw(&mut state, 8), draw(&mut state, 8));
            let path = match draw(&mut state, 3) {
                0 => format!("numa0.pinned > gpu{a}.vram by dma@gpu{a}"),
                1 => format!("gpu{a}.vram > numa0.pinned by dma@gpu{a}"),
                _ if a == b => continue,
                _ => format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a}"),
            };
            let mib = 16 << draw(&mut state, 3);
            if !flows.iter().any(|f| f.starts_with(&path)) {
                flows.push(format!("{path} x {mib}MiB"));
            }
        }
        flows.join(" & ")
    };
    let mut sets = Vec::new();
    while sets.len() < n {
        let set = set();
        if set.contains('&') && !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// Compares two programs that share only the rates: the engine's samples in the simulator's event
/// queue, and the prediction. They agree to 4e-12; 1e-6 allows for samples of several repetitions,
/// whose starts interleave.
#[test]
fn predicted_is_measured() {
    for preset in ["mi250x", "hgx-h200"] {
        let desc = MachineDesc::preset(preset).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        let cases = sets(7, 40);
        let measured = measure(&desc, &cases);
        assert_eq!(measured.len(), cases.len());
        let mut worst: (f64, String) = (0.0, String::new());
        let (mut compared, mut exact) = (0, 0);
        for m in &measured {
            let case: &Case = &m.case;
            let predicted = network.durations(case).unwrap();
            // Copies of one engine are released 20 us apart, and each is timed from its release:
            // where they overlap, that shifts each of them by this time.
            let movers: Vec<_> = case.timed.iter().map(|f| (f.by, f.dst.unit.gpu())).collect();
            let of_one =
                |at: usize| movers.iter().filter(|m| m.0 == movers[at].0).count() as f64 - 1.0;
            let apart = (0..movers.len()).map(of_one).fold(0.0, f64::max) * 20e3;
            for (flow, series) in predicted.flows.iter().zip(&m.series) {
                compared += 1;
                let mut samples = series.samples_ns.clone();
                samples.sort_by(f64::total_cmp);
                let time = samples[samples.len() / 2] / series.reps as f64;
                // A sample includes the gap after its first event, once for all repetitions.
                let gap = network.event_gap().0 / series.reps as f64;
                let late = time - flow.time.typical.0;
                let error = (late.abs().min((late - gap).abs()) - apart).max(0.0) / time;
                exact += usize::from(apart == 0.0);
                if error > worst.0 {
                    worst = (error, format!("{}: {} for {time}", case, flow.time.typical.0));
                }
            }
        }
        assert!(compared > 100 && exact > 20, "{compared} compared, {exact} exactly");
        assert!(worst.0 < 1e-6, "{preset}: {worst:?}");
    }
}
