//! Resources of a node, the links and routes between its units, and how flows share them.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Bytes, Gpu, LinkEnd, LinkKind, MemKind, Ns, NumaDomain, Rate, RuntimeCall, Topology,
};

use crate::RuntimeEnv;
use crate::fault::{FaultEffect, FaultElement, MachineFault};
use crate::graph_units::{GpuNode, HostPort, LinkDirection, NumaNode, StoreNode};
use crate::hard_peak;
use crate::measured::{MeasuredFlows, MeasuredIndex, RateInterval};
use crate::model::NodeModel;
use crate::operation::{BuiltPath, FlowOperation, FlowResource, ResourceUse};
use crate::routes::{InUse, RoutePath, RouteTable};
use crate::solve::{Limiter, MaxMinSolver, RateDemand, limiter};
use crate::storage::{IoCosts, StoreModel};

/// Nodes of up to this many GPUs have the routes of all pairs computed once; larger ones on demand.
const ROUTED_GPUS: usize = 64;

/// A node: resources, and the routes between its units.
#[derive(Debug, Clone)]
pub(crate) struct NodeGraph {
    pub(crate) resources: Vec<FlowResource>,
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
    pub(crate) routes: RouteTable,
    used: BTreeMap<(LinkEnd, LinkEnd), InUse>,
    /// Of pairs whose two directions take different links, the lower GPU first: what holds two
    /// opposite flows, which share no bundle but meet each other's answers on both.
    apart: BTreeMap<(LinkEnd, LinkEnd), u32>,
    /// Whether GPUs may be joined by links that discovery could not see, so that a path through the
    /// host is no ceiling.
    pub(crate) unread_fabric: bool,
    /// Whether the sources agree on the links between GPUs.
    pub(crate) sure_links: bool,
    /// Measurements of this node, which take precedence over the model.
    pub(crate) book: MeasuredIndex,
    /// Whether flows that were not measured can be modelled.
    pub(crate) modelled: bool,
    /// Names of the engines that serve one stream at a time.
    pub(crate) queues: Vec<String>,
    /// Places for files, by number.
    pub(crate) stores: Vec<StoreNode>,
    /// CPU cost of I/O.
    pub(crate) io: Option<IoCosts>,
    /// Resources that faults have slowed: what is left of them also holds a flow alone.
    pub(crate) damaged: BTreeSet<u32>,
}

