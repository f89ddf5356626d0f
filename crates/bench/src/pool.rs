//! Buffers of the cases at hand, and which of them a flow needs.

use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{CallResult, Machine, MachineBuffer};
use pathline_schema::{Bytes, Case, Flow, IoSpec, MemKind, MemoryUse, Place, RuntimeCall, Unit};

use crate::lane::{SOURCE_SEED, SPOILT_SEED};
use crate::needs;

/// Which end of a flow a buffer serves. Sources of one place and size are never written, so lanes
/// share them; destinations are shared by lanes that are not timed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum BufferRole {
    Source,
    Chain,
    Destination,
}

/// What tells one buffer of a group from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BufferKey {
    /// Where it lies.
    pub(crate) place: Place,
    bytes: Bytes,
    role: BufferRole,
    /// Managed memory remembers who used it, in residency and advice: it is not shared between
    /// kinds of movers or between units.
    user: Option<(&'static str, Unit)>,
    /// Number of the lane in its case: lanes of one case run at once and share nothing but device
    /// memory that all of them read. Host memory is not shared, since the CPUs' caches would serve
    /// what one has read to the next.
    nth: usize,
}

/// Buffers of the cases at hand. They outlive a case: filling a gigabyte takes longer than copying it.
pub(crate) struct BufferPool<'m> {
    /// What they are made on.
    pub(crate) machine: &'m Machine,
    buffers: BTreeMap<BufferKey, Rc<MachineBuffer<'m>>>,
}

impl<'m> BufferPool<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self { machine, buffers: BTreeMap::new() }
    }

    /// Frees what the next cases do not need.
    pub(crate) fn keep(&mut self, needed: &BTreeMap<BufferKey, Bytes>) {
        self.buffers.retain(|key, _| needed.contains_key(key));
    }

    /// The buffers that there are, with their sizes.
    pub(crate) fn held(&self) -> impl Iterator<Item = (BufferKey, Bytes)> + '_ {
        self.buffers.keys().map(|key| (*key, key.bytes))
    }

    pub(crate) fn get(&mut self, key: BufferKey) -> CallResult<Rc<MachineBuffer<'m>>> {
        if let Some(buffer) = self.buffers.get(&key) {
            return Ok(Rc::clone(buffer));
        }
        let buffer = Rc::new(self.machine.buffer(key.place, key.bytes)?);
        match key.role {
            BufferRole::Source => buffer.fill(SOURCE_SEED, false)?,
            BufferRole::Chain => buffer.fill(SOURCE_SEED, true)?,
            BufferRole::Destination => buffer.fill(SPOILT_SEED, false)?,
        }
        self.buffers.insert(key, Rc::clone(&buffer));
        Ok(buffer)
    }
}

/// The buffers that a case needs, with their sizes.
pub(crate) fn buffers(case: &Case) -> impl Iterator<Item = (BufferKey, Bytes)> + '_ {
    case.flows()
        .enumerate()
        .flat_map(|(nth, flow)| [source(flow, nth), destination(flow, nth)])
        .flatten()
        .map(|key| (key, key.bytes))
}

/// Memory that I/O goes through; what it holds is its lane's affair.
fn of_io(flow: &Flow, io: &IoSpec, place: Place, nth: usize) -> BufferKey {
    BufferKey {
        place,
        bytes: needs::slots(flow, io),
        role: BufferRole::Destination,
        user: None,
        nth,
    }
}

/// The buffer that a flow comes from, if it needs one; the flow is the `nth` of its case.
pub(crate) fn source(flow: &Flow, nth: usize) -> Option<BufferKey> {
    let (place, bytes, role) = match flow.by.memory() {
        // What goes between processes is in their memory, not in this one's.
        MemoryUse::Ranks(_) => return None,
        MemoryUse::Slots(io) => return Some(of_io(flow, io, needs::host_memory(flow, io)?, nth)),
        // Memory that is page-locked and released, or registered; other calls bring their own.
        MemoryUse::Subject(call) => {
            let locks = matches!(call, RuntimeCall::Register | RuntimeCall::Unregister);
            let place = flow.subject().filter(|_| locks || call.is_of_adapters())?;
            let (bytes, role) = (flow.bytes, BufferRole::Source);
            return Some(BufferKey { place, bytes, role, user: None, nth });
        }
        MemoryUse::BothEnds | MemoryUse::SourceOnly => {
            let role = if flow.by.is_chase() { BufferRole::Chain } else { BufferRole::Source };
            (flow.src, needs::source_bytes(flow), role)
        }
    };
    let user = user(flow, place);
    let shared = role == BufferRole::Source && place.mem == MemKind::Vram;
    let nth = if shared { 0 } else { nth };
    (place.mem != MemKind::Reg).then_some(BufferKey { place, bytes, role, user, nth })
}

/// The buffer that a flow is checked in, if it writes one. Of I/O the source is the host's memory and
/// the destination the GPU's, in both directions.
pub(crate) fn destination(flow: &Flow, nth: usize) -> Option<BufferKey> {
    if let MemoryUse::Slots(io) = flow.by.memory() {
        return Some(of_io(flow, io, needs::gpu_memory(flow)?, nth));
    }
    let place = needs::written(flow).filter(|place| place.mem != MemKind::Reg)?;
    let (bytes, role) = (flow.bytes, BufferRole::Destination);
    Some(BufferKey { place, bytes, role, user: user(flow, place), nth })
}

fn user(flow: &Flow, place: Place) -> Option<(&'static str, Unit)> {
    (place.mem == MemKind::Managed).then_some((flow.by.kind(), flow.by.at()))
}
