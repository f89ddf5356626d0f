//! Machines that hide what their GPUs share: calibrated from suite `contention`, their twins have
//! it, and predict random sets of suite `concurrent`.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pathline_calibrate::{NamedRun, calibrate};
use pathline_flow::routes::RouteTable;
use pathline_flow::{MachineDesc, MeasuredFlows, Network, PathKey, RuntimeEnv, SetPredictor};
use pathline_schema::{Case, CaseOutcome, Flow, LinkEnd, Rate};

const SOCKETS: &str = include_str!("../../../../machine/sim/tests/machines/two-sockets.toml");
const SWITCH: &str = include_str!("../../../../machine/sim/tests/machines/one-switch.toml");

/// The shared resources of a description, by their paths.
fn shared(of: &MeasuredFlows) -> BTreeMap<BTreeSet<PathKey>, &pathline_flow::SharedResource> {
    let members =
        |s: &pathline_flow::SharedResource| s.takes.iter().map(|(p, _)| of.paths[*p].key).collect();
    of.shared.iter().map(|s| (members(s), s)).collect()
}

fn queues(of: &MeasuredFlows) -> BTreeSet<BTreeSet<PathKey>> {
    let paths =
        |q: &pathline_flow::SerialEngine| q.paths.iter().map(|p| of.paths[*p].key).collect();
    of.queues.iter().map(paths).collect()
}

