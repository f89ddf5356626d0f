//! Finds the libraries of HIP: the runtime, hipRTC with its code generator, RCCL.

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, SearchPlace, SharedLibrary,
    announce_in, find, starting_with,
};

use pathline_hal::CallResult;

use super::hip;
use crate::family::{CollectivesDescription, CompilerQuery};
use crate::function_table::{EntryPoint, RtcNames, entry};
use crate::rtc::BoundCompiler;
use crate::runtime_api::{BoundDriver, STAND_IN};

/// The functions of hipRTC.
pub(super) const RTC_NAMES: RtcNames = RtcNames {
    version: entry("hiprtcVersion"),
    create: entry("hiprtcCreateProgram"),
    destroy: entry("hiprtcDestroyProgram"),
    compile: entry("hiprtcCompileProgram"),
    log_size: entry("hiprtcGetProgramLogSize"),
    log: entry("hiprtcGetProgramLog"),
    code_size: entry("hiprtcGetCodeSize"),
    code: entry("hiprtcGetCode"),
    ptx_size: EntryPoint::NONE,
    ptx: EntryPoint::NONE,
    arch_count: EntryPoint::NONE,
    archs: EntryPoint::NONE,
};

const COMPILER: &str = "libhiprtc.so";
/// Variables that name the root of a ROCm tree.
const ROOTS: [&str; 3] = ["ROCM_PATH", "HIP_PATH", "ROCM_HOME"];
/// Library folders of a tree.
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
        // The oldest one with today's attribute numbers.
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

/// hipRTC of the runtime's release: from its folder, or inside its library, where it was until 6.x.
pub(super) fn compiler(query: CompilerQuery<'_>) -> (Option<BoundCompiler>, LibraryReport) {
    let CompilerQuery { asked, runtime, major: release } = query;
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
        let bound = BoundCompiler::new(&RTC_NAMES, library.clone())?;
        // Its reported version is 9.0 in every release.
        let name = bound.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let version = match name.strip_prefix(COMPILER) {
            Some(number) => number.trim_start_matches('.').to_owned(),
            None => "in the runtime's library".to_owned(),
        };
        Ok(BoundLibrary { value: bound, version, number: None })
    })
}

/// Compiler libraries in a folder that belong to the runtime's release, highest number first.
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

/// The targets that the code generator knows, as `gfx90a`, and the report of the search.
/// `compiler_folder` is searched first.
pub(super) fn comgr(compiler_folder: Option<&Path>) -> (Vec<String>, LibraryReport) {
    let mut places = places();
    places.insert(0, SearchPlace::Found(compiler_folder.map(Path::to_owned).into_iter().collect()));
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
        let sets = instruction_sets(library);
        if sets.is_empty() {
            return Err("it does not report its targets".to_owned());
        }
        let version = format!("{} targets: {}", sets.len(), sets.join(" "));
        Ok(BoundLibrary { value: sets, version, number: None })
    });
    (sets.unwrap_or_default(), report)
}

/// Compiles to machine code. The code generator must know the target: before ROCm 7 an unknown one
/// ends the process.
pub(super) fn code(compiler: &BoundCompiler, text: &str, target: &str) -> CallResult<Vec<u8>> {
    if target.is_empty() {
        let reason = "the runtime does not report a compile target".to_owned();
        return Err(compiler.refuse(target, reason, "update ROCm"));
    }
    if !compiler.stands_in {
        let known = comgr(compiler.path.parent()).0;
        let wanted = target.split(':').next().unwrap_or_default();
        if !known.is_empty() && !known.iter().any(|isa| isa == wanted) {
            let reason = format!("libamd_comgr of this ROCm does not know {wanted}");
            let way_out =
                "use a ROCm that supports this GPU; `pathline doctor` shows what is known";
            return Err(compiler.refuse(target, reason, way_out));
        }
    }
    let options = [format!("--offload-arch={target}"), "--std=c++17".into(), "-O3".into()];
    compiler.build(text, target, &options, true)
}

/// Above the number of targets of any code generator.
const MOST_TARGETS: usize = 4096;

