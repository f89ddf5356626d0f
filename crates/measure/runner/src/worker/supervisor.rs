//! The run's side: keeps a worker process at work, and watches it.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use pathline_bench::{
    CaseTask, EventSink, Executor, InterruptCheck, LossCause, MachineInfo, TaskEnd, TaskEvent,
    TaskStep, TimerScope, WorkerLoss, deadline,
};
use pathline_hal::CallError;
use pathline_schema::{Case, JournalRecord, Ns, RunSettings, Severity};

use crate::link::LinkRecv;
use crate::process::WorkerProcess;
use crate::protocol::{MachineOpening, RunRequest, WorkerOrder, WorkerReport};

/// To open a machine, or to give back what one group held, may take this long: a driver that wakes
/// eight GPUs takes half a minute, hundreds of gigabytes of pinned memory take seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// After a request to stop, the step at hand may take this long.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Losses in a row that cost no case, after which the machine is used without its GPUs.
const MAX_OWN_LOSSES: u32 = 2;
/// The same for processes that another process ends.
const MAX_FOREIGN_LOSSES: u32 = 100;

/// A start with settings on trial may take this multiple of the first one, and this time at least: a launcher
/// on a busy node takes seconds.
const START_FACTOR: u32 = 10;
const LEAST_START: Duration = Duration::from_secs(15);

/// Measures in a worker process, and starts a new one where one is lost.
#[derive(Debug)]
pub struct WorkerExecutor {
    starter: WorkerStarter,
    about: MachineInfo,
    settings: RunSettings,
    begun: Instant,
    process: Option<WorkerProcess>,
    /// What the first worker took to open the machine.
    first_start: Duration,
    /// Whether the environments of tasks are on trial.
    on_trial: bool,
}

/// Starts workers that open the machine.
#[derive(Debug)]
struct WorkerStarter {
    opening: MachineOpening,
    /// The GPUs that the first worker found: index and PCI address.
    gpus: Option<Vec<(u32, String)>>,
    idle: IdleLosses,
}

/// Why there is no worker.
#[derive(Debug)]
pub enum NoWorker {
    /// No process can be started here.
    Spawn(io::Error),
    /// It does not open the machine, even without GPUs.
    Open(String),
    /// The run is to end.
    Interrupted,
}

/// Losses in a row at which no case was in flight.
#[derive(Debug, Clone, Copy, Default)]
struct IdleLosses {
    /// By what the process did itself.
    own: u32,
    /// By others.
    ended: u32,
}

impl IdleLosses {
    fn count(&mut self, own: bool) {
        if own { self.own += 1 } else { self.ended += 1 }
    }
    fn is_too_many(self) -> bool {
        self.own >= MAX_OWN_LOSSES || self.ended >= MAX_FOREIGN_LOSSES
    }
}

/// Why a process is of no use any more.
struct ProcessFailure {
    text: String,
    own: bool,
}

/// Why a process has not opened the machine.
enum NotOpen {
    /// Another one may.
    Lost(ProcessFailure),
    /// None will.
    ForGood(NoWorker),
}

impl From<ProcessFailure> for NotOpen {
    fn from(failure: ProcessFailure) -> Self {
        Self::Lost(failure)
    }
}

impl WorkerStarter {
    /// A process that has opened the machine: as it is, else with its GPUs untouched until a case
    /// needs them, else without its GPUs.
    fn start(
        &mut self,
        env: &BTreeMap<String, String>,
        interrupt: InterruptCheck<'_>,
    ) -> Result<(WorkerProcess, MachineInfo), NoWorker> {
        loop {
            let process = WorkerProcess::start(&["worker"], env).map_err(NoWorker::Spawn)?;
            let failure = match self.try_open(process, interrupt) {
                Ok(opened) => return Ok(opened),
                Err(NotOpen::ForGood(why)) => return Err(why),
                Err(NotOpen::Lost(failure)) => failure,
            };
            if self.opening.overhead == TimerScope::All {
                self.opening.overhead = TimerScope::Host;
            }
            self.lost_idle(&failure).map_err(NoWorker::Open)?;
        }
    }

    /// A process that has opened the machine within a limit, at the first attempt.
    fn start_once(
        &mut self,
        env: &BTreeMap<String, String>,
        limit: Duration,
        interrupt: InterruptCheck<'_>,
    ) -> Result<(WorkerProcess, MachineInfo), NoWorker> {
        let process = WorkerProcess::start(&["worker"], env).map_err(NoWorker::Spawn)?;
        self.opening.start_limit = Some(limit);
        let opened = self.try_open(process, interrupt);
        self.opening.start_limit = None;
        opened.map_err(|why| match why {
            NotOpen::ForGood(why) => why,
            NotOpen::Lost(failure) => NoWorker::Open(failure.text),
        })
    }

