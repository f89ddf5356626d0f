//! Ranks on the GPUs of several equal nodes: recursive bisection puts ranks that exchange much on one node,
//! swaps then relieve the fullest link, engine, adapter or switch.

use std::collections::HashMap;

use pathline_flow::{MachineDesc, SwitchGraph};

use crate::phase_model::PhaseModel;
use crate::rank_places::nearest_nic;
use crate::rank_traffic::RankTraffic;

/// Swaps whose loads are computed at most: each costs the messages of two ranks, four times.
const MAX_TRIED: usize = 400_000;
/// Places that a rank of the fullest resource tries in a round.
const TRIED_PLACES: usize = 512;
/// Rate of an adapter whose line rate no source states, GB/s: none limits less.
const UNSTATED: f64 = f64::INFINITY;

/// Nodes, their places, adapters and the switches between them.
#[derive(Debug)]
pub struct ClusterModel<'m> {
    node: &'m PhaseModel,
    nodes: usize,
    /// Adapter of each place of a node.
    adapters: Vec<usize>,
    /// One direction of each adapter, GB/s.
    rates: Vec<f64>,
    network: Option<&'m SwitchGraph>,
}

/// Ranks on a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPhase {
    /// Place of each rank: node times places of a node, plus the place on it.
    pub at: Vec<usize>,
    /// Time that the fullest resource needs for its bytes, ns: no schedule of the phase is shorter.
    pub bound: f64,
    /// Bytes that leave nodes.
    pub between_nodes: f64,
}

/// Ranks in order and the mapping that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSearch {
    /// Ranks in order, node by node.
    pub identity: ClusterPhase,
    /// After bisection alone.
    pub bisected: ClusterPhase,
    /// After swaps: never worse than the other two.
    pub best: ClusterPhase,
    /// Swaps whose loads were computed.
    pub tried: usize,
}

impl<'m> ClusterModel<'m> {
    /// `nodes` equal nodes of a machine, whose places are those of `node`. The network of its `[cluster]`
    /// counts if that has as many nodes.
    pub fn new(desc: &'m MachineDesc, node: &'m PhaseModel, nodes: usize) -> Self {
        let topology = desc.healthy_topology();
        let adapter = |place: usize| {
            let gpu = topology.gpus.iter().find(|gpu| Some(gpu.index) == node.gpu(place));
            let nic = nearest_nic(&topology.nics, gpu, gpu.and_then(|gpu| gpu.numa));
            let found = nic.and_then(|nic| topology.nics.iter().position(|n| n.name == nic.name));
            found.unwrap_or(place % topology.nics.len().max(1))
        };
        let rate = |mbits: Option<u64>| mbits.map_or(UNSTATED, |mbits| mbits as f64 / 8e3);
        let mut rates: Vec<f64> = topology.nics.iter().map(|nic| rate(nic.speed_mbits)).collect();
        if rates.is_empty() {
            rates.push(UNSTATED);
        }
        let cluster = desc.cluster.as_ref().filter(|cluster| cluster.nodes as usize >= nodes);
        Self {
            adapters: (0..node.places()).map(adapter).collect(),
            network: cluster.and_then(|cluster| cluster.network.as_ref()),
            node,
            nodes,
            rates,
        }
    }

    /// Places of all nodes.
    pub fn places(&self) -> usize {
        self.nodes * self.node.places()
    }

    fn resources(&self) -> usize {
        let node = self.node.resource_count() + 2 * self.rates.len();
        self.nodes * node + self.network.map_or(0, |network| 2 * network.bundles().len())
    }
}

/// Loads of all resources of a cluster.
struct ClusterLoads<'m> {
    model: &'m ClusterModel<'m>,
    /// ns of each resource.
    loads: Vec<f64>,
    /// Messages of each rank: other rank, bytes, whether it sends.
    near: Vec<Vec<(usize, f64, bool)>>,
    /// Routes between switches: directed bundle and part of the traffic.
    routes: HashMap<(u32, u32), Vec<(u32, f64)>>,
    scale: f64,
    /// Sum of the eighth powers of loads over the scale.
    sum: f64,
}

impl<'m> ClusterLoads<'m> {
    fn new(model: &'m ClusterModel<'m>, traffic: &RankTraffic, at: &[usize]) -> Self {
        let mut near = vec![Vec::new(); traffic.ranks()];
        for message in traffic.messages() {
            let bytes = message.bytes as f64;
            near[message.from].push((message.to, bytes, true));
            if message.to != message.from {
                near[message.to].push((message.from, bytes, false));
            }
        }
        let loads = vec![0.0; model.resources()];
        let mut new = Self { model, loads, near, routes: HashMap::new(), scale: 1.0, sum: 0.0 };
        for message in traffic.messages() {
            new.add(at[message.from], at[message.to], message.bytes as f64);
        }
        new.rescale();
        new
    }

