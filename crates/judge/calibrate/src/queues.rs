//! Finds engines that serve one stream of copies at a time, from pairs.
//!
//! Two copies on a shared link both end late. Two copies in one engine's queue do not: one runs as
//! if alone, and the other ends when both are done. Which one is first is random, so every sample
//! is classified separately.

use std::collections::BTreeMap;

use pathline_schema::{Mover, Unit};

use crate::data::{CalibrationData, CalibrationSet, PathEnds, median};
use crate::model::ModelFlow;

/// A queue and the paths that it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedQueue {
    /// Display name: `copy engine of gpu0, to GPUs`.
    pub name: String,
    /// Indices of its paths.
    pub paths: Vec<usize>,
    /// Pairs of its paths that ran one after the other.
    pub pairs: usize,
    /// Pairs of its paths that were not measured and are assumed to do so.
    pub assumed: usize,
    /// Pairs of its paths that ran concurrently.
    pub against: usize,
}

/// Maximum relative deviation of the first of two from its time alone.
const MAX_FIRST_DEVIATION: f64 = 0.10;
/// Maximum relative deviation of the second from the time of both in sequence.
const MAX_BOTH_DEVIATION: f64 = 0.06;
/// Minimum share of each in the time of both, so that the two cases differ visibly.
const MIN_PART: f64 = 0.2;
/// Minimum share of the samples that must show a sequence.
const MIN_SEQUENTIAL_SHARE: f64 = 0.7;

/// The execution order of two flows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PairOrder {
    OneByOne,
    AtOnce,
    Unclear,
}

/// Whether the two flows of a set ran one after the other.
fn seen(data: &CalibrationData, set: &CalibrationSet) -> PairOrder {
    let alone = |i: usize| {
        let (flow, path) = (&set.flows[i], &data.paths[set.flows[i].path]);
        flow.reps as f64 * (path.start_ns.unwrap_or(0.0) + flow.bytes / path.gbs)
    };
    let (a, b) = (alone(0), alone(1));
    if a.min(b) < MIN_PART * (a + b) {
        return PairOrder::Unclear;
    }
    let (Some(first), Some(second)) = (set.samples.first(), set.samples.get(1)) else {
        return PairOrder::Unclear;
    };
    let near = |time: f64, expected: f64, by: f64| (time / expected - 1.0).abs() <= by;
    let serial = |(x, y): (&f64, &f64)| {
        let order = |(early, late): (f64, f64), alone: f64| {
            near(early, alone, MAX_FIRST_DEVIATION) && near(late, a + b, MAX_BOTH_DEVIATION)
        };
        order((*x, *y), a) || order((*y, *x), b)
    };
    let n = first.len().min(second.len());
    let one_by_one = first.iter().zip(second).filter(|s| serial(*s)).count();
    if one_by_one as f64 >= MIN_SEQUENTIAL_SHARE * n as f64 {
        PairOrder::OneByOne
    } else {
        PairOrder::AtOnce
    }
}

/// The engine class of a copy: its GPU and direction.
fn class(data: &CalibrationData, path: usize) -> Option<(Unit, u8)> {
    let p = &data.paths[path];
    let Mover::Dma { at } = p.key.by else { return None };
    match p.ends {
        PathEnds::In { .. } => Some((at, 0)),
        PathEnds::Out { .. } => Some((at, 1)),
        PathEnds::Peer { src, .. } if at.gpu() == Some(src) => Some((at, 2)),
        PathEnds::Peer { .. } => Some((at, 3)),
        PathEnds::Within => None,
    }
}

/// Queues, by class of engine. A class is a queue if most of its measured pairs ran one after the
/// other.
pub(crate) fn find(data: &CalibrationData) -> Vec<FittedQueue> {
    let mut classes: BTreeMap<(Unit, u8), (Vec<usize>, usize, usize)> = BTreeMap::new();
    for path in 0..data.paths.len() {
        if let Some(class) = class(data, path) {
            classes.entry(class).or_default().0.push(path);
        }
    }
    for set in data.sets.iter().filter(|s| s.flows.len() == 2 && s.ends.len() == 2) {
        let (a, b) = (class(data, set.flows[0].path), class(data, set.flows[1].path));
        let Some(of) = a.filter(|_| a == b).and_then(|c| classes.get_mut(&c)) else { continue };
        match seen(data, set) {
            PairOrder::OneByOne => of.1 += 1,
            PairOrder::AtOnce => of.2 += 1,
            PairOrder::Unclear => {}
        }
    }
    let queue =
        |((at, direction), (paths, pairs, against)): ((Unit, u8), (Vec<usize>, usize, usize))| {
            let label = ["into the GPU", "out of the GPU", "to GPUs", "from GPUs"]
                .get(usize::from(direction));
            let name = format!("copy engine of {at}, {}", label.unwrap_or(&""));
            let n = paths.len();
            let all = n * n.saturating_sub(1) / 2;
            let assumed = all.saturating_sub(pairs + against);
            FittedQueue { name, paths, pairs, assumed, against }
        };
    classes
        .into_iter()
        .filter(|(_, (_, pairs, against))| *pairs > 0 && *pairs > 2 * *against)
        .map(queue)
        .collect()
}

/// Gives the flows of each set their turns: in queues by the observed order of their ends. Samples
/// of other orders are excluded, so that predictions and measurements have the same order.
pub(crate) fn take_turns(data: &mut CalibrationData, queue_of: &[Option<usize>]) {
    for set in &mut data.sets {
        let timed = set.ends.len();
        let rivals = |i: usize| {
            let queue = queue_of[set.flows[i].path];
            queue.is_some() && set.flows.iter().filter(|j| queue_of[j.path] == queue).count() > 1
        };
        let waiting: Vec<usize> = (0..timed).filter(|&i| rivals(i)).collect();
        if waiting.is_empty() {
            continue;
        }
        let n = set.samples.iter().map(Vec::len).min().unwrap_or(0);
        let mut orders: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for k in 0..n {
            let mut order = waiting.clone();
            order.sort_by(|&a, &b| {
                let queue = |i: usize| queue_of[set.flows[i].path];
                queue(a).cmp(&queue(b)).then(set.samples[a][k].total_cmp(&set.samples[b][k]))
            });
            orders.entry(order).or_default().push(k);
        }
        let Some((order, of)) = orders.into_iter().max_by_key(|(_, of)| of.len()) else { continue };
        for (turn, &i) in order.iter().enumerate() {
            set.flows[i].turn = turn as u32;
        }
        for (end, samples) in set.ends.iter_mut().zip(&set.samples) {
            let chosen: Vec<f64> = of.iter().filter_map(|&k| samples.get(k).copied()).collect();
            *end = median(&chosen);
        }
    }
}

/// Whether a queue has a choice in this set, so that several timelines are possible.
pub(crate) fn has_choice(flows: &[ModelFlow], queue_of: &[Option<usize>]) -> bool {
    let queues: Vec<usize> = flows.iter().filter_map(|j| queue_of[j.path]).collect();
    queues.iter().enumerate().any(|(i, q)| queues.iter().skip(i + 1).any(|other| other == q))
}
