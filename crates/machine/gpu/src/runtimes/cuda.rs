//! The CUDA driver API.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use pathline_hal::CopyChoice;
use pathline_schema::{Bytes, MemKind, Severity};

use super::cuda_caller::CudaCaller;
use crate::caller_calls::CallerCalls;
use crate::function_table::{
    Api, ApiNames, CallStatus, CopyAttributes, CopyBatch, EntryPoint, RuntimeHandle, entry_since,
};
use crate::runtime_api::{
    AttributeNumbers, CallRefusal, CopyEnds, MemoryExport, RuntimeApi, RuntimeHints, ThreadContext,
};
use pathline_dylib::{SharedLibrary, announce_in};

crate::function_table!(
    /// CUDA's own functions.
    Own {
        required {
            retain = entry_since("cuDevicePrimaryCtxRetain", 7000) => (*mut RuntimeHandle, i32);
            release = entry_since("cuDevicePrimaryCtxRelease", 11000) => (i32);
            set_current = entry_since("cuCtxSetCurrent", 4000) => (RuntimeHandle);
            enable_peer = entry_since("cuCtxEnablePeerAccess", 4000) => (RuntimeHandle, u32);
            attribute = entry_since("cuDeviceGetAttribute", 2000) => (*mut i32, i32, i32);
            copy = entry_since("cuMemcpyAsync", 4000) => (u64, u64, usize, RuntimeHandle);
            error_name = entry_since("cuGetErrorName", 6000) => (i32, *mut *const c_char);
            error_text = entry_since("cuGetErrorString", 6000) => (i32, *mut *const c_char);
        }
        optional {
            wait_value = entry_since("cuStreamWaitValue32", 11070) => (RuntimeHandle, u64, u32, u32);
            function_attribute = entry_since("cuFuncSetAttribute", 9000) => (RuntimeHandle, i32, i32);
            batch = entry_since("cuMemcpyBatchAsync", 13000) => (
                *mut u64, *mut u64, *mut usize, usize, *mut CopyAttributes, *mut usize, usize, RuntimeHandle);
            batch_of_12 = entry_since("cuMemcpyBatchAsync", 12080) => (
                *mut u64, *mut u64, *mut usize, usize, *mut CopyAttributes, *mut usize, usize, *mut usize,
                RuntimeHandle);
            function_load = entry_since("cuFuncLoad", 12040) => (RuntimeHandle);
        }
    }
);

/// With the versions of CUDA that introduced their signatures (`cudaTypedefs.h` of CUDA 13).
const API_NAMES: ApiNames = ApiNames {
    init: entry_since("cuInit", 2000),
    device_count: entry_since("cuDeviceGetCount", 2000),
    device_get: entry_since("cuDeviceGet", 2000),
    device_name: entry_since("cuDeviceGetName", 2000),
    device_total: entry_since("cuDeviceTotalMem", 3020),
    device_attribute: entry_since("cuDeviceGetAttribute", 2000),
    device_pci: entry_since("cuDeviceGetPCIBusId", 4010),
    mem_info: entry_since("cuMemGetInfo", 3020),
    mem_alloc: entry_since("cuMemAlloc", 3020),
    mem_free: entry_since("cuMemFree", 3020),
    host_alloc: entry_since("cuMemHostAlloc", 2020),
    host_free: entry_since("cuMemFreeHost", 2000),
    host_register: entry_since("cuMemHostRegister", 6050),
    host_unregister: entry_since("cuMemHostUnregister", 4000),
    managed_alloc: entry_since("cuMemAllocManaged", 6000),
    advise: entry_since("cuMemAdvise", 8000),
    prefetch: entry_since("cuMemPrefetchAsync", 8000),
    can_access_peer: entry_since("cuDeviceCanAccessPeer", 4000),
    stream_create: entry_since("cuStreamCreate", 2000),
    stream_destroy: entry_since("cuStreamDestroy", 4000),
    stream_wait: entry_since("cuStreamSynchronize", 2000),
    stream_query: entry_since("cuStreamQuery", 2000),
    stream_wait_event: entry_since("cuStreamWaitEvent", 3020),
    event_create: entry_since("cuEventCreate", 2000),
    event_destroy: entry_since("cuEventDestroy", 4000),
    event_record: entry_since("cuEventRecord", 2000),
    event_elapsed: entry_since("cuEventElapsedTime", 2000),
    copy_in: entry_since("cuMemcpyHtoD", 3020),
    copy_out: entry_since("cuMemcpyDtoH", 3020),
    module_load: entry_since("cuModuleLoadData", 2000),
    module_unload: entry_since("cuModuleUnload", 2000),
    function: entry_since("cuModuleGetFunction", 2000),
    launch: entry_since("cuLaunchKernel", 4000),
    host_function: entry_since("cuLaunchHostFunc", 10000),
    capture_begin: entry_since("cuStreamBeginCapture", 10010),
    capture_end: entry_since("cuStreamEndCapture", 10000),
    graph_make: entry_since("cuGraphInstantiateWithFlags", 11040),
    graph_make_older: EntryPoint::NONE,
    graph_launch: entry_since("cuGraphLaunch", 10000),
    graph_free: entry_since("cuGraphDestroy", 10000),
    graph_unmake: entry_since("cuGraphExecDestroy", 10000),
    event_query: entry_since("cuEventQuery", 2000),
    event_wait: entry_since("cuEventSynchronize", 2000),
    handle_of_range: entry_since("cuMemGetHandleForAddressRange", 11070),
    prefetch_to: entry_since("cuMemPrefetchAsync", 12020),
};

