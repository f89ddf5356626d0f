//! One operation of a tool as a case, and what of it the tool counts.

use pathline_message::MessageLibrary;
use pathline_schema::{
    Bytes, Case, Flow, KernelOp, KernelVariant, MemKind, MigrateHow, Mover, Place, RuntimeCall,
    Unit,
};

use super::{HardwareOp, ParsedRow, RowMapper, whole_words};
use crate::number::{MachineQuery, RowNumber};
use crate::value::{SizeRule, UnitKind};
use crate::words::{
    BenchTool, CountedDirection, HostMemory, KernelVerb, MoveMeans, PathEnd, RowMetric, StreamOp,
    UnmappedRow, no,
};

/// One operation.
struct RowOp {
    case: Case,
    /// Bytes that the tool counts for a byte of payload.
    counts: f64,
    /// Whether the host's clock times it: launch and return count.
    host_clock: bool,
}

impl RowMapper<'_> {
    /// A row about bytes that go somewhere.
    pub(super) fn path(&self, asked: &ParsedRow<'_>) -> Result<RowNumber, UnmappedRow> {
        match asked.metric {
            RowMetric::RatioTo(n) => {
                let of = self.fan(asked, &self.set(asked)?)?;
                let spread = self.spread(n).or_else(|| self.first(n));
                let Some(base) = spread else {
                    return no(format!("this machine has no {n} GPUs"));
                };
                Ok(of.over(self.fan(asked, &base)?))
            }
            RowMetric::EngineLimit => {
                let pair = self.widest_pair()?;
                self.of_pair(asked, pair, UnitKind::Rate)
            }
            RowMetric::Bandwidth
            | RowMetric::Latency
            | RowMetric::UpperBound
            | RowMetric::LowerBound
            | RowMetric::OfOneWayPeak
            | RowMetric::OfTwoWayPeak => self.of_ends(asked),
            _ => no(format!("metric '{}' is not one of copies and kernels", asked.row.metric)),
        }
    }

    fn of_ends(&self, asked: &ParsedRow<'_>) -> Result<RowNumber, UnmappedRow> {
        let many = |end: &PathEnd| {
            matches!(end, PathEnd::Count(_) | PathEnd::Spread(_) | PathEnd::Together(_))
        };
        if many(&asked.src) || many(&asked.dst) {
            return self.fan(asked, &self.set(asked)?);
        }
        let kind = if asked.kind == UnitKind::Plain { UnitKind::Rate } else { asked.kind };
        let local = matches!(asked.direction, CountedDirection::Local | CountedDirection::Local2N);
        let every: Vec<u32> = self.topology.gpus.iter().map(|g| g.index).collect();
        let numbers: Vec<RowNumber> = match (&asked.src, &asked.dst) {
            (PathEnd::Host | PathEnd::Numa(_), PathEnd::Each) => {
                self.each_gpu(asked, &every, &asked.src, true, kind)?
            }
            (PathEnd::Each, PathEnd::Host | PathEnd::Numa(_)) => {
                self.each_gpu(asked, &every, &asked.dst, false, kind)?
            }
            (PathEnd::Gpus(gpus), _) if local => gpus
                .iter()
                .map(|g| self.over_sizes(asked, kind, &|n| self.local(asked, *g, n)))
                .collect::<Result<_, _>>()?,
            (PathEnd::Host | PathEnd::Numa(_), PathEnd::Gpus(gpus)) => {
                self.each_gpu(asked, gpus, &asked.src, true, kind)?
            }
            (PathEnd::Gpus(gpus), PathEnd::Host | PathEnd::Numa(_)) => {
                self.each_gpu(asked, gpus, &asked.dst, false, kind)?
            }
            (PathEnd::Elsewhere | PathEnd::Nodes(_) | PathEnd::Adapters(_), _)
            | (_, PathEnd::Elsewhere | PathEnd::Nodes(_) | PathEnd::Adapters(_)) => {
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
            (RowMetric::UpperBound, _) => RowNumber::Most(numbers),
            (RowMetric::LowerBound, _) => RowNumber::Least(numbers),
            _ => RowNumber::Median(numbers),
        })
    }

    /// A rate over the peak that the row or the route has, where that is asked.
    fn share(
        &self,
        asked: &ParsedRow<'_>,
        (a, b): (u32, u32),
        rate: RowNumber,
    ) -> Result<RowNumber, UnmappedRow> {
        let ways = match asked.metric {
            RowMetric::OfOneWayPeak => 1.0,
            RowMetric::OfTwoWayPeak => 2.0,
            _ => return Ok(rate),
        };
        let stated = asked.row.peak.parse::<f64>().ok().filter(|p| *p > 0.0);
        let stated = stated.filter(|_| asked.row.peak_unit == "GB/s");
        let peak = match stated {
            Some(peak) => peak,
            None => ways * self.route_peak(a, b)?,
        };
        Ok(rate.over(RowNumber::Known(peak)))
    }

    fn each_gpu(
        &self,
        asked: &ParsedRow<'_>,
        gpus: &[u32],
        host: &PathEnd,
        inward: bool,
        kind: UnitKind,
    ) -> Result<Vec<RowNumber>, UnmappedRow> {
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
        asked: &ParsedRow<'_>,
        (a, b): (u32, u32),
        kind: UnitKind,
    ) -> Result<RowNumber, UnmappedRow> {
        if a == b {
            return no("a path from a GPU to itself has direction 'local' or 'local_2N'");
        }
        self.over_sizes(asked, kind, &|n| self.peers(asked, a, b, n))
    }

    /// The best over all sizes that the value holds for.
    fn over_sizes(
        &self,
        asked: &ParsedRow<'_>,
        kind: UnitKind,
        op: &dyn Fn(u64) -> Result<RowOp, UnmappedRow>,
    ) -> Result<RowNumber, UnmappedRow> {
        let numbers: Vec<RowNumber> = asked
            .size
            .each(default_size(asked))
            .into_iter()
            .map(|n| formed(op(n)?, kind))
            .collect::<Result<_, _>>()?;
        Ok(match (numbers.as_slice(), kind) {
            ([one], _) => one.clone(),
            (_, UnitKind::Time) => RowNumber::Least(numbers),
            _ => RowNumber::Most(numbers),
        })
    }

    // ------------------------------------------------------------------ operations

    /// Within one GPU.
    fn local(&self, asked: &ParsedRow<'_>, gpu: u32, bytes: u64) -> Result<RowOp, UnmappedRow> {
        let gpu = self.gpu(asked, gpu)?;
        let at = Unit::Gpu(gpu);
        let vram = Place::new(at, MemKind::Vram);
        let both = if asked.direction == CountedDirection::Local2N { 2.0 } else { 1.0 };
        match &asked.means {
            MoveMeans::Kernel { .. } | MoveMeans::Default
                if matches!(asked.tool, BenchTool::Stream(_)) =>
            {
                self.stream(asked, vram, vram, at, bytes)
            }
            MoveMeans::Kernel { verb, .. } => {
                let op = match verb {
                    KernelVerb::Read => KernelOp::Read,
                    KernelVerb::Write => KernelOp::Write,
                    KernelVerb::Copy => KernelOp::Copy,
                };
                let counts = if op == KernelOp::Copy { both } else { 1.0 };
                let case = Case::together(vec![kernel(vram, vram, at, op, bytes)]);
                Ok(RowOp { case, counts, host_clock: false })
            }
            MoveMeans::Chase => Ok(chase(vram, at, bytes)),
            MoveMeans::Copy(_) | MoveMeans::Blit(_) | MoveMeans::Local | MoveMeans::Default => {
                // rocm-bandwidth-test asks HSA, whose copy inside a GPU is a kernel of its own with
                // the start of one.
                let by_kernel = matches!(asked.means, MoveMeans::Blit(_))
                    || asked.tool == BenchTool::RocmBandwidthTest;
                let by = if by_kernel { Mover::Blit { at } } else { Mover::Dma { at } };
                let flow = Flow { src: vram, dst: vram, by, bytes: Bytes(bytes) };
                Ok(RowOp { case: paced(asked, vec![flow]), counts: both, host_clock: false })
            }
            _ => no("this interface does not work inside one GPU"),
        }
    }

    /// From GPU to GPU. A kernel runs on the first, whichever way the bytes go.
    fn peers(
        &self,
        asked: &ParsedRow<'_>,
        a: u32,
        b: u32,
        bytes: u64,
    ) -> Result<RowOp, UnmappedRow> {
        let vram = |g: u32| Place::new(Unit::Gpu(g), MemKind::Vram);
        let way = |a: u32, b: u32| -> Result<Flow, UnmappedRow> {
            // rocm-bandwidth-test's copies are issued at their source; the runtime's own peer
            // copies by kernel run where the bytes go to.
            let pushes = asked.tool == BenchTool::RocmBandwidthTest;
            let by = match &asked.means {
                MoveMeans::Copy(_) | MoveMeans::Default => Mover::Dma { at: Unit::Gpu(a) },
                MoveMeans::Blit(_) => Mover::Blit { at: Unit::Gpu(if pushes { a } else { b }) },
                _ => return no("this interface does not go from GPU to GPU"),
            };
            Ok(Flow { src: vram(a), dst: vram(b), by, bytes: Bytes(bytes) })
        };
        let (at, both) = (Unit::Gpu(a), asked.direction == CountedDirection::BothSum);
        match &asked.means {
            MoveMeans::Kernel { .. } | MoveMeans::Default
                if matches!(asked.tool, BenchTool::Stream(_)) =>
            {
                let writes =
                    matches!(asked.means, MoveMeans::Kernel { verb: KernelVerb::Write, .. });
                let in_peer = matches!(asked.means, MoveMeans::Kernel { both: true, .. });
                match (in_peer, writes) {
                    (true, _) => self.stream(asked, vram(b), vram(b), at, bytes),
                    (false, true) => self.stream(asked, vram(a), vram(b), at, bytes),
                    (false, false) => self.stream(asked, vram(b), vram(a), at, bytes),
                }
            }
            MoveMeans::Kernel { verb, fine, .. } => {
                let far = |g: u32| {
                    Place::new(Unit::Gpu(g), if *fine { MemKind::VramFine } else { MemKind::Vram })
                };
                let one = |a: u32, b: u32| {
                    let at = Unit::Gpu(a);
                    match verb {
                        KernelVerb::Read => kernel(far(b), vram(a), at, KernelOp::Read, bytes),
                        KernelVerb::Write => kernel(vram(a), far(b), at, KernelOp::Write, bytes),
                        KernelVerb::Copy => kernel(far(b), vram(a), at, KernelOp::Copy, bytes),
                    }
                };
                let mut flows = vec![one(a, b)];
                flows.extend(both.then(|| one(b, a)));
                Ok(RowOp { case: paced(asked, flows), counts: 1.0, host_clock: false })
            }
            MoveMeans::Chase => Ok(chase(vram(b), at, bytes)),
            MoveMeans::Fault | MoveMeans::Prefetch => {
                let managed = |g: u32| Place::new(Unit::Gpu(g), MemKind::Managed);
                let by = Mover::Migrate { at: Unit::Gpu(b), how: migration(&asked.means) };
                let flow = Flow { src: managed(a), dst: managed(b), by, bytes: Bytes(bytes) };
                Ok(RowOp { case: Case::together(vec![flow]), counts: 1.0, host_clock: false })
            }
            _ => {
                let mut flows = vec![way(a, b)?];
                if both {
                    flows.push(way(b, a)?);
                }
                Ok(RowOp { case: paced(asked, flows), counts: 1.0, host_clock: false })
            }
        }
    }

    /// Between GPUs and NUMA domains, all at once.
    fn host(
        &self,
        asked: &ParsedRow<'_>,
        ends: &[(u32, u32)],
        inward: bool,
        bytes: u64,
    ) -> Result<RowOp, UnmappedRow> {
        let mut flows = Vec::new();
        let mut counts = 1.0;
        let mut host_clock = false;
        for &(gpu, numa) in ends {
            if let BenchTool::Stream(op) = asked.tool {
                let (effect, counted) = stream_op(op, asked.direction);
                let managed = Place::new(Unit::Numa(numa), self.host_mem(asked));
                let both = matches!(asked.means, MoveMeans::Kernel { both: true, .. })
                    || asked.direction == CountedDirection::Both2N;
                let vram = Place::new(Unit::Gpu(gpu), MemKind::Vram);
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
            if asked.direction == CountedDirection::BothSum {
                flows.push(self.host_flow(asked, gpu, numa, !inward, bytes)?);
            }
        }
        let chases = matches!(asked.means, MoveMeans::Chase);
        let case = if chases { Case::together(flows) } else { paced(asked, flows) };
        Ok(RowOp { case, counts, host_clock })
    }

    fn host_mem(&self, asked: &ParsedRow<'_>) -> MemKind {
        let host = match &asked.means {
            MoveMeans::Copy(host) | MoveMeans::Blit(host) | MoveMeans::Kernel { host, .. } => *host,
            _ => HostMemory::Pinned,
        };
        match host {
            HostMemory::Pinned => MemKind::Pinned,
            HostMemory::NonCoherent => MemKind::PinnedNonCoherent,
            HostMemory::WriteCombined => MemKind::PinnedWc,
            HostMemory::Registered => MemKind::Registered,
            HostMemory::Pageable => MemKind::Paged,
            HostMemory::Managed => MemKind::Managed,
        }
    }

    fn host_flow(
        &self,
        asked: &ParsedRow<'_>,
        gpu: u32,
        numa: u32,
        inward: bool,
        bytes: u64,
    ) -> Result<Flow, UnmappedRow> {
        let (gpu, numa) = (Unit::Gpu(gpu), Unit::Numa(numa));
        let (vram, host) = (Place::new(gpu, MemKind::Vram), Place::new(numa, self.host_mem(asked)));
        let (src, dst) = if inward { (host, vram) } else { (vram, host) };
        let bytes = Bytes(bytes);
        Ok(match &asked.means {
            MoveMeans::Copy(_) | MoveMeans::Default => {
                Flow { src, dst, by: Mover::Dma { at: gpu }, bytes }
            }
            MoveMeans::Blit(_) => Flow { src, dst, by: Mover::Blit { at: gpu }, bytes },
            // Whoever wants the rate of a link reads it or writes it, and keeps nothing.
            MoveMeans::Kernel { .. } => {
                let op = if inward { KernelOp::Read } else { KernelOp::Write };
                kernel(src, dst, gpu, op, bytes.0)
            }
            MoveMeans::Fault | MoveMeans::Prefetch => {
                let managed = |unit| Place::new(unit, MemKind::Managed);
                let (from, to) = if inward { (numa, gpu) } else { (gpu, numa) };
                let by = Mover::Migrate { at: to, how: migration(&asked.means) };
                Flow { src: managed(from), dst: managed(to), by, bytes }
            }
            MoveMeans::Chase => match chase(host, gpu, bytes.0).case.timed.first() {
                Some(flow) => *flow,
                None => return no("a chase has a flow"),
            },
            MoveMeans::Local | MoveMeans::Message(..) => {
                return no("this interface does not go to the host");
            }
        })
    }

    /// A STREAM kernel.
    fn stream(
        &self,
        asked: &ParsedRow<'_>,
        src: Place,
        dst: Place,
        at: Unit,
        bytes: u64,
    ) -> Result<RowOp, UnmappedRow> {
        let BenchTool::Stream(op) = asked.tool else { return no("expected a kernel of STREAM") };
        let (effect, counts) = stream_op(op, asked.direction);
        let case = Case::together(vec![kernel(src, dst, at, effect, bytes)]).isolated();
        Ok(RowOp { case, counts, host_clock: true })
    }

    // ------------------------------------------------------------------ several GPUs

    /// The GPUs of a row that names a number of them.
    fn set(&self, asked: &ParsedRow<'_>) -> Result<Vec<u32>, UnmappedRow> {
        let end = match (&asked.src, &asked.dst) {
            (PathEnd::Host | PathEnd::Numa(_), end) | (end, _) => end,
        };
        let set = match end {
            PathEnd::Spread(n) => self.spread(*n),
            PathEnd::Together(n) | PathEnd::Count(n) => self.first(*n),
            PathEnd::Gpus(gpus) => {
                Some(gpus.iter().map(|g| self.gpu(asked, *g)).collect::<Result<_, _>>()?)
            }
            _ => None,
        };
        match set {
            Some(gpus) => Ok(gpus),
            None => no(format!(
                "this machine has no GPUs that are '{}'",
                if matches!(asked.src, PathEnd::Host | PathEnd::Numa(_)) {
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
    fn fan(&self, asked: &ParsedRow<'_>, gpus: &[u32]) -> Result<RowNumber, UnmappedRow> {
        let from_host = matches!(asked.src, PathEnd::Host | PathEnd::Numa(_));
        let host = if from_host { &asked.src } else { &asked.dst };
        if !matches!(host, PathEnd::Host | PathEnd::Numa(_)) {
            return no("several GPUs at once are told against the host");
        }
        let mut ends = Vec::new();
        for &gpu in gpus {
            ends.push((gpu, self.domain(gpu, host)?));
        }
        // A kernel that reads and writes the host's memory runs on the GPUs that the row names.
        let kind = if asked.kind == UnitKind::Plain { UnitKind::Rate } else { asked.kind };
        self.over_sizes(asked, kind, &|n| self.host(asked, &ends, from_host, n))
    }

    fn domain(&self, gpu: u32, host: &PathEnd) -> Result<u32, UnmappedRow> {
        let numa = match host {
            PathEnd::Numa(n) => Some(*n),
            _ => self.topology.gpus.iter().find(|g| g.index == gpu).and_then(|g| g.numa),
        };
        match numa.filter(|n| self.topology.numa.iter().any(|d| d.id == *n)) {
            Some(numa) => Ok(numa),
            None => no(format!("the NUMA domain of gpu{gpu} is not known")),
        }
    }

    /// The pair with the widest direct link; of equals the first.
    fn widest_pair(&self) -> Result<(u32, u32), UnmappedRow> {
        let direct = self.routes.iter().filter(|(_, r)| r.hops == 1);
        // `max_by_key` gives the last of equals.
        match direct.rev().max_by_key(|(_, r)| r.width) {
            Some((pair, _)) => Ok(*pair),
            None => no("no two GPUs of this machine are joined directly"),
        }
    }

    /// What the hardware is asked, of rows about one path of GPUs or the host at one size.
    pub(super) fn hardware(&self, asked: &ParsedRow<'_>) -> Option<HardwareOp> {
        let time = asked.kind == UnitKind::Time;
        let plain = matches!(
            asked.metric,
            RowMetric::Bandwidth | RowMetric::Latency | RowMetric::OfOneWayPeak
        );
        let who = match (&asked.means, asked.tool) {
            // What MPI's copies ask of the hardware.
            (
                MoveMeans::Message(
                    MessageLibrary::CrayMpich { sdma } | MessageLibrary::Ucx { sdma },
                ),
                BenchTool::OsuBw,
            ) => {
                if *sdma {
                    "copy engine"
                } else {
                    "kernel that pushes"
                }
            }
            (MoveMeans::Copy(_), _) => "copy engine",
            (MoveMeans::Blit(_), BenchTool::RocmBandwidthTest) => "kernel that pushes",
            (MoveMeans::Blit(_), _) => "kernel that pulls",
            _ => return None,
        };
        if !plain || !matches!(asked.direction, CountedDirection::One | CountedDirection::BothSum) {
            return None;
        }
        let path = match (&asked.src, &asked.dst) {
            (PathEnd::Gpus(_), PathEnd::Gpus(_)) => match self.pairs(asked).ok()?.as_slice() {
                [(a, b)] => format!("gpu{a} > gpu{b}"),
                _ => return None,
            },
            _ => return None,
        };
        let both = if asked.direction == CountedDirection::BothSum { ", both ways" } else { "" };
        // The best over a range is that of a large size.
        let bytes = match asked.size {
            SizeRule::Best(_, most) => most,
            size => size.most(default_size(asked)),
        };
        Some(HardwareOp { what: format!("{who} {path}{both}"), time, bytes })
    }
}

/// Bytes of one operation where a row names none: what the tool takes.
pub(super) fn default_size(asked: &ParsedRow<'_>) -> u64 {
    const MIB: u64 = 1 << 20;
    match asked.tool {
        BenchTool::P2p if asked.kind == UnitKind::Time => 16,
        BenchTool::P2p => 160_000_000,
        BenchTool::RocmBandwidthTest => 64 * MIB,
        BenchTool::Nvbandwidth => 512 * MIB,
        BenchTool::TransferBench => 256 * MIB,
        BenchTool::Stream(_) => 8_000_000_000,
        BenchTool::OsuBw | BenchTool::OsuBibw | BenchTool::OsuMultiple => 16 * MIB,
        BenchTool::OsuLatency => 8,
        BenchTool::Collective { .. } => MIB,
        _ if asked.kind == UnitKind::Time => 16,
        _ => 1024 * MIB,
    }
}

/// The cadence of a tool.
fn paced(asked: &ParsedRow<'_>, flows: Vec<Flow>) -> Case {
    let case = Case::together(flows);
    let streams = matches!(asked.tool, BenchTool::P2p | BenchTool::Nvbandwidth)
        && asked.kind != UnitKind::Time;
    let migrates = matches!(asked.means, MoveMeans::Fault | MoveMeans::Prefetch);
    if streams || migrates { case } else { case.isolated() }
}

fn migration(means: &MoveMeans) -> MigrateHow {
    if matches!(means, MoveMeans::Prefetch) { MigrateHow::Prefetch } else { MigrateHow::Fault }
}

/// A flow by a kernel; what it only reads ends in registers, what it only writes begins there.
fn kernel(src: Place, dst: Place, at: Unit, op: KernelOp, bytes: u64) -> Flow {
    let regs = Place::new(at, MemKind::Reg);
    let (src, dst) = match op {
        KernelOp::Read => (src, regs),
        KernelOp::Write => (regs, dst),
        _ => (src, dst),
    };
    let by = Mover::Kernel { at, variant: KernelVariant::standard(op) };
    Flow { src, dst, by, bytes: whole_words(bytes) }
}

fn chase(far: Place, at: Unit, bytes: u64) -> RowOp {
    let by = Mover::Kernel { at, variant: KernelVariant::chase() };
    let bytes = Bytes(bytes.max(1 << 20));
    let flow = Flow { src: far, dst: Place::new(at, MemKind::Reg), by, bytes };
    RowOp { case: Case::together(vec![flow]), counts: 1.0, host_clock: false }
}

/// The kernel of a STREAM operation on arrays of the payload's size, and what is counted of it:
/// read + written where both are, else the payload.
fn stream_op(op: StreamOp, direction: CountedDirection) -> (KernelOp, f64) {
    let all = matches!(direction, CountedDirection::Both2N | CountedDirection::Local2N);
    match op {
        StreamOp::Copy => (KernelOp::Copy, if all { 2.0 } else { 1.0 }),
        StreamOp::Triad => (KernelOp::Triad, if all { 3.0 } else { 1.0 }),
        StreamOp::Read => (KernelOp::Read, 1.0),
        StreamOp::Write => (KernelOp::Write, 1.0),
    }
}

/// The number of an operation.
fn formed(op: RowOp, kind: UnitKind) -> Result<RowNumber, UnmappedRow> {
    let payload: f64 = op.case.timed.iter().map(|f| f.bytes.as_f64()).sum();
    let at = op.case.timed.first().map(|f| f.by.at());
    let (RowOp { case, counts, host_clock }, Some(at)) = (op, at) else {
        return no("an operation has a flow");
    };
    if !host_clock {
        return match kind {
            UnitKind::Time => Ok(RowNumber::Time(MachineQuery::Case(case))),
            UnitKind::Rate => Ok(RowNumber::Rate(MachineQuery::Case(case)).times(counts)),
            _ => no("a path has a rate or a time"),
        };
    }
    // The host's clock sees a launch that is waited for around the kernel's own time. A launch of a
    // kernel that does nothing to speak of is measured as such, less that kernel's device time.
    let call = Mover::Call { at, call: RuntimeCall::LaunchSync };
    let regs = Place::new(at, MemKind::Reg);
    let nothing = Mover::Kernel { at, variant: RuntimeCall::KERNEL };
    let vram = Place::new(at, MemKind::Vram);
    let around = RowNumber::Time(MachineQuery::Case(Case::single(regs, regs, call, Bytes(1))))
        .less(RowNumber::Time(MachineQuery::Case(
            Case::single(regs, vram, nothing, RuntimeCall::KERNEL_BYTES).isolated(),
        )));
    let time = RowNumber::Sum(vec![RowNumber::Time(MachineQuery::Case(case.isolated())), around]);
    match kind {
        UnitKind::Time => Ok(time),
        // Bytes over us are MB/s.
        _ => Ok(RowNumber::Known(counts * payload / 1e3).over(time)),
    }
}
