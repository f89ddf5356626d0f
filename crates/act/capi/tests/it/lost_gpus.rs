//! GPUs that fail, stall, have no memory or no peers: the plain copy or an error with a text, never a wrong byte.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pathline::{CopyNode, CopyStatus, NodeOptions};
use pathline_stub::StubLibraries;

use crate::runtime::{TestRuntime, in_separate_process};

const BYTES: usize = 4 << 20;

/// Copies of at least 1 MiB go over relays, whatever they gain.
fn forced() -> NodeOptions {
    let (threshold, probe_bytes) = (1 << 20, 1 << 20);
    NodeOptions { threshold, min_gain: 1e-6, probe_bytes, ..NodeOptions::default() }
}

/// Runs a test over one of the stand-ins, in a process of that.
fn over(name: &str, test: &str, check: fn(&TestRuntime)) {
    let libraries = if name == "hip" { StubLibraries::Hip(6) } else { StubLibraries::Cuda };
    if in_separate_process(&format!("lost_gpus::{test}"), libraries, "gpus=3,memory=256MiB") {
        check(&TestRuntime::open(name));
    }
}

/// The bytes at an address, whatever the state of its GPU: memory of the stand-in belongs to this process.
fn bytes_at(address: u64) -> &'static [u8] {
    // SAFETY: memory of that size that nothing writes any more.
    unsafe { std::slice::from_raw_parts(address as *const u8, BYTES) }
}

fn copy_async(node: &CopyNode, dst: u64, src: &[u8], stream: usize) -> Result<(), String> {
    // SAFETY: live memory and a live stream.
    unsafe { node.copy_async(dst, src.as_ptr() as u64, src.len(), stream) }.map_err(|e| e.text)
}

/// One call of a copy in a few fails and leaves a sticky error: on a relay, or on the GPU at the end.
fn lost_contexts(gpus: &TestRuntime) {
    let copy = gpus.name("cuMemcpyAsync", "hipMemcpyAsync");
    let (mut lost_relays, mut lost_ends) = (0, 0);
    for nth in 1..16 {
        gpus.restart("gpus=3,memory=256MiB");
        let node = gpus.node(forced());
        let (stream, device) = (gpus.stream(), gpus.device(BYTES));
        let src = gpus.pinned(BYTES, nth);
        node.explain(device, src.as_ptr() as u64, BYTES).unwrap();
        gpus.inject(&format!("fail={copy}@{nth}:700"));
        let copied = copy_async(&node, device, src, stream);
        let status = gpus.wait(stream);
        let counters = node.counters();
        if copied.is_ok() && status == 0 {
            assert!(bytes_at(device) == src, "call {nth}, {counters:?}");
            // The GPU at the end sees an error where it reads the relay: then the whole copy is made again.
            lost_relays += counters.lost + counters.fallbacks;
            continue;
        }
        lost_ends += 1;
        let text = match copied {
            Err(text) => text,
            // SAFETY: nothing is copied.
            Ok(()) => unsafe { node.copy(8, 16, 1) }.unwrap_err().text,
        };
        assert!(text.contains("700") || text.contains(copy), "{text}");
    }
    assert!(lost_relays > 0 && lost_ends > 0, "{lost_relays} relays, {lost_ends} ends");
}

#[test]
fn a_sticky_error_costs_no_byte_over_cuda() {
    over("cuda", "a_sticky_error_costs_no_byte_over_cuda", lost_contexts);
}

#[test]
fn a_sticky_error_costs_no_byte_over_hip() {
    over("hip", "a_sticky_error_costs_no_byte_over_hip", lost_contexts);
}

/// A relay whose own copies fill its engine gives its chunks back.
fn busy_relay(gpus: &TestRuntime) {
    gpus.restart("gpus=2,memory=512MiB");
    let node = gpus.node(forced());
    let (stream, device) = (gpus.stream(), gpus.device(BYTES));
    let (src, large) = (gpus.pinned(BYTES, 1), 64 << 20);
    gpus.enter(1);
    let (own, own_stream) = (gpus.device(large), gpus.stream());
    let own_src = gpus.pinned(large, 2).as_ptr() as u64;
    gpus.enter(0);
    node.explain(device, src.as_ptr() as u64, BYTES).unwrap();
    // 60 x 64 MiB at 55 GB/s: 73 ms, in which a fill of 1 MiB has stalled after 10. Equal bytes move once.
    (0..60).for_each(|_| gpus.enqueue(own, own_src, large, own_stream));
    // Enqueued, it arrives when the relay has time.
    copy_async(&node, device, src, stream).unwrap();
    assert_eq!(gpus.wait(stream), 0);
    assert!(bytes_at(device) == src);
    assert_eq!(gpus.wait(own_stream), 0);
    let src = gpus.pinned(BYTES, 3);
    (0..60).for_each(|_| gpus.enqueue(own, own_src, large, own_stream));
    // SAFETY: live memory.
    unsafe { node.copy(device, src.as_ptr() as u64, BYTES).unwrap() };
    assert!(bytes_at(device) == src);
    let counters = node.counters();
    assert!(counters.lost > 0 && counters.repeated > 0, "{counters:?}");
    assert_eq!(counters.multipath, 2, "{counters:?}");
    assert_eq!(gpus.wait(own_stream), 0);
}

