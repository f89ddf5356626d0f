//! Tests of maps of real and invented nodes, from the golden topologies of `topo`'s tests.

use std::path::Path;

use pathline_flow::MachineDesc;
use pathline_schema::{
    CpuSet, Gpu, HostInfo, Link, LinkEnd, LinkKind, Nic, NumaDomain, Rate, Topology,
};
use proptest::prelude::*;

use super::{svg, text};

const FILES: [&str; 9] = [
    "h200-host",
    "lumi-kfd-io_links.csv",
    "mi250x-host",
    "one-domain-host",
    "rccl-topo_4p_940.xml",
    "rccl-topo_8p1h.xml",
    "rccl-topo_8p1h_3.xml",
    "rccl-topo_8p_90a.xml",
    "rccl-topo_8p_940.xml",
];

fn read(name: &str) -> Topology {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machine/topo/tests/golden");
    let text = std::fs::read_to_string(dir.join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn maps_as_text() {
    for name in FILES {
        insta::assert_snapshot!(name, text(&read(name), false, 100));
    }
}

/// Checks that a picture is safe and its tags balanced.
fn check_picture(picture: &str) {
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    for forbidden in ["<script", "http:", "https:", "url(", "@import", "href", "NaN", "inf\""] {
        let body = picture.replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains(forbidden), "{forbidden}");
    }
    assert_eq!(picture.matches("<text ").count(), picture.matches("</text>").count());
    let numbers = picture.matches("width=\"-").count() + picture.matches("height=\"-").count();
    assert_eq!(numbers, 0, "negative sizes");
}

#[test]
fn pictures_are_complete_and_the_same_each_time() {
    for name in FILES {
        let topology = read(name);
        let picture = svg(&topology, &[]);
        check_picture(&picture);
        assert_eq!(svg(&topology, &[]), picture);
        for gpu in &topology.gpus {
            assert!(picture.contains(&format!(">gpu{}<", gpu.index)), "{name}");
        }
        for domain in &topology.numa {
            assert!(picture.contains(&format!(">numa{}<", domain.id)), "{name}");
        }
    }
}

/// Packages stay together, wide links connect neighbours, and both numberings of the MI250X graph
/// give pictures with equal numbers of lines of each thickness.
#[test]
fn the_mi250x_in_two_numberings() {
    let lines = |name: &str| {
        let picture = svg(&read(name), &[]);
        ["w0", "w1", "w2"].map(|class| picture.matches(&format!("class=\"link {class}\"")).count())
    };
    assert_eq!(lines("rccl-topo_8p1h_3.xml"), [4, 2, 6]);
    assert_eq!(lines("rccl-topo_8p1h.xml"), [4, 2, 6]);
    let picture = svg(&read("mi250x-host"), &[]);
    assert_eq!(picture.matches(">200 GB/s<").count(), 4);
    assert!(picture.contains("1-0-6-7 (in use)"));
}

#[test]
fn presets_have_maps() {
    for (name, _) in MachineDesc::presets() {
        let topology = MachineDesc::preset(name).unwrap().topology();
        check_picture(&svg(&topology, &[]));
        insta::assert_snapshot!(format!("preset-{name}"), text(&topology, false, 100));
    }
}

#[test]
fn colours_only_when_asked() {
    let topology = read("rccl-topo_8p_90a.xml");
    let plain = text(&topology, false, 100);
    assert!(!plain.contains('\u{1b}'));
    let mut coloured = text(&topology, true, 100);
    assert!(coloured.contains("\u{1b}[1;36mgpu0"));
    // Without colour codes the text is the same.
    while let Some(start) = coloured.find('\u{1b}') {
        let end = coloured[start..].find('m').unwrap();
        coloured.replace_range(start..=start + end, "");
    }
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&coloured), trimmed(&plain));
}

#[test]
fn hostile_names_stay_text() {
    let mut topology = read("h200-host");
    topology.gpus[0].name = "\"&<x</svg><script>alert(1)</script>\u{1b}[31m".into();
    topology.nics[0].name = "a\nb".into();
    check_picture(&svg(&topology, &[]));
    let map = text(&topology, false, 100);
    assert!(!map.contains('\u{1b}'));
    assert!(map.contains("  net     ab"));
}

#[test]
fn nothing_known_has_a_map() {
    let nothing = Topology::default();
    check_picture(&svg(&nothing, &[]));
    assert_eq!(text(&nothing, false, 100), "node\n");
    let lost = Gpu { index: 7, numa: Some(9), package: Some(1), ..Gpu::default() };
    let topology = Topology { gpus: vec![lost], ..Topology::default() };
    check_picture(&svg(&topology, &[]));
    assert!(text(&topology, false, 100).contains("near no known domain"));
}

