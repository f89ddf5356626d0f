//! Presets of servers compared with runs of some of their GPUs, suite by suite.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use pathline_bench::{
    JournalSession, LocalExecutor, MachineInfo, PlanScope, RunEvent, RunHeader, RunPlan,
    TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{
    Bytes, Cadence, CaseOutcome, CasePattern, FlowSeries, Journal, MeasuredCase, Ns, RunSettings,
    TimerKind,
};
use pathline_sim::SimOptions;
use tempfile::TempDir;

/// Cases that a run measured, by text.
fn measured(journal: Journal) -> BTreeMap<String, MeasuredCase> {
    let of = |outcome| match outcome {
        CaseOutcome::Measured(case) => Some((case.case.to_string(), *case)),
        _ => None,
    };
    journal.outcomes.into_iter().filter_map(of).collect()
}

fn fixture(name: &str) -> BTreeMap<String, MeasuredCase> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures").join(name);
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(File::open(path).unwrap()).read_to_end(&mut text).unwrap();
    measured(Journal::read(text.as_slice()).unwrap())
}

/// The same cases on a preset, by the same engine, without noise.
fn simulated<'c>(
    desc: &MachineDesc,
    cases: impl Iterator<Item = &'c String>,
) -> BTreeMap<String, MeasuredCase> {
    let exact = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(desc, RuntimeEnv::default(), &exact).unwrap();
    let scope = PlanScope { simulated: true, ..PlanScope::new(&machine.topology, Bytes::gib(64)) };
    let patterns: Vec<CasePattern> = cases.map(|case| case.parse().unwrap()).collect();
    let plan = RunPlan::new(&scope, &[], &patterns).unwrap();
    let settings = RunSettings {
        min_samples: 3,
        max_samples: 3,
        case_budget: Ns::ms(20.0),
        ..default_settings(Bytes::gib(64))
    };
    let header = RunHeader { host: "test".to_owned(), settings, ..RunHeader::default() };
    let info = MachineInfo::of(&machine, None, TimerScope::All);
    let mut executor = LocalExecutor::new(&machine, info, header.settings);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap();
    session.run(&mut executor, &plan, header, &now, &|| None, &mut |_: RunEvent<'_>| {}).unwrap();
    measured(Journal::read(BufReader::new(File::open(&path).unwrap())).unwrap())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Median time of one step of each flow, ns.
fn times(case: &MeasuredCase) -> Vec<f64> {
    let each = |samples: &[f64], steps: u64| median(samples.to_vec()) / steps.max(1) as f64;
    case.series.iter().map(|s| each(&s.samples_ns, s.steps)).collect()
}

/// Whether a run timed each operation between two events and did not subtract the gap of an empty pair, as
/// the engine does today.
fn has_event_gap(case: &MeasuredCase) -> bool {
    let events = |s: &FlowSeries| s.timer == TimerKind::DeviceEvents && s.reps == 1;
    case.case.cadence == Cadence::Isolated && case.series.iter().all(events)
}

/// Errors of the simulated time of each flow, by suite.
fn errors(preset: &str, name: &str) -> BTreeMap<String, Vec<(f64, String)>> {
    let desc = MachineDesc::preset(preset).unwrap();
    let gap = Network::new(&desc, RuntimeEnv::default()).unwrap().event_gap().0;
    let real = fixture(name);
    let model = simulated(&desc, real.keys());
    let mut suites: BTreeMap<String, Vec<(f64, String)>> = BTreeMap::new();
    for (text, case) in &real {
        let Some(other) = model.get(text) else { continue };
        let gap = if has_event_gap(case) { gap } else { 0.0 };
        for (real, model) in times(case).into_iter().zip(times(other)) {
            let model = model + gap;
            let row =
                (model / real - 1.0, format!("{:.2} of {:.2} us, {text}", model / 1e3, real / 1e3));
            for suite in &case.suites {
                suites.entry(suite.clone()).or_default().push(row.clone());
            }
        }
    }
    suites
}

fn report(name: &str, suites: &BTreeMap<String, Vec<(f64, String)>>) {
    for (suite, rows) in suites {
        let mut rows: Vec<&(f64, String)> = rows.iter().collect();
        rows.sort_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        let at = |share: f64| rows[((rows.len() as f64 * share) as usize).min(rows.len() - 1)];
        println!(
            "{name} {suite}: {} flows, median {:.1} %, p95 {:.1} %",
            rows.len(),
            at(0.5).0.abs() * 100.0,
            at(0.95).0.abs() * 100.0
        );
        for (error, text) in rows.iter().rev().filter(|row| row.0.abs() > 0.1) {
            println!("  {:+.1} % {text}", error * 100.0);
        }
    }
}

/// The largest median error of each suite. The goal is 10 % of each.
const ALLOWED: [(&str, f64); 10] = [
    ("fan", 0.06),
    ("host-link", 0.01),
    ("latency", 0.05),
    ("local", 0.01),
    ("managed", 0.08),
    ("overhead", 0.05),
    ("overlap", 0.03),
    ("pairs", 0.01),
    ("patterns", 0.03),
    ("sweep", 0.05),
];

#[test]
fn four_gpus_of_the_preset_behave_as_measured() {
    let suites = errors("hgx-h200", "h200-x4.jsonl.gz");
    report("h200-x4", &suites);
    for other in std::env::var("OTHERS").iter().flat_map(|o| o.split(',')) {
        report(other, &errors("hgx-h200", other));
    }
    for (suite, allowed) in ALLOWED {
        let rows = &suites[suite];
        let error = median(rows.iter().map(|row| row.0.abs()).collect());
        assert!(error <= allowed, "{suite}: {error} of {} flows", rows.len());
    }
}

/// The same for a derived preset: its constants come from `hgx-h200`, and no run of an H100 chose one. Calls
/// and pageable memory depend on the host, which is another one.
const CARRIED_OVER: [(&str, f64); 9] = [
    ("fan", 0.14),
    ("host-link", 0.02),
    ("latency", 0.03),
    ("local", 0.08),
    ("managed", 0.15),
    ("overhead", 0.26),
    ("overlap", 0.03),
    ("pairs", 0.01),
    ("sweep", 0.08),
];

#[test]
fn two_gpus_of_a_derived_preset_behave_as_measured() {
    let suites = errors("hgx-h100", "h100-x2.jsonl.gz");
    report("h100-x2", &suites);
    for (suite, allowed) in CARRIED_OVER {
        let rows = &suites[suite];
        let error = median(rows.iter().map(|row| row.0.abs()).collect());
        assert!(error <= allowed, "{suite}: {error} of {} flows", rows.len());
    }
}
