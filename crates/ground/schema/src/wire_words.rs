//! Words of operations between processes: atomic operations, windows of one-sided operations, and
//! what a process does while a collective is in flight.

use crate::{Ns, words};

const COMPUTES: &str = "computes ";

/// An atomic operation on another process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomicOp {
    /// Adds every 64-bit integer of the source to the target.
    Accumulate,
    /// The same, and the source gets the target's previous content.
    GetAccumulate,
    /// Adds one 64-bit integer; nothing is returned.
    Add,
    /// Adds one 64-bit integer and returns the previous one.
    FetchAdd,
    /// Replaces one 64-bit integer and returns the previous one.
    Swap,
    /// Replaces one 64-bit integer if it is 0, and returns the previous one.
    CompareSwap,
}
words!(AtomicOp, "atomic operation", {
    Accumulate => "accumulate", GetAccumulate => "get-accumulate", Add => "add",
    FetchAdd => "fetch-add", Swap => "swap", CompareSwap => "compare-swap",
});

impl AtomicOp {
    /// Whether the source gets the target's previous content.
    pub const fn fetches(self) -> bool {
        !matches!(self, Self::Accumulate | Self::Add)
    }
    /// Whether the payload is one 64-bit integer.
    pub const fn is_of_one_word(self) -> bool {
        !matches!(self, Self::Accumulate | Self::GetAccumulate)
    }
}

/// How MPI makes the memory of a target accessible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowKind {
    /// `MPI_Win_allocate`: the library allocates it.
    Allocate,
    /// `MPI_Win_create_dynamic` and `MPI_Win_attach`.
    Dynamic,
}
words!(WindowKind, "kind of window", { Allocate => "allocate", Dynamic => "dynamic" });

/// How MPI's one-sided operations are ended in each repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowSync {
    /// `MPI_Win_lock` before and `MPI_Win_unlock` after.
    Lock,
    /// `MPI_Win_fence` before and after, by both processes.
    Fence,
    /// `MPI_Win_start` and `MPI_Win_complete`; the target posts and waits.
    Pscw,
}
words!(WindowSync, "synchronisation", { Lock => "lock", Fence => "fence", Pscw => "pscw" });

/// What a process does between the start of a collective and the wait for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OverlapWork {
    /// Nothing: the time is that of the communication alone.
    Nothing,
    /// It computes for as long as the communication alone takes.
    Compute,
    /// The same, in pieces with a test for completion after each.
    ComputeTest,
}

impl OverlapWork {
    /// What follows the name of the operation in case texts.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Compute => "-compute",
            Self::ComputeTest => "-compute-test",
        }
    }

    /// How records state the length of the work, in ns.
    pub fn compute_text(ns: f64) -> String {
        format!("{COMPUTES}{ns:.0} ns between start and wait")
    }

    /// The length of the work in a record's text on what carried the bytes.
    pub fn read_compute(engine: &str) -> Option<Ns> {
        let (_, rest) = engine.split_once(COMPUTES)?;
        rest.split_once(" ns ")?.0.parse().ok().map(Ns)
    }

    /// The text before the suffix, and the work.
    pub(crate) fn split(text: &str) -> Option<(&str, Self)> {
        let all = [Self::ComputeTest, Self::Compute, Self::Nothing];
        all.into_iter().find_map(|work| Some((text.strip_suffix(work.suffix())?, work)))
    }
}
