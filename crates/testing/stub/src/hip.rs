//! The HIP runtime, as its major versions export it.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_void};

use pathline_schema::{MemKind, Unit};

use crate::calls::{self, put};
use crate::cuda::StubLocation;
use crate::entry::{self, CallNeeds, enter};
use crate::graph;
use crate::node::{CallOutcome, StubNode};
use crate::spec::{StubApi, StubSpec};
use crate::status;
use crate::streams::HostFunction;
use crate::streams::StubHandle;

/// The simulated major version: from the spec, else from the library's file name.
pub(crate) fn major(spec: &StubSpec) -> i32 {
    spec.hip.or_else(by_file_name).unwrap_or(6)
}

/// The number behind `.so.` in the file name of this library.
fn by_file_name() -> Option<i32> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address of this code; the result is a C string of the linker's, which stays.
    let name = unsafe {
        if libc::dladdr(by_file_name as *const c_void, &raw mut info) == 0
            || info.dli_fname.is_null()
        {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    name.to_str().ok()?.rsplit_once(".so.")?.1.split('.').next()?.parse().ok()
}

/// Versions that Debian's runtimes report: 5.2.3, 6.4.3, 7.2.4.
fn version(spec: &StubSpec) -> i32 {
    match major(spec) {
        5 => 50_221_153,
        6 => 60_443_484,
        7 => 70_253_211,
        other => other * 10_000_000,
    }
}

/// Exports functions with their bodies.
macro_rules! export {
    ($($symbol:ident = $needs:ident ($($arg:ident: $kind:ty),*) => $body:expr;)*) => {
        $(
            // SAFETY: the name is the vendor's, for whose library this one stands in.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($arg: $kind),*) -> i32 {
                #[allow(unused_unsafe)]
                enter(StubApi::Hip, stringify!($symbol), CallNeeds::$needs, |node: &mut StubNode| -> CallOutcome {
                    // SAFETY: the arguments are what the vendor's function of this name takes.
                    unsafe { ($body)(node, $($arg),*) }
                })
            }
        )*
    };
}

