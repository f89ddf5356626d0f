//! What a series says in a few numbers.

use serde::{Deserialize, Serialize};

use crate::binomial::median_rank;
use crate::order::{mad, median, quantile, sorted};

/// Location and spread of a series, in the unit of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeriesSummary {
    /// Number of samples, at least 1.
    pub n: usize,
    /// Median.
    pub median: f64,
    /// Lower end of the 95 % interval of the median of independent samples. Theirs are not: figures
    /// have the interval of [`median_interval`](crate::median_interval).
    pub(crate) low: f64,
    /// Upper end of the same.
    pub(crate) high: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// Median absolute deviation from the median.
    pub mad: f64,
    /// Arithmetic mean.
    pub mean: f64,
}

/// Half width of the 95 % interval of a mean of 2, 3, 4 or 5 normal samples, as a multiple of
/// their range (E. Lord, "The use of range in place of standard deviation in the t-test",
/// Biometrika 34, 1947).
const LORD: [f64; 4] = [6.353, 1.304, 0.717, 0.507];

impl SeriesSummary {
    /// Sums up samples; none if there are none or if one is not finite.
    ///
    /// From 6 samples on the interval is exact for every distribution: two order statistics, see
    /// David and Nagaraja, *Order Statistics*, section 7.1. Fewer samples cannot give such an
    /// interval; then it is Lord's multiple of the range about the median, which assumes roughly
    /// normal noise and errs on the wide side. One sample says nothing about its noise: the
    /// interval is 100 % to both sides.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples)?;
        let n = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = median(&sorted);
        let (low, high) = match (median_rank(n), n) {
            (Some(rank), _) => (sorted[rank - 1], sorted[n - rank]),
            (None, 0 | 1) => (median - median.abs(), median + median.abs()),
            (None, n) => {
                let half = LORD.get(n - 2).copied().unwrap_or(1.0) * (max - min);
                (median - half, median + half)
            }
        };
        Some(Self {
            n,
            median,
            low,
            high,
            p5: quantile(&sorted, 0.05),
            p95: quantile(&sorted, 0.95),
            min,
            max,
            mad: mad(&sorted, median),
            mean: samples.iter().sum::<f64>() / n as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_samples_by_hand() {
        // Sorted 10..18: median 14; rank 2 of 9 gives 11 and 17; p5 lies 0.05 * 8 = 0.4 of the way
        // from 10 to 11; distances from 14 are 0,1,1,2,2,3,3,4,4: MAD 2; mean 126 / 9 = 14.
        let s = SeriesSummary::of(&[14.0, 10.0, 12.0, 18.0, 16.0, 11.0, 13.0, 15.0, 17.0]).unwrap();
        assert_eq!((s.n, s.median, s.low, s.high), (9, 14.0, 11.0, 17.0));
        assert_eq!((s.min, s.max, s.mad, s.mean), (10.0, 18.0, 2.0, 14.0));
        assert!((s.p5 - 10.4).abs() < 1e-12 && (s.p95 - 17.6).abs() < 1e-12);
    }

    #[test]
    fn few_samples_are_never_called_precise() {
        // Two samples 1 apart: 6.353 to both sides of 100.5. One sample: 100 %.
        let two = SeriesSummary::of(&[100.0, 101.0]).unwrap();
        assert!((two.high - 106.853).abs() < 1e-9 && (two.low - 94.147).abs() < 1e-9);
        let one = SeriesSummary::of(&[7.0]).unwrap();
        assert_eq!((one.low, one.high), (0.0, 14.0));
    }

    #[test]
    fn what_is_no_number_has_no_summary() {
        assert_eq!(SeriesSummary::of(&[]), None);
        assert_eq!(SeriesSummary::of(&[1.0, f64::NAN]), None);
        assert_eq!(SeriesSummary::of(&[1.0, f64::INFINITY]), None);
    }
}
