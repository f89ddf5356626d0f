//! Batches of many ranges: every byte, whatever copies them, and what happens where a kernel cannot.

use pathline::{BlockMethod, CopyNode, CopyStatus, NodeOptions};
use pathline_stub::StubLibraries;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::runtime::{TestRuntime, in_separate_process};

type BatchCopy = (u64, u64, usize);

/// Bytes of the memory at each end.
const ROOM: usize = 6 << 20;

fn node(runtime: &TestRuntime, blocks: Option<BlockMethod>) -> CopyNode {
    runtime.node(NodeOptions { blocks, ..NodeOptions::default() })
}

/// Ranges that share no byte at their destination, in any order: a few bytes to 70,000, at any address.
fn scattered(rng: &mut TestRng, count: usize) -> Vec<[usize; 3]> {
    let below = |rng: &mut TestRng, most: usize| rng.next_u64() as usize % most;
    let mut ranges = Vec::new();
    let mut dst = 0;
    while ranges.len() < count {
        // Ends that agree modulo 16, modulo less, or not at all.
        let (step, least) = [(1, 1), (16, 1), (4, 3), (8, 8), (16, 4096)][below(rng, 5)];
        let longest = [40, 5000, 70_000][below(rng, 3)];
        let bytes = least + below(rng, longest);
        dst += 1 + below(rng, 64);
        let src = (dst + step * below(rng, ROOM / 2 / step)) % (ROOM - bytes);
        if dst + bytes > ROOM {
            break;
        }
        ranges.push([dst, src, bytes]);
        dst += bytes;
    }
    for last in (1..ranges.len()).rev() {
        ranges.swap(last, below(rng, last + 1));
    }
    ranges
}

/// Copies ranges of memory at one address to another and compares all memory there. Both have [`ROOM`] bytes.
fn copy_and_compare(
    runtime: &TestRuntime,
    node: &CopyNode,
    [dst, src]: [u64; 2],
    ranges: &[[usize; 3]],
    stream: usize,
) {
    let (mut expected, source) = (runtime.read(dst, ROOM), runtime.read(src, ROOM));
    for &[to, from, bytes] in ranges {
        expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
    }
    let copies: Vec<BatchCopy> = ranges
        .iter()
        .map(|&[to, from, bytes]| (dst + to as u64, src + from as u64, bytes))
        .collect();
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_batch_async(&copies, stream).unwrap() };
    assert_eq!(runtime.wait(stream), 0);
    let found = runtime.read(dst, ROOM);
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None);
}

/// Random batches into a GPU, out of it, within it and between two, by each method and as measured.
fn random_batches(runtime: &TestRuntime, methods: &[Option<BlockMethod>], peers: bool) {
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let stream = runtime.stream();
    let host = [1, 2].map(|seed| runtime.pinned(ROOM, seed).as_ptr() as u64);
    let [near, other] = [(); 2].map(|()| runtime.device(ROOM));
    runtime.enter(1);
    let far = runtime.device(ROOM);
    runtime.enter(0);
    for at in [near, other, far] {
        runtime.copy(at, host[1], ROOM);
    }
    for &method in methods {
        let node = node(runtime, method);
        for ends in [[near, host[0]], [host[1], near], [other, near], [far, near], [near, far]] {
            let ranges = scattered(&mut rng, 200);
            assert!(ranges.len() >= 64, "{}", ranges.len());
            let before = node.counters();
            runtime.inject("");
            copy_and_compare(runtime, &node, ends, &ranges, stream);
            let (after, count) = (node.counters(), ranges.len() as u64);
            assert_eq!(after.refused_blocks, 0);
            let by_kernel = peers || !ends.contains(&far);
            match method {
                Some(BlockMethod::Kernel) if by_kernel => {
                    assert_eq!(after.blocks - before.blocks, count);
                    let launches = runtime.count("cuLaunchKernel", "hipModuleLaunchKernel");
                    let copies = runtime.count("cuMemcpyAsync", "hipMemcpyAsync");
                    assert_eq!((launches, copies), (1, 0));
                }
                Some(BlockMethod::Batch) => {
                    assert_eq!(after.batched_blocks - before.batched_blocks, count);
                }
                Some(_) => assert_eq!(after.blocks, before.blocks),
                None => {}
            }
        }
    }
}

