//! Flows between processes: names, charts over size, and the columns of other tools.

use pathline_schema::{Bytes, Case, Flow, MemKind, MessageOp, SuiteId, Transport, WireOp};

use super::FigureCell;
use crate::message_records::{CountedTimes, participants};
use crate::run::{CaseQuantity, RunEntry, RunView};

/// A flow between processes, with the case that times it.
#[derive(Clone, Copy)]
pub(super) struct SentFlow<'b, 'a> {
    pub(super) entry: &'b RunEntry<'a>,
    /// The first timed flow.
    pub(super) flow: &'a Flow,
    pub(super) wire: &'a MessageOp,
    /// Number of concurrently timed flows.
    pub(super) at_once: usize,
}

impl SentFlow<'_, '_> {
    pub(super) fn kind(&self) -> SendKind {
        SendKind { mem: self.flow.src.mem, staged: self.wire.via == Transport::MpiStaged }
    }
    /// Display name of its memory; of both ends if they differ.
    pub(super) fn memories(&self) -> String {
        let name = |mem| memory(SendKind { mem, ..self.kind() });
        let (from, to) = (self.flow.src.mem, self.flow.dst.mem);
        let within = if self.flow.src.rank == self.flow.dst.rank && self.wire.via != Transport::Ccl
        {
            " of one process"
        } else {
            ""
        };
        if from == to {
            name(from).to_owned()
        } else {
            format!("{} to {}{within}", name(from), name(to))
        }
    }
    pub(super) fn size(&self) -> Bytes {
        self.flow.bytes
    }
    /// Its point in a chart over size.
    pub(super) fn at_size(
        &self,
        run: &RunView,
        name: impl Into<String>,
        quantity: CaseQuantity,
    ) -> (String, f64, FigureCell) {
        (name.into(), self.size().as_f64(), run.cell(self.entry, quantity))
    }
    /// Number of members in a collective: ranks, or GPUs of the only process.
    pub(super) fn participants(&self) -> usize {
        participants(self.flow)
    }
}

/// All message flows of a suite.
pub(super) fn in_suite<'b, 'a>(run: &'b RunView<'a>, suite: SuiteId) -> Vec<SentFlow<'b, 'a>> {
    run.suite(suite).filter_map(sent_flow).collect()
}

/// The first timed flow of a case, if it is a message.
pub(super) fn sent_flow<'b, 'a>(entry: &'b RunEntry<'a>) -> Option<SentFlow<'b, 'a>> {
    let flow = entry.case.timed.first()?;
    let wire = flow.by.wire()?;
    Some(SentFlow { entry, flow, wire, at_once: entry.case.timed.len() })
}

/// Memory of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SendKind {
    pub(super) mem: MemKind,
    /// Through host memory by copies of pathline, if the library accepts nothing else.
    pub(super) staged: bool,
}

impl SendKind {
    pub(super) const fn from_kind(mem: MemKind) -> Self {
        Self { mem, staged: false }
    }
    /// That of a case's first flow, if it is a message.
    pub(super) fn of(case: &Case) -> Option<Self> {
        let flow = case.timed.first()?;
        let staged = flow.by.wire()?.via == Transport::MpiStaged;
        Some(Self { mem: flow.src.mem, staged })
    }
    /// Its part of a figure's anchor.
    pub(super) fn id(self) -> String {
        if self.staged { format!("{}-staged", self.mem) } else { self.mem.to_string() }
    }
}

/// Display name of the memory of messages.
pub(super) fn memory(kind: SendKind) -> &'static str {
    match kind.mem {
        MemKind::Vram if kind.staged => "device memory staged through the host",
        MemKind::Vram => "device memory",
        MemKind::Paged => "host memory",
        MemKind::Pinned => "pinned memory",
        MemKind::Managed => "managed memory",
        MemKind::Huge => "huge pages",
        mem => super::mem_words(mem),
    }
}

/// The result of OSU's two-rank program: us for a ping, GB/s for windows.
pub(crate) fn osu_of_two(entry: &RunEntry) -> Option<f64> {
    let all = entry.series();
    let first = all.first()?;
    let counted = CountedTimes::from_series(first)?;
    let wire = first.flow.by.wire()?;
    match wire.op {
        WireOp::Ping => Some(counted.first),
        _ => {
            // Both directions: the time of rank 0, and the bytes of both.
            let bytes: f64 = all.iter().map(|s| s.flow.bytes.as_f64()).sum();
            let messages = f64::from(wire.op.window());
            let slowest = all
                .iter()
                .filter_map(CountedTimes::from_series)
                .map(|c| if all.len() > 1 { c.max } else { c.first })
                .fold(0.0, f64::max);
            Some(bytes * messages / (slowest * 1e3))
        }
    }
}
