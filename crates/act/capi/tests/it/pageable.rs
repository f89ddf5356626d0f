//! Copies between pageable memory and GPUs: every byte, in order, and plainly where threads cannot copy.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pathline::{CopyNode, CopyStatus, NodeOptions};
use pathline_stub::StubLibraries;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::runtime::{TestRuntime, in_separate_process};

/// Copies of at least 64 KiB are made by threads, whatever they gain: times of the stand-in mean nothing.
fn forced() -> NodeOptions {
    let (threshold, probe_bytes) = (64 << 10, 1 << 20);
    NodeOptions {
        threshold,
        min_gain: 1e-6,
        probe_bytes,
        copy_threads: Some(3),
        ..NodeOptions::default()
    }
}

fn bytes_of(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(seed | 1) >> 7) as u8).collect()
}

/// Copies to a GPU and back, and compares.
fn round_trip(node: &CopyNode, device: u64, bytes: &[u8], stream: Option<usize>) {
    let mut back = vec![0_u8; bytes.len()];
    let (src, dst) = (bytes.as_ptr() as u64, back.as_mut_ptr() as u64);
    // SAFETY: live memory and a live stream. A copy to pageable memory has ended when the call returns.
    unsafe {
        match stream {
            Some(stream) => {
                node.copy_async(device, src, bytes.len(), stream).unwrap();
                node.copy_async(dst, device, bytes.len(), stream).unwrap();
            }
            None => {
                node.copy(device, src, bytes.len()).unwrap();
                node.copy(dst, device, bytes.len()).unwrap();
            }
        }
    }
    assert!(bytes == back, "{} bytes", bytes.len());
}

#[test]
fn pageable_memory_arrives_by_several_threads_over_cuda() {
    let test = "pageable::pageable_memory_arrives_by_several_threads_over_cuda";
    if in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=512MiB") {
        pageable_memory_arrives(&TestRuntime::open("cuda"));
    }
}

#[test]
fn pageable_memory_arrives_by_several_threads_over_hip() {
    let test = "pageable::pageable_memory_arrives_by_several_threads_over_hip";
    if in_separate_process(test, StubLibraries::Hip(6), "gpus=2,memory=512MiB") {
        pageable_memory_arrives(&TestRuntime::open("hip"));
    }
}

fn pageable_memory_arrives(cuda: &TestRuntime) {
    let node = cuda.node(forced());
    let (stream, device) = (cuda.stream(), cuda.device(32 << 20));
    let bytes = bytes_of((9 << 20) + 13, 3);
    round_trip(&node, device, &bytes, None);
    round_trip(&node, device + 5, &bytes[3..], Some(stream));
    // The second destination of the same bytes, one of them on the other GPU.
    cuda.enter(1);
    let other = cuda.device(9 << 20);
    cuda.enter(0);
    // SAFETY: live memory.
    unsafe {
        node.copy_to_all(&[(0, device), (1, other)], bytes.as_ptr() as u64, 8 << 20, None).unwrap();
    }
    assert!(cuda.read(device, 8 << 20) == bytes[..8 << 20]);
    assert!(cuda.read(other, 8 << 20) == bytes[..8 << 20]);
    let two = [(device, 0, 1 << 20), (device + (16 << 20), 2 << 20, 3 << 20)];
    let batch = two.map(|(dst, at, len)| (dst, bytes[at..].as_ptr() as u64, len));
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_batch_async(&batch, stream).unwrap() };
    assert_eq!(cuda.wait(stream), 0);
    for (dst, at, len) in two {
        assert!(cuda.read(dst, len) == bytes[at..at + len]);
    }
    let counters = node.counters();
    // Two round trips, two replicas, two ranges.
    assert_eq!((counters.staged, counters.plain, counters.multipath), (8, 0, 0), "{counters:?}");
    let moved = 2 * (bytes.len() * 2 - 3) + (16 << 20) + (4 << 20);
    assert_eq!(counters.staged_bytes, moved as u64);
    let plan = node.explain(device, bytes.as_ptr() as u64, bytes.len()).unwrap();
    assert!(plan.contains(".paged > r0.gpu0.vram by dma@gpu0 x "), "{plan}");
    assert!(plan.contains(" threads through page-locked memory, plain "), "{plan}");
}

