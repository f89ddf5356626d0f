//! Tables of functions, bound by name. One row names a function in both runtimes: an address, a
//! `CUdeviceptr` and a `void *` are the same word to the machine, so most rows serve both.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;

/// A context, stream, event, module, function or program of a library.
pub type RuntimeHandle = usize;

/// Where pages are to lie: `CUmemLocation`, `hipMemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct MemLocation {
    /// `CUmemLocationType`, `hipMemLocationType`.
    pub kind: i32,
    /// Number of the device or NUMA domain.
    pub id: i32,
}

/// How the copies of a batch are done: `CUmemcpyAttributes`, `hipMemcpyAttributes`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CopyAttributes {
    /// `CUmemcpySrcAccessOrder`.
    pub source_order: i32,
    /// Where sources lie; zero if the call is to find out.
    pub source: MemLocation,
    /// The same for destinations.
    pub destination: MemLocation,
    /// `CUmemcpyFlags`.
    pub flags: u32,
}

impl CopyAttributes {
    /// Sources are read in the order of the stream, as by single copies.
    pub const STREAM: Self = Self {
        source_order: 1,
        source: MemLocation { kind: 0, id: 0 },
        destination: MemLocation { kind: 0, id: 0 },
        flags: 0,
    };
}

/// Copies of a batch: destinations, sources, bytes. The functions take them as not constant.
#[derive(Debug, Default)]
pub struct CopyBatch {
    /// Destinations.
    pub to: Vec<u64>,
    /// Sources.
    pub from: Vec<u64>,
    /// Bytes of each.
    pub bytes: Vec<usize>,
}

impl CopyBatch {
    /// How many, and the three arrays.
    pub fn parts(&mut self) -> (usize, *mut u64, *mut u64, *mut usize) {
        let count = self.to.len().min(self.from.len()).min(self.bytes.len());
        (count, self.to.as_mut_ptr(), self.from.as_mut_ptr(), self.bytes.as_mut_ptr())
    }
}

/// A function of a library, with the name that its manual has for it.
#[derive(Debug, Clone, Copy)]
pub struct BoundCall<F> {
    /// Its name in the library.
    pub name: &'static str,
    /// Its address.
    pub at: F,
}

impl<F> BoundCall<F> {
    /// The same function by another type.
    pub fn map<T>(self, as_type: impl FnOnce(F) -> T) -> BoundCall<T> {
        BoundCall { name: self.name, at: as_type(self.at) }
    }
}

/// The names of a function.
#[derive(Debug, Clone, Copy)]
pub struct SymbolNames {
    /// Its name in NVIDIA's library, and the version of CUDA that introduced the signature; empty if
    /// it is AMD's alone.
    pub nvidia: (&'static str, i32),
    /// Its name in AMD's library; empty if it is NVIDIA's alone.
    pub amd: &'static str,
}

/// A function that both have; `version` is that of CUDA which introduced the signature.
pub const fn both(nvidia: &'static str, version: i32, amd: &'static str) -> SymbolNames {
    SymbolNames { nvidia: (nvidia, version), amd }
}
pub(super) const fn nvidia(name: &'static str, version: i32) -> SymbolNames {
    SymbolNames { nvidia: (name, version), amd: "" }
}

pub(super) const fn amd(name: &'static str) -> SymbolNames {
    SymbolNames { nvidia: ("", 0), amd: name }
}

/// Finds a symbol in a library: the name it has there, and where it is, if it is there.
pub type FindSymbol<'a> = &'a dyn Fn(SymbolNames) -> (&'static str, Option<NonNull<c_void>>);

/// A table of functions: field, symbol, parameters. All return a status.
#[macro_export]
macro_rules! function_table {
    ($(#[$doc:meta])* $name:ident {
        required { $($field:ident = $symbol:expr => ($($arg:ty),*);)* }
        optional { $($ofield:ident = $osymbol:expr => ($($oarg:ty),*);)* }
    }) => {
        $(#[$doc])*
        // Each field is the function that its row names; manuals say what it does.
        #[allow(missing_docs, unreachable_pub)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            $(pub $field: $crate::function_table::BoundCall<unsafe extern "C" fn($($arg),*) -> i32>,)*
            $(pub $ofield: Option<$crate::function_table::BoundCall<unsafe extern "C" fn($($oarg),*) -> i32>>,)*
        }
        #[allow(unreachable_pub)]
        impl $name {
            /// Binds all functions; the names of required ones that are missing are the error.
            pub fn bind(find: $crate::function_table::FindSymbol<'_>) -> std::result::Result<Self, String> {
                use $crate::function_table::BoundCall;
                let mut missing: Vec<&str> = Vec::new();
                $(let $field = find($symbol);
                  if $field.1.is_none() { missing.push($field.0); })*
                if !missing.is_empty() {
                    return Err(format!("it lacks {}", missing.join(", ")));
                }
                Ok(Self {
                    $($field: match $field {
                        (name, Some(at)) => BoundCall {
                            name,
                            // SAFETY: the library defines this symbol with this signature, which its
                            // vendor's headers fix for the version that was asked for.
                            at: unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) -> i32>(at.as_ptr()) },
                        },
                        (name, None) => return Err(format!("it lacks {name}")),
                    },)*
                    $($ofield: {
                        let (name, at) = find($osymbol);
                        at.map(|at| BoundCall {
                            name,
                            // SAFETY: as above.
                            at: unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($oarg),*) -> i32>(at.as_ptr()) },
                        })
                    },)*
                })
            }
        }
    };
}

