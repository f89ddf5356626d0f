//! Open jobs of object stores: blocks of data sets.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use pathline_hal::{CallError, CallResult, IoJob, LocalMemory};
use pathline_host::clock::ClockOrigin;
use pathline_schema::{Bytes, IoFiles, IoOp, IoSpec, Severity, VerifyResult};

use super::super::SPOILT;
use super::super::own_name::OwnName;
use super::super::worker::{IoWorker, WorkerParts};
use super::super::worker_pool::{CallTallies, RoundWorker, WorkerFactory, WorkerThreads, tally};
use super::super::worker_recipe::{WorkerShare, shares};
use super::client::BucketClient;
use super::engine::{ObjectEngine, ObjectLayout};
use super::place::BucketPlace;
use super::pool::RequestPool;

/// What object stores do between samples.
pub(crate) trait ObjectJob {
    /// The workers.
    fn threads(&self) -> &WorkerThreads;
    /// Memory of this host that rounds use.
    fn host(&self) -> Option<LocalMemory> {
        None
    }
    /// Readies the state that `ops` operations need, untimed.
    fn arrange(&self, ops: u64) -> CallResult<()>;
    /// Readies the state that a check needs.
    fn before_landing(&self) -> CallResult<()> {
        Ok(())
    }
    /// See [`pathline_hal::FileStorage::spoil`].
    fn spoil(&self) -> CallResult<()>;
    /// See [`pathline_hal::FileStorage::check`].
    fn check(&self, seed: u64) -> CallResult<VerifyResult>;
    /// Ends the workers.
    fn end(self: Box<Self>) -> CallTallies;
}

/// Blocks of data sets.
pub(crate) struct LiveObjects {
    threads: WorkerThreads,
    place: Rc<BucketPlace>,
    layouts: Vec<ObjectLayout>,
    io: IoSpec,
    block: u64,
    host: LocalMemory,
    /// The pattern that the data sets hold; `None` if they are written.
    pattern: Option<u64>,
    control: RefCell<CallTallies>,
    origin: ClockOrigin,
}

impl LiveObjects {
    /// Makes the data sets and starts the workers.
    pub(crate) fn new(
        place: &Rc<BucketPlace>,
        job: IoJob,
        seed: u64,
        cpus: &[u32],
        origin: ClockOrigin,
    ) -> CallResult<Self> {
        let (io, block, first) = (job.io, job.block.0, job.workers.first_file(&job.io));
        let host = job.host;
        let name = |nth: u64| match (io.files, io.writes()) {
            (IoFiles::Each, false) => OwnName::Each(Some(seed + nth), block),
            (IoFiles::Each, true) => OwnName::Each(None, block),
            (_, false) => OwnName::Read(seed + nth),
            (_, true) => OwnName::Write(first + nth),
        };
        let layouts: Vec<ObjectLayout> = (0..io.file_count())
            .map(|nth| match io.files {
                IoFiles::Each => ObjectLayout::Each { key: format!("{}/", place.key(name(nth))) },
                _ => ObjectLayout::whole(place.key(name(nth))),
            })
            .collect();
        for (layout, nth) in layouts.iter().zip(0..) {
            if io.op != IoOp::Write {
                place.lay(layout, (io.span.0, block), seed + nth)?;
            }
            if io.writes() {
                place.begin_upload(layout)?;
            }
        }
        let recipes = recipes(place, job, &layouts, origin)?;
        let threads = WorkerThreads::new(recipes, cpus, origin)?;
        let pattern = (!io.writes()).then_some(seed);
        let (place, control) = (Rc::clone(place), RefCell::default());
        Ok(Self { threads, place, layouts, io, block, host, pattern, control, origin })
    }

    /// Bytes of each data set that a check is about.
    fn landed(&self) -> u64 {
        self.io.slots() * self.block / (self.layouts.len() as u64).max(1)
    }

    /// Bytes of a block, as a pair with those of a check.
    fn sizes(&self) -> (u64, u64) {
        (self.landed(), self.block)
    }
}

impl ObjectJob for LiveObjects {
    fn threads(&self) -> &WorkerThreads {
        &self.threads
    }

