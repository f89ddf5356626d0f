//! The interval of a median whose samples were taken in visits.

use serde::{Deserialize, Serialize};

use crate::binomial::median_rank;
use crate::order::{median, sorted};
use crate::student::t_quantile_95;

/// A median with its 95 % interval, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MedianInterval {
    /// Median; the interval contains it.
    pub median: f64,
    /// Lower end; not negative if no sample is.
    pub low: f64,
    /// Upper end; finite.
    pub high: f64,
}

impl MedianInterval {
    /// The longer arm relative to the median: 0.01 is 1 %. Finite and not negative; 1 for a median
    /// of zero with any spread.
    pub fn half_width_rel(&self) -> f64 {
        let arm = self.half_width();
        if arm == 0.0 {
            0.0
        } else if self.median == 0.0 {
            1.0
        } else {
            (arm / self.median.abs()).min(f64::MAX)
        }
    }

    /// The longer arm, in the unit of the samples. Finite and not negative.
    pub fn half_width(&self) -> f64 {
        (self.high - self.median).max(self.median - self.low).min(f64::MAX)
    }

    /// The interval of `amount / x`, such as a rate from times of the same work: its ends change
    /// places. None unless all three values stay positive and finite.
    pub fn inverse(&self, amount: f64) -> Option<Self> {
        let new =
            Self { median: amount / self.median, low: amount / self.high, high: amount / self.low };
        let usable = |x: f64| x.is_finite() && x > 0.0;
        (usable(new.median) && usable(new.low) && usable(new.high)).then_some(new)
    }

    /// The interval of `factor * x`. A negative factor exchanges the ends.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let (a, b) = (self.low * factor, self.high * factor);
        Self { median: self.median * factor, low: a.min(b), high: a.max(b) }
    }
}

/// Fewest samples that carry an interval: the extremes of five enclose the median in 93.75 % only.
pub const MIN_SAMPLES: usize = 6;
/// Fewest batches of several visits whose spread is looked at.
const MIN_BATCHES: usize = 6;
/// Samples of a visit in journals that do not record them.
const OLD_VISIT: usize = 4;

/// The median of `samples` and its 95 % interval, which holds for samples that resemble their
/// neighbours, as those of one visit do. `visits` has the number of samples of each visit, in order;
/// samples that it does not cover count as visits of 4, and what it counts beyond the samples is
/// ignored. None below 6 samples, or if a sample is not finite.
///
/// The interval is the widest of
/// - the two order statistics that enclose the median of independent samples whatever their
///   distribution (H. A. David and H. N. Nagaraja, *Order Statistics*, 2003, section 7.1);
/// - t intervals over the medians of visits, and of batches of 2, 4, 8, ... visits while 6 batches
///   remain (batch means: A. M. Law, *Simulation Modeling and Analysis*, section 9.5.3). Larger
///   batches are less dependent on each other. For `b` batches t is multiplied by `1 + 1/b`, since
///   sampling may have ended at a stretch that was steady by chance.
///
/// A t interval of few visits can be arbitrarily wide, so it reaches at most the range of the samples
/// beyond their extremes, and never below half of the smallest if none is negative.
///
/// Takes `O(n log n)`.
pub fn median_interval(samples: &[f64], visits: &[u32]) -> Option<MedianInterval> {
    let sorted = sorted(samples)?;
    let n = sorted.len();
    let rank = median_rank(n).filter(|_| n >= MIN_SAMPLES)?;
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let median = median(&sorted);
    let (mut low, mut high) = (*sorted.get(rank - 1)?, *sorted.get(n - rank)?);
    let ends = visit_ends(n, visits);
    let mut scratch = samples.to_vec();
    let mut size = 1;
    while ends.len() / size >= if size == 1 { 2 } else { MIN_BATCHES } {
        let (from, to) = t_interval(&batch_medians(&mut scratch, &ends, size));
        // Of a number and NaN, which sums of huge samples can become, these take the number.
        (low, high) = (low.min(from), high.max(to));
        scratch.copy_from_slice(samples);
        size *= 2;
    }
    let floor = if min >= 0.0 { (2.0 * min - max).max(min / 2.0) } else { 2.0 * min - max };
    let (low, high) = (low.max(floor).min(median), high.min(2.0 * max - min).max(median));
    Some(MedianInterval { median, low: low.max(f64::MIN), high: high.min(f64::MAX) })
}

/// The median of each visit, in order; `visits` is read as [`median_interval`] does.
pub fn visit_medians(samples: &[f64], visits: &[u32]) -> Vec<f64> {
    batch_medians(&mut samples.to_vec(), &visit_ends(samples.len(), visits), 1)
}

