//! Opens files that others may have put there.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a plain file for reading, and for writing on request, with further `flags` of open(2). Never waits:
/// opening a FIFO waits for its other end, and reading a device may have no end or an effect.
///
/// # Errors
/// It cannot be opened, or is no plain file.
pub fn open_plain(path: &Path, write: bool, flags: i32) -> io::Result<File> {
    let checked = |meta: Metadata| refuse_special(meta.file_type());
    let meta =
        if flags & libc::O_NOFOLLOW == 0 { path.metadata() } else { path.symlink_metadata() };
    checked(meta?)?;
    // It may have been replaced since.
    let flags = flags | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
    checked(file.metadata()?)?;
    Ok(file)
}

fn refuse_special(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no plain file but {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (dir.path().join("file"), dir.path().join("link"), dir.path().join("pipe"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(open_plain(&file, true, 0).is_ok() && open_plain(&link, false, 0).is_ok());
        let why = |path: &Path, flags| open_plain(path, false, flags).unwrap_err().to_string();
        assert_eq!(why(&pipe, 0), "no plain file but a FIFO");
        assert_eq!(why(dir.path(), 0), "no plain file but a folder");
        assert_eq!(why(Path::new("/dev/zero"), 0), "no plain file but a device");
        assert_eq!(why(&link, libc::O_NOFOLLOW), "no plain file but a symbolic link");
    }
}
