//! Series that are not one steady number.

use serde::{Deserialize, Serialize};

use crate::interval::{MIN_VISITS, visit_medians};
use crate::order::{ascending, median, quantile, sorted};

/// One of two states that a series is in by turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Median of its samples.
    pub median: f64,
    /// Its share of all samples, 0 to 1.
    pub share: f64,
}

/// A series with two modes. Their medians are figures; the median of all samples is not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// The mode of the smaller samples.
    pub low: Mode,
    /// The mode of the larger samples.
    pub high: Mode,
    /// How often neighbours in time lie in different modes: few switches mean that a state lasts.
    pub switches: usize,
}

/// Fewest samples in which two modes are looked for.
const FEWEST: usize = 12;
/// Smallest share of a mode, and fewest samples of one; fewer are outliers.
const SHARE: f64 = 0.15;
const LEAST: usize = 4;
/// Smallest distance of the modes, relative to the lower one.
const APART: f64 = 0.05;
/// Smallest distance of the modes in deviations within a mode (Ashman's D; K. M. Ashman et al.,
/// "Detecting bimodality in astronomical datasets", AJ 108, 1994, who ask for more than 2 between
/// given modes). Halves of a normal sample are 2.7 apart and halves of a uniform one 3.5, and
/// small samples scatter about that.
const ASHMAN_D: f64 = 9.0;
/// Smallest empty stretch between the modes, relative to their distance, with the tenth of each
/// mode that lies nearest to the other left out (a state that flips within a sample gives a
/// sample in between). Halves of a normal sample leave 0.16, of a uniform one 0.2.
const VALLEY: f64 = 0.7;

/// The two modes of a series, if it plainly has two: each with 15 % of the samples or more, 5 %
/// apart or more, far apart by their own spread, and with next to nothing in between. None for
/// one-humped, skewed, flat or short series.
pub fn modes(samples: &[f64]) -> Option<Modes> {
    let sorted = sorted(samples)?;
    let n = sorted.len();
    if n < FEWEST {
        return None;
    }
    let least = ((SHARE * n as f64).ceil() as usize).max(LEAST);
    let split = best_split(&sorted, least)?;
    let (low, high) = sorted.split_at(split);
    let (a, b) = (median(low), median(high));
    // Between the 10th and the 90th percentile lie 2.563 deviations of a normal distribution.
    let width = |part: &[f64]| (quantile(part, 0.9) - quantile(part, 0.1)) / 2.563;
    let spread = width(low).hypot(width(high)) / std::f64::consts::SQRT_2;
    let valley = quantile(high, 0.1) - quantile(low, 0.9);
    let apart = (APART * a.abs()).max(ASHMAN_D * spread);
    if b <= a || b - a < apart || valley < VALLEY * (b - a) {
        return None;
    }
    let border = high[0];
    let switches = samples.windows(2).filter(|w| (w[0] < border) != (w[1] < border)).count();
    let mode = |median, count: usize| Mode { median, share: count as f64 / n as f64 };
    Some(Modes { low: mode(a, low.len()), high: mode(b, high.len()), switches })
}

/// Where to cut sorted samples in two so that they lie closest to the median of their part; each
/// part has at least `least`. Distances, not squares, so that one outlier does not attract the cut.
fn best_split(sorted: &[f64], least: usize) -> Option<usize> {
    let mut sums = vec![0.0];
    for x in sorted {
        sums.push(sums[sums.len() - 1] + x);
    }
    // Sum of distances from the median: upper half minus lower half; a middle one cancels.
    let cost = |from: usize, to: usize| {
        let half = (to - from) / 2;
        (sums[to] - sums[to - half]) - (sums[from + half] - sums[from])
    };
    let n = sorted.len();
    (least..=n.checked_sub(least)?)
        .map(|k| (k, cost(0, k) + cost(k, n)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(k, _)| k)
}

/// A series that is not one steady number. Its median hides what it does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unsteady {
    /// It is in two states by turns.
    TwoStates(Modes),
    /// Its first and second half differ by this much of the first: 0.03 is a rise of 3 %.
    Halves(f64),
}

/// Minimum difference of halves relative to the first.
const HALVES_APART: f64 = 0.01;
/// Minimum difference of halves relative to the range of the visits within either.
const HALVES_BEYOND: f64 = 1.5;

