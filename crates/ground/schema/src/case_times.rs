//! Times of a case, sample by sample.

use crate::clean_samples::CleanSamples;
use crate::record::FlowSeries;

/// In journals that record no visits, each sample counts as one.
const OLD_VISIT: u32 = 1;

/// Times of a case in the order of its samples, with the visits that they were taken in: what its
/// shown figure, the interval of it, and the decision to stop sampling rest on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CaseTimes {
    /// Time of each sample in ns, or of one step of it; positive and finite.
    pub ns: Vec<f64>,
    /// Number of these samples in each visit, in order. No visit is empty, and they cover all samples.
    pub visits: Vec<u32>,
}

impl CaseTimes {
    /// Time of the slowest flow in each sample. Payload of all flows over it is the rate of a case.
    pub fn slowest_flow(series: &[FlowSeries]) -> Self {
        Self::collect(series, |_, ns| ns)
    }

    /// Time of one step of the slowest flow in each sample.
    pub fn slowest_step(series: &[FlowSeries]) -> Self {
        Self::collect(series, |series, ns| ns / series.steps.max(1) as f64)
    }

    /// Values that a case has for each of its samples, in order, such as latencies within it.
    pub fn from_values(values: &[f64], visits: &[u32]) -> Self {
        Self::split(values.len(), visits, |nth| values.get(nth).copied(), |x| x.is_finite())
    }

    /// The largest value of all flows in each [clean](CleanSamples) sample; samples without a positive finite one are left
    /// out, of their visits too.
    fn collect(series: &[FlowSeries], value: impl Fn(&FlowSeries, f64) -> f64) -> Self {
        let clean = CleanSamples::of(series);
        let slowest = |nth: usize| {
            let nth = *clean.chosen.get(nth)?;
            let all = series.iter().filter_map(|s| Some(value(s, *s.samples_ns.get(nth)?)));
            // f64::max prefers a number to NaN, which would hide a broken sample.
            all.reduce(|a, b| if a.is_nan() || a > b { a } else { b })
        };
        Self::split(clean.chosen.len(), &clean.visits, slowest, |x| x.is_finite() && x > 0.0)
    }

    fn split(
        n: usize,
        visits: &[u32],
        value: impl Fn(usize) -> Option<f64>,
        usable: impl Fn(f64) -> bool,
    ) -> Self {
        let mut times = Self::default();
        let mut next = 0;
        for count in visits.iter().copied().chain(std::iter::repeat(OLD_VISIT)) {
            if next >= n {
                break;
            }
            let end = next.saturating_add(count as usize).min(n);
            let before = times.ns.len();
            times.ns.extend((next..end).filter_map(&value).filter(|&x| usable(x)));
            let kept = u32::try_from(times.ns.len() - before).unwrap_or(u32::MAX);
            times.visits.extend((kept > 0).then_some(kept));
            next = end;
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimerKind;

    fn series(samples_ns: &[f64], visits: &[u32], steps: u64) -> FlowSeries {
        let flow = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap();
        let (samples_ns, visits) = (samples_ns.to_vec(), visits.to_vec());
        FlowSeries { samples_ns, visits, steps, ..FlowSeries::new(flow, TimerKind::DeviceEvents) }
    }

    #[test]
    fn the_slowest_flow_of_each_sample_counts() {
        let two = [series(&[1.0, 4.0, 3.0], &[2, 1], 1), series(&[2.0, 3.0, 9.0], &[2, 1], 4)];
        let times = CaseTimes::slowest_flow(&two);
        assert_eq!((times.ns, times.visits), (vec![2.0, 4.0, 9.0], vec![2, 1]));
        // A step is a quarter of the second flow's sample: 0.5, 0.75, 2.25.
        assert_eq!(CaseTimes::slowest_step(&two).ns, [1.0, 4.0, 3.0]);
    }

    #[test]
    fn samples_that_are_no_times_are_left_out_of_their_visits() {
        let bad = [series(&[1.0, f64::NAN, 0.0, -1.0, f64::INFINITY, 6.0, 7.0], &[1, 2, 2], 1)];
        let times = CaseTimes::slowest_flow(&bad);
        // Visits of 1, 2 and 2, and the rest; the second and the third have nothing left.
        assert_eq!((times.ns, times.visits), (vec![1.0, 6.0, 7.0], vec![1; 3]));
    }

    #[test]
    fn visits_cover_all_samples_whatever_a_journal_counts() {
        let visits =
            |counts: &[u32]| CaseTimes::slowest_flow(&[series(&[1.0; 10], counts, 1)]).visits;
        assert_eq!(visits(&[]), [1; 10]);
        assert_eq!(visits(&[3, 0]), [3, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(visits(&[u32::MAX, 5]), [10]);
        assert_eq!(CaseTimes::slowest_flow(&[]), CaseTimes::default());
    }
}
