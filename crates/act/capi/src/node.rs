//! A node as callers see it: what is plain stays on their thread, the rest goes to the worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use pathline_gpu::CallerCalls;
use pathline_host::clock::ClockOrigin;
use pathline_host::cpus;
use pathline_multipath::CopyMode;

use crate::block_copies::BlockCopies;
use crate::copy_error::{CopyError, CopyStatus};
use crate::ends::EndFinder;
use crate::fork::watch_forks;
use crate::host_memory::{HostRegions, HostRuntime};
use crate::orders::{CallerOrder, CopyOrder, OrderClaim, OrderedCopy, WorkerCommand, WorkerReply};
use crate::plans::{HandOverTime, PlanTable};
use crate::probes::largest_probe;
use crate::ranges::{check_ranges, overlap};
use crate::shared_node::{CopyCounters, NodeOptions, OpenedNode, SharedCounters, SharedNode};
use crate::staging_job::StagedOrder;
use crate::staging_plan::{MAX_THREADS, StagingPlans};
use crate::staging_pool::StagingPool;
use crate::worker;

/// Looks for the worker's answer before the thread sleeps, about 1 ms: a worker that is awake answers in 10 us,
/// and waking a thread takes 50 us on a virtual machine.
const ANSWER_LOOKS: u32 = 20_000;
/// Size below which a copy is plain, unless the options say otherwise: its time, 76 us at 55 GB/s, is that
/// of a few calls of the engine.
const THRESHOLD: usize = 4 << 20;
/// Least predicted gain.
const MIN_GAIN: f64 = 1.15;
/// Staging memory on a helper, unless the options say otherwise: four chunks of 2 MiB. On two H100s a helper
/// then carries 45 GB/s and its own copies of 64 KiB wait 45 us longer (p99); with 4 MiB 46 GB/s and 87 us.
const STAGING: u64 = 8 << 20;
/// Most staging memory on a GPU.
const MAX_STAGING: u64 = 16 << 20;
/// Status of a call on a thread without a context.
const NO_CONTEXT: i32 = 201;
/// Time after which a caller makes a plain copy if the worker does not answer: twice a probe, and a second.
/// The worker may wait for a stream of another thread when it frees the memory of a probe.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers of the worker that are timed when a node opens.
const FIRST_HAND_OVERS: usize = 5;

/// A node whose GPUs copies may use.
#[derive(Debug)]
pub struct CopyNode {
    pub(crate) calls: Arc<dyn CallerCalls>,
    pub(crate) finder: EndFinder,
    pub(crate) shared: Arc<SharedNode>,
    pub(crate) commands: Sender<WorkerCommand>,
    /// Most threads that copy pageable memory.
    pub(crate) copy_threads: usize,
    pub(crate) staging: StagingPool,
    pub(crate) staging_plans: StagingPlans,
    pub(crate) blocks: Arc<BlockCopies>,
    worker: Option<JoinHandle<()>>,
    regions: HostRegions,
}

