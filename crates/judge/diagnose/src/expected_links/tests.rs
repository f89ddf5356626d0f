use pathline_stats::MedianInterval;

use super::*;
use crate::edits::FlowShape;
use crate::outlier::{CaseComparison, TimedCase};

fn with_link(desc: &MachineDesc, ends: (u32, u32), width: u32) -> Topology {
    let mut topology = desc.topology();
    let ends = [LinkEnd::Gpu(ends.0), LinkEnd::Gpu(ends.1)];
    let is_it = |link: &Link| ends.contains(&link.a) && ends.contains(&link.b);
    for link in topology.links.iter_mut().filter(|link| is_it(link)) {
        link.peak = link.peak.map(|peak| peak * (f64::from(width) / f64::from(link.width)));
        link.width = width;
    }
    topology
}

/// A node without a description is known by its board, if all other links are the board's. A slice of one, a wider
/// link and a board with half of its links narrower are not.
#[test]
fn a_board_is_known_by_its_other_links() {
    let desc = MachineDesc::preset("mi250x").expect("a preset");
    let losses = |topology: &Topology| -> Vec<String> {
        let found = reduced_links(topology, None, &BTreeMap::new(), &BTreeMap::new());
        found.iter().filter_map(TrainedLink::loss).collect()
    };
    let narrow = with_link(&desc, (0, 6), 1);
    assert_eq!(losses(&narrow), ["xGMI gpu0-gpu6 runs 1 of 2 links"]);
    assert_eq!(expected_topology(&narrow, None).links, desc.topology().links);
    assert_eq!(losses(&desc.topology()), Vec::<String>::new());
    assert_eq!(losses(&with_link(&desc, (0, 6), 3)), Vec::<String>::new());
    // A source that does not state a width does not say that the link is missing.
    assert_eq!(losses(&with_link(&desc, (0, 6), 0)), Vec::<String>::new());
    let mut without = desc.topology();
    without.links.retain(|l| (l.a, l.b) != (LinkEnd::Gpu(0), LinkEnd::Gpu(2)));
    assert_eq!(losses(&without), ["xGMI gpu0-gpu2 is missing (0 of 1 links)"]);
    assert_eq!(expected_topology(&without, None).links.len(), desc.topology().links.len());
    let slice = desc.slice(&[0, 1, 2, 3]).expect("a slice");
    assert_eq!(losses(&with_link(&slice, (0, 1), 2)), Vec::<String>::new());
    let mut half = desc.topology();
    half.links.iter_mut().take(6).for_each(|link| link.width = 1);
    assert_eq!(losses(&half), Vec::<String>::new());
    for (preset, _) in MachineDesc::presets() {
        let desc = MachineDesc::preset(preset).expect("a preset");
        assert_eq!(losses(&desc.topology()), Vec::<String>::new(), "{preset}");
    }
}

/// A description with one link at a fifth of the rate of the others, or with one of its board's four links, states a
/// loss, as a driver would; one with half of its links slower does not, nor does a preset as it is.
#[test]
fn a_link_below_the_others_of_a_description_is_slow() {
    let text = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").expect("it").1;
    let losses = |text: &str| -> Vec<String> {
        let desc = MachineDesc::parse("edited.toml", text).expect("a machine");
        let network = Network::new(&desc, Default::default()).expect("a network");
        let (facts, loaded) = (BTreeMap::new(), BTreeMap::new());
        let found = reduced_links(&desc.topology(), Some(&network), &facts, &loaded);
        found.iter().filter_map(TrainedLink::loss).collect()
    };
    let link = |gbs: u32| {
        format!("a = \"gpu4\", b = \"gpu5\", kind = \"xgmi\", width = 4, each_gbs = {gbs}")
    };
    assert!(text.contains(&link(50)));
    let one = losses(&text.replace(&link(50), &link(10)));
    assert_eq!(one, ["xGMI gpu4-gpu5 runs at 10 of 50 GB/s a link"]);
    let narrow = losses(&text.replace(&link(50), &link(50).replace("width = 4", "width = 1")));
    assert_eq!(narrow, ["xGMI gpu4-gpu5 runs 1 of 4 links"]);
    let half = text.replace(
        "kind = \"xgmi\", width = 1, each_gbs = 50",
        "kind = \"xgmi\", width = 1, each_gbs = 25",
    );
    assert_eq!(losses(&half), Vec::<String>::new());
    for (_, text) in MachineDesc::presets() {
        assert_eq!(losses(text), Vec::<String>::new());
    }
}

