//! A run from first to last journal line: plan, journal, resume, time limit, and the handling of
//! lost workers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use pathline_hal::CallError;
use pathline_schema::{
    Case, CaseOutcome, FaultedCase, GpuFacts, Journal, JournalRecord, RunBegin, RunEnd, RunNote,
    RunSettings, SCHEMA_VERSION, SampledCase, Severity, SkippedCase, Topology, Unit, VerifyResult,
    WorldKind,
};

use crate::chooser::{CaseChooser, RunSoFar};
use crate::device_failures::DeviceFailures;
use crate::executor::{Executor, LossCause, MachineInfo, TaskEnd, WorkerLoss};
use crate::journal_file::{JournalFile, JournalFileError};
use crate::library_failures::LibraryFailures;
use crate::needs::needs_runtime;
use crate::outlier_case::{OutlierCase, OutlierKind};
use crate::outlier_search::OutlierSearch;
use crate::plan::{PlannedCase, RunPlan};
use crate::rank_mismatch;
use crate::result_warnings;
use crate::suites::PROBE_BUDGET;
use crate::task::{CaseTask, InterruptCheck, TaskEvent};

/// Why a run could not be written or resumed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The journal cannot be opened or read.
    #[error(transparent)]
    File(#[from] JournalFileError),
    /// The journal cannot be written.
    #[error("{}: {source}; choose another place with --out", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The journal to resume is of another machine.
    #[error("{}: was measured on {there}, and this is {here}; figures of two machines do not belong into one journal", path.display())]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// World and host of the journal.
        there: String,
        /// World and host of this run.
        here: String,
    },
    /// The same host has other GPUs, or in another order.
    #[error("{}: its GPUs were {there}, and now they are {here}: figures would be written down for the wrong ones; set the variables that choose GPUs as they were (`env` in the first line of the journal)", path.display())]
    OtherGpus {
        /// The file.
        path: PathBuf,
        /// PCI addresses of the journal's, in order.
        there: String,
        /// PCI addresses of this run's, in order.
        here: String,
    },
}

/// An event of a run, for its display.
#[derive(Debug, Clone, Copy)]
pub enum RunEvent<'a> {
    /// A case has its outcome.
    Outcome {
        /// The outcome.
        outcome: &'a CaseOutcome,
        /// Cases that have one, of this plan.
        done: usize,
        /// Cases of this plan.
        total: usize,
    },
    /// A line other than an outcome was written.
    Message(&'a JournalRecord),
}

/// An open journal with its earlier records.
pub struct JournalSession {
    file: JournalFile,
    done: BTreeSet<Case>,
    /// Outcomes of these.
    earlier: Vec<CaseOutcome>,
    chooser: Option<Box<dyn CaseChooser>>,
    carried: BTreeMap<Case, SampledCase>,
    /// Whether the journal already has the topology of the machine.
    has_topology: bool,
    /// Whether an earlier part of the run reached its end.
    is_complete: bool,
    /// Notes to write before the first case.
    notes: Vec<RunNote>,
}

/// Facts of a run for its journal, in addition to plan and machine.
#[derive(Debug, Clone, Default)]
pub struct RunHeader {
    /// Name of this host.
    pub host: String,
    /// Version of pathline.
    pub version: String,
    /// The process that writes the journal.
    pub pid: u32,
    /// Number of the repeat of the run; 0 is the first.
    pub repeat: u32,
    /// The command line.
    pub command: Vec<String>,
    /// SHA-256 of the description of a simulated machine.
    pub machine_sha256: Option<String>,
    /// Environment variables that are set.
    pub env: BTreeMap<String, String>,
    /// Settings of the engine.
    pub settings: RunSettings,
}

