//! HIP's calls for the thread of a caller.

use std::ffi::{CStr, c_char};

use crate::caller_calls::{CallerCalls, KernelAccess, PointerInfo, PointerKind};
use crate::function_table::{Api, CallStatus, FindSymbol, RuntimeHandle, entry};

crate::function_table!(
    /// Functions that need no driver object. Signatures: `hip_runtime_api.h` 5.2 to 7.2.
    CallerTable {
        required {
            copy_async = entry("hipMemcpyAsync") => (u64, u64, usize, i32, RuntimeHandle);
            copy = entry("hipMemcpy") => (u64, u64, usize, i32);
            pointer = entry("hipPointerGetAttributes") => (*mut PointerAttributes, u64);
            is_capturing = entry("hipStreamIsCapturing") => (RuntimeHandle, *mut i32);
            get_device = entry("hipGetDevice") => (*mut i32);
            set_device = entry("hipSetDevice") => (i32);
        }
        optional {
            range = entry("hipMemGetAddressRange") => (*mut u64, *mut usize, u64);
            stream_device = entry("hipStreamGetDevice") => (RuntimeHandle, *mut i32);
            capture_mode = entry("hipThreadExchangeStreamCaptureMode") => (*mut i32);
        }
    }
);

/// `hipPointerAttribute_t`, the same from 5.0 on.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct PointerAttributes {
    kind: i32,
    device: i32,
    device_address: u64,
    host_address: u64,
    is_managed: i32,
    flags: u32,
}

/// `hipMemcpyDefault`
const COPY_DEFAULT: i32 = 4;
/// The first version whose memory types begin with unregistered memory.
const NEW_TYPES: i32 = 60_000_000;

/// HIP's functions for callers.
#[derive(Debug)]
pub(crate) struct HipCaller {
    api: Api,
    table: CallerTable,
    error_name: Option<unsafe extern "C" fn(i32) -> *const c_char>,
    version: i32,
}

impl HipCaller {
    /// Binds the functions of a runtime of that version.
    ///
    /// # Errors
    /// Functions that the library lacks.
    pub(super) fn bind(
        api: Api,
        find: FindSymbol<'_>,
        error_name: Option<unsafe extern "C" fn(i32) -> *const c_char>,
        version: i32,
    ) -> Result<Self, String> {
        Ok(Self { api, table: CallerTable::bind(find)?, error_name, version })
    }
}

/// The kind of memory that a number of `hipMemoryType` names, which changed with HIP 6.
fn pointer_kind(attributes: &PointerAttributes, version: i32) -> PointerKind {
    if attributes.is_managed != 0 {
        return PointerKind::Managed;
    }
    match (version >= NEW_TYPES, attributes.kind) {
        (true, 1) | (false, 0) => PointerKind::Host,
        (true, 2) | (false, 1) => PointerKind::Device(attributes.device),
        (true, 3) | (false, 4) => PointerKind::Managed,
        _ => PointerKind::Unknown,
    }
}

