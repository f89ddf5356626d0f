//! The file of a journal: one run at a time appends whole lines.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pathline_schema::{BrokenLine, Journal, JournalError};
use rustix::fs::OFlags;

/// Why a journal cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum JournalFileError {
    /// A call failed.
    #[error("{}: {source}; choose another place with --out", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A new journal would replace an existing file.
    #[error("{}: there is one already; --resume goes on with it, or name another --out", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A link, a folder, a pipe or a device.
    #[error("{}: a journal is a plain file, and this is {what}; name the file itself", path.display())]
    NotPlain {
        /// The named path.
        path: PathBuf,
        /// Its file type.
        what: &'static str,
    },
    /// Another run holds the lock.
    #[error("{}: another run writes to it: {holder}. Wait until it ends, or end it; `pathline report` shows what it has so far", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// Process and host of that run, as far as known.
        holder: String,
    },
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reader's reason.
        source: JournalError,
    },
    /// Lines before its last are broken.
    #[error("{}: {first}{more}. Another program wrote into it, or the host crashed. `sed -i.bak '{script}' {}` deletes the broken lines and keeps the original as a backup; --resume then measures their cases again", path.display(), path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The first broken line.
        first: BrokenLine,
        /// The number of other broken lines, if any.
        more: String,
        /// A sed script that deletes these lines.
        script: String,
    },
}

/// A journal open for writing by this process alone.
///
/// The lock is that of flock(2). It belongs to the open file: opening and closing the journal again
/// for reading does not release it, as it would release one of fcntl(2), and `report` needs none.
/// The kernel releases it at the end of the process. NFS clients request it from the server, so it
/// holds between the nodes of a cluster; a crashed node keeps it until its lease expires (90 s by
/// default) or, with NFS 3, until it restarts. File systems may be mounted without locks (Lustre
/// without `flock`, NFS with `nolock`): then [`JournalFile::unlocked`] gives the reason, and the
/// remaining protection is that every line is appended and that an unexpected file length ends the
/// run.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    /// Its expected length; another one means another writer.
    length: u64,
    unlocked: Option<io::Error>,
}

impl JournalFile {
    /// Creates a journal.
    ///
    /// # Errors
    /// The name exists already, even as a dangling link, or the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, JournalFileError> {
        let file = OpenOptions::new().append(true).create_new(true).open(path).map_err(
            |error| match (error.kind(), not_plain(path)) {
                (ErrorKind::AlreadyExists, Some(what)) => {
                    JournalFileError::NotPlain { path: path.to_owned(), what }
                }
                (ErrorKind::AlreadyExists, None) => {
                    JournalFileError::Exists { path: path.to_owned() }
                }
                _ => at(path, error),
            },
        )?;
        let unlocked = lock(&file, path)?;
        Ok(Self { path: path.to_owned(), file, length: 0, unlocked })
    }

    /// Opens a journal to continue it, and reads it.
    ///
    /// # Errors
    /// Another run writes to it; it is no plain file, is no journal, has broken lines, or cannot be
    /// opened.
    pub fn open(path: &Path) -> Result<(Self, Journal), JournalFileError> {
        if let Some(what) = not_plain(path) {
            return Err(JournalFileError::NotPlain { path: path.to_owned(), what });
        }
        let mut options = OpenOptions::new();
        // If a link or pipe has replaced it since, it is not followed or waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.read(true).append(true).custom_flags(flags.bits().cast_signed());
        let file = options.open(path).map_err(|e| at(path, e))?;
        let unlocked = lock(&file, path)?;
        let length = file.metadata().map_err(|e| at(path, e))?.len();
        let journal = Journal::read(BufReader::new(&file))
            .map_err(|source| JournalFileError::Unreadable { path: path.to_owned(), source })?;
        if let Some(first) = journal.broken.first() {
            return Err(broken(path, first, &journal.broken));
        }
        Ok((Self { path: path.to_owned(), file, length, unlocked }, journal))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why no lock keeps other runs off, where the file system has no locks.
    pub fn unlocked(&self) -> Option<&io::Error> {
        self.unlocked.as_ref()
    }

    /// Cuts off a torn last line.
    pub(crate) fn cut(&mut self, whole_bytes: u64) -> io::Result<()> {
        self.unchanged()?;
        self.file.set_len(whole_bytes)?;
        self.length = whole_bytes;
        Ok(())
    }

    /// Appends a line in one write, so that a reader sees only whole lines, even if the writer is
    /// killed.
    pub(crate) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.unchanged()?;
        self.file.write_all(line)?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Checks that the file has the length of everything read or written here.
    fn unchanged(&self) -> io::Result<()> {
        let (is, was) = (self.file.metadata()?.len(), self.length);
        if is == was {
            return Ok(());
        }
        let text = format!(
            "it has {is} bytes and should have {was}: another program writes to it, and nothing more \
             is written here; end that program, then --resume goes on"
        );
        Err(io::Error::other(text))
    }
}

