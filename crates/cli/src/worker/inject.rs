//! Faults on order, so that recovery can be tested on any machine.

use std::fmt;
use std::str::FromStr;

use pathline_bench::{TaskEvent, TaskStep, TimerScope};
use pathline_schema::Severity;
use serde::{Deserialize, Serialize};

use super::link::MachineOpening;

/// What goes wrong in a worker process: `WHAT STEP TEXT`, or `fails CALL NTH SEVERITY [GPU]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerFault {
    /// The process ends, or hangs, at a step of a case.
    At {
        /// How.
        what: ProcessEnd,
        /// The step.
        doing: TaskStep,
        /// Only in the first process that opens the machine.
        first: bool,
        /// Part of the text of the case.
        text: String,
    },
    /// A call to a simulated machine fails, once in each process.
    Call {
        /// Name of the call.
        call: String,
        /// Which one; 1 is the first.
        nth: u64,
        /// How bad it is.
        severity: Severity,
        /// Only calls on this GPU count.
        gpu: Option<u32>,
    },
    /// The process ends, or hangs, while it opens the machine.
    Open(ProcessEnd, OpenSelector),
}

/// Which openings go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OpenSelector {
    /// All.
    Any,
    /// Those with GPUs.
    WithGpus,
    /// Those with GPUs after the first that went well.
    Again,
}

/// How a process stops to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProcessEnd {
    /// By a signal.
    Crash,
    /// By an exit of its own.
    Exit,
    /// It does nothing any more.
    Hang,
}

impl FromStr for WorkerFault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is no mishap: crash|exit|hang start|open|reopen|bind|visit|verify TEXT (bind@1: in the first process only), or fails CALL NTH SEVERITY [GPU]"
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
        let doing = match step {
            "start" | "open" | "reopen" if first => return Err(bad()),
            "start" => return Ok(Self::Open(what, OpenSelector::Any)),
            "open" => return Ok(Self::Open(what, OpenSelector::WithGpus)),
            "reopen" => return Ok(Self::Open(what, OpenSelector::Again)),
            "bind" => TaskStep::Bind,
            "visit" => TaskStep::Visit,
            "verify" => TaskStep::Verify,
            _ => return Err(bad()),
        };
        Ok(Self::At { what, doing, first, text: text.to_owned() })
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl ProcessEnd {
    pub(super) fn happen(self) {
        // Its last words are part of what the run tells.
        crate::say::errln!("pathline: {self} on order");
        match self {
            Self::Crash => std::process::abort(),
            Self::Exit => std::process::exit(3),
            Self::Hang => loop {
                std::thread::sleep(std::time::Duration::from_secs(3600));
            },
        }
    }
}

/// Lets happen what was ordered for the opening of the machine.
pub(super) fn at_open(opening: &MachineOpening) {
    let (gpus, again) = (opening.without.is_none(), opening.overhead == TimerScope::Known);
    for inject in &opening.inject {
        match inject {
            WorkerFault::Open(what, OpenSelector::Any) => what.happen(),
            WorkerFault::Open(what, OpenSelector::WithGpus) if gpus => what.happen(),
            WorkerFault::Open(what, OpenSelector::Again) if gpus && again => what.happen(),
            _ => {}
        }
    }
}

/// What was ordered for what begins now.
pub(super) fn at(opening: &MachineOpening, word: &TaskEvent) -> Option<ProcessEnd> {
    let TaskEvent::Now { case, doing } = word else { return None };
    let again = opening.overhead == TimerScope::Known;
    opening.inject.iter().find_map(|inject| match inject {
        WorkerFault::At { what, doing: when, first, text }
            if when == doing && !(*first && again) && case.to_string().contains(text) =>
        {
            Some(*what)
        }
        _ => None,
    })
}
