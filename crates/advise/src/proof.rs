//! The proof of a gain: blocks of trials, evidence that may be looked at after each, and a null arm.

use pathline_stats::{MixedSignEvidence, median_interval};
use serde::{Deserialize, Serialize};

/// Fewest blocks of a proof.
pub const MIN_BLOCKS: usize = 8;
/// Most blocks of a proof or of a check for harm.
pub(crate) const MAX_BLOCKS: usize = 64;
/// Evidence at which "it gains less than that" is taken as shown. It decides only whether more time is
/// spent, so it need not be as strong as a recommendation.
const KEEP_LEVEL: f64 = 0.05;
/// Evidence at which the null arm shows that equal arms differ here.
const NULL_LEVEL: f64 = 0.01;
/// Evidence of unequal null arms above which a gain is not taken as shown: more blocks decide.
const NULL_WARNING: f64 = 0.1;
/// Evidence at which a case counts as harmed.
const HARM_LEVEL: f64 = 0.05;

/// What a proof must show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProofTarget {
    /// Least gain that is worth a change: 0.01 is 1 %.
    pub min_gain: f64,
    /// Largest probability of a false recommendation of the whole session: 0.01 is 1 %.
    pub level: f64,
    /// Number of candidates that this probability is divided among; at least 1.
    pub candidates: usize,
}

impl ProofTarget {
    /// The probability that one candidate may be recommended falsely.
    pub(crate) fn share(&self) -> f64 {
        self.level / self.candidates.max(1) as f64
    }

    /// Blocks of a proof in which each shows the gain.
    pub(crate) fn least_blocks(&self) -> usize {
        let mut evidence = MixedSignEvidence::new();
        let mut blocks = 0;
        while blocks < MAX_BLOCKS && (blocks < MIN_BLOCKS || !evidence.rejects_at(self.share())) {
            evidence.add(true);
            blocks += 1;
        }
        blocks
    }

    /// The natural logarithm of the least factor that counts.
    fn margin(&self) -> f64 {
        self.min_gain.max(0.0).ln_1p()
    }
}

/// The costs of one block: each arm once, in an order drawn for the block. In any unit; less is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialBlock {
    /// The baseline.
    pub baseline: f64,
    /// The baseline once more.
    pub null: f64,
    /// The choice.
    pub choice: f64,
}

impl TrialBlock {
    fn is_usable(&self) -> bool {
        [self.baseline, self.null, self.choice].iter().all(|x| x.is_finite() && *x > 0.0)
    }
}

/// What a proof has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofState {
    /// The gain exceeds the least one.
    Proven,
    /// It does not.
    NoGain,
    /// Two equal arms differ by more than the least gain: nothing can be shown here.
    TooNoisy,
    /// Undecided so far.
    Open,
}

/// Evidence from blocks of three arms for a gain.
///
/// A block gives the sign of `ln(baseline / choice) - ln(1 + min_gain)`. If the median of that is not
/// above zero, and each block is fresh, the evidence reaches `candidates / level` with probability
/// `level / candidates` at most, however often one looks (see [`MixedSignEvidence`]). Signs do not
/// feel the tails, so a state of a process that is 15 % slower costs power, never truth.
#[derive(Debug, Clone, PartialEq)]
pub struct GainProof {
    target: ProofTarget,
    gain: MixedSignEvidence,
    no_gain: MixedSignEvidence,
    null: [MixedSignEvidence; 2],
    logs: Vec<f64>,
    /// Blocks that gave no usable number.
    unusable: usize,
}

impl GainProof {
    /// Without blocks.
    pub fn new(target: ProofTarget) -> Self {
        let none = MixedSignEvidence::new();
        Self { target, gain: none, no_gain: none, null: [none; 2], logs: Vec::new(), unusable: 0 }
    }

    /// Takes a block.
    pub fn add(&mut self, block: TrialBlock) {
        if !block.is_usable() {
            self.unusable += 1;
            return;
        }
        let margin = self.target.margin();
        // Against the mean of both baselines in logarithms: half of the block's noise on that side.
        let base = f64::midpoint(block.baseline.ln(), block.null.ln());
        let log = base - block.choice.ln();
        self.gain.add(log > margin);
        self.no_gain.add(log < margin);
        let null = (block.baseline / block.null).ln();
        // A margin of zero is left by half of all noise; that is no evidence of unequal arms.
        let margin = margin.max(f64::EPSILON);
        self.null[0].add(null > margin);
        self.null[1].add(null < -margin);
        self.logs.push(log);
    }

    /// What the blocks so far show.
    pub fn state(&self) -> ProofState {
        let null_differs = |level: f64| self.null.iter().any(|null| null.rejects_at(level / 2.0));
        if null_differs(NULL_LEVEL) {
            ProofState::TooNoisy
        } else if self.blocks() < MIN_BLOCKS {
            ProofState::Open
        } else if self.gain.rejects_at(self.target.share()) && !null_differs(NULL_WARNING) {
            ProofState::Proven
        } else if self.no_gain.rejects_at(KEEP_LEVEL) {
            ProofState::NoGain
        } else {
            ProofState::Open
        }
    }

    /// Number of usable blocks.
    pub fn blocks(&self) -> usize {
        self.logs.len()
    }

