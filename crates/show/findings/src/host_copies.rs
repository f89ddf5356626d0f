//! Transfers between host memory and one GPU, as rules compare them.

use pathline_explain::figures::mem_words;
use pathline_schema::{Bytes, Cadence, KernelOp, MemKind, MigrateHow, Mover, Unit};

use crate::evidence::{Evidence, SoundValue};

/// How bytes get from one side to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostPathKind {
    /// A copy of the runtime from or to a kind of host memory.
    Copy(MemKind),
    /// A kernel that accesses host memory in place.
    ZeroCopy(MemKind),
    /// Managed pages that migrate by page faults.
    Faults,
    /// Managed pages that migrate by a prefetch call.
    Prefetch,
}

/// A measured transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostTransfer<'a> {
    pub(crate) gpu: u32,
    pub(crate) inward: bool,
    pub(crate) kind: HostPathKind,
    pub(crate) bytes: Bytes,
    pub(crate) rate: SoundValue<'a>,
    /// What moved the bytes, as the record has it.
    pub(crate) engine: &'a str,
}

impl HostPathKind {
    pub(crate) fn label(self) -> String {
        match self {
            Self::Copy(mem) => mem_words(mem).to_owned(),
            Self::ZeroCopy(mem) => format!("zero-copy, {}", mem_words(mem)),
            Self::Faults => "page faults".to_owned(),
            Self::Prefetch => "prefetch".to_owned(),
        }
    }
    /// Whether the runtime copies from or to page-locked memory.
    pub(crate) fn is_pinned_copy(self) -> bool {
        matches!(
            self,
            Self::Copy(
                MemKind::Pinned
                    | MemKind::PinnedNonCoherent
                    | MemKind::PinnedWc
                    | MemKind::PinnedDefault
                    | MemKind::Registered
                    | MemKind::RegisteredHuge
            )
        )
    }
}

/// `H2D` or `D2H`.
pub(crate) const fn direction(inward: bool) -> &'static str {
    if inward { "H2D" } else { "D2H" }
}

/// Transfers between each GPU and its local host memory, in the order of the run. If the NUMA domain of a GPU
/// is unknown, transfers with every domain are included.
pub(crate) fn host_transfers<'a>(evidence: &Evidence<'a>) -> Vec<HostTransfer<'a>> {
    let near = |gpu: u32, domain: u32| {
        evidence.gpu(gpu).and_then(|gpu| gpu.numa).is_none_or(|home| home == domain)
    };
    let transfer = |(entry, flow): (_, &'a pathline_schema::Flow)| {
        let entry: &pathline_explain::run::RunEntry<'a> = entry;
        let (host, gpu, inward) = match (flow.src.unit, flow.dst.unit) {
            (Unit::Numa(domain), Unit::Gpu(gpu)) => ((domain, flow.src.mem), gpu, true),
            (Unit::Gpu(gpu), Unit::Numa(domain)) => ((domain, flow.dst.mem), gpu, false),
            _ => return None,
        };
        let in_place = |op: KernelOp| matches!(op, KernelOp::Read | KernelOp::Write);
        let kind = match flow.by {
            Mover::Dma { .. } => HostPathKind::Copy(host.1),
            Mover::Kernel { variant, .. } if in_place(variant.op) && variant.passes == 1 => {
                HostPathKind::ZeroCopy(host.1)
            }
            Mover::Migrate { how: MigrateHow::Fault, .. } => HostPathKind::Faults,
            Mover::Migrate { how: MigrateHow::Prefetch, .. } => HostPathKind::Prefetch,
            _ => return None,
        };
        let streaming = entry.case.cadence == Cadence::Streaming;
        if !streaming || !near(gpu, host.0) {
            return None;
        }
        let of_few = || evidence.rate_of_few(entry).filter(|_| host.1 == MemKind::Paged);
        let (rate, bytes) = (evidence.rate(entry).or_else(of_few)?, flow.bytes);
        Some(HostTransfer { gpu, inward, kind, bytes, rate, engine: entry.engine() })
    };
    evidence.lone().filter_map(transfer).collect()
}
