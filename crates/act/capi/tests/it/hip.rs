//! The same code over the stand-in for HIP.

use pathline::NodeOptions;
use pathline_stub::StubLibraries;

use crate::runtime::{TestRuntime, in_separate_process};

#[test]
fn copies_of_hip_arrive() {
    let test = "hip::copies_of_hip_arrive";
    if !in_separate_process(test, StubLibraries::Hip(6), "gpus=4,memory=1GiB") {
        return;
    }
    let hip = TestRuntime::open("hip");
    let options = NodeOptions {
        threshold: 1 << 20,
        min_gain: 1e-6,
        probe_bytes: 4 << 20,
        ..NodeOptions::default()
    };
    let node = hip.node(options);
    let (stream, bytes) = (hip.stream(), (6 << 20) + 5);
    let (src, device, back) = (hip.pinned(bytes, 1), hip.device(bytes), hip.pinned(bytes, 2));
    hip.enter(1);
    let second = hip.device(bytes);
    hip.enter(0);
    // New ends are not probed while copies run.
    node.explain(device, src.as_ptr() as u64, bytes).unwrap();
    node.explain(second, device, bytes).unwrap();
    // SAFETY: live memory and a live stream.
    unsafe {
        node.copy_async(device, src.as_ptr() as u64, bytes, stream).unwrap();
        node.copy_async(second, device, bytes, stream).unwrap();
    }
    assert_eq!(hip.wait(stream), 0);
    // SAFETY: live memory.
    unsafe { node.copy(back.as_mut_ptr() as u64, second, bytes).unwrap() };
    assert!(src == back);
    let counters = node.counters();
    assert_eq!(counters.multipath, 3, "{counters:?}");
}
