//! Places for files: a folder, in which files are made and taken back, or a file or block device that
//! was named.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use pathline_hal::{CallError, CallResult};
use pathline_schema::{Bytes, Severity, StoreFacts};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

use super::object::{BucketPlace, is_bucket};
use super::own_name::OwnName;
use super::scratch_dir::ScratchDir;
use super::{aligned_buffer, facts, io_error, scratch_dir};
use pathline_host::files;

/// Share of a file system that stays free, and the least.
const RESERVE_SHARE: u64 = 20;
const RESERVE_LEAST: u64 = 1 << 30;

/// Room that a file takes for itself and its entry in a folder at most, and the unit of its content.
const INODE_ROOM: u64 = 4096;

/// Default size of a file, and the largest part of the free space that it may take (1 of 4).
const USUAL_SPAN: Bytes = Bytes::gib(1);
const FREE_PARTS: u64 = 4;
const SPAN_UNIT: Bytes = Bytes::mib(1);

/// A place for files that a run was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreRequest {
    /// A folder, a file or a block device.
    pub path: PathBuf,
    /// Size of each file; a usual one if none.
    pub span: Option<Bytes>,
    /// Whether what a file or device holds may be lost.
    pub overwrite: bool,
    /// The server of buckets: `http://127.0.0.1:9000`; that of the environment if none.
    pub endpoint: Option<String>,
}

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathKind {
    Folder,
    /// Its size in bytes.
    File(u64),
    Device(u64),
    /// A bucket of an object store.
    Bucket,
}

/// The file system and device of a place, and why it cannot be measured. Writes nothing.
pub(super) fn examine(asked: &StoreRequest) -> (PathKind, StoreFacts) {
    if is_bucket(&asked.path) {
        return (PathKind::Bucket, BucketPlace::new(asked).1);
    }
    let mut facts = facts::facts(&asked.path);
    let what = match path_kind(&asked.path) {
        Ok(what) => what,
        Err(why) => {
            facts.without = Some(why);
            PathKind::Folder
        }
    };
    if let (PathKind::Device(_), true, None) = (what, asked.overwrite, &facts.without) {
        facts.without = in_use(&asked.path);
    }
    let usual = Bytes(facts.free.0 / FREE_PARTS).min(USUAL_SPAN);
    let most = match what {
        _ if facts.without.is_some() => asked.span.unwrap_or(USUAL_SPAN),
        PathKind::Folder | PathKind::Bucket => asked.span.unwrap_or(usual),
        PathKind::File(size) | PathKind::Device(size) => {
            asked.span.unwrap_or(USUAL_SPAN).min(Bytes(size))
        }
    };
    // Whole blocks of any usual size.
    facts.span = if most > SPAN_UNIT { Bytes(most.0 / SPAN_UNIT.0 * SPAN_UNIT.0) } else { most };
    (what, facts)
}

/// A file.
#[derive(Debug)]
pub(super) struct FileEntry {
    pub(super) path: PathBuf,
    /// Bytes of it that have been written, from its start.
    size: Cell<u64>,
    /// The pattern that they are, if they are one.
    seed: Cell<Option<u64>>,
    /// It was named, and not made here.
    given: bool,
    /// It is a device that must be exclusive once it is written to.
    exclusive: bool,
    /// The exclusive claim on the device: one for all opened files, since a second claim would be
    /// refused.
    claim: OnceCell<File>,
}

