//! A disk cache of compiled kernels.

use std::io::Read;
use std::path::{Path, PathBuf};

use pathline_dylib::open_plain;

/// First line of a cached file.
const MAGIC: &str = "pathline kernel 1";
/// Bytes of a file that are read: kernels have some 100 KiB.
const MAX_CODE: u64 = 64 << 20;

/// The folder for compiled kernels: below XDG_CACHE_HOME or ~/.cache.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("pathline").join("kernels"))
}

/// A file name by content (64-bit FNV-1a). Two keys may share a name: the file holds the whole key.
pub(crate) fn file_name(key: &str) -> String {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}.cubin")
}

fn head(key: &str, length: usize) -> String {
    format!("{MAGIC}\n{} {length}\n{key}\n", key.len())
}

/// The code that a file holds for this key, if the file is complete.
pub(crate) fn read(file: &Path, key: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(file, false, 0).ok()?.take(MAX_CODE).read_to_end(&mut bytes).ok()?;
    let lengths = std::str::from_utf8(bytes.splitn(3, |&b| b == b'\n').nth(1)?).ok()?;
    let length = lengths.split_once(' ')?.1.parse().ok()?;
    let code = bytes.strip_prefix(head(key, length).as_bytes())?;
    (code.len() == length).then(|| code.to_owned())
}

/// The folder that must exist before this program creates its `folder` two levels below a cache
/// folder: that cache folder, or the home folder around one called `.cache`.
pub fn cache_base(folder: &Path) -> Option<&Path> {
    let cache = folder.ancestors().nth(2)?;
    if cache.ends_with(".cache") { cache.parent() } else { Some(cache) }
}

/// Creates the folder of kernels, but not its base: a missing home may not be mounted yet.
fn create(folder: &Path) -> std::io::Result<()> {
    match cache_base(folder) {
        Some(base) if base.is_dir() => std::fs::create_dir_all(folder),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    }
}

pub(crate) fn write(file: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        create(folder)?;
    }
    // Other processes see the old file, the new one or none.
    let new = file.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, [head(key, code.len()).as_bytes(), code].concat())?;
    std::fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_returns_only_stored_code() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pathline/kernels").join(file_name("key"));
        assert_eq!(read(&file, "key"), None);
        write(&file, "key", b"code\nof bytes").unwrap();
        assert_eq!(read(&file, "key").as_deref(), Some(&b"code\nof bytes"[..]));
        assert_eq!(read(&file, "another key"), None);
        let whole = std::fs::read(&file).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(read(&file, "key"), None, "cut at {cut}");
        }
        assert_ne!(file_name("a"), file_name("b"));
    }

    #[test]
    fn a_missing_base_folder_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        for base in ["home/.cache", "cache"] {
            let file = folder.path().join(base).join("pathline/kernels").join(file_name("key"));
            assert!(write(&file, "key", b"code").is_err(), "{base}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{base}");
        }
        // In a home folder that exists, .cache is created.
        let file = folder.path().join(".cache/pathline/kernels").join(file_name("key"));
        write(&file, "key", b"code").unwrap();
        assert_eq!(read(&file, "key").as_deref(), Some(&b"code"[..]));
    }
}
