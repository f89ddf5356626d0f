//! What ended a case that has no figure: the node, or something that says nothing about it.

use std::collections::BTreeMap;

use pathline_schema::{Case, CaseOutcome, FaultedCase, Journal, Transport, WorldKind};

use crate::busy::busy_cases;

/// Where a cause can act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Any case.
    Any,
    /// Cases that an MPI library or UCX carries, which ends its process after an error.
    Library,
    /// A host whose CPUs other programs used, or with more ranks than CPUs.
    BusyHost,
}

/// A cause, known by exact words. The first row that fits decides; what fits none is charged to the node.
struct EndCause {
    /// What this program wrote about the end; empty is anything.
    end: &'static [&'static str],
    /// What the process printed last, in words of the programs that print them; empty is anything.
    last_output: &'static [&'static str],
    scope: Scope,
    /// The cause as a clause, if it is not the node.
    outside: Option<&'static str>,
}

const SIGNAL: &[&str] = &["was ended by signal "];

const CAUSES: &[EndCause] = &[
    // The ROCm runtime (ROCR-Runtime, `VMFaultHandler`, `HwExceptionHandler`) and libraries over CUDA abort
    // after an error of the device.
    EndCause {
        end: SIGNAL,
        last_output: &[
            "Memory access fault by GPU",
            "HW Exception by GPU",
            "CUDA_ERROR_",
            "ECC error",
        ],
        scope: Scope::Any,
        outside: None,
    },
    // A driver call that SIGKILL does not end: the kernel waits for the device.
    EndCause {
        end: &["could not even be killed"],
        last_output: &[],
        scope: Scope::Any,
        outside: None,
    },
    EndCause {
        end: &["was ended by signal 9 ("],
        last_output: &[],
        scope: Scope::Any,
        outside: Some(
            "killed by SIGKILL, which people, job limits and the out-of-memory killer send",
        ),
    },
    EndCause {
        end: &["was ended by signal 1 (", "was ended by signal 2 (", "was ended by signal 15 ("],
        last_output: &[],
        scope: Scope::Any,
        outside: Some("ended by a signal that people, job limits and launchers send"),
    },
    // Shells and launchers report the end of a process by signal n as code 128 + n.
    EndCause {
        end: &[
            "ended with code 129",
            "ended with code 130",
            "ended with code 137",
            "ended with code 143",
        ],
        last_output: &[],
        scope: Scope::Any,
        outside: Some("ended by a signal that people, job limits and launchers send"),
    },
    // slurmstepd ("*** STEP 1.0 ON n1 CANCELLED AT ..."), Open MPI's and PRRTE's mpirun, Hydra.
    EndCause {
        end: &[],
        last_output: &[
            " CANCELLED AT ",
            "oom_kill event",
            "exited on signal 9 (",
            "exited on signal 15 (",
            "KILLED BY SIGNAL: 9 (",
            "KILLED BY SIGNAL: 15 (",
        ],
        scope: Scope::Any,
        outside: Some("ended by the launcher or the job's limits"),
    },
    EndCause {
        end: &["was ended by signal 6 (", "ended with code "],
        last_output: &[],
        scope: Scope::Library,
        outside: Some("aborted by the library that carries the messages"),
    },
    EndCause {
        end: &["the process that coordinates the ranks"],
        last_output: &[],
        scope: Scope::Any,
        outside: Some("lost to a fault of pathline itself"),
    },
    EndCause {
        end: &["did not answer for ", " and sent nothing for "],
        last_output: &[],
        scope: Scope::BusyHost,
        outside: Some("without an answer in time on a host whose CPUs were taken"),
    },
];

/// Between this program's words about an end and the last line that the process printed.
const OUTPUT_MARKS: [&str; 2] = ["; its last output was: ", "; it last said: "];

impl EndCause {
    fn fits(&self, fault: &FaultedCase, is_busy: &dyn Fn() -> bool) -> bool {
        let cut = OUTPUT_MARKS.iter().find_map(|mark| fault.error.split_once(mark));
        let (end, output) = cut.unwrap_or((&fault.error, ""));
        let has = |words: &[&str], text: &str| {
            words.is_empty() || words.iter().any(|word| text.contains(word))
        };
        has(self.end, end)
            && has(self.last_output, output)
            && match self.scope {
                Scope::Any => true,
                Scope::Library => is_of_library(&fault.case),
                Scope::BusyHost => is_busy(),
            }
    }
}

fn is_of_library(case: &Case) -> bool {
    let carrier =
        |transport| matches!(transport, Transport::Mpi | Transport::MpiStaged | Transport::Ucx);
    case.flows().filter_map(|flow| flow.by.wire()).any(|wire| carrier(wire.via))
}

