//! A session whose worker is lost: which cases it costs.

// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufReader};

use pathline_bench::{
    CaseTask, EventSink, Executor, InterruptCheck, JournalSession, LocalExecutor, LossCause,
    MachineInfo, PlanScope, PlannedCase, RunHeader, RunPlan, TaskEnd, TaskEvent, TimerScope,
    WorkerLoss, default_settings,
};
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_schema::{Bytes, CaseOutcome, FaultedCase, Journal, JournalRecord, Ns, Severity};
use pathline_sim::SimOptions;
use tempfile::TempDir;

/// How a task ends.
enum End {
    /// Normally.
    Well,
    /// Lost after `measured` of its cases, with the next one in flight.
    LostAt { measured: usize, cause: LossCause },
    /// A wrong byte in each of its cases, which are given to the sink as failed.
    Wrong,
    /// Lost with no case in flight or measured.
    LostIdle,
    /// Lost for good.
    Gone,
}

/// An executor that is lost at given tasks.
struct Shaky<'m> {
    here: LocalExecutor<'m>,
    ends: VecDeque<End>,
    /// Numbers of cases of its tasks.
    tasks: Vec<usize>,
}

impl Executor for Shaky<'_> {
    fn about(&self) -> &MachineInfo {
        self.here.about()
    }
    fn now(&self) -> Ns {
        self.here.now()
    }
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        self.tasks.push(task.entries.len());
        let loss = |case, cause| {
            Ok(TaskEnd::Lost(WorkerLoss { case, error: "the process ended".to_owned(), cause }))
        };
        match self.ends.pop_front().unwrap_or(End::Well) {
            End::Well => self.here.measure(task, interrupt, sink),
            End::Wrong => {
                let fault = |entry: &PlannedCase| FaultedCase {
                    case: entry.case.clone(),
                    suites: Vec::new(),
                    error: "a wrong byte".to_owned(),
                    severity: Severity::Corrupt,
                    ranks: Vec::new(),
                };
                for entry in &task.entries {
                    sink(TaskEvent::Record(JournalRecord::Faulted(fault(entry))))?;
                }
                Ok(TaskEnd::Done)
            }
            End::LostIdle => loss(None, LossCause::Machine),
            End::Gone => Ok(TaskEnd::Gone("nobody can be started".to_owned())),
            End::LostAt { measured, cause } => {
                let part =
                    CaseTask { entries: task.entries[..measured].to_vec(), carried: Vec::new() };
                self.here.measure(&part, interrupt, sink)?;
                loss(Some(task.entries[measured].case.clone()), cause)
            }
        }
    }
}

/// Runs four cases of GPU 0 and one between 4 and 5 during another copy, in one group each; the tasks and the journal.
fn run(ends: Vec<End>) -> (Vec<usize>, Journal) {
    let cases = [
        "gpu0.vram > gpu1.vram by dma@gpu0 x 10MiB",
        "gpu0.vram > gpu2.vram by dma@gpu0 x 10MiB",
        "gpu0.vram > gpu3.vram by dma@gpu0 x 10MiB",
        "gpu0.vram > gpu6.vram by dma@gpu0 x 10MiB",
        "gpu4.vram > gpu5.vram by dma@gpu4 x 11MiB while gpu5.vram > gpu4.vram by dma@gpu5 x 11MiB",
    ];
    run_cases(0, &cases, ends)
}

