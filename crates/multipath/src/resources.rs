//! Streams, events and staging memory of an engine, kept from copy to copy.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, CopyChoice, GpuEvent, GpuStream, Machine, MachineBuffer, PeerAccess,
    StartGate,
};
use pathline_schema::{Bytes, GpuSet, MemKind, MultipathSpec, Ns, Place, Unit};

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

/// Staging memory of one GPU.
struct Staging<'m> {
    memory: MachineBuffer<'m>,
    slot_bytes: u64,
    free: Vec<StagingSlot>,
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
        self.free.len() as u64 == MultipathSpec::SLOTS
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

/// What copies borrow.
pub(crate) struct EngineResources<'m> {
    pub(crate) machine: &'m Machine,
    streams: BTreeMap<(u32, StreamUse), [Rc<GpuStream<'m>>; 2]>,
    events: BTreeMap<u32, Vec<GpuEvent<'m>>>,
    staging: BTreeMap<u32, Staging<'m>>,
    /// Relays that have one fill enqueued at a time.
    pub(crate) shared_relays: GpuSet,
    calls: CallTimes,
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
        let free = (0..MultipathSpec::SLOTS).map(slot).collect();
        self.staging.insert(gpu, Staging { memory, slot_bytes: chunk.0, free });
        Ok(())
    }

    /// A free slot of a relay.
    pub(crate) fn take_slot(&mut self, gpu: u32) -> Option<StagingSlot> {
        self.staging.get_mut(&gpu)?.free.pop()
    }

    /// Returns a slot that nothing fills or reads any more.
    pub(crate) fn return_slot(&mut self, slot: StagingSlot) {
        if let Some(staging) = self.staging.get_mut(&slot.gpu)
            && staging.holds(slot)
        {
            staging.free.push(slot);
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
