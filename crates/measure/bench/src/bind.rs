//! Binding: a flow becomes a lane. Copies and kernels on streams and threads on cores are here;
//! calls, files and messages have separate files.

use std::cell::Cell;
use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, ChainPart, CopyChoice, GpuEvent, GpuKernel, GpuStream, KernelLaunch,
    Machine, MachineBuffer, PeerAccess, StartGate, TeamId, TeamWork, ThreadTeam, WorkerRange,
};
use pathline_schema::{
    Bytes, CHASE_STEPS, Cadence, Case, CpuOp, FaultHandling, Flow, KernelOp, KernelVariant,
    MemKind, MigrateHow, Mover, Ns, Place, ScatterMethod, Severity, TimerKind, Topology, Unit,
    VerifyResult,
};

use crate::block_places::BlockPlaces;
use crate::block_sample::SampledBlock;
use crate::calls::{self, CallLane};
use crate::cpu_reach::CpuReach;
use crate::files::{FileLane, worker_range};
use crate::lane::{
    self, BoundLane, LaneSample, MAX_REPS, SOURCE_SEED, SPOILT_SEED, nothing_to_compare,
};
use crate::meta::MetaLane;
use crate::multipath_lane::MultipathLane;
use crate::needs::{is_blocking, page_faults};
use crate::pageable_lane::PageableLane;
use crate::pool::{BufferPool, destination, further_destinations, source};
use crate::staged::StagedLane;
use crate::suites::{core_bulk, core_cache};

/// Binds the `nth` flow of a case: allocates, compiles, opens streams. If there are enough CPUs,
/// its threads avoid the CPUs of the other teams of the case. A case with one team uses the same
/// CPUs as every such case.
pub(crate) fn bind<'m>(
    pool: &mut BufferPool<'m>,
    case: &Case,
    nth: usize,
    others: &[TeamId],
) -> CallResult<Box<dyn BoundLane + 'm>> {
    let (machine, cadence) = (pool.machine, case.cadence);
    let flow = case.flows().nth(nth).ok_or_else(|| {
        let reason = format!("it has no flow {nth}");
        CallError::unsupported("bind", case.to_string(), reason)
    })?;
    calls::has_adapter(machine, flow)?;
    let ends = FlowBuffers::new(pool, flow, nth)?;
    let streamed = |at, ends, job, verified| -> CallResult<Box<dyn BoundLane + 'm>> {
        Ok(Box::new(StreamLane::new(machine, at, flow, cadence, ends, job, verified)?))
    };
    match flow.by {
        Mover::Dma { at } => streamed(at, ends, GpuWork::Copy { engine: CopyChoice::Auto }, true),
        Mover::Blit { at } => streamed(at, ends, GpuWork::Copy { engine: CopyChoice::Blit }, true),
        Mover::Kernel { at, variant } => {
            let kernel = machine.gpu(index(at, flow)?)?.kernel(&variant)?;
            let launch = KernelLaunch { src: ends.src(), dst: ends.dst(), bytes: flow.bytes };
            if variant.op == KernelOp::Chase {
                let work = GpuWork::Chase { kernel, launch, followed: Cell::new(0) };
                return streamed(at, ends, work, false);
            }
            let work = GpuWork::Kernel { kernel, launch, op: variant.op };
            streamed(at, ends, work, variant.op == KernelOp::Copy)
        }
        Mover::Migrate { at, how } => {
            let gpu = at.gpu().or(flow.src.unit.gpu()).ok_or_else(|| no_fit(flow))?;
            streamed(Unit::Gpu(gpu), ends, GpuWork::Migrate { to: flow.dst, how }, true)
        }
        Mover::Staged { via, .. } => {
            let ends = ends.both().ok_or_else(|| no_fit(flow))?;
            let isolated = cadence == Cadence::Isolated;
            Ok(Box::new(StagedLane::new(machine, flow, via, ends, isolated)?))
        }
        Mover::Threads { threads, .. } => {
            let ends = ends.both().ok_or_else(|| no_fit(flow))?;
            let isolated = cadence == Cadence::Isolated;
            Ok(Box::new(PageableLane::new(machine, flow, threads, ends, isolated)?))
        }
        Mover::Batch { at, copies } => {
            let copies = pieces(&ends, flow.bytes, copies);
            streamed(at, ends, GpuWork::Batch { copies }, true)
        }
        Mover::Blocks { at, blocks, by } => {
            let each = Bytes(flow.bytes.0 / u64::from(blocks.max(1)));
            let places = BlockPlaces::new(blocks, each);
            let copies = places.copies(ends.dst(), ends.src());
            let list = match by {
                ScatterMethod::Kernel { units } => {
                    Some(machine.gpu(index(at, flow)?)?.block_copies(&copies, units)?)
                }
                _ if copies.len() as u64 > machine.driver()?.queue_depth() => {
                    let why = "it has more copies than fit into a held stream";
                    return Err(CallError::unsupported("bind", flow.to_string(), why));
                }
                _ => None,
            };
            streamed(at, ends, GpuWork::Blocks { copies, by, list, places }, true)
        }
        Mover::Relay { paths, .. } | Mover::CopyToAll { paths, .. } => {
            let ends = ends.both().ok_or_else(|| no_fit(flow))?;
            let others = further_destinations(flow, nth).map(|key| pool.get(key));
            let others = others.collect::<CallResult<_>>()?;
            Ok(Box::new(MultipathLane::new(pool.engine(), flow, paths, ends, others)))
        }
        Mover::Wire { .. } => Err(no_fit(flow)),
        Mover::Io { io, .. } => {
            let alone = || WorkerRange::alone(&io);
            let workers = worker_range(case, nth).unwrap_or_else(alone);
            Ok(Box::new(FileLane::new(machine, flow, (io, workers), ends.src, ends.dst)?))
        }
        Mover::Meta { meta, .. } => Ok(Box::new(MetaLane::new(machine, flow, meta)?)),
        Mover::Call { call, .. } => Ok(Box::new(CallLane::new(machine, flow, call, ends.src)?)),
        Mover::Cpu { at, work, threads } => {
            let numa = at.numa().ok_or_else(|| no_fit(flow))?;
            let work = TeamWork {
                work,
                src: ends.src(),
                dst: ends.dst(),
                bytes: flow.bytes,
                reps: 1,
                isolated: cadence == Cadence::Isolated,
                chase_steps: chase_steps(&machine.topology, flow),
            };
            let reach = CpuReach::new(machine, flow, [ends.src.as_ref(), ends.dst.as_ref()])?;
            let team = machine.team_near(numa, threads, others)?;
            Ok(Box::new(ThreadLane { team, reach, ends, work }))
        }
    }
}