#[test]
fn random_batches_arrive_over_cuda() {
    let test = "blocks::random_batches_arrive_over_cuda";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let methods = [BlockMethod::Kernel, BlockMethod::Batch, BlockMethod::Copies].map(Some);
    let methods = [&methods[..], &[None]].concat();
    random_batches(&TestRuntime::open("cuda"), &methods, true);
}

/// Memory of another GPU is not given to a kernel: HIP does not say what decides access to it.
#[test]
fn random_batches_arrive_over_hip() {
    let test = "blocks::random_batches_arrive_over_hip";
    if !in_separate_process(test, StubLibraries::Hip(6), "gpus=2,memory=1GiB") {
        return;
    }
    random_batches(&TestRuntime::open("hip"), &[Some(BlockMethod::Kernel), None], false);
}

/// What refuses a kernel, with the copies that are made instead.
#[test]
fn a_refused_kernel_is_replaced_by_copies() {
    let test = "blocks::a_refused_kernel_is_replaced_by_copies";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
    let (host, stream) = (cuda.pinned(ROOM, 1).as_ptr() as u64, cuda.stream());
    let device = cuda.device(ROOM);
    cuda.copy(device, host, ROOM);
    // Whether a kernel copies under the fault, and after it. An event that is not recorded costs its list alone.
    let faults = [
        ("fail=cuModuleLoadData:209", 0, 0),
        ("fail=cuModuleGetFunction:500", 0, 0),
        ("fail=cuMemHostAlloc:2", 0, 1),
        ("fail=cuEventCreate:2", 0, 1),
        ("fail=cuLaunchKernel:701", 0, 1),
        ("fail=cuEventRecord:2", 1, 1),
    ];
    for (fault, first, second) in faults {
        let node = node(&cuda, Some(BlockMethod::Kernel));
        for (fault, by_kernel) in [(fault, first), ("", second)] {
            let ranges = scattered(&mut rng, 200);
            let before = node.counters();
            cuda.inject(fault);
            copy_and_compare(&cuda, &node, [device, host], &ranges, stream);
            let after = node.counters();
            assert_eq!(after.blocks - before.blocks, by_kernel * ranges.len() as u64, "{fault}");
            let refused = after.refused_blocks - before.refused_blocks;
            assert_eq!(refused, u64::from(by_kernel == 0 && !fault.is_empty()), "{fault}");
        }
    }
    let node = node(&cuda, Some(BlockMethod::Batch));
    cuda.inject("fail=cuMemcpyBatchAsync:1");
    copy_and_compare(&cuda, &node, [device, host], &scattered(&mut rng, 200), stream);
    assert_eq!((node.counters().batched_blocks, node.counters().refused_blocks), (0, 1));
}

#[test]
fn what_kernels_do_not_reach_is_copied_one_by_one() {
    let test = "blocks::what_kernels_do_not_reach_is_copied_one_by_one";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB,nopeer") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = node(&cuda, Some(BlockMethod::Kernel));
    let bytes = 4096;
    let (pinned, stream) = (cuda.pinned(ROOM, 1).as_ptr() as u64, cuda.stream());
    let (pageable, near, managed) = (vec![7u8; ROOM], cuda.device(ROOM), cuda.managed(ROOM));
    cuda.enter(1);
    let far = cuda.device(ROOM);
    cuda.enter(0);
    let ranges: Vec<[usize; 3]> = (0..100).map(|nth| [9000 * nth, 8192 * nth, bytes]).collect();
    let copy = |ends: [u64; 2], by_kernel: u64| {
        let before = node.counters();
        copy_and_compare(&cuda, &node, ends, &ranges, stream);
        assert_eq!(node.counters().blocks - before.blocks, by_kernel);
    };
    copy([near, pageable.as_ptr() as u64], 0);
    copy([managed, pinned], 0);
    copy([near, managed], 0);
    copy([far, pinned], 0);
    copy([near, far], 0);
    copy([near, pinned], 100);
    // Two allocations that a range leaves are none that a kernel is given.
    let wrong: Vec<BatchCopy> =
        (0..100).map(|nth| (near + 8192 * nth, pinned + (ROOM - 4000) as u64, bytes)).collect();
    // SAFETY: the stand-in refuses what leaves the memory.
    let refused = unsafe { node.copy_batch_async(&wrong, stream) }.unwrap_err();
    assert!(refused.status == CopyStatus::Runtime && refused.text.starts_with("dst[0]"));
    // A batch of few, and one of long ranges.
    let before = node.counters().blocks;
    copy_and_compare(&cuda, &node, [near, pinned], &ranges[..63], stream);
    assert_eq!(node.counters().blocks, before);
    // This stand-in records no copies: its answer to the plain copy is the caller's.
    cuda.capture(stream);
    // SAFETY: live memory and a live stream.
    let refused = unsafe {
        let copies: Vec<BatchCopy> =
            ranges.iter().map(|r| (near + r[0] as u64, pinned + r[1] as u64, r[2])).collect();
        node.copy_batch_async(&copies, stream).unwrap_err()
    };
    assert!(refused.text.contains("(900)"), "{refused:?}");
    let without = cuda.node(NodeOptions { max_multiprocessors: -1, ..NodeOptions::default() });
    copy_and_compare(&cuda, &without, [near, pinned], &ranges, cuda.stream());
    assert_eq!((without.counters().blocks, without.counters().refused_blocks), (0, 0));
}

