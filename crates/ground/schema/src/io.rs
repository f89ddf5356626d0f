//! I/O between files and memory: engine, pattern, depth, and the path to a GPU.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::place::number;
use crate::{Bytes, MemKind, Ns, ParseError, StripeLayout, serde_as_text, words};

/// The calls that carry the I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoEngine {
    /// `io_uring` with registered buffers and files.
    Uring,
    /// `io_uring` without registration.
    UringPlain,
    /// `io_uring` that polls the device for completions (`IORING_SETUP_IOPOLL`), registered.
    UringPoll,
    /// Linux's native asynchronous I/O (`io_submit`), which libaio wraps.
    Aio,
    /// `pread` and `pwrite`, one at a time.
    Sync,
    /// GPU direct: cuFile or hipFile, the device and the GPU without host memory between.
    Gds,
    /// Loads and stores of a shared mapping (`mmap`), with the advice that fits the order of blocks.
    Mmap,
    /// The same without advice.
    MmapPlain,
    /// The same after the pages of a block were asked for (`MADV_POPULATE_READ` and `_WRITE`).
    MmapPopulate,
    /// Requests over HTTP to an object store with the interface of Amazon S3.
    S3,
}
words!(IoEngine, "I/O engine", {
    Uring => "uring", UringPlain => "uring-plain", UringPoll => "uring-poll", Aio => "aio",
    Sync => "sync", Gds => "gds", Mmap => "mmap", MmapPlain => "mmap-plain",
    MmapPopulate => "mmap-populate", S3 => "s3",
});

impl IoEngine {
    /// Whether a worker can have more than one I/O in flight.
    pub const fn is_asynchronous(self) -> bool {
        !matches!(self, Self::Sync | Self::Gds) && !self.is_mapped()
    }
    /// Whether blocks are loaded from, and stored to, a mapping of the file.
    pub const fn is_mapped(self) -> bool {
        matches!(self, Self::Mmap | Self::MmapPlain | Self::MmapPopulate)
    }
}

/// The operation on the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoOp {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads and writes, mixed at random by each worker.
    Mix {
        /// Reads in percent, 1 to 99.
        reads: u8,
    },
}

/// The order of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoOrder {
    /// The following one; each worker of a shared file has its part of it.
    Seq,
    /// Any block of the whole file.
    Rand,
}
words!(IoOrder, "I/O order", { Seq => "seq", Rand => "rand" });

/// Use of the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoCache {
    /// `O_DIRECT`: past it.
    Direct,
    /// Through it, with the file's pages in it beforehand. A sample of writes ends when they are on
    /// the device.
    Cached,
    /// Through it, with none of the file's pages in it beforehand.
    Cold,
}
words!(IoCache, "use of the page cache", {
    Direct => "direct", Cached => "cached", Cold => "cold",
});

/// How workers share files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoFiles {
    /// All in one file.
    Shared,
    /// Each has its own.
    Own,
    /// Each block is an object. Of object stores only.
    Each,
}
words!(IoFiles, "sharing of files", { Shared => "shared", Own => "own", Each => "each" });

/// How bytes get from host memory to a GPU, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoStage {
    /// Whether a worker goes on with other blocks while one is copied. Else it copies each block by
    /// a call that returns when it has arrived, as elbencho does.
    pub pipelined: bool,
    /// The kind of host memory that blocks pass.
    pub through: MemKind,
}

impl fmt::Display for IoStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.pipelined { "pipelined" } else { "blocking" };
        write!(f, "{how}-{}", self.through)
    }
}

impl FromStr for IoStage {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            ParseError::new(
                "staging",
                s,
                "pipelined or blocking, and pinned, registered, registered-huge, paged, huge",
            )
        };
        let (how, through) = s.split_once('-').ok_or_else(bad)?;
        let pipelined = match how {
            "pipelined" => true,
            "blocking" => false,
            _ => return Err(bad()),
        };
        let through: MemKind = through.parse()?;
        let pageable = matches!(through.before_registration(), MemKind::Paged | MemKind::Huge);
        (pageable || through == MemKind::Pinned)
            .then_some(Self { pipelined, through })
            .ok_or_else(bad)
    }
}