    /// Puts the largest load at 1, so that eighth powers keep their digits.
    fn rescale(&mut self) {
        self.scale = self.most().max(f64::MIN_POSITIVE);
        self.sum = self.loads.iter().map(|load| (load / self.scale).max(0.0).powi(8)).sum();
    }

    fn most(&self) -> f64 {
        self.loads.iter().copied().fold(0.0, f64::max)
    }

    fn put(&mut self, resource: usize, ns: f64) {
        let Some(load) = self.loads.get_mut(resource).filter(|_| ns.is_finite()) else { return };
        let power = |load: f64| (load / self.scale).max(0.0).powi(8);
        self.sum += power(*load + ns) - power(*load);
        *load += ns;
    }

    /// Adds a message; takes it away if its bytes are negative.
    fn add(&mut self, from: usize, to: usize, bytes: f64) {
        let model = self.model;
        let places = model.node.places();
        let each = model.node.resource_count() + 2 * model.rates.len();
        let (a, b) = (from / places, to / places);
        if a == b {
            let base = a * each;
            for (resource, ns) in model.node.loads(from % places, to % places) {
                self.put(base + resource, ns * bytes);
            }
            return;
        }
        let adapter = |place: usize| model.adapters.get(place % places).copied().unwrap_or(0);
        let (out, into) = (adapter(from), adapter(to));
        let rate = |adapter: usize| model.rates.get(adapter).copied().unwrap_or(UNSTATED);
        let first = model.node.resource_count();
        self.put(a * each + first + 2 * out, bytes / rate(out));
        self.put(b * each + first + 2 * into + 1, bytes / rate(into));
        let Some(network) = model.network else { return };
        let switch = |node: usize, adapter: usize| {
            network.switch_of(u32::try_from(node).ok()?, u32::try_from(adapter).ok()?)
        };
        let (Some(x), Some(y)) = (switch(a, out), switch(b, into)) else { return };
        let route = self.routes.entry((x, y)).or_insert_with(|| {
            let route = network.route(x, y, &network.distances_to(y)).unwrap_or_default();
            let used = |used: &pathline_flow::ResourceUse| {
                (used.resource, used.weight / network.capacity(used.resource))
            };
            route.uses.iter().map(used).collect()
        });
        let base = model.nodes * each;
        for (resource, ns) in route.clone() {
            self.put(base + resource as usize, ns * bytes);
        }
    }

    /// Takes the messages of a rank away, or puts them back. `other` moves as well: its messages with this
    /// rank are counted here alone.
    fn place(&mut self, rank: usize, at: &[usize], skip: Option<usize>, sign: f64) {
        let near = std::mem::take(&mut self.near[rank]);
        for &(other, bytes, sends) in near.iter().filter(|(other, ..)| Some(*other) != skip) {
            let (from, to) = if sends { (rank, other) } else { (other, rank) };
            self.add(at[from], at[to], sign * bytes);
        }
        self.near[rank] = near;
    }

    /// Moves a rank to a place; the rank that is there takes its place.
    fn swap(&mut self, at: &mut [usize], rank: usize, other: Option<usize>, place: usize) {
        self.place(rank, at, None, -1.0);
        if let Some(other) = other {
            self.place(other, at, Some(rank), -1.0);
            at[other] = at[rank];
        }
        at[rank] = place;
        self.place(rank, at, None, 1.0);
        if let Some(other) = other {
            self.place(other, at, Some(rank), 1.0);
        }
    }
}

/// Searches a mapping of ranks to the GPUs of a cluster. `None` if it has fewer places than ranks.
pub fn map_cluster(model: &ClusterModel<'_>, traffic: &RankTraffic) -> Option<ClusterSearch> {
    if traffic.ranks() > model.places() || traffic.ranks() == 0 {
        return None;
    }
    let identity: Vec<usize> = (0..traffic.ranks()).collect();
    let bisected = bisected(model, traffic);
    let phase = |at: Vec<usize>| {
        let loads = ClusterLoads::new(model, traffic, &at);
        let places = model.node.places();
        let between =
            traffic.messages().iter().filter(|m| at[m.from] / places != at[m.to] / places);
        let between_nodes = between.map(|m| m.bytes as f64).sum();
        ClusterPhase { bound: loads.most(), between_nodes, at }
    };
    let (identity, bisected) = (phase(identity), phase(bisected));
    let start = if bisected.bound < identity.bound { &bisected } else { &identity };
    let (at, tried) = relieved(model, traffic, start.at.clone());
    let swapped = phase(at);
    let best = if swapped.bound <= start.bound { swapped } else { start.clone() };
    Some(ClusterSearch { identity, bisected, best, tried })
}

