//! Copies over the stand-in for CUDA: every byte, in order, and plainly where they must be.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pathline::abi::{
    pl_close, pl_copy_batch_async, pl_copy_to_all, pl_counters, pl_host_alloc, pl_open, pl_options,
    pl_place, pl_stats,
};
use pathline::{CopyCounters, CopyError, CopyNode, CopyStatus, NodeOptions, SharedHelpers};
use pathline_stub::StubLibraries;

use crate::runtime::{TestRuntime, in_separate_process, last_error, number};
use crate::twin;

/// Copies of at least 1 MiB go over relays, whatever they gain: times of the stand-in mean nothing.
fn forced() -> NodeOptions {
    let (threshold, probe_bytes) = (1 << 20, 4 << 20);
    NodeOptions { threshold, min_gain: 1e-6, probe_bytes, ..NodeOptions::default() }
}

#[test]
fn every_byte_arrives_in_both_directions() {
    let test = "copies::every_byte_arrives_in_both_directions";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=3,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    // Copies in the order of a stream leave out helpers that others use.
    for (shared_helpers, plain) in [(SharedHelpers::Never, 0), (SharedHelpers::Always, 2)] {
        let node = cuda.node(NodeOptions { shared_helpers, ..forced() });
        copy_in_both_directions(&cuda, &node, plain);
    }
}

fn copy_in_both_directions(cuda: &TestRuntime, node: &CopyNode, plain: u64) {
    let (stream, bytes) = (cuda.stream(), (9 << 20) + 13);
    let (src, device, back) = (cuda.pinned(bytes, 1), cuda.device(bytes), cuda.pinned(bytes, 2));
    // New ends are not probed while copies run.
    node.explain(device, src.as_ptr() as u64, bytes).unwrap();
    node.explain(back.as_ptr() as u64, device, bytes).unwrap();
    // SAFETY: live memory and a live stream.
    unsafe {
        node.copy_async(device, src.as_ptr() as u64, bytes, stream).unwrap();
        node.copy_async(back.as_mut_ptr() as u64, device, bytes, stream).unwrap();
    }
    assert_eq!(cuda.wait(stream), 0);
    assert!(src == back);
    // SAFETY: the same.
    unsafe {
        back.fill(0);
        node.copy(device, src.as_ptr() as u64, bytes).unwrap();
        node.copy(back.as_mut_ptr() as u64, device, bytes).unwrap();
    }
    assert!(src == back);
    let counters = node.counters();
    assert_eq!((counters.multipath, counters.plain), (4 - plain, plain), "{counters:?}");
    assert_eq!(counters.multipath_bytes, (4 - plain) * bytes as u64);
    assert!(counters.relayed_bytes > 0, "{counters:?}");
    if plain > 0 {
        return;
    }
    let plan = node.explain(device, src.as_ptr() as u64, bytes).unwrap();
    assert!(plan.contains(".pinned > r0.gpu0.vram by relay@gpu0[gpu1"), "{plan}");
    assert!(plan.contains("predicted ") && plan.contains(" GB/s, plain "), "{plan}");
    // How many relays a copy that waits takes depends on the time that its order takes to the worker here.
    assert!(
        plan.contains("\na call that waits: predicted ") && plan.contains(" over gpu1"),
        "{plan}"
    );
}

#[test]
fn a_copy_waits_for_its_stream_and_the_stream_for_it() {
    let test = "copies::a_copy_waits_for_its_stream_and_the_stream_for_it";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let (stream, bytes) = (cuda.stream(), 4 << 20);
    let (first, second) = (cuda.pinned(bytes, 1), cuda.pinned(bytes, 2));
    let (device, back) = (cuda.device(bytes), cuda.pinned(bytes, 3));
    let word = cuda.pinned(4096, 0);
    word.fill(0);
    cuda.copy(device, first.as_ptr() as u64, bytes);
    // The probe frees memory, and this stand-in then waits for all streams.
    node.explain(device, first.as_ptr() as u64, bytes).unwrap();
    node.explain(back.as_ptr() as u64, device, bytes).unwrap();
    // The stream is held; after that it reads what the copy has written.
    cuda.hold(stream, word.as_ptr() as u64, 1);
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_async(device, second.as_ptr() as u64, bytes, stream).unwrap() };
    std::thread::park_timeout(std::time::Duration::from_millis(50));
    assert!(!cuda.is_idle(stream));
    assert!(cuda.read(device, bytes) == *first, "the copy began before its stream");
    // SAFETY: an aligned word that only waits read.
    let word = unsafe { AtomicU32::from_ptr(word.as_mut_ptr().cast()) };
    word.store(1, Ordering::Release);
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_async(back.as_mut_ptr() as u64, device, bytes, stream).unwrap() };
    assert_eq!(cuda.wait(stream), 0);
    assert!(back == second);
    assert_eq!(node.counters().multipath, 2);
}

