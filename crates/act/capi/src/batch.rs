//! Copies of a batch: adjacent copies are merged.

use pathline_multipath::CopyMode;

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
        let threshold = self.shared.threshold;
        let (mut large, mut whole): (Vec<OrderedCopy>, Vec<MergedCopy>) = Default::default();
        for copy in merge_adjacent(copies, |address| self.calls.pointer(address).allocation()) {
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
