//! Requirements that every transport must meet: MPI, NCCL and RCCL, UCX, shared memory. All ranks
//! of a job run the checks together, in the same order.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};

use pathline_schema::{AtomicOp, Bytes, Collective, MessageOp, Rank, Unit, WireOp};

use super::CheckFailure;
use crate::group_layout::{GroupLayout, PatternRange};
use crate::ranks::{ExchangeId, FlowPart, LocalMemory, RankBarrier, RepeatMode, TransportPort};
use crate::{CallError, CallResult, Driver, pattern};

/// Bytes after each buffer that must stay unchanged.
const TAIL: u64 = 64;
/// Seed of memory that nothing has been received into.
const SPOILT: u64 = 0xdead;

/// Communication between ranks without the transport under test.
pub trait RankLink: RankBarrier {
    /// Exchanges data: returns what each rank passed, by rank.
    ///
    /// # Errors
    /// A rank does not arrive.
    fn share(&self, mine: &[u8]) -> CallResult<Vec<Vec<u8>>>;
}

/// Memory for send and receive buffers.
pub trait TransportMemory {
    /// Allocates memory of a unit.
    ///
    /// # Errors
    /// The unit has too little free memory.
    fn alloc(&self, unit: Unit, bytes: u64) -> CallResult<u64>;
    /// Frees memory.
    ///
    /// # Errors
    /// The runtime fails.
    fn free(&self, address: u64) -> CallResult<()>;
    /// Writes a pattern.
    ///
    /// # Errors
    /// The runtime fails.
    fn fill(&self, address: u64, bytes: u64, seed: u64) -> CallResult<()>;
    /// Offset of the first byte that differs from the pattern.
    ///
    /// # Errors
    /// The runtime fails.
    fn first_wrong(&self, address: u64, bytes: u64, seed: u64) -> CallResult<Option<u64>>;
}

impl TransportMemory for &dyn Driver {
    fn alloc(&self, unit: Unit, bytes: u64) -> CallResult<u64> {
        let place = pathline_schema::Place::new(unit, pathline_schema::MemKind::Vram);
        Driver::alloc(*self, place, Bytes(bytes))
    }
    fn free(&self, address: u64) -> CallResult<()> {
        Driver::free(*self, address)
    }
    fn fill(&self, address: u64, bytes: u64, seed: u64) -> CallResult<()> {
        Driver::fill(*self, address, Bytes(bytes), seed, false)
    }
    fn first_wrong(&self, address: u64, bytes: u64, seed: u64) -> CallResult<Option<u64>> {
        Driver::check(*self, address, Bytes(bytes), seed)
    }
}

/// Heap memory of this process, `offset` bytes after a 64-byte boundary.
#[derive(Debug)]
pub struct HeapMemory {
    offset: u64,
    buffers: RefCell<Vec<Box<[AtomicU8]>>>,
}

impl HeapMemory {
    /// Creates an allocator without buffers.
    pub fn new(offset: u64) -> Self {
        Self { offset, buffers: RefCell::default() }
    }

    /// Address of the first byte of a buffer's range.
    fn start(&self, buffer: &[AtomicU8]) -> u64 {
        (buffer.as_ptr().addr() as u64).next_multiple_of(64) + self.offset
    }

    /// Calls `act` with the bytes of a range.
    fn bytes<T>(&self, at: u64, len: u64, act: impl FnOnce(&[AtomicU8]) -> T) -> CallResult<T> {
        let buffers = self.buffers.borrow();
        let holds = |buffer: &[AtomicU8]| {
            let first = buffer.as_ptr().addr() as u64;
            at >= first && at + len <= first + buffer.len() as u64
        };
        let buffer = buffers.iter().find(|buffer| holds(buffer)).ok_or_else(|| {
            CallError::unsupported("range", format!("{at:#x}"), "no buffer lies there")
        })?;
        let from = (at - buffer.as_ptr().addr() as u64) as usize;
        Ok(act(&buffer[from..from + len as usize]))
    }
}

