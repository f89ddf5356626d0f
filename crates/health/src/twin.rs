//! Paths compared with the predictions of a twin.

use pathline_flow::Network;
use pathline_stats::{ascending, interpolated};

use crate::plan::HealthPlan;

/// Probes that are slower than a twin predicts by more than `loss`, after division by the median of their
/// class: number of the probe and share of speed lost, the slowest first. `medians_ns` has the measured
/// time of one operation of each probe. What slows a whole class alike is an error of the twin or a fault
/// of all of its paths; equal paths cannot tell.
pub fn slower_than_twin(
    plan: &HealthPlan,
    medians_ns: &[Option<f64>],
    twin: &Network,
    loss: f64,
) -> Vec<(usize, f64)> {
    let relative: Vec<Option<f64>> = plan
        .probes
        .iter()
        .zip(medians_ns)
        .map(|(probe, median)| {
            let predicted = twin.predict(&probe.case).ok()?;
            let time = predicted.iter().map(|flow| flow.time.0).fold(0.0, f64::max);
            median.filter(|_| time > 0.0).map(|median| (median / time).ln())
        })
        .collect();
    let of_class = |class: usize| {
        let members = plan.probes.iter().zip(&relative).filter(|(probe, _)| probe.class == class);
        let times = ascending(members.filter_map(|(_, time)| *time));
        interpolated(&times, 0.5).filter(|_| times.len() >= 3).unwrap_or_default()
    };
    let classes: Vec<f64> = (0..plan.classes.len()).map(of_class).collect();
    let mut slower: Vec<(usize, f64)> = relative
        .iter()
        .enumerate()
        .filter_map(|(nth, time)| {
            let class = plan.probes.get(nth)?.class;
            let beyond = (*time)? - classes.get(class).copied().unwrap_or_default();
            Some((nth, 1.0 - (-beyond).exp()))
        })
        .filter(|(_, lost)| *lost > loss)
        .collect();
    slower.sort_by(|a, b| b.1.total_cmp(&a.1));
    slower
}
