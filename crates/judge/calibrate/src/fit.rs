//! The search for resources that paths share.
//!
//! The model predicts each set of flows; a set measured later than predicted is unexplained. Of all
//! candidate groups, the one with the largest gain in score over its price is added, repeatedly,
//! until none is worth its price. Then needless groups are removed, and capacities, weights and
//! routes are optimised.

mod resume;
mod settle;
mod trials;
pub(crate) mod uncertainty;

use crate::candidates::{self, GroupCandidate, GroupOrigin};
use crate::data::{CalibrationData, PathEnds, median};
use crate::model::{FittedModel, FittedResource, PartRunner, SetRunner, SetTimeline, last_end};
use crate::queues::{self, FittedQueue};
use pathline_schema::LinkEnd;
pub use resume::EarlierFit;
pub(crate) use resume::resume;
use trials::{CapacitySweep, minimum};
pub use uncertainty::AtLeast;

/// An accepted group; its capacity and its paths' shares are in the resource of the model with the
/// same index.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedGroup {
    /// Display name.
    pub name: String,
    /// Its source.
    pub found: GroupOrigin,
    /// Number of groups in its family.
    pub of: usize,
    /// Paths that may belong to it, by one of several equal routes.
    pub maybe: Vec<usize>,
    /// Its link, if it is one, and whether it includes both directions.
    pub link: Option<(LinkEnd, LinkEnd, bool)>,
    /// Lower end of the 95 % interval of its capacity, GB/s.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of sets that it slows by more than a percent.
    pub slows: usize,
    /// Names of groups that explain the sets about as well.
    pub rivals: Vec<String>,
    /// Another component with exactly the same paths.
    pub also: Option<String>,
}

/// A progress report.
#[derive(Debug, Clone, PartialEq)]
pub struct FitStep {
    /// The current phase.
    pub doing: &'static str,
    /// Groups found so far.
    pub groups: usize,
    /// Median relative error of the sets so far.
    pub error: f64,
}

/// A fitted node.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedNode {
    /// Rates, queues and shared resources.
    pub model: FittedModel,
    /// Details of each shared resource of the model.
    pub groups: Vec<FittedGroup>,
    /// Engines that serve one stream at a time.
    pub queues: Vec<FittedQueue>,
}

/// Allowed relative spread in the first round: only larger deviations are explained.
const COARSE: f64 = 0.03;
/// Minimum spread that no fit can explain: overlapping starts, clocks of several GPUs.
const FLOOR: f64 = 0.002;
/// Number of candidates to try in each round, most promising first.
const MAX_TRIALS: usize = 12;
/// Maximum rounds of the search.
const ROUNDS: usize = 200;
/// Maximum rounds of refinement.
const SETTLE_ROUNDS: usize = 3;
/// Minimum slowdown of some set by a group.
const MIN_EFFECT: f64 = 0.007;
/// Minimum number of sets that a group slows if the topology does not show it: any group explains
/// one set.
const MIN_SETS: usize = 2;
/// Scores nearer than this are equal: the likelihoods differ by less than a factor of e.
const SAME_SCORE: f64 = 2.0;

/// A candidate and the sets that it could slow.
struct GroupProspect {
    candidate: GroupCandidate,
    /// Its assumed paths.
    members: Vec<usize>,
    /// The highest measured load on it, GB/s: a lower bound of its capacity.
    seen: f64,
    /// Sets whose flows could fill it, with their flows in it as bits.
    sets: Vec<(usize, u64)>,
}

