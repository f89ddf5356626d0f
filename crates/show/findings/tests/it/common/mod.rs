//! Runs of simulated and of real machines, and conclusions as text.

pub(crate) mod made;

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use pathline_bench::{
    JournalSession, LocalExecutor, MachineInfo, PlanScope, RunHeader, RunPlan, TimerScope,
    default_settings,
};
use pathline_findings::{Finding, RunConclusions, conclude};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{Bytes, Journal, SizeEffects, SuiteId};
use pathline_sim::SimOptions;

const MEMORY: Bytes = Bytes::gib(64);

/// A run of the default suites on a simulated machine.
pub(crate) fn simulated(preset: &str) -> (Journal, Network) {
    simulated_with(preset, "")
}

/// The same with `[[fault]]`s.
pub(crate) fn simulated_with(preset: &str, faults: &str) -> (Journal, Network) {
    let (_, text) = *MachineDesc::presets().iter().find(|(name, _)| *name == preset).unwrap();
    let desc = MachineDesc::parse(preset, &format!("{text}\n{faults}")).unwrap();
    let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    let scope = PlanScope { simulated: true, ..PlanScope::new(&machine.topology, MEMORY) };
    let plan = RunPlan::new(&scope, &[], &[]).unwrap();
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let executor = LocalExecutor::new(&machine, about, default_settings(MEMORY));
    (run(executor, &plan), Network::new(&desc, RuntimeEnv::default()).unwrap())
}

/// A run of a suite by eight processes on a simulated machine.
pub(crate) fn simulated_ranks(preset: &str, suite: SuiteId) -> (Journal, Network) {
    let desc = MachineDesc::preset(preset).unwrap();
    let options = SimOptions { ranks: 8, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options).unwrap();
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let plan = RunPlan::new(&about.scope(MEMORY), &[suite.to_string()], &[]).unwrap();
    let executor = LocalExecutor::new(&machine, about, default_settings(MEMORY));
    (run(executor, &plan), Network::new(&desc, RuntimeEnv::default()).unwrap())
}

fn run(mut executor: LocalExecutor, plan: &RunPlan) -> Journal {
    let header = RunHeader {
        host: "test".to_owned(),
        settings: default_settings(MEMORY),
        ..RunHeader::default()
    };
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap();
    session.run(&mut executor, plan, header, &now, &|| None, &mut |_| {}).unwrap();
    Journal::read(BufReader::new(File::open(&path).unwrap())).unwrap()
}

/// A kept run of a real machine.
pub(crate) fn fixture(name: &str) -> (Journal, Network) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures");
    let file = File::open(folder.join(format!("{name}.jsonl.gz"))).unwrap();
    let journal = Journal::read(BufReader::new(MultiGzDecoder::new(file))).unwrap();
    let network = Network::from_topology(&journal.topology);
    (journal, network)
}

pub(crate) fn conclusions((journal, network): &(Journal, Network)) -> RunConclusions {
    let report = pathline_explain::run_report::build(journal, Some(network));
    conclude(journal, Some(network), &report)
}

/// Everything a reader sees of the conclusions.
pub(crate) fn text(conclusions: &RunConclusions) -> String {
    let verdict = &conclusions.verdict;
    let word = verdict.word().map_or(String::new(), |word| format!("{word}: "));
    let mut text = format!("{word}{}\n", verdict.reason);
    for tile in &conclusions.tiles {
        let half = tile.half_width.map_or(String::new(), |h| format!(" ±{h:.3}"));
        let share = |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{s:.3}"));
        writeln!(
            text,
            "[{}] {:.4}{half} {} | {} | peak {} model {} spark {} -> {}",
            tile.name,
            tile.value,
            tile.unit,
            tile.detail,
            share(tile.share_of_peak),
            share(tile.share_of_model),
            tile.spark.len(),
            tile.figure
        )
        .unwrap();
    }
    for finding in &conclusions.findings {
        text.push_str(&finding_text(finding));
    }
    text
}

fn finding_text(finding: &Finding) -> String {
    let mut text = format!(
        "\n{} ({:?}, weight {:.3})\n  {}\n",
        finding.id, finding.severity, finding.weight, finding.observation
    );
    writeln!(text, "  short: {}", finding.short).unwrap();
    for (name, line) in
        [("cause", &finding.cause), ("action", &finding.action), ("cost", &finding.cost)]
    {
        if !line.is_empty() {
            writeln!(text, "  {name}: {line}").unwrap();
        }
    }
    if let Some(gain) = &finding.gain {
        let (low, high) = gain.factor;
        writeln!(text, "  gain: {low:.2} to {high:.2} ({:?})", gain.basis).unwrap();
    }
    if let Some((verdict, table)) = finding.by_size.as_ref().and_then(SizeEffects::answer) {
        writeln!(text, "  by size: {verdict}\n    {}", table.join("\n    ")).unwrap();
    }
    writeln!(text, "  places ({}): {}", finding.places.len(), finding.places.join(", ")).unwrap();
    for arm in &finding.arms {
        let half = arm.half_width.map_or(String::new(), |h| format!(" ±{h:.3}"));
        writeln!(text, "  arm: {} {:.3}{half} {} = {}", arm.label, arm.value, arm.unit, arm.case)
            .unwrap();
    }
    text
}