crate::function_table!(
    /// What both runtimes have alike. Versions are those at which CUDA introduced a signature
    /// (`cudaTypedefs.h` of CUDA 13); signatures of HIP are those of `hip_runtime_api.h` 5.2 to 7.2.
    Api {
        required {
            init = both("cuInit", 2000, "hipInit") => (u32);
            device_count = both("cuDeviceGetCount", 2000, "hipGetDeviceCount") => (*mut i32);
            device_get = both("cuDeviceGet", 2000, "hipDeviceGet") => (*mut i32, i32);
            device_name = both("cuDeviceGetName", 2000, "hipDeviceGetName") => (*mut c_char, i32, i32);
            device_total = both("cuDeviceTotalMem", 3020, "hipDeviceTotalMem") => (*mut usize, i32);
            device_attribute = both("cuDeviceGetAttribute", 2000, "hipDeviceGetAttribute") => (*mut i32, i32, i32);
            device_pci = both("cuDeviceGetPCIBusId", 4010, "hipDeviceGetPCIBusId") => (*mut c_char, i32, i32);
            mem_info = both("cuMemGetInfo", 3020, "hipMemGetInfo") => (*mut usize, *mut usize);
            mem_alloc = both("cuMemAlloc", 3020, "hipMalloc") => (*mut u64, usize);
            mem_free = both("cuMemFree", 3020, "hipFree") => (u64);
            host_alloc = both("cuMemHostAlloc", 2020, "hipHostMalloc") => (*mut u64, usize, u32);
            host_free = both("cuMemFreeHost", 2000, "hipHostFree") => (u64);
            host_register = both("cuMemHostRegister", 6050, "hipHostRegister") => (u64, usize, u32);
            host_unregister = both("cuMemHostUnregister", 4000, "hipHostUnregister") => (u64);
            managed_alloc = both("cuMemAllocManaged", 6000, "hipMallocManaged") => (*mut u64, usize, u32);
            advise = both("cuMemAdvise", 8000, "hipMemAdvise") => (u64, usize, i32, i32);
            prefetch = both("cuMemPrefetchAsync", 8000, "hipMemPrefetchAsync") => (u64, usize, i32, RuntimeHandle);
            can_access_peer = both("cuDeviceCanAccessPeer", 4000, "hipDeviceCanAccessPeer") => (*mut i32, i32, i32);
            stream_create = both("cuStreamCreate", 2000, "hipStreamCreateWithFlags") => (*mut RuntimeHandle, u32);
            stream_destroy = both("cuStreamDestroy", 4000, "hipStreamDestroy") => (RuntimeHandle);
            stream_wait = both("cuStreamSynchronize", 2000, "hipStreamSynchronize") => (RuntimeHandle);
            stream_query = both("cuStreamQuery", 2000, "hipStreamQuery") => (RuntimeHandle);
            stream_wait_event = both("cuStreamWaitEvent", 3020, "hipStreamWaitEvent") => (RuntimeHandle, RuntimeHandle, u32);
            event_create = both("cuEventCreate", 2000, "hipEventCreateWithFlags") => (*mut RuntimeHandle, u32);
            event_destroy = both("cuEventDestroy", 4000, "hipEventDestroy") => (RuntimeHandle);
            event_record = both("cuEventRecord", 2000, "hipEventRecord") => (RuntimeHandle, RuntimeHandle);
            event_elapsed = both("cuEventElapsedTime", 2000, "hipEventElapsedTime") => (*mut f32, RuntimeHandle, RuntimeHandle);
            copy_in = both("cuMemcpyHtoD", 3020, "hipMemcpyHtoD") => (u64, *const c_void, usize);
            copy_out = both("cuMemcpyDtoH", 3020, "hipMemcpyDtoH") => (*mut c_void, u64, usize);
            module_load = both("cuModuleLoadData", 2000, "hipModuleLoadData") => (*mut RuntimeHandle, *const c_void);
            module_unload = both("cuModuleUnload", 2000, "hipModuleUnload") => (RuntimeHandle);
            function = both("cuModuleGetFunction", 2000, "hipModuleGetFunction") => (*mut RuntimeHandle, RuntimeHandle, *const c_char);
            launch = both("cuLaunchKernel", 4000, "hipModuleLaunchKernel") => (
                RuntimeHandle, u32, u32, u32, u32, u32, u32, u32, RuntimeHandle, *mut *mut c_void, *mut *mut c_void);
        }
        optional {
            host_function = both("cuLaunchHostFunc", 10000, "hipLaunchHostFunc") => (RuntimeHandle, unsafe extern "C" fn(*mut c_void), *mut c_void);
            capture_begin = both("cuStreamBeginCapture", 10010, "hipStreamBeginCapture") => (RuntimeHandle, i32);
            capture_end = both("cuStreamEndCapture", 10000, "hipStreamEndCapture") => (RuntimeHandle, *mut RuntimeHandle);
            graph_make = both("cuGraphInstantiateWithFlags", 11040, "hipGraphInstantiateWithFlags") => (
                *mut RuntimeHandle, RuntimeHandle, u64);
            graph_make_older = amd("hipGraphInstantiate") => (
                *mut RuntimeHandle, RuntimeHandle, *mut RuntimeHandle, *mut c_char, usize);
            graph_launch = both("cuGraphLaunch", 10000, "hipGraphLaunch") => (RuntimeHandle, RuntimeHandle);
            graph_free = both("cuGraphDestroy", 10000, "hipGraphDestroy") => (RuntimeHandle);
            graph_unmake = both("cuGraphExecDestroy", 10000, "hipGraphExecDestroy") => (RuntimeHandle);
            event_query = both("cuEventQuery", 2000, "hipEventQuery") => (RuntimeHandle);
            event_wait = both("cuEventSynchronize", 2000, "hipEventSynchronize") => (RuntimeHandle);
            handle_of_range = both("cuMemGetHandleForAddressRange", 11070, "hipMemGetHandleForAddressRange") => (
                *mut c_void, u64, usize, i32, u64);
            prefetch_to = nvidia("cuMemPrefetchAsync", 12020) => (u64, usize, MemLocation, u32, RuntimeHandle);
        }
    }
);

