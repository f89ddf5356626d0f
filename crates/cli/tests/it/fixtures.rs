//! Reports and comparisons of kept runs of real machines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::unwrapped;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(format!("{name}.jsonl.gz"))
}

fn pathline(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("pathline")).args(args).output().expect("it runs")
}

/// Summary and table of a kept run; a row is a series, by the names of its columns.
fn report(name: &str) -> (String, Vec<BTreeMap<String, String>>) {
    let dir = TempDir::new().expect("a folder");
    let (page, table) = (dir.path().join("report.html"), dir.path().join("table.csv"));
    let of = |path: &Path| path.to_str().expect("a printable path").to_owned();
    let run = of(&fixture(name));
    let output = pathline(&["report", &run, "--full", "-o", &of(&page), "-o", &of(&table)]);
    let summary = String::from_utf8(output.stdout).expect("text");
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.trim_end().ends_with("</html>"), "a whole page");
    let mut reader = csv::Reader::from_path(&table).expect("a table");
    let rows: Vec<BTreeMap<String, String>> =
        reader.deserialize().map(|row| row.expect("a row")).collect();
    // What failed in kept runs was killed by people, or aborted by an MPI library. Of two GPUs no path has peers.
    let is_sound = summary.contains("OK: ");
    let has_fault = rows.iter().any(|row| row["outcome"] == "faulted");
    let err = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(if has_fault { 3 } else { 0 }), "{err}");
    assert!(!is_sound || !has_fault, "{summary}");
    assert_eq!(has_fault, summary.contains("did not finish:"), "{summary}");
    (summary, rows)
}

/// Medians of the series whose case holds all of these words.
fn medians(rows: &[BTreeMap<String, String>], words: &[&str]) -> Vec<f64> {
    rows.iter()
        .filter(|row| row["outcome"] == "measured" && words.iter().all(|w| row["case"].contains(w)))
        .filter(|row| !row["case"].contains('&') && !row["case"].contains("while"))
        .map(|row| row["median"].parse().expect("a number"))
        .collect()
}

#[test]
fn a_node_of_four_h200s() {
    let (summary, rows) = report("h200-x4");
    // 18 NVLinks of 26.562 GB/s.
    let staged = "Staged through the host, copies between GPUs reach 49.8 GB/s";
    for words in ["4 x NVIDIA H200", "18 NVLinks", "83 %", "own run", staged] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    let engine = medians(&rows, &["vram > r0.gpu", "vram by dma@", "x 1GiB"]);
    // 4 x 3 ordered pairs, by the engine of either end.
    assert_eq!(engine.len(), 24);
    assert!(engine.iter().all(|gbs| (394.0..398.0).contains(gbs)), "{engine:?}");
    let kernels = medians(&rows, &["vram > r0.gpu", "kernel@", "x 2GiB"]);
    assert!(kernels.len() >= 24 && kernels.iter().all(|gbs| *gbs > 370.0), "{kernels:?}");
    let verified = rows.iter().filter(|r| r["verdict"] == "verified").count();
    assert!(verified > 200, "{verified} of {}", rows.len());
}

