//! Binding: a flow becomes a lane. Copies and kernels on streams and threads on cores are here; what
//! goes through calls, files or pieces has a file of its own.

use std::rc::Rc;

use pathline_hal::{
    Buffer, CallError, CopyEngine, Event, Gate, Kernel, Launch, Machine, PeerAccess, Result,
    Stream, Team, TeamId, Work,
};
use pathline_schema::{
    Bytes, Cadence, CpuOp, Flow, KernelOp, Mem, MigrateHow, Mover, Place, Timer, Unit, Verdict,
};

use crate::calls::{self, Calls};
use crate::files::Files;
use crate::lane::{Lane, Lap, MAX_REPS, SOURCE_SEED, SPOILT_SEED, nothing_to_compare};
use crate::needs::{is_blocking, zero_copy};
use crate::pool::{Pool, destination, source};
use crate::staged::Staged;

/// Binds a flow, the `nth` of its case: allocates, compiles, opens streams. Its threads leave the
/// CPUs of a team of the same case free, as far as there are others.
pub(crate) fn bind<'m>(
    pool: &mut Pool<'m>,
    flow: &Flow,
    cadence: Cadence,
    nth: usize,
    beside: Option<TeamId>,
) -> Result<Box<dyn Lane + 'm>> {
    let machine = pool.machine;
    calls::has_adapter(machine, flow)?;
    let ends = Ends::new(pool, flow, nth)?;
    let streamed = |at, ends, job, verified| -> Result<Box<dyn Lane + 'm>> {
        Ok(Box::new(Streamed::new(machine, at, flow, cadence, ends, job, verified)?))
    };
    match flow.by {
        Mover::Dma { at } => streamed(at, ends, Job::Copy { engine: CopyEngine::Auto }, true),
        Mover::Blit { at } => streamed(at, ends, Job::Copy { engine: CopyEngine::Blit }, true),
        Mover::Kernel { at, variant } => {
            let kernel = machine.gpu(index(at, flow)?)?.kernel(&variant)?;
            let launch = Launch { src: ends.src(), dst: ends.dst(), bytes: flow.bytes };
            let steps = variant.effect(flow.bytes).chain.max(1);
            streamed(at, ends, Job::Kernel { kernel, launch, steps }, variant.op == KernelOp::Copy)
        }
        Mover::Migrate { at, how } => {
            let gpu = at.gpu().or(flow.src.unit.gpu()).ok_or_else(|| no_fit(flow))?;
            streamed(Unit::Gpu(gpu), ends, Job::Migrate { to: flow.dst, how }, true)
        }
        Mover::Staged { via, .. } => {
            let ends = ends.both().ok_or_else(|| no_fit(flow))?;
            let isolated = cadence == Cadence::Isolated;
            Ok(Box::new(Staged::new(machine, flow, via, ends, isolated)?))
        }
        Mover::Batch { at, copies } => {
            let copies = pieces(&ends, flow.bytes, copies);
            streamed(at, ends, Job::Batch { copies }, true)
        }
        Mover::Wire { .. } => Err(no_fit(flow)),
        Mover::Io { io, .. } => Ok(Box::new(Files::new(machine, flow, io, ends.src, ends.dst)?)),
        Mover::Call { call, .. } => Ok(Box::new(Calls::new(machine, flow, call, ends.src)?)),
        Mover::Cpu { at, work, threads } => {
            let numa = at.numa().ok_or_else(|| no_fit(flow))?;
            let work = Work {
                work,
                src: ends.src(),
                dst: ends.dst(),
                bytes: flow.bytes,
                reps: 1,
                isolated: cadence == Cadence::Isolated,
            };
            let team = match beside {
                Some(other) => machine.team_beside(numa, threads, other)?,
                None => machine.team(numa, threads)?,
            };
            Ok(Box::new(Threaded { team, ends, work }))
        }
    }
}

/// Equal parts of the bytes; the last has what is left.
fn pieces(ends: &Ends<'_>, bytes: Bytes, copies: u32) -> Vec<(u64, u64, Bytes)> {
    let each = bytes.0 / u64::from(copies);
    let piece = |nth: u32| {
        let offset = u64::from(nth) * each;
        let bytes = if nth + 1 == copies { bytes.0 - offset } else { each };
        (ends.dst() + offset, ends.src() + offset, Bytes(bytes))
    };
    (0..copies).map(piece).collect()
}

fn no_fit(flow: &Flow) -> CallError {
    CallError::unsupported("bind", flow.to_string(), "its mover and its places do not fit")
}