crate::function_table!(
    /// NVRTC and hipRTC, the run-time compilers: the same functions but for the prefix, and for how
    /// the code is fetched.
    Rtc {
        required {
            version = both("nvrtcVersion", 0, "hiprtcVersion") => (*mut i32, *mut i32);
            create = both("nvrtcCreateProgram", 0, "hiprtcCreateProgram") => (
                *mut RuntimeHandle, *const c_char, *const c_char, i32, *const *const c_char, *const *const c_char);
            destroy = both("nvrtcDestroyProgram", 0, "hiprtcDestroyProgram") => (*mut RuntimeHandle);
            compile = both("nvrtcCompileProgram", 0, "hiprtcCompileProgram") => (RuntimeHandle, i32, *const *const c_char);
            log_size = both("nvrtcGetProgramLogSize", 0, "hiprtcGetProgramLogSize") => (RuntimeHandle, *mut usize);
            log = both("nvrtcGetProgramLog", 0, "hiprtcGetProgramLog") => (RuntimeHandle, *mut c_char);
            code_size = both("nvrtcGetCUBINSize", 0, "hiprtcGetCodeSize") => (RuntimeHandle, *mut usize);
            code = both("nvrtcGetCUBIN", 0, "hiprtcGetCode") => (RuntimeHandle, *mut c_char);
        }
        optional {
            ptx_size = nvidia("nvrtcGetPTXSize", 0) => (RuntimeHandle, *mut usize);
            ptx = nvidia("nvrtcGetPTX", 0) => (RuntimeHandle, *mut c_char);
            arch_count = nvidia("nvrtcGetNumSupportedArchs", 0) => (*mut i32);
            archs = nvidia("nvrtcGetSupportedArchs", 0) => (*mut i32);
        }
    }
);
