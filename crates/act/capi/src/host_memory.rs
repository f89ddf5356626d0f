//! Host memory for callers: mapped, placed on NUMA domains, registered with the runtime.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pathline_gpu::CallerCalls;

use crate::copy_error::{CopyError, CopyStatus};

/// Bytes that are registered at once: registrations beyond about 100 GiB fail and leave the runtime in an
/// error state.
const PIECE: usize = 16 << 30;
/// Bits of a mask of NUMA domains.
const NODE_BITS: usize = 1024;

/// The runtime that registers memory, on one of its devices.
#[derive(Clone, Copy)]
pub(crate) struct HostRuntime<'c> {
    pub(crate) calls: &'c dyn CallerCalls,
    pub(crate) device: i32,
}

/// Regions by address, with their bytes.
#[derive(Debug, Default)]
pub(crate) struct HostRegions(Mutex<BTreeMap<u64, usize>>);

fn failed(what: &str, bytes: usize) -> CopyError {
    let error = std::io::Error::last_os_error();
    CopyError::new(CopyStatus::Memory, format!("{what} {bytes} bytes: {error}"))
}

impl HostRegions {
    pub(crate) fn allocate(
        &self,
        runtime: HostRuntime<'_>,
        bytes: usize,
        domains: &[u32],
    ) -> Result<u64, CopyError> {
        if bytes == 0 || bytes > isize::MAX as usize {
            return Err(CopyError::invalid(format!("{bytes} bytes cannot be allocated")));
        }
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, how, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(failed("mmap of", bytes));
        }
        place_pages(at, bytes, domains);
        self.register(runtime, at as u64, bytes)
    }

    pub(crate) fn attach(
        &self,
        runtime: HostRuntime<'_>,
        file: i32,
        bytes: usize,
    ) -> Result<u64, CopyError> {
        if bytes == 0 || bytes > isize::MAX as usize {
            return Err(CopyError::invalid(format!("{bytes} bytes cannot be mapped")));
        }
        // A page beyond the end of a file is SIGBUS, when it is registered and later.
        // SAFETY: an all-zero structure is valid, and the kernel fills it.
        let (size, seals) = unsafe {
            let mut about: libc::stat = std::mem::zeroed();
            let known = libc::fstat(file, &raw mut about) == 0;
            (if known { about.st_size } else { -1 }, libc::fcntl(file, libc::F_GET_SEALS))
        };
        if usize::try_from(size).ok().is_none_or(|size| size < bytes) {
            let text = format!("file {file} has no {bytes} bytes of memory to map");
            return Err(CopyError::invalid(text));
        }
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(CopyError::invalid(format!(
                "file {file} can be cut while it is mapped: use a memfd with the seal F_SEAL_SHRINK (memfd_create \
                 with MFD_ALLOW_SEALING, then fcntl with F_ADD_SEALS)"
            )));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file, 0) };
        if at == libc::MAP_FAILED {
            return Err(failed("mmap of", bytes));
        }
        self.register(runtime, at as u64, bytes)
    }

    /// Registers a mapping; unmaps it if that fails.
    fn register(
        &self,
        runtime: HostRuntime<'_>,
        address: u64,
        bytes: usize,
    ) -> Result<u64, CopyError> {
        let calls = runtime.calls;
        let registered = in_context(runtime, || {
            let mut done = 0;
            while done < bytes {
                let piece = (bytes - done).min(PIECE);
                // SAFETY: a mapping of this library that lives until it is unregistered.
                let status = unsafe { calls.host_register(address + done as u64, piece) };
                if status.1 != 0 {
                    unregister(calls, address, done);
                    return status;
                }
                done += piece;
            }
            ("", 0)
        });
        if registered.1 != 0 {
            unmap(address, bytes);
            let error =
                CopyError::refused(calls, &format!("{bytes} bytes of host memory"), registered);
            let text = format!("{}; see `ulimit -l`", error.text);
            return Err(CopyError::new(CopyStatus::Memory, text));
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn free(&self, runtime: HostRuntime<'_>, address: u64) -> Result<(), CopyError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        let Some(bytes) = known else {
            return Err(CopyError::invalid(format!("no memory of this node is at {address:#x}")));
        };
        release(runtime, address, bytes);
        Ok(())
    }

    pub(crate) fn free_all(&self, runtime: HostRuntime<'_>) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (address, bytes) in all {
            release(runtime, address, bytes);
        }
    }
}

fn in_context(
    HostRuntime { calls, device }: HostRuntime<'_>,
    body: impl FnOnce() -> (&'static str, i32),
) -> (&'static str, i32) {
    match calls.enter(device) {
        Ok(entered) => {
            let status = body();
            calls.leave(entered);
            status
        }
        Err(status) => status,
    }
}

fn release(runtime: HostRuntime<'_>, address: u64, bytes: usize) {
    in_context(runtime, || {
        unregister(runtime.calls, address, bytes);
        ("", 0)
    });
    unmap(address, bytes);
}

fn unregister(calls: &dyn CallerCalls, address: u64, bytes: usize) {
    for offset in (0..bytes).step_by(PIECE) {
        // SAFETY: registered piece by piece before; an error leaves nothing to do.
        unsafe { calls.host_unregister(address + offset as u64) };
    }
}

fn unmap(address: u64, bytes: usize) {
    // SAFETY: a mapping of this module, given back once.
    unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
}

/// Asks for huge pages on the domains. Both are advice: a container may forbid either.
fn place_pages(at: *mut libc::c_void, bytes: usize, domains: &[u32]) {
    let mut mask = [0u64; NODE_BITS / 64];
    for &domain in domains {
        if let Some(word) = mask.get_mut(domain as usize / 64) {
            *word |= 1 << (domain % 64);
        }
    }
    let mode = if domains.len() == 1 { libc::MPOL_BIND } else { libc::MPOL_INTERLEAVE };
    // SAFETY: the mapping is new, and the kernel only reads the mask.
    unsafe {
        libc::madvise(at, bytes, libc::MADV_HUGEPAGE);
        libc::syscall(libc::SYS_mbind, at, bytes, mode, mask.as_ptr(), NODE_BITS + 1, 0);
    }
}
