//! Lower bounds for any library: cuts of the links, and the paper's count of passes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use pathline_flow::Network;
use pathline_flow::routes::RouteTable;
use pathline_schema::{
    Bytes, Collective, Flow, LinkEnd, MemKind, Mover, Ns, Place, Rate, Topology, Unit,
};

use crate::cut::NodeCut;
use crate::exchange::{BufferPair, BufferPlace, ExchangeMember, ExchangeOp, ExchangeSpec};

/// A stretch between two units, one direction.
type UnitStep = (LinkEnd, LinkEnd);
/// A stretch of a pair's route, the part of the pair's bytes that it carries, and its peak in GB/s.
type PairShare = (UnitStep, f64, f64);
type PairShares = Arc<Vec<PairShare>>;

const NOTHING: &str = "nothing that is known";

/// Nodes of up to 12 GPUs have all their cuts tried; larger ones only the cuts around one or two GPUs.
const CUT_GPUS: usize = 12;

/// Size from which every library moves bytes by copies, so that [`TimeBounds::latency`] holds for all
/// of them (docs/understand/model.md). Smaller buffers may go through host memory or by flags of a kernel.
pub const LEAST_COPIED: Bytes = Bytes::kib(64);

/// Lower bounds of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeBounds {
    /// Passes times the smallest copy latency between two GPUs of the node: the paper's bound for
    /// what is done by the runtime's copies. Host-staged messages and flags in device memory may
    /// be below it at sizes under [`LEAST_COPIED`]. 0 for a window of messages, and for members of
    /// several nodes: adapters start without the runtime's copies.
    pub latency: Ns,
    /// The bytes that must cross some cut of the links over the peak of that cut; for all_to_all
    /// and messages over the routes that the fabric uses.
    pub flow: Ns,
    /// The cut or the link.
    pub flow_by: String,
}

/// Peaks of a node, and the smallest latency of a copy, from which lower bounds follow.
#[derive(Debug)]
pub struct MachinePeaks {
    routes: RouteTable,
    parts: Mutex<HashMap<(u32, u32), PairShares>>,
    smallest_copy_ns: f64,
    /// GPUs with the peak of the links to each neighbour, GB/s; the host is a neighbour.
    links: Vec<(u32, Vec<(LinkEnd, f64)>)>,
    /// Adapters of a node: the GPU that each hangs on, if it hangs on one, and GB/s.
    adapters: Vec<(Option<u32>, f64)>,
    /// Whether switches between GPUs may add.
    may_add: bool,
}

/// The first GPU whose switches add (NVIDIA H100 Tensor Core GPU Architecture, 2022: NVLink SHARP).
const FIRST_OF_SHARP: u32 = 90;

/// Whether the switches of a node may add; of GPUs that it does not name they may.
fn may_add(topology: &Topology) -> bool {
    let version = |arch: &str| arch.strip_prefix("sm_")?.trim_end_matches('a').parse::<u32>().ok();
    let mut versions = topology.gpus.iter().filter_map(|gpu| version(&gpu.arch));
    versions.all(|version| version >= FIRST_OF_SHARP)
}

