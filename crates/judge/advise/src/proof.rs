//! The proof of a gain: blocks of two baselines and a choice, evidence that may be looked at after each.

use pathline_schema::{Bytes, SizeEffect};
use pathline_stats::{BestOfThree, median_interval};
use serde::{Deserialize, Serialize};

/// Fewest blocks of a proof: six make an interval of its gain.
pub const MIN_BLOCKS: usize = 6;
/// Most blocks of a proof or of a check for harm.
pub(crate) const MAX_BLOCKS: usize = 96;
/// Evidence at which "it gains less than that" is taken as shown. It decides only whether more time is
/// spent, so it need not be as strong as a recommendation.
const KEEP_LEVEL: f64 = 0.05;
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
        let mut evidence = BestOfThree::default();
        let mut blocks = 0;
        while blocks < MAX_BLOCKS && (blocks < MIN_BLOCKS || !evidence.rejects_at(self.share())) {
            evidence.add(true);
            blocks += 1;
        }
        blocks
    }
}

/// The costs of one block: each arm once, in an order drawn for the block. In any unit; less is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialBlock {
    /// The baseline, twice.
    pub baselines: [f64; 2],
    /// The choice.
    pub choice: f64,
}

impl TrialBlock {
    /// `ln(baseline / choice)`; none if a cost is no usable number. Of one baseline: against the mean of both
    /// the median of equal costs with a heavy tail is not 0.
    pub(crate) fn log_gain(&self) -> Option<f64> {
        let [a, b] = self.baselines;
        let is_usable = [a, b, self.choice].iter().all(|x| x.is_finite() && *x > 0.0);
        is_usable.then(|| (a / self.choice).ln())
    }
}

/// Evidence that the costs of a choice lie below those of the baseline times a factor, and above.
///
/// A block agrees with "below" if the choice beats both baselines of the block so, and with "above" if it
/// loses to both. A choice that is the baseline times that factor is one of three exchangeable costs, so it
/// does either with probability 1/3 at most: see [`BestOfThree`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CostEvidence {
    factor: f64,
    /// In the unit of costs: what the choice may cost more whatever the factor; none for a gain.
    floor: Option<f64>,
    below: BestOfThree,
    above: BestOfThree,
}

impl CostEvidence {
    fn new(factor: f64, floor: Option<f64>) -> Self {
        Self { factor, floor, below: BestOfThree::default(), above: BestOfThree::default() }
    }

    /// That the choice gains more than this share, and that it gains less.
    pub(crate) fn of_gain(gain: f64) -> Self {
        Self::new(1.0 / (1.0 + gain.max(0.0)), None)
    }

    /// That the choice loses less than this share, or than `floor` if that is more; and that it loses more.
    pub(crate) fn of_loss(loss: f64, floor: f64) -> Self {
        Self::new(1.0 + loss.max(0.0), Some(floor.max(0.0)))
    }

    /// Takes a block of usable numbers.
    pub(crate) fn add(&mut self, block: &TrialBlock) {
        let floor = |baseline: f64| self.floor.map_or(0.0, |floor| baseline + floor);
        let border = |baseline: f64| (baseline * self.factor).max(floor(baseline));
        let [a, b] = block.baselines.map(border);
        self.below.add(block.choice < a.min(b));
        self.above.add(block.choice > a.max(b));
    }

    /// Whether the choice is shown to lie below, wrong with probability `level` at most.
    pub(crate) fn is_below(&self, level: f64) -> bool {
        self.below.rejects_at(level)
    }

    /// Whether it is shown to lie above.
    pub(crate) fn is_above(&self, level: f64) -> bool {
        self.above.rejects_at(level)
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
    /// Undecided so far.
    Open,
}

/// Evidence from blocks of three arms for a gain of more than the least one.
///
/// If the choice gains the least gain at most, the proof succeeds with probability `level / candidates` at
/// most, however often one looks.
#[derive(Debug, Clone, PartialEq)]
pub struct GainProof {
    target: ProofTarget,
    evidence: CostEvidence,
    logs: Vec<f64>,
    /// Blocks that gave no usable number.
    unusable: usize,
}

impl GainProof {
    /// Without blocks.
    pub fn new(target: ProofTarget) -> Self {
        let evidence = CostEvidence::of_gain(target.min_gain);
        Self { target, evidence, logs: Vec::new(), unusable: 0 }
    }

