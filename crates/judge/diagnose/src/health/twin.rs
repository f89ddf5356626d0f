//! Paths compared with a reference: what a twin predicts, or what earlier runs measured.

use pathline_flow::Network;
use pathline_stats::{ascending, interpolated};

use crate::health::digest::{REFERENCE_ERROR, RunDigest};
use crate::health::plan::{HealthPlan, HealthProbe};

/// Paths compared with a reference.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReferenceComparison {
    /// Paths that were measured and have a reference.
    pub compared: usize,
    /// Classes of which no path was compared, by label.
    pub missing: Vec<String>,
    /// Paths that are slower than the reference by more than the loss after division by the median of their
    /// class, and the share of their speed, the slowest first.
    pub slower: Vec<(String, f64)>,
    /// The class or path that loses most against the reference itself, and how much, if more than
    /// [`REFERENCE_ERROR`].
    pub worst: Option<(String, f64)>,
}

/// Predicted time of each probe in ns.
pub fn predicted_by_twin(plan: &HealthPlan, twin: &Network) -> Vec<Option<f64>> {
    let time = |flows: Vec<pathline_flow::FlowPrediction>| {
        flows.iter().map(|flow| flow.time.0).reduce(f64::max)
    };
    let predicted = plan.probes.iter().map(|probe| time(twin.predict(&probe.case).ok()?));
    predicted.collect()
}

/// Median time of each probe in earlier runs in ns. Where a run lacks a path of a class at the probe's size, all
/// paths of the class are scaled from the nearest size: their errors are then alike.
pub fn measured_in_runs(plan: &HealthPlan, runs: &[RunDigest]) -> Vec<Option<f64>> {
    let is_exact = |run: &RunDigest, class: usize| {
        let mut members = plan.probes.iter().filter(|probe| probe.class == class);
        members.all(|probe| run.time_of(&probe.case).is_some())
    };
    let time_in = |run: &RunDigest, probe: &HealthProbe| match is_exact(run, probe.class) {
        true => run.time_of(&probe.case),
        // Small sizes do not scale.
        false => run.scaled_time_of(&probe.case).or_else(|| run.time_of(&probe.case)),
    };
    let time = |probe: &HealthProbe| {
        interpolated(&ascending(runs.iter().filter_map(|run| time_in(run, probe))), 0.5)
    };
    plan.probes.iter().map(time).collect()
}

