//! Shared libraries that are looked for at run time and never unloaded.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::trust::{Chosen, check_writers};
use crate::{announce_in, elf, linker};

/// An open library. Its handle is kept for the life of the process: driver threads and loaded
/// kernels outlive whoever opened it.
#[derive(Debug, Clone)]
pub struct SharedLibrary {
    handle: NonNull<c_void>,
    /// Its file, with symbolic links resolved.
    pub path: PathBuf,
}

impl SharedLibrary {
    /// Opens a file that the user names, or for a bare name the file that the dynamic linker would open.
    ///
    /// # Errors
    /// The file is not there, cannot be mapped whole, may be replaced by others, or the linker refuses it.
    pub fn open(path: &Path) -> Result<Self, String> {
        Self::open_with(path, libc::RTLD_LOCAL, Chosen::ByUser)
    }

    /// The same, and libraries that are opened later find its symbols: what plug-ins need that do
    /// not name the library they belong to.
    ///
    /// # Errors
    /// As of [`SharedLibrary::open`].
    pub fn open_for_all(path: &Path) -> Result<Self, String> {
        Self::open_with(path, libc::RTLD_GLOBAL, Chosen::ByUser)
    }

    pub(crate) fn open_with(
        path: &Path,
        scope: libc::c_int,
        chosen: Chosen,
    ) -> Result<Self, String> {
        let name = Some(path.as_os_str()).filter(|name| !name.as_bytes().contains(&b'/'));
        if let Some(library) = name.and_then(|name| Self::in_process(name, scope)) {
            return Ok(library);
        }
        let resolved = match name.and_then(OsStr::to_str) {
            Some(name) => linker::resolve(name).ok_or_else(|| not_found(name))?,
            None => path.to_owned(),
        };
        elf::check_with_needed(&resolved)?;
        check_writers(&resolved, chosen)?;
        announce_in(&resolved, "dlopen");
        let file = CString::new(resolved.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: the name is a C string that lives through the call. Initialisers of the library
        // run here, as with any program that is linked against it.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | scope) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Self { handle, path: resolved }.with_real_path()),
            None => Err(last_error()),
        }
    }

    /// A library that is in this process already, by its bare name.
    pub fn loaded(name: &str) -> Option<Self> {
        Self::in_process(OsStr::new(name), libc::RTLD_LOCAL)
    }

    fn in_process(name: &OsStr, scope: libc::c_int) -> Option<Self> {
        // The linker opens what it finds by the name, to compare it with what is loaded.
        if name.to_str().is_none_or(linker::is_obstructed) {
            return None;
        }
        let c_name = CString::new(name.as_bytes()).ok()?;
        let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY | scope;
        // SAFETY: the name is a C string that lives through the call; nothing is loaded, so no
        // initialiser runs.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), flags) };
        Some(Self { handle: NonNull::new(handle)?, path: name.into() }.with_real_path())
    }

    /// The address of a symbol.
    pub fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open and is never closed; the name lives through the call.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// The same; none for no name.
    pub fn named(&self, name: &str) -> Option<NonNull<c_void>> {
        (!name.is_empty()).then(|| self.symbol(name)).flatten()
    }

    fn with_real_path(mut self) -> Self {
        if let Some(path) = self.real_path() {
            self.path = path;
        }
        self
    }

    /// The file that the linker has opened.
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

/// Why there is no library of a bare name, as the linker itself puts it.
pub(crate) fn not_found(name: &str) -> String {
    format!("{name}: cannot open shared object file: No such file or directory")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_opened_and_its_file_named() {
        let library = SharedLibrary::open(Path::new("libc.so.6")).unwrap();
        assert!(library.symbol("malloc").is_some());
        assert!(library.symbol("no_such_function").is_none());
        assert!(library.path.is_absolute(), "{}", library.path.display());
        assert_eq!(SharedLibrary::loaded("libc.so.6").map(|l| l.path), Some(library.path));
        assert!(SharedLibrary::loaded("libno_such.so.1").is_none());
    }

    #[test]
    fn what_is_no_library_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let real =
            std::fs::read(SharedLibrary::open(Path::new("libc.so.6")).unwrap().path).unwrap();
        let cut = place("cut.so", &real[..real.len() / 2]);
        assert!(SharedLibrary::open(&cut).unwrap_err().contains("cut off"));
        for (name, bytes) in
            [("empty.so", &[][..]), ("text.so", b"INPUT(libc.so.6)"), ("head.so", &real[..60])]
        {
            assert!(
                SharedLibrary::open(&place(name, bytes)).unwrap_err().contains("no 64-bit"),
                "{name}"
            );
        }
        assert!(
            SharedLibrary::open(&folder.path().join("none.so"))
                .unwrap_err()
                .contains("No such file")
        );
    }
}
