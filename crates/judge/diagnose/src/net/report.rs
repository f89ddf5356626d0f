//! What is checked, what measures, and what was found.

use pathline_schema::NodeVerdict;
use serde::Serialize;

use super::parts::NetPartKind;

/// Times between two nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PairTimes {
    /// ns of each rail: from the first node to the second, and back. NaN where a node was lost.
    pub rails: Vec<[f64; 2]>,
}

/// Measures between nodes.
pub trait PairMeter {
    /// Times of disjoint pairs of nodes that exchange at the same time, in their order.
    fn measure(&mut self, pairs: &[[usize; 2]]) -> Vec<PairTimes>;
    /// Nodes that have stopped to answer, with the reason. They are not measured again.
    fn lost(&self) -> Vec<(usize, String)>;
}

/// What a check of the network found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NetReport {
    /// The worst of what was found; UNDECIDED if nothing was and nodes were lost, or are too few.
    pub verdict: NodeVerdict,
    /// Why nothing could be decided.
    pub why: Option<String>,
    /// Names of the nodes.
    pub hosts: Vec<String>,
    /// Rails of each node.
    pub rails: usize,
    /// Rounds that were measured.
    pub rounds: usize,
    /// Times that were measured: pairs, rails and directions of all rounds.
    pub times: usize,
    /// Slow parts, in the order in which they were found.
    pub faults: Vec<NetFault>,
    /// The largest loss of a node's speed that may have gone unnoticed, 0 to 1.
    pub visible: Option<f64>,
    /// Lost nodes, by name, with the reason.
    pub lost: Vec<(String, String)>,
}

/// A slow part of the network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NetFault {
    /// FAIL if fresh rounds showed it again and no other part explains it nearly as well, else SUSPECT.
    pub verdict: NodeVerdict,
    /// The kind of part.
    pub kind: NetPartKind,
    /// The part: `node n17`, `adapter of rail 2 of n17, or its cable`.
    pub part: String,
    /// The nodes that it belongs to.
    pub hosts: Vec<String>,
    /// The rail, if it belongs to one of several.
    pub rail: Option<usize>,
    /// Share of its speed that it lost, 0 to 1.
    pub loss: f64,
    /// The same in the rounds that proved it; none if it was not measured again.
    pub again: Option<f64>,
    /// Times that it explains.
    pub times: usize,
    /// Odds to the next part that might explain them.
    pub odds: f64,
    /// That part.
    pub next: Option<String>,
}
