//! Collectives by kernels: rings for all sizes, trees between nodes for small ones, and direct
//! exchange for all_to_all.
//!
//! A kernel writes into its neighbour's buffer and sets a flag. With protocol Simple one flag stands
//! behind a chunk; with LL every word carries one, which is quick to see and slow to move. The
//! library takes what its own tables hold for the faster; so does this.

use std::sync::Arc;

use pathline_flow::{CclModel, NoPath, RateDemand};
use pathline_schema::Collective;

use crate::bounds::{MessagePart, message_parts};
use crate::exchange::ExchangeMember;
use crate::exchange_time::{AlgorithmTime, us};
use crate::rings::GpuRing;
use crate::scene::{ByteCarrier, ExchangeScene};
use crate::transfer::{ScheduledTransfer, TransferRoute, ends, rates};

/// A protocol: how chunks and the flags of their arrival travel.
#[derive(Debug, Clone, Copy)]
struct ChunkProtocol {
    name: &'static str,
    step: f64,
    net_step: f64,
    /// Share of the edges' rate.
    share: f64,
    chunk: f64,
}

fn protocols(ccl: &CclModel) -> [ChunkProtocol; 2] {
    [
        ChunkProtocol {
            name: "LL",
            step: ccl.ll_step_us * 1e3,
            net_step: ccl.net_ll_step_us * 1e3,
            share: ccl.ll_share,
            chunk: ccl.ll_chunk_bytes as f64,
        },
        ChunkProtocol {
            name: "Simple",
            step: ccl.step_us * 1e3,
            net_step: ccl.net_step_us * 1e3,
            share: 1.0,
            chunk: ccl.chunk_bytes as f64,
        },
    ]
}

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
    ccl: &CclModel,
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
        | Collective::AllGatherV => return by_messages(scene, ccl, op, over, bytes),
        Collective::Barrier => {
            let why = "NCCL and RCCL have no barrier; an all_reduce of 8 B does as much";
            return Err(NoPath(why.into()));
        }
        _ => {}
    }
    let nodes = by_node(over)?;
    let streams = RingEdges::new(scene, &nodes, rings)?;
    let shape = RingShape {
        op,
        bytes,
        ranks: over.len() as f64,
        nodes: nodes.len() as f64,
        rings: streams.rates.len().max(1) as f64,
        rate: streams.rates.iter().copied().fold(f64::INFINITY, f64::min),
    };
    let base = ccl.base_us * 1e3;
    let ring = protocols(ccl).map(|p| (shape.ring(p), p));
    let (mut time, protocol) = if ring[0].0 <= ring[1].0 { ring[0] } else { ring[1] };
    let mut algorithm = format!("ring, {}", protocol.name);
    let rate = shape.rate * protocol.share;
    let mut steps = vec![
        format!("launch and channels: {}", us(base)),
        shape.describe_protocol(protocol),
        format!("each ring moves {rate:.1} GB/s, {} of them at once", streams.rates.len()),
    ];
    if let Some(tree) = shape.tree(protocols(ccl)[0]).filter(|tree| *tree < time) {
        time = tree;
        algorithm = "tree between nodes, chain within, LL".into();
        steps.truncate(1);
        steps.push(format!("up to the root and down again: {}", us(tree)));
    }
    if matches!(op, Collective::Reduce | Collective::AllReduce | Collective::ReduceScatter) {
        let why = "each step reads two buffers and writes one; memory has room for that";
        steps.push(why.into());
    }
    let total = base + time;
    // Moving bytes, rather than steps, takes most of the time.
    let moves = shape.moved() / rate >= 0.5 * time;
    let bound_by = if moves { streams.full } else { Vec::new() };
    let rings = rings.to_vec();
    let each = vec![total; over.len()];
    Ok(AlgorithmTime {
        time: total,
        mean: total,
        each,
        pairs: 1,
        algorithm,
        steps,
        rings,
        bound_by,
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
}

impl RingShape {
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

    /// Chains hand chunks on, one behind the other; rings with a part for each rank have all edges
    /// busy in every step.
    fn ring(&self, p: ChunkProtocol) -> f64 {
        let (steps, net) = self.steps();
        let rate = self.rate * p.share;
        let latency = (steps - net) * p.step + net * p.net_step;
        match self.op {
            Collective::Broadcast | Collective::Reduce => {
                let of_ring = self.bytes / self.rings;
                let chunk = of_ring.min(p.chunk);
                latency + (steps * chunk + (of_ring - chunk)) / rate
            }
            _ => latency + self.moved() / rate,
        }
    }

    /// A chain in each node and a tree between them, up and down; each link carries all bytes
    /// once per direction, and both directions together get what one ring gets.
    fn tree(&self, ll: ChunkProtocol) -> Option<f64> {
        (self.op == Collective::AllReduce && self.nodes > 1.0).then(|| {
            let chain = self.ranks / self.nodes - 1.0;
            let levels = self.nodes.log2().ceil();
            let latency = 2.0 * (chain * ll.step + levels * ll.net_step);
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

/// The edges of all rings at once.
struct RingEdges {
    /// Of each ring, GB/s.
    rates: Vec<f64>,
    full: Vec<String>,
}

impl RingEdges {
    fn new(
        scene: &ExchangeScene<'_>,
        nodes: &[(u32, Vec<u32>)],
        rings: &[GpuRing],
    ) -> Result<Self, NoPath> {
        let mut loads = vec![(0u32, 0u32); scene.machine.adapters.len()];
        // With one GPU a node there is no ring within it, and one stream between nodes.
        let mut edges: Vec<(usize, Arc<TransferRoute>)> = Vec::new();
        for (i, ring) in rings.iter().enumerate() {
            let order = if nodes.len() > 1 {
                opened(scene, &ring.gpus, &mut loads)?
            } else {
                ring.gpus.clone()
            };
            let around: Vec<ExchangeMember> = nodes
                .iter()
                .flat_map(|&(node, _)| order.iter().map(move |&gpu| ExchangeMember { node, gpu }))
                .collect();
            for (&a, &b) in around.iter().zip(around.iter().cycle().skip(1)) {
                edges.push((i, scene.device(ByteCarrier::Kernel, a, b)?));
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
        Ok(Self { rates: ring_rates, full })
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

/// All messages of an operation at once, each over its own route. A rank ends with its last message.
fn by_messages(
    scene: &ExchangeScene<'_>,
    ccl: &CclModel,
    op: Collective,
    over: &[ExchangeMember],
    bytes: f64,
) -> Result<AlgorithmTime, NoPath> {
    let parts = message_parts(op, over, bytes);
    let outcome = direct(scene, ccl, &parts)?;
    let each = vec![outcome.time; over.len()];
    Ok(AlgorithmTime { mean: outcome.time, each, pairs: 1, ..outcome })
}

/// Messages of pairs, each launched on its own: calls on one stream follow each other, so a window
/// of them is as many times one.
pub(crate) fn messages(
    scene: &ExchangeScene<'_>,
    ccl: &CclModel,
    pairs: &[(ExchangeMember, ExchangeMember)],
    bytes: f64,
) -> Result<AlgorithmTime, NoPath> {
    let messages: Vec<MessagePart> = pairs.iter().map(|&(a, b)| (a, b, bytes)).collect();
    direct(scene, ccl, &messages)
}

/// One kernel for all pairs at once, which writes over their own routes.
fn direct(
    scene: &ExchangeScene<'_>,
    ccl: &CclModel,
    messages: &[MessagePart],
) -> Result<AlgorithmTime, NoPath> {
    let mut best: Option<AlgorithmTime> = None;
    for p in protocols(ccl) {
        let mut transfers = Vec::new();
        for &(a, b, part) in messages {
            let start = if a.node == b.node { p.step } else { p.net_step };
            // LL moves more than its payload; the rest is flags and waiting.
            let bytes = part / p.share;
            let path = scene.device(ByteCarrier::Kernel, a, b)?;
            transfers.push(ScheduledTransfer { path, bytes, start, tail: 0.0, after: Vec::new() });
        }
        let base = ccl.base_us * 1e3;
        let each: Vec<f64> =
            ends(&scene.capacities, &transfers).into_iter().map(|end| base + end).collect();
        let time = each.iter().copied().fold(0.0, f64::max);
        let flows: Vec<RateDemand<'_>> = transfers.iter().map(|t| t.path.demand()).collect();
        let full = scene.full(&flows, &rates(&scene.capacities, &flows));
        let moved = time - base;
        let steps = vec![
            format!("launch and channels: {}", us(base)),
            format!("{} transfers of {} at once: {}", transfers.len(), sizes(messages), us(moved)),
        ];
        if best.as_ref().is_none_or(|best| time < best.time) {
            let moves = moved >= 2.0 * p.step;
            best = Some(AlgorithmTime {
                time,
                mean: each.iter().sum::<f64>() / each.len().max(1) as f64,
                each,
                pairs: messages.len(),
                algorithm: format!("direct, {}", p.name),
                steps,
                rings: Vec::new(),
                bound_by: if moves { full } else { Vec::new() },
            });
        }
    }
    best.ok_or_else(|| NoPath("no protocol is known".into()))
}

/// `128 B`, or `16 to 240 B`.
fn sizes(messages: &[MessagePart]) -> String {
    let sizes = || messages.iter().map(|(_, _, bytes)| *bytes);
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    if least < most { format!("{least:.0} to {most:.0} B") } else { format!("{most:.0} B") }
}