/// Sizes of the errors of predicted durations, smallest first, with their cases.
fn errors(desc: &MachineDesc, run: &NamedRun) -> Vec<(f64, String)> {
    let network = Network::new(desc, RuntimeEnv::default()).unwrap();
    let mut predictor = SetPredictor::new(&network);
    let mut errors = Vec::new();
    for outcome in &run.journal.outcomes {
        let CaseOutcome::Measured(m) = outcome else { continue };
        let n = m.series.iter().map(|s| s.samples_ns.len()).min().unwrap();
        let last = |k: usize| m.series.iter().map(|s| s.samples_ns[k]).fold(0.0, f64::max);
        let lasts: Vec<f64> = (0..n).map(last).collect();
        let measured =
            pathline_stats::SeriesSummary::of(&lasts).unwrap().median / m.series[0].reps as f64;
        let predicted = predictor.durations(&m.case).unwrap().set.typical.0;
        errors.push(((predicted / measured - 1.0).abs(), m.case.to_string()));
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    errors
}

/// A twin in its machine file, and its report.
struct Outcomes {
    desc: MachineDesc,
    twin: MachineDesc,
    text: String,
}

/// Calibrates, and compares the twin's file with the machine: the same paths share the same
/// resources, at the same capacity, and nothing else; unseen sets take as long as predicted.
fn check(text: &str, noise: f64, bound: f64) -> Outcomes {
    let desc = MachineDesc::parse("machine.toml", text).unwrap();
    let run = crate::common::measure_suite(&desc, "contention", &|_| true, noise, 7);
    let twin = calibrate(&[run], &mut |_| {}).unwrap();
    let mut text = format!("{}, noise {} %\n{twin}\n", desc.name, noise * 100.0);
    let twin = MachineDesc::parse("twin.toml", &twin.toml()).unwrap();
    let (truth, found) = (shared(&desc.measured), shared(&twin.measured));
    let (mut missing, mut worst) = (0, 0.0f64);
    for (members, part) in &truth {
        let gbs = part.known.rate.0;
        let Some(found) = found.get(members) else {
            let _ = writeln!(text, "  {}, {gbs} GB/s: not found", part.name);
            missing += 1;
            continue;
        };
        // What a path gets of it at most: the capacity over what a byte of its payload takes.
        for (_, take) in &found.takes {
            let off = found.known.rate.0 / take / gbs - 1.0;
            worst = worst.max(off.abs());
            if off.abs() > 0.5 * bound {
                let _ = writeln!(text, "  {}: {:+.2} %", part.name, off * 100.0);
            }
        }
    }
    let added: Vec<&str> = found
        .iter()
        .filter(|(m, _)| !truth.contains_key(*m))
        .map(|(_, s)| s.name.as_str())
        .collect();
    let of_size = |c: &Case| (3..=8).contains(&c.timed.len());
    let unseen = crate::common::measure_suite(&desc, "concurrent", &of_size, noise, 8);
    let errors = errors(&twin, &unseen);
    let at = |q: f64| errors[((errors.len() - 1) as f64 * q).ceil() as usize].0;
    for (error, case) in errors.iter().rev().take(3) {
        let _ = writeln!(text, "  {:.2} %: {case}", 100.0 * error);
    }
    let _ = writeln!(
        text,
        "{}, noise {} %: {} of {} shared things found, worst {:.2} % off, not there {added:?}; \
         {} unseen sets: median {:.2} %, 95th {:.2} %, worst {:.2} %",
        desc.name,
        noise * 100.0,
        truth.len() - missing,
        truth.len(),
        worst * 100.0,
        errors.len(),
        at(0.5) * 100.0,
        at(0.95) * 100.0,
        at(1.0) * 100.0,
    );
    println!("{text}");
    assert!(missing == 0 && added.is_empty() && worst <= bound, "{text}");
    assert_eq!(queues(&desc.measured), queues(&twin.measured), "{text}");
    assert!(errors.len() >= 100 && at(0.5) <= 0.02 && at(0.95) <= 0.06, "{text}");
    Outcomes { desc, twin, text }
}

/// Only interference shows the resources that two GPUs of a switch share, or four of a socket.
fn check_sockets(noise: f64, bound: f64) {
    let Outcomes { desc, twin, text } = check(SOCKETS, noise, bound);
    let (truth, found) = (shared(&desc.measured), shared(&twin.measured));
    let hidden = |s: &pathline_flow::SharedResource| {
        ["switch of", "between"].iter().any(|w| s.name.starts_with(w))
    };
    let hidden: Vec<_> = truth.iter().filter(|(_, s)| hidden(s)).collect();
    // Four switches and the link between the sockets, in and out each.
    assert_eq!(hidden.len(), 2 * (4 + 1));
    assert!(hidden.iter().all(|(m, _)| found[*m].found == "interference"), "{text}");
    // What goes into a GPU gets 0.61 of the share of what comes out.
    for path in &twin.measured.paths {
        let share = if path.key.src.unit.numa().is_some() { 0.61 } else { 1.0 };
        assert!((path.share / share - 1.0).abs() <= bound, "{}: {}\n{text}", path.key, path.share);
    }
}

/// All host traffic goes through one switch to one memory: the twin cannot know which of the two is
/// saturated, and reports so.
fn check_switch(noise: f64, bound: f64) {
    let Outcomes { twin, .. } = check(SWITCH, noise, bound);
    for name in [
        "memory of numa0, both directions: has the same paths as all 4 GPUs: host traffic, both directions",
        "memory of numa0, read by GPUs: has the same paths as all 4 GPUs: host traffic into the GPUs",
        "memory of numa0, written by GPUs: has the same paths as all 4 GPUs: host traffic out of the GPUs",
    ] {
        assert!(
            twin.measured.undecided.iter().any(|s| s.starts_with(name)),
            "{:?}",
            twin.measured.undecided
        );
    }
}

#[test]
fn two_sockets_come_back_without_noise() {
    check_sockets(0.0, 0.01);
}

#[test]
fn two_sockets_come_back_with_noise() {
    check_sockets(0.01, 0.03);
}

#[test]
fn one_switch_comes_back_without_noise() {
    check_switch(0.0, 0.01);
}

#[test]
fn one_switch_comes_back_with_noise() {
    check_switch(0.01, 0.03);
}

/// Direct copies over single links, and copies between host and GPUs: few sets that fill single links and
/// memories of `mi250x`.
fn over_links_and_memories(desc: &MachineDesc) -> impl Fn(&Case) -> bool {
    let routes = RouteTable::of(&desc.topology());
    move |case: &Case| {
        let is_simple = |flow: &Flow| match (flow.src.unit.gpu(), flow.dst.unit.gpu()) {
            (Some(src), Some(dst)) => routes
                .in_use(LinkEnd::Gpu(src), LinkEnd::Gpu(dst))
                .is_some_and(|used| used.peak == Some(Rate(50.0))),
            (_, Some(_)) => true,
            _ => flow.src.unit.gpu().is_some() && case.timed.len() > 1,
        };
        let peers = case.flows().filter(|f| f.src.unit.gpu().and(f.dst.unit.gpu()).is_some());
        let peers = peers.count();
        case.flows().all(is_simple)
            && case.timed.len() <= 2
            && (peers == 0 || peers == case.timed.len())
    }
}

/// One link and one memory carry 70 % of their rates, and the driver reports neither. The
/// verdict names both and nothing else: 26.3 of 37.6 GB/s and 33.5 of 47.8.
#[test]
fn a_sick_link_and_a_sick_memory_are_the_verdict() {
    let (_, healthy) = MachineDesc::presets()[0];
    let faults = "\n[[fault]]\nelement = \"gpu4-gpu6\"\nkind = \"speed\"\nshare = 0.7\nsilent = true\n\
                  \n[[fault]]\nelement = \"numa1\"\nkind = \"memory\"\nshare = 0.7\n";
    let verdict = |text: &str| {
        let desc = MachineDesc::parse("machine.toml", text).unwrap();
        let wanted = over_links_and_memories(&desc);
        let run = crate::common::measure_suite(&desc, "contention", &wanted, 0.01, 7);
        calibrate(&[run], &mut |_| {}).unwrap()
    };
    let twin = verdict(&format!("{healthy}{faults}"));
    let parts: Vec<&str> = twin.peers.unlike.iter().map(|u| u.part.as_str()).collect();
    let mut sorted = parts.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        ["memory of numa1", "xGMI gpu4-gpu6, both directions"],
        "{}\n{twin}",
        twin.verdict()
    );
    for unlike in &twin.peers.unlike {
        assert!((unlike.share() - 0.7).abs() < 0.02, "{unlike}\n{twin}");
        assert!(twin.verdict().contains("runs at 70 % of its"), "{}", twin.verdict());
    }
    let preset = twin.compare_preset(&MachineDesc::preset("mi250x").unwrap()).unwrap().to_string();
    assert!(preset.starts_with("SUSPECT: unlike the preset mi250x: "), "{preset}");
    assert!(preset.contains("of 32 paths GPU to GPU by dma carry"), "{preset}");
    // 20 sets are measured twice, of which some are left out here; noise of 1 % is averaged.
    let floor = twin.floor.unwrap();
    assert!(floor.n > 0 && floor.p95 < 0.03, "{floor:?}");

    let twin = verdict(healthy);
    assert!(twin.verdict().starts_with("OK: "), "{}\n{twin}", twin.verdict());
    let preset = twin.compare_preset(&MachineDesc::preset("mi250x").unwrap()).unwrap().to_string();
    assert!(preset.starts_with("OK: as the preset mi250x: "), "{preset}");
}

