//! Traffic of a node's paths as a share of their capacity, and which path limits.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{Network, NoPath};
use pathline_schema::{
    Bytes, Case, KernelOp, KernelVariant, LinkEnd, MemKind, Mover, NoRate, Place, Rank, Rate,
    Topology, TrafficCounter, TrafficMoved, TrafficPath, TrafficReading, TrafficWay, UncountedPath,
    Unit,
};

use crate::RunDigest;

/// Share of what was measured or is modelled from which a path limits what passes it.
const FULL_SHARE: f64 = 0.9;
/// The same of a peak, which protocols leave 71 % (four xGMI links of an MI250X) to 93 % of.
const FULL_PEAK_SHARE: f64 = 0.7;

/// Bytes of the copies whose rate is the capacity of a path.
const CAPACITY_BYTES: Bytes = Bytes::gib(1);

/// Where a capacity is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacitySource {
    /// The fastest copy of a run of this node.
    Measured,
    /// A twin of this node.
    Twin,
    /// The description of the simulated machine itself.
    Model,
    /// Width and speed alone: nothing reaches all of it.
    Peak,
}

impl CapacitySource {
    /// Its word for people and programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Twin => "twin",
            Self::Model => "model",
            Self::Peak => "peak",
        }
    }
}

/// The most that one direction of a path can carry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathCapacity {
    /// In the bytes that its counter counts.
    pub rate: Rate,
    /// Where it is from.
    pub source: CapacitySource,
}

/// What is known of a node's capacities. The first of a run, a network and the peaks of its topology that knows a
/// path decides.
#[derive(Debug)]
pub struct NodeCapacities {
    topology: Topology,
    network: Option<(Network, CapacitySource)>,
    /// Best rate of a copy alone, by its ends.
    measured: BTreeMap<(Unit, Unit), Rate>,
}

impl NodeCapacities {
    /// Of a node.
    pub fn new(topology: Topology) -> Self {
        Self { topology, network: None, measured: BTreeMap::new() }
    }

    /// The same with a description of the node.
    #[must_use]
    pub fn with_network(self, network: Network, source: CapacitySource) -> Self {
        Self { network: Some((network, source)), ..self }
    }

    /// The same with what a run of the node measured.
    #[must_use]
    pub fn with_run(mut self, run: &RunDigest) -> Self {
        for text in run.cases.keys() {
            let Ok(case) = text.parse::<Case>() else { continue };
            let ([flow], true) = (case.timed.as_slice(), case.background.is_empty()) else {
                continue;
            };
            let time = run.time_of(&case).filter(|ns| *ns > 0.0 && flow.by.has_rate());
            let Some(time) = time else { continue };
            let rate = Rate(flow.bytes.as_f64() / time);
            let best = self.measured.entry((flow.src.unit, flow.dst.unit)).or_insert(rate);
            *best = Rate(best.0.max(rate.0));
        }
        self
    }

    /// The node.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The most that a direction of a path can carry; none if nothing states it.
    pub fn capacity(&self, path: &TrafficPath, way: TrafficWay) -> Option<PathCapacity> {
        let measured = |src, dst| self.measured.get(&(src, dst)).copied();
        let found = self.links(path, way, &measured);
        let found = found.map(|rate| PathCapacity { rate, source: CapacitySource::Measured });
        let of_network = || {
            let (network, source) = self.network.as_ref()?;
            let rate = self.links(path, way, &|src, dst| best_rate(network, src, dst));
            rate.map(|rate| PathCapacity { rate, source: *source })
        };
        let of_peak = || {
            let rate = self.peak(path)?;
            Some(PathCapacity { rate, source: CapacitySource::Peak })
        };
        found
            .or_else(of_network)
            .or_else(of_peak)
            .filter(|c| c.rate.0 > 0.0 && c.rate.0.is_finite())
    }

