//! The threads of this process's GPUs, which are asked all at once, and samples that they take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use pathline_hal::{CallError, CallResult, RankBarrier};
use pathline_host::clock::ClockOrigin;
use pathline_schema::Severity;

use super::gpu_thread::{CclConfig, GpuThread, SampleMode, SampleSync, ThreadEvent};
use super::plan::CommGroup;

/// A request to a GPU thread; its return value is the reply.
pub(super) type ThreadRequest<R> = Box<dyn FnOnce(&mut GpuThread) -> R + Send>;
type ThreadJob = ThreadRequest<()>;

/// The thread of a GPU.
pub(super) struct ThreadHandle {
    jobs: Sender<ThreadJob>,
    /// Disconnects when the thread ends.
    gone: Receiver<()>,
}

/// The threads of all GPUs, each started on first use.
pub(super) struct GpuThreads {
    /// The runtime's handles of all GPUs.
    devices: Vec<i32>,
    timeout: Duration,
    config: CclConfig,
    threads: BTreeMap<u32, ThreadHandle>,
    /// Why no further call is made.
    lost: Option<String>,
}

/// Remaining time of a limit.
fn left(begun: ClockOrigin, limit: Duration) -> Duration {
    limit.saturating_sub(Duration::from_nanos(begun.ns()))
}

impl GpuThreads {
    /// For all GPUs of the runtime. `timeout` is that of a step beyond the time of its bytes.
    pub(super) fn new(devices: Vec<i32>, timeout: Duration, config: CclConfig) -> Self {
        Self { devices, timeout, config, threads: BTreeMap::new(), lost: None }
    }

    /// Why no further call is made, if a thread did not answer.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Timeout of a step beyond the time of its bytes.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The thread of a GPU, started on first use.
    pub(super) fn thread_of(&mut self, gpu: u32) -> CallResult<&ThreadHandle> {
        if !self.threads.contains_key(&gpu) {
            let Some(&device) = self.devices.get(gpu as usize) else {
                let why = format!("the runtime lists {} GPUs", self.devices.len());
                return Err(CallError::unsupported("bind", format!("gpu{gpu}"), why));
            };
            let (jobs, inbox) = channel::<ThreadJob>();
            let (ending, gone) = channel();
            let (opened, answer) = channel();
            let config = self.config.clone();
            let start = move || {
                // Dropped last, which announces the end of the thread.
                let _ending = ending;
                let mut gpu_thread = match GpuThread::open(gpu, device, config) {
                    Ok(gpu_thread) => gpu_thread,
                    Err(error) => {
                        let _ = opened.send(Err(error));
                        return;
                    }
                };
                let _ = opened.send(Ok(()));
                for job in inbox {
                    job(&mut gpu_thread);
                }
            };
            let thread = std::thread::Builder::new().name(format!("ccl gpu{gpu}")).spawn(start);
            if let Err(error) = thread {
                let thing = format!("the thread of gpu{gpu}");
                return Err(CallError::new(Severity::Exhausted, "spawn", thing, error.to_string()));
            }
            match answer.recv_timeout(self.timeout) {
                Ok(outcome) => outcome?,
                Err(_) => return Err(self.lose("open", &format!("gpu{gpu}"))),
            }
            self.threads.insert(gpu, ThreadHandle { jobs, gone });
        }
        self.threads.get(&gpu).ok_or_else(|| CallError::unsupported("bind", "a GPU", "it is gone"))
    }

    /// Marks the library as unusable after a thread did not answer.
    fn lose(&mut self, call: &str, thing: &str) -> CallError {
        let why = format!("{thing} gave no answer in {} s", self.timeout.as_secs());
        self.lost = Some(why.clone());
        CallError::new(Severity::Sticky, call, thing, why)
            .or_try("a rank may be missing, or a GPU does not answer; a new process is needed")
    }

