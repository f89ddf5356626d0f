//! NCCL and RCCL, the vendors' libraries of collectives.

use std::path::Path;

use pathline_dylib::{BoundLibrary, LibraryReport, SharedLibrary, environment_path, find, locate};

use pathline_gpu::{CollectivesDescription, RuntimeFamily};

/// The environment variable that names the file or its folder.
const VARIABLE: &str = "PATHLINE_NCCL";

/// Finds the collectives library of a runtime; returns the result of `bind` with the version, and
/// the report of the search. `asked` is a file or folder and replaces the search. `runtime` is the
/// file of the GPU runtime: RCCL is linked against it and needs the same one loaded first.
pub(super) fn collectives<T>(
    description: &CollectivesDescription,
    asked: Option<&Path>,
    runtime: Option<&Path>,
    mut bind: impl FnMut(&SharedLibrary) -> Result<(T, String), String>,
) -> (Option<T>, LibraryReport) {
    let named = environment_path(VARIABLE);
    let spec = (description.library)(asked.or(named.as_deref()), runtime);
    find(&spec, |library| {
        let (value, version) = bind(library)?;
        Ok(BoundLibrary { value, version, number: None })
    })
}

/// Reports on the collectives libraries of all runtimes, without opening them. `runtime` is the
/// file of the GPU runtime.
pub fn collectives_libraries(runtime: Option<&Path>) -> Vec<LibraryReport> {
    let named = environment_path(VARIABLE);
    let all = RuntimeFamily::ALL
        .into_iter()
        .filter_map(|family| family.description().collectives.as_ref());
    all.map(|library| locate(&(library.library)(named.as_deref(), runtime))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_library_is_reported_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Some(folder.path());
        let bind = |_: &SharedLibrary| Ok(((), String::new()));
        let of = |name: &str| {
            RuntimeFamily::named(name).unwrap().description().collectives.as_ref().unwrap()
        };
        let (bound, found) = collectives(of("cuda"), asked, None, bind);
        assert!(bound.is_none() && found.path.is_none());
        assert_eq!(found.tried[0].place, folder.path());
        assert_eq!(found.tried[0].why, "no libnccl.so.2 in it");
        std::fs::write(folder.path().join("librccl.so.1"), "\x7fELF").unwrap();
        let (_, found) = collectives(of("hip"), asked, None, bind);
        assert!(found.tried[0].why.contains("no 64-bit shared object"), "{:?}", found.tried);
        assert!(found.way_out.contains("PATHLINE_NCCL"));
    }
}