    /// Counts a loss that took no case with it. After too many, GPUs are left alone; if that does
    /// not help, the error.
    fn lost_idle(&mut self, failure: &ProcessFailure) -> Result<(), String> {
        self.idle.count(failure.own);
        if !self.idle.is_too_many() {
            return Ok(());
        }
        let why = format!("worker processes fail one after another; the last one {}", failure.text);
        if self.opening.without.is_some() {
            return Err(why);
        }
        self.opening.without = Some(why);
        self.idle = IdleLosses::default();
        Ok(())
    }

    fn try_open(
        &mut self,
        mut process: WorkerProcess,
        interrupt: InterruptCheck<'_>,
    ) -> Result<(WorkerProcess, MachineInfo), NotOpen> {
        let mut begun = Instant::now();
        let limit = self.step_limit().unwrap_or(IDLE_TIMEOUT);
        if process.link.send(&WorkerOrder::Open(Box::new(self.opening.clone()))).is_err() {
            return Err(ended(process).into());
        }
        loop {
            let failure = match process.link.listen() {
                Ok(LinkRecv::Line(WorkerReport::Opened(about))) => {
                    return Ok(self.accept(process, *about)?);
                }
                Ok(LinkRecv::Line(WorkerReport::Retrying)) => {
                    begun = Instant::now();
                    continue;
                }
                Ok(LinkRecv::Line(WorkerReport::Incomplete(why))) => {
                    return Err(NotOpen::ForGood(NoWorker::Open(why)));
                }
                Ok(LinkRecv::Timeout) if interrupt().is_some() => {
                    process.kill();
                    return Err(NotOpen::ForGood(NoWorker::Interrupted));
                }
                Ok(LinkRecv::Timeout) if begun.elapsed() > limit => {
                    hung(process, "it opened the machine", limit)
                }
                Ok(LinkRecv::Timeout) if !process.has_ended() => continue,
                Ok(LinkRecv::Timeout | LinkRecv::End) => ended(process),
                Ok(LinkRecv::Line(_)) => garbled(process, "not the expected answer"),
                Err(error) => garbled(process, &error.to_string()),
            };
            return Err(failure.into());
        }
    }

    /// A machine whose GPUs have other numbers than before is another one: figures would be written
    /// down for the wrong GPU.
    fn accept(
        &mut self,
        process: WorkerProcess,
        about: MachineInfo,
    ) -> Result<(WorkerProcess, MachineInfo), ProcessFailure> {
        let found: Vec<(u32, String)> =
            about.topology.gpus.iter().map(|gpu| (gpu.index, gpu.pci.to_string())).collect();
        let first = self.gpus.get_or_insert_with(|| found.clone());
        if about.without.is_some() || found == *first {
            return Ok((process, about));
        }
        let list = |gpus: &[(u32, String)]| {
            gpus.iter().map(|(_, pci)| pci.as_str()).collect::<Vec<_>>().join(", ")
        };
        let text = format!("found other GPUs ({}) than before ({})", list(&found), list(first));
        Err(ProcessFailure { text, own: true })
    }

    /// Timeout of a step, if the user set one.
    fn step_limit(&self) -> Option<Duration> {
        self.opening.request.limit
    }
}

impl WorkerExecutor {
    /// Starts a worker that opens the machine.
    ///
    /// # Errors
    /// No process can be started, none opens the machine, or the run is to end.
    pub fn open(request: RunRequest, interrupt: InterruptCheck<'_>) -> Result<Self, NoWorker> {
        // Where ranks have the GPUs, the worker touches one only for a case that needs it.
        let overhead = if request.job.is_some() { TimerScope::Host } else { TimerScope::All };
        let (parent, without) = (std::process::id(), None);
        let start_limit = None;
        let opening = MachineOpening { parent, request, without, overhead, start_limit };
        let mut starter = WorkerStarter { opening, gpus: None, idle: IdleLosses::default() };
        let begun = Instant::now();
        let (process, about) = starter.start(&BTreeMap::new(), interrupt)?;
        let settings = starter.opening.request.settings_on(&about.topology);
        // A later worker finds less memory free, and measures with as much.
        starter.opening.request.memory = Some(settings.memory);
        starter.opening.overhead = TimerScope::Known;
        let (process, first_start, on_trial) = (Some(process), begun.elapsed(), false);
        Ok(Self { starter, about, settings, begun, process, first_start, on_trial })
    }

