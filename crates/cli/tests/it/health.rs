//! `pathline health`: answers in time whatever happens, in every format, on good and faulty nodes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use tempfile::TempDir;

use pathline_stub::need::missing;
use pathline_stub::{StubLibraries, lay_out};

use crate::common::processes;
use crate::common::unwrapped;
use crate::stub::Node;

/// What a check may take beyond its budget.
const LATE: Duration = Duration::from_millis(200);
/// Checks that must all be late before a fault counts as answered too late.
const ATTEMPTS: usize = 3;
/// Faults of the test with random ones; more by PATHLINE_TEST_FAULTS.
const FAULTS: usize = 150;

pub(crate) fn pathline(args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.args(args).stdin(Stdio::null()).env_remove("COLUMNS");
    command.output().expect("it runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The JSON of a check, and its exit code.
pub(crate) fn check(args: &[&str]) -> (Value, i32) {
    let output = pathline(&[&["health", "--format", "json"], args].concat());
    let code = output.status.code().expect("an exit code");
    let text = stdout(&output);
    let json: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text} {}", unwrapped(&output.stderr)));
    assert_eq!(json["exit_code"], code, "{json}");
    assert!(json["reason"].as_str().expect("a reason").chars().count() <= 100, "{json}");
    (json, code)
}

/// A preset with faults, as a file.
pub(crate) fn faulty(dir: &Path, preset: &str, faults: &str) -> PathBuf {
    let text = stdout(&pathline(&["model", "show", preset]));
    let file = dir.join("faulty.toml");
    fs::write(&file, format!("{text}\n{faults}\n")).expect("a file");
    file
}

#[test]
fn a_good_node_passes_and_a_lost_link_is_named() {
    let (json, code) = check(&["--machine", "hgx-h200"]);
    assert_eq!((json["state"].as_str(), code), (Some("ok"), 0), "{}", json["reason"]);
    assert!(json["seconds"]["total"].as_f64().expect("a time") <= 10.0);
    let dir = TempDir::new().expect("a folder");
    // One NVLink of 18 that the driver does not report.
    let fault = "[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"width\"\nsilent = true";
    let file = faulty(dir.path(), "hgx-h200", fault);
    let (json, code) = check(&["--machine", file.to_str().expect("a path")]);
    assert_eq!((json["state"].as_str(), code), (Some("fail"), 1), "{}", json["reason"]);
    let culprit = json["report"]["culprits"][0]["element"].as_str().unwrap_or_default();
    assert!(culprit.contains("gpu2"), "{culprit}: {}", json["report"]["culprits"]);
    // 17 of 18 links: 5.6 % are lost.
    let loss = json["report"]["suspects"][0]["loss"].as_f64().expect("a loss");
    assert!((loss - 1.0 / 18.0).abs() < 0.01, "{loss}");
    // The same link as a driver reports it is a fact, without statistics.
    let file = faulty(dir.path(), "hgx-h200", &fault.replace("silent = true", ""));
    let (json, code) = check(&["--machine", file.to_str().expect("a path")]);
    assert_eq!((json["state"].as_str(), code), (Some("fail"), 1), "{}", json["reason"]);
    let faults = json["report"]["faults"].to_string();
    assert!(faults.contains("gpu2"), "{faults}");
}

/// Links that a driver reports as less, GPUs that hang or crash: `health` and `run` name the part and a remedy.
#[test]
fn what_a_node_states_of_a_fault_is_named_by_health_and_run() {
    let width = |lost: u32| format!("kind = \"width\"\nlost = {lost}");
    let half = || "kind = \"speed\"\nshare = 0.5".to_owned();
    let after = |kind: &str| format!("kind = \"{kind}\"\nafter_ms = 50");
    for (preset, element, fault, found, remedy) in [
        ("mi250x", "gpu0-gpu6", width(1), "xGMI gpu0-gpu6 runs 1 of 2 links", "--showxgmierr"),
        ("mi250x", "gpu0-gpu1", width(1), "xGMI gpu0-gpu1 runs 3 of 4 links", "--showxgmierr"),
        ("mi300x", "gpu0-gpu6", half(), "xGMI gpu0-gpu6 runs at 32 of 64 GB/s", "--showxgmierr"),
        ("mi300x", "gpu2-numa0", width(8), "gpu2 PCIe runs 8 of 16 lanes", "lspci -vv"),
        ("hgx-h200", "gpu3-switch0", width(1), "gpu3 NVLink runs 17 of 18 links", "nvlink -s"),
        ("gb200", "gpu1-numa0", width(1), "NVLink gpu1-numa0 runs 4 of 5 links", "c2c -s"),
        ("hgx-h200", "gpu3", after("hang"), " hangs: ", "dmesg` for Xid messages of gpu3"),
        ("mi250x", "gpu3", "kind = \"hang\"".into(), "gpu3 hangs: ", "dmesg` for amdgpu"),
        ("mi250x", "gpu2-gpu4", "kind = \"hang\"".into(), "gpu2-gpu4 hangs: ", "dmesg` for amdgpu"),
        ("mi250x", "gpu3", after("crash"), "gpu3: an earlier fault", "dmesg` for amdgpu"),
    ] {
        let dir = TempDir::new().expect("a folder");
        let fault = format!("[[fault]]\nelement = \"{element}\"\n{fault}");
        let file = faulty(dir.path(), preset, &fault);
        let file = file.to_str().expect("a path");
        let (json, code) = check(&["-m", file]);
        let (state, reason) = (json["state"].as_str(), json["reason"].to_string());
        assert_eq!((state, code), (Some("fail"), 1), "{reason}");
        assert!(reason.contains(found), "{element}: {reason}");
        let action = json["action"].to_string();
        assert!(action.contains(remedy), "{element}: {action}");
        let out = dir.path().join("run");
        let out = out.to_str().expect("a path");
        let args = ["run", "-m", file, "-o", out, "--case", "gpu*.vram > gpu*.vram by kernel"];
        let output = pathline(&args);
        let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("FAIL: ") && text.contains(found), "{element}: {text}");
        assert!(text.contains(remedy), "{element}: {text}");
        let gpu = element.split('-').next().unwrap_or_default();
        let map = fs::read_to_string(format!("{out}/report.html")).expect("a page");
        assert!(map.contains(found.split(" (").next().unwrap_or_default()), "{gpu}");
    }
}

