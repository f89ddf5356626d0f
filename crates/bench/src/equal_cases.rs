//! Finds outliers among cases that differ only in the GPU or NUMA domain they name. The cause may
//! be the state of the measuring process, so an outlier is measured again in a new one.

use std::collections::BTreeMap;

use pathline_schema::{Case, CaseTimes, MeasuredCase};
use pathline_stats::median_interval;

/// Minimum cases of a class: with fewer it is unclear which one is the outlier.
const MIN_CLASS: usize = 4;
/// An outlier differs from every other case of its class by more than this share.
const MIN_DISTANCE: f64 = 0.03;
/// Maximum cases of a run that are measured again.
const MAX_OUTLIERS: usize = 16;

/// Time of a case: ns per operation of its slowest flow.
#[derive(Debug, Clone, PartialEq)]
struct CaseTime {
    case: Case,
    median: f64,
    /// Half width of the 95 % interval of the median.
    half_width: f64,
}

impl CaseTime {
    /// `None` with too few samples for an interval.
    fn of(measured: &MeasuredCase) -> Option<Self> {
        let times = CaseTimes::slowest_flow(&measured.series);
        let interval = median_interval(&times.ns, &times.visits)?;
        let reps = measured.series.iter().map(|s| s.reps).max()?.max(1) as f64;
        let (median, half_width) = (interval.median / reps, interval.half_width() / reps);
        Some(Self { case: measured.case.clone(), median, half_width })
    }

    /// Relative excess of the slower of the two, if their intervals do not overlap.
    fn distance(&self, other: &Self) -> f64 {
        let apart = (self.median - other.median).abs();
        let least = self.median.min(other.median);
        if apart <= self.half_width + other.half_width || least <= 0.0 {
            0.0
        } else {
            apart / least
        }
    }
}

/// A case that differs from all others of its class.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutlierCase {
    /// The case.
    pub(crate) case: Case,
    /// ns an operation.
    pub(crate) median: f64,
    /// Number of other cases in its class, and their minimum and maximum time in ns an operation.
    pub(crate) others: (usize, f64, f64),
    distance: f64,
}

impl OutlierCase {
    /// `21 us an operation, where 7 equal cases take 18 to 19 us`.
    pub(crate) fn claim(&self) -> String {
        let (count, least, most) = self.others;
        let us = |ns: f64| format!("{:.4}", ns / 1e3);
        format!(
            "{} us an operation, where {count} cases that differ only in the units they name take {} \
             to {} us",
            us(self.median),
            us(least),
            us(most)
        )
    }
}

/// Times of all cases of a run, by class.
#[derive(Debug, Default)]
pub(crate) struct EqualCases {
    classes: BTreeMap<String, Vec<CaseTime>>,
}

impl EqualCases {
    /// Adds a measured case; replaces an earlier measurement of it.
    pub(crate) fn add(&mut self, measured: &MeasuredCase) {
        let Some(time) = CaseTime::of(measured) else { return };
        let class = self.classes.entry(class_of(&time.case)).or_default();
        class.retain(|earlier| earlier.case != time.case);
        class.push(time);
    }

    /// Removes the measurement of a case.
    pub(crate) fn forget(&mut self, case: &Case) {
        self.classes.values_mut().for_each(|class| class.retain(|time| time.case != *case));
    }

    /// Outliers, the farthest from their classes first.
    pub(crate) fn outliers(&self) -> Vec<OutlierCase> {
        let mut found: Vec<OutlierCase> =
            self.classes.values().flat_map(|class| outliers_of(class)).collect();
        found.sort_by(|a, b| b.distance.total_cmp(&a.distance));
        found.truncate(MAX_OUTLIERS);
        found
    }

    /// The case as an outlier, if it still is one.
    pub(crate) fn outlier(&self, case: &Case) -> Option<OutlierCase> {
        let class = self.classes.get(&class_of(case))?;
        outliers_of(class).find(|outlier| outlier.case == *case)
    }

    /// Time of a case, ns an operation.
    pub(crate) fn median(&self, case: &Case) -> Option<f64> {
        let class = self.classes.get(&class_of(case))?;
        class.iter().find(|time| time.case == *case).map(|time| time.median)
    }
}

/// Cases that are too far from the nearest other one of the class. GPU pairs with fewer links than
/// the rest come in groups, so each has a close neighbour.
fn outliers_of(class: &[CaseTime]) -> impl Iterator<Item = OutlierCase> {
    let large = class.len() >= MIN_CLASS;
    class.iter().enumerate().filter(move |_| large).filter_map(|(nth, time)| {
        let others = || class.iter().enumerate().filter(move |(n, _)| *n != nth).map(|(_, t)| t);
        let distance = others().map(|other| time.distance(other)).reduce(f64::min)?;
        let times = others().map(|other| other.median);
        let least = times.clone().reduce(f64::min)?;
        let most = times.reduce(f64::max)?;
        (distance > MIN_DISTANCE).then(|| OutlierCase {
            case: time.case.clone(),
            median: time.median,
            others: (class.len() - 1, least, most),
            distance,
        })
    })
}

