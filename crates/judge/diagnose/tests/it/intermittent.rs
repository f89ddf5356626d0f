//! Faults that come and go, and two at once, on nodes with noise of real runs. `PATHLINE_TEST_HEALTH` sets the
//! number of runs of each kind.

use std::sync::OnceLock;

use pathline_schema::NodeVerdict;

use crate::fixture::fixture;
use crate::world::{REAL_STATES, RealNoise, TestNode, nodes, run, run_at};

/// s of virtual time.
const BUDGET: f64 = 10.0;

fn runs(usual: u64) -> u64 {
    std::env::var("PATHLINE_TEST_HEALTH").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

fn worlds() -> (&'static RealNoise, &'static [TestNode]) {
    static WORLDS: OnceLock<(RealNoise, Vec<TestNode>)> = OnceLock::new();
    let (noise, nodes) = WORLDS.get_or_init(|| {
        let names = ["h200-x4.jsonl.gz", "h200-x4-again.jsonl.gz", "h200-x4-killed.jsonl.gz"];
        (RealNoise::new(&names.map(fixture)), nodes())
    });
    (noise, nodes)
}

/// One random fault in time of one random path.
struct Intermittent {
    /// Share of the rounds of a process in which it is slow, alone or in stretches of the period.
    share: f64,
    /// s; none for rounds at random.
    period: Option<f64>,
    /// Share of processes that have it.
    processes: f64,
    /// Factor on the time.
    factor: f64,
}

/// How many of some runs pass, each with a drawn fault.
fn passes(runs: u64, draw: impl Fn(&mut fastrand::Rng) -> Intermittent) -> u64 {
    let (noise, nodes) = worlds();
    let mut passed = 0;
    for seed in 0..runs {
        let mut random = fastrand::Rng::with_seed(seed + 77);
        let node = &nodes[random.usize(..2)];
        let is_compared = |probe: usize| node.plan.classes[node.plan.probes[probe].class].paths > 2;
        let compared: Vec<usize> = (0..node.plan.standing).filter(|p| is_compared(*p)).collect();
        let path = compared[random.usize(..compared.len())];
        let fault = draw(&mut random);
        let phase = random.f64() * 10.0;
        let mut acts: Vec<bool> = Vec::new();
        let mut factor = |process: usize, seconds: f64, probe: usize| {
            if probe != path {
                return 1.0;
            }
            while acts.len() <= process {
                acts.push(random.f64() < fault.processes);
            }
            let is_slow = match fault.period {
                Some(period) => (seconds + phase) % period < fault.share * period,
                None => random.f64() < fault.share,
            };
            if acts[process] && is_slow { fault.factor } else { 1.0 }
        };
        let report = run_at(node, noise, REAL_STATES, BUDGET, seed, &mut factor).report;
        passed += u64::from(report.state == NodeVerdict::Ok);
    }
    passed
}

#[test]
fn paths_that_are_slow_now_and_then_do_not_pass() {
    let always = |share: f64, period: Option<f64>, processes: f64, factor: f64| Intermittent {
        share,
        period,
        processes,
        factor,
    };
    let draw = |random: &mut fastrand::Rng, from: f64, to: f64| from + (to - from) * random.f64();
    type Draw<'d> = Box<dyn Fn(&mut fastrand::Rng) -> Intermittent + 'd>;
    let kinds: [(&str, Draw<'_>); 5] = [
        ("half rate, 30 % of 3 s", Box::new(|_| always(0.3, Some(3.0), 1.0, 2.0))),
        ("20 % of rounds", Box::new(|r| always(0.2, None, 1.0, draw(r, 1.15, 2.0)))),
        ("-10 % in 80 % of processes", Box::new(|_| always(1.0, None, 0.8, 1.0 / 0.9))),
        (
            "25 to 60 % of 5 ms to 6 s",
            Box::new(|r| {
                let period = 0.005 * 1200f64.powf(r.f64());
                always(draw(r, 0.25, 0.6), Some(period), 1.0, draw(r, 1.12, 3.0))
            }),
        ),
        (
            "25 to 100 % of rounds in 80 to 100 % of processes",
            Box::new(|r| always(draw(r, 0.25, 1.0), None, draw(r, 0.8, 1.0), draw(r, 1.12, 2.0))),
        ),
    ];
    let runs = runs(60);
    for (kind, draw) in &kinds {
        let passed = passes(runs, draw);
        eprintln!("{kind}: {passed} of {runs} pass");
        // 5 %, and two standard deviations of it.
        let most = 0.05 * runs as f64 + 2.0 * (0.05 * runs as f64).sqrt();
        assert!(passed as f64 <= most, "{kind}: {passed} of {runs}");
    }
}

/// A part of a node: its `[[fault]]`, and what its culprit is named by.
fn drawn_part(node: &TestNode, random: &mut fastrand::Rng) -> (String, Vec<String>) {
    let gpu = random.u32(..8);
    let silent = "kind = \"width\"\nsilent = true";
    if random.u32(..3) == 0 {
        let fault = format!("element = \"gpu{gpu}\"\nkind = \"memory\"\nshare = 0.9");
        return (fault, vec![format!("gpu{gpu} HBM")]);
    }
    if node.name == "mi250x" {
        let pair = gpu / 2 * 2;
        let fault = format!("element = \"gpu{pair}-gpu{}\"\n{silent}", pair + 1);
        return (fault, vec![format!("gpu{pair}"), format!("gpu{}", pair + 1)]);
    }
    let fault = match random.bool() {
        true => format!("element = \"numa{}-gpu{gpu}\"\n{silent}\nlost = 8", gpu / 4),
        false => format!("element = \"gpu{gpu}-switch{}\"\n{silent}", random.u32(..4)),
    };
    (fault, vec![format!("gpu{gpu}")])
}

#[test]
fn two_independent_faults_fail_and_both_are_named() {
    let (noise, nodes) = worlds();
    let runs = runs(30);
    let (mut failed, mut named) = (0, 0);
    for seed in 0..runs {
        let mut random = fastrand::Rng::with_seed(seed + 9);
        let node = &nodes[random.usize(..2)];
        let first = drawn_part(node, &mut random);
        let second = loop {
            let other = drawn_part(node, &mut random);
            if other.1.iter().all(|name| !first.1.concat().contains(&name[..4])) {
                break other;
            }
        };
        let faults = format!("\n[[fault]]\n{}\n[[fault]]\n{}\n", first.0, second.0);
        let factors = node.edited(|text| format!("{text}{faults}"));
        let report = run(node, &factors, noise, REAL_STATES, BUDGET, seed).report;
        let names = report.culprits.first().map_or("", |culprit| culprit.element.as_str());
        let is_named = first.1.iter().chain(&second.1).all(|name| names.contains(name.as_str()));
        failed += u64::from(report.state == NodeVerdict::Fail);
        named += u64::from(is_named);
        if !is_named || report.state != NodeVerdict::Fail {
            eprintln!("{} {:?} {:?}: {} [{names}]", node.name, first.1, second.1, report.reason);
        }
    }
    eprintln!("{failed} of {runs} fail, {named} name both");
    assert!(failed * 100 >= runs * 97 && named * 100 >= runs * 97, "{failed} {named} of {runs}");
}