    /// Runs a request on several GPU threads at the same time and returns their replies.
    pub(super) fn ask<R: Send + 'static>(
        &mut self,
        call: &str,
        jobs: Vec<(u32, ThreadRequest<R>)>,
    ) -> CallResult<Vec<R>> {
        let (count, begun) = (jobs.len(), ClockOrigin::now());
        let (answers, answered) = channel();
        let gpus: Vec<u32> = jobs.iter().map(|(gpu, _)| *gpu).collect();
        for (nth, (gpu, job)) in jobs.into_iter().enumerate() {
            let answers = answers.clone();
            let job: ThreadJob = Box::new(move |gpu_thread| {
                let _ = answers.send((nth, job(gpu_thread)));
            });
            if self.thread_of(gpu)?.jobs.send(job).is_err() {
                return Err(self.lose(call, &format!("gpu{gpu}")));
            }
        }
        drop(answers);
        let mut all: Vec<Option<R>> = (0..count).map(|_| None).collect();
        for _ in 0..count {
            match answered.recv_timeout(left(begun, self.timeout)) {
                Ok((nth, answer)) => all[nth] = Some(answer),
                Err(_) => {
                    let silent = all.iter().zip(&gpus).find(|(a, _)| a.is_none());
                    let gpu = silent.map_or(0, |(_, gpu)| *gpu);
                    return Err(self.lose(call, &format!("gpu{gpu}")));
                }
            }
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// Runs a request with a group on every GPU thread.
    pub(super) fn ask_all(
        &mut self,
        call: &str,
        group: CommGroup,
        act: fn(&mut GpuThread, &CommGroup),
    ) -> CallResult<()> {
        let gpus: Vec<u32> = self.threads.keys().copied().collect();
        let job = |gpu: u32| {
            let group = group.clone();
            let job: ThreadJob = Box::new(move |gpu_thread| act(gpu_thread, &group));
            (gpu, job)
        };
        self.ask(call, gpus.into_iter().map(job).collect()).map(|_| ())
    }

    /// Takes a sample on these GPUs at the same time; the time of each in each round, in ns.
    pub(super) fn take_sample(
        &mut self,
        gpus: &[u32],
        sample: SampleMode,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<u64>>> {
        let (rounds, _) = sample.pace.rounds(sample.reps);
        let turn = Arc::new(SampleSync::default());
        let (sender, events) = channel();
        for (nth, &gpu) in gpus.iter().enumerate() {
            let (shared, sender) = (Arc::clone(&turn), sender.clone());
            let job: ThreadJob = Box::new(move |gpu_thread| {
                gpu_thread.run(sample, &shared, &|what| {
                    let _ = sender.send((nth, what));
                });
            });
            if self.thread_of(gpu)?.jobs.send(job).is_err() {
                turn.failed.store(true, Ordering::Release);
                return Err(self.lose("run", &format!("gpu{gpu}")));
            }
        }
        drop(sender);
        let limit = Duration::from_nanos(sample.limit) + self.timeout;
        let mut round = SampleRound { events, gpus, over: vec![false; gpus.len()], limit };
        let outcome = round.run_rounds(rounds, &turn, barrier);
        if outcome.is_err() {
            turn.failed.store(true, Ordering::Release);
        }
        let silent = round.wait_for_all();
        if let Some(gpu) = silent {
            return Err(self.lose("run", &format!("gpu{gpu}")));
        }
        outcome
    }
}

impl Drop for GpuThreads {
    /// Joins the threads, but not one that never answers.
    fn drop(&mut self) {
        let begun = ClockOrigin::now();
        let threads = std::mem::take(&mut self.threads).into_values();
        // Dropping a thread's inbox ends it.
        let gone: Vec<Receiver<()>> = threads.map(|thread| thread.gone).collect();
        if self.lost.is_some() {
            return;
        }
        for gone in gone {
            // Nothing is ever sent: the call returns when the thread ends or on timeout.
            let _ = gone.recv_timeout(left(begun, self.timeout));
        }
    }
}

/// A sample in the view of the port's thread.
struct SampleRound<'a> {
    events: Receiver<(usize, ThreadEvent)>,
    gpus: &'a [u32],
    over: Vec<bool>,
    limit: Duration,
}

impl SampleRound<'_> {
    /// The next event other than the end of a thread's sample.
    fn next_event(&mut self, begun: ClockOrigin) -> CallResult<(usize, ThreadEvent)> {
        let event = self.events.recv_timeout(left(begun, self.limit)).map_err(|_| {
            CallError::new(Severity::Sticky, "run", "a GPU", "its thread gave no answer")
        })?;
        if let (nth, ThreadEvent::Over(outcome)) = &event {
            self.over[*nth] = true;
            outcome.clone()?;
        }
        Ok(event)
    }

    /// Runs all rounds; the time of each GPU in each round.
    fn run_rounds(
        &mut self,
        rounds: u64,
        turn: &SampleSync,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<u64>>> {
        let (count, begun) = (self.gpus.len(), ClockOrigin::now());
        let mut ready = 0;
        while ready < count {
            ready += usize::from(matches!(self.next_event(begun)?.1, ThreadEvent::Ready));
        }
        let mut all = Vec::new();
        for round in 1..=rounds {
            barrier.wait()?;
            turn.go.store(round, Ordering::Release);
            let (begun, mut times, mut done) = (ClockOrigin::now(), vec![0; count], 0);
            while done < count {
                if let (nth, ThreadEvent::Done(ns)) = self.next_event(begun)? {
                    times[nth] = ns;
                    done += 1;
                }
            }
            all.push(times);
        }
        let begun = ClockOrigin::now();
        while self.over.contains(&false) {
            self.next_event(begun)?;
        }
        Ok(all)
    }

    /// Waits until all GPU threads have ended the sample. Returns a GPU that exceeded the timeout.
    fn wait_for_all(&mut self) -> Option<u32> {
        let begun = ClockOrigin::now();
        while let Some(nth) = self.over.iter().position(|over| !over) {
            match self.events.recv_timeout(left(begun, self.limit)) {
                Ok((nth, ThreadEvent::Over(_))) => self.over[nth] = true,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Some(self.gpus[nth]);
                }
            }
        }
        None
    }
}
