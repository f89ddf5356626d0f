//! A description compared with runs of its node, of a part of it and of another.

use std::io::Read;
use std::path::Path;

use pathline_explain::model_agreement::{AgreementError, compare_run};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::Journal;

/// Four of the eight GPUs of such a server, as clouds rent them.
fn slice() -> Journal {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/h200-x4.jsonl.gz");
    let mut text = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut text).unwrap();
    Journal::read(text.as_slice()).unwrap()
}

#[test]
fn a_run_of_a_part_of_a_node_is_compared_with_its_description() {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    let gpus = desc.topology().gpus;
    let run = slice();
    let found = compare_run("hgx-h200", &network, &gpus, &run, &[], false).unwrap();
    let alone = found.kinds.iter().find(|class| class.sets.name == "alone").unwrap();
    assert!(alone.sets.n > 100, "{alone:?}");
    assert!(alone.sets.median < 0.02, "{alone:?}");
    // A run of more GPUs than are described is of another node.
    let other = compare_run("hgx-h200", &network, &gpus[..2], &run, &[], false);
    let expected =
        "the run is of a node of 4 x NVIDIA H200 and hgx-h200 has 2 x NVIDIA H200: another node";
    assert_eq!(other.unwrap_err().to_string(), expected);
    // Nor is one of four other GPUs a part of it.
    let amd = MachineDesc::preset("mi250x").unwrap().topology().gpus;
    let other = compare_run("mi250x", &network, &amd, &run, &[], false);
    assert!(matches!(other, Err(AgreementError::OtherNode { .. })), "{other:?}");
    // Nor is one of as many GPUs of another product, of the same architecture.
    let h100 = MachineDesc::preset("hgx-h100").unwrap().topology().gpus;
    assert_eq!(h100[0].arch, run.topology.gpus[0].arch);
    let other = compare_run("hgx-h100", &network, &h100[..4], &run, &[], false);
    assert!(matches!(other, Err(AgreementError::OtherNode { .. })), "{other:?}");
}
