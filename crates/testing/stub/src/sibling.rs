//! The other stub libraries in the same folder, under their vendors' names. Each has its own state.

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;

/// The file of this library.
pub(crate) fn own_file() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address of this code; the result is a C string of the linker's, which stays.
    let name = unsafe {
        if libc::dladdr(own_file as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Some(PathBuf::from(name.to_str().ok()?))
}

/// Whether the name of this library's file contains `part`.
pub(crate) fn is_called(part: &str) -> bool {
    let file = own_file();
    let name = file.as_deref().and_then(|f| f.file_name()).and_then(|n| n.to_str());
    name.is_some_and(|name| name.contains(part))
}

/// Address of a function in the library of the same folder whose file name has this prefix. The
/// process must have opened that library.
pub(crate) fn symbol(prefix: &str, name: &CStr) -> Option<usize> {
    let mut files = std::fs::read_dir(own_file()?.parent()?).ok()?.flatten().map(|e| e.path());
    let file = files
        .find(|f| f.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(prefix)))?;
    let file = CString::new(file.to_str()?).ok()?;
    // SAFETY: both names are C strings; the library stays open.
    let at = unsafe {
        let library = libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    (!at.is_null()).then_some(at as usize)
}
