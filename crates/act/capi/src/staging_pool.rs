//! Threads that carry pageable memory and files through page-locked buffers, several chunks at a time.
//!
//! The runtime does that with one thread and reaches 7 GB/s. No thread of the pool waits for work of a caller's
//! stream: a caller hands a copy over when it may begin.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pathline_gpu::{CallStatus, CallerCalls};
use pathline_host::clock::ClockOrigin;
use pathline_host::cpus;
use pathline_schema::CpuSet;

use crate::staged_file::FileFault;
use crate::staging_buffers::{BUFFERS, StagingBuffers};
use crate::staging_job::{HostEnd, StagedJob, StagedWay};

/// Time after which a thread without work ends and gives its page-locked memory back.
const IDLE: Duration = Duration::from_secs(10);
/// Most threads of copies that run at the same time, unless one asks for more: 256 MiB of page-locked memory.
const MAX_POOL: usize = 32;

/// Why a job failed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StagedFault {
    /// The runtime refused a call, no thread could take the job, or one panicked: a plain copy may succeed.
    Copy,
    /// The file could not be read.
    File(FileFault),
}

impl From<CallStatus> for StagedFault {
    fn from(_: CallStatus) -> Self {
        Self::Copy
    }
}

/// A job that threads take part in.
#[derive(Debug)]
struct SharedJob {
    job: Arc<StagedJob>,
    /// Threads at work on it.
    busy: usize,
    /// Threads that have joined it, at work or not.
    joined: usize,
    /// Numbers of the events that were recorded.
    recorded: Vec<usize>,
    failure: Option<StagedFault>,
}

impl SharedJob {
    fn is_open(&self) -> bool {
        self.failure.is_none() && self.joined < self.job.threads && !self.job.is_taken()
    }

    fn is_over(&self, threads: usize) -> bool {
        self.busy == 0 && (self.failure.is_some() || self.job.is_taken() || threads == 0)
    }
}

#[derive(Debug, Default)]
struct PoolState {
    jobs: Vec<SharedJob>,
    /// Threads that run.
    threads: usize,
    closes: bool,
}

#[derive(Debug)]
struct PoolShared {
    calls: Arc<dyn CallerCalls>,
    state: Mutex<PoolState>,
    /// There is a job, or the pool closes.
    wake: Condvar,
    /// A thread has left a job.
    left: Condvar,
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that start when there is work.
#[derive(Debug)]
pub(crate) struct StagingPool {
    shared: Arc<PoolShared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl StagingPool {
    pub(crate) fn new(calls: Arc<dyn CallerCalls>) -> Self {
        let (state, wake, left) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self {
            shared: Arc::new(PoolShared { calls, state, wake, left }),
            handles: Mutex::default(),
        }
    }

    /// Makes a copy. When it returns, host memory is read, or written, as a whole, and GPUs write what is left of a
    /// copy in. The numbers of the events of the job that were recorded.
    ///
    /// # Errors
    /// No copy is in flight any more, and any bytes may be wrong.
    pub(crate) fn run(&self, job: StagedJob) -> Result<Vec<usize>, StagedFault> {
        let job = Arc::new(job);
        self.start_threads(job.threads);
        let mut state = self.shared.lock();
        let (busy, joined, recorded, failure) = (0, 0, Vec::new(), None);
        state.jobs.push(SharedJob { job: Arc::clone(&job), busy, joined, recorded, failure });
        self.shared.wake.notify_all();
        loop {
            let is_this = |shared: &SharedJob| Arc::ptr_eq(&shared.job, &job);
            let Some(nth) = state.jobs.iter().position(is_this) else {
                return Err(StagedFault::Copy);
            };
            if state.jobs[nth].is_over(state.threads) {
                let SharedJob { recorded, failure, job, .. } = state.jobs.remove(nth);
                drop(state);
                let missing = || (!job.is_taken()).then_some(StagedFault::Copy);
                let Some(fault) = failure.or_else(missing) else { return Ok(recorded) };
                for event in recorded.into_iter().filter_map(|nth| job.done.get(nth)) {
                    // SAFETY: an event of the caller, which a thread has recorded.
                    let _ = unsafe { self.shared.calls.event_wait(*event) };
                }
                return Err(fault);
            }
            state = self.shared.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Frees memory of a GPU on a separate thread: the runtime may wait for streams of callers first.
    pub(crate) fn free_later(&self, device: i32, address: u64) {
        let shared = Arc::clone(&self.shared);
        let free = move || {
            if let Ok(entered) = shared.calls.enter(device) {
                // SAFETY: memory of this library that nothing uses any more.
                unsafe { shared.calls.memory_free(address) };
                shared.calls.leave(entered);
            }
        };
        let started = std::thread::Builder::new().name("pathline-free".to_owned()).spawn(free);
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).extend(started.ok());
    }

    /// Has at least this many threads besides those at work, if the system lets them.
    fn start_threads(&self, free: usize) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| !handle.is_finished());
        let mut state = self.shared.lock();
        let busy: usize = state.jobs.iter().map(|shared| shared.busy).sum();
        let wanted = (busy + free).min(MAX_POOL.max(free));
        while state.threads < wanted && !state.closes {
            let shared = Arc::clone(&self.shared);
            let name = "pathline-copy".to_owned();
            let started = std::thread::Builder::new().name(name).spawn(move || serve(&shared));
            let Ok(handle) = started else { return };
            handles.push(handle);
            state.threads += 1;
        }
    }
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        self.shared.lock().closes = true;
        self.shared.wake.notify_all();
        let handles = self.handles.get_mut().unwrap_or_else(PoisonError::into_inner);
        handles.drain(..).for_each(|handle| drop(handle.join()));
    }
}

