//! Many small objects: the metadata operations of an object store.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use pathline_hal::{CallError, CallResult, MetaJob, pattern as model};
use pathline_host::clock::ClockOrigin;
use pathline_host::pattern;
use pathline_schema::{IoFiles, MetaOp, MetaSpec, Severity, VerifyResult};
use rusty_s3::Method;

use super::super::io_tally::{CallTimes, IoTimes};
use super::super::own_name::OwnName;
use super::super::round_progress::{RoundProgress, RoundReport};
use super::super::worker_pool::{
    CallTallies, RoundKind, RoundWorker, WorkerFactory, WorkerThreads,
};
use super::client::{BucketClient, MemorySpan, ObjectRequest};
use super::job::ObjectJob;
use super::place::BucketPlace;
use super::pool::RequestPool;
use super::reply::xml_texts;

/// Most operations of a worker in a check.
const CHECKED: u64 = 64;
/// Requests at once while a worker readies its objects.
const AT_ONCE: u32 = 8;

/// An open job of small objects.
pub(crate) struct LiveSmallObjects {
    threads: WorkerThreads,
    place: Rc<BucketPlace>,
    set: SmallObjects,
}

/// The objects of a job.
#[derive(Debug, Clone)]
struct SmallObjects {
    meta: MetaSpec,
    /// Bytes of each.
    content: usize,
    seed: u64,
    /// What their keys begin with.
    base: String,
}

impl SmallObjects {
    fn key(&self, worker: usize, item: u64) -> String {
        let files = u64::from(self.meta.files.max(1));
        format!("{}{}", self.folder(worker, item), OwnName::File(worker as u64, item % files))
    }

    fn fill(&self, buffer: &mut Vec<u8>) {
        buffer.resize(self.content, 0);
        pattern::fill_part(buffer, 0, self.seed);
    }

    /// Gives a buffer the first bytes of an object, which differ from those of all others.
    fn sign(&self, buffer: &mut [u8], worker: usize, item: u64) {
        let number = worker as u64 * self.meta.items_each() + item;
        let first = model::word(self.seed ^ u64::MAX, number).to_le_bytes();
        buffer.iter_mut().zip(first).for_each(|(byte, of)| *byte = of);
    }

    /// What the keys of a folder begin with.
    fn folder(&self, worker: usize, item: u64) -> String {
        let files = u64::from(self.meta.files.max(1));
        let owner = if self.meta.folders == IoFiles::Own { worker } else { 0 };
        format!("{}{}/", self.base, OwnName::Folder(owner as u64, item / files))
    }

    /// The first page of a folder's names, 1000 as a rule.
    fn listing(&self, at: (usize, u64)) -> ObjectRequest {
        ObjectRequest::new(Method::Get, "")
            .with("list-type", "2")
            .with("prefix", self.folder(at.0, at.1))
    }

    fn request(&self, op: MetaOp, at: (usize, u64), memory: MemorySpan) -> ObjectRequest {
        let method = match op {
            MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir => Method::Put,
            MetaOp::Stat => Method::Head,
            MetaOp::Read => Method::Get,
            MetaOp::List => return self.listing(at),
            MetaOp::Delete | MetaOp::Rmdir => Method::Delete,
        };
        let mut request = ObjectRequest::new(method, self.key(at.0, at.1));
        match method {
            Method::Put => request.body = memory,
            Method::Get => request.sink = memory,
            _ => {}
        }
        request
    }
}

impl LiveSmallObjects {
    /// Starts the workers, and makes the objects that are read.
    pub(crate) fn new(
        place: &Rc<BucketPlace>,
        job: &MetaJob,
        seed: u64,
        cpus: &[u32],
        origin: ClockOrigin,
    ) -> CallResult<Self> {
        let content = usize::try_from(job.content()).unwrap_or(0);
        let set = SmallObjects { meta: job.meta, content, seed, base: place.tree() };
        let client = &place.client;
        let recipe = |index: usize| -> Box<dyn WorkerFactory> {
            Box::new(SmallRecipe { index, set: set.clone(), client: Arc::clone(client) })
        };
        let recipes = (0..set.meta.threads as usize).map(recipe).collect();
        let threads = WorkerThreads::new(recipes, cpus, origin)?;
        let live = Self { threads, place: Rc::clone(place), set };
        if !live.set.meta.op.is_once() {
            live.threads.run(RoundKind::Arrange(live.set.meta.items()), None)?;
        }
        Ok(live)
    }

    /// Objects of each worker that a check is about.
    fn checked(&self) -> u64 {
        self.set.meta.items_each().min(CHECKED)
    }
}

