//! What a health check found, as one value that every format is made of.

use std::collections::BTreeMap;

use pathline_health::{HealthReport, HealthState, NodeFacts, RunDigest};
use serde::Serialize;

/// Format of [`HealthDocument`] as JSON.
const SCHEMA: u32 = 1;

/// The verdict, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DocumentState {
    /// No path lost more than allowed.
    Pass,
    /// Something is wrong with the node.
    Fail,
    /// Paths are slow in some processes only.
    Unstable,
    /// Neither could be shown.
    Inconclusive,
    /// The check could not begin: unusable arguments or files.
    Unusable,
}

impl DocumentState {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Pass, Self::Fail, Self::Unstable, Self::Inconclusive, Self::Unusable];

    /// As it is printed.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Unstable => "UNSTABLE",
            Self::Inconclusive => "INCONCLUSIVE",
            Self::Unusable => "UNUSABLE",
        }
    }

    /// Exit code of the command: 0 fine, 1 something is wrong, 2 unusable, 3 could not judge.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Unusable => 2,
            Self::Unstable | Self::Inconclusive => 3,
        }
    }

    /// Exit code of a Nagios plugin: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    pub const fn nagios_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Unstable => 1,
            Self::Fail => 2,
            Self::Inconclusive | Self::Unusable => 3,
        }
    }
}

impl From<HealthState> for DocumentState {
    fn from(state: HealthState) -> Self {
        match state {
            HealthState::Pass => Self::Pass,
            HealthState::Fail => Self::Fail,
            HealthState::Unstable => Self::Unstable,
            HealthState::Inconclusive => Self::Inconclusive,
        }
    }
}

/// A class of equal paths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthClass {
    /// For a reader: `gpu→gpu over 1 xGMI link, SDMA copy`.
    pub label: String,
    /// Number of its paths.
    pub paths: usize,
    /// Median time of one operation in seconds; none if not measured.
    pub median_seconds: Option<f64>,
    /// Median payload rate in bytes per second; none for latencies and where not measured.
    pub bytes_per_second: Option<f64>,
    /// Median speed divided by the ceiling of the narrowest hop.
    pub of_ceiling: Option<f64>,
}

/// A path that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthPath {
    /// For a reader: `gpu2→gpu3, SDMA copy`.
    pub label: String,
    /// The case.
    pub case: String,
    /// Index of its class.
    pub class: usize,
    /// Median time of one operation in ns of each process that measured it, and its number of rounds.
    pub medians_ns: Vec<(f64, usize)>,
}

/// Where the time went, seconds; of a simulated machine in virtual time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HealthPhases {
    /// What was allowed.
    pub budget: f64,
    /// Until the machine was open.
    pub opening: f64,
    /// Until the probes were bound.
    pub binding: f64,
    /// All of it.
    pub total: f64,
    /// Whether this is virtual time of a simulated machine.
    pub is_virtual: bool,
}

/// What the node was compared with besides itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthReference {
    /// Its name: a file or folder.
    pub name: String,
    /// One sentence on the result.
    pub result: String,
    /// Paths that are slower than there, the slowest first: label and share of speed lost.
    pub slower: Vec<(String, f64)>,
}

/// What a health check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HealthDocument {
    /// Format of this document.
    pub schema: u32,
    /// Version of pathline.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// The simulated machine; none if the node is real.
    pub simulated: Option<String>,
    /// The node in a line.
    pub node: String,
    /// When the check began, RFC 3339.
    pub started: String,
    /// The verdict.
    pub state: DocumentState,
    /// Why, in at most 100 characters.
    pub reason: String,
    /// Exit code of the command.
    pub exit_code: u8,
    /// Where the time went.
    pub seconds: HealthPhases,
    /// Processes that measured.
    pub processes: u32,
    /// The evidence; none if the check could not begin.
    pub report: Option<HealthReport>,
    /// What the node states about itself.
    pub facts: NodeFacts,
    /// Classes of equal paths.
    pub classes: Vec<HealthClass>,
    /// The paths.
    pub paths: Vec<HealthPath>,
    /// What it was compared with, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<HealthReference>,
    /// What is kept of it to compare later checks with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<RunDigest>,
    /// Environment variables that change what libraries do.
    pub env: BTreeMap<String, String>,
}

impl HealthDocument {
    /// Sets the verdict and the exit code that follows from it, in the convention of Nagios or of pathline.
    pub fn set_state(&mut self, state: DocumentState, nagios: bool) {
        self.state = state;
        self.exit_code = if nagios { state.nagios_code() } else { state.exit_code() };
    }

    /// A check that could not begin.
    pub fn unusable(version: &str, host: &str, started: &str, error: &str) -> Self {
        let state = DocumentState::Unusable;
        Self {
            schema: SCHEMA,
            version: version.to_owned(),
            host: host.to_owned(),
            simulated: None,
            node: String::new(),
            started: started.to_owned(),
            state,
            reason: error.chars().take(100).collect(),
            exit_code: state.exit_code(),
            seconds: HealthPhases::default(),
            processes: 0,
            report: None,
            facts: NodeFacts::default(),
            classes: Vec::new(),
            paths: Vec::new(),
            against: None,
            digest: None,
            env: BTreeMap::new(),
        }
    }
}
