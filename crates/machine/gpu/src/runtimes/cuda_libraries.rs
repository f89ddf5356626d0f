//! Finds the libraries of CUDA: the driver, NVRTC, NCCL.

use std::path::{Path, PathBuf};

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, MaxMajor, SearchPlace, SharedLibrary,
    TriedPlace, environment_path, find, starting_with,
};

use pathline_hal::CallResult;

use super::cuda;
use crate::family::{CollectivesDescription, CompilerQuery};
use crate::function_table::{RtcNames, entry};
use crate::rtc::BoundCompiler;
use crate::runtime_api::{BoundDriver, STAND_IN};

/// The functions of NVRTC.
pub(super) const RTC_NAMES: RtcNames = RtcNames {
    version: entry("nvrtcVersion"),
    create: entry("nvrtcCreateProgram"),
    destroy: entry("nvrtcDestroyProgram"),
    compile: entry("nvrtcCompileProgram"),
    log_size: entry("nvrtcGetProgramLogSize"),
    log: entry("nvrtcGetProgramLog"),
    code_size: entry("nvrtcGetCUBINSize"),
    code: entry("nvrtcGetCUBIN"),
    ptx_size: entry("nvrtcGetPTXSize"),
    ptx: entry("nvrtcGetPTX"),
    arch_count: entry("nvrtcGetNumSupportedArchs"),
    archs: entry("nvrtcGetSupportedArchs"),
};

const BUILTINS: &str = "libnvrtc-builtins.so";

pub(super) fn driver(asked: Option<&Path>) -> (Option<BoundDriver>, LibraryReport) {
    let spec = LibrarySpec {
        what: "CUDA driver (libcuda)",
        costs: "no GPU of NVIDIA can be measured",
        way_out: "install the NVIDIA driver; in a container, start it with --gpus all or --nv",
        names: LibraryNames::Exact(&["libcuda.so.1"]),
        asked,
        places: driver_places(),
        ..LibrarySpec::default()
    };
    find(&spec, |library| {
        let (api, cuda, version) = cuda::load(library)?;
        let stands_in = library.symbol(STAND_IN).is_some();
        let major = version / 1000;
        let value = BoundDriver { api, dialect: Box::new(cuda), major, stands_in };
        Ok(BoundLibrary { value, version: cuda::dotted(version), number: None })
    })
}

/// Search places of libraries that come with NVIDIA's driver, in order.
pub(crate) fn driver_places() -> Vec<SearchPlace<'static>> {
    vec![
        SearchPlace::LinkerPath,
        SearchPlace::Linker,
        SearchPlace::Folders(&[
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
            "/usr/lib64/nvidia",
            "/usr/lib/nvidia",
            "/usr/local/nvidia/lib64",
            "/usr/lib/wsl/lib",
            "/run/opengl-driver/lib",
        ]),
    ]
}

/// NVRTC of a major version that the driver accepts: a newer one produces code that the driver does
/// not load.
pub(super) fn compiler(query: CompilerQuery<'_>) -> (Option<BoundCompiler>, LibraryReport) {
    // Without a driver the compiler is still reported, of any version.
    let driver_major = u32::try_from(query.major).ok().filter(|&major| major > 0);
    let limit = |major| MaxMajor { major, limit: format!("the driver's CUDA {major}") };
    let spec = LibrarySpec {
        what: "run-time compiler (NVRTC)",
        costs: "no kernels: copies by the copy engine are measured, loads and stores of kernels, \
                latency of loads and migration by faults are not",
        way_out: "pip install nvidia-cuda-nvrtc-cu12, or name the file or its folder with --nvrtc \
                  (PATHLINE_NVRTC)",
        names: LibraryNames::Numbered {
            stem: "libnvrtc.so",
            linker: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"],
        },
        asked: query.asked,
        places: compiler_places(),
        newest_first: true,
        max_major: driver_major.map(limit),
        ..LibrarySpec::default()
    };
    find(&spec, |library| {
        let bound = BoundCompiler::new(&RTC_NAMES, library.clone())?;
        keep_builtins(&bound.path);
        let (major, minor) = bound.version;
        let number = u32::try_from(major).ok().zip(u32::try_from(minor).ok());
        Ok(BoundLibrary { value: bound, version: format!("{major}.{minor}"), number })
    })
}

/// Toolkits that variables name, Python environments, installed toolkits.
fn compiler_places() -> Vec<SearchPlace<'static>> {
    const ROOTS: [&str; 3] = ["CUDA_HOME", "CUDA_PATH", "NVHPC_ROOT"];
    let roots = ROOTS.iter().filter_map(|name| environment_path(name));
    let targets = roots.flat_map(|root| starting_with(&root.join("targets"), ""));
    let targets = targets.map(|target| target.join("lib")).collect();
    vec![
        SearchPlace::LinkerPath,
        // NVIDIA's HPC SDK has its toolkit one folder further down.
        SearchPlace::Variables(&ROOTS, &["lib64", "cuda/lib64"]),
        SearchPlace::Found(targets),
        SearchPlace::Wheels(&["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"]),
        SearchPlace::Roots(toolkits(), &["lib64"]),
        SearchPlace::Linker,
    ]
}

/// `/usr/local/cuda`, then `/usr/local/cuda-12.4` and similar.
pub fn toolkits() -> Vec<PathBuf> {
    starting_with(Path::new("/usr/local"), "cuda")
}

