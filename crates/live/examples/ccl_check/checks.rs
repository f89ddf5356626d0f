//! Operations of a library of collectives with the bytes that they are checked by. The tests over
//! libraries that stand in for it use them as well.

use pathline_hal::{CallResult, Driver, FlowPart, LocalMemory, RankBarrier};
use pathline_schema::{Bytes, Collective, MessageOp, Rank, Transport, Unit, WireOp};

/// Content of a spoilt destination.
const SPOILT: u64 = 0xdead;
/// The pattern of zeroes, which adds nothing to a sum.
const ZERO: u64 = pathline_hal::pattern::ZERO_SEED;

/// A barrier of one process.
pub(crate) struct Alone;
impl RankBarrier for Alone {
    fn wait(&self) -> CallResult<()> {
        Ok(())
    }
}

/// Two buffers on each GPU.
pub(crate) struct Memory<'m> {
    /// The runtime.
    pub(crate) driver: &'m dyn Driver,
    /// Numbers of the GPUs.
    pub(crate) gpus: Vec<u32>,
    /// Send buffers.
    pub(crate) a: Vec<u64>,
    /// Receive buffers.
    pub(crate) b: Vec<u64>,
}

/// An operation with what it is checked by.
pub(crate) struct Check {
    /// The operation, in words.
    pub(crate) name: String,
    /// The bound parts.
    pub(crate) parts: Vec<FlowPart>,
    /// Fills before the exchange: address, bytes, seed.
    pub(crate) fill: Vec<(u64, u64, u64)>,
    /// Expected content afterwards: address, bytes, seed.
    pub(crate) expect: Vec<(u64, u64, u64)>,
    /// Bytes of a repetition.
    pub(crate) payload: u64,
    /// That from bytes to those of the bus.
    pub(crate) factor: f64,
}

fn span(address: u64, bytes: u64) -> LocalMemory {
    LocalMemory { address, bytes }
}

/// A collective of all GPUs.
pub(crate) fn collective(memory: &Memory<'_>, op: Collective, in_place: bool, bytes: u64) -> Check {
    let n = memory.a.len();
    let each = bytes / n as u64;
    let (mut send, mut recv) = (Vec::new(), Vec::new());
    let (mut fill, mut expect) = (Vec::new(), Vec::new());
    let part_of = |base: u64, part: usize| base + part as u64 * each;
    for me in 0..n {
        let (a, b) = (memory.a[me], memory.b[me]);
        // One rank brings the pattern to a sum, the others zeroes.
        let brings = |seed: u64| if me == n - 1 { seed } else { ZERO };
        let into = if in_place { a } else { b };
        match op {
            Collective::Broadcast => {
                send.push(span(if me == 0 { a } else { 0 }, bytes));
                recv.push(span(if me == 0 { 0 } else { b }, bytes));
                if me == 0 {
                    fill.push((a, bytes, 5));
                } else {
                    expect.push((b, bytes, 5));
                }
            }
            Collective::Reduce | Collective::AllReduce => {
                let gets = me == 0 || op == Collective::AllReduce;
                send.push(span(a, bytes));
                recv.push(span(if gets { into } else { 0 }, bytes));
                fill.push((a, bytes, brings(5)));
                if gets {
                    expect.push((into, bytes, 5));
                }
            }
            Collective::ReduceScatter => {
                let into = if in_place { part_of(a, me) } else { b };
                send.push(span(a, bytes));
                recv.push(span(into, each));
                fill.extend((0..n).map(|p| (part_of(a, p), each, brings(10 + p as u64))));
                expect.push((into, each, 10 + me as u64));
            }
            Collective::AllGather => {
                let from = if in_place { part_of(a, me) } else { a };
                send.push(span(from, each));
                recv.push(span(into, bytes));
                fill.push((from, each, 10 + me as u64));
                expect.extend((0..n).map(|p| (part_of(into, p), each, 10 + p as u64)));
            }
            Collective::AllToAll | Collective::Barrier => {
                send.push(span(a, bytes));
                recv.push(span(b, bytes));
                let seed = |from: usize, to: usize| 100 + (from * n + to) as u64;
                fill.extend((0..n).map(|p| (part_of(a, p), each, seed(me, p))));
                expect.extend((0..n).map(|p| (part_of(b, p), each, seed(p, me))));
            }
        }
    }
    let op_of = WireOp::Group { op, in_place, unregistered: false };
    Check {
        name: op_of.to_string(),
        parts: vec![part(memory, op_of, &(0..n).collect::<Vec<_>>(), bytes, (send, recv))],
        fill,
        expect,
        payload: bytes,
        factor: op.bus_factor(n),
    }
}

