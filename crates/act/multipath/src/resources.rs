//! Streams, events and staging memory of an engine, kept from copy to copy.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, CopyChoice, GpuEvent, GpuStream, Machine, MachineBuffer, PeerAccess,
    StartGate,
};
use pathline_schema::{Bytes, GpuSet, MemKind, MultipathSpec, Ns, Place, Unit};

use crate::request::CopyRequest;

/// The use of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamUse {
    /// Copies from the source to where the bytes are to stay.
    Direct,
    /// Copies into the staging memory of the stream's GPU.
    Fill,
    /// Copies out of the staging memory, or destination, of this GPU.
    Drain(u32),
    /// Events around a timed copy.
    Timing,
    /// As `Direct`, for copies that are enqueued as a whole: copies that the host drives never wait for those.
    EnqueuedDirect,
    /// As `Fill`, for copies that are enqueued as a whole.
    EnqueuedFill,
    /// As `Drain`, for copies that are enqueued as a whole.
    EnqueuedDrain(u32),
    /// Copies from other destinations, enqueued as a whole; there are two such pairs.
    EnqueuedPull(u32),
    /// Waits for the work before a copy that is enqueued as a whole.
    Begin,
    /// Waits for the ends of all paths of a copy that is enqueued as a whole.
    End,
}

impl StreamUse {
    fn is_enqueued(self) -> bool {
        match self {
            Self::Direct | Self::Fill | Self::Drain(_) | Self::Timing => false,
            Self::EnqueuedDirect
            | Self::EnqueuedFill
            | Self::EnqueuedDrain(_)
            | Self::EnqueuedPull(_)
            | Self::Begin
            | Self::End => true,
        }
    }
}

/// Two streams that copies of one use take in turn, so that the start of one overlaps the bytes of the other:
/// a blit kernel starts in 12 us, in which a link of 44 GB/s would carry 0.5 MiB.
pub(crate) struct StreamPair<'m> {
    streams: [Rc<GpuStream<'m>>; 2],
    next: Cell<usize>,
}

impl<'m> StreamPair<'m> {
    /// The stream of the next copy.
    pub(crate) fn turn(&self) -> &GpuStream<'m> {
        let nth = self.next.replace(1 - self.next.get());
        &self.streams[nth]
    }
    /// Both streams.
    pub(crate) fn each(&self) -> impl Iterator<Item = &GpuStream<'m>> {
        self.streams.iter().map(|stream| &**stream)
    }
    /// The first stream.
    pub(crate) fn first(&self) -> &GpuStream<'m> {
        &self.streams[0]
    }
    /// Lets both wait for a gate.
    pub(crate) fn hold(&self, gate: &StartGate<'_>) -> CallResult<()> {
        self.streams.iter().try_for_each(|stream| stream.hold(gate))
    }
}

/// A slot of staging memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StagingSlot {
    /// Its GPU.
    pub(crate) gpu: u32,
    /// Its first address.
    pub(crate) address: u64,
    /// Its bytes.
    pub(crate) bytes: u64,
}

/// A slot that no copy driven by the host uses.
pub(crate) struct FreeSlot<'m> {
    pub(crate) slot: StagingSlot,
    /// The GPU of an event, and the event: it completes when the last copy that was enqueued as a whole has
    /// read the slot.
    pub(crate) reader: Option<(u32, GpuEvent<'m>)>,
}

impl FreeSlot<'_> {
    fn is_read(&self) -> bool {
        self.reader.as_ref().is_none_or(|(_, reader)| reader.is_done() == Ok(true))
    }
}

/// Staging memory of one GPU.
struct Staging<'m> {
    memory: MachineBuffer<'m>,
    slot_bytes: u64,
    free: VecDeque<FreeSlot<'m>>,
}

impl CallTimes {
    fn note(&mut self, time: Ns) {
        if self.copies >= CALLS_KEPT {
            self.copies /= 2.0;
            self.ns /= 2.0;
        }
        self.copies += 1.0;
        self.ns += time.0;
    }
}

impl Staging<'_> {
    fn is_idle(&self) -> bool {
        self.free.len() as u64 == MultipathSpec::SLOTS && self.free.iter().all(FreeSlot::is_read)
    }
}