/// Loads of one operation of a CPU's pointer chase past every cache: 6 to 10 ms. All of a chain of 1 GiB
/// takes a second, so that three samples of it were four times the time budget of a case.
const CPU_CHASE_STEPS: u64 = 1 << 16;

/// Parts of a chain that is larger than the cache of its core but not past it: eight samples see all of it.
const CHASE_PARTS: u64 = 8;

/// Loads that one operation of a CPU's pointer chase follows, if not the whole chain: a cache that can hold
/// the chain must be filled by all of it before a sample counts.
fn chase_steps(topology: &Topology, flow: &Flow) -> Option<u64> {
    if !flow.by.is_chase() || flow.bytes <= core_cache(topology) {
        return None;
    }
    if flow.bytes >= core_bulk(topology) {
        return Some(CPU_CHASE_STEPS);
    }
    let elements = flow.bytes.0 / KernelVariant::chase_bytes(1).0;
    Some((elements / CHASE_PARTS).max(CPU_CHASE_STEPS))
}

/// Shortest sample of a GPU's pointer chase: six operations of 1.7 ms over NVLink, each on another
/// compute unit, so that eight samples cover 48 units or more. A pass over 2 MiB took as long.
const CHASED: Ns = Ns(10_000_000.0);

/// Equal parts of the bytes; the last one gets the remainder.
fn pieces(ends: &FlowBuffers<'_>, bytes: Bytes, copies: u32) -> Vec<(u64, u64, Bytes)> {
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

fn index(at: Unit, flow: &Flow) -> CallResult<u32> {
    at.gpu().ok_or_else(|| no_fit(flow))
}

/// The buffers of a flow; `None` for an end in registers.
struct FlowBuffers<'m> {
    src: Option<Rc<MachineBuffer<'m>>>,
    dst: Option<Rc<MachineBuffer<'m>>>,
}

