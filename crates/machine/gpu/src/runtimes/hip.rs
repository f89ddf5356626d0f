//! The HIP runtime.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use pathline_hal::CopyChoice;
use pathline_schema::{Bytes, MemKind, Severity};

use super::hip_caller::HipCaller;
use crate::caller_calls::CallerCalls;
use crate::function_table::{
    Api, ApiNames, BoundCall, CallStatus, CopyAttributes, CopyBatch, EntryPoint, RuntimeHandle,
    entry,
};
use crate::runtime_api::{
    AttributeNumbers, CallRefusal, CopyEnds, ExportCall, MemoryExport, RuntimeApi, RuntimeHints,
    ThreadContext,
};
use pathline_dylib::{SharedLibrary, announce_in};

crate::function_table!(
    /// HIP's own functions.
    Own {
        required {
            runtime_version = entry("hipRuntimeGetVersion") => (*mut i32);
            set_device = entry("hipSetDevice") => (i32);
            enable_peer = entry("hipDeviceEnablePeerAccess") => (i32, u32);
            attribute = entry("hipDeviceGetAttribute") => (*mut i32, i32, i32);
            copy = entry("hipMemcpyAsync") => (u64, u64, usize, i32, RuntimeHandle);
            free = entry("hipFree") => (u64);
        }
        optional {
            wait_value = entry("hipStreamWaitValue32") => (RuntimeHandle, u64, u32, u32, u32);
            batch = entry("hipMemcpyBatchAsync") => (
                *mut u64, *mut u64, *mut usize, usize, *mut CopyAttributes, *mut usize, usize, *mut usize,
                RuntimeHandle);
            alloc_with_flags = entry("hipExtMallocWithFlags") => (*mut u64, usize, u32);
            properties_r0600 = entry("hipGetDevicePropertiesR0600") => (*mut u8, i32);
            properties_r0000 = entry("hipGetDevicePropertiesR0000") => (*mut u8, i32);
            properties = entry("hipGetDeviceProperties") => (*mut u8, i32);
        }
    }
);

/// With the signatures of `hip_runtime_api.h` 5.2 to 7.2.
const API_NAMES: ApiNames = ApiNames {
    init: entry("hipInit"),
    device_count: entry("hipGetDeviceCount"),
    device_get: entry("hipDeviceGet"),
    device_name: entry("hipDeviceGetName"),
    device_total: entry("hipDeviceTotalMem"),
    device_attribute: entry("hipDeviceGetAttribute"),
    device_pci: entry("hipDeviceGetPCIBusId"),
    mem_info: entry("hipMemGetInfo"),
    mem_alloc: entry("hipMalloc"),
    mem_free: entry("hipFree"),
    host_alloc: entry("hipHostMalloc"),
    host_free: entry("hipHostFree"),
    host_register: entry("hipHostRegister"),
    host_unregister: entry("hipHostUnregister"),
    managed_alloc: entry("hipMallocManaged"),
    advise: entry("hipMemAdvise"),
    prefetch: entry("hipMemPrefetchAsync"),
    can_access_peer: entry("hipDeviceCanAccessPeer"),
    stream_create: entry("hipStreamCreateWithFlags"),
    stream_destroy: entry("hipStreamDestroy"),
    stream_wait: entry("hipStreamSynchronize"),
    stream_query: entry("hipStreamQuery"),
    stream_wait_event: entry("hipStreamWaitEvent"),
    event_create: entry("hipEventCreateWithFlags"),
    event_destroy: entry("hipEventDestroy"),
    event_record: entry("hipEventRecord"),
    event_elapsed: entry("hipEventElapsedTime"),
    copy_in: entry("hipMemcpyHtoD"),
    copy_out: entry("hipMemcpyDtoH"),
    module_load: entry("hipModuleLoadData"),
    module_unload: entry("hipModuleUnload"),
    function: entry("hipModuleGetFunction"),
    launch: entry("hipModuleLaunchKernel"),
    host_function: entry("hipLaunchHostFunc"),
    capture_begin: entry("hipStreamBeginCapture"),
    capture_end: entry("hipStreamEndCapture"),
    graph_make: entry("hipGraphInstantiateWithFlags"),
    graph_make_older: entry("hipGraphInstantiate"),
    graph_launch: entry("hipGraphLaunch"),
    graph_free: entry("hipGraphDestroy"),
    graph_unmake: entry("hipGraphExecDestroy"),
    event_query: entry("hipEventQuery"),
    event_wait: entry("hipEventSynchronize"),
    handle_of_range: entry("hipMemGetHandleForAddressRange"),
    prefetch_to: EntryPoint::NONE,
};