/// I/O of one flow. The flow's size is that of one block:
/// `store0.file > numa0.huge by uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t2] x 4KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoSpec {
    /// By which calls.
    pub engine: IoEngine,
    /// The operation.
    pub op: IoOp,
    /// The order of blocks.
    pub order: IoOrder,
    /// Use of the page cache.
    pub cache: IoCache,
    /// How workers share files.
    pub files: IoFiles,
    /// Size of each file.
    pub span: Bytes,
    /// I/Os that each worker has in flight, at least 1.
    pub depth: u32,
    /// I/Os that are submitted, and waited for, by one call; at least 1, at most the depth.
    pub batch: u32,
    /// Workers: threads pinned to cores of the mover's unit, at least 1.
    pub threads: u32,
    /// Most bytes a second of each worker; `None` without a limit. I/Os then have times at which they are
    /// due, and latencies count from these.
    pub rate: Option<Bytes>,
    /// How bytes get to or from a GPU, where host memory is between.
    pub stage: Option<IoStage>,
}

impl IoSpec {
    /// Blocks that all workers have in flight: what its memory holds.
    pub fn slots(&self) -> u64 {
        u64::from(self.threads) * u64::from(self.depth)
    }
    /// Number of files.
    pub const fn file_count(&self) -> u64 {
        match self.files {
            IoFiles::Shared | IoFiles::Each => 1,
            IoFiles::Own => self.threads as u64,
        }
    }
    /// Whether bytes arrive in files.
    pub const fn writes(&self) -> bool {
        !matches!(self.op, IoOp::Read)
    }

    /// Time from one I/O of `block` to the next of a worker whose rate is limited.
    pub fn interval(&self, block: Bytes) -> Option<Ns> {
        self.rate.map(|rate| Ns(block.as_f64() / rate.as_f64().max(1.0) * 1e9))
    }

    /// Why its numbers cannot belong together; none if they can.
    pub(crate) fn depth_misfit(&self) -> Option<&'static str> {
        if self.batch > self.depth {
            return Some("a batch is of at most as many I/Os as are in flight");
        }
        (!self.engine.is_asynchronous() && self.depth > 1)
            .then_some("sync, mmap and gds have one I/O in flight a worker")
    }

    /// Parses the text in brackets.
    pub(crate) fn parse(engine: IoEngine, args: &str) -> Result<Self, ParseError> {
        let bad = || {
            ParseError::new(
                "I/O",
                args,
                "ORDER-OP,CACHE,FILES,SPAN,qDEPTH,nBATCH,tTHREADS[,rRATE][,STAGING], such as \
                 rand-read,direct,shared,2GiB,q32,n8,t2 or seq-read,direct,own,1GiB,q1,n1,t1,r100MiB",
            )
        };
        let exact = |text: &str| -> Result<Bytes, ParseError> {
            let parsed: Bytes = text.parse()?;
            if parsed.to_string() == text { Ok(parsed) } else { Err(bad()) }
        };
        let words: Vec<&str> = args.split(',').take(10).collect();
        let Some((&[op, cache, files, span, depth, batch, threads], rest)) =
            words.split_first_chunk::<7>()
        else {
            return Err(bad());
        };
        let (rate, rest) = match rest {
            [first, rest @ ..] if first.starts_with('r') => {
                let rate = exact(first.get(1..).unwrap_or_default())?;
                (Some(rate).filter(|rate| rate.0 > 0).ok_or_else(bad).map(Some)?, rest)
            }
            rest => (None, rest),
        };
        let stage = match rest {
            [] => None,
            [stage] => Some(stage.parse()?),
            _ => return Err(bad()),
        };
        let (order, op) = op.split_once('-').ok_or_else(bad)?;
        let count = |word: &str, letter: char| {
            word.strip_prefix(letter).and_then(number::<u32>).filter(|&n| n >= 1).ok_or_else(bad)
        };
        Ok(Self {
            engine,
            op: op.parse()?,
            order: order.parse()?,
            cache: cache.parse()?,
            files: files.parse()?,
            span: exact(span)?,
            depth: count(depth, 'q')?,
            batch: count(batch, 'n')?,
            threads: count(threads, 't')?,
            rate,
            stage,
        })
    }
}