fn index(at: Unit, flow: &Flow) -> Result<u32> {
    at.gpu().ok_or_else(|| no_fit(flow))
}

/// The buffers of a flow. An end in registers has none.
struct Ends<'m> {
    src: Option<Rc<Buffer<'m>>>,
    dst: Option<Rc<Buffer<'m>>>,
}

impl<'m> Ends<'m> {
    fn new(pool: &mut Pool<'m>, flow: &Flow, nth: usize) -> Result<Self> {
        let src = source(flow, nth).map(|key| pool.get(key)).transpose()?;
        let dst = destination(flow, nth).map(|key| pool.get(key)).transpose()?;
        if let Unit::Gpu(at) = flow.by.at() {
            for unit in [flow.src.unit, flow.dst.unit] {
                enable_peer(pool.machine, at, unit)?;
            }
            if matches!(flow.by, Mover::Kernel { .. }) && zero_copy(flow) {
                for buffer in [&src, &dst].into_iter().flatten() {
                    if buffer.place().mem == Mem::Managed {
                        buffer.advise_zero_copy(at)?;
                    }
                }
            }
        }
        Ok(Self { src, dst })
    }
    fn src(&self) -> u64 {
        self.src.as_ref().map_or(0, |b| b.address())
    }
    fn both(self) -> Option<(Rc<Buffer<'m>>, Rc<Buffer<'m>>)> {
        self.src.zip(self.dst)
    }
    fn dst(&self) -> u64 {
        self.dst.as_ref().map_or(0, |b| b.address())
    }
    fn spoil(&self) -> Result<()> {
        self.dst.as_ref().map_or(Ok(()), |dst| dst.fill(SPOILT_SEED, false))
    }
}

/// Lets `at` address memory of another GPU, where it can be addressed directly; where it cannot,
/// copies are staged and kernels fail with the runtime's own words.
fn enable_peer(machine: &Machine, at: u32, unit: Unit) -> Result<()> {
    let Unit::Gpu(peer) = unit else { return Ok(()) };
    if peer == at {
        return Ok(());
    }
    let driver = machine.driver()?;
    match driver.peer_access(at, peer)? {
        PeerAccess::Direct => driver.enable_peer(at, peer),
        PeerAccess::Staged => Ok(()),
    }
}

enum Job<'m> {
    Copy { engine: CopyEngine },
    Batch { copies: Vec<(u64, u64, Bytes)> },
    Kernel { kernel: Kernel<'m>, launch: Launch, steps: u64 },
    Migrate { to: Place, how: MigrateHow },
}

/// A lane on a stream of a GPU.
struct Streamed<'m> {
    machine: &'m Machine,
    gpu: u32,
    stream: Stream<'m>,
    start: Event<'m>,
    end: Event<'m>,
    ends: Ends<'m>,
    job: Job<'m>,
    bytes: Bytes,
    home: Place,
    engine: String,
    /// The call itself waits, so it is made after the gate and timed by the host.
    blocking: bool,
    isolated: bool,
    verified: bool,
    pending: u64,
}

impl<'m> Streamed<'m> {
    fn new(
        machine: &'m Machine,
        at: Unit,
        flow: &Flow,
        cadence: Cadence,
        ends: Ends<'m>,
        job: Job<'m>,
        verified: bool,
    ) -> Result<Self> {
        let gpu = machine.gpu(index(at, flow)?)?;
        let engine = match &job {
            Job::Copy { engine } => {
                machine.driver()?.copy_engine_name(ends.dst(), ends.src(), *engine)
            }
            Job::Batch { .. } => {
                let auto = CopyEngine::Auto;
                machine.driver()?.copy_engine_name(ends.dst(), ends.src(), auto)
            }
            Job::Kernel { .. } => "kernel".to_owned(),
            Job::Migrate { how, .. } => format!("page migration by {how}"),
        };
        Ok(Self {
            machine,
            gpu: gpu.index(),
            stream: gpu.stream()?,
            start: gpu.event()?,
            end: gpu.event()?,
            ends,
            job,
            bytes: flow.bytes,
            home: flow.src,
            engine,
            blocking: is_blocking(flow),
            isolated: cadence == Cadence::Isolated,
            verified,
            pending: 0,
        })
    }

