//! Pageable memory with a chosen page size on a chosen NUMA domain.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pathline_hal::{CallError, CallResult};
use pathline_schema::{Bytes, MemKind, Severity};

use crate::{files, limits};

/// Buffers are aligned to this size for every page size, so that figures of two page sizes differ
/// only by the pages.
const ALIGN: usize = 2 << 20;
/// Bytes left free: with less, the kernel reclaims pages, which would affect the figures.
const RESERVE: u64 = 64 << 20;

/// A pointer chain at the start of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChaseChain {
    /// Address of the first element.
    pub address: u64,
    /// Bytes over which the elements are spread.
    pub bytes: u64,
}

/// Mapped memory. Unmapped when the last holder releases it: the map of buffers, or a job that
/// still uses it.
#[derive(Debug)]
pub struct MappedMemory {
    /// The reserved range, with at least one guard page on each side, which keeps neighbouring
    /// buffers separate in smaps.
    whole: (usize, usize),
    /// Start address.
    pub base: usize,
    /// Size in bytes, whole pages.
    pub len: usize,
    /// Requested size in bytes; `len` is rounded up to pages.
    asked: u64,
    /// NUMA domain of its pages.
    pub numa: u32,
    /// Whether the GPU's runtime owns it.
    pub lent: bool,
    /// Bytes from the base up to the end of the highest write.
    backed: AtomicU64,
    chain: Mutex<Option<ChaseChain>>,
    /// Requested page size.
    pub grain: usize,
    /// Jobs that store to it and are not yet reaped.
    pub writers: AtomicU32,
    /// Started jobs among them.
    pub running: AtomicU32,
}