fn part(
    memory: &Memory<'_>,
    op: WireOp,
    who: &[usize],
    bytes: u64,
    (send, recv): (Vec<LocalMemory>, Vec<LocalMemory>),
) -> FlowPart {
    let group: Vec<_> = who.iter().map(|&g| (Rank(0), Unit::Gpu(memory.gpus[g]))).collect();
    let mine = (0..group.len()).collect();
    FlowPart {
        wire: MessageOp::new(Transport::Ccl, op),
        bytes,
        group,
        positions: mine,
        send,
        recv,
        device: vec![true],
    }
}

/// Messages between the first two.
pub(crate) fn messages(memory: &Memory<'_>, op: WireOp, both: bool, bytes: u64) -> Check {
    let (a, b) = (&memory.a, &memory.b);
    let ping = op == WireOp::Ping;
    let one = |from: usize, to: usize| {
        let back = if ping { b[from] } else { 0 };
        let send = vec![span(a[from], bytes), span(if ping { a[to] } else { 0 }, bytes)];
        let recv = vec![span(back, bytes), span(b[to], bytes)];
        part(memory, op, &[from, to], bytes, (send, recv))
    };
    let mut parts = vec![one(0, 1)];
    let (mut fill, mut expect) = (vec![(a[0], bytes, 20)], vec![(b[1], bytes, 20)]);
    if both {
        parts.push(one(1, 0));
    }
    if both || ping {
        fill.push((a[1], bytes, 21));
        expect.push((b[0], bytes, 21));
    }
    let directions = if both { 2 } else { 1 };
    let name = if both { format!("{op}, both ways") } else { op.to_string() };
    let payload = bytes * u64::from(op.window()) * directions;
    Check { name, parts, fill, expect, payload, factor: 1.0 }
}

/// Writes what is sent, and spoils what is received.
pub(crate) fn lay(memory: &Memory<'_>, check: &Check) -> CallResult<()> {
    for &(address, bytes, _) in &check.expect {
        memory.driver.fill(address, Bytes(bytes), SPOILT, false)?;
    }
    check
        .fill
        .iter()
        .try_for_each(|&(at, bytes, seed)| memory.driver.fill(at, Bytes(bytes), seed, false))
}

/// The first error in the received bytes.
pub(crate) fn wrong(memory: &Memory<'_>, check: &Check) -> CallResult<Option<String>> {
    for &(address, bytes, seed) in &check.expect {
        if let Some(offset) = memory.driver.check(address, Bytes(bytes), seed)? {
            return Ok(Some(format!("WRONG: byte {offset} of {}", Bytes(bytes))));
        }
    }
    Ok(None)
}

/// All of them, of about that many bytes.
pub(crate) fn all(memory: &Memory<'_>, bytes: u64) -> Vec<Check> {
    let whole = |op: Collective| {
        let parts = match op {
            Collective::Broadcast | Collective::Reduce | Collective::AllReduce => 1,
            _ => memory.a.len() as u64,
        };
        (bytes / (8 * parts)).max(1) * 8 * parts
    };
    let mut all = Vec::new();
    for &op in Collective::ALL.iter().filter(|&&op| op != Collective::Barrier) {
        all.push(collective(memory, op, false, whole(op)));
        if matches!(op, Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter) {
            all.push(collective(memory, op, true, whole(op)));
        }
    }
    let send = |window| WireOp::Send { window };
    all.push(messages(memory, WireOp::Ping, false, bytes));
    all.push(messages(memory, send(1), false, bytes));
    all.push(messages(memory, send(16), false, bytes));
    all.push(messages(memory, send(1), true, bytes));
    all
}
