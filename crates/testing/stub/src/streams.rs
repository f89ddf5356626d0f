//! The state of a node's streams and events.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pathline_hal::{EventId, GateId, StreamId};

use crate::acts::StreamAct;

/// A context, stream, event, module or function. 0 is none.
pub(crate) type StubHandle = usize;

/// A position in a stream; later ones are greater.
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
    /// Whether it is ordered with the legacy stream of its GPU.
    pub(crate) blocking: bool,
    pub(crate) steps: VecDeque<QueueStep>,
    pub(crate) passed: StreamMark,
    /// Whether it was destroyed; it ends after its work.
    pub(crate) doomed: bool,
}

/// An event.
#[derive(Debug)]
pub(crate) struct StubEvent {
    pub(crate) gpu: u32,
    pub(crate) sim: EventId,
    pub(crate) timed: bool,
    /// Where it was recorded last.
    pub(crate) at: Option<(StubHandle, StreamMark)>,
}

/// The condition of a memory word that lets a stream continue; comparison numbers are those of the
/// vendors' flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WordWait {
    pub(crate) address: u64,
    pub(crate) value: u32,
    pub(crate) mask: u32,
    pub(crate) how: u32,
}

impl WordWait {
    pub(crate) fn is_over(&self) -> bool {
        // SAFETY: the caller guarantees that the address is an aligned 32-bit integer for the whole
        // wait.
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

/// Operations recorded on a stream: only host functions, which the collectives library enqueues.
pub(crate) type RecordedCalls = Vec<(HostFunction, usize)>;

/// A host function that a stream calls and waits for.
#[derive(Debug)]
pub(crate) struct HostCall {
    pub(crate) stream: StubHandle,
    pub(crate) mark: StreamMark,
    /// Completes when the stream gets there.
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
    /// Gates that hold streams until a memory word meets its condition.
    pub(crate) waits: BTreeMap<WordWait, GateId>,
    pub(crate) calls: Vec<HostCall>,
    /// The legacy stream of each GPU, after its first use.
    pub(crate) legacy: BTreeMap<u32, StubHandle>,
    pub(crate) marks: StreamMark,
    /// Streams in recording, and their operations.
    pub(crate) recording: BTreeMap<StubHandle, RecordedCalls>,
    pub(crate) graphs: BTreeMap<StubHandle, RecordedCalls>,
    /// Counts returns to the host, which may then write its own memory.
    pub(crate) epoch: u64,
}
