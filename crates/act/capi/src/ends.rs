//! The memory at the ends of a copy.

use pathline_gpu::{CallerCalls, PointerKind};
use pathline_multipath::CopyEnd;
use pathline_schema::{CpuSet, Unit};

use crate::copy_error::CopyError;

/// `MPOL_F_NODE | MPOL_F_ADDR`: the node of the page at an address.
const NODE_OF_ADDRESS: libc::c_int = 3;

/// One end of a copy over several paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownEnd {
    pub(crate) end: CopyEnd,
    /// Start and bytes of the memory that the driver is to know: the allocation, or the range itself.
    pub(crate) block: (u64, u64),
}

/// Why a copy is plain.
pub(crate) type PlainReason = &'static str;

/// What finds ends: the runtime's numbers of GPUs, and the host's domains.
#[derive(Debug)]
pub(crate) struct EndFinder {
    /// The runtime's number of each GPU.
    pub(crate) devices: Vec<i32>,
    /// NUMA domains of the host.
    pub(crate) domains: Vec<u32>,
    /// CPUs of this process in the domain of each GPU; empty if there are none or it is not known.
    pub(crate) near: Vec<CpuSet>,
}

impl EndFinder {
    /// The GPU with a number of the runtime.
    pub(crate) fn gpu(&self, device: i32) -> Option<u32> {
        self.devices.iter().position(|&d| d == device).and_then(|at| u32::try_from(at).ok())
    }

    /// The end at an address: a GPU's memory or page-locked host memory.
    ///
    /// # Errors
    /// Outer: a range of a GPU's memory goes beyond its allocation. Inner: why the copy is plain.
    pub(crate) fn find(
        &self,
        calls: &dyn CallerCalls,
        address: u64,
        bytes: u64,
    ) -> Result<Result<KnownEnd, PlainReason>, CopyError> {
        let first = calls.pointer(address);
        let last = calls.pointer(address + (bytes - 1));
        let unit = match (first.kind, last.kind) {
            (PointerKind::Device(a), PointerKind::Device(b)) if a == b => match self.gpu(a) {
                Some(gpu) => Unit::Gpu(gpu),
                None => return Ok(Err("the runtime lists no such GPU")),
            },
            (PointerKind::Device(_), _) => {
                return Err(CopyError::invalid(format!(
                    "{bytes} bytes at {address:#x} end beyond that GPU memory: check the size"
                )));
            }
            (PointerKind::Host, PointerKind::Host) => Unit::Numa(self.domain(address)),
            (PointerKind::Managed, _) => return Ok(Err("managed memory")),
            _ => return Ok(Err("pageable memory")),
        };
        let end = address + bytes;
        let covers = first.start > 0
            && first.start <= address
            && first.start.checked_add(first.bytes).is_some_and(|past| past >= end);
        let block = if covers { (first.start, first.bytes) } else { (address, bytes) };
        Ok(Ok(KnownEnd { end: CopyEnd { address, unit }, block }))
    }

    /// The NUMA domain of a page; the first one where the kernel does not report it.
    pub(crate) fn domain(&self, address: u64) -> u32 {
        let first = self.domains.first().copied().unwrap_or(0);
        if self.domains.len() < 2 {
            return first;
        }
        let mut node = 0i32;
        // SAFETY: the kernel stores one number and looks up a page of this process.
        let code = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                std::ptr::null_mut::<u64>(),
                0,
                address,
                NODE_OF_ADDRESS,
            )
        };
        let found =
            u32::try_from(node).ok().filter(|node| code == 0 && self.domains.contains(node));
        found.unwrap_or(first)
    }
}
