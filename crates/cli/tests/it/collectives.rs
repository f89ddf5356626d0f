//! Collectives between processes without a GPU: the real program over libraries that stand in for
//! those of GPUs and of collectives.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::common::{faults, is_whole};
use crate::stub::{Node, measured};
use pathline_schema::{FaultedCase, Journal, Rank, Severity, VerifyResult, WorldKind};
use pathline_stub::{StubLibraries, lay_out};

/// Sums of all ranks from the first to that one, of 8, 16, 24 ... bytes.
fn sums(last: u32, count: u32) -> Vec<String> {
    let sum = |n: u32| {
        let bytes = 8 * n;
        format!("r0.gpu0.vram > r{last}.gpu{last}.vram by ccl@gpu0[all_reduce] x {bytes}B")
    };
    (1..=count).map(sum).collect()
}

/// A node with CUDA and NCCL.
fn node(spec: &str) -> Node {
    let node = Node::new(spec);
    lay_out(&node.path("lib"), &[StubLibraries::Nccl], &[]).unwrap();
    node
}

/// A node where a fault strikes one rank, in one process of the run alone.
fn struck_once(gpus: u32, rank: u32, fault: &str) -> Node {
    let mut node = node("");
    let once = node.path("struck").display().to_string();
    node.spec = format!("gpus={gpus},memory=1GiB,rank={rank},once={once},{fault}");
    node
}

/// Measures cases between `ranks` ranks.
fn run(node: &Node, ranks: &str, cases: &[String], more: &[&str], code: i32) -> Journal {
    run_for(node, "20", ranks, cases, more, code)
}

/// The same with another time for each case, in ms.
fn run_for(
    node: &Node,
    budget: &str,
    ranks: &str,
    cases: &[String],
    more: &[&str],
    code: i32,
) -> Journal {
    let cases = cases.iter().flat_map(|case| ["--case", case]);
    let args = ["--ranks", ranks, "--case-budget", budget].into_iter().chain(more.iter().copied());
    node.run(&args.chain(cases).collect::<Vec<_>>(), code)
}

/// The only case that failed; the others are measured and verified.
fn only_fault(journal: &Journal, cases: usize) -> &FaultedCase {
    is_whole(journal, cases);
    assert!(measured(journal).all(|m| m.verdict == VerifyResult::Verified));
    let faults = faults(journal);
    assert_eq!((faults.len(), measured(journal).count()), (1, cases - 1), "{faults:?}");
    faults[0]
}

fn notes<'a>(journal: &'a Journal, code: &'a str) -> Vec<&'a str> {
    let of_code = journal.notes.iter().filter(|note| note.code == code);
    of_code.map(|note| note.subject.as_str()).collect()
}

#[test]
fn every_collective_between_processes_is_verified() {
    let node = node("gpus=4,memory=1GiB");
    let suite = ["--suite", "ccl-collectives", "--case", "* > * by ccl x 2KiB"];
    let journal = run(&node, "4", &[], &suite, 0);
    // Six operations of all four ranks, each back to back, as a graph, and with a barrier before
    // each; smaller groups are measured at other sizes.
    is_whole(&journal, 6 * 3);
    assert_eq!(journal.begin.world, WorldKind::Simulated("stub".into()));
    assert_eq!(measured(&journal).count(), 6 * 3, "{:?}", faults(&journal));
    let pids: BTreeSet<u32> = journal.begin.ranks.iter().map(|member| member.pid).collect();
    assert_eq!(pids.len(), 4, "each rank is a process");
    for one in measured(&journal) {
        assert_eq!(one.verdict, VerifyResult::Verified, "{}", one.case);
        let series = &one.series[0];
        assert_eq!(series.by_rank.len(), 4, "{}", one.case);
        assert_eq!(
            series.engine,
            "NCCL 2.28.3, ring simple on 4 channels, via P2P/stub, buffers registered",
            "{}",
            one.case
        );
    }
}

#[test]
fn types_operations_and_parts_are_verified() {
    let node = node("gpus=4,memory=1GiB");
    let cases = [
        ("all_reduce-float", "4B"),
        ("all_reduce-bf16-max", "64KiB"),
        ("all_reduce-fp8e5m2-prod", "64KiB"),
        ("reduce-half-avg", "64KiB"),
        ("reduce_scatter-int8-min", "64KiB"),
        ("reduce-inplace", "64KiB"),
        ("gather", "64KiB"),
        ("gather-inplace", "64KiB"),
        ("scatter", "64KiB"),
        ("scatter-inplace", "64KiB"),
        ("all_to_allv", "64KiB"),
        ("all_gatherv-inplace", "64KiB"),
        ("gatherv", "64KiB"),
        // Parts of 0, 1, 1 and 3 bytes.
        ("scatterv", "5B"),
    ]
    .map(|(op, size)| format!("r0.gpu0.vram > r3.gpu3.vram by ccl@gpu0[{op}] x {size}"));
    let journal = run(&node, "4", &cases, &[], 0);
    is_whole(&journal, cases.len());
    assert_eq!(measured(&journal).count(), cases.len(), "{:?}", faults(&journal));
    for one in measured(&journal) {
        assert_eq!(one.verdict, VerifyResult::Verified, "{}", one.case);
    }
}

