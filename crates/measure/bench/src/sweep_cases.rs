//! Finds points of a sweep over sizes that disagree with the next sizes.

use std::collections::BTreeMap;

use pathline_diagnose::TimedCase;
use pathline_schema::{Bytes, Case};

use crate::outlier_case::{OutlierCase, OutlierKind, excess};

/// A case disagrees with the next larger size if it takes longer by more than this share.
const MIN_EXCESS: f64 = 0.03;
/// A case disagrees with both next sizes if each byte takes longer than in either by more than this
/// share. Where a library changes its method or a cache ends, the rate falls and stays, or falls by
/// less.
const MIN_DIP: f64 = 0.10;

/// Points of sweeps, cases of one path that differ in their size alone, which disagree with the next sizes. Sweeps of
/// messages and files are left out: their protocols and caches make real steps.
pub(crate) fn outliers(times: &[&TimedCase]) -> Vec<OutlierCase> {
    let mut sweeps: BTreeMap<String, Vec<(Bytes, &TimedCase)>> = BTreeMap::new();
    for time in times {
        if let Some((sweep, bytes)) = sweep_of(&time.case) {
            sweeps.entry(sweep).or_default().push((bytes, time));
        }
    }
    sweeps.values_mut().for_each(|points| points.sort_by_key(|(bytes, _)| *bytes));
    sweeps.values().flat_map(|points| outliers_of(points)).collect()
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

fn outliers_of(points: &[(Bytes, &TimedCase)]) -> impl Iterator<Item = OutlierCase> {
    let us = |ns: f64| format!("{:.4}", ns / 1e3);
    (0..points.len()).filter_map(move |at| {
        let (bytes, timed) = points.get(at)?;
        let (next_bytes, next) = points.get(at + 1)?;
        let outlier = |claim: String, distance: f64| {
            let kind = OutlierKind::UnlikeNeighbours;
            Some(OutlierCase { case: timed.case.clone(), claim, distance, kind })
        };
        let (time, own) = (&timed.time, us(timed.time.median));
        let more = excess(time, &next.time);
        if more > MIN_EXCESS {
            let next = us(next.time.median);
            return outlier(
                format!("{own} us an operation, where {next_bytes} take {next} us"),
                more,
            );
        }
        let (last_bytes, last) = points.get(at.checked_sub(1)?)?;
        let expected =
            |of: &Bytes, other: &TimedCase| other.time.scaled(bytes.as_f64() / of.as_f64());
        let (from_last, from_next) = (expected(last_bytes, last), expected(next_bytes, next));
        let dip = excess(time, &from_last).min(excess(time, &from_next));
        let claim = format!(
            "{own} us an operation, where {last_bytes} and {next_bytes} at their rates suggest {} \
             and {} us",
            us(from_last.median),
            us(from_next.median)
        );
        if dip > MIN_DIP { outlier(claim, dip) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unlike_peers::tests::measured;

    /// A sweep of copies, in us by KiB.
    fn sweep(points: &[(u64, f64)]) -> Vec<OutlierCase> {
        let time = |(kib, us): &(u64, f64)| {
            let text = format!("numa0.pinned > gpu0.vram by dma@gpu0 x {kib}KiB");
            TimedCase::from_measured(&measured(&text, *us)).unwrap()
        };
        let times: Vec<TimedCase> = points.iter().map(time).collect();
        outliers(&times.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_size_that_takes_longer_than_the_next_is_an_outlier() {
        // 10.0 us are 11 % more than 9.0 us.
        let found = sweep(&[(4, 8.0), (16, 10.0), (64, 9.0), (256, 14.0)]);
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
        let found = sweep(&points);
        assert_eq!(found.len(), 1, "{found:?}");
        // 104.86 / 83.89 - 1 = 25 %, the nearer of the two.
        assert!((found[0].distance - 0.25).abs() < 1e-3, "{found:?}");
        assert_eq!(found[0].kind, OutlierKind::UnlikeNeighbours);
    }

    #[test]
    fn steps_of_latency_and_of_caches_are_none() {
        // Latency, then a rate that saturates.
        assert_eq!(sweep(&[(1, 2.2), (4, 2.2), (16, 2.6), (64, 4.0), (256, 8.0)]), []);
        // A cache ends: 100, 100, 40, 40 GB/s.
        let us = |kib: f64, rate: f64| kib * 1.024 / rate;
        let rates = [(64, 100.0), (256, 100.0), (1024, 40.0), (4096, 40.0)];
        let points = rates.map(|(kib, rate)| (kib, us(kib as f64, rate)));
        assert_eq!(sweep(&points), []);
        // The largest and the smallest size have one neighbour.
        assert_eq!(sweep(&[(1024, us(1024.0, 50.0)), (4096, us(4096.0, 30.0))]), []);
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
