//! Who measures: this process, or another one that does it for this one.
//!
//! A session knows what is to be measured and writes down what became of it; a crew has the machine.
//! What passes between them is data, so that it can pass through a pipe.

use std::collections::BTreeMap;
use std::io;

use pathline_hal::Machine;
use pathline_schema::{
    Bytes, Case, GpuFacts, Ns, RankMember, RunNote, RunSettings, StoreFacts, Topology, Unit,
    WorldKind,
};
use serde::{Deserialize, Serialize};

use crate::engine::CaseEngine;
use crate::overhead::{TimerScope, overhead};
use crate::scope::PlanScope;
use crate::task::{CaseTask, EventSink, InterruptCheck};

/// A machine as far as it is known: by its plain files, or open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Hardware or model.
    pub world: WorldKind,
    /// What it is made of, as its GPU runtime completes it.
    pub topology: Topology,
    /// Why nothing on GPUs can be measured; none if a runtime is bound.
    pub without: Option<String>,
    /// What an empty operation costs, in ns, by timer.
    pub overhead_ns: BTreeMap<String, f64>,
    /// What each GPU reports of itself, where its library answers.
    pub gpus: BTreeMap<Unit, GpuFacts>,
    /// The processes that measure together; none in a run of one process.
    #[serde(default)]
    pub ranks: Vec<RankMember>,
    /// The places for files that the run was given, by number.
    #[serde(default)]
    pub stores: Vec<StoreFacts>,
    /// What was seen when it was opened, for the journal.
    #[serde(default)]
    pub notes: Vec<RunNote>,
}

impl MachineInfo {
    /// Looks at an open machine. `without` says why its GPUs cannot be measured, if so.
    pub fn of(machine: &Machine, without: Option<String>, how: TimerScope) -> Self {
        // First: whether a GPU works is that of other programs, before this one has used it.
        let gpus = facts(machine);
        Self {
            world: machine.world.clone(),
            topology: machine.topology.clone(),
            without,
            overhead_ns: overhead(machine, how),
            gpus,
            ranks: machine.ranks.as_ref().map_or_else(Vec::new, |r| r.members().to_vec()),
            stores: machine.storage.as_ref().map_or_else(Vec::new, |s| s.stores()),
            notes: machine.ranks.as_ref().map_or_else(Vec::new, |r| r.notes()),
        }
    }
}

impl MachineInfo {
    /// A machine that is not open, and against which nothing is known.
    pub fn closed(world: WorldKind, topology: Topology) -> Self {
        Self {
            world,
            topology,
            without: None,
            overhead_ns: BTreeMap::new(),
            gpus: BTreeMap::new(),
            ranks: Vec::new(),
            stores: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// What a plan needs to know of it: plain kernels, no switches set, `memory` for buffers.
    pub fn scope(&self, memory: Bytes) -> PlanScope<'_> {
        PlanScope {
            simulated: self.world != WorldKind::Real,
            without_runtime: self.without.as_deref(),
            ranks: &self.ranks,
            stores: &self.stores,
            ..PlanScope::new(&self.topology, memory)
        }
    }
}

fn facts(machine: &Machine) -> BTreeMap<Unit, GpuFacts> {
    let Some(monitor) = &machine.monitor else { return BTreeMap::new() };
    let gpus = machine.topology.gpus.iter();
    gpus.filter_map(|g| Some((Unit::Gpu(g.index), monitor.facts(g.index)?))).collect()
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEnd {
    /// Every case has its outcome, or the run was interrupted.
    Done,
    /// What measured is lost, and can be had anew for the cases that have no outcome yet.
    Lost(WorkerLoss),
    /// What measured is lost for good, and why.
    Gone(String),
}

/// What a lost process costs.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerLoss {
    /// The case in flight, which caused the loss or was met by it; none if it has its outcome.
    pub case: Option<Case>,
    /// What happened, and the way out.
    pub error: String,
    /// Whom it is charged to.
    pub cause: LossCause,
}

/// Whom the loss of a process is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// The GPUs of the case in flight, which the process itself was using.
    Machine,
    /// Whoever ended the process from outside.
    Outside,
    /// This program: the process only coordinated ranks, which use the GPUs.
    Coordinator,
}

/// Measures cases on a machine that it has opened.
pub trait Executor {
    /// The machine as it is now known.
    fn about(&self) -> &MachineInfo;
    /// Time since the machine was opened first.
    fn now(&self) -> Ns;
    /// Measures the cases of a task in turn. `tell` gets each step when it begins, and each line of the
    /// journal when it is known.
    ///
    /// # Errors
    /// Those of `tell` only: a case's failure is its outcome.
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        tell: EventSink<'_>,
    ) -> io::Result<TaskEnd>;
    /// Ends the process that measures, so that the next task has new buffers, contexts and clocks.
    /// Whether it did: a machine in this process cannot.
    fn restart(&mut self) -> bool {
        false
    }
}

/// Measures in this process.
pub struct LocalExecutor<'m> {
    machine: &'m Machine,
    about: MachineInfo,
    engine: CaseEngine<'m>,
}

impl<'m> LocalExecutor<'m> {
    /// On an open machine.
    pub fn new(machine: &'m Machine, about: MachineInfo, settings: RunSettings) -> Self {
        Self { machine, about, engine: CaseEngine::new(machine, settings) }
    }
}

impl Executor for LocalExecutor<'_> {
    fn about(&self) -> &MachineInfo {
        &self.about
    }
    fn now(&self) -> Ns {
        self.machine.clock.now()
    }
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        tell: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        self.engine.measure(task, interrupt, tell)?;
        Ok(TaskEnd::Done)
    }
}
