//! Cases of suite contention that an adaptive run chooses from its results so far.

use std::collections::BTreeSet;

use pathline_bench::{CaseBatch, CaseChooser, PlanScope, RandomDraw, RunPlan, RunSoFar};
use pathline_calibrate::{EarlierFit, NamedRun, choose_cases, first_cases};
use pathline_schema::{Case, Journal, Ns, SuiteId};

/// Random sets that the twin shall predict: other ones than suite concurrent has by default, so that those
/// remain unseen.
const TARGETS: RandomDraw = RandomDraw { seed: 0x7461_7267, sets: 120 };

/// Time for one case unless the user states one: a twin learns more from more cases than from longer ones.
pub(crate) const CASE_BUDGET: Ns = Ns(20e6);

/// Chooses cases of suite contention by expected information; other cases of the plan are measured first.
pub(crate) struct AdaptiveChooser {
    contention: BTreeSet<Case>,
    targets: Vec<Case>,
    /// Of the cases before the last choice.
    fit: Option<EarlierFit>,
    is_begun: bool,
}

impl AdaptiveChooser {
    /// For a plan in its scope.
    pub(crate) fn new(plan: &RunPlan, scope: &PlanScope<'_>) -> Self {
        let is_contention =
            |suites: &[String]| suites.iter().any(|s| s == SuiteId::Contention.word());
        let entries = plan.entries.iter().filter(|entry| is_contention(&entry.suites));
        let contention = entries.map(|entry| entry.case.clone()).collect();
        let scope = PlanScope { draw: TARGETS, ..*scope };
        let targets = RunPlan::new(&scope, &[SuiteId::Concurrent.word().to_owned()], &[]);
        let entries = targets.map_or_else(|_| Vec::new(), |plan| plan.entries);
        let targets = entries.into_iter().map(|entry| entry.case).collect();
        Self { contention, targets, fit: None, is_begun: false }
    }
}

impl CaseChooser for AdaptiveChooser {
    fn choose(&mut self, so_far: &RunSoFar<'_>, left: &[Case]) -> CaseBatch {
        let (numbers, offered): (Vec<usize>, Vec<Case>) = left
            .iter()
            .enumerate()
            .filter(|(_, case)| self.contention.contains(*case))
            .map(|(nth, case)| (nth, case.clone()))
            .unzip();
        let number = |nth: usize| numbers.get(nth).copied().unwrap_or(usize::MAX);
        if !std::mem::replace(&mut self.is_begun, true) {
            let first = first_cases(&offered);
            let others = (0..left.len()).filter(|nth| !numbers.contains(nth));
            let mut cases: Vec<(usize, String)> = others.map(|nth| (nth, String::new())).collect();
            cases.extend(first.into_iter().map(|chosen| (number(chosen.index), chosen.reason)));
            return CaseBatch { cases, because: String::new(), is_last: offered.is_empty() };
        }
        let (begin, topology) = (so_far.begin.clone(), so_far.topology.clone());
        let journal = Journal::of_outcomes(begin, topology, so_far.outcomes.to_vec());
        match choose_cases(
            &NamedRun { name: "this run".to_owned(), journal },
            &offered,
            &self.targets,
            self.fit.as_ref(),
        ) {
            Ok(design) => {
                self.fit = Some(design.fit);
                let cases = design.chosen.into_iter();
                let cases = cases.map(|chosen| (number(chosen.index), chosen.reason)).collect();
                let change = design.change.map_or_else(String::new, |change| {
                    format!(
                        "; the latest cases changed 95 % of the predictions by at most {:.2} %",
                        change * 100.0
                    )
                });
                let because = format!(
                    "{} shared resources found; of {} random sets, 5 % could be off by more than {:.2} % by \
                     the prior of capacities that no set reached, and the samples differ by {:.2} %{change}{}",
                    design.groups,
                    self.targets.len(),
                    design.error * 100.0,
                    design.floor * 100.0,
                    if design.is_last { ": no other case is worth its time" } else { "" }
                );
                CaseBatch { cases, because, is_last: design.is_last }
            }
            // Without a path alone there is nothing to choose by.
            Err(error) => {
                let cases = (0..left.len()).map(|nth| (nth, String::new())).collect();
                let because = format!("all cases of suite contention are measured: {error}");
                CaseBatch { cases, because, is_last: true }
            }
        }
    }
}
