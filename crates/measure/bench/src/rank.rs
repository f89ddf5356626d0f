//! One process's part of cases between processes: memory, patterns, and the ports that move the
//! bytes.

use std::collections::BTreeMap;

use pathline_hal::{
    CallError, CallResult, ExchangeId, FlowPart, GroupLayout, LocalMemory, Machine, MachineBuffer,
    RankBarrier, RepeatMode, TransportPort, no_exchange,
};
use pathline_schema::{
    Bytes, Cadence, Case, Collective, CpuSet, Flow, MemKind, Place, Rank, RankMember, Transport,
    Unit, VerifyResult,
};

use crate::bounce::{HostBounce, keeps_memory};
use crate::lane::SPOILT_SEED;
use crate::rank_files::{RankFiles, RankSample};

/// A rank's side of each step. The coordinator makes the same calls on every rank, and each step
/// only after the last one has ended everywhere.
pub struct RankSide<'m> {
    machine: &'m Machine,
    me: Rank,
    members: Vec<RankMember>,
    ports: BTreeMap<Transport, Box<dyn TransportPort + 'm>>,
    bound: BTreeMap<ExchangeId, BoundCase<'m>>,
    /// I/O that this rank does with others.
    files: BTreeMap<ExchangeId, RankFiles<'m>>,
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
        let (bound, files) = (BTreeMap::new(), BTreeMap::new());
        Self { machine, me, members: Vec::new(), ports, bound, files }
    }

    /// Stores the list of ranks.
    pub fn know(&mut self, members: Vec<RankMember>) {
        self.members = members;
    }

    /// Releases everything that is bound, after the coordinator is gone.
    pub fn release_all(&mut self) {
        let all: Vec<ExchangeId> = self.bound.keys().chain(self.files.keys()).copied().collect();
        for id in all {
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
        if case.is_rank_io() {
            let (files, offer) = RankFiles::bind(self.machine, self.me, case)?;
            self.files.insert(id, files);
            return Ok(offer);
        }
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
        if let Some(files) = self.files.get_mut(&id) {
            return files.join(offers);
        }
        match self.port("join", id)? {
            (port, CaseCarrier::Port(inner)) => port.join(*inner, offers),
            (port, CaseCarrier::Bounce(bounce)) => bounce.join(port, offers),
        }
    }

    /// Runs it `reps` times; returns the times of each flow.
    ///
    /// # Errors
    /// The error of the port.
    pub fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<RankSample> {
        if let Some(files) = self.files.get_mut(&id) {
            return files.run(reps, barrier);
        }
        let times = match self.port("run", id)? {
            (port, CaseCarrier::Port(inner)) => port.run(*inner, reps, barrier),
            (port, CaseCarrier::Bounce(bounce)) => bounce.run(port, reps, barrier),
        };
        times.map(|times| RankSample { times, io: Vec::new() })
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

    /// Overwrites every destination with wrong bytes and restores every source. Of I/O, does the
    /// operations of the check as well.
    ///
    /// # Errors
    /// The error of the write.
    pub fn spoil(&mut self, id: ExchangeId) -> CallResult<()> {
        if let Some(files) = self.files.get_mut(&id) {
            return files.land();
        }
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
        if let Some(files) = self.files.get(&id) {
            return files.check();
        }
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
        if let Some(files) = self.files.get(&id) {
            return files.engine();
        }
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
        if let Some(files) = self.files.remove(&id) {
            return files.close();
        }
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
            let layout = GroupLayout::new(&wire, at, group.len(), flow.bytes.0, nth).map_err(no)?;
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
