//! Checks of the GPU runtime.

use pathline_schema::{
    Bytes, CHASE_STEPS, CpuHow, CpuOp, CpuWork, KernelOp, KernelVariant, MemKind, MigrateHow, Ns,
    Place, Severity, Unit,
};

use super::{
    CheckFailure, CheckedMemory, LENGTHS, NamedCheck, TAIL, ensure, finds_wrong_bytes,
    or_unsupported, seed_that_differs,
};
use crate::{
    ChainPart, CopyChoice, DeviceInfo, Driver, EventId, GateId, GpuKernel, GpuStream, KernelId,
    KernelLaunch, Machine, MachineBuffer, StreamId, TeamWork, pattern,
};

pub(super) const CHECKS: &[NamedCheck] = &[
    ("gpu: devices are numbered and have memory", devices),
    ("gpu: allocations are accounted for", accounting),
    ("gpu: impossible allocations are errors", impossible_allocations),
    ("gpu: fill and check, every kind of memory", fill_and_check),
    ("gpu: copy moves exactly the bytes, every direction and engine", copy),
    ("gpu: a batch moves exactly its copies", batch),
    ("gpu: a kernel moves exactly the ranges of its list", blocks),
    ("gpu: a stream keeps its order", stream_order),
    ("gpu: an event orders two streams", event_orders_streams),
    ("gpu: events are monotone and add up", event_times),
    ("gpu: gate holds a stream until released", gate),
    ("gpu: polling a stream ends", polling),
    ("gpu: polling an event ends, and not before its copy", event_polling),
    ("gpu: known memory is not adopted again", adoption),
    ("gpu: kernels move exactly their bytes", kernels),
    ("gpu: a chase follows its chain", chase),
    ("gpu: kernels push to and pull from a peer", peers),
    ("gpu: managed memory migrates with its bytes", migration),
    ("gpu: zero-copy leaves managed memory in place", zero_copy),
    ("gpu: CPU threads load from its memory and store to it", cpu_threads),
    ("gpu: registered memory can be copied from", registered),
    ("gpu: bad handles are errors", bad_handles),
];

type GpuCheckResult = Result<(), CheckFailure>;

/// The runtime, its first GPU, and the nearest NUMA domain to that GPU.
fn first_gpu(machine: &Machine) -> Result<(&dyn Driver, u32, u32), CheckFailure> {
    let driver = machine.driver()?;
    let device: Option<DeviceInfo> = driver.devices()?.into_iter().next();
    let device = device.ok_or_else(|| CheckFailure("the driver lists no device".into()))?;
    let domains = machine.host.domains();
    let numa = device.numa.or_else(|| domains.first().map(|d| d.id));
    Ok((driver, device.index, numa.ok_or_else(|| CheckFailure("no NUMA domain".into()))?))
}

fn vram(gpu: u32) -> Place {
    Place::new(Unit::Gpu(gpu), MemKind::Vram)
}

fn memory<'m>(
    machine: &'m Machine,
    place: Place,
    bytes: u64,
) -> Result<MachineBuffer<'m>, CheckFailure> {
    Ok(machine.buffer(place, Bytes(bytes))?)
}

/// Verifies a pattern in a buffer of the host or the runtime.
fn expect_pattern(buffer: &MachineBuffer<'_>, seed: u64, what: &str) -> GpuCheckResult {
    buffer.check(seed, buffer.bytes()).map_err(|e| CheckFailure(format!("{what}: {e}")))
}

/// Writes a pattern into a part of a buffer of the host or the runtime.
fn write_part(
    machine: &Machine,
    buffer: &MachineBuffer<'_>,
    offset: u64,
    bytes: u64,
    seed: u64,
) -> GpuCheckResult {
    let at = buffer.address() + offset;
    match buffer.place().mem {
        MemKind::Paged | MemKind::Huge | MemKind::Registered | MemKind::RegisteredHuge => {
            machine.host.write(at, bytes, seed)?
        }
        _ => machine.driver()?.write(at, bytes, seed)?,
    }
    Ok(())
}

fn first_wrong(
    machine: &Machine,
    buffer: &MachineBuffer<'_>,
    offset: u64,
    bytes: u64,
    seed: u64,
) -> Result<Option<u64>, CheckFailure> {
    let at = buffer.address() + offset;
    Ok(match buffer.place().mem {
        MemKind::Paged | MemKind::Huge | MemKind::Registered | MemKind::RegisteredHuge => {
            machine.host.first_wrong(at, bytes, seed)?
        }
        _ => machine.driver()?.first_wrong(at, bytes, seed)?,
    })
}

