//! Processes that measure together: all of them as the engine uses them ([`RankGroup`]), and the
//! calls of one process to one library ([`TransportPort`]).
//!
//! All control flow is collective and in one place: the implementation of [`RankGroup`] sends every
//! rank each step and continues when all have answered. A port therefore never decides whether to
//! continue; it does its part of a step and reports the result.

use std::collections::BTreeMap;

use pathline_schema::{
    Case, Collective, CpuSet, IoReading, MessageOp, Ns, Rank, RankMember, RunNote, Transport, Unit,
    VerifyResult,
};

use crate::group_layout::buffer_bytes;
use crate::{CallError, CallResult};

/// A case that the ranks have bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId(pub u64);

/// Time of one flow of a case in one sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowTime {
    /// Sum over the repetitions of the time of the slowest rank in each. Streaming repetitions are
    /// timed as one.
    pub elapsed: Ns,
    /// Time of each participating rank, over all repetitions.
    pub by_rank: BTreeMap<Rank, Ns>,
    /// Additional data of I/O, from the rank that does it.
    pub io: Option<IoReading>,
}

/// The processes of a run. Each call involves all of them.
pub trait RankGroup {
    /// Descriptions of the processes, by rank.
    fn members(&self) -> &[RankMember];
    /// Observations during startup that a reader of the report must know.
    fn notes(&self) -> Vec<RunNote> {
        Vec::new()
    }
    /// Allocates the memory of a case's flows between processes, fills the send buffers, and
    /// connects. The processes avoid `busy_cpus`, on which other flows of the case run.
    fn bind(&self, case: &Case, busy_cpus: &CpuSet) -> CallResult<ExchangeId>;
    /// Runs the bound exchange `reps` times, and returns the time of each flow between processes.
    fn run(&self, id: ExchangeId, reps: u64) -> CallResult<Vec<FlowTime>>;
    /// Starts the bound exchange on all ranks, `reps` times, and returns while it runs. They accept
    /// nothing else before [`RankGroup::end`].
    fn begin(&self, id: ExchangeId, reps: u64) -> CallResult<()> {
        let _ = reps;
        Err(CallError::unsupported(
            "begin",
            format!("exchange {}", id.0),
            "it runs with nothing else",
        ))
    }
    /// Waits for the end of a started exchange, and returns the time of each flow.
    fn end(&self, id: ExchangeId) -> CallResult<Vec<FlowTime>> {
        Err(no_exchange("end", id))
    }
    /// Overwrites every destination with wrong bytes, and every source with its pattern.
    fn spoil(&self, id: ExchangeId) -> CallResult<()>;
    /// Compares every byte of every destination.
    fn check(&self, id: ExchangeId) -> CallResult<VerifyResult>;
    /// The engine that carried the bytes, for the record: library, protocol, algorithm.
    fn engine(&self, id: ExchangeId) -> String;
    /// Releases a bound exchange.
    fn release(&self, id: ExchangeId) -> CallResult<()>;
}

/// A piece of memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalMemory {
    /// Address; 0 if this rank has no memory for this end.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// The part of one process in a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowPart {
    /// The operation.
    pub wire: MessageOp,
    /// Payload in bytes. Of a collective the larger of a rank's two buffers, as in nccl-tests.
    pub bytes: u64,
    /// Members in order: sender and receiver, or all members of a collective, the root first. A
    /// process with several GPUs has one entry for each.
    pub group: Vec<(Rank, Unit)>,
    /// Positions of this process in the group. Empty if it does not participate.
    pub positions: Vec<usize>,
    /// Send buffer for each position.
    pub send: Vec<LocalMemory>,
    /// Receive buffer for each position; equals the send buffer if the operation is in place. In a
    /// ping ([`pathline_schema::WireOp::is_ping`]) both ends have both, and the source of an atomic
    /// operation has both.
    pub recv: Vec<LocalMemory>,
    /// Whether the buffers of each position of this process are device memory, which no CPU can
    /// address. Positions without an entry have host memory.
    pub device: Vec<bool>,
}

impl FlowPart {
    /// The collective, unless the flow is a message.
    pub fn collective(&self) -> Option<Collective> {
        self.wire.op.collective()
    }
    /// Whether the buffers of its `nth` position are device memory.
    pub fn is_device(&self, nth: usize) -> bool {
        self.device.get(nth).copied().unwrap_or(false)
    }
    /// Whether this process does not participate.
    pub fn is_idle(&self) -> bool {
        self.positions.is_empty()
    }
    /// Bytes in the send and receive buffers of a position.
    fn needs(&self, position: usize) -> (u64, u64) {
        buffer_bytes(self.wire.op, position, self.group.len(), self.bytes)
    }
    /// Reason if a buffer of this process is too small for its part. A library would write past its
    /// end.
    pub fn short_buffer(&self) -> Option<String> {
        self.positions.iter().enumerate().find_map(|(nth, &position)| {
            let (send, recv) = self.needs(position);
            let sides = [("send", &self.send, send), ("receive", &self.recv, recv)];
            let short = sides.into_iter().find_map(|(what, spans, bytes)| {
                let span = spans.get(nth).copied().unwrap_or_default();
                let is_short = bytes > 0 && (span.address == 0 || span.bytes < bytes);
                is_short.then_some((what, bytes, span.bytes))
            });
            let (what, bytes, has) = short?;
            let rank = self.group.get(position).map_or(0, |(rank, _)| rank.0);
            Some(format!("rank {rank} is to {what} {bytes} B and has a buffer of {has} B"))
        })
    }
}

