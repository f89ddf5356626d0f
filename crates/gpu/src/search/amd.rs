//! AMD's runtime, hipRTC and its code generator.

use std::path::{Path, PathBuf};

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, SearchPlace, SharedLibrary, find,
    starting_with,
};

use super::{BoundDriver, STAND_IN};
use crate::family::RuntimeFamily;
use crate::hip;
use crate::rtc::{self, BoundCompiler};

const COMPILER: &str = "libhiprtc.so";
/// Variables that name the root of a ROCm tree.
pub const ROOTS: [&str; 3] = ["ROCM_PATH", "HIP_PATH", "ROCM_HOME"];
/// Folders of a tree that libraries are in.
const IN_TREE: [&str; 3] = ["lib", "lib64", "hip/lib"];
const SYSTEM: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
const WHEELS: [&str; 3] = ["_rocm_sdk_core/lib", "_rocm_sdk_devel/lib", "torch/lib"];

pub(super) fn driver(asked: Option<&Path>) -> (Option<BoundDriver>, LibraryReport) {
    let spec = LibrarySpec {
        what: "HIP runtime (libamdhip64)",
        costs: "no GPU of AMD can be measured",
        way_out: "install ROCm 5 or later, set ROCM_PATH, or name the file or its folder with --hip \
                  (PATHLINE_HIP)",
        names: LibraryNames::Numbered {
            stem: "libamdhip64.so",
            linker: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
        },
        asked,
        places: places(),
        // The oldest one whose numbers of attributes are those of today.
        min_version: Some((5, 0)),
        ..LibrarySpec::default()
    };
    find(&spec, |library| {
        let (api, hip, version) = hip::load(library)?;
        let stands_in = library.symbol(STAND_IN).is_some();
        let major = hip::major(version);
        let value = BoundDriver { api, dialect: Box::new(hip), major, stands_in };
        let number = u32::try_from(major).ok().filter(|&major| major > 0).map(|major| (major, 0));
        Ok(BoundLibrary { value, version: hip::dotted(version), number })
    })
}

/// hipRTC of the release that the runtime is of: from beside it, or in it, where it was until 6.x.
pub(super) fn compiler(
    asked: Option<&Path>,
    runtime: Option<&Path>,
    release: i32,
) -> (Option<BoundCompiler>, LibraryReport) {
    let of_release_name = format!("{COMPILER}.{release}");
    let (places, linker) = match runtime {
        Some(runtime) => {
            let mut files = runtime.parent().map_or_else(Vec::new, |f| of_release(f, release));
            files.push(runtime.to_owned());
            let places = vec![SearchPlace::Files(files), SearchPlace::Linker];
            (places, [of_release_name.as_str(), COMPILER])
        }
        None => (places(), ["libhiprtc.so.7", "libhiprtc.so.6"]),
    };
    let spec = LibrarySpec {
        what: "run-time compiler (hipRTC)",
        costs: "no kernels: copies by engines are measured, loads and stores of kernels, latency of \
                loads and migration by faults are not",
        way_out: "install hip-runtime-amd (ROCm) whole, or Debian's libhiprtc",
        names: LibraryNames::Numbered { stem: COMPILER, linker: &linker },
        asked,
        places,
        ..LibrarySpec::default()
    };
    find(&spec, |library| {
        let bound = BoundCompiler::new(RuntimeFamily::Hip, library.clone())?;
        // What it says of itself is 9.0 in every release.
        let name = bound.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let version = match name.strip_prefix(COMPILER) {
            Some(number) => number.trim_start_matches('.').to_owned(),
            None => "in the runtime's library".to_owned(),
        };
        Ok(BoundLibrary { value: bound, version, number: None })
    })
}

/// Files of the compiler in a folder, those of the runtime's release alone, the highest number first.
fn of_release(folder: &Path, release: i32) -> Vec<PathBuf> {
    let number = |file: &PathBuf| -> Option<i32> {
        let rest = file.file_name()?.to_str()?.strip_prefix(COMPILER)?.strip_prefix('.')?;
        rest.split('.').next()?.parse().ok()
    };
    let mut files = starting_with(folder, COMPILER);
    files.sort_by_key(|file| std::cmp::Reverse(number(file).unwrap_or(0)));
    files.retain(|file| release == 0 || number(file).is_none_or(|n| n == release));
    files
}