#[test]
fn messages_and_special_buffers_arrive_too() {
    let node = node("gpus=3,memory=1GiB");
    let cases = [
        "r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[ping] x 8B",
        "r2.gpu2.vram > r1.gpu1.vram by ccl@gpu2[send-w4] x 64KiB",
        "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[send-w1] x 64KiB & \
         r1.gpu1.vram > r0.gpu0.vram by ccl@gpu1[send-w1] x 64KiB",
        "r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[all_reduce-inplace] x 8B",
        "r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[all_reduce-unregistered] x 1MiB",
    ]
    .map(str::to_owned);
    let journal = run(&node, "3", &cases, &[], 0);
    is_whole(&journal, cases.len());
    assert_eq!(measured(&journal).count(), cases.len(), "{:?}", faults(&journal));
    assert!(measured(&journal).all(|m| m.verdict == VerifyResult::Verified));
}

#[test]
fn rccl_sums_between_processes_too() {
    let node = Node::of(StubLibraries::Hip(6), "gpus=2,memory=1GiB", &[]);
    lay_out(&node.path("lib"), &[StubLibraries::Rccl], &[]).unwrap();
    let journal = run(&node, "2", &sums(1, 2), &[], 0);
    assert_eq!(measured(&journal).count(), 2, "{:?}", faults(&journal));
    assert!(measured(&journal).all(|m| m.verdict == VerifyResult::Verified));
    assert!(measured(&journal).all(|m| m.series[0].engine.starts_with("RCCL 2.28.3, ring")));
}

#[test]
fn a_rank_that_crashes_costs_its_case() {
    // Rank 0 has the thread that all bytes pass through, so that rank 1 loses it as well.
    for rank in [0, 1] {
        let node = struck_once(2, rank, "crash=ncclAllReduce@12");
        let journal = run(&node, "2", &sums(1, 4), &[], 1);
        let fault = only_fault(&journal, 4);
        let words = [format!("rank {rank}, process "), "was ended by signal 11".to_owned()];
        assert!(words.iter().all(|w| fault.error.contains(w)), "{}", fault.error);
        assert_eq!((fault.severity, &fault.ranks), (Severity::Sticky, &vec![Rank(rank)]));
    }
}

#[test]
fn a_rank_that_crashes_again_retires_the_operation_while_its_gpu_copies() {
    let node = node("gpus=3,memory=1GiB,rank=1,crash=ncclAllReduce@5");
    let mut cases = sums(2, 3);
    cases.push("r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[ping] x 8B".to_owned());
    let journal = run(&node, "3", &cases, &[], 1);
    is_whole(&journal, cases.len());
    // Rank 1 dies twice in an all_reduce, and its GPU copies after both.
    assert_eq!(notes(&journal, "retired"), ["all_reduce by ccl of vram memory"]);
    let faults = faults(&journal);
    let crashed = |f: &&&FaultedCase| f.error.contains("rank 1, process ") && f.ranks == [Rank(1)];
    assert_eq!((faults.len(), faults.iter().filter(crashed).count()), (3, 2), "{faults:?}");
    let unused = "use on all_reduce by ccl of vram memory: ";
    assert!(faults[2].error.starts_with(unused), "{}", faults[2].error);
    let left: Vec<String> = measured(&journal).map(|m| m.case.to_string()).collect();
    assert_eq!(left, [cases[3].as_str()]);
}

#[test]
fn a_call_that_fails_in_one_rank_costs_its_case_alone() {
    let node = struck_once(2, 1, "fail=ncclAllReduce@12:3");
    let journal = run(&node, "2", &sums(1, 4), &[], 1);
    let fault = only_fault(&journal, 4);
    let words = ["ncclAllReduce on ", "internal error (stub) (3)", "rank 1, process "];
    assert!(words.iter().all(|w| fault.error.contains(w)), "{}", fault.error);
    assert_eq!((fault.severity, &fault.ranks), (Severity::Transient, &vec![Rank(1)]));
}

/// The first operation of a case connects its ranks, so that a failure of it is one of binding. The other
/// rank then has a communicator of one member, which must not become the error of the case.
#[test]
fn a_call_that_fails_while_ranks_connect_is_the_error_of_its_case() {
    let node = struck_once(2, 1, "bytes=16,fail=ncclAllReduce@1:3");
    let cases = sums(1, 3);
    let journal = run(&node, "2", &cases, &[], 1);
    let fault = only_fault(&journal, 3);
    assert_eq!(fault.case.to_string(), cases[1]);
    let words = ["ncclAllReduce on ", "internal error (stub) (3)", "rank 1, process "];
    assert!(words.iter().all(|w| fault.error.contains(w)), "{}", fault.error);
    assert_eq!((fault.severity, &fault.ranks), (Severity::Transient, &vec![Rank(1)]));
}