/// Order and timing of the repetitions of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatMode {
    /// Back to back, timed as one: one time for each part.
    Streaming,
    /// A barrier of all ranks, untimed, precedes each repetition: one time for each repetition.
    Isolated,
    /// Launched back to back as a recorded graph, timed as one.
    Graph,
}

impl RepeatMode {
    /// Number of timed rounds that make up `reps` repetitions, and the repetitions in each.
    pub const fn rounds(self, reps: u64) -> (u64, u64) {
        match self {
            Self::Isolated => (reps, 1),
            Self::Streaming | Self::Graph => (1, reps),
        }
    }

    /// The sample of a process that has no part in an exchange of `parts` parts: it comes to the barrier
    /// as often as the others, and has no times.
    ///
    /// # Errors
    /// A rank does not arrive.
    pub fn idle_sample(
        self,
        parts: usize,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        (0..self.rounds(reps).0).try_for_each(|_| barrier.wait())?;
        Ok(vec![Vec::new(); parts])
    }
}

/// A barrier for all ranks of a case.
pub trait RankBarrier {
    /// Returns when all ranks have called it.
    fn wait(&self) -> CallResult<()>;
    /// Fails the present and future waits of all ranks at once, since this rank will not arrive.
    fn cancel(&self) {}
}

/// A barrier that does not wait, for exchanges whose messages already order the ranks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBarrier;

impl RankBarrier for NoBarrier {
    fn wait(&self) -> CallResult<()> {
        Ok(())
    }
}

/// What a message library reports about its support for device memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceClaim {
    /// Whether the library accepts device memory.
    pub is_supported: bool,
    /// The function or setting that reports it: `MPIX_Query_rocm_support`.
    pub source: String,
}

/// The calls of one process to one transport.
///
/// Binding takes two steps, so that processes can exchange addresses and keys: each returns an
/// offer, and then receives the offers of all.
pub trait TransportPort {
    /// The transport that this port implements.
    fn via(&self) -> Transport;
    /// Library, version and file, for records.
    fn library(&self) -> String;
    /// What the library reports about memory of a vendor's GPUs, with vendors as in
    /// [`pathline_schema::Gpu::vendor`]. `None` if it reports nothing.
    fn device_claim(&self, vendor: &str) -> Option<DeviceClaim> {
        let _ = vendor;
        None
    }
    /// CPUs to avoid in the next exchange that is bound, since others use them.
    fn avoid_cpus(&mut self, cpus: &CpuSet) {
        let _ = cpus;
    }
    /// Binds this process's part of a case, parts in the order of the timed flows. Every process
    /// receives every part, also parts without a position of this process. Returns the offer.
    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)>;
    /// Accepts the offers of all ranks, by rank. The exchange can run afterwards.
    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()>;
    /// Waits at the barrier, runs all parts concurrently `reps` times, and returns the times of
    /// each part in ns: one for all repetitions, or with [`RepeatMode::Isolated`] one for each.
    /// Parts without a position of this process have none. A ping's time is that of the round trip.
    fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>>;
    /// The engine that carried the bytes, as far as the library reports it: protocol, algorithm,
    /// channels.
    fn engine(&self, id: ExchangeId) -> String;
    /// Closes the connections of an exchange that failed in some process, if the library keeps
    /// connections for later cases. Every process must call this: one that keeps its connection
    /// waits in the next case for peers that have disconnected. Returns the exchanges that used a
    /// closed connection; each must be bound again before it runs.
    fn disconnect(&mut self, id: ExchangeId) -> Vec<ExchangeId> {
        let _ = id;
        Vec::new()
    }
    /// Releases a bound exchange. All ranks do so, after the last of them has run.
    ///
    /// # Errors
    /// [`pathline_schema::Severity::Sticky`] means that the library or a peer may still read and
    /// write the memory of the parts: its owner must not free it.
    fn release(&mut self, id: ExchangeId) -> CallResult<()>;
}

/// The exchanges that a port has bound, by number.
#[derive(Debug)]
pub struct ExchangeTable<E> {
    bound: BTreeMap<ExchangeId, E>,
    made: u64,
}

impl<E> Default for ExchangeTable<E> {
    fn default() -> Self {
        Self { bound: BTreeMap::new(), made: 0 }
    }
}

impl<E> ExchangeTable<E> {
    /// The number that the next exchange gets; the first is 1.
    pub const fn next_id(&self) -> ExchangeId {
        ExchangeId(self.made + 1)
    }
    /// Adds an exchange and gives it its number.
    pub fn insert(&mut self, exchange: E) -> ExchangeId {
        let id = self.next_id();
        self.made = id.0;
        self.bound.insert(id, exchange);
        id
    }
    /// The exchange, if it is bound.
    pub fn get(&self, id: ExchangeId) -> Option<&E> {
        self.bound.get(&id)
    }
    /// The exchange that `call` needs.
    ///
    /// # Errors
    /// It is not bound.
    pub fn bound(&mut self, call: &str, id: ExchangeId) -> CallResult<&mut E> {
        self.bound.get_mut(&id).ok_or_else(|| no_exchange(call, id))
    }
    /// Removes an exchange that is released.
    ///
    /// # Errors
    /// It is not bound.
    pub fn remove(&mut self, id: ExchangeId) -> CallResult<E> {
        self.bound.remove(&id).ok_or_else(|| no_exchange("release", id))
    }
    /// All exchanges, by number.
    pub fn iter(&self) -> impl Iterator<Item = (ExchangeId, &E)> {
        self.bound.iter().map(|(&id, exchange)| (id, exchange))
    }
}

/// The error for an exchange that is not bound.
pub fn no_exchange(call: &str, id: ExchangeId) -> CallError {
    CallError::unsupported(call, format!("exchange {}", id.0), "it is not bound")
}