/// The name of the runtime in options, journals and [`RuntimeFamily::named`](crate::RuntimeFamily::named).
pub(super) const NAME: &str = "hip";

/// Numbers of `hipDeviceAttribute_t`, the same from 5.0 on.
const ATTRIBUTES: AttributeNumbers = AttributeNumbers {
    multiprocessors: 63,
    pageable_access: 65,
    concurrent_managed: 9,
    memory_clock: 60,
    memory_bus: 59,
    l2_size: 19,
    direct_managed: 13,
    large_bar: Some(10011),
    flush_word: Some(10005),
};
/// `hipDeviceAttributeCanUseStreamWaitValue`
const CAN_WAIT: i32 = 10013;
const ABOUT: RuntimeHints = RuntimeHints {
    vendor: "amd",
    visible: "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES",
    peers: "see `rocm-smi --showtopo`",
    no_fine: "this runtime has no hipExtMallocWithFlags; use gpuN.vram",
    no_batch: ("this runtime has no call for a batch of copies", "ROCm 7.1 has one"),
    no_mapping: (
        "its memory is not mapped for the CPU: the GPU has no large BAR",
        "enable Above 4G Decoding and Resizable BAR in the firmware, or copy by dma",
    ),
    no_faults: (
        "kernel faults do not migrate pages in this process",
        "runs in a process started with HSA_XNACK=1, on GPUs that have it; migrate[prefetch] needs none",
    ),
    no_compiler: (
        "no run-time compiler (hipRTC) was found",
        "it is part of ROCm, as libhiprtc or in libamdhip64; `pathline doctor` shows where it was looked for",
    ),
    managed_lies_where_bound: true,
};
// Flags of hipHostMalloc. Without one of the two coherence flags, coherence depends on the other
// flags.
const PORTABLE: u32 = 1;
const WRITE_COMBINED: u32 = 4;
/// Pages follow the NUMA policy of the calling thread instead of the device's nearest domain.
const NUMA_USER: u32 = 0x2000_0000;
const COHERENT: u32 = 0x4000_0000;
const NON_COHERENT: u32 = 0x8000_0000;
// Flags of hipExtMallocWithFlags.
const FINE_GRAINED: u32 = 1;
const SIGNAL_MEMORY: u32 = 2;
/// `hipMemcpyDefault`: the addresses decide the direction.
const COPY_DEFAULT: i32 = 4;
/// `hipStreamWaitValueGte`
const WAIT_GTE: u32 = 0;

/// HIP's implementation.
#[derive(Debug)]
pub(crate) struct HipApi {
    own: Own,
    caller: Result<Arc<HipCaller>, String>,
    error_name: Option<HipTextFn>,
    error_text: Option<HipTextFn>,
    sdma: SdmaRule,
}

type HipTextFn = unsafe extern "C" fn(i32) -> *const c_char;

/// The first HIP whose copies between GPUs go by kernel up to a size, whatever else runs. From December
/// 2021 on it did so only while kernels of the stream were pending. Source: ROCm/clr, `copyBuffer` of
/// rocclr/device/rocm/rocblit.cpp at rocm-5.6.0, rocm-6.1.0 and rocm-6.2.0; commits 008133cf, 31101c62.
const SMALL_PEER_COPIES_BY_KERNEL: i32 = 60_200_000;
/// That size in KiB, unless `ROC_P2P_SDMA_SIZE` sets it. Source: rocclr/utils/flags.hpp.
const SMALL_PEER_COPY_KIB: u64 = 1024;