/// A link that the node lacks, one that comes and goes, and the second hop of a path that hangs: `health` and `run` name
/// the link.
#[test]
fn links_that_are_missing_flap_or_hang_behind_others_are_named() {
    let dir = TempDir::new().expect("a folder");
    let of = |element: &str, kind: &str| {
        faulty(dir.path(), "mi250x", &format!("[[fault]]\nelement = \"{element}\"\nkind = {kind}"))
    };
    let named = |file: &Path, link: &str, word: &str, runs: bool| {
        let file = file.to_str().expect("a path");
        let (json, code) = check(&["-m", file]);
        assert_eq!((json["state"].as_str(), code), (Some(word), 1), "{}", json["reason"]);
        assert!(json["reason"].as_str().is_some_and(|reason| reason.starts_with(link)), "{json}");
        let out = dir.path().join(word).join(link);
        let out = out.to_str().expect("a path");
        let output = runs.then(|| pathline(&["run", "--quick", "-m", file, "-o", out]));
        let text =
            output.map(|output| stdout(&output).split_whitespace().collect::<Vec<_>>().join(" "));
        let start = format!("{}: {link}", word.to_uppercase());
        assert!(text.is_none_or(|text| text.contains(&start)), "{start}");
    };
    named(&of("gpu1-gpu3", "\"hang\""), "xGMI gpu1-gpu3 hangs: 2 of 2", "fail", false);
    let flapping = of("gpu4-gpu5", "\"flapping\"\nshare = 0.3\nperiod_ms = 100");
    named(&flapping, "xGMI gpu4-gpu5", "suspect", true);
    let file = of("gpu1-gpu3", "\"hang\"");
    let text = fs::read_to_string(&file).expect("a description");
    let text = text.split("[[fault]]").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.contains("a = \"gpu0\", b = \"gpu2\""));
    let lines = lines.collect::<Vec<_>>().join("\n");
    fs::write(&file, &lines).expect("a file");
    named(&file, "xGMI gpu0-gpu2 is missing", "fail", true);
    let (json, _) = check(&["-m", file.to_str().expect("a path"), "--against", "mi250x"]);
    assert!(json["reason"].as_str().is_some_and(|r| r.contains("gpu0-gpu2 is missing")), "{json}");
    // Copies of pages on another domain are no copies of this one.
    let pages = of("numa1", "\"numa\"\npages_on = \"numa3\"");
    let (json, code) = check(&["-m", pages.to_str().expect("a path")]);
    assert_eq!((json["state"].as_str(), code), (Some("undecided"), 3), "{}", json["reason"]);
    assert!(json["facts"]["unread"].to_string().contains("its pages lie on numa3"), "{json}");
    fs::write(&file, lines).expect("a file");
    let (json, _) = check(&["-m", "mi250x", "--against", file.to_str().expect("a path")]);
    assert_eq!(json["state"].as_str(), Some("ok"), "{}", json["reason"]);
}

