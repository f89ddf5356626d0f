//! Processes of one node that really are processes: this binary starts itself again as other ranks.
#![allow(clippy::unwrap_used, reason = "helpers of tests end with them")]
#![allow(clippy::print_stdout, reason = "ranks talk over their output")]

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use pathline_hal::conformance::transport::{
    HeapMemory, RankLink, TransportMemory, TransportRank, check_transport,
};
use pathline_hal::{
    CallResult, ExchangeId, FlowPart, LocalMemory, NoBarrier, RankBarrier, RepeatMode,
    TransportPort,
};
use pathline_schema::{MessageOp, Ns, Rank, Transport, Unit, WireOp};
use pathline_transport::{BarrierSegment, SharedBarrier, cma_port, shm_port};

const LONG: Duration = Duration::from_secs(60);
const ROLE: &str = "PATHLINE_TEST_ROLE";
const PREFIX: &str = "@rank ";

fn wire(via: Transport, text: &str) -> MessageOp {
    let mover = format!("{via}@numa0[{text}]");
    match mover.parse().unwrap() {
        pathline_schema::Mover::Wire { wire, .. } => wire,
        other => panic!("{other} is no wire"),
    }
}

/// Every copy method and every operation.
fn messages(via: Transport) -> Vec<MessageOp> {
    let all = |texts: &[String]| texts.iter().map(|text| wire(via, text)).collect();
    let ops = ["ping", "send-w3", "consume"];
    if via == Transport::Cma {
        let methods = ["read", "write"];
        let texts = ops.iter().flat_map(|op| methods.map(|method| format!("{op},{method}")));
        return all(&texts.collect::<Vec<_>>());
    }
    let hows =
        pathline_runner::live::live(pathline_schema::Topology::default()).host.instructions();
    // More messages than the ring has slots, so that every slot is used again.
    let mut texts = vec!["send-w100,memcpy+memcpy".to_owned()];
    texts.extend(ops.iter().map(|op| format!("{op},memcpy+memcpy")));
    for how in hows {
        texts.push(format!("ping,{how}+{how}"));
        texts.push(format!("consume,memcpy+{how}"));
    }
    all(&texts)
}

/// A part of 64 KiB between both ranks, as one of them has it.
fn part(me: u32, wire: MessageOp, bytes: u64, memory: &HeapMemory) -> FlowPart {
    let span = || LocalMemory { address: memory.alloc(Unit::Numa(0), bytes).unwrap(), bytes };
    FlowPart {
        wire,
        bytes,
        group: vec![(Rank(0), Unit::Numa(0)), (Rank(1), Unit::Numa(0))],
        positions: vec![me as usize],
        send: vec![span()],
        recv: vec![span()],
        device: Vec::new(),
    }
}

/// How ranks exchange their offers.
trait Wires {
    fn swap(&self, offer: &[u8]) -> Vec<u8>;
}

/// A rank's barrier with what carries offers.
struct RankLinks<'l> {
    me: u32,
    barrier: &'l SharedBarrier,
    wires: &'l dyn Wires,
}

impl RankBarrier for RankLinks<'_> {
    fn wait(&self) -> CallResult<()> {
        self.barrier.wait()
    }
}

