//! Messages between the processes of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use pathline_hal::{
    CallError, CallResult, ExchangeId, ExchangeTable, FlowPart, LocalMemory, RankBarrier,
    RepeatMode, TransportPort, no_exchange,
};
use pathline_schema::{
    CoreDistance, CpuHow, CpuOp, CpuSet, CpuWork, Rank, Severity, ShmCopies, Transport, Unit,
    WireOp,
};

use super::channel::{PAGED_PIECE, PIECE, RingLayout, ShmChannel};
use super::channel_ends::{
    KernelCopy, PeerMemory, RecvEnd, RecvMethod, SendEnd, SendMethod, carry,
};
use super::core_choice::{HostCores, PinnedThread, ProcessPair, possible};
use super::offer::ShmOffer;
use super::role::{ShmRole, directions, run_roles, script};
use super::spin_wait::SpinWait;
use super::xpmem::{XpmemApi, XpmemAttachment, XpmemExport};
use pathline_host::clock::ClockOrigin;
use pathline_host::loops::{self, CpuLoop};

/// Where the kernel describes its processors.
const SYS: &str = "/sys";

/// One process's endpoint of a transport within the node.
pub(super) struct NodePort {
    pub(super) via: Transport,
    pub(super) me: Rank,
    pub(super) library: String,
    /// Timeout for another process.
    pub(super) most: Duration,
    pub(super) xpmem: Option<XpmemApi>,
    cpus: CpuSet,
    /// CPUs that other flows use during the exchange that is bound next.
    off: CpuSet,
    exchanges: ExchangeTable<ShmExchange>,
}

/// A case that is bound here.
struct ShmExchange {
    parts: Vec<FlowPart>,
    pace: RepeatMode,
    /// CPUs that other flows use during this exchange.
    off: CpuSet,
    /// Segments and memory that this process made for others, kept until `release`.
    made: BoundMemory,
    /// This process's role in each part; set by `join`.
    roles: Vec<Option<ShmRole>>,
    /// The CPU to pin to.
    cpu: Option<u32>,
    joined: bool,
    /// Whether an earlier run failed, after which the two sides disagree on the next step.
    broken: bool,
}

#[derive(Default)]
struct BoundMemory {
    channels: BTreeMap<(usize, usize), Rc<ShmChannel>>,
    /// Held for its lifetime only: memory stays exposed while this lives.
    exposed: Vec<XpmemExport>,
}

impl NodePort {
    pub(super) fn new(via: Transport, me: Rank, library: String, most: Duration) -> Self {
        let (cpus, off, exchanges) = (possible(), CpuSet::default(), ExchangeTable::default());
        Self { via, me, library, most, xpmem: None, cpus, off, exchanges }
    }

    /// Refuses a part that this port cannot do.
    fn refuse(&self, part: &FlowPart, pace: RepeatMode) -> CallResult<()> {
        let thing = part.wire.to_string();
        let refuse = |reason: String, way_out: &str| {
            Err(CallError::unsupported("bind", thing.clone(), reason).or_try(way_out))
        };
        if part.wire.via != self.via {
            return refuse(format!("this is the port of {}", self.via), "use that port");
        }
        if pace == RepeatMode::Graph {
            return refuse("processors have no graphs".into(), "take another cadence");
        }
        let op = part.wire.op;
        if !matches!(op, WireOp::Ping | WireOp::Send { .. } | WireOp::Consume) {
            return refuse(format!("{} does not do {op}", self.via), "ping, send-wN or consume");
        }
        let [(a, first), (b, second)] = part.group[..] else {
            return refuse(format!("a group of {}", part.group.len()), "name two processes");
        };
        if a == b {
            return refuse(format!("rank {} with itself", a.0), "name two processes");
        }
        if ![first, second].iter().all(|unit| matches!(unit, Unit::Numa(_))) {
            return refuse("CPU cores copy memory of the host".into(), "numaN.paged or numaN.huge");
        }
        for how in hows(part) {
            find(CpuOp::Copy, how)?;
        }
        if let Some(why) = part.short_buffer() {
            return refuse(why, "give it a separate buffer");
        }
        Ok(())
    }

