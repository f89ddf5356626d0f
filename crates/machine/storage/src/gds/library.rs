//! cuFile and hipFile, bound at run time. Signatures are those of `cufile.h` of CUDA 11.4 to 13 and of
//! `hipfile.h` of hipFile 0.2 to 0.5, which are near copies; what only newer releases have is
//! optional.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, SearchPlace, SharedLibrary,
    announce_in, find,
};

use pathline_gpu::search::{self, STAND_IN};

/// The library: each knows the memory of its vendor's runtime only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GdsLibrary {
    CuFile,
    HipFile,
}

impl GdsLibrary {
    /// The library that goes with a runtime, by the name that `hal::Driver` has for that.
    pub(crate) fn for_runtime(runtime: &str) -> Option<Self> {
        match runtime {
            "cuda" => Some(Self::CuFile),
            "hip" => Some(Self::HipFile),
            _ => None,
        }
    }

    /// As its vendor calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CuFile => "cuFile",
            Self::HipFile => "hipFile",
        }
    }

    /// As the vendor calls the runtime whose statuses it hands on.
    pub(super) fn runtime(self) -> &'static str {
        match self {
            Self::CuFile => "CUDA",
            Self::HipFile => "HIP",
        }
    }

    /// The names of its functions.
    pub(crate) fn names(self) -> &'static GdsNames {
        match self {
            Self::CuFile => &CUFILE,
            Self::HipFile => &HIPFILE,
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::CuFile => "libcufile.so",
            Self::HipFile => "libhipfile.so",
        }
    }

    fn way_out(self) -> &'static str {
        match self {
            Self::CuFile => {
                "it comes with the CUDA toolkit (libcufile) or by pip install nvidia-cufile; LD_LIBRARY_PATH may name its folder"
            }
            Self::HipFile => {
                "it comes with ROCm since 7.14, or from the sources of ROCm/hipFile; LD_LIBRARY_PATH may name its folder"
            }
        }
    }
}

/// Names of functions.
#[derive(Debug)]
pub(crate) struct GdsNames {
    pub(crate) open: &'static str,
    pub(crate) register_file: &'static str,
    deregister_file: &'static str,
    pub(crate) register_memory: &'static str,
    pub(super) deregister_memory: &'static str,
    pub(crate) read: &'static str,
    pub(crate) write: &'static str,
    statistics: &'static str,
}

macro_rules! names {
    ($prefix:literal) => {
        GdsNames {
            open: concat!($prefix, "DriverOpen"),
            register_file: concat!($prefix, "HandleRegister"),
            deregister_file: concat!($prefix, "HandleDeregister"),
            register_memory: concat!($prefix, "BufRegister"),
            deregister_memory: concat!($prefix, "BufDeregister"),
            read: concat!($prefix, "Read"),
            write: concat!($prefix, "Write"),
            statistics: concat!($prefix, "GetStatsL3"),
        }
    };
}

static CUFILE: GdsNames = names!("cuFile");
static HIPFILE: GdsNames = names!("hipFile");

/// `CUfileError_t` and `hipFileError_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GdsStatus {
    /// Of the library.
    pub(super) own: i32,
    /// Of the runtime under it.
    pub(super) runtime: i32,
}