impl JournalSession {
    /// Starts a new journal at `path`.
    ///
    /// # Errors
    /// The name exists already, or the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, SessionError> {
        Ok(Self {
            file: JournalFile::create(path)?,
            done: BTreeSet::new(),
            earlier: Vec::new(),
            chooser: None,
            carried: BTreeMap::new(),
            has_topology: false,
            is_complete: false,
            notes: Vec::new(),
        })
    }

    /// Continues a journal from [`JournalFile::open`]: cases that have an outcome in this repeat of
    /// the run (0 is the first) are not measured again, samples of a case in flight are kept, and a
    /// torn last line is cut off.
    ///
    /// # Errors
    /// It belongs to another machine or other GPUs of it, or has changed since it was read.
    pub fn resume(
        mut file: JournalFile,
        journal: Journal,
        about: &MachineInfo,
        host: &str,
        repeat: u32,
    ) -> Result<Self, SessionError> {
        let (path, world) = (file.path(), &about.world);
        let same_host = journal.begin.host == host || *world != WorldKind::Real;
        if journal.begin.world != *world || !same_host {
            let name = |world: &WorldKind, host: &str| match world {
                WorldKind::Real => format!("host {host}"),
                WorldKind::Simulated(name) => format!("simulated machine {name}"),
            };
            return Err(SessionError::OtherMachine {
                path: path.to_owned(),
                there: name(&journal.begin.world, &journal.begin.host),
                here: name(world, host),
            });
        }
        let (there, here) = (addresses(&journal.topology), addresses(&about.topology));
        if about.without.is_none() && !there.is_empty() && there != here {
            let path = path.to_owned();
            let list = |gpus: &[(u32, &str)]| {
                gpus.iter().map(|(index, pci)| format!("gpu{index} {pci}")).collect::<Vec<_>>()
            };
            let (there, here) = (list(&there).join(", "), list(&here).join(", "));
            return Err(SessionError::OtherGpus { path, there, here });
        }
        file.cut(journal.whole_bytes).map_err(|e| at(file.path(), e))?;
        let (outcomes, partial) = journal.repeat(repeat);
        Ok(Self {
            file,
            done: outcomes.iter().map(|o| o.case().clone()).collect(),
            earlier: outcomes.to_vec(),
            chooser: None,
            carried: partial.iter().map(|s| (s.case.clone(), s.clone())).collect(),
            has_topology: journal.topology != Topology::default(),
            is_complete: journal.is_complete(),
            notes: Vec::new(),
        })
    }

    /// Adds a note to write before the first case.
    pub fn with_note(mut self, note: Option<RunNote>) -> Self {
        self.notes.extend(note);
        self
    }

    /// Lets `chooser` choose the cases of the plan, from the results of those before.
    pub fn with_chooser(mut self, chooser: Option<Box<dyn CaseChooser>>) -> Self {
        self.chooser = chooser;
        self
    }

    /// The path of the journal.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Why no lock keeps other runs off the journal, where the file system has no locks.
    pub fn unlocked(&self) -> Option<&io::Error> {
        self.file.unlocked()
    }

    /// Whether the run came to its end earlier, and every case of the plan has an outcome.
    pub fn has_nothing_left(&self, plan: &RunPlan) -> bool {
        self.is_complete && plan.entries.iter().all(|entry| self.done.contains(&entry.case))
    }

    /// Cases that already have an outcome.
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// Runs a plan to its end, or until `interrupt` gives a reason to stop. Every line is on disk
    /// before the next case begins. `now` gives RFC 3339 time in UTC.
    ///
    /// # Errors
    /// The journal cannot be written. A case's failure is its outcome, not an error.
    pub fn run(
        mut self,
        executor: &mut dyn Executor,
        plan: &RunPlan,
        header: RunHeader,
        now: &dyn Fn() -> String,
        interrupt: InterruptCheck<'_>,
        show: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<RunEnd, SessionError> {
        let begun = executor.now();
        let MachineInfo { world, topology, overhead_ns, gpus, ranks, stores, notes, .. } =
            executor.about().clone();
        let begin = RunBegin {
            schema: SCHEMA_VERSION,
            version: header.version,
            world,
            host: header.host,
            pid: Some(header.pid),
            repeat: header.repeat,
            started: now(),
            command: header.command,
            machine_sha256: header.machine_sha256,
            env: header.env,
            settings: header.settings,
            overhead_ns: overhead_ns.clone(),
            gpus: gpus.clone(),
            ranks,
            stores,
        };
        let ranks = &begin.ranks;
        let of_ranks = [rank_mismatch::unlike_gpus(ranks), rank_mismatch::shared_gpus(ranks)];
        let path = self.file.path().to_owned();
        let todo: Vec<&PlannedCase> =
            plan.entries.iter().filter(|e| !self.done.contains(&e.case)).collect();
        let total = plan.entries.len();
        let written = plan.entries.len() - todo.len();
        let mut run = ActiveRun {
            executor,
            interrupt,
            writer: JournalWriter {
                file: &mut self.file,
                show,
                total,
                done: written,
                again: false,
            },
            without: None,
            gone: None,
            overhead_ns,
            gpus,
            carried: std::mem::take(&mut self.carried),
            finished: BTreeSet::new(),
            retried: BTreeSet::new(),
            failures: DeviceFailures::new(&begin.ranks, &topology),
            libraries: LibraryFailures::default(),
            results: OutlierSearch::new(&topology, header.settings.precision),
            outcomes: self.chooser.is_some().then_some(std::mem::take(&mut self.earlier)),
        };
        let mut all = || -> io::Result<RunEnd> {
            run.writer.put(JournalRecord::Begin(Box::new(begin.clone())))?;
            if !self.has_topology {
                run.writer.put(JournalRecord::Topology(Box::new(topology.clone())))?;
                for note in of_ranks.iter().flatten() {
                    run.writer.put(JournalRecord::Note(note.clone()))?;
                }
            }
            for note in notes.iter().chain(&self.notes) {
                run.writer.put(JournalRecord::Note(note.clone()))?;
            }
            // Before the first case, so that the journal of an interrupted run lists the skipped
            // cases too.
            for entry in &todo {
                run.skip(entry)?;
            }
            let todo: Vec<&PlannedCase> =
                todo.iter().copied().filter(|e| e.skip.is_none()).collect();
            let is_whole = match self.chooser.as_mut() {
                Some(chooser) => run.chosen(chooser.as_mut(), todo.clone(), &begin, &topology)?,
                None => {
                    run.groups(&todo)?;
                    true
                }
            };
            if begin.ranks.is_empty() {
                run.measure_outliers(&todo)?;
            }
            let complete = is_whole && run.writer.done == run.writer.total;
            let why = interrupt().filter(|_| !complete);
            let elapsed = run.executor.now() - begun;
            let mut missing = BTreeMap::new();
            for entry in todo.iter().filter(|entry| !run.finished.contains(&entry.case)) {
                let suite = entry.suites.first().map_or("no suite", String::as_str);
                *missing.entry(suite.to_owned()).or_default() += 1;
            }
            let end = RunEnd { ended: now(), elapsed, complete, why, missing };
            run.writer.put(JournalRecord::End(end.clone()))?;
            Ok(end)
        };
        all().map_err(|e| at(&path, e))
    }
}

