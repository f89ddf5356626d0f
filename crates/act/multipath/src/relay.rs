//! One copy over the direct path and relays.

use std::collections::VecDeque;
use std::ops::Range;

use pathline_hal::{CallError, CallResult, CopyChoice, GpuEvent, StartGate};
use pathline_schema::{Bytes, Ns, Severity};

use crate::queue::{ChunkQueue, GRAIN, MIN_PIECE, PieceRule, staggered};
use crate::request::{CopyReport, CopyRequest, LostRelay, PathBytes};
use crate::resources::{EngineResources, StagingSlot, StreamPair, StreamUse};

/// Largest piece of the direct path: cut into pieces of 4 MiB an H200's host link carries 52.5 GB/s, uncut
/// 55.3.
const DIRECT_PIECE: u64 = 16 << 20;
/// Pieces of the direct path that are enqueued: the next one is ready when one ends.
const DIRECT_QUEUE: usize = 2;
/// Fills of a relay that are enqueued: the next one is ready when one ends.
const FILL_QUEUE: usize = 2;
/// Bytes for each path by which one with a share may be ahead of it.
const AHEAD: u64 = 4 << 20;
/// The last part of a copy, 1/32, ignores shares, so that all paths end together.
const FREE_TAIL: u64 = 32;
/// Chunks of each path that count where paths are compared by what they carried: 2 to 8 predict and copy alike, one
/// makes 1 GiB over four paths 3 % slower than 128 MiB promise.
const PRIOR_CHUNKS: f64 = 4.0;
/// Least time after which a fill has stalled: copies of the relay's owner may come first.
const STALL: Ns = Ns(10e6);
/// Rate below which a fill has stalled, bytes per ns.
const STALL_RATE: f64 = 0.5;

/// A copy in flight.
struct InFlight<'m> {
    range: Range<u64>,
    done: GpuEvent<'m>,
}

/// A chunk on its way over a relay.
struct RelayChunk<'m> {
    slot: StagingSlot,
    range: Range<u64>,
    /// Its fill, or its drain, has ended.
    done: GpuEvent<'m>,
    /// When it was first seen not to have ended; none before it was looked at.
    since: Option<Ns>,
}

/// A path over a relay. Slots go from free to filling to draining to free.
struct RelayPath<'m> {
    gpu: u32,
    fill: StreamPair<'m>,
    drain: StreamPair<'m>,
    filling: VecDeque<RelayChunk<'m>>,
    draining: VecDeque<RelayChunk<'m>>,
    carried: u64,
    /// Bytes taken from the queue and not given back.
    taken: u64,
    /// No more chunks: it failed or stalled.
    is_lost: bool,
}

/// A slot whose fill has not ended although its chunk went another route. Nothing reads it.
pub(crate) struct QuarantinedSlot<'m> {
    slot: StagingSlot,
    done: GpuEvent<'m>,
}

impl<'m> QuarantinedSlot<'m> {
    /// Returns the slot if its fill has ended. Otherwise the quarantine goes on; without end if the fill failed.
    pub(crate) fn release(self, resources: &mut EngineResources<'m>) -> Option<Self> {
        match self.done.is_done() {
            Ok(true) => {
                resources.return_event(self.slot.gpu, self.done);
                resources.return_slot(self.slot);
                None
            }
            Ok(false) => Some(self),
            Err(_) => None,
        }
    }
}

/// A copy that runs.
pub(crate) struct RelayCopy<'m> {
    request: CopyRequest,
    queue: ChunkQueue,
    direct: StreamPair<'m>,
    pieces: VecDeque<InFlight<'m>>,
    carried: u64,
    taken: u64,
    relays: Vec<RelayPath<'m>>,
    lost: Vec<LostRelay>,
    repeated: u64,
    /// Time of the first look.
    started: Option<Ns>,
    /// Least piece that keeps the paths busy, see [`Self::least_piece`].
    least: u64,
    /// The error of the direct path: nothing more is enqueued.
    failure: Option<CallError>,
    /// Slots that fills may still write.
    pub(crate) quarantine: Vec<QuarantinedSlot<'m>>,
}

