//! The machine on which a command measures its cases, and their plan.

use anyhow::{Result, anyhow};
use pathline_bench::{Executor, MachineInfo, RunPlan, TimerScope};
use pathline_runner::{
    MachineChoice, ModelExecutor, NoWorker, RunRequest, WorkerExecutor, switches,
};
use pathline_schema::{Case, CasePattern};

use crate::progress::StopRequest;

/// Opens the machine of a request, a simulated one in this process and a host in a worker, and runs
/// something on it.
pub(super) fn on_machine<T>(
    request: &RunRequest,
    stopper: &StopRequest,
    run: impl FnOnce(&mut dyn Executor) -> Result<T>,
) -> Result<T> {
    match &request.machine {
        MachineChoice::Model(_) => {
            let open = request.open(&switches(), None)?;
            let about = MachineInfo::of(&open.machine, open.without.clone(), TimerScope::Known);
            run(&mut ModelExecutor::new(request, &open, about))
        }
        MachineChoice::Host(_) => {
            let interrupt = || stopper.reason();
            let opened = WorkerExecutor::open(request.clone(), &interrupt);
            let opened = opened.map(WorkerExecutor::for_trials);
            let mut executor = opened.map_err(|why| match why {
                NoWorker::Spawn(error) => anyhow!("no worker process can be started: {error}"),
                NoWorker::Open(why) => anyhow!("this machine cannot be opened: {why}"),
                NoWorker::Interrupted => anyhow!("interrupted before anything was measured"),
            })?;
            run(&mut executor)
        }
    }
}

/// The plan of these cases, with the environment that each needs here or the reason why it cannot be
/// measured.
pub(super) fn plan_cases(
    about: &MachineInfo,
    cases: impl IntoIterator<Item = Case>,
    request: &RunRequest,
) -> Result<RunPlan> {
    let patterns: Vec<CasePattern> = cases.into_iter().map(CasePattern::Exact).collect();
    let memory = request.settings_on(&about.topology).memory;
    let env = switches();
    let scope = pathline_bench::PlanScope { env: &env, ..about.scope(memory) };
    let plan = RunPlan::new(&scope, &[], &patterns).map_err(anyhow::Error::msg)?;
    Ok(match request.machine.model() {
        Some(_) => plan.with_refused_settings(&about.topology, &env),
        None => plan.with_environments(&about.topology, &env),
    })
}
