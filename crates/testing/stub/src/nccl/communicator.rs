//! One rank of a communicator and its operations.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::collective::{StubCollective, size_of};
use super::frame::{FrameKind, read_header, write_frame};
use super::hub::{self, ID_BYTES};
use super::{INVALID_ARGUMENT, REMOTE, SYSTEM};
use crate::streams::StubHandle;

/// One operation of a task, with its memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum CommAct {
    Send { at: u64, bytes: usize, peer: i32 },
    Receive { at: u64, bytes: usize, peer: i32 },
    Collective { send: u64, receive: u64, call: StubCollective },
}

impl CommAct {
    /// Bytes that it sends or, for a received message, receives.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Send { bytes, .. } | Self::Receive { bytes, .. } => *bytes,
            Self::Collective { call, .. } => call.count * size_of(call.kind),
        }
    }
}

/// Operations enqueued together.
#[derive(Debug)]
pub(super) struct CommTask {
    pub(super) communicator: StubHandle,
    pub(super) acts: Vec<CommAct>,
    pub(super) hangs: bool,
    pub(super) corrupts: bool,
}

/// One rank of a communicator.
#[derive(Debug)]
pub(super) struct Communicator {
    pub(super) rank: i32,
    pub(super) size: i32,
    stream: UnixStream,
    /// Held while a task runs: a request and its reply belong together.
    at_work: Mutex<()>,
    /// Held during a send, so that an abort does not interrupt a frame.
    sending: Mutex<()>,
    /// Its asynchronous error; 0 is none.
    error: AtomicI32,
    registered: Mutex<BTreeSet<StubHandle>>,
}

/// A task ended early; the communicator holds the reason.
struct Ended;

impl Communicator {
    /// Takes a place and waits for all other ranks.
    pub(super) fn join(id: &[u8; ID_BYTES], size: i32, rank: i32) -> Result<Self, i32> {
        let stream = hub::connect(id).map_err(|_| SYSTEM)?;
        let communicator = Self {
            rank,
            size,
            stream,
            at_work: Mutex::new(()),
            sending: Mutex::new(()),
            error: AtomicI32::new(0),
            registered: Mutex::default(),
        };
        let fields = [size.into(), rank.into(), 0, 0, 0, 0];
        let joined = communicator.ask(FrameKind::Join, fields, &[], &mut []);
        match (joined, communicator.error()) {
            (Ok(()), 0) => Ok(communicator),
            (_, 0) => Err(SYSTEM),
            (_, error) => Err(error),
        }
    }

    pub(super) fn error(&self) -> i32 {
        self.error.load(Ordering::Acquire)
    }

    pub(super) fn register(&self, handle: StubHandle) {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
    }

    pub(super) fn deregister(&self, handle: StubHandle) -> i32 {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.remove(&handle) { 0 } else { INVALID_ARGUMENT }
    }

    /// Ends this rank. After one rank's abort, all waits in this communicator end.
    pub(super) fn leave(&self, abort: bool) {
        let kind = if abort { FrameKind::Abort } else { FrameKind::Leave };
        // If a task blocks inside a frame, closing the socket must be enough.
        if let Ok(_sending) = self.sending.try_lock() {
            let _ = write_frame(&self.stream, kind, [0; 6], &[]);
        }
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn send(&self, kind: FrameKind, fields: [i64; 6], bytes: &[u8]) -> io::Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&self.stream, kind, fields, bytes)
    }

    /// Sends a request to the hub and waits for its reply.
    fn ask(
        &self,
        kind: FrameKind,
        fields: [i64; 6],
        bytes: &[u8],
        into: &mut [u8],
    ) -> Result<(), Ended> {
        // The reply gives the state of the hub, even if sending failed.
        let _ = self.send(kind, fields, bytes);
        self.answer(into)
    }

    fn answer(&self, into: &mut [u8]) -> Result<(), Ended> {
        let (kind, status) = match read_header(&self.stream) {
            Ok(Some(header)) if self.read(header.length, into).is_ok() => {
                (header.kind, i32::try_from(header.fields[0]).unwrap_or(SYSTEM))
            }
            // The hub's process is gone, or this rank has aborted, which needs no report.
            _ => (FrameKind::Lost, 0),
        };
        let error = match kind {
            FrameKind::Done => status,
            FrameKind::Aborted => 0,
            _ => REMOTE,
        };
        if error != 0 {
            self.error.store(error, Ordering::Release);
        }
        if kind == FrameKind::Done && status == 0 { Ok(()) } else { Err(Ended) }
    }

    /// Reads the bytes of a frame; excess ones are dropped.
    fn read(&self, length: usize, into: &mut [u8]) -> io::Result<()> {
        let kept = length.min(into.len());
        let mut stream = &self.stream;
        stream.read_exact(&mut into[..kept])?;
        io::copy(&mut stream.take((length - kept) as u64), &mut io::sink()).map(drop)
    }

    /// Runs a task on the stream's thread for host functions.
    ///
    /// # Safety
    /// All its ranges are memory of this process that nothing else uses meanwhile.
    pub(super) unsafe fn perform(&self, task: &CommTask) {
        let _at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise.
        let _ = unsafe { self.all(task) };
    }

    /// # Safety
    /// As [`Communicator::perform`].
    unsafe fn all(&self, task: &CommTask) -> Result<(), Ended> {
        if task.hangs {
            return self.ask(FrameKind::End, [0; 6], &[], &mut []);
        }
        let mut sends = false;
        for act in &task.acts {
            if let &CommAct::Send { at, bytes, peer } = act {
                sends = true;
                // SAFETY: the caller's promise.
                let bytes = unsafe { source(at, bytes) };
                let _ = self.send(FrameKind::Send, [peer.into(), 0, 0, 0, 0, 0], bytes);
            }
        }
        for act in &task.acts {
            if let &CommAct::Receive { at, bytes, peer } = act {
                // SAFETY: the caller's promise.
                let into = unsafe { destination(at, bytes) };
                self.ask(FrameKind::Receive, [peer.into(), 0, 0, 0, 0, 0], &[], into)?;
                task.damage(into);
            }
        }
        if sends {
            self.ask(FrameKind::Flush, [0; 6], &[], &mut [])?;
        }
        for act in &task.acts {
            if let &CommAct::Collective { send, receive, call } = act {
                let size = usize::try_from(self.size).unwrap_or(0);
                // SAFETY: the caller's promise. The two may overlap, so one ends before the other
                // begins: what is sent is out before anything comes back.
                unsafe {
                    let from = source(send, call.sends(self.rank, size));
                    let _ = self.send(FrameKind::Collective, call.fields(), from);
                    let into = destination(receive, call.receives(self.rank, size));
                    self.answer(into)?;
                    task.damage(into);
                }
            }
        }
        Ok(())
    }
}

