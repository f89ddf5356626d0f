//! A GPU kernel variant as data: its key, and what it does to memory.

use std::fmt;
use std::str::FromStr;

use crate::place::number;
use crate::{Bytes, ParseError, serde_as_text, words};

/// The operation of a kernel on its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelOp {
    /// Loads every word and keeps a checksum.
    Read,
    /// Stores every word.
    Write,
    /// Loads and stores every word.
    Copy,
    /// `a = b + s * c`.
    Triad,
    /// Follows a chain of dependent loads, one thread.
    Chase,
    /// [`FMA_PER_BYTE`] fused multiply-adds for each byte of payload, in registers alone: work that
    /// a copy is to overlap with. It touches no memory.
    Fma,
}
words!(KernelOp, "kernel operation", {
    Read => "read", Write => "write", Copy => "copy", Triad => "triad", Chase => "chase",
    Fma => "fma",
});

/// The cache hint on a kernel's loads and stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheHint {
    /// None.
    Plain,
    /// Non-temporal: streaming, evict first.
    Nt,
    /// Loads and stores that take no line of the first-level cache; loads fetch 256 B into the
    /// second level. NVIDIA only.
    NoAllocate,
}
words!(CacheHint, "cache hint", { Plain => "plain", Nt => "nt", NoAllocate => "na" });

/// In which order the blocks of a kernel take the tiles of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileOrder {
    /// In turn: neighbouring tiles are of different blocks.
    Interleaved,
    /// Each block has one contiguous piece.
    Segments,
}

/// How a kernel gets at memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessWidth {
    /// Every thread loads and stores words.
    Words {
        /// Bytes of one load or store: 4, 8 or 16.
        word: u8,
        /// Words in flight in each thread: 1 to 64.
        unroll: u8,
    },
    /// One thread of a block has bulk asynchronous copies made between global and shared memory.
    /// NVIDIA, from sm_90 on.
    Bulk {
        /// KiB of one copy: 1 to 64.
        chunk: u8,
        /// Chunks of shared memory: 1 to 64, of at most [`SHARED_KIB`] together.
        stages: u8,
    },
}

/// Shared memory that one block can have, in KiB: that of sm_90 and sm_100 (227), less what
/// barriers take.
pub const SHARED_KIB: u32 = 226;

/// Number of launched blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GridSize {
    /// This many blocks.
    Blocks(u32),
    /// This many blocks for each multiprocessor or compute unit.
    PerSm(u32),
    /// A block for each tile, so that the hardware hands the tiles out: a unit that is nearer to
    /// the memory gets more of them.
    Tiles,
}

/// One kernel: `copy-w16-u4-nt-b256-g2sm`, `copy-bulk16k-s8-b32-g1sm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVariant {
    /// The operation.
    pub op: KernelOp,
    /// How it gets at memory.
    pub access: AccessWidth,
    /// Cache hint.
    pub hint: CacheHint,
    /// Order of access.
    pub order: TileOrder,
    /// Threads of a block: 1 to 1024.
    pub block: u16,
    /// Number of blocks.
    pub grid: GridSize,
    /// How often a read kernel loads its whole payload within one launch: an odd number, so that the
    /// checksum by exclusive or is that of one pass. 1 for every other kernel.
    pub passes: u8,
}

/// The most passes of a read kernel.
const MAX_PASSES: u8 = 99;

/// Bytes that a kernel moves at each memory, for one pass over `bytes` of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEffect {
    /// Bytes loaded from the source.
    pub reads: Bytes,
    /// Bytes stored to the destination.
    pub writes: Bytes,
    /// Dependent loads, if the kernel follows a chain; else 0.
    pub chain: u64,
}

/// Distance of two elements of a pointer chain: two 64 B lines, so that the neighbouring-line
/// prefetcher brings nothing that is wanted.
pub(crate) const CHAIN_STRIDE: u64 = 128;

/// Loads that one operation of a GPU's pointer chase makes, whatever the span of its chain: 1.7 ms at
/// 830 ns a load, of which a launch of 1.5 us is 0.1 %. The next operation continues where this one
/// ends and runs on another compute unit.
pub const CHASE_STEPS: u64 = 2048;

/// Fused multiply-adds of [`KernelOp::Fma`] for each byte of payload: 256 MiB are 17.2e9 of them,
/// half a millisecond of a GPU that does 67 TFLOP/s.
pub const FMA_PER_BYTE: u64 = 64;