/// Number and PCI address of each GPU.
fn addresses(topology: &Topology) -> Vec<(u32, &str)> {
    topology.gpus.iter().map(|gpu| (gpu.index, gpu.pci.as_str())).collect()
}

fn at(path: &Path, source: io::Error) -> SessionError {
    SessionError::Io { path: path.to_owned(), source }
}

/// A run in progress.
struct ActiveRun<'a, 's> {
    executor: &'a mut dyn Executor,
    interrupt: InterruptCheck<'a>,
    writer: JournalWriter<'a, 's>,
    /// Why GPUs cannot be measured any more, although they could when the plan was made.
    without: Option<String>,
    /// Why no case can be measured any more.
    gone: Option<String>,
    overhead_ns: BTreeMap<String, f64>,
    /// Facts about each GPU.
    gpus: BTreeMap<Unit, GpuFacts>,
    /// Samples of cases without an outcome.
    carried: BTreeMap<Case, SampledCase>,
    finished: BTreeSet<Case>,
    /// Cases in flight when the coordinator of the ranks failed, which were started again.
    retried: BTreeSet<Case>,
    failures: DeviceFailures,
    libraries: LibraryFailures,
    /// Times of cases, to find outliers among peers.
    results: OutlierSearch,
    /// Measured cases, if the next ones depend on them.
    outcomes: Option<Vec<CaseOutcome>>,
}

impl ActiveRun<'_, '_> {
    /// Writes the outcome of a case that the plan skips.
    fn skip(&mut self, entry: &PlannedCase) -> io::Result<()> {
        let PlannedCase { case, suites, skip, .. } = entry.clone();
        let skip = skip.map(|why| JournalRecord::Skipped(SkippedCase { case, suites, why }));
        skip.map_or(Ok(()), |skip| self.writer.put(skip))
    }

    /// Measures cases group by group, until an interrupt.
    fn groups(&mut self, entries: &[&PlannedCase]) -> io::Result<()> {
        for group in entries.chunk_by(|a, b| a.group == b.group) {
            if (self.interrupt)().is_some() {
                break;
            }
            self.group(group)?;
        }
        Ok(())
    }

