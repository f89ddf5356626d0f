//! Files of a machine, and the workers that read and write them.

use std::collections::BTreeMap;

use pathline_schema::{
    Bytes, CallTally, IoFiles, IoReading, IoSpec, MetaSpec, Ns, StoreFacts, VerifyResult,
};

use crate::{CallError, CallResult, GateId, LocalMemory, Machine, StartGate};

/// An open I/O job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoId(pub u64);

/// Copies between host memory and one GPU, for one worker in its own thread.
pub trait BlockCopier: Send {
    /// Name of the function that enqueues a copy, for records: `cuMemcpyAsync`.
    fn call_name(&self) -> &'static str;
    /// Name of the function that copies synchronously: `cuMemcpyHtoD`.
    fn blocking_call_name(&self, to_gpu: bool) -> &'static str {
        let _ = to_gpu;
        self.call_name()
    }
    /// Attaches the calling thread to the GPU. That thread must call this first, and makes all
    /// other calls.
    fn enter(&mut self) -> CallResult<()>;
    /// Starts a copy of a slot and returns, unless the kind of memory makes the call block. A slot
    /// has at most one copy in flight.
    fn start(&mut self, slot: usize, dst: u64, src: u64, bytes: Bytes) -> CallResult<()>;
    /// Whether the copy of a slot is complete.
    fn is_done(&mut self, slot: usize) -> CallResult<bool>;
    /// Waits for the copy of a slot.
    fn wait(&mut self, slot: usize) -> CallResult<()>;
    /// Copies and returns when the bytes have arrived.
    fn copy(&mut self, dst: u64, src: u64, bytes: Bytes) -> CallResult<()>;
}

/// The GPU that an I/O job reads from or writes to.
pub struct GpuEnd {
    /// Number of the GPU.
    pub gpu: u32,
    /// GPU memory: one block for each slot of each worker, in the order of [`IoJob::host`].
    pub memory: LocalMemory,
    /// One copier for each worker. Empty if the library of GPU direct moves the bytes itself.
    pub copiers: Vec<Box<dyn BlockCopier>>,
}

/// Position of a job's workers among those of all jobs of its case. Jobs to several GPUs share one
/// data set: each worker has its part of the shared file, or its own file, whatever its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerRange {
    /// Number of the job's first worker among the workers that use the same files.
    pub first: u32,
    /// Number of all workers that use these files, at least `first` and those of the job.
    pub of: u32,
    /// Position of the first worker's core among those of its NUMA domain: jobs of one case take
    /// different cores while there are enough.
    pub first_cpu: u32,
}

impl WorkerRange {
    /// A job that is alone in its case.
    pub const fn alone(io: &IoSpec) -> Self {
        Self { first: 0, of: io.threads, first_cpu: 0 }
    }

    /// Number of the first file: 0 of a shared one.
    pub const fn first_file(&self, io: &IoSpec) -> u64 {
        match io.files {
            IoFiles::Shared | IoFiles::Each => 0,
            IoFiles::Own => self.first as u64,
        }
    }
}

/// Description of an I/O job.
pub struct IoJob {
    /// Operation, engine, depth and so on.
    pub io: IoSpec,
    /// Its workers among those of the case.
    pub workers: WorkerRange,
    /// Number of the store.
    pub store: u32,
    /// Bytes of one block.
    pub block: Bytes,
    /// NUMA domain of the workers' cores.
    pub numa: u32,
    /// Buffers in host memory: one block for each slot of each worker, worker by worker. For writes
    /// they already hold the pattern. Empty for GPU direct.
    pub host: LocalMemory,
    /// The GPU at the other end of the path, if any.
    pub gpu: Option<GpuEnd>,
}

impl std::fmt::Debug for IoJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { io, store, block, .. } = self;
        write!(f, "{block} of store{store} by {}[{io}]", io.engine)
    }
}

/// The part of one process in a file that several processes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// Number of this job's first worker among those of all processes.
    pub first: u32,
    /// Workers of all processes.
    pub workers: u32,
    /// The file, as the process that owns it names it ([`FileStorage::file_name`]). `None` in the process
    /// that owns it.
    pub name: Option<String>,
}

