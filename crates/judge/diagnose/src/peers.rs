//! Peers: units, links and paths of a node that its description cannot tell apart, and cases over them.

use std::collections::BTreeMap;

use pathline_schema::{Case, LinkEnd, Topology, Unit};
use pathline_stats::{MedianInterval, ascending, interpolated};

/// The most refinements that one question may take; beyond, two tuples count as different, which makes
/// classes smaller and no path equal to one that it is not.
const MAX_STEPS: usize = 4096;
/// Above this many units no symmetry is looked for: the refinement grows with their square.
const MAX_UNITS: usize = 512;
/// A slow one is farther from the median of its peers than this many times the distance that holds three quarters
/// of the faster half of them.
const TIMES_SPREAD: f64 = 4.0;

/// A node as a complete graph whose vertices and ordered pairs have labels.
///
/// A GPU's label is what it is made of, a NUMA domain's whether it has CPUs and memory. A pair's label is
/// the kind and width of its links, NUMA distance, common package, hops of stated routes and, where no
/// link joins two GPUs, the number of PCI bridges above both. Product names, serial numbers and what a
/// link is trained at now are not part of it.
#[derive(Debug, Clone, Default)]
pub struct NodePeers {
    units: BTreeMap<LinkEnd, usize>,
    colours: Vec<u32>,
    pairs: Vec<Vec<u32>>,
}

/// Numbers values in order of appearance.
#[derive(Default)]
struct Interner(BTreeMap<String, u32>);

impl Interner {
    fn number(&mut self, text: String) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(text).or_insert(next)
    }
}

impl NodePeers {
    /// Of more than 512 units each is its only peer.
    pub fn new(topology: &Topology) -> Self {
        let mut units = BTreeMap::new();
        let gpus = topology.gpus.iter().map(|gpu| LinkEnd::Gpu(gpu.index));
        let numas = topology.numa.iter().map(|numa| LinkEnd::Numa(numa.id));
        let ends = topology.links.iter().flat_map(|link| [link.a, link.b]);
        for unit in gpus.chain(numas).chain(ends) {
            let next = units.len();
            units.entry(unit).or_insert(next);
        }
        if units.len() > MAX_UNITS {
            return Self::default();
        }
        let mut words = Interner::default();
        let mut colours = vec![0; units.len()];
        for (unit, &at) in &units {
            if let Some(colour) = colours.get_mut(at) {
                *colour = words.number(unit_label(topology, *unit));
            }
        }
        let ends: Vec<LinkEnd> = {
            let mut ends: Vec<(usize, LinkEnd)> = units.iter().map(|(&e, &at)| (at, e)).collect();
            ends.sort_unstable();
            ends.into_iter().map(|(_, end)| end).collect()
        };
        let facts = PairFacts::new(topology);
        let mut label = |a: &LinkEnd, b: &LinkEnd| words.number(facts.label(*a, *b));
        let pairs = ends.iter().map(|a| ends.iter().map(|b| label(a, b)).collect()).collect();
        Self { units, colours, pairs }
    }

    /// The number of the class of each thing, by its text without numbers of units and by its units: peers have
    /// one text, and a symmetry of the node takes the units of one to those of the other. Classes are numbered
    /// in order of appearance.
    pub fn classes(&self, things: impl IntoIterator<Item = (String, Vec<Unit>)>) -> Vec<usize> {
        // By text: the units of the first thing of each class, and its number.
        let mut known: BTreeMap<String, Vec<(Vec<Unit>, usize)>> = BTreeMap::new();
        // Copies of many kinds and sizes have the same ends: each two lists are compared once.
        let mut compared: BTreeMap<(Vec<Unit>, Vec<Unit>), bool> = BTreeMap::new();
        let mut count = 0;
        let class = |(text, units): (String, Vec<Unit>)| {
            let known = known.entry(text).or_default();
            let mut is_peer = |first: &Vec<Unit>| {
                let pair = (first.clone(), units.clone());
                *compared.entry(pair).or_insert_with_key(|(a, b)| self.exchanges(a, b))
            };
            let peer = known.iter().find(|(first, _)| is_peer(first));
            peer.map(|(_, class)| *class).unwrap_or_else(|| {
                known.push((units, count));
                count += 1;
                count - 1
            })
        };
        things.into_iter().map(class).collect()
    }

