//! A folder for this process alone inside the folder that the user named. The process holds a lock
//! on it: a folder without a lock was left behind by a process that has ended.

use std::cell::RefCell;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathline_hal::{CallError, CallResult};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, unlinkat};
use rustix::io::Errno;

use super::{io_error, scratch_tree};
use pathline_host::clock;

const PREFIX: &str = "pathline-storage-";
const MARKER: &str = "in-use";
/// Content of the marker. A folder without it does not belong to this program, whatever its name.
const MARK: &[u8] = b"pathline storage folder\n";
/// The name that NFS and FUSE give to a file that is removed while it is open; a number follows.
const HIDDEN: [&str; 2] = [".nfs", ".fuse_hidden"];
/// How long such files are waited for: they go when the kernel has closed what was closed.
const CLOSING: Duration = Duration::from_secs(1);

/// The folder. It goes when this does.
#[derive(Debug)]
pub(super) struct ScratchDir {
    folder: PathBuf,
    /// The folder and the one around it: paths may lead elsewhere by the time that they are cleaned,
    /// since people rename folders and unmount what they lie on.
    inside: OwnedFd,
    around: OwnedFd,
    made: RefCell<Vec<PathBuf>>,
    marker: Option<File>,
}

/// The fate of folders that earlier processes made in a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Their processes were gone, and so are they.
    pub removed: Vec<PathBuf>,
    /// Their processes are gone and they are not, with the reason.
    pub left: Vec<(PathBuf, String)>,
    /// Why the folder cannot be listed; `None` also if it is no folder.
    pub unseen: Option<String>,
}

/// The fate of one folder.
enum FolderFate {
    Removed,
    Stays(String),
    /// Its process lives, or it is none of this user's.
    Alone,
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

/// Whether a folder of that name was made here: the number of a process and a count follow the prefix.
fn is_folder_name(name: &str, prefix: &str) -> bool {
    let numbers = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(process, count)| [process, count].into_iter().all(is_decimal))
}

/// Whether a file of that name was made in such a folder: `read-` with the seed of its pattern, `write-`
/// with its number, or what a file system has made of one of them.
fn is_file_name(name: &str) -> bool {
    let number = |begin: &str| name.strip_prefix(begin);
    number("write-").is_some_and(is_decimal)
        || number("read-").is_some_and(is_hex)
        || HIDDEN.iter().any(|begin| number(begin).is_some_and(is_hex))
}

/// Whether a folder of that name was made in such a folder.
fn is_tree_name(name: &str) -> bool {
    name.strip_prefix(scratch_tree::TREE).is_some_and(is_decimal)
}

pub(super) fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    !text.is_empty() && text.bytes().all(digit)
}

impl ScratchDir {
    /// Makes a folder in `parent`.
    pub(super) fn new(parent: &Path) -> CallResult<Self> {
        for n in 0..1000 {
            let folder = parent.join(format!("{}{}-{n}", prefix(), std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(io_error::on("mkdir", &folder, &error)),
            }
            let marked = mark(&folder).and_then(|marker| Ok((marker, at(&folder)?, at(parent)?)));
            let error = match marked {
                Ok((marker, inside, around)) => {
                    let (made, marker) = (RefCell::default(), Some(marker));
                    return Ok(Self { folder, inside, around, made, marker });
                }
                Err(error) => error,
            };
            // Another process swept it in between, or is about to. Any other error would repeat.
            let swept = [io::ErrorKind::NotFound, io::ErrorKind::WouldBlock];
            if !swept.contains(&error.kind()) {
                let marker = folder.join(MARKER);
                let _ = std::fs::remove_file(&marker);
                let _ = std::fs::remove_dir(&folder);
                return Err(io_error::on("open", &marker, &error));
            }
        }
        let thing = parent.display().to_string();
        Err(CallError::unsupported("mkdir", thing, "a thousand folders of this process are there"))
    }

    /// Makes an empty file.
    pub(super) fn make(&self, name: &str) -> CallResult<PathBuf> {
        let path = self.folder.join(name);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|error| io_error::on("open", &path, &error))?;
        self.made.borrow_mut().push(path.clone());
        Ok(path)
    }

