//! The hub of a communicator: threads of the process that made its unique id, by which the ranks of
//! all processes find it. All bytes pass through it.
//!
//! The socket is in Linux's abstract name space, so nothing remains when a process dies. A closed
//! socket also shows that its process is gone, which shared memory would not.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::collective::{Completed, StubCollective};
use super::frame::{FrameKind, Header, read_header, write_frame};
use super::{INVALID_ARGUMENT, INVALID_USAGE};

/// Bytes of `ncclUniqueId`.
pub(super) const ID_BYTES: usize = 128;

/// Opens the hub of a new communicator; returns its unique id, which is the name of the hub's
/// socket.
pub(super) fn open() -> io::Result<[u8; ID_BYTES]> {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    loop {
        let nth = OPENED.fetch_add(1, Ordering::Relaxed);
        let name = format!("pathline-stub-nccl-{}-{nth}", std::process::id());
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
            Ok(listener) => {
                std::thread::Builder::new()
                    .name("nccl-hub".into())
                    .spawn(move || admit(&listener))?;
                let mut id = [0; ID_BYTES];
                id[..name.len()].copy_from_slice(name.as_bytes());
                return Ok(id);
            }
            // A process of another PID namespace may have the same number.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the hub of an id.
pub(super) fn connect(id: &[u8; ID_BYTES]) -> io::Result<UnixStream> {
    let length = id.iter().position(|&byte| byte == 0).unwrap_or(ID_BYTES);
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(&id[..length])?)
}

/// Accepts ranks until all have joined.
fn admit(listener: &UnixListener) {
    let hub = Arc::new(Mutex::new(Hub::default()));
    while let Ok((stream, _)) = listener.accept() {
        let Ok(stream) = join(&hub, stream) else { continue };
        let (hub_of_rank, (rank, stream)) = (Arc::clone(&hub), stream);
        let serve = move || serve(&hub_of_rank, rank, &stream);
        if std::thread::Builder::new().name(format!("nccl-hub-{rank}")).spawn(serve).is_err() {
            return;
        }
        let mut hub = lock(&hub);
        if hub.is_complete() {
            hub.settle();
            return;
        }
    }
}

fn lock(hub: &Mutex<Hub>) -> std::sync::MutexGuard<'_, Hub> {
    hub.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a rank its place, or refuses it.
fn join(hub: &Mutex<Hub>, stream: UnixStream) -> io::Result<(i32, UnixStream)> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let header = read_header(&stream)?.filter(|h| h.kind == FrameKind::Join).ok_or_else(bad)?;
    let number = |field: i64| i32::try_from(field).map_err(|_| bad());
    let (size, rank) = (number(header.fields[0])?, number(header.fields[1])?);
    match lock(hub).admit(size, rank, stream.try_clone()?) {
        Ok(()) => Ok((rank, stream)),
        Err(status) => {
            write_frame(&stream, FrameKind::Done, [status.into(), 0, 0, 0, 0, 0], &[])?;
            Err(bad())
        }
    }
}

/// Serves a rank until it leaves, aborts or is lost.
fn serve(hub: &Mutex<Hub>, rank: i32, mut stream: &UnixStream) {
    loop {
        let Ok(Some(header)) = read_header(stream) else {
            return lock(hub).end(rank, FrameKind::Lost);
        };
        let mut bytes = vec![0; header.length];
        if stream.read_exact(&mut bytes).is_err() {
            return lock(hub).end(rank, FrameKind::Lost);
        }
        match header.kind {
            FrameKind::Leave => return drop(lock(hub).members.remove(&rank)),
            FrameKind::Abort => return lock(hub).end(rank, FrameKind::Aborted),
            _ => lock(hub).take(rank, header, bytes),
        }
    }
}

/// The event that a rank waits for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    /// All ranks.
    Join,
    /// The collective of that number.
    Collective(u64),
    /// A message of that rank.
    Message(i32),
    /// The receivers of its messages.
    Flush,
    /// An early end.
    End,
}

#[derive(Debug)]
struct Member {
    stream: UnixStream,
    awaits: Option<Awaited>,
    /// Number of collectives that it has called.
    collectives: u64,
}

/// A communicator of all its ranks.
#[derive(Debug, Default)]
struct Hub {
    size: i32,
    members: BTreeMap<i32, Member>,
    /// The early end of the communicator, if any; every later request gets it as reply.
    ended: Option<FrameKind>,
    /// Collectives by number, with each rank's data.
    collectives: BTreeMap<u64, BTreeMap<i32, (StubCollective, Vec<u8>)>>,
    /// Messages in flight, by sender and receiver.
    messages: BTreeMap<(i32, i32), VecDeque<Vec<u8>>>,
}

