//! Messages through shared memory: what a line from the other core costs, and when copies past the
//! caches gain.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathline_flow::MachineDesc;
use pathline_message::MessageLayer;

fn layer() -> MessageLayer {
    MessageLayer::new(&MachineDesc::preset("mi250x").unwrap()).unwrap()
}

/// us of one message: half a round trip of a ping.
fn us(layer: &MessageLayer, what: &str, size: &str) -> f64 {
    let case = format!("r0.numa3.huge > r1.numa3.huge by {what} x {size}").parse().unwrap();
    let outcome = layer.shared_memory(&case).unwrap();
    outcome.each[0].0 / if what.contains("[ping") { 2e3 } else { 1e3 }
}

#[track_caller]
fn near(got: f64, expected: f64, tolerance: f64) {
    assert!((got / expected - 1.0).abs() < tolerance, "{got}, not {expected}");
}

/// 128 KiB are 16 pieces of 8 KiB. Between two L3s a line takes 105 ns, of which a core keeps 18 in
/// flight: 18 x 64 / 105 = 10.97 GB/s, 746.7 ns a piece, and 105 for its flag. A message starts with
/// 30 + 2 x 105 ns. Past the caches the bytes go through memory, of which a core moves 22 GB/s: 372.4
/// ns a piece.
#[test]
fn copies_past_the_caches_gain_between_two_l3() {
    let layer = layer();
    let plain = us(&layer, "shm@numa3[ping,memcpy+memcpy,other-l3]", "128KiB");
    near(plain, (240.0 + 746.7 + 16.0 * (746.7 + 105.0)) / 1e3, 1e-3);
    let past = us(&layer, "shm@numa3[ping,avx2-nt+avx2-ntl,other-l3]", "128KiB");
    near(past, (240.0 + 372.4 + 16.0 * (372.4 + 105.0)) / 1e3, 1e-3);
    // UCX's authors: 43 %.
    assert!((1.0 - past / plain - 0.43).abs() < 0.01, "{past} against {plain}");
}

/// Within one L3 a line takes 22 ns: 52 GB/s, and the L2 that holds both sides copies 50. Through
/// memory the same bytes still move at 22 GB/s, so copies past the caches lose more than half.
#[test]
fn copies_past_the_caches_lose_within_one_l3() {
    let layer = layer();
    let plain = us(&layer, "shm@numa3[ping,memcpy+memcpy,same-l3]", "128KiB");
    let piece = 8192.0 / 50.0;
    near(plain, (74.0 + piece + 16.0 * (piece + 22.0)) / 1e3, 1e-3);
    let past = us(&layer, "shm@numa3[ping,avx2-nt+avx2-ntl,same-l3]", "128KiB");
    assert!(past > 2.0 * plain, "{past} against {plain}");
    let far = us(&layer, "shm@numa3[ping,memcpy+memcpy,other-l3]", "8B");
    near(far, 0.240, 1e-6);
    near(us(&layer, "shm@numa3[ping,memcpy+memcpy,same-l3]", "8B"), 0.074, 1e-6);
}

/// One copy: the receiver's core waits for the lines, 128 KiB at 10.97 GB/s, and loads past the caches
/// leave 94 % of that. A call of the kernel adds 0.6 us and 0.06 for each of 32 pages.
#[test]
fn single_copies_wait_for_the_same_lines() {
    let layer = layer();
    let moved = 131_072.0 / (18.0 * 64.0 / 105.0);
    let plain = us(&layer, "xpmem@numa3[ping,memcpy,other-l3]", "128KiB");
    near(plain, (240.0 + moved) / 1e3, 1e-3);
    let past = us(&layer, "xpmem@numa3[ping,avx2-ntl,other-l3]", "128KiB");
    near(past, (240.0 + 0.94 * moved) / 1e3, 1e-3);
    let kernel = us(&layer, "cma@numa3[ping,read,other-l3]", "128KiB");
    near(kernel, plain + 0.6 + 32.0 * 0.06, 1e-3);
}

/// 256 MiB are in no cache. The receiver loads each line before it stores it and writes it back: 22 /
/// 2 GB/s through the ring, and one core alone makes 22 / 3. Four pairs of one domain share its 51.2
/// GB/s, of which cores get 86 %; each byte is three of traffic.
#[test]
fn long_messages_move_at_the_rate_of_memory() {
    let layer = layer();
    let size = 268_435_456.0;
    let ring = us(&layer, "shm@numa3[send-w1,avx2+avx2,other-l3]", "256MiB");
    near(size / ring / 1e3, 11.0, 0.15);
    let single = us(&layer, "xpmem@numa3[send-w1,avx2,other-l3]", "256MiB");
    near(size / single / 1e3, 22.0 / 3.0, 0.01);
    assert!(ring < single);
    let pair = |a: u32| {
        let b = a + 4;
        format!("r{a}.numa3.huge > r{b}.numa3.huge by shm@numa3[send-w1,avx2+avx2] x 256MiB")
    };
    let four = (0..4).map(pair).collect::<Vec<_>>().join(" & ");
    let outcome = layer.shared_memory(&four.parse().unwrap()).unwrap();
    let rate = size / outcome.each[0].0;
    assert!(rate < 0.86 * 51.2 / 3.0 / 4.0 * 1.01 && rate > 2.5, "{rate}");
}

/// The receiver of `consume` loads the message as well, and pays more where it lies in memory.
#[test]
fn a_receiver_pays_for_stores_past_the_caches() {
    let layer = layer();
    let paid = |how: &str| {
        let [consume, send] = ["consume", "send-w1"]
            .map(|op| us(&layer, &format!("shm@numa3[{op},{how},same-l3]"), "1MiB"));
        consume - send
    };
    // 1 MiB at 22 GB/s, and at the 45 GB/s of the L3.
    near(paid("memcpy+avx2-nt"), 1_048_576.0 / 22e3, 1e-3);
    near(paid("memcpy+memcpy"), 1_048_576.0 / 45e3, 1e-3);
}

#[test]
fn what_shares_no_memory_has_a_reason() {
    let refused = |layer: &MessageLayer, case: &str| {
        layer.shared_memory(&case.parse().unwrap()).unwrap_err().to_string()
    };
    let layer = layer();
    for (case, reason) in [
        (
            "r0.numa0.huge > r1.numa3.huge by shm@numa0[ping,memcpy+memcpy,same-l3] x 8B",
            "no L3 has cores",
        ),
        ("r0.numa3.huge > r1.numa3.huge by shm@numa3[ping,avx512-nt+memcpy] x 8B", "no avx512f"),
        ("numa3.huge > numa3.huge by cpu@numa3[copy-memcpy-t1] x 8B", "one process"),
    ] {
        let error = refused(&layer, case);
        assert!(error.contains(reason), "{error}");
    }
    let without = MessageLayer::new(&MachineDesc::preset("hgx-h200").unwrap()).unwrap();
    let error =
        refused(&without, "r0.numa0.huge > r1.numa0.huge by shm@numa0[ping,memcpy+memcpy] x 8B");
    assert!(error.contains("[software.shared-memory]"), "{error}");
}