    /// Makes an empty folder for a tree of folders and files; returns its path.
    pub(super) fn make_tree(&self) -> CallResult<PathBuf> {
        let taken = self.made.borrow();
        let free = (0u32..)
            .map(|n| self.folder.join(format!("{}{n}", scratch_tree::TREE)))
            .find(|path| !taken.contains(path));
        drop(taken);
        let path = free.unwrap_or_default();
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| io_error::on("mkdir", &path, &error))?;
        self.made.borrow_mut().push(path.clone());
        Ok(path)
    }

    /// Opens the folder of a tree, to look up names in it wherever it is by then.
    pub(super) fn open_tree(&self, path: &Path) -> CallResult<OwnedFd> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let opened = scratch_tree::open(&self.inside, &name);
        opened.map_err(|error| io_error::on("open", path, &error))
    }

    /// Removes a file or a tree that was made.
    pub(super) fn take_back(&self, path: &Path) {
        let mut made = self.made.borrow_mut();
        if let Some(at) = made.iter().position(|p| p == path)
            && self.remove(path)
        {
            made.swap_remove(at);
        }
    }

    /// Whether a file or a tree of the folder exists no more.
    fn remove(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        if let Some(name) = name.to_str().filter(|name| is_tree_name(name)) {
            return scratch_tree::remove(&self.inside, name).unwrap_or(false);
        }
        matches!(unlinkat(&self.inside, name, AtFlags::empty()), Ok(()) | Err(Errno::NOENT))
    }

    /// Removes the folders of processes that are gone.
    pub(super) fn sweep(parent: &Path) -> SweepResult {
        let (prefix, mut swept) = (prefix(), SweepResult::default());
        let all = match std::fs::read_dir(parent) {
            Ok(all) => all,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return swept,
            Err(error) => return SweepResult { unseen: Some(error_text(&error)), ..swept },
        };
        let ours = all.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|name| is_folder_name(&name.to_string_lossy(), &prefix))
        });
        for folder in ours {
            match sweep_one(&folder) {
                FolderFate::Removed => swept.removed.push(folder),
                FolderFate::Stays(why) => swept.left.push((folder, why)),
                FolderFate::Alone => {}
            }
        }
        swept
    }
}

impl Drop for ScratchDir {
    /// The marker goes last: as long as it is there, another run knows whose the files are and that
    /// they may go.
    fn drop(&mut self) {
        let stuck = self.made.borrow().iter().filter(|path| !self.remove(path)).count();
        if stuck == 0 && self.remove(Path::new(MARKER)) {
            let name = self.folder.file_name().unwrap_or_default();
            let remove = || Ok(unlinkat(&self.around, name, AtFlags::REMOVEDIR)?);
            let _ = once_empty(&self.folder, self.marker.take(), remove);
        }
    }
}

/// The path of a file that another process of this user has made in a folder like these inside
/// `parent`. Anything else is refused: the name comes from that process.
pub(super) fn find_foreign(parent: &Path, name: &str) -> CallResult<PathBuf> {
    let refused = |why: &str| {
        let thing = format!("{name:?} in {}", parent.display());
        CallError::unsupported("open", thing, why)
            .or_try("ranks that share a file need the same --store, on a file system that all see")
    };
    let parts = name.split_once('/').filter(|(folder, file)| {
        let numbers = folder.strip_prefix(PREFIX).and_then(|rest| {
            let (rest, count) = rest.rsplit_once('-')?;
            let (host, process) = rest.rsplit_once('-')?;
            Some((host, process, count))
        });
        let plain = |host: &str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let folder = numbers.is_some_and(|(host, process, count)| {
            plain(host) && is_decimal(process) && is_decimal(count)
        });
        folder && is_file_name(file)
    });
    let (folder, file) = parts.ok_or_else(|| refused("this is no name of a file of pathline"))?;
    let folder = parent.join(folder);
    let meta = std::fs::symlink_metadata(&folder);
    let meta = meta.map_err(|error| refused(&error_text(&error)))?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it is not of this user"));
    }
    let mut mark = Vec::new();
    let marker =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(folder.join(MARKER));
    let read = marker.and_then(|mut marker| {
        Read::by_ref(&mut marker).take(MARK.len() as u64 + 1).read_to_end(&mut mark)
    });
    match read {
        Ok(_) if mark == MARK => Ok(folder.join(file)),
        Ok(_) => Err(refused("its folder lacks the mark of this program")),
        Err(error) => Err(refused(&error_text(&error))),
    }
}

