//! Drawn results, failures and batches, and the warnings, retired GPUs and pooled buffers that they lead to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{Machine, pattern};
use pathline_schema::{
    Bytes, Case, GpuFacts, GpuIdentity, GpuReadings, GpuState, MeasuredCase, PcieLink, Rank,
    RankMember, TimerKind, Topology, Unit, VerifyResult,
};

use crate::device_failures::DeviceFailures;
use crate::device_failures::tests::member as one_gpu;
use crate::library_failures::LibraryFailures;
use crate::pool::{self, BufferPool};
use crate::result_warnings;
use crate::unlike_peers::tests::measured;

/// A number of a scenario.
fn draw(seed: u64, nth: u64, below: u64) -> u64 {
    (pattern::word(seed, nth) >> 16) % below
}

fn machine() -> Machine {
    let desc = MachineDesc::preset("gh200x4").unwrap();
    pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap()
}

fn case(text: &str) -> Case {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn warned(seed: u64) -> String {
    let text = [
        "gpu0.vram > gpu1.vram by dma@gpu0 x 64MiB",
        "gpu0.vram > numa0.pinned by dma@gpu0 x 8MiB",
        "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t2] x 4KiB",
        "numa1.pinned > gpu0.vram by dma@gpu0 x 1MiB",
        "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 4KiB",
        "numa0.managed > gpu0.managed by migrate@gpu0[fault] x 64MiB",
        "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t2] x 4KiB isolated",
    ][seed as usize % 7];
    let mut m: MeasuredCase = measured(text, 1.0);
    if draw(seed, 1, 4) == 0 {
        m.verdict = VerifyResult::Unverified("nothing reads it".into());
    }
    let each = [900.0, 30e3, 140e3, 3e6][draw(seed, 2, 4) as usize];
    for series in &mut m.series {
        let shift = |nth: u64| match draw(seed, 3, 5) {
            0 if nth >= 15 => [1.05, 1.12, 1.3][draw(seed, 4, 3) as usize],
            1 if nth >= 9 => 1.04,
            2 if nth.is_multiple_of(2) => 1.2,
            _ => 1.0,
        };
        let sample = |nth: u64| each * shift(nth) * (1.0 + draw(seed, 30 + nth, 100) as f64 / 2e4);
        series.samples_ns = (0..18).map(sample).collect();
        series.visits = vec![3; 6];
        series.reps = [1, 4, 1000][draw(seed, 5, 3) as usize];
        series.timer = [TimerKind::DeviceEvents, TimerKind::Threads, TimerKind::Host]
            [draw(seed, 6, 3) as usize];
        series.huge_share = (draw(seed, 7, 4) == 0).then_some(0.377);
        series.pages = BTreeMap::from([(0, draw(seed, 8, 3)), (1, draw(seed, 9, 3))]);
        series.moved_bytes = Bytes(series.flow.bytes.0 * series.reps);
        let lost = [0, 1, 2, 4, 9][draw(seed, 10, 5) as usize];
        series.off_cpu_ns =
            (0..18).map(|nth| if nth % 10 < lost { each as u64 / 20 } else { 0 }).collect();
    }
    let state = |errors: u64| GpuState {
        ecc_corrected: Some(errors),
        ecc_uncorrected: (errors > 1).then_some(0),
        link_errors: Some(errors / 2),
        pcie_replays: Some(7 - errors),
        ..GpuState::default()
    };
    let during = GpuState {
        throttle: Some(
            [vec![], vec!["power".into()], vec!["power".into(), "heat".into()]]
                [draw(seed, 11, 3) as usize]
                .clone(),
        ),
        sm_clock_mhz: Some(1500),
        memory_clock_mhz: Some(2000),
        pcie: Some(PcieLink {
            speed_gts: 16.0,
            width: 8,
            max_speed_gts: 16.0,
            max_width: [8, 16][draw(seed, 12, 2) as usize],
        }),
        ..GpuState::default()
    };
    let readings =
        GpuReadings { before: state(0), during: Some(during), after: state(draw(seed, 13, 4)) };
    m.gpus.insert(Unit::Gpu(draw(seed, 14, 2) as u32), readings);
    let facts = GpuFacts {
        max_sm_clock_mhz: Some(1980),
        max_memory_clock_mhz: Some(2000),
        ..GpuFacts::default()
    };
    let overhead = ["events", "threads", "host", "repetition", "barrier", "device-events"];
    let overhead =
        overhead.map(|kind| (kind.to_owned(), [5.0, 40.0, 600.0][draw(seed, 15, 3) as usize]));
    let notes = result_warnings::about(
        &m,
        &BTreeMap::from(overhead),
        &BTreeMap::from([(Unit::Gpu(0), facts)]),
    );
    let notes = notes.iter().map(|note| format!("\n  {}: {:.140}", note.code, note.text));
    format!("{seed}{}\n", notes.collect::<String>())
}

/// Which GPUs, pairs and operations are given up after drawn errors, and what is copied to find out.
fn retired(seed: u64) -> String {
    let on_node = |rank| if seed % 3 == 1 { rank / 3 } else { 0 };
    let member = |rank: u32| RankMember {
        gpu_identities: vec![GpuIdentity {
            pci: format!("0000:0{}:00.0", rank % 3).parse().unwrap(),
            host_index: 0,
        }],
        host: format!("host{}", rank / 3),
        numa: rank % 2,
        ..one_gpu(rank, on_node(rank), if seed.is_multiple_of(2) { rank } else { 0 })
    };
    let members: Vec<RankMember> =
        (0..if seed.is_multiple_of(3) { 0 } else { 4 }).map(member).collect();
    let topology = if seed.is_multiple_of(4) { machine().topology } else { Topology::default() };
    let mut failures = DeviceFailures::new(&members, &topology);
    let mut libraries = LibraryFailures::default();
    let mut text = format!("{seed}:");
    for step in 0..9 {
        let (a, b) = (draw(seed, 10 * step, 3), draw(seed, 10 * step + 1, 3));
        let case = match draw(seed, 10 * step + 2, 4) {
            0 => case(&format!("numa0.pinned > gpu{b}.vram by dma@gpu{b} x 1MiB")),
            1 if !members.is_empty() && a != b => {
                case(&format!("r{a}.gpu{a}.vram > r{b}.gpu{b}.vram by mpi@gpu{a}[send-w64] x 1MiB"))
            }
            _ => case(&format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x 1MiB")),
        };
        let failed: &[Rank] = if draw(seed, 10 * step + 3, 4) == 0 { &[Rank(1)] } else { &[] };
        let (error, between) = (format!("e{step}"), failures.is_between(&case));
        let found = match draw(seed, 10 * step + 4, 5) {
            0 => {
                failures.note_work(&case);
                Vec::new()
            }
            1 => {
                let copies = failures.copies(&case, failed).unwrap_or_default();
                let some = copies.len().saturating_sub(draw(seed, step, 2) as usize);
                failures.note_copies(&copies[..some]);
                copies.iter().take(some).map(|copy| (copy.to_string(), String::new())).collect()
            }
            2 => libraries.count(&case, &error),
            _ => failures.count(&case, &error, failed),
        };
        let known =
            (failures.retired(&case), libraries.retired(&case), LibraryFailures::concerns(&case));
        let _ = write!(text, " {a}{b} {between} {found:?} {known:?};");
    }
    text + "\n"
}

/// The buffers that batches of drawn cases leave in a pool that holds a few of them.
fn pooled(seed: u64) -> String {
    let machine = machine();
    let mut pool = BufferPool::new(&machine);
    let mut text = format!("{seed}:");
    for batch in 0..7 {
        let of = |nth: u64| {
            let (a, b) = (draw(seed, 10 * batch + nth, 3), draw(seed, 10 * batch + nth + 3, 3));
            let host =
                ["pinned", "huge", "paged", "managed"][draw(seed, 10 * batch + nth, 4) as usize];
            case(&match draw(seed, 10 * batch + nth + 6, 3) {
                0 => format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x {}MiB", 1 << a),
                1 if host == "managed" => format!(
                    "numa0.managed > gpu{a}.vram by kernel@gpu{a}[copy-w16-u4-b256-g2sm] x 2MiB"
                ),
                _ => format!("numa{b}.{host} > gpu{a}.vram by dma@gpu{a} x {}MiB", 1 << b),
            })
        };
        let cases = [of(0), of(1)];
        let needed: BTreeMap<_, _> = cases.iter().flat_map(pool::buffers).collect();
        let room = Bytes::mib(14).0;
        pool.begin(&needed, |all| all.values().map(|bytes| bytes.0).sum::<u64>() <= room);
        let got = needed.keys().filter(|key| pool.get(**key).is_ok()).count();
        let shares: Vec<_> = cases
            .iter()
            .map(|case| (pool.huge_share(&case.timed[0], 0), pool.page_domains(&case.timed[0], 0)))
            .collect();
        let _ = write!(
            text,
            " {got} {shares:?} {:?};",
            machine
                .driver()
                .and_then(|driver| driver.memory(0))
                .map(|(free, all)| (all.0 - free.0) >> 20)
        );
        if draw(seed, 10 * batch + 9, 6) == 0 {
            pool.free_all();
        }
    }
    text + "\n"
}

#[test]
fn drawn_results_and_failures_match_their_snapshot() {
    let mut text = String::new();
    text.extend((0..35).map(warned));
    text.extend((0..24).map(retired));
    text.extend((0..12).map(pooled));
    insta::assert_snapshot!(text);
}