/// Takes part in jobs until the pool closes or none has come for a while.
fn serve(shared: &PoolShared) {
    let (mut buffers, mut near) = (None, CpuSet::default());
    while let Some((job, nth)) = next_job(shared) {
        let work = || take_part(&*shared.calls, (&mut buffers, &mut near), &job, nth);
        let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(StagedFault::Copy));
        let mut state = shared.lock();
        let is_this = |shared: &&mut SharedJob| Arc::ptr_eq(&shared.job, &job);
        if let Some(shared) = state.jobs.iter_mut().find(is_this) {
            shared.busy -= 1;
            match outcome {
                Ok(is_recorded) => shared.recorded.extend(is_recorded.then_some(nth)),
                Err(fault) => shared.failure = shared.failure.or(Some(fault)),
            }
        }
        shared.left.notify_all();
    }
    if let Some((device, buffers)) = buffers {
        let entered = shared.calls.enter(device);
        drop(buffers);
        entered.into_iter().for_each(|entered| shared.calls.leave(entered));
    }
}

/// The job with the fewest threads, and the number of this one in it. None if this thread is to end.
fn next_job(shared: &PoolShared) -> Option<(Arc<StagedJob>, usize)> {
    let begun = ClockOrigin::now();
    let mut state = shared.lock();
    loop {
        let open = state.jobs.iter_mut().filter(|shared| shared.is_open());
        if let Some(shared) = open.min_by_key(|shared| shared.busy) {
            shared.busy += 1;
            shared.joined += 1;
            return Some((Arc::clone(&shared.job), shared.joined - 1));
        }
        let left = IDLE.saturating_sub(Duration::from_nanos(begun.ns()));
        if state.closes || left.is_zero() {
            state.threads -= 1;
            shared.left.notify_all();
            return None;
        }
        let woken = shared.wake.wait_timeout(state, left);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Buffers, and the device in whose context they were registered.
type OwnedBuffers<'c> = Option<(i32, StagingBuffers<'c>)>;

/// Copies chunks of a job until none is left. Whether the event of the thread with this number was recorded.
fn take_part<'c>(
    calls: &'c dyn CallerCalls,
    (owned, near): (&mut OwnedBuffers<'c>, &mut CpuSet),
    job: &StagedJob,
    nth: usize,
) -> Result<bool, StagedFault> {
    if !job.cpus.is_empty() && *near != job.cpus {
        // A wish: threads that may not run there copy from where they are.
        let _ = cpus::restrict(&job.cpus);
        near.clone_from(&job.cpus);
    }
    let entered = calls.enter(job.device)?;
    let outcome = (|| {
        let (_, buffers) = match owned {
            Some(buffers) => buffers,
            None => owned.insert((job.device, StagingBuffers::allocate(calls)?)),
        };
        let outcome = match job.way {
            StagedWay::In => copy_in(calls, buffers, job, nth),
            StagedWay::Out => copy_out(buffers, job).map(|()| false).map_err(StagedFault::from),
        };
        if outcome.is_err() {
            buffers.drain();
        }
        outcome
    })();
    calls.leave(entered);
    outcome
}

fn copy_in(
    calls: &dyn CallerCalls,
    buffers: &mut StagingBuffers<'_>,
    job: &StagedJob,
    nth: usize,
) -> Result<bool, StagedFault> {
    let lane = buffers.lane(job.device)?;
    let (mut turn, mut is_used) = (0, false);
    while let Some((offset, bytes)) = job.take_chunk() {
        let buffer = buffers.wait_for(turn)?;
        let from = match &job.host {
            HostEnd::Memory(host) => {
                // SAFETY: the caller of the library vouches for its memory; the buffer is free and as large as a chunk.
                unsafe { copy_bytes(buffer, host + offset as u64, bytes) };
                buffer
            }
            HostEnd::File(file) => {
                // SAFETY: the buffer is free and two grains larger than a chunk of a file.
                let read = unsafe { file.read(buffer, offset, bytes) };
                read.map_err(StagedFault::File)?
            }
        };
        buffers.enqueue(&lane, turn, (job.device_memory + offset as u64, from, bytes))?;
        (turn, is_used) = ((turn + 1) % BUFFERS, true);
    }
    let Some(&done) = job.done.get(nth).filter(|_| is_used) else { return Ok(false) };
    // SAFETY: an event of the caller, who waits for this thread before it destroys it, and a live stream.
    match unsafe { calls.event_record(done, lane.stream) } {
        (_, 0) => Ok(true),
        status => Err(status.into()),
    }
}

fn copy_out(buffers: &mut StagingBuffers<'_>, job: &StagedJob) -> Result<(), CallStatus> {
    let lane = buffers.lane(job.device)?;
    let HostEnd::Memory(host) = job.host else { return Err(("a copy out to a file", -1)) };
    let (mut turn, mut filling) = (0, None);
    loop {
        let next = job.take_chunk();
        if let Some((offset, bytes)) = next {
            let buffer = buffers.wait_for(turn)?;
            buffers.enqueue(&lane, turn, (buffer, job.device_memory + offset as u64, bytes))?;
        }
        let before = std::mem::replace(&mut filling, next.map(|chunk| (turn, chunk)));
        if let Some((turn, (offset, bytes))) = before {
            let buffer = buffers.wait_for(turn)?;
            // SAFETY: as in `copy_in`; the copy into the buffer has ended.
            unsafe { copy_bytes(host + offset as u64, buffer, bytes) };
        }
        if filling.is_none() {
            return Ok(());
        }
        turn = (turn + 1) % BUFFERS;
    }
}

/// # Safety
/// Live ranges that do not overlap, which nothing else writes.
unsafe fn copy_bytes(dst: u64, src: u64, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(src as *const u8, dst as *mut u8, bytes) };
}