/// One link of a GPU to a switch, and the PCIe link of one of eight, slower than the others of a description; a driver
/// that counts all NVLinks as active does not hide the first.
#[test]
fn a_slow_link_to_a_switch_or_a_host_is_stated() {
    let active = GpuFacts { nvlinks: Some((18, 18)), ..GpuFacts::default() };
    let facts: BTreeMap<u32, GpuFacts> = (0..8).map(|gpu| (gpu, active.clone())).collect();
    for (preset, link, slower, expected) in [
        (
            "gb200",
            "a = \"gpu2\", b = \"switch5\", kind = \"nvlink\", width = 1, each_gbs = 53.125",
            "10",
            "NVLink gpu2-switch5 runs at 10 of 53.125 GB/s a link",
        ),
        (
            "hgx-h100",
            "a = \"gpu3\", b = \"numa0\", kind = \"pcie\", width = 1, each_gbs = 63",
            "16",
            "PCIe gpu3-numa0 runs at 16 of 63 GB/s",
        ),
    ] {
        let text = MachineDesc::presets().iter().find(|(name, _)| *name == preset).expect("it").1;
        let (head, rate) = link.rsplit_once(' ').expect("a rate");
        assert!(text.contains(link), "{link}");
        let losses = |text: &str| -> Vec<String> {
            let desc = MachineDesc::parse("edited.toml", text).expect("a machine");
            let network = Network::new(&desc, Default::default()).expect("a network");
            let found = reduced_links(&desc.topology(), Some(&network), &facts, &BTreeMap::new());
            found.iter().filter_map(TrainedLink::loss).collect()
        };
        assert_eq!(losses(text), Vec::<String>::new(), "{rate}");
        assert_eq!(losses(&text.replace(link, &format!("{head} {slower}"))), [expected]);
    }
}

/// Without each link between GPUs in turn, copies by kernel and by engine take what the rest of the node gives: no
/// path is slow, and the links of the detours are not blamed.
#[test]
fn detours_around_a_missing_link_are_not_slow() {
    let text = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").expect("it").1;
    let links = text.lines().filter(|l| l.contains("a = \"gpu") && l.contains("b = \"gpu"));
    let mut cases: Vec<Case> = Vec::new();
    for (a, b) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        for by in [format!("blit@gpu{a}"), format!("dma@gpu{a}")] {
            let case = format!("gpu{a}.vram > gpu{b}.vram by {by} x 256MiB");
            cases.push(case.parse().expect("a case"));
        }
    }
    let mut nodes = 0;
    for link in links {
        let text = text.replacen(link, "", 1);
        // A node that falls apart has no paths to compare.
        let Ok(desc) = MachineDesc::parse("lacks.toml", &text) else { continue };
        let Ok(network) = Network::new(&desc, Default::default()) else { continue };
        let topology = desc.topology();
        let time = |case: &Case| {
            let shape = FlowShape::new(&network, &topology, &case.timed)?;
            let median = shape.time(case.timed[0].bytes.as_f64());
            let time = MedianInterval { median, low: 0.999 * median, high: 1.001 * median };
            Some(TimedCase { case: case.clone(), time, visits: Vec::new() })
        };
        let timed: Vec<TimedCase> = cases.iter().filter_map(time).collect();
        for known in [Some(&network), None] {
            let found = CaseComparison::new(&topology, known, &timed);
            let slow = found.cases.iter().filter(|case| case.slow && case.peers > 1);
            assert_eq!(slow.map(|case| case.case.to_string()).next(), None, "{link}");
            assert!(found.compared() >= 24, "{link}: {}", found.compared());
            nodes += 1;
        }
    }
    assert!(nodes >= 12, "{nodes}");
}