/// Whether processes of a run may have waited for a CPU.
fn is_host_busy(journal: &Journal) -> bool {
    let cpus = journal.topology.host.allowed_cpus.len().max(1);
    let mut ranks: BTreeMap<&str, usize> = BTreeMap::new();
    for member in &journal.begin.ranks {
        *ranks.entry(&member.host).or_default() += 1;
    }
    let is_real = journal.begin.world == WorldKind::Real;
    is_real && (ranks.values().any(|&ranks| ranks > cpus) || busy_cases(journal).report.is_some())
}

/// How the cases of a run ended that have no figure because of an error.
#[derive(Debug, Default)]
pub struct CaseEnds<'a> {
    /// Ends that are charged to the node.
    pub of_node: Vec<&'a FaultedCase>,
    /// Cases that were not started, since their part had failed before.
    pub not_started: Vec<&'a FaultedCase>,
    /// Ends that say nothing about the node, with the cause as a clause.
    pub from_outside: Vec<(&'a FaultedCase, &'static str)>,
}

impl<'a> CaseEnds<'a> {
    /// Judges the ends of a run's cases, old runs' too: it needs the words of the journal alone.
    pub fn new(journal: &'a Journal) -> Self {
        let mut ends = Self::default();
        let is_busy = std::cell::OnceCell::new();
        let is_busy = || *is_busy.get_or_init(|| is_host_busy(journal));
        for outcome in &journal.outcomes {
            let CaseOutcome::Faulted(fault) = outcome else { continue };
            if !fault.was_started() {
                ends.not_started.push(fault);
                continue;
            }
            let cause = CAUSES.iter().find(|cause| cause.fits(fault, &is_busy));
            match cause.and_then(|cause| cause.outside) {
                Some(why) => ends.from_outside.push((fault, why)),
                None => ends.of_node.push(fault),
            }
        }
        ends
    }

    /// The most frequent cause from outside, and how many cases have another.
    pub fn main_cause(&self) -> Option<(&'static str, usize)> {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for (_, why) in &self.from_outside {
            *counts.entry(why).or_default() += 1;
        }
        let (why, most) = counts.into_iter().max_by_key(|&(_, count)| count)?;
        Some((why, self.from_outside.len() - most))
    }
}

#[cfg(test)]
mod tests {
    use pathline_schema::Severity;

    use super::*;

    const COPY: &str = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1MiB";
    const SEND: &str = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[send-w64] x 1B";

    fn fault(case: &str, error: &str) -> FaultedCase {
        let (case, error) = (case.parse().unwrap(), error.to_owned());
        FaultedCase {
            case,
            suites: Vec::new(),
            error,
            severity: Severity::Sticky,
            ranks: Vec::new(),
        }
    }

    fn is_of_node(case: &str, error: &str, is_busy: bool) -> bool {
        let fault = fault(case, error);
        let cause = CAUSES.iter().find(|cause| cause.fits(&fault, &|| is_busy));
        cause.and_then(|cause| cause.outside).is_none()
    }

    #[test]
    fn what_others_end_is_not_charged_to_the_node() {
        let worker = |how: &str| {
            format!("visit on the worker process: process 7 {how}; run this case alone")
        };
        let rank = |how: &str| {
            format!("run on rank 1 (pid 9): it {how}, /usr/bin/mpirun ended with code 6: ended")
        };
        for (case, error, busy, of_node) in [
            (COPY, worker("was ended by signal 9 (SIGKILL, which people send)"), false, false),
            (COPY, worker("was ended by signal 15 (SIGTERM)"), false, false),
            (COPY, worker("was ended by signal 2 (SIGINT)"), false, false),
            (COPY, worker("ended with code 137"), false, false),
            // What a process printed is no statement of this program.
            (COPY, worker("was ended by signal 11 (SIGSEGV); its last output was: was ended by signal 9 ("), false, true),
            (COPY, worker("was ended by signal 6 (SIGABRT)"), false, true),
            (SEND, rank("was ended by signal 6 (SIGABRT); it last said: free(): invalid next size (normal)"), false, false),
            (SEND, rank("was ended by signal 6 (SIGABRT); its last output was: Memory access fault by GPU node-4"), false, true),
            (SEND, rank("was ended by signal 11 (SIGSEGV)").replace(" ended with code 6", ""), false, true),
            (SEND, "run on rank 2: did not answer for 15 s".into(), false, true),
            (SEND, "run on rank 2: did not answer for 15 s".into(), true, false),
            (COPY, worker("hung: the step 'visit' went on and sent nothing for 60 s (--case-deadline), so it was killed"), true, false),
            (COPY, worker("hung: the step 'visit' went on and sent nothing for 60 s (--case-deadline), so it could not even be killed"), true, true),
            (COPY, "cuMemcpyAsync on gpu0: CUDA_ERROR_ECC_UNCORRECTABLE (214)".into(), true, true),
            (SEND, "run on rank 1: ended, mpirun ended with code 1; its last output was: slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***".into(), false, false),
        ] {
            assert_eq!(is_of_node(case, &error, busy), of_node, "{error}");
        }
    }
}
