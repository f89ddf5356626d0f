//! How blocks are copied fastest between two places: measured once, on memory and a stream of the probe.

use std::sync::{Mutex, PoisonError};

use pathline_gpu::{CallStatus, CallerCalls, CopyBatch};
use pathline_host::clock::ClockOrigin;

use crate::block_lists::{BlockLists, BlockRange};

/// Sizes that are measured, bytes, each by [`BLOCKS`] blocks.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Fewer fit into the queues of the runtime, and copies one by one look faster than those of a large batch.
const BLOCKS: usize = 256;
const ROUNDS: usize = 3;
/// Bytes at each end, over which blocks are spread.
pub(crate) const SCRATCH: usize = 4 << 20;
/// Time after which nothing is measured any more.
const LIMIT_NS: u64 = 300_000_000;
/// A method must be that much faster than one that takes less: a kernel takes multiprocessors from others.
const LEAST_GAIN: f64 = 1.05;
/// Most copies of one call of the driver: with 50,000 some versions hang.
const MAX_CALL: usize = 1024;
const NOT_READY: i32 = 600;

/// How ranges of a batch are copied, from the one that takes least of the GPU on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockMethod {
    /// A call for each range.
    Copies,
    /// A call of the driver for many.
    Batch,
    /// A kernel that reads and writes in place.
    Kernel,
}

const METHODS: [BlockMethod; 3] = [BlockMethod::Copies, BlockMethod::Batch, BlockMethod::Kernel];

/// The fastest method by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockChoice {
    kernel_below: usize,
    batch_below: usize,
}

/// Times of the methods at a size, ns; none if it cannot be used.
type MethodTimes = [Option<f64>; 3];

impl BlockChoice {
    pub(crate) fn always(method: BlockMethod) -> Self {
        let below = |is: BlockMethod| if method == is { usize::MAX } else { 0 };
        Self { kernel_below: below(BlockMethod::Kernel), batch_below: below(BlockMethod::Batch) }
    }

    pub(crate) fn method(&self, bytes: usize) -> BlockMethod {
        match bytes {
            _ if bytes < self.kernel_below => BlockMethod::Kernel,
            _ if bytes < self.batch_below => BlockMethod::Batch,
            _ => BlockMethod::Copies,
        }
    }

    fn from_times(times: &[MethodTimes]) -> Self {
        let gains = |by: Option<f64>, others: &[Option<f64>]| {
            by.is_some_and(|by| others.iter().flatten().all(|other| by * LEAST_GAIN <= *other))
        };
        // Up to the middle between the last size that gains and the next one.
        let below = |gains: &dyn Fn(&MethodTimes) -> bool| match times.iter().rposition(gains) {
            None => 0,
            Some(last) if last + 1 == SIZES.len() => usize::MAX,
            Some(last) => 2 * SIZES[last],
        };
        Self {
            kernel_below: below(&|[copies, batch, kernel]| gains(*kernel, &[*copies, *batch])),
            batch_below: below(&|[copies, batch, _]| gains(*batch, &[*copies])),
        }
    }
}

/// Enqueues copies by calls of the driver for many, if it has one.
///
/// # Safety
/// Live ranges and a live stream that is not a default one.
pub(crate) unsafe fn copy_batches(
    calls: &dyn CallerCalls,
    ranges: &[BlockRange],
    stream: usize,
) -> Option<CallStatus> {
    let mut last = None;
    for ranges in ranges.chunks(MAX_CALL) {
        let (to, from) = ranges.iter().map(|&[dst, src, _]| (dst, src)).unzip();
        let bytes = ranges.iter().map(|range| range[2] as usize).collect();
        // SAFETY: the caller's promise.
        let status = unsafe { calls.copy_batch(&mut CopyBatch { to, from, bytes }, stream) }?;
        last = Some(status);
        if status.1 != 0 {
            break;
        }
    }
    last
}

/// What a probe needs on its GPU, which is current.
pub(crate) struct BlockProbe<'c> {
    pub(crate) calls: &'c dyn CallerCalls,
    /// The kernel, with the number of thread blocks.
    pub(crate) kernel: Option<(&'c Mutex<BlockLists>, u32)>,
    /// Scratch memory for destinations and sources.
    pub(crate) ends: [u64; 2],
    pub(crate) origin: ClockOrigin,
}

/// Stream, and events before and after a method.
struct ProbeStream<'c> {
    calls: &'c dyn CallerCalls,
    handles: [usize; 3],
}

impl<'c> ProbeStream<'c> {
    fn new(calls: &'c dyn CallerCalls) -> Option<Self> {
        let mut own = Self { calls, handles: [calls.stream_create().ok()?, 0, 0] };
        let (api, [_, start, end]) = (calls.api(), &mut own.handles);
        // SAFETY: each call stores one handle.
        let made =
            unsafe { (api.event_create.at)(start, 0) == 0 && (api.event_create.at)(end, 0) == 0 };
        made.then_some(own)
    }
}

