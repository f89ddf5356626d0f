//! GPUs, through the runtime of their vendor, and the libraries that manage them; all are bound at run
//! time.
#![allow(unsafe_code)]

mod cache;
mod chain_parts;
mod child;
mod compiler;
mod copier;
mod cuda;
pub mod device;
mod driver;
pub mod error;
mod export;
mod family;
mod frame;
pub mod function_table;
mod gate;
mod hip;
mod kernels;
mod memory;
mod monitor;
mod rtc;
pub mod runtime_api;
pub mod search;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use pathline_dylib::{LibraryReport, announce_in};
use pathline_hal::CallResult;
use pathline_schema::{GpuCaps, Topology};

pub use cache::cache_base;
pub use child::{COMPILE_COMMAND, serve_compilations};
pub use compiler::CompileMode;
use compiler::KernelCompiler;
pub use driver::GpuDriver;
pub use family::{CallStatus, RuntimeFamily};
pub use monitor::{ManagementLibrary, management};
use pathline_host::memory::HostMemory;
pub use runtime_api::RuntimeHints;

/// Where to look for libraries, and how to compile.
#[derive(Debug, Clone)]
pub struct LibraryRequest {
    /// CUDA's driver, file or folder; [`LibraryRequest::SEARCH`] to look for it and use it.
    pub cuda: Option<PathBuf>,
    /// The HIP runtime, file or folder; [`LibraryRequest::SEARCH`] to look for it and use it.
    pub hip: Option<PathBuf>,
    /// NVIDIA's run-time compiler, file or folder.
    pub nvrtc: Option<PathBuf>,
    /// Where kernels are compiled.
    pub compile: CompileMode,
}

impl LibraryRequest {
    /// The word in the place of a path that chooses a runtime and leaves its place open.
    pub const SEARCH: &'static str = "search";

    /// Everything is searched for.
    pub fn new(compile: CompileMode) -> Self {
        Self { cuda: None, hip: None, nvrtc: None, compile }
    }

    fn runtime(&self, family: RuntimeFamily) -> Option<&Path> {
        match family {
            RuntimeFamily::Cuda => self.cuda.as_deref(),
            RuntimeFamily::Hip => self.hip.as_deref(),
        }
    }
    /// The place that was asked for.
    fn place(&self, family: RuntimeFamily) -> Option<&Path> {
        self.runtime(family).filter(|path| *path != Path::new(Self::SEARCH))
    }
}

/// What a node offers for measuring GPUs, found without opening one.
#[derive(Debug)]
pub struct GpuRuntime {
    /// Which runtime was chosen.
    pub family: RuntimeFamily,
    /// Its library.
    pub driver: LibraryReport,
    /// Why it cannot be opened; none if nothing is known against it.
    pub without: Option<String>,
    /// What is to be known of the choice, if there was one to make.
    pub note: Option<String>,
    /// Where compiled kernels are kept; none without a home folder.
    pub cache: Option<PathBuf>,
    /// Whether the driver's library is one that stands in for it in tests.
    pub stands_in: bool,
    bound: Option<search::BoundDriver>,
    asked: LibraryRequest,
}

/// What is here of one vendor.
#[derive(Debug, Clone, Copy, Default)]
struct VendorPresence {
    /// GPUs on the bus.
    gpus: usize,
    /// A device file by which a process reaches them.
    file: bool,
}

