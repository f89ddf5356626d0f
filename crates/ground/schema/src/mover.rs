//! Movers of bytes: an engine of a GPU, a kernel, CPU threads, the page fault handler. Or a call
//! that moves none.

use std::fmt;
use std::str::FromStr;

use crate::place::number;
use crate::variant::CHAIN_STRIDE;
use crate::{
    Bytes, IoEngine, IoSpec, KernelEffect, KernelOp, KernelVariant, MessageOp, MetaSpec,
    MultipathSpec, ParseError, Transport, Unit, did_you_mean, serde_as_text, words,
};

/// The operation of CPU threads on the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuOp {
    /// Loads every word.
    Read,
    /// Stores every word.
    Write,
    /// Loads and stores every word.
    Copy,
    /// `a = b + s * c` on doubles.
    Triad,
    /// Follows a random cycle of dependent loads.
    Chase,
    /// Stores one byte into every page of fresh memory: the first-touch cost.
    Touch,
}
words!(CpuOp, "CPU operation", {
    Read => "read", Write => "write", Copy => "copy", Triad => "triad", Chase => "chase",
    Touch => "touch",
});

/// Their instructions. `-nt` is streaming stores; `-nta` is streaming stores behind
/// `prefetchnta` loads; `-nt4` is streaming stores to four pages in turn; `-ntl` is loads behind
/// `prefetchnta` and stores as always, as UCX's receiver copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuHow {
    /// 8-byte loads and stores, on any processor.
    Plain,
    /// The C library's `memcpy`.
    Memcpy,
    /// `rep movsb` (x86-64).
    Movsb,
    /// 32-byte AVX2 loads and stores.
    Avx2,
    /// AVX2 with streaming stores.
    Avx2Nt,
    /// AVX2 with `prefetchnta` loads and streaming stores.
    Avx2Nta,
    /// AVX2 with streaming stores to four pages in turn.
    Avx2Nt4,
    /// AVX2 with `prefetchnta` loads and plain stores.
    Avx2Ntl,
    /// 64-byte AVX-512 loads and stores.
    Avx512,
    /// AVX-512 with streaming stores.
    Avx512Nt,
    /// AVX-512 with `prefetchnta` loads and streaming stores.
    Avx512Nta,
    /// AVX-512 with streaming stores to four pages in turn.
    Avx512Nt4,
    /// AVX-512 with `prefetchnta` loads and plain stores.
    Avx512Ntl,
    /// `ldp`/`stp` of 16-byte registers (aarch64).
    Neon,
    /// `ldnp`/`stnp` (aarch64).
    NeonNt,
}
words!(CpuHow, "CPU instruction choice", {
    Plain => "plain", Memcpy => "memcpy", Movsb => "movsb", Avx2 => "avx2", Avx2Nt => "avx2-nt",
    Avx2Nta => "avx2-nta", Avx2Nt4 => "avx2-nt4",
    Avx2Ntl => "avx2-ntl", Avx512 => "avx512", Avx512Nt => "avx512-nt",
    Avx512Nta => "avx512-nta", Avx512Nt4 => "avx512-nt4",
    Avx512Ntl => "avx512-ntl", Neon => "neon", NeonNt => "neon-nt",
});

impl CpuHow {
    /// The processor feature it needs, as `/proc/cpuinfo` names it; none for portable ones.
    pub const fn feature(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Memcpy => None,
            Self::Movsb => Some("erms"),
            Self::Avx2 | Self::Avx2Nt | Self::Avx2Nta | Self::Avx2Nt4 | Self::Avx2Ntl => {
                Some("avx2")
            }
            Self::Avx512 | Self::Avx512Nt | Self::Avx512Nta | Self::Avx512Nt4 | Self::Avx512Ntl => {
                Some("avx512f")
            }
            Self::Neon | Self::NeonNt => Some("asimd"),
        }
    }
    /// Whether stores bypass the caches.
    pub const fn is_streaming(self) -> bool {
        matches!(
            self,
            Self::Avx2Nt
                | Self::Avx2Nta
                | Self::Avx2Nt4
                | Self::Avx512Nt
                | Self::Avx512Nta
                | Self::Avx512Nt4
                | Self::NeonNt
        )
    }
}