/// The name of the runtime in options, journals and [`RuntimeFamily::named`](crate::RuntimeFamily::named).
pub(super) const NAME: &str = "cuda";

/// Numbers of `CUdevice_attribute`.
const ATTRIBUTES: AttributeNumbers = AttributeNumbers {
    multiprocessors: 16,
    pageable_access: 88,
    concurrent_managed: 89,
    memory_clock: 36,
    memory_bus: 37,
    l2_size: 38,
    direct_managed: 101,
    large_bar: None,
    flush_word: None,
};
const ABOUT: RuntimeHints = RuntimeHints {
    vendor: "nvidia",
    visible: "CUDA_VISIBLE_DEVICES",
    peers: "see `nvidia-smi topo -p2p r`",
    no_fine: "CUDA has one kind of device memory; use gpuN.vram",
    no_batch: ("this driver has no call for a batch of copies", "CUDA 12.8 (driver 570) has one"),
    no_mapping: (
        "CUDA maps no device memory for CPU threads",
        "copy by dma, or use gpuN.managed; a mapping of BAR1 needs a kernel module such as gdrdrv",
    ),
    no_faults: ("kernel faults do not migrate pages here", "use migrate[prefetch]"),
    no_compiler: (
        "no run-time compiler (NVRTC) was found",
        "pip install nvidia-cuda-nvrtc-cu12, or name its file with --nvrtc; `pathline doctor` shows where it was looked for",
    ),
    managed_lies_where_bound: false,
};
const MAJOR: i32 = 75;
const MINOR: i32 = 76;
// Flags of cuMemHostAlloc: known to all contexts, mapped, write-combined.
const PORTABLE: u32 = 1;
const MAPPED: u32 = 2;
const WRITE_COMBINED: u32 = 4;
/// `CU_STREAM_WAIT_VALUE_GEQ`
const WAIT_GEQ: u32 = 0;
const NOT_SUPPORTED: i32 = 801;

/// CUDA's implementation.
#[derive(Debug)]
pub(crate) struct CudaApi {
    own: Own,
    caller: Result<Arc<CudaCaller>, String>,
    /// Primary contexts by device, which other libraries of the process share.
    contexts: RefCell<BTreeMap<i32, RuntimeHandle>>,
}

