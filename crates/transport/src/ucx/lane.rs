//! What one process does in one part of a case.

use std::rc::Rc;

use pathline_hal::{CallError, CallResult, FlowPart, LocalMemory};
use pathline_schema::WireOp;

use super::api::{RequestParams, UcxHandle};
use super::engine_label;
use super::offer::UcxOffer;
use super::worker::{RemoteKey, UcxRequest, UcxWorker};

/// Bytes of an answer, and of what says that all is done.
const SMALL: usize = 1;
static PLAIN: RequestParams = RequestParams::plain();
static OF_MANY: RequestParams = RequestParams::of_many();

/// What a message is for.
#[derive(Debug, Clone, Copy)]
enum UcxMessageKind {
    Data,
    Answer,
    End,
}

/// What a process does in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UcxRole {
    /// Sends, and waits for the reply.
    Ping,
    /// Waits, and replies.
    Pong,
    /// Sends a window, and waits for the answer.
    Send,
    /// Receives a window, and answers.
    Receive,
    /// Writes a window, and waits until it is there.
    Put,
    /// Reads a window.
    Get,
    /// Has its memory written or read. It works on what UCX needs of it until the other says that
    /// all is done.
    Exposed,
}

/// A part of this process that is not yet connected.
#[derive(Debug)]
pub(super) struct DraftLane {
    pub(super) part: usize,
    pub(super) role: UcxRole,
    pub(super) window: u32,
    /// Its position in the group, and the other's.
    pub(super) here: usize,
    pub(super) other: usize,
    /// The other's rank.
    pub(super) rank: usize,
    pub(super) send: LocalMemory,
    pub(super) recv: LocalMemory,
}

/// The same, connected.
#[derive(Debug)]
pub(super) struct UcxLane {
    pub(super) part: usize,
    pub(super) role: UcxRole,
    pub(super) window: u32,
    pub(super) send: LocalMemory,
    pub(super) recv: LocalMemory,
    pub(super) endpoint: UcxHandle,
    /// Tags of data, answer and end: of what goes out, and of what comes in.
    to: [u64; 3],
    from: [u64; 3],
    remote: Option<(u64, RemoteKey)>,
    /// Answers: what is sent, and where another's goes.
    small: Box<[u8; 16]>,
    pending: Vec<UcxRequest>,
    /// What brings out everything that was sent, and whether the other was told that it is out.
    flush: Option<UcxRequest>,
    said: bool,
    /// Whether the last step of a repetition is under way.
    last: bool,
    /// Whether the repetition is over, and when that was, if there was a clock.
    pub(super) is_over: bool,
    pub(super) over: u64,
    /// Whether the next operation is to be asked what was chosen for it.
    asks: bool,
    /// What UCX said of the first operation.
    pub(super) told: Option<String>,
}

impl UcxRole {
    /// What the process at a position does, and which end of it others reach.
    fn of(op: WireOp, position: usize) -> Option<(Self, bool)> {
        Some(match (op, position) {
            (WireOp::Ping, 0) => (Self::Ping, false),
            (WireOp::Ping, _) => (Self::Pong, false),
            (WireOp::Send { .. }, 0) => (Self::Send, false),
            (WireOp::Send { .. }, _) => (Self::Receive, false),
            (WireOp::Put { .. }, 0) => (Self::Put, false),
            (WireOp::Get { .. }, 1) => (Self::Get, false),
            (WireOp::Put { .. } | WireOp::Get { .. }, _) => (Self::Exposed, true),
            _ => return None,
        })
    }
}

impl UcxRole {
    /// What endpoints call it where they print of themselves; none of those that carry no payload
    /// away.
    pub(super) fn operation(self) -> Option<&'static str> {
        match self {
            Self::Put => Some("put[0]"),
            Self::Get => Some("get[0]"),
            Self::Ping | Self::Pong | Self::Send => Some("tag_send"),
            Self::Receive | Self::Exposed => None,
        }
    }
}