/// Description of a job of metadata operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaJob {
    /// Operation, folders, files and workers.
    pub meta: MetaSpec,
    /// Number of the store.
    pub store: u32,
    /// Content of each file; 1 B stands for none.
    pub bytes: Bytes,
    /// NUMA domain of the workers' cores.
    pub numa: u32,
}

impl MetaJob {
    /// Content of each file in bytes: 0 of empty files and of folders.
    pub fn content(&self) -> u64 {
        if self.bytes.0 > 1 { self.bytes.0 } else { 0 }
    }
}

/// Results of the workers in one sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IoDone {
    /// Time from the start behind the gate to the last worker's end.
    pub elapsed: Ns,
    /// Number of completed I/Os; equals the number submitted.
    pub ops: u64,
    /// Latencies and other figures of the job.
    pub reading: IoReading,
}

/// The files that a machine may read and write. It writes only to files that it created or that the
/// user named for writing, and removes the files that it created.
///
/// Content of file `w` of a job's worker `w` (file 0 if workers share one): the pattern `seed + w` of
/// [`crate::pattern`], counted from the file's start. Jobs of one case with a file for each worker get
/// seeds that differ by [`WorkerRange::first_file`].
pub trait FileStorage {
    /// Stores with their file systems and devices, by number.
    fn stores(&self) -> Vec<StoreFacts>;
    /// Why this machine cannot do such I/O. `None` if no reason is known. Opens nothing.
    fn cannot(&self, store: u32, io: &IoSpec, block: Bytes) -> Option<String>;
    /// Creates the files, with the pattern of `seed` if they are read, and starts the workers.
    fn open(&self, job: IoJob, seed: u64) -> CallResult<IoId>;
    /// The same for a part of a file that several processes share. A file of another process is opened
    /// in this store's place if pathline made it for the same user.
    fn open_part(&self, job: IoJob, seed: u64, part: FilePart) -> CallResult<IoId> {
        let _ = (seed, part);
        Err(CallError::unsupported("open", format!("{job:?}"), "its files are not shared"))
    }
    /// The name of the file of an open job, by which other processes open it; empty for files and
    /// devices that the user named.
    fn file_name(&self, id: IoId) -> String {
        let _ = id;
        String::new()
    }
    /// Why this machine cannot do such metadata operations. `None` if no reason is known. Creates
    /// nothing.
    fn cannot_meta(&self, job: &MetaJob) -> Option<String>;
    /// Creates the folders of a job, and the files that it reads, and starts the workers. Before each
    /// sample, untimed, workers bring the folders into the state that the operation needs: files to
    /// create are removed, and files to remove are created. A sample has at most
    /// [`MetaSpec::items`] operations if the operation [is once](pathline_schema::MetaOp::is_once).
    /// The content of files is a pattern of `seed` and the file's number.
    fn open_meta(&self, job: MetaJob, seed: u64) -> CallResult<IoId>;
    /// Submits `ops` I/Os, distributed evenly over the workers, that start when the gate opens.
    /// Returns at once.
    fn submit(&self, id: IoId, gate: GateId, ops: u64) -> CallResult<()>;
    /// Waits for the submitted I/Os.
    fn reap(&self, id: IoId) -> CallResult<IoDone>;
    /// Overwrites the first `threads * depth` blocks of the files with wrong bytes, bypassing the
    /// engine. For writes.
    fn spoil(&self, id: IoId) -> CallResult<()>;
    /// Does one I/O for each slot (of metadata operations, up to 64 operations for each worker), for
    /// verification: slot `s` of worker `w` gets the block at its
    /// position if the slots of a file were contiguous from its start. The engine carries it over
    /// the complete path, GPU included. Mixed I/O only writes.
    fn land(&self, id: IoId) -> CallResult<()>;
    /// After writes: reads those blocks, bypassing the engine, and compares them with the pattern.
    /// For files that are only read: whether they hold the pattern at all, which files named by the
    /// user without permission to write do not. Of metadata operations: whether exactly the files and
    /// folders exist that must, with their content.
    fn check(&self, id: IoId, seed: u64) -> CallResult<VerifyResult>;
    /// The functions and settings that carry the I/O, for records: `io_uring, registered buffers
    /// and files`; `cuFile, compatibility mode (not direct)`.
    fn engine(&self, id: IoId) -> String;
    /// Ends the workers, and returns the durations of opening and closing calls by name. Files stay
    /// for the next case until the machine is dropped.
    fn close(&self, id: IoId) -> CallResult<BTreeMap<String, CallTally>>;
}