    /// The same for tasks whose environments are on trial. A job that does not start with one costs that
    /// task alone: it is not tried again, and says nothing of the machine. Ranks that do not come are given
    /// up after a multiple of what the first start took.
    #[must_use]
    pub fn for_trials(self) -> Self {
        Self { on_trial: true, ..self }
    }

    /// A process that was started for `env`; the reason if there is none.
    fn ready(
        &mut self,
        env: &BTreeMap<String, String>,
        interrupt: InterruptCheck<'_>,
    ) -> Result<WorkerProcess, NoWorker> {
        if let Some(process) = self.process.take().filter(|process| process.env == *env) {
            return Ok(process);
        }
        let (process, about) = match self.on_trial && !env.is_empty() {
            true => {
                let limit = self.first_start.saturating_mul(START_FACTOR).max(LEAST_START);
                self.starter.start_once(env, limit, interrupt)?
            }
            false => self.starter.start(env, interrupt)?,
        };
        self.about.without = about.without;
        Ok(process)
    }

    /// How long a step may take.
    fn limit(&self, case: &Case, step: TaskStep) -> Duration {
        self.starter.step_limit().unwrap_or_else(|| {
            let limit = deadline(case, step, &self.settings);
            Duration::try_from_secs_f64(limit.as_secs()).unwrap_or(Duration::MAX)
        })
    }

    /// How long a worker may be silent between steps.
    fn idle_limit(&self) -> Duration {
        self.starter.step_limit().unwrap_or(IDLE_TIMEOUT)
    }
}

impl Executor for WorkerExecutor {
    fn about(&self) -> &MachineInfo {
        &self.about
    }

    fn now(&self) -> Ns {
        Ns::secs(self.begun.elapsed().as_secs_f64())
    }

    fn restart(&mut self) -> bool {
        self.process = None;
        true
    }

    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        send: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        let had_gpus = self.about.without.is_none();
        let mut process = match self.ready(&task.env(), interrupt) {
            Ok(process) => process,
            Err(NoWorker::Interrupted) => return Ok(TaskEnd::Done),
            Err(NoWorker::Spawn(error)) => return Ok(TaskEnd::Gone(error.to_string())),
            Err(NoWorker::Open(why)) => return Ok(TaskEnd::Gone(why)),
        };
        if let Some(why) = self.about.without.clone().filter(|_| had_gpus) {
            // The task was made for another machine: its caller must know first.
            self.process = Some(process);
            return Ok(TaskEnd::Lost(WorkerLoss {
                case: None,
                error: why,
                cause: LossCause::Machine,
            }));
        }
        if process.link.send(&WorkerOrder::Measure(Box::new(task.clone()))).is_err() {
            let failure = ended(process);
            return Ok(self.lost(None, failure));
        }
        let mut watch = StepWatch::new(self.idle_limit());
        loop {
            let event = match process.link.listen() {
                Ok(LinkRecv::Line(WorkerReport::Event(event))) => *event,
                Ok(LinkRecv::Line(WorkerReport::Done)) => {
                    self.process = Some(process);
                    return Ok(TaskEnd::Done);
                }
                Ok(LinkRecv::Timeout) if watch.has_stopped_waiting(interrupt) => {
                    process.kill();
                    return Ok(TaskEnd::Done);
                }
                Ok(LinkRecv::Timeout) if watch.since.elapsed() > watch.limit => {
                    let failure = hung(process, &watch.step(), watch.limit);
                    return Ok(self.lost(watch.at, failure));
                }
                Ok(LinkRecv::Timeout) if !process.has_ended() => continue,
                Ok(LinkRecv::Timeout | LinkRecv::End) => {
                    let failure = ended(process);
                    return Ok(self.lost(watch.at, failure));
                }
                Ok(LinkRecv::Line(
                    WorkerReport::Opened(_) | WorkerReport::Incomplete(_) | WorkerReport::Retrying,
                )) => {
                    let failure = garbled(process, "a machine in place of figures");
                    return Ok(self.lost(watch.at, failure));
                }
                Err(error) => {
                    let failure = garbled(process, &error.to_string());
                    return Ok(self.lost(watch.at, failure));
                }
            };
            watch.since = Instant::now();
            let mut sticky = false;
            match &event {
                TaskEvent::StepStarted { case, step } => {
                    watch.limit = self.limit(case, *step);
                    watch.at = Some((case.clone(), *step));
                }
                TaskEvent::Record(JournalRecord::Sampled(_) | JournalRecord::Note(_)) => {}
                TaskEvent::Record(record) => {
                    sticky = matches!(record, JournalRecord::Faulted(fault)
                        if fault.severity == Severity::Sticky);
                    watch.at = None;
                    watch.limit = self.idle_limit();
                    self.starter.idle = IdleLosses::default();
                }
            }
            send(event)?;
            if sticky {
                // Its runtime is unusable: no further message of it matters.
                process.kill();
                let (case, error, cause) = (None, String::new(), LossCause::Machine);
                return Ok(TaskEnd::Lost(WorkerLoss { case, error, cause }));
            }
            let reply =
                if interrupt().is_some() { WorkerOrder::Stop } else { WorkerOrder::Continue };
            if process.link.send(&reply).is_err() {
                let failure = ended(process);
                return Ok(self.lost(watch.at, failure));
            }
        }
    }
}

