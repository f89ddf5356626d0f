//! Two processes over a libucp that `PATHLINE_TEST_UCX` names; the second is this test binary.
#![allow(clippy::unwrap_used, reason = "tests; a helper that fails is a test that fails")]

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pathline_hal::conformance::transport::{HeapMemory, RankLink, TransportRank, check_transport};
use pathline_hal::{CallResult, FlowPart, LocalMemory, RankBarrier, RepeatMode, TransportPort};
use pathline_schema::{MessageOp, Rank, Severity, Transport, UcxSetting, Unit, WireOp};

use pathline_stub::need::missing;

use super::worker::UcxWorker;
use super::{UcxPort, open, settings};
use pathline_host::clock::{ClockOrigin, pause};

const SECOND: &str = "PATHLINE_TEST_UCX_SECOND";
/// Bytes of all buffers: the size of the largest message.
const ROOM: usize = 1 << 20;

/// The library to test with. `None` if the variable is not set, which fails where the library is
/// promised.
fn library() -> Option<PathBuf> {
    let named = std::env::var_os("PATHLINE_TEST_UCX").map(PathBuf::from);
    if named.is_none() {
        missing("ucx", "PATHLINE_TEST_UCX names no folder of libucp.so.0");
    }
    named
}

/// The other process, through a socket.
struct Other(RefCell<UnixStream>);

impl Other {
    fn give(&self, bytes: &[u8]) {
        let mut stream = self.0.borrow_mut();
        stream.write_all(&(bytes.len() as u64).to_le_bytes()).unwrap();
        stream.write_all(bytes).unwrap();
    }
    fn take(&self) -> Vec<u8> {
        let mut length = [0; 8];
        let mut stream = self.0.borrow_mut();
        stream.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }
}

impl RankBarrier for Other {
    fn wait(&self) -> CallResult<()> {
        self.give(&[]);
        self.take();
        Ok(())
    }
}

/// The other process, and the rank of this one.
struct OrderedLink<'o> {
    me: usize,
    other: &'o Other,
}

impl RankBarrier for OrderedLink<'_> {
    fn wait(&self) -> CallResult<()> {
        self.other.wait()
    }
}

impl RankLink for OrderedLink<'_> {
    fn share(&self, mine: &[u8]) -> CallResult<Vec<Vec<u8>>> {
        self.other.give(mine);
        let (mine, theirs) = (mine.to_vec(), self.other.take());
        Ok(if self.me == 0 { vec![mine, theirs] } else { vec![theirs, mine] })
    }
}

/// A process with its buffers.
struct Side {
    me: usize,
    port: UcxPort,
    other: Other,
    send: Vec<u8>,
    recv: Vec<u8>,
}

/// The byte that a rank sends at an offset.
fn byte(rank: usize, at: usize) -> u8 {
    u8::try_from((at * 7 + at / 251 + 31 * rank) % 256).unwrap()
}

impl Side {
    fn new(me: usize, port: UcxPort, stream: UnixStream) -> Self {
        let send = (0..ROOM).map(|at| byte(me, at)).collect();
        Self { me, port, other: Other(RefCell::new(stream)), send, recv: vec![0; ROOM] }
    }

    /// A part from `from` to the other rank, for this process.
    fn part(&self, op: &str, from: usize, bytes: usize) -> FlowPart {
        let op: WireOp = op.parse().unwrap();
        let here = if self.me == from { 0 } else { 1 };
        let of = |has, buffer: &[u8]| LocalMemory {
            address: if has { buffer.as_ptr() as u64 } else { 0 },
            bytes: if has { bytes as u64 } else { 0 },
        };
        let both = op == WireOp::Ping;
        let rank = |rank: usize| (Rank(u32::try_from(rank).unwrap()), Unit::Numa(0));
        FlowPart {
            wire: MessageOp::new(Transport::Ucx, op),
            bytes: bytes as u64,
            group: vec![rank(from), rank(1 - from)],
            positions: vec![here],
            send: vec![of(both || here == 0, &self.send)],
            recv: vec![of(both || here == 1, &self.recv)],
            device: Vec::new(),
        }
    }