impl Hub {
    fn admit(&mut self, size: i32, rank: i32, stream: UnixStream) -> Result<(), i32> {
        if size < 1 || !(0..size).contains(&rank) {
            return Err(INVALID_ARGUMENT);
        }
        if (self.size != 0 && self.size != size) || self.members.contains_key(&rank) {
            return Err(INVALID_USAGE);
        }
        self.size = size;
        self.members.insert(rank, Member { stream, awaits: Some(Awaited::Join), collectives: 0 });
        Ok(())
    }

    fn is_complete(&self) -> bool {
        usize::try_from(self.size).is_ok_and(|size| size == self.members.len())
    }

    /// Handles a rank's request.
    fn take(&mut self, rank: i32, header: Header, bytes: Vec<u8>) {
        let peer = i32::try_from(header.fields[0]).unwrap_or(-1);
        let Some(member) = self.members.get_mut(&rank) else { return };
        match header.kind {
            FrameKind::Send => {
                self.messages.entry((rank, peer)).or_default().push_back(bytes);
            }
            FrameKind::Receive => member.awaits = Some(Awaited::Message(peer)),
            FrameKind::Flush => member.awaits = Some(Awaited::Flush),
            FrameKind::End => member.awaits = Some(Awaited::End),
            FrameKind::Collective => {
                let Some(call) = StubCollective::from_fields(header.fields) else { return };
                member.collectives += 1;
                let nth = member.collectives;
                member.awaits = Some(Awaited::Collective(nth));
                self.collectives.entry(nth).or_default().insert(rank, (call, bytes));
            }
            _ => {}
        }
        self.settle();
    }

    /// Ends the communicator: no later wait can succeed.
    fn end(&mut self, rank: i32, how: FrameKind) {
        self.members.remove(&rank);
        self.ended.get_or_insert(how);
        self.settle();
    }

    /// Answers all ranks whose wait is over.
    fn settle(&mut self) {
        if let Some(how) = self.ended {
            for (_, member) in self.waiting(|_| true) {
                member.answer(how, 0, &[]);
            }
            return;
        }
        if self.is_complete() {
            for (_, member) in self.waiting(|awaited| matches!(awaited, Awaited::Join)) {
                member.answer(FrameKind::Done, 0, &[]);
            }
        }
        self.deliver();
        let size = usize::try_from(self.size).unwrap_or(0);
        let full = |all: &BTreeMap<i32, _>| all.len() == size;
        let nth = self.collectives.iter().find(|(_, all)| full(all)).map(|(&nth, _)| nth);
        let Some(brought) = nth.and_then(|nth| self.collectives.remove(&nth)) else { return };
        let calls: Vec<(StubCollective, Vec<u8>)> = brought.into_values().collect();
        let completed = Completed::of(&calls);
        for (rank, member) in
            self.waiting(|awaited| matches!(awaited, Awaited::Collective(n) if Some(*n) == nth))
        {
            match &completed {
                Some(completed) => member.answer(FrameKind::Done, 0, &completed.output(rank)),
                None => member.answer(FrameKind::Done, INVALID_USAGE, &[]),
            }
        }
    }

    /// Delivers messages that a rank waits for, and notifies their senders.
    fn deliver(&mut self) {
        let Self { members, messages, .. } = self;
        for (&rank, member) in members.iter_mut() {
            if let Some(Awaited::Message(from)) = member.awaits
                && let Some(message) = messages.get_mut(&(from, rank)).and_then(VecDeque::pop_front)
            {
                member.answer(FrameKind::Done, 0, &message);
            }
        }
        messages.retain(|_, queue| !queue.is_empty());
        for (&rank, member) in members.iter_mut() {
            let open = messages.keys().any(|(from, _)| *from == rank);
            if !open && matches!(member.awaits, Some(Awaited::Flush)) {
                member.answer(FrameKind::Done, 0, &[]);
            }
        }
    }

    fn waiting(
        &mut self,
        which: impl Fn(&Awaited) -> bool,
    ) -> impl Iterator<Item = (i32, &mut Member)> {
        let waits = move |member: &Member| member.awaits.as_ref().is_some_and(&which);
        self.members.iter_mut().filter(move |(_, m)| waits(m)).map(|(&rank, m)| (rank, m))
    }
}

