//! Files of this machine: workers that read and write them by `io_uring`, native asynchronous I/O or
//! plain calls.
#![allow(unsafe_code)]

mod aio;
mod aligned_buffer;
mod block_error;
mod engine;
mod facts;
mod gds;
mod io_error;
mod io_tally;
mod kernel_helpers;
mod mapped;
mod meta_job;
mod meta_worker;
mod object;
mod own_name;
mod round_progress;
mod scratch_dir;
mod scratch_tree;
mod store_place;
#[cfg(test)]
mod tests;
mod uring;
mod wait_limit;
mod worker;
mod worker_pool;
mod worker_recipe;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use pathline_dylib::LibraryReport;
use pathline_hal::{
    CallError, CallResult, FilePart, FileStorage, GateId, IoDone, IoId, IoJob, LocalMemory,
    MetaJob, no_io, pattern,
};
use pathline_schema::{
    Bytes, CallTally, IoCache, IoEngine, IoFiles, IoOp, IoSpec, Severity, StoreFacts, VerifyResult,
};

use meta_job::LiveMeta;
use object::{BucketPlace, LiveObjects, LiveSmallObjects, ObjectJob, is_bucket};
use pathline_gpu::RuntimeFamily;
use pathline_host::clock::ClockOrigin;
use pathline_host::gate_table::GateTable;
use pathline_host::memory::{HostMemory, MappedMemory};
use store_place::{FileEntry, PathKind, StorePlace, WantedFiles};
use worker_pool::{RoundKind, WorkerThreads};
use worker_recipe::WorkerRecipes;

pub use object::reply::{ReplyHead, XmlText, error_texts, join_chunks, xml_texts};
pub use scratch_dir::SweepResult;
pub use store_place::StoreRequest;
pub use wait_limit::WaitLimit;

/// Most bytes of one block: system calls move at most 2 GiB.
const LARGEST_BLOCK: u64 = 1 << 30;
/// Most entries of a ring.
const DEEPEST: u32 = 32_768;
/// Content of spoilt files, which verification must reject.
const SPOILT: u64 = 0x5b01_17ed_5b01_17ed;

/// Why `io_uring` cannot be had; none if it can.
pub fn without_rings() -> Option<String> {
    let error = uring::probe().err()?;
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or(&text);
    Some(match error.raw_os_error() {
        Some(libc::ENOSYS) => format!(
            "the kernel has no io_uring here ({reason}): Linux 5.6 is needed, and a seccomp profile that lets it through; aio and sync go on without"
        ),
        Some(libc::EPERM | libc::EACCES) => format!(
            "io_uring is forbidden here ({reason}): set kernel.io_uring_disabled to 0, or take another seccomp profile; aio and sync go on without"
        ),
        _ => format!("no io_uring ({reason})"),
    })
}

/// The library of GPU direct that goes with a runtime, how the search for it went, and what there is to
/// know of this machine for it.
pub fn direct_library(family: RuntimeFamily) -> (LibraryReport, Vec<String>) {
    match gds::GdsLibrary::for_runtime(family.name) {
        Some(kind) => (gds::report(kind), gds::notes(kind)),
        None => {
            let what = family.caps().direct_library;
            let costs = format!("no library of GPU direct is known for {}", family.label);
            (
                LibraryReport {
                    what: what.into(),
                    costs: costs.into(),
                    ..LibraryReport::default()
                },
                Vec::new(),
            )
        }
    }
}

/// The file system and device of a place, and why it cannot be measured. Writes nothing.
pub fn facts(asked: &StoreRequest) -> StoreFacts {
    store_place::examine(asked).1
}

/// Removes what processes that were killed have left in a folder or bucket. `endpoint` is the server of
/// buckets, which answers within `limit`.
pub fn sweep(folder: &Path, endpoint: Option<&str>, limit: WaitLimit<'_>) -> SweepResult {
    if is_bucket(folder) {
        return BucketPlace::sweep(folder, endpoint, limit);
    }
    scratch_dir::ScratchDir::sweep(folder)
}

/// Lets a write past the limit of a file's size (`ulimit -f`) fail with EFBIG. By default the kernel
/// ends the process instead. Processes that are started later inherit it.
pub fn outlive_file_limit() {
    io_error::outlive_file_limit();
}

/// I/O that is open. Threads end before files are let go.
struct LiveIo {
    threads: WorkerThreads,
    files: Vec<Rc<FileEntry>>,
    store: u32,
    io: IoSpec,
    block: u64,
    host: LocalMemory,
    /// Requests of the device before the sample.
    requests: Cell<Option<u64>>,
    /// Whether the files hold the pattern of this seed.
    pattern: Option<u64>,
    /// Number of the first worker among those of all processes that share the file.
    first: u64,
}

