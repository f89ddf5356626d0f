//! The HIP runtime and hipRTC by calls of CUDA and NVRTC, for tests. Never shipped.
//!
//! On a node with NVIDIA GPUs this library, installed as `libamdhip64.so.6`, lets the code for AMD
//! GPUs move real bytes: every call of HIP becomes the equivalent call of CUDA, if there is one.
//! Results do not apply to AMD hardware. The name of each GPU ends in `(HIP over CUDA)`, and its
//! architecture is a target of AMD's that the compiler replaces by the device's own.
//!
//! Both libraries below are opened at run time: `libcuda.so.1` as the dynamic linker finds it, and
//! NVRTC from `PATHLINE_NVRTC` (a file or its folder), else by its bare names.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

mod device;
mod driver;
mod names;
mod rtc;

use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};

use driver::{context, current};
use names::{INVALID_VALUE, NOT_SUPPORTED};

/// A context, stream, event, module or function.
type Handle = usize;

/// Calls a function of CUDA by name and version of its signature; its status in HIP's numbers.
macro_rules! cuda {
    ($name:literal @ $version:literal ($($arg:expr => $kind:ty),*)) => {{
        static AT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let at = *AT.get_or_init(|| $crate::driver::find($name, $version));
        if at == 0 {
            $crate::names::NOT_SUPPORTED
        } else {
            // SAFETY: the driver gave this address for the name at the version of this signature,
            // and the caller of the HIP function promises arguments of the same meaning.
            $crate::names::from_cuda(unsafe {
                std::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> i32>(at)($($arg),*)
            })
        }
    }};
}
pub(crate) use cuda;

/// Exports functions whose bodies return a status, after making the thread's context current for
/// functions that need one.
macro_rules! export {
    (@enter context $body:expr) => {
        match current() { 0 => $body, failed => failed }
    };
    (@enter free $body:expr) => { $body };
    ($($needs:ident $name:ident($($arg:ident: $kind:ty),*) $body:expr;)*) => {$(
        // SAFETY: the name is the vendor's, for whose library this one stands in.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind),*) -> i32 {
            export!(@enter $needs $body)
        }
    )*};
}

