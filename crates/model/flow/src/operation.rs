//! One operation of a flow: what it takes of shared resources, and what it costs.

use pathline_schema::{LinkEnd, Ns, Rate};

/// Something that flows share: one direction of a link, a memory, an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowResource {
    /// Name for people: `gpu0>gpu1 xGMI x4`, `numa3 DDR`, `gpu0 SDMA out`.
    pub name: String,
    /// Bytes per nanosecond that it can carry (GB/s).
    pub capacity: Rate,
}

/// How much of a resource one byte of a flow's payload takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceUse {
    /// Index into [`crate::Network::resources`].
    pub resource: u32,
    /// Bytes of the resource for a byte of payload: 1 is payload only, 1.15 with headers, 2 for a
    /// copy inside one memory.
    pub weight: f64,
}

/// A stage of a flow's path, and the most that it lets through.
#[derive(Debug, Clone, PartialEq)]
pub struct PathStage {
    /// Name for people: `xGMI gpu0-gpu2, 1 link`.
    pub name: String,
    /// Theoretical peak, from widths and clocks alone.
    pub peak: Rate,
    /// The most payload that it lets through alone.
    pub cap: Rate,
    /// Why the cap is below the peak; empty if it is not.
    pub why: String,
    /// The most payload that anything can carry over it, where that is known for sure.
    pub hard: Option<Rate>,
}

/// Cost and resource use of one operation of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowOperation {
    /// Shared resources.
    pub uses: Vec<ResourceUse>,
    /// The most that the flow can reach alone, whatever is free.
    pub cap: Rate,
    /// Its weight where rates are shared out: of two flows that wait for the same resource, one of
    /// 0.5 gets half of what one of 1 gets.
    pub share: f64,
    /// The engine that serves one stream of operations at a time, if this is for such a one: index
    /// into [`crate::Network::queues`].
    pub queue: Option<u32>,
    /// Its turn at the GPU's block dispatcher, where kernels start in order.
    pub turn: Option<KernelTurn>,
    /// Device time before the first byte moves.
    pub alpha: Ns,
    /// Host time of the call that enqueues it.
    pub call: Ns,
    /// Whether the call returns only when the bytes have arrived.
    pub blocking: bool,
    /// Part of its time that is drawn for each operation where times spread, exponentially: the rest is the least
    /// that it takes, and the median is the time of the model. 0 for what takes the same time again and again.
    pub spread: f64,
    /// Time of each dependent step, for a pointer chase; else 0.
    pub step: Ns,
    /// Units passed, ends included.
    pub route: Vec<LinkEnd>,
    /// The engine that moves the bytes, for the record: `copy engine`, `blit kernel`.
    pub engine: String,
    /// The path, stage by stage.
    pub stages: Vec<PathStage>,
}

/// The turn of a kernel at a dispatcher that starts kernels in the order of their arrival, each when all
/// blocks of the one before have started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelTurn {
    /// The GPU.
    pub gpu: u32,
    /// Whether it leaves no room for another kernel, which waits for its end: its grid takes all block slots,
    /// or its arithmetic all cycles in which a unit issues.
    pub fills: bool,
    /// Factor on the time of its arithmetic if it starts when a grid of all block slots ends. Its blocks then
    /// start on the units that free slots first: half as many as there are slots have half of the units.
    pub packed: f64,
}

impl KernelTurn {
    /// Whether the kernel's grid takes all block slots.
    pub fn takes_all_slots(&self) -> bool {
        self.fills && self.packed <= 1.0
    }
}

/// Why a flow has no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoPath(pub String);

/// An operation, and the name of what its own cap comes from.
#[derive(Debug, Clone)]
pub(crate) struct BuiltPath {
    pub operation: FlowOperation,
    pub limit: String,
}
