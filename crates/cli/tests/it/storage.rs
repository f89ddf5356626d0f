//! Files of places that `--store` names, as a user meets them: what is measured, what is left behind,
//! and what becomes of things that are the user's.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{
    command, faults, is_alive, is_whole, journal, parent, processes, signal, unwrapped, wait_until,
};
use pathline_schema::{CaseOutcome, Journal, MeasuredCase, Severity, VerifyResult};
use pathline_stub::{StubLibraries, VARIABLE, lay_out};
use tempfile::TempDir;

/// Cases of a file of 1 MiB, of 16 blocks of 64 KiB. Native asynchronous I/O is everywhere.
const READ: &str =
    "r0.store0.file > r0.numa0.paged by aio@numa0[rand-read,direct,shared,1MiB,q4,n1,t1] x 64KiB";
const WRITE: &str =
    "r0.numa0.paged > r0.store0.file by aio@numa0[seq-write,direct,shared,1MiB,q4,n1,t1] x 64KiB";
const CACHED: &str =
    "r0.store0.file > r0.numa0.paged by sync@numa0[seq-read,cached,shared,1MiB,q1,n1,t1] x 64KiB";
const OBJECTS: &str =
    "r0.store0.file > r0.numa0.paged by s3@numa0[rand-read,direct,shared,1MiB,q4,n1,t1] x 64KiB";
const QUICK: [&str; 2] = ["--case-budget", "5"];
/// A wide interval wants samples for all of the budget.
const SLOW: [&str; 4] = ["--case-budget", "4000", "--precision", "0.01"];

/// A place for files, with a file of the user in it; and a folder for runs.
struct Site {
    /// On the disk that this is built on: `/tmp` is page cache on many machines.
    place: TempDir,
    runs: TempDir,
}

impl Site {
    fn new() -> Self {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(place.path().join("thesis"), "mine").unwrap();
        // One whose name is much like that of pathline's folders.
        fs::create_dir(place.path().join("pathline-storage-notes")).unwrap();
        Self { place, runs: TempDir::new().unwrap() }
    }

    fn run(&self, name: &str) -> PathBuf {
        self.runs.path().join(name)
    }

    /// A run over the place, whose folder is `name`.
    fn command(&self, name: &str, args: &[&str], cases: &[&str]) -> Command {
        self.command_on(self.place.path(), name, args, cases)
    }

    /// The same over something in the place.
    fn command_on(&self, store: &Path, name: &str, args: &[&str], cases: &[&str]) -> Command {
        let mut command = command(args, &self.run(name));
        command.arg("--store").arg(store);
        cases.iter().for_each(|case| {
            command.args(["--case", case]);
        });
        command
    }

    /// Folders that pathline has in the place.
    fn folders(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.place.path()).unwrap().map(|entry| entry.unwrap().path());
        let mine = ["thesis", "pathline-storage-notes"];
        all.filter(|path| !mine.contains(&path.file_name().unwrap().to_str().unwrap())).collect()
    }

    /// Files of pathline in the place.
    fn files(&self) -> usize {
        let of = |folder: &PathBuf| fs::read_dir(folder).map_or(0, |all| all.count());
        self.folders().iter().map(of).sum()
    }

    /// There is what was there before, and nothing else.
    fn is_as_it_was(&self) {
        assert_eq!(self.folders(), Vec::<PathBuf>::new());
        assert_eq!(fs::read_to_string(self.place.path().join("thesis")).unwrap(), "mine");
        assert!(self.place.path().join("pathline-storage-notes").is_dir());
    }

    /// Starts it, and waits until it has files and a sample. With its worker.
    fn begun(&self, name: &str, args: &[&str], cases: &[&str]) -> (Child, u32) {
        let mut command = self.command(name, args, cases);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let path = self.run(name).join("run.jsonl");
        wait_until("a sample", || {
            assert_eq!(child.try_wait().unwrap(), None, "ended without a sample");
            let text = fs::read_to_string(&path).unwrap_or_default();
            // A machine that is busy takes a whole budget for its first ones.
            [r#"{"type":"sampled""#, r#"{"type":"measured""#].iter().any(|kind| text.contains(kind))
        });
        // A marker, and a file.
        assert!(self.files() >= 2, "{:?}", self.folders());
        let worker = processes().into_iter().find(|&pid| parent(pid) == Some(child.id()));
        (child, worker.unwrap())
    }
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stderr(output: &Output) -> String {
    unwrapped(&output.stderr)
}

/// The case as it was measured.
fn measured<'j>(journal: &'j Journal, case: &str) -> &'j MeasuredCase {
    let found = journal.outcomes.iter().find(|o| o.case().to_string() == case);
    match found {
        Some(CaseOutcome::Measured(measured)) => measured,
        other => panic!("{case}: {other:?}"),
    }
}