#[test]
fn two_runs_minutes_apart_differ_by_less_than_a_percent() {
    let files = [fixture("h200-x4"), fixture("h200-x4-again")];
    let [before, after] = files.each_ref().map(|f| f.to_str().unwrap());
    let output = pathline(&["diff", before, after, "--tolerance", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    // Lines end where the folder's name makes them.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // 304 cases have a result before and no outcome after: not judged.
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.starts_with(
            "UNDECIDED: none of 97 cases in both is slower; 304 cases without an outcome"
        ),
        "{text}"
    );
    assert!(text.contains(": vm, 1 run, 2026-11-21T05:04:27Z: 4"), "{text}");
    // 97 cases in both: 73 of pairs, 24 of local.
    assert!(
        text.contains("97 cases in both, tolerance 1 %: ") && !text.contains("slower: "),
        "{text}"
    );
    // In the verdict and with what is not judged, no third time.
    assert_eq!(text.matches("304 cases").count(), 2, "{text}");
    assert!(text.contains("not judged: 304 cases"), "{text}");
}

#[test]
fn a_killed_worker_costs_its_case() {
    let (summary, rows) = report("h200-x4-killed");
    let faults: Vec<_> = rows.iter().filter(|r| r["outcome"] == "faulted").collect();
    assert!((1..=20).contains(&faults.len()), "{} faults of 20 kills", faults.len());
    assert!(faults.iter().all(|r| r["why"].contains("signal 9")), "{faults:?}");
    let cases: std::collections::BTreeSet<&str> = rows.iter().map(|r| r["case"].as_str()).collect();
    // local 24, host-link 64, pairs 73, latency 40, sweep 94.
    assert_eq!(cases.len(), 295, "{summary}");
}

#[test]
fn hip_over_cuda_moved_real_bytes() {
    let (summary, rows) = report("h200-x4-hip-over-cuda");
    assert!(summary.contains("HIP over CUDA"), "{summary}");
    let engine = medians(&rows, &["vram > r0.gpu", "vram by dma@", "x 1GiB"]);
    assert_eq!(engine.len(), 24);
    assert!(engine.iter().all(|gbs| (394.0..398.0).contains(gbs)), "{engine:?}");
}

#[test]
fn nccl_between_two_h200s_in_algbw_and_busbw() {
    let (summary, rows) = report("h200-x2-nccl");
    // nccl-tests printed 330.3 to 330.8 GB/s for all_reduce of 1 GiB on these two, and 16.6 us at 8 B.
    assert!(summary.contains("all_reduce by NCCL 2.28.9 over 2 ranks"), "{summary}");
    let all_reduce = medians(&rows, &["ccl@gpu0[all_reduce] x 1GiB"]);
    assert!(all_reduce.len() == 1 && (326.0..333.0).contains(&all_reduce[0]), "{all_reduce:?}");
    assert!(rows.iter().all(|row| row["verdict"] == "verified"), "every byte was compared");
    let run = fixture("h200-x2-nccl");
    let printed = pathline(&["report", run.to_str().expect("a path"), "--format", "nccl-tests"]);
    let table = String::from_utf8(printed.stdout).expect("text");
    let row = table.lines().find(|l| l.trim_start().starts_with("1073741824"));
    // Size, count, type, operation, root, time, algbw, busbw: of the first operation, broadcast.
    let numbers: Vec<&str> = row.expect("a row of 1 GiB").split_whitespace().collect();
    let (time, bus): (f64, f64) = (numbers[5].parse().unwrap(), numbers[7].parse().unwrap());
    assert!((1_073_741_824.0 / time / 1e3 - bus).abs() < 0.1, "{numbers:?}");
}

#[test]
fn an_mpi_without_device_memory_is_reported_and_staged() {
    let (summary, rows) = report("h200-x2-mpi-host-only");
    let skipped = rows.iter().filter(|row| row["outcome"] == "skipped").count();
    assert_eq!(skipped, 58);
    assert!(
        rows.iter()
            .filter(|r| r["outcome"] == "skipped")
            .all(|r| { r["why"].contains("takes host memory only") && r["case"].contains("gpu0") })
    );
    assert!(summary.contains("staged through"), "{summary}");
    let staged = medians(&rows, &["mpi-staged@gpu0[send-w4] x 256MiB"]);
    // Over UCX the same library moves device memory 100 times as fast.
    let (_, aware) = report("h200-x2-mpi-ucx");
    let direct = medians(&aware, &["vram by mpi@gpu0[send-w4] x 256MiB"]);
    assert!(staged[0] < 5.0 && direct[0] > 380.0, "{staged:?} {direct:?}");
}

#[test]
fn ucx_reports_the_protocol_of_device_memory() {
    let (_, rows) = report("h200-x2-ucx");
    let device = |row: &&BTreeMap<String, String>| row["case"].contains("r1.gpu1.vram by ucx");
    let engines: Vec<&String> = rows.iter().filter(device).map(|row| &row["engine"]).collect();
    assert!(engines.len() > 40, "{}", engines.len());
    assert!(engines.iter().all(|e| e.contains("UCX 1.22.0") && e.contains("cuda_ipc")));
}

/// Files of 1 MiB blocks into an H200: staging that overlaps keeps what the host gets from the file,
/// staging that waits for each copy loses a third.
#[test]
fn overlapped_staging_keeps_the_rate_of_the_file() {
    let (summary, rows) = report("h200-storage");
    let read =
        |words: &[&str]| medians(&rows, &[&["seq-read,direct,shared,1GiB,q8"], words].concat())[0];
    let host = read(&["numa0.huge by uring", "t1"]);
    let overlapped = read(&["pipelined-registered-huge"]);
    let waiting = read(&["blocking-registered"]);
    // 3.39 of 3.48 GB/s, and 2.37.
    assert!((0.95..1.05).contains(&(overlapped / host)), "{overlapped} of {host}");
    assert!((0.6..0.8).contains(&(waiting / host)), "{waiting} of {host}");
    assert!(summary.contains("of the host's best"), "{summary}");
    let verified =
        rows.iter().filter(|r| r["outcome"] == "measured" && r["case"].contains("store0"));
    assert_eq!(verified.count(), 109);
}

/// Two GPUs are fed at once, and GPU direct is none: the library stages the bytes itself.
#[test]
fn files_of_two_h200s() {
    let (summary, rows) = report("h200-x2-storage");
    let direct = medians(&rows, &["by gds@"]);
    // By 1 and 8 workers: 2.08 and 1.80 GB/s read, 2.54 and 2.74 written.
    assert_eq!(direct.len(), 4);
    assert!(direct.iter().all(|gbs| (1.7..2.8).contains(gbs)), "{direct:?}");
    assert!(summary.contains("4 x not-direct"), "{summary}");
    let both: Vec<f64> = rows
        .iter()
        .filter(|row| row["case"].contains('&') && row["case"].contains("store0"))
        .map(|row| row["median"].parse().expect("a number"))
        .collect();
    // 1.27 GB/s each.
    assert_eq!(both.len(), 2);
    assert!(both.iter().all(|gbs| (1.2..1.35).contains(gbs)), "{both:?}");
    let unverified = |row: &&BTreeMap<String, String>| {
        row["outcome"] == "measured"
            && row["case"].contains("store0")
            && row["verdict"] != "verified"
    };
    assert_eq!(rows.iter().filter(unverified).count(), 0);
}

#[test]
fn what_is_derived_is_written_as_json() {
    let dir = TempDir::new().expect("a folder");
    let page = dir.path().join("report.html");
    let (run, page) = (fixture("h200-x2-nccl"), page.to_str().expect("a printable path"));
    let output = pathline(&["report", run.to_str().expect("text"), "-o", page, "--json"]);
    // Nothing else is on standard output.
    let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(read["format"], 1);
    assert_eq!(read["findings"][0]["id"], "collectives-in-graphs");
    assert!(read["identity"]["libraries"]["ccl"].as_str().expect("text").contains("NCCL 2.28.9"));
    // The page draws the same figures, with six digits.
    let html = std::fs::read_to_string(page).expect("a page");
    let (_, rest) = html.split_once("type=\"application/json\">").expect("data");
    let (data, _) = rest.split_once("</script>").expect("an end");
    let drawn: Value = serde_json::from_str(data).expect("JSON");
    assert!(read["figures"].as_array().is_some_and(|all| all.len() > 5));
    for key in ["figures", "warnings"] {
        assert!(is_same(&read[key], &drawn["runs"][0][key]), "{key}");
    }
}

/// Equal values, but for the last digits of numbers.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| is_same(a, b)))
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            (a - b).abs() <= 1e-5 * a.abs()
        }
        (a, b) => a == b,
    }
}