impl FileEntry {
    /// Opens it for I/O.
    pub(super) fn open(&self, direct: bool, write: bool) -> CallResult<Arc<File>> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        self.open_with(flags, write).map(Arc::new).map_err(|error| {
            let refused = direct && error.raw_os_error() == Some(libc::EINVAL);
            let failed = io_error::on("open", &self.path, &error);
            if !refused {
                return failed;
            }
            CallError::unsupported("open", failed.thing, "its file system has no direct I/O")
                .with_code(libc::EINVAL.into())
                .or_try("measure it cached or cold, or name a folder on another file system")
        })
    }

    fn open_with(&self, flags: i32, write: bool) -> io::Result<File> {
        if self.exclusive && write && self.claim.get().is_none() {
            let claim =
                OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&self.path)?;
            let _ = self.claim.set(claim);
        }
        // A named path may be a link; a file made here is none.
        let here = if self.given { 0 } else { libc::O_NOFOLLOW };
        let flags = flags | here;
        let open =
            |flags| OpenOptions::new().read(true).write(write).custom_flags(flags).open(&self.path);
        // When it was last read by its owner stays known, and the kernel does not look at it for each
        // I/O. Of files of others that cannot be asked for.
        match open(flags | libc::O_NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(flags),
            opened => opened,
        }
    }

    /// Notes that it no longer holds a pattern.
    pub(super) fn written(&self) {
        self.seed.set(None);
    }
    /// Whether it holds the pattern.
    pub(super) fn holds(&self, seed: u64, span: u64) -> bool {
        self.seed.get() == Some(seed) && self.size.get() >= span
    }

    /// Writes the pattern where it is not yet, and brings it to the device.
    fn lay(&self, span: u64, seed: u64) -> CallResult<()> {
        let from = if self.seed.get() == Some(seed) { self.size.get() } else { 0 };
        if from >= span {
            return Ok(());
        }
        // Past the page cache where that can be: it would push out what others have there.
        let whole = from.is_multiple_of(4096) && span.is_multiple_of(4096);
        let direct = whole.then(|| self.open_with(libc::O_DIRECT, true).ok()).flatten();
        let cached =
            || self.open_with(0, true).map_err(|error| io_error::on("open", &self.path, &error));
        self.seed.set(None);
        let failed = |error: &io::Error| io_error::on("pwrite", &self.path, error);
        let file = match direct {
            Some(file) => match aligned_buffer::write(&file, from, span, seed) {
                Ok(()) => file,
                // Some file systems open files for direct I/O and have none.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    let file = cached()?;
                    aligned_buffer::write(&file, from, span, seed)
                        .map_err(|error| failed(&error))?;
                    file
                }
                Err(error) => return Err(failed(&error)),
            },
            None => {
                let file = cached()?;
                aligned_buffer::write(&file, from, span, seed).map_err(|error| failed(&error))?;
                file
            }
        };
        file.sync_data().map_err(|error| io_error::on("fdatasync", &self.path, &error))?;
        forget(&file, span);
        self.size.set(span);
        self.seed.set(Some(seed));
        Ok(())
    }
}

/// Takes a file's pages out of the page cache, as far as they are unused. They must be clean.
pub(super) fn forget(file: &File, span: u64) {
    let _ = fadvise(file, 0, std::num::NonZeroU64::new(span), Advice::DontNeed);
}

/// A request for files.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedFiles {
    /// Number of the first file.
    pub(super) first: u64,
    pub(super) files: u64,
    pub(super) span: u64,
    pub(super) writes: bool,
    pub(super) seed: u64,
}

/// One of them.
#[derive(Debug)]
pub(super) struct StorePlace {
    pub(super) asked: StoreRequest,
    pub(super) what: PathKind,
    pub(super) facts: StoreFacts,
    /// The bucket that it is.
    pub(super) bucket: Option<Rc<BucketPlace>>,
    own: RefCell<Option<ScratchDir>>,
    /// By name; without one, the file or device that was given. Files to read hold a pattern until something
    /// writes to them.
    entries: RefCell<BTreeMap<Option<OwnName>, Rc<FileEntry>>>,
}

impl StorePlace {
    /// Looks at a path. What stands against it is in its facts.
    pub(super) fn new(asked: &StoreRequest) -> Self {
        let (what, facts, bucket) = if is_bucket(&asked.path) {
            let (bucket, facts) = BucketPlace::new(asked);
            (PathKind::Bucket, facts, bucket.map(Rc::new))
        } else {
            let (what, facts) = examine(asked);
            (what, facts, None)
        };
        if what == PathKind::Folder && facts.without.is_none() {
            ScratchDir::sweep(&asked.path);
        }
        Self {
            bucket,
            asked: asked.clone(),
            what,
            facts,
            own: RefCell::default(),
            entries: RefCell::default(),
        }
    }