/// `CUfileDescr_t` and `hipFileDescr_t` with a descriptor of Linux.
#[repr(C)]
pub(super) struct GdsDescr {
    pub(super) kind: i32,
    // A union of a number and a pointer.
    pub(super) fd: usize,
    pub(super) operations: *const c_void,
}
/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`, `hipFileHandleTypeOpaqueFD`
pub(super) const OPAQUE_FD: i32 = 1;

pub(super) type GdsHandle = *mut c_void;
type GdsOpenFn = unsafe extern "C" fn() -> GdsStatus;
type RegisterFile = unsafe extern "C" fn(*mut GdsHandle, *mut GdsDescr) -> GdsStatus;
type DeregisterFile = unsafe extern "C" fn(GdsHandle);
type RegisterMemory = unsafe extern "C" fn(u64, usize, c_int) -> GdsStatus;
type DeregisterMemory = unsafe extern "C" fn(u64) -> GdsStatus;
type GdsMoveFn = unsafe extern "C" fn(GdsHandle, u64, usize, i64, i64) -> isize;
type GdsFillFn = unsafe extern "C" fn(*mut u64) -> GdsStatus;
type SetLevel = unsafe extern "C" fn(c_int) -> GdsStatus;
type GetNumber = unsafe extern "C" fn(*mut c_int) -> GdsStatus;
type GetVersion = unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) -> GdsStatus;

/// How counting is switched: its level, and whether it runs. hipFile counts unless
/// `HIPFILE_STATS_LEVEL` is 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterCalls {
    pub(super) set_level: SetLevel,
    pub(super) level: GetNumber,
    pub(super) start: GdsOpenFn,
    pub(super) stop: GdsOpenFn,
}

/// The functions, with the version that the library reports.
#[derive(Debug)]
pub(super) struct BoundGds {
    pub(super) kind: GdsLibrary,
    /// `1.15`, `0.5.0`; empty if unknown.
    pub(super) version: String,
    /// Whether it only stands in for the real one.
    stands_in: bool,
    pub(super) open: GdsOpenFn,
    pub(super) register_file: RegisterFile,
    pub(super) deregister_file: DeregisterFile,
    pub(super) register_memory: RegisterMemory,
    pub(super) deregister_memory: DeregisterMemory,
    pub(super) read: GdsMoveFn,
    pub(super) write: GdsMoveFn,
    /// Since cuFile 1.15 and hipFile 0.5: counters of each GPU, by data path.
    pub(super) statistics: Option<GdsFillFn>,
    pub(super) switches: Option<CounterCalls>,
    /// Of cuFile; hipFile exports it, but returns "not implemented".
    pub(super) properties: Option<GdsFillFn>,
}

/// Takes a symbol for a function of the type that it goes to; none if the library lacks it.
macro_rules! optional {
    ($library:expr, $name:expr, $signature:ty) => {
        $library.symbol($name).map(|at| {
            // SAFETY: the symbol has the signature of the field that it goes to, which the vendor's
            // header fixes.
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, $signature>(at.as_ptr()) }
        })
    };
}
macro_rules! bind {
    ($library:expr, $name:expr, $signature:ty) => {
        optional!($library, $name, $signature).ok_or_else(|| format!("it lacks {}", $name))?
    };
}
pub(super) use {bind, optional};

impl BoundGds {
    fn bind(kind: GdsLibrary, library: &SharedLibrary) -> Result<Self, String> {
        let names = kind.names();
        let cufile = kind == GdsLibrary::CuFile;
        let switches = || {
            Some(CounterCalls {
                set_level: optional!(library, "cuFileSetStatsLevel", SetLevel)?,
                level: optional!(library, "cuFileGetStatsLevel", GetNumber)?,
                start: optional!(library, "cuFileStatsStart", GdsOpenFn)?,
                stop: optional!(library, "cuFileStatsStop", GdsOpenFn)?,
            })
        };
        let properties = optional!(library, "cuFileDriverGetProperties", GdsFillFn);
        Ok(Self {
            kind,
            version: version(kind, library),
            stands_in: library.symbol(STAND_IN).is_some(),
            open: bind!(library, names.open, GdsOpenFn),
            register_file: bind!(library, names.register_file, RegisterFile),
            deregister_file: bind!(library, names.deregister_file, DeregisterFile),
            register_memory: bind!(library, names.register_memory, RegisterMemory),
            deregister_memory: bind!(library, names.deregister_memory, DeregisterMemory),
            read: bind!(library, names.read, GdsMoveFn),
            write: bind!(library, names.write, GdsMoveFn),
            statistics: optional!(library, names.statistics, GdsFillFn),
            switches: if cufile { switches() } else { None },
            properties: properties.filter(|_| cufile),
        })
    }

    /// `cuFile 1.15`
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind.name(), self.version).trim_end().to_owned()
    }
}

fn version(kind: GdsLibrary, library: &SharedLibrary) -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    match kind {
        GdsLibrary::CuFile => {
            let Some(get) = optional!(library, "cuFileGetVersion", GetNumber) else {
                return String::new();
            };
            let mut number = 0;
            announce_in(&library.path, "cuFileGetVersion");
            // SAFETY: it stores one number, and may be called before the driver is open.
            let status = unsafe { get(&raw mut number) };
            // 1.15 is 1150.
            if status.own == 0 {
                format!("{}.{}", number / 1000, number % 1000 / 10)
            } else {
                String::new()
            }
        }
        GdsLibrary::HipFile => {
            let Some(get) = optional!(library, "hipFileGetVersion", GetVersion) else {
                return String::new();
            };
            announce_in(&library.path, "hipFileGetVersion");
            // SAFETY: it stores three numbers.
            let status = unsafe { get(&raw mut major, &raw mut minor, &raw mut patch) };
            if status.own == 0 { format!("{major}.{minor}.{patch}") } else { String::new() }
        }
    }
}

/// The library and how the search for it went, looked for once.
fn searched(kind: GdsLibrary) -> &'static (Option<BoundGds>, LibraryReport) {
    static CUFILE: OnceLock<(Option<BoundGds>, LibraryReport)> = OnceLock::new();
    static HIPFILE: OnceLock<(Option<BoundGds>, LibraryReport)> = OnceLock::new();
    let once = match kind {
        GdsLibrary::CuFile => &CUFILE,
        GdsLibrary::HipFile => &HIPFILE,
    };
    once.get_or_init(|| search(kind))
}

fn search(kind: GdsLibrary) -> (Option<BoundGds>, LibraryReport) {
    let newest_first = |mut roots: Vec<PathBuf>| {
        roots.reverse();
        roots
    };
    let names = match kind {
        GdsLibrary::CuFile => ["libcufile.so.0", "libcufile.so"],
        GdsLibrary::HipFile => ["libhipfile.so.0", "libhipfile.so"],
    };
    let mut places = vec![SearchPlace::LinkerPath, SearchPlace::Linker];
    // The linker would find some of these, too.
    places.extend(match kind {
        GdsLibrary::CuFile => vec![
            SearchPlace::Roots(
                newest_first(search::toolkits()),
                &["lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"],
            ),
            SearchPlace::Wheels(&["nvidia/cu13/lib", "nvidia/cufile/lib"]),
        ],
        GdsLibrary::HipFile => vec![
            SearchPlace::Variables(&["ROCM_PATH"], &["lib"]),
            SearchPlace::Roots(search::trees(), &["lib"]),
            SearchPlace::Wheels(&["_rocm_sdk_core/lib", "_rocm_sdk_libraries/lib"]),
        ],
    });
    let spec = LibrarySpec {
        what: kind.name(),
        costs: "files are not read into GPU memory by GPU direct; staging needs no library",
        way_out: kind.way_out(),
        names: LibraryNames::Exact(&names),
        places,
        ..LibrarySpec::default()
    };
    find(&spec, |library| {
        let value = BoundGds::bind(kind, library)?;
        let version = value.version.clone();
        Ok(BoundLibrary { value, version, number: None })
    })
}

/// The library, or why there is none.
pub(super) fn bound(kind: GdsLibrary) -> Result<&'static BoundGds, String> {
    let (found, report) = searched(kind);
    found.as_ref().ok_or_else(|| {
        let why = report.tried.last().map_or("it was not found", |t| t.why.as_str());
        format!("no {}.0 ({why}): {}", kind.file(), kind.way_out())
    })
}

/// How the search for the library went.
pub(crate) fn report(kind: GdsLibrary) -> LibraryReport {
    searched(kind).1.clone()
}

/// Why GPU direct cannot be had with the GPUs of a runtime; none if nothing is known against it.
pub(crate) fn without(kind: Option<GdsLibrary>) -> Option<String> {
    let Some(kind) = kind else { return Some("GPU direct needs a GPU, and none is open".into()) };
    let bound = match bound(kind) {
        Ok(bound) => bound,
        Err(why) => return Some(why),
    };
    // Seen of 1.15.1: it reads the list until its end, which never comes.
    let hangs =
        kind == GdsLibrary::CuFile && !bound.stands_in && !Path::new("/proc/modules").exists();
    hangs.then(|| {
        "cuFileDriverOpen never returns where there is no /proc/modules: cuFile needs a kernel with loadable modules".into()
    })
}