/// The files of this machine.
pub struct LiveStorage {
    places: Vec<StorePlace>,
    memory: Rc<HostMemory>,
    gates: Rc<GateTable>,
    origin: ClockOrigin,
    open: RefCell<BTreeMap<IoId, LiveIo>>,
    trees: RefCell<BTreeMap<IoId, LiveMeta>>,
    objects: RefCell<BTreeMap<IoId, Box<dyn ObjectJob>>>,
    made: Cell<u64>,
    /// The library for GPU direct; `None` without a GPU.
    direct: Option<gds::GdsLibrary>,
    /// Why there are no rings; none if there are.
    no_rings: OnceCell<Option<String>>,
}

impl LiveStorage {
    /// `runtime` is that of the GPUs, as `hal::Driver` names it.
    pub fn new(
        asked: &[StoreRequest],
        runtime: Option<&str>,
        origin: ClockOrigin,
        memory: Rc<HostMemory>,
        gates: Rc<GateTable>,
    ) -> Self {
        if !asked.is_empty() {
            outlive_file_limit();
        }
        Self {
            places: asked.iter().map(StorePlace::new).collect(),
            memory,
            gates,
            origin,
            open: RefCell::default(),
            trees: RefCell::default(),
            objects: RefCell::default(),
            made: Cell::new(0),
            direct: runtime.and_then(gds::GdsLibrary::for_runtime),
            no_rings: OnceCell::new(),
        }
    }

    /// Why rings are not to be had.
    fn no_rings(&self) -> Option<&str> {
        let why = self.no_rings.get_or_init(without_rings);
        why.as_deref()
    }

    fn place(&self, store: u32) -> Option<&StorePlace> {
        self.places.get(store as usize)
    }

    fn with<T>(
        &self,
        call: &str,
        id: IoId,
        then: impl FnOnce(&LiveIo) -> CallResult<T>,
    ) -> CallResult<T> {
        self.open.borrow().get(&id).ok_or_else(|| no_io(call, id)).and_then(then)
    }

    fn unfit(&self, place: &StorePlace, io: &IoSpec, block: Bytes) -> Option<String> {
        if block.0 == 0 || block.0 > LARGEST_BLOCK {
            return Some(format!("a block is 1 B to {}", Bytes(LARGEST_BLOCK)));
        }
        if io.depth > DEEPEST {
            return Some(format!("a queue has at most {DEEPEST} entries"));
        }
        place
            .facts
            .cannot(io, block)
            .or_else(|| self.engine_unfit(io))
            .or_else(|| place_unfit(place, io))
    }

    fn open_job(&self, job: IoJob, seed: u64, part: Option<FilePart>) -> CallResult<IoId> {
        if let Some(why) =
            self.cannot(job.store, &job.io, job.block).or_else(|| part_unfit(&job, part.as_ref()))
        {
            return Err(CallError::unsupported("open", format!("{job:?}"), why));
        }
        if let Some(bucket) = self.bucket(job.store) {
            let cpus = self.turned_cpus(job.numa, job.workers.first_cpu);
            let open = LiveObjects::new(bucket, job, seed, &cpus, self.origin)?;
            return Ok(self.keep(Box::new(open)));
        }
        let files = self.prepare(&job, seed, part.as_ref())?;
        let held = files.iter().zip(0..).all(|(f, n)| f.holds(seed + n, job.io.span.0));
        let (io, block, store, host, numa) = (job.io, job.block.0, job.store, job.host, job.numa);
        let cpus = self.turned_cpus(numa, job.workers.first_cpu);
        let recruits = WorkerRecipes::new(job, &files, self.direct, self.origin, part.as_ref())?;
        let mut threads = WorkerThreads::new(recruits.all, &cpus, self.origin)?;
        for (name, calls) in recruits.calls {
            threads.opening.entry(name).or_default().add(calls);
        }
        let id = self.next_id();
        let pattern = held.then_some(seed);
        let first = part.map_or(0, |part| u64::from(part.first));
        let requests = Cell::new(None);
        let open = LiveIo { threads, files, store, io, block, host, requests, pattern, first };
        self.open.borrow_mut().insert(id, open);
        Ok(id)
    }

    fn next_id(&self) -> IoId {
        self.made.set(self.made.get() + 1);
        IoId(self.made.get())
    }

    fn bucket(&self, store: u32) -> Option<&Rc<BucketPlace>> {
        self.place(store).and_then(|place| place.bucket.as_ref())
    }

