//! Without a command: what can be done here, in ten lines.

use anyhow::Result;
use pathline_bench::{KNOWN, RandomDraw, RunPlan};
use pathline_flow::MachineDesc;

use super::ExitKind;
use crate::args::{LibraryArgs, StoreArgs, TimeoutArgs};
use crate::env;
use crate::say::outln;
use crate::survey::Survey;

pub(super) fn run() -> Result<ExitKind> {
    let switches = env::switches();
    let (libraries, timeout) = (LibraryArgs::from_env(), TimeoutArgs::from_env());
    let survey = Survey::new(None, &libraries, &timeout, &StoreArgs::default())?;
    let topology = &survey.topology;
    let plan =
        RunPlan::new(&survey.scope(None, &switches, &KNOWN, RandomDraw::default()), &[], &[])
            .map_err(anyhow::Error::msg)?;
    let gpus = match topology.gpus.len() {
        0 => "no GPU".to_owned(),
        n => match survey.without_gpus {
            None => format!("{n} GPUs"),
            Some(_) => format!("{n} GPUs (not measured here: see `pathline doctor`)"),
        },
    };
    let machines: Vec<&str> = MachineDesc::presets().iter().map(|(name, _)| *name).collect();
    outln!("pathline {} on {}", env!("CARGO_PKG_VERSION"), topology.host.hostname);
    outln!(
        "  {} · {} CPUs · {} NUMA · {} memory · {gpus}",
        topology.host.cpu_model,
        topology.host.cpus.len(),
        topology.numa.len(),
        topology.host.memory.rounded(),
    );
    outln!("  pathline run                     measure this host: {} cases", plan.runnable());
    outln!("  pathline run --machine mi250x    the same suites on a simulated node, in seconds");
    outln!("  pathline topo                    what this node is made of; --svg for a picture");
    outln!("  pathline plan                    the cases of a run, and what is skipped and why");
    outln!("  pathline report RUN              a run again: summary, HTML, CSV");
    outln!("  pathline diff RUN RUN            two runs, case by case");
    outln!(
        "  pathline machines                simulated: {}; or your own file",
        machines.join(", ")
    );
    outln!("  pathline doctor                  libraries for GPUs; -h after any command: help");
    Ok(ExitKind::Fine)
}
