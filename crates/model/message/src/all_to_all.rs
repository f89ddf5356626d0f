//! All ranks to all others at once, by classes of nodes: the messages are never listed.
//!
//! Nodes with the same member GPUs on the same switches are interchangeable, so a message is known by
//! the classes of its two nodes and by its two GPUs. Colour refinement, as in [`crate::symmetric`], then
//! joins what is alike across classes. 10,240 GPUs have 10^8 messages, some 10^6 kinds of them and some
//! tens of classes.

use std::collections::{BTreeMap, HashMap};

use pathline_flow::{
    ConcurrentRun, FlowDemand, FlowSet, MaxMinSolver, NoPath, RateDemand, ResourceUse,
};

use crate::exchange::ExchangeMember;
use crate::fabric::FoundRoute;
use crate::scene::{AdapterEnd, ByteCarrier, ExchangeScene, NodeParts};
use crate::symmetric::{Colour, classes, count_colours, factor, mix, of_uses};
use std::sync::Arc;

/// The most classes of messages, or of resources, that are solved event by event: each takes microseconds
/// of an event, and there are up to twice as many events.
const MAX_CLASSES: usize = 2000;
/// The most kinds of messages whose classes are looked for: each round of refinement visits all.
const MAX_KINDS: usize = 1 << 19;

/// Interchangeable nodes.
pub(crate) struct NodeClass {
    pub first: u32,
    pub count: u64,
    pub gpus: Vec<u32>,
    /// The switch of each adapter.
    pub switches: Vec<Option<u32>>,
}

impl NodeClass {
    /// Nodes of this class with which one of class `other` exchanges messages.
    pub(crate) const fn partners(&self, is_same: bool) -> u64 {
        if is_same { self.count - 1 } else { self.count }
    }
}

/// Nodes with the same members on the same switches, and the class of each node.
pub(crate) fn node_classes(
    machine: &NodeParts,
    over: &[ExchangeMember],
) -> (Vec<NodeClass>, BTreeMap<u32, usize>) {
    let mut of_node: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for member in over {
        of_node.entry(member.node).or_default().push(member.gpu);
    }
    let mut known: HashMap<(Vec<u32>, Vec<Option<u32>>), usize> = HashMap::new();
    let (mut classes, mut class_of_node) = (Vec::<NodeClass>::new(), BTreeMap::new());
    for (node, mut gpus) in of_node {
        gpus.sort_unstable();
        let switch = |at: usize| machine.fabric.as_ref()?.graph.switch_of(node, at as u32);
        let switches: Vec<Option<u32>> = (0..machine.adapters.len()).map(switch).collect();
        let class = *known.entry((gpus.clone(), switches.clone())).or_insert_with(|| {
            classes.push(NodeClass { first: node, count: 0, gpus, switches });
            classes.len() - 1
        });
        class_of_node.insert(node, class);
        if let Some(class) = classes.get_mut(class) {
            class.count += 1;
        }
    }
    (classes, class_of_node)
}

/// Messages with the same path between classes of nodes.
#[derive(Clone, Copy)]
struct MessageKind {
    /// By place in the lists of parts.
    out: u32,
    route: u32,
    into: u32,
    /// Messages of one sending node, and those into one receiving node.
    of_sender: u64,
    of_receiver: u64,
    count: u64,
}

/// A part of a path within a node of a class.
struct EndPart {
    class: usize,
    end: Arc<AdapterEnd>,
}

/// Messages within a node of a class.
struct LocalKind {
    class: usize,
    uses: Vec<ResourceUse>,
    cap: f64,
    share: f64,
    count: u64,
}

/// All kinds of messages of an all-to-all.
struct MessageKinds<'s, 'a> {
    scene: &'s ExchangeScene<'a>,
    classes: Vec<NodeClass>,
    class_of_node: BTreeMap<u32, usize>,
    outs: Vec<EndPart>,
    intos: Vec<EndPart>,
    routes: Vec<FoundRoute>,
    between: Vec<MessageKind>,
    local: Vec<LocalKind>,
}

/// A class of messages as one flow.
struct ClassFlow {
    uses: Vec<ResourceUse>,
    cap: f64,
    share: f64,
    /// Links between switches; none within a node.
    hops: Option<u32>,
    count: f64,
}

