//! A worker process that crashes, hangs, is killed or loses a GPU costs the case in flight.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{command, faults, is_alive, is_whole, journal, signal, unwrapped, wait_until};
use pathline_schema::{CaseOutcome, Journal, Severity, Unit};
use tempfile::TempDir;

/// Real cases that need no feature of the processor: one thread, 64 KiB.
const HOST: &str = "numa0.huge > * by cpu@numa0[*-t1] x 64KiB";
fn run(args: &[&str]) -> (Output, Journal) {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let output = command(args, &out).output().unwrap();
    let journal = journal(&out);
    (output, journal)
}

/// Number of cases of a plan.
fn planned(args: &[&str]) -> usize {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    let output = command.args(["run", "--dry-run", "--json"]).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().count()
}

/// Children of a process.
fn children(pid: u32) -> Vec<u32> {
    crate::common::processes()
        .into_iter()
        .filter(|&other| crate::common::parent(other) == Some(pid))
        .collect()
}

/// A run, and its worker once there is one.
fn begun(args: &[&str], out: &Path) -> (Child, u32) {
    let child = command(args, out).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut worker = None;
    wait_until("a worker", || {
        worker = children(child.id()).first().copied();
        worker.is_some()
    });
    (child, worker.unwrap())
}

fn lines(out: &Path) -> usize {
    fs::read_to_string(out.join("run.jsonl")).unwrap_or_default().lines().count()
}

/// A sequence that looks random and is the same every time (Knuth's linear congruential generator).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn killed_at_twenty_moments_only_cases_in_flight_are_lost() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let case = ["--case", "gpu*.vram > gpu*.vram by kernel", "--machine", "mi250x", "--worker"];
    let planned = planned(&["--machine", "mi250x", "--case", case[1]]);
    assert!(planned > 150, "{planned} cases are too few to be killed in 20 times");
    let (mut child, _) = begun(&case, &out);
    let (mut seed, mut killed) = (42, 0);
    // Moments are lines of the journal: after a drawn number of them, the current worker is killed.
    let mut next = 0;
    while killed < 20 {
        next += 1 + draw(&mut seed) as usize % 12;
        let mut ended = false;
        wait_until("the next moment", || {
            ended = child.try_wait().unwrap().is_some();
            ended || lines(&out) >= next
        });
        assert!(!ended, "the run ended after {killed} kills");
        next = lines(&out);
        let workers = children(child.id());
        workers.iter().for_each(|&pid| signal(pid, "-KILL"));
        killed += workers.len();
    }
    let code = child.wait().unwrap().code();
    let journal = journal(&out);
    is_whole(&journal, planned);
    let lost = faults(&journal);
    assert!(lost.len() <= killed, "{} cases for {killed} kills", lost.len());
    assert!(!lost.is_empty());
    assert_eq!(code, Some(3), "incomplete; nothing accuses the node");
    for fault in lost {
        // A process that was killed from outside proves nothing about the GPU.
        assert_eq!(fault.severity, Severity::Transient, "{}", fault.error);
        assert!(fault.error.contains("signal 9"), "{}", fault.error);
    }
    assert!(journal.outcomes.iter().all(|o| !matches!(o, CaseOutcome::Skipped(_))));
}

#[test]
fn a_crash_in_host_code_costs_its_case() {
    let what = "crash visit copy-memcpy";
    let (output, journal) = run(&["--case", HOST, "--inject", what, "--case-budget", "20"]);
    assert_eq!(output.status.code(), Some(1));
    let lost = faults(&journal);
    assert_eq!(lost.len(), 1);
    assert!(lost[0].case.to_string().contains("copy-memcpy"));
    let error = &lost[0].error;
    assert!(error.starts_with("visit on the worker process"), "{error}");
    assert!(error.contains("signal 6 (SIGABRT)") && error.contains("Crash on order"), "{error}");
    assert!(journal.outcomes.len() > 3 && journal.end.unwrap().complete);
}

