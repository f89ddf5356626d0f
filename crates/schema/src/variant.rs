//! A GPU kernel variant as data: its key, and what it does to memory.

use std::fmt;
use std::str::FromStr;

use crate::place::number;
use crate::{Bytes, ParseError, serde_as_text, words};

/// What a kernel does with the bytes it is given.
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
}
words!(KernelOp, "kernel operation", {
    Read => "read", Write => "write", Copy => "copy", Triad => "triad", Chase => "chase",
});

/// The cache hint on a kernel's loads and stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hint {
    /// None.
    Plain,
    /// Non-temporal: streaming, evict first.
    Nt,
}

/// How many blocks are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grid {
    /// This many blocks.
    Blocks(u32),
    /// This many blocks for each multiprocessor or compute unit.
    PerSm(u32),
}

/// One kernel: `copy-w16-u4-nt-b256-g2sm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant {
    /// What it does.
    pub op: KernelOp,
    /// Bytes of one load or store: 4, 8 or 16.
    pub word: u8,
    /// Words in flight in each thread: 1 to 64.
    pub unroll: u8,
    /// Cache hint.
    pub hint: Hint,
    /// Threads of a block: 1 to 1024.
    pub block: u16,
    /// Number of blocks.
    pub grid: Grid,
}

/// Bytes that a kernel moves at each memory, for one pass over `bytes` of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
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

impl Variant {
    /// A plain variant of `op`: 16 B words, four in flight, two blocks of 256 a compute unit.
    pub const fn standard(op: KernelOp) -> Self {
        Self { op, word: 16, unroll: 4, hint: Hint::Plain, block: 256, grid: Grid::PerSm(2) }
    }
    /// A pointer chase: one thread, 8 B loads.
    pub const fn chase() -> Self {
        let (word, unroll) = (8, 1);
        Self {
            op: KernelOp::Chase,
            word,
            unroll,
            hint: Hint::Plain,
            block: 1,
            grid: Grid::Blocks(1),
        }
    }
    /// What one pass over a payload of `bytes` does.
    pub fn effect(&self, bytes: Bytes) -> Effect {
        let none = Bytes(0);
        let (reads, writes, chain) = match self.op {
            KernelOp::Read => (bytes, none, 0),
            KernelOp::Write => (none, bytes, 0),
            KernelOp::Copy => (bytes, bytes, 0),
            KernelOp::Triad => (Bytes(bytes.0.saturating_mul(2)), bytes, 0),
            KernelOp::Chase => (bytes, none, (bytes.0 / CHAIN_STRIDE).max(1)),
        };
        Effect { reads, writes, chain }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-w{}-u{}", self.op, self.word, self.unroll)?;
        if self.hint == Hint::Nt {
            write!(f, "-nt")?;
        }
        write!(f, "-b{}", self.block)?;
        match self.grid {
            Grid::Blocks(n) => write!(f, "-g{n}"),
            Grid::PerSm(n) => write!(f, "-g{n}sm"),
        }
    }
}

impl FromStr for Variant {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            ParseError::new(
                "kernel variant",
                s,
                "OP-wN-uN[-nt]-bN-gN[sm], such as copy-w16-u4-nt-b256-g2sm",
            )
        };
        let mut parts = s.split('-').peekable();
        let op = parts.next().ok_or_else(bad)?.parse()?;
        let word: u8 = parts.next().and_then(|p| number(p.strip_prefix('w')?)).ok_or_else(bad)?;
        let unroll: u8 = parts.next().and_then(|p| number(p.strip_prefix('u')?)).ok_or_else(bad)?;
        let hint = if parts.next_if_eq(&"nt").is_some() { Hint::Nt } else { Hint::Plain };
        let block: u16 = parts.next().and_then(|p| number(p.strip_prefix('b')?)).ok_or_else(bad)?;
        let grid = parts.next().and_then(|p| p.strip_prefix('g')).ok_or_else(bad)?;
        let grid = match grid.strip_suffix("sm") {
            Some(n) => Grid::PerSm(number(n).ok_or_else(bad)?),
            None => Grid::Blocks(number(grid).ok_or_else(bad)?),
        };
        let blocks = match grid {
            Grid::Blocks(n) | Grid::PerSm(n) => n,
        };
        let sane = [4, 8, 16].contains(&word)
            && (1..=64).contains(&unroll)
            && (1..=1024).contains(&block)
            && (1..=1 << 20).contains(&blocks)
            && parts.next().is_none();
        sane.then_some(Self { op, word, unroll, hint, block, grid }).ok_or_else(bad)
    }
}

serde_as_text!(Variant);