#[test]
fn what_is_unusual_is_copied_plainly() {
    let test = "copies::what_is_unusual_is_copied_plainly";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let bytes = 2 << 20;
    let (src, device) = (cuda.pinned(bytes, 1), cuda.device(bytes));
    let managed = cuda.managed(bytes);
    let stream = cuda.stream();
    let mut plain = 0;
    let mut copy = |src: u64, dst: u64, stream: usize, why: &str| {
        // SAFETY: live memory and a live stream.
        unsafe { node.copy_async(dst, src, bytes, stream).unwrap() };
        assert_eq!(cuda.wait(stream), 0);
        plain += 1;
        let counters = node.counters();
        assert_eq!((counters.plain, counters.multipath), (plain, 0), "{why}");
    };
    let host = src.as_ptr() as u64;
    copy(host, managed, stream, "managed memory");
    let second = cuda.device(bytes);
    copy(device, second, stream, "both ends on one GPU");
    // SAFETY: live memory.
    unsafe { node.copy_async(device, host, 4096, stream).unwrap() };
    assert_eq!(node.counters().plain, plain, "below the threshold nothing is counted");
    // This stand-in records no copies: its answer to the plain copy is the caller's.
    cuda.capture(stream);
    // SAFETY: live memory and a live stream.
    let refused = unsafe { node.copy_async(device, host, bytes, stream) }.unwrap_err();
    assert_eq!(refused.status, CopyStatus::Runtime);
    assert!(refused.text.contains("(900)"), "{refused:?}");
    let no_helper = NodeOptions { helpers: Some(Vec::new()), ..forced() };
    let node = cuda.node(no_helper);
    let stream = cuda.stream();
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_async(device, host, bytes, stream).unwrap() };
    assert_eq!(node.counters().plain, 1);
    let plan = node.explain(device, host, bytes).unwrap();
    assert!(plan.contains("plain: no helper takes part"), "{plan}");
}

/// Copies go over several paths from a stream of any GPU and from default streams, in order: each brings new bytes to
/// the same memory and back.
#[test]
fn every_stream_keeps_its_order() {
    let test = "copies::every_stream_keeps_its_order";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let bytes = 4 << 20;
    let own = cuda.stream();
    cuda.enter(1);
    let of_other = cuda.stream();
    cuda.enter(0);
    let (device, back) = (cuda.device(bytes), cuda.pinned(bytes, 9));
    node.explain(device, back.as_ptr() as u64, bytes).unwrap();
    node.explain(back.as_ptr() as u64, device, bytes).unwrap();
    let mut copies = 0;
    for (nth, stream) in (0..).zip([own, of_other, 0, 1, 2]) {
        let src = cuda.pinned(bytes, nth + 1);
        // SAFETY: live memory and a live stream.
        unsafe {
            node.copy_async(device, src.as_ptr() as u64, bytes, stream).unwrap();
            node.copy_async(back.as_ptr() as u64, device, bytes, stream).unwrap();
        }
        assert_eq!(cuda.wait(stream), 0);
        assert!(src == back, "stream {stream:#x}");
        copies += 2;
        let counters = node.counters();
        assert_eq!((counters.plain, counters.multipath), (0, copies), "{counters:?}");
    }
}

