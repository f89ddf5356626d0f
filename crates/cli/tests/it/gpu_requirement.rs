//! Runs on hosts whose GPUs cannot be used: what they exit with, and what comes first in the summary.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::journal;

/// A quick real case that needs no feature of the processor, and no GPU.
const HOST: &str = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64KiB";

fn pathline() -> &'static Path {
    Path::new(assert_cmd::cargo::cargo_bin!("pathline"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first headline of a summary, with its mark.
fn first_headline(summary: &str) -> &str {
    let mut lines = summary.lines().map(str::trim_start);
    lines.find(|line| ["! ", "- ", "+ "].iter().any(|mark| line.starts_with(mark))).unwrap_or("")
}

#[test]
fn a_gpu_may_be_required_where_none_can_be_used() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let broken = dir.path().join("libcuda.so.1");
    std::fs::write(&broken, "no library").unwrap();
    let run = |args: &[&str]| -> Output {
        let mut command = Command::new(pathline());
        command
            .args(["run", "--case-budget", "20ms", "--case", HOST, "--out"])
            .arg(&out)
            .args(args);
        // A runtime that does not open, whatever this host has.
        command.env("PATHLINE_CUDA", &broken).stdin(Stdio::null());
        command.output().unwrap()
    };
    let output = run(&["--require", "gpus"]);
    let summary = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{summary}{}", text(&output.stderr));
    let first = first_headline(&summary);
    assert!(first.starts_with("! ") && first.contains("GPU"), "{summary}");
    assert!(summary.contains("libcuda") && summary.contains("pathline doctor"), "{summary}");
    assert!(journal(&out).notes.iter().any(|note| note.code == "gpus-unusable"));
    // The report of it is of the same opinion.
    let report = Command::new(pathline()).arg("report").arg(&out).output().unwrap();
    assert_eq!(report.status.code(), Some(1), "{}", text(&report.stderr));
    assert!(first_headline(&text(&report.stdout)).starts_with("! "));
    // A case of the host that was named needs no GPU, and one may say so for any run.
    for args in [&[][..], &["--require", "host"]] {
        std::fs::remove_dir_all(&out).unwrap();
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

/// Runs a line of the shell on a host with two GPUs of NVIDIA on its bus and no driver for them; none
/// where such a host cannot be made.
fn on_a_host_with_gpus(dir: &Path, line: &str) -> Option<Output> {
    let gpus = ["0000:19:00.0", "0000:3b:00.0"];
    let devices = gpus.map(|pci| {
        let place = format!("/sys/bus/pci/devices/{pci}");
        format!(
            "mkdir -p {place} && echo 0x10de >{place}/vendor && echo 0x2335 >{place}/device && \
             echo 0x030200 >{place}/class && echo 0 >{place}/numa_node"
        )
    });
    let mount = "mount -t tmpfs none /sys/bus/pci/devices";
    let shell = |line: &str| {
        let line = format!("{mount} && {} && {} && {line}", devices[0], devices[1]);
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &line]).current_dir(dir).stdin(Stdio::null());
        command.env("PATHLINE", pathline()).env("HOST", HOST).output()
    };
    let possible = shell("true").is_ok_and(|output| output.status.success());
    if !possible || Path::new("/dev/nvidiactl").exists() {
        println!("not tested: no mount namespace here, or a driver of NVIDIA");
        return None;
    }
    Some(shell(line).unwrap())
}

#[test]
fn gpus_on_the_bus_that_cannot_be_used_are_a_fault() {
    let dir = TempDir::new().unwrap();
    let run = "\"$PATHLINE\" run --time-limit 4 --out whole";
    let Some(output) = on_a_host_with_gpus(dir.path(), run) else { return };
    let summary = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{summary}{}", text(&output.stderr));
    let first = first_headline(&summary);
    assert!(first.starts_with("! None of the 2 GPUs on the bus"), "{summary}");
    // All that a plan rules out is in the journal of a run that was cut.
    let plan = on_a_host_with_gpus(dir.path(), "\"$PATHLINE\" run --dry-run").unwrap();
    let planned = text(&plan.stdout).lines().filter(|line| line.contains("  -- skipped: ")).count();
    let journal = journal(&dir.path().join("whole"));
    let is_skip =
        |o: &&pathline_schema::CaseOutcome| matches!(o, pathline_schema::CaseOutcome::Skipped(_));
    let skipped = journal.outcomes.iter().filter(is_skip).count();
    assert!(planned > 100 && skipped >= planned, "{skipped} of {planned}");
    // Of cases that need none, and by choice, the host is enough.
    for args in ["", "--suite host", "--require host"] {
        let line = format!(
            "rm -rf host; \"$PATHLINE\" run -q --out host --case-budget 20ms --case \"$HOST\" {args}"
        );
        let output = on_a_host_with_gpus(dir.path(), &line).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
    }
    let line = "rm -rf host; \"$PATHLINE\" run -q --out host --case-budget 20ms --case \"$HOST\" --require gpus";
    let output = on_a_host_with_gpus(dir.path(), line).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}
