//! Tells apart the parts of a path that hangs.

use std::time::Duration;

use pathline_diagnose::{CaseFate, FailedParts, HealthPlan};
use pathline_flow::Network;
use pathline_hal::pattern;
use pathline_schema::{Case, Topology};

use super::{BIND_STEP, HealthCheck};
use crate::health::process::{ProbeAnswer, ProbeProcess};
use crate::health::protocol::{ProbeEvent, ProbeOrder};

/// Rounds of other paths for the time that the first path took to hang.
const ROUNDS: u32 = 20;

impl HealthCheck<'_> {
    /// What the probes that failed have in common, and no probe that ended between them.
    pub(super) fn failed_parts(
        &self,
        topology: &Topology,
        network: Option<&Network>,
    ) -> Option<FailedParts> {
        let failed = self.failures.iter().map(|(probe, e)| (&probe.case, CaseFate::Failed(e)));
        let mut cases: Vec<_> = failed.collect();
        let after_first = cases.len().min(1);
        let ended = self.ended_between.iter().map(|case| (case, CaseFate::Completed));
        cases.splice(after_first..after_first, ended);
        FailedParts::new(&cases, topology, network)
    }

    /// A new process measures other paths of each GPU of the path that hangs, for as long as it took to hang there:
    /// a GPU may hang only after a time. Then paths over all of its parts, and the path itself. What ended counts if
    /// one of those hangs.
    pub(super) fn separate(
        &mut self,
        topology: &Topology,
        plan: &HealthPlan,
        network: Option<&Network>,
    ) {
        let failed = self.failed_parts(topology, network);
        let Some((failed, network)) = failed.zip(network) else { return };
        let standing = plan.probes.iter().take(plan.standing);
        let cases: Vec<&Case> = standing.map(|probe| &probe.case).collect();
        let Some(tried) = failed.separating(&cases, network) else { return };
        let first = self.failures.first().map(|(probe, _)| &probe.case);
        let first = cases.iter().position(|case| Some(*case) == first);
        let others = tried.others.into_iter().filter(|nth| Some(*nth) != first);
        let others: Vec<usize> = others.chain(first).collect();
        let Some(mut process) = self.open_again() else { return };
        let failures = self.failures.len();
        let mut ended = tried.alone;
        if self.repeat_until_late(&mut process, plan, &ended) {
            for nth in others {
                if !self.ends(&mut process, plan, &[nth]) {
                    break;
                }
                ended.push(nth);
            }
            if self.failures.len() > failures {
                let ended = ended.iter().filter_map(|&nth| cases.get(nth).copied().cloned());
                self.ended_between.extend(ended);
            }
        }
        self.finish_process(process);
    }

    /// Binds probes and measures them until the process is as old as the first was when it failed. Whether all of it
    /// ended.
    fn repeat_until_late(
        &mut self,
        process: &mut ProbeProcess,
        plan: &HealthPlan,
        which: &[usize],
    ) -> bool {
        if !self.ends(process, plan, which) {
            return false;
        }
        while process.elapsed() < self.failed_after && !which.is_empty() {
            self.rounds += 1;
            let (probes, wait) = ((0..which.len()).collect(), self.failed_after / ROUNDS);
            let seed = pattern::word(self.request.seed | 1, self.rounds << 8);
            let order = ProbeOrder::Round { probes, seed, wait, compare: false };
            let answer = self.ask(process, &order, self.round_limit(false, wait));
            let ProbeAnswer::Event(ProbeEvent::Round { failed, .. }) = answer else { return false };
            if self.note_failures(failed, which, plan) || self.left(Some(process)).is_zero() {
                return false;
            }
        }
        true
    }

    /// Whether operations of these probes end.
    fn ends(&mut self, process: &mut ProbeProcess, plan: &HealthPlan, which: &[usize]) -> bool {
        let cases = which.iter().filter_map(|&nth| Some(plan.probes.get(nth)?.case.clone()));
        let order = ProbeOrder::Bind(cases.collect());
        let limit: Duration = self.request.budget.mul_f64(BIND_STEP);
        match self.ask(process, &order, limit) {
            ProbeAnswer::Event(ProbeEvent::Bound(failed)) => {
                !self.note_failures(failed, which, plan)
            }
            _ => false,
        }
    }
}
