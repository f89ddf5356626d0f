//! One connection to an object store: a request at a time, without waiting. Blocks go straight between
//! the socket and the memory of a slot.

use std::io;
use std::time::Duration;

use rusty_s3::Method;

use super::super::wait_limit::WaitLimit;
use super::client::{BucketClient, MemorySpan, ObjectRequest, RequestFailure};
use super::reply::{ReplyHead, join_chunks};
use super::wire::ObjectWire;

/// Time that a server has to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that are looked at for the head of a reply at a time: a small block fits in as well.
const WINDOW: usize = 8 << 10;
/// Replies like "Continue" before the one that counts.
const MAX_INTERIM: u32 = 8;
/// Most bytes of a document: a listing of 1000 keys of 1 KiB has about 1.5 MB.
const MAX_DOCUMENT: usize = 8 << 20;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Nothing: its request has ended.
    #[default]
    Ended,
    /// To receive.
    Receives,
    /// To send, or to receive an early refusal.
    Sends,
}

/// A connection and the request that it carries.
#[derive(Debug, Default)]
pub(super) struct ObjectConnection {
    wire: Option<ObjectWire>,
    /// Whether it has carried a request before: the server may have closed it since.
    used: bool,
    /// Head and small body on the wire.
    out: Vec<u8>,
    body: MemorySpan,
    sent: usize,
    sink: MemorySpan,
    /// Bytes of the body that are in the sink.
    landed: usize,
    /// Bytes of the reply that are not in the sink.
    inbox: Vec<u8>,
    head: Option<ReplyHead>,
    without_body: bool,
    /// Interim replies so far.
    interim: u32,
    /// Whether it may be sent once more if the connection turns out to be closed.
    again: bool,
}

/// How a step of a reply went.
enum Step {
    /// Nothing more has arrived.
    Waits,
    /// Bytes have arrived.
    Goes,
    /// It is complete.
    Complete,
}

fn unreceived(error: io::Error) -> RequestFailure {
    RequestFailure::Socket("recv", error)
}

impl ObjectConnection {
    pub(super) fn descriptor(&self) -> i32 {
        self.wire.as_ref().map_or(-1, ObjectWire::descriptor)
    }

