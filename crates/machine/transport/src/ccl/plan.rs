//! The library calls of each GPU of this process, computed from the parts of a case. Pure: uses no
//! device.

use std::collections::BTreeSet;

use pathline_hal::{CallError, CallResult, FlowPart, LocalMemory};
use pathline_schema::{Bytes, Collective, ElementReduction, Rank, Unit, WireOp};

/// The members of a communicator, in rank order.
pub(super) type CommGroup = Vec<(Rank, Unit)>;

/// One call of the library. Peers and roots are ranks of the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CclCall {
    Send {
        to: i32,
        at: u64,
        bytes: u64,
    },
    Recv {
        from: i32,
        at: u64,
        bytes: u64,
    },
    /// An address that the library reads on the root only is 0 elsewhere.
    Group {
        op: Collective,
        send: u64,
        recv: u64,
        /// Of the whole, or of each part where ranks have parts: what the library counts.
        bytes: u64,
        reduced: ElementReduction,
    },
}

/// The operations of one GPU in each repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GpuSteps {
    pub(super) gpu: u32,
    /// Its group, by its place in [`CclPlan::groups`].
    pub(super) group: usize,
    /// Its rank in that group.
    pub(super) rank: i32,
    /// Sets of calls. Each set is one group call; sets run in order.
    pub(super) steps: Vec<Vec<CclCall>>,
    /// Its send and receive buffers, to be registered.
    pub(super) spans: Vec<LocalMemory>,
}

/// The operations of this process in an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CclPlan {
    /// All groups of the exchange, including groups without this process.
    pub(super) groups: Vec<CommGroup>,
    /// The GPUs of this process that take part.
    pub(super) seats: Vec<GpuSteps>,
    /// For each part, the participating GPUs as indices into `seats`.
    pub(super) parts: Vec<Vec<usize>>,
    /// For each group, whether its first member belongs to this process.
    pub(super) leads: Vec<bool>,
    /// Payload bytes of a repetition, for timeouts.
    pub(super) bytes: u64,
}

fn refused(what: impl Into<String>, why: &str, way_out: &str) -> CallError {
    CallError::unsupported("bind", what, why).or_try(way_out)
}

fn name((rank, unit): (Rank, Unit)) -> String {
    format!("r{}.{unit}", rank.0)
}

/// A group as text.
pub(super) fn named(group: &CommGroup) -> String {
    let all: Vec<String> = group.iter().map(|&member| name(member)).collect();
    all.join(", ")
}

/// Whether the buffers of a part are registered if the library can.
pub(super) fn registers(part: &FlowPart) -> bool {
    !matches!(part.wire.op, WireOp::Group { unregistered: true, .. })
}

/// All messages of a case use one communicator of all senders and receivers: their calls then form
/// one group call, which starts them together.
fn of_messages(parts: &[FlowPart]) -> CommGroup {
    let messages = parts.iter().filter(|p| p.collective().is_none());
    let all: BTreeSet<(Rank, Unit)> = messages.flat_map(|p| p.group.iter().copied()).collect();
    all.into_iter().collect()
}

