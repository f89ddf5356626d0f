//! Finds outliers among peers. The cause may be the state of the measuring process, so an outlier is measured again
//! in a new one.

use std::collections::BTreeMap;

use pathline_diagnose::{TimedCase, peer_classes};
use pathline_schema::{Case, Topology};

use crate::outlier_case::{OutlierCase, OutlierKind, distance};

/// Minimum cases of a class: with fewer it is unclear which one is the outlier.
const MIN_CLASS: usize = 4;
/// An outlier differs from each of its peers by more than this share.
const MIN_DISTANCE: f64 = 0.03;

/// Cases that are too far from the nearest of their peers, class by class. GPU pairs with fewer links than
/// the rest come in groups, so each has a close neighbour.
pub(crate) fn outliers(topology: &Topology, times: &[&TimedCase]) -> Vec<OutlierCase> {
    let cases: Vec<&Case> = times.iter().map(|time| &time.case).collect();
    let mut classes: BTreeMap<usize, Vec<&TimedCase>> = BTreeMap::new();
    for (time, class) in times.iter().zip(peer_classes(topology, &cases)) {
        classes.entry(class).or_default().push(time);
    }
    let large = classes.values().filter(|class| class.len() >= MIN_CLASS);
    large.flat_map(|class| outliers_of(class)).collect()
}

fn outliers_of(class: &[&TimedCase]) -> impl Iterator<Item = OutlierCase> {
    class.iter().enumerate().filter_map(|(nth, time)| {
        let others = class.iter().enumerate().filter(move |(n, _)| *n != nth);
        let others = others.map(|(_, other)| &other.time);
        let distance = others.clone().map(|other| distance(&time.time, other)).reduce(f64::min)?;
        let times = others.map(|other| other.median);
        let least = times.clone().reduce(f64::min)?;
        let most = times.reduce(f64::max)?;
        let us = |ns: f64| format!("{:.4}", ns / 1e3);
        (distance > MIN_DISTANCE).then(|| OutlierCase {
            case: time.case.clone(),
            claim: format!(
                "{} us an operation, where {} cases that differ only in the units they name take {} \
                 to {} us",
                us(time.time.median),
                class.len() - 1,
                us(least),
                us(most)
            ),
            distance,
            kind: OutlierKind::UnlikePeers,
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use pathline_schema::{FlowSeries, Gpu, MeasuredCase, NumaDomain, TimerKind};

    use super::*;

    /// Eight samples about `us`, 0.02 % to both sides.
    pub(crate) fn measured(case: &str, us: f64) -> MeasuredCase {
        let case: Case = case.parse().unwrap();
        let samples = (0..8).map(|i| us * 1e3 * (1.0 + 0.0002 * f64::from(i % 3 - 1)));
        let series = FlowSeries {
            samples_ns: samples.collect(),
            ..FlowSeries::new(case.timed[0], TimerKind::DeviceEvents)
        };
        MeasuredCase::of_series(case, vec![series])
    }

    /// A node of GPUs that nothing tells apart.
    pub(crate) fn equal_gpus(count: u32) -> Topology {
        let gpu = |index| Gpu { index, numa: Some(0), ..Gpu::default() };
        let numa = vec![NumaDomain::default()];
        Topology { gpus: (0..count).map(gpu).collect(), numa, ..Topology::default() }
    }

    fn host_links(us: &[f64]) -> Vec<OutlierCase> {
        let time = |(gpu, us): (usize, &f64)| {
            let text = format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x 256MiB");
            TimedCase::from_measured(&measured(&text, *us)).unwrap()
        };
        let times: Vec<TimedCase> = us.iter().enumerate().map(time).collect();
        outliers(&equal_gpus(us.len() as u32), &times.iter().collect::<Vec<_>>())
    }

    #[test]
    fn one_of_eight_equal_links_that_is_slower_is_an_outlier() {
        // 256 MiB at 51.2 GB/s take 5243 us, at 55.4 GB/s 4845: 8.2 % longer than the nearest.
        let found = host_links(&[5243.0, 4845.0, 4846.0, 4844.0, 4845.0, 4845.0, 4846.0, 4845.0]);
        assert_eq!(found.len(), 1);
        assert!(found[0].case.to_string().contains("gpu0"));
        assert!((found[0].distance - (5243.0 / 4846.0 - 1.0)).abs() < 1e-3, "{found:?}");
        assert!(found[0].claim.contains("where 7 cases that differ only"), "{}", found[0].claim);
    }

    #[test]
    fn two_levels_have_no_outlier_and_three_cases_no_class() {
        // Two GPUs behind a slower switch are a level, not two outliers.
        assert_eq!(host_links(&[5243.0, 5242.0, 4845.0, 4844.0]), []);
        assert_eq!(host_links(&[5243.0, 4845.0, 4844.0]), []);
        // 2 % is less than the least distance.
        assert_eq!(host_links(&[4942.0, 4845.0, 4844.0, 4845.0]), []);
    }
}
