//! Batches of tensors as programs that load models have them: many allocations, some of which happen to follow one
//! another.

use pathline::{BlockMethod, CopyNode, CopyStatus, NodeOptions};
use pathline_stub::StubLibraries;

use crate::runtime::{TestRuntime, in_separate_process};

/// A copy of a batch.
type BatchCopy = (u64, u64, usize);

/// Bytes of the 291 tensors of Llama-3-8B in bfloat16: an embedding and a head of 128,256 x 4,096, 32 layers of which
/// each has two norms, four projections of the attention (two of 4,096 x 4,096, two of 1,024 x 4,096) and three of
/// the MLP (14,336 x 4,096), and a last norm. Sides are divided by `scale`: matrices by its square.
fn llama_8b(scale: usize) -> Vec<usize> {
    let bytes = |rows: usize, columns: usize| 2 * (rows / scale).max(1) * (columns / scale);
    let hidden = 4096;
    let norm = bytes(1, hidden);
    let (square, narrow) = (bytes(hidden, hidden), bytes(1024, hidden));
    let (wide, words) = (bytes(14_336, hidden), bytes(128_256, hidden));
    let layer = [square, narrow, narrow, square, wide, wide, wide, norm, norm];
    let layers = std::iter::repeat_n(layer, 32).flatten();
    [words].into_iter().chain(layers).chain([norm, words]).collect()
}

#[test]
fn the_shapes_are_those_of_the_model() {
    let whole = llama_8b(1);
    assert_eq!((whole.len(), whole.iter().sum::<usize>()), (291, 16_060_522_496));
    let (least, most) = (whole.iter().min().unwrap(), whole.iter().max().unwrap());
    assert_eq!((*least, *most), (8 << 10, 1_050_673_152));
    // A sixty-fourth of the matrices, an eighth of 65 norms.
    let scaled = (16_060_522_496 - 65 * 8192) / 64 + 65 * 1024;
    assert_eq!(llama_8b(8).iter().sum::<usize>(), scaled);
}

/// Blocks of 16 KiB, each an allocation, of which each follows the one before.
fn neighbours(count: usize, allocate: impl Fn(usize) -> u64) -> Vec<u64> {
    // The first ones fill gaps between mappings of the process.
    let mut blocks: Vec<u64> = (0..8 * count).map(allocate).collect();
    blocks.sort_unstable();
    let follow = |run: &&[u64]| run.windows(2).all(|pair| pair[0] + SMALL as u64 == pair[1]);
    blocks.windows(count).find(follow).unwrap().to_vec()
}

const SMALL: usize = 16 << 10;

/// Copies the batch and compares every byte: the calls of the copy and of the query that it took.
fn copy_and_compare(runtime: &TestRuntime, node: &CopyNode, copies: &[BatchCopy]) -> [u64; 2] {
    let stream = runtime.stream();
    runtime.inject("");
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_batch_async(copies, stream).unwrap() };
    let calls = [
        runtime.count("cuMemcpyAsync", "hipMemcpyAsync"),
        runtime.count("cuPointerGetAttributes", "hipPointerGetAttributes"),
    ];
    assert_eq!(runtime.wait(stream), 0);
    for (nth, &(dst, src, bytes)) in copies.iter().enumerate() {
        // SAFETY: pinned memory of the test.
        let expected = unsafe { std::slice::from_raw_parts(src as *const u8, bytes) };
        assert!(runtime.read(dst, bytes) == expected, "copy {nth}");
    }
    calls
}