    fn keep(&self, job: Box<dyn ObjectJob>) -> IoId {
        let id = self.next_id();
        self.objects.borrow_mut().insert(id, job);
        id
    }

    /// The CPUs of a domain from the `first` on.
    fn turned_cpus(&self, numa: u32, first: u32) -> Vec<u32> {
        let mut cpus = self.allowed_cpus(numa);
        if !cpus.is_empty() {
            let turn = first as usize % cpus.len();
            cpus.rotate_left(turn);
        }
        cpus
    }

    /// The CPUs of a domain that this process may use now: ranks are kept to a part of them.
    fn allowed_cpus(&self, numa: u32) -> Vec<u32> {
        let all = self.memory.cpus(numa);
        let allowed = pathline_host::cpus::allowed().unwrap_or_default();
        let here: Vec<u32> =
            all.iter().copied().filter(|cpu| allowed.as_slice().contains(cpu)).collect();
        if here.is_empty() { all.to_vec() } else { here }
    }

    /// Why the engine is not to be had here.
    fn engine_unfit(&self, io: &IoSpec) -> Option<String> {
        match io.engine {
            IoEngine::Uring | IoEngine::UringPlain | IoEngine::UringPoll => {
                self.no_rings().map(str::to_owned)
            }
            IoEngine::Gds => gds::without(self.direct),
            IoEngine::Aio
            | IoEngine::Sync
            | IoEngine::Mmap
            | IoEngine::MmapPlain
            | IoEngine::MmapPopulate
            | IoEngine::S3 => None,
        }
    }

    fn prepare(
        &self,
        job: &IoJob,
        seed: u64,
        part: Option<&FilePart>,
    ) -> CallResult<Vec<Rc<FileEntry>>> {
        let place = self.place(job.store).ok_or_else(|| no_store(job.store))?;
        let (first, files) = (job.workers.first_file(&job.io), job.io.file_count());
        let (span, writes) = (job.io.span.0, job.io.writes());
        let wanted = WantedFiles { first, files, span, writes, seed };
        let files = match part.and_then(|part| part.name.as_deref()) {
            Some(name) => vec![place.foreign(name, wanted)?],
            None => place.files(wanted)?,
        };
        for entry in &files {
            // Pages left in the page cache would disturb direct and cold I/O.
            let file = entry.open(false, false)?;
            if job.io.cache == IoCache::Cached && job.io.op != IoOp::Write {
                let room = pathline_host::limits::free_anywhere().unwrap_or(u64::MAX);
                if span.saturating_mul(files.len() as u64) > room / 2 {
                    let thing = entry.path.display().to_string();
                    let reason = format!(
                        "{} of files do not fit into half of the {} of memory that are free",
                        Bytes(span.saturating_mul(files.len() as u64)).rounded(),
                        Bytes(room).rounded()
                    );
                    return Err(CallError::new(Severity::Exhausted, "open", thing, reason)
                        .or_try("use a smaller --span, or direct"));
                }
                let brought = aligned_buffer::bring_in(&file, span);
                brought.map_err(|error| io_error::on("pread", &entry.path, &error))?;
            } else {
                let _ = file.sync_data();
                store_place::forget(&file, span);
            }
        }
        Ok(files)
    }

    /// Memory that this host allocated, held as long as a round uses it.
    fn held(&self, at: LocalMemory) -> Option<Arc<MappedMemory>> {
        self.memory.range("submit", at.address, at.bytes).ok()
    }

    /// The blocks of each file that a check is about: the file, its number, and their range in it.
    fn landed(open: &LiveIo) -> impl Iterator<Item = (&Rc<FileEntry>, u64, std::ops::Range<u64>)> {
        let all = open.io.slots() * open.block;
        let each = all / (open.files.len() as u64).max(1);
        let from = open.first * u64::from(open.io.depth) * open.block;
        open.files.iter().zip(0..).map(move |(entry, file)| (entry, file, from..from + each))
    }
}

/// Why a part of a shared file does not fit; none if it does.
fn part_unfit(job: &IoJob, part: Option<&FilePart>) -> Option<String> {
    let part = part?;
    if job.io.files == IoFiles::Own {
        return Some("a file that several processes use is shared".to_owned());
    }
    if !job.block.0.is_multiple_of(8) {
        return Some("processes share files in blocks of whole words of 8 bytes".to_owned());
    }
    let blocks = u64::from(part.workers).saturating_mul(job.io.depth.into());
    let needed = job.block.0.saturating_mul(blocks);
    (needed > job.io.span.0).then(|| {
        format!(
            "{} are in flight in a file of {}: use a larger --span, or less depth",
            Bytes(needed).rounded(),
            job.io.span
        )
    })
}