impl MachinePeaks {
    /// Of a node whose flows `network` describes. A network without latencies, as that of a
    /// discovered topology, gives no latency bound (0).
    pub fn new(topology: &Topology, network: &Network) -> Self {
        let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).collect();
        let pairs = gpus.iter().flat_map(|&a| gpus.iter().map(move |&b| (a, b)));
        let latencies = pairs
            .filter(|(a, b)| a != b)
            .filter_map(|(a, b)| network.operation(&engine_copy(a, b)).ok())
            .map(|operation| operation.alpha.0);
        let smallest = latencies.fold(f64::INFINITY, f64::min);
        let routes = network.routes();
        let links = gpus
            .iter()
            .map(|&g| {
                let near = routes.neighbours(LinkEnd::Gpu(g));
                let mut peaks: Vec<(LinkEnd, f64)> =
                    near.map(|(n, b)| (n, b.peak.map_or(f64::INFINITY, |p| p.0))).collect();
                let linked = peaks.iter().any(|(n, _)| matches!(n, LinkEnd::Numa(_)));
                let own = topology.gpus.iter().find(|x| x.index == g).and_then(|x| x.host_link);
                if let (Some(link), false) = (own, linked) {
                    peaks.push((LinkEnd::Numa(0), link.peak().0));
                }
                (g, peaks)
            })
            .collect();
        let rate = |mbits: Option<u64>| mbits.map_or(f64::INFINITY, |m| m as f64 / 8e3);
        Self {
            smallest_copy_ns: if smallest.is_finite() { smallest } else { 0.0 },
            links,
            adapters: topology.nics.iter().map(|n| (n.near_gpu, rate(n.speed_mbits))).collect(),
            routes: routes.clone(),
            parts: Mutex::default(),
            may_add: may_add(topology),
        }
    }

    /// The bounds of one operation; of a window for each of its messages. The library makes no
    /// difference.
    pub fn bounds(&self, exchange: &ExchangeSpec) -> TimeBounds {
        let bytes = exchange.bytes.as_f64();
        let buffers = exchange.buffers;
        if buffers != BufferPair::both(BufferPlace::Vram) {
            let (flow, flow_by) = match &exchange.what {
                ExchangeOp::Send { pairs, .. } => self.of_host_links(pairs, buffers, bytes),
                ExchangeOp::Ping { pairs } => {
                    let each = pairs.iter().map(std::slice::from_ref);
                    let bounds = each.map(|pair| self.of_host_links(pair, buffers, bytes));
                    let least = (0.0, NOTHING.to_owned());
                    bounds.fold(least, |worst, one| if one.0 > worst.0 { one } else { worst })
                }
                ExchangeOp::Collective { .. } => (0.0, NOTHING.to_owned()),
            };
            return TimeBounds { latency: Ns(0.0), flow: Ns(flow), flow_by };
        }
        let nodes: BTreeSet<u32> = exchange.members().iter().map(|m| m.node).collect();
        let (passes, (flow, flow_by)) = match &exchange.what {
            ExchangeOp::Send { pairs, .. } => {
                (0, self.routed(pairs.iter().map(|&(a, b)| (a, b, bytes))))
            }
            ExchangeOp::Ping { pairs } => {
                // Pairs take turns on a shared link, so each alone bounds it.
                let mut worst = (0.0, String::new());
                for pair in pairs {
                    let one = self.routed([(pair.0, pair.1, bytes)].into_iter());
                    if one.0 > worst.0 {
                        worst = one;
                    }
                }
                (1, worst)
            }
            ExchangeOp::Collective { op, over } => {
                let mut cut = self.cut(*op, over, bytes).map_or((0.0, NOTHING.to_owned()), |cut| {
                    (cut.time.0, self.cut_text(&cut, nodes.len() == 1))
                });
                let routed = match op {
                    Collective::AllToAll => self.all_to_all(over, bytes),
                    Collective::AllToAllV => {
                        self.routed(message_parts(*op, over, bytes).into_iter())
                    }
                    Collective::AllReduce => self.all_sums(over, bytes),
                    _ => (0.0, String::new()),
                };
                if routed.0 > cut.0 {
                    cut = routed;
                }
                (passes(*op), cut)
            }
        };
        let passes = if nodes.len() > 1 { 0 } else { passes };
        let latency = Ns(f64::from(passes) * self.smallest_copy_ns);
        TimeBounds { latency, flow: Ns(flow), flow_by }
    }

    /// Bytes of messages with an end in host memory over the host links of their GPUs: the fullest
    /// one decides.
    fn of_host_links(
        &self,
        pairs: &[(ExchangeMember, ExchangeMember)],
        buffers: BufferPair,
        bytes: f64,
    ) -> (f64, String) {
        let on_device = |place| matches!(place, BufferPlace::Vram | BufferPlace::Staged);
        let mut load: BTreeMap<(ExchangeMember, bool), f64> = BTreeMap::new();
        for &(a, b) in pairs {
            for (member, place, out) in [(a, buffers.from, true), (b, buffers.to, false)] {
                if on_device(place) {
                    *load.entry((member, out)).or_insert(0.0) += bytes;
                }
            }
        }
        let mut worst = (0.0, NOTHING.to_owned());
        for ((member, out), bytes) in load {
            let near = self.links.iter().find(|(gpu, _)| *gpu == member.gpu).map(|(_, near)| near);
            let of_host = |(end, _): &&(LinkEnd, f64)| matches!(end, LinkEnd::Numa(_));
            let peak: f64 = near.into_iter().flatten().filter(of_host).map(|(_, gbs)| gbs).sum();
            if peak > 0.0 && bytes / peak > worst.0 {
                let gpu = LinkEnd::Gpu(member.gpu);
                let by = if out { format!("{gpu}>host") } else { format!("host>{gpu}") };
                worst = (bytes / peak, by);
            }
        }
        worst
    }

    /// Every pair's bytes over the fabric's own routes, equal parts where there are equal routes:
    /// the fullest stretch decides.
    fn routed(&self, messages: impl Iterator<Item = MessagePart>) -> (f64, String) {
        let mut between = BTreeMap::new();
        let mut local = Vec::new();
        for (a, b, bytes) in messages {
            if a.node != b.node {
                *between.entry((a.node, true)).or_insert(0.0) += bytes;
                *between.entry((b.node, false)).or_insert(0.0) += bytes;
                continue;
            }
            local.push((a, b, bytes));
        }
        self.loaded(local.into_iter(), between)
    }

    /// The same of an all-to-all, whose messages between nodes are counted, not listed.
    fn all_to_all(&self, over: &[ExchangeMember], bytes: f64) -> (f64, String) {
        let mut nodes: BTreeMap<u32, Vec<ExchangeMember>> = BTreeMap::new();
        for &member in over {
            nodes.entry(member.node).or_default().push(member);
        }
        let (n, part) = (over.len() as f64, bytes / over.len() as f64);
        let mut between = BTreeMap::new();
        let mut sides: Vec<&Vec<ExchangeMember>> = Vec::new();
        for (&node, members) in &nodes {
            let k = members.len() as f64;
            for out in [true, false].into_iter().filter(|_| k < n) {
                between.insert((node, out), k * (n - k) * part);
            }
            let gpus =
                |members: &[ExchangeMember]| members.iter().map(|m| m.gpu).collect::<Vec<_>>();
            // Nodes with the same members have the same loads within.
            if !sides.iter().any(|known| gpus(known) == gpus(members)) {
                sides.push(members);
            }
        }
        let pairs = sides.into_iter().flat_map(|members| {
            members.iter().flat_map(move |&a| members.iter().map(move |&b| (a, b, part)))
        });
        self.loaded(pairs.filter(|(a, b, _)| a != b), between)
    }

    fn loaded(
        &self,
        local: impl Iterator<Item = MessagePart>,
        between: BTreeMap<(u32, bool), f64>,
    ) -> (f64, String) {
        let mut load: BTreeMap<(u32, UnitStep), (f64, f64)> = BTreeMap::new();
        let mut add = |node: u32, lane: UnitStep, bytes: f64, peak: f64| {
            load.entry((node, lane)).or_insert((0.0, peak)).0 += bytes;
        };
        for (a, b, bytes) in local {
            for &(lane, part, peak) in self.route(a.gpu, b.gpu).iter() {
                add(a.node, lane, part * bytes, peak);
            }
        }
        let mut worst = (0.0, NOTHING.to_string());
        for (&(_, (x, y)), (bytes, peak)) in &load {
            if bytes / peak > worst.0 * (1.0 + 1e-9) {
                worst = (bytes / peak, format!("{x}>{y}"));
            }
        }
        let adapters_gbs = self.adapters_gbs(|_| true);
        for ((node, out), bytes) in between {
            if bytes / adapters_gbs > worst.0 {
                let direction = if out { "out of" } else { "into" };
                worst = (bytes / adapters_gbs, format!("adapters {direction} node {node}"));
            }
        }
        worst
    }

    /// Stretches of a pair's route, the part of its bytes on each, and their peaks.
    fn route(&self, a: u32, b: u32) -> PairShares {
        let mut known = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = known.get(&(a, b)) {
            return parts.clone();
        }
        let mut parts = Vec::new();
        let (from, to) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
        if let Some(used) = self.routes.in_use(from, to).filter(|used| !used.through_host) {
            let n = used.paths.len().max(1) as f64;
            let ends = used.peak.filter(|_| used.striped);
            for lane in [(from, LinkEnd::Switch(0)), (LinkEnd::Switch(0), to)] {
                parts.extend(ends.map(|peak| (lane, 1.0, peak.0)));
            }
            for path in used.paths.iter().filter(|_| !used.striped) {
                for (&x, &y) in path.nodes.iter().zip(path.nodes.iter().skip(1)) {
                    let peak = self.routes.direct(x, y).and_then(|bundle| bundle.peak);
                    parts.extend(peak.map(|peak| ((x, y), 1.0 / n, peak.0)));
                }
            }
        }
        let parts = Arc::new(parts);
        known.insert((a, b), parts.clone());
        parts
    }

    /// The cut that takes longest: of all sets of up to 12 GPUs of a node, and of the nodes. None without bytes, for
    /// messages, and where no link's peak is known.
    pub fn find_cut(&self, exchange: &ExchangeSpec) -> Option<NodeCut> {
        match &exchange.what {
            ExchangeOp::Collective { op, over } => self.cut(*op, over, exchange.bytes.as_f64()),
            ExchangeOp::Send { .. } | ExchangeOp::Ping { .. } => None,
        }
    }

    fn cut_text(&self, cut: &NodeCut, is_alone: bool) -> String {
        let (names, node) = (cut.text(), cut.node);
        match (is_alone, cut.gpus.len() == self.links.len()) {
            (true, _) => format!("links around {names}"),
            (false, false) => format!("links and adapters around {names} of node {node}"),
            (false, true) => format!("adapters of node {node}"),
        }
    }

    fn cut(&self, op: Collective, over: &[ExchangeMember], bytes: f64) -> Option<NodeCut> {
        let n = over.len() as f64;
        let root = over.first()?;
        let mut worst: Option<NodeCut> = None;
        let mut nodes: BTreeMap<u32, Vec<(usize, ExchangeMember)>> = BTreeMap::new();
        for (at, &member) in over.iter().enumerate() {
            nodes.entry(member.node).or_default().push((at, member));
        }
        let mut known = BTreeSet::new();
        for (&node, members) in &nodes {
            // Where all parts are equal, nodes with the same members have the same cuts.
            let gpus: Vec<u32> = members.iter().map(|(_, m)| m.gpu).collect();
            if !op.is_uneven() && !known.insert((gpus, node == root.node)) {
                continue;
            }
            for side in self.sides() {
                let inside = |m: &&ExchangeMember| m.node == node && side.contains(&m.gpu);
                let own = || members.iter().filter(|(_, m)| inside(&m));
                let k = own().count() as f64;
                if k == 0.0 || k == n {
                    continue;
                }
                let has_root = inside(&root);
                let held: f64 = own().map(|(at, _)| part_bytes(op, over.len(), *at, bytes)).sum();
                // Bytes that must leave the side and enter it; links are full duplex.
                let (out, into) = match op {
                    Collective::AllToAllV => {
                        let all = message_parts(op, over, bytes);
                        let of = |from: bool| {
                            let crosses =
                                |(a, b, _): &&MessagePart| inside(&a) == from && inside(&b) != from;
                            all.iter().filter(crosses).map(|(_, _, bytes)| bytes).sum()
                        };
                        (of(true), of(false))
                    }
                    _ => crossing(op, bytes, (k, n), held, has_root),
                };
                let whole = side.len() == self.links.len();
                let mut peak = self.boundary(&side);
                if nodes.len() > 1 && (whole || peak.is_finite()) {
                    // What reaches the adapters of other GPUs crosses the links to them.
                    peak += self.adapters_gbs(|near| near.is_none_or(|g| side.contains(&g)));
                }
                let time = out.max(into) / peak;
                let most = worst.as_ref().map_or(0.0, |worst| worst.time.0);
                if time > most * (1.0 + 1e-9) {
                    worst = Some(NodeCut { time: Ns(time), peak: Rate(peak), node, gpus: side });
                }
            }
        }
        worst
    }

    /// What each GPU sends in an all_reduce within a node, over the links of the one with the fewest: libraries
    /// load all alike. Without switches that add, all sums and copies of the result together send all bytes
    /// 2 (n - 1) times (P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    /// workstations", J. Parallel Distrib. Comput. 69, 2009). By a switch that adds, a GPU sends its bytes
    /// once, and the sum of its part.
    fn all_sums(&self, over: &[ExchangeMember], bytes: f64) -> (f64, String) {
        let (n, node) = (over.len() as f64, over.first().map(|member| member.node));
        let injection = over.iter().map(|member| self.injection(member.gpu));
        let Some((gbs, has_switch)) = injection.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            return (0.0, NOTHING.to_owned());
        };
        if gbs <= 0.0 || over.iter().any(|member| Some(member.node) != node) {
            return (0.0, NOTHING.to_owned());
        }
        let each = 2.0 * (n - 1.0) / n;
        let sent = if has_switch && self.may_add { each.min(1.0 + 1.0 / n) } else { each };
        (sent * bytes / gbs, "links of one GPU".to_owned())
    }

    /// Peak of a GPU's links to other GPUs and switches, one direction, GB/s; and whether one is a switch.
    fn injection(&self, gpu: u32) -> (f64, bool) {
        let own = self.links.iter().filter(|(g, _)| *g == gpu).flat_map(|(_, near)| near);
        own.fold((0.0, false), |(gbs, has_switch), (end, peak)| match end {
            LinkEnd::Gpu(_) => (gbs + peak, has_switch),
            LinkEnd::Switch(_) => (gbs + peak, true),
            LinkEnd::Numa(_) | LinkEnd::Store(_) => (gbs, has_switch),
        })
    }

    /// Sum of the adapters that hang where `is_chosen` says, GB/s.
    fn adapters_gbs(&self, is_chosen: impl Fn(Option<u32>) -> bool) -> f64 {
        self.adapters.iter().filter(|(near, _)| is_chosen(*near)).map(|(_, gbs)| gbs).sum()
    }

    /// Sets of GPUs of a node to cut off from all else.
    fn sides(&self) -> Vec<Vec<u32>> {
        let gpus: Vec<u32> = self.links.iter().map(|(g, _)| *g).collect();
        if gpus.len() > CUT_GPUS {
            let two = |(at, &a): (usize, &u32)| {
                let others = gpus.iter().skip(at + 1).map(move |&b| vec![a, b]);
                std::iter::once(vec![a]).chain(others)
            };
            return gpus.iter().enumerate().flat_map(two).chain([gpus.clone()]).collect();
        }
        let bit = |set: u32, i: usize| set >> i & 1 == 1;
        let pick = |set: u32| {
            gpus.iter().enumerate().filter(|(i, _)| bit(set, *i)).map(|(_, &g)| g).collect()
        };
        (1u32..1 << gpus.len()).map(pick).collect()
    }

    /// Peak of the links that lead out of a set of GPUs, one direction, GB/s. Those to the host
    /// count, too, unless the set is the whole node.
    fn boundary(&self, side: &[u32]) -> f64 {
        let whole = side.len() == self.links.len();
        let own = self.links.iter().filter(|(g, _)| side.contains(g)).flat_map(|(_, near)| near);
        own.filter(|(to, _)| match to {
            LinkEnd::Gpu(g) => !side.contains(g),
            LinkEnd::Numa(_) | LinkEnd::Switch(_) | LinkEnd::Store(_) => !whole,
        })
        .map(|(_, peak)| peak)
        .sum()
    }
}