impl fmt::Display for IoOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Mix { reads } => write!(f, "mix{reads}"),
        }
    }
}

impl FromStr for IoOp {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let mix = || s.strip_prefix("mix").and_then(number).filter(|n| (1..=99).contains(n));
        match s {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            _ => mix().map(|reads| Self::Mix { reads }).ok_or_else(|| {
                ParseError::new("I/O operation", s, "read, write, or mixN with N percent of reads")
            }),
        }
    }
}

impl fmt::Display for IoSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, order, cache, files, span, depth, batch, threads, .. } = self;
        write!(f, "{order}-{op},{cache},{files},{span},q{depth},n{batch},t{threads}")?;
        self.rate.map_or(Ok(()), |rate| write!(f, ",r{rate}"))?;
        self.stage.map_or(Ok(()), |stage| write!(f, ",{stage}"))
    }
}

serde_as_text!(IoEngine, IoOp, IoOrder, IoCache, IoFiles, IoStage);

/// Bins per octave of [`IoHistogram`].
const PARTS: u32 = 64;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// Histogram of the times of I/Os. Buckets are 1/64 of an octave (1.1 %) wide, and exact below 64
/// ns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct IoHistogram {
    /// The shortest; 0 if there is none.
    pub min_ns: u64,
    /// The longest; 0 if there is none.
    pub max_ns: u64,
    /// Sum of all.
    pub sum_ns: u64,
    /// Buckets that are not empty, in order, each with its number of I/Os.
    pub counts: Vec<(u32, u64)>,
}

impl IoHistogram {
    /// The bucket that a time falls into.
    pub const fn bucket(ns: u64) -> u32 {
        if ns < PARTS as u64 {
            return ns as u32;
        }
        let octave = 63 - ns.leading_zeros();
        let part = (ns >> (octave - PART_BITS)) as u32 & (PARTS - 1);
        (octave - PART_BITS + 1) * PARTS + part
    }

    /// The shortest time of a bucket, in ns.
    pub const fn floor(bucket: u32) -> u64 {
        if bucket < PARTS {
            return bucket as u64;
        }
        let shift = bucket / PARTS - 1;
        if shift > 63 - PART_BITS {
            return u64::MAX;
        }
        ((PARTS + bucket % PARTS) as u64) << shift
    }

    /// Of times in ns.
    pub fn of(times: impl IntoIterator<Item = u64>) -> Self {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut min, mut max, mut sum) = (u64::MAX, 0, 0u64);
        for ns in times {
            *counts.entry(Self::bucket(ns)).or_default() += 1;
            (min, max, sum) = (min.min(ns), max.max(ns), sum.saturating_add(ns));
        }
        let min = if counts.is_empty() { 0 } else { min };
        Self { min_ns: min, max_ns: max, sum_ns: sum, counts: counts.into_iter().collect() }
    }

    /// Number of I/Os.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &(_, n)| sum.saturating_add(n))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The mean.
    pub fn mean(&self) -> Option<Ns> {
        (!self.is_empty()).then(|| Ns(self.sum_ns as f64 / self.count().max(1) as f64))
    }

    /// With those of another.
    pub fn add(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        let mut counts: BTreeMap<u32, u64> = self.counts.iter().copied().collect();
        for &(bucket, n) in &other.counts {
            let sum = counts.entry(bucket).or_default();
            *sum = sum.saturating_add(n);
        }
        self.counts = counts.into_iter().collect();
    }

    /// The time that a share of I/Os, 0 to 1, takes at most; inside a bucket as if they were spread
    /// evenly. None of an empty one.
    pub fn quantile(&self, share: f64) -> Option<Ns> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * count as f64;
        let mut below = 0.0;
        for &(bucket, n) in &self.counts {
            let here = n as f64;
            if below + here >= wanted {
                let (floor, next) = (Self::floor(bucket), Self::floor(bucket.saturating_add(1)));
                let inside = if here > 0.0 { (wanted - below) / here } else { 0.0 };
                let ns = floor as f64 + inside * next.saturating_sub(floor) as f64;
                return Some(Ns(ns.clamp(self.min_ns as f64, self.max_ns as f64)));
            }
            below += here;
        }
        Some(Ns(self.max_ns as f64))
    }
}