    /// Creates what the others need from this process for one direction of a part.
    fn make(
        &self,
        nth: usize,
        part: &FlowPart,
        offer: &mut ShmOffer,
        made: &mut BoundMemory,
    ) -> CallResult<()> {
        for &direction in directions(part.wire.op) {
            let Some(&position) = part.positions.first() else { continue };
            let receives = position != direction;
            if receives {
                // The ring lies in the receiver's domain, independent of where this thread runs.
                let _there = match part.group.get(position) {
                    Some((_, Unit::Numa(numa))) => {
                        PinnedThread::at(Path::new(SYS), *numa, &self.cpus)
                    }
                    _ => None,
                };
                let channel = ShmChannel::create(shape(part))?;
                offer.segments.insert((nth, direction), channel.address());
                made.channels.insert((nth, direction), Rc::new(channel));
            }
            let exposes = match part.wire.copies {
                Some(ShmCopies::Read | ShmCopies::Single(_)) => !receives,
                Some(ShmCopies::Write) => receives,
                _ => false,
            };
            if exposes {
                let spans = if receives { &part.recv } else { &part.send };
                let span = mine(spans, part);
                let number = match self.xpmem {
                    Some(calls) => {
                        let exposed = XpmemExport::new(calls, span)?;
                        let number = exposed.segment;
                        made.exposed.push(exposed);
                        number
                    }
                    None => 0,
                };
                offer.spans.insert((nth, direction), (span, number));
            }
        }
        Ok(())
    }

    /// This process's role in a part, from the offers of the others.
    fn role(
        &self,
        nth: usize,
        part: &FlowPart,
        made: &BoundMemory,
        offers: &BTreeMap<Rank, ShmOffer>,
    ) -> CallResult<Option<ShmRole>> {
        let Some(&position) = part.positions.first() else { return Ok(None) };
        let other = part.group[1 - position].0;
        let missing = |what: &str| {
            let reason = format!("rank {} offered no {what} for part {nth}", other.0);
            CallError::unsupported("join", part.wire.to_string(), reason)
                .or_try("start all ranks from the same program")
        };
        let theirs = offers.get(&other).ok_or_else(|| missing("anything"))?;
        if offers.get(&self.me).is_some_and(|mine| mine.host != theirs.host) {
            let thing = format!("ranks {} and {}", self.me.0, other.0);
            let reason = "they run on different hosts or in different PID namespaces";
            return Err(CallError::unsupported("join", thing, reason)
                .or_try("choose ranks of one node, or run them in one container"));
        }
        let remote = |direction| {
            let (span, number) =
                *theirs.spans.get(&(nth, direction)).ok_or_else(|| missing("memory"))?;
            Ok((PeerMemory { pid: theirs.process.pid, span }, number))
        };
        let (mut out, mut into) = (None, None);
        for &direction in directions(part.wire.op) {
            let how = part.wire.copies;
            if position == direction {
                let address =
                    theirs.segments.get(&(nth, direction)).ok_or_else(|| missing("segment"))?;
                let channel = Rc::new(ShmChannel::open(address, shape(part))?);
                let giving = match how {
                    Some(ShmCopies::InOut { copy_in, .. }) => {
                        SendMethod::Ring(find(CpuOp::Copy, copy_in)?)
                    }
                    Some(ShmCopies::Write) => {
                        SendMethod::Write(probed(KernelCopy::Write, remote(direction)?.0)?)
                    }
                    _ => SendMethod::Post,
                };
                out = Some(SendEnd::new(channel, giving, mine(&part.send, part)));
            } else {
                let channel =
                    made.channels.get(&(nth, direction)).ok_or_else(|| missing("segment"))?;
                let taking = match how {
                    Some(ShmCopies::InOut { copy_out, .. }) => {
                        RecvMethod::Ring(find(CpuOp::Copy, copy_out)?)
                    }
                    Some(ShmCopies::Read) => {
                        RecvMethod::Read(probed(KernelCopy::Read, remote(direction)?.0)?)
                    }
                    Some(ShmCopies::Single(how)) => self.attach(how, remote(direction)?)?,
                    _ => RecvMethod::Wait,
                };
                into = Some(RecvEnd::new(Rc::clone(channel), taking, mine(&part.recv, part)));
            }
        }
        let script = script(part.wire.op, position);
        let read = widest_read()?;
        let other = (other, theirs.process);
        Ok(Some(ShmRole { script, step: 0, left: 0, ended_ns: 0, out, into, read, other }))
    }

