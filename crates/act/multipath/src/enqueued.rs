//! Copies that are enqueued as a whole: the parts of the paths are fixed, and events alone order the pieces.
//!
//! Nothing waits for the host. Each operation waits only for events that were recorded before it was enqueued, and a
//! copy is refused if it would wait for another one that has not begun, unless that is earlier in the same
//! stream of the caller. So a copy ends whenever the work before it in its streams ends.

use std::collections::VecDeque;
use std::ops::Range;

use pathline_hal::{CallError, CallResult, CopyChoice, EventId, GpuEvent};
use pathline_schema::{Bytes, GpuSet, Severity};

use crate::path_parts::{divide_by_rate, ramped_pieces};
use crate::request::{CopyReport, CopyRequest, LostRelay, PathBytes};
use crate::resources::{
    EngineResources, FreeSlot, StagingSlot, StreamPair, StreamUse, WaitingCopy,
};

/// Slots below which a relay takes no part: its legs would take turns.
const MIN_SLOTS: usize = 2;

/// The place of a copy in the order of a caller's streams.
#[derive(Debug, Clone, Copy)]
pub struct StreamOrder<'a> {
    /// Recorded events: the copy starts after all of them.
    pub after: &'a [EventId],
    /// Recorded for the caller at the end of the copy; an event of the destination's GPU, or of the source's if the
    /// copy goes to the host.
    pub done: EventId,
    /// Names of the caller's streams. Copies of one stream are in order.
    pub streams: &'a [u64],
}

/// Why a copy was not enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueueFailure {
    /// The first error.
    pub error: Box<CallError>,
    /// Whether parts of the copy run, and `done` was recorded after them. Otherwise nothing of it runs.
    pub is_ordered: bool,
}

impl From<CallError> for EnqueueFailure {
    /// A failure before anything was enqueued that writes to the destination.
    fn from(error: CallError) -> Self {
        Self { error: Box::new(error), is_ordered: false }
    }
}

/// A path over a relay.
struct EnqueuedRelay<'m> {
    gpu: u32,
    /// The GPU that copies out of the slots.
    drained_by: u32,
    fill: StreamPair<'m>,
    drain: StreamPair<'m>,
    pieces: VecDeque<Range<u64>>,
    slots: VecDeque<FreeSlot<'m>>,
    last_fill: Option<GpuEvent<'m>>,
    carried: u64,
    is_lost: bool,
}

/// A copy that is being enqueued.
struct EnqueuedCopy<'r, 'm> {
    request: &'r CopyRequest,
    engine: CopyChoice,
    direct: StreamPair<'m>,
    relays: Vec<EnqueuedRelay<'m>>,
    /// What lost relays leave to the direct path.
    rest: Vec<Range<u64>>,
    lost: Vec<LostRelay>,
    repeated: u64,
    directly: u64,
    failure: Option<CallError>,
}

