//! A value with its interval, as in reports.

use pathline_schema::CaseTimes;
use pathline_stats::{MedianInterval, SeriesSummary, median_interval, visit_medians};

/// A value as in reports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShownValue {
    /// The median of the visits' medians; positive and finite.
    pub value: f64,
    /// 95 % interval; needs at least 6 visits.
    pub interval: Option<MedianInterval>,
    /// Number of samples.
    pub samples: usize,
}

impl ShownValue {
    /// The median of a case's times or other values. `None` without samples.
    pub fn new(times: &CaseTimes) -> Option<Self> {
        let interval = median_interval(&times.ns, &times.visits);
        let value = SeriesSummary::of(&visit_medians(&times.ns, &times.visits))?.median;
        Some(Self { value, interval, samples: times.ns.len() })
    }
    /// The rate for `amount` bytes in a case's times, GB/s. `None` without samples or bytes.
    pub fn rate(times: &CaseTimes, amount: f64) -> Option<Self> {
        let time = Self::new(times)?;
        let interval = time.interval.and_then(|i| i.inverse(amount));
        let value = amount / time.value;
        (value.is_finite() && value > 0.0).then_some(Self { value, interval, ..time })
    }
    /// The same later or longer by a constant.
    pub(crate) fn plus(self, more: f64) -> Self {
        let interval = self.interval.map(|MedianInterval { median, low, high }| MedianInterval {
            median: median + more,
            low: low + more,
            high: high + more,
        });
        Self { value: self.value + more, interval, ..self }
    }
    pub(crate) fn scaled(self, factor: f64) -> Self {
        let interval = self.interval.map(|i| i.scaled(factor));
        Self { value: self.value * factor, interval, ..self }
    }
    /// Half width of the interval; if there is none, the value itself, which counts as complete
    /// uncertainty.
    pub fn half_width(&self) -> f64 {
        self.interval.map_or(self.value.abs(), |i| i.half_width())
    }
    /// The number of samples, if of too few visits for an interval.
    pub fn few_samples(&self) -> Option<usize> {
        self.interval.is_none().then_some(self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_the_interval_of_the_time_with_its_ends_exchanged() {
        // Six visits of 100 to 105 ns: their median is 102.5 ns, their interval the range
        // and half a step of a clock that shows each twice.
        let ns: Vec<f64> = (0..12).map(|i| 100.0 + f64::from(i / 2)).collect();
        let times = CaseTimes { ns, visits: vec![2; 6] };
        let rate = ShownValue::rate(&times, 1025.0).unwrap();
        let interval = rate.interval.unwrap();
        assert!((rate.value - 10.0).abs() < 1e-9 && rate.few_samples().is_none());
        assert!((interval.low - 1025.0 / 105.5).abs() < 1e-9, "{interval:?}");
        assert!((interval.high - 1025.0 / 99.5).abs() < 1e-9, "{interval:?}");
        assert!((rate.half_width() - (interval.high - rate.value)).abs() < 1e-12);
    }

    #[test]
    fn five_samples_have_no_interval_and_nothing_is_sure() {
        let times = CaseTimes { ns: vec![10.0; 5], visits: vec![2, 2, 1] };
        let rate = ShownValue::rate(&times, 100.0).unwrap();
        assert_eq!((rate.value, rate.interval, rate.few_samples()), (10.0, None, Some(5)));
        assert_eq!(rate.half_width(), 10.0);
        assert_eq!(ShownValue::new(&CaseTimes::default()), None);
        assert_eq!(ShownValue::rate(&times, 0.0), None);
    }
}
