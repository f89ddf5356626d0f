//! The HIP runtime, hipRTC, and the code generator behind it.

use std::path::{Path, PathBuf};

use super::{
    Driver, STAND_IN, Sought, bare, in_asked, in_prefixes, major, newest_first, prefixes, variable,
};
use crate::gpu::dialect::Family;
use crate::gpu::hip;
use crate::gpu::rtc::{self, Bound};
use crate::library::{self, Found, Library};

const RUNTIME: &str = "libamdhip64.so";
const COMPILER: &str = "libhiprtc.so";
const COMGR: &str = "libamd_comgr.so";
/// The oldest runtime whose numbers of attributes are those of today.
const OLDEST: i32 = 5;

pub(super) fn driver(asked: Option<&Path>) -> (Option<Driver>, Found) {
    let places = match asked {
        Some(path) => in_asked(path, RUNTIME),
        None => places(&Trees::here(), RUNTIME, &[7, 6, 5]),
    };
    let (found, tried) = library::first(places, |library| {
        let (api, hip, version) = hip::load(&library)?;
        let major = hip::major(version);
        if (1..OLDEST).contains(&major) {
            return Err(format!("{} is older than 5.0", hip::dotted(version)));
        }
        let stands_in = library.symbol(STAND_IN).is_some();
        let driver = Driver { api, dialect: Box::new(hip), major, stands_in };
        Ok((driver, (library.path, hip::dotted(version))))
    });
    let (driver, at) = found.unzip();
    let sought = Sought {
        what: "HIP runtime (libamdhip64)",
        costs: "no GPU of AMD can be measured",
        way_out: "install ROCm 5 or later, set ROCM_PATH, or name the file or its folder with --hip \
                  (PATHLINE_HIP)",
    };
    (driver, sought.found(at, tried))
}

/// hipRTC of the release that the runtime is of: from beside it, or in it, where it was until 6.x.
pub(super) fn compiler(
    asked: Option<&Path>,
    runtime: Option<&Path>,
    release: i32,
) -> (Option<Bound>, Found) {
    let mut candidates = Vec::new();
    match (asked, runtime) {
        (Some(path), _) => candidates.extend(in_asked(path, COMPILER)),
        (None, Some(runtime)) => {
            if let Some(folder) = runtime.parent() {
                candidates.extend(of_release(folder, release));
            }
            candidates.push(runtime.to_owned());
            candidates.extend(bare(&format!("{COMPILER}.{release}")));
            candidates.extend(bare(COMPILER));
        }
        (None, None) => candidates.extend(places(&Trees::here(), COMPILER, &[7, 6])),
    }
    let (found, tried) = library::first(candidates, |library| Bound::new(Family::Hip, library));
    // What it says of itself is 9.0 in every release.
    let version = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.strip_prefix(COMPILER) {
            Some(number) => number.trim_start_matches('.').to_owned(),
            None => "in the runtime's library".to_owned(),
        }
    };
    let at = found.as_ref().map(|bound| (bound.path.clone(), version(&bound.path)));
    let sought = Sought {
        what: "run-time compiler (hipRTC)",
        costs: "no kernels: copies by engines are measured, loads and stores of kernels, latency of \
                loads and migration by faults are not",
        way_out: "install hip-runtime-amd (ROCm) whole, or Debian's libhiprtc",
    };
    (found, sought.found(at, tried))
}

/// Files of the compiler in a folder, those of the runtime's release alone.
fn of_release(folder: &Path, release: i32) -> Vec<PathBuf> {
    let mut files = newest_first(library::starting_with(folder, COMPILER), COMPILER);
    files.retain(|f| release == 0 || major(f, COMPILER).is_none_or(|m| m == release));
    files
}

/// The targets that the code generator knows, as `gfx90a`, and how the search for it went. `beside`
/// is the folder of the compiler.
pub(crate) fn comgr(beside: Option<&Path>) -> (Vec<String>, Found) {
    let mut candidates: Vec<PathBuf> = Vec::new();
    if let Some(folder) = beside {
        candidates.extend(newest_first(library::starting_with(folder, COMGR), COMGR));
    }
    candidates.extend(places(&Trees::here(), COMGR, &[3, 2]));
    let (found, tried) =
        library::first(candidates, |library: Library| match rtc::instruction_sets(&library) {
            sets if sets.is_empty() => Err("it does not say which targets it knows".to_owned()),
            sets => Ok((sets, library.path)),
        });
    let (sets, path) = found.unzip();
    let sets = sets.unwrap_or_default();
    let at = path.map(|path| (path, format!("{} targets: {}", sets.len(), sets.join(" "))));
    let sought = Sought {
        what: "code generator of hipRTC (libamd_comgr)",
        costs: "no kernel compiles",
        way_out: "install comgr (ROCm), or Debian's libamd-comgr2",
    };
    (sets, sought.found(at, tried))
}

