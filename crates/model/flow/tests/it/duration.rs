//! Durations of sets of flows, by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use std::fmt::Write;

use pathline_flow::{MachineDesc, Network, NoPath, RuntimeEnv, SetPredictor};
use pathline_schema::Case;

/// Four GPUs: 395.3 from each to each, 399 into each, one copy at a time out of each; and 55 from
/// the host into each with a start of 10 us.
fn four(about: &str) -> Network {
    let mut text = format!(
        "name = \"four\"\n\
         [host]\ncpu_model = \"CPU\"\narch = \"x86_64\"\nsockets = 1\npage_bytes = 4096\n\
         huge_page_bytes = 2097152\n\
         [[numa]]\nid = 0\ncpus = \"0-7\"\nmemory_gib = 64\nmemory_gbs = 100\n\
         [gpus]\nvendor = \"nvidia\"\nname = \"GPU\"\narch = \"sm_90\"\ncompute_units = 132\n\
         memory_gib = 139\nmemory_gbs = 4800\n{about}"
    );
    let peer = |a: u32, b: u32| format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a}");
    for a in 0..4 {
        write!(text, "[[gpu]]\nid = {a}\nnuma = 0\n").unwrap();
        write!(
            text,
            "[[path]]\nflow = \"numa0.pinned > gpu{a}.vram by dma@gpu{a}\"\ngbs = 55\nlow = 54\n\
             high = 56\nstart_us = 10\n"
        )
        .unwrap();
        let (mut into, mut out) = (Vec::new(), Vec::new());
        for b in (0..4).filter(|&b| b != a) {
            writeln!(text, "[[path]]\nflow = {:?}\ngbs = 395.3", peer(a, b)).unwrap();
            into.push(peer(b, a));
            out.push(peer(a, b));
        }
        writeln!(text, "[[shared]]\nname = \"into gpu{a}\"\ngbs = 399\nflows = {into:?}").unwrap();
        writeln!(text, "[[queue]]\nname = \"copy engine of gpu{a}\"\nflows = {out:?}").unwrap();
    }
    let desc = MachineDesc::parse("four.toml", &text).unwrap();
    Network::new(&desc, RuntimeEnv::default()).unwrap()
}

fn copies(list: &[(u32, u32, u32)]) -> Case {
    let flow = |&(a, b, mib): &(u32, u32, u32)| {
        format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x {mib}MiB")
    };
    list.iter().map(flow).collect::<Vec<_>>().join(" & ").parse().unwrap()
}

fn near(got: f64, expected: f64) {
    assert!((got / expected - 1.0).abs() < 1e-9, "{got} is not {expected}");
}

/// 512 MiB alone, and 512 MiB of each of two that share a port, in ns.
const ALONE: f64 = 536_870_912.0 / 395.3;
const HALF: f64 = 536_870_912.0 / 199.5;

/// As it was measured on four H200s: 3>1 of 512 MiB, 0>2 of 1 GiB, 3>2 of 1 GiB, 0>1 of 512 MiB
/// took 5420 us in some samples and 8020 us in others. Engine 3 serves 3>1 and 3>2, engine 0 serves
/// 0>2 and 0>1; 2>3 meets nobody.
///
/// 3>1 and 0>2 first: 3>1 is done after one ALONE, when 0>2 has half left; 3>2 then shares the port
/// of GPU 2 with it: after one HALF 0>2 is done and 3>2 has half left, one ALONE more, as long as
/// 0>1 takes: 2 ALONE + HALF = 5407 us. 3>2 and 0>1 first is the same with the engines exchanged.
/// Both into GPU 2 first: 2 HALF, then both into GPU 1: 3 HALF = 8073 us. Both into GPU 1 first
/// too.
#[test]
fn two_engines_in_any_order() {
    let network = four("");
    let case = copies(&[(3, 1, 512), (0, 2, 1024), (3, 2, 1024), (0, 1, 512), (2, 3, 1024)]);
    let mut predictor = SetPredictor::new(&network);
    let ends = predictor.ends(&case).unwrap().to_vec();
    let expected = [ALONE, ALONE + HALF, 2.0 * ALONE + HALF, 2.0 * ALONE + HALF, 2.0 * ALONE];
    ends.iter().zip(expected).for_each(|(&got, expected)| near(got, expected));
    assert_eq!((ends[2] / 1e3).round(), 5407.0);
    let mut sets = Vec::new();
    let orders = predictor
        .each_order(&case, |ends| sets.push(ends.iter().copied().fold(0.0, f64::max)))
        .unwrap();
    sets.sort_by(f64::total_cmp);
    assert_eq!((orders.possible, orders.tried), (4, 4));
    for (got, expected) in sets.iter().zip([5407.0, 5407.0, 8073.0, 8073.0]) {
        assert_eq!((got / 1e3).round(), expected);
    }
    let mut predictor = predictor.any_order();
    let durations = predictor.durations(&case).unwrap();
    let set = durations.set;
    near(set.typical.0, 2.0 * ALONE + HALF);
    near(set.low.0, 2.0 * ALONE + HALF);
    near(set.high.0, 3.0 * HALF);
    let bounds: Vec<&str> = durations.flows.iter().map(|f| f.bound_by.as_str()).collect();
    assert_eq!(bounds[0], "gpu3.vram > gpu1.vram by dma@gpu3 alone");
    // 0>2 shares for HALF = 2.7 ms and is alone for 1.4 ms; 3>2 waits for ALONE, shares for HALF.
    assert_eq!(bounds[1..3], ["into gpu2", "into gpu2"]);
    // 0>1 waits for ALONE + HALF and then takes ALONE.
    assert_eq!(bounds[3], "waiting for copy engine of gpu0");
    // Over the four orders 0>1 ends after ALONE, HALF, 2 ALONE + HALF, 3 HALF: the lower median is
    // HALF, half of the port's rate.
    let time = durations.flows[3].time;
    near(time.low.0, ALONE);
    near(time.typical.0, HALF);
    near(time.high.0, 3.0 * HALF);
    near(durations.flows[3].rate.0, 199.5);
    near(durations.flows[3].alone.0, 395.3);
    // In the order of the case there is one time.
    let ordered = network.durations(&case).unwrap();
    near(ordered.set.high.0, 2.0 * ALONE + HALF);
    assert_eq!((ordered.uncertainty.orders.possible, ordered.uncertainty.orders.tried), (4, 1));
    near(ordered.flows[3].rate.0, 536_870_912.0 / (2.0 * ALONE + HALF));
}