/// 40 batches in a stream that waits: a list is read when the stream gets there, so none is written again before.
/// The last batches find no list and are copied one by one.
#[test]
fn lists_are_kept_until_their_kernel_has_read_them() {
    let test = "blocks::lists_are_kept_until_their_kernel_has_read_them";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = node(&cuda, Some(BlockMethod::Kernel));
    let (stream, word, bytes) = (cuda.stream(), cuda.pinned(4096, 0), 512);
    word.fill(0);
    let (host, device) = (cuda.pinned(ROOM, 5), cuda.device(ROOM));
    let from = host.as_ptr() as u64;
    let batch = |nth: usize| -> Vec<BatchCopy> {
        let place = |at: usize| ((nth * 64 + at) * bytes) as u64;
        // From behind, so that no range continues the one before.
        (0..64).rev().map(|at| (device + place(at), from + place(at), bytes)).collect()
    };
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_batch_async(&batch(0), stream).unwrap() };
    assert_eq!(cuda.wait(stream), 0);
    cuda.hold(stream, word.as_ptr() as u64, 1);
    for nth in 1..41 {
        // SAFETY: live memory and a live stream.
        unsafe { node.copy_batch_async(&batch(nth), stream).unwrap() };
    }
    assert!(!cuda.is_idle(stream));
    let counters = node.counters();
    assert_eq!((counters.blocks, counters.refused_blocks), (33 * 64, 8));
    word.fill(1);
    assert_eq!(cuda.wait(stream), 0);
    let copied = 41 * 64 * bytes;
    assert!(cuda.read(device, copied) == host[..copied]);
    // All lists are free again.
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_batch_async(&batch(41), stream).unwrap() };
    assert_eq!(cuda.wait(stream), 0);
    assert_eq!(node.counters().blocks, 34 * 64);
}

/// 100,000 ranges are more than a list has; the kernel is loaded, and each direction measured, once.
#[test]
fn long_batches_take_several_lists() {
    let test = "blocks::long_batches_take_several_lists";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let (host, device) = (cuda.pinned(ROOM, 3).as_ptr() as u64, cuda.device(ROOM));
    let ranges: Vec<[usize; 3]> = (0..100_000).map(|nth| [60 * nth, 59 * nth, 50]).collect();
    let forced = node(&cuda, Some(BlockMethod::Kernel));
    copy_and_compare(&cuda, &forced, [device, host], &ranges, cuda.stream());
    assert_eq!(forced.counters().blocks, 100_000);
    let measured = node(&cuda, None);
    cuda.inject("");
    for _ in 0..3 {
        let stream = cuda.stream();
        copy_and_compare(&cuda, &measured, [device, host], &ranges[..100], stream);
        copy_and_compare(&cuda, &measured, [host, device], &ranges[..100], stream);
    }
    assert_eq!(cuda.count("cuModuleLoadData", ""), 1);
    // Stream and events of two probes, and those of the test.
    assert_eq!(cuda.count("cuStreamCreate", ""), 2 + 3);
}
