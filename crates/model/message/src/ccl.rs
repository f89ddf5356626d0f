//! Collectives by kernels: rings for all sizes, trees between nodes for small ones, and direct
//! exchange for all_to_all.
//!
//! A kernel writes into its neighbour's buffer and sets a flag. With protocol Simple one flag stands
//! behind a chunk; with LL every word carries one, which is quick to see and slow to move. The
//! library takes what its own tables hold for the faster; so does this.

use std::collections::BTreeSet;
use std::sync::Arc;

use pathline_flow::{NoPath, RateDemand};
use pathline_schema::Collective;

use crate::ccl_library::{CclLibrary, ChunkProtocol, SIMPLE, protocols};
use crate::ccl_messages::exchange_messages;
use crate::exchange::ExchangeMember;
use crate::exchange_time::{AlgorithmTime, IN_SWITCHES, us};
use crate::rings::GpuRing;
use crate::scene::{ByteCarrier, ExchangeScene};
use crate::transfer::{TransferRoute, rates};

/// Bytes for each thread of a block and each rank from which LL takes a further channel: 8 B x 512
/// threads (NCCL_LL_THREAD_THRESHOLD).
const LL_CHANNEL_BYTES: f64 = 4096.0;

/// The members by node, each node's GPUs in their order.
fn by_node(over: &[ExchangeMember]) -> Result<Vec<(u32, Vec<u32>)>, NoPath> {
    let mut nodes: Vec<(u32, Vec<u32>)> = Vec::new();
    for m in over {
        match nodes.iter_mut().find(|(node, _)| *node == m.node) {
            Some((_, gpus)) => gpus.push(m.gpu),
            None => nodes.push((m.node, vec![m.gpu])),
        }
    }
    let first = nodes.first().map(|(_, gpus)| gpus.clone()).unwrap_or_default();
    if nodes.iter().any(|(_, gpus)| *gpus != first) {
        let why = "rings between nodes are modelled only over the same GPUs of each node";
        return Err(NoPath(why.into()));
    }
    Ok(nodes)
}

/// Time of a collective over rings that the caller found on one node.
pub(crate) fn collective(
    scene: &ExchangeScene<'_>,
    library: &CclLibrary<'_>,
    rings: &[GpuRing],
    op: Collective,
    over: &[ExchangeMember],
    bytes: f64,
) -> Result<AlgorithmTime, NoPath> {
    match op {
        Collective::AllToAll
        | Collective::AllToAllV
        | Collective::Gather
        | Collective::GatherV
        | Collective::Scatter
        | Collective::ScatterV
        | Collective::AllGatherV => return exchange_messages(scene, library, op, over, bytes),
        Collective::Barrier => {
            let why = "NCCL and RCCL have no barrier; an all_reduce of 8 B does as much";
            return Err(NoPath(why.into()));
        }
        _ => {}
    }
    let nodes = by_node(over)?;
    let turned = turned_rings(scene, &nodes, rings)?;
    let rings = turned.as_deref().unwrap_or(rings);
    let streams = RingEdges::new(scene, &nodes, rings, turned.is_some())?;
    let shape = RingShape {
        op,
        bytes,
        ranks: over.len() as f64,
        nodes: nodes.len() as f64,
        rings: streams.rates.len().max(1) as f64,
        rate: streams.rates.iter().copied().fold(f64::INFINITY, f64::min),
        overlaps: library.overlaps(),
    };
    let hops = streams.latency;
    let (ccl, base) = (library.ccl, library.base());
    let hop = |p: ChunkProtocol| ChunkProtocol { net_step: p.net_step + hops, ..p };
    let known: Vec<ChunkProtocol> = protocols(ccl).into_iter().map(hop).collect();
    let chosen =
        known.iter().min_by(|a, b| shape.preference(**a).total_cmp(&shape.preference(**b)));
    let protocol = *chosen.ok_or_else(|| NoPath("no protocol is known".into()))?;
    let mut time = shape.ring(protocol);
    let mut algorithm = format!("ring, {}", protocol.name);
    let rate = shape.rate(protocol);
    let mut steps = vec![
        format!("launch and channels: {}", us(base)),
        shape.describe_protocol(protocol),
        format!("each ring moves {rate:.1} GB/s, {} of them at once", streams.rates.len()),
    ];
    let tree = known.first().and_then(|ll| shape.tree(*ll));
    if let Some(tree) = tree.filter(|tree| *tree < time) {
        time = tree;
        algorithm = "tree between nodes, chain within, LL".into();
        steps.truncate(1);
        steps.push(format!("up to the root and down again: {}", us(tree)));
    }
    let mut moved = shape.moved();
    let mut moving = moved / rate;
    let mut bound_by = streams.full;
    let reduced = shape.in_switches(scene, library, over, &known);
    if let Some(reduced) = reduced
        && reduced.is_chosen_over(time, shape.preference(protocol))
    {
        (time, moved, moving) = (reduced.time, reduced.moved / shape.rings, reduced.moving);
        algorithm = reduced.algorithm().into();
        steps.truncate(1);
        steps.push(reduced.describe());
        if reduced.across.is_some_and(|across| across < reduced.within) {
            bound_by = vec!["reductions in the switches of each node".to_owned()];
        }
    } else if matches!(op, Collective::Reduce | Collective::AllReduce | Collective::ReduceScatter) {
        let why = "each step reads two buffers and writes one; memory has room for that";
        steps.push(why.into());
    }
    let total = library.whole(time);
    if total > base + time {
        steps.push(format!("the process launches one only every {}", us(total)));
    }
    // Moving bytes, rather than steps, takes most of the time.
    let moves = moving >= 0.5 * time;
    let edges = streams.edges.iter();
    let loads = scene.loads(edges.map(|path| (path.uses.as_slice(), moved)));
    if !moves {
        bound_by.clear();
    }
    let rings = rings.to_vec();
    Ok(AlgorithmTime {
        time: total,
        mean: total,
        each: vec![total; over.len()],
        pairs: 1,
        algorithm,
        steps,
        rings,
        bound_by,
        loads,
        maps: 0,
    })
}