fn any_node() -> impl Strategy<Value = LinkEnd> {
    prop_oneof![
        (0..6u32).prop_map(LinkEnd::Gpu),
        (0..3u32).prop_map(LinkEnd::Numa),
        (0..3u32).prop_map(LinkEnd::Switch),
    ]
}

fn any_topology() -> impl Strategy<Value = Topology> {
    let gpu = (proptest::option::of(0..4u32), proptest::option::of(0..3u32));
    let link = (any_node(), any_node(), 0..3usize, 0..20u32);
    let gpus = proptest::collection::vec(gpu, 0..6);
    let links = proptest::collection::vec(link, 0..24);
    (gpus, links, 0..4u32).prop_map(|(gpus, links, domains)| {
        let gpu = |(index, (numa, package))| Gpu { index, numa, package, ..Gpu::default() };
        let link = |(a, b, kind, width): (LinkEnd, LinkEnd, usize, u32)| {
            let kind = [LinkKind::Xgmi, LinkKind::Nvlink, LinkKind::Pcie][kind];
            Link { a, b, kind, width, peak: None }
        };
        let cpus = |id: u32| CpuSet::new(id * 4..id * 4 + 4);
        Topology {
            host: HostInfo { hostname: "h".parse().unwrap(), ..HostInfo::default() },
            numa: (0..domains)
                .map(|id| NumaDomain { id, cpus: cpus(id), ..NumaDomain::default() })
                .collect(),
            gpus: (0u32..).zip(gpus).map(gpu).collect(),
            nics: vec![Nic { name: "n".into(), ..Nic::default() }],
            links: links.into_iter().map(link).collect(),
            ..Topology::default()
        }
    })
}

proptest! {
    /// Arbitrary links, even from a unit to itself or to a missing one.
    #[test]
    fn any_node_has_a_map(topology in any_topology()) {
        check_picture(&svg(&topology, &[]));
        let map = text(&topology, true, 100);
        let head = "\u{1b}[1mh";
        prop_assert!(map.starts_with(head), "{map}");
    }
}

/// Every GPU connected to every other, over four domains; widths are all 1, or all different.
fn full_mesh(gpus: u32, alike: bool) -> Topology {
    let pairs = (0..gpus).flat_map(|a| (a + 1..gpus).map(move |b| (a, b)));
    let link = |(width, (a, b))| {
        let width = if alike { 1 } else { width };
        let (a, b) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
        Link { a, b, kind: LinkKind::Xgmi, width, peak: Some(Rate(50.0)) }
    };
    Topology {
        numa: (0..4).map(|id| NumaDomain { id, ..NumaDomain::default() }).collect(),
        gpus: (0..gpus)
            .map(|index| Gpu { index, numa: Some(index % 4), ..Gpu::default() })
            .collect(),
        links: (1..).zip(pairs).map(link).collect(),
        ..Topology::default()
    }
}

/// CPU time of this thread.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// 32,640 links. Searching each pair's routes over all of them, and testing each pair of links for
/// crossings in every order of the domains, took minutes without optimization and 23 s with it.
#[test]
fn a_full_mesh_of_256_gpus_has_a_map_soon() {
    for alike in [true, false] {
        let topology = full_mesh(256, alike);
        let begun = cpu_seconds();
        let (map, picture) = (text(&topology, false, 100), svg(&topology, &[]));
        let took = cpu_seconds() - begun;
        // 5 s without optimization.
        assert!(took < 20.0, "{took} s, widths alike: {alike}");
        assert!(map.contains("(the first 64 of 256 GPUs)"));
        assert_eq!(picture.matches("class=\"link ").count(), 32_640);
        let caption =
            if alike { "Each line: xGMI 1 link, 50" } else { "32640 links: too many to label" };
        assert!(picture.contains(caption), "{caption}");
    }
    // 300 x 299 / 2 = 44,850 lines are a black square.
    let picture = svg(&full_mesh(300, true), &[]);
    assert_eq!(picture.matches("class=\"link ").count(), 0);
    assert!(picture.contains("44850 links between GPUs: too many to draw"));
}

#[test]
fn suspect_gpus_are_marked() {
    let topology = MachineDesc::preset("mi250x").unwrap().topology();
    let marked = |suspect: &[u32]| svg(&topology, suspect).matches("class=\"gpu suspect\"").count();
    assert_eq!((marked(&[]), marked(&[3]), marked(&[3, 5])), (0, 1, 2));
    // gpu2 and gpu4 have a link, gpu3 and gpu5 none.
    let ill = |suspect: &[u32]| svg(&topology, suspect).matches("class=\"link ill\"").count();
    assert_eq!((ill(&[2]), ill(&[2, 4]), ill(&[3, 5])), (0, 1, 0));
}
