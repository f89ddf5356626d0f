//! The same bytes to several GPUs.

use std::collections::VecDeque;
use std::ops::Range;

use pathline_hal::{CallError, CallResult, CopyChoice, GpuEvent, StartGate};
use pathline_schema::{Bytes, Ns, Severity};

use crate::queue::{ChunkQueue, PieceRule, staggered};
use crate::request::{CopyEnd, CopyReport, CopyRequest, LostRelay, PathBytes};
use crate::resources::{EngineResources, StreamPair, StreamUse};

/// Loads from the source that a GPU has enqueued.
const LOAD_QUEUE: usize = 2;
/// Copies from other GPUs that a GPU has enqueued, over all its streams. An engine serves one peer at a
/// time; the next ones wait.
const PULL_QUEUE: usize = 4;

/// A load or pull in flight.
struct InFlight<'m> {
    range: Range<u64>,
    done: GpuEvent<'m>,
    /// A load whose bytes the others take from here.
    is_shared: bool,
}

/// A destination.
struct Member<'m> {
    end: CopyEnd,
    gpu: u32,
    load: StreamPair<'m>,
    /// Streams for each other member.
    pulls: Vec<Option<StreamPair<'m>>>,
    loading: VecDeque<InFlight<'m>>,
    pulling: VecDeque<InFlight<'m>>,
    /// Ranges that another member has.
    ready: VecDeque<(usize, Range<u64>)>,
    /// Ranges that it takes from the source although another member has them.
    own: VecDeque<Range<u64>>,
    received: u64,
    loaded: u64,
    /// Why it takes no part any more.
    failure: Option<CallError>,
}

/// A copy to several GPUs that runs.
pub(crate) struct CopyToAll<'m> {
    request: CopyRequest,
    queue: ChunkQueue,
    members: Vec<Member<'m>>,
    lost: Vec<LostRelay>,
    repeated: u64,
    started: Option<Ns>,
}

impl<'m> CopyToAll<'m> {
    /// Opens streams. Two GPUs without a direct path do not exchange bytes: each loads for itself.
    pub(crate) fn new(
        resources: &mut EngineResources<'m>,
        request: CopyRequest,
    ) -> CallResult<Self> {
        let ends: Vec<CopyEnd> =
            std::iter::once(request.dst).chain(request.others.iter().copied()).collect();
        let mut members = Vec::new();
        for end in &ends {
            let Some(gpu) = end.unit.gpu() else {
                let reason = "copies to all go to GPUs";
                return Err(CallError::unsupported("copy", end.unit.to_string(), reason));
            };
            if let Some(src) = request.src.unit.gpu() {
                let _ = resources.reach(gpu, src);
            }
            let mut pulls = Vec::new();
            for other in &ends {
                let from = other.unit.gpu().filter(|&from| from != gpu);
                let reaches = from.filter(|&from| resources.reach(gpu, from).is_ok());
                let stream = |from| resources.streams(gpu, StreamUse::Drain(from));
                pulls.push(reaches.map(stream).transpose()?);
            }
            members.push(Member {
                end: *end,
                gpu,
                load: resources.streams(gpu, StreamUse::Direct)?,
                pulls,
                loading: VecDeque::new(),
                pulling: VecDeque::new(),
                ready: VecDeque::new(),
                own: VecDeque::new(),
                received: 0,
                loaded: 0,
                failure: None,
            });
        }
        Ok(Self {
            queue: ChunkQueue::new(request.bytes.0),
            request,
            members,
            lost: Vec::new(),
            repeated: 0,
            started: None,
        })
    }

    /// Lets everything that is enqueued from now on wait for a gate.
    pub(crate) fn hold(&self, gate: &StartGate<'_>) -> CallResult<()> {
        self.members.iter().try_for_each(|member| member.load.hold(gate))
    }

