//! The same work in several runs: whether it takes longer, and how sure that is.
//!
//! Everything is computed in logarithms of durations, in which a change is a difference and noise
//! that grows with the duration has one size.

use crate::binomial::{median_rank, share_below};
use crate::interval::MIN_VISITS;
use crate::order::{MAD_TO_SD, ascending, median, median_of, sorted};
use crate::shape::modes;
use crate::student::{t_quantile, t_tail};

/// Samples of a visit, where a record does not say.
const USUAL_VISIT: usize = 4;

/// Standard deviation of the median of normal samples over that of the mean of medians of 4 of them:
/// pi / 2 is the variance of the first, 1.193 that of the second, in units of a mean's.
const MEDIAN_OVER_VISITS: f64 = 1.147;

/// What one run knows of a case, in natural logarithms of a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunEstimate {
    /// Logarithm of the median.
    pub log_median: f64,
    /// Standard error of it within the run. Infinite for one sample, which says nothing about its
    /// noise.
    pub error: f64,
    /// Degrees of freedom of that error.
    pub freedom: f64,
    /// Number of samples.
    pub samples: usize,
    /// Number of visits.
    pub visits: usize,
}

impl RunEstimate {
    /// From the durations of a series and the number of samples of each visit (if that is empty or
    /// does not add up: 4 each). None if a duration is not positive and finite, or there is none.
    ///
    /// The visit is the unit, since samples of a visit resemble each other. With six visits or more the
    /// error is that of their median by two order statistics of the visits' medians, which a late visit
    /// of six does not move (J. W. McKean and R. M. Schrader, Commun. Stat. B 13, 1984). With fewer it is
    /// 1.15 times that of the mean of their logarithms, since the median of all scatters by so much more.
    /// One visit has no such error; then it is the deviation of its samples, as if all of them had erred
    /// together. A series in two states has half the distance of its modes in addition: which state the
    /// next run meets is not known.
    pub fn of(durations: &[f64], visits: &[u32]) -> Option<Self> {
        let ascending = sorted(durations)?;
        if *ascending.first()? <= 0.0 {
            return None;
        }
        let start = transient(durations);
        let steady = durations.get(start..).unwrap_or(durations);
        let blocks: Vec<&[f64]> = blocks(durations, visits, start);
        let mut logs: Vec<f64> = match blocks.as_slice() {
            [_, _, ..] => blocks.iter().map(|b| median_of(b.iter().copied()).ln()).collect(),
            _ => steady.iter().map(|d| d.ln()).collect(),
        };
        logs.sort_by(f64::total_cmp);
        let (error, freedom) = match blocks.len() {
            visits if visits >= MIN_VISITS => (error_by_order(&logs), visits as f64 - 2.0),
            visits => {
                let freedom = logs.len() as f64 - 1.0;
                let shared =
                    if visits > 1 { visits as f64 / MEDIAN_OVER_VISITS.powi(2) } else { 1.0 };
                ((squares(&logs) / freedom / shared).sqrt(), freedom)
            }
        };
        let states = modes(steady).map_or(0.0, |m| 0.5 * (m.high.median / m.low.median).ln()).abs();
        Some(Self {
            log_median: median(&ascending).ln(),
            error: if freedom > 0.0 { error.hypot(states) } else { f64::INFINITY },
            freedom: freedom.max(1.0),
            samples: durations.len(),
            visits: blocks.len(),
        })
    }
}

/// The standard error of the median of sorted values, at least 6: the distance of the two that lie one
/// within the 95 % interval, over that of the normal quantiles by which they enclose the median. Of six
/// values the second and the fifth, 78.1 % or 2.46 errors. Medians of six normal values over it, and of
/// ones of which a fifth are late, have tails as Student's t of 8 degrees for two sides.
fn error_by_order(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    let rank = median_rank(n).map_or(1, |rank| rank + 1).min(n / 2).max(1);
    let reach = t_quantile(share_below(rank, n), f64::INFINITY);
    let ends = sorted.get(rank - 1).zip(sorted.get(n - rank));
    ends.map_or(f64::INFINITY, |(low, high)| (high - low) / (2.0 * reach))
}