impl MappedMemory {
    /// Records that bytes up to the address `end` have pages.
    pub fn note_written(&self, end: u64) {
        self.backed.fetch_max(end.saturating_sub(self.base as u64), Ordering::Relaxed);
        self.set_chain(None);
    }
    /// Whether all bytes up to `end` have been written. Unwritten memory maps the kernel's single
    /// zero page, and reading it measures a cache.
    pub fn is_backed(&self, end: u64) -> bool {
        self.backed.load(Ordering::Relaxed) >= end.saturating_sub(self.base as u64)
    }
    /// Records that a pointer chain was written, or overwritten.
    pub fn set_chain(&self, chain: Option<ChaseChain>) {
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = chain;
    }
    /// The present pointer chain.
    pub fn chain(&self) -> Option<ChaseChain> {
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Returns the pages of a range inside the mapping to the kernel.
    pub fn discard_range(&self, address: usize, len: usize) -> io::Result<()> {
        if self.lent {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        if address < self.base || address + len > self.base + self.len {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: the range lies in this mapping, which holds no Rust values, only bytes accessed
        // through raw pointers; after the call they read as zero.
        let code = unsafe { libc::madvise(address as *mut _, len, libc::MADV_DONTNEED) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        if self.lent {
            return;
        }
        // SAFETY: the range was mapped by `reserve` and is unmapped only here; the last holder is
        // gone, so no pointer into it is used any more.
        unsafe { libc::munmap(self.whole.0 as *mut _, self.whole.1) };
    }
}

/// All buffers of the host.
#[derive(Debug)]
pub struct HostMemory {
    buffers: RefCell<BTreeMap<u64, Arc<MappedMemory>>>,
    domains: Vec<u32>,
    /// CPUs of each domain that this process may use.
    cpus: BTreeMap<u32, Vec<u32>>,
    page: usize,
    huge: usize,
}

impl HostMemory {
    /// Takes the CPUs of each domain. With a single domain no policy is set, to avoid `mbind`,
    /// which container runtimes often forbid.
    pub fn new(cpus: BTreeMap<u32, Vec<u32>>) -> Self {
        let domains = cpus.keys().copied().collect();
        let huge = files::number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
        // Buffers are not rounded up to 512 MiB, the huge page size with base pages of 64 KiB.
        let huge = huge.filter(|h| h.is_power_of_two() && *h <= 32 << 20).unwrap_or(2 << 20);
        Self { buffers: RefCell::default(), domains, cpus, page: page_size(), huge: huge as usize }
    }
    /// Numbers of the NUMA domains.
    pub fn domains(&self) -> &[u32] {
        &self.domains
    }
    /// CPUs of a domain that this process may use. Empty if the domain does not exist.
    pub fn cpus(&self, numa: u32) -> &[u32] {
        self.cpus.get(&numa).map_or(&[], Vec::as_slice)
    }
    /// Size of a base page, in bytes.
    pub fn page(&self) -> usize {
        self.page
    }
    /// Memory still available on a domain: free bytes, less those allocated but not yet written,
    /// less a reserve.
    pub fn free(&self, numa: u32) -> Bytes {
        let free = limits::free(numa).unwrap_or(0);
        let promised = |m: &Arc<MappedMemory>| {
            if m.numa == numa {
                (m.len as u64).saturating_sub(m.backed.load(Ordering::Relaxed))
            } else {
                0
            }
        };
        let promised: u64 = self.buffers.borrow().values().map(promised).sum();
        Bytes(free.saturating_sub(promised).saturating_sub(RESERVE))
    }

    /// Maps memory with one page size on a domain and returns its address. The first write of each
    /// page allocates it.
    ///
    /// # Errors
    /// The domain has too little free memory, the host has no such pages, or `mmap` or `mbind` fails.
    pub fn alloc(&self, numa: u32, mem: MemKind, bytes: Bytes) -> CallResult<u64> {
        let thing = format!("{} at numa{numa}.{mem}", bytes);
        let granule = match mem {
            MemKind::Paged => self.page,
            MemKind::Huge => self.huge,
            _ => {
                return Err(CallError::unsupported(
                    "alloc",
                    thing,
                    "the host gives pageable memory only",
                )
                .or_try("use paged or huge"));
            }
        };
        if bytes.0 == 0 {
            return Err(CallError::unsupported("alloc", thing, "a buffer needs at least 1 byte"));
        }
        let free = self.free(numa);
        let too_much = || {
            let reason = format!("only {} can be taken there now", free.rounded());
            CallError::new(Severity::Exhausted, "alloc", thing.as_str(), reason)
                .or_try("use smaller sizes, free memory, or raise the memory limit of the cgroup")
        };
        let len = usize::try_from(bytes.0).ok().and_then(|b| b.checked_next_multiple_of(granule));
        let len = len.filter(|&len| len as u64 <= free.0).ok_or_else(too_much)?;
        let mapping = self.map(numa, mem, bytes.0, len).map_err(|(call, error)| {
            CallError::new(Severity::Exhausted, call, thing.as_str(), error.to_string())
                .with_code(error.raw_os_error().unwrap_or(0).into())
                .or_try(match call {
                    "mbind" => "the container forbids memory policies: grant CAP_SYS_NICE or relax its seccomp profile, or measure one NUMA domain only under numactl",
                    _ => "use smaller sizes, or raise ulimit -v and vm.max_map_count",
                })
        })?;
        let address = mapping.base as u64;
        self.buffers.borrow_mut().insert(address, Arc::new(mapping));
        Ok(address)
    }

    fn map(
        &self,
        numa: u32,
        mem: MemKind,
        asked: u64,
        len: usize,
    ) -> std::result::Result<MappedMemory, (&'static str, io::Error)> {
        let align = ALIGN.max(if mem == MemKind::Huge { self.huge } else { self.page });
        let size = len
            .checked_add(2 * align)
            .ok_or_else(|| ("mmap", io::Error::from(io::ErrorKind::OutOfMemory)))?;
        let start = map_pages(ptr::null_mut(), size, libc::PROT_NONE, libc::MAP_NORESERVE)
            .map_err(|e| ("mmap", e))?;
        let base = (start + self.page).next_multiple_of(align);
        let mapping = MappedMemory {
            whole: (start, size),
            base,
            len,
            asked,
            numa,
            lent: false,
            backed: AtomicU64::new(0),
            chain: Mutex::new(None),
            grain: if mem == MemKind::Huge { self.huge } else { self.page },
            writers: AtomicU32::new(0),
            running: AtomicU32::new(0),
        };
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = libc::MAP_FIXED;
        map_pages(base as *mut _, len, writable, fixed).map_err(|e| ("mmap", e))?;
        let mut reserved = false;
        let advice = if mem == MemKind::Huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range was mapped above and belongs to this mapping alone; advice changes no
        // bytes.
        let advised = unsafe { libc::madvise(base as *mut _, len, advice) } == 0;
        if mem == MemKind::Huge
            && !(advised && transparent_pages())
            && reserved_pages(numa, self.huge) >= (len / self.huge) as u64
        {
            let huge = fixed
                | libc::MAP_HUGETLB
                | (self.huge.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
            reserved = map_pages(base as *mut _, len, writable, huge).is_ok();
            if !reserved {
                map_pages(base as *mut _, len, writable, fixed).map_err(|e| ("mmap", e))?;
            }
        }
        if self.domains.len() > 1 {
            bind(base, len, numa, reserved).map_err(|e| ("mbind", e))?;
        }
        Ok(mapping)
    }

    /// Lends memory of a GPU's runtime to the threads of the host: mapped for the CPU, written from its start to its
    /// end, and next to the cores of `numa`. May be called again for the same memory.
    ///
    /// # Errors
    /// The range is empty, or overlaps a buffer that is not this one.
    pub fn lend(&self, address: u64, bytes: u64, numa: u32) -> CallResult<()> {
        let thing = || format!("{} at {address:#x}", Bytes(bytes));
        let (base, len) = match (usize::try_from(address), usize::try_from(bytes)) {
            (Ok(base), Ok(len)) if len > 0 && base.checked_add(len).is_some() => (base, len),
            _ => return Err(CallError::unsupported("lend", thing(), "there is no such range")),
        };
        let mut buffers = self.buffers.borrow_mut();
        let before = buffers.range(..address.saturating_add(bytes)).next_back();
        match before {
            Some((_, m)) if m.lent && m.base == base && m.len == len => return Ok(()),
            Some((_, m)) if m.base as u64 + m.len as u64 > address => {
                return Err(CallError::unsupported("lend", thing(), "a buffer lies there"));
            }
            _ => {}
        }
        let mapping = MappedMemory {
            whole: (base, len),
            base,
            len,
            asked: bytes,
            numa,
            lent: true,
            backed: AtomicU64::new(bytes),
            chain: Mutex::new(None),
            grain: self.page,
            writers: AtomicU32::new(0),
            running: AtomicU32::new(0),
        };
        buffers.insert(address, Arc::new(mapping));
        Ok(())
    }

    /// Whether an address lies in lent memory.
    pub fn is_lent(&self, address: u64) -> bool {
        self.range("lend", address, 1).is_ok_and(|mapping| mapping.lent)
    }

    /// Records the pointer chain in the lent memory that holds an address, or that it is gone.
    pub fn note_chain(&self, address: u64, chain: Option<ChaseChain>) {
        if let Ok(mapping) = self.range("lend", address, 1)
            && mapping.lent
        {
            mapping.set_chain(chain);
        }
    }

    /// Takes lent memory back, before its owner frees it.
    ///
    /// # Errors
    /// A team still works on it.
    pub fn end_loan(&self, address: u64) -> CallResult<()> {
        let mut buffers = self.buffers.borrow_mut();
        let Some(mapping) = buffers.get(&address).filter(|m| m.lent) else { return Ok(()) };
        if Arc::strong_count(mapping) > 1 {
            return Err(in_use("free", mapping));
        }
        buffers.remove(&address);
        Ok(())
    }

    /// Unmaps a buffer when no job uses it.
    ///
    /// # Errors
    /// No buffer starts there.
    pub fn free_buffer(&self, address: u64) -> CallResult<()> {
        let mut buffers = self.buffers.borrow_mut();
        match buffers.get(&address).filter(|m| !m.lent) {
            Some(_) => {
                buffers.remove(&address);
                Ok(())
            }
            None => Err(unknown("free", address)),
        }
    }
    /// The buffer that starts at `address`.
    pub fn buffer(&self, call: &str, address: u64) -> CallResult<Arc<MappedMemory>> {
        self.buffers.borrow().get(&address).cloned().ok_or_else(|| unknown(call, address))
    }
    /// The buffer that contains a whole range.
    pub fn range(&self, call: &str, address: u64, bytes: u64) -> CallResult<Arc<MappedMemory>> {
        let buffers = self.buffers.borrow();
        let mapping = buffers
            .range(..=address)
            .next_back()
            .map(|(_, m)| m)
            .ok_or_else(|| unknown(call, address))?;
        let start = address - mapping.base as u64;
        if start >= mapping.asked {
            return Err(unknown(call, address));
        }
        if start.checked_add(bytes).is_none_or(|end| end > mapping.asked) {
            let reason =
                format!("the buffer there ends {} after that", Bytes(mapping.asked - start));
            return Err(CallError::unsupported(
                call,
                format!("{} at {address:#x}", Bytes(bytes)),
                reason,
            ));
        }
        Ok(Arc::clone(mapping))
    }
    /// Returns a buffer's pages to the kernel: the next store to each page faults.
    ///
    /// # Errors
    /// No buffer starts there, a job uses it, or `madvise` fails.
    pub fn discard(&self, address: u64) -> CallResult<()> {
        let mapping = self.buffer("discard", address)?;
        check_idle("discard", &mapping)?;
        mapping.discard_range(mapping.base, mapping.len).map_err(|error| {
            CallError::unsupported("madvise", format!("buffer at {address:#x}"), error.to_string())
                .with_code(error.raw_os_error().unwrap_or(0).into())
                .or_try("reserved huge pages cannot be given back before Linux 5.18: enable transparent ones")
        })?;
        mapping.backed.store(0, Ordering::Relaxed);
        mapping.set_chain(None);
        Ok(())
    }
    /// Bytes of a buffer in huge pages, transparent or reserved, according to smaps.
    pub fn huge_bytes(&self, address: u64) -> Option<Bytes> {
        let mapping = self.buffer("huge_bytes", address).ok()?;
        let smaps = files::text("/proc/self/smaps")?;
        huge_in(&smaps, mapping.base as u64, mapping.len as u64).map(Bytes)
    }
}

/// Refuses to change memory while a job uses it.
pub fn check_idle(call: &str, mapping: &Arc<MappedMemory>) -> CallResult<()> {
    // One holder is the map of buffers, the other the caller.
    if Arc::strong_count(mapping) <= 2 {
        return Ok(());
    }
    Err(in_use(call, mapping))
}

/// Refuses to read memory while a running job stores to it.
pub fn check_not_written(call: &str, mapping: &MappedMemory) -> CallResult<()> {
    if mapping.running.load(Ordering::Acquire) == 0 { Ok(()) } else { Err(in_use(call, mapping)) }
}

fn in_use(call: &str, mapping: &MappedMemory) -> CallError {
    let thing = format!("buffer at {:#x}", mapping.base);
    CallError::new(Severity::Transient, call, thing, "a team works on it")
        .or_try("reap the team first")
}

fn unknown(call: &str, address: u64) -> CallError {
    CallError::unsupported(call, format!("{address:#x}"), "no buffer of this host lies there")
}

/// Size of a base page, in bytes; 4096 if the kernel does not report it.
pub fn page_size() -> usize {
    // SAFETY: sysconf accesses no memory of this process.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).ok().filter(|p| p.is_power_of_two()).unwrap_or(4096)
}

fn map_pages(at: *mut libc::c_void, len: usize, access: i32, flags: i32) -> io::Result<usize> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: anonymous memory. With MAP_FIXED, which callers pass only with an address inside a
    // range that they have just reserved, it replaces unused pages.
    let start = unsafe { libc::mmap(at, len, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
}

/// Binds a range to this domain only. Reserved huge pages are merely preferred there, since a fault
/// without a free bound page ends the process with SIGBUS.
fn bind(base: usize, len: usize, numa: u32, reserved: bool) -> io::Result<()> {
    let mut mask = [0_u64; 16];
    let word = mask
        .get_mut(numa as usize / 64)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    *word = 1 << (numa % 64);
    let mode = if reserved { libc::MPOL_PREFERRED } else { libc::MPOL_BIND };
    // The kernel subtracts one from the number of bits.
    let bits = mask.len() * 64 + 1;
    // SAFETY: the range is a mapping of the caller; the kernel reads the mask, which lives through
    // the call.
    let code = unsafe { libc::syscall(libc::SYS_mbind, base, len, mode, mask.as_ptr(), bits, 0) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this process gets transparent huge pages when it requests them.
fn transparent_pages() -> bool {
    let mode = files::text("/sys/kernel/mm/transparent_hugepage/enabled");
    // Its parent may have disabled them (PR_SET_THP_DISABLE).
    let forbidden = rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false);
    !forbidden && mode.is_some_and(|m| !m.contains("[never]"))
}

/// Free reserved huge pages of a domain.
fn reserved_pages(numa: u32, size: usize) -> u64 {
    let name = format!("hugepages-{}kB/free_hugepages", size / 1024);
    files::number(format!("/sys/devices/system/node/node{numa}/hugepages/{name}"))
        .or_else(|| files::number(format!("/sys/kernel/mm/hugepages/{name}")))
        .unwrap_or(0)
}

/// Sums the huge pages of the smaps entries in a range. `None` if there are no entries.
fn huge_in(smaps: &str, base: u64, len: u64) -> Option<u64> {
    let (mut inside, mut sum) = (false, None);
    for line in smaps.lines() {
        if let Some((start, end)) = entry(line) {
            inside = start >= base && end <= base.saturating_add(len);
            if inside {
                sum.get_or_insert(0);
            }
        } else if inside {
            let huge = ["AnonHugePages", "Private_Hugetlb"].iter().find(|k| line.starts_with(**k));
            let bytes = huge.and_then(|key| files::kilobytes(line, key)).unwrap_or(0);
            sum = sum.map(|s: u64| s.saturating_add(bytes));
        }
    }
    sum
}

/// The range in the first line of an entry: `7f00-7f10 rw-p ...`.
fn entry(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> HostMemory {
        HostMemory::new(BTreeMap::from([(0, vec![0])]))
    }

    #[test]
    fn huge_pages_are_summed_over_the_entries_of_a_buffer_only() {
        let smaps = "1000-3000 rw-p 0 0 0\nSize: 8 kB\nAnonHugePages: 2048 kB\nVmFlags: rd\n\
                     3000-5000 rw-p 0 0 0\nAnonHugePages: 4096 kB\nPrivate_Hugetlb: 2048 kB\n\
                     5000-6000 rw-p 0 0 0\nAnonHugePages: 6144 kB\n";
        assert_eq!(huge_in(smaps, 0x3000, 0x2000), Some(6 << 20));
        assert_eq!(huge_in(smaps, 0x1000, 0x4000), Some(8 << 20));
        assert_eq!(huge_in(smaps, 0x7000, 0x1000), None);
    }

    #[test]
    fn buffers_are_aligned_apart_and_bounded() {
        let memory = memory();
        let a = memory.alloc(0, MemKind::Paged, Bytes(1)).unwrap();
        let b = memory.alloc(0, MemKind::Huge, Bytes(1)).unwrap();
        assert!(a.is_multiple_of(ALIGN as u64) && b.is_multiple_of(ALIGN as u64));
        assert!(memory.range("test", a, 1).is_ok());
        assert!(memory.range("test", a, 2).unwrap_err().to_string().contains("ends 1B after"));
        assert!(memory.range("test", a + 1, 0).is_err());
        assert!(memory.range("test", a - 1, 1).is_err());
        assert!(memory.range("test", a, u64::MAX).is_err());
        memory.free_buffer(a).unwrap();
        assert!(memory.free_buffer(a).is_err());
        assert!(memory.range("test", a, 1).is_err());
    }

    /// Memory that is lent takes work, has no page to give back, and goes only after its last user.
    #[test]
    fn lent_memory_is_used_and_not_freed() {
        let memory = memory();
        let mut owned = vec![0_u64; 512];
        let at = owned.as_mut_ptr() as u64;
        memory.lend(at, 4096, 0).unwrap();
        memory.lend(at, 4096, 0).unwrap();
        assert!(memory.lend(at + 8, 8, 0).is_err() && memory.lend(at, 4104, 0).is_err());
        assert!(memory.lend(at, 0, 0).is_err() && memory.lend(at, u64::MAX, 0).is_err());
        let used = memory.range("test", at + 8, 4088).unwrap();
        assert!(used.is_backed(at + 4096) && memory.range("test", at, 4097).is_err());
        assert!(memory.discard(at).is_err() && memory.free_buffer(at).is_err());
        assert_eq!(memory.end_loan(at).unwrap_err().severity, Severity::Transient);
        drop(used);
        memory.end_loan(at).unwrap();
        assert!(memory.range("test", at, 8).is_err() && memory.end_loan(at).is_ok());
        assert_eq!(owned.iter().sum::<u64>(), 0);
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_a_way_out() {
        let memory = memory();
        for bytes in [u64::MAX, 1 << 60, 0] {
            assert!(memory.alloc(0, MemKind::Paged, Bytes(bytes)).is_err());
        }
        let error = memory.alloc(0, MemKind::Huge, Bytes(1 << 45)).unwrap_err();
        assert_eq!(error.severity, Severity::Exhausted);
        assert!(error.to_string().contains("32TiB at numa0.huge"), "{error}");
        assert!(error.way_out.contains("smaller sizes"));
        assert!(memory.alloc(0, MemKind::Vram, Bytes(1)).is_err());
    }

    #[test]
    fn a_promise_counts_until_it_is_kept() {
        let memory = memory();
        let before = memory.free(0).0;
        let address = memory.alloc(0, MemKind::Paged, Bytes::gib(1)).unwrap();
        let after = memory.free(0).0;
        // Other processes allocate too: half of the allocation suffices to show it.
        assert!(before.saturating_sub(after) > 1 << 29, "{before} {after}");
        memory.free_buffer(address).unwrap();
    }
}
