//! Finds points of a sweep over sizes that disagree with the next sizes.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, Case};

use crate::outlier_case::{CaseTime, OutlierCase, OutlierKind};

/// A case disagrees with the next larger size if it takes longer by more than this share.
const MIN_EXCESS: f64 = 0.03;
/// A case disagrees with both next sizes if each byte takes longer than in either by more than this
/// share. Where a library changes its method or a cache ends, the rate falls and stays, or falls by
/// less.
const MIN_DIP: f64 = 0.10;

/// Times of the sweeps of a run: cases of one path that differ in their size alone.
#[derive(Debug, Default)]
pub(crate) struct SweepCases {
    sweeps: BTreeMap<String, Vec<(Bytes, CaseTime)>>,
}

impl SweepCases {
    /// Adds a time; replaces an earlier one of the case. Sweeps of messages and files are left out:
    /// their protocols and caches make real steps.
    pub(crate) fn add(&mut self, time: CaseTime) {
        let Some((sweep, bytes)) = sweep_of(&time.case) else { return };
        let points = self.sweeps.entry(sweep).or_default();
        points.retain(|(_, earlier)| earlier.case != time.case);
        let at = points.partition_point(|(smaller, _)| *smaller < bytes);
        points.insert(at, (bytes, time));
    }

    /// Removes the time of a case.
    pub(crate) fn forget(&mut self, case: &Case) {
        self.sweeps.values_mut().for_each(|points| points.retain(|(_, time)| time.case != *case));
    }

    /// Points that disagree with the next sizes, sweep by sweep.
    pub(crate) fn outliers(&self) -> Vec<OutlierCase> {
        self.sweeps.values().flat_map(|points| outliers_of(points)).collect()
    }
}

/// The text of a case without its size, and the size. `None` if it has several flows, or none of a
/// path inside a node.
fn sweep_of(case: &Case) -> Option<(String, Bytes)> {
    let [flow] = case.timed.as_slice() else { return None };
    let is_left_out =
        flow.by.wire().is_some() || flow.by.is_on_files() || !case.background.is_empty();
    if is_left_out {
        return None;
    }
    let text = case.to_string();
    let (path, rest) = text.rsplit_once(" x ")?;
    let cadence = rest.split_once(' ').map_or("", |(_, cadence)| cadence);
    Some((format!("{path} {cadence}"), flow.bytes))
}

fn outliers_of(points: &[(Bytes, CaseTime)]) -> impl Iterator<Item = OutlierCase> {
    let us = |ns: f64| format!("{:.4}", ns / 1e3);
    (0..points.len()).filter_map(move |at| {
        let (bytes, time) = points.get(at)?;
        let (next_bytes, next) = points.get(at + 1)?;
        let own = us(time.median);
        let excess = time.excess(next);
        if excess > MIN_EXCESS {
            let claim = format!("{own} us an operation, where {next_bytes} take {} us", us(next.median));
            return Some(outlier(time, claim, excess));
        }
        let (last_bytes, last) = points.get(at.checked_sub(1)?)?;
        let expected = |(of, other): (&Bytes, &CaseTime)| other.scaled(bytes.as_f64() / of.as_f64());
        let (from_last, from_next) = (expected((last_bytes, last)), expected((next_bytes, next)));
        let dip = time.excess(&from_last).min(time.excess(&from_next));
        let claim = || {
            format!(
                "{own} us an operation, where {last_bytes} and {next_bytes} at their rates suggest {} \
                 and {} us",
                us(from_last.median),
                us(from_next.median)
            )
        };
        (dip > MIN_DIP).then(|| outlier(time, claim(), dip))
    })
}

fn outlier(time: &CaseTime, claim: String, distance: f64) -> OutlierCase {
    OutlierCase { case: time.case.clone(), claim, distance, kind: OutlierKind::UnlikeNeighbours }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::equal_cases::tests::measured;

    /// A sweep of copies, in us by KiB.
    fn sweep(points: &[(u64, f64)]) -> SweepCases {
        let mut cases = SweepCases::default();
        for (kib, us) in points {
            let text = format!("numa0.pinned > gpu0.vram by dma@gpu0 x {kib}KiB");
            cases.add(CaseTime::from_measured(&measured(&text, *us)).unwrap());
        }
        cases
    }

    #[test]
    fn a_size_that_takes_longer_than_the_next_is_an_outlier() {
        // 10.0 us are 11 % more than 9.0 us.
        let found = sweep(&[(4, 8.0), (16, 10.0), (64, 9.0), (256, 14.0)]).outliers();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].case.to_string().ends_with("x 16KiB"));
        assert!((found[0].distance - 10.0 / 9.0 + 1.0).abs() < 1e-3, "{found:?}");
        assert_eq!(found[0].claim, "10.0000 us an operation, where 64KiB take 9.0000 us");
    }

    #[test]
    fn a_rate_below_both_neighbours_is_an_outlier() {
        // 1, 4, 16 MiB at 50, 40, 52 GB/s: 4 MiB take 104.9 us, where 83.9 and 80.7 us are likely.
        let us = |mib: f64, rate: f64| mib * 1048.576 / rate;
        let points = [(1024, us(1.0, 50.0)), (4096, us(4.0, 40.0)), (16384, us(16.0, 52.0))];
        let found = sweep(&points).outliers();
        assert_eq!(found.len(), 1, "{found:?}");
        // 104.86 / 83.89 - 1 = 25 %, the nearer of the two.
        assert!((found[0].distance - 0.25).abs() < 1e-3, "{found:?}");
        assert_eq!(found[0].kind, OutlierKind::UnlikeNeighbours);
    }

    #[test]
    fn steps_of_latency_and_of_caches_are_none() {
        // Latency, then a rate that saturates.
        assert_eq!(sweep(&[(1, 2.2), (4, 2.2), (16, 2.6), (64, 4.0), (256, 8.0)]).outliers(), []);
        // A cache ends: 100, 100, 40, 40 GB/s.
        let us = |kib: f64, rate: f64| kib * 1.024 / rate;
        let rates = [(64, 100.0), (256, 100.0), (1024, 40.0), (4096, 40.0)];
        let points = rates.map(|(kib, rate)| (kib, us(kib as f64, rate)));
        assert_eq!(sweep(&points).outliers(), []);
        // The largest and the smallest size have one neighbour.
        assert_eq!(sweep(&[(1024, us(1024.0, 50.0)), (4096, us(4096.0, 30.0))]).outliers(), []);
    }

    #[test]
    fn sizes_of_one_path_and_cadence_form_a_sweep() {
        let of = |text: &str| sweep_of(&text.parse().unwrap()).map(|(sweep, _)| sweep);
        let copy = "numa0.pinned > gpu0.vram by dma@gpu0 x 4KiB";
        assert_eq!(of(copy), of("numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB"));
        assert_ne!(of(copy), of("numa0.pinned > gpu0.vram by dma@gpu0 x 4KiB isolated"));
        assert_ne!(of(copy), of("numa0.pinned > gpu1.vram by dma@gpu1 x 4KiB"));
        assert_eq!(of("r0.gpu0.vram > r1.gpu1.vram by ccl@gpu0[ping] x 8B"), None);
    }
}
