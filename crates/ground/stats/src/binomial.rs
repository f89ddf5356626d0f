//! The binomial distribution of fair coins.

/// The rank `r` (1 is the smallest sample) for which the `r`-th smallest and the `r`-th largest of
/// `n` samples enclose the median with at least 95 %, as tightly as ranks allow. None for fewer
/// than 6 samples: even the extremes enclose it with only `1 - 2^(1 - n)`.
///
/// The number of samples below the median is binomial with p = 1/2 whatever the distribution, so
/// the interval is exact: it fails with `2 P(B < r)` (H. A. David and H. N. Nagaraja, *Order
/// Statistics*, 2003, section 7.1).
pub(crate) fn median_rank(n: usize) -> Option<usize> {
    let below = shares_below(n).take_while(|below| 2.0 * below <= 0.05);
    Some(below.count()).filter(|rank| *rank > 0)
}

/// P(B < `rank`), the probability that the `rank`-th smallest of `n` samples lies above the median.
pub(crate) fn share_below(rank: usize, n: usize) -> f64 {
    shares_below(n).take(rank).last().unwrap_or(0.0)
}

/// P(B < 1), P(B < 2), ... up to half of `n`.
fn shares_below(n: usize) -> impl Iterator<Item = f64> {
    // P(B = k) = C(n, k) / 2^n, in logarithms so that 2^n does not overflow.
    let (mut below, mut log_p) = (0.0, -(n as f64) * std::f64::consts::LN_2);
    (0..n / 2).map(move |k| {
        below += log_p.exp();
        log_p += ((n - k) as f64 / (k + 1) as f64).ln();
        below
    })
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
}