/// The most samples that a warm-up may reach into.
const LONGEST_TRANSIENT: usize = 16;

/// Number of samples at the beginning that belong to a warm-up which was ended too soon: up to a third
/// of all, each slower than all later ones by more than 3 times the range of those. On an H200 the
/// first 3 of 16 passes of a read kernel took 15 % longer, and 13 agreed to 0.2 %: a median does not
/// notice, and a deviation must not.
fn transient(durations: &[f64]) -> usize {
    let most = (durations.len() / 3).min(LONGEST_TRANSIENT);
    let is_transient = |&start: &usize| {
        let (early, late) = durations.split_at(start);
        let least = late.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = late.iter().copied().fold(0.0, f64::max);
        early.iter().all(|duration| *duration > greatest + 3.0 * (greatest - least))
    };
    (1..=most).rev().find(is_transient).unwrap_or(0)
}

/// The samples of each visit from sample `start` on, without empty visits.
fn blocks<'a>(durations: &'a [f64], visits: &[u32], start: usize) -> Vec<&'a [f64]> {
    let sizes: Vec<usize> = visits.iter().map(|&v| v as usize).filter(|v| *v > 0).collect();
    let total = sizes.iter().fold(0_usize, |sum, size| sum.saturating_add(*size));
    let usual = || vec![USUAL_VISIT; durations.len().div_ceil(USUAL_VISIT)];
    let sizes = if total == durations.len() { sizes } else { usual() };
    let mut at = 0;
    let mut all = Vec::new();
    for size in sizes {
        let end = (at + size).min(durations.len());
        let visit = durations.get(at.max(start)..end).unwrap_or(&[]);
        // A visit with a single sample left would weigh as much as four.
        if visit.len() > 1 || (visit.len() == 1 && size == 1) {
            all.push(visit);
        }
        at = end;
    }
    all
}

/// Sum of squared distances from the mean.
fn squares(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|v| (v - mean).powi(2)).sum()
}

/// What lies between two runs of an unchanged machine: new processes, new buffers, new clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunNoise {
    /// Standard deviation of the logarithm of a run's median: 0.01 is 1 %.
    pub deviation: f64,
    /// Degrees of freedom of that deviation: how many runs it was learnt from, roughly. Few make
    /// heavy tails.
    pub freedom: f64,
}

impl RunNoise {
    /// The deviation within groups of logarithms (a case on one side each), all of one class; none
    /// without two runs of a case. The square root of the mean variance: a few cases that meet
    /// another state in each process count in full.
    pub fn pooled(groups: &[Vec<f64>], freedom: f64) -> Option<Self> {
        let (mut sum, mut all) = (0.0, 0.0);
        for group in groups.iter().filter(|g| g.len() > 1) {
            sum += squares(group);
            all += (group.len() - 1) as f64;
        }
        (all > 0.0).then(|| Self { deviation: (sum / all).sqrt(), freedom })
    }
}

/// Independent observations that a value of [`shortest_half`] is worth: its efficiency for normal noise.
const SHORTEST_HALF_WORTH: f64 = 0.37;

/// Minimum cases of a class of which one in each direction may have met another state.
const CASES_OF_A_STRAY: usize = 16;

impl RunNoise {
    /// This noise of a class, and what the differences of logarithms between one run a side of the class's
    /// cases show of it: their shortest half, so that neither a change of all cases nor one of less than
    /// half of them counts as noise; and at least half of what differences reach on both sides, since noise
    /// goes both ways, but for one case on each side that met another state, if there are 16. Both sources
    /// weigh by their degrees of freedom.
    #[must_use]
    pub fn with_differences(self, differences: &[f64]) -> Self {
        let Some(half) = shortest_half(differences) else { return self };
        let seen = SHORTEST_HALF_WORTH * differences.len() as f64;
        // Half of a normal sample lies within 0.6745 deviations; a difference has two runs' variance.
        let sorted = ascending(differences.to_vec());
        let strays = usize::from(sorted.len() >= CASES_OF_A_STRAY);
        let reach = |end: Option<&f64>, sign: f64| end.map_or(0.0, |d| (sign * d).max(0.0));
        let both = reach(sorted.get(strays), -1.0).min(reach(sorted.iter().nth_back(strays), 1.0));
        let tail = both / 2.0;
        let own = (half / 2.0 * MAD_TO_SD).max(tail).powi(2) / 2.0;
        let freedom = self.freedom + seen;
        let variance = (self.freedom * self.deviation.powi(2) + seen * own) / freedom;
        Self { deviation: variance.sqrt(), freedom }
    }
}