/// One CPU loop: `copy-avx512-nt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuWork {
    /// The operation.
    pub op: CpuOp,
    /// With which instructions.
    pub how: CpuHow,
}

impl CpuWork {
    /// The effect of one pass over a payload of `bytes`. A touch writes one byte of every page, but
    /// the kernel clears the page: it counts as written.
    pub fn effect(&self, bytes: Bytes) -> KernelEffect {
        let none = Bytes(0);
        let (reads, writes, chain) = match self.op {
            CpuOp::Read => (bytes, none, 0),
            CpuOp::Write | CpuOp::Touch => (none, bytes, 0),
            CpuOp::Copy => (bytes, bytes, 0),
            CpuOp::Triad => (Bytes(bytes.0.saturating_mul(2)), bytes, 0),
            CpuOp::Chase => (bytes, none, (bytes.0 / CHAIN_STRIDE).max(1)),
        };
        KernelEffect { reads, writes, chain }
    }
}

impl fmt::Display for CpuWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.op, self.how)
    }
}

/// How managed pages are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MigrateHow {
    /// By the page faults of a kernel that reads them.
    Fault,
    /// By an explicit prefetch call.
    Prefetch,
}
words!(MigrateHow, "migration", { Fault => "fault", Prefetch => "prefetch" });

/// A call of the GPU runtime whose own cost to the host is timed.
///
/// The places of the flow say what it is about: `gpu0.reg > numa0.pinned by call@gpu0[alloc]`,
/// `numa0.paged > numa0.registered by call@gpu0[register]`. A call about no memory has registers of
/// the GPU at both ends and a size of 1 B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuntimeCall {
    /// Allocates the memory of the destination.
    Alloc,
    /// Frees the memory of the source.
    Free,
    /// Page-locks the pageable memory of the source.
    Register,
    /// Takes that back; the destination is the pageable memory.
    Unregister,
    /// Enqueues a kernel of one thread on an idle stream; the call only.
    Launch,
    /// The same, and waits for its end.
    LaunchSync,
    /// Waits for a stream that is idle.
    Sync,
    /// Records an event on an idle stream.
    Event,
    /// Creates a stream.
    Stream,
    /// Registers the memory of the source with a network adapter, which may then read and write it
    /// by itself.
    NicRegister,
    /// Takes that back.
    NicDeregister,
    /// Has the runtime export device memory as a file that other drivers understand.
    ExportDmabuf,
    /// Registers device memory with a network adapter by such a file; the call only.
    NicRegisterDmabuf,
    /// Takes that back.
    NicDeregisterDmabuf,
}
words!(RuntimeCall, "runtime call", {
    Alloc => "alloc", Free => "free", Register => "register", Unregister => "unregister",
    Launch => "launch", LaunchSync => "launch-sync", Sync => "sync", Event => "event",
    Stream => "stream", NicRegister => "nic-register", NicDeregister => "nic-deregister",
    ExportDmabuf => "export-dmabuf", NicRegisterDmabuf => "nic-register-dmabuf",
    NicDeregisterDmabuf => "nic-deregister-dmabuf",
});

impl RuntimeCall {
    /// The kernel that launches are timed with: one thread that stores one word.
    pub const KERNEL: KernelVariant =
        KernelVariant { op: KernelOp::Write, ..KernelVariant::chase() };
    /// The payload of that kernel.
    pub const KERNEL_BYTES: Bytes = Bytes(8);

    /// Whether its cost may grow with the bytes that it is about.
    pub const fn is_sized(self) -> bool {
        matches!(self, Self::Alloc | Self::Free | Self::Register | Self::Unregister)
            || self.is_of_adapters()
    }
    /// Whether it is about memory that adapters are to reach, which may be the host's: no GPU need
    /// be there.
    pub const fn is_of_adapters(self) -> bool {
        matches!(self, Self::NicRegister | Self::NicDeregister) || self.is_of_dmabuf()
    }
    /// Whether it is about the file that device memory is exported as.
    pub const fn is_of_dmabuf(self) -> bool {
        matches!(self, Self::ExportDmabuf | Self::NicRegisterDmabuf | Self::NicDeregisterDmabuf)
    }
}