/// What this process does in a part, and the span that others reach, if they do.
pub(super) fn drafts(
    nth: usize,
    part: &FlowPart,
) -> CallResult<Vec<(DraftLane, Option<LocalMemory>)>> {
    let no = |why: &str| CallError::unsupported("bind", format!("ucx {}", part.wire.op), why);
    let mut drafts = Vec::new();
    for (at, &here) in part.mine.iter().enumerate() {
        let (role, exposed) = UcxRole::of(part.wire.op, here).ok_or_else(|| {
            no("libucp has no such operation").or_try("mpi and ccl have collectives, shm consumes")
        })?;
        let other = 1 - here.min(1);
        let rank = part.group.get(other).ok_or_else(|| no("it takes two"))?.0.0 as usize;
        let span = |of: &[LocalMemory]| of.get(at).copied().unwrap_or_default();
        let (send, recv) = (span(&part.send), span(&part.recv));
        let reached = exposed.then_some(if here == 0 { send } else { recv });
        let window = part.wire.op.window();
        drafts
            .push((DraftLane { part: nth, role, window, here, other, rank, send, recv }, reached));
    }
    Ok(drafts)
}

/// The tags of what goes to a position of a part: they are the receiver's, who numbers its own
/// exchanges, so that what was left of an earlier one is never taken for this one's.
fn tags(serial: u32, part: usize, position: usize) -> [u64; 3] {
    let tag = |kind: UcxMessageKind| {
        u64::from(serial) << 32
            | (part as u64 & 0xff_ffff) << 8
            | (position as u64 & 15) << 4
            | kind as u64
    };
    [tag(UcxMessageKind::Data), tag(UcxMessageKind::Answer), tag(UcxMessageKind::End)]
}

impl UcxLane {
    /// Connects to the other end, by what it gave.
    pub(super) fn new(
        worker: &Rc<UcxWorker>,
        serial: u32,
        draft: DraftLane,
        offer: &UcxOffer,
    ) -> CallResult<Self> {
        let DraftLane { part, role, window, here, other, rank, send, recv } = draft;
        let endpoint = worker.endpoint(&offer.address)?;
        let exposed = offer.exposed.iter().find(|e| (e.part, e.position) == (part, other));
        let remote = match (role, exposed) {
            (UcxRole::Put | UcxRole::Get, Some(exposed)) => {
                Some((exposed.address, worker.unpack(endpoint, &exposed.key)?))
            }
            (UcxRole::Put | UcxRole::Get, None) => {
                let thing = format!("what rank {rank} gave");
                return Err(CallError::unsupported("join", thing, "it exposes no memory"));
            }
            _ => None,
        };
        Ok(Self {
            part,
            role,
            window,
            send,
            recv,
            endpoint,
            to: tags(offer.serial, part, other),
            from: tags(serial, part, here),
            remote,
            small: Box::new([0; 16]),
            pending: Vec::with_capacity(window as usize + 2),
            flush: None,
            said: false,
            last: false,
            is_over: false,
            over: 0,
            asks: false,
            told: None,
        })
    }

    /// Has the next operation asked what was chosen for it.
    pub(super) fn ask(&mut self) {
        self.asks = true;
    }

    /// Begins a repetition.
    #[inline]
    pub(super) fn start(&mut self, worker: &UcxWorker) -> CallResult<()> {
        (self.last, self.is_over) = (true, false);
        match self.role {
            UcxRole::Ping => {
                // The reply comes last, so it is looked for first.
                self.data(worker, UcxRole::Send)?;
                self.data(worker, UcxRole::Receive)
            }
            UcxRole::Pong => {
                self.last = false;
                self.data(worker, UcxRole::Receive)
            }
            UcxRole::Send => {
                let answer = worker.receive(
                    self.small(8),
                    self.from[UcxMessageKind::Answer as usize],
                    &PLAIN,
                )?;
                self.pending.extend(answer);
                self.data(worker, UcxRole::Send)
            }
            UcxRole::Receive => {
                self.last = false;
                self.data(worker, UcxRole::Receive)
            }
            UcxRole::Put => {
                self.data(worker, UcxRole::Put)?;
                self.pending.extend(worker.flush(self.endpoint)?);
                Ok(())
            }
            UcxRole::Get => self.data(worker, UcxRole::Get),
            UcxRole::Exposed => Ok(()),
        }
    }

