//! Requests in flight: one connection a slot, all of one thread, waited for together.

use std::io;
use std::sync::Arc;

use pathline_hal::CallResult;

use super::client::{BucketClient, ObjectRequest, RequestFailure};
use super::connection::{ConnectionState, ObjectConnection};
use super::reply::ReplyHead;

/// Time without a byte of any request after which the server counts as lost, in ms.
const SILENCE_MS: i32 = 30_000;

/// The end of a request: its slot, and the document of the reply or the reason.
pub(super) type EndedRequest = (u32, Result<Vec<u8>, RequestFailure>);

/// Connections and the requests on them.
#[derive(Debug)]
pub(super) struct RequestPool {
    pub(super) client: Arc<BucketClient>,
    slots: Vec<ObjectConnection>,
    /// What each slot waits for.
    states: Vec<ConnectionState>,
    polls: Vec<libc::pollfd>,
    /// The slot of each descriptor that is polled.
    polled: Vec<u32>,
}

impl RequestPool {
    /// One with `slots` connections, which are opened when they are used.
    pub(super) fn new(client: Arc<BucketClient>, slots: u32) -> Self {
        let count = slots as usize;
        Self {
            client,
            slots: (0..slots).map(|_| ObjectConnection::default()).collect(),
            states: vec![ConnectionState::Ended; count],
            polls: Vec::with_capacity(count),
            polled: Vec::with_capacity(count),
        }
    }

    /// Opens all connections.
    pub(super) fn connect(&mut self) -> Result<(), RequestFailure> {
        self.slots.iter_mut().try_for_each(|slot| slot.connect(&self.client).map(drop))
    }

    /// Starts a request on a slot that is free. It may end at once.
    pub(super) fn begin(
        &mut self,
        slot: u32,
        request: &ObjectRequest,
        ended: &mut Vec<EndedRequest>,
    ) {
        if let Some(connection) = self.slots.get_mut(slot as usize) {
            match connection.begin(&self.client, request) {
                Ok(()) => self.go_on(slot, ended),
                Err(failure) => ended.push((slot, Err(failure))),
            }
        }
    }

    fn go_on(&mut self, slot: u32, ended: &mut Vec<EndedRequest>) {
        let at = slot as usize;
        let (Some(connection), Some(state)) = (self.slots.get_mut(at), self.states.get_mut(at))
        else {
            return;
        };
        match connection.go_on(&self.client) {
            Ok(ConnectionState::Ended) => {
                *state = ConnectionState::Ended;
                ended.push((slot, connection.result()));
            }
            Ok(waits) => *state = waits,
            Err(failure) => {
                *state = ConnectionState::Ended;
                ended.push((slot, Err(failure)));
            }
        }
    }

    /// Goes on with all requests until `ended` has `wait` entries.
    pub(super) fn progress(
        &mut self,
        wait: usize,
        ended: &mut Vec<EndedRequest>,
    ) -> Result<(), RequestFailure> {
        loop {
            self.polls.clear();
            self.polled.clear();
            for ((slot, connection), state) in (0..).zip(&self.slots).zip(&self.states) {
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
            let timeout = if ended.len() < wait { SILENCE_MS } else { 0 };
            let count = self.polls.len() as libc::nfds_t;
            // SAFETY: the pointer is to that many entries, which this thread alone uses.
            let ready = unsafe { libc::poll(self.polls.as_mut_ptr(), count, timeout) };
            if ready < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(RequestFailure::Socket("poll", error));
            }
            if ready == 0 {
                return if timeout == 0 {
                    Ok(())
                } else {
                    let error = io::Error::from(io::ErrorKind::TimedOut);
                    Err(RequestFailure::Socket("poll", error))
                };
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
        for (connection, state) in self.slots.iter_mut().zip(&mut self.states) {
            if *state != ConnectionState::Ended {
                connection.close();
                *state = ConnectionState::Ended;
            }
        }
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
        let head = self.slots.first().and_then(ObjectConnection::reply).cloned();
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
