//! The CUDA driver API: exported under libcuda's names, and found by `cuGetProcAddress` under the
//! names and versions of its headers.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_void};

use pathline_schema::{MemKind, Unit};

use crate::calls::{self, put};
use crate::entry::{self, CallNeeds, enter};
use crate::graph;
use crate::node::{CallOutcome, StubNode};
use crate::spec::StubApi;
use crate::status;
use crate::streams::HostFunction;
use crate::streams::StubHandle;

/// The default version of CUDA.
const VERSION: i32 = 13000;

/// A function: name, version of its signature, address.
type CudaEntry = (&'static str, i32, *const c_void);

/// Defines functions with their bodies, exports them, and makes the lookup table. Exports call the
/// functions of the table, not the reverse, so internal calls do not depend on exports that
/// `lay_out` hides.
macro_rules! export {
    ($($symbol:ident = $name:literal @ $version:literal $needs:ident
        ($($arg:ident: $kind:ty),*) => $body:expr;)*) => {
        mod found {
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $symbol($($arg: $kind),*) -> i32 {
                    #[allow(unused_unsafe)]
                    enter(StubApi::Cuda, $name, CallNeeds::$needs, |node: &mut StubNode| -> CallOutcome {
                        // SAFETY: the arguments are what the vendor's function of this name takes.
                        unsafe { ($body)(node, $($arg),*) }
                    })
                }
            )*
        }
        $(
            // SAFETY: the name is the vendor's, for whose library this one stands in.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($arg: $kind),*) -> i32 {
                // SAFETY: the caller's promise.
                unsafe { found::$symbol($($arg),*) }
            }
        )*
        fn table() -> Vec<CudaEntry> {
            vec![$(($name, $version, found::$symbol as *const c_void)),*]
        }
    };
}

/// A place of pages, as the newer prefetch takes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct StubLocation {
    kind: i32,
    id: i32,
}

impl StubLocation {
    /// Kinds: device 1, host 2, NUMA node 3, the current NUMA node 4.
    pub(crate) fn unit(self, node: &StubNode) -> CallOutcome<Unit> {
        match self.kind {
            1 => Ok(Unit::Gpu(node.device(self.id)?.index)),
            2 | 4 => Ok(Unit::Numa(node.near())),
            3 => u32::try_from(self.id).map(Unit::Numa).map_err(|_| status::INVALID_VALUE),
            _ => Err(status::INVALID_VALUE),
        }
    }
}