impl ObjectJob for LiveSmallObjects {
    fn threads(&self) -> &WorkerThreads {
        &self.threads
    }

    fn arrange(&self, ops: u64) -> CallResult<()> {
        let meta = &self.set.meta;
        if meta.op.is_once() && ops > meta.items() {
            let reason = format!("a sample has at most {} operations", meta.items());
            return Err(CallError::unsupported("submit", meta.to_string(), reason));
        }
        self.threads.run(RoundKind::Arrange(ops), None).map(drop)
    }

    fn spoil(&self) -> CallResult<()> {
        Ok(())
    }

    fn before_landing(&self) -> CallResult<()> {
        self.arrange(self.checked() * u64::from(self.set.meta.threads))
    }

    /// Workers have compared each object; what is left is whether there are others.
    fn check(&self, _: u64) -> CallResult<VerifyResult> {
        let listed = self.place.count(&self.set.base)?;
        let meta = &self.set.meta;
        let removes = meta.op == MetaOp::Delete;
        let made = match meta.op {
            MetaOp::Create => self.checked() * u64::from(meta.threads),
            _ => meta.items(),
        };
        if listed > made || (listed < made && !removes) {
            let reason = format!("the bucket lists {listed} objects, and {made} were made");
            let thing = self.set.base.clone();
            return Err(CallError::new(Severity::Corrupt, "verify", thing, reason)
                .or_try("rerun this case alone; if it repeats, suspect the store"));
        }
        Ok(VerifyResult::Verified)
    }

    fn end(self: Box<Self>) -> CallTallies {
        let calls = self.threads.end();
        // What stays goes with the run.
        let _ = self.place.remove(&self.set.base);
        calls
    }
}

struct SmallRecipe {
    index: usize,
    set: SmallObjects,
    client: Arc<BucketClient>,
}

impl WorkerFactory for SmallRecipe {
    fn make(self: Box<Self>, _: &mut CallTallies) -> CallResult<Box<dyn RoundWorker>> {
        let Self { index, set, client } = *self;
        let mut buffers: Vec<Vec<u8>> = (0..AT_ONCE).map(|_| Vec::new()).collect();
        buffers.iter_mut().for_each(|buffer| set.fill(buffer));
        let mut expected = Vec::new();
        set.fill(&mut expected);
        Ok(Box::new(SmallWorker {
            index,
            pool: RequestPool::new(client, AT_ONCE),
            buffers,
            expected,
            set,
            made: 0..0,
            next: 0,
            latency: IoTimes::new(),
            calls: CallTimes::default(),
        }))
    }
}

/// A thread's own things.
struct SmallWorker {
    index: usize,
    set: SmallObjects,
    pool: RequestPool<'static>,
    /// One for each request at once.
    buffers: Vec<Vec<u8>>,
    expected: Vec<u8>,
    /// The objects that exist, from a first one on.
    made: Range<u64>,
    next: u64,
    latency: IoTimes,
    calls: CallTimes,
}

