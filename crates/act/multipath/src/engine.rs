//! The engine: copies that run at the same time over the same streams and slots.

use std::collections::BTreeMap;

use pathline_hal::{CallError, CallResult, GpuEvent, Machine, StartGate};
use pathline_schema::{GpuSet, Ns, Severity};

use crate::enqueued::{EnqueueFailure, StreamOrder, enqueue_relayed};
use crate::enqueued_to_all::enqueue_to_all;
use crate::relay::{QuarantinedSlot, RelayCopy};
use crate::request::{CopyReport, CopyRequest};
use crate::resources::{EngineResources, StreamPair, StreamUse};
use crate::spread::CopyToAll;

/// Longest pause between two looks at what is in flight.
pub(crate) const POLL: Ns = Ns(2_000.0);

/// A copy of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransferId(u64);

enum CopyKind<'m> {
    Relayed(Box<RelayCopy<'m>>),
    ToAll(Box<CopyToAll<'m>>),
}

impl<'m> CopyKind<'m> {
    fn new(resources: &mut EngineResources<'m>, request: CopyRequest) -> CallResult<Self> {
        if request.others.is_empty() {
            RelayCopy::new(resources, request).map(|copy| Self::Relayed(Box::new(copy)))
        } else {
            CopyToAll::new(resources, request).map(|copy| Self::ToAll(Box::new(copy)))
        }
    }

    fn hold(&self, gate: &StartGate<'_>) -> CallResult<()> {
        match self {
            Self::Relayed(copy) => copy.hold(gate),
            Self::ToAll(copy) => copy.hold(gate),
        }
    }

    fn issue(&mut self, resources: &mut EngineResources<'m>) {
        match self {
            Self::Relayed(copy) => copy.issue(resources),
            Self::ToAll(copy) => copy.issue(resources),
        };
    }

    fn advance(&mut self, resources: &mut EngineResources<'m>, now: Ns) -> bool {
        match self {
            Self::Relayed(copy) => copy.advance(resources, now),
            Self::ToAll(copy) => copy.advance(resources, now),
        }
    }

    fn outcome(&mut self, now: Ns) -> Option<CallResult<CopyReport>> {
        match self {
            Self::Relayed(copy) => copy.outcome(now),
            Self::ToAll(copy) => copy.outcome(now),
        }
    }
}

/// The repetitions that follow, and the events around all of them.
struct TimedRun<'m> {
    request: CopyRequest,
    left: u64,
    gpu: u32,
    /// A stream without copies: an event on a copy engine waits for the copies of other streams there.
    stream: StreamPair<'m>,
    start: GpuEvent<'m>,
    end: GpuEvent<'m>,
}

struct RunningCopy<'m> {
    copy: CopyKind<'m>,
    timed: Option<TimedRun<'m>>,
}

/// Runs copies over several paths on one machine. Streams, events and staging memory (four chunks on each
/// relay) stay for the next copy and end with the engine.
pub struct MultipathEngine<'m> {
    resources: EngineResources<'m>,
    copies: BTreeMap<TransferId, RunningCopy<'m>>,
    ended: BTreeMap<TransferId, CallResult<CopyReport>>,
    quarantine: Vec<QuarantinedSlot<'m>>,
    next: u64,
}

impl<'m> MultipathEngine<'m> {
    /// An engine without streams or memory.
    pub fn new(machine: &'m Machine) -> Self {
        Self {
            resources: EngineResources::new(machine),
            copies: BTreeMap::new(),
            ended: BTreeMap::new(),
            quarantine: Vec::new(),
            next: 0,
        }
    }

    /// Names the relays that other processes use: each has one fill enqueued. A copy engine that is never
    /// idle serves a process for a time slice, and copies of another one wait about 1 ms for theirs (H100 and
    /// H200, driver 580); the gap after each fill ends the slice. Enqueued copies leave no gaps.
    pub fn share_relays(&mut self, relays: GpuSet) {
        self.resources.shared_relays = relays;
    }

    /// Enqueues the first chunks of a copy. [`Self::advance`] does the rest.
    ///
    /// # Errors
    /// No GPU is an end, or the direct path cannot be opened.
    pub fn start(&mut self, request: CopyRequest) -> CallResult<TransferId> {
        request.check()?;
        self.release_slots();
        let mut copy = CopyKind::new(&mut self.resources, request)?;
        copy.issue(&mut self.resources);
        Ok(self.insert(RunningCopy { copy, timed: None }))
    }

    /// Enqueues a whole copy, which then needs nothing of the host. The parts of its paths follow from `rates`, in
    /// bytes per ns: of the direct path, then of each relay of the request; of a copy to several GPUs, those at which
    /// the destinations load from the source.
    ///
    /// # Errors
    /// The direct path cannot be enqueued, or the copy would wait for one of another stream that has not begun.
    /// A relay that cannot take part is no error.
    pub fn enqueue(
        &mut self,
        request: &CopyRequest,
        rates: &[f64],
        order: &StreamOrder<'_>,
    ) -> Result<CopyReport, EnqueueFailure> {
        request.check()?;
        self.release_slots();
        if request.others.is_empty() {
            enqueue_relayed(&mut self.resources, request, rates, order)
        } else {
            enqueue_to_all(&mut self.resources, request, rates, order)
        }
    }

