//! Where libucp is looked for, and how it is opened.

use std::path::{Path, PathBuf};

use super::api::Api;
use crate::gpu::search::{bare, in_asked, in_prefixes, prefixes, variable};
use crate::library::{self, Library};

/// The library with the calls, and those below it in the order in which they need each other. Below
/// these is libucm, which cannot be opened by itself: it lacks what libucs brings.
const UCP: &str = "libucp.so.0";
const UCS: &str = "libucs.so.0";
const BELOW: [&str; 2] = [UCS, "libuct.so.0"];

/// The oldest release whose calls and fields are all there.
const OLDEST: (u32, u32) = (1, 13);

const WAY_OUT: &str = "install UCX (pip install libucx-cu12 or libucx-cu13, Debian's libucx0, or a \
                       build of the site), or name the file or its folder with PATHLINE_UCX";

/// libucp with its calls.
#[derive(Debug, Clone)]
pub(super) struct Ucp {
    pub(super) api: Api,
    /// `1.22.0`.
    pub(super) version: String,
    pub(super) path: PathBuf,
}

/// Opens the first libucp that is of use. `asked` is a file or folder; nothing else is then looked
/// at.
///
/// # Errors
/// What was tried and why it is of no use, and the way out.
pub(super) fn open(asked: Option<&Path>) -> Result<Ucp, String> {
    let loaded = Library::loaded(UCS).and_then(|library| Some(library.path.parent()?.to_owned()));
    let places = match asked {
        Some(path) => in_asked(path, UCP),
        None => places(loaded.as_deref()),
    };
    let mut tried = Vec::new();
    for place in places {
        match open_at(&place, loaded.as_deref()) {
            Ok(ucp) => return Ok(ucp),
            Err(why) => tried.push(format!("{}: {why}", place.display())),
        }
    }
    let tried = if tried.is_empty() { "no file of that name".to_owned() } else { tried.join("; ") };
    Err(format!("no libucp is of use ({tried}); {WAY_OUT}"))
}

/// Opens one with the libraries of its own folder. Their names are those of every other build: what
/// the linker finds for them may be another release, or one that is already in this process.
fn open_at(place: &Path, loaded: Option<&Path>) -> Result<Ucp, String> {
    let folder = place.parent().filter(|folder| folder.is_absolute());
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let (Some(folder), Some(loaded)) = (folder, loaded)
        && real(folder) != real(loaded)
    {
        return Err(format!(
            "the libucs of {} is in this process already, and one process cannot have two; start \
             the run without the library that brought it",
            loaded.display()
        ));
    }
    if let Some(folder) = folder {
        for name in BELOW {
            let file = folder.join(name);
            if file.exists() {
                Library::open(&file).map_err(|why| {
                    let folder = folder.display();
                    format!("{name}: {why}; LD_LIBRARY_PATH={folder} shows it what it needs")
                })?;
            }
        }
    }
    let library = Library::open(place)?;
    let api = Api::bind(&library)?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: stores three numbers.
    unsafe { (api.get_version)(&raw mut major, &raw mut minor, &raw mut patch) };
    let version = format!("{major}.{minor}.{patch}");
    if (major, minor) < OLDEST || major > 1 {
        return Err(format!("{version} is not of 1.{} or a later 1.x", OLDEST.1));
    }
    Ok(Ucp { api, version, path: library.path })
}

/// Where it may be, in order: beside what is in this process, what variables name, what the linker
/// finds, what is installed, what Python brought.
fn places(loaded: Option<&Path>) -> Vec<PathBuf> {
    if let Some(folder) = loaded {
        return vec![folder.join(UCP)];
    }
    let named = ["HPCX_UCX_DIR", "UCX_HOME", "UCX_DIR"].into_iter().filter_map(variable);
    let mut folders: Vec<PathBuf> = named.map(|root| root.join("lib")).collect();
    folders.extend(library::folders("LD_LIBRARY_PATH"));
    let in_folder = |folder: &PathBuf| Some(folder.join(UCP)).filter(|file| file.exists());
    let mut places: Vec<PathBuf> = folders.iter().filter_map(in_folder).collect();
    places.extend(bare(UCP));
    let installed = ["/opt/ucx/lib", "/opt/rocm/ucx/lib", "/usr/local/lib"].map(PathBuf::from);
    places.extend(installed.iter().filter_map(in_folder));
    places.extend(in_prefixes(&prefixes(), &["libucx/lib"]).iter().filter_map(in_folder));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_libucp_is_said_with_its_reason_and_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let why = open(Some(folder.path())).unwrap_err();
        assert!(why.contains("libucp.so.0: ") && why.contains("PATHLINE_UCX"), "{why}");
        let why = open(Some(Path::new("libc.so.6"))).unwrap_err();
        assert!(why.contains("lacks ucp_get_version"), "{why}");
    }

    #[test]
    fn one_process_does_not_take_a_second_libucs() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = second.path().join(UCP);
        let why = open_at(&place, Some(first.path())).unwrap_err();
        assert!(why.contains("in this process already"), "{why}");
        assert_eq!(places(Some(first.path())), [first.path().join(UCP)]);
    }
}
