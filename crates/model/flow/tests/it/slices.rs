//! Slices of a node: predictions are those of the same GPUs in the whole node.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{Case, LinkEnd};

fn network(desc: &MachineDesc) -> Network {
    Network::new(desc, RuntimeEnv::default()).unwrap()
}

fn times(network: &Network, case: &str) -> Vec<f64> {
    let case: Case = case.parse().unwrap();
    network.predict(&case).unwrap().iter().map(|p| p.time.0).collect()
}

/// GPUs 4, 5 and 3 of a node are GPUs 0, 1 and 2 of the slice: 4-5 is a bundle of four links, 3-4 and 3-5
/// are routed over GPU 2, which has to be in the slice.
#[test]
fn a_slice_predicts_as_the_node() {
    let node = MachineDesc::preset("mi250x").unwrap();
    let slice = node.slice(&[4, 5, 3, 2]).unwrap();
    let (whole, part) = (network(&node), network(&slice));
    let flow = |a: u32, b: u32| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 16MiB isolated");
    let host = |g: u32| format!("numa0.pinned > gpu{g}.vram by dma@gpu{g} x 16MiB isolated");
    for (new, old) in [4u32, 5, 3, 2].into_iter().enumerate() {
        let new = new as u32;
        assert_eq!(times(&part, &host(new)), times(&whole, &host(old)), "gpu{old}");
        for (to, other) in
            [4u32, 5, 3, 2].into_iter().enumerate().filter(|(to, _)| *to as u32 != new)
        {
            let to = to as u32;
            assert_eq!(
                times(&part, &flow(new, to)),
                times(&whole, &flow(old, other)),
                "{old}>{other}"
            );
        }
    }
    assert_eq!(slice.name, "mi250x-gpu4-gpu5-gpu3-gpu2");
    let topology = slice.topology();
    assert_eq!(topology.gpus.iter().map(|g| g.pci.as_str()).collect::<Vec<_>>()[0], "0000:d1:00.0");
    // hsn1 is near GPU 3 and hsn2 near GPU 5; the others' GPUs are left out.
    let near: Vec<_> = topology.nics.iter().map(|n| (n.name.as_str(), n.near_gpu)).collect();
    assert_eq!(near, [("hsn1", Some(2)), ("hsn2", Some(1))]);
    assert!(topology.links.iter().all(|l| l.a != LinkEnd::Gpu(4) && l.b != LinkEnd::Gpu(4)));
}

/// A slice of a slice, a slice of GPUs behind switches, and faults of what is left.
#[test]
fn slices_of_other_nodes() {
    let node = MachineDesc::preset("hgx-h200").unwrap();
    let pair = node.slice(&[6, 1]).unwrap();
    let case =
        "gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB & numa1.pinned > gpu0.vram by dma@gpu0 x 16MiB";
    let same = case.replace("gpu1", "gpuX").replace("gpu0", "gpu6").replace("gpuX", "gpu1");
    assert_eq!(times(&network(&pair), case), times(&network(&node), &same));
    let one = pair.slice(&[1]).unwrap();
    assert_eq!(one.topology().gpus[0].pci.as_str(), "0000:3b:00.0");

    let (_, text) = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").unwrap();
    let fault = |element: &str| {
        format!("[[fault]]\nelement = \"{element}\"\nkind = \"speed\"\nshare = 0.5\n")
    };
    let faulty = format!("slice = [2, 3]\n{text}\n{}{}", fault("gpu2-gpu3"), fault("gpu4-gpu5"));
    let faulty = MachineDesc::parse("f", &faulty).unwrap();
    let elements: Vec<String> = faulty.faults().iter().map(|f| f.element.to_string()).collect();
    assert_eq!(elements, ["gpu0-gpu1"]);
}

#[test]
fn slices_that_are_none() {
    let node = MachineDesc::preset("mi250x").unwrap();
    let reason = |gpus: &[u32]| node.slice(gpus).unwrap_err().reason;
    assert_eq!(reason(&[]), "slice: expected the number of at least one GPU");
    assert_eq!(reason(&[0, 8]), "there is no gpu8; its GPUs are 0-7");
    assert_eq!(reason(&[0, 0]), "slice: GPU 0 is named twice");
    assert_eq!(
        reason(&[1, 7]),
        "slice: bytes from gpu1 to gpu7 pass gpu0, which is left out; name it, too"
    );
    let (_, text) = MachineDesc::presets()[0];
    let error = MachineDesc::parse("f", &format!("slice = [9]\n{text}")).unwrap_err();
    assert_eq!(error.file, "f:1");
}