/// Five flows of one engine have 120 orders, of which 64 are drawn; all end when the sum is done.
#[test]
fn many_orders_are_drawn() {
    let network = four("");
    let case = copies(&[(0, 1, 64), (0, 2, 128), (0, 3, 256), (0, 1, 512), (0, 2, 1024)]);
    let mut predictor = SetPredictor::new(&network).any_order();
    let durations = predictor.durations(&case).unwrap();
    let orders = durations.uncertainty.orders;
    assert_eq!((orders.possible, orders.tried), (120, 64));
    // 1984 MiB = 3.875 x 512 MiB.
    near(durations.set.low.0, 3.875 * ALONE);
    near(durations.set.high.0, 3.875 * ALONE);
    // The first flow is first in some orders and last in others.
    let first = durations.flows[0].time;
    near(first.low.0, ALONE / 8.0);
    near(first.high.0, 3.875 * ALONE);
    assert_eq!(durations, predictor.durations(&case).unwrap(), "the same draws each time");
}

/// 440 kB at 55 after 10 us: 18 us; at 54 to 56: 10 + 8.148 and 10 + 7.857. The description's own
/// error of 10 % widens that to 19.96 and 16.23 us.
#[test]
fn intervals() {
    let case: Case = "numa0.pinned > gpu0.vram by dma@gpu0 x 440000B".parse().unwrap();
    let durations = four("").durations(&case).unwrap();
    let (time, uncertainty) = (durations.flows[0].time, durations.uncertainty);
    near(time.typical.0, 18e3);
    near(time.low.0, 10e3 + 440e3 / 56.0);
    near(time.high.0, 10e3 + 440e3 / 54.0);
    assert!(
        uncertainty.capacities && uncertainty.error.is_none() && uncertainty.orders.possible == 1
    );
    assert_eq!(durations.flows[0].bound_by, "its start");
    let wide = four("[measured]\nerror_p50 = 2\nerror_p95 = 10\n").durations(&case).unwrap();
    near(wide.set.low.0, (10e3 + 440e3 / 56.0) / 1.1);
    near(wide.set.high.0, (10e3 + 440e3 / 54.0) * 1.1);
    near(wide.set.typical.0, 18e3);
}

/// A preset states no intervals, so its durations have none and report no uncertainty.
#[test]
fn a_preset_has_no_intervals() {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    let case: Case =
        "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB & gpu0.vram > gpu2.vram by dma@gpu0 x 1GiB"
            .parse()
            .unwrap();
    let durations = network.durations(&case).unwrap();
    assert!(!durations.uncertainty.any());
    assert_eq!(durations.set.low, durations.set.high);
    // A flow alone takes the time that `predict` returns: its start and its bytes at their rate.
    let alone: Case = "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB".parse().unwrap();
    let [expected] = network.predict(&alone).unwrap().try_into().unwrap();
    let time = network.durations(&alone).unwrap().flows[0].time.typical;
    near(time.0, expected.time.0);
}

/// With a background flow that runs throughout: half the port, and last in its queue.
#[test]
fn background_flows() {
    let network = four("");
    let text = "gpu0.vram > gpu1.vram by dma@gpu0 x 512MiB while \
                gpu2.vram > gpu1.vram by dma@gpu2 x 64MiB";
    let durations = network.durations(&text.parse().unwrap()).unwrap();
    assert_eq!(durations.flows.len(), 1);
    near(durations.set.typical.0, HALF);
    let text =
        text.replace("gpu2", "gpu0").replace("while gpu0.vram > gpu1", "while gpu0.vram > gpu3");
    near(network.durations(&text.parse().unwrap()).unwrap().set.typical.0, ALONE);
}

#[test]
fn a_flow_without_bytes_has_no_duration() {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    let case: Case = "gpu0.reg > gpu0.reg by call@gpu0[sync] x 1B".parse().unwrap();
    let NoPath(why) = network.durations(&case).unwrap_err();
    assert!(why.starts_with("call@gpu0[sync] has a fixed time"), "{why}");
    let case: Case = "gpu0.vram > gpu9.vram by dma@gpu0 x 1GiB".parse().unwrap();
    assert_eq!(network.durations(&case).unwrap_err().0, "this machine has no gpu9");
}