impl Drop for ProbeStream<'_> {
    fn drop(&mut self) {
        let (api, [stream, start, end]) = (self.calls.api(), self.handles);
        // SAFETY: handles of this probe, or 0, which is refused. Work that was enqueued still ends.
        unsafe {
            (api.event_destroy.at)(start);
            (api.event_destroy.at)(end);
            if stream != 0 {
                (api.stream_destroy.at)(stream);
            }
        }
    }
}

impl BlockProbe<'_> {
    /// Measures; none if the GPU does not get to it in time.
    pub(crate) fn measure(&self) -> Option<BlockChoice> {
        let deadline = self.origin.ns() + LIMIT_NS;
        let stream = ProbeStream::new(self.calls)?;
        let mut times: Vec<MethodTimes> = Vec::new();
        // The first call of each method loads code and the like.
        let usable = METHODS.map(|method| self.time(&stream, method, SIZES[0], deadline).is_some());
        for bytes in SIZES {
            let mut best: MethodTimes = [None; 3];
            for _ in 0..ROUNDS {
                for ((method, usable), best) in METHODS.iter().zip(usable).zip(&mut best) {
                    if usable && let Some(time) = self.time(&stream, *method, bytes, deadline) {
                        *best = Some(best.map_or(time, |best: f64| best.min(time)));
                    }
                    if self.origin.ns() > deadline {
                        return (!times.is_empty()).then(|| BlockChoice::from_times(&times));
                    }
                }
            }
            times.push(best);
        }
        Some(BlockChoice::from_times(&times))
    }

    /// Time of a method on the GPU, ns.
    fn time(
        &self,
        probe: &ProbeStream<'_>,
        method: BlockMethod,
        bytes: usize,
        deadline: u64,
    ) -> Option<f64> {
        let (api, calls, [stream, start, end]) = (self.calls.api(), self.calls, probe.handles);
        let (query, mut elapsed) = (api.event_query?, 0f32);
        // SAFETY: handles of this probe, and memory that lives as long as its node.
        unsafe {
            (calls.event_record(start, stream).1 == 0).then_some(())?;
            self.enqueue(method, bytes, stream)?;
            (calls.event_record(end, stream).1 == 0).then_some(())?;
            loop {
                match (query.at)(end) {
                    0 => break,
                    NOT_READY if self.origin.ns() < deadline => std::thread::yield_now(),
                    _ => return None,
                }
            }
            let known = (api.event_elapsed.at)(&raw mut elapsed, start, end) == 0;
            known.then_some(f64::from(elapsed) * 1e6)
        }
    }

    unsafe fn enqueue(&self, method: BlockMethod, bytes: usize, stream: usize) -> Option<()> {
        let [dst, src] = self.ends;
        // All places of that size, one after the other far away.
        let offset = |nth: usize| (7 * nth % (SCRATCH / bytes) * bytes) as u64;
        let ranges: [BlockRange; BLOCKS] =
            std::array::from_fn(|nth| [dst + offset(nth), src + offset(nth), bytes as u64]);
        // SAFETY: memory of the probe, its stream, and the GPU that is current.
        let is_enqueued = unsafe {
            match method {
                BlockMethod::Copies => ranges
                    .iter()
                    .all(|&[dst, src, _]| self.calls.copy_async(dst, src, bytes, stream).1 == 0),
                BlockMethod::Batch => copy_batches(self.calls, &ranges, stream)?.1 == 0,
                BlockMethod::Kernel => {
                    let (lists, thread_blocks) = self.kernel?;
                    let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
                    lists.copy(self.calls, &ranges, thread_blocks, stream).is_ok()
                }
            }
        };
        is_enqueued.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of 64 blocks by 4,096 as measured on an H200, us: a loop, the call for many, a kernel.
    #[test]
    fn the_fastest_method_is_chosen_by_size() {
        let times = |copies: f64, batch: f64, kernel: f64| [copies, batch, kernel].map(Some);
        let rows = [
            times(291.0, 175.0, 7.7),
            times(198.0, 269.0, 21.0),
            times(290.0, 150.0, 84.0),
            times(500.0, 410.0, 350.0),
            times(1300.0, 1260.0, 1250.0),
        ];
        let choice = BlockChoice::from_times(&rows);
        let method = |bytes: usize| choice.method(bytes);
        assert_eq!(method(1), BlockMethod::Kernel);
        assert_eq!(method((512 << 10) - 1), BlockMethod::Kernel);
        assert_eq!(method(512 << 10), BlockMethod::Copies);
        let without = rows.map(|[copies, batch, _]| [copies, batch, None]);
        assert_eq!(BlockChoice::from_times(&without).method(256 << 10), BlockMethod::Batch);
        // What was not measured is as it was.
        assert_eq!(BlockChoice::from_times(&rows[..1]).method(8 << 10), BlockMethod::Copies);
        assert_eq!(BlockChoice::from_times(&[]), BlockChoice::always(BlockMethod::Copies));
        assert_eq!(BlockChoice::always(BlockMethod::Batch).method(1 << 21), BlockMethod::Batch);
    }
}
