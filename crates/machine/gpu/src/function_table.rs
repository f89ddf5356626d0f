//! Tables of functions, bound by name.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;

/// A context, stream, event, module, function or program of a library.
pub type RuntimeHandle = usize;

/// A status, after the name of the function that returned it.
pub type CallStatus = (&'static str, i32);

/// Flag of host memory that is registered: known to all contexts. Both runtimes have the same number.
pub(crate) const PORTABLE: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`, `hipEventDisableTiming`: only completion is queried.
pub(crate) const NO_TIMES: u32 = 2;

/// `CU_EVENT_BLOCKING_SYNC`, `hipEventBlockingSync`: a thread that waits for the event sleeps.
pub(crate) const SLEEPS: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`, `hipStreamNonBlocking`: no order with the legacy stream.
pub(crate) const NON_BLOCKING: u32 = 1;

/// A location of pages: `CUmemLocation`, `hipMemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct MemLocation {
    /// `CUmemLocationType`, `hipMemLocationType`.
    pub kind: i32,
    /// Number of the device or NUMA domain.
    pub id: i32,
}

/// Attributes of the copies of a batch: `CUmemcpyAttributes`, `hipMemcpyAttributes`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CopyAttributes {
    /// `CUmemcpySrcAccessOrder`.
    pub source_order: i32,
    /// Location of sources; zero lets the call find out.
    pub source: MemLocation,
    /// Location of destinations, likewise.
    pub destination: MemLocation,
    /// `CUmemcpyFlags`.
    pub flags: u32,
}

impl CopyAttributes {
    /// Reads sources in stream order, as single copies do.
    pub const STREAM: Self = Self {
        source_order: 1,
        source: MemLocation { kind: 0, id: 0 },
        destination: MemLocation { kind: 0, id: 0 },
        flags: 0,
    };
}

/// The copies of a batch: destinations, sources, bytes. The functions take non-const pointers.
#[derive(Debug, Default)]
pub struct CopyBatch {
    /// Destination addresses.
    pub to: Vec<u64>,
    /// Source addresses.
    pub from: Vec<u64>,
    /// Bytes of each copy.
    pub bytes: Vec<usize>,
}

impl CopyBatch {
    /// The count and the three arrays.
    pub fn parts(&mut self) -> (usize, *mut u64, *mut u64, *mut usize) {
        let count = self.to.len().min(self.from.len()).min(self.bytes.len());
        (count, self.to.as_mut_ptr(), self.from.as_mut_ptr(), self.bytes.as_mut_ptr())
    }
}

/// A bound function, with the name in its manual.
#[derive(Debug, Clone, Copy)]
pub struct BoundCall<F> {
    /// Its name in the library.
    pub name: &'static str,
    /// Its address.
    pub at: F,
}

impl<F> BoundCall<F> {
    /// The same function with another type.
    pub fn map<T>(self, as_type: impl FnOnce(F) -> T) -> BoundCall<T> {
        BoundCall { name: self.name, at: as_type(self.at) }
    }
}

/// A function of a library by its name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPoint {
    /// Its name; empty if this library has no such function.
    pub name: &'static str,
    /// The version of the library that introduced its signature, in the library's own numbers; 0 where
    /// a name has one signature.
    pub since: i32,
}

impl EntryPoint {
    /// A function that the library lacks.
    pub const NONE: Self = entry("");

    /// The address of the function, from `find`.
    fn found(self, find: FindSymbol<'_>) -> Option<NonNull<c_void>> {
        if self.name.is_empty() { None } else { find(self) }
    }

    /// A required function; adds its name to `missing` if the library lacks it.
    pub fn require(
        self,
        find: FindSymbol<'_>,
        missing: &mut Vec<&'static str>,
    ) -> Option<NonNull<c_void>> {
        let at = self.found(find);
        if at.is_none() {
            missing.push(self.name);
        }
        at
    }

    /// An optional function, if the library has it.
    pub fn look(self, find: FindSymbol<'_>) -> Option<NonNull<c_void>> {
        self.found(find)
    }
}

