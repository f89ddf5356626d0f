//! The same bytes to several GPUs, enqueued as a whole.

use std::collections::VecDeque;
use std::ops::Range;

use pathline_hal::{CallError, CallResult, CopyChoice, GpuEvent};
use pathline_schema::{Bytes, GpuSet, Severity};

use crate::enqueued::{BeginEvent, EnqueueFailure, StreamOrder};
use crate::path_parts::{divide_alike, even_pieces};
use crate::request::{CopyEnd, CopyReport, CopyRequest, LostRelay, PathBytes};
use crate::resources::{EngineResources, StreamPair, StreamUse};

/// Pieces into which each destination's part is cut, but for small ones: few calls, and the last pull is short.
const PIECES: u64 = 16;
/// Least piece: 2 MiB pass a link of 55 GB/s in 38 us, in which the calls of eight GPUs are made.
const LEAST_PIECE: u64 = 2 << 20;

/// A destination.
struct EnqueuedMember<'m> {
    end: CopyEnd,
    gpu: u32,
    load: StreamPair<'m>,
    /// Streams of the pulls: four pulls run at a time, whichever members they come from.
    pulls: [StreamPair<'m>; 2],
    /// Members whose memory it reaches.
    reaches: Vec<bool>,
    pieces: VecDeque<Range<u64>>,
    /// Pulls so far.
    pulled: usize,
    loaded: u64,
}

/// Enqueues a copy to several GPUs. `rates` are those at which the destinations load, bytes
/// per ns.
pub(crate) fn enqueue_to_all<'m>(
    resources: &mut EngineResources<'m>,
    request: &CopyRequest,
    rates: &[f64],
    order: &StreamOrder<'_>,
) -> Result<CopyReport, EnqueueFailure> {
    let ends: Vec<CopyEnd> =
        std::iter::once(request.dst).chain(request.others.iter().copied()).collect();
    let gpus: GpuSet = ends.iter().chain([&request.src]).filter_map(|end| end.unit.gpu()).collect();
    resources.check_waiting(gpus, order.streams)?;
    let mut members = Vec::new();
    for end in &ends {
        members.push(EnqueuedMember::new(resources, request, *end, &ends)?);
    }
    let begin = resources.begin(request.at(), order, gpus)?;
    members.iter().try_for_each(|member| member.hold(&begin))?;
    begin.keep(resources);
    let parts = divide_alike(request.bytes.0, &load_rates(rates, members.len()));
    let mut at = 0;
    for (member, part) in members.iter_mut().zip(parts) {
        let piece =
            (part / PIECES).clamp(LEAST_PIECE.min(request.paths.chunk.0), request.paths.chunk.0);
        member.pieces = even_pieces(at..at + part, piece);
        at += part;
    }
    let (mut lost, mut repeated) = (Vec::new(), 0);
    let enqueued = enqueue_pieces(resources, request, &mut members, (&mut lost, &mut repeated));
    let streams = members.iter().flat_map(|m| m.each_pair().map(|pair| (m.gpu, pair)));
    resources.end(request.at(), order.done, streams)?;
    if let Err(error) = enqueued {
        return Err(EnqueueFailure { error: Box::new(error), is_ordered: true });
    }
    let path = |m: &EnqueuedMember<'_>| PathBytes { gpu: Some(m.gpu), bytes: Bytes(m.loaded) };
    let paths = members.iter().map(path).collect();
    Ok(CopyReport { paths, repeated, lost, elapsed: None })
}

/// The rates at which some members load: equal ones where they are not known.
fn load_rates(rates: &[f64], members: usize) -> Vec<f64> {
    let are_known = rates.len() == members && rates.iter().all(|rate| *rate > 0.0);
    if are_known { rates.to_vec() } else { vec![1.0; members] }
}

