//! How well the node repeats itself: sets of flows that were measured twice.

use std::collections::BTreeMap;

use crate::data::{CalibrationData, CalibrationSet};
use crate::judge::ErrorStats;
use crate::queues::has_choice;

/// Differences of sets that were measured twice, relative to the smaller duration: no error below them is
/// an error of a twin. Sets whose flows wait for an engine are left out, since their order may differ.
/// `None` if no set was measured twice.
pub(crate) fn repeat_floor(data: &CalibrationData, queues: &[Option<usize>]) -> Option<ErrorStats> {
    let mut same: BTreeMap<Vec<(usize, u64, bool)>, Vec<f64>> = BTreeMap::new();
    for set in data.sets.iter().filter(|set| !has_choice(&set.flows, queues)) {
        same.entry(flows_of(set)).or_default().push(time_of_one(set));
    }
    let mut differences = Vec::new();
    for times in same.values() {
        for pair in times.windows(2) {
            let &[a, b] = pair else { continue };
            if a.min(b) > 0.0 {
                differences.push(a.max(b) / a.min(b) - 1.0);
            }
        }
    }
    (!differences.is_empty()).then(|| ErrorStats::of_sizes(&differences))
}

/// The flows of a set in an order that does not depend on the case.
fn flows_of(set: &CalibrationSet) -> Vec<(usize, u64, bool)> {
    let mut flows: Vec<(usize, u64, bool)> =
        set.flows.iter().map(|f| (f.path, f.bytes as u64, f.background)).collect();
    flows.sort_unstable();
    flows
}

fn time_of_one(set: &CalibrationSet) -> f64 {
    set.total / set.flows.first().map_or(1, |f| f.reps.max(1)) as f64
}