/// An all-to-all as one flow for each class of messages.
pub(crate) struct AllToAllFlows {
    flows: Vec<ClassFlow>,
    capacities: Vec<f64>,
    /// Of each class of resources: the name of the first, and how many there are.
    names: Vec<(String, f64)>,
    /// Class of each resource of the scene.
    class_of: Vec<u32>,
}

impl<'s, 'a> MessageKinds<'s, 'a> {
    fn new(
        scene: &'s ExchangeScene<'a>,
        classes: Vec<NodeClass>,
        class_of_node: BTreeMap<u32, usize>,
    ) -> Result<Self, NoPath> {
        let (outs, intos, routes) = (Vec::new(), Vec::new(), Vec::new());
        let (between, local) = (Vec::new(), Vec::new());
        let mut kinds = Self { scene, classes, class_of_node, outs, intos, routes, between, local };
        kinds.find_local()?;
        kinds.find_between()?;
        Ok(kinds)
    }

    fn find_local(&mut self) -> Result<(), NoPath> {
        for (class, nodes) in self.classes.iter().enumerate() {
            let pairs = nodes.gpus.iter().flat_map(|&a| nodes.gpus.iter().map(move |&b| (a, b)));
            for (a, b) in pairs.filter(|(a, b)| a != b) {
                let path = self.scene.machine.peer(ByteCarrier::Kernel, a, b)?;
                let (uses, cap, share) = (path.uses.clone(), path.cap, path.share);
                self.local.push(LocalKind { class, uses, cap, share, count: nodes.count });
            }
        }
        Ok(())
    }

    fn find_between(&mut self) -> Result<(), NoPath> {
        let machine = self.scene.machine;
        let mut own: HashMap<u32, usize> = HashMap::new();
        if self.class_of_node.len() > 1 {
            for gpu in self.classes.iter().flat_map(|class| &class.gpus) {
                own.insert(*gpu, machine.adapter(*gpu)?);
            }
        }
        // Paths depend on the two adapters and classes alone; ends on the GPU, too.
        let mut routes: HashMap<(Option<u32>, Option<u32>), u32> = HashMap::new();
        let mut outs: HashMap<(usize, u32, usize), u32> = HashMap::new();
        let mut intos: HashMap<(usize, u32), u32> = HashMap::new();
        for (k, from) in self.classes.iter().enumerate() {
            for (l, to) in self.classes.iter().enumerate() {
                let partners = to.partners(k == l);
                if partners == 0 {
                    continue;
                }
                let mut paths: HashMap<(usize, usize), (usize, u32)> = HashMap::new();
                for &a in &from.gpus {
                    for &b in &to.gpus {
                        let adapter = |gpu: &u32| own.get(gpu).copied().unwrap_or(0);
                        let (p, q) = (adapter(&a), adapter(&b));
                        let (leaves, route) = match paths.get(&(p, q)) {
                            Some(&path) => path,
                            None => {
                                let a = ExchangeMember { node: from.first, gpu: a };
                                // Another node of the same class has the same switches.
                                let b = ExchangeMember { node: to.first, gpu: b };
                                let found = machine.node_to_node(a, b)?;
                                let switch = |node, at: usize| {
                                    machine.fabric.as_ref()?.graph.switch_of(node, at as u32)
                                };
                                let key = (
                                    switch(from.first, found.adapters.0),
                                    switch(to.first, found.adapters.1),
                                );
                                let route = *routes.entry(key).or_insert_with(|| {
                                    self.routes.push(found.between);
                                    (self.routes.len() - 1) as u32
                                });
                                paths.insert((p, q), (found.adapters.0, route));
                                (found.adapters.0, route)
                            }
                        };
                        let out = match outs.get(&(k, a, leaves)) {
                            Some(&out) => out,
                            None => {
                                let end = machine.adapter_end(a, leaves, true)?;
                                self.outs.push(EndPart { class: k, end });
                                outs.insert((k, a, leaves), (self.outs.len() - 1) as u32);
                                (self.outs.len() - 1) as u32
                            }
                        };
                        let into = match intos.get(&(l, b)) {
                            Some(&into) => into,
                            None => {
                                let end = machine.adapter_end(b, q, false)?;
                                self.intos.push(EndPart { class: l, end });
                                intos.insert((l, b), (self.intos.len() - 1) as u32);
                                (self.intos.len() - 1) as u32
                            }
                        };
                        let senders = from.partners(k == l);
                        let (of_sender, of_receiver) = (partners, senders);
                        let count = from.count * partners;
                        let kind = MessageKind { out, route, into, of_sender, of_receiver, count };
                        self.between.push(kind);
                    }
                }
            }
        }
        Ok(())
    }