/// Numbers that decide a ring's time.
struct RingShape {
    op: Collective,
    bytes: f64,
    ranks: f64,
    nodes: f64,
    rings: f64,
    /// Of the slowest ring, GB/s.
    rate: f64,
    /// The next operation begins at the root while this one still travels to the others.
    overlaps: bool,
}

/// An all_reduce inside the switches.
struct SwitchReduction {
    /// By the library's table, ns.
    preference: f64,
    /// ns, of which `moving` moves bytes.
    time: f64,
    moving: f64,
    /// Bytes within a node and between nodes, which go on at the same time, ns.
    within: f64,
    across: Option<f64>,
    /// Bytes out of each GPU, and as many into it.
    moved: f64,
}

impl SwitchReduction {
    /// Whether the library takes it in place of rings and trees, by its table; between nodes, of which no table is
    /// known, where it is faster.
    const fn is_chosen_over(&self, time: f64, preference: f64) -> bool {
        match self.across {
            Some(_) => self.time < time,
            None => self.preference < preference,
        }
    }

    const fn algorithm(&self) -> &'static str {
        if self.across.is_some() { "NVLS in each node, tree between them" } else { IN_SWITCHES }
    }

    fn describe(&self) -> String {
        let (moved, rate) = (self.moved, self.moved / self.within);
        let text = format!("{moved:.0} B out of and into each GPU at {rate:.1} GB/s");
        match self.across {
            None => format!("{text}: {}", us(self.time)),
            Some(across) => format!(
                "{text}, {}; a tree between nodes, {}; together {}",
                us(self.within),
                us(across),
                us(self.time)
            ),
        }
    }
}

impl RingShape {
    /// The same operation by NVLS, where the library and all GPUs' links have it. Each GPU sends its bytes
    /// once to be summed and gets the n-th part of the sums, which it sends once and gets whole.
    fn in_switches(
        &self,
        scene: &ExchangeScene<'_>,
        library: &CclLibrary<'_>,
        over: &[ExchangeMember],
        known: &[ChunkProtocol],
    ) -> Option<SwitchReduction> {
        let nvls = library.nvls?;
        let gpus = self.ranks / self.nodes;
        if self.op != Collective::AllReduce || gpus < f64::from(nvls.least_gpus) {
            return None;
        }
        let gbs = over.iter().map(|m| scene.machine.switch_gbs(m.gpu));
        let peak = gbs.fold(f64::INFINITY, f64::min);
        let rate = peak * nvls.link_share;
        if rate <= 0.0 {
            return None;
        }
        // Scatter, sum and gather are stages of a pipeline: all chunks pass the first, and the last chunks two
        // more. In each turn all channels move a chunk of the part of each GPU.
        let at_once = f64::from(nvls.channels) * gpus;
        let turn = (at_once * nvls.chunk(self.bytes, gpus)).min(self.bytes);
        let (turns, each) = (self.bytes / turn + 2.0, 1.0 + 1.0 / gpus);
        let moved = self.bytes * each;
        let time = turns * (nvls.chunk_us * 1e3 * gpus + turn * each / rate);
        let within = moved / rate;
        // Two trees with half of the bytes each: of two nodes each sends one half up and the other down; of more
        // it has two children in one tree, and is a leaf of the other.
        let across = (self.nodes > 1.0).then(|| {
            let times = if self.nodes > 2.0 { 2.0 } else { 1.0 };
            times * self.bytes / (self.rings * self.rate)
        });
        let simple = known.iter().find(|protocol| protocol.name == SIMPLE);
        let hop = simple.map_or(0.0, |simple| simple.net_step + simple.proxy);
        let hops = 2.0 * self.nodes.log2().ceil() * hop;
        let moving = within.max(across.unwrap_or(0.0));
        let time = hops + time.max(across.unwrap_or(0.0));
        let by_table =
            nvls.start_us * 1e3 + self.bytes / (nvls.table_share * self.rate * self.rings);
        let preference = if library.ccl.choice.is_some() { by_table } else { time };
        Some(SwitchReduction { preference, time, moving, within, across, moved })
    }