/// The state of a fit.
pub(crate) struct GroupFitter<'a> {
    data: &'a CalibrationData,
    /// Sets to fit; the others are ignored.
    used: Vec<bool>,
    pub(crate) model: FittedModel,
    pub(crate) groups: Vec<FittedGroup>,
    /// For each set: its predicted timeline and its deviation.
    timelines: Vec<SetTimeline>,
    off: Vec<f64>,
    /// The last change of each set's timeline, and of any.
    stamps: Vec<u64>,
    clock: u64,
    /// Allowed spread and its minimum, relative.
    spread: f64,
    finest: f64,
    runner: SetRunner,
    /// Ends on models that are tried.
    trial: PartRunner,
    trial_ends: Vec<f64>,
    /// For each group, its index in the list of prospects.
    taken: Vec<usize>,
    /// Number of links of each path between GPUs.
    hops: Vec<u32>,
}

/// The model without shared resources.
pub(crate) fn bare(data: &CalibrationData, queue_of: &[Option<usize>]) -> FittedModel {
    FittedModel {
        caps: data.paths.iter().map(|p| p.gbs).collect(),
        starts: data.paths.iter().map(|p| p.start_ns.unwrap_or(0.0)).collect(),
        shares: vec![1.0; data.paths.len()],
        queues: queue_of.to_vec(),
        shared: Vec::new(),
    }
}

/// The queue of each path.
pub(crate) fn queue_of(data: &CalibrationData, queues: &[FittedQueue]) -> Vec<Option<usize>> {
    let of = |path: usize| queues.iter().position(|q| q.paths.contains(&path));
    (0..data.paths.len()).map(of).collect()
}

/// The deviation of predicted ends from the measurement: the squared logarithm of the ratio of whole
/// durations, and the mean of those of the single ends.
fn deviation(data: &CalibrationData, set: usize, ends: &[f64]) -> f64 {
    let measured = &data.sets[set].ends;
    let square = |a: f64, b: f64| (a / b).ln().powi(2);
    let last = measured.iter().copied().fold(0.0, f64::max);
    let each: f64 = measured.iter().zip(ends).map(|(m, p)| square(*m, *p)).sum();
    square(last, last_end(ends)) + each / measured.len().max(1) as f64
}

/// Minus twice the log likelihood of a deviation, by a Cauchy distribution of this spread. With its
/// heavy tails an unexplained set does not dominate the fit, and an explained one counts
/// independently of the others.
fn loss(deviation: f64, spread: f64) -> f64 {
    const MOST: f64 = 1e6;
    2.0 * (deviation / (spread * spread)).min(MOST).ln_1p()
}

/// Fits a node; `used` selects the sets.
pub(crate) fn fit(
    data: &CalibrationData,
    queues: &[FittedQueue],
    used: Vec<bool>,
    report: &mut dyn FnMut(&FitStep),
) -> FittedNode {
    let queue_of = queue_of(data, queues);
    let mut fitter = GroupFitter::new(data, bare(data, &queue_of), used);
    let prospects = fitter.prospects();
    fitter.search_all(&prospects, report);
    if fitter.weigh_classes() {
        // An apparent shared resource may have been an unequal share: search again from the start.
        fitter.forget_groups();
        fitter.search_all(&prospects, report);
    }
    fitter.sharpen();
    fitter.search_all(&prospects, report);
    fitter.settle(&prospects, SETTLE_ROUNDS, report);
    fitter.find_uncertainty(&prospects);
    FittedNode { model: fitter.model, groups: fitter.groups, queues: queues.to_vec() }
}

impl<'a> GroupFitter<'a> {
    pub(crate) fn new(data: &'a CalibrationData, model: FittedModel, used: Vec<bool>) -> Self {
        let n = data.sets.len();
        let noises: Vec<f64> = data
            .sets
            .iter()
            .map(|s| s.noise / (s.samples.first().map_or(1, Vec::len).max(1) as f64).sqrt())
            .collect();
        let finest = FLOOR.max(1.25 * median(&noises));
        let mut fitter = Self {
            data,
            used,
            model,
            groups: Vec::new(),
            timelines: vec![SetTimeline::default(); n],
            off: vec![0.0; n],
            stamps: vec![0; n],
            clock: 0,
            spread: COARSE.max(finest),
            finest,
            runner: SetRunner::default(),
            trial: PartRunner::default(),
            trial_ends: Vec::new(),
            taken: Vec::new(),
            hops: data.hops(),
        };
        fitter.rerun(0..n);
        fitter
    }