#[test]
fn an_exit_is_named_by_its_code() {
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let (_, journal) =
        run(&["--machine", "mi250x", "--worker", "--case", case, "--inject", "exit verify"]);
    let lost = faults(&journal);
    assert!(lost[0].error.contains("ended with code 3"), "{}", lost[0].error);
    assert!(lost[0].error.starts_with("verify on"), "{}", lost[0].error);
}

#[test]
fn a_hang_is_cut_by_its_deadline() {
    let begun = Instant::now();
    let (_, journal) = run(&[
        "--machine",
        "mi250x",
        "--worker",
        "--suite",
        "latency",
        "--inject",
        "hang visit gpu3.vram > r0.gpu5.vram by dma",
        "--case-deadline",
        "3",
    ]);
    is_whole(&journal, planned(&["--machine", "mi250x", "--suite", "latency"]));
    let lost = faults(&journal);
    assert_eq!(lost.len(), 1);
    let error = &lost[0].error;
    assert!(error.contains("hung: the step 'visit'") && error.contains("was killed"), "{error}");
    assert!(error.contains("Hang on order"), "its last words: {error}");
    assert_eq!(lost[0].severity, Severity::Sticky);
    assert!(begun.elapsed() > Duration::from_secs(3));
}

/// Cases inside one GPU each: GPU 0 fails in every process at its third copy.
#[test]
fn a_gpu_that_fails_twice_is_retired_and_the_others_go_on() {
    let local =
        |gpu: u32, mib: u32| format!("gpu{gpu}.vram > gpu{gpu}.vram by dma@gpu{gpu} x {mib}MiB");
    let cases: Vec<String> =
        [10, 11, 12, 13].iter().flat_map(|&mib| [local(0, mib), local(2, mib)]).collect();
    let mut args = vec!["--machine", "mi250x", "--worker", "--inject", "fails copy 3 sticky 0"];
    for case in &cases {
        args.extend(["--case", case]);
    }
    let (_, journal) = run(&args);
    is_whole(&journal, cases.len());
    let lost = faults(&journal);
    assert_eq!(lost.len(), 4, "all of GPU 0");
    assert!(lost.iter().all(|f| f.case.flows().all(|flow| flow.by.at() == Unit::Gpu(0))));
    let retired: Vec<_> = lost.iter().filter(|f| f.error.contains("retired")).collect();
    assert_eq!(retired.len(), 2, "the first two showed it");
    assert!(retired.iter().all(|f| f.error.contains("fault on order in call 3")));
    let note = journal.notes.iter().find(|n| n.code == "retired").unwrap();
    assert_eq!(note.subject, "gpu0");
}

/// Samples that a case had before another one of its group crashed are part of its record.
#[test]
fn cases_that_were_interleaved_keep_their_samples() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    // A wide spread wants many samples, so that all cases of the group are open for long.
    let args = ["--machine", "mi250x", "--worker", "--suite", "latency", "--precision", "0.01"];
    let crash = ["--inject", "crash bind gpu1.vram > r0.gpu7"];
    assert_eq!(command(&[&args[..], &crash].concat(), &out).status().unwrap().code(), Some(1));
    let text = fs::read_to_string(out.join("run.jsonl")).unwrap();
    let mut sampled: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut kept = 0;
    for line in text.lines() {
        match serde_json::from_str(line).unwrap() {
            pathline_schema::JournalRecord::Sampled(s) => {
                sampled.entry(s.case.to_string()).or_default().extend(&s.series[0].samples_ns);
            }
            pathline_schema::JournalRecord::Measured(m) => {
                if let Some(early) = sampled.get(&m.case.to_string()) {
                    assert_eq!(m.series[0].samples_ns[..early.len()], early[..], "{}", m.case);
                    kept += 1;
                }
            }
            _ => {}
        }
    }
    assert!(kept >= 15, "{kept}");
}

#[test]
fn a_machine_that_cannot_be_opened_ends_the_run_with_its_reason() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let args = ["--machine", "mi250x", "--worker", "--inject", "exit start"];
    let output = command(&args, &out).output().unwrap();
    let stderr = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("cannot be opened") && stderr.contains("ended with code 3"),
        "{stderr}"
    );
}