/// A folder, to name things in it by.
fn at(folder: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Locks a folder's marker for as long as the process lives.
fn mark(folder: &Path) -> io::Result<File> {
    let path = folder.join(MARKER);
    let mut marker = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    match flock(&marker, FlockOperation::NonBlockingLockExclusive) {
        // Without locks its use cannot be determined: it is left alone.
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
        Err(error) => return Err(error.into()),
    }
    // Locked, but perhaps after another process had removed it.
    if std::fs::symlink_metadata(&path)?.ino() != marker.metadata()?.ino() {
        return Err(io::ErrorKind::NotFound.into());
    }
    marker.write_all(MARK)?;
    Ok(marker)
}

/// Removes one if its process is gone. It holds nothing but files and trees: a folder of another name
/// in it, or a file of another name, is not this program's, and both stay.
fn sweep_one(folder: &Path) -> FolderFate {
    let Ok(meta) = std::fs::symlink_metadata(folder) else { return FolderFate::Alone };
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return FolderFate::Alone;
    }
    let path = folder.join(MARKER);
    let open = |write: bool| {
        OpenOptions::new().read(true).write(write).custom_flags(libc::O_NOFOLLOW).open(&path)
    };
    // Network file systems lock only files that are open for writing. On a file system that has
    // become read-only the lock can still be queried.
    let mut marker = match open(true).or_else(|_| open(false)) {
        Ok(marker) => marker,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Its process ended between two calls: only an empty folder can be its.
            return remove_folder(folder, None);
        }
        Err(error) => return FolderFate::Stays(error_text(&error)),
    };
    match flock(&marker, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return FolderFate::Alone,
        Err(error) => {
            let why = error_text(&error.into());
            return FolderFate::Stays(format!(
                "cannot determine whether it is in use: flock: {why}"
            ));
        }
    }
    let mut mark = Vec::new();
    match Read::by_ref(&mut marker).take(MARK.len() as u64 + 1).read_to_end(&mut mark) {
        Ok(_) if mark == MARK => {}
        Ok(_) => {
            return FolderFate::Stays(format!(
                "its {MARKER} lacks the mark of this program; remove it by hand if it is not needed"
            ));
        }
        Err(error) => return FolderFate::Stays(error_text(&error)),
    }
    let all = match std::fs::read_dir(folder) {
        Ok(all) => all,
        Err(error) => return FolderFate::Stays(error_text(&error)),
    };
    for entry in all.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let name = entry.file_name();
        let tree = name.to_str().filter(|name| is_tree_name(name));
        if let Some(name) = tree {
            let removed = at(folder).and_then(|inside| scratch_tree::remove(&inside, name));
            if let Err(error) = removed {
                return FolderFate::Stays(error_text(&error));
            }
            continue;
        }
        if is_file
            && is_file_name(&entry.file_name().to_string_lossy())
            && let Err(error) = std::fs::remove_file(entry.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            return FolderFate::Stays(error_text(&error));
        }
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            FolderFate::Stays(error_text(&error))
        }
        _ => remove_folder(folder, Some(marker)),
    }
}

/// Calls what removes a folder whose marker is unlinked. On some file systems the marker is still there
/// under another name as long as it is open, and it is open as long as it must be locked.
fn once_empty(
    folder: &Path,
    marker: Option<File>,
    remove: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let hidden = || {
        let mut names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names.all(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            HIDDEN.iter().any(|begin| name.starts_with(begin)) && is_file_name(&name)
        })
    };
    let mut outcome = remove();
    drop(marker);
    let pause = CLOSING / 100;
    for _ in 0..100 {
        match &outcome {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && hidden() => {}
            _ => break,
        }
        clock::pause(pause);
        outcome = remove();
    }
    outcome
}

/// Removes an empty folder.
fn remove_folder(folder: &Path, marker: Option<File>) -> FolderFate {
    match once_empty(folder, marker, || std::fs::remove_dir(folder)) {
        Ok(()) => FolderFate::Removed,
        // Another run was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => FolderFate::Alone,
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            FolderFate::Stays("it holds something that is not of pathline".to_owned())
        }
        Err(error) => FolderFate::Stays(error_text(&error)),
    }
}

