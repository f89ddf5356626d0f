//! Processes of one node that really are processes: this binary starts itself again as other ranks.
#![allow(clippy::unwrap_used, reason = "helpers of tests end with them")]
#![allow(clippy::print_stdout, reason = "ranks talk over their output")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use pathline_hal::{
    CallResult, ExchangeId, FlowPart, LocalMemory, RankBarrier, RepeatMode, TransportPort,
};
use pathline_schema::{CpuHow, MessageOp, Ns, Rank, Transport, Unit, WireOp};
use pathline_transport::{MeetingRoom, SharedMeeting, cma_port, shm_port};

const LONG: Duration = Duration::from_secs(60);
const ROLE: &str = "PATHLINE_TEST_ROLE";
const PREFIX: &str = "@rank ";

/// What two ranks do, both ways at once or one.
#[derive(Clone)]
struct Spec {
    wire: MessageOp,
    bytes: u64,
    both: bool,
    pace: RepeatMode,
}

fn wire(via: Transport, text: &str) -> MessageOp {
    let mover = format!("{via}@numa0[{text}]");
    match mover.parse().unwrap() {
        pathline_schema::Mover::Wire { wire, .. } => wire,
        other => panic!("{other} is no wire"),
    }
}

/// Every way to copy, every operation, sizes below, at and above pieces and lines.
fn specs() -> Vec<Spec> {
    let machine = pathline_live::live(pathline_schema::Topology::default());
    let hows: Vec<CpuHow> = machine.host.instructions();
    let mut specs = Vec::new();
    let mut add = |via, text: String, bytes, both| {
        let pace = if bytes % 2 == 0 { RepeatMode::Streaming } else { RepeatMode::Isolated };
        specs.push(Spec { wire: wire(via, &text), bytes, both, pace });
    };
    let sizes = [1, 8, 56, 57, 64, 2049, 8192, 100_003, (1 << 20) + 17];
    for bytes in sizes {
        for (op, both) in [("ping", false), ("ping", true), ("send-w3", true), ("consume", false)] {
            add(Transport::Cma, format!("{op},read"), bytes, both);
            add(Transport::Cma, format!("{op},write"), bytes, both);
            add(Transport::Shm, format!("{op},memcpy+memcpy"), bytes, both);
        }
    }
    for (how, bytes) in hows.iter().flat_map(|how| [57, 1000, 100_003].map(|b| (how, b))) {
        add(Transport::Shm, format!("ping,{how}+{how}"), bytes, true);
        add(Transport::Shm, format!("consume,memcpy+{how}"), bytes, false);
    }
    // More messages than the ring has slots, so that every slot is used again.
    add(Transport::Shm, "send-w100,memcpy+memcpy".into(), 8, false);
    specs
}

/// A byte that says who sends, in which flow, where.
fn byte(rank: u32, part: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8) ^ (rank as usize * 97 + part * 13 + 1)) as u8
}

/// Buffers of one part, one byte off any boundary.
struct Buffers {
    send: Vec<u8>,
    recv: Vec<u8>,
}

impl Buffers {
    fn new(rank: u32, part: usize, bytes: usize) -> Self {
        let send = (0..=bytes).map(|at| byte(rank, part, at.wrapping_sub(1))).collect();
        Self { send, recv: vec![0xee; bytes + 2] }
    }
    fn span(bytes: &mut [u8], len: u64) -> LocalMemory {
        LocalMemory { address: bytes.as_mut_ptr() as u64 + 1, bytes: len }
    }
}

fn parts(spec: &Spec, me: u32, buffers: &mut [Buffers]) -> Vec<FlowPart> {
    let flows: &[[u32; 2]] = if spec.both { &[[0, 1], [1, 0]] } else { &[[0, 1]] };
    let ping = spec.wire.op == WireOp::Ping;
    flows
        .iter()
        .zip(buffers)
        .map(|(group, buffers)| {
            let position = group.iter().position(|&r| r == me).unwrap();
            let send = Buffers::span(&mut buffers.send, spec.bytes);
            let recv = Buffers::span(&mut buffers.recv, spec.bytes);
            let none = LocalMemory::default();
            FlowPart {
                wire: spec.wire,
                bytes: spec.bytes,
                group: group.iter().map(|&r| (Rank(r), Unit::Numa(0))).collect(),
                mine: vec![position],
                send: vec![if position == 0 || ping { send } else { none }],
                recv: vec![if position == 1 || ping { recv } else { none }],
                device: false,
            }
        })
        .collect()
}