    /// Whether it may be written to.
    pub(super) fn writable(&self) -> bool {
        self.what == PathKind::Folder || self.asked.overwrite
    }

    /// The files, with what they must hold.
    pub(super) fn files(&self, wanted: WantedFiles) -> CallResult<Vec<Rc<FileEntry>>> {
        if self.what != PathKind::Folder {
            return self.given(wanted).map(|entry| vec![entry]);
        }
        let name = |file| match wanted.writes {
            true => OwnName::Write(wanted.first + file),
            false => OwnName::Read(wanted.seed + file),
        };
        let keys: Vec<OwnName> = (0..wanted.files).map(name).collect();
        self.make_room(&keys, wanted.span)?;
        let mut all = Vec::with_capacity(keys.len());
        for (key, file) in keys.into_iter().zip(0..) {
            let entry = self.entry(key)?;
            if !(wanted.writes && entry.size.get() >= wanted.span) {
                let laid = reserve(&entry, wanted.span)
                    .and_then(|()| entry.lay(wanted.span, wanted.seed + file));
                if let Err(error) = laid {
                    // The incomplete file would take space that a smaller one needs.
                    drop((entry, all));
                    self.drop_files(&[]);
                    return Err(error);
                }
            }
            if wanted.writes {
                entry.written();
            }
            all.push(entry);
        }
        Ok(all)
    }

    /// The name of a file for other processes: its folder and its own; empty for one that was named.
    pub(super) fn name_of(&self, file: &FileEntry) -> String {
        let name = file.path.strip_prefix(&self.asked.path).ok().filter(|_| !file.given);
        name.map_or_else(String::new, |name| name.display().to_string())
    }

    /// A file that another process of this run has made in this place, or the file or device that was
    /// named. Its content is that process's to lay down.
    pub(super) fn foreign(&self, name: &str, wanted: WantedFiles) -> CallResult<Rc<FileEntry>> {
        if self.what != PathKind::Folder {
            return self.given(WantedFiles { writes: true, ..wanted }).inspect(|entry| {
                // Its owner has laid the pattern down, as far as it may.
                let laid = self.asked.overwrite && !wanted.writes;
                entry.size.set(wanted.span);
                entry.seed.set(laid.then_some(wanted.seed));
            });
        }
        let path = scratch_dir::find_foreign(&self.asked.path, name)?;
        let seed = Cell::new((!wanted.writes).then_some(wanted.seed));
        let (given, exclusive, claim) = (false, false, OnceCell::new());
        let entry = FileEntry { path, size: Cell::new(wanted.span), seed, given, exclusive, claim };
        let opened = entry.open(false, wanted.writes)?;
        let size = opened.metadata().map_err(|error| io_error::on("fstat", &entry.path, &error))?;
        if size.len() < wanted.span {
            return Err(self.too_short(size.len(), wanted.span));
        }
        Ok(Rc::new(entry))
    }

    /// An empty tree for `inodes` files and folders with `bytes` of content each: its path and its open folder.
    pub(super) fn tree(&self, inodes: u64, bytes: u64) -> CallResult<(PathBuf, OwnedFd)> {
        self.has_inodes(inodes, bytes)?;
        let mut own = self.own.borrow_mut();
        let own = match &mut *own {
            Some(own) => own,
            none => none.insert(ScratchDir::new(&self.asked.path)?),
        };
        let path = own.make_tree()?;
        let root = own.open_tree(&path).inspect_err(|_| own.take_back(&path))?;
        Ok((path, root))
    }

    /// Removes a tree with everything in it.
    pub(super) fn drop_tree(&self, path: &Path) {
        if let Some(own) = self.own.borrow().as_ref() {
            own.take_back(path);
        }
    }

