//! A sequential sign test that may be looked at after every sample.

/// Share of the evidence that is put at stake on each sign. 0.9 is not the most powerful bet for every
/// effect; it needs 11 agreeing signs for a factor of 1000 and 22 for a million.
const BET: f64 = 0.9;

/// Evidence that a sign is negative more often than positive: an e-process.
///
/// It starts at 1 and is multiplied by 1.9 for a sign that agrees and by 0.1 for one that does not.
/// If, given the past, each sign agrees with probability 1/2 at most, then this is a supermartingale,
/// whatever the distribution of what the signs are of, and the probability that it ever reaches `1/a`
/// is at most `a` (J. Ville, *Etude critique de la notion de collectif*, 1939). So one may stop at any
/// time, for any reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignEvidence {
    /// Natural logarithm of the evidence.
    ln: f64,
    /// Its greatest value so far.
    ln_max: f64,
    signs: u32,
}

impl Default for SignEvidence {
    fn default() -> Self {
        Self { ln: 0.0, ln_max: 0.0, signs: 0 }
    }
}

impl SignEvidence {
    /// Without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a sign: whether it agrees with the claim.
    pub fn add(&mut self, agrees: bool) {
        self.ln += if agrees { (1.0 + BET).ln() } else { (1.0 - BET).ln() };
        self.ln_max = self.ln_max.max(self.ln);
        self.signs = self.signs.saturating_add(1);
    }

    /// log10 of the greatest evidence so far; 0 and above.
    pub fn log10_max(&self) -> f64 {
        self.ln_max / std::f64::consts::LN_10
    }

    /// log10 of the evidence now, which falls when signs disagree.
    pub fn log10(&self) -> f64 {
        self.ln / std::f64::consts::LN_10
    }

    /// Whether the evidence has reached `1 / level`: the claim is then wrong with probability `level`
    /// at most. Never for a level that is not above 0.
    pub fn rejects_at(&self, level: f64) -> bool {
        level > 0.0 && self.ln_max >= -level.ln()
    }

    /// Number of signs.
    pub fn signs(&self) -> u32 {
        self.signs
    }
}

/// Stakes of [`MixedSignEvidence`]: 0.9 is quick where nearly all signs agree, 0.5 still gains where
/// three of four do.
const MIXED_BETS: [f64; 2] = [0.9, 0.5];

/// The mean of two e-processes with different stakes, which is one again: [`SignEvidence`] for claims of
/// which it is not known how many signs agree.
///
/// With a stake of 0.9 evidence shrinks if fewer than 78 % of the signs agree (`0.642 p = 2.303 (1 - p)`),
/// with 0.5 if fewer than 63 % do (`0.405 p = 0.693 (1 - p)`). A process in a slow state gives a sign at
/// random, so signs of a true gain disagree now and then.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MixedSignEvidence {
    /// Natural logarithm of the evidence by each stake.
    ln: [f64; 2],
    /// That of the greatest mean so far.
    ln_max: f64,
}

impl MixedSignEvidence {
    /// Without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a sign: whether it agrees with the claim.
    pub fn add(&mut self, agrees: bool) {
        for (ln, bet) in self.ln.iter_mut().zip(MIXED_BETS) {
            *ln += if agrees { bet.ln_1p() } else { (-bet).ln_1p() };
        }
        let [a, b] = self.ln;
        let most = a.max(b);
        let mean = most + f64::midpoint((a - most).exp(), (b - most).exp()).ln();
        self.ln_max = self.ln_max.max(mean);
    }

    /// Whether the evidence has reached `1 / level`, as [`SignEvidence::rejects_at`].
    pub fn rejects_at(&self, level: f64) -> bool {
        level > 0.0 && self.ln_max >= -level.ln()
    }

    /// log10 of the greatest evidence so far; 0 and above.
    pub fn log10_max(&self) -> f64 {
        self.ln_max / std::f64::consts::LN_10
    }