impl KernelVariant {
    /// A plain variant of `op`: 16 B words, four in flight, two blocks of 256 a compute unit.
    pub const fn standard(op: KernelOp) -> Self {
        Self {
            op,
            access: AccessWidth::Words { word: 16, unroll: 4 },
            hint: CacheHint::Plain,
            order: TileOrder::Interleaved,
            block: 256,
            grid: GridSize::PerSm(2),
            passes: 1,
        }
    }
    /// A read kernel that loads its payload three times: a GPU that caches the memory fetches it once.
    pub const fn rereading() -> Self {
        Self { passes: 3, ..Self::standard(KernelOp::Read) }
    }
    /// A pointer chase: one thread, 8 B loads.
    pub const fn chase() -> Self {
        Self {
            access: AccessWidth::Words { word: 8, unroll: 1 },
            block: 1,
            grid: GridSize::Blocks(1),
            ..Self::standard(KernelOp::Chase)
        }
    }
    /// Bytes that the elements of `steps` loads of a chain span.
    pub const fn chase_bytes(steps: u64) -> Bytes {
        Bytes(steps.saturating_mul(CHAIN_STRIDE))
    }
    /// The kernel that copies scattered blocks of `each` bytes, as a model sees it: 32 threads copy a block, and
    /// have up to eight words of 16 B each in flight (`blocks.cu`).
    pub const fn scattered(units: u32, each: Bytes) -> Self {
        let step = 32 * 16;
        let steps = if each.0 > 8 * step { 8 } else { each.0.div_ceil(step) };
        Self {
            access: AccessWidth::Words {
                word: 16,
                unroll: if steps == 0 { 1 } else { steps as u8 },
            },
            hint: CacheHint::Nt,
            block: 512,
            grid: GridSize::Blocks(units),
            ..Self::standard(KernelOp::Copy)
        }
    }
    /// Register-only arithmetic that keeps every compute unit busy: eight independent chains of
    /// single precision in each of 1024 threads a unit.
    pub const fn compute() -> Self {
        Self {
            access: AccessWidth::Words { word: 4, unroll: 8 },
            grid: GridSize::PerSm(4),
            ..Self::standard(KernelOp::Fma)
        }
    }
    /// Bytes that source and destination must be multiples of.
    pub const fn align(&self) -> u64 {
        match self.access {
            AccessWidth::Words { word, .. } => word as u64,
            AccessWidth::Bulk { .. } => 16,
        }
    }
    /// Bytes that one block takes at a time.
    pub const fn tile(&self) -> Bytes {
        Bytes(match self.access {
            AccessWidth::Words { word, unroll } => word as u64 * unroll as u64 * self.block as u64,
            AccessWidth::Bulk { chunk, .. } => chunk as u64 * 1024,
        })
    }
    /// Bytes that one block has in flight at most.
    pub const fn in_flight(&self) -> Bytes {
        match self.access {
            AccessWidth::Words { .. } => self.tile(),
            AccessWidth::Bulk { stages, .. } => Bytes(self.tile().0 * stages as u64),
        }
    }
    /// Shared memory of one block, without barriers: the ring of a bulk kernel, or the one chunk
    /// that a bulk write stores again and again.
    pub const fn shared(&self) -> Bytes {
        match (self.access, self.op) {
            (AccessWidth::Words { .. }, _) => Bytes(0),
            (AccessWidth::Bulk { .. }, KernelOp::Write) => self.tile(),
            (AccessWidth::Bulk { .. }, _) => self.in_flight(),
        }
    }
    /// Whether there is such a kernel: the ranges of its parts, and bulk copies only where a
    /// kernel reads, writes or copies.
    fn is_sane(&self) -> bool {
        let blocks = match self.grid {
            GridSize::Blocks(n) | GridSize::PerSm(n) => n,
            GridSize::Tiles => 1,
        };
        let bulk_op = matches!(self.op, KernelOp::Read | KernelOp::Write | KernelOp::Copy);
        let access = match self.access {
            AccessWidth::Words { word, unroll } => {
                [4, 8, 16].contains(&word)
                    && (1..=64).contains(&unroll)
                    && (self.op != KernelOp::Fma || word < 16)
            }
            AccessWidth::Bulk { chunk, stages } => {
                bulk_op
                    && (1..=64).contains(&chunk)
                    && (1..=64).contains(&stages)
                    && self.shared().0 <= u64::from(SHARED_KIB) * 1024
                    && self.hint != CacheHint::NoAllocate
            }
        };
        let passes = self.passes == 1
            || (self.op == KernelOp::Read
                && matches!(self.access, AccessWidth::Words { .. })
                && self.passes % 2 == 1
                && self.passes <= MAX_PASSES);
        access && passes && (1..=1024).contains(&self.block) && (1..=1 << 20).contains(&blocks)
    }
    /// The effect of one pass over a payload of `bytes`.
    pub fn effect(&self, bytes: Bytes) -> KernelEffect {
        let none = Bytes(0);
        let (reads, writes, chain) = match self.op {
            KernelOp::Read => (bytes, none, 0),
            KernelOp::Write => (none, bytes, 0),
            KernelOp::Copy => (bytes, bytes, 0),
            KernelOp::Triad => (Bytes(bytes.0.saturating_mul(2)), bytes, 0),
            KernelOp::Fma => (none, none, 0),
            KernelOp::Chase => (bytes, none, (bytes.0 / CHAIN_STRIDE).max(1)),
        };
        KernelEffect { reads, writes, chain }
    }
}