impl<'m> RelayCopy<'m> {
    /// Opens streams and reserves staging memory. A relay that fails here takes no part.
    pub(crate) fn new(
        resources: &mut EngineResources<'m>,
        request: CopyRequest,
    ) -> CallResult<Self> {
        if let (Some(src), Some(dst)) = (request.src.unit.gpu(), request.dst.unit.gpu()) {
            // Without a path between the two the runtime stages the direct copy, and relays help.
            let _ = resources.reach(dst, src);
        }
        let direct = resources.streams(request.at(), StreamUse::Direct)?;
        let (mut relays, mut lost) = (Vec::new(), Vec::new());
        for gpu in request.paths.gpus.iter() {
            match RelayPath::new(resources, &request, gpu) {
                Ok(path) => relays.push(path),
                Err(error) => lost.push(LostRelay { gpu, error }),
            }
        }
        Ok(Self {
            queue: ChunkQueue::new(request.bytes.0),
            request,
            direct,
            pieces: VecDeque::new(),
            carried: 0,
            taken: 0,
            relays,
            lost,
            repeated: 0,
            started: None,
            least: MIN_PIECE,
            failure: None,
            quarantine: Vec::new(),
        })
    }

    /// Lets everything that is enqueued from now on wait for a gate.
    pub(crate) fn hold(&self, gate: &StartGate<'_>) -> CallResult<()> {
        self.direct.hold(gate)?;
        self.relays.iter().try_for_each(|path| path.fill.hold(gate))
    }

    fn engine(&self) -> CopyChoice {
        self.request.engine()
    }

    /// Enqueues what fits. Whether anything was.
    pub(crate) fn issue(&mut self, resources: &mut EngineResources<'m>) -> bool {
        let mut issued = self.issue_direct(resources);
        for nth in 0..self.relays.len() {
            issued |= self.fill_relay(resources, nth);
        }
        issued
    }

    fn issue_direct(&mut self, resources: &mut EngineResources<'m>) -> bool {
        let mut issued = false;
        while self.failure.is_none() && self.pieces.len() < DIRECT_QUEUE && self.may_take(None) {
            let rule = self.rule(self.largest_piece(), self.carried);
            let Some(range) = self.queue.take_front(rule) else { break };
            issued = true;
            self.taken += range.end - range.start;
            match self.copy_directly(resources, &range) {
                Ok(done) => self.pieces.push_back(InFlight { range, done }),
                Err(error) => self.failure = Some(error),
            }
        }
        issued
    }

    /// What a path takes that carried some bytes so far: its part of the rest is that of the bytes which arrived,
    /// and of some chunks for each path, since one piece of a path that has just begun says little.
    fn rule(&self, largest: u64, carried: u64) -> PieceRule {
        let prior = PRIOR_CHUNKS * self.request.paths.chunk.as_f64();
        let all = self.carried + self.relays.iter().map(|path| path.carried).sum::<u64>();
        let paths = (1 + self.relays.len()) as f64;
        let share = (carried as f64 + prior) / (all as f64 + prior * paths);
        PieceRule { largest, least: self.least, share }
    }

    fn all_taken(&self) -> u64 {
        self.taken + self.relays.iter().map(|path| path.taken).sum::<u64>()
    }

    /// The piece for which the calls of all legs take as long as its bytes: smaller ones at the end would let paths
    /// wait for this thread. 2.2 MiB on a model of eight MI300X, 392 GB/s over seven paths with 3 us for each leg.
    fn least_piece(&self, resources: &EngineResources<'m>, elapsed: Ns) -> u64 {
        let relayed: u64 = self.relays.iter().map(|path| path.carried).sum();
        let legs = (self.carried + 2 * relayed) as f64;
        let least = resources.call_time().0 * legs / elapsed.0.max(1.0);
        (least as u64).next_multiple_of(GRAIN).max(MIN_PIECE)
    }

