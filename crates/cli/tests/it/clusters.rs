//! Machines of several nodes: the commands of docs/understand/clusters.md.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::unwrapped;

const DOCUMENT: &str = include_str!("../../../../docs/understand/clusters.md");

fn pathline(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", unwrapped(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(output: Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    unwrapped(&output.stderr)
}

/// The first block of the document in this language whose text begins so.
fn block(language: &str, begin: &str) -> String {
    let (_, rest) = DOCUMENT.split_once(&format!("```{language}\n{begin}")).unwrap();
    begin.to_owned() + rest.split_once("```").unwrap().0
}

#[test]
fn the_document_holds() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let file = |name: &str, text: &str| fs::write(here.join(name), text).unwrap();
    file("lumi.toml", &block("toml", ""));
    let exchange = "all_to_all over n0-n127.gpu0-gpu7 by rccl x 1GiB";
    file(
        "exchanges.txt",
        &format!("# two\n\nsend over gpu0>n1.gpu0 by cray-mpich x 16MiB\n{exchange}\n"),
    );
    let lumi = ["model", "predict", "--machine", "lumi.toml"];
    let predict = |args: &[&str], input: &str| pathline(here, &[&lumi, args].concat(), input);
    let text = stdout(predict(&["--exchange-file", "exchanges.txt", "-o", "links.csv"], ""));
    // 128 nodes fill group 0. Of each node's 8 x 1023 parts 8 x 1016 leave it by 4 adapters of 25 x 0.953
    // GB/s: 8 x 1016 MiB / 95.3 GB/s = 89.4 ms.
    assert!(text.contains("1047552 transfers of 1048576 B at once"), "{text}");
    assert!(text.contains("adapter") && text.contains("local"), "{text}");
    assert!(text.contains("23.8 GB/s"), "{text}");
    let table = fs::read_to_string(here.join("links.csv")).unwrap();
    assert!(table.lines().any(|row| row.contains("group0 router0 > group0 router1")), "{table}");
    let json = stdout(predict(&["--exchange-file", "-", "--json"], exchange));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let us = json[0]["us"].as_f64().unwrap();
    let adapters = 8.0 * 1016.0 * 1_048_576.0 / 95.3e3;
    assert!(us >= adapters * 0.999, "{us} {adapters}");
    stdout(predict(&["--exchange-file", "exchanges.txt", "-o", "links.json"], ""));
    let links = fs::read_to_string(here.join("links.json")).unwrap();
    assert!(links.contains("\"level\": \"node\""), "{links}");
    let error =
        refused(predict(&["--exchange-file", "-"], "\nsend over gpu0>n2978.gpu0 by ucx x 1B\n"));
    assert!(error.contains("standard input:2: ") && error.contains("n0 to n2977"), "{error}");
}

/// Source 004: 25 GB/s between nodes, and all_reduce of 2 x 4 ranks 5.22 us.
#[test]
fn a_run_over_two_nodes_has_published_values() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = ["run", "--machine", "mi250x", "--ranks", "8", "--quiet", "--out", "run"];
    let cases = [
        "--nodes",
        "2",
        "--case",
        "r0.gpu0.vram > r4.gpu0.vram by mpi@gpu0[send-w64] x 16MiB",
        "--case",
        "r0.gpu0.vram > r7.gpu3.vram by mpi@gpu0[all_reduce] x 8B",
    ];
    stdout(pathline(here, &[run.as_slice(), &cases].concat(), ""));
    // Messages have no peers, so nothing is said of the node, and nothing is wrong.
    let report = pathline(here, &["report", "run", "--format", "csv"], "");
    assert_eq!(report.status.code(), Some(0), "{}", unwrapped(&report.stderr));
    let csv = String::from_utf8(report.stdout).unwrap();
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    let names: Vec<String> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let column = |name: &str| names.iter().position(|known| known == name).unwrap();
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    let value = |case: &str, name: &str| {
        let row = rows.iter().find(|row| row[0].contains(case)).unwrap();
        row[column(name)].parse::<f64>().unwrap_or_else(|_| panic!("{case}: {name} of {csv}"))
    };
    assert_eq!(value("send-w64", "published"), 25.0);
    assert!((value("send-w64", "median") / 23.82 - 1.0).abs() < 0.01, "{csv}");
    let us = 8e-3 / value("all_reduce", "median");
    assert!((us / 5.22 - 1.0).abs() < 0.05, "{us}");
    let many = ["run", "--machine", "mi250x", "--ranks", "20", "--nodes", "2", "--out", "many"];
    let error = refused(pathline(here, &many, ""));
    assert!(error.contains("use --nodes 3 or more"), "{error}");
}
