//! A bound on what a choice gains, by which the default is kept.

use pathline_stats::{MixedSignEvidence, ascending, interpolated};

/// Bounds that are looked for, as shares of the least gain that is worth a change.
const SHARES: [f64; 3] = [0.25, 0.5, 1.0];

/// Evidence that the median gain of a choice lies below each of a few bounds.
///
/// A block agrees with a bound if its gain lies below. If the median gain is not below, evidence reaches
/// `1 / level` with probability `level` at most, however often one looks. A block that agrees with a bound
/// agrees with all larger ones, so the least bound that is shown holds with the same probability. All
/// blocks of a choice count, also those of short trials: which choices go on depends on the past only.
/// The claim about several choices needs no correction: to be wrong about one that gains, its own
/// evidence has to be wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct GainBound {
    evidence: [(f64, MixedSignEvidence); 3],
    logs: Vec<f64>,
}

impl GainBound {
    /// Without blocks. `min_gain` is the largest bound: 0.01 is 1 %.
    pub fn new(min_gain: f64) -> Self {
        let largest = min_gain.max(0.0);
        let evidence = SHARES.map(|share| (share * largest, MixedSignEvidence::new()));
        Self { evidence, logs: Vec::new() }
    }

    /// Takes a block: `ln(baseline / choice)`.
    pub fn add(&mut self, log: f64) {
        if log.is_finite() {
            for (bound, evidence) in &mut self.evidence {
                evidence.add(log < bound.ln_1p());
            }
            self.logs.push(log);
        }
    }

    /// The least bound that is shown at this level; none while not even the largest is.
    pub fn shown_at(&self, level: f64) -> Option<f64> {
        let shown = self.evidence.iter().find(|(_, evidence)| evidence.rejects_at(level));
        shown.map(|(bound, _)| *bound)
    }

    /// The median gain over all blocks; none without any.
    pub fn median(&self) -> Option<f64> {
        interpolated(&ascending(self.logs.iter().copied()), 0.5).map(f64::exp_m1)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.logs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_bound_that_all_blocks_agree_with_is_shown() {
        let mut bound = GainBound::new(0.01);
        // 0.3 % lies below 0.5 % and 1 %. 8 signs: (1.5^8 + 1.9^8) / 2 = 97.7; 9: 180.6.
        (0..8).for_each(|_| bound.add(0.003));
        assert_eq!(bound.shown_at(0.01), None);
        bound.add(f64::NAN);
        bound.add(0.003);
        assert_eq!((bound.shown_at(0.01), bound.blocks()), (Some(0.005), 9));
        assert!((bound.median().unwrap() - 0.003f64.exp_m1()).abs() < 1e-12);
    }

    #[test]
    fn a_gain_has_no_bound() {
        let mut bound = GainBound::new(0.01);
        (0..60).for_each(|_| bound.add(0.02));
        assert_eq!(bound.shown_at(0.01), None);
        assert_eq!(GainBound::new(0.0).median(), None);
    }
}
