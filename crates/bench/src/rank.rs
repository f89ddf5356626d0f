//! One process's part of cases between processes: memory, patterns, and the ports that move the
//! bytes.

use std::collections::BTreeMap;

use pathline_hal::{
    CallError, CallResult, ExchangeId, FlowPart, LocalMemory, Machine, MachineBuffer, RankBarrier,
    RepeatMode, TransportPort, no_exchange, pattern,
};
use pathline_schema::{
    AtomicOp, Bytes, Cadence, Case, Collective, CpuSet, Flow, MemKind, Place, Rank, RankMember,
    Transport, Unit, VerifyResult, WireOp,
};

use crate::bounce::{HostBounce, keeps_memory};
use crate::lane::SPOILT_SEED;

/// A rank's side of each step. The coordinator makes the same calls on every rank, and each step
/// only after the last one has ended everywhere.
pub struct RankSide<'m> {
    machine: &'m Machine,
    me: Rank,
    members: Vec<RankMember>,
    ports: BTreeMap<Transport, Box<dyn TransportPort + 'm>>,
    bound: BTreeMap<ExchangeId, BoundCase<'m>>,
}

/// A bound case.
struct BoundCase<'m> {
    via: Transport,
    carrier: CaseCarrier<'m>,
    ends: Vec<RankBuffer<'m>>,
    /// Whether any rank has something to compare.
    moves: bool,
}

/// The carrier of a case.
enum CaseCarrier<'m> {
    /// The port alone, by its exchange number.
    Port(ExchangeId),
    /// The port with host memory, and copies by pathline to and from it.
    Bounce(HostBounce<'m>),
}

/// Memory of one position in the group of one flow.
struct RankBuffer<'m> {
    buffer: MachineBuffer<'m>,
    /// Ranges to fill before an operation: offset, bytes, seed.
    fills: Vec<(u64, u64, u64)>,
    /// Ranges to compare afterwards.
    checks: Vec<(u64, u64, u64)>,
}

impl<'m> RankSide<'m> {
    /// Rank `me`, with its ports.
    pub fn new(machine: &'m Machine, me: Rank, ports: Vec<Box<dyn TransportPort + 'm>>) -> Self {
        let ports = ports.into_iter().map(|port| (port.via(), port)).collect();
        Self { machine, me, members: Vec::new(), ports, bound: BTreeMap::new() }
    }

    /// Stores the list of ranks.
    pub fn know(&mut self, members: Vec<RankMember>) {
        self.members = members;
    }

    /// Releases everything that is bound, after the coordinator is gone.
    pub fn release_all(&mut self) {
        for id in self.bound.keys().copied().collect::<Vec<_>>() {
            // A port keeps what it cannot release; the next binding is independent.
            let _ = self.release(id);
        }
    }

    /// Allocates and fills this rank's memory of a case; returns its offer to the others. The
    /// number is the same on all ranks. The other flows of the case run on the CPUs `busy_cpus`.
    ///
    /// # Errors
    /// The error of the allocation or of the port.
    pub fn bind(&mut self, id: ExchangeId, case: &Case, busy_cpus: &CpuSet) -> CallResult<Vec<u8>> {
        let no = |why: &str| CallError::unsupported("bind", case.to_string(), why);
        let mut flows = case.flows().filter(|flow| flow.by.wire().is_some()).peekable();
        let first = flows.peek().and_then(|flow| flow.by.wire());
        let via = first.map(|wire| wire.via).ok_or_else(|| no("no transport between processes"))?;
        let (mut parts, mut ends, mut moves) = (Vec::new(), Vec::new(), false);
        for (nth, flow) in flows.enumerate() {
            let (part, mine) = self.part(flow, nth)?;
            moves |= part.collective() != Some(Collective::Barrier);
            parts.push(part);
            ends.extend(mine);
        }
        let pace = match case.cadence {
            Cadence::Streaming => RepeatMode::Streaming,
            Cadence::Isolated => RepeatMode::Isolated,
            Cadence::Graph => RepeatMode::Graph,
        };
        for end in &ends {
            end.fill(&end.fills)?;
        }
        let (machine, numa) = (self.machine, self.numa());
        let port = self.ports.get_mut(&via.carrier());
        let port = port.ok_or_else(|| no("no library for it in this rank"))?.as_mut();
        port.avoid_cpus(busy_cpus);
        let (carrier, offer) = if via == Transport::MpiStaged {
            let (bounce, offer) = HostBounce::bind(machine, numa, port, &parts, pace)?;
            (CaseCarrier::Bounce(bounce), offer)
        } else {
            let (inner, offer) = port.bind(&parts, pace)?;
            (CaseCarrier::Port(inner), offer)
        };
        self.bound.insert(id, BoundCase { via, carrier, ends, moves });
        Ok(offer)
    }

