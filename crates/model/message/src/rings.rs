//! Rings over the links of a node: as many, as fast as the links allow at once.
//!
//! A ring passes every GPU once and carries one stream at one speed; several rings share the links.
//! Direct links come first: an edge that passes another GPU takes two links of the fabric for the
//! work of one, so rings with such edges are looked for only where none do without.

use std::collections::{BTreeMap, HashMap};

use pathline_flow::routes::RouteTable;
use pathline_schema::LinkEnd;

use crate::ring_packing::{degree_bound, disjoint_rings};

/// The most rings of one kind that are listed, and steps of a search for them.
const MAX_LISTED: usize = 512;
const MAX_STEPS: usize = 50_000;
/// The most steps of choosing among them.
const MAX_CHOICES: usize = 5_000;
/// Peaks are compared with this much to spare.
const NEARLY: f64 = 1.0 - 1e-9;

/// One ring: its GPUs in the order of the stream, each once.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuRing {
    /// GPUs by number; the last sends to the first.
    pub gpus: Vec<u32>,
    /// The peak that the search gave it, in GB/s; infinite if no peak is known.
    pub peak_gbs: f64,
    /// Number of edges that pass another GPU.
    pub routed: u32,
}

/// A stretch that an edge of a ring takes.
type RingLane = (LinkEnd, LinkEnd);

struct RingGraph {
    /// Stretches of every ordered pair, and whether it passes another GPU.
    edges: HashMap<(u32, u32), (Vec<RingLane>, bool)>,
    /// Peaks, GB/s.
    free: BTreeMap<RingLane, f64>,
}

impl RingGraph {
    fn new(routes: &RouteTable, gpus: &[u32]) -> Self {
        let (mut edges, mut free) = (HashMap::new(), BTreeMap::new());
        let pairs = gpus.iter().flat_map(|&a| gpus.iter().map(move |&b| (a, b)));
        for (a, b) in pairs.filter(|(a, b)| a != b) {
            let (from, to) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
            let Some(used) = routes.in_use(from, to) else { continue };
            let mut lanes = Vec::new();
            if used.striped {
                // All routes over switches at once: the ends' own links are what is shared.
                if let Some(peak) = used.peak {
                    for lane in [(from, LinkEnd::Switch(0)), (LinkEnd::Switch(0), to)] {
                        free.insert(lane, peak.0);
                        lanes.push(lane);
                    }
                }
            } else if let Some(path) = used.paths.first() {
                for (&x, &y) in path.nodes.iter().zip(path.nodes.iter().skip(1)) {
                    if let Some(peak) = routes.direct(x, y).and_then(|bundle| bundle.peak) {
                        free.insert((x, y), peak.0);
                        lanes.push((x, y));
                    }
                }
            }
            let gpu = |n: &&LinkEnd| matches!(n, LinkEnd::Gpu(_));
            let routed = used.paths.first().is_some_and(|p| p.nodes.iter().filter(gpu).count() > 2);
            edges.insert((a, b), (lanes, routed));
        }
        Self { edges, free }
    }

    fn lanes(&self, a: u32, b: u32) -> &[RingLane] {
        self.edges.get(&(a, b)).map(|(lanes, _)| lanes.as_slice()).unwrap_or_default()
    }

    fn routed(&self, a: u32, b: u32) -> u32 {
        self.edges.get(&(a, b)).map_or(1, |&(_, routed)| u32::from(routed))
    }

    /// Takes a stretch for one more stream, or gives all of `lanes` back if one is full.
    fn take(&mut self, lanes: &[RingLane], speed: f64) -> bool {
        for (i, lane) in lanes.iter().enumerate() {
            let left = self.free.get_mut(lane);
            match left {
                Some(left) if *left >= speed * NEARLY => *left -= speed,
                _ => {
                    let taken = lanes.get(..i).unwrap_or_default();
                    self.give(taken, speed);
                    return false;
                }
            }
        }
        true
    }