impl fmt::Display for KernelVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.access {
            AccessWidth::Words { word, unroll } => write!(f, "{}-w{word}-u{unroll}", self.op)?,
            AccessWidth::Bulk { chunk, stages } => write!(f, "{}-bulk{chunk}k-s{stages}", self.op)?,
        }
        if self.hint != CacheHint::Plain {
            write!(f, "-{}", self.hint)?;
        }
        if self.order == TileOrder::Segments {
            write!(f, "-seg")?;
        }
        write!(f, "-b{}", self.block)?;
        match self.grid {
            GridSize::Blocks(n) => write!(f, "-g{n}"),
            GridSize::PerSm(n) => write!(f, "-g{n}sm"),
            GridSize::Tiles => write!(f, "-gt"),
        }?;
        if self.passes == 1 { Ok(()) } else { write!(f, "-p{}", self.passes) }
    }
}

impl FromStr for KernelVariant {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            ParseError::new(
                "kernel variant",
                s,
                "OP-wN-uN[-nt|-na][-seg]-bN-gN[sm] or OP-bulkNk-sN[-nt][-seg]-bN-gN[sm] (or -gt, a block a tile), for a read of words then -pN, odd passes over all of it, such as copy-w16-u4-nt-b256-g2sm",
            )
        };
        let mut parts = s.split('-').peekable();
        let op = parts.next().ok_or_else(bad)?.parse()?;
        let size = parts.next().ok_or_else(bad)?;
        let depth = parts.next().ok_or_else(bad)?;
        let access = match size.strip_prefix("bulk").and_then(|n| n.strip_suffix('k')) {
            Some(chunk) => AccessWidth::Bulk {
                chunk: number(chunk).ok_or_else(bad)?,
                stages: depth.strip_prefix('s').and_then(number).ok_or_else(bad)?,
            },
            None => AccessWidth::Words {
                word: size.strip_prefix('w').and_then(number).ok_or_else(bad)?,
                unroll: depth.strip_prefix('u').and_then(number).ok_or_else(bad)?,
            },
        };
        let hint = parts
            .next_if(|p| matches!(*p, "nt" | "na"))
            .map_or(Ok(CacheHint::Plain), str::parse)?;
        let order = match parts.next_if_eq(&"seg") {
            Some(_) => TileOrder::Segments,
            None => TileOrder::Interleaved,
        };
        let block = parts.next().and_then(|p| number(p.strip_prefix('b')?)).ok_or_else(bad)?;
        let grid = parts.next().and_then(|p| p.strip_prefix('g')).ok_or_else(bad)?;
        let grid = match grid.strip_suffix("sm") {
            _ if grid == "t" => GridSize::Tiles,
            Some(n) => GridSize::PerSm(number(n).ok_or_else(bad)?),
            None => GridSize::Blocks(number(grid).ok_or_else(bad)?),
        };
        let passes = match parts.next() {
            Some(text) => {
                let passes = text.strip_prefix('p').and_then(number).ok_or_else(bad)?;
                Some(passes).filter(|&n| n > 1).ok_or_else(bad)?
            }
            None => 1,
        };
        let variant = Self { op, access, hint, order, block, grid, passes };
        (parts.next().is_none() && variant.is_sane()).then_some(variant).ok_or_else(bad)
    }
}

serde_as_text!(KernelVariant);