#[test]
fn gpus_that_cannot_be_opened_leave_the_host() {
    let host = "numa0.huge > numa0.huge by cpu@numa0[copy-avx2-t1] x 64MiB";
    let gpu = |mib: u32| format!("gpu0.vram > gpu1.vram by dma@gpu0 x {mib}MiB");
    let (first, second) = (gpu(10), gpu(11));
    let cases = ["--case", &first, "--case", &second, "--case", host];
    let args = [&["--machine", "mi250x", "--worker"], &cases[..]].concat();
    let why = |outcome: &CaseOutcome| match outcome {
        CaseOutcome::Measured(_) => "measured".to_owned(),
        CaseOutcome::Skipped(skip) => format!("skipped: {}", skip.why),
        CaseOutcome::Faulted(fault) => format!("faulted: {}", fault.error),
    };
    let outcomes = |inject: &[&str]| -> BTreeMap<String, String> {
        let (_, journal) = run(&[&args[..], inject].concat());
        is_whole(&journal, 3);
        journal
            .outcomes
            .iter()
            .map(|o| (o.case().flows().next().unwrap().bytes.to_string(), why(o)))
            .collect()
    };
    // From the beginning: the plan knows of no GPU, so its cases are skipped.
    let never = outcomes(&["--inject", "exit open"]);
    assert_eq!(never["64MiB"], "measured");
    for bytes in ["10MiB", "11MiB"] {
        assert!(never[bytes].starts_with("skipped: no GPU runtime"), "{}", never[bytes]);
        assert!(never[bytes].contains("ended with code 3"), "{}", never[bytes]);
    }
    // Half-way: one case crashes, and after that the GPUs do not come back.
    let inject = ["--inject", "crash visit x 10MiB", "--inject", "exit reopen"];
    let lost = outcomes(&inject);
    assert_eq!(lost["64MiB"], "measured");
    assert!(lost["10MiB"].contains("signal 6"), "{}", lost["10MiB"]);
    assert!(lost["11MiB"].starts_with("faulted: open on the GPU runtime"), "{}", lost["11MiB"]);
    assert!(lost["11MiB"].contains("ended with code 3"), "{}", lost["11MiB"]);
}

#[test]
fn ctrl_c_leaves_a_journal_that_can_be_resumed() {
    for how in ["-INT", "-TERM"] {
        let dir = TempDir::new().unwrap();
        let out = dir.path().join("run");
        let (mut child, worker) = begun(&["--case", HOST, "--precision", "0.01"], &out);
        wait_until("an outcome", || {
            let text = fs::read_to_string(out.join("run.jsonl")).unwrap_or_default();
            text.contains(r#"{"type":"measured""#)
        });
        // As a terminal or a batch system does it: all processes get the signal.
        signal(worker, how);
        signal(child.id(), how);
        assert_eq!(child.wait().unwrap().code(), Some(3), "{how}");
        let cut = journal(&out);
        assert_eq!(cut.end.unwrap().why.as_deref(), Some("interrupted"));
        assert!(!is_alive(worker));
        let resumed = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
            .args(["run", "--quiet", "--resume"])
            .arg(&out)
            .status()
            .unwrap();
        assert_eq!(resumed.code(), Some(0));
        assert!(journal(&out).end.unwrap().complete);
    }
}

#[test]
fn a_hung_worker_does_not_hold_a_run_that_is_to_end() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let args = ["--case", HOST, "--inject", "hang visit copy-memcpy"];
    let (mut child, worker) = begun(&args, &out);
    wait_until("the hang", || {
        let before = lines(&out);
        std::thread::sleep(Duration::from_millis(700));
        before > 0 && lines(&out) == before
    });
    signal(child.id(), "-INT");
    // It was the first case that hung: there is nothing to judge by.
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(!is_alive(worker));
    let journal = journal(&out);
    assert!(faults(&journal).is_empty(), "the case in flight stays open");
    assert!(!journal.end.unwrap().complete);
}

