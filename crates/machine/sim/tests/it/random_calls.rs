//! Any sequence of calls ends in results or errors, never in a panic or a hang.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{
    CopyChoice, EventId, GateId, KernelId, KernelLaunch, StreamId, TeamId, TeamWork,
};
use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, KernelOp, KernelVariant, MemKind, MigrateHow, Ns, Place, Unit,
};
use pathline_sim::{SimOptions, machine_with};
use proptest::prelude::*;

/// The `n`th of what exists, or a handle of nothing.
fn pick(from: &[u64], n: u64) -> u64 {
    from.get(n as usize % (from.len() + 1)).copied().unwrap_or(n)
}

/// The preset, where one engine of each GPU serves a stream at a time: copies to two other GPUs, in
/// from one domain and out to it.
fn serial() -> MachineDesc {
    let (_, text) = MachineDesc::presets()[0];
    let mut text = format!("{text}\n[measured]\nfrom = \"a test\"\n");
    for g in 0..8 {
        let vram = format!("gpu{g}.vram");
        let to = [(g + 1) % 8, (g + 3) % 8].map(|b| (vram.clone(), format!("gpu{b}.vram")));
        let host = || "numa0.pinned".to_owned();
        let ends = to.into_iter().chain([(host(), vram.clone()), (vram.clone(), host())]);
        let flows: Vec<String> =
            ends.map(|(src, dst)| format!("\"{src} > {dst} by dma@gpu{g}\"")).collect();
        for flow in &flows {
            text += &format!("\n[[path]]\nflow = {flow}\ngbs = 30\nstart_us = 2\n");
        }
        text += &format!("\n[[queue]]\nname = \"gpu{g}\"\nflows = [{}]\n", flows.join(", "));
    }
    MachineDesc::parse("serial.toml", &text).expect("it is as described")
}

const LOOPS: [CpuOp; 6] =
    [CpuOp::Read, CpuOp::Write, CpuOp::Copy, CpuOp::Triad, CpuOp::Chase, CpuOp::Touch];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Host time goes forward with every call; when all gates are open everything can be waited
    /// for; and when all is destroyed and freed, all memory is back.
    #[test]
    fn no_sequence_breaks_the_world(
        calls in prop::collection::vec((0u8..22, any::<u8>(), any::<u8>(), 0u64..40_000), 1..300),
        xnack in prop::option::of(any::<bool>()),
        takes_turns in any::<bool>(),
    ) {
        let desc = if takes_turns { serial() } else { MachineDesc::preset("mi250x").unwrap() };
        let switches = RuntimeEnv { xnack, ..RuntimeEnv::default() };
        let m = machine_with(&desc, switches, &SimOptions::default()).unwrap();
        let (d, h) = (m.driver().unwrap(), m.host.as_ref());
        let (mut streams, mut events, mut gates, mut teams, mut team_gates, mut kernels) =
            (vec![], vec![], vec![], vec![], vec![], vec![]);
        let (mut theirs, mut ours): (Vec<u64>, Vec<u64>) = (vec![], vec![]);
        let free = |gpu| d.memory(gpu).unwrap().0;
        let before: Vec<Bytes> = (0..8).map(free).collect();
        let mut last = m.clock.now();
        for (call, a, b, size) in calls {
            let (x, y, gpu) = (u64::from(a), u64::from(b), u32::from(a % 9));
            let all: Vec<u64> = theirs.iter().chain(&ours).copied().collect();
            let (src, dst, bytes) = (pick(&all, x), pick(&all, y) + size % 64, Bytes(size));
            let stream = StreamId(pick(&streams, x));
            let (event, gate) = (EventId(pick(&events, y)), GateId(pick(&gates, y)));
            match call {
                0 => streams.extend(d.stream_create(gpu).map(|s| s.0)),
                1 => events.extend(d.event_create(gpu).map(|e| e.0)),
                2 => gates.extend(d.gate_create().map(|g| g.0)),
                3 => {
                    let mem = [MemKind::Vram, MemKind::Managed, MemKind::Pinned][usize::from(b % 3)];
                    let numa = if b & 8 == 0 { Unit::Gpu(gpu) } else { Unit::Numa(gpu % 5) };
                    theirs.extend(d.alloc(Place::new(numa, mem), bytes));
                }
                4 => ours.extend(h.alloc(gpu % 5, [MemKind::Paged, MemKind::Huge][usize::from(b % 2)], bytes)),
                5 => drop(d.free(src)),
                6 => drop(h.free(src)),
                7 => drop(d.copy(stream, dst, src, bytes, CopyChoice::Auto)),
                8 => drop(d.copy(stream, dst, src, bytes, CopyChoice::Blit)),
                9 => drop(d.gate_hold(gate, stream)),
                10 => drop(d.gate_release(gate)),
                11 => drop(d.gate_destroy(gate)),
                12 => drop(d.event_record(event, stream)),
                13 => drop(d.stream_wait_event(stream, event)),
                14 => drop(d.stream_wait(stream)),
                15 => drop(d.stream_idle(stream)),
                16 => {
                    let variant = KernelVariant::standard(KernelOp::ALL[usize::from(b) % KernelOp::ALL.len()]);
                    kernels.extend(d.kernel(gpu, &variant).map(|k| k.0));
                }
                17 => drop(d.launch(stream, KernelId(pick(&kernels, y)), &KernelLaunch { src, dst, bytes })),
                18 => {
                    let to = Place::new(if b & 1 == 0 { Unit::Gpu(gpu) } else { Unit::Numa(gpu % 5) }, MemKind::Managed);
                    let how = [MigrateHow::Fault, MigrateHow::Prefetch][usize::from(b / 2 % 2)];
                    drop(d.migrate(stream, src, bytes, to, how));
                }
                19 => drop(d.fill(dst, bytes, y, b & 1 == 0)),
                20 => {
                    teams.extend(h.team_create(gpu % 5, u32::from(b % 20)).map(|t| t.0));
                    team_gates.extend(h.gate_create().map(|g| g.0));
                }
                _ => {
                    let work = CpuWork { op: LOOPS[usize::from(b % 6)], how: CpuHow::Plain };
                    let work = TeamWork { work, src, dst, bytes, reps: y % 4, isolated: false, chase_steps: None };
                    drop(h.submit(TeamId(pick(&teams, x)), GateId(pick(&team_gates, y)), &work));
                }
            }
            let now = m.clock.now();
            // A nanosecond, as exactly as a sum of many fractions is.
            prop_assert!(now - last > Ns(0.999));
            last = now;
        }
        gates.iter().for_each(|&g| drop(d.gate_destroy(GateId(g))));
        team_gates.iter().for_each(|&g| drop(h.gate_destroy(GateId(g))));
        for &s in &streams {
            prop_assert_eq!(d.stream_wait(StreamId(s)), Ok(()));
            prop_assert_eq!(d.stream_destroy(StreamId(s)), Ok(()));
        }
        for &t in &teams {
            prop_assert_eq!(h.team_destroy(TeamId(t)), Ok(()));
        }
        theirs.iter().for_each(|&address| drop(d.free(address)));
        let after: Vec<Bytes> = (0..8).map(free).collect();
        prop_assert_eq!(before, after);
    }
}