/// The length of the shortest interval that holds more than half of the values; none of none.
fn shortest_half(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values)?;
    let reach = sorted.len() / 2;
    sorted.iter().zip(sorted.iter().skip(reach)).map(|(low, high)| high - low).reduce(f64::min)
}

/// The later runs against the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunComparison {
    /// Duration after over duration before: 1.1 takes 10 % more time.
    pub effect: f64,
    /// Lower end of the 95 % interval of the effect; 0 if nothing is known.
    pub low: f64,
    /// Upper end of the 95 % interval of the effect; infinite if nothing is known.
    pub high: f64,
    /// Probability of an effect as large as this, or larger, on a machine that has changed by no
    /// more than the tolerance.
    pub p_value: f64,
    /// Standard error of the logarithm of the effect.
    error: f64,
    /// Its degrees of freedom.
    freedom: f64,
    tolerance: f64,
}

impl RunComparison {
    /// Compares runs before with runs after; changes up to `tolerance` (0.02 is 2 %) are none. None
    /// without a run on either side.
    ///
    /// With two runs on a side, the variance between runs is that of the runs, with `noise` as
    /// `noise.freedom` further runs' worth of knowledge (G. K. Smyth, "Linear models and empirical
    /// Bayes methods", Stat. Appl. Genet. Mol. Biol. 3, 2004). With one a side it is `noise` alone,
    /// plus the error that each run estimates for itself.
    pub fn of(
        before: &[RunEstimate],
        after: &[RunEstimate],
        noise: RunNoise,
        tolerance: f64,
    ) -> Option<Self> {
        let centre = |side: &[RunEstimate]| {
            let sum: f64 = side.iter().map(|r| r.log_median).sum();
            (!side.is_empty()).then(|| sum / side.len() as f64)
        };
        let difference = centre(after)? - centre(before)?;
        let logs = |side: &[RunEstimate]| side.iter().map(|r| r.log_median).collect::<Vec<_>>();
        let own_freedom = (before.len() + after.len()).saturating_sub(2) as f64;
        let own = squares(&logs(before)) + squares(&logs(after));
        let prior = noise.deviation.powi(2);
        let freedom = noise.freedom + own_freedom;
        let between = (noise.freedom * prior + own) / freedom;
        let counts = 1.0 / before.len() as f64 + 1.0 / after.len() as f64;
        let within = |side: &[RunEstimate]| {
            side.iter().map(|r| r.error.powi(2)).sum::<f64>() / (side.len() as f64).powi(2)
        };
        let within = within(before) + within(after);
        // Medians of runs that are compared with each other scatter by the noise within them, too.
        let parts: Vec<(f64, f64)> = if own_freedom > 0.0 {
            vec![(between * counts, freedom)]
        } else {
            let runs = before.iter().chain(after).map(|r| (r.error.powi(2), r.freedom));
            std::iter::once((between * counts, freedom)).chain(runs).collect()
        };
        let sum: f64 = parts.iter().map(|(variance, _)| variance).sum();
        let (variance, freedom) = if own_freedom > 0.0 {
            (sum.max(if within.is_finite() { within } else { 0.0 }), freedom)
        } else {
            // Welch and Satterthwaite.
            let spread: f64 = parts.iter().map(|(v, f)| v * v / f).sum();
            (sum, if spread > 0.0 { sum * sum / spread } else { freedom })
        };
        Some(Self::from_difference(difference, variance.sqrt(), freedom, tolerance))
    }