    /// Runs parts `reps` times; the times of this process, and UCX's report.
    fn exchange(
        &mut self,
        parts: &[FlowPart],
        pace: RepeatMode,
        reps: u64,
    ) -> (Vec<Vec<f64>>, String) {
        self.recv.fill(0xee);
        let (id, offer) = self.port.bind(parts, pace).unwrap();
        self.other.give(&offer);
        let theirs = self.other.take();
        let offers = if self.me == 0 { [offer, theirs] } else { [theirs, offer] };
        self.port.join(id, &offers).unwrap();
        self.other.wait().unwrap();
        // Overwrites the data of the connecting repetition.
        self.recv.fill(0xee);
        let times = self.port.run(id, reps, &self.other).unwrap();
        let engine = self.port.engine(id);
        self.other.wait().unwrap();
        self.port.release(id).unwrap();
        (times, engine)
    }

    /// Checks that the received bytes are the peer's, and that no byte behind them changed.
    fn check(&self, bytes: usize) {
        let wrong = (0..bytes).find(|&at| self.recv[at] != byte(1 - self.me, at));
        assert_eq!(wrong, None, "rank {}", self.me);
        assert!(self.recv[bytes..].iter().all(|&b| b == 0xee), "rank {}", self.me);
    }
}

/// The test of both ranks.
fn all(side: &mut Side) {
    let memory = HeapMemory::new(1);
    let op = |text: &str| MessageOp::new(Transport::Ucx, text.parse().unwrap());
    let messages = ["ping", "send-w1", "send-w16", "put-w4", "get-w4"].map(op).to_vec();
    let Side { me, port, other, .. } = side;
    check_transport(&mut TransportRank {
        me: Rank(u32::try_from(*me).unwrap()),
        seats: vec![(Rank(0), Unit::Numa(0)), (Rank(1), Unit::Numa(0))],
        port,
        memory: &memory,
        link: &OrderedLink { me: *me, other },
        messages,
        atomics: Vec::new(),
        collectives: Vec::new(),
        modes: vec![RepeatMode::Streaming, RepeatMode::Isolated],
        sizes: vec![1, 8, 5000, 65_536, ROOM as u64],
    })
    .unwrap();
    // Integers of 64 bits are aligned.
    check_transport(&mut TransportRank {
        me: Rank(u32::try_from(*me).unwrap()),
        seats: vec![(Rank(0), Unit::Numa(0)), (Rank(1), Unit::Numa(0))],
        port,
        memory: &HeapMemory::new(0),
        link: &OrderedLink { me: *me, other },
        messages: Vec::new(),
        atomics: ["add", "fetch-add", "swap", "compare-swap"].map(op).to_vec(),
        collectives: Vec::new(),
        modes: vec![RepeatMode::Streaming],
        sizes: vec![8],
    })
    .unwrap();
    // The rank that moves the bytes reports the lanes.
    for (op, teller) in [("send-w1", 0), ("put-w4", 0), ("get-w4", 1)] {
        let part = side.part(op, 0, 5000);
        let (_, engine) = side.exchange(&[part], RepeatMode::Streaming, 2);
        assert!(engine.contains("memory ") && engine.contains("host"), "{engine}");
        assert_eq!(engine.contains("lanes "), side.me == teller, "{op}: {engine}");
    }
    // A part without this rank: it still takes part in the barrier.
    let idle =
        FlowPart { positions: vec![], send: vec![], recv: vec![], ..side.part("ping", 0, 8) };
    let (times, engine) = side.exchange(&[idle], RepeatMode::Isolated, 3);
    assert_eq!((times, engine), (vec![vec![]], String::new()));
    // An operation that UCX lacks.
    let group = side.part("all_reduce", 0, 8);
    let why = side.port.bind(&[group], RepeatMode::Streaming).unwrap_err().to_string();
    assert!(why.contains("libucp has no such operation"), "{why}");
}