/// The error for an I/O job that is not open.
pub fn no_io(call: &str, id: IoId) -> CallError {
    CallError::unsupported(call, format!("I/O {}", id.0), "it is not open")
}

impl Machine {
    /// Opens an I/O job; see [`FileStorage::open`].
    pub fn open_io(&self, job: IoJob, seed: u64) -> CallResult<OpenIo<'_>> {
        let storage = self.stores(|| format!("{job:?}"))?;
        Ok(OpenIo { storage, id: Some(storage.open(job, seed)?) })
    }
    /// Opens a part of a shared file; see [`FileStorage::open_part`].
    pub fn open_io_part(&self, job: IoJob, seed: u64, part: FilePart) -> CallResult<OpenIo<'_>> {
        let storage = self.stores(|| format!("{job:?}"))?;
        Ok(OpenIo { storage, id: Some(storage.open_part(job, seed, part)?) })
    }
    /// Opens a job of metadata operations; see [`FileStorage::open_meta`].
    pub fn open_meta(&self, job: MetaJob, seed: u64) -> CallResult<OpenIo<'_>> {
        let storage = self.stores(|| format!("{} of store{}", job.meta, job.store))?;
        Ok(OpenIo { storage, id: Some(storage.open_meta(job, seed)?) })
    }

    fn stores(&self, thing: impl Fn() -> String) -> CallResult<&dyn FileStorage> {
        self.storage.as_deref().ok_or_else(|| {
            CallError::unsupported("open", thing(), "this run was given no files")
                .or_try("name a folder with --store")
        })
    }
}

/// An open I/O job; closes when dropped.
pub struct OpenIo<'m> {
    storage: &'m dyn FileStorage,
    id: Option<IoId>,
}

impl OpenIo<'_> {
    fn id(&self) -> CallResult<IoId> {
        self.id.ok_or_else(|| CallError::unsupported("I/O", "these files", "they are closed"))
    }
    /// See [`FileStorage::submit`].
    pub fn submit(&self, gate: &StartGate<'_>, ops: u64) -> CallResult<()> {
        self.storage.submit(self.id()?, gate.on_teams, ops)
    }
    /// See [`FileStorage::reap`].
    pub fn reap(&self) -> CallResult<IoDone> {
        self.storage.reap(self.id()?)
    }
    /// See [`FileStorage::spoil`].
    pub fn spoil(&self) -> CallResult<()> {
        self.storage.spoil(self.id()?)
    }
    /// See [`FileStorage::land`].
    pub fn land(&self) -> CallResult<()> {
        self.storage.land(self.id()?)
    }
    /// See [`FileStorage::check`].
    pub fn check(&self, seed: u64) -> CallResult<VerifyResult> {
        self.storage.check(self.id()?, seed)
    }
    /// See [`FileStorage::file_name`].
    pub fn file_name(&self) -> String {
        self.id.map_or_else(String::new, |id| self.storage.file_name(id))
    }
    /// See [`FileStorage::engine`].
    pub fn engine(&self) -> String {
        self.id.map_or_else(String::new, |id| self.storage.engine(id))
    }
    /// See [`FileStorage::close`].
    pub fn close(mut self) -> CallResult<BTreeMap<String, CallTally>> {
        self.id.take().map_or_else(|| Ok(BTreeMap::new()), |id| self.storage.close(id))
    }
}

impl Drop for OpenIo<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let _ = self.storage.close(id);
        }
    }
}
