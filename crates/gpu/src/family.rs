//! A GPU runtime as one value: where its libraries are, what its compiler takes, which other libraries go
//! with it.
//!
//! Nothing outside `runtimes` compares runtimes. A difference between them is a field here, or a
//! function of the trait `RuntimeApi` where it needs the bound library.

use std::fmt;
use std::ops::Deref;
use std::path::Path;

use pathline_dylib::{LibraryReport, LibrarySpec};
use pathline_hal::CallResult;
use pathline_schema::GpuCaps;

use super::function_table::RtcNames;
use super::rtc::BoundCompiler;
use super::runtime_api::BoundDriver;
use super::sensors::FindSensors;

/// An option of the command line that names a library, as `--nvrtc PATH`.
#[derive(Debug)]
pub struct LibraryOption {
    /// Its name, without dashes.
    pub name: &'static str,
    /// The environment variable that does the same.
    pub variable: &'static str,
    /// Its help in one sentence, without the full stop.
    pub help: &'static str,
    /// What its value names, likewise.
    pub value: &'static str,
}

/// Why a process cannot reach GPUs that are on the bus.
#[derive(Debug)]
pub(crate) struct DeviceFiles {
    /// Files that exist where the kernel module is loaded and this process may see its GPUs.
    pub(crate) paths: &'static [&'static str],
    /// Why none of them may exist.
    pub(crate) absent: &'static str,
    /// What to do where one of them cannot be opened.
    pub(crate) refused: &'static str,
}

/// What a search for a compiler goes by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CompilerQuery<'a> {
    /// A file or folder; nothing else is then looked at.
    pub(crate) asked: Option<&'a Path>,
    /// The file of the runtime that is to load the code.
    pub(crate) runtime: Option<&'a Path>,
    /// Its major version; 0 if it is not known.
    pub(crate) major: i32,
}

/// The run-time compiler that goes with a runtime.
#[derive(Debug)]
pub(crate) struct CompilerDescription {
    /// Its functions.
    pub(crate) names: &'static RtcNames,
    /// The option that names its library, where it has one of its own.
    pub(crate) option: Option<&'static str>,
    /// Loads what the library at this path needs and does not find by itself.
    pub(crate) prepare: fn(&Path),
    /// The compiler, and how the search went.
    pub(crate) find: fn(CompilerQuery<'_>) -> (Option<BoundCompiler>, LibraryReport),
    /// What the compiler that was found needs besides.
    pub(crate) helper: fn(&LibraryReport) -> LibraryReport,
    /// Its name and version, by the reports on the runtime and on the compiler. Cached code is kept by it.
    pub(crate) label: fn(&LibraryReport, &LibraryReport) -> String,
    /// Code of a text for a target, with the options that this compiler takes.
    pub(crate) code: fn(&BoundCompiler, &str, &str) -> CallResult<Vec<u8>>,
    /// The call that fails without a reason where temporary files cannot be written.
    pub(crate) needs_temporary: Option<&'static str>,
}

/// The library of collectives that goes with a runtime, with the functions of NCCL.
#[derive(Debug)]
pub struct CollectivesDescription {
    /// Its name: `NCCL`.
    pub name: &'static str,
    /// Its spelling of a function of NCCL.
    pub spelling: fn(&'static str) -> &'static str,
    /// Where it is looked for. The first path is a file or folder that the user named; nothing else is then
    /// looked at. The second is the file of the GPU runtime.
    pub library: for<'a> fn(Option<&'a Path>, Option<&Path>) -> LibrarySpec<'a>,
}

/// All that is known of a runtime before its library is open.
#[derive(Debug)]
pub struct RuntimeDescription {
    /// Its name in records and between processes, as [`pathline_hal::Driver::name`] has it: `cuda`.
    pub name: &'static str,
    /// Its name in sentences: `CUDA`.
    pub label: &'static str,
    /// Whose GPUs it drives, as [`pathline_schema::Gpu::vendor`] has it.
    pub vendor: &'static str,
    /// The vendor's name in sentences: `NVIDIA`.
    pub maker: &'static str,
    /// Options that name its libraries. The first is that of the runtime itself.
    pub options: &'static [LibraryOption],
    /// First parts of the names of variables that its libraries read. A run records those that are set.
    pub variables: &'static [&'static str],
    /// Variables by which it lists fewer GPUs, or others first.
    pub(crate) hiding: &'static [&'static str],
    pub(crate) device_files: DeviceFiles,
    /// Its library with its functions, and how the search went. The path is a file or folder; nothing else
    /// is then looked at.
    pub(crate) driver: fn(Option<&Path>) -> (Option<BoundDriver>, LibraryReport),
    pub(crate) compiler: CompilerDescription,
    /// None where no library of collectives has the functions of NCCL.
    pub collectives: Option<CollectivesDescription>,
    /// What reads clocks and power of its GPUs from files of the driver; none where a library does, or
    /// nothing.
    pub(crate) sensors: Option<FindSensors>,
}

/// One of the runtimes that can be bound.
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
    /// The description itself, which lives as long as the program.
    pub fn description(self) -> &'static RuntimeDescription {
        self.0
    }

    /// What can be asked of its vendor's GPUs.
    pub fn caps(self) -> &'static GpuCaps {
        GpuCaps::of_vendor(self.vendor)
    }

    /// The option that chooses this runtime: `hip`.
    pub fn option(self) -> &'static str {
        self.options.first().map_or(self.name, |option| option.name)
    }

    /// That a plan made without opening the runtime may number GPUs differently from a run, if a
    /// variable says so.
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

    /// Whether a device file of it exists.
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