/// A stream waits for what the caller does after a copy of another stream has ended: that copy must not wait for the
/// first stream's.
#[test]
fn a_stream_that_waits_for_the_caller_holds_no_other_one() {
    let test = "copies::a_stream_that_waits_for_the_caller_holds_no_other_one";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let (held, free, bytes) = (cuda.stream(), cuda.stream(), 4 << 20);
    let (first, second) = (cuda.pinned(bytes, 1), cuda.pinned(bytes, 2));
    let (late, early) = (cuda.device(bytes), cuda.device(bytes));
    let word = cuda.pinned(4096, 0);
    word.fill(0);
    node.explain(late, first.as_ptr() as u64, bytes).unwrap();
    cuda.hold(held, word.as_ptr() as u64, 1);
    let copy = |device: u64, src: &[u8], stream: usize| {
        // SAFETY: live memory and a live stream.
        unsafe { node.copy_async(device, src.as_ptr() as u64, bytes, stream).unwrap() };
    };
    copy(late, second, held);
    // Of the same stream: it waits for the one before.
    copy(late, first, held);
    copy(early, second, free);
    assert_eq!(cuda.wait(free), 0);
    assert!(cuda.read(early, bytes) == *second);
    assert!(!cuda.is_idle(held));
    let counters = node.counters();
    assert_eq!((counters.plain, counters.multipath), (1, 2), "{counters:?}");
    // SAFETY: an aligned word that only waits read.
    unsafe { AtomicU32::from_ptr(word.as_mut_ptr().cast()) }.store(1, Ordering::Release);
    assert_eq!(cuda.wait(held), 0);
    assert!(cuda.read(late, bytes) == *first);
    copy(early, first, free);
    assert_eq!(cuda.wait(free), 0);
    assert_eq!(node.counters().multipath, 3);
}

#[test]
fn batches_and_copies_to_all_arrive() {
    let test = "copies::batches_and_copies_to_all_arrive";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=3,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let (stream, bytes) = (cuda.stream(), 8 << 20);
    let (src, device) = (cuda.pinned(bytes, 5), cuda.device(bytes));
    let host = src.as_ptr() as u64;
    // Two halves that continue each other, apart from a gap of 4 KiB that a third copy fills.
    let (half, gap) = (bytes / 2, 4096);
    let at = |offset: usize, length: usize| (device + offset as u64, host + offset as u64, length);
    let copies =
        [at(0, half), at(half, 1000), at(half + gap, half - gap), at(half + 1000, gap - 1000)];
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_batch_async(&copies, stream).unwrap() };
    assert_eq!(cuda.wait(stream), 0);
    assert!(cuda.read(device, bytes) == *src);
    assert_eq!(node.counters().multipath, 2);

    let mut dst = Vec::new();
    let mut streams = Vec::new();
    for gpu in 0..3 {
        cuda.enter(gpu);
        dst.push((number(gpu as i32), cuda.device(bytes)));
        streams.push(cuda.stream());
    }
    // SAFETY: live memory and live streams.
    unsafe { node.copy_to_all(&dst, host, bytes, Some(&streams)).unwrap() };
    for (nth, &(_, device)) in dst.iter().enumerate() {
        assert_eq!(cuda.wait(streams[nth]), 0);
        assert!(cuda.read(device, bytes) == *src, "GPU {nth}");
    }
    assert_eq!(node.counters().multipath, 3);
    // SAFETY: live memory.
    let wrong = unsafe { node.copy_to_all(&[(0, dst[1].1), (1, dst[0].1)], host, bytes, None) };
    assert!(wrong.unwrap_err().text.contains("is no memory of GPU 0"));
    // SAFETY: live memory.
    let twice = unsafe { node.copy_to_all(&[dst[0], dst[0]], host, bytes, None) };
    assert!(twice.unwrap_err().text.contains("two destinations overlap"));
    let small = cuda.node(NodeOptions { threshold: bytes + 1, ..forced() });
    // SAFETY: live memory and live streams.
    unsafe { small.copy_to_all(&dst, host, bytes, Some(&streams)).unwrap() };
    assert_eq!(small.counters().multipath, 0);
}

