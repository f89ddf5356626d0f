//! CPU threads that load from the memory of GPUs and store to it.

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::Case;

fn network(preset: &str) -> Network {
    Network::new(&MachineDesc::preset(preset).unwrap(), RuntimeEnv::default()).unwrap()
}

fn rate(network: &Network, case: &str) -> f64 {
    let case: Case = case.parse().unwrap();
    network.predict(&case).unwrap()[0].rate.gbs()
}

fn near(got: f64, expected: f64) {
    assert!((got / expected - 1.0).abs() < 0.01, "{got} in place of {expected}");
}

/// Over xGMI the memory is cached: 24 lines of 64 B in 1000 ns are 1.54 GB/s for a thread, also for plain stores,
/// which load their line first. Streaming stores make 12 GB/s, until the link is full: 36 x 64 / 86.6.
#[test]
fn over_xgmi_loads_come_in_lines() {
    let node = network("mi250x");
    near(rate(&node, "gpu0.vram > numa3.reg by cpu@numa3[read-avx2-t1] x 64MiB"), 1.536);
    near(rate(&node, "gpu0.vram > numa3.reg by cpu@numa3[read-plain-t4] x 256MiB"), 6.144);
    near(rate(&node, "numa3.paged > gpu0.vram by cpu@numa3[copy-avx2-t1] x 64MiB"), 1.536);
    near(rate(&node, "numa3.paged > gpu0.vram by cpu@numa3[copy-avx2-nt-t1] x 64MiB"), 12.0);
    near(rate(&node, "numa3.reg > gpu0.vram by cpu@numa3[write-avx2-nt-t8] x 64MiB"), 26.6);
    // Four threads of memcpy have 16 MiB each, below the 24 MiB from which the C library streams.
    near(rate(&node, "numa3.paged > gpu0.vram by cpu@numa3[copy-memcpy-t4] x 64MiB"), 6.144);
    near(rate(&node, "numa3.paged > gpu0.vram by cpu@numa3[copy-memcpy-t4] x 1GiB"), 26.6);
    // What the caches hold does not cross the link again.
    let held = rate(&node, "gpu0.vram > numa3.reg by cpu@numa3[read-avx2-t1] x 16KiB");
    near(held, rate(&node, "numa3.paged > numa3.reg by cpu@numa3[read-avx2-t1] x 16KiB"));
}

/// Over PCIe it is write-combined: one load at a time, as wide as its instruction; four threads' stores fill the
/// link, 63 x 64 / 88 GB/s. No cache holds it, whatever the size.
#[test]
fn over_pcie_loads_go_one_at_a_time() {
    let node = network("mi300x");
    for size in ["4KiB", "64MiB"] {
        for (how, width) in [("plain", 8.0), ("avx2", 32.0), ("avx512", 64.0)] {
            let case = format!("gpu0.vram > numa0.reg by cpu@numa0[read-{how}-t1] x {size}");
            near(rate(&node, &case), width / 1000.0);
        }
    }
    near(rate(&node, "numa0.pinned > gpu0.vram by cpu@numa0[copy-memcpy-t4] x 64MiB"), 45.8);
    near(rate(&node, "numa0.pinned > gpu0.vram by cpu@numa0[copy-memcpy-t1] x 64MiB"), 12.0);
}

/// Cores of an MI300A share the memory of its GPU: reading either is the same.
#[test]
fn one_memory_is_read_as_the_hosts() {
    let node = network("mi300a");
    let of =
        |from: &str| rate(&node, &format!("{from} > numa0.reg by cpu@numa0[read-avx2-t4] x 1GiB"));
    near(of("gpu0.vram"), of("numa0.paged"));
}

/// The servers of TransferBench's rows have their GPUs on PCIe: write-combined, so plain stores leave as lines.
#[test]
fn a_stack_says_how_the_driver_maps_memory() {
    let desc = MachineDesc::preset("mi250x").unwrap().with_stack("in-kernel").unwrap();
    let node = Network::new(&desc, RuntimeEnv::default()).unwrap();
    near(rate(&node, "numa3.pinned > gpu0.vram by cpu@numa3[copy-memcpy-t4] x 64MiB"), 26.6);
    near(rate(&node, "gpu0.vram > numa3.reg by cpu@numa3[read-avx2-t4] x 64MiB"), 0.128);
}

/// What a model lacks is refused with the reason.
#[test]
fn unknown_mappings_are_refused() {
    let refusal = |preset: &str, flow: &str| {
        let case: Case = flow.parse().unwrap();
        network(preset).predict(&case).unwrap_err().to_string()
    };
    let vram = "gpu0.vram > numa0.reg by cpu@numa0[read-avx2-t1] x 1MiB";
    assert!(refusal("hgx-h200", vram).contains("[cpu.gpu_memory]"));
    let managed = "gpu0.managed > numa0.reg by cpu@numa0[read-avx2-t1] x 1MiB";
    assert!(refusal("mi250x", managed).contains("managed pages move"));
    let touch = "gpu0.reg > gpu0.vram by cpu@numa0[touch-plain-t1] x 1MiB";
    assert!(!refusal("mi250x", touch).is_empty());
}
