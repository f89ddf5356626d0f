//! Exchanges on machines with faults, and values computed by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathline_flow::{FaultEffect, FaultElement, MachineDesc, MachineFault};
use pathline_message::MessageLayer;
use pathline_schema::LinkEnd;

/// The time of an exchange on a node with one fault, over that on the sound node.
fn slowdown(machine: &str, fault: MachineFault, exchange: &str) -> f64 {
    let desc = MachineDesc::preset(machine).unwrap();
    let sound = MessageLayer::new(&desc).unwrap();
    let faulty = MessageLayer::with_faults(&desc, &[fault]).unwrap();
    let exchange = exchange.parse().unwrap();
    let (before, after) = (sound.time(&exchange).unwrap(), faulty.time(&exchange).unwrap());
    assert_eq!(before.bounds, after.bounds, "bounds are those of the sound node");
    after.time.0 / before.time.0
}

fn is_near(value: f64, expected: f64, within: f64) {
    assert!((value / expected - 1.0).abs() <= within, "{value}, expected {expected}");
}

fn bundle(from: LinkEnd, to: LinkEnd, effect: FaultEffect, silent: bool) -> MachineFault {
    let element = FaultElement::Bundle { from, to, one_way: false };
    MachineFault { element, effect, silent, probability: 1.0 }
}

/// A collective is as fast as its slowest member: of 18 links of gpu2 those to one of four switches at half
/// their rate. Bytes are spread over all switches evenly, so all links of gpu2 then work at half.
#[test]
fn collectives_are_slowed_by_links_of_one_gpu() {
    let half = |switch| {
        let (gpu, switch) = (LinkEnd::Gpu(2), LinkEnd::Switch(switch));
        bundle(gpu, switch, FaultEffect::Speed { share: 0.5 }, true)
    };
    // By NVLS 8 x 0.613 us of each turn of 61.4 us are no bytes: 2 - 4.9 / 61.4 = 1.92.
    for (by, expected) in [("nccl[ring]", 2.0), ("nccl", 1.92)] {
        let exchange = format!("all_reduce over gpu0-gpu7 by {by} x 4GiB");
        is_near(slowdown("hgx-h100", half(0), &exchange), expected, 0.02);
    }
    // gpu2 takes no part.
    let others = "all_reduce over gpu4-gpu7 by nccl x 4GiB";
    is_near(slowdown("hgx-h100", half(0), others), 1.0, 1e-9);
}

/// Two of the four links between the dies of a package are down. Rings that do not know of it wait for them:
/// Of the four links between the dies of a package one is left. Two rings that do not know of it share it: half
/// of their rate. Where the driver reports it, the library lays its rings over other links.
#[test]
fn rings_avoid_links_that_are_reported_down() {
    let down = |lost, silent| {
        let effect = FaultEffect::Width { lost };
        bundle(LinkEnd::Gpu(0), LinkEnd::Gpu(1), effect, silent)
    };
    let exchange = "all_reduce over gpu0-gpu7 by rccl x 4GiB";
    let (unknown, known) =
        (slowdown("mi250x", down(3, true), exchange), slowdown("mi250x", down(3, false), exchange));
    is_near(unknown, 2.0, 0.02);
    assert!((1.05..1.5).contains(&known), "{known}");
    // A copy engine is slower than two links; the runtime's copy kernel is not.
    let send = |by| format!("send over gpu0>gpu1 by {by} x 1GiB");
    is_near(slowdown("mi250x", down(2, true), &send("cray-mpich")), 1.0, 0.01);
    assert!(slowdown("mi250x", down(2, true), &send("cray-mpich[blit]")) > 1.5);
}