/// Why a case was not measured.
fn why(journal: &Journal, case: &str) -> String {
    let found = journal.outcomes.iter().find(|o| o.case().to_string() == case);
    match found {
        Some(CaseOutcome::Skipped(skip)) => format!("skipped: {}", skip.why),
        Some(CaseOutcome::Faulted(fault)) => format!("faulted: {}", fault.error),
        other => panic!("{case}: {other:?}"),
    }
}

#[test]
fn cases_are_measured_and_the_place_is_unchanged() {
    let site = Site::new();
    let output = site.command("run", &QUICK, &[READ, WRITE, CACHED]).output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (Some(0), String::new()));
    let journal = journal(&site.run("run"));
    is_whole(&journal, 3);
    for case in [READ, WRITE, CACHED] {
        let MeasuredCase { verdict, series, .. } = measured(&journal, case);
        assert_eq!(*verdict, VerifyResult::Verified, "{case}");
        // Each I/O of each sample has its latency in the distribution.
        let one = &series[0];
        let bytes: u64 = one.io.iter().map(|io| io.latency.count() * (64 << 10)).sum();
        assert!(bytes > 0 && bytes >= one.samples_ns.len() as u64 * one.moved_bytes.0, "{case}");
    }
    site.is_as_it_was();
}

#[test]
fn a_pattern_takes_cases_of_the_suite_with_the_given_span() {
    let site = Site::new();
    let pattern = ["store0.file > numa0.paged by aio@numa0[rand-read,direct,shared,*,t1] x 4KiB"];
    let args = ["--suite", "storage", "--span", "3MiB", "--case-budget", "5"];
    let output = site.command("run", &args, &pattern).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let journal = journal(&site.run("run"));
    // Depths 1, 32 and 128.
    is_whole(&journal, 3);
    for outcome in &journal.outcomes {
        let text = outcome.case().to_string();
        assert!(text.contains("3MiB") && matches!(outcome, CaseOutcome::Measured(_)), "{text}");
    }
    site.is_as_it_was();
}

#[test]
fn ctrl_c_keeps_results_and_leaves_no_files() {
    let site = Site::new();
    let (mut child, worker) = site.begun("run", &SLOW, &[READ, WRITE]);
    // As a terminal does it.
    signal(worker, "-INT");
    signal(child.id(), "-INT");
    // No case had ended, but some have figures.
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let cut = journal(&site.run("run"));
    assert_eq!(cut.end.as_ref().unwrap().why.as_deref(), Some("interrupted"));
    assert!(!cut.partial.is_empty(), "its samples are kept");
    site.is_as_it_was();
}

#[test]
fn a_cut_run_goes_on_in_files_of_its_own() {
    let site = Site::new();
    let args = ["--case-budget", "700", "--precision", "0.01"];
    let (mut child, _) = site.begun("run", &args, &[READ, CACHED]);
    signal(child.id(), "-KILL");
    child.wait().unwrap();
    let output = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(["run", "--resume"])
        .arg(site.run("run"))
        .output()
        .unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    is_whole(&journal(&site.run("run")), 2);
    site.is_as_it_was();
}

/// A run whose store is gone does not go on in the current folder.
#[test]
fn a_run_does_not_go_on_without_its_store() {
    let site = Site::new();
    let (mut child, _) = site.begun("run", &SLOW, &[READ]);
    signal(child.id(), "-KILL");
    child.wait().unwrap();
    let (here, away) = (TempDir::new().unwrap(), site.place.path().with_extension("away"));
    fs::rename(site.place.path(), &away).unwrap();
    let output = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(["run", "--resume"])
        .arg(site.run("run"))
        .current_dir(here.path())
        .output()
        .unwrap();
    fs::rename(&away, site.place.path()).unwrap();
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("there is no such folder, file or device"));
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
}

