//! Whether the default of a library is to be kept: pairs of the default and a choice, and intervals of gains.

use std::fmt;

use pathline_stats::{MixedSignEvidence, ascending, interpolated};

/// A setting that gains less is no choice: runs of a node differ by as much.
pub const LEAST_GAIN: f64 = 0.03;
/// Largest probability that a default is kept though a choice gains [`LEAST_GAIN`], and the largest that any
/// choice is said to gain though none does.
pub const KEEP_LEVEL: f64 = 0.01;

/// What is known of a choice: its gains over the default, each of a pair measured one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct PairedChoice {
    /// Its settings: `NCCL_ALGO=Tree`.
    pub setting: String,
    /// `ln(default / choice)` of each pair, in the order in which they were measured.
    logs: Vec<f64>,
}

/// The gain of a choice: old time over new time, less 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedGain {
    /// Median over pairs.
    pub gain: f64,
    /// Lower end; -1 where the pairs are too few for one.
    pub low: f64,
    /// Upper end; infinite where the pairs are too few for one.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl fmt::Display for PairedGain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.1} %", self.gain * 100.0)?;
        match (self.low > -1.0, self.high.is_finite()) {
            (true, true) => write!(f, " [{:+.1}, {:+.1}]", self.low * 100.0, self.high * 100.0),
            (true, false) => write!(f, " [above {:+.1}]", self.low * 100.0),
            (false, true) => write!(f, " [below {:+.1}]", self.high * 100.0),
            (false, false) => f.write_str(" [no interval yet]"),
        }
    }
}

/// What pairs say of a default.
#[derive(Debug, Clone, PartialEq)]
pub enum DefaultVerdict {
    /// Each choice gains less than [`LEAST_GAIN`].
    Keep,
    /// This choice is faster than the default, and gains most of all that are.
    Change(String),
    /// Neither is shown.
    Unclear {
        /// Further pairs of each choice that decide, if they come out as those so far; none if the gain of
        /// one lies too close to [`LEAST_GAIN`] for any number.
        more_pairs: Option<usize>,
    },
}

impl PairedChoice {
    /// Without pairs.
    pub fn new(setting: impl Into<String>) -> Self {
        Self { setting: setting.into(), logs: Vec::new() }
    }

    /// Takes a pair of times in any one unit. One that is no time is left out.
    pub fn add(&mut self, default: f64, choice: f64) {
        let log = (default / choice).ln();
        if log.is_finite() {
            self.logs.push(log);
        }
    }

    /// Number of pairs.
    pub fn pairs(&self) -> usize {
        self.logs.len()
    }

    fn evidence(&self, agrees: impl Fn(f64) -> bool) -> MixedSignEvidence {
        let mut evidence = MixedSignEvidence::new();
        self.logs.iter().for_each(|log| evidence.add(agrees(*log)));
        evidence
    }

    /// The median of the gains and its interval: the ends are bounds that the signs of the pairs show at
    /// these levels, however often one looked before. None without pairs.
    fn gain(&self, low_level: f64, high_level: f64) -> Option<PairedGain> {
        let sorted = ascending(self.logs.iter().copied());
        let median = interpolated(&sorted, 0.5)?;
        // A bound that lies further out has more signs on its side, so the first one shown is the closest.
        let high = sorted.iter().find(|x| self.evidence(|log| log <= **x).rejects_at(high_level));
        let low =
            sorted.iter().rev().find(|x| self.evidence(|log| log >= **x).rejects_at(low_level));
        Some(PairedGain {
            gain: median.exp_m1(),
            low: low.map_or(-1.0, |x| x.exp_m1()),
            high: high.map_or(f64::INFINITY, |x| x.exp_m1()),
            pairs: self.logs.len(),
        })
    }

    /// Pairs that decide of it, if they come out as those so far.
    fn more_pairs(&self, low_level: f64, high_level: f64) -> Option<usize> {
        let margin = LEAST_GAIN.ln_1p();
        let needed = |agrees: &dyn Fn(f64) -> bool, level: f64| {
            // Processes of a node mostly agree: four signs of four and a half are taken as known.
            let count = self.logs.iter().filter(|log| agrees(**log)).count() as f64;
            let share = (count + 4.0) / (self.logs.len() as f64 + 4.5);
            self.evidence(agrees).signs_needed(level, share)
        };
        let kept = needed(&|log| log < margin, high_level);
        let gains = needed(&|log| log > 0.0, low_level);
        // Both are open: the smaller number decides.
        [kept, gains].into_iter().flatten().min().map(|pairs| pairs as usize)
    }
}

/// The choices of one operation of one size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DefaultCheck {
    /// The choices that were tried.
    pub choices: Vec<PairedChoice>,
}

impl DefaultCheck {
    /// The choice with these settings, new if it has none.
    pub fn choice(&mut self, setting: &str) -> &mut PairedChoice {
        let at = self.choices.iter().position(|choice| choice.setting == setting);
        let at = at.unwrap_or_else(|| {
            self.choices.push(PairedChoice::new(setting));
            self.choices.len() - 1
        });
        &mut self.choices[at]
    }

