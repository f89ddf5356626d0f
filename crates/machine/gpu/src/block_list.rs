//! Lists of ranges in page-locked memory, and the kernel that copies them in place.

use std::collections::BTreeMap;

use pathline_hal::{CallError, CallResult, KernelId, kernel};
use pathline_schema::{Bytes, MemKind, Place, Unit};

use super::driver::{GpuDriver, no_such};
use super::function_table::RuntimeHandle;
use super::loaded_kernels::BlockList;

const CALL: &str = "block_copies";

impl GpuDriver {
    /// Compiles the kernel and writes the list.
    pub(crate) fn make_list(
        &self,
        gpu: u32,
        copies: &[(u64, u64, Bytes)],
        thread_blocks: u32,
    ) -> CallResult<KernelId> {
        let function = self.function(gpu, kernel::BLOCKS, kernel::COPY_BLOCKS)?;
        let reads = self.spans(gpu, copies.iter().map(|&(_, src, bytes)| (src, bytes)))?;
        let writes = self.spans(gpu, copies.iter().map(|&(dst, _, bytes)| (dst, bytes)))?;
        let words: Vec<[u64; 3]> = kernel::pieces(copies).collect();
        let near = self.device(CALL, gpu)?.info.numa.unwrap_or_default();
        let bytes = Bytes(size_of_val(words.as_slice()).max(1) as u64);
        let address = self.allocate(Place::new(Unit::Numa(near), MemKind::Pinned), bytes)?;
        // SAFETY: page-locked memory of the host, of that many words, which nothing else uses yet.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), address as *mut _, words.len()) };
        let (count, spans) = (words.len() as u64, [reads, writes]);
        let list = BlockList { gpu, function, thread_blocks, address, count, spans };
        let id = self.id();
        self.loaded.borrow_mut().lists.insert(id, list);
        Ok(KernelId(id))
    }

    /// From the first to the last of some ranges in each buffer.
    ///
    /// # Errors
    /// Kernels of the GPU do not reach one.
    fn spans(
        &self,
        gpu: u32,
        ranges: impl Iterator<Item = (u64, Bytes)>,
    ) -> CallResult<Vec<(u64, Bytes)>> {
        let mut spans = BTreeMap::<u64, (u64, u64)>::new();
        for (address, bytes) in ranges {
            self.reaches_kernel(gpu, address, bytes)?;
            let start = self.blocks.borrow().holding(address).map_or(address, |(start, _)| start);
            let span = spans.entry(start).or_insert((address, address));
            *span = (span.0.min(address), span.1.max(address + bytes.0));
        }
        Ok(spans.into_values().map(|(from, to)| (from, Bytes(to - from))).collect())
    }

    /// Enqueues the copies of a list as one kernel.
    pub(crate) fn launch_list(
        &self,
        gpu: u32,
        stream: RuntimeHandle,
        kernel: KernelId,
    ) -> CallResult<()> {
        let (function, thread_blocks, mut words, [reads, writes]) = {
            let loaded = self.loaded.borrow();
            let list = loaded.lists.get(&kernel.0);
            let list = list.ok_or_else(|| no_such(CALL, &format!("list {}", kernel.0)))?;
            if list.gpu != gpu {
                let thing = format!("a list on gpu{gpu}");
                let reason = "it was made for another GPU";
                return Err(CallError::unsupported(CALL, thing, reason));
            }
            let words = [list.address, list.count];
            (list.function, list.thread_blocks, words, list.spans.clone())
        };
        for &(address, bytes) in reads.iter().chain(&writes) {
            self.reaches_kernel(gpu, address, bytes)?;
        }
        for (address, bytes) in writes {
            self.overwritten(address, bytes);
        }
        self.enqueue(stream, function, (thread_blocks, kernel::COPY_BLOCK, 0), &mut words)
    }

    /// Frees a list, once the GPU has done with it. False if there is none of that number.
    pub(crate) fn free_list(&self, kernel: KernelId) -> CallResult<bool> {
        let list = self.loaded.borrow_mut().lists.remove(&kernel.0);
        list.map_or(Ok(false), |list| self.release(list.address).map(|()| true))
    }
}
