//! The engine of mapped files: blocks are copied by the worker between a shared mapping and its slots.

use std::io;
use std::os::fd::AsRawFd;

use pathline_schema::{IoCache, IoEngine, IoOrder, IoSpec, PageFaults};

use super::engine::{BlockEngine, FinishedIo, WorkerBlocks};

/// A mapping of a whole file. A page behind the file's end raises SIGBUS when it is touched, which ends the
/// worker process and costs the case.
pub(super) struct MappedEngine {
    blocks: WorkerBlocks,
    address: *mut libc::c_void,
    bytes: usize,
    engine: IoEngine,
    order: IoOrder,
    cold: bool,
    next: Option<(u32, bool, u64)>,
}

impl MappedEngine {
    pub(super) fn new(blocks: WorkerBlocks, io: &IoSpec) -> io::Result<Self> {
        let too_long = |_| io::Error::from_raw_os_error(libc::EOVERFLOW);
        let bytes = usize::try_from(io.span.0).map_err(too_long)?;
        let access = libc::PROT_READ | if io.writes() { libc::PROT_WRITE } else { 0 };
        let file = blocks.file.as_raw_fd();
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let (engine, order, cold) = (io.engine, io.order, io.cache == IoCache::Cold);
        let made = Self { blocks, address, bytes, engine, order, cold, next: None };
        if engine == IoEngine::Mmap {
            let advice = match order {
                IoOrder::Seq => libc::MADV_SEQUENTIAL,
                IoOrder::Rand => libc::MADV_RANDOM,
            };
            made.advise(address, bytes, advice)?;
        }
        Ok(made)
    }

    fn advise(&self, at: *mut libc::c_void, bytes: usize, advice: i32) -> io::Result<()> {
        // SAFETY: the range is part of this mapping; none of these advices changes what a shared mapping of a
        // file holds.
        match unsafe { libc::madvise(at, bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Asks for the pages of a block; the range begins at a page.
    fn populate(&self, offset: usize, len: usize, write: bool) -> io::Result<()> {
        let page = pathline_host::memory::page_size().max(1);
        let first = offset / page * page;
        let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        self.advise(self.address.wrapping_byte_add(first), offset + len - first, advice)
    }
}

impl BlockEngine for MappedEngine {
    fn call(&self) -> &'static str {
        "copy of a mapping"
    }

    fn describe(&self) -> String {
        let advice = match (self.engine, self.order) {
            (IoEngine::MmapPopulate, _) => "MADV_POPULATE of each block",
            (IoEngine::MmapPlain, _) => "no advice",
            (_, IoOrder::Seq) => "MADV_SEQUENTIAL",
            (_, IoOrder::Rand) => "MADV_RANDOM",
        };
        format!("mmap, MAP_SHARED, {advice}")
    }

    #[inline]
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        self.next = Some((slot, write, offset));
    }

    fn enter(&mut self, _: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        let Some((slot, write, offset)) = self.next.take() else { return Ok(()) };
        let len = self.blocks.block as usize;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            ended.push((slot, -libc::EINVAL));
            return Ok(());
        }
        if self.engine == IoEngine::MmapPopulate
            && let Err(error) = self.populate(offset, len, write)
        {
            ended.push((slot, -error.raw_os_error().unwrap_or(libc::EIO)));
            return Ok(());
        }
        let block = self.blocks.address(slot) as *mut u8;
        let file = self.address.wrapping_byte_add(offset).cast::<u8>();
        // SAFETY: the range of the mapping was checked, and the slot's block lies in memory that the round
        // holds, of which only this thread uses this part. Both do not overlap: the kernel chose the address of
        // the mapping. Other workers may store to the same part of the file, whose bytes no code relies on.
        unsafe {
            if write {
                std::ptr::copy_nonoverlapping(block, file, len);
            } else {
                std::ptr::copy_nonoverlapping(file, block, len);
            }
        }
        ended.push((slot, self.blocks.block.cast_signed()));
        Ok(())
    }

    fn page_faults(&self) -> Option<PageFaults> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the struct, which is valid when zeroed.
        let usage = unsafe {
            if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
                return None;
            }
            usage.assume_init()
        };
        let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
        Some(PageFaults { minor: count(usage.ru_minflt), major: count(usage.ru_majflt) })
    }

    /// Pages that are mapped stay in the page cache, whatever `fadvise` asks for.
    fn forget_pages(&mut self) {
        if self.cold {
            let _ = self.advise(self.address, self.bytes, libc::MADV_DONTNEED);
        }
    }

    fn let_go(&mut self) -> Option<&'static str> {
        self.unmap().then_some("munmap")
    }
}

impl MappedEngine {
    fn unmap(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.bytes);
        // SAFETY: this mapping, once: nothing is copied afterwards, since no offset fits any more.
        bytes > 0 && unsafe { libc::munmap(self.address, bytes) } == 0
    }
}

impl Drop for MappedEngine {
    fn drop(&mut self) {
        self.unmap();
    }
}