    /// How many further signs make the evidence reach `1 / level`, if this share of them agrees; 0 if it has.
    /// None if so few agree that no number does.
    pub fn signs_needed(&self, level: f64, share: f64) -> Option<u32> {
        if self.rejects_at(level) {
            return Some(0);
        }
        // Each stake carries half of the evidence.
        let goal = -level.ln() + std::f64::consts::LN_2;
        let needed = self.ln.iter().zip(MIXED_BETS).filter_map(|(ln, bet)| {
            let growth = share * bet.ln_1p() + (1.0 - share) * (-bet).ln_1p();
            (growth > 0.0 && goal.is_finite()).then(|| ((goal - ln) / growth).ceil().max(1.0))
        });
        needed.min_by(f64::total_cmp).map(|needed| needed as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_is_slower_by_two_and_bears_more_signs_against_it() {
        let mut mixed = MixedSignEvidence::new();
        (0..9).for_each(|_| mixed.add(true));
        // (1.9^9 + 1.5^9) / 2 = (322.69 + 38.44) / 2.
        assert!((mixed.log10_max() - 180.56f64.log10()).abs() < 1e-3);
        // Three of four signs agree: a stake of 0.9 has 1.9^3 * 0.1 = 0.69 a round, one of 0.5 has
        // 1.5^3 * 0.5 = 1.69, and 14 rounds give 1.69^14 / 2 = 760.
        let (mut mixed, mut single) = (MixedSignEvidence::new(), SignEvidence::new());
        for sign in (0..56).map(|i| i % 4 != 3) {
            mixed.add(sign);
            single.add(sign);
        }
        assert!(mixed.rejects_at(1.0 / 500.0) && !single.rejects_at(1.0 / 10.0));
        assert!(!mixed.rejects_at(0.0) && !mixed.rejects_at(f64::NAN));
    }

    #[test]
    fn signs_that_are_needed_are_counted() {
        let mut mixed = MixedSignEvidence::new();
        // All agree: ln(2 / 0.01) / ln(1.9) = 5.298 / 0.642 = 8.25, so 9; of nine that agree, 5 are left after 4.
        assert_eq!(mixed.signs_needed(0.01, 1.0), Some(9));
        (0..4).for_each(|_| mixed.add(true));
        assert_eq!(mixed.signs_needed(0.01, 1.0), Some(5));
        (0..5).for_each(|_| mixed.add(true));
        assert_eq!(mixed.signs_needed(0.01, 0.0), Some(0), "it is there");
        // 70 % agree: only a stake of 0.5 grows, by 0.7 * 0.405 - 0.3 * 0.693 = 0.0759 a sign: 69.8.
        assert_eq!(MixedSignEvidence::new().signs_needed(0.01, 0.7), Some(70));
        assert_eq!(MixedSignEvidence::new().signs_needed(0.01, 0.6), None);
        assert_eq!(MixedSignEvidence::new().signs_needed(0.0, 1.0), None);
    }

    #[test]
    fn a_mixture_alarms_as_rarely_as_it_says() {
        let mut random = fastrand::Rng::with_seed(3);
        let series = 4000;
        let mut alarms = 0;
        for _ in 0..series {
            let mut evidence = MixedSignEvidence::new();
            (0..400).for_each(|_| evidence.add(random.bool()));
            alarms += u32::from(evidence.rejects_at(0.01));
        }
        assert!(alarms <= series / 100, "{alarms} of {series}");
    }

    #[test]
    fn eleven_agreeing_signs_are_a_thousand_to_one() {
        let mut evidence = SignEvidence::new();
        (0..10).for_each(|_| evidence.add(true));
        assert!(!evidence.rejects_at(1e-3), "1.9^10 = 613");
        evidence.add(true);
        assert!(evidence.rejects_at(1e-3), "1.9^11 = 1165");
        assert!((evidence.log10() - 11.0 * 1.9f64.log10()).abs() < 1e-12);
        // What was reached counts, as Ville's inequality is about the supremum.
        evidence.add(false);
        assert!(evidence.rejects_at(1e-3) && evidence.log10() < 3.0);
        assert_eq!(evidence.signs(), 12);
        assert!(!evidence.rejects_at(0.0) && !evidence.rejects_at(f64::NAN));
    }

    /// Share of 4,000 series of 200 signs of noise whose evidence ever reaches 100.
    fn false_alarms(mut noise: impl FnMut(&mut fastrand::Rng) -> f64) -> f64 {
        let mut random = fastrand::Rng::with_seed(1);
        let series = 4000;
        let mut alarms = 0;
        for _ in 0..series {
            let mut evidence = SignEvidence::new();
            (0..200).for_each(|_| evidence.add(noise(&mut random) < 0.0));
            alarms += u32::from(evidence.rejects_at(0.01));
        }
        f64::from(alarms) / f64::from(series)
    }

    #[test]
    fn false_alarms_stay_below_the_level_whatever_the_tail() {
        // At most 1 % by Ville's inequality. With bets of 0.9 the bound is not met with equality: 8
        // agreeing signs of 8 have 1/256 = 0.4 %, and few later series recover.
        let cauchy = |r: &mut fastrand::Rng| (std::f64::consts::PI * (r.f64() - 0.5)).tan();
        assert!(false_alarms(cauchy) <= 0.01);
        // Skewed with median 0: 2^u - sqrt(2), and a late sample of 1 %.
        let skewed = |r: &mut fastrand::Rng| {
            let late = if r.f64() < 0.01 { 5.0 } else { 0.0 };
            r.f64().exp2() - 2f64.sqrt() + late
        };
        assert!(false_alarms(skewed) <= 0.01);
    }

    #[test]
    fn dependent_noise_breaks_the_bound_unless_its_centre_is_known_to_be_better() {
        // AR(1) of 0.9 about 0: signs come in runs, the probability of a sign given the past is not
        // 1/2, and the bound does not hold. That is why a path is centred on its equals in the same
        // round, which removes what they share, and why only agreeing processes fail a node.
        let ar = |centre: f64| {
            let mut state = 0.0;
            move |r: &mut fastrand::Rng| {
                let normal = (0..12).map(|_| r.f64()).sum::<f64>() - 6.0;
                state = 0.9 * state + 0.19f64.sqrt() * normal;
                centre + state
            }
        };
        assert!(false_alarms(ar(0.0)) > 0.05);
        // A margin of five standard deviations above the border, as that of healthy links, restores it.
        assert!(false_alarms(ar(5.0)) <= 0.001);
    }

    #[test]
    fn a_state_of_a_process_is_one_sample_whatever_the_number_of_rounds() {
        // With a share s of slow processes, all rounds of a process agree: s alarms by one process,
        // s^3 by three.
        let mut random = fastrand::Rng::with_seed(2);
        let (mut one, mut three) = (0, 0);
        let runs = 20_000;
        for _ in 0..runs {
            let slow: Vec<bool> = (0..3).map(|_| random.f64() < 0.02).collect();
            let alarm = |slow: bool| {
                let mut evidence = SignEvidence::new();
                (0..24).for_each(|_| evidence.add(slow));
                evidence.rejects_at(1e-3)
            };
            one += u32::from(alarm(slow[0]));
            three += u32::from(slow.iter().all(|&s| alarm(s)));
        }
        let share = |n: u32| f64::from(n) / f64::from(runs);
        assert!((share(one) - 0.02).abs() < 0.005, "{}", share(one));
        assert!(share(three) < 3e-4, "0.02^3 = 8e-6: {}", share(three));
    }
}