/// One piece of each member in turn: its load, then the pulls of the others.
fn enqueue_pieces<'m>(
    resources: &mut EngineResources<'m>,
    request: &CopyRequest,
    members: &mut [EnqueuedMember<'m>],
    (lost, repeated): (&mut Vec<LostRelay>, &mut u64),
) -> CallResult<()> {
    let engine = request.engine();
    while members.iter().any(|member| !member.pieces.is_empty()) {
        let mut loaded = Vec::new();
        for (nth, member) in members.iter_mut().enumerate() {
            let Some(range) = member.pieces.pop_front() else { continue };
            let event = resources.event(member.gpu)?;
            let stream = member.load.turn();
            let to = member.end.address + range.start;
            stream.copy(to, request.src.address + range.start, size(&range), engine)?;
            stream.record(&event)?;
            member.loaded += range.end - range.start;
            loaded.push((nth, member.gpu, member.end.address, range, event));
        }
        for member in 0..members.len() {
            // Each begins with another one's piece.
            let count = loaded.len().max(1);
            for (owner, _, address, range, event) in
                loaded.iter().cycle().skip(member % count).take(loaded.len())
            {
                let Some(puller) = members.get_mut(member).filter(|_| *owner != member) else {
                    continue;
                };
                let from = address + range.start;
                let reaches = puller.reaches.get(*owner) == Some(&true);
                let pulled = match reaches {
                    true => puller.pull(range, from, event, engine),
                    false => puller.load(request, range, engine),
                };
                if let Err(error) = pulled {
                    if error.severity == Severity::Sticky || !reaches {
                        return Err(error);
                    }
                    *repeated += 1;
                    lost.push(LostRelay { gpu: puller.gpu, error });
                    puller.load(request, range, engine)?;
                }
            }
        }
        for (_, gpu, _, _, event) in loaded {
            resources.return_event(gpu, event);
        }
    }
    Ok(())
}

fn size(range: &Range<u64>) -> Bytes {
    Bytes(range.end - range.start)
}

impl<'m> EnqueuedMember<'m> {
    fn new(
        resources: &mut EngineResources<'m>,
        request: &CopyRequest,
        end: CopyEnd,
        ends: &[CopyEnd],
    ) -> CallResult<Self> {
        let Some(gpu) = end.unit.gpu() else {
            let reason = "copies to all go to GPUs";
            return Err(CallError::unsupported("copy", end.unit.to_string(), reason));
        };
        if let Some(src) = request.src.unit.gpu() {
            let _ = resources.reach(gpu, src);
        }
        let reaches = |other: &CopyEnd| {
            other.unit.gpu().is_some_and(|from| from != gpu && resources.reach(gpu, from).is_ok())
        };
        let reaches = ends.iter().map(reaches).collect();
        let mut streams = |used| resources.streams(gpu, used);
        Ok(Self {
            end,
            gpu,
            load: streams(StreamUse::EnqueuedDirect)?,
            pulls: [streams(StreamUse::EnqueuedPull(0))?, streams(StreamUse::EnqueuedPull(1))?],
            reaches,
            pieces: VecDeque::new(),
            pulled: 0,
            loaded: 0,
        })
    }

    fn each_pair(&self) -> impl Iterator<Item = &StreamPair<'m>> {
        [&self.load].into_iter().chain(&self.pulls)
    }

    fn hold(&self, begin: &BeginEvent<'m>) -> CallResult<()> {
        // Pulls wait for loads, but those of a member write to its own memory: its streams come first too.
        self.each_pair().try_for_each(|pair| begin.hold(pair))
    }

    /// Takes a range from another member once that has loaded it.
    fn pull(
        &mut self,
        range: &Range<u64>,
        from: u64,
        loaded: &GpuEvent<'m>,
        engine: CopyChoice,
    ) -> CallResult<()> {
        let pair = &self.pulls[self.pulled % 2];
        self.pulled += 1;
        let stream = pair.turn();
        stream.wait_event(loaded)?;
        stream.copy(self.end.address + range.start, from, size(range), engine)
    }

    /// Takes a range from the source.
    fn load(
        &self,
        request: &CopyRequest,
        range: &Range<u64>,
        engine: CopyChoice,
    ) -> CallResult<()> {
        let (to, from) = (self.end.address + range.start, request.src.address + range.start);
        self.load.turn().copy(to, from, size(range), engine)
    }
}
