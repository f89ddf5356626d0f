//! CUDA's library, found at run time, and the primary contexts of its devices.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Handle;
use crate::cuda;
use crate::names::{INSUFFICIENT_DRIVER, NO_DEVICE};

type Look = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> i32;

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    /// The device whose context this thread has made current; -1 for none.
    static ENTERED: Cell<i32> = const { Cell::new(-1) };
}

/// Opens a library; 0 if it cannot be.
pub(crate) fn open(name: &str) -> usize {
    let Ok(name) = CString::new(name) else { return 0 };
    // SAFETY: a C string; the library's initialisers run as with any other. It is never closed.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) as usize }
}

/// A symbol of an open library; 0 if there is none.
pub(crate) fn symbol(library: usize, name: &str) -> usize {
    let Ok(name) = CString::new(name) else { return 0 };
    if library == 0 {
        return 0;
    }
    // SAFETY: an open library and a C string.
    unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) as usize }
}

/// Address of the driver's function with this name and version; 0 if it has none.
pub(crate) fn find(name: &str, version: i32) -> usize {
    static LOOK: OnceLock<usize> = OnceLock::new();
    let look = *LOOK.get_or_init(|| symbol(open("libcuda.so.1"), "cuGetProcAddress_v2"));
    let Ok(name) = CString::new(name) else { return 0 };
    if look == 0 {
        return 0;
    }
    let (mut at, mut status) = (std::ptr::null_mut(), 0);
    // SAFETY: the symbol has this signature since CUDA 12.0; name and results live through the call.
    let code = unsafe {
        std::mem::transmute::<usize, Look>(look)(
            name.as_ptr(),
            &raw mut at,
            version,
            0,
            &raw mut status,
        )
    };
    if code == 0 { at as usize } else { 0 }
}

/// Starts the driver, once.
pub(crate) fn init() -> i32 {
    static DONE: OnceLock<i32> = OnceLock::new();
    *DONE.get_or_init(|| {
        if find("cuInit", 2000) == 0 {
            return INSUFFICIENT_DRIVER;
        }
        cuda!("cuInit" @ 2000 (0 => u32))
    })
}

/// Version of CUDA whose code the driver accepts.
pub(crate) fn version() -> i32 {
    let mut version = 0;
    let code = cuda!("cuDriverGetVersion" @ 2020 (&raw mut version => *mut i32));
    if code == 0 { version } else { 0 }
}

/// The thread's device.
pub(crate) fn device() -> i32 {
    DEVICE.get()
}

/// Sets the thread's device.
pub(crate) fn set_device(gpu: i32) -> i32 {
    if let Err(code) = context(gpu) {
        return code;
    }
    DEVICE.set(gpu);
    current()
}

/// The primary context of a device, created on first use and kept for the life of the process.
pub(crate) fn context(gpu: i32) -> Result<Handle, i32> {
    static CONTEXTS: Mutex<BTreeMap<i32, Handle>> = Mutex::new(BTreeMap::new());
    match init() {
        0 => {}
        failed => return Err(failed),
    }
    let mut known = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&context) = known.get(&gpu) {
        return Ok(context);
    }
    let mut count = 0;
    let code = cuda!("cuDeviceGetCount" @ 2000 (&raw mut count => *mut i32));
    if code == 0 && count == 0 {
        return Err(NO_DEVICE);
    }
    let mut context = 0;
    match cuda!("cuDevicePrimaryCtxRetain" @ 7000 (&raw mut context => *mut Handle, gpu => i32)) {
        0 => {
            known.insert(gpu, context);
            Ok(context)
        }
        failed => Err(failed),
    }
}

/// Makes the context of the thread's device the current one.
pub(crate) fn current() -> i32 {
    let gpu = DEVICE.get();
    if ENTERED.get() == gpu {
        return 0;
    }
    let context = match context(gpu) {
        Ok(context) => context,
        Err(code) => return code,
    };
    let code = cuda!("cuCtxSetCurrent" @ 4000 (context => Handle));
    if code == 0 {
        ENTERED.set(gpu);
    }
    code
}
