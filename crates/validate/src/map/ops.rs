//! One operation of a tool as a case, and what of it the tool counts.

use pathline_message::Library;
use pathline_schema::{
    Bytes, Case, Flow, KernelOp, Mem, MigrateHow, Mover, Place, RuntimeCall, Unit, Variant,
};

use super::{Asked, Hardware, Mapper, whole_words};
use crate::number::{Ask, Number};
use crate::value::{Kind, Size};
use crate::words::{Direction, End, HostMemory, Means, Metric, StreamOp, Tool, Unmapped, Verb, no};

/// One operation.
struct Op {
    case: Case,
    /// Bytes that the tool counts for a byte of payload.
    counts: f64,
    /// Whether the host's clock times it: launch and return count.
    host_clock: bool,
}

impl Mapper<'_> {
    /// A row about bytes that go somewhere.
    pub(super) fn path(&self, asked: &Asked<'_>) -> Result<Number, Unmapped> {
        match asked.metric {
            Metric::RatioTo(n) => {
                let of = self.fan(asked, &self.set(asked)?)?;
                let spread = self.spread(n).or_else(|| self.first(n));
                let Some(base) = spread else {
                    return no(format!("this machine has no {n} GPUs"));
                };
                Ok(of.over(self.fan(asked, &base)?))
            }
            Metric::EngineLimit => {
                let pair = self.widest_pair()?;
                self.of_pair(asked, pair, Kind::Rate)
            }
            Metric::Bandwidth
            | Metric::Latency
            | Metric::UpperBound
            | Metric::LowerBound
            | Metric::OfOneWayPeak
            | Metric::OfTwoWayPeak => self.of_ends(asked),
            _ => no(format!("metric '{}' is not one of copies and kernels", asked.row.metric)),
        }
    }

    fn of_ends(&self, asked: &Asked<'_>) -> Result<Number, Unmapped> {
        let many = |end: &End| matches!(end, End::Count(_) | End::Spread(_) | End::Together(_));
        if many(&asked.src) || many(&asked.dst) {
            return self.fan(asked, &self.set(asked)?);
        }
        let kind = if asked.kind == Kind::Plain { Kind::Rate } else { asked.kind };
        let local = matches!(asked.direction, Direction::Local | Direction::Local2N);
        let every: Vec<u32> = self.topology.gpus.iter().map(|g| g.index).collect();
        let numbers: Vec<Number> = match (&asked.src, &asked.dst) {
            (End::Host | End::Numa(_), End::Each) => {
                self.each_gpu(asked, &every, &asked.src, true, kind)?
            }
            (End::Each, End::Host | End::Numa(_)) => {
                self.each_gpu(asked, &every, &asked.dst, false, kind)?
            }
            (End::Gpus(gpus), _) if local => gpus
                .iter()
                .map(|g| self.over_sizes(asked, kind, &|n| self.local(asked, *g, n)))
                .collect::<Result<_, _>>()?,
            (End::Host | End::Numa(_), End::Gpus(gpus)) => {
                self.each_gpu(asked, gpus, &asked.src, true, kind)?
            }
            (End::Gpus(gpus), End::Host | End::Numa(_)) => {
                self.each_gpu(asked, gpus, &asked.dst, false, kind)?
            }
            (End::Elsewhere | End::Nodes(_) | End::Adapters(_), _)
            | (_, End::Elsewhere | End::Nodes(_) | End::Adapters(_)) => {
                return no("the other end is on another node; one node is simulated");
            }
            _ => {
                let pairs = self.pairs(asked)?;
                let of = |pair: &(u32, u32)| {
                    let number = self.of_pair(asked, *pair, kind)?;
                    self.share(asked, *pair, number)
                };
                pairs.iter().map(of).collect::<Result<_, _>>()?
            }
        };
        Ok(match (&asked.metric, numbers.as_slice()) {
            (_, [one]) => one.clone(),
            (Metric::UpperBound, _) => Number::Most(numbers),
            (Metric::LowerBound, _) => Number::Least(numbers),
            _ => Number::Median(numbers),
        })
    }

    /// A rate over the peak that the row or the route has, where that is asked.
    fn share(
        &self,
        asked: &Asked<'_>,
        (a, b): (u32, u32),
        rate: Number,
    ) -> Result<Number, Unmapped> {
        let ways = match asked.metric {
            Metric::OfOneWayPeak => 1.0,
            Metric::OfTwoWayPeak => 2.0,
            _ => return Ok(rate),
        };
        let stated = asked.row.peak.parse::<f64>().ok().filter(|p| *p > 0.0);
        let stated = stated.filter(|_| asked.row.peak_unit == "GB/s");
        let peak = match stated {
            Some(peak) => peak,
            None => ways * self.route_peak(a, b)?,
        };
        Ok(rate.over(Number::Known(peak)))
    }

    fn each_gpu(
        &self,
        asked: &Asked<'_>,
        gpus: &[u32],
        host: &End,
        inward: bool,
        kind: Kind,
    ) -> Result<Vec<Number>, Unmapped> {
        let of = |g: &u32| {
            let gpu = self.gpu(asked, *g)?;
            let numa = self.domain(gpu, host)?;
            let ops = |n: u64| self.host(asked, &[(gpu, numa)], inward, n);
            self.over_sizes(asked, kind, &ops)
        };
        gpus.iter().map(of).collect()
    }

    fn of_pair(
        &self,
        asked: &Asked<'_>,
        (a, b): (u32, u32),
        kind: Kind,
    ) -> Result<Number, Unmapped> {
        if a == b {
            return no("a path from a GPU to itself has direction 'local' or 'local_2N'");
        }
        self.over_sizes(asked, kind, &|n| self.peers(asked, a, b, n))
    }

    /// The best over all sizes that the value holds for.
    fn over_sizes(
        &self,
        asked: &Asked<'_>,
        kind: Kind,
        op: &dyn Fn(u64) -> Result<Op, Unmapped>,
    ) -> Result<Number, Unmapped> {
        let numbers: Vec<Number> = asked
            .size
            .each(default_size(asked))
            .into_iter()
            .map(|n| formed(op(n)?, kind))
            .collect::<Result<_, _>>()?;
        Ok(match (numbers.as_slice(), kind) {
            ([one], _) => one.clone(),
            (_, Kind::Time) => Number::Least(numbers),
            _ => Number::Most(numbers),
        })
    }

    // ------------------------------------------------------------------ operations

    /// Within one GPU.
    fn local(&self, asked: &Asked<'_>, gpu: u32, bytes: u64) -> Result<Op, Unmapped> {
        let gpu = self.gpu(asked, gpu)?;
        let at = Unit::Gpu(gpu);
        let vram = Place::new(at, Mem::Vram);
        let both = if asked.direction == Direction::Local2N { 2.0 } else { 1.0 };
        match &asked.means {
            Means::Kernel { .. } | Means::Default if matches!(asked.tool, Tool::Stream(_)) => {
                self.stream(asked, vram, vram, at, bytes)
            }
            Means::Kernel { verb, .. } => {
                let op = match verb {
                    Verb::Read => KernelOp::Read,
                    Verb::Write => KernelOp::Write,
                    Verb::Copy => KernelOp::Copy,
                };
                let counts = if op == KernelOp::Copy { both } else { 1.0 };
                let case = Case::together(vec![kernel(vram, vram, at, op, bytes)]);
                Ok(Op { case, counts, host_clock: false })
            }
            Means::Chase => Ok(chase(vram, at, bytes)),
            Means::Copy(_) | Means::Blit(_) | Means::Local | Means::Default => {
                // rocm-bandwidth-test asks HSA, whose copy inside a GPU is a kernel of its own with
                // the start of one.
                let by_kernel =
                    matches!(asked.means, Means::Blit(_)) || asked.tool == Tool::RocmBandwidthTest;
                let by = if by_kernel { Mover::Blit { at } } else { Mover::Dma { at } };
                let flow = Flow { src: vram, dst: vram, by, bytes: Bytes(bytes) };
                Ok(Op { case: paced(asked, vec![flow]), counts: both, host_clock: false })
            }
            _ => no("this interface does not work inside one GPU"),
        }
    }

    /// From GPU to GPU. A kernel runs on the first, whichever way the bytes go.
    fn peers(&self, asked: &Asked<'_>, a: u32, b: u32, bytes: u64) -> Result<Op, Unmapped> {
        let vram = |g: u32| Place::new(Unit::Gpu(g), Mem::Vram);
        let way = |a: u32, b: u32| -> Result<Flow, Unmapped> {
            // rocm-bandwidth-test's copies are issued at their source; the runtime's own peer
            // copies by kernel run where the bytes go to.
            let pushes = asked.tool == Tool::RocmBandwidthTest;
            let by = match &asked.means {
                Means::Copy(_) | Means::Default => Mover::Dma { at: Unit::Gpu(a) },
                Means::Blit(_) => Mover::Blit { at: Unit::Gpu(if pushes { a } else { b }) },
                _ => return no("this interface does not go from GPU to GPU"),
            };
            Ok(Flow { src: vram(a), dst: vram(b), by, bytes: Bytes(bytes) })
        };
        let (at, both) = (Unit::Gpu(a), asked.direction == Direction::BothSum);
        match &asked.means {
            Means::Kernel { .. } | Means::Default if matches!(asked.tool, Tool::Stream(_)) => {
                let writes = matches!(asked.means, Means::Kernel { verb: Verb::Write, .. });
                let in_peer = matches!(asked.means, Means::Kernel { both: true, .. });
                match (in_peer, writes) {
                    (true, _) => self.stream(asked, vram(b), vram(b), at, bytes),
                    (false, true) => self.stream(asked, vram(a), vram(b), at, bytes),
                    (false, false) => self.stream(asked, vram(b), vram(a), at, bytes),
                }
            }
            Means::Kernel { verb, fine, .. } => {
                let far = |g: u32| {
                    Place::new(Unit::Gpu(g), if *fine { Mem::VramFine } else { Mem::Vram })
                };
                let one = |a: u32, b: u32| {
                    let at = Unit::Gpu(a);
                    match verb {
                        Verb::Read => kernel(far(b), vram(a), at, KernelOp::Read, bytes),
                        Verb::Write => kernel(vram(a), far(b), at, KernelOp::Write, bytes),
                        Verb::Copy => kernel(far(b), vram(a), at, KernelOp::Copy, bytes),
                    }
                };
                let mut flows = vec![one(a, b)];
                flows.extend(both.then(|| one(b, a)));
                Ok(Op { case: paced(asked, flows), counts: 1.0, host_clock: false })
            }
            Means::Chase => Ok(chase(vram(b), at, bytes)),
            Means::Fault | Means::Prefetch => {
                let managed = |g: u32| Place::new(Unit::Gpu(g), Mem::Managed);
                let by = Mover::Migrate { at: Unit::Gpu(b), how: migration(&asked.means) };
                let flow = Flow { src: managed(a), dst: managed(b), by, bytes: Bytes(bytes) };
                Ok(Op { case: Case::together(vec![flow]), counts: 1.0, host_clock: false })
            }
            _ => {
                let mut flows = vec![way(a, b)?];
                if both {
                    flows.push(way(b, a)?);
                }
                Ok(Op { case: paced(asked, flows), counts: 1.0, host_clock: false })
            }
        }
    }

    /// Between GPUs and NUMA domains, all at once.
    fn host(
        &self,
        asked: &Asked<'_>,
        ends: &[(u32, u32)],
        inward: bool,
        bytes: u64,
    ) -> Result<Op, Unmapped> {
        let mut flows = Vec::new();
        let mut counts = 1.0;
        let mut host_clock = false;
        for &(gpu, numa) in ends {
            if let Tool::Stream(op) = asked.tool {
                let (effect, counted) = stream_op(op, asked.direction);
                let managed = Place::new(Unit::Numa(numa), self.host_mem(asked));
                let both = matches!(asked.means, Means::Kernel { both: true, .. })
                    || asked.direction == Direction::Both2N;
                let vram = Place::new(Unit::Gpu(gpu), Mem::Vram);
                let (src, dst) = match (both, inward) {
                    (true, _) => (managed, managed),
                    (false, true) => (managed, vram),
                    (false, false) => (vram, managed),
                };
                flows.push(kernel(src, dst, Unit::Gpu(gpu), effect, bytes));
                (counts, host_clock) = (counted, true);
                continue;
            }
            flows.push(self.host_flow(asked, gpu, numa, inward, bytes)?);
            if asked.direction == Direction::BothSum {
                flows.push(self.host_flow(asked, gpu, numa, !inward, bytes)?);
            }
        }
        let chases = matches!(asked.means, Means::Chase);
        let case = if chases { Case::together(flows) } else { paced(asked, flows) };
        Ok(Op { case, counts, host_clock })
    }

    fn host_mem(&self, asked: &Asked<'_>) -> Mem {
        let host = match &asked.means {
            Means::Copy(host) | Means::Blit(host) | Means::Kernel { host, .. } => *host,
            _ => HostMemory::Pinned,
        };
        match host {
            HostMemory::Pinned => Mem::Pinned,
            HostMemory::NonCoherent => Mem::PinnedNonCoherent,
            HostMemory::WriteCombined => Mem::PinnedWc,
            HostMemory::Registered => Mem::Registered,
            HostMemory::Pageable => Mem::Paged,
            HostMemory::Managed => Mem::Managed,
        }
    }

    fn host_flow(
        &self,
        asked: &Asked<'_>,
        gpu: u32,
        numa: u32,
        inward: bool,
        bytes: u64,
    ) -> Result<Flow, Unmapped> {
        let (gpu, numa) = (Unit::Gpu(gpu), Unit::Numa(numa));
        let (vram, host) = (Place::new(gpu, Mem::Vram), Place::new(numa, self.host_mem(asked)));
        let (src, dst) = if inward { (host, vram) } else { (vram, host) };
        let bytes = Bytes(bytes);
        Ok(match &asked.means {
            Means::Copy(_) | Means::Default => Flow { src, dst, by: Mover::Dma { at: gpu }, bytes },
            Means::Blit(_) => Flow { src, dst, by: Mover::Blit { at: gpu }, bytes },
            // Whoever wants the rate of a link reads it or writes it, and keeps nothing.
            Means::Kernel { .. } => {
                let op = if inward { KernelOp::Read } else { KernelOp::Write };
                kernel(src, dst, gpu, op, bytes.0)
            }
            Means::Fault | Means::Prefetch => {
                let managed = |unit| Place::new(unit, Mem::Managed);
                let (from, to) = if inward { (numa, gpu) } else { (gpu, numa) };
                let by = Mover::Migrate { at: to, how: migration(&asked.means) };
                Flow { src: managed(from), dst: managed(to), by, bytes }
            }
            Means::Chase => match chase(host, gpu, bytes.0).case.timed.first() {
                Some(flow) => *flow,
                None => return no("a chase has a flow"),
            },
            Means::Local | Means::Message(..) => {
                return no("this interface does not go to the host");
            }
        })
    }

    /// A STREAM kernel.
    fn stream(
        &self,
        asked: &Asked<'_>,
        src: Place,
        dst: Place,
        at: Unit,
        bytes: u64,
    ) -> Result<Op, Unmapped> {
        let Tool::Stream(op) = asked.tool else { return no("expected a kernel of STREAM") };
        let (effect, counts) = stream_op(op, asked.direction);
        let case = Case::together(vec![kernel(src, dst, at, effect, bytes)]).isolated();
        Ok(Op { case, counts, host_clock: true })
    }

    // ------------------------------------------------------------------ several GPUs

    /// The GPUs of a row that names a number of them.
    fn set(&self, asked: &Asked<'_>) -> Result<Vec<u32>, Unmapped> {
        let end = match (&asked.src, &asked.dst) {
            (End::Host | End::Numa(_), end) | (end, _) => end,
        };
        let set = match end {
            End::Spread(n) => self.spread(*n),
            End::Together(n) | End::Count(n) => self.first(*n),
            End::Gpus(gpus) => {
                Some(gpus.iter().map(|g| self.gpu(asked, *g)).collect::<Result<_, _>>()?)
            }
            _ => None,
        };
        match set {
            Some(gpus) => Ok(gpus),
            None => no(format!(
                "this machine has no GPUs that are '{}'",
                if matches!(asked.src, End::Host | End::Numa(_)) {
                    &asked.row.dst
                } else {
                    &asked.row.src
                }
            )),
        }
    }

    /// The first `n` GPUs; those of a package follow each other.
    pub(super) fn first(&self, n: u32) -> Option<Vec<u32>> {
        let gpus: Vec<u32> = self.topology.gpus.iter().map(|g| g.index).collect();
        gpus.get(..n as usize).map(<[u32]>::to_vec)
    }

    /// The first GPU of each of the first `n` packages.
    fn spread(&self, n: u32) -> Option<Vec<u32>> {
        let mut packages = Vec::new();
        let mut gpus = Vec::new();
        for gpu in &self.topology.gpus {
            let package = gpu.package.map_or((1, gpu.index), |p| (0, p));
            if !packages.contains(&package) {
                packages.push(package);
                gpus.push(gpu.index);
            }
        }
        gpus.get(..n as usize).map(<[u32]>::to_vec)
    }

    /// Several GPUs against the host at once.
    fn fan(&self, asked: &Asked<'_>, gpus: &[u32]) -> Result<Number, Unmapped> {
        let from_host = matches!(asked.src, End::Host | End::Numa(_));
        let host = if from_host { &asked.src } else { &asked.dst };
        if !matches!(host, End::Host | End::Numa(_)) {
            return no("several GPUs at once are told against the host");
        }
        let mut ends = Vec::new();
        for &gpu in gpus {
            ends.push((gpu, self.domain(gpu, host)?));
        }
        // A kernel that reads and writes the host's memory runs on the GPUs that the row names.
        let kind = if asked.kind == Kind::Plain { Kind::Rate } else { asked.kind };
        self.over_sizes(asked, kind, &|n| self.host(asked, &ends, from_host, n))
    }

    fn domain(&self, gpu: u32, host: &End) -> Result<u32, Unmapped> {
        let numa = match host {
            End::Numa(n) => Some(*n),
            _ => self.topology.gpus.iter().find(|g| g.index == gpu).and_then(|g| g.numa),
        };
        match numa.filter(|n| self.topology.numa.iter().any(|d| d.id == *n)) {
            Some(numa) => Ok(numa),
            None => no(format!("the NUMA domain of gpu{gpu} is not known")),
        }
    }

    /// The pair with the widest direct link; of equals the first.
    fn widest_pair(&self) -> Result<(u32, u32), Unmapped> {
        let direct = self.routes.iter().filter(|(_, r)| r.hops == 1);
        // `max_by_key` gives the last of equals.
        match direct.rev().max_by_key(|(_, r)| r.width) {
            Some((pair, _)) => Ok(*pair),
            None => no("no two GPUs of this machine are joined directly"),
        }
    }

    /// What the hardware is asked, of rows about one path of GPUs or the host at one size.
    pub(super) fn hardware(&self, asked: &Asked<'_>) -> Option<Hardware> {
        let time = asked.kind == Kind::Time;
        let plain =
            matches!(asked.metric, Metric::Bandwidth | Metric::Latency | Metric::OfOneWayPeak);
        let who = match (&asked.means, asked.tool) {
            // What MPI's copies ask of the hardware.
            (Means::Message(Library::CrayMpich { sdma } | Library::Ucx { sdma }), Tool::OsuBw) => {
                if *sdma {
                    "copy engine"
                } else {
                    "kernel that pushes"
                }
            }
            (Means::Copy(_), _) => "copy engine",
            (Means::Blit(_), Tool::RocmBandwidthTest) => "kernel that pushes",
            (Means::Blit(_), _) => "kernel that pulls",
            _ => return None,
        };
        if !plain || !matches!(asked.direction, Direction::One | Direction::BothSum) {
            return None;
        }
        let path = match (&asked.src, &asked.dst) {
            (End::Gpus(_), End::Gpus(_)) => match self.pairs(asked).ok()?.as_slice() {
                [(a, b)] => format!("gpu{a} > gpu{b}"),
                _ => return None,
            },
            _ => return None,
        };
        let both = if asked.direction == Direction::BothSum { ", both ways" } else { "" };
        // The best over a range is that of a large size.
        let bytes = match asked.size {
            Size::Best(_, most) => most,
            size => size.most(default_size(asked)),
        };
        Some(Hardware { what: format!("{who} {path}{both}"), time, bytes })
    }
}

