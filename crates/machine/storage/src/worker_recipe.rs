//! How workers come to be, each in its own thread, and how they end.

use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use pathline_hal::{CallError, CallResult, FilePart, IoJob};
use pathline_schema::{IoCache, IoEngine, IoFiles, IoSpec, Severity};

use super::aio::AioEngine;
use super::engine::{BlockEngine, SyncEngine, WorkerBlocks};
use super::gds::{self, DataPath, GdsEngine, GdsLibrary as Direct};
use super::io_error;
use super::mapped::MappedEngine;
use super::store_place::FileEntry;
use super::uring::{RingKind, UringEngine};
use super::worker::{BlockOrder, GpuStaging, IoWorker, WorkerParts};
use super::worker_pool::{CallTallies, RoundWorker, WorkerFactory, tally};
use pathline_host::clock::ClockOrigin;

/// The parts from which a thread makes its worker.
struct ThreadRecipe {
    index: usize,
    io: IoSpec,
    blocks: WorkerBlocks,
    path: BlockOrder,
    name: PathBuf,
    staging: Option<GpuStaging>,
    /// The GPU whose memory holds the blocks of GPU direct.
    gpu: u32,
    direct: Option<Direct>,
    /// The data path of GPU direct, which the first worker finds: all share files and GPU.
    data_path: Arc<OnceLock<DataPath>>,
    origin: ClockOrigin,
}

/// A worker's part of a job, whatever carries its I/O.
pub(super) struct WorkerShare {
    pub(super) index: usize,
    pub(super) staging: Option<GpuStaging>,
    pub(super) path: BlockOrder,
    /// Address of its first slot.
    pub(super) memory: u64,
}

/// The parts of all workers of a job. With `on_gpu` the engine's slots are those in the GPU's memory.
pub(super) fn shares(
    job: IoJob,
    on_gpu: bool,
    part: Option<&FilePart>,
) -> CallResult<Vec<WorkerShare>> {
    let IoJob { io, workers, block, host, gpu, .. } = job;
    let bytes = io.slots().saturating_mul(block.0);
    let unfit = |reason: String| CallError::unsupported("open", format!("{io:?}"), reason);
    let gpu_memory = gpu.as_ref().map_or(host, |end| end.memory);
    let at = if on_gpu { gpu_memory } else { host };
    if at.bytes.min(gpu_memory.bytes) < bytes {
        let reason = format!("its {} slots do not fit into {} B", io.slots(), at.bytes);
        return Err(unfit(reason));
    }
    let (memory, mut copiers) = match gpu {
        Some(end) => (end.memory.address, end.copiers.into_iter()),
        None => (0, Vec::new().into_iter()),
    };
    let each = u64::from(io.depth) * block.0;
    let one_set = io.files != IoFiles::Own;
    let all = io.span.0 / block.0.max(1);
    let mut shares = Vec::new();
    for (worker, index) in (0..u64::from(io.threads)).zip(0..) {
        let staging = match io.stage {
            Some(stage) => Some(GpuStaging {
                copier: copiers
                    .next()
                    .ok_or_else(|| unfit("a worker has nothing to copy with".into()))?,
                pipelined: stage.pipelined,
                memory: memory + worker * each,
            }),
            None => None,
        };
        // Among all workers of these files, of this case or of all processes.
        let (before, of) =
            part.map_or((workers.first, workers.of), |part| (part.first, part.workers));
        let (number, of) = (u64::from(before) + worker, u64::from(of.max(1)));
        // Parts in whole blocks, none of them empty: there are at least as many blocks as slots.
        let (first, end) =
            if one_set { (all * number / of, all * (number + 1) / of) } else { (0, all) };
        // Jobs of one case check the same blocks, processes their own.
        let checked = if part.is_some() { number } else { worker };
        let landing = if one_set { checked * u64::from(io.depth) } else { 0 };
        let path = BlockOrder { all, first, count: end - first, landing, draw: number };
        shares.push(WorkerShare { index, staging, path, memory: at.address + worker * each });
    }
    Ok(shares)
}

/// One for each worker.
pub(super) struct WorkerRecipes {
    pub(super) all: Vec<Box<dyn WorkerFactory>>,
    /// Calls that opened the files.
    pub(super) calls: CallTallies,
}

impl WorkerRecipes {
    pub(super) fn new(
        job: IoJob,
        files: &[Rc<FileEntry>],
        library: Option<Direct>,
        origin: ClockOrigin,
        part: Option<&FilePart>,
    ) -> CallResult<Self> {
        let (io, block) = (job.io, job.block);
        let unfit = |reason: &str| CallError::unsupported("open", format!("{io:?}"), reason);
        // GPU direct knows no memory but the GPU's.
        let on_gpu = io.engine == IoEngine::Gds;
        if on_gpu && job.gpu.is_none() {
            return Err(unfit("GPU direct needs a GPU"));
        }
        let gpu = job.gpu.as_ref().map_or(0, |end| end.gpu);
        let direct = io.cache == IoCache::Direct;
        let mut calls = CallTallies::new();
        let opened: Vec<(Arc<File>, PathBuf)> = files
            .iter()
            .map(|entry| {
                let begun = origin.ns();
                let file = entry.open(direct, io.writes())?;
                tally(&mut calls, "open", 1, (origin.ns() - begun) as f64);
                Ok((file, entry.path.clone()))
            })
            .collect::<CallResult<_>>()?;
        let data_path = Arc::default();
        let mut recruits: Vec<Box<dyn WorkerFactory>> = Vec::new();
        for share in shares(job, on_gpu, part)? {
            let WorkerShare { index, staging, path, memory } = share;
            let which = if io.files == IoFiles::Own { index } else { 0 };
            let (file, name) =
                opened.get(which).cloned().ok_or_else(|| unfit("a worker has no file"))?;
            let blocks = WorkerBlocks { file, memory, block: block.0 as u32, slots: io.depth };
            recruits.push(Box::new(ThreadRecipe {
                index,
                io,
                blocks,
                path,
                name,
                staging,
                gpu,
                direct: library,
                data_path: Arc::clone(&data_path),
                origin,
            }));
        }
        Ok(Self { all: recruits, calls })
    }
}