/// A copy that waits comes after work of the default stream of each destination: that work brings the bytes which are
/// copied, and is released only after the call has begun.
#[test]
fn copies_that_wait_come_after_default_streams() {
    let test = "copies::copies_that_wait_come_after_default_streams";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let bytes = 4 << 20;
    let word = cuda.pinned(4096, 0);
    word.fill(0);
    let dst: Vec<_> = (0..2)
        .map(|gpu| {
            cuda.enter(gpu);
            (number(gpu as i32), cuda.device(bytes))
        })
        .collect();
    for (round, gpu) in (1..).zip([0, 1, 0, 1]) {
        let (src, new) = (cuda.pinned(bytes, 5), cuda.pinned(bytes, 20 + round as u8));
        let host = src.as_ptr() as u64;
        node.explain(dst[0].1, host, bytes).unwrap();
        cuda.enter(gpu);
        cuda.hold(0, word.as_ptr() as u64, round);
        cuda.enqueue(host, new.as_ptr() as u64, bytes, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::park_timeout(Duration::from_millis(50));
                // SAFETY: an aligned word that only waits read.
                let word = unsafe { AtomicU32::from_ptr(word.as_ptr().cast_mut().cast()) };
                word.store(round as u32, Ordering::Release);
            });
            let (one, waited) = (dst[gpu as usize].1, round < 3);
            // SAFETY: live memory.
            let to_all = || unsafe { node.copy_to_all(&dst, host, bytes, None) };
            // SAFETY: live memory.
            let to_one = || unsafe { node.copy(one, host, bytes) };
            if waited { to_all().unwrap() } else { to_one().unwrap() }
        });
        let arrived = |&(_, at): &(i32, u64)| cuda.read(at, bytes) == *new;
        assert!(
            if round < 3 { dst.iter().all(arrived) } else { arrived(&dst[gpu as usize]) },
            "round {round}"
        );
        assert_eq!(node.counters().multipath, round);
    }
}

#[test]
fn failures_end_as_plain_copies_or_as_errors() {
    let test = "copies::failures_end_as_plain_copies_or_as_errors";
    // No GPU can address another: every relay fails at its start, and the direct path goes on.
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB,nopeer") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let (stream, bytes) = (cuda.stream(), 4 << 20);
    let (src, device) = (cuda.pinned(bytes, 5), cuda.device(bytes));
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_async(device, src.as_ptr() as u64, bytes, stream).unwrap() };
    assert_eq!(cuda.wait(stream), 0);
    assert!(cuda.read(device, bytes) == *src);
    assert_eq!(node.counters().plain, 1);
    let text = |dst: u64, src: u64, bytes: usize| {
        // SAFETY: the ranges are refused before anything is copied.
        let refused = unsafe { node.copy(dst, src, bytes) }.unwrap_err();
        assert_eq!(refused.status, CopyStatus::Invalid, "{refused:?}");
        refused.text
    };
    let host = src.as_ptr() as u64;
    assert!(text(0, host, bytes).contains("null pointer"));
    assert!(text(device, 0, bytes).contains("null pointer"));
    assert!(text(device, device + 5, bytes).contains("overlap"));
    // A tebibyte reaches from either end to the other.
    assert!(text(device, host, 1 << 40).contains("overlap"));
    // The blocks may be next to each other.
    let beyond = text(device, host, bytes + 4096);
    assert!(beyond.contains("end beyond that GPU memory") || beyond.contains("overlap"));
    // SAFETY: nothing is copied.
    unsafe { node.copy(0, 0, 0).unwrap() };
}