/// Binds every function at its version through `cuGetProcAddress`: plain names in the library
/// itself have the oldest signatures. Also returns the CUDA version whose code the driver accepts,
/// 12040 for 12.4; 0 if it is not reported.
pub(super) fn load(library: &SharedLibrary) -> Result<(Api, CudaApi, i32), String> {
    type PrefetchV2 =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> i32;
    type PrefetchV1 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> i32;
    let newer = library.symbol("cuGetProcAddress_v2").map(|at| {
        // SAFETY: the symbol has this signature since CUDA 12.0.
        unsafe { std::mem::transmute::<*mut c_void, PrefetchV2>(at.as_ptr()) }
    });
    let older = library.symbol("cuGetProcAddress").map(|at| {
        // SAFETY: the symbol has this signature since CUDA 11.3.
        unsafe { std::mem::transmute::<*mut c_void, PrefetchV1>(at.as_ptr()) }
    });
    if newer.is_none() && older.is_none() {
        return Err(
            "it has no cuGetProcAddress: a driver of CUDA 11.3 (465) or newer is needed".into()
        );
    }
    let look = |entry: EntryPoint| {
        let name = CString::new(entry.name).ok()?;
        let mut at = std::ptr::null_mut();
        let mut status = 0;
        // SAFETY: the name and both results live through the call.
        let code = unsafe {
            match (newer, older) {
                (Some(find), _) => {
                    find(name.as_ptr(), &raw mut at, entry.since, 0, &raw mut status)
                }
                (None, Some(find)) => find(name.as_ptr(), &raw mut at, entry.since, 0),
                (None, None) => return None,
            }
        };
        // An unknown name is a success with a null pointer.
        NonNull::new(at).filter(|_| code == 0)
    };
    announce_in(&library.path, "cuGetProcAddress");
    let version = look(DRIVER_VERSION).map_or(0, |at| {
        announce_in(&library.path, DRIVER_VERSION.name);
        driver_version(at)
    });
    announce_in(&library.path, "cuGetProcAddress");
    // For a version that it lacks, a driver returns its newest one, which may take other arguments.
    let find = |entry: EntryPoint| {
        let too_new = version > 0 && entry.since > version;
        if too_new { None } else { look(entry) }
    };
    let api = Api::bind(&API_NAMES, &find)?;
    let caller = CudaCaller::bind(api, &find).map(Arc::new);
    let cuda = CudaApi { own: Own::bind(&find)?, caller, contexts: RefCell::default() };
    Ok((api, cuda, version))
}

const DRIVER_VERSION: EntryPoint = entry_since("cuDriverGetVersion", 2020);

/// The result of `cuDriverGetVersion` at this address; 0 if it fails.
fn driver_version(at: NonNull<c_void>) -> i32 {
    type ContextGetFn = unsafe extern "C" fn(*mut i32) -> i32;
    let mut version = 0;
    // SAFETY: the symbol has this signature since CUDA 2.2, and may be called before cuInit.
    let code =
        unsafe { std::mem::transmute::<*mut c_void, ContextGetFn>(at.as_ptr())(&raw mut version) };
    if code == 0 { version } else { 0 }
}

/// `12040` as `CUDA 12.4`.
pub(super) fn dotted(version: i32) -> String {
    match version {
        0 => "unknown".to_owned(),
        _ => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
    }
}

/// CUDA calls of a separate thread. The driver holds the context while copiers exist.
#[derive(Debug)]
struct CudaHands {
    own: Own,
    context: RuntimeHandle,
}

impl ThreadContext for CudaHands {
    fn enter(&self) -> CallStatus {
        // SAFETY: a live context.
        (self.own.set_current.name, unsafe { (self.own.set_current.at)(self.context) })
    }
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus {
        // SAFETY: the worker copies between its slots, whose memory its round holds.
        (self.own.copy.name, unsafe { (self.own.copy.at)(dst, src, bytes, stream) })
    }
    fn copy_name(&self) -> &'static str {
        self.own.copy.name
    }
    fn status_text(&self, code: i32) -> String {
        self.own.api_status_text(code)
    }
    fn severity(&self, code: i32) -> Severity {
        severity(code)
    }
}