/// A function whose name has one signature.
pub const fn entry(name: &'static str) -> EntryPoint {
    entry_since(name, 0)
}

/// A function with the version of the library that introduced its signature.
pub const fn entry_since(name: &'static str, since: i32) -> EntryPoint {
    EntryPoint { name, since }
}

/// Finds a function in a library.
pub type FindSymbol<'a> = &'a dyn Fn(EntryPoint) -> Option<NonNull<c_void>>;

/// A table of functions: field, entry point, parameters. All return a status.
///
/// `Api by ApiNames { ... }` has rows without entry points. Each library gives its function names
/// as a value of `ApiNames`, and the compiler requires a name for every row.
#[macro_export]
macro_rules! function_table {
    ($(#[$doc:meta])* $name:ident by $names:ident {
        required { $($field:ident => ($($arg:ty),* $(,)?);)* }
        optional { $($ofield:ident => ($($oarg:ty),* $(,)?);)* }
    }) => {
        /// The names of the functions of a table in one library.
        // Each field is the name of the function in the same field of the table.
        #[allow(missing_docs, unreachable_pub)]
        #[derive(Debug)]
        pub struct $names {
            $(pub $field: $crate::function_table::EntryPoint,)*
            $(pub $ofield: $crate::function_table::EntryPoint,)*
        }
        $crate::function_table!(@table $(#[$doc])* $name (names: &$names) {
            required { $($field = names.$field => ($($arg),*);)* }
            optional { $($ofield = names.$ofield => ($($oarg),*);)* }
        });
    };
    ($(#[$doc:meta])* $name:ident {
        required { $($field:ident = $entry:expr => ($($arg:ty),* $(,)?);)* }
        optional { $($ofield:ident = $oentry:expr => ($($oarg:ty),* $(,)?);)* }
    }) => {
        $crate::function_table!(@table $(#[$doc])* $name () {
            required { $($field = $entry => ($($arg),*);)* }
            optional { $($ofield = $oentry => ($($oarg),*);)* }
        });
    };
    (@table $(#[$doc:meta])* $name:ident ($($names:ident: $of:ty)?) {
        required { $($field:ident = $entry:expr => ($($arg:ty),*);)* }
        optional { $($ofield:ident = $oentry:expr => ($($oarg:ty),*);)* }
    }) => {
        $(#[$doc])*
        // Each field is the function of its row, documented in the vendor's manual.
        #[allow(missing_docs, unreachable_pub)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            $(pub $field: $crate::function_table::BoundCall<unsafe extern "C" fn($($arg),*) -> i32>,)*
            $(pub $ofield: Option<$crate::function_table::BoundCall<unsafe extern "C" fn($($oarg),*) -> i32>>,)*
        }
        #[allow(unreachable_pub)]
        impl $name {
            /// Binds all functions; the error lists missing required ones.
            pub fn bind(
                $($names: $of,)?
                find: $crate::function_table::FindSymbol<'_>,
            ) -> std::result::Result<Self, String> {
                use $crate::function_table::BoundCall;
                let mut missing: Vec<&str> = Vec::new();
                $(let $field = $entry.require(find, &mut missing);)*
                let lacks = |missing: &[&str]| format!("it lacks {}", missing.join(", "));
                if !missing.is_empty() {
                    return Err(lacks(&missing));
                }
                Ok(Self {
                    $($field: match $field {
                        Some(at) => BoundCall {
                            name: $entry.name,
                            // SAFETY: the library defines this symbol with this signature, which its
                            // vendor's headers fix for the version that was asked for.
                            at: unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) -> i32>(at.as_ptr()) },
                        },
                        None => return Err(lacks(&[$entry.name])),
                    },)*
                    $($ofield: $oentry.look(find).map(|at| BoundCall {
                        name: $oentry.name,
                        // SAFETY: as above.
                        at: unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($oarg),*) -> i32>(at.as_ptr()) },
                    }),)*
                })
            }
        }
    };
}