/// Copies 4 MiB until a condition holds, in at most 250 copies; each in the order of a stream. On a machine at
/// work most of them may go the plain way. Says whether it held.
fn copy_until(
    cuda: &TestRuntime,
    node: &CopyNode,
    is_met: impl Fn(&CopyCounters) -> bool,
) -> Result<bool, CopyError> {
    let (stream, bytes) = (cuda.stream(), 4 << 20);
    let (device, out, src) = (cuda.device(bytes), cuda.pinned(bytes, 0), cuda.pinned(bytes, 0));
    for nth in 1..=250 {
        src.fill(nth);
        // SAFETY: live memory and a live stream.
        unsafe { node.copy_async(device, src.as_ptr() as u64, bytes, stream)? };
        assert_eq!(cuda.wait(stream), 0, "the stream goes on");
        // SAFETY: the same.
        unsafe { node.copy(out.as_mut_ptr() as u64, device, bytes)? };
        assert!(src == out, "copy {nth}");
        if is_met(&node.counters()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn a_copy_that_fails_on_the_way_is_made_again() {
    let test = "copies::a_copy_that_fails_on_the_way_is_made_again";
    // Past the probes, one call of 28 in the mean: the plain copy that follows a refusal is not refused. The
    // gaps differ, else copies of as many calls would have the same one refused each time.
    let faults = (0..500).map(|k| format!(",fail=cuMemcpyAsync@{}:1", 300 + k * 28 + k * k % 23));
    let stub = format!("gpus=2,memory=1GiB{}", faults.collect::<String>());
    if !in_separate_process(test, StubLibraries::Cuda, &stub) {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    // Refusals of the direct path make the copy plain, those of a relay lose the relay.
    let met = |c: &CopyCounters| c.fallbacks > 0 && c.lost > 0;
    // By a probe, a busy machine may leave the relay out of all plans.
    let folder = tempfile::tempdir().unwrap();
    let node = cuda.node(twin::options(twin::machine_file(folder.path(), "[0, 1]", "stub ")));
    assert!(copy_until(&cuda, &node, met).unwrap(), "{:?}", node.counters());
}

#[test]
fn a_copy_that_fails_plainly_too_is_an_error() {
    let test = "copies::a_copy_that_fails_plainly_too_is_an_error";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,fail=cuMemcpyAsync@150+:1") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let refused = copy_until(&cuda, &node, |_| false).unwrap_err();
    assert_eq!(refused.status, CopyStatus::Runtime);
    assert!(refused.text.contains("cuMemcpyAsync"), "{refused:?}");
    // The next copy is another call.
    let (host, device) = (cuda.pinned(64, 1), cuda.device(64));
    // SAFETY: live memory.
    unsafe { node.copy(device, host.as_ptr() as u64, 64).unwrap() };
}

#[test]
fn memory_of_the_library_is_pinned() {
    let test = "copies::memory_of_the_library_is_pinned";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=2,memory=1GiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let node = cuda.node(forced());
    let bytes = 3 << 20;
    let (own, device) = (node.host_alloc(bytes, None).unwrap(), cuda.device(bytes));
    // SAFETY: memory of that size.
    unsafe { std::slice::from_raw_parts_mut(own as *mut u8, bytes) }.fill(9);
    // SAFETY: live memory.
    unsafe { node.copy(device, own, bytes).unwrap() };
    assert!(cuda.read(device, bytes) == vec![9; bytes]);
    assert_eq!(node.counters().multipath, 1, "{:?}", node.explain(device, own, bytes));
    node.host_free(own).unwrap();
    assert!(node.host_free(own).unwrap_err().text.contains("no memory of this node"));
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"region".as_ptr(), 0) };
    let refused = node.host_attach(file, bytes).unwrap_err();
    assert_eq!(refused.status, CopyStatus::Invalid);
    // SAFETY: an open file.
    assert_eq!(unsafe { libc::ftruncate(file, bytes as i64) }, 0);
    // It may shrink: a memfd that takes no seal, then one that has none yet.
    let refusal = node.host_attach(file, bytes).unwrap_err();
    assert!(refusal.text.contains("F_SEAL_SHRINK"), "{refusal:?}");
    // SAFETY: the name is a C string, and the file is open.
    let sealed = unsafe { libc::memfd_create(c"region".as_ptr(), libc::MFD_ALLOW_SEALING) };
    // SAFETY: an open file.
    assert_eq!(unsafe { libc::ftruncate(sealed, bytes as i64) }, 0);
    assert_eq!(node.host_attach(sealed, bytes).unwrap_err().status, CopyStatus::Invalid);
    // SAFETY: an open file.
    assert_eq!(unsafe { libc::fcntl(sealed, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
    let shared = node.host_attach(sealed, bytes).unwrap();
    // SAFETY: an open file.
    assert_ne!(unsafe { libc::ftruncate(sealed, 4096) }, 0, "the kernel refuses to cut it");
    // SAFETY: live memory.
    unsafe { node.copy(shared, device, bytes).unwrap() };
    // SAFETY: memory of that size.
    assert!(unsafe { std::slice::from_raw_parts(shared as *const u8, bytes) } == vec![9; bytes]);
    assert!(node.host_alloc(4096, Some(999)).unwrap_err().text.contains("no NUMA domain 999"));
    assert_eq!(node.host_alloc(0, None).unwrap_err().status, CopyStatus::Invalid);
}

#[test]
fn bad_arguments_of_the_c_interface_are_errors_with_texts() {
    let mut node = std::ptr::null_mut();
    let mut options = pl_options {
        size: 3,
        helpers: std::ptr::null(),
        helper_count: 0,
        threshold: 0,
        staging: 0,
        min_gain: 0.0,
        library: std::ptr::null(),
        twin: std::ptr::null(),
        shared_helpers: 0,
        copy_threads: 0,
        max_multiprocessors: 0,
        reserved: 0,
    };
    // SAFETY: live structures, or null where the library checks.
    unsafe {
        assert_eq!(pl_open(&raw const options, &raw mut node), CopyStatus::Invalid);
        assert!(last_error().contains("pl_options has 3 bytes"), "{}", last_error());
        options.library = c"cuda=/nowhere".as_ptr();
        options.max_multiprocessors = -2;
        // An earlier version of the structure ends before that member.
        options.size = size_of::<pl_options>();
        assert_eq!(pl_open(&raw const options, &raw mut node), CopyStatus::Invalid);
        options.size = std::mem::offset_of!(pl_options, max_multiprocessors);
        assert_eq!(pl_open(&raw const options, &raw mut node), CopyStatus::Unavailable);
        assert!(last_error().contains("No such file"), "{}", last_error());
        options.library = c"nowhere".as_ptr();
        assert_eq!(pl_open(&raw const options, &raw mut node), CopyStatus::Invalid);
        assert_eq!(pl_open(std::ptr::null(), std::ptr::null_mut()), CopyStatus::Invalid);
        assert!(node.is_null());
        let mut counters = pl_counters { size: size_of::<pl_counters>(), ..Default::default() };
        assert_eq!(pl_stats(node, &raw mut counters), CopyStatus::Invalid);
        assert_eq!(last_error(), "the node is a null pointer");
        pl_close(node);
    }
}

#[test]
fn misaligned_arguments_of_the_c_interface_are_errors() {
    // Every second byte of a word is misaligned for structures and lists of pointers.
    let words = [0u64; 64];
    let odd = words.as_ptr().cast::<u8>().wrapping_add(1);
    let mut node = std::ptr::null_mut();
    let refused = |status: CopyStatus, thing: &str| {
        assert_eq!(status, CopyStatus::Invalid, "{thing}");
        assert!(last_error().contains(thing), "{thing}: {}", last_error());
    };
    let null = std::ptr::null_mut();
    // SAFETY: nothing is read or written at misaligned addresses, and no node is open.
    unsafe {
        refused(pl_open(odd.cast(), &raw mut node), "options is misaligned");
        refused(pl_open(std::ptr::null(), odd.cast_mut().cast()), "the place of the node");
        let list = words.as_ptr();
        let batch = |dst: *const u8, src: *const u8, n: *const u8, count| {
            pl_copy_batch_async(null, dst.cast(), src.cast(), n.cast(), count, null.cast())
        };
        let good = list.cast::<u8>();
        refused(batch(odd, good, good, 2), "dst is null or misaligned");
        refused(batch(good, odd, good, 2), "src is null or misaligned");
        refused(batch(good, good, odd, 2), "n is null or misaligned");
        // 2^40 lists are taken for garbage before anything is read.
        refused(batch(good, good, good, 1 << 40), "dst has 1099511627776 elements");
        let to_all = |gpu: *const u8, dst: *const u8, streams: *const u8| {
            pl_copy_to_all(null, 2, gpu.cast(), dst.cast(), good.cast(), 1, streams.cast())
        };
        refused(to_all(odd, good, good), "gpu is null or misaligned");
        refused(to_all(good, odd, good), "dst is null or misaligned");
        refused(to_all(good, good, odd), "streams is null or misaligned");
        refused(pl_host_alloc(null, 1, pl_place { numa: 0 }, odd.cast_mut().cast()), "the address");
        refused(pl_stats(null, odd.cast_mut().cast()), "counters is null or misaligned");
        assert!(node.is_null());
    }
}