/// Runs cases of a model with that many ranks, each group as one task.
fn run_cases(ranks: u32, cases: &[&str], ends: Vec<End>) -> (Vec<usize>, Journal) {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let options = SimOptions { ranks, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(&desc, RuntimeEnv::default(), &options).unwrap();
    let memory = Bytes::gib(64);
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let members = about.ranks.clone();
    let scope = PlanScope {
        simulated: true,
        tuned: &pathline_bench::KNOWN,
        ranks: &members,
        ..PlanScope::new(&machine.topology, memory)
    };
    let patterns: Vec<_> = cases.iter().map(|case| case.parse().unwrap()).collect();
    let plan = RunPlan::new(&scope, &[], &patterns).unwrap();
    assert!(plan.entries.iter().all(|entry| entry.skip.is_none()), "{:?}", plan.entries);
    if ranks == 0 {
        assert_eq!(plan.entries.iter().map(|e| e.group).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
    }
    let settings = default_settings(memory);
    let here = LocalExecutor::new(&machine, about, settings);
    let mut executor = Shaky { here, ends: ends.into(), tasks: Vec::new() };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let header = RunHeader { host: "test".to_owned(), settings, ..RunHeader::default() };
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap();
    session.run(&mut executor, &plan, header, &now, &|| None, &mut |_| {}).unwrap();
    let journal = Journal::read(BufReader::new(fs::File::open(&path).unwrap())).unwrap();
    assert_eq!(journal.outcomes.len(), cases.len());
    assert!(journal.end.as_ref().unwrap().complete);
    (executor.tasks, journal)
}

/// The outcome of each case, in the order of the plan: `m`easured, or `f`aulted.
fn fates(journal: &Journal) -> String {
    let mut fates: Vec<(String, char)> = journal
        .outcomes
        .iter()
        .map(|o| {
            (o.case().to_string(), if matches!(o, CaseOutcome::Measured(_)) { 'm' } else { 'f' })
        })
        .collect();
    fates.sort();
    fates.into_iter().map(|(_, fate)| fate).collect()
}

#[test]
fn a_lost_worker_costs_the_case_in_flight() {
    let (tasks, journal) = run(vec![End::LostAt { measured: 2, cause: LossCause::Machine }]);
    assert_eq!(fates(&journal), "mmfmm");
    // The first two have their outcome, the third is lost, one is left of the group.
    assert_eq!(tasks, [4, 1, 1]);
}

#[test]
fn the_second_loss_retires_the_gpu_and_others_go_on() {
    let lost = || End::LostAt { measured: 0, cause: LossCause::Machine };
    let (tasks, journal) = run(vec![lost(), lost()]);
    assert_eq!(fates(&journal), "ffffm");
    assert_eq!(tasks, [4, 3, 1], "the last two of GPU 0 are not even tried");
    assert!(journal.notes.iter().any(|n| n.code == "retired" && n.subject == "gpu0"));
}

#[test]
fn a_worker_ended_from_outside_has_no_failure() {
    let lost = || End::LostAt { measured: 0, cause: LossCause::Outside };
    let (_, journal) = run(vec![lost(), lost(), lost()]);
    assert_eq!(fates(&journal), "fffmm");
    let severity = |o: &CaseOutcome| match o {
        CaseOutcome::Faulted(fault) => Some(fault.severity),
        _ => None,
    };
    assert!(journal.outcomes.iter().filter_map(severity).all(|s| s == Severity::Transient));
}

#[test]
fn a_coordinator_that_is_lost_costs_its_case_a_second_attempt_and_no_gpu() {
    let lost = || End::LostAt { measured: 0, cause: LossCause::Coordinator };
    let notes = |journal: &Journal, code: &str| -> usize {
        journal.notes.iter().filter(|n| n.code == code).count()
    };
    // Lost once: the same four cases are started again, and all are measured.
    let (tasks, journal) = run(vec![lost()]);
    assert_eq!((fates(&journal).as_str(), tasks), ("mmmmm", vec![4, 4, 1]));
    assert_eq!((notes(&journal, "coordinator-failed"), notes(&journal, "retired")), (1, 0));
    // Lost at every attempt: four cases of GPU 0 fail after two attempts each, and one of another
    // group. GPU 0 is not charged, otherwise the last two would not have been tried.
    let (tasks, journal) = run((0..10).map(|_| lost()).collect());
    assert_eq!((fates(&journal).as_str(), tasks), ("fffff", vec![4, 4, 3, 3, 2, 2, 1, 1, 1, 1]));
    assert_eq!((notes(&journal, "coordinator-failed"), notes(&journal, "retired")), (5, 0));
    let transient =
        |o: &CaseOutcome| matches!(o, CaseOutcome::Faulted(f) if f.severity == Severity::Transient);
    assert!(journal.outcomes.iter().all(transient));
}

#[test]
fn a_loss_with_nothing_in_flight_costs_no_case() {
    let (tasks, journal) = run(vec![End::LostIdle, End::LostIdle]);
    assert_eq!(fates(&journal), "mmmmm");
    assert_eq!(tasks, [4, 4, 4, 1]);
}

#[test]
fn without_a_worker_every_case_has_the_reason() {
    let (tasks, journal) =
        run(vec![End::LostAt { measured: 1, cause: LossCause::Machine }, End::Gone]);
    assert_eq!(fates(&journal), "mffff");
    assert_eq!(tasks, [4, 2]);
    let CaseOutcome::Faulted(last) = &journal.outcomes[4] else { panic!("not faulted") };
    assert!(last.error.contains("nobody can be started"), "{}", last.error);
}

/// Three sizes of one operation and another one, by a library that kills a process in the first.
const MESSAGES: [&str; 4] = [
    "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[all_reduce] x 1MiB",
    "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[all_reduce] x 2MiB",
    "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[all_reduce] x 4MiB",
    "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[broadcast] x 1MiB",
];

fn retired(journal: &Journal) -> Vec<&str> {
    journal.notes.iter().filter(|n| n.code == "retired").map(|n| n.subject.as_str()).collect()
}

#[test]
fn a_library_that_kills_processes_loses_its_operation_while_the_gpus_copy() {
    let lost = || End::LostAt { measured: 0, cause: LossCause::Machine };
    // Broadcast comes first and ends well. After each loss a task copies out of and into both GPUs.
    let ends = vec![End::Well, lost(), End::Well, lost(), End::Well];
    let (tasks, journal) = run_cases(2, &MESSAGES, ends);
    assert_eq!(retired(&journal), ["all_reduce by mpi of vram memory"]);
    assert_eq!(fates(&journal), "fffm", "{tasks:?}");
    assert_eq!(tasks, [1, 1, 4, 1, 4], "the third size is not even tried");
    let third = journal.outcomes.iter().find(|o| o.case().to_string() == MESSAGES[2]).unwrap();
    let CaseOutcome::Faulted(fault) = third else { panic!("{third:?}") };
    assert!(fault.error.contains("while the GPU still copied"), "{}", fault.error);
    // The copies have no outcome of their own.
    assert_eq!(journal.outcomes.len(), MESSAGES.len());
}

#[test]
fn a_library_failure_is_charged_to_gpus_that_no_longer_copy() {
    let lost = || End::LostAt { measured: 0, cause: LossCause::Machine };
    let (tasks, journal) = run_cases(2, &MESSAGES, vec![lost(), End::Wrong, lost(), End::Wrong]);
    assert_eq!(retired(&journal), ["gpu0 with gpu1"]);
    assert_eq!(fates(&journal), "ffff", "{tasks:?}");
}