    /// To be wrong about the default, the evidence of the one choice that gains has to be wrong: upper ends
    /// need no correction. That any choice gains is claimed of all: lower ends are divided among them.
    fn levels(&self) -> (f64, f64) {
        (KEEP_LEVEL / self.choices.len().max(1) as f64, KEEP_LEVEL)
    }

    /// The gain of a choice with its interval; none without pairs.
    pub fn gain(&self, choice: &PairedChoice) -> Option<PairedGain> {
        let (low, high) = self.levels();
        choice.gain(low, high)
    }

    /// The choice with the greatest median gain; none without pairs.
    pub fn best(&self) -> Option<(&PairedChoice, PairedGain)> {
        let all = self.choices.iter().filter_map(|choice| Some((choice, self.gain(choice)?)));
        all.max_by(|a, b| a.1.gain.total_cmp(&b.1.gain))
    }

    /// What the pairs so far show; none if no choice has any.
    ///
    /// If a choice gains [`LEAST_GAIN`] in the median of its pairs, the default is kept with probability
    /// [`KEEP_LEVEL`] at most, however often one looks, given that no pair knows how others came out. If none
    /// gains, a change is named with the same probability at most.
    pub fn verdict(&self) -> Option<DefaultVerdict> {
        let gains: Vec<(&PairedChoice, PairedGain)> =
            self.choices.iter().filter_map(|choice| Some((choice, self.gain(choice)?))).collect();
        if gains.is_empty() {
            return None;
        }
        let is_bounded = |gain: &PairedGain| gain.high < LEAST_GAIN;
        if gains.len() == self.choices.len() && gains.iter().all(|(_, gain)| is_bounded(gain)) {
            return Some(DefaultVerdict::Keep);
        }
        // One that is shown to gain less than counts is no reason to change.
        let faster = gains.iter().filter(|(_, gain)| gain.low > 0.0 && !is_bounded(gain));
        if let Some((choice, _)) = faster.max_by(|a, b| a.1.gain.total_cmp(&b.1.gain)) {
            return Some(DefaultVerdict::Change(choice.setting.clone()));
        }
        let (low, high) = self.levels();
        let open = self.choices.iter().filter(|c| !self.gain(c).is_some_and(|g| is_bounded(&g)));
        let needed: Option<Vec<usize>> = open.map(|c| c.more_pairs(low, high)).collect();
        Some(DefaultVerdict::Unclear { more_pairs: needed.and_then(|n| n.into_iter().max()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gains: &[(&str, f64)], pairs: usize) -> DefaultCheck {
        let mut check = DefaultCheck::default();
        for (setting, gain) in gains {
            (0..pairs).for_each(|_| check.choice(setting).add(1.0 + gain, 1.0));
        }
        check
    }

    #[test]
    fn a_default_is_kept_once_its_interval_lies_below_the_margin() {
        // Signs that agree give (1.5^n + 1.9^n) / 2: 97.7 of 8 pairs, 180.6 of 9; 1 / 0.01 is asked for.
        let gains = [("A", 0.01), ("B", -0.2)];
        let unclear = |more| Some(DefaultVerdict::Unclear { more_pairs: Some(more) });
        // 5.298 - 8 * 0.642 = 0.163 is left, and 12 of 12.5 are taken to agree: 0.524 a sign.
        assert_eq!(check(&gains, 8).verdict(), unclear(1));
        assert_eq!(check(&gains, 9).verdict(), Some(DefaultVerdict::Keep));
        assert_eq!(DefaultCheck::default().verdict(), None);
        let (best, gain) = (check(&gains, 9), check(&gains, 9).best().unwrap().1);
        assert_eq!(best.best().unwrap().0.setting, "A");
        assert!((gain.gain - 0.01).abs() < 1e-9 && (gain.high - 0.01).abs() < 1e-9, "{gain:?}");
        // One choice without pairs keeps the question open.
        let mut open = check(&gains, 9);
        open.choices.push(PairedChoice::new("C"));
        assert!(matches!(open.verdict(), Some(DefaultVerdict::Unclear { .. })));
    }

    #[test]
    fn a_gain_is_named_and_one_at_the_margin_is_not_kept() {
        let found = check(&[("A", 0.05), ("B", 0.08), ("C", -0.1)], 10).verdict();
        // The level is 0.01 / 3: 300 of (1.5^10 + 1.9^10) / 2 = 335.
        assert_eq!(found, Some(DefaultVerdict::Change("B".to_owned())));
        // 3 % exactly: no upper end below it, and all pairs show a gain.
        let found = check(&[("A", 0.03)], 64).verdict();
        assert_eq!(found, Some(DefaultVerdict::Change("A".to_owned())));
    }

    #[test]
    fn few_pairs_have_no_interval_and_say_how_many_decide() {
        let one = check(&[("A", 0.0)], 1);
        assert_eq!(one.best().unwrap().1.to_string(), "+0.0 % [no interval yet]");
        let Some(DefaultVerdict::Unclear { more_pairs: Some(more) }) = one.verdict() else {
            panic!("{:?}", one.verdict())
        };
        // 5.298 - 0.642 = 4.656 is left, and 5 of 5.5 are taken to agree: 0.584 - 0.209 = 0.375 a sign: 12.4.
        assert_eq!(more, 13);
        // Pairs that agree as often as not decide nothing, however many.
        let mut half = DefaultCheck::default();
        (0..40).for_each(|nth| half.choice("A").add(if nth % 2 == 0 { 1.1 } else { 0.98 }, 1.0));
        assert_eq!(half.verdict(), Some(DefaultVerdict::Unclear { more_pairs: None }));
        let mut bad = DefaultCheck::default();
        [f64::NAN, 0.0, -1.0].iter().for_each(|time| bad.choice("A").add(*time, 1.0));
        assert_eq!((bad.choices[0].pairs(), bad.verdict()), (0, None));
    }

    /// A library with six choices on a node whose processes have two states, one 15 % slower.
    struct ChoiceWorld {
        random: fastrand::Rng,
        /// Cost of each choice; the default costs 1.
        costs: [f64; 6],
        /// Share of processes that are slow.
        slow: f64,
        /// Noise of a process, as a share.
        noise: f64,
    }

    impl ChoiceWorld {
        /// The best choice gains this; the others lose up to 40 %, or as little as nothing.
        fn new(seed: u64, gain: f64) -> Self {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut costs = [0.0; 6].map(|_: f64| 1.0 + 0.4 * random.f64() * random.f64());
            costs[random.usize(..6)] = 1.0 / (1.0 + gain);
            let slow = [0.0, 0.1, 0.2][random.usize(..3)];
            let noise = 0.002 + 0.018 * random.f64();
            Self { random, costs, slow, noise }
        }

        fn process(&mut self, cost: f64) -> f64 {
            let normal = (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
            let state = if self.random.f64() < self.slow { 1.15 } else { 1.0 };
            cost * state * (self.noise * normal).exp()
        }

        /// Blocks, until the pairs decide: the verdict and the blocks that it took.
        fn verdict(&mut self, most: usize) -> (DefaultVerdict, usize) {
            let mut check = DefaultCheck::default();
            for block in 1..=most {
                let default = self.process(1.0);
                for nth in 0..self.costs.len() {
                    let cost = self.process(self.costs[nth]);
                    check.choice(&nth.to_string()).add(default, cost);
                }
                let verdict = check.verdict().unwrap();
                if !matches!(verdict, DefaultVerdict::Unclear { .. }) || block == most {
                    return (verdict, block);
                }
            }
            unreachable!("a block was measured")
        }
    }

    /// Worlds in which no choice gains, and in which one gains 3, 5 and 10 %, at most 160 blocks each.
    /// `PATHLINE_TEST_WORLDS` sets their number.
    #[test]
    fn defaults_are_kept_where_nothing_gains_and_only_there() {
        let worlds = std::env::var("PATHLINE_TEST_WORLDS").ok().and_then(|n| n.parse().ok());
        let worlds: u64 = worlds.unwrap_or(100);
        println!(
            "of {worlds} worlds: gain, KEEP, right CHANGE, wrong CHANGE, UNCLEAR, median blocks"
        );
        for gain in [-0.02, 0.0, 0.03, 0.05, 0.1] {
            let (mut keep, mut right, mut wrong, mut unclear) = (0, 0, 0, 0);
            let mut blocks = Vec::new();
            for seed in 0..worlds {
                let mut world = ChoiceWorld::new(seed * 7919 + (gain * 1e3) as u64, gain);
                let (verdict, taken) = world.verdict(160);
                blocks.push(taken as f64);
                match verdict {
                    DefaultVerdict::Keep => keep += 1,
                    DefaultVerdict::Unclear { .. } => unclear += 1,
                    DefaultVerdict::Change(setting) => {
                        let gains = world.costs[setting.parse::<usize>().unwrap()] < 1.0;
                        *(if gains { &mut right } else { &mut wrong }) += 1;
                    }
                }
            }
            let blocks = interpolated(&ascending(blocks), 0.5).unwrap();
            println!("{:+.0} %: {keep} {right} {wrong} {unclear} {blocks}", gain * 100.0);
            // At most 1 % by the levels; of 100 worlds 5 are 4 sigma above that.
            let rare = worlds / 100 + 3 * (worlds / 100).isqrt() + 1;
            if gain <= 0.0 {
                assert!(wrong <= rare, "{gain}: {wrong} of {worlds}");
                assert!(keep * 100 >= worlds * 97, "{gain}: {keep} of {worlds} kept");
            } else {
                assert!(keep <= rare && wrong <= rare, "{gain}: {keep}, {wrong} of {worlds}");
            }
            if gain > 0.03 {
                assert!(right * 100 >= worlds * 95, "{gain}: {right} of {worlds} found");
            }
        }
    }
}