    /// Joins with the offers of all ranks.
    ///
    /// # Errors
    /// The error of the port.
    pub fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()> {
        match self.port("join", id)? {
            (port, CaseCarrier::Port(inner)) => port.join(*inner, offers),
            (port, CaseCarrier::Bounce(bounce)) => bounce.join(port, offers),
        }
    }

    /// Runs it `reps` times; returns the times of each flow from the port.
    ///
    /// # Errors
    /// The error of the port.
    pub fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        match self.port("run", id)? {
            (port, CaseCarrier::Port(inner)) => port.run(*inner, reps, barrier),
            (port, CaseCarrier::Bounce(bounce)) => bounce.run(port, reps, barrier),
        }
    }

    /// Ends the connections of a case after a step has failed in some rank. Returns the cases that
    /// must be bound again before they run, which are the same on all ranks.
    pub fn disconnect(&mut self, id: ExchangeId) -> Vec<ExchangeId> {
        let Some(via) = self.bound.get(&id).map(|bound| bound.via.carrier()) else {
            return Vec::new();
        };
        let ended = match self.port("disconnect", id) {
            Ok((port, CaseCarrier::Port(inner))) => {
                let inner = *inner;
                port.disconnect(inner)
            }
            // MPI messages have no connections of a single case.
            Ok((_, CaseCarrier::Bounce(_))) | Err(_) => Vec::new(),
        };
        let uses = |bound: &BoundCase<'_>| match &bound.carrier {
            CaseCarrier::Port(inner) => bound.via.carrier() == via && ended.contains(inner),
            CaseCarrier::Bounce(_) => false,
        };
        self.bound.iter().filter(|(_, bound)| uses(bound)).map(|(&id, _)| id).collect()
    }

    /// Overwrites every destination with wrong bytes and restores every source.
    ///
    /// # Errors
    /// The error of the write.
    pub fn spoil(&self, id: ExchangeId) -> CallResult<()> {
        let bound = self.bound.get(&id).ok_or_else(|| no_exchange("spoil", id))?;
        for end in &bound.ends {
            // An in-place buffer is both: bytes that are not filled are wrong.
            if !end.checks.is_empty() {
                end.buffer.fill(SPOILT_SEED, false)?;
            }
            end.fill(&end.fills)?;
        }
        Ok(())
    }

    /// Compares every byte of this rank's destinations.
    ///
    /// # Errors
    /// A wrong byte, or a failed read.
    pub fn check(&self, id: ExchangeId) -> CallResult<VerifyResult> {
        let bound = self.bound.get(&id).ok_or_else(|| no_exchange("check", id))?;
        for end in &bound.ends {
            for &(offset, bytes, seed) in &end.checks {
                end.buffer.check_part(offset, Bytes(bytes), seed)?;
            }
        }
        let nothing = || VerifyResult::Unverified("a barrier moves nothing".to_owned());
        Ok(if bound.moves { VerifyResult::Verified } else { nothing() })
    }

    /// The engine and transport of the bytes, for the record.
    pub fn engine(&self, id: ExchangeId) -> String {
        let Some(bound) = self.bound.get(&id) else { return String::new() };
        let Some(port) = self.ports.get(&bound.via.carrier()) else { return String::new() };
        match &bound.carrier {
            CaseCarrier::Port(inner) => port.engine(*inner),
            CaseCarrier::Bounce(bounce) => bounce.engine(port.as_ref()),
        }
    }

    /// Releases the case.
    ///
    /// # Errors
    /// The error of the port. If it is sticky, the library may still access the memory, which then
    /// is never freed; after any other error it is freed. Releasing an unbound case is no error.
    pub fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        let Some(bound) = self.bound.remove(&id) else { return Ok(()) };
        let Some(port) = self.ports.get_mut(&bound.via.carrier()) else { return Ok(()) };
        let released = match bound.carrier {
            CaseCarrier::Port(inner) => port.release(inner),
            CaseCarrier::Bounce(bounce) => bounce.release(port.as_mut()),
        };
        if released.as_ref().is_err_and(keeps_memory) {
            std::mem::forget(bound.ends);
        }
        released
    }

    fn port(
        &mut self,
        call: &str,
        id: ExchangeId,
    ) -> CallResult<(&mut (dyn TransportPort + 'm), &CaseCarrier<'m>)> {
        let bound = self.bound.get(&id).ok_or_else(|| no_exchange(call, id))?;
        let port = self.ports.get_mut(&bound.via.carrier()).ok_or_else(|| no_exchange(call, id))?;
        Ok((port.as_mut(), &bound.carrier))
    }

    /// The NUMA domain of this rank.
    fn numa(&self) -> u32 {
        self.members.iter().find(|m| m.rank == self.me).map_or(0, |m| m.numa)
    }

    /// This rank's part of a flow, and its memory.
    fn part(&self, flow: &Flow, nth: usize) -> CallResult<(FlowPart, Vec<RankBuffer<'m>>)> {
        let no = |why: &str| CallError::unsupported("bind", flow.to_string(), why);
        let wire = *flow.by.wire().ok_or_else(|| no("no transport between processes"))?;
        let group = group(flow, &self.members)
            .ok_or_else(|| no("a rank or GPU of its group is not in this run"))?;
        let places: Vec<Place> = (0..group.len()).map(|at| place(flow, &group, at)).collect();
        let of_me = |at: &usize| group.get(*at).is_some_and(|(rank, _)| *rank == self.me);
        let mine: Vec<usize> = (0..group.len()).filter(of_me).collect();
        let (mut send, mut recv, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for &at in &mine {
            let layout = GroupLayout::of(wire.op, at, group.len(), flow.bytes.0, nth)
                .ok_or_else(|| no("its bytes have no equal parts for all, in whole words"))?;
            let (sends, receives) = self.allocate(&layout, places[at], &mut ends)?;
            send.push(sends);
            recv.push(receives);
        }
        let device = mine.iter().map(|&at| places[at].mem == MemKind::Vram).collect();
        Ok((
            FlowPart { wire, bytes: flow.bytes.0, group, positions: mine, send, recv, device },
            ends,
        ))
    }

    fn allocate(
        &self,
        layout: &GroupLayout,
        place: Place,
        ends: &mut Vec<RankBuffer<'m>>,
    ) -> CallResult<(LocalMemory, LocalMemory)> {
        let GroupLayout { send, recv, fills, checks, in_place } = layout;
        let mut make = |bytes: u64, fills: &[_], checks: &[_]| -> CallResult<LocalMemory> {
            if bytes == 0 {
                return Ok(LocalMemory::default());
            }
            // On this rank's node the place needs no rank.
            let place = Place { rank: Rank(0), ..place };
            let buffer = self.machine.buffer(place, Bytes(bytes))?;
            buffer.fill(SPOILT_SEED, false)?;
            let address = buffer.address();
            ends.push(RankBuffer { buffer, fills: fills.to_vec(), checks: checks.to_vec() });
            Ok(LocalMemory { address, bytes })
        };
        match *in_place {
            None => Ok((make(*send, fills, &[])?, make(*recv, &[], checks)?)),
            Some((send_at, recv_at)) => {
                let whole = make((send_at + send).max(recv_at + recv), fills, checks)?;
                let part = |at, bytes| match bytes {
                    0 => LocalMemory::default(),
                    bytes => LocalMemory { address: whole.address + at, bytes },
                };
                Ok((part(send_at, *send), part(recv_at, *recv)))
            }
        }
    }
}

impl RankBuffer<'_> {
    fn fill(&self, fills: &[(u64, u64, u64)]) -> CallResult<()> {
        for &(offset, bytes, seed) in fills {
            self.buffer.fill_part(offset, Bytes(bytes), seed)?;
        }
        Ok(())
    }
}

