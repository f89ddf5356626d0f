//! Files of real machines, read and written.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pathline_schema::{Link, LinkEnd, LinkKind, Rate, Topology};
use pathline_topo::{from_path, from_text, validate, write_nccl_xml};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(name: &str) -> Topology {
    from_path(&file(name)).unwrap()
}

const XML: [&str; 5] = [
    "rccl-topo_4p_940.xml",
    "rccl-topo_8p1h.xml",
    "rccl-topo_8p1h_3.xml",
    "rccl-topo_8p_90a.xml",
    "rccl-topo_8p_940.xml",
];

fn codes(topology: &Topology) -> Vec<&str> {
    topology.warnings.iter().map(|w| w.code.as_str()).collect()
}

fn between_gpus(topology: &Topology) -> BTreeMap<(u32, u32), &Link> {
    let pairs = topology.links.iter().filter_map(|link| match (link.a, link.b) {
        (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some(((a, b), link)),
        _ => None,
    });
    pairs.collect()
}

fn host_links(topology: &Topology) -> Vec<&Link> {
    topology
        .links
        .iter()
        .filter(|link| matches!((link.a, link.b), (LinkEnd::Gpu(_), LinkEnd::Numa(_))))
        .collect()
}

#[test]
fn every_file_survives_writing_and_reading() {
    for name in XML {
        let first = read(name);
        let second = from_text(&first.source, &write_nccl_xml(&first)).unwrap();
        // The flaws of the file's text (kbit/s) are corrected once and not written again.
        let without_warnings = |t: &Topology| Topology { warnings: Vec::new(), ..t.clone() };
        assert_eq!(without_warnings(&second), without_warnings(&first), "{name}");
        let third = from_text(&first.source, &write_nccl_xml(&second)).unwrap();
        assert_eq!(third, second, "{name}");
    }
}

#[test]
fn a_topology_as_json_is_read_back() {
    for name in XML.iter().chain(&["lumi-kfd-io_links.csv"]) {
        let first = read(name);
        let text = serde_json::to_string_pretty(&first).unwrap();
        assert_eq!(from_text(&first.source, &text).unwrap(), first, "{name}");
    }
}

/// Widths of LUMI and Frontier (OLCF Frontier user guide).
const WIDTHS: [(u32, u32, u32); 12] = [
    (0, 1, 4),
    (0, 2, 1),
    (0, 6, 2),
    (1, 3, 1),
    (1, 5, 1),
    (2, 3, 4),
    (2, 4, 2),
    (3, 7, 1),
    (4, 5, 4),
    (4, 6, 1),
    (5, 7, 1),
    (6, 7, 4),
];

#[test]
fn the_kfd_of_a_lumi_node_and_the_file_of_a_frontier_node_agree() {
    for name in ["lumi-kfd-io_links.csv", "rccl-topo_8p1h_3.xml"] {
        let topology = read(name);
        let found: Vec<_> =
            between_gpus(&topology).iter().map(|(&(a, b), link)| (a, b, link.width)).collect();
        assert_eq!(found, WIDTHS, "{name}");
        // 25 GT/s x 16 bit = 50 GB/s a link
        for (pair, link) in between_gpus(&topology) {
            assert_eq!(link.peak, Some(Rate(50.0 * f64::from(link.width))), "{name} {pair:?}");
            assert_eq!(link.kind, LinkKind::Xgmi);
        }
        let numa: Vec<_> = topology.gpus.iter().map(|gpu| gpu.numa.unwrap()).collect();
        assert_eq!(numa, [3, 3, 1, 1, 0, 0, 2, 2], "{name}");
        let package: Vec<_> = topology.gpus.iter().map(|gpu| gpu.package.unwrap()).collect();
        assert_eq!(package, [0, 0, 1, 1, 2, 2, 3, 3], "{name}");
        assert!(topology.gpus.iter().all(|gpu| gpu.arch == "gfx90a"), "{name}");
        // The files claim 50 (KFD) and 31.5 GB/s (PCI); the link carries 36.
        assert_eq!(host_links(&topology).len(), 8);
        assert!(host_links(&topology).iter().all(|link| link.peak == Some(Rate(36.0))), "{name}");
        assert_eq!(codes(&topology), ["host-link-claim"], "{name}");
        let three: Vec<_> = topology.routes.iter().filter(|route| route.hops == 3).collect();
        let pairs: Vec<_> = three.iter().map(|route| (route.src, route.dst)).collect();
        let gpu = LinkEnd::Gpu;
        assert_eq!(
            pairs,
            [(gpu(1), gpu(7)), (gpu(3), gpu(5)), (gpu(5), gpu(3)), (gpu(7), gpu(1))],
            "{name}"
        );
    }
}

/// The two files are one graph under two numberings: a renaming that keeps every width exists,
/// and with it packages and three-link routes go over into each other.
#[test]
fn nothing_is_tied_to_one_numbering() {
    let (one, other) = (read("rccl-topo_8p1h_3.xml"), read("rccl-topo_8p1h.xml"));
    let width = |t: &Topology, a: u32, b: u32| {
        between_gpus(t).get(&(a.min(b), a.max(b))).map_or(0, |link| link.width)
    };
    let fits = |names: &[u32]| {
        let (last, at) = (names[names.len() - 1], names.len() as u32 - 1);
        (0..at).all(|b| width(&one, at, b) == width(&other, last, names[b as usize]))
    };
    let mut partial: Vec<Vec<u32>> = vec![Vec::new()];
    for _ in 0..8 {
        partial = partial
            .iter()
            .flat_map(|names| {
                (0..8).filter(|n| !names.contains(n)).map(|n| [names.as_slice(), &[n]].concat())
            })
            .filter(|names| fits(names))
            .collect();
    }
    let names = partial.first().expect("the graphs are isomorphic");
    let rename = |node: LinkEnd| match node {
        LinkEnd::Gpu(n) => names[n as usize],
        _ => unreachable!(),
    };
    let mut routes: Vec<_> =
        one.routes.iter().map(|r| (rename(r.src), rename(r.dst), r.hops)).collect();
    routes.sort_unstable();
    let gpu = |node: LinkEnd| if let LinkEnd::Gpu(n) = node { n } else { unreachable!() };
    let mut want: Vec<_> = other.routes.iter().map(|r| (gpu(r.src), gpu(r.dst), r.hops)).collect();
    want.sort_unstable();
    assert_eq!(routes, want);
    assert_eq!(want, [(1, 5, 3), (3, 7, 3), (5, 1, 3), (7, 3, 3)]);
    // That server's GCDs hang on PCIe: 16 GT/s x8 at the bridge is the narrowest stretch,
    // 16 x 8 / 8 x 128/130 = 15.75 GB/s.
    for link in host_links(&other) {
        assert_eq!(link.kind, LinkKind::Pcie);
        assert!((link.peak.unwrap().gbs() - 15.75).abs() < 0.01);
    }
    assert!(other.warnings.is_empty(), "{:?}", other.warnings);
}

#[test]
fn a_count_of_one_everywhere_is_not_believed() {
    let topology = read("rccl-topo_8p_90a.xml");
    assert!(codes(&topology).contains(&"xgmi-count-flat"));
    assert!(between_gpus(&topology).values().all(|link| link.peak.is_none()));
    assert!(topology.routes.is_empty());
    assert!(topology.gpus.iter().all(|gpu| gpu.package.is_none()));
}

#[test]
fn mi300() {
    let x = read("rccl-topo_8p_940.xml");
    assert_eq!(between_gpus(&x).len(), 8 * 7 / 2);
    assert!(between_gpus(&x).values().all(|link| link.peak == Some(Rate(64.0))));
    assert!(x.warnings.is_empty(), "{:?}", x.warnings);
    // A switch with one GPU and one adapter each.
    let near: Vec<_> = x.nics.iter().map(|nic| nic.near_gpu).collect();
    assert_eq!(near, (0..8).map(Some).collect::<Vec<_>>());
    assert_eq!(x.nics[0].speed_mbits, Some(400_000));
    let a = read("rccl-topo_4p_940.xml");
    assert_eq!(codes(&a), ["nic-speed", "host-link-claim", "xgmi-count-flat"]);
    assert_eq!(a.nics[0].speed_mbits, Some(200_000));
    assert_eq!(a.numa.iter().map(|n| n.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(a.numa[0].cpus.to_string(), "0-23,96-119");
}

#[test]
fn nvswitches_and_capabilities() {
    let mut text = String::from("<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">");
    for gpu in 0..8 {
        let links: String = [("d0", 5), ("d1", 4), ("cf", 4), ("d2", 5)]
            .iter()
            .map(|(bus, count)| {
                format!(
                    "<nvlink target=\"0000:{bus}:00.0\" count=\"{count}\" tclass=\"0x068000\"/>"
                )
            })
            .collect();
        text += &format!(
            "<pci busid=\"0000:1{gpu}:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\" \
             link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\
             <gpu dev=\"{gpu}\" sm=\"90\">{links}</gpu></pci>"
        );
    }
    text += "</cpu></system>";
    let topology = from_text("f", &text).unwrap();
    assert_eq!(topology.gpus[7].arch, "sm_90");
    let of_gpu0: Vec<_> = topology
        .links
        .iter()
        .filter(|l| l.a == LinkEnd::Gpu(0) && matches!(l.b, LinkEnd::Switch(_)))
        .map(|l| (l.b, l.width, l.peak.unwrap().gbs()))
        .collect();
    // In the order of addresses: cf, d0, d1, d2.
    let switch = LinkEnd::Switch;
    assert_eq!(
        of_gpu0,
        [(switch(0), 4, 100.), (switch(1), 5, 125.), (switch(2), 4, 100.), (switch(3), 5, 125.)]
    );
    let again = from_text("f", &write_nccl_xml(&topology)).unwrap();
    assert_eq!(again, topology);
    let hidden = text.replace("0000:cf:00.0", "fffffff:ffff:ff");
    let topology = from_text("f", &hidden).unwrap();
    assert_eq!(from_text("f", &write_nccl_xml(&topology)).unwrap(), topology);
    assert!(topology.links.iter().any(|l| l.b == switch(3) && l.width == 4));
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let error = |text: &str| from_text("f.xml", text).unwrap_err().to_string();
    let system = |body: &str| format!("<system>\n<cpu numaid=\"0\">\n{body}\n</cpu>\n</system>");
    assert_eq!(
        error(&system("<pci busid=\"0000:01:00.0\"><gpu dev=\"x\"/></pci>")),
        "f.xml:3: 'x' as dev of <gpu>; expected a number"
    );
    assert_eq!(
        error(&system("<pci/>")),
        "f.xml:3: '' as busid of <pci>; expected a PCI address such as 0000:c1:00.0"
    );
    let link = |target: &str| {
        let link = format!("<xgmi target=\"{target}\" count=\"1\"/>");
        error(&system(&format!("<pci busid=\"0000:01:00.0\"><gpu dev=\"0\">{link}</gpu></pci>")))
    };
    let unknown = link("0000:02:00.0");
    assert!(unknown.starts_with("f.xml:3: link to 0000:02:00.0; expected the busid of a GPU"));
    // What place writes behind `;; #` in a script that every rank runs.
    let script = "x&#10;esac&#10;touch canary&#10;case $rank in&#10;#";
    assert!(link(script).contains("as target of <xgmi>; expected a PCI address"));
    let refused = error(&system(&format!("<pci busid=\"{script}\"/>")));
    assert!(refused.contains("as busid of <pci>; expected a PCI address"), "{refused}");
    assert!(error("<system/>").starts_with("f.xml:1: a <system> without <cpu>"));
    assert!(error("<html/>").starts_with("f.xml:1: root element <'html'>"));
    assert!(error("hello").starts_with("f.xml:1: 'hello' begins no known form"));
    assert!(error("").starts_with("f.xml: an empty file"));
    assert!(error("{\"source\": 3}").contains("f.xml:1: invalid type"));
    let missing = from_path(Path::new("/nonexistent/file")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/file: cannot read"));
    let dir = tempfile::tempdir().unwrap();
    assert!(from_path(dir.path()).unwrap_err().to_string().contains("neither sys nor proc"));
}

#[test]
fn hostile_json_is_refused() {
    let group = "{\"level\":1,\"kind\":\"Data\",\"size\":1,\"cpus\":\"0-65535\"},".repeat(300);
    let text = format!("{{\"source\":\"\",\"caches\":[{}]}}", group.trim_end_matches(','));
    let error = from_text("f", &text).unwrap_err().to_string();
    assert!(error.contains("CPU sets of 19660800 numbers"), "{error}");
    let link = |peak: &str, b: &str| {
        format!(
            "{{\"source\":\"\",\"gpus\":[{{\"index\":0}}],\"links\":[{{\"a\":\"gpu0\",\"b\":\"{b}\",\
             \"kind\":\"xgmi\",\"width\":1,\"peak\":{peak}}}]}}"
        )
    };
    assert!(from_text("f", &link("1", "gpu1")).unwrap_err().to_string().contains("link gpu0-gpu1"));
    assert!(from_text("f", &link("-1", "gpu0")).unwrap_err().to_string().contains("peak of link"));
    let deep = "[".repeat(100_000);
    assert!(from_text("f", &format!("{{\"a\":{deep}")).is_err());
}

#[test]
fn all_results_are_valid() {
    for name in XML.iter().chain(&["lumi-kfd-io_links.csv"]) {
        let topology = read(name);
        assert_eq!(validate(name, &topology), Ok(()));
    }
}

/// What a GPU of two on a module is: 44712 MB/s x 5 = 223.56 GB/s to its processor.
#[test]
fn nvlink_c2c_joins_a_gpu_to_its_domain() {
    let text = r#"<system version="1"><cpu numaid="1" affinity="0000ffff" arch="arm64">
        <pci busid="0009:01:00.0" class="0x030200" vendor="0x10de" device="0x2941" link_speed="64.0 GT/s PCIe" link_width="1">
        <gpu dev="0" sm="100" rank="0"><nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>
        <c2c bw="44712" count="5"/></gpu></pci></cpu></system>"#;
    let topology = from_text("f", text).unwrap();
    let [link] = host_links(&topology)[..] else { panic!("{:?}", topology.links) };
    assert_eq!((link.kind, link.b, link.width), (LinkKind::Nvlink, LinkEnd::Numa(1), 5));
    assert!((link.peak.unwrap().gbs() - 223.56).abs() < 1e-9);
    assert_eq!(from_text("f", &write_nccl_xml(&topology)).unwrap().links, topology.links);
}

/// Templates of clouds name classes and no <gpu>; some virtual machines join a GPU to its own address.
#[test]
fn classes_name_the_parts_of_a_template_and_a_link_to_itself_is_none() {
    let text = r#"<system version="1"><cpu numaid="0" affinity="0000ffff">
        <pci busid="ffff:ff:01.0" class="0x060400"><pci busid="0001:00:00.0" class="0x030200"/>
        <pci busid="0101:00:00.0" class="0x020700"/></pci></cpu></system>"#;
    let topology = from_text("f", text).unwrap();
    assert_eq!((topology.gpus.len(), topology.nics.len()), (1, 1));
    assert_eq!(topology.nics[0].pci.as_str(), "0101:00:00.0");
    let text = r#"<system version="1"><cpu numaid="0" affinity="0000ffff">
        <pci busid="0001:00:00.0" class="0x030200" vendor="0x10de" device="0x20b5"><gpu dev="0" sm="80">
        <nvlink target="0001:00:00.0" count="12" tclass="0x030200"/></gpu></pci></cpu></system>"#;
    let topology = from_text("f", text).unwrap();
    // PCIe to its domain is all that is left.
    let kinds: Vec<LinkKind> = topology.links.iter().map(|link| link.kind).collect();
    assert_eq!(kinds, [LinkKind::Pcie]);
    assert!(codes(&topology).contains(&"link-to-itself"), "{:?}", topology.warnings);
}

#[test]
fn a_table_of_the_kfd_that_is_cut_in_its_last_row_is_named() {
    let text = std::fs::read_to_string(file("lumi-kfd-io_links.csv")).unwrap();
    assert!(!codes(&from_text("f.csv", &text).unwrap()).contains(&"kfd-cut"));
    // `28,1`, and without its last digit and line end.
    let cut = text.trim_end().strip_suffix('1').unwrap();
    assert!(codes(&from_text("f.csv", cut).unwrap()).contains(&"kfd-cut"));
}

/// A file of NCCL with these parts of one CPU.
fn nccl(parts: &str) -> Topology {
    let cpu = "<cpu host_hash=\"0x1\" numaid=\"0\" affinity=\"ff\" arch=\"arm64\" vendor=\"ARM\">";
    from_text("f.xml", &format!("<system version=\"1\">{cpu}{parts}</cpu></system>")).unwrap()
}

#[test]
fn templates_say_that_nccl_completes_them() {
    let gpu =
        "<pci busid=\"0001:00:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x20b2\"/>";
    let nic = "<pci busid=\"0101:00:00.0\" class=\"0x020000\"/>";
    let switch = "<pci busid=\"ffff:ff:01.0\" class=\"0x060400\">";
    let topology = nccl(&format!("{switch}{gpu}{nic}</pci>"));
    assert_eq!((topology.gpus[0].arch.as_str(), topology.nics[0].near_gpu), ("sm_80", Some(0)));
    assert!(topology.has_unread_links());
    // Functions without a class may be either.
    let topology = nccl("<pci busid=\"0000:00:16.0\"/><pci busid=\"0000:00:17.0\"/>");
    assert!(topology.gpus.is_empty() && topology.warnings[0].text.contains("2 PCI functions"));
}

#[test]
fn ranks_that_share_a_gpu_and_other_hosts_count_once() {
    let rank = "<gpu dev=\"0\" sm=\"107\" rank=\"0\"><c2c bw=\"50000\" count=\"7\"/></gpu>";
    let pci = "<pci busid=\"0002:81:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x307f\">";
    let topology = nccl(&format!("{pci}{rank}{rank}</pci>"));
    assert_eq!((topology.gpus.len(), codes(&topology)), (1, vec!["gpu-shared"]));
    assert_eq!(topology.links[0].peak, Some(Rate(350.0)));
    let second = format!("</cpu><cpu host_hash=\"0x2\" numaid=\"0\">{pci}{rank}</pci>");
    let topology = nccl(&format!("{pci}{rank}</pci>{second}"));
    assert_eq!((topology.gpus.len(), codes(&topology)), (1, vec!["more-hosts"]));
    let other = pci.replace("0002", "0003");
    let text =
        format!("<system><cpu numaid=\"0\">{pci}{rank}</pci>{other}{rank}</pci></cpu></system>");
    assert!(from_text("f.xml", &text).is_err(), "two addresses of one GPU");
}

#[test]
fn gpus_of_other_vendors_and_other_files_are_not_misnamed() {
    let pci = "<pci busid=\"0000:37:00.0\" class=\"0x038000\" vendor=\"0x1d94\" device=\"0x55b7\">";
    let topology = nccl(&format!("{pci}<gpu dev=\"0\" sm=\"90\" gcn=\"21943\" rank=\"0\"/></pci>"));
    let gpu = &topology.gpus[0];
    assert_eq!((gpu.vendor.as_str(), gpu.name.as_str(), gpu.arch.as_str()), ("", "", ""));
    let error = from_text("g.xml", "<graphs version=\"1\"/>").unwrap_err().to_string();
    assert!(error.contains("NCCL_TOPO_DUMP_FILE"), "{error}");
}
