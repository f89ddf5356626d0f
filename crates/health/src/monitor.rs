//! Takes times of the probes and decides when enough is known.

use crate::facts::NodeFacts;
use crate::plan::HealthPlan;
use crate::report::{HealthReport, HealthState, TestPower};

/// How sure a verdict must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthSettings {
    /// Probability at most that a healthy node fails, such as 1e-5.
    pub alpha: f64,
    /// Share of its speed that a path may lose on a node that passes, such as 0.03.
    pub loss: f64,
    /// Share of its speed by which a path between GPUs may differ from its equals without being
    /// suspect, such as 0.005. Paths to the host get five times as much.
    pub margin: f64,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self { alpha: 1e-5, loss: 0.03, margin: 0.005 }
    }
}

/// What to measure next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Another round of these probes in the same process.
    MoreRounds(Vec<usize>),
    /// Rounds of these probes in a new process with new buffers: suspects and some of their equals.
    FreshProcess(Vec<usize>),
    /// Nothing more can change the verdict.
    Decided,
}

/// Collects rounds and judges them.
#[derive(Debug, Clone)]
pub struct HealthMonitor<'p> {
    plan: &'p HealthPlan,
    settings: HealthSettings,
}

impl<'p> HealthMonitor<'p> {
    /// Without any measurement.
    pub fn new(plan: &'p HealthPlan, settings: HealthSettings) -> Self {
        Self { plan, settings }
    }

    /// Adds a round of process `process`, counted from 0: the time of one operation of each probe in
    /// ns, in the order of the plan; none where it was not measured in this round.
    pub fn add_round(&mut self, _process: usize, _times_ns: &[Option<f64>]) {}

    /// Probes that are slower than their equals in a process.
    pub fn suspects(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Probes that are neither suspects nor shown to be within the loss.
    pub fn undecided(&self) -> Vec<usize> {
        Vec::new()
    }

    /// What to measure next.
    pub fn next_step(&self) -> NextStep {
        NextStep::Decided
    }

    /// The verdict on what is known so far.
    pub fn report(&self, _facts: &NodeFacts) -> HealthReport {
        HealthReport {
            state: HealthState::Inconclusive,
            reason: "nothing was measured".into(),
            suspects: Vec::new(),
            culprits: Vec::new(),
            power: TestPower {
                cleared: 0,
                paths: self.plan.probes.len(),
                loss: self.settings.loss,
                miss: 0.01,
                alpha: self.settings.alpha,
                rounds: 0,
                processes: 0,
                text: String::new(),
            },
            faults: Vec::new(),
            notes: Vec::new(),
            classes: Vec::new(),
            unseen: self.plan.unseen.clone(),
        }
    }
}
