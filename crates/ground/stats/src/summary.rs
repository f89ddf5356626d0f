//! What a series says in a few numbers.

use serde::{Deserialize, Serialize};

use crate::order::{mad, median, quantile, sorted};

/// Location and spread of a series, in the unit of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeriesSummary {
    /// Number of samples, at least 1.
    pub n: usize,
    /// Median.
    pub median: f64,
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

impl SeriesSummary {
    /// Sums up samples; none if there are none or if one is not finite.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples)?;
        let n = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = median(&sorted);
        Some(Self {
            n,
            median,
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
        // Sorted 10..18: median 14; p5 lies 0.05 * 8 = 0.4 of the way
        // from 10 to 11; distances from 14 are 0,1,1,2,2,3,3,4,4: MAD 2; mean 126 / 9 = 14.
        let s = SeriesSummary::of(&[14.0, 10.0, 12.0, 18.0, 16.0, 11.0, 13.0, 15.0, 17.0]).unwrap();
        assert_eq!((s.n, s.median), (9, 14.0));
        assert_eq!((s.min, s.max, s.mad, s.mean), (10.0, 18.0, 2.0, 14.0));
        assert!((s.p5 - 10.4).abs() < 1e-12 && (s.p95 - 17.6).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_number_has_no_summary() {
        assert_eq!(SeriesSummary::of(&[]), None);
        assert_eq!(SeriesSummary::of(&[1.0, f64::NAN]), None);
        assert_eq!(SeriesSummary::of(&[1.0, f64::INFINITY]), None);
    }
}