impl RuntimeFamily {
    /// Files that exist where the kernel module is loaded and this process may see its GPUs.
    fn device_files(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &["/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl-gpu"],
            Self::Hip => &["/dev/kfd"],
        }
    }
    /// Variables by which its runtime is told to list fewer GPUs, or others first.
    fn hiding(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &["CUDA_VISIBLE_DEVICES"],
            Self::Hip => &[
                "ROCR_VISIBLE_DEVICES",
                "HIP_VISIBLE_DEVICES",
                "CUDA_VISIBLE_DEVICES",
                "GPU_DEVICE_ORDINAL",
            ],
        }
    }
    /// That a plan made without opening the runtime may number GPUs in another way than a run, if
    /// a variable says so.
    pub fn numbering_note(self) -> Option<String> {
        let set = |name: &&&str| std::env::var_os(name).is_some();
        let names: Vec<&str> = self.hiding().iter().filter(set).copied().collect();
        (!names.is_empty()).then(|| {
            format!(
                "{} set: a run numbers the GPUs that the runtime then lists, this numbers all that are on the bus",
                names.join(", ")
            )
        })
    }
    fn vendor(self) -> &'static str {
        match self {
            Self::Cuda => "nvidia",
            Self::Hip => "amd",
        }
    }
    /// What can be asked of its vendor's GPUs.
    pub fn caps(self) -> &'static GpuCaps {
        GpuCaps::of_vendor(self.vendor())
    }
    fn presence(self, topology: &Topology) -> VendorPresence {
        let gpus = topology.gpus.iter().filter(|g| g.vendor == self.vendor()).count();
        let file = self.device_files().iter().any(|file| Path::new(file).exists());
        VendorPresence { gpus, file }
    }
    /// Why device files do not let this process reach the GPUs.
    fn unreachable(self) -> Option<String> {
        let files = self.device_files();
        let Some(file) = files.iter().find(|file| Path::new(file).exists()) else {
            let module = match self {
                Self::Cuda => "the kernel module is not loaded, or the container was not given it",
                Self::Hip => "amdgpu is not loaded, or the container was not given it",
            };
            return Some(format!("no device file {}: {module}", files[0]));
        };
        let open = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        let error = rustix::fs::access(*file, open).err()?;
        let groups = match self {
            Self::Cuda => "see its owner and mode",
            Self::Hip => "this user has to be of the groups render and video",
        };
        Some(format!("{file}: {error}; {groups}"))
    }
}

/// Which runtime to use, and what to say of the choice: the one that was asked for; else the one
/// whose device files are here; of both, the one with more GPUs.
fn choose(
    asked: &LibraryRequest,
    nvidia: VendorPresence,
    amd: VendorPresence,
) -> (RuntimeFamily, Option<String>) {
    let more = if amd.gpus > nvidia.gpus { RuntimeFamily::Hip } else { RuntimeFamily::Cuda };
    match (asked.cuda.is_some(), asked.hip.is_some()) {
        (true, false) => return (RuntimeFamily::Cuda, None),
        (false, true) => return (RuntimeFamily::Hip, None),
        _ => {}
    }
    match (nvidia.file, amd.file) {
        (true, false) => (RuntimeFamily::Cuda, None),
        (false, true) => (RuntimeFamily::Hip, None),
        (false, false) => (more, None),
        (true, true) if nvidia.gpus == 0 || amd.gpus == 0 => (more, None),
        (true, true) => {
            let (used, other) = match more {
                RuntimeFamily::Cuda => ("NVIDIA's", "--hip search"),
                RuntimeFamily::Hip => ("AMD's", "--cuda search"),
            };
            let text = format!(
                "{} GPUs of NVIDIA and {} of AMD: {used} are measured; {other} measures the others",
                nvidia.gpus, amd.gpus
            );
            (more, Some(text))
        }
    }
}

/// The runtime that is looked for on a host with these GPUs, and what is to be known of the choice, if
/// there was one to make.
pub fn chosen_family(
    topology: &Topology,
    asked: &LibraryRequest,
) -> (RuntimeFamily, Option<String>) {
    let presence = |family: RuntimeFamily| family.presence(topology);
    choose(asked, presence(RuntimeFamily::Cuda), presence(RuntimeFamily::Hip))
}

