//! Tables of functions, bound by name: the CUDA driver and its run-time compiler.

use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;

use crate::library::Library;

/// A context, stream, event, module, function or program of the library.
pub(crate) type Handle = usize;

/// Where pages are to lie, as `CUmemLocation` has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// A table of functions: field, symbol, version of its signature, parameters. All return a status.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident {
        required { $($field:ident = $symbol:literal @ $version:literal ($($arg:ty),*);)* }
        optional { $($ofield:ident = $osymbol:literal @ $oversion:literal ($($oarg:ty),*);)* }
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> i32,)*
            $(pub(crate) $ofield: Option<unsafe extern "C" fn($($oarg),*) -> i32>,)*
        }
        impl $name {
            /// Binds all functions; the names of required ones that are missing are the error.
            fn bind(find: &dyn Fn(&str, i32) -> Option<NonNull<c_void>>) -> Result<Self, String> {
                let mut missing: Vec<&str> = Vec::new();
                $(let $field = find($symbol, $version);
                  if $field.is_none() { missing.push($symbol); })*
                if !missing.is_empty() {
                    return Err(format!("it lacks {}", missing.join(", ")));
                }
                Ok(Self {
                    $($field: match $field {
                        // SAFETY: the library defines this symbol with this signature, which its
                        // vendor's headers fix for the version that was asked for.
                        Some(at) => unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> i32>(at.as_ptr()) },
                        None => return Err(format!("it lacks {}", $symbol)),
                    },)*
                    // SAFETY: as above.
                    $($ofield: find($osymbol, $oversion).map(|at| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($oarg),*) -> i32>(at.as_ptr()) }),)*
                })
            }
        }
    };
}

table!(
    /// The CUDA driver API. Versions are those at which a signature was introduced (`cudaTypedefs.h`
    /// of CUDA 13): asking for the driver's own version would give whatever signature it has newest.
    Cuda {
        required {
            init = "cuInit" @ 2000 (u32);
            driver_version = "cuDriverGetVersion" @ 2020 (*mut i32);
            device_count = "cuDeviceGetCount" @ 2000 (*mut i32);
            device_get = "cuDeviceGet" @ 2000 (*mut i32, i32);
            device_name = "cuDeviceGetName" @ 2000 (*mut c_char, i32, i32);
            device_total = "cuDeviceTotalMem" @ 3020 (*mut usize, i32);
            device_attribute = "cuDeviceGetAttribute" @ 2000 (*mut i32, i32, i32);
            device_pci = "cuDeviceGetPCIBusId" @ 4010 (*mut c_char, i32, i32);
            retain = "cuDevicePrimaryCtxRetain" @ 7000 (*mut Handle, i32);
            release = "cuDevicePrimaryCtxRelease" @ 11000 (i32);
            set_current = "cuCtxSetCurrent" @ 4000 (Handle);
            mem_info = "cuMemGetInfo" @ 3020 (*mut usize, *mut usize);
            mem_alloc = "cuMemAlloc" @ 3020 (*mut u64, usize);
            mem_free = "cuMemFree" @ 3020 (u64);
            host_alloc = "cuMemHostAlloc" @ 2020 (*mut u64, usize, u32);
            host_free = "cuMemFreeHost" @ 2000 (u64);
            host_register = "cuMemHostRegister" @ 6050 (u64, usize, u32);
            host_unregister = "cuMemHostUnregister" @ 4000 (u64);
            managed_alloc = "cuMemAllocManaged" @ 6000 (*mut u64, usize, u32);
            advise = "cuMemAdvise" @ 8000 (u64, usize, i32, i32);
            prefetch = "cuMemPrefetchAsync" @ 8000 (u64, usize, i32, Handle);
            can_access_peer = "cuDeviceCanAccessPeer" @ 4000 (*mut i32, i32, i32);
            enable_peer = "cuCtxEnablePeerAccess" @ 4000 (Handle, u32);
            stream_create = "cuStreamCreate" @ 2000 (*mut Handle, u32);
            stream_destroy = "cuStreamDestroy" @ 4000 (Handle);
            stream_wait = "cuStreamSynchronize" @ 2000 (Handle);
            stream_query = "cuStreamQuery" @ 2000 (Handle);
            stream_wait_event = "cuStreamWaitEvent" @ 3020 (Handle, Handle, u32);
            event_create = "cuEventCreate" @ 2000 (*mut Handle, u32);
            event_destroy = "cuEventDestroy" @ 4000 (Handle);
            event_record = "cuEventRecord" @ 2000 (Handle, Handle);
            event_elapsed = "cuEventElapsedTime" @ 2000 (*mut f32, Handle, Handle);
            copy = "cuMemcpyAsync" @ 4000 (u64, u64, usize, Handle);
            copy_in = "cuMemcpyHtoD" @ 3020 (u64, *const c_void, usize);
            copy_out = "cuMemcpyDtoH" @ 3020 (*mut c_void, u64, usize);
            module_load = "cuModuleLoadData" @ 2000 (*mut Handle, *const c_void);
            module_unload = "cuModuleUnload" @ 2000 (Handle);
            function = "cuModuleGetFunction" @ 2000 (*mut Handle, Handle, *const c_char);
            launch = "cuLaunchKernel" @ 4000 (
                Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void);
            error_name = "cuGetErrorName" @ 6000 (i32, *mut *const c_char);
            error_text = "cuGetErrorString" @ 6000 (i32, *mut *const c_char);
        }
        optional {
            wait_value = "cuStreamWaitValue32" @ 11070 (Handle, u64, u32, u32);
            host_function = "cuLaunchHostFunc" @ 10000 (Handle, unsafe extern "C" fn(*mut c_void), *mut c_void);
            prefetch_to = "cuMemPrefetchAsync" @ 12020 (u64, usize, Location, u32, Handle);
            function_load = "cuFuncLoad" @ 12040 (Handle);
        }
    }
);