    /// Takes a block.
    pub fn add(&mut self, block: TrialBlock) {
        match block.log_gain() {
            Some(log) => {
                self.evidence.add(&block);
                self.logs.push(log);
            }
            None => self.unusable += 1,
        }
    }

    /// What the blocks so far show.
    pub fn state(&self) -> ProofState {
        match () {
            () if self.blocks() < MIN_BLOCKS => ProofState::Open,
            () if self.evidence.is_below(self.target.share()) => ProofState::Proven,
            () if self.evidence.is_above(KEEP_LEVEL) => ProofState::NoGain,
            () => ProofState::Open,
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
        gain_interval(&self.logs)
    }
}

/// The median of logarithms of gains, each of a block, and its 95 % interval.
pub(crate) fn gain_interval(logs: &[f64]) -> Option<GainInterval> {
    // Each block is a visit.
    let of = median_interval(logs, &vec![1; logs.len()])?;
    let [gain, low, high] = [of.median, of.low, of.high].map(f64::exp_m1);
    Some(GainInterval { gain, low, high, blocks: logs.len() as u32 })
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

impl GainInterval {
    /// The gain of undoing the change.
    pub(crate) fn inverse(self) -> Self {
        let [gain, low, high] =
            [self.gain, self.high, self.low].map(|gain| (1.0 + gain).recip() - 1.0);
        Self { gain, low, high, ..self }
    }

    pub(crate) const fn at(self, bytes: Bytes) -> SizeEffect {
        SizeEffect { bytes, gain: self.gain, low: self.low, high: self.high }
    }
}

/// Whether a change makes a case or a figure worse by more than what is allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct HarmCheck {
    evidence: CostEvidence,
    level: f64,
    logs: Vec<f64>,
}

impl HarmCheck {
    /// `allowed` is the loss that counts as none, 0.01 for 1 %, or `floor` in the unit of costs if that is
    /// more. `level` is the largest probability with which a larger loss may be taken for none.
    pub fn new(allowed: f64, floor: f64, level: f64) -> Self {
        Self { evidence: CostEvidence::of_loss(allowed, floor), level, logs: Vec::new() }
    }

    /// Takes a block; one without usable numbers is left out.
    pub fn add(&mut self, block: TrialBlock) {
        if let Some(log) = block.log_gain() {
            self.evidence.add(&block);
            self.logs.push(log);
        }
    }

    /// Whether it harms; none while that is open.
    pub fn harms(&self) -> Option<bool> {
        match () {
            // The size of a harm is part of the answer.
            () if self.logs.len() < MIN_BLOCKS => None,
            () if self.evidence.is_above(HARM_LEVEL) => Some(true),
            () => self.evidence.is_below(self.level).then_some(false),
        }
    }

