//! Copies that take their place in the streams of a caller, by events that the caller's thread records.

use std::sync::atomic::Ordering;

use pathline_gpu::CallerCalls;

use crate::copy_error::CopyError;
use crate::node::CopyNode;
use crate::orders::{CallerOrder, OrderedCopy};
use crate::worker::{EnqueuedOrder, WorkerReply};

/// The legacy default stream by its two handles, and the default stream of a thread.
const LEGACY: [usize; 2] = [0, 1];
const PER_THREAD: usize = 2;

thread_local! {
    /// Its address names the thread's default stream.
    static THREAD_NAME: u8 = const { 0 };
}

/// Events of one call.
struct CallEvents<'c> {
    calls: &'c dyn CallerCalls,
    made: Vec<usize>,
}

impl CallEvents<'_> {
    /// An event of the current context.
    fn make(&mut self) -> Option<usize> {
        let event = self.calls.event_create().ok()?;
        self.made.push(event);
        Some(event)
    }
}

impl Drop for CallEvents<'_> {
    fn drop(&mut self) {
        for event in self.made.drain(..) {
            // SAFETY: made by this call, destroyed once.
            unsafe { self.calls.event_destroy(event) };
        }
    }
}

/// A name of a stream that no other live stream of the process has. Handles of streams are addresses above those
/// of the legacy streams.
fn stream_name(handle: usize, device: i32) -> u64 {
    match handle {
        _ if LEGACY.contains(&handle) => 16 + u64::from(device.unsigned_abs()),
        PER_THREAD => THREAD_NAME.with(|name| std::ptr::from_ref(name) as u64),
        _ => handle as u64,
    }
}

impl CopyNode {
    /// Enqueues copies in the order of streams. None if the caller is to make them plainly.
    ///
    /// # Safety
    /// Live memory until the streams have passed the copies, and live streams.
    pub(crate) unsafe fn enqueue(
        &self,
        copies: Vec<OrderedCopy>,
        streams: &[usize],
    ) -> Option<Result<(), CopyError>> {
        let mut events = CallEvents { calls: self.calls(), made: Vec::new() };
        // SAFETY: the caller's promise.
        let order = unsafe { self.record_place(&mut events, &copies, streams) }?;
        let done = order.done.clone();
        let WorkerReply::Enqueued(enqueued) = self.send(copies.clone(), Some(order))? else {
            return None;
        };
        // SAFETY: the caller's promise.
        Some(unsafe { self.pass_copies(&copies, streams, &done, &enqueued) })
    }

    /// Records an event on each stream, and makes one for each GPU at which a copy ends.
    unsafe fn record_place(
        &self,
        events: &mut CallEvents<'_>,
        copies: &[OrderedCopy],
        streams: &[usize],
    ) -> Option<CallerOrder> {
        let calls = events.calls;
        let mut order = CallerOrder { after: Vec::new(), done: Vec::new(), streams: Vec::new() };
        for &stream in streams {
            // SAFETY: the caller's promise.
            unsafe {
                if calls.is_capturing(stream) != Ok(false) {
                    return None;
                }
                order.streams.push(stream_name(stream, calls.stream_device(stream).ok()?));
                let entered = calls.enter_stream(stream).ok()?;
                let event = events.make();
                let recorded = event.map(|event| calls.event_record(event, stream));
                calls.leave(entered);
                if recorded?.1 != 0 {
                    return None;
                }
                order.after.extend(event);
            }
        }
        for at in copies.iter().map(OrderedCopy::at) {
            let gpu = at?;
            if order.done.iter().any(|(known, _)| *known == gpu) {
                continue;
            }
            let entered = calls.enter(self.device(gpu)?).ok()?;
            let event = events.make();
            calls.leave(entered);
            order.done.push((gpu, event?));
        }
        Some(order)
    }

    /// Makes the streams wait for what is enqueued, and copies plainly what is not.
    unsafe fn pass_copies(
        &self,
        copies: &[OrderedCopy],
        streams: &[usize],
        done: &[(u32, usize)],
        enqueued: &EnqueuedOrder,
    ) -> Result<(), CopyError> {
        let calls = self.calls();
        let recorded = enqueued.recorded.iter().filter_map(|nth| done.get(*nth));
        for &(gpu, event) in recorded {
            for &stream in streams {
                // SAFETY: a live event, and the caller's promise.
                let status = unsafe { calls.stream_wait_event(stream, event) };
                if status.1 != 0 {
                    // SAFETY: a live event. Work after this call must not overtake the copy.
                    let _ = unsafe { calls.event_wait(event) };
                    return Err(self.refused(&format!("gpu{gpu}"), status));
                }
            }
        }
        for copy in enqueued.plain.iter().filter_map(|nth| copies.get(*nth)) {
            // SAFETY: the caller's promise.
            unsafe { self.copy_ends_plainly(copy, streams)? };
        }
        Ok(())
    }

    /// The runtime's own copies to each destination, in the order of one stream or of one for each.
    pub(crate) unsafe fn copy_ends_plainly(
        &self,
        copy: &OrderedCopy,
        streams: &[usize],
    ) -> Result<(), CopyError> {
        let src = copy.src.end.address;
        for (nth, dst) in copy.dst.iter().enumerate() {
            let Some(&stream) = streams.get(nth).or(streams.first()) else { continue };
            self.shared.counters.plain.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller's promise.
            unsafe {
                self.copy_plainly(dst.end.address, src, copy.bytes as usize, Some(stream))?;
            }
        }
        Ok(())
    }
}