    /// Fits the figures of a fitted node again, to some of the sets; keeps its groups.
    pub(crate) fn again(
        data: &'a CalibrationData,
        fitted: &FittedNode,
        used: Vec<bool>,
    ) -> FittedModel {
        let mut fitter = Self::new(data, fitted.model.clone(), used);
        fitter.groups.clone_from(&fitted.groups);
        fitter.sharpen();
        for g in 0..fitter.groups.len() {
            fitter.refine(g, 0.03, 6);
        }
        fitter.weigh_classes();
        for g in 0..fitter.groups.len() {
            fitter.refine(g, 0.01, 6);
        }
        fitter.model
    }

    /// Runs sets again on the current model.
    fn rerun(&mut self, sets: impl IntoIterator<Item = usize>) {
        self.clock += 1;
        for s in sets {
            if self.used[s] {
                self.stamps[s] = self.clock;
                self.runner.run(&self.model, &self.data.sets[s].flows, &mut self.timelines[s]);
                self.off[s] = loss(deviation(self.data, s, &self.timelines[s].ends), self.spread);
            }
        }
    }

    fn price(&self, of: usize) -> f64 {
        (self.count().max(3.0)).ln() + 2.0 * (of.max(1) as f64).ln()
    }

    fn count(&self) -> f64 {
        self.used.iter().filter(|u| **u).count() as f64
    }

    /// Reduces the allowed spread to that of half of the sets, or to that of the samples.
    fn sharpen(&mut self) {
        let used = (0..self.off.len()).filter(|&s| self.used[s]);
        let sizes: Vec<f64> =
            used.map(|s| deviation(self.data, s, &self.timelines[s].ends).sqrt()).collect();
        self.spread = self.finest.max(median(&sizes)).min(COARSE.max(self.finest));
        self.rerun(0..self.data.sets.len());
    }

    fn sum(&self) -> f64 {
        self.off.iter().zip(&self.used).filter(|(_, u)| **u).map(|(o, _)| o).sum()
    }

    fn known_sum(&self, sets: &[usize]) -> f64 {
        sets.iter().map(|&s| self.off[s]).sum()
    }

    /// Sets that could fill a resource.
    fn sets_of(&self, shared: &FittedResource, capacity: f64) -> Vec<usize> {
        let could = |s: usize| {
            let load = |j: &crate::model::ModelFlow| shared.takes[j.path] * self.model.caps[j.path];
            self.data.sets[s].flows.iter().map(load).sum::<f64>() > capacity
        };
        (0..self.data.sets.len()).filter(|&s| self.used[s] && could(s)).collect()
    }

    fn prospects(&self) -> Vec<GroupProspect> {
        candidates::all(self.data).into_iter().filter_map(|c| self.prospect(c)).collect()
    }

    /// Evidence for a candidate. `None` if no set could fill it.
    fn prospect(&self, candidate: GroupCandidate) -> Option<GroupProspect> {
        let mut members = candidate.members.clone();
        if members.len() < 2 {
            members.extend(&candidate.maybe);
        }
        let mut belongs = vec![false; self.data.paths.len()];
        members.iter().for_each(|&m| belongs[m] = true);
        let (mut seen, mut sets): (f64, _) = (0.0, Vec::new());
        for (s, set) in self.data.sets.iter().enumerate().filter(|(s, _)| self.used[*s]) {
            let of = |(i, j): (usize, &crate::model::ModelFlow)| {
                if belongs[j.path] { 1u64 << (i & 63) } else { 0 }
            };
            let mask = set.flows.iter().enumerate().take(64).map(of).sum::<u64>();
            if mask.count_ones() < 2 {
                continue;
            }
            sets.push((s, mask));
            seen = seen.max(passed(self.data, s, mask));
        }
        let could = |&(s, mask): &(usize, u64)| {
            let load = |(_, j): (usize, &crate::model::ModelFlow)| self.model.caps[j.path];
            let of = self.data.sets[s].flows.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
            of.map(load).sum::<f64>() > seen * 1.003
        };
        sets.retain(could);
        (!sets.is_empty() && seen > 0.0).then_some(GroupProspect { candidate, members, seen, sets })
    }