/// The file type of an existing path that is no plain file.
fn not_plain(path: &Path) -> Option<&'static str> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    match kind {
        _ if kind.is_file() => None,
        _ if kind.is_symlink() => Some("a symbolic link"),
        _ if kind.is_dir() => Some("a folder"),
        _ => Some("a pipe, a socket or a device"),
    }
}

/// Takes the lock. Returns the reason if the file system has no locks.
fn lock(file: &File, path: &Path) -> Result<Option<io::Error>, JournalFileError> {
    match file.try_lock() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            Err(JournalFileError::Busy { path: path.to_owned(), holder: holder(path) })
        }
        Err(TryLockError::Error(error)) => Ok(Some(error)),
    }
}

/// Process and host of the run with the lock: on this host from the kernel's list, else from the
/// journal's last begin.
fn holder(path: &Path) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let here = fs::metadata(path).ok().and_then(|of| local_holder(&locks, of.ino()));
    if let Some(pid) = here {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        return format!("process {pid} on {}, this host", host.trim());
    }
    let journal = File::open(path).ok().and_then(|f| Journal::read(BufReader::new(f)).ok());
    let last = journal.and_then(|j| j.resumed.into_iter().next_back().or(Some(j.begin)));
    match last {
        Some(begin) => {
            let process = begin.pid.map_or("a process".to_owned(), |pid| format!("process {pid}"));
            format!("{process} on {}, which began at {}", begin.host, begin.started)
        }
        None => "a process that has just begun, on this host or another".to_owned(),
    }
}

/// The process that has a whole file locked, from the text of `/proc/locks`. Lines of waiting
/// processes contain an arrow.
fn local_holder(locks: &str, inode: u64) -> Option<u32> {
    let inode = inode.to_string();
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[_, "FLOCK", _, "WRITE", pid, file, ..] = fields.as_slice() else { return None };
        // Major and minor number of a device are those of stat(2) on few file systems.
        let same = file.rsplit(':').next() == Some(inode.as_str());
        pid.parse().ok().filter(|_| same)
    })
}

fn broken(path: &Path, first: &BrokenLine, all: &[BrokenLine]) -> JournalFileError {
    let more = match all.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let script: Vec<String> = all.iter().map(|b| format!("{}d", b.line)).collect();
    let (path, first) = (path.to_owned(), first.clone());
    JournalFileError::Broken { path, first, more, script: script.join(";") }
}

fn at(path: &Path, source: io::Error) -> JournalFileError {
    JournalFileError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_the_holder_of_a_lock() {
        let locks = "1: POSIX  ADVISORY  WRITE 25 fe:00:42 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 26 fe:00:42 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 27 fe:00:142 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 28 fe:00:42 0 EOF\n\
                     4: -> FLOCK  ADVISORY  WRITE 29 fe:00:42 0 EOF\n\
                     garbage\n";
        assert_eq!(local_holder(locks, 42), Some(28));
        assert_eq!(local_holder(locks, 142), Some(27));
        assert_eq!(local_holder(locks, 4), None);
        assert_eq!(local_holder("", 42), None);
    }

    #[test]
    fn a_line_of_another_program_ends_the_writing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl");
        let mut mine = JournalFile::create(&path).unwrap();
        mine.append(b"one\n").unwrap();
        // As a program without the lock does.
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(b"two\n").unwrap();
        let error = mine.append(b"three\n").unwrap_err().to_string();
        assert!(error.contains("it has 8 bytes and should have 4"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn a_new_journal_replaces_nothing_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("run.jsonl"), dir.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let error = JournalFile::create(&path).unwrap_err().to_string();
        assert!(error.contains("a symbolic link"), "{error}");
        assert!(!elsewhere.exists());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        let error = JournalFile::create(&path).unwrap_err();
        assert!(matches!(error, JournalFileError::Exists { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_journal_has_one_writer_and_is_free_when_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl");
        let first = JournalFile::create(&path).unwrap();
        assert!(first.unlocked().is_none(), "temporary folders have locks");
        // Opening and closing the file for reading does not release the lock.
        drop(File::open(&path).unwrap());
        let error = JournalFile::open(&path).unwrap_err().to_string();
        let me = format!("process {} on ", std::process::id());
        assert!(error.contains("another run writes to it") && error.contains(&me), "{error}");
        drop(first);
        let error = JournalFile::open(&path).unwrap_err();
        assert!(matches!(error, JournalFileError::Unreadable { .. }), "it is empty: {error}");
    }
}