impl Own {
    fn api_status_text(&self, code: i32) -> String {
        let text_from = |get: unsafe extern "C" fn(i32, *mut *const c_char) -> i32| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: stores one pointer; the text is the library's own and static.
            unsafe {
                if get(code, &raw mut text) != 0 || text.is_null() {
                    return "unknown status".to_owned();
                }
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        format!("{}: {}", text_from(self.error_name.at), text_from(self.error_text.at))
    }
}

impl CudaApi {
    /// The primary context of a device, created on first use.
    fn context(&self, device: i32) -> Result<RuntimeHandle, CallStatus> {
        if let Some(&context) = self.contexts.borrow().get(&device) {
            return Ok(context);
        }
        let mut context = 0;
        // SAFETY: stores one handle.
        let code = unsafe { (self.own.retain.at)(&raw mut context, device) };
        if code != 0 {
            return Err((self.own.retain.name, code));
        }
        self.contexts.borrow_mut().insert(device, context);
        Ok(context)
    }
}

impl RuntimeApi for CudaApi {
    fn name(&self) -> &'static str {
        NAME
    }
    fn attributes(&self) -> &'static AttributeNumbers {
        &ATTRIBUTES
    }
    fn about(&self) -> &'static RuntimeHints {
        &ABOUT
    }
    fn status_text(&self, code: i32) -> String {
        self.own.api_status_text(code)
    }
    fn severity(&self, code: i32) -> Severity {
        severity(code)
    }
    fn way_out(&self, code: i32) -> &'static str {
        match code {
            2 => "take smaller sizes, or end other programs on this GPU",
            34 => {
                "a toolkit's stub was found in place of the driver's library: take it out of LD_LIBRARY_PATH"
            }
            46 | 101 => "another process holds it exclusively, or MIG hides it: see `nvidia-smi`",
            100 => "see `nvidia-smi` and CUDA_VISIBLE_DEVICES",
            802 => {
                "the fabric manager is not running or still starts: see `systemctl status nvidia-fabricmanager`"
            }
            803 | 804 => {
                "library and kernel module are of different drivers: reboot, or rebuild the container"
            }
            _ => "",
        }
    }
    fn target(&self, device: i32) -> Result<String, CallStatus> {
        let attribute = |which: i32| {
            let mut value = 0;
            // SAFETY: stores one number.
            let code = unsafe { (self.own.attribute.at)(&raw mut value, which, device) };
            if code == 0 { Ok(value) } else { Err((self.own.attribute.name, code)) }
        };
        Ok(format!("sm_{}{}", attribute(MAJOR)?, attribute(MINOR)?))
    }
    fn faults(&self, _: &str) -> bool {
        true
    }
    fn enter(&self, device: i32) -> CallStatus {
        let context = match self.context(device) {
            Ok(context) => context,
            Err(status) => return status,
        };
        // SAFETY: a live context.
        (self.own.set_current.name, unsafe { (self.own.set_current.at)(context) })
    }
    fn leave(&self, device: i32) {
        if self.contexts.borrow_mut().remove(&device).is_some() {
            // SAFETY: retained once, released once.
            unsafe { (self.own.release.at)(device) };
        }
    }
    fn enable_peer(&self, from: i32, to: i32) -> CallStatus {
        let there = match self.context(to) {
            Ok(context) => context,
            Err(status) => return status,
        };
        match self.enter(from) {
            // SAFETY: a live context.
            (_, 0) => (self.own.enable_peer.name, unsafe { (self.own.enable_peer.at)(there, 0) }),
            failed => failed,
        }
    }
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus {
        // SAFETY: the caller has looked both ranges up, and the stream is live.
        (self.own.copy.name, unsafe { (self.own.copy.at)(dst, src, bytes, stream) })
    }
    fn thread_context(&self, device: i32) -> Result<Box<dyn ThreadContext>, CallStatus> {
        Ok(Box::new(CudaHands { own: self.own, context: self.context(device)? }))
    }
    fn caller_calls(&self) -> Result<Arc<dyn CallerCalls>, String> {
        self.caller.clone().map(|caller| caller as Arc<dyn CallerCalls>)
    }
    fn copy_batch(&self, batch: &mut CopyBatch, stream: RuntimeHandle) -> Option<CallStatus> {
        let (mut how, mut first, mut failed) = (CopyAttributes::STREAM, 0usize, 0usize);
        let (how, first) = (&raw mut how, &raw mut first);
        let (count, to, from, bytes) = batch.parts();
        if let Some(call) = self.own.batch {
            // SAFETY: arrays of `count`, one set of attributes that begins with the first copy, and
            // ranges that the caller has looked up.
            let code = unsafe { (call.at)(to, from, bytes, count, how, first, 1, stream) };
            return Some((call.name, code));
        }
        let call = self.own.batch_of_12?;
        // SAFETY: the same, and a number is stored.
        let code =
            unsafe { (call.at)(to, from, bytes, count, how, first, 1, &raw mut failed, stream) };
        Some((call.name, code))
    }
    fn copy_name(&self) -> &'static str {
        self.own.copy.name
    }
    fn engine(
        &self,
        ends: CopyEnds,
        _: Bytes,
        asked: CopyChoice,
    ) -> Result<&'static str, CallRefusal> {
        match (asked, ends) {
            (CopyChoice::Blit, _) => Err((
                "CUDA has no switch that makes its copies run as kernels",
                "kernel[copy-...] measures the same by a kernel",
            )),
            // The driver uses an engine or its own kernel, and does not report which.
            (CopyChoice::Auto, CopyEnds::SameGpu) => Ok(self.own.copy.name),
            (CopyChoice::Auto, CopyEnds::Pageable) => Ok("staged copy"),
            (CopyChoice::Auto, CopyEnds::TwoGpus | CopyEnds::Host) => Ok("copy engine"),
        }
    }
    fn host_flags(&self, mem: MemKind, _: bool) -> Result<u32, &'static str> {
        match mem {
            MemKind::Pinned | MemKind::PinnedDefault => Ok(PORTABLE | MAPPED),
            MemKind::PinnedWc => Ok(PORTABLE | MAPPED | WRITE_COMBINED),
            MemKind::PinnedNonCoherent => {
                Err("CUDA's pinned memory is always coherent; numaN.pinned measures it")
            }
            _ => Err("CUDA has no such memory there"),
        }
    }
    fn fine_alloc(&self, _: usize) -> Option<(CallStatus, u64)> {
        None
    }
    fn signal_word(&self) -> Option<u64> {
        None
    }
    fn signal_free(&self, _: u64) {}
    fn wait_word(
        &self,
        stream: RuntimeHandle,
        address: u64,
        value: u32,
        _: bool,
    ) -> Option<CallStatus> {
        let wait = self.own.wait_value?;
        // SAFETY: a live stream, and a memory word that lives as long as the driver. With unified
        // addressing the device reaches portable pinned memory by the host's own address.
        let code = unsafe { (wait.at)(stream, address, value, WAIT_GEQ) };
        (code != NOT_SUPPORTED).then_some((wait.name, code))
    }
    fn export(&self) -> MemoryExport {
        MemoryExport {
            name: API_NAMES.handle_of_range.name,
            call: None,
            refusal: ("this driver has no such call", "take a driver of CUDA 11.7 or later"),
            way_out: "",
        }
    }
    fn allow_shared(&self, function: RuntimeHandle, bytes: u32) -> CallStatus {
        const MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        match self.own.function_attribute {
            Some(set) => {
                // SAFETY: a live function, and two numbers.
                let code = unsafe { (set.at)(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) };
                (set.name, code)
            }
            None => ("cuFuncSetAttribute", NOT_SUPPORTED),
        }
    }
    fn load_now(&self, function: RuntimeHandle) -> CallStatus {
        match self.own.function_load {
            // SAFETY: a live function.
            Some(load) => (load.name, unsafe { (load.at)(function) }),
            None => ("cuFuncLoad", 0),
        }
    }
}