/// Compares probes with a reference. `medians_ns` and `reference_ns` have the time of one operation of each
/// probe.
pub fn compare_with_reference(
    plan: &HealthPlan,
    medians_ns: &[Option<f64>],
    reference_ns: &[Option<f64>],
    loss: f64,
) -> ReferenceComparison {
    let pairs = medians_ns.iter().zip(reference_ns);
    let relative: Vec<Option<f64>> = pairs
        .map(|(median, reference)| {
            let reference = reference.filter(|reference| *reference > 0.0)?;
            median.map(|median| (median / reference).ln())
        })
        .collect();
    let share = |ln: f64| 1.0 - (-ln).exp();
    let mut result = ReferenceComparison {
        compared: relative.iter().flatten().count(),
        ..ReferenceComparison::default()
    };
    let mut lost: Vec<(String, f64)> = Vec::new();
    for (nth, class) in plan.classes.iter().enumerate() {
        let members = plan.probes.iter().zip(&relative).filter(|(probe, _)| probe.class == nth);
        let members: Vec<(&str, f64)> =
            members.filter_map(|(probe, ln)| Some((probe.label.as_str(), (*ln)?))).collect();
        let sorted = ascending(members.iter().map(|(_, ln)| *ln));
        let Some(median) = interpolated(&sorted, 0.5) else {
            result.missing.push(class.label.clone());
            continue;
        };
        lost.push((class.label.clone(), share(median)));
        lost.extend(members.iter().map(|&(label, ln)| (label.to_owned(), share(ln))));
        let beyond = |ln: f64| share(ln - if members.len() >= 3 { median } else { 0.0 });
        let slower = members.iter().map(|&(label, ln)| (label.to_owned(), beyond(ln)));
        result.slower.extend(slower.filter(|(_, lost)| *lost > loss));
    }
    result.slower.sort_by(|a, b| b.1.total_cmp(&a.1));
    // A class comes before its paths.
    let significant = lost.into_iter().filter(|(_, lost)| *lost > REFERENCE_ERROR);
    result.worst =
        significant.reduce(|worst, next| if next.1 > worst.1 * 1.1 { next } else { worst });
    result
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_schema::{Bytes, RunBegin, WorldKind};

    use super::*;

    #[test]
    fn a_class_is_compared_at_one_size_of_a_run() {
        let desc = MachineDesc::preset("mi250x").expect("a preset");
        let network = Network::new(&desc, RuntimeEnv::default()).expect("a network");
        let plan = HealthPlan::new(&desc.topology(), Some(&network), 0.03);
        let to_host = |probe: &&HealthProbe| probe.label.starts_with("gpu0→numa3, SDMA");
        let probe = plan.probes.iter().find(to_host).expect("a path to the host");
        let class: Vec<&HealthProbe> =
            plan.probes.iter().filter(|other| other.class == probe.class).collect();
        // A run has 256 MiB of each path of the class, as long as a size of eight times takes, and gpu0's own
        // size, too.
        let mut run = RunDigest::empty(&RunBegin::new(WorldKind::Real), &desc.topology());
        for member in &class {
            let mut large = member.case.clone();
            large.timed[0].bytes = Bytes(member.case.timed[0].bytes.0 * 8);
            run.add(&large, &[8e6], 1, "device-events".into());
        }
        run.add(&probe.case, &[1e6], 1, "device-events".into());
        let times = measured_in_runs(&plan, &[run]);
        let of_class = plan.probes.iter().zip(&times).filter(|(p, _)| p.class == probe.class);
        let of_class: Vec<f64> = of_class.map(|(_, time)| time.expect("a time")).collect();
        assert_eq!(of_class.len(), class.len());
        assert!(
            of_class.iter().all(|time| (time / of_class[0] - 1.0).abs() < 1e-9),
            "{of_class:?}"
        );
    }

    #[test]
    fn a_class_that_is_slow_as_a_whole_is_worse_than_the_twin() {
        let desc = MachineDesc::preset("hgx-h200").expect("a preset");
        let network = Network::new(&desc, RuntimeEnv::default()).expect("a network");
        let plan = HealthPlan::new(&desc.topology(), Some(&network), 0.03);
        let twin = predicted_by_twin(&plan, &network);
        let slowed = |factor: f64, is_meant: &dyn Fn(usize) -> bool| -> Vec<Option<f64>> {
            let time = |(nth, ns): (usize, &Option<f64>)| {
                ns.map(|ns| if is_meant(nth) { ns * factor } else { ns })
            };
            twin.iter().enumerate().map(time).collect()
        };
        let class = |nth: usize| plan.probes[nth].class == 0;
        let compare = |times: &[Option<f64>]| compare_with_reference(&plan, times, &twin, 0.03);
        // 1 - 1 / 1.12 = 10.7 % on each path of a class, and none is slower than the others.
        let found = compare(&slowed(1.12, &class));
        assert_eq!((found.compared, found.slower.len()), (plan.probes.len(), 0));
        let (worst, lost) = found.worst.expect("a class");
        assert_eq!(worst, plan.classes[0].label);
        assert!((lost - 0.107).abs() < 0.001, "{lost}");
        // The twin may err by 9 %; one path that loses 9 % is listed.
        let found = compare(&slowed(1.0 / 0.91, &class));
        assert_eq!((found.worst, found.slower.len()), (None, 0));
        assert_eq!(compare(&slowed(1.0 / 0.91, &|nth| nth == 3)).slower.len(), 1);
        // What no reference knows is not compared.
        let mut none = twin.clone();
        none.iter_mut().enumerate().filter(|(nth, _)| class(*nth)).for_each(|(_, ns)| *ns = None);
        let found = compare_with_reference(&plan, &twin, &none, 0.03);
        assert_eq!(found.missing, [plan.classes[0].label.clone()]);
        assert_eq!(found.compared + plan.classes[0].paths, plan.probes.len());
    }
}
