//! Names and versions in the files of libraries, names of environment variables above all: no library can ask for a
//! variable whose name it does not hold. Nothing is opened to run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::memmem::Finder;

use crate::elf::with_needed;
use crate::open_plain;

/// Bytes of a file that are looked at in one go.
const CHUNK: usize = 4 << 20;
/// No variable has a longer name.
const MAX_NAME: usize = 128;

/// The names of upper-case letters, digits and `_` that begin with one of `prefixes`, in a library and in what it
/// needs, each with a file that holds it. A linker may keep a text only as the end of another one, so a name may
/// begin within a longer one.
///
/// # Errors
/// A file that is cut off or cannot be read, with the reason.
pub fn names_with_needed(
    path: &Path,
    prefixes: &[&str],
) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut names = BTreeMap::new();
    for file in with_needed(path)? {
        let mut add = |name: &str| {
            names.entry(name.to_owned()).or_insert_with(|| file.clone());
            true
        };
        let scan = |mut bytes: File| scan(&mut bytes, prefixes, is_name, CHUNK, &mut add);
        open_plain(&file, false, 0)
            .and_then(scan)
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(names)
}

/// The first text in a library that begins with `prefix` and a digit, without the prefix: its version.
pub fn text_with_prefix(path: &Path, prefix: &str) -> Option<String> {
    let mut found = None;
    let mut bytes = open_plain(path, false, 0).ok()?;
    let mut add = |text: &str| {
        let version = text.strip_prefix(prefix).unwrap_or_default().trim_start_matches([':', ' ']);
        found = version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned());
        found.is_none()
    };
    let is_text = |b: &u8| (b' '..=b'~').contains(b);
    scan(&mut bytes, &[prefix], is_text, CHUNK, &mut add).ok()?;
    found
}

fn is_name(b: &u8) -> bool {
    b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_'
}

/// Reads on while `add` returns true.
fn scan(
    bytes: &mut impl Read,
    prefixes: &[&str],
    is_letter: fn(&u8) -> bool,
    chunk: usize,
    add: &mut dyn FnMut(&str) -> bool,
) -> io::Result<()> {
    let finders: Vec<Finder<'_>> = prefixes.iter().map(Finder::new).collect();
    let mut buffer = Vec::new();
    loop {
        let read = bytes.by_ref().take(chunk as u64).read_to_end(&mut buffer)?;
        for found in finders.iter().flat_map(|finder| finder.find_iter(&buffer)) {
            let rest = buffer.get(found..).unwrap_or_default();
            let length = rest.iter().take_while(|b| is_letter(b)).count();
            // What reaches the end of these bytes may go on in the next ones, which begin before it.
            let goes_on = length == rest.len() && read > 0;
            if let Some(Ok(name)) = rest.get(..length).map(str::from_utf8)
                && length <= MAX_NAME
                && !goes_on
                && !add(name)
            {
                return Ok(());
            }
        }
        if read == 0 {
            return Ok(());
        }
        buffer.drain(..buffer.len().saturating_sub(MAX_NAME + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(bytes: &[u8], chunk: usize) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut add = |name: &str| {
            names.insert(name.to_owned());
            true
        };
        scan(&mut &bytes[..], &["NCCL_", "HSA_"], is_name, chunk, &mut add).unwrap();
        names
    }

    #[test]
    fn names_are_found_wherever_chunks_end() {
        let text = b"\0NCCL_ALGO\0set HSA_XNACK=1\0X_NCCL_IB_TC\0NCCL\0\xffNCCL_DEBUG";
        let expected = ["HSA_XNACK", "NCCL_ALGO", "NCCL_DEBUG", "NCCL_IB_TC"];
        for before in [0, 1, MAX_NAME - 1, MAX_NAME, 1000] {
            let bytes = [vec![b'.'; before], text.to_vec()].concat();
            for chunk in [1, 2, 3, 7, MAX_NAME, 1 << 20] {
                assert_eq!(
                    names(&bytes, chunk),
                    expected.map(str::to_owned).into(),
                    "{before} {chunk}"
                );
            }
        }
        // Longer than any name, at the end and not.
        let long = [b"NCCL_".to_vec(), vec![b'A'; MAX_NAME]].concat();
        for chunk in [1, 50, 1 << 20] {
            assert_eq!(names(&long, chunk), BTreeSet::new());
            assert_eq!(names(&[&long[..], b"\0"].concat(), chunk), BTreeSet::new());
        }
    }

    #[test]
    fn a_library_is_read_with_what_it_needs() {
        let libm = crate::linker::resolve("libm.so.6").unwrap();
        // libm needs the C library, which reads GCONV_PATH.
        let names = names_with_needed(&libm, &["GCONV_"]).unwrap();
        assert!(names.contains_key("GCONV_PATH"), "{names:?}");
        assert!(
            names_with_needed(Path::new("/none"), &["GCONV_"]).unwrap_err().contains("No such")
        );
    }

    #[test]
    fn a_version_is_the_first_text_with_a_digit_behind_its_prefix() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            text_with_prefix(file.path(), "RCCL version ")
        };
        let bytes = b"\0RCCL version %s\0\x01RCCL version : 2.22.3-HEAD:1a2b\0RCCL version 9\0";
        assert_eq!(text(bytes).as_deref(), Some("2.22.3-HEAD:1a2b"));
        assert_eq!(text(b"RCCL version "), None);
        assert_eq!(text_with_prefix(Path::new("/none"), "x"), None);
    }
}
