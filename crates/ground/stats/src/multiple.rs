//! Many tests at once: how many of the changes that are found may be false.

/// Which of many tests are significant, so that a stated share of those is false at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FalseDiscovery {
    /// Largest p-value that counts as significant; 0 if none does.
    pub threshold: f64,
    /// Number of significant tests.
    pub found: usize,
    /// Number of tests.
    pub tests: usize,
    /// Largest expected share of false ones among those found, 0 to 1.
    pub rate: f64,
}

impl FalseDiscovery {
    /// The procedure of Benjamini and Hochberg ("Controlling the false discovery rate", J. R.
    /// Statist. Soc. B 57, 1995): with the p-values in ascending order, the largest k with
    /// `p[k] <= rate k / m` counts, and all below it. It holds for independent tests and for those
    /// that depend on each other positively, as cases of one slow link do. NaN counts as 1.
    pub fn control(p_values: &[f64], rate: f64) -> Self {
        let mut sorted: Vec<f64> =
            p_values.iter().map(|p| if p.is_nan() { 1.0 } else { *p }).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let tests = sorted.len();
        let limit = |k: usize| rate * (k + 1) as f64 / tests as f64;
        let last = (0..tests).rev().find(|&k| sorted.get(k).is_some_and(|p| *p <= limit(k)));
        Self {
            threshold: last.and_then(|k| sorted.get(k).copied()).unwrap_or(0.0),
            found: last.map_or(0, |k| k + 1),
            tests,
            rate,
        }
    }

    /// Whether a test with this p-value is among those found.
    pub fn holds(&self, p: f64) -> bool {
        self.found > 0 && p <= self.threshold
    }

    /// Expected number of false ones among those found, at most.
    pub fn expected_false(&self) -> f64 {
        self.rate * self.found as f64
    }

    /// The p-value that one more test would have to reach to be found, too.
    pub fn next_threshold(&self) -> f64 {
        self.rate * (self.found + 1).min(self.tests.max(1)) as f64 / self.tests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_paper() {
        // Benjamini and Hochberg 1995, section 3.2: 15 p-values at 5 %. Bonferroni finds 3
        // (p <= 0.0033), this finds 4: 0.0095 <= 4 / 15 * 0.05 = 0.0133.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let found = FalseDiscovery::control(&p, 0.05);
        assert_eq!((found.found, found.threshold), (4, 0.0095));
        assert!(found.holds(0.0019) && !found.holds(0.0201));
        assert!((found.expected_false() - 0.2).abs() < 1e-12);
        // The fifth would have to reach 5 / 15 * 0.05.
        assert!((found.next_threshold() - 0.05 / 3.0).abs() < 1e-12);
    }

    /// Of two: the smaller has to reach 0.05 / 2, and both 0.05.
    #[test]
    fn the_smallest_of_two_has_half_of_the_rate() {
        let found = |p: [f64; 2]| FalseDiscovery::control(&p, 0.05).found;
        assert_eq!([found([0.9, 0.025]), found([0.026, 0.05]), found([0.9, 0.026])], [1, 2, 0]);
    }

    #[test]
    fn without_a_small_one_nothing_is_found() {
        // The smallest of two has to reach 1 / 2 * 0.05 = 0.025, and both 0.05.
        for p in [&[][..], &[f64::NAN], &[0.4, 0.06, 0.9], &[0.04, 0.9], &[0.026, 0.051]] {
            let found = FalseDiscovery::control(p, 0.05);
            assert_eq!((found.found, found.expected_false()), (0, 0.0));
            assert!(!found.holds(0.0));
        }
    }
}
