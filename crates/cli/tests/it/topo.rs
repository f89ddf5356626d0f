//! `pathline topo` from files, from this host, and from simulated machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pathline_schema::{Bytes, LinkEnd, LinkKind, Topology};
use quick_xml::events::Event;
use tempfile::TempDir;

use crate::common::unwrapped;

fn topo(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .arg("topo")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

/// Standard output of a successful command.
fn stdout(args: &[&str]) -> String {
    let output = topo(args);
    let err = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(args: &[&str]) -> Topology {
    let text = stdout(&[args, &["--json"]].concat());
    serde_json::from_str(&text).expect("a topology")
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../machine/topo/tests/data").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a printable path")
}

/// Each file, and lines that its picture must have.
const FILES: &[(&str, &[&str])] = &[
    (
        "lumi-kfd-io_links.csv",
        &[
            "gpu1 1 · 2 1 2 1 2 3",
            "gpu3 2 1 1 · 2 3 2 1",
            "gpu1 to gpu7 widest 1-0-6-7: 3 hops, 2 wide, 100 GB/s (in use)",
            "shortest 1-3-7 or 1-5-7: 2 hops, 1 wide, 50.0 GB/s",
            "gpu3 to gpu5 widest 3-2-4-5: 3 hops, 2 wide, 100 GB/s (in use)",
            "links [host-link-claim]",
        ],
    ),
    (
        "rccl-topo_8p1h_3.xml",
        &[
            "gpu1 1 · 2 1 2 1 2 3",
            "gpu7 2 3 2 1 2 1 1 ·",
            "gpu5 2 1 2 3 1 · 2 1",
            "gpu1 to gpu7 widest 1-0-6-7: 3 hops, 2 wide, 100 GB/s (in use)",
            "net net0 200 Gbit/s, PCIe 4.0 x16, 31.5 GB/s, 0000:c5:00.0",
            "links [host-link-claim]",
        ],
    ),
    (
        "rccl-topo_8p1h.xml",
        &[
            "gpu1 1 · 2 1 2 3 2 1",
            "gpu1 to gpu5 widest 1-0-4-5: 3 hops, 2 wide, 100 GB/s (in use)",
            "gpu3 to gpu7 widest 3-2-6-7: 3 hops, 2 wide, 100 GB/s (in use)",
        ],
    ),
    ("rccl-topo_8p_90a.xml", &["gpu0 · 1 1 · · · 1 ·", "links [xgmi-count-flat]"]),
    (
        "rccl-topo_4p_940.xml",
        &[
            "Hops of the route in use: 1 for each pair",
            "nics [nic-speed]",
            "links [xgmi-count-flat]",
            "links [host-link-claim]",
        ],
    ),
    ("rccl-topo_8p_940.xml", &["Direct links: 1 for each pair", "gpu0 · 64 64 64 64 64 64 64"]),
    (
        "vm-1x-h200.json",
        &[
            "gpu0 NVIDIA H200 (sm_90), host PCIe 5.0 x16, 63.0 GB/s, 0000:00:06.0",
            "host [numa-memory]",
        ],
    ),
];

/// Lines without the number of spaces between words, and parts of matrices that stand side by
/// side apart.
fn lines(text: &str) -> Vec<String> {
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let apart = |line: &str| -> Vec<String> {
        let parts = line.match_indices("gpu").map(|(at, _)| at).filter(|&at| at > 0);
        let ends = parts.filter(|&at| line[..at].ends_with("    ")).collect::<Vec<_>>();
        let whole = [words(line)];
        whole
            .into_iter()
            .chain(ends.iter().flat_map(|&at| [words(&line[..at]), words(&line[at..])]))
            .collect()
    };
    text.lines().flat_map(apart).collect()
}

#[test]
fn every_file_gives_its_picture() {
    let here = fs::read_dir(data("")).unwrap().count();
    assert_eq!(here, FILES.len() + 1, "files that no line is expected of (one is the README)");
    for (name, expected) in FILES {
        let picture = stdout(&["--from", text(&data(name))]);
        let lines = lines(&picture);
        for line in *expected {
            assert!(lines.iter().any(|l| l.contains(line)), "{name}: no {line:?} in\n{picture}");
        }
        assert!(!picture.contains('\x1b'), "{name}: colour without a terminal");
        let warnings = json(&["--from", text(&data(name))]).warnings.len();
        let shown = picture.lines().filter(|l| l.starts_with("  ") && l.ends_with(']')).count();
        assert_eq!(warnings, shown, "{name}: warnings shown\n{picture}");
    }
}

/// A topology written under the name of its source gives the same picture: the name is in the
/// title.
#[test]
fn json_gives_the_same_picture() {
    let dir = TempDir::new().unwrap();
    for (name, _) in FILES {
        let path = dir.path().join(name);
        fs::write(&path, stdout(&["--from", text(&data(name)), "--json"])).unwrap();
        let original = data(name);
        let (there, back) = (["--from", text(&original)], ["--from", text(&path)]);
        assert_eq!(stdout(&there), stdout(&back), "{name}");
        let topology = Topology { source: String::new(), ..json(&there) };
        assert_eq!(topology, Topology { source: String::new(), ..json(&back) }, "{name}");
    }
}

#[test]
fn the_svg_is_well_formed() {
    let dir = TempDir::new().unwrap();
    for (name, _) in FILES {
        let path = dir.path().join("map.svg");
        assert_eq!(stdout(&["--from", text(&data(name)), "-o", text(&path)]), "", "{name}");
        let svg = fs::read_to_string(&path).unwrap();
        let mut reader = quick_xml::Reader::from_str(&svg);
        let mut names = Vec::new();
        let mut depth = 0;
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{name}: {error}")) {
                Event::Start(tag) => {
                    depth += 1;
                    names.push(tag.name().as_ref().to_owned());
                }
                Event::End(_) => depth -= 1,
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!((depth, names.first().map(String::as_str)), (0, Some("svg")), "{name}");
        let gpus = json(&["--from", text(&data(name))]).gpus.len();
        let shown = (0..gpus).filter(|n| svg.contains(&format!("gpu{n}"))).count();
        assert_eq!(shown, gpus, "{name}: GPUs in the map");
    }
}

/// Links between GPUs, which is what NCCL takes from such a file.
fn between_gpus(topology: &Topology) -> Vec<(LinkEnd, LinkEnd, LinkKind, u32)> {
    let joined = topology.links.iter().filter(|link| {
        matches!((link.a, link.b), (LinkEnd::Gpu(_), LinkEnd::Gpu(_)))
            && link.kind != LinkKind::Pcie
    });
    joined.map(|link| (link.a, link.b, link.kind, link.width)).collect()
}

#[test]
fn the_xml_is_read_back() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("topo.xml");
    for (name, _) in FILES {
        let from = data(name);
        assert_eq!(stdout(&["--from", text(&from), "-o", text(&path)]), "", "{name}");
        let (there, back) = (json(&["--from", text(&from)]), json(&["--from", text(&path)]));
        let domains = |t: &Topology| t.numa.iter().map(|d| d.id).collect::<Vec<_>>();
        assert_eq!(domains(&there), domains(&back), "{name}");
        // A link table knows no PCI addresses, and the format names GPUs by nothing else.
        if name.ends_with(".csv") {
            assert!(back.gpus.is_empty());
            continue;
        }
        let gpus = |t: &Topology| {
            t.gpus
                .iter()
                .map(|g| (g.index, g.pci.clone(), g.arch.clone(), g.numa))
                .collect::<Vec<_>>()
        };
        let where_known = |t: &Topology| {
            let mut gpus = gpus(t);
            let only = (t.numa.len() == 1).then(|| t.numa[0].id);
            gpus.iter_mut().for_each(|gpu| gpu.3 = gpu.3.or(only));
            gpus
        };
        assert_eq!(where_known(&there), where_known(&back), "{name}");
        assert_eq!(between_gpus(&there), between_gpus(&back), "{name}");
    }
}

