//! Which paths to measure, and which of them should be equal.

use pathline_flow::Network;
use pathline_schema::{Case, Topology};
use serde::Serialize;

use crate::report::as_text;

/// A path that is measured once in each round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthProbe {
    /// What is measured: one operation of its one flow.
    #[serde(serialize_with = "as_text")]
    pub case: Case,
    /// Index of its class in the plan.
    pub class: usize,
    /// For a reader: `gpu2→gpu3, SDMA copy`.
    pub label: String,
}

/// How far the times of healthy paths spread, which differs by what they are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TailKind {
    /// Between GPUs: set by the clocks of links.
    GpuLink,
    /// Between a GPU and the host: depends on where pages and CPUs lie, by process.
    HostLink,
    /// A GPU's own memory and kernels: depends on power and temperature.
    Local,
    /// Short operations, whose time is latency.
    Latency,
}

/// Paths that should be equal: those that a symmetry of the node exchanges.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathClass {
    /// For a reader: `gpu→gpu over 1 xGMI link, SDMA copy`.
    pub label: String,
    /// Number of paths.
    pub paths: usize,
    /// Spread of their times.
    pub tail: TailKind,
}

/// What to measure.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HealthPlan {
    /// The probes; times are given in their order.
    pub probes: Vec<HealthProbe>,
    /// Classes of equal paths.
    pub classes: Vec<PathClass>,
    /// Parts of the node that no probe sees.
    pub unseen: Vec<String>,
}

impl HealthPlan {
    /// Plans the probes of a node. `network` is the node as a model or twin knows it, without faults;
    /// `loss` is the share of its speed that a path may lose, such as 0.03.
    pub fn new(_topology: &Topology, _network: Option<&Network>, _loss: f64) -> Self {
        Self::default()
    }
}
