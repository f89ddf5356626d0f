//! Block dispatchers that start kernels in the order of their arrival.
//!
//! As found on H200s and, with other methods, on a TX2 (Amert et al., "GPU scheduling on the NVIDIA TX2:
//! hidden details revealed", RTSS 2017): a kernel's blocks start when all blocks of the kernel before it have
//! started. A grid that fills the GPU delays the next kernel to its end, a smaller one does not.

use std::collections::BTreeMap;

use pathline_flow::KernelTurn;

/// The dispatchers, by GPU.
#[derive(Debug, Default)]
pub(crate) struct KernelQueues {
    gpus: BTreeMap<u32, KernelQueue>,
}

#[derive(Debug, Default)]
struct KernelQueue {
    /// The lane whose grid fills the GPU.
    filled_by: Option<u64>,
    /// Lanes that have a kernel ready, since when, and whether it fills the GPU.
    waiting: Vec<(f64, u64, bool)>,
}

impl KernelQueues {
    /// A lane has a kernel ready.
    pub(crate) fn ask(&mut self, turn: KernelTurn, lane: u64, now: f64) {
        self.gpus.entry(turn.gpu).or_default().waiting.push((now, lane, turn.fills));
    }

    /// Whether a lane has asked and its kernel has not started.
    pub(crate) fn waits(&self, lane: u64) -> bool {
        self.gpus.values().any(|q| q.waiting.iter().any(|&(_, waiting, _)| waiting == lane))
    }

    /// The lane whose kernel starts now, if any does: the one that waits longest, of several the one that was
    /// created first.
    pub(crate) fn next(&mut self, gpu: u32) -> Option<u64> {
        let q = self.gpus.get_mut(&gpu).filter(|q| q.filled_by.is_none())?;
        let since = |&(at, lane, _): &(f64, u64, bool)| (at, lane);
        let first = (0..q.waiting.len()).min_by(|&a, &b| {
            let (a, b) = (since(&q.waiting[a]), since(&q.waiting[b]));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        let (_, lane, fills) = q.waiting.swap_remove(first?);
        q.filled_by = fills.then_some(lane);
        Some(lane)
    }

    /// The kernel of a lane has ended: the GPU that it filled.
    pub(crate) fn done(&mut self, lane: u64) -> Option<u32> {
        let filled = self.gpus.iter_mut().find(|(_, q)| q.filled_by == Some(lane));
        filled.map(|(&gpu, q)| {
            q.filled_by = None;
            gpu
        })
    }

    /// A lane wants nothing any more: the GPU that it leaves to others.
    pub(crate) fn forget(&mut self, lane: u64) -> Option<u32> {
        for q in self.gpus.values_mut() {
            q.waiting.retain(|&(_, waiting, _)| waiting != lane);
        }
        self.done(lane)
    }
}