/// 64 neighbours into one allocation of a GPU and into 64, from 64 pinned ones and from one.
fn small_tensors(runtime: &TestRuntime) {
    // What a kernel or one call for many would copy is tested elsewhere.
    let blocks = Some(BlockMethod::Copies);
    let node = runtime.node(NodeOptions { blocks, ..NodeOptions::default() });
    let apart = neighbours(64, |nth| runtime.pinned(SMALL, nth as u8).as_ptr() as u64);
    let device = neighbours(64, |_| runtime.device(SMALL));
    let one = runtime.pinned(64 * SMALL, 77).as_ptr() as u64;
    let carved = |from: u64| (0..64).map(move |nth| from + nth * SMALL as u64);
    let whole = runtime.device(64 * SMALL);
    let batch = |dst: &[u64], src: &[u64]| -> Vec<BatchCopy> {
        dst.iter().zip(src).map(|(&dst, &src)| (dst, src, SMALL)).collect()
    };
    let (whole, one) = (carved(whole).collect::<Vec<_>>(), carved(one).collect::<Vec<_>>());
    // A question about the destination, and about a source for each of five neighbours, or about a destination.
    assert_eq!(copy_and_compare(runtime, &node, &batch(&whole, &apart)), [64, 6]);
    assert_eq!(copy_and_compare(runtime, &node, &batch(&device, &apart)), [64, 5]);
    assert_eq!(copy_and_compare(runtime, &node, &batch(&device, &one)), [64, 5]);
    // Within one allocation at each end they are one copy.
    assert_eq!(copy_and_compare(runtime, &node, &batch(&whole, &one)), [1, 2]);
}

#[test]
fn neighbours_in_different_allocations_are_copied_one_by_one_over_cuda() {
    let test = "state_dict::neighbours_in_different_allocations_are_copied_one_by_one_over_cuda";
    if in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        small_tensors(&TestRuntime::open("cuda"));
    }
}

#[test]
fn neighbours_in_different_allocations_are_copied_one_by_one_over_hip() {
    let test = "state_dict::neighbours_in_different_allocations_are_copied_one_by_one_over_hip";
    if in_separate_process(test, StubLibraries::Hip(6), "gpus=2,memory=1GiB") {
        small_tensors(&TestRuntime::open("hip"));
    }
}

#[test]
fn a_refused_batch_is_copied_one_by_one() {
    let test = "state_dict::a_refused_batch_is_copied_one_by_one";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(NodeOptions { threshold: 256 << 10, ..NodeOptions::default() });
    let stream = cuda.stream();
    for (count, large) in [(4, false), (64, true)] {
        let (device, host) = (cuda.device(count * SMALL), cuda.pinned(count * SMALL, 3));
        let at = |nth: usize| {
            let offset = (nth * SMALL) as u64;
            (device + offset, host.as_ptr() as u64 + offset, SMALL)
        };
        let copies: Vec<BatchCopy> = (0..count).map(at).collect();
        node.explain(device, host.as_ptr() as u64, count * SMALL).unwrap();
        // The copy of all is refused, over several paths too, then each has a call.
        let plain = node.counters().plain;
        cuda.inject("fail=cuMemcpyAsync@1:1,fail=cuEventRecord@1:1");
        // SAFETY: live memory and a live stream.
        unsafe { node.copy_batch_async(&copies, stream).unwrap() };
        assert_eq!(cuda.count("cuMemcpyAsync", ""), 1 + count as u64);
        cuda.inject("");
        assert_eq!(cuda.wait(stream), 0);
        assert!(cuda.read(device, count * SMALL) == *host);
        assert_eq!(node.counters().plain - plain, u64::from(large));
        // The copy before the last goes beyond the allocation by a byte.
        let mut wrong = copies.clone();
        wrong.swap(0, count - 2);
        wrong[count - 2] = (at(count - 1).0, at(0).1, SMALL + 1);
        // SAFETY: the stand-in refuses what leaves the memory.
        let refused = unsafe { node.copy_batch_async(&wrong, stream) }.unwrap_err();
        let named = format!("dst[{}], src[{}]: cuMemcpyAsync of 16385 bytes", count - 2, count - 2);
        assert!(
            refused.status == CopyStatus::Runtime && refused.text.starts_with(&named),
            "{refused:?}"
        );
        assert_eq!(cuda.wait(stream), 0);
    }
}

