//! xpmem without its kernel module: the library's functions, between threads of one process.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pathline_hal::{FlowPart, LocalMemory, RankBarrier, RepeatMode, TransportPort};
use pathline_schema::{CpuHow, MessageOp, Rank, ShmCopies, Transport, Unit, WireOp};

use super::barrier::{BarrierSegment, SharedBarrier};
use super::port::NodePort;
use super::xpmem::{XpmemAddr, XpmemApi};

/// Number of segments, permits and attachments not yet released.
static HELD: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" fn make(start: *mut c_void, len: usize, permit: c_int, _: *mut c_void) -> i64 {
    assert!((start as usize).is_multiple_of(4096) && len.is_multiple_of(4096) && permit == 1);
    HELD.fetch_add(1, Relaxed);
    start as i64
}
unsafe extern "C" fn get(segment: i64, _: c_int, _: c_int, _: *mut c_void) -> i64 {
    HELD.fetch_add(1, Relaxed);
    segment
}
unsafe extern "C" fn attach(from: XpmemAddr, _: usize, _: *mut c_void) -> *mut c_void {
    HELD.fetch_add(1, Relaxed);
    (from.apid + from.offset) as *mut c_void
}
unsafe extern "C" fn give_back(_: i64) -> c_int {
    HELD.fetch_sub(1, Relaxed);
    0
}
unsafe extern "C" fn detach(_: *mut c_void) -> c_int {
    HELD.fetch_sub(1, Relaxed);
    0
}

const CALLS: XpmemApi =
    XpmemApi { make, remove: give_back, get, release: give_back, attach, detach };
const BYTES: usize = 10_000;
const MOST: Duration = Duration::from_secs(60);

/// One rank: sends its number everywhere, and returns what it received.
fn rank(
    me: u32,
    address: &str,
    to_peer: &Sender<Vec<u8>>,
    from_peer: &Receiver<Vec<u8>>,
) -> Vec<u8> {
    let (mut send, mut recv) = (vec![me as u8 + 1; BYTES], vec![0_u8; BYTES]);
    let span = |bytes: &mut Vec<u8>| LocalMemory {
        address: bytes.as_mut_ptr() as u64,
        bytes: BYTES as u64,
    };
    let copies = Some(ShmCopies::Single(CpuHow::Memcpy));
    let part = FlowPart {
        wire: MessageOp { copies, ..MessageOp::new(Transport::Xpmem, WireOp::Ping) },
        bytes: BYTES as u64,
        group: [0, 1].map(|rank| (Rank(rank), Unit::Numa(0))).to_vec(),
        positions: vec![me as usize],
        send: vec![span(&mut send)],
        recv: vec![span(&mut recv)],
        device: Vec::new(),
    };
    let mut port = NodePort::new(Transport::Xpmem, Rank(me), "a test".into(), MOST);
    port.xpmem = Some(CALLS);
    let barrier = SharedBarrier::open(address, Rank(me), MOST).unwrap();
    let (id, mine) = port.bind(&[part], RepeatMode::Streaming).unwrap();
    to_peer.send(mine.clone()).unwrap();
    let theirs = from_peer.recv().unwrap();
    port.join(id, &if me == 0 { [mine, theirs] } else { [theirs, mine] }).unwrap();
    let times = port.run(id, 5, &barrier).unwrap();
    assert!(times.len() == 1 && times[0].len() == 1 && times[0][0] > 0.0, "{times:?}");
    barrier.wait().unwrap();
    // Each exposes its own memory and attaches the other's: 2 x (make + get + attach).
    assert_eq!(HELD.load(Relaxed), 6);
    barrier.wait().unwrap();
    port.release(id).unwrap();
    recv
}

#[test]
fn attached_memory_is_copied_and_given_back() {
    let room = BarrierSegment::create(2).unwrap();
    let address = room.address();
    let ((to_1, from_0), (to_0, from_1)) = (channel(), channel());
    let received = std::thread::scope(|scope| {
        let first = scope.spawn(|| rank(0, &address, &to_1, &{ from_1 }));
        let second = scope.spawn(|| rank(1, &address, &to_0, &{ from_0 }));
        [first.join().unwrap(), second.join().unwrap()]
    });
    assert_eq!(received, [vec![2; BYTES], vec![1; BYTES]]);
    assert_eq!(HELD.load(Relaxed), 0);
}

#[test]
fn without_the_device_the_error_has_reason_and_remedy() {
    if std::path::Path::new("/dev/xpmem").exists() {
        return;
    }
    let why = super::xpmem_port(Rank(0), MOST).err().unwrap();
    assert!(why.contains("/dev/xpmem") && why.contains("modprobe"), "{why}");
}