/// Roots of ROCm trees.
struct Trees {
    /// By a variable.
    named: Vec<PathBuf>,
    /// In their usual place.
    installed: Vec<PathBuf>,
}

impl Trees {
    fn here() -> Self {
        let named = ["ROCM_PATH", "HIP_PATH", "ROCM_HOME"].into_iter().filter_map(variable);
        Self { named: named.collect(), installed: installed(Path::new("/opt")) }
    }
}

/// Roots of the ROCm trees that are here, those that a variable names first.
pub(super) fn trees() -> Vec<PathBuf> {
    let Trees { mut named, installed } = Trees::here();
    named.extend(installed);
    named
}

/// `/opt/rocm`, then `/opt/rocm-7.1.0` and its like, the newest first.
fn installed(opt: &Path) -> Vec<PathBuf> {
    let mut trees = library::starting_with(opt, "rocm");
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

/// Files that exist and bare names for the linker to find, in order: what was asked for by a
/// variable, what the linker finds, what is installed, what Python brought.
fn places(trees: &Trees, name: &str, known: &[i32]) -> Vec<PathBuf> {
    let of = |folder: &Path| newest_first(library::starting_with(folder, name), name);
    let in_root = |root: &PathBuf| {
        ["lib", "lib64", "hip/lib"]
            .map(|sub| root.join(sub))
            .iter()
            .flat_map(|f| of(f))
            .collect::<Vec<_>>()
    };
    let mut places: Vec<PathBuf> = trees.named.iter().flat_map(in_root).collect();
    places.extend(library::folders("LD_LIBRARY_PATH").iter().flat_map(|f| of(f)));
    places.extend(known.iter().filter_map(|number| bare(&format!("{name}.{number}"))));
    places.extend(bare(name));
    places.extend(trees.installed.iter().flat_map(in_root));
    for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"] {
        places.extend(of(Path::new(folder)));
    }
    let wheels = ["_rocm_sdk_core/lib", "_rocm_sdk_devel/lib", "torch/lib"];
    places.extend(in_prefixes(&prefixes(), &wheels).iter().flat_map(|f| of(f)));
    let mut seen = std::collections::BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_tree_and_the_highest_number_come_first() {
        let opt = tempfile::tempdir().unwrap();
        for tree in ["rocm-6.4.3", "rocm-7.10.0", "rocm-7.2.1", "rocm"] {
            std::fs::create_dir_all(opt.path().join(tree).join("lib")).unwrap();
        }
        let names: Vec<String> = installed(opt.path())
            .iter()
            .map(|t| t.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["rocm", "rocm-7.10.0", "rocm-7.2.1", "rocm-6.4.3"]);
        let lib = opt.path().join("rocm/lib");
        for file in ["libamdhip64.so.5", "libamdhip64.so.10", "libamdhip64.so", "libhiprtc.so.7"] {
            std::fs::write(lib.join(file), "").unwrap();
        }
        let rocm = vec![opt.path().join("rocm")];
        let of = |named: &[PathBuf], installed: &[PathBuf]| {
            let trees = Trees { named: named.to_vec(), installed: installed.to_vec() };
            places(&trees, RUNTIME, &[7, 6, 5])
        };
        let expected = ["libamdhip64.so.10", "libamdhip64.so.5", "libamdhip64.so"];
        let expected = expected.map(|file| lib.join(file));
        let bare: &[_] =
            &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"].map(PathBuf::from);
        // A tree that a variable names comes before what the linker finds, which comes before a tree
        // that is only installed.
        let named = of(&rocm, &rocm);
        assert_eq!((&named[..3], &named[3..6]), (&expected[..], bare));
        let installed = of(&[], &rocm);
        assert_eq!((&installed[..3], &installed[4..7]), (bare, &expected[..]));
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