table!(
    /// NVRTC, the run-time compiler.
    Nvrtc {
        required {
            version = "nvrtcVersion" @ 0 (*mut i32, *mut i32);
            create = "nvrtcCreateProgram" @ 0 (
                *mut Handle, *const c_char, *const c_char, i32, *const *const c_char, *const *const c_char);
            destroy = "nvrtcDestroyProgram" @ 0 (*mut Handle);
            compile = "nvrtcCompileProgram" @ 0 (Handle, i32, *const *const c_char);
            log_size = "nvrtcGetProgramLogSize" @ 0 (Handle, *mut usize);
            log = "nvrtcGetProgramLog" @ 0 (Handle, *mut c_char);
            cubin_size = "nvrtcGetCUBINSize" @ 0 (Handle, *mut usize);
            cubin = "nvrtcGetCUBIN" @ 0 (Handle, *mut c_char);
            ptx_size = "nvrtcGetPTXSize" @ 0 (Handle, *mut usize);
            ptx = "nvrtcGetPTX" @ 0 (Handle, *mut c_char);
        }
        optional {
            arch_count = "nvrtcGetNumSupportedArchs" @ 0 (*mut i32);
            archs = "nvrtcGetSupportedArchs" @ 0 (*mut i32);
        }
    }
);

impl Cuda {
    /// Binds every function at its version through `cuGetProcAddress`: plain names in the library
    /// itself are the oldest signatures.
    pub(crate) fn load(library: &Library) -> Result<Self, String> {
        type Newer =
            unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> i32;
        type Older = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> i32;
        let newer = library.symbol("cuGetProcAddress_v2").map(|at| {
            // SAFETY: the symbol has this signature since CUDA 12.0.
            unsafe { std::mem::transmute::<*mut c_void, Newer>(at.as_ptr()) }
        });
        let older = library.symbol("cuGetProcAddress").map(|at| {
            // SAFETY: the symbol has this signature since CUDA 11.3.
            unsafe { std::mem::transmute::<*mut c_void, Older>(at.as_ptr()) }
        });
        if newer.is_none() && older.is_none() {
            return Err(
                "it has no cuGetProcAddress: a driver of CUDA 11.3 (465) or newer is needed".into(),
            );
        }
        Self::bind(&|name, version| {
            let name = CString::new(name).ok()?;
            let mut at = std::ptr::null_mut();
            let mut status = 0;
            // SAFETY: the name and both results live through the call.
            let code = unsafe {
                match (newer, older) {
                    (Some(find), _) => {
                        find(name.as_ptr(), &raw mut at, version, 0, &raw mut status)
                    }
                    (None, Some(find)) => find(name.as_ptr(), &raw mut at, version, 0),
                    (None, None) => return None,
                }
            };
            // An unknown name is a success with a null pointer.
            NonNull::new(at).filter(|_| code == 0)
        })
    }
}

impl Nvrtc {
    /// Binds the compiler's functions.
    pub(crate) fn load(library: &Library) -> Result<Self, String> {
        Self::bind(&|name, _| library.symbol(name))
    }
}
