//! Checks of the clock, the host's memory and its threads.

use pathline_schema::{Bytes, CpuHow, CpuOp, CpuWork, MemKind, Ns, Place, Severity, Unit};

use super::{
    CheckFailure, CheckedMemory, LENGTHS, NamedCheck, TAIL, ensure, finds_wrong_bytes,
    or_unsupported,
};
use crate::{GateId, HostDomain, Machine, MachineBuffer, TeamId, TeamWork};

pub(super) const CHECKS: &[NamedCheck] = &[
    ("host: clock goes forward and sleeps", clock),
    ("host: domains are listed once, with threads", domains),
    ("host: buffers do not overlap and are freed once", buffers),
    ("host: impossible allocations are errors", impossible_allocations),
    ("host: fill and check, every length", fill_and_check),
    ("host: nothing is reached outside a buffer", range_errors),
    ("host: copy moves exactly the bytes, every instruction", copy),
    ("host: read, write and triad, every instruction", loops),
    ("host: what a team has read is verified, every instruction", read),
    ("host: chase follows its chain", chase),
    ("host: discard gives pages back and touch brings them", discard_and_touch),
    ("host: gate holds a team until released", gate),
    ("host: destroying a gate opens it", gate_destroy),
    ("host: a team works again and again", team_again),
    ("host: a team takes empty work", empty_work),
    ("host: bad handles are errors", bad_handles),
];

type HostCheckResult = Result<(), CheckFailure>;

fn first_domain(machine: &Machine) -> Result<HostDomain, CheckFailure> {
    let domains = machine.host.domains();
    let usable = domains.into_iter().find(|d| d.threads > 0);
    usable.ok_or_else(|| CheckFailure("no domain can run threads".into()))
}

fn buffer(machine: &Machine, mem: MemKind, bytes: u64) -> Result<MachineBuffer<'_>, CheckFailure> {
    let numa = first_domain(machine)?.id;
    Ok(machine.buffer(Place::new(Unit::Numa(numa), mem), Bytes(bytes))?)
}

fn clock(machine: &Machine) -> HostCheckResult {
    let first = machine.clock.now();
    let second = machine.clock.now();
    ensure!(second >= first, "the clock went back from {first} to {second}");
    let pause = Ns::us(300.0);
    machine.clock.sleep(pause);
    let slept = machine.clock.now() - second;
    ensure!(slept >= pause, "slept {slept} instead of {pause}");
    ensure!(!machine.clock.name().is_empty(), "the clock has no name");
    Ok(())
}

fn domains(machine: &Machine) -> HostCheckResult {
    let domains = machine.host.domains();
    ensure!(domains.is_sorted_by(|a, b| a.id < b.id), "not in order of numbers: {domains:?}");
    let first = first_domain(machine)?;
    ensure!(first.free.0 > 0, "numa{} has no free memory", first.id);
    let instructions = machine.host.instructions();
    ensure!(instructions.contains(&CpuHow::Plain), "plain loads are not offered");
    Ok(())
}

fn buffers(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let numa = first_domain(machine)?.id;
    for mem in [MemKind::Paged, MemKind::Huge] {
        let bytes = 70_000;
        let a = host.alloc(numa, mem, Bytes(bytes))?;
        let b = host.alloc(numa, mem, Bytes(bytes))?;
        ensure!(a.abs_diff(b) >= bytes, "buffers at {a:#x} and {b:#x} overlap");
        ensure!(a.is_multiple_of(4096) && b.is_multiple_of(4096), "{a:#x}, {b:#x}: not aligned");
        host.write(a, bytes, 1)?;
        host.write(b, bytes, 2)?;
        let found = host.first_wrong(a, bytes, 1)?;
        ensure!(found.is_none(), "writing one buffer changed the other at {found:?}");
        host.free(a)?;
        ensure!(host.free(a).is_err(), "freeing twice is no error");
        ensure!(host.check(a, Bytes(8), 1).is_err(), "a freed buffer can still be read");
        host.free(b)?;
    }
    Ok(())
}

fn impossible_allocations(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let numa = first_domain(machine)?.id;
    ensure!(host.alloc(numa, MemKind::Paged, Bytes(0)).is_err(), "0 B were allocated");
    ensure!(host.alloc(u32::MAX, MemKind::Paged, Bytes(4096)).is_err(), "numa{} exists", u32::MAX);
    ensure!(host.alloc(numa, MemKind::Vram, Bytes(4096)).is_err(), "the host allocated vram");
    for bytes in [1 << 60, u64::MAX] {
        match host.alloc(numa, MemKind::Paged, Bytes(bytes)) {
            Ok(_) => return Err(CheckFailure(format!("{bytes} B were allocated"))),
            Err(e) => ensure!(e.severity == Severity::Exhausted, "{bytes} B: {:?}", e.severity),
        }
    }
    Ok(())
}

