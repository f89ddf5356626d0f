//! The machine, or several equal ones, and the paths of messages over it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pathline_flow::routes::RouteTable;
use pathline_flow::{
    FaultEffect, FaultElement, MachineDesc, MachineFault, Network, NoPath, RateDemand, ResourceUse,
    SwitchRoute,
};
use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, Flow, KernelOp, KernelVariant, LinkEnd, LinkKind, MemKind,
    Mover, Place, Rate, Topology, Unit,
};

use crate::exchange::ExchangeMember;
use crate::fabric::ClusterFabric;
use crate::link_load::LinkLoad;
use crate::transfer::TransferRoute;

/// The carrier of a message's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ByteCarrier {
    /// The copy engine of the sender.
    Engine,
    /// The runtime's copy kernel on the sender: it writes.
    Blit,
    /// A kernel of the library on the sender: it writes.
    Kernel,
}

/// An adapter of the node.
#[derive(Debug, Clone)]
pub(crate) struct NodeAdapter {
    name: String,
    /// The GPU that it hangs on.
    near: Option<u32>,
    numa: Option<u32>,
    /// Payload, GB/s; 0 if unknown.
    gbs: f64,
}

/// Resources of one node between a GPU and an adapter.
#[derive(Debug, Clone)]
pub(crate) struct AdapterEnd {
    pub uses: Vec<ResourceUse>,
    pub cap: f64,
}

/// A path between nodes in its three parts.
pub(crate) struct NodeToNode {
    pub out: Arc<AdapterEnd>,
    /// Adapters of the two nodes, by their places.
    pub adapters: (usize, usize),
    /// Through the switches; none where the description has none.
    pub between: Option<Arc<SwitchRoute>>,
    pub into: Arc<AdapterEnd>,
}

/// One node and what its parts let through.
#[derive(Debug)]
pub(crate) struct NodeParts {
    pub name: String,
    pub network: Network,
    pub topology: Topology,
    /// Routes over the links that the driver reports, where faults may hide some from it.
    reported: Option<RouteTable>,
    faults: Vec<MachineFault>,
    /// Capacities of one node: the network's resources, each adapter out and in, queues.
    capacities: Vec<f64>,
    names: Vec<String>,
    pub adapters: Vec<NodeAdapter>,
    /// The network between nodes; without one only adapters limit.
    pub fabric: Option<ClusterFabric>,
    /// Number of nodes, if the description has several.
    cluster_nodes: Option<u32>,
    /// The adapter of each GPU, where one is known.
    near_adapters: HashMap<u32, usize>,
    ends: Mutex<HashMap<(u32, usize, bool), Arc<AdapterEnd>>>,
    paths: Mutex<HashMap<(ByteCarrier, u32, u32), Arc<TransferRoute>>>,
}

impl NodeParts {
    pub(crate) fn new(desc: &MachineDesc, network: Network, faults: &[MachineFault]) -> Self {
        let topology = desc.topology();
        let reported = (!faults.is_empty()).then(|| RouteTable::of(&desc.topology_with(faults)));
        let share = desc.software.network.as_ref().map_or(1.0, |n| n.payload_share);
        let mut capacities: Vec<f64> = network.resources().iter().map(|r| r.capacity.0).collect();
        let mut names: Vec<String> = network.resources().iter().map(|r| r.name.clone()).collect();
        let adapters: Vec<NodeAdapter> = topology
            .nics
            .iter()
            .map(|nic| NodeAdapter {
                name: nic.name.clone(),
                near: nic.near_gpu,
                numa: nic.numa,
                gbs: nic.speed_mbits.unwrap_or(0) as f64 / 8e3 * share,
            })
            .collect();
        for adapter in &adapters {
            for direction in ["out", "in"] {
                capacities.push(adapter.gbs);
                names.push(format!("{} {direction}", adapter.name));
            }
        }
        for queue in network.queues() {
            capacities.push(1.0);
            names.push(queue.clone());
        }
        let cluster = desc.cluster.as_ref();
        let graph = cluster.and_then(|cluster| cluster.network.clone());
        let fabric = graph.map(|graph| ClusterFabric::new(graph, share));
        let mut parts = Self {
            name: desc.name.clone(),
            network,
            topology,
            reported,
            faults: faults.to_vec(),
            capacities,
            names,
            adapters,
            fabric,
            cluster_nodes: cluster.map(|cluster| cluster.nodes),
            near_adapters: HashMap::new(),
            ends: Mutex::default(),
            paths: Mutex::default(),
        };
        let gpus = parts.topology.gpus.iter().map(|gpu| gpu.index);
        parts.near_adapters =
            gpus.filter_map(|gpu| Some((gpu, parts.nearest_adapter(gpu)?))).collect();
        parts
    }

