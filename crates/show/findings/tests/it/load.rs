//! What findings say of pageable memory by threads and of scattered blocks.

use pathline_findings::Finding;
use pathline_flow::{MachineDesc, Network};

use crate::common::{conclusions, made};

fn findings(suite: &str, cases: &[(&str, f64)]) -> Vec<Finding> {
    let outcomes = cases.iter().map(|(case, rate)| made::at_rate(suite, case, *rate));
    let topology = MachineDesc::preset("hgx-h200").unwrap().topology();
    let network = Network::from_topology(&topology);
    let journal = made::journal(topology, outcomes.collect());
    let all = conclusions(&(journal, network)).findings;
    let ids = ["pageable-by-threads", "blocks-by-kernel"];
    all.into_iter().filter(|finding| ids.contains(&finding.id)).collect()
}

/// 39 of 40 GB/s are 97.5 %: 8 threads are named, not 16. 39 / 7.4 = 5.27.
#[test]
fn the_fewest_threads_that_are_enough_are_named() {
    let into = "numa0.paged > gpu0.vram";
    let found = findings(
        "load",
        &[
            (&format!("{into} by dma@gpu0 x 1GiB"), 7.4),
            (&format!("{into} by threads@gpu0[4] x 1GiB"), 28.0),
            (&format!("{into} by threads@gpu0[8] x 1GiB"), 39.0),
            (&format!("{into} by threads@gpu0[16] x 1GiB"), 40.0),
            ("numa0.pinned > gpu0.vram by dma@gpu0 x 1GiB", 55.0),
        ],
    );
    assert_eq!(found.len(), 1, "{found:?}");
    let short = "Pageable H2D: 7.40 GB/s by the runtime, 39.0 by 8 threads, pinned 55.0";
    assert_eq!(found[0].short, short);
    assert!(found[0].action.contains("pl_copy"), "{}", found[0].action);
    let factor = found[0].gain.as_ref().unwrap().factor.0;
    assert!((factor - 39.0 / 7.4).abs() < 0.01, "{factor}");
}

/// Without a gain of threads there is no finding.
#[test]
fn threads_that_gain_nothing_are_not_named() {
    let into = "numa0.paged > gpu0.vram";
    let cases = [
        (format!("{into} by dma@gpu0 x 1GiB"), 28.0),
        (format!("{into} by threads@gpu0[8] x 1GiB"), 28.5),
    ];
    let cases: Vec<(&str, f64)> = cases.iter().map(|(case, rate)| (case.as_str(), *rate)).collect();
    assert!(findings("load", &cases).is_empty());
}

/// The kernel gains up to 32 KiB: at 4 KiB 39.9 / 1.5 = 26.6 times, at 128 KiB 49 to 48 is below 5 %.
#[test]
fn the_crossover_of_blocks_is_the_largest_size_that_gains() {
    let into = "numa0.pinned > gpu0.vram";
    let rows =
        [(0.9, 1.5, "16MiB", 39.9), (9.2, 21.6, "128MiB", 49.3), (22.6, 48.0, "512MiB", 49.0)];
    let batches = ["1MiB", "8MiB", "32MiB"];
    let mut cases = Vec::new();
    for ((copies, batch, all, kernel), batched) in rows.into_iter().zip(batches) {
        cases.push((format!("{into} by blocks@gpu0[256-each] x {batched}"), copies));
        cases.push((format!("{into} by blocks@gpu0[256-batch] x {batched}"), batch));
        cases.push((format!("{into} by blocks@gpu0[4096-g8] x {all}"), kernel));
    }
    let cases: Vec<(&str, f64)> = cases.iter().map(|(case, rate)| (case.as_str(), *rate)).collect();
    let found = findings("blocks", &cases);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].short, "Blocks of 4KiB H2D: 39.9 GB/s by one kernel, 1.50 otherwise");
    assert_eq!(
        found[0].observation,
        "One kernel copies scattered blocks fastest: H2D up to 32KiB (4KiB: 39.9 GB/s, 1.50 by one call for many)."
    );
    let (least, most) = found[0].gain.as_ref().unwrap().factor;
    assert!(
        (least - 49.3 / 21.6).abs() < 0.01 && (most - 39.9 / 1.5).abs() < 0.1,
        "{least} {most}"
    );
}
