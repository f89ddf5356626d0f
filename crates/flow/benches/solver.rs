//! The max-min solver at the size of a cluster: `cargo bench -p pathline-flow --bench solver`.
//!
//! All-to-all over `n` GPUs: each flow passes its sender's port and its receiver's port. Making the
//! flows is timed with the rest. `PATHLINE_BENCH_GPUS` sets the largest size (default 10240: 104.8
//! million flows). Figures are in docs/model.md, "Speed".

use divan::Bencher;
use divan::counter::ItemsCount;
use pathline_flow::Batch;

fn main() {
    // Nothing else prints the memory; divan counts only what the allocator sees.
    println!("state per flow: {} B (2 resources each)", Batch::<2>::bytes_per_flow());
    divan::main();
    if let Some(peak) = peak_memory() {
        println!("peak memory of this process: {peak}");
    }
    if let Some(seconds) = processor_seconds() {
        println!("processor time of this process: {seconds:.1} s");
    }
}

/// What this process used of the processors, user and system: on a machine that does other things,
/// too, the time on the wall says little. With `uneven --sample-count 1` it is that of one solve.
fn processor_seconds() -> Option<f64> {
    // proc(5): fields 14 and 15 in ticks, of which Linux shows 100 a second. The name, in brackets,
    // may have blanks.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Some(ticks.sum::<Result<u64, _>>().ok()? as f64 / 100.0)
}

/// The most memory that this process had at once, as the kernel counts it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().to_owned())
}

fn sizes() -> Vec<u32> {
    let largest = std::env::var("PATHLINE_BENCH_GPUS").ok().and_then(|n| n.parse().ok());
    vec![100, 1000, largest.unwrap_or(10_240)]
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

fn flows(n: u32) -> ItemsCount {
    ItemsCount::new(u64::from(n) * u64::from(n - 1))
}

/// The same port everywhere: one level settles all.
#[divan::bench(args = sizes(), sample_count = 3, sample_size = 1)]
fn uniform(bencher: Bencher, n: u32) {
    let capacities = vec![50.0; 2 * n as usize];
    bencher.counter(flows(n)).bench_local(|| all_to_all(n).solve(&capacities));
}

/// Each port has its own capacity, 25 to 50 GB/s: thousands of levels.
#[divan::bench(args = sizes(), sample_count = 3, sample_size = 1)]
fn uneven(bencher: Bencher, n: u32) {
    let capacities: Vec<f64> = (0..2 * n)
        .map(|port| {
            25.0 + f64::from(port.wrapping_mul(2_654_435_761) >> 8) * 25.0 / f64::from(1 << 24)
        })
        .collect();
    bencher.counter(flows(n)).bench_local(|| all_to_all(n).solve(&capacities));
}

/// Making the flows alone, which the others include.
#[divan::bench(args = sizes(), sample_count = 3, sample_size = 1)]
fn build(bencher: Bencher, n: u32) {
    bencher.counter(flows(n)).bench_local(|| all_to_all(n));
}