/// Where each visit ends in a series of `n` samples; the last one ends at `n`.
fn visit_ends(n: usize, visits: &[u32]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = 0_usize;
    for &count in visits {
        let next = end.saturating_add(count as usize).min(n);
        if next > end {
            ends.push(next);
        }
        end = next;
    }
    while end < n {
        end = end.saturating_add(OLD_VISIT).min(n);
        ends.push(end);
    }
    ends
}

/// The medians of batches of `size` visits; visits that fill no batch belong to the last one. The
/// samples change their order.
fn batch_medians(samples: &mut [f64], ends: &[usize], size: usize) -> Vec<f64> {
    let batches = ends.len() / size.max(1);
    let mut from = 0;
    let mut medians = Vec::with_capacity(batches);
    for batch in 1..=batches {
        let last = if batch == batches { ends.len() } else { batch * size };
        let to = last.checked_sub(1).and_then(|i| ends.get(i)).copied().unwrap_or(from);
        medians.extend(samples.get_mut(from..to).and_then(select_median));
        from = to;
    }
    medians
}

/// The median in linear time; none of none.
fn select_median(samples: &mut [f64]) -> Option<f64> {
    let n = samples.len();
    if n == 0 {
        return None;
    }
    let (below, &mut upper, _) = samples.select_nth_unstable_by(n / 2, f64::total_cmp);
    if n % 2 == 1 {
        return Some(upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(lower + (upper - lower) * 0.5)
}

/// The 95 % t interval of the centre of values, wider for few of them as [`median_interval`] says.
/// A point for fewer than two.
fn t_interval(values: &[f64]) -> (f64, f64) {
    let b = values.len() as f64;
    let mean = values.iter().map(|x| x / b).sum::<f64>();
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    let half = match values.len() {
        0 | 1 => 0.0,
        n => t_quantile_95(n - 1) * (1.0 + 1.0 / b) * (squares / (b - 1.0) / b).sqrt(),
    };
    (mean - half, mean + half)
}

/// A series that changes more slowly than it was observed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Wandering {
    /// Correlation of the medians of neighbouring visits, -1 to 1.
    pub correlation: f64,
    /// Range of the medians of visits relative to the median of all: 0.03 is 3 %.
    pub range: f64,
}

/// Fewest visits of which neighbours are compared: the ranks of 7 have a correlation of 0.57 at most,
/// and rising ones of 8 have 0.625.
const MIN_WANDERING: usize = 8;

/// Whether visits resemble those before them so much that the interval of the median may be too
/// narrow: the rank correlation of neighbours is more than chance gives two to four of a thousand
/// steady series, and their medians range over more than `tolerance` (0.01 is 1 %) of the median. None for
/// fewer than 8 visits. Longer series are thinned to 256 batches of visits.
pub fn wandering(samples: &[f64], visits: &[u32], tolerance: f64) -> Option<Wandering> {
    let sorted = sorted(samples)?;
    let ends = visit_ends(samples.len(), visits);
    let size = ends.len().div_ceil(MOST_VISITS).max(1);
    let medians = batch_medians(&mut samples.to_vec(), &ends, size);
    let n = medians.len();
    if n < MIN_WANDERING {
        return None;
    }
    let ranks = ranks(&medians);
    let mean = (n as f64 - 1.0) / 2.0;
    let variance: f64 = ranks.iter().map(|r| (r - mean).powi(2)).sum();
    let covariance: f64 =
        ranks.iter().zip(ranks.iter().skip(1)).map(|(a, b)| (a - mean) * (b - mean)).sum();
    let correlation = covariance / variance;
    // Under independence it has about the mean -1/n and the variance 1/n.
    let chance = 3.1 / (n as f64).sqrt() - 1.0 / n as f64;
    let (low, high) = medians
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
    let range = (high - low) / median(&sorted).abs();
    (correlation > chance.min(MOST_CORRELATION) && range > tolerance && range.is_finite())
        .then_some(Wandering { correlation, range })
}

/// Most visits of which neighbours are compared.
const MOST_VISITS: usize = 256;
/// A correlation that is suspect however few the visits.
const MOST_CORRELATION: f64 = 0.6;

/// The rank of each value, from 0; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    for same in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = at as f64 + (same.len() as f64 - 1.0) / 2.0;
        same.iter().for_each(|&i| ranks[i] = rank);
        at += same.len();
    }
    ranks
}
