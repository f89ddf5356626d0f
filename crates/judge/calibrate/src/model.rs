//! The fitted model, and a runner for sets of flows on it.

mod parts;

use pathline_flow::{ConcurrentRun, FlowDemand, FlowSet, RateDemand, ResourceUse};

pub(crate) use parts::{PartRunner, PreparedSet, SLACK};

/// One flow of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelFlow {
    /// Index of its path.
    pub path: usize,
    /// Payload of one repetition.
    pub bytes: f64,
    /// Repetitions, one after the other, each with its own start time.
    pub reps: u64,
    /// Whether it is a background load, which runs until all others have ended.
    pub background: bool,
    /// Its turn in its queue: the lowest is served first.
    pub turn: u32,
}

impl ModelFlow {
    /// Payload of all repetitions.
    pub fn payload(&self) -> f64 {
        self.bytes * self.reps as f64
    }
}

/// A resource that several paths share.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedResource {
    /// GB/s.
    pub capacity: f64,
    /// Bytes of it per byte of payload, by path; 0 for paths that do not use it.
    pub takes: Vec<f64>,
}

impl FittedResource {
    /// The paths that use it.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.takes.iter().enumerate().filter(|(_, t)| **t > 0.0).map(|(p, _)| p)
    }
}

/// The model for sets of flows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FittedModel {
    /// Rate of each path alone, GB/s.
    pub caps: Vec<f64>,
    /// Time before the first byte of each path, ns.
    pub starts: Vec<f64>,
    /// Weight of each path in the sharing of rates.
    pub shares: Vec<f64>,
    /// Queue of each path.
    pub queues: Vec<Option<usize>>,
    /// Shared resources.
    pub shared: Vec<FittedResource>,
}

/// End times of the flows of a set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SetTimeline {
    /// End of each flow in ns, in the order of the set; infinite for background flows.
    pub ends: Vec<f64>,
    /// Rates while most flows moved bytes, GB/s.
    pub peak: Vec<f64>,
}

impl SetTimeline {
    /// The end of the last timed flow.
    pub fn total(&self) -> f64 {
        last_end(&self.ends)
    }
}

/// The end of the last timed flow.
pub(crate) fn last_end(ends: &[f64]) -> f64 {
    ends.iter().copied().filter(|e| e.is_finite()).fold(0.0, f64::max)
}

/// More repetitions are modelled as one after the sum of their start times: their starts overlap
/// with bytes of other flows in too many combinations, so only the mean matters.
const MAX_REPS: u64 = 16;
/// A resource that would be exceeded by no more than this relative amount limits no flow.
const SAME: f64 = 1e-11;

/// Runs sets; keeps its buffers between calls.
#[derive(Debug, Default)]
pub struct SetRunner {
    run: ConcurrentRun,
    /// Resources of the model that the set can fill, and their capacities.
    fillable: Vec<usize>,
    capacities: Vec<f64>,
    /// Resource use of each flow: flow `i` has `uses[first_use[i]..first_use[i + 1]]`.
    uses: Vec<ResourceUse>,
    first_use: Vec<usize>,
    /// Flows of each queue of the model, in turn order, without empty queues.
    queues: Vec<Vec<usize>>,
}

impl SetRunner {
    /// Runs a set to its end.
    pub fn run(&mut self, model: &FittedModel, set: &[ModelFlow], timeline: &mut SetTimeline) {
        self.gather(model, set);
        self.line_up(model, set);
        let Self { run, capacities, uses, first_use, queues, .. } = self;
        let uses = first_use.windows(2).map(|at| &uses[at[0]..at[1]]);
        let flows: Vec<FlowDemand<'_>> =
            set.iter().zip(uses).map(|(flow, uses)| demand(model, flow, uses)).collect();
        let SetTimeline { ends, peak } = timeline;
        peak.clear();
        peak.resize(set.len(), 0.0);
        let mut most = 0;
        run.observe(&FlowSet { capacities, flows: &flows, queues }, ends, |stretch| {
            if stretch.moving().len() > most {
                most = stretch.moving().len();
                peak.fill(0.0);
                stretch.moving().for_each(|(i, rate)| peak[i] = rate);
            }
        });
    }

    /// Collects the resources that this set can fill, and their use by its flows.
    fn gather(&mut self, model: &FittedModel, set: &[ModelFlow]) {
        let Self { fillable, capacities, uses, first_use, .. } = self;
        fillable.clear();
        capacities.clear();
        for (k, FittedResource { capacity, takes }) in model.shared.iter().enumerate() {
            let most: f64 = set.iter().map(|f| takes[f.path] * model.caps[f.path]).sum();
            if most > capacity * (1.0 + SAME) {
                fillable.push(k);
                capacities.push(*capacity);
            }
        }
        uses.clear();
        first_use.clear();
        first_use.push(0);
        for flow in set {
            for (resource, &k) in (0..).zip(fillable.iter()) {
                let weight = model.shared[k].takes[flow.path];
                if weight > 0.0 {
                    uses.push(ResourceUse { resource, weight });
                }
            }
            first_use.push(uses.len());
        }
    }

    /// Lists the flows of each queue in turn order.
    fn line_up(&mut self, model: &FittedModel, set: &[ModelFlow]) {
        self.queues.iter_mut().for_each(Vec::clear);
        for (i, flow) in set.iter().enumerate() {
            let Some(queue) = model.queues[flow.path] else { continue };
            if self.queues.len() <= queue {
                self.queues.resize(queue + 1, Vec::new());
            }
            self.queues[queue].push(i);
        }
        self.queues.iter_mut().for_each(|queue| queue.sort_by_key(|&i| (set[i].turn, i)));
    }
}

