//! Whether a file and what it needs can be mapped: what the dynamic linker takes on trust and a process
//! dies of. Layout of little-endian ELF64: System V ABI, chapters 4 and 5.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{linker, open_plain};

/// Bytes of the header, and the least of one entry of the table of segments.
const HEADER: usize = 64;
const SEGMENT: u64 = 56;
/// Kinds of segments: `PT_LOAD`, `PT_DYNAMIC`.
const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
/// Tags of dynamic entries: `DT_NEEDED`, `DT_STRTAB`, `DT_RPATH`, `DT_RUNPATH`.
const NEEDED: u64 = 1;
const TEXTS: u64 = 5;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;
/// More bytes of the table of segments, of dynamic entries, of one of their texts, and more libraries than any
/// library needs.
const TABLE_BYTES: u64 = 1 << 16;
const MOST_NEEDED: usize = 1000;

/// A segment of a file: its kind, where it begins in the file and in memory, and its bytes in the file.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    bytes: u64,
}

/// A shared object, as far as its headers tell.
struct SharedObject {
    file: File,
    segments: Vec<Segment>,
    /// Where the last loadable segment ends, or the table of segments if that is behind them.
    end: u64,
}

/// Refuses what is no plain file, no 64-bit shared object, or ends before its segments do: the dynamic
/// linker waits for the other end of a FIFO, and maps a cut file without complaint, so that the process
/// dies of SIGBUS when it touches the missing part.
pub(crate) fn check_whole(path: &Path) -> Result<(), String> {
    whole(path).map(drop)
}

/// The same of a file and of everything that it needs, as far as the linker would find that.
pub(crate) fn check_with_needed(path: &Path) -> Result<(), String> {
    with_needed(path).map(drop)
}

/// A file and everything that it needs, as far as the linker would find that; all of them are whole.
pub(crate) fn with_needed(path: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut known = BTreeSet::from([path.to_owned()]);
    let mut todo = needed(path, whole(path)?);
    while let Some(file) = todo.pop() {
        if known.len() > MOST_NEEDED || !known.insert(file.clone()) {
            continue;
        }
        let object = whole(&file).map_err(|why| format!("it needs {}: {why}", file.display()))?;
        todo.extend(needed(&file, object));
    }
    Ok(known)
}

fn whole(path: &Path) -> Result<SharedObject, String> {
    let file = open_plain(path, false, 0).map_err(|e| e.to_string())?;
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    let object = SharedObject::read(file)?;
    if object.end > length {
        let end = object.end;
        return Err(format!("cut off: its segments end at byte {end}, the file at {length}"));
    }
    Ok(object)
}

impl SharedObject {
    fn read(mut file: File) -> Result<Self, String> {
        let none = || "no 64-bit shared object".to_owned();
        let mut head = Vec::new();
        file.by_ref().take(HEADER as u64).read_to_end(&mut head).map_err(|e| e.to_string())?;
        if head.len() < HEADER || !head.starts_with(b"\x7fELF\x02\x01") {
            return Err(none());
        }
        let read = |offset, bytes| number(&head, offset, bytes).ok_or_else(none);
        let (table, size, count) = (read(32, 8)?, read(54, 2)?, read(56, 2)?);
        if size < SEGMENT || count == 0 || size * count > TABLE_BYTES {
            return Err(none());
        }
        let mut end = table.checked_add(size * count).ok_or_else(none)?;
        let mut rows = Vec::new();
        file.seek(SeekFrom::Start(table)).map_err(|_| none())?;
        file.by_ref().take(size * count).read_to_end(&mut rows).map_err(|e| e.to_string())?;
        let mut segments = Vec::new();
        for row in rows.chunks_exact(usize::try_from(size).map_err(|_| none())?) {
            let field = |offset, bytes| number(row, offset, bytes).ok_or_else(none);
            let segment = Segment {
                kind: field(0, 4)?,
                offset: field(8, 8)?,
                address: field(16, 8)?,
                bytes: field(32, 8)?,
            };
            if segment.kind == LOAD {
                end = end.max(segment.offset.checked_add(segment.bytes).ok_or_else(none)?);
            }
            segments.push(segment);
        }
        Ok(Self { file, segments, end })
    }