    /// The rate of links by that of copies over them.
    fn links(
        &self,
        path: &TrafficPath,
        way: TrafficWay,
        copies: &dyn Fn(Unit, Unit) -> Option<Rate>,
    ) -> Option<Rate> {
        let TrafficPath::Links { from: LinkEnd::Gpu(gpu), to, kind } = path else { return None };
        let near = Unit::Gpu(*gpu);
        let towards = |far: Unit| match way {
            TrafficWay::Out => copies(near, far),
            TrafficWay::In => copies(far, near),
        };
        let best = |rates: &mut dyn Iterator<Item = Rate>| rates.reduce(|a, b| Rate(a.0.max(b.0)));
        let domains = || self.topology.numa.iter().map(|domain| Unit::Numa(domain.id));
        match to {
            Some(LinkEnd::Gpu(far)) => towards(Unit::Gpu(*far)),
            Some(LinkEnd::Numa(_)) => best(&mut domains().filter_map(towards)),
            // A link to the host whose domain is not known.
            None if *kind == pathline_schema::LinkKind::Pcie => {
                best(&mut domains().filter_map(towards))
            }
            None => {
                let mut links = self.topology.links.iter().filter(|link| link.kind == *kind);
                let far = |end: LinkEnd| match end {
                    LinkEnd::Gpu(far) => Some(Unit::Gpu(far)),
                    _ => None,
                };
                let is_switched = links.any(|link| {
                    matches!((link.a, link.b), (LinkEnd::Switch(_), end) | (end, LinkEnd::Switch(_))
                        if end == LinkEnd::Gpu(*gpu))
                });
                if is_switched {
                    // One peer takes all that a GPU can send to its switches.
                    let gpus = self.topology.gpus.iter().map(|gpu| Unit::Gpu(gpu.index));
                    return best(&mut gpus.filter(|unit| *unit != near).filter_map(towards));
                }
                let peers: BTreeSet<Unit> = self
                    .topology
                    .links
                    .iter()
                    .filter(|link| link.kind == *kind)
                    .filter_map(|link| match (link.a, link.b) {
                        (LinkEnd::Gpu(g), end) | (end, LinkEnd::Gpu(g)) if g == *gpu => far(end),
                        _ => None,
                    })
                    .collect();
                let rates: Vec<Rate> = peers.into_iter().map(towards).collect::<Option<_>>()?;
                (!rates.is_empty()).then(|| rates.into_iter().sum())
            }
            Some(LinkEnd::Switch(_) | LinkEnd::Store(_)) => None,
        }
    }

    /// By width and speed alone.
    fn peak(&self, path: &TrafficPath) -> Option<Rate> {
        let topology = &self.topology;
        match path {
            TrafficPath::Links { from, to, kind } => {
                let of = topology.links.iter().filter(|link| link.kind == *kind);
                let joined = of.filter(|link| {
                    let far = if link.a == *from { link.b } else { link.a };
                    [link.a, link.b].contains(from) && to.is_none_or(|to| to == far)
                });
                let peaks: Vec<Rate> = joined.map(|link| link.peak).collect::<Option<_>>()?;
                if !peaks.is_empty() {
                    return Some(peaks.into_iter().sum());
                }
                let gpu = topology.gpus.iter().find(|gpu| LinkEnd::Gpu(gpu.index) == *from)?;
                gpu.host_link.map(|link| link.peak())
            }
            TrafficPath::Adapter(name) => {
                let device = name.split(':').next()?;
                let nic = topology.nics.iter().find(|nic| nic.name == device)?;
                nic.speed_mbits.map(|mbits| Rate(mbits as f64 / 8e3))
            }
            TrafficPath::Memory(_) | TrafficPath::Disk(_) => None,
        }
    }
}

/// The rate of the fastest copy from one unit to another in a description.
fn best_rate(network: &Network, src: Unit, dst: Unit) -> Option<Rate> {
    let place = |unit: Unit| {
        let mem = if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned };
        Place { rank: Rank(0), unit, mem }
    };
    let ends = [src, dst].into_iter().filter(|unit| unit.gpu().is_some());
    let movers = ends.flat_map(|at| {
        let variant = KernelVariant::standard(KernelOp::Copy);
        [Mover::Dma { at }, Mover::Blit { at }, Mover::Kernel { at, variant }]
    });
    let predicted = movers.filter_map(|by| {
        let case = Case::single(place(src), place(dst), by, CAPACITY_BYTES);
        let predicted: Result<_, NoPath> = network.predict(&case);
        Some(predicted.ok()?.first()?.rate)
    });
    // A twin knows the paths that were measured, by whatever mover.
    let paths = network.measured().paths.iter();
    let known = paths.filter(|path| (path.key.src.unit, path.key.dst.unit) == (src, dst));
    let rates = predicted.chain(known.map(|path| path.known.rate));
    rates.reduce(|a, b| Rate(a.0.max(b.0)))
}

/// One direction of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct WayTraffic {
    /// The direction.
    pub way: TrafficWay,
    /// Where its counter is read.
    pub source: String,
    /// What passed, or why that is not known.
    pub moved: Result<TrafficMoved, NoRate>,
    /// The most that can pass.
    pub capacity: Option<PathCapacity>,
}

