//! The binomial distribution of fair coins, and its continuous relative for bootstrapped medians.

/// The rank `r` (1 is the smallest sample) for which the `r`-th smallest and the `r`-th largest of
/// `n` samples enclose the median with at least 95 %, as tightly as ranks allow. None for fewer
/// than 6 samples: even the extremes enclose it with only `1 - 2^(1 - n)`.
///
/// The number of samples below the median is binomial with p = 1/2 whatever the distribution, so
/// the interval is exact: it fails with `2 P(B < r)` (H. A. David and H. N. Nagaraja, *Order
/// Statistics*, 2003, section 7.1).
pub(crate) fn median_rank(n: usize) -> Option<usize> {
    let mut below = 0.0;
    let mut rank = 0;
    // P(B = k) = C(n, k) / 2^n, in logarithms so that 2^n does not overflow.
    let mut log_p = -(n as f64) * std::f64::consts::LN_2;
    for k in 0..n / 2 {
        below += log_p.exp();
        if 2.0 * below > 0.05 {
            break;
        }
        rank = k + 1;
        log_p += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    (rank > 0).then_some(rank)
}

/// The weight that each rank of `n` sorted samples has as the median of a resample drawn with
/// replacement; these weights are the bootstrap with infinitely many draws (J. S. Maritz and
/// R. G. Jarrett, "A note on estimating the variance of the sample median", JASA 73, 1978).
/// Ranks with a negligible weight are left out: `(index, weight)`.
pub(crate) fn median_weights(n: usize) -> Vec<(usize, f64)> {
    // The median of n uniforms is Beta(m, m) with m = (n + 1) / 2; a resample's median is the
    // sample at that quantile. For even n this is the continuous case between both middle ranks.
    let m = (n as f64 + 1.0) / 2.0;
    let density = |u: f64| {
        // Unnormalised, relative to its peak at 1/2, so that no power underflows there.
        (4.0 * u * (1.0 - u)).max(0.0).powf(m - 1.0)
    };
    // Simpson's rule over each rank's stretch; smooth, so a few points suffice.
    const POINTS: usize = 16;
    let step = 1.0 / (n * POINTS) as f64;
    let mass = |k: usize| -> f64 {
        (0..=POINTS)
            .map(|i| {
                let factor = match i {
                    0 | POINTS => 1.0,
                    i if i % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                factor * density((k * POINTS + i) as f64 * step)
            })
            .sum()
    };
    let masses: Vec<f64> = (0..n).map(mass).collect();
    let total: f64 = masses.iter().sum();
    masses
        .into_iter()
        .map(|mass| mass / total)
        .enumerate()
        .filter(|&(_, weight)| weight > 1e-9)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // n = 5: 2 * 1/32 = 6.25 % > 5 %, so no rank. n = 6: 2 * 1/64 = 3.1 %: the extremes.
        // n = 9: 2 * (1 + 9)/512 = 3.9 %: rank 2. n = 10: 2 * (1 + 10)/1024 = 2.1 %: rank 2.
        // n = 100: the published table says 40 (and 61).
        let ranks: Vec<_> = [1, 5, 6, 8, 9, 10, 100].map(median_rank).to_vec();
        assert_eq!(ranks, [None, None, Some(1), Some(1), Some(2), Some(2), Some(40)]);
        // The normal approximation n/2 - 0.98 sqrt(n) for many: 5000 - 98 = 4902.
        assert_eq!(median_rank(10_000), Some(4902));
    }

    #[test]
    fn weights_of_three_samples_are_the_bootstrap_s() {
        // The median of three draws from {1, 2, 3} is 1 if two or three draws are 1:
        // 3 (1/3)^2 (2/3) + (1/3)^3 = 7/27; the middle one gets the rest, 13/27.
        let weights = median_weights(3);
        let expected = [7.0 / 27.0, 13.0 / 27.0, 7.0 / 27.0];
        for ((_, weight), expected) in weights.iter().zip(expected) {
            assert!((weight - expected).abs() < 1e-9, "{weight} {expected}");
        }
    }
}
