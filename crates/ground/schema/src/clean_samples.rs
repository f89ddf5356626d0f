//! Which samples of a case a figure may rest on: those whose threads had their CPUs.

use crate::FlowSeries;

/// From this share of a sample on, time without a CPU disturbs it: the precision that a run wants.
const DISTURBED_SHARE: f64 = 0.01;
/// This many visits with clean samples are enough: order statistics give a 95 % interval from 6 on.
const ENOUGH_VISITS: usize = 6;
/// So is this share of all samples, if it is at least [`FEWEST`].
const ENOUGH_SHARE: f64 = 1.0 / 3.0;
/// Fewest samples that have a median and a range.
const FEWEST: usize = 3;
/// In journals that record no visits, each sample counts as one.
const OLD_VISIT: usize = 1;

/// The samples that figures of a case rest on.
///
/// A sample is disturbed if one of its threads was without a CPU for 1 % of it or more: preempted,
/// stolen by the hypervisor, or late at the start. Only clean samples count if they are of 6 visits,
/// or if a third of all are and at least 3; else all of them count.
#[derive(Debug, Clone, PartialEq)]
pub struct CleanSamples {
    /// Numbers of the samples that count, ascending; 0 is the first.
    pub chosen: Vec<usize>,
    /// How many of them each visit took, without visits that took none.
    pub visits: Vec<u32>,
    /// Samples in all.
    pub all: usize,
    /// Samples that were disturbed, whether they count or not.
    pub disturbed: usize,
    /// Whether the samples that count are clean.
    pub enough: bool,
    /// Median over all samples of the share of a sample for which a thread was without a CPU, 0 to 1.
    pub lost_share: f64,
}

impl CleanSamples {
    /// Chooses among the samples of flows that were timed together. A sample counts for all of them or
    /// for none.
    pub fn of(series: &[FlowSeries]) -> Self {
        let all = series.iter().map(|s| s.samples_ns.len()).min().unwrap_or(0);
        let clean: Vec<usize> =
            (0..all).filter(|&nth| !series.iter().any(|s| s.is_disturbed(nth))).collect();
        let visit_of = visit_numbers(series.first().map_or(&[][..], |s| &s.visits), all);
        let disturbed = all - clean.len();
        let visits = count_visits(&clean, &visit_of);
        let many = visits.len() >= ENOUGH_VISITS;
        let third = clean.len() >= FEWEST && clean.len() as f64 >= ENOUGH_SHARE * all as f64;
        let lost_share = median_lost(series, all);
        if many || third {
            return Self { chosen: clean, visits, all, disturbed, enough: true, lost_share };
        }
        let chosen: Vec<usize> = (0..all).collect();
        let visits = count_visits(&chosen, &visit_of);
        Self { chosen, visits, all, disturbed, enough: disturbed == 0, lost_share }
    }

    /// The samples of one of the flows that count, in ns.
    pub fn samples_ns(&self, series: &FlowSeries) -> Vec<f64> {
        self.chosen.iter().filter_map(|&nth| series.samples_ns.get(nth).copied()).collect()
    }

    /// Share of the samples that were disturbed, 0 to 1.
    pub fn disturbed_share(&self) -> f64 {
        self.disturbed as f64 / self.all.max(1) as f64
    }
}

impl FlowSeries {
    /// Whether a thread was without a CPU for 1 % or more of a sample. No sample is, of a series that
    /// does not record it.
    pub fn is_disturbed(&self, nth: usize) -> bool {
        self.lost_share(nth) >= DISTURBED_SHARE
    }

    /// Share of a sample for which a thread was without a CPU, 0 to 1; 0 of a series that does not record
    /// it.
    fn lost_share(&self, nth: usize) -> f64 {
        let off = self.off_cpu_ns.get(nth).copied().unwrap_or(0);
        let sample = self.samples_ns.get(nth).copied().unwrap_or(0.0);
        if sample > 0.0 { (off as f64 / sample).min(1.0) } else { f64::from(u8::from(off > 0)) }
    }
}

/// Median over `all` samples of the largest share that a flow's threads lost.
fn median_lost(series: &[FlowSeries], all: usize) -> f64 {
    let most = |nth: usize| series.iter().map(|s| s.lost_share(nth)).fold(0.0, f64::max);
    let mut lost: Vec<f64> = (0..all).map(most).collect();
    lost.sort_by(f64::total_cmp);
    lost.get(all / 2).copied().unwrap_or(0.0)
}

/// The visit that each of `all` samples belongs to.
fn visit_numbers(visits: &[u32], all: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = Vec::with_capacity(all);
    for (nth, &samples) in visits.iter().enumerate() {
        let room = all - numbers.len();
        numbers.extend(std::iter::repeat_n(nth, room.min(samples as usize)));
    }
    let recorded = numbers.len();
    numbers.extend((recorded..all).map(|nth| visits.len() + (nth - recorded) / OLD_VISIT));
    numbers
}