/// The picture printed while saving comes from the saved files, free memory included.
#[test]
fn a_saved_topology_gives_the_same_picture() {
    let dir = TempDir::new().unwrap();
    let mut saved = Vec::new();
    for name in ["tree", "file.json"] {
        let path = dir.path().join(name);
        let shown = stdout(&["--save", text(&path)]);
        assert_eq!(stdout(&["--from", text(&path)]), shown, "{name}");
        assert_eq!(path.is_dir(), name == "tree");
        saved.push(json(&["--from", text(&path)]));
    }
    // Two looks at one host differ in nothing but free memory.
    let lasting = |mut topology: Topology| {
        topology.source = String::new();
        topology.host.available = Bytes(0);
        topology.numa.iter_mut().for_each(|domain| domain.free = Bytes(0));
        topology
    };
    let live = lasting(json(&[]));
    for topology in saved {
        assert_eq!(lasting(topology), live);
    }
}

/// Rows of the matrices between GPUs: hops, direct links, widths, peaks.
fn matrices(picture: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rows = picture.lines().filter(|line| line.starts_with("gpu"));
    rows.map(words).collect()
}

#[test]
fn the_simulated_node_is_the_real_one() {
    let simulated = matrices(&stdout(&["--machine", "mi250x"]));
    // Two rows of two matrices for each of eight GCDs.
    assert_eq!(simulated.len(), 16, "{simulated:#?}");
    for name in ["rccl-topo_8p1h_3.xml", "lumi-kfd-io_links.csv"] {
        assert_eq!(matrices(&stdout(&["--from", text(&data(name))])), simulated, "{name}");
    }
}

#[test]
fn broken_files_name_file_and_line() {
    let dir = TempDir::new().unwrap();
    let whole = fs::read_to_string(data("rccl-topo_8p1h.xml")).unwrap();
    let cut = whole.find("<nic>").expect("an adapter");
    let line = whole[..cut].lines().count();
    let cases = [
        ("cut.xml", whole[..cut].to_owned(), format!("cut.xml:{line}: the file ends inside")),
        ("count.xml", whole.replacen("count=\"4\"", "count=\"x\"", 1), "count.xml:".into()),
        ("half.json", "{\n\"source\": ".into(), "half.json:2: ".into()),
        ("words.txt", "words\n".into(), "words.txt:1: 'words' begins no known form".into()),
        ("empty", String::new(), "empty: an empty file".into()),
    ];
    for (name, content, expected) in cases {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let output = topo(&["--from", text(&path)]);
        let err = unwrapped(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {err}");
        assert!(err.contains(&expected), "{name}: no {expected:?} in {err}");
        assert!(output.stdout.is_empty(), "{name}");
    }
    // A folder that is no snapshot.
    let output = topo(&["--from", text(dir.path())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(unwrapped(&output.stderr).contains("neither sys nor proc"));
}
