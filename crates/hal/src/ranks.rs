//! Processes that measure together: the whole as the engine sees it ([`RankGroup`]), and what one
//! process can do with one library ([`TransportPort`]).
//!
//! All control flow is collective and in one place: the implementation of [`RankGroup`] sends every
//! rank each step and continues when all have answered. A port therefore never decides whether to
//! continue; it does its part of a step and reports the result.

use std::collections::BTreeMap;

use pathline_schema::{
    Case, Collective, CpuSet, MessageOp, Ns, Rank, RankMember, RunNote, Transport, Unit,
    VerifyResult, WireOp,
};

use crate::{CallError, CallResult};

/// A case that ranks have bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId(pub u64);

/// Time of a timed flow of a case in one sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowTime {
    /// Sum over the repetitions of the time of the rank that was last in each. Streaming
    /// repetitions are timed as one.
    pub elapsed: Ns,
    /// The time of each rank that took part, all repetitions.
    pub by_rank: BTreeMap<Rank, Ns>,
}

/// The processes of a run. Every call is about all of them.
pub trait RankGroup {
    /// Descriptions of the processes, by rank.
    fn members(&self) -> &[RankMember];
    /// Observations of their start that a reader of the run must know.
    fn notes(&self) -> Vec<RunNote> {
        Vec::new()
    }
    /// Allocates the memory of a case's flows between processes, fills what is sent, and connects.
    /// Other flows of the case run on the CPUs `busy_cpus`, which the processes leave to them.
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
    /// Makes every destination wrong, and every source right.
    fn spoil(&self, id: ExchangeId) -> CallResult<()>;
    /// Compares every byte of every destination.
    fn check(&self, id: ExchangeId) -> CallResult<VerifyResult>;
    /// The engine that carried the bytes, for the record: library, protocol, algorithm.
    fn engine(&self, id: ExchangeId) -> String;
    /// Gives back what was bound.
    fn release(&self, id: ExchangeId) -> CallResult<()>;
}

/// A piece of memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalMemory {
    /// Its address; 0 if this rank has none for this end.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// One process's part of a timed flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowPart {
    /// The operation.
    pub wire: MessageOp,
    /// Payload: of a message, or of a collective the larger of a rank's two buffers, as nccl-tests
    /// counts.
    pub bytes: u64,
    /// The members, in order: sender and receiver, or all of a collective, the root first.
    /// A process with several GPUs is named once for each.
    pub group: Vec<(Rank, Unit)>,
    /// Positions of this process in the group; none if it takes no part.
    pub mine: Vec<usize>,
    /// Send memory of each of these.
    pub send: Vec<LocalMemory>,
    /// Receive memory of each of these. The same as its send memory, if the operation is in place.
    /// In a [`pathline_schema::WireOp::Ping`] both ends have both.
    pub recv: Vec<LocalMemory>,
    /// Whether that is memory of GPUs' own, which no CPU can address.
    pub device: bool,
}

impl FlowPart {
    /// The collective, if it is one.
    pub fn collective(&self) -> Option<Collective> {
        self.wire.op.collective()
    }
    /// Whether this process has anything to do.
    pub fn is_idle(&self) -> bool {
        self.mine.is_empty()
    }
    /// Bytes that a position of the group sends from and receives into.
    fn needs(&self, position: usize) -> (u64, u64) {
        let (all, n) = (self.bytes, self.group.len().max(1) as u64);
        let first = |yes: bool| if yes { all } else { 0 };
        match self.wire.op {
            WireOp::Ping => (all, all),
            WireOp::Send { .. } | WireOp::Consume | WireOp::Put { .. } | WireOp::Get { .. } => {
                (first(position == 0), first(position == 1))
            }
            WireOp::Group { op, .. } => match op {
                Collective::Broadcast => (first(position == 0), first(position != 0)),
                Collective::Reduce => (all, first(position == 0)),
                Collective::AllReduce | Collective::AllToAll => (all, all),
                Collective::ReduceScatter => (all, all / n),
                Collective::AllGather => (all / n, all),
                Collective::Barrier => (0, 0),
            },
        }
    }
    /// Why a buffer of this process is too small for its part; none if all are large enough. A library
    /// that is handed such a buffer writes behind it.
    pub fn short_buffer(&self) -> Option<String> {
        self.mine.iter().enumerate().find_map(|(nth, &position)| {
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

/// How the repetitions of a sample follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatMode {
    /// Back to back, timed as one: one time for each part.
    Streaming,
    /// All ranks meet before each repetition, untimed; a time for each repetition.
    Isolated,
    /// Launched back to back as a recorded graph, timed as one.
    Graph,
}

/// A place where all ranks of a case meet. Nobody leaves it before all have come.
pub trait RankBarrier {
    /// Comes and waits. An error if somebody does not come in time.
    fn meet(&self) -> CallResult<()>;
    /// Has every rank that waits here, now or later, fail at once: this one will not come.
    fn cancel(&self) {}
}

/// The barrier that does not wait, for exchanges that messages themselves order.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBarrier;

impl RankBarrier for NoBarrier {
    fn meet(&self) -> CallResult<()> {
        Ok(())
    }
}

/// What a message library reports about memory of GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceClaim {
    /// Whether it takes such memory.
    pub takes: bool,
    /// The call or setting that reports it: `MPIX_Query_rocm_support`.
    pub by: String,
}

/// What one process can do with one transport.
///
/// Binding takes two steps, so that processes can exchange addresses and keys: each gives its
/// offer, and each receives the offers of all.
pub trait TransportPort {
    /// The transport that it serves.
    fn via(&self) -> Transport;
    /// Library, version and file, for the record.
    fn library(&self) -> String;
    /// What the library reports about memory of a vendor's GPUs, as
    /// [`pathline_schema::Gpu::vendor`] names vendors; `None` if it reports nothing.
    fn device_claim(&self, vendor: &str) -> Option<DeviceClaim> {
        let _ = vendor;
        None
    }
    /// CPUs that others use while what is bound next runs, to be kept off.
    fn keep_off(&mut self, cpus: &CpuSet) {
        let _ = cpus;
    }
    /// Makes this process's part of a case, timed parts in order. Every process receives every
    /// part, also parts in which it does nothing.
    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)>;
    /// Takes what every rank gave, by rank. Afterwards the exchange can run.
    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()>;
    /// Meets the others, runs all parts concurrently `reps` times, and gives for each part the
    /// times in ns: one for all repetitions, or of [`RepeatMode::Isolated`] one for each. No times
    /// for parts that this process has no part in. A ping's time is that of the whole round trip.
    fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        meeting: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>>;
    /// What carried the bytes, as far as the library reports it: protocol, algorithm, channels.
    fn engine(&self, id: ExchangeId) -> String;
    /// Ends the connections of an exchange that failed in some process, where the library keeps
    /// connections for later cases. Every process must call this: a process that keeps its connection
    /// waits in the next case for peers that have disconnected. Returns the exchanges that used a closed
    /// connection; each must be bound again before it runs.
    fn disconnect(&mut self, id: ExchangeId) -> Vec<ExchangeId> {
        let _ = id;
        Vec::new()
    }
    /// Gives back what was bound. All ranks do so, after the last of them has run.
    ///
    /// # Errors
    /// [`pathline_schema::Severity::Sticky`] means that the library or a peer may still read and
    /// write the memory of the parts: its owner must not free it.
    fn release(&mut self, id: ExchangeId) -> CallResult<()>;
}

/// The error of an exchange that was never bound.
pub fn no_exchange(call: &str, id: ExchangeId) -> CallError {
    CallError::unsupported(call, format!("exchange {}", id.0), "it is not bound")
}
