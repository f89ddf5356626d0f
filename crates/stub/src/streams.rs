//! What a node knows of its streams and events.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pathline_hal::{EventId, GateId, StreamId};

use crate::acts::StreamAct;

/// A context, stream, event, module or function. 0 is none.
pub(crate) type StubHandle = usize;

/// A place in a stream that was passed or not; later ones are greater.
pub(crate) type StreamMark = u64;

#[derive(Debug)]
pub(crate) enum QueueStep {
    Act(StreamAct),
    Mark(StreamMark),
    /// Another stream must have passed a mark.
    Await(StubHandle, StreamMark),
}

/// A stream.
#[derive(Debug)]
pub(crate) struct StubStream {
    pub(crate) gpu: u32,
    pub(crate) sim: StreamId,
    /// Ordered with the legacy stream of its GPU.
    pub(crate) blocking: bool,
    pub(crate) steps: VecDeque<QueueStep>,
    pub(crate) passed: StreamMark,
    /// Destroyed; it ends when its work has.
    pub(crate) doomed: bool,
}

/// An event.
#[derive(Debug)]
pub(crate) struct StubEvent {
    pub(crate) sim: EventId,
    pub(crate) timed: bool,
    /// Where it was recorded last.
    pub(crate) at: Option<(StubHandle, StreamMark)>,
}

/// When a word lets a stream go on, as the flags of the vendors' calls number it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WordWait {
    pub(crate) address: u64,
    pub(crate) value: u32,
    pub(crate) mask: u32,
    pub(crate) how: u32,
}

impl WordWait {
    pub(crate) fn is_over(&self) -> bool {
        // SAFETY: who waits for a word promises that it is one, aligned, for as long.
        let word = unsafe { AtomicU32::from_ptr(self.address as *mut u32) };
        let found = word.load(Ordering::Acquire) & self.mask;
        let value = self.value & self.mask;
        match self.how & 3 {
            0 => found.wrapping_sub(value).cast_signed() >= 0,
            1 => found == value,
            2 => found & value != 0,
            _ => !(found | value) != 0,
        }
    }
}

/// `CUhostFn`, `hipHostFn_t`.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// What a stream was given while it was recorded: functions of the host, which is what the
/// library of collectives gives it.
pub(crate) type RecordedCalls = Vec<(HostFunction, usize)>;

/// A function of the host that a stream calls and waits for.
#[derive(Debug)]
pub(crate) struct HostCall {
    pub(crate) stream: StubHandle,
    pub(crate) mark: StreamMark,
    /// Happens when the stream gets there.
    pub(crate) reached: EventId,
    /// Holds the stream until the function returns.
    pub(crate) gate: GateId,
    pub(crate) function: HostFunction,
    pub(crate) data: usize,
    pub(crate) running: Option<Arc<AtomicBool>>,
}

/// All streams and events of a node.
#[derive(Debug, Default)]
pub(crate) struct StreamQueues {
    pub(crate) streams: BTreeMap<StubHandle, StubStream>,
    pub(crate) events: BTreeMap<StubHandle, StubEvent>,
    /// Gates that hold streams until a word says so.
    pub(crate) waits: BTreeMap<WordWait, GateId>,
    pub(crate) calls: Vec<HostCall>,
    /// The legacy stream of each GPU, once it is used.
    pub(crate) legacy: BTreeMap<u32, StubHandle>,
    pub(crate) marks: StreamMark,
    /// Streams that are recorded, and what was recorded.
    pub(crate) recording: BTreeMap<StubHandle, RecordedCalls>,
    pub(crate) graphs: BTreeMap<StubHandle, RecordedCalls>,
    /// Counts returns to the host, which may then write its own memory.
    pub(crate) epoch: u64,
}
