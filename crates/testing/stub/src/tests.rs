//! The library under a program that does not use pathline's driver.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use pathline_hal::kernel;
use pathline_schema::{KernelOp, KernelVariant};

use crate::cuda::cuGetProcAddress_v2;
use crate::image;
use crate::status::*;

/// The result of `cuGetProcAddress`: status, address, and search status.
fn look(name: &str, version: i32) -> (i32, *const c_void, i32) {
    let name = CString::new(name).unwrap();
    let (mut at, mut found) = (std::ptr::null(), -1);
    // SAFETY: the name and both results live through the call.
    let code =
        unsafe { cuGetProcAddress_v2(name.as_ptr(), &raw mut at, version, 0, &raw mut found) };
    (code, at, found)
}

/// Calls a function of the table at its version.
macro_rules! cu {
    ($name:ident @ $version:literal ($($arg:expr => $kind:ty),*)) => {{
        let (_, at, _) = look(stringify!($name), $version);
        assert!(!at.is_null());
        // SAFETY: the library gave this address for the name at the version of this signature;
        // arguments are as its manual has them.
        unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($kind),*) -> i32>(at)($($arg),*)
        }
    }};
}

#[test]
fn functions_are_found_by_name_and_version() {
    let prefetch = look("cuMemPrefetchAsync", 8000).1;
    assert_eq!(look("cuMemPrefetchAsync", 12010).1, prefetch);
    assert_ne!(look("cuMemPrefetchAsync", 12020).1, prefetch);
    // The name has no suffix, and an unknown one is no error.
    for (name, version) in [("cuMemAlloc_v2", 3020), ("cuMemAlloc", 2000), ("cuNothing", 12000)] {
        assert_eq!(look(name, version), (0, std::ptr::null(), 1), "{name}");
    }
}

fn allocate() -> u64 {
    let mut address = 0;
    assert_eq!(cu!(cuMemAlloc @ 3020 (&raw mut address => *mut u64, 4096 => usize)), 0);
    address
}

fn enter(gpu: i32) -> usize {
    let mut context = 0;
    assert_eq!(
        cu!(cuDevicePrimaryCtxRetain @ 7000 (&raw mut context => *mut usize, gpu => i32)),
        0
    );
    assert_eq!(cu!(cuCtxSetCurrent @ 4000 (context => usize)), 0);
    context
}

fn stream() -> usize {
    let mut stream = 0;
    assert_eq!(cu!(cuStreamCreate @ 2000 (&raw mut stream => *mut usize, 1 => u32)), 0);
    stream
}

fn wait(stream: usize) -> i32 {
    cu!(cuStreamSynchronize @ 2000 (stream => usize))
}

/// The function of the standard copy kernel in the current context.
fn copy_kernel() -> usize {
    let source = kernel::source(&KernelVariant::standard(KernelOp::Copy));
    let code = image::pack("sm_90", &source);
    let (mut module, mut function) = (0, 0);
    let loaded =
        cu!(cuModuleLoadData @ 2000 (&raw mut module => *mut usize, code.as_ptr() => *const u8));
    assert_eq!(loaded, 0);
    let name = CString::new(kernel::ENTRY).unwrap();
    let found = cu!(cuModuleGetFunction @ 2000 (
        &raw mut function => *mut usize, module => usize, name.as_ptr() => *const std::ffi::c_char));
    assert_eq!(found, 0);
    function
}

fn launch(function: usize, stream: usize, mut words: [u64; 4]) -> i32 {
    let mut pointers: Vec<*mut u64> = words.iter_mut().map(|word| word as *mut u64).collect();
    cu!(cuLaunchKernel @ 4000 (
        function => usize, 1 => u32, 1 => u32, 1 => u32, 256 => u32, 1 => u32, 1 => u32, 0 => u32,
        stream => usize, pointers.as_mut_ptr() => *mut *mut u64, std::ptr::null() => *const c_void))
}