    fn give(&mut self, lanes: &[RingLane], speed: f64) {
        for lane in lanes {
            if let Some(left) = self.free.get_mut(lane) {
                *left += speed;
            }
        }
    }

    /// All stretches of a ring, one edge after the other.
    fn ring_lanes(&self, gpus: &[u32]) -> Vec<RingLane> {
        closed(gpus).flat_map(|(a, b)| self.lanes(a, b).iter().copied()).collect()
    }

    /// Rings over `gpus` at `speed` with at most `routed` edges over another GPU, and whether these
    /// are all.
    fn list(&mut self, gpus: &[u32], speed: f64, routed: u32) -> (Vec<Vec<u32>>, bool) {
        let Some((&first, rest)) = gpus.split_first() else { return (Vec::new(), true) };
        let mut search = RingListing { found: Vec::new(), steps: 0, speed, gpus: rest.to_vec() };
        search.extend(self, &mut vec![first], routed);
        let complete = search.steps <= MAX_STEPS && search.found.len() < MAX_LISTED;
        (search.found, complete)
    }

    /// The number of streams at `speed` that the direct link of each pair carries; `None` where a
    /// pair without a GPU between shares links with others, as over switches.
    fn direct_slots(&self, gpus: &[u32], speed: f64) -> Option<Vec<Vec<u32>>> {
        let slot = |a: u32, b: u32| match self.edges.get(&(a, b)) {
            None | Some((_, true)) => Some(0),
            Some((lanes, false)) => match lanes.as_slice() {
                [lane] if *lane == (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => {
                    self.free.get(lane).map(|peak| (peak / (speed * NEARLY)).floor() as u32)
                }
                _ => None,
            },
        };
        gpus.iter().map(|&a| gpus.iter().map(|&b| slot(a, b)).collect()).collect()
    }
}

struct RingListing {
    found: Vec<Vec<u32>>,
    steps: usize,
    speed: f64,
    gpus: Vec<u32>,
}

impl RingListing {
    fn extend(&mut self, graph: &mut RingGraph, ring: &mut Vec<u32>, routed: u32) {
        self.steps += 1;
        let spent = self.steps > MAX_STEPS || self.found.len() >= MAX_LISTED;
        let (Some(&first), Some(&at), false) = (ring.first(), ring.last(), spent) else { return };
        if ring.len() == self.gpus.len() + 1 {
            let lanes = graph.lanes(at, first).to_vec();
            if graph.routed(at, first) <= routed && graph.take(&lanes, self.speed) {
                graph.give(&lanes, self.speed);
                self.found.push(ring.clone());
            }
            return;
        }
        for next in self.gpus.clone() {
            let cost = graph.routed(at, next);
            if ring.contains(&next) || cost > routed {
                continue;
            }
            let lanes = graph.lanes(at, next).to_vec();
            if graph.take(&lanes, self.speed) {
                ring.push(next);
                self.extend(graph, ring, routed - cost);
                ring.pop();
                graph.give(&lanes, self.speed);
            }
        }
    }
}

/// As many of the listed rings as fit side by side.
struct RingChoice<'a> {
    graph: RingGraph,
    listed: &'a [Vec<RingLane>],
    speed: f64,
    most: usize,
    best: Vec<usize>,
    steps: usize,
}

impl RingChoice<'_> {
    fn choose(&mut self, from: usize, chosen: &mut Vec<usize>) {
        self.steps += 1;
        if chosen.len() > self.best.len() {
            self.best.clone_from(chosen);
        }
        let hopeless = chosen.len() + self.listed.len().saturating_sub(from) <= self.best.len();
        if self.steps > MAX_CHOICES || self.best.len() >= self.most || hopeless {
            return;
        }
        for i in from..self.listed.len() {
            let Some(lanes) = self.listed.get(i) else { continue };
            if self.graph.take(lanes, self.speed) {
                chosen.push(i);
                self.choose(i + 1, chosen);
                chosen.pop();
                self.graph.give(lanes, self.speed);
            }
        }
    }
}

