//! Runs whose every process has an allocator that closes the page behind each block: a library that
//! touches it ends the worker there, and the case names the library.

// Helpers of tests may unwrap as tests do; the lint knows only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::fs;

use pathline_schema::{Journal, VerifyResult};
use pathline_stub::StubLibraries;

use crate::stub::{KERNEL, Node, PAIR, measured, trouble};

/// Runs cases, each of which must be measured, and its bytes compared where it moves any.
fn all_measured(node: &Node, cases: &[&str], args: &[&str]) -> Journal {
    let cases: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    let journal = node.run(&[&cases[..], args].concat(), 0);
    assert_eq!(trouble(&journal), "all measured");
    assert_eq!(journal.outcomes.len() * 2, cases.len());
    assert!(!measured(&journal).any(|m| matches!(m.verdict, VerifyResult::Unverified(_))));
    journal
}

#[test]
fn cuda_nvml_verbs_and_cufile_stay_inside_their_memory() {
    let others = [StubLibraries::Nvml, StubLibraries::Verbs, StubLibraries::CuFile];
    let node = Node::guarded(StubLibraries::Cuda, &others, "gpus=2,lookahead,rdma=mlx5_0");
    let store = node.path("store");
    fs::create_dir(&store).unwrap();
    let cases = [
        PAIR,
        KERNEL,
        "r0.numa0.paged > r0.gpu0.vram by dma@gpu0 x 1MiB",
        "r0.gpu1.vram > r0.numa0.pinned by dma@gpu1 x 1MiB & r0.numa0.pinned > r0.gpu1.vram by dma@gpu1 x 1MiB",
        "r0.numa0.managed > r0.gpu0.managed by migrate@gpu0[fault] x 1MiB",
        "r0.numa0.paged > r0.numa0.paged by cpu@numa0[copy-plain-t1] x 1MiB",
        "r0.store0.file > r0.gpu0.vram by \
         aio@numa0[rand-read,direct,shared,1MiB,q4,n1,t1,pipelined-pinned] x 64KiB",
        "r0.gpu0.vram > r0.store0.file by gds@numa0[seq-write,direct,shared,1MiB,q1,n1,t2] x 64KiB",
    ];
    let store = store.to_str().unwrap();
    let journal = all_measured(&node, &cases, &["--store", store, "--case-budget", "0.05"]);
    assert_eq!(journal.notes.iter().filter(|note| note.code == "library-overrun").count(), 0);
    // The GPUs were read, by calls of the kind that overran.
    let reads = measured(&journal).flat_map(|m| m.gpus.values());
    assert!(reads.filter(|readings| readings.after.link_errors == Some(0)).count() >= 2);
}

#[test]
fn hip_stays_inside_its_memory() {
    let node = Node::guarded(StubLibraries::Hip(6), &[], "gpus=2");
    let cases = [
        "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1MiB",
        "r0.gpu0.vram > r0.gpu1.vram by kernel@gpu1[copy-w16-u4-b256-g2sm] x 1MiB",
        "r0.numa0.pinned-nc > r0.gpu0.vram by dma@gpu0 x 1MiB",
    ];
    all_measured(&node, &cases, &["--case-budget", "0.05"]);
}

#[test]
fn ranks_stay_inside_their_memory() {
    let node = Node::guarded(StubLibraries::Cuda, &[StubLibraries::Nvml], "gpus=2,lookahead");
    let cases = [
        "r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,memcpy+memcpy] x 1MiB",
        "r0.numa0.paged > r0.gpu0.vram by dma@gpu0 x 1MiB",
    ];
    all_measured(&node, &cases, &["--ranks", "2", "--case-budget", "0.05"]);
}

#[test]
fn a_compiler_that_writes_behind_its_result_is_named() {
    let spec = "gpus=2,overrun=nvrtcGetCUBIN";
    // Without the allocator it depends on what the C library keeps behind the result whether the process
    // dies of it, and nothing names the call.
    let guarded = Node::guarded(StubLibraries::Cuda, &[], spec);
    let journal = guarded.run(&["--case", KERNEL, "--case", PAIR], 0);
    let text = trouble(&journal);
    assert!(text.contains("pathline-guard: ") && text.contains(" behind a block of "), "{text}");
    assert_eq!(measured(&journal).count(), 1);
}