/// Figures for people: half a round trip of 8 B, and a window of 1 MiB; the minimum and the median
/// of 100 samples. They depend on the load of the machine, so the test expects no values.
fn figures(side: &mut Side) -> String {
    let mut samples = |op: &str, bytes: usize, reps: u64| {
        let part = side.part(op, 0, bytes);
        let (id, offer) = side.port.bind(&[part], RepeatMode::Streaming).unwrap();
        side.other.give(&offer);
        let theirs = side.other.take();
        let offers = if side.me == 0 { [offer, theirs] } else { [theirs, offer] };
        side.port.join(id, &offers).unwrap();
        let mut times: Vec<f64> = (0..100)
            .map(|_| side.port.run(id, reps, &side.other).unwrap()[0][0] / reps as f64)
            .collect();
        times.sort_by(f64::total_cmp);
        let engine = side.port.engine(id);
        side.other.wait().unwrap();
        side.port.release(id).unwrap();
        (times[0], times[50], engine)
    };
    let (least, middle, small) = samples("ping", 8, 1000);
    let (fast, usual, large) = samples("send-w64", ROOM, 1);
    let rate = |ns: f64| 64.0 * ROOM as f64 / ns;
    format!(
        "8 B {:.0} ns, middle {:.0} ns ({small}); 1 MiB {:.2} GB/s, middle {:.2} GB/s ({large})",
        least / 2.0,
        middle / 2.0,
        rate(fast),
        rate(usual)
    )
}

/// The name under which the test harness runs the test that a closure was written in.
fn test_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let (_crate, path) = path.split_once("::").unwrap();
    path.strip_suffix("::{{closure}}").unwrap()
}

/// Starts this test binary as rank 1 of the named test.
fn second(test: &str, socket: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(SECOND, socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the second process connects. A process that ends before fails the test.
fn accept(listener: &UnixListener, child: &mut Child) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("accept: {error}"),
        }
        assert!(child.try_wait().unwrap().is_none(), "rank 1 ended before it connected");
        pause(Duration::from_millis(5));
    }
}

