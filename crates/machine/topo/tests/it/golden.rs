//! The whole topology of each file and invented host, against texts that people can read. The
//! maps of these nodes are tested in `explain`, which reads the same texts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use pathline_schema::Topology;
use pathline_topo::{from_path, from_snapshot, from_text};

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Compares with `tests/golden/NAME.json`. With INSTA_UPDATE=always, as for other snapshots, the
/// file is rewritten; review the change before you commit it.
fn check(name: &str, mut topology: Topology) {
    topology.source = name.to_owned();
    let text = serde_json::to_string_pretty(&topology).unwrap() + "\n";
    let path = dir("golden").join(format!("{name}.json"));
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        std::fs::create_dir_all(dir("golden")).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let line = text.lines().zip(golden.lines()).position(|(a, b)| a != b);
    assert!(text == golden, "{name}: differs from line {line:?}; bless with INSTA_UPDATE=always");
    assert_eq!(from_text(name, &golden).unwrap(), topology);
}

#[test]
fn files_of_real_machines() {
    for name in [
        "lumi-kfd-io_links.csv",
        "rccl-topo_4p_940.xml",
        "rccl-topo_8p1h.xml",
        "rccl-topo_8p1h_3.xml",
        "rccl-topo_8p_90a.xml",
        "rccl-topo_8p_940.xml",
        "vm-1x-h200.json",
    ] {
        check(name, from_path(&dir("data").join(name)).unwrap());
    }
}

#[test]
fn invented_hosts() {
    check("mi250x-host", from_snapshot("", &crate::common::mi250x()));
    check("h200-host", from_snapshot("", &crate::common::h200()));
    check("one-domain-host", from_snapshot("", &crate::common::host("plain", 1)));
}