export! {
    hipInit = Nothing (_flags: u32) => |node: &mut StubNode, _| node.initialise();
    hipDriverGetVersion = Nothing (out: *mut i32) => |node: &mut StubNode, out| put(out, version(&node.spec));
    hipRuntimeGetVersion = Nothing (out: *mut i32) => |node: &mut StubNode, out| put(out, version(&node.spec));
    hipGetDeviceCount = Nothing (out: *mut i32) => |node: &mut StubNode, out: *mut i32| {
        calls::device_count(node, out)?;
        node.initialise()
    };
    hipDeviceGet = Init (out: *mut i32, nth: i32) => calls::device_get;
    hipDeviceGetName = Init (out: *mut c_char, room: i32, gpu: i32) => calls::device_name;
    hipDeviceGetPCIBusId = Init (out: *mut c_char, room: i32, gpu: i32) => calls::device_pci;
    hipDeviceGetUuid = Init (out: *mut [u8; 16], gpu: i32) => calls::device_uuid;
    hipDeviceTotalMem = Init (out: *mut usize, gpu: i32) => calls::device_total;
    hipDeviceGetAttribute = Init (out: *mut i32, which: i32, gpu: i32) =>
        |node: &mut StubNode, out, which, gpu| put(out, attribute(node, which, gpu)?);
    hipDeviceGetP2PAttribute = Init (out: *mut i32, which: i32, from: i32, to: i32) =>
        |node: &mut StubNode, out, which, from, to| match which {
            0 => put(out, 0),
            1..=3 => calls::can_access(node, out, from, to),
            _ => Err(status::INVALID_VALUE),
        };
    hipGetDevicePropertiesR0600 = Init (out: *mut u8, gpu: i32) =>
        |node: &mut StubNode, out, gpu| properties(node, out, gpu, true);
    hipGetDevicePropertiesR0000 = Init (out: *mut u8, gpu: i32) =>
        |node: &mut StubNode, out, gpu| properties(node, out, gpu, false);
    // The plain name fills the older layout in every version.
    hipGetDeviceProperties = Init (out: *mut u8, gpu: i32) =>
        |node: &mut StubNode, out, gpu| properties(node, out, gpu, false);
    hipSetDevice = Init (gpu: i32) => |node: &mut StubNode, gpu| {
        calls::may_open(node, gpu).map(entry::set_device)
    };
    hipGetDevice = Context (out: *mut i32) => |node: &mut StubNode, out| put(out, node.gpu as i32);
    hipPointerGetAttributes = Context (out: *mut PointerAttributes, address: u64) => pointer_attributes;
    hipStreamIsCapturing = Context (stream: StubHandle, out: *mut i32) => calls::is_capturing;
    hipStreamGetDevice = Context (stream: StubHandle, out: *mut i32) =>
        |node: &mut StubNode, stream, out| {
            let gpu = calls::gpu_of_stream(node, stream)?;
            put(out, gpu.cast_signed())
        };
    hipDeviceSynchronize = Context () => calls::synchronize;
    hipDeviceCanAccessPeer = Init (out: *mut i32, from: i32, to: i32) => calls::can_access;
    hipDeviceEnablePeerAccess = Context (to: i32, _flags: u32) => |node: &mut StubNode, to, _| {
        calls::enable_peer(node, node.device(to)?.index)
    };
    hipDeviceDisablePeerAccess = Context (to: i32) => |node: &mut StubNode, to| {
        calls::disable_peer(node, node.device(to)?.index)
    };
    hipMemGetInfo = Context (free: *mut usize, total: *mut usize) => calls::mem_info;
    hipMalloc = Context (out: *mut u64, bytes: usize) => calls::mem_alloc;
    hipExtMallocWithFlags = Context (out: *mut u64, bytes: usize, flags: u32) => with_flags;
    hipFree = Context (address: u64) => |node: &mut StubNode, address| {
        calls::mem_free(node, address).or_else(|_| calls::host_free(node, address))
    };
    hipHostMalloc = Context (out: *mut u64, bytes: usize, flags: u32) => host_malloc;
    hipHostFree = Context (address: u64) => |node: &mut StubNode, address: u64| match address {
        0 => Ok(()),
        address => calls::host_free(node, address),
    };
    hipHostRegister = Context (address: u64, bytes: usize, flags: u32) => calls::host_register;
    hipHostUnregister = Context (address: u64) => calls::host_unregister;
    hipHostGetDevicePointer = Context (out: *mut u64, address: u64, flags: u32) => calls::host_pointer;
    hipMemGetAddressRange = Context (start: *mut u64, bytes: *mut usize, address: u64) => calls::range;
    hipMemGetHandleForAddressRange = Context
        (out: *mut i32, address: u64, bytes: usize, kind: i32, flags: u64) => calls::export;
    hipMallocManaged = Context (out: *mut u64, bytes: usize, flags: u32) => calls::managed_alloc;
    hipMemAdvise = Context (address: u64, bytes: usize, advice: i32, device: i32) => calls::advise;
    hipMemPrefetchAsync = Context (address: u64, bytes: usize, device: i32, stream: StubHandle) =>
        calls::prefetch;
    hipMemPrefetchAsync_v2 = Context
        (address: u64, bytes: usize, to: StubLocation, _flags: u32, stream: StubHandle) =>
        |node: &mut StubNode, address, bytes: usize, to: StubLocation, _, stream| {
            let unit = to.unit(node)?;
            node.prefetch(stream, address, bytes as u64, unit)
        };
    hipStreamCreate = Context (out: *mut StubHandle) =>
        |node: &mut StubNode, out| calls::stream_create(node, out, 0);
    hipStreamCreateWithFlags = Context (out: *mut StubHandle, flags: u32) => calls::stream_create;
    hipStreamDestroy = Context (stream: StubHandle) => calls::stream_destroy;
    hipStreamSynchronize = Context (stream: StubHandle) => calls::stream_wait;
    hipStreamQuery = Context (stream: StubHandle) => calls::stream_query;
    hipStreamWaitEvent = Context (stream: StubHandle, event: StubHandle, flags: u32) => calls::stream_await;
    hipStreamWaitValue32 = Context
        (stream: StubHandle, address: u64, value: u32, flags: u32, mask: u32) => calls::wait_value;
    hipLaunchHostFunc = Context
        (stream: StubHandle, function: Option<HostFunction>, data: *mut c_void) => calls::host_function;
    hipStreamBeginCapture = Context (stream: StubHandle, mode: i32) => graph::begin;
    hipStreamEndCapture = Context (stream: StubHandle, out: *mut StubHandle) => graph::end;
    hipGraphInstantiate = Context
        (out: *mut StubHandle, graph: StubHandle, failed: *mut StubHandle, text: *mut c_char, room: usize) =>
        |node: &mut StubNode, out, graph, _, _, _| graph::make(node, out, graph);
    hipGraphLaunch = Context (graph: StubHandle, stream: StubHandle) => graph::launch;
    hipGraphDestroy = Context (graph: StubHandle) => graph::free;
    hipGraphExecDestroy = Context (graph: StubHandle) => graph::free;
    hipEventCreate = Context (out: *mut StubHandle) =>
        |node: &mut StubNode, out| calls::event_create(node, out, 0);
    hipEventCreateWithFlags = Context (out: *mut StubHandle, flags: u32) => calls::event_create;
    hipEventDestroy = Context (event: StubHandle) => calls::event_destroy;
    hipEventRecord = Context (event: StubHandle, stream: StubHandle) => calls::event_record;
    hipEventQuery = Context (event: StubHandle) => calls::event_query;
    hipEventSynchronize = Context (event: StubHandle) => calls::event_wait;
    hipEventElapsedTime = Context (out: *mut f32, start: StubHandle, end: StubHandle) => calls::event_elapsed;
    hipMemcpy = Context (dst: u64, src: u64, bytes: usize, kind: i32) =>
        |node: &mut StubNode, dst, src, bytes, kind| {
            known_kind(kind)?;
            calls::copy_now(node, dst, src, bytes)
        };
    hipMemcpyAsync = Context (dst: u64, src: u64, bytes: usize, kind: i32, stream: StubHandle) =>
        |node: &mut StubNode, dst, src, bytes, kind, stream| {
            known_kind(kind)?;
            calls::copy_async(node, dst, src, bytes, stream)
        };
    hipMemcpyWithStream = Context (dst: u64, src: u64, bytes: usize, kind: i32, stream: StubHandle) =>
        |node: &mut StubNode, dst, src, bytes, kind, stream| {
            known_kind(kind)?;
            calls::copy_async(node, dst, src, bytes, stream)?;
            calls::stream_wait(node, stream)
        };
    hipMemcpyHtoD = Context (dst: u64, src: u64, bytes: usize) => calls::copy_now;
    hipMemcpyDtoH = Context (dst: u64, src: u64, bytes: usize) => calls::copy_now;
    hipMemcpyDtoD = Context (dst: u64, src: u64, bytes: usize) => calls::copy_now;
    hipMemcpyHtoDAsync = Context (dst: u64, src: u64, bytes: usize, stream: StubHandle) =>
        calls::copy_async;
    hipMemcpyDtoHAsync = Context (dst: u64, src: u64, bytes: usize, stream: StubHandle) =>
        calls::copy_async;
    hipMemcpyDtoDAsync = Context (dst: u64, src: u64, bytes: usize, stream: StubHandle) =>
        calls::copy_async;
    hipMemcpyPeer = Context (dst: u64, to: i32, src: u64, from: i32, bytes: usize) =>
        |node: &mut StubNode, dst, to, src, from, bytes| {
            node.device(to).and(node.device(from)).map(|_| ())?;
            calls::copy_now(node, dst, src, bytes)
        };
    hipMemcpyPeerAsync = Context
        (dst: u64, to: i32, src: u64, from: i32, bytes: usize, stream: StubHandle) =>
        |node: &mut StubNode, dst, to, src, from, bytes, stream| {
            node.device(to).and(node.device(from)).map(|_| ())?;
            calls::copy_async(node, dst, src, bytes, stream)
        };
    hipMemcpyBatchAsync = Context
        (dsts: *const u64, srcs: *const u64, sizes: *const usize, count: usize,
         attributes: *const c_void, at: *const usize, attribute_count: usize,
         failed: *mut usize, stream: StubHandle) =>
        |node: &mut StubNode, dsts, srcs, sizes, count, _, _, _, failed: *mut usize, stream| {
            calls::batch(node, (dsts, srcs, sizes), count, failed, stream)
        };
    hipMemset = Context (dst: u64, value: i32, bytes: usize) =>
        |node: &mut StubNode, dst, value: i32, bytes| calls::set_now(node, dst, value as u8, bytes);
    hipMemsetAsync = Context (dst: u64, value: i32, bytes: usize, stream: StubHandle) =>
        |node: &mut StubNode, dst, value: i32, bytes, stream| {
            calls::set_async(node, dst, value as u8, bytes, stream)
        };
    hipModuleLoadData = Context (out: *mut StubHandle, code: *const c_void) => calls::module_load;
    hipModuleUnload = Context (module: StubHandle) => calls::module_unload;
    hipModuleGetFunction = Context (out: *mut StubHandle, module: StubHandle, name: *const c_char) =>
        calls::module_function;
    hipModuleLaunchKernel = Context
        (function: StubHandle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
         block_z: u32, shared: u32, stream: StubHandle, parameters: *const *const c_void,
         extra: *const *const c_void) => calls::launch;
    // Memory of other processes is not supported.
    hipIpcGetMemHandle = Context (_handle: *mut [u8; 64], _address: u64) =>
        |_: &mut StubNode, _, _| Err(status::NOT_SUPPORTED);
    hipIpcOpenMemHandle = Context (_out: *mut u64, _handle: IpcHandle, _flags: u32) =>
        |_: &mut StubNode, _, _, _| Err(status::NOT_SUPPORTED);
    hipIpcCloseMemHandle = Context (_address: u64) => |_: &mut StubNode, _| Err(status::NOT_SUPPORTED);
}