/// Copies after which those counted so far count half.
const CALLS_KEPT: f64 = 1024.0;

/// Time of the calls that enqueue a copy and its event.
#[derive(Default)]
struct CallTimes {
    copies: f64,
    ns: f64,
}

/// A copy that waits for earlier work of its streams.
pub(crate) struct WaitingCopy<'m> {
    /// Its event's GPU.
    pub(crate) gpu: u32,
    pub(crate) begun: GpuEvent<'m>,
    /// GPUs whose streams hold parts of it.
    pub(crate) gpus: GpuSet,
    pub(crate) streams: Vec<u64>,
}

/// What copies borrow.
pub(crate) struct EngineResources<'m> {
    pub(crate) machine: &'m Machine,
    streams: BTreeMap<(u32, StreamUse), [Rc<GpuStream<'m>>; 2]>,
    events: BTreeMap<u32, Vec<GpuEvent<'m>>>,
    staging: BTreeMap<u32, Staging<'m>>,
    /// Relays that have one fill enqueued at a time.
    pub(crate) shared_relays: GpuSet,
    calls: CallTimes,
    /// Copies enqueued as a whole that were not seen to have begun.
    pub(crate) waiting: Vec<WaitingCopy<'m>>,
}

impl<'m> EngineResources<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self {
            machine,
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            staging: BTreeMap::new(),
            shared_relays: GpuSet::EMPTY,
            calls: CallTimes::default(),
            waiting: Vec::new(),
        }
    }

    /// The streams of a GPU for one use.
    pub(crate) fn streams(&mut self, gpu: u32, used: StreamUse) -> CallResult<StreamPair<'m>> {
        let streams = match self.streams.get(&(gpu, used)) {
            Some([first, second]) => [Rc::clone(first), Rc::clone(second)],
            None => {
                let device = self.machine.gpu(gpu)?;
                let made = [Rc::new(device.stream()?), Rc::new(device.stream()?)];
                self.streams.insert((gpu, used), [Rc::clone(&made[0]), Rc::clone(&made[1])]);
                made
            }
        };
        Ok(StreamPair { streams, next: Cell::new(0) })
    }

    /// Forgets the streams of a GPU that failed, so that the next copy starts with new ones.
    pub(crate) fn forget_streams(&mut self, gpu: u32) {
        self.streams.retain(|(of, _), _| *of != gpu);
    }

    /// Waits for copies that were enqueued as a whole.
    pub(crate) fn wait_for_enqueued(&self) {
        for ((_, used), streams) in &self.streams {
            if used.is_enqueued() {
                // A GPU that failed runs nothing any more.
                streams.iter().for_each(|stream| drop(stream.wait()));
            }
        }
    }

    /// An event of a GPU.
    pub(crate) fn event(&mut self, gpu: u32) -> CallResult<GpuEvent<'m>> {
        match self.events.get_mut(&gpu).and_then(Vec::pop) {
            Some(event) => Ok(event),
            None => self.machine.gpu(gpu)?.event(),
        }
    }

    /// Enqueues a copy `(dst, src, bytes)` on the next of two streams of a GPU. The event completes with it.
    pub(crate) fn copy(
        &mut self,
        streams: &StreamPair<'m>,
        gpu: u32,
        (dst, src, bytes): (u64, u64, Bytes),
        engine: CopyChoice,
    ) -> CallResult<GpuEvent<'m>> {
        self.copy_after(None, streams, gpu, (dst, src, bytes), engine)
    }

    /// As [`copy`](Self::copy); it starts after an event.
    pub(crate) fn copy_after(
        &mut self,
        earlier: Option<&GpuEvent<'m>>,
        streams: &StreamPair<'m>,
        gpu: u32,
        (dst, src, bytes): (u64, u64, Bytes),
        engine: CopyChoice,
    ) -> CallResult<GpuEvent<'m>> {
        let done = self.event(gpu)?;
        let stream = streams.turn();
        let start = self.machine.clock.now();
        if let Some(earlier) = earlier {
            stream.wait_event(earlier)?;
        }
        stream.copy(dst, src, bytes, engine)?;
        stream.record(&done)?;
        self.calls.note(self.machine.clock.now() - start);
        Ok(done)
    }

    /// Mean time in which this thread enqueues one copy.
    pub(crate) fn call_time(&self) -> Ns {
        Ns(self.calls.ns / self.calls.copies.max(1.0))
    }

    pub(crate) fn return_event(&mut self, gpu: u32, event: GpuEvent<'m>) {
        self.events.entry(gpu).or_default().push(event);
    }

    /// Lets a relay reach both ends of a copy and have staging memory. Returns the GPU that copies out of it: the
    /// destination, or the relay if the copy goes to the host.
    pub(crate) fn reach_relay(&mut self, request: &CopyRequest, gpu: u32) -> CallResult<u32> {
        if let Some(src) = request.src.unit.gpu() {
            self.reach(gpu, src)?;
        }
        let drained_by = request.dst.unit.gpu().unwrap_or(gpu);
        if drained_by != gpu {
            self.reach(drained_by, gpu)?;
        }
        self.reserve(gpu, request.paths.chunk)?;
        Ok(drained_by)
    }

    /// Makes sure that a relay has staging memory for chunks of that size. Memory in use keeps its size.
    pub(crate) fn reserve(&mut self, gpu: u32, chunk: Bytes) -> CallResult<()> {
        if self.staging.get(&gpu).is_some_and(|s| s.slot_bytes >= chunk.0 || !s.is_idle()) {
            return Ok(());
        }
        // First the old memory, then the new: together they would exceed what a relay is asked for.
        self.staging.remove(&gpu);
        let bytes = Bytes(chunk.0 * MultipathSpec::SLOTS);
        let memory = self.machine.buffer(Place::new(Unit::Gpu(gpu), MemKind::Vram), bytes)?;
        let slot =
            |nth| StagingSlot { gpu, address: memory.address() + nth * chunk.0, bytes: chunk.0 };
        let free = (0..MultipathSpec::SLOTS).map(|nth| FreeSlot { slot: slot(nth), reader: None });
        let free = free.collect();
        self.staging.insert(gpu, Staging { memory, slot_bytes: chunk.0, free });
        Ok(())
    }

    /// A slot of a relay that nothing reads any more.
    pub(crate) fn take_slot(&mut self, gpu: u32) -> Option<StagingSlot> {
        let staging = self.staging.get_mut(&gpu)?;
        let at = staging.free.iter().position(FreeSlot::is_read)?;
        let free = staging.free.remove(at)?;
        if let Some((gpu, reader)) = free.reader {
            self.return_event(gpu, reader);
        }
        Some(free.slot)
    }

    /// All slots of a relay that no copy driven by the host uses, in the order in which they are read.
    pub(crate) fn take_free_slots(&mut self, gpu: u32) -> VecDeque<FreeSlot<'m>> {
        self.staging
            .get_mut(&gpu)
            .map(|staging| std::mem::take(&mut staging.free))
            .unwrap_or_default()
    }

    /// Returns a slot that nothing fills or reads any more.
    pub(crate) fn return_slot(&mut self, slot: StagingSlot) {
        self.return_free_slot(FreeSlot { slot, reader: None });
    }

    /// Returns a slot of [`Self::take_free_slots`].
    pub(crate) fn return_free_slot(&mut self, free: FreeSlot<'m>) {
        if let Some(staging) = self.staging.get_mut(&free.slot.gpu)
            && staging.holds(free.slot)
        {
            staging.free.push_back(free);
        }
    }

    /// Lets a GPU address the memory of another.
    ///
    /// # Errors
    /// There is no direct path between the two.
    pub(crate) fn reach(&self, from: u32, to: u32) -> CallResult<()> {
        let driver = self.machine.driver()?;
        if driver.peer_access(from, to)? == PeerAccess::Staged {
            let pair = format!("gpu{to} from gpu{from}");
            let reason = "the runtime would stage this copy through the host";
            return Err(CallError::unsupported("enable_peer", pair, reason));
        }
        driver.enable_peer(from, to)
    }
}

impl Staging<'_> {
    /// Whether a slot is part of this memory, and not of memory that was replaced.
    fn holds(&self, slot: StagingSlot) -> bool {
        let start = self.memory.address();
        slot.bytes == self.slot_bytes
            && (start..start + self.memory.bytes().0).contains(&slot.address)
    }
}