#[test]
fn every_format_is_whole_and_agrees_with_the_exit_code() {
    let dir = TempDir::new().expect("a folder");
    let fault = "[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"width\"\nsilent = true";
    let sick = faulty(dir.path(), "hgx-h200", fault);
    let sick = sick.to_str().expect("a path");
    let run = |machine: &str, format: &str| {
        let output = pathline(&["health", "--machine", machine, "--format", format]);
        (stdout(&output), output.status.code().expect("a code"))
    };
    let (text, code) = run(sick, "text");
    assert!(code == 1 && text.contains("FAIL") && text.contains("gpu2"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let (text, code) = run(sick, "nagios");
    assert!(code == 2 && text.starts_with("PATHLINE CRITICAL - "), "{text}");
    assert_eq!(text.lines().count(), 1);
    let (text, code) = run("hgx-h200", "nagios");
    assert!(code == 0 && text.starts_with("PATHLINE OK - "), "{text}");
    let (text, code) = run("hgx-h200", "reframe");
    assert!(code == 0 && text.starts_with("verdict: OK\n"), "{text}");
    assert!(text.lines().filter(|l| l.starts_with("perf ") && l.ends_with(" GB/s")).count() >= 3);
    let (text, code) = run(sick, "junit");
    assert_eq!(code, 1);
    let mut reader = quick_xml::Reader::from_str(&text);
    let (mut cases, mut failures) = (0, 0);
    loop {
        use quick_xml::events::Event;
        match reader.read_event().expect("XML") {
            Event::Eof => break,
            Event::Start(e) | Event::Empty(e) if e.name().as_ref() == "testcase" => cases += 1,
            Event::Start(e) if e.name().as_ref() == "failure" => failures += 1,
            _ => {}
        }
    }
    assert!(cases > 3 && failures >= 1 && failures < cases, "{cases} {failures}");
    assert!(text.contains("culprit") && text.contains("reference"), "{text}");
}

#[test]
fn the_file_for_prometheus_appears_whole_with_base_units() {
    let dir = TempDir::new().expect("a folder");
    let file = dir.path().join("pathline.prom");
    let path = file.to_str().expect("a path");
    let output = pathline(&["health", "--machine", "hgx-h200", "--format", "prom", "--out", path]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let text = fs::read_to_string(&file).expect("a file");
    let mut states = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        assert!(name.starts_with("pathline_health_") && value.parse::<f64>().is_ok(), "{line}");
        if name.contains("_state{") {
            states.insert(name.to_owned(), value.to_owned());
        }
    }
    assert_eq!(states.get("pathline_health_state{state=\"ok\"}").map(String::as_str), Some("1"));
    assert_eq!(states.values().filter(|v| *v == "1").count(), 1);
    // 56 pairs have no label each.
    assert!(text.lines().count() < 150, "{}", text.lines().count());
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1, "no other file is left");
}

#[test]
fn a_process_that_hangs_dies_stops_or_sends_garbage_is_answered_in_time() {
    for what in ["hang", "crash", "exit", "stop", "garbage", "drip"] {
        for step in ["0", "3", "60", "3@0"] {
            let fault = format!("{what} {step}");
            let (json, _, code) = timed_check(&fault, 1000);
            // Both processes are lost in the same way: nothing can pass.
            assert!(step.contains('@') || code != 0, "{fault}: {json}");
            if ["stop", "garbage", "exit", "drip"].contains(&what) && !step.contains('@') {
                assert!(code == 3 || what == "drip", "{fault} is no fault of the node: {json}");
            }
        }
    }
}

/// A check in processes with a fault: its result, how late it was, and its exit code. Fails if it was
/// later than [`LATE`] three times, by more than four times the slowest start of this program during it.
fn timed_check(fault: &str, budget_ms: u64) -> (Value, Duration, i32) {
    let (json, late, code, repeated) = timed_check_on("hgx-h200", fault, budget_ms);
    assert!(repeated < ATTEMPTS, "{fault}: {late:?} late: {}", json["reason"]);
    (json, late, code)
}

/// The same on any machine, and how often it was late and repeated; [`ATTEMPTS`] if each time.
fn timed_check_on(machine: &str, fault: &str, budget_ms: u64) -> (Value, Duration, i32, usize) {
    let mut repeated = 0;
    loop {
        let ((json, late, code), slowest) =
            with_slowest_start(|| check_once(machine, fault, budget_ms));
        let in_time = late <= LATE + slowest * 4;
        repeated += usize::from(!in_time);
        if in_time || repeated == ATTEMPTS {
            return (json, late, code, repeated);
        }
    }
}

/// What some work returns, and the longest time that a process of this program took meanwhile to start and
/// end: the load of the host.
fn with_slowest_start<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let starts = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                pathline(&["--version"]);
                slowest = slowest.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(20));
            }
            slowest
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        (result, starts.join().expect("starts"))
    })
}

