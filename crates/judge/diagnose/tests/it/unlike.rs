//! Like compared with like in finished runs.

use pathline_diagnose::{RunDigest, UnlikePath, compare_run};
use pathline_schema::{CaseOutcome, Flow, Journal};

use crate::fixture::fixture;

fn slow_down(journal: &mut Journal, factor: f64, is_meant: impl Fn(&Flow) -> bool) -> usize {
    let mut changed = 0;
    for outcome in &mut journal.outcomes {
        let CaseOutcome::Measured(measured) = outcome else { continue };
        if measured.case.timed.len() == 1 && is_meant(&measured.case.timed[0]) {
            let samples = measured.series.iter_mut().flat_map(|series| &mut series.samples_ns);
            samples.for_each(|ns| *ns *= factor);
            changed += 1;
        }
    }
    changed
}

fn unlike_paths(journal: &Journal) -> Vec<UnlikePath> {
    compare_run(journal, None).unlike_paths(&journal.topology)
}

fn joins(flow: &Flow, src: u32, dst: u32) -> bool {
    (flow.src.unit.gpu(), flow.dst.unit.gpu()) == (Some(src), Some(dst))
}

#[test]
fn healthy_runs_have_no_unlike_path() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures");
    let mut journals = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".jsonl.gz") {
            assert_eq!(unlike_paths(&fixture(&name)), [], "{name}");
            journals += 1;
        }
    }
    assert!(journals >= 14, "{journals}");
}

/// A digest of a run that was cut is left out of comparisons, so that it has to say so.
#[test]
fn a_digest_states_whether_its_run_ended() {
    let mut journal = fixture("h200-x4.jsonl.gz");
    let ended = |journal: &Journal| RunDigest::of(journal).ends.map(|ends| ends.ended);
    assert_eq!(ended(&journal), Some(true));
    journal.end = None;
    assert_eq!(ended(&journal), Some(false));
}

#[test]
fn a_pair_that_takes_1_6_times_as_long_comes_first() {
    let mut journal = fixture("h200-x4.jsonl.gz");
    let changed = slow_down(&mut journal, 1.6, |flow| joins(flow, 2, 3));
    assert!(changed >= 5, "{changed}");
    let unlike = unlike_paths(&journal);
    // 1 / 1.6 = 0.625, and the other pairs differ by 0.1 % at most.
    let first = &unlike[0];
    assert!((first.ratio - 0.625).abs() < 0.005, "{first:?}");
    assert!(first.path.starts_with("gpu2→gpu3, "), "{first:?}");
    assert_eq!((first.peers, first.reverse.map(|(_, slow)| slow)), (11, Some(false)));
    assert!(first.movers.iter().any(|mover| mover == "engine copy"), "{first:?}");
    assert_eq!(first.movers_fine, Vec::<String>::new());
    assert_eq!(unlike.len(), 1, "{unlike:?}");
    let (low, high) = first.ratio_range;
    assert!(low <= first.ratio && first.ratio <= high && high - low < 0.1);
}

/// A slow case is visited less often before its time is over. One sample shows a loss that is far above what is normal.
#[test]
fn a_slow_pair_with_few_samples_is_found() {
    for (factor, samples, found) in [(1.6, 5, 1), (1.6, 1, 1), (1.015, 1, 0), (1.015, 9, 1)] {
        let mut journal = fixture("h200-x4.jsonl.gz");
        slow_down(&mut journal, factor, |flow| joins(flow, 2, 3));
        for outcome in &mut journal.outcomes {
            let CaseOutcome::Measured(measured) = outcome else { continue };
            if measured.case.timed.len() == 1 && joins(&measured.case.timed[0], 2, 3) {
                for series in &mut measured.series {
                    series.samples_ns.truncate(samples);
                    series.visits.truncate(samples);
                }
            }
        }
        assert_eq!(unlike_paths(&journal).len(), found, "{factor} {samples}");
    }
}

#[test]
fn one_slow_mover_is_named_and_the_others_are_fine() {
    let mut journal = fixture("h200-x4.jsonl.gz");
    slow_down(&mut journal, 1.02, |flow| joins(flow, 1, 0) && flow.by.kind() == "dma");
    let unlike = unlike_paths(&journal);
    // 2 % is twice what is normal between GPUs, and 30 times what these pairs differ by.
    assert_eq!(unlike.len(), 1, "{unlike:?}");
    assert!((unlike[0].ratio - 1.0 / 1.02).abs() < 0.002);
    assert_eq!(unlike[0].movers, ["engine copy", "engine copy by gpu0"]);
    assert!(unlike[0].movers_fine.iter().any(|mover| mover.starts_with("kernel")));
}

#[test]
fn half_of_a_class_is_a_wrong_class_unless_one_gpu_explains_it() {
    // Pairs of two halves, as behind a switch that nothing shows: 8 of 12 cross.
    let mut journal = fixture("h200-x4.jsonl.gz");
    let side = |n: Option<u32>| n.map(|n| n / 2);
    slow_down(&mut journal, 1.3, |flow| {
        let (src, dst) = (flow.src.unit.gpu(), flow.dst.unit.gpu());
        src.is_some() && dst.is_some() && side(src) != side(dst)
    });
    assert_eq!(unlike_paths(&journal), []);
    // One GPU that sends and receives slowly is 6 of 12.
    let mut journal = fixture("h200-x4.jsonl.gz");
    slow_down(&mut journal, 1.06, |flow| {
        let (src, dst) = (flow.src.unit.gpu(), flow.dst.unit.gpu());
        src != dst && src.is_some() && dst.is_some() && (src == Some(2) || dst == Some(2))
    });
    let unlike = unlike_paths(&journal);
    assert_eq!(unlike.len(), 6, "{unlike:?}");
    assert!(unlike.iter().all(|path| path.path.contains("gpu2")));
}
