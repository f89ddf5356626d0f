//! Results of a simulated run name the weakest origin of the constants that they rest on.

use pathline_schema::{CaseOutcome, ConstantOrigin};
use tempfile::TempDir;

use crate::common::{command, journal};

const ENGINE: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB";
const PAGEABLE: &str = "gpu0.vram > numa3.paged by dma@gpu0 x 64MiB";
const LOCAL: &str = "gpu0.vram > gpu0.vram by dma@gpu0 x 64MiB";

fn origins(machine: &str) -> Vec<Option<ConstantOrigin>> {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let mut run = command(&["--machine", machine], &out);
    run.args([ENGINE, PAGEABLE, LOCAL].iter().flat_map(|case| ["--case", case]));
    assert!(run.status().unwrap().success());
    let origin = |case: &str| {
        let case = case.parse().unwrap();
        let journal = journal(&out);
        journal.outcomes.iter().find_map(|outcome| match outcome {
            CaseOutcome::Measured(m) if m.case == case => Some(m.origin),
            _ => None,
        })
    };
    [ENGINE, PAGEABLE, LOCAL].map(|case| origin(case).expect("it was measured")).to_vec()
}

#[test]
fn results_rest_on_fitted_carried_and_assumed_constants() {
    // [origin] lists copy_engine.gbs as fitted, pageable.out_gbs as assumed, gpu_memory.local_copy_gbs as data.
    let expected = [ConstantOrigin::Fitted, ConstantOrigin::Assumed, ConstantOrigin::Data];
    assert_eq!(origins("mi250x"), expected.map(Some));
}

#[test]
fn a_description_without_origins_claims_none() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("machine.toml");
    let (_, text) = pathline_flow::MachineDesc::presets()[0];
    let start = text.find("[origin]").unwrap();
    let end = start + text[start..].find("[host]").unwrap();
    std::fs::write(&file, format!("{}{}", &text[..start], &text[end..])).unwrap();
    assert_eq!(origins(file.to_str().unwrap()), [None; 3]);
}
