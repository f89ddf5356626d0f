//! A GPU and the thread that drives it: its stream, its communicators and its bound collectives.
//!
//! Each GPU has a thread, because one thread issues calls for several GPUs one after the other:
//! nccl-tests with eight GPUs in one thread takes 56 us for an operation that takes the GPUs a few.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pathline_hal::{CallError, CallResult, ExchangeId, RepeatMode, no_exchange};
use pathline_schema::Severity;

use super::api::{CclApi, CclUniqueId};
use super::comm_stream::CommStream;
use super::plan::{CclCall, CommGroup, GpuSteps, named};
use pathline_gpu::CallStatus;
use pathline_gpu::RuntimeFamily;
use pathline_gpu::error::outcome;
use pathline_gpu::function_table::RuntimeHandle;
use pathline_gpu::search::{self, BoundDriver};
use pathline_host::clock::ClockOrigin;
use pathline_host::gate::wait_until;

/// `CU_STREAM_NON_BLOCKING`, `hipStreamNonBlocking`
const NON_BLOCKING: u32 = 1;
const NOT_READY: i32 = 600;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: calls of other threads do not affect the capture.
const THREAD_LOCAL: i32 = 1;
/// Repetitions of one graph. A launch costs as much as a few calls; over 64 repetitions that is
/// below 0.1 us each.
const GRAPH_REPS: u64 = 64;
/// Stream polls between two checks of errors and the clock.
const POLLS: u32 = 256;
/// Stream polls before the thread yields its core.
const POLLS_BEFORE_YIELD: u32 = 2048;

/// Settings that all GPU threads of a port share.
#[derive(Debug, Clone)]
pub(super) struct CclConfig {
    pub(super) family: RuntimeFamily,
    /// File of the GPU runtime. Each thread binds it separately.
    pub(super) runtime: PathBuf,
    pub(super) calls: CclApi,
    /// Whether buffers are registered with the communicator.
    pub(super) register: bool,
}

/// The state of one sample, shared by the GPU threads and the thread of the port.
#[derive(Debug, Default)]
pub(super) struct SampleSync {
    /// Number of rounds that may have begun.
    pub(super) go: AtomicU64,
    /// A GPU failed: the others stop.
    pub(super) failed: AtomicBool,
}

/// An event that a GPU thread sends during a sample.
#[derive(Debug)]
pub(super) enum ThreadEvent {
    Ready,
    /// A round ended. Its duration in ns.
    Done(u64),
    Over(CallResult<()>),
}

/// How to take a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleMode {
    pub(super) id: ExchangeId,
    pub(super) reps: u64,
    pub(super) pace: RepeatMode,
    /// Timeout of a round in ns.
    pub(super) limit: u64,
}

struct CclComm {
    handle: RuntimeHandle,
    size: u64,
    /// Distinguishes it from an earlier one at the same address.
    serial: u64,
}

struct CclGraph {
    made: RuntimeHandle,
    recorded: RuntimeHandle,
}

struct BoundCollective {
    group: CommGroup,
    serial: u64,
    steps: Vec<Vec<CclCall>>,
    registered: Vec<RuntimeHandle>,
    /// By number of repetitions.
    graphs: BTreeMap<u64, CclGraph>,
}

/// A GPU of this process.
pub(super) struct GpuThread {
    gpu: u32,
    device: i32,
    runtime: BoundDriver,
    set: CclConfig,
    stream: RuntimeHandle,
    comms: BTreeMap<CommGroup, CclComm>,
    bound: BTreeMap<ExchangeId, BoundCollective>,
    made: u64,
}

impl GpuThread {
    /// Binds the runtime for this thread and creates a stream.
    pub(super) fn open(gpu: u32, device: i32, set: CclConfig) -> CallResult<Self> {
        let (runtime, found) = search::driver(set.family, Some(&set.runtime));
        let Some(runtime) = runtime else {
            let why = found.tried.first().map_or("it is gone", |t| t.why.as_str()).to_owned();
            return Err(CallError::unsupported("open", set.runtime.display().to_string(), why));
        };
        let (comms, bound) = (BTreeMap::new(), BTreeMap::new());
        let mut seat = Self { gpu, device, runtime, set, stream: 0, comms, bound, made: 0 };
        seat.enter()?;
        let (call, mut stream) = (seat.runtime.api.stream_create, 0);
        // SAFETY: stores one handle.
        let code = unsafe { (call.at)(&raw mut stream, NON_BLOCKING) };
        seat.of_runtime((call.name, code))?;
        seat.stream = stream;
        Ok(seat)
    }