/// Plans an exchange.
pub(super) fn build(parts: &[FlowPart]) -> CallResult<CclPlan> {
    let messages = of_messages(parts);
    let mut plan = CclPlan {
        groups: Vec::new(),
        seats: Vec::new(),
        parts: Vec::new(),
        leads: Vec::new(),
        bytes: 0,
    };
    let mut mine = BTreeSet::new();
    for part in parts {
        let distinct: BTreeSet<_> = part.group.iter().collect();
        if distinct.len() != part.group.len() || part.group.len() < 2 {
            let why = "a communicator takes at least two GPUs, each once";
            return Err(refused(named(&part.group), why, "name different GPUs"));
        }
        let group = if part.collective().is_some() { &part.group } else { &messages };
        let at = plan.groups.iter().position(|g| g == group).unwrap_or_else(|| {
            plan.groups.push(group.clone());
            plan.groups.len() - 1
        });
        plan.bytes += part.bytes * u64::from(part.wire.op.window());
        let mut seats = Vec::new();
        for (nth, &position) in part.positions.iter().enumerate() {
            let member = *part.group.get(position).ok_or_else(|| {
                refused(format!("position {position}"), "the group has no such position", "")
            })?;
            mine.insert(member);
            let seat = plan.seat(member, at)?;
            seats.push(seat);
            let none = LocalMemory::default();
            let ends = (
                part.send.get(nth).copied().unwrap_or(none),
                part.recv.get(nth).copied().unwrap_or(none),
            );
            let peers = |who: (Rank, Unit)| {
                group.iter().position(|g| *g == who).and_then(|at| i32::try_from(at).ok())
            };
            let steps = steps(part, position, ends, &peers)?;
            let seat = &mut plan.seats[seat];
            for (nth, step) in steps.into_iter().enumerate() {
                if seat.steps.len() <= nth {
                    seat.steps.push(Vec::new());
                }
                seat.steps[nth].extend(step);
            }
            let used = [ends.0, ends.1].into_iter().filter(|s| s.address != 0 && s.bytes > 0);
            if registers(part) {
                seat.spans.extend(used);
            }
        }
        plan.parts.push(seats);
    }
    plan.leads = plan.groups.iter().map(|g| g.first().is_some_and(|f| mine.contains(f))).collect();
    Ok(plan)
}

impl CclPlan {
    /// The entry of a GPU of this process, created on first use.
    fn seat(&mut self, member: (Rank, Unit), group: usize) -> CallResult<usize> {
        let Unit::Gpu(gpu) = member.1 else {
            let why = "NCCL and RCCL move memory of GPUs";
            return Err(refused(name(member), why, "mpi, ucx and shm move memory of the host"));
        };
        let known = self.seats.iter().position(|s| s.gpu == gpu);
        if let Some(at) = known {
            if self.seats[at].group != group {
                let why = "it would be in two communicators at once, whose kernels may wait for each other for ever";
                return Err(refused(name(member), why, "measure them one after the other"));
            }
            return Ok(at);
        }
        let rank = self.groups[group].iter().position(|m| *m == member).unwrap_or(0);
        let rank = i32::try_from(rank).unwrap_or(i32::MAX);
        self.seats.push(GpuSteps { gpu, group, rank, steps: Vec::new(), spans: Vec::new() });
        Ok(self.seats.len() - 1)
    }
}

/// The address of a buffer that must hold `bytes`.
fn end(part: &FlowPart, span: LocalMemory, bytes: u64, what: &str) -> CallResult<u64> {
    if span.address == 0 || span.bytes < bytes {
        let thing = format!("{} of {}", part.wire, Bytes(part.bytes));
        let why = format!("what it {what} has {} and needs {}", Bytes(span.bytes), Bytes(bytes));
        return Err(refused(thing, &why, ""));
    }
    Ok(span.address)
}

/// The calls of a member of a part.
fn steps(
    part: &FlowPart,
    position: usize,
    (send, recv): (LocalMemory, LocalMemory),
    rank_of: &dyn Fn((Rank, Unit)) -> Option<i32>,
) -> CallResult<Vec<Vec<CclCall>>> {
    let bytes = part.bytes;
    let thing = || format!("{} of {}", part.wire, Bytes(bytes));
    let from = || end(part, send, bytes, "sends from");
    let into = || end(part, recv, bytes, "receives into");
    if matches!(part.wire.op, WireOp::Overlapped { .. } | WireOp::PersistentGroup { .. }) {
        let why = "its calls return at once, and nothing sets them up in advance";
        return Err(refused(thing(), why, "measure it by mpi"));
    }
    if let Some(op) = part.collective() {
        return collective(part, op, position, (send, recv)).map(|acts| vec![acts]);
    }
    let (sends, peer) = match (position, &part.group[..]) {
        (0, &[_, to]) => (true, rank_of(to)),
        (1, &[from, _]) => (false, rank_of(from)),
        _ => return Err(refused(thing(), "a message needs two members", "")),
    };
    let peer = peer.ok_or_else(|| refused(thing(), "its peer is in no group", ""))?;
    match (part.wire.op, sends) {
        (WireOp::Ping, _) => {
            let send = CclCall::Send { to: peer, at: from()?, bytes };
            let recv = CclCall::Recv { from: peer, at: into()?, bytes };
            Ok(if sends { vec![vec![send], vec![recv]] } else { vec![vec![recv], vec![send]] })
        }
        (WireOp::Send { window }, true) => {
            Ok(vec![vec![CclCall::Send { to: peer, at: from()?, bytes }; window as usize]])
        }
        (WireOp::Send { window }, false) => {
            Ok(vec![vec![CclCall::Recv { from: peer, at: into()?, bytes }; window as usize]])
        }
        _ => Err(refused(
            thing(),
            "NCCL and RCCL have two-sided messages and collectives only",
            "ucx and mpi put and get",
        )),
    }
}