impl RankLink for RankLinks<'_> {
    fn share(&self, mine: &[u8]) -> CallResult<Vec<Vec<u8>>> {
        let theirs = self.wires.swap(mine);
        let mine = mine.to_vec();
        Ok(if self.me == 0 { vec![mine, theirs] } else { vec![theirs, mine] })
    }
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
    stdin: RefCell<ChildStdin>,
    stdout: RefCell<BufReader<ChildStdout>>,
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
        let stdin = RefCell::new(child.stdin.take().unwrap());
        let stdout = RefCell::new(BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }
    fn tell(&self, text: &str) {
        writeln!(self.stdin.borrow_mut(), "{text}").unwrap();
    }
    fn hear(&self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.stdout.borrow_mut().read_line(&mut line).unwrap() > 0,
                "the other rank ended"
            );
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
    fn swap(&self, offer: &[u8]) -> Vec<u8> {
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
    fn swap(&self, offer: &[u8]) -> Vec<u8> {
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
    fn port(&mut self, via: Transport) -> &mut dyn TransportPort {
        if via == Transport::Cma { &mut *self.cma } else { &mut *self.shm }
    }
}

fn bind(
    port: &mut dyn TransportPort,
    me: u32,
    parts: &[FlowPart],
    pace: RepeatMode,
    other: &dyn Wires,
) -> ExchangeId {
    let (id, mine) = port.bind(parts, pace).unwrap();
    let theirs = other.swap(&mine);
    let offers = if me == 0 { [mine, theirs] } else { [theirs, mine] };
    port.join(id, &offers).unwrap();
    id
}

/// The checks of both ranks.
fn check(me: u32, barrier: &SharedBarrier, wires: &dyn Wires) {
    let (mut ports, memory) = (Ports::open(me, LONG), HeapMemory::new(1));
    let link = RankLinks { me, barrier, wires };
    let mut check = |via| {
        check_transport(&mut TransportRank {
            me: Rank(me),
            seats: vec![(Rank(0), Unit::Numa(0)), (Rank(1), Unit::Numa(0))],
            port: ports.port(via),
            memory: &memory,
            link: &link,
            messages: messages(via),
            atomics: Vec::new(),
            collectives: Vec::new(),
            modes: vec![RepeatMode::Streaming, RepeatMode::Isolated],
            // Below, at and above pieces and lines.
            sizes: vec![1, 8, 56, 57, 64, 2049, 8192, 100_003, (1 << 20) + 17],
        })
    };
    check(Transport::Shm).unwrap();
    check(Transport::Cma).unwrap();
}

/// One flow of 64 KiB that the other rank has joined, and a rank that does nothing more.
fn joined(other: &mut Other, ports: &mut Ports, memory: &HeapMemory) -> ExchangeId {
    let parts = [part(0, ping(), 65_536, memory)];
    bind(ports.port(Transport::Shm), 0, &parts, RepeatMode::Streaming, other)
}

fn ping() -> MessageOp {
    wire(Transport::Shm, "ping,memcpy+memcpy")
}

#[test]
fn acts_as_a_rank_where_it_is_one() {
    let Ok(role) = std::env::var(ROLE) else {
        // Nobody asked: what is left to see is that what ranks tell each other arrives.
        assert_eq!(unhex(&hex(&[0, 255, 16])), [0, 255, 16]);
        return;
    };
    let inside = Inside;
    let address = inside.hear();
    match role.as_str() {
        "exchanges" => {
            let barrier = SharedBarrier::open(&address, Rank(1), LONG).unwrap();
            check(1, &barrier, &inside);
            inside.tell("done");
        }
        "joins" => {
            let mut ports = Ports::open(1, LONG);
            let memory = HeapMemory::new(1);
            let parts = [part(1, ping(), 65_536, &memory)];
            bind(ports.port(Transport::Shm), 1, &parts, RepeatMode::Streaming, &inside);
            let _seat = SharedBarrier::open(&address, Rank(1), LONG).unwrap();
            inside.tell("joined");
            inside.hear();
        }
        rank => {
            let me = Rank(rank.parse().unwrap());
            let barrier = SharedBarrier::open(&address, me, LONG).unwrap();
            for _ in 0..ROUNDS {
                barrier.wait().unwrap();
            }
            inside.tell("done");
        }
    }
}

#[test]
fn every_byte_arrives_by_every_method_and_operation() {
    let room = BarrierSegment::create(2).unwrap();
    let other = Other::start("exchanges");
    other.tell(&room.address());
    let barrier = SharedBarrier::open(&room.address(), Rank(0), LONG).unwrap();
    check(0, &barrier, &other);
    assert_eq!(other.hear(), "done");
}

const ROUNDS: u32 = 300;

#[test]
fn four_processes_meet_on_however_few_cores() {
    let room = BarrierSegment::create(4).unwrap();
    let mut others: Vec<Other> = (1..4).map(|rank| Other::start(&rank.to_string())).collect();
    for other in &mut others {
        other.tell(&room.address());
    }
    let barrier = SharedBarrier::open(&room.address(), Rank(0), LONG).unwrap();
    for _ in 0..ROUNDS {
        barrier.wait().unwrap();
    }
    // All others have come as often: none waits any more.
    for other in &mut others {
        assert_eq!(other.hear(), "done");
    }
}

#[test]
fn a_killed_rank_is_named_long_before_the_deadline() {
    let room = BarrierSegment::create(2).unwrap();
    let mut other = Other::start("joins");
    other.tell(&room.address());
    let mut ports = Ports::open(0, LONG);
    let memory = HeapMemory::new(1);
    let id = joined(&mut other, &mut ports, &memory);
    assert_eq!(other.hear(), "joined");
    let barrier = SharedBarrier::open(&room.address(), Rank(0), LONG).unwrap();
    other.child.kill().unwrap();
    let clock = pathline_runner::live::live(pathline_schema::Topology::default()).clock;
    let begun = clock.now();
    // Not yet asked about, so a zombie, as the child of a launcher may be for long.
    let from_barrier = barrier.wait().unwrap_err().to_string();
    let from_port = ports.shm.run(id, 1, &NoBarrier).unwrap_err().to_string();
    assert!(clock.now() - begun < Ns(30e9));
    let pid = other.child.id();
    for text in [&from_barrier, &from_port] {
        assert!(text.contains(&format!("rank 1 (process {pid})")), "{text}");
        assert!(text.contains("has ended"), "{text}");
    }
    let again = ports.shm.run(id, 1, &NoBarrier).unwrap_err();
    assert!(again.reason.contains("an earlier run failed"), "{again}");
    ports.shm.release(id).unwrap();
}

#[test]
fn a_rank_that_hangs_is_named_at_the_deadline() {
    let room = BarrierSegment::create(2).unwrap();
    let mut other = Other::start("joins");
    other.tell(&room.address());
    let mut ports = Ports::open(0, Duration::from_millis(200));
    let memory = HeapMemory::new(1);
    let id = joined(&mut other, &mut ports, &memory);
    assert_eq!(other.hear(), "joined");
    let clock = pathline_runner::live::live(pathline_schema::Topology::default()).clock;
    let begun = clock.now();
    let error = ports.shm.run(id, 1, &NoBarrier).unwrap_err().to_string();
    assert!(clock.now() - begun >= Ns(200e6), "{error}");
    assert!(error.contains("nothing came within 0.2 s") && error.contains("rank 1"), "{error}");
}

#[test]
fn impossible_exchanges_are_refused_with_a_reason() {
    let mut ports = Ports::open(0, LONG);
    let memory = HeapMemory::new(1);
    let good = [part(0, ping(), 64, &memory)];
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
    refused(&|p| p.send[0].bytes = 63, streaming, "has a buffer of 63 B");
    // An offer of another program, and an exchange that nobody bound.
    let (id, mine) = ports.shm.bind(&good, streaming).unwrap();
    let error = ports.shm.join(id, &[mine, b"nonsense".to_vec()]).unwrap_err();
    assert!(error.thing.contains("rank 1"), "{error}");
    let error = ports.shm.run(id, 1, &NoBarrier).unwrap_err();
    assert!(error.reason.contains("was not joined"), "{error}");
    ports.shm.release(id).unwrap();
    assert!(ports.shm.release(id).is_err());
}
