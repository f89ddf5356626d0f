//! What every command says of a link that is missing, of slow memory and of pages that lie elsewhere.

use std::fs;

use tempfile::TempDir;

use crate::health::{check, faulty, pathline, stdout};

/// A detour around a missing link is no fault of its links, in any command. Memory at 70 %, which copies of one GPU do not
/// show, and pages that lie elsewhere are named.
#[test]
fn a_missing_link_slow_memory_and_moved_pages_are_what_is_named() {
    let dir = TempDir::new().expect("a folder");
    let words =
        |args: &[&str]| stdout(&pathline(args)).split_whitespace().collect::<Vec<_>>().join(" ");
    let run = |machine: &str, cases: &str, name: &str| {
        let out = dir.path().join(name);
        let out = out.to_str().expect("a path");
        (words(&["run", "-m", machine, "--case", cases, "-o", out]), out.to_owned())
    };
    let text = stdout(&pathline(&["model", "show", "mi250x"]));
    let lines = text.lines().filter(|line| !line.contains("a = \"gpu3\", b = \"gpu7\""));
    let file = dir.path().join("lacks.toml");
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).expect("a file");
    let lacks = file.to_str().expect("a path");
    let kernels = "gpu*.vram > gpu*.vram by kernel";
    let (_, before) = run("mi250x", kernels, "before");
    let (found, after) = run(lacks, kernels, "after");
    let fail = "FAIL: xGMI gpu3-gpu7 is missing (0 of 1 links); copies between gpu3 and gpu7 take a longer route";
    assert!(found.contains(fail) && !found.contains("gpu1-gpu5"), "{found}");
    let diff = words(&["diff", &before, &after]);
    assert!(diff.starts_with("SLOWER: xGMI gpu3-gpu7: 1 link before, 0 after; "), "{diff}");
    let remedy = "--showxgmierr` for gpu3, gpu7";
    assert!(diff.contains(remedy) && !diff.contains("gpu1-gpu5"), "{diff}");
    let topo = words(&["topo", "-m", lacks]);
    let missing = "xGMI gpu3-gpu7 is missing (0 of 1 links): `pathline health";
    assert!(topo.starts_with(missing), "{topo}");
    let of = |fault: &str| {
        let fault = format!("[[fault]]\nelement = \"numa1\"\nkind = {fault}");
        faulty(dir.path(), "mi250x", &fault).to_str().expect("a path").to_owned()
    };
    let (json, code) = check(&["-m", &of("\"memory\"\nshare = 0.7")]);
    assert_eq!((json["state"].as_str(), code), (Some("fail"), 1), "{json}");
    let reason = json["reason"].to_string();
    assert!(reason.contains("numa1 DDR: numa1 with gpu2+gpu3"), "{reason}");
    let pages = of("\"numa\"\npages_on = \"numa3\"");
    let (found, _) = run(&pages, "numa*.pinned > gpu*.vram by dma", "pages");
    assert!(found.contains("UNDECIDED: pages of numa1 lie on numa3, which "), "{found}");
    assert!(found.contains("`numastat -m` shows what fills numa1"), "{found}");
}