fn devices(machine: &Machine) -> GpuCheckResult {
    let (driver, ..) = first_gpu(machine)?;
    ensure!(!driver.name().is_empty(), "the driver has no name");
    for (expected, device) in (0..).zip(driver.devices()?) {
        ensure!(device.index == expected, "gpu{} is listed as number {expected}", device.index);
        let (free, total) = driver.memory(device.index)?;
        ensure!(total.0 > 0 && free <= total, "gpu{expected}: {free} free of {total}");
        ensure!(!device.arch.is_empty(), "gpu{expected} has no compilation target");
    }
    Ok(())
}

fn accounting(machine: &Machine) -> GpuCheckResult {
    let (driver, gpu, _) = first_gpu(machine)?;
    let bytes = Bytes::mib(64);
    let (before, _) = driver.memory(gpu)?;
    let address = driver.alloc(vram(gpu), bytes)?;
    let (during, _) = driver.memory(gpu)?;
    driver.free(address)?;
    let (after, _) = driver.memory(gpu)?;
    ensure!(during.0 + bytes.0 <= before.0, "{before} free, {bytes} taken, {during} left");
    ensure!(after >= before, "{before} free before, {after} after it was given back");
    ensure!(driver.free(address).is_err(), "freeing twice is no error");
    Ok(())
}

fn impossible_allocations(machine: &Machine) -> GpuCheckResult {
    let (driver, gpu, _) = first_gpu(machine)?;
    let (_, total) = driver.memory(gpu)?;
    ensure!(driver.alloc(vram(gpu), Bytes(0)).is_err(), "0 B were allocated");
    ensure!(driver.alloc(vram(u32::MAX), Bytes(64)).is_err(), "gpu{} exists", u32::MAX);
    let register = Place::new(Unit::Gpu(gpu), MemKind::Reg);
    ensure!(driver.alloc(register, Bytes(64)).is_err(), "registers were allocated");
    for bytes in [total.0 + 1, u64::MAX] {
        match driver.alloc(vram(gpu), Bytes(bytes)) {
            Ok(_) => return Err(CheckFailure(format!("{bytes} B of {total} were allocated"))),
            Err(e) => ensure!(e.severity == Severity::Exhausted, "{bytes} B: {:?}", e.severity),
        }
    }
    Ok(())
}

fn fill_and_check(machine: &Machine) -> GpuCheckResult {
    let (driver, gpu, numa) = first_gpu(machine)?;
    let (on_gpu, on_host) = (Unit::Gpu(gpu), Unit::Numa(numa));
    let kinds = [
        (on_gpu, MemKind::Vram),
        (on_gpu, MemKind::VramFine),
        (on_host, MemKind::Pinned),
        (on_host, MemKind::PinnedNonCoherent),
        (on_host, MemKind::PinnedWc),
        (on_host, MemKind::Managed),
        (on_gpu, MemKind::Managed),
    ];
    for (unit, mem) in kinds {
        for bytes in LENGTHS {
            let place = Place::new(unit, mem);
            let Some(buffer) = or_unsupported(machine.buffer(place, Bytes(bytes)))? else {
                ensure!(mem != MemKind::Vram && mem != MemKind::Pinned, "{place} is not supported");
                break;
            };
            finds_wrong_bytes(driver, buffer.address(), bytes)
                .map_err(|e| CheckFailure(format!("{place}: {e}")))?;
        }
    }
    Ok(())
}

fn copy(machine: &Machine) -> GpuCheckResult {
    let (driver, gpu, numa) = first_gpu(machine)?;
    let host = |mem| Place::new(Unit::Numa(numa), mem);
    let mut ends = vec![
        (vram(gpu), vram(gpu)),
        (host(MemKind::Pinned), vram(gpu)),
        (vram(gpu), host(MemKind::Pinned)),
        (host(MemKind::Paged), vram(gpu)),
        (vram(gpu), host(MemKind::Paged)),
    ];
    let count = driver.devices()?.len() as u32;
    for peer in [1, count - 1] {
        if peer != gpu && peer < count {
            // Without it the runtime stages the copy.
            or_unsupported(driver.enable_peer(gpu, peer))?;
            ends.extend([(vram(gpu), vram(peer)), (vram(peer), vram(gpu))]);
        }
    }
    for (from, to) in ends {
        for engine in [CopyChoice::Auto, CopyChoice::Blit] {
            for bytes in LENGTHS {
                copy_once(machine, from, to, engine, bytes).map_err(|e| {
                    CheckFailure(format!("{from} > {to}, {engine:?}, {bytes} B: {e}"))
                })?;
            }
        }
    }
    Ok(())
}

