//! Intervals of the fitted capacities, and groups that explain as much.

use super::{
    CapacitySweep, FittedNode, FittedResource, GroupFitter, GroupProspect, SAME_SCORE, passed,
};
use crate::candidates;
use crate::data::CalibrationData;
use crate::model::ModelFlow;

/// A group whose capacity was never reached.
#[derive(Debug, Clone, PartialEq)]
pub struct AtLeast {
    /// Its name.
    pub name: String,
    /// Its highest measured throughput, GB/s.
    pub gbs: f64,
}

impl GroupFitter<'_> {
    /// Finds intervals of the capacities and the number of sets that each slows.
    pub(super) fn find_intervals(&mut self) {
        let all: Vec<usize> = (0..self.groups.len()).collect();
        let found = self.trials(&all, |fitter, g| (fitter.interval(g), fitter.slows(g)));
        for (group, ((low, high), slows)) in self.groups.iter_mut().zip(found) {
            (group.low, group.high, group.slows) = (low, high, slows);
        }
    }

    /// The same, and groups that explain as much.
    pub(super) fn find_uncertainty(&mut self, prospects: &[GroupProspect]) {
        self.find_intervals();
        for g in 0..self.groups.len() {
            let rivals = self.rivals(prospects, g);
            self.groups[g].rivals = rivals
                .iter()
                .filter(|r| r.gain > -SAME_SCORE)
                .map(|r| prospects[r.prospect].candidate.name.clone())
                .collect();
        }
    }

    /// The capacities where the score is worse by 3.84, the 95th percentile of a chi-square of one
    /// degree of freedom; the other capacities are fixed.
    fn interval(&mut self, g: usize) -> (f64, f64) {
        const WORSE: f64 = 3.84;
        let best = self.model.shared[g].capacity;
        let sets = self.sets_of(&self.model.shared[g], best * 0.7);
        let known = self.known_sum(&sets);
        let mut sweep = CapacitySweep::new(g, &sets);
        let mut end = |sign: f64| {
            let mut step = 0.0005;
            while step < 0.5 {
                self.model.shared[g].capacity = best * f64::exp(sign * step);
                let sum = self.try_capacity(&mut sweep, known + WORSE);
                if sum - known > WORSE {
                    break;
                }
                step *= 1.5;
            }
            best * f64::exp(sign * step)
        };
        let (low, high) = (end(-1.0), end(1.0));
        self.model.shared[g].capacity = best;
        (low, high)
    }

    /// Number of measured sets that a group slows by more than a percent.
    pub(super) fn slows(&mut self, g: usize) -> usize {
        let sets = self.sets_of(&self.model.shared[g], self.model.shared[g].capacity);
        let capacity = std::mem::replace(&mut self.model.shared[g].capacity, f64::INFINITY);
        self.trial.load(&self.model);
        let mut slows = 0;
        for s in sets {
            slows += usize::from(self.timelines[s].total() > 1.01 * self.try_set(s));
        }
        self.model.shared[g].capacity = capacity;
        slows
    }
}

/// Components in the topology, and all GPUs together, whose capacity no set reached: their highest
/// throughput. Without groups for which lone paths already show it.
pub(crate) fn at_least(data: &CalibrationData, fitted: &FittedNode) -> Vec<AtLeast> {
    let mut found = Vec::new();
    for candidate in candidates::all(data) {
        let whole = candidate.of == 1 || candidate.name.starts_with("all ");
        let known = |s: &FittedResource| candidate.members.iter().all(|&m| s.takes[m] > 0.0);
        if !whole || candidate.members.len() < 2 || fitted.model.shared.iter().any(known) {
            continue;
        }
        let top = candidate.members.iter().map(|&m| data.paths[m].gbs).fold(0.0, f64::max);
        let name = candidate.name.clone();
        let gbs = most_passed(data, &candidate.members);
        if gbs > 1.05 * top {
            found.push(AtLeast { name, gbs });
        }
    }
    // Keeps the few most informative ones: the widest groups.
    found.sort_by(|a, b| b.gbs.total_cmp(&a.gbs).then(a.name.cmp(&b.name)));
    found.truncate(12);
    found
}

/// The highest measured throughput of a group of paths, by index, over all sets, GB/s.
pub(crate) fn most_passed(data: &CalibrationData, members: &[usize]) -> f64 {
    let mut most: f64 = 0.0;
    for (s, set) in data.sets.iter().enumerate() {
        let of = |(i, j): (usize, &ModelFlow)| {
            if members.contains(&j.path) { 1u64 << i } else { 0 }
        };
        let mask = set.flows.iter().enumerate().take(64).map(of).sum::<u64>();
        most = most.max(passed(data, s, mask));
    }
    most
}