/// One process has one driver, so this is one test.
#[test]
fn calls_end_with_the_status_that_the_driver_gives() {
    let mut number = 0;
    let count = |number: &mut i32| cu!(cuDeviceGetCount @ 2000 (number => *mut i32));
    assert_eq!(count(&mut number), NOT_INITIALIZED);
    assert_eq!(cu!(cuInit @ 2000 (0 => u32)), 0);
    assert_eq!((count(&mut number), number), (0, 8));
    let alloc = |out: &mut u64, bytes| cu!(cuMemAlloc @ 3020 (out => *mut u64, bytes => usize));
    let mut address = 0;
    assert_eq!(alloc(&mut address, 64), INVALID_CONTEXT);
    let mut context = 0usize;
    let retained = cu!(cuDevicePrimaryCtxRetain @ 7000 (&raw mut context => *mut usize, 8 => i32));
    assert_eq!(retained, INVALID_DEVICE);
    let peer = enter(1);
    let far = allocate();
    enter(0);
    assert_eq!(alloc(&mut address, 0), INVALID_VALUE);
    assert_eq!(alloc(&mut address, 1 << 40), OUT_OF_MEMORY);
    let near = allocate();
    let free = |address| cu!(cuMemFree @ 3020 (address => u64));
    assert_eq!(free(near + 64), INVALID_VALUE);

    let page = vec![7u8; 3 * 8192];
    let at = page.as_ptr() as u64 + 8192;
    let register = |at, bytes| cu!(cuMemHostRegister @ 6050 (at => u64, bytes => usize, 0 => u32));
    let unregister = |at| cu!(cuMemHostUnregister @ 4000 (at => u64));
    assert_eq!(unregister(at), NOT_REGISTERED);
    assert_eq!((register(at, 8192), register(at + 4096, 4096)), (0, ALREADY_REGISTERED));
    assert_eq!((register(at, 8192), unregister(at + 4096)), (ALREADY_REGISTERED, NOT_REGISTERED));
    let copy = |dst, src, bytes| cu!(cuMemcpyAsync @ 4000 (dst => u64, src => u64, bytes => usize, 0 => usize));
    // A copy may not leave an allocation or registered memory, or enter it; nor have memory that was freed.
    assert_eq!((copy(near, at, 4096), copy(near, at, 4097)), (0, INVALID_VALUE));
    assert_eq!((copy(near, at + 8191, 2), copy(near, at - 1, 2)), (INVALID_VALUE, INVALID_VALUE));
    let gone = allocate();
    assert_eq!(
        (free(gone), copy(gone, at, 16), copy(near, gone, 16)),
        (0, INVALID_VALUE, INVALID_VALUE)
    );
    assert_eq!(register(gone, 4096), INVALID_VALUE);
    assert_eq!(unregister(at), 0);
    let flagged = cu!(cuMemHostRegister @ 6050 (at => u64, 8192 => usize, 16 => u32));
    assert_eq!((flagged, cu!(cuInit @ 2000 (1 => u32))), (INVALID_VALUE, INVALID_VALUE));

    // An event is recorded on streams of its GPU. What a context has made ends with it.
    let of_near = stream();
    let third = enter(2);
    let (of_third, mut event, there) = (stream(), 0usize, allocate());
    let create =
        |event: &mut usize, flags| cu!(cuEventCreate @ 2000 (event => *mut usize, flags => u32));
    assert_eq!((create(&mut event, 8), create(&mut event, 4), create(&mut event, 2)), (1, 1, 0));
    let record = |stream| cu!(cuEventRecord @ 2000 (event => usize, stream => usize));
    assert_eq!((record(of_near), record(of_third)), (INVALID_HANDLE, 0));
    assert_eq!(cu!(cuDevicePrimaryCtxRelease @ 11000 (2 => i32)), 0);
    assert_eq!((wait(of_third), free(there)), (CONTEXT_DESTROYED, CONTEXT_DESTROYED));
    assert_eq!(cu!(cuCtxSetCurrent @ 4000 (third => usize)), INVALID_CONTEXT);
    enter(2);
    assert_eq!((wait(of_third), record(of_near)), (INVALID_HANDLE, INVALID_HANDLE));
    assert_eq!((copy(there, at, 16), free(there)), (INVALID_VALUE, INVALID_VALUE));
    enter(0);

    // Two bytes arrive when the word allows it, and not before.
    let stream = stream();
    let mut pinned = 0u64;
    let flags = 1u32;
    assert_eq!(
        cu!(cuMemHostAlloc @ 2020 (&raw mut pinned => *mut u64, 64 => usize, flags => u32)),
        0
    );
    // SAFETY: 64 bytes that were just allocated, on a page boundary, and are freed by nobody.
    let (word, bytes) = unsafe {
        (AtomicU32::from_ptr(pinned as *mut u32), AtomicU32::from_ptr((pinned + 8) as *mut u32))
    };
    assert_eq!(cu!(cuMemsetD8 @ 3020 (near => u64, 0x5a => u8, 4096 => usize)), 0);
    let held =
        cu!(cuStreamWaitValue32 @ 11070 (stream => usize, pinned => u64, 3 => u32, 0 => u32));
    let copied = cu!(cuMemcpyAsync @ 4000 (
        pinned + 8 => u64, near => u64, 4 => usize, stream => usize));
    assert_eq!((held, copied), (0, 0));
    let query = || cu!(cuStreamQuery @ 2000 (stream => usize));
    assert_eq!((query(), bytes.load(Ordering::Relaxed)), (NOT_READY, 0));
    word.store(3, Ordering::Release);
    assert_eq!((wait(stream), query()), (0, 0));
    assert_eq!(bytes.load(Ordering::Relaxed), 0x5a5a_5a5a);

    // A kernel needs peer access, once; without it only its context becomes unusable.
    let function = copy_kernel();
    let arguments = [near, far, 4096, near];
    let enable = || cu!(cuCtxEnablePeerAccess @ 4000 (peer => usize, 0 => u32));
    assert_eq!((enable(), enable()), (0, PEER_ALREADY_ENABLED));
    assert_eq!((launch(function, stream, arguments), wait(stream)), (0, 0));
    assert_eq!(cu!(cuCtxDisablePeerAccess @ 4000 (peer => usize)), 0);
    assert_eq!(launch(function, stream, arguments), 0, "the error comes later");
    assert_eq!((wait(stream), free(near)), (ILLEGAL_ADDRESS, ILLEGAL_ADDRESS));
    enter(1);
    assert_eq!(free(far), 0);
    let text = CString::new("no image").unwrap();
    let mut module = 0usize;
    let loaded = cu!(cuModuleLoadData @ 2000 (
        &raw mut module => *mut usize, text.as_ptr() => *const std::ffi::c_char));
    assert_eq!(loaded, INVALID_IMAGE);
}
