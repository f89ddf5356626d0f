//! Resources of a node and the paths of flows over them.

use std::collections::BTreeMap;

use pathline_schema::{
    Case, Flow, Gpu, GpuCaps, LinkEnd, LinkKind, Ns, NumaDomain, Rate, Topology, TopologyWarning,
};

use crate::files::{self, IoParts, StoreNode};
use crate::hard_peak;
use crate::measured::{MeasuredFlows, MeasuredIndex, RateInterval};
use crate::model::{CacheLevel, NodeModel};
use crate::path::{BuiltPath, build};
use crate::routes::{InUse, LinkBundle, RoutePath, RouteTable};
use crate::solve::{Limiter, MaxMinSolver, RateDemand, limiter};
use crate::storage::{IoCosts, StoreModel};
use crate::{DescError, MachineDesc, RuntimeEnv};

/// Up to so many GPUs the routes of all pairs are worked out once; beyond, when asked for.
const ROUTED_GPUS: usize = 64;

/// Something that flows share: one direction of a link, a memory, an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowResource {
    /// Name for people: `gpu0>gpu1 xGMI x4`, `numa3 DDR`, `gpu0 SDMA out`.
    pub name: String,
    /// Bytes per nanosecond that it can carry (GB/s).
    pub capacity: Rate,
}

/// How much of a resource one byte of a flow's payload takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceUse {
    /// Index into [`Network::resources`].
    pub resource: u32,
    /// Bytes of the resource for a byte of payload: 1 is payload only, 1.15 with headers, 2 for a
    /// copy inside one memory.
    pub weight: f64,
}

/// A stretch of a flow's way, and the most it lets through.
#[derive(Debug, Clone, PartialEq)]
pub struct PathStage {
    /// Name for people: `xGMI gpu0-gpu2, 1 link`.
    pub name: String,
    /// Theoretical peak, from widths and clocks alone.
    pub peak: Rate,
    /// The most payload that it lets through alone.
    pub cap: Rate,
    /// Why the cap is below the peak; empty if it is not.
    pub why: String,
    /// The most payload that anything can carry over it, where that is known for sure.
    pub hard: Option<Rate>,
}

/// What one operation of a flow costs and takes.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowOperation {
    /// Shared resources.
    pub uses: Vec<ResourceUse>,
    /// The most that the flow can reach alone, whatever is free.
    pub cap: Rate,
    /// Its weight where rates are shared out: of two flows that wait for the same resource, one of
    /// 0.5 gets half of what one of 1 gets.
    pub share: f64,
    /// The engine that serves one stream of operations at a time, if this is for such a one: index
    /// into [`Network::queues`].
    pub queue: Option<u32>,
    /// Device time before the first byte moves.
    pub alpha: Ns,
    /// Host time of the call that enqueues it.
    pub call: Ns,
    /// Whether the call returns only when the bytes have arrived.
    pub blocking: bool,
    /// Time of each dependent step, for a pointer chase; else 0.
    pub step: Ns,
    /// Units passed, ends included.
    pub route: Vec<LinkEnd>,
    /// What moves the bytes, in words for the record: `copy engine`, `blit kernel`.
    pub engine: String,
    /// The way, stretch by stretch.
    pub stages: Vec<PathStage>,
}

/// Why a flow has no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoPath(pub String);

/// What is expected of one timed flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowPrediction {
    /// Payload rate while all flows of the case run.
    pub rate: Rate,
    /// Time of one operation, start-up included, beside the other flows. For a chase, of one step.
    pub time: Ns,
    /// Name of the resource or cap that binds.
    pub bound_by: String,
}

/// The ceiling of a flow and where it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowCeiling {
    /// Theoretical peak of the narrowest stretch of the way.
    pub peak: Rate,
    /// The stretch.
    pub narrowest: String,
    /// The tightest bound that is known, if it is below the peak: an engine's cap, a protocol.
    pub bound: Option<(Rate, String)>,
    /// Units passed, ends included.
    pub route: Vec<LinkEnd>,
    /// The way, stretch by stretch.
    pub stages: Vec<PathStage>,
}

