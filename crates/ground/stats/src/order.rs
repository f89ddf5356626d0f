//! Order statistics.

/// A sorted copy; none if empty or if a sample is not finite.
pub(crate) fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || samples.iter().any(|x| !x.is_finite()) {
        return None;
    }
    Some(ascending(samples.iter().copied()))
}

/// The values in ascending order.
pub fn ascending(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The quantile `q`, 0 to 1, of sorted values by nearest rank: the least of them that at least this
/// share does not exceed, so one that was measured. None of none.
pub fn nearest_rank(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).checked_sub(1)?).copied()
}

/// The quantile `q`, 0 to 1, of sorted values, interpolated between ranks (type 7 of Hyndman and Fan,
/// "Sample quantiles in statistical packages", 1996): the median of an even number lies between the
/// middle two. None of none.
pub fn interpolated(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * at.fract())
}

/// The same; zero for none.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    interpolated(sorted, q).unwrap_or(0.0)
}

/// The median of sorted samples.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5)
}

/// The median of samples in any order.
pub(crate) fn median_of(samples: impl Iterator<Item = f64>) -> f64 {
    median(&ascending(samples))
}

/// The median distance from `centre`.
pub(crate) fn mad(samples: &[f64], centre: f64) -> f64 {
    median_of(samples.iter().map(|x| (x - centre).abs()))
}

/// Makes a median absolute deviation comparable to a standard deviation: `1 / 0.67449`, where
/// 0.67449 is the upper quartile of the standard normal distribution.
pub(crate) const MAD_TO_SD: f64 = 1.482_602_218_505_602;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nearest_rank_is_one_of_the_values() {
        let hundred = ascending((1..=100).rev().map(f64::from));
        assert_eq!(nearest_rank(&hundred, 0.95), Some(95.0));
        // ceil(0.95 x 21) = ceil(19.95) = 20: one of 21 may be anything.
        assert_eq!(nearest_rank(&hundred[..21], 0.95), Some(20.0));
        assert_eq!(nearest_rank(&[3.0], 0.95), Some(3.0));
        // The lower of the middle two.
        assert_eq!(nearest_rank(&[1.0, 2.0, 4.0, 9.0], 0.5), Some(2.0));
        assert_eq!(nearest_rank(&[], 0.95), None);
    }

    #[test]
    fn an_interpolated_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(interpolated(&ascending([9.0, 1.0, 2.0, 4.0]), 0.5), Some(3.0));
        assert_eq!(interpolated(&[1.0, 2.0, 9.0], 0.5), Some(2.0));
        // 0.95 x 4 = 3.8: from 4 to 5.
        assert_eq!(interpolated(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), Some(4.8));
        assert_eq!(interpolated(&[], 0.5), None);
    }
}
