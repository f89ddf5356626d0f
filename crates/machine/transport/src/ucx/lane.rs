//! The operations of one process in one part of a case.

use std::rc::Rc;

use pathline_hal::{CallError, CallResult, FlowPart, LocalMemory};
use pathline_schema::{AtomicOp, WireOp};

use super::api::{RequestParams, UcxHandle};
use super::engine_label;
use super::offer::UcxOffer;
use super::worker::{RemoteKey, UcxRequest, UcxWorker};

/// Bytes of a reply and of an end message.
const SMALL: usize = 1;
static PLAIN: RequestParams = RequestParams::plain();
static OF_MANY: RequestParams = RequestParams::of_many();

/// The purpose of a message.
#[derive(Debug, Clone, Copy)]
enum UcxMessageKind {
    Data,
    Answer,
    End,
}

/// The role of a process in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UcxRole {
    /// Sends, and waits for the reply.
    Ping,
    /// Waits, and replies.
    Pong,
    /// Sends a window, and waits for the reply.
    Send,
    /// Receives a window, and replies.
    Receive,
    /// Writes a window, and waits until the data has arrived.
    Put,
    /// Reads a window.
    Get,
    /// Changes one integer, and waits until it is changed.
    Atomic(AtomicOp),
    /// Target of reads or writes. It makes progress for UCX until the peer reports the end.
    Exposed,
}

/// A part of this process before it is connected.
#[derive(Debug)]
pub(super) struct DraftLane {
    pub(super) part: usize,
    pub(super) role: UcxRole,
    pub(super) window: u32,
    /// Positions of this process and of its peer in the group.
    pub(super) here: usize,
    pub(super) other: usize,
    /// The peer's rank.
    pub(super) rank: usize,
    /// Whether the buffers are device memory.
    pub(super) device: bool,
    pub(super) send: LocalMemory,
    pub(super) recv: LocalMemory,
}

/// A connected part.
#[derive(Debug)]
pub(super) struct UcxLane {
    pub(super) part: usize,
    pub(super) role: UcxRole,
    pub(super) window: u32,
    pub(super) send: LocalMemory,
    pub(super) recv: LocalMemory,
    pub(super) endpoint: UcxHandle,
    /// Tags of data, reply and end: outgoing and incoming.
    to: [u64; 3],
    from: [u64; 3],
    remote: Option<(u64, RemoteKey)>,
    /// Buffers of replies: sent and received.
    small: Box<[u8; 16]>,
    pending: Vec<UcxRequest>,
    /// The flush of everything sent, and whether the end message went out after it.
    flush: Option<UcxRequest>,
    end_sent: bool,
    /// Whether the last step of a repetition is in flight.
    last: bool,
    /// Whether the repetition is over, and the time of its end, if there was a clock.
    pub(super) is_over: bool,
    pub(super) over: u64,
    /// Whether to query the protocol of the next operation.
    asks: bool,
    /// UCX's protocol of the first operation.
    pub(super) protocol: Option<String>,
}

impl UcxRole {
    /// The role at a position, and whether peers access its send or receive buffer.
    fn of(op: WireOp, position: usize) -> Option<(Self, bool)> {
        Some(match (op, position) {
            (WireOp::Ping, 0) => (Self::Ping, false),
            (WireOp::Ping, _) => (Self::Pong, false),
            (WireOp::Send { .. }, 0) => (Self::Send, false),
            (WireOp::Send { .. }, _) => (Self::Receive, false),
            (WireOp::Put { .. }, 0) => (Self::Put, false),
            (WireOp::Get { .. }, 1) => (Self::Get, false),
            (WireOp::Atomic(AtomicOp::Accumulate | AtomicOp::GetAccumulate), _) => return None,
            (WireOp::Atomic(op), 0) => (Self::Atomic(op), false),
            (WireOp::Put { .. } | WireOp::Get { .. } | WireOp::Atomic(_), _) => {
                (Self::Exposed, true)
            }
            _ => return None,
        })
    }
}

impl UcxRole {
    /// The name that endpoints print for the operation; `None` for roles that send no payload.
    pub(super) fn operation(self) -> Option<&'static str> {
        match self {
            Self::Put => Some("put[0]"),
            Self::Get => Some("get[0]"),
            Self::Atomic(op) => Some(if op.fetches() { "amo_fetch" } else { "amo_post" }),
            Self::Ping | Self::Pong | Self::Send => Some("tag_send"),
            Self::Receive | Self::Exposed => None,
        }
    }
}

/// The roles of this process in a part, and the memory that peers access.
pub(super) fn drafts(
    nth: usize,
    part: &FlowPart,
) -> CallResult<Vec<(DraftLane, Option<LocalMemory>)>> {
    let no = |why: &str| CallError::unsupported("bind", format!("ucx {}", part.wire.op), why);
    let mut drafts = Vec::new();
    for (at, &here) in part.positions.iter().enumerate() {
        let device = part.is_device(at);
        let (role, exposed) = UcxRole::of(part.wire.op, here).ok_or_else(|| {
            no("libucp has no such operation").or_try("mpi and ccl have collectives, shm consumes")
        })?;
        if matches!(role, UcxRole::Atomic(_)) && device {
            let why = "the operand of an atomic operation is taken from host memory";
            return Err(no(why).or_try("take host memory at the source"));
        }
        let other = 1 - here.min(1);
        let rank = part.group.get(other).ok_or_else(|| no("it takes two"))?.0.0 as usize;
        let span = |of: &[LocalMemory]| of.get(at).copied().unwrap_or_default();
        let (send, recv) = (span(&part.send), span(&part.recv));
        let reached = exposed.then_some(if here == 0 { send } else { recv });
        let window = part.wire.op.window();
        drafts.push((
            DraftLane { part: nth, role, window, here, other, rank, device, send, recv },
            reached,
        ));
    }
    Ok(drafts)
}