fn no_store(store: u32) -> CallError {
    CallError::unsupported("open", format!("store{store}"), "this run was given no such store")
        .or_try("name it with --store")
}

/// Why what was named does not fit.
fn place_unfit(place: &StorePlace, io: &IoSpec) -> Option<String> {
    let size = match place.what {
        PathKind::Folder | PathKind::Bucket => return None,
        PathKind::File(size) | PathKind::Device(size) => size,
    };
    if io.files == IoFiles::Own && io.threads > 1 {
        return Some("separate files per worker need a folder: name one".into());
    }
    if io.writes() && !place.writable() {
        return Some("it was not made by this run: --overwrite lets it be written to".into());
    }
    (io.span.0 > size).then(|| place.too_short(size, io.span.0).reason)
}

impl FileStorage for LiveStorage {
    fn stores(&self) -> Vec<StoreFacts> {
        self.places.iter().map(|place| place.facts.clone()).collect()
    }

    fn cannot(&self, store: u32, io: &IoSpec, block: Bytes) -> Option<String> {
        match self.place(store) {
            Some(place) => self.unfit(place, io, block),
            None => Some(no_store(store).reason),
        }
    }

    fn open(&self, job: IoJob, seed: u64) -> CallResult<IoId> {
        self.open_job(job, seed, None)
    }

    fn open_part(&self, job: IoJob, seed: u64, part: FilePart) -> CallResult<IoId> {
        self.open_job(job, seed, Some(part))
    }

    fn file_name(&self, id: IoId) -> String {
        let open = self.open.borrow();
        let of =
            open.get(&id).and_then(|open| Some((open.files.first()?, self.place(open.store)?)));
        of.map_or_else(String::new, |(file, place)| place.name_of(file))
    }

    fn cannot_meta(&self, job: &MetaJob) -> Option<String> {
        match self.place(job.store) {
            Some(place) => meta_job::unfit(place, &job.meta),
            None => Some(no_store(job.store).reason),
        }
    }

    fn open_meta(&self, job: MetaJob, seed: u64) -> CallResult<IoId> {
        let place = self.place(job.store).ok_or_else(|| no_store(job.store))?;
        let cpus = self.allowed_cpus(job.numa);
        if let Some(bucket) = &place.bucket {
            let open = LiveSmallObjects::new(bucket, &job, seed, &cpus, self.origin)?;
            return Ok(self.keep(Box::new(open)));
        }
        let open = LiveMeta::new(place, &job, seed, &cpus, self.origin)?;
        let id = self.next_id();
        self.trees.borrow_mut().insert(id, open);
        Ok(id)
    }

    fn submit(&self, id: IoId, gate: GateId, ops: u64) -> CallResult<()> {
        if let Some(tree) = self.trees.borrow().get(&id) {
            return tree.submit(ops, |pool| self.gates.hold(gate, pool));
        }
        if let Some(job) = self.objects.borrow().get(&id) {
            job.arrange(ops)?;
            let memory = job.host().and_then(|at| self.held(at));
            job.threads().submit(RoundKind::Sample(ops), memory)?;
            let pool = &job.threads().pool;
            return self.gates.hold(gate, pool).inspect_err(|_| pool.withdraw());
        }
        self.with("submit", id, |open| {
            if open.io.cache == IoCache::Cold {
                for entry in &open.files {
                    let file = entry.open(false, false)?;
                    // Dirty pages stay where they are.
                    let synced = file.sync_data();
                    synced.map_err(|error| io_error::on("fdatasync", &entry.path, &error))?;
                    store_place::forget(&file, open.io.span.0);
                }
            }
            let memory = self.held(open.host);
            open.threads.submit(RoundKind::Sample(ops), memory)?;
            let device = self.place(open.store).map_or("", |p| p.facts.device.as_str());
            open.requests.set(facts::requests(device));
            self.gates.hold(gate, &open.threads.pool).inspect_err(|_| open.threads.pool.withdraw())
        })
    }

    fn reap(&self, id: IoId) -> CallResult<IoDone> {
        if let Some(tree) = self.trees.borrow().get(&id) {
            return tree.threads.reap();
        }
        if let Some(job) = self.objects.borrow().get(&id) {
            return job.threads().reap();
        }
        self.with("reap", id, |open| {
            let mut done = open.threads.reap()?;
            let device = self.place(open.store).map_or("", |p| p.facts.device.as_str());
            let after = facts::requests(device);
            done.reading.requests =
                after.zip(open.requests.take()).and_then(|(b, a)| b.checked_sub(a));
            Ok(done)
        })
    }