    /// Steps from neighbour to neighbour, and how many of them cross to another node.
    fn steps(&self) -> (f64, f64) {
        let around = self.ranks - 1.0;
        let crossings = if self.nodes > 1.0 { self.nodes } else { 0.0 };
        match self.op {
            Collective::AllReduce => (2.0 * around, 2.0 * crossings.min(around)),
            _ => (around, (crossings - 1.0).max(0.0)),
        }
    }

    /// Bytes that each edge of a ring carries.
    fn moved(&self) -> f64 {
        let of_ring = self.bytes / self.rings;
        match self.op {
            Collective::Broadcast | Collective::Reduce => of_ring,
            _ => of_ring * self.steps().0 / self.ranks,
        }
    }

    /// The rate of one ring by a protocol on all channels, GB/s.
    fn whole_rate(&self, p: ChunkProtocol) -> f64 {
        (self.rate * p.share).min(p.gbs / self.rings)
    }

    /// The time by which the library chooses a protocol, ns: its table's where that is known.
    fn preference(&self, p: ChunkProtocol) -> f64 {
        let Some(start) = p.table else { return self.ring(p) };
        let (steps, net) = self.steps();
        start + (steps - net) * p.step + net * p.net_step + self.moved() / self.whole_rate(p)
    }

    /// The rate of one ring by a protocol, GB/s: small operations have few channels.
    fn rate(&self, p: ChunkProtocol) -> f64 {
        let whole = self.whole_rate(p);
        let Some(channels) = p.channels else { return whole };
        let wanted = self.bytes / (LL_CHANNEL_BYTES * self.ranks);
        whole * wanted.clamp(1.0, channels) / channels
    }

    /// Chains hand chunks on, one behind the other; rings with a part for each rank have all edges
    /// busy in every step.
    fn ring(&self, p: ChunkProtocol) -> f64 {
        let (steps, net) = self.steps();
        let rate = self.rate(p);
        let latency = p.start + (steps - net) * p.step + net * (p.net_step + p.proxy);
        let of_ring = self.bytes / self.rings;
        match self.op {
            Collective::Broadcast | Collective::Reduce if self.overlaps => p.start + of_ring / rate,
            Collective::Broadcast | Collective::Reduce => {
                let chunk = of_ring.min(p.chunk);
                latency + (steps * chunk + (of_ring - chunk)) / rate
            }
            // A GPU sends and receives in turn, and what it receives last goes to no link.
            _ => latency + (self.moved() + p.drain * of_ring / self.ranks) / rate,
        }
    }

    /// A chain in each node and a tree between them, up and down; each link carries all bytes
    /// once per direction, and both directions together get what one ring gets.
    fn tree(&self, ll: ChunkProtocol) -> Option<f64> {
        (self.op == Collective::AllReduce && self.nodes > 1.0).then(|| {
            let chain = self.ranks / self.nodes - 1.0;
            let levels = self.nodes.log2().ceil();
            let latency = 2.0 * (chain * ll.step + levels * (ll.net_step + ll.proxy));
            latency + 2.0 * self.bytes / (self.rings * self.rate * ll.share)
        })
    }

    fn describe_protocol(&self, p: ChunkProtocol) -> String {
        let (steps, net) = self.steps();
        let of_ring = self.bytes / self.rings;
        let what = match self.op {
            Collective::Broadcast | Collective::Reduce => {
                let chunk = of_ring.min(p.chunk);
                format!("chunks of {chunk:.0} B handed on {steps:.0} times")
            }
            _ => format!("{steps:.0} steps with {:.0} B on every edge", of_ring / self.ranks),
        };
        let net = if net > 0.0 { format!(", {net:.0} to another node") } else { String::new() };
        format!("{what}{net}: {} a step and the bytes, {}", us(p.step), us(self.ring(p)))
    }
}