    fn from_difference(difference: f64, error: f64, freedom: f64, tolerance: f64) -> Self {
        let effect = difference.exp();
        if !error.is_finite() {
            let (low, high) = (0.0, f64::INFINITY);
            return Self { effect, low, high, p_value: 1.0, error, freedom: 1.0, tolerance };
        }
        let reach = t_quantile(0.025, freedom) * error;
        let margin = tolerance.ln_1p();
        let p_value = match difference.abs() - margin {
            beyond if error > 0.0 => {
                let other = difference.abs() + margin;
                (t_tail(beyond / error, freedom) + t_tail(other / error, freedom)).min(1.0)
            }
            beyond => f64::from(u8::from(beyond <= 0.0)),
        };
        let (low, high) = ((difference - reach).exp(), (difference + reach).exp());
        Self { effect, low, high, p_value, error, freedom, tolerance }
    }

    /// Whether the interval of the effect lies within the tolerance.
    pub fn is_same(&self) -> bool {
        let limit = 1.0 + self.tolerance;
        self.low >= 1.0 / limit && self.high <= limit
    }

    /// The smallest slowdown, as a share of the speed from 0 to 1, that a comparison of this
    /// precision finds 19 times in 20 where p-values up to `threshold` count: 0.12 is 12 %.
    pub fn smallest_visible(&self, threshold: f64) -> f64 {
        if !self.error.is_finite() {
            return 1.0;
        }
        let reach = t_quantile(threshold, self.freedom) + t_quantile(0.05, self.freedom);
        -(-self.tolerance.ln_1p() - reach * self.error).exp_m1()
    }
}

/// The largest deviation between runs, a standard deviation of logarithms, at which a slowdown by
/// `slowdown` (0.1 is 10 %) is found 19 times in 20 with `runs` a side, where p-values up to `threshold`
/// count and changes up to `tolerance` are none. The class of the case adds `class_freedom` to the degrees of
/// freedom of the runs. 0 for a slowdown within the tolerance, or fewer than two runs.
pub fn largest_deviation(
    runs: u32,
    class_freedom: f64,
    slowdown: f64,
    threshold: f64,
    tolerance: f64,
) -> f64 {
    let beyond = -(-slowdown).ln_1p() - tolerance.ln_1p();
    if runs < 2 || beyond.is_nan() || beyond <= 0.0 {
        return 0.0;
    }
    let freedom = class_freedom + 2.0 * f64::from(runs - 1);
    let reach = t_quantile(threshold, freedom) + t_quantile(0.05, freedom);
    beyond / reach / (2.0 / f64::from(runs)).sqrt()
}