export! {
    free hipInit(_flags: u32) driver::init();
    free hipDriverGetVersion(out: *mut i32) store(out, VERSION);
    free hipRuntimeGetVersion(out: *mut i32) store(out, VERSION);
    free hipGetDeviceCount(out: *mut i32) device::count(out);
    free hipDeviceGet(out: *mut i32, nth: i32) started(|| cuda!("cuDeviceGet" @ 2000 (out => *mut i32, nth => i32)));
    free hipDeviceGetName(out: *mut c_char, room: i32, gpu: i32) device::name(out, room, gpu);
    free hipDeviceGetPCIBusId(out: *mut c_char, room: i32, gpu: i32)
        started(|| cuda!("cuDeviceGetPCIBusId" @ 4010 (out => *mut c_char, room => i32, gpu => i32)));
    free hipDeviceGetUuid(out: *mut c_void, gpu: i32)
        started(|| cuda!("cuDeviceGetUuid" @ 11040 (out => *mut c_void, gpu => i32)));
    free hipDeviceTotalMem(out: *mut usize, gpu: i32)
        started(|| cuda!("cuDeviceTotalMem" @ 3020 (out => *mut usize, gpu => i32)));
    free hipDeviceGetAttribute(out: *mut i32, which: i32, gpu: i32) device::attribute(out, which, gpu);
    // HIP counts these from 0.
    free hipDeviceGetP2PAttribute(out: *mut i32, which: i32, from: i32, to: i32)
        started(|| cuda!("cuDeviceGetP2PAttribute" @ 8000 (out => *mut i32, which + 1 => i32, from => i32, to => i32)));
    free hipGetDevicePropertiesR0600(out: *mut u8, gpu: i32) device::properties(out, gpu, true);
    free hipGetDevicePropertiesR0000(out: *mut u8, gpu: i32) device::properties(out, gpu, false);
    free hipGetDeviceProperties(out: *mut u8, gpu: i32) device::properties(out, gpu, false);
    free hipSetDevice(gpu: i32) driver::set_device(gpu);
    free hipGetDevice(out: *mut i32) store(out, driver::device());
    free hipDeviceCanAccessPeer(out: *mut i32, from: i32, to: i32)
        started(|| cuda!("cuDeviceCanAccessPeer" @ 4000 (out => *mut i32, from => i32, to => i32)));
    context hipDeviceSynchronize() cuda!("cuCtxSynchronize" @ 2000 ());
    context hipDeviceEnablePeerAccess(to: i32, _flags: u32) match context(to) {
        Ok(there) => cuda!("cuCtxEnablePeerAccess" @ 4000 (there => Handle, 0 => u32)),
        Err(code) => code,
    };
    context hipDeviceDisablePeerAccess(to: i32) match context(to) {
        Ok(there) => cuda!("cuCtxDisablePeerAccess" @ 4000 (there => Handle)),
        Err(code) => code,
    };

    context hipMemGetInfo(free: *mut usize, total: *mut usize)
        cuda!("cuMemGetInfo" @ 3020 (free => *mut usize, total => *mut usize));
    context hipMalloc(out: *mut u64, bytes: usize)
        cuda!("cuMemAlloc" @ 3020 (out => *mut u64, bytes => usize));
    context hipExtMallocWithFlags(out: *mut u64, bytes: usize, flags: u32) with_flags(out, bytes, flags);
    context hipFree(address: u64) free(address);
    context hipHostMalloc(out: *mut u64, bytes: usize, flags: u32) host_malloc(out, bytes, flags);
    context hipHostFree(address: u64) match address {
        0 => 0,
        address => cuda!("cuMemFreeHost" @ 2000 (address => u64)),
    };
    context hipHostRegister(address: u64, bytes: usize, flags: u32)
        cuda!("cuMemHostRegister" @ 6050 (address => u64, bytes => usize, flags & 7 => u32));
    context hipHostUnregister(address: u64) cuda!("cuMemHostUnregister" @ 4000 (address => u64));
    context hipHostGetDevicePointer(out: *mut u64, address: u64, _flags: u32)
        cuda!("cuMemHostGetDevicePointer" @ 3020 (out => *mut u64, address => u64, 0 => u32));
    context hipMallocManaged(out: *mut u64, bytes: usize, flags: u32)
        cuda!("cuMemAllocManaged" @ 6000 (out => *mut u64, bytes => usize, flags => u32));
    context hipMemAdvise(address: u64, bytes: usize, advice: i32, gpu: i32) match advice {
        // Coarse grain, and back: CUDA has one grain.
        100 | 101 => 0,
        advice => cuda!("cuMemAdvise" @ 8000 (address => u64, bytes => usize, advice => i32, gpu => i32)),
    };
    context hipMemPrefetchAsync(address: u64, bytes: usize, gpu: i32, stream: Handle)
        cuda!("cuMemPrefetchAsync" @ 8000 (address => u64, bytes => usize, gpu => i32, stream => Handle));

    context hipStreamCreate(out: *mut Handle) cuda!("cuStreamCreate" @ 2000 (out => *mut Handle, 0 => u32));
    context hipStreamCreateWithFlags(out: *mut Handle, flags: u32)
        cuda!("cuStreamCreate" @ 2000 (out => *mut Handle, flags => u32));
    context hipStreamDestroy(stream: Handle) cuda!("cuStreamDestroy" @ 4000 (stream => Handle));
    context hipStreamSynchronize(stream: Handle) cuda!("cuStreamSynchronize" @ 2000 (stream => Handle));
    context hipStreamQuery(stream: Handle) cuda!("cuStreamQuery" @ 2000 (stream => Handle));
    context hipStreamWaitEvent(stream: Handle, event: Handle, _flags: u32)
        cuda!("cuStreamWaitEvent" @ 3020 (stream => Handle, event => Handle, 0 => u32));
    // CUDA compares all 32 bits.
    context hipStreamWaitValue32(stream: Handle, address: u64, value: u32, flags: u32, mask: u32)
        if mask == u32::MAX {
            cuda!("cuStreamWaitValue32" @ 11070 (stream => Handle, address => u64, value => u32, flags => u32))
        } else {
            NOT_SUPPORTED
        };
    context hipLaunchHostFunc(stream: Handle, function: Handle, data: *mut c_void)
        cuda!("cuLaunchHostFunc" @ 10000 (stream => Handle, function => Handle, data => *mut c_void));
    context hipEventCreate(out: *mut Handle) cuda!("cuEventCreate" @ 2000 (out => *mut Handle, 0 => u32));
    // HIP's further event flags, apart from blocking, untimed and interprocess, are fences of
    // AMD's.
    context hipEventCreateWithFlags(out: *mut Handle, flags: u32)
        cuda!("cuEventCreate" @ 2000 (out => *mut Handle, flags & 7 => u32));
    context hipEventDestroy(event: Handle) cuda!("cuEventDestroy" @ 4000 (event => Handle));
    context hipEventRecord(event: Handle, stream: Handle)
        cuda!("cuEventRecord" @ 2000 (event => Handle, stream => Handle));
    context hipEventQuery(event: Handle) cuda!("cuEventQuery" @ 2000 (event => Handle));
    context hipEventSynchronize(event: Handle) cuda!("cuEventSynchronize" @ 2000 (event => Handle));
    context hipEventElapsedTime(out: *mut f32, start: Handle, end: Handle)
        cuda!("cuEventElapsedTime" @ 2000 (out => *mut f32, start => Handle, end => Handle));

    // With one address space the addresses already decide a copy's kind.
    context hipMemcpy(dst: u64, src: u64, bytes: usize, _kind: i32)
        cuda!("cuMemcpy" @ 4000 (dst => u64, src => u64, bytes => usize));
    context hipMemcpyAsync(dst: u64, src: u64, bytes: usize, _kind: i32, stream: Handle)
        cuda!("cuMemcpyAsync" @ 4000 (dst => u64, src => u64, bytes => usize, stream => Handle));
    context hipMemcpyWithStream(dst: u64, src: u64, bytes: usize, _kind: i32, stream: Handle)
        match cuda!("cuMemcpyAsync" @ 4000 (dst => u64, src => u64, bytes => usize, stream => Handle)) {
            0 => cuda!("cuStreamSynchronize" @ 2000 (stream => Handle)),
            failed => failed,
        };
    context hipMemcpyHtoD(dst: u64, src: u64, bytes: usize)
        cuda!("cuMemcpyHtoD" @ 3020 (dst => u64, src => u64, bytes => usize));
    context hipMemcpyDtoH(dst: u64, src: u64, bytes: usize)
        cuda!("cuMemcpyDtoH" @ 3020 (dst => u64, src => u64, bytes => usize));
    context hipMemcpyDtoD(dst: u64, src: u64, bytes: usize)
        cuda!("cuMemcpyDtoD" @ 3020 (dst => u64, src => u64, bytes => usize));
    context hipMemcpyHtoDAsync(dst: u64, src: u64, bytes: usize, stream: Handle)
        cuda!("cuMemcpyHtoDAsync" @ 3020 (dst => u64, src => u64, bytes => usize, stream => Handle));
    context hipMemcpyDtoHAsync(dst: u64, src: u64, bytes: usize, stream: Handle)
        cuda!("cuMemcpyDtoHAsync" @ 3020 (dst => u64, src => u64, bytes => usize, stream => Handle));
    context hipMemcpyDtoDAsync(dst: u64, src: u64, bytes: usize, stream: Handle)
        cuda!("cuMemcpyDtoDAsync" @ 3020 (dst => u64, src => u64, bytes => usize, stream => Handle));
    context hipMemcpyPeer(dst: u64, _to: i32, src: u64, _from: i32, bytes: usize)
        cuda!("cuMemcpy" @ 4000 (dst => u64, src => u64, bytes => usize));
    context hipMemcpyPeerAsync(dst: u64, to: i32, src: u64, from: i32, bytes: usize, stream: Handle)
        match (context(to), context(from)) {
            (Ok(to), Ok(from)) => cuda!("cuMemcpyPeerAsync" @ 4000 (
                dst => u64, to => Handle, src => u64, from => Handle, bytes => usize, stream => Handle)),
            (Err(code), _) | (_, Err(code)) => code,
        };
    context hipMemset(dst: u64, value: i32, bytes: usize)
        cuda!("cuMemsetD8" @ 3020 (dst => u64, value as u8 => u8, bytes => usize));
    context hipMemsetAsync(dst: u64, value: i32, bytes: usize, stream: Handle)
        cuda!("cuMemsetD8Async" @ 3020 (dst => u64, value as u8 => u8, bytes => usize, stream => Handle));

    context hipModuleLoadData(out: *mut Handle, code: *const c_void)
        cuda!("cuModuleLoadData" @ 2000 (out => *mut Handle, code => *const c_void));
    context hipModuleUnload(module: Handle) cuda!("cuModuleUnload" @ 2000 (module => Handle));
    // HIP loads with the module; CUDA may defer it until a launch, which would then wait.
    context hipModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char)
        get_function(out, module, name);
    context hipModuleLaunchKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, parameters: *const *const c_void, extra: *const *const c_void)
        cuda!("cuLaunchKernel" @ 4000 (
            function => Handle, gx => u32, gy => u32, gz => u32, bx => u32, by => u32, bz => u32,
            shared => u32, stream => Handle, parameters => *const *const c_void,
            extra => *const *const c_void));

    // Handles of the two runtimes are not compatible.
    context hipIpcGetMemHandle(_handle: *mut c_void, _address: u64) NOT_SUPPORTED;
    context hipIpcOpenMemHandle(_out: *mut u64, _handle: IpcHandle, _flags: u32) NOT_SUPPORTED;
    context hipIpcCloseMemHandle(_address: u64) NOT_SUPPORTED;
}

