//! Copies that callers pass to the worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use pathline_hal::{EventId, GateId, StreamId};
use pathline_multipath::{PathOption, TransferId};
use pathline_schema::Ns;

use crate::copy_error::CopyError;
use crate::ends::KnownEnd;
use crate::node::plan_key;
use crate::plans::EndsKey;
use crate::worker::WorkerReply;

/// A stream of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldStream {
    pub(crate) gpu: u32,
    pub(crate) handle: usize,
}

/// One copy.
#[derive(Debug, Clone)]
pub(crate) struct OrderedCopy {
    pub(crate) src: KnownEnd,
    /// At least one destination; further ones get the same bytes.
    pub(crate) dst: Vec<KnownEnd>,
    pub(crate) bytes: u64,
    /// Set when the worker takes the order: later another choice could be made.
    pub(crate) chosen: Option<PathOption>,
}

impl OrderedCopy {
    /// The ends, for the table of plans.
    pub(crate) fn key(&self) -> EndsKey {
        plan_key(&self.src, &self.dst)
    }
}

/// Whether the worker or the caller makes the copies of an order: the first to ask.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderClaim(Arc<AtomicBool>);

impl OrderClaim {
    /// Takes the order. False if the other side has it.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Copies in the order of some streams; without any the caller waits for them.
#[derive(Debug)]
pub(crate) struct CopyOrder {
    pub(crate) copies: Vec<OrderedCopy>,
    pub(crate) streams: Vec<HeldStream>,
    pub(crate) claim: OrderClaim,
    pub(crate) reply: Sender<WorkerReply>,
    /// Time of the caller's call.
    pub(crate) sent: Ns,
}

/// A plain copy that the worker makes in place of one over several paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainRun {
    pub(crate) done: EventId,
}

/// A caller's stream behind a gate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinedStream {
    pub(crate) stream: StreamId,
    /// Completes when the stream has passed all work before the copy.
    pub(crate) fork: EventId,
}

/// An order in progress.
#[derive(Debug)]
pub(crate) struct ActiveOrder {
    pub(crate) reply: Sender<WorkerReply>,
    pub(crate) gate: Option<GateId>,
    pub(crate) joined: Vec<JoinedStream>,
    /// Starts of the memory that the driver knows for this order.
    pub(crate) blocks: Vec<u64>,
    pub(crate) waiting: VecDeque<OrderedCopy>,
    pub(crate) running: Vec<(TransferId, OrderedCopy)>,
    pub(crate) plain: Vec<PlainRun>,
    /// Time from the caller's order until the worker begins to hold its streams.
    pub(crate) handed_over: Ns,
    /// Time when its streams had passed all earlier work.
    pub(crate) started: Option<Ns>,
    /// The only copy, if its time can be compared with its plan: nothing else ran, and nothing failed.
    pub(crate) judged: Option<(EndsKey, u64)>,
    pub(crate) failure: Option<CopyError>,
}

impl ActiveOrder {
    pub(crate) fn new(order: CopyOrder) -> Self {
        let judged = match &order.copies[..] {
            [only] => Some((only.key(), only.bytes)),
            _ => None,
        };
        Self {
            reply: order.reply,
            gate: None,
            joined: Vec::new(),
            blocks: Vec::new(),
            waiting: order.copies.into(),
            running: Vec::new(),
            plain: Vec::new(),
            handed_over: Ns::ZERO,
            started: None,
            judged,
            failure: None,
        }
    }

    /// Whether every byte has arrived, or will not.
    pub(crate) fn is_over(&self) -> bool {
        self.started.is_some()
            && self.waiting.is_empty()
            && self.running.is_empty()
            && self.plain.is_empty()
    }
}
