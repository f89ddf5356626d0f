//! GPUs through their vendor's runtime, and the management libraries; all are bound at run time.
#![allow(unsafe_code)]

mod block_list;
mod blocks;
mod cache;
mod caller_calls;
mod caller_kernels;
mod chain_parts;
mod child;
mod compiler;
mod copier;
mod cpu_access;
pub mod device;
mod driver;
pub mod error;
mod export;
mod family;
mod frame;
pub mod function_table;
mod gate;
mod kernels;
mod loaded_kernels;
mod memory;
mod memory_pattern;
mod monitor;
mod numa_policy;
mod rtc;
pub mod runtime_api;
mod runtimes;
pub mod search;
mod sensors;
mod stored_check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use pathline_dylib::{LibraryReport, announce_in};
use pathline_hal::CallResult;
use pathline_schema::Topology;

pub use cache::cache_base;
pub use caller_calls::{CAPTURE_RELAXED, CallerCalls, KernelAccess, PointerInfo, PointerKind};
pub use caller_kernels::{CallerKernels, CopyKernel};
pub use child::{COMPILE_COMMAND, serve_compilations};
pub use compiler::CompileMode;
use compiler::KernelCompiler;
pub use driver::GpuDriver;
use family::CompilerQuery;
pub use family::{CollectivesDescription, LibraryOption, RuntimeDescription, RuntimeFamily};
pub use function_table::{CallStatus, CopyBatch};
pub use monitor::{ManagementLibrary, management};
use pathline_host::memory::HostMemory;
pub use runtime_api::RuntimeHints;
pub use runtimes::{XgmiCounts, xgmi_counts};

/// Where to find libraries, and how to compile.
#[derive(Debug, Clone)]
pub struct LibraryRequest {
    /// Files or folders of libraries, by the option that names them ([`LibraryOption::name`]). The
    /// option of a runtime also selects it; with [`LibraryRequest::SEARCH`] its library is still
    /// searched for.
    pub named: BTreeMap<String, PathBuf>,
    /// Where kernels are compiled.
    pub compile: CompileMode,
}

impl LibraryRequest {
    /// The value in place of a path that selects a runtime and searches for its library.
    pub const SEARCH: &'static str = "search";

    /// Searches for every library.
    pub fn new(compile: CompileMode) -> Self {
        Self { named: BTreeMap::new(), compile }
    }

    /// The same request with a library at that path.
    #[must_use]
    pub fn with(mut self, option: &str, path: impl Into<PathBuf>) -> Self {
        self.named.insert(option.to_owned(), path.into());
        self
    }

    fn runtime(&self, family: RuntimeFamily) -> Option<&Path> {
        self.named.get(family.option()).map(PathBuf::as_path)
    }
    /// The path given for the runtime's library.
    fn place(&self, family: RuntimeFamily) -> Option<&Path> {
        self.runtime(family).filter(|path| *path != Path::new(Self::SEARCH))
    }
    /// The path given for the compiler, if it has an option.
    fn compiler(&self, family: RuntimeFamily) -> Option<&Path> {
        self.named.get(family.compiler.option?).map(PathBuf::as_path)
    }
}

/// The options that name libraries, in command-line order: of the runtimes, then of other
/// libraries.
pub fn library_options() -> impl Iterator<Item = &'static LibraryOption> {
    let first = RuntimeFamily::ALL.into_iter().filter_map(|family| family.0.options.first());
    first.chain(RuntimeFamily::ALL.into_iter().flat_map(|family| family.0.options.iter().skip(1)))
}

/// The GPU runtime of a node, found without opening a device.
#[derive(Debug)]
pub struct GpuRuntime {
    /// The selected runtime.
    pub family: RuntimeFamily,
    /// The report on its library.
    pub driver: LibraryReport,
    /// Why it cannot be opened; `None` if no reason is known.
    pub without: Option<String>,
    /// A note on the selection, if there were several runtimes.
    pub note: Option<String>,
    /// The folder of compiled kernels; `None` without a home folder.
    pub cache: Option<PathBuf>,
    /// Whether the driver's library is a stand-in for tests.
    pub stands_in: bool,
    bound: Option<search::BoundDriver>,
    asked: LibraryRequest,
}

/// The GPUs and device files of one vendor on this host.
#[derive(Debug, Clone, Copy)]
struct VendorPresence {
    family: RuntimeFamily,
    /// GPUs on the bus.
    gpus: usize,
    /// Whether a device file exists.
    file: bool,
}

impl VendorPresence {
    fn of(family: RuntimeFamily, topology: &Topology) -> Self {
        let gpus = topology.gpus.iter().filter(|g| g.vendor == family.vendor).count();
        Self { family, gpus, file: family.has_device_file() }
    }
}

/// The first vendor with the highest number of GPUs.
fn with_most(all: &[VendorPresence]) -> Option<VendorPresence> {
    all.iter().copied().reduce(|most, other| if other.gpus > most.gpus { other } else { most })
}