/// The participants of a flow between processes, in order; `None` if one of them is not in the run.
pub(crate) fn group(flow: &Flow, members: &[RankMember]) -> Option<Vec<(Rank, Unit)>> {
    let (src, dst) = (flow.src, flow.dst);
    let here = |rank: Rank| members.iter().find(|m| m.rank == rank);
    if flow.by.wire()?.op.collective().is_none() {
        here(src.rank).and(here(dst.rank))?;
        return Some(vec![(src.rank, src.unit), (dst.rank, dst.unit)]);
    }
    if src.rank == dst.rank {
        let gpus = &here(src.rank)?.gpus;
        let at = |unit: Unit| gpus.iter().position(|&gpu| Unit::Gpu(gpu) == unit);
        let (from, to) = (at(src.unit)?, at(dst.unit)?);
        let between = gpus.get(from..=to)?;
        return Some(between.iter().map(|&gpu| (src.rank, Unit::Gpu(gpu))).collect());
    }
    let unit = |rank: Rank| -> Option<Unit> {
        let member = here(rank)?;
        match src.unit {
            _ if rank == src.rank => Some(src.unit),
            _ if rank == dst.rank => Some(dst.unit),
            Unit::Gpu(_) => member.gpus.first().map(|&gpu| Unit::Gpu(gpu)),
            Unit::Numa(_) => Some(Unit::Numa(member.numa)),
            Unit::Store(_) => None,
        }
    };
    (src.rank.0..=dst.rank.0).map(Rank).map(|rank| Some((rank, unit(rank)?))).collect()
}

