//! The one world that all parts of a simulated machine share.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use pathline_flow::{
    CountedResources, FlowOperation, IoCosts, IoParts, MachineDesc, Network, RuntimeEnv, StoreModel,
};
use pathline_hal::{CallError, CallResult, pattern};
use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, Flow, Gpu, GpuCaps, KernelOp, KernelVariant, MemKind, Mover, Ns,
    Place, Rank, RuntimeCall, Severity, Topology, Unit,
};

use crate::SimOptions;
use crate::fault::FaultScript;
use crate::machine_faults::ActingFaults;
use crate::memory::{BufferSpot, SimMemory, StoredForm};
use crate::path_counts::PathCounts;
use crate::timeline::{LaneOp, LaneOwner, LaneTransfer, SimTimeline};

/// The effect of a transfer on memory when it ends.
#[derive(Debug)]
pub(crate) struct MemoryEffect {
    pub(crate) src: Option<BufferSpot>,
    pub(crate) dst: Option<BufferSpot>,
    pub(crate) bytes: u64,
    pub(crate) does: EffectKind,
    /// Whether one line of what it writes is wrong.
    pub(crate) damages: bool,
}

/// How the destination follows from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffectKind {
    /// It is only read.
    Read,
    /// It is the same.
    Copy,
    /// All ranges of the list of that number are the same; source and destination are those of its first.
    CopyList(u64),
    /// It holds what the operation computes.
    Store(StoredForm),
    /// Its value is never compared.
    Scramble,
    /// The pages of the source change their place. That they do is known from the time of issue
    /// on, so that what is enqueued behind finds them there.
    Migrate,
}

/// A loaded kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadedKernel {
    pub(crate) gpu: u32,
    pub(crate) variant: KernelVariant,
}

/// Ranges that a kernel copies: destination, source, bytes.
#[derive(Debug)]
pub(crate) struct CopyList {
    pub(crate) gpu: u32,
    pub(crate) thread_blocks: u32,
    pub(crate) ranges: Vec<(BufferSpot, BufferSpot, u64)>,
}

/// Submitted work of a team that has not been reaped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TeamTask {
    pub(crate) steps: u64,
    /// Whether there is nothing to do: work of no bytes or no passes.
    pub(crate) empty: bool,
}

/// Least time of any call: a loop that polls must end.
const TICK: f64 = 1.0;
/// How long a caller waits for a GPU that hangs, s.
const HANG_SECONDS: f64 = 1.0;
/// The most operations that are kept: a sweep of all paths has thousands, of about 1 KiB each.
const MOST_CACHED: usize = 1 << 13;

pub(crate) struct SimWorld {
    /// Host clock of each rank. The world never passes the earliest clock of the running ranks;
    /// with one rank it advances as far as that rank waits.
    clocks: Vec<f64>,
    pub(crate) timeline: SimTimeline<MemoryEffect>,
    pub(crate) memory: SimMemory,
    pub(crate) topology: Topology,
    pub(crate) switches: RuntimeEnv,
    pub(crate) kernels: BTreeMap<u64, LoadedKernel>,
    pub(crate) lists: BTreeMap<u64, CopyList>,
    pub(crate) tasks: BTreeMap<u64, TeamTask>,
    /// Teams of whose reads one was damaged: it loaded other bytes than the memory holds.
    pub(crate) misread: BTreeSet<u64>,
    pub(crate) peers: BTreeSet<(u32, u32)>,
    pub(crate) stores: Vec<StoreModel>,
    /// What I/O costs the CPUs, if the machine has stores.
    pub(crate) io: Option<IoCosts>,
    network: Network,
    /// Its counters, as the timeline has them.
    pub(crate) counted: Vec<CountedResources>,
    operations: HashMap<Flow, Rc<FlowOperation>>,
    last: Option<(Flow, Rc<FlowOperation>)>,
    script: FaultScript,
    /// Faults of the described machine that this process has.
    pub(crate) faults: ActingFaults,
    /// GPUs that a sticky fault has made unusable.
    lost: BTreeSet<u32>,
    /// The GPU on which an operation was begun that never ends.
    hung: Option<u32>,
    jitter: f64,
    seed: u64,
    draws: u64,
}