/// Swaps ranks of the fullest resources away while that lowers the norm of all loads.
fn relieved(
    model: &ClusterModel<'_>,
    traffic: &RankTraffic,
    mut at: Vec<usize>,
) -> (Vec<usize>, usize) {
    let mut loads = ClusterLoads::new(model, traffic, &at);
    let mut owner = vec![None; model.places()];
    for (rank, place) in at.iter().enumerate() {
        owner[*place] = Some(rank);
    }
    let mut tried = 0;
    let mut stride = 1;
    loop {
        let before = loads.sum;
        for rank in 0..traffic.ranks() {
            if tried >= MAX_TRIED {
                return (at, tried);
            }
            let (home, sum) = (at[rank], loads.sum);
            let mut best: Option<(f64, usize)> = None;
            // Places on the same node first, then others in strides that differ from round to round.
            let places = model.node.places();
            let own = home / places * places;
            let all = model.places();
            let step = (all / TRIED_PLACES).max(1) * stride;
            let others = (0..all.min(TRIED_PLACES)).map(|n| (own + n * step + n) % all);
            for place in (own..own + places).chain(others) {
                if place == at[rank] {
                    continue;
                }
                let other = owner[place];
                loads.swap(&mut at, rank, other, place);
                tried += 1;
                if loads.sum < sum * (1.0 - 1e-6) && best.is_none_or(|(least, _)| loads.sum < least)
                {
                    best = Some((loads.sum, place));
                }
                loads.swap(&mut at, rank, other, home);
            }
            if let Some((_, place)) = best {
                let other = owner[place];
                loads.swap(&mut at, rank, other, place);
                owner[place] = Some(rank);
                owner[home] = other;
            }
        }
        loads.rescale();
        let after = ClusterLoads::new(model, traffic, &at);
        stride += 1;
        // Of the norm a thousandth, of its eighth power 0.8 %.
        if after.sum >= before * 0.992 && stride > 3 {
            return (at, tried);
        }
        loads = after;
    }
}

/// Ranks by recursive bisection: each half of the nodes gets the half of the ranks that exchanges least with
/// the other, and the ranks of a node keep their order.
fn bisected(model: &ClusterModel<'_>, traffic: &RankTraffic) -> Vec<usize> {
    let mut weights: Vec<Vec<(usize, f64)>> = vec![Vec::new(); traffic.ranks()];
    for message in traffic.messages().iter().filter(|m| m.from != m.to) {
        let bytes = message.bytes as f64;
        weights[message.from].push((message.to, bytes));
        weights[message.to].push((message.from, bytes));
    }
    let mut at = vec![0; traffic.ranks()];
    let mut parts = vec![((0..traffic.ranks()).collect::<Vec<_>>(), 0, model.nodes)];
    let places = model.node.places();
    while let Some((ranks, first, nodes)) = parts.pop() {
        if nodes <= 1 {
            for (nth, rank) in ranks.iter().enumerate() {
                at[*rank] = first * places + nth;
            }
            continue;
        }
        let left = nodes / 2;
        // All nodes but the last ones are full, as launchers fill them.
        let size = (left * places).min(ranks.len());
        let (a, b) = halves(&ranks, size, &weights);
        parts.push((a, first, left));
        parts.push((b, first + left, nodes - left));
    }
    at
}

/// `size` ranks that grow from one end of the part, each the one that is tied most to those taken, and the
/// rest; then pairs change sides while that cuts less.
fn halves(ranks: &[usize], size: usize, weights: &[Vec<(usize, f64)>]) -> (Vec<usize>, Vec<usize>) {
    let count = weights.len();
    let mut side = vec![None; count];
    ranks.iter().for_each(|rank| side[*rank] = Some(false));
    let mut tied = vec![0.0_f64; count];
    for _ in 0..size {
        let free = ranks.iter().copied().filter(|rank| side[*rank] == Some(false));
        // Of equally tied ranks the first: grids grow row by row.
        let next = free.max_by(|a, b| tied[*a].total_cmp(&tied[*b]).then(b.cmp(a)));
        let Some(next) = next else { break };
        side[next] = Some(true);
        weights[next].iter().for_each(|&(other, bytes)| tied[other] += bytes);
    }
    // Gain of changing sides: bytes to the other side less those to the own one.
    let gain = |rank: usize, side: &[Option<bool>]| -> f64 {
        let each = weights[rank].iter().filter_map(|&(other, bytes)| {
            side[other].map(|there| if Some(there) == side[rank] { -bytes } else { bytes })
        });
        each.sum()
    };
    for _ in 0..ranks.len() {
        let best = |of: bool, side: &[Option<bool>]| {
            let all = ranks.iter().copied().filter(|rank| side[*rank] == Some(of));
            all.map(|rank| (gain(rank, side), rank)).max_by(|a, b| a.0.total_cmp(&b.0))
        };
        let (Some((one, a)), Some((two, b))) = (best(true, &side), best(false, &side)) else {
            break;
        };
        let joint: f64 = weights[a].iter().filter(|(other, _)| *other == b).map(|(_, w)| w).sum();
        if one + two - 2.0 * joint <= 0.0 {
            break;
        }
        (side[a], side[b]) = (Some(false), Some(true));
    }
    ranks.iter().partition(|rank| side[**rank] == Some(true))
}