/// The calls of a collective: one, or for uneven parts the messages that make it up.
fn collective(
    part: &FlowPart,
    op: Collective,
    position: usize,
    (send, recv): (LocalMemory, LocalMemory),
) -> CallResult<Vec<CclCall>> {
    let (bytes, n, root) = (part.bytes, part.group.len(), position == 0);
    let reduced = part.wire.op.reduced();
    let thing = || format!("{} of {}", part.wire, Bytes(bytes));
    if op == Collective::Barrier {
        let why = "NCCL and RCCL have no barrier";
        return Err(refused(thing(), why, "all_reduce of 8 B is the nearest thing"));
    }
    let unit = op.unit_bytes(n, reduced);
    if bytes == 0 || !bytes.is_multiple_of(unit) {
        let why = format!("{} is no multiple of {unit} B", Bytes(bytes));
        return Err(refused(thing(), &why, "elements are whole, and parts are equal"));
    }
    let each = bytes / n as u64;
    let from = |bytes| end(part, send, bytes, "sends from");
    let into = |bytes| end(part, recv, bytes, "receives into");
    let at_root = |end: &dyn Fn(u64) -> CallResult<u64>| if root { end(bytes) } else { Ok(0) };
    let (send, recv, bytes) = match op {
        // The library reads both addresses on the root only.
        Collective::Broadcast => {
            let at = if root { from(bytes)? } else { into(bytes)? };
            (at, at, bytes)
        }
        Collective::Reduce if !root => {
            let at = from(bytes)?;
            (at, at, bytes)
        }
        Collective::Reduce | Collective::AllReduce => (from(bytes)?, into(bytes)?, bytes),
        Collective::ReduceScatter => (from(bytes)?, into(each)?, each),
        Collective::AllGather => (from(each)?, into(bytes)?, each),
        Collective::Gather => (from(each)?, at_root(&into)?, each),
        Collective::Scatter => (at_root(&from)?, into(each)?, each),
        Collective::AllToAll => (from(bytes)?, into(bytes)?, each),
        Collective::AllGatherV
        | Collective::AllToAllV
        | Collective::GatherV
        | Collective::ScatterV
        | Collective::Barrier => return uneven_messages(part, op, position, (send, recv)),
    };
    Ok(vec![CclCall::Group { op, send, recv, bytes, reduced }])
}

