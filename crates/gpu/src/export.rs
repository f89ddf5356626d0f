//! Device memory as a dma-buf, which drivers of other devices can be handed.

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use pathline_hal::{CallError, CallResult};
use pathline_schema::{Bytes, MemKind, Severity};

use super::driver::GpuDriver;
use super::family::RuntimeFamily;
use pathline_dylib::SharedLibrary;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`, `hipMemRangeHandleTypeDmaBufFd`.
const DMABUF: i32 = 1;
/// What HIP runs on. Its call is older than HIP's own, and also says where in the file memory
/// begins.
const HSA: (&str, &str) = ("libhsa-runtime64.so.1", "hsa_amd_portable_export_dmabuf");
type ExportFn = unsafe extern "C" fn(*const c_void, usize, *mut RawFd, *mut u64) -> i32;

impl GpuDriver {
    /// What the call that exports is called.
    pub(super) fn export_name(&self) -> &'static str {
        match (&self.api.handle_of_range, self.dialect.family()) {
            (Some(call), _) => call.name,
            (None, RuntimeFamily::Hip) => HSA.1,
            (None, RuntimeFamily::Cuda) => "cuMemGetHandleForAddressRange",
        }
    }

    /// Exports a range of device memory; where in the file it begins.
    pub(super) fn export(&self, address: u64, bytes: Bytes) -> CallResult<(OwnedFd, u64)> {
        let name = self.export_name();
        let block = self.blocks.borrow().holding(address).map(|(start, block)| (start, *block));
        let within = |(start, block): &(u64, super::memory::GpuBlock)| {
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
        match (&self.api.handle_of_range, self.dialect.family()) {
            (Some(call), _) => {
                // SAFETY: the range lies inside a buffer that this driver holds; one file
                // descriptor is stored.
                let code = unsafe {
                    (call.at)((&raw mut file).cast(), address, bytes.0 as usize, DMABUF, 0)
                };
                self.outcome((call.name, code), &thing)?;
            }
            (None, RuntimeFamily::Hip) => {
                let export = hsa().ok_or_else(|| {
                    let why = "neither HIP nor the HSA runtime under it has a call for it";
                    CallError::unsupported(name, thing(), why).or_try("take ROCm 5.5 or later")
                })?;
                // SAFETY: as above; a file descriptor and an offset are stored.
                let code = unsafe {
                    export(
                        address as *const c_void,
                        bytes.0 as usize,
                        &raw mut file,
                        &raw mut offset,
                    )
                };
                if code != 0 {
                    let why = format!("the HSA runtime gives {code:#x}");
                    return Err(CallError::new(Severity::Transient, name, thing(), why)
                        .with_code(i64::from(code))
                        .or_try("it needs a kernel with DMA-BUF support for amdgpu"));
                }
            }
            (None, RuntimeFamily::Cuda) => {
                return Err(CallError::unsupported(name, thing(), "this driver has no such call")
                    .or_try("take a driver of CUDA 11.7 or later"));
            }
        }
        if file < 0 {
            let why = "it reports success and gives no file";
            return Err(CallError::new(Severity::Transient, name, thing(), why));
        }
        // SAFETY: the call has opened it for this process, and nothing else knows of it.
        Ok((unsafe { OwnedFd::from_raw_fd(file) }, offset))
    }
}

/// The call of the HSA runtime that is in this process.
fn hsa() -> Option<ExportFn> {
    let at: NonNull<c_void> = SharedLibrary::loaded(HSA.0)?.symbol(HSA.1)?;
    // SAFETY: the symbol has this signature since ROCm 5.3 (`hsa_ext_amd.h`).
    Some(unsafe { std::mem::transmute::<*mut c_void, ExportFn>(at.as_ptr()) })
}
