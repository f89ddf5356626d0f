//! Memory that several processes map. It has no name in any folder: other processes open it through
//! `/proc` by its creator's process number, and the kernel frees it with the last process that maps
//! it, in whatever manner that process ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use pathline_hal::{CallError, CallResult};
use pathline_schema::Severity;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use pathline_host::memory;

/// Bytes of a cache line; of two where processors fetch pairs of lines.
pub(super) const LINE: usize = 128;

/// The name of segments, and its form in `/proc`.
const NAME: &str = "pathline";
const IN_PROC: &str = "/memfd:pathline";

/// A mapped segment.
#[derive(Debug)]
pub(super) struct ShmSegment {
    file: File,
    base: NonNull<u8>,
    len: usize,
}

impl ShmSegment {
    /// Creates a zeroed segment of at least `len` bytes. Its pages are allocated at once, near this
    /// thread.
    pub(super) fn create(len: usize) -> CallResult<Self> {
        let whole = || format!("a shared segment of {len} B");
        let failed = |call: &str, error: rustix::io::Errno| {
            CallError::new(Severity::Exhausted, call, whole(), error.to_string())
                .with_code(error.raw_os_error().into())
                .or_try("give the process more memory (container limit, ulimit -v)")
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = rustix::fs::memfd_create(NAME, flags);
        let file = File::from(made.map_err(|e| failed("memfd_create", e))?);
        let len = len.next_multiple_of(memory::page_size());
        rustix::fs::ftruncate(&file, len as u64).map_err(|e| failed("ftruncate", e))?;
        // A process that truncated it would kill all others at their next access.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| failed("fcntl", e))?;
        let base = map(&file, len).map_err(|e| failed("mmap", e))?;
        Ok(Self { file, base, len })
    }

    /// Opens a segment of another process by its [`Self::address`]. The address comes from that
    /// process: it names a process and a file number, never a path, and the file is opened only if
    /// it is a segment of this user.
    pub(super) fn open(address: &str) -> CallResult<Self> {
        let failed = |call: &str, error: &io::Error| {
            CallError::new(Severity::Sticky, call, address, error.to_string())
                .with_code(error.raw_os_error().unwrap_or(0).into())
                .or_try(
                    "the processes must run on one host, under one user and in one PID namespace, \
                     and the one that made it must live",
                )
        };
        let Some((path, inode)) = parse(address) else {
            let reason = "it is no address of a shared segment";
            return Err(CallError::unsupported("open", address, reason));
        };
        let gone = || {
            let reason = "the segment is gone, and its number is another file's";
            CallError::new(Severity::Sticky, "open", address, reason)
                .or_try("start the ranks again")
        };
        // Opening a pipe or a device may already change something.
        let target = std::fs::read_link(&path).map_err(|e| failed("readlink", &e))?;
        if !target.as_os_str().as_encoded_bytes().starts_with(IN_PROC.as_bytes()) {
            return Err(gone());
        }
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(|e| failed("open", &e))?;
        let about = file.metadata().map_err(|e| failed("fstat", &e))?;
        let len = about.len();
        let sealed = rustix::fs::fcntl_get_seals(&file);
        let cut = !sealed.is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let own = about.uid() == rustix::process::geteuid().as_raw();
        if len == 0 || cut || !own || about.ino() != inode {
            return Err(gone());
        }
        let base = map(&file, len as usize).map_err(|e| failed("mmap", &e.into()))?;
        Ok(Self { file, base, len: len as usize })
    }

    /// The address by which other processes open it while this process holds it.
    pub(super) fn address(&self) -> String {
        let inode = self.file.metadata().map_or(0, |about| about.ino());
        format!("/proc/{}/fd/{}#{inode}", std::process::id(), self.file.as_raw_fd())
    }

    /// Bytes, a multiple of the page size.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A range of it, if it lies inside.
    pub(super) fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| self.base.as_ptr().wrapping_add(offset))
    }

    /// A 32-bit field. Panics unless it is aligned and inside: callers have laid out the segment.
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "{offset} of {}", self.len);
        // SAFETY: inside the mapping, which lives as long as the reference, and aligned. All
        // processes access fields only as atomics.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// A 64-bit field, likewise.
    pub(super) fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len, "{offset} of {}", self.len);
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

/// Path and inode of `/proc/PID/fd/NUMBER#INODE`.
fn parse(address: &str) -> Option<(PathBuf, u64)> {
    let (pid, rest) = address.strip_prefix("/proc/")?.split_once("/fd/")?;
    let (number, inode) = rest.split_once('#')?;
    let (pid, number): (u32, u32) = (pid.parse().ok()?, number.parse().ok()?);
    Some((format!("/proc/{pid}/fd/{number}").into(), inode.parse().ok()?))
}

fn map(file: &File, len: usize) -> rustix::io::Result<NonNull<u8>> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
    // SAFETY: a new mapping at an address of the kernel's choice takes nobody's memory.
    let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, flags, file, 0) }?;
    NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
}

impl Drop for ShmSegment {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; references into it borrow from `self`, and
        // addresses out of `at` are used no longer than the channel that holds the segment.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn stores_in_one_mapping_are_visible_in_the_other() {
        let made = ShmSegment::create(5000).unwrap();
        // 5000 B are two pages of 4 KiB, or one larger page.
        assert_eq!(made.len(), 5000_usize.next_multiple_of(memory::page_size()));
        let opened = ShmSegment::open(&made.address()).unwrap();
        made.word(4).store(7, Ordering::Release);
        opened.long(8).store(9, Ordering::Release);
        assert_eq!(opened.word(4).load(Ordering::Acquire), 7);
        assert_eq!(made.long(8).load(Ordering::Acquire), 9);
        assert_eq!((made.at(0, made.len() + 1), made.at(usize::MAX, 2)), (None, None));
    }

    #[test]
    fn files_other_than_segments_are_refused_by_name() {
        let made = ShmSegment::create(1).unwrap();
        let address = made.address();
        // Another file with that number: a process that comes too late finds it.
        let error = ShmSegment::open(&format!("{address}0")).unwrap_err();
        assert!(error.reason.contains("another file's") && !error.way_out.is_empty(), "{error}");
        let file = tempfile::tempfile().unwrap();
        let inode = file.metadata().unwrap().ino();
        let other = format!("/proc/{}/fd/{}#{inode}", std::process::id(), file.as_raw_fd());
        assert!(ShmSegment::open(&other).unwrap_err().reason.contains("another file's"));
        let none = format!("/proc/{}/fd/1000000#1", std::process::id());
        let error = ShmSegment::open(&none).unwrap_err();
        assert!(error.to_string().contains(&none) && error.code == 2, "{error}");
        // An address with a path is refused, even for a file that would pass.
        let me = std::process::id();
        let good = made.file.as_raw_fd();
        let dots = format!("/proc/{me}/fd/../fd/{good}#{}", made.file.metadata().unwrap().ino());
        for path in ["/etc/passwd", "/proc/self/mem#1", &dots] {
            let error = ShmSegment::open(path).unwrap_err();
            assert!(error.reason.contains("no address"), "{path}: {error}");
        }
    }
}
