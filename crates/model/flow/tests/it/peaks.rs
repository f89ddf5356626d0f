//! A discovered topology: ceilings from widths and clocks, or the name of what is not known.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::{
    Case, Gpu, Link, LinkEnd, LinkKind, NumaDomain, PcieLink, Rate, Topology, TopologyWarning,
};

fn peak(network: &Network, flow: &str) -> Result<(f64, String), String> {
    let case: Case = flow.parse().unwrap();
    let explained = network.explain(&case.timed[0]).map_err(|e| e.0)?;
    assert_eq!(explained.bound, None, "{flow}");
    Ok((explained.peak.gbs(), explained.narrowest))
}

#[test]
fn link_peaks_of_the_route_in_use() {
    let network = Network::from_topology(&MachineDesc::preset("mi250x").unwrap().topology());
    for (a, b, gbs) in [(0, 1, 200.0), (0, 6, 100.0), (0, 2, 50.0), (1, 7, 100.0), (0, 3, 50.0)] {
        let flow = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 1GiB");
        assert_eq!(peak(&network, &flow).unwrap().0, gbs);
    }
    let local = "gpu0.vram > gpu0.vram by dma@gpu0 x 1GiB";
    assert_eq!(peak(&network, local).unwrap().0, 800.0);
    let chase = "gpu0.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 1MiB";
    assert!(peak(&network, chase).unwrap_err().contains("latency"));
}

/// A host with one GPU behind PCIe 4 x16 that trained to x8, as sysfs shows it: no memory peaks.
#[test]
fn a_live_host_gives_the_line_rate_and_no_guess() {
    let link = PcieLink { speed_gts: 16.0, width: 8, max_speed_gts: 16.0, max_width: 16 };
    let gpu = |index| Gpu { index, numa: Some(0), host_link: Some(link), ..Gpu::default() };
    let mut topology = Topology {
        numa: vec![NumaDomain { id: 0, ..NumaDomain::default() }],
        gpus: vec![gpu(0), gpu(1)],
        ..Topology::default()
    };
    let network = Network::from_topology(&topology);
    // 16 GT/s x 8 x 128/130 / 8 bits = 15.75 GB/s.
    let (gbs, name) = peak(&network, "numa0.pinned > gpu0.vram by dma@gpu0 x 1GiB").unwrap();
    assert!((gbs - 15.754).abs() < 0.001 && name == "PCIe gpu0-host", "{gbs} {name}");
    // No fabric: through the host.
    let (gbs, _) = peak(&network, "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB").unwrap();
    assert!((gbs - 15.754).abs() < 0.001);
    // Unless they are modules with NVLink that discovery could not see: then nothing is known. Two
    // H200s behind such a host copied 393 GB/s, six times a path through PCIe 5.
    topology.warnings = vec![TopologyWarning {
        code: "nvlink-not-read".into(),
        subject: "links".into(),
        text: String::new(),
    }];
    let pair = "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB";
    assert!(peak(&Network::from_topology(&topology), pair).unwrap_err().contains("NVLink"));
    topology.warnings.clear();
    let cpu = "numa0.paged > numa0.reg by cpu@numa0[read-plain-t1] x 1GiB";
    assert_eq!(peak(&network, cpu).unwrap_err(), "not known: the memory peak of numa0");
    let local = "gpu0.vram > gpu0.vram by dma@gpu0 x 1GiB";
    assert_eq!(peak(&network, local).unwrap_err(), "not known: the memory peak of gpu0");

    let nvlink = |peak| Link {
        a: LinkEnd::Gpu(0),
        b: LinkEnd::Gpu(1),
        kind: LinkKind::Nvlink,
        width: 4,
        peak,
    };
    topology.links = vec![nvlink(None)];
    let unknown = peak(&Network::from_topology(&topology), pair).unwrap_err();
    assert_eq!(unknown, "not known: the peak of NVLink gpu0-gpu1, 4 links");
    topology.links = vec![nvlink(Some(Rate(100.0)))];
    let case: Case = pair.parse().unwrap();
    let explained = Network::from_topology(&topology).explain(&case.timed[0]).unwrap();
    assert_eq!(
        (explained.peak.gbs(), explained.narrowest.as_str()),
        (100.0, "NVLink gpu0-gpu1, 4 links")
    );
    // Of which packet headers leave 16/17: 94.1 GB/s.
    let (bound, _) = explained.bound.unwrap();
    assert!((bound.gbs() - 94.118).abs() < 0.001, "{bound}");
}

#[test]
fn switches_are_read_from_the_environment() {
    let env = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(RuntimeEnv::from_env(&env(&[("PATH", "/bin")])), RuntimeEnv::default());
    let set = [("HSA_ENABLE_SDMA", "0"), ("HSA_ENABLE_PEER_SDMA", "1"), ("HSA_XNACK", "maybe")];
    let expected = RuntimeEnv { sdma: Some(false), peer_sdma: Some(true), ..RuntimeEnv::default() };
    assert_eq!(RuntimeEnv::from_env(&env(&set)), expected);
}

/// The presets as topologies: what maps and matrices are drawn from.
#[test]
fn presets_look_like_their_nodes() {
    let node = MachineDesc::preset("mi250x").unwrap().topology();
    assert_eq!((node.gpus.len(), node.numa.len(), node.nics.len()), (8, 4, 4));
    let numa: Vec<Option<u32>> = node.gpus.iter().map(|g| g.numa).collect();
    assert_eq!(numa, [3, 3, 1, 1, 0, 0, 2, 2].map(Some));
    assert!(node.numa[3].cpus.contains(48) && node.numa[3].cpus.contains(63));
    assert_eq!(node.caches.iter().filter(|c| c.level == 3).count(), 8);
    assert!(node.gpus.iter().all(|g| g.vendor == "amd" && g.host_link.is_none()));

    let node = MachineDesc::preset("hgx-h200").unwrap().topology();
    let network = Network::from_topology(&node);
    let used = network.routes().in_use(LinkEnd::Gpu(0), LinkEnd::Gpu(7)).unwrap();
    assert_eq!((used.width, used.peak, used.hops), (18, Some(Rate(478.125)), 2));
    assert!((node.gpus[0].host_link.unwrap().peak().gbs() - 63.0).abs() < 0.1);
}