    /// Largest piece of the direct path. One with a share takes no more than it may be ahead.
    fn largest_piece(&self) -> u64 {
        let largest = if self.request.paths.shares.is_some() { AHEAD } else { DIRECT_PIECE };
        staggered(largest, self.taken)
    }

    /// Whether a path, a relay by number or the direct one, may take more: it is not ahead of its share.
    /// Once a relay is lost, or near the end, all may.
    fn may_take(&self, relay: Option<usize>) -> bool {
        let Some(shares) = self.request.paths.shares else { return true };
        let taken = self.all_taken();
        let all = self.request.bytes.0;
        if !self.lost.is_empty() || all.saturating_sub(taken) <= all / FREE_TAIL {
            return true;
        }
        let nth = relay.map_or(0, |nth| nth + 1);
        let own = match relay {
            None => self.taken,
            Some(nth) => self.relays.get(nth).map_or(0, |path| path.taken),
        };
        let share = f64::from(shares.iter().nth(nth).unwrap_or_default()) / 100.0;
        let window = AHEAD * (1 + self.relays.len() as u64);
        (own as f64) < share * (taken + window) as f64
    }

    fn copy_directly(
        &self,
        resources: &mut EngineResources<'m>,
        range: &Range<u64>,
    ) -> CallResult<GpuEvent<'m>> {
        let CopyRequest { src, dst, .. } = &self.request;
        let bytes = Bytes(range.end - range.start);
        let (to, from) = (dst.address + range.start, src.address + range.start);
        resources.copy(&self.direct, self.request.at(), (to, from, bytes), self.engine())
    }

    fn fill_relay(&mut self, resources: &mut EngineResources<'m>, nth: usize) -> bool {
        let mut issued = false;
        loop {
            let (engine, failed) = (self.engine(), self.failure.is_some());
            if !self.may_take(Some(nth)) {
                return issued;
            }
            let Some(path) = self.relays.get(nth) else { return issued };
            let queue = if resources.shared_relays.contains(path.gpu) { 1 } else { FILL_QUEUE };
            if failed || path.is_lost || path.filling.len() >= queue {
                return issued;
            }
            let Some(slot) = resources.take_slot(path.gpu) else { return issued };
            let largest = staggered(slot.bytes.min(self.request.paths.chunk.0), path.taken);
            let rule = self.rule(largest, path.carried);
            let Some(range) = self.queue.take_back(rule) else {
                resources.return_slot(slot);
                return issued;
            };
            issued = true;
            let Some(path) = self.relays.get_mut(nth) else { return issued };
            path.taken += range.end - range.start;
            match path.fill(resources, &self.request, slot, &range, engine) {
                Ok(done) => {
                    path.filling.push_back(RelayChunk { slot, range, done, since: None });
                }
                Err(error) => {
                    // The slot is not used again: part of the fill may have been enqueued.
                    self.queue.give_back(range);
                    self.lose(nth, error);
                }
            }
        }
    }

    /// Gives a relay up. Chunks that only it has seen are copied again; what it fills is not used before
    /// that has ended.
    fn lose(&mut self, nth: usize, error: CallError) {
        let Some(path) = self.relays.get_mut(nth).filter(|path| !path.is_lost) else { return };
        path.is_lost = true;
        for chunk in path.filling.drain(..) {
            self.queue.give_back(chunk.range);
            self.repeated += 1;
            self.quarantine.push(QuarantinedSlot { slot: chunk.slot, done: chunk.done });
        }
        self.lost.push(LostRelay { gpu: path.gpu, error });
    }

    /// Looks at everything in flight once and enqueues what follows. Whether anything happened.
    pub(crate) fn advance(&mut self, resources: &mut EngineResources<'m>, now: Ns) -> bool {
        let started = *self.started.get_or_insert(now);
        self.least = self.least_piece(resources, now - started);
        // Each path gets its next piece before the next path is looked at: a round over all of them takes 40 us on a
        // model of eight MI300X, half the time of a chunk.
        let mut moved = self.advance_direct(resources) | self.issue_direct(resources);
        for nth in 0..self.relays.len() {
            moved |= self.advance_draining(resources, nth);
            moved |= self.advance_filling(resources, nth, now);
            moved |= self.fill_relay(resources, nth);
        }
        // What a relay gave back may be for a path that was looked at before.
        moved | self.issue(resources)
    }

    fn advance_direct(&mut self, resources: &mut EngineResources<'m>) -> bool {
        let (mut moved, mut at) = (false, 0);
        while let Some(piece) = self.pieces.get(at) {
            match piece.done.is_done() {
                Ok(false) => {
                    at += 1;
                    continue;
                }
                Ok(true) => self.carried += piece.range.end - piece.range.start,
                Err(error) => self.failure = Some(self.failure.take().unwrap_or(error)),
            }
            moved = true;
            if let Some(piece) = self.pieces.remove(at) {
                resources.return_event(self.request.at(), piece.done);
            }
        }
        moved
    }

    fn advance_draining(&mut self, resources: &mut EngineResources<'m>, nth: usize) -> bool {
        let Some(path) = self.relays.get_mut(nth) else { return false };
        let drained_by = self.request.dst.unit.gpu().unwrap_or(path.gpu);
        let (mut moved, mut at) = (false, 0);
        while let Some(chunk) = path.draining.get(at) {
            let ended = chunk.done.is_done();
            if ended == Ok(false) {
                at += 1;
                continue;
            }
            let Some(chunk) = path.draining.remove(at) else { break };
            moved = true;
            match ended {
                Ok(_) => {
                    path.carried += chunk.range.end - chunk.range.start;
                    resources.return_event(drained_by, chunk.done);
                    resources.return_slot(chunk.slot);
                }
                Err(error) => {
                    // It has ended, if not well: nothing writes there any more.
                    self.queue.give_back(chunk.range);
                    self.repeated += 1;
                    if drained_by != path.gpu && error.severity == Severity::Sticky {
                        self.failure = Some(self.failure.take().unwrap_or_else(|| error.clone()));
                    }
                    self.lose(nth, error);
                    return true;
                }
            }
        }
        moved
    }

    fn advance_filling(
        &mut self,
        resources: &mut EngineResources<'m>,
        nth: usize,
        now: Ns,
    ) -> bool {
        let engine = self.engine();
        let (mut moved, mut at) = (false, 0);
        loop {
            let Some(path) = self.relays.get_mut(nth) else { return moved };
            let Some(chunk) = path.filling.get_mut(at) else { return moved };
            match chunk.done.is_done() {
                Ok(false) => {
                    let since = *chunk.since.get_or_insert(now);
                    let bytes = chunk.range.end - chunk.range.start;
                    if now - since > STALL.max(Ns(bytes as f64 / STALL_RATE)) {
                        let (thing, waited) = (format!("gpu{}", path.gpu), now - since);
                        let reason = format!("a chunk did not reach the relay within {waited}");
                        let error = CallError::new(Severity::Transient, "relay", thing, reason);
                        self.lose(nth, error);
                        return true;
                    }
                    at += 1;
                }
                Ok(true) => {
                    let Some(chunk) = path.filling.remove(at) else { return moved };
                    // Those behind it had to wait for it.
                    path.filling.iter_mut().for_each(|behind| behind.since = Some(now));
                    moved = true;
                    resources.return_event(path.gpu, chunk.done);
                    let (slot, range) = (chunk.slot, chunk.range);
                    match path.drain(resources, &self.request, slot, &range, engine) {
                        Ok(done) => {
                            path.draining.push_back(RelayChunk { slot, range, done, since: None });
                        }
                        Err(error) => {
                            self.queue.give_back(range);
                            self.repeated += 1;
                            self.lose(nth, error);
                        }
                    }
                }
                Err(error) => {
                    self.lose(nth, error);
                    return true;
                }
            }
        }
    }

    /// Whether nothing of it writes to the destination any more.
    fn is_quiet(&self) -> bool {
        self.pieces.is_empty() && self.relays.iter().all(|path| path.draining.is_empty())
    }

    /// The outcome, once there is one.
    pub(crate) fn outcome(&mut self, now: Ns) -> Option<CallResult<CopyReport>> {
        let filling = self.relays.iter().any(|path| !path.filling.is_empty());
        if self.is_quiet() && (self.failure.is_some() || !filling) {
            if let Some(error) = self.failure.take() {
                self.abandon_fills();
                return Some(Err(error));
            }
            if self.queue.is_empty() {
                return Some(Ok(self.report()));
            }
        }
        let waited = now - self.started?;
        if waited <= self.request.limit {
            return None;
        }
        let mut waiting: Vec<String> = Vec::new();
        waiting.extend((!self.pieces.is_empty()).then(|| "the direct path".to_owned()));
        let busy = |p: &&RelayPath<'_>| !p.filling.is_empty() || !p.draining.is_empty();
        waiting.extend(self.relays.iter().filter(busy).map(|p| format!("relay gpu{}", p.gpu)));
        self.abandon_fills();
        let thing = format!("{} to {}", self.request.bytes, self.request.dst.unit);
        let reason = format!("{} did not end within {waited}", waiting.join(", "));
        let error = CallError::new(Severity::Sticky, "copy", thing, reason);
        Some(Err(error.or_try("the destination may still be written: end the process")))
    }

    fn abandon_fills(&mut self) {
        for path in &mut self.relays {
            let slots = path.filling.drain(..);
            self.quarantine.extend(slots.map(|c| QuarantinedSlot { slot: c.slot, done: c.done }));
        }
    }

    fn report(&mut self) -> CopyReport {
        let mut paths = vec![PathBytes { gpu: None, bytes: Bytes(self.carried) }];
        let relayed = |p: &RelayPath<'_>| PathBytes { gpu: Some(p.gpu), bytes: Bytes(p.carried) };
        paths.extend(self.relays.iter().map(relayed));
        CopyReport {
            paths,
            repeated: self.repeated,
            lost: std::mem::take(&mut self.lost),
            elapsed: None,
        }
    }
}

