//! Writes a snapshot to files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::error::TopoError;
use crate::snapshot::HostSnapshot;

impl HostSnapshot {
    /// Writes the files below a directory, which is created if needed. The target of a symbolic
    /// link becomes a file with the suffix `.target`. Symbolic links in the directory are not
    /// followed: nothing outside it is written.
    pub fn save_dir(&self, dir: &Path) -> Result<(), TopoError> {
        let failed = |path: &Path, error: io::Error| {
            TopoError::new(
                path.display().to_string(),
                format!("cannot write: {error}"),
                "a directory with space that may be written to",
            )
        };
        fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
        let root = File::open(dir).map_err(|e| failed(dir, e))?;
        for (path, text) in self.iter() {
            let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
            if !path.split('/').all(plain) {
                let expected = "a path that stays inside the snapshot";
                return Err(TopoError::new(path, "a path that leaves its directory", expected));
            }
            write_below(&root, path, text).map_err(|e| failed(&dir.join(path), e))?;
        }
        Ok(())
    }

    /// Writes the single-file format.
    pub fn save_file(&self, file: &Path) -> Result<(), TopoError> {
        fs::write(file, self.to_text()).map_err(|error| {
            let what = format!("cannot write: {error}");
            TopoError::new(file.display().to_string(), what, "a file that may be written to")
        })
    }
}

/// Writes a plain file below `root`, folder by folder, so that no symbolic link is followed.
fn write_below(root: &File, path: &str, text: &str) -> io::Result<()> {
    let mut dir = root.try_clone()?;
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for folder in folders.split('/').filter(|part| !part.is_empty()) {
        match mkdirat(&dir, folder, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let below = openat(&dir, folder, flags, Mode::empty());
        dir = File::from(below.map_err(|error| refused(&dir, folder, error))?);
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    // The open fails for a pipe without a reader and does not block.
    let flags = create | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&dir, name, flags, Mode::from_raw_mode(0o666));
    let mut file = File::from(file.map_err(|error| refused(&dir, name, error))?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("what has this name is no plain file"));
    }
    file.write_all(text.as_bytes())
}

/// The reason for a failed open, with symbolic links named as such.
fn refused(dir: &File, name: &str, error: Errno) -> io::Error {
    let is_link = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
    if is_link {
        return io::Error::other(format!("'{name}' is a symbolic link, which is not followed"));
    }
    error.into()
}
