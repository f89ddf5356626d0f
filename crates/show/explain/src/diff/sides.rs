//! Results of each case in the runs of one side.

use std::collections::BTreeMap;

use pathline_schema::{Cadence, Case, CaseOutcome, CaseTimes, FlowSeries, Journal, VerifyResult};
use pathline_stats::RunEstimate;

use crate::beyond_ceiling::beyond_ceiling;
use crate::busy::busy_cases;

/// A case on one side.
pub(super) struct CaseSide<'a> {
    pub(super) case: &'a Case,
    /// A value for each run that measured it.
    pub(super) runs: Vec<RunEstimate>,
    /// Runs in which it failed.
    pub(super) failed: usize,
    /// Reason if it was skipped or failed.
    pub(super) why: &'a str,
    /// Runs in which its bytes were verified.
    verified: usize,
    /// Reason if its result is impossible.
    pub(super) beyond: Option<String>,
    /// Whether the cost of starting and timing was subtracted from its times.
    pub(super) is_difference: bool,
    /// Why other programs disturbed its result, if they did in every run that measured it.
    pub(super) disturbed: Option<String>,
    /// Whether a run that measured it was not disturbed.
    has_quiet: bool,
}

impl CaseSide<'_> {
    /// Whether its bytes were verified in every run that measured it.
    pub(super) fn is_verified(&self) -> bool {
        self.verified > 0 && self.verified == self.runs.len()
    }
    /// Logarithms of the runs' medians, ns per byte or step.
    pub(super) fn logs(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.log_median).collect()
    }
}

/// Cases of all runs of a side by text; each repeat of a journal is a run. Results that other programs
/// disturbed count only if every run of the side was disturbed, and are then marked.
pub(super) fn case_sides<'a>(journals: &[&'a Journal]) -> BTreeMap<String, CaseSide<'a>> {
    let mut sides: BTreeMap<String, CaseSide<'a>> = BTreeMap::new();
    for journal in journals {
        let runs: Vec<&[CaseOutcome]> = if journal.repeats.is_empty() {
            vec![&journal.outcomes]
        } else {
            journal.repeats.iter().map(|r| r.outcomes.as_slice()).collect()
        };
        // Of several repeats, the one that the figure shows decides.
        let busy = busy_cases(journal);
        for outcome in runs.into_iter().flatten() {
            add(&mut sides, outcome, busy.reason(outcome.case()));
        }
        for result in beyond_ceiling(journal) {
            if let Some(side) = sides.get_mut(&result.case.to_string()) {
                side.beyond = Some(result.claim());
            }
        }
    }
    sides
}

fn add<'a>(
    sides: &mut BTreeMap<String, CaseSide<'a>>,
    outcome: &'a CaseOutcome,
    disturbed: Option<&str>,
) {
    let case = outcome.case();
    let side = sides.entry(case.to_string()).or_insert(CaseSide {
        case,
        runs: Vec::new(),
        failed: 0,
        why: "",
        verified: 0,
        beyond: None,
        is_difference: false,
        disturbed: None,
        has_quiet: false,
    });
    match outcome {
        CaseOutcome::Measured(measured) => {
            let times = times(case, &measured.series);
            let estimate = RunEstimate::of(&times.ns, &times.visits);
            side.is_difference |= measured.series.iter().any(|s| !s.start_ns.is_empty());
            let Some(estimate) = estimate else { return };
            match disturbed {
                Some(_) if side.has_quiet => return,
                Some(why) => side.disturbed = Some(why.to_owned()),
                None if !side.has_quiet => {
                    (side.has_quiet, side.disturbed) = (true, None);
                    (side.verified, side.runs) = (0, Vec::new());
                }
                None => (),
            }
            side.verified += usize::from(measured.verdict == VerifyResult::Verified);
            side.runs.push(estimate);
        }
        CaseOutcome::Skipped(skip) => side.why = &skip.why,
        CaseOutcome::Faulted(fault) => {
            side.why = &fault.error;
            side.failed += 1;
        }
    }
}

/// Logarithms of medians, one group per case.
pub(super) fn logs_of_runs(sides: &BTreeMap<String, CaseSide<'_>>) -> Vec<(Case, Vec<f64>)> {
    sides.values().map(|side| (side.case.clone(), side.logs())).collect()
}

/// Whether the result of a case is the time of a step and not a rate.
pub(super) fn is_latency(case: &Case) -> bool {
    case.timed.iter().any(|f| f.by.is_chase()) || case.cadence == Cadence::Isolated
}

/// Time of each sample per byte or per step, of the slowest flow, since runs may differ in
/// repetitions. Skips samples that are not durations: a clock that steps back gives such.
fn times(case: &Case, all: &[FlowSeries]) -> CaseTimes {
    if is_latency(case) {
        return CaseTimes::slowest_step(all);
    }
    let bytes: f64 = all.iter().map(|s| s.moved_bytes.as_f64()).sum();
    let mut times = CaseTimes::slowest_flow(all);
    times.ns.iter_mut().for_each(|ns| *ns /= bytes);
    times
}