impl SmallWorker {
    fn call(&self) -> &'static str {
        self.set.request(self.set.meta.op, (self.index, 0), MemorySpan::default()).call()
    }

    /// Puts or deletes a range of objects, several at once.
    fn bulk(&mut self, op: MetaOp, mut items: Range<u64>) -> CallResult<()> {
        let (set, buffers, index) = (&self.set, &mut self.buffers, self.index);
        self.pool.call_all(|slot| {
            let item = items.next()?;
            let buffer = buffers.get_mut(slot as usize)?;
            set.sign(buffer, index, item);
            let memory = MemorySpan { address: buffer.as_ptr() as u64, bytes: buffer.len() };
            Some(set.request(op, (index, item), memory))
        })
    }

    /// Creates or removes objects until a round of `ops` operations can run.
    fn bring_about(&mut self, ops: u64) -> CallResult<()> {
        let all = self.set.meta.items_each();
        let op = self.set.meta.op;
        if op == MetaOp::Create {
            self.bulk(MetaOp::Delete, self.made.clone())?;
            self.made = 0..0;
            return Ok(());
        }
        let wanted = if op.is_once() { ops.min(all) } else { all };
        if self.made.end - self.made.start < wanted {
            self.bulk(MetaOp::Create, 0..self.made.start)?;
            self.bulk(MetaOp::Create, self.made.end..all)?;
            self.made = 0..all;
        }
        Ok(())
    }

    fn run(&mut self, progress: &RoundProgress, ops: u64, landing: bool) -> CallResult<()> {
        let (op, origin) = (self.set.meta.op, progress.origin);
        for done in 0..ops {
            if progress.has_failed() {
                break;
            }
            let item = match op {
                MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir => self.made.end,
                MetaOp::Delete | MetaOp::Rmdir => self.made.start,
                MetaOp::Stat | MetaOp::Read | MetaOp::List => self.next,
            };
            let Some(buffer) = self.buffers.first_mut() else { break };
            if op == MetaOp::Create {
                self.set.sign(buffer, self.index, item);
            } else if landing {
                buffer.fill(0);
            }
            let memory = MemorySpan { address: buffer.as_mut_ptr() as u64, bytes: buffer.len() };
            let begun = origin.ns();
            let request = self.set.request(op, (self.index, item), memory);
            let answer = self.pool.call(&request)?;
            let ns = origin.ns() - begun;
            self.latency.add(ns);
            self.calls.add(ns);
            match op {
                MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir => self.made.end += 1,
                MetaOp::Delete | MetaOp::Rmdir => self.made.start += 1,
                MetaOp::List => {
                    let files = u64::from(self.set.meta.files.max(1));
                    self.next = (self.next + files) % self.set.meta.items_each().max(1);
                }
                MetaOp::Stat | MetaOp::Read => {
                    self.next = (self.next + 1) % self.set.meta.items_each().max(1);
                }
            }
            progress.set_done(self.index, done + 1);
            if landing && op == MetaOp::List {
                self.check_listing(item, &answer)?;
            } else if landing {
                self.check(item)?;
            }
        }
        Ok(())
    }

    /// Whether a listing has all names of its folder, as far as one page goes.
    fn check_listing(&self, item: u64, answer: &[u8]) -> CallResult<()> {
        let meta = &self.set.meta;
        let shared = if meta.folders == IoFiles::Shared { meta.threads } else { 1 };
        let wanted = u64::from(meta.files.max(1)) * u64::from(shared);
        let texts = xml_texts(&String::from_utf8_lossy(answer));
        let named = texts.iter().filter(|t| t.parent == "Contents" && t.name == "Key").count();
        // A page ends where the server likes, at 1000 names as a rule.
        let more = named > 0 && texts.iter().any(|t| t.name == "NextContinuationToken");
        if named as u64 == wanted || (more && (named as u64) < wanted) {
            return Ok(());
        }
        let request = self.set.listing((self.index, item));
        let reason = format!("it lists {named} objects, and {wanted} were made");
        Err(wrong(&self.pool.client, &request, reason))
    }

    /// Compares the result of an operation.
    fn check(&mut self, item: u64) -> CallResult<()> {
        let op = self.set.meta.op;
        let Some(buffer) = self.buffers.first_mut() else { return Ok(()) };
        let memory = MemorySpan { address: buffer.as_mut_ptr() as u64, bytes: buffer.len() };
        let read = self.set.request(MetaOp::Read, (self.index, item), memory);
        if op == MetaOp::Delete {
            return match self.pool.ask(&read) {
                Ok(_) => Err(wrong(&self.pool.client, &read, "it still exists".to_owned())),
                Err(super::client::RequestFailure::Status(head, _)) if head.status == 404 => Ok(()),
                Err(failure) => Err(self.pool.client.error(&read, &failure)),
            };
        }
        if op != MetaOp::Read {
            buffer.fill(0);
            self.pool.call(&read)?;
        }
        self.set.sign(&mut self.expected, self.index, item);
        let read_back = self.buffers.first().into_iter().flatten();
        match read_back.zip(&self.expected).position(|(a, b)| a != b) {
            Some(at) => {
                let reason = format!("the byte at offset {at} is not the one written");
                Err(wrong(&self.pool.client, &read, reason))
            }
            None => Ok(()),
        }
    }
}

fn wrong(client: &BucketClient, request: &ObjectRequest, reason: String) -> CallError {
    CallError::new(Severity::Corrupt, "verify", client.thing(request), reason)
        .or_try("rerun this case alone; if it repeats, suspect the store")
}

impl RoundWorker for SmallWorker {
    fn index(&self) -> usize {
        self.index
    }

    fn describe(&self) -> String {
        format!("S3, {}", self.call())
    }

    fn landing_ops(&self) -> u64 {
        self.set.meta.items_each().min(CHECKED)
    }

    fn arrange(&mut self, progress: &RoundProgress, ops: u64) {
        if let Err(error) = self.bring_about(ops) {
            progress.fail(error);
        }
    }

    fn round(&mut self, progress: &RoundProgress, ops: u64, landing: bool) -> RoundReport {
        let mut report = progress.timed(ops, || self.run(progress, ops, landing));
        report.latency = self.latency.take();
        report.calls.push((self.call(), std::mem::take(&mut self.calls)));
        report
    }

    fn close(&mut self, _: ClockOrigin, _: &mut CallTallies) {}
}