#[test]
fn a_killed_supervisor_leaves_no_worker_behind() {
    let dir = TempDir::new().unwrap();
    let out: PathBuf = dir.path().join("run");
    // One worker works, one hangs and cannot hear that its socket is closed.
    for inject in [&[][..], &["--inject", "hang visit copy-memcpy"]] {
        let _ = fs::remove_dir_all(&out);
        let args = [&["--case", HOST, "--precision", "0.01"], inject].concat();
        let (mut child, worker) = begun(&args, &out);
        wait_until("a line", || lines(&out) > 3);
        signal(child.id(), "-KILL");
        child.wait().unwrap();
        wait_until("the worker's end", || !is_alive(worker));
        assert!(journal(&out).end.is_none());
    }
}

#[test]
fn the_workers_command_is_for_runs_only() {
    let output = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .arg("worker")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(unwrapped(&output.stderr).contains("pathline run"));
}

/// Each kind of end that a run can have: `run` and `report` of it end alike, by the code of the verdict.
#[test]
fn run_and_report_end_alike_for_every_kind_of_partial_run() {
    let pairs = "gpu*.vram > gpu*.vram by kernel";
    let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
    let sick = |dir: &Path, kind: &str| {
        let show = ["model", "show", "mi250x"];
        let program = assert_cmd::cargo::cargo_bin!("pathline");
        let text = Command::new(program).args(show).output().unwrap().stdout;
        let fault = format!("\n[[fault]]\nelement = \"gpu3\"\nkind = \"{kind}\"\nafter_ms = 20\n");
        let file = dir.join(format!("{kind}.toml"));
        fs::write(&file, [text, fault.into_bytes()].concat()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let dir = TempDir::new().unwrap();
    let files = ["hang", "crash"].map(|kind| sick(dir.path(), kind));
    let worker = |case, inject, more: &[&'static str]| -> Vec<&str> {
        let args = ["--machine", "mi250x", "--worker", "--case", case, "--inject", inject];
        [&args[..], more].concat()
    };
    let model = |machine| vec!["--machine", machine, "--case", pairs];
    for (nth, (args, ended, wanted)) in [
        (model("mi250x"), "", 0),
        (model(&files[0]), "", 1),
        (model(&files[1]), "", 1),
        (worker(pairs, "crash visit", &[]), "", 1),
        (worker(pairs, "exit verify", &[]), "", 1),
        (worker(case, "hang visit", &["--case-deadline", "2"]), "", 1),
        ([model("mi250x"), vec!["--time-limit", "1"]].concat(), "", 0),
        (vec!["--machine", "mi250x", "--worker"], "-INT", 3),
        (vec!["--machine", "mi250x", "--worker"], "worker -KILL", 3),
        // The handler that the language installs takes the first one for an error of the stack.
        (vec!["--machine", "mi250x", "--worker"], "worker -SEGV -SEGV", 1),
        (vec!["--machine", "mi250x", "--worker"], "-KILL", 3),
    ]
    .into_iter()
    .enumerate()
    {
        let out = dir.path().join(nth.to_string());
        let mut run = command(&args, &out);
        let code = match ended {
            "" => run.output().unwrap().status.code(),
            signals => {
                let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                wait_until("some results", || lines(&out) > 12);
                let of_worker = signals.starts_with("worker");
                let of = if of_worker { children(child.id())[0] } else { child.id() };
                for sent in signals.split(' ').filter(|word| word.starts_with('-')) {
                    signal(of, sent);
                    std::thread::sleep(Duration::from_millis(50));
                }
                if of_worker {
                    let worker = || children(child.id()).first().copied();
                    wait_until("another worker", || worker().is_some_and(|other| other != of));
                    signal(child.id(), "-INT");
                }
                child.wait().unwrap().code()
            }
        };
        let program = assert_cmd::cargo::cargo_bin!("pathline");
        let report = Command::new(program).arg("report").arg(&out).output().unwrap();
        let text = String::from_utf8_lossy(&report.stdout).into_owned();
        assert_eq!(report.status.code(), Some(wanted), "{args:?} {ended}: {text}");
        assert!(code.is_none() || code == Some(wanted), "{args:?} {ended}: {code:?} {text}");
    }
}