    /// What the description states of two units and of the links between them, in either order. What a link
    /// carries does not depend on what surrounds it.
    pub fn link_text(&self, a: LinkEnd, b: LinkEnd) -> String {
        let at = |end: LinkEnd| self.units.get(&end).copied();
        let Some((x, y)) = at(a).zip(at(b)) else { return format!("{a}-{b}") };
        let colour = |at: usize| self.colours.get(at).copied().unwrap_or(u32::MAX);
        let mut ends = [colour(x), colour(y)];
        ends.sort_unstable();
        format!("{ends:?} {}", self.label(x.min(y), x.max(y)))
    }

    /// Whether a symmetry of the node takes some units to others, in order. Units that the topology does not
    /// list, such as stores, are equal only to themselves.
    fn exchanges(&self, a: &[Unit], b: &[Unit]) -> bool {
        if a == b {
            return true;
        }
        let mut from = Vec::new();
        let mut to = Vec::new();
        for (&x, &y) in a.iter().zip(b) {
            match (self.units.get(&x.into()), self.units.get(&y.into())) {
                (Some(&x), Some(&y)) => {
                    from.push(x);
                    to.push(y);
                }
                (None, None) if x == y => {}
                _ => return false,
            }
        }
        a.len() == b.len() && self.extends(&from, &to, &mut MAX_STEPS.clone())
    }

    fn label(&self, a: usize, b: usize) -> u32 {
        self.pairs.get(a).and_then(|row| row.get(b)).copied().unwrap_or(u32::MAX)
    }

    /// Whether some symmetry takes each of `from` to its counterpart of `to`.
    fn extends(&self, from: &[usize], to: &[usize], steps: &mut usize) -> bool {
        let Some((left, right)) = self.refined(from, to, steps) else { return false };
        let mut cells: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (v, &colour) in left.iter().enumerate() {
            cells.entry(colour).or_default().push(v);
        }
        let open = cells.iter().filter(|(_, cell)| cell.len() > 1).min_by_key(|(_, c)| c.len());
        let Some((&colour, cell)) = open else {
            // All are distinct: the colours are the symmetry, if it is one.
            let image = |v: usize| right.iter().position(|c| Some(c) == left.get(v));
            let images: Vec<Option<usize>> = (0..left.len()).map(image).collect();
            return images.iter().enumerate().all(|(a, x)| {
                images.iter().enumerate().all(|(b, y)| {
                    x.zip(*y).is_some_and(|(x, y)| self.label(a, b) == self.label(x, y))
                })
            });
        };
        let Some(&first) = cell.first() else { return false };
        let targets = right.iter().enumerate().filter(|(_, c)| **c == colour).map(|(w, _)| w);
        targets.collect::<Vec<_>>().into_iter().any(|target| {
            let with = |list: &[usize], v: usize| [list, &[v]].concat();
            self.extends(&with(from, first), &with(to, target), steps)
        })
    }

    /// Colours of all units after `from` and `to` are singled out, refined by what each sees of the
    /// others until nothing changes; none if the two sides differ or the steps are used up.
    fn refined(
        &self,
        from: &[usize],
        to: &[usize],
        steps: &mut usize,
    ) -> Option<(Vec<u32>, Vec<u32>)> {
        let single = |chosen: &[usize]| -> Vec<u32> {
            let mut colours: Vec<u32> = self.colours.clone();
            let most = self.colours.iter().max().map_or(0, |c| c + 1);
            for (nth, &v) in chosen.iter().enumerate() {
                // A unit that is named twice must be met by one that is named twice: the last counts.
                if let Some(colour) = colours.get_mut(v) {
                    *colour = most + nth as u32;
                }
            }
            colours
        };
        let (mut left, mut right) = (single(from), single(to));
        let mut known = 0;
        loop {
            *steps = steps.checked_sub(1)?;
            let mut names: BTreeMap<Vec<(u32, u32, u32)>, u32> = BTreeMap::new();
            let mut rename = |colours: &[u32]| -> Vec<u32> {
                let signature = |v: usize| {
                    let mut seen: Vec<(u32, u32, u32)> = colours
                        .iter()
                        .enumerate()
                        .filter(|(u, _)| *u != v)
                        .map(|(u, &c)| (c, self.label(v, u), self.label(u, v)))
                        .collect();
                    seen.sort_unstable();
                    seen.push((colours.get(v).copied().unwrap_or(0), 0, 0));
                    seen
                };
                let signatures: Vec<_> = (0..colours.len()).map(signature).collect();
                let next = |names: &mut BTreeMap<_, u32>, s| {
                    let next = names.len() as u32;
                    *names.entry(s).or_insert(next)
                };
                signatures.into_iter().map(|s| next(&mut names, s)).collect()
            };
            left = rename(&left);
            right = rename(&right);
            let sorted = |colours: &[u32]| {
                let mut sorted = colours.to_vec();
                sorted.sort_unstable();
                sorted
            };
            if sorted(&left) != sorted(&right) {
                return None;
            }
            if names.len() == known {
                return Some((left, right));
            }
            known = names.len();
        }
    }
}

