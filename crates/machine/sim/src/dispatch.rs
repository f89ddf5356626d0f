//! Block dispatchers that start kernels in the order of their arrival.
//!
//! As found on H200s and H100s and, with other methods, on a TX2 (Amert et al., "GPU scheduling on the NVIDIA
//! TX2: hidden details revealed", RTSS 2017): a kernel's blocks start when all blocks of the kernel before it
//! have started. A kernel that leaves no room delays the next one to its end, others do not.

use std::collections::BTreeMap;

use pathline_flow::KernelTurn;

/// The dispatchers, by GPU.
#[derive(Debug, Default)]
pub(crate) struct KernelQueues {
    gpus: BTreeMap<u32, KernelQueue>,
}

#[derive(Debug, Default)]
struct KernelQueue {
    /// The lane whose kernel leaves no room for another, and whether it takes all block slots.
    filled_by: Option<(u64, bool)>,
    waiting: Vec<WaitingKernel>,
}

#[derive(Debug)]
struct WaitingKernel {
    since: f64,
    lane: u64,
    turn: KernelTurn,
    /// Whether it waits for the last block of a grid that takes all slots.
    behind_full_grid: bool,
}

impl KernelQueues {
    /// A lane has a kernel ready.
    pub(crate) fn ask(&mut self, turn: KernelTurn, lane: u64, now: f64) {
        let queue = self.gpus.entry(turn.gpu).or_default();
        let behind_full_grid = queue.filled_by.is_some_and(|(_, all_slots)| all_slots);
        queue.waiting.push(WaitingKernel { since: now, lane, turn, behind_full_grid });
    }

    /// Whether a lane has asked and its kernel has not started.
    pub(crate) fn waits(&self, lane: u64) -> bool {
        self.gpus.values().any(|queue| queue.waiting.iter().any(|kernel| kernel.lane == lane))
    }

    /// The lane whose kernel starts now, if any does, and the factor on its time: the lane that waits longest,
    /// of several the one that was created first.
    pub(crate) fn next(&mut self, gpu: u32) -> Option<(u64, f64)> {
        let queue = self.gpus.get_mut(&gpu).filter(|queue| queue.filled_by.is_none())?;
        let order = |kernel: &WaitingKernel| (kernel.since, kernel.lane);
        let first = (0..queue.waiting.len()).min_by(|&a, &b| {
            let (a, b) = (order(&queue.waiting[a]), order(&queue.waiting[b]));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
        let WaitingKernel { lane, turn, behind_full_grid, .. } = queue.waiting.swap_remove(first?);
        queue.filled_by = turn.fills.then_some((lane, turn.takes_all_slots()));
        // Of kernels that became ready at once, all but the first wait, too.
        let all_slots = turn.takes_all_slots();
        queue.waiting.iter_mut().for_each(|kernel| kernel.behind_full_grid |= all_slots);
        Some((lane, if behind_full_grid { turn.packed } else { 1.0 }))
    }

    /// The kernel of a lane has ended: the GPU on which it left no room.
    pub(crate) fn done(&mut self, lane: u64) -> Option<u32> {
        let filled = |queue: &KernelQueue| queue.filled_by.is_some_and(|(by, _)| by == lane);
        let (&gpu, queue) = self.gpus.iter_mut().find(|(_, queue)| filled(queue))?;
        queue.filled_by = None;
        Some(gpu)
    }

    /// A lane wants nothing any more: the GPU that it leaves to others.
    pub(crate) fn forget(&mut self, lane: u64) -> Option<u32> {
        for queue in self.gpus.values_mut() {
            queue.waiting.retain(|kernel| kernel.lane != lane);
        }
        self.done(lane)
    }
}
