//! Helpers for tests of whole runs: start, wait, read.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pathline_schema::{CaseOutcome, FaultedCase, Journal};

/// Far more than any run here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run with these arguments, whose folder is `out`.
pub(crate) fn command(args: &[&str], out: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pathline"));
    command.arg("run").args(args).arg("--quiet").arg("--out").arg(out).stdin(Stdio::null());
    command
}

/// A message to standard error as it was before it was broken to its width.
pub(crate) fn unwrapped(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    while let Some(at) = text.find("\n    ") {
        let rest = text[at..].trim_start().to_owned();
        text.replace_range(at.., &format!(" {rest}"));
    }
    text
}

/// The journal of a run.
pub(crate) fn journal(out: &Path) -> Journal {
    let file = fs::File::open(out.join("run.jsonl")).unwrap();
    Journal::read(BufReader::new(file)).unwrap()
}

/// The cases that failed.
pub(crate) fn faults(journal: &Journal) -> Vec<&FaultedCase> {
    let mut faults = Vec::new();
    for outcome in &journal.outcomes {
        if let CaseOutcome::Faulted(fault) = outcome {
            faults.push(fault);
        }
    }
    faults
}

/// Each planned case has one outcome, and the run is marked complete.
pub(crate) fn is_whole(journal: &Journal, cases: usize) {
    let once: BTreeSet<String> = journal.outcomes.iter().map(|o| o.case().to_string()).collect();
    assert_eq!((once.len(), journal.outcomes.len()), (cases, cases));
    assert!(journal.end.as_ref().unwrap().complete);
}

/// The parent of a process; `None` if it has gone.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; state and parent follow it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The numbers of all processes.
pub(crate) fn processes() -> Vec<u32> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    fs::read_dir("/proc").unwrap().flatten().filter_map(number).collect()
}

/// Sends a signal, such as `-KILL`.
pub(crate) fn signal(pid: u32, name: &str) {
    // It may be gone already.
    let _ = Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Waits until it is done.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Builds a shared library out of C, in the folder `dir`.
pub(crate) fn library(dir: &Path, name: &str, source: &str) -> PathBuf {
    let (text, file) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&text, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O0", "-w", "-o"]).arg(&file).arg(&text);
    let built = cc.output().expect("cc, with which Rust links, builds libraries for tests");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    file
}

/// A command for a separate process: this binary runs the test `name` alone, with `role` in its
/// environment.
pub(crate) fn again(name: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.stdin(Stdio::null());
    command
}

/// The role of this process, if [`again`] has started it.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

const ROLE: &str = "PATHLINE_TEST_ROLE";

/// Whether a process still holds what it has open: its first thread may have ended while another one is
/// in the kernel.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let states = threads.flatten().filter_map(|t| fs::read_to_string(t.path().join("stat")).ok());
    let mut states =
        states.filter_map(|s| Some(s.rsplit_once(')')?.1.trim_start().starts_with('Z')));
    states.any(|is_zombie| !is_zombie)
}