fn copy_once(
    machine: &Machine,
    from: Place,
    to: Place,
    engine: CopyChoice,
    bytes: u64,
) -> GpuCheckResult {
    let (driver, gpu, _) = first_gpu(machine)?;
    let src = memory(machine, from, bytes)?;
    let dst = memory(machine, to, bytes + TAIL)?;
    src.fill(31, false)?;
    write_part(machine, &dst, 0, bytes, 32)?;
    write_part(machine, &dst, bytes, TAIL, 33)?;
    let stream = machine.gpu(gpu)?.stream()?;
    let name = driver.copy_engine_name(dst.address(), src.address(), Bytes(bytes), engine);
    ensure!(!name.is_empty(), "what copies has no name");
    if or_unsupported(stream.copy(dst.address(), src.address(), Bytes(bytes), engine))?.is_none() {
        ensure!(engine != CopyChoice::Auto, "not supported");
        return Ok(());
    }
    stream.wait()?;
    let found = first_wrong(machine, &dst, 0, bytes, 31)?;
    ensure!(found.is_none(), "byte {found:?} did not arrive");
    let found = first_wrong(machine, &dst, bytes, TAIL, 33)?;
    ensure!(found.is_none(), "byte {found:?} past the end was written");
    expect_pattern(&src, 31, "the source changed")
}

/// Copies three ranges of different lengths by one call, and verifies that the gaps between them
/// stay unchanged.
fn batch(machine: &Machine) -> GpuCheckResult {
    let (_, gpu, numa) = first_gpu(machine)?;
    let (at, lengths) = ([0_u64, 40_000, 90_000], [33_333_u64, 1, 10_007]);
    let bytes = 100_007;
    let src = memory(machine, Place::new(Unit::Numa(numa), MemKind::Pinned), bytes)?;
    let dst = memory(machine, vram(gpu), bytes)?;
    dst.fill(34, false)?;
    let mut copies = Vec::new();
    for ((&at, &length), seed) in at.iter().zip(&lengths).zip(35..) {
        write_part(machine, &src, at, length, seed)?;
        write_part(machine, &dst, at, length, seed + 10)?;
        copies.push((dst.address() + at, src.address() + at, Bytes(length)));
    }
    let stream = machine.gpu(gpu)?.stream()?;
    let gap = 40_001..90_000;
    let kept = Bytes(gap.end - gap.start);
    write_part(machine, &dst, gap.start, kept.0, 99)?;
    if or_unsupported(stream.copy_batch(&copies))?.is_none() {
        return Ok(());
    }
    stream.wait()?;
    for ((&at, &length), seed) in at.iter().zip(&lengths).zip(35..) {
        let found = first_wrong(machine, &dst, at, length, seed)?;
        ensure!(found.is_none(), "byte {found:?} of the copy at {at} did not arrive");
    }
    let found = first_wrong(machine, &dst, gap.start, kept.0, 99)?;
    ensure!(found.is_none(), "byte {found:?} between two copies was written");
    Ok(())
}

/// Copies ranges of unlike lengths and alignments both ways by one kernel each, and verifies that the gaps between
/// them stay unchanged.
fn blocks(machine: &Machine) -> GpuCheckResult {
    let (_, index, numa) = first_gpu(machine)?;
    let gpu = machine.gpu(index)?;
    let (bytes, ranges) = (100_007, [(3_u64, 33_333_u64), (40_000, 16), (90_001, 10_006)]);
    let host = memory(machine, Place::new(Unit::Numa(numa), MemKind::Pinned), bytes)?;
    let device = memory(machine, vram(index), bytes)?;
    for (src, dst) in [(&host, &device), (&device, &host)] {
        dst.fill(34, false)?;
        let mut copies = Vec::new();
        for ((at, length), seed) in ranges.into_iter().zip(35..) {
            write_part(machine, src, at, length, seed)?;
            copies.push((dst.address() + at, src.address() + at, Bytes(length)));
        }
        let Some(list) = or_unsupported(gpu.block_copies(&copies, 2))? else { return Ok(()) };
        let gaps = [(36_000, 4000), (50_000, 40_001)];
        for (at, length) in gaps {
            write_part(machine, dst, at, length, 99)?;
        }
        let stream = gpu.stream()?;
        stream.copy_blocks(&list)?;
        stream.wait()?;
        for ((at, length), seed) in ranges.into_iter().zip(35..) {
            let found = first_wrong(machine, dst, at, length, seed)?;
            ensure!(found.is_none(), "byte {found:?} of the range at {at} did not arrive");
        }
        for (at, length) in gaps {
            let found = first_wrong(machine, dst, at, length, 99)?;
            ensure!(found.is_none(), "byte {found:?} of the gap at {at} was written");
        }
    }
    Ok(())
}

