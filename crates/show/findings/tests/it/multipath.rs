//! What findings say of copies over several paths.

use pathline_findings::Finding;
use pathline_flow::{MachineDesc, Network};

use crate::common::{conclusions, made};

/// Rates of one GPU's copies, and of the same bytes into 8 GPUs.
fn findings(relayed: f64, to_all: f64) -> Vec<Finding> {
    let each: Vec<String> =
        (0..8).map(|g| format!("numa0.pinned > gpu{g}.vram by dma@gpu{g} x 1GiB")).collect();
    let others = "gpu1+gpu2+gpu3+gpu4+gpu5+gpu6+gpu7";
    let into = "numa0.pinned > gpu0.vram";
    let cases = [
        (format!("{into} by dma@gpu0 x 1GiB"), 55.0),
        (format!("{into} by relay@gpu0[{others},4MiB] x 1GiB"), relayed),
        (each.join(" & "), 22.5),
        (format!("{into} by copy-to-all@gpu0[{others},8MiB] x 1GiB"), to_all),
    ];
    let outcomes = cases.iter().map(|(case, rate)| made::at_rate("multipath", case, *rate));
    let topology = MachineDesc::preset("hgx-h200").unwrap().topology();
    let network = Network::from_topology(&topology);
    let journal = made::journal(topology, outcomes.collect());
    let all = conclusions(&(journal, network)).findings;
    all.into_iter().filter(|finding| finding.id.starts_with("several-paths")).collect()
}

/// 64 / 169 = 0.38 s in place of 64 / 22.5 = 2.84 s; 64 / 182 = 0.35 s in place of 64 / 55 = 1.16 s.
#[test]
fn gains_name_the_time_of_a_model() {
    let found = findings(182.0, 169.0);
    let text = |nth: usize| found[nth].observation.as_str();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        text(0).starts_with("64 GB to all 8 GPUs take 0.38 s instead of 2.84 s"),
        "{}",
        text(0)
    );
    assert!(
        text(1).starts_with("64 GB from host to gpu0 take 0.35 s instead of 1.16 s"),
        "{}",
        text(1)
    );
    let factor = found[0].gain.as_ref().unwrap().factor.0;
    assert!((factor - 169.0 / 22.5).abs() < 0.1, "{factor}");
    assert!(found[0].action.contains("copy-to-all@gpu0["), "{}", found[0].action);
    assert_eq!(found[0].places, ["host to 8 GPUs, the same bytes, 1GiB"]);
}

#[test]
fn no_gain_is_stated() {
    let found = findings(55.0, 22.5);
    assert_eq!(found.iter().map(|f| f.id).collect::<Vec<_>>(), ["several-paths-no-gain"]);
    assert!(found[0].observation.contains("host to gpu0"), "{}", found[0].observation);
    assert!(found[0].observation.contains("host to 8 GPUs"), "{}", found[0].observation);
}