impl Member {
    /// A rank reads while it waits, so this does not block for long. The socket of a lost rank
    /// reports it.
    fn answer(&mut self, kind: FrameKind, status: i32, bytes: &[u8]) {
        self.awaits = None;
        let _ = write_frame(&self.stream, kind, [status.into(), 0, 0, 0, 0, 0], bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::collective::Operation;

    type Answer = Option<(FrameKind, i64, Vec<u8>)>;

    fn ask(stream: &UnixStream, kind: FrameKind, field: i64, bytes: &[u8]) -> Answer {
        write_frame(stream, kind, [field, 0, 0, 0, 0, 0], bytes).unwrap();
        answer(stream)
    }

    fn answer(mut stream: &UnixStream) -> Answer {
        let header = read_header(stream).unwrap()?;
        let mut bytes = vec![0; header.length];
        stream.read_exact(&mut bytes).unwrap();
        Some((header.kind, header.fields[0], bytes))
    }

    fn asked_to_join(id: &[u8; ID_BYTES], size: i64, rank: i64) -> UnixStream {
        let stream = connect(id).unwrap();
        write_frame(&stream, FrameKind::Join, [size, rank, 0, 0, 0, 0], &[]).unwrap();
        stream
    }

    const DONE: Answer = Some((FrameKind::Done, 0, Vec::new()));

    fn two() -> (UnixStream, UnixStream) {
        let id = open().unwrap();
        let (a, b) = (asked_to_join(&id, 2, 0), asked_to_join(&id, 2, 1));
        assert_eq!((answer(&a), answer(&b)), (DONE, DONE));
        (a, b)
    }

    #[test]
    fn a_rank_joins_once_and_all_give_the_same_size() {
        let id = open().unwrap();
        let first = asked_to_join(&id, 2, 0);
        let refused = |size, rank| answer(&asked_to_join(&id, size, rank));
        let with = |status: i32| Some((FrameKind::Done, i64::from(status), Vec::new()));
        assert_eq!(refused(2, 0), with(INVALID_USAGE));
        assert_eq!(refused(3, 1), with(INVALID_USAGE));
        assert_eq!(refused(2, 2), with(INVALID_ARGUMENT));
        let second = asked_to_join(&id, 2, 1);
        assert_eq!((answer(&first), answer(&second)), (DONE, DONE));
    }

    #[test]
    fn a_message_is_over_when_it_is_received() {
        let (a, b) = two();
        write_frame(&a, FrameKind::Send, [1, 0, 0, 0, 0, 0], b"first").unwrap();
        write_frame(&a, FrameKind::Send, [1, 0, 0, 0, 0, 0], b"second").unwrap();
        write_frame(&a, FrameKind::Flush, [0; 6], &[]).unwrap();
        let got = |text: &[u8]| Some((FrameKind::Done, 0, text.to_vec()));
        assert_eq!(ask(&b, FrameKind::Receive, 0, &[]), got(b"first"));
        a.set_nonblocking(true).unwrap();
        assert!(read_header(&a).is_err(), "the second one is still in flight");
        a.set_nonblocking(false).unwrap();
        assert_eq!(ask(&b, FrameKind::Receive, 0, &[]), got(b"second"));
        assert_eq!(answer(&a), DONE);
    }

    #[test]
    fn a_collective_ends_for_all_at_once() {
        let (a, b) = two();
        let (operation, kind) = (Operation::AllReduce, 5);
        let call = StubCollective { operation, count: 1, kind, reduction: 0, root: 0 };
        let send = |stream: &UnixStream, call: StubCollective, value: u64| {
            write_frame(stream, FrameKind::Collective, call.fields(), &value.to_ne_bytes())
                .unwrap();
        };
        send(&a, call, 40);
        send(&b, call, 2);
        let sum = Some((FrameKind::Done, 0, 42_u64.to_ne_bytes().to_vec()));
        assert_eq!((answer(&a), answer(&b)), (sum.clone(), sum));
        // Ranks with different calls get no bytes.
        send(&a, call, 40);
        send(&b, StubCollective { operation: Operation::AllGather, ..call }, 2);
        let misused = Some((FrameKind::Done, i64::from(INVALID_USAGE), Vec::new()));
        assert_eq!((answer(&a), answer(&b)), (misused.clone(), misused));
    }

    #[test]
    fn a_wait_for_a_lost_rank_ends() {
        let ended = |kind| Some((kind, 0, Vec::new()));
        let (a, b) = two();
        write_frame(&a, FrameKind::Receive, [1, 0, 0, 0, 0, 0], &[]).unwrap();
        // Its process ended: it sent nothing before the socket closed.
        drop(b);
        assert_eq!(answer(&a), ended(FrameKind::Lost));
        assert_eq!(ask(&a, FrameKind::Flush, 0, &[]), ended(FrameKind::Lost));
        let (a, b) = two();
        write_frame(&b, FrameKind::Abort, [0; 6], &[]).unwrap();
        assert_eq!(ask(&a, FrameKind::Receive, 1, &[]), ended(FrameKind::Aborted));
        // A rank that left in order causes no error; a wait for it never ends.
        let (a, b) = two();
        write_frame(&b, FrameKind::Leave, [0; 6], &[]).unwrap();
        drop(b);
        write_frame(&a, FrameKind::Receive, [1, 0, 0, 0, 0, 0], &[]).unwrap();
        a.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        assert!(read_header(&a).is_err());
    }

    #[test]
    fn a_rank_lost_before_all_have_joined_ends_the_other_waits() {
        let id = open().unwrap();
        let (first, second) = (asked_to_join(&id, 3, 0), asked_to_join(&id, 3, 1));
        drop(second);
        assert_eq!(answer(&first), Some((FrameKind::Lost, 0, Vec::new())));
    }
}