impl SimWorld {
    pub(crate) fn new(
        desc: &MachineDesc,
        switches: RuntimeEnv,
        options: &SimOptions,
    ) -> std::result::Result<Self, pathline_flow::DescError> {
        let faults = ActingFaults::draw(desc.faults(), options.seed);
        let network = Network::with_faults(desc, switches, faults.all())?;
        let topology = desc.topology_with(faults.all());
        // Only a runtime that reads these variables follows them.
        let reads = topology.gpu_env(|caps| caps.copy_engine_env).is_some();
        let switches = if reads { switches } else { RuntimeEnv::default() };
        let gpus = topology.gpus.iter().map(|g| (Unit::Gpu(g.index), g.memory.0));
        let domains = topology.numa.iter().map(|d| (Unit::Numa(d.id), d.memory.0));
        let stores = (0..).map(Unit::Store).zip(desc.stores.iter().map(|s| s.capacity().0));
        let memory = SimMemory::new(gpus.chain(domains).chain(stores), options.seed);
        let counted = network.counted_resources();
        let capacities = network.resources().iter().map(|r| r.capacity.0).collect();
        Ok(Self {
            clocks: vec![0.0],
            timeline: SimTimeline::new(capacities)
                .with_counts(PathCounts::new(&counted, network.resources().len()))
                .with_orders_of(options.seed)
                .with_event_gap(network.event_gap().0),
            memory,
            topology,
            switches,
            kernels: BTreeMap::new(),
            lists: BTreeMap::new(),
            tasks: BTreeMap::new(),
            misread: BTreeSet::new(),
            peers: BTreeSet::new(),
            stores: desc.stores.clone(),
            io: desc.io.clone(),
            network,
            counted,
            operations: HashMap::new(),
            last: None,
            script: FaultScript::new(options.faults.clone()),
            faults,
            lost: BTreeSet::new(),
            hung: None,
            jitter: options.jitter,
            seed: options.seed,
            draws: 0,
        })
    }

    /// The host clock of a rank.
    pub(crate) fn clock(&self, rank: Rank) -> f64 {
        self.clocks.get(rank.0 as usize).copied().unwrap_or_default()
    }
    /// Lets the host of a rank spend time.
    pub(crate) fn charge(&mut self, rank: Rank, time: f64) {
        if let Some(clock) = self.clocks.get_mut(rank.0 as usize) {
            *clock += time.max(0.0);
        }
    }
    /// Charges the host for a call whose cost the description states.
    pub(crate) fn charge_call(
        &mut self,
        rank: Rank,
        call: RuntimeCall,
        mem: Option<MemKind>,
        bytes: Bytes,
    ) {
        let time = self.network.call_time(call, mem, bytes).unwrap_or(Ns::ZERO);
        self.charge(rank, time.0);
    }
    /// Host time of the call that enqueues many copies; none if this runtime has none.
    pub(crate) fn batch_call(&self) -> Option<Ns> {
        self.network.batch_call()
    }
    /// A call enters the world: it costs at least a nanosecond, and may be struck by a fault.
    /// Whether what it writes is damaged.
    pub(crate) fn enter(
        &mut self,
        rank: Rank,
        call: &'static str,
        gpu: Option<u32>,
    ) -> CallResult<bool> {
        self.charge(rank, TICK);
        if let Some(gpu) = gpu {
            if self.faults.crashes(gpu, self.clock(rank)) {
                self.lost.insert(gpu);
            }
            self.gpu_known(call, gpu)?;
        }
        let struck = self.script.enter(call, gpu);
        if let (Err(error), Some(gpu)) = (&struck, gpu)
            && error.severity == Severity::Sticky
        {
            self.lost.insert(gpu);
        }
        struck
    }