    fn enqueue(&self) -> Result<()> {
        match &self.job {
            Job::Copy { engine } => {
                self.stream.copy(self.ends.dst(), self.ends.src(), self.bytes, *engine)
            }
            Job::Batch { copies } => self.stream.copy_batch(copies),
            Job::Kernel { kernel, launch, .. } => self.stream.launch(kernel, launch),
            Job::Migrate { to, how } => match &self.ends.src {
                Some(buffer) => self.stream.migrate(buffer, *to, *how),
                None => Ok(()),
            },
        }
    }

    fn steps(&self) -> u64 {
        if let Job::Kernel { steps, .. } = self.job { steps } else { 1 }
    }
}

impl Lane for Streamed<'_> {
    fn prepare(&mut self) -> Result<()> {
        if let (Job::Migrate { .. }, Some(buffer)) = (&self.job, &self.ends.src) {
            self.stream.migrate(buffer, self.home, MigrateHow::Prefetch)?;
            self.stream.wait()?;
        }
        Ok(())
    }

    fn issue(&mut self, gate: &Gate<'_>, reps: u64) -> Result<()> {
        self.pending = reps;
        if self.blocking {
            return Ok(());
        }
        self.stream.hold(gate)?;
        self.stream.record(&self.start)?;
        for _ in 0..reps {
            self.enqueue()?;
        }
        self.stream.record(&self.end)
    }

    fn wait(&mut self) -> Result<Lap> {
        let reps = std::mem::take(&mut self.pending);
        let elapsed = if self.blocking {
            let start = self.machine.clock.now();
            for _ in 0..reps {
                self.enqueue()?;
            }
            self.stream.wait()?;
            self.machine.clock.now() - start
        } else {
            self.stream.wait()?;
            self.end.since(&self.start)?
        };
        Ok(Lap::of(elapsed, reps * self.steps()))
    }

    fn events(&self) -> Option<(u32, &Event<'_>, &Event<'_>)> {
        (!self.blocking).then_some((self.gpu, &self.start, &self.end))
    }

    fn timer(&self) -> Timer {
        if self.blocking { Timer::Host } else { Timer::DeviceEvents }
    }

    fn engine(&self) -> String {
        self.engine.clone()
    }

    fn repeats(&self) -> bool {
        !self.isolated && !matches!(self.job, Job::Migrate { .. })
    }

    fn most(&self) -> u64 {
        match self.machine.driver() {
            Ok(driver) if !self.blocking => {
                let each =
                    if let Job::Batch { copies } = &self.job { copies.len() as u64 } else { 1 };
                (driver.queue_depth() / each.max(1)).clamp(1, MAX_REPS)
            }
            _ => MAX_REPS,
        }
    }

    fn spoil(&mut self) -> Result<()> {
        self.ends.spoil()
    }

    fn check(&self) -> Result<Verdict> {
        // Migrated pages are the same buffer: it must still hold its pattern.
        let holder = self.ends.dst.as_ref().or(self.ends.src.as_ref());
        match holder.filter(|_| self.verified) {
            Some(buffer) => buffer.check(SOURCE_SEED, self.bytes).map(|()| Verdict::Verified),
            None => Ok(nothing_to_compare()),
        }
    }
}

/// A lane of CPU threads.
struct Threaded<'m> {
    team: Team<'m>,
    ends: Ends<'m>,
    work: Work,
}

impl Lane for Threaded<'_> {
    fn prepare(&mut self) -> Result<()> {
        match (&self.ends.dst, self.work.work.op) {
            (Some(dst), CpuOp::Touch) => dst.discard(),
            _ => Ok(()),
        }
    }

    fn issue(&mut self, gate: &Gate<'_>, reps: u64) -> Result<()> {
        self.team.submit(gate, &Work { reps, ..self.work })
    }

    fn wait(&mut self) -> Result<Lap> {
        let reaped = self.team.reap()?;
        Ok(Lap::of(reaped.elapsed, reaped.steps))
    }

    fn timer(&self) -> Timer {
        Timer::Threads
    }

    fn engine(&self) -> String {
        self.work.work.how.word().to_owned()
    }

    fn team(&self) -> Option<&Team<'_>> {
        Some(&self.team)
    }

    fn repeats(&self) -> bool {
        self.work.work.op != CpuOp::Touch
    }

    fn spoil(&mut self) -> Result<()> {
        self.ends.spoil()
    }

    fn check(&self) -> Result<Verdict> {
        match &self.ends.dst {
            Some(dst) if self.work.work.op == CpuOp::Copy => {
                dst.check(SOURCE_SEED, self.work.bytes).map(|()| Verdict::Verified)
            }
            _ => Ok(nothing_to_compare()),
        }
    }
}