/// Looks for a runtime's library and device files. No device is opened. Where `topology` has GPUs
/// and none is of a vendor whose runtime can be bound, the reason against them is that, not a
/// library that such a node has no use for.
pub fn runtime(topology: &Topology, asked: &LibraryRequest) -> GpuRuntime {
    let (family, note) = chosen_family(topology, asked);
    let (bound, driver) = search::driver(family, asked.place(family));
    let stands_in = bound.as_ref().is_some_and(|bound| bound.stands_in);
    let explicit = asked.runtime(family).is_some();
    let without = match (others(topology), &bound) {
        (Some(others), _) if !explicit => Some(format!(
            "CUDA and HIP are the runtimes that can be bound, and these GPUs are of {others}"
        )),
        (_, None) => {
            let why = driver.tried.first().map_or("it was not found", |t| t.why.as_str());
            Some(format!("no {} ({why})", driver.what))
        }
        (_, Some(_)) if stands_in || explicit => None,
        (_, Some(_)) => family.unreachable(),
    };
    let cache = cache::folder();
    GpuRuntime { family, driver, without, note, cache, stands_in, bound, asked: asked.clone() }
}

/// Vendors of the GPUs, if there are some and no runtime is known for any.
fn others(topology: &Topology) -> Option<String> {
    let known = [RuntimeFamily::Cuda, RuntimeFamily::Hip].map(RuntimeFamily::vendor);
    let mut vendors: Vec<&str> =
        topology.gpus.iter().map(|g| g.vendor.as_str()).filter(|v| !v.is_empty()).collect();
    vendors.sort_unstable();
    vendors.dedup();
    (!vendors.is_empty() && !vendors.iter().any(|v| known.contains(v))).then(|| vendors.join(", "))
}

impl GpuRuntime {
    fn compiler(&self) -> (Option<rtc::BoundCompiler>, LibraryReport) {
        let asked = self.asked.nvrtc.as_deref().filter(|_| self.family == RuntimeFamily::Cuda);
        let major = self.bound.as_ref().map_or(0, |bound| bound.major);
        search::compiler(self.family, asked, self.driver.path.as_deref(), major)
    }

    /// Its run-time compiler and what that needs.
    pub fn compilers(&self) -> Vec<LibraryReport> {
        with_helper(self.family, self.compiler().1)
    }

    /// Starts the driver. Device memory is not touched before the first call that needs it.
    pub fn open(mut self, host: Rc<HostMemory>) -> CallResult<Option<GpuDriver>> {
        let Some(driver) = self.bound.take().filter(|_| self.without.is_none()) else {
            return Ok(None);
        };
        let asked = self.asked.nvrtc.as_deref().filter(|_| self.family == RuntimeFamily::Cuda);
        let place = self.driver.path.as_deref();
        let (found, about) = search::compiler(self.family, asked, place, driver.major);
        let compiler = found.map(|bound| {
            let label = match self.family {
                RuntimeFamily::Cuda => format!("NVRTC {}", about.version),
                // hipRTC says the same version of itself in every release.
                RuntimeFamily::Hip => format!("hipRTC of {}", self.driver.version),
            };
            KernelCompiler::new(self.family, bound, label, self.cache, self.asked.compile)
        });
        // The compiler was opened last.
        if let Some(path) = &self.driver.path {
            announce_in(path, driver.api.init.name);
        }
        GpuDriver::open(driver.api, driver.dialect, compiler, host).map(Some)
    }
}

/// A compiler, and what it needs if it is there.
fn with_helper(family: RuntimeFamily, compiler: LibraryReport) -> Vec<LibraryReport> {
    let helper = compiler.path.is_some().then(|| search::helper(family, &compiler));
    std::iter::once(compiler).chain(helper).collect()
}

/// The run-time compiler of a runtime that cannot be opened, of any version, and what it needs.
pub fn compilers(family: RuntimeFamily, asked: &LibraryRequest) -> Vec<LibraryReport> {
    let nvrtc = asked.nvrtc.as_deref().filter(|_| family == RuntimeFamily::Cuda);
    with_helper(family, search::compiler(family, nvrtc, None, 0).1)
}