impl TransportMemory for HeapMemory {
    fn alloc(&self, _: Unit, bytes: u64) -> CallResult<u64> {
        let room = bytes + 64 + self.offset;
        let buffer: Box<[AtomicU8]> = (0..room).map(|_| AtomicU8::new(0)).collect();
        // Other processes and libraries write here.
        let _ = buffer.as_ptr().expose_provenance();
        let address = self.start(&buffer);
        self.buffers.borrow_mut().push(buffer);
        Ok(address)
    }
    fn free(&self, address: u64) -> CallResult<()> {
        self.buffers.borrow_mut().retain(|buffer| self.start(buffer) != address);
        Ok(())
    }
    fn fill(&self, address: u64, bytes: u64, seed: u64) -> CallResult<()> {
        let byte = |at: usize| pattern::byte(seed, at as u64);
        self.bytes(address, bytes, |all| {
            all.iter().enumerate().for_each(|(at, b)| b.store(byte(at), Ordering::Relaxed));
        })
    }
    fn first_wrong(&self, address: u64, bytes: u64, seed: u64) -> CallResult<Option<u64>> {
        let is_wrong = |(at, b): (usize, &AtomicU8)| {
            b.load(Ordering::Relaxed) != pattern::byte(seed, at as u64)
        };
        self.bytes(address, bytes, |all| {
            all.iter().enumerate().position(is_wrong).map(|at| at as u64)
        })
    }
}

/// A message or collective to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedFlow {
    /// The operation.
    pub wire: MessageOp,
    /// Payload in bytes, as in [`FlowPart::bytes`].
    pub bytes: u64,
    /// Positions in [`TransportRank::seats`]: sender and receiver, or all members of a collective,
    /// the root first.
    pub group: Vec<usize>,
}

impl CheckedFlow {
    /// A message between the first two seats, from the second to the first with `back`.
    pub fn message(wire: MessageOp, bytes: u64, back: bool) -> Self {
        let group = if back { vec![1, 0] } else { vec![0, 1] };
        Self { wire, bytes, group }
    }

    /// A collective of all seats.
    pub fn collective(wire: MessageOp, bytes: u64, seats: usize) -> Self {
        Self { wire, bytes, group: (0..seats).collect() }
    }
}

/// A pattern in memory: address, bytes, seed.
type PatternSpan = (u64, u64, u64);

/// Buffers of some flows, with the patterns written before and expected afterwards.
#[derive(Debug, Default)]
struct CheckedBuffers {
    parts: Vec<FlowPart>,
    memory: Vec<u64>,
    fill: Vec<PatternSpan>,
    expect: Vec<PatternSpan>,
}

/// The result of an exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeReport {
    /// Times of each flow, in ns.
    pub times: Vec<Vec<f64>>,
    /// The engine that carried the bytes.
    pub engine: String,
}

/// One rank of a job that checks a transport.
pub struct TransportRank<'m> {
    /// This process.
    pub me: Rank,
    /// Processes, each with the unit whose memory it uses. A process with several GPUs has one
    /// entry for each.
    pub seats: Vec<(Rank, Unit)>,
    /// The port under test.
    pub port: &'m mut dyn TransportPort,
    /// Memory of this process's units.
    pub memory: &'m dyn TransportMemory,
    /// Communication with the other ranks.
    pub link: &'m dyn RankLink,
    /// Messages that the transport supports.
    pub messages: Vec<MessageOp>,
    /// Atomic operations that the transport supports.
    pub atomics: Vec<MessageOp>,
    /// Collectives that the transport supports.
    pub collectives: Vec<MessageOp>,
    /// Supported modes of repetition.
    pub modes: Vec<RepeatMode>,
    /// Sizes of messages, in bytes.
    pub sizes: Vec<u64>,
}

/// Runs all checks up to the first failure: a rank that continued would wait for one that did not.
///
/// # Errors
/// The name of the check, and the reason.
pub fn check_transport(rank: &mut TransportRank<'_>) -> Result<(), CheckFailure> {
    type RankCheck = (&'static str, fn(&mut TransportRank<'_>) -> Result<(), CheckFailure>);
    const CHECKS: [RankCheck; 6] = [
        ("messages arrive", |rank| rank.messages_arrive()),
        ("atomic operations are done once", |rank| rank.atomics_are_done_once()),
        ("messages that cross arrive", |rank| rank.crossing_messages_arrive()),
        ("collectives arrive", |rank| rank.collectives_arrive()),
        ("a part of others takes no time", |rank| rank.idle_part()),
        ("what cannot be is refused", |rank| rank.refusals()),
    ];
    let transport = rank.port.via();
    for (name, check) in CHECKS {
        check(rank).map_err(|why| CheckFailure(format!("{transport}: {name}: {why}")))?;
    }
    Ok(())
}

