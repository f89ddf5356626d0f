//! A case that differs from all its peers, or from the next sizes, is measured again in a new process.

use std::fs;
use std::io::{self, BufReader};

use pathline_bench::{
    CaseTask, EventSink, Executor, InterruptCheck, JournalSession, LocalExecutor, MachineInfo,
    RunHeader, RunPlan, TaskEnd, TaskEvent, TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_schema::{
    Bytes, CaseOutcome, FaultedCase, Journal, JournalRecord, MeasuredCase, Ns, RunNote, Severity,
};
use tempfile::TempDir;

/// What the second process makes of slow cases.
#[derive(Clone, Copy, PartialEq)]
enum SecondProcess {
    /// It measures what they are.
    IsRight,
    /// They are as slow.
    IsSlow,
    /// They fail.
    Fails,
}

/// An executor whose first process measures some cases too slow.
struct SlowProcess<'m> {
    here: LocalExecutor<'m>,
    /// A part of the text of slow cases, and the factor of their times.
    slow: (&'static str, f64),
    is_first: bool,
    second: SecondProcess,
    tasks: Vec<usize>,
}

impl Executor for SlowProcess<'_> {
    fn about(&self) -> &MachineInfo {
        self.here.about()
    }
    fn now(&self) -> Ns {
        self.here.now()
    }
    fn restart(&mut self) -> bool {
        self.is_first = false;
        true
    }
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        self.tasks.push(task.entries.len());
        let second = self.second;
        let is_slow = self.is_first || second == SecondProcess::IsSlow;
        let fails = !self.is_first && second == SecondProcess::Fails;
        let (text, factor) = self.slow;
        self.here.measure(task, interrupt, &mut |event| match event {
            TaskEvent::Record(JournalRecord::Measured(measured)) if fails => {
                let (severity, error) = (Severity::Transient, "copy: it failed".to_owned());
                let (MeasuredCase { case, suites, .. }, ranks) = (*measured, Vec::new());
                let fault = FaultedCase { case, suites, error, severity, ranks };
                sink(TaskEvent::Record(JournalRecord::Faulted(fault)))
            }
            TaskEvent::Record(JournalRecord::Measured(mut measured)) => {
                if is_slow && measured.case.to_string().contains(text) {
                    let samples = measured.series.iter_mut().flat_map(|s| &mut s.samples_ns);
                    samples.for_each(|ns| *ns *= factor);
                }
                sink(TaskEvent::Record(JournalRecord::Measured(measured)))
            }
            other => sink(other),
        })
    }
}

/// Copies from the host to each GPU of a node, GPU 0 slower by a tenth; sizes of the tasks, and the
/// journal.
fn run(second: SecondProcess) -> (Vec<usize>, Journal) {
    let cases = (0..8).map(|gpu| (gpu, "16MiB")).collect::<Vec<_>>();
    run_cases(&cases, ("gpu0.", 1.1), second)
}