#[test]
fn leftovers_of_a_killed_run_are_removed_and_reported() {
    let site = Site::new();
    let (mut child, worker) = site.begun("killed", &SLOW, &[READ, WRITE]);
    let left = site.folders();
    // Another run over the same place lets a living one be.
    let second = site.command("second", &QUICK, &[READ]).output().unwrap();
    assert_eq!((code(&second), stderr(&second)), (Some(0), String::new()));
    assert_eq!(site.folders(), left);
    for pid in [child.id(), worker] {
        signal(pid, "-KILL");
    }
    child.wait().unwrap();
    wait_until("the worker's end", || !is_alive(worker));
    assert_eq!((left.len(), site.folders()), (1, left.clone()));
    assert!(journal(&site.run("killed")).end.is_none());
    let next = Command::new(assert_cmd::cargo::cargo_bin!("pathline"))
        .args(["run", "--case", READ, "--case-budget", "5", "--store"])
        .arg(site.place.path())
        .arg("--out")
        .arg(site.run("next"))
        .output()
        .unwrap();
    assert_eq!(code(&next), Some(0), "{}", stderr(&next));
    let removed = format!("removed {}, which a killed process had left", left[0].display());
    assert!(stderr(&next).contains(&removed), "{}", stderr(&next));
    site.is_as_it_was();
}

#[test]
fn a_killed_worker_costs_a_case_and_leaves_no_files() {
    let site = Site::new();
    // One case: nothing is started after it that would clean up.
    let (child, worker) = site.begun("run", &SLOW, &[READ]);
    signal(worker, "-KILL");
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        code(&output),
        Some(3),
        "who kills a worker does not show that the node is at fault"
    );
    let journal = journal(&site.run("run"));
    is_whole(&journal, 1);
    let lost = faults(&journal);
    assert_eq!(lost[0].severity, Severity::Transient);
    assert!(lost[0].error.contains("signal 9 (SIGKILL"), "{}", lost[0].error);
    site.is_as_it_was();
}

#[test]
fn after_a_killed_worker_the_others_are_measured() {
    let site = Site::new();
    let args = ["--case-budget", "700", "--precision", "0.01"];
    let (child, worker) = site.begun("run", &args, &[READ, WRITE, CACHED]);
    signal(worker, "-KILL");
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        code(&output),
        Some(3),
        "who kills a worker does not show that the node is at fault"
    );
    let journal = journal(&site.run("run"));
    is_whole(&journal, 3);
    let done = journal.outcomes.iter().filter(|o| matches!(o, CaseOutcome::Measured(_))).count();
    assert_eq!((faults(&journal).len(), done), (1, 2));
    site.is_as_it_was();
}