    /// Enqueues what fits. Whether anything was.
    pub(crate) fn issue(&mut self, resources: &mut EngineResources<'m>) -> bool {
        let engine = self.request.engine();
        let mut issued = false;
        for nth in 0..self.members.len() {
            while let Some((range, is_shared)) = self.next_load(nth) {
                issued = true;
                let (src, member) = (self.request.src.address, &mut self.members[nth]);
                let from = src + range.start;
                match member.enqueue(resources, &range, from, None, engine) {
                    Ok(done) => member.loading.push_back(InFlight { range, done, is_shared }),
                    Err(error) => {
                        self.fail(nth, error);
                        if is_shared {
                            self.queue.give_back(range);
                        }
                    }
                }
            }
            while let Some((owner, range)) = self.members[nth].next_pull() {
                issued = true;
                let from = self.members[owner].end.address + range.start;
                let member = &mut self.members[nth];
                match member.enqueue(resources, &range, from, Some(owner), engine) {
                    Ok(done) => {
                        member.pulling.push_back(InFlight { range, done, is_shared: false });
                    }
                    Err(error) => self.load_instead(nth, range, error),
                }
            }
        }
        issued
    }

    /// What a member loads next from the source: what it cannot get from others, then its part, which is
    /// shared.
    fn next_load(&mut self, nth: usize) -> Option<(Range<u64>, bool)> {
        let member = self.members.get_mut(nth)?;
        if member.failure.is_some() || member.loading.len() >= LOAD_QUEUE {
            return None;
        }
        if let Some(own) = member.own.pop_front() {
            return Some((own, false));
        }
        let largest = staggered(self.request.paths.chunk.0, member.loaded);
        let rule = PieceRule::even(largest, self.members.len() as u64);
        Some((self.queue.take_front(rule)?, true))
    }

    /// A pull failed: the member takes that range from the source.
    fn load_instead(&mut self, nth: usize, range: Range<u64>, error: CallError) {
        self.repeated += 1;
        if error.severity == Severity::Sticky {
            self.fail(nth, error);
        } else if let Some(member) = self.members.get_mut(nth) {
            member.own.push_back(range);
        }
    }

    /// A member takes no part any more. What it alone has loaded is loaded by the others.
    fn fail(&mut self, nth: usize, error: CallError) {
        let Some(member) = self.members.get_mut(nth).filter(|m| m.failure.is_none()) else {
            return;
        };
        self.lost.push(LostRelay { gpu: member.gpu, error: error.clone() });
        member.failure = Some(error);
        member.ready.clear();
        member.own.clear();
        for other in &mut self.members {
            let (from_it, rest) = other.ready.drain(..).partition(|&(owner, _)| owner == nth);
            other.ready = rest;
            let from_it: VecDeque<(usize, Range<u64>)> = from_it;
            other.own.extend(from_it.into_iter().map(|(_, range)| range));
        }
    }

    /// Looks at everything in flight once and enqueues what follows. Whether anything happened.
    pub(crate) fn advance(&mut self, resources: &mut EngineResources<'m>, now: Ns) -> bool {
        self.started.get_or_insert(now);
        let mut moved = false;
        for nth in 0..self.members.len() {
            moved |= self.advance_loads(resources, nth);
            moved |= self.advance_pulls(resources, nth);
        }
        moved | self.issue(resources)
    }

    fn advance_loads(&mut self, resources: &mut EngineResources<'m>, nth: usize) -> bool {
        let (mut moved, mut at) = (false, 0);
        loop {
            let Some(member) = self.members.get_mut(nth) else { return moved };
            let Some(ended) = member.loading.get(at).map(|load| load.done.is_done()) else {
                return moved;
            };
            if ended == Ok(false) {
                at += 1;
                continue;
            }
            let Some(load) = member.loading.remove(at) else { return moved };
            moved = true;
            if ended.is_ok() && member.failure.is_none() {
                resources.return_event(member.gpu, load.done);
                let bytes = load.range.end - load.range.start;
                member.received += bytes;
                if load.is_shared {
                    member.loaded += bytes;
                    self.offer(nth, &load.range);
                }
                continue;
            }
            // Of a member that takes no part any more, each range goes to the other members.
            if load.is_shared {
                self.queue.give_back(load.range);
            }
            if let Err(error) = ended {
                self.fail(nth, error);
            }
        }
    }

