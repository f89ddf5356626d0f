//! What callers and the worker pass each other: copies, and what became of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use pathline_hal::EventId;
use pathline_multipath::{PathOption, TransferId};
use pathline_schema::Ns;

use crate::copy_error::CopyError;
use crate::ends::KnownEnd;
use crate::plans::EndsKey;

/// The place of copies in the order of a caller's streams. The caller owns the events.
#[derive(Debug, Clone)]
pub(crate) struct CallerOrder {
    /// Recorded: the copies start after all of them.
    pub(crate) after: Vec<usize>,
    /// An event of each GPU at which a copy ends, to be recorded after its last copy.
    pub(crate) done: Vec<(u32, usize)>,
    /// Names of the streams.
    pub(crate) streams: Vec<u64>,
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
        let others = self.dst.iter().skip(1).filter_map(|end| end.end.unit.gpu()).collect();
        let src = self.src.end.unit;
        EndsKey { src, dst: self.dst.first().map_or(src, |end| end.end.unit), others }
    }

    /// The GPU at its end, or at its start if it goes to the host.
    pub(crate) fn at(&self) -> Option<u32> {
        let to = self.dst.first().and_then(|known| known.end.unit.gpu());
        to.or(self.src.end.unit.gpu())
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
    pub(crate) order: Option<CallerOrder>,
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

/// An order in progress, for which the caller waits.
#[derive(Debug)]
pub(crate) struct ActiveOrder {
    pub(crate) reply: Sender<WorkerReply>,
    /// Starts of the memory that the driver knows for this order.
    pub(crate) blocks: Vec<u64>,
    pub(crate) waiting: VecDeque<OrderedCopy>,
    pub(crate) running: Vec<(TransferId, OrderedCopy)>,
    pub(crate) plain: Vec<PlainRun>,
    /// Time from the caller's order until the worker began with it.
    pub(crate) handed_over: Ns,
    /// Time when it began.
    pub(crate) started: Ns,
    /// The only copy, if its time can be compared with its plan: nothing else ran, and nothing failed.
    pub(crate) judged: Option<(EndsKey, u64)>,
    pub(crate) failure: Option<CopyError>,
}

impl ActiveOrder {
    pub(crate) fn new(order: CopyOrder, started: Ns) -> Self {
        let judged = match &order.copies[..] {
            [only] => Some((only.key(), only.bytes)),
            _ => None,
        };
        Self {
            reply: order.reply,
            blocks: Vec::new(),
            waiting: order.copies.into(),
            running: Vec::new(),
            plain: Vec::new(),
            handed_over: started - order.sent,
            started,
            judged,
            failure: None,
        }
    }

    /// Whether every byte has arrived, or will not.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.plain.is_empty()
    }
}

/// What the worker is asked to do.
pub(crate) enum WorkerCommand {
    /// Copies.
    Copy(CopyOrder),
    /// Probe ends, unless copies run.
    Probe(EndsKey, Sender<()>),
    /// Reply with [`WorkerReply::Awake`].
    Answer(Sender<WorkerReply>),
    /// Finish what runs, then end.
    Close,
}

/// What it answers.
pub(crate) enum WorkerReply {
    /// To [`WorkerCommand::Answer`].
    Awake,
    /// The caller makes plain copies.
    Refused,
    /// The copies are enqueued.
    Enqueued(EnqueuedOrder),
    /// The copies have ended.
    Done(Result<(), CopyError>),
}

/// What became of copies that were to be enqueued.
#[derive(Debug, Clone, Default)]
pub(crate) struct EnqueuedOrder {
    /// Numbers of the events that were recorded: the caller's streams have to wait for them.
    pub(crate) recorded: Vec<usize>,
    /// Numbers of copies that the caller makes plainly, after those events.
    pub(crate) plain: Vec<usize>,
}