/// Which copies the runtime assigns to the SDMA engines, by its version and the process's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SdmaRule {
    any: bool,
    peers: bool,
    /// Largest copy between two GPUs that a kernel makes all the same.
    peer_kernel_most: Bytes,
    /// Largest copy of any kind that a kernel makes all the same.
    kernel_most: Bytes,
}

impl SdmaRule {
    /// Reads the variables as the runtime does once at its start. Both switches are on without a setting
    /// in every version that has them. Source: ROCR environment variables of ROCm 6.1 and 6.2,
    /// <https://rocm.docs.amd.com/projects/ROCR-Runtime/en/docs-6.2.1/api-reference/environment_variables.html>
    fn of(version: i32, variable: impl Fn(&str) -> Option<String>) -> Self {
        let on = |name: &str| variable(name).is_none_or(|value| value.trim() != "0");
        let kib = |name: &str| variable(name)?.trim().parse::<u64>().ok();
        let bytes = |kib: u64| Bytes(kib.saturating_mul(1024));
        let usual = if version >= SMALL_PEER_COPIES_BY_KERNEL { SMALL_PEER_COPY_KIB } else { 0 };
        let peers = kib("ROC_P2P_SDMA_SIZE").filter(|_| usual > 0).unwrap_or(usual);
        Self {
            any: on("HSA_ENABLE_SDMA"),
            peers: on("HSA_ENABLE_PEER_SDMA"),
            peer_kernel_most: bytes(peers),
            kernel_most: bytes(kib("GPU_FORCE_BLIT_COPY_SIZE").unwrap_or(0)),
        }
    }

    /// What copies, by kind of copy, as one line for `doctor`.
    fn describe(self) -> String {
        let by = |engine: bool| if engine { "SDMA engine" } else { "blit kernel" };
        let (host, peers) = (by(self.any), by(self.any && self.peers));
        let most = self.peer_kernel_most.max(self.kernel_most);
        let small = if self.any && self.peers && most > Bytes(0) {
            format!(", up to {most} by blit kernel")
        } else {
            String::new()
        };
        format!(
            "host copies by {host}; copies between GPUs by {peers}{small}; inside a GPU by blit kernel"
        )
    }

    fn engine(
        self,
        ends: CopyEnds,
        bytes: Bytes,
        asked: CopyChoice,
    ) -> Result<&'static str, CallRefusal> {
        let large = bytes > self.kernel_most;
        let by_engine = match ends {
            // Inside one GPU the runtime always uses a kernel, whatever the environment sets.
            CopyEnds::SameGpu => false,
            CopyEnds::TwoGpus => self.any && self.peers && large && bytes > self.peer_kernel_most,
            CopyEnds::Host => self.any && large,
            CopyEnds::Pageable => return Ok("staged copy"),
        };
        match (asked, by_engine) {
            // The records' term for an SDMA engine.
            (CopyChoice::Auto, true) => Ok("copy engine"),
            (_, false) => Ok("blit kernel"),
            (CopyChoice::Blit, true) => Err((
                "this process was started to copy by SDMA engines",
                match ends {
                    CopyEnds::TwoGpus => {
                        "runs in a process started with HSA_ENABLE_PEER_SDMA=0 or HSA_ENABLE_SDMA=0"
                    }
                    _ => "runs in a process started with HSA_ENABLE_SDMA=0",
                },
            )),
        }
    }
}