    fn of_runtime(&self, status: CallStatus) -> CallResult<()> {
        outcome(&*self.runtime.dialect, status, &|| format!("gpu{}", self.gpu))
    }

    fn enter(&self) -> CallResult<()> {
        self.of_runtime(self.runtime.dialect.enter(self.device))
    }

    /// Creates a communicator, if an identifier is given, and binds the operations on it. Returns
    /// whether all buffers are registered with it; `None` if the library has no call for that.
    pub(super) fn bind(
        &mut self,
        id: ExchangeId,
        group: &CommGroup,
        plan: &GpuSteps,
        identity: Option<CclUniqueId>,
    ) -> CallResult<Option<bool>> {
        self.enter()?;
        if let Some(identity) = identity {
            self.connect(group, plan.rank, identity)?;
        }
        let Some(comm) = self.comms.get(group) else {
            return Err(self.given_up(group));
        };
        let (handle, serial) = (comm.handle, comm.serial);
        let mut registered = Vec::new();
        let mut whole = None;
        if let Some(call) =
            self.set.calls.ccl.register.filter(|_| self.set.register && !plan.spans.is_empty())
        {
            let mut spans: Vec<_> = plan.spans.iter().map(|s| (s.address, s.bytes)).collect();
            spans.sort_unstable();
            spans.dedup();
            for &(address, bytes) in &spans {
                let mut got = 0;
                // SAFETY: a live communicator, a range that the caller keeps until it is released,
                // and one handle that is stored.
                let code = unsafe { (call.at)(handle, address, bytes as usize, &raw mut got) };
                registered.extend((code == 0).then_some(got));
            }
            whole = Some(registered.len() == spans.len());
        }
        let (group, steps, graphs) = (group.clone(), plan.steps.clone(), BTreeMap::new());
        self.bound.insert(id, BoundCollective { group, serial, steps, registered, graphs });
        Ok(whole)
    }

    fn connect(&mut self, group: &CommGroup, rank: i32, identity: CclUniqueId) -> CallResult<()> {
        self.give_up(group);
        let call = self.set.calls.ccl.init_rank;
        let size = i32::try_from(group.len()).unwrap_or(i32::MAX);
        let mut handle = 0;
        // SAFETY: stores one handle; the identity goes by value.
        let code = unsafe { (call.at)(&raw mut handle, size, identity, rank) };
        let thing = || format!("gpu{} as rank {rank} of {}", self.gpu, named(group));
        self.set.calls.outcome((call.name, code), 0, &thing)?;
        self.made += 1;
        let comm = CclComm { handle, size: group.len() as u64, serial: self.made };
        self.comms.insert(group.clone(), comm);
        Ok(())
    }

    fn given_up(&self, group: &CommGroup) -> CallError {
        let thing = format!("gpu{} of {}", self.gpu, named(group));
        let why = "its communicator was aborted after an error";
        CallError::new(Severity::Transient, "ncclCommInitRank", thing, why)
            .or_try("bind the case again")
    }

    /// Aborts a communicator in any state.
    pub(super) fn give_up(&mut self, group: &CommGroup) {
        if let Some(comm) = self.comms.remove(group) {
            // SAFETY: a communicator of this thread, which nobody has from here on.
            unsafe { (self.set.calls.ccl.abort.at)(comm.handle) };
        }
    }

    /// Destroys an idle communicator.
    pub(super) fn close(&mut self, group: &CommGroup) {
        if let Some(comm) = self.comms.remove(group) {
            // SAFETY: as above, and nothing is enqueued on it.
            unsafe { (self.set.calls.ccl.destroy.at)(comm.handle) };
        }
    }