/// Samples of each visit that has some.
fn count_visits(samples: &[usize], visit_of: &[usize]) -> Vec<u32> {
    let numbers: Vec<usize> =
        samples.iter().filter_map(|&nth| visit_of.get(nth).copied()).collect();
    numbers.chunk_by(|a, b| a == b).map(|visit| visit.len() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimerKind;

    /// Samples of 100 us, of which a thread was off its CPU for these times, in visits of 4.
    fn series(off_cpu_ns: &[u64]) -> FlowSeries {
        let flow = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB";
        let samples = off_cpu_ns.len();
        FlowSeries {
            samples_ns: vec![100_000.0; samples],
            off_cpu_ns: off_cpu_ns.to_vec(),
            visits: (0..samples).step_by(4).map(|at| (samples - at).min(4) as u32).collect(),
            ..FlowSeries::new(flow.parse().unwrap(), TimerKind::Threads)
        }
    }

    #[test]
    fn a_sample_is_disturbed_from_one_per_cent_on() {
        // 1 % of 100 us is 1000 ns.
        let series = series(&[0, 999, 1000, 50_000]);
        let disturbed: Vec<bool> = (0..5).map(|nth| series.is_disturbed(nth)).collect();
        assert_eq!(disturbed, [false, false, true, true, false]);
    }

    #[test]
    fn clean_samples_count_where_a_third_is_clean() {
        // 3 of 8 are 37.5 %: visits of 2 and 1.
        let clean = CleanSamples::of(&[series(&[0, 9000, 0, 9000, 9000, 9000, 9000, 0])]);
        assert_eq!((clean.chosen, clean.visits, clean.enough), (vec![0, 2, 7], vec![2, 1], true));
        // 2 of 8 are 25 %: all count, and they are not clean. 2 of 3 are fewer than 3.
        let all = CleanSamples::of(&[series(&[0, 9000, 0, 9000, 9000, 9000, 9000, 9000])]);
        assert_eq!((all.chosen.len(), all.enough), (8, false));
        assert_eq!(all.visits, [4, 4]);
        assert_eq!(all.disturbed_share(), 0.75);
        assert!(!CleanSamples::of(&[series(&[0, 9000, 0])]).enough);
    }

    #[test]
    fn clean_samples_of_six_visits_count_among_any_number() {
        // 7 visits of 4: 6 clean of 28 are 21 %, less than a third.
        let clean_at = |at: &[usize]| -> Vec<u64> {
            (0..28).map(|nth| if at.contains(&nth) { 0 } else { 9000 }).collect()
        };
        let of = |at: &[usize]| CleanSamples::of(&[series(&clean_at(at))]);
        let spread = of(&[0, 4, 8, 12, 16, 20]);
        assert_eq!((spread.visits, spread.enough), (vec![1; 6], true));
        // The same number of 5 visits.
        assert!(!of(&[0, 4, 8, 12, 16, 17]).enough);
    }

    #[test]
    fn what_disturbs_one_flow_counts_for_all_that_are_timed_with_it() {
        let (a, b) = (series(&[0, 9000, 0, 0, 0]), series(&[0, 0, 0, 9000, 0]));
        let both = CleanSamples::of(&[a.clone(), b.clone()]);
        assert_eq!((both.chosen.as_slice(), both.disturbed), (&[0, 2, 4][..], 2));
        let clean = CleanSamples::of(&[a]);
        assert_eq!((clean.chosen.len(), clean.visits), (4, vec![3, 1]));
        assert_eq!(both.samples_ns(&b).len(), 3);
    }

    #[test]
    fn samples_of_an_older_part_count_as_clean() {
        let mut resumed = FlowSeries { off_cpu_ns: Vec::new(), ..series(&[0; 2]) };
        resumed.extend_off_cpu(None);
        assert!(resumed.off_cpu_ns.is_empty());
        resumed.extend_off_cpu([7, 8]);
        assert_eq!(resumed.off_cpu_ns, [0, 0, 7, 8]);
    }

    #[test]
    fn a_series_that_records_nothing_is_clean() {
        let old = FlowSeries { off_cpu_ns: Vec::new(), visits: Vec::new(), ..series(&[0; 10]) };
        let clean = CleanSamples::of(&[old]);
        assert_eq!((clean.chosen.len(), clean.visits, clean.enough), (10, vec![1; 10], true));
        let none = CleanSamples::of(&[]);
        assert_eq!((none.all, none.enough, none.disturbed_share()), (0, true, 0.0));
    }
}
