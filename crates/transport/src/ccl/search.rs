//! NCCL and RCCL, the vendors' libraries of collectives.

use std::path::{Path, PathBuf};

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, SearchPlace, SharedLibrary,
    environment_path, find, locate,
};

use pathline_gpu::RuntimeFamily;
use pathline_gpu::search::{ROOTS, trees};

/// The environment variable that names the file or its folder.
const VARIABLE: &str = "PATHLINE_NCCL";
const INSTALLED: [&str; 4] = [
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
];

/// The library of a family, with what `bind` makes of it and its version, and how the search went.
/// `asked` is a file or folder; nothing else is then looked at. `runtime` is the file of the GPU
/// runtime: RCCL is linked against one, which must be loaded before it and be the same.
pub(super) fn collectives<T>(
    family: RuntimeFamily,
    asked: Option<&Path>,
    runtime: Option<&Path>,
    mut bind: impl FnMut(&SharedLibrary) -> Result<(T, String), String>,
) -> (Option<T>, LibraryReport) {
    let named = environment_path(VARIABLE);
    let spec = spec(family, asked.or(named.as_deref()), runtime);
    find(&spec, |library| {
        let (value, version) = bind(library)?;
        Ok(BoundLibrary { value, version, number: None })
    })
}

/// Where the library of a family is, without opening it.
fn located(family: RuntimeFamily, runtime: Option<&Path>) -> LibraryReport {
    let named = environment_path(VARIABLE);
    locate(&spec(family, named.as_deref(), runtime))
}

/// The libraries of collectives, looked for without opening them. `runtime` is the file of the GPU
/// runtime.
pub fn collectives_libraries(runtime: Option<&Path>) -> [LibraryReport; 2] {
    [RuntimeFamily::Cuda, RuntimeFamily::Hip].map(|family| located(family, runtime))
}

fn spec<'a>(
    family: RuntimeFamily,
    asked: Option<&'a Path>,
    runtime: Option<&Path>,
) -> LibrarySpec<'a> {
    let costs = "no collectives of GPUs are measured";
    match family {
        RuntimeFamily::Cuda => LibrarySpec {
            what: "NCCL (libnccl)",
            costs,
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
                SearchPlace::Folders(&INSTALLED),
            ],
            ..LibrarySpec::default()
        },
        RuntimeFamily::Hip => LibrarySpec {
            what: "RCCL (librccl)",
            costs,
            way_out: "install rccl (ROCm), or name the file or its folder with PATHLINE_NCCL",
            names: LibraryNames::Exact(&["librccl.so.1"]),
            asked,
            places: rccl_places(runtime.and_then(Path::parent).map(Path::to_owned)),
            ..LibrarySpec::default()
        },
    }
}

/// That of the runtime's own tree is of its release.
fn rccl_places(runtime: Option<PathBuf>) -> Vec<SearchPlace<'static>> {
    vec![
        SearchPlace::LinkerPath,
        SearchPlace::Found(runtime.into_iter().collect()),
        SearchPlace::Variables(&ROOTS, &["lib", "lib64"]),
        SearchPlace::Roots(trees(), &["lib", "lib64"]),
        SearchPlace::Linker,
        SearchPlace::Wheels(&["_rocm_sdk_libraries/lib", "torch/lib"]),
        SearchPlace::Folders(&INSTALLED),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_library_is_said_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Some(folder.path());
        let bind = |_: &SharedLibrary| Ok(((), String::new()));
        let (bound, found) = collectives(RuntimeFamily::Cuda, asked, None, bind);
        assert!(bound.is_none() && found.path.is_none());
        assert_eq!(found.tried[0].place, folder.path());
        assert_eq!(found.tried[0].why, "no libnccl.so.2 in it");
        std::fs::write(folder.path().join("librccl.so.1"), "\x7fELF").unwrap();
        let (_, found) = collectives(RuntimeFamily::Hip, asked, None, bind);
        assert!(found.tried[0].why.contains("no 64-bit shared object"), "{:?}", found.tried);
        assert!(found.way_out.contains("PATHLINE_NCCL"));
    }

    #[test]
    fn rccl_is_looked_for_beside_its_runtime() {
        let lib = tempfile::tempdir().unwrap();
        let file = lib.path().join("librccl.so.1");
        std::fs::write(&file, "").unwrap();
        let found = located(RuntimeFamily::Hip, Some(&lib.path().join("libamdhip64.so.7")));
        assert!(found.tried.iter().any(|tried| tried.place == file), "{found:?}");
    }
}