/// Most multiprocessors of a kernel that copies blocks, unless stated. On an H200 8 reach 97 % or more of what 16 do
/// over its link, and a GEMM meanwhile 0.93 of its rate in place of 0.88.
pub const COPY_UNITS: u32 = 8;
/// Most blocks of one operation.
pub const MAX_BLOCKS: u32 = 1 << 16;

/// How scattered blocks are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScatterMethod {
    /// By a copy of the runtime each.
    Each,
    /// By copies that are handed to the runtime in one call.
    Batch,
    /// In place, by one of pathline's kernels.
    Kernel {
        /// Most multiprocessors that it takes: thread blocks of the kernel, 1 to 1024.
        units: u32,
    },
}

impl fmt::Display for ScatterMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each => f.write_str("each"),
            Self::Batch => f.write_str("batch"),
            Self::Kernel { units } => write!(f, "g{units}"),
        }
    }
}

impl ScatterMethod {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "each" => Some(Self::Each),
            "batch" => Some(Self::Batch),
            _ => {
                let units = number(text.strip_prefix('g')?)?;
                (1..=1024).contains(&units).then_some(Self::Kernel { units })
            }
        }
    }
}

/// Bytes of one chunk of a copy that is staged through host memory by this program.
pub const STAGED_CHUNK: Bytes = Bytes::mib(4);
/// Chunks of pinned memory that such a copy goes round: while some are filled others are emptied.
pub const STAGED_CHUNKS: u64 = 4;

/// The mover of a flow's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mover {
    /// The runtime's asynchronous copy, issued at a GPU: a DMA copy engine (SDMA on AMD), unless
    /// the environment of the run makes the runtime choose otherwise.
    Dma {
        /// The GPU whose stream issues the copy.
        at: Unit,
    },
    /// The runtime's copy, forced onto its own copy kernel.
    Blit {
        /// The GPU that runs the kernel.
        at: Unit,
    },
    /// One of pathline's kernels.
    Kernel {
        /// The GPU that runs it.
        at: Unit,
        /// The kernel.
        variant: KernelVariant,
    },
    /// CPU threads, pinned one to a core.
    Cpu {
        /// The NUMA domain whose cores run them.
        at: Unit,
        /// The loop.
        work: CpuWork,
        /// Number of threads, at least 1.
        threads: u32,
    },
    /// Migration of managed pages.
    Migrate {
        /// The unit that they go to.
        at: Unit,
        /// The cause of the migration.
        how: MigrateHow,
    },
    /// Copies by pathline from GPU to GPU through pinned host memory, chunk by chunk: while one GPU
    /// writes a chunk out, the other reads the one before.
    Staged {
        /// The GPU that the bytes come from.
        at: Unit,
        /// The NUMA domain that they pass.
        via: Unit,
    },
    /// Copies by pathline between pageable memory and a GPU: threads near the memory copy chunks to or from
    /// pinned buffers, from which or to which the runtime's copies carry them meanwhile.
    Threads {
        /// The GPU whose stream carries the chunks.
        at: Unit,
        /// Number of threads, at least 1.
        threads: u32,
    },
    /// Many copies that are handed to the runtime in one call.
    Batch {
        /// The GPU whose stream issues them.
        at: Unit,
        /// Number of copies, at least 1; each has an equal part of the bytes.
        copies: u32,
    },
    /// Blocks at scattered places of two buffers.
    Blocks {
        /// The GPU that copies them.
        at: Unit,
        /// Number of blocks, 1 to [`MAX_BLOCKS`]; each has an equal part of the bytes.
        blocks: u32,
        /// How they are copied.
        by: ScatterMethod,
    },
    /// Copies by pathline over several paths at once: the direct one, and one over each relay, a GPU that
    /// takes a chunk into its staging memory, from which the destination takes it.
    Relay {
        /// The GPU that the bytes go to; if they go to the host, the GPU that they come from.
        at: Unit,
        /// The relays and the chunk.
        paths: MultipathSpec,
    },
    /// The same bytes to several GPUs, by pathline: each takes a part from the source, and the others take
    /// that part from it.
    CopyToAll {
        /// The GPU that the flow's destination lies in.
        at: Unit,
        /// The other destinations and the chunk.
        paths: MultipathSpec,
    },
    /// A call of the runtime that moves nothing.
    Call {
        /// The GPU that it is made for.
        at: Unit,
        /// The call.
        call: RuntimeCall,
    },
    /// A message between processes, or what a group of them does together.
    Wire {
        /// The unit of the source's rank that acts.
        at: Unit,
        /// With what, and how.
        wire: MessageOp,
    },
    /// I/O of files.
    Io {
        /// The NUMA domain whose cores run the workers.
        at: Unit,
        /// By which calls, and how.
        io: IoSpec,
    },
    /// Metadata operations on many files or folders.
    Meta {
        /// The NUMA domain whose cores run the workers.
        at: Unit,
        /// The operation, the folders and the workers.
        meta: MetaSpec,
    },
}