    fn spoil(&self, id: IoId) -> CallResult<()> {
        if self.trees.borrow().contains_key(&id) {
            return Ok(());
        }
        if let Some(job) = self.objects.borrow().get(&id) {
            return job.spoil();
        }
        self.with("spoil", id, |open| {
            if !open.io.writes() {
                return Ok(());
            }
            for (entry, _, at) in Self::landed(open) {
                let file = entry.open(false, true)?;
                let wrote = aligned_buffer::write(&file, at.start, at.end, SPOILT);
                wrote.map_err(|error| io_error::on("pwrite", &entry.path, &error))?;
                let synced = file.sync_data();
                synced.map_err(|error| io_error::on("fdatasync", &entry.path, &error))?;
                store_place::forget(&file, at.end);
            }
            Ok(())
        })
    }

    fn land(&self, id: IoId) -> CallResult<()> {
        if let Some(tree) = self.trees.borrow().get(&id) {
            return tree.land();
        }
        if let Some(job) = self.objects.borrow().get(&id) {
            job.before_landing()?;
            let memory = job.host().and_then(|at| self.held(at));
            return job.threads().run(RoundKind::Landing, memory).map(drop);
        }
        self.with("land", id, |open| {
            let memory = self.held(open.host);
            open.threads.run(RoundKind::Landing, memory).map(drop)
        })
    }

    fn check(&self, id: IoId, seed: u64) -> CallResult<VerifyResult> {
        if let Some(tree) = self.trees.borrow().get(&id) {
            return tree.check();
        }
        if let Some(job) = self.objects.borrow().get(&id) {
            return job.check(seed);
        }
        self.with("verify", id, |open| {
            if !open.io.writes() {
                return Ok(match open.pattern {
                    Some(held) if held == seed => VerifyResult::Verified,
                    _ => VerifyResult::Unverified("its contents are not pathline's".into()),
                });
            }
            for (entry, number, at) in Self::landed(open) {
                let file = entry.open(false, false)?;
                // Bytes that only the page cache has are not on the device.
                let synced = file.sync_data();
                synced.map_err(|error| io_error::on("fdatasync", &entry.path, &error))?;
                store_place::forget(&file, at.end);
                let seed = seed.wrapping_add(number);
                let wrong = aligned_buffer::find_wrong(&file, at.start, at.end, seed)
                    .map_err(|error| io_error::on("pread", &entry.path, &error))?;
                if let Some(offset) = wrong {
                    let thing = format!("{} of {}", Bytes(at.end - at.start), entry.path.display());
                    let reason =
                        format!("the byte at offset {offset} is not the one that was written");
                    return Err(CallError::new(Severity::Corrupt, "verify", thing, reason).or_try(
                        "rerun this case alone; if it repeats, suspect the device or its file system",
                    ));
                }
            }
            Ok(VerifyResult::Verified)
        })
    }

    fn engine(&self, id: IoId) -> String {
        if let Some(tree) = self.trees.borrow().get(&id) {
            return tree.threads.description.clone();
        }
        if let Some(job) = self.objects.borrow().get(&id) {
            return job.threads().description.clone();
        }
        self.open
            .borrow()
            .get(&id)
            .map_or_else(String::new, |open| open.threads.description.clone())
    }

    fn close(&self, id: IoId) -> CallResult<BTreeMap<String, CallTally>> {
        if let Some(tree) = self.trees.borrow_mut().remove(&id) {
            self.gates.release(&tree.threads.pool);
            let calls = tree.threads.end();
            self.place(tree.store).inspect(|place| place.drop_tree(&tree.tree.path));
            return Ok(calls);
        }
        if let Some(job) = self.objects.borrow_mut().remove(&id) {
            self.gates.release(&job.threads().pool);
            return Ok(job.end());
        }
        let open = self.open.borrow_mut().remove(&id).ok_or_else(|| no_io("close", id))?;
        self.gates.release(&open.threads.pool);
        Ok(open.threads.end())
    }
}

impl Drop for LiveStorage {
    /// Workers end before the files that they use are taken back.
    fn drop(&mut self) {
        self.open.borrow_mut().clear();
        self.trees.borrow_mut().clear();
        self.objects.borrow_mut().clear();
    }
}

/// With every seed that a run uses, the pattern differs from a spoilt file.
const _: () = assert!(pattern::word(SPOILT, 0) != 0);