impl<'m> RelayPath<'m> {
    fn new(
        resources: &mut EngineResources<'m>,
        request: &CopyRequest,
        gpu: u32,
    ) -> CallResult<Self> {
        let drained_by = resources.reach_relay(request, gpu)?;
        Ok(Self {
            gpu,
            fill: resources.streams(gpu, StreamUse::Fill)?,
            drain: resources.streams(drained_by, StreamUse::Drain(gpu))?,
            filling: VecDeque::new(),
            draining: VecDeque::new(),
            carried: 0,
            taken: 0,
            is_lost: false,
        })
    }

    /// The fill that the next one waits for on the GPU.
    fn earlier_fill(&self, request: &CopyRequest) -> Option<&GpuEvent<'m>> {
        self.filling.back().filter(|_| request.chains_fills()).map(|chunk| &chunk.done)
    }

    /// Source to slot, by the relay.
    fn fill(
        &self,
        resources: &mut EngineResources<'m>,
        request: &CopyRequest,
        slot: StagingSlot,
        range: &Range<u64>,
        engine: CopyChoice,
    ) -> CallResult<GpuEvent<'m>> {
        let bytes = Bytes(range.end - range.start);
        let (to, from) = (slot.address, request.src.address + range.start);
        let earlier = self.earlier_fill(request);
        resources.copy_after(earlier, &self.fill, self.gpu, (to, from, bytes), engine)
    }

    /// Slot to destination, by the destination's GPU; to the host by the relay.
    fn drain(
        &self,
        resources: &mut EngineResources<'m>,
        request: &CopyRequest,
        slot: StagingSlot,
        range: &Range<u64>,
        engine: CopyChoice,
    ) -> CallResult<GpuEvent<'m>> {
        let gpu = request.dst.unit.gpu().unwrap_or(self.gpu);
        let bytes = Bytes(range.end - range.start);
        let (to, from) = (request.dst.address + range.start, slot.address);
        resources.copy(&self.drain, gpu, (to, from, bytes), engine)
    }
}