impl WorkerExecutor {
    /// The consequences of a process's end.
    fn lost(&mut self, at: Option<(Case, TaskStep)>, failure: ProcessFailure) -> TaskEnd {
        let Some((case, step)) = at else {
            return match self.starter.lost_idle(&failure) {
                Ok(()) => {
                    let cause = cause(None, &failure);
                    TaskEnd::Lost(WorkerLoss { case: None, error: failure.text, cause })
                }
                Err(why) => TaskEnd::Gone(why),
            };
        };
        let cause = cause(Some(&case), &failure);
        let error = match cause {
            LossCause::Coordinator => CallError::new(
                Severity::Transient,
                step.word(),
                "the process that coordinates the ranks",
                failure.text,
            )
            .or_try(
                "this is a fault of pathline itself, not of a GPU; please report \
                 it with the journal",
            ),
            _ => CallError::new(Severity::Sticky, step.word(), "the worker process", failure.text)
                .or_try(
                    "the run went on in a new one; run this case alone to see whether it repeats",
                ),
        };
        TaskEnd::Lost(WorkerLoss { case: Some(case), error: error.to_string(), cause })
    }
}

/// Whom the end of a process is charged to. What goes between processes is done by the ranks: the
/// worker, which coordinates them, uses no GPU for it.
fn cause(case: Option<&Case>, failure: &ProcessFailure) -> LossCause {
    let between = |case: &Case| case.flows().any(|flow| flow.by.wire().is_some());
    match case {
        _ if !failure.own => LossCause::Outside,
        Some(case) if between(case) => LossCause::Coordinator,
        _ => LossCause::Machine,
    }
}

/// The step in progress.
struct StepWatch {
    at: Option<(Case, TaskStep)>,
    since: Instant,
    limit: Duration,
    /// Since when the run is to end.
    stopping: Option<Instant>,
}

impl StepWatch {
    fn new(limit: Duration) -> Self {
        Self { at: None, since: Instant::now(), limit, stopping: None }
    }

    /// Whether the run is to end and the step at hand has had its time for that.
    fn has_stopped_waiting(&mut self, interrupt: InterruptCheck<'_>) -> bool {
        if self.stopping.is_none() {
            self.stopping = interrupt().map(|_| Instant::now());
        }
        self.stopping.is_some_and(|since| since.elapsed() > STOP_TIMEOUT)
    }

    fn step(&self) -> String {
        match &self.at {
            Some((_, step)) => format!("the step '{}' went on", step.word()),
            None => "it had no case in hand".to_owned(),
        }
    }
}

fn ended(process: WorkerProcess) -> ProcessFailure {
    let id = process.id();
    let exit = process.exit_report();
    ProcessFailure { text: format!("process {id} {}", exit.text), own: exit.own }
}

fn hung(mut process: WorkerProcess, step: &str, limit: Duration) -> ProcessFailure {
    let id = process.id();
    let tail = process.output_tail();
    let killed = process.kill();
    let fate = if killed { "was killed" } else { "could not even be killed" };
    let limit = limit.as_secs_f64();
    ProcessFailure {
        text: format!(
            "process {id} hung: {step} and sent nothing for {limit:.0} s \
             (--case-deadline), so it {fate}{tail}"
        ),
        own: true,
    }
}

fn garbled(mut process: WorkerProcess, why: &str) -> ProcessFailure {
    let id = process.id();
    let tail = process.output_tail();
    process.kill();
    ProcessFailure {
        text: format!("process {id} sent what cannot be used ({why}){tail}"),
        own: true,
    }
}
