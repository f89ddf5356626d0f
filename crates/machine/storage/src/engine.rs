//! I/O engines: calls by which a worker submits blocks to the kernel and reaps them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use pathline_hal::CallError;
use pathline_schema::PageFaults;

/// The blocks of a worker: memory, one block a slot, and the file.
#[derive(Debug, Clone)]
pub(super) struct WorkerBlocks {
    pub(super) file: Arc<File>,
    /// Address of slot 0.
    pub(super) memory: u64,
    /// Bytes of one.
    pub(super) block: u32,
    pub(super) slots: u32,
}

impl WorkerBlocks {
    #[inline]
    pub(super) fn address(&self, slot: u32) -> u64 {
        self.memory + u64::from(slot) * u64::from(self.block)
    }
}

/// The end of one I/O: its slot, and the bytes that were moved or a negative error number.
pub(super) type FinishedIo = (u32, i32);

/// A method of I/O. One thread creates and uses it.
pub(super) trait BlockEngine {
    /// The call that hands over and waits.
    fn call(&self) -> &'static str;
    /// The engine and its active settings, for the record.
    fn describe(&self) -> String;
    /// Notes an I/O of a slot that is free.
    fn push(&mut self, slot: u32, write: bool, offset: u64);
    /// Hands over what was noted and waits until `wait` I/Os have ended, which must be in flight.
    /// Appends the completed I/Os, at least `wait`, to `ended`.
    fn enter(&mut self, wait: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()>;
    /// Waits until nothing is in flight, after something failed; what was noted only is forgotten. How
    /// many I/Os could not be waited for: the kernel may still use their memory.
    fn settle(&mut self) -> u32 {
        0
    }
    /// The error behind an I/O that failed, or behind [`BlockEngine::enter`], if the engine knows more than
    /// a number.
    fn explain(&mut self) -> Option<CallError> {
        None
    }
    /// Page faults of this thread so far, if blocks pass a mapping.
    fn page_faults(&self) -> Option<PageFaults> {
        None
    }
    /// Lets go of pages after a round, so that the page cache can drop them.
    fn forget_pages(&mut self) {}
    /// Whether kernel threads may do I/O in the worker's place.
    fn has_helpers(&self) -> bool {
        false
    }
    /// Lets go of memory that it has locked, and by which call, if it has.
    fn let_go(&mut self) -> Option<&'static str> {
        None
    }
}

/// `pread` and `pwrite`: an I/O ends before the call returns.
#[derive(Debug)]
pub(super) struct SyncEngine {
    blocks: WorkerBlocks,
    writes: bool,
    next: Option<(u32, bool, u64)>,
}

impl SyncEngine {
    pub(super) fn new(blocks: WorkerBlocks, writes: bool) -> Self {
        Self { blocks, writes, next: None }
    }
}

impl BlockEngine for SyncEngine {
    fn call(&self) -> &'static str {
        if self.writes { "pwrite" } else { "pread" }
    }
    fn describe(&self) -> String {
        "pread and pwrite".to_owned()
    }
    #[inline]
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        self.next = Some((slot, write, offset));
    }
    fn enter(&mut self, _: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        let Some((slot, write, offset)) = self.next.take() else { return Ok(()) };
        let (fd, len) = (self.blocks.file.as_raw_fd(), self.blocks.block as usize);
        let at = self.blocks.address(slot) as *mut libc::c_void;
        let offset = offset.cast_signed();
        loop {
            // SAFETY: the slot's block lies in memory that the round holds; only this thread has
            // I/O on it. The kernel refuses addresses that are not mapped.
            let done = unsafe {
                if write {
                    libc::pwrite(fd, at, len, offset)
                } else {
                    libc::pread(fd, at, len, offset)
                }
            };
            if done >= 0 {
                ended.push((slot, done as i32));
                return Ok(());
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                code => {
                    ended.push((slot, -code.unwrap_or(libc::EIO)));
                    return Ok(());
                }
            }
        }
    }
}