fn fill_and_check(machine: &Machine) -> HostCheckResult {
    for mem in [MemKind::Paged, MemKind::Huge] {
        for bytes in LENGTHS {
            let buffer = buffer(machine, mem, bytes)?;
            finds_wrong_bytes(machine.host.as_ref(), buffer.address(), bytes)?;
        }
    }
    Ok(())
}

fn range_errors(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let bytes = 64 << 10;
    let buffer = buffer(machine, MemKind::Paged, bytes)?;
    let at = buffer.address();
    ensure!(host.write(at, bytes + (4 << 20), 1).is_err(), "filled 4 MiB past the end");
    ensure!(host.first_wrong(at, bytes + (4 << 20), 1).is_err(), "checked 4 MiB past the end");
    ensure!(host.write(at, u64::MAX, 1).is_err(), "filled the whole address space");
    ensure!(host.write(8, 8, 1).is_err(), "filled address 8");
    let team = machine.team(first_domain(machine)?.id, 1)?;
    let gate = machine.gate()?;
    for (src, dst, bytes) in [(8, at, 64), (at, 8, 64), (at, at + 4096, 8 << 20), (at, 0, 64)] {
        let work = work(CpuOp::Copy, CpuHow::Plain, src, dst, bytes);
        let refused = team.submit(&gate, &work).is_err();
        ensure!(refused, "a copy of {bytes} B from {src:#x} to {dst:#x} was accepted");
    }
    Ok(())
}

fn work(op: CpuOp, how: CpuHow, src: u64, dst: u64, bytes: u64) -> TeamWork {
    let work = CpuWork { op, how };
    TeamWork { work, src, dst, bytes: Bytes(bytes), reps: 1, isolated: false, chase_steps: None }
}

/// Runs work on a new team and waits for it. `None` if the machine does not support it.
fn run_team(
    machine: &Machine,
    threads: u32,
    work: &TeamWork,
) -> Result<Option<crate::TeamResult>, CheckFailure> {
    let team = machine.team(first_domain(machine)?.id, threads)?;
    let gate = machine.gate()?;
    if or_unsupported(team.submit(&gate, work))?.is_none() {
        return Ok(None);
    }
    gate.release()?;
    let reaped = team.reap()?;
    ensure!(reaped.elapsed > Ns::ZERO, "{}: took {}", work.work, reaped.elapsed);
    Ok(Some(reaped))
}

fn copy(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let threads = first_domain(machine)?.threads.min(2);
    for how in host.instructions() {
        for bytes in LENGTHS {
            let src = buffer(machine, MemKind::Paged, bytes)?;
            let dst = buffer(machine, MemKind::Paged, bytes + TAIL)?;
            let tail = dst.address() + bytes;
            host.write(src.address(), bytes, 3)?;
            host.write(dst.address(), bytes, 4)?;
            host.write(tail, TAIL, 5)?;
            for threads in [1, threads] {
                let mut work = work(CpuOp::Copy, how, src.address(), dst.address(), bytes);
                (work.reps, work.isolated) = (3, threads > 1);
                let reaped = run_team(machine, threads, &work)?;
                let steps = reaped.map(|r| r.steps);
                ensure!(steps == Some(3), "{how}: {steps:?} steps, not 3");
                let found = host.first_wrong(dst.address(), bytes, 3)?;
                ensure!(found.is_none(), "{how}, {bytes} B, {threads} threads: byte {found:?}");
                host.write(dst.address(), bytes, 4)?;
            }
            let (read, behind) =
                (host.first_wrong(src.address(), bytes, 3)?, host.first_wrong(tail, TAIL, 5)?);
            ensure!(read.is_none(), "{how}, {bytes} B: the source changed at {read:?}");
            ensure!(behind.is_none(), "{how}, {bytes} B: wrote {behind:?} past the end");
        }
    }
    Ok(())
}

fn loops(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    for how in host.instructions() {
        for bytes in LENGTHS {
            let src = buffer(machine, MemKind::Paged, 2 * bytes)?;
            let dst = buffer(machine, MemKind::Paged, bytes + TAIL)?;
            let tail = dst.address() + bytes;
            host.write(src.address(), 2 * bytes, 6)?;
            host.write(tail, TAIL, 7)?;
            let (from, to) = (src.address(), dst.address());
            for (op, from, to) in
                [(CpuOp::Read, from, 0), (CpuOp::Write, 0, to), (CpuOp::Triad, from, to)]
            {
                let mut work = work(op, how, from, to, bytes);
                work.reps = 2;
                match run_team(machine, 1, &work)? {
                    Some(reaped) => {
                        ensure!(reaped.steps == 2, "{op}-{how}: {reaped:?}");
                        if op != CpuOp::Read {
                            expect_stored(host, &work)?;
                        }
                    }
                    None => ensure!(how != CpuHow::Plain, "{op}-{how} is not supported"),
                }
                let behind = host.first_wrong(tail, TAIL, 7)?;
                ensure!(behind.is_none(), "{op}-{how}, {bytes} B: wrote {behind:?} past the end");
            }
            let found = host.first_wrong(from, 2 * bytes, 6)?;
            ensure!(found.is_none(), "{how}, {bytes} B: the source changed at {found:?}");
        }
    }
    Ok(())
}

