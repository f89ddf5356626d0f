//! What a health check measures next, and its verdict on what it has measured.

use crate::facts::NodeFacts;
use crate::monitor::{HealthMonitor, MAX_PROCESSES, ProbeSeries, REFERENCES};
use crate::report::HealthReport;
use crate::verdict::{judge_node, unjudged_classes};

/// What to measure next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Another round of these probes in the same process.
    MoreRounds(Vec<usize>),
    /// Rounds of these probes in a new process with new buffers: suspects and some of their equals.
    FreshProcess(Vec<usize>),
    /// Nothing more can change the verdict.
    Decided,
}

impl HealthMonitor<'_> {
    /// What to measure next.
    pub fn next_step(&self) -> NextStep {
        let Some(first) = self.processes.first() else {
            let comparable = (0..self.plan.probes.len()).any(|probe| self.has_equals(probe));
            let all = (0..self.plan.probes.len()).collect();
            return if comparable { NextStep::MoreRounds(all) } else { NextStep::Decided };
        };
        let open = |series: &[ProbeSeries], probe: usize| {
            self.has_equals(probe) && series.get(probe).is_some_and(ProbeSeries::is_open)
        };
        if self.processes.len() == 1 {
            let open: Vec<usize> =
                (0..self.plan.probes.len()).filter(|&probe| open(first, probe)).collect();
            if !open.is_empty() {
                return NextStep::MoreRounds(self.with_class(&open, usize::MAX));
            }
        }
        let probes = 0..self.plan.probes.len();
        let mut wanted: Vec<usize> = if probes.clone().any(|probe| self.is_confirmed(probe)) {
            // The verdict is known. Others that are always slow help to find the part.
            let always = |&probe: &usize| self.needs_process(probe) && !self.was_fine(probe);
            probes.filter(always).collect()
        } else {
            let open = |&probe: &usize| self.needs_process(probe) || self.hides_others(probe);
            probes.filter(open).collect()
        };
        if !wanted.is_empty() {
            // More processes do not tell which of a wrong class of GPUs is right. The first one shows all
            // of each class, and is over.
            let unjudged = self.unjudged.get_or_init(|| unjudged_classes(self));
            let class = |probe: &usize| self.plan.probes.get(*probe).map(|probe| probe.class);
            wanted.retain(|probe| {
                self.by_process(self.tail(*probe))
                    || class(probe).is_some_and(|class| !unjudged.contains(&class))
            });
        }
        if self.processes.len() > 1
            && let Some(last) = self.processes.last()
        {
            let began = |&probe: &usize| {
                open(last, probe) && last.get(probe).is_some_and(|s| !s.times.is_empty())
            };
            let open: Vec<usize> = wanted.iter().copied().filter(began).collect();
            if !open.is_empty() {
                return NextStep::MoreRounds(self.with_class(&open, REFERENCES));
            }
        }
        if wanted.is_empty() || self.processes.len() >= MAX_PROCESSES {
            return NextStep::Decided;
        }
        NextStep::FreshProcess(self.with_class(&wanted, REFERENCES))
    }

    /// The verdict on what is known so far.
    pub fn report(&self, facts: &NodeFacts) -> HealthReport {
        judge_node(self, facts)
    }

    /// Probes together with others of their classes: at least `references` that are no suspects, and
    /// twice as many as the probes of the class, where there are as many.
    fn with_class(&self, probes: &[usize], references: usize) -> Vec<usize> {
        let suspects = self.suspects();
        let mut all = probes.to_vec();
        let classes: std::collections::BTreeSet<usize> = probes
            .iter()
            .filter_map(|&probe| self.plan.probes.get(probe).map(|probe| probe.class))
            .collect();
        for class in classes {
            let others = self.members(class).iter().filter(|probe| !probes.contains(probe));
            let (slow, fine): (Vec<usize>, Vec<usize>) =
                others.copied().partition(|probe| suspects.contains(probe));
            let own = self.members(class).len() - fine.len() - slow.len();
            let wanted = references.max(2 * own);
            let few = fine.len() < wanted;
            all.extend(fine.into_iter().take(wanted));
            all.extend(slow.into_iter().filter(|_| few));
        }
        all.sort_unstable();
        all
    }
}
