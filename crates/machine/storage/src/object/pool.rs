//! Requests in flight: one connection a slot, all of one thread, waited for together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pathline_hal::CallResult;
use pathline_host::clock::ClockOrigin;

use super::super::wait_limit::WaitLimit;
use super::client::{BucketClient, ObjectRequest, RequestFailure};
use super::connection::{ConnectionState, ObjectConnection};
use super::reply::ReplyHead;

/// Time without a byte of any request after which the server counts as lost, and the longest time of a request
/// that moves no block.
const SILENCE: Duration = Duration::from_secs(30);
/// A request takes at most so much longer as its block takes at this rate in bytes a second: one of 64 MiB
/// nine minutes.
const LEAST_RATE: u64 = 128 << 10;
/// How often a wait looks at its limit.
const TICK: Duration = Duration::from_millis(100);

/// The end of a request: its slot, and the document of the reply or the reason.
pub(super) type EndedRequest = (u32, Result<Vec<u8>, RequestFailure>);

/// Connections and the requests on them.
#[derive(Debug)]
pub(super) struct RequestPool<'a> {
    pub(super) client: Arc<BucketClient>,
    slots: Vec<RequestSlot>,
    /// Ends all requests.
    pub(super) limit: WaitLimit<'a>,
    origin: ClockOrigin,
    polls: Vec<libc::pollfd>,
    /// The slot of each descriptor that is polled.
    polled: Vec<u32>,
}

/// A connection, and the request on it.
#[derive(Debug, Default)]
struct RequestSlot {
    connection: ObjectConnection,
    /// What it waits for.
    state: ConnectionState,
    /// When its request is given up, in ns.
    until: u64,
}

impl RequestSlot {
    fn end(&mut self) {
        self.connection.close();
        self.state = ConnectionState::Ended;
    }
}

fn timed_out() -> RequestFailure {
    RequestFailure::Socket("poll", io::Error::from(io::ErrorKind::TimedOut))
}

