//! Which file the dynamic linker would open for a bare name: asked before it is opened, since the linker
//! itself opens whatever lies there.
//!
//! The order is that of ld.so(8): LD_LIBRARY_PATH, what the program was linked with, the cache of
//! ldconfig, the standard folders. Folders for newer processors (`glibc-hwcaps`) are left out: what lies
//! in them lies below one of these folders for all processors, too.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::environment::path_list;

/// The cache of ldconfig, and the most of it that is read.
const CACHE: &str = "/etc/ld.so.cache";
const CACHE_BYTES: u64 = 64 << 20;
/// Start of the cache's format since glibc 2.2; one of the older format may stand before it.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Bytes of its header, and of one entry.
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// Kind of an entry: a library of glibc for this processor. Source: glibc's sysdeps/generic/ldconfig.h.
const KIND: u64 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };

/// The file that the dynamic linker would open for a bare name; none if it would find nothing. Entries
/// of LD_LIBRARY_PATH that are no absolute paths stand for the current folder and are passed over.
pub fn resolve(name: &str) -> Option<PathBuf> {
    resolve_for(name, &[])
}

/// The same for a library that is needed by one with a search path (`DT_RUNPATH`).
pub(crate) fn resolve_for(name: &str, own: &[PathBuf]) -> Option<PathBuf> {
    let there = |folder: &PathBuf| {
        let file = folder.join(name);
        // A dangling link is nothing to the linker either.
        file.exists().then_some(file)
    };
    path_list("LD_LIBRARY_PATH")
        .iter()
        .find_map(there)
        .or_else(|| own.iter().filter(|folder| folder.is_absolute()).find_map(there))
        .or_else(|| cached(name).into_iter().find(|file| file.exists()))
        .or_else(|| folders().iter().find_map(there))
}

/// Whether something that is no plain file lies under a name where the linker looks for it, which would
/// wait for the other end of a FIFO.
pub(crate) fn is_obstructed(name: &str) -> bool {
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    // An empty entry is the current folder.
    let listed = listed.as_bytes().split(|&b| b == b':' || b == b';').map(OsStr::from_bytes);
    let places = listed.map(|folder| Path::new(folder).join(name)).chain(resolve(name));
    places.into_iter().any(|file| file.exists() && !file.is_file())
}

/// Files of the linker's cache for a name.
fn cached(name: &str) -> Vec<PathBuf> {
    let mut bytes = Vec::new();
    let read = File::open(CACHE).and_then(|file| file.take(CACHE_BYTES).read_to_end(&mut bytes));
    read.map_or_else(|_| Vec::new(), |_| entries(&bytes, name.as_bytes()))
}

/// The paths that a cache has for a name, in its order.
fn entries(cache: &[u8], name: &[u8]) -> Vec<PathBuf> {
    let start = cache.windows(MAGIC.len()).position(|window| window == MAGIC);
    let Some(cache) = start.and_then(|at| cache.get(at..)) else { return Vec::new() };
    let number = |at: usize, length: usize| {
        let bytes = cache.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b)))
    };
    let text = |at: u64| {
        let rest = cache.get(usize::try_from(at).ok()?..)?;
        rest.split(|&byte| byte == 0).next()
    };
    let entry = |nth: usize| {
        let at = HEADER + nth * ENTRY;
        let (kind, key, value) = (number(at, 4)?, number(at + 4, 4)?, number(at + 8, 4)?);
        // What asks for features of a processor is not the one for all.
        let plain = kind == KIND && number(at + 16, 8)? == 0;
        let path = Path::new(OsStr::from_bytes(text(value)?));
        (plain && text(key)? == name).then(|| path.to_owned())
    };
    let count = number(MAGIC.len(), 4).unwrap_or(0).min((cache.len() / ENTRY) as u64);
    (0..count as usize).filter_map(entry).filter(|path| path.is_absolute()).collect()
}