/// The messages of a collective of uneven parts, which no library has: one to each rank that gets
/// bytes of this one, and one from each that it gets bytes of, itself included.
fn uneven_messages(
    part: &FlowPart,
    op: Collective,
    me: usize,
    (send, recv): (LocalMemory, LocalMemory),
) -> CallResult<Vec<CclCall>> {
    let (bytes, n) = (part.bytes, part.group.len());
    let sends = matches!(op, Collective::AllGatherV | Collective::AllToAllV);
    let of = |nth: usize| op.part(n, nth, bytes);
    let own = of(me).1;
    let (mut from, mut into) = (0, 0);
    if sends || op == Collective::GatherV || me == 0 {
        let needed = match op {
            Collective::AllGatherV | Collective::GatherV => own,
            _ => bytes,
        };
        from = if needed > 0 { end(part, send, needed, "sends from")? } else { 0 };
    }
    if sends || op == Collective::ScatterV || me == 0 {
        let needed = if op == Collective::ScatterV { own } else { bytes };
        into = if needed > 0 { end(part, recv, needed, "receives into")? } else { 0 };
    }
    let mut calls = Vec::new();
    for peer in 0..n {
        let rank = i32::try_from(peer).unwrap_or(i32::MAX);
        // The part that goes to the peer, and where it begins; the same from the peer.
        let (to_peer, from_peer) = match op {
            Collective::AllGatherV => (Some((0, own)), Some(of(peer))),
            Collective::AllToAllV => {
                (Some(of(op.exchanged(n, me, peer).0)), Some(of(op.exchanged(n, peer, me).1)))
            }
            Collective::GatherV => ((peer == 0).then_some((0, own)), (me == 0).then(|| of(peer))),
            _ => ((me == 0).then(|| of(peer)), (peer == 0).then_some((0, own))),
        };
        if let Some((offset, bytes)) = to_peer.filter(|(_, bytes)| *bytes > 0) {
            calls.push(CclCall::Send { to: rank, at: from + offset, bytes });
        }
        if let Some((offset, bytes)) = from_peer.filter(|(_, bytes)| *bytes > 0) {
            calls.push(CclCall::Recv { from: rank, at: into + offset, bytes });
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{MessageOp, Transport};

    fn gpu(rank: u32, gpu: u32) -> (Rank, Unit) {
        (Rank(rank), Unit::Gpu(gpu))
    }

    fn part(op: WireOp, group: &[(Rank, Unit)], mine: &[usize], bytes: u64) -> FlowPart {
        // The sender at position p sends from 0x1000 + p and receives into 0x2000 + p.
        let span =
            |base: u64| mine.iter().map(move |&p| LocalMemory { address: base + p as u64, bytes });
        FlowPart {
            wire: MessageOp::new(Transport::Ccl, op),
            bytes,
            group: group.to_vec(),
            positions: mine.to_vec(),
            send: span(0x1000).collect(),
            recv: span(0x2000).collect(),
            device: vec![true],
        }
    }

    fn group(op: Collective) -> WireOp {
        WireOp::group(op)
    }

    #[test]
    fn both_directions_use_one_communicator_and_one_set_of_calls() {
        let (a, b) = (gpu(0, 0), gpu(1, 1));
        let send = WireOp::Send { window: 2 };
        // This process is rank 1 and has GPU 1: it receives the first and sends the second.
        let parts = [part(send, &[a, b], &[1], 64), part(send, &[b, a], &[0], 64)];
        let plan = build(&parts).unwrap();
        assert_eq!(plan.groups, [vec![a, b]]);
        assert_eq!((plan.leads.as_slice(), plan.seats.len()), (&[false][..], 1));
        let seat = &plan.seats[0];
        assert_eq!((seat.gpu, seat.rank), (1, 1));
        let (recv, send) = (
            CclCall::Recv { from: 0, at: 0x2001, bytes: 64 },
            CclCall::Send { to: 0, at: 0x1000, bytes: 64 },
        );
        assert_eq!(seat.steps, [vec![recv, recv, send, send]]);
        assert_eq!(plan.parts, [vec![0], vec![0]]);
        // 2 parts x 2 messages x 64 B.
        assert_eq!(plan.bytes, 256);
    }

    #[test]
    fn a_ping_is_two_sets_in_order() {
        let (a, b) = (gpu(0, 0), gpu(0, 1));
        let plan = build(&[part(WireOp::Ping, &[a, b], &[0, 1], 8)]).unwrap();
        assert_eq!(plan.leads, [true]);
        let kinds: Vec<Vec<bool>> = plan
            .seats
            .iter()
            .map(|s| s.steps.iter().map(|acts| matches!(acts[0], CclCall::Send { .. })).collect())
            .collect();
        assert_eq!(kinds, [[true, false], [false, true]]);
    }

    #[test]
    fn parts_of_a_collective_are_equal() {
        let all: CommGroup = (0..3).map(|n| gpu(0, n)).collect();
        let plan = build(&[part(group(Collective::ReduceScatter), &all, &[0, 1, 2], 48)]).unwrap();
        // 48 B over 3 ranks: 16 B, two elements, for each.
        assert_eq!(
            plan.seats[2].steps,
            [[CclCall::Group {
                op: Collective::ReduceScatter,
                send: 0x1002,
                recv: 0x2002,
                bytes: 16,
                reduced: ElementReduction::USUAL
            }]]
        );
        let error = build(&[part(group(Collective::ReduceScatter), &all, &[0], 40)]).unwrap_err();
        assert!(error.reason.contains("multiple of 24 B"), "{error}");
        let error = build(&[part(group(Collective::AllGather), &all, &[0], 40)]).unwrap_err();
        assert!(error.reason.contains("multiple of 3 B"), "{error}");
    }

    #[test]
    fn uneven_parts_are_messages_to_and_from_each_rank() {
        let all: CommGroup = (0..2).map(|n| gpu(0, n)).collect();
        // 400 B over two ranks: 100 B stay, 300 B go to the other.
        let plan = build(&[part(group(Collective::AllToAllV), &all, &[1], 400)]).unwrap();
        let calls = [
            CclCall::Send { to: 0, at: 0x1001 + 100, bytes: 300 },
            CclCall::Recv { from: 0, at: 0x2001 + 100, bytes: 300 },
            CclCall::Send { to: 1, at: 0x1001, bytes: 100 },
            CclCall::Recv { from: 1, at: 0x2001, bytes: 100 },
        ];
        assert_eq!(plan.seats[0].steps, [calls]);
        // The root sends itself 100 B; the other rank sends 300 B.
        let plan = build(&[part(group(Collective::GatherV), &all, &[0, 1], 400)]).unwrap();
        let root = [
            CclCall::Send { to: 0, at: 0x1000, bytes: 100 },
            CclCall::Recv { from: 0, at: 0x2000, bytes: 100 },
            CclCall::Recv { from: 1, at: 0x2000 + 100, bytes: 300 },
        ];
        assert_eq!(plan.seats[0].steps, [root]);
        assert_eq!(plan.seats[1].steps, [[CclCall::Send { to: 0, at: 0x1001, bytes: 300 }]]);
    }

    #[test]
    fn impossible_parts_are_refused_with_the_reason() {
        let (a, b, c) = (gpu(0, 0), gpu(0, 1), gpu(0, 2));
        let why = |parts: &[FlowPart]| build(parts).unwrap_err().to_string();
        let put = WireOp::Put { window: 1 };
        assert!(why(&[part(put, &[a, b], &[0], 8)]).contains("ucx and mpi put and get"));
        let barrier = part(group(Collective::Barrier), &[a, b], &[0], 1);
        assert!(why(&[barrier]).contains("no barrier"));
        let twice = part(group(Collective::AllReduce), &[a, a], &[0], 8);
        assert!(why(&[twice]).contains("each once"));
        let host = (Rank(0), Unit::Numa(0));
        assert!(why(&[part(WireOp::Ping, &[a, host], &[1], 8)]).contains("memory of GPUs"));
        let op = group(Collective::AllReduce);
        let two = [part(op, &[a, b], &[0, 1], 8), part(op, &[b, c], &[0, 1], 8)];
        assert!(why(&two).contains("two communicators"));
        let mut short = part(op, &[a, b], &[0], 64);
        short.recv[0].bytes = 8;
        assert!(why(&[short]).contains("receives into has 8B and needs 64B"));
    }

    #[test]
    fn a_process_without_a_part_knows_the_groups() {
        let all: CommGroup = (0..2).map(|n| gpu(n, n)).collect();
        let plan = build(&[part(group(Collective::AllReduce), &all, &[], 8)]).unwrap();
        assert_eq!((plan.groups.len(), plan.seats.len(), plan.leads[0]), (1, 0, false));
    }
}
