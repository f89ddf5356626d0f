//! Random copies in virtual time: as planned they are never slower than the plain copy, and no byte is lost.

use std::collections::BTreeMap;

use pathline_flow::{MachineDesc, Network, PlanRequest, RuntimeEnv, plan_paths};
use pathline_hal::pattern;
use pathline_multipath::{CopyMode, MultipathEngine, ProbeRequest, probe_paths};
use pathline_schema::{Bytes, Flow, GpuSet, MemKind, Mover, Ns, Place, Unit};

use crate::common::{CallerStream, CopyBuffers, PROBE_SIZES, count, machine, plain, rate};

/// Ends of the `draw`th copy of a node of eight GPUs: host to GPU, GPU to host, GPU to GPU.
fn ends(draw: u64) -> (Place, Place) {
    let word = |nth: u64| pattern::word(draw, nth) >> 16;
    let gpu = (word(1) % 8) as u32;
    let vram = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
    let host = Place::new(Unit::Numa(0), MemKind::Pinned);
    match word(0) % 3 {
        0 => (host, vram(gpu)),
        1 => (vram(gpu), host),
        _ => (vram((gpu + 1 + (word(2) % 7) as u32) % 8), vram(gpu)),
    }
}

/// `PATHLINE_TEST_COPIES=10000` for all of the goal.
#[test]
fn planned_copies_are_not_slower_than_plain_ones() {
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let helpers: GpuSet = (0..8).collect();
    for preset in ["hgx-h200", "mi250x", "mi300x"] {
        let desc = MachineDesc::preset(preset).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        let machine = machine(preset, Vec::new());
        for draw in 0..count("PATHLINE_TEST_COPIES", 600) / 3 {
            let (src, dst) = ends(draw);
            // 64 KiB to 1 GiB, as many in each factor of two.
            let magnitude = 16.0 + (pattern::word(draw, 9) >> 40) as f64 / (1 << 24) as f64 * 14.0;
            let bytes = Bytes(magnitude.exp2() as u64);
            let request = PlanRequest::between(src, dst, bytes, helpers);
            let plan = plan_paths(&network, &request).unwrap();
            let Mover::Relay { .. } = plan.flow.by else { continue };
            let text = plan.flow.to_string();
            let ratio = rate(&machine, &text).0 / plain(&machine, &text);
            let kind = match (src.unit.gpu(), dst.unit.gpu()) {
                (None, _) => "in",
                (_, None) => "out",
                _ => "between",
            };
            let class = format!("{preset} {kind} 2^{:02.0}", magnitude.floor());
            ratios.entry(class).or_default().push(ratio);
        }
    }
    for (class, ratios) in &mut ratios {
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        println!("{class}: {} copies, median {median:.2}, least {:.2}", ratios.len(), ratios[0]);
        assert!(median >= 0.98, "{class}: {median}");
        assert!(ratios[0] >= 0.9, "{class}: {}", ratios[0]);
    }
    assert!(ratios.len() > 10, "{ratios:?}");
}

/// Enqueued copies that a probe chooses: `PATHLINE_TEST_COPIES=10000` for all of the goal.
#[test]
fn enqueued_copies_are_not_slower_than_plain_ones() {
    let (mut copies, mut slow, mut least) = (0, 0, f64::INFINITY);
    let wanted = count("PATHLINE_TEST_COPIES", 48);
    // Seven relays take a second to probe.
    let relays = if wanted > 48 { 8 } else { 2 };
    for preset in ["hgx-h200", "mi250x", "mi300x"] {
        let machine = machine(preset, Vec::new());
        let mut engine = MultipathEngine::new(&machine);
        for (src, dst) in [(None, Some(0)), (Some(0), None), (Some(0), Some(1)), (Some(2), Some(5))]
        {
            let unit = |gpu: Option<u32>| gpu.map_or(Unit::Numa(0), Unit::Gpu);
            let at = dst.or(src).unwrap();
            let request = ProbeRequest {
                src: unit(src),
                dst: vec![unit(dst)],
                helpers: (0..relays).collect(),
                chunk: Bytes::mib(2),
                sizes: PROBE_SIZES.map(Bytes::mib),
                budget: Ns::secs(1.0),
            };
            let probe = probe_paths(&machine, &mut engine, &request).unwrap();
            let caller = CallerStream::new(&machine, at, 1);
            for draw in 0..wanted / 12 {
                // 4 MiB to 1 GiB, as many in each factor of two.
                let magnitude =
                    22.0 + (pattern::word(draw, 9) >> 40) as f64 / (1 << 24) as f64 * 8.0;
                let bytes = Bytes(magnitude.exp2() as u64);
                let mode = (CopyMode::Enqueued, Ns::ZERO);
                let Some(option) = probe.choose(bytes, (1.15, GpuSet::EMPTY), mode) else {
                    continue;
                };
                let ends = format!("{} > {}", place(unit(src)), place(unit(dst)));
                let flow = format!("{ends} by relay@gpu{at}[{}] x {}B", option.paths, bytes.0);
                let buffers = CopyBuffers::new(&machine, &flow).unwrap();
                let start = machine.clock.now();
                caller.copy(&mut engine, &buffers.request, &option.rates).unwrap();
                caller.stream.wait().unwrap();
                let elapsed = machine.clock.now() - start;
                buffers.check().unwrap();
                let ratio = bytes.as_f64() / elapsed.0 / plain(&machine, &flow);
                copies += 1;
                slow += u64::from(ratio < 0.98);
                least = least.min(ratio);
            }
        }
    }
    println!("{copies} copies over several paths, {slow} below 0.98 of plain, least {least:.2}");
    assert!(copies > 10 && slow == 0, "{slow} of {copies}, least {least}");
}

fn place(unit: Unit) -> Place {
    Place::new(unit, if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned })
}

/// Chunks of 64 KiB to 1 MiB, two or three copies at a time; every byte of each is compared.
/// `PATHLINE_TEST_CHUNKS=1000000` for all of the goal.
#[test]
fn many_chunks_lose_no_byte() {
    let wanted = count("PATHLINE_TEST_CHUNKS", 10_000);
    let machine = machine("mi250x", Vec::new());
    let mut engine = MultipathEngine::new(&machine);
    let (mut chunks, mut round) = (0, 0);
    while chunks < wanted {
        let mut copies = Vec::new();
        for nth in 0..2 + round % 2 {
            let word = |field: u64| pattern::word(round * 8 + nth, field) >> 16;
            let (src, dst) = ends(round * 8 + nth);
            let at = dst.unit.gpu().or(src.unit.gpu()).unwrap();
            let relays: GpuSet = (0..8)
                .filter(|&gpu| word(20 + u64::from(gpu)) % 3 == 0)
                .filter(|&gpu| ![src.unit.gpu(), dst.unit.gpu()].contains(&Some(gpu)))
                .collect();
            if relays.is_empty() {
                continue;
            }
            let chunk = 64 << (word(5) % 5);
            let bytes = 1 + word(6) % (64 << 20);
            let text =
                format!("{src} > {dst} by relay@gpu{at}[{relays},{chunk}KiB,blit] x {bytes}B");
            let buffers = CopyBuffers::new(&machine, &text).unwrap();
            let id = engine.start(buffers.request.clone()).unwrap();
            chunks += bytes / (chunk << 10);
            copies.push((id, buffers, text.parse::<Flow>().unwrap()));
        }
        for (id, buffers, flow) in copies {
            engine.wait(id).unwrap_or_else(|error| panic!("{flow}: {error}"));
            buffers.check().unwrap_or_else(|error| panic!("{flow}: {error}"));
        }
        round += 1;
    }
}
