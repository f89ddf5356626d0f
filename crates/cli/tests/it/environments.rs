//! Cases that want other switches of AMD's runtime than the default, on libraries that stand in for it.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::process::{Command, Stdio};

use pathline_schema::{CaseOutcome, Journal};
use pathline_stub::{StubLibraries, VARIABLE, lay_out};
use tempfile::TempDir;

use crate::common::unwrapped;

const DMA: &str = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 16MiB";
const BLIT: &str = "r0.gpu0.vram > r0.gpu1.vram by blit@gpu0 x 16MiB";
const FAULT: &str = "r0.numa0.managed > r0.gpu0.managed by migrate@gpu0[fault] x 16MiB";
const ZERO_COPY: &str =
    "r0.numa0.managed > r0.gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 16MiB";

/// The outcome of each case: its settings and the engine, or why there is no figure.
fn run(set: &[(&str, &str)]) -> (BTreeMap<String, String>, Journal) {
    let folder = TempDir::new().unwrap();
    let libraries = folder.path().join("lib");
    lay_out(&libraries, &[StubLibraries::Hip(6)], &[]).unwrap();
    let out = folder.path().join("run");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command
        .args(["run", "--quiet", "--case-budget", "20ms", "--out"])
        .arg(&out)
        .stdin(Stdio::null());
    for case in [ZERO_COPY, BLIT, DMA, FAULT] {
        command.args(["--case", case]);
    }
    for name in ["HSA_XNACK", "HSA_ENABLE_SDMA", "HSA_ENABLE_PEER_SDMA"] {
        command.env_remove(name);
    }
    command.env("LD_LIBRARY_PATH", &libraries).env("XDG_CACHE_HOME", folder.path().join("cache"));
    command.env("PATHLINE_HIP", &libraries);
    command.env(VARIABLE, "gpus=2").envs(set.iter().copied());
    let output = command.output().unwrap();
    let stderr = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let file = fs::File::open(out.join("run.jsonl")).unwrap();
    let journal = Journal::read(BufReader::new(file)).unwrap();
    let fate = |outcome: &CaseOutcome| match outcome {
        CaseOutcome::Measured(m) => {
            let env: Vec<String> = m.env.iter().map(|(n, v)| format!("{n}={v}")).collect();
            format!("[{}] {}", env.join(" "), m.series[0].engine)
        }
        CaseOutcome::Skipped(skip) => format!("skipped: {}", skip.why),
        CaseOutcome::Faulted(fault) => format!("faulted: {}", fault.error),
    };
    let fates = journal.outcomes.iter().map(|o| (o.case().to_string(), fate(o))).collect();
    (fates, journal)
}

#[test]
fn each_case_is_measured_in_a_process_with_its_switches() {
    let (fates, journal) = run(&[]);
    assert_eq!(fates[DMA], "[] copy engine");
    assert_eq!(fates[BLIT], "[HSA_ENABLE_SDMA=0] blit kernel");
    assert!(fates[FAULT].starts_with("[HSA_XNACK=1] page migration"), "{}", fates[FAULT]);
    assert!(fates[ZERO_COPY].starts_with("[HSA_XNACK=0] kernel"), "{}", fates[ZERO_COPY]);
    assert_eq!(journal.begin.env.get("HSA_XNACK"), None);
}

#[test]
fn user_settings_stay_and_rule_cases_out() {
    let (fates, _) = run(&[("HSA_ENABLE_SDMA", "0"), ("HSA_XNACK", "0")]);
    assert_eq!(fates[DMA], "[] blit kernel");
    assert_eq!(fates[BLIT], "[] blit kernel");
    assert!(fates[FAULT].contains("skipped: HSA_XNACK=0"), "{}", fates[FAULT]);
    assert!(fates[ZERO_COPY].starts_with("[] kernel"), "{}", fates[ZERO_COPY]);
}