/// One ring an adapter, where switches join the GPUs of a node and its links alone give fewer: ring k enters and
/// leaves a node by adapter k and turns inside. The last GPU of the turn hands its bytes to the GPU of that adapter
/// over NVLink (PXN of NCCL, from 2.12 on).
fn turned_rings(
    scene: &ExchangeScene<'_>,
    nodes: &[(u32, Vec<u32>)],
    rings: &[GpuRing],
) -> Result<Option<Vec<GpuRing>>, NoPath> {
    let Some((_, gpus)) = nodes.first().filter(|_| nodes.len() > 1) else { return Ok(None) };
    if gpus.len() < 2 || gpus.iter().any(|&gpu| scene.machine.switch_gbs(gpu) <= 0.0) {
        return Ok(None);
    }
    let (mut used, mut found) = (BTreeSet::new(), Vec::new());
    for (at, &gpu) in gpus.iter().enumerate() {
        if used.insert(scene.machine.adapter(gpu)?) {
            let mut order = gpus.clone();
            order.rotate_left(at);
            found.push(GpuRing { gpus: order, peak_gbs: f64::INFINITY, routed: 0 });
        }
    }
    Ok(Some(found).filter(|found| found.len() > rings.len()))
}

/// The edges of all rings at once.
struct RingEdges {
    /// Of each ring, GB/s.
    rates: Vec<f64>,
    full: Vec<String>,
    edges: Vec<Arc<TransferRoute>>,
    /// What switches between nodes add to a step, at most, ns.
    latency: f64,
}

impl RingEdges {
    fn new(
        scene: &ExchangeScene<'_>,
        nodes: &[(u32, Vec<u32>)],
        rings: &[GpuRing],
        is_turned: bool,
    ) -> Result<Self, NoPath> {
        let mut loads = vec![(0u32, 0u32); scene.machine.adapters.len()];
        // With one GPU a node there is no ring within it, and one stream between nodes.
        let mut edges: Vec<(usize, Arc<TransferRoute>)> = Vec::new();
        let mut latency = 0.0f64;
        for (i, ring) in rings.iter().enumerate() {
            let order = match nodes.len() > 1 {
                true if is_turned => ring.gpus.iter().chain(ring.gpus.first()).copied().collect(),
                true => opened(scene, &ring.gpus, &mut loads)?,
                false => ring.gpus.clone(),
            };
            let around: Vec<ExchangeMember> = nodes
                .iter()
                .flat_map(|&(node, _)| order.iter().map(move |&gpu| ExchangeMember { node, gpu }))
                .collect();
            for (&a, &b) in around.iter().zip(around.iter().cycle().skip(1)) {
                let path = scene.device(ByteCarrier::Kernel, a, b)?;
                if a.node != b.node {
                    latency = latency.max(path.alpha);
                }
                edges.push((i, path));
            }
        }
        // A ring is as fast as its slowest edge; what its other edges leave, others can have.
        let mut caps: Vec<f64> = edges.iter().map(|(_, path)| path.cap).collect();
        let mut ring_rates = vec![f64::INFINITY; rings.len()];
        let mut full = Vec::new();
        for _ in 0..3 {
            let flows: Vec<RateDemand<'_>> = edges
                .iter()
                .zip(&caps)
                .map(|((_, path), &cap)| RateDemand { cap, ..path.demand() })
                .collect();
            let rates = rates(&scene.capacities, &flows);
            ring_rates.fill(f64::INFINITY);
            for ((i, _), rate) in edges.iter().zip(&rates) {
                if let Some(slowest) = ring_rates.get_mut(*i) {
                    *slowest = slowest.min(*rate);
                }
            }
            full = scene.full(&flows, &rates);
            for ((i, path), cap) in edges.iter().zip(&mut caps) {
                let ring = ring_rates.get(*i).copied().unwrap_or(f64::INFINITY);
                // A little above, so that what binds stays visible as full.
                *cap = path.cap.min(ring * (1.0 + 1e-7));
            }
        }
        let edges = edges.into_iter().map(|(_, path)| path).collect();
        Ok(Self { rates: ring_rates, full, edges, latency })
    }
}

/// A ring opened where it leaves the node: at the edge whose ends' adapters have the least to do.
fn opened(
    scene: &ExchangeScene<'_>,
    ring: &[u32],
    loads: &mut [(u32, u32)],
) -> Result<Vec<u32>, NoPath> {
    let mut best: Option<(u32, usize, usize, usize)> = None;
    for (at, (&last, &first)) in ring.iter().zip(ring.iter().cycle().skip(1)).enumerate() {
        let (out, into) = (scene.machine.adapter(last)?, scene.machine.adapter(first)?);
        let load = |i: usize| loads.get(i).copied().unwrap_or_default();
        let busy = load(out).0.max(load(into).1);
        if best.is_none_or(|(least, ..)| busy < least) {
            best = Some((busy, at, out, into));
        }
    }
    let Some((_, at, out, into)) = best else { return Ok(ring.to_vec()) };
    if let Some(load) = loads.get_mut(out) {
        load.0 += 1;
    }
    if let Some(load) = loads.get_mut(into) {
        load.1 += 1;
    }
    let mut order = ring.to_vec();
    order.rotate_left((at + 1) % ring.len().max(1));
    Ok(order)
}
