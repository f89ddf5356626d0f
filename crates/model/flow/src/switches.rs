//! A graph of switches: bundles of links, and routes between adapters over the shortest of them.

use std::collections::VecDeque;

use crate::ResourceUse;

/// The most switches, and bundles between them. Distances are kept for each pair of switches.
pub(crate) const MAX_SWITCHES: u32 = 8192;
const MAX_BUNDLES: usize = 1 << 18;

/// An error, and its place in the description where one part of it is meant.
pub(crate) type WiringError = (Option<std::ops::Range<usize>>, String);

/// Parallel links between two switches.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchBundle {
    /// The two switches, by number.
    pub ends: (u32, u32),
    /// Number of links.
    pub width: u32,
    /// The level of the network that it belongs to: `edge`, `core`, `local`, `global`, `spine`, `link`.
    pub level: &'static str,
}

impl SwitchBundle {
    pub(crate) const fn new(a: u32, b: u32, width: u32, level: &'static str) -> Self {
        Self { ends: (a, b), width, level }
    }
}

/// A route between two switches.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SwitchRoute {
    /// Directed bundles, with the part of the traffic that each carries. Resource `2 i` is bundle `i`
    /// from its first end to its second, and `2 i + 1` back.
    pub uses: Vec<ResourceUse>,
    /// Links between switches that a message takes.
    pub hops: u32,
}

/// Switches, the bundles between them, and the switch of each adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchGraph {
    names: Vec<String>,
    bundles: Vec<SwitchBundle>,
    /// Of each switch: neighbour and directed bundle.
    near: Vec<Vec<(u32, u32)>>,
    /// Switch of each adapter, node by node.
    attached: Vec<u32>,
    adapters: u32,
    link_gbs: f64,
    hop_ns: f64,
}

impl SwitchGraph {
    pub(crate) fn new(link_gbs: f64, hop_ns: f64) -> Self {
        let (names, bundles, near) = (Vec::new(), Vec::new(), Vec::new());
        Self { names, bundles, near, attached: Vec::new(), adapters: 1, link_gbs, hop_ns }
    }

    /// Adds switches and returns the number of the first.
    pub(crate) fn add_switches(
        &mut self,
        count: u32,
        name: impl Fn(u32) -> String,
    ) -> Result<u32, WiringError> {
        let first = self.names.len() as u32;
        let all = first.saturating_add(count);
        if all > MAX_SWITCHES {
            return Err((None, format!("{all} switches; expected at most {MAX_SWITCHES}")));
        }
        self.names.extend((0..count).map(name));
        self.near.resize(self.names.len(), Vec::new());
        Ok(first)
    }

    pub(crate) fn add_bundle(&mut self, bundle: SwitchBundle) -> Result<(), WiringError> {
        if self.bundles.len() >= MAX_BUNDLES {
            return Err((
                None,
                format!("more than {MAX_BUNDLES} bundles of links between switches"),
            ));
        }
        let forth = 2 * self.bundles.len() as u32;
        let (a, b) = bundle.ends;
        for (from, to, directed) in [(a, b, forth), (b, a, forth + 1)] {
            if let Some(near) = self.near.get_mut(from as usize) {
                near.push((to, directed));
            }
        }
        self.bundles.push(bundle);
        Ok(())
    }

    pub(crate) fn attach(&mut self, attached: Vec<u32>, adapters: u32) {
        self.attached = attached;
        self.adapters = adapters.max(1);
    }

    /// Every node reaches every other. `by_adapter`: it is enough that adapters of one number do.
    pub(crate) fn check_joined(&self, by_adapter: bool) -> Result<(), String> {
        let sets = if by_adapter { self.adapters } else { 1 };
        for set in 0..sets as usize {
            let step = sets as usize;
            let mut own = self.attached.iter().copied().enumerate().skip(set).step_by(step);
            let Some((_, first)) = own.next() else { continue };
            let distances = self.distances_to(first);
            let apart = |s: u32| distances.get(s as usize).is_none_or(|&d| d == FAR);
            if let Some((at, switch)) = own.find(|&(_, switch)| apart(switch)) {
                let node = at / self.adapters as usize;
                let name = |s: u32| self.names.get(s as usize).map_or("", String::as_str);
                return Err(format!(
                    "the network has no path from node 0 ({}) to node {node} ({}); add a link that joins them",
                    name(first),
                    name(switch)
                ));
            }
        }
        Ok(())
    }

