//! Cases chosen by expected information, on nodes whose faults nobody knows: a twin of fewer cases predicts
//! unseen sets as one of all cases does.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use pathline_calibrate::{
    CalibrationData, ErrorStats, NamedRun, by_kind, calibrate, choose_cases, judge,
};
use pathline_flow::MachineDesc;
use pathline_schema::RunNote;

/// The chooser of the command: a program has no library to link.
#[path = "../../../../cli/src/adaptive.rs"]
mod adaptive;
use adaptive::AdaptiveChooser;

/// A preset of which some links and a memory carry less, drawn from a seed.
fn perturbed(preset: &str, seed: u64) -> MachineDesc {
    let text = MachineDesc::presets().iter().find(|(name, _)| *name == preset).unwrap().1;
    let desc = MachineDesc::preset(preset).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut links = desc.topology().links;
    rng.shuffle(&mut links);
    let mut text = text.to_owned();
    let mut fault = |element: String, kind: &str, share: f64| {
        text.push_str(&format!(
            "\n[[fault]]\nelement = \"{element}\"\nkind = \"{kind}\"\nshare = {share:.3}\n"
        ));
    };
    let numa = rng.u32(0..desc.topology().numa.len() as u32);
    fault(format!("numa{numa}"), "memory", 0.6 + 0.35 * rng.f64());
    for link in links.iter().take(5) {
        fault(format!("{}-{}", link.a, link.b), "speed", 0.6 + 0.35 * rng.f64());
    }
    MachineDesc::parse("perturbed.toml", &text).unwrap()
}

/// A run of suite `contention` that chooses its cases, as the command makes it, and its virtual time in s.
fn adaptive_run(desc: &MachineDesc, seed: u64) -> (NamedRun, f64) {
    let budget = adaptive::CASE_BUDGET;
    let run =
        crate::common::measure_chosen(desc, "contention", budget, 0.01, seed, &|plan, scope| {
            Box::new(AdaptiveChooser::new(plan, scope))
        });
    let notes = run.journal.notes.iter().filter(|note| note.code == RunNote::CHOSEN);
    notes.filter(|note| note.subject == "run").for_each(|note| println!("{}", note.text));
    let end = run.journal.end.clone().unwrap();
    assert!(end.complete, "{end:?}");
    (run, end.elapsed.0 / 1e9)
}

fn unseen_errors(run: &NamedRun, unseen: &NamedRun) -> ErrorStats {
    let twin = calibrate(std::slice::from_ref(run), &mut |_| {}).unwrap();
    // The paths alone come along, since every run needs some.
    let mut other = unseen.clone();
    let alone = run.journal.outcomes.iter().filter(|outcome| outcome.case().flows().count() == 1);
    other.journal.outcomes.extend(alone.cloned());
    let other = CalibrationData::of(&[other]).unwrap();
    let judged = judge(&twin.data, &twin.fitted.model, &other);
    by_kind(&judged).0
}

/// Shared resources that a fit finds: from nothing, and from a fit of the first three quarters of the cases.
fn groups_found(run: &NamedRun) -> (usize, usize) {
    let mut part = run.clone();
    part.journal.outcomes.truncate(run.journal.outcomes.len() * 3 / 4);
    let earlier = choose_cases(&part, &[], &[], None).unwrap().fit;
    let found = |earlier| choose_cases(run, &[], &[], earlier).unwrap().groups;
    (found(None), found(Some(&earlier)))
}

fn check(preset: &str, seed: u64) {
    let desc = perturbed(preset, seed);
    let all = crate::common::measure_suite(&desc, "contention", &|_| true, 0.01, seed);
    let unseen = crate::common::measure_suite(&desc, "concurrent", &|_| true, 0.01, seed + 1);
    let (chosen, seconds) = adaptive_run(&desc, seed);
    let reasons = chosen.journal.notes.iter().filter(|note| note.code == RunNote::CHOSEN);
    let reasons = reasons.filter(|note| note.subject != "run").count();
    assert_eq!(reasons, chosen.journal.outcomes.len());
    let (whole, resumed) = groups_found(&chosen);
    assert!(resumed > 0 && resumed.abs_diff(whole) * 10 <= whole, "{resumed} for {whole} groups");
    let (of_all, of_chosen) = (unseen_errors(&all, &unseen), unseen_errors(&chosen, &unseen));
    let (all, chosen) = (all.journal.outcomes.len(), chosen.journal.outcomes.len());
    let text = format!(
        "{preset}, seed {seed}: {chosen} of {all} cases, {seconds:.1} s; unseen sets {of_chosen:?}, with all cases {of_all:?}"
    );
    println!("{text}");
    assert!(of_chosen.n >= 100, "{text}");
    // With the choices, a run shall take 15 s: their CPU time, some 2 to 3 s, depends on what else runs here.
    assert!(chosen as f64 <= 0.6 * all as f64 && seconds <= 11.8, "{text}");
    assert!(of_chosen.p50 <= of_all.p50 + 0.003, "{text}");
    assert!(of_chosen.p95 <= of_all.p95.max(0.01) * 1.5, "{text}");
}

#[test]
fn an_mi250x_needs_fewer_cases() {
    check("mi250x", 11);
}

#[test]
fn an_hgx_h200_needs_fewer_cases() {
    check("hgx-h200", 12);
}