/// The runtime to use, and a note on the selection: the requested one; else the one with device
/// files; of several, the one with most GPUs.
fn choose(asked: &LibraryRequest, present: &[VendorPresence]) -> (RuntimeFamily, Option<String>) {
    let most = with_most(present).map_or(RuntimeFamily::ALL[0], |here| here.family);
    let named: Vec<&VendorPresence> =
        present.iter().filter(|here| asked.runtime(here.family).is_some()).collect();
    if let [only] = named[..] {
        return (only.family, None);
    }
    let reachable: Vec<VendorPresence> = present.iter().copied().filter(|here| here.file).collect();
    let Some(used) = with_most(&reachable) else { return (most, None) };
    let others: Vec<&VendorPresence> =
        reachable.iter().filter(|here| here.gpus > 0 && here.family != used.family).collect();
    // Device files of vendors without GPUs may remain after a card was removed.
    if used.gpus == 0 || others.is_empty() {
        return (used.family, None);
    }
    let counts: Vec<String> = reachable
        .iter()
        .filter(|here| here.gpus > 0)
        .enumerate()
        .map(|(nth, here)| {
            let gpus = if nth == 0 { " GPUs" } else { "" };
            format!("{}{gpus} of {}", here.gpus, here.family.maker)
        })
        .collect();
    let options: Vec<String> =
        others.iter().map(|here| format!("--{} search", here.family.option())).collect();
    let text = format!(
        "{}: {}'s are measured; {} measures the others",
        counts.join(" and "),
        used.family.maker,
        options.join(" or ")
    );
    (used.family, Some(text))
}

/// The runtime for a host with these GPUs, and a note on the selection, if there were several.
pub fn chosen_family(
    topology: &Topology,
    asked: &LibraryRequest,
) -> (RuntimeFamily, Option<String>) {
    choose(asked, &RuntimeFamily::ALL.map(|family| VendorPresence::of(family, topology)))
}

