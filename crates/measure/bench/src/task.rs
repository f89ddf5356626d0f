//! The data between a session and its executor: tasks in one direction, events in the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::io;

use pathline_schema::{Case, JournalRecord, SampledCase};
use serde::{Deserialize, Serialize};

use crate::plan::PlannedCase;
use crate::pool;

/// Returns why the run must end now, if so. Called between visits.
pub type InterruptCheck<'a> = &'a dyn Fn() -> Option<String>;

/// Cases to sample in turn: one group, or its remaining part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseTask {
    /// The cases. All need the same environment.
    pub entries: Vec<PlannedCase>,
    /// Samples that some of them already have.
    pub carried: Vec<SampledCase>,
}

impl CaseTask {
    /// Environment variables that the process must have been started with.
    pub fn env(&self) -> BTreeMap<String, String> {
        self.entries.first().map(|entry| entry.env.clone()).unwrap_or_default()
    }

    /// Its cases, in order; if the run may be cut, the soonest to start come first.
    pub(crate) fn waiting(&self, may_be_cut: bool) -> VecDeque<PlannedCase> {
        let mut entries = self.entries.clone();
        if may_be_cut {
            entries.sort_by_key(|entry| start_cost(&entry.case));
        }
        entries.into()
    }
}

/// A step of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskStep {
    /// Allocates and fills memory, compiles kernels, finds repetitions, warms up the case.
    Bind,
    /// A few samples.
    Visit,
    /// One more operation, and a comparison of every byte.
    Verify,
}

impl TaskStep {
    /// The step's name in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Visit => "visit",
            Self::Verify => "verify",
        }
    }
}

/// An event from an executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "one at a time is in transit, to a file or a pipe")]
pub enum TaskEvent {
    /// A step begins. The last one shows where a lost executor stopped.
    StepStarted {
        /// The case.
        case: Case,
        /// The step.
        step: TaskStep,
    },
    /// A line for the journal.
    Record(JournalRecord),
}

/// Receives events. Its error ends the work.
pub type EventSink<'t> = &'t mut dyn FnMut(TaskEvent) -> io::Result<()>;

/// What a case costs before its first sample: memory to fill, in bytes, and of equal ones fewer threads take
/// longer. Next to a last cache of 480 MiB a copy fills 4 GiB, a read 2 GiB.
fn start_cost(case: &Case) -> (u64, Reverse<u32>) {
    let bytes = pool::buffers(case).fold(0_u64, |sum, (_, bytes)| sum.saturating_add(bytes.0));
    let threads = case.timed.iter().map(|flow| flow.by.threads()).max().unwrap_or(0);
    (bytes, Reverse(threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker is started with what its cases need.
    #[test]
    fn a_task_has_the_environment_of_its_cases() {
        let env = BTreeMap::from([("HSA_XNACK".to_owned(), "1".to_owned())]);
        let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().expect("a case");
        let entry = PlannedCase { env: env.clone(), ..PlannedCase::new(case) };
        let of = |entries| CaseTask { entries, carried: Vec::new() }.env();
        assert_eq!((of(vec![entry]), of(Vec::new())), (env, BTreeMap::new()));
    }

    /// A read of 2 GiB fills one buffer, a copy two, and a triad three; of two reads the one of more threads
    /// comes first.
    #[test]
    fn a_run_that_may_be_cut_begins_with_what_starts_soonest() {
        let by = [
            "triad-avx512-t32",
            "copy-memcpy-t1",
            "copy-memcpy-t32",
            "read-avx512-t1",
            "read-avx512-t32",
        ];
        let entry = |by: &str| {
            let to = if by.starts_with("read") { "reg" } else { "huge" };
            let case = format!("numa0.huge > numa0.{to} by cpu@numa0[{by}] x 2GiB");
            PlannedCase::new(case.parse().expect("a case"))
        };
        let task = CaseTask { entries: by.map(entry).to_vec(), carried: Vec::new() };
        let names = |may_be_cut: bool| -> Vec<String> {
            task.waiting(may_be_cut).iter().map(|e| e.case.timed[0].by.to_string()).collect()
        };
        let wanted = [by[4], by[3], by[2], by[1], by[0]].map(|by| format!("cpu@numa0[{by}]"));
        assert_eq!(names(true), wanted);
        assert_eq!(names(false), by.map(|by| format!("cpu@numa0[{by}]")));
        let gib = |nth: usize| start_cost(&task.entries[nth].case).0 >> 30;
        assert_eq!([3, 1, 0].map(gib), [2, 4, 6]);
    }
}