    fn per_node(&self) -> usize {
        self.scene.machine.node_capacities().len()
    }

    /// Colours of the resources of one node of each class, then of the network's, that no further round
    /// splits.
    /// The most classes: without switches there is no other solution.
    fn most_classes(&self) -> usize {
        if self.scene.machine.fabric.is_some() { MAX_CLASSES } else { usize::MAX }
    }

    /// None if there are more than [`Self::most_classes`].
    fn refine(&self) -> Option<Vec<Colour>> {
        let per_node = self.per_node();
        let fabric = self.scene.machine.fabric.as_ref();
        let nodes = self.classes.iter().flat_map(|_| self.scene.machine.node_capacities());
        let all = nodes.chain(fabric.iter().flat_map(|fabric| &fabric.capacities));
        let mut colours: Vec<Colour> = all.map(|c| mix(c.to_bits(), 1)).collect();
        let mut known = 0;
        loop {
            let parts = self.part_colours(&colours);
            let mut used: Vec<Colour> = vec![0; colours.len()];
            let mut add = |first: usize, uses: &[ResourceUse], sum: Colour| {
                for u in uses {
                    if let Some(used) = used.get_mut(first + u.resource as usize) {
                        *used = used.wrapping_add(sum.wrapping_mul(factor(u.weight)));
                    }
                }
            };
            let mut sums = PartColours {
                outs: vec![0; parts.outs.len()],
                routes: vec![0; parts.routes.len()],
                intos: vec![0; parts.intos.len()],
            };
            for kind in &self.between {
                let colour = mix(parts.of(kind), 4);
                sums.add(kind, colour);
            }
            for (part, sum) in self.outs.iter().zip(&sums.outs) {
                add(part.class * per_node, &part.end.uses, *sum);
            }
            for (part, sum) in self.intos.iter().zip(&sums.intos) {
                add(part.class * per_node, &part.end.uses, *sum);
            }
            let first = self.classes.len() * per_node;
            for (route, sum) in self.routes.iter().zip(&sums.routes) {
                add(first, route.as_ref().map_or(&[][..], |route| &route.uses), *sum);
            }
            for kind in &self.local {
                let first = kind.class * per_node;
                add(first, &kind.uses, mix(self.local_colour(kind, &colours), 4));
            }
            colours.iter_mut().zip(&used).for_each(|(colour, used)| *colour = mix(*colour, *used));
            let now = count_colours(&colours);
            if now == known {
                return Some(colours);
            }
            if now > self.most_classes() {
                return None;
            }
            known = now;
        }
    }

    fn local_colour(&self, kind: &LocalKind, colours: &[Colour]) -> Colour {
        let own = mix(mix(kind.cap.to_bits(), kind.share.to_bits()), 5);
        let node = colours.get(kind.class * self.per_node()..).unwrap_or_default();
        mix(own, of_uses(&kind.uses, node))
    }

    fn part_colours(&self, colours: &[Colour]) -> PartColours {
        let of_node = |part: &EndPart| {
            let node = colours.get(part.class * self.per_node()..).unwrap_or_default();
            mix(part.end.cap.to_bits(), of_uses(&part.end.uses, node))
        };
        let network = colours.get(self.classes.len() * self.per_node()..).unwrap_or_default();
        let of_route = |route: &FoundRoute| {
            let (hops, uses) =
                route.as_ref().map_or((0, &[][..]), |route| (route.hops, route.uses.as_slice()));
            mix(u64::from(hops), of_uses(uses, network))
        };
        PartColours {
            outs: self.outs.iter().map(of_node).collect(),
            routes: self.routes.iter().map(of_route).collect(),
            intos: self.intos.iter().map(of_node).collect(),
        }
    }