/// Copies from the host to GPUs, by GPU and size.
fn run_cases(
    cases: &[(u32, &str)],
    slow: (&'static str, f64),
    second: SecondProcess,
) -> (Vec<usize>, Journal) {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let text = |(gpu, size): &(u32, &str)| {
        let numa = machine.topology.gpus[*gpu as usize].numa.unwrap();
        format!("numa{numa}.pinned > gpu{gpu}.vram by dma@gpu{gpu} x {size}")
    };
    let cases: Vec<_> = cases.iter().map(|case| text(case).parse().unwrap()).collect();
    let memory = Bytes::gib(64);
    let plan = RunPlan::new(&about.scope(memory), &[], &cases).unwrap();
    let settings = default_settings(memory);
    let here = LocalExecutor::new(&machine, about, settings);
    let mut executor = SlowProcess { here, slow, is_first: true, second, tasks: Vec::new() };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let header = RunHeader { host: "test".to_owned(), settings, ..RunHeader::default() };
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap();
    let end = session.run(&mut executor, &plan, header, &now, &|| None, &mut |_| {}).unwrap();
    assert!(end.complete);
    // Samples of a case that has an outcome would count once more where the run is resumed.
    let mut done = Vec::new();
    for line in fs::read_to_string(&path).unwrap().lines() {
        match serde_json::from_str(line).unwrap() {
            JournalRecord::Sampled(visit) => assert!(!done.contains(&visit.case), "{line}"),
            JournalRecord::Measured(measured) => done.push(measured.case),
            _ => (),
        }
    }
    let journal = Journal::read(BufReader::new(fs::File::open(&path).unwrap())).unwrap();
    assert_eq!((journal.outcomes.len(), journal.partial.len()), (cases.len(), 0));
    (executor.tasks, journal)
}

/// Time of a GPU's copy, ns.
fn time(journal: &Journal, gpu: &str) -> f64 {
    let outcome = journal.outcomes.iter().find(|o| o.case().to_string().contains(gpu)).unwrap();
    let CaseOutcome::Measured(measured) = outcome else { panic!("{outcome:?}") };
    measured.series[0].samples_ns[0] / measured.series[0].reps as f64
}

/// Time of GPU 0's copy over that of GPU 1's.
fn ratio(journal: &Journal) -> f64 {
    time(journal, "gpu0.") / time(journal, "gpu1.")
}

fn notes(journal: &Journal) -> Vec<&RunNote> {
    let codes = [RunNote::REMEASURED, RunNote::UNLIKE_EQUALS, RunNote::UNLIKE_NEIGHBOURS];
    journal.notes.iter().filter(|note| codes.contains(&note.code.as_str())).collect()
}

#[test]
fn a_state_of_the_first_process_does_not_become_the_figure() {
    let (tasks, journal) = run(SecondProcess::IsRight);
    assert_eq!((tasks.iter().sum::<usize>(), tasks.last()), (9, Some(&1)), "{tasks:?}");
    // Spread of a simulated copy is 0.2 %, at most three times that.
    assert!((ratio(&journal) - 1.0).abs() < 0.015, "{}", ratio(&journal));
    let notes = notes(&journal);
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].code, RunNote::REMEASURED);
    // The links of eight GPUs are two classes of four: the mesh between them has no more symmetries.
    assert!(notes[0].text.contains("3 cases that differ only in the units"), "{}", notes[0].text);
    // The note has the figure, in us.
    let again = notes[0].text.split("in a new process ").nth(1).unwrap().split(' ').next().unwrap();
    let figure = time(&journal, "gpu0.") / 1e3;
    assert!((again.parse::<f64>().unwrap() / figure - 1.0).abs() < 0.015, "{again}, not {figure}");
}

#[test]
fn an_outlier_in_two_processes_stays_and_is_named() {
    let (tasks, journal) = run(SecondProcess::IsSlow);
    assert_eq!((tasks.iter().sum::<usize>(), tasks.last()), (9, Some(&1)), "{tasks:?}");
    assert!((ratio(&journal) - 1.1).abs() < 0.015, "{}", ratio(&journal));
    assert_eq!(notes(&journal)[0].code, RunNote::UNLIKE_EQUALS);
}

/// A case that fails in the second process has no second figure: no note says that it has one.
#[test]
fn an_outlier_that_fails_in_a_new_process_was_not_measured_again() {
    let (tasks, journal) = run(SecondProcess::Fails);
    assert_eq!((tasks.iter().sum::<usize>(), tasks.last()), (9, Some(&1)), "{tasks:?}");
    let is_fault = |outcome: &&CaseOutcome| matches!(outcome, CaseOutcome::Faulted(_));
    assert_eq!(journal.outcomes.iter().filter(is_fault).count(), 1);
    assert_eq!(notes(&journal), [] as [&RunNote; 0]);
}

/// At 28 GB/s 16 MiB take 0.6 ms. With half as long again their rate is a third below the next ones.
#[test]
fn a_size_that_disagrees_with_the_next_ones_is_measured_again() {
    let sweep = ["4MiB", "16MiB", "64MiB"].map(|size| (0, size));
    for (second, code) in [
        (SecondProcess::IsRight, RunNote::REMEASURED),
        (SecondProcess::IsSlow, RunNote::UNLIKE_NEIGHBOURS),
    ] {
        let (tasks, journal) = run_cases(&sweep, ("x 16MiB", 1.5), second);
        assert_eq!((tasks.iter().sum::<usize>(), tasks.last()), (4, Some(&1)), "{tasks:?}");
        let notes = notes(&journal);
        assert_eq!(notes.len(), 1);
        assert_eq!(notes[0].code, code);
        assert!(notes[0].text.contains("where 4MiB and 64MiB at their rates"), "{}", notes[0].text);
        assert!(notes[0].subject.ends_with("x 16MiB"), "{}", notes[0].subject);
    }
}
