//! Messages between a run and its worker: two enums, one for each direction. The worker answers
//! every order but waits for [`WorkerOrder::Continue`] after each event, so that the journal has every
//! line before the next case begins.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use pathline_bench::{CaseTask, MachineInfo, TaskEvent, TaskStep, TimerScope};
use pathline_schema::{Bytes, RunSettings, Severity, Topology};
use pathline_sim::SimOptions;
use serde::{Deserialize, Serialize};

use crate::machine::{MachineChoice, OpenMachine, half_of_free};
use crate::ranks::RankJob;

/// From the run to its worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerOrder {
    /// Open the machine. First of all, once.
    Open(Box<MachineOpening>),
    /// Measure these cases.
    Measure(Box<CaseTask>),
    /// The event is on disk: go on.
    Continue,
    /// The same, and end the task as soon as possible.
    Stop,
}

/// From a worker to its run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerReport {
    /// The machine is not open yet, and a new attempt at its ranks begins.
    Retrying,
    /// The machine is open.
    Opened(Box<MachineInfo>),
    /// Ranks of a launcher are missing, which another worker cannot change.
    Incomplete(String),
    /// A step begins, or a line for the journal.
    Event(Box<TaskEvent>),
    /// The task has ended.
    Done,
}

/// The request of a run to the process that measures: this one, or a worker. Made once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRequest {
    /// The machine.
    pub machine: MachineChoice,
    /// Settings of the engine, from which a model also draws its times. The memory follows from the machine.
    pub settings: RunSettings,
    /// Most host memory for buffers; half of what is free by default.
    pub memory: Option<Bytes>,
    /// The processes that measure together, if there are several.
    pub job: Option<RankJob>,
    /// Timeout of a step, if the user set one.
    pub limit: Option<Duration>,
    /// Faults on order in worker processes.
    pub faults: Vec<WorkerFault>,
    /// Which repeat of the run this is, from 0: a model draws other times in each.
    pub repeat: u32,
}

/// What the seeds of successive repeats of a simulated run differ by: 2^64 over the golden ratio, so
/// that no two of seeds 1, 2, 3 ... and their repeats are the same.
const REPEAT_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

impl RunRequest {
    /// The settings on a machine with this topology.
    pub fn settings_on(&self, topology: &Topology) -> RunSettings {
        let memory = self.memory.unwrap_or_else(|| half_of_free(topology));
        RunSettings { memory, ..self.settings }
    }

    /// Opens the machine in this process, without its GPUs if `without` has a reason. Injects no
    /// fault.
    ///
    /// # Errors
    /// The description of a model makes no network.
    pub fn open(
        &self,
        env: &BTreeMap<String, String>,
        without: Option<String>,
    ) -> Result<OpenMachine> {
        self.machine.open(env, &self.sim_options(), without)
    }

    /// How a model departs from its description.
    pub(crate) fn sim_options(&self) -> SimOptions {
        let usual = SimOptions::default();
        SimOptions {
            seed: u64::from(self.repeat)
                .wrapping_mul(REPEAT_STRIDE)
                .wrapping_add(self.settings.seed),
            jitter: self.settings.noise.unwrap_or(usual.jitter),
            ranks: self.job.as_ref().map_or(0, RankJob::count),
            nodes: self.job.as_ref().and_then(RankJob::nodes),
            ..usual
        }
    }
}

/// How a worker opens the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MachineOpening {
    /// The process that started the worker, which must not outlive it.
    pub(crate) parent: u32,
    /// The request of the run.
    pub(crate) request: RunRequest,
    /// Why the GPUs are to be left alone, if they are.
    pub(crate) without: Option<String>,
    /// The timers to check.
    pub(crate) overhead: TimerScope,
    /// How long ranks may take to come and to open their libraries, if that is known from earlier ones.
    #[serde(default)]
    pub(crate) start_limit: Option<Duration>,
}

/// A fault to inject in a worker process: `WHAT STEP TEXT`, or `fails CALL NTH SEVERITY [GPU]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerFault {
    /// The process ends, or hangs, at a step of a case.
    At {
        /// How it ends.
        what: ProcessEnd,
        /// The step.
        step: TaskStep,
        /// Only in the first process that opens the machine.
        first: bool,
        /// Part of the text of the case.
        text: String,
    },
    /// A call to a simulated machine fails, once in each process.
    Call {
        /// Name of the call.
        call: String,
        /// Number of the call; 1 is the first.
        nth: u64,
        /// How bad it is.
        severity: Severity,
        /// Only calls on this GPU count.
        gpu: Option<u32>,
    },
    /// The process ends, or hangs, while it opens the machine.
    Open(ProcessEnd, OpenSelector),
}

/// The attempts to open the machine that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenSelector {
    /// All.
    Any,
    /// Those with GPUs.
    WithGpus,
    /// Those with GPUs after the first that went well.
    Again,
}

/// How a process stops working.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessEnd {
    /// By a signal.
    Crash,
    /// By an exit code.
    Exit,
    /// It stops responding.
    Hang,
}

impl FromStr for WorkerFault {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is no fault: crash|exit|hang start|open|reopen|bind|visit|verify TEXT (bind@1: in the first process only), or fails CALL NTH SEVERITY [GPU]"
            )
        };
        let (first, rest) = text.split_once(' ').ok_or_else(bad)?;
        let what = match first {
            "crash" => ProcessEnd::Crash,
            "exit" => ProcessEnd::Exit,
            "hang" => ProcessEnd::Hang,
            "fails" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let &[call, nth, severity, ref gpu @ ..] = words.as_slice() else {
                    return Err(bad());
                };
                return Ok(Self::Call {
                    call: call.to_owned(),
                    nth: nth.parse().map_err(|_| bad())?,
                    severity: severity.parse().map_err(|_| bad())?,
                    gpu: gpu.first().map(|g| g.parse()).transpose().map_err(|_| bad())?,
                });
            }
            _ => return Err(bad()),
        };
        let (step, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let (step, first) = match step.strip_suffix("@1") {
            Some(step) => (step, true),
            None => (step, false),
        };
        let step = match step {
            "start" | "open" | "reopen" if first => return Err(bad()),
            "start" => return Ok(Self::Open(what, OpenSelector::Any)),
            "open" => return Ok(Self::Open(what, OpenSelector::WithGpus)),
            "reopen" => return Ok(Self::Open(what, OpenSelector::Again)),
            "bind" => TaskStep::Bind,
            "visit" => TaskStep::Visit,
            "verify" => TaskStep::Verify,
            _ => return Err(bad()),
        };
        Ok(Self::At { what, step, first, text: text.to_owned() })
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