#[test]
fn a_copy_of_pageable_memory_keeps_its_place_in_the_stream() {
    let test = "pageable::a_copy_of_pageable_memory_keeps_its_place_in_the_stream";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=1,memory=512MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let (stream, len) = (cuda.stream(), 4 << 20);
    let (first, second) = (cuda.pinned(len, 1), bytes_of(len, 5));
    let (device, other) = (cuda.device(len), cuda.device(len));
    round_trip(&node, device, &second, None);
    let word = cuda.pinned(4096, 0);
    word.fill(0);
    // The stream is held, then stores the first bytes; ours follow, and are copied on.
    cuda.hold(stream, word.as_ptr() as u64, 1);
    cuda.enqueue(device, first.as_ptr() as u64, len, stream);
    // SAFETY: an aligned word that only waits read.
    let word = unsafe { AtomicU32::from_ptr(word.as_mut_ptr().cast()) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::park_timeout(Duration::from_millis(50));
            word.store(1, Ordering::Release);
        });
        // SAFETY: live memory and a live stream.
        unsafe { node.copy_async(device, second.as_ptr() as u64, len, stream).unwrap() };
        assert_eq!(word.load(Ordering::Acquire), 1, "the call waits for its stream");
    });
    cuda.enqueue(other, device, len, stream);
    assert_eq!(cuda.wait(stream), 0);
    assert!(cuda.read(other, len) == second);
    assert_eq!(node.counters().staged, 3);
}

#[test]
fn pageable_memory_is_copied_plainly_where_threads_cannot() {
    let test = "pageable::pageable_memory_is_copied_plainly_where_threads_cannot";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=1,memory=256MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let (stream, device, bytes) = (cuda.stream(), cuda.device(4 << 20), bytes_of(3 << 20, 9));
    let host = bytes.as_ptr() as u64;
    // No thread is wished.
    let node = cuda.node(NodeOptions { copy_threads: Some(0), ..forced() });
    round_trip(&node, device, &bytes, Some(stream));
    assert_eq!((node.counters().staged, node.counters().plain), (0, 2));
    let plan = node.explain(device, host, bytes.len()).unwrap();
    assert!(plan.ends_with("plain: pageable memory, and copy_threads allows no thread"), "{plan}");
    // Nothing can be page-locked.
    cuda.inject("fail=cuMemHostRegister@1+:2");
    let node = cuda.node(forced());
    round_trip(&node, device, &bytes, Some(stream));
    assert_eq!((node.counters().staged, node.counters().plain), (0, 2));
    let plan = node.explain(device, host, bytes.len()).unwrap();
    assert!(plan.contains("the probe failed: no thread copies"), "{plan}");
    // A range that is not there: the runtime's answer.
    cuda.inject("");
    let node = cuda.node(forced());
    // SAFETY: nothing is at these addresses, and nothing is copied.
    let refused = unsafe { node.copy(device, 64 << 10, 1 << 20) };
    assert!(refused.is_err());
}

#[test]
fn a_call_that_fails_on_the_way_costs_no_byte() {
    let test = "pageable::a_call_that_fails_on_the_way_costs_no_byte";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=1,memory=256MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let (device, bytes) = (cuda.device(8 << 20), bytes_of((7 << 20) + 1, 11));
    round_trip(&node, device, &bytes, None);
    let calls = ["cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize"];
    let mut back = vec![0_u8; bytes.len()];
    let (host, into, len) = (bytes.as_ptr() as u64, back.as_mut_ptr() as u64, bytes.len());
    for (nth, call) in calls.into_iter().cycle().take(30).enumerate() {
        // 7 MiB in three threads' chunks of 600 KiB: a dozen calls each way. The first event is that of the default
        // stream, without which no copy of the runtime begins either.
        let fault = format!("fail={call}@{}:1", 2 + nth / 3 * 2);
        for (dst, src) in [(device, host), (into, device)] {
            cuda.inject(&fault);
            // SAFETY: live memory.
            unsafe { node.copy(dst, src, len).unwrap() };
            cuda.inject("");
        }
        // SAFETY: memory of this test, which the copies have written.
        let back = unsafe { std::slice::from_raw_parts_mut(into as *mut u8, len) };
        assert!(*bytes == *back, "{fault}");
        back.fill(0);
    }
    let counters = node.counters();
    assert!(counters.fallbacks >= 10 && counters.staged >= 20, "{counters:?}");
}

#[test]
fn copies_of_many_threads_keep_every_byte() {
    let test = "pageable::copies_of_many_threads_keep_every_byte";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=512MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    const ROOM: usize = 6 << 20;
    let places: Vec<(u64, usize)> = (0..4_u64)
        .map(|nth| {
            cuda.enter(nth % 2);
            (cuda.device(ROOM + 64), cuda.stream())
        })
        .collect();
    cuda.enter(0);
    let mut runner = TestRunner::new(Config { cases: 20, ..Config::default() });
    let copies = prop::collection::vec((1..ROOM, 0..64_usize, any::<u64>(), any::<bool>()), 4);
    runner
        .run(&copies, |copies| {
            std::thread::scope(|scope| {
                for ((len, shift, seed, in_stream), &(device, stream)) in
                    copies.into_iter().zip(&places)
                {
                    let node = &node;
                    scope.spawn(move || {
                        // The context of a GPU, without which the driver knows no address.
                        TestRuntime::open("cuda");
                        let bytes = bytes_of(len + shift, seed);
                        let stream = in_stream.then_some(stream);
                        round_trip(node, device + shift as u64, &bytes[shift..], stream);
                    });
                }
            });
            Ok(())
        })
        .unwrap();
    assert!(node.counters().staged > 100, "{:?}", node.counters());
}