    /// Number of blocks without a usable number.
    pub fn unusable(&self) -> usize {
        self.unusable
    }

    /// Gain and its 95 % interval, of the blocks of this proof only: baseline over choice, less 1.
    pub fn gain(&self) -> Option<GainInterval> {
        // Each block is a visit.
        let visits = vec![1; self.logs.len()];
        let of = median_interval(&self.logs, &visits)?;
        let [gain, low, high] = [of.median, of.low, of.high].map(f64::exp_m1);
        Some(GainInterval { gain, low, high, blocks: self.logs.len() as u32 })
    }
}

/// A gain: how much less time, as the old time over the new one, less 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GainInterval {
    /// Median over blocks: 0.25 is 25 % more of it in the same time.
    pub gain: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of its 95 % interval.
    pub high: f64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Whether a change harms another case by more than a given share: evidence of blocks of two arms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HarmCheck {
    allowed: f64,
    /// In the unit of costs.
    floor: f64,
    level: f64,
    harm: MixedSignEvidence,
    harmless: MixedSignEvidence,
}

impl HarmCheck {
    /// `allowed` is the loss that counts as none: 0.01 is 1 %. `level` is the largest probability with
    /// which a larger loss may be taken for none.
    pub fn new(allowed: f64, level: f64) -> Self {
        let none = MixedSignEvidence::new();
        Self { allowed: allowed.max(0.0), floor: 0.0, level, harm: none, harmless: none }
    }

    /// The same, where a loss of this much in the unit of costs counts as none too.
    #[must_use]
    pub fn with_floor(self, floor: f64) -> Self {
        Self { floor: floor.max(0.0), ..self }
    }

    /// Takes a block: the cost before and after the change.
    pub fn add(&mut self, before: f64, after: f64) {
        let log = (before / after).ln();
        if log.is_finite() {
            let margin = -self.allowed.max(self.floor / before).ln_1p();
            self.harm.add(log < margin);
            self.harmless.add(log > margin);
        }
    }

    /// Whether it harms; none while that is open.
    pub fn harms(&self) -> Option<bool> {
        if self.harm.rejects_at(HARM_LEVEL) {
            Some(true)
        } else if self.harmless.rejects_at(self.level) {
            Some(false)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProofTarget = ProofTarget { min_gain: 0.01, level: 0.01, candidates: 1 };

    fn block(choice: f64) -> TrialBlock {
        TrialBlock { baseline: 100.0, null: 100.0, choice }
    }

    #[test]
    fn a_steady_gain_is_proven_after_nine_blocks_and_has_its_size() {
        let mut proof = GainProof::new(ONE);
        // Two bets share the stake, so evidence is (1.5^n + 1.9^n) / 2.
        // n = 8: (25.6 + 169.8) / 2 = 97.7 < 100. n = 9: (38.4 + 322.7) / 2 = 180.6.
        for _ in 0..8 {
            proof.add(block(80.0));
            assert_eq!(proof.state(), ProofState::Open);
        }
        proof.add(block(80.0));
        assert_eq!(proof.state(), ProofState::Proven);
        let gain = proof.gain().unwrap();
        assert!((gain.gain - 0.25).abs() < 1e-12, "100 / 80 - 1");
        assert_eq!(gain.blocks, 9);
    }

    #[test]
    fn a_gain_below_the_least_one_is_none() {
        let mut proof = GainProof::new(ONE);
        (0..8).for_each(|_| proof.add(block(99.5)));
        // 100 / 99.5 = 1.005 < 1.01; evidence 97.7 > 1 / 0.05.
        assert_eq!(proof.state(), ProofState::NoGain);
    }

    #[test]
    fn equal_arms_that_differ_end_the_proof() {
        let mut proof = GainProof::new(ONE);
        (0..9).for_each(|_| proof.add(TrialBlock { baseline: 100.0, null: 110.0, choice: 80.0 }));
        // 9 signs of one kind: 180.6 of the 200 that NULL_LEVEL / 2 asks for, and above the 20 of
        // NULL_WARNING / 2, which withholds the gain; the tenth decides.
        assert_eq!(proof.state(), ProofState::Open);
        proof.add(TrialBlock { baseline: 100.0, null: 110.0, choice: 80.0 });
        assert_eq!(proof.state(), ProofState::TooNoisy);
    }

    #[test]
    fn numbers_that_are_none_are_no_evidence() {
        let mut proof = GainProof::new(ONE);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            proof.add(block(bad));
        }
        assert_eq!((proof.blocks(), proof.unusable(), proof.state()), (0, 4, ProofState::Open));
        assert_eq!(proof.gain(), None);
    }

    #[test]
    fn harm_and_harmlessness_are_both_shown() {
        let mut check = HarmCheck::new(0.01, 0.05);
        assert_eq!(check.harms(), None);
        (0..8).for_each(|_| check.add(100.0, 105.0));
        assert_eq!(check.harms(), Some(true));
        let mut check = HarmCheck::new(0.01, 0.05);
        (0..8).for_each(|_| check.add(100.0, 100.2));
        assert_eq!(check.harms(), Some(false), "0.2 % are allowed");
    }
}