    /// None if messages are of more than [`Self::most_classes`].
    fn flows(&self) -> Option<AllToAllFlows> {
        let per_node = self.per_node();
        let colours = self.refine()?;
        let (class_of, firsts) = classes(&colours);
        let mut sizes = vec![0.0; firsts.len()];
        for (at, class) in class_of.iter().enumerate() {
            let count = self.classes.get(at / per_node.max(1)).map_or(1, |class| class.count);
            if let Some(size) = sizes.get_mut(*class as usize) {
                *size += count as f64;
            }
        }
        let first_of_network = self.classes.len() * per_node;
        // Weights are those of one message until all are counted.
        let joined = |first: usize, uses: &[ResourceUse]| -> Vec<ResourceUse> {
            let class = |u: &ResourceUse| class_of.get(first + u.resource as usize).copied();
            let joined = |u| Some(ResourceUse { resource: class(u)?, weight: u.weight });
            uses.iter().filter_map(joined).collect()
        };
        let mut flows: Vec<ClassFlow> = Vec::new();
        let mut known: HashMap<Colour, usize> = HashMap::new();
        for kind in &self.local {
            let at = *known.entry(self.local_colour(kind, &colours)).or_insert_with(|| {
                let uses = joined(kind.class * per_node, &kind.uses);
                let (cap, share) = (kind.cap, kind.share);
                flows.push(ClassFlow { uses, cap, share, hops: None, count: 0.0 });
                flows.len() - 1
            });
            if let Some(flow) = flows.get_mut(at) {
                flow.count += kind.count as f64;
            }
        }
        let parts = self.part_colours(&colours);
        known.clear();
        for kind in &self.between {
            let at = *known.entry(parts.of(kind)).or_insert_with(|| {
                let (mut uses, mut cap) = (Vec::new(), f64::INFINITY);
                for part in [self.outs.get(kind.out as usize), self.intos.get(kind.into as usize)] {
                    let Some(part) = part else { continue };
                    uses.extend(joined(part.class * per_node, &part.end.uses));
                    cap = cap.min(part.end.cap);
                }
                let route = self.routes.get(kind.route as usize).and_then(Option::as_ref);
                uses.extend(joined(first_of_network, route.map_or(&[][..], |r| &r.uses)));
                let hops = Some(route.map_or(0, |route| route.hops));
                flows.push(ClassFlow { uses, cap, share: 1.0, hops, count: 0.0 });
                flows.len() - 1
            });
            if let Some(flow) = flows.get_mut(at) {
                flow.count += kind.count as f64;
            }
        }
        if flows.len() > self.most_classes() {
            return None;
        }
        for flow in &mut flows {
            for u in &mut flow.uses {
                u.weight *= flow.count / sizes.get(u.resource as usize).copied().unwrap_or(1.0);
            }
        }
        let capacity = |&at: &usize| {
            let fabric = self.scene.machine.fabric.as_ref();
            let of_network = |at: usize| fabric?.capacities.get(at).copied();
            match at.checked_sub(first_of_network) {
                Some(at) => of_network(at).unwrap_or(0.0),
                None => {
                    let node = self.scene.machine.node_capacities();
                    node.get(at % per_node.max(1)).copied().unwrap_or(0.0)
                }
            }
        };
        let in_scene = |at: usize| match at.checked_sub(first_of_network) {
            Some(at) => self.scene.first_of_network() + at as u32,
            None => {
                let class = self.classes.get(at / per_node.max(1));
                let first = class.map_or(0, |class| self.scene.first_of(class.first));
                first + (at % per_node.max(1)) as u32
            }
        };
        let names = firsts.iter().zip(&sizes);
        let names = names.map(|(&at, size)| (self.scene.resource_name(in_scene(at)), *size));
        let of_nodes = self
            .class_of_node
            .values()
            .flat_map(|class| class_of.iter().skip(class * per_node).take(per_node).copied());
        let of_network = class_of.iter().skip(first_of_network).copied();
        Some(AllToAllFlows {
            flows,
            capacities: firsts.iter().map(capacity).collect(),
            names: names.collect(),
            class_of: of_nodes.chain(of_network).collect(),
        })
    }
}

/// Colours, or sums of them, of the parts of paths.
struct PartColours {
    outs: Vec<Colour>,
    routes: Vec<Colour>,
    intos: Vec<Colour>,
}