/// How often something was called, and how long all calls took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CallTally {
    /// Calls.
    pub count: u64,
    /// Time of all of them, of all threads.
    pub ns: f64,
}

impl CallTally {
    /// With another.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.ns += other.ns;
    }
}

/// Page faults of threads (`getrusage`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PageFaults {
    /// Of pages that were in memory.
    pub minor: u64,
    /// Of pages that had to be read from a device.
    pub major: u64,
}

impl PageFaults {
    /// With those of another thread.
    pub fn add(&mut self, other: Self) {
        self.minor = self.minor.saturating_add(other.minor);
        self.major = self.major.saturating_add(other.major);
    }
}

/// Records of one sample of I/O apart from its duration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct IoReading {
    /// From the start until the first worker had done its part.
    pub first_done_ns: f64,
    /// I/Os that all workers together had completed then.
    pub first_done_ops: u64,
    /// From the start to the end of each worker, by number; empty with one worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_ns: Vec<u64>,
    /// Time of all workers in user mode.
    pub cpu_user_ns: f64,
    /// Time of all workers in the kernel.
    pub cpu_system_ns: f64,
    /// From handing an I/O to the kernel to seeing its end; with a GPU, to the bytes' arrival there
    /// (of a write: from the start of the copy out of it).
    pub latency: IoHistogram,
    /// The part of that which is the I/O itself, where a copy to or from a GPU follows or precedes.
    #[serde(default, skip_serializing_if = "IoHistogram::is_empty")]
    pub device: IoHistogram,
    /// The part which is the copy: from its call to its end seen.
    #[serde(default, skip_serializing_if = "IoHistogram::is_empty")]
    pub copy: IoHistogram,
    /// Time of workers in calls, by the function's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, CallTally>,
    /// Page faults of all workers, where blocks are loaded from a mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<PageFaults>,
    /// Requests that the block device completed meanwhile, from any process, where it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
}

fn is_unknown(bytes: &Bytes) -> bool {
    bytes.0 == 0
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// A place for files that a run was given, and what is under it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreFacts {
    /// Folder, file or block device.
    pub path: String,
    /// Type of its file system: `ext4`, `lustre`; empty of a raw device.
    #[serde(default)]
    pub file_system: String,
    /// Options that it is mounted with.
    #[serde(default)]
    pub options: String,
    /// Block device under it, by kernel name; empty if there is none or several.
    #[serde(default)]
    pub device: String,
    /// Its model.
    #[serde(default)]
    pub model: String,
    /// NUMA domain that it hangs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// I/O scheduler of the device: `none`, `mq-deadline`.
    #[serde(default)]
    pub scheduler: String,
    /// Hardware queues; 0 if unknown.
    #[serde(default)]
    pub queues: u32,
    /// Whether it has queues that can be polled.
    #[serde(default)]
    pub polls: bool,
    /// Logical block; 0 if unknown.
    #[serde(default)]
    pub logical_block: Bytes,
    /// Largest request; 0 if unknown.
    #[serde(default)]
    pub max_request: Bytes,
    /// Most segments of memory in one request; 0 if unknown.
    #[serde(default)]
    pub max_segments: u32,
    /// Largest request that the hardware takes; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub max_hardware_request: Bytes,
    /// Requests that each queue holds; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_none")]
    pub queue_depth: u32,
    /// Write cache of the device: `write back`, `write through`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub write_cache: String,
    /// Unit in which the file system allots space; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub fs_block: Bytes,
    /// Size of the file system; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub size: Bytes,
    /// How files are striped over servers, by range of the file; empty where they are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stripes: Vec<StripeLayout>,
    /// Free space when the run began.
    #[serde(default)]
    pub free: Bytes,
    /// Size of each file that the suite uses there: as asked, and no more than a named file or
    /// device has.
    #[serde(default)]
    pub span: Bytes,
    /// Why nothing can be measured there; none if nothing is known against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<String>,
}