    /// Enqueues the first chunks of the first of `reps` equal copies behind a gate. They run one after the
    /// other; [`CopyReport::elapsed`] is the time of all from the gate's release, by events of the GPU at
    /// the end.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_timed(
        &mut self,
        request: CopyRequest,
        gate: &StartGate<'_>,
        reps: u64,
    ) -> CallResult<TransferId> {
        request.check()?;
        self.release_slots();
        let gpu = request.at();
        let mut copy = CopyKind::new(&mut self.resources, request.clone())?;
        let (start, end) = (self.resources.event(gpu)?, self.resources.event(gpu)?);
        let stream = self.resources.streams(gpu, StreamUse::Timing)?;
        copy.hold(gate)?;
        stream.first().hold(gate)?;
        stream.first().record(&start)?;
        copy.issue(&mut self.resources);
        let timed =
            Some(TimedRun { request, left: reps.saturating_sub(1), gpu, stream, start, end });
        Ok(self.insert(RunningCopy { copy, timed }))
    }

    fn insert(&mut self, running: RunningCopy<'m>) -> TransferId {
        let id = TransferId(self.next);
        self.next += 1;
        self.copies.insert(id, running);
        id
    }

    /// Looks at all copies once; enqueues what follows. Whether anything happened.
    pub fn advance(&mut self) -> bool {
        let now = self.resources.machine.clock.now();
        let mut moved = false;
        let mut ended = Vec::new();
        for (&id, running) in &mut self.copies {
            moved |= running.copy.advance(&mut self.resources, now);
            ended.extend(running.copy.outcome(now).map(|outcome| (id, outcome)));
        }
        for (id, outcome) in ended {
            moved = true;
            let Some(running) = self.copies.remove(&id) else { continue };
            self.forget_failed(&outcome);
            let next = self.repeat_or_end(running, outcome);
            match next {
                Ok(running) => {
                    self.copies.insert(id, running);
                }
                Err(outcome) => {
                    self.ended.insert(id, outcome);
                }
            }
        }
        moved
    }

    /// The next repetition of a copy that has ended, or its outcome.
    fn repeat_or_end(
        &mut self,
        running: RunningCopy<'m>,
        outcome: CallResult<CopyReport>,
    ) -> Result<RunningCopy<'m>, CallResult<CopyReport>> {
        let RunningCopy { mut copy, timed } = running;
        if let CopyKind::Relayed(copy) = &mut copy {
            self.quarantine.append(&mut copy.quarantine);
        }
        let (Some(timed), Ok(report)) = (timed, &outcome) else { return Err(outcome) };
        if timed.left > 0 {
            let mut copy =
                CopyKind::new(&mut self.resources, timed.request.clone()).map_err(Err)?;
            copy.issue(&mut self.resources);
            let timed = TimedRun { left: timed.left - 1, ..timed };
            return Ok(RunningCopy { copy, timed: Some(timed) });
        }
        let stream = timed.stream.first();
        let elapsed = stream
            .record(&timed.end)
            .and_then(|()| stream.wait())
            .and_then(|()| timed.end.since(&timed.start));
        self.resources.return_event(timed.gpu, timed.start);
        self.resources.return_event(timed.gpu, timed.end);
        Err(elapsed.map(|elapsed| CopyReport { elapsed: Some(elapsed), ..report.clone() }))
    }

    /// Streams of a GPU that failed may hold copies that never end.
    fn forget_failed(&mut self, outcome: &CallResult<CopyReport>) {
        if let Ok(report) = outcome {
            report.lost.iter().for_each(|lost| self.resources.forget_streams(lost.gpu));
        }
    }

    fn release_slots(&mut self) {
        let waiting = std::mem::take(&mut self.quarantine);
        let resources = &mut self.resources;
        self.quarantine = waiting.into_iter().filter_map(|slot| slot.release(resources)).collect();
    }

    /// The outcome of a copy that has ended; none while it runs.
    pub fn take_outcome(&mut self, id: TransferId) -> Option<CallResult<CopyReport>> {
        self.ended.remove(&id)
    }

    /// Advances all copies until one has ended.
    ///
    /// # Errors
    /// The direct path failed, or the time limit passed. A relay that fails is no error.
    pub fn wait(&mut self, id: TransferId) -> CallResult<CopyReport> {
        loop {
            if let Some(outcome) = self.take_outcome(id) {
                return outcome;
            }
            if !self.copies.contains_key(&id) {
                return Err(no_copy(id));
            }
            if !self.advance() {
                self.resources.machine.driver()?.pause(POLL);
            }
        }
    }

    /// Runs one copy.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Self::wait`].
    pub fn copy(&mut self, request: CopyRequest) -> CallResult<CopyReport> {
        let id = self.start(request)?;
        self.wait(id)
    }

    /// Waits for all copies that were enqueued as a whole, and so for the work before them.
    pub fn wait_for_enqueued(&self) {
        self.resources.wait_for_enqueued();
    }

    /// Number of copies that run.
    pub fn running(&self) -> usize {
        self.copies.len()
    }
}

fn no_copy(id: TransferId) -> CallError {
    let reason = "no such copy runs";
    CallError::new(Severity::Transient, "copy", format!("copy {}", id.0), reason)
}
