//! A folder for this process alone inside the folder that the user named. The process holds a lock
//! on it: a folder without a lock was left behind by a process that has ended.

use std::cell::RefCell;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathline_dylib::open_plain;
use pathline_hal::{CallError, CallResult};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, unlinkat};
use rustix::io::Errno;

use super::own_name::{OwnName, RunFolder};
use super::{io_error, scratch_tree};
use pathline_host::clock;

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

/// The machine in names of folders: a lock may not be seen from another one.
fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Whether a file system has given that name to a file of this program that was open when it was removed.
fn is_hidden_name(name: &str) -> bool {
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let mut rest = HIDDEN.iter().filter_map(|begin| name.strip_prefix(begin));
    rest.any(|number| !number.is_empty() && number.bytes().all(digit))
}

impl ScratchDir {
    /// Makes a folder in `parent`.
    pub(super) fn new(parent: &Path) -> CallResult<Self> {
        for number in 0..1000 {
            let own = RunFolder { host: host(), process: std::process::id(), number };
            let folder = parent.join(own.to_string());
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
        let free = (0..)
            .map(|number| self.folder.join(OwnName::Tree(number).to_string()))
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
        let opened = scratch_tree::open(&self.inside, &*name);
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
        if let Some(name) = name.to_str().filter(|name| OwnName::is_tree(name)) {
            return scratch_tree::remove(&self.inside, name).unwrap_or(false);
        }
        matches!(unlinkat(&self.inside, name, AtFlags::empty()), Ok(()) | Err(Errno::NOENT))
    }

    /// Removes the folders of processes that are gone.
    pub(super) fn sweep(parent: &Path) -> SweepResult {
        let (here, mut swept) = (host(), SweepResult::default());
        let all = match std::fs::read_dir(parent) {
            Ok(all) => all,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return swept,
            Err(error) => return SweepResult { unseen: Some(error_text(&error)), ..swept },
        };
        let ours = all.flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().and_then(|name| RunFolder::parse(name.to_str()?));
            name.is_some_and(|name| name.host == here)
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
    let parts = name
        .split_once('/')
        .filter(|(folder, file)| RunFolder::parse(folder).is_some() && OwnName::is_file(file));
    let (folder, file) = parts.ok_or_else(|| refused("this is no name of a file of pathline"))?;
    let folder = parent.join(folder);
    let meta = std::fs::symlink_metadata(&folder);
    let meta = meta.map_err(|error| refused(&error_text(&error)))?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it is not of this user"));
    }
    let marker = open_plain(&folder.join(MARKER), false, libc::O_NOFOLLOW);
    match marker.and_then(|marker| has_mark(&marker)) {
        Ok(true) => {}
        Ok(false) => return Err(refused("its folder lacks the mark of this program")),
        Err(error) => return Err(refused(&error_text(&error))),
    }
    let path = folder.join(file);
    open_plain(&path, false, libc::O_NOFOLLOW).map_err(|error| refused(&error_text(&error)))?;
    Ok(path)
}

/// Whether a marker says that its folder is this program's.
fn has_mark(marker: &File) -> io::Result<bool> {
    let mut mark = Vec::new();
    marker.take(MARK.len() as u64 + 1).read_to_end(&mut mark)?;
    Ok(mark == MARK)
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
    let named = folder;
    let inside = match scratch_tree::open(CWD, folder) {
        Ok(inside) => inside,
        Err(error) => return FolderFate::Stays(error_text(&error)),
    };
    // The folder that was looked at, whatever its name leads to by now.
    let folder = PathBuf::from(format!("/proc/self/fd/{}", inside.as_raw_fd()));
    let path = folder.join(MARKER);
    let open = |write: bool| open_plain(&path, write, libc::O_NOFOLLOW);
    // Network file systems lock only files that are open for writing. On a file system that has
    // become read-only the lock can still be queried.
    let marker = match open(true).or_else(|_| open(false)) {
        Ok(marker) => marker,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Its process ended between two calls: only an empty folder can be its.
            return remove_folder(named, None);
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
    match has_mark(&marker) {
        Ok(true) => {}
        Ok(false) => {
            return FolderFate::Stays(format!(
                "its {MARKER} lacks the mark of this program; remove it by hand if it is not needed"
            ));
        }
        Err(error) => return FolderFate::Stays(error_text(&error)),
    }
    let all = match std::fs::read_dir(&folder) {
        Ok(all) => all,
        Err(error) => return FolderFate::Stays(error_text(&error)),
    };
    for entry in all.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let name = entry.file_name().to_string_lossy().into_owned();
        if OwnName::is_tree(&name) {
            if let Err(error) = scratch_tree::remove(&inside, &name) {
                return FolderFate::Stays(error_text(&error));
            }
            continue;
        }
        if is_file
            && (OwnName::is_file(&name) || is_hidden_name(&name))
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
        _ => remove_folder(named, Some(marker)),
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
        names.all(|entry| is_hidden_name(&entry.file_name().to_string_lossy()))
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
    use super::super::own_name::PREFIX;
    use super::*;

    /// The name of a folder of this host.
    fn folder_name(rest: &str) -> String {
        format!("{PREFIX}{}-{rest}", host())
    }

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
        let gone = dir.path().join(folder_name("1-0"));
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
        let link = dir.path().join(folder_name("2-0"));
        std::os::unix::fs::symlink(victim.path(), &link).unwrap();
        let swept = ScratchDir::sweep(dir.path());
        assert_eq!((swept.removed.as_slice(), swept.left.len()), (std::slice::from_ref(&gone), 0));
        assert!(!gone.exists() && foreign.join("write-0").exists());
        assert!(victim.path().join("write-0").exists() && link.exists());
    }

    #[test]
    fn no_fifo_holds_a_sweep_and_no_link_leads_it_out() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, linked) =
            (dir.path().join(folder_name("1-0")), dir.path().join(folder_name("1-1")));
        let victim = tempfile::tempdir().unwrap();
        for folder in [&fifo, &linked] {
            std::fs::create_dir(folder).unwrap();
        }
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(CWD, fifo.join(MARKER), mode).unwrap();
        rustix::fs::mkfifoat(CWD, linked.join("write-1"), mode).unwrap();
        std::fs::write(linked.join(MARKER), MARK).unwrap();
        std::fs::write(victim.path().join("write-0"), "mine").unwrap();
        for name in ["tree-0", "write-0"] {
            std::os::unix::fs::symlink(victim.path(), linked.join(name)).unwrap();
        }
        let swept = ScratchDir::sweep(dir.path());
        assert_eq!((swept.removed.len(), swept.left.len()), (0, 2), "{swept:?}");
        let why =
            swept.left.iter().find(|(folder, _)| *folder == fifo).map(|(_, why)| why.as_str());
        assert_eq!(why, Some("no plain file but a FIFO"));
        assert!(victim.path().join("write-0").exists());
        // Nor is one read that another rank names.
        let name = format!("{}/write-1", folder_name("1-1"));
        assert!(find_foreign(dir.path(), &name).unwrap_err().reason.contains("a FIFO"));
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
        let gone = dir.path().join(folder_name("1-0"));
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
        let other = dir.path().join(folder_name("1-0"));
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
            let folder = dir.path().join(folder_name(folder));
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