// An MI250X of the stand-in shares its host link between streams, so that no relay stalls there.
#[test]
fn a_relay_that_stalls_gives_its_chunks_back() {
    over("cuda", "a_relay_that_stalls_gives_its_chunks_back", busy_relay);
}

/// Helpers that cannot take part are named with the reason, and others help.
fn helpers_that_cannot(gpus: &TestRuntime) {
    let copy = |spec: &str, fill: u64, options: NodeOptions| {
        gpus.restart(spec);
        gpus.enter(fill);
        if fill > 0 {
            // 64 MiB, of which staging memory needs 8.
            gpus.device(60 << 20);
        }
        gpus.enter(0);
        let node = gpus.node(options);
        let (stream, device) = (gpus.stream(), gpus.device(BYTES));
        let src = gpus.pinned(BYTES, 3);
        let plan = node.explain(device, src.as_ptr() as u64, BYTES).unwrap();
        copy_async(&node, device, src, stream).unwrap();
        assert_eq!(gpus.wait(stream), 0);
        assert!(bytes_at(device) == src, "{plan}");
        (plan, node.counters())
    };
    let (plan, counters) = copy("gpus=2,memory=64MiB", 1, forced());
    assert!(plan.contains("plain: no helper takes part: gpu1: "), "{plan}");
    assert!(plan.contains("out of memory"), "{plan}");
    assert_eq!((counters.plain, counters.multipath), (1, 0));
    // The second helper has room. By a probe on a busy machine no helper gains anything.
    let with_gpu2 = |(plan, _): &(String, _)| plan.contains("[gpu2,");
    let mut trials = (0..5).map(|_| copy("gpus=3,memory=64MiB", 1, forced()));
    let (_, counters) = trials.find(with_gpu2).expect("a plan with the second helper");
    assert_eq!((counters.plain, counters.multipath), (0, 1));
    let (plan, counters) = copy("gpus=3,memory=64MiB,nopeer", 0, forced());
    assert!(plan.contains("no helper takes part: gpu1: ") && plan.contains("; gpu2: "), "{plan}");
    assert!(plan.contains("stage this copy through the host"), "{plan}");
    assert_eq!((counters.plain, counters.multipath), (1, 0));
    // A process in a MIG instance sees one GPU.
    let (plan, counters) =
        copy("gpus=1,memory=64MiB", 0, NodeOptions { min_gain: 1.15, ..forced() });
    assert!(plan.contains("plain: "), "{plan}");
    assert_eq!((counters.plain, counters.multipath), (1, 0));
}

#[test]
fn helpers_that_cannot_take_part_are_named_over_cuda() {
    over("cuda", "helpers_that_cannot_take_part_are_named_over_cuda", helpers_that_cannot);
}

#[test]
fn helpers_that_cannot_take_part_are_named_over_hip() {
    over("hip", "helpers_that_cannot_take_part_are_named_over_hip", helpers_that_cannot);
}

/// Memory is freed while a copy into it waits for its stream. The runtime lets no other thread make calls until
/// the copy has ended, which needs none.
fn freed_memory(gpus: &TestRuntime) {
    gpus.restart("gpus=2,memory=256MiB");
    let node = gpus.node(forced());
    let (stream, device) = (gpus.stream(), gpus.device(BYTES));
    let (src, word) = (gpus.pinned(BYTES, 5), gpus.pinned(4096, 0));
    word.fill(0);
    node.explain(device, src.as_ptr() as u64, BYTES).unwrap();
    // SAFETY: an aligned word that only waits read.
    let word = unsafe { AtomicU32::from_ptr(word.as_mut_ptr().cast()) };
    gpus.hold(stream, std::ptr::from_ref(word) as u64, 1);
    copy_async(&node, device, src, stream).unwrap();
    let release = std::thread::spawn(|| {
        std::thread::park_timeout(Duration::from_millis(30));
        word.store(1, Ordering::Release);
    });
    assert_eq!(gpus.free(device), 0);
    release.join().unwrap();
    assert!(gpus.is_idle(stream));
    let counters = node.counters();
    assert_eq!((counters.plain, counters.multipath), (0, 1), "{counters:?}");
    // Its address is no memory of a GPU any more, and the next copy has other memory.
    // SAFETY: the library refuses it.
    let refused = unsafe { node.copy_async(device, 0, BYTES, stream) }.unwrap_err();
    assert_eq!(refused.status, CopyStatus::Invalid);
    let next = gpus.device(BYTES);
    copy_async(&node, next, src, stream).unwrap();
    assert_eq!(gpus.wait(stream), 0);
    assert!(bytes_at(next) == src);
    assert_eq!(node.counters().multipath, 2);
}

#[test]
fn memory_that_is_freed_during_a_copy_outlives_it_over_cuda() {
    over("cuda", "memory_that_is_freed_during_a_copy_outlives_it_over_cuda", freed_memory);
}

#[test]
fn memory_that_is_freed_during_a_copy_outlives_it_over_hip() {
    over("hip", "memory_that_is_freed_during_a_copy_outlives_it_over_hip", freed_memory);
}