/// The tags of messages to a position of a part. They are the receiver's, who numbers its own
/// exchanges, so that a leftover message of an earlier exchange never matches.
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
    /// Connects to the peer by its offer.
    pub(super) fn new(
        worker: &Rc<UcxWorker>,
        serial: u32,
        draft: DraftLane,
        offer: &UcxOffer,
    ) -> CallResult<Self> {
        let DraftLane { part, role, window, here, other, rank, device: _, send, recv } = draft;
        let endpoint = worker.endpoint(&offer.address)?;
        let exposed = offer.exposed.iter().find(|e| (e.part, e.position) == (part, other));
        let remote = match (role, exposed) {
            (UcxRole::Put | UcxRole::Get | UcxRole::Atomic(_), Some(exposed)) => {
                Some((exposed.address, worker.unpack(endpoint, &exposed.key)?))
            }
            (UcxRole::Put | UcxRole::Get | UcxRole::Atomic(_), None) => {
                let thing = format!("the offer of rank {rank}");
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
            end_sent: false,
            last: false,
            is_over: false,
            over: 0,
            asks: false,
            protocol: None,
        })
    }

    /// Queries the protocol of the next operation.
    pub(super) fn ask(&mut self) {
        self.asks = true;
    }

    /// Starts a repetition.
    #[inline]
    pub(super) fn start(&mut self, worker: &UcxWorker) -> CallResult<()> {
        (self.last, self.is_over) = (true, false);
        match self.role {
            UcxRole::Ping => {
                // The reply arrives last, so its request is checked first.
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
            UcxRole::Atomic(op) => {
                let ends = (self.send, self.recv);
                if let Some((at, key)) = &self.remote {
                    self.pending.extend(worker.atomic(self.endpoint, op, ends, (*at, key))?);
                }
                if !op.fetches() {
                    self.pending.extend(worker.flush(self.endpoint)?);
                }
                Ok(())
            }
            UcxRole::Exposed => Ok(()),
        }
    }

    /// Proceeds with the repetition if something completed; returns whether it is over.
    #[inline]
    pub(super) fn go_on(&mut self, worker: &UcxWorker) -> CallResult<bool> {
        if !worker.settle(&mut self.pending)? {
            return Ok(false);
        }
        if !self.last {
            self.last = true;
            match self.role {
                UcxRole::Pong => self.data(worker, UcxRole::Send)?,
                _ => self.send_small(worker, UcxMessageKind::Answer)?,
            }
            if !worker.settle(&mut self.pending)? {
                return Ok(false);
            }
        }
        self.is_over = true;
        Ok(true)
    }

    /// Whether round trips of this lane need nothing else in a repetition: see `pings`.
    pub(super) fn is_ping(&self) -> bool {
        matches!(self.role, UcxRole::Ping | UcxRole::Pong) && self.window == 1
    }

    /// Round trips of this lane alone. A repetition through `start` and `go_on` lists its requests
    /// and looks at every lane after each poll, which costs a message of 8 B a tenth of its time.
    ///
    /// # Errors
    /// The error of an operation, or one that lasts longer than `timeout` ns.
    pub(super) fn pings(&self, worker: &UcxWorker, reps: u64, timeout: f64) -> CallResult<()> {
        let (to, from) =
            (self.to[UcxMessageKind::Data as usize], self.from[UcxMessageKind::Data as usize]);
        if self.role == UcxRole::Ping {
            for _ in 0..reps {
                let sent = worker.send(self.endpoint, self.send, to, &PLAIN)?;
                let received = worker.receive(self.recv, from, &PLAIN)?;
                worker.complete(received, timeout)?;
                worker.complete(sent, timeout)?;
            }
        } else {
            for _ in 0..reps {
                worker.complete(worker.receive(self.recv, from, &PLAIN)?, timeout)?;
                worker.complete(worker.send(self.endpoint, self.send, to, &PLAIN)?, timeout)?;
            }
        }
        Ok(())
    }

    /// Begins to end the repetitions. Both sides flush, then send an end message, and wait for the
    /// peer's: until then a peer may need this side's progress, for example to connect a lane that
    /// has carried nothing yet.
    pub(super) fn finish(&mut self, worker: &UcxWorker) -> CallResult<()> {
        self.flush = worker.flush(self.endpoint)?;
        self.end_sent = false;
        let end = worker.receive(self.small(8), self.from[UcxMessageKind::End as usize], &PLAIN)?;
        self.pending.extend(end);
        Ok(())
    }

    /// Whether both sides have ended.
    pub(super) fn has_settled(&mut self, worker: &UcxWorker) -> CallResult<bool> {
        if let Some(flush) = self.flush.take()
            && !worker.is_done(&flush)?
        {
            self.flush = Some(flush);
            return Ok(false);
        }
        if !self.end_sent {
            self.end_sent = true;
            self.send_small(worker, UcxMessageKind::End)?;
        }
        worker.settle(&mut self.pending)
    }

    /// Sends a small message.
    #[inline]
    fn send_small(&mut self, worker: &UcxWorker, kind: UcxMessageKind) -> CallResult<()> {
        let sent = worker.send(self.endpoint, self.small(0), self.to[kind as usize], &PLAIN)?;
        self.pending.extend(sent);
        Ok(())
    }

    fn small(&self, offset: usize) -> LocalMemory {
        let address = self.small.as_ptr() as u64 + offset as u64;
        LocalMemory { address, bytes: SMALL as u64 }
    }

    /// Posts a window of payload operations.
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
                self.protocol = text.map(|text| engine_label::protocol(&text));
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
