//! Differences between the processes of a run with repeats.

use std::collections::BTreeMap;

use pathline_schema::{Case, CaseOutcome, CaseTimes, FlowSeries, Journal};
use pathline_stats::between_runs;

use crate::figure::NodeInterval;
use crate::fmt;
use crate::shown_value::ShownValue;

/// The series of each case in all repeats; empty for a run without repeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct RepeatIndex<'a>(BTreeMap<&'a Case, Vec<&'a [FlowSeries]>>);

impl<'a> RepeatIndex<'a> {
    pub(crate) fn from_journal(journal: &'a Journal) -> Self {
        let mut index: BTreeMap<&Case, Vec<&[FlowSeries]>> = BTreeMap::new();
        for outcome in journal.repeats.iter().flat_map(|r| &r.outcomes) {
            if let CaseOutcome::Measured(m) = outcome {
                index.entry(&m.case).or_default().push(&m.series);
            }
        }
        Self(index)
    }

    /// The 95 % interval of a case's value between processes, from the medians of the repeats;
    /// `None` with fewer than 3. `shown` computes the value of one repeat.
    pub(crate) fn interval(
        &self,
        case: &Case,
        shown: impl Fn(&[FlowSeries]) -> Option<ShownValue>,
    ) -> Option<NodeInterval> {
        let medians = self.0.get(case)?.iter().filter_map(|series| Some(shown(series)?.value));
        let medians: Vec<f64> = medians.collect();
        let (low, high) = between_runs(&medians)?;
        Some(NodeInterval { repeats: medians.len(), low, high })
    }

    /// A sentence about the differences between repeats of a case; `None` without repeats.
    pub(crate) fn sentence(&self, planned: u32) -> Option<String> {
        let repeats = self.0.values().map(Vec::len).max()?;
        if repeats < 3 {
            return Some(format!(
                "{} of {planned} measured: an interval of this node needs 3.",
                fmt::count(repeats, "repeat")
            ));
        }
        let mut spreads: Vec<(f64, &Case)> = self
            .0
            .iter()
            .filter(|(_, all)| all.len() >= 3)
            .filter_map(|(case, all)| {
                let times: Vec<f64> = all.iter().filter_map(|series| time(series)).collect();
                let greatest = times.iter().copied().fold(0.0, f64::max);
                let least = times.iter().copied().fold(f64::INFINITY, f64::min);
                (least > 0.0 && greatest > 0.0).then_some((greatest / least - 1.0, *case))
            })
            .collect();
        spreads.sort_by(|a, b| a.0.total_cmp(&b.0));
        let at = |share: f64| spreads.get((spreads.len() as f64 * share) as usize);
        let (half, most, widest) = (at(0.5)?, at(0.9).or(spreads.last())?, spreads.last()?);
        Some(format!(
            "{repeats} repeats in new processes: medians of a case differ by {} in half of the cases, by up \
             to {} in nine of ten (widest {}, {}).",
            fmt::percent(half.0),
            fmt::percent(most.0),
            fmt::percent(widest.0),
            widest.1
        ))
    }
}

/// Time of one repetition of the slowest flow, in ns.
fn time(series: &[FlowSeries]) -> Option<f64> {
    let reps = series.first()?.reps.max(1) as f64;
    Some(ShownValue::new(&CaseTimes::slowest_flow(series))?.value / reps)
}