impl CopyNode {
    /// Finds the runtime and starts the worker. GPUs get a context when a copy first uses them.
    ///
    /// # Errors
    /// An option is out of range, no runtime can be used, or no thread can be started.
    pub fn open(options: &NodeOptions) -> Result<Self, CopyError> {
        watch_forks();
        let staging = if options.staging == 0 { STAGING } else { options.staging };
        if options.max_multiprocessors < -1 {
            return Err(CopyError::invalid("max_multiprocessors is a number, 0 or -1"));
        }
        if !(256 << 10..=MAX_STAGING).contains(&staging) {
            return Err(CopyError::invalid(format!(
                "staging of {staging} bytes a GPU is out of range: 262144 to 16777216, or 0"
            )));
        }
        if !options.min_gain.is_finite() || options.min_gain < 0.0 {
            return Err(CopyError::invalid("min_gain is a factor of 0 or more"));
        }
        let min_gain = if options.min_gain == 0.0 { MIN_GAIN } else { options.min_gain };
        let threshold = if options.threshold == 0 { THRESHOLD } else { options.threshold };
        let shared = Arc::new(SharedNode {
            plans: PlanTable::default(),
            hand_over: HandOverTime::default(),
            counters: SharedCounters::default(),
            min_gain,
            staging,
            probe_bytes: largest_probe(options.probe_bytes).0 as usize,
            origin: ClockOrigin::now(),
            used_helpers: RwLock::default(),
            threshold,
        });
        let (commands, received) = channel();
        let (opened, open) = channel();
        let copy_threads = options.copy_threads.unwrap_or_else(|| {
            let cpus = cpus::allowed().map_or(1, |cpus| cpus.len());
            cpus.clamp(1, MAX_THREADS)
        });
        let (for_worker, for_blocks) = (Arc::clone(&shared), options);
        let options = options.clone();
        let worker = std::thread::Builder::new()
            .name("pathline".into())
            .spawn(move || worker::run(&options, &for_worker, &received, &opened))
            .map_err(|e| CopyError::new(CopyStatus::Internal, format!("no thread starts: {e}")))?;
        let stopped = || CopyError::new(CopyStatus::Internal, "the worker stopped while it opened");
        let OpenedNode { calls, finder, kernels } = open.recv().map_err(|_| stopped())??;
        let (worker, regions) = (Some(worker), HostRegions::default());
        let staging = StagingPool::new(Arc::clone(&calls));
        let staging_plans = StagingPlans::default();
        let blocks = BlockCopies::new(Arc::clone(&calls), kernels, Arc::clone(&shared), for_blocks);
        let node = Self {
            calls,
            finder,
            shared,
            commands,
            copy_threads,
            staging,
            staging_plans,
            blocks: Arc::new(blocks),
            worker,
            regions,
        };
        node.time_hand_over();
        Ok(node)
    }

    /// Times answers of the worker: until there are orders, these are what is known of hand-overs.
    fn time_hand_over(&self) {
        for _ in 0..FIRST_HAND_OVERS {
            let start = self.shared.now();
            let (reply, replies) = channel();
            let sent = self.commands.send(WorkerCommand::Answer(reply));
            if sent.is_err() || next_answer(&replies).is_err() {
                return;
            }
            self.shared.hand_over.note(self.shared.now() - start);
        }
    }