    /// Offers a range that a member has loaded to the members that do not have it.
    fn offer(&mut self, owner: usize, range: &Range<u64>) {
        for (nth, member) in self.members.iter_mut().enumerate() {
            if nth == owner || member.failure.is_some() {
                continue;
            }
            if member.pulls.get(owner).is_some_and(Option::is_some) {
                member.ready.push_back((owner, range.clone()));
            } else {
                member.own.push_back(range.clone());
            }
        }
    }

    fn advance_pulls(&mut self, resources: &mut EngineResources<'m>, nth: usize) -> bool {
        let Some(member) = self.members.get_mut(nth) else { return false };
        let gpu = member.gpu;
        let mut moved = false;
        let mut failed = Vec::new();
        // Pulls from different members end in any order.
        let mut at = 0;
        while let Some(pull) = member.pulling.get(at) {
            match pull.done.is_done() {
                Ok(false) => at += 1,
                ended => {
                    moved = true;
                    let Some(pull) = member.pulling.remove(at) else { break };
                    match ended {
                        Ok(_) => {
                            member.received += pull.range.end - pull.range.start;
                            resources.return_event(gpu, pull.done);
                        }
                        Err(error) => failed.push((pull.range, error)),
                    }
                }
            }
        }
        for (range, error) in failed {
            self.load_instead(nth, range, error);
        }
        moved
    }

    /// The outcome, once there is one.
    pub(crate) fn outcome(&mut self, now: Ns) -> Option<CallResult<CopyReport>> {
        let bytes = self.request.bytes.0;
        let busy = |m: &Member<'_>| !m.loading.is_empty() || !m.pulling.is_empty();
        let complete = |m: &Member<'_>| m.received == bytes || m.failure.is_some();
        let limit = self.request.limit;
        let waited = now - self.started?;
        if self.members.iter().all(|m| complete(m) && !busy(m)) {
            let failed = self.members.iter().find_map(|m| m.failure.clone());
            return Some(failed.map_or_else(|| Ok(self.report()), Err));
        }
        if waited <= limit {
            return None;
        }
        let waiting = self.members.iter().filter(|m| busy(m) || !complete(m));
        let gpus: Vec<String> = waiting.map(|m| format!("gpu{}", m.gpu)).collect();
        let reason = format!("{} did not get all bytes within {waited}", gpus.join(", "));
        let error =
            CallError::new(Severity::Sticky, "copy", self.request.bytes.to_string(), reason);
        Some(Err(error.or_try("the destinations may still be written: end the process")))
    }

    fn report(&mut self) -> CopyReport {
        let path = |m: &Member<'_>| PathBytes { gpu: Some(m.gpu), bytes: Bytes(m.loaded) };
        let paths = self.members.iter().map(path).collect();
        CopyReport {
            paths,
            repeated: self.repeated,
            lost: std::mem::take(&mut self.lost),
            elapsed: None,
        }
    }
}

impl<'m> Member<'m> {
    /// What it takes next from another member.
    fn next_pull(&mut self) -> Option<(usize, Range<u64>)> {
        if self.failure.is_some() || self.pulling.len() >= PULL_QUEUE {
            return None;
        }
        self.ready.pop_front()
    }

    fn enqueue(
        &self,
        resources: &mut EngineResources<'m>,
        range: &Range<u64>,
        from: u64,
        owner: Option<usize>,
        engine: CopyChoice,
    ) -> CallResult<GpuEvent<'m>> {
        let streams = owner.and_then(|owner| self.pulls.get(owner)?.as_ref());
        let bytes = Bytes(range.end - range.start);
        let copy = (self.end.address + range.start, from, bytes);
        resources.copy(streams.unwrap_or(&self.load), self.gpu, copy, engine)
    }
}