    /// Tags and values of the dynamic entries.
    fn dynamic(&mut self) -> Option<Vec<(u64, u64)>> {
        let segment = *self.segments.iter().find(|segment| segment.kind == DYNAMIC)?;
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(segment.offset)).ok()?;
        let room = segment.bytes.min(TABLE_BYTES);
        self.file.by_ref().take(room).read_to_end(&mut bytes).ok()?;
        bytes.chunks_exact(16).map(|e| Some((number(e, 0, 8)?, number(e, 8, 8)?))).collect()
    }

    /// The text at a distance into the texts, which are at an address in memory.
    fn text(&mut self, texts: u64, distance: u64) -> Option<OsString> {
        let address = texts.checked_add(distance)?;
        let holds = |s: &&Segment| {
            s.kind == LOAD && (s.address..s.address.saturating_add(s.bytes)).contains(&address)
        };
        let segment = *self.segments.iter().find(holds)?;
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(segment.offset + (address - segment.address))).ok()?;
        self.file.by_ref().take(TABLE_BYTES).read_to_end(&mut bytes).ok()?;
        let length = bytes.iter().position(|&byte| byte == 0)?;
        bytes.truncate(length);
        Some(OsString::from_vec(bytes))
    }
}

/// The files of the libraries that a shared object needs, those that the linker would find.
fn needed(path: &Path, mut object: SharedObject) -> Vec<PathBuf> {
    let entries = object.dynamic().unwrap_or_default();
    let value = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
    let Some(texts) = value(TEXTS) else { return Vec::new() };
    let mut text = |distance| object.text(texts, distance);
    let own = value(RUNPATH).or_else(|| value(RPATH)).and_then(&mut text).unwrap_or_default();
    let origin = path.parent().unwrap_or(Path::new("/"));
    let own: Vec<PathBuf> =
        own.as_bytes().split(|&b| b == b':').map(|f| folder(f, origin)).collect();
    let names = entries.iter().filter(|entry| entry.0 == NEEDED).filter_map(|e| text(e.1));
    let names: Vec<OsString> = names.take(MOST_NEEDED).collect();
    let file = |name: &OsString| linker::resolve_for(name.to_str()?, &own);
    names.iter().filter_map(file).collect()
}

/// A folder of a library's own search path, in which `$ORIGIN` stands for the library's.
fn folder(text: &[u8], origin: &Path) -> PathBuf {
    let text = OsStr::from_bytes(text);
    for name in ["$ORIGIN", "${ORIGIN}"] {
        if let Some(rest) = text.to_str().and_then(|text| text.strip_prefix(name)) {
            return origin.join(rest.trim_start_matches('/'));
        }
    }
    PathBuf::from(text)
}

fn number(bytes: &[u8], offset: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedLibrary;

    #[test]
    fn a_file_that_ends_before_its_segments_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let libc = SharedLibrary::open(Path::new("libc.so.6")).unwrap().path;
        let whole = std::fs::read(&libc).unwrap();
        let place = folder.path().join("libcut.so");
        assert_eq!(check_whole(&libc), Ok(()));
        // Inside its segments, and inside the table that lists them.
        for length in [whole.len() / 2, HEADER + 100, HEADER] {
            std::fs::write(&place, &whole[..length]).unwrap();
            let why = check_whole(&place).unwrap_err();
            assert!(why.starts_with("cut off: ") && why.ends_with(&length.to_string()), "{why}");
        }
        for bytes in [&[][..], b"INPUT(libc.so.6)", &whole[..60], b"\x7fELF\x02\x01"] {
            std::fs::write(&place, bytes).unwrap();
            assert_eq!(check_whole(&place).unwrap_err(), "no 64-bit shared object");
        }
    }

    #[test]
    fn a_table_of_segments_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("libtable.so");
        // 65,535 entries of 65,535 bytes are 4 GiB, and the sparse file has them.
        let mut head = vec![0; HEADER];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        head[54..58].fill(0xff);
        std::fs::write(&place, head).unwrap();
        File::options().write(true).open(&place).unwrap().set_len(5 << 30).unwrap();
        assert_eq!(check_whole(&place).unwrap_err(), "no 64-bit shared object");
    }

    #[test]
    fn what_a_library_needs_is_read_from_it() {
        let libm = linker::resolve("libm.so.6").unwrap();
        let files = needed(&libm, whole(&libm).unwrap());
        assert!(files.iter().any(|file| file.ends_with("libc.so.6")), "{files:?}");
        assert_eq!(check_with_needed(&libm), Ok(()));
        let origin = Path::new("/opt/x/lib");
        assert_eq!(folder(b"$ORIGIN/../y", origin), Path::new("/opt/x/lib/../y"));
        assert_eq!(folder(b"${ORIGIN}", origin), Path::new("/opt/x/lib/"));
        assert_eq!(folder(b"/usr/lib", origin), Path::new("/usr/lib"));
    }

    #[test]
    fn what_is_no_plain_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("libfifo.so");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(check_whole(&fifo).unwrap_err(), "no plain file but a FIFO");
        assert_eq!(check_whole(folder.path()).unwrap_err(), "no plain file but a folder");
        assert_eq!(check_whole(Path::new("/dev/zero")).unwrap_err(), "no plain file but a device");
        assert!(check_whole(&folder.path().join("none")).unwrap_err().contains("No such file"));
    }
}
