//! The machine, or several equal ones, and the paths of messages over it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use pathline_flow::{MachineDesc, Network, NoPath, RateDemand, ResourceUse};
use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, Flow, KernelOp, KernelVariant, MemKind, Mover, Place, Topology,
    Unit,
};

use crate::exchange::ExchangeMember;
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

/// One node and what its parts let through.
#[derive(Debug)]
pub(crate) struct NodeParts {
    pub name: String,
    pub network: Network,
    pub topology: Topology,
    /// Capacities of one node: the network's resources, each adapter out and in, queues.
    capacities: Vec<f64>,
    names: Vec<String>,
    pub adapters: Vec<NodeAdapter>,
    paths: Mutex<HashMap<(ByteCarrier, u32, u32), Arc<TransferRoute>>>,
}

impl NodeParts {
    pub(crate) fn new(desc: &MachineDesc, network: Network) -> Self {
        let topology = desc.topology();
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
        let (name, paths) = (desc.name.clone(), Mutex::default());
        Self { name, network, topology, capacities, names, adapters, paths }
    }

    /// Capacities of `nodes` equal nodes.
    pub(crate) fn capacities(&self, nodes: usize) -> Vec<f64> {
        self.capacities.repeat(nodes)
    }

    /// The name of a resource, with its node where there are several.
    pub(crate) fn resource_name(&self, resource: u32, nodes: usize) -> String {
        let per_node = self.names.len().max(1);
        let name = self.names.get(resource as usize % per_node).cloned().unwrap_or_default();
        match nodes {
            0 | 1 => name,
            _ => format!("n{} {name}", resource as usize / per_node),
        }
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

    /// The adapter that messages of a GPU leave and enter by: the one on the GPU itself, else on a
    /// GPU that the widest links join, else of its NUMA domain.
    pub(crate) fn adapter(&self, gpu: u32) -> Result<usize, NoPath> {
        let home = self.home(gpu).ok();
        let routes = self.network.routes();
        let key = |a: &NodeAdapter| match a.near {
            Some(near) if near == gpu => (0, 0),
            Some(near) => {
                let (a, b) =
                    (pathline_schema::LinkEnd::Gpu(gpu), pathline_schema::LinkEnd::Gpu(near));
                (1, u32::MAX - routes.link_count(a, b))
            }
            None if a.numa.is_some() && a.numa == home => (2, 0),
            None => (3, 0),
        };
        let known = self.adapters.iter().enumerate().filter(|(_, a)| a.gbs > 0.0);
        known.min_by_key(|&(i, a)| (key(a), i)).map(|(i, _)| i).ok_or_else(|| {
            NoPath(format!(
                "{} lists no network adapter with its rate, so that nothing is known of messages \
                 between nodes; add [[nics]]",
                self.name
            ))
        })
    }
}

/// A machine with the nodes that one exchange is about.
pub(crate) struct ExchangeScene<'a> {
    pub machine: &'a NodeParts,
    /// Place of each node's resources.
    nodes: BTreeMap<u32, usize>,
    pub capacities: Vec<f64>,
}

impl<'a> ExchangeScene<'a> {
    pub(crate) fn new(machine: &'a NodeParts, members: &[ExchangeMember]) -> Result<Self, NoPath> {
        if let Some(m) = members.iter().find(|m| !machine.has_gpu(m.gpu)) {
            return Err(NoPath(format!("{} has no gpu{}", machine.name, m.gpu)));
        }
        let mut nodes: BTreeMap<u32, usize> = members.iter().map(|m| (m.node, 0)).collect();
        nodes.values_mut().enumerate().for_each(|(i, at)| *at = i);
        let capacities = machine.capacities(nodes.len());
        Ok(Self { machine, nodes, capacities })
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn resource_name(&self, resource: u32) -> String {
        self.machine.resource_name(resource, self.nodes())
    }

    /// The path over the resources of `node`.
    fn on(&self, node: u32, path: &TransferRoute) -> TransferRoute {
        let per_node = self.capacities.len() / self.nodes().max(1);
        let at = self.nodes.get(&node).copied().unwrap_or(0) * per_node;
        let shift =
            |u: &ResourceUse| ResourceUse { resource: u.resource + at as u32, weight: u.weight };
        TransferRoute { uses: path.uses.iter().map(shift).collect(), ..*path }
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

    /// Out of the adapter near one GPU into that near the other. Adapters read and write device
    /// memory, over the links to the GPU that they hang on.
    fn between_nodes(
        &self,
        a: ExchangeMember,
        b: ExchangeMember,
    ) -> Result<Arc<TransferRoute>, NoPath> {
        let machine = self.machine;
        let fixed = machine.network.resources().len();
        let mut whole =
            TransferRoute { uses: Vec::new(), cap: f64::INFINITY, alpha: 0.0, share: 1.0 };
        for (member, out) in [(a, true), (b, false)] {
            let i = machine.adapter(member.gpu)?;
            let Some(adapter) = machine.adapters.get(i) else { continue };
            let resource = (fixed + 2 * i + usize::from(!out)) as u32;
            let mut path = TransferRoute {
                uses: vec![ResourceUse { resource, weight: 1.0 }],
                cap: adapter.gbs,
                alpha: 0.0,
                share: 1.0,
            };
            if let Some(near) = adapter.near.filter(|&near| near != member.gpu) {
                let ends = if out { (member.gpu, near) } else { (near, member.gpu) };
                let link = machine.peer(ByteCarrier::Kernel, ends.0, ends.1)?;
                path.uses.extend(&link.uses);
                path.cap = path.cap.min(link.cap);
            }
            let path = self.on(member.node, &path);
            whole.uses.extend(path.uses);
            whole.cap = whole.cap.min(path.cap);
        }
        Ok(Arc::new(whole))
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