/// How a rank tells the other its offers.
trait Wires {
    fn swap(&mut self, offer: &[u8]) -> Vec<u8>;
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// A rank in another process.
struct Other {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shm::acts_as_a_rank_where_it_is_one", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }
    fn tell(&mut self, text: &str) {
        writeln!(self.stdin, "{text}").unwrap();
    }
    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the other rank ended");
            // The harness writes the test's name on the same line as the first of them.
            if let Some((_, text)) = line.trim_end().split_once(PREFIX) {
                return text.to_owned();
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Wires for Other {
    fn swap(&mut self, offer: &[u8]) -> Vec<u8> {
        self.tell(&hex(offer));
        unhex(&self.hear())
    }
}

/// The other side of those pipes.
struct Inside;

impl Inside {
    fn tell(&self, text: &str) {
        println!("{PREFIX}{text}");
    }
    fn hear(&self) -> String {
        let mut line = String::new();
        // Nothing to read: who started this rank has ended, and so does the rank.
        if std::io::stdin().read_line(&mut line).unwrap() == 0 {
            std::process::exit(1);
        }
        line.trim_end().to_owned()
    }
}

impl Wires for Inside {
    fn swap(&mut self, offer: &[u8]) -> Vec<u8> {
        self.tell(&hex(offer));
        unhex(&self.hear())
    }
}

struct Ports {
    shm: Box<dyn TransportPort>,
    cma: Box<dyn TransportPort>,
}

impl Ports {
    fn open(me: u32, most: Duration) -> Self {
        let (shm, cma) = (shm_port(Rank(me), most).unwrap(), cma_port(Rank(me), most).unwrap());
        Self { shm, cma }
    }
    fn of(&mut self, via: Transport) -> &mut dyn TransportPort {
        if via == Transport::Cma { &mut *self.cma } else { &mut *self.shm }
    }
}

fn bind(
    port: &mut dyn TransportPort,
    me: u32,
    parts: &[FlowPart],
    pace: RepeatMode,
    other: &mut dyn Wires,
) -> ExchangeId {
    let (id, mine) = port.bind(parts, pace).unwrap();
    let theirs = other.swap(&mine);
    let offers = if me == 0 { [mine, theirs] } else { [theirs, mine] };
    port.join(id, &offers).unwrap();
    id
}

/// Does what is to be done, and looks at every byte of what came. How long it took, of each part.
fn exchange(
    me: u32,
    ports: &mut Ports,
    spec: &Spec,
    meeting: &dyn RankBarrier,
    other: &mut dyn Wires,
) {
    let flows = if spec.both { 2 } else { 1 };
    let mut buffers: Vec<Buffers> =
        (0..flows).map(|part| Buffers::new(me, part, spec.bytes as usize)).collect();
    let parts = parts(spec, me, &mut buffers);
    let port = ports.of(spec.wire.via);
    let id = bind(port, me, &parts, spec.pace, other);
    // Twice, since a second run must go on where the first ended.
    for _ in 0..2 {
        let reps = 3;
        let times = port.run(id, reps, meeting).unwrap();
        let each = if spec.pace == RepeatMode::Isolated { reps as usize } else { 1 };
        assert!(times.iter().all(|t| t.len() == each && t.iter().all(|&ns| ns > 0.0)), "{times:?}");
    }
    meeting.meet().unwrap();
    for ((nth, buffers), part) in buffers.iter().enumerate().zip(&parts) {
        let what = format!("rank {me}, flow {nth} of {} x {} B", spec.wire, spec.bytes);
        let end = spec.bytes as usize + 1;
        assert!(buffers.recv[0] == 0xee && buffers.recv[end] == 0xee, "{what}: beyond the ends");
        if part.recv[0].address == 0 {
            continue;
        }
        let wrong = (0..end - 1).find(|&at| buffers.recv[at + 1] != byte(1 - me, nth, at));
        assert_eq!(wrong, None, "{what}");
    }
    assert!(!port.engine(id).is_empty());
    // Nobody lets go of memory that the other may still look at.
    meeting.meet().unwrap();
    port.release(id).unwrap();
}

/// One flow of 64 KiB that the other rank has joined, and a rank that does nothing more.
fn joined(other: &mut Other, ports: &mut Ports, buffers: &mut [Buffers]) -> ExchangeId {
    let spec = waiting();
    let parts = parts(&spec, 0, buffers);
    bind(ports.of(Transport::Shm), 0, &parts, spec.pace, other)
}

fn waiting() -> Spec {
    let (both, pace) = (false, RepeatMode::Streaming);
    Spec { wire: wire(Transport::Shm, "ping,memcpy+memcpy"), bytes: 65_536, both, pace }
}

#[test]
fn acts_as_a_rank_where_it_is_one() {
    let Ok(role) = std::env::var(ROLE) else {
        // Nobody asked: what is left to see is that what ranks tell each other arrives.
        assert_eq!(unhex(&hex(&[0, 255, 16])), [0, 255, 16]);
        return;
    };
    let mut inside = Inside;
    let address = inside.hear();
    match role.as_str() {
        "exchanges" => {
            let meeting = SharedMeeting::open(&address, Rank(1), LONG).unwrap();
            let mut ports = Ports::open(1, LONG);
            for spec in specs() {
                exchange(1, &mut ports, &spec, &meeting, &mut inside);
            }
            inside.tell("done");
        }
        "joins" => {
            let mut ports = Ports::open(1, LONG);
            let spec = waiting();
            let mut buffers = [Buffers::new(1, 0, spec.bytes as usize)];
            let parts = parts(&spec, 1, &mut buffers);
            bind(ports.of(Transport::Shm), 1, &parts, spec.pace, &mut inside);
            let _seat = SharedMeeting::open(&address, Rank(1), LONG).unwrap();
            inside.tell("joined");
            inside.hear();
        }
        rank => {
            let me = Rank(rank.parse().unwrap());
            let meeting = SharedMeeting::open(&address, me, LONG).unwrap();
            for _ in 0..ROUNDS {
                meeting.meet().unwrap();
            }
            inside.tell("done");
        }
    }
}

#[test]
fn every_byte_arrives_by_every_way_and_operation() {
    let room = MeetingRoom::create(2).unwrap();
    let mut other = Other::start("exchanges");
    other.tell(&room.address());
    let meeting = SharedMeeting::open(&room.address(), Rank(0), LONG).unwrap();
    let mut ports = Ports::open(0, LONG);
    for spec in specs() {
        exchange(0, &mut ports, &spec, &meeting, &mut other);
    }
    assert_eq!(other.hear(), "done");
}

const ROUNDS: u32 = 300;

#[test]
fn four_processes_meet_on_however_few_cores() {
    let room = MeetingRoom::create(4).unwrap();
    let mut others: Vec<Other> = (1..4).map(|rank| Other::start(&rank.to_string())).collect();
    for other in &mut others {
        other.tell(&room.address());
    }
    let meeting = SharedMeeting::open(&room.address(), Rank(0), LONG).unwrap();
    for _ in 0..ROUNDS {
        meeting.meet().unwrap();
    }
    // All others have come as often: none waits any more.
    for other in &mut others {
        assert_eq!(other.hear(), "done");
    }
}

/// Nobody meets: what the port itself does about a rank that does not come.
struct Nowhere;

impl RankBarrier for Nowhere {
    fn meet(&self) -> CallResult<()> {
        Ok(())
    }
}

#[test]
fn a_killed_rank_is_named_long_before_the_deadline() {
    let room = MeetingRoom::create(2).unwrap();
    let mut other = Other::start("joins");
    other.tell(&room.address());
    let mut ports = Ports::open(0, LONG);
    let mut buffers = [Buffers::new(0, 0, 65_536)];
    let id = joined(&mut other, &mut ports, &mut buffers);
    assert_eq!(other.hear(), "joined");
    let meeting = SharedMeeting::open(&room.address(), Rank(0), LONG).unwrap();
    other.child.kill().unwrap();
    let clock = pathline_live::live(pathline_schema::Topology::default()).clock;
    let begun = clock.now();
    // Not yet asked about, so a zombie, as the child of a launcher may be for long.
    let from_meeting = meeting.meet().unwrap_err().to_string();
    let from_port = ports.shm.run(id, 1, &Nowhere).unwrap_err().to_string();
    assert!(clock.now() - begun < Ns(30e9));
    let pid = other.child.id();
    for text in [&from_meeting, &from_port] {
        assert!(text.contains(&format!("rank 1 (process {pid})")), "{text}");
        assert!(text.contains("has ended"), "{text}");
    }
    let again = ports.shm.run(id, 1, &Nowhere).unwrap_err();
    assert!(again.reason.contains("an earlier run failed"), "{again}");
    ports.shm.release(id).unwrap();
}

#[test]
fn a_rank_that_hangs_is_named_at_the_deadline() {
    let room = MeetingRoom::create(2).unwrap();
    let mut other = Other::start("joins");
    other.tell(&room.address());
    let mut ports = Ports::open(0, Duration::from_millis(200));
    let mut buffers = [Buffers::new(0, 0, 65_536)];
    let id = joined(&mut other, &mut ports, &mut buffers);
    assert_eq!(other.hear(), "joined");
    let clock = pathline_live::live(pathline_schema::Topology::default()).clock;
    let begun = clock.now();
    let error = ports.shm.run(id, 1, &Nowhere).unwrap_err().to_string();
    assert!(clock.now() - begun >= Ns(200e6), "{error}");
    assert!(error.contains("nothing came within 0.2 s") && error.contains("rank 1"), "{error}");
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let mut ports = Ports::open(0, LONG);
    let mut buffers = [Buffers::new(0, 0, 64)];
    let spec = Spec { bytes: 64, ..waiting() };
    let good = parts(&spec, 0, &mut buffers);
    let mut refused = |change: &dyn Fn(&mut FlowPart), pace, reason: &str| {
        let mut parts = good.clone();
        change(&mut parts[0]);
        let error = ports.shm.bind(&parts, pace).unwrap_err();
        assert!(error.reason.contains(reason) && !error.way_out.is_empty(), "{error}");
    };
    let streaming = RepeatMode::Streaming;
    refused(&|_| {}, RepeatMode::Graph, "no graphs");
    refused(&|p| p.wire.op = WireOp::Put { window: 1 }, streaming, "does not do put-w1");
    refused(&|p| p.wire = wire(Transport::Cma, "ping,read"), streaming, "port of shm");
    refused(&|p| p.group[1].0 = Rank(0), streaming, "with itself");
    refused(&|p| p.group[1].1 = Unit::Gpu(0), streaming, "memory of the host");
    refused(&|p| p.group.push((Rank(2), Unit::Numa(0))), streaming, "group of 3");
    refused(&|p| p.send[0].bytes = 63, streaming, "63 B to send from");
    // An offer of another program, and an exchange that nobody bound.
    let (id, mine) = ports.shm.bind(&good, streaming).unwrap();
    let error = ports.shm.join(id, &[mine, b"nonsense".to_vec()]).unwrap_err();
    assert!(error.thing.contains("rank 1"), "{error}");
    let error = ports.shm.run(id, 1, &Nowhere).unwrap_err();
    assert!(error.reason.contains("nobody joined"), "{error}");
    ports.shm.release(id).unwrap();
    assert!(ports.shm.release(id).is_err());
}
