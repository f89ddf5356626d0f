//! Four H200s in a virtual machine that hides how they are joined to the host: a twin made of paths
//! alone, pairs and groups predicts random sets.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use pathline_calibrate::{
    CalibrateError, CalibrationData, NamedRun, NodeTwin, SetClass, by_kind, calibrate, judge,
};
use pathline_flow::MachineDesc;
use pathline_schema::{CaseOutcome, FaultedCase, Journal, Severity, WorldKind};

fn journal(name: &str) -> Journal {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures").join(name);
    let mut text = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut text).unwrap();
    Journal::read(text.as_slice()).unwrap()
}

/// 20 paths alone, 190 pairs and 21 groups; 220 random sets come after them.
const CHOSEN: usize = 231;

fn part(range: impl Fn(usize) -> bool) -> NamedRun {
    let mut journal = journal("h200-x4-contention.jsonl.gz");
    let mut at = 0;
    journal.outcomes.retain(|_| {
        at += 1;
        range(at - 1)
    });
    NamedRun { name: "h200-x4-contention".into(), journal }
}

/// One fit for all tests.
static TWIN: LazyLock<NodeTwin> =
    LazyLock::new(|| calibrate(&[part(|i| i < CHOSEN)], &mut |_| {}).unwrap());

#[test]
fn random_sets_of_four_h200s_are_predicted() {
    let twin = &*TWIN;
    // Each GPU's engine queues what it sends to the other three.
    assert_eq!(twin.fitted.queues.len(), 4, "{twin}");
    assert!(twin.fitted.queues.iter().all(|q| q.paths.len() == 3 && q.against == 0));
    // Two copies into one GPU had 199.5 GB/s each.
    let into = twin
        .fitted
        .groups
        .iter()
        .zip(&twin.fitted.model.shared)
        .filter(|(g, _)| g.name.ends_with("traffic with GPUs into the GPU"));
    let into: Vec<f64> = into.map(|(_, s)| s.capacity).collect();
    assert!(into.len() == 4 && into.iter().all(|c| (c / 399.0 - 1.0).abs() < 0.015), "{twin}");

    // The paths alone come along, since every run needs some.
    let unseen = CalibrationData::of(&[part(|i| !(20..CHOSEN).contains(&i))]).unwrap();
    let judged = judge(&twin.data, &twin.fitted.model, &unseen);
    let (errors, kinds) = by_kind(&judged);
    println!("{twin}\n{errors:?}\n{kinds:?}");
    assert!(errors.n >= 70, "{errors:?}");
    assert!(errors.p50 <= 0.05 && errors.p95 <= 0.12, "{errors:?} {kinds:?}\n{twin}");
    // Where an engine has a choice, the measurement is one of the orders: seldom outside of all.
    let order: Vec<_> = judged.iter().filter(|j| j.kind == SetClass::Order).collect();
    let within = order.iter().filter(|j| j.covered(errors.p95)).count();
    println!("{within} of {} within the orders", order.len());
    assert!(order.len() > 50 && within * 100 >= order.len() * 90, "{within} of {}", order.len());
}

#[test]
fn the_file_is_read_back() {
    let twin = &*TWIN;
    let text = twin.toml();
    let desc = MachineDesc::parse("machine.toml", &text).unwrap();
    let read = &desc.measured;
    assert_eq!(read.paths.len(), 20);
    for (read, path) in read.paths.iter().zip(&twin.data.paths) {
        assert_eq!(read.key, path.key);
        assert!((read.known.rate.0 / path.gbs - 1.0).abs() < 1e-5);
    }
    assert_eq!(read.shared.len(), twin.fitted.groups.len());
    for (read, shared) in read.shared.iter().zip(&twin.fitted.model.shared) {
        assert!((read.known.rate.0 / shared.capacity - 1.0).abs() < 1e-5);
        assert_eq!(
            read.takes.iter().map(|(p, _)| *p).collect::<Vec<_>>(),
            shared.members().collect::<Vec<_>>()
        );
    }
    assert_eq!(read.queues.len(), 4);
    assert_eq!(read.undecided, twin.undecided);
    assert!((read.error.unwrap().0 - twin.errors.p50).abs() < 1e-5);
}

#[test]
fn open_questions_are_reported() {
    // Nothing alone.
    let pairs = part(|i| (20..60).contains(&i));
    let error = calibrate(&[pairs], &mut |_| {}).unwrap_err();
    assert!(matches!(error, CalibrateError::NoPaths { .. }), "{error}");
    assert!(error.to_string().contains("measured alone"), "{error}");
    // No pairs: a twin without shared resources, which lists that as an open question.
    let alone = calibrate(&[part(|i| i < 20)], &mut |_| {}).unwrap();
    assert!(alone.undecided.iter().any(|u| u.contains("no two flows")), "{alone}");
    assert!(alone.fitted.groups.is_empty() && MachineDesc::parse("x", &alone.toml()).is_ok());
    // One path was never alone: its highest concurrent rate stands for it.
    let most = calibrate(&[part(|i| i > 0 && i < 60)], &mut |_| {}).unwrap();
    assert!(most.undecided.iter().any(|u| u.contains("1 paths were not measured alone")), "{most}");
    assert!(calibrate(&[], &mut |_| {}).is_err());
}

#[test]
fn other_nodes_and_worlds_are_refused_and_faults_counted() {
    let (a, mut b) = (part(|i| i < 30), part(|i| i < 30));
    b.journal.begin.world = WorldKind::Simulated("hgx-h200".into());
    let error = calibrate(&[a.clone(), b], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("hardware and the model hgx-h200"), "{error}");
    let mut b = part(|i| i < 30);
    b.journal.topology.gpus.pop();
    let error = calibrate(&[a.clone(), b], &mut |_| {}).unwrap_err();
    assert!(matches!(error, CalibrateError::OtherNode { .. }), "{error}");

    let mut cut = part(|i| i < 30);
    cut.journal.torn = true;
    let case = cut.journal.outcomes[25].case().clone();
    let (severity, ranks) = (Severity::Transient, vec![]);
    let fault = FaultedCase { case, suites: vec![], error: "x".into(), severity, ranks };
    cut.journal.outcomes[25] = CaseOutcome::Faulted(fault);
    let twin = calibrate(&[cut], &mut |_| {}).unwrap();
    assert_eq!(twin.data.left_out.get("failed"), Some(&1));
    assert!(twin.undecided.iter().any(|u| u.contains("cut short")), "{twin}");
}
