//! CUDA's calls for the thread of a caller.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use crate::caller_calls::{CallerCalls, KernelAccess, PointerInfo, PointerKind};
use crate::function_table::{
    Api, CallStatus, CopyAttributes, CopyBatch, FindSymbol, RuntimeHandle, entry_since,
};

crate::function_table!(
    /// Functions that need no driver object.
    CallerTable {
        required {
            copy_async = entry_since("cuMemcpyAsync", 4000) => (u64, u64, usize, RuntimeHandle);
            copy = entry_since("cuMemcpy", 4000) => (u64, u64, usize);
            pointer = entry_since("cuPointerGetAttributes", 7000) => (
                u32, *const i32, *const *mut c_void, u64);
            is_capturing = entry_since("cuStreamIsCapturing", 10000) => (RuntimeHandle, *mut i32);
            stream_context = entry_since("cuStreamGetCtx", 9020) => (
                RuntimeHandle, *mut RuntimeHandle);
            push = entry_since("cuCtxPushCurrent", 4000) => (RuntimeHandle);
            pop = entry_since("cuCtxPopCurrent", 4000) => (*mut RuntimeHandle);
            context_device = entry_since("cuCtxGetDevice", 2000) => (*mut i32);
            retain = entry_since("cuDevicePrimaryCtxRetain", 7000) => (*mut RuntimeHandle, i32);
            enable_peer = entry_since("cuCtxEnablePeerAccess", 4000) => (RuntimeHandle, u32);
            error_name = entry_since("cuGetErrorName", 6000) => (i32, *mut *const c_char);
        }
        optional {
            batch = entry_since("cuMemcpyBatchAsync", 13000) => (
                *mut u64, *mut u64, *mut usize, usize, *mut CopyAttributes, *mut usize, usize,
                RuntimeHandle);
            capture_mode = entry_since("cuThreadExchangeStreamCaptureMode", 10010) => (*mut i32);
        }
    }
);

// `CUpointer_attribute`.
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
/// Memory of `cuMemAlloc`: others have their own rules of access.
const IS_LEGACY: i32 = 10;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;
// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// CUDA's functions for callers.
#[derive(Debug)]
pub(crate) struct CudaCaller {
    api: Api,
    table: CallerTable,
    /// Primary contexts by device, retained once for the life of the process.
    contexts: Mutex<BTreeMap<i32, RuntimeHandle>>,
}

impl CudaCaller {
    /// Binds the functions.
    ///
    /// # Errors
    /// Functions that the library lacks.
    pub(super) fn bind(api: Api, find: FindSymbol<'_>) -> Result<Self, String> {
        Ok(Self { api, table: CallerTable::bind(find)?, contexts: Mutex::default() })
    }

    fn context(&self, device: i32) -> Result<RuntimeHandle, CallStatus> {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&context) = contexts.get(&device) {
            return Ok(context);
        }
        let mut context = 0;
        // SAFETY: stores one handle.
        let code = unsafe { (self.table.retain.at)(&raw mut context, device) };
        if code != 0 {
            return Err((self.table.retain.name, code));
        }
        contexts.insert(device, context);
        Ok(context)
    }
}

