//! A run that measured everything several times, each time in new processes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::{CaseOutcome, FaultedCase, MeasuredCase, RunEnd, SampledCase};

/// What one repeat of a run measured.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRepeat {
    /// Its number; 0 is the first.
    pub repeat: u32,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// What became of each finished case, in order.
    pub outcomes: Vec<CaseOutcome>,
    /// Samples of cases that were not finished, merged by case.
    pub partial: Vec<SampledCase>,
    /// Whether every planned case has its outcome.
    pub complete: bool,
}

/// A repeat whose records are being read.
#[derive(Debug, Default)]
pub(crate) struct RepeatReader {
    started: String,
    outcomes: Vec<CaseOutcome>,
    finished: BTreeMap<String, usize>,
    partial: BTreeMap<String, SampledCase>,
    complete: bool,
}

impl RepeatReader {
    fn finish(&mut self, outcome: CaseOutcome) {
        let key = outcome.case().to_string();
        self.partial.remove(&key);
        match self.finished.get(&key).and_then(|&at| self.outcomes.get_mut(at)) {
            Some(earlier) => *earlier = outcome,
            None => {
                self.finished.insert(key, self.outcomes.len());
                self.outcomes.push(outcome);
            }
        }
    }

    fn add_visit(&mut self, visit: SampledCase) {
        match self.partial.entry(visit.case.to_string()) {
            Entry::Occupied(mut earlier) => earlier.get_mut().add(visit),
            Entry::Vacant(first) => drop(first.insert(visit)),
        }
    }
}

/// All repeats of a journal that is being read.
#[derive(Debug, Default)]
pub(crate) struct RepeatReaders {
    all: BTreeMap<u32, RepeatReader>,
    current: u32,
}

impl RepeatReaders {
    /// The records that follow belong to this repeat. Whether it had begun before.
    pub(crate) fn begin(&mut self, repeat: u32, started: &str) -> bool {
        self.current = repeat;
        let known = self.all.contains_key(&repeat);
        let part = self.all.entry(repeat).or_default();
        part.complete = false;
        if !known {
            started.clone_into(&mut part.started);
        }
        known
    }

    /// Whether the records are of the first repeat.
    pub(crate) fn is_first(&self) -> bool {
        self.current == 0
    }

    fn part(&mut self) -> &mut RepeatReader {
        self.all.entry(self.current).or_default()
    }

    pub(crate) fn finish(&mut self, outcome: CaseOutcome) {
        self.part().finish(outcome);
    }

    pub(crate) fn add_visit(&mut self, visit: SampledCase) {
        self.part().add_visit(visit);
    }

    pub(crate) fn end(&mut self, end: &RunEnd) {
        self.part().complete = end.complete;
    }

    /// The repeats in order.
    pub(crate) fn into_repeats(self) -> Vec<RunRepeat> {
        let whole = |(repeat, part): (u32, RepeatReader)| RunRepeat {
            repeat,
            started: part.started,
            outcomes: part.outcomes,
            partial: part.partial.into_values().collect(),
            complete: part.complete,
        };
        self.all.into_iter().map(whole).collect()
    }
}

/// One outcome a case for reports that show one figure: the measurement of the repeat with the median
/// time (of two, the shorter). A fault in any repeat is the case's outcome, since a case that fails
/// once in five times is no case without a fault. Cases that no repeat finished: the first samples.
pub(crate) fn merged(repeats: &[RunRepeat]) -> (Vec<CaseOutcome>, Vec<SampledCase>) {
    let mut order: Vec<String> = Vec::new();
    let mut by_case: BTreeMap<String, Vec<(u32, &CaseOutcome)>> = BTreeMap::new();
    for part in repeats {
        for outcome in &part.outcomes {
            let entry = by_case.entry(outcome.case().to_string());
            if let Entry::Vacant(first) = &entry {
                order.push(first.key().clone());
            }
            entry.or_default().push((part.repeat, outcome));
        }
    }
    let outcomes = order.iter().filter_map(|case| representative(by_case.get(case)?)).collect();
    let mut partial: BTreeMap<String, SampledCase> = BTreeMap::new();
    for part in repeats.iter().flat_map(|r| &r.partial) {
        let case = part.case.to_string();
        if !by_case.contains_key(&case) {
            partial.entry(case).or_insert_with(|| part.clone());
        }
    }
    (outcomes, partial.into_values().collect())
}

fn representative(outcomes: &[(u32, &CaseOutcome)]) -> Option<CaseOutcome> {
    for (repeat, outcome) in outcomes {
        if let CaseOutcome::Faulted(fault) = outcome {
            let error = format!("repeat {} of the run: {}", repeat + 1, fault.error);
            return Some(CaseOutcome::Faulted(FaultedCase { error, ..fault.clone() }));
        }
    }
    let mut measured: Vec<(f64, &CaseOutcome)> = outcomes
        .iter()
        .filter_map(|(_, outcome)| match outcome {
            CaseOutcome::Measured(m) => Some((typical_time(m), *outcome)),
            _ => None,
        })
        .collect();
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    let median = measured.get(measured.len().saturating_sub(1) / 2).map(|(_, outcome)| *outcome);
    median.or_else(|| outcomes.first().map(|(_, outcome)| *outcome)).cloned()
}

/// The middle of a case's times, each for the work of one repetition: repeats may differ in how many
/// repetitions a sample has.
fn typical_time(measured: &MeasuredCase) -> f64 {
    let samples = measured.series.iter().map(|s| s.samples_ns.len()).min().unwrap_or(0);
    let slowest = |i: usize| {
        let each = measured.series.iter().filter_map(|s| {
            let work = s.reps.max(1) as f64;
            s.samples_ns.get(i).map(|ns| ns / work)
        });
        each.fold(0.0, f64::max)
    };
    let mut times: Vec<f64> = (0..samples).map(slowest).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(f64::INFINITY)
}

impl crate::Journal {
    /// The outcomes and unfinished samples of one repeat; those of a run without repeats are repeat 0.
    pub fn repeat(&self, repeat: u32) -> (&[CaseOutcome], &[SampledCase]) {
        if self.repeats.is_empty() && repeat == 0 {
            return (&self.outcomes, &self.partial);
        }
        let part = self.repeats.iter().find(|r| r.repeat == repeat);
        part.map_or((&[], &[]), |r| (&r.outcomes, &r.partial))
    }
}