    fn attach(&self, how: CpuHow, (remote, number): (PeerMemory, i64)) -> CallResult<RecvMethod> {
        let Some(calls) = self.xpmem else {
            return Err(CallError::unsupported("join", "xpmem", "its library is not open"));
        };
        let attached = XpmemAttachment::new(calls, number, remote.span)?;
        Ok(RecvMethod::Attached(find(CpuOp::Copy, how)?, attached))
    }

    /// The CPU for this process, where parts set a distance between processes.
    fn cpu(
        &self,
        ShmExchange { parts, off, .. }: &ShmExchange,
        offers: &BTreeMap<Rank, ShmOffer>,
    ) -> CallResult<Option<u32>> {
        let pairs: Vec<ProcessPair> = parts.iter().filter_map(|p| pair(p, p.wire.near?)).collect();
        if pairs.is_empty() {
            return Ok(None);
        }
        let possible: BTreeMap<Rank, CpuSet> =
            offers.iter().map(|(rank, offer)| (*rank, offer.cpus.clone())).collect();
        let sets = possible.values().chain([off]);
        let all = CpuSet::new(sets.flat_map(|c| c.as_slice().iter().copied()));
        let cores = HostCores::read(Path::new(SYS), &all);
        let chosen = cores.choose(&pairs, &possible, off).map_err(|why| {
            CallError::unsupported("join", "cores for the processes", why)
                .or_try("start fewer ranks, or on more cores")
        })?;
        Ok(chosen.get(&self.me).copied())
    }
}

fn pair(part: &FlowPart, near: CoreDistance) -> Option<ProcessPair> {
    let [(a, Unit::Numa(first)), (b, Unit::Numa(second))] = part.group[..] else { return None };
    Some(ProcessPair { ends: [(a, first), (b, second)], near })
}

/// The part of this process's buffer that a message fills. `refuse` checked that it exists.
fn mine(spans: &[LocalMemory], part: &FlowPart) -> LocalMemory {
    LocalMemory { bytes: part.bytes, ..spans.first().copied().unwrap_or_default() }
}

fn shape(part: &FlowPart) -> RingLayout {
    match part.wire.copies {
        Some(ShmCopies::InOut { copy_in, copy_out }) => {
            let paged = [CpuHow::Avx2Nt4, CpuHow::Avx512Nt4];
            let any = paged.iter().any(|how| [copy_in, copy_out].contains(how));
            RingLayout::of(part.bytes, if any { PAGED_PIECE } else { PIECE })
        }
        _ => RingLayout::NONE,
    }
}

/// The copy loops that a part names.
fn hows(part: &FlowPart) -> Vec<CpuHow> {
    match part.wire.copies {
        Some(ShmCopies::InOut { copy_in, copy_out }) => vec![copy_in, copy_out],
        Some(ShmCopies::Single(how)) => vec![how],
        _ => Vec::new(),
    }
}

fn find(op: CpuOp, how: CpuHow) -> CallResult<CpuLoop> {
    loops::find(CpuWork { op, how }).ok_or_else(|| {
        let reason = format!("this processor has no {op} by {how}");
        CallError::unsupported("bind", how.to_string(), reason)
            .or_try(format!("choose one of {}", loops::supported_variants(op)))
    })
}

/// The loop with the widest loads.
fn widest_read() -> CallResult<CpuLoop> {
    let wide = [CpuHow::Avx512, CpuHow::Avx2, CpuHow::Neon];
    let find_read = |how| loops::find(CpuWork { op: CpuOp::Read, how });
    wide.into_iter().find_map(find_read).map_or_else(|| find(CpuOp::Read, CpuHow::Plain), Ok)
}

/// Checks that the kernel lets this process copy there, by fetching one byte. That changes nothing,
/// even where bytes will be written.
fn probed(call: KernelCopy, remote: PeerMemory) -> CallResult<PeerMemory> {
    let mut byte = 0_u8;
    let mine = LocalMemory { address: (&raw mut byte) as u64, bytes: 1 };
    let first = LocalMemory { bytes: 1, ..remote.span };
    carry(KernelCopy::Read, mine, PeerMemory { span: first, ..remote }).map_err(|mut error| {
        error.call = call.name().into();
        error
    })?;
    Ok(remote)
}

impl TransportPort for NodePort {
    fn via(&self) -> Transport {
        self.via
    }