/// Reads of a team with several passes, of which the last finds one word changed.
fn read(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let domain = first_domain(machine)?;
    for how in host.instructions() {
        for (bytes, threads) in [(7, 1), (4096 + 13, 2), (64 << 10, 2)] {
            let src = buffer(machine, MemKind::Paged, bytes)?;
            host.write(src.address(), bytes, 14)?;
            let mut work = work(CpuOp::Read, how, src.address(), 0, bytes);
            (work.reps, work.isolated) = (2, bytes == 4096 + 13);
            let team = machine.team(domain.id, domain.threads.min(threads))?;
            let pass = || -> Result<bool, CheckFailure> {
                let gate = machine.gate()?;
                let Some(()) = or_unsupported(team.submit(&gate, &work))? else { return Ok(false) };
                gate.release()?;
                team.reap()?;
                Ok(true)
            };
            if !pass()? {
                continue;
            }
            for _ in 0..2 {
                team.check_read(&work, 14)?;
                pass()?;
            }
            let other = team.check_read(&work, 15).map_err(|error| error.severity);
            ensure!(other == Err(Severity::Corrupt), "read-{how}: another pattern gives {other:?}");
            host.write(src.address() + bytes / 2 / 8 * 8, bytes.min(8), 16)?;
            pass()?;
            let wrong = team.check_read(&work, 14).map_err(|error| error.severity);
            ensure!(
                wrong == Err(Severity::Corrupt),
                "read-{how}, {bytes} B: a changed word gives {wrong:?}"
            );
        }
    }
    Ok(())
}

/// Verifies what a loop stored, then overwrites it and expects an error. A machine may be unable to
/// verify.
fn expect_stored(host: &dyn crate::Host, work: &TeamWork) -> HostCheckResult {
    let Some(wrong) = or_unsupported(host.check_stored(work))? else { return Ok(()) };
    ensure!(
        wrong.is_none(),
        "{}, {} B: byte {wrong:?} is not what it stores",
        work.work,
        work.bytes
    );
    host.write(work.dst, work.bytes.0, 8)?;
    let wrong = host.check_stored(work)?;
    ensure!(work.bytes.0 < 8 || wrong.is_some(), "{}: a pattern passes for its bytes", work.work);
    Ok(())
}

fn chase(machine: &Machine) -> HostCheckResult {
    for bytes in [128, 4096, 1 << 20] {
        let buffer = buffer(machine, MemKind::Paged, bytes)?;
        buffer.fill(9, true)?;
        let mut work = work(CpuOp::Chase, CpuHow::Plain, buffer.address(), 0, bytes);
        work.reps = 4;
        let chain = work.work.effect(work.bytes).chain;
        let Some(reaped) = run_team(machine, 1, &work)? else {
            return Err(CheckFailure("a plain chase is not supported".into()));
        };
        let least = 4 * chain;
        ensure!(reaped.steps >= least, "{} steps, not {least}", reaped.steps);
        work.chase_steps = Some(3);
        let steps = run_team(machine, 1, &work)?.map(|reaped| reaped.steps);
        ensure!(steps == Some(4 * 3), "{steps:?} steps of 4 parts of 3 loads");
    }
    Ok(())
}

fn discard_and_touch(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let bytes = 1 << 20;
    for mem in [MemKind::Paged, MemKind::Huge] {
        let buffer = buffer(machine, mem, bytes)?;
        buffer.fill(10, false)?;
        buffer.discard()?;
        let found = host.first_wrong(buffer.address(), bytes, 10)?;
        ensure!(found.is_some(), "{mem}: the pattern outlives the pages");
        buffer.discard()?;
        let touch = work(CpuOp::Touch, CpuHow::Plain, 0, buffer.address(), bytes);
        let Some(reaped) = run_team(machine, 1, &touch)? else {
            return Err(CheckFailure("touch is not supported".into()));
        };
        ensure!(reaped.steps >= 1, "{mem}: no page was touched");
        let huge = host.huge_bytes(buffer.address());
        ensure!(huge.is_none_or(|huge| huge.0 % 4096 == 0), "{mem}: {huge:?} in huge pages");
    }
    Ok(())
}

