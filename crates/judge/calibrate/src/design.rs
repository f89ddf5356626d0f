//! Which sets of flows to measure next: sets that are expected to reduce the errors of predictions most.
//!
//! Two things are unknown after some sets: capacities that no set has reached, and the exact value of those
//! that were. Each makes predictions of the targets uncertain by an amount that the current fit gives; a
//! candidate is worth what it takes off the sum of the targets' variances.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::PathKey;
use pathline_schema::{Case, CaseOutcome, Flow, Unit};

use crate::candidates::{self, GroupOrigin};
use crate::data::{CalibrateError, CalibrationData, NamedRun, median, quantile};
use crate::fit::{self, EarlierFit, FittedNode};
use crate::model::{FittedModel, ModelFlow, SetRunner, SetTimeline};

/// A case to measure next.
#[derive(Debug, Clone, PartialEq)]
pub struct ChosenCase {
    /// Its index among the cases that were offered.
    pub index: usize,
    /// Why it is chosen, for people.
    pub reason: String,
}

/// What to measure next.
#[derive(Debug, Clone, PartialEq)]
pub struct SetDesign {
    /// The next cases, in the order in which they were offered.
    pub chosen: Vec<ChosenCase>,
    /// 95th percentile of the predicted relative errors of the targets, before these cases.
    pub error: f64,
    /// The error below which more cases are not worth their time, from the spread of the samples.
    pub floor: f64,
    /// 95th percentile of the changes of the targets' predicted durations since the choice before, as
    /// logarithms. At most half of `floor` ends the run: the latest cases taught less than samples differ.
    pub change: Option<f64>,
    /// Shared resources found so far.
    pub groups: usize,
    /// Whether nothing follows these cases.
    pub is_last: bool,
    /// What the next choice begins with.
    pub fit: EarlierFit,
}

/// Most cases that are chosen before the next fit. A fit of all cases takes as long as 20 to 40 cases do.
const BATCH: usize = 60;
/// Fewer cases than this are not worth another fit.
const LEAST_BATCH: usize = 8;
/// Prior density of a capacity by its logarithm, for a component of the topology: one in each factor of e
/// above its highest load. A hidden group has this divided by the size of its family.
const DENSITY: f64 = 1.0;
/// A candidate must load a group this much more than any set did.
const MORE_LOAD: f64 = 1.003;
/// Least floor: what two sets of the same flows differ by on an idle node.
const LEAST_FLOOR: f64 = 0.004;
/// A measured set later than predicted by this has a cause that the fit has not found.
const UNEXPLAINED: f64 = 0.015;
/// The least part of the targets' variances that a case must take off, as a share of the squared floor.
const LEAST_GAIN: f64 = 0.002;

/// Paths alone, and one pair for each engine that may serve one copy at a time: without them there is no fit.
pub fn first_cases(offered: &[Case]) -> Vec<ChosenCase> {
    let mut engines = BTreeSet::new();
    let mut chosen = Vec::new();
    for (index, case) in offered.iter().enumerate() {
        let flows: Vec<&Flow> = case.flows().collect();
        let reason = match flows.as_slice() {
            [_] => "alone".to_owned(),
            [a, b] if engine(a) == engine(b) && engines.insert(engine(a)) => {
                format!("whether {} serves one copy at a time", a.by.at())
            }
            _ => continue,
        };
        chosen.push(ChosenCase { index, reason });
    }
    chosen
}

/// The engine of a copy and its direction.
fn engine(flow: &Flow) -> (Unit, bool, bool) {
    (flow.by.at(), flow.src.unit.gpu().is_some(), flow.dst.unit.gpu().is_some())
}

