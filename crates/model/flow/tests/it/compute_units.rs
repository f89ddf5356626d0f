//! Kernels of one GPU and its compute units: grids that fill them, grids that leave room, arithmetic.

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::Case;

const TRIAD: &str = "gpu0.vram > gpu0.vram by kernel@gpu0[triad-w16-u1-b256-gt] x 256MiB";
const COPY: &str = "gpu0.vram > gpu1.vram by kernel@gpu0[copy-w16-u1-b256-gt] x 256MiB";
const COMPUTE: &str = "gpu0.reg > gpu0.reg by kernel@gpu0[fma-w4-u8-b256-g4sm] x 256MiB";
const BLIT: &str = "gpu0.vram > gpu1.vram by blit@gpu0 x 256MiB";
const SMALL: &str = "gpu1.vram > gpu0.vram by kernel@gpu0[copy-bulk16k-s4-b32-g64] x 256MiB";
/// Start of a kernel in its own memory, ns.
const START: f64 = 1900.0;
const ENGINE: &str = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";

fn network(machine: &str) -> Network {
    let desc = MachineDesc::preset(machine).unwrap();
    Network::new(&desc, RuntimeEnv::default()).unwrap()
}

/// Rates of the flows of a case while all of them run, GB/s.
fn rates(network: &Network, flows: &[&str]) -> Vec<f64> {
    let case: Case = flows.join(" & ").parse().unwrap();
    network.predict(&case).unwrap().iter().map(|flow| flow.rate.0).collect()
}

fn assert_near(got: f64, expected: f64, what: &str) {
    assert!((got / expected - 1.0).abs() < 1e-6, "{what}: {got} for {expected}");
}

/// Both grids have 65536 blocks of 256 threads, where the GPU holds 8 a unit: 880 or 1056. So each has the
/// units for a part of the time, and as much payload as the other: x / A + x / B = 1.
#[test]
fn grids_that_fill_a_gpu_share_its_time() {
    for machine in ["mi250x", "hgx-h200"] {
        let network = network(machine);
        let (triad, copy) = (rates(&network, &[TRIAD])[0], rates(&network, &[COPY])[0]);
        let both = rates(&network, &[TRIAD, COPY]);
        let expected = 1.0 / (1.0 / triad + 1.0 / copy);
        both.iter().for_each(|&rate| assert_near(rate, expected, machine));
        let named = network.predict(&format!("{TRIAD} & {COPY}").parse().unwrap()).unwrap();
        assert_eq!(named[0].bound_by, "gpu0 compute units");
        // The copy engine needs no unit: only the memory is shared.
        let with_engine = rates(&network, &[TRIAD, ENGINE]);
        assert!(with_engine[0] > 0.85 * triad, "{with_engine:?} of {triad}");
    }
}

/// The runtime's copy kernel has 4 of the 32 wavefronts that a unit of an MI250X holds, the compute kernel
/// 4 blocks of 4 wavefronts: 4 + 16 of 32. Neither waits for the other.
#[test]
fn a_blit_copy_leaves_room_for_a_kernel() {
    let network = network("mi250x");
    let alone = [COMPUTE, BLIT].map(|flow| rates(&network, &[flow])[0]);
    let both = rates(&network, &[COMPUTE, BLIT]);
    both.iter().zip(alone).for_each(|(&got, alone)| assert_near(got, alone, "next to a blit"));
}

/// Two compute kernels have room, and one set of multipliers.
#[test]
fn compute_kernels_share_the_arithmetic() {
    let network = network("mi250x");
    let alone = rates(&network, &[COMPUTE])[0];
    let double = COMPUTE.replace("fma-w4", "fma-w8").replace("g4sm", "g2sm");
    let both = rates(&network, &[COMPUTE, &double]);
    // 64 fused multiply-adds a cycle in either precision.
    both.iter().for_each(|&rate| assert_near(rate, alone / 2.0, "half"));
}

/// A small payload is a small grid: 1 MiB is 256 blocks of 4 KiB of 880.
#[test]
fn a_small_grid_leaves_room() {
    let network = network("mi250x");
    let small = [TRIAD, COPY].map(|flow| flow.replace("256MiB", "1MiB"));
    let alone = rates(&network, &[&small[1]])[0];
    assert_near(rates(&network, &[&small[0], &small[1]])[1], alone, "a copy of 1 MiB");
}

/// An H200 starts kernels in order: the second begins when the first has ended, whichever is second, also
/// behind a kernel that computes, which leaves no cycles. Behind a full grid the blocks of that kernel, 4 of 8
/// a unit, start on half of the units: twice its time but for the start. A grid of 64 small blocks leaves room.
#[test]
fn an_h200_starts_kernels_in_order() {
    let network = network("hgx-h200");
    let times = |flows: &[&str]| -> Vec<f64> {
        let durations = network.durations(&flows.join(" & ").parse().unwrap()).unwrap();
        durations.flows.iter().map(|flow| flow.time.typical.0).collect()
    };
    let [triad, copy, compute, small] = [TRIAD, COPY, COMPUTE, SMALL].map(|flow| times(&[flow])[0]);
    for (flows, expected) in [
        ([TRIAD, COPY], [triad, triad + copy]),
        ([COPY, TRIAD], [copy, copy + triad]),
        ([COMPUTE, COPY], [compute, compute + copy]),
        ([COPY, COMPUTE], [copy, copy + 2.0 * compute - START]),
    ] {
        let got = times(&flows);
        got.iter().zip(expected).for_each(|(&got, expected)| assert_near(got, expected, flows[0]));
    }
    // Neither waits; requests and answers of each take a part of the other's direction of the links.
    let got = times(&[SMALL, COPY]);
    assert!(got[0] < 1.1 * small && got[1] < 1.1 * copy, "{got:?} for {small} and {copy}");
}

/// A block of 256 threads has 4 loads of 16 B each in flight, 16 KiB, and loads again once they are stored:
/// one compute unit of a MI300X takes 520 ns and 16384 / 39.8 within its GPU, / 134 to another, / 56 to the
/// host. A kernel that only stores takes the stores' time alone, and 32 units have 32 times the rate.
#[test]
fn loads_wait_for_the_stores_before_them() {
    let network = network("mi300x");
    let one = |to: &str| {
        rates(
            &network,
            &[&format!("gpu0.vram > {to} by kernel@gpu0[copy-w16-u4-b256-g1] x 256MiB")],
        )[0]
    };
    assert_near(one("gpu0.vram"), 16384.0 / (520.0 + 16384.0 / 39.8), "within the GPU");
    assert_near(one("gpu1.vram"), 16384.0 / (520.0 + 16384.0 / 134.0), "to another GPU");
    assert_near(one("numa0.pinned"), 16384.0 / (520.0 + 16384.0 / 56.0), "to the host");
    let fill = "gpu0.reg > gpu0.vram by kernel@gpu0[write-w16-u4-b256-g32] x 256MiB";
    assert_near(rates(&network, &[fill])[0], 32.0 * 39.8, "stores alone");
}