impl Mover {
    /// CPU threads that it takes; concurrent flows use separate CPUs.
    pub const fn threads(&self) -> u32 {
        match *self {
            Self::Cpu { threads, .. } | Self::Threads { threads, .. } => threads,
            _ => 0,
        }
    }
    /// CPU threads that work on cores ([`crate::Flow::cores`]), and the processor feature that they need; none
    /// where no thread does.
    pub const fn workers(&self) -> Option<(u32, Option<&'static str>)> {
        match self {
            Self::Cpu { work, threads, .. } => Some((*threads, work.how.feature())),
            Self::Threads { threads, .. } => Some((*threads, None)),
            Self::Io { io, .. } => Some((io.threads, None)),
            Self::Meta { meta, .. } => Some((meta.threads, None)),
            _ => None,
        }
    }
    /// The NUMA domain whose memory the bytes pass between source and destination.
    pub const fn via(&self) -> Option<Unit> {
        if let Self::Staged { via, .. } = *self { Some(via) } else { None }
    }
    /// The GPUs and chunks of a copy over several paths, if it is one.
    pub const fn paths(&self) -> Option<&MultipathSpec> {
        match self {
            Self::Relay { paths, .. } | Self::CopyToAll { paths, .. } => Some(paths),
            _ => None,
        }
    }
    /// The unit that does the work.
    pub const fn at(&self) -> Unit {
        match *self {
            Self::Dma { at }
            | Self::Blit { at }
            | Self::Kernel { at, .. }
            | Self::Cpu { at, .. }
            | Self::Migrate { at, .. }
            | Self::Staged { at, .. }
            | Self::Threads { at, .. }
            | Self::Batch { at, .. }
            | Self::Blocks { at, .. }
            | Self::Relay { at, .. }
            | Self::CopyToAll { at, .. }
            | Self::Call { at, .. }
            | Self::Wire { at, .. }
            | Self::Io { at, .. }
            | Self::Meta { at, .. } => at,
        }
    }
    /// Bytes that one pass over a payload of `bytes` reads and writes.
    pub fn effect(&self, bytes: Bytes) -> KernelEffect {
        match self {
            Self::Kernel { variant, .. } => variant.effect(bytes),
            Self::Cpu { work, .. } => work.effect(bytes),
            Self::Dma { .. }
            | Self::Blit { .. }
            | Self::Migrate { .. }
            | Self::Staged { .. }
            | Self::Threads { .. }
            | Self::Batch { .. }
            | Self::Blocks { .. }
            | Self::Relay { .. }
            | Self::CopyToAll { .. }
            | Self::Wire { .. }
            | Self::Io { .. } => KernelEffect { reads: bytes, writes: bytes, chain: 0 },
            Self::Call { .. } | Self::Meta { .. } => {
                KernelEffect { reads: Bytes(0), writes: Bytes(0), chain: 0 }
            }
        }
    }
    /// The message or collective, if it is one.
    pub fn wire(&self) -> Option<&MessageOp> {
        if let Self::Wire { wire, .. } = self { Some(wire) } else { None }
    }
    /// The I/O, if it is one.
    pub fn io(&self) -> Option<&IoSpec> {
        if let Self::Io { io, .. } = self { Some(io) } else { None }
    }
    /// The metadata operation, if it is one.
    pub fn meta(&self) -> Option<&MetaSpec> {
        if let Self::Meta { meta, .. } = self { Some(meta) } else { None }
    }
    /// Whether threads read, write, create or remove files.
    pub fn is_on_files(&self) -> bool {
        self.facts().uses_files
    }
    /// Whether its figure is a latency (a chain of dependent loads) rather than a rate.
    pub fn is_chase(&self) -> bool {
        match self {
            Self::Kernel { variant, .. } => variant.op == KernelOp::Chase,
            Self::Cpu { work, .. } => work.op == CpuOp::Chase,
            _ => false,
        }
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.kind(), self.at())?;
        match self {
            Self::Dma { .. } | Self::Blit { .. } => Ok(()),
            Self::Kernel { variant, .. } => write!(f, "[{variant}]"),
            Self::Cpu { work, threads, .. } => write!(f, "[{work}-t{threads}]"),
            Self::Migrate { how, .. } => write!(f, "[{how}]"),
            Self::Staged { via, .. } => write!(f, "[{via}]"),
            Self::Threads { threads, .. } => write!(f, "[{threads}]"),
            Self::Batch { copies, .. } => write!(f, "[{copies}]"),
            Self::Blocks { blocks, by, .. } => write!(f, "[{blocks}-{by}]"),
            Self::Relay { paths, .. } | Self::CopyToAll { paths, .. } => write!(f, "[{paths}]"),
            Self::Call { call, .. } => write!(f, "[{call}]"),
            Self::Wire { wire, .. } => write!(f, "[{wire}]"),
            Self::Io { io, .. } => write!(f, "[{io}]"),
            Self::Meta { meta, .. } => write!(f, "[{meta}]"),
        }
    }
}