impl WayTraffic {
    /// Its rate as a share of its capacity.
    pub fn share(&self) -> Option<f64> {
        let moved = self.moved.as_ref().ok()?;
        Some(moved.rate() / self.capacity?.rate)
    }

    /// Whether it carries what it can. Of a peak that is likely, not sure, below the share that counts otherwise.
    pub fn is_full(&self) -> bool {
        let is_peak = self.capacity.is_some_and(|c| c.source == CapacitySource::Peak);
        let least = if is_peak { FULL_PEAK_SHARE } else { FULL_SHARE };
        self.share().is_some_and(|share| share >= least)
    }

    /// Whether that is sure.
    pub fn is_surely_full(&self) -> bool {
        self.share().is_some_and(|share| share >= FULL_SHARE)
    }

    /// Whether it was read and nothing passed.
    pub fn is_idle(&self) -> bool {
        self.moved.as_ref().is_ok_and(|moved| moved.bytes.0 == 0)
    }

    /// Whether something passed.
    pub fn is_busy(&self) -> bool {
        self.moved.as_ref().is_ok_and(|moved| moved.bytes.0 > 0)
    }
}

/// The traffic of a node between two readings, by path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeTraffic {
    /// Counted paths with their directions, in the order of their counters.
    pub paths: Vec<(TrafficPath, Vec<WayTraffic>)>,
    /// Paths that nothing counts.
    pub uncounted: Vec<UncountedPath>,
}

/// What limits a node's traffic now.
#[derive(Debug, Clone, PartialEq)]
pub enum TrafficLimit<'t> {
    /// These directions of paths, the fullest first.
    Paths(Vec<(&'t TrafficPath, &'t WayTraffic)>),
    /// No path with a known share is full; this one is the fullest.
    NoneCounted(&'t TrafficPath, &'t WayTraffic),
    /// No share is known.
    Unknown,
}

impl NodeTraffic {
    /// What passed between two readings of all counters.
    pub fn between(
        counters: &[TrafficCounter],
        (before, after): (&[TrafficReading], &[TrafficReading]),
        uncounted: &[UncountedPath],
        capacities: &NodeCapacities,
    ) -> Self {
        let mut paths: Vec<(TrafficPath, Vec<WayTraffic>)> = Vec::new();
        for ((counter, before), after) in counters.iter().zip(before).zip(after) {
            let way = WayTraffic {
                way: counter.way,
                source: counter.source.clone(),
                moved: counter.moved(before, after),
                capacity: capacities.capacity(&counter.path, counter.way),
            };
            match paths.iter_mut().find(|(path, _)| *path == counter.path) {
                Some((_, ways)) => ways.push(way),
                None => paths.push((counter.path.clone(), vec![way])),
            }
        }
        Self { paths, uncounted: uncounted.to_vec() }
    }

    /// The directions of all paths.
    pub fn ways(&self) -> impl Iterator<Item = (&TrafficPath, &WayTraffic)> {
        self.paths.iter().flat_map(|(path, ways)| ways.iter().map(move |way| (path, way)))
    }

