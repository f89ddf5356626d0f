//! A place of data: a rank, a unit of that rank's node, a kind of memory there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{ParseError, serde_as_text, words};

/// A process that takes part in a run. Alone, a run is rank 0.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Rank(pub u32);

/// A thing that holds or moves data, by its number on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// One GPU as the runtime counts it: on MI250X, one GCD.
    Gpu(u32),
    /// One NUMA domain of the host: its cores and its memory.
    Numa(u32),
    /// A place for files that the run was given: a folder, a file or a block device.
    Store(u32),
}

impl Unit {
    /// The GPU number, if it is a GPU.
    pub fn gpu(self) -> Option<u32> {
        if let Self::Gpu(n) = self { Some(n) } else { None }
    }
    /// The NUMA domain number, if it is a host unit.
    pub fn numa(self) -> Option<u32> {
        if let Self::Numa(n) = self { Some(n) } else { None }
    }
    /// The number of a place for files.
    pub fn store(self) -> Option<u32> {
        if let Self::Store(n) = self { Some(n) } else { None }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(n) => f.pad(&format!("gpu{n}")),
            Self::Numa(n) => f.pad(&format!("numa{n}")),
            Self::Store(n) => f.pad(&format!("store{n}")),
        }
    }
}

/// A number as this crate writes it: no sign, no leading zero, so that texts are canonical.
pub(crate) fn number<T: FromStr>(s: &str) -> Option<T> {
    let canonical = s == "0" || (!s.is_empty() && !s.starts_with('0'));
    (canonical && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?
}

impl FromStr for Unit {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let gpu = s.strip_prefix("gpu").and_then(number).map(Self::Gpu);
        let numa = || s.strip_prefix("numa").and_then(number).map(Self::Numa);
        let store = || s.strip_prefix("store").and_then(number).map(Self::Store);
        gpu.or_else(numa)
            .or_else(store)
            .ok_or_else(|| ParseError::new("unit", s, "gpuN, numaN or storeN, such as gpu0"))
    }
}

/// A kind of memory. The kind decides which engines may touch it and what coherence costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemKind {
    /// Device memory, coarse grained: the ordinary allocation.
    Vram,
    /// Device memory, fine grained: coherent with peers and host while kernels run.
    VramFine,
    /// Page-locked host memory, coherent (fine grained).
    Pinned,
    /// Page-locked host memory that the GPU may cache (coarse grained).
    PinnedNonCoherent,
    /// Page-locked, write-combined host memory.
    PinnedWc,
    /// Page-locked host memory whose NUMA domain the runtime chooses. The unit is the domain next to
    /// the GPU that asks for it; [`crate::FlowSeries::pages`] has where it lies.
    PinnedDefault,
    /// Pageable memory, page-locked afterwards by registration.
    Registered,
    /// Pageable memory in huge pages, as far as the system grants them, page-locked afterwards.
    RegisteredHuge,
    /// Pageable host memory in base pages (4 KiB on x86-64).
    Paged,
    /// Pageable host memory in huge pages, as far as the system grants them.
    Huge,
    /// Managed memory, homed at the unit.
    Managed,
    /// The unit's registers: data is consumed or produced, not stored.
    Reg,
    /// Files of a store.
    File,
}

words!(MemKind, "memory kind", {
    Vram => "vram", VramFine => "vram-fine", Pinned => "pinned", PinnedNonCoherent => "pinned-nc",
    PinnedWc => "pinned-wc", PinnedDefault => "pinned-default", Registered => "registered",
    RegisteredHuge => "registered-huge", Paged => "paged", Huge => "huge",
    Managed => "managed", Reg => "reg", File => "file",
});

/// An address of memory: `r0.gpu3.vram`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The process that owns the memory.
    pub rank: Rank,
    /// The unit that holds it.
    pub unit: Unit,
    /// Its kind.
    pub mem: MemKind,
}

impl MemKind {
    /// The kind before registration page-locked it; itself for other kinds.
    pub const fn before_registration(self) -> Self {
        match self {
            Self::Registered => Self::Paged,
            Self::RegisteredHuge => Self::Huge,
            other => other,
        }
    }
    /// Whether it is page-locked by registration.
    pub const fn is_registered(self) -> bool {
        matches!(self, Self::Registered | Self::RegisteredHuge)
    }
}

impl Place {
    /// A place of rank 0.
    pub const fn new(unit: Unit, mem: MemKind) -> Self {
        Self { rank: Rank(0), unit, mem }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("r{}.{}.{}", self.rank.0, self.unit, self.mem))
    }
}

impl FromStr for Place {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ParseError::new("place", s, "[rRANK.]UNIT.MEMORY, such as gpu0.vram");
        let mut parts: Vec<&str> = s.split('.').take(4).collect();
        let rank = match parts.first().and_then(|p| p.strip_prefix('r')).and_then(number) {
            Some(rank) => {
                parts.remove(0);
                Rank(rank)
            }
            None => Rank(0),
        };
        let &[unit, mem] = parts.as_slice() else { return Err(bad()) };
        Ok(Self { rank, unit: unit.parse()?, mem: mem.parse()? })
    }
}

serde_as_text!(Unit, Place, MemKind);
