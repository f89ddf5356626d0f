//! False alarms, power and localisation of `pathline health` on simulated nodes with noise of real runs,
//! and published rules on the same samples: `cargo xtask health [--runs N]`. Prints Markdown.
#![allow(clippy::unwrap_used, reason = "a development task fails by panicking")]

#[path = "../tests/it/fixture.rs"]
mod fixture;
#[path = "../tests/it/rules.rs"]
mod rules;
#[path = "../tests/it/world.rs"]
mod world;

use std::collections::BTreeMap;

use pathline_diagnose::{HealthReport, TailKind};
use pathline_schema::NodeVerdict;

use rules::{RULES, statistic};
use world::{
    ProcessStates, REAL_STATES, RealNoise, SimulatedRun, TestNode, lost_links, names_link, nodes,
    run,
};

/// Seconds of virtual time that a run has.
const BUDGET: f64 = 10.0;
/// Healthy runs of each node whose rule values are kept.
const KEPT: u64 = 20_000;
const KINDS: [&str; 4] =
    ["one link or lane group", "half of a host link", "pair -1 %", "host path -5 %"];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == "--runs");
    let runs: u64 = at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(20_000);
    let names = ["h200-x4", "h200-x4-again", "h200-x4-killed"];
    let journals = names.map(|name| fixture::fixture(&format!("{name}.jsonl.gz")));
    let (noise, nodes) = (RealNoise::new(&journals), nodes());
    for tail in [TailKind::GpuLink, TailKind::Local, TailKind::HostLink] {
        let (series, medians) = noise.counts(tail);
        println!("Noise {tail:?}: {series} series, {medians} medians of cases.");
    }
    let scores = healthy(&nodes, &noise, runs);
    damaged(&nodes, &noise, (runs / 100).max(20), &scores);
}

/// Runs some seeds in two threads.
fn in_threads<T: Send>(seeds: u64, one: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let share = |from: u64| (from..seeds).step_by(2).map(&one).collect::<Vec<T>>();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| share(1));
        let mut all = share(0);
        all.extend(other.join().unwrap());
        all
    })
}

/// Values of each rule over healthy runs, ascending, by node.
type Scores = BTreeMap<String, Vec<Vec<f64>>>;

/// False alarms on healthy nodes. Returns the values of the rules in those runs.
fn healthy(nodes: &[TestNode], noise: &RealNoise, runs: u64) -> Scores {
    let many = ProcessStates { host: (0.1, 1.07), ..REAL_STATES };
    let mut scores = Scores::new();
    println!("\n| node | slow states | runs | OK | SUSPECT | UNDECIDED | false FAIL | virtual s |");
    println!("|---|---|---|---|---|---|---|---|");
    for (what, states, runs) in [("2 %", REAL_STATES, runs), ("10 %", many, runs / 10)] {
        for node in nodes {
            let factors = vec![1.0; node.plan.probes.len()];
            let each = runs / nodes.len() as u64;
            let found = in_threads(each, |seed| {
                let run = run(node, &factors, noise, states, BUDGET, seed);
                let keep = what == "2 %" && seed < KEPT;
                let values = if keep { rule_values(node, &run) } else { Vec::new() };
                (run.report.state, run.seconds, values)
            });
            let count = |state| found.iter().filter(|f| f.0 == state).count();
            println!(
                "| {} | {what} | {each} | {} | {} | {} | {} | {:.2} |",
                node.name,
                count(NodeVerdict::Ok),
                count(NodeVerdict::Suspect),
                count(NodeVerdict::Undecided),
                count(NodeVerdict::Fail),
                world::median(found.iter().map(|f| f.1).collect()),
            );
            if what == "2 %" {
                let values = |rule: usize| {
                    let mut all: Vec<f64> =
                        found.iter().filter_map(|f| f.2.get(rule).copied()).collect();
                    all.sort_unstable_by(f64::total_cmp);
                    all
                };
                scores.insert(node.name.clone(), (0..RULES.len()).map(values).collect());
            }
        }
    }
    scores
}

fn rule_values(node: &TestNode, run: &SimulatedRun) -> Vec<f64> {
    RULES.iter().map(|rule| statistic(rule, node, &run.medians)).collect()
}

/// A damage: its kind, what its culprit is named, and the factors on the probes.
struct Damage {
    kind: &'static str,
    is_named: Box<dyn Fn(&HealthReport) -> bool + Sync>,
    factors: Vec<f64>,
}

fn first_culprit(report: &HealthReport) -> &str {
    report.culprits.first().map_or("", |culprit| culprit.element.as_str())
}

