//! Finds and opens libucp.

use std::path::{Path, PathBuf};

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, MaxMajor, SearchPlace, SharedLibrary,
    announce_in, find_with,
};

use super::api::Api;

/// The library with the functions, and its dependencies in load order. Below them is libucm, which
/// does not open alone: it needs symbols of libucs.
const UCP: &str = "libucp.so.0";
pub(super) const UCS: &str = "libucs.so.0";
const BELOW: [&str; 2] = [UCS, "libuct.so.0"];

/// The oldest release with all functions and fields.
const OLDEST: (u32, u32) = (1, 13);

/// libucp with its functions.
#[derive(Debug, Clone)]
pub(super) struct UcpLibrary {
    pub(super) api: Api,
    /// `1.22.0`.
    pub(super) version: String,
    pub(super) path: PathBuf,
}

/// Opens the first usable libucp.
///
/// # Errors
/// The candidates with the reason for each, and what to do.
pub(super) fn open(asked: Option<&Path>) -> Result<UcpLibrary, String> {
    let (ucp, report) = search(asked);
    ucp.ok_or_else(|| {
        let tried = report.tried.iter().map(|t| format!("{}: {}", t.place.display(), t.why));
        let tried = tried.collect::<Vec<_>>().join("; ");
        let tried = if tried.is_empty() { "no file of that name".to_owned() } else { tried };
        format!("no libucp can be used ({tried}); {}", report.way_out)
    })
}

/// The first usable libucp, and the report of the search. `asked` is a file or folder and replaces
/// the search.
pub(super) fn search(asked: Option<&Path>) -> (Option<UcpLibrary>, LibraryReport) {
    let loaded =
        SharedLibrary::loaded(UCS).and_then(|library| Some(library.path.parent()?.to_owned()));
    let spec = LibrarySpec {
        what: "UCX",
        costs: "messages by UCX are not measured",
        way_out: "install UCX (pip install libucx-cu12 or libucx-cu13, Debian's libucx0, or a build \
                  of the site), or name the file or its folder with PATHLINE_UCX",
        names: LibraryNames::Exact(&[UCP]),
        asked,
        places: places(loaded.as_deref()),
        min_version: Some(OLDEST),
        max_major: Some(MaxMajor { major: 1, limit: "1.x".to_owned() }),
        ..LibrarySpec::default()
    };
    let open = |file: &Path| open_needed(file, loaded.as_deref());
    find_with(&spec, &open, bind)
}

/// Opens the dependencies of libucp from its own folder first. Their names are the same in every
/// build: the linker might find another release, or one already in this process.
fn open_needed(place: &Path, loaded: Option<&Path>) -> Result<(), String> {
    let Some(folder) = place.parent().filter(|folder| folder.is_absolute()) else { return Ok(()) };
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(loaded) = loaded
        && real(folder) != real(loaded)
    {
        return Err(format!(
            "the libucs of {} is in this process already, and one process cannot have two; start \
             the run without the library that brought it",
            loaded.display()
        ));
    }
    for name in BELOW {
        let file = folder.join(name);
        if file.exists() {
            SharedLibrary::open(&file).map_err(|why| {
                let folder = folder.display();
                format!("{name}: {why}; LD_LIBRARY_PATH={folder} shows it what it needs")
            })?;
        }
    }
    Ok(())
}

fn bind(library: &SharedLibrary) -> Result<BoundLibrary<UcpLibrary>, String> {
    let api = Api::bind(library)?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    announce_in(&library.path, "ucp_get_version");
    // SAFETY: stores three numbers.
    unsafe { (api.get_version)(&raw mut major, &raw mut minor, &raw mut patch) };
    let version = format!("{major}.{minor}.{patch}");
    let value = UcpLibrary { api, version: version.clone(), path: library.path.clone() };
    Ok(BoundLibrary { value, version, number: Some((major, minor)) })
}

/// The search places, in order: the folder of a loaded libucp, environment variables, the linker's
/// places, installations, Python packages.
fn places(loaded: Option<&Path>) -> Vec<SearchPlace<'static>> {
    if let Some(folder) = loaded {
        return vec![SearchPlace::Files(vec![folder.join(UCP)])];
    }
    vec![
        SearchPlace::Variables(&["HPCX_UCX_DIR", "UCX_HOME", "UCX_DIR"], &["lib"]),
        SearchPlace::LinkerPath,
        SearchPlace::Linker,
        SearchPlace::Folders(&["/opt/ucx/lib", "/opt/rocm/ucx/lib", "/usr/local/lib"]),
        SearchPlace::Wheels(&["libucx/lib"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_libucp_is_reported_with_reason_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let why = open(Some(folder.path())).unwrap_err();
        assert!(why.contains("no libucp.so.0 in it") && why.contains("PATHLINE_UCX"), "{why}");
        let why = open(Some(Path::new("libc.so.6"))).unwrap_err();
        assert!(why.contains("lacks ucp_get_version"), "{why}");
    }

    #[test]
    fn one_process_does_not_take_a_second_libucs() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = second.path().join(UCP);
        let why = open_needed(&place, Some(first.path())).unwrap_err();
        assert!(why.contains("in this process already"), "{why}");
        assert!(matches!(&places(Some(first.path()))[..], [SearchPlace::Files(files)]
            if files == &[first.path().join(UCP)]));
    }
}