/// Forms of movers by their word.
const FORMS: &[(&str, &str)] = &[
    ("dma", "dma@gpuN"),
    ("blit", "blit@gpuN"),
    ("kernel", "kernel@gpuN[VARIANT], such as kernel@gpu0[copy-w16-u4-b256-g2sm]"),
    ("cpu", "cpu@numaN[OP-HOW-tN], such as cpu@numa0[copy-memcpy-t1]"),
    ("migrate", "migrate@UNIT[fault|prefetch]"),
    ("staged", "staged@gpuN[numaN]"),
    ("threads", "threads@gpuN[THREADS]"),
    ("batch", "batch@gpuN[COPIES]"),
    ("blocks", "blocks@gpuN[BLOCKS[-gMULTIPROCESSORS|-batch|-each]], such as blocks@gpu0[4096-g8]"),
    ("relay", "relay@gpuN[GPUS,CHUNK[,blit][,SHARES]], such as relay@gpu0[gpu1+gpu2,4MiB]"),
    ("copy-to-all", "copy-to-all@gpuN[GPUS,CHUNK], such as copy-to-all@gpu0[gpu1,8MiB]"),
    ("call", "call@gpuN[CALL], such as call@gpu0[launch]"),
    ("mpi", "mpi@UNIT[OPERATION], such as mpi@gpu0[send-w64]"),
    ("ccl", "ccl@gpuN[OPERATION], such as ccl@gpu0[all_reduce]"),
    ("ucx", "ucx@UNIT[OPERATION], such as ucx@gpu0[ping]"),
    ("shm", "shm@numaN[OPERATION]"),
    ("cma", "cma@numaN[OPERATION]"),
    ("xpmem", "xpmem@numaN[OPERATION]"),
    ("uring", "uring@numaN[I/O]"),
    ("uring-plain", "uring-plain@numaN[I/O]"),
    ("uring-poll", "uring-poll@numaN[I/O]"),
    ("aio", "aio@numaN[I/O]"),
    ("sync", "sync@numaN[I/O]"),
    ("gds", "gds@numaN[I/O]"),
    ("meta", "meta@numaN[OPERATION], such as meta@numa0[create,own,d4,f256,t2]"),
];

/// The form of the mover that a text means; of an unknown one the words of all.
fn expected_mover(text: &str) -> String {
    let kind = text.split(['@', '[']).next().unwrap_or(text);
    match FORMS.iter().find(|(word, _)| *word == kind) {
        Some((_, form)) => (*form).to_owned(),
        None => {
            let words = FORMS.iter().map(|(word, _)| *word);
            let near = did_you_mean(kind, words.clone());
            format!("one of {}, then @UNIT{near}", words.collect::<Vec<_>>().join(" "))
        }
    }
}

