//! Counts that are kept while I/O runs: all room is taken before.

use pathline_schema::{CallTally, IoHistogram};

/// Buckets of a histogram: those of 2^64 ns.
const BUCKETS: usize = IoHistogram::bucket(u64::MAX) as usize + 1;

/// Histogram of the times of I/Os.
#[derive(Debug)]
pub(super) struct IoTimes {
    counts: Box<[u32]>,
    min: u64,
    max: u64,
    sum: u64,
}

impl IoTimes {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), min: u64::MAX, max: 0, sum: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(IoHistogram::bucket(ns) as usize) {
            *count = count.saturating_add(1);
        }
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum = self.sum.saturating_add(ns);
    }

    /// The counts so far; resets them.
    pub(super) fn take(&mut self) -> IoHistogram {
        let filled = self.counts.iter().zip(0..).filter(|&(&n, _)| n > 0);
        let counts: Vec<(u32, u64)> = filled.map(|(&n, bucket)| (bucket, n.into())).collect();
        let min_ns = if counts.is_empty() { 0 } else { self.min };
        let all = IoHistogram { min_ns, max_ns: self.max, sum_ns: self.sum, counts };
        for &(bucket, _) in &all.counts {
            if let Some(count) = self.counts.get_mut(bucket as usize) {
                *count = 0;
            }
        }
        (self.min, self.max, self.sum) = (u64::MAX, 0, 0);
        all
    }
}

/// Calls of one function.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallTimes {
    pub(super) count: u64,
    pub(super) ns: u64,
}

impl CallTimes {
    #[inline]
    pub(super) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns += ns;
    }
    pub(super) fn tally(self) -> CallTally {
        CallTally { count: self.count, ns: self.ns as f64 }
    }
}

/// Random numbers: splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
/// OOPSLA 2014).
#[derive(Debug)]
pub(super) struct BlockRandom(u64);

impl BlockRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// A number below `end`: the upper half of a product, which leaves out at most `end / 2^64` of
    /// evenness.
    #[inline]
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_match_the_schema_and_restart() {
        let mut times = IoTimes::new();
        let all = [0, 63, 64, 1000, 1010, 382_000, u64::MAX];
        all.iter().for_each(|&ns| times.add(ns));
        assert_eq!(times.take(), IoHistogram::of(all));
        assert_eq!(times.take(), IoHistogram::default());
        times.add(5);
        assert_eq!(times.take(), IoHistogram::of([5]));
    }

    #[test]
    fn dice_reach_every_block_about_as_often() {
        // 100 blocks, 100 000 throws: 1000 each, give or take 6 standard deviations of 31.5.
        let (mut rng, mut seen) = (BlockRandom::new(1), [0u32; 100]);
        (0..100_000).for_each(|_| seen[rng.below(100) as usize] += 1);
        assert!(seen.iter().all(|n| (811..1189).contains(n)), "{seen:?}");
        assert_eq!(rng.below(1), 0);
    }
}
