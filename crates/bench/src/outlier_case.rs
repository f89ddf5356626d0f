//! Results that other results of the run make unlikely. The cause may be the state of the measuring
//! process, so such a case is measured again in a new one.

use std::collections::BTreeMap;

use pathline_schema::{Case, CaseTimes, MeasuredCase, RunNote};
use pathline_stats::median_interval;

use crate::equal_cases::EqualCases;
use crate::sweep_cases::SweepCases;

/// Maximum cases of a run that are measured again.
const MAX_OUTLIERS: usize = 16;

/// Time of a case: ns per operation of its slowest flow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CaseTime {
    pub(crate) case: Case,
    pub(crate) median: f64,
    /// Half width of the 95 % interval of the median.
    pub(crate) half_width: f64,
}

impl CaseTime {
    /// `None` with too few samples for an interval.
    pub(crate) fn from_measured(measured: &MeasuredCase) -> Option<Self> {
        let times = CaseTimes::slowest_flow(&measured.series);
        let interval = median_interval(&times.ns, &times.visits)?;
        let reps = measured.series.iter().map(|s| s.reps).max()?.max(1) as f64;
        let (median, half_width) = (interval.median / reps, interval.half_width() / reps);
        Some(Self { case: measured.case.clone(), median, half_width })
    }

    /// The time of `factor` times the work.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let (median, half_width) = (self.median * factor, self.half_width * factor);
        Self { case: self.case.clone(), median, half_width }
    }

    /// Relative excess of the slower of the two, if their intervals do not overlap.
    pub(crate) fn distance(&self, other: &Self) -> f64 {
        let apart = (self.median - other.median).abs();
        let least = self.median.min(other.median);
        if apart <= self.half_width + other.half_width || least <= 0.0 {
            0.0
        } else {
            apart / least
        }
    }

    /// Relative excess over another time, if it is longer and the intervals do not overlap.
    pub(crate) fn excess(&self, other: &Self) -> f64 {
        if self.median > other.median { self.distance(other) } else { 0.0 }
    }
}

/// The results that a case disagrees with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutlierKind {
    /// All others of its class.
    UnlikeEquals,
    /// Those of the next sizes.
    UnlikeNeighbours,
    /// Its own, while others used the CPUs.
    Disturbed,
}

impl OutlierKind {
    /// Code of the note that a new process measured the same.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::UnlikeEquals => RunNote::UNLIKE_EQUALS,
            Self::UnlikeNeighbours => RunNote::UNLIKE_NEIGHBOURS,
            Self::Disturbed => RunNote::REMEASURED,
        }
    }
}

/// A case that disagrees with others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutlierCase {
    /// The case.
    pub(crate) case: Case,
    /// `21 us an operation, where 7 cases that differ only in the units they name take 18 to 19 us`.
    pub(crate) claim: String,
    /// Relative excess over the nearest of the others.
    pub(crate) distance: f64,
    /// What it disagrees with.
    pub(crate) kind: OutlierKind,
}

/// Times of all cases of a run, in which outliers are looked for.
#[derive(Debug, Default)]
pub(crate) struct OutlierSearch {
    equals: EqualCases,
    sweeps: SweepCases,
    medians: BTreeMap<String, f64>,
    /// Results through host memory whose samples disagreed while others used the CPUs.
    disturbed: BTreeMap<String, OutlierCase>,
    /// CPUs that the run may use, and the precision that it wants.
    allowed: (usize, f64),
}

impl OutlierSearch {
    /// Without results; `cpus` may be used, and `precision` is wanted.
    pub(crate) fn new(cpus: usize, precision: f64) -> Self {
        Self { allowed: (cpus, precision), ..Self::default() }
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
        if let Some(time) = CaseTime::from_measured(measured) {
            self.medians.insert(time.case.to_string(), time.median);
            self.sweeps.add(time.clone());
            self.equals.add(time);
        }
    }

    /// Removes the measurement of a case.
    pub(crate) fn forget(&mut self, case: &Case) {
        self.equals.forget(case);
        self.sweeps.forget(case);
        self.medians.remove(&case.to_string());
        self.disturbed.remove(&case.to_string());
    }

    /// Outliers, the farthest from the others first. A case is listed once.
    pub(crate) fn outliers(&self) -> Vec<OutlierCase> {
        let mut found = self.equals.outliers();
        for outlier in self.sweeps.outliers().into_iter().chain(self.disturbed.values().cloned()) {
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
        match outlier.kind {
            OutlierKind::UnlikeEquals => self.equals.outlier(&outlier.case).is_some(),
            OutlierKind::UnlikeNeighbours => {
                self.sweeps.outliers().iter().any(|other| other.case == outlier.case)
            }
            OutlierKind::Disturbed => self.disturbed.contains_key(&outlier.case.to_string()),
        }
    }

    /// Time of a case, ns an operation.
    pub(crate) fn median(&self, case: &Case) -> Option<f64> {
        self.medians.get(&case.to_string()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::equal_cases::tests::measured;

    #[test]
    fn a_case_is_measured_again_once() {
        let mut search = OutlierSearch::default();
        // GPU 0 takes longer than the others at 16 MiB, and longer than itself at 32 MiB.
        for (gpu, us) in [700.0, 300.0, 301.0, 300.0].into_iter().enumerate() {
            for (size, us) in [("8MiB", 150.0), ("16MiB", us), ("32MiB", 600.0)] {
                let text = format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x {size}");
                search.add(&measured(&text, us));
            }
        }
        let found = search.outliers();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, OutlierKind::UnlikeEquals);
        assert!(search.is_outlier(&found[0]));
        let again = measured(&found[0].case.to_string(), 300.0);
        search.forget(&found[0].case);
        assert_eq!(search.median(&found[0].case), None);
        search.add(&again);
        assert!(!search.is_outlier(&found[0]));
        assert!((search.median(&found[0].case).unwrap() - 300e3).abs() < 1e3);
    }
}