    /// Connects, unless it is connected. Whether it had to.
    pub(super) fn connect(
        &mut self,
        client: &BucketClient,
        limit: &WaitLimit<'_>,
    ) -> Result<bool, RequestFailure> {
        if self.wire.is_some() {
            return Ok(false);
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in &client.addresses {
            let most = limit.left().map_err(RequestFailure::Stopped)?.min(CONNECT_TIMEOUT);
            match ObjectWire::connect(address, client.tls.as_ref(), most) {
                Ok(wire) => {
                    (self.wire, self.used) = (Some(wire), false);
                    return Ok(true);
                }
                Err(error) => last = error,
            }
        }
        Err(RequestFailure::Socket("connect", last))
    }

    /// Readies a request, and connects if that is necessary.
    pub(super) fn begin(
        &mut self,
        client: &BucketClient,
        request: &ObjectRequest,
        limit: &WaitLimit<'_>,
    ) -> Result<(), RequestFailure> {
        client.head(request, &mut self.out)?;
        (self.body, self.sink) = (request.body, request.sink);
        self.without_body = request.method == Method::Head;
        // A second POST would begin or complete an upload twice.
        self.again = request.method != Method::Post;
        self.rewind();
        self.connect(client, limit).map(drop)
    }

    fn rewind(&mut self) {
        (self.sent, self.landed, self.interim, self.head) = (0, 0, 0, None);
        self.inbox.clear();
    }

    /// Closes it; the request on it is lost.
    pub(super) fn close(&mut self) {
        self.wire = None;
    }

    /// Goes on as far as that is possible without waiting.
    pub(super) fn go_on(
        &mut self,
        client: &BucketClient,
        limit: &WaitLimit<'_>,
    ) -> Result<ConnectionState, RequestFailure> {
        loop {
            let stale = match self.exchange() {
                Ok(state) => return Ok(state),
                // Nothing of the reply has come on a connection that the server may have closed.
                Err(failure) if self.used && self.again && self.is_unanswered() => failure,
                Err(failure) => {
                    self.close();
                    return Err(failure);
                }
            };
            if !matches!(stale, RequestFailure::Socket(..)) {
                self.close();
                return Err(stale);
            }
            self.close();
            self.again = false;
            self.rewind();
            self.connect(client, limit)?;
        }
    }

    fn is_unanswered(&self) -> bool {
        self.head.is_none() && self.inbox.is_empty()
    }

    fn exchange(&mut self) -> Result<ConnectionState, RequestFailure> {
        let whole = self.out.len() + self.body.bytes;
        let mut refused = None;
        while self.sent < whole {
            match self.send() {
                Ok(0) => break,
                Ok(sent) => self.sent += sent,
                Err(error) => {
                    // The reason may have arrived before the connection was closed.
                    refused = Some(error);
                    break;
                }
            }
        }
        loop {
            match self.receive() {
                Ok(Step::Goes) => {}
                Ok(Step::Complete) => {
                    let closes = self.head.as_ref().is_none_or(|head| head.closes);
                    if closes || self.sent < whole {
                        self.close();
                    }
                    self.used = true;
                    return Ok(ConnectionState::Ended);
                }
                Ok(Step::Waits) => {
                    if let Some(error) = refused {
                        return Err(RequestFailure::Socket("send", error));
                    }
                    let more = self.sent < whole;
                    let sends = self.wire()?.waits_to_send(more);
                    return Ok(if sends.map_err(|error| RequestFailure::Socket("send", error))? {
                        ConnectionState::Sends
                    } else {
                        ConnectionState::Receives
                    });
                }
                Err(failure) => {
                    return Err(match refused {
                        Some(error) => RequestFailure::Socket("send", error),
                        None => failure,
                    });
                }
            }
        }
    }

    /// Sends what the socket takes; 0 if it takes nothing now.
    fn send(&mut self) -> io::Result<usize> {
        let lost = || io::Error::from(io::ErrorKind::NotConnected);
        let wire = self.wire.as_mut().ok_or_else(lost)?;
        if let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            return wire.send(rest, self.body.bytes > 0);
        }
        let from = self.sent - self.out.len();
        let at = (self.body.address + from as u64) as *const u8;
        // SAFETY: the bytes are those of a slot, which the round holds while its request is in flight and
        // nothing writes meanwhile; `from` is less than their number.
        let rest = unsafe { std::slice::from_raw_parts(at, self.body.bytes - from) };
        wire.send(rest, false)
    }

    fn wire(&mut self) -> Result<&mut ObjectWire, RequestFailure> {
        let lost = || RequestFailure::Socket("recv", io::ErrorKind::NotConnected.into());
        self.wire.as_mut().ok_or_else(lost)
    }

    fn receive(&mut self) -> Result<Step, RequestFailure> {
        if self.is_to_sink() {
            return self.receive_block();
        }
        let mut window = [0u8; WINDOW];
        let got = match self.wire()?.receive(&mut window).map_err(unreceived)? {
            None => return Ok(Step::Waits),
            Some(0) => return self.ended_early(),
            Some(got) => got,
        };
        self.inbox.extend_from_slice(window.get(..got).unwrap_or_default());
        if self.inbox.len() > MAX_DOCUMENT {
            return Err(RequestFailure::Malformed("its answer is too long".into()));
        }
        if self.head.is_none() {
            self.take_head()?;
        }
        if self.is_to_sink() {
            return Ok(if self.landed == self.sink.bytes { Step::Complete } else { Step::Goes });
        }
        self.document_state()
    }

    /// Whether the rest of the reply goes to the sink.
    fn is_to_sink(&self) -> bool {
        self.sink.bytes > 0 && self.head.as_ref().is_some_and(ReplyHead::is_success)
    }

