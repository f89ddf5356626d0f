//! What a health check measures next, and its verdict on what it has measured.

use crate::health::facts::NodeFacts;
use crate::health::losses::probe_losses;
use crate::health::monitor::{HealthMonitor, MAX_PROCESSES, ProbeSeries, REFERENCES};
use crate::health::report::HealthReport;
use crate::health::verdict::{judge_node, unjudged_classes};

/// What to measure next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Another round of these probes in the same process.
    MoreRounds(Vec<usize>),
    /// Another round of these probes in the same process shows more, if there is time; if not, they are
    /// measured in a new one.
    Watch(Vec<usize>),
    /// Rounds of these probes in a new process with new buffers: paths that are not known well enough,
    /// and some of their peers.
    FreshProcess(Vec<usize>),
    /// Nothing more can change the verdict.
    Decided,
}

impl HealthMonitor<'_> {
    /// What to measure next.
    pub fn next_step(&self) -> NextStep {
        let probes = || 0..self.plan.standing;
        let Some(last) = self.processes.last() else {
            let comparable = probes().any(|probe| self.has_peers(probe));
            return if comparable {
                NextStep::MoreRounds(probes().collect())
            } else {
                NextStep::Decided
            };
        };
        let here = |is_meant: &dyn Fn(&ProbeSeries) -> bool, of: &[usize]| -> Vec<usize> {
            let began = |probe: &&usize| {
                let series = last.get(**probe).filter(|series| !series.times.is_empty());
                self.has_peers(**probe) && series.is_some_and(is_meant)
            };
            of.iter().filter(began).copied().collect()
        };
        if self.processes.len() == 1 {
            let open = here(&ProbeSeries::is_open, &probes().collect::<Vec<_>>());
            if !open.is_empty() {
                return NextStep::MoreRounds(self.with_class(&open, usize::MAX));
            }
        }
        let is_full = self.processes.len() >= MAX_PROCESSES;
        let suspects = self.open_suspects();
        if !suspects.is_empty() {
            let open = here(&ProbeSeries::is_open, &suspects);
            if self.processes.len() > 1 && !open.is_empty() {
                return NextStep::MoreRounds(self.with_class(&open, REFERENCES));
            }
            if !is_full {
                return NextStep::FreshProcess(self.with_class(&suspects, REFERENCES));
            }
        }
        if probes().any(|probe| self.is_confirmed(probe)) {
            return self.next_to_separate(last);
        }
        // A path that comes and goes for sure, or a class that cannot be judged, does not pass.
        if probes().any(|probe| self.is_unstable(probe))
            || self.unjudged.get().is_some_and(|classes| !classes.is_empty())
        {
            return NextStep::Decided;
        }
        let uncleared = self.undecided();
        let open = here(&ProbeSeries::is_open, &uncleared);
        if !open.is_empty() {
            return NextStep::MoreRounds(self.with_class(&uncleared, REFERENCES));
        }
        // Paths that were slow in a process need more of them, which leaves no time to watch all others.
        let (states, others): (Vec<usize>, Vec<usize>) =
            uncleared.iter().partition(|&&probe| self.slow_processes(probe) > 0);
        let watched = if states.is_empty() { probes().collect() } else { states };
        let short = here(&ProbeSeries::is_short, &watched);
        let is_alone = others.is_empty() || watched.len() == self.plan.standing;
        match short.is_empty() || !is_alone {
            false => NextStep::Watch(self.with_class(&short, REFERENCES)),
            true => self.after_watch(),
        }
    }

    /// Probes that no round has, but that tell apart the parts which explain a fault alike: in a process of their
    /// own, once, as long as rounds decide something.
    fn next_to_separate(&self, last: &[ProbeSeries]) -> NextStep {
        let later = self.plan.standing..self.plan.probes.len();
        let is_begun = |probe: &usize| self.series(*probe).next().is_some();
        if later.clone().any(|probe| is_begun(&probe)) {
            let is_open = |probe: &usize| {
                let series = last.get(*probe).filter(|series| !series.times.is_empty());
                series.is_some_and(ProbeSeries::is_open)
            };
            let open: Vec<usize> = later.filter(is_open).collect();
            return match open.is_empty() {
                true => NextStep::Decided,
                false => NextStep::MoreRounds(self.with_class(&open, REFERENCES)),
            };
        }
        match probe_losses(self).separating(later) {
            wanted if wanted.is_empty() || self.processes.len() >= MAX_PROCESSES => {
                NextStep::Decided
            }
            wanted => NextStep::FreshProcess(self.with_class(&wanted, REFERENCES)),
        }
    }

    /// What a new process measures if there is no time to watch more in this one.
    pub fn after_watch(&self) -> NextStep {
        let uncleared = self.undecided();
        match uncleared.is_empty() || self.processes.len() >= MAX_PROCESSES {
            true => NextStep::Decided,
            false => NextStep::FreshProcess(self.with_class(&uncleared, REFERENCES)),
        }
    }

    /// Paths of which more processes can show that they are always slow, or that they are not.
    fn open_suspects(&self) -> Vec<usize> {
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
        wanted
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