/// The text of a case with its units numbered by first appearance: `gpu6.vram > gpu2.vram by dma@gpu6`
/// and `gpu0.vram > gpu1.vram by dma@gpu0` are one class.
fn class_of(case: &Case) -> String {
    let text = case.to_string();
    let mut class = String::with_capacity(text.len());
    let mut seen: Vec<&str> = Vec::new();
    let mut rest = text.as_str();
    while let Some((at, kind)) =
        ["gpu", "numa"].iter().filter_map(|kind| Some((rest.find(kind)?, *kind))).min()
    {
        let (before, from) = rest.split_at(at);
        let digits = from.get(kind.len()..).unwrap_or_default();
        let digits = digits.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (unit, after) = from.split_at(kind.len() + digits);
        class.push_str(before);
        if digits == 0 {
            class.push_str(unit);
        } else {
            let number = seen.iter().position(|known| *known == unit).unwrap_or(seen.len());
            if number == seen.len() {
                seen.push(unit);
            }
            class.push_str(&format!("{kind}#{number}"));
        }
        rest = after;
    }
    class + rest
}

#[cfg(test)]
mod tests {
    use pathline_schema::{
        Conditions, FlowSeries, Ns, StopInfo, StopReason, TimerKind, VerifyResult,
    };

    use super::*;

    /// Eight samples about `us`, 0.1 % to both sides.
    fn measured(case: &str, us: f64) -> MeasuredCase {
        let case: Case = case.parse().unwrap();
        let samples = (0..8).map(|i| us * 1e3 * (1.0 + 0.0002 * f64::from(i % 3 - 1)));
        let series = FlowSeries {
            samples_ns: samples.collect(),
            ..FlowSeries::new(case.timed[0], TimerKind::DeviceEvents)
        };
        MeasuredCase {
            case,
            suites: Vec::new(),
            series: vec![series],
            stop: StopInfo {
                reason: StopReason::Precise,
                warmup: 0,
                half_width: 0.0,
                elapsed: Ns::ZERO,
                load: Ns::ZERO,
            },
            verdict: VerifyResult::Verified,
            compared: None,
            before: Conditions::default(),
            after: Conditions::default(),
            env: BTreeMap::new(),
            gpus: BTreeMap::new(),
            origin: None,
        }
    }

    fn host_links(us: &[f64]) -> EqualCases {
        let mut cases = EqualCases::default();
        for (gpu, us) in us.iter().enumerate() {
            let text = format!("numa0.pinned > gpu{gpu}.vram by dma@gpu{gpu} x 256MiB");
            cases.add(&measured(&text, *us));
        }
        cases
    }

    #[test]
    fn one_of_eight_equal_links_that_is_slower_is_an_outlier() {
        // 256 MiB at 51.2 GB/s take 5243 us, at 55.4 GB/s 4845: 8.2 % longer than the nearest.
        let cases = host_links(&[5243.0, 4845.0, 4846.0, 4844.0, 4845.0, 4845.0, 4846.0, 4845.0]);
        let found = cases.outliers();
        assert_eq!(found.len(), 1);
        assert!(found[0].case.to_string().contains("gpu0"));
        assert!((found[0].distance - (5243.0 / 4846.0 - 1.0)).abs() < 1e-3, "{found:?}");
        assert_eq!(found[0].others.0, 7);
    }

    #[test]
    fn two_levels_have_no_outlier_and_three_cases_no_class() {
        // Two GPUs behind a slower switch are a level, not two outliers.
        assert_eq!(host_links(&[5243.0, 5242.0, 4845.0, 4844.0]).outliers(), []);
        assert_eq!(host_links(&[5243.0, 4845.0, 4844.0]).outliers(), []);
        // 2 % is less than the least distance.
        assert_eq!(host_links(&[4942.0, 4845.0, 4844.0, 4845.0]).outliers(), []);
    }

    #[test]
    fn a_later_measurement_takes_the_place_of_the_first() {
        let mut cases = host_links(&[5243.0, 4845.0, 4844.0, 4845.0]);
        let case = cases.outliers()[0].case.clone();
        cases.add(&measured(&case.to_string(), 4845.0));
        assert_eq!(cases.outlier(&case), None);
        assert!((cases.median(&case).unwrap() - 4845e3).abs() < 1e3);
    }

    #[test]
    fn units_are_numbered_by_first_appearance() {
        let class = |text: &str| class_of(&text.parse().unwrap());
        let pair = "gpu6.vram > gpu12.vram by dma@gpu6 x 1MiB";
        assert_eq!(class(pair), "r0.gpu#0.vram > r0.gpu#1.vram by dma@gpu#0 x 1MiB");
        assert_eq!(class(pair), class("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB"));
        assert_ne!(class(pair), class("gpu0.vram > gpu1.vram by dma@gpu1 x 1MiB"));
        assert_ne!(class(pair), class("gpu0.vram > gpu0.vram by dma@gpu0 x 1MiB"));
    }
}