/// A file of some bytes, open for reading.
fn file_of(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn ranges_of_files_reach_a_gpu() {
    let test = "pageable::ranges_of_files_reach_a_gpu";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=1,memory=512MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let (stream, device) = (cuda.stream(), cuda.device(20 << 20));
    let bytes = bytes_of((17 << 20) + 77, 13);
    let file = file_of(&bytes);
    for threads in [3, 0] {
        let node = cuda.node(NodeOptions { copy_threads: Some(threads), ..forced() });
        let ranges = [
            (0, bytes.len(), None),
            (4099, 9 << 20, None),
            (77, 1, Some(stream)),
            ((16 << 20) + 5, (1 << 20) + 72, Some(stream)),
            (bytes.len(), 0, None),
        ];
        for (nth, (from, len, order)) in ranges.into_iter().enumerate() {
            // Every second one is read past the cache.
            // SAFETY: an open file, live memory and a live stream.
            unsafe {
                let advice = libc::POSIX_FADV_DONTNEED * libc::c_int::from(nth % 2 == 0);
                file.sync_all().unwrap();
                libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice);
                node.load((file.as_raw_fd(), from as u64), device + 3, len, order).unwrap();
            }
            assert_eq!(cuda.wait(stream), 0);
            assert!(cuda.read(device + 3, len) == bytes[from..from + len], "{from} {len}");
        }
        let text = |file: i32, from: u64, len: usize, dst: u64| {
            // SAFETY: nothing is copied.
            unsafe { node.load((file, from), dst, len, None) }.unwrap_err().text
        };
        let fd = file.as_raw_fd();
        assert_eq!(
            text(fd, 1, bytes.len(), device),
            format!("the file has {} bytes, and {0} from offset 1 on are asked for", bytes.len())
        );
        assert!(text(fd, u64::MAX, 2, device).contains("are asked for"));
        assert!(text(fd, 0, 64, bytes.as_ptr() as u64).ends_with("are no memory of one GPU"));
        assert!(text(-1, 0, 64, device).contains("Bad file descriptor"));
        let folder = std::fs::File::open("/").unwrap();
        assert!(text(folder.as_raw_fd(), 0, 64, device).ends_with("is no file"));
        // A file of the kernel has no bytes that it states.
        let other = std::fs::File::open("/proc/self/mem").unwrap();
        assert!(text(other.as_raw_fd(), 0, 64, device).contains("the file has 0 bytes"));
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_and_a_refused_copy_is_not() {
    let test = "pageable::a_file_that_shrinks_is_an_error_and_a_refused_copy_is_not";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=1,memory=512MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let (stream, device) = (cuda.stream(), cuda.device(64 << 20));
    let bytes = bytes_of(60 << 20, 15);
    let file = file_of(&bytes);
    let node = cuda.node(forced());
    let load = |stream| {
        // SAFETY: an open file, live memory and a live stream.
        unsafe { node.load((file.as_raw_fd(), 0), device, bytes.len(), stream) }
    };
    load(None).unwrap();
    // The plain copy follows.
    for call in ["cuMemcpyAsync", "cuEventRecord"] {
        cuda.inject(&format!("fail={call}@3:1"));
        load(None).unwrap();
        assert!(cuda.read(device, bytes.len()) == bytes, "{call}");
    }
    cuda.inject("");
    let word = cuda.pinned(4096, 0);
    word.fill(0);
    cuda.hold(stream, word.as_ptr() as u64, 1);
    // SAFETY: an aligned word that only waits read.
    let word = unsafe { AtomicU32::from_ptr(word.as_mut_ptr().cast()) };
    std::thread::scope(|scope| {
        // While the call waits for its stream, the file becomes shorter.
        scope.spawn(|| {
            std::thread::park_timeout(Duration::from_millis(50));
            file.set_len(20 << 20).unwrap();
            word.store(1, Ordering::Release);
        });
        let error = load(Some(stream)).unwrap_err();
        assert_eq!(error.status, CopyStatus::File);
        assert!(error.text.starts_with("the file at offset "), "{error:?}");
        assert!(error.text.ends_with("it ends there, and was longer before"), "{error:?}");
    });
}
