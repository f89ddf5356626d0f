//! Facts of each mover that hold in every case: one row a mover.
//!
//! Planning, predicting, calibrating and reporting ask a row and do not match on [`Mover`], so that a
//! new mover is decided here once and not forgotten there.

use crate::{GpuSet, IoSpec, MessageOp, MigrateHow, Mover, RuntimeCall, ScatterMethod, words};

/// The engine of a copy by the GPU runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyAgent {
    /// A DMA copy engine (SDMA).
    Engine,
    /// The runtime's copy kernel (blit).
    Kernel,
}
words!(CopyAgent, "agent of copies", { Engine => "engine", Kernel => "blit" });

impl CopyAgent {
    /// Its name in records ([`crate::FlowSeries::engine`]).
    pub fn engine(self) -> &'static str {
        match self {
            Self::Engine => DMA.engine,
            Self::Kernel => BLIT.engine,
        }
    }
}

/// The expectation of a mover if a GPU touches managed pages that it does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultHandling {
    /// The page fault is served: pages migrate.
    Served,
    /// Pages stay and are accessed in place.
    InPlace,
}

/// The call that issues one operation, by which a model prices what it costs the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueCall {
    /// A copy of the GPU runtime.
    Copy,
    /// One call for many copies.
    Batch,
    /// A kernel launch, or what costs as much.
    Launch,
    /// None: threads that run already.
    Free,
}

