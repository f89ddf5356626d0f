//! The time of a phase of communication on a node, by the flow model: what a mapping of ranks costs.

use std::collections::BTreeMap;

use pathline_flow::{ConcurrentRun, FlowDemand, FlowSet, Network, NoPath, RateDemand, ResourceUse};
use pathline_schema::{Bytes, Case, Flow, FlowSeries, MemKind, Mover, Ns, Place, Unit};

use crate::rank_traffic::{RankMessage, RankTraffic};

/// The mover of a phase's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseMover {
    /// The runtime's copy, by copy engine.
    CopyEngine,
    /// The runtime's copy kernel.
    CopyKernel,
}

impl PhaseMover {
    /// A message between two GPUs as a flow; its copy is issued by the sender.
    pub fn flow(self, from: u32, to: u32, bytes: Bytes) -> Flow {
        let place = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
        let at = Unit::Gpu(from);
        let by = match self {
            Self::CopyEngine => Mover::Dma { at },
            Self::CopyKernel => Mover::Blit { at },
        };
        Flow { src: place(from), dst: place(to), by, bytes }
    }
}

/// A message between two places of a node.
#[derive(Debug, Clone)]
struct PairCost {
    uses: Vec<ResourceUse>,
    /// GB/s.
    cap: f64,
    share: f64,
    /// Time before the first byte, ns.
    start: f64,
    queue: Option<u32>,
    /// Rate while nothing else moves, GB/s.
    alone: f64,
    /// Links passed.
    hops: usize,
}

impl PairCost {
    fn free() -> Self {
        let (cap, alone) = (f64::INFINITY, f64::INFINITY);
        Self { uses: Vec::new(), cap, share: 1.0, start: 0.0, queue: None, alone, hops: 0 }
    }
}

/// Costs of messages between the places of a node, where a place is what one rank gets of a GPU.
#[derive(Debug)]
pub struct PhaseModel {
    /// GB/s.
    capacities: Vec<f64>,
    /// The GPU of each place.
    gpus: Vec<u32>,
    /// Row: sending place; column: receiving place.
    pairs: Vec<PairCost>,
}

impl PhaseModel {
    /// Places on a network, each on its GPU. `bytes` is the size of a typical message, on which its start
    /// depends.
    ///
    /// # Errors
    /// Two GPUs between which nothing moves.
    pub fn new(
        network: &Network,
        gpus: &[u32],
        mover: PhaseMover,
        bytes: Bytes,
    ) -> Result<Self, NoPath> {
        let capacities: Vec<f64> = network.resources().iter().map(|r| r.capacity.0).collect();
        let pair = |from: u32, to: u32| {
            let operation = match network.operation(&mover.flow(from, to, bytes)) {
                // Ranks of one GPU: nothing is known to limit them where copies within it are not described.
                Err(_) if from == to => return Ok(PairCost::free()),
                found => found?,
            };
            let alone = RateDemand::from(&operation).alone(&capacities);
            if alone.is_nan() || alone <= 0.0 {
                return Err(NoPath(format!("nothing moves from gpu{from} to gpu{to}")));
            }
            Ok(PairCost {
                alone,
                cap: operation.cap.0,
                share: operation.share,
                start: operation.alpha.0,
                queue: operation.queue,
                hops: operation.route.len().saturating_sub(1),
                uses: operation.uses,
            })
        };
        let all = gpus.iter().flat_map(|from| gpus.iter().map(move |to| (*from, *to)));
        let pairs = all.map(|(from, to)| pair(from, to)).collect::<Result<_, _>>()?;
        Ok(Self { capacities, gpus: gpus.to_vec(), pairs })
    }

    /// The phase with a mapping as an ordinary case: all messages at once, one operation at a time.
    pub fn case(&self, traffic: &RankTraffic, at: &[usize], mover: PhaseMover) -> Option<Case> {
        let flow = |m: &RankMessage| {
            let (from, to) = (self.gpu(*at.get(m.from)?)?, self.gpu(*at.get(m.to)?)?);
            Some(mover.flow(from, to, Bytes(m.bytes)))
        };
        let flows: Option<Vec<Flow>> = traffic.messages().iter().map(flow).collect();
        flows.map(|flows| Case::together(flows).isolated())
    }

    /// Number of places.
    pub fn places(&self) -> usize {
        self.gpus.len()
    }

    /// The GPU of a place.
    pub fn gpu(&self, place: usize) -> Option<u32> {
        self.gpus.get(place).copied()
    }