/// `hipIpcMemHandle_t`, passed by value.
#[repr(C)]
struct IpcHandle([u8; 64]);

// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: i32) -> *const c_char {
    status::status_texts(code).map_or(c"hipErrorUnknown", |(_, name, _)| name).as_ptr()
}

// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: i32) -> *const c_char {
    status::status_texts(code).map_or(c"stub: unknown error", |(_, _, text)| text).as_ptr()
}

/// `hipPointerAttribute_t`.
#[repr(C)]
struct PointerAttributes {
    kind: i32,
    device: i32,
    device_address: u64,
    host_address: u64,
    is_managed: i32,
    flags: u32,
}

/// The numbers of memory types changed with version 6; before it an unknown address is an error.
unsafe fn pointer_attributes(
    node: &mut StubNode,
    out: *mut PointerAttributes,
    address: u64,
) -> CallOutcome {
    let (known, device, ..) = calls::pointer(node, address);
    let newer = major(&node.spec) >= 6;
    let kind = match (newer, known) {
        (true, known) => known,
        (false, 0) => return Err(status::INVALID_VALUE),
        (false, 3) => 4,
        (false, known) => known - 1,
    };
    let is_managed = i32::from(known == 3);
    let attributes = PointerAttributes {
        kind,
        device,
        device_address: address,
        host_address: if known == 2 { 0 } else { address },
        is_managed,
        flags: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { put(out, attributes) }
}

/// `hipMemcpyKind`: host and device in all combinations, by the addresses, and without a compute
/// unit.
fn known_kind(kind: i32) -> CallOutcome {
    // hipErrorInvalidMemcpyDirection
    if matches!(kind, 0..=4 | 1024) { Ok(()) } else { Err(21) }
}

/// Fine-grained memory is 1, a signal of 8 bytes in host memory 2, uncached memory 3, contiguous 4.
unsafe fn with_flags(node: &mut StubNode, out: *mut u64, bytes: usize, flags: u32) -> CallOutcome {
    let (unit, mem) = match (flags, bytes) {
        (0 | 4, _) => (Unit::Gpu(node.gpu), MemKind::Vram),
        (1 | 3, _) => (Unit::Gpu(node.gpu), MemKind::VramFine),
        (2, 8) => (Unit::Numa(node.near()), MemKind::Pinned),
        _ => return Err(status::INVALID_VALUE),
    };
    // SAFETY: `out` is null or takes an address.
    unsafe { calls::alloc_as(node, out, bytes, unit, mem) }
}

/// Coherence of host memory depends on the combination of flags.
unsafe fn host_malloc(node: &mut StubNode, out: *mut u64, bytes: usize, flags: u32) -> CallOutcome {
    const PORTABLE: u32 = 1;
    const MAPPED: u32 = 2;
    const WRITE_COMBINED: u32 = 4;
    const NUMA_USER: u32 = 0x2000_0000;
    const COHERENT: u32 = 0x4000_0000;
    const NON_COHERENT: u32 = 0x8000_0000;
    let known = PORTABLE | MAPPED | WRITE_COMBINED | NUMA_USER | COHERENT | NON_COHERENT;
    let has = |flag: u32| flags & flag != 0;
    if flags & !known != 0 || (has(COHERENT) && has(NON_COHERENT)) {
        return Err(status::INVALID_VALUE);
    }
    let coherent = flags == 0 || has(COHERENT) || has(MAPPED) || has(NUMA_USER);
    let mem = if has(WRITE_COMBINED) {
        MemKind::PinnedWc
    } else if has(NON_COHERENT) || !coherent {
        MemKind::PinnedNonCoherent
    } else {
        MemKind::Pinned
    };
    // SAFETY: `out` is null or takes an address.
    unsafe { calls::alloc_as(node, out, bytes, Unit::Numa(node.near()), mem) }
}

/// Numbers of `hipDeviceAttribute_t`, the same from 5.0 on.
fn attribute(node: &StubNode, which: i32, gpu: i32) -> CallOutcome<i32> {
    let info = node.device(gpu)?;
    let pci = |nth| calls::pci(info, nth);
    Ok(match which {
        // Asynchronous engines, clock of the memory in kHz, width of its bus, threads of a block.
        2 => 2,
        56 => 1024,
        57 => 2048,
        59 => 4096,
        60 => 1_600_000,
        63 => i32::try_from(info.compute_units).unwrap_or(i32::MAX),
        23 => 9,
        61 => 0,
        67..=69 => pci([1, 2, 0][which as usize - 67]),
        87 => 64,
        // Managed memory, at the same time from both sides, unified addressing, waits for values.
        9 | 24 | 85 | 90 => 1,
        // Large BAR.
        10011 => i32::from(node.has_large_bar()),
        10013 => i32::from(!node.spec.missing.iter().any(|m| m == "hipStreamWaitValue32")),
        10016 => 1,
        0..=20000 => 0,
        _ => return Err(status::INVALID_VALUE),
    })
}

/// Fills the properties of a device that programs read: name, memory, architecture.
///
/// # Safety
/// `out` is null or has the layout's size: 1472 bytes or 792.
unsafe fn properties(node: &mut StubNode, out: *mut u8, gpu: i32, newer: bool) -> CallOutcome {
    if out.is_null() {
        return Err(status::INVALID_VALUE);
    }
    let newer = node.spec.newer_layout.unwrap_or(newer);
    let (size, memory_at, arch_at) = if newer { (1472, 288, 1160) } else { (792, 256, 396) };
    let info = node.device(gpu)?;
    let xnack = if std::env::var("HSA_XNACK").is_ok_and(|v| v == "1") { '+' } else { '-' };
    let arch = format!("{}:sramecc+:xnack{xnack}", info.arch);
    let mut all = vec![0u8; size];
    for (at, text) in [(0, info.name.as_bytes()), (arch_at, arch.as_bytes())] {
        all[at..at + text.len()].copy_from_slice(text);
    }
    all[memory_at..memory_at + 8].copy_from_slice(&info.memory.0.to_ne_bytes());
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), out, size) };
    Ok(())
}