impl CallerCalls for HipCaller {
    #[inline]
    unsafe fn copy_async(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        stream: RuntimeHandle,
    ) -> CallStatus {
        let call = &self.table.copy_async;
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(dst, src, bytes, COPY_DEFAULT, stream) })
    }
    unsafe fn copy(&self, dst: u64, src: u64, bytes: usize) -> CallStatus {
        let call = &self.table.copy;
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(dst, src, bytes, COPY_DEFAULT) })
    }
    fn pointer(&self, address: u64) -> PointerInfo {
        let mut attributes = PointerAttributes::default();
        // SAFETY: stores the attributes; any address is allowed.
        let code = unsafe { (self.table.pointer.at)(&raw mut attributes, address) };
        let kind = match code {
            0 => pointer_kind(&attributes, self.version),
            _ => PointerKind::Unknown,
        };
        let (mut start, mut bytes) = (0u64, 0usize);
        if let Some(range) = self.table.range.filter(|_| kind != PointerKind::Unknown) {
            // SAFETY: stores two numbers.
            if unsafe { (range.at)(&raw mut start, &raw mut bytes, address) } != 0 {
                (start, bytes) = (0, 0);
            }
        }
        PointerInfo { kind, start, bytes: bytes as u64 }
    }
    /// Nothing says what decides access of other devices.
    fn kernel_access(&self, address: u64) -> KernelAccess {
        let mut attributes = PointerAttributes::default();
        // SAFETY: stores the attributes; any address is allowed.
        let code = unsafe { (self.table.pointer.at)(&raw mut attributes, address) };
        let address = if code == 0 { attributes.device_address } else { 0 };
        KernelAccess { address, follows_peers: false }
    }
    unsafe fn is_capturing(&self, stream: RuntimeHandle) -> Result<bool, CallStatus> {
        let mut state = 0;
        let call = &self.table.is_capturing;
        // SAFETY: the caller's promise; stores one number.
        match unsafe { (call.at)(stream, &raw mut state) } {
            0 => Ok(state != 0),
            code => Err((call.name, code)),
        }
    }
    unsafe fn stream_device(&self, stream: RuntimeHandle) -> Result<i32, CallStatus> {
        const NOT_SUPPORTED: i32 = 801;
        let Some(call) = self.table.stream_device else {
            return Err(("hipStreamGetDevice", NOT_SUPPORTED));
        };
        let mut device = -1;
        // SAFETY: the caller's promise; stores one number.
        match unsafe { (call.at)(stream, &raw mut device) } {
            0 => Ok(device),
            code => Err((call.name, code)),
        }
    }
    fn enter(&self, device: i32) -> Result<usize, CallStatus> {
        let (mut earlier, table) = (0, &self.table);
        // SAFETY: stores one number.
        match unsafe { (table.get_device.at)(&raw mut earlier) } {
            0 => {}
            code => return Err((table.get_device.name, code)),
        }
        // SAFETY: takes a number.
        match unsafe { (table.set_device.at)(device) } {
            0 => Ok(usize::try_from(earlier).unwrap_or(0)),
            code => Err((table.set_device.name, code)),
        }
    }
    fn leave(&self, entered: usize) {
        // SAFETY: takes a number.
        unsafe { (self.table.set_device.at)(i32::try_from(entered).unwrap_or(0)) };
    }
    unsafe fn enter_stream(&self, stream: RuntimeHandle) -> Result<usize, CallStatus> {
        // SAFETY: the caller's promise.
        let device = unsafe { self.stream_device(stream) }?;
        self.enter(device)
    }
    fn exchange_capture_mode(&self, mut mode: i32) -> i32 {
        if let Some(call) = self.table.capture_mode {
            // SAFETY: reads and stores one number.
            unsafe { (call.at)(&raw mut mode) };
        }
        mode
    }
    fn api(&self) -> &Api {
        &self.api
    }
    fn status_text(&self, code: i32) -> String {
        let Some(text) = self.error_name else { return "unknown status".to_owned() };
        // SAFETY: null, or a C string that is the library's own and static.
        unsafe {
            let text = text(code);
            if text.is_null() {
                return "unknown status".to_owned();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_types_follow_the_version() {
        let kind = |kind, version| {
            let attributes = PointerAttributes { kind, device: 3, ..Default::default() };
            pointer_kind(&attributes, version)
        };
        assert_eq!(kind(1, 50_221_153), PointerKind::Device(3));
        assert_eq!(kind(0, 50_221_153), PointerKind::Host);
        assert_eq!(kind(1, 60_443_484), PointerKind::Host);
        assert_eq!(kind(0, 60_443_484), PointerKind::Unknown);
        assert_eq!(kind(2, 70_253_211), PointerKind::Device(3));
        let managed = PointerAttributes { kind: 2, is_managed: 1, ..Default::default() };
        assert_eq!(pointer_kind(&managed, 60_443_484), PointerKind::Managed);
    }
}
