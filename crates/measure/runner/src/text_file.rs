//! Text files that a user names, read with a limit.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The text of a plain file of at most `limit` bytes. Anything else is refused: a device has no end,
/// and a pipe may never have a writer.
///
/// # Errors
/// The error of the file, without its name.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let bad = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    // Before it is opened: opening a pipe waits.
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        let kind = if kind.is_dir() { "a folder" } else { "a device or a pipe" };
        return bad(format!("it is {kind}; expected a plain file"));
    }
    let mut bytes = Vec::new();
    // A file may say that it is shorter than it is, as those of /proc do.
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return bad(format!("it has more than {limit} bytes, too many for a file of its kind"));
    }
    String::from_utf8(bytes).or_else(|_| bad("it is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (dir.path().join("file"), dir.path().join("link"), dir.path().join("pipe"));
        fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        let why = |path: &Path, limit| read_text(path, limit).unwrap_err().to_string();
        assert_eq!(why(&file, 3), "it has more than 3 bytes, too many for a file of its kind");
        // All of size 0 by their own account; reading them has no end.
        for endless in [Path::new("/dev/zero"), &link, &pipe, Path::new("/dev/tty")] {
            assert_eq!(why(endless, 1 << 20), "it is a device or a pipe; expected a plain file");
        }
        assert_eq!(why(dir.path(), 4), "it is a folder; expected a plain file");
        // Of size 0, too, and yet a file with a text.
        assert!(read_text(Path::new("/proc/self/status"), 1 << 16).unwrap().contains("Name:"));
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert_eq!(why(&file, 4), "it is not UTF-8");
    }
}
