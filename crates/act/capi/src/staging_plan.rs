//! With how many threads a copy of pageable memory is made, by what a probe has measured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pathline_multipath::CopyTimeModel;
use pathline_schema::{Bytes, Ns};

use crate::size_classes::SizeClasses;
use crate::staging_job::StagedWay;

/// Most threads, unless the options say otherwise. On a host with 16 CPUs 8 reached the most.
pub(crate) const MAX_THREADS: usize = 16;
/// A copy with fewer threads is preferred if it takes no longer than this factor of the best.
const FEWER_THREADS: f64 = 1.05;

/// Numbers of threads that a probe compares, ascending.
pub(crate) fn thread_counts(most: usize) -> Vec<usize> {
    [1, 2, 4, 8, 12, 16].into_iter().filter(|&count| count < most).chain([most]).collect()
}

/// What a probe has found for one GPU and direction.
#[derive(Debug)]
pub(crate) struct StagingPlan {
    /// Time of the runtime's own copy.
    pub(crate) plain: CopyTimeModel,
    /// Time by number of threads, ascending.
    pub(crate) staged: Vec<(usize, CopyTimeModel)>,
    pub(crate) classes: SizeClasses,
}

impl StagingPlan {
    /// The number of threads that a copy is made with and its predicted time; none if the plain copy is as good. With a
    /// least gain below 1 none is.
    pub(crate) fn choose(&self, bytes: usize, min_gain: f64, now: Ns) -> Option<(usize, Ns)> {
        let size = Bytes(bytes as u64);
        let timed = || self.staged.iter().map(|(threads, model)| (*threads, model.time(size)));
        let best = timed().map(|(_, time)| time.0).fold(f64::INFINITY, f64::min);
        let (threads, time) = timed().find(|(_, time)| time.0 <= best * FEWER_THREADS)?;
        let gains = self.plain.time(size).0 >= time.0 * min_gain;
        let is_on = min_gain < 1.0 || self.classes.is_on(bytes as u64, now);
        (gains && is_on).then_some((threads, time))
    }
}

/// The plan of a GPU and direction; nothing if the probe failed, with its reason.
pub(crate) type ProbedPlan = Arc<Result<StagingPlan, String>>;

/// Plans by GPU, as the runtime numbers it, and direction.
#[derive(Debug, Default)]
pub(crate) struct StagingPlans(Mutex<BTreeMap<(i32, StagedWay), ProbedPlan>>);

impl StagingPlans {
    /// The plan, probed if it is new. Other threads wait for the probe.
    pub(crate) fn get(
        &self,
        key: (i32, StagedWay),
        probe: impl FnOnce() -> Result<StagingPlan, String>,
    ) -> ProbedPlan {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(plans.entry(key).or_insert_with(|| Arc::new(probe())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a start and a time a byte, ns.
    fn line(start: f64, per_byte: f64) -> CopyTimeModel {
        let time = |mib| (Bytes::mib(mib), Ns(start + Bytes::mib(mib).as_f64() * per_byte));
        CopyTimeModel::through([2, 4, 8, 16, 64].map(time))
    }

    #[test]
    fn the_fewest_threads_that_reach_the_best_time_copy() {
        // Plain 7 GB/s; 4 threads 25, 8 threads 40 and 16 threads 41 GB/s, each after 100 us.
        let staged = [(4, 25.0), (8, 40.0), (16, 41.0)];
        let staged = staged.map(|(threads, gbs): (usize, f64)| (threads, line(100e3, 1.0 / gbs)));
        let plan = StagingPlan {
            plain: line(0.0, 1.0 / 7.0),
            staged: staged.to_vec(),
            classes: SizeClasses::default(),
        };
        // 1 GiB: 8 threads take 26.9 ms, 16 threads 26.3 ms, plain 153 ms.
        let chosen = plan.choose(1 << 30, 1.15, Ns(0.0)).unwrap();
        assert_eq!(chosen.0, 8);
        assert!((chosen.1.0 - (100e3 + (1u64 << 30) as f64 / 40.0)).abs() < 1e3);
        // 512 KiB: 75 us plainly, 113 us with 8 threads.
        assert!(plan.choose(512 << 10, 1.15, Ns(0.0)).is_none());
        // Two copies that gain nothing switch their class off.
        let slow = (Ns(1e6), Ns(1.01e6));
        assert!(!plan.classes.note(1 << 30, slow, Ns(0.0)));
        assert!(plan.classes.note(1 << 30, slow, Ns(0.0)));
        assert!(plan.choose(1 << 30, 1.15, Ns(1e9)).is_none());
        assert!(plan.choose(1 << 30, 1.15, Ns(3e9)).is_some());
    }

    #[test]
    fn few_cpus_are_few_candidates() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(16), [1, 2, 4, 8, 12, 16]);
    }
}
