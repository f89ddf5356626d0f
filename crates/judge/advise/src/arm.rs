//! What a trial compares: arms, and the candidates that are made of them.

use std::collections::BTreeMap;
use std::fmt;

use pathline_schema::{Bytes, Case, Flow, MemKind, Mover, SizedTransfer, Transport};
use serde::{Deserialize, Serialize};

/// Environment variables of the process of an arm: name and value; an empty value removes the variable.
pub type ArmEnv = BTreeMap<String, String>;

/// What an arm runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArmTask {
    /// A case of pathline; its cost is the time of one operation.
    Case(Case),
    /// The command of the user; its cost is read from what it prints.
    Command,
}

/// One of the things that a trial compares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialArm {
    /// Its name in reports: `pinned, SDMA copy`, `NCCL_PROTO=Simple`.
    pub label: String,
    /// What it runs.
    pub task: ArmTask,
    /// What its process is started with in addition.
    #[serde(default)]
    pub env: ArmEnv,
}

impl TrialArm {
    /// An arm that measures a case without further settings.
    pub fn of_case(label: impl Into<String>, case: Case) -> Self {
        Self { label: label.into(), task: ArmTask::Case(case), env: ArmEnv::new() }
    }

    /// The size of what it moves; none of a command.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        match &self.task {
            ArmTask::Case(case) => Some(case.timed.first()?.bytes),
            ArmTask::Command => None,
        }
    }

    /// Whether a library that reads a variable takes part: a copy says nothing of NCCL's. A command may use any.
    pub(crate) fn may_read(&self, name: &str) -> bool {
        const COLLECTIVES: [&str; 2] = ["NCCL_", "RCCL_"];
        let ArmTask::Case(case) = &self.task else { return true };
        let is_collective = |flow: &Flow| flow.by.wire().is_some_and(|w| w.via == Transport::Ccl);
        !COLLECTIVES.iter().any(|prefix| name.starts_with(prefix))
            || case.flows().any(is_collective)
    }

    /// The kind of its transfer, if it is one that settings are judged by.
    pub(crate) fn transfer(&self) -> Option<SizedTransfer> {
        let ArmTask::Case(case) = &self.task else { return None };
        let [flow] = case.timed.as_slice() else { return None };
        SizedTransfer::of_flow(flow).filter(|_| case.background.is_empty())
    }

    /// The host memory of a copy by the runtime between host and GPU, and whether it is the source; none of other
    /// tasks.
    pub fn host_copy(&self) -> Option<(MemKind, bool)> {
        let ArmTask::Case(case) = &self.task else { return None };
        let [Flow { src, dst, by: Mover::Dma { .. }, .. }] = case.timed.as_slice() else {
            return None;
        };
        let is_source = src.unit.numa().is_some();
        let host = if is_source { src } else { dst };
        host.unit.numa().map(|_| (host.mem, is_source))
    }

    /// The same task with further settings.
    #[must_use]
    pub fn with_env(&self, label: impl Into<String>, env: ArmEnv) -> Self {
        let mut all = self.env.clone();
        all.extend(env);
        Self { label: label.into(), task: self.task.clone(), env: all }
    }
}

impl fmt::Display for TrialArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            match value.as_str() {
                "" => write!(f, "-u {name} ")?,
                value => write!(f, "{name}={value} ")?,
            }
        }
        match &self.task {
            ArmTask::Case(case) => write!(f, "{case}"),
            ArmTask::Command => f.write_str("the command"),
        }
    }
}

/// One thing to do instead of the default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceChoice {
    /// The arm.
    pub arm: TrialArm,
    /// What a user changes, in the imperative: `allocate the buffer with cudaHostAlloc`.
    pub action: String,
    /// What it costs besides time; empty if nothing.
    #[serde(default)]
    pub cost: String,
    /// The variables by which a job makes this choice; empty where its program has to.
    #[serde(default)]
    pub settings: ArmEnv,
    /// Cases that the same change also affects, with the arm before and after it. A variable of the
    /// environment affects all; a call affects its own.
    #[serde(default)]
    pub guards: Vec<(TrialArm, TrialArm)>,
    /// Why this setting cannot act here, if that is known before any trial.
    #[serde(default)]
    pub ignored: Option<String>,
    /// Nodes over which the processes of its trials ran: a row of a tuner holds for that number.
    #[serde(default = "one_node", skip_serializing_if = "is_one_node")]
    pub nodes: u32,
}

impl AdviceChoice {
    /// Setting a variable, without a trial of it.
    pub fn of_setting(action: String, name: &str, value: &str) -> Self {
        let arm = TrialArm { label: String::new(), task: ArmTask::Command, env: ArmEnv::new() };
        let settings = ArmEnv::from([(name.to_owned(), value.to_owned())]);
        let (cost, guards, ignored) = (String::new(), Vec::new(), None);
        Self { arm, action, cost, settings, guards, ignored, nodes: 1 }
    }

    /// Whether it is made by how a process is started: such a choice can break a job whose default works. A
    /// case that differs instead may be one that the machine cannot run.
    pub(crate) fn is_of_process(&self) -> bool {
        !self.arm.env.is_empty() || self.arm.task == ArmTask::Command
    }
}

const fn one_node() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one_node(nodes: &u32) -> bool {
    *nodes == 1
}

/// One question of a user: what is the fastest of these?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceScope {
    /// What is moved: `copies from numa3 to gpu0 (H2D), 64 MiB`.
    pub subject: String,
    /// The same without its size: questions with the same ends are affected by the same variables.
    pub ends: String,
    /// What a program does that chooses nothing.
    pub baseline: TrialArm,
    /// What it could do instead.
    pub choices: Vec<AdviceChoice>,
}