fn gate(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let bytes = 10_007;
    let src = buffer(machine, MemKind::Paged, bytes)?;
    let dst = buffer(machine, MemKind::Paged, bytes)?;
    src.fill(12, false)?;
    dst.fill(13, false)?;
    let team = machine.team(first_domain(machine)?.id, 1)?;
    let gate = machine.gate()?;
    team.submit(&gate, &work(CpuOp::Copy, CpuHow::Plain, src.address(), dst.address(), bytes))?;
    let pause = Ns::ms(30.0);
    machine.clock.sleep(pause);
    let found = host.first_wrong(dst.address(), bytes, 13)?;
    ensure!(found.is_none(), "byte {found:?} was written before the gate opened");
    gate.release()?;
    let reaped = team.reap()?;
    let found = host.first_wrong(dst.address(), bytes, 12)?;
    ensure!(found.is_none(), "byte {found:?} was not written after the gate opened");
    ensure!(reaped.elapsed < pause, "the time behind the gate counts: {}", reaped.elapsed);
    Ok(())
}

fn gate_destroy(machine: &Machine) -> HostCheckResult {
    let bytes = 100;
    let dst = buffer(machine, MemKind::Paged, bytes)?;
    let team = machine.team(first_domain(machine)?.id, 1)?;
    let gate = machine.gate()?;
    team.submit(&gate, &work(CpuOp::Write, CpuHow::Plain, 0, dst.address(), bytes))?;
    drop(gate);
    team.reap()?;
    Ok(())
}

fn team_again(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let bytes = 1000;
    let src = buffer(machine, MemKind::Paged, bytes)?;
    let dst = buffer(machine, MemKind::Paged, bytes)?;
    let domain = first_domain(machine)?;
    let team = machine.team(domain.id, domain.threads.min(2))?;
    for seed in 20..25 {
        host.write(src.address(), bytes, seed)?;
        let gate = machine.gate()?;
        team.submit(&gate, &work(CpuOp::Copy, CpuHow::Plain, src.address(), dst.address(), bytes))?;
        gate.release()?;
        team.reap()?;
        let found = host.first_wrong(dst.address(), bytes, seed)?;
        ensure!(found.is_none(), "round {}: byte {found:?}", seed - 20);
    }
    Ok(())
}

fn empty_work(machine: &Machine) -> HostCheckResult {
    let team = machine.team(first_domain(machine)?.id, 1)?;
    for reps in [0, 1] {
        let gate = machine.gate()?;
        let mut work = work(CpuOp::Read, CpuHow::Plain, 0, 0, 0);
        work.reps = reps;
        team.submit(&gate, &work)?;
        gate.release()?;
        let reaped = team.reap()?;
        ensure!(reaped.elapsed >= Ns::ZERO, "nothing took {}", reaped.elapsed);
        ensure!(reaped.steps == reps, "{reps} passes over nothing: {} steps", reaped.steps);
    }
    Ok(())
}

fn bad_handles(machine: &Machine) -> HostCheckResult {
    let host = machine.host.as_ref();
    let domain = first_domain(machine)?;
    let (none, no_team, no_gate) = (0xdead_0000, TeamId(u64::MAX), GateId(u64::MAX));
    let buffer = buffer(machine, MemKind::Paged, 4096)?;
    let write = work(CpuOp::Write, CpuHow::Plain, 0, buffer.address(), 4096);
    let team = host.team_create(domain.id, 1)?;
    let gate = host.gate_create()?;
    let results = [
        ("free", host.free(none).err()),
        ("free inside a buffer", host.free(buffer.address() + 64).err()),
        ("discard", host.discard(none).err()),
        ("fill", host.fill(none, Bytes(8), 0, false).err()),
        ("check", host.check(none, Bytes(8), 0).err()),
        ("team_create, no threads", host.team_create(domain.id, 0).err()),
        ("team_create, too many threads", host.team_create(domain.id, u32::MAX).err()),
        ("team_create, no domain", host.team_create(u32::MAX, 1).err()),
        ("team_destroy", host.team_destroy(no_team).err()),
        ("submit, no team", host.submit(no_team, gate, &write).err()),
        ("submit, no gate", host.submit(team, no_gate, &write).err()),
        ("reap, no team", host.reap(no_team).err()),
        ("reap, no work", host.reap(team).err()),
        ("gate_release", host.gate_release(no_gate).err()),
        ("gate_destroy", host.gate_destroy(no_gate).err()),
    ];
    host.team_destroy(team)?;
    host.gate_destroy(gate)?;
    ensure!(host.team_destroy(team).is_err(), "a team was destroyed twice");
    ensure!(host.gate_destroy(gate).is_err(), "a gate was destroyed twice");
    for (call, error) in results {
        let Some(error) = error else { return Err(CheckFailure(format!("{call}: no error"))) };
        ensure!(
            !error.call.is_empty() && !error.reason.is_empty(),
            "{call}: the error is only '{error}'"
        );
    }
    Ok(())
}