fn closed(gpus: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
    gpus.iter().copied().zip(gpus.iter().copied().cycle().skip(1))
}

/// Rings over direct links, if more than `known` of them fit.
fn packed(
    graph: &RingGraph,
    gpus: &[u32],
    speed: f64,
    most: usize,
    known: usize,
) -> Option<Vec<Vec<u32>>> {
    let slots = graph.direct_slots(gpus, speed)?;
    if degree_bound(&slots).min(most) <= known {
        return None;
    }
    let rings = disjoint_rings(&slots, most);
    let named = |ring: Vec<usize>| ring.into_iter().filter_map(|i| gpus.get(i).copied()).collect();
    (rings.len() > known).then(|| rings.into_iter().map(named).collect())
}

/// The rings over `gpus`: of all speeds that a link's peak or half of it suggests, the set with
/// the largest sum; with equal sums the fewest rings. At most `most`. Never empty for two GPUs and
/// more.
pub fn rings(routes: &RouteTable, gpus: &[u32], most: usize) -> Vec<GpuRing> {
    let mut graph = RingGraph::new(routes, gpus);
    let plain = |peak_gbs| GpuRing { gpus: gpus.to_vec(), peak_gbs, routed: 0 };
    if gpus.len() < 2 || graph.free.is_empty() {
        return vec![plain(f64::INFINITY)];
    }
    let mut speeds: Vec<f64> = graph.free.values().flat_map(|&peak| [peak, peak / 2.0]).collect();
    speeds.sort_by(|a, b| b.total_cmp(a));
    speeds.dedup();
    for routed in 0..=gpus.len() as u32 {
        let mut best: Vec<GpuRing> = Vec::new();
        for &speed in &speeds {
            let (mut listed, complete) = graph.list(gpus, speed, routed);
            let lanes: Vec<Vec<RingLane>> =
                listed.iter().map(|ring| graph.ring_lanes(ring)).collect();
            let mut choice = RingChoice {
                graph: RingGraph { edges: HashMap::new(), free: graph.free.clone() },
                listed: &lanes,
                speed,
                most,
                best: Vec::new(),
                steps: 0,
            };
            choice.choose(0, &mut Vec::new());
            let sum = |rings: &[GpuRing]| rings.iter().map(|r| r.peak_gbs).sum::<f64>();
            let mut chosen: Vec<Vec<u32>> =
                choice.best.iter().filter_map(|&i| listed.get_mut(i).map(std::mem::take)).collect();
            // Where rings were left out, more may fit than those listed first.
            if routed == 0 && !(complete && choice.steps <= MAX_CHOICES) {
                let known = chosen.len().max((sum(&best) / speed * NEARLY) as usize);
                if let Some(more) = packed(&graph, gpus, speed, most, known) {
                    chosen = more;
                }
            }
            let rings: Vec<GpuRing> = chosen
                .into_iter()
                .map(|gpus| GpuRing {
                    peak_gbs: speed,
                    routed: closed(&gpus).map(|(a, b)| graph.routed(a, b)).sum(),
                    gpus,
                })
                .collect();
            if sum(&rings) > sum(&best) * (1.0 + 1e-9) {
                best = rings;
            }
        }
        if !best.is_empty() {
            return best;
        }
    }
    // Links that carry no ring at any of these speeds: one in the given order, at what it gets.
    vec![plain(speeds.last().copied().unwrap_or(f64::INFINITY))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_flow::MachineDesc;

    fn mi250x() -> RouteTable {
        RouteTable::of(&MachineDesc::preset("mi250x").unwrap().topology())
    }

    fn rings_of(n: u32) -> Vec<GpuRing> {
        rings(&mi250x(), &(0..n).collect::<Vec<_>>(), 32)
    }

    /// Ten links per direction join the packages (02 46 13 15 37 57, 06 and 24 twice). A ring
    /// crosses four times, so two fit per direction: four in all. Without GCD 7 its neighbour 6 is
    /// reached by 06 and 46 alone, 5 by 45 and 15 alone; that leaves one ring and its reverse.
    #[test]
    fn the_eighth_gcd_doubles_the_rings() {
        let (seven, eight) = (rings_of(7), rings_of(8));
        assert_eq!((seven.len(), eight.len()), (2, 4));
        assert!(seven.iter().chain(&eight).all(|r| r.peak_gbs == 50.0 && r.routed == 0));
        assert_eq!(seven[0].gpus, [0, 2, 3, 1, 5, 4, 6]);
        assert_eq!(seven[1].gpus, [0, 6, 4, 5, 1, 3, 2]);
    }

    #[test]
    fn every_ring_passes_every_gpu_and_no_lane_is_overdrawn() {
        for n in 2..=8 {
            let found = rings_of(n);
            let routes = mi250x();
            let gpus: Vec<u32> = (0..n).collect();
            let mut graph = RingGraph::new(&routes, &gpus);
            for ring in &found {
                let mut sorted = ring.gpus.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, gpus);
                let lanes = graph.ring_lanes(&ring.gpus);
                assert!(graph.take(&lanes, ring.peak_gbs), "{n}: {found:?}");
            }
        }
    }

    /// Two GCDs of a package: one ring over four links. Four: 0-1-3-2 and back over single links.
    /// Five: GCD 4 hangs on 2 alone, so an edge passes another GCD.
    #[test]
    fn small_groups() {
        assert_eq!(rings_of(2), [GpuRing { gpus: vec![0, 1], peak_gbs: 200.0, routed: 0 }]);
        let four = rings_of(4);
        assert_eq!((four.len(), four[0].peak_gbs, four[0].routed), (2, 50.0, 0));
        assert!(rings_of(5).iter().all(|r| r.routed == 1));
    }

    /// A node of `n` GPUs with one link of 64 GB/s between every two, as MI300X has 8.
    fn fully_connected(n: u32) -> RouteTable {
        let mut topology = MachineDesc::preset("mi250x").unwrap().topology();
        topology.gpus.truncate(n as usize);
        let mut link = topology.links[0].clone();
        topology.links.clear();
        topology.routes.clear();
        for a in 0..n {
            for b in a + 1..n {
                (link.a, link.b) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
                topology.links.push(link.clone());
            }
        }
        RouteTable::of(&topology)
    }

    /// Eight fully connected GPUs send over 7 links each: 7 rings use all 56 directed links. Four
    /// have no 3 rings at full speed, but 6 at half of it.
    #[test]
    fn fully_connected_nodes_use_every_link() {
        for (n, count) in [(3, 2), (4, 6), (5, 4), (6, 10), (7, 6), (8, 7)] {
            let routes = fully_connected(n);
            let gpus: Vec<u32> = (0..n).collect();
            let found = rings(&routes, &gpus, 32);
            assert_eq!(found.len(), count, "{n}");
            let mut graph = RingGraph::new(&routes, &gpus);
            let peak = *graph.free.values().next().unwrap();
            let sum: f64 = found.iter().map(|ring| ring.peak_gbs).sum();
            assert!((sum / (f64::from(n - 1) * peak) - 1.0).abs() < 1e-9, "{n}: {found:?}");
            for ring in &found {
                let lanes = graph.ring_lanes(&ring.gpus);
                assert!(graph.take(&lanes, ring.peak_gbs) && ring.routed == 0, "{n}: {found:?}");
            }
        }
    }

    /// Switches: each GPU has 18 links that any partner can use, so one ring takes them all.
    #[test]
    fn one_ring_fills_a_switched_node() {
        let routes = RouteTable::of(&MachineDesc::preset("hgx-h200").unwrap().topology());
        let found = rings(&routes, &(0..8).collect::<Vec<_>>(), 32);
        assert_eq!(found.len(), 1);
        assert!(found[0].peak_gbs > 400.0, "{found:?}");
    }
}