    /// Capabilities of the runtime of its GPUs.
    pub(crate) fn caps(&self) -> &'static GpuCaps {
        self.topology.gpus.first().map_or_else(|| GpuCaps::of_vendor(""), Gpu::caps)
    }

    /// The error unless there is such a GPU and it can be used.
    pub(crate) fn gpu_known(&self, call: &'static str, gpu: u32) -> CallResult<()> {
        let thing = || format!("gpu{gpu}");
        if self.lost.contains(&gpu) {
            let reason = "an earlier fault has made the device unusable";
            return Err(CallError::new(Severity::Sticky, call, thing(), reason)
                .or_try("start again; a device that stays so needs a reset"));
        }
        let known = self.topology.gpus.iter().any(|g| g.index == gpu);
        known.then_some(()).ok_or_else(|| no_such(call, &thing()))
    }

    /// The error for a payload whose double no number holds: a triad loads twice its payload.
    pub(crate) fn bytes_fit(&self, call: &'static str, bytes: Bytes) -> CallResult<()> {
        let fits = bytes.0.checked_mul(2).is_some();
        fits.then_some(()).ok_or_else(|| no_buffer(call, format!("{bytes}")))
    }

    /// Lets everything happen that is due by the host clock.
    pub(crate) fn catch_up(&mut self, rank: Rank) {
        let now = self.clock(rank);
        while self.timeline.next().is_some_and(|at| at <= now) {
            self.step();
        }
    }

    /// Lets the host of a rank wait until something happens, `at_most` that long in ns.
    pub(crate) fn pause(&mut self, rank: Rank, at_most: f64) {
        self.catch_up(rank);
        let now = self.clock(rank);
        let latest = now + at_most;
        let next = self.timeline.next().map_or(latest, |at| at.min(latest));
        self.charge(rank, next - now);
        self.catch_up(rank);
    }

    fn step(&mut self) {
        if let Some(effect) = self.timeline.step() {
            self.apply(&effect);
        }
    }

    /// Blocks a rank until `done` gives an instant: its host clock is then not earlier. An error
    /// if that will never be.
    pub(crate) fn block(
        &mut self,
        rank: Rank,
        call: &'static str,
        thing: &str,
        done: impl Fn(&Self) -> Option<f64>,
    ) -> CallResult<()> {
        self.catch_up(rank);
        loop {
            if let Some(at) = done(self) {
                let wait = at - self.clock(rank);
                self.charge(rank, wait);
                return Ok(());
            }
            if self.timeline.next().is_none() {
                if let Some(gpu) = self.hung {
                    self.charge(rank, HANG_SECONDS * 1e9);
                    let reason = format!("no answer in {HANG_SECONDS} s (timeout)");
                    let error = CallError::new(Severity::Sticky, call, format!("gpu{gpu}"), reason);
                    return Err(error.or_try("a GPU that stays so needs a reset"));
                }
                let reason = format!("virtual deadlock: {}", self.timeline.waiting_lanes());
                return Err(CallError::new(Severity::Transient, call, thing, reason)
                    .or_try("release the gate before waiting"));
            }
            self.step();
        }
    }

    fn apply(&mut self, effect: &MemoryEffect) {
        self.release(effect);
        let wrote = match (effect.does, effect.src, effect.dst) {
            (EffectKind::Copy, Some(src), Some(dst)) => {
                self.memory.copy(dst, src, effect.bytes);
                Some(dst)
            }
            (EffectKind::CopyList(id), _, dst) => {
                let ranges = self.lists.get(&id).map_or(&[][..], |list| &list.ranges);
                for &(dst, src, bytes) in ranges {
                    self.memory.copy(dst, src, bytes);
                }
                dst
            }
            (EffectKind::Store(form), src, Some(dst)) => {
                self.memory.store(dst, src, effect.bytes, form);
                Some(dst)
            }
            (EffectKind::Scramble, _, Some(dst)) => {
                self.memory.scramble(dst, effect.bytes);
                Some(dst)
            }
            (EffectKind::Migrate, at, _) => at,
            _ => None,
        };
        if let Some(at) = wrote.filter(|_| effect.damages) {
            self.memory.damage(at, effect.bytes);
        }
    }
    /// Its buffers have one user less.
    pub(crate) fn release(&mut self, effect: &MemoryEffect) {
        for spot in [effect.src, effect.dst].into_iter().flatten() {
            if let Some(buffer) = self.memory.buffer_mut(spot.base) {
                buffer.pending = buffer.pending.saturating_sub(1);
            }
        }
    }

    /// Cost and resource use of one operation of `flow`.
    pub(crate) fn operation(
        &mut self,
        call: &'static str,
        flow: Flow,
    ) -> CallResult<Rc<FlowOperation>> {
        if let Some((last, operation)) = &self.last
            && *last == flow
        {
            return Ok(Rc::clone(operation));
        }
        let operation = match self.operations.get(&flow) {
            Some(operation) => Rc::clone(operation),
            None => {
                let flow_on_pages = self.faults.on_pages(flow);
                let operation = self.network.operation(&flow_on_pages).map_err(|no| {
                    CallError::unsupported(call, flow.to_string(), no.0)
                        .or_try("choose another mover or kind of memory")
                })?;
                if self.operations.len() >= MOST_CACHED {
                    self.operations.clear();
                }
                let operation = Rc::new(operation);
                self.operations.insert(flow, Rc::clone(&operation));
                operation
            }
        };
        self.last = Some((flow, Rc::clone(&operation)));
        Ok(operation)
    }

    /// A factor near 1: the spread that any machine shows.
    pub(crate) fn jitter(&mut self) -> f64 {
        if self.jitter == 0.0 {
            return 1.0;
        }
        self.draws += 1;
        let bits = pattern::word(self.seed, self.draws);
        // Three uniform numbers of 21 bits: their sum has a standard deviation of 1/2, and a sum
        // is bounded where a normal number is not.
        let uniform = |shift: u32| ((bits >> shift) & 0x1f_ffff) as f64 / f64::from(1 << 21);
        let deviate = 2.0 * (uniform(0) + uniform(21) + uniform(42) - 1.5);
        1.0 + self.jitter * deviate
    }

    /// A factor of median 1 for an operation whose times spread by this part.
    fn spread(&self, part: f64) -> f64 {
        if part == 0.0 || self.jitter == 0.0 {
            return 1.0;
        }
        let bits = pattern::word(self.seed ^ 0x7370_7265_6164, self.draws) >> 11;
        // In (0, 1]: the logarithm is finite.
        let uniform = (bits + 1) as f64 / (1_u64 << 53) as f64;
        let of = |exponential: f64| 1.0 - part + part * exponential;
        of(-uniform.ln()) / of(std::f64::consts::LN_2)
    }

    /// A separate seed for a consumer of many random numbers, and whether times spread.
    pub(crate) fn chance(&mut self) -> (u64, bool) {
        self.draws += 1;
        (pattern::word(self.seed ^ 0x0066_696c_6573, self.draws), self.jitter > 0.0)
    }

    /// Resource use of I/O, part by part.
    pub(crate) fn io_parts(&self, flow: &Flow) -> std::result::Result<IoParts, String> {
        self.network.io_parts(flow).map_err(|no| no.0)
    }

    /// Enqueues a transfer of `passes` times `bytes`, of which `amount` bytes in all must move.
    pub(crate) fn enqueue(
        &mut self,
        rank: Rank,
        lane: u64,
        operation: Rc<FlowOperation>,
        load: TransferLoad,
        effect: MemoryEffect,
    ) {
        for spot in [effect.src, effect.dst].into_iter().flatten() {
            if let Some(buffer) = self.memory.buffer_mut(spot.base) {
                buffer.pending += 1;
            }
        }
        let factor = self.jitter() * self.spread(operation.spread);
        let issued = self.clock(rank);
        let operation = self.faulty(lane, issued, operation);
        let transfer = LaneTransfer {
            alpha: operation.alpha.0 * load.passes * factor,
            amount: load.amount * factor,
            payload: load.amount,
            steps: operation.step.0 * load.steps * factor,
            operation,
            effect,
        };
        self.timeline.push(lane, issued, LaneOp::Transfer(transfer));
    }

    /// The operation as faults that come and go leave it. One on a GPU that hangs has a gate before it
    /// that nothing opens.
    fn faulty(
        &mut self,
        lane: u64,
        issued: f64,
        operation: Rc<FlowOperation>,
    ) -> Rc<FlowOperation> {
        if let Some(gpu) = self.faults.hangs(&operation.route, issued) {
            self.hung = Some(gpu);
            let gate = self.timeline.gate_create();
            self.timeline.push(lane, issued, LaneOp::Hold(gate));
        }
        let slow = self.faults.flapping(issued);
        let slowed = slow.filter_map(|fault| self.network.slowed(&operation, fault));
        let slowest = slowed.min_by(|a, b| a.cap.0.total_cmp(&b.cap.0));
        slowest.map_or(operation, Rc::new)
    }

    /// Finds the buffer that holds all of a stretch.
    pub(crate) fn find(
        &self,
        call: &'static str,
        address: u64,
        bytes: Bytes,
    ) -> CallResult<BufferSpot> {
        self.memory
            .find(address, bytes.0)
            .map(|(spot, _)| spot)
            .ok_or_else(|| no_buffer(call, format!("{bytes} at {address:#x}")))
    }
    /// The current place of the first byte of a stretch.
    pub(crate) fn place(&self, spot: BufferSpot) -> Place {
        let nowhere = Place::new(Unit::Numa(0), MemKind::Paged);
        self.memory.buffer(spot.base).map_or(nowhere, |b| b.place_at(spot.offset))
    }

    /// Host time that it takes the holder of a stretch to write or read all of it.
    pub(crate) fn sweep_time(&mut self, spot: BufferSpot, bytes: Bytes, writes: bool) -> f64 {
        let place = self.place(spot);
        let by = match place.unit {
            Unit::Gpu(_) => {
                let op = if writes { KernelOp::Write } else { KernelOp::Read };
                Mover::Kernel { at: place.unit, variant: KernelVariant::standard(op) }
            }
            Unit::Numa(_) => {
                let op = if writes { CpuOp::Write } else { CpuOp::Read };
                let work = CpuWork { op, how: CpuHow::Plain };
                Mover::Cpu { at: place.unit, work, threads: 1 }
            }
            Unit::Store(_) => return 0.0,
        };
        let registers = Place { mem: MemKind::Reg, ..place };
        let (src, dst) = if writes { (registers, place) } else { (place, registers) };
        let Ok(operation) = self.operation("fill", Flow { src, dst, by, bytes }) else {
            return 0.0;
        };
        let moving = Ns(bytes.as_f64() / self.timeline.alone(&operation));
        let time = operation.call + operation.alpha + moving;
        if time.0.is_finite() { time.0 } else { 0.0 }
    }

    /// Frees a buffer after everything that uses it has ended, as runtimes do.
    pub(crate) fn free(&mut self, rank: Rank, call: &'static str, address: u64) -> CallResult<()> {
        self.catch_up(rank);
        let in_use = |w: &Self| w.memory.buffer(address).is_some_and(|buffer| buffer.pending > 0);
        if in_use(self) {
            let thing = format!("{address:#x}");
            self.block(rank, call, &thing, |w| (!in_use(w)).then(|| w.timeline.now()))?;
        }
        self.memory.free(address);
        Ok(())
    }

    /// Fills a stretch; the host waits.
    pub(crate) fn fill(
        &mut self,
        rank: Rank,
        spot: BufferSpot,
        bytes: Bytes,
        seed: u64,
        chain: bool,
    ) {
        self.catch_up(rank);
        self.memory.fill(spot, bytes.0, seed, chain);
        let time = self.sweep_time(spot, bytes, true);
        self.charge(rank, time);
    }
    /// Compares a stretch; the host waits.
    pub(crate) fn check(
        &mut self,
        rank: Rank,
        spot: BufferSpot,
        bytes: Bytes,
        seed: u64,
    ) -> Option<u64> {
        self.catch_up(rank);
        let time = self.sweep_time(spot, bytes, false);
        self.charge(rank, time);
        self.memory.check(spot, bytes.0, seed)
    }

    /// The offset of the first byte of `at.0` that is not what an operation on the sources `at.1` stores.
    pub(crate) fn check_stored(
        &mut self,
        rank: Rank,
        at: (BufferSpot, Option<BufferSpot>),
        bytes: Bytes,
        form: StoredForm,
    ) -> Option<u64> {
        self.catch_up(rank);
        let seed = self.memory.stored_seed(at.1, bytes.0, form);
        self.check(rank, at.0, bytes, seed)
    }

    /// A lane ends, after its work where that can end.
    pub(crate) fn lane_end(
        &mut self,
        rank: Rank,
        call: &'static str,
        thing: &str,
        lane: u64,
    ) -> CallResult<()> {
        let ended = self.block(rank, call, thing, |w| w.timeline.lane_idle(lane));
        for effect in self.timeline.lane_destroy(lane) {
            self.release(&effect);
        }
        ended
    }

    /// The error unless there is such a gate.
    pub(crate) fn gate_known(&self, call: &'static str, gate: u64) -> CallResult<()> {
        let known = self.timeline.gate_exists(gate);
        known.then_some(()).ok_or_else(|| no_such(call, &format!("gate {gate}")))
    }
    /// Opens a gate at the time of the call.
    pub(crate) fn gate_release(
        &mut self,
        rank: Rank,
        call: &'static str,
        gate: u64,
    ) -> CallResult<()> {
        self.enter(rank, call, None)?;
        self.gate_known(call, gate)?;
        let now = self.clock(rank);
        self.timeline.gate_open(gate, now);
        Ok(())
    }
    /// Opens a gate and takes it back, also where a fault strikes the call.
    pub(crate) fn gate_destroy(
        &mut self,
        rank: Rank,
        call: &'static str,
        gate: u64,
    ) -> CallResult<()> {
        let struck = self.enter(rank, call, None);
        self.gate_known(call, gate)?;
        let now = self.clock(rank);
        self.timeline.gate_destroy(gate, now);
        struck.map(|_| ())
    }

    /// The GPU of a stream.
    pub(crate) fn stream_gpu(&self, call: &'static str, stream: u64) -> CallResult<u32> {
        match self.timeline.lane_owner(stream) {
            Some(LaneOwner::Stream(gpu)) => Ok(gpu),
            _ => Err(no_such(call, &format!("stream {stream}"))),
        }
    }
}

/// How much a transfer moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferLoad {
    /// Number of repetitions.
    pub(crate) passes: f64,
    /// Payload in all.
    pub(crate) amount: f64,
    /// Dependent steps in all.
    pub(crate) steps: f64,
}

impl TransferLoad {
    /// One pass over a payload.
    pub(crate) fn once(bytes: Bytes) -> Self {
        Self { passes: 1.0, amount: bytes.as_f64(), steps: 0.0 }
    }
}

fn no_buffer(call: &'static str, thing: String) -> CallError {
    CallError::new(Severity::Transient, call, thing, "no buffer holds all of this")
        .or_try("stay within what was allocated and not yet freed")
}

/// The error for a handle or number that nothing has.
pub(crate) fn no_such(call: &'static str, thing: &str) -> CallError {
    CallError::new(Severity::Transient, call, thing, "there is no such thing")
        .or_try("use what was created and is not yet destroyed")
}
