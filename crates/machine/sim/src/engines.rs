//! Copy engines that serve one stream at a time.
//!
//! As found on H200s: an engine works off all that is ready of one stream before it turns to another.
//! Of streams that became ready together, as behind one gate, it takes the same one first again and
//! again, and which one that is differs from one set of streams to the next as if by chance.

use std::collections::BTreeMap;

use pathline_hal::pattern;

/// The engines' queues, by the number that operations have.
#[derive(Debug, Default)]
pub(crate) struct EngineQueues {
    seed: u64,
    queues: BTreeMap<u32, EngineQueue>,
}

#[derive(Debug, Default)]
struct EngineQueue {
    /// The lane whose transfer is in progress.
    serving: Option<u64>,
    /// The lane that was served till now.
    last: Option<u64>,
    /// Lanes that have a transfer ready, and since when.
    waiting: Vec<(f64, u64)>,
}

impl EngineQueues {
    /// Lets another seed decide which of several streams is first.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// A lane has a transfer ready.
    pub(crate) fn ask(&mut self, queue: u32, lane: u64, now: f64) {
        self.queues.entry(queue).or_default().waiting.push((now, lane));
    }

    /// Whether a lane has asked and is not served.
    pub(crate) fn waits(&self, lane: u64) -> bool {
        self.queues.values().any(|q| q.waiting.iter().any(|&(_, waiting)| waiting == lane))
    }

    /// The lane that is served from now on, if the engine is free and a lane waits: the one that
    /// it has served till now, else the one that waits longest.
    pub(crate) fn next(&mut self, queue: u32) -> Option<u64> {
        let Self { seed, queues } = self;
        let q = queues.get_mut(&queue).filter(|q| q.serving.is_none())?;
        let last = q.last.take();
        // A lane keeps its rank among others for as long as it lives, which is that of its case.
        let rank = |&(since, lane): &(f64, u64)| {
            (Some(lane) != last, since, pattern::word(*seed, lane), lane)
        };
        let first = (0..q.waiting.len()).min_by(|&a, &b| {
            let (a, b) = (rank(&q.waiting[a]), rank(&q.waiting[b]));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then((a.2, a.3).cmp(&(b.2, b.3)))
        });
        let (_, lane) = q.waiting.swap_remove(first?);
        q.serving = Some(lane);
        Some(lane)
    }

    /// The transfer of a lane is done.
    pub(crate) fn done(&mut self, queue: u32, lane: u64) {
        if let Some(q) = self.queues.get_mut(&queue)
            && q.serving == Some(lane)
        {
            (q.serving, q.last) = (None, Some(lane));
        }
    }

    /// A lane wants nothing any more: the queues that it leaves to others.
    pub(crate) fn forget(&mut self, lane: u64) -> Vec<u32> {
        let mut left = Vec::new();
        for (&number, q) in &mut self.queues {
            q.waiting.retain(|&(_, waiting)| waiting != lane);
            if q.serving == Some(lane) {
                q.serving = None;
                left.push(number);
            }
        }
        left
    }
}
