//! How many samples a visit takes, and when a warm-up has settled.

use crate::order::{MAD_TO_SD, mad, median, median_of, sorted};

/// Minimum samples of a visit: one that is late does not move the median of three. More tell little of a
/// quiet case, since they resemble each other.
pub const VISIT_SAMPLES: u32 = 3;

/// The number of samples for the next visit of a series: at least [`VISIT_SAMPLES`] and at most `most`,
/// and as many as the noise of the samples so far needs for an interval of the relative half width
/// `precision` over [`MIN_VISITS`](crate::MIN_VISITS) visits.
///
/// The extremes of six medians of `k` normal samples reach `1.267 * 1.253 / sqrt(k)` deviations, and the
/// median difference of neighbours is 0.954 of them. Samples of a visit do not decide on it, so its median
/// stays unbiased.
pub fn visit_samples(samples: &[f64], precision: f64, most: u32) -> u32 {
    let Some(sorted) = sorted(samples).filter(|sorted| sorted.len() > 1) else {
        return VISIT_SAMPLES.min(most);
    };
    let noise = median_of(samples.windows(2).map(|pair| (pair[1] - pair[0]).abs()));
    let relative = noise / (0.954 * median(&sorted).abs());
    let wanted = (1.267 * 1.253 * relative / precision).powi(2);
    // NaN, of a series of zeros, becomes 0.
    (wanted.ceil() as u32).max(VISIT_SAMPLES).min(most)
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

    /// Neighbours 1 of 100.5 apart: 1.588 * 1.043 / 0.5 = 3.31, squared 10.97. Quiet series take three.
    #[test]
    fn noise_asks_for_more_samples_of_a_visit() {
        let noisy: Vec<f64> = (0..8).map(|i| 100.0 + f64::from(i % 2)).collect();
        assert_eq!(visit_samples(&noisy, 0.005, 16), 11);
        assert_eq!((visit_samples(&noisy, 0.001, 16), visit_samples(&noisy, 0.1, 16)), (16, 3));
        assert_eq!(visit_samples(&[], 0.01, 16), VISIT_SAMPLES);
        assert_eq!((visit_samples(&[0.0; 4], 0.01, 16), visit_samples(&noisy, 0.005, 1)), (3, 1));
    }

    #[test]
    fn warm_up_ends_when_the_series_is_flat() {
        // 400, 200, 120, 104 still falls; 100.8 against 100.2 is 0.6 %.
        assert!(!settled(&[400.0, 200.0, 120.0, 104.0]));
        assert!(settled(&[400.0, 200.0, 120.0, 104.0, 101.0, 100.6, 100.3, 100.1]));
        assert!(!settled(&[100.0; 3]) && settled(&[100.0; 4]), "three samples show nothing");
    }
}