/// Bytes of one operation where a row names none: what the tool takes.
pub(super) fn default_size(asked: &Asked<'_>) -> u64 {
    const MIB: u64 = 1 << 20;
    match asked.tool {
        Tool::P2p if asked.kind == Kind::Time => 16,
        Tool::P2p => 160_000_000,
        Tool::RocmBandwidthTest => 64 * MIB,
        Tool::Nvbandwidth => 512 * MIB,
        Tool::TransferBench => 256 * MIB,
        Tool::Stream(_) => 8_000_000_000,
        Tool::OsuBw | Tool::OsuBibw | Tool::OsuMultiple => 16 * MIB,
        Tool::OsuLatency => 8,
        Tool::Collective { .. } => MIB,
        _ if asked.kind == Kind::Time => 16,
        _ => 1024 * MIB,
    }
}

/// The cadence of a tool.
fn paced(asked: &Asked<'_>, flows: Vec<Flow>) -> Case {
    let case = Case::together(flows);
    let streams = matches!(asked.tool, Tool::P2p | Tool::Nvbandwidth) && asked.kind != Kind::Time;
    let migrates = matches!(asked.means, Means::Fault | Means::Prefetch);
    if streams || migrates { case } else { case.isolated() }
}

fn migration(means: &Means) -> MigrateHow {
    if matches!(means, Means::Prefetch) { MigrateHow::Prefetch } else { MigrateHow::Fault }
}

