//! Which paths a node makes peers of.

use pathline_flow::MachineDesc;
use pathline_schema::{Gpu, Link, LinkKind, NumaDomain, PciDevice};

use super::*;

fn groups(topology: &Topology, cases: &[String]) -> Vec<usize> {
    let cases: Vec<Case> = cases.iter().map(|text| text.parse().unwrap()).collect();
    peer_classes(topology, &cases.iter().collect::<Vec<_>>())
}

fn pairs(gpus: u32) -> Vec<String> {
    let case = |a, b| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 64MiB");
    (0..gpus).flat_map(|a| (0..gpus).filter(move |b| a != *b).map(move |b| case(a, b))).collect()
}

fn sizes(groups: &[usize]) -> Vec<usize> {
    let count = groups.iter().max().map_or(0, |most| most + 1);
    let mut sizes: Vec<usize> =
        (0..count).map(|n| groups.iter().filter(|g| **g == n).count()).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn pairs_behind_switches_are_equal_within_a_socket_and_across() {
    // 8 GPUs, 4 a socket: 2 x 4 x 3 = 24 pairs within one, 2 x 4 x 4 = 32 across. A symmetry keeps
    // the domain, though links to the switches do not depend on it.
    let node = MachineDesc::preset("hgx-h200").unwrap().topology();
    assert_eq!(sizes(&groups(&node, &pairs(8))), [24, 32]);
}

#[test]
fn pairs_of_a_mesh_are_equal_only_within_their_orbit() {
    // The mesh has four symmetries, so an orbit has 1, 2 or 4 pairs: the 8 pairs of the four
    // packages are two orbits of 4, the 4 pairs over two links one.
    let node = MachineDesc::preset("mi250x").unwrap().topology();
    let found = groups(&node, &pairs(8));
    assert!(sizes(&found).iter().all(|n| [1, 2, 4].contains(n)), "{:?}", sizes(&found));
    let group = |a: u32, b: u32| {
        let text = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 64MiB");
        found[pairs(8).iter().position(|case| *case == text).unwrap()]
    };
    // 0-6 and 2-4 are the two bundles of two links: 0 > 6, 6 > 0, 2 > 4, 4 > 2.
    assert!([(6, 0), (2, 4), (4, 2)].iter().all(|&(a, b)| group(a, b) == group(0, 6)));
    assert_ne!(group(0, 1), group(0, 6), "four links and two");
}

#[test]
fn a_ring_has_one_class_for_each_distance() {
    let gpu = |index| Gpu { index, ..Gpu::default() };
    let link = |a: u32| Link {
        a: LinkEnd::Gpu(a),
        b: LinkEnd::Gpu((a + 1) % 6),
        kind: LinkKind::Xgmi,
        width: 1,
        peak: None,
    };
    let ring = Topology {
        gpus: (0..6).map(gpu).collect(),
        links: (0..6).map(link).collect(),
        ..Topology::default()
    };
    // 30 ordered pairs: 12 neighbours, 12 at two hops, 6 opposite.
    assert_eq!(sizes(&groups(&ring, &pairs(6))), [6, 12, 12]);
    // One link of two lanes leaves one reflection: no class has more than 4.
    let mut bent = ring;
    bent.links[0].width = 2;
    assert!(sizes(&groups(&bent, &pairs(6))).iter().all(|n| *n <= 4));
}

/// Of 12 ordered pairs of four GPUs, 4 are within a package or below one bridge, and 8 are not. Of 8 copies from
/// two domains to four GPUs, 4 are from the GPU's own. Of 12 pairs of four domains, 4 are 12 apart, 8 32.
#[test]
fn packages_bridges_domains_and_distances_tell_paths_apart() {
    let gpu = |index: u32| Gpu { index, ..Gpu::default() };
    let plain = Topology { gpus: (0..4).map(gpu).collect(), ..Topology::default() };
    assert_eq!(sizes(&groups(&plain, &pairs(4))), [12]);
    let mut packages = plain.clone();
    packages.gpus.iter_mut().for_each(|gpu| gpu.package = Some(gpu.index / 2));
    assert_eq!(sizes(&groups(&packages, &pairs(4))), [4, 8]);
    let mut bridges = plain.clone();
    for gpu in &mut bridges.gpus {
        let address = |bus: u32| format!("0000:{bus:02x}:00.0").parse().unwrap();
        gpu.pci = address(0x10 + gpu.index);
        let parent = Some(address(gpu.index / 2));
        bridges.pci.push(PciDevice { address: gpu.pci.clone(), parent, ..PciDevice::default() });
    }
    assert_eq!(sizes(&groups(&bridges, &pairs(4))), [4, 8]);
    let mut domains = plain;
    let distances =
        |id: u32| (0..4).map(|other| if other / 2 == id / 2 { 12 } else { 32 }).collect();
    domains.numa = (0..4)
        .map(|id| NumaDomain { id, distances: distances(id), ..NumaDomain::default() })
        .collect();
    let between = |a: u32, b: u32| {
        format!("numa{a}.huge > numa{b}.huge by cpu@numa{a}[copy-memcpy-t1] x 64MiB")
    };
    let all: Vec<String> = (0..12).map(|n| between(n / 3, (n / 3 + 1 + n % 3) % 4)).collect();
    assert_eq!(sizes(&groups(&domains, &all)), [4, 8]);
    domains.numa.truncate(2);
    domains.gpus.iter_mut().for_each(|gpu| gpu.numa = Some(gpu.index / 2));
    let load =
        |n: u32| format!("numa{}.pinned > gpu{}.vram by dma@gpu{} x 64MiB", n / 4, n % 4, n % 4);
    assert_eq!(sizes(&groups(&domains, &(0..8).map(load).collect::<Vec<_>>())), [4, 4]);
}

#[test]
fn units_that_no_topology_lists_equal_only_themselves() {
    let none = Topology::default();
    assert_eq!(groups(&none, &pairs(2)), [0, 1]);
    let twice = [pairs(2)[0].clone(), pairs(2)[0].clone()];
    assert_eq!(groups(&none, &twice), [0, 0]);
}

#[test]
fn the_median_without_a_value_is_that_of_the_others() {
    let sorted = [1.0, 2.0, 4.0, 8.0];
    // Without 1: 2, 4, 8. Without 4: 1, 2, 8. Without 8: 1, 2, 4.
    assert_eq!(median_without(&sorted, 1.0), Some(4.0));
    assert_eq!(median_without(&sorted, 4.0), Some(2.0));
    assert_eq!(median_without(&sorted, 8.0), Some(2.0));
    // Of two others the mean; of none, none.
    assert_eq!(median_without(&[1.0, 3.0, 9.0], 1.0), Some(6.0));
    assert_eq!(median_without(&[1.0], 1.0), None);
}

/// A time is slow beyond 10 % of the median of the others, beyond four times what the faster half of them is off by,
/// and with an interval that lies above the median of theirs.
#[test]
fn a_time_is_slow_beyond_what_is_normal_and_beyond_the_spread_of_its_peers() {
    let time =
        |median: f64, half: f64| MedianInterval { median, low: median - half, high: median + half };
    for (own, half, others, slow) in [
        (109.0, 0.0, [100.0; 8], false),
        (111.0, 0.0, [100.0; 8], true),
        (111.0, 10.0, [100.0; 8], true),
        (111.0, 11.0, [100.0; 8], false),
        // An eighth of the others takes 95 at most: 20 % are normal.
        (119.0, 0.0, [94.0, 95.0, 100.0, 100.0, 100.0, 100.0, 120.0, 150.0], false),
        (122.0, 0.0, [94.0, 95.0, 100.0, 100.0, 100.0, 100.0, 120.0, 150.0], true),
        // Others that are slow do not make it normal.
        (119.0, 0.0, [100.0, 100.0, 100.0, 100.0, 100.0, 150.0, 150.0, 150.0], true),
        (50.0, 0.0, [100.0; 8], false),
    ] {
        let mut times = vec![time(own, half)];
        times.extend(others.map(|of| time(of, 0.1)));
        let found = compare_with_peers(&times, 0.1)[0];
        assert_eq!(found.slow, slow, "{own} of {others:?}");
        assert!((found.ratio - 100.0 / own).abs() < 1e-9, "{found:?}");
        let range = (99.9 / (own + half), 100.1 / (own - half));
        assert!(
            (found.range.0 - range.0).abs() + (found.range.1 - range.1).abs() < 1e-9,
            "{found:?}"
        );
    }
    assert_eq!(compare_with_peers(&[time(1.0, 0.1)], 0.1), []);
}
