//! A worker of metadata operations: creates, asks for, reads and removes many small files and folders.

use std::ffi::CStr;
use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use pathline_hal::{CallError, CallResult};
use pathline_host::clock::ClockOrigin;
use pathline_host::pattern;
use pathline_schema::{Bytes, IoFiles, MetaOp, MetaSpec, Severity};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::io_error;
use super::io_tally::{CallTimes, IoTimes};
use super::own_name::OwnName;
use super::round_progress::{RoundProgress, RoundReport};
use super::worker_pool::{CallTallies, RoundWorker, WorkerFactory};

/// Most operations of a worker in a check.
const CHECKED: u64 = 64;
/// Bytes of names that one call returns at most: as many as `readdir` of the C library asks for.
const LIST_ROOM: usize = 32 << 10;
/// Operations between two looks at whether another worker has failed.
const LOOK_EVERY: u64 = 16;

/// The tree and the names in it.
#[derive(Debug, Clone)]
pub(super) struct TreeLayout {
    pub(super) meta: MetaSpec,
    /// Content of each file in bytes; 0 of empty ones.
    pub(super) content: u64,
    /// The pattern of the contents.
    pub(super) seed: u64,
    /// The folder of the tree, by which all names in it are looked up.
    pub(super) root: Arc<OwnedFd>,
    /// Its path, for errors.
    pub(super) path: PathBuf,
}

/// A name relative to the tree's folder, with its zero byte.
#[derive(Debug, Default)]
pub(super) struct ItemName(String);

impl ItemName {
    fn set(&mut self, text: std::fmt::Arguments<'_>) -> &CStr {
        self.0.clear();
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
        self.0.push('\0');
        CStr::from_bytes_until_nul(self.0.as_bytes()).unwrap_or_default()
    }
    fn text(&self) -> &str {
        self.0.trim_end_matches('\0')
    }
}

impl TreeLayout {
    /// The folder that worker `worker`'s `nth` folder is: one that no other worker uses, or one that all share.
    fn parent(&self, worker: usize, nth: u64) -> (u64, u64) {
        match self.meta.folders {
            IoFiles::Own => (worker as u64, nth),
            IoFiles::Shared | IoFiles::Each => (0, nth),
        }
    }

    /// The folders that hold all items.
    pub(super) fn parents(&self) -> impl Iterator<Item = String> + use<> {
        let each = if self.meta.op.is_of_folders() { 1 } else { self.meta.dirs };
        let owners = match self.meta.folders {
            IoFiles::Own => self.meta.threads,
            IoFiles::Shared | IoFiles::Each => 1,
        };
        (0..owners).flat_map(move |owner| {
            (0..each).map(move |nth| OwnName::Folder(owner.into(), nth.into()).to_string())
        })
    }