    /// What limits now.
    pub fn limit(&self) -> TrafficLimit<'_> {
        let share = |way: &WayTraffic| way.share().unwrap_or(-1.0);
        let mut known: Vec<_> = self.ways().filter(|(_, way)| way.share().is_some()).collect();
        known.sort_by(|(_, a), (_, b)| share(b).total_cmp(&share(a)));
        let full: Vec<_> = known.iter().copied().filter(|(_, way)| way.is_full()).collect();
        match (full.is_empty(), known.first()) {
            (false, _) => TrafficLimit::Paths(full),
            (true, Some((path, way))) => TrafficLimit::NoneCounted(path, way),
            (true, None) => TrafficLimit::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_schema::{LinkKind, Nic, Ns};

    use super::*;

    fn capacities(machine: &str) -> NodeCapacities {
        let desc = MachineDesc::preset(machine).unwrap();
        NodeCapacities::new(desc.topology())
    }

    fn modelled(machine: &str) -> NodeCapacities {
        let desc = MachineDesc::preset(machine).unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        capacities(machine).with_network(network, CapacitySource::Model)
    }

    fn links(gpu: u32, to: Option<LinkEnd>, kind: LinkKind) -> TrafficPath {
        TrafficPath::Links { from: LinkEnd::Gpu(gpu), to, kind }
    }

    fn shown(of: &NodeCapacities, path: &TrafficPath, way: TrafficWay) -> String {
        let capacity = of.capacity(path, way);
        capacity.map_or("unknown".into(), |c| format!("{} {}", c.rate, c.source.word()))
    }

    #[test]
    fn a_run_comes_before_a_model_and_that_before_the_peak() {
        let pair = links(0, Some(LinkEnd::Gpu(1)), LinkKind::Xgmi);
        let far = links(0, Some(LinkEnd::Gpu(2)), LinkKind::Xgmi);
        assert_eq!(shown(&capacities("mi250x"), &pair, TrafficWay::Out), "200 GB/s peak");
        let model = modelled("mi250x");
        let of_model = model.capacity(&pair, TrafficWay::Out).unwrap();
        assert!(of_model.rate.0 < 200.0 && of_model.source == CapacitySource::Model);
        let time = |gbs: f64| (1, (1u64 << 30) as f64 / gbs, 0.0, 0.0, 1, String::new());
        let run: RunDigest = serde_json::from_value(serde_json::json!({
            "digest": 1, "version": "", "host": "", "started": "", "hardware": "", "software": "",
            "cases": {
                "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1GiB": time(50.0),
                "r0.gpu0.vram > r0.gpu1.vram by blit@gpu0 x 1GiB": time(140.0),
            },
        }))
        .unwrap();
        let known = model.with_run(&run);
        assert_eq!(shown(&known, &pair, TrafficWay::Out), "140 GB/s measured");
        // The other direction and other pairs were not measured.
        assert!(shown(&known, &pair, TrafficWay::In).ends_with("model"));
        assert!(shown(&known, &far, TrafficWay::Out).ends_with("model"));
    }

    #[test]
    fn counters_of_all_links_have_the_capacity_of_all_links() {
        // One peer fills the links to switches; direct links add up.
        let all = links(0, None, LinkKind::Nvlink);
        let switched = modelled("hgx-h200").capacity(&all, TrafficWay::Out).unwrap().rate.0;
        assert!((300.0..450.0).contains(&switched), "{switched}");
        let direct = modelled("mi250x");
        let sum = |peers: [u32; 3]| {
            let one = |peer| links(0, Some(LinkEnd::Gpu(peer)), LinkKind::Xgmi);
            peers.map(|p| direct.capacity(&one(p), TrafficWay::In).unwrap().rate.0).iter().sum()
        };
        let expected: f64 = sum([1, 2, 6]);
        let all = direct.capacity(&links(0, None, LinkKind::Xgmi), TrafficWay::In).unwrap();
        assert!((all.rate.0 - expected).abs() < 1e-6, "{} {expected}", all.rate);
    }

    #[test]
    fn the_fullest_path_limits_and_without_one_nothing_counted_does() {
        let adapter =
            |name: &str, mbits| Nic { name: name.into(), speed_mbits: mbits, ..Nic::default() };
        let nics = vec![adapter("a", Some(80_000)), adapter("b", Some(80_000)), adapter("c", None)];
        let node = NodeCapacities::new(Topology { nics, ..Topology::default() });
        let counter = |name: &str| TrafficCounter {
            path: TrafficPath::Adapter(name.into()),
            way: TrafficWay::Out,
            grain: 1,
            bits: 64,
            source: "sysfs".into(),
        };
        let counters = ["a", "b", "c"].map(counter);
        let reading = |ns, counts: [u64; 3]| {
            counts.map(|count| TrafficReading { at: Ns(ns), count: Ok(count) })
        };
        let (begun, mut ended) = (reading(0.0, [0; 3]), reading(1e9, [9e9 as u64, 1e9 as u64, 7]));
        let traffic = |ended: &[_]| NodeTraffic::between(&counters, (&begun, ended), &[], &node);
        let busy = traffic(&ended);
        let TrafficLimit::Paths(full) = busy.limit() else { panic!("{busy:?}") };
        assert_eq!(
            (full.len(), full[0].0.to_string(), full[0].1.share()),
            (1, "a".into(), Some(0.9))
        );
        ended[0].count = Err("gone".into());
        let calm = traffic(&ended);
        let TrafficLimit::NoneCounted(path, way) = calm.limit() else { panic!("{calm:?}") };
        assert_eq!((path.to_string(), way.share()), ("b".into(), Some(0.1)));
        ended[1].at = Ns(0.0);
        assert_eq!(traffic(&ended).limit(), TrafficLimit::Unknown);
    }
}
