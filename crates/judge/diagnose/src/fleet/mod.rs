//! A fleet compared with itself: the latest result of each node against those of all nodes with the same parts.
//! A node that is slow as a whole differs from the others, though its own paths agree with each other.

mod kind;
mod places;

use std::collections::BTreeMap;

use pathline_schema::NodeVerdict;
use serde::Serialize;

use self::kind::{KindTimes, NodeResults};
pub(crate) use self::kind::{MIN_SLOW, PlaceSpread};
use crate::RunDigest;

/// Fewest nodes with the same parts that are compared: of fewer, a slow one moves the middle.
pub const MIN_NODES: usize = 5;

/// How sure the verdict on a node must be.
#[derive(Debug, Clone, Copy)]
pub struct FleetSettings {
    /// Share of its speed that a path may lose, 0 to 1.
    pub loss: f64,
    /// Probability at most that a sound node is named.
    pub alpha: f64,
}

/// What a fleet's results say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetReport {
    /// The kinds of nodes, the largest first.
    pub kinds: Vec<NodeKind>,
    /// The nodes: those with slow places first, those by loss, then by name.
    pub nodes: Vec<FleetNode>,
    /// Results that were there twice.
    pub repeated: usize,
    /// Ranks of a job whose nodes did not answer in time.
    pub unanswered: Vec<u32>,
}

/// Nodes with the same parts, joined alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeKind {
    /// Fingerprint of the parts.
    pub hardware: String,
    /// What all of them have of parts and software: `GPU driver: 580.1`.
    pub facts: Vec<String>,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of paths that most of them have.
    pub paths: usize,
    /// The largest loss that may go unnoticed, by place, of places of the whole node; shares of speed.
    pub visible: Vec<(String, f64)>,
    /// Groups of nodes by software that differ as a whole: how they differ, and by what share of speed.
    pub gaps: Vec<String>,
}

/// What is said of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetNode {
    /// Name of the host.
    pub host: String,
    /// When its latest result began, RFC 3339.
    pub started: String,
    /// Number of results.
    pub results: usize,
    /// Position of its kind in [`FleetReport::kinds`]; none without times.
    pub kind: Option<usize>,
    /// FAIL if its two latest results agree or wrong bytes arrived, SUSPECT if one result shows a loss, UNDECIDED if it
    /// could not be compared.
    pub verdict: NodeVerdict,
    /// What is slow, the place with most paths first.
    pub slow: Vec<SlowPlace>,
    /// Share of its speed that it lost in each place of [`NodeKind::visible`]; below 0 it is faster, none where it
    /// lacks paths.
    pub losses: Vec<Option<f64>>,
    /// Why it could not be compared, or what its own check found, now or at an earlier time.
    pub why: Option<String>,
}

impl FleetReport {
    /// The number of nodes with a verdict.
    pub fn count(&self, verdict: NodeVerdict) -> usize {
        self.nodes.iter().filter(|node| node.verdict == verdict).count()
    }

    /// The worst verdict of a node; UNDECIDED if there is none, or one did not answer.
    pub fn verdict(&self) -> NodeVerdict {
        let order = [NodeVerdict::Fail, NodeVerdict::Suspect, NodeVerdict::Undecided];
        let worst = order.into_iter().find(|verdict| self.count(*verdict) > 0);
        worst.unwrap_or(match self.nodes.is_empty() || !self.unanswered.is_empty() {
            true => NodeVerdict::Undecided,
            false => NodeVerdict::Ok,
        })
    }