/// Kernels that copy, read and write, or read once and three times, have other rates: only equal ones are
/// peers. With noise of 1 %, hundreds of paths and no fault, nothing is unlike. All presets where
/// `PATHLINE_TEST_WORLDS` is set, else one of each vendor.
#[test]
fn no_preset_is_unlike_itself() {
    let all = std::env::var_os("PATHLINE_TEST_WORLDS").is_some();
    let is_tried = |name: &str| all || ["mi250x", "hgx-h200"].contains(&name);
    for (name, text) in MachineDesc::presets().iter().filter(|(name, _)| is_tried(name)) {
        let desc = MachineDesc::parse(name, text).unwrap();
        let run = crate::common::measure_default(&desc, 0.01, 3);
        let twin = calibrate(&[run], &mut |_| {}).unwrap();
        assert!(twin.verdict().starts_with("OK: "), "{name}: {}", twin.verdict());
    }
}

/// The kernels of one GPU show that its memory is slow, by 30 %, next to seven peers each.
#[test]
fn a_default_run_names_a_slow_memory() {
    let (name, text) = MachineDesc::presets()[1];
    let fault = "\n[[fault]]\nelement = \"gpu3\"\nkind = \"memory\"\nshare = 0.7\n";
    let desc = MachineDesc::parse(name, &format!("{text}{fault}")).unwrap();
    let run = crate::common::measure_default(&desc, 0.01, 3);
    let twin = calibrate(&[run], &mut |_| {}).unwrap();
    assert!(twin.verdict().starts_with("SUSPECT: "), "{}", twin.verdict());
    for unlike in &twin.peers.unlike {
        assert!(unlike.part.contains("gpu3") && unlike.is_decided(), "{unlike}");
        assert!((unlike.share() - 0.7).abs() < 0.03 && unlike.peers == 7, "{unlike}");
    }
}
