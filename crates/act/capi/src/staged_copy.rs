//! Copies between pageable memory and a GPU.

use std::sync::atomic::Ordering;

use pathline_gpu::PointerKind;
use pathline_schema::Bytes;

use crate::copy_error::CopyError;
use crate::node::CopyNode;
use crate::staging_buffers::BUFFER;
use crate::staging_job::{HostEnd, StagedEnds, StagedJob, StagedOrder, StagedWay};
use crate::staging_plan::ProbedPlan;
use crate::staging_pool::StagedFault;
use crate::stream_order::CallEvents;

impl CopyNode {
    /// The ends, if one is a GPU's memory and the other pageable.
    pub(crate) fn staged_ends(&self, dst: u64, src: u64, bytes: usize) -> Option<StagedEnds> {
        let last = bytes.checked_sub(1)? as u64;
        let kinds = |at: u64| [at, at + last].map(|address| self.calls().pointer(address).kind);
        let ends = |way, host: u64, device_memory: u64, kinds: [PointerKind; 2]| match kinds {
            [PointerKind::Device(a), PointerKind::Device(b)] if a == b => {
                Some(StagedEnds { way, host, device_memory, bytes, device: a })
            }
            _ => None,
        };
        match (kinds(dst), kinds(src)) {
            (device, [PointerKind::Unknown, PointerKind::Unknown]) => {
                ends(StagedWay::In, src, dst, device)
            }
            ([PointerKind::Unknown, PointerKind::Unknown], device) => {
                ends(StagedWay::Out, dst, src, device)
            }
            _ => None,
        }
    }

    /// Copies through page-locked buffers. None if the plain copy is to be made: it is as good, or something failed.
    ///
    /// # Safety
    /// Live memory until the copy has ended, and a live stream.
    pub(crate) unsafe fn copy_staged(
        &self,
        ends: &StagedEnds,
        order: StagedOrder,
    ) -> Option<Result<(), CopyError>> {
        let plan = self.staging_plan(ends)?;
        let plan = plan.as_ref().as_ref().ok()?;
        let (threads, _) = plan.choose(ends.bytes, self.shared.min_gain, self.shared.now())?;
        let is_first = match order {
            // SAFETY: the caller's promise.
            StagedOrder::Stream(stream) => unsafe { self.wait_for_stream(stream) },
            StagedOrder::Waits => self.wait_default_stream(ends.device).is_ok(),
        };
        // The runtime says what is wrong with memory that is not there; a thread of this library would crash.
        let last = ends.host + (ends.bytes as u64 - 1);
        if !is_first || ![ends.host, last].into_iter().all(is_readable) {
            return None;
        }
        let begun = self.shared.now();
        // SAFETY: the caller's promise.
        match unsafe { self.run_staged(HostEnd::Memory(ends.host), ends, order, threads) } {
            Ok(()) => {}
            Err(StagedFailure::Order(error)) => return Some(Err(error)),
            Err(StagedFailure::Copy(_)) => {
                self.shared.counters.fallbacks.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        let now = self.shared.now();
        let plain = plan.plain.time(Bytes(ends.bytes as u64));
        let is_off = plan.classes.note(ends.bytes as u64, (plain, now - begun), now);
        self.shared.counters.add_staged(ends.bytes, is_off);
        Some(Ok(()))
    }

    /// The plan for such ends, probed if they are new. None without threads.
    pub(crate) fn staging_plan(&self, ends: &StagedEnds) -> Option<ProbedPlan> {
        let probe = || self.probe_staging(ends.device, ends.way);
        (self.copy_threads > 0).then(|| self.staging_plans.get((ends.device, ends.way), probe))
    }

    /// Waits until the work of a stream before this call has ended. False if it is captured, or cannot be waited for.
    pub(crate) unsafe fn wait_for_stream(&self, stream: usize) -> bool {
        let calls = self.calls();
        // SAFETY: a live stream; the event is live until `events` is dropped.
        unsafe {
            if calls.is_capturing(stream) != Ok(false) {
                return false;
            }
            let Ok(entered) = calls.enter_stream(stream) else { return false };
            let mut events = CallEvents { calls, made: Vec::new() };
            let is_over = events.make().is_some_and(|event| {
                calls.event_record(event, stream).1 == 0 && calls.event_wait(event).1 == 0
            });
            drop(events);
            calls.leave(entered);
            is_over
        }
    }

    /// Makes a copy with some threads.
    ///
    /// # Safety
    /// As [`Self::copy_staged`].
    pub(crate) unsafe fn run_staged(
        &self,
        host: HostEnd,
        ends: &StagedEnds,
        order: StagedOrder,
        threads: usize,
    ) -> Result<(), StagedFailure> {
        let calls = self.calls();
        let mut events = CallEvents { calls, made: Vec::new() };
        if ends.way == StagedWay::In {
            let entered =
                calls.enter(ends.device).map_err(|_| StagedFailure::Copy(StagedFault::Copy))?;
            (0..threads).for_each(|_| {
                events.make();
            });
            calls.leave(entered);
            if events.made.len() < threads {
                return Err(StagedFailure::Copy(StagedFault::Copy));
            }
        }
        let near = self.finder.gpu(ends.device).and_then(|gpu| self.finder.near.get(gpu as usize));
        let job = StagedJob::new(
            (ends.way, ends.device, near.cloned().unwrap_or_default()),
            (host, ends.device_memory, ends.bytes),
            (threads, events.made.clone()),
            BUFFER,
        );
        let recorded = self.staging.run(job).map_err(StagedFailure::Copy)?;
        for event in recorded.into_iter().filter_map(|nth| events.made.get(nth)) {
            // SAFETY: a live event, and the caller's promise.
            let status = unsafe {
                match order {
                    StagedOrder::Waits => calls.event_wait(*event),
                    StagedOrder::Stream(stream) => calls.stream_wait_event(stream, *event),
                }
            };
            // SAFETY: a live event. What does not wait for the copy must not overtake it.
            if status.1 != 0 && unsafe { calls.event_wait(*event) }.1 != 0 {
                let thing = format!("{} bytes of pageable memory", ends.bytes);
                return Err(StagedFailure::Order(CopyError::refused(calls, &thing, status)));
            }
        }
        Ok(())
    }
}

/// Why a copy was not made.
pub(crate) enum StagedFailure {
    /// Nothing is in flight, and any byte may be wrong.
    Copy(StagedFault),
    /// Neither a stream nor the host can wait for it.
    Order(CopyError),
}

/// Whether this process can read a byte.
fn is_readable(address: u64) -> bool {
    let mut byte = 0_u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: 1 };
    // SAFETY: the kernel copies one byte into `byte`, or reports that there is none.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) };
    // Where the call is forbidden, the caller's promise has to do.
    read == 1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}
