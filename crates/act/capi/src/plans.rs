//! Plans by ends and size class, with what their copies have shown.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pathline_multipath::{CopyMode, PathOption, PathProbe};
use pathline_schema::{Bytes, GpuSet, Ns, Unit};

use crate::size_classes::SizeClasses;

/// Hand-overs of which the median counts.
const HAND_OVERS: usize = 9;

/// Time from a caller's order until the worker begins with it, which every copy over several paths loses: the
/// median of the last orders that did not wait for others.
#[derive(Debug, Default)]
pub(crate) struct HandOverTime {
    last: Mutex<VecDeque<u64>>,
    /// ns.
    median: AtomicU64,
}

impl HandOverTime {
    pub(crate) fn get(&self) -> Ns {
        Ns(self.median.load(Ordering::Relaxed) as f64)
    }

    pub(crate) fn note(&self, time: Ns) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == HAND_OVERS {
            last.pop_front();
        }
        last.push_back(time.0.max(0.0) as u64);
        let mut sorted: Vec<u64> = last.iter().copied().collect();
        sorted.sort_unstable();
        if let Some(&median) = sorted.get(sorted.len() / 2) {
            self.median.store(median, Ordering::Relaxed);
        }
    }
}

/// The ends of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndsKey {
    pub(crate) src: Unit,
    pub(crate) dst: Unit,
    /// Further destinations of the same bytes.
    pub(crate) others: GpuSet,
}

/// The plans between some ends.
#[derive(Debug)]
pub(crate) struct EndsPlan {
    /// What the probe found; none if it failed.
    pub(crate) probe: Option<PathProbe>,
    /// Why there is none.
    pub(crate) failure: String,
    classes: SizeClasses,
}

impl EndsPlan {
    pub(crate) fn new(probe: Result<PathProbe, String>) -> Self {
        let (probe, failure) = match probe {
            Ok(probe) => (Some(probe), String::new()),
            Err(failure) => (None, failure),
        };
        Self { probe, failure, classes: SizeClasses::default() }
    }

    /// The plan for a size; none if the plain copy is as good.
    pub(crate) fn choose(
        &self,
        bytes: u64,
        (min_gain, avoided): (f64, GpuSet),
        mode: CopyMode,
        (now, hand_over): (Ns, Ns),
    ) -> Option<&PathOption> {
        let chosen =
            self.probe.as_ref()?.choose(Bytes(bytes), (min_gain, avoided), (mode, hand_over))?;
        self.classes.is_on(bytes, now).then_some(chosen)
    }

    /// Notes the time of a copy that ran alone, from the caller's order to its end. Whether that switched its class off.
    pub(crate) fn note(&self, bytes: u64, elapsed: Ns, now: Ns) -> bool {
        let Some(probe) = &self.probe else { return false };
        self.classes.note(bytes, (probe.plain.time(Bytes(bytes)), elapsed), now)
    }
}

/// All plans of a node.
#[derive(Debug, Default)]
pub(crate) struct PlanTable(RwLock<BTreeMap<EndsKey, Arc<EndsPlan>>>);