/// File systems whose files are memory.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "hugetlbfs"];
/// Default alignment of direct I/O, in bytes: the sector of every common drive.
const USUAL_SECTOR: Bytes = Bytes(512);
/// Least bytes of a part of an upload, but for the last one, and most parts (Amazon S3, User Guide,
/// "Amazon S3 multipart upload limits").
const LEAST_PART: Bytes = Bytes::mib(5);
const MOST_PARTS: u64 = 10_000;
/// Most objects of a data set: each takes a request before the first sample.
const MOST_OBJECTS: u64 = 1 << 16;

impl StoreFacts {
    /// What the file system of an object store is called.
    pub const OBJECTS: &str = "s3";

    /// Whether it is a bucket of an object store.
    pub fn has_objects(&self) -> bool {
        self.file_system == Self::OBJECTS
    }

    /// Why an object store cannot do such I/O.
    fn cannot_object(&self, io: &IoSpec, block: Bytes) -> Option<String> {
        let path = &self.path;
        if io.engine != IoEngine::S3 {
            return Some(format!("{path} is a bucket, and no file system: use engine s3"));
        }
        if io.cache != IoCache::Direct {
            return Some("the page cache has no part in objects: use direct".to_owned());
        }
        let count = io.span.0 / block.0.max(1);
        if io.files == IoFiles::Each {
            return (count > MOST_OBJECTS).then(|| {
                format!(
                    "{count} objects of {block} are more than {MOST_OBJECTS}: use a smaller span"
                )
            });
        }
        match io.op {
            IoOp::Read => None,
            IoOp::Mix { .. } => {
                Some("parts of an object are not read while it is written: use `each`".to_owned())
            }
            IoOp::Write if block < LEAST_PART => Some(format!(
                "a part of an upload has at least {LEAST_PART}: use such a block, or `each`, which \
                 makes an object of each block"
            )),
            IoOp::Write => (count > MOST_PARTS)
                .then(|| format!("an upload has at most {MOST_PARTS} parts: use a larger block")),
        }
    }

    /// Why such I/O cannot be done there, in blocks of that size, as far as these facts tell; none
    /// if nothing is known against it.
    pub fn cannot(&self, io: &IoSpec, block: Bytes) -> Option<String> {
        if let Some(why) = &self.without {
            return Some(format!("{}: {why}", self.path));
        }
        let each = block.0.saturating_mul(io.slots()) / io.file_count().max(1);
        if each > io.span.0 {
            return Some(format!(
                "{} are in flight in each file of {}: use a larger --span, or less depth",
                Bytes(each).rounded(),
                io.span
            ));
        }
        if self.has_objects() {
            return self.cannot_object(io, block);
        }
        if io.engine == IoEngine::S3 || io.files == IoFiles::Each {
            return Some(format!("{} has files, and no objects: name s3://BUCKET", self.path));
        }
        match io.cache {
            IoCache::Direct if io.engine.is_mapped() => {
                Some("a mapping is the page cache: use cached or cold".to_owned())
            }
            IoCache::Direct => self.cannot_direct(io, block),
            _ if io.engine == IoEngine::UringPoll => {
                Some("completions are polled past the page cache only: use direct".to_owned())
            }
            _ if io.engine == IoEngine::Gds => {
                Some("GPU direct passes the page cache: use direct".to_owned())
            }
            _ => None,
        }
    }

