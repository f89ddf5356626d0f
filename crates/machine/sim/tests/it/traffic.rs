//! Counters of a simulated machine against what was asked of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its own input has failed")]

use std::collections::BTreeMap;

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_hal::{CopyChoice, TrafficMeter};
use pathline_schema::{
    Bytes, Flow, LinkEnd, Ns, Place, TrafficCounter, TrafficPath, TrafficReading, TrafficWay,
};
use pathline_sim::{SimOptions, machine_with};
use proptest::prelude::*;

fn count(meter: &dyn TrafficMeter, path: &str, way: TrafficWay) -> u64 {
    let at = meter.counters().iter().position(|c| c.path.to_string() == path && c.way == way);
    *meter.read()[at.unwrap()].count.as_ref().unwrap()
}

fn flow(text: &str) -> Flow {
    let case: pathline_schema::Case = text.parse().unwrap();
    case.timed[0]
}

/// A copy of 1 GB takes 20 ms at 50 GB/s. Half of it after 10 ms, all of it at the end, and nothing the other way.
#[test]
fn bytes_in_flight_are_counted_as_they_move() {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let options = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let machine = machine_with(&desc, RuntimeEnv::default(), &options).unwrap();
    let meter = machine.traffic.as_deref().unwrap();
    let flow = flow("r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1GiB");
    let (gpu, bytes) = (machine.gpu(0).unwrap(), flow.bytes);
    let (src, dst) = (machine.buffer(flow.src, bytes).unwrap(), machine.buffer(flow.dst, bytes));
    let (dst, stream) = (dst.unwrap(), gpu.stream().unwrap());
    machine.driver().unwrap().enable_peer(0, 1).unwrap();
    stream.copy(dst.address(), src.address(), bytes, CopyChoice::Auto).unwrap();
    machine.clock.sleep(Ns(10e6));
    let first = count(meter, "gpu0-gpu1 xGMI", TrafficWay::Out);
    machine.clock.sleep(Ns(5e6));
    let second = count(meter, "gpu0-gpu1 xGMI", TrafficWay::Out);
    // 5 ms and the time of the readings, at the rate of the copy engine.
    let rate = (second - first) as f64 / 5e6;
    assert!((48.0..52.0).contains(&rate), "{rate} GB/s");
    stream.wait().unwrap();
    assert_eq!(count(meter, "gpu0-gpu1 xGMI", TrafficWay::Out), bytes.0);
    assert_eq!(count(meter, "gpu0-gpu1 xGMI", TrafficWay::In), 0);
}

/// A copy over four switches is one stream of bytes out of one GPU and into the other.
#[test]
fn links_to_switches_are_one_path() {
    let desc = MachineDesc::preset("hgx-h200").unwrap();
    let machine = machine_with(&desc, RuntimeEnv::default(), &SimOptions::default()).unwrap();
    let meter = machine.traffic.as_deref().unwrap();
    let bytes = Bytes::mib(64);
    let buffer = |text: &str| machine.buffer(flow(text).src, bytes).unwrap();
    let src = buffer("r0.gpu2.vram > r0.gpu5.vram by dma@gpu2 x 64MiB");
    let dst = buffer("r0.gpu5.vram > r0.gpu2.vram by dma@gpu2 x 64MiB");
    machine.driver().unwrap().enable_peer(2, 5).unwrap();
    let stream = machine.gpu(2).unwrap().stream().unwrap();
    stream.copy(dst.address(), src.address(), bytes, CopyChoice::Auto).unwrap();
    stream.wait().unwrap();
    let counts: Vec<(String, u64)> = meter
        .counters()
        .iter()
        .zip(meter.read())
        .map(|(c, r)| (format!("{} {}", c.path, c.way.word()), r.count.unwrap()))
        .filter(|(_, count)| *count > 0)
        .collect();
    let expected =
        [("gpu2 NVLink out".to_owned(), bytes.0), ("gpu5 NVLink in".to_owned(), bytes.0)];
    assert_eq!(counts, expected);
}

/// Bytes out and in of each path of links that the copies pass by their routes.
fn expected(network: &Network, flows: &[Flow]) -> BTreeMap<(TrafficPath, TrafficWay), u64> {
    let counted = network.counted_resources();
    let mut moved = BTreeMap::new();
    for flow in flows {
        let route = network.operation(flow).unwrap().route;
        for pair in route.windows(2) {
            let [a, b] = [pair[0], pair[1]];
            let of = counted.iter().find(|c| match &c.path {
                TrafficPath::Links { from, to: Some(to), .. } => {
                    let way = if c.way == TrafficWay::Out { (a, b) } else { (b, a) };
                    way == (*from, *to)
                }
                _ => false,
            });
            if let Some(of) = of {
                *moved.entry((of.path.clone(), of.way)).or_default() += flow.bytes.0;
            }
        }
    }
    moved
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever is copied, at once or in turn, with spread of times: each link has counted its bytes exactly at
    /// the end, and no counter falls meanwhile.
    #[test]
    fn every_link_counts_what_passed_it(
        copies in proptest::collection::vec((0..8u32, 0..8u32, 1..64u64), 1..12),
        seed in any::<u64>(),
    ) {
        let desc = MachineDesc::preset("mi250x").unwrap();
        let options = SimOptions { seed, ..SimOptions::default() };
        let machine = machine_with(&desc, RuntimeEnv::default(), &options).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        let meter = machine.traffic.as_deref().unwrap();
        let driver = machine.driver().unwrap();
        let text = |(src, dst, mib): &(u32, u32, u64)| {
            format!("r0.gpu{src}.vram > r0.gpu{dst}.vram by dma@gpu{src} x {mib}MiB")
        };
        let flows: Vec<Flow> =
            copies.iter().filter(|(src, dst, _)| src != dst).map(|c| flow(&text(c))).collect();
        let lanes: Vec<_> = flows
            .iter()
            .map(|flow| {
                let buffer = |place: Place| machine.buffer(place, flow.bytes).unwrap();
                let (from, to) = (flow.src.unit.gpu().unwrap(), flow.dst.unit.gpu().unwrap());
                let _ = driver.enable_peer(from, to);
                let stream = machine.gpu(from).unwrap().stream().unwrap();
                (buffer(flow.src), buffer(flow.dst), stream)
            })
            .collect();
        for (src, dst, stream) in &lanes {
            stream.copy(dst.address(), src.address(), src.bytes(), CopyChoice::Auto).unwrap();
        }
        let mut before = meter.read();
        for _ in 0..20 {
            machine.clock.sleep(Ns(50e3));
            let after = meter.read();
            let moved = |((counter, a), b): ((&TrafficCounter, &TrafficReading), &TrafficReading)| {
                counter.moved(a, b)
            };
            let mut rates = meter.counters().iter().zip(&before).zip(&after).map(moved);
            prop_assert!(rates.all(|moved| moved.is_ok()));
            before = after;
        }
        lanes.iter().for_each(|(_, _, stream)| stream.wait().unwrap());
        let expected = expected(&network, &flows);
        for (counter, reading) in meter.counters().iter().zip(meter.read()) {
            if matches!(counter.path, TrafficPath::Links { to: Some(LinkEnd::Gpu(_)), .. }) {
                let key = (counter.path.clone(), counter.way);
                let bytes = expected.get(&key).copied().unwrap_or_default();
                prop_assert_eq!(reading.count, Ok(bytes), "{} {:?}", counter.path, counter.way);
            }
        }
    }
}