    /// Capacities of `nodes` equal nodes, then those of the network between them.
    pub(crate) fn capacities(&self, nodes: usize) -> Vec<f64> {
        let mut all = self.capacities.repeat(nodes);
        all.extend(self.fabric.iter().flat_map(|fabric| &fabric.capacities));
        all
    }

    /// Capacities of one node.
    pub(crate) fn node_capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// The kind of a resource: `node` for links and memories of a node, `adapter`, `engine`, or its level of the
    /// network between nodes.
    pub(crate) fn resource_level(&self, resource: u32, nodes: usize) -> &'static str {
        let (per_node, adapters) = (self.names.len(), 2 * self.adapters.len());
        let at = resource as usize;
        if at >= per_node * nodes {
            let bundles = self.fabric.as_ref().map_or(&[][..], |fabric| fabric.graph.bundles());
            return bundles.get((at - per_node * nodes) / 2).map_or("", |bundle| bundle.level);
        }
        let first = self.network.resources().len();
        match at % per_node.max(1) {
            at if at < first => "node",
            at if at < first + adapters => "adapter",
            _ => "engine",
        }
    }

    /// The name of a resource, with its node where there are several.
    pub(crate) fn resource_name(&self, resource: u32, nodes: usize) -> String {
        let per_node = self.names.len().max(1);
        if let Some(at) = (resource as usize).checked_sub(per_node * nodes)
            && let Some(fabric) = &self.fabric
        {
            return fabric.graph.resource_name(at as u32);
        }
        let name = self.names.get(resource as usize % per_node).cloned().unwrap_or_default();
        match nodes {
            0 | 1 => name,
            _ => format!("n{} {name}", resource as usize / per_node),
        }
    }

    /// Routes over the links that the driver reports: what a library searches for rings.
    pub(crate) fn reported_routes(&self) -> &RouteTable {
        self.reported.as_ref().unwrap_or_else(|| self.network.routes())
    }

    /// What the NVLinks of a GPU to the switches carry in one direction, GB/s; 0 without switches. Bytes
    /// are spread evenly over the switches, so a slow bundle holds the others back.
    pub(crate) fn switch_gbs(&self, gpu: u32) -> f64 {
        let gpu = LinkEnd::Gpu(gpu);
        let near = self.network.routes().neighbours(gpu);
        let switches = near.filter(|(end, bundle)| {
            matches!(end, LinkEnd::Switch(_)) && bundle.kind == LinkKind::Nvlink
        });
        let (mut sum, mut slowest) = (0.0, 1.0_f64);
        for (switch, bundle) in switches {
            sum += bundle.peak.map_or(0.0, |peak| peak.0);
            slowest = slowest.min(self.share_left(gpu, switch));
        }
        sum * slowest
    }

    /// What faults that leave all links up leave of a bundle's rate, in its slower direction.
    fn share_left(&self, a: LinkEnd, b: LinkEnd) -> f64 {
        let shares = self.faults.iter().map(|fault| match (fault.element, fault.effect) {
            (FaultElement::Bundle { from, to, .. }, FaultEffect::Speed { share })
                if [(a, b), (b, a)].contains(&(from, to)) =>
            {
                share
            }
            _ => 1.0,
        });
        shares.product()
    }

    pub(crate) fn has_gpu(&self, gpu: u32) -> bool {
        self.topology.gpus.iter().any(|g| g.index == gpu)
    }

    /// The NUMA domain that a GPU hangs on.
    pub(crate) fn home(&self, gpu: u32) -> Result<u32, NoPath> {
        let found = self.topology.gpus.iter().find(|g| g.index == gpu).and_then(|g| g.numa);
        found.ok_or_else(|| NoPath(format!("the NUMA domain of gpu{gpu} is not known")))
    }

    /// From GPU to GPU of one node.
    pub(crate) fn peer(
        &self,
        hand: ByteCarrier,
        src: u32,
        dst: u32,
    ) -> Result<Arc<TransferRoute>, NoPath> {
        let key = (hand, src, dst);
        let known = |paths: &HashMap<_, Arc<TransferRoute>>| paths.get(&key).cloned();
        if let Some(path) = known(&self.paths.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(path);
        }
        let at = Unit::Gpu(src);
        let by = match hand {
            ByteCarrier::Engine => Mover::Dma { at },
            ByteCarrier::Blit => Mover::Blit { at },
            ByteCarrier::Kernel => {
                Mover::Kernel { at, variant: KernelVariant::standard(KernelOp::Copy) }
            }
        };
        let place = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
        // The size matters only for host memory.
        let flow = Flow { src: place(src), dst: place(dst), by, bytes: Bytes::mib(1) };
        let path = Arc::new(self.path(&flow)?);
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(paths.entry(key).or_insert(path).clone())
    }

    /// Between a GPU and pinned memory of its NUMA domain, by copy engine or by the runtime's copy
    /// kernel.
    pub(crate) fn staging(
        &self,
        hand: ByteCarrier,
        gpu: u32,
        out: bool,
        bytes: u64,
    ) -> Result<TransferRoute, NoPath> {
        let device = Place::new(Unit::Gpu(gpu), MemKind::Vram);
        let host = Place::new(Unit::Numa(self.home(gpu)?), MemKind::Pinned);
        let (src, dst) = if out { (device, host) } else { (host, device) };
        let at = Unit::Gpu(gpu);
        let by = match hand {
            ByteCarrier::Engine => Mover::Dma { at },
            ByteCarrier::Blit | ByteCarrier::Kernel => Mover::Blit { at },
        };
        self.path(&Flow { src, dst, by, bytes: Bytes(bytes.max(1)) })
    }

    /// One core of the receiver's domain copies what the sender's domain holds.
    pub(crate) fn by_cpu(&self, src: u32, dst: u32, bytes: u64) -> Result<TransferRoute, NoPath> {
        let (from, to) = (self.home(src)?, self.home(dst)?);
        let place = |n| Place::new(Unit::Numa(n), MemKind::Huge);
        let work = CpuWork { op: CpuOp::Copy, how: CpuHow::Memcpy };
        let by = Mover::Cpu { at: Unit::Numa(to), work, threads: 1 };
        self.path(&Flow { src: place(from), dst: place(to), by, bytes: Bytes(bytes.max(1)) })
    }

    /// What a plain copy by one core takes of the memories of two domains.
    pub(crate) fn plain_copy(&self, src: u32, dst: u32) -> Result<Vec<ResourceUse>, NoPath> {
        let place = |n| Place::new(Unit::Numa(n), MemKind::Huge);
        let work = CpuWork { op: CpuOp::Copy, how: CpuHow::Plain };
        let by = Mover::Cpu { at: Unit::Numa(dst), work, threads: 1 };
        let bytes = Bytes::gib(1);
        Ok(self.path(&Flow { src: place(src), dst: place(dst), by, bytes })?.uses)
    }

    /// The distance of two domains; 1 is that of a domain to itself.
    pub(crate) fn distance(&self, from: u32, to: u32) -> f64 {
        let row = self.topology.numa.iter().position(|domain| domain.id == to);
        let domain = self.topology.numa.iter().find(|domain| domain.id == from);
        let distance = domain.zip(row).and_then(|(domain, at)| domain.distances.get(at));
        distance.map_or(1.0, |&distance| f64::from(distance) / 10.0)
    }

    /// Queues stand after the network's resources and the adapters, with a capacity of 1.
    fn first_queue(&self) -> usize {
        self.network.resources().len() + 2 * self.adapters.len()
    }

    fn path(&self, flow: &Flow) -> Result<TransferRoute, NoPath> {
        let op = self.network.operation(flow)?;
        let (cap, mut uses) = (op.cap.0, op.uses);
        // Operations of one queue take turns: each has the part of the engine's time that it needs.
        if let Some(queue) = op.queue {
            let resource = (self.first_queue() + queue as usize) as u32;
            uses.push(ResourceUse { resource, weight: 1.0 / cap });
        }
        Ok(TransferRoute { uses, cap, alpha: op.alpha.0, share: op.share })
    }

    /// The adapter on the GPU itself, else on a GPU that the widest links join, else of its NUMA domain.
    fn nearest_adapter(&self, gpu: u32) -> Option<usize> {
        let home = self.home(gpu).ok();
        let routes = self.network.routes();
        let key = |a: &NodeAdapter| match a.near {
            Some(near) if near == gpu => (0, 0),
            Some(near) => (1, u32::MAX - routes.link_count(LinkEnd::Gpu(gpu), LinkEnd::Gpu(near))),
            None if a.numa.is_some() && a.numa == home => (2, 0),
            None => (3, 0),
        };
        let known = self.adapters.iter().enumerate().filter(|(_, a)| a.gbs > 0.0);
        known.min_by_key(|&(i, a)| (key(a), i)).map(|(i, _)| i)
    }

    /// The adapter that messages of a GPU leave and enter by.
    pub(crate) fn adapter(&self, gpu: u32) -> Result<usize, NoPath> {
        self.near_adapters.get(&gpu).copied().ok_or_else(|| {
            NoPath(format!(
                "{} lists no network adapter with its rate, so that nothing is known of messages \
                 between nodes; add [[nics]]",
                self.name
            ))
        })
    }
}

