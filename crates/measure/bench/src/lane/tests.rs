//! What each kind of lane states about itself, and what its check sees.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallResult, Machine};
use pathline_schema::{Case, CpuSet, Severity, VerifyResult};
use pathline_sim::SimOptions;

use super::{BoundLane, LaneSample};
use crate::bind::bind;
use crate::message_lanes;
use crate::pool::BufferPool;

/// Preset, case, and what its lane states: timer and engine; least to most operations of a sample; then what differs
/// from other lanes. Last what its check compares: `bytes` that an operation writes, the `source` that it reads,
/// bytes that `land` writes, or nothing.
///
/// 2^20 = 1048576 operations at most, 256 calls; a staged copy of 16 MiB is 4 chunks of 3 operations and
/// one of 3 bytes more 5, of the 2^64 - 1 that a modelled stream holds. A pointer chase follows 2048 loads of 128 B on a GPU, 65536 on a CPU. A sample of
/// 2 workers with 4 slots has 16 x 8 = 128 I/Os at least; 8 slots of 4 MiB are 4 times 8 MiB: 0.4 x 4 = 1.6 budgets.
/// 2 workers create each of 4 x 256 files once: 2048.
const LANES: [(&str, &str, &str); 28] = [
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 1048577B",
        "DeviceEvents copy engine 1..1048576 events blocks; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 4KiB isolated",
        "DeviceEvents copy engine 1..1048576 once adds-up events blocks; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by blit@gpu0 x 1MiB",
        "DeviceEvents blit kernel 1..1048576 events blocks; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > numa0.paged by dma@gpu0 x 1MiB",
        "Host staged copy 1..1048576 blocks; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by kernel@gpu0[copy-w16-u4-b256-g2sm] x 1MiB",
        "DeviceEvents kernel 1..1048576 events blocks; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 1MiB",
        "DeviceEvents kernel 1..1048576 events; source",
    ),
    (
        "mi250x",
        "gpu0.reg > gpu0.vram by kernel@gpu0[write-w16-u4-b256-g2sm] x 1MiB",
        "DeviceEvents kernel 1..1048576 events; bytes",
    ),
    (
        "mi250x",
        "gpu1.vram > gpu0.reg by kernel@gpu0[chase-w8-u1-b1-g1] x 1MiB",
        "DeviceEvents kernel 1..1048576 2048 steps of 256KiB 10.0 ms events; nothing",
    ),
    (
        "hgx-h200",
        "gpu0.vram > gpu1.vram by batch@gpu0[4] x 1048579B",
        "DeviceEvents copy engine 1..1048576 events blocks; bytes",
    ),
    (
        "mi250x",
        "numa0.pinned > gpu0.vram by blocks@gpu0[4-each] x 1MiB",
        "Host copy engine 1..1048576; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > numa0.pinned by blocks@gpu0[4-g8] x 1MiB",
        "Host kernel 1..1048576; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by staged@gpu0[numa0] x 16777219B",
        "DeviceEvents copies staged through the host 1..1229782938247303441; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by staged@gpu0[numa0] x 16MiB isolated",
        "DeviceEvents copies staged through the host 1..1537228672809129301 once; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by relay@gpu0[gpu2,2MiB] x 16777219B",
        "DeviceEvents copies over several paths 1..1048576 polled; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > gpu1.vram by copy-to-all@gpu0[gpu2,4MiB] x 16777219B",
        "DeviceEvents copies to several GPUs 1..1048576 polled; bytes",
    ),
    (
        "mi250x",
        "gpu0.vram > numa0.paged by threads@gpu0[4] x 16777219B",
        "Host copy by threads 1..1048576 team; bytes",
    ),
    (
        "mi250x",
        "numa0.paged > gpu0.vram by threads@gpu0[4] x 16MiB isolated",
        "Host copy by threads 1..1048576 once team; bytes",
    ),
    (
        "hgx-h200",
        "numa0.managed > gpu0.managed by migrate@gpu0[prefetch] x 2MiB",
        "DeviceEvents page migration by prefetch 1..1048576 once events; source",
    ),
    (
        "mi250x",
        "gpu0.reg > gpu0.reg by call@gpu0[launch] x 1B",
        "Host runtime call 1..256; nothing",
    ),
    (
        "mi250x",
        "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t2] x 1MiB",
        "Threads memcpy 1..1048576 team; bytes",
    ),
    (
        "mi250x",
        "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 1GiB",
        "Threads plain 1..1048576 65536 steps of 8MiB team; nothing",
    ),
    (
        "mi250x",
        "store0.file > gpu0.vram by uring@numa0[rand-read,direct,own,1GiB,q4,n1,t2,pipelined-pinned] x 4MiB",
        "Threads io_uring, registered buffers and files, copy engine; a model 128..1048576 5.00 ms 1.6 budgets; landed",
    ),
    (
        "mi250x",
        "numa0.pinned > store0.file by uring@numa0[seq-write,direct,own,1GiB,q4,n1,t2] x 1MiB",
        "Threads io_uring, registered buffers and files; a model 128..1048576 5.00 ms 0.4 budgets; landed",
    ),
    (
        "mi250x",
        "numa0.reg > store0.file by meta@numa0[create,own,d4,f256,t2] x 1B",
        "Threads simulated calls 2..2048 5.00 ms 0.4 budgets; nothing",
    ),
    (
        "mi250x",
        "numa0.reg > store0.file by meta@numa0[stat,own,d4,f256,t2] x 1B",
        "Threads simulated calls 2..1048576 5.00 ms 0.4 budgets; nothing",
    ),
    (
        "hgx-h200",
        "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[all_reduce] x 1MiB",
        "Host nccl: ring, LL, a model 1..1048576 10.0 ms; nothing",
    ),
    (
        "hgx-h200",
        "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[ping] x 8B",
        "Host nccl: direct, LL, a model 1..1048576 10.0 ms; nothing",
    ),
    (
        "hgx-h200",
        "r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[send-w4] x 64KiB isolated",
        "Host nccl: direct, LL, a model 1..1048576; nothing",
    ),
];