/// One direction of a bundle of links.
#[derive(Debug, Clone)]
pub(crate) struct LinkDirection {
    /// Its resource; none if its peak is not known.
    pub one_way: Option<u32>,
    /// Both directions together. What a flow puts on either counts here, so that two opposite flows
    /// hold each other where a flow alone is held by its own direction. (Answers are no use of the
    /// other direction itself: under max-min fairness a flow would then wait there for a share as
    /// large as those of the flows whose payload fills it, though it wants a tenth of that.)
    pub both: Option<u32>,
    pub bundle: LinkBundle,
}

/// A GPU's way to the host.
#[derive(Debug, Clone)]
pub(crate) struct HostPort {
    /// NUMA domain that it hangs on.
    pub home: Option<u32>,
    /// `xGMI gpu0-numa3`, `PCIe gpu0-numa0`.
    pub name: String,
    pub peak: Option<Rate>,
    /// At the highest speed and width of the link.
    pub hard: Option<Rate>,
    pub into_gpu: Option<u32>,
    pub out_of_gpu: Option<u32>,
    pub both: Option<u32>,
}

/// A GPU, its resources and what it is made of.
#[derive(Debug, Clone)]
pub(crate) struct GpuNode {
    pub memory: Option<u32>,
    pub memory_peak: Option<Rate>,
    pub peer_engines: Option<u32>,
    pub host_engines: Option<u32>,
    pub port: Option<HostPort>,
    pub compute_units: u32,
    /// What its runtime can do.
    pub caps: &'static GpuCaps,
    /// Row and column in a matrix of latencies.
    pub order: usize,
    /// Queues of its copy engines, if they serve one stream at a time: to other GPUs, in, out.
    pub queues: Option<[u32; 3]>,
}

/// A NUMA domain and its resources.
#[derive(Debug, Clone)]
pub(crate) struct NumaNode {
    pub memory: Option<u32>,
    pub memory_peak: Option<Rate>,
    /// Its CPUs; 0 if unknown.
    pub cpus: usize,
    /// Distance to each domain, by its number.
    pub distances: BTreeMap<u32, u32>,
}

/// Resources and paths of one node.
#[derive(Debug, Clone)]
pub struct Network {
    resources: Vec<FlowResource>,
    pub(crate) model: NodeModel,
    pub(crate) switches: RuntimeEnv,
    pub(crate) features: Vec<String>,
    pub(crate) page: f64,
    pub(crate) huge_page: f64,
    /// Whether efficiencies and latencies are known; else only peaks are.
    pub(crate) described: bool,
    pub(crate) gpus: BTreeMap<u32, GpuNode>,
    pub(crate) numas: BTreeMap<u32, NumaNode>,
    pub(crate) lanes: BTreeMap<(LinkEnd, LinkEnd), LinkDirection>,
    routes: RouteTable,
    used: BTreeMap<(LinkEnd, LinkEnd), InUse>,
    /// Of pairs whose two directions take different links, the lower GPU first: what holds two
    /// opposite flows, which share no bundle but meet each other's answers on both.
    apart: BTreeMap<(LinkEnd, LinkEnd), u32>,
    /// Whether GPUs may be joined by links that discovery could not see, so that a way through the
    /// host is no ceiling.
    pub(crate) unread_fabric: bool,
    /// Whether the sources agree on the links between GPUs.
    pub(crate) sure_links: bool,
    /// What was measured of this node, which counts before what the model says.
    pub(crate) book: MeasuredIndex,
    /// Whether flows that were not measured can be modelled.
    pub(crate) modelled: bool,
    /// Names of the engines that serve one stream at a time.
    queues: Vec<String>,
    /// Places for files, by number.
    pub(crate) stores: Vec<StoreNode>,
    /// What I/O costs its CPUs.
    pub(crate) io: Option<IoCosts>,
}

impl Network {
    /// From a machine description, as it behaves under `switches`.
    ///
    /// # Errors
    /// Two GPUs that neither a link nor the host joins.
    pub fn new(desc: &MachineDesc, switches: RuntimeEnv) -> Result<Self, DescError> {
        let mut network = Self::of(&desc.topology, desc.model.clone(), switches, true);
        network.modelled = desc.modelled;
        network.io.clone_from(&desc.io);
        desc.stores.iter().for_each(|store| network.add_store(store));
        network.add_measured(desc.measured.clone());
        for (&g, gpu) in &network.gpus {
            let joined = network.routes.neighbours(LinkEnd::Gpu(g)).next().is_some();
            // A twin needs no links: what was measured between two places is a path.
            if !joined && gpu.port.is_none() && network.modelled {
                let reason = format!("gpu{g} has no link; expected one to a NUMA domain or a GPU");
                return Err(DescError { file: desc.file.clone(), reason });
            }
        }
        Ok(network)
    }