    /// Measures what `chooser` chooses of some cases. Whether it came to its end.
    fn chosen(
        &mut self,
        chooser: &mut dyn CaseChooser,
        mut left: Vec<&PlannedCase>,
        begin: &RunBegin,
        topology: &Topology,
    ) -> io::Result<bool> {
        while (self.interrupt)().is_none() {
            let cases: Vec<Case> = left.iter().map(|entry| entry.case.clone()).collect();
            let outcomes = self.outcomes.as_deref().unwrap_or_default();
            let batch = chooser.choose(&RunSoFar { begin, topology, outcomes }, &cases);
            let mut notes = vec![("run".to_owned(), batch.because)];
            let mut is_chosen = vec![false; left.len()];
            for (nth, reason) in batch.cases {
                if let (Some(chosen), Some(case)) = (is_chosen.get_mut(nth), cases.get(nth)) {
                    *chosen = true;
                    notes.push((case.to_string(), reason));
                }
            }
            for (subject, text) in notes.into_iter().filter(|(_, text)| !text.is_empty()) {
                let code = RunNote::CHOSEN.to_owned();
                self.writer.put(JournalRecord::Note(RunNote { code, subject, text }))?;
            }
            let of = |wanted: bool| -> Vec<&PlannedCase> {
                let entries = left.iter().zip(&is_chosen).filter(|(_, chosen)| **chosen == wanted);
                entries.map(|(entry, _)| *entry).collect()
            };
            let (next, rest) = (of(true), of(false));
            self.writer.total = self.writer.done + next.len();
            self.groups(&next)?;
            if batch.is_last || next.is_empty() {
                return Ok(true);
            }
            left = rest;
        }
        Ok(false)
    }

    /// Measures a group of cases, with a new worker after each loss.
    fn group(&mut self, group: &[&PlannedCase]) -> io::Result<()> {
        let mut left: Vec<PlannedCase> = group.iter().map(|&entry| entry.clone()).collect();
        loop {
            left = self.usable(left)?;
            if left.is_empty() || (self.interrupt)().is_some() {
                return Ok(());
            }
            let carried = left.iter().filter_map(|e| self.carried.get(&e.case).cloned()).collect();
            let task = CaseTask { entries: left.clone(), carried };
            let ended = self.measure(&task)?;
            left.retain(|entry| !self.finished.contains(&entry.case));
            match ended {
                TaskEnd::Done => return Ok(()),
                TaskEnd::Lost(loss) => self.lost(loss, &mut left)?,
                TaskEnd::Gone(why) => self.gone = Some(why),
            }
        }
    }

    /// Measures outliers among peers and next sizes again, in a new process. The later figure counts; a note
    /// keeps the first.
    fn measure_outliers(&mut self, plan: &[&PlannedCase]) -> io::Result<()> {
        let outliers = self.results.outliers();
        let entry = |outlier: &OutlierCase| plan.iter().find(|e| e.case == outlier.case);
        let entries: Vec<&PlannedCase> = outliers.iter().filter_map(entry).copied().collect();
        if entries.is_empty() || (self.interrupt)().is_some() || !self.executor.restart() {
            return Ok(());
        }
        self.writer.again = true;
        // A task has one environment.
        for group in entries.chunk_by(|a, b| a.env == b.env) {
            let left = self.usable(group.iter().map(|&entry| entry.clone()).collect())?;
            left.iter().for_each(|entry| self.results.forget(&entry.case));
            let task = CaseTask { entries: left.clone(), carried: Vec::new() };
            match self.measure(&task)? {
                TaskEnd::Done => (),
                TaskEnd::Lost(loss) => self.lost(loss, &mut left.clone())?,
                TaskEnd::Gone(why) => self.gone = Some(why),
            }
        }
        for first in outliers {
            // `None` if it failed, or the run was interrupted before it.
            let Some(again) = self.results.median(&first.case).map(|ns| ns / 1e3) else { continue };
            let (code, outcome) = match self.results.is_outlier(&first) {
                true if first.kind == OutlierKind::Disturbed => {
                    (first.kind.code(), "with as much load")
                }
                true => (first.kind.code(), "so it is no state of one process"),
                false => (RunNote::REMEASURED, "which is what its figure now shows"),
            };
            self.writer.put(JournalRecord::Note(RunNote {
                code: code.to_owned(),
                subject: first.case.to_string(),
                text: format!("{}; in a new process {again:.4} us, {outcome}", first.claim),
            }))?;
        }
        Ok(())
    }