    /// Adds what the check of a node itself found, by name of the host. A node without times was not compared.
    pub fn add_own_verdict(&mut self, host: &str, verdict: NodeVerdict, reason: &str) {
        let sizes: Vec<usize> = self.kinds.iter().map(|kind| kind.nodes).collect();
        let few = |at: usize| sizes.get(at).is_some_and(|nodes| *nodes < MIN_NODES);
        let own = format!("its own check: {} {reason}", verdict.word());
        let Some(node) = self.nodes.iter_mut().find(|node| node.host == host) else {
            let (host, kind, why) = (host.to_owned(), None, Some(own));
            let (slow, losses, started) = (Vec::new(), Vec::new(), String::new());
            let verdict = if verdict == NodeVerdict::Ok { NodeVerdict::Undecided } else { verdict };
            let node = FleetNode { host, started, results: 1, kind, verdict, slow, losses, why };
            self.nodes.insert(0, node);
            return;
        };
        match (verdict, node.verdict) {
            (NodeVerdict::Fail, _)
            | (NodeVerdict::Suspect, NodeVerdict::Ok | NodeVerdict::Undecided) => {
                (node.verdict, node.why) = (verdict, Some(own));
            }
            // Its paths agree with each other, and nobody else can be asked.
            (NodeVerdict::Ok, NodeVerdict::Undecided) if node.kind.is_some_and(few) => {
                node.verdict = NodeVerdict::Ok;
            }
            _ => (),
        }
    }

    /// Notes that a check of a node which is sound by its latest result was not at an earlier time.
    pub fn add_earlier_verdict(&mut self, host: &str, verdict: NodeVerdict, started: &str) {
        let is_sound = |node: &&mut FleetNode| node.host == host && node.verdict == NodeVerdict::Ok;
        if let Some(node) = self.nodes.iter_mut().find(is_sound) {
            node.why = Some(format!("{} at {started}, not in its latest check", verdict.word()));
        }
    }
}

/// A place of a node that is slower than on other nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowPlace {
    /// `gpu2→gpu3`, `copies out of gpu3 to GPUs`, `all copies between GPUs`.
    pub place: String,
    /// Share of its speed that it lost against the middle of its kind.
    pub loss: f64,
    /// Its paths.
    pub paths: usize,
    /// Standard deviations between nodes that it is away.
    pub deviations: f64,
    /// The first of the node's results from which on it is slow; none if all are.
    pub since: Option<String>,
    /// What differs in parts and software from the result before: `kernel: 5.14.0 to 6.4.0`.
    pub changed: Vec<String>,
}

/// Judges the latest result of each node.
pub fn judge_fleet(digests: &[RunDigest], settings: FleetSettings) -> FleetReport {
    let mut nodes: BTreeMap<(&str, Option<&str>), BTreeMap<&str, &RunDigest>> = BTreeMap::new();
    let mut repeated = 0;
    for digest in digests {
        let node = nodes.entry((&digest.host, digest.simulated.as_deref())).or_default();
        repeated += usize::from(node.insert(&digest.started, digest).is_some());
    }
    let mut kinds: BTreeMap<(&str, Option<&str>), Vec<NodeResults<'_>>> = BTreeMap::new();
    for ((host, simulated), results) in nodes {
        // Texts of RFC 3339 in UTC are in the order of time.
        let results: Vec<&RunDigest> = results.into_values().collect();
        let Some(latest) = results.last() else { continue };
        kinds.entry((&latest.hardware, simulated)).or_default().push(NodeResults { host, results });
    }
    let mut kinds: Vec<Vec<NodeResults<'_>>> = kinds.into_values().collect();
    kinds.sort_by_key(|nodes| std::cmp::Reverse(nodes.len()));
    let mut report =
        FleetReport { kinds: Vec::new(), nodes: Vec::new(), repeated, unanswered: Vec::new() };
    for nodes in &kinds {
        let kind = KindTimes::new(nodes);
        report.nodes.extend(kind.judge(report.kinds.len(), settings));
        report.kinds.push(kind.describe(settings));
    }
    let rank = |node: &FleetNode| {
        let loss = node.slow.iter().map(|slow| slow.loss).fold(0.0, f64::max);
        (std::cmp::Reverse(node.slow.len().min(1)), node.why.is_none(), -loss)
    };
    report.nodes.sort_by(|a, b| {
        let (a_rank, b_rank) = (rank(a), rank(b));
        (a_rank.0, a_rank.1)
            .cmp(&(b_rank.0, b_rank.1))
            .then(a_rank.2.total_cmp(&b_rank.2))
            .then(a.host.cmp(&b.host))
    });
    report
}

#[cfg(test)]
mod tests;