crate::function_table!(
    /// The functions that all runtimes share. One row serves all: an address, a `CUdeviceptr` and a
    /// `void *` have the same representation. Signatures are those of `cudaTypedefs.h` of CUDA 13
    /// and of `hip_runtime_api.h` 5.2 to 7.2.
    Api by ApiNames {
        required {
            init => (u32);
            device_count => (*mut i32);
            device_get => (*mut i32, i32);
            device_name => (*mut c_char, i32, i32);
            device_total => (*mut usize, i32);
            device_attribute => (*mut i32, i32, i32);
            device_pci => (*mut c_char, i32, i32);
            mem_info => (*mut usize, *mut usize);
            mem_alloc => (*mut u64, usize);
            mem_free => (u64);
            host_alloc => (*mut u64, usize, u32);
            host_free => (u64);
            host_register => (u64, usize, u32);
            host_unregister => (u64);
            managed_alloc => (*mut u64, usize, u32);
            advise => (u64, usize, i32, i32);
            prefetch => (u64, usize, i32, RuntimeHandle);
            can_access_peer => (*mut i32, i32, i32);
            stream_create => (*mut RuntimeHandle, u32);
            stream_destroy => (RuntimeHandle);
            stream_wait => (RuntimeHandle);
            stream_query => (RuntimeHandle);
            stream_wait_event => (RuntimeHandle, RuntimeHandle, u32);
            event_create => (*mut RuntimeHandle, u32);
            event_destroy => (RuntimeHandle);
            event_record => (RuntimeHandle, RuntimeHandle);
            event_elapsed => (*mut f32, RuntimeHandle, RuntimeHandle);
            copy_in => (u64, *const c_void, usize);
            copy_out => (*mut c_void, u64, usize);
            module_load => (*mut RuntimeHandle, *const c_void);
            module_unload => (RuntimeHandle);
            function => (*mut RuntimeHandle, RuntimeHandle, *const c_char);
            launch => (
                RuntimeHandle, u32, u32, u32, u32, u32, u32, u32, RuntimeHandle, *mut *mut c_void, *mut *mut c_void);
        }
        optional {
            host_function => (RuntimeHandle, unsafe extern "C" fn(*mut c_void), *mut c_void);
            capture_begin => (RuntimeHandle, i32);
            capture_end => (RuntimeHandle, *mut RuntimeHandle);
            graph_make => (
                *mut RuntimeHandle, RuntimeHandle, u64);
            graph_make_older => (
                *mut RuntimeHandle, RuntimeHandle, *mut RuntimeHandle, *mut c_char, usize);
            graph_launch => (RuntimeHandle, RuntimeHandle);
            graph_free => (RuntimeHandle);
            graph_unmake => (RuntimeHandle);
            event_query => (RuntimeHandle);
            event_wait => (RuntimeHandle);
            handle_of_range => (
                *mut c_void, u64, usize, i32, u64);
            prefetch_to => (u64, usize, MemLocation, u32, RuntimeHandle);
        }
    }
);

crate::function_table!(
    /// A run-time compiler: NVRTC and hipRTC have the same functions except for the prefix and the
    /// calls that fetch the code.
    Rtc by RtcNames {
        required {
            version => (*mut i32, *mut i32);
            create => (
                *mut RuntimeHandle, *const c_char, *const c_char, i32, *const *const c_char, *const *const c_char);
            destroy => (*mut RuntimeHandle);
            compile => (RuntimeHandle, i32, *const *const c_char);
            log_size => (RuntimeHandle, *mut usize);
            log => (RuntimeHandle, *mut c_char);
            code_size => (RuntimeHandle, *mut usize);
            code => (RuntimeHandle, *mut c_char);
        }
        optional {
            ptx_size => (RuntimeHandle, *mut usize);
            ptx => (RuntimeHandle, *mut c_char);
            arch_count => (*mut i32);
            archs => (*mut i32);
        }
    }
);