    fn host(&self) -> Option<LocalMemory> {
        Some(self.host)
    }

    fn arrange(&self, _: u64) -> CallResult<()> {
        Ok(())
    }

    fn spoil(&self) -> CallResult<()> {
        if !self.io.writes() {
            return Ok(());
        }
        let (landed, block) = self.sizes();
        self.layouts.iter().try_for_each(|layout| self.place.upload(layout, landed, block, SPOILT))
    }

    fn check(&self, seed: u64) -> CallResult<VerifyResult> {
        if !self.io.writes() {
            return Ok(match self.pattern {
                Some(held) if held == seed => VerifyResult::Verified,
                _ => VerifyResult::Unverified("its contents are not pathline's".into()),
            });
        }
        let (landed, block) = self.sizes();
        for (layout, nth) in self.layouts.iter().zip(0..) {
            let begun = self.origin.ns();
            // An upload becomes an object, and the parts to come belong to another one.
            if self.place.complete(layout, landed / block.max(1))? {
                let ns = (self.origin.ns() - begun) as f64;
                tally(&mut self.control.borrow_mut(), "CompleteMultipartUpload", 1, ns);
                self.place.begin_upload(layout)?;
            }
            let wrong = self.place.find_wrong(layout, (landed, block), seed.wrapping_add(nth))?;
            if let Some(offset) = wrong {
                let thing = format!("{} of {}", Bytes(landed), layout.key());
                let reason = format!("the byte at offset {offset} is not the one that was written");
                return Err(CallError::new(Severity::Corrupt, "verify", thing, reason).or_try(
                    "rerun this case alone; if it repeats, suspect the store or the network",
                ));
            }
        }
        Ok(VerifyResult::Verified)
    }

    fn end(self: Box<Self>) -> CallTallies {
        let mut calls = self.threads.end();
        for (name, more) in self.control.into_inner() {
            calls.entry(name).or_default().add(more);
        }
        calls
    }
}

/// The parts from which a thread makes its worker.
struct ObjectRecipe {
    share: WorkerShare,
    io: IoSpec,
    block: u32,
    layout: ObjectLayout,
    client: Arc<BucketClient>,
    about: String,
    origin: ClockOrigin,
}

fn recipes(
    place: &BucketPlace,
    job: IoJob,
    layouts: &[ObjectLayout],
    origin: ClockOrigin,
) -> CallResult<Vec<Box<dyn WorkerFactory>>> {
    let (io, block) = (job.io, job.block.0 as u32);
    let mut all: Vec<Box<dyn WorkerFactory>> = Vec::new();
    for share in shares(job, false, None)? {
        let which = if io.files == IoFiles::Own { share.index } else { 0 };
        let Some(layout) = layouts.get(which).cloned() else { continue };
        let (client, about) = (Arc::clone(&place.client), place.about.clone());
        all.push(Box::new(ObjectRecipe { share, io, block, layout, client, about, origin }));
    }
    Ok(all)
}

impl WorkerFactory for ObjectRecipe {
    fn make(self: Box<Self>, calls: &mut CallTallies) -> CallResult<Box<dyn RoundWorker>> {
        let Self { share, io, block, layout, client, about, origin } = *self;
        let WorkerShare { index, mut staging, path, memory } = share;
        if let Some(staging) = staging.as_mut() {
            staging.copier.enter()?;
        }
        let mut pool = RequestPool::new(Arc::clone(&client), io.depth);
        let begun = origin.ns();
        let connected = pool.connect();
        let probe = layout.request(false, (0, block.into()), super::client::MemorySpan::default());
        client.checked(&probe, connected)?;
        tally(calls, "connect", io.depth.into(), (origin.ns() - begun) as f64);
        let file = PathBuf::from(client.thing(&probe));
        let engine = ObjectEngine::new(pool, layout, io.writes(), (memory, block, io.depth), about);
        Ok(Box::new(IoWorker::new(WorkerParts {
            index,
            io,
            block,
            memory,
            path,
            file,
            engine: Box::new(engine),
            staging,
            sync: None,
        })))
    }
}