/// Copies of a batch whose stream waits do not look again and again whether the earlier ones have begun: 100 took
/// 4,950 queries of events.
#[test]
fn a_long_batch_in_a_stream_that_waits_is_enqueued_quickly() {
    let test = "state_dict::a_long_batch_in_a_stream_that_waits_is_enqueued_quickly";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let (threshold, probe_bytes, bytes) = (64 << 10, 4 << 20, 64 << 10);
    let node =
        cuda.node(NodeOptions { threshold, probe_bytes, min_gain: 1e-6, ..NodeOptions::default() });
    let (stream, word) = (cuda.stream(), cuda.pinned(4096, 0));
    word.fill(0);
    let copies: Vec<BatchCopy> = (0..100)
        .map(|nth| (cuda.device(bytes), cuda.pinned(bytes, nth).as_ptr() as u64, bytes))
        .collect();
    node.explain(copies[0].0, copies[0].1, bytes).unwrap();
    cuda.hold(stream, word.as_ptr() as u64, 1);
    cuda.inject("");
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_batch_async(&copies, stream).unwrap() };
    let queries = cuda.count("cuEventQuery", "");
    assert!((99..=200).contains(&queries), "{queries}");
    assert!(!cuda.is_idle(stream));
    word.fill(1);
    assert_eq!(cuda.wait(stream), 0);
    assert_eq!(node.counters().multipath, 100);
    for (dst, src, bytes) in copies {
        // SAFETY: pinned memory of the test.
        let expected = unsafe { std::slice::from_raw_parts(src as *const u8, bytes) };
        assert!(cuda.read(dst, bytes) == expected);
    }
}

/// Every tensor pinned by itself, a part of them by registration, to one GPU and to two; memory of the GPUs carved
/// from one allocation and one for each tensor. The threshold is scaled as the matrices are.
#[test]
fn a_state_dict_arrives() {
    let test = "state_dict::a_state_dict_arrives";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=2GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let shapes = llama_8b(8);
    let options = NodeOptions {
        threshold: 64 << 10,
        probe_bytes: 4 << 20,
        staging: 256 << 10,
        blocks: Some(BlockMethod::Copies),
        ..NodeOptions::default()
    };
    let node = cuda.node(NodeOptions { min_gain: 1e-6, ..options });
    let pinned = |nth: usize, bytes: usize| -> &'static [u8] {
        if !nth.is_multiple_of(3) {
            return cuda.pinned(bytes, nth as u8);
        }
        let own = vec![nth as u8; bytes].leak();
        assert_eq!(cuda.register(own), 0);
        own
    };
    let host: Vec<&[u8]> = shapes.iter().enumerate().map(|(nth, &n)| pinned(nth, n)).collect();
    let total = shapes.iter().sum::<usize>();
    let mut carved: Vec<Vec<u64>> = Vec::new();
    for gpu in 0..2 {
        cuda.enter(gpu);
        let (start, mut offset) = (cuda.device(total), 0);
        let mut carve = |&bytes: &usize| {
            offset += bytes as u64;
            start + offset - bytes as u64
        };
        carved.push(shapes.iter().map(&mut carve).collect());
    }
    cuda.enter(0);
    let apart: Vec<u64> = shapes.iter().map(|&n| cuda.device(n)).collect();
    let half = |nth: usize| carved[usize::from(nth >= 146)][nth];
    let split: Vec<u64> = (0..shapes.len()).map(half).collect();
    let large = shapes.iter().filter(|&&n| n >= 64 << 10).count() as u64;
    assert_eq!(large, 226);
    for gpu in carved.iter() {
        node.explain(gpu[0], host[0].as_ptr() as u64, host[0].len()).unwrap();
    }
    for dst in [&carved[0], &apart, &split] {
        let before = node.counters();
        let copies: Vec<BatchCopy> = dst
            .iter()
            .zip(&host)
            .map(|(&dst, src)| (dst, src.as_ptr() as u64, src.len()))
            .collect();
        let [calls, queries] = copy_and_compare(&cuda, &node, &copies);
        let after = node.counters();
        println!("{calls} copies, {queries} questions about addresses, {after:?}");
        assert_eq!(after.multipath - before.multipath, large);
        // Two for each end of a large copy, and few for neighbours.
        assert!(queries <= 4 * large + 20, "{queries}");
    }
}