/// A flow by a kernel; what it only reads ends in registers, what it only writes begins there.
fn kernel(src: Place, dst: Place, at: Unit, op: KernelOp, bytes: u64) -> Flow {
    let regs = Place::new(at, Mem::Reg);
    let (src, dst) = match op {
        KernelOp::Read => (src, regs),
        KernelOp::Write => (regs, dst),
        _ => (src, dst),
    };
    let by = Mover::Kernel { at, variant: Variant::standard(op) };
    Flow { src, dst, by, bytes: whole_words(bytes) }
}

fn chase(far: Place, at: Unit, bytes: u64) -> Op {
    let by = Mover::Kernel { at, variant: Variant::chase() };
    let bytes = Bytes(bytes.max(1 << 20));
    let flow = Flow { src: far, dst: Place::new(at, Mem::Reg), by, bytes };
    Op { case: Case::together(vec![flow]), counts: 1.0, host_clock: false }
}

/// The kernel of a STREAM operation on arrays of the payload's size, and what is counted of it:
/// read + written where both are, else the payload.
fn stream_op(op: StreamOp, direction: Direction) -> (KernelOp, f64) {
    let all = matches!(direction, Direction::Both2N | Direction::Local2N);
    match op {
        StreamOp::Copy => (KernelOp::Copy, if all { 2.0 } else { 1.0 }),
        StreamOp::Triad => (KernelOp::Triad, if all { 3.0 } else { 1.0 }),
        StreamOp::Read => (KernelOp::Read, 1.0),
        StreamOp::Write => (KernelOp::Write, 1.0),
    }
}

