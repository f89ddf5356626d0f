//! The errors of a fitted node: on the sets of the fit, and on held-out sets.

use std::collections::BTreeMap;

use crate::data::{CalibrationData, PathEnds, lasts, median, quantile};
use crate::fit::{FittedNode, GroupFitter};
use crate::model::{FittedModel, ModelFlow, SetRunner, SetTimeline};
use crate::queues::has_choice;

/// Kinds of sets with separate errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetClass {
    /// Only flows between the host and GPUs.
    Host,
    /// Only flows between GPUs.
    Peers,
    /// Both.
    Mixed,
    /// Several copies wait for one engine, in an unknown order.
    Order,
}

impl SetClass {
    /// Display text.
    pub fn label(self) -> &'static str {
        match self {
            Self::Host => "host and GPUs",
            Self::Peers => "GPU to GPU",
            Self::Mixed => "host and GPU to GPU",
            Self::Order => "several wait for an engine",
        }
    }
}

/// A set with its predicted and measured duration.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedSet {
    /// Index of the set in the data.
    pub set: usize,
    /// Its kind.
    pub kind: SetClass,
    /// Predicted duration, ns; the median over all orders.
    pub predicted: f64,
    /// Shortest and longest prediction over orders.
    pub range: (f64, f64),
    /// Measured duration, ns.
    pub measured: f64,
}

impl JudgedSet {
    /// Predicted over measured, less 1.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
    /// Whether the measurement lies within the predictions of all orders, plus a relative margin
    /// `by`.
    pub fn covered(&self, by: f64) -> bool {
        self.range.0 * (1.0 - by) <= self.measured && self.measured <= self.range.1 * (1.0 + by)
    }
}

/// Errors of some sets, relative.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ErrorStats {
    /// Number of sets.
    pub n: usize,
    /// Median of the absolute errors.
    pub p50: f64,
    /// Their 95th percentile.
    pub p95: f64,
    /// The largest.
    pub worst: f64,
}

impl ErrorStats {
    /// The errors of some sets.
    pub fn of<'a>(judged: impl Iterator<Item = &'a JudgedSet>) -> Self {
        Self::of_sizes(&judged.map(|j| j.error().abs()).collect::<Vec<_>>())
    }
    /// Of absolute errors.
    pub(crate) fn of_sizes(sizes: &[f64]) -> Self {
        Self {
            n: sizes.len(),
            p50: median(sizes),
            p95: quantile(sizes, 0.95),
            worst: sizes.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Number of orders to try for a set whose queues have a choice.
const ORDERS: usize = 64;

/// Pseudo-random numbers for orders: the same in every run.
struct OrderRandom(u64);

impl OrderRandom {
    /// A number below `n` (xorshift64*, G. Marsaglia, "Xorshift RNGs", 2003).
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        (bits as usize * n.max(1)) >> 32
    }
}

/// Durations of a set over orders of its queues: median, shortest, longest.
fn durations(
    model: &FittedModel,
    flows: &[ModelFlow],
    choice: bool,
    runner: &mut SetRunner,
) -> (f64, f64, f64) {
    let mut timeline = SetTimeline::default();
    if !choice {
        runner.run(model, flows, &mut timeline);
        let total = timeline.total();
        return (total, total, total);
    }
    let mut rng = OrderRandom(0x9e37_79b9_7f4a_7c15);
    let mut flows = flows.to_vec();
    let mut totals = Vec::new();
    for _ in 0..ORDERS {
        for i in (1..flows.len()).rev() {
            let k = rng.below(i + 1);
            (flows[i].turn, flows[k].turn) = (flows[k].turn, flows[i].turn);
        }
        runner.run(model, &flows, &mut timeline);
        totals.push(timeline.total());
    }
    let (low, high) =
        totals.iter().fold((f64::INFINITY, 0.0f64), |(l, h), t| (l.min(*t), h.max(*t)));
    (median(&totals), low, high)
}

/// Judges sets of `data` by a model with the paths of `of`. Sets with other paths are left out.
pub fn judge(of: &CalibrationData, model: &FittedModel, data: &CalibrationData) -> Vec<JudgedSet> {
    let mut runner = SetRunner::default();
    let mut judged = Vec::new();
    for (s, set) in data.sets.iter().enumerate() {
        let known =
            |j: &ModelFlow| Some(ModelFlow { path: of.path(data.paths[j.path].key)?, ..*j });
        let Some(mut flows) = set.flows.iter().map(known).collect::<Option<Vec<_>>>() else {
            continue;
        };
        let choice = has_choice(&flows, &model.queues);
        if choice {
            flows.iter_mut().enumerate().for_each(|(i, j)| j.turn = i as u32);
        }
        let kind = if choice { SetClass::Order } else { kind(of, &flows) };
        let (predicted, low, high) = durations(model, &flows, choice, &mut runner);
        let measured = median(&lasts(&set.samples));
        judged.push(JudgedSet { set: s, kind, predicted, range: (low, high), measured });
    }
    judged
}

fn kind(data: &CalibrationData, flows: &[ModelFlow]) -> SetClass {
    let peer = |j: &&ModelFlow| matches!(data.paths[j.path].ends, PathEnds::Peer { .. });
    match flows.iter().filter(peer).count() {
        0 => SetClass::Host,
        n if n == flows.len() => SetClass::Peers,
        _ => SetClass::Mixed,
    }
}

/// Errors by kind, and of all sets with a single possible timeline.
pub fn by_kind(judged: &[JudgedSet]) -> (ErrorStats, BTreeMap<SetClass, ErrorStats>) {
    let mut kinds = BTreeMap::new();
    for kind in [SetClass::Host, SetClass::Peers, SetClass::Mixed, SetClass::Order] {
        let errors = ErrorStats::of(judged.iter().filter(|j| j.kind == kind));
        if errors.n > 0 {
            kinds.insert(kind, errors);
        }
    }
    (ErrorStats::of(judged.iter().filter(|j| j.kind != SetClass::Order)), kinds)
}

/// Number of parts for cross-validation.
const FOLDS: usize = 5;
/// Minimum number of sets for cross-validation.
const MIN_SETS: usize = 20;

/// Errors on held-out sets: each fifth of the sets is predicted by figures fitted to the other
/// four. The groups are those of the whole fit; only capacities, weights and shares are fitted
/// again.
pub(crate) fn crossed(data: &CalibrationData, fitted: &FittedNode) -> Option<ErrorStats> {
    if data.sets.len() < MIN_SETS {
        return None;
    }
    let judged = &|fold: usize| -> Vec<JudgedSet> {
        let used: Vec<bool> = (0..data.sets.len()).map(|s| s % FOLDS != fold).collect();
        let model = GroupFitter::again(data, fitted, used);
        judge(data, &model, data).into_iter().filter(|j| j.set % FOLDS == fold).collect()
    };
    let all: Vec<JudgedSet> = std::thread::scope(|scope| {
        let folds: Vec<_> = (0..FOLDS).map(|fold| scope.spawn(move || judged(fold))).collect();
        let joined = folds.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.flat_map(|j| j.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    Some(ErrorStats::of(all.iter().filter(|j| j.kind != SetClass::Order)))
}