impl<'m> EngineResources<'m> {
    /// Refuses a copy that would wait for one of other streams that has not begun: that may need what the
    /// caller does only after this one has ended.
    pub(crate) fn check_waiting(&mut self, gpus: GpuSet, streams: &[u64]) -> CallResult<()> {
        let blocks = |copy: &WaitingCopy<'_>| {
            copy.gpus.iter().any(|gpu| gpus.contains(gpu))
                && !copy.streams.iter().any(|stream| streams.contains(stream))
        };
        for copy in std::mem::take(&mut self.waiting) {
            // A long batch would look at each of its earlier copies again and again.
            if !self.waiting.is_empty() && !blocks(&copy) {
                self.waiting.push(copy);
                continue;
            }
            match copy.begun.is_done() {
                Ok(false) => self.waiting.push(copy),
                Ok(true) => self.return_event(copy.gpu, copy.begun),
                Err(_) => {}
            }
        }
        match self.waiting.iter().find(|copy| blocks(copy)) {
            None => Ok(()),
            Some(copy) => {
                let reason = "a copy of another stream waits there for earlier work";
                let thing = format!("gpu{}", copy.gpu);
                Err(CallError::unsupported("enqueue", thing, reason))
            }
        }
    }

    /// Makes some streams wait for the work before a copy. `gpu` is the one of its `done`.
    pub(crate) fn begin(
        &mut self,
        gpu: u32,
        order: &StreamOrder<'_>,
        gpus: GpuSet,
    ) -> CallResult<BeginEvent<'m>> {
        let begun = self.event(gpu)?;
        let streams = self.streams(gpu, StreamUse::Begin)?;
        let stream = streams.first();
        order.after.iter().try_for_each(|after| stream.wait_event_id(*after))?;
        stream.record(&begun)?;
        Ok(BeginEvent { gpu, begun, gpus, streams: order.streams.to_vec() })
    }

    /// Records `done` after all that is enqueued on some streams. Where a stream takes no event, the host waits
    /// for it.
    ///
    /// # Errors
    /// Something may still run that nothing waits for.
    pub(crate) fn end<'s>(
        &mut self,
        gpu: u32,
        done: EventId,
        streams: impl Iterator<Item = (u32, &'s StreamPair<'m>)>,
    ) -> CallResult<()>
    where
        'm: 's,
    {
        let ends = self.streams(gpu, StreamUse::End)?;
        let last = ends.first();
        for (of, pair) in streams {
            for stream in pair.each() {
                let ended = self.event(of).and_then(|event| {
                    stream.record(&event)?;
                    last.wait_event(&event)?;
                    self.return_event(of, event);
                    Ok(())
                });
                if ended.is_err() {
                    stream.wait()?;
                }
            }
        }
        last.record_id(done)
    }
}

/// The event for which all streams of a copy wait first.
pub(crate) struct BeginEvent<'m> {
    gpu: u32,
    begun: GpuEvent<'m>,
    gpus: GpuSet,
    streams: Vec<u64>,
}

impl<'m> BeginEvent<'m> {
    /// Makes both streams of a pair wait.
    pub(crate) fn hold(&self, pair: &StreamPair<'m>) -> CallResult<()> {
        pair.each().try_for_each(|stream| stream.wait_event(&self.begun))
    }

    /// Keeps the event until the copy has begun.
    pub(crate) fn keep(self, resources: &mut EngineResources<'m>) {
        let Self { gpu, begun, gpus, streams } = self;
        resources.waiting.push(WaitingCopy { gpu, begun, gpus, streams });
    }
}

/// Enqueues a copy over the direct path and relays. `rates` are those of the direct path and of each relay,
/// bytes per ns.
pub(crate) fn enqueue_relayed<'m>(
    resources: &mut EngineResources<'m>,
    request: &CopyRequest,
    rates: &[f64],
    order: &StreamOrder<'_>,
) -> Result<CopyReport, EnqueueFailure> {
    let at = request.at();
    let ends = [request.src.unit.gpu(), request.dst.unit.gpu()];
    let gpus = ends.into_iter().flatten().fold(request.paths.gpus, GpuSet::with);
    resources.check_waiting(gpus, order.streams)?;
    if let (Some(src), Some(dst)) = (request.src.unit.gpu(), request.dst.unit.gpu()) {
        // Without a path between the two the runtime stages the direct copy, and relays help.
        let _ = resources.reach(dst, src);
    }
    let direct = resources.streams(at, StreamUse::EnqueuedDirect)?;
    let begin = resources.begin(at, order, gpus)?;
    begin.hold(&direct)?;
    let mut copy = EnqueuedCopy {
        request,
        engine: request.engine(),
        direct,
        relays: Vec::new(),
        rest: Vec::new(),
        lost: Vec::new(),
        repeated: 0,
        directly: 0,
        failure: None,
    };
    copy.open_relays(resources, &begin);
    begin.keep(resources);
    copy.divide(rates);
    copy.enqueue(resources);
    copy.end(resources, order)
}