    /// Whether the repetition is over; goes on with it if something is done.
    #[inline]
    pub(super) fn go_on(&mut self, worker: &UcxWorker) -> CallResult<bool> {
        if !worker.settle(&mut self.pending)? {
            return Ok(false);
        }
        if !self.last {
            self.last = true;
            match self.role {
                UcxRole::Pong => self.data(worker, UcxRole::Send)?,
                _ => self.word(worker, UcxMessageKind::Answer)?,
            }
            if !worker.settle(&mut self.pending)? {
                return Ok(false);
            }
        }
        self.is_over = true;
        Ok(true)
    }

    /// Begins to end what was repeated. Both sides bring out what they sent, then say so, and wait
    /// for the other to say it: until then one may need the other's work, be it to connect a lane
    /// that has carried nothing yet.
    pub(super) fn finish(&mut self, worker: &UcxWorker) -> CallResult<()> {
        self.flush = worker.flush(self.endpoint)?;
        self.said = false;
        let end = worker.receive(self.small(8), self.from[UcxMessageKind::End as usize], &PLAIN)?;
        self.pending.extend(end);
        Ok(())
    }

    /// Whether that has ended.
    pub(super) fn has_settled(&mut self, worker: &UcxWorker) -> CallResult<bool> {
        if let Some(flush) = self.flush.take()
            && !worker.is_done(&flush)?
        {
            self.flush = Some(flush);
            return Ok(false);
        }
        if !self.said {
            self.said = true;
            self.word(worker, UcxMessageKind::End)?;
        }
        worker.settle(&mut self.pending)
    }

    /// Sends a small message.
    #[inline]
    fn word(&mut self, worker: &UcxWorker, kind: UcxMessageKind) -> CallResult<()> {
        let sent = worker.send(self.endpoint, self.small(0), self.to[kind as usize], &PLAIN)?;
        self.pending.extend(sent);
        Ok(())
    }

    fn small(&self, offset: usize) -> LocalMemory {
        let address = self.small.as_ptr() as u64 + offset as u64;
        LocalMemory { address, bytes: SMALL as u64 }
    }

    /// Posts a window of what carries the payload.
    #[inline]
    fn data(&mut self, worker: &UcxWorker, role: UcxRole) -> CallResult<()> {
        for nth in 0..self.window {
            let asked = self.asks && nth == 0 && role != UcxRole::Receive;
            let how = match (asked, self.window > 1) {
                (true, many) => &RequestParams::to_be_asked(many),
                (false, true) => &OF_MANY,
                (false, false) => &PLAIN,
            };
            let request = match (role, &self.remote) {
                (UcxRole::Receive, _) => {
                    worker.receive(self.recv, self.from[UcxMessageKind::Data as usize], how)
                }
                (UcxRole::Put, Some((at, key))) => {
                    worker.put(self.endpoint, self.send, (*at, key), how)
                }
                (UcxRole::Get, Some((at, key))) => {
                    worker.get(self.endpoint, self.recv, (*at, key), how)
                }
                _ => worker.send(
                    self.endpoint,
                    self.send,
                    self.to[UcxMessageKind::Data as usize],
                    how,
                ),
            }?;
            if asked {
                self.asks = false;
                let text = request.as_ref().and_then(|request| worker.ask(request));
                self.told = text.map(|text| engine_label::protocol(&text));
            }
            self.pending.extend(request);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_messages_of_a_rank_have_the_same_tag() {
        let mut all = Vec::new();
        for serial in [1, 2, u32::MAX] {
            for part in [0, 1, 300] {
                for position in [0, 1] {
                    all.extend(tags(serial, part, position));
                }
            }
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        // 3 exchanges x 3 parts x 2 positions x 3 kinds.
        assert_eq!((all.len(), count), (54, 54));
    }
}