    /// Writes the outcome of cases that cannot be measured any more; returns the others.
    fn usable(&mut self, entries: Vec<PlannedCase>) -> io::Result<Vec<PlannedCase>> {
        if entries.is_empty() {
            return Ok(entries);
        }
        let mut usable = Vec::new();
        for entry in entries {
            let error = if let Some(why) = &self.gone {
                CallError::new(Severity::Sticky, "start", "a worker process", why.as_str())
            } else if let Some(why) = self.without.as_ref().filter(|_| needs_runtime(&entry.case)) {
                CallError::new(Severity::Sticky, "open", "the GPU runtime", why.as_str())
                    .or_try("the run went on without GPUs; see `pathline doctor`")
            } else if let Some((unit, why)) = self.failures.retired(&entry.case) {
                CallError::new(Severity::Sticky, "use", unit, why).or_try(FaultedCase::RETIRED_UNIT)
            } else if let Some((operation, why)) = self.libraries.retired(&entry.case) {
                CallError::new(Severity::Sticky, "use", operation, why)
                    .or_try(FaultedCase::RETIRED_LIBRARY)
            } else {
                usable.push(entry);
                continue;
            };
            self.fault(&entry, error.to_string(), Severity::Sticky)?;
        }
        Ok(usable)
    }

    fn measure(&mut self, task: &CaseTask) -> io::Result<TaskEnd> {
        let Self { executor, writer, carried, finished, results, outcomes, .. } = self;
        // In order: a fault after which no call worked, or a case that moved bytes after one.
        let mut after: Vec<Result<Case, FaultedCase>> = Vec::new();
        let failed_before = self.failures.has_errors();
        let before = executor.about().without.clone();
        let (env, overhead_ns, gpus) = (task.env(), &self.overhead_ns, &self.gpus);
        let mut sink = |event: TaskEvent| -> io::Result<()> {
            let TaskEvent::Record(message) = event else { return Ok(()) };
            if let JournalRecord::Sampled(visit) = &message
                && (failed_before || !after.is_empty())
            {
                after.push(Ok(visit.case.clone()));
            }
            match message {
                // The case has an outcome already, which counts if this measurement is interrupted.
                JournalRecord::Sampled(_) if writer.again => Ok(()),
                JournalRecord::Sampled(visit) => {
                    match carried.get_mut(&visit.case) {
                        Some(earlier) => earlier.add(visit.clone()),
                        None => drop(carried.insert(visit.case.clone(), visit.clone())),
                    }
                    writer.put(JournalRecord::Sampled(visit))
                }
                JournalRecord::Measured(mut measured) => {
                    finished.insert(measured.case.clone());
                    results.add(&measured);
                    if let Some(outcomes) = outcomes {
                        outcomes.push(CaseOutcome::Measured(measured.clone()));
                    }
                    measured.env.clone_from(&env);
                    for note in result_warnings::about(&measured, overhead_ns, gpus) {
                        writer.put(JournalRecord::Note(note))?;
                    }
                    writer.put(JournalRecord::Measured(measured))
                }
                JournalRecord::Skipped(skip) => {
                    finished.insert(skip.case.clone());
                    writer.put(JournalRecord::Skipped(skip))
                }
                JournalRecord::Faulted(fault) => {
                    finished.insert(fault.case.clone());
                    writer.put(JournalRecord::Faulted(fault.clone()))?;
                    if fault.severity == Severity::Sticky {
                        after.push(Err(fault));
                    }
                    Ok(())
                }
                other => writer.put(other),
            }
        };
        let ended = executor.measure(task, self.interrupt, &mut sink)?;
        for event in after {
            match event {
                Ok(case) => self.failures.note_work(&case),
                Err(fault) => {
                    if self.failures.is_between(&fault.case) {
                        let (copying, _) = self.copying(&fault)?;
                        self.failures.note_copies(&copying);
                    }
                    self.charge(&fault)?;
                }
            }
        }
        let after = &self.executor.about().without;
        if let (None, Some(why)) = (before, after) {
            let text = format!("the run goes on without GPUs: {why}");
            self.without = Some(why.clone());
            self.writer.put(JournalRecord::Note(RunNote {
                code: RunNote::WITHOUT_GPUS.to_owned(),
                subject: "run".to_owned(),
                text,
            }))?;
        }
        Ok(ended)
    }