/// The targets that AMD's code generator knows, as `gfx90a`; empty if it does not report them.
fn instruction_sets(comgr: &SharedLibrary) -> Vec<String> {
    type CountFn = unsafe extern "C" fn(*mut usize) -> i32;
    type NameFn = unsafe extern "C" fn(usize, *mut *const c_char) -> i32;
    let (Some(count), Some(name)) =
        (comgr.symbol("amd_comgr_get_isa_count"), comgr.symbol("amd_comgr_get_isa_name"))
    else {
        return Vec::new();
    };
    // SAFETY: both have these signatures in every version of the library (`amd_comgr.h`).
    let (count, name) = unsafe {
        (
            std::mem::transmute::<*mut c_void, CountFn>(count.as_ptr()),
            std::mem::transmute::<*mut c_void, NameFn>(name.as_ptr()),
        )
    };
    let mut number = 0;
    announce_in(&comgr.path, "amd_comgr_get_isa_count");
    // SAFETY: stores one number.
    if unsafe { count(&raw mut number) } != 0 || number > MOST_TARGETS {
        return Vec::new();
    }
    announce_in(&comgr.path, "amd_comgr_get_isa_name");
    let isa = |nth| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: stores a pointer to a C string that is the library's own and static.
        let text = unsafe {
            if name(nth, &raw mut text) != 0 || text.is_null() {
                return None;
            }
            CStr::from_ptr(text)
        };
        // `amdgcn-amd-amdhsa--gfx90a`
        Some(text.to_str().ok()?.rsplit('-').next()?.to_owned())
    };
    (0..number).filter_map(isa).collect()
}

/// RCCL. The one in the runtime's tree belongs to its release.
pub(super) const RCCL: CollectivesDescription = CollectivesDescription {
    name: "RCCL",
    spelling: |function| match function {
        "ncclAlltoAll" => "ncclAllToAll",
        same => same,
    },
    library: |asked, runtime| LibrarySpec {
        what: "RCCL (librccl)",
        costs: "no collectives of GPUs are measured",
        way_out: "install rccl (ROCm), or name the file or its folder with PATHLINE_NCCL",
        names: LibraryNames::Exact(&["librccl.so.1"]),
        asked,
        places: vec![
            SearchPlace::LinkerPath,
            SearchPlace::Found(
                runtime.and_then(Path::parent).map(Path::to_owned).into_iter().collect(),
            ),
            SearchPlace::Variables(&ROOTS, &["lib", "lib64"]),
            SearchPlace::Roots(trees(), &["lib", "lib64"]),
            SearchPlace::Linker,
            SearchPlace::Wheels(&["_rocm_sdk_libraries/lib", "torch/lib"]),
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

/// Roots of the installed ROCm trees.
pub fn trees() -> Vec<PathBuf> {
    installed(Path::new("/opt"))
}

/// `/opt/rocm`, then `/opt/rocm-7.1.0` and similar, newest first.
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

/// Search places: environment variables, the linker's, installed trees, Python packages.
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
        let query = CompilerQuery { asked: None, runtime: Some(&runtime), major: 7 };
        let (bound, found) = compiler(query);
        assert!(bound.is_none(), "{found:?}");
        let tried: Vec<&Path> = found.tried.iter().map(|t| t.place.as_path()).collect();
        assert_eq!(tried[0], lib.path().join("libhiprtc.so.7"));
        assert_eq!(tried[2], runtime);
    }

    #[test]
    fn rccl_is_looked_for_in_the_folder_of_its_runtime() {
        let lib = tempfile::tempdir().unwrap();
        let file = lib.path().join("librccl.so.1");
        std::fs::write(&file, "").unwrap();
        let runtime = lib.path().join("libamdhip64.so.7");
        let found = pathline_dylib::locate(&(RCCL.library)(None, Some(&runtime)));
        assert!(found.tried.iter().any(|tried| tried.place == file), "{found:?}");
        assert_eq!((RCCL.spelling)("ncclAlltoAll"), "ncclAllToAll");
        assert_eq!((RCCL.spelling)("ncclSend"), "ncclSend");
    }

    #[test]
    fn an_unusable_runtime_is_reported_with_its_reason() {
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
