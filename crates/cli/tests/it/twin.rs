//! A twin fitted in three seconds on two H200s predicts 240 random sets measured after it.

use std::path::Path;
use std::process::{Command, Output};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().expect("a printable path").to_owned()
}

fn pathline(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("pathline")).args(args).output().expect("it runs")
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() as f64 * q) as usize).min(sorted.len() - 1)]
}

#[test]
fn two_h200s_are_predicted() {
    let dir = tempfile::TempDir::new().unwrap();
    let twin = dir.path().join("twin.toml");
    let twin = twin.to_str().unwrap();
    let output = pathline(&["calibrate", &fixture("h200-x2-contention.jsonl.gz"), "-o", twin]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    // Both GPUs at once get 153 GB/s of host traffic, where each alone gets 103 bidirectional.
    assert!(stdout.contains("memory of numa0, both ways"), "{stdout}");

    let seen = fixture("h200-x2-concurrent.jsonl.gz");
    let output = pathline(&["predict", "--machine", twin, "--against", &seen, "--csv", "-"]);
    let table = String::from_utf8(output.stdout).unwrap();
    let mut lines = table.lines();
    let heads: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |name| heads.iter().position(|h| *h == name).unwrap();
    let (error, inside) = (at("error"), at("inside"));
    // No field before the case and what binds it holds a comma.
    let rows: Vec<Vec<&str>> = lines.map(|l| l.split(',').collect()).collect();
    let mut off: Vec<f64> = rows.iter().map(|r| r[error].parse::<f64>().unwrap().abs()).collect();
    off.sort_by(f64::total_cmp);
    assert_eq!(off.len(), 240);
    let (median, p95) = (quantile(&off, 0.5), quantile(&off, 0.95));
    assert!(median < 0.05 && p95 < 0.12, "median {median}, 95th percentile {p95}");
    let inside = rows.iter().filter(|r| r[inside] == "true").count();
    assert!(inside >= 216, "{inside} of 240 within the interval; expected nine of ten");
}
