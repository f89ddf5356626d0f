//! Copies that take their place in the streams of a caller, by events that the caller's thread records.

use pathline_gpu::CallerCalls;

use crate::copy_error::CopyError;
use crate::node::CopyNode;
use crate::orders::{CallerOrder, EnqueuedOrder, OrderedCopy, WorkerReply};

/// The legacy default stream by its two handles, and the default stream of a thread.
const LEGACY: [usize; 2] = [0, 1];
const PER_THREAD: usize = 2;

thread_local! {
    /// Its address names the thread's default stream.
    static THREAD_NAME: u8 = const { 0 };
}

/// Events of one call.
pub(crate) struct CallEvents<'c> {
    pub(crate) calls: &'c dyn CallerCalls,
    pub(crate) made: Vec<usize>,
}

impl CallEvents<'_> {
    /// An event of the current context.
    pub(crate) fn make(&mut self) -> Option<usize> {
        let event = self.calls.event_create(false).ok()?;
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
    /// Enqueues copies in the order of streams. Returns the numbers of the copies that the caller makes plainly.
    ///
    /// # Errors
    /// The streams do not wait for what is enqueued, so the host has waited for it.
    ///
    /// # Safety
    /// Live memory until the streams have passed the copies, and live streams.
    pub(crate) unsafe fn enqueue(
        &self,
        copies: &[OrderedCopy],
        streams: &[usize],
    ) -> Result<Vec<usize>, CopyError> {
        let mut events = CallEvents { calls: self.calls(), made: Vec::new() };
        // SAFETY: the caller's promise.
        let order = unsafe { self.record_place(&mut events, copies, streams) };
        let done = order.as_ref().map(|order| order.done.clone()).unwrap_or_default();
        let reply = order.and_then(|order| self.send(copies.to_vec(), Some(order)));
        let Some(WorkerReply::Enqueued(EnqueuedOrder { recorded, plain })) = reply else {
            return Ok((0..copies.len()).collect());
        };
        for &(gpu, event) in recorded.iter().filter_map(|nth| done.get(*nth)) {
            for &stream in streams {
                // SAFETY: a live event, and the caller's promise.
                let status = unsafe { self.calls().stream_wait_event(stream, event) };
                if status.1 != 0 {
                    // SAFETY: a live event. Work after this call must not overtake the copy.
                    let _ = unsafe { self.calls().event_wait(event) };
                    return Err(CopyError::refused(self.calls(), &format!("gpu{gpu}"), status));
                }
            }
        }
        Ok(plain)
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
}
