//! When to stop: warm-up that has settled, samples that suffice.

use crate::interval::median_interval;
use crate::order::{MAD_TO_SD, mad, sorted};

/// Fewest visits of a series that is called precise. A state that holds two fifths of the time is
/// missed by 6 independent visits in 0.6^6 = 5 % of cases, by 2 in 36 %.
pub const MIN_VISITS: usize = 6;
/// Samples of one visit. More of them tell little: they resemble each other.
pub const VISIT_SAMPLES: u32 = 2;
/// Least time from the start of one visit to the start of the next, as a share of the case's time
/// budget (10 ms of 250 ms): what lasts some milliseconds then differs between visits.
pub const VISIT_PACE: f64 = 0.04;

/// When a series has enough samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StopRule {
    /// Wanted relative half width of the 95 % interval of the median: 0.01 is 1 %.
    pub precision: f64,
    /// Fewest samples.
    pub min_samples: usize,
    /// Most samples.
    pub max_samples: usize,
    /// Fewest visits, usually [`MIN_VISITS`].
    pub min_visits: usize,
}

/// Whether to go on sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleProgress {
    /// The interval is still too wide.
    More,
    /// The interval is as narrow as wanted.
    Precise,
    /// It is not, but the number of samples is spent.
    Spent,
}

impl StopRule {
    /// Judges the samples so far, `visits` of which are in order; see [`median_interval`].
    pub fn check(&self, samples: &[f64], visits: &[u32]) -> SampleProgress {
        let n = samples.len();
        let judged = n >= self.min_samples && visits.len() >= self.min_visits;
        let precise = || {
            let interval = median_interval(samples, visits);
            interval.is_some_and(|i| i.half_width_rel() <= self.precision)
        };
        if judged && precise() {
            SampleProgress::Precise
        } else if n >= self.max_samples {
            SampleProgress::Spent
        } else {
            SampleProgress::More
        }
    }
}

/// Whether a warm-up series has stopped changing: the median of its newest third agrees with that
/// of the third before it to 1 %; or to within their noise, and lies among the older samples, as
/// it does not in a series that still falls. Needs at least 4 samples. Of an even number the lower
/// middle one counts as the median, since what disturbs a sample makes it late.
pub fn settled(samples: &[f64]) -> bool {
    let n = samples.len();
    if n < 4 {
        return false;
    }
    let k = (n / 3).max(2);
    let (Some(early), Some(late)) = (sorted(&samples[n - 2 * k..n - k]), sorted(&samples[n - k..]))
    else {
        return false;
    };
    let (a, b) = (early[(k - 1) / 2], late[(k - 1) / 2]);
    // A difference of two medians of k normal samples has the deviation 1.2533 s sqrt(2 / k).
    let sd = MAD_TO_SD * mad(&early, a).max(mad(&late, b));
    let noise = 2.0 * 1.2533 * sd * (2.0 / k as f64).sqrt();
    let among = early[0] <= b && b <= early[k - 1];
    let apart = (a - b).abs();
    apart <= 0.01 * b.abs() || (apart <= noise && among)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StopRule =
        StopRule { precision: 0.01, min_samples: 7, max_samples: 20, min_visits: 6 };

    #[test]
    fn a_constant_series_is_precise_after_six_visits() {
        assert_eq!(RULE.check(&[5.0; 10], &[2; 5]), SampleProgress::More);
        assert_eq!(RULE.check(&[5.0; 12], &[2; 6]), SampleProgress::Precise);
        // Six visits of one sample are six samples: too few.
        assert_eq!(RULE.check(&[5.0; 6], &[1; 6]), SampleProgress::More);
        assert_eq!(RULE.check(&[5.0; 7], &[1; 7]), SampleProgress::Precise);
    }

    #[test]
    fn a_wide_series_goes_on_until_its_samples_are_spent() {
        let wide: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i * 7 % 20)).collect();
        assert_eq!(RULE.check(&wide[..18], &[2; 9]), SampleProgress::More);
        assert_eq!(RULE.check(&wide, &[2; 10]), SampleProgress::Spent);
    }

    #[test]
    fn warm_up_ends_when_the_series_is_flat() {
        // 400, 200, 120, 104 still falls; 100.8 against 100.2 is 0.6 %.
        assert!(!settled(&[400.0, 200.0, 120.0, 104.0]));
        assert!(settled(&[400.0, 200.0, 120.0, 104.0, 101.0, 100.6, 100.3, 100.1]));
        assert!(!settled(&[100.0, 100.0, 100.0]), "three samples show nothing");
    }
}
