//! Every error path can be walked.

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallError, CallResult, CopyChoice, KernelLaunch, Machine, TeamWork};
use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, KernelOp, KernelVariant, MemKind, MigrateHow, Place, Severity,
    Unit,
};
use pathline_sim::{FaultOrder, SimOptions, machine_with};

const BYTES: Bytes = Bytes::mib(1);

fn with(faults: Vec<FaultOrder>) -> Machine {
    let desc = MachineDesc::preset("mi250x").expect("the preset parses");
    let options = SimOptions { faults, ..SimOptions::default() };
    machine_with(&desc, RuntimeEnv::default(), &options).expect("it makes a machine")
}
fn vram(gpu: u32) -> Place {
    Place::new(Unit::Gpu(gpu), MemKind::Vram)
}

/// Uses every call of the driver and of the host.
fn everything(m: &Machine) -> CallResult<()> {
    let driver = m.driver()?;
    driver.devices()?;
    driver.memory(0)?;
    driver.peer_access(0, 1)?;
    driver.enable_peer(0, 1)?;
    let home = Place::new(Unit::Numa(3), MemKind::Managed);
    let (a, b, managed) =
        (m.buffer(vram(0), BYTES)?, m.buffer(vram(1), BYTES)?, m.buffer(home, BYTES)?);
    let registered = m.buffer(Place::new(Unit::Numa(3), MemKind::Registered), BYTES)?;
    let paged = m.buffer(Place::new(Unit::Numa(3), MemKind::Paged), BYTES)?;
    a.fill(1, false)?;
    registered.fill(1, false)?;
    managed.advise_zero_copy(1)?;
    let gpu = m.gpu(0)?;
    let (stream, event, kernel) =
        (gpu.stream()?, gpu.event()?, gpu.kernel(&KernelVariant::standard(KernelOp::Copy))?);
    let gate = m.gate()?;
    stream.hold(&gate)?;
    stream.record(&event)?;
    stream.copy(b.address(), a.address(), BYTES, CopyChoice::Auto)?;
    stream.launch(&kernel, &KernelLaunch { src: a.address(), dst: b.address(), bytes: BYTES })?;
    stream.migrate(&managed, Place::new(Unit::Gpu(0), MemKind::Managed), MigrateHow::Prefetch)?;
    stream.wait_event(&event)?;
    let team = m.team(3, 1)?;
    let work = CpuWork { op: CpuOp::Copy, how: CpuHow::Plain };
    let (src, dst) = (registered.address(), paged.address());
    team.submit(
        &gate,
        &TeamWork { work, src, dst, bytes: BYTES, reps: 1, isolated: false, chase_steps: None },
    )?;
    gate.release()?;
    stream.wait()?;
    team.reap()?;
    stream.is_idle()?;
    event.since(&event)?;
    b.check(1, BYTES)?;
    paged.check(1, BYTES)?;
    paged.discard()?;
    // What the owners give back without a word.
    driver.gate_destroy(driver.gate_create()?)?;
    driver.event_destroy(driver.event_create(0)?)?;
    driver.kernel_unload(driver.kernel(0, &KernelVariant::chase())?)?;
    driver.stream_destroy(driver.stream_create(0)?)?;
    driver.free(driver.alloc(vram(0), BYTES)?)?;
    m.host.gate_destroy(m.host.gate_create()?)?;
    m.host.team_destroy(m.host.team_create(3, 1)?)?;
    let address = m.host.alloc(3, MemKind::Paged, BYTES)?;
    driver.register(address, BYTES)?;
    driver.unregister(address)?;
    m.host.free(address)
}

const CALLS: [&str; 41] = [
    "devices",
    "memory",
    "peer_access",
    "enable_peer",
    "alloc",
    "free",
    "register",
    "unregister",
    "advise_zero_copy",
    "stream_create",
    "stream_destroy",
    "stream_wait",
    "stream_idle",
    "event_create",
    "event_destroy",
    "event_record",
    "stream_wait_event",
    "event_elapsed",
    "gate_create",
    "gate_hold",
    "gate_release",
    "gate_destroy",
    "copy",
    "kernel",
    "kernel_unload",
    "launch",
    "migrate",
    "fill",
    "check",
    "host.alloc",
    "host.free",
    "host.discard",
    "host.fill",
    "host.check",
    "host.team_create",
    "host.team_destroy",
    "host.submit",
    "host.reap",
    "host.gate_create",
    "host.gate_release",
    "host.gate_destroy",
];

/// Each call can be made to fail, with the severity asked for; everything is given back, and the
/// same machine then does all of it without a fault.
#[test]
fn every_call_can_fail_once() {
    everything(&with(Vec::new())).unwrap();
    for call in CALLS {
        let m = with(vec![FaultOrder::fails(call, 1, Severity::Transient)]);
        let error = everything(&m).expect_err(call);
        assert_eq!((error.call.as_str(), error.severity), (call, Severity::Transient));
        everything(&m).unwrap_or_else(|error| panic!("after a fault in {call}: {error}"));
        let driver = m.driver().unwrap();
        for gpu in 0..2 {
            let (free, total) = driver.memory(gpu).unwrap();
            assert_eq!(free, total, "gpu{gpu} lost memory after a fault in {call}");
        }
    }
}

/// After a sticky fault the GPU is lost, and only that one.
#[test]
fn a_sticky_device() {
    let m = with(vec![FaultOrder::fails("launch", 1, Severity::Sticky)]);
    assert_eq!(everything(&m).unwrap_err().severity, Severity::Sticky);
    let sticky = |result: CallResult<()>| {
        let error: CallError = result.unwrap_err();
        assert_eq!(error.severity, Severity::Sticky, "{error}");
        assert!(!error.way_out.is_empty());
    };
    sticky(m.gpu(0).unwrap().stream().map(|_| ()));
    sticky(m.buffer(vram(0), BYTES).map(|_| ()));
    sticky(everything(&m));
    let (a, b) = (m.buffer(vram(1), BYTES).unwrap(), m.buffer(vram(2), BYTES).unwrap());
    a.fill(5, false).unwrap();
    let stream = m.gpu(1).unwrap().stream().unwrap();
    stream.copy(b.address(), a.address(), BYTES, CopyChoice::Auto).unwrap();
    stream.wait().unwrap();
    b.check(5, BYTES).unwrap();
}

/// A silently corrupted copy succeeds, and only comparing the bytes finds it: the line in the
/// middle, at 512 KiB.
#[test]
fn silent_corruption() {
    for call in ["copy", "launch", "host.submit"] {
        let m = with(vec![FaultOrder::corrupts(call, 1)]);
        let outcome = everything(&m);
        if call == "copy" {
            // The kernel behind it writes the same bytes again.
            outcome.unwrap();
            continue;
        }
        let error = outcome.unwrap_err();
        assert_eq!(error.severity, Severity::Corrupt, "{call}: {error}");
        assert!(error.reason.contains("offset 524288 "), "{call}: {error}");
        everything(&m).unwrap();
    }
}
