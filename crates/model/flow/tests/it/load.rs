//! Copies by threads, and scattered blocks by one kernel.

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::Case;

fn network(preset: &str) -> Network {
    Network::new(&MachineDesc::preset(preset).unwrap(), RuntimeEnv::default()).unwrap()
}

/// Rate of an operation, and what limits it.
fn predict(network: &Network, case: &str) -> (f64, String) {
    let case: Case = case.parse().unwrap();
    let predicted = &network.predict(&case).unwrap()[0];
    (case.timed[0].bytes.as_f64() / predicted.time.0, predicted.bound_by.clone())
}

fn near(got: f64, expected: f64) {
    assert!((got / expected - 1.0).abs() < 0.01, "{got} in place of {expected}");
}

/// A thread of 16 GB/s loads a byte, loads the line of its store and stores it: 5.33 GB/s each. The memory, 307.2 x
/// 0.62, is passed once more by the engine: 47.6 GB/s. With 4 threads a round is 16 MiB: 1 GiB has 64 of 786.4 + 2.2 us,
/// 2.2 us of start, and 352 us in which the engine carries the last one.
#[test]
fn threads_copy_until_the_memory_is_full() {
    let node = network("hgx-h200");
    let case = |threads: u32| format!("numa0.paged > gpu0.vram by threads@gpu0[{threads}] x 1GiB");
    let (rate, bound) = predict(&node, &case(4));
    near(rate, 1073.74e3 / (64.0 * 788.6 + 2.2 + 352.0));
    assert!(bound.contains("4 threads"), "{bound}");
    // 16 threads copy 85.3 GB/s, more than the memory: 47.6, and 787 us in which they fill the first round of 64 MiB.
    let (rate, bound) = predict(&node, &case(16));
    near(rate, 1073.74e3 / (1073.74e3 / 47.62 + 2.2 + 786.4));
    assert!(bound.contains("DDR"), "{bound}");
    let out = case(4).replace("numa0.paged > gpu0.vram", "gpu0.vram > numa0.paged");
    near(predict(&node, &out).0, predict(&node, &case(4)).0);
}

#[test]
fn threads_have_cores_of_their_own() {
    let node = network("hgx-h200");
    let case: Case = "numa0.paged > gpu0.vram by threads@gpu0[49] x 1GiB".parse().unwrap();
    let why = node.predict(&case).unwrap_err().0;
    assert!(why.contains("48 CPUs, not 49"), "{why}");
}

/// Two thread blocks have 16 groups of 8 x 512 B each in flight: 128 KiB in 1195 ns are 110 GB/s, more than the link. Of
/// blocks of 512 B each group has one word in flight: 13.7 GB/s.
#[test]
fn small_blocks_leave_the_link_idle() {
    let node = network("hgx-h200");
    let rate = |blocks: u32, size: &str| {
        let case = format!("numa0.pinned > gpu0.vram by blocks@gpu0[{blocks}-g2] x {size}");
        predict(&node, &case)
    };
    let whole = "numa0.pinned > gpu0.vram by kernel@gpu0[copy-w16-u8-nt-b512-g2] x 64MiB";
    near(rate(512, "64MiB").0, predict(&node, whole).0);
    let (small, bound) = rate(16384, "8MiB");
    near(small, 8388.608 / (8388.608 / 13.71 + 3.1));
    assert!(bound.contains("in flight"), "{bound}");
}

/// An engine starts for each block: 4 KiB in 2.2 us and 4096 B / 55.6 GB/s are 1.8 GB/s, 128 KiB 28.8 GB/s. On an H200
/// 1.5 and 36.7 by the call for many.
#[test]
fn engines_start_for_each_block() {
    let node = network("hgx-h200");
    let of = |by: &str, size: &str| {
        predict(&node, &format!("numa0.pinned > gpu0.vram by blocks@gpu0[256-{by}] x {size}")).0
    };
    near(of("batch", "1MiB"), 4.096 / (2.2 + 4.096 / 55.6));
    near(of("batch", "32MiB"), 131.072 / (2.2 + 131.072 / 55.6));
    near(of("each", "1MiB"), of("batch", "1MiB"));
}