/// Memory of the measuring process that a flow holds while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUse<'a> {
    /// A buffer at each end that is memory.
    BothEnds,
    /// A buffer at each end, and one like the destination's on each of these GPUs.
    EndsAndGpus(GpuSet),
    /// One buffer: its pages change place.
    SourceOnly,
    /// The subject of the call ([`crate::Flow::subject`]).
    Subject(RuntimeCall),
    /// None: ranks have their own.
    Ranks(&'a MessageOp),
    /// A block for each slot.
    Slots(&'a IoSpec),
    /// None: the workers of metadata operations hold one file's content each.
    Workers,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoverFacts {
    /// First word of its text. Messages and I/O begin with the word of a library or of a call instead
    /// ([`Mover::kind`]); theirs names all of them.
    pub word: &'static str,
    /// Its name in reports; `None`: its text.
    pub label: Option<&'static str>,
    /// The record's name for the engine is more specific than `label`.
    pub engine_recorded: bool,
    /// Name of the engine of a measured path in a model.
    pub engine: &'static str,
    /// Cases of all its kinds are sampled in turn, since what they measure drifts.
    pub interleaved: bool,
    /// Whether payload moves. Otherwise its cases have a time and no rate.
    pub moves_bytes: bool,
    /// Whether registers of its unit can be an end.
    pub uses_registers: bool,
    /// Whether a file can be an end.
    pub uses_files: bool,
    /// Set for copies of the runtime, of which one from or to pageable memory blocks its caller.
    pub copy_agent: Option<CopyAgent>,
    /// Set where the outcome depends on how the runtime serves page faults.
    pub faults: Option<FaultHandling>,
    /// How one operation is issued; none where a model of one node cannot price it.
    pub issue: Option<IssueCall>,
    /// Why no path of a machine file is fitted to its records; none where one is.
    pub not_fitted: Option<&'static str>,
}

const DMA: MoverFacts = MoverFacts {
    word: "dma",
    label: Some("runtime copy"),
    engine_recorded: true,
    engine: "copy engine",
    interleaved: false,
    moves_bytes: true,
    uses_registers: false,
    uses_files: false,
    copy_agent: Some(CopyAgent::Engine),
    faults: None,
    issue: Some(IssueCall::Copy),
    not_fitted: None,
};

const BLIT: MoverFacts = MoverFacts {
    word: "blit",
    label: Some("blit kernel"),
    engine_recorded: false,
    engine: "blit kernel",
    copy_agent: Some(CopyAgent::Kernel),
    ..DMA
};

const STAGED: MoverFacts = MoverFacts {
    word: "staged",
    label: Some("staged copies"),
    engine_recorded: false,
    engine: "copies staged through the host",
    not_fitted: Some("staged copies, which are several at once"),
    ..DMA
};

const THREADS: MoverFacts = MoverFacts {
    word: "threads",
    label: Some("copy by threads"),
    engine_recorded: false,
    engine: "copy by threads",
    not_fitted: Some("copies by threads, which the processor limits"),
    ..DMA
};

const BATCH: MoverFacts = MoverFacts {
    word: "batch",
    label: Some("batch of copies"),
    engine_recorded: false,
    engine: "batch of copies",
    issue: Some(IssueCall::Batch),
    not_fitted: Some("batches of small copies"),
    ..DMA
};

const BLOCKS: MoverFacts = MoverFacts {
    word: "blocks",
    label: Some("kernel for blocks"),
    engine_recorded: false,
    engine: "kernel for blocks",
    copy_agent: None,
    issue: Some(IssueCall::Launch),
    not_fitted: Some("copies of scattered blocks"),
    ..DMA
};

const BLOCKS_EACH: MoverFacts = MoverFacts {
    label: Some("a copy for each block"),
    engine: "a copy for each block",
    copy_agent: Some(CopyAgent::Engine),
    issue: Some(IssueCall::Copy),
    ..BLOCKS
};

const BLOCKS_BATCH: MoverFacts = MoverFacts {
    label: Some("batch of blocks"),
    engine: "batch of blocks",
    issue: Some(IssueCall::Batch),
    ..BLOCKS_EACH
};

const RELAY: MoverFacts = MoverFacts {
    word: "relay",
    label: Some("relayed copy"),
    engine_recorded: false,
    engine: "copies over several paths",
    not_fitted: Some("copies over several paths at once"),
    ..DMA
};

const COPY_TO_ALL: MoverFacts = MoverFacts {
    word: "copy-to-all",
    label: Some("copy to all"),
    engine: "copies to several GPUs",
    ..RELAY
};

const KERNEL: MoverFacts = MoverFacts {
    word: "kernel",
    label: Some("kernel"),
    engine_recorded: false,
    engine: "kernel",
    uses_registers: true,
    copy_agent: None,
    faults: Some(FaultHandling::InPlace),
    issue: Some(IssueCall::Launch),
    ..DMA
};

const PREFETCH: MoverFacts = MoverFacts {
    word: "migrate",
    label: Some("page migration"),
    engine: "migration",
    uses_registers: false,
    faults: None,
    not_fitted: Some("migrated pages"),
    ..KERNEL
};

const FAULT: MoverFacts = MoverFacts { faults: Some(FaultHandling::Served), ..PREFETCH };

const CPU: MoverFacts = MoverFacts {
    word: "cpu",
    label: Some("threads"),
    engine: "CPU loop",
    faults: None,
    issue: Some(IssueCall::Free),
    not_fitted: Some("loops of the processor"),
    ..KERNEL
};

const CALL: MoverFacts = MoverFacts {
    word: "call",
    label: Some("runtime call"),
    moves_bytes: false,
    not_fitted: Some("calls of the runtime"),
    ..CPU
};

const MESSAGE: MoverFacts = MoverFacts {
    word: "message",
    label: None,
    engine: "library",
    uses_registers: false,
    issue: None,
    not_fitted: Some("messages between processes"),
    ..CPU
};

const IO: MoverFacts = MoverFacts {
    word: "io",
    engine: "I/O",
    interleaved: true,
    uses_files: true,
    not_fitted: Some("I/O of files, which is their store's"),
    ..MESSAGE
};

const META: MoverFacts = MoverFacts {
    word: "meta",
    label: Some("metadata"),
    engine: "file system",
    moves_bytes: false,
    uses_registers: true,
    not_fitted: Some("metadata operations, which are their store's"),
    ..IO
};

impl Mover {
    /// Its row.
    pub const fn facts(&self) -> &'static MoverFacts {
        match self {
            Self::Dma { .. } => &DMA,
            Self::Blit { .. } => &BLIT,
            Self::Kernel { .. } => &KERNEL,
            Self::Cpu { .. } => &CPU,
            Self::Migrate { how: MigrateHow::Fault, .. } => &FAULT,
            Self::Migrate { how: MigrateHow::Prefetch, .. } => &PREFETCH,
            Self::Staged { .. } => &STAGED,
            Self::Threads { .. } => &THREADS,
            Self::Batch { .. } => &BATCH,
            Self::Blocks { by: ScatterMethod::Each, .. } => &BLOCKS_EACH,
            Self::Blocks { by: ScatterMethod::Batch, .. } => &BLOCKS_BATCH,
            Self::Blocks { by: ScatterMethod::Kernel { .. }, .. } => &BLOCKS,
            Self::Relay { .. } => &RELAY,
            Self::CopyToAll { .. } => &COPY_TO_ALL,
            Self::Call { .. } => &CALL,
            Self::Wire { .. } => &MESSAGE,
            Self::Io { .. } => &IO,
            Self::Meta { .. } => &META,
        }
    }
    /// The memory that it holds.
    pub const fn memory(&self) -> MemoryUse<'_> {
        match self {
            Self::Dma { .. }
            | Self::Blit { .. }
            | Self::Kernel { .. }
            | Self::Cpu { .. }
            | Self::Staged { .. }
            | Self::Threads { .. }
            | Self::Batch { .. }
            | Self::Blocks { .. }
            | Self::Relay { .. } => MemoryUse::BothEnds,
            Self::CopyToAll { paths, .. } => MemoryUse::EndsAndGpus(paths.gpus),
            Self::Migrate { .. } => MemoryUse::SourceOnly,
            Self::Call { call, .. } => MemoryUse::Subject(*call),
            Self::Wire { wire, .. } => MemoryUse::Ranks(wire),
            Self::Io { io, .. } => MemoryUse::Slots(io),
            Self::Meta { .. } => MemoryUse::Workers,
        }
    }
    /// First word of its text: that of its row, or of the transport (`mpi`, `ccl`, `ucx`, `shm`, `cma`,
    /// `xpmem`) or of the calls of I/O (`uring`, `uring-plain`, `uring-poll`, `aio`, `sync`, `gds`).
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Wire { wire, .. } => wire.via.word(),
            Self::Io { io, .. } => io.engine.word(),
            _ => self.facts().word,
        }
    }
    /// The operation in its text, without variants; `None` for copies and I/O.
    pub const fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Kernel { variant, .. } => Some(variant.op.word()),
            Self::Cpu { work, .. } => Some(work.op.word()),
            Self::Migrate { how, .. } => Some(how.word()),
            Self::Call { call, .. } => Some(call.word()),
            Self::Wire { wire, .. } => Some(wire.op.kind()),
            Self::Meta { meta, .. } => Some(meta.op.word()),
            Self::Dma { .. }
            | Self::Blit { .. }
            | Self::Staged { .. }
            | Self::Threads { .. }
            | Self::Batch { .. }
            | Self::Blocks { .. }
            | Self::Relay { .. }
            | Self::CopyToAll { .. }
            | Self::Io { .. } => None,
        }
    }
    /// Its name in reports for the engine of a record; empty if it has none.
    pub fn label<'a>(&self, engine: &'a str) -> &'a str {
        let facts = self.facts();
        if facts.engine_recorded && !engine.is_empty() {
            engine
        } else {
            facts.label.unwrap_or_else(|| self.kind())
        }
    }
    /// Whether its figure is bytes over time, and not a time.
    pub fn has_rate(&self) -> bool {
        self.facts().moves_bytes && !self.is_chase()
    }
}
