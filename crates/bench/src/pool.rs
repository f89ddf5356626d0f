//! Buffers of the cases at hand, and which of them a flow needs.

use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{CallResult, Machine, MachineBuffer};
use pathline_schema::{
    Bytes, Case, CpuOp, Flow, IoSpec, KernelOp, MemKind, Mover, Place, RuntimeCall, Unit,
};

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
    // What goes between processes is in their memory, not in this one's.
    case.flows()
        .enumerate()
        .filter(|(_, flow)| flow.by.wire().is_none())
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
    if let Mover::Io { io, .. } = &flow.by {
        return Some(of_io(flow, io, needs::host_memory(flow, io)?, nth));
    }
    if let Mover::Call { call, .. } = flow.by {
        // Memory that is page-locked and let go, or registered; other calls bring their own.
        let locks = matches!(call, RuntimeCall::Register | RuntimeCall::Unregister);
        let place = flow.subject().filter(|_| locks || call.is_of_adapters())?;
        return Some(BufferKey {
            place,
            bytes: flow.bytes,
            role: BufferRole::Source,
            user: None,
            nth,
        });
    }
    let (bytes, role) = match flow.by {
        _ if flow.by.is_chase() => (flow.bytes, BufferRole::Chain),
        _ if is_triad(&flow.by) => (Bytes(flow.bytes.0.saturating_mul(2)), BufferRole::Source),
        _ => (flow.bytes, BufferRole::Source),
    };
    let (place, user) = (flow.src, user(flow, flow.src));
    let shared = role == BufferRole::Source && place.mem == MemKind::Vram;
    let nth = if shared { 0 } else { nth };
    (place.mem != MemKind::Reg).then_some(BufferKey { place, bytes, role, user, nth })
}

/// Migrated pages change their place, not their buffer: a migration has no destination. Nor has a
/// call. Of I/O the source is the host's memory and the destination the GPU's, whichever way it goes.
pub(crate) fn destination(flow: &Flow, nth: usize) -> Option<BufferKey> {
    if let Mover::Io { io, .. } = &flow.by {
        return Some(of_io(flow, io, needs::gpu_memory(flow)?, nth));
    }
    let keeps = matches!(flow.by, Mover::Migrate { .. } | Mover::Call { .. });
    let stored = flow.dst.mem != MemKind::Reg && !keeps;
    let (place, bytes, role) = (flow.dst, flow.bytes, BufferRole::Destination);
    stored.then_some(BufferKey { place, bytes, role, user: user(flow, place), nth })
}

fn user(flow: &Flow, place: Place) -> Option<(&'static str, Unit)> {
    (place.mem == MemKind::Managed).then_some((flow.by.kind(), flow.by.at()))
}

fn is_triad(by: &Mover) -> bool {
    match by {
        Mover::Cpu { work, .. } => work.op == CpuOp::Triad,
        Mover::Kernel { variant, .. } => variant.op == KernelOp::Triad,
        _ => false,
    }
}