impl PartColours {
    fn of(&self, kind: &MessageKind) -> Colour {
        let at = |list: &[Colour], i: u32| list.get(i as usize).copied().unwrap_or(0);
        mix(mix(at(&self.outs, kind.out), at(&self.routes, kind.route)), at(&self.intos, kind.into))
    }

    /// What one node, or one bundle, has of a kind.
    fn add(&mut self, kind: &MessageKind, colour: Colour) {
        for (list, at, times) in [
            (&mut self.outs, kind.out, kind.of_sender),
            (&mut self.routes, kind.route, kind.count),
            (&mut self.intos, kind.into, kind.of_receiver),
        ] {
            if let Some(sum) = list.get_mut(at as usize) {
                *sum = sum.wrapping_add(colour.wrapping_mul(times));
            }
        }
    }
}

impl AllToAllFlows {
    /// The classes of all messages between different members; none where they are too many.
    pub(crate) fn new(
        scene: &ExchangeScene<'_>,
        over: &[ExchangeMember],
    ) -> Result<Option<Self>, NoPath> {
        let (classes, class_of_node) = node_classes(scene.machine, over);
        let gpus: usize = classes.iter().map(|class| class.gpus.len()).sum();
        if scene.machine.fabric.is_some() && gpus.saturating_mul(gpus) > MAX_KINDS {
            return Ok(None);
        }
        Ok(MessageKinds::new(scene, classes, class_of_node)?.flows())
    }

    /// Number of classes of messages.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Ends of the classes in ns, with the number of messages of each. `start` is that of a message by
    /// its links between switches, none within a node; `bytes` what it moves by the rate of its path, GB/s.
    pub(crate) fn ends(
        &self,
        bytes: impl Fn(f64) -> f64,
        start: impl Fn(Option<u32>) -> f64,
    ) -> Vec<(f64, f64)> {
        let mut flows: Vec<FlowDemand<'_>> = Vec::with_capacity(self.flows.len());
        for flow in &self.flows {
            let demand = FlowDemand::new(rate_demand(flow), bytes(flow.cap));
            flows.push(FlowDemand { start: start(flow.hops), ..demand });
        }
        let set = FlowSet { capacities: &self.capacities, flows: &flows, queues: &[] };
        let mut ends = Vec::new();
        ConcurrentRun::default().ends(&set, &mut ends);
        ends.into_iter().zip(&self.flows).map(|(end, flow)| (end, flow.count)).collect()
    }

    /// What is full while all messages move: the first of each class of resources.
    pub(crate) fn full(&self) -> Vec<String> {
        let demands: Vec<RateDemand<'_>> = self.flows.iter().map(rate_demand).collect();
        let mut rates = Vec::new();
        MaxMinSolver::default().rates(&self.capacities, &demands, &mut rates);
        let mut used = vec![0.0; self.capacities.len()];
        for (flow, rate) in self.flows.iter().zip(&rates) {
            for u in &flow.uses {
                if let Some(used) = used.get_mut(u.resource as usize) {
                    *used += u.weight * rate;
                }
            }
        }
        let full = used.iter().zip(&self.capacities).map(|(used, all)| *used >= all * (1.0 - 1e-6));
        let named = full.zip(&self.names).filter(|(full, _)| *full).map(|(_, named)| named);
        named
            .map(|(name, size)| match *size {
                size if size > 1.0 => format!("{name} and {} like it", size - 1.0),
                _ => name.clone(),
            })
            .collect()
    }

    /// Bytes through each resource of the scene, for messages of `bytes`, as for [`Self::ends`].
    pub(crate) fn loads(&self, bytes: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut of_class = vec![0.0; self.capacities.len()];
        for flow in &self.flows {
            let bytes = bytes(flow.cap);
            for u in &flow.uses {
                if let Some(load) = of_class.get_mut(u.resource as usize) {
                    *load += u.weight * bytes;
                }
            }
        }
        let load = |class: &u32| of_class.get(*class as usize).copied().unwrap_or(0.0);
        self.class_of.iter().map(load).collect()
    }
}

fn rate_demand(flow: &ClassFlow) -> RateDemand<'_> {
    RateDemand { uses: &flow.uses, cap: flow.cap, share: flow.share }
}