    /// The expected gain of a prospect, from the rates of each set while most of its flows ran:
    /// assumes that its flows are as late as the load exceeds the measured throughput. On average
    /// they are; with unequal shares some run as if alone, and only the latest one shows it.
    fn promise(&self, prospect: &GroupProspect, late: LateFlows) -> f64 {
        let mut gain = 0.0;
        for &(s, mask) in &prospect.sets {
            let timeline = &self.timelines[s];
            let bits = (0..timeline.peak.len().min(64)).filter(|i| mask >> i & 1 == 1);
            let load: f64 = bits.clone().map(|i| timeline.peak[i]).sum();
            if load <= prospect.seen * 1.003 {
                continue;
            }
            let ends = &self.data.sets[s].ends;
            let lates = bits.filter_map(|i| Some((ends.get(i)? / timeline.ends[i]).ln()));
            let late = match late {
                LateFlows::All => {
                    let lates: Vec<f64> = lates.collect();
                    lates.iter().sum::<f64>() / lates.len().max(1) as f64
                }
                LateFlows::Last => lates.reduce(f64::max).unwrap_or(0.0),
            };
            let after = late - (load / prospect.seen).ln();
            gain += loss(2.0 * late * late, self.spread) - loss(2.0 * after * after, self.spread);
        }
        gain
    }

    /// Minimum expected gain for a trial. The latest flow overestimates the gain, so it must at
    /// least cover the price.
    fn least_promise(&self, prospect: &GroupProspect, late: LateFlows) -> f64 {
        match late {
            LateFlows::All => SAME_SCORE,
            LateFlows::Last => self.price(prospect.candidate.of),
        }
    }

    /// Searches first the groups in the topology, which need the least evidence; then all others.
    fn search_all(&mut self, prospects: &[GroupProspect], report: &mut dyn FnMut(&FitStep)) {
        self.search(prospects, Some(GroupOrigin::Topology), report);
        self.weigh_members();
        self.search(prospects, None, report);
    }

    /// Adds groups until none is worth its price. The latest flow decides only at the end: while
    /// much is unexplained, a flow of a group can be late for many reasons.
    fn search(
        &mut self,
        prospects: &[GroupProspect],
        only: Option<GroupOrigin>,
        report: &mut dyn FnMut(&FitStep),
    ) {
        // Groups that failed a trial wait until all others were tried.
        let mut vain = vec![false; prospects.len()];
        let (mut again, mut late) = (false, LateFlows::All);
        let mut attempts: Vec<Option<GroupAttempt>> = prospects.iter().map(|_| None).collect();
        for _ in 0..ROUNDS {
            let mut promising: Vec<(f64, usize)> = (0..prospects.len())
                .filter(|&p| only.is_none_or(|found| prospects[p].candidate.found == found))
                .filter(|&p| !vain[p] && !self.has(prospects, p))
                .map(|p| (self.promise(&prospects[p], late), p))
                .filter(|&(promise, p)| promise > self.least_promise(&prospects[p], late))
                .collect();
            promising.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            promising.truncate(MAX_TRIALS);
            if promising.is_empty() {
                if !again && (late == LateFlows::Last || only.is_some()) {
                    break;
                }
                if !again {
                    late = LateFlows::Last;
                }
                vain.fill(false);
                again = false;
                continue;
            }
            let promising: Vec<usize> = promising.into_iter().map(|(_, p)| p).collect();
            // An attempt holds until one of its sets changes.
            let holds = |p: usize| attempts[p].as_ref().is_some_and(|known| self.is_current(known));
            let changed: Vec<usize> = promising.iter().copied().filter(|&p| !holds(p)).collect();
            let new = self.trials(&changed, |fitter, p| fitter.attempt(prospects, p));
            for (p, attempt) in changed.into_iter().zip(new) {
                attempts[p] = Some(attempt);
            }
            let mut tried = Vec::new();
            for p in promising {
                let trial = attempts[p].as_ref().and_then(|known| known.trial.clone());
                match trial.filter(|t| t.gain > 0.0) {
                    Some(trial) => tried.push(trial),
                    None => vain[p] = true,
                }
            }
            if !tried.is_empty() {
                again = true;
                self.take_best(prospects, tried);
                report(&FitStep {
                    doing: "search",
                    groups: self.groups.len(),
                    error: self.error(),
                });
            }
        }
    }

