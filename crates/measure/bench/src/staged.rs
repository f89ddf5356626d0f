//! Lanes of GPU to GPU copies that this program stages through pinned host memory.

use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, CopyChoice, GpuEvent, GpuStream, Machine, MachineBuffer, StartGate,
};
use pathline_schema::{
    Bytes, Flow, MemKind, Place, STAGED_CHUNK, STAGED_CHUNKS, TimerKind, Unit, VerifyResult,
};

use crate::lane::{BoundLane, LaneSample, SOURCE_SEED, SPOILT_SEED};

/// A wait, a copy and a record: on each stream for every chunk.
const OPERATIONS: u64 = 3;

/// A chunk of pinned memory and the events that guard it.
struct StagingSlot<'m> {
    memory: MachineBuffer<'m>,
    /// Its bytes have arrived from the source; an event of the source's GPU.
    filled: GpuEvent<'m>,
    /// Its bytes have been copied on; an event of the destination's GPU.
    emptied: GpuEvent<'m>,
}

/// Two streams that pass chunks to each other: one copies from the source, one to the destination.
pub(crate) struct StagedLane<'m> {
    machine: &'m Machine,
    out: GpuStream<'m>,
    into: GpuStream<'m>,
    start: GpuEvent<'m>,
    end: GpuEvent<'m>,
    slots: Vec<StagingSlot<'m>>,
    src: Rc<MachineBuffer<'m>>,
    dst: Rc<MachineBuffer<'m>>,
    bytes: Bytes,
    isolated: bool,
    pending: u64,
}

impl<'m> StagedLane<'m> {
    pub(crate) fn new(
        machine: &'m Machine,
        flow: &Flow,
        via: Unit,
        (src, dst): (Rc<MachineBuffer<'m>>, Rc<MachineBuffer<'m>>),
        isolated: bool,
    ) -> CallResult<Self> {
        let gpu = |unit: Unit| {
            let index = unit.gpu().ok_or_else(|| {
                let why = flow.misfit().unwrap_or("it does not go from GPU to GPU");
                CallError::unsupported("bind", flow.to_string(), why)
            })?;
            machine.gpu(index)
        };
        let (from, to) = (gpu(flow.src.unit)?, gpu(flow.dst.unit)?);
        let most = machine.driver()?.queue_depth() / OPERATIONS;
        if flow.bytes.0.div_ceil(STAGED_CHUNK.0) > most {
            // The call that enqueues the next one would wait for a gate that opens after it.
            let why = "it has more chunks than fit into a held stream";
            let way_out = format!("take at most {}", Bytes(most.saturating_mul(STAGED_CHUNK.0)));
            return Err(CallError::unsupported("bind", flow.to_string(), why).or_try(way_out));
        }
        let chunk = STAGED_CHUNK.min(flow.bytes);
        let slot = |_| {
            let memory = machine.buffer(Place::new(via, MemKind::Pinned), chunk)?;
            Ok(StagingSlot { memory, filled: from.event()?, emptied: to.event()? })
        };
        Ok(Self {
            machine,
            out: from.stream()?,
            into: to.stream()?,
            start: from.event()?,
            end: from.event()?,
            slots: (0..STAGED_CHUNKS).map(slot).collect::<CallResult<_>>()?,
            src,
            dst,
            bytes: flow.bytes,
            isolated,
            pending: 0,
        })
    }

    fn chunks(&self) -> u64 {
        self.bytes.0.div_ceil(STAGED_CHUNK.0)
    }

    /// Enqueues all chunks of one operation. A chunk's memory is not written before its last bytes
    /// were copied on, nor read before its new bytes have arrived.
    fn enqueue(&self) -> CallResult<()> {
        let engine = CopyChoice::Auto;
        for (nth, slot) in (0..self.chunks()).zip(self.slots.iter().cycle()) {
            let offset = nth * STAGED_CHUNK.0;
            let bytes = STAGED_CHUNK.min(Bytes(self.bytes.0 - offset));
            let memory = slot.memory.address();
            // In the first round the memory is free, and a wait for an unrecorded event has no
            // effect.
            self.out.wait_event(&slot.emptied)?;
            self.out.copy(memory, self.src.address() + offset, bytes, engine)?;
            self.out.record(&slot.filled)?;
            self.into.wait_event(&slot.filled)?;
            self.into.copy(self.dst.address() + offset, memory, bytes, engine)?;
            self.into.record(&slot.emptied)?;
        }
        Ok(())
    }
}

impl BoundLane for StagedLane<'_> {
    fn issue(&mut self, gate: &StartGate<'_>, reps: u64) -> CallResult<()> {
        self.pending = reps;
        self.out.hold(gate)?;
        self.out.record(&self.start)?;
        for _ in 0..reps {
            self.enqueue()?;
        }
        // Both events belong to the source's GPU, so that they can be compared.
        for slot in &self.slots {
            self.out.wait_event(&slot.emptied)?;
        }
        self.out.record(&self.end)
    }

    fn wait(&mut self) -> CallResult<LaneSample> {
        let reps = std::mem::take(&mut self.pending);
        self.into.wait()?;
        self.out.wait()?;
        Ok(LaneSample::of(self.end.since(&self.start)?, reps))
    }

    fn timer(&self) -> TimerKind {
        TimerKind::DeviceEvents
    }

    fn engine(&self) -> String {
        "copies staged through the host".to_owned()
    }

    fn repeats(&self) -> bool {
        !self.isolated
    }

    fn most(&self) -> u64 {
        let depth = self.machine.driver().map_or(u64::MAX, |driver| driver.queue_depth());
        (depth / (OPERATIONS * self.chunks())).max(1)
    }

    fn spoil(&mut self) -> CallResult<()> {
        self.dst.fill(SPOILT_SEED, false)
    }

    fn check(&self) -> CallResult<VerifyResult> {
        self.dst.check(SOURCE_SEED, self.bytes).map(|()| VerifyResult::Verified)
    }
}
