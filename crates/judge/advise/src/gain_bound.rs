//! A bound on what a choice gains, by which the default is kept.

use pathline_stats::{ascending, interpolated};

use crate::proof::{CostEvidence, TrialBlock};

/// Bounds that are looked for, as shares of the least gain that is worth a change.
const SHARES: [f64; 3] = [0.25, 0.5, 1.0];

/// Evidence that the gain of a choice lies below each of a few bounds.
///
/// If its gain is not below, evidence reaches `1 / level` with probability `level` at most, however often one
/// looks. A block that agrees with a bound agrees with all larger ones, so the least bound that is shown holds
/// with the same probability. All blocks of a choice count, also those of short trials: which choices go on
/// depends on the past only. The claim about several choices needs no correction: to be wrong about one that
/// gains, its own evidence has to be wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct GainBound {
    evidence: [(f64, CostEvidence); 3],
    logs: Vec<f64>,
}

impl GainBound {
    /// Without blocks. `min_gain` is the largest bound: 0.01 is 1 %.
    pub fn new(min_gain: f64) -> Self {
        let largest = min_gain.max(0.0);
        let evidence =
            SHARES.map(|share| (share * largest, CostEvidence::of_gain(share * largest)));
        Self { evidence, logs: Vec::new() }
    }

    /// Takes a block; false for one without usable numbers, which is left out.
    pub fn add(&mut self, block: &TrialBlock) -> bool {
        let is_usable = block.log_gain().is_some();
        if is_usable {
            self.evidence.iter_mut().for_each(|(_, evidence)| evidence.add(block));
            // Of both baselines: it selects, and proves nothing.
            let [a, b] = block.baselines;
            self.logs.push(f64::midpoint(a.ln(), b.ln()) - block.choice.ln());
        }
        is_usable
    }

    /// The least bound that is shown at this level; none while not even the largest is.
    pub fn shown_at(&self, level: f64) -> Option<f64> {
        let shown = self.evidence.iter().find(|(_, evidence)| evidence.is_above(level));
        shown.map(|(bound, _)| *bound)
    }

    /// The median gain over all blocks; none without any.
    pub fn median(&self) -> Option<f64> {
        interpolated(&ascending(self.logs.iter().copied()), 0.5).map(f64::exp_m1)
    }

    /// Whether a block showed it slower by more than this factor.
    pub(crate) fn was_slower_by(&self, factor: f64) -> bool {
        self.logs.iter().any(|log| *log <= -factor.ln())
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.logs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(gain: f64) -> TrialBlock {
        TrialBlock { baselines: [1.0 + gain; 2], choice: 1.0 }
    }

    #[test]
    fn the_least_bound_that_all_blocks_agree_with_is_shown() {
        let mut bound = GainBound::new(0.01);
        // 0.3 % lies below 0.5 % and 1 %. 5 blocks: (2.8^5 + 1.8^5) / 2 = 95.5; 6: 258.
        assert!((0..5).all(|_| bound.add(&block(0.003))));
        assert_eq!(bound.shown_at(0.01), None);
        assert!(!bound.add(&block(f64::NAN)) && bound.add(&block(0.003)));
        assert_eq!((bound.shown_at(0.01), bound.blocks()), (Some(0.005), 6));
        assert!((bound.median().unwrap() - 0.003).abs() < 1e-12);
    }

    /// A least gain below 0 is one of 0, and a loss of 2 % lies below that.
    #[test]
    fn a_bound_is_not_negative() {
        let mut bound = GainBound::new(-0.5);
        assert!((0..6).all(|_| bound.add(&block(-0.02))));
        assert_eq!(bound.shown_at(0.01), Some(0.0));
    }

    #[test]
    fn a_gain_has_no_bound() {
        let mut bound = GainBound::new(0.01);
        assert!((0..60).all(|_| bound.add(&block(0.02))));
        assert_eq!(bound.shown_at(0.01), None);
        assert_eq!(GainBound::new(0.0).median(), None);
    }
}
