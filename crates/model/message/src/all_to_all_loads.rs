//! All ranks to all others at once, between two times: for networks that leave too many classes of
//! messages, such as a dragonfly of several groups.
//!
//! Traffic splits at each switch by its destination alone, so what all sources send to one switch is summed
//! from switch to switch: loads take a pass over the links for each destination, and no route is listed. Two
//! bounds follow. A resource carries all its bytes, and not before the first of its messages starts. And a message
//! is never slower than the smallest fair share of its resources while all messages move: at its bottleneck
//! no message is faster, and fewer messages leave more to each. Messages of the same size that start
//! together make both bounds one, the time of the busiest resource; tests compare them with all messages
//! one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pathline_flow::{NoPath, ResourceUse};

use crate::all_to_all::{NodeClass, node_classes};
use crate::exchange::ExchangeMember;
use crate::fabric::ClusterFabric;
use crate::scene::{ByteCarrier, ExchangeScene};
use crate::transfer::TransferRoute;

/// What messages take of a resource: one of a node of each class, or a bundle of links.
#[derive(Clone, Copy)]
struct ResourceLoad {
    capacity: f64,
    /// Sum of the weights of messages between nodes.
    between: f64,
    /// Of all messages, each times its share.
    shared: f64,
    /// The fewest links between switches of a message between nodes that uses it.
    hops: u32,
    /// Whether messages within a node use it.
    within: bool,
}

impl ResourceLoad {
    /// The least that a message of share 1 gets while all messages move, GB/s.
    fn level(&self) -> f64 {
        if self.shared > 0.0 { self.capacity / self.shared } else { f64::INFINITY }
    }
}

/// Messages within a node of a class.
struct LocalMessages {
    class: usize,
    path: Arc<TransferRoute>,
}

/// Classes and adapters whose GPUs receive by one switch.
type SwitchReceivers = Vec<(usize, usize)>;

/// GPUs of one class on one adapter, and those of another: what they send each other.
#[derive(Clone, Copy)]
struct PairOfGroups {
    from: (usize, usize),
    /// The adapter that the bytes leave by, and its switch.
    leaves: usize,
    switch: u32,
    to: (usize, usize),
    hops: u16,
}

/// Loads of an all-to-all over a network of switches.
pub(crate) struct AllToAllLoads<'s, 'a> {
    scene: &'s ExchangeScene<'a>,
    classes: Vec<NodeClass>,
    class_of_node: BTreeMap<u32, usize>,
    /// Of each class the GPUs on each adapter.
    groups: Vec<Vec<Vec<u32>>>,
    resources: Vec<ResourceLoad>,
    local: Vec<LocalMessages>,
    /// Rates that messages between nodes have alone, GB/s.
    caps: BTreeSet<u64>,
    /// For each number of links between switches the least rate of a message.
    least_rates: BTreeMap<u32, f64>,
}

impl<'s, 'a> AllToAllLoads<'s, 'a> {
    /// The loads of messages between all different members of several nodes.
    pub(crate) fn new(
        scene: &'s ExchangeScene<'a>,
        over: &[ExchangeMember],
    ) -> Result<Self, NoPath> {
        let machine = scene.machine;
        let fabric = machine.fabric.as_ref();
        let fabric = fabric.ok_or_else(|| NoPath("no network between nodes".into()))?;
        let (classes, class_of_node) = node_classes(machine, over);
        let mut groups = Vec::with_capacity(classes.len());
        for class in &classes {
            let mut of_class = vec![Vec::new(); machine.adapters.len()];
            for &gpu in &class.gpus {
                if let Some(group) = of_class.get_mut(machine.adapter(gpu)?) {
                    group.push(gpu);
                }
            }
            groups.push(of_class);
        }
        let empty = |capacity: &f64| ResourceLoad {
            capacity: *capacity,
            between: 0.0,
            shared: 0.0,
            hops: u32::MAX,
            within: false,
        };
        let nodes = classes.iter().flat_map(|_| machine.node_capacities());
        let resources = nodes.chain(&fabric.capacities).map(empty).collect();
        let (local, caps, least_rates) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        let mut loads =
            Self { scene, classes, class_of_node, groups, resources, local, caps, least_rates };
        let receivers = loads.receivers();
        loads.add_within()?;
        loads.add_between(fabric, &receivers)?;
        loads.find_least_rates(fabric, &receivers)?;
        Ok(loads)
    }

    fn per_node(&self) -> usize {
        self.scene.machine.node_capacities().len()
    }

    fn first_of_network(&self) -> usize {
        self.classes.len() * self.per_node()
    }

