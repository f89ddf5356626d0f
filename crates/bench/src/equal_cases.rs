//! Finds outliers among cases that differ only in the GPU or NUMA domain they name. The cause may
//! be the state of the measuring process, so an outlier is measured again in a new one.

use std::collections::BTreeMap;

use pathline_schema::Case;

use crate::outlier_case::{CaseTime, OutlierCase, OutlierKind};

/// Minimum cases of a class: with fewer it is unclear which one is the outlier.
const MIN_CLASS: usize = 4;
/// An outlier differs from every other case of its class by more than this share.
const MIN_DISTANCE: f64 = 0.03;

/// Times of all cases of a run, by class.
#[derive(Debug, Default)]
pub(crate) struct EqualCases {
    classes: BTreeMap<String, Vec<CaseTime>>,
}

impl EqualCases {
    /// Adds a time; replaces an earlier one of the case.
    pub(crate) fn add(&mut self, time: CaseTime) {
        let class = self.classes.entry(class_of(&time.case)).or_default();
        class.retain(|earlier| earlier.case != time.case);
        class.push(time);
    }

    /// Removes the measurement of a case.
    pub(crate) fn forget(&mut self, case: &Case) {
        self.classes.values_mut().for_each(|class| class.retain(|time| time.case != *case));
    }

    /// Outliers, class by class.
    pub(crate) fn outliers(&self) -> Vec<OutlierCase> {
        self.classes.values().flat_map(|class| outliers_of(class)).collect()
    }

    /// The case as an outlier, if it still is one.
    pub(crate) fn outlier(&self, case: &Case) -> Option<OutlierCase> {
        let class = self.classes.get(&class_of(case))?;
        outliers_of(class).find(|outlier| outlier.case == *case)
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
        let us = |ns: f64| format!("{:.4}", ns / 1e3);
        (distance > MIN_DISTANCE).then(|| OutlierCase {
            case: time.case.clone(),
            claim: format!(
                "{} us an operation, where {} cases that differ only in the units they name take {} \
                 to {} us",
                us(time.median),
                class.len() - 1,
                us(least),
                us(most)
            ),
            distance,
            kind: OutlierKind::UnlikeEquals,
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
pub(crate) mod tests {
    use pathline_schema::{
        Conditions, FlowSeries, MeasuredCase, Ns, StopInfo, StopReason, TimerKind, VerifyResult,
    };

    use super::*;

    /// Eight samples about `us`, 0.02 % to both sides.
    pub(crate) fn measured(case: &str, us: f64) -> MeasuredCase {
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
            cases.add(CaseTime::from_measured(&measured(&text, *us)).unwrap());
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
        assert!(found[0].claim.contains("where 7 cases that differ only"), "{}", found[0].claim);
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
        cases.add(CaseTime::from_measured(&measured(&case.to_string(), 4845.0)).unwrap());
        assert_eq!(cases.outlier(&case), None);
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