/// Three cases of one group share a communicator, and the second alone records graphs. The first is bound by
/// then and not finished: a visit takes 4 samples, and a case with time left takes at least 7.
#[test]
fn a_communicator_that_ends_with_one_case_is_made_again_for_the_others() {
    let node = struck_once(2, 1, "fail=cuStreamBeginCapture@1:1");
    let sum = "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x 16B";
    let cases = ["", " graph", " isolated"].map(|cadence| format!("{sum}{cadence}"));
    let journal = run_for(&node, "1000", "2", &cases, &[], 1);
    let fault = only_fault(&journal, 3);
    assert_eq!(fault.case.to_string(), cases[1]);
    assert!(fault.error.contains("cuStreamBeginCapture on "), "{}", fault.error);
    assert_eq!(fault.severity, Severity::Transient);
}

#[test]
fn a_wrong_byte_of_another_process_is_found() {
    let node = node("gpus=2,memory=1GiB,rank=1,corrupt=ncclAllReduce@1+");
    let journal = run(&node, "2", &sums(1, 1), &[], 1);
    let faults = faults(&journal);
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].severity, &faults[0].ranks), (Severity::Corrupt, &vec![Rank(1)]));
}

#[test]
fn a_rank_that_hangs_costs_its_case() {
    let node = struck_once(2, 1, "hang=ncclAllReduce@12");
    let journal = run(&node, "2", &sums(1, 3), &["--case-deadline", "10"], 1);
    let fault = only_fault(&journal, 3);
    assert!(fault.error.contains("did not answer for 6 s; "), "{}", fault.error);
}

/// The worker sends the ranks their steps and uses no GPU: if it dies, no GPU is the cause.
#[test]
fn a_coordinator_that_crashes_once_costs_no_case() {
    let cases = sums(1, 3);
    let crash = ["--inject", "crash bind@1 x 16B"];
    let journal = run(&node("gpus=2,memory=1GiB"), "2", &cases, &crash, 0);
    is_whole(&journal, cases.len());
    assert_eq!(measured(&journal).count(), cases.len(), "{:?}", faults(&journal));
    assert_eq!(notes(&journal, "coordinator-failed"), ["run"]);
    let note = journal.notes.iter().find(|n| n.code == "coordinator-failed").unwrap();
    let words = ["x 16B is started again", "the process that coordinates the ranks", "SIGABRT"];
    assert!(words.iter().all(|w| note.text.contains(w)), "{}", note.text);
}

#[test]
fn a_coordinator_that_crashes_always_retires_no_gpu() {
    let cases = sums(1, 4);
    let crash = ["--inject", "crash bind x 16B", "--inject", "crash visit x 24B"];
    let journal = run(&node("gpus=2,memory=1GiB"), "2", &cases, &crash, 3);
    is_whole(&journal, cases.len());
    let faults = faults(&journal);
    assert_eq!((faults.len(), measured(&journal).count()), (2, 2), "{faults:?}");
    for fault in faults {
        assert_eq!(fault.severity, Severity::Transient);
        let words = ["on the process that coordinates the ranks: ", "SIGABRT", "pathline itself"];
        assert!(words.iter().all(|w| fault.error.contains(w)), "{}", fault.error);
    }
    // Each of the two was tried twice, and no GPU is charged with any of the four crashes.
    assert_eq!(notes(&journal, "coordinator-failed").len(), 2);
    assert!(notes(&journal, "retired").is_empty());
}

/// The stand-in changes its algorithm by NCCL_ALGO, and nothing by other settings.
#[test]
fn settings_that_a_library_does_not_follow_are_ignored() {
    let node = node("gpus=2,memory=1GiB");
    let sum = "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x 1MiB";
    let args = ["advise", "--json", "--ranks", "2", "--budget", "4s", "--for", sum];
    let output = node.pathline(&args);
    let file: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let answer = &file["answers"][0];
    assert_eq!(answer["subject"], "all_reduce of 2 GPUs, gpu0 to gpu1, by NCCL, 1MiB");
    let error = |label: &str| {
        let screened = answer["screened"].as_array().unwrap();
        let of = screened.iter().find(|s| s["label"] == label);
        of.unwrap_or_else(|| panic!("{label} in {answer:#}"))["error"].as_str()
    };
    for label in ["NCCL_PROTO=Simple", "NCCL_MIN_NCHANNELS=32", "NCCL_ALGO=Ring"] {
        let why = "the library chooses ring simple on 4 channels with and without it";
        assert_eq!(error(label), Some(why), "{label}");
    }
    // Its algorithm changes; what threads do is not in the log.
    assert_eq!((error("NCCL_ALGO=Tree"), error("NCCL_NTHREADS=256")), (None, None));
}