impl<'m> FlowBuffers<'m> {
    fn new(pool: &mut BufferPool<'m>, flow: &Flow, nth: usize) -> CallResult<Self> {
        let src = source(flow, nth).map(|key| pool.get(key)).transpose()?;
        let dst = destination(flow, nth).map(|key| pool.get(key)).transpose()?;
        if let Unit::Gpu(at) = flow.by.at() {
            for unit in [flow.src.unit, flow.dst.unit] {
                enable_peer(pool.machine, at, unit)?;
            }
            if page_faults(flow) == Some(FaultHandling::InPlace) {
                for buffer in [&src, &dst].into_iter().flatten() {
                    if buffer.place().mem == MemKind::Managed {
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
    fn both(self) -> Option<(Rc<MachineBuffer<'m>>, Rc<MachineBuffer<'m>>)> {
        self.src.zip(self.dst)
    }
    fn dst(&self) -> u64 {
        self.dst.as_ref().map_or(0, |b| b.address())
    }
    fn spoil(&self) -> CallResult<()> {
        self.dst.as_ref().map_or(Ok(()), |dst| dst.fill(SPOILT_SEED, false))
    }
}

/// Lets `at` address memory of another GPU, where the runtime allows it; otherwise copies are
/// staged, and kernels fail with the runtime's own error.
fn enable_peer(machine: &Machine, at: u32, unit: Unit) -> CallResult<()> {
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

enum GpuWork<'m> {
    Copy {
        engine: CopyChoice,
    },
    Batch {
        copies: Vec<(u64, u64, Bytes)>,
    },
    Kernel {
        kernel: GpuKernel<'m>,
        launch: KernelLaunch,
        /// What it does, which decides what is compared.
        op: KernelOp,
    },
    /// Each operation follows [`CHASE_STEPS`] loads from the end of the last one.
    Chase {
        kernel: GpuKernel<'m>,
        launch: KernelLaunch,
        followed: Cell<u64>,
    },
    /// Blocks at scattered places.
    Blocks {
        copies: Vec<(u64, u64, Bytes)>,
        by: ScatterMethod,
        /// The kernel that copies them, if one does.
        list: Option<GpuKernel<'m>>,
        places: BlockPlaces,
    },
    Migrate {
        to: Place,
        how: MigrateHow,
    },
}

/// A lane on a stream of a GPU.
struct StreamLane<'m> {
    machine: &'m Machine,
    gpu: u32,
    stream: GpuStream<'m>,
    start: GpuEvent<'m>,
    end: GpuEvent<'m>,
    ends: FlowBuffers<'m>,
    job: GpuWork<'m>,
    bytes: Bytes,
    home: Place,
    engine: String,
    /// The call blocks, so it is made after the gate opens and timed by the host.
    blocking: bool,
    isolated: bool,
    verified: bool,
    pending: u64,
}

impl<'m> StreamLane<'m> {
    fn new(
        machine: &'m Machine,
        at: Unit,
        flow: &Flow,
        cadence: Cadence,
        ends: FlowBuffers<'m>,
        job: GpuWork<'m>,
        verified: bool,
    ) -> CallResult<Self> {
        let gpu = machine.gpu(index(at, flow)?)?;
        let engine = match &job {
            GpuWork::Copy { engine } => {
                machine.driver()?.copy_engine_name(ends.dst(), ends.src(), flow.bytes, *engine)
            }
            GpuWork::Batch { copies } | GpuWork::Blocks { copies, list: None, .. } => {
                let (auto, each) = (CopyChoice::Auto, copies.first().map_or(flow.bytes, |c| c.2));
                machine.driver()?.copy_engine_name(ends.dst(), ends.src(), each, auto)
            }
            GpuWork::Kernel { .. } | GpuWork::Chase { .. } | GpuWork::Blocks { .. } => {
                "kernel".to_owned()
            }
            GpuWork::Migrate { how, .. } => format!("page migration by {how}"),
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

    fn enqueue(&self) -> CallResult<()> {
        match &self.job {
            GpuWork::Copy { engine } => {
                self.stream.copy(self.ends.dst(), self.ends.src(), self.bytes, *engine)
            }
            GpuWork::Batch { copies } => self.stream.copy_batch(copies),
            GpuWork::Kernel { kernel, launch, .. } => self.stream.launch(kernel, launch),
            GpuWork::Blocks { list: Some(list), .. } => self.stream.copy_blocks(list),
            GpuWork::Blocks { copies, by: ScatterMethod::Batch, .. } => {
                self.stream.copy_batch(copies)
            }
            GpuWork::Blocks { copies, .. } => copies.iter().try_for_each(|&(dst, src, bytes)| {
                self.stream.copy(dst, src, bytes, CopyChoice::Auto)
            }),
            GpuWork::Chase { kernel, launch, followed } => {
                let part = ChainPart { nth: followed.get(), steps: CHASE_STEPS };
                followed.set(part.nth.wrapping_add(1));
                self.stream.follow(kernel, launch, part)
            }
            GpuWork::Migrate { to, how } => match &self.ends.src {
                Some(buffer) => self.stream.migrate(buffer, *to, *how),
                None => Ok(()),
            },
        }
    }

    fn steps(&self) -> u64 {
        if self.chases() { CHASE_STEPS } else { 1 }
    }

    fn chases(&self) -> bool {
        matches!(self.job, GpuWork::Chase { .. })
    }
}

impl BoundLane for StreamLane<'_> {
    fn prepare(&mut self) -> CallResult<()> {
        if let (GpuWork::Migrate { .. }, Some(buffer)) = (&self.job, &self.ends.src) {
            self.stream.migrate(buffer, self.home, MigrateHow::Prefetch)?;
            self.stream.wait()?;
        }
        Ok(())
    }

    fn issue(&mut self, gate: &StartGate<'_>, reps: u64) -> CallResult<()> {
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

    fn wait(&mut self) -> CallResult<LaneSample> {
        let reps = std::mem::take(&mut self.pending);
        let steps = reps * self.steps();
        if self.blocking {
            return lane::on_this_thread(self.machine, steps, || {
                let start = self.machine.clock.now();
                for _ in 0..reps {
                    self.enqueue()?;
                }
                self.stream.wait()?;
                Ok(self.machine.clock.now() - start)
            });
        }
        self.stream.wait()?;
        Ok(LaneSample::of(self.end.since(&self.start)?, steps))
    }

    fn events(&self) -> Option<(u32, &GpuEvent<'_>, &GpuEvent<'_>)> {
        (!self.blocking).then_some((self.gpu, &self.start, &self.end))
    }

    fn timer(&self) -> TimerKind {
        if self.blocking { TimerKind::Host } else { TimerKind::DeviceEvents }
    }

    fn engine(&self) -> String {
        self.engine.clone()
    }

    fn repeats(&self) -> bool {
        !self.isolated && !matches!(self.job, GpuWork::Migrate { .. })
    }

    fn min_sample(&self) -> Ns {
        if self.chases() { CHASED } else { Ns::ZERO }
    }

    fn adds_up(&self) -> bool {
        self.isolated && !self.blocking && !matches!(self.job, GpuWork::Migrate { .. })
    }

    fn payload(&self) -> Option<Bytes> {
        self.chases().then(|| KernelVariant::chase_bytes(CHASE_STEPS))
    }

    fn most(&self) -> u64 {
        match self.machine.driver() {
            Ok(driver) if !self.blocking => {
                let each = match &self.job {
                    GpuWork::Batch { copies } | GpuWork::Blocks { copies, list: None, .. } => {
                        copies.len() as u64
                    }
                    _ => 1,
                };
                (driver.queue_depth() / each.max(1)).clamp(1, MAX_REPS)
            }
            _ => MAX_REPS,
        }
    }

    fn spoil(&mut self) -> CallResult<()> {
        self.ends.spoil()
    }

    fn has_blocks(&self) -> bool {
        let is_whole = !matches!(self.job, GpuWork::Blocks { .. });
        self.verified && is_whole && self.ends.dst.is_some()
    }

    fn spoil_blocks(&mut self, blocks: &[SampledBlock]) -> CallResult<()> {
        let Some(dst) = &self.ends.dst else { return Ok(()) };
        blocks.iter().try_for_each(|&(at, len)| dst.fill_part(at, Bytes(len), SPOILT_SEED))
    }

    fn check_blocks(&self, blocks: &[SampledBlock]) -> CallResult<VerifyResult> {
        let Some(dst) = self.ends.dst.as_ref().filter(|_| self.verified) else {
            return self.check();
        };
        blocks.iter().try_for_each(|&(at, len)| dst.check_block(at, Bytes(len), SOURCE_SEED))?;
        Ok(VerifyResult::Verified)
    }

    fn check(&self) -> CallResult<VerifyResult> {
        if let GpuWork::Kernel { kernel, launch, op } = &self.job {
            let compared = match op {
                KernelOp::Read => Some(kernel.check_read(launch, SOURCE_SEED)),
                KernelOp::Write | KernelOp::Triad => Some(kernel.check_stored(launch)),
                KernelOp::Copy | KernelOp::Chase | KernelOp::Fma => None,
            };
            if let Some(compared) = compared {
                return verdict_of(compared);
            }
        }
        if let (GpuWork::Blocks { places, .. }, Some(dst)) = (&self.job, &self.ends.dst) {
            return places.check(dst).map(|()| VerifyResult::Verified);
        }
        // A migration has one buffer, which must still hold its pattern.
        let holder = self.ends.dst.as_ref().or(self.ends.src.as_ref());
        match holder.filter(|_| self.verified) {
            Some(buffer) => buffer.check(SOURCE_SEED, self.bytes).map(|()| VerifyResult::Verified),
            None => Ok(nothing_to_compare()),
        }
    }
}

/// The verdict of a comparison by a kernel. A comparison that cannot run here, for want of a compiler
/// that takes it, costs the case its verdict and not its figure.
fn verdict_of(compared: CallResult<()>) -> CallResult<VerifyResult> {
    match compared {
        Ok(()) => Ok(VerifyResult::Verified),
        Err(error) if error.severity == Severity::Unsupported => {
            Ok(VerifyResult::Unverified(format!("it could not be compared: {error}")))
        }
        Err(error) => Err(error),
    }
}

/// A lane of CPU threads.
struct ThreadLane<'m> {
    team: ThreadTeam<'m>,
    reach: CpuReach<'m>,
    ends: FlowBuffers<'m>,
    work: TeamWork,
}

impl BoundLane for ThreadLane<'_> {
    fn prepare(&mut self) -> CallResult<()> {
        self.reach.prepare()?;
        match (&self.ends.dst, self.work.work.op) {
            (Some(dst), CpuOp::Touch) => dst.discard(),
            _ => Ok(()),
        }
    }

    fn issue(&mut self, gate: &StartGate<'_>, reps: u64) -> CallResult<()> {
        self.team.submit(gate, &TeamWork { reps, ..self.work })
    }

    fn wait(&mut self) -> CallResult<LaneSample> {
        let reaped = self.team.reap()?;
        let off_cpu = reaped.off_cpu;
        Ok(LaneSample { off_cpu, ..LaneSample::of(reaped.elapsed, reaped.steps) })
    }

    fn timer(&self) -> TimerKind {
        TimerKind::Threads
    }

    fn engine(&self) -> String {
        self.work.work.how.word().to_owned()
    }

    fn team(&self) -> Option<&ThreadTeam<'_>> {
        Some(&self.team)
    }

    fn repeats(&self) -> bool {
        self.work.work.op != CpuOp::Touch && !self.reach.moves_pages()
    }

    fn payload(&self) -> Option<Bytes> {
        self.work.chase_steps.map(KernelVariant::chase_bytes)
    }

    fn spoil(&mut self) -> CallResult<()> {
        self.ends.spoil()
    }

    fn check(&self) -> CallResult<VerifyResult> {
        self.reach.flush()?;
        match (&self.ends.dst, self.work.work.op) {
            (Some(dst), CpuOp::Copy) => {
                dst.check(SOURCE_SEED, self.work.bytes).map(|()| VerifyResult::Verified)
            }
            (None, CpuOp::Read) => {
                self.team.check_read(&self.work, SOURCE_SEED).map(|()| VerifyResult::Verified)
            }
            (Some(_), CpuOp::Write | CpuOp::Triad) if self.team.check_stored(&self.work)? => {
                Ok(VerifyResult::Verified)
            }
            _ => Ok(nothing_to_compare()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrong bytes, and a device that does not answer, are faults of the case; a comparison that cannot run is none.
    #[test]
    fn only_a_comparison_that_cannot_run_costs_no_figure() {
        let with = |severity| verdict_of(Err(CallError::new(severity, "check", "a read", "why")));
        assert_eq!(verdict_of(Ok(())), Ok(VerifyResult::Verified));
        let unverified = with(Severity::Unsupported);
        assert!(matches!(unverified, Ok(VerifyResult::Unverified(why)) if why.contains("a read")));
        for severity in [Severity::Corrupt, Severity::Sticky, Severity::Transient] {
            assert_eq!(with(severity).unwrap_err().severity, severity);
        }
    }
}