fn stream_order(machine: &Machine) -> GpuCheckResult {
    let (_, gpu, _) = first_gpu(machine)?;
    let bytes = 1 << 20;
    let [a, b, c] = [0; 3].map(|_| memory(machine, vram(gpu), bytes));
    let (a, b, c) = (a?, b?, c?);
    a.fill(41, false)?;
    b.fill(42, false)?;
    let stream = machine.gpu(gpu)?.stream()?;
    for (dst, src) in [(&b, &a), (&c, &b), (&a, &c)] {
        stream.copy(dst.address(), src.address(), Bytes(bytes), CopyChoice::Auto)?;
    }
    stream.wait()?;
    expect_pattern(&c, 41, "the second copy ran before the first")?;
    expect_pattern(&a, 41, "the third copy ran before the second")
}

fn event_orders_streams(machine: &Machine) -> GpuCheckResult {
    let (_, index, _) = first_gpu(machine)?;
    let gpu = machine.gpu(index)?;
    let bytes = 8 << 20;
    let [a, b, c] = [0; 3].map(|_| memory(machine, vram(index), bytes));
    let (a, b, c) = (a?, b?, c?);
    a.fill(43, false)?;
    b.fill(44, false)?;
    let (first, second, done) = (gpu.stream()?, gpu.stream()?, gpu.event()?);
    let gate = machine.gate()?;
    first.hold(&gate)?;
    first.copy(b.address(), a.address(), Bytes(bytes), CopyChoice::Auto)?;
    first.record(&done)?;
    second.wait_event(&done)?;
    second.copy(c.address(), b.address(), Bytes(bytes), CopyChoice::Auto)?;
    gate.release()?;
    second.wait()?;
    expect_pattern(&c, 43, "the second stream did not wait for the event")
}

fn event_times(machine: &Machine) -> GpuCheckResult {
    let (_, index, _) = first_gpu(machine)?;
    let gpu = machine.gpu(index)?;
    let bytes = 4 << 20;
    let (src, dst) = (memory(machine, vram(index), bytes)?, memory(machine, vram(index), bytes)?);
    let (stream, gate) = (gpu.stream()?, machine.gate()?);
    let (t0, t1, t2, never) = (gpu.event()?, gpu.event()?, gpu.event()?, gpu.event()?);
    stream.hold(&gate)?;
    stream.record(&t0)?;
    stream.copy(dst.address(), src.address(), Bytes(bytes), CopyChoice::Auto)?;
    stream.record(&t1)?;
    stream.copy(dst.address(), src.address(), Bytes(bytes), CopyChoice::Auto)?;
    stream.record(&t2)?;
    ensure!(t1.since(&t0).is_err(), "events behind a closed gate have a time");
    let pause = Ns::ms(5.0);
    machine.clock.sleep(pause);
    gate.release()?;
    stream.wait()?;
    let (one, two, both) = (t1.since(&t0)?, t2.since(&t1)?, t2.since(&t0)?);
    ensure!(one > Ns::ZERO && two > Ns::ZERO, "copies took {one} and {two}");
    let gap = (both.0 - one.0 - two.0).abs();
    ensure!(gap <= both.0 * 0.01 + 2e3, "{one} and {two} make {both}");
    ensure!(both < pause, "the time behind the gate counts: {both}");
    ensure!(never.since(&t0).is_err(), "an event that was never recorded has a time");
    Ok(())
}

fn gate(machine: &Machine) -> GpuCheckResult {
    let (_, index, _) = first_gpu(machine)?;
    let bytes = 10_007;
    let (src, dst) = (memory(machine, vram(index), bytes)?, memory(machine, vram(index), bytes)?);
    src.fill(51, false)?;
    dst.fill(52, false)?;
    let (stream, gate) = (machine.gpu(index)?.stream()?, machine.gate()?);
    stream.hold(&gate)?;
    stream.copy(dst.address(), src.address(), Bytes(bytes), CopyChoice::Auto)?;
    machine.clock.sleep(Ns::ms(2.0));
    ensure!(!stream.is_idle()?, "the stream is idle before the gate opened");
    gate.release()?;
    stream.wait()?;
    ensure!(stream.is_idle()?, "the stream is busy after it was waited for");
    expect_pattern(&dst, 51, "the copy behind the gate")?;
    // Work enqueued after the gate has opened is not held.
    stream.hold(&gate)?;
    Ok(stream.wait()?)
}

fn polling(machine: &Machine) -> GpuCheckResult {
    let (_, index, _) = first_gpu(machine)?;
    let bytes = 1 << 20;
    let (src, dst) = (memory(machine, vram(index), bytes)?, memory(machine, vram(index), bytes)?);
    let stream = machine.gpu(index)?.stream()?;
    stream.copy(dst.address(), src.address(), Bytes(bytes), CopyChoice::Auto)?;
    let limit = machine.clock.now() + Ns::secs(10.0);
    while !stream.is_idle()? {
        ensure!(machine.clock.now() < limit, "a copy of 1 MiB is not done after 10 s");
    }
    Ok(())
}