    /// Refuses files and folders that the file system has no inodes or no room for.
    fn has_inodes(&self, inodes: u64, bytes: u64) -> CallResult<()> {
        let Some(left) = facts::inodes(&self.asked.path) else { return Ok(()) };
        let thing = || self.asked.path.display().to_string();
        let reserve = left.all_inodes / RESERVE_SHARE;
        // File systems without a fixed number of inodes report none at all.
        if left.all_inodes > 0 && inodes.saturating_add(reserve) > left.free_inodes {
            let reason = format!(
                "{inodes} files and folders are needed, {} inodes are free, and {reserve} of them \
                 stay free",
                left.free_inodes
            );
            return Err(CallError::new(Severity::Exhausted, "mkdir", thing(), reason)
                .or_try("use fewer files or workers, or another --store"));
        }
        let needed = inodes.saturating_mul(bytes.next_multiple_of(INODE_ROOM) + INODE_ROOM);
        let reserve = (left.all_bytes / RESERVE_SHARE).max(RESERVE_LEAST.min(left.all_bytes / 4));
        if needed.saturating_add(reserve) > left.free_bytes {
            let reason = format!(
                "{inodes} files and folders may take {}, {} are free, and {} of them stay free",
                Bytes(needed).rounded(),
                Bytes(left.free_bytes).rounded(),
                Bytes(reserve).rounded()
            );
            return Err(CallError::new(Severity::Exhausted, "mkdir", thing(), reason)
                .or_try("use fewer files, smaller ones, or another --store"));
        }
        Ok(())
    }

    /// The file or device that was named.
    fn given(&self, wanted: WantedFiles) -> CallResult<Rc<FileEntry>> {
        let path = &self.asked.path;
        let entry = self.entries.borrow().get(&None).cloned().unwrap_or_else(|| {
            Rc::new(FileEntry {
                path: path.clone(),
                size: Cell::new(0),
                seed: Cell::new(None),
                given: true,
                exclusive: matches!(self.what, PathKind::Device(_)),
                claim: OnceCell::new(),
            })
        });
        self.entries.borrow_mut().insert(None, Rc::clone(&entry));
        // It may have become shorter or been mounted since.
        let size = match path_kind(path) {
            Ok(PathKind::File(size) | PathKind::Device(size)) => size,
            Ok(PathKind::Folder | PathKind::Bucket) => 0,
            Err(why) => {
                return Err(CallError::unsupported("open", path.display().to_string(), why));
            }
        };
        if wanted.span > size {
            return Err(self.too_short(size, wanted.span));
        }
        if self.asked.overwrite {
            if wanted.writes {
                entry.written();
            } else {
                entry.lay(wanted.span, wanted.seed)?;
            }
        }
        Ok(entry)
    }

    pub(super) fn too_short(&self, size: u64, span: u64) -> CallError {
        let reason = format!("it has {}, and a span of {} is requested", Bytes(size), Bytes(span));
        CallError::unsupported("open", self.asked.path.display().to_string(), reason)
            .or_try("use a smaller --span; what was named is never made longer")
    }

    fn entry(&self, key: OwnName) -> CallResult<Rc<FileEntry>> {
        if let Some(entry) = self.entries.borrow().get(&Some(key)) {
            return Ok(Rc::clone(entry));
        }
        let mut own = self.own.borrow_mut();
        let own = match &mut *own {
            Some(own) => own,
            none => none.insert(ScratchDir::new(&self.asked.path)?),
        };
        let path = own.make(&key.to_string())?;
        let (size, seed) = (Cell::new(0), Cell::new(None));
        let (given, exclusive, claim) = (false, false, OnceCell::new());
        let entry = Rc::new(FileEntry { path, size, seed, given, exclusive, claim });
        self.entries.borrow_mut().insert(Some(key), Rc::clone(&entry));
        Ok(entry)
    }

    /// Removes files of earlier cases until the new ones fit and the reserve remains.
    fn make_room(&self, keys: &[OwnName], span: u64) -> CallResult<()> {
        let missing = |entries: &BTreeMap<Option<OwnName>, Rc<FileEntry>>| {
            let have = |key: &OwnName| entries.get(&Some(*key)).map_or(0, |e| e.size.get());
            keys.iter().fold(0u64, |sum, key| sum.saturating_add(span.saturating_sub(have(key))))
        };
        let short = || {
            let needed = missing(&self.entries.borrow());
            let (free, all) = facts::free(&self.asked.path)?;
            let reserve = (all / RESERVE_SHARE).max(RESERVE_LEAST.min(all / 4));
            (needed > 0 && needed.saturating_add(reserve) > free).then_some((needed, free, reserve))
        };
        if short().is_none() {
            return Ok(());
        }
        self.drop_files(keys);
        let Some((needed, free, reserve)) = short() else { return Ok(()) };
        let reason = format!(
            "{} more are needed, {} are free, and {} of them stay free",
            Bytes(needed).rounded(),
            Bytes(free).rounded(),
            Bytes(reserve).rounded()
        );
        let thing = self.asked.path.display().to_string();
        Err(CallError::new(Severity::Exhausted, "open", thing, reason)
            .or_try("use a smaller --span or fewer workers, or another --store"))
    }