fn check_once(machine: &str, fault: &str, budget_ms: u64) -> (Value, Duration, i32) {
    let budget = format!("{budget_ms}ms");
    let args = ["--machine", machine, "--worker", "--budget", &budget, "--inject", fault];
    let begun = Instant::now();
    let (json, code) = check(&args);
    let late = begun.elapsed().saturating_sub(Duration::from_millis(budget_ms));
    (json, late, code)
}

/// Some GPUs of a node, which are planned and opened in milliseconds by a build without optimisation.
fn small_node(dir: &Path, gpus: usize) -> PathBuf {
    let text = stdout(&pathline(&["model", "show", "hgx-h200"]));
    let is_link_of = |line: &str| {
        let of_switch = !line.contains("switch") || line.contains("switch0");
        of_switch && !(gpus..8).any(|gpu| line.contains(&format!("\"gpu{gpu}\"")))
    };
    let (head, tables) = text.split_once("[[gpu]]").expect("GPUs");
    let is_entry = |line: &str| line.trim_start().starts_with("{ ");
    let links = head.lines().filter(|line| !is_entry(line) || is_link_of(line));
    let mut kept = links.collect::<Vec<_>>().join("\n");
    for table in tables.split("[[gpu]]") {
        let (own, rest) = table.find("\n[").map_or((table, ""), |at| table.split_at(at));
        let is_kept = (0..gpus).any(|gpu| own.contains(&format!("id = {gpu}\n")));
        let own = if is_kept { format!("\n[[gpu]]{own}") } else { String::new() };
        kept += &own;
        kept += rest;
    }
    let file = dir.join("small.toml");
    fs::write(&file, kept).expect("a file");
    file
}

/// Whether a process of the check was lost or late: the fault has happened.
fn has_happened(json: &Value) -> bool {
    let facts = json["facts"].to_string();
    ["did not end in", "was stopped", "hangs in the kernel", "its process"]
        .iter()
        .any(|text| facts.contains(text))
}

/// What became of the checks with one kind of fault.
#[derive(Debug, Default)]
struct FaultTally {
    checks: usize,
    /// Faults that happened before the budget was over.
    happened: usize,
    /// Answers after more than the budget and [`LATE`].
    over: usize,
    /// Faults whose every attempt was late by more than the host explains.
    missed: usize,
    worst: Duration,
    states: BTreeMap<String, usize>,
}

#[test]
fn random_faults_are_answered_in_time() {
    let many = std::env::var("PATHLINE_TEST_FAULTS").ok().and_then(|n| n.parse().ok());
    let faults: usize = many.unwrap_or(FAULTS);
    let dir = TempDir::new().expect("a folder");
    let machine = small_node(dir.path(), 3);
    let machine = machine.to_str().expect("a path");
    // A hanging check waits; three at once leave processors free.
    let threads = 3;
    let tallies = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let checks = (thread..faults).step_by(threads).count();
            scope.spawn(move || checks_with_faults(machine, thread as u64, checks))
        };
        let works: Vec<_> = (0..threads).map(work).collect();
        works.into_iter().map(|work| work.join().expect("checks")).collect::<Vec<_>>()
    });
    let mut all: BTreeMap<&str, FaultTally> = BTreeMap::new();
    for (kind, tally) in tallies.into_iter().flatten() {
        let sum = all.entry(kind).or_default();
        sum.checks += tally.checks;
        sum.happened += tally.happened;
        sum.over += tally.over;
        sum.missed += tally.missed;
        sum.worst = sum.worst.max(tally.worst);
        for (state, count) in tally.states {
            *sum.states.entry(state).or_default() += count;
        }
    }
    for (kind, tally) in &all {
        eprintln!("{kind}: {tally:?}");
    }
    for (kind, tally) in &all {
        assert_eq!(tally.missed, 0, "{kind}: {tally:?}");
        assert!(tally.happened * 2 >= tally.checks, "few faults happened: {kind}: {tally:?}");
    }
    assert_eq!(all.values().map(|tally| tally.checks).sum::<usize>(), faults);
}

/// Checks with drawn faults, by kind.
fn checks_with_faults(
    machine: &str,
    thread: u64,
    checks: usize,
) -> BTreeMap<&'static str, FaultTally> {
    let mut seed = 20_261_122_u64 + thread;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut kinds = vec!["hang", "crash", "exit", "stop", "garbage", "drip"];
    if SilentFiles::mount().is_some() {
        kinds.push("block");
    }
    let mut tallies: BTreeMap<&'static str, FaultTally> = BTreeMap::new();
    for _ in 0..checks {
        let kind = kinds[draw(kinds.len() as u64) as usize];
        // Step 0 opens, 1 to 13 bind, later ones measure.
        let step = format!("{}{}", draw(40), if draw(3) == 0 { "@0" } else { "" });
        let files = (kind == "block").then(SilentFiles::mount).flatten();
        let fault = match &files {
            Some(files) => format!("{kind} {step} {}", files.folder.join("file").display()),
            None => format!("{kind} {step}"),
        };
        let (json, late, _, repeated) = timed_check_on(machine, &fault, 60 + draw(200));
        let tally = tallies.entry(kind).or_default();
        tally.checks += 1;
        tally.happened += usize::from(has_happened(&json));
        tally.over += usize::from(late > LATE).max(repeated);
        tally.missed += usize::from(repeated == ATTEMPTS);
        tally.worst = tally.worst.max(late);
        *tally.states.entry(json["state"].as_str().unwrap_or_default().to_owned()).or_default() +=
            1;
    }
    tallies
}

