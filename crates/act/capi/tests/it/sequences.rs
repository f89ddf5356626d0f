//! Sequences of calls with arbitrary arguments: none may crash, hang or leave a wrong byte.

use pathline::{CopyNode, NodeOptions};
use pathline_stub::StubLibraries;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::runtime::{TestRuntime, in_separate_process};

const BYTES: usize = 4 << 20;

/// A call: what it does, at which offsets, how many bytes, on which stream.
type Call = (u8, u32, u32, u64, u8);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let size = prop_oneof![
        4 => 0..BYTES as u64,
        2 => (1u64 << 19)..(3u64 << 20),
        1 => Just(1u64 << 40),
        1 => Just(u64::MAX),
        1 => Just(0u64),
    ];
    let offset = 0..BYTES as u32;
    prop::collection::vec((0..8u8, offset.clone(), offset, size, 0..4u8), 1..12)
}

/// Whether a range lies inside a buffer.
fn inside(offset: u32, bytes: u64) -> bool {
    u64::from(offset).checked_add(bytes).is_some_and(|end| end <= BYTES as u64)
}

#[test]
fn sequences_of_calls_keep_every_byte() {
    let test = "sequences::sequences_of_calls_keep_every_byte";
    if !in_separate_process(test, StubLibraries::Cuda, "gpus=3,memory=512MiB") {
        return;
    }
    let cuda = TestRuntime::open("cuda");
    let options = NodeOptions {
        threshold: 1 << 19,
        min_gain: 1e-6,
        probe_bytes: 4 << 20,
        ..NodeOptions::default()
    };
    let node = cuda.node(options);
    let host = cuda.pinned(BYTES, 3);
    let (device, out) = (cuda.device(BYTES), cuda.pinned(BYTES, 4));
    let streams = [0, cuda.stream(), cuda.stream(), 2];
    let mut runner = TestRunner::new(Config { cases: 60, ..Config::default() });
    runner
        .run(&calls(), |calls| {
            run(&cuda, &node, (host, device, out), &streams, &calls);
            Ok(())
        })
        .unwrap();
    assert!(node.counters().multipath > 20, "{:?}", node.counters());
}

/// Runs calls on copies of the buffers, and compares with what they should hold.
fn run(
    cuda: &TestRuntime,
    node: &CopyNode,
    (host, device, out): (&[u8], u64, &[u8]),
    streams: &[usize; 4],
    calls: &[Call],
) {
    let (host_at, out_at) = (host.as_ptr() as u64, out.as_ptr() as u64);
    node_copy(node, device, host_at, BYTES);
    let mut expected = host.to_vec();
    for &(kind, to, from, bytes, stream) in calls {
        let stream = streams[stream as usize];
        let (dst, src) = (device + u64::from(to), host_at + u64::from(from));
        let fits = inside(to, bytes) && inside(from, bytes);
        let n = bytes as usize;
        // Ranges beyond the host's buffer are the caller's fault; beyond the GPU's they are refused.
        let readable = inside(from, bytes) || bytes >= 1 << 40;
        // SAFETY: live memory, or ranges that the library refuses.
        let outcome = unsafe {
            match kind {
                _ if !readable => continue,
                0 => node.copy(dst, src, n),
                1 | 2 => node.copy_async(dst, src, n, stream),
                3 => node.copy_batch_async(&[(dst, src, n)], stream),
                4 => node.copy_to_all(&[(0, dst)], src, n, Some(&[stream])),
                5 => node.copy(0, src, n.max(1)),
                // Below the threshold the runtime alone looks at the ends.
                6 => node.copy_async(dst, dst, n.max(1 << 20), stream),
                _ => node.explain(dst, src, n).map(|_| ()),
            }
        };
        for &stream in streams {
            assert_eq!(cuda.wait(stream), 0);
        }
        match kind {
            0..=4 if bytes == 0 => assert!(outcome.is_ok()),
            0..=4 => {
                assert_eq!(outcome.is_ok(), fits, "{kind} {to} {from} {bytes}: {outcome:?}");
                if fits {
                    let (to, from) = (to as usize, from as usize);
                    expected[to..to + n].copy_from_slice(&host[from..from + n]);
                }
            }
            5 | 6 => assert!(outcome.is_err()),
            _ => {}
        }
    }
    node_copy(node, out_at, device, BYTES);
    assert!(out == expected, "{calls:?}");
}

fn node_copy(node: &CopyNode, dst: u64, src: u64, bytes: usize) {
    // SAFETY: buffers of that size.
    unsafe { node.copy(dst, src, bytes).unwrap() };
}
