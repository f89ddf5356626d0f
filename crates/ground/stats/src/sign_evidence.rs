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

/// Stakes of [`BestOfThree`]: 0.9 is quick where nearly every block agrees, 0.4 still gains where half of
/// them do.
const STAKES: [f64; 2] = [0.9, 0.4];

/// Evidence that one of three measurements is the least, or the greatest, more often than chance makes it:
/// the mean of two e-processes with different stakes, which is one again.
///
/// Of three exchangeable values a given one is the strict extreme with probability 1/3 at most, whatever
/// their distribution: measurements of equal things in a drawn order are exchangeable although the first is
/// cold, the clock drifts or the tail is heavy. A stake `s` at fair odds multiplies the evidence by
/// `1 + 2 s` or by `1 - s`, so under chance it is a supermartingale, and the probability that it ever
/// reaches `1 / level` is `level` at most (J. Ville, 1939), however often one looks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BestOfThree {
    /// Natural logarithm of the evidence by each stake.
    ln: [f64; 2],
    /// That of the greatest mean so far.
    ln_max: f64,
}

impl BestOfThree {
    /// Takes a block: whether the one in question is the strict extreme.
    pub fn add(&mut self, is_extreme: bool) {
        for (ln, stake) in self.ln.iter_mut().zip(STAKES) {
            *ln += if is_extreme { (2.0 * stake).ln_1p() } else { (-stake).ln_1p() };
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_blocks_that_agree_are_a_hundred_to_one() {
        let mut evidence = BestOfThree::default();
        (0..4).for_each(|_| evidence.add(true));
        // (2.8^4 + 1.8^4) / 2 = (61.5 + 10.5) / 2 = 36; of five (172.1 + 18.9) / 2 = 95.5; of six 258.
        assert!(evidence.rejects_at(1.0 / 35.9) && !evidence.rejects_at(1.0 / 36.1));
        (0..2).for_each(|_| evidence.add(true));
        assert!(evidence.rejects_at(0.01), "what was reached stays");
        evidence.add(false);
        assert!(evidence.rejects_at(0.01));
        assert!(!evidence.rejects_at(0.0) && !evidence.rejects_at(f64::NAN));
        // Two of three agree: a stake of 0.4 has 1.8^2 * 0.6 = 1.94 for three blocks: 1.94^8 / 2 = 101.
        let mut evidence = BestOfThree::default();
        (0..24).for_each(|i| evidence.add(i % 3 != 2));
        assert!(evidence.rejects_at(0.01));
    }

    /// Equal measurements in a drawn order, in any noise: of 4,000 series of 64 blocks at most 1 % alarm.
    #[test]
    fn equal_measurements_alarm_as_rarely_as_it_says() {
        type Noise = fn(&mut fastrand::Rng, usize) -> f64;
        let noises: [(&str, Noise); 5] = [
            ("cold first", |r, place| 0.002 * r.f64() + if place == 0 { 0.03 } else { 0.0 }),
            ("decay", |r, place| 0.002 * r.f64() + [0.06, 0.015, 0.0][place]),
            ("exponential", |r, _| -(1.0 - r.f64()).ln()),
            ("Pareto 0.5", |r, _| (1.0 - r.f64()).powi(-2)),
            ("a clock of two ticks", |r, _| f64::from(r.u8(..2))),
        ];
        for (name, noise) in noises {
            let mut random = fastrand::Rng::with_seed(3);
            let series = 4000;
            let mut alarms = 0;
            for _ in 0..series {
                let (mut least, mut most) = (BestOfThree::default(), BestOfThree::default());
                for _ in 0..64 {
                    let mut order = [0, 1, 2];
                    random.shuffle(&mut order);
                    let [one, a, b] = order.map(|place| noise(&mut random, place));
                    least.add(one < a.min(b));
                    most.add(one > a.max(b));
                }
                alarms += u32::from(least.rejects_at(0.01)).max(u32::from(most.rejects_at(0.005)));
            }
            assert!(alarms <= series / 100 + series / 200, "{name}: {alarms} of {series}");
        }
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
        assert!(evidence.rejects_at(1e-3) && evidence.log10() < 3.0 && evidence.log10_max() > 3.0);
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