    /// The name of an item of a worker.
    pub(super) fn name<'n>(&self, name: &'n mut ItemName, worker: usize, item: u64) -> &'n CStr {
        if self.meta.op.is_of_folders() {
            let (owner, nth) = self.parent(worker, 0);
            let (folder, item) =
                (OwnName::Folder(owner, nth), OwnName::Folder(worker as u64, item));
            return name.set(format_args!("{folder}/{item}"));
        }
        let files = u64::from(self.meta.files.max(1));
        let (owner, nth) = self.parent(worker, item / files);
        let file = OwnName::File(worker as u64, item % files);
        name.set(format_args!("{}/{file}", OwnName::Folder(owner, nth)))
    }

    /// The first bytes of a file, which differ from those of all others.
    fn first_word(&self, worker: usize, item: u64) -> [u8; 8] {
        let number = worker as u64 * self.meta.items_each() + item;
        pathline_hal::pattern::word(self.seed ^ u64::MAX, number).to_le_bytes()
    }

    /// Fills a buffer with the pattern that all files have after their first word.
    fn fill(&self, buffer: &mut [u8]) {
        pattern::fill_part(buffer, 0, self.seed);
    }

    fn sign(&self, buffer: &mut [u8], worker: usize, item: u64) {
        for (byte, of) in buffer.iter_mut().zip(self.first_word(worker, item)) {
            *byte = of;
        }
    }

    /// Why an item is not as it must be; none if it is.
    pub(super) fn find_wrong(
        &self,
        name: &mut ItemName,
        (worker, item): (usize, u64),
        buffers: (&mut Vec<u8>, &mut Vec<u8>),
    ) -> io::Result<Option<String>> {
        let at = self.name(name, worker, item);
        let stat = rustix::fs::statat(&*self.root, at, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if self.meta.op.is_of_folders() {
            return Ok((kind != FileType::Directory).then(|| "it is no folder".to_owned()));
        }
        let size = stat.st_size.cast_unsigned();
        if kind != FileType::RegularFile || size != self.content {
            return Ok(Some(format!("it has {}, not {}", Bytes(size), Bytes(self.content))));
        }
        if self.content == 0 {
            return Ok(None);
        }
        let (expected, read) = buffers;
        let len = usize::try_from(self.content).unwrap_or(0);
        expected.resize(len, 0);
        read.clear();
        read.resize(len, 0);
        self.fill(expected);
        self.sign(expected, worker, item);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&*self.root, at, flags, Mode::empty())?;
        read_whole(&file, read)?;
        let wrong = expected.iter().zip(read.iter()).position(|(a, b)| a != b);
        Ok(wrong.map(|offset| format!("the byte at offset {offset} is not the one written")))
    }
}

/// The names in a folder that is open, without `.` and `..`.
fn count_names(folder: &OwnedFd, room: &mut Vec<u8>) -> io::Result<u64> {
    room.clear();
    room.reserve(LIST_ROOM);
    let mut names = rustix::fs::RawDir::new(folder, room.spare_capacity_mut());
    let mut count = 0;
    while let Some(entry) = names.next() {
        count += u64::from(!matches!(entry?.file_name().to_bytes(), b"." | b".."));
    }
    Ok(count)
}

