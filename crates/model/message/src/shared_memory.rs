//! Messages through memory that two processes of a node share.
//!
//! A ring's lines move between the cores with every message. The sender owns each before it stores,
//! and the receiver waits for the line that is dirty in the sender's cache: as long as it takes from
//! core to core, for as many lines as a core keeps in flight. Stores past the caches spare both, and
//! the receiver then loads from memory. So the copies that win within one L3 lose between two.

use pathline_flow::{CoreRates, NoPath, RateDemand, ResourceUse, SharedMemoryCost};
use pathline_schema::{Case, CoreDistance, CpuHow, Flow, Ns, ShmCopies, Transport, Unit, WireOp};

use crate::scene::NodeParts;
use crate::transfer::rates;

/// Bytes of a cache line.
const LINE: f64 = 64.0;
/// Pathline's ring: bytes, and bytes of a piece; of loops over four pages a piece is longer.
const RING_BYTES: f64 = 262_144.0;
const PIECE: f64 = 8_192.0;
const PAGED_PIECE: f64 = 32_768.0;
/// Bytes that travel in the line of their flag.
const INLINE: f64 = 56.0;
/// Width of the accesses that cache rates are stated for, in bytes.
const RATED_WIDTH: f64 = 32.0;
/// Traffic of the copy whose use of memories is scaled: a load, and a store that first loads its line.
const REFERENCE_TRAFFIC: f64 = 3.0;

/// How long messages through shared memory take.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedMemoryTime {
    /// Of each timed flow, one repetition: a round trip, or a window and its answer.
    pub each: Vec<Ns>,
    /// What copies, in one phrase.
    pub how: String,
}

/// The processes of a node and the costs of their lines.
pub(crate) struct SharedMemory<'a> {
    pub machine: &'a NodeParts,
    pub cost: &'a SharedMemoryCost,
    pub cores: &'a CoreRates,
}

/// One message: the copies of both sides, and what they take of the node's memories.
struct SharedCopy {
    /// From the send to the first byte's flag, ns.
    start: f64,
    /// Time of a line from the other core, ns.
    line: f64,
    /// Rates of the sender's and the receiver's copy, GB/s; a single copy has one.
    copy_in: Option<f64>,
    copy_out: Option<f64>,
    /// Bytes that the receiver waits for at once.
    piece: f64,
    /// Share of the time that remains.
    share: f64,
    uses: Vec<ResourceUse>,
    /// What the receiver loads the message at afterwards, GB/s.
    load: f64,
}

impl SharedCopy {
    /// The rate of a long message, GB/s.
    fn steady(&self) -> f64 {
        let [a, b] = [self.copy_in, self.copy_out].map(|rate| rate.unwrap_or(f64::INFINITY));
        a.min(b)
    }

    /// The time of `count` messages of `bytes` in a row where bytes move `slow` times as slowly.
    fn time(&self, bytes: f64, count: f64, slow: f64) -> f64 {
        let (Some(copy_in), Some(copy_out)) = (self.copy_in, self.copy_out) else {
            return count * (self.start + self.share * slow * bytes / self.steady());
        };
        if bytes <= INLINE {
            return self.start + (count - 1.0) * self.line;
        }
        let piece = bytes.min(self.piece);
        let pieces = count * bytes / piece;
        // The receiver finds the flag of each piece in the sender's cache.
        let (give, take) = (slow * piece / copy_in, slow * piece / copy_out + self.line);
        self.start + give + take + (pieces - 1.0) * give.max(take)
    }
}