/// `hipIpcMemHandle_t`, passed by value.
#[repr(C)]
struct IpcHandle([u8; 64]);

/// HIP 6.4 with a patch level that no release has, so that cached code never matches a real
/// release's.
const VERSION: i32 = 60_499_999;

/// Host memory allocated as signals, which `hipFree` frees.
static SIGNALS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn signals<T>(body: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
    body(&mut SIGNALS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Stores a result; `out` is null or can store it.
fn store<T>(out: *mut T, value: T) -> i32 {
    if out.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller of the exported function gave a place for the result.
    unsafe { out.write(value) };
    0
}

/// Stores bytes; `out` is null or has enough space.
fn store_all(out: *mut u8, bytes: &[u8]) -> i32 {
    if out.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller of the exported function provides the space: the number of bytes in its
    // arguments, or the layout that the function's name states.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, bytes.len()) };
    0
}

/// Calls the driver after it has started.
fn started(call: impl FnOnce() -> i32) -> i32 {
    match driver::init() {
        0 => call(),
        failed => failed,
    }
}

// Flags of cuMemHostAlloc, the same as HIP's: known to all contexts, mapped, write-combined.
const PORTABLE: u32 = 1;
const MAPPED: u32 = 2;
const WRITE_COMBINED: u32 = 4;

/// Pinned memory of NVIDIA is always coherent, and pages follow the thread's NUMA policy.
fn host_malloc(out: *mut u64, bytes: usize, flags: u32) -> i32 {
    const COHERENT: u32 = 0x4000_0000;
    const NON_COHERENT: u32 = 0x8000_0000;
    if flags & COHERENT != 0 && flags & NON_COHERENT != 0 {
        return INVALID_VALUE;
    }
    let flags = flags & WRITE_COMBINED | PORTABLE | MAPPED;
    cuda!("cuMemHostAlloc" @ 2020 (out => *mut u64, bytes => usize, flags => u32))
}

/// A signal is 8 bytes of host memory; all other kinds are the device's one kind of memory.
fn with_flags(out: *mut u64, bytes: usize, flags: u32) -> i32 {
    const SIGNAL: u32 = 2;
    match flags {
        SIGNAL if bytes == 8 => {
            let mut address = 0;
            match host_malloc(&raw mut address, bytes, 0) {
                0 => {
                    signals(|all| all.insert(address));
                    store(out, address)
                }
                failed => failed,
            }
        }
        0 | 1 | 3 | 4 => cuda!("cuMemAlloc" @ 3020 (out => *mut u64, bytes => usize)),
        _ => INVALID_VALUE,
    }
}

fn free(address: u64) -> i32 {
    match address {
        0 => 0,
        signal if signals(|all| all.remove(&signal)) => {
            cuda!("cuMemFreeHost" @ 2000 (signal => u64))
        }
        address => cuda!("cuMemFree" @ 3020 (address => u64)),
    }
}

/// Finds a function and loads it at once; older drivers load with the module.
fn get_function(out: *mut Handle, module: Handle, name: *const c_char) -> i32 {
    let mut function = 0;
    let at = &raw mut function;
    match cuda!("cuModuleGetFunction" @ 2000 (at => *mut Handle, module => Handle, name => *const c_char))
    {
        0 => {}
        failed => return failed,
    }
    match cuda!("cuFuncLoad" @ 12040 (function => Handle)) {
        0 | NOT_SUPPORTED => store(out, function),
        failed => failed,
    }
}

// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: i32) -> *const c_char {
    names::name(code).as_ptr()
}

// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: i32) -> *const c_char {
    names::status_text(code).as_ptr()
}