fn event_polling(machine: &Machine) -> GpuCheckResult {
    let (driver, index, _) = first_gpu(machine)?;
    let bytes = 1 << 20;
    let (src, dst) = (memory(machine, vram(index), bytes)?, memory(machine, vram(index), bytes)?);
    src.fill(53, false)?;
    dst.fill(54, false)?;
    let gpu = machine.gpu(index)?;
    let (stream, event, gate) = (gpu.stream()?, gpu.event()?, machine.gate()?);
    stream.hold(&gate)?;
    stream.copy(dst.address(), src.address(), Bytes(bytes), CopyChoice::Auto)?;
    stream.record(&event)?;
    ensure!(!event.is_done()?, "an event behind a closed gate is done");
    gate.release()?;
    let limit = machine.clock.now() + Ns::secs(10.0);
    while !event.is_done()? {
        ensure!(machine.clock.now() < limit, "a copy of 1 MiB is not done after 10 s");
        driver.pause(Ns::us(2.0));
    }
    expect_pattern(&dst, 53, "the copy before the event")
}

fn adoption(machine: &Machine) -> GpuCheckResult {
    let (driver, index, _) = first_gpu(machine)?;
    let buffer = memory(machine, vram(index), 1 << 20)?;
    for (offset, bytes) in [(0, 1 << 20), (4096, 4096), (0, 2 << 20)] {
        let adopted = driver.adopt_memory(buffer.address() + offset, Bytes(bytes), vram(index));
        ensure!(adopted.is_err(), "{bytes} B at offset {offset} of a buffer were adopted");
    }
    ensure!(driver.adopt_memory(0, Bytes(64), vram(index)).is_err(), "address 0 was adopted");
    ensure!(driver.forget_memory(buffer.address()).is_err(), "a buffer was forgotten");
    ensure!(driver.forget_stream(StreamId(u64::MAX)).is_err(), "no stream was forgotten");
    Ok(())
}

/// Kernels with every other order, hint, grid and access, with chunks and tiles that do not divide
/// the test lengths.
const KERNEL_SHAPES: [&str; 11] = [
    "copy-w8-u2-nt-seg-b64-g3",
    "copy-w16-u1-b128-gt",
    "copy-w16-u2-na-b64-g2",
    "triad-w8-u2-na-seg-b32-g5",
    "triad-w4-u2-b64-g3",
    "copy-bulk1k-s1-b32-g2",
    "copy-bulk1k-s5-seg-b64-g3",
    "copy-bulk16k-s8-nt-b32-g1sm",
    "copy-bulk2k-s2-b32-gt",
    "read-bulk4k-s3-b32-g2",
    "write-bulk4k-s3-nt-b32-g2",
];

fn kernels(machine: &Machine) -> GpuCheckResult {
    let (_, index, _) = first_gpu(machine)?;
    let gpu = machine.gpu(index)?;
    let standard = [KernelOp::Copy, KernelOp::Read, KernelOp::Write, KernelOp::Triad]
        .map(KernelVariant::standard);
    let shapes = KERNEL_SHAPES.iter().filter_map(|key| key.parse().ok());
    for variant in standard.into_iter().chain([KernelVariant::compute()]).chain(shapes) {
        let op = variant.op;
        let kernel = match gpu.kernel(&variant) {
            // Some GPUs lack some instructions.
            Err(e) if e.severity == Severity::Unsupported && !standard.contains(&variant) => {
                continue;
            }
            made => made?,
        };
        let stream = gpu.stream()?;
        for bytes in LENGTHS {
            let src = memory(machine, vram(index), 2 * bytes)?;
            let dst = memory(machine, vram(index), bytes + TAIL)?;
            write_part(machine, &src, 0, 2 * bytes, 61)?;
            write_part(machine, &dst, 0, bytes, 62)?;
            write_part(machine, &dst, bytes, TAIL, 63)?;
            let (from, to) = match op {
                KernelOp::Read | KernelOp::Chase => (src.address(), 0),
                KernelOp::Fma => (0, 0),
                KernelOp::Write => (0, dst.address()),
                KernelOp::Copy | KernelOp::Triad => (src.address(), dst.address()),
            };
            stream.launch(&kernel, &KernelLaunch { src: from, dst: to, bytes: Bytes(bytes) })?;
            stream.wait()?;
            let found = first_wrong(machine, &dst, bytes, TAIL, 63)?;
            ensure!(found.is_none(), "{op} of {bytes} B wrote byte {found:?} past the end");
            if op == KernelOp::Read {
                let launch = KernelLaunch { src: from, dst: 0, bytes: Bytes(bytes) };
                kernel.check_read(&launch, 61)?;
                write_part(machine, &src, bytes - 1, 1, seed_that_differs(61, bytes - 1))?;
                let error = kernel.check_read(&launch, 61).err().map(|e| e.severity);
                ensure!(
                    error == Some(Severity::Corrupt),
                    "{variant} of {bytes} B does not see that the last byte is wrong: {error:?}"
                );
                write_part(machine, &src, 0, 2 * bytes, 61)?;
            }
            if matches!(op, KernelOp::Write | KernelOp::Triad) {
                let launch = KernelLaunch { src: from, dst: to, bytes: Bytes(bytes) };
                stored(machine, &stream, &kernel, &launch, &dst)
                    .map_err(|e| CheckFailure(format!("{variant}: {e}")))?;
            }
            let found = first_wrong(machine, &src, 0, 2 * bytes, 61)?;
            ensure!(found.is_none(), "{op} of {bytes} B changed byte {found:?} of its source");
            let expected = match op {
                KernelOp::Copy => 61,
                KernelOp::Read | KernelOp::Chase => 62,
                KernelOp::Write | KernelOp::Triad | KernelOp::Fma => continue,
            };
            let found = first_wrong(machine, &dst, 0, bytes, expected)?;
            ensure!(found.is_none(), "{op} of {bytes} B: byte {found:?} of its destination");
        }
    }
    Ok(())
}