    /// The bundles.
    pub fn bundles(&self) -> &[SwitchBundle] {
        &self.bundles
    }

    /// Capacity of a directed bundle, GB/s.
    pub fn capacity(&self, resource: u32) -> f64 {
        let width = self.bundles.get(resource as usize / 2).map_or(0, |b| b.width);
        f64::from(width) * self.link_gbs
    }

    /// `edge3 > core`.
    pub fn resource_name(&self, resource: u32) -> String {
        let Some(bundle) = self.bundles.get(resource as usize / 2) else { return String::new() };
        let (a, b) = bundle.ends;
        let (a, b) = if resource.is_multiple_of(2) { (a, b) } else { (b, a) };
        let name = |s: u32| self.names.get(s as usize).map_or("", String::as_str);
        format!("{} > {}", name(a), name(b))
    }

    /// Time of a link between switches, ns.
    pub fn hop_ns(&self) -> f64 {
        self.hop_ns
    }

    /// Number of switches.
    pub fn switches(&self) -> usize {
        self.names.len()
    }

    /// The switch of an adapter of a node, by its place among the node's adapters.
    pub fn switch_of(&self, node: u32, adapter: u32) -> Option<u32> {
        if adapter >= self.adapters {
            return None;
        }
        self.attached.get(node as usize * self.adapters as usize + adapter as usize).copied()
    }

    /// Links from each switch to `to`; [`u16::MAX`] without a path.
    pub fn distances_to(&self, to: u32) -> Vec<u16> {
        let mut distances = vec![FAR; self.names.len()];
        let mut open = VecDeque::from([to]);
        if let Some(own) = distances.get_mut(to as usize) {
            *own = 0;
        }
        while let Some(at) = open.pop_front() {
            let next = distances.get(at as usize).map_or(FAR, |d| d.saturating_add(1));
            for &(near, _) in self.near.get(at as usize).map_or(&[][..], Vec::as_slice) {
                if let Some(distance) = distances.get_mut(near as usize).filter(|d| **d == FAR) {
                    *distance = next;
                    open.push_back(near);
                }
            }
        }
        distances
    }

    /// Neighbours of a switch on shortest routes to where `distances` are from, with the directed bundle to
    /// each and the part of the traffic that takes it: in proportion to the capacities.
    pub fn closer(&self, at: u32, distances: &[u16]) -> impl Iterator<Item = (u32, ResourceUse)> {
        let distance = |switch: u32| distances.get(switch as usize).copied().unwrap_or(FAR);
        let left = if distance(at) == FAR { None } else { distance(at).checked_sub(1) };
        let near = self.near.get(at as usize).map_or(&[][..], Vec::as_slice);
        let closer = move || near.iter().filter(move |(n, _)| Some(distance(*n)) == left);
        let total: f64 = closer().map(|&(_, resource)| self.capacity(resource)).sum();
        closer().map(move |&(next, resource)| {
            (next, ResourceUse { resource, weight: self.capacity(resource) / total })
        })
    }

    /// The route between two switches: traffic spreads over all shortest routes, at each switch in
    /// proportion to the capacities. `distances` are those to `to`. None without a path.
    pub fn route(&self, from: u32, to: u32, distances: &[u16]) -> Option<SwitchRoute> {
        let hops = distances.get(from as usize).copied().filter(|&d| d != FAR)?;
        let mut uses: Vec<ResourceUse> = Vec::new();
        let mut front: Vec<(u32, f64)> = vec![(from, 1.0)];
        for _ in 0..hops {
            let mut next: Vec<(u32, f64)> = Vec::new();
            for (at, part) in front {
                for (n, ResourceUse { resource, weight }) in self.closer(at, distances) {
                    let share = part * weight;
                    uses.push(ResourceUse { resource, weight: share });
                    match next.iter_mut().find(|(known, _)| *known == n) {
                        Some((_, sum)) => *sum += share,
                        None => next.push((n, share)),
                    }
                }
            }
            front = next;
        }
        debug_assert!(front.iter().all(|(at, _)| *at == to));
        Some(SwitchRoute { uses, hops: u32::from(hops) })
    }
}

/// A switch without a path.
const FAR: u16 = u16::MAX;