impl ThreadRecipe {
    fn engine(&self, calls: &mut CallTallies) -> CallResult<Box<dyn BlockEngine>> {
        let blocks = self.blocks.clone();
        let begun = self.origin.ns();
        let kind = match self.io.engine {
            IoEngine::Sync => return Ok(Box::new(SyncEngine::new(blocks, self.io.writes()))),
            IoEngine::Aio => {
                let made = AioEngine::new(blocks)
                    .map_err(|error| io_error::call("io_setup", format!("{}", self.io), &error))?;
                tally(calls, "io_setup", 1, (self.origin.ns() - begun) as f64);
                return Ok(Box::new(made));
            }
            IoEngine::Uring => RingKind::Registered,
            IoEngine::UringPlain => RingKind::Plain,
            IoEngine::UringPoll => RingKind::Poll,
            IoEngine::Gds => return self.direct(blocks, calls),
            IoEngine::Mmap | IoEngine::MmapPlain | IoEngine::MmapPopulate => {
                let made = MappedEngine::new(blocks, &self.io).map_err(|error| {
                    io_error::call("mmap", self.name.display().to_string(), &error)
                })?;
                tally(calls, "mmap", 1, (self.origin.ns() - begun) as f64);
                return Ok(Box::new(made));
            }
            IoEngine::S3 => {
                let reason = "files are not objects";
                return Err(CallError::unsupported("open", self.io.to_string(), reason));
            }
        };
        let ring = UringEngine::new(kind, blocks)
            .map_err(|error| io_error::call("io_uring_setup", self.io.to_string(), &error))?;
        tally(calls, "io_uring_setup", 1, (self.origin.ns() - begun) as f64);
        if kind != RingKind::Plain {
            let begun = self.origin.ns();
            ring.register_buffers().map_err(|error| self.locked_out(&error))?;
            tally(calls, REGISTER, 1, (self.origin.ns() - begun) as f64);
        }
        Ok(Box::new(ring))
    }

    /// cuFile or hipFile, which work in the GPU's context and map its memory.
    fn direct(
        &self,
        blocks: WorkerBlocks,
        calls: &mut CallTallies,
    ) -> CallResult<Box<dyn BlockEngine>> {
        let Some(kind) = self.direct else {
            let reason = "GPU direct needs a GPU, and none is open";
            return Err(CallError::unsupported("open", self.io.to_string(), reason));
        };
        let names = kind.names();
        // Before the clock: waiting for the other workers is no time of a call.
        let _alone = gds::alone();
        let mut begun = self.origin.ns();
        let mut timed = |call| {
            let now = self.origin.ns();
            tally(calls, call, 1, (now - begun) as f64);
            begun = now;
        };
        let first = self.path.first * u64::from(blocks.block);
        if gds::ready(kind, self.gpu)? {
            timed(names.open);
        }
        let mut made = GdsEngine::new(kind, blocks, self.io.writes())?;
        timed(names.register_file);
        made.register_memory()?;
        timed(names.register_memory);
        made.find_data_path(&self.name, first, &self.data_path)?;
        timed(made.call());
        Ok(Box::new(made))
    }

    fn locked_out(&self, error: &std::io::Error) -> CallError {
        let mut failed = io_error::call(REGISTER, self.io.to_string(), error);
        if error.raw_os_error() == Some(libc::EFAULT)
            || error.raw_os_error() == Some(libc::EOPNOTSUPP)
        {
            failed.severity = Severity::Unsupported;
            failed = failed.or_try("the ring cannot lock this kind of memory: use uring-plain");
        }
        failed
    }
}

/// Locking slots into place.
const REGISTER: &str = "io_uring_register";

impl WorkerFactory for ThreadRecipe {
    fn make(mut self: Box<Self>, calls: &mut CallTallies) -> CallResult<Box<dyn RoundWorker>> {
        if let Some(staging) = self.staging.as_mut() {
            staging.copier.enter()?;
        }
        let engine = self.engine(calls)?;
        let flush = self.io.writes() && self.io.cache != IoCache::Direct;
        let ThreadRecipe { index, io, blocks, path, name, staging, .. } = *self;
        Ok(Box::new(IoWorker::new(WorkerParts {
            index,
            io,
            block: blocks.block,
            memory: blocks.memory,
            path,
            file: name,
            engine,
            staging,
            sync: flush.then_some(blocks.file),
        })))
    }
}
