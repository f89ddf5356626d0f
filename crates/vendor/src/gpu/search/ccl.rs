//! NCCL and RCCL, the vendors' libraries of collectives.

use std::path::{Path, PathBuf};

use super::amd::trees;
use super::{Sought, bare, in_asked, in_prefixes, prefixes, variable};
use crate::gpu::dialect::Family;
use crate::library::{self, Found, Library};

/// The environment variable that names the file or its folder.
const VARIABLE: &str = "PATHLINE_NCCL";

/// The library of a family, with what `bind` makes of it and its version, and how the search went.
/// `asked` is a file or folder; nothing else is then looked at. `runtime` is the file of the GPU
/// runtime: RCCL is linked against one, which must be loaded before it and be the same.
pub(crate) fn collectives<T>(
    family: Family,
    asked: Option<&Path>,
    runtime: Option<&Path>,
    mut bind: impl FnMut(&Library) -> Result<(T, String), String>,
) -> (Option<T>, Found) {
    let named = variable(VARIABLE);
    let name = match family {
        Family::Cuda => "libnccl.so",
        Family::Hip => "librccl.so",
    };
    let places = match asked.or(named.as_deref()) {
        Some(path) => in_asked(path, name),
        None => places(family, runtime),
    };
    let (found, tried) = library::first(places, |library| {
        let (bound, version) = bind(&library)?;
        Ok((bound, (library.path, version)))
    });
    let (bound, at) = found.unzip();
    let sought = match family {
        Family::Cuda => Sought {
            what: "NCCL (libnccl)",
            costs: "no collectives of GPUs are measured",
            way_out: "pip install nvidia-nccl-cu13, or name the file or its folder with PATHLINE_NCCL",
        },
        Family::Hip => Sought {
            what: "RCCL (librccl)",
            costs: "no collectives of GPUs are measured",
            way_out: "install rccl (ROCm), or name the file or its folder with PATHLINE_NCCL",
        },
    };
    (bound, sought.found(at, tried))
}

/// Files that exist and a bare name for the linker to find, in order.
fn places(family: Family, runtime: Option<&Path>) -> Vec<PathBuf> {
    let (file, wheels): (_, &[&str]) = match family {
        Family::Cuda => ("libnccl.so.2", &["nvidia/nccl/lib", "nvidia/cu13/lib"]),
        Family::Hip => ("librccl.so.1", &["_rocm_sdk_libraries/lib", "torch/lib"]),
    };
    let mut folders = library::folders("LD_LIBRARY_PATH");
    match family {
        Family::Cuda => {
            let roots = ["NCCL_HOME", "CUDA_HOME", "CUDA_PATH", "NVHPC_ROOT"];
            for root in roots.into_iter().filter_map(variable) {
                folders.extend(["lib", "lib64", "comm_libs/nccl/lib"].map(|sub| root.join(sub)));
            }
        }
        // That of the runtime's own tree is of its release.
        Family::Hip => {
            folders.extend(runtime.and_then(Path::parent).map(Path::to_owned));
            folders.extend(trees().iter().flat_map(|t| ["lib", "lib64"].map(|sub| t.join(sub))));
        }
    }
    let here = |folder: &PathBuf| Some(folder.join(file)).filter(|f| f.exists());
    let mut places: Vec<PathBuf> = folders.iter().filter_map(here).collect();
    places.extend(bare(file));
    let mut later = in_prefixes(&prefixes(), wheels);
    later.push("/usr/local/cuda/lib64".into());
    let system = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    later.extend(system.map(PathBuf::from));
    places.extend(later.iter().filter_map(here));
    let mut seen = std::collections::BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_library_is_said_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Some(folder.path());
        let bind = |_: &Library| Ok(((), String::new()));
        let (bound, found) = collectives(Family::Cuda, asked, None, bind);
        assert!(bound.is_none() && found.path.is_none());
        assert_eq!(found.tried[0].place, folder.path().join("libnccl.so"));
        assert!(found.tried[0].why.contains("No such file"), "{:?}", found.tried);
        std::fs::write(folder.path().join("librccl.so.1"), "\x7fELF").unwrap();
        let (_, found) = collectives(Family::Hip, asked, None, bind);
        assert!(found.tried[0].why.contains("no 64-bit shared object"), "{:?}", found.tried);
        assert!(found.way_out.contains("PATHLINE_NCCL"));
    }

    #[test]
    fn rccl_is_looked_for_beside_its_runtime_first() {
        let lib = tempfile::tempdir().unwrap();
        let file = lib.path().join("librccl.so.1");
        std::fs::write(&file, "").unwrap();
        let places = places(Family::Hip, Some(&lib.path().join("libamdhip64.so.7")));
        assert_eq!(places[0], file);
    }
}