    /// From a discovered topology: theoretical peaks, no efficiencies, no latencies.
    pub fn from_topology(topology: &Topology) -> Self {
        let mut model = NodeModel::ideal();
        // Not for their rates, which are not known, but to tell what never reaches the memory.
        let mut caches: Vec<CacheLevel> = topology
            .caches
            .iter()
            .filter(|c| c.kind != "Instruction" && c.size.0 > 0)
            .map(|c| CacheLevel {
                level: c.level,
                bytes: c.size.0,
                shared_by: c.cpus.len().clamp(1, 1 << 16) as u32,
                load_ns: 0.0,
                core_gbs: f64::INFINITY,
            })
            .collect();
        caches.sort_by_key(|c| (c.level, c.bytes));
        caches.dedup();
        model.cpu.cache = caches;
        Self::of(topology, model, RuntimeEnv::default(), false)
    }

    fn of(topology: &Topology, model: NodeModel, switches: RuntimeEnv, described: bool) -> Self {
        let host = &topology.host;
        let huge = host.huge_pages.first().map_or(2 << 20, |b| b.0);
        let mut network = Self {
            resources: Vec::new(),
            model,
            switches,
            features: host.features.clone(),
            page: host.page.0.max(4096) as f64,
            huge_page: huge.max(4096) as f64,
            described,
            gpus: BTreeMap::new(),
            numas: BTreeMap::new(),
            lanes: BTreeMap::new(),
            routes: RouteTable::of(topology),
            used: BTreeMap::new(),
            apart: BTreeMap::new(),
            unread_fabric: topology.doubts(TopologyWarning::NVLINK_NOT_READ),
            sure_links: hard_peak::has_sure_links(topology),
            book: MeasuredIndex::default(),
            modelled: true,
            queues: Vec::new(),
            stores: Vec::new(),
            io: None,
        };
        topology.numa.iter().for_each(|numa| network.add_numa(numa, &topology.numa));
        topology.gpus.iter().enumerate().for_each(|(i, gpu)| network.add_gpu(i, gpu));
        network.add_lanes(topology);
        network.route_all();
        network.part_routes();
        network
    }

    fn add_numa(&mut self, numa: &NumaDomain, all: &[NumaDomain]) {
        let mut ids: Vec<u32> = all.iter().map(|n| n.id).collect();
        ids.sort_unstable();
        let node = NumaNode {
            memory: self.resource(format!("numa{} DDR", numa.id), numa.peak),
            memory_peak: known(numa.peak),
            cpus: numa.cpus.len(),
            distances: ids.into_iter().zip(numa.distances.iter().copied()).collect(),
        };
        self.numas.insert(numa.id, node);
    }

    fn add_gpu(&mut self, order: usize, gpu: &Gpu) {
        let g = gpu.index;
        let engine = &self.model.copy_engine;
        let all = |engines: u32| Some(Rate(engine.gbs * f64::from(engines)));
        let (peer, host) = (all(engine.peer_engines), all(engine.host_engines));
        let serial = engine.serial;
        let mut queue = |what: &str| {
            self.queues.push(format!("gpu{g} copy engine {what}"));
            u32::try_from(self.queues.len() - 1).unwrap_or(u32::MAX)
        };
        let queues = serial.then(|| ["to GPUs", "in", "out"].map(&mut queue));
        let node = GpuNode {
            queues,
            memory: self.resource(format!("gpu{g} HBM"), gpu.memory_peak),
            memory_peak: known(gpu.memory_peak),
            peer_engines: self.resource(format!("gpu{g} copy engines to peers"), peer),
            host_engines: self.resource(format!("gpu{g} copy engines to host"), host),
            port: self.port(gpu),
            compute_units: gpu.compute_units,
            caps: gpu.caps(),
            order,
        };
        self.gpus.insert(g, node);
    }

