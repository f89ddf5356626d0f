//! Ranks that do I/O on files together.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Stdio;

use crate::common::{
    command, faults, is_whole, journal, parent, processes, signal, unwrapped, wait_until,
};
use pathline_schema::{CaseOutcome, VerifyResult};
use tempfile::TempDir;

const READ: &str = "sync@numa0[seq-read,cached,shared,4MiB,q1,n1,t1] x 64KiB";
const WRITE: &str = "sync@numa0[rand-write,cached,shared,4MiB,q1,n1,t1] x 64KiB";
const MADE: &str = "meta@numa0[create,own,d2,f50,t1] x 1B";

/// Own files, one file of both for reading and for writing, the second rank alone, and many files.
fn cases() -> [String; 5] {
    [
        format!(
            "r0.store0.file > r0.numa0.paged by {READ} & r1.store0.file > r1.numa0.paged by {READ}"
        ),
        format!(
            "r0.store0.file > r0.numa0.paged by {READ} & r0.store0.file > r1.numa0.paged by {READ}"
        ),
        format!(
            "r0.numa0.paged > r0.store0.file by {WRITE} & r1.numa0.paged > r0.store0.file by {WRITE}"
        ),
        format!("r1.store0.file > r1.numa0.paged by {READ}"),
        format!(
            "r0.numa0.reg > r0.store0.file by {MADE} & r1.numa0.reg > r1.store0.file by {MADE}"
        ),
    ]
}

fn arguments<'a>(store: &'a str, cases: &'a [String]) -> Vec<&'a str> {
    let mut args = vec!["--ranks", "2", "--case-budget", "40", "--store", store];
    args.extend(cases.iter().flat_map(|case| ["--case", case.as_str()]));
    args
}

#[test]
fn ranks_read_and_write_files_together_and_leave_none() {
    let dir = TempDir::new().unwrap();
    let (store, out) = (dir.path().join("store"), dir.path().join("run"));
    fs::create_dir(&store).unwrap();
    let cases = cases();
    let output = command(&arguments(store.to_str().unwrap(), &cases), &out).output().unwrap();
    assert!(output.status.success(), "{}", unwrapped(&output.stderr));
    let journal = journal(&out);
    is_whole(&journal, cases.len());
    for outcome in &journal.outcomes {
        let CaseOutcome::Measured(measured) = outcome else { panic!("{outcome:?}") };
        assert_eq!(measured.verdict, VerifyResult::Verified, "{}", measured.case);
        for series in &measured.series {
            // Each flow is done by the rank of its memory, which reports its readings.
            let rank = series.flow.io_ends().1.rank;
            assert_eq!(series.by_rank.keys().copied().collect::<Vec<_>>(), [rank]);
            assert_eq!(series.io.len(), series.samples_ns.len());
            assert!(series.io.iter().all(|io| io.latency.count() == series.steps));
        }
    }
    assert_eq!(fs::read_dir(&store).unwrap().count(), 0);
}

#[test]
fn a_rank_that_is_killed_during_io_leaves_no_files() {
    let dir = TempDir::new().unwrap();
    let (store, out) = (dir.path().join("store"), dir.path().join("run"));
    fs::create_dir(&store).unwrap();
    let cases = cases();
    let mut args = arguments(store.to_str().unwrap(), &cases[..2]);
    args.extend(["--case-budget", "800", "--precision", "0.01"]);
    args.retain(|arg| *arg != "40");
    args.remove(2);
    let mut run = command(&args, &out).stderr(Stdio::null()).spawn().unwrap();
    let is_rank = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&b| b == 0).nth(1) == Some(b"rank")
    };
    let mut ranks = Vec::new();
    let id = run.id();
    wait_until("files", || {
        assert_eq!(run.try_wait().unwrap(), None, "ended without files");
        let of_run = |pid: &u32| is_rank(*pid) && parent(*pid).and_then(parent) == Some(id);
        ranks = processes().into_iter().filter(of_run).collect();
        ranks.len() == 2 && fs::read_dir(&store).unwrap().count() == 2
    });
    signal(ranks[1], "-KILL");
    wait_until("the run's end", || run.try_wait().unwrap().is_some());
    let journal = journal(&out);
    assert_eq!(faults(&journal).len(), 1, "{:?}", journal.outcomes);
    // Each rank had a folder; that of the killed one went with the ranks that replaced it.
    assert_eq!(fs::read_dir(&store).unwrap().count(), 0);
}

#[test]
fn a_models_ranks_share_its_store() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("run");
    let direct = "uring@numa0[seq-read,direct,shared,1GiB,q8,n1,t1] x 1MiB";
    let (one, two) = ("r0.store0.file > r0.numa0.huge", "r1.store0.file > r1.numa0.huge");
    let cases = [format!("{one} by {direct}"), format!("{one} by {direct} & {two} by {direct}")];
    let mut args = vec!["--machine", "mi250x", "--ranks", "2"];
    args.extend(cases.iter().flat_map(|case| ["--case", case.as_str()]));
    let output = command(&args, &out).output().unwrap();
    assert!(output.status.success(), "{}", unwrapped(&output.stderr));
    let rates = |nth: usize| -> f64 {
        let journal = journal(&out);
        let CaseOutcome::Measured(measured) = &journal.outcomes[nth] else { panic!("no result") };
        let of = |s: &pathline_schema::FlowSeries| s.moved_bytes.as_f64() / s.samples_ns[0];
        measured.series.iter().map(of).sum()
    };
    let CaseOutcome::Measured(pair) = &journal(&out).outcomes[1] else { panic!("no result") };
    assert_eq!(pair.series.iter().map(|s| s.rank.0).collect::<Vec<_>>(), [0, 1], "who measured");
    // Two drives of 5.5 GB/s: one rank gets what the drives give at depth 8, and two no more than 11.
    let (alone, both) = (rates(0), rates(1));
    assert!(alone <= 11.0 && both <= 11.1 && both >= alone * 0.9, "{alone} {both}");
}