fn damages(node: &TestNode) -> Vec<Damage> {
    let mut all = Vec::new();
    for (ends, factors) in lost_links(node) {
        let kind = KINDS[usize::from(ends.contains("numa"))];
        let is_named = Box::new(move |report: &HealthReport| names_link(report, &ends));
        all.push(Damage { kind, is_named, factors });
    }
    for a in 0..8 {
        for b in (0..8).filter(|b| *b != a) {
            let (ends, link) = (format!("gpu{a}→gpu{b}"), format!("gpu{a}>gpu{b}"));
            let own = format!("{ends},");
            let factors = node.factors(|label| label.starts_with(&own), 1.0 / 0.99);
            let is_named = Box::new(move |report: &HealthReport| {
                let first = first_culprit(report);
                first.contains(&ends) || first.contains(&link)
            });
            all.push(Damage { kind: KINDS[2], is_named, factors });
        }
        for into in [true, false] {
            let gpu = format!("gpu{a}");
            let is_host = |label: &str| {
                let ends = label.split(',').next().unwrap();
                let right = if into { ends.ends_with(&gpu) } else { ends.starts_with(&gpu) };
                label.contains("numa") && right
            };
            let factors = node.factors(is_host, 1.0 / 0.95);
            let gpu = gpu.clone();
            let is_named = Box::new(move |report: &HealthReport| {
                let first = first_culprit(report);
                let other_direction = if into { "out of" } else { "into" };
                let host = first.contains("numa") || first.contains("to the host");
                let wrong = first.contains(other_direction) || first.contains(" and ");
                first.contains(&gpu) && host && !wrong
            });
            all.push(Damage { kind: KINDS[3], is_named, factors });
        }
    }
    all
}

/// What one run on a damaged node gave.
struct DamagedRun {
    state: NodeVerdict,
    named: bool,
    named_in_two: bool,
    seconds: f64,
    rules: Vec<f64>,
}

fn measure(node: &TestNode, damage: &Damage, noise: &RealNoise, seed: u64) -> DamagedRun {
    let mut run = run(node, &damage.factors, noise, REAL_STATES, BUDGET, seed + (1 << 40));
    let rules = rule_values(node, &run);
    let state = run.report.state;
    let named = (damage.is_named)(&run.report);
    let rest = run.report.culprits.len().min(1);
    run.report.culprits.drain(..rest);
    let named_in_two = named || (damage.is_named)(&run.report);
    DamagedRun { state, named, named_in_two, seconds: run.seconds, rules }
}

fn percent(n: usize, of: usize) -> String {
    format!("{:.1} %", 100.0 * n as f64 / of.max(1) as f64)
}

/// Power and localisation, and the power of published rules.
fn damaged(nodes: &[TestNode], noise: &RealNoise, runs: u64, scores: &Scores) {
    println!(
        "\n| node | damage | runs | FAIL in {BUDGET} s | other verdicts | element right | among two | virtual s, 99 % |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut powers: BTreeMap<(&str, usize), [usize; 4]> = BTreeMap::new();
    let mut ours: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for node in nodes {
        let damages = damages(node);
        for kind in KINDS {
            let of_kind: Vec<&Damage> = damages.iter().filter(|d| d.kind == kind).collect();
            let found = in_threads(runs, |seed| {
                measure(node, of_kind[seed as usize % of_kind.len()], noise, seed)
            });
            let fails: Vec<&DamagedRun> =
                found.iter().filter(|f| f.state == NodeVerdict::Fail).collect();
            let count = |state| found.iter().filter(|f| f.state == state).count();
            let mut seconds: Vec<f64> = found.iter().map(|f| f.seconds).collect();
            seconds.sort_unstable_by(f64::total_cmp);
            println!(
                "| {} | {kind} | {runs} | {} | OK {}, SUSPECT {}, UNDECIDED {} | {} | {} | {:.2} |",
                node.name,
                percent(fails.len(), found.len()),
                count(NodeVerdict::Ok),
                count(NodeVerdict::Suspect),
                count(NodeVerdict::Undecided),
                percent(fails.iter().filter(|f| f.named).count(), fails.len()),
                percent(fails.iter().filter(|f| f.named_in_two).count(), fails.len()),
                seconds[seconds.len() * 99 / 100],
            );
            let own = ours.entry(kind).or_default();
            own[0] += fails.len();
            own[1] += found.len() - count(NodeVerdict::Ok);
            own[2] += found.len();
            for (nth, rule) in RULES.iter().enumerate() {
                let healthy = &scores[&node.name][nth];
                let at = |share: f64| healthy[(healthy.len() as f64 * share) as usize];
                let power = powers.entry((kind, nth)).or_default();
                let thresholds = [rule.shipped, at(0.0), at(0.001), at(0.01)];
                for (power, threshold) in power.iter_mut().zip(thresholds) {
                    *power += found.iter().filter(|f| f.rules[nth] < threshold).count();
                }
            }
        }
    }
    compare_rules(&ours, &powers, scores);
}

fn compare_rules(
    ours: &BTreeMap<&str, [usize; 3]>,
    powers: &BTreeMap<(&str, usize), [usize; 4]>,
    scores: &Scores,
) {
    println!(
        "\n| damage | rule | false alarms, shipped | detected, shipped | at 0 false alarms | at 0.1 % | at 1 % |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (kind, [fails, alarms, all]) in ours {
        let (fails, alarms) = (percent(*fails, *all), percent(*alarms, *all));
        println!("| {kind} | pathline health: FAIL | first table | {fails} | | | |");
        println!("| {kind} | pathline health: not OK | first table | {alarms} | | | |");
        for (nth, rule) in RULES.iter().enumerate() {
            let values = || scores.values().flat_map(|values| &values[nth]);
            let false_alarms = values().filter(|v| **v < rule.shipped).count();
            let power = powers.get(&(*kind, nth)).copied().unwrap_or_default();
            let columns = power.map(|n| percent(n, *all)).join(" | ");
            let share = percent(false_alarms, values().count());
            println!("| {kind} | {} | {share} | {columns} |", rule.name);
        }
    }
}