/// Whether this end of a one-sided operation is passive.
fn is_passive(op: WireOp, position: usize) -> bool {
    match op {
        WireOp::Put { .. } | WireOp::Atomic(_) => position == 1,
        WireOp::Get { .. } => position == 0,
        _ => false,
    }
}

impl TransportRank<'_> {
    fn buffer(&self, buffers: &mut CheckedBuffers, unit: Unit, bytes: u64) -> CallResult<u64> {
        let at = self.memory.alloc(unit, bytes + TAIL)?;
        buffers.memory.push(at);
        for range in [(at, bytes, SPOILT), (at + bytes, TAIL, SPOILT)] {
            buffers.fill.push(range);
        }
        buffers.expect.push((at + bytes, TAIL, SPOILT));
        Ok(at)
    }

    /// Adds a flow with two buffers for each seat of this process.
    fn add(&self, buffers: &mut CheckedBuffers, nth: usize, flow: &CheckedFlow) -> CallResult<()> {
        let group: Vec<_> = flow.group.iter().map(|&seat| self.seats[seat]).collect();
        let mine = (0..group.len()).filter(|&at| group[at].0 == self.me).collect::<Vec<_>>();
        let (mut send, mut recv) = (Vec::new(), Vec::new());
        for &at in &mine {
            let unit = group[at].1;
            let from = self.buffer(buffers, unit, flow.bytes)?;
            let into = self.buffer(buffers, unit, flow.bytes)?;
            let ends = match (flow.wire.op, flow.wire.op.collective()) {
                (_, Some(_)) => {
                    collective_ends(buffers, flow, (nth, at, group.len()), (from, into))?
                }
                (WireOp::Atomic(op), _) => atomic_ends(buffers, flow, op, at, (from, into)),
                (op, None) => message_ends(buffers, flow, op, (nth, at), (from, into)),
            };
            send.push(ends.0);
            recv.push(ends.1);
        }
        let device = mine.iter().map(|&at| group[at].1.gpu().is_some()).collect();
        let (wire, bytes) = (flow.wire, flow.bytes);
        buffers.parts.push(FlowPart { wire, bytes, group, positions: mine, send, recv, device });
        Ok(())
    }

    fn prepare(&self, flows: &[CheckedFlow]) -> CallResult<CheckedBuffers> {
        let mut buffers = CheckedBuffers::default();
        flows.iter().enumerate().try_for_each(|(nth, flow)| self.add(&mut buffers, nth, flow))?;
        Ok(buffers)
    }

    fn run_bound(
        &mut self,
        id: ExchangeId,
        offer: &[u8],
        buffers: &CheckedBuffers,
        reps: u64,
    ) -> Result<ExchangeReport, CheckFailure> {
        let offers = self.link.share(offer)?;
        self.port.join(id, &offers)?;
        // Connecting may have moved bytes.
        for &(at, bytes, seed) in &buffers.fill {
            self.memory.fill(at, bytes, seed)?;
        }
        self.link.wait()?;
        let times = self.port.run(id, reps, self.link)?;
        let engine = self.port.engine(id);
        self.link.wait()?;
        Ok(ExchangeReport { times, engine })
    }

    /// Binds flows, runs them `reps` times, compares every byte of every buffer, and releases them.
    ///
    /// # Errors
    /// The failed call, or the wrong byte.
    pub fn exchange(
        &mut self,
        flows: &[CheckedFlow],
        mode: RepeatMode,
        reps: u64,
    ) -> Result<ExchangeReport, CheckFailure> {
        let buffers = self.prepare(flows)?;
        let (id, offer) = self.port.bind(&buffers.parts, mode)?;
        let outcome = self.run_bound(id, &offer, &buffers, reps);
        self.port.release(id)?;
        let report = outcome?;
        let about = |text: &mut String| {
            for flow in flows {
                let _ = write!(text, " {} x {} B,", flow.wire, flow.bytes);
            }
            let _ = write!(text, " {mode:?}, rank {}", self.me.0);
        };
        for &(at, bytes, seed) in &buffers.expect {
            if let Some(offset) = self.memory.first_wrong(at, bytes, seed)? {
                let mut text = format!("byte {offset} of {bytes} is wrong:");
                about(&mut text);
                return Err(CheckFailure(text));
            }
        }
        for part in &buffers.parts {
            let of = report.times.get(buffers.parts.iter().position(|p| p == part).unwrap_or(0));
            let times = of.map_or(&[][..], Vec::as_slice);
            let active = part.positions.iter().any(|&at| !is_passive(part.wire.op, at));
            let each = if mode == RepeatMode::Isolated { reps as usize } else { 1 };
            let count = if active { each } else { 0 };
            if times.len() != count || times.iter().any(|&ns| ns <= 0.0 || !ns.is_finite()) {
                let mut text = format!("{count} positive times are expected, not {times:?}:");
                about(&mut text);
                return Err(CheckFailure(text));
            }
        }
        if report.engine.is_empty() && buffers.parts.iter().any(|part| !part.is_idle()) {
            return Err(CheckFailure("it does not report what carried the bytes".to_owned()));
        }
        buffers.memory.iter().try_for_each(|&at| self.memory.free(at))?;
        Ok(report)
    }

    fn in_all_modes(&mut self, flows: &[CheckedFlow]) -> Result<(), CheckFailure> {
        for mode in self.modes.clone() {
            // In place, a second repetition works on the result of the first.
            let in_place =
                |f: &CheckedFlow| matches!(f.wire.op, WireOp::Group { in_place: true, .. });
            let reps = if flows.iter().any(in_place) { 1 } else { 3 };
            self.exchange(flows, mode, reps)?;
        }
        Ok(())
    }

    fn messages_arrive(&mut self) -> Result<(), CheckFailure> {
        for (wire, bytes) in self.products() {
            self.in_all_modes(&[CheckedFlow::message(wire, bytes, false)])?;
        }
        Ok(())
    }

    /// Sums and swaps change their target in each repetition, so each is run once.
    fn atomics_are_done_once(&mut self) -> Result<(), CheckFailure> {
        for wire in self.atomics.clone() {
            let WireOp::Atomic(op) = wire.op else { continue };
            let sizes: &[u64] = if op.is_of_one_word() { &[8] } else { &[8, 4096] };
            for &bytes in sizes {
                let flow = [CheckedFlow::message(wire, bytes, false)];
                self.exchange(&flow, RepeatMode::Streaming, 1)?;
            }
        }
        Ok(())
    }

    fn products(&self) -> Vec<(MessageOp, u64)> {
        let sizes = |&wire: &MessageOp| self.sizes.iter().map(move |&bytes| (wire, bytes));
        self.messages.iter().flat_map(sizes).collect()
    }

    fn crossing_messages_arrive(&mut self) -> Result<(), CheckFailure> {
        for (wire, bytes) in self.products() {
            // A consumer cannot be a source at the same time, and persistent messages are timed
            // alone.
            let alone = [WireOp::Consume, WireOp::PersistentPing].contains(&wire.op);
            if alone || matches!(wire.op, WireOp::PersistentSend { .. }) {
                continue;
            }
            let flows = [false, true].map(|back| CheckedFlow::message(wire, bytes, back));
            self.exchange(&flows, RepeatMode::Streaming, 3)?;
        }
        Ok(())
    }

    fn collectives_arrive(&mut self) -> Result<(), CheckFailure> {
        let n = self.seats.len();
        for wire in self.collectives.clone() {
            let Some(op) = wire.op.collective() else { continue };
            let flow = |words: u64| {
                let bytes = if op == Collective::Barrier { 1 } else { words * 8 * n as u64 };
                [CheckedFlow::collective(wire, bytes, n)]
            };
            self.exchange(&flow(1), RepeatMode::Streaming, 1)?;
            self.exchange(&flow(8192), RepeatMode::Streaming, 1)?;
            // 15 words for each member, which no power of two divides.
            self.in_all_modes(&flow(15))?;
        }
        Ok(())
    }

    /// Every process receives every part, also parts of other processes.
    fn idle_part(&mut self) -> Result<(), CheckFailure> {
        let Some(&wire) = self.messages.first() else { return Ok(()) };
        let ends = [self.seats[0].0, self.seats[1].0];
        if self.seats.iter().all(|(rank, _)| ends.contains(rank)) {
            return Ok(());
        }
        self.in_all_modes(&[CheckedFlow::message(wire, self.sizes[0], false)])
    }

    fn refusals(&mut self) -> Result<(), CheckFailure> {
        let nobody = ExchangeId(u64::MAX);
        let unbound = [
            self.port.join(nobody, &[]).err(),
            self.port.run(nobody, 1, &crate::NoBarrier).err(),
            self.port.release(nobody).err(),
        ];
        if unbound.iter().any(Option::is_none) {
            return Err(CheckFailure(format!("an exchange that was never bound: {unbound:?}")));
        }
        let Some(&wire) = self.messages.iter().find(|m| matches!(m.op, WireOp::Send { .. })) else {
            return Ok(());
        };
        let buffers = self.prepare(&[CheckedFlow::message(wire, 64, false)])?;
        let mut short = buffers.parts.clone();
        for part in &mut short {
            let spans = part.send.iter_mut().chain(&mut part.recv);
            spans.filter(|span| span.address != 0).for_each(|span| span.bytes = 63);
        }
        let takes_part = short.iter().any(|part| !part.is_idle());
        if takes_part && let Ok((id, _)) = self.port.bind(&short, RepeatMode::Streaming) {
            self.port.release(id)?;
            return Err(CheckFailure("a buffer of 63 B is taken for 64 B".to_owned()));
        }
        buffers.memory.iter().try_for_each(|&at| self.memory.free(at))?;
        Ok(())
    }
}