export! {
    cuInit = "cuInit" @ 2000 Nothing (flags: u32) =>
        |node: &mut StubNode, flags| calls::only(flags, 0).and_then(|()| node.initialise());
    cuDriverGetVersion = "cuDriverGetVersion" @ 2020 Nothing (out: *mut i32) =>
        |node: &mut StubNode, out| put(out, node.spec.driver.unwrap_or(VERSION));
    cuDeviceGetCount = "cuDeviceGetCount" @ 2000 Init (out: *mut i32) => calls::device_count;
    cuDeviceGet = "cuDeviceGet" @ 2000 Init (out: *mut i32, nth: i32) => calls::device_get;
    cuDeviceGetName = "cuDeviceGetName" @ 2000 Init (out: *mut c_char, room: i32, gpu: i32) =>
        calls::device_name;
    cuDeviceGetPCIBusId = "cuDeviceGetPCIBusId" @ 4010 Init
        (out: *mut c_char, room: i32, gpu: i32) => calls::device_pci;
    cuDeviceGetUuid_v2 = "cuDeviceGetUuid" @ 11040 Init (out: *mut [u8; 16], gpu: i32) =>
        calls::device_uuid;
    cuDeviceTotalMem_v2 = "cuDeviceTotalMem" @ 3020 Init (out: *mut usize, gpu: i32) =>
        calls::device_total;
    cuDeviceGetAttribute = "cuDeviceGetAttribute" @ 2000 Init
        (out: *mut i32, which: i32, gpu: i32) =>
        |node: &mut StubNode, out, which, gpu| put(out, attribute(node, which, gpu)?);
    cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer" @ 4000 Init
        (out: *mut i32, from: i32, to: i32) => calls::can_access;
    cuDeviceGetP2PAttribute = "cuDeviceGetP2PAttribute" @ 8000 Init
        (out: *mut i32, which: i32, from: i32, to: i32) =>
        |node: &mut StubNode, out, which, from, to| match which {
            1 => put(out, 0),
            2..=4 => calls::can_access(node, out, from, to),
            _ => Err(status::INVALID_VALUE),
        };
    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" @ 7000 Init
        (out: *mut StubHandle, gpu: i32) => |node: &mut StubNode, out, gpu| put(out, calls::open(node, gpu)?);
    cuDevicePrimaryCtxRelease_v2 = "cuDevicePrimaryCtxRelease" @ 11000 Init (gpu: i32) => release;
    cuCtxSetCurrent = "cuCtxSetCurrent" @ 4000 Init (context: StubHandle) => set_current;
    cuCtxPushCurrent_v2 = "cuCtxPushCurrent" @ 4000 Init (context: StubHandle) =>
        |node: &mut StubNode, context| {
            opened(node, context)?;
            entry::push_current(context);
            Ok(())
        };
    cuCtxPopCurrent_v2 = "cuCtxPopCurrent" @ 4000 Init (out: *mut StubHandle) =>
        |_: &mut StubNode, out| put(out, entry::pop_current().ok_or(status::INVALID_CONTEXT)?);
    cuCtxGetDevice = "cuCtxGetDevice" @ 2000 Context (out: *mut i32) =>
        |node: &mut StubNode, out| put(out, node.gpu.cast_signed());
    cuPointerGetAttributes = "cuPointerGetAttributes" @ 7000 Context
        (count: u32, which: *const i32, into: *const *mut c_void, address: u64) => attributes;
    cuStreamIsCapturing = "cuStreamIsCapturing" @ 10000 Context
        (stream: StubHandle, out: *mut i32) => calls::is_capturing;
    cuStreamGetCtx = "cuStreamGetCtx" @ 9020 Context (stream: StubHandle, out: *mut StubHandle) =>
        |node: &mut StubNode, stream, out| {
            let gpu = calls::gpu_of_stream(node, stream)?;
            put(out, entry::context(gpu))
        };
    cuCtxSynchronize = "cuCtxSynchronize" @ 2000 Context () => calls::synchronize;
    cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess" @ 4000 Context (to: StubHandle, flags: u32) =>
        |node: &mut StubNode, to, flags| {
            calls::only(flags, 0)?;
            calls::enable_peer(node, opened(node, to)?)
        };
    cuCtxDisablePeerAccess = "cuCtxDisablePeerAccess" @ 4000 Context (to: StubHandle) =>
        |node: &mut StubNode, to| calls::disable_peer(node, opened(node, to)?);
    cuMemGetInfo_v2 = "cuMemGetInfo" @ 3020 Context (free: *mut usize, total: *mut usize) =>
        calls::mem_info;
    cuMemAlloc_v2 = "cuMemAlloc" @ 3020 Context (out: *mut u64, bytes: usize) => calls::mem_alloc;
    cuMemGetAddressRange_v2 = "cuMemGetAddressRange" @ 3020 Context
        (start: *mut u64, bytes: *mut usize, address: u64) => calls::range;
    cuMemFree_v2 = "cuMemFree" @ 3020 Context (address: u64) => calls::mem_free;
    cuMemHostAlloc = "cuMemHostAlloc" @ 2020 Context (out: *mut u64, bytes: usize, flags: u32) =>
        host_alloc;
    cuMemFreeHost = "cuMemFreeHost" @ 2000 Context (address: u64) => calls::host_free;
    cuMemHostRegister_v2 = "cuMemHostRegister" @ 6050 Context
        (address: u64, bytes: usize, flags: u32) => calls::host_register;
    cuMemHostUnregister = "cuMemHostUnregister" @ 4000 Context (address: u64) =>
        calls::host_unregister;
    cuMemHostGetDevicePointer_v2 = "cuMemHostGetDevicePointer" @ 3020 Context
        (out: *mut u64, address: u64, flags: u32) => calls::host_pointer;
    cuMemGetHandleForAddressRange = "cuMemGetHandleForAddressRange" @ 11070 Context
        (out: *mut i32, address: u64, bytes: usize, kind: i32, flags: u64) => calls::export;
    cuMemAllocManaged = "cuMemAllocManaged" @ 6000 Context
        (out: *mut u64, bytes: usize, flags: u32) => calls::managed_alloc;
    cuMemAdvise = "cuMemAdvise" @ 8000 Context
        (address: u64, bytes: usize, advice: i32, device: i32) => calls::advise;
    cuMemPrefetchAsync = "cuMemPrefetchAsync" @ 8000 Context
        (address: u64, bytes: usize, device: i32, stream: StubHandle) => calls::prefetch;
    cuMemPrefetchAsync_v2 = "cuMemPrefetchAsync" @ 12020 Context
        (address: u64, bytes: usize, to: StubLocation, _flags: u32, stream: StubHandle) =>
        |node: &mut StubNode, address, bytes: usize, to: StubLocation, _, stream| {
            let unit = to.unit(node)?;
            node.prefetch(stream, address, bytes as u64, unit)
        };
    cuStreamCreate = "cuStreamCreate" @ 2000 Context (out: *mut StubHandle, flags: u32) =>
        calls::stream_create;
    cuStreamDestroy_v2 = "cuStreamDestroy" @ 4000 Context (stream: StubHandle) =>
        calls::stream_destroy;
    cuStreamSynchronize = "cuStreamSynchronize" @ 2000 Context (stream: StubHandle) =>
        calls::stream_wait;
    cuStreamQuery = "cuStreamQuery" @ 2000 Context (stream: StubHandle) => calls::stream_query;
    cuStreamWaitEvent = "cuStreamWaitEvent" @ 3020 Context
        (stream: StubHandle, event: StubHandle, flags: u32) => calls::stream_await;
    cuStreamWaitValue32_v2 = "cuStreamWaitValue32" @ 11070 Context
        (stream: StubHandle, address: u64, value: u32, flags: u32) =>
        |node: &mut StubNode, stream, address, value, flags| {
            calls::wait_value(node, stream, address, value, flags, u32::MAX)
        };
    cuLaunchHostFunc = "cuLaunchHostFunc" @ 10000 Context
        (stream: StubHandle, function: Option<HostFunction>, data: *mut c_void) => calls::host_function;
    cuStreamBeginCapture_v2 = "cuStreamBeginCapture" @ 10010 Context
        (stream: StubHandle, mode: i32) => graph::begin;
    cuStreamEndCapture = "cuStreamEndCapture" @ 10000 Context
        (stream: StubHandle, out: *mut StubHandle) => graph::end;
    cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" @ 11040 Context
        (out: *mut StubHandle, graph: StubHandle, flags: u64) =>
        |node: &mut StubNode, out, graph, _| graph::make(node, out, graph);
    cuGraphLaunch = "cuGraphLaunch" @ 10000 Context (graph: StubHandle, stream: StubHandle) =>
        graph::launch;
    cuGraphDestroy = "cuGraphDestroy" @ 10000 Context (graph: StubHandle) => graph::free;
    cuGraphExecDestroy = "cuGraphExecDestroy" @ 10000 Context (graph: StubHandle) => graph::free;
    cuEventCreate = "cuEventCreate" @ 2000 Context (out: *mut StubHandle, flags: u32) =>
        calls::event_create;
    cuEventDestroy_v2 = "cuEventDestroy" @ 4000 Context (event: StubHandle) => calls::event_destroy;
    cuEventRecord = "cuEventRecord" @ 2000 Context (event: StubHandle, stream: StubHandle) =>
        calls::event_record;
    cuEventQuery = "cuEventQuery" @ 2000 Context (event: StubHandle) => calls::event_query;
    cuEventSynchronize = "cuEventSynchronize" @ 2000 Context (event: StubHandle) => calls::event_wait;
    cuEventElapsedTime = "cuEventElapsedTime" @ 2000 Context
        (out: *mut f32, start: StubHandle, end: StubHandle) => calls::event_elapsed;
    cuEventElapsedTime_v2 = "cuEventElapsedTime" @ 12080 Context
        (out: *mut f32, start: StubHandle, end: StubHandle) => calls::event_elapsed;
    cuMemcpy = "cuMemcpy" @ 4000 Context (dst: u64, src: u64, bytes: usize) => calls::copy_now;
    cuMemcpyAsync = "cuMemcpyAsync" @ 4000 Context
        (dst: u64, src: u64, bytes: usize, stream: StubHandle) => calls::copy_async;
    cuMemcpyHtoD_v2 = "cuMemcpyHtoD" @ 3020 Context (dst: u64, src: u64, bytes: usize) =>
        calls::copy_now;
    cuMemcpyDtoH_v2 = "cuMemcpyDtoH" @ 3020 Context (dst: u64, src: u64, bytes: usize) =>
        calls::copy_now;
    cuMemcpyDtoD_v2 = "cuMemcpyDtoD" @ 3020 Context (dst: u64, src: u64, bytes: usize) =>
        calls::copy_now;
    cuMemcpyHtoDAsync_v2 = "cuMemcpyHtoDAsync" @ 3020 Context
        (dst: u64, src: u64, bytes: usize, stream: StubHandle) => calls::copy_async;
    cuMemcpyDtoHAsync_v2 = "cuMemcpyDtoHAsync" @ 3020 Context
        (dst: u64, src: u64, bytes: usize, stream: StubHandle) => calls::copy_async;
    cuMemcpyDtoDAsync_v2 = "cuMemcpyDtoDAsync" @ 3020 Context
        (dst: u64, src: u64, bytes: usize, stream: StubHandle) => calls::copy_async;
    cuMemcpyPeerAsync = "cuMemcpyPeerAsync" @ 4000 Context
        (dst: u64, to: StubHandle, src: u64, from: StubHandle, bytes: usize, stream: StubHandle) =>
        |node: &mut StubNode, dst, to, src, from, bytes, stream| {
            opened(node, to)?;
            opened(node, from)?;
            calls::copy_async(node, dst, src, bytes, stream)
        };
    cuMemcpyBatchAsync = "cuMemcpyBatchAsync" @ 12080 Context
        (dsts: *const u64, srcs: *const u64, sizes: *const usize, count: usize,
         attributes: *const c_void, at: *const usize, attribute_count: usize,
         failed: *mut usize, stream: StubHandle) =>
        |node: &mut StubNode, dsts, srcs, sizes, count, _, _, _, failed: *mut usize, stream| {
            calls::batch(node, (dsts, srcs, sizes), count, failed, stream)
        };
    cuMemcpyBatchAsync_v2 = "cuMemcpyBatchAsync" @ 13000 Context
        (dsts: *const u64, srcs: *const u64, sizes: *const usize, count: usize,
         attributes: *const c_void, at: *const usize, attribute_count: usize, stream: StubHandle) =>
        |node: &mut StubNode, dsts, srcs, sizes, count, _, _, _, stream| {
            calls::batch(node, (dsts, srcs, sizes), count, std::ptr::null_mut(), stream)
        };
    cuMemsetD8_v2 = "cuMemsetD8" @ 3020 Context (dst: u64, value: u8, bytes: usize) =>
        calls::set_now;
    cuMemsetD8Async = "cuMemsetD8Async" @ 3020 Context
        (dst: u64, value: u8, bytes: usize, stream: StubHandle) => calls::set_async;
    cuModuleLoadData = "cuModuleLoadData" @ 2000 Context (out: *mut StubHandle, code: *const c_void) =>
        calls::module_load;
    cuModuleUnload = "cuModuleUnload" @ 2000 Context (module: StubHandle) => calls::module_unload;
    cuModuleGetFunction = "cuModuleGetFunction" @ 2000 Context
        (out: *mut StubHandle, module: StubHandle, name: *const c_char) => calls::module_function;
    cuFuncLoad = "cuFuncLoad" @ 12040 Context (function: StubHandle) => known_function;
    cuFuncSetAttribute = "cuFuncSetAttribute" @ 9000 Context
        (function: StubHandle, which: i32, value: i32) =>
        set_attribute;
    cuLaunchKernel = "cuLaunchKernel" @ 4000 Context
        (function: StubHandle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
         block_z: u32, shared: u32, stream: StubHandle, parameters: *const *const c_void,
         extra: *const *const c_void) => calls::launch;
    cuGetErrorName = "cuGetErrorName" @ 6000 Nothing (code: i32, out: *mut *const c_char) =>
        |_: &mut StubNode, code, out| status_part(code, out, |(name, _, _)| name);
    cuGetErrorString = "cuGetErrorString" @ 6000 Nothing (code: i32, out: *mut *const c_char) =>
        |_: &mut StubNode, code, out| status_part(code, out, |(_, _, text)| text);
}