    /// Whether a prospect is already in use, or is an alternative for a link that is.
    fn has(&self, prospects: &[GroupProspect], p: usize) -> bool {
        let link = prospects[p].candidate.link;
        self.taken.contains(&p) || (link.is_some() && self.groups.iter().any(|g| g.link == link))
    }

    /// Median relative error of the sets.
    fn error(&self) -> f64 {
        let used = (0..self.off.len()).filter(|&s| self.used[s]);
        let errors: Vec<f64> = used
            .map(|s| {
                let last = self.data.sets[s].ends.iter().copied().fold(0.0, f64::max);
                (self.timelines[s].total() / last - 1.0).abs()
            })
            .collect();
        median(&errors)
    }

    fn is_current(&self, attempt: &GroupAttempt) -> bool {
        attempt.sets.iter().all(|&s| self.stamps[s] <= attempt.clock)
    }

    /// Tries a prospect: its best capacity, and its gain.
    fn attempt(&mut self, prospects: &[GroupProspect], p: usize) -> GroupAttempt {
        let prospect = &prospects[p];
        let mut takes = vec![0.0; self.data.paths.len()];
        prospect.members.iter().for_each(|&m| takes[m] = 1.0);
        let shared = FittedResource { capacity: prospect.seen, takes };
        let sets = self.sets_of(&shared, prospect.seen * 0.9);
        let before = self.known_sum(&sets);
        self.model.shared.push(shared);
        let at = self.model.shared.len() - 1;
        let (capacity, sum) = self.best_capacity(at, &sets, prospect.seen, 0.12, 9);
        self.model.shared[at].capacity = capacity;
        self.trial.load(&self.model);
        let mut effects = 0;
        let mut changed = Vec::new();
        for &s in &sets {
            let slower = self.try_set(s) / self.timelines[s].total() - 1.0;
            effects += usize::from(slower >= MIN_EFFECT);
            if slower.abs() > 1e-4 {
                changed.push(s);
            }
        }
        self.model.shared.pop();
        let price = self.price(prospect.candidate.of);
        let gain = before - sum - price;
        let enough =
            if prospect.candidate.found == GroupOrigin::Interference { MIN_SETS } else { 1 };
        let trial =
            (effects >= enough).then_some(GroupTrial { prospect: p, capacity, gain, changed });
        GroupAttempt { clock: self.clock, sets, trial }
    }

    /// The capacity of a shared resource that leaves the least unexplained, near `around`, by
    /// golden section on its logarithm.
    fn best_capacity(
        &mut self,
        at: usize,
        sets: &[usize],
        around: f64,
        within: f64,
        steps: usize,
    ) -> (f64, f64) {
        let least = self.least(at);
        let mut sweep = CapacitySweep::new(at, sets);
        let (best, sum) = minimum(around.max(least), within, steps, &mut |capacity, enough| {
            self.model.shared[at].capacity = capacity.max(least);
            self.try_capacity(&mut sweep, enough)
        });
        (best.max(least), sum)
    }