impl NodeParts {
    /// From a GPU to one of its node's adapters, or back. Adapters read and write device memory, over
    /// the links to the GPU that they hang on.
    pub(crate) fn adapter_end(
        &self,
        gpu: u32,
        at: usize,
        out: bool,
    ) -> Result<Arc<AdapterEnd>, NoPath> {
        let key = (gpu, at, out);
        let known = |ends: &HashMap<_, Arc<AdapterEnd>>| ends.get(&key).cloned();
        if let Some(end) = known(&self.ends.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(end);
        }
        let adapter = self.adapters.get(at);
        let resource = (self.network.resources().len() + 2 * at + usize::from(!out)) as u32;
        let mut end = AdapterEnd {
            uses: vec![ResourceUse { resource, weight: 1.0 }],
            cap: adapter.map_or(0.0, |adapter| adapter.gbs),
        };
        if let Some(near) = adapter.and_then(|adapter| adapter.near).filter(|&near| near != gpu) {
            let (from, to) = if out { (gpu, near) } else { (near, gpu) };
            let link = self.peer(ByteCarrier::Kernel, from, to)?;
            end.uses.extend(&link.uses);
            end.cap = end.cap.min(link.cap);
        }
        let end = Arc::new(end);
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ends.entry(key).or_insert(end).clone())
    }

    /// The path between GPUs of two nodes. Where the two GPUs' adapters have no path, as on rails without
    /// a spine, bytes leave by the adapter of the destination's rail, which the sender reaches over the
    /// links of its node.
    pub(crate) fn node_to_node(
        &self,
        a: ExchangeMember,
        b: ExchangeMember,
    ) -> Result<NodeToNode, NoPath> {
        let (own, theirs) = (self.adapter(a.gpu)?, self.adapter(b.gpu)?);
        let into = self.adapter_end(b.gpu, theirs, false)?;
        let route = |from: usize| {
            let fabric = self.fabric.as_ref()?;
            let switch = |node, at: usize| fabric.graph.switch_of(node, at as u32);
            fabric.route(switch(a.node, from)?, switch(b.node, theirs)?)
        };
        let end = |from: usize| self.adapter_end(a.gpu, from, true);
        if self.fabric.is_none() {
            return Ok(NodeToNode { out: end(own)?, adapters: (own, theirs), between: None, into });
        }
        for from in [own, theirs] {
            if let Some(between) = route(from) {
                let out = end(from)?;
                return Ok(NodeToNode {
                    out,
                    adapters: (from, theirs),
                    between: Some(between),
                    into,
                });
            }
        }
        Err(NoPath(format!("the network of {} has no path from {a} to {b}", self.name)))
    }

    /// What links between switches add to the start of a message, ns.
    pub(crate) fn network_latency(&self, route: Option<&SwitchRoute>) -> f64 {
        let hop = self.fabric.as_ref().map_or(0.0, |fabric| fabric.graph.hop_ns());
        route.map_or(0.0, |route| f64::from(route.hops) * hop)
    }
}