/// The runtime's copy between two GPUs; its latency does not depend on the size.
fn engine_copy(src: u32, dst: u32) -> Flow {
    let place = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
    let by = Mover::Dma { at: Unit::Gpu(src) };
    Flow { src: place(src), dst: place(dst), by, bytes: Bytes::mib(1) }
}

/// A message of a collective: from, to, bytes.
pub(crate) type MessagePart = (ExchangeMember, ExchangeMember, f64);

/// Bytes of a rank's part of the larger buffer.
pub(crate) fn part_bytes(op: Collective, n: usize, at: usize, bytes: f64) -> f64 {
    // Shares of a whole that is divisible by all their denominators: 1/n and 1/n².
    let whole = (n * n) as u64;
    op.part(n, at, whole).1 as f64 / whole.max(1) as f64 * bytes
}

/// The messages of an operation in which each rank's parts go straight to their destination.
pub(crate) fn message_parts(
    op: Collective,
    over: &[ExchangeMember],
    bytes: f64,
) -> Vec<MessagePart> {
    let n = over.len();
    let mut all = Vec::new();
    for (from, &a) in over.iter().enumerate() {
        for (to, &b) in over.iter().enumerate().filter(|(_, b)| **b != a) {
            let part = match op {
                Collective::Gather | Collective::GatherV => (to == 0).then_some(from),
                Collective::Scatter | Collective::ScatterV => (from == 0).then_some(to),
                Collective::AllGather | Collective::AllGatherV => Some(from),
                _ => Some(op.exchanged(n, from, to).0),
            };
            all.extend(part.map(|part| (a, b, part_bytes(op, n, part, bytes))));
        }
    }
    all
}

