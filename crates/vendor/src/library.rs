//! Shared libraries that are looked for at run time and never unloaded.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// An open library. Its handle is kept for the life of the process: driver threads and loaded
/// kernels outlive whoever opened it.
#[derive(Debug, Clone)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
    /// As it was opened.
    pub(crate) path: PathBuf,
}

/// A place that was looked at in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// File, or bare name that the dynamic linker was asked for.
    pub place: PathBuf,
    /// Why it is of no use.
    pub why: String,
}

/// What became of the search for one library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it is for: `CUDA driver`.
    pub what: &'static str,
    /// The file, if one is of use.
    pub path: Option<PathBuf>,
    /// Its version, if it is found and says one.
    pub version: String,
    /// Places that were of no use, in order.
    pub tried: Vec<Tried>,
    /// What cannot be done without it.
    pub costs: &'static str,
    /// How to get it.
    pub way_out: &'static str,
}

impl Library {
    /// Opens a file, or asks the dynamic linker for a bare name.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::open_with(path, libc::RTLD_LOCAL)
    }

    /// The same, and libraries that are opened later find its symbols: what plug-ins need that do
    /// not name the library they belong to.
    pub(crate) fn open_for_all(path: &Path) -> Result<Self, String> {
        Self::open_with(path, libc::RTLD_GLOBAL)
    }

    fn open_with(path: &Path, scope: libc::c_int) -> Result<Self, String> {
        if path.components().count() > 1 {
            whole(path)?;
        }
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: the name is a C string that lives through the call. Initialisers of the library
        // run here, as with any program that is linked against it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | scope) };
        match NonNull::new(handle) {
            Some(handle) => {
                let mut library = Self { handle, path: path.to_owned() };
                library.path = library.real_path().unwrap_or(library.path);
                Ok(library)
            }
            None => Err(last_error()),
        }
    }

    /// A library that is in this process already, by its bare name.
    pub(crate) fn loaded(name: &str) -> Option<Self> {
        let c_name = CString::new(name).ok()?;
        // SAFETY: the name is a C string that lives through the call; nothing is loaded, so no
        // initialiser runs.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        let mut library = Self { handle: NonNull::new(handle)?, path: name.into() };
        library.path = library.real_path().unwrap_or(library.path);
        Some(library)
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open and is never closed; the name lives through the call.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// The same; none for no name.
    pub(crate) fn named(&self, name: &str) -> Option<NonNull<c_void>> {
        (!name.is_empty()).then(|| self.symbol(name)).flatten()
    }

    /// The file behind a bare name.
    fn real_path(&self) -> Option<PathBuf> {
        /// The public start of glibc's `struct link_map`.
        #[repr(C)]
        struct LinkMap {
            base: usize,
            name: *const libc::c_char,
        }
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: the handle is open, and RTLD_DI_LINKMAP stores one pointer.
        let code = unsafe {
            libc::dlinfo(self.handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast())
        };
        // SAFETY: on success it points to the entry of this library, which is never unloaded, and
        // whose name is a C string.
        let name = unsafe {
            let map = map.as_ref().filter(|m| code == 0 && !m.name.is_null())?;
            CStr::from_ptr(map.name)
        };
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
    }
}

fn last_error() -> String {
    // SAFETY: dlerror gives null or a C string that is good until the next call on this thread.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            None
        } else {
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    text.unwrap_or_else(|| "the dynamic linker gives no reason".to_owned())
}

/// Refuses what is no 64-bit shared object or ends before its segments do: the dynamic linker maps
/// a cut file without complaint, and the process dies of SIGBUS when it touches the missing part.
fn whole(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(|e| e.to_string())?;
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    let mut head = Vec::new();
    file.by_ref().take(1 << 16).read_to_end(&mut head).map_err(|e| e.to_string())?;
    match segments_end(&head) {
        None => Err("no 64-bit shared object".to_owned()),
        Some(end) if end > length => {
            Err(format!("cut off: its segments end at byte {end}, the file at {length}"))
        }
        Some(_) => Ok(()),
    }
}

/// Where the last loadable segment of a little-endian ELF64 file ends. Layout: System V ABI,
/// chapters 4 and 5.
fn segments_end(head: &[u8]) -> Option<u64> {
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b)))
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut end = 0;
    for nth in 0..count {
        let at = usize::try_from(table.checked_add(nth * size)?).ok()?;
        const LOAD: u64 = 1;
        if number(at, 4)? == LOAD {
            end = end
                .max(number(at.checked_add(8)?, 8)?.checked_add(number(at.checked_add(32)?, 8)?)?);
        }
    }
    Some(end)
}

/// The first of some places that opens and that `bind` accepts, with what was tried before it.
pub(crate) fn first<T>(
    places: Vec<PathBuf>,
    mut bind: impl FnMut(Library) -> Result<T, String>,
) -> (Option<T>, Vec<Tried>) {
    let mut tried = Vec::new();
    for place in places {
        match Library::open(&place).and_then(&mut bind) {
            Ok(found) => return (Some(found), tried),
            Err(why) => tried.push(Tried { place, why }),
        }
    }
    (None, tried)
}

/// Folders of a list as `LD_LIBRARY_PATH` and `PATH` have it.
pub(crate) fn folders(variable: &str) -> Vec<PathBuf> {
    std::env::var_os(variable)
        .map(|list| std::env::split_paths(&list).filter(|p| p.is_absolute()).collect())
        .unwrap_or_default()
}

/// Entries of a folder whose names start with `prefix`, by name.
pub(crate) fn starting_with(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.as_bytes().starts_with(prefix.as_bytes())))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_opened_and_its_file_named() {
        let library = Library::open(Path::new("libc.so.6")).unwrap();
        assert!(library.symbol("malloc").is_some());
        assert!(library.symbol("no_such_function").is_none());
        assert!(library.path.is_absolute(), "{}", library.path.display());
        assert_eq!(Library::loaded("libc.so.6").map(|l| l.path), Some(library.path));
        assert!(Library::loaded("libno_such.so.1").is_none());
    }

    #[test]
    fn what_is_no_library_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let real = std::fs::read(Library::open(Path::new("libc.so.6")).unwrap().path).unwrap();
        let cut = place("cut.so", &real[..real.len() / 2]);
        assert!(Library::open(&cut).unwrap_err().contains("cut off"));
        for (name, bytes) in
            [("empty.so", &[][..]), ("text.so", b"INPUT(libc.so.6)"), ("head.so", &real[..60])]
        {
            assert!(
                Library::open(&place(name, bytes)).unwrap_err().contains("no 64-bit"),
                "{name}"
            );
        }
        assert!(
            Library::open(&folder.path().join("none.so")).unwrap_err().contains("No such file")
        );
        let (found, tried) = first(vec![cut, "libc.so.6".into()], Ok);
        assert!(found.is_some() && tried.len() == 1);
    }
}
