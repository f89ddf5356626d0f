//! NVIDIA's driver, and NVRTC.

use std::path::{Path, PathBuf};

use super::{
    Driver, STAND_IN, Sought, bare, in_asked, in_prefixes, major, newest_first, prefixes, variable,
};
use crate::gpu::cuda;
use crate::gpu::dialect::Family;
use crate::gpu::rtc::Bound;
use crate::library::{self, Found, Library, Tried};

const DRIVER: &str = "libcuda.so.1";
const COMPILER: &str = "libnvrtc.so";
const BUILTINS: &str = "libnvrtc-builtins.so";

pub(super) fn driver(asked: Option<&Path>) -> (Option<Driver>, Found) {
    driver_at(match asked {
        Some(path) if path.is_dir() => vec![path.join(DRIVER)],
        Some(path) => vec![path.to_owned()],
        None => beside_driver(DRIVER),
    })
}

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

fn driver_at(places: Vec<PathBuf>) -> (Option<Driver>, Found) {
    let (found, tried) = library::first(places, |library| {
        let (api, cuda, version) = cuda::load(&library)?;
        let stands_in = library.symbol(STAND_IN).is_some();
        let driver = Driver { api, dialect: Box::new(cuda), major: version / 1000, stands_in };
        Ok((driver, (library.path, cuda::dotted(version))))
    });
    let (driver, at) = found.unzip();
    let sought = Sought {
        what: "CUDA driver (libcuda)",
        costs: "no GPU of NVIDIA can be measured",
        way_out: "install the NVIDIA driver; in a container, start it with --gpus all or --nv",
    };
    (driver, sought.found(at, tried))
}

/// NVRTC of a major that the driver takes: a newer one makes code that the driver does not load.
pub(super) fn compiler(asked: Option<&Path>, driver_major: i32) -> (Option<Bound>, Found) {
    let (places, mut passed) = match asked {
        Some(path) => (in_asked(path, COMPILER), Vec::new()),
        None => candidates(driver_major),
    };
    let (found, tried) = library::first(places, |library| {
        let bound = Bound::new(Family::Cuda, library)?;
        let (major, minor) = bound.version;
        if major > driver_major {
            return Err(format!(
                "NVRTC {major}.{minor} is newer than the driver's CUDA {driver_major}"
            ));
        }
        Ok(bound)
    });
    passed.extend(tried);
    let at = found.as_ref().map(|b| (b.path.clone(), format!("{}.{}", b.version.0, b.version.1)));
    let sought = Sought {
        what: "run-time compiler (NVRTC)",
        costs: "no kernels: copies by the copy engine are measured, loads and stores of kernels, \
                latency of loads and migration by faults are not",
        way_out: "pip install nvidia-cuda-nvrtc-cu12, or name the file or its folder with --nvrtc \
                  (PATHLINE_NVRTC)",
    };
    (found, sought.found(at, passed))
}

/// The second library of the compiler that was found.
pub(super) fn builtins(compiler: Option<&Path>) -> Found {
    let folder = compiler.and_then(Path::parent);
    let file = folder.and_then(|f| library::starting_with(f, BUILTINS).pop());
    let version = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.trim_start_matches(BUILTINS).trim_start_matches('.').to_owned()
    };
    let why = "no file of that name".to_owned();
    let tried = match (&file, folder) {
        (None, Some(folder)) => vec![Tried { place: folder.join(BUILTINS), why }],
        _ => Vec::new(),
    };
    let sought = Sought {
        what: "builtins of the compiler (libnvrtc-builtins)",
        costs: "every kernel fails to compile, with code 7",
        way_out: "take libnvrtc-builtins.so of the same version from where NVRTC came from",
    };
    sought.found(file.map(|f| (f.clone(), version(&f))), tried)
}

/// Loads the compiler's second library from beside it. NVRTC opens it by its bare name, and 13.0
/// finds it nowhere but in the search path of the linker; once loaded it is found by that name.
pub(crate) fn keep_builtins(compiler: &Path) {
    let Some(folder) = compiler.parent() else { return };
    for path in library::starting_with(folder, BUILTINS) {
        // Where this fails, compiling says so in NVRTC's words.
        let _ = Library::open(&path);
    }
}

/// Files that exist, highest major first, and bare names for the linker to find; majors beyond the
/// driver's are passed over.
fn candidates(driver_major: i32) -> (Vec<PathBuf>, Vec<Tried>) {
    let mut files: Vec<PathBuf> =
        folders().iter().flat_map(|f| library::starting_with(f, COMPILER)).collect();
    files = newest_first(files, COMPILER);
    let newer = |p: &PathBuf| major(p, COMPILER).is_some_and(|m| m > driver_major);
    let why = format!("newer than the driver's CUDA {driver_major}");
    let passed = files.iter().filter(|p| newer(p));
    let passed = passed.map(|p| Tried { place: p.clone(), why: why.clone() }).collect();
    files.retain(|p| !newer(p));
    let names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", COMPILER];
    files.extend(names.iter().filter_map(|n| bare(n)).filter(|p| !newer(p)));
    (files, passed)
}

/// Folders in order: the linker's, toolkits, beside this program, Python environments.
fn folders() -> Vec<PathBuf> {
    let mut folders = library::folders("LD_LIBRARY_PATH");
    for root in ["CUDA_HOME", "CUDA_PATH", "NVHPC_ROOT"].into_iter().filter_map(variable) {
        // NVIDIA's HPC SDK has its toolkit one folder further down.
        folders.extend(["lib64", "cuda/lib64"].map(|sub| root.join(sub)));
        folders.extend(
            library::starting_with(&root.join("targets"), "").iter().map(|t| t.join("lib")),
        );
    }
    folders.extend(in_prefixes(&prefixes(), &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"]));
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
        let files = in_asked(folder.path(), COMPILER);
        let majors: Vec<_> = files.iter().map(|f| major(f, COMPILER)).collect();
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

    #[test]
    fn a_compiler_without_its_builtins_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let compiler = folder.path().join("libnvrtc.so.13");
        std::fs::write(&compiler, "").unwrap();
        let found = builtins(Some(&compiler));
        assert!(found.path.is_none() && found.costs.contains("code 7"), "{found:?}");
        std::fs::write(folder.path().join("libnvrtc-builtins.so.13.0"), "").unwrap();
        let found = builtins(Some(&compiler));
        assert_eq!((found.version.as_str(), found.tried.len()), ("13.0", 0));
    }
}
