//! Processes that measure together: how they find each other, the cost of one that dies or hangs,
//! and the error for one that never came.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use crate::common::{
    command, faults, is_whole, journal, parent, processes, signal, unwrapped, wait_until,
};
use pathline_schema::{CaseOutcome, VerifyResult};
use tempfile::TempDir;

/// Copies that need no feature of the processor, of three sizes.
const CASES: [&str; 4] = [
    "r0.numa0.huge > r1.numa0.huge by shm@numa0[ping,memcpy+memcpy,same-l3] x 8B",
    "r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,memcpy+memcpy] x 1MiB",
    "r0.numa0.huge > r1.numa0.huge by shm@numa0[consume,plain+plain] x 64KiB",
    "r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,memcpy+memcpy] x 64KiB & \
     r1.numa0.huge > r0.numa0.huge by shm@numa0[send-w1,memcpy+memcpy] x 64KiB",
];

/// Arguments with all [`CASES`].
fn of_all_cases<'a>(args: &[&'a str]) -> Vec<&'a str> {
    args.iter().copied().chain(CASES.iter().flat_map(|case| ["--case", case])).collect()
}

fn words(output: &Output) -> String {
    unwrapped(&output.stderr)
}

/// Starts a process as a launcher would that counts `size` processes, of a job that no other test has.
fn launched(rank: u32, size: u32, args: &[&str], out: &Path) -> Child {
    let mut command = command(args, out);
    command.env("PALS_APID", format!("{}-of-{size}", std::process::id()));
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string());
    command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Processes of the run that measure, by their numbers.
fn ranks_of(run: u32) -> Vec<u32> {
    let is_rank = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&b| b == 0).nth(1) == Some(b"rank")
    };
    let grandchild = |pid: u32| parent(pid).and_then(parent) == Some(run);
    processes().into_iter().filter(|&pid| is_rank(pid) && grandchild(pid)).collect()
}

/// Waits until a run has ranks.
fn has_ranks(run: &Child, count: usize) -> Vec<u32> {
    let mut ranks = Vec::new();
    wait_until("ranks", || {
        ranks = ranks_of(run.id());
        ranks.len() == count
    });
    ranks
}

/// Waits until a run has ended.
fn has_ended(run: &mut Child) {
    wait_until("the run's end", || run.try_wait().unwrap().is_some());
}

#[test]
fn two_ranks_move_bytes_that_are_compared() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let output =
        command(&of_all_cases(&["--ranks", "2", "--case-budget", "50"]), &out).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let journal = journal(&out);
    is_whole(&journal, CASES.len());
    let ranks = &journal.begin.ranks;
    assert_eq!(ranks.iter().map(|m| m.rank.0).collect::<Vec<_>>(), [0, 1]);
    for outcome in &journal.outcomes {
        let CaseOutcome::Measured(measured) = outcome else { panic!("{outcome:?}") };
        assert_eq!(measured.verdict, VerifyResult::Verified, "{}", measured.case);
        for series in &measured.series {
            // The latest rank of each repetition counts: no rank alone took longer than a sample.
            assert_eq!(series.by_rank.len(), 2);
            for own in series.by_rank.values() {
                let longer = own.iter().zip(&series.samples_ns).any(|(own, all)| own > all);
                assert!(!longer, "{}", measured.case);
            }
        }
    }
}

#[test]
fn own_ranks_open_the_libraries_that_the_run_names() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let named = ["--nvrtc", "/nowhere", "--case-budget", "20", "--case", CASES[0]];
    let output = command(&[&["--ranks", "2"], &named[..]].concat(), &out).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    is_whole(&journal(&out), 1);
}

#[test]
fn a_rank_that_is_killed_costs_its_case_and_no_other() {
    let dir = TempDir::new().unwrap();
    for nth in 0..4_u64 {
        let out = dir.path().join(format!("run{nth}"));
        let args = of_all_cases(&["--ranks", "2", "--case-budget", "300", "--precision", "0.01"]);
        let mut run = command(&args, &out).stderr(Stdio::null()).spawn().unwrap();
        let ranks = has_ranks(&run, 2);
        // Some moment of a run of more than a second.
        std::thread::sleep(Duration::from_millis(151 * nth));
        signal(ranks[usize::try_from(nth).unwrap() % 2], "-KILL");
        has_ended(&mut run);
        let journal = journal(&out);
        is_whole(&journal, CASES.len());
        let faults = faults(&journal);
        assert!(faults.len() <= 1, "{faults:?}");
        for fault in faults {
            assert!(fault.error.contains("rank "), "{}", fault.error);
        }
    }
}

#[test]
fn a_rank_that_hangs_is_named() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let args = of_all_cases(&["--ranks", "2", "--case-budget", "400", "--case-deadline", "4"]);
    let mut run = command(&args, &out).stderr(Stdio::null()).spawn().unwrap();
    let ranks = has_ranks(&run, 2);
    // One that is stopped while it opens its libraries costs no case.
    wait_until("the first samples", || {
        let lines = fs::read_to_string(out.join("run.jsonl")).unwrap_or_default();
        lines.contains(r#"{"type":"sampled""#) || lines.contains(r#"{"type":"measured""#)
    });
    signal(ranks[0], "-STOP");
    has_ended(&mut run);
    let journal = journal(&out);
    is_whole(&journal, CASES.len());
    let faults = faults(&journal);
    let stopped = format!("process {}", ranks[0]);
    assert!(
        faults.iter().any(|f| f.error.contains(&stopped) || f.error.contains("rank 0")),
        "{faults:?} do not name {stopped}"
    );
    assert!(faults.len() <= 1, "{faults:?}");
}

#[test]
fn processes_of_a_launcher_find_each_other() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let args = of_all_cases(&["--case-budget", "50"]);
    let other = launched(1, 2, &args, &out);
    let first = launched(0, 2, &args, &out);
    let (first, other) = (first.wait_with_output().unwrap(), other.wait_with_output().unwrap());
    assert!(first.status.success() && other.status.success(), "{}", words(&first));
    assert!(other.stdout.is_empty());
    is_whole(&journal(&out), CASES.len());
}

#[test]
fn a_missing_rank_is_named_with_a_remedy() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let args = of_all_cases(&["--case-deadline", "3"]);
    let other = launched(2, 3, &args, &out);
    let output = launched(0, 3, &args, &out).wait_with_output().unwrap();
    let words = words(&output);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("rank 1 did not come") && words.contains("--ranks 3"), "{words}");
    let mut other = other;
    signal(other.id(), "-TERM");
    signal(other.id(), "-KILL");
    other.wait().unwrap();
}