impl PlanTable {
    pub(crate) fn get(&self, key: &EndsKey) -> Option<Arc<EndsPlan>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(crate) fn insert(&self, key: EndsKey, plan: EndsPlan) -> Arc<EndsPlan> {
        let plan = Arc::new(plan);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&plan));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_multipath::CopyTimeModel;
    use pathline_schema::{CopyAgent, MultipathSpec};

    /// Plain 0.02 ns a byte, over a relay 0.01.
    fn plan() -> EndsPlan {
        let line = |per_byte: f64| {
            let time = |mib| (Bytes::mib(mib), Ns(Bytes::mib(mib).as_f64() * per_byte));
            CopyTimeModel::through([4, 8, 12, 32, 128].map(time))
        };
        let paths = MultipathSpec {
            gpus: GpuSet::EMPTY.with(1),
            chunk: Bytes::mib(4),
            agent: CopyAgent::Engine,
            shares: None,
        };
        let (driven, enqueued) = (line(0.01), line(0.01));
        let options = vec![PathOption { paths, driven, enqueued, rates: vec![50.0; 2] }];
        EndsPlan::new(Ok(PathProbe { plain: line(0.02), options, refused: Vec::new() }))
    }

    #[test]
    fn two_slow_copies_switch_a_class_off_until_it_is_tried_again() {
        let plan = plan();
        // 8 MiB: plain 167.8 us. 160 us are 1.049 times as fast, 167 us 1.005 times.
        let (bytes, fast, slow) = (8 << 20, Ns(160e3), Ns(167e3));
        assert!(
            plan.choose(bytes, (1.15, GpuSet::EMPTY), CopyMode::Driven, (Ns(0.0), Ns::ZERO))
                .is_some()
        );
        assert!(!plan.note(bytes, slow, Ns(0.0)));
        assert!(!plan.note(bytes, fast, Ns(0.0)));
        assert!(!plan.note(bytes, slow, Ns(0.0)));
        assert!(plan.note(bytes, slow, Ns(1e9)));
        assert!(
            plan.choose(bytes, (1.15, GpuSet::EMPTY), CopyMode::Driven, (Ns(2e9), Ns::ZERO))
                .is_none()
        );
        // The class above is another one.
        assert!(
            plan.choose(bytes * 2, (1.15, GpuSet::EMPTY), CopyMode::Driven, (Ns(2e9), Ns::ZERO))
                .is_some()
        );
        // Off from 1 to 3 s, then tried once; without a gain off for 4 s, 8 s, ... and 180 s at most.
        let is_on = |s: f64| {
            let at = (Ns(s * 1e9), Ns::ZERO);
            plan.choose(bytes, (1.15, GpuSet::EMPTY), CopyMode::Driven, at).is_some()
        };
        assert!(!is_on(2.9) && is_on(3.0));
        assert!(plan.note(bytes, slow, Ns(4e9)));
        assert!(!is_on(7.9) && is_on(8.0));
        for _ in 0..6 {
            assert!(plan.note(bytes, slow, Ns(10e9)));
        }
        assert!(!is_on(189.9) && is_on(190.0));
        // A copy that gains ends that: 2 s again, after two slow ones.
        assert!(!plan.note(bytes, fast, Ns(200e9)) && !plan.note(bytes, slow, Ns(200e9)));
        assert!(plan.note(bytes, slow, Ns(200e9)));
        assert!(!is_on(201.9) && is_on(202.0));
    }

    #[test]
    fn a_failed_probe_leaves_the_plain_copy() {
        let plan = EndsPlan::new(Err("no memory".into()));
        assert!(
            plan.choose(1 << 30, (0.0, GpuSet::EMPTY), CopyMode::Driven, (Ns(0.0), Ns::ZERO))
                .is_none()
        );
        assert!(!plan.note(1 << 30, Ns(1.0), Ns(0.0)));
    }

    #[test]
    fn a_slow_hand_over_leaves_the_plain_copy() {
        let plan = plan();
        let gains = |us: f64| {
            plan.choose(8 << 20, (1.15, GpuSet::EMPTY), CopyMode::Driven, (Ns(0.0), Ns(us * 1e3)))
                .is_some()
        };
        // 167.8 us against 83.9 us and 62.0 us, 1.15 times; with 1 us more 1.14 times.
        assert!(gains(0.0) && gains(61.9) && !gains(62.9));
    }

    #[test]
    fn the_hand_over_is_the_median_of_the_last_nine() {
        let time = HandOverTime::default();
        assert_eq!(time.get(), Ns(0.0));
        time.note(Ns(9e3));
        assert_eq!(time.get(), Ns(9e3));
        // One that waited for a descheduled thread is not the median.
        [5e3, 6e3, 9e6].into_iter().for_each(|ns| time.note(Ns(ns)));
        assert_eq!(time.get(), Ns(9e3));
        (0..HAND_OVERS).for_each(|_| time.note(Ns(4e3)));
        assert_eq!(time.get(), Ns(4e3));
        (0..5).for_each(|_| time.note(Ns(1e3)));
        assert_eq!(time.get(), Ns(1e3), "five of nine");
    }
}