/// The targets that the code generator knows, as `gfx90a`, and how the search for it went. `beside`
/// is the folder of the compiler.
pub fn comgr(beside: Option<&Path>) -> (Vec<String>, LibraryReport) {
    let mut places = places();
    places.insert(0, SearchPlace::Found(beside.map(Path::to_owned).into_iter().collect()));
    let spec = LibrarySpec {
        what: "code generator of hipRTC (libamd_comgr)",
        costs: "no kernel compiles",
        way_out: "install comgr (ROCm), or Debian's libamd-comgr2",
        names: LibraryNames::Numbered {
            stem: "libamd_comgr.so",
            linker: &["libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"],
        },
        places,
        ..LibrarySpec::default()
    };
    let (sets, report) = find(&spec, |library: &SharedLibrary| {
        let sets = rtc::instruction_sets(library);
        if sets.is_empty() {
            return Err("it does not say which targets it knows".to_owned());
        }
        let version = format!("{} targets: {}", sets.len(), sets.join(" "));
        Ok(BoundLibrary { value: sets, version, number: None })
    });
    (sets.unwrap_or_default(), report)
}

/// Roots of the ROCm trees that are installed.
pub fn trees() -> Vec<PathBuf> {
    installed(Path::new("/opt"))
}

/// `/opt/rocm`, then `/opt/rocm-7.1.0` and its like, the newest first.
fn installed(opt: &Path) -> Vec<PathBuf> {
    let mut trees = starting_with(opt, "rocm");
    let number = |tree: &PathBuf| -> Vec<u32> {
        let name = tree.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split(['-', '.']).filter_map(|part| part.parse().ok()).collect()
    };
    // Without a number it is a link that the administrator has set.
    trees.sort_by_key(|tree| {
        let number = number(tree);
        (!number.is_empty(), std::cmp::Reverse(number))
    });
    trees
}

/// What a variable names, what the linker finds, what is installed, what Python brought.
fn places() -> Vec<SearchPlace<'static>> {
    vec![
        SearchPlace::Variables(&ROOTS, &IN_TREE),
        SearchPlace::LinkerPath,
        SearchPlace::Linker,
        SearchPlace::Roots(trees(), &IN_TREE),
        SearchPlace::Folders(&SYSTEM),
        SearchPlace::Wheels(&WHEELS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_tree_comes_first() {
        let opt = tempfile::tempdir().unwrap();
        for tree in ["rocm-6.4.3", "rocm-7.10.0", "rocm-7.2.1", "rocm"] {
            std::fs::create_dir_all(opt.path().join(tree).join("lib")).unwrap();
        }
        let names: Vec<String> = installed(opt.path())
            .iter()
            .map(|t| t.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["rocm", "rocm-7.10.0", "rocm-7.2.1", "rocm-6.4.3"]);
    }

    #[test]
    fn the_compiler_is_of_the_runtimes_release() {
        let lib = tempfile::tempdir().unwrap();
        for file in ["libhiprtc.so.6", "libhiprtc.so.7", "libhiprtc.so", "libhiprtc-builtins.so.7"]
        {
            std::fs::write(lib.path().join(file), "").unwrap();
        }
        let files = |release| of_release(lib.path(), release);
        assert_eq!(files(7), ["libhiprtc.so.7", "libhiprtc.so"].map(|f| lib.path().join(f)));
        assert_eq!(files(6), ["libhiprtc.so.6", "libhiprtc.so"].map(|f| lib.path().join(f)));
        let runtime = lib.path().join("libamdhip64.so.7");
        let (bound, found) = compiler(None, Some(&runtime), 7);
        assert!(bound.is_none(), "{found:?}");
        let tried: Vec<&Path> = found.tried.iter().map(|t| t.place.as_path()).collect();
        assert_eq!(tried[0], lib.path().join("libhiprtc.so.7"));
        assert_eq!(tried[2], runtime);
    }

    #[test]
    fn what_is_no_runtime_is_said_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("libamdhip64.so.6");
        std::fs::write(&broken, "\x7fELF").unwrap();
        let (driver, found) = driver(Some(folder.path()));
        assert!(driver.is_none() && found.path.is_none());
        assert_eq!(found.tried[0].place, broken);
        assert!(found.tried[0].why.contains("no 64-bit shared object"), "{:?}", found.tried);
        let (driver, found) = super::driver(Some(Path::new("libc.so.6")));
        assert!(driver.is_none());
        assert!(found.tried[0].why.contains("lacks hip"), "{:?}", found.tried);
    }
}