/// The library of the runtime other than this one, for a list of all that can be bound.
pub fn other_runtime(family: RuntimeFamily, asked: &LibraryRequest) -> LibraryReport {
    let other = match family {
        RuntimeFamily::Cuda => RuntimeFamily::Hip,
        RuntimeFamily::Hip => RuntimeFamily::Cuda,
    };
    search::driver(other, asked.place(other)).1
}

/// Where compiled kernels are kept; none without a home folder.
pub fn kernel_cache() -> Option<PathBuf> {
    cache::folder()
}

/// Why a folder cannot be written.
///
/// # Errors
/// The reason, with the folder.
pub fn writable(folder: &Path) -> std::result::Result<(), String> {
    compiler::writable(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::Gpu;

    fn asked() -> LibraryRequest {
        LibraryRequest::new(CompileMode::InProcess)
    }

    #[test]
    fn gpus_of_another_vendor_are_named_as_the_reason() {
        let of = |vendors: &[&str]| {
            let gpu = |v: &&str| Gpu { vendor: (*v).to_owned(), ..Gpu::default() };
            let gpus = vendors.iter().map(gpu).collect();
            Topology { gpus, ..Topology::default() }
        };
        assert_eq!(others(&of(&["intel", "intel"])).as_deref(), Some("intel"));
        assert_eq!(others(&of(&["intel", "nvidia"])), None);
        assert_eq!(others(&of(&["amd"])), None);
        assert_eq!(others(&of(&[])), None);
        assert_eq!(RuntimeFamily::Hip.presence(&of(&["amd", "nvidia", "amd"])).gpus, 2);
    }

    #[test]
    fn the_runtime_is_that_of_the_gpus_that_are_here() {
        let here = |gpus| VendorPresence { gpus, file: true };
        let gone = |gpus| VendorPresence { gpus, file: false };
        let family = |nvidia, amd| choose(&asked(), nvidia, amd).0;
        assert_eq!(family(here(8), gone(0)), RuntimeFamily::Cuda);
        assert_eq!(family(gone(0), here(8)), RuntimeFamily::Hip);
        // A driver that is not loaded is no reason to take another vendor's.
        assert_eq!(family(gone(0), gone(2)), RuntimeFamily::Hip);
        assert_eq!(family(gone(0), gone(0)), RuntimeFamily::Cuda);
        // Files may be left over from a card that is gone.
        assert_eq!(choose(&asked(), here(0), here(4)), (RuntimeFamily::Hip, None));
        let (more, note) = choose(&asked(), here(2), here(4));
        assert_eq!(more, RuntimeFamily::Hip);
        let note = note.unwrap();
        assert!(note.contains("2 GPUs of NVIDIA and 4 of AMD"), "{note}");
        assert!(note.contains("--cuda search"), "{note}");
        let search = Some(PathBuf::from(LibraryRequest::SEARCH));
        let cuda = LibraryRequest { cuda: search.clone(), ..asked() };
        assert_eq!(choose(&cuda, here(2), here(4)), (RuntimeFamily::Cuda, None));
        assert_eq!(cuda.place(RuntimeFamily::Cuda), None);
        let hip = LibraryRequest { hip: search, ..asked() };
        assert_eq!(choose(&hip, here(8), gone(0)), (RuntimeFamily::Hip, None));
    }

    #[test]
    fn a_path_is_used_without_looking_at_device_files() {
        let none = LibraryRequest { hip: Some("/nowhere/libamdhip64.so".into()), ..asked() };
        let runtime = runtime(&Topology::default(), &none);
        assert_eq!(runtime.family, RuntimeFamily::Hip);
        assert!(runtime.without.unwrap().contains("No such file"));
        assert_eq!(runtime.driver.tried.len(), 1);
    }
}
