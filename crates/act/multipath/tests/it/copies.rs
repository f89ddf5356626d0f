//! Copies without faults: every byte, at the rate that the paths allow.

use pathline_multipath::{CopyMode, MultipathEngine, ProbeRequest, probe_paths};
use pathline_schema::{Bytes, GpuSet, Ns, Rate, Unit};

use crate::common::{CopyBuffers, PROBE_SIZES, carried, machine, plain, rate};

#[test]
fn relays_add_their_host_links() {
    let machine = machine("hgx-h200", Vec::new());
    let direct = plain(&machine, "numa0.pinned > gpu0.vram by relay@gpu0[gpu1,4MiB] x 1GiB");
    for (relays, count) in [("gpu1", 2.0), ("gpu1+gpu2", 3.0), ("gpu1+gpu2+gpu3", 4.0)] {
        for ends in ["numa0.pinned > gpu0.vram", "gpu0.vram > numa0.pinned"] {
            let flow = format!("{ends} by relay@gpu0[{relays},4MiB] x 1GiB");
            let (rate, report) = rate(&machine, &flow);
            println!("{flow}: {rate:.1} GB/s, plain {direct:.1}");
            assert_eq!(carried(&report), Bytes(1 << 30));
            assert!(report.lost.is_empty() && report.repeated == 0, "{report:?}");
            assert!(rate > direct * (1.0 + 0.3 * (count - 1.0)), "{flow}: {rate} of {direct}");
        }
    }
}

#[test]
fn all_gpus_get_the_same_bytes() {
    let machine = machine("hgx-h200", Vec::new());
    for others in ["gpu1", "gpu1+gpu2+gpu3", "gpu1+gpu2+gpu3+gpu4+gpu5+gpu6+gpu7"] {
        let flow = format!("numa0.pinned > gpu0.vram by copy-to-all@gpu0[{others},8MiB] x 1GiB");
        let (rate, report) = rate(&machine, &flow);
        println!("{flow}: {rate:.1} GB/s into each");
        // Each byte leaves the host once.
        assert_eq!(carried(&report), Bytes(1 << 30));
        assert!(rate > 60.0, "{flow}: {rate}");
    }
}

#[test]
fn pairs_of_a_mesh_gain() {
    let machine = machine("mi250x", Vec::new());
    for flow in [
        "gpu0.vram > gpu1.vram by relay@gpu1[gpu2+gpu6,8MiB,blit] x 512MiB",
        "gpu0.vram > gpu2.vram by relay@gpu2[gpu3+gpu5+gpu6+gpu7,4MiB,blit] x 1GiB",
        "gpu0.vram > gpu5.vram by relay@gpu5[gpu2+gpu3+gpu4+gpu7,2MiB,blit] x 1GiB",
    ] {
        let direct = plain(&machine, flow);
        let (rate, report) = rate(&machine, flow);
        println!("{flow}: {rate:.1} GB/s, plain {direct:.1}, {:?}", report.paths);
        assert!(rate > 2.0 * direct, "{rate} of {direct}");
    }
}

#[test]
fn odd_sizes_and_copies_at_the_same_time_arrive() {
    let machine = machine("hgx-h200", Vec::new());
    let flows: Vec<String> = [1, 4095, 65_537, 1 << 20, (8 << 20) + 3, (96 << 20) - 1]
        .iter()
        .enumerate()
        .map(|(nth, bytes)| {
            let (to, relay) = (nth % 4, (nth + 1) % 4);
            format!("numa0.pinned > gpu{to}.vram by relay@gpu{to}[gpu{relay},1MiB] x {bytes}B")
        })
        .collect();
    let buffers: Vec<CopyBuffers<'_>> =
        flows.iter().map(|flow| CopyBuffers::new(&machine, flow).unwrap()).collect();
    let mut engine = MultipathEngine::new(&machine);
    let ids: Vec<_> = buffers.iter().map(|b| engine.start(b.request.clone()).unwrap()).collect();
    for (id, buffers) in ids.into_iter().zip(&buffers) {
        let report = engine.wait(id).unwrap();
        assert_eq!(carried(&report), buffers.request.bytes);
        buffers.check().unwrap();
    }
    assert_eq!(engine.running(), 0);
}

