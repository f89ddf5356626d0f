//! A path under construction: legs between a GPU and the units at its ends, stretch by stretch.

use std::collections::BTreeMap;

use pathline_schema::{
    Flow, GridSize, KernelOp, KernelVariant, LinkEnd, LinkKind, MemKind, Mover, Ns, Place, Rate,
    SHARED_KIB, Unit,
};

use crate::graph::{NodeGraph, taken};
use crate::graph_units::{GpuNode, HostPort};
use crate::measured::PathKey;
use crate::model::{LinkOverhead, PageableRegime};
use crate::operation::{BuiltPath, FlowOperation, KernelTurn, NoPath, PathStage, ResourceUse};
use crate::routes::total_width;
use crate::{hard_peak, nvlink};

/// The carrier of a leg's bytes, which decides the payload of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LegMover {
    Engine,
    Read,
    Write,
}

/// A path under construction.
pub(crate) struct PathBuilder<'a> {
    pub net: &'a NodeGraph,
    uses: BTreeMap<u32, f64>,
    pub cap: f64,
    limit: String,
    stages: Vec<PathStage>,
    /// Bytes of each memory for a byte of payload.
    memory: BTreeMap<LinkEnd, f64>,
    /// Unknown peaks of the path; not of memories, which another stretch may bound.
    unknown: Vec<String>,
    unknown_memory: Vec<String>,
    /// GPUs passed between the ends.
    pub passed: u32,
    /// Payload of the flow.
    bytes: u64,
    /// Whether a core has written the payload, in host memory that the CPUs cache.
    written_by_core: bool,
    /// Bytes of it that may be counted without having passed a link.
    kept: f64,
    /// Units passed into and out of the engine.
    route: Vec<LinkEnd>,
    /// The compute units of a GPU that the flow's grid fills.
    filled: Option<u32>,
    turn: Option<KernelTurn>,
}

/// The path of a flow: as it was measured, else by `model` where this node is modelled.
pub(crate) fn measured_or(
    net: &NodeGraph,
    flow: &Flow,
    model: impl FnOnce() -> Result<BuiltPath, NoPath>,
) -> Result<BuiltPath, NoPath> {
    if let Some(why) = flow.misfit() {
        return no(why);
    }
    check_place(net, flow.src, flow.by)?;
    check_place(net, flow.dst, flow.by)?;
    if let Some(built) = net.book.build(flow, &net.model.time) {
        return Ok(built);
    }
    // Copies over several paths are made of measured ones.
    if !net.modelled && flow.by.paths().is_none() {
        return no(format!(
            "not measured: {}; calibrate from a run that has it",
            PathKey::of(flow)
        ));
    }
    model()
}

pub(crate) fn no<T>(reason: impl Into<String>) -> Result<T, NoPath> {
    Err(NoPath(reason.into()))
}

fn check_place(net: &NodeGraph, place: Place, by: Mover) -> Result<(), NoPath> {
    if place.unit.store().is_some() && net.stores.is_empty() {
        return no("what files take is their store's, of which nothing is known");
    }
    let exists = match place.unit {
        Unit::Gpu(g) => net.gpus.contains_key(&g),
        Unit::Numa(n) => net.numas.contains_key(&n),
        Unit::Store(n) => net.stores.len() > n as usize,
    };
    if !exists {
        return no(format!("this machine has no {}", place.unit));
    }
    let on_gpu = place.unit.gpu().is_some();
    let fits = match place.mem {
        MemKind::Vram | MemKind::VramFine => on_gpu,
        MemKind::Pinned
        | MemKind::PinnedNonCoherent
        | MemKind::PinnedWc
        | MemKind::PinnedDefault
        | MemKind::Registered
        | MemKind::RegisteredHuge
        | MemKind::Paged
        | MemKind::Huge => place.unit.numa().is_some(),
        MemKind::Managed => place.unit.store().is_none(),
        MemKind::File => place.unit.store().is_some(),
        MemKind::Reg => {
            if !by.facts().uses_registers || by.at() != place.unit {
                return no(format!("{by} has no registers of {} to use", place.unit));
            }
            true
        }
    };
    if fits { Ok(()) } else { no(format!("{} has no {} memory", place.unit, place.mem)) }
}

pub(crate) fn gpu_at(net: &NodeGraph, at: Unit) -> Result<(u32, &GpuNode), NoPath> {
    let gpu = at.gpu().and_then(|g| Some((g, net.gpus.get(&g)?)));
    gpu.ok_or_else(|| NoPath(format!("this machine has no {at} with copy engines")))
}