/// Chooses the next of the offered cases, after those of `so_far`, so that `targets` are predicted well.
/// `earlier` is the fit of the choice before: its groups need not be searched again.
///
/// # Errors
/// As of [`calibrate`](crate::calibrate).
pub fn choose_cases(
    so_far: &NamedRun,
    offered: &[Case],
    targets: &[Case],
    earlier: Option<&EarlierFit>,
) -> Result<SetDesign, CalibrateError> {
    let mut data = CalibrationData::of(std::slice::from_ref(so_far))?;
    let queues = fit::prepare(&mut data);
    let fitted = match earlier {
        Some(earlier) => fit::resume(&data, &queues, earlier, &mut |_| {}),
        None => fit::fit(&data, &queues, vec![true; data.sets.len()], &mut |_| {}),
    };
    let noises: Vec<f64> = data.sets.iter().map(|set| set.noise).collect();
    let floor = LEAST_FLOOR.max(2.0 * median(&noises));
    let predictions = predict_sets(&data, &fitted.model, targets);
    let change = earlier.map(|earlier| earlier.change(&predictions));
    let mut design = DesignState::new(&data, &fitted, offered, targets, floor);
    let error = design.error();
    let mut chosen = Vec::new();
    // Half of the floor is the spread of the samples of a set.
    let is_settled = change.is_some_and(|change| change <= floor / 2.0);
    if error > floor && !is_settled {
        chosen = design.choose(BATCH);
        if chosen.len() < LEAST_BATCH {
            chosen.clear();
        }
    }
    let groups = fitted.groups.len();
    let is_last = chosen.is_empty();
    if is_last {
        chosen = repeats(so_far, offered);
    }
    chosen.sort_by_key(|chosen| chosen.index);
    let fit = EarlierFit::new(&data, fitted, predictions);
    Ok(SetDesign { chosen, error, floor, change, groups, is_last, fit })
}

/// Offered cases that are measured ones with their flows in another order: they show how well the node
/// repeats itself.
fn repeats(so_far: &NamedRun, offered: &[Case]) -> Vec<ChosenCase> {
    let sorted = |case: &Case| {
        let mut flows = case.timed.clone();
        flows.sort_unstable();
        flows
    };
    let measured: BTreeSet<Vec<Flow>> =
        so_far.journal.outcomes.iter().map(CaseOutcome::case).map(sorted).collect();
    let again =
        |(_, case): &(usize, &Case)| case.timed.len() > 1 && measured.contains(&sorted(case));
    let reason = || "again, to see how well the node repeats itself".to_owned();
    let found = offered.iter().enumerate().filter(again);
    found.map(|(index, _)| ChosenCase { index, reason: reason() }).collect()
}

/// The load of a set on each path while most of its flows move, and when it ends.
struct PredictedSet {
    flows: Vec<ModelFlow>,
    /// By flow, GB/s.
    rates: Vec<f64>,
    total: f64,
}

/// A capacity that no set has reached.
struct OpenGroup {
    name: String,
    /// By path.
    members: Vec<bool>,
    /// The highest load that it carried, GB/s, as a logarithm.
    seen: f64,
    /// Density of a capacity above it.
    density: f64,
    /// Logarithms of the loads of targets, highest first.
    targets: Vec<f64>,
    /// Sums of their first, second and third powers, of the first 0, 1, 2 ...
    powers: Vec<[f64; 3]>,
}

impl OpenGroup {
    fn load(&self, set: &PredictedSet) -> f64 {
        let flows = set.flows.iter().zip(&set.rates);
        let of = flows.filter(|(flow, _)| self.members.get(flow.path) == Some(&true));
        of.map(|(_, rate)| rate).sum::<f64>().ln()
    }

    fn set_targets(&mut self, mut loads: Vec<f64>) {
        loads.retain(|load| *load > self.seen);
        loads.sort_by(|a, b| b.total_cmp(a));
        let (mut sums, mut powers) = ([0.0; 3], vec![[0.0; 3]]);
        for load in &loads {
            sums = [sums[0] + load, sums[1] + load.powi(2), sums[2] + load.powi(3)];
            powers.push(sums);
        }
        (self.targets, self.powers) = (loads, powers);
    }

    /// The variance of all targets if the capacity is above `seen`: the integral of the squared slowdown
    /// over the capacities between it and the load, which is a third of the cube of the logarithm of the
    /// load over `seen`.
    fn variance(&self, seen: f64) -> f64 {
        let n = self.targets.partition_point(|load| *load > seen);
        let [first, second, third] = self.powers.get(n).copied().unwrap_or_default();
        let cubes =
            third - 3.0 * seen * second + 3.0 * seen * seen * first - n as f64 * seen.powi(3);
        self.density * cubes.max(0.0) / 3.0
    }
}