#[cfg(test)]
mod tests {
    use pathline_flow::{Network, RuntimeEnv};
    use pathline_schema::Bytes;

    use super::*;
    use crate::phase_model::PhaseMover;
    use crate::rank_traffic::{PhasePattern, RankMessage};

    fn node(desc: &MachineDesc) -> PhaseModel {
        let network = Network::new(desc, RuntimeEnv::default()).unwrap();
        let gpus: Vec<u32> = desc.topology().gpus.iter().map(|gpu| gpu.index).collect();
        PhaseModel::new(&network, &gpus, PhaseMover::CopyKernel, Bytes::mib(8)).unwrap()
    }

    /// 8 nodes behind a dragonfly of 4 routers with one link between any two.
    const CLUSTER: &str = "name = \"small\"\nabout = \"eight nodes\"\n[cluster]\nnodes = 8\nnode = \
        \"mi250x\"\n[cluster.network]\nshape = \"dragonfly\"\nlink_gbs = 25\nhop_ns = 350\ngroups = 2\n\
        routers = 2\nrouter_adapters = 8\nlocal_links = 1\nglobal_links = 1\n";

    fn cluster() -> MachineDesc {
        let node = |name: &str| {
            let known = MachineDesc::presets().iter().find(|(known, _)| *known == name);
            Ok(known.map(|(_, text)| (*text).to_owned()).unwrap())
        };
        let text = pathline_flow::join_node("small", CLUSTER, node).unwrap().unwrap();
        MachineDesc::parse("small", &text).unwrap()
    }

    #[test]
    fn a_halo_in_the_wrong_order_comes_together() {
        let desc = MachineDesc::preset("mi250x").unwrap();
        let node = node(&desc);
        let model = ClusterModel::new(&desc, &node, 4);
        // Ranks r and r + 16 of 32 exchange: in order each of the 32 is on another node than its peer.
        let pattern: PhasePattern = "exchange".parse().unwrap();
        let traffic = pattern.traffic(32, Bytes::mib(8)).unwrap();
        let found = map_cluster(&model, &traffic).unwrap();
        assert_eq!(found.identity.between_nodes, 32.0 * 8.0 * 1048576.0);
        assert_eq!(found.best.between_nodes, 0.0);
        assert!(found.best.bound < found.identity.bound * 0.7, "{found:?}");
    }

    #[test]
    fn no_mapping_is_worse_than_ranks_in_order() {
        let mut state = 7u64;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let (flat, wired) = (MachineDesc::preset("mi250x").unwrap(), cluster());
        for world in 0..24 {
            let desc = if world % 2 == 0 { &flat } else { &wired };
            let node = node(desc);
            let nodes = 2 + below(3) as usize;
            let model = ClusterModel::new(desc, &node, nodes);
            let ranks = 2 + below(8 * nodes as u64 - 2) as usize;
            let message = |_| RankMessage {
                from: below(ranks as u64) as usize,
                to: below(ranks as u64) as usize,
                bytes: 1 + below(1 << 24),
            };
            let messages: Vec<RankMessage> = (0..3 * ranks).map(message).collect();
            let traffic = RankTraffic::new(ranks, messages).unwrap();
            let found = map_cluster(&model, &traffic).unwrap();
            assert!(found.best.bound <= found.identity.bound, "world {world}: {found:?}");
            let mut places = found.best.at.clone();
            places.sort_unstable();
            places.dedup();
            // Each rank has another place, on a node that exists.
            assert_eq!(places.len(), ranks);
            assert!(places.iter().all(|place| *place < model.places()));
            // Incremental loads are those of the mapping itself.
            let again = ClusterLoads::new(&model, &traffic, &found.best.at);
            assert!((again.most() - found.best.bound).abs() <= 1e-6 * found.best.bound);
        }
    }

    #[test]
    fn more_ranks_than_places_have_no_mapping() {
        let desc = MachineDesc::preset("mi250x").unwrap();
        let node = node(&desc);
        let model = ClusterModel::new(&desc, &node, 2);
        let traffic = "ring".parse::<PhasePattern>().unwrap().traffic(17, Bytes::mib(1)).unwrap();
        assert_eq!(map_cluster(&model, &traffic), None);
    }
}