/// How often the data crosses the group: a result that depends on all and goes to all needs two
/// passes, in the paper's count also where parts are gathered by all or from all.
pub const fn passes(op: Collective) -> u32 {
    if op.has_root() { 1 } else { 2 }
}

/// Bytes that must leave and enter a side with `k` of `n` members, which hold `held` bytes of the
/// parts of the larger buffer.
fn crossing(
    op: Collective,
    bytes: f64,
    (k, n): (f64, f64),
    held: f64,
    has_root: bool,
) -> (f64, f64) {
    let others = (n - k) / n;
    match op {
        Collective::Broadcast if has_root => (bytes, 0.0),
        Collective::Broadcast => (0.0, bytes),
        Collective::Reduce if has_root => (0.0, bytes),
        Collective::Reduce => (bytes, 0.0),
        Collective::Gather | Collective::GatherV if has_root => (0.0, bytes - held),
        Collective::Gather | Collective::GatherV => (held, 0.0),
        Collective::Scatter | Collective::ScatterV if has_root => (bytes - held, 0.0),
        Collective::Scatter | Collective::ScatterV => (0.0, held),
        // Each side's sum has to reach the other.
        Collective::AllReduce => (bytes, bytes),
        Collective::Barrier => (0.0, 0.0),
        Collective::AllGather | Collective::AllGatherV => (held, bytes - held),
        Collective::ReduceScatter => (bytes - held, held),
        Collective::AllToAll | Collective::AllToAllV => (k * others * bytes, k * others * bytes),
    }
}