    /// Takes back files that nobody has open, but for those.
    fn drop_files(&self, keep: &[OwnName]) {
        let own = self.own.borrow();
        let Some(own) = own.as_ref() else { return };
        self.entries.borrow_mut().retain(|key, entry| {
            let stays = key.is_some_and(|key| keep.contains(&key)) || Rc::strong_count(entry) > 1;
            if !stays {
                own.take_back(&entry.path);
            }
            stays
        });
    }
}

/// Has the file system find the blocks before they are written, in few pieces. Not all can.
fn reserve(entry: &FileEntry, span: u64) -> CallResult<()> {
    let file = entry.open(false, true)?;
    match fallocate(&*file, FallocateFlags::empty(), 0, span) {
        Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)) => {
            Err(io_error::on("fallocate", &entry.path, &error.into()))
        }
        _ => Ok(()),
    }
}

/// The kind of a path, or why it cannot be measured.
fn path_kind(path: &Path) -> std::result::Result<PathKind, String> {
    let meta = std::fs::metadata(path).map_err(|error| {
        let why = scratch_dir::error_text(&error);
        format!("{why}: name a folder, a file or a block device that is there")
    })?;
    let kind = meta.file_type();
    if kind.is_dir() {
        Ok(PathKind::Folder)
    } else if kind.is_file() {
        Ok(PathKind::File(meta.len()))
    } else if kind.is_block_device() {
        let number = facts::number(meta.rdev());
        let sectors = files::number(Path::new("/sys/dev/block").join(number).join("size"));
        let sectors = sectors.ok_or("the kernel does not report its size")?;
        Ok(PathKind::Device(sectors.saturating_mul(512)))
    } else {
        Err("it is no folder, file or block device".to_owned())
    }
}

/// Why a block device must not be written to: it is mounted, or another device uses it.
fn in_use(path: &Path) -> Option<String> {
    let number = facts::number(std::fs::metadata(path).ok()?.rdev());
    let mounts = facts::mounts(&files::text("/proc/self/mountinfo").unwrap_or_default());
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounted = |device: &str, source: Option<&Path>| {
        mounts
            .iter()
            .find(|m| m.device == device || source.is_some_and(|s| Path::new(&m.source) == s))
            .map(|m| format!("it is mounted at {}", m.at.display()))
    };
    let folder = std::fs::canonicalize(Path::new("/sys/dev/block").join(&number)).ok()?;
    let held = |folder: &Path| {
        let holder = std::fs::read_dir(folder.join("holders")).ok()?.flatten().next()?;
        Some(format!("{} is built on it", holder.file_name().to_string_lossy()))
    };
    // Its partitions lie in folders below.
    let parts = std::fs::read_dir(&folder).ok().into_iter().flatten().flatten().map(|e| e.path());
    let parts = parts.filter(|part| part.join("partition").exists());
    let of_part = |part: PathBuf| {
        let device = files::text(part.join("dev"))?;
        let why = mounted(device.trim(), None).or_else(|| held(&part))?;
        Some(format!("its partition {}: {why}", part.file_name()?.to_string_lossy()))
    };
    let swaps = files::text("/proc/swaps").unwrap_or_default();
    let swap = swaps.lines().any(|l| l.split_whitespace().next().map(Path::new) == Some(&whole));
    mounted(&number, Some(&whole))
        .or_else(|| held(&folder))
        .or_else(|| parts.into_iter().find_map(of_part))
        .or_else(|| swap.then(|| "the kernel swaps to it".to_owned()))
}
