//! Series that are not one steady number: two modes, drift.

use serde::{Deserialize, Serialize};

use crate::order::{median, median_of, quantile, sorted};

/// One of two states that a series is in by turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Median of its samples.
    pub median: f64,
    /// Its share of all samples, 0 to 1.
    pub share: f64,
}

/// A series with two modes. Their medians are figures; the median of all samples is not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// The mode of the smaller samples.
    pub low: Mode,
    /// The mode of the larger samples.
    pub high: Mode,
    /// How often neighbours in time lie in different modes: few switches mean that a state lasts.
    pub switches: usize,
}

/// Fewest samples in which two modes are looked for.
const FEWEST: usize = 12;
/// Smallest share of a mode, and fewest samples of one; fewer are outliers.
const SHARE: f64 = 0.15;
const LEAST: usize = 4;
/// Smallest distance of the modes, relative to the lower one.
const APART: f64 = 0.05;
/// Smallest distance of the modes in deviations within a mode (Ashman's D; K. M. Ashman et al.,
/// "Detecting bimodality in astronomical datasets", AJ 108, 1994, who ask for more than 2 between
/// given modes). Halves of a normal sample are 2.7 apart and halves of a uniform one 3.5, and
/// small samples scatter about that.
const ASHMAN_D: f64 = 9.0;
/// Smallest empty stretch between the modes, relative to their distance, with the tenth of each
/// mode that lies nearest to the other left out (a state that flips within a sample gives a
/// sample in between). Halves of a normal sample leave 0.16, of a uniform one 0.2.
const VALLEY: f64 = 0.7;

/// The two modes of a series, if it plainly has two: each with 15 % of the samples or more, 5 %
/// apart or more, far apart by their own spread, and with next to nothing in between. None for
/// one-humped, skewed, flat or short series.
pub fn modes(samples: &[f64]) -> Option<Modes> {
    let sorted = sorted(samples)?;
    let n = sorted.len();
    if n < FEWEST {
        return None;
    }
    let least = ((SHARE * n as f64).ceil() as usize).max(LEAST);
    let split = best_split(&sorted, least)?;
    let (low, high) = sorted.split_at(split);
    let (a, b) = (median(low), median(high));
    // Between the 10th and the 90th percentile lie 2.563 deviations of a normal distribution.
    let width = |part: &[f64]| (quantile(part, 0.9) - quantile(part, 0.1)) / 2.563;
    let spread = width(low).hypot(width(high)) / std::f64::consts::SQRT_2;
    let valley = quantile(high, 0.1) - quantile(low, 0.9);
    let apart = (APART * a.abs()).max(ASHMAN_D * spread);
    if b <= a || b - a < apart || valley < VALLEY * (b - a) {
        return None;
    }
    let border = high[0];
    let switches = samples.windows(2).filter(|w| (w[0] < border) != (w[1] < border)).count();
    let mode = |median, count: usize| Mode { median, share: count as f64 / n as f64 };
    Some(Modes { low: mode(a, low.len()), high: mode(b, high.len()), switches })
}

/// Where to cut sorted samples in two so that they lie closest to the median of their part; each
/// part has at least `least`. Distances, not squares, so that one outlier does not attract the cut.
fn best_split(sorted: &[f64], least: usize) -> Option<usize> {
    let mut sums = vec![0.0];
    for x in sorted {
        sums.push(sums[sums.len() - 1] + x);
    }
    // Sum of distances from the median: upper half minus lower half; a middle one cancels.
    let cost = |from: usize, to: usize| {
        let half = (to - from) / 2;
        (sums[to] - sums[to - half]) - (sums[from + half] - sums[from])
    };
    let n = sorted.len();
    (least..=n.checked_sub(least)?)
        .map(|k| (k, cost(0, k) + cost(k, n)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(k, _)| k)
}

/// A series that rises or falls with time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Kendall's rank correlation with time, -1 to 1.
    pub tau: f64,
    /// Change from the first sample to the last along the Theil-Sen line, relative to the median:
    /// 0.03 is a rise of 3 %.
    pub change: f64,
}

