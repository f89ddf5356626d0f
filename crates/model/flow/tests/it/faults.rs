//! Faults of a description change its physics and its reported topology, and nothing else.

use pathline_flow::{DescError, MachineDesc, Network, RuntimeEnv};
use pathline_schema::{Flow, LinkEnd};

fn with(preset: &str, fault: &str) -> Result<MachineDesc, DescError> {
    let (_, text) =
        MachineDesc::presets().iter().find(|(name, _)| *name == preset).expect("a preset");
    MachineDesc::parse("test.toml", &format!("{text}\n[[fault]]\n{fault}\n"))
}

/// Rate of a flow with the faults of the machine divided by its rate without.
fn left(desc: &MachineDesc, flow: &str) -> f64 {
    let flow: Flow = flow.parse().expect("a flow");
    let env = RuntimeEnv::default();
    let cap = |network: Network| {
        let operation = network.operation(&flow).expect("a path");
        let capacities = network.resources();
        let alone =
            operation.uses.iter().map(|u| capacities[u.resource as usize].capacity.0 / u.weight);
        alone.fold(operation.cap.0, f64::min)
    };
    let healthy = cap(Network::new(desc, env).expect("a network"));
    cap(Network::with_faults(desc, env, desc.faults()).expect("a network")) / healthy
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-6
}

#[test]
fn a_lost_nvlink_costs_its_share_and_is_reported() {
    let desc = with("hgx-h200", "element = \"gpu2-switch0\"\nkind = \"width\"").expect("parses");
    // 18 links less one; kernels and engines are held by the links, not by themselves.
    let to = "gpu2.vram > gpu3.vram by kernel@gpu2[copy-w16-u4-b512-g2sm] x 64MiB";
    let from = "gpu3.vram > gpu2.vram by kernel@gpu3[copy-w16-u4-b512-g2sm] x 64MiB";
    let other = "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB";
    assert!(near(left(&desc, to), 17.0 / 18.0), "{}", left(&desc, to));
    assert!(near(left(&desc, from), 17.0 / 18.0));
    assert!(near(left(&desc, other), 1.0));
    let width = |topology: &pathline_schema::Topology| -> u32 {
        let of =
            topology.links.iter().filter(|l| l.a == LinkEnd::Gpu(2) && l.b == LinkEnd::Switch(0));
        of.map(|link| link.width).sum()
    };
    assert_eq!((width(&desc.topology()), width(desc.healthy_topology())), (4, 5));
}

#[test]
fn a_silent_fault_slows_and_is_not_reported() {
    let fault = "element = \"gpu0-numa3\"\nkind = \"speed\"\nshare = 0.5\nsilent = true";
    let desc = with("mi250x", fault).expect("parses");
    let flow = "gpu0.vram > numa3.pinned by blit@gpu0 x 64MiB";
    assert!(left(&desc, flow) < 0.51, "{}", left(&desc, flow));
    assert_eq!(&desc.topology(), desc.healthy_topology());
    // One direction only.
    let fault = "element = \"numa3>gpu0\"\nkind = \"speed\"\nshare = 0.5\nsilent = true";
    let desc = with("mi250x", fault).expect("parses");
    assert!(near(left(&desc, flow), 1.0));
    assert!(left(&desc, "numa3.pinned > gpu0.vram by blit@gpu0 x 64MiB") < 0.6);
}

#[test]
fn a_pcie_link_of_half_its_lanes_is_reported_as_trained() {
    let fault = "element = \"gpu5-numa1\"\nkind = \"width\"\nlost = 8";
    let desc = with("hgx-h200", fault).expect("parses");
    let link = desc.topology().gpus[5].host_link.expect("a link");
    assert_eq!((link.width, link.max_width), (8, 16));
    assert!(near(left(&desc, "numa1.pinned > gpu5.vram by dma@gpu5 x 64MiB"), 0.5));
    assert!(near(left(&desc, "numa1.pinned > gpu4.vram by dma@gpu4 x 64MiB"), 1.0));
}

#[test]
fn engines_and_memories_are_slowed_where_they_hold_a_flow() {
    let desc =
        with("mi250x", "element = \"gpu1\"\nkind = \"engine\"\nshare = 0.4").expect("parses");
    assert!(left(&desc, "gpu1.vram > gpu0.vram by dma@gpu1 x 64MiB") < 0.99);
    assert!(near(left(&desc, "gpu1.vram > gpu0.vram by blit@gpu1 x 64MiB"), 1.0));
    let desc =
        with("mi250x", "element = \"gpu1\"\nkind = \"memory\"\nshare = 0.5").expect("parses");
    assert!(near(
        left(&desc, "gpu1.vram > gpu1.vram by kernel@gpu1[copy-w16-u4-b512-g2sm] x 64MiB"),
        0.5
    ));
}

#[test]
fn a_fault_that_makes_no_sense_names_its_line_and_what_is_expected() {
    for (fault, expected) in [
        ("element = \"gpu2\"\nkind = \"width\"", "a bundle (gpu2-gpu3)"),
        ("element = \"gpu0-gpu77\"\nkind = \"width\"", "no link joins gpu0 and gpu77"),
        ("element = \"gpu77\"\nkind = \"hang\"", "no [[gpu]] has id 77"),
        ("element = \"nic\"\nkind = \"hang\"", "is no element"),
        ("element = \"gpu2-switch0\"\nkind = \"width\"\nlost = 5", "expected fewer"),
        ("element = \"gpu2-switch0\"\nkind = \"speed\"", "no share"),
        ("element = \"gpu2-switch0\"\nkind = \"speed\"\nshare = 1.5", "0.001 to 1"),
        ("element = \"gpu2-switch0\"\nkind = \"speed\"\nshare = 0.5\nlost = 1", "no lost"),
        ("element = \"gpu2-switch0\"\nkind = \"flapping\"\nshare = 0.5", "no period_ms"),
        ("element = \"numa0\"\nkind = \"numa\"\npages_on = \"gpu1\"", "no pages_on"),
        ("element = \"gpu0\"\nkind = \"errors\"", "no per_second"),
        ("element = \"gpu0\"\nkind = \"slow\"", "unknown variant"),
        ("element = \"gpu0\"\nkind = \"hang\"\nprobability = 2", "0.001 to 1"),
    ] {
        let error = with("hgx-h200", fault).expect_err(fault).to_string();
        assert!(error.contains(expected), "{fault}: {error}");
        assert!(error.starts_with("test.toml:"), "{error}");
    }
    let twice =
        "element = \"gpu1\"\nkind = \"hang\"\n[[fault]]\nelement = \"gpu1\"\nkind = \"hang\"";
    let error = with("hgx-h200", twice).expect_err("twice").to_string();
    assert!(error.contains("two faults of this kind"), "{error}");
}
