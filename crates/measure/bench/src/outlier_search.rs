//! Finds the results of a run that other results make unlikely.

use std::collections::BTreeMap;

use pathline_diagnose::{TimedCase, unit_shape};
use pathline_schema::{Case, MeasuredCase, Topology};

use crate::outlier_case::{OutlierCase, OutlierKind};
use crate::{sweep_cases, unlike_peers};

/// Maximum cases of a run that are measured again.
const MAX_OUTLIERS: usize = 16;

/// Times of all cases of a run, in which outliers are looked for.
#[derive(Debug, Default)]
pub(crate) struct OutlierSearch {
    topology: Topology,
    times: BTreeMap<String, TimedCase>,
    /// Results through host memory whose samples disagreed while others used the CPUs.
    disturbed: BTreeMap<String, OutlierCase>,
    /// CPUs that the run may use, and the precision that it wants.
    allowed: (usize, f64),
}

impl OutlierSearch {
    /// Without results of this node; `precision` is wanted.
    pub(crate) fn new(topology: &Topology, precision: f64) -> Self {
        let cpus = topology.host.allowed_cpus.len().max(1);
        Self { topology: topology.clone(), allowed: (cpus, precision), ..Self::default() }
    }

    /// Adds a measured case; replaces an earlier measurement of it.
    pub(crate) fn add(&mut self, measured: &MeasuredCase) {
        let (text, (cpus, precision)) = (measured.case.to_string(), self.allowed);
        let loads = [&measured.before, &measured.after].map(|read| read.foreign_load(cpus));
        let is_busy = loads.iter().any(|load| load.is_busy());
        let half_width = measured.stop.half_width;
        if is_busy && half_width > precision && measured.case.is_through_host() {
            let foreign = loads.iter().map(|load| load.foreign).fold(0.0, f64::max);
            let stolen = loads.iter().map(|load| load.stolen).fold(0.0, f64::max) * 100.0;
            let claim = format!(
                "known to {:.1} %, while other processes used {foreign:.1} CPUs and the hypervisor stole {stolen:.0} %",
                half_width * 100.0
            );
            let (case, kind) = (measured.case.clone(), OutlierKind::Disturbed);
            self.disturbed.insert(text, OutlierCase { case, claim, distance: half_width, kind });
        }
        if let Some(time) = TimedCase::from_measured(measured) {
            self.times.insert(time.case.to_string(), time);
        }
    }

    /// Removes the measurement of a case.
    pub(crate) fn forget(&mut self, case: &Case) {
        self.times.remove(&case.to_string());
        self.disturbed.remove(&case.to_string());
    }

    /// Outliers, the farthest from the others first. A case is listed once.
    pub(crate) fn outliers(&self) -> Vec<OutlierCase> {
        let times: Vec<&TimedCase> = self.times.values().collect();
        let mut found = unlike_peers::outliers(&self.topology, &times);
        let sweeps = sweep_cases::outliers(&times).into_iter();
        for outlier in sweeps.chain(self.disturbed.values().cloned()) {
            if found.iter().all(|known| known.case != outlier.case) {
                found.push(outlier);
            }
        }
        found.sort_by(|a, b| b.distance.total_cmp(&a.distance));
        found.truncate(MAX_OUTLIERS);
        found
    }

    /// Whether a case still is an outlier.
    pub(crate) fn is_outlier(&self, outlier: &OutlierCase) -> bool {
        // Only cases of one shape are peers.
        let shape = |case: &Case| unit_shape(&case.to_string()).0;
        let own = shape(&outlier.case);
        let found = match outlier.kind {
            OutlierKind::UnlikePeers => {
                let times = self.times.values().filter(|time| shape(&time.case) == own);
                unlike_peers::outliers(&self.topology, &times.collect::<Vec<_>>())
            }
            OutlierKind::UnlikeNeighbours => {
                sweep_cases::outliers(&self.times.values().collect::<Vec<_>>())
            }
            OutlierKind::Disturbed => {
                return self.disturbed.contains_key(&outlier.case.to_string());
            }
        };
        found.iter().any(|other| other.case == outlier.case)
    }

