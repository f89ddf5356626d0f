//! Where the driver's library and the run-time compiler are looked for.

use std::path::{Path, PathBuf};

use super::cuda::{self, dotted};
use super::dialect::Dialect;
use super::table::{Api, Rtc};
use crate::library::{self, Found, Library, Tried};

const DRIVER: &str = "libcuda.so.1";
const COMPILER: &str = "libnvrtc.so";

/// A compiler's functions with its major and minor version.
pub(crate) type Bound = (Rtc, (i32, i32));
/// A runtime that is bound.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) api: Api,
    pub(crate) dialect: Box<dyn Dialect>,
    /// The version of CUDA that the driver takes code of; 0 if it does not say.
    pub(crate) version: i32,
    /// Whether it only stands in for the real one.
    pub(crate) stands_in: bool,
}

/// Exported by the libraries that stand in for a driver in tests: what runs on them is a model.
pub(crate) const STAND_IN: &str = "pathline_stub";

/// Where a library that comes with NVIDIA's driver may be, in order.
pub(crate) fn beside_driver(name: &str) -> Vec<PathBuf> {
    let known = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib64/nvidia",
        "/usr/lib/nvidia",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    let mut places: Vec<PathBuf> =
        library::folders("LD_LIBRARY_PATH").iter().map(|f| f.join(name)).collect();
    places.retain(|p| p.exists());
    places.extend(bare(name));
    places.extend(known.iter().map(|f| Path::new(f).join(name)).filter(|p| p.exists()));
    places
}

/// The driver's library with its functions, and how the search went.
pub(crate) fn driver() -> (Option<Driver>, Found) {
    driver_at(beside_driver(DRIVER))
}

/// A name for the linker to find; none if it would find a file of LD_LIBRARY_PATH, which is looked
/// at by itself and, where it is cut off, must not be opened.
fn bare(name: &str) -> Option<PathBuf> {
    let shadowed = library::folders("LD_LIBRARY_PATH").iter().any(|f| f.join(name).exists());
    (!shadowed).then(|| name.into())
}

fn driver_at(places: Vec<PathBuf>) -> (Option<Driver>, Found) {
    let (found, tried) = library::first(places, |library| {
        let (api, cuda, version) = cuda::load(&library)?;
        let stands_in = library.symbol(STAND_IN).is_some();
        let driver = Driver { api, dialect: Box::new(cuda), version, stands_in };
        Ok((driver, library.path, dotted(version)))
    });
    let (api, path, version) = match found {
        Some((api, path, version)) => (Some(api), Some(path), version),
        None => (None, None, String::new()),
    };
    let found = Found {
        what: "CUDA driver (libcuda)",
        path,
        version,
        tried,
        costs: "no GPU of NVIDIA can be measured",
        way_out: "install the NVIDIA driver; in a container, start it with --gpus all or --nv",
    };
    (api, found)
}

/// The run-time compiler with its functions, major and minor version, and how the search went.
/// `asked` is a file or folder; nothing else is then looked at. A compiler of a newer major than the
/// driver makes code that the driver does not load.
pub(crate) fn compiler(asked: Option<&Path>, driver_major: i32) -> (Option<Bound>, Found) {
    let (places, mut passed) = match asked {
        Some(path) if path.is_dir() => {
            (best_first(library::starting_with(path, COMPILER)), Vec::new())
        }
        Some(path) => (vec![path.to_owned()], Vec::new()),
        None => candidates(driver_major),
    };
    let (found, tried) = library::first(places, |library| {
        let api = Rtc::bind(&|symbol| (symbol.nvidia.0, library.symbol(symbol.nvidia.0)))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: stores two numbers.
        let code = unsafe { (api.version.at)(&raw mut major, &raw mut minor) };
        if code != 0 {
            return Err(format!("nvrtcVersion returns {code}"));
        }
        if major > driver_major {
            return Err(format!(
                "NVRTC {major}.{minor} is newer than the driver's CUDA {driver_major}"
            ));
        }
        keep_builtins(&library.path);
        Ok((api, library.path, (major, minor)))
    });
    passed.extend(tried);
    let (api, path, version) = match found {
        Some((api, path, v)) => (Some((api, v)), Some(path), format!("{}.{}", v.0, v.1)),
        None => (None, None, String::new()),
    };
    let found = Found {
        what: "run-time compiler (NVRTC)",
        path,
        version,
        tried: passed,
        costs: "no kernels: copies by the copy engine are measured, loads and stores of kernels, \
                latency of loads and migration by faults are not",
        way_out: "pip install nvidia-cuda-nvrtc-cu12, or name the file or its folder with --nvrtc \
                  (PATHLINE_NVRTC)",
    };
    (api, found)
}