/// Most points that are compared pair by pair; longer series are thinned to medians of blocks.
const POINTS: usize = 256;

/// The drift of a series, if there is one worth telling: a Mann-Kendall test at 0.1 % (M. G.
/// Kendall, *Rank Correlation Methods*, 1975) and a change of 1 % or more. Needs 10 samples.
pub fn drift(samples: &[f64]) -> Option<Drift> {
    let sorted = sorted(samples)?;
    if samples.len() < 10 {
        return None;
    }
    let block = samples.len().div_ceil(POINTS);
    let points: Vec<f64> = samples
        .chunks(block)
        .filter(|chunk| chunk.len() == block)
        .map(|chunk| median_of(chunk.iter().copied()))
        .collect();
    let n = points.len() as f64;
    let mut s = 0.0;
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (i, a) in points.iter().enumerate() {
        for (j, b) in points.iter().enumerate().skip(i + 1) {
            s += f64::from(i8::from(b > a) - i8::from(b < a));
            slopes.push((b - a) / (j - i) as f64);
        }
    }
    // Without ties S has the variance n (n - 1) (2 n + 5) / 18; ties only make it smaller.
    let z = (s.abs() - 1.0) / (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let centre = median(&sorted);
    let change = median_of(slopes.into_iter()) * (n - 1.0) / centre.abs();
    // 3.2905: two-sided 0.1 % of the standard normal distribution.
    (z > 3.2905 && change.is_finite() && change.abs() >= 0.01)
        .then(|| Drift { tau: s / (n * (n - 1.0) / 2.0), change })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_states_of_a_machine_are_told_apart() {
        // 51..57 ns and 204..208 ns in blocks of ten, twice each: half and half, 3 switches.
        let samples: Vec<f64> = (0..40)
            .map(|i| if (i / 10) % 2 == 0 { 51.0 } else { 204.0 } + f64::from(i * 3 % 5))
            .collect();
        let found = modes(&samples).unwrap();
        assert_eq!((found.low.median, found.low.share), (53.0, 0.5));
        assert_eq!((found.high.median, found.high.share), (206.0, 0.5));
        assert_eq!(found.switches, 3);
    }

    #[test]
    fn one_outlier_hides_no_modes_and_makes_none() {
        let steady: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i * 7 % 10) / 10.0).collect();
        let mut spiked = steady.clone();
        spiked[17] = 10_000.0;
        assert_eq!(modes(&spiked), None);
        let mut both: Vec<f64> =
            steady.iter().enumerate().map(|(i, x)| if i % 4 == 0 { 1.7 * x } else { *x }).collect();
        both[17] = 10_000.0;
        // 10 of 40 are slow, and the outlier joins them: 11 / 40.
        let found = modes(&both).unwrap();
        assert_eq!(found.high.share, 11.0 / 40.0);
        assert!((found.high.median / found.low.median - 1.7).abs() < 0.02);
    }

    #[test]
    fn a_rise_is_seen_and_a_flat_series_is_not_one() {
        // 100 to 109.5 in steps of 0.5 with a ripple of 0.2: 19 steps, 9.5 of a median of 104.75.
        let rise: Vec<f64> =
            (0..20).map(|i| 100.0 + 0.5 * f64::from(i) + 0.2 * f64::from(i % 2)).collect();
        let found = drift(&rise).unwrap();
        assert!(found.tau > 0.95 && (found.change - 0.0905).abs() < 0.003, "{found:?}");
        assert_eq!(drift(&[100.0; 20]), None);
        // Sure, but of no account: 0.1 % over the whole series.
        let slight: Vec<f64> = (0..20).map(|i| 100.0 + 0.005 * f64::from(i)).collect();
        assert_eq!(drift(&slight), None);
    }
}