    fn pair(&self, from: usize, to: usize) -> Option<&PairCost> {
        self.pairs.get(from * self.gpus.len() + to)
    }

    /// Resources and queues of a node, which [`Self::loads`] numbers.
    pub(crate) fn resource_count(&self) -> usize {
        let last = self.pairs.iter().filter_map(|pair| pair.queue).max();
        self.capacities.len() + last.map_or(0, |last| last as usize + 1)
    }

    /// What a byte between two places needs of each resource and queue, ns.
    pub(crate) fn loads(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let pair = self.pair(from, to);
        let uses = pair.into_iter().flat_map(|pair| &pair.uses).filter_map(|used| {
            let at = used.resource as usize;
            let capacity = *self.capacities.get(at)?;
            let limits = capacity > 0.0 && capacity.is_finite() && used.weight > 0.0;
            limits.then(|| (at, used.weight / capacity))
        });
        let line = pair.and_then(|pair| {
            let queue = self.capacities.len() + pair.queue? as usize;
            Some((queue, 1.0 / pair.alone))
        });
        uses.chain(line)
    }

    /// For each place the first one that may change places with it without any phase taking another time:
    /// all GPUs behind one switch are alike, and so are those of a full mesh.
    pub(crate) fn alike_places(&self) -> Vec<usize> {
        let plain = self.pattern(|place| place);
        let is_alike = |a: usize, b: usize| {
            let change = |place: usize| match place {
                place if place == a => b,
                place if place == b => a,
                place => place,
            };
            self.pattern(change) == plain
        };
        let first = |b: usize| (0..b).find(|&a| is_alike(a, b)).unwrap_or(b);
        (0..self.places()).map(first).collect()
    }

    /// All that times of phases depend on, without the numbers of resources and queues, with the places
    /// renamed.
    fn pattern(&self, name: impl Fn(usize) -> usize) -> ModelPattern {
        let places = self.places().max(1);
        let mut resources: BTreeMap<usize, Vec<PairUse>> = BTreeMap::new();
        let mut queues: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
        let mut pairs = Vec::new();
        for (nth, pair) in self.pairs.iter().enumerate() {
            let (from, to) = (name(nth / places), name(nth % places));
            let numbers = [pair.cap, pair.share, pair.start, pair.alone].map(f64::to_bits);
            pairs.push((from, to, numbers));
            for used in &pair.uses {
                let of = (from, to, used.weight.to_bits());
                resources.entry(used.resource as usize).or_default().push(of);
            }
            if let Some(queue) = pair.queue {
                queues.entry(queue).or_default().push((from, to));
            }
        }
        let capacity = |at: usize| self.capacities.get(at).copied().unwrap_or(0.0).to_bits();
        let mut resources: Vec<_> =
            resources.into_iter().map(|(at, users)| (capacity(at), users)).collect();
        let mut queues: Vec<_> = queues.into_values().collect();
        resources.iter_mut().for_each(|(_, users)| users.sort_unstable());
        queues.iter_mut().for_each(|users| users.sort_unstable());
        resources.sort_unstable();
        queues.sort_unstable();
        pairs.sort_unstable();
        ModelPattern { pairs, resources, queues }
    }

    /// Links that a message passes.
    pub(crate) fn hops(&self, from: usize, to: usize) -> usize {
        self.pair(from, to).map_or(0, |pair| pair.hops)
    }
}

/// Sending and receiving place, and the weight with which their messages use a resource, as bits.
type PairUse = (usize, usize, u64);

/// Pairs of places with their numbers, capacities with the pairs that use them, and the pairs of each queue;
/// each sorted.
#[derive(PartialEq, Eq)]
struct ModelPattern {
    pairs: Vec<(usize, usize, [u64; 4])>,
    resources: Vec<(u64, Vec<PairUse>)>,
    queues: Vec<Vec<(usize, usize)>>,
}

/// The time of a measured phase, of the medians of its flows: all start together, and the last one ends
/// it. `None` without samples.
pub fn phase_time(series: &[FlowSeries]) -> Option<Ns> {
    let time = |flow: &FlowSeries| {
        let mut samples = flow.samples_ns.clone();
        samples.sort_by(f64::total_cmp);
        let median = *samples.get(samples.len() / 2)?;
        (flow.reps > 0).then(|| median / flow.reps as f64)
    };
    let times: Option<Vec<f64>> = series.iter().map(time).collect();
    times?.into_iter().reduce(f64::max).map(Ns)
}