impl Mover {
    /// The words of all movers, as case texts have them.
    pub fn words() -> impl Iterator<Item = &'static str> + Clone {
        FORMS.iter().map(|(word, _)| *word)
    }
}

impl FromStr for Mover {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ParseError::new("mover", s, expected_mover(s));
        let (kind, rest) = s.split_once('@').ok_or_else(bad)?;
        let (at, args) = match rest.split_once('[') {
            Some((at, args)) => (at, Some(args.strip_suffix(']').ok_or_else(bad)?)),
            None => (rest, None),
        };
        let at: Unit = at.parse()?;
        match (kind, at, args) {
            ("dma", Unit::Gpu(_), None) => Ok(Self::Dma { at }),
            ("blit", Unit::Gpu(_), None) => Ok(Self::Blit { at }),
            ("kernel", Unit::Gpu(_), Some(args)) => Ok(Self::Kernel { at, variant: args.parse()? }),
            ("cpu", Unit::Numa(_), Some(args)) => {
                let (work, threads) = args.rsplit_once("-t").ok_or_else(bad)?;
                let (op, how) = work.split_once('-').ok_or_else(bad)?;
                let threads = number(threads).filter(|&n| n >= 1).ok_or_else(bad)?;
                let work = CpuWork { op: op.parse()?, how: how.parse()? };
                Ok(Self::Cpu { at, work, threads })
            }
            ("migrate", _, Some(args)) => Ok(Self::Migrate { at, how: args.parse()? }),
            ("staged", Unit::Gpu(_), Some(args)) => match args.parse()? {
                via @ Unit::Numa(_) => Ok(Self::Staged { at, via }),
                Unit::Gpu(_) | Unit::Store(_) => Err(bad()),
            },
            ("threads", Unit::Gpu(_), Some(args)) => {
                let threads = number(args).filter(|&n| n >= 1).ok_or_else(bad)?;
                Ok(Self::Threads { at, threads })
            }
            ("batch", Unit::Gpu(_), Some(args)) => {
                let copies = number(args).filter(|&n| n >= 1).ok_or_else(bad)?;
                Ok(Self::Batch { at, copies })
            }
            ("blocks", Unit::Gpu(_), Some(args)) => {
                let (blocks, by) = match args.split_once('-') {
                    Some((blocks, by)) => (number(blocks), ScatterMethod::parse(by)),
                    None => (number(args), Some(ScatterMethod::Kernel { units: COPY_UNITS })),
                };
                let blocks = blocks.filter(|n| (1..=MAX_BLOCKS).contains(n)).ok_or_else(bad)?;
                Ok(Self::Blocks { at, blocks, by: by.ok_or_else(bad)? })
            }
            ("relay", Unit::Gpu(_), Some(args)) => {
                Ok(Self::Relay { at, paths: MultipathSpec::parse(args)? })
            }
            ("copy-to-all", Unit::Gpu(_), Some(args)) => {
                Ok(Self::CopyToAll { at, paths: MultipathSpec::parse(args)? })
            }
            ("call", Unit::Gpu(_), Some(args)) => Ok(Self::Call { at, call: args.parse()? }),
            ("call", Unit::Numa(_), Some(args)) => {
                let call: RuntimeCall = args.parse()?;
                let of_host = call.is_of_adapters() && !call.is_of_dmabuf();
                of_host.then_some(Self::Call { at, call }).ok_or_else(bad)
            }
            ("meta", Unit::Numa(_), Some(args)) => {
                Ok(Self::Meta { at, meta: MetaSpec::parse(args)? })
            }
            (_, Unit::Numa(_), Some(args)) if kind.parse::<IoEngine>().is_ok() => {
                Ok(Self::Io { at, io: IoSpec::parse(kind.parse()?, args)? })
            }
            (_, _, Some(args)) => {
                let via: Transport = kind.parse().map_err(|_| bad())?;
                Ok(Self::Wire { at, wire: MessageOp::parse(via, args)? })
            }
            _ => Err(bad()),
        }
    }
}

serde_as_text!(Mover, RuntimeCall);