/// A found capacity, or the chance that there is none.
struct KnownGroup {
    name: String,
    /// Variance of the logarithm of its capacity, or the chance that it is not there.
    variance: f64,
    /// Change of the logarithm of each candidate's duration with the logarithm of the capacity, or if it is
    /// not there.
    candidates: Vec<f64>,
    /// Of each target.
    targets: Vec<f64>,
    /// Sum of the squares of the targets' changes.
    squares: f64,
}

/// What is unknown, and what each candidate would show of it.
struct DesignState {
    floor: f64,
    candidates: Vec<Option<PredictedSet>>,
    targets: Vec<PredictedSet>,
    open: Vec<OpenGroup>,
    /// Open groups that each candidate loads more than any set did, with the logarithm of its load.
    loads: Vec<Vec<(usize, f64)>>,
    known: Vec<KnownGroup>,
}

fn predicted(
    data: &CalibrationData,
    model: &FittedModel,
    case: &Case,
    runner: &mut SetRunner,
) -> Option<PredictedSet> {
    let flow = |(nth, flow): (usize, &Flow)| {
        Some(ModelFlow {
            path: data.path(PathKey::of(flow))?,
            bytes: flow.bytes.as_f64(),
            reps: 1,
            background: nth >= case.timed.len(),
            turn: nth as u32,
        })
    };
    let flows = case.flows().enumerate().map(flow).collect::<Option<Vec<_>>>()?;
    let mut timeline = SetTimeline::default();
    runner.run(model, &flows, &mut timeline);
    let (total, rates) = (timeline.total(), timeline.peak);
    (flows.len() > 1).then_some(PredictedSet { flows, rates, total })
}

/// The duration of each set that the paths of the data can predict, ns.
fn predict_sets(data: &CalibrationData, model: &FittedModel, sets: &[Case]) -> Vec<Option<f64>> {
    let mut runner = SetRunner::default();
    sets.iter().map(|set| Some(predicted(data, model, set, &mut runner)?.total)).collect()
}

impl DesignState {
    fn new(
        data: &CalibrationData,
        fitted: &FittedNode,
        offered: &[Case],
        targets: &[Case],
        floor: f64,
    ) -> Self {
        let (model, mut runner) = (&fitted.model, SetRunner::default());
        let mut of = |case: &Case| predicted(data, model, case, &mut runner);
        let measured: BTreeSet<Vec<(usize, u64)>> =
            data.sets.iter().map(|set| copies(&set.flows)).collect();
        let is_new = |set: &PredictedSet| !measured.contains(&copies(&set.flows));
        let candidates = offered.iter().map(|case| of(case).filter(is_new)).collect();
        let targets = targets.iter().filter_map(&mut of).collect();
        let (open, loads, known) = (Vec::new(), Vec::new(), Vec::new());
        let mut state = Self { floor, candidates, targets, open, loads, known };
        state.find_open(data, fitted);
        state.find_known(fitted);
        state
    }

