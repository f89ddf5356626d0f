//! What a thread that copies pageable memory owns: page-locked buffers, and a stream and events on each GPU.

use std::collections::BTreeMap;

use pathline_gpu::{CallStatus, CallerCalls};
use pathline_schema::{COPY_BUFFER, COPY_BUFFERS};

/// Bytes of a buffer.
pub(crate) const BUFFER: usize = COPY_BUFFER.0 as usize;
/// Buffers of a thread.
pub(crate) const BUFFERS: usize = COPY_BUFFERS;

/// A stream of one GPU and an event for each buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GpuLane {
    pub(crate) stream: usize,
    pub(crate) events: [usize; BUFFERS],
}

/// Page-locked memory of this thread.
#[derive(Debug)]
pub(crate) struct StagingBuffers<'c> {
    calls: &'c dyn CallerCalls,
    address: u64,
    lanes: BTreeMap<i32, GpuLane>,
    /// The event after which each buffer is free; none if it is.
    busy: [Option<usize>; BUFFERS],
}

impl<'c> StagingBuffers<'c> {
    /// Maps and page-locks the buffers, near the CPU of this thread. A context of the runtime is current.
    ///
    /// # Errors
    /// Memory is short, or may not be locked.
    pub(crate) fn allocate(calls: &'c dyn CallerCalls) -> Result<Self, CallStatus> {
        let bytes = BUFFER * BUFFERS;
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, how, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(("mmap", libc::ENOMEM));
        }
        // SAFETY: a mapping of that size; huge pages are a wish. The first store places its pages.
        unsafe {
            libc::madvise(at, bytes, libc::MADV_HUGEPAGE);
            std::ptr::write_bytes(at.cast::<u8>(), 0, bytes);
        }
        // SAFETY: a mapping that lives until `drop` unregisters it.
        let status = unsafe { calls.host_register(at as u64, bytes) };
        if status.1 != 0 {
            // SAFETY: a mapping of this function, given back once.
            unsafe { libc::munmap(at, bytes) };
            return Err(status);
        }
        Ok(Self { calls, address: at as u64, lanes: BTreeMap::new(), busy: [None; BUFFERS] })
    }

    /// The lane on a GPU, whose context is current.
    pub(crate) fn lane(&mut self, device: i32) -> Result<GpuLane, CallStatus> {
        if let Some(lane) = self.lanes.get(&device) {
            return Ok(*lane);
        }
        let stream = self.calls.stream_create()?;
        let mut events = [0; BUFFERS];
        for nth in 0..BUFFERS {
            match self.calls.event_create(true) {
                Ok(event) => events[nth] = event,
                Err(status) => {
                    // SAFETY: made by this call, destroyed once.
                    unsafe {
                        events[..nth].iter().for_each(|&event| self.calls.event_destroy(event));
                        self.calls.stream_destroy(stream);
                    }
                    return Err(status);
                }
            }
        }
        let lane = GpuLane { stream, events };
        self.lanes.insert(device, lane);
        Ok(lane)
    }

    /// The address of a buffer that no copy uses any more.
    pub(crate) fn wait_for(&mut self, nth: usize) -> Result<u64, CallStatus> {
        if let Some(event) = self.busy[nth].take() {
            // SAFETY: a live event of a lane.
            let status = unsafe { self.calls.event_wait(event) };
            if status.1 != 0 {
                return Err(status);
            }
        }
        Ok(self.address + (nth * BUFFER) as u64)
    }

    /// Enqueues a copy that uses a buffer, to or from it.
    pub(crate) fn enqueue(
        &mut self,
        lane: &GpuLane,
        nth: usize,
        (dst, src, bytes): (u64, u64, usize),
    ) -> Result<(), CallStatus> {
        // SAFETY: the caller of the library vouches for its range, the other lies in a buffer, and stream and event
        // are live.
        let (copied, recorded) = unsafe {
            let copied = self.calls.copy_async(dst, src, bytes, lane.stream);
            (copied, self.calls.event_record(lane.events[nth], lane.stream))
        };
        self.busy[nth] = Some(lane.events[nth]);
        [copied, recorded].into_iter().find(|status| status.1 != 0).map_or(Ok(()), Err)
    }

    /// Waits until no copy uses a buffer.
    pub(crate) fn drain(&mut self) {
        for nth in 0..BUFFERS {
            let _ = self.wait_for(nth);
        }
    }
}

impl Drop for StagingBuffers<'_> {
    fn drop(&mut self) {
        self.drain();
        for lane in self.lanes.values() {
            // SAFETY: made by this value, destroyed once.
            unsafe {
                lane.events.iter().for_each(|&event| self.calls.event_destroy(event));
                self.calls.stream_destroy(lane.stream);
            }
        }
        // SAFETY: no copy uses the mapping of `allocate`, which is given back once.
        unsafe {
            self.calls.host_unregister(self.address);
            libc::munmap(self.address as *mut libc::c_void, BUFFER * BUFFERS);
        }
    }
}