/// Both ends of a ping have both buffers; otherwise each end has its own.
fn message_ends(
    buffers: &mut CheckedBuffers,
    flow: &CheckedFlow,
    op: WireOp,
    (nth, at): (usize, usize),
    (from, into): (u64, u64),
) -> (LocalMemory, LocalMemory) {
    let both = op.is_ping();
    let seed = |position: usize| 1000 * (nth as u64 + 1) + position as u64;
    let bytes = flow.bytes;
    let span = |has: bool, address: u64| LocalMemory {
        address: if has { address } else { 0 },
        bytes: if has { bytes } else { 0 },
    };
    let (sends, receives) = (both || at == 0, both || at == 1);
    buffers.fill.push((from, bytes, seed(at)));
    // Send memory stays unchanged.
    buffers.expect.push((from, bytes, seed(at)));
    let arrives = if receives { seed(1 - at) } else { SPOILT };
    buffers.expect.push((into, bytes, arrives));
    (span(sends, from), span(receives, into))
}

/// Source and fetched content of the origin of an atomic operation (`at` 0), or its target, which
/// holds zeros before all but a swap.
fn atomic_ends(
    buffers: &mut CheckedBuffers,
    flow: &CheckedFlow,
    op: AtomicOp,
    at: usize,
    (from, into): (u64, u64),
) -> (LocalMemory, LocalMemory) {
    const NEW: u64 = 21;
    let old = if op == AtomicOp::Swap { 22 } else { pattern::ZERO_SEED };
    let bytes = flow.bytes;
    let (span, none) = (|address| LocalMemory { address, bytes }, LocalMemory::default());
    let CheckedBuffers { fill, expect, .. } = buffers;
    if at > 0 {
        fill.push((into, bytes, old));
        expect.push((into, bytes, NEW));
        return (none, span(into));
    }
    fill.push((from, bytes, NEW));
    expect.push((from, bytes, NEW));
    expect.push((into, bytes, if op.fetches() { old } else { SPOILT }));
    (span(from), if op.fetches() { span(into) } else { none })
}

/// Send and receive buffers of a seat of a collective.
fn collective_ends(
    buffers: &mut CheckedBuffers,
    flow: &CheckedFlow,
    (nth, me, n): (usize, usize, usize),
    (from, into): (u64, u64),
) -> CallResult<(LocalMemory, LocalMemory)> {
    let layout = GroupLayout::new(&flow.wire, me, n, flow.bytes, nth)
        .map_err(|why| CallError::unsupported("bind", flow.wire.to_string(), why))?;
    let GroupLayout { send, recv, fills, checks, in_place } = layout;
    let into = if in_place.is_some() { from } else { into };
    let at = |base: u64, &(offset, bytes, seed): &PatternRange| (base + offset, bytes, seed);
    buffers.fill.extend(fills.iter().map(|range| at(from, range)));
    buffers.expect.extend(checks.iter().map(|range| at(into, range)));
    let span = |address: u64, bytes: u64| match bytes {
        0 => LocalMemory::default(),
        _ => LocalMemory { address, bytes },
    };
    let (send_at, recv_at) = in_place.unwrap_or_default();
    Ok((span(from + send_at, send), span(into + recv_at, recv)))
}
