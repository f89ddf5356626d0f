//! Resources of a node and the paths of flows over them.

use pathline_schema::{Case, Flow, Node, Ns, Rate, Topology};

use crate::{DescError, MachineDesc, Switches};

/// Something that flows share: one direction of a link, a memory, an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Name for people: `gpu0>gpu1 xGMI x4`, `numa3 DDR`, `gpu0 SDMA out`.
    pub name: String,
    /// Bytes per nanosecond that it can carry (GB/s).
    pub capacity: Rate,
}

/// How much of a resource one byte of a flow's payload takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    /// Index into [`Network::resources`].
    pub resource: u32,
    /// Bytes of the resource for a byte of payload: 1 is payload only, 1.15 with headers, 2 for a
    /// copy inside one memory.
    pub weight: f64,
}

/// A stretch of a flow's way, and the most it lets through.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Name for people: `xGMI gpu0-gpu2, 1 link`.
    pub name: String,
    /// Theoretical peak, from widths and clocks alone.
    pub peak: Rate,
    /// The most payload that it lets through alone.
    pub cap: Rate,
    /// Why the cap is below the peak; empty if it is not.
    pub why: String,
}

/// What one operation of a flow costs and takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Shared resources.
    pub uses: Vec<Use>,
    /// The most that the flow can reach alone, whatever is free.
    pub cap: Rate,
    /// Device time before the first byte moves.
    pub alpha: Ns,
    /// Host time of the call that enqueues it.
    pub call: Ns,
    /// Whether the call returns only when the bytes have arrived.
    pub blocking: bool,
    /// Time of each dependent step, for a pointer chase; else 0.
    pub step: Ns,
    /// Units passed, ends included.
    pub route: Vec<Node>,
    /// What moves the bytes, in words for the record: `copy engine`, `blit kernel`.
    pub engine: String,
    /// The way, stretch by stretch.
    pub stages: Vec<Stage>,
}

/// Why a flow has no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoPath(pub String);

/// What is expected of one timed flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Payload rate while all flows of the case run.
    pub rate: Rate,
    /// Time of one operation, start-up included, beside the other flows. For a chase, of one step.
    pub time: Ns,
    /// Name of the resource or cap that binds.
    pub bound_by: String,
}

/// The ceiling of a flow and where it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Theoretical peak of the narrowest stretch of the way.
    pub peak: Rate,
    /// The stretch.
    pub narrowest: String,
    /// The tightest bound that is known, if it is below the peak: an engine's cap, a protocol.
    pub bound: Option<(Rate, String)>,
    /// Units passed, ends included.
    pub route: Vec<Node>,
    /// The way, stretch by stretch.
    pub stages: Vec<Stage>,
}

/// Resources and paths of one node.
#[derive(Debug, Clone)]
pub struct Network {
    resources: Vec<Resource>,
}

impl Network {
    /// From a machine description, as it behaves under `switches`.
    pub fn new(_desc: &MachineDesc, _switches: Switches) -> Result<Self, DescError> {
        todo!()
    }
    /// From a discovered topology: theoretical peaks, no efficiencies, no latencies.
    pub fn from_topology(_topology: &Topology) -> Self {
        todo!()
    }
    /// What flows share.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }
    /// What one operation of `flow` costs and takes.
    pub fn operation(&self, _flow: &Flow) -> Result<Operation, NoPath> {
        todo!()
    }
    /// The ceiling of `flow` alone.
    pub fn explain(&self, _flow: &Flow) -> Result<Explanation, NoPath> {
        todo!()
    }
    /// What each timed flow of `case` will get, all flows of the case running.
    pub fn predict(&self, _case: &Case) -> Result<Vec<Prediction>, NoPath> {
        todo!()
    }
}