/// Severity of a status. Numbers: `CUresult` in `cuda.h`.
fn severity(code: i32) -> Severity {
    match code {
        // CUDA_ERROR_OUT_OF_MEMORY
        2 => Severity::Exhausted,
        // Stub library, no or invalid device, no licence, unmappable, no binary for the GPU, bad PTX,
        // peer access, unsupported limit, PTX version, missing JIT, too many peers, system or driver
        // not ready, not supported
        34 | 100..=102 | 205 | 209 | 215 | 217..=218 | 221..=224 | 711 | 801..=804 => {
            Severity::Unsupported
        }
        // Deinitialised, device unavailable, uncorrectable ECC and NVLink errors, contained errors,
        // illegal address, launch time-out, context destroyed, assertion, hardware stack error to
        // launch failure, unknown
        4 | 46 | 214 | 220 | 226 | 700 | 702 | 709..=710 | 714..=719 | 721 | 999 => {
            Severity::Sticky
        }
        _ => Severity::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_severity() {
        let cases = [
            (1, Severity::Transient),
            (2, Severity::Exhausted),
            (100, Severity::Unsupported),
            (700, Severity::Sticky),
            (711, Severity::Unsupported),
            (716, Severity::Sticky),
            (719, Severity::Sticky),
            (801, Severity::Unsupported),
        ];
        for (code, expected) in cases {
            assert_eq!(severity(code), expected, "{code}");
        }
        assert_eq!(dotted(12040), "CUDA 12.4");
    }
}