    /// The minimum capacity of a shared resource: the highest load of a single path.
    fn least(&self, at: usize) -> f64 {
        let takes = self.model.shared[at].takes.iter().zip(&self.data.paths);
        takes.map(|(t, path)| t * path.low.min(path.gbs)).fold(0.0, f64::max)
    }

    /// Accepts the best trial, and further trials that touch none of its sets. Among equal trials
    /// the one with the fewest paths wins.
    fn take_best(&mut self, prospects: &[GroupProspect], mut tried: Vec<GroupTrial>) {
        tried.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.prospect.cmp(&b.prospect)));
        let mut touched = vec![false; self.data.sets.len()];
        let mut added = Vec::new();
        while let Some(best) = tried.first() {
            let nearly = best.gain - SAME_SCORE.min(best.gain * 0.5);
            let simplest = (0..tried.len())
                .filter(|&t| tried[t].gain >= nearly)
                .min_by_key(|&t| (prospects[tried[t].prospect].members.len(), t));
            let Some(simplest) = simplest else { break };
            let trial = tried.remove(simplest);
            trial.changed.iter().for_each(|&s| touched[s] = true);
            added.push(self.add(prospects, &trial));
            tried.retain(|t| !t.changed.iter().any(|&s| touched[s]));
        }
        for at in added {
            self.choose_routes(at);
            self.refine_near(at);
        }
    }

    fn add(&mut self, prospects: &[GroupProspect], trial: &GroupTrial) -> usize {
        let prospect = &prospects[trial.prospect];
        let mut takes = vec![0.0; self.data.paths.len()];
        prospect.members.iter().for_each(|&m| takes[m] = 1.0);
        self.model.shared.push(FittedResource { capacity: trial.capacity, takes });
        let GroupCandidate { name, found, maybe, link, of, also, .. } = prospect.candidate.clone();
        let (low, high) = (trial.capacity, trial.capacity);
        let rivals = Vec::new();
        self.groups.push(FittedGroup {
            name,
            found,
            of,
            maybe,
            link,
            low,
            high,
            slows: 0,
            rivals,
            also,
        });
        self.taken.push(trial.prospect);
        self.rerun(trial.changed.iter().copied());
        self.groups.len() - 1
    }

    /// Decides whether paths with several equal routes pass this group: the better explanation. A
    /// path that passes a link in one direction also belongs to both directions together.
    fn choose_routes(&mut self, at: usize) {
        if let Some((a, b, true)) = self.groups[at].link {
            let one_direction = |l| [Some((a, b, false)), Some((b, a, false))].contains(&l);
            for g in (0..self.groups.len()).filter(|&g| one_direction(self.groups[g].link)) {
                for path in self.groups[at].maybe.clone() {
                    if self.model.shared[g].takes[path] > 0.0 {
                        self.model.shared[at].takes[path] = 1.0;
                    }
                }
            }
            self.rerun(0..self.data.sets.len());
        }
        for path in self.groups[at].maybe.clone() {
            let before = self.model.shared[at].takes[path];
            let both = if before > 0.0 { 0.0 } else { 1.0 };
            let sets: Vec<usize> = (0..self.data.sets.len())
                .filter(|&s| self.used[s] && self.data.sets[s].flows.iter().any(|j| j.path == path))
                .collect();
            let known = self.known_sum(&sets);
            self.model.shared[at].takes[path] = both;
            let sum = self.try_sum(&sets);
            if known - sum > SAME_SCORE / 2.0 {
                self.rerun(sets);
            } else {
                self.model.shared[at].takes[path] = before;
            }
        }
    }

    /// Optimises the capacities of a group and of the groups that share paths with it.
    fn refine_near(&mut self, at: usize) {
        let touches = |a: &FittedResource, b: &FittedResource| {
            a.takes.iter().zip(&b.takes).filter(|(x, y)| **x > 0.0 && **y > 0.0).count() >= 2
        };
        let near: Vec<usize> = (0..self.groups.len())
            .filter(|&g| g == at || touches(&self.model.shared[g], &self.model.shared[at]))
            .collect();
        for g in near {
            self.refine(g, 0.03, 6);
        }
    }

    /// Optimises one capacity.
    fn refine(&mut self, at: usize, within: f64, steps: usize) {
        let capacity = self.model.shared[at].capacity;
        let sets = self.sets_of(&self.model.shared[at], capacity * (1.0 - within));
        let known = self.known_sum(&sets);
        let (best, sum) = self.best_capacity(at, &sets, capacity, within, steps);
        self.model.shared[at].capacity = if sum < known { best } else { capacity };
        if sum < known {
            self.rerun(sets);
        }
    }

    fn forget_groups(&mut self) {
        self.model.shared.clear();
        self.groups.clear();
        self.taken.clear();
        self.rerun(0..self.data.sets.len());
    }

    /// Whether flows into GPUs get another share than flows out of them on the same resource: the
    /// best weight, if it explains enough.
    fn weigh_classes(&mut self) -> bool {
        let is_in = |p: &crate::data::MeasuredPath| matches!(p.ends, PathEnds::In { .. });
        let ins: Vec<usize> =
            (0..self.data.paths.len()).filter(|&p| is_in(&self.data.paths[p])).collect();
        let Some(before) = ins.first().map(|&p| self.model.shares[p]) else { return false };
        let mut class = vec![false; self.data.paths.len()];
        ins.iter().for_each(|&p| class[p] = true);
        // Where only flows of one class meet, their common weight changes nothing.
        self.trial.load(&self.model);
        let (trial, model, data) = (&mut self.trial, &self.model, self.data);
        let sets: Vec<usize> = (0..data.sets.len())
            .filter(|&s| self.used[s] && trial.mixes(model, s, &data.sets[s].flows, &class))
            .collect();
        let known = self.known_sum(&sets);
        let (best, sum) = minimum(before, 1.2, 14, &mut |share, enough| {
            ins.iter().for_each(|&p| self.model.shares[p] = share);
            self.try_sum_below(&sets, enough)
        });
        let worth = known - sum > self.price(1);
        let share = if worth { (best * 1000.0).round() / 1000.0 } else { before };
        ins.iter().for_each(|&p| self.model.shares[p] = share);
        self.rerun(sets);
        worth
    }
}

