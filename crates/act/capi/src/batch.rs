//! Copies of a batch: adjacent copies are merged.

use pathline_gpu::CAPTURE_RELAXED;
use pathline_multipath::CopyMode;

use crate::batch_room::BatchRoom;
use crate::copy_error::CopyError;
use crate::node::CopyNode;
use crate::orders::OrderedCopy;
use crate::ranges::{MergedCopy, merge_adjacent};

/// Most copies of a batch that the worker takes at once.
const MAX_BATCH: usize = 1024;

impl CopyNode {
    /// Copies `(dst, src, bytes)` in the order of a stream, in any order among themselves. Copies that
    /// continue one another within an allocation count as one, unless the runtime refuses that one.
    ///
    /// # Errors
    /// As [`Self::copy_async`], with the number of the copy; others may have been enqueued.
    ///
    /// # Safety
    /// As [`Self::copy_async`].
    pub unsafe fn copy_batch_async(
        &self,
        copies: &[(u64, u64, usize)],
        stream: usize,
    ) -> Result<(), CopyError> {
        let mut room = BatchRoom::take();
        merge_adjacent(&mut room.merged, copies, |at| self.calls.pointer(at).allocation());
        // SAFETY: the caller's promise.
        let copied = unsafe {
            self.copy_blocks(&mut room, stream);
            self.copy_others(&mut room.merged, copies, stream)
        };
        room.give_back();
        copied
    }

    /// Enqueues those copies of a batch of many that something is faster for than a call each; leaves the others.
    unsafe fn copy_blocks(&self, room: &mut BatchRoom, stream: usize) {
        if !self.blocks.is_for(&room.merged) {
            return;
        }
        let calls = self.calls();
        // SAFETY: the caller's promise.
        unsafe {
            let (Ok(false), Ok(device)) = (calls.is_capturing(stream), calls.stream_device(stream))
            else {
                return;
            };
            let Ok(entered) = calls.enter_stream(stream) else { return };
            let mode = calls.exchange_capture_mode(CAPTURE_RELAXED);
            if calls.is_primary(entered, device) {
                self.blocks.copy(room, device, stream);
            }
            calls.exchange_capture_mode(mode);
            calls.leave(entered);
        }
    }

    /// Copies what is left of a batch.
    unsafe fn copy_others(
        &self,
        merged: &mut Vec<MergedCopy>,
        copies: &[(u64, u64, usize)],
        stream: usize,
    ) -> Result<(), CopyError> {
        let threshold = self.shared.threshold;
        let (mut large, mut whole): (Vec<OrderedCopy>, Vec<MergedCopy>) = Default::default();
        for copy in merged.drain(..) {
            let plan = match copy.bytes >= threshold {
                true => self.plan_copy(copy.dst, copy.src, copy.bytes, CopyMode::Enqueued),
                false => Ok(Err("below the threshold")),
            };
            match plan {
                Ok(Ok(planned)) => {
                    large.push(planned);
                    whole.push(copy);
                }
                Err(error) if copy.parts.len() == 1 => {
                    return Err(error.of_batch(copy.parts.start));
                }
                // SAFETY: the caller's promise.
                Ok(Err(_)) | Err(_) => unsafe { self.copy_merged(&copy, copies, stream)? },
            }
        }
        for (large, whole) in large.chunks(MAX_BATCH).zip(whole.chunks(MAX_BATCH)) {
            // SAFETY: the caller's promise.
            let left = unsafe { self.enqueue(large, &[stream])? };
            for copy in left.into_iter().filter_map(|nth| whole.get(nth)) {
                // SAFETY: the caller's promise.
                unsafe { self.copy_merged(copy, copies, stream)? };
            }
        }
        Ok(())
    }

    /// The runtime's own copy in place of several of a batch; if that is refused, each by itself.
    unsafe fn copy_merged(
        &self,
        whole: &MergedCopy,
        copies: &[(u64, u64, usize)],
        stream: usize,
    ) -> Result<(), CopyError> {
        let MergedCopy { dst, src, bytes, ref parts } = *whole;
        // SAFETY: the caller's promise.
        match unsafe { self.copy_alone(dst, src, bytes, Some(stream)) } {
            Err(error) if parts.len() == 1 => return Err(error.of_batch(parts.start)),
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
        let parts = parts.clone().zip(copies.get(parts.clone()).unwrap_or_default());
        for (nth, &(dst, src, bytes)) in parts {
            // SAFETY: the caller's promise.
            let copied = unsafe { self.copy_plainly(dst, src, bytes, Some(stream)) };
            copied.map_err(|error| error.of_batch(nth))?;
        }
        Ok(())
    }
}