/// Searches for a runtime's library and device files, without opening a device. If `topology` has
/// GPUs but none of a supported vendor, the report gives that as the reason, rather than a missing
/// library that such a node does not need.
pub fn runtime(topology: &Topology, asked: &LibraryRequest) -> GpuRuntime {
    let (family, note) = chosen_family(topology, asked);
    let (bound, driver) = search::driver(family, asked.place(family));
    let stands_in = bound.as_ref().is_some_and(|bound| bound.stands_in);
    let explicit = asked.runtime(family).is_some();
    let without = match (others(topology), &bound) {
        (Some(others), _) if !explicit => {
            let labels = RuntimeFamily::ALL.map(|family| family.label);
            Some(format!(
                "{} are the runtimes that can be bound, and these GPUs are of {others}",
                labels.join(" and ")
            ))
        }
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

/// Vendors of the GPUs, if there are GPUs and none has a supported runtime.
fn others(topology: &Topology) -> Option<String> {
    let known = RuntimeFamily::ALL.map(|family| family.vendor);
    let mut vendors: Vec<&str> =
        topology.gpus.iter().map(|g| g.vendor.as_str()).filter(|v| !v.is_empty()).collect();
    vendors.sort_unstable();
    vendors.dedup();
    (!vendors.is_empty() && !vendors.iter().any(|v| known.contains(v))).then(|| vendors.join(", "))
}

impl GpuRuntime {
    fn compiler(&self, major: i32) -> (Option<rtc::BoundCompiler>, LibraryReport) {
        let asked = self.asked.compiler(self.family);
        let query = CompilerQuery { asked, runtime: self.driver.path.as_deref(), major };
        search::compiler(self.family, query)
    }

    /// What copies, by kind of copy, where the runtime's version and the environment decide it.
    pub fn copy_rule(&self) -> Option<String> {
        self.bound.as_ref()?.dialect.copy_rule()
    }

    /// The calls for copies on the thread of a caller.
    ///
    /// # Errors
    /// The library is not open, or lacks functions; which.
    pub fn caller_calls(&self) -> Result<Arc<dyn CallerCalls>, String> {
        let bound = self.bound.as_ref().ok_or("the runtime's library is not open")?;
        bound.dialect.caller_calls()
    }

    /// The call that exports device memory as dma-buf.
    ///
    /// # Errors
    /// The library is not open, or has no such call; why, and what has one.
    pub fn export_call(&self) -> Result<&'static str, String> {
        let bound = self.bound.as_ref().ok_or("the runtime's library is not open")?;
        if let Some(call) = &bound.api.handle_of_range {
            return Ok(call.name);
        }
        let export = bound.dialect.export();
        let (why, instead) = export.refusal;
        export.call.map(|_| export.name).ok_or_else(|| format!("{why}; {instead}"))
    }

    /// Reports on its run-time compiler and that compiler's dependency.
    pub fn compilers(&self) -> Vec<LibraryReport> {
        let major = self.bound.as_ref().map_or(0, |bound| bound.major);
        with_helper(self.family, self.compiler(major).1)
    }

    /// Starts the driver. Device memory stays untouched until a call needs it.
    pub fn open(mut self, host: Rc<HostMemory>) -> CallResult<Option<GpuDriver>> {
        let Some(driver) = self.bound.take().filter(|_| self.without.is_none()) else {
            return Ok(None);
        };
        let (found, about) = self.compiler(driver.major);
        let compiler = found.map(|bound| {
            let label = (self.family.compiler.label)(&self.driver, &about);
            KernelCompiler::new(self.family, bound, label, self.cache, self.asked.compile)
        });
        // The compiler was opened last.
        if let Some(path) = &self.driver.path {
            announce_in(path, driver.api.init.name);
        }
        GpuDriver::open(driver.api, driver.dialect, compiler, host).map(Some)
    }
}

/// A compiler's report, followed by its dependency's if it was found.
fn with_helper(family: RuntimeFamily, compiler: LibraryReport) -> Vec<LibraryReport> {
    let helper = compiler.path.is_some().then(|| (family.compiler.helper)(&compiler));
    std::iter::once(compiler).chain(helper).collect()
}

/// Reports on the run-time compiler of a runtime that cannot be opened, of any version.
pub fn compilers(family: RuntimeFamily, asked: &LibraryRequest) -> Vec<LibraryReport> {
    let query = CompilerQuery { asked: asked.compiler(family), runtime: None, major: 0 };
    with_helper(family, search::compiler(family, query).1)
}

/// Reports on the libraries of all other supported runtimes.
pub fn other_runtimes(family: RuntimeFamily, asked: &LibraryRequest) -> Vec<LibraryReport> {
    let others = RuntimeFamily::ALL.into_iter().filter(|other| *other != family);
    others.map(|other| search::driver(other, asked.place(other)).1).collect()
}

/// The folder of compiled kernels; `None` without a home folder.
pub fn kernel_cache() -> Option<PathBuf> {
    cache::folder()
}

/// Checks that a folder can be written.
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
        let here = VendorPresence::of(named("hip"), &of(&["amd", "nvidia", "amd"]));
        assert_eq!(here.gpus, 2);
    }

    fn named(name: &str) -> RuntimeFamily {
        RuntimeFamily::named(name).unwrap()
    }

    #[test]
    fn the_runtime_matches_the_gpus_of_the_host() {
        let (cuda, hip) = (named("cuda"), named("hip"));
        let here = |gpus| (gpus, true);
        let gone = |gpus| (gpus, false);
        let chosen = |asked: &LibraryRequest, nvidia: (usize, bool), amd: (usize, bool)| {
            let present = [(cuda, nvidia), (hip, amd)]
                .map(|(family, (gpus, file))| VendorPresence { family, gpus, file });
            choose(asked, &present)
        };
        let family = |nvidia, amd| chosen(&asked(), nvidia, amd).0;
        assert_eq!(family(here(8), gone(0)), cuda);
        assert_eq!(family(gone(0), here(8)), hip);
        // A driver that is not loaded does not select another vendor's.
        assert_eq!(family(gone(0), gone(2)), hip);
        assert_eq!(family(gone(0), gone(0)), cuda);
        // Neither do GPUs without device files.
        assert_eq!(family(here(0), gone(2)), cuda);
        // Device files may remain after a card was removed.
        assert_eq!(chosen(&asked(), here(0), here(4)), (hip, None));
        assert_eq!(chosen(&asked(), here(0), here(0)), (cuda, None));
        let (more, note) = chosen(&asked(), here(2), here(4));
        assert_eq!(more, hip);
        assert_eq!(
            note.unwrap(),
            "2 GPUs of NVIDIA and 4 of AMD: AMD's are measured; --cuda search measures the others"
        );
        let cuda_asked = asked().with("cuda", LibraryRequest::SEARCH);
        assert_eq!(chosen(&cuda_asked, here(2), here(4)), (cuda, None));
        assert_eq!(cuda_asked.place(cuda), None);
        let hip_asked = asked().with("hip", LibraryRequest::SEARCH);
        assert_eq!(chosen(&hip_asked, here(8), gone(0)), (hip, None));
    }

    #[test]
    fn options_stand_in_the_order_of_the_command_line() {
        let names: Vec<&str> = library_options().map(|option| option.name).collect();
        assert_eq!(names, ["cuda", "hip", "nvrtc"]);
        let variables: Vec<&str> = library_options().map(|option| option.variable).collect();
        assert_eq!(variables, ["PATHLINE_CUDA", "PATHLINE_HIP", "PATHLINE_NVRTC"]);
    }

    #[test]
    fn a_path_is_used_without_looking_at_device_files() {
        let none = asked().with("hip", "/nowhere/libamdhip64.so");
        let runtime = runtime(&Topology::default(), &none);
        assert_eq!(runtime.family, named("hip"));
        assert!(runtime.without.unwrap().contains("No such file"));
        assert_eq!(runtime.driver.tried.len(), 1);
    }
}
