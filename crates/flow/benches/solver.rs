//! The max-min solver at the size of a cluster: `cargo bench -p pathline-flow`.
//!
//! All-to-all over `n` GPUs: each flow passes its sender's port and its receiver's port. Making the
//! flows is not timed, listing and solving them is. `PATHLINE_BENCH_GPUS` sets the largest size
//! (default 10000: 1e8 flows, 2 GB).
//!
//! Measured single-threaded on a virtual machine of two Intel Xeon cores that was busy with other
//! work (load average 7 to 8, so these are low), 10000 GPUs, median of 3: uneven ports 17.3 million
//! flows/s (5.8 s), equal ports 18.5 million flows/s (5.4 s), at 20 B a flow.

use divan::Bencher;
use divan::counter::ItemsCount;
use pathline_flow::Batch;

fn main() {
    // Nothing else prints the memory; divan counts only what the allocator sees.
    println!("state per flow: {} B (2 resources each)", Batch::<2>::bytes_per_flow());
    divan::main();
}

fn sizes() -> Vec<u32> {
    let largest = std::env::var("PATHLINE_BENCH_GPUS").ok().and_then(|n| n.parse().ok());
    vec![100, 1000, largest.unwrap_or(10_000)]
}

/// Every GPU sends to every other.
fn all_to_all(n: u32) -> Batch<2> {
    let mut batch = Batch::with_capacity(n as usize * (n as usize - 1));
    for src in 0..n {
        for dst in (0..n).filter(|&dst| dst != src) {
            batch.push([src, n + dst]);
        }
    }
    batch
}

/// The same port everywhere: one level settles all.
#[divan::bench(args = sizes(), sample_count = 3, sample_size = 1)]
fn uniform(bencher: Bencher, n: u32) {
    let batch = all_to_all(n);
    let capacities = vec![50.0; 2 * n as usize];
    bencher.counter(ItemsCount::new(batch.len())).bench_local(|| batch.solve(&capacities));
}

/// Each port has its own capacity, 25 to 50 GB/s: thousands of levels.
#[divan::bench(args = sizes(), sample_count = 3, sample_size = 1)]
fn uneven(bencher: Bencher, n: u32) {
    let batch = all_to_all(n);
    let capacities: Vec<f64> = (0..2 * n)
        .map(|port| {
            25.0 + f64::from(port.wrapping_mul(2_654_435_761) >> 8) * 25.0 / f64::from(1 << 24)
        })
        .collect();
    bencher.counter(ItemsCount::new(batch.len())).bench_local(|| batch.solve(&capacities));
}