    /// Releases a bound collective.
    pub(super) fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        let Some(bound) = self.bound.remove(&id) else { return Ok(()) };
        self.enter()?;
        let api = &self.runtime.api;
        for graph in bound.graphs.into_values() {
            if let (Some(unmake), Some(free)) = (api.graph_unmake, api.graph_free) {
                // SAFETY: made by `record`, each freed once, and the stream is idle.
                unsafe {
                    (unmake.at)(graph.made);
                    (free.at)(graph.recorded);
                }
            }
        }
        let comm = self.comms.get(&bound.group).filter(|c| c.serial == bound.serial);
        if let (Some(comm), Some(call)) = (comm, self.set.calls.ccl.deregister) {
            for handle in bound.registered {
                // SAFETY: given by this communicator, given back once.
                let code = unsafe { (call.at)(comm.handle, handle) };
                let thing = || format!("a buffer of gpu{}", self.gpu);
                self.set.calls.outcome((call.name, code), comm.handle, &thing)?;
            }
        }
        Ok(())
    }

    /// Takes part in a sample.
    pub(super) fn run(
        &mut self,
        sample: SampleMode,
        turn: &SampleSync,
        send_event: &dyn Fn(ThreadEvent),
    ) {
        let outcome = self.rounds(sample, turn, send_event);
        if outcome.is_err()
            && let Some(group) = self.bound.get(&sample.id).map(|b| b.group.clone())
        {
            // Nothing else ends kernels that wait for each other.
            self.give_up(&group);
        }
        send_event(ThreadEvent::Over(outcome));
    }

    fn rounds(
        &mut self,
        sample: SampleMode,
        turn: &SampleSync,
        send_event: &dyn Fn(ThreadEvent),
    ) -> CallResult<()> {
        let SampleMode { id, reps, pace, limit } = sample;
        self.enter()?;
        let graphs = if pace == RepeatMode::Graph { self.graphs(id, reps)? } else { Vec::new() };
        let Some(bound) = self.bound.get(&id) else {
            return Err(no_exchange("run", id));
        };
        let comm = self.comms.get(&bound.group).filter(|c| c.serial == bound.serial);
        let Some(comm) = comm else { return Err(self.given_up(&bound.group)) };
        let line = self.line(comm);
        let thing = || format!("gpu{} of {}", self.gpu, named(&bound.group));
        let (rounds, in_a_round) = pace.rounds(reps);
        send_event(ThreadEvent::Ready);
        for round in 1..=rounds {
            wait_until(|| {
                turn.go.load(Ordering::Acquire) >= round || turn.failed.load(Ordering::Acquire)
            });
            if turn.failed.load(Ordering::Acquire) {
                return Err(self.another(&bound.group));
            }
            let begun = ClockOrigin::now();
            if pace == RepeatMode::Graph {
                for &graph in &graphs {
                    self.launch(graph)?;
                }
            } else {
                for _ in 0..in_a_round {
                    self.set.calls.outcome(line.run_steps(&bound.steps), line.comm, &thing)?;
                }
            }
            self.wait(line.comm, &bound.group, turn, limit)?;
            send_event(ThreadEvent::Done(begun.ns()));
        }
        self.set.calls.met(line.comm, &thing)
    }

    fn line(&self, comm: &CclComm) -> CommStream<'_> {
        let calls = &self.set.calls;
        CommStream { calls, comm: comm.handle, size: comm.size, stream: self.stream }
    }

    fn another(&self, group: &CommGroup) -> CallError {
        let thing = format!("gpu{} of {}", self.gpu, named(group));
        CallError::new(Severity::Transient, "run", thing, "another GPU of the case failed")
    }

    /// Polls until the stream is idle: a wait inside the runtime never ends when a peer is gone.
    fn wait(
        &self,
        comm: RuntimeHandle,
        group: &CommGroup,
        turn: &SampleSync,
        limit: u64,
    ) -> CallResult<()> {
        let query = self.runtime.api.stream_query;
        let begun = ClockOrigin::now();
        for looks in 1u32.. {
            // SAFETY: a live stream.
            match unsafe { (query.at)(self.stream) } {
                0 => return Ok(()),
                NOT_READY => {}
                code => return self.of_runtime((query.name, code)),
            }
            if looks > POLLS_BEFORE_YIELD {
                std::thread::yield_now();
            }
            if !looks.is_multiple_of(POLLS) {
                continue;
            }
            if turn.failed.load(Ordering::Acquire) {
                return Err(self.another(group));
            }
            let thing = || format!("gpu{} of {}", self.gpu, named(group));
            self.set.calls.met(comm, &thing)?;
            if begun.ns() > limit {
                let why = format!("it did not end within {} s", limit / 1_000_000_000);
                let way_out = "a rank is missing, or a GPU does not answer; the communicator was aborted. NCCL_DEBUG=INFO shows how far it got";
                return Err(
                    CallError::new(Severity::Sticky, query.name, thing(), why).or_try(way_out)
                );
            }
        }
        Ok(())
    }

    /// Graphs that together make this number of repetitions, recorded on first use.
    fn graphs(&mut self, id: ExchangeId, reps: u64) -> CallResult<Vec<RuntimeHandle>> {
        let mut all = Vec::new();
        let mut left = reps;
        while left > 0 {
            let count = left.min(GRAPH_REPS);
            left -= count;
            all.push(self.graph(id, count)?);
        }
        Ok(all)
    }

    fn graph(&mut self, id: ExchangeId, count: u64) -> CallResult<RuntimeHandle> {
        let Some(bound) = self.bound.get(&id) else {
            return Err(no_exchange("run", id));
        };
        if let Some(graph) = bound.graphs.get(&count) {
            return Ok(graph.made);
        }
        let comm = self.comms.get(&bound.group).filter(|c| c.serial == bound.serial);
        let Some(comm) = comm else { return Err(self.given_up(&bound.group)) };
        let graph = self.record(bound, comm, count)?;
        let made = graph.made;
        if let Some(bound) = self.bound.get_mut(&id) {
            bound.graphs.insert(count, graph);
        }
        Ok(made)
    }

    fn record(&self, bound: &BoundCollective, comm: &CclComm, count: u64) -> CallResult<CclGraph> {
        let (api, line) = (&self.runtime.api, self.line(comm));
        let thing = || format!("gpu{}", self.gpu);
        let (Some(begin), Some(end)) = (api.capture_begin, api.capture_end) else {
            let why = "this runtime has no calls that record a stream as a graph";
            return Err(CallError::unsupported("run", thing(), why)
                .or_try("measure the streaming cadence, or use CUDA 11.4 or ROCm 5.3 and later"));
        };
        // SAFETY: a live stream that is idle.
        let code = unsafe { (begin.at)(self.stream, THREAD_LOCAL) };
        self.of_runtime((begin.name, code))?;
        let mut status = ("ncclGroupEnd", 0);
        for _ in 0..count {
            if status.1 == 0 {
                status = line.run_steps(&bound.steps);
            }
        }
        let mut recorded = 0;
        // SAFETY: the capture that was begun above, which ends here whatever went wrong in it.
        let code = unsafe { (end.at)(self.stream, &raw mut recorded) };
        self.set.calls.outcome(status, line.comm, &thing)?;
        self.of_runtime((end.name, code))?;
        let mut made = 0;
        let status = if let Some(make) = api.graph_make {
            // SAFETY: a graph that was recorded, and one handle that is stored.
            (make.name, unsafe { (make.at)(&raw mut made, recorded, 0) })
        } else if let Some(make) = api.graph_make_older {
            let none = std::ptr::null_mut();
            // SAFETY: as above; no place for a message is given.
            let code = unsafe { (make.at)(&raw mut made, recorded, none, std::ptr::null_mut(), 0) };
            (make.name, code)
        } else {
            let why = "this runtime has no call that makes a graph ready to launch";
            return Err(CallError::unsupported("run", thing(), why));
        };
        self.of_runtime(status)?;
        Ok(CclGraph { made, recorded })
    }

    fn launch(&self, graph: RuntimeHandle) -> CallResult<()> {
        let Some(call) = self.runtime.api.graph_launch else {
            let why = "this runtime has no call that launches a graph";
            return Err(CallError::unsupported("run", format!("gpu{}", self.gpu), why));
        };
        // SAFETY: a live graph and stream of this GPU.
        let code = unsafe { (call.at)(graph, self.stream) };
        self.of_runtime((call.name, code))
    }
}

impl Drop for GpuThread {
    /// Errors are ignored: `drop` has no caller to report to.
    fn drop(&mut self) {
        let _ = self.enter();
        let all: Vec<ExchangeId> = self.bound.keys().copied().collect();
        for id in all {
            let _ = self.release(id);
        }
        let groups: Vec<CommGroup> = self.comms.keys().cloned().collect();
        for group in groups {
            self.close(&group);
        }
        // SAFETY: the stream was made by `open` and is idle, or its work was ended.
        unsafe { (self.runtime.api.stream_destroy.at)(self.stream) };
        self.runtime.dialect.leave(self.device);
    }
}