/// The folders that the linker itself names for this program, in order, each once.
fn folders() -> Vec<PathBuf> {
    /// `Dl_serpath` and the start of `Dl_serinfo` of glibc's dlfcn.h.
    #[repr(C)]
    struct SearchPath {
        name: *const libc::c_char,
        flags: libc::c_uint,
    }
    #[repr(C)]
    struct SearchInfo {
        size: usize,
        count: libc::c_uint,
    }
    const INFO: libc::c_int = 4;
    const INFO_SIZE: libc::c_int = 5;
    // SAFETY: no name asks for the program itself, whose handle is never closed.
    let program = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) };
    let mut head = SearchInfo { size: 0, count: 0 };
    // SAFETY: the handle is open; this request stores the size and the count alone.
    let code = unsafe { libc::dlinfo(program, INFO_SIZE, (&raw mut head).cast()) };
    let first = size_of::<SearchInfo>().next_multiple_of(align_of::<SearchPath>());
    if program.is_null() || code != 0 || head.size < first || head.size > 1 << 20 {
        return Vec::new();
    }
    // Words, so that it is aligned as both structures are.
    let mut info = vec![0u64; head.size.div_ceil(size_of::<u64>())];
    let start = info.as_mut_ptr().cast::<u8>();
    // SAFETY: the buffer has the size that the linker has asked for, and is aligned; the request reads
    // size and count, which are stored first, and fills the rest.
    let code = unsafe {
        start.cast::<SearchInfo>().write(head);
        libc::dlinfo(program, INFO, start.cast())
    };
    // SAFETY: it was written above.
    let count = unsafe { (*start.cast::<SearchInfo>()).count } as usize;
    let room = (info.len() * size_of::<u64>() - first) / size_of::<SearchPath>();
    let mut seen = BTreeSet::new();
    let mut folders = Vec::new();
    for nth in 0..if code == 0 { count.min(room) } else { 0 } {
        // SAFETY: the linker stored `count` entries; each name is a C string in the buffer or its own.
        let name = unsafe {
            let entry = &*start.add(first).cast::<SearchPath>().add(nth);
            if entry.name.is_null() {
                continue;
            }
            CStr::from_ptr(entry.name)
        };
        let folder = Path::new(OsStr::from_bytes(name.to_bytes()));
        if folder.is_absolute() && seen.insert(folder.to_owned()) {
            folders.push(folder.to_owned());
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedLibrary;

    #[test]
    fn a_name_is_resolved_to_the_file_that_the_linker_opens() {
        for name in ["libc.so.6", "libm.so.6", "libdl.so.2"] {
            let opened =
                SharedLibrary::loaded(name).or_else(|| SharedLibrary::open(name.as_ref()).ok());
            let resolved = resolve(name).and_then(|file| file.canonicalize().ok());
            assert_eq!(resolved, opened.map(|library| library.path), "{name}");
        }
        assert_eq!(resolve("libno_such.so.1"), None);
        assert!(
            folders().iter().any(|folder| folder.join("libc.so.6").exists()),
            "{:?}",
            folders()
        );
    }

    /// A cache of one entry each, behind something of the older format.
    fn cache(all: &[(u32, &str, &str, u64)]) -> Vec<u8> {
        let (mut table, mut texts) = (Vec::new(), Vec::new());
        let first = HEADER + all.len() * ENTRY;
        for (kind, key, value, feature) in all {
            let mut at = Vec::new();
            for text in [key, value] {
                at.extend(u32::try_from(first + texts.len()).unwrap().to_le_bytes());
                texts.extend(text.bytes().chain([0]));
            }
            table.extend(kind.to_le_bytes().into_iter().chain(at).chain([0; 4]));
            table.extend(feature.to_le_bytes());
        }
        let mut bytes = b"ld.so-1.7.0\0older".to_vec();
        bytes.extend(MAGIC.iter().copied().chain((all.len() as u32).to_le_bytes()));
        bytes.resize(bytes.len() + HEADER - MAGIC.len() - 4, 0);
        bytes.into_iter().chain(table).chain(texts).collect()
    }

    #[test]
    fn the_cache_gives_the_files_of_this_processor() {
        let kind = KIND as u32;
        let bytes = cache(&[
            (0x0003, "liba.so.1", "/lib32/liba.so.1", 0),
            (kind, "liba.so.1", "/lib/hwcaps/liba.so.1", 1 << 62),
            (kind, "libab.so.1", "/lib/libab.so.1", 0),
            (kind, "liba.so.1", "/lib/liba.so.1", 0),
            (kind, "liba.so.1", "lib/liba.so.1", 0),
        ]);
        assert_eq!(entries(&bytes, b"liba.so.1"), [Path::new("/lib/liba.so.1")]);
        assert!(entries(&bytes, b"libb.so.1").is_empty());
        // Whatever is cut off: nothing, or what is whole.
        for length in 0..bytes.len() {
            assert!(entries(&bytes[..length], b"liba.so.1").len() <= 1);
        }
        assert!(entries(&[0xff; 4096], b"liba.so.1").is_empty());
    }
}