    /// Candidate groups whose capacity is not known, with the evidence of the measured sets.
    fn find_open(&mut self, data: &CalibrationData, fitted: &FittedNode) {
        let late = unexplained(data, fitted);
        let mut groups: Vec<(OpenGroup, Vec<usize>)> = Vec::new();
        for candidate in candidates::all(data) {
            let mut members = vec![false; data.paths.len()];
            let all = candidate.members.iter().chain(&candidate.maybe);
            all.for_each(|&path| members[path] = true);
            let same = |takes: &[f64]| takes.iter().zip(&members).all(|(t, m)| (*t > 0.0) == *m);
            if fitted.model.shared.iter().any(|shared| same(&shared.takes)) {
                continue;
            }
            let alone = (0..members.len()).filter(|&path| members[path]);
            let alone = alone.map(|path| data.paths[path].gbs).fold(0.0, f64::max);
            let seen = fit::uncertainty::most_passed(data, &candidate.members).max(alone).ln();
            let family = if candidate.found == GroupOrigin::Topology { 1 } else { candidate.of };
            let mut group = OpenGroup {
                name: candidate.name,
                members,
                seen,
                density: DENSITY / family.max(1) as f64,
                targets: Vec::new(),
                powers: Vec::new(),
            };
            group.set_targets(self.targets.iter().map(|target| group.load(target)).collect());
            let explains = |&(nth, _): &(usize, f64)| {
                let flows = &data.sets[nth].flows;
                flows.iter().filter(|flow| group.members[flow.path]).count() > 1
            };
            let explains = late.iter().filter(|late| explains(late)).map(|late| late.0).collect();
            if !group.targets.is_empty() {
                groups.push((group, explains));
            }
        }
        // One of the groups of an unexplained set is its cause.
        let mut shares: BTreeMap<usize, f64> = BTreeMap::new();
        for (group, sets) in &groups {
            sets.iter().for_each(|set| *shares.entry(*set).or_default() += group.density);
        }
        for (mut group, sets) in groups {
            let prior = group.density;
            let cause = |set: &usize| prior / shares.get(set).copied().unwrap_or(1.0).max(prior);
            group.density += sets.iter().map(cause).fold(0.0, f64::max);
            self.open.push(group);
        }
        let loads = |set: &Option<PredictedSet>| -> Vec<(usize, f64)> {
            let Some(set) = set else { return Vec::new() };
            let load = |(nth, group): (usize, &OpenGroup)| {
                let load = group.load(set);
                (load > group.seen + MORE_LOAD.ln()).then_some((nth, load))
            };
            self.open.iter().enumerate().filter_map(load).collect()
        };
        self.loads = self.candidates.iter().map(loads).collect();
    }

    /// How the capacities that were found decide candidates and targets.
    fn find_known(&mut self, fitted: &FittedNode) {
        /// Change of a capacity that shows its effect, as a logarithm.
        const STEP: f64 = 0.01;
        for (nth, group) in fitted.groups.iter().enumerate() {
            let Some(capacity) = fitted.model.shared.get(nth).map(|shared| shared.capacity) else {
                continue;
            };
            let takes = &fitted.model.shared[nth].takes;
            let mut other = fitted.model.clone();
            let width = (group.high / group.low).ln() / (2.0 * 1.96);
            // Each set that it slows halves the chance that another cause is behind it.
            let absent = 0.5f64.powi(group.slows.min(30) as i32 + 1);
            for (changed, by, variance) in
                [(capacity * STEP.exp(), STEP, width * width), (f64::INFINITY, 1.0, absent)]
            {
                other.shared[nth].capacity = changed;
                let mut runner = SetRunner::default();
                let mut timeline = SetTimeline::default();
                let mut change = |set: &PredictedSet| {
                    let used = set.flows.iter().map(|f| takes[f.path] * fitted.model.caps[f.path]);
                    if used.sum::<f64>() <= capacity {
                        return 0.0;
                    }
                    runner.run(&other, &set.flows, &mut timeline);
                    (timeline.total() / set.total).ln() / by
                };
                let targets: Vec<f64> = self.targets.iter().map(&mut change).collect();
                let mut of = |set: &Option<PredictedSet>| set.as_ref().map_or(0.0, &mut change);
                let candidates = self.candidates.iter().map(&mut of).collect();
                let squares = targets.iter().map(|change| change * change).sum();
                let name = group.name.clone();
                self.known.push(KnownGroup { name, variance, candidates, targets, squares });
            }
        }
    }

    /// 95th percentile of the targets' predicted errors.
    fn error(&self) -> f64 {
        let mut variances = vec![0.0; self.targets.len()];
        for group in &self.open {
            for (variance, target) in variances.iter_mut().zip(&self.targets) {
                let over = (group.load(target) - group.seen).max(0.0);
                *variance += group.density * over.powi(3) / 3.0;
            }
        }
        for group in &self.known {
            for (variance, change) in variances.iter_mut().zip(&group.targets) {
                *variance += group.variance * change * change;
            }
        }
        let errors: Vec<f64> = variances.into_iter().map(f64::sqrt).collect();
        quantile(&errors, 0.95)
    }

    /// How much of what a candidate loads more than others it would decide. If it is not late, all its
    /// groups carry their load. If it is, one of them is the cause, and it does not say which.
    fn decided(&self, candidate: usize) -> f64 {
        let chance = |&(nth, load): &(usize, f64)| {
            let group = &self.open[nth];
            (group.density * (load - group.seen)).clamp(0.0, 0.9)
        };
        let chances = || self.loads[candidate].iter().map(chance);
        let none: f64 = chances().map(|chance| 1.0 - chance).product();
        none + (1.0 - none) / chances().sum::<f64>().max(1.0)
    }