/// Whether a leg leads to the moving GPU or away from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LegSide {
    In,
    Out,
}

/// What holds the loop of a kernel's threads besides memory and links.
pub(crate) struct LoopLimits {
    /// Bytes loaded for a byte of payload.
    pub reads: f64,
    /// Latency of a load; 0 without loads.
    pub load_ns: f64,
    /// Bytes stored for a byte of payload.
    pub writes: f64,
    /// What one compute unit stores, GB/s, where that limits it.
    pub store_gbs: Option<f64>,
}

impl LoopLimits {
    /// Stores that do not limit.
    pub(crate) const fn loads(reads: f64, load_ns: f64) -> Self {
        Self { reads, load_ns, writes: 0.0, store_gbs: None }
    }
}

impl<'a> PathBuilder<'a> {
    pub(crate) fn new(net: &'a NodeGraph, flow: &Flow) -> Self {
        Self {
            net,
            bytes: flow.bytes.0,
            written_by_core: flow.src.unit.numa().is_some()
                && !matches!(flow.src.mem, MemKind::PinnedWc | MemKind::Managed),
            kept: hard_peak::kept_from_links(flow),
            uses: BTreeMap::new(),
            cap: f64::INFINITY,
            limit: "nothing that is known".into(),
            stages: Vec::new(),
            memory: BTreeMap::new(),
            unknown: Vec::new(),
            unknown_memory: Vec::new(),
            passed: 0,
            route: Vec::new(),
            filled: None,
            turn: None,
        }
    }

    /// Between the GPU that works and a unit, `ratio` bytes for a byte of payload. The unit's
    /// memory is passed `passes` times if it is the host's.
    pub(crate) fn leg(
        &mut self,
        g: u32,
        unit: Unit,
        hop: LegSide,
        hand: LegMover,
        ratio: f64,
        passes: f64,
    ) -> Result<(), NoPath> {
        let (at, node) = (LinkEnd::Gpu(g), LinkEnd::from(unit));
        match unit {
            _ if node == at => {
                self.pass(&[at]);
                self.demand(node, ratio);
                Ok(())
            }
            Unit::Gpu(_) => {
                self.demand(node, ratio);
                match hop {
                    LegSide::In => self.peer(node, at, hand, ratio),
                    LegSide::Out => self.peer(at, node, hand, ratio),
                }
            }
            Unit::Numa(n) => {
                self.demand(node, ratio * passes);
                self.host(g, Some(n), hop, hand, ratio)
            }
            Unit::Store(_) => no("a GPU cannot access files by itself"),
        }
    }

    pub(crate) fn pass(&mut self, nodes: &[LinkEnd]) {
        let known = self.route.last() == nodes.first();
        self.route.extend(nodes.iter().skip(usize::from(known)));
    }

    pub(crate) fn demand(&mut self, memory: LinkEnd, ratio: f64) {
        *self.memory.entry(memory).or_default() += ratio;
    }

    pub(crate) fn take(&mut self, resource: Option<u32>, weight: f64) {
        if let Some(resource) = resource {
            *self.uses.entry(resource).or_default() += weight;
        }
    }

    pub(crate) fn cap(&mut self, cap: f64, limit: &str) {
        if cap < self.cap {
            self.cap = cap;
            self.limit = limit.to_string();
        }
    }

    /// A stretch that the description knows no more of than its rate.
    pub(crate) fn rated(&mut self, name: &str, rate: f64) {
        self.cap(rate, name);
        let rate = Rate(rate);
        let (name, why) = (name.into(), String::new());
        self.stages.push(PathStage { name, peak: rate, cap: rate, why, hard: None });
    }

    /// The hard peak of a link, of what can pass it unseen.
    fn link_peak(&self, peak: Option<Rate>) -> Option<Rate> {
        hard_peak::apparent_peak(peak?, self.kept, self.bytes as f64)
    }

    /// A stretch of peak `peak` of which `share` is payload, taken `ratio` times; with what nothing
    /// exceeds there.
    fn stage(
        &mut self,
        name: String,
        (peak, hard): (Option<Rate>, Option<Rate>),
        share: f64,
        ratio: f64,
        why: String,
    ) {
        let Some(peak) = peak else {
            self.unknown.push(format!("the peak of {name}"));
            return;
        };
        let peak = peak * (1.0 / ratio);
        let cap = peak * share;
        let limit = if share < 1.0 { format!("{name} ({why})") } else { name.clone() };
        self.cap(cap.0, &limit);
        let why = if share < 1.0 { why } else { String::new() };
        let hard = hard.map(|hard| hard * (1.0 / ratio));
        self.stages.push(PathStage { name, peak, cap, why, hard });
    }