    fn cannot_direct(&self, io: &IoSpec, block: Bytes) -> Option<String> {
        let Self { path, device, file_system, .. } = self;
        if IN_MEMORY.contains(&file_system.as_str()) {
            return Some(format!(
                "files of {file_system} are page cache and nothing else: measure them cached"
            ));
        }
        let sector = if self.logical_block.0 == 0 { USUAL_SECTOR } else { self.logical_block };
        if !block.0.is_multiple_of(sector.0) {
            return Some(format!(
                "{path}: O_DIRECT takes multiples of {sector}: use such a block, or cached"
            ));
        }
        (io.engine == IoEngine::UringPoll && !self.polls).then(|| {
            let what = if device.is_empty() { path } else { device };
            format!(
                "{what} has no poll queues; an NVMe driver makes some if it is loaded with \
                 poll_queues=N"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reasons against I/O on a store are the same for every caller.
    #[test]
    fn a_store_names_what_it_lacks() {
        let disk = StoreFacts { path: "/scratch".to_owned(), ..StoreFacts::default() };
        let cannot = |facts: &StoreFacts, engine, args: &str, block: u64| {
            facts.cannot(&IoSpec::parse(engine, args).unwrap(), Bytes(block)).unwrap_or_default()
        };
        let direct = "rand-read,direct,shared,1MiB,q4,n1,t2";
        assert_eq!(cannot(&disk, IoEngine::Uring, direct, 4096), "");
        // 2 workers with 4 blocks of 128 KiB each fill 1 MiB; of 256 KiB they fit only
        // into separate files.
        assert_eq!(cannot(&disk, IoEngine::Uring, direct, 128 << 10), "");
        assert!(cannot(&disk, IoEngine::Uring, direct, 256 << 10).contains("2MiB are in flight"));
        let own = direct.replace("shared", "own");
        assert_eq!(cannot(&disk, IoEngine::Uring, &own, 256 << 10), "");
        // Nobody states a sector: 512 B.
        assert!(cannot(&disk, IoEngine::Uring, direct, 1000).contains("multiples of 512B"));
        assert_eq!(cannot(&disk, IoEngine::Uring, &direct.replace("direct", "cold"), 1000), "");
        let large = StoreFacts { logical_block: Bytes(4096), ..disk.clone() };
        assert!(cannot(&large, IoEngine::Aio, direct, 512).contains("multiples of 4KiB"));
        let memory = StoreFacts { file_system: "tmpfs".to_owned(), ..disk.clone() };
        assert!(cannot(&memory, IoEngine::Aio, direct, 4096).contains("tmpfs are page cache"));
        assert!(cannot(&disk, IoEngine::UringPoll, direct, 4096).contains("/scratch has no poll"));
        let polls = StoreFacts { polls: true, device: "nvme0n1".to_owned(), ..disk.clone() };
        assert_eq!(cannot(&polls, IoEngine::UringPoll, direct, 4096), "");
        for engine in [IoEngine::UringPoll, IoEngine::Gds] {
            let cached = "rand-read,cached,shared,1MiB,q1,n1,t1";
            assert!(cannot(&polls, engine, cached, 4096).contains("use direct"));
        }
        for engine in [IoEngine::Mmap, IoEngine::MmapPlain, IoEngine::MmapPopulate] {
            assert!(cannot(&disk, engine, direct, 4096).contains("use cached or cold"));
            assert_eq!(cannot(&disk, engine, &direct.replace("direct", "cold"), 4096), "");
        }
        let each = direct.replace("shared", "each");
        assert!(cannot(&disk, IoEngine::Uring, &each, 4096).contains("name s3://BUCKET"));
        assert!(cannot(&disk, IoEngine::S3, direct, 4096).contains("name s3://BUCKET"));
        let gone = StoreFacts { without: Some("it is read-only".to_owned()), ..disk };
        assert_eq!(cannot(&gone, IoEngine::Sync, direct, 4096), "/scratch: it is read-only");
    }

    /// Of a bucket: parts have 5 MiB, and a data set has at most 65536 objects.
    #[test]
    fn an_object_store_names_what_it_lacks() {
        let bucket = StoreFacts {
            path: "s3://data".to_owned(),
            file_system: StoreFacts::OBJECTS.to_owned(),
            ..StoreFacts::default()
        };
        let cannot = |engine, args: &str, block: u64| {
            bucket.cannot(&IoSpec::parse(engine, args).unwrap(), Bytes(block)).unwrap_or_default()
        };
        let (s3, read) = (IoEngine::S3, "rand-read,direct,shared,1GiB,q4,n1,t2");
        assert_eq!(cannot(s3, read, 4096), "");
        assert!(cannot(IoEngine::Uring, read, 4096).contains("use engine s3"));
        assert!(cannot(s3, &read.replace("direct", "cold"), 4096).contains("use direct"));
        let each = read.replace("shared", "each");
        assert_eq!(cannot(s3, &each, 16 << 10), "");
        assert!(cannot(s3, &each, 8 << 10).contains("131072 objects"));
        let write = read.replace("read", "write");
        assert_eq!(cannot(s3, &write, 5 << 20), "");
        assert!(cannot(s3, &write, 4 << 20).contains("at least 5MiB"));
        assert_eq!(cannot(s3, &each.replace("read", "write"), 1 << 20), "");
        assert!(cannot(s3, &read.replace("read", "mix50"), 1 << 20).contains("use `each`"));
        let large = write.replace("1GiB", "100GiB");
        assert!(cannot(s3, &large, 5 << 20).contains("at most 10000 parts"));
    }

    #[test]
    fn buckets_meet() {
        // Below 64 ns each has its own; 64..128 in steps of 1, 128..256 in steps of 2.
        assert_eq!(IoHistogram::bucket(63), 63);
        assert_eq!(IoHistogram::bucket(64), 64);
        assert_eq!(IoHistogram::bucket(127), 127);
        assert_eq!((IoHistogram::bucket(128), IoHistogram::bucket(129)), (128, 128));
        assert_eq!(IoHistogram::bucket(130), 129);
        for ns in [0, 1, 63, 64, 127, 128, 1000, 382_000, u64::from(u32::MAX), u64::MAX] {
            let bucket = IoHistogram::bucket(ns);
            assert!(IoHistogram::floor(bucket) <= ns, "{ns}");
            let next = IoHistogram::floor(bucket + 1);
            assert!(next > ns || next == u64::MAX, "{ns}");
            // A bucket is at most 1/64 of its floor wide.
            assert!(
                (next - IoHistogram::floor(bucket)) as f64 <= (ns as f64 / 64.0).max(1.0) * 1.001
            );
        }
    }

    #[test]
    fn quantiles_of_a_hundred() {
        // 1 to 100 us: the median is 50 us and the 99th percentile 99 us, to a bucket of 1.6 %.
        let all = IoHistogram::of((1..=100).map(|us| us * 1000));
        assert_eq!((all.count(), all.min_ns, all.max_ns), (100, 1000, 100_000));
        assert_eq!(all.mean(), Some(Ns(50_500.0)));
        for (share, us) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let ns = all.quantile(share).map_or(0.0, |ns| ns.0);
            assert!((ns / (us * 1000.0) - 1.0).abs() < 0.016, "{share}: {ns}");
        }
        assert_eq!(IoHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn two_add_up() {
        let mut a = IoHistogram::of([100, 200]);
        a.add(&IoHistogram::of([50, 200, 4000]));
        assert_eq!(a, IoHistogram::of([100, 200, 50, 200, 4000]));
        a.add(&IoHistogram::default());
        assert_eq!(a.count(), 5);
    }

    #[test]
    fn texts_are_canonical() {
        let of = |args: &str| IoSpec::parse(IoEngine::Uring, args);
        for text in [
            "rand-read,direct,shared,2GiB,q32,n8,t2",
            "seq-write,cached,own,64MiB,q1,n1,t1",
            "rand-mix70,cold,shared,1000B,q4,n1,t3,pipelined-pinned",
            "seq-read,direct,own,1GiB,q8,n1,t1,blocking-paged",
            "seq-read,direct,own,1GiB,q8,n1,t1,pipelined-registered-huge",
            "seq-read,direct,each,1GiB,q8,n1,t1,r100MiB",
            "seq-read,cached,own,1GiB,q1,n1,t1,r1000B,blocking-paged",
        ] {
            assert_eq!(of(text).unwrap().to_string(), text);
        }
        for wrong in [
            "rand-read,direct,shared,2048MiB,q32,n8,t2",
            "rand-read,direct,shared,2GiB,q0,n8,t2",
            "rand-read,direct,shared,2GiB,q32,n8",
            "rand-mix100,direct,shared,2GiB,q32,n8,t2",
            "rand-read,direct,shared,2GiB,q32,n8,t2,pipelined-vram",
            "rand-read,direct,shared,2GiB,q32,n8,t2,pipelined-pinned,x",
            "rand-read,direct,shared,2GiB,q32,n8,t2,r0B",
            "rand-read,direct,shared,2GiB,q32,n8,t2,r1024KiB",
            "rand-read,direct,shared,2GiB,q32,n8,t2,r1MiB,r1MiB",
            "rand-read,direct,shared,2GiB,q32,n8,t2,pipelined-pinned,r1MiB",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