/// How a series is unsteady: in [two states](modes), or all visits of one half lie on one side of all of
/// the other half, by 1 % and by more than its visits range over within a half. `visits` is read as
/// [`median_interval`](crate::median_interval) does; halves need 6 of them.
pub fn unsteady(samples: &[f64], visits: &[u32]) -> Option<Unsteady> {
    if let Some(modes) = modes(samples) {
        return Some(Unsteady::TwoStates(modes));
    }
    sorted(samples)?;
    let medians = visit_medians(samples, visits);
    if medians.len() < MIN_VISITS {
        return None;
    }
    let (first, second) = medians.split_at(medians.len() / 2);
    let (first, second) = (ascending(first.iter().copied()), ascending(second.iter().copied()));
    let range = |half: &[f64]| Some(half.last()? - half.first()?);
    let change = median(&second) - median(&first);
    let apart = if change > 0.0 {
        second.first()? > first.last()?
    } else {
        second.last()? < first.first()?
    };
    let within = range(&first)?.max(range(&second)?);
    let relative = change / median(&first).abs();
    (apart && change.abs() > HALVES_BEYOND * within && relative.abs() >= HALVES_APART)
        .then_some(Unsteady::Halves(relative))
        .filter(|_| relative.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_states_of_a_machine_are_told_apart() {
        // 51..57 ns and 204..208 ns in blocks of ten, twice each: half and half, 3 switches.
        let samples: Vec<f64> = (0..40)
            .map(|i| if (i / 10) % 2 == 0 { 51.0 } else { 204.0 } + f64::from(i * 3 % 5))
            .collect();
        let found = modes(&samples).unwrap();
        assert_eq!((found.low.median, found.low.share), (53.0, 0.5));
        assert_eq!((found.high.median, found.high.share), (206.0, 0.5));
        assert_eq!(found.switches, 3);
    }

    #[test]
    fn one_outlier_hides_no_modes_and_makes_none() {
        let steady: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i * 7 % 10) / 10.0).collect();
        let mut spiked = steady.clone();
        spiked[17] = 10_000.0;
        assert_eq!(modes(&spiked), None);
        let mut both: Vec<f64> =
            steady.iter().enumerate().map(|(i, x)| if i % 4 == 0 { 1.7 * x } else { *x }).collect();
        both[17] = 10_000.0;
        // 10 of 40 are slow, and the outlier joins them: 11 / 40.
        let found = modes(&both).unwrap();
        assert_eq!(found.high.share, 11.0 / 40.0);
        assert!((found.high.median / found.low.median - 1.7).abs() < 0.02);
    }

    /// Halves whose middle 80 % are 2.563 wide have one deviation within: their middles are two modes from 9 of them on.
    #[test]
    fn modes_are_nine_of_their_deviations_apart() {
        let is_split = |apart: f64| {
            let half = |from: f64| (0..=20).map(move |n| from + 2.563 / 16.0 * f64::from(n));
            let samples: Vec<f64> = half(100.0).chain(half(100.0 + apart)).collect();
            modes(&samples).is_some()
        };
        // The valley of 9.1 is 1 - 2.563 / 9.1 = 0.72 of the distance.
        assert!(!is_split(8.9) && is_split(9.1));
    }

    #[test]
    fn halves_that_differ_are_unsteady_and_noise_is_not() {
        // Six visits of 2: 100 to 101 in the first half, 105 to 106 in the second, 5 / 100.5 apart.
        let steps = [100.0, 100.5, 101.0, 105.0, 105.5, 106.0];
        let series: Vec<f64> = steps.iter().flat_map(|x| [*x, *x]).collect();
        let Some(Unsteady::Halves(change)) = unsteady(&series, &[2; 6]) else {
            panic!("{series:?}")
        };
        assert!((change - 5.0 / 100.5).abs() < 1e-12, "{change}");
        // The same visits in another order, halves 0.9 % apart, and five visits.
        let mixed: Vec<f64> = [0, 3, 1, 4, 2, 5].iter().flat_map(|&i| [steps[i]; 2]).collect();
        assert_eq!(unsteady(&mixed, &[2; 6]), None);
        let near = [100.0, 100.0, 100.0, 100.9, 100.9, 100.9];
        assert_eq!(unsteady(&near, &[1; 6]), None);
        // Halves that overlap, and a wide half next to a flat one: 6 apart, and 15 within.
        for none in
            [[100.0, 100.0, 90.0, 90.5, 80.0, 80.0], [100.0, 100.0, 100.0, 105.0, 106.0, 120.0]]
        {
            assert_eq!(unsteady(&none, &[1; 6]), None);
            let back: Vec<f64> = none.into_iter().rev().collect();
            assert_eq!(unsteady(&back, &[1; 6]), None);
        }
        assert_eq!(unsteady(&series[..10], &[2; 5]), None);
        assert_eq!(unsteady(&[f64::NAN; 6], &[1; 6]), None);
    }
}
