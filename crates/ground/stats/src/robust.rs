//! Estimates that a few wrong values do not move.

use crate::order::{ascending, interpolated, median};

/// The most values whose pairs are all formed.
const MAX_PAIRS_OF: usize = 2048;

/// The Hodges-Lehmann estimate of the centre: the median of the means of all pairs of values, each
/// value with itself included (J. L. Hodges and E. L. Lehmann, 1963). It resists 29 % of wrong values
/// and has 95 % of the efficiency of the mean for normal noise. None of none, or if a value is not
/// finite. Of more than 2048 values, of 2048 quantiles of them.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let mut sorted = ascending(values.iter().copied());
    if sorted.len() > MAX_PAIRS_OF {
        let at = |i: usize| (i as f64 + 0.5) / MAX_PAIRS_OF as f64;
        sorted = (0..MAX_PAIRS_OF).filter_map(|i| interpolated(&sorted, at(i))).collect();
    }
    let pairs = sorted.iter().enumerate();
    let means = pairs.flat_map(|(i, a)| sorted.iter().skip(i).map(move |b| a / 2.0 + b / 2.0));
    Some(median(&ascending(means)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_pair_means_resists_one_wild_value() {
        // Means of pairs of 1, 2, 3: 1, 1.5, 2, 2, 2.5, 3; their median is 2.
        assert_eq!(hodges_lehmann(&[3.0, 1.0, 2.0]), Some(2.0));
        // 1, 2, 3, 4 and 1e9: 10 of the 15 means are 1 to 4; the 8th of them is 3.
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some(3.0));
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(hodges_lehmann(&[1.0, f64::NAN]), None);
        let many: Vec<f64> = (0..10_001).map(f64::from).collect();
        assert!((hodges_lehmann(&many).unwrap() - 5000.0).abs() < 5.0);
    }
}