    /// Handles a lost worker: the case in flight gets a fault, and its GPUs a failure. If the
    /// coordinator of the ranks failed, the case is started again, once, and no GPU is charged.
    fn lost(&mut self, loss: WorkerLoss, left: &mut Vec<PlannedCase>) -> io::Result<()> {
        let Some(at) = left.iter().position(|e| Some(&e.case) == loss.case.as_ref()) else {
            return Ok(());
        };
        if loss.cause == LossCause::Coordinator && self.retried.insert(left[at].case.clone()) {
            let text = format!("{} is started again: {}", left[at].case, loss.error);
            let (code, subject) = ("coordinator-failed".to_owned(), "run".to_owned());
            return self.writer.put(JournalRecord::Note(RunNote { code, subject, text }));
        }
        let entry = left.remove(at);
        let machine = loss.cause == LossCause::Machine;
        let severity = if machine { Severity::Sticky } else { Severity::Transient };
        let fault = self.fault(&entry, loss.error, severity)?;
        if machine {
            self.charge(&fault)?;
        }
        Ok(())
    }

    /// Charges an error after which no call worked: to the library's operation if the GPUs still
    /// copy, as they do after a process that died in a library that takes no device memory; else
    /// to the GPUs. Writes what it retires.
    fn charge(&mut self, fault: &FaultedCase) -> io::Result<()> {
        let is_library = LibraryFailures::concerns(&fault.case) && self.copying(fault)?.1;
        let (retired, text) = if is_library {
            let text =
                "failed for good twice while its GPUs still copied, and is not used any more";
            (self.libraries.count(&fault.case, &fault.error), text)
        } else {
            let text = "failed for good twice and is not used any more";
            (self.failures.count(&fault.case, &fault.error, &fault.ranks), text)
        };
        for (subject, first) in retired {
            self.writer.put(JournalRecord::Note(RunNote {
                code: "retired".to_owned(),
                subject,
                text: format!("{text}; first: {first}"),
            }))?;
        }
        Ok(())
    }

    /// Copies of 1 MiB out of and into GPUs to which an error is charged, with every byte compared, in a process other
    /// than the one that failed; and whether all of these GPUs make both.
    fn copying(&mut self, fault: &FaultedCase) -> io::Result<(Vec<Case>, bool)> {
        let Some(copies) = self.failures.copies(&fault.case, &fault.ranks) else {
            return Ok((Vec::new(), false));
        };
        let wanted = copies.len();
        let entry = |case| PlannedCase { budget: Some(PROBE_BUDGET), ..PlannedCase::new(case) };
        let entries = copies.into_iter().map(entry).collect();
        let mut verified = Vec::new();
        let mut sink = |event: TaskEvent| -> io::Result<()> {
            if let TaskEvent::Record(JournalRecord::Measured(copy)) = event {
                verified.extend((copy.verdict == VerifyResult::Verified).then_some(copy.case));
            }
            Ok(())
        };
        let task = CaseTask { entries, carried: Vec::new() };
        let ended = self.executor.measure(&task, self.interrupt, &mut sink)?;
        if let TaskEnd::Gone(why) = ended {
            self.gone = Some(why);
        }
        let all = verified.len() == wanted;
        Ok((verified, all))
    }

    fn fault(
        &mut self,
        entry: &PlannedCase,
        error: String,
        severity: Severity,
    ) -> io::Result<FaultedCase> {
        let PlannedCase { case, suites, .. } = entry.clone();
        self.finished.insert(case.clone());
        let fault = FaultedCase { case, suites, error, severity, ranks: Vec::new() };
        self.writer.put(JournalRecord::Faulted(fault.clone()))?;
        Ok(fault)
    }
}

/// Writes one line at a time and passes it to the observer.
struct JournalWriter<'a, 's> {
    file: &'a mut JournalFile,
    show: &'a mut (dyn FnMut(RunEvent<'_>) + 's),
    total: usize,
    done: usize,
    /// Whether cases that have an outcome are measured again.
    again: bool,
}

impl JournalWriter<'_, '_> {
    fn put(&mut self, message: JournalRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        self.file.append(&line)?;
        let outcome = match message {
            JournalRecord::Measured(measured) => CaseOutcome::Measured(measured),
            JournalRecord::Skipped(skip) => CaseOutcome::Skipped(skip),
            JournalRecord::Faulted(fault) => CaseOutcome::Faulted(fault),
            other => {
                (self.show)(RunEvent::Message(&other));
                return Ok(());
            }
        };
        if !self.again {
            self.done += 1;
        }
        (self.show)(RunEvent::Outcome { outcome: &outcome, done: self.done, total: self.total });
        Ok(())
    }
}
