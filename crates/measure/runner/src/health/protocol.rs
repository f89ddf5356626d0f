//! What a health check and its probe processes send each other: an order, then events until its answer.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use pathline_schema::{Case, GpuFacts, GpuState, Severity, Topology, WorldKind};
use serde::{Deserialize, Serialize};

use crate::machine::MachineChoice;

/// To a probe process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProbeOrder {
    /// Open the machine. First of all, once.
    Open(Box<ProbeOpening>),
    /// Bind these cases; their numbers follow the order here.
    Bind(Vec<Case>),
    /// Measure each of these probes once, in an order drawn by `seed`.
    Round {
        /// Numbers of the probes.
        probes: Vec<usize>,
        /// Seed of the order.
        seed: u64,
        /// How long to wait before it.
        wait: Duration,
        /// Whether to compare the bytes that each timed operation stores.
        compare: bool,
    },
    /// Read the state of each of these GPUs while the probe of that number runs.
    Look(Vec<(u32, usize)>),
    /// Read error counters.
    Count,
}

/// From a probe process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProbeEvent {
    /// The machine is open.
    Opened(Box<NodeView>),
    /// A step begins that uses devices: the number of the probe in the order at hand.
    Started(usize),
    /// The cases are bound, except for these.
    Bound(Vec<(usize, ProbeFailure)>),
    /// The times of a round in ns, and the probes that failed. `at_ns` is the machine's clock.
    Round {
        /// Number of the probe and time of one operation.
        times: Vec<(usize, f64)>,
        /// The probes that failed.
        failed: Vec<(usize, ProbeFailure)>,
    },
    /// State of GPUs while bytes moved, and the probes that failed.
    Looked(BTreeMap<u32, GpuState>, Vec<(usize, ProbeFailure)>),
    /// Error counters of GPUs, and failures of the library that reads them.
    Counted(BTreeMap<u32, GpuState>, Vec<String>),
}

/// Why a probe has no time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeFailure {
    /// The error of the machine.
    pub error: String,
    /// How bad it is.
    pub severity: Severity,
}

/// How a probe process opens the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProbeOpening {
    /// The process that started it, which it must not outlive.
    pub(crate) parent: u32,
    /// The machine.
    pub(crate) machine: MachineChoice,
    /// Number of the process in the check, from 0.
    pub(crate) process: u32,
    /// Seed of a simulated machine, which differs by process.
    pub(crate) seed: u64,
    /// Standard deviation of times of a simulated machine, relative.
    pub(crate) noise: Option<f64>,
    /// Faults on order.
    pub(crate) faults: Vec<ProbeFault>,
}

/// The node as a probe process sees it when it has opened the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Hardware or model.
    pub world: WorldKind,
    /// Its parts, as its GPU runtime completes them.
    pub topology: Topology,
    /// Why nothing on GPUs can be measured; none if a runtime is bound.
    pub without: Option<String>,
    /// Facts of each GPU, where its library answers.
    pub facts: BTreeMap<u32, GpuFacts>,
    /// State of each GPU before anything was measured.
    pub states: BTreeMap<u32, GpuState>,
    /// Error counters before anything was measured.
    pub counters: BTreeMap<u32, GpuState>,
    /// Why NVIDIA's management library reads nothing, with the remedy, and whether it is there and refuses
    /// to start; none if it reads.
    pub unmanaged: Option<(String, bool)>,
}

/// A fault to inject in a probe process, `WHAT STEP[@PROCESS] [FILE]`: it happens before the machine is
/// opened (step 0) or before the given step that uses devices, in every process or in one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeFault {
    what: ProbeFaultKind,
    step: u64,
    process: Option<u32>,
    /// What [`ProbeFaultKind::Block`] opens.
    #[serde(default)]
    file: PathBuf,
}

/// What a faulty process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProbeFaultKind {
    /// It ends by a signal.
    Crash,
    /// It ends with a code.
    Exit,
    /// It stops responding.
    Hang,
    /// It is stopped by a signal, and no signal but SIGKILL ends it.
    Stop,
    /// It sends a line that is no message.
    Garbage,
    /// It sends bytes without the end of a line, for ever.
    Drip,
    /// It opens a file, such as one of a file system that does not answer: a call into the kernel that no
    /// signal ends.
    Block,
}

impl ProbeFaultKind {
    const ALL: [(&str, Self); 7] = [
        ("crash", Self::Crash),
        ("exit", Self::Exit),
        ("hang", Self::Hang),
        ("stop", Self::Stop),
        ("garbage", Self::Garbage),
        ("drip", Self::Drip),
        ("block", Self::Block),
    ];
}

impl FromStr for ProbeFault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is no fault: expected crash|exit|hang|stop|garbage|drip and a step, such as \
                 'hang 12', 'hang 12@0' for the first process only, or 'block 12 FILE'"
            )
        };
        let (what, step) = text.split_once(' ').ok_or_else(bad)?;
        let (step, file) = step.split_once(' ').unwrap_or((step, ""));
        let kind = ProbeFaultKind::ALL.iter().find(|(name, _)| *name == what);
        let (step, process) = match step.split_once('@') {
            Some((step, process)) => (step, Some(process.parse().map_err(|_| bad())?)),
            None => (step, None),
        };
        let step = step.parse().map_err(|_| bad())?;
        let what = kind.ok_or_else(bad)?.1;
        if (what == ProbeFaultKind::Block) == file.is_empty() {
            return Err(bad());
        }
        Ok(Self { what, step, process, file: PathBuf::from(file) })
    }
}

impl fmt::Display for ProbeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ProbeFaultKind::ALL.iter().find(|(_, kind)| *kind == self.what);
        write!(f, "{} {}", name.map_or("", |(name, _)| *name), self.step)?;
        self.process.map_or(Ok(()), |process| write!(f, "@{process}"))?;
        match self.file.as_os_str().is_empty() {
            true => Ok(()),
            false => write!(f, " {}", self.file.display()),
        }
    }
}

impl ProbeOpening {
    /// The fault to inject before a step.
    pub(crate) fn fault_at(&self, step: u64) -> Option<(ProbeFaultKind, &Path)> {
        let here = |f: &&ProbeFault| f.process.is_none_or(|process| process == self.process);
        let fault = self.faults.iter().filter(here).find(|f| f.step == step)?;
        Some((fault.what, &fault.file))
    }
}