/// Which flows of a group must be late for an expected gain.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LateFlows {
    /// All of them, on average.
    All,
    /// The latest one.
    Last,
}

/// A prospect that was tried.
struct GroupAttempt {
    /// When it was tried: later changes of its sets undo it.
    clock: u64,
    /// Sets that it depends on.
    sets: Vec<usize>,
    /// `None` if it slows too few of them.
    trial: Option<GroupTrial>,
}

/// The result of a trial.
#[derive(Debug, Clone)]
struct GroupTrial {
    prospect: usize,
    capacity: f64,
    /// Gain of the score after its price.
    gain: f64,
    /// Sets that it changes.
    changed: Vec<usize>,
}

/// The highest throughput of a group in a set, over any time from the common start on: bytes of its
/// completed flows over that time. A lower bound of its capacity.
fn passed(data: &CalibrationData, set: usize, mask: u64) -> f64 {
    let set = &data.sets[set];
    let ended =
        |(i, end): (usize, &f64)| (mask >> i & 1 == 1).then(|| (*end, set.flows[i].payload()));
    let mut ends: Vec<(f64, f64)> =
        set.ends.iter().enumerate().take(64).filter_map(ended).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut bytes, mut most): (f64, f64) = (0.0, 0.0);
    for (end, payload) in ends {
        bytes += payload;
        most = most.max(bytes / end);
    }
    most
}

/// Finds queues, and gives the flows of sets their turns.
pub(crate) fn prepare(data: &mut CalibrationData) -> Vec<FittedQueue> {
    let found = queues::find(data);
    let of = queue_of(data, &found);
    queues::take_turns(data, &of);
    found
}