    /// A link to a NUMA domain if one is listed, else the GPU's own PCIe link.
    fn port(&mut self, gpu: &Gpu) -> Option<HostPort> {
        let at = LinkEnd::Gpu(gpu.index);
        let homes = self.routes.neighbours(at).filter_map(|(n, bundle)| match n {
            LinkEnd::Numa(n) => Some((n, bundle)),
            _ => None,
        });
        let linked = homes.min_by_key(|&(n, _)| (Some(n) != gpu.numa, n));
        let pcie = hard_peak::pcie_peak(gpu);
        let (home, name, peak, hard) = match linked {
            Some((n, b)) => {
                let highest = pcie.filter(|_| b.kind == LinkKind::Pcie);
                let hard = b.peak.map(|peak| highest.map_or(peak, |pcie| Rate(pcie.0.max(peak.0))));
                (Some(n), format!("{} {at}-numa{n}", kind_name(b.kind)), b.peak, hard)
            }
            None => {
                let link = gpu.host_link?;
                (gpu.numa, format!("PCIe {at}-host"), Some(link.peak()), pcie)
            }
        };
        let both = known(peak).map(|peak| peak * 2.0);
        Some(HostPort {
            home,
            peak: known(peak),
            hard: known(hard),
            into_gpu: self.resource(format!("{name}, into {at}"), peak),
            out_of_gpu: self.resource(format!("{name}, out of {at}"), peak),
            both: self.resource(format!("{name}, both ways"), both),
            name,
        })
    }

    /// Both directions of every bundle that is not a GPU's way to the host.
    fn add_lanes(&mut self, topology: &Topology) {
        for link in &topology.links {
            let (a, b) = (link.a.min(link.b), link.a.max(link.b));
            let numas = [a, b].iter().filter(|n| matches!(n, LinkEnd::Numa(_))).count();
            let Some(bundle) = self.routes.direct(a, b) else { continue };
            if numas == 1 || self.lanes.contains_key(&(a, b)) {
                continue;
            }
            let kind = kind_name(bundle.kind);
            let name = |a: LinkEnd, b: LinkEnd| format!("{a}>{b} {kind} x{}", bundle.width);
            let twice = known(bundle.peak).map(|peak| peak * 2.0);
            let both = self.resource(format!("{a}<>{b} {kind} x{}", bundle.width), twice);
            for (a, b) in [(a, b), (b, a)] {
                let one_way = self.resource(name(a, b), bundle.peak);
                self.lanes.insert((a, b), LinkDirection { one_way, both, bundle });
            }
        }
    }

    fn route_all(&mut self) {
        if self.gpus.len() > ROUTED_GPUS {
            return;
        }
        let gpus: Vec<LinkEnd> = self.gpus.keys().map(|&g| LinkEnd::Gpu(g)).collect();
        for &src in &gpus {
            for &dst in gpus.iter().filter(|&&dst| dst != src) {
                if let Some(used) = self.routes.in_use(src, dst) {
                    self.used.insert((src, dst), used);
                }
            }
        }
    }

    /// Resources of the pairs whose two directions take different routes.
    fn part_routes(&mut self) {
        let low = self.used.keys().copied().filter(|&(a, b)| a < b).collect::<Vec<_>>();
        for (a, b) in low {
            let (Some(there), Some(back)) = (self.used.get(&(a, b)), self.used.get(&(b, a))) else {
                continue;
            };
            let alone = !there.striped && !back.striped && !there.through_host;
            let (Some(x), Some(y)) = (taken(there, a, b), taken(back, b, a)) else { continue };
            if !alone || x.nodes.iter().eq(y.nodes.iter().rev()) {
                continue;
            }
            let twice = there.peak.zip(back.peak).map(|(x, y)| Rate(x.0 + y.0));
            if let Some(both) = self.resource(format!("{a}<>{b} xGMI over two routes"), twice) {
                self.apart.insert((a, b), both);
            }
        }
    }

    /// What holds two opposite flows of a pair whose two directions take different routes.
    pub(crate) fn apart(&self, a: LinkEnd, b: LinkEnd) -> Option<u32> {
        self.apart.get(&(a.min(b), a.max(b))).copied()
    }