    /// From GPU to GPU over the route in use.
    fn peer(
        &mut self,
        src: LinkEnd,
        dst: LinkEnd,
        hand: LegMover,
        ratio: f64,
    ) -> Result<(), NoPath> {
        let (LinkEnd::Gpu(from), LinkEnd::Gpu(to)) = (src, dst) else {
            return no(format!("{src} and {dst} are not both GPUs"));
        };
        let used = self.net.route(src, dst).filter(|used| !used.through_host);
        let Some(used) = used else {
            if self.net.unread_fabric {
                return no(format!(
                    "how {src} and {dst} are joined is not known: they have NVLink, which nothing read here shows"
                ));
            }
            let home = |g: u32| self.net.gpus.get(&g)?.port.as_ref()?.home;
            let beyond = home(to);
            let links = self.stages.len();
            self.host(from, beyond, LegSide::Out, hand, ratio)?;
            self.host(to, None, LegSide::In, hand, ratio)?;
            self.stages.iter_mut().skip(links).for_each(|stage| stage.hard = None);
            return Ok(());
        };
        let fabric = &self.net.model.fabric;
        let (verb, what): (&LinkOverhead, _) = match hand {
            LegMover::Engine => (&fabric.engine, "copy engine"),
            LegMover::Read => (&fabric.read, "remote read"),
            LegMover::Write => (&fabric.write, "remote write"),
        };
        let Some(route) = taken(&used, src, dst) else { return no("no route is known") };
        let inner = route.nodes.iter().filter(|n| matches!(n, LinkEnd::Gpu(_))).count();
        let passed = inner.saturating_sub(2) as u32;
        let apart = self.net.apart(src, dst);
        let on_engine = hand == LegMover::Engine;
        let mut wire = fabric.wire(verb, passed > 0 && !on_engine, apart.is_some() && !on_engine);
        let mut why = packets(what, fabric.payload_bytes, wire.packet);
        if on_engine && passed > 0 {
            let slower = self.net.model.copy_engine.per_hop.powi(passed as i32);
            wire.forward /= slower;
            if slower < 1.0 {
                why += &format!(", {:.1} % of that through another GPU", slower * 100.0);
            }
        }
        // A description states the payload of its links; of other machines the protocol is known.
        let kinds = route.nodes.iter().zip(route.nodes.iter().skip(1));
        let mut kinds = kinds.filter_map(|(&a, &b)| self.net.lanes.get(&(a, b)));
        let is_nvlink = kinds.all(|lane| lane.bundle.kind == LinkKind::Nvlink);
        if let Some(peak) = used.peak.filter(|_| !self.net.described && is_nvlink) {
            let (share, protocol) = nvlink::payload(peak * (1.0 / f64::from(used.width.max(1))));
            (wire.forward, why) = (1.0 / share, protocol);
        }
        let share = 1.0 / wire.forward;
        let paths = if used.striped { used.paths.as_slice() } else { std::slice::from_ref(route) };
        let total = total_width(paths);
        for path in paths {
            let part = ratio * f64::from(path.width) / f64::from(total.max(1));
            for (&a, &b) in path.nodes.iter().zip(path.nodes.iter().skip(1)) {
                let Some(lane) = self.net.lanes.get(&(a, b)) else { continue };
                self.take(lane.one_way, part * wire.forward);
                let answers = if apart.is_none() { wire.reverse } else { 0.0 };
                self.take(lane.both, part * (wire.forward + answers));
                if !used.striped {
                    let (kind, width) = (lane.bundle.kind.name(), lane.bundle.width);
                    let name = format!("{kind} {a}-{b}, {}", links(width));
                    let hard = self.link_peak(lane.bundle.peak.filter(|_| self.net.sure_links));
                    self.stage(name, (lane.bundle.peak, hard), share, ratio, why.clone());
                }
            }
        }
        if apart.is_some() {
            self.answers_apart(src, dst, ratio * wire.reverse);
            self.take(apart, ratio * (wire.forward + wire.reverse));
        }
        if used.striped {
            let name = format!("{src}-switches-{dst}, {}", links(used.width));
            let hard = self.link_peak(used.peak.filter(|_| self.net.sure_links));
            self.stage(name, (used.peak, hard), share, ratio, why);
        }
        self.passed = self.passed.max(passed);
        self.pass(&route.nodes);
        Ok(())
    }

