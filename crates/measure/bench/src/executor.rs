//! Executors: measure in this process or in another one.
//!
//! A session decides what to measure and writes the outcomes; an executor has the machine. They
//! exchange data only, which can pass through a pipe.

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

/// Facts about a machine: from its plain files, or after it was opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Hardware or model.
    pub world: WorldKind,
    /// Its components, completed by the GPU runtime.
    pub topology: Topology,
    /// Why no case on GPUs can be measured; `None` if a runtime is bound.
    pub without: Option<String>,
    /// Time of an empty operation, in ns, by timer.
    pub overhead_ns: BTreeMap<String, f64>,
    /// Facts that each GPU's management library reports.
    pub gpus: BTreeMap<Unit, GpuFacts>,
    /// The processes of the run; empty in a run of one process.
    #[serde(default)]
    pub ranks: Vec<RankMember>,
    /// The file stores of the run, by number.
    #[serde(default)]
    pub stores: Vec<StoreFacts>,
    /// Notes from opening it, for the journal.
    #[serde(default)]
    pub notes: Vec<RunNote>,
}

impl MachineInfo {
    /// Describes an open machine. `without` is why its GPUs cannot be measured, if so.
    pub fn of(machine: &Machine, without: Option<String>, how: TimerScope) -> Self {
        // First: the load on a GPU must come from other programs, before this one uses it.
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
    /// A machine that is not open, without known restrictions.
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

    /// The scope of a plan on it: plain kernels, no variables set, `memory` for buffers.
    pub fn scope(&self, memory: Bytes) -> PlanScope<'_> {
        PlanScope {
            simulated: self.world.is_model(),
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

/// The end of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEnd {
    /// Every case has its outcome, or the run was interrupted.
    Done,
    /// The worker is lost; a new one can measure the cases that have no outcome yet.
    Lost(WorkerLoss),
    /// The worker is lost for good; the reason.
    Gone(String),
}

/// The consequences of a lost process.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerLoss {
    /// The case in flight, which caused the loss or suffered from it; `None` if it has its outcome.
    pub case: Option<Case>,
    /// What happened, and what to do.
    pub error: String,
    /// What the loss is charged to.
    pub cause: LossCause,
}

/// What the loss of a process is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// The GPUs of the case in flight, which the process itself used.
    Machine,
    /// Something outside that ended the process.
    Outside,
    /// This program: the process only coordinated ranks, which use the GPUs.
    Coordinator,
}

/// Measures cases on its open machine.
pub trait Executor {
    /// The current facts about the machine.
    fn about(&self) -> &MachineInfo;
    /// Time since the machine was first opened.
    fn now(&self) -> Ns;
    /// Measures the cases of a task in turn. `sink` receives an event at the start of each step,
    /// and each journal line as soon as it is known.
    ///
    /// # Errors
    /// Errors of `sink` only: a case's failure is its outcome.
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<TaskEnd>;
    /// Ends the measuring process, so that the next task has new buffers, contexts and clocks.
    /// Returns whether it did: a machine in this process cannot.
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
        sink: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        self.engine.measure(task, interrupt, sink)?;
        Ok(TaskEnd::Done)
    }
}
