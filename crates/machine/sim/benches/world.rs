//! How fast virtual time goes by.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run should stop")]

use divan::Bencher;
use divan::counter::ItemsCount;
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CopyChoice, Machine};
use pathline_schema::{Bytes, MemKind, Place, Unit};

const SIZE: Bytes = Bytes::mib(256);

fn main() {
    divan::main();
}

fn mi250x() -> Machine {
    let desc = MachineDesc::preset("mi250x").expect("the preset parses");
    pathline_sim::machine(&desc, RuntimeEnv::default(), 1).expect("it makes a machine")
}
fn vram(gpu: u32) -> Place {
    Place::new(Unit::Gpu(gpu), MemKind::Vram)
}

/// One sample of one flow: a gate, two events and `reps` copies back to back.
#[divan::bench(args = [1, 100])]
fn copies_in_a_row(bencher: Bencher<'_, '_>, reps: usize) {
    let m = mi250x();
    let (src, dst) = (m.buffer(vram(0), SIZE).unwrap(), m.buffer(vram(1), SIZE).unwrap());
    let gpu = m.gpu(0).unwrap();
    let stream = gpu.stream().unwrap();
    let (start, end) = (gpu.event().unwrap(), gpu.event().unwrap());
    bencher.counter(ItemsCount::new(reps)).bench_local(|| {
        let gate = m.gate().unwrap();
        stream.hold(&gate).unwrap();
        stream.record(&start).unwrap();
        for _ in 0..reps {
            stream.copy(dst.address(), src.address(), SIZE, CopyChoice::Auto).unwrap();
        }
        stream.record(&end).unwrap();
        gate.release().unwrap();
        stream.wait().unwrap();
        end.since(&start).unwrap()
    });
}

/// All 56 pairs at once: rates are recomputed whenever one of them ends.
#[divan::bench]
fn all_pairs_at_once(bencher: Bencher<'_, '_>) {
    let m = mi250x();
    let gpu = |n| m.gpu(n).unwrap();
    let pairs = (0..8).flat_map(|a| (0..8).filter(move |&b| a != b).map(move |b| (a, b)));
    let lanes: Vec<_> = pairs
        .map(|(a, b)| {
            let (src, dst) = (m.buffer(vram(a), SIZE).unwrap(), m.buffer(vram(b), SIZE).unwrap());
            (src, dst, gpu(a).stream().unwrap())
        })
        .collect();
    bencher.counter(ItemsCount::new(lanes.len())).bench_local(|| {
        let gate = m.gate().unwrap();
        for (src, dst, stream) in &lanes {
            stream.hold(&gate).unwrap();
            stream.copy(dst.address(), src.address(), SIZE, CopyChoice::Auto).unwrap();
        }
        gate.release().unwrap();
        lanes.iter().for_each(|(_, _, stream)| stream.wait().unwrap());
    });
}