/// One fill in flight: the relay's host link is idle between a fill's end and the next one's start, so the copy
/// gains less, and still half as much again.
#[test]
fn shared_relays_leave_gaps() {
    let machine = machine("hgx-h200", Vec::new());
    let flow = "numa0.pinned > gpu0.vram by relay@gpu0[gpu1,2MiB] x 256MiB";
    let direct = plain(&machine, flow);
    let (usual, _) = rate(&machine, flow);
    let buffers = CopyBuffers::new(&machine, flow).unwrap();
    let mut engine = MultipathEngine::new(&machine);
    engine.share_relays(GpuSet::EMPTY.with(1));
    let start = machine.clock.now();
    let report = engine.copy(buffers.request.clone()).unwrap();
    let shared = Rate::of(buffers.request.bytes, machine.clock.now() - start).gbs();
    buffers.check().unwrap();
    assert_eq!(carried(&report), buffers.request.bytes);
    println!("plain {direct:.1}, usual {usual:.1}, shared {shared:.1} GB/s");
    assert!(shared < usual && shared > 1.5 * direct, "{shared} of {usual}, plain {direct}");
}

#[test]
fn a_probe_finds_what_relays_gain() {
    let machine = machine("hgx-h200", Vec::new());
    let mut engine = MultipathEngine::new(&machine);
    let request = ProbeRequest {
        src: Unit::Numa(0),
        dst: vec![Unit::Gpu(0)],
        helpers: vec![0, 1, 2, 3],
        chunk: Bytes::mib(4),
        sizes: PROBE_SIZES.map(Bytes::mib),
        budget: Ns(2e9),
    };
    let start = machine.clock.now();
    let probe = probe_paths(&machine, &mut engine, &request).unwrap();
    assert!(machine.clock.now() - start < Ns(2e9));
    // GPU 0 is an end: one, two and three relays remain.
    assert_eq!(probe.options.len(), 3);
    let chosen =
        probe.choose(Bytes::gib(1), (1.15, GpuSet::EMPTY), (CopyMode::Driven, Ns::ZERO)).unwrap();
    let flow = format!("numa0.pinned > gpu0.vram by relay@gpu0[{}] x 1GiB", chosen.paths);
    let (rate, _) = rate(&machine, &flow);
    let predicted = chosen.driven.rate(Bytes::gib(1), Ns::ZERO).gbs();
    println!("{flow}: predicted {predicted:.1}, measured {rate:.1} GB/s");
    assert!((predicted / rate - 1.0).abs() < 0.05, "{predicted} of {rate}");
    let all = ProbeRequest { dst: vec![Unit::Gpu(2), Unit::Gpu(0)], ..request };
    let probe = probe_paths(&machine, &mut engine, &all).unwrap();
    assert_eq!(probe.options.len(), 1);
    assert!(
        probe.choose(Bytes::gib(1), (1.15, GpuSet::EMPTY), (CopyMode::Driven, Ns::ZERO)).is_some(),
        "{probe:?}"
    );
}

/// An event that is recorded next to copies waits for those of other streams on their engine: 16 MiB at 55 GB/s
/// are 0.3 ms. Between the release of the gate and the end the host's clock passes at most that time more which
/// the last look takes. Three repetitions take three times as long as one, give or take a tenth.
#[test]
fn a_timed_copy_takes_the_time_that_passes() {
    let machine = machine("hgx-h200", Vec::new());
    for flow in [
        "numa0.pinned > gpu0.vram by relay@gpu0[gpu1,4MiB] x 256MiB",
        "gpu0.vram > numa0.pinned by relay@gpu0[gpu1,4MiB] x 256MiB",
        "numa0.pinned > gpu0.vram by copy-to-all@gpu0[gpu1,4MiB] x 256MiB",
    ] {
        let buffers = CopyBuffers::new(&machine, flow).unwrap();
        let mut engine = MultipathEngine::new(&machine);
        let mut once = 0.0;
        for reps in [1, 1, 3] {
            let gate = machine.gate().unwrap();
            let id = engine.start_timed(buffers.request.clone(), &gate, reps).unwrap();
            let start = machine.clock.now();
            gate.release().unwrap();
            let elapsed = engine.wait(id).unwrap().elapsed.unwrap();
            let passed = machine.clock.now() - start;
            let late = (passed - elapsed).0;
            assert!((-1.0..20e3).contains(&late), "{flow}: {elapsed} of {passed}");
            once = if reps == 1 { elapsed.0 } else { once };
            assert!((elapsed.0 / once / reps as f64 - 1.0).abs() < 0.1, "{flow}: {reps} of {once}");
        }
    }
}
