//! Where the runtimes' libraries and their compilers are looked for.

mod amd;
mod ccl;
mod nvidia;

use std::path::{Path, PathBuf};

use super::dialect::{Dialect, Family};
use super::rtc::Bound;
use super::table::Api;
use crate::library::{self, Found, Tried};

pub(crate) use amd::comgr;
pub(crate) use ccl::collectives;
pub(crate) use nvidia::{beside_driver, keep_builtins};

/// A runtime that is bound.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) api: Api,
    pub(crate) dialect: Box<dyn Dialect>,
    /// Major version: of CUDA, which the driver takes code of, or of HIP; 0 if it does not say.
    pub(crate) major: i32,
    /// Whether it only stands in for the real one.
    pub(crate) stands_in: bool,
}

/// Exported by the libraries that stand in for a driver in tests: what runs on them is a model.
pub(crate) const STAND_IN: &str = "pathline_stub";

/// The runtime's library with its functions, and how the search went. `asked` is a file or folder;
/// nothing else is then looked at.
pub(crate) fn driver(family: Family, asked: Option<&Path>) -> (Option<Driver>, Found) {
    match family {
        Family::Cuda => nvidia::driver(asked),
        Family::Hip => amd::driver(asked),
    }
}

/// The run-time compiler that goes with a runtime's file and major version, and how the search went.
/// `asked` is a file or folder; nothing else is then looked at.
pub(crate) fn compiler(
    family: Family,
    asked: Option<&Path>,
    runtime: Option<&Path>,
    major: i32,
) -> (Option<Bound>, Found) {
    match family {
        // Without a driver the compiler is still shown, whatever its version.
        Family::Cuda => nvidia::compiler(asked, if major > 0 { major } else { i32::MAX }),
        Family::Hip => amd::compiler(asked, runtime, major),
    }
}

/// What the compiler itself needs besides.
pub(crate) fn helper(family: Family, compiler: &Found) -> Found {
    match family {
        Family::Cuda => nvidia::builtins(compiler.path.as_deref()),
        Family::Hip => amd::comgr(compiler.path.as_deref().and_then(Path::parent)).1,
    }
}

/// A name for the linker to find; none if it would find a file of LD_LIBRARY_PATH, which is looked
/// at by itself and, where it is cut off, must not be opened.
pub(crate) fn bare(name: &str) -> Option<PathBuf> {
    let shadowed = library::folders("LD_LIBRARY_PATH").iter().any(|f| f.join(name).exists());
    (!shadowed).then(|| name.into())
}

/// Files of a library in a folder, or the file itself if a file was asked for.
pub(crate) fn in_asked(path: &Path, name: &str) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let files = newest_first(library::starting_with(path, name), name);
    if files.is_empty() { vec![path.join(name)] } else { files }
}

/// The number after `name.`: `7` of `libamdhip64.so.7.2`.
fn major(path: &Path, name: &str) -> Option<i32> {
    let rest = path.file_name()?.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
    rest.split('.').next()?.parse().ok()
}

/// The highest number first, and of one number the place that was named first.
fn newest_first(mut files: Vec<PathBuf>, name: &str) -> Vec<PathBuf> {
    files.sort_by_key(|p| std::cmp::Reverse(major(p, name).unwrap_or(0)));
    files
}

/// An absolute path that a variable holds.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute())
}

/// Roots that hold a `lib`: beside this program, and of Python environments.
pub(crate) fn prefixes() -> Vec<PathBuf> {
    let mut prefixes = Vec::new();
    if let Some(bin) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        prefixes.extend(bin.parent().map(Path::to_owned));
    }
    prefixes.extend(variable("VIRTUAL_ENV"));
    prefixes.extend(variable("CONDA_PREFIX"));
    // The Python that is first on the path, through the links that stand for it and not beyond:
    // an environment's python is itself a link out of it.
    let python = library::folders("PATH").into_iter().find(|f| f.join("python3").exists());
    prefixes.extend(python.as_deref().and_then(Path::parent).map(Path::to_owned));
    prefixes.extend(variable("HOME").map(|home| home.join(".local")));
    prefixes
}

/// `lib` of each prefix, and the folders that wheels put libraries into, under the names of packages.
pub(crate) fn in_prefixes(prefixes: &[PathBuf], packages: &[&str]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for prefix in prefixes {
        folders.push(prefix.join("lib"));
        for python in library::starting_with(&prefix.join("lib"), "python3") {
            for site in ["site-packages", "dist-packages"] {
                let site = python.join(site);
                folders.extend(packages.iter().map(|package| site.join(package)));
            }
        }
    }
    folders
}

/// Libraries that are only located, with their files.
pub(crate) fn beside() -> Vec<(&'static str, Option<PathBuf>)> {
    let mut folders = library::folders("LD_LIBRARY_PATH");
    let system = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    folders.extend(system.map(PathBuf::from));
    folders.extend(["/usr/local/cuda/lib64", "/opt/rocm/lib"].map(PathBuf::from));
    folders.extend(in_prefixes(&prefixes(), &["nvidia/nccl/lib", "_rocm_sdk_libraries/lib"]));
    let file = |name: &str| folders.iter().map(|f| f.join(name)).find(|file| file.exists());
    ["libnccl.so.2", "librccl.so.1"].map(|name| (name, file(name))).to_vec()
}

/// What is said of a library that is found or not.
struct Sought {
    what: &'static str,
    costs: &'static str,
    way_out: &'static str,
}

impl Sought {
    fn found(self, at: Option<(PathBuf, String)>, tried: Vec<Tried>) -> Found {
        let (path, version) = at.map_or((None, String::new()), |(p, v)| (Some(p), v));
        let Self { what, costs, way_out } = self;
        Found { what, path, version, tried, costs, way_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_are_looked_for_beside_the_program_and_in_environments() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("lib/python3.12/site-packages");
        std::fs::create_dir_all(site.join("nvidia/cu13/lib")).unwrap();
        let folders = in_prefixes(&[root.path().to_owned()], &["nvidia/cu13/lib"]);
        assert_eq!(folders[0], root.path().join("lib"));
        assert!(folders.contains(&site.join("nvidia/cu13/lib")), "{folders:?}");
    }

    #[test]
    fn the_number_of_a_library_is_read_from_its_name() {
        let of = |name: &str| major(Path::new(name), "libamdhip64.so");
        assert_eq!(of("/opt/rocm/lib/libamdhip64.so.6"), Some(6));
        assert_eq!(of("libamdhip64.so.5.2.21153"), Some(5));
        assert_eq!(of("libamdhip64.so.10"), Some(10));
        assert_eq!(of("libamdhip64.so"), None);
        assert_eq!(of("libhiprtc.so.6"), None);
    }
}