/// What a write or triad kernel stored is right, and wrong once the last byte of its first or last word
/// is another one.
fn stored(
    machine: &Machine,
    stream: &GpuStream<'_>,
    kernel: &GpuKernel<'_>,
    launch: &KernelLaunch,
    dst: &MachineBuffer<'_>,
) -> GpuCheckResult {
    let bytes = launch.bytes.0;
    kernel.check_stored(launch)?;
    for at in [bytes.min(8) - 1, bytes - 1] {
        let mut found = false;
        // At least one of two bytes is not the stored one. As the last byte of a double, both make an
        // ordinary number, which no rule for NaN or flushed numbers lets pass.
        for byte in [0x3f, 0x41] {
            let seed = (1..).find(|&seed| pattern::byte(seed, 0) == byte).unwrap_or_default();
            write_part(machine, dst, at, 1, seed)?;
            match kernel.check_stored(launch) {
                Ok(()) => {}
                Err(error) if error.severity == Severity::Corrupt => found = true,
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(found, "a wrong byte at {at} of {bytes} B passes for one that was stored");
        stream.launch(kernel, launch)?;
        stream.wait()?;
    }
    Ok(kernel.check_stored(launch)?)
}

fn chase(machine: &Machine) -> GpuCheckResult {
    let (_, index, _) = first_gpu(machine)?;
    let gpu = machine.gpu(index)?;
    let bytes = 1 << 20;
    let buffer = memory(machine, vram(index), bytes)?;
    buffer.fill(64, true)?;
    let kernel = gpu.kernel(&KernelVariant::chase())?;
    let (stream, start, end) = (gpu.stream()?, gpu.event()?, gpu.event()?);
    stream.record(&start)?;
    stream.launch(&kernel, &KernelLaunch { src: buffer.address(), dst: 0, bytes: Bytes(bytes) })?;
    stream.record(&end)?;
    stream.wait()?;
    let steps = KernelVariant::chase().effect(Bytes(bytes)).chain;
    let step = end.since(&start)? * (1.0 / steps as f64);
    // A dependent load takes at least one cycle of a fast clock.
    ensure!(step > Ns(0.2), "{step} a step: the chain is not followed");
    // 8,192 loads are four parts, which together take about as long as the whole; a fifth part
    // wraps around.
    let (whole, parts) = (end.since(&start)?, steps / CHASE_STEPS);
    let launch = KernelLaunch { src: buffer.address(), dst: 0, bytes: Bytes(bytes) };
    stream.record(&start)?;
    for nth in 0..=parts {
        stream.follow(&kernel, &launch, ChainPart { nth, steps: CHASE_STEPS })?;
    }
    stream.record(&end)?;
    stream.wait()?;
    let took = end.since(&start)?;
    ensure!(took > whole * 0.1, "{took} for {parts} parts of what takes {whole}");
    Ok(())
}

fn peers(machine: &Machine) -> GpuCheckResult {
    let (driver, here, _) = first_gpu(machine)?;
    let count = driver.devices()?.len() as u32;
    let (gpu, bytes) = (machine.gpu(here)?, 100_003);
    for peer in (0..count).filter(|&peer| peer != here) {
        driver.peer_access(here, peer)?;
        if or_unsupported(driver.enable_peer(here, peer))?.is_none() {
            continue;
        }
        driver.enable_peer(here, peer)?;
        let kernel = gpu.kernel(&KernelVariant::standard(KernelOp::Copy))?;
        let stream = gpu.stream()?;
        for (from, to) in [(here, peer), (peer, here)] {
            let (src, dst) =
                (memory(machine, vram(from), bytes)?, memory(machine, vram(to), bytes)?);
            src.fill(65, false)?;
            dst.fill(66, false)?;
            let launch =
                KernelLaunch { src: src.address(), dst: dst.address(), bytes: Bytes(bytes) };
            stream.launch(&kernel, &launch)?;
            stream.wait()?;
            expect_pattern(&dst, 65, &format!("gpu{from} > gpu{to} by a kernel at gpu{here}"))?;
        }
    }
    ensure!(driver.peer_access(here, count).is_err(), "gpu{count} is a peer");
    ensure!(driver.enable_peer(here, count).is_err(), "gpu{count} can be enabled");
    Ok(())
}

fn migration(machine: &Machine) -> GpuCheckResult {
    let (driver, index, numa) = first_gpu(machine)?;
    let home = Place::new(Unit::Numa(numa), MemKind::Managed);
    let there = Place::new(Unit::Gpu(index), MemKind::Managed);
    let Some(buffer) = or_unsupported(machine.buffer(home, Bytes::mib(2)))? else { return Ok(()) };
    let stream = machine.gpu(index)?.stream()?;
    let faults = driver.devices()?.iter().any(|d| d.index == index && d.demand_migration);
    for how in [MigrateHow::Prefetch, MigrateHow::Fault] {
        buffer.fill(71, false)?;
        for to in [there, home] {
            // Kernel faults migrate pages to the GPU; the return is always an explicit prefetch.
            let how = if to == home { MigrateHow::Prefetch } else { how };
            match stream.migrate(&buffer, to, how) {
                Ok(()) => ensure!(faults || how == MigrateHow::Prefetch, "faults do not work"),
                Err(e) => {
                    ensure!(e.severity == Severity::Unsupported, "{e}");
                    ensure!(!e.way_out.is_empty(), "no remedy: {e}");
                    ensure!(!faults || how == MigrateHow::Prefetch, "{e}");
                }
            }
            stream.wait()?;
            expect_pattern(&buffer, 71, &format!("{how} to {to}"))?;
        }
    }
    Ok(())
}

fn zero_copy(machine: &Machine) -> GpuCheckResult {
    let (_, index, numa) = first_gpu(machine)?;
    let home = Place::new(Unit::Numa(numa), MemKind::Managed);
    let bytes = 1 << 20;
    let Some(src) = or_unsupported(machine.buffer(home, Bytes(bytes)))? else { return Ok(()) };
    src.fill(72, false)?;
    if let Err(error) = src.advise_zero_copy(index) {
        ensure!(error.severity == Severity::Unsupported, "{error}");
        ensure!(!error.way_out.is_empty(), "no remedy: {error}");
        return Ok(());
    }
    let gpu = machine.gpu(index)?;
    let dst = memory(machine, vram(index), bytes)?;
    let (stream, kernel) = (gpu.stream()?, gpu.kernel(&KernelVariant::standard(KernelOp::Copy))?);
    let launch = KernelLaunch { src: src.address(), dst: dst.address(), bytes: Bytes(bytes) };
    stream.launch(&kernel, &launch)?;
    stream.wait()?;
    expect_pattern(&dst, 72, "zero-copy")
}

fn registered(machine: &Machine) -> GpuCheckResult {
    let (_, index, numa) = first_gpu(machine)?;
    let place = Place::new(Unit::Numa(numa), MemKind::Registered);
    let bytes = 100_003;
    let Some(src) = or_unsupported(machine.buffer(place, Bytes(bytes)))? else { return Ok(()) };
    src.fill(73, false)?;
    let dst = memory(machine, vram(index), bytes)?;
    let stream = machine.gpu(index)?.stream()?;
    stream.copy(dst.address(), src.address(), Bytes(bytes), CopyChoice::Auto)?;
    stream.wait()?;
    expect_pattern(&dst, 73, "from registered memory")
}

/// Where the runtime lets CPU threads reach memory of a GPU, a copy out of it and one into it move exactly their
/// bytes; the GPU compares what a core stored.
fn cpu_threads(machine: &Machine) -> GpuCheckResult {
    let (driver, index, numa) = first_gpu(machine)?;
    let team = machine.team(numa, 1)?;
    let bytes = 100_007;
    for mem in [MemKind::Vram, MemKind::VramFine, MemKind::Managed] {
        let place = Place::new(Unit::Gpu(index), mem);
        let Some(there) = or_unsupported(machine.buffer(place, Bytes(bytes + TAIL)))? else {
            continue;
        };
        let here = memory(machine, Place::new(Unit::Numa(numa), MemKind::Paged), bytes)?;
        write_part(machine, &there, 0, bytes, 81)?;
        write_part(machine, &there, bytes, TAIL, 82)?;
        here.fill(83, false)?;
        if or_unsupported(driver.cpu_access(there.address(), there.bytes()))?.is_none() {
            continue;
        }
        let run = |src: u64, dst: u64| -> GpuCheckResult {
            let work = CpuWork { op: CpuOp::Copy, how: CpuHow::Memcpy };
            let gate = machine.gate()?;
            let chase_steps = None;
            let (bytes, reps, isolated) = (Bytes(bytes), 1, false);
            team.submit(&gate, &TeamWork { work, src, dst, bytes, reps, isolated, chase_steps })?;
            gate.release()?;
            team.reap()?;
            Ok(())
        };
        run(there.address(), here.address())?;
        expect_pattern(&here, 81, &format!("a core's loads from {place}"))?;
        here.fill(84, false)?;
        run(here.address(), there.address())?;
        driver.flush_cpu_stores(index)?;
        let found = first_wrong(machine, &there, 0, bytes, 84)?;
        ensure!(found.is_none(), "{place}: byte {found:?} of a core's stores did not arrive");
        let found = first_wrong(machine, &there, bytes, TAIL, 82)?;
        ensure!(found.is_none(), "{place}: byte {found:?} past the end was written");
    }
    Ok(())
}

fn bad_handles(machine: &Machine) -> GpuCheckResult {
    let (driver, gpu, _) = first_gpu(machine)?;
    let count = driver.devices()?.len() as u32;
    let (stream, event) = (driver.stream_create(gpu)?, driver.event_create(gpu)?);
    let gate = driver.gate_create()?;
    let (no_stream, no_event, no_gate) = (StreamId(u64::MAX), EventId(u64::MAX), GateId(u64::MAX));
    let (nowhere, bytes) = (0xdead_0000, Bytes(8));
    let launch = KernelLaunch { src: nowhere, dst: nowhere, bytes };
    let results = [
        ("memory", driver.memory(count).err()),
        ("free", driver.free(nowhere).err()),
        ("unregister", driver.unregister(nowhere).err()),
        ("cpu_access", driver.cpu_access(nowhere, bytes).err()),
        ("flush_cpu_stores", driver.flush_cpu_stores(count).err()),
        ("advise_zero_copy", driver.advise_zero_copy(nowhere, bytes, gpu).err()),
        ("stream_create", driver.stream_create(count).err()),
        ("stream_destroy", driver.stream_destroy(no_stream).err()),
        ("stream_wait", driver.stream_wait(no_stream).err()),
        ("stream_idle", driver.stream_idle(no_stream).err()),
        ("event_create", driver.event_create(count).err()),
        ("event_destroy", driver.event_destroy(no_event).err()),
        ("event_record, no event", driver.event_record(no_event, stream).err()),
        ("event_record, no stream", driver.event_record(event, no_stream).err()),
        ("stream_wait_event", driver.stream_wait_event(stream, no_event).err()),
        ("event_elapsed", driver.event_elapsed(event, no_event).err()),
        ("gate_hold", driver.gate_hold(no_gate, stream).err()),
        ("gate_hold, no stream", driver.gate_hold(gate, no_stream).err()),
        ("gate_release", driver.gate_release(no_gate).err()),
        ("gate_destroy", driver.gate_destroy(no_gate).err()),
        ("copy", driver.copy(stream, nowhere, nowhere, bytes, CopyChoice::Auto).err()),
        (
            "copy, no stream",
            driver.copy(no_stream, nowhere, nowhere, bytes, CopyChoice::Auto).err(),
        ),
        ("kernel", driver.kernel(count, &KernelVariant::chase()).err()),
        ("kernel_unload", driver.kernel_unload(KernelId(u64::MAX)).err()),
        ("launch", driver.launch(stream, KernelId(u64::MAX), &launch).err()),
        ("check_stored", driver.check_stored(KernelId(u64::MAX), &launch).err()),
        ("fill", driver.fill(nowhere, bytes, 0, false).err()),
        ("check", driver.check(nowhere, bytes, 0).err()),
    ];
    driver.gate_destroy(gate)?;
    driver.event_destroy(event)?;
    driver.stream_destroy(stream)?;
    ensure!(driver.stream_destroy(stream).is_err(), "a stream was destroyed twice");
    ensure!(driver.event_destroy(event).is_err(), "an event was destroyed twice");
    for (call, error) in results {
        let Some(error) = error else { return Err(CheckFailure(format!("{call}: no error"))) };
        ensure!(
            !error.call.is_empty() && !error.reason.is_empty(),
            "{call}: the error is only '{error}'"
        );
    }
    Ok(())
}
