//! The interval of a median whose samples were taken in visits.

use serde::{Deserialize, Serialize};

use crate::binomial::median_rank;
use crate::order::{ascending, median, median_of, sorted};

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

/// Minimum visits for an interval: the extremes of five enclose the median in 93.75 % only.
pub const MIN_VISITS: usize = 6;
/// Maximum step of a clock relative to the median; a larger one lies between two states.
const MAX_STEP: f64 = 0.05;

/// The median of the visits' medians and its 95 % interval: the two order statistics that enclose it
/// whatever the distribution (H. A. David and H. N. Nagaraja, *Order Statistics*, 2003, section 7.1); of
/// six visits the smallest and the largest, 96.9 %. It holds for samples that resemble others of their
/// visit, if visits are independent.
///
/// `visits` has the number of samples of each visit, in order; a sample that it does not cover is a visit,
/// and what it counts beyond the samples is ignored. Where most values occur more than once, the clock has
/// steps, and the interval reaches half a step further. None below 6 visits, or if a sample is not finite.
pub fn median_interval(samples: &[f64], visits: &[u32]) -> Option<MedianInterval> {
    let sorted = sorted(samples)?;
    let medians = ascending(visit_medians(samples, visits));
    let n = medians.len();
    let rank = median_rank(n)?;
    let (low, high) = (*medians.get(rank - 1)?, *medians.get(n - rank)?);
    let (median, half_step) = (median(&medians), 0.5 * clock_step(&sorted));
    let floor = if low >= 0.0 { 0.5 * low } else { f64::MIN };
    Some(MedianInterval {
        median,
        low: (low - half_step).max(floor),
        high: (high + half_step).min(f64::MAX),
    })
}

/// The step of the clock that timed sorted samples: the smallest difference of neighbours, if at least half
/// of the values repeat one before; else 0.
fn clock_step(sorted: &[f64]) -> f64 {
    let differences = || sorted.windows(2).map(|pair| pair[1] - pair[0]);
    let repeats = differences().filter(|difference| *difference == 0.0).count();
    let step = differences().filter(|difference| *difference > 0.0).reduce(f64::min);
    let is_clock = |step: &f64| *step <= MAX_STEP * median(sorted).abs();
    step.filter(|step| 2 * repeats >= sorted.len() && is_clock(step)).unwrap_or(0.0)
}

/// The median of each visit, in order; `visits` is read as [`median_interval`] does.
pub fn visit_medians(samples: &[f64], visits: &[u32]) -> Vec<f64> {
    let mut rest = samples;
    let mut medians = Vec::with_capacity(visits.len());
    let sizes = visits.iter().map(|&count| count as usize).chain(std::iter::repeat(1));
    for size in sizes.filter(|size| *size > 0) {
        if rest.is_empty() {
            break;
        }
        let (visit, after) = rest.split_at(size.min(rest.len()));
        medians.push(median_of(visit.iter().copied()));
        rest = after;
    }
    medians
}
