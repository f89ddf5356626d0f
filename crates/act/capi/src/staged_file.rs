//! A range of a file that threads read into page-locked buffers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::read_gate::ReadGate;

/// What ended the reading of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileFault {
    /// Offset in the file of the first byte that could not be read.
    pub(crate) offset: u64,
    /// `errno`; none at the end of the file.
    pub(crate) code: Option<i32>,
}

/// A file that a caller holds open.
#[derive(Debug)]
pub(crate) struct StagedFile {
    file: RawFd,
    /// The same past the page cache, if its file system has that.
    direct: Option<File>,
    /// Who reads it next.
    gate: ReadGate,
    /// Where the copy begins in it.
    start: u64,
}

/// Chunks start at multiples of this many bytes of the copy; reads past the page cache at those of the file.
pub(crate) const GRAIN: usize = 4096;
/// `cachestat`, Linux 6.5; libc names it on few targets.
const SYS_CACHESTAT: libc::c_long = 451;

impl StagedFile {
    pub(crate) fn new(file: RawFd, start: u64) -> Self {
        let mut open = OpenOptions::new();
        open.read(true).custom_flags(libc::O_DIRECT | libc::O_NONBLOCK);
        // A path of this process; the program may have passed a file that it may not open once more.
        let direct = open.open(format!("/proc/self/fd/{file}")).ok();
        Self { file, direct, gate: ReadGate::default(), start }
    }

    /// Reads bytes of the copy into a buffer that is a multiple of [`GRAIN`] and has two more of them. The address of
    /// the first one: pages that are cached come from there, others past the cache.
    ///
    /// # Safety
    /// Nothing else uses the buffer.
    pub(crate) unsafe fn read(
        &self,
        buffer: u64,
        offset: usize,
        bytes: usize,
    ) -> Result<u64, FileFault> {
        let start = self.start + offset as u64;
        if is_cached(self.file, start, bytes as u64) {
            // SAFETY: the caller's promise.
            let cached = unsafe { read_some(self.file, (buffer, bytes), start, libc::RWF_NOWAIT) };
            if matches!(cached, Ok(have) if have == bytes) {
                return Ok(buffer);
            }
        }
        // SAFETY: the caller's promise.
        if let Some(address) = unsafe { self.read_directly((buffer, bytes), start) } {
            return Ok(address);
        }
        let mut have = 0;
        while have < bytes {
            let (rest, offset) = ((buffer + have as u64, bytes - have), start + have as u64);
            // SAFETY: the caller's promise.
            match unsafe { read_some(self.file, rest, offset, 0) } {
                Ok(0) => return Err(FileFault { offset, code: None }),
                Ok(more) => have += more,
                Err(error) => {
                    let code = Some(error.raw_os_error().unwrap_or(libc::EIO));
                    return Err(FileFault { offset, code });
                }
            }
        }
        Ok(buffer)
    }

    /// Reads whole blocks around the range; none if the file system does not read like that, or the file ends.
    unsafe fn read_directly(&self, (buffer, bytes): (u64, usize), start: u64) -> Option<u64> {
        let direct = self.direct.as_ref()?.as_raw_fd();
        let before = (start % GRAIN as u64) as usize;
        let whole = (before + bytes).next_multiple_of(GRAIN);
        let first = start - before as u64;
        let read = || {
            let mut have = 0;
            while have < before + bytes {
                let rest = (buffer + have as u64, whole - have);
                // SAFETY: the caller's promise: the buffer has room for both grains.
                let more = unsafe { read_some(direct, rest, first + have as u64, 0) }.ok()?;
                // The next read would begin within a block: the file ends here.
                if more == 0 || more % GRAIN != 0 && have + more < before + bytes {
                    return None;
                }
                have += more;
            }
            Some(bytes as u64)
        };
        self.gate.pass(first, read).then_some(buffer + before as u64)
    }
}

/// Whether all pages of a range are in the page cache. Without the call of Linux 6.5 they may be.
fn is_cached(file: RawFd, offset: u64, bytes: u64) -> bool {
    let (range, mut counts) = ([offset, bytes], [0_u64; 5]);
    // SAFETY: the kernel reads two numbers and stores five: pages that are cached first.
    let code =
        unsafe { libc::syscall(SYS_CACHESTAT, file, range.as_ptr(), counts.as_mut_ptr(), 0_u32) };
    // SAFETY: a number of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1).cast_unsigned() as u64;
    let pages = (offset + bytes).div_ceil(page) - offset / page;
    code != 0 || counts[0] >= pages
}

/// Reads at an offset, once; a signal repeats it.
unsafe fn read_some(
    file: RawFd,
    (address, bytes): (u64, usize),
    offset: u64,
    flags: libc::c_int,
) -> io::Result<usize> {
    let part = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        // SAFETY: the caller's promise for the range. The C library has the call since 2.26 only; the offset is one
        // register here, and the one after it is not read.
        let read =
            unsafe { libc::syscall(libc::SYS_preadv2, file, &raw const part, 1, offset, 0, flags) };
        match usize::try_from(read) {
            Ok(read) => return Ok(read),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