fn run(machine: &Machine, lane: &mut dyn BoundLane, reps: u64) -> CallResult<LaneSample> {
    lane.prepare()?;
    let gate = machine.gate()?;
    lane.issue(&gate, reps)?;
    gate.release()?;
    lane.wait()
}

fn is_corrupt<T>(result: CallResult<T>) -> bool {
    result.is_err_and(|error| error.severity == Severity::Corrupt)
}

/// What the check compares, from its verdict after wrong bytes and after an operation.
fn compared(machine: &Machine, lane: &mut dyn BoundLane) -> CallResult<&'static str> {
    let least = lane.least();
    run(machine, lane, least)?;
    lane.spoil()?;
    let is_spoilt = is_corrupt(lane.check());
    if lane.lands() {
        lane.land()?;
    } else {
        run(machine, lane, 1)?;
    }
    if lane.check()? != VerifyResult::Verified {
        return Ok("nothing");
    }
    if lane.has_blocks() {
        let (first, second) = ([(0, 1024)], [(2048, 1024)]);
        lane.spoil_blocks(&second)?;
        assert_eq!(lane.check_blocks(&first)?, VerifyResult::Verified);
        assert!(is_corrupt(lane.check_blocks(&second)) && is_corrupt(lane.check()));
        run(machine, lane, 1)?;
        assert_eq!(lane.check_blocks(&second)?, VerifyResult::Verified);
    }
    Ok(match (is_spoilt, lane.lands()) {
        (false, _) => "source",
        (true, false) => "bytes",
        (true, true) => "landed",
    })
}

fn describe(preset: &str, case: &str) -> CallResult<String> {
    let desc = MachineDesc::preset(preset).expect("a preset");
    let options = SimOptions { ranks: 2, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options);
    let machine = machine.expect("a machine");
    let mut pool = BufferPool::new(&machine);
    let parsed: Case = case.parse().expect(case);
    let mut lane = if message_lanes::is_between(&parsed) {
        message_lanes::bind(&machine, &parsed, &CpuSet::default())?.remove(0)
    } else {
        bind(&mut pool, &case.parse().expect(case), 0, &[])?
    };
    let mut text =
        format!("{:?} {} {}..{}", lane.timer(), lane.engine(), lane.least(), lane.most());
    // Two operations where one sample may have two: each counts.
    let reps = if lane.repeats() { lane.least().max(2) } else { 1 };
    let laps = run(&machine, &mut *lane, reps)?;
    assert!(laps.elapsed.0 > 0.0 && laps.steps.is_multiple_of(reps), "{case}: {laps:?}");
    if let Some(payload) = lane.payload() {
        text += &format!(" {} steps of {payload}", laps.steps / reps);
    } else {
        assert_eq!(laps.steps, reps * lane.messages(), "{case}");
    }
    if lane.min_sample().0 > 0.0 {
        text += &format!(" {}", lane.min_sample());
    }
    if (lane.budgets() - 1.0).abs() > 1e-9 {
        text += &format!(" {} budgets", lane.budgets());
    }
    for (is, word) in [
        (!lane.repeats(), "once"),
        (lane.adds_up(), "adds-up"),
        (lane.is_polled(), "polled"),
        (lane.team().is_some(), "team"),
        (lane.events().is_some(), "events"),
        (lane.has_blocks(), "blocks"),
    ] {
        text += &if is { format!(" {word}") } else { String::new() };
    }
    text += &format!("; {}", compared(&machine, &mut *lane)?);
    // Files were opened, and rings set up.
    assert_eq!(lane.close()?.contains_key("openat"), text.contains("io_uring"), "{case}");
    Ok(text)
}

#[test]
fn a_lane_states_its_limits_and_compares_what_it_wrote() {
    for (preset, case, expected) in LANES {
        assert_eq!(describe(preset, case).expect(case), expected, "{case}");
    }
}