/// # Safety
/// `out` is null or points to a place for a pointer.
unsafe fn status_part(
    code: i32,
    out: *mut *const c_char,
    which: impl Fn((&'static CStr, &'static CStr, &'static CStr)) -> &'static CStr,
) -> CallOutcome {
    let known = status::status_texts(code).ok_or(status::INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { put(out, which(known).as_ptr()) }
}

unsafe fn host_alloc(node: &mut StubNode, out: *mut u64, bytes: usize, flags: u32) -> CallOutcome {
    const WRITE_COMBINED: u32 = 4;
    calls::only(flags, 7)?;
    let mem = if flags & WRITE_COMBINED != 0 { MemKind::PinnedWc } else { MemKind::Pinned };
    // SAFETY: `out` is null or takes an address.
    unsafe { calls::alloc_as(node, out, bytes, Unit::Numa(node.near()), mem) }
}

fn release(node: &mut StubNode, gpu: i32) -> CallOutcome {
    let gpu = node.device(gpu)?.index;
    match node.retained.get_mut(&gpu) {
        Some(held) if *held > 0 => {
            *held -= 1;
            if *held == 0 { node.destroy_objects(gpu) } else { Ok(()) }
        }
        _ => Err(status::INVALID_CONTEXT),
    }
}

/// The GPU of a retained context.
fn opened(node: &StubNode, context: StubHandle) -> CallOutcome<u32> {
    entry::gpu_of(context).filter(|gpu| node.is_retained(*gpu)).ok_or(status::INVALID_CONTEXT)
}

fn set_current(node: &mut StubNode, context: StubHandle) -> CallOutcome {
    if context != 0 {
        opened(node, context)?;
    }
    entry::set_current(context);
    Ok(())
}

/// Attribute 8 is the maximum of dynamic shared memory.
fn set_attribute(node: &mut StubNode, function: StubHandle, which: i32, value: i32) -> CallOutcome {
    // The limit of a block on sm_90.
    const MOST: u32 = 227 << 10;
    known_function(node, function)?;
    let value = u32::try_from(value).map_err(|_| status::INVALID_VALUE)?;
    match (which, node.functions.get_mut(&function)) {
        (8, Some(function)) if value <= MOST => function.shared = value,
        (8, _) => return Err(status::INVALID_VALUE),
        _ => {}
    }
    Ok(())
}

fn known_function(node: &mut StubNode, function: StubHandle) -> CallOutcome {
    node.functions.contains_key(&function).then_some(()).ok_or(status::INVALID_HANDLE)
}

/// Numbers of `CUpointer_attribute`; an unknown address has zeroes.
///
/// # Safety
/// Both lists have `count` entries, and each entry of the second has room for its attribute.
unsafe fn attributes(
    node: &mut StubNode,
    count: u32,
    which: *const i32,
    into: *const *mut c_void,
    address: u64,
) -> CallOutcome {
    if which.is_null() || into.is_null() {
        return Err(status::INVALID_VALUE);
    }
    let (kind, device, start, bytes) = calls::pointer(node, address);
    for nth in 0..count as usize {
        // SAFETY: the caller's promise.
        unsafe {
            let into = into.add(nth).read();
            match which.add(nth).read() {
                // Managed memory is memory of the device, or of the host.
                2 => put(into.cast::<u32>(), if kind == 3 { 2 } else { kind.cast_unsigned() })?,
                // Where kernels of the current GPU reach it, and whether it came from cuMemAlloc.
                3 => {
                    let reached = node.twin_for_kernel(node.gpu, address, 1).is_some();
                    put(into.cast::<u64>(), if reached { address } else { 0 })?;
                }
                10 => put(into.cast::<u8>(), u8::from(kind == 2))?,
                8 => put(into.cast::<u8>(), u8::from(kind == 3))?,
                9 => put(into.cast::<i32>(), device)?,
                11 => put(into.cast::<u64>(), start)?,
                12 => put(into.cast::<usize>(), bytes as usize)?,
                _ => return Err(status::INVALID_VALUE),
            }
        }
    }
    Ok(())
}

/// Numbers of `CUdevice_attribute`; other attributes are 0.
fn attribute(node: &StubNode, which: i32, gpu: i32) -> CallOutcome<i32> {
    let gpu = node.device(gpu)?;
    let arch: i32 = gpu.arch.trim_start_matches("sm_").parse().unwrap_or(0);
    Ok(match which {
        1 => 1024,
        10 => 32,
        16 => i32::try_from(gpu.compute_units).unwrap_or(i32::MAX),
        // Compute mode: default, or one process.
        20 => i32::from(node.spec.exclusive) * 3,
        // PCI bus, device, domain.
        33 => calls::pci(gpu, 1),
        34 => calls::pci(gpu, 2),
        50 => calls::pci(gpu, 0),
        39 => 2048,
        40 => 3,
        75 => arch / 10,
        76 => arch % 10,
        // Unified addressing, managed memory, concurrent managed access, registration, stream waits.
        41 | 83 | 89 | 92 | 94 | 99 => 1,
        0..=200 => 0,
        _ => return Err(status::INVALID_VALUE),
    })
}

/// The function of a name with the newest signature up to a version.
fn find(node: &StubNode, name: &str, version: i32) -> Option<*const c_void> {
    let newest = version.min(node.spec.driver.unwrap_or(VERSION));
    if node.spec.missing.iter().any(|missing| missing == name) {
        return None;
    }
    let of_name = table().into_iter().filter(|(known, v, _)| *known == name && *v <= newest);
    of_name.max_by_key(|(_, v, _)| *v).map(|(.., at)| at)
}

/// A table that holds only its own size.
static EMPTY: [usize; 1] = [size_of::<usize>()];

/// A real NVRTC requests one of NVIDIA's private tables from the driver of its process, and uses
/// the result without checking the status.
// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(out: *mut *const usize, _which: *const c_void) -> i32 {
    // SAFETY: `out` is null or takes a pointer.
    unsafe { put(out, EMPTY.as_ptr()) }.map_or_else(|code| code, |()| 0)
}

/// Looks up a function. For an unknown one the result is a null pointer without an error.
///
/// # Safety
/// `name` is null or a C string, `out` can store a pointer, `found` is null or can store a number.
unsafe fn look_up(
    name: *const c_char,
    out: *mut *const c_void,
    version: i32,
    found: *mut i32,
) -> i32 {
    enter(StubApi::Cuda, "cuGetProcAddress", CallNeeds::Nothing, |node| {
        if name.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let name = CStr::from_ptr(name).to_str().unwrap_or_default();
            let at = find(node, name, version);
            if !found.is_null() {
                found.write(i32::from(at.is_none()));
            }
            put(out, at.unwrap_or(std::ptr::null()))
        }
    })
}

// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    out: *mut *const c_void,
    version: i32,
    _flags: u64,
    found: *mut i32,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { look_up(name, out, version, found) }
}

/// The older version, which does not return a status of the search.
// SAFETY: the name is the vendor's, for whose library this one stands in.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    out: *mut *const c_void,
    version: i32,
    _flags: u64,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { look_up(name, out, version, std::ptr::null_mut()) }
}
