//! Without a command: what can be done here, in ten lines.

use anyhow::Result;
use pathline_bench::{KNOWN, PlanScope, RunPlan};
use pathline_flow::MachineDesc;
use pathline_runner::{HostMachine, MachineChoice, MachineSurvey, half_of_free, switches};

use super::ExitKind;
use crate::args::{LibraryArgs, TimeoutArgs};
use crate::say::outln;

pub(super) fn run() -> Result<ExitKind> {
    let switches = switches();
    let libraries = LibraryArgs::from_env().choice();
    let machine = MachineChoice::Host(HostMachine { libraries, ..HostMachine::default() });
    let about = MachineSurvey::new(&machine, TimeoutArgs::from_env().call()).about;
    let topology = &about.topology;
    let scope = about.scope(half_of_free(topology));
    let scope = PlanScope { env: &switches, tuned: &KNOWN, ..scope };
    let plan = RunPlan::new(&scope, &[], &[]).map_err(anyhow::Error::msg)?;
    let gpus = match topology.gpus.len() {
        0 => "no GPU".to_owned(),
        n => match about.without {
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
