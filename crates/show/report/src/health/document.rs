//! The result of a health check, as one value from which every format is rendered.

use std::collections::BTreeMap;

use pathline_diagnose::{HealthReport, NodeFacts, RunDigest};
use pathline_schema::NodeVerdict;
use serde::Serialize;

/// Version of [`HealthDocument`] as JSON.
const SCHEMA: u32 = 2;
/// Exit code of a check that could not begin.
const UNUSABLE: u8 = 2;

/// A class of paths with equal expected rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthClass {
    /// Label: `gpu→gpu over 1 xGMI link, SDMA copy`.
    pub label: String,
    /// Number of its paths.
    pub paths: usize,
    /// Median time of one operation in seconds; `None` if not measured.
    pub median_seconds: Option<f64>,
    /// Median payload rate in bytes per second; `None` for latencies and if not measured.
    pub bytes_per_second: Option<f64>,
    /// Median speed divided by the ceiling of the narrowest hop.
    pub of_ceiling: Option<f64>,
}

/// A measured path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthPath {
    /// Label: `gpu2→gpu3, SDMA copy`.
    pub label: String,
    /// The case.
    pub case: String,
    /// Index of its class.
    pub class: usize,
    /// For each process that measured it: median time of one operation in ns, and number of rounds.
    pub medians_ns: Vec<(f64, usize)>,
}

/// Durations of the check's parts in seconds; virtual time on a simulated machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HealthPhases {
    /// Time budget.
    pub budget: f64,
    /// Until the machine was open.
    pub opening: f64,
    /// Until the probes were bound.
    pub binding: f64,
    /// Total.
    pub total: f64,
    /// Whether this is virtual time of a simulated machine.
    pub is_virtual: bool,
}

/// A comparison with an earlier check or another node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthReference {
    /// The file or folder of the other side.
    pub name: String,
    /// What it says of the node: slower is FAIL, too little to compare with UNDECIDED.
    pub state: NodeVerdict,
    /// The result in one sentence.
    pub result: String,
    /// Slower paths and classes, the slowest first: label and lost share of the speed.
    pub slower: Vec<(String, f64)>,
}

/// The result of a health check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthDocument {
    /// Format of this document.
    pub schema: u32,
    /// Version of pathline.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// Name of the simulated machine; `None` if the node is real.
    pub simulated: Option<String>,
    /// One line about the node.
    pub node: String,
    /// Start of the check, RFC 3339.
    pub started: String,
    /// The verdict.
    pub state: NodeVerdict,
    /// Reason of the verdict, at most 100 characters.
    pub reason: String,
    /// What to do about a node that is slow or may be; empty for others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// Exit code of the command.
    pub exit_code: u8,
    /// Durations of its parts.
    pub seconds: HealthPhases,
    /// Number of processes that measured.
    pub processes: u32,
    /// The evidence; `None` if the check could not begin.
    pub report: Option<HealthReport>,
    /// Which board each GPU is: `gpu3` is `GPU-1b2c, serial 165, 0000:c1:00.0`. Empty for a model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, String>,
    /// States that the node reports, such as error counters.
    pub facts: NodeFacts,
    /// Classes of equal paths.
    pub classes: Vec<HealthClass>,
    /// The paths.
    pub paths: Vec<HealthPath>,
    /// The comparison, if one was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<HealthReference>,
    /// Reference for later checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<RunDigest>,
    /// Environment variables that affect libraries.
    pub env: BTreeMap<String, String>,
}

impl HealthDocument {
    /// Sets the verdict and the corresponding exit code, by the convention of Nagios or of
    /// pathline.
    pub fn set_state(&mut self, state: NodeVerdict, nagios: bool) {
        self.state = state;
        self.exit_code = if nagios { state.nagios_code() } else { state.exit_code() };
    }

    /// Whether the check could not begin: unusable arguments or files.
    pub fn is_unusable(&self) -> bool {
        self.report.is_none() && self.exit_code == UNUSABLE
    }

    /// Number of paths that are slower than their peers, or than the reference if that decided against the
    /// node, and the largest share of speed that one lost.
    pub fn slower(&self) -> (usize, f64) {
        let suspects = self.report.iter().flat_map(|report| &report.suspects);
        let suspects = suspects.map(|s| (s.path.as_str(), s.loss));
        let reference = self.against.iter().filter(|a| a.state == NodeVerdict::Fail);
        let slower = reference.flat_map(|a| &a.slower).map(|(path, loss)| (path.as_str(), *loss));
        let all: BTreeMap<&str, f64> = slower.chain(suspects).collect();
        (all.len(), all.into_values().fold(0.0, f64::max))
    }

    /// The document of a check that could not begin.
    pub fn unusable(version: &str, host: &str, started: &str, error: &str) -> Self {
        let state = NodeVerdict::Undecided;
        Self {
            schema: SCHEMA,
            version: version.to_owned(),
            host: host.to_owned(),
            simulated: None,
            node: String::new(),
            started: started.to_owned(),
            state,
            reason: error.chars().take(100).collect(),
            action: String::new(),
            exit_code: UNUSABLE,
            seconds: HealthPhases::default(),
            processes: 0,
            report: None,
            parts: BTreeMap::new(),
            facts: NodeFacts::default(),
            classes: Vec::new(),
            paths: Vec::new(),
            against: None,
            digest: None,
            env: BTreeMap::new(),
        }
    }
}