/// The memory of one position: the kind that its end of the flow names.
fn place(flow: &Flow, group: &[(Rank, Unit)], at: usize) -> Place {
    let (rank, unit) = group[at];
    let mem = if at == 0 { flow.src.mem } else { flow.dst.mem };
    Place { rank, unit, mem }
}

/// The send and receive buffers of one position of a group, and the bytes that prove arrival.
/// Ranges are offset, bytes and seed.
#[derive(Debug, Default, PartialEq, Eq)]
struct GroupLayout {
    send: u64,
    recv: u64,
    fills: Vec<(u64, u64, u64)>,
    checks: Vec<(u64, u64, u64)>,
    /// Offsets of the two in one buffer, if they share one.
    in_place: Option<(u64, u64)>,
}

impl GroupLayout {
    /// `None` if the bytes cannot be split into such parts.
    fn of(op: WireOp, at: usize, n: usize, bytes: u64, flow: usize) -> Option<Self> {
        let at_u = at as u64;
        let one = |from: u64| seed(flow, from, 0);
        if let WireOp::Atomic(op) = op {
            return Some(Self::of_atomic(op, at, bytes, flow));
        }
        let in_place = matches!(op, WireOp::Group { in_place: true, .. });
        let Some(op) = op.collective() else {
            let (sends, receives) = if op.is_ping() { (true, true) } else { (at == 0, at == 1) };
            let mut layout = Self::default();
            if sends {
                layout.send = bytes;
                layout.fills = vec![(0, bytes, one(at_u))];
            }
            if receives {
                layout.recv = bytes;
                layout.checks = vec![(0, bytes, one(1 - at_u.min(1)))];
            }
            return Some(layout);
        };
        let (parts, root) = (n as u64, at == 0);
        let each = bytes / parts.max(1);
        let split =
            matches!(op, Collective::ReduceScatter | Collective::AllGather | Collective::AllToAll);
        if (split && each * parts != bytes) || (op.reduces() && !bytes.is_multiple_of(8)) {
            return None;
        }
        let part = |p: u64| p * each;
        let mut layout = match op {
            Collective::Barrier => Self::default(),
            Collective::Broadcast if root => {
                Self { send: bytes, fills: vec![(0, bytes, one(0))], ..Self::default() }
            }
            Collective::Broadcast => {
                Self { recv: bytes, checks: vec![(0, bytes, one(0))], ..Self::default() }
            }
            Collective::Reduce | Collective::AllReduce => {
                let has = root || op == Collective::AllReduce;
                let checks = if has { vec![(0, bytes, one(0))] } else { Vec::new() };
                let recv = if has { bytes } else { 0 };
                let fills = share(0, bytes, one(0), at_u, parts);
                Self { send: bytes, recv, fills, checks, in_place: None }
            }
            Collective::ReduceScatter => {
                if !each.is_multiple_of(8) {
                    return None;
                }
                let fills =
                    (0..parts).flat_map(|p| share(part(p), each, one(p), at_u, parts)).collect();
                let checks = vec![(0, each, one(at_u))];
                Self { send: bytes, recv: each, fills, checks, in_place: None }
            }
            Collective::AllGather => Self {
                send: each,
                recv: bytes,
                fills: vec![(0, each, one(at_u))],
                checks: (0..parts).map(|p| (part(p), each, one(p))).collect(),
                in_place: None,
            },
            Collective::AllToAll => Self {
                send: bytes,
                recv: bytes,
                fills: (0..parts).map(|p| (part(p), each, seed(flow, at_u, p))).collect(),
                checks: (0..parts).map(|p| (part(p), each, seed(flow, p, at_u))).collect(),
                in_place: None,
            },
        };
        if in_place {
            let shift = |list: &mut Vec<(u64, u64, u64)>, by| {
                list.iter_mut().for_each(|stretch| stretch.0 += by);
            };
            match op {
                Collective::AllReduce => layout.in_place = Some((0, 0)),
                Collective::AllGather => {
                    shift(&mut layout.fills, part(at_u));
                    layout.in_place = Some((part(at_u), 0));
                }
                Collective::ReduceScatter => {
                    shift(&mut layout.checks, part(at_u));
                    layout.in_place = Some((0, part(at_u)));
                }
                _ => return None,
            }
        }
        Some(layout)
    }
}

