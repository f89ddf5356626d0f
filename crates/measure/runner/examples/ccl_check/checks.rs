//! Operations of a library of collectives with the bytes that they are checked by. The tests over
//! libraries that stand in for it use them as well.

use pathline_hal::{CallResult, Driver, FlowPart, GroupLayout, LocalMemory, RankBarrier};
use pathline_schema::{
    Bytes, Collective, ElementReduction, ElementType, MessageOp, Rank, ReduceOp, Transport, Unit,
    WireOp,
};

/// Content of a spoilt destination.
const SPOILT: u64 = 0xdead;

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
///
/// # Panics
/// The operation has no form in place, or the bytes have no parts of whole elements for all GPUs.
pub(crate) fn collective(memory: &Memory<'_>, op: WireOp, bytes: u64) -> Check {
    let n = memory.a.len();
    let wire = MessageOp::new(Transport::Ccl, op);
    let (mut send, mut recv) = (Vec::new(), Vec::new());
    let (mut fill, mut expect) = (Vec::new(), Vec::new());
    for me in 0..n {
        let layout = match GroupLayout::new(&wire, me, n, bytes, 0) {
            Ok(layout) => layout,
            Err(why) => panic!("{op} of {bytes} B over {n} GPUs: {why}"),
        };
        let (a, b) =
            (memory.a[me], if layout.in_place.is_some() { memory.a[me] } else { memory.b[me] });
        let (send_at, recv_at) = layout.in_place.unwrap_or_default();
        let some = |at: u64, bytes: u64| span(if bytes > 0 { at } else { 0 }, bytes);
        send.push(some(a + send_at, layout.send));
        recv.push(some(b + recv_at, layout.recv));
        fill.extend(layout.fills.iter().map(|&(at, bytes, seed)| (a + at, bytes, seed)));
        expect.extend(layout.checks.iter().map(|&(at, bytes, seed)| (b + at, bytes, seed)));
    }
    Check {
        name: op.to_string(),
        parts: vec![part(memory, op, &(0..n).collect::<Vec<_>>(), bytes, (send, recv))],
        fill,
        expect,
        payload: bytes,
        factor: op.collective().map_or(1.0, |op| op.bus_factor(n)),
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
        let unit = 8 * if op.is_split() { memory.a.len() as u64 } else { 1 };
        (bytes / unit).max(1) * unit
    };
    let mut all = Vec::new();
    for &op in Collective::ALL.iter().filter(|&&op| op != Collective::Barrier) {
        let reduced = ElementReduction::USUAL;
        for in_place in [false, true] {
            if !in_place || op.has_in_place(Transport::Ccl) {
                let wire = WireOp::Group { op, reduced, in_place, unregistered: false };
                all.push(collective(memory, wire, whole(op)));
            }
        }
    }
    for &element in ElementType::ALL {
        for &by in ReduceOp::ALL {
            let exact = by != ReduceOp::Avg
                || element.float_format().is_none()
                || memory.a.len().is_power_of_two();
            if exact {
                let reduced = ElementReduction { element, by };
                let op = WireOp::reduction(Collective::AllReduce, reduced);
                all.push(collective(memory, op, whole(Collective::AllReduce)));
            }
        }
    }
    let send = |window| WireOp::Send { window };
    all.push(messages(memory, WireOp::Ping, false, bytes));
    all.push(messages(memory, send(1), false, bytes));
    all.push(messages(memory, send(16), false, bytes));
    all.push(messages(memory, send(1), true, bytes));
    all
}