fn read_whole(file: &OwnedFd, buffer: &mut [u8]) -> io::Result<()> {
    match rustix::io::read(file, &mut *buffer)? {
        n if n == buffer.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Times of the calls of an operation.
#[derive(Debug, Default)]
struct MetaCalls {
    open: CallTimes,
    data: CallTimes,
    sync: CallTimes,
    close: CallTimes,
    other: CallTimes,
}

/// A thread's own things.
pub(super) struct MetaWorker {
    index: usize,
    tree: TreeLayout,
    name: ItemName,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    /// The items that exist, from a first one on.
    made: Range<u64>,
    next: u64,
    /// Names that the last listing had.
    listed: u64,
    latency: IoTimes,
    calls: MetaCalls,
}

impl MetaWorker {
    fn new(index: usize, tree: TreeLayout) -> Self {
        let mut buffer = vec![0; usize::try_from(tree.content).unwrap_or(0)];
        tree.fill(&mut buffer);
        Self {
            index,
            tree,
            name: ItemName::default(),
            buffer,
            scratch: Vec::new(),
            made: 0..0,
            next: 0,
            listed: 0,
            latency: IoTimes::new(),
            calls: MetaCalls::default(),
        }
    }

    /// The function that an operation is named after.
    fn call(&self) -> &'static str {
        match self.tree.meta.op {
            MetaOp::Create | MetaOp::CreateSync | MetaOp::Read => "openat",
            MetaOp::List => "getdents64",
            MetaOp::Stat => "fstatat",
            MetaOp::Mkdir => "mkdirat",
            MetaOp::Delete | MetaOp::Rmdir => "unlinkat",
        }
    }

    fn failed(&self, call: &str, error: &io::Error) -> CallError {
        let thing = self.tree.path.join(self.name.text());
        let failed = io_error::on(call, &thing, error);
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => {
                failed.or_try("no room or no inodes are left: use fewer files or smaller ones")
            }
            Some(libc::EMLINK) => {
                failed.or_try("a folder holds no more folders here: use fewer of them")
            }
            _ => failed,
        }
    }

    fn create(&mut self, item: u64, origin: ClockOrigin) -> CallResult<()> {
        self.tree.sign(&mut self.buffer, self.index, item);
        let begun = origin.ns();
        let name = self.tree.name(&mut self.name, self.index, item);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = rustix::fs::openat(&*self.tree.root, name, flags, mode);
        let file = opened.map_err(|error| self.failed("openat", &error.into()))?;
        let mut at = origin.ns();
        self.calls.open.add(at - begun);
        if !self.buffer.is_empty() {
            let wrote = rustix::io::write(&file, &self.buffer);
            let wrote = wrote.map_err(|error| self.failed("write", &error.into()))?;
            if wrote != self.buffer.len() {
                let full = io::Error::from_raw_os_error(libc::ENOSPC);
                return Err(self.failed("write", &full));
            }
            let written = origin.ns();
            self.calls.data.add(written - at);
            at = written;
        }
        if self.tree.meta.op == MetaOp::CreateSync {
            let synced = rustix::fs::fsync(&file);
            synced.map_err(|error| self.failed("fsync", &error.into()))?;
            let durable = origin.ns();
            self.calls.sync.add(durable - at);
            at = durable;
        }
        // Network file systems report a failed write here.
        close(file).map_err(|error| self.failed("close", &error))?;
        self.calls.close.add(origin.ns() - at);
        Ok(())
    }

    fn read(&mut self, item: u64, origin: ClockOrigin) -> CallResult<()> {
        let begun = origin.ns();
        let name = self.tree.name(&mut self.name, self.index, item);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&*self.tree.root, name, flags, Mode::empty());
        let file = opened.map_err(|error| self.failed("openat", &error.into()))?;
        let mut at = origin.ns();
        self.calls.open.add(at - begun);
        if !self.buffer.is_empty() {
            let read = read_whole(&file, &mut self.buffer);
            read.map_err(|error| self.failed("read", &error))?;
            let done = origin.ns();
            self.calls.data.add(done - at);
            at = done;
        }
        close(file).map_err(|error| self.failed("close", &error))?;
        self.calls.close.add(origin.ns() - at);
        Ok(())
    }

    /// Lists the folder of an item.
    fn list(&mut self, item: u64, origin: ClockOrigin) -> CallResult<()> {
        let files = u64::from(self.tree.meta.files.max(1));
        let (owner, nth) = self.tree.parent(self.index, item / files);
        let begun = origin.ns();
        let name = self.name.set(format_args!("{}", OwnName::Folder(owner, nth)));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&*self.tree.root, name, flags, Mode::empty());
        let folder = opened.map_err(|error| self.failed("openat", &error.into()))?;
        let mut at = origin.ns();
        self.calls.open.add(at - begun);
        let counted = count_names(&folder, &mut self.scratch);
        self.listed = counted.map_err(|error| self.failed("getdents64", &error))?;
        let done = origin.ns();
        self.calls.other.add(done - at);
        at = done;
        close(folder).map_err(|error| self.failed("close", &error))?;
        self.calls.close.add(origin.ns() - at);
        Ok(())
    }

    /// One operation by one call.
    fn plain(&mut self, item: u64, op: MetaOp, origin: ClockOrigin) -> CallResult<()> {
        let begun = origin.ns();
        let name = self.tree.name(&mut self.name, self.index, item);
        let root = self.tree.root.as_fd();
        let done = match op {
            MetaOp::Stat => rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW).map(drop),
            MetaOp::Mkdir => rustix::fs::mkdirat(root, name, Mode::RWXU),
            MetaOp::Rmdir => rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR),
            _ => rustix::fs::unlinkat(root, name, AtFlags::empty()),
        };
        done.map_err(|error| self.failed(self.call(), &error.into()))?;
        self.calls.other.add(origin.ns() - begun);
        Ok(())
    }

    /// Removes the file of a creation that failed after it was opened.
    fn take_back(&mut self, item: u64) {
        let name = self.tree.name(&mut self.name, self.index, item);
        let _ = rustix::fs::unlinkat(&*self.tree.root, name, AtFlags::empty());
    }

    fn operate(&mut self, item: u64, op: MetaOp, origin: ClockOrigin) -> CallResult<()> {
        match op {
            MetaOp::Create | MetaOp::CreateSync => {
                let created = self.create(item, origin);
                // A file that could not be opened is not this one's.
                if created.as_ref().is_err_and(|error| error.call != "openat") {
                    self.take_back(item);
                }
                created
            }
            MetaOp::Read => self.read(item, origin),
            MetaOp::List => self.list(item, origin),
            _ => self.plain(item, op, origin),
        }
    }

    /// The item of the round's next operation.
    fn next_item(&self) -> u64 {
        match self.tree.meta.op {
            MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir => self.made.end,
            MetaOp::Delete | MetaOp::Rmdir => self.made.start,
            MetaOp::Stat | MetaOp::Read | MetaOp::List => self.next,
        }
    }

    /// Notes that the operation on the next item has succeeded.
    fn advance(&mut self) {
        match self.tree.meta.op {
            MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir => self.made.end += 1,
            MetaOp::Delete | MetaOp::Rmdir => self.made.start += 1,
            // Listings go from folder to folder.
            MetaOp::List => {
                let files = u64::from(self.tree.meta.files.max(1));
                self.next = (self.next + files) % self.tree.meta.items_each().max(1);
            }
            MetaOp::Stat | MetaOp::Read => {
                self.next = (self.next + 1) % self.tree.meta.items_each().max(1);
            }
        }
    }

    /// Creates or removes items until a round of `ops` operations can run.
    fn bring_about(&mut self, ops: u64, origin: ClockOrigin) -> CallResult<()> {
        let all = self.tree.meta.items_each();
        let folders = self.tree.meta.op.is_of_folders();
        let (make, remove) =
            if folders { (MetaOp::Mkdir, MetaOp::Rmdir) } else { (MetaOp::Create, MetaOp::Delete) };
        match self.tree.meta.op {
            MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir => {
                while !self.made.is_empty() {
                    self.operate(self.made.start, remove, origin)?;
                    self.made.start += 1;
                }
                self.made = 0..0;
            }
            op => {
                let wanted = if op.is_once() { ops.min(all) } else { all };
                // Those left over by the last round keep their places at the end.
                while self.made.end - self.made.start < wanted {
                    if self.made.end < all {
                        self.operate(self.made.end, make, origin)?;
                        self.made.end += 1;
                    } else {
                        self.operate(self.made.start - 1, make, origin)?;
                        self.made.start -= 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, progress: &RoundProgress, ops: u64, landing: bool) -> CallResult<()> {
        let (op, origin) = (self.tree.meta.op, progress.origin);
        for done in 0..ops {
            if done.is_multiple_of(LOOK_EVERY) && progress.has_failed() {
                break;
            }
            let item = self.next_item();
            if landing && op == MetaOp::Read {
                self.buffer.fill(0);
            }
            let begun = origin.ns();
            self.operate(item, op, origin)?;
            self.latency.add(origin.ns() - begun);
            self.advance();
            progress.set_done(self.index, done + 1);
            if landing {
                self.check(item)?;
            }
        }
        Ok(())
    }

    /// Compares the result of an operation; what it leaves in the folders is compared afterwards.
    fn check(&mut self, item: u64) -> CallResult<()> {
        let op = self.tree.meta.op;
        let wrong = match op {
            MetaOp::Read => {
                self.scratch.resize(self.buffer.len(), 0);
                self.tree.fill(&mut self.scratch);
                self.tree.sign(&mut self.scratch, self.index, item);
                let wrong = self.buffer.iter().zip(&self.scratch).position(|(a, b)| a != b);
                wrong.map(|at| format!("the byte at offset {at} is not the one written"))
            }
            MetaOp::Delete | MetaOp::Rmdir => {
                let name = self.tree.name(&mut self.name, self.index, item);
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                let there = rustix::fs::statat(&*self.tree.root, name, flags).is_ok();
                there.then(|| "it still exists".to_owned())
            }
            MetaOp::List => {
                let own = u64::from(self.tree.meta.files.max(1));
                let workers = u64::from(self.tree.meta.threads);
                let shared = self.tree.meta.folders == IoFiles::Shared;
                let wanted = if shared { own * workers } else { own };
                let listed = self.listed;
                (listed != wanted)
                    .then(|| format!("it lists {listed} files, and {wanted} were made"))
            }
            MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir | MetaOp::Stat => {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let at = (self.index, item);
                let found = self.tree.find_wrong(&mut self.name, at, (&mut a, &mut b));
                found.map_err(|error| self.failed("verify", &error))?
            }
        };
        wrong.map_or(Ok(()), |reason| {
            let thing = self.tree.path.join(self.name.text()).display().to_string();
            Err(CallError::new(Severity::Corrupt, "verify", thing, reason)
                .or_try("rerun this case alone; if it repeats, suspect the file system"))
        })
    }

    fn account(&mut self, report: &mut RoundReport) {
        report.latency = self.latency.take();
        let MetaCalls { open, data, sync, close, other } = std::mem::take(&mut self.calls);
        let moved = if self.tree.meta.op.creates_files() { "write" } else { "read" };
        let all = [
            ("openat", open),
            (moved, data),
            ("fsync", sync),
            ("close", close),
            (self.call(), other),
        ];
        report.calls.extend(all.into_iter().filter(|(_, calls)| calls.count > 0));
    }
}

/// Closes a file and returns what closing it reports.
fn close(file: OwnedFd) -> io::Result<()> {
    // SAFETY: the number is this function's alone, and is not used again.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl RoundWorker for MetaWorker {
    fn index(&self) -> usize {
        self.index
    }

    fn describe(&self) -> String {
        let content = self.tree.content > 0;
        match self.tree.meta.op {
            MetaOp::Create if content => "openat, write, close".to_owned(),
            MetaOp::CreateSync if content => "openat, write, fsync, close".to_owned(),
            MetaOp::CreateSync => "openat, fsync, close".to_owned(),
            MetaOp::List => "openat, getdents64, close".to_owned(),
            MetaOp::Read if content => "openat, read, close".to_owned(),
            MetaOp::Create | MetaOp::Read => "openat, close".to_owned(),
            _ => self.call().to_owned(),
        }
    }

    fn landing_ops(&self) -> u64 {
        self.tree.meta.items_each().min(CHECKED)
    }

    fn arrange(&mut self, progress: &RoundProgress, ops: u64) {
        if let Err(error) = self.bring_about(ops, progress.origin) {
            progress.fail(error);
        }
        self.calls = MetaCalls::default();
    }

    fn round(&mut self, progress: &RoundProgress, ops: u64, landing: bool) -> RoundReport {
        let mut report = progress.timed(ops, || self.run(progress, ops, landing));
        self.account(&mut report);
        report
    }

    fn close(&mut self, _: ClockOrigin, _: &mut CallTallies) {}
}

/// The parts from which a thread makes its worker.
pub(super) struct MetaRecipe {
    pub(super) index: usize,
    pub(super) tree: TreeLayout,
}

impl WorkerFactory for MetaRecipe {
    fn make(self: Box<Self>, _: &mut CallTallies) -> CallResult<Box<dyn RoundWorker>> {
        Ok(Box::new(MetaWorker::new(self.index, self.tree)))
    }
}
