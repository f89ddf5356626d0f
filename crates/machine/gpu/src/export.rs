//! Exports device memory as a dma-buf, which drivers of other devices can import.

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use pathline_hal::{CallError, CallResult};
use pathline_schema::{Bytes, MemKind, Severity};

use super::blocks::GpuBlock;
use super::driver::GpuDriver;
use super::runtime_api::MemoryExport;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`, `hipMemRangeHandleTypeDmaBufFd`.
const DMABUF: i32 = 1;

impl GpuDriver {
    /// The name of the export call.
    pub(super) fn export_name(&self) -> &'static str {
        match &self.api.handle_of_range {
            Some(call) => call.name,
            None => self.dialect.export().name,
        }
    }

    /// Exports a range of device memory; returns the file and the offset of the range in it.
    pub(super) fn export(&self, address: u64, bytes: Bytes) -> CallResult<(OwnedFd, u64)> {
        let name = self.export_name();
        let block = self.blocks.borrow().holding(address).map(|(start, block)| (start, *block));
        let within = |(start, block): &(u64, GpuBlock)| {
            address - start + bytes.0 <= block.bytes
                && matches!(block.place.mem, MemKind::Vram | MemKind::VramFine)
        };
        let Some((_, block)) = block.filter(within) else {
            let thing = format!("{bytes} at {address:#x}");
            return Err(CallError::unsupported(
                name,
                thing,
                "it is no device memory of this process",
            ));
        };
        let thing = || format!("{bytes} at {}", block.place);
        self.enter(name, block.place.unit.gpu().unwrap_or(0))?;
        let (mut file, mut offset): (RawFd, u64) = (-1, 0);
        if let Some(call) = &self.api.handle_of_range {
            // SAFETY: the range lies inside a buffer that this driver holds; one file descriptor is
            // stored.
            let code =
                unsafe { (call.at)((&raw mut file).cast(), address, bytes.0 as usize, DMABUF, 0) };
            self.outcome((call.name, code), &thing)?;
        } else {
            let MemoryExport { call, refusal: (why, instead), way_out, .. } = self.dialect.export();
            let call =
                call.ok_or_else(|| CallError::unsupported(name, thing(), why).or_try(instead))?;
            // SAFETY: as above; a file descriptor and an offset are stored.
            let code = unsafe {
                call(address as *const c_void, bytes.0 as usize, &raw mut file, &raw mut offset)
            };
            if code != 0 {
                let why = format!("the HSA runtime returns {code:#x}");
                return Err(CallError::new(Severity::Transient, name, thing(), why)
                    .with_code(i64::from(code))
                    .or_try(way_out));
            }
        }
        if file < 0 {
            let why = "it reports success without a file";
            return Err(CallError::new(Severity::Transient, name, thing(), why));
        }
        // SAFETY: the call has opened it for this process, and nothing else knows of it.
        Ok((unsafe { OwnedFd::from_raw_fd(file) }, offset))
    }
}