    /// Answers to a flow from `src` to `dst` that take the route of the other direction.
    fn answers_apart(&mut self, src: LinkEnd, dst: LinkEnd, weight: f64) {
        let Some(back) = self.net.route(dst, src) else { return };
        let Some(route) = taken(&back, dst, src) else { return };
        for (&a, &b) in route.nodes.iter().zip(route.nodes.iter().skip(1)) {
            self.take(self.net.lanes.get(&(a, b)).and_then(|lane| lane.both), weight);
        }
    }

    /// Between a GPU and the host; to memory of domain `numa`, if that is where it ends.
    fn host(
        &mut self,
        g: u32,
        numa: Option<u32>,
        hop: LegSide,
        hand: LegMover,
        ratio: f64,
    ) -> Result<(), NoPath> {
        let model = &self.net.model.host_link;
        let (header, what) = match (hop, hand) {
            (LegSide::In, LegMover::Engine) if self.is_in_cpu_cache() => {
                let slower = model.kernel_read_header_bytes.max(model.engine_in_header_bytes);
                (slower, "copy engine, from the CPUs' caches into the GPU")
            }
            (LegSide::In, LegMover::Engine) => {
                (model.engine_in_header_bytes, "copy engine, into the GPU")
            }
            (LegSide::Out, LegMover::Engine) => {
                (model.engine_out_header_bytes, "copy engine, out of the GPU")
            }
            (LegSide::In, _) => (model.kernel_read_header_bytes, "kernel that loads from the host"),
            (LegSide::Out, _) => {
                (model.kernel_write_header_bytes, "kernel that stores to the host")
            }
        };
        let packet = (model.payload_bytes, header);
        let Some(home) = self.port(g, hop, packet, what, ratio) else {
            return no(format!("the path from gpu{g} to the host is not known"));
        };
        let mut nodes = vec![LinkEnd::Gpu(g)];
        nodes.extend(home.map(LinkEnd::Numa));
        if let (Some(home), Some(numa)) = (home, numa.filter(|n| Some(*n) != home)) {
            let (home, numa) = (LinkEnd::Numa(home), LinkEnd::Numa(numa));
            nodes.push(numa);
            let (a, b) = if hop == LegSide::In { (numa, home) } else { (home, numa) };
            self.cpu_link(a, b, ratio);
        }
        if hop == LegSide::In {
            nodes.reverse();
        }
        self.pass(&nodes);
        Ok(())
    }

    /// The link between a GPU and the host, with packets of this payload and these bytes besides. The domain that
    /// it hangs on, where that is known; none if there is no such link.
    pub(super) fn port(
        &mut self,
        g: u32,
        hop: LegSide,
        (payload, header): (f64, f64),
        what: &str,
        ratio: f64,
    ) -> Option<Option<u32>> {
        let HostPort { home, name, peak, hard, into_gpu, out_of_gpu, both, .. } =
            self.net.gpus.get(&g).and_then(|gpu| gpu.port.as_ref())?;
        let model = &self.net.model.host_link;
        let packet = payload + header;
        let forward = packet / payload;
        let reverse = model.reverse_bytes / model.payload_bytes;
        self.take(if hop == LegSide::In { *into_gpu } else { *out_of_gpu }, ratio * forward);
        self.take(*both, ratio * (forward + reverse));
        let why = packets(what, payload, packet);
        let hard = self.link_peak(*hard);
        self.stage(name.clone(), (*peak, hard), 1.0 / forward, ratio, why);
        Some(*home)
    }

    /// Whether the CPUs' caches hold the payload, which a core wrote before the copy.
    fn is_in_cpu_cache(&self) -> bool {
        self.written_by_core && self.bytes <= self.net.model.host_link.cached_up_to_bytes
    }

    /// Between NUMA domains, where a link is listed; within a socket there is none to fill.
    pub(crate) fn cpu_link(&mut self, a: LinkEnd, b: LinkEnd, ratio: f64) {
        if let Some(lane) = self.net.lanes.get(&(a, b)) {
            self.take(lane.one_way, ratio);
            if let Some(peak) = lane.bundle.peak {
                let name = format!("CPU link {a}-{b}, {}", links(lane.bundle.width));
                self.stage(name, (Some(peak), None), 1.0, ratio, String::new());
            }
        }
    }