impl SharedMemory<'_> {
    /// The time of all timed flows of a case at once.
    pub(crate) fn time(&self, case: &Case) -> Result<SharedMemoryTime, NoPath> {
        let copies: Vec<SharedCopy> =
            case.timed.iter().map(|flow| self.copy(flow)).collect::<Result<_, _>>()?;
        let demands: Vec<RateDemand<'_>> = copies
            .iter()
            .map(|copy| RateDemand { uses: &copy.uses, cap: copy.steady(), share: 1.0 })
            .collect();
        let rates = rates(&self.machine.capacities(1), &demands);
        let each = case.timed.iter().zip(&copies).zip(rates);
        let each = each.map(|((flow, copy), rate)| {
            let (bytes, slow) = (flow.bytes.as_f64(), copy.steady() / rate);
            let op = flow.by.wire().map_or(WireOp::Ping, |wire| wire.op);
            let answer = self.cost.message_ns + 2.0 * copy.line;
            Ns(match op {
                WireOp::Ping => 2.0 * copy.time(bytes, 1.0, slow),
                WireOp::Consume => copy.time(bytes, 1.0, slow) + bytes / copy.load + answer,
                op => copy.time(bytes, f64::from(op.window()), slow) + answer,
            })
        });
        let how =
            case.timed.first().and_then(|flow| flow.by.wire()).map_or("", |wire| match wire.via {
                Transport::Cma => "one copy by the kernel",
                Transport::Xpmem => "one copy by the receiver",
                _ => "copied in and out of a ring of 256 KiB",
            });
        Ok(SharedMemoryTime { each: each.collect(), how: how.to_owned() })
    }

    fn copy(&self, flow: &Flow) -> Result<SharedCopy, NoPath> {
        let wire = flow.by.wire().ok_or_else(|| NoPath("a flow of one process".into()))?;
        let (Unit::Numa(from), Unit::Numa(to)) = (flow.src.unit, flow.dst.unit) else {
            return Err(NoPath("shared memory of processes is host memory".into()));
        };
        if !matches!(wire.op, WireOp::Ping | WireOp::Send { .. } | WireOp::Consume) {
            return Err(NoPath(format!("{} has no such operation", wire.via)));
        }
        let near = match wire.near {
            Some(CoreDistance::SameL3) if from != to => {
                return Err(NoPath(format!("no L3 has cores of numa{from} and numa{to}")));
            }
            Some(near) => near,
            // Processes with a GPU each have cores of their own L3.
            None => CoreDistance::OtherL3,
        };
        let line = match near {
            CoreDistance::SameL3 => self.cost.same_l3_ns,
            CoreDistance::OtherL3 => self.cost.other_l3_ns * self.machine.distance(from, to),
        };
        let memcpy = CpuHow::Memcpy;
        let copies = wire.copies.unwrap_or(match wire.via {
            Transport::Cma => ShmCopies::Read,
            Transport::Xpmem => ShmCopies::Single(memcpy),
            _ => ShmCopies::InOut { copy_in: memcpy, copy_out: memcpy },
        });
        self.check_features(copies)?;
        let message = SharedMessage { bytes: flow.bytes.as_f64(), near, line };
        let (copy, traffic) = match copies {
            ShmCopies::InOut { copy_in, copy_out } => self.in_and_out(&message, copy_in, copy_out),
            ShmCopies::Single(how) => self.single(&message, how, 0.0),
            ShmCopies::Read | ShmCopies::Write => {
                let pages = (message.bytes / self.cores.page.max(1.0)).ceil();
                let call = 1e3 * (self.cost.call_us + pages * self.cost.page_us);
                self.single(&message, CpuHow::Movsb, call)
            }
        };
        let uses = if traffic > 0.0 {
            let scale = traffic / REFERENCE_TRAFFIC;
            let mut uses = self.machine.plain_copy(from, to)?;
            uses.iter_mut().for_each(|u| u.weight *= scale);
            uses
        } else {
            Vec::new()
        };
        Ok(SharedCopy { uses, ..copy })
    }

    /// Whether the processor has the instructions of both loops.
    fn check_features(&self, copies: ShmCopies) -> Result<(), NoPath> {
        let loops = match copies {
            ShmCopies::InOut { copy_in, copy_out } => vec![copy_in, copy_out],
            ShmCopies::Single(how) => vec![how],
            ShmCopies::Read | ShmCopies::Write => Vec::new(),
        };
        let features = &self.machine.topology.host.features;
        let missing = |feature: &&str| !features.iter().any(|known| known == feature);
        match loops.into_iter().filter_map(CpuHow::feature).find(missing) {
            Some(feature) => Err(NoPath(format!("the processor has no {feature}"))),
            None => Ok(()),
        }
    }

    /// The sender copies into the ring and the receiver out of it, and the traffic with memory for a
    /// byte.
    fn in_and_out(
        &self,
        message: &SharedMessage,
        copy_in: CpuHow,
        copy_out: CpuHow,
    ) -> (SharedCopy, f64) {
        let cached = self.level(message, RING_BYTES).is_some();
        let moved = self.moved(message.line);
        let outside = f64::from(u8::from(!cached));
        // Stores that bypass the caches leave the ring in memory.
        let past = f64::from(u8::from(copy_in.is_streaming()));
        let into = past + outside;
        let stored = if copy_out.is_streaming() { 1.0 } else { 2.0 * outside };
        let out_of = past + stored;
        let side = |how: CpuHow, traffic: f64, moves: bool| {
            let lines = if moves { moved } else { f64::INFINITY };
            self.rate(message, RING_BYTES, how).min(self.cores.memory_gbs / traffic).min(lines)
        };
        let paged = |how| matches!(how, CpuHow::Avx2Nt4 | CpuHow::Avx512Nt4);
        let copy = SharedCopy {
            start: self.cost.message_ns + 2.0 * message.line,
            line: message.line,
            copy_in: Some(side(copy_in, into, past == 0.0)),
            copy_out: Some(side(copy_out, out_of, past == 0.0)),
            piece: if paged(copy_in) || paged(copy_out) { PAGED_PIECE } else { PIECE },
            share: 1.0,
            uses: Vec::new(),
            load: self.loaded(message, copy_out.is_streaming()),
        };
        (copy, into + out_of)
    }

    /// One core copies from the other process's buffer to its own, or back, after `call` ns.
    fn single(&self, message: &SharedMessage, how: CpuHow, call: f64) -> (SharedCopy, f64) {
        let cached = self.level(message, message.bytes).is_some();
        let by_size =
            matches!(how, CpuHow::Memcpy) && message.bytes >= self.cores.memcpy_streams_from;
        let past = how.is_streaming() || by_size;
        let traffic = match (cached, past) {
            (true, false) => 0.0,
            (true, true) => 1.0,
            (false, false) => 3.0,
            (false, true) => 2.0,
        };
        let lines = if cached { self.moved(message.line) } else { f64::INFINITY };
        let memory = self.cores.memory_gbs / traffic;
        let rate = self.rate(message, message.bytes, how).min(memory).min(lines);
        let loads_past = matches!(how, CpuHow::Avx2Ntl | CpuHow::Avx512Ntl);
        let far = message.near == CoreDistance::OtherL3;
        let copy = SharedCopy {
            start: self.cost.message_ns + 2.0 * message.line + call,
            line: message.line,
            copy_in: None,
            copy_out: Some(rate),
            piece: message.bytes,
            share: if loads_past && far { self.cost.single_past_share } else { 1.0 },
            uses: Vec::new(),
            load: self.loaded(message, past),
        };
        (copy, traffic)
    }

    /// Rate of lines that move from core to core, GB/s.
    fn moved(&self, line: f64) -> f64 {
        f64::from(self.cost.lines_in_flight) * LINE / line
    }

    /// The smallest cache that holds a process's side of a message: its buffer and `more` bytes. An L3
    /// that both share holds both sides.
    fn level(&self, message: &SharedMessage, more: f64) -> Option<f64> {
        let caches = self.cores.caches.iter();
        let mut holding = caches.filter(|cache| {
            let both = cache.shared_by > 1 && message.near == CoreDistance::SameL3;
            message.bytes * if both { 2.0 } else { 1.0 } + more <= cache.bytes
        });
        holding.next().map(|cache| cache.gbs)
    }

    /// Payload that a core copies between caches, GB/s; each byte is read and written.
    fn rate(&self, message: &SharedMessage, more: f64, how: CpuHow) -> f64 {
        let last = self.cores.caches.last().map(|cache| cache.gbs);
        let gbs = self.level(message, more).or(last).unwrap_or(f64::INFINITY);
        let width = if how == CpuHow::Plain { 8.0 } else { RATED_WIDTH };
        gbs * width / RATED_WIDTH / 2.0
    }

    /// What a receiver loads its message at: out of a cache, or from memory.
    fn loaded(&self, message: &SharedMessage, past: bool) -> f64 {
        let held = self.level(message, RING_BYTES).filter(|_| !past);
        held.unwrap_or(self.cores.memory_gbs)
    }
}

/// What decides the copies of a message.
struct SharedMessage {
    bytes: f64,
    near: CoreDistance,
    /// Time of a line from the other core, ns.
    line: f64,
}