/// The text of an error without its number.
pub(super) fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_holder_and_takes_nothing_else_along() {
        let dir = tempfile::tempdir().unwrap();
        let own = ScratchDir::new(dir.path()).unwrap();
        let file = own.make("read-5").unwrap();
        std::fs::write(own.folder.join("precious"), "mine").unwrap();
        // It is locked by this process: no process sweeps it.
        assert_eq!(ScratchDir::sweep(dir.path()), SweepResult::default());
        assert!(file.exists());
        let folder = own.folder.clone();
        drop(own);
        assert!(!file.exists());
        // Neither its end nor a later run removes foreign files, and the latter reports them.
        let swept = ScratchDir::sweep(dir.path());
        assert_eq!((swept.removed.len(), swept.left.len()), (0, 1));
        assert!(swept.left[0].1.contains("not of pathline"), "{swept:?}");
        assert_eq!(std::fs::read_to_string(folder.join("precious")).unwrap(), "mine");
    }

    #[test]
    fn a_folder_goes_also_if_the_one_around_it_was_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let (before, after) = (dir.path().join("before"), dir.path().join("after"));
        std::fs::create_dir(&before).unwrap();
        let own = ScratchDir::new(&before).unwrap();
        let (first, _second) = (own.make("read-1").unwrap(), own.make("write-0").unwrap());
        std::fs::rename(&before, &after).unwrap();
        // A folder of the old name is somebody else's now.
        std::fs::create_dir_all(own.folder.clone()).unwrap();
        std::fs::write(&first, "mine").unwrap();
        own.take_back(&first);
        drop(own);
        assert_eq!(std::fs::read_dir(&after).unwrap().count(), 0);
        assert_eq!(std::fs::read_to_string(&first).unwrap(), "mine");
    }

    #[test]
    fn the_marker_stays_as_long_as_a_file_does() {
        let dir = tempfile::tempdir().unwrap();
        let own = ScratchDir::new(dir.path()).unwrap();
        let (stuck, folder) = (own.make("read-1").unwrap(), own.folder.clone());
        // It cannot be unlinked: here since it is a folder.
        std::fs::remove_file(&stuck).unwrap();
        std::fs::create_dir(&stuck).unwrap();
        drop(own);
        assert!(folder.join(MARKER).exists());
        // Once it can, the next run does it.
        std::fs::remove_dir(&stuck).unwrap();
        assert_eq!(ScratchDir::sweep(dir.path()).removed, [folder]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn leftovers_are_swept_and_foreign_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join(format!("{}1-0", prefix()));
        let foreign = dir.path().join(format!("{PREFIX}elsewhere.example-1-0"));
        for folder in [&gone, &foreign] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(MARKER), MARK).unwrap();
            std::fs::write(folder.join("write-0"), [0; 4096]).unwrap();
            std::fs::write(folder.join(".nfs00000000000a1f3c00000002"), "").unwrap();
        }
        // A link of such a name is no folder of this program.
        let victim = tempfile::tempdir().unwrap();
        std::fs::write(victim.path().join("write-0"), "mine").unwrap();
        let link = dir.path().join(format!("{}2-0", prefix()));
        std::os::unix::fs::symlink(victim.path(), &link).unwrap();
        let swept = ScratchDir::sweep(dir.path());
        assert_eq!((swept.removed.as_slice(), swept.left.len()), (std::slice::from_ref(&gone), 0));
        assert!(!gone.exists() && foreign.join("write-0").exists());
        assert!(victim.path().join("write-0").exists() && link.exists());
    }

    #[test]
    fn trees_go_with_their_holder_and_in_a_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let own = ScratchDir::new(dir.path()).unwrap();
        let fill = |tree: &Path| {
            std::fs::create_dir(tree.join("d0-0")).unwrap();
            std::fs::write(tree.join("d0-0/f0-3"), "x").unwrap();
        };
        let (first, second) = (own.make_tree().unwrap(), own.make_tree().unwrap());
        [&first, &second].into_iter().for_each(|tree| fill(tree));
        own.take_back(&first);
        assert!(!first.exists() && second.exists());
        drop(own);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // What a killed process has left, and next to it a folder of a user.
        let gone = dir.path().join(format!("{}1-0", prefix()));
        std::fs::create_dir_all(gone.join("tree-0")).unwrap();
        std::fs::write(gone.join(MARKER), MARK).unwrap();
        fill(&gone.join("tree-0"));
        assert_eq!(ScratchDir::sweep(dir.path()).removed, std::slice::from_ref(&gone));
        std::fs::create_dir_all(gone.join("tree-0/d0-0")).unwrap();
        std::fs::create_dir_all(gone.join("trees")).unwrap();
        std::fs::write(gone.join(MARKER), MARK).unwrap();
        let swept = ScratchDir::sweep(dir.path());
        assert_eq!((swept.removed.len(), swept.left.len()), (0, 1));
        assert!(gone.join("trees").exists() && !gone.join("tree-0").exists());
    }

    #[test]
    fn files_of_another_process_are_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let own = ScratchDir::new(dir.path()).unwrap();
        let file = own.make("read-5eed").unwrap();
        let name = file.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned();
        assert_eq!(find_foreign(dir.path(), &name).unwrap(), file);
        let folder = name.split_once('/').unwrap().0;
        std::fs::write(dir.path().join("secret"), "mine").unwrap();
        for wrong in [
            "secret".to_owned(),
            "../secret".to_owned(),
            format!("{folder}/../secret"),
            format!("{folder}/in-use"),
            format!("{folder}/read-5eed/x"),
            format!("{PREFIX}../1-0/read-5eed"),
            format!("/{name}"),
            name.replace("read-5eed", "read-"),
        ] {
            assert!(find_foreign(dir.path(), &wrong).is_err(), "{wrong}");
        }
        // A folder of that name without the mark is a user's.
        let other = dir.path().join(format!("{}1-0", prefix()));
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("read-5eed"), "mine").unwrap();
        let name = format!("{}/read-5eed", other.file_name().unwrap().to_str().unwrap());
        assert!(find_foreign(dir.path(), &name).is_err());
        std::fs::write(other.join(MARKER), "").unwrap();
        let error = find_foreign(dir.path(), &name).unwrap_err();
        assert!(error.reason.contains("lacks the mark"), "{error}");
    }

    #[test]
    fn users_files_in_folders_of_such_a_name_stay() {
        let dir = tempfile::tempdir().unwrap();
        let make = |folder: &str, marker: Option<&[u8]>, files: &[&str]| {
            let folder = dir.path().join(format!("{}{folder}", prefix()));
            std::fs::create_dir(&folder).unwrap();
            if let Some(marker) = marker {
                std::fs::write(folder.join(MARKER), marker).unwrap();
            }
            for file in files {
                std::fs::write(folder.join(file), "mine").unwrap();
            }
            folder
        };
        // Names that only look like it, an empty folder among them.
        let others = [
            make("results", Some(MARK), &["write-0"]),
            make("2024-backup", Some(MARK), &["write-0"]),
            make("7-0-old", Some(MARK), &["write-0"]),
            make("notes", None, &[]),
        ];
        // The name is right, and the marker is somebody's file, or not there.
        let unmarked = [
            make("1-0", Some(b""), &["write-0"]),
            make("1-1", Some(b"pathline storage folder\nand more"), &["read-5eed"]),
            make("1-2", None, &["write-0"]),
        ];
        // The marked folder holds other files as well.
        let mixed = make(
            "2-0",
            Some(MARK),
            &["read-me.txt", "write-up.docx", "read-", "write-1a", ".nfs-notes", "read-5eed"],
        );
        let swept = ScratchDir::sweep(dir.path());
        assert_eq!(swept.removed, Vec::<PathBuf>::new());
        let left: Vec<&PathBuf> = swept.left.iter().map(|(folder, _)| folder).collect();
        assert_eq!(left.len(), 4, "{swept:?}");
        assert!(unmarked.iter().chain([&mixed]).all(|folder| left.contains(&folder)));
        let mine = |folder: &Path, file: &str| {
            std::fs::read(folder.join(file)).is_ok_and(|bytes| bytes == b"mine")
        };
        assert!(others[..3].iter().all(|folder| mine(folder, "write-0")) && others[3].exists());
        assert!(mine(&unmarked[0], "write-0") && mine(&unmarked[1], "read-5eed"));
        assert!(mine(&unmarked[2], "write-0"));
        for file in ["read-me.txt", "write-up.docx", "read-", "write-1a", ".nfs-notes"] {
            assert!(mine(&mixed, file), "{file}");
        }
        assert!(!mixed.join("read-5eed").exists());
    }
}