    /// The memories at the ends. `of_gpu` is the share of a GPU's peak that is reached, if it is
    /// not that of kernels.
    pub(crate) fn memories(&mut self, of_gpu: Option<f64>) {
        self.memories_at(of_gpu, self.net.model.host_link.memory_efficiency);
    }

    /// The same, with the share of a NUMA domain's peak that is reached.
    pub(crate) fn memories_at(&mut self, of_gpu: Option<f64>, of_host: f64) {
        let model = &self.net.model;
        let links = std::mem::take(&mut self.stages);
        let mut demands: Vec<(LinkEnd, f64)> =
            std::mem::take(&mut self.memory).into_iter().collect();
        // In the order of the path: the source's memory, the links, the destination's memory.
        let source = self.route.first().copied();
        demands.sort_by_key(|&(node, _)| Some(node) != source);
        let mut links = Some(links);
        for (node, ratio) in demands {
            if Some(node) != source {
                self.stages.extend(links.take().into_iter().flatten());
            }
            let (resource, peak, share, what) = match node {
                LinkEnd::Gpu(g) => {
                    let Some(gpu) = self.net.gpus.get(&g) else { continue };
                    let share = of_gpu.unwrap_or(model.gpu_memory.kernel_efficiency);
                    (gpu.memory, gpu.memory_peak, share, "HBM")
                }
                LinkEnd::Numa(n) => {
                    let Some(numa) = self.net.numas.get(&n) else { continue };
                    (numa.memory, numa.memory_peak, of_host, "DDR")
                }
                LinkEnd::Switch(_) | LinkEnd::Store(_) => continue,
            };
            self.memory_stage(node, what, resource, peak, share, ratio);
        }
        self.stages.extend(links.into_iter().flatten());
    }

    fn memory_stage(
        &mut self,
        node: LinkEnd,
        what: &str,
        resource: Option<u32>,
        peak: Option<Rate>,
        share: f64,
        ratio: f64,
    ) {
        self.take(resource, ratio / share);
        let name = match ratio {
            r if r > 1.0 => format!("{node} {what}, {r:.0} bytes for a byte of payload"),
            _ => format!("{node} {what}"),
        };
        match peak {
            Some(_) => {
                let why = format!("{:.0} % of the peak is reached", share * 100.0);
                let of_gpu = peak.filter(|_| matches!(node, LinkEnd::Gpu(_)));
                let bytes = self.bytes as f64 * ratio;
                let hard = of_gpu
                    .and_then(|p| hard_peak::apparent_peak(p, hard_peak::MEMORY_CACHE, bytes));
                self.stage(name, (peak, hard), share, ratio, why);
            }
            None => self.unknown_memory.push(format!("the memory peak of {node}")),
        }
    }

    /// The engine of the GPU that issues the copy.
    pub(crate) fn engine(&mut self, g: u32, gpu: &GpuNode, between_gpus: bool) {
        let model = &self.net.model.copy_engine;
        let resource = if between_gpus { gpu.peer_engines } else { gpu.host_engines };
        self.take(resource, 1.0);
        let gang = f64::from(model.gang);
        let cap = gang * model.gbs * gpu.engine_share * model.per_hop.powi(self.passed as i32);
        let name = match model.gang {
            1 => format!("copy engine of gpu{g}"),
            n => format!("{n} copy engines of gpu{g}"),
        };
        self.cap(cap, &name);
    }

    pub(crate) fn pageable(&mut self, regime: &PageableRegime, into_gpu: bool) {
        let cap = if into_gpu { regime.in_gbs } else { regime.out_gbs };
        self.cap(cap, "staging of pageable memory");
    }

    /// Limit from the bytes that a blit kernel has in flight, over the latency of the farther end.
    pub(crate) fn in_flight(&mut self, gpu: &GpuNode, variant: &KernelVariant, ratio: f64) {
        let kernel = &self.net.model.kernel;
        let peer = kernel.peer_load_ns + kernel.hop_load_ns * f64::from(self.passed);
        self.in_flight_over(gpu, variant, LoopLimits::loads(ratio, peer.max(kernel.host_load_ns)));
    }