#[test]
fn a_process_that_no_signal_ends_is_answered_in_time() {
    let Some(files) = SilentFiles::mount() else {
        return missing("fuse", "no file system of this process can be mounted");
    };
    let dir = TempDir::new().expect("a folder");
    let machine = small_node(dir.path(), 3);
    let fault = format!("block 20 {}", files.folder.join("file").display());
    let before = workers();
    let (json, _, code, repeated) = timed_check_on(machine.to_str().expect("a path"), &fault, 1500);
    assert!(repeated < ATTEMPTS, "{json}");
    assert_eq!(code, 1, "twice the same hang is a fault of the node: {json}");
    assert!(has_happened(&json), "{json}");
    // Killed, and there all the same, in state D: the answer did not wait for it.
    assert!(workers() > before, "the processes could be killed");
    drop(files);
    let begun = Instant::now();
    while workers() > before {
        assert!(begun.elapsed() < Duration::from_secs(20), "a blocked process is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A file system in user space that answers no request: whoever opens a file there waits in the kernel,
/// and goes on waiting when killed.
struct SilentFiles {
    folder: PathBuf,
    server: Option<std::thread::JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    _dir: TempDir,
}

impl SilentFiles {
    /// None where this user may not mount one.
    fn mount() -> Option<Self> {
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        let dir = TempDir::new().ok()?;
        let folder = dir.path().to_owned();
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0";
        let mounted = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", options, "none"])
            .arg(&folder)
            .stdin(device.try_clone().ok()?)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        mounted.ok().filter(std::process::ExitStatus::success)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let server = std::thread::spawn(move || {
            let mut device = device;
            let mut request = vec![0; 1 << 17];
            while !stopped.load(Ordering::Relaxed) {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                let mut ready = [PollFd::new(&device, PollFlags::IN)];
                if poll(&mut ready, Some(&timeout)).is_ok_and(|n| n == 0) {
                    continue;
                }
                let Ok(length) = device.read(&mut request) else { continue };
                // The header is length, operation, number: u32, u32, u64. Operation 26 is FUSE_INIT.
                if length >= 16 && request[4..8] == 26u32.to_ne_bytes() {
                    let mut answer = 80u32.to_ne_bytes().to_vec();
                    answer.extend([0; 4]);
                    answer.extend(&request[8..16]);
                    // Version 7.31, then zeros, which are the least of everything.
                    answer.extend([7u32.to_ne_bytes(), 31u32.to_ne_bytes()].concat());
                    answer.resize(80, 0);
                    let _ = device.write(&answer);
                }
            }
        });
        Some(Self { folder, server: Some(server), stop, _dir: dir })
    }
}

impl Drop for SilentFiles {
    /// The server closes the device, which ends all requests.
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.server.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn a_stopped_process_is_killed_and_not_left_behind() {
    let before = workers();
    let (json, _, code) = timed_check("stop 3", 400);
    assert_eq!(code, 3, "{json}");
    assert!(json["reason"].as_str().is_some_and(|r| !r.is_empty()));
    let begun = Instant::now();
    while workers() > before {
        assert!(begun.elapsed() < Duration::from_secs(20), "a stopped process is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Probe processes on this host, of this test and of others.
fn workers() -> usize {
    let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_worker = |line: &Vec<u8>| line.windows(14).any(|part| part == b"health-worker\0");
    let me = std::process::id();
    processes().into_iter().filter(|&pid| pid != me).map(line).filter(is_worker).count()
}

#[test]
fn a_node_without_gpus_has_nothing_to_judge() {
    if Path::new("/dev/nvidia0").exists() || Path::new("/dev/kfd").exists() {
        return;
    }
    let (json, code) = check(&["--budget", "12s"]);
    assert_eq!((json["state"].as_str(), code), (Some("undecided"), 3), "{json}");
    let reason = json["reason"].as_str().expect("a reason");
    assert!(reason.contains("nothing to judge"), "{reason}");
}

#[test]
fn unusable_arguments_have_a_result_too() {
    let (json, code) = check(&["--machine", "no-such-machine"]);
    assert_eq!((json["state"].as_str(), code), (Some("undecided"), 2), "{json}");
    assert!(json["reason"].as_str().is_some_and(|r| r.contains("no-such-machine")), "{json}");
    for bad in [["--budget", "0s"], ["--loss", "90%"], ["--alpha", "2"], ["--format", "xml"]] {
        let output = pathline(&[&["health"], &bad[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn stand_ins_whose_links_nvml_states_are_judged_and_a_slow_pair_fails() {
    let dir = TempDir::new().expect("a folder");
    let file = small_node(dir.path(), 4);
    // Stand-ins move every byte, and a probe moves for a millisecond: slow links keep it small.
    let text = fs::read_to_string(&file).expect("a file");
    let text = text.replace("each_gbs = 26.5625", "each_gbs = 2");
    let text = text.replace(
        "each_gbs = 63, pcie = { gts = 32, lanes = 16 }",
        "each_gbs = 4, pcie = { gts = 2.5, lanes = 16 }",
    );
    let check = |fault: &str| {
        fs::write(&file, format!("{text}\n{fault}\n")).expect("a file");
        let node = Node::new(&format!("gpus=4,memory=512MiB,machine={}", file.display()));
        lay_out(&node.path("lib"), &[StubLibraries::Nvml], &[]).expect("libraries");
        let output = node.pathline(&["health", "--format", "json", "--budget", "60s"]);
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["facts"]["failed"], Value::Array(Vec::new()), "{}", json["reason"]);
        assert!(
            json["node"].as_str().is_some_and(|n| n.contains("4 x stub NVIDIA H200")),
            "{json}"
        );
        (json, output.status.code().expect("a code"))
    };
    let (json, code) = check("");
    assert_eq!((json["state"].as_str(), code), (Some("ok"), 0), "{}", json["reason"]);
    let classes = json["classes"].as_array().expect("classes");
    let pairs =
        classes.iter().find(|c| c["label"].as_str().is_some_and(|l| l.starts_with("gpu0→gpu1")));
    assert_eq!(pairs.expect("pairs of GPUs")["paths"], 12, "4 x 3 ordered pairs: {json}");
    // One of five links of a GPU is lost, and the driver does not say so: 20 % of its six pairs.
    let (json, code) =
        check("[[fault]]\nelement = \"gpu2-switch0\"\nkind = \"width\"\nsilent = true");
    assert_eq!((json["state"].as_str(), code), (Some("fail"), 1), "{}", json["reason"]);
    let culprit = json["report"]["culprits"][0]["element"].as_str().unwrap_or_default();
    assert!(culprit.contains("gpu2"), "{culprit}: {}", json["reason"]);
}

/// Whether `health` ends with this code and words on two stand-ins of GPUs that differ by `spec`.
fn stand_ins_answer(spec: &str, others: &[StubLibraries], wanted: (i32, &str)) {
    let once = || {
        let node = Node::new(&format!("gpus=2,memory=512MiB{spec}"));
        lay_out(&node.path("lib"), others, &[]).expect("libraries");
        let output = node.pathline(&["health", "--format", "json", "--budget", "12s"]);
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let reason = json["reason"].as_str().unwrap_or_default().to_owned();
        (output.status.code().expect("a code"), reason)
    };
    let is_wanted = |(code, reason): &(i32, String)| {
        assert!(wanted.0 == 0 || *code != 0, "{spec}: {reason}");
        *code == wanted.0 && reason.contains(wanted.1)
    };
    // On a busy host an operation may take longer than a second, which is no answer about the node.
    let mut found = Vec::new();
    while found.len() < ATTEMPTS && !found.last().is_some_and(is_wanted) {
        found.push(once());
    }
    assert!(found.last().is_some_and(is_wanted), "{spec}: {found:?}");
}

#[test]
fn sound_stand_ins_pass() {
    stand_ins_answer("", &[StubLibraries::Nvml], (0, "all 8 paths"));
}

#[test]
fn wrong_bytes_do_not_pass() {
    // Each copy from the fifth on stores wrong bytes.
    stand_ins_answer(",corrupt=cuMemcpyAsync@5+", &[StubLibraries::Nvml], (1, "gpu"));
}

#[test]
fn a_management_library_that_fails_or_is_missing_does_not_pass() {
    let nvml = &[StubLibraries::Nvml];
    stand_ins_answer(",fail=nvmlInit_v2:999", nvml, (1, "nvmlInit returns 999"));
    let fields = "nvmlDeviceGetFieldValues";
    stand_ins_answer(&format!(",fail={fields}:999"), nvml, (3, fields));
    stand_ins_answer("", &[], (3, "were not read"));
}

#[test]
fn stand_ins_without_links_are_no_failure() {
    let node = Node::new("gpus=4");
    let output = node.pathline(&["health", "--format", "json", "--budget", "30s"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let code = output.status.code().expect("a code");
    // Without NVML no link of these GPUs is visible: a stated result, and nothing failed.
    assert!([0, 3].contains(&code), "{}", json["reason"]);
    assert!(json["node"].as_str().is_some_and(|n| n.contains("4 x stub NVIDIA H200")), "{json}");
    assert_eq!(json["facts"]["failed"], Value::Array(Vec::new()), "{}", json["reason"]);
    assert_ne!(json["reason"], "nothing to judge: no GPU was found");
}

#[test]
fn shared_looks_at_links_and_measures_nothing() {
    let dir = TempDir::new().expect("a folder");
    let file = small_node(dir.path(), 3);
    let path = file.to_str().expect("a path").to_owned();
    let (json, code) = check(&["--machine", &path, "--shared"]);
    assert_eq!((json["state"].as_str(), code), (Some("undecided"), 3), "{json}");
    assert!(json["reason"].as_str().is_some_and(|r| r.contains("--shared")), "{}", json["reason"]);
    assert_eq!(json["report"]["power"]["rounds"], 0, "{json}");
    // A link that the driver states as lost is a fact.
    let text = fs::read_to_string(&file).expect("a file");
    fs::write(&file, format!("{text}\n[[fault]]\nelement = \"gpu1-switch0\"\nkind = \"width\"\n"))
        .expect("a file");
    let (json, code) = check(&["--machine", &path, "--shared"]);
    assert_eq!((json["state"].as_str(), code), (Some("fail"), 1), "{json}");
    assert!(
        json["reason"].as_str().is_some_and(|r| r.contains("gpu1 NVLink")),
        "{}",
        json["reason"]
    );
    assert_eq!(json["report"]["power"]["rounds"], 0, "{json}");
}

#[test]
fn a_node_is_compared_with_its_history_a_run_and_a_twin() {
    let dir = TempDir::new().expect("a folder");
    let file = small_node(dir.path(), 3);
    let path = file.to_str().expect("a path").to_owned();
    let against = |machine: &str, reference: &Path, seed: &str| {
        let reference = reference.to_str().expect("a path");
        check(&["--machine", machine, "--seed", seed, "--against", reference])
    };
    let result = |json: &Value| json["against"]["result"].as_str().unwrap_or_default().to_owned();
    // A folder of results, of which five are needed.
    let history = dir.path().join("history");
    fs::create_dir(&history).expect("a folder");
    for seed in 1..=5 {
        let kept = history.join(format!("{seed}.digest.json"));
        let (kept, seed) = (kept.to_str().expect("a path"), seed.to_string());
        let all =
            ["health", "--machine", &path, "--format", "json", "--seed", &seed, "--out", kept];
        assert_eq!(pathline(&all).status.code(), Some(0));
    }
    let (json, code) = against(&path, &history, "9");
    assert_eq!((json["state"].as_str(), code), (Some("ok"), 0), "{}", result(&json));
    assert!(result(&json).contains('5'), "{}", result(&json));
    assert_eq!(json["against"]["slower"], Value::Array(Vec::new()), "{}", result(&json));
    // A run that measured one of the same paths is one earlier run.
    let case = json["paths"][0]["case"].as_str().expect("a case").to_owned();
    let run = dir.path().join("run");
    let out = run.to_str().expect("a path");
    let output = pathline(&["run", "--quiet", "--machine", &path, "--case", &case, "--out", out]);
    assert_eq!(output.status.code(), Some(0), "{}", unwrapped(&output.stderr));
    let (json, code) = against(&path, &run, "9");
    assert_eq!((json["state"].as_str(), code), (Some("undecided"), 3), "{}", result(&json));
    assert!(json["reason"].as_str().is_some_and(|r| r.contains("knows 1 of ")), "{json}");
    // One without any of the paths is no reference.
    let other = dir.path().join("other");
    let out = other.to_str().expect("a path");
    let case = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64MiB";
    let args = ["run", "--quiet", "--machine", &path, "--case", case, "--out", out];
    assert_eq!(pathline(&args).status.code(), Some(0));
    assert_eq!(against(&path, &other, "9").1, 2);
    // Fewer digests than are needed.
    let few = dir.path().join("few");
    fs::create_dir(&few).expect("a folder");
    fs::copy(history.join("1.digest.json"), few.join("1.digest.json")).expect("a copy");
    let (json, code) = against(&path, &few, "9");
    assert_eq!((json["state"].as_str(), code), (Some("undecided"), 3), "{}", result(&json));
    assert!(result(&json).contains("5 are needed"), "{}", result(&json));
    // A twin of another node.
    assert_eq!(against(&path, Path::new("mi250x"), "9").1, 2);
    // A twin predicts the same paths.
    let (json, code) = against(&path, &file, "9");
    assert_eq!((json["state"].as_str(), code), (Some("ok"), 0), "{}", result(&json));
    assert!(result(&json).starts_with("0 of "), "{}", result(&json));
    // All links of the fabric lose 15 %: no path differs from its peers, and all do from a reference.
    let slow: String = (0..3)
        .map(|gpu| {
            format!("\n[[fault]]\nelement = \"gpu{gpu}-switch0\"\nkind = \"speed\"\nshare = 0.85\nsilent = true\n")
        })
        .collect();
    let text = fs::read_to_string(&file).expect("a file");
    let worn = dir.path().join("worn.toml");
    fs::write(&worn, text + &slow).expect("a file");
    for reference in [&history, &file] {
        let (json, code) = against(worn.to_str().expect("a path"), reference, "9");
        assert_eq!((json["state"].as_str(), code), (Some("fail"), 1), "{}", result(&json));
    }
    // What is missing is an error with a remedy.
    let (json, code) = against(&path, &dir.path().join("nothing"), "9");
    assert_eq!((json["state"].as_str(), code), (Some("undecided"), 2), "{json}");
    assert!(json["reason"].as_str().is_some_and(|r| r.contains("--against")), "{}", json["reason"]);
}

#[test]
fn a_call_that_never_returns_is_answered_in_time() {
    // The ninth copy hangs in each process.
    let node = Node::new("gpus=2,hang=cuMemcpyAsync@9");
    let begun = Instant::now();
    let output = node.pathline(&["health", "--format", "json", "--budget", "4s"]);
    let late = begun.elapsed().saturating_sub(Duration::from_secs(4));
    assert!(late <= 5 * LATE, "{late:?}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_ne!(output.status.code(), Some(0), "{json}");
}

#[test]
fn digests_are_small_and_make_a_history() {
    let dir = TempDir::new().expect("a folder");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/h200-x4.jsonl.gz");
    let fixture = fixture.to_str().expect("a path");
    let folder = dir.path().join("history");
    let folder = folder.to_str().expect("a path");
    // The first is kept, and nothing can be judged by it.
    let output = pathline(&["health", "--history", folder, fixture]);
    assert_eq!(output.status.code(), Some(3), "{}", unwrapped(&output.stderr));
    let printed = stdout(&output);
    let (_, file) = printed.trim().split_once("kept: ").expect("a file");
    let file = PathBuf::from(file);
    let size = fs::metadata(&file).expect("a file").len();
    assert!(size <= 20_000, "{size}");
    // A run is not compared with itself.
    let output = pathline(&["health", "--history", folder, fixture]);
    assert!(stdout(&output).contains("the first of"), "{}", stdout(&output));
    let packed = std::process::Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip");
    let json: Value = serde_json::from_slice(&packed.stdout).expect("JSON");
    assert!(json["cases"].as_object().is_some_and(|cases| cases.len() > 100), "{json}");
    // One earlier run of the same software is too few to judge.
    let mut other = json.clone();
    other["started"] = "2026-01-01T00:00:00Z".into();
    let named = dir.path().join("history/other.digest.json");
    fs::write(named, other.to_string()).expect("a file");
    let output = pathline(&["health", "--history", folder, fixture]);
    assert_eq!(output.status.code(), Some(3), "{}", unwrapped(&output.stderr));
    assert!(stdout(&output).contains("5 are needed"), "{}", stdout(&output));
    // Wrong bytes are a fault in any company, and a cut run is named.
    let journal = dir.path().join("cut.jsonl");
    let whole = std::process::Command::new("gzip").args(["-dc", fixture]).output().expect("gzip");
    let whole = String::from_utf8(whole.stdout).expect("text");
    let (cut, _) = whole.trim_end().rsplit_once('\n').expect("lines");
    fs::write(&journal, format!("{cut}\n")).expect("a file");
    let path = journal.to_str().expect("a path");
    let output = pathline(&["health", "--history", folder, path]);
    assert_eq!(output.status.code(), Some(3));
    assert!(unwrapped(&output.stderr).contains("the run did not end"));
    let case = json["cases"].as_object().and_then(|c| c.keys().next()).expect("a case");
    let wrong = format!(
        "{{\"type\":\"faulted\",\"data\":{{\"case\":\"{case}\",\"suites\":[],\"error\":\"byte 5\",\"severity\":\"corrupt\"}}}}"
    );
    fs::write(&journal, format!("{cut}\n{wrong}\n")).expect("a file");
    let output = pathline(&["health", "--history", folder, path]);
    let error = unwrapped(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("have wrong bytes"), "{error}");
    let other = fixture.replace("h200-x4", "h200-x2-contention");
    let output = pathline(&["health", "--history", folder, &other]);
    let error = unwrapped(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("with other parts, not of"), "{error}");
}
