//! Files of a machine, and the workers that read and write them.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, CallTally, IoReading, IoSpec, Ns, StoreFacts, VerifyResult};

use crate::{CallError, CallResult, GateId, LocalMemory, Machine, StartGate};

/// I/O that has been opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoId(pub u64);

/// Copies between host memory and one GPU, made by one worker in its own thread.
pub trait BlockCopier: Send {
    /// The name of its calls, for the record: `cuMemcpyAsync`.
    fn call(&self) -> &'static str;
    /// The name of its synchronous calls: `cuMemcpyHtoD`.
    fn blocking_call(&self, to_gpu: bool) -> &'static str {
        let _ = to_gpu;
        self.call()
    }
    /// Makes the calling thread the one that copies. Before anything else, by that thread.
    fn enter(&mut self) -> CallResult<()>;
    /// Starts a copy of a slot and returns, as far as the memory's kind lets it. A slot has one copy
    /// at a time.
    fn start(&mut self, slot: usize, dst: u64, src: u64, bytes: Bytes) -> CallResult<()>;
    /// Whether the copy of a slot has ended.
    fn ended(&mut self, slot: usize) -> CallResult<bool>;
    /// Waits for the copy of a slot.
    fn wait(&mut self, slot: usize) -> CallResult<()>;
    /// Copies by the call that returns when the bytes have arrived.
    fn copy(&mut self, dst: u64, src: u64, bytes: Bytes) -> CallResult<()>;
}

/// The GPU's end of I/O.
pub struct GpuEnd {
    /// Number of the GPU.
    pub gpu: u32,
    /// Its memory: a block for each slot of each worker, in the order of [`IoJob::host`].
    pub memory: LocalMemory,
    /// A copier for each worker; none where the library of GPU direct itself moves the bytes.
    pub copiers: Vec<Box<dyn BlockCopier>>,
}

/// I/O to be opened.
pub struct IoJob {
    /// The I/O to do.
    pub io: IoSpec,
    /// In which store.
    pub store: u32,
    /// Bytes of one block.
    pub block: Bytes,
    /// NUMA domain whose cores run the workers.
    pub numa: u32,
    /// Host memory that is read into and written from: a block for each slot of each worker, worker
    /// by worker. Of writes it holds the pattern already. Empty for GPU direct.
    pub host: LocalMemory,
    /// The GPU that the bytes go on to, or come from.
    pub gpu: Option<GpuEnd>,
}

impl std::fmt::Debug for IoJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { io, store, block, .. } = self;
        write!(f, "{block} of store{store} by {}[{io}]", io.engine)
    }
}

/// Results of the workers in one sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IoDone {
    /// From the start behind the gate to the last worker's end.
    pub elapsed: Ns,
    /// I/Os that were done: all that were submitted.
    pub ops: u64,
    /// The rest.
    pub reading: IoReading,
}

/// The files that a machine may read and write. It writes only to files that it made or
/// that the user named for writing, and removes the files that it made.
///
/// Content of files: file `w` of worker `w` (file 0, if they share one) the pattern
/// `seed + w` of [`crate::pattern`], counted from the file's start.
pub trait FileStorage {
    /// The places for files, by number, and what is under them.
    fn stores(&self) -> Vec<StoreFacts>;
    /// Why such I/O cannot be done here; none if nothing is known against it. Opens nothing.
    fn cannot(&self, store: u32, io: &IoSpec, block: Bytes) -> Option<String>;
    /// Makes the files, with the pattern of `seed` where they are read, and starts the workers.
    fn open(&self, job: IoJob, seed: u64) -> CallResult<IoId>;
    /// Gives the workers `ops` I/Os, shared out evenly, that start when the gate opens. Returns
    /// immediately.
    fn submit(&self, id: IoId, gate: GateId, ops: u64) -> CallResult<()>;
    /// Waits for their end.
    fn reap(&self, id: IoId) -> CallResult<IoDone>;
    /// Makes the first `threads * depth` blocks of the files wrong, past the engine. For writes.
    fn spoil(&self, id: IoId) -> CallResult<()>;
    /// Does one I/O for each slot, so that slot `s` of worker `w` has the block that it would have
    /// if the slots of a file lay back to back from its start. By the engine, in whole: with a GPU
    /// the bytes take the complete path. Mixed I/O only writes.
    fn land(&self, id: IoId) -> CallResult<()>;
    /// Reads those blocks back past the engine and compares them with the pattern, after writes. Of
    /// files that are read only: whether they hold the pattern at all, as files do not that were
    /// named and may not be written to.
    fn check(&self, id: IoId, seed: u64) -> CallResult<VerifyResult>;
    /// The calls and settings that really carry the I/O, for the record: `io_uring, registered
    /// buffers and files`; `cuFile, compatibility mode (not direct)`.
    fn engine(&self, id: IoId) -> String;
    /// Ends the workers, and returns the calls that opening and closing took, by name. Files stay
    /// for the next case until the machine is dropped.
    fn close(&self, id: IoId) -> CallResult<BTreeMap<String, CallTally>>;
}

/// The error of I/O that was never opened.
pub fn no_io(call: &str, id: IoId) -> CallError {
    CallError::unsupported(call, format!("I/O {}", id.0), "it is not open")
}

impl Machine {
    /// Opens files, with the pattern of `seed` where they are read.
    pub fn open_io(&self, job: IoJob, seed: u64) -> CallResult<OpenIo<'_>> {
        let storage = self.storage.as_deref().ok_or_else(|| {
            CallError::unsupported("open", format!("{job:?}"), "this run was given no files")
                .or_try("name a folder with --store")
        })?;
        Ok(OpenIo { storage, id: Some(storage.open(job, seed)?) })
    }
}

/// I/O that is open until it is dropped.
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