/// Loads the compiler's second library from beside it. NVRTC opens it by its bare name, and 13.0
/// finds it nowhere but in the search path of the linker; once loaded it is found by that name.
fn keep_builtins(compiler: &Path) {
    let Some(folder) = compiler.parent() else { return };
    for path in library::starting_with(folder, "libnvrtc-builtins.so") {
        // Where this fails, compiling says so in NVRTC's words.
        let _ = Library::open(&path);
    }
}

/// Files that exist, highest major first, and bare names for the linker to find; majors beyond the
/// driver's are passed over.
fn candidates(driver_major: i32) -> (Vec<PathBuf>, Vec<Tried>) {
    let mut files: Vec<PathBuf> =
        folders().iter().flat_map(|f| library::starting_with(f, COMPILER)).collect();
    files = best_first(files);
    let newer = |p: &PathBuf| major(p).is_some_and(|m| m > driver_major);
    let why = format!("newer than the driver's CUDA {driver_major}");
    let passed = files.iter().filter(|p| newer(p));
    let passed = passed.map(|p| Tried { place: p.clone(), why: why.clone() }).collect();
    files.retain(|p| !newer(p));
    let names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", COMPILER];
    files.extend(names.iter().filter_map(|n| bare(n)).filter(|p| !newer(p)));
    (files, passed)
}

/// The number after `libnvrtc.so.`.
fn major(path: &Path) -> Option<i32> {
    let name = path.file_name()?.to_str()?.strip_prefix("libnvrtc.so.")?;
    name.split('.').next()?.parse().ok()
}

fn best_first(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    // A stable sort: of one major, the place that was named first.
    files.sort_by_key(|p| std::cmp::Reverse(major(p).unwrap_or(0)));
    files
}

/// Folders in order: beside this program, the linker's, toolkits, Python environments.
fn folders() -> Vec<PathBuf> {
    let mut prefixes = Vec::new();
    if let Some(bin) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        prefixes.extend(bin.parent().map(Path::to_owned));
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    prefixes.extend(variable("VIRTUAL_ENV"));
    prefixes.extend(variable("CONDA_PREFIX"));
    // The Python that is first on the path, through the links that stand for it and not beyond:
    // an environment's python is itself a link out of it.
    let python = library::folders("PATH").into_iter().find(|f| f.join("python3").exists());
    prefixes.extend(python.as_deref().and_then(Path::parent).map(Path::to_owned));
    prefixes.extend(variable("HOME").map(|home| home.join(".local")));
    let mut folders = library::folders("LD_LIBRARY_PATH");
    for root in ["CUDA_HOME", "CUDA_PATH", "NVHPC_ROOT"].into_iter().filter_map(variable) {
        folders.push(root.join("lib64"));
        folders.extend(
            library::starting_with(&root.join("targets"), "").iter().map(|t| t.join("lib")),
        );
    }
    for prefix in &prefixes {
        folders.push(prefix.join("lib"));
        for python in library::starting_with(&prefix.join("lib"), "python3") {
            for site in ["site-packages", "dist-packages"] {
                let nvidia = python.join(site).join("nvidia");
                folders.extend(["cu13", "cuda_nvrtc"].map(|part| nvidia.join(part).join("lib")));
            }
        }
    }
    for root in library::starting_with(Path::new("/usr/local"), "cuda") {
        folders.push(root.join("lib64"));
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_major_that_the_driver_takes_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["libnvrtc.so.11.2", "libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let files = best_first(library::starting_with(folder.path(), COMPILER));
        let majors: Vec<_> = files.iter().map(|f| major(f)).collect();
        assert_eq!(majors, [Some(13), Some(12), Some(11)]);
    }

    #[test]
    fn what_is_no_driver_is_said_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libcuda.so.1");
        std::fs::write(&broken, "\x7fELF").unwrap();
        let (api, found) = driver_at(vec![broken, "libc.so.6".into(), folder.path().join("none")]);
        assert!(api.is_none() && found.path.is_none());
        let why: Vec<&str> = found.tried.iter().map(|t| t.why.as_str()).collect();
        assert!(why[0].contains("no 64-bit shared object"), "{why:?}");
        assert!(why[1].contains("cuGetProcAddress"), "{why:?}");
        assert!(why[2].contains("No such file"), "{why:?}");
    }

    #[test]
    fn what_is_no_compiler_is_said_with_its_reason() {
        let (api, found) = compiler(Some(Path::new("libc.so.6")), 12);
        assert!(api.is_none());
        assert!(found.tried[0].why.contains("lacks nvrtcVersion"), "{:?}", found.tried);
        let (api, found) = compiler(Some(Path::new("/nowhere/libnvrtc.so.12")), 12);
        assert!(api.is_none() && found.tried[0].why.contains("No such file"));
    }
}
