//! A twin fitted in three seconds on two H200s predicts 240 random sets measured after it.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::unwrapped;

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
    let output = pathline(&["model", "fit", &fixture("h200-x2-contention.jsonl.gz"), "-o", twin]);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}{}", unwrapped(&output.stderr));
    // Both GPUs at once get 153 GB/s of host traffic, where each alone gets 103 bidirectional.
    assert!(stdout.contains("memory of numa0, both directions"), "{stdout}");

    let seen = fixture("h200-x2-concurrent.jsonl.gz");
    let table = dir.path().join("table.csv");
    let to = ["-o", table.to_str().unwrap()];
    pathline(&[&["model", "predict", "--machine", twin, "--against", &seen], &to[..]].concat());
    let table = std::fs::read_to_string(table).unwrap();
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

/// Half of the links between gpu0 and gpu6 are lost, and the driver says nothing of it: engines fall from
/// 50.3 to 37.6 GB/s, by a quarter.
#[test]
fn a_twin_of_a_sick_node_comes_with_a_warning() {
    let dir = tempfile::TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (_, healthy) = pathline_flow::MachineDesc::presets()[0];
    let fault = "\n[[fault]]\nelement = \"gpu0-gpu6\"\nkind = \"width\"\nlost = 1\nsilent = true\n";
    for (name, text) in [("sick", format!("{healthy}{fault}")), ("well", healthy.to_owned())] {
        std::fs::write(at(&format!("{name}.toml")), text).unwrap();
        let machine = at(&format!("{name}.toml"));
        let case = "gpu*.vram > gpu*.vram by dma";
        let run = ["run", "-q", "-m", &machine, "-s", "contention", "--case", case, "--out"];
        let code = pathline(&[&run[..], &[&at(name)]].concat()).status.code();
        assert_eq!(code, Some(i32::from(name == "sick")), "{name}");
        let fitted =
            pathline(&["model", "fit", &at(name), "-q", "-o", &at(&format!("{name}.twin"))]);
        let stderr = unwrapped(&fitted.stderr);
        let warned = stderr.lines().find(|line| line.contains("SUSPECT"));
        let Some(warned) = warned else {
            assert_eq!(name, "well", "{stderr}");
            continue;
        };
        assert_eq!(name, "sick", "{stderr}");
        assert!(warned.contains("SDMA copy is 25."), "{warned}");
        assert!(warned.contains("below the median of its 3 peers"), "{warned}");
    }
}
