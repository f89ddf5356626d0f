//! A folder of this process's own inside one that was named. It is known by a lock: whoever finds it
//! without one knows that its process is gone.

use std::cell::RefCell;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pathline_hal::{CallError, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::fault;

const PREFIX: &str = "pathline-storage-";
const MARKER: &str = "in-use";
const FILES: [&str; 2] = ["read-", "write-"];

/// The folder. It goes when this does.
#[derive(Debug)]
pub(super) struct Own {
    folder: PathBuf,
    made: RefCell<Vec<PathBuf>>,
    _marker: File,
}

/// Names of folders begin with this on this machine: a lock may not be seen from another one.
fn prefix() -> String {
    let name = rustix::system::uname();
    let host: String = name
        .nodename()
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    format!("{PREFIX}{host}-")
}

impl Own {
    /// Whether a file of that name was made here.
    pub(super) fn made(name: &str) -> bool {
        FILES.iter().any(|begin| name.starts_with(begin))
    }

    /// Makes a folder in `parent`.
    pub(super) fn new(parent: &Path) -> Result<Self> {
        let mut last = None;
        for n in 0..1000 {
            let folder = parent.join(format!("{}{}-{n}", prefix(), std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(fault::on("mkdir", &folder, &error)),
            }
            match mark(&folder) {
                Ok(marker) => {
                    return Ok(Self { folder, made: RefCell::default(), _marker: marker });
                }
                // Somebody has swept it away in between.
                Err(error) => last = Some(fault::on("flock", &folder, &error)),
            }
        }
        let thing = parent.display().to_string();
        Err(last.unwrap_or_else(|| {
            CallError::unsupported("mkdir", thing, "a thousand folders of this process are there")
        }))
    }

    /// Makes an empty file.
    pub(super) fn make(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|error| fault::on("open", &path, &error))?;
        self.made.borrow_mut().push(path.clone());
        Ok(path)
    }

    /// Removes a file that was made.
    pub(super) fn take_back(&self, path: &Path) {
        let mut made = self.made.borrow_mut();
        if let Some(at) = made.iter().position(|p| p == path) {
            let _ = std::fs::remove_file(made.swap_remove(at));
        }
    }

    /// Removes the folders of processes that are gone. The folders.
    pub(super) fn sweep(parent: &Path) -> Vec<PathBuf> {
        let prefix = prefix();
        let Ok(all) = std::fs::read_dir(parent) else { return Vec::new() };
        let ours = all.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        });
        ours.filter(|folder| sweep_one(folder)).collect()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        for path in self.made.borrow().iter() {
            let _ = std::fs::remove_file(path);
        }
        let _ = std::fs::remove_file(self.folder.join(MARKER));
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Locks a folder's marker for as long as the process lives.
fn mark(folder: &Path) -> io::Result<File> {
    let path = folder.join(MARKER);
    let marker = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    match flock(&marker, FlockOperation::NonBlockingLockExclusive) {
        // Without locks nobody can tell that it is in use, nor that it is not: it is left alone.
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
        Err(error) => return Err(error.into()),
    }
    // Locked, but perhaps after somebody had removed it.
    if std::fs::symlink_metadata(&path)?.ino() == marker.metadata()?.ino() {
        Ok(marker)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Removes one if its process is gone. It holds nothing but files: a folder in it, or a file of
/// another name, is not this program's, and both stay.
fn sweep_one(folder: &Path) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(folder) else { return false };
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return false;
    }
    let path = folder.join(MARKER);
    let marker = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&path);
    let Ok(marker) = marker else {
        // Its process ended between two calls: only an empty folder can be its.
        return std::fs::remove_dir(folder).is_ok();
    };
    if flock(&marker, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    let Ok(all) = std::fs::read_dir(folder) else { return false };
    for entry in all.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && Own::made(&entry.file_name().to_string_lossy()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_file(&path);
    std::fs::remove_dir(folder).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_holder_and_takes_nothing_else_along() {
        let dir = tempfile::tempdir().unwrap();
        let own = Own::new(dir.path()).unwrap();
        let file = own.make("read-5").unwrap();
        std::fs::write(own.folder.join("precious"), "mine").unwrap();
        // It is locked by this process: nobody sweeps it.
        assert!(Own::sweep(dir.path()).is_empty());
        assert!(file.exists());
        let folder = own.folder.clone();
        drop(own);
        assert!(!file.exists());
        assert_eq!(std::fs::read_to_string(folder.join("precious")).unwrap(), "mine");
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_is_not_its_own_stays() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join(format!("{}1-0", prefix()));
        let foreign = dir.path().join(format!("{PREFIX}elsewhere.example-1-0"));
        for folder in [&gone, &foreign] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(MARKER), "").unwrap();
            std::fs::write(folder.join("write-0"), [0; 4096]).unwrap();
        }
        // A link of such a name is no folder of this program.
        let victim = tempfile::tempdir().unwrap();
        std::fs::write(victim.path().join("write-0"), "mine").unwrap();
        let link = dir.path().join(format!("{}2-0", prefix()));
        std::os::unix::fs::symlink(victim.path(), &link).unwrap();
        assert_eq!(Own::sweep(dir.path()), std::slice::from_ref(&gone));
        assert!(!gone.exists() && foreign.join("write-0").exists());
        assert!(victim.path().join("write-0").exists() && link.exists());
    }
}