    /// Little's law: bytes in flight over the latency of one load, and after it the time of their stores.
    pub(crate) fn in_flight_over(
        &mut self,
        gpu: &GpuNode,
        variant: &KernelVariant,
        limits: LoopLimits,
    ) {
        if gpu.compute_units == 0 {
            return;
        }
        let launched = self.launched(gpu, variant);
        let in_flight = launched.min(self.resident(gpu, variant)) * variant.in_flight().as_f64();
        let loads = limits.reads * limits.load_ns / in_flight;
        let units = launched.min(f64::from(gpu.compute_units));
        let stores = limits.store_gbs.map_or(0.0, |each| limits.writes / (each * units));
        let per_byte = loads + stores;
        if per_byte > 0.0 {
            let name = if loads >= stores {
                "loads in flight over their latency"
            } else {
                "stores of its compute units"
            };
            self.cap(1.0 / per_byte, name);
        }
    }

    /// Blocks of a variant that a GPU holds at once: by threads, and by shared memory.
    fn resident(&self, gpu: &GpuNode, variant: &KernelVariant) -> f64 {
        let threads_held = self.net.model.kernel.threads_per_unit;
        let shared_held = u64::from(SHARED_KIB) * 1024 / variant.shared().0.max(1);
        let of_unit = f64::from(threads_held / u32::from(variant.block).max(1));
        f64::from(gpu.compute_units) * of_unit.min(shared_held as f64).max(1.0)
    }

    /// Blocks of the grid that a variant launches for the flow's payload.
    fn launched(&self, gpu: &GpuNode, variant: &KernelVariant) -> f64 {
        match variant.grid {
            GridSize::Blocks(n) => f64::from(n),
            GridSize::PerSm(n) => f64::from(n) * f64::from(gpu.compute_units),
            GridSize::Tiles => (self.bytes as f64 / variant.in_flight().as_f64().max(1.0)).ceil(),
        }
    }

    /// Takes the GPU's compute units where the kernel leaves no room for another: no block slots, or no cycles.
    /// Such kernels run one after the other, so each has the units for a part of the time.
    pub(crate) fn grid(&mut self, (g, gpu): (u32, &GpuNode), variant: &KernelVariant) {
        let (launched, resident) = (self.launched(gpu, variant), self.resident(gpu, variant));
        let computes = variant.op == KernelOp::Fma && launched >= f64::from(gpu.compute_units);
        let model = &self.net.model.kernel;
        let fills = launched >= resident || (computes && model.single_issue);
        let packed = if computes { (resident / launched).max(1.0) } else { 1.0 };
        self.filled = gpu.units.filter(|_| fills);
        self.turn = model.in_order.then_some(KernelTurn { gpu: g, fills, packed });
    }

    /// A flow alone is held by what faults have left, too: its own caps are those of healthy parts.
    fn damages(&mut self) {
        for (resource, weight) in self.uses.clone() {
            let damaged = self.net.damaged.contains(&resource);
            if let Some(of) = self.net.resources.get(resource as usize).filter(|_| damaged) {
                self.cap(of.capacity.0 / weight, &of.name);
            }
        }
    }

    pub(crate) fn finish(
        mut self,
        engine: &str,
        alpha_us: f64,
        call_us: f64,
        blocking: bool,
        step_ns: f64,
    ) -> Result<BuiltPath, NoPath> {
        self.damages();
        if self.cap.is_finite() && self.cap > 0.0 {
            self.take(self.filled, 1.0 / self.cap);
        }
        let mut unknown = self.unknown;
        if self.stages.is_empty() && unknown.is_empty() {
            unknown.extend(self.unknown_memory);
        }
        if !unknown.is_empty() {
            return no(format!("not known: {}", unknown.join(", ")));
        }
        let uses = self.uses.into_iter().map(|(resource, weight)| ResourceUse { resource, weight });
        let operation = FlowOperation {
            uses: uses.collect(),
            cap: Rate(self.cap),
            share: 1.0,
            queue: None,
            turn: self.turn,
            alpha: Ns::us(alpha_us),
            call: Ns::us(call_us),
            blocking,
            spread: 0.0,
            step: Ns(step_ns),
            route: self.route,
            engine: engine.into(),
            stages: self.stages,
        };
        Ok(BuiltPath { operation, limit: self.limit })
    }
}

/// Text on a packet's payload: `copy engine: 75 % is payload, 64 B in packets of 85 B`.
fn packets(what: &str, payload: f64, packet: f64) -> String {
    let share = payload / packet * 100.0;
    let tenths = |bytes: f64| (bytes * 10.0).round() / 10.0;
    let (payload, packet) = (tenths(payload), tenths(packet));
    format!("{what}: {share:.0} % is payload, {payload} B in packets of {packet} B")
}

fn links(width: u32) -> String {
    if width == 1 { "1 link".into() } else { format!("{width} links") }
}
