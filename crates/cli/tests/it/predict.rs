//! `pathline model predict` on models and twins.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::unwrapped;

fn pathline(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(args)
        .env("COLUMNS", "200")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", unwrapped(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error of a command that ends with exit code 2.
fn refused(args: &[&str]) -> String {
    let output = pathline(args);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// Two GPUs: 50 GB/s in, of which both together get 80; 400 from each to the other.
const TWIN: &str = r#"
name = "pair"

[host]
cpu_model = "some CPU"
arch = "x86_64"
sockets = 1
page_bytes = 4096
huge_page_bytes = 2097152

[[numa]]
id = 0
cpus = "0-7"
memory_gib = 64
memory_gbs = 100

[gpus]
vendor = "nvidia"
name = "GPU"
arch = "sm_90"
compute_units = 132
memory_gib = 139
memory_gbs = 4800

[[gpu]]
id = 0
numa = 0

[[gpu]]
id = 1
numa = 0

[measured]
from = "a test"
error_p50 = 1
error_p95 = 5

[[path]]
flow = "numa0.pinned > gpu0.vram by dma@gpu0"
gbs = 50
low = 49
high = 51

[[path]]
flow = "numa0.pinned > gpu1.vram by dma@gpu1"
gbs = 50

[[path]]
flow = "gpu0.vram > gpu1.vram by dma@gpu0"
gbs = 400

[[path]]
flow = "gpu1.vram > gpu0.vram by dma@gpu1"
gbs = 400

[[shared]]
name = "host memory, into both"
gbs = 80
found = "interference"
flows = ["numa0.pinned > gpu0.vram by dma@gpu0", "numa0.pinned > gpu1.vram by dma@gpu1"]
"#;

const IN_0: &str = "numa0.pinned > gpu0.vram by dma@gpu0 x 64MiB";
const IN_1: &str = "numa0.pinned > gpu1.vram by dma@gpu1 x 32MiB";
const PEER: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 512MiB";

fn twin(dir: &Path) -> String {
    let file = dir.join("pair.toml");
    fs::write(&file, TWIN).unwrap();
    file.to_str().unwrap().to_owned()
}

/// 64 and 32 MiB in at 40 each: the second ends at 33554432 / 40 = 838.9 us; the first has as much
/// left and gets 50: 671.1 us more, 1510 us in all. All at the low ends, 49 alone, divided and
/// multiplied by 1.05.
#[test]
fn a_case_by_hand() {
    let dir = TempDir::new().unwrap();
    let (twin, case) = (twin(dir.path()), format!("{IN_0} & {IN_1}"));
    let text = stdout(&pathline(&["model", "predict", "--machine", &twin, "--case", &case]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0] == "flow" && lines[1].ends_with("bound by"), "{text}");
    assert!(lines[3].contains("1.51 ms (1.43 ms to 1.60 ms)"), "{text}");
    assert!(lines[3].contains("44.4") && lines[3].contains("host memory, into both"), "{text}");
    assert!(lines[5].contains("839 us (799 us to 881 us)"), "{text}");
    assert!(lines[6].starts_with("all done after 1.51 ms"), "{text}");
    assert!(lines[6].contains("the intervals of what was measured and the 5 %"), "{text}");
    let json =
        stdout(&pathline(&["model", "predict", "--machine", &twin, "--case", &case, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let number = |path: &str| json.pointer(path).and_then(serde_json::Value::as_f64).unwrap();
    assert!((number("/0/duration/typical_us") - (838.8608 + 671.08864)).abs() < 1e-6);
    assert!((number("/0/flows/1/duration/high_us") - 838.8608 * 1.05).abs() < 1e-6);
    assert!((number("/0/flows/0/alone_gbs") - 50.0).abs() < 1e-9);
    assert_eq!(number("/0/interval_from/error_p95"), 0.05);
    assert_eq!(number("/0/interval_from/orders_possible"), 1.0);
}

/// The engine's rate is fitted, which is known within 3 %, and the form of the model within 4 %: 5 %.
#[test]
fn a_preset_has_intervals_by_the_origin_of_its_constants() {
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB";
    let args = ["model", "predict", "--machine", "mi250x", "--case", case, "--exchange"];
    let exchange = "all_reduce over gpu0-gpu7 by rccl x 1MiB";
    let text = stdout(&pathline(&[&args[..], &[exchange]].concat()));
    assert!(
        text.contains("constants of each origin are known (a time of 0.95 to 1.05 of it)"),
        "{text}"
    );
    assert!(
        text.contains("Decided by (the time for 1 % more of it): copy_engine.gbs -1.00 %"),
        "{text}"
    );
    assert!(text.contains("Expected: "), "{text}");
    assert!(text.contains("software.rccl."), "{text}");
}

/// SDMA packets and their engines were fitted to measurements; rates of copies to pageable memory are assumed.
#[test]
fn a_prediction_names_the_weakest_origin_of_its_constants() {
    let origin = |machine: &str, case: &str| {
        let args = ["model", "predict", "--machine", machine, "--case", case];
        let values = stdout(&pathline(&[args.as_slice(), &["--json"]].concat()));
        let values: serde_json::Value = serde_json::from_str(&values).unwrap();
        (stdout(&pathline(&args)), values[0]["origin"].as_str().map(str::to_owned))
    };
    let (text, fitted) = origin("mi250x", "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB");
    assert_eq!(fitted.as_deref(), Some("fitted"));
    assert!(text.contains("rests on constants that were fitted"), "{text}");
    let (text, assumed) = origin("mi250x", "gpu0.vram > numa3.paged by dma@gpu0 x 1GiB");
    assert_eq!(assumed.as_deref(), Some("assumed"));
    assert!(text.contains("rests on assumed constants"), "{text}");
    assert!(text.contains("pageable.out_gbs -") && text.contains("(assumed)"), "{text}");
    // A description that states no origins.
    let dir = TempDir::new().unwrap();
    let (text, none) = origin(&twin(dir.path()), "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB");
    assert_eq!(none, None);
    assert!(!text.contains("It rests on"), "{text}");
}

/// The message layer's prediction is printed, and a missing description is named.
#[test]
fn an_exchange() {
    let exchange = "all_reduce over gpu0-gpu7 by rccl x 1MiB";
    let text =
        stdout(&pathline(&["model", "predict", "--machine", "mi250x", "--exchange", exchange]));
    assert!(text.contains("done after") && text.contains("of the limit of any library"), "{text}");
    // 2 x 7/8 of the algorithm's bandwidth crosses the links.
    assert!(text.contains("busbw ") && text.contains("(algbw "), "{text}");
    let args = ["model", "predict", "--machine", "hgx-h200", "--exchange", exchange];
    assert!(refused(&args).contains("rccl"), "{}", refused(&args));
}

#[test]
fn errors_name_the_cause() {
    let dir = TempDir::new().unwrap();
    let twin = twin(dir.path());
    let of = |case: &str| refused(&["model", "predict", "--machine", &twin, "--case", case]);
    let other = "gpu1.vram > numa0.pinned by dma@gpu1 x 1MiB";
    let error = of(other);
    assert!(error.contains("pair cannot predict 'gpu1.vram > numa0.pinned"), "{error}");
    assert!(error.contains("not measured: gpu1.vram > numa0.pinned by dma@gpu1; calib"), "{error}");
    let error = of("gpu0.vram gpu1.vram");
    assert!(error.contains("is no flow: SRC > DST [by MOVER]"), "{error}");
    let error = of("gpu0.vram > gpu7.vram by dma@gpu0 x 1MiB");
    assert!(error.contains("this machine has no gpu7"), "{error}");
    let error = refused(&["model", "predict", "--machine", &twin]);
    assert!(error.contains("CASE|EXCHANGE"), "{error}");
    let error = refused(&["model", "predict", "--machine", &twin, "--against", "no-such-run"]);
    assert!(error.contains("no-such-run"), "{error}");
}

/// A twin runs on the simulator, and what it measures there is what it predicts. What it does not
/// know is skipped with the reason, and what was seen is not counted.
#[test]
fn a_twin_against_a_run_of_itself() {
    let dir = TempDir::new().unwrap();
    let twin = twin(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (run, seen) = (path("run"), path("seen"));
    let set = format!("{IN_0} & {IN_1} & {PEER}");
    let unknown = "gpu1.vram > numa0.pinned by dma@gpu1 x 1MiB";
    let ran = |out: &str, cases: &[&str]| {
        let mut args = vec!["run", "--machine", &twin, "--out", out, "--quiet"];
        cases.iter().for_each(|case| args.extend(["--case", case]));
        stdout(&pathline(&args))
    };
    ran(&run, &[IN_0, PEER, &format!("{IN_0} & {IN_1}"), &set, unknown]);
    ran(&seen, &[IN_0, PEER]);
    let journal = fs::read_to_string(dir.path().join("run/run.jsonl")).unwrap();
    assert!(journal.contains("not measured: gpu1.vram > numa0.pinned by dma@gpu1"), "{journal}");
    let (page, table) = (path("page.html"), path("table.csv"));
    let text = stdout(&pathline(&[
        "model",
        "predict",
        "--machine",
        &twin,
        "--against",
        &run,
        "--only-unseen",
        &seen,
        "-o",
        &page,
        "-o",
        &table,
    ]));
    assert!(text.contains("2 sets; 2 cases not counted"), "{text}");
    let rows: Vec<csv::StringRecord> =
        csv::Reader::from_path(&table).unwrap().into_records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in &rows {
        // The simulator's times spread by 0.2 %.
        let error: f64 = row[7].parse().unwrap();
        assert!(error.abs() < 0.005, "{row:?}");
        assert_eq!(&row[8], "true", "{row:?}");
    }
    let mixed = rows.iter().find(|row| &row[0] == "mixed").unwrap();
    assert_eq!(&mixed[1], "3");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.trim_end().ends_with("</html>"));
    // Another node.
    let error = refused(&["model", "predict", "--machine", "mi250x", "--against", &run]);
    assert!(error.contains("and mi250x has 8 x AMD Instinct MI250X: another node"), "{error}");
    // What failed or was cut is named; wrong bytes are a fault. Calibration agrees.
    let (rest, end) = journal.trim_end().rsplit_once('\n').unwrap();
    let fault = |severity: &str| {
        let case = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1GiB";
        let data = format!(
            "\"case\":\"{case}\",\"suites\":[],\"error\":\"no\",\"severity\":\"{severity}\""
        );
        format!("{rest}\n{{\"type\":\"faulted\",\"data\":{{{data}}}}}\n{end}\n")
    };
    let file = path("other.jsonl");
    for (text, code, named) in [
        (journal.clone(), 0, ""),
        (fault("transient"), 0, "1 of 6 cases failed, the first r0.gpu0.vram"),
        (fault("corrupt"), 1, "1 of 6 cases have wrong bytes, the first r0.gpu0.vram"),
        (format!("{rest}\n"), 3, "the run did not end: 5 cases so far"),
    ] {
        fs::write(&file, text).unwrap();
        let predict = pathline(&["model", "predict", "--machine", &twin, "--against", &file]);
        let calibrate = pathline(&["model", "fit", &file, "-o", &path("fit.toml"), "--quiet"]);
        for (output, undecided) in [(predict, false), (calibrate, true)] {
            let error = unwrapped(&output.stderr);
            let found = output.status.code();
            assert!(found == Some(code) || (undecided && code == 0 && found == Some(3)), "{error}");
            assert!(error.contains(named), "{error}");
        }
    }
    // Nothing is left.
    let error = refused(&[
        "model",
        "predict",
        "--machine",
        &twin,
        "--against",
        &seen,
        "--only-unseen",
        &seen,
    ]);
    assert!(error.contains("no case of the run can be predicted"), "{error}");
}

#[test]
fn no_size_is_zero() {
    let args = ["advise", "--collectives", "-m", "hgx-h200", "--bytes", "1MiB,0B"];
    assert!(refused(&args).contains("a size of 1B or more"));
}