    /// Time of a case, ns an operation.
    pub(crate) fn median(&self, case: &Case) -> Option<f64> {
        Some(self.times.get(&case.to_string())?.time.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::Conditions;

    use crate::unlike_peers::tests::{equal_gpus, measured};

    #[test]
    fn a_case_is_measured_again_once() {
        let mut search = OutlierSearch::new(&equal_gpus(4), 0.01);
        // GPU 0 takes longer than the others at 16 MiB, and longer than itself at 32 MiB.
        for (gpu, us) in [700.0, 300.0, 301.0, 300.0].into_iter().enumerate() {
            for (size, us) in [("8MiB", 150.0), ("16MiB", us), ("32MiB", 600.0)] {
                let text = format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x {size}");
                search.add(&measured(&text, us));
            }
        }
        let found = search.outliers();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, OutlierKind::UnlikePeers);
        assert!(search.is_outlier(&found[0]));
        let again = measured(&found[0].case.to_string(), 300.0);
        search.forget(&found[0].case);
        assert_eq!(search.median(&found[0].case), None);
        search.add(&again);
        assert!(!search.is_outlier(&found[0]));
        assert!((search.median(&found[0].case).unwrap() - 300e3).abs() < 1e3);
    }

    /// A result through host memory that is known to 2 % where 1 % is wanted is measured again if others used
    /// several of 16 CPUs before or after it, until it is forgotten.
    #[test]
    fn a_result_that_others_disturbed_is_measured_again() {
        let mut topology = equal_gpus(4);
        topology.host.allowed_cpus = "0-15".parse().unwrap();
        let host = "numa0.pinned > gpu0.vram by dma@gpu0 x 16MiB";
        for (case, before, after, half_width, expected) in [
            (
                host,
                3.0,
                0.0,
                0.02,
                Some("2.0 %, while other processes used 3.0 CPUs and the hypervisor stole 0 %"),
            ),
            (host, 0.0, 4.0, 0.02, Some("used 4.0 CPUs")),
            (host, 3.0, 4.0, 0.02, Some("used 4.0 CPUs")),
            (host, 0.0, 0.0, 0.02, None),
            (host, 3.0, 0.0, 0.01, None),
            ("gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB", 3.0, 4.0, 0.02, None),
        ] {
            let mut search = OutlierSearch::new(&topology, 0.01);
            let mut one = measured(case, 300.0);
            one.stop.half_width = half_width;
            let read = |cpus| Conditions([("foreign_cpus".to_owned(), cpus)].into());
            (one.before, one.after) = (read(before), read(after));
            search.add(&one);
            let found = search.outliers();
            assert_eq!(found.len(), usize::from(expected.is_some()), "{case} {before} {after}");
            if let Some(expected) = expected {
                assert!(found[0].claim.contains(expected), "{}", found[0].claim);
                assert_eq!(
                    (found[0].kind, found[0].distance),
                    (OutlierKind::Disturbed, half_width)
                );
                assert!(search.is_outlier(&found[0]));
                search.forget(&one.case);
                assert!(!search.is_outlier(&found[0]) && search.outliers().is_empty());
            }
        }
    }

    /// Host links of 20 sizes, each slow for one GPU of four: the 16 farthest from the rest count.
    #[test]
    fn a_run_measures_its_worst_outliers_again() {
        let mut search = OutlierSearch::new(&equal_gpus(4), 0.01);
        for size in 1..=20u32 {
            for gpu in 0..4 {
                let slower = if gpu == 0 { 1.0 + 0.05 * f64::from(21 - size) } else { 1.0 };
                let text =
                    format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x {}B", 100 << size);
                search.add(&measured(&text, 10.0 * f64::from(1 << size) * slower));
            }
        }
        let found = search.outliers();
        assert_eq!(found.len(), MAX_OUTLIERS);
        let distances: Vec<f64> = found.iter().map(|outlier| outlier.distance).collect();
        assert!(distances.is_sorted_by(|a, b| a >= b) && (distances[0] - 1.0).abs() < 0.01);
    }
}