    fn receive_block(&mut self) -> Result<Step, RequestFailure> {
        let rest = self.sink.bytes - self.landed;
        let at = (self.sink.address + self.landed as u64) as *mut u8;
        // SAFETY: the bytes are those of a slot, which the round holds while its request is in flight; only
        // this thread uses them.
        let sink = unsafe { std::slice::from_raw_parts_mut(at, rest) };
        match self.wire()?.receive(sink).map_err(unreceived)? {
            None => Ok(Step::Waits),
            Some(0) => Err(RequestFailure::Malformed(format!(
                "the connection ended after {} of {} bytes",
                self.landed, self.sink.bytes
            ))),
            Some(got) => {
                self.landed += got;
                Ok(if self.landed == self.sink.bytes { Step::Complete } else { Step::Goes })
            }
        }
    }

    /// Parses the head if it is complete, and moves what follows it to the sink.
    fn take_head(&mut self) -> Result<(), RequestFailure> {
        let head = loop {
            let parsed = ReplyHead::parse(&self.inbox).map_err(RequestFailure::Malformed)?;
            let Some((head, len)) = parsed else { return Ok(()) };
            self.inbox.drain(..len);
            if !(100..200).contains(&head.status) {
                break head;
            }
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(RequestFailure::Malformed(
                    "it answers with 1xx again and again".into(),
                ));
            }
        };
        let length = head.length;
        self.head = Some(head);
        if !self.is_to_sink() {
            return Ok(());
        }
        if length != Some(self.sink.bytes as u64) {
            let stated = length.map_or("an unknown number of".into(), |n| n.to_string());
            let reason = format!("it answers with {stated} bytes instead of {}", self.sink.bytes);
            return Err(RequestFailure::Malformed(reason));
        }
        let came = self.inbox.len().min(self.sink.bytes);
        // SAFETY: as in `receive_block`; the sink has at least that many bytes, and the inbox as well.
        unsafe {
            std::ptr::copy_nonoverlapping(self.inbox.as_ptr(), self.sink.address as *mut u8, came);
        }
        self.landed = came;
        self.inbox.clear();
        Ok(())
    }

    /// Whether a reply without a sink is complete.
    fn document_state(&mut self) -> Result<Step, RequestFailure> {
        let Some(head) = &self.head else { return Ok(Step::Goes) };
        if self.without_body || matches!(head.status, 204 | 304) {
            return Ok(Step::Complete);
        }
        if head.chunked {
            // The last chunk and its trailers end so; chunks are joined once.
            if !self.inbox.ends_with(b"\r\n\r\n") {
                return Ok(Step::Goes);
            }
            let joined = join_chunks(&self.inbox).map_err(RequestFailure::Malformed)?;
            let Some(whole) = joined else { return Ok(Step::Goes) };
            self.inbox = whole;
            return Ok(Step::Complete);
        }
        let complete = head.length.is_some_and(|length| self.inbox.len() as u64 >= length);
        Ok(if complete { Step::Complete } else { Step::Goes })
    }

    /// The server has closed the connection.
    fn ended_early(&mut self) -> Result<Step, RequestFailure> {
        match &self.head {
            Some(head) if head.length.is_none() && !head.chunked => Ok(Step::Complete),
            Some(_) => {
                Err(RequestFailure::Malformed("the connection ended within its answer".into()))
            }
            None => {
                let error = io::Error::from(io::ErrorKind::ConnectionReset);
                Err(RequestFailure::Socket("recv", error))
            }
        }
    }

    /// The document of a reply that has ended, or why the request failed.
    pub(super) fn result(&mut self) -> Result<Vec<u8>, RequestFailure> {
        let document = std::mem::take(&mut self.inbox);
        match &self.head {
            Some(head) if head.is_success() => Ok(document),
            Some(head) => Err(RequestFailure::Status(head.clone(), document)),
            None => Err(RequestFailure::Malformed("it has not answered".into())),
        }
    }

    /// The head of the last reply.
    pub(super) fn reply(&self) -> Option<&ReplyHead> {
        self.head.as_ref()
    }
}
