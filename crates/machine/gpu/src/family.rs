//! A GPU runtime as one value: the places of its libraries, its compiler, and the libraries that
//! belong to it.
//!
//! Only `runtimes` compares runtimes. A difference between them is a field here, or a function of
//! the trait `RuntimeApi` where it needs the bound library.

use std::fmt;
use std::ops::Deref;
use std::path::Path;

use pathline_dylib::{LibraryReport, LibrarySpec};
use pathline_hal::CallResult;
use pathline_schema::GpuCaps;

use super::function_table::RtcNames;
use super::rtc::BoundCompiler;
use super::runtime_api::BoundDriver;
use super::sensors::{FindSensors, FindTraffic};

/// A command-line option that names a library, as `--nvrtc PATH`.
#[derive(Debug)]
pub struct LibraryOption {
    /// Its name, without dashes.
    pub name: &'static str,
    /// The equivalent environment variable.
    pub variable: &'static str,
    /// Its help in one sentence, without the full stop.
    pub help: &'static str,
    /// The help of its value, likewise.
    pub value: &'static str,
}

/// Why a process cannot reach GPUs that are on the bus.
#[derive(Debug)]
pub(crate) struct DeviceFiles {
    /// Files that exist where the kernel module is loaded and this process can see its GPUs.
    pub(crate) paths: &'static [&'static str],
    /// The likely reason if none of them exists.
    pub(crate) absent: &'static str,
    /// The remedy if one of them cannot be opened.
    pub(crate) refused: &'static str,
}

/// The input of a compiler search.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CompilerQuery<'a> {
    /// A file or folder that replaces the search.
    pub(crate) asked: Option<&'a Path>,
    /// The file of the runtime that will load the code.
    pub(crate) runtime: Option<&'a Path>,
    /// Its major version; 0 if unknown.
    pub(crate) major: i32,
}

/// The run-time compiler of a runtime.
#[derive(Debug)]
pub(crate) struct CompilerDescription {
    /// Its function names.
    pub(crate) names: &'static RtcNames,
    /// The option that names its library, if it has a separate one.
    pub(crate) option: Option<&'static str>,
    /// Loads dependencies that the library at this path does not find itself.
    pub(crate) prepare: fn(&Path),
    /// The compiler, and the report of the search.
    pub(crate) find: fn(CompilerQuery<'_>) -> (Option<BoundCompiler>, LibraryReport),
    /// The report on a further library that the compiler needs.
    pub(crate) helper: fn(&LibraryReport) -> LibraryReport,
    /// Name and version, from the reports on the runtime and on the compiler; part of the cache
    /// key.
    pub(crate) label: fn(&LibraryReport, &LibraryReport) -> String,
    /// Compiles a text for a target, with this compiler's options.
    pub(crate) code: fn(&BoundCompiler, &str, &str) -> CallResult<Vec<u8>>,
    /// The call that fails without a reason where temporary files cannot be written.
    pub(crate) needs_temporary: Option<&'static str>,
}

/// The collectives library of a runtime, with the functions of NCCL.
#[derive(Debug)]
pub struct CollectivesDescription {
    /// Its name: `NCCL`.
    pub name: &'static str,
    /// Its spelling of a function of NCCL.
    pub spelling: fn(&'static str) -> &'static str,
    /// Its search places. The first path is a file or folder from the user and replaces the search.
    /// The second is the file of the GPU runtime.
    pub library: for<'a> fn(Option<&'a Path>, Option<&Path>) -> LibrarySpec<'a>,
}

/// Static description of a runtime, known before its library is open.
#[derive(Debug)]
pub struct RuntimeDescription {
    /// Its name in records and messages between processes, equal to [`pathline_hal::Driver::name`]:
    /// `cuda`.
    pub name: &'static str,
    /// Its name in text: `CUDA`.
    pub label: &'static str,
    /// The vendor of its GPUs, as in [`pathline_schema::Gpu::vendor`].
    pub vendor: &'static str,
    /// The vendor's name in text: `NVIDIA`.
    pub maker: &'static str,
    /// Options that name its libraries; the first names the runtime.
    pub options: &'static [LibraryOption],
    /// Prefixes of environment variables that its libraries read. A run records the ones that are
    /// set.
    pub variables: &'static [&'static str],
    /// Variables that hide or reorder its GPUs.
    pub hiding: &'static [&'static str],
    pub(crate) device_files: DeviceFiles,
    /// Its library with its functions, and the report of the search. The path is a file or folder
    /// and replaces the search.
    pub(crate) driver: fn(Option<&Path>) -> (Option<BoundDriver>, LibraryReport),
    pub(crate) compiler: CompilerDescription,
    /// `None` if no collectives library has the functions of NCCL.
    pub collectives: Option<CollectivesDescription>,
    /// Reads clocks and power of its GPUs from files of the driver; `None` if a library does, or
    /// nothing does.
    pub(crate) sensors: Option<FindSensors>,
    /// Reads counters of bytes of its GPUs from files of the driver, likewise.
    pub(crate) traffic: Option<FindTraffic>,
}

/// One of the supported runtimes.
#[derive(Clone, Copy)]
pub struct RuntimeFamily(pub(crate) &'static RuntimeDescription);

impl Deref for RuntimeFamily {
    type Target = RuntimeDescription;

    fn deref(&self) -> &RuntimeDescription {
        self.0
    }
}

impl PartialEq for RuntimeFamily {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RuntimeFamily {}

impl fmt::Debug for RuntimeFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}

impl RuntimeFamily {
    /// The description, which lives as long as the program.
    pub fn description(self) -> &'static RuntimeDescription {
        self.0
    }

    /// Capabilities of its vendor's GPUs.
    pub fn caps(self) -> &'static GpuCaps {
        GpuCaps::of_vendor(self.vendor)
    }

    /// The option that selects this runtime: `hip`.
    pub fn option(self) -> &'static str {
        self.options.first().map_or(self.name, |option| option.name)
    }

    /// A note that a plan made without the runtime may number GPUs differently from a run, because
    /// a variable is set.
    pub fn numbering_note(self) -> Option<String> {
        let set = |name: &&&str| std::env::var_os(name).is_some();
        let names: Vec<&str> = self.hiding.iter().filter(set).copied().collect();
        (!names.is_empty()).then(|| {
            format!(
                "{} set: a run numbers the GPUs that the runtime then lists, this numbers all that are on the bus",
                names.join(", ")
            )
        })
    }

    /// Whether one of its device files exists.
    pub(crate) fn has_device_file(self) -> bool {
        self.device_files.paths.iter().any(|file| Path::new(file).exists())
    }

    /// Why device files do not let this process reach the GPUs.
    pub(crate) fn unreachable(self) -> Option<String> {
        let DeviceFiles { paths, absent, refused } = &self.device_files;
        let Some(file) = paths.iter().find(|file| Path::new(file).exists()) else {
            let first = paths.first().copied().unwrap_or_default();
            return Some(format!("no device file {first}: {absent}"));
        };
        let open = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        let error = rustix::fs::access(*file, open).err()?;
        Some(format!("{file}: {error}; {refused}"))
    }
}
