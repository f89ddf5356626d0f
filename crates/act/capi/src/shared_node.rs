//! What the caller's thread and the worker share of a node: options, plans, counters.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use pathline_gpu::{CallerCalls, CallerKernels};
use pathline_host::clock::ClockOrigin;
use pathline_multipath::{CopyMode, CopyReport, PathOption};
use pathline_schema::{GpuSet, Ns};

use crate::block_probe::BlockMethod;
use crate::ends::EndFinder;
use crate::helper_use::SharedHelpers;
use crate::orders::OrderedCopy;
use crate::plans::{EndsPlan, HandOverTime, PlanTable};

/// How a node is opened.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// GPUs that may relay, by the runtime's numbers; all without any list.
    pub helpers: Option<Vec<i32>>,
    /// Copies below this are plain, bytes; 0 is 4 MiB.
    pub threshold: usize,
    /// Least predicted gain, a factor; 0 is 1.15. Below 1 every copy goes over relays if there are any.
    pub min_gain: f64,
    /// Staging memory on each helper, bytes, 256 KiB to 16 MiB; 0 is 8 MiB.
    pub staging: u64,
    /// The largest size that a probe measures, bytes; 0 is 128 MiB.
    pub probe_bytes: u64,
    /// The runtime's library, by the option that names it (`cuda`, `hip`); searched for without.
    pub library: Option<(String, PathBuf)>,
    /// A machine file of this node, such as a twin: plans come from it and not from probes.
    pub twin: Option<PathBuf>,
    /// Whether other processes use helpers.
    pub shared_helpers: SharedHelpers,
    /// Most threads that copy pageable memory: 0 leaves it to the runtime. Without, as many as this process has CPUs,
    /// up to 16.
    pub copy_threads: Option<usize>,
    /// Most thread blocks of a kernel that copies a batch; 0 is 16, -1 makes none.
    pub max_multiprocessors: i32,
    /// The method of all ranges of large batches; measured without.
    pub blocks: Option<BlockMethod>,
}

/// What a node has done. Plain copies below the threshold are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyCounters {
    /// Plain copies of the threshold's size or more.
    pub plain: u64,
    /// Copies over several paths that have ended.
    pub multipath: u64,
    /// Their bytes into each destination.
    pub multipath_bytes: u64,
    /// Bytes that relays, or other destinations, carried.
    pub relayed_bytes: u64,
    /// Chunks that were copied again because their relay failed or stalled.
    pub repeated: u64,
    /// Relays that were given up during a copy.
    pub lost: u64,
    /// Copies that were made plainly after several paths had failed.
    pub fallbacks: u64,
    /// Times that a size class was switched off because it gained nothing.
    pub switched_off: u64,
    /// Copies of pageable memory by several threads.
    pub staged: u64,
    /// Their bytes.
    pub staged_bytes: u64,
    /// Ranges of batches that kernels copied.
    pub blocks: u64,
    /// Ranges of batches that the driver's call for many copied.
    pub batched_blocks: u64,
    /// Times that a kernel or that call could not be used, so that each range was copied by itself.
    pub refused_blocks: u64,
}

/// The counters that caller and worker share.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    pub(crate) plain: AtomicU64,
    pub(crate) multipath: AtomicU64,
    pub(crate) multipath_bytes: AtomicU64,
    pub(crate) relayed_bytes: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) fallbacks: AtomicU64,
    pub(crate) switched_off: AtomicU64,
    pub(crate) staged: AtomicU64,
    pub(crate) staged_bytes: AtomicU64,
    pub(crate) blocks: AtomicU64,
    pub(crate) batched_blocks: AtomicU64,
    pub(crate) refused_blocks: AtomicU64,
}

impl SharedCounters {
    /// Counts a copy over several paths.
    pub(crate) fn add_copy(&self, copy: &OrderedCopy, report: &CopyReport) {
        let add = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        let relayed = report.paths.iter().skip(1).map(|path| path.bytes.0).sum();
        add(&self.multipath, 1);
        add(&self.multipath_bytes, copy.bytes);
        add(&self.relayed_bytes, relayed);
        add(&self.repeated, report.repeated);
        add(&self.lost, report.lost.len() as u64);
    }

    /// Counts a copy of pageable memory, and whether it switched its size class off.
    pub(crate) fn add_staged(&self, bytes: usize, is_off: bool) {
        self.staged.fetch_add(1, Ordering::Relaxed);
        self.staged_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.switched_off.fetch_add(u64::from(is_off), Ordering::Relaxed);
    }

    /// Counts ranges that a method of batches copied, or that it could not be used.
    pub(crate) fn count_blocks(&self, by: &AtomicU64, is_done: bool, ranges: usize) {
        let (counter, add) = if is_done { (by, ranges as u64) } else { (&self.refused_blocks, 1) };
        counter.fetch_add(add, Ordering::Relaxed);
    }
}

/// What caller and worker share.
#[derive(Debug)]
pub(crate) struct SharedNode {
    pub(crate) plans: PlanTable,
    pub(crate) hand_over: HandOverTime,
    pub(crate) counters: SharedCounters,
    pub(crate) min_gain: f64,
    pub(crate) staging: u64,
    /// The largest copy of a probe of pageable memory, bytes.
    pub(crate) probe_bytes: usize,
    pub(crate) origin: ClockOrigin,
    pub(crate) used_helpers: RwLock<GpuSet>,
    /// Copies below this are plain.
    pub(crate) threshold: usize,
}

impl SharedNode {
    pub(crate) fn now(&self) -> Ns {
        Ns(self.origin.ns() as f64)
    }

    /// Counts a plain copy, unless it is below the threshold.
    pub(crate) fn count_plain(&self, bytes: usize) {
        self.counters.plain.fetch_add(u64::from(bytes >= self.threshold), Ordering::Relaxed);
    }

    /// The plan for a size; none if the plain copy is as good.
    pub(crate) fn choose<'p>(
        &self,
        plan: &'p EndsPlan,
        copy: &OrderedCopy,
        mode: CopyMode,
    ) -> Option<&'p PathOption> {
        // Nothing leaves gaps between enqueued copies: another process would wait for slices of time.
        let avoided = match mode {
            CopyMode::Enqueued if copy.dst.len() == 1 => self.used_helpers(),
            CopyMode::Enqueued | CopyMode::Driven => GpuSet::EMPTY,
        };
        plan.choose(copy.bytes, (self.min_gain, avoided), mode, (self.now(), self.hand_over.get()))
    }

    /// Keeps which helpers other processes use.
    pub(crate) fn note_used_helpers(&self, used: GpuSet) {
        *self.used_helpers.write().unwrap_or_else(PoisonError::into_inner) = used;
    }

    fn used_helpers(&self) -> GpuSet {
        *self.used_helpers.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the worker reports when it has opened the machine.
pub(crate) struct OpenedNode {
    pub(crate) calls: Arc<dyn CallerCalls>,
    pub(crate) finder: EndFinder,
    pub(crate) kernels: CallerKernels,
}