    fn receivers(&self) -> BTreeMap<u32, SwitchReceivers> {
        let mut receivers: BTreeMap<u32, SwitchReceivers> = BTreeMap::new();
        for (l, (class, groups)) in self.classes.iter().zip(&self.groups).enumerate() {
            for (q, (switch, group)) in class.switches.iter().zip(groups).enumerate() {
                if let Some(switch) = switch.filter(|_| !group.is_empty()) {
                    receivers.entry(switch).or_default().push((l, q));
                }
            }
        }
        receivers
    }

    fn add_within(&mut self) -> Result<(), NoPath> {
        let per_node = self.per_node();
        for (k, class) in self.classes.iter().enumerate() {
            let pairs = class.gpus.iter().flat_map(|&a| class.gpus.iter().map(move |&b| (a, b)));
            for (a, b) in pairs.filter(|(a, b)| a != b) {
                let path = self.scene.machine.peer(ByteCarrier::Kernel, a, b)?;
                for u in &path.uses {
                    let at = k * per_node + u.resource as usize;
                    if let Some(load) = self.resources.get_mut(at) {
                        load.shared += u.weight * path.share;
                        load.within = true;
                    }
                }
                self.local.push(LocalMessages { class: k, path });
            }
        }
        Ok(())
    }

    /// All pairs of groups whose messages arrive by one switch.
    fn pairs<'p>(
        &'p self,
        receivers: &'p SwitchReceivers,
        distances: &'p [u16],
    ) -> impl Iterator<Item = Result<PairOfGroups, NoPath>> + 'p {
        let reaches = |switch: Option<u32>| {
            let switch = switch?;
            let hops = distances.get(switch as usize).copied().filter(|&d| d != u16::MAX)?;
            Some((switch, hops))
        };
        let of_class = move |(l, q): (usize, usize), k: usize| {
            let class = self.classes.get(k)?;
            (class.partners(k == l) > 0).then_some(())?;
            let groups = self.groups.get(k)?.iter().enumerate();
            Some(groups.filter(|(_, gpus)| !gpus.is_empty()).map(move |(p, gpus)| {
                let switch = |at: usize| class.switches.get(at).copied().flatten();
                // As for a single message: by the own adapter, else by that of the destination's rail.
                let found = [p, q].into_iter().find_map(|at| Some((at, reaches(switch(at))?)));
                let (leaves, (switch, hops)) = found.ok_or_else(|| {
                    let (gpu, name) =
                        (gpus.first().copied().unwrap_or(0), &self.scene.machine.name);
                    NoPath(format!(
                        "the network of {name} has no path from n{}.gpu{gpu} to all others",
                        class.first
                    ))
                })?;
                Ok(PairOfGroups { from: (k, p), leaves, switch, to: (l, q), hops })
            }))
        };
        let classes = 0..self.classes.len();
        receivers
            .iter()
            .flat_map(move |&to| classes.clone().filter_map(move |k| of_class(to, k)).flatten())
    }

    /// Messages of one node of class `of` with all of `other`, by GPU of each.
    fn partners(&self, of: usize, other: usize) -> f64 {
        self.classes.get(other).map_or(0.0, |class| class.partners(of == other) as f64)
    }

    fn group(&self, (class, adapter): (usize, usize)) -> &[u32] {
        self.groups.get(class).and_then(|groups| groups.get(adapter)).map_or(&[], Vec::as_slice)
    }

    fn add_between(
        &mut self,
        fabric: &ClusterFabric,
        receivers: &BTreeMap<u32, SwitchReceivers>,
    ) -> Result<(), NoPath> {
        // For each GPU of a node its messages, and their fewest links between switches.
        let mut sent: HashMap<(usize, usize, usize), (f64, u32)> = HashMap::new();
        let mut received: HashMap<(usize, usize), (f64, u32)> = HashMap::new();
        let mut network = vec![(0.0f64, u32::MAX); fabric.capacities.len()];
        for (&to, of_switch) in receivers {
            let distances = fabric.distances(to);
            let mut traffic = vec![(0.0f64, u32::MAX); distances.len()];
            for pair in self.pairs(of_switch, &distances) {
                let PairOfGroups { from, leaves, switch, to, hops } = pair?;
                let senders = self.group(from).len() as f64;
                let targets = self.group(to).len() as f64;
                let nodes = self.classes.get(from.0).map_or(0.0, |class| class.count as f64);
                let of_gpu = self.partners(from.0, to.0) * targets;
                let add = |(sum, least): &mut (f64, u32), messages: f64| {
                    *sum += messages;
                    *least = (*least).min(u32::from(hops));
                };
                add(sent.entry((from.0, from.1, leaves)).or_insert((0.0, u32::MAX)), of_gpu);
                let arriving = self.partners(to.0, from.0) * senders;
                add(received.entry(to).or_insert((0.0, u32::MAX)), arriving);
                if let Some(traffic) = traffic.get_mut(switch as usize) {
                    add(traffic, nodes * senders * of_gpu);
                }
            }
            spread(fabric, &distances, traffic, &mut network);
        }
        let first = self.first_of_network();
        for (load, (sum, hops)) in self.resources.iter_mut().skip(first).zip(network) {
            (load.between, load.shared, load.hops) = (sum, sum, hops);
        }
        let sent = sent.into_iter().map(|((k, p, leaves), sum)| ((k, p), leaves, true, sum));
        let received = received.into_iter().map(|((l, q), sum)| ((l, q), q, false, sum));
        let per_node = self.per_node();
        for (group, adapter, out, (messages, hops)) in sent.chain(received) {
            for gpu in self.group(group).to_vec() {
                let end = self.scene.machine.adapter_end(gpu, adapter, out)?;
                self.caps.insert(end.cap.to_bits());
                for u in &end.uses {
                    let at = group.0 * per_node + u.resource as usize;
                    if let Some(load) = self.resources.get_mut(at) {
                        load.between += u.weight * messages;
                        load.shared += u.weight * messages;
                        load.hops = load.hops.min(hops);
                    }
                }
            }
        }
        Ok(())
    }

    /// The least of a class of GPUs over its part of a node, GB/s.
    fn end_level(&self, group: (usize, usize), adapter: usize, out: bool) -> Result<f64, NoPath> {
        let mut least = f64::INFINITY;
        for &gpu in self.group(group) {
            let end = self.scene.machine.adapter_end(gpu, adapter, out)?;
            least = least.min(end.cap).min(self.node_level(group.0, &end.uses));
        }
        Ok(least)
    }

    fn node_level(&self, class: usize, uses: &[ResourceUse]) -> f64 {
        let first = class * self.per_node();
        let level = |u: &ResourceUse| self.resources.get(first + u.resource as usize);
        uses.iter().filter_map(level).map(ResourceLoad::level).fold(f64::INFINITY, f64::min)
    }

    fn find_least_rates(
        &mut self,
        fabric: &ClusterFabric,
        receivers: &BTreeMap<u32, SwitchReceivers>,
    ) -> Result<(), NoPath> {
        let first = self.first_of_network();
        let of_network: Vec<f64> =
            self.resources.iter().skip(first).map(ResourceLoad::level).collect();
        let mut least_rates: BTreeMap<u32, f64> = BTreeMap::new();
        let mut known: HashMap<((usize, usize), usize, bool), f64> = HashMap::new();
        let mut end = |group, adapter, out| -> Result<f64, NoPath> {
            if let Some(level) = known.get(&(group, adapter, out)) {
                return Ok(*level);
            }
            let level = self.end_level(group, adapter, out)?;
            known.insert((group, adapter, out), level);
            Ok(level)
        };
        for (&to, of_switch) in receivers {
            let distances = fabric.distances(to);
            let mut levels = vec![f64::INFINITY; distances.len()];
            for at in by_distance(&distances) {
                let ahead = fabric.graph.closer(at, &distances).map(|(next, u)| {
                    let level = |list: &[f64], i: u32| list.get(i as usize).copied();
                    let link = level(&of_network, u.resource).unwrap_or(f64::INFINITY);
                    link.min(level(&levels, next).unwrap_or(f64::INFINITY))
                });
                let least = ahead.fold(f64::INFINITY, f64::min);
                if let Some(level) = levels.get_mut(at as usize) {
                    *level = least;
                }
            }
            for pair in self.pairs(of_switch, &distances) {
                let PairOfGroups { from, leaves, switch, to, hops } = pair?;
                let network = levels.get(switch as usize).copied().unwrap_or(f64::INFINITY);
                let rate = network.min(end(from, leaves, true)?).min(end(to, to.1, false)?);
                let least = least_rates.entry(u32::from(hops)).or_insert(f64::INFINITY);
                *least = least.min(rate);
            }
        }
        self.least_rates = least_rates;
        Ok(())
    }

    /// The least and the most that a message between nodes moves.
    fn sizes(&self, bytes: &impl Fn(f64) -> f64) -> (f64, f64) {
        let sizes = self.caps.iter().map(|cap| bytes(f64::from_bits(*cap)));
        sizes.fold((f64::INFINITY, 0.0), |(least, most), b| (least.min(b), most.max(b)))
    }

    /// Bytes of messages within nodes over each resource.
    fn local_bytes(&self, bytes: &impl Fn(f64) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.resources.len()];
        for LocalMessages { class, path } in &self.local {
            let bytes = bytes(path.cap);
            for u in &path.uses {
                if let Some(sum) = sums.get_mut(class * self.per_node() + u.resource as usize) {
                    *sum += u.weight * bytes;
                }
            }
        }
        sums
    }

    /// The last message ends between these times, ns. `start` is that of a message by its links between
    /// switches, none within a node, and rises with them; `bytes` what it moves by the rate of its path
    /// alone, GB/s.
    pub(crate) fn interval(
        &self,
        bytes: impl Fn(f64) -> f64,
        start: impl Fn(Option<u32>) -> f64,
    ) -> (f64, f64) {
        let (least, most) = self.sizes(&bytes);
        let (mut from, mut until) = (0.0f64, 0.0f64);
        for (load, local) in self.resources.iter().zip(self.local_bytes(&bytes)) {
            let moved = local + if load.between > 0.0 { load.between * least } else { 0.0 };
            let within = load.within.then(|| start(None));
            let between = (load.between > 0.0).then(|| start(Some(load.hops)));
            let first = within.into_iter().chain(between).fold(f64::INFINITY, f64::min);
            if moved > 0.0 {
                from = from.max(first + moved / load.capacity);
            }
        }
        let fastest = self.caps.last().map_or(f64::INFINITY, |cap| f64::from_bits(*cap));
        for (&hops, &rate) in &self.least_rates {
            from = from.max(start(Some(hops)) + least / fastest);
            until = until.max(start(Some(hops)) + most / rate);
        }
        for LocalMessages { class, path } in &self.local {
            let rate = path.cap.min(path.share * self.node_level(*class, &path.uses));
            from = from.max(start(None) + bytes(path.cap) / path.cap);
            until = until.max(start(None) + bytes(path.cap) / rate);
        }
        (from, until)
    }

    /// The resources that give the least to each message: the first of each level and capacity.
    pub(crate) fn full(&self) -> Vec<String> {
        let least = self.resources.iter().map(ResourceLoad::level).fold(f64::INFINITY, f64::min);
        let first = self.first_of_network();
        let mut found: Vec<(&'static str, u64, String, u64)> = Vec::new();
        for (at, load) in self.resources.iter().enumerate() {
            if load.level() > least * (1.0 + 1e-6) {
                continue;
            }
            let (in_scene, count) = match at.checked_sub(first) {
                Some(at) => (self.scene.first_of_network() + at as u32, 1),
                None => {
                    let per_node = self.per_node().max(1);
                    let class = self.classes.get(at / per_node);
                    let (node, count) = class.map_or((0, 0), |class| (class.first, class.count));
                    (self.scene.first_of(node) + (at % per_node) as u32, count)
                }
            };
            let level = self.scene.machine.resource_level(in_scene, self.scene.nodes());
            let capacity = load.capacity.to_bits();
            match found.iter_mut().find(|(known, c, ..)| (*known, *c) == (level, capacity)) {
                Some((.., all)) => *all += count,
                None => {
                    found.push((level, capacity, self.scene.resource_name(in_scene), count));
                }
            }
        }
        let named = found.into_iter().map(|(.., name, all)| match all {
            0 | 1 => name,
            _ => format!("{name} and {} like it", all - 1),
        });
        named.collect()
    }

    /// Bytes through each resource of the scene; those of messages between nodes at most, where their sizes
    /// differ.
    pub(crate) fn loads(&self, bytes: impl Fn(f64) -> f64) -> Vec<f64> {
        let (_, most) = self.sizes(&bytes);
        let sums = self.resources.iter().zip(self.local_bytes(&bytes));
        let of_class: Vec<f64> = sums.map(|(load, local)| load.between * most + local).collect();
        let (per_node, first) = (self.per_node(), self.first_of_network());
        let nodes = self.class_of_node.values();
        let of_nodes =
            nodes.flat_map(|class| of_class.iter().skip(class * per_node).take(per_node));
        of_nodes.chain(of_class.iter().skip(first)).copied().collect()
    }
}

/// Switches with a path, the nearest first.
fn by_distance(distances: &[u16]) -> Vec<u32> {
    let reached = (0u32..).zip(distances).filter(|(_, distance)| **distance != u16::MAX);
    let mut order: Vec<(u16, u32)> = reached.map(|(at, distance)| (*distance, at)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, at)| at).collect()
}

/// Adds what all switches send to one: messages at each switch, with the fewest links of their routes.
fn spread(
    fabric: &ClusterFabric,
    distances: &[u16],
    mut traffic: Vec<(f64, u32)>,
    network: &mut [(f64, u32)],
) {
    for at in by_distance(distances).into_iter().rev() {
        let (messages, hops) = traffic.get(at as usize).copied().unwrap_or_default();
        if messages <= 0.0 {
            continue;
        }
        for (next, u) in fabric.graph.closer(at, distances) {
            let part = messages * u.weight;
            for (list, place) in [(&mut *network, u.resource), (&mut traffic, next)] {
                if let Some((sum, least)) = list.get_mut(place as usize) {
                    *sum += part;
                    *least = (*least).min(hops);
                }
            }
        }
    }
}