/// Computes times of phases, and keeps its buffers between them.
#[derive(Debug)]
pub struct PhaseClock<'m> {
    model: &'m PhaseModel,
    run: ConcurrentRun,
    ends: Vec<f64>,
}

impl<'m> PhaseClock<'m> {
    /// Of a node.
    pub fn new(model: &'m PhaseModel) -> Self {
        Self { model, run: ConcurrentRun::default(), ends: Vec::new() }
    }

    /// Time in ns from the common start of all messages to the last end, with each rank at the place that
    /// `at` has for it. Infinite for ranks that have none.
    pub fn time(&mut self, traffic: &RankTraffic, at: &[usize]) -> f64 {
        let place = |message: &RankMessage| {
            let (from, to) = (at.get(message.from)?, at.get(message.to)?);
            let pair = self.model.pair(*from, *to)?;
            Some((pair, message.bytes as f64))
        };
        let Some(placed) = traffic.messages().iter().map(place).collect::<Option<Vec<_>>>() else {
            return f64::INFINITY;
        };
        let mut queues: Vec<(u32, Vec<usize>)> = Vec::new();
        for (nth, (pair, _)) in placed.iter().enumerate() {
            let Some(queue) = pair.queue else { continue };
            match queues.iter_mut().find(|(known, _)| *known == queue) {
                Some((_, line)) => line.push(nth),
                None => queues.push((queue, vec![nth])),
            }
        }
        let queues: Vec<Vec<usize>> = queues.into_iter().map(|(_, line)| line).collect();
        let demand = |(pair, bytes): &(&'m PairCost, f64)| {
            let rate = RateDemand { uses: &pair.uses, cap: pair.cap, share: pair.share };
            FlowDemand { start: pair.start, ..FlowDemand::new(rate, *bytes) }
        };
        let flows: Vec<FlowDemand<'_>> = placed.iter().map(demand).collect();
        let set = FlowSet { capacities: &self.model.capacities, flows: &flows, queues: &queues };
        self.run.ends(&set, &mut self.ends);
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

/// Loads of resources by messages that are placed one after the other, and the lower bound that they set:
/// no schedule moves the bytes of a resource faster than its capacity.
#[derive(Debug, Clone)]
pub(crate) struct PhaseLoads<'m> {
    model: &'m PhaseModel,
    /// Time that each resource needs, ns.
    loads: Vec<f64>,
    /// Time that each queue needs, ns, by its number.
    lines: Vec<f64>,
}

impl<'m> PhaseLoads<'m> {
    pub(crate) fn new(model: &'m PhaseModel) -> Self {
        let last = model.pairs.iter().filter_map(|pair| pair.queue).max();
        let lines = last.map_or(0, |last| last as usize + 1);
        Self { model, loads: vec![0.0; model.capacities.len()], lines: vec![0.0; lines] }
    }

    /// Adds a message (`sign` 1), or takes it away (-1). The lower bound that its resources set now, ns.
    pub(crate) fn add(&mut self, from: usize, to: usize, bytes: f64, sign: f64) -> f64 {
        let Some(pair) = self.model.pair(from, to) else { return f64::INFINITY };
        let mut bound = pair.start + bytes / pair.alone;
        for used in pair.uses.iter().filter(|used| used.weight > 0.0) {
            let at = used.resource as usize;
            let (Some(load), Some(capacity)) =
                (self.loads.get_mut(at), self.model.capacities.get(at))
            else {
                continue;
            };
            if *capacity > 0.0 && capacity.is_finite() {
                *load += sign * used.weight * bytes / capacity;
                bound = bound.max(*load);
            }
        }
        let line = pair.queue.and_then(|queue| self.lines.get_mut(queue as usize));
        if let Some(line) = line {
            *line += sign * (pair.start + bytes / pair.alone);
            bound = bound.max(*line);
        }
        bound
    }

    /// Sum of the eighth powers of all loads, to the eighth root: close to the largest load, and lower
    /// where fewer resources are near it.
    pub(crate) fn norm(&self) -> f64 {
        let all = self.loads.iter().chain(&self.lines);
        let most = all.clone().copied().fold(0.0, f64::max);
        if most <= 0.0 {
            return 0.0;
        }
        most * all.map(|load| (load / most).max(0.0).powi(8)).sum::<f64>().powf(0.125)
    }
}