impl CommTask {
    /// Corrupts a byte, if that fault is injected.
    fn damage(&self, bytes: &mut [u8]) {
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle).filter(|_| self.corrupts) {
            *byte = !*byte;
        }
    }
}

/// # Safety
/// `bytes` at `at` may be read, and nothing writes them meanwhile.
unsafe fn source<'a>(at: u64, bytes: usize) -> &'a [u8] {
    if at == 0 || bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at as *const u8, bytes) }
}

/// # Safety
/// `bytes` at `at` may be written, and nothing else uses them meanwhile.
unsafe fn destination<'a>(at: u64, bytes: usize) -> &'a mut [u8] {
    if at == 0 || bytes == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, bytes) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::nccl::collective::Operation;

    /// All ranks of a new communicator, each joined by a separate thread.
    fn joined(size: i32) -> Vec<Arc<Communicator>> {
        let id = hub::open().unwrap();
        let join = |rank| std::thread::spawn(move || Communicator::join(&id, size, rank));
        let ranks: Vec<_> = (0..size).map(join).collect();
        ranks.into_iter().map(|r| Arc::new(r.join().unwrap().unwrap())).collect()
    }

    fn task(act: CommAct, corrupts: bool) -> CommTask {
        CommTask { communicator: 0, acts: vec![act], hangs: false, corrupts }
    }

    #[test]
    fn a_sum_arrives_in_every_rank_in_place_too() {
        let (size, ranks) = (3_u64, joined(3));
        let call = StubCollective {
            operation: Operation::AllReduce,
            count: 4,
            kind: 5,
            reduction: 0,
            root: 0,
        };
        let work = |(nth, rank): (u64, Arc<Communicator>)| {
            std::thread::spawn(move || {
                let mut words = [nth + 1; 4];
                let at = words.as_mut_ptr() as u64;
                // Rank 2 gets a wrong byte.
                let task = task(CommAct::Collective { send: at, receive: at, call }, nth == 2);
                // SAFETY: the array lives until the task is over, and only it uses it.
                unsafe { rank.perform(&task) };
                assert_eq!(rank.error(), 0);
                words
            })
        };
        let all: Vec<_> = (0..size).zip(ranks).map(work).collect();
        let all: Vec<[u64; 4]> = all.into_iter().map(|t| t.join().unwrap()).collect();
        // 1 + 2 + 3 = 6. Byte 16 is the lowest of element 2: 6 becomes !6 = 249.
        assert_eq!(all, [[6; 4], [6; 4], [6, 6, 249, 6]]);
    }

    #[test]
    fn an_abort_ends_whoever_waits_and_is_no_error() {
        let ranks = joined(2);
        let (first, second) = (Arc::clone(&ranks[0]), Arc::clone(&ranks[1]));
        let hangs = CommTask { communicator: 0, acts: Vec::new(), hangs: true, corrupts: false };
        // SAFETY: the task has no ranges.
        let waits = std::thread::spawn(move || unsafe { first.perform(&hangs) });
        second.leave(true);
        waits.join().unwrap();
        assert_eq!(ranks[0].error(), 0);
    }

    #[test]
    fn a_rank_whose_process_ends_is_an_error_of_the_others() {
        let ranks = joined(2);
        let first = Arc::clone(&ranks[0]);
        let waits = std::thread::spawn(move || {
            let mut word = [0_u64];
            let at = word.as_mut_ptr() as u64;
            let task = task(CommAct::Receive { at, bytes: 8, peer: 1 }, false);
            // SAFETY: as above.
            unsafe { first.perform(&task) };
        });
        // The kernel does this for a process that dies.
        ranks[1].stream.shutdown(Shutdown::Both).unwrap();
        waits.join().unwrap();
        assert_eq!(ranks[0].error(), REMOTE);
    }
}