/// The number of an operation.
fn formed(op: Op, kind: Kind) -> Result<Number, Unmapped> {
    let payload: f64 = op.case.timed.iter().map(|f| f.bytes.as_f64()).sum();
    let at = op.case.timed.first().map(|f| f.by.at());
    let (Op { case, counts, host_clock }, Some(at)) = (op, at) else {
        return no("an operation has a flow");
    };
    if !host_clock {
        return match kind {
            Kind::Time => Ok(Number::Time(Ask::Case(case))),
            Kind::Rate => Ok(Number::Rate(Ask::Case(case)).times(counts)),
            _ => no("a path has a rate or a time"),
        };
    }
    // The host's clock sees a launch that is waited for around the kernel's own time. A launch of a
    // kernel that does nothing to speak of is measured as such, less that kernel's device time.
    let call = Mover::Call { at, call: RuntimeCall::LaunchSync };
    let regs = Place::new(at, Mem::Reg);
    let nothing = Mover::Kernel { at, variant: RuntimeCall::KERNEL };
    let vram = Place::new(at, Mem::Vram);
    let around =
        Number::Time(Ask::Case(Case::single(regs, regs, call, Bytes(1)))).less(Number::Time(
            Ask::Case(Case::single(regs, vram, nothing, RuntimeCall::KERNEL_BYTES).isolated()),
        ));
    let time = Number::Sum(vec![Number::Time(Ask::Case(case.isolated())), around]);
    match kind {
        Kind::Time => Ok(time),
        // Bytes over us are MB/s.
        _ => Ok(Number::Known(counts * payload / 1e3).over(time)),
    }
}