/// Runs `first` here and `other` in a second process.
fn two<O: FnOnce(Side)>(first: impl FnOnce(Side, &mut Child), other: O) {
    let Some(library) = library() else { return };
    let port = open(Some(&library)).unwrap();
    if let Some(socket) = std::env::var_os(SECOND) {
        return other(Side::new(1, port, UnixStream::connect(socket).unwrap()));
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut child = second(test_of(&other), &socket);
    let stream = accept(&listener, &mut child);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    first(Side::new(0, port, stream), &mut child);
    // The child may have been killed by the test already.
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn bytes_arrive_by_messages_and_by_reaching_memory() {
    two(
        |mut side, child| {
            all(&mut side);
            eprintln!("{}: {}", side.port.library(), figures(&mut side));
            drop(side);
            assert!(child.wait().unwrap().success());
        },
        |mut side| {
            all(&mut side);
            figures(&mut side);
        },
    );
}

#[test]
fn a_process_that_is_lost_is_an_error_and_no_hang() {
    two(
        |mut side, child| {
            let part = side.part("ping", 0, 8);
            let (id, offer) = side.port.bind(&[part], RepeatMode::Streaming).unwrap();
            side.other.give(&offer);
            let theirs = side.other.take();
            side.port.join(id, &[offer, theirs]).unwrap();
            // The other rank reaches the barrier, and does not run.
            let begun = ClockOrigin::now();
            child.kill().unwrap();
            let error = side.port.run(id, 1000, &Met).unwrap_err().to_string();
            let took = begun.ns() as f64 / 1e9;
            // 10 s, and some for a busy machine.
            assert!((9.0..40.0).contains(&took), "{took} s: {error}");
            assert!(error.contains("not complete within 10 s"), "{error}");
            // Messages are in flight, so the port refuses further work.
            let part = side.part("ping", 0, 8);
            assert!(side.port.bind(&[part], RepeatMode::Streaming).is_err());
            // The owner keeps the memory of the messages.
            let kept = side.port.release(id).unwrap_err();
            assert_eq!(kept.severity, Severity::Sticky, "{kept}");
        },
        |mut side| {
            let part = side.part("ping", 0, 8);
            let (id, offer) = side.port.bind(&[part], RepeatMode::Streaming).unwrap();
            side.other.give(&offer);
            let theirs = side.other.take();
            side.port.join(id, &[theirs, offer]).unwrap();
            // Killed while it waits for a message that never comes.
            side.other.take();
        },
    );
}

/// A barrier that all have reached.
struct Met;

impl RankBarrier for Met {
    fn wait(&self) -> CallResult<()> {
        Ok(())
    }
}

/// Whether a release passes on variables of transports, as 1.20 does.
fn hands_on(port: &UcxPort) -> bool {
    let minor = port.ucp.version.split('.').nth(1).unwrap().parse::<u32>().unwrap();
    minor >= 20
}

/// Runs every setting on both ranks. Each is followed by the same case without it, which shows a
/// setting in the wrong context.
fn all_switches(side: &mut Side) {
    let mut taken = Vec::new();
    let bytes = 65_536;
    for &switch in UcxSetting::ALL {
        let mut part = side.part("send-w16", 0, bytes);
        let (plain, without) = side.exchange(&[part.clone()], RepeatMode::Streaming, 3);
        side.check_if_received(bytes);
        assert!(plain[0][0] > 0.0 && !without.contains(" with UCX_"), "{without}");
        part.wire.switch = Some(switch);
        let (name, value) = switch.setting();
        let set = format!("UCX_{name}=");
        match side.port.bind(&[part.clone()], RepeatMode::Streaming) {
            Err(why) => {
                let text = why.to_string();
                assert_eq!(why.severity, pathline_schema::Severity::Unsupported, "{text}");
                assert!(text.contains(&format!("{set}{value}")), "{text}");
                if side.me == 0 {
                    eprintln!("{switch}: {text}");
                }
            }
            Ok((id, _)) => {
                side.port.release(id).unwrap();
                let (times, engine) = side.exchange(&[part], RepeatMode::Streaming, 3);
                side.check_if_received(bytes);
                assert!(times[0][0] > 0.0 && engine.contains(&set), "{engine}");
                taken.push(switch);
                if side.me == 0 {
                    let changed =
                        engine.split_once(": ").unwrap().1 != without.split_once(": ").unwrap().1;
                    eprintln!("{switch}: {}", if changed { &engine } else { "changes nothing" });
                }
                if switch == UcxSetting::RndvPut && side.me == 0 && hands_on(&side.port) {
                    assert!(engine.contains("write to remote"), "{engine}");
                    assert!(without.contains("read from remote"), "{without}");
                }
            }
        }
    }
    // UCP's own variables are known to every release; the protocol generation depends on the
    // release.
    for known in
        [UcxSetting::RndvGet, UcxSetting::RndvPut, UcxSetting::RndvAm, UcxSetting::RndvNever]
    {
        assert!(taken.contains(&known), "{known}: {taken:?}");
    }
    let generations = [UcxSetting::ProtoV1, UcxSetting::ProtoV2];
    assert_eq!(generations.iter().filter(|s| taken.contains(s)).count(), 1, "{taken:?}");
    // No tested build has a ROCm transport.
    assert!(!taken.contains(&UcxSetting::RocmDmabuf));
}

impl Side {
    fn check_if_received(&self, bytes: usize) {
        if self.me == 1 {
            self.check(bytes);
        }
    }
}

#[test]
fn a_setting_applies_to_its_case_only() {
    two(
        |mut side, child| {
            all_switches(&mut side);
            let mut parts = [side.part("send-w2", 0, 8), side.part("send-w2", 1, 8)];
            parts[1].wire.switch = Some(UcxSetting::RndvPut);
            let why = side.port.bind(&parts, RepeatMode::Streaming).unwrap_err().to_string();
            assert!(why.contains("one context"), "{why}");
            drop(side);
            assert!(child.wait().unwrap().success());
        },
        |mut side| all_switches(&mut side),
    );
}

/// Without CUDA a message from a GPU's memory is read by the CPU: the process ends by a signal.
#[test]
fn memory_of_a_gpu_that_ucx_does_not_know_is_refused() {
    let Some(library) = library() else { return };
    let (stream, _other) = UnixStream::pair().unwrap();
    let mut side = Side::new(0, open(Some(&library)).unwrap(), stream);
    // Host memory stands in for GPU memory: UCX treats both as host memory.
    let part = FlowPart { device: vec![true], ..side.part("send-w1", 0, 8) };
    let error = side.port.bind(&[part], RepeatMode::Streaming).unwrap_err();
    assert_eq!(error.severity, Severity::Unsupported, "{error}");
    assert!(error.to_string().contains("treats a GPU's memory as host memory"), "{error}");
    let part = side.part("send-w1", 0, 8);
    assert!(side.port.bind(&[part], RepeatMode::Streaming).is_ok());
}

/// Loop-back: both ends of a message are of one process.
#[test]
fn a_process_sends_to_itself() {
    let Some(library) = library() else { return };
    let mut port = open(Some(&library)).unwrap();
    const BYTES: usize = 5000;
    let sent: [Vec<u8>; 2] = [0, 1].map(|end| (0..BYTES).map(|at| byte(end, at)).collect());
    let received: [Vec<u8>; 2] = [0, 1].map(|_| vec![0xee; BYTES]);
    let span = |memory: &Vec<u8>| LocalMemory {
        address: memory.as_ptr().expose_provenance() as u64,
        bytes: BYTES as u64,
    };
    let part = FlowPart {
        wire: MessageOp::new(Transport::Ucx, WireOp::Ping),
        bytes: BYTES as u64,
        group: vec![(Rank(0), Unit::Numa(0)); 2],
        positions: vec![0, 1],
        send: sent.iter().map(span).collect(),
        recv: received.iter().map(span).collect(),
        device: Vec::new(),
    };
    for pace in [RepeatMode::Streaming, RepeatMode::Isolated] {
        let (id, offer) = port.bind(std::slice::from_ref(&part), pace).unwrap();
        port.join(id, &[offer]).unwrap();
        let times = port.run(id, 3, &pathline_hal::NoBarrier).unwrap();
        let count = if pace == RepeatMode::Isolated { 3 } else { 1 };
        assert!(times[0].len() == count && times[0].iter().all(|&ns| ns > 0.0), "{times:?}");
        port.release(id).unwrap();
    }
    // UCX has written here.
    assert!(std::hint::black_box(&received[1]) == &sent[0], "out");
    assert!(std::hint::black_box(&received[0]) == &sent[1], "back");
}

#[test]
fn user_settings_stay() {
    let Some(library) = library() else { return };
    let mut port = open(Some(&library)).unwrap();
    port.settings = vec!["UCX_RNDV_SCHEME=am".to_owned()];
    let why = port.worker(1, Some(UcxSetting::RndvPut), false).unwrap_err().to_string();
    assert!(why.contains("UCX_RNDV_SCHEME=am is set for this run"), "{why}");
    // A variable with the same prefix is a different one.
    port.settings = vec!["UCX_RNDV_SCHEME_OF_OTHERS=am".to_owned()];
    assert!(port.worker(1, Some(UcxSetting::RndvPut), false).is_ok());
}

#[test]
fn a_variable_of_a_transport_reaches_it_or_is_refused() {
    let Some(library) = library() else { return };
    let port = open(Some(&library)).unwrap();
    let seen = |name: &str| {
        UcxWorker::new(&port.ucp, 1, false, |config| {
            settings::set_to(&port.ucp, config, "TLS", "posix")?;
            settings::set_to(&port.ucp, config, name, "16448").map(Some)
        })
        .map(|worker| {
            let me = worker.endpoint(worker.address()).unwrap();
            worker.describe(me).unwrap()
        })
    };
    match seen("POSIX_SEG_SIZE") {
        // Eager messages of one piece go up to its 8256 B less 8 of a header by default.
        Ok(printed) => assert!(printed.contains("16440"), "{printed}"),
        Err(why) => {
            assert!(!hands_on(&port), "{why}");
            assert!(why.to_string().contains("passes none on"), "{why}");
        }
    }
    let why = seen("NO_SUCH_SIZE").unwrap_err().to_string();
    assert!(why.contains("UCX_NO_SUCH_SIZE=16448"), "{why}");
}