/// A machine with the nodes that one exchange is about.
pub(crate) struct ExchangeScene<'a> {
    pub machine: &'a NodeParts,
    /// The nodes in the order of their resources, rising.
    nodes: Vec<u32>,
    pub capacities: Vec<f64>,
    /// Whether [`Self::loads`] are asked for.
    pub counts_loads: bool,
}

impl<'a> ExchangeScene<'a> {
    pub(crate) fn new(machine: &'a NodeParts, members: &[ExchangeMember]) -> Result<Self, NoPath> {
        if let Some(m) = members.iter().find(|m| !machine.has_gpu(m.gpu)) {
            return Err(NoPath(format!("{} has no gpu{}", machine.name, m.gpu)));
        }
        let most = machine.cluster_nodes.unwrap_or(u32::MAX);
        if let Some(m) = members.iter().find(|m| m.node >= most) {
            let (name, last) = (&machine.name, most.saturating_sub(1));
            let why = format!("{name} has no n{}: its nodes are n0 to n{last}", m.node);
            return Err(NoPath(why));
        }
        let mut nodes: Vec<u32> = members.iter().map(|m| m.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let capacities = machine.capacities(nodes.len());
        Ok(Self { machine, nodes, capacities, counts_loads: false })
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn resource_name(&self, resource: u32) -> String {
        self.machine.resource_name(resource, self.nodes())
    }

    /// The path over the resources of `node`.
    fn on(&self, node: u32, path: &TransferRoute) -> TransferRoute {
        TransferRoute { uses: self.shifted(node, &path.uses).collect(), ..*path }
    }

    /// From device to device, over the network if they are of different nodes.
    pub(crate) fn device(
        &self,
        hand: ByteCarrier,
        a: ExchangeMember,
        b: ExchangeMember,
    ) -> Result<Arc<TransferRoute>, NoPath> {
        if a.node != b.node {
            return self.between_nodes(a, b);
        }
        let path = self.machine.peer(hand, a.gpu, b.gpu)?;
        Ok(if self.nodes() == 1 { path } else { Arc::new(self.on(a.node, &path)) })
    }

    /// Device to host memory near it, or back.
    pub(crate) fn staging(
        &self,
        hand: ByteCarrier,
        m: ExchangeMember,
        out: bool,
        bytes: u64,
    ) -> Result<Arc<TransferRoute>, NoPath> {
        Ok(Arc::new(self.on(m.node, &self.machine.staging(hand, m.gpu, out, bytes)?)))
    }

    /// Host memory to host memory by the receiver's core, or over the network.
    pub(crate) fn host(
        &self,
        a: ExchangeMember,
        b: ExchangeMember,
        bytes: u64,
    ) -> Result<Arc<TransferRoute>, NoPath> {
        if a.node != b.node {
            return self.between_nodes(a, b);
        }
        Ok(Arc::new(self.on(a.node, &self.machine.by_cpu(a.gpu, b.gpu, bytes)?)))
    }

    /// Out of the adapter near one GPU into that near the other, through the network between.
    fn between_nodes(
        &self,
        a: ExchangeMember,
        b: ExchangeMember,
    ) -> Result<Arc<TransferRoute>, NoPath> {
        let parts = self.machine.node_to_node(a, b)?;
        let mut uses = Vec::with_capacity(parts.out.uses.len() + parts.into.uses.len());
        uses.extend(self.shifted(a.node, &parts.out.uses));
        if let Some(between) = &parts.between {
            let first = self.first_of_network();
            let moved = |u: &ResourceUse| ResourceUse { resource: u.resource + first, ..*u };
            uses.extend(between.uses.iter().map(moved));
        }
        uses.extend(self.shifted(b.node, &parts.into.uses));
        let cap = parts.out.cap.min(parts.into.cap);
        let alpha = self.machine.network_latency(parts.between.as_deref());
        Ok(Arc::new(TransferRoute { uses, cap, alpha, share: 1.0 }))
    }

    fn shifted<'u>(
        &self,
        node: u32,
        uses: &'u [ResourceUse],
    ) -> impl Iterator<Item = ResourceUse> + use<'u> {
        let at = self.first_of(node);
        uses.iter().map(move |u| ResourceUse { resource: u.resource + at, ..*u })
    }