impl RequestPool<'_> {
    /// One with `slots` connections, which are opened when they are used.
    pub(super) fn new(client: Arc<BucketClient>, slots: u32) -> Self {
        let count = slots as usize;
        Self {
            client,
            slots: (0..slots).map(|_| RequestSlot::default()).collect(),
            limit: WaitLimit::total(Duration::MAX),
            origin: ClockOrigin::now(),
            polls: Vec::with_capacity(count),
            polled: Vec::with_capacity(count),
        }
    }

    /// Opens all connections.
    pub(super) fn connect(&mut self) -> Result<(), RequestFailure> {
        let (client, limit) = (&self.client, self.limit);
        let mut slots = self.slots.iter_mut();
        slots.try_for_each(|slot| slot.connection.connect(client, &limit).map(drop))
    }

    /// Starts a request on a slot that is free. It may end at once.
    pub(super) fn begin(
        &mut self,
        slot: u32,
        request: &ObjectRequest,
        ended: &mut Vec<EndedRequest>,
    ) {
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let bytes = (request.body.bytes + request.sink.bytes) as u64;
        let most = SILENCE + Duration::from_millis(bytes.saturating_mul(1000) / LEAST_RATE);
        place.until = self.origin.ns() + most.as_nanos() as u64;
        match place.connection.begin(&self.client, request, &self.limit) {
            Ok(()) => self.go_on(slot, ended),
            Err(failure) => ended.push((slot, Err(failure))),
        }
    }

    fn go_on(&mut self, slot: u32, ended: &mut Vec<EndedRequest>) {
        let Some(RequestSlot { connection, state, .. }) = self.slots.get_mut(slot as usize) else {
            return;
        };
        *state = ConnectionState::Ended;
        match connection.go_on(&self.client, &self.limit) {
            Ok(ConnectionState::Ended) => ended.push((slot, connection.result())),
            Ok(waits) => *state = waits,
            Err(failure) => ended.push((slot, Err(failure))),
        }
    }

    /// Gives up requests whose time is over.
    fn expire(&mut self, now: u64, ended: &mut Vec<EndedRequest>) {
        for (place, slot) in self.slots.iter_mut().zip(0..) {
            if place.state != ConnectionState::Ended && now >= place.until {
                place.end();
                ended.push((slot, Err(timed_out())));
            }
        }
    }

    /// Goes on with all requests until `ended` has `wait` entries.
    pub(super) fn progress(
        &mut self,
        wait: usize,
        ended: &mut Vec<EndedRequest>,
    ) -> Result<(), RequestFailure> {
        let mut heard = self.origin.ns();
        loop {
            let now = self.origin.ns();
            self.expire(now, ended);
            self.polls.clear();
            self.polled.clear();
            for (slot, RequestSlot { connection, state, .. }) in (0..).zip(&self.slots) {
                let events = match state {
                    ConnectionState::Ended => continue,
                    ConnectionState::Receives => libc::POLLIN,
                    ConnectionState::Sends => libc::POLLIN | libc::POLLOUT,
                };
                self.polls.push(libc::pollfd { fd: connection.descriptor(), events, revents: 0 });
                self.polled.push(slot);
            }
            if self.polls.is_empty() {
                return Ok(());
            }
            let mut timeout = Duration::ZERO;
            if ended.len() < wait {
                timeout = self.limit.left().map_err(RequestFailure::Stopped)?.min(TICK);
                if Duration::from_nanos(now - heard) >= SILENCE {
                    return Err(timed_out());
                }
            }
            let (count, ms) = (self.polls.len() as libc::nfds_t, timeout.as_millis() as i32);
            // SAFETY: the pointer is to that many entries, which this thread alone uses.
            let ready = unsafe { libc::poll(self.polls.as_mut_ptr(), count, ms) };
            if ready < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(RequestFailure::Socket("poll", error));
            }
            if ready > 0 {
                heard = now;
            } else if timeout.is_zero() {
                return Ok(());
            }
            for nth in 0..self.polls.len() {
                let ready = self.polls.get(nth).is_some_and(|poll| poll.revents != 0);
                if let (true, Some(&slot)) = (ready, self.polled.get(nth)) {
                    self.go_on(slot, ended);
                }
            }
            if ended.len() >= wait {
                return Ok(());
            }
        }
    }

    /// Gives up what is in flight: nothing uses the memory of slots afterwards.
    pub(super) fn abandon(&mut self) {
        let flying = |place: &&mut RequestSlot| place.state != ConnectionState::Ended;
        self.slots.iter_mut().filter(flying).for_each(RequestSlot::end);
    }

    /// Does one request on the first slot and returns its document.
    pub(super) fn ask(&mut self, request: &ObjectRequest) -> Result<Vec<u8>, RequestFailure> {
        let mut ended = Vec::new();
        self.begin(0, request, &mut ended);
        if ended.is_empty()
            && let Err(failure) = self.progress(1, &mut ended)
        {
            self.abandon();
            return Err(failure);
        }
        let silent = || Err(RequestFailure::Malformed("it has not answered".into()));
        ended.pop().map_or_else(silent, |(_, result)| result)
    }

    /// The same of a request whose answer is its head.
    pub(super) fn ask_head(
        &mut self,
        request: &ObjectRequest,
    ) -> Result<ReplyHead, RequestFailure> {
        self.ask(request)?;
        let head = self.slots.first().and_then(|slot| slot.connection.reply()).cloned();
        head.ok_or_else(|| RequestFailure::Malformed("it has not answered".into()))
    }

    /// The same with an error that names the request.
    pub(super) fn call(&mut self, request: &ObjectRequest) -> CallResult<Vec<u8>> {
        let done = self.ask(request);
        self.client.checked(request, done)
    }

    /// Does many requests, as many at once as there are slots. The first failure ends it.
    pub(super) fn call_all(
        &mut self,
        mut next: impl FnMut(u32) -> Option<ObjectRequest>,
    ) -> CallResult<()> {
        let mut requests: Vec<Option<ObjectRequest>> = vec![None; self.slots.len()];
        let mut free: Vec<u32> = (0..self.slots.len() as u32).collect();
        let mut ended = Vec::new();
        let mut flying = 0usize;
        loop {
            while let Some(slot) = free.pop() {
                let Some(request) = next(slot) else { break };
                flying += 1;
                self.begin(slot, &request, &mut ended);
                if let Some(place) = requests.get_mut(slot as usize) {
                    *place = Some(request);
                }
            }
            if flying == 0 {
                return Ok(());
            }
            if ended.is_empty() {
                let first = requests.iter().flatten().next().cloned();
                if let (Err(failure), Some(request)) = (self.progress(1, &mut ended), first) {
                    self.abandon();
                    return Err(self.client.error(&request, &failure));
                }
            }
            for (slot, result) in std::mem::take(&mut ended) {
                flying -= 1;
                free.push(slot);
                let request = requests.get_mut(slot as usize).and_then(Option::take);
                if let (Err(failure), Some(request)) = (result, request) {
                    self.abandon();
                    return Err(self.client.error(&request, &failure));
                }
            }
        }
    }
}