fn unit_label(topology: &Topology, unit: LinkEnd) -> String {
    match unit {
        LinkEnd::Gpu(n) => {
            let Some(gpu) = topology.gpus.iter().find(|gpu| gpu.index == n) else {
                return "gpu".into();
            };
            let link = gpu.host_link.unwrap_or_default();
            let peak = gpu.memory_peak.map_or(0, |peak| peak.0.round() as u64);
            format!(
                "gpu {} {} {} {peak} {}x{} {}",
                gpu.arch,
                gpu.memory.0 >> 30,
                gpu.compute_units,
                link.max_speed_gts,
                link.max_width,
                gpu.numa.is_some(),
            )
        }
        LinkEnd::Numa(n) => {
            let numa = topology.numa.iter().find(|numa| numa.id == n);
            let has_cpus = numa.is_some_and(|numa| !numa.cpus.is_empty());
            let peak = numa.and_then(|numa| numa.peak).map_or(0, |peak| peak.0.round() as u64);
            format!("numa {has_cpus} {peak}")
        }
        LinkEnd::Switch(_) => "switch".into(),
        LinkEnd::Store(n) => format!("store{n}"),
    }
}

/// What a topology states about pairs of units, by unit.
struct PairFacts<'t> {
    topology: &'t Topology,
    /// Kind and width of the links from one unit to another, both directions.
    links: BTreeMap<(LinkEnd, LinkEnd), Vec<String>>,
    /// PCI bridges above each GPU.
    bridges: BTreeMap<u32, Vec<String>>,
}

impl<'t> PairFacts<'t> {
    fn new(topology: &'t Topology) -> Self {
        let mut links: BTreeMap<(LinkEnd, LinkEnd), Vec<String>> = BTreeMap::new();
        for link in &topology.links {
            let text = format!("{}x{}", link.kind, link.width);
            links.entry((link.a, link.b)).or_default().push(text.clone());
            links.entry((link.b, link.a)).or_default().push(text);
        }
        links.values_mut().for_each(|list| list.sort_unstable());
        let parent: BTreeMap<&str, &str> = topology
            .pci
            .iter()
            .filter_map(|device| Some((device.address.as_str(), device.parent.as_deref()?)))
            .collect();
        let above = |address: &str| -> Vec<String> {
            // A broken source can have a loop of parents; no real tree is this deep.
            let up = std::iter::successors(parent.get(address), |at| parent.get(**at));
            up.take(32).map(|at| (*at).to_owned()).collect()
        };
        let bridges = topology.gpus.iter().map(|gpu| (gpu.index, above(&gpu.pci))).collect();
        Self { topology, links, bridges }
    }

    fn label(&self, a: LinkEnd, b: LinkEnd) -> String {
        let links = self.links.get(&(a, b)).map_or_else(String::new, |list| list.join("+"));
        let text = match (a, b) {
            (LinkEnd::Gpu(x), LinkEnd::Gpu(y)) if x != y => {
                let package = |n: u32| self.gpu(n).and_then(|gpu| gpu.package);
                let together = package(x).is_some() && package(x) == package(y);
                let hops = self.topology.routes.iter().find(|r| r.src == a && r.dst == b);
                let shared = if links.is_empty() { self.shared_bridges(x, y) } else { 0 };
                format!("{together} {} {shared}", hops.map_or(0, |route| route.hops))
            }
            (LinkEnd::Gpu(g), LinkEnd::Numa(n)) | (LinkEnd::Numa(n), LinkEnd::Gpu(g)) => {
                (self.gpu(g).and_then(|gpu| gpu.numa) == Some(n)).to_string()
            }
            (LinkEnd::Numa(x), LinkEnd::Numa(y)) => {
                let mut ids: Vec<u32> = self.topology.numa.iter().map(|n| n.id).collect();
                ids.sort_unstable();
                let row = self.topology.numa.iter().find(|numa| numa.id == x);
                let at = ids.iter().position(|id| *id == y);
                let distance = row.zip(at).and_then(|(row, at)| row.distances.get(at));
                format!("{distance:?}")
            }
            _ => String::new(),
        };
        format!("{links}/{text}")
    }

