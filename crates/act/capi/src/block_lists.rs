//! Lists of ranges for kernels: a ring of page-locked memory, which kernels read in place.

use pathline_gpu::{CallStatus, CallerCalls, CopyKernel};
use pathline_hal::kernel::{PIECES, piece_bytes};

/// Ranges of a list: with the pieces of long ranges, 4,096 ranges fit into one.
const LIST_RANGES: usize = 2 * PIECES;
/// Most lists of a GPU that wait for their kernel; 6 MiB.
const MAX_LISTS: usize = 32;
/// Flags of host memory that all contexts know and kernels address. Both runtimes have the same numbers.
pub(crate) const PINNED: u32 = 3;
/// All lists wait for their kernel: `CUDA_ERROR_NOT_READY`.
const ALL_WAIT: CallStatus = ("lists of ranges", 600);

/// Destination, source and bytes of a range, as kernels read it.
pub(crate) type BlockRange = [u64; 3];

#[derive(Debug)]
struct RangeList {
    address: u64,
    in_kernels: u64,
    /// Recorded after the kernel that reads it.
    event: usize,
    /// Whether the event was recorded; if that failed, the list is never used again.
    state: ListState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListState {
    Free,
    Waits,
    Lost,
}

/// The kernel of a GPU and its lists.
#[derive(Debug)]
pub(crate) struct BlockLists {
    kernel: CopyKernel,
    lists: Vec<RangeList>,
    next: usize,
}

impl BlockLists {
    pub(crate) fn new(kernel: CopyKernel) -> Self {
        Self { kernel, lists: Vec::new(), next: 0 }
    }

    /// Enqueues copies of ranges by thread blocks. After an error some may be enqueued.
    ///
    /// # Safety
    /// The kernel's device is current and reaches the ranges by these addresses; they live until the stream has passed
    /// the copies; and the stream is live.
    pub(crate) unsafe fn copy(
        &mut self,
        calls: &dyn CallerCalls,
        ranges: &[BlockRange],
        thread_blocks: u32,
        stream: usize,
    ) -> Result<(), CallStatus> {
        let piece = piece_bytes(ranges.iter().map(|range| range[2]).sum());
        let (mut left, mut at) = (ranges.iter().copied(), 0);
        let mut range = left.next();
        loop {
            let nth = self.take(calls)?;
            let list = &mut self.lists[nth];
            // SAFETY: memory of this list, of that many ranges, that no kernel reads any more.
            let room = unsafe {
                std::slice::from_raw_parts_mut(list.address as *mut BlockRange, LIST_RANGES)
            };
            let mut count = 0;
            for slot in room {
                let Some([dst, src, bytes]) = range else { break };
                let length = piece.min(bytes - at);
                *slot = [dst + at, src + at, length];
                (at, count) = (at + length, count + 1);
                if at >= bytes {
                    (range, at) = (left.next(), 0);
                }
            }
            if count == 0 {
                return Ok(());
            }
            let read = (list.in_kernels, count);
            // SAFETY: the caller's promise; the list is not written before its event has happened.
            let launched = unsafe { self.kernel.launch(calls, thread_blocks, read, stream) };
            if launched.1 != 0 {
                return Err(launched);
            }
            // SAFETY: a live event and the caller's promise.
            let recorded = unsafe { calls.event_record(list.event, stream) };
            list.state = if recorded.1 == 0 { ListState::Waits } else { ListState::Lost };
            if count < LIST_RANGES as u64 {
                return Ok(());
            }
        }
    }

    /// A list that no kernel reads any more. Nothing waits for one: the stream may wait for this thread.
    fn take(&mut self, calls: &dyn CallerCalls) -> Result<usize, CallStatus> {
        let count = self.lists.len();
        for nth in (0..count).map(|nth| (self.next + nth) % count) {
            let list = &mut self.lists[nth];
            if list.state == ListState::Waits && is_over(calls, list.event) {
                list.state = ListState::Free;
            }
            if list.state == ListState::Free {
                self.next = nth + 1;
                return Ok(nth);
            }
        }
        if count == MAX_LISTS {
            return Err(ALL_WAIT);
        }
        let (call, mut address) = (&calls.api().host_alloc, 0);
        let bytes = LIST_RANGES * size_of::<BlockRange>();
        // SAFETY: stores an address.
        let code = unsafe { (call.at)(&raw mut address, bytes, PINNED) };
        if code != 0 {
            return Err((call.name, code));
        }
        let in_kernels = calls.kernel_access(address).address;
        let state = if in_kernels == 0 { ListState::Lost } else { ListState::Free };
        let event = calls.event_create(false).inspect_err(|_| free_host(calls, address))?;
        self.lists.push(RangeList { address, in_kernels, event, state });
        if state == ListState::Lost { Err(ALL_WAIT) } else { Ok(count) }
    }

    /// Frees everything, with the device current. Freeing waits for kernels that read a list.
    pub(crate) fn free(self, calls: &dyn CallerCalls) {
        for list in self.lists {
            free_host(calls, list.address);
            // SAFETY: an event of this list, destroyed once.
            unsafe { calls.event_destroy(list.event) };
        }
        self.kernel.unload(calls);
    }
}

/// Whether an event has happened.
fn is_over(calls: &dyn CallerCalls, event: usize) -> bool {
    // SAFETY: a live event.
    calls.api().event_query.is_some_and(|query| unsafe { (query.at)(event) } == 0)
}

fn free_host(calls: &dyn CallerCalls, address: u64) {
    // SAFETY: host memory of the runtime, freed once. A failure leaks it.
    unsafe { (calls.api().host_free.at)(address) };
}