impl GroupLayout {
    /// Of the source (position 0) or the target of an atomic operation. Targets of sums and of
    /// compare-swap are 0 before, so that one operation leaves the source's bytes there.
    fn of_atomic(op: AtomicOp, at: usize, bytes: u64, flow: usize) -> Self {
        let new = (0, bytes, seed(flow, 0, 0));
        let old = match op {
            AtomicOp::Swap => (0, bytes, seed(flow, 1, 0)),
            _ => (0, bytes, pattern::ZERO_SEED),
        };
        if at > 0 {
            let (fills, checks) = (vec![old], vec![new]);
            return Self { recv: bytes, fills, checks, in_place: Some((0, 0)), send: 0 };
        }
        let (recv, checks) = if op.fetches() { (bytes, vec![old]) } else { (0, Vec::new()) };
        Self { send: bytes, recv, fills: vec![new], checks, in_place: None }
    }
}

/// The seed of part `part` from rank `from` in the `flow`-th flow. Never the seed of zeros.
fn seed(flow: usize, from: u64, part: u64) -> u64 {
    pattern::word(0x7261_6e6b, (flow as u64) << 42 | from << 21 | part) | 1
}

/// The contribution of rank `at` of `n` to a sum that must equal the pattern: the elements of its
/// stripe, and zeros. Each rank's stripe counts exactly once in a correct sum.
fn share(offset: u64, bytes: u64, seed: u64, at: u64, n: u64) -> Vec<(u64, u64, u64)> {
    let words = bytes / 8;
    let begin = |nth: u64| (words * nth / n) * 8;
    let (from, to) = (begin(at), begin(at + 1));
    let whole = (offset, bytes, seed);
    let before = (offset, from, pattern::ZERO_SEED);
    let after = (offset + to, bytes - to, pattern::ZERO_SEED);
    [whole, before, after].into_iter().filter(|&(_, bytes, _)| bytes > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(op: &str, at: usize, n: usize, bytes: u64) -> Option<GroupLayout> {
        GroupLayout::of(op.parse().unwrap(), at, n, bytes, 0)
    }

    /// The elements that a list of ranges writes.
    fn written(fills: &[(u64, u64, u64)], bytes: u64) -> Vec<u64> {
        let mut words = vec![0xbad; usize::try_from(bytes / 8).unwrap()];
        for &(offset, len, seed) in fills {
            for i in 0..len / 8 {
                words[usize::try_from(offset / 8 + i).unwrap()] = pattern::word(seed, i);
            }
        }
        words
    }

    #[test]
    fn contributions_add_up_to_the_pattern() {
        for (n, words) in [(2, 1), (3, 7), (8, 64), (8, 5)] {
            let bytes = words * 8;
            let mut sum = vec![0u64; usize::try_from(words).unwrap()];
            for at in 0..n {
                let brought = written(&layout("all_reduce", at, n, bytes).unwrap().fills, bytes);
                sum.iter_mut().zip(brought).for_each(|(s, b)| *s = s.wrapping_add(b));
            }
            let expected = layout("all_reduce", 0, n, bytes).unwrap().checks;
            assert_eq!(sum, written(&expected, bytes), "{n} ranks, {words} words");
        }
    }

    #[test]
    fn parts_of_a_reduce_scatter_have_their_own_pattern() {
        // Four ranks, 4 elements each: all contributions to part 2 add up to what rank 2 expects.
        let bytes = 4 * 4 * 8;
        let mut sum = [0u64; 16];
        for at in 0..4 {
            let brought = written(&layout("reduce_scatter", at, 4, bytes).unwrap().fills, bytes);
            sum.iter_mut().zip(brought).for_each(|(s, b)| *s = s.wrapping_add(b));
        }
        let third = layout("reduce_scatter", 2, 4, bytes).unwrap();
        assert_eq!(third.recv, 32);
        assert_eq!(sum[8..12], written(&third.checks, 32)[..]);
        let in_place = layout("reduce_scatter-inplace", 2, 4, bytes).unwrap();
        assert_eq!(in_place.in_place, Some((0, 64)));
        assert_eq!(in_place.checks, [(64, 32, third.checks[0].2)]);
    }

    #[test]
    fn an_atomic_operation_leaves_the_sources_bytes_at_the_target() {
        // Sums and compare-swap start from 0, so the source's word is the result; what is fetched
        // is the previous word.
        for (op, fetches) in [("accumulate", false), ("fetch-add", true), ("compare-swap", true)] {
            let (a, b) = (layout(op, 0, 2, 8).unwrap(), layout(op, 1, 2, 8).unwrap());
            assert_eq!((a.send, a.recv, b.recv), (8, if fetches { 8 } else { 0 }, 8));
            assert_eq!(b.fills, [(0, 8, pattern::ZERO_SEED)]);
            assert_eq!(b.checks, a.fills);
            let fetched: Vec<_> = fetches.then(|| b.fills[0]).into_iter().collect();
            assert_eq!(a.checks, fetched);
        }
        let (a, b) = (layout("swap", 0, 2, 8).unwrap(), layout("swap", 1, 2, 8).unwrap());
        assert_eq!((a.checks.clone(), b.checks.clone()), (b.fills.clone(), a.fills.clone()));
        assert_ne!(a.fills, b.fills);
    }

    #[test]
    fn a_receiver_expects_the_senders_data() {
        let (a, b) = (layout("ping", 0, 2, 24).unwrap(), layout("ping", 1, 2, 24).unwrap());
        assert_eq!((a.fills.clone(), b.fills.clone()), (b.checks, a.checks));
        let (a, b) =
            (layout("all_to_all", 1, 3, 48).unwrap(), layout("all_to_all", 2, 3, 48).unwrap());
        // Part 2 of rank 1 is part 1 of what rank 2 receives.
        assert_eq!(a.fills[2].2, b.checks[1].2);
        assert_ne!(a.fills[1].2, a.fills[2].2);
        assert!(layout("all_gather", 0, 3, 16).is_none());
        assert!(layout("send-w64", 0, 2, 5).unwrap().checks.is_empty());
    }
}