    fn gpu(&self, n: u32) -> Option<&pathline_schema::Gpu> {
        self.topology.gpus.iter().find(|gpu| gpu.index == n)
    }

    fn shared_bridges(&self, a: u32, b: u32) -> usize {
        let (Some(a), Some(b)) = (self.bridges.get(&a), self.bridges.get(&b)) else { return 0 };
        a.iter().filter(|bridge| b.contains(bridge)).count()
    }
}

/// The number of the class of each case: peers differ only in the units that they name, and a symmetry of the node
/// exchanges those.
pub fn peer_classes(topology: &Topology, cases: &[&Case]) -> Vec<usize> {
    NodePeers::new(topology).classes(cases.iter().map(|case| unit_shape(&case.to_string())))
}

/// A text with its units numbered by first appearance, and the units: `gpu6.vram > gpu2.vram by dma@gpu6` is
/// `gpu#0.vram > gpu#1.vram by dma@gpu#0` of gpu6, gpu2.
pub fn unit_shape(text: &str) -> (String, Vec<Unit>) {
    let mut units: Vec<Unit> = Vec::new();
    let shape = rename_units(text, |kind, unit| {
        let nth = units.iter().position(|known| *known == unit).unwrap_or_else(|| {
            units.push(unit);
            units.len() - 1
        });
        format!("{kind}#{nth}")
    });
    (shape, units)
}

/// A text with other names for its units; `name` gets the kind (`gpu`) and the unit.
pub(crate) fn rename_units(text: &str, mut name: impl FnMut(&str, Unit) -> String) -> String {
    let mut renamed = String::with_capacity(text.len());
    let mut rest = text;
    let next =
        |rest: &str| ["gpu", "numa", "store"].iter().filter_map(|kind| rest.find(kind)).min();
    while let Some(at) = next(rest) {
        let (before, from) = rest.split_at(at);
        renamed.push_str(before);
        let letters = from.len() - from.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (kind, number) = from.split_at(letters);
        let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (old, after) = from.split_at(letters + digits);
        match old.parse::<Unit>() {
            Ok(unit) => renamed.push_str(&name(kind, unit)),
            Err(_) => renamed.push_str(old),
        }
        rest = after;
    }
    renamed + rest
}

/// A time next to those of its peers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeerRatio {
    /// Speed divided by the median speed of the others.
    pub ratio: f64,
    /// The least and the greatest that the intervals allow for it.
    pub range: (f64, f64),
    /// Whether it is slower than normal.
    pub slow: bool,
}

/// Compares times, in any unit, each with the others; none of fewer than two. One is slow if it is longer than the
/// median of the others by more than the share `normal`, by more than four times the distance that holds three
/// quarters of their faster half, and with an interval that does not meet theirs.
pub fn compare_with_peers(times: &[MedianInterval], normal: f64) -> Vec<PeerRatio> {
    let one = |(nth, time): (usize, &MedianInterval)| -> Option<PeerRatio> {
        let others = times.iter().enumerate().filter(|(n, _)| *n != nth).map(|(_, time)| time);
        let quantile = |of: fn(&MedianInterval) -> f64, q: f64| {
            interpolated(&ascending(others.clone().map(of)), q)
        };
        let reference = quantile(|time| time.median, 0.5)?;
        let (low, high) = (quantile(|time| time.low, 0.5)?, quantile(|time| time.high, 0.5)?);
        // Nothing is too fast, so the fast side shows what is normal, however many are slow.
        let spread = (1.0 - quantile(|time| time.median, 0.125)? / reference).max(0.0);
        let slow = time.median / reference - 1.0 > normal.max(TIMES_SPREAD * spread);
        Some(PeerRatio {
            ratio: reference / time.median,
            range: (low / time.high, high / time.low),
            slow: slow && time.low > high,
        })
    };
    times.iter().enumerate().filter_map(one).collect()
}

/// The median of sorted values without one that equals `value`; none if there is no other.
pub(crate) fn median_without(sorted: &[f64], value: f64) -> Option<f64> {
    let at = sorted.partition_point(|x| *x < value);
    let others = sorted.len().checked_sub(1).filter(|n| *n > 0)?;
    let nth = |n: usize| sorted.get(if n < at { n } else { n + 1 }).copied();
    let (low, high) = (nth((others - 1) / 2)?, nth(others / 2)?);
    interpolated(&[low, high], 0.5)
}

#[cfg(test)]
mod tests;
