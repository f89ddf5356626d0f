//! I/O in flight when the call that waits for it fails. A pipe without a writer holds
//! a read for as long as the test wants.

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pathline_schema::{Flow, IoSpec};

use super::aio::AioEngine;
use super::engine::{BlockEngine, FinishedIo, WorkerBlocks};
use super::round_progress::RoundProgress;
use super::uring::{RingKind, UringEngine};
use super::worker::{BlockOrder, IoWorker, WorkerParts};
use super::worker_pool::RoundWorker;
use pathline_host::clock::{self, ClockOrigin};

const BLOCK: u32 = 4096;
/// How long the pipe is empty: far longer than a call that fails.
const EMPTY: Duration = Duration::from_millis(100);

/// Memory of one slot and an empty pipe that is read into it.
struct EmptyPipe {
    memory: Vec<u8>,
    writer: PipeWriter,
    blocks: WorkerBlocks,
}

impl EmptyPipe {
    fn new() -> Self {
        let (reader, writer) = io::pipe().unwrap();
        let mut memory = vec![0u8; BLOCK as usize];
        let file = Arc::new(File::from(OwnedFd::from(reader)));
        let address = memory.as_mut_ptr() as u64;
        Self {
            memory,
            writer,
            blocks: WorkerBlocks { file, memory: address, block: BLOCK, slots: 1 },
        }
    }

    /// Fills the pipe after a while.
    fn fill_later(&self) -> JoinHandle<()> {
        let mut writer = self.writer.try_clone().unwrap();
        thread::spawn(move || {
            clock::pause(EMPTY);
            writer.write_all(&[7; BLOCK as usize]).unwrap();
        })
    }

    /// Whether the read has put its bytes there.
    fn is_filled(&self) -> bool {
        // SAFETY: the kernel writes there, which the compiler must not assume away.
        let byte = |at: &u8| unsafe { std::ptr::read_volatile(at) };
        self.memory.iter().all(|at| byte(at) == 7)
    }
}

/// Hands I/O over, and then fails as the call that waits for its end.
struct FailsToWait<E>(E);

impl<E: BlockEngine> BlockEngine for FailsToWait<E> {
    fn call(&self) -> &'static str {
        self.0.call()
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        self.0.push(slot, write, offset);
    }
    fn enter(&mut self, _: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        self.0.enter(0, ended)?;
        Err(io::Error::from_raw_os_error(libc::EBADR))
    }
    fn settle(&mut self) -> u32 {
        self.0.settle()
    }
}

/// A round of one read with an engine that fails to wait for it.
fn round_ends_with_its_io(engine: &str, make: impl FnOnce(WorkerBlocks) -> Box<dyn BlockEngine>) {
    let pipe = EmptyPipe::new();
    let text = format!(
        "store0.file > numa0.paged by {engine}@numa0[seq-read,cached,shared,4KiB,q1,n1,t1] x 4KiB"
    );
    let io: IoSpec = *text.parse::<Flow>().unwrap().by.io().unwrap();
    let mut worker = IoWorker::new(WorkerParts {
        index: 0,
        io,
        block: BLOCK,
        memory: pipe.blocks.memory,
        path: BlockOrder { all: 1, first: 0, count: 1, landing: 0, draw: 0 },
        file: "a pipe".into(),
        engine: make(pipe.blocks.clone()),
        staging: None,
        sync: None,
    });
    let progress = RoundProgress::new(ClockOrigin::now(), 1);
    let filling = pipe.fill_later();
    let report = worker.round(&progress, 1, false);
    // The memory is its owner's from here on: nothing writes to it any more.
    assert!(pipe.is_filled(), "the round ended while its read was in flight");
    assert!(!report.abandoned);
    let error = progress.error.lock().unwrap().take().unwrap();
    assert_eq!(error.code, i64::from(libc::EBADR), "{error}");
    filling.join().unwrap();
}

#[test]
fn a_round_that_fails_ends_with_nothing_in_flight() {
    round_ends_with_its_io("uring-plain", |blocks| {
        Box::new(FailsToWait(UringEngine::new(RingKind::Plain, blocks).unwrap()))
    });
}

#[test]
fn a_ring_whose_number_the_kernel_refuses_waits_by_its_descriptor() {
    let pipe = EmptyPipe::new();
    let mut ring = UringEngine::new(RingKind::Plain, pipe.blocks.clone()).unwrap();
    ring.push(0, false, 0);
    let mut ended = Vec::new();
    ring.enter(0, &mut ended).unwrap();
    ring.refuse_calls();
    let error = ring.enter(1, &mut ended).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL)), "{error}");
    let filling = pipe.fill_later();
    assert_eq!((ring.settle(), ended.len()), (0, 0));
    assert!(pipe.is_filled());
    filling.join().unwrap();
    // It works again.
    ring.push(0, false, 0);
    let filling = pipe.fill_later();
    ring.enter(1, &mut ended).unwrap();
    assert_eq!(ended, [(0, BLOCK as i32)]);
    filling.join().unwrap();
}

#[test]
fn a_dropped_ring_waits_for_ios_in_flight() {
    let pipe = EmptyPipe::new();
    let mut ring = UringEngine::new(RingKind::Plain, pipe.blocks.clone()).unwrap();
    ring.push(0, false, 0);
    ring.enter(0, &mut Vec::new()).unwrap();
    let filling = pipe.fill_later();
    drop(ring);
    assert!(pipe.is_filled());
    filling.join().unwrap();
}

#[test]
fn ios_that_were_only_noted_never_start() {
    let pipe = EmptyPipe::new();
    let mut ring = UringEngine::new(RingKind::Plain, pipe.blocks.clone()).unwrap();
    ring.push(0, false, 0);
    assert_eq!(ring.settle(), 0);
    let mut ended = Vec::new();
    ring.enter(0, &mut ended).unwrap();
    let mut writer = pipe.writer.try_clone().unwrap();
    writer.write_all(&[7; BLOCK as usize]).unwrap();
    ring.enter(0, &mut ended).unwrap();
    assert!(ended.is_empty() && !pipe.is_filled());
}

/// A pipe is read within the call that hands over, so this is a file of a disk.
#[test]
fn native_asynchronous_io_is_waited_for_as_well() {
    const LARGE: u32 = 16 << 20;
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let folder = tempfile::tempdir_in(folder).unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; LARGE as usize]).unwrap();
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
    let file = Arc::new(file.expect("tests are built on a disk that takes direct I/O"));
    let memory = vec![0u8; LARGE as usize + 4096];
    let address = (memory.as_ptr() as u64).next_multiple_of(4096);
    let last = (address - memory.as_ptr() as u64) as usize + LARGE as usize - 1;
    let mut aio =
        AioEngine::new(WorkerBlocks { file, memory: address, block: LARGE, slots: 1 }).unwrap();
    aio.push(0, false, 0);
    let mut ended = Vec::new();
    aio.enter(0, &mut ended).unwrap();
    assert_eq!(aio.settle(), 0);
    // SAFETY: the kernel writes there, which the compiler must not assume away.
    assert_eq!(unsafe { std::ptr::read_volatile(&raw const memory[last]) }, 7);
    // The completion was reaped: the next call returns none.
    aio.enter(0, &mut ended).unwrap();
    assert!(ended.iter().all(|&one| one == (0, LARGE as i32)) && ended.len() <= 1, "{ended:?}");
}