impl<'m> EnqueuedCopy<'_, 'm> {
    /// Opens the streams and takes the slots of each relay. One that fails takes no part.
    fn open_relays(&mut self, resources: &mut EngineResources<'m>, begin: &BeginEvent<'m>) {
        for gpu in self.request.paths.gpus.iter() {
            let opened = EnqueuedRelay::new(resources, self.request, gpu)
                .and_then(|relay| begin.hold(&relay.fill).map(|()| relay));
            match opened {
                Ok(mut relay) => {
                    relay.slots = resources.take_free_slots(gpu);
                    self.relays.push(relay);
                }
                Err(error) => self.lost.push(LostRelay { gpu, error }),
            }
        }
    }

    /// Gives each path its part.
    fn divide(&mut self, rates: &[f64]) {
        let rate_of = |nth: usize| rates.get(nth).copied().unwrap_or(0.0);
        let by_gpu = |gpu: u32| self.request.paths.gpus.iter().position(|relay| relay == gpu);
        let mut used = vec![rate_of(0)];
        for relay in &self.relays {
            let rate = by_gpu(relay.gpu).map_or(0.0, |nth| rate_of(nth + 1));
            // A copy that the host drives has the other slots.
            used.push(if relay.slots.len() < MIN_SLOTS { 0.0 } else { rate });
        }
        let chunk = self.request.paths.chunk.0;
        let parts = divide_by_rate(self.request.bytes.0, &used, chunk);
        let mut at = parts.first().copied().unwrap_or(self.request.bytes.0);
        self.directly = at;
        for (relay, part) in self.relays.iter_mut().zip(parts.into_iter().skip(1)) {
            let piece = relay.slots.front().map_or(chunk, |free| free.slot.bytes.min(chunk));
            relay.pieces = ramped_pieces(at..at + part, piece);
            at += part;
        }
    }

    /// Enqueues all pieces, one of each relay in turn, and the direct part.
    fn enqueue(&mut self, resources: &mut EngineResources<'m>) {
        if self.directly > 0
            && let Err(error) = self.copy_directly(0..self.directly)
        {
            self.failure = Some(error);
            return;
        }
        while self.relays.iter().any(|relay| !relay.pieces.is_empty()) {
            for nth in 0..self.relays.len() {
                let Some(relay) = self.relays.get_mut(nth) else { continue };
                let Some(range) = relay.pieces.pop_front() else { continue };
                match relay.pass(resources, self.request, &range, self.engine) {
                    Ok(()) => relay.carried += range.end - range.start,
                    Err(error) => self.lose(nth, range, error),
                }
            }
        }
        self.enqueue_rest(resources);
    }

    /// Gives a relay up: the direct path takes what it has not enqueued, and all of its part if its GPU is lost.
    fn lose(&mut self, nth: usize, range: Range<u64>, error: CallError) {
        let Some(relay) = self.relays.get_mut(nth) else { return };
        self.repeated += 1;
        let end = relay.pieces.back().map_or(range.end, |last| last.end);
        let start = if error.severity == Severity::Sticky {
            range.start - relay.carried
        } else {
            range.start
        };
        relay.carried -= range.start - start;
        relay.pieces.clear();
        relay.is_lost = true;
        self.rest.push(start..end);
        self.lost.push(LostRelay { gpu: relay.gpu, error });
    }

    /// Copies directly what relays have left, after all that they did.
    fn enqueue_rest(&mut self, resources: &mut EngineResources<'m>) {
        if self.rest.is_empty() {
            return;
        }
        let ordered = self.relays.iter().filter(|relay| relay.is_lost).try_for_each(|relay| {
            for stream in relay.drain.each() {
                let event = resources.event(relay.drained_by)?;
                stream.record(&event)?;
                self.direct.each().try_for_each(|direct| direct.wait_event(&event))?;
                resources.return_event(relay.drained_by, event);
            }
            Ok(())
        });
        // A stream that takes no event: the end waits for it, and the caller copies again.
        let mut copied: CallResult<()> = ordered;
        for range in std::mem::take(&mut self.rest) {
            let bytes = range.end - range.start;
            copied = copied.and_then(|()| self.copy_directly(range));
            self.directly += bytes;
        }
        self.failure = copied.err();
    }

    fn copy_directly(&self, range: Range<u64>) -> CallResult<()> {
        let CopyRequest { src, dst, .. } = self.request;
        let bytes = Bytes(range.end - range.start);
        let (to, from) = (dst.address + range.start, src.address + range.start);
        self.direct.turn().copy(to, from, bytes, self.engine)
    }

    /// Records the end, and returns slots with the events that say when they are free.
    fn end(
        mut self,
        resources: &mut EngineResources<'m>,
        order: &StreamOrder<'_>,
    ) -> Result<CopyReport, EnqueueFailure> {
        let at = self.request.at();
        let drains = self.relays.iter().map(|relay| (relay.drained_by, &relay.drain));
        let ended = resources.end(at, order.done, [(at, &self.direct)].into_iter().chain(drains));
        for relay in &mut self.relays {
            relay.slots.drain(..).for_each(|free| resources.return_free_slot(free));
            if let Some(event) = relay.last_fill.take() {
                resources.return_event(relay.gpu, event);
            }
        }
        self.lost.iter().for_each(|lost| resources.forget_streams(lost.gpu));
        ended?;
        if let Some(error) = self.failure {
            return Err(EnqueueFailure { error: Box::new(error), is_ordered: true });
        }
        let mut paths = vec![PathBytes { gpu: None, bytes: Bytes(self.directly) }];
        let relayed = |relay: &EnqueuedRelay<'_>| PathBytes {
            gpu: Some(relay.gpu),
            bytes: Bytes(relay.carried),
        };
        paths.extend(self.relays.iter().map(relayed));
        Ok(CopyReport { paths, repeated: self.repeated, lost: self.lost, elapsed: None })
    }
}