/// Compiles to machine code, or to PTX where NVRTC does not know the target yet.
pub(super) fn code(compiler: &BoundCompiler, text: &str, target: &str) -> CallResult<Vec<u8>> {
    let (arch, real) = nearest_target(compiler, target)?;
    let options =
        [format!("--gpu-architecture={arch}"), "--std=c++17".into(), "-default-device".into()];
    compiler.build(text, &arch, &options, real)
}

/// The target to compile for, and whether it is a real one: for a newer GPU, the highest virtual
/// target of this NVRTC.
pub(crate) fn nearest_target(compiler: &BoundCompiler, target: &str) -> CallResult<(String, bool)> {
    let wanted: i32 = target.trim_start_matches("sm_").parse().unwrap_or(0);
    let known = compiler.architectures();
    if known.is_empty() || known.contains(&wanted) {
        return Ok((format!("sm_{wanted}"), true));
    }
    match known.iter().filter(|&&a| a < wanted).max() {
        Some(older) => Ok((format!("compute_{older}"), false)),
        None => {
            let (major, minor) = compiler.version;
            let reason = format!("NVRTC {major}.{minor} does not know this GPU any more");
            let way_out = "use an older NVRTC: pip install nvidia-cuda-nvrtc-cu12, and --nvrtc";
            Err(compiler.refuse(target, reason, way_out))
        }
    }
}

/// NCCL.
pub(super) const NCCL: CollectivesDescription = CollectivesDescription {
    name: "NCCL",
    spelling: |function| function,
    library: |asked, _| LibrarySpec {
        what: "NCCL (libnccl)",
        costs: "no collectives of GPUs are measured",
        way_out: "pip install nvidia-nccl-cu13, or name the file or its folder with PATHLINE_NCCL",
        names: LibraryNames::Exact(&["libnccl.so.2"]),
        asked,
        places: vec![
            SearchPlace::LinkerPath,
            SearchPlace::Variables(
                &["NCCL_HOME", "CUDA_HOME", "CUDA_PATH", "NVHPC_ROOT"],
                &["lib", "lib64", "comm_libs/nccl/lib"],
            ),
            SearchPlace::Linker,
            SearchPlace::Wheels(&["nvidia/nccl/lib", "nvidia/cu13/lib"]),
            SearchPlace::Folders(&[
                "/usr/local/cuda/lib64",
                "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/aarch64-linux-gnu",
                "/usr/lib64",
            ]),
        ],
        ..LibrarySpec::default()
    },
};

/// The report on the compiler's second library. NVRTC opens it itself.
pub(super) fn builtins(compiler: &LibraryReport) -> LibraryReport {
    let spec = LibrarySpec {
        what: "builtins of the compiler (libnvrtc-builtins)",
        costs: "every kernel fails to compile, with code 7",
        way_out: "take libnvrtc-builtins.so of the same version from where NVRTC came from",
        names: LibraryNames::Exact(&[BUILTINS]),
        ..LibrarySpec::default()
    };
    let folder = compiler.path.as_deref().and_then(Path::parent);
    let file = folder.and_then(|f| starting_with(f, BUILTINS).pop());
    let version = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.trim_start_matches(BUILTINS).trim_start_matches('.').to_owned()
    };
    let why = "no file of that name".to_owned();
    let tried = match (&file, folder) {
        (None, Some(folder)) => vec![TriedPlace { place: folder.join(BUILTINS), why }],
        _ => Vec::new(),
    };
    spec.report(file.map(|f| (f.clone(), version(&f))), tried)
}

/// Loads the compiler's second library from the compiler's folder. NVRTC opens it by its bare name,
/// and 13.0 finds it only in the linker's search path; once loaded it is found by that name.
pub(super) fn keep_builtins(compiler: &Path) {
    let Some(folder) = compiler.parent() else { return };
    for path in starting_with(folder, BUILTINS) {
        // On failure the compilation reports NVRTC's reason.
        let _ = SharedLibrary::open(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_driver_is_reported_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libcuda.so.1"), "\x7fELF").unwrap();
        let why = |asked: &Path| {
            let (driver, report) = driver(Some(asked));
            assert!(driver.is_none() && report.path.is_none() && report.tried.len() == 1);
            report.tried[0].why.clone()
        };
        assert_eq!(why(folder.path()), "no 64-bit shared object");
        assert!(why(Path::new("libc.so.6")).contains("cuGetProcAddress"));
        assert!(why(&folder.path().join("none")).contains("No such file"));
    }

    #[test]
    fn an_unusable_compiler_is_reported_with_its_reason() {
        let of = |path| {
            compiler(CompilerQuery { asked: Some(Path::new(path)), runtime: None, major: 12 })
        };
        let (bound, report) = of("libc.so.6");
        assert!(bound.is_none());
        assert!(report.tried[0].why.contains("lacks nvrtcVersion"), "{:?}", report.tried);
        let (bound, report) = of("/nowhere/libnvrtc.so.12");
        assert!(bound.is_none() && report.tried[0].why.contains("No such file"));
    }

    #[test]
    fn a_compiler_without_its_builtins_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let compiler = folder.path().join("libnvrtc.so.13");
        std::fs::write(&compiler, "").unwrap();
        let compiler = LibraryReport { path: Some(compiler), ..LibraryReport::default() };
        let found = builtins(&compiler);
        assert!(found.path.is_none() && found.costs.contains("code 7"), "{found:?}");
        std::fs::write(folder.path().join("libnvrtc-builtins.so.13.0"), "").unwrap();
        let found = builtins(&compiler);
        assert_eq!((found.version.as_str(), found.tried.len()), ("13.0", 0));
    }
}