    /// The part of a variance that a measurement leaves, by the change that it would show.
    fn left(&self, group: &KnownGroup, candidate: usize) -> f64 {
        let noise = self.floor * self.floor / 4.0;
        let shown = group.candidates[candidate].powi(2) * group.variance / noise;
        group.variance / (1.0 + shown)
    }

    /// What a candidate takes off the sum of the targets' variances, and the group of the largest part.
    fn gain(&self, candidate: usize) -> (f64, Option<&str>) {
        let (mut sum, mut most, mut name) = (0.0, 0.0, None);
        let mut add = |gain: f64, of: &'_ str| -> bool {
            sum += gain;
            let is_most = gain > most && !of.is_empty();
            if is_most {
                most = gain;
            }
            is_most
        };
        let decided = self.decided(candidate);
        for &(nth, load) in &self.loads[candidate] {
            let group = &self.open[nth];
            let seen = group.seen + decided * (load - group.seen);
            if load > group.seen
                && add(group.variance(group.seen) - group.variance(seen), &group.name)
            {
                name = Some(group.name.as_str());
            }
        }
        for group in self.known.iter().filter(|group| group.candidates[candidate] != 0.0) {
            let gain = (group.variance - self.left(group, candidate)) * group.squares;
            if add(gain, &group.name) {
                name = Some(group.name.as_str());
            }
        }
        (sum, name)
    }

    /// Takes a candidate for measured.
    fn take(&mut self, candidate: usize) {
        let decided = self.decided(candidate);
        for (nth, load) in std::mem::take(&mut self.loads[candidate]) {
            let group = &mut self.open[nth];
            if load > group.seen {
                group.seen += decided * (load - group.seen);
            }
        }
        for nth in 0..self.known.len() {
            self.known[nth].variance = self.left(&self.known[nth], candidate);
        }
        self.candidates[candidate] = None;
    }

    /// Up to `most` candidates, each the best after those before it. Gains shrink as others are taken, so
    /// that a stale gain is an upper bound.
    fn choose(&mut self, most: usize) -> Vec<ChosenCase> {
        let mut gains: Vec<(f64, usize)> = (0..self.candidates.len())
            .filter(|&nth| self.candidates[nth].is_some())
            .map(|nth| (self.gain(nth).0, nth))
            .collect();
        let least = LEAST_GAIN * self.floor * self.floor * self.targets.len() as f64;
        let mut chosen = Vec::new();
        while chosen.len() < most {
            gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let Some(&(stale, nth)) = gains.first() else { break };
            if stale <= least {
                break;
            }
            let (gain, name) = self.gain(nth);
            let next = gains.get(1).map_or(0.0, |next| next.0);
            if gain < next {
                gains[0].0 = gain;
                continue;
            }
            if gain <= least {
                break;
            }
            let error = (gain / self.targets.len().max(1) as f64).sqrt() * 100.0;
            let reason = format!(
                "{}: takes {error:.2} % (rms) off the predicted errors",
                name.unwrap_or("shared resources")
            );
            gains.remove(0);
            self.take(nth);
            chosen.push(ChosenCase { index: nth, reason });
        }
        chosen
    }
}

fn copies(flows: &[ModelFlow]) -> Vec<(usize, u64)> {
    let mut copies: Vec<(usize, u64)> = flows.iter().map(|f| (f.path, f.bytes as u64)).collect();
    copies.sort_unstable();
    copies
}

/// Measured sets that are later than predicted, and by how much.
fn unexplained(data: &CalibrationData, fitted: &FittedNode) -> Vec<(usize, f64)> {
    let (mut runner, mut timeline) = (SetRunner::default(), SetTimeline::default());
    let mut late = Vec::new();
    for (nth, set) in data.sets.iter().enumerate() {
        runner.run(&fitted.model, &set.flows, &mut timeline);
        let last = set.ends.iter().copied().fold(0.0, f64::max);
        let by = last / timeline.total() - 1.0;
        if by > UNEXPLAINED {
            late.push((nth, by));
        }
    }
    late
}