impl CallerCalls for CudaCaller {
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
        (call.name, unsafe { (call.at)(dst, src, bytes, stream) })
    }
    unsafe fn copy(&self, dst: u64, src: u64, bytes: usize) -> CallStatus {
        let call = &self.table.copy;
        // SAFETY: the caller's promise.
        (call.name, unsafe { (call.at)(dst, src, bytes) })
    }
    unsafe fn copy_batch(
        &self,
        batch: &mut CopyBatch,
        stream: RuntimeHandle,
    ) -> Option<CallStatus> {
        let call = self.table.batch?;
        let (mut how, mut first) = (CopyAttributes::STREAM, 0usize);
        let (count, to, from, bytes) = batch.parts();
        let (how, first) = (&raw mut how, &raw mut first);
        // SAFETY: arrays of `count`, one set of attributes from the first copy on, and the caller's promise.
        let code = unsafe { (call.at)(to, from, bytes, count, how, first, 1, stream) };
        Some((call.name, code))
    }
    fn enable_peer(&self, to: i32) -> CallStatus {
        let call = &self.table.enable_peer;
        match self.context(to) {
            // SAFETY: a live context.
            Ok(context) => (call.name, unsafe { (call.at)(context, 0) }),
            Err(status) => status,
        }
    }
    fn exchange_capture_mode(&self, mut mode: i32) -> i32 {
        if let Some(call) = self.table.capture_mode {
            // SAFETY: reads and stores one number.
            unsafe { (call.at)(&raw mut mode) };
        }
        mode
    }
    fn is_primary(&self, entered: usize, device: i32) -> bool {
        self.context(device) == Ok(entered)
    }
    fn pointer(&self, address: u64) -> PointerInfo {
        let (mut kind, mut managed, mut device) = (0u32, 0u32, -1i32);
        let (mut start, mut bytes) = (0u64, 0usize);
        let which = [MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, RANGE_START, RANGE_SIZE];
        let into: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut managed).cast(),
            (&raw mut device).cast(),
            (&raw mut start).cast(),
            (&raw mut bytes).cast(),
        ];
        // SAFETY: five attributes, each with room for its type; any address is allowed.
        let code = unsafe { (self.table.pointer.at)(5, which.as_ptr(), into.as_ptr(), address) };
        // The flag is one byte on some drivers and a number on others.
        let kind = match (code, managed & 0xff, kind) {
            (0, 1.., _) => PointerKind::Managed,
            (0, 0, HOST) => PointerKind::Host,
            (0, 0, DEVICE) => PointerKind::Device(device),
            _ => PointerKind::Unknown,
        };
        PointerInfo { kind, start, bytes: bytes as u64 }
    }
    fn kernel_access(&self, at: u64) -> KernelAccess {
        let (mut address, mut legacy) = (0u64, 0u32);
        let which = [DEVICE_POINTER, IS_LEGACY];
        let into: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut legacy).cast()];
        // SAFETY: two attributes, each with room for its type; any address is allowed.
        match unsafe { (self.table.pointer.at)(2, which.as_ptr(), into.as_ptr(), at) } {
            0 => KernelAccess { address, follows_peers: legacy & 0xff != 0 },
            _ => KernelAccess::default(),
        }
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
        let (mut context, mut device, table) = (0, -1, &self.table);
        // SAFETY: the caller's promise; stores one handle.
        let code = unsafe { (table.stream_context.at)(stream, &raw mut context) };
        if code != 0 {
            return Err((table.stream_context.name, code));
        }
        // SAFETY: a live context, current between the two calls around the third.
        let code = unsafe {
            match (table.push.at)(context) {
                0 => {
                    let code = (table.context_device.at)(&raw mut device);
                    (table.pop.at)(&raw mut context);
                    code
                }
                code => code,
            }
        };
        if code == 0 { Ok(device) } else { Err((table.context_device.name, code)) }
    }
    fn enter(&self, device: i32) -> Result<usize, CallStatus> {
        let context = self.context(device)?;
        // SAFETY: a live context.
        match unsafe { (self.table.push.at)(context) } {
            0 => Ok(context),
            code => Err((self.table.push.name, code)),
        }
    }
    fn leave(&self, _: usize) {
        let mut context = 0;
        // SAFETY: stores one handle.
        unsafe { (self.table.pop.at)(&raw mut context) };
    }
    unsafe fn enter_stream(&self, stream: RuntimeHandle) -> Result<usize, CallStatus> {
        let (mut context, table) = (0, &self.table);
        // SAFETY: the caller's promise; stores one handle.
        match unsafe { (table.stream_context.at)(stream, &raw mut context) } {
            0 => {}
            code => return Err((table.stream_context.name, code)),
        }
        // SAFETY: a live context.
        match unsafe { (table.push.at)(context) } {
            0 => Ok(context),
            code => Err((table.push.name, code)),
        }
    }
    fn api(&self) -> &Api {
        &self.api
    }
    fn status_text(&self, code: i32) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: stores one pointer to a text that is the library's own and static.
        unsafe {
            if (self.table.error_name.at)(code, &raw mut text) != 0 || text.is_null() {
                return "unknown status".to_owned();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