    /// The first resource of a node.
    pub(crate) fn first_of(&self, node: u32) -> u32 {
        let per_node = self.machine.node_capacities().len();
        // Most exchanges are over nodes without a gap.
        let guess = node.wrapping_sub(self.nodes.first().copied().unwrap_or(0)) as usize;
        let place = match self.nodes.get(guess) {
            Some(&found) if found == node => guess,
            _ => self.nodes.binary_search(&node).unwrap_or(0),
        };
        (place * per_node) as u32
    }

    /// The first resource of the network between nodes.
    pub(crate) fn first_of_network(&self) -> u32 {
        (self.nodes() * self.machine.node_capacities().len()) as u32
    }

    /// Bytes through each resource, of transfers with their uses and bytes; nothing unless asked for.
    pub(crate) fn loads<'u>(
        &self,
        transfers: impl Iterator<Item = (&'u [ResourceUse], f64)>,
    ) -> Vec<f64> {
        if !self.counts_loads {
            return Vec::new();
        }
        let mut loads = vec![0.0; self.capacities.len()];
        for (uses, bytes) in transfers {
            for u in uses {
                if let Some(load) = loads.get_mut(u.resource as usize) {
                    *load += u.weight * bytes;
                }
            }
        }
        loads
    }

    /// Resources that bytes pass during `time` ns, the busiest first.
    pub(crate) fn link_loads(&self, loads: &[f64], time: f64) -> Vec<LinkLoad> {
        let used =
            (0..).zip(loads.iter().zip(&self.capacities)).filter(|(_, (load, _))| **load > 0.0);
        let mut links: Vec<LinkLoad> = used
            .map(|(resource, (&load, &capacity))| LinkLoad {
                name: self.resource_name(resource),
                level: self.machine.resource_level(resource, self.nodes()),
                capacity: Rate(capacity),
                bytes: load,
                busy: load / capacity / time,
            })
            .collect();
        links.sort_by(|a, b| b.busy.total_cmp(&a.busy));
        links
    }

    /// The full resources at these rates, by name.
    pub(crate) fn full(&self, flows: &[RateDemand<'_>], rates: &[f64]) -> Vec<String> {
        let mut used = vec![0.0; self.capacities.len()];
        for (flow, rate) in flows.iter().zip(rates) {
            for u in flow.uses {
                if let Some(sum) = used.get_mut(u.resource as usize) {
                    *sum += u.weight * rate;
                }
            }
        }
        let full = used.iter().zip(&self.capacities).enumerate();
        full.filter(|(_, (used, cap))| **used >= **cap * (1.0 - 1e-6))
            .map(|(i, _)| self.resource_name(i as u32))
            .collect()
    }
}