/// Binds every function by its name. Also returns the encoded version of the runtime, 50221153 for
/// 5.2.21153; 0 if it is not reported.
pub(super) fn load(library: &SharedLibrary) -> Result<(Api, HipApi, i32), String> {
    let find = |entry: EntryPoint| library.named(entry.name);
    let text_call = |name: &str| {
        library.symbol(name).map(|at: NonNull<c_void>| {
            // SAFETY: both functions have this signature in every version.
            unsafe { std::mem::transmute::<*mut c_void, HipTextFn>(at.as_ptr()) }
        })
    };
    let hip = HipApi {
        own: Own::bind(&find)?,
        caller: Err(String::new()),
        error_name: text_call("hipGetErrorName"),
        error_text: text_call("hipGetErrorString"),
        sdma: SdmaRule::of(0, |_| None),
    };
    let mut version = 0;
    announce_in(&library.path, hip.own.runtime_version.name);
    // SAFETY: stores one number; it may be called before hipInit.
    let code = unsafe { (hip.own.runtime_version.at)(&raw mut version) };
    let version = if code == 0 { version } else { 0 };
    let api = Api::bind(&API_NAMES, &find)?;
    let caller = HipCaller::bind(api, &find, hip.error_name, version).map(Arc::new);
    let sdma = SdmaRule::of(version, |name| std::env::var(name).ok());
    let hip = HipApi { sdma, caller, ..hip };
    Ok((api, hip, version))
}