impl<'m> EnqueuedRelay<'m> {
    fn new(
        resources: &mut EngineResources<'m>,
        request: &CopyRequest,
        gpu: u32,
    ) -> CallResult<Self> {
        let drained_by = resources.reach_relay(request, gpu)?;
        Ok(Self {
            gpu,
            drained_by,
            fill: resources.streams(gpu, StreamUse::EnqueuedFill)?,
            drain: resources.streams(drained_by, StreamUse::EnqueuedDrain(gpu))?,
            pieces: VecDeque::new(),
            slots: VecDeque::new(),
            last_fill: None,
            carried: 0,
            is_lost: false,
        })
    }

    /// Enqueues both legs of a piece. On an error the slot is not used again: its fill may have been enqueued.
    fn pass(
        &mut self,
        resources: &mut EngineResources<'m>,
        request: &CopyRequest,
        range: &Range<u64>,
        engine: CopyChoice,
    ) -> CallResult<()> {
        let no_slot = || CallError::unsupported("enqueue", format!("gpu{}", self.gpu), "no slot");
        let FreeSlot { slot, reader } = self.slots.pop_front().ok_or_else(no_slot)?;
        let filled = self.fill_slot(resources, request, (slot, reader), range, engine)?;
        let bytes = Bytes(range.end - range.start);
        let drained = resources.event(self.drained_by)?;
        let stream = self.drain.turn();
        stream.wait_event(&filled)?;
        stream.copy(request.dst.address + range.start, slot.address, bytes, engine)?;
        stream.record(&drained)?;
        if let Some(earlier) = self.last_fill.replace(filled) {
            resources.return_event(self.gpu, earlier);
        }
        self.slots.push_back(FreeSlot { slot, reader: Some((self.drained_by, drained)) });
        Ok(())
    }

    /// Source to slot, once the slot has been read; its event.
    fn fill_slot(
        &self,
        resources: &mut EngineResources<'m>,
        request: &CopyRequest,
        (slot, reader): (StagingSlot, Option<(u32, GpuEvent<'m>)>),
        range: &Range<u64>,
        engine: CopyChoice,
    ) -> CallResult<GpuEvent<'m>> {
        let filled = resources.event(self.gpu)?;
        let stream = self.fill.turn();
        if let Some((gpu, reader)) = reader {
            stream.wait_event(&reader)?;
            resources.return_event(gpu, reader);
        }
        if let Some(earlier) = &self.last_fill
            && request.chains_fills()
        {
            stream.wait_event(earlier)?;
        }
        stream.copy(
            slot.address,
            request.src.address + range.start,
            Bytes(range.end - range.start),
            engine,
        )?;
        stream.record(&filled)?;
        Ok(filled)
    }
}
