//! `pathline place --check`: on this host, on a model, under launchers, with stand-in GPUs, and against a plan.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pathline_stub::need::missing;
use pathline_stub::{StubLibraries, VARIABLE, lay_out};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::unwrapped;

fn pathline(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).stdin(Stdio::null()).env_remove("PATHLINE_RENDEZVOUS");
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(output), unwrapped(&output.stderr)))
}

fn codes(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// The affinity mask of this process, as the kernel lists it.
fn own_cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

#[test]
fn a_process_alone_is_one_rank() {
    let output = pathline(&["place", "--check", "--json"]).output().unwrap();
    let document = json(&output);
    assert_eq!(document["ranks"].as_array().unwrap().len(), 1);
    assert_eq!(document["ranks"][0]["cpus"], own_cpus());
    let table = text(&pathline(&["place", "--check"]).output().unwrap());
    assert!(table.starts_with("1 rank on 1 host"), "{table}");
}

/// Ranks of a model are where `place` puts them, and a plan with one wrong rank is named.
#[test]
fn a_model_shows_its_plan() {
    let dir = TempDir::new().unwrap();
    let plan = dir.path().join("place.sh");
    let good = pathline(&["place", "--machine", "mi250x", "--format", "slurm"]).output().unwrap();
    fs::write(&plan, text(&good)).unwrap();
    let plan_text = plan.to_str().unwrap();
    let simulated = pathline(&["place", "--check", plan_text, "--machine", "mi250x"]);
    let output = { simulated }.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).starts_with("8 ranks on 1 host (simulated)"), "{}", text(&output));
    // GPU 0 hangs on NUMA domain 3, CPUs 48 to 63; CPUs 0 to 7 are those of rank 4.
    let wrong = text(&good).replace("0) cpus=49-55 ", "0) cpus=0 ").replace("=1-7 ", "=0 ");
    fs::write(&plan, wrong).unwrap();
    let args = ["place", "--check", plan_text, "--machine", "mi250x", "--json"];
    let output = pathline(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let document = json(&output);
    assert_eq!(codes(&document), ["shared-core", "gpu-far-cpus"], "{document:#}");
    assert_eq!(document["findings"][0]["ranks"], serde_json::json!([0, 4]));
    assert_eq!(document["findings"][1]["ranks"], serde_json::json!([0]));
}

#[test]
fn a_file_that_is_no_plan_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("x.sh");
    fs::write(&file, "exec \"$@\"\n").unwrap();
    let output = pathline(&["place", "--check", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = unwrapped(&output.stderr);
    assert!(error.contains("x.sh") && error.contains("pathline place"), "{error}");
}

/// Two processes with the variables of a launcher, each of which sees both GPUs of a stand-in.
#[test]
fn ranks_that_see_several_gpus_are_named() {
    let dir = TempDir::new().unwrap();
    let stub = dir.path().join("stub");
    lay_out(&stub, &[StubLibraries::Cuda], &[]).unwrap();
    let start = |rank: &str| {
        let mut command = pathline(&["place", "--check", "--json"]);
        command.env("LD_LIBRARY_PATH", &stub).env("PATHLINE_CUDA", &stub).env(VARIABLE, "gpus=2");
        command.env("PMI_RANK", rank).env("PMI_SIZE", "2");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (second, first) = (start("1"), start("0"));
    let first = first.wait_with_output().unwrap();
    let second = second.wait_with_output().unwrap();
    assert_eq!((second.status.code(), text(&second)), (Some(0), String::new()));
    assert_eq!(first.status.code(), Some(1));
    let document = json(&first);
    assert_eq!(document["launcher"], "PMI");
    let several = document["findings"].as_array().unwrap();
    let several = several.iter().find(|finding| finding["code"] == "several-gpus").unwrap();
    assert_eq!(several["ranks"], serde_json::json!([0, 1]));
    assert_eq!(document["ranks"][1]["simulated"], true);
    assert_eq!(document["ranks"][1]["gpus"].as_array().unwrap().len(), 2);
}

/// An `mpirun` that a variable names; none if none is named, which fails where it is promised.
fn mpirun(name: &str) -> Option<PathBuf> {
    let variable = format!("PATHLINE_TEST_{}", name.to_uppercase());
    let launcher = std::env::var_os(&variable).map(PathBuf::from);
    if launcher.is_none() {
        missing(name, &format!("{variable} names no mpirun"));
    }
    launcher
}

/// The ranks of a job under a launcher with those options, by the script of `place` or without.
fn under(launcher: &Path, options: &[&str], script: Option<&Path>, plan: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.arg("120").arg(launcher).args(options).args(script);
    command.arg(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(["place", "--json", "--check"]).arg(plan).stdin(Stdio::null());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env_remove("PATHLINE_RENDEZVOUS").output().unwrap()
}

/// A job of two ranks that is started as `place` says is where `place` planned it; unbound it is not.
fn starts_as_planned(name: &str, format: &str, unbound: &[&str]) {
    let Some(launcher) = mpirun(name) else { return };
    let planned = pathline(&["place", "--ranks", "2", "--format", format]).output().unwrap();
    if planned.status.code() != Some(0) {
        missing(name, "this host has fewer than two cores");
        return;
    }
    let dir = TempDir::new().unwrap();
    let script = dir.path().join("place.sh");
    fs::write(&script, text(&planned)).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let planned = text(&planned);
    let line = planned.lines().find(|line| line.contains("./place.sh PROGRAM")).unwrap();
    let options = line.trim_start_matches('#').split_whitespace().skip(1);
    let options: Vec<&str> = options.take_while(|word| *word != "./place.sh").collect();
    let output = under(&launcher, &options, Some(&script), &script);
    let document = json(&output);
    assert_eq!(document["ranks"].as_array().unwrap().len(), 2);
    assert_eq!((codes(&document), output.status.code()), (vec![], Some(0)), "{document:#}");
    let output = under(&launcher, unbound, None, &script);
    let document = json(&output);
    assert!(codes(&document).contains(&"plan-cpus"), "{document:#}");
    assert!(codes(&document).contains(&"unbound"), "{document:#}");
}

#[test]
fn mpich_starts_a_job_as_planned() {
    starts_as_planned("mpich", "mpich", &["-n", "2", "-bind-to", "none"]);
}

#[test]
fn open_mpi_starts_a_job_as_planned() {
    starts_as_planned("openmpi", "openmpi", &["-n", "2", "--bind-to", "none"]);
}