/// Major, minor and patch of a version: `major * 10^7 + minor * 10^5 + patch`.
fn parts(version: i32) -> (i32, i32, i32) {
    (version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

/// `60443484` as `HIP 6.4.43484`.
pub(super) fn dotted(version: i32) -> String {
    match (version, parts(version)) {
        (0, _) => "unknown".to_owned(),
        (_, (major, minor, patch)) => format!("HIP {major}.{minor}.{patch}"),
    }
}

/// The number at the end of the library names of a release.
pub(super) fn major(version: i32) -> i32 {
    parts(version).0
}

/// HIP calls of a separate thread.
#[derive(Debug)]
struct HipHands {
    own: Own,
    error_name: Option<HipTextFn>,
    error_text: Option<HipTextFn>,
    device: i32,
}

impl ThreadContext for HipHands {
    fn enter(&self) -> CallStatus {
        // SAFETY: takes a number.
        (self.own.set_device.name, unsafe { (self.own.set_device.at)(self.device) })
    }
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus {
        let call = self.own.copy;
        // SAFETY: the worker copies between its slots, whose memory its round holds.
        (call.name, unsafe { (call.at)(dst, src, bytes, COPY_DEFAULT, stream) })
    }
    fn copy_name(&self) -> &'static str {
        self.own.copy.name
    }
    fn status_text(&self, code: i32) -> String {
        format!("{}: {}", text_of(self.error_name, code), text_of(self.error_text, code))
    }
    fn severity(&self, code: i32) -> Severity {
        severity(code)
    }
}

impl HipApi {
    /// The architecture with its features, which only the properties of a device contain. The
    /// unsuffixed function fills the layout of 5.x in every version.
    fn architecture(&self, device: i32) -> Result<Option<String>, CallStatus> {
        let own = &self.own;
        let layouts =
            [(own.properties_r0600, R0600), (own.properties_r0000, R0000), (own.properties, R0000)];
        let mut failed = None;
        for (call, at) in layouts {
            let Some(BoundCall { name, at: get }) = call else { continue };
            let mut buffer = vec![0u8; PROPERTIES];
            // SAFETY: the struct has 792 or 1472 bytes, and the buffer is larger than either.
            match unsafe { get(buffer.as_mut_ptr(), device) } {
                0 => match architecture(&buffer, at) {
                    Some(found) => return Ok(Some(found)),
                    None => failed = None,
                },
                code => failed = Some((name, code)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    fn wait_value_works(&self) -> bool {
        let mut can = 0;
        // SAFETY: stores one number. The device is the one that was entered first or any other:
        // the GPUs of a node are alike in this.
        let code = unsafe { (self.own.attribute.at)(&raw mut can, CAN_WAIT, 0) };
        code == 0 && can != 0 && self.own.wait_value.is_some()
    }
}

/// Bytes for the properties of a device, more than any version fills.
const PROPERTIES: usize = 4096;
/// Offset of `gcnArchName` in `hipDeviceProp_tR0600` (6.0 and later).
const R0600: usize = 1160;
/// The same in `hipDeviceProp_tR0000`.
const R0000: usize = 396;

/// The architecture in the properties of a device.
fn architecture(properties: &[u8], at: usize) -> Option<String> {
    let text = properties.get(at..at + 256)?;
    let text = CStr::from_bytes_until_nul(text).ok()?.to_str().ok()?;
    text.starts_with("gfx").then(|| text.to_owned())
}

fn text_of(text_call: Option<HipTextFn>, code: i32) -> String {
    let Some(text_call) = text_call else { return "unknown status".to_owned() };
    // SAFETY: gives null or a C string that is the library's own and static.
    unsafe {
        let text = text_call(code);
        if text.is_null() {
            "unknown status".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

impl RuntimeApi for HipApi {
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
        format!("{}: {}", text_of(self.error_name, code), text_of(self.error_text, code))
    }
    fn severity(&self, code: i32) -> Severity {
        severity(code)
    }
    fn way_out(&self, code: i32) -> &'static str {
        match code {
            2 => "take smaller sizes, or end other programs on this GPU",
            3 | 35 | 100 | 101 => {
                "see `rocminfo`, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, and whether this user is of the groups render and video"
            }
            98 | 209 => "the code is for another GPU: see `pathline doctor` for what hipRTC knows",
            _ => "",
        }
    }
    fn target(&self, device: i32) -> Result<String, CallStatus> {
        self.architecture(device).map(Option::unwrap_or_default)
    }
    fn faults(&self, target: &str) -> bool {
        target.contains(":xnack+")
    }
    fn enter(&self, device: i32) -> CallStatus {
        // SAFETY: takes a number.
        (self.own.set_device.name, unsafe { (self.own.set_device.at)(device) })
    }
    fn leave(&self, _: i32) {}
    fn enable_peer(&self, from: i32, to: i32) -> CallStatus {
        match self.enter(from) {
            // SAFETY: takes numbers.
            (_, 0) => (self.own.enable_peer.name, unsafe { (self.own.enable_peer.at)(to, 0) }),
            failed => failed,
        }
    }
    fn copy(&self, dst: u64, src: u64, bytes: usize, stream: RuntimeHandle) -> CallStatus {
        let call = self.own.copy;
        // SAFETY: the caller has looked both ranges up, and the stream is live.
        (call.name, unsafe { (call.at)(dst, src, bytes, COPY_DEFAULT, stream) })
    }
    fn thread_context(&self, device: i32) -> Result<Box<dyn ThreadContext>, CallStatus> {
        let (own, error_name, error_text) = (self.own, self.error_name, self.error_text);
        Ok(Box::new(HipHands { own, error_name, error_text, device }))
    }
    fn caller_calls(&self) -> Result<Arc<dyn CallerCalls>, String> {
        self.caller.clone().map(|caller| caller as Arc<dyn CallerCalls>)
    }
    fn copy_batch(&self, batch: &mut CopyBatch, stream: RuntimeHandle) -> Option<CallStatus> {
        let call = self.own.batch?;
        let (mut how, mut first, mut failed) = (CopyAttributes::STREAM, 0usize, 0usize);
        let (how, first) = (&raw mut how, &raw mut first);
        let (count, to, from, bytes) = batch.parts();
        // SAFETY: arrays of `count`, one set of attributes that begins with the first copy, ranges
        // that the caller has looked up, and a number that is stored.
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
        bytes: Bytes,
        asked: CopyChoice,
    ) -> Result<&'static str, CallRefusal> {
        self.sdma.engine(ends, bytes, asked)
    }
    fn copy_rule(&self) -> Option<String> {
        Some(self.sdma.describe())
    }
    fn host_flags(&self, mem: MemKind, bound: bool) -> Result<u32, &'static str> {
        host_flags(mem, bound)
    }
    fn fine_alloc(&self, bytes: usize) -> Option<(CallStatus, u64)> {
        let call = self.own.alloc_with_flags?;
        let mut address = 0;
        // SAFETY: stores one address.
        let code = unsafe { (call.at)(&raw mut address, bytes, FINE_GRAINED) };
        Some(((call.name, code), address))
    }
    fn signal_word(&self) -> Option<u64> {
        let call = self.own.alloc_with_flags.filter(|_| self.wait_value_works())?;
        let mut address = 0u64;
        // SAFETY: stores one address. A signal has 8 bytes, no more and no less.
        let code = unsafe { (call.at)(&raw mut address, 8, SIGNAL_MEMORY) };
        if code != 0 || address == 0 {
            return None;
        }
        // SAFETY: signal memory is the host's as well, and nobody waits for it yet.
        unsafe { (address as *mut u64).write_volatile(0) };
        Some(address)
    }
    fn signal_free(&self, address: u64) {
        // SAFETY: given by `signal_word`, and no stream waits for it any more.
        unsafe { (self.own.free.at)(address) };
    }
    fn wait_word(
        &self,
        stream: RuntimeHandle,
        address: u64,
        value: u32,
        signal: bool,
    ) -> Option<CallStatus> {
        // On other memory newer runtimes wait by a kernel, which occupies a compute unit.
        let wait = self.own.wait_value.filter(|_| signal)?;
        // SAFETY: a live stream, and a signal that lives as long as the driver.
        let code = unsafe { (wait.at)(stream, address, value, WAIT_GTE, u32::MAX) };
        Some((wait.name, code))
    }
    fn export(&self) -> MemoryExport {
        MemoryExport {
            name: HSA_EXPORT,
            call: hsa_export(),
            refusal: (
                "neither HIP nor the HSA runtime under it has a call for it",
                "take ROCm 5.5 or later",
            ),
            way_out: "it needs a kernel with DMA-BUF support for amdgpu",
        }
    }
    fn allow_shared(&self, _: RuntimeHandle, _: u32) -> CallStatus {
        // HIP launches need no attribute for more shared memory.
        ("hipModuleLaunchKernel", 0)
    }
    fn load_now(&self, _: RuntimeHandle) -> CallStatus {
        ("hipModuleLoadData", 0)
    }
}

/// The library below HIP. Its export call is older than HIP's own, and also returns the offset of
/// the memory in the file.
const HSA: &str = "libhsa-runtime64.so.1";
const HSA_EXPORT: &str = "hsa_amd_portable_export_dmabuf";

/// The export call of the HSA runtime in this process.
fn hsa_export() -> Option<ExportCall> {
    let at = SharedLibrary::loaded(HSA)?.symbol(HSA_EXPORT)?;
    // SAFETY: the symbol has this signature since ROCm 5.3 (`hsa_ext_amd.h`).
    Some(unsafe { std::mem::transmute::<*mut c_void, ExportCall>(at.as_ptr()) })
}

/// Flags of hipHostMalloc for a kind of memory.
fn host_flags(mem: MemKind, bound: bool) -> Result<u32, &'static str> {
    let flags = match mem {
        MemKind::Pinned | MemKind::PinnedDefault => PORTABLE | COHERENT,
        MemKind::PinnedNonCoherent => PORTABLE | NON_COHERENT,
        MemKind::PinnedWc => PORTABLE | WRITE_COMBINED | COHERENT,
        _ => return Err("HIP has no such memory there"),
    };
    Ok(if bound { flags | NUMA_USER } else { flags })
}

/// Severity of a status. Numbers: `hipError_t` in `hip_runtime_api.h`, the same from 5.2 to 7.2,
/// equal to `CUresult` where the names match.
fn severity(code: i32) -> Severity {
    match code {
        // hipErrorOutOfMemory
        2 => Severity::Exhausted,
        // Insufficient driver, no function for the device, no or invalid device, cannot be mapped, no
        // binary for the GPU, unsupported limit or peer access, code that is none, not supported
        35 | 98 | 100 | 101 | 205 | 209 | 215 | 217 | 218 | 801 => Severity::Unsupported,
        // Deinitialised, an earlier launch failed, uncorrectable ECC error, illegal address, launch
        // time-out, context destroyed, assertion, launch failure, unknown, another error of HSA
        4 | 53 | 214 | 700 | 702 | 709 | 710 | 719 | 999 | 1053 => Severity::Sticky,
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
            (35, Severity::Unsupported),
            (53, Severity::Sticky),
            (98, Severity::Unsupported),
            (100, Severity::Unsupported),
            (600, Severity::Transient),
            (700, Severity::Sticky),
            (712, Severity::Transient),
            (719, Severity::Sticky),
            (801, Severity::Unsupported),
            (1052, Severity::Transient),
            (1053, Severity::Sticky),
        ];
        for (code, expected) in cases {
            assert_eq!(severity(code), expected, "{code}");
        }
    }

    #[test]
    fn pinned_memory_always_sets_its_coherence() {
        for mem in [MemKind::Pinned, MemKind::PinnedNonCoherent, MemKind::PinnedWc] {
            for bound in [false, true] {
                let flags = host_flags(mem, bound).unwrap();
                let set = [COHERENT, NON_COHERENT].map(|flag| flags & flag != 0);
                let coherent = mem != MemKind::PinnedNonCoherent;
                assert_eq!(set, [coherent, !coherent], "{mem}: {flags:#x}");
                assert_eq!(flags & NUMA_USER != 0, bound, "{mem}");
                assert_eq!(flags & WRITE_COMBINED != 0, mem == MemKind::PinnedWc, "{mem}");
            }
        }
        // Portable 1, coherent 0x40000000; non-coherent 0x80000000, of the user's policy 0x20000000.
        assert_eq!(host_flags(MemKind::Pinned, false), Ok(0x4000_0001));
        assert_eq!(host_flags(MemKind::PinnedNonCoherent, true), Ok(0xa000_0001));
        assert!(host_flags(MemKind::Vram, false).is_err());
    }

    #[test]
    fn the_architecture_is_read_from_either_layout_and_from_no_other_place() {
        let buffer = |at: usize, text: &[u8]| {
            let mut buffer = vec![0u8; PROPERTIES];
            buffer[at..at + text.len()].copy_from_slice(text);
            buffer
        };
        let newer = buffer(1160, b"gfx942:sramecc+:xnack-");
        assert_eq!(architecture(&newer, R0600).as_deref(), Some("gfx942:sramecc+:xnack-"));
        assert_eq!(architecture(&newer, R0000), None);
        let older = buffer(396, b"gfx90a:sramecc+:xnack+");
        assert_eq!(architecture(&older, R0000).as_deref(), Some("gfx90a:sramecc+:xnack+"));
        assert_eq!(architecture(&older, R0600), None);
        // No terminator, no text, and a buffer that is too short.
        assert_eq!(architecture(&buffer(396, &[b'g'; 300]), R0000), None);
        assert_eq!(architecture(&buffer(396, b"gfx\xff"), R0000), None);
        assert_eq!(architecture(&[0; 400], R0000), None);
    }

    #[test]
    fn versions_are_read_as_the_runtime_writes_them() {
        // Versions of Debian's 5.2.3, 5.7.1, 6.4.3 and 7.2.4.
        assert_eq!(dotted(50_221_153), "HIP 5.2.21153");
        assert_eq!(dotted(50_731_921), "HIP 5.7.31921");
        assert_eq!(dotted(60_443_484), "HIP 6.4.43484");
        assert_eq!(dotted(70_253_211), "HIP 7.2.53211");
        assert_eq!((major(70_253_211), dotted(0).as_str()), (7, "unknown"));
    }

    #[test]
    fn the_copy_engine_follows_the_environment_of_the_process() {
        let sdma = |set: &[(&str, &str)]| rule(50_200_000, set);
        let (usual, none) = (sdma(&[]), sdma(&[("HSA_ENABLE_SDMA", "0")]));
        let not_peers = sdma(&[("HSA_ENABLE_PEER_SDMA", "0")]);
        let large = Bytes::mib(256);
        let auto = |s: SdmaRule, ends| s.engine(ends, large, CopyChoice::Auto).unwrap();
        assert_eq!(auto(usual, CopyEnds::TwoGpus), "copy engine");
        assert_eq!(auto(usual, CopyEnds::Host), "copy engine");
        assert_eq!(auto(usual, CopyEnds::SameGpu), "blit kernel");
        assert_eq!(auto(usual, CopyEnds::Pageable), "staged copy");
        assert_eq!(auto(not_peers, CopyEnds::TwoGpus), "blit kernel");
        assert_eq!(auto(not_peers, CopyEnds::Host), "copy engine");
        assert_eq!(auto(none, CopyEnds::TwoGpus), "blit kernel");
        assert_eq!(none.engine(CopyEnds::Host, large, CopyChoice::Blit), Ok("blit kernel"));
        assert_eq!(not_peers.engine(CopyEnds::TwoGpus, large, CopyChoice::Blit), Ok("blit kernel"));
        let (_, way_out) = usual.engine(CopyEnds::Host, large, CopyChoice::Blit).unwrap_err();
        assert!(way_out.contains("HSA_ENABLE_SDMA=0"), "{way_out}");
        assert!(not_peers.engine(CopyEnds::Host, large, CopyChoice::Blit).is_err());
    }

    /// The rule of a version, with variables.
    fn rule(version: i32, set: &[(&str, &str)]) -> SdmaRule {
        let value = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        SdmaRule::of(version, value)
    }

    #[test]
    fn small_copies_between_gpus_are_kernels_from_hip_6_2_on() {
        let of = |rule: SdmaRule, ends, bytes| rule.engine(ends, bytes, CopyChoice::Auto).unwrap();
        let (peers, host) = (CopyEnds::TwoGpus, CopyEnds::Host);
        // 1 MiB is the default of ROC_P2P_SDMA_SIZE; the test is "larger than".
        for (version, at_1_mib) in [(50_731_921, "copy engine"), (60_240_092, "blit kernel")] {
            let rule = rule(version, &[]);
            assert_eq!(of(rule, peers, Bytes::mib(1)), at_1_mib);
            assert_eq!(of(rule, peers, Bytes(Bytes::mib(1).0 + 1)), "copy engine");
            assert_eq!(of(rule, host, Bytes(8)), "copy engine");
        }
        let all = rule(60_240_092, &[("ROC_P2P_SDMA_SIZE", "0")]);
        assert_eq!(of(all, peers, Bytes(8)), "copy engine");
        let forced = rule(60_240_092, &[("GPU_FORCE_BLIT_COPY_SIZE", "16")]);
        assert_eq!(of(forced, host, Bytes::kib(16)), "blit kernel");
        assert_eq!(of(forced, host, Bytes::kib(17)), "copy engine");
        let text = "host copies by SDMA engine; copies between GPUs by SDMA engine, up to 1MiB by blit \
                    kernel; inside a GPU by blit kernel";
        assert_eq!(rule(60_240_092, &[]).describe(), text);
        let off = rule(60_240_092, &[("HSA_ENABLE_SDMA", "0")]);
        assert!(
            off.describe()
                .starts_with("host copies by blit kernel; copies between GPUs by blit kernel;")
        );
    }
}