    /// How the cost changed: negative if it got worse.
    pub fn gain(&self) -> Option<GainInterval> {
        gain_interval(&self.logs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProofTarget = ProofTarget { min_gain: 0.01, level: 0.01, candidates: 1 };

    fn block(choice: f64) -> TrialBlock {
        TrialBlock { baselines: [100.0, 100.0], choice }
    }

    #[test]
    fn a_steady_gain_is_proven_after_six_blocks_and_has_its_size() {
        let mut proof = GainProof::new(ONE);
        // Two stakes share the evidence: (2.8^n + 1.8^n) / 2, 95.5 of five blocks and 258 of six.
        for _ in 0..5 {
            proof.add(block(80.0));
            assert_eq!(proof.state(), ProofState::Open);
        }
        proof.add(block(80.0));
        assert_eq!(proof.state(), ProofState::Proven);
        let gain = proof.gain().unwrap();
        assert!((gain.gain - 0.25).abs() < 1e-12, "100 / 80 - 1");
        assert_eq!(gain.blocks, 6);
    }

    #[test]
    fn a_gain_below_the_least_one_is_none() {
        let mut proof = GainProof::new(ONE);
        (0..6).for_each(|_| proof.add(block(99.5)));
        // 100 / 99.5 = 1.005 < 1.01; evidence 258 > 1 / 0.05.
        assert_eq!(proof.state(), ProofState::NoGain);
        // Exactly the least gain is neither more nor less.
        let mut proof = GainProof::new(ProofTarget { min_gain: 0.25, ..ONE });
        (0..60).for_each(|_| proof.add(block(80.0)));
        assert_eq!(proof.state(), ProofState::Open);
    }

    #[test]
    fn a_choice_that_beats_one_baseline_only_is_no_evidence() {
        let mut proof = GainProof::new(ONE);
        (0..64).for_each(|_| proof.add(TrialBlock { baselines: [100.0, 79.0], choice: 80.0 }));
        assert_eq!(proof.state(), ProofState::Open);
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
        let after = |choice: f64| {
            let mut check = HarmCheck::new(0.01, 0.0, 0.05);
            assert_eq!(check.harms(), None);
            (0..6).for_each(|_| check.add(block(choice)));
            check
        };
        assert_eq!(after(105.0).harms(), Some(true));
        assert_eq!(after(100.2).harms(), Some(false), "0.2 % are allowed");
        assert!((after(125.0).gain().unwrap().gain + 0.2).abs() < 1e-12, "100 / 125 - 1");
    }

    /// (2.8^n + 1.8^n) / 2 is 258 of six blocks and 705 of seven: more than the number of candidates over the
    /// level, but no fewer and no more blocks than any proof has.
    #[test]
    fn more_candidates_need_more_blocks() {
        for (level, candidates, blocks) in [
            (0.5, 1, MIN_BLOCKS),
            (0.01, 0, 6),
            (0.01, 1, 6),
            (0.01, 2, 6),
            (0.01, 3, 7),
            (1e-300, 1, MAX_BLOCKS),
        ] {
            let target = ProofTarget { min_gain: 0.01, level, candidates };
            assert_eq!(target.least_blocks(), blocks, "{level} of {candidates}");
        }
        let mut early = GainProof::new(ProofTarget { level: 0.5, ..ONE });
        for nth in 1..=MIN_BLOCKS {
            early.add(block(80.0));
            let state = if nth < MIN_BLOCKS { ProofState::Open } else { ProofState::Proven };
            assert_eq!(early.state(), state, "{nth}");
        }
    }

    /// Baselines of 100 and 90: a loss of 10 % allows 99 to 110, of 5 more than either 95 to 105.
    #[test]
    fn a_choice_beats_both_baselines_or_neither() {
        for (allowed, floor, choice, expected) in [
            (0.1, 0.0, 98.0, Some(false)),
            (0.1, 0.0, 100.0, None),
            (0.1, 0.0, 109.0, None),
            (0.1, 0.0, 111.0, Some(true)),
            (0.0, 5.0, 94.0, Some(false)),
            (0.0, 5.0, 104.0, None),
            (0.0, 5.0, 106.0, Some(true)),
            (-1.0, -5.0, 89.0, Some(false)),
            (-1.0, -5.0, 101.0, Some(true)),
        ] {
            let mut check = HarmCheck::new(allowed, floor, 0.01);
            for nth in 0..8 {
                let baselines = if nth % 2 == 0 { [100.0, 90.0] } else { [90.0, 100.0] };
                check.add(TrialBlock { baselines, choice });
            }
            assert_eq!(check.harms(), expected, "{allowed} {floor} {choice}");
        }
        // A least gain below 0 is one of 0.
        let mut proof = GainProof::new(ProofTarget { min_gain: -0.5, ..ONE });
        (0..9).for_each(|_| proof.add(block(110.0)));
        assert_eq!(proof.state(), ProofState::NoGain);
    }

    /// Costs of 50 to 200 of 100: gains of 100 % to -50 %, and undone -50 % to 100 %.
    #[test]
    fn an_interval_has_its_ends_in_order_also_undone() {
        let logs: Vec<f64> = [50.0, 80.0, 80.0, 100.0, 100.0, 100.0, 125.0, 125.0, 200.0]
            .iter()
            .map(|&choice| block(choice).log_gain().unwrap())
            .collect();
        let there = gain_interval(&logs).unwrap();
        assert!(there.low < -0.1 && there.gain.abs() < 1e-12 && there.high > 0.2, "{there:?}");
        assert_eq!(there.blocks, 9);
        let back = there.inverse();
        assert!((back.low - (1.0 / (1.0 + there.high) - 1.0)).abs() < 1e-12);
        assert!((back.high - (1.0 / (1.0 + there.low) - 1.0)).abs() < 1e-12);
        let effect = there.at(Bytes(8));
        assert_eq!((effect.gain, effect.low, effect.high), (there.gain, there.low, there.high));
    }
}