/// The 95 % interval of the centre of all runs of a machine, from one value a run (all positive):
/// Student's t on logarithms. None with fewer than 3 runs: with 2 it would be wider than any use.
pub fn between_runs(values: &[f64]) -> Option<(f64, f64)> {
    let ascending = sorted(values)?;
    if ascending.len() < 3 || *ascending.first()? <= 0.0 {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let reach = t_quantile(0.025, n - 1.0) * (squares(&logs) / (n - 1.0) / n).sqrt();
    Some(((mean - reach).exp(), (mean + reach).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: RunNoise = RunNoise { deviation: 0.001, freedom: 12.0 };

    fn ripple(centre: f64, n: usize) -> Vec<f64> {
        (0..n).map(|i| centre * (1.0 + 0.002 * ((i * 7 % 11) as f64 - 5.0))).collect()
    }

    fn lone(durations: &[f64]) -> Vec<RunEstimate> {
        RunEstimate::of(durations, &[]).into_iter().collect()
    }

    fn compared(before: &[f64], after: &[f64]) -> Option<RunComparison> {
        RunComparison::of(&lone(before), &lone(after), QUIET, 0.02)
    }

    #[test]
    fn a_visit_is_one_observation() {
        // Visits of 4 with medians 100, 102, 104: the error is 1.147 times that of the mean of three
        // values, 2 % / sqrt(3).
        let durations: Vec<f64> =
            [100.0, 102.0, 104.0].iter().flat_map(|c| [c - 0.1, *c, *c, c + 0.1]).collect();
        for visits in [&[][..], &[4, 4, 4], &[99]] {
            let run = RunEstimate::of(&durations, visits).unwrap();
            let logs = [100.0_f64.ln(), 102.0_f64.ln(), 104.0_f64.ln()];
            let sd = (squares(&logs) / 2.0).sqrt();
            assert!((run.error - 1.147 * sd / 3.0_f64.sqrt()).abs() < 1e-12, "{run:?}");
            assert_eq!((run.freedom, run.visits, run.samples), (2.0, 3, 12));
        }
        // One visit: the deviation of its samples; their number makes it no smaller.
        let one = RunEstimate::of(&durations[..4], &[4]).unwrap();
        let logs: Vec<f64> = durations[..4].iter().map(|d| d.ln()).collect();
        assert!((one.error - (squares(&logs) / 3.0).sqrt()).abs() < 1e-12);
    }

    /// 100, 101, 102, 103, 104, 130: ln 104 - ln 101 = 2.927 %; that encloses the median with 1 - 2 * 7/64, so
    /// +-1.230 errors. A late visit of six does not count, two do.
    #[test]
    fn a_late_visit_of_six_is_no_error() {
        let visits = [100.0, 130.0, 103.0, 101.0, 104.0, 102.0];
        let samples: Vec<f64> = visits.iter().flat_map(|v| [*v; 3]).collect();
        let run = RunEstimate::of(&samples, &[3; 6]).unwrap();
        assert!((run.error - 0.02927 / 2.0 / 1.2299).abs() < 1e-5, "{run:?}");
        assert_eq!((run.freedom, run.visits), (4.0, 6));
        assert!((share_below(2, 6) - 7.0 / 64.0).abs() < 1e-12);
        let later: Vec<f64> =
            samples.iter().map(|v| if *v == 104.0 { 131.0 } else { *v }).collect();
        assert!(RunEstimate::of(&later, &[3; 6]).unwrap().error > 0.1);
    }

    #[test]
    fn a_warm_up_that_ended_too_soon_is_no_deviation() {
        let mut durations = vec![115.0, 115.5, 113.0];
        durations.extend((0..13).map(|i| 100.0 + 0.05 * f64::from(i % 3)));
        assert_eq!(transient(&durations), 3);
        let run = RunEstimate::of(&durations, &[4, 4, 4, 4]).unwrap();
        // 3 visits of 4 are left, and one sample of the first, which is none.
        assert!(run.error < 5e-4 && run.visits == 3 && run.samples == 16, "{run:?}");
        // 100 to 101: what is slower by more than three times their range, 104, is no sample of theirs.
        let first = |slow: f64| transient(&[&[slow][..], &[100.0, 101.0].repeat(6)].concat());
        assert_eq!((first(104.1), first(103.9)), (1, 0));
        // Slow samples in the middle, and a first half that is slow, are the case's own.
        durations.rotate_right(6);
        assert_eq!(transient(&durations), 0);
        assert_eq!(transient(&[9.0, 9.0, 9.0, 1.0, 1.0, 1.0]), 0);
        assert_eq!(transient(&[]), 0);
    }

    #[test]
    fn ten_per_cent_is_seen_through_one_per_cent_of_noise() {
        let found = compared(&ripple(100.0, 30), &ripple(110.0, 30)).unwrap();
        assert!((found.effect - 1.1).abs() < 0.005 && found.low < 1.1 && found.high > 1.1);
        assert!(found.p_value < 1e-4 && !found.is_same(), "{found:?}");
        let back = compared(&ripple(110.0, 30), &ripple(100.0, 30)).unwrap();
        assert!((back.p_value - found.p_value).abs() < 1e-9 && back.high < 1.0 && !back.is_same());
    }

    #[test]
    fn equal_series_are_the_same() {
        let found = compared(&ripple(100.0, 30), &ripple(100.3, 30)).unwrap();
        assert!(found.is_same() && found.p_value > 0.5, "{found:?}");
    }

    #[test]
    fn the_floor_decides_where_runs_are_precise() {
        // +5 % with samples without spread: sqrt(2) * 3 % = 4.2 % of noise between runs hide it.
        let (before, after) = (lone(&[100.0; 8]), lone(&[105.0; 8]));
        let noisy = RunNoise { deviation: 0.03, freedom: 6.0 };
        let hidden = RunComparison::of(&before, &after, noisy, 0.02).unwrap();
        // (ln 1.05 - ln 1.02) / 0.0424 = 0.68: P(t6 > 0.68) = 0.26 and a little.
        assert!(hidden.p_value > 0.2 && hidden.p_value < 0.4, "{hidden:?}");
        let seen = RunComparison::of(&before, &after, QUIET, 0.02).unwrap();
        assert!(seen.p_value < 1e-6, "{seen:?}");
        assert!(hidden.smallest_visible(0.001) > 0.2 && seen.smallest_visible(0.001) < 0.03);
    }

    #[test]
    fn the_deviation_through_which_runs_see_is_where_a_comparison_sees() {
        // 3 runs a side at p <= 0.00125: t8 4.332 + 1.860; 0.0856 / 6.192 / sqrt(2/3) = 1.69 %.
        let deviation = largest_deviation(3, 4.0, 0.1, 0.05 / 40.0, 0.02);
        assert!((deviation - 0.0169).abs() < 1e-4, "{deviation}");
        // Runs that lie so that each side's variance is just that: +-d and 0 have d squared.
        let side = [-deviation, 0.0, deviation].map(|log_median| RunEstimate {
            log_median,
            error: 0.0,
            freedom: 5.0,
            samples: 24,
            visits: 6,
        });
        let class = RunNoise { deviation, freedom: 4.0 };
        let found = RunComparison::of(&side, &side, class, 0.02).unwrap();
        assert!((found.smallest_visible(0.05 / 40.0) - 0.1).abs() < 1e-9, "{found:?}");
        // More runs see through more; a slowdown within the tolerance is never seen.
        assert!(largest_deviation(5, 4.0, 0.1, 0.05 / 40.0, 0.02) > 1.4 * deviation);
        for none in [(1, 0.1, 0.02), (9, 0.1, 0.2), (9, f64::NAN, 0.02)] {
            assert_eq!(largest_deviation(none.0, 4.0, none.1, 0.001, none.2), 0.0, "{none:?}");
        }
    }

    #[test]
    fn runs_show_their_own_noise() {
        let runs = |logs: [f64; 3]| {
            logs.map(|log_median| RunEstimate {
                log_median,
                error: 1e-4,
                freedom: 5.0,
                samples: 24,
                visits: 6,
            })
        };
        // Deviation 0.01 in each of 3 against 3 runs, and as much from the class.
        let (before, after) = (runs([0.0, 0.01, -0.01]), runs([0.05, 0.06, 0.04]));
        let class = RunNoise { deviation: 0.01, freedom: 4.0 };
        let found = RunComparison::of(&before, &after, class, 0.0).unwrap();
        // 8 degrees of freedom, error 0.01 sqrt(2/3) = 0.00816: t = 6.12, interval +-2.306 errors.
        assert!((found.high.ln() - 0.05 - 2.306 * 0.008_165).abs() < 1e-5, "{found:?}");
        assert!(found.p_value < 1e-3 && found.p_value > 1e-4, "{found:?}");
    }

    /// Two runs a side without any distance, one side with an error of 2 % each: 2 % / sqrt(2).
    #[test]
    fn errors_within_runs_bound_that_between_them() {
        let runs = |error: f64| {
            [0.0; 2].map(|log_median| RunEstimate {
                log_median,
                error,
                freedom: 5.0,
                samples: 24,
                visits: 6,
            })
        };
        for (before, after) in [(0.02, 0.0), (0.0, 0.02)] {
            let found = RunComparison::of(&runs(before), &runs(after), QUIET, 0.02).unwrap();
            assert!((found.error - 0.02 / 2.0_f64.sqrt()).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn one_sample_proves_nothing() {
        let found = compared(&[100.0], &[150.0]).unwrap();
        assert!((found.effect - 1.5).abs() < 1e-12);
        assert_eq!((found.low, found.high, found.p_value), (0.0, f64::INFINITY, 1.0));
        assert_eq!(found.smallest_visible(0.01), 1.0);
    }

    #[test]
    fn a_series_in_two_states_is_not_called_slower() {
        // Before: 30 in the fast state. After: 12 fast, 18 slow by 1.7: the median says 1.7.
        let mut after = ripple(100.0, 12);
        after.extend(ripple(170.0, 18));
        let found = compared(&ripple(100.0, 30), &after).unwrap();
        assert!(found.effect > 1.6 && found.p_value > 0.05, "{found:?}");
    }

    #[test]
    fn what_is_no_duration_is_not_compared() {
        for bad in [&[][..], &[0.0; 6], &[f64::NAN; 6], &[1.0, f64::INFINITY], &[-1.0, 2.0]] {
            assert_eq!(RunEstimate::of(bad, &[]), None, "{bad:?}");
        }
        assert_eq!(compared(&[], &[1.0]), None);
        // A million samples, visits that overflow, no spread at all.
        assert!(RunEstimate::of(&vec![5.0; 1_000_000], &[u32::MAX, u32::MAX]).is_some());
        let none = RunNoise { deviation: 0.0, freedom: 12.0 };
        let (a, b) = (lone(&[5.0; 8]), lone(&[5.5; 8]));
        assert_eq!(RunComparison::of(&a, &b, none, 0.02).unwrap().p_value, 0.0);
        assert_eq!(RunComparison::of(&a, &a, none, 0.02).unwrap().p_value, 1.0);
    }

    #[test]
    fn three_runs_by_hand() {
        // Logarithms 0, 0.01, -0.01: error 0.01 / sqrt(3), t of 2 degrees 4.3027.
        let (low, high) = between_runs(&[1.0, 0.01_f64.exp(), (-0.01_f64).exp()]).unwrap();
        assert!((high.ln() - 4.3027 * 0.01 / 3.0_f64.sqrt()).abs() < 1e-5 && low.ln() < 0.0);
        assert_eq!(between_runs(&[1.0, 2.0]), None);
        assert_eq!(between_runs(&[1.0, 0.0, 2.0]), None);
    }

    /// 20 differences, 12 of them 0 to 0.11 % and 8 of -5 %: the shortest half of 11 has the length 0.1 %, so
    /// the deviation 0.001 / 2 * 1.4826 / sqrt(2) = 0.0524 %. It weighs 7.4, the class's 1.3 % weigh 6.
    #[test]
    fn differences_of_a_class_show_its_noise_whatever_changed() {
        let mut differences: Vec<f64> = (0..12).map(|i| f64::from(i) * 1e-4).collect();
        differences.extend([-0.05; 8]);
        let class = RunNoise { deviation: 0.013, freedom: 6.0 };
        let found = class.with_differences(&differences);
        let expected = ((6.0 * 0.013_f64.powi(2) + 7.4 * 0.000_524_2_f64.powi(2)) / 13.4).sqrt();
        assert!((found.deviation - expected).abs() < 1e-6 && found.freedom == 13.4, "{found:?}");
        // A stray on the other side of a change is no noise; with fewer than 16 differences it is.
        let stray = |cases: usize| {
            let mut differences = differences[20 - cases..].to_vec();
            differences[0] = 0.03;
            class.with_differences(&differences).deviation
        };
        assert!(stray(20) < 0.011 && stray(12) > 0.012, "{} {}", stray(20), stray(12));
        // A change of all is none either, and without differences nothing is learnt.
        let shifted: Vec<f64> = differences.iter().map(|d| d - 0.1).collect();
        assert!((class.with_differences(&shifted).deviation - found.deviation).abs() < 1e-9);
        assert_eq!(class.with_differences(&[]), class);
    }

    #[test]
    fn noise_is_pooled_within_cases() {
        // Variances 0.0002 (1 degree) and 0.0001 (2 degrees): (0.0002 + 0.0002) / 3.
        let groups = [vec![0.0, 0.02], vec![5.0, 5.01, 4.99], vec![1.0]];
        let noise = RunNoise::pooled(&groups, 4.0).unwrap();
        assert!((noise.deviation - (0.0004_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(RunNoise::pooled(&[vec![1.0]], 4.0), None);
    }
}