impl NodeGraph {
    /// Without stores and without what was measured.
    pub(crate) fn new(
        topology: &Topology,
        model: NodeModel,
        switches: RuntimeEnv,
        described: bool,
    ) -> Self {
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
            unread_fabric: topology.has_unread_links(),
            sure_links: hard_peak::has_sure_links(topology),
            book: MeasuredIndex::default(),
            modelled: true,
            queues: Vec::new(),
            stores: Vec::new(),
            io: None,
            damaged: BTreeSet::new(),
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
        let caps = gpu.caps();
        let multiplies = hard_peak::arithmetic_rate(gpu.compute_units, caps, false)
            * self.model.kernel.arithmetic_efficiency;
        // The peaks of a discovered machine are laws; how its kernels share units is a model.
        let modelled = |rate: f64| Some(Rate(rate)).filter(|_| self.described);
        let (time, multiplies) = (modelled(1.0), modelled(multiplies));
        let home = gpu.numa.filter(|_| self.model.gpu_memory.unified);
        let memory = match home.and_then(|numa| self.numas.get(&numa)) {
            Some(numa) => numa.memory,
            None => self.resource(format!("gpu{g} HBM"), gpu.memory_peak),
        };
        let node = GpuNode {
            queues,
            memory,
            memory_peak: known(gpu.memory_peak),
            peer_engines: self.resource(format!("gpu{g} copy engines to peers"), peer),
            host_engines: self.resource(format!("gpu{g} copy engines to host"), host),
            port: self.port(gpu),
            units: self.resource(format!("gpu{g} compute units"), time),
            arithmetic: self.resource(format!("gpu{g} arithmetic"), multiplies),
            compute_units: gpu.compute_units,
            engine_share: 1.0,
            lanes: gpu.host_link.map(|link| link.width),
            caps,
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
        let (home, kind, name, peak, hard) = match linked {
            Some((n, b)) => {
                let highest = pcie.filter(|_| b.kind == LinkKind::Pcie);
                let hard = b.peak.map(|peak| highest.map_or(peak, |pcie| Rate(pcie.0.max(peak.0))));
                (Some(n), b.kind, format!("{} {at}-numa{n}", b.kind.name()), b.peak, hard)
            }
            None => {
                let link = gpu.host_link?;
                (gpu.numa, LinkKind::Pcie, format!("PCIe {at}-host"), Some(link.peak()), pcie)
            }
        };
        let both = known(peak).map(|peak| peak * 2.0);
        Some(HostPort {
            home,
            kind,
            peak: known(peak),
            hard: known(hard),
            into_gpu: self.resource(format!("{name}, into {at}"), peak),
            out_of_gpu: self.resource(format!("{name}, out of {at}"), peak),
            both: self.resource(format!("{name}, both ways"), both),
            name,
        })
    }

    /// Both directions of every bundle that is not a GPU's link to the host.
    fn add_lanes(&mut self, topology: &Topology) {
        for link in &topology.links {
            let (a, b) = (link.a.min(link.b), link.a.max(link.b));
            let numas = [a, b].iter().filter(|n| matches!(n, LinkEnd::Numa(_))).count();
            let Some(bundle) = self.routes.direct(a, b) else { continue };
            if numas == 1 || self.lanes.contains_key(&(a, b)) {
                continue;
            }
            let kind = bundle.kind.name();
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

    /// The resource that limits two opposite flows of a pair whose directions take different
    /// routes.
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

    /// The resources of an element; those of copy engines are not among them.
    pub(crate) fn resources_of(&self, element: FaultElement) -> BTreeSet<u32> {
        let mut found: Vec<Option<u32>> = Vec::new();
        match element {
            FaultElement::Gpu(gpu) => found.extend(self.gpus.get(&gpu).map(|gpu| gpu.memory)),
            FaultElement::Numa(numa) => found.extend(self.numas.get(&numa).map(|numa| numa.memory)),
            FaultElement::Bundle { from, to, one_way } => {
                let mut ways = vec![(from, to)];
                if !one_way {
                    ways.push((to, from));
                }
                for way in ways {
                    let lane = self.lanes.get(&way);
                    found.extend(lane.map(|lane| lane.one_way));
                    found.extend(lane.filter(|_| !one_way).map(|lane| lane.both));
                    let (gpu, numa, into) = match way {
                        (LinkEnd::Gpu(gpu), LinkEnd::Numa(numa)) => (gpu, numa, false),
                        (LinkEnd::Numa(numa), LinkEnd::Gpu(gpu)) => (gpu, numa, true),
                        _ => continue,
                    };
                    let port = self.gpus.get(&gpu).and_then(|gpu| gpu.port.as_ref());
                    let Some(port) = port.filter(|port| port.home == Some(numa)) else { continue };
                    found.push(if into { port.into_gpu } else { port.out_of_gpu });
                    found.push(port.both.filter(|_| !one_way));
                }
            }
        }
        found.into_iter().flatten().collect()
    }

    /// Slows what a fault is in.
    pub(crate) fn damage(&mut self, fault: &MachineFault) {
        let share = match (fault.effect, fault.element) {
            (FaultEffect::Engine { share }, FaultElement::Gpu(gpu)) => {
                let Some(gpu) = self.gpus.get_mut(&gpu) else { return };
                gpu.engine_share *= share;
                for engines in [gpu.peer_engines, gpu.host_engines].into_iter().flatten() {
                    if let Some(engines) = self.resources.get_mut(engines as usize) {
                        engines.capacity = engines.capacity * share;
                    }
                }
                return;
            }
            (FaultEffect::Memory { share }, _) => share,
            (FaultEffect::Speed { share }, _) => share,
            (FaultEffect::Width { .. }, FaultElement::Bundle { from, to, .. }) => {
                let Some(share) = fault.share_left(self.physical_width(from, to)) else { return };
                share
            }
            _ => return,
        };
        for struck in self.resources_of(fault.element) {
            if let Some(resource) = self.resources.get_mut(struck as usize) {
                resource.capacity = resource.capacity * share;
                self.damaged.insert(struck);
            }
        }
    }

    /// Number of links of a bundle, or of lanes of a PCIe link; 0 if there is none.
    fn physical_width(&self, a: LinkEnd, b: LinkEnd) -> u32 {
        let lanes = [a, b].iter().find_map(|end| match end {
            LinkEnd::Gpu(gpu) => self.gpus.get(gpu)?.lanes,
            _ => None,
        });
        match self.routes.direct(a, b) {
            Some(bundle) if bundle.kind == LinkKind::Pcie => lanes.unwrap_or(bundle.width),
            Some(bundle) => bundle.width,
            None => 0,
        }
    }

    /// A place for files.
    pub(crate) fn add_store(&mut self, store: &StoreModel) {
        let [bytes, requests] = StoreNode::resources(self.stores.len(), store)
            .map(|(name, capacity)| self.resource(name, Some(capacity)));
        self.stores.push(StoreNode { store: store.clone(), bytes, requests });
    }

    /// Adds measurements: shared resources after those of the model, queues after its queues.
    pub(crate) fn add_measured(&mut self, measured: MeasuredFlows) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (resource, queue) = (count(self.resources.len()), count(self.queues.len()));
        let shared = measured.shared.iter();
        self.resources
            .extend(shared.map(|s| FlowResource { name: s.name.clone(), capacity: s.known.rate }));
        self.queues.extend(measured.queues.iter().map(|q| q.name.clone()));
        self.book = MeasuredIndex::new(measured, resource, queue);
    }

    /// Capacity and interval of a resource, if it was measured.
    pub(crate) fn known(&self, resource: u32) -> Option<&RateInterval> {
        let first = self.resources.len() - self.book.measured.shared.len();
        let at = (resource as usize).checked_sub(first)?;
        self.book.measured.shared.get(at).map(|shared| &shared.known)
    }

    /// Flows of one queue take turns: on average each has so much of the engine's time as it would
    /// have of a resource that they share, whose capacity is 1 and of which a byte takes as long as
    /// it takes alone.
    pub(crate) fn take_turns(&self, operation: &mut FlowOperation) {
        let Some(queue) = operation.queue else { return };
        let weight = 1.0 / operation.cap.0;
        if let Ok(resource) = u32::try_from(self.resources.len() + queue as usize)
            && weight.is_finite()
        {
            operation.uses.push(ResourceUse { resource, weight });
        }
    }

    /// Name and capacity of a resource; queues follow the resources that have rates.
    fn shared(&self, resource: u32) -> Option<(&str, f64)> {
        let (at, rates) = (resource as usize, self.resources.len());
        match self.resources.get(at) {
            Some(resource) => Some((&resource.name, resource.capacity.0)),
            None => Some((self.queues.get(at.checked_sub(rates)?)?, 1.0)),
        }
    }

    /// Capacities of all resources, and behind them of the queues, which flows take turns at.
    pub(crate) fn capacities(&self) -> Vec<f64> {
        let turns = self.queues.iter().map(|_| 1.0);
        self.resources.iter().map(|r| r.capacity.0).chain(turns).collect()
    }

    /// Name of a resource or queue.
    pub(crate) fn shared_name(&self, resource: u32) -> Option<String> {
        self.shared(resource).map(|(name, _)| name.to_owned())
    }

    pub(crate) fn solve(&self, built: &[BuiltPath]) -> Vec<Rate> {
        let capacities = self.capacities();
        let flows: Vec<RateDemand<'_>> =
            built.iter().map(|b| RateDemand::from(&b.operation)).collect();
        let mut rates = Vec::new();
        MaxMinSolver::default().rates(&capacities, &flows, &mut rates);
        rates.into_iter().map(Rate).collect()
    }

    /// The flow's own cap, or the full resource that holds it.
    pub(crate) fn bound_by(
        &self,
        of: &BuiltPath,
        rate: Rate,
        loads: &[(&BuiltPath, Rate)],
    ) -> String {
        let demand = RateDemand::from(&of.operation);
        let capacity = |resource: u32| self.shared(resource).map(|(_, capacity)| capacity);
        let all = || loads.iter().map(|(b, rate)| (RateDemand::from(&b.operation), rate.0));
        let name = match limiter(&demand, rate.0, capacity, all) {
            Limiter::Resource(resource) => self.shared(resource).map(|(name, _)| name),
            _ => None,
        };
        name.unwrap_or(&of.limit).to_owned()
    }

    /// Host time of a call about `bytes` of memory of a kind; none if the description has no row
    /// for it.
    pub(crate) fn call_time(
        &self,
        call: RuntimeCall,
        mem: Option<MemKind>,
        bytes: Bytes,
    ) -> Option<Ns> {
        let row = self.model.calls.iter().find(|row| row.call == call && row.mem == mem)?;
        Some(Ns::us(row.us(bytes)))
    }

    /// Device time between two records of events with nothing between them.
    pub(crate) fn event_gap(&self) -> Ns {
        Ns::us(self.model.time.event_gap_us)
    }

    /// Host time of the call that enqueues many copies; none if this runtime has none.
    pub(crate) fn batch_call(&self) -> Option<Ns> {
        self.model.time.batch_call_us.map(Ns::us)
    }
}

/// Of equal routes the one that a transfer takes: from the lower number to the higher the first, back
/// the last. No source states which the fabric takes; a description can. Published figures suggest
/// that the two directions take different ones: docs/understand/model.md, "Two equal routes".
pub(crate) fn taken(used: &InUse, src: LinkEnd, dst: LinkEnd) -> Option<&RoutePath> {
    if src < dst || used.striped { used.paths.first() } else { used.paths.last() }
}

/// A usable peak: a number above 0.
pub(crate) fn known(peak: Option<Rate>) -> Option<Rate> {
    peak.filter(|p| p.0 > 0.0)
}
