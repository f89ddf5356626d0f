//! Two series of the same work: which is faster, and how sure that is.

use serde::{Deserialize, Serialize};

use crate::binomial::median_weights;
use crate::order::{median, sorted};
use crate::shape::modes;
use crate::stop::inflation;
use crate::summary::SeriesSummary;

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// The second takes less time, by more than the tolerance.
    Faster,
    /// The second takes more time, by more than the tolerance.
    Slower,
    /// They agree to within the tolerance.
    Same,
    /// The interval reaches over a border: more samples would tell.
    Unclear,
}

/// The second series against the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Median of the second over median of the first: 1.1 takes 10 % more time.
    pub effect: f64,
    /// Lower end of the 95 % interval of the effect; 0 if nothing is known.
    pub low: f64,
    /// Upper end of the 95 % interval of the effect; infinite if nothing is known.
    pub high: f64,
    /// What follows, given the tolerance.
    pub judgement: ChangeKind,
}

/// Compares durations of the same amount of work: `before` and `after`, both positive. Differences
/// up to `tolerance` (0.02 is 2 %) are called the same. None if a series is empty or holds what is
/// no positive finite number.
///
/// The interval is that of the bootstrap of both medians with infinitely many draws, computed
/// rather than drawn. It is widened where neighbouring samples resemble each other, and to the
/// distance of the modes where a series has two: which state the next run meets is not known.
/// With fewer than 6 samples on a side it is what the summaries' intervals allow at worst.
pub fn compare(before: &[f64], after: &[f64], tolerance: f64) -> Option<Comparison> {
    let (a, b) = (sorted(before)?, sorted(after)?);
    if *a.first()? <= 0.0 || *b.first()? <= 0.0 {
        return None;
    }
    let effect = median(&b) / median(&a);
    let (low, high) = if a.len().min(b.len()) < 6 {
        worst_case(&SeriesSummary::of(before)?, &SeriesSummary::of(after)?)
    } else {
        let (low, high) = bootstrap(&a, &b);
        let stretch = inflation(before).max(inflation(after));
        (effect * (low / effect).powf(stretch), effect * (high / effect).powf(stretch))
    };
    let (slowest, fastest) = mode_range(before, after);
    let (low, high) = (low.min(fastest.unwrap_or(low)), high.max(slowest.unwrap_or(high)));
    let (faster, slower) = (1.0 / (1.0 + tolerance), 1.0 + tolerance);
    let judgement = match () {
        () if high < faster => ChangeKind::Faster,
        () if low > slower => ChangeKind::Slower,
        () if low >= faster && high <= slower => ChangeKind::Same,
        () => ChangeKind::Unclear,
    };
    Some(Comparison { effect, low, high, judgement })
}

/// The ratio of two summaries at the ends of their intervals.
fn worst_case(a: &SeriesSummary, b: &SeriesSummary) -> (f64, f64) {
    let high = if a.low > 0.0 { b.high / a.low } else { f64::INFINITY };
    ((b.low / a.high).max(0.0), high)
}

/// The 2.5 % and 97.5 % points of the ratio of the medians of resamples, of sorted series.
fn bootstrap(a: &[f64], b: &[f64]) -> (f64, f64) {
    let (wa, wb) = (median_weights(a.len()), median_weights(b.len()));
    let mut ratios: Vec<(f64, f64)> = Vec::with_capacity(wa.len() * wb.len());
    for &(i, p) in &wa {
        ratios.extend(wb.iter().map(|&(j, q)| (b[j] / a[i], p * q)));
    }
    ratios.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let total: f64 = ratios.iter().map(|r| r.1).sum();
    let at = |share: f64| {
        let mut sum = 0.0;
        ratios
            .iter()
            .find(|r| {
                sum += r.1;
                sum >= share * total
            })
            .or(ratios.last())
            .map_or(1.0, |r| r.0)
    };
    (at(0.025), at(0.975))
}

/// The largest and smallest ratio of modes, where a series has two.
fn mode_range(before: &[f64], after: &[f64]) -> (Option<f64>, Option<f64>) {
    let (a, b) = (modes(before), modes(after));
    if a.is_none() && b.is_none() {
        return (None, None);
    }
    let ends = |samples: &[f64], modes: Option<crate::Modes>| match modes {
        Some(modes) => (modes.low.median, modes.high.median),
        None => {
            let centre = SeriesSummary::of(samples).map_or(1.0, |s| s.median);
            (centre, centre)
        }
    };
    let ((a_low, a_high), (b_low, b_high)) = (ends(before, a), ends(after, b));
    (Some(b_high / a_low), Some(b_low / a_high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ripple(centre: f64, n: usize) -> Vec<f64> {
        (0..n).map(|i| centre * (1.0 + 0.002 * ((i * 7 % 11) as f64 - 5.0))).collect()
    }

    #[test]
    fn ten_per_cent_is_seen_through_one_per_cent_of_noise() {
        let found = compare(&ripple(100.0, 30), &ripple(110.0, 30), 0.02).unwrap();
        assert_eq!(found.judgement, ChangeKind::Slower);
        assert!((found.effect - 1.1).abs() < 0.005 && found.low < 1.1 && found.high > 1.1);
        let back = compare(&ripple(110.0, 30), &ripple(100.0, 30), 0.02).unwrap();
        assert_eq!(back.judgement, ChangeKind::Faster);
    }

    #[test]
    fn equal_series_are_the_same() {
        let found = compare(&ripple(100.0, 30), &ripple(100.5, 30), 0.02).unwrap();
        assert_eq!(found.judgement, ChangeKind::Same);
        // Without noise the interval is a point.
        let exact = compare(&[4.0; 6], &[4.0; 6], 0.02).unwrap();
        assert_eq!((exact.low, exact.effect, exact.high), (1.0, 1.0, 1.0));
    }

    #[test]
    fn one_sample_proves_nothing() {
        let found = compare(&[100.0], &[150.0], 0.02).unwrap();
        assert_eq!((found.effect, found.judgement), (1.5, ChangeKind::Unclear));
        assert_eq!((found.low, found.high), (0.0, f64::INFINITY));
    }

    #[test]
    fn a_series_in_two_states_is_not_called_slower() {
        // Before: 30 in the fast state. After: 12 fast, 18 slow by 1.7: the median says 1.7.
        let mut after = ripple(100.0, 12);
        after.extend(ripple(170.0, 18));
        let found = compare(&ripple(100.0, 30), &after, 0.02).unwrap();
        assert!(found.effect > 1.6, "{found:?}");
        assert_eq!(found.judgement, ChangeKind::Unclear);
    }

    #[test]
    fn what_is_no_duration_is_not_compared() {
        assert_eq!(compare(&[], &[1.0], 0.02), None);
        assert_eq!(compare(&[0.0; 6], &[1.0; 6], 0.02), None);
        assert_eq!(compare(&[1.0; 6], &[f64::NAN; 6], 0.02), None);
    }
}