    /// The route in use between two GPUs.
    pub(crate) fn route(&self, src: LinkEnd, dst: LinkEnd) -> Option<InUse> {
        match self.used.get(&(src, dst)) {
            Some(used) => Some(used.clone()),
            None if self.gpus.len() > ROUTED_GPUS => self.routes.in_use(src, dst),
            None => None,
        }
    }

    /// A new resource, where its capacity is known and finite.
    fn resource(&mut self, name: String, capacity: Option<Rate>) -> Option<u32> {
        let capacity = known(capacity).filter(|c| c.0.is_finite())?;
        self.resources.push(FlowResource { name, capacity });
        u32::try_from(self.resources.len() - 1).ok()
    }

    /// A place for files.
    fn add_store(&mut self, store: &StoreModel) {
        let [bytes, requests] = StoreNode::resources(self.stores.len(), store)
            .map(|(name, capacity)| self.resource(name, Some(capacity)));
        self.stores.push(StoreNode { store: store.clone(), bytes, requests });
    }

    /// What was measured: what is shared after the resources of the model, queues after its.
    fn add_measured(&mut self, measured: MeasuredFlows) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (resource, queue) = (count(self.resources.len()), count(self.queues.len()));
        let shared = measured.shared.iter();
        self.resources
            .extend(shared.map(|s| FlowResource { name: s.name.clone(), capacity: s.known.rate }));
        self.queues.extend(measured.queues.iter().map(|q| q.name.clone()));
        self.book = MeasuredIndex::new(measured, resource, queue);
    }

    /// What was measured of this node; empty if its description models it.
    pub fn measured(&self) -> &MeasuredFlows {
        &self.book.measured
    }

    /// Capacity and interval of a resource, if it was measured.
    pub(crate) fn known(&self, resource: u32) -> Option<&RateInterval> {
        let first = self.resources.len() - self.book.measured.shared.len();
        let at = (resource as usize).checked_sub(first)?;
        self.book.measured.shared.get(at).map(|shared| &shared.known)
    }

    /// Names of the engines that serve one stream of operations at a time.
    pub fn queues(&self) -> &[String] {
        &self.queues
    }

    /// What flows share.
    pub fn resources(&self) -> &[FlowResource] {
        &self.resources
    }

    /// Routes of the node, for maps and matrices.
    pub fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// What one operation of `flow` costs and takes.
    ///
    /// # Errors
    /// The hardware, the runtime or the switches allow no such transfer, or what it depends on is
    /// not known; in words for a skip.
    pub fn operation(&self, flow: &Flow) -> Result<FlowOperation, NoPath> {
        build(self, flow).map(|built| built.operation)
    }

    /// What I/O takes, part by part.
    ///
    /// # Errors
    /// No such store, or an engine that it does not have; in words for a skip.
    pub fn io_parts(&self, flow: &Flow) -> Result<IoParts, NoPath> {
        if let Some(why) = flow.misfit() {
            return Err(NoPath(why.into()));
        }
        let io = flow.by.io().ok_or_else(|| NoPath("it is no I/O".into()))?;
        files::parts(self, flow, io).map(|(_, parts)| parts)
    }

    /// The ceiling of `flow` alone.
    ///
    /// # Errors
    /// As [`Self::operation`].
    pub fn explain(&self, flow: &Flow) -> Result<FlowCeiling, NoPath> {
        let built = build(self, flow)?;
        let op = &built.operation;
        let narrowest = op.stages.iter().min_by(|a, b| a.peak.0.total_cmp(&b.peak.0));
        let Some(narrowest) = narrowest else {
            return Err(NoPath("no peak is known on the way".into()));
        };
        let alone = self.solve(std::slice::from_ref(&built));
        let rate = alone.first().copied().unwrap_or(op.cap);
        let below = rate.0 < narrowest.peak.0 * (1.0 - 1e-9);
        let bound = below.then(|| (rate, self.bound_by(&built, rate, &[(&built, rate)])));
        Ok(FlowCeiling {
            peak: narrowest.peak,
            narrowest: narrowest.name.clone(),
            bound,
            route: op.route.clone(),
            stages: op.stages.clone(),
        })
    }

    /// What each timed flow of `case` will get, all flows of the case running. The cadence does
    /// not matter here: what the host adds between isolated operations is not the flow's.
    ///
    /// # Errors
    /// As [`Self::operation`], for any flow of the case.
    pub fn predict(&self, case: &Case) -> Result<Vec<FlowPrediction>, NoPath> {
        let mut built: Vec<BuiltPath> =
            case.flows().map(|flow| build(self, flow)).collect::<Result<_, _>>()?;
        built.iter_mut().for_each(|built| self.take_turns(&mut built.operation));
        let rates = self.solve(&built);
        let loads: Vec<(&BuiltPath, Rate)> = built.iter().zip(rates.iter().copied()).collect();
        let predict = |(flow, &(built, rate)): (&Flow, &(&BuiltPath, Rate))| {
            let op = &built.operation;
            let time = if flow.by.is_chase() { op.step } else { op.alpha + rate.time(flow.bytes) };
            FlowPrediction { rate, time, bound_by: self.bound_by(built, rate, &loads) }
        };
        Ok(case.timed.iter().zip(&loads).map(predict).collect())
    }

    /// Flows of one queue take turns: on average each has so much of the engine's time as it would
    /// have of a resource that they share, whose capacity is 1 and of which a byte takes as long as
    /// it takes alone.
    fn take_turns(&self, operation: &mut FlowOperation) {
        let Some(queue) = operation.queue else { return };
        let weight = 1.0 / operation.cap.0;
        if let Ok(resource) = u32::try_from(self.resources.len() + queue as usize)
            && weight.is_finite()
        {
            operation.uses.push(ResourceUse { resource, weight });
        }
    }

    /// Name and capacity of a resource, queues after those that have rates.
    fn shared(&self, resource: u32) -> Option<(&str, f64)> {
        let (at, rates) = (resource as usize, self.resources.len());
        match self.resources.get(at) {
            Some(resource) => Some((&resource.name, resource.capacity.0)),
            None => Some((self.queues.get(at.checked_sub(rates)?)?, 1.0)),
        }
    }

    pub(crate) fn solve(&self, built: &[BuiltPath]) -> Vec<Rate> {
        let turns = self.queues.iter().map(|_| 1.0);
        let capacities: Vec<f64> =
            self.resources.iter().map(|r| r.capacity.0).chain(turns).collect();
        let flows: Vec<RateDemand<'_>> =
            built.iter().map(|b| RateDemand::from(&b.operation)).collect();
        let mut rates = Vec::new();
        MaxMinSolver::default().rates(&capacities, &flows, &mut rates);
        rates.into_iter().map(Rate).collect()
    }

    /// The flow's own cap, or the full resource that holds it.
    fn bound_by(&self, of: &BuiltPath, rate: Rate, loads: &[(&BuiltPath, Rate)]) -> String {
        let demand = RateDemand::from(&of.operation);
        let capacity = |resource: u32| self.shared(resource).map(|(_, capacity)| capacity);
        let all = || loads.iter().map(|(b, rate)| (RateDemand::from(&b.operation), rate.0));
        let name = match limiter(&demand, rate.0, capacity, all) {
            Limiter::Resource(resource) => self.shared(resource).map(|(name, _)| name),
            _ => None,
        };
        name.unwrap_or(&of.limit).to_owned()
    }
}

/// Of equal routes the one that a transfer takes: from the lower number to the higher the first, back
/// the last. No source says which the fabric takes; a description can. That the two directions take
/// different ones is what published figures suggest: docs/model.md, "Two equal routes".
pub(crate) fn taken(used: &InUse, src: LinkEnd, dst: LinkEnd) -> Option<&RoutePath> {
    if src < dst || used.striped { used.paths.first() } else { used.paths.last() }
}

/// A peak that says something: above 0 and a number.
pub(crate) fn known(peak: Option<Rate>) -> Option<Rate> {
    peak.filter(|p| p.0 > 0.0)
}

/// The name of a link kind as people write it.
pub(crate) fn kind_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Xgmi => "xGMI",
        LinkKind::Nvlink => "NVLink",
        LinkKind::Pcie => "PCIe",
        LinkKind::Cpu => "CPU link",
    }
}