fn demand<'a>(model: &FittedModel, flow: &ModelFlow, uses: &'a [ResourceUse]) -> FlowDemand<'a> {
    let path = flow.path;
    let start = model.starts[path];
    let rate = RateDemand { uses, cap: model.caps[path], share: model.shares[path] };
    let merged = start == 0.0 || flow.reps > MAX_REPS;
    let (bytes, start, reps) = if merged {
        (flow.payload(), start * flow.reps as f64, 1)
    } else {
        (flow.bytes, start, flow.reps)
    };
    let (bytes, reps) = if flow.background { (f64::INFINITY, 1) } else { (bytes, reps) };
    FlowDemand { start, reps, ..FlowDemand::new(rate, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(caps: &[f64], shared: &[(f64, &[f64])]) -> FittedModel {
        let n = caps.len();
        FittedModel {
            caps: caps.to_vec(),
            starts: vec![0.0; n],
            shares: vec![1.0; n],
            queues: vec![None; n],
            shared: shared
                .iter()
                .map(|(capacity, takes)| FittedResource {
                    capacity: *capacity,
                    takes: takes.to_vec(),
                })
                .collect(),
        }
    }

    fn flows(bytes: &[f64]) -> Vec<ModelFlow> {
        let flow = |(path, &bytes)| ModelFlow {
            path,
            bytes,
            reps: 1,
            background: false,
            turn: path as u32,
        };
        bytes.iter().enumerate().map(flow).collect()
    }

    fn ends(model: &FittedModel, flows: &[ModelFlow]) -> Vec<f64> {
        let mut timeline = SetTimeline::default();
        SetRunner::default().run(model, flows, &mut timeline);
        timeline.ends
    }

    fn near(found: &[f64], expected: &[f64]) {
        let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs();
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(same),
            "{found:?} is not {expected:?}"
        );
    }

    /// 60 GB/s for two flows of up to 50 GB/s, 3 and 5 MB: 30 each until the first ends at
    /// 3e6 / 30 = 100 us; then 2 MB at 50 take 40 us.
    #[test]
    fn a_pool_is_shared_and_then_left_to_one() {
        let model = model(&[50.0, 50.0], &[(60.0, &[1.0, 1.0])]);
        near(&ends(&model, &flows(&[3e6, 5e6])), &[100e3, 140e3]);
    }

    /// Weights 0.5 and 1 on 60: 20 and 40. The second ends at 4e6 / 40 = 100 us; the first has
    /// moved 2 of 4 MB and has 2 MB at its cap of 50: 40 us more.
    #[test]
    fn weights_share_a_pool_out() {
        let mut model = model(&[50.0, 50.0], &[(60.0, &[1.0, 1.0])]);
        model.shares[0] = 0.5;
        near(&ends(&model, &flows(&[4e6, 4e6])), &[140e3, 100e3]);
    }

    /// Measured on four H200s: 3>1 512 MiB, 0>2 1 GiB, 3>2 1 GiB, 0>1 512 MiB, 2>3 1 GiB with 395.3
    /// alone and 399 into a GPU. Engines serve one stream at a time. With 3>1 and 0>1 first they
    /// share gpu1's port until 1 GiB has passed at 399 = 2691 us; then 0>2 and 3>2 share gpu2's
    /// port: 2 GiB at 399 = 5382 us, 8073 in all. With 3>1 and 0>2 first nothing is shared: 3>1
    /// ends at 1358 us, then 3>2 meets 0>2 in gpu2's port and 0>2 has 358e6 B left.
    #[test]
    fn engines_serve_one_stream_at_a_time() {
        const MIB: f64 = 1048576.0;
        // Paths: 3>1, 0>2, 3>2, 0>1, 2>3.
        let into_1 = [1.0, 0.0, 0.0, 1.0, 0.0];
        let into_2 = [0.0, 1.0, 1.0, 0.0, 0.0];
        let mut model = model(&[395.3; 5], &[(399.0, &into_1), (399.0, &into_2)]);
        model.queues = vec![Some(3), Some(0), Some(3), Some(0), Some(2)];
        let mut set = flows(&[512.0 * MIB, 1024.0 * MIB, 1024.0 * MIB, 512.0 * MIB, 1024.0 * MIB]);
        for (flow, turn) in set.iter_mut().zip([0, 1, 1, 0, 0]) {
            flow.turn = turn;
        }
        let both_first = ends(&model, &set).into_iter().fold(0.0, f64::max);
        let at = 2.0 * 512.0 * MIB / 399.0 + 2.0 * 1024.0 * MIB / 399.0;
        near(&[both_first], &[at]);
        assert_eq!((both_first / 1e3).round(), 8073.0);
        for (flow, turn) in set.iter_mut().zip([0, 0, 1, 1, 0]) {
            flow.turn = turn;
        }
        let apart = ends(&model, &set).into_iter().fold(0.0, f64::max);
        assert_eq!((apart / 1e3).round(), 5407.0);
    }

    /// Two repetitions of 1 MB at 10 with a start of 50 us each: 2 x (50 + 100) = 300 us.
    #[test]
    fn each_repetition_has_its_start() {
        let mut model = model(&[10.0], &[]);
        model.starts[0] = 50e3;
        let flow = ModelFlow { path: 0, bytes: 1e6, reps: 2, background: false, turn: 0 };
        near(&ends(&model, &[flow]), &[300e3]);
    }

    /// A background flow takes half of 10 as long as the other needs: 1 MB at 5 take 200 us.
    #[test]
    fn a_background_flow_never_ends() {
        let model = model(&[10.0, 10.0], &[(10.0, &[1.0, 1.0])]);
        let mut set = flows(&[1e6, 1.0]);
        set[1].background = true;
        assert_eq!(ends(&model, &set), [200e3, f64::INFINITY]);
    }
}