    /// Copies and waits. Ordered as the runtime's own copy: after all work of the default streams of both
    /// ends' GPUs, and of what those wait for.
    ///
    /// # Errors
    /// A range is none, or the runtime refuses the plain copy.
    ///
    /// # Safety
    /// Both ranges are live memory, and nothing else writes them meanwhile.
    pub unsafe fn copy(&self, dst: u64, src: u64, bytes: usize) -> Result<(), CopyError> {
        if bytes < self.shared.threshold {
            // SAFETY: the caller's promise.
            return unsafe { self.copy_plainly(dst, src, bytes, None) };
        }
        if let Ok(copy) = self.plan_copy(dst, src, bytes, CopyMode::Driven)? {
            let gpus = [copy.src.end.unit.gpu(), copy.dst[0].end.unit.gpu()];
            for device in gpus.into_iter().flatten().filter_map(|gpu| self.device(gpu)) {
                self.wait_default_stream(device)?;
            }
            if let Some(outcome) = self.copy_and_wait(copy) {
                return outcome;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_alone(dst, src, bytes, None) }
    }

    /// Copies in the order of a stream.
    ///
    /// # Errors
    /// As [`Self::copy`].
    ///
    /// # Safety
    /// As [`Self::copy`], until the stream has passed the copy; and the stream is live.
    #[inline]
    pub unsafe fn copy_async(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        stream: usize,
    ) -> Result<(), CopyError> {
        if bytes < self.shared.threshold {
            // SAFETY: the caller's promise.
            return unsafe { self.copy_plainly(dst, src, bytes, Some(stream)) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_large(dst, src, bytes, stream) }
    }

    unsafe fn copy_large(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        stream: usize,
    ) -> Result<(), CopyError> {
        if let Ok(copy) = self.plan_copy(dst, src, bytes, CopyMode::Enqueued)?
            // SAFETY: the caller's promise.
            && unsafe { self.enqueue(&[copy], &[stream]) }?.is_empty()
        {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_alone(dst, src, bytes, Some(stream)) }
    }

    /// Copies the same bytes to a GPU each, given by the runtime's numbers. In the order of the streams, or
    /// waits if there are none.
    ///
    /// # Errors
    /// As [`Self::copy_async`]; a destination is not memory of its GPU.
    ///
    /// # Safety
    /// As [`Self::copy_async`], for each destination.
    pub unsafe fn copy_to_all(
        &self,
        dst: &[(i32, u64)],
        src: u64,
        bytes: usize,
        streams: Option<&[usize]>,
    ) -> Result<(), CopyError> {
        if streams.is_some_and(|streams| streams.len() != dst.len()) {
            return Err(CopyError::invalid("there is not one stream for each destination"));
        }
        for (nth, &(_, address)) in dst.iter().enumerate() {
            check_ranges(address, src, bytes)?;
            if dst[..nth].iter().any(|&(_, other)| overlap(address, other, bytes)) {
                return Err(CopyError::invalid("two destinations overlap"));
            }
        }
        if dst.is_empty() || bytes == 0 {
            return Ok(());
        }
        if let Some(copy) = self.plan_to_all(dst, src, bytes, streams.is_some())? {
            if let Some(streams) = streams {
                // SAFETY: the caller's promise.
                if unsafe { self.enqueue(&[copy], streams) }?.is_empty() {
                    return Ok(());
                }
            } else {
                dst.iter().try_for_each(|&(device, _)| self.wait_default_stream(device))?;
                if let Some(outcome) = self.copy_and_wait(copy) {
                    return outcome;
                }
            }
        }
        for (nth, &(device, address)) in dst.iter().enumerate() {
            let stream = streams.map(|streams| streams[nth]);
            let entered = self
                .calls
                .enter(device)
                .map_err(|s| CopyError::refused(&*self.calls, "a device", s))?;
            // SAFETY: the caller's promise.
            let copied = unsafe { self.copy_alone(address, src, bytes, stream) };
            self.calls.leave(entered);
            copied?;
        }
        Ok(())
    }

    /// Copies over several paths and waits. None if the copy is to be made plainly.
    fn copy_and_wait(&self, copy: OrderedCopy) -> Option<Result<(), CopyError>> {
        match self.send(vec![copy], None)? {
            WorkerReply::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Passes copies to the worker: its answer, but for a refusal.
    pub(crate) fn send(
        &self,
        copies: Vec<OrderedCopy>,
        order: Option<CallerOrder>,
    ) -> Option<WorkerReply> {
        let (reply, replies) = channel();
        let claim = OrderClaim::default();
        let sent = self.shared.now();
        let order = CopyOrder { copies, order, claim: claim.clone(), reply, sent };
        self.commands.send(WorkerCommand::Copy(order)).ok()?;
        let mut next = next_answer(&replies);
        if next.is_err() && claim.take() {
            return None;
        }
        loop {
            match next {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(WorkerReply::Refused) | Err(RecvTimeoutError::Disconnected) => return None,
                Ok(answer) => return Some(answer),
            }
            next = next_answer(&replies);
        }
    }

    /// A copy over one path: of pageable memory through page-locked buffers, else the runtime's own.
    pub(crate) unsafe fn copy_alone(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        stream: Option<usize>,
    ) -> Result<(), CopyError> {
        if bytes >= self.shared.threshold
            && let Some(ends) = self.staged_ends(dst, src, bytes)
        {
            let order = stream.map_or(StagedOrder::Waits, StagedOrder::Stream);
            // SAFETY: the caller's promise.
            if let Some(outcome) = unsafe { self.copy_staged(&ends, order) } {
                return outcome;
            }
        }
        self.shared.count_plain(bytes);
        // SAFETY: the caller's promise.
        unsafe { self.copy_plainly(dst, src, bytes, stream) }
    }

    /// The runtime's own copy; without a stream it waits.
    pub(crate) unsafe fn copy_plainly(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        stream: Option<usize>,
    ) -> Result<(), CopyError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let copy = || unsafe {
            match stream {
                Some(stream) => self.calls.copy_async(dst, src, bytes, stream),
                None => self.calls.copy(dst, src, bytes),
            }
        };
        let status = copy();
        if status.1 == 0 {
            return Ok(());
        }
        self.copy_with_context(dst, src, bytes, status, copy)
    }

    /// Repeats a refused copy where only the context of the thread was missing.
    #[cold]
    fn copy_with_context(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        status: (&'static str, i32),
        copy: impl Fn() -> (&'static str, i32),
    ) -> Result<(), CopyError> {
        check_ranges(dst, src, bytes)?;
        let thing = || format!("{bytes} bytes from {src:#x} to {dst:#x}");
        let device = self.finder.devices.first().filter(|_| status.1 == NO_CONTEXT);
        let Some(&device) = device else {
            return Err(CopyError::refused(&*self.calls, &thing(), status));
        };
        let entered = self
            .calls
            .enter(device)
            .map_err(|status| CopyError::refused(&*self.calls, &thing(), status))?;
        let status = copy();
        self.calls.leave(entered);
        if status.1 == 0 { Ok(()) } else { Err(CopyError::refused(&*self.calls, &thing(), status)) }
    }

    pub(crate) fn device(&self, gpu: u32) -> Option<i32> {
        self.finder.devices.get(gpu as usize).copied()
    }

    pub(crate) fn wait_default_stream(&self, device: i32) -> Result<(), CopyError> {
        let thing = || format!("GPU {device}");
        let entered =
            self.calls.enter(device).map_err(|s| CopyError::refused(&*self.calls, &thing(), s))?;
        let status = self.calls.wait_default_stream();
        self.calls.leave(entered);
        if status.1 == 0 { Ok(()) } else { Err(CopyError::refused(&*self.calls, &thing(), status)) }
    }

    /// What the node has done so far.
    pub fn counters(&self) -> CopyCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.shared.counters;
        CopyCounters {
            plain: of(&counters.plain),
            multipath: of(&counters.multipath),
            multipath_bytes: of(&counters.multipath_bytes),
            relayed_bytes: of(&counters.relayed_bytes),
            repeated: of(&counters.repeated),
            lost: of(&counters.lost),
            fallbacks: of(&counters.fallbacks),
            switched_off: of(&counters.switched_off),
            staged: of(&counters.staged),
            staged_bytes: of(&counters.staged_bytes),
            blocks: of(&counters.blocks),
            batched_blocks: of(&counters.batched_blocks),
            refused_blocks: of(&counters.refused_blocks),
        }
    }

    /// Allocates host memory that all GPUs reach, on a NUMA domain or spread over all.
    ///
    /// # Errors
    /// Memory is short, there is no such domain, or the runtime does not register it.
    pub fn host_alloc(&self, bytes: usize, numa: Option<u32>) -> Result<u64, CopyError> {
        if let Some(numa) = numa.filter(|numa| !self.finder.domains.contains(numa)) {
            let known = &self.finder.domains;
            let text = format!("this process has no NUMA domain {numa}: its domains are {known:?}");
            return Err(CopyError::invalid(text));
        }
        let nodes = numa.map_or_else(|| self.finder.domains.clone(), |numa| vec![numa]);
        self.regions.allocate(self.host_runtime(), bytes, &nodes)
    }

    /// Maps a file of shared memory and lets all GPUs reach it.
    ///
    /// # Errors
    /// The file can shrink or cannot be mapped, or the runtime does not register it.
    pub fn host_attach(&self, file: i32, bytes: usize) -> Result<u64, CopyError> {
        self.regions.attach(self.host_runtime(), file, bytes)
    }

    /// Frees memory of [`Self::host_alloc`], or unmaps that of [`Self::host_attach`].
    ///
    /// # Errors
    /// There is none at that address.
    pub fn host_free(&self, address: u64) -> Result<(), CopyError> {
        self.regions.free(self.host_runtime(), address)
    }

    pub(crate) fn calls(&self) -> &dyn CallerCalls {
        &*self.calls
    }

    fn host_runtime(&self) -> HostRuntime<'_> {
        let device = self.finder.devices.first().copied().unwrap_or(0);
        HostRuntime { calls: self.calls(), device }
    }
}

impl Drop for CopyNode {
    /// Waits for copies in flight.
    fn drop(&mut self) {
        let _ = self.commands.send(WorkerCommand::Close);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
        self.blocks.close(self.host_runtime().device);
        self.regions.free_all(self.host_runtime());
    }
}

/// The worker's next answer: this thread looks for it for a while, then sleeps.
fn next_answer(replies: &Receiver<WorkerReply>) -> Result<WorkerReply, RecvTimeoutError> {
    for _ in 0..ANSWER_LOOKS {
        match replies.try_recv() {
            Ok(answer) => return Ok(answer),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    replies.recv_timeout(ANSWER_TIMEOUT)
}