#[test]
fn a_named_file_is_only_read_unless_it_may_be_overwritten() {
    let site = Site::new();
    let file = site.place.path().join("thesis");
    let mine: Vec<u8> = (0..3 << 19).map(|i: u32| (i * 7 % 251) as u8).collect();
    fs::write(&file, &mine).unwrap();
    let stamp = || fs::metadata(&file).unwrap().modified().unwrap();
    let before = stamp();
    let output = site.command_on(&file, "read", &QUICK, &[READ, WRITE]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let read = journal(&site.run("read"));
    let MeasuredCase { verdict, .. } = measured(&read, READ);
    assert!(matches!(verdict, VerifyResult::Unverified(why) if why.contains("not pathline's")));
    let refused = why(&read, WRITE);
    assert!(refused.starts_with("skipped: ") && refused.contains("--overwrite"), "{refused}");
    assert!(fs::read(&file).unwrap() == mine);
    assert_eq!(stamp(), before);

    let args = [&QUICK[..], &["--overwrite"]].concat();
    let output = site.command_on(&file, "written", &args, &[READ, WRITE]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let written = journal(&site.run("written"));
    for case in [READ, WRITE] {
        assert_eq!(measured(&written, case).verdict, VerifyResult::Verified, "{case}");
    }
    // Of 1.5 MiB the span's 1 MiB is gone, and what lies behind it is not.
    let after = fs::read(&file).unwrap();
    assert_eq!(after.len(), mine.len());
    assert!(after[..1 << 20] != mine[..1 << 20] && after[1 << 20..] == mine[1 << 20..]);
    assert_eq!(site.folders(), Vec::<PathBuf>::new());
}

#[test]
fn a_place_that_does_not_fit_is_named() {
    let site = Site::new();
    let place = site.place.path();
    let nowhere = place.join("nowhere");
    let output = site.command_on(&nowhere, "nowhere", &QUICK, &[READ]).output().unwrap();
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("there is no such folder, file or device"));
    assert!(!site.run("nowhere").exists());
    let output = site.command_on(Path::new("/dev/null"), "null", &QUICK, &[READ]).output().unwrap();
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    assert!(unwrapped(&output.stderr).contains("it is no folder, file or block device"));
    assert!(!site.run("null").exists());
    // It has 4 bytes, which shows when it is opened.
    let store = place.join("thesis");
    let output = site.command_on(&store, "thesis", &QUICK, &[READ]).output().unwrap();
    assert_eq!(code(&output), Some(3), "{}", stderr(&output));
    let journal = journal(&site.run("thesis"));
    is_whole(&journal, 1);
    let reason = why(&journal, READ);
    let words = "it has 4B, and a span of 1MiB is requested";
    assert!(reason.starts_with("skipped: ") && reason.contains(words), "{reason}");
    site.is_as_it_was();
}

/// `ulimit -f` is the one limit of a disk that any user can set.
#[test]
fn a_file_that_reaches_its_limit_costs_its_case() {
    let site = Site::new();
    // POSIX counts blocks of 512 B; 2048 of them are 1 MiB, with bash as sh 2 MiB. The files of
    // both fit, and that of 8 MiB does not.
    let large = READ.replace("1MiB", "8MiB");
    let run = site.command("run", &QUICK, &[&large, READ]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 2048; exec \"$@\"", "sh"]).arg(run.get_program());
    let output = limited.args(run.get_args()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let journal = journal(&site.run("run"));
    is_whole(&journal, 2);
    assert_eq!(measured(&journal, READ).verdict, VerifyResult::Verified);
    let reason = why(&journal, &large);
    for word in ["skipped: pwrite on ", "read-", "File too large", "smaller --span", "ulimit -f"] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    site.is_as_it_was();
}

#[test]
fn files_reach_a_gpu_overlapped_and_blocking() {
    let site = Site::new();
    let library = site.runs.path().join("lib");
    lay_out(&library, &[StubLibraries::Cuda], &[]).unwrap();
    let to_gpu = |stage: &str| {
        format!(
            "r0.store0.file > r0.gpu0.vram by aio@numa0[rand-read,direct,shared,1MiB,q4,n1,t2,{stage}] \
             x 64KiB"
        )
    };
    let stages = ["pipelined-pinned", "blocking-paged", "blocking-registered"].map(to_gpu);
    let from = "r0.gpu0.vram > r0.store0.file by \
                aio@numa0[seq-write,direct,shared,1MiB,q4,n1,t2,pipelined-pinned] x 64KiB";
    let cases: Vec<&str> = stages.iter().map(String::as_str).chain([from]).collect();
    let output = site
        .command("run", &QUICK, &cases)
        .env("LD_LIBRARY_PATH", &library)
        .env("PATHLINE_CUDA", &library)
        .env("XDG_CACHE_HOME", site.runs.path())
        .env(VARIABLE, "gpus=1")
        .output()
        .unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let journal = journal(&site.run("run"));
    is_whole(&journal, cases.len());
    for case in cases {
        let MeasuredCase { verdict, series, .. } = measured(&journal, case);
        assert_eq!(*verdict, VerifyResult::Verified, "{case}");
        // Every I/O was copied once.
        let reading = &series[0].io[0];
        assert_eq!(reading.copy.count(), reading.latency.count(), "{case}");
    }
    site.is_as_it_was();
}

#[test]
fn no_secret_of_a_url_is_recorded() {
    let site = Site::new();
    for (nth, store, endpoint) in [
        (0, "s3://b/p", "http://user:HIDDEN@host:9000"),
        (1, "s3://b/p", "user:HIDDEN@host:9000"),
        (2, "s3://KEY:HIDDEN@b/p", "http://127.0.0.1:9"),
        (3, "s3://b/p?X-Amz-Signature=HIDDEN", "http://127.0.0.1:9"),
        (4, "s3://b/p", "http://127.0.0.1:9/?token=HIDDEN"),
    ] {
        let name = format!("url{nth}");
        let args = ["--s3-endpoint", endpoint];
        // A case of the host alone: else nothing can be measured, and nothing is written.
        let cases = [OBJECTS, "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 64KiB"];
        let mut command = site.command_on(Path::new(store), &name, &args, &cases);
        command.env("AWS_ACCESS_KEY_ID", "KEY").env("AWS_SECRET_ACCESS_KEY", "HIDDEN");
        command.env("UCX_PROXY", "http://user:HIDDEN@proxy");
        let output = command.output().unwrap();
        let folder = site.run(&name);
        let journal = fs::read_to_string(folder.join("run.jsonl")).unwrap_or_default();
        let page = fs::read_to_string(folder.join("report.html")).unwrap_or_default();
        let shown = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        // All but a query of a path are refused before anything is written.
        assert_eq!(output.status.code() == Some(2), journal.is_empty(), "{shown}");
        assert_eq!(journal.contains("***@proxy"), store.contains('?'), "{journal}");
        for text in [journal, page, shown] {
            assert!(!text.contains("HIDDEN"), "{store} {endpoint}: {text}");
        }
    }
}
