//! Refinement of found groups: removal, replacement, weights of members.

use std::collections::BTreeMap;

use super::{
    FitStep, FittedGroup, FittedResource, GroupCandidate, GroupFitter, GroupProspect, GroupTrial,
    MAX_TRIALS, MIN_EFFECT, SAME_SCORE, minimum,
};
use crate::data::PathEnds;

impl GroupFitter<'_> {
    /// Removes needless groups, replaces groups by better ones, and refines, until nothing changes or
    /// `rounds` have passed.
    pub(super) fn settle(
        &mut self,
        prospects: &[GroupProspect],
        rounds: usize,
        report: &mut dyn FnMut(&FitStep),
    ) {
        for _ in 0..rounds {
            let before = self.total_score();
            for g in 0..self.groups.len() {
                self.refine(g, 0.02, 8);
            }
            self.weigh_classes();
            for g in 0..self.groups.len() {
                if !self.groups[g].maybe.is_empty() {
                    self.choose_routes(g);
                }
            }
            self.weigh_members();
            self.prune();
            self.swap(prospects);
            report(&FitStep { doing: "settle", groups: self.groups.len(), error: self.error() });
            self.search(prospects, None, report);
            if before - self.total_score() < SAME_SCORE {
                break;
            }
        }
        for g in 0..self.groups.len() {
            self.refine(g, 0.01, 10);
        }
        self.remove_idle();
    }

    /// Removes groups that slow no measured set by more than a percent: noise of that size also
    /// fits them, and they change no prediction.
    fn remove_idle(&mut self) {
        for g in (0..self.groups.len()).rev() {
            if self.slows(g) == 0 {
                let sets = self.sets_of(&self.model.shared[g], self.model.shared[g].capacity);
                self.model.shared.remove(g);
                self.groups.remove(g);
                self.taken.remove(g);
                self.rerun(sets);
            }
        }
    }

    fn total_score(&self) -> f64 {
        self.sum() + self.groups.iter().map(|g| self.price(g.of)).sum::<f64>()
    }

    /// Removes groups that explain less than their price.
    fn prune(&mut self) {
        let mut g = 0;
        while g < self.groups.len() {
            let sets = self.sets_of(&self.model.shared[g], self.model.shared[g].capacity);
            let known = self.known_sum(&sets);
            let shared = self.model.shared.remove(g);
            let sum = self.try_sum(&sets);
            let loses = sum - known;
            self.trial.load(&self.model);
            let idle = sets
                .iter()
                .all(|&s| self.timelines[s].total() < (1.0 + MIN_EFFECT) * self.try_set(s));
            if idle || loses < self.price(self.groups[g].of) {
                self.groups.remove(g);
                self.taken.remove(g);
                self.rerun(sets);
            } else {
                self.model.shared.insert(g, shared);
                g += 1;
            }
        }
    }

    /// Replaces a group by another one that explains more.
    fn swap(&mut self, prospects: &[GroupProspect]) {
        for g in 0..self.groups.len() {
            let rivals = self.rivals(prospects, g);
            let Some(best) = rivals.first().filter(|r| r.gain > SAME_SCORE) else { continue };
            let prospect = &prospects[best.prospect];
            let old = self.sets_of(&self.model.shared[g], self.model.shared[g].capacity);
            let mut takes = vec![0.0; self.data.paths.len()];
            prospect.members.iter().for_each(|&m| takes[m] = 1.0);
            self.model.shared[g] = FittedResource { capacity: best.capacity, takes };
            let GroupCandidate { name, found, maybe, link, of, also, .. } =
                prospect.candidate.clone();
            self.groups[g] =
                FittedGroup { name, found, maybe, link, of, also, ..self.groups[g].clone() };
            self.taken[g] = best.prospect;
            let new = self.sets_of(&self.model.shared[g], best.capacity);
            self.rerun(old.into_iter().chain(new));
            self.choose_routes(g);
        }
    }

    /// Groups that could replace one, best first; the gain is relative to that one.
    pub(super) fn rivals(&mut self, prospects: &[GroupProspect], g: usize) -> Vec<GroupTrial> {
        let shared = self.model.shared[g].clone();
        let old = self.sets_of(&shared, shared.capacity);
        let mine: Vec<usize> = shared.members().collect();
        let alike = |p: &GroupProspect| {
            let common = p.members.iter().filter(|m| shared.takes[**m] > 0.0).count();
            let union = p.members.len() + mine.len() - common;
            common * 10 >= union * 3 && p.members != mine
        };
        let mut near: Vec<(f64, usize)> = (0..prospects.len())
            .filter(|&p| !self.taken.contains(&p) && alike(&prospects[p]))
            .map(|p| ((prospects[p].seen / shared.capacity).ln().abs(), p))
            .filter(|(far, _)| *far < 0.25)
            .collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        near.truncate(MAX_TRIALS);
        let near: Vec<usize> = near.into_iter().map(|(_, p)| p).collect();
        let mut found = self.trials(&near, |fitter, p| {
            let prospect = &prospects[p];
            let mut takes = vec![0.0; fitter.data.paths.len()];
            prospect.members.iter().for_each(|&m| takes[m] = 1.0);
            let new = FittedResource { capacity: prospect.seen, takes };
            let mut sets = fitter.sets_of(&new, prospect.seen * 0.9);
            sets.extend(&old);
            sets.sort_unstable();
            sets.dedup();
            let known = fitter.known_sum(&sets);
            let shared = std::mem::replace(&mut fitter.model.shared[g], new);
            let (capacity, sum) = fitter.best_capacity(g, &sets, prospect.seen, 0.1, 8);
            fitter.model.shared[g] = shared;
            let cheaper = fitter.price(fitter.groups[g].of) - fitter.price(prospect.candidate.of);
            let gain = known - sum + cheaper;
            GroupTrial { prospect: p, capacity, gain, changed: Vec::new() }
        });
        found.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.prospect.cmp(&b.prospect)));
        found
    }

    /// Whether a class of a group's paths uses more of it per byte than the others: paths over more
    /// links, or in the other direction. The capacity is fitted to sets with paths of the first
    /// class only; then the use of each other class; then all together.
    pub(super) fn weigh_members(&mut self) {
        for g in 0..self.groups.len() {
            let (first, others) = self.classes(g);
            if others.is_empty() {
                continue;
            }
            let before = self.model.shared[g].clone();
            let sets = self.sets_of(&before, before.capacity * 0.7);
            let known = self.known_sum(&sets);
            let members = |s: usize| {
                let flows = self.data.sets[s].flows.iter();
                flows.map(|j| j.path).filter(|&p| before.takes[p] > 0.0).collect::<Vec<_>>()
            };
            let pure: Vec<usize> = sets
                .iter()
                .copied()
                .filter(|&s| members(s).len() > 1 && members(s).iter().all(|p| first.contains(p)))
                .collect();
            // Weights and capacity compensate each other, so several initial capacities are tried.
            let top = first.iter().map(|&p| self.model.caps[p]).fold(0.0, f64::max);
            let mut starts = vec![before.capacity, before.capacity.max(top)];
            starts.extend([1.01, 1.02].map(|by| before.capacity * by));
            if !pure.is_empty() {
                starts.push(self.best_capacity(g, &pure, before.capacity, 0.15, 8).0);
            }
            let mut distinct: Vec<f64> = Vec::new();
            for start in starts {
                if !distinct.contains(&start) {
                    distinct.push(start);
                }
            }
            let numbers: Vec<usize> = (0..distinct.len()).collect();
            let found = self.trials(&numbers, |fitter, nth| {
                let start = distinct[nth];
                fitter.model.shared[g] = FittedResource { capacity: start, ..before.clone() };
                fitter.weigh_from(g, &others, &sets);
                let (capacity, sum) = fitter.best_capacity(g, &sets, start, 0.01, 6);
                fitter.model.shared[g].capacity = capacity;
                let shared = std::mem::replace(&mut fitter.model.shared[g], before.clone());
                (shared, sum)
            });
            let best = found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
            let Some((shared, sum)) = best else { continue };
            self.model.shared[g] = shared;
            let price = self.price(1) * others.len() as f64;
            let gain = known - sum;
            let was_equal = before.members().all(|p| before.takes[p] == 1.0);
            if gain > if was_equal { price } else { 0.0 } {
                self.rerun(sets);
            } else {
                self.model.shared[g] = before;
            }
        }
    }

    /// The best weights of some classes of a group's paths, one after the other.
    fn weigh_from(&mut self, g: usize, classes: &[Vec<usize>], sets: &[usize]) {
        for class in classes {
            let touches =
                |s: &usize| self.data.sets[*s].flows.iter().any(|j| class.contains(&j.path));
            let mixed: Vec<usize> = sets.iter().copied().filter(touches).collect();
            let top = class.iter().map(|&p| self.data.paths[p].low).fold(0.0, f64::max);
            // None of them was slowed alone.
            let most = (self.model.shared[g].capacity / top).max(1.0);
            let (take, _) = minimum(1.0, 0.3, 8, &mut |take, enough| {
                class.iter().for_each(|&p| self.model.shared[g].takes[p] = take.min(most));
                self.try_sum_below(&mixed, enough)
            });
            class.iter().for_each(|&p| self.model.shared[g].takes[p] = take.min(most));
        }
    }

    /// Classes of a group's paths, by direction and number of links: the first, the others.
    fn classes(&self, g: usize) -> (Vec<usize>, Vec<Vec<usize>>) {
        let mut classes: BTreeMap<(u8, u32), Vec<usize>> = BTreeMap::new();
        for p in self.model.shared[g].members() {
            let class = match self.data.paths[p].ends {
                PathEnds::In { .. } => (0, 0),
                PathEnds::Out { .. } => (1, 0),
                PathEnds::Peer { .. } => (2, self.hops[p]),
                PathEnds::Within => (3, 0),
            };
            classes.entry(class).or_default().push(p);
        }
        let mut classes = classes.into_values();
        (classes.next().unwrap_or_default(), classes.collect())
    }
}
