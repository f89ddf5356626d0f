//! Identities of compared runs, and their differences.

use pathline_schema::{Journal, RunBegin, WorldKind, plain_line};

use crate::fmt;
use crate::run_identity::{count_gpus, machine_name};

/// The runs of one side.
#[derive(Debug, Clone, PartialEq)]
pub struct SideIdentity {
    /// Where they are stored, for a reader; empty if that is not known.
    pub files: String,
    /// Number of runs, including each repeat of a journal.
    pub runs: usize,
    /// Host, or hosts; of a model its name: `mi250x (SIMULATED)`.
    pub host: String,
    /// `4 x NVIDIA H200`; empty without GPUs.
    pub gpus: String,
    /// Number of GPUs, of the run with the fewest.
    pub gpu_count: usize,
    /// GPU driver, or the source of GPU facts, with its version.
    pub driver: String,
    /// Version of pathline.
    pub version: String,
    /// Start of the first and of the last run, RFC 3339 in UTC; equal for one run.
    pub started: (String, String),
    /// Runs that ended before their last case.
    pub cut: usize,
    /// Those of them that were killed: a run that its time limit ends has an end.
    pub killed: usize,
}

impl SideIdentity {
    /// The identity of a side's runs.
    pub(super) fn from_journals(journals: &[&Journal]) -> Self {
        let repeats = |j: &&Journal| j.repeats.len().max(1);
        let mut starts: Vec<&str> = journals
            .iter()
            .flat_map(|j| {
                let repeats = j.repeats.iter().map(|r| r.started.as_str());
                std::iter::once(j.begin.started.as_str()).chain(repeats)
            })
            .collect();
        starts.sort_unstable();
        let edge = |at: Option<&&str>| at.map_or(String::new(), |t| plain_line(t).into_owned());
        let cut = |j: &&&Journal| !j.is_complete();
        Self {
            files: String::new(),
            runs: journals.iter().map(repeats).sum(),
            host: distinct(journals, |j| match &j.begin.world {
                WorldKind::Simulated(name) => {
                    format!("{} (SIMULATED)", machine_name(&j.begin, name))
                }
                WorldKind::Real => j.begin.host.clone(),
            }),
            gpus: distinct(journals, |journal| count_gpus(&journal.topology)),
            gpu_count: journals.iter().map(|j| j.topology.gpus.len()).min().unwrap_or(0),
            driver: distinct(journals, |j| driver(&j.begin)),
            version: distinct(journals, |j| j.begin.version.clone()),
            started: (edge(starts.first()), edge(starts.last())),
            cut: journals.iter().filter(cut).count(),
            killed: journals.iter().filter(|j| j.end.is_none()).count(),
        }
    }

    /// `node1, 3 runs, 2026-11-21T05:04:27Z to 2026-11-21T05:09:00Z: 4 x NVIDIA H200, NVML 580.159,
    /// pathline 0.1.0`.
    pub fn text(&self) -> String {
        let runs = fmt::count(self.runs, "run");
        let (first, last) = &self.started;
        let when = if first == last { first.clone() } else { format!("{first} to {last}") };
        let gpus = if self.gpus.is_empty() { "no GPU" } else { &self.gpus };
        let mut parts = vec![gpus.to_owned()];
        parts.extend((!self.driver.is_empty()).then(|| self.driver.clone()));
        parts.push(format!("pathline {}", self.version));
        let cut = match self.cut {
            0 => String::new(),
            1 => "; 1 run was cut, and cases are missing".to_owned(),
            n => format!("; {n} runs were cut, and cases are missing"),
        };
        let files = match self.files.as_str() {
            "" => String::new(),
            files => format!("{files}: "),
        };
        format!("{files}{}, {runs}, {when}: {}{cut}", self.host, parts.join(", "))
    }
}

/// The distinct values of a property, in the order of the runs.
fn distinct(journals: &[&Journal], of: impl Fn(&Journal) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    for journal in journals {
        let value = plain_line(&of(journal)).into_owned();
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all.join(" and ")
}

fn driver(begin: &RunBegin) -> String {
    let mut sources: Vec<&str> = begin.gpus.values().map(|facts| facts.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    sources.join(", ")
}

/// Differences: name, before, after.
pub(super) fn conditions(before: &[&Journal], after: &[&Journal]) -> Vec<(String, String, String)> {
    let env = |j: &Journal| {
        let pairs: Vec<String> = j.begin.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(" ")
    };
    let settings = |j: &Journal| {
        let s = j.settings();
        format!("precision {}, case budget {}", fmt::percent(s.precision), s.case_budget)
    };
    type Property<'p> = (&'p str, &'p dyn Fn(&Journal) -> String);
    let properties: [Property<'_>; 9] = [
        ("host", &|j| j.begin.host.clone()),
        ("GPUs", &|journal: &Journal| count_gpus(&journal.topology)),
        ("driver", &|j| driver(&j.begin)),
        ("processor", &|j| j.topology.host.cpu_model.clone()),
        ("kernel", &|j| j.topology.host.kernel.clone()),
        ("virtualization", &|j| j.topology.host.virtualization.clone().unwrap_or_default()),
        ("environment", &env),
        ("settings", &settings),
        ("version", &|j| j.begin.version.clone()),
    ];
    properties
        .into_iter()
        .map(|(name, of)| (name.to_owned(), distinct(before, of), distinct(after, of)))
        .filter(|(_, a, b)| a != b)
        .collect()
}