    fn library(&self) -> String {
        self.library.clone()
    }

    fn avoid_cpus(&mut self, cpus: &CpuSet) {
        self.off = cpus.clone();
    }

    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)> {
        let mut offer = ShmOffer::new(self.cpus.clone());
        let mut made = BoundMemory::default();
        for (nth, part) in parts.iter().enumerate() {
            self.refuse(part, pace)?;
            self.make(nth, part, &mut offer, &mut made)?;
        }
        let exchange = ShmExchange {
            parts: parts.to_vec(),
            pace,
            off: std::mem::take(&mut self.off),
            made,
            roles: Vec::new(),
            cpu: None,
            joined: false,
            broken: false,
        };
        Ok((self.exchanges.insert(exchange), offer.encode()))
    }

    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()> {
        let exchange = self.exchanges.get(id).ok_or_else(|| no_exchange("join", id))?;
        // Only participants must have made an offer of this kind.
        let wanted = |rank: Rank| {
            let mut groups = exchange.parts.iter().flat_map(|part| &part.group);
            groups.any(|(member, _)| *member == rank)
        };
        let mut decoded = BTreeMap::new();
        for (rank, bytes) in (0..).map(Rank).zip(offers).filter(|(rank, _)| wanted(*rank)) {
            decoded.insert(rank, ShmOffer::decode(rank, bytes)?);
        }
        let mut roles = Vec::new();
        for (nth, part) in exchange.parts.iter().enumerate() {
            roles.push(self.role(nth, part, &exchange.made, &decoded)?);
        }
        let cpu = self.cpu(exchange, &decoded)?;
        let exchange = self.exchanges.bound("join", id)?;
        (exchange.roles, exchange.cpu, exchange.joined) = (roles, cpu, true);
        Ok(())
    }

    fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        let most = self.most;
        let exchange = self.exchanges.bound("run", id)?;
        let thing = format!("exchange {}", id.0);
        if !exchange.joined || exchange.broken {
            let reason =
                if exchange.broken { "an earlier run failed" } else { "it was not joined" };
            return Err(CallError::unsupported("run", thing, reason).or_try("bind it again"));
        }
        let _pinned = match exchange.cpu.map(PinnedThread::to).transpose() {
            Ok(pinned) => pinned,
            Err(error) => {
                return Err(CallError::new(
                    Severity::Transient,
                    "sched_setaffinity",
                    exchange.cpu.map_or(thing, |cpu| format!("cpu{cpu}")),
                    error.to_string(),
                )
                .with_code(error.raw_os_error().unwrap_or(0).into())
                .or_try("the CPUs of this process have changed since it began: start again"));
            }
        };
        let members: BTreeSet<Rank> =
            exchange.parts.iter().flat_map(|part| &part.group).map(|(rank, _)| *rank).collect();
        let wait = SpinWait::new(most, u32::try_from(members.len()).unwrap_or(u32::MAX));
        let (rounds, each) = exchange.pace.rounds(reps);
        let mut times = vec![Vec::new(); exchange.parts.len()];
        for _ in 0..rounds {
            barrier.wait()?;
            let begun = ClockOrigin::now();
            if let Err(error) = run_roles(&mut exchange.roles, each, begun, &wait) {
                exchange.broken = true;
                return Err(error);
            }
            for (times, role) in times.iter_mut().zip(&exchange.roles) {
                times.extend(role.as_ref().map(|role| role.ended_ns as f64));
            }
        }
        Ok(times)
    }

    fn engine(&self, id: ExchangeId) -> String {
        let Some(exchange) = self.exchanges.get(id) else { return String::new() };
        let of_ring = |part: &FlowPart| {
            let RingLayout { piece, depth, .. } = shape(part);
            format!("ring of {depth} x {piece} B")
        };
        let mut text = match self.via {
            Transport::Shm => exchange.parts.first().map_or(String::new(), of_ring),
            Transport::Cma => "one call a message".into(),
            _ => "attached memory".into(),
        };
        if let Some(cpu) = exchange.cpu {
            text.push_str(&format!(", on cpu{cpu}"));
        }
        text
    }

    fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        let gone = self.exchanges.remove(id)?;
        // Roles hold memory that others expose, so they are dropped first.
        drop(gone.roles);
        drop(gone.made);
        Ok(())
    }
}
