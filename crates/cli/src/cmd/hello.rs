//! Without a command: what this host is, what can be done here, and for how long.

use anyhow::Result;
use pathline_bench::{KNOWN, PlanScope, RunPlan, plan_time};
use pathline_flow::MachineDesc;
use pathline_runner::{HostMachine, MachineChoice, MachineSurvey, half_of_free, switches};

use super::ExitKind;
use super::plan::duration;
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
    let count = MachineDesc::presets().len();
    let time = duration(plan_time(&plan, topology));
    outln!("pathline {} on {}", env!("CARGO_PKG_VERSION"), topology.host.hostname);
    outln!(
        "  {} · {} CPUs · {} NUMA · {} memory · {gpus}",
        topology.host.cpu_model,
        topology.host.cpus.len(),
        topology.numa.len(),
        topology.host.memory.rounded(),
    );
    outln!("  pathline run --quick            the main paths of this host in 30 s");
    outln!("  pathline run                    all of it: {} cases, about {time}", plan.runnable());
    outln!("  pathline run -m mi250x          the same on a simulated node, one of {count}");
    outln!("  pathline health                 whether GPUs and links are healthy, in 10 s");
    outln!("  pathline explain FILE           what a pasted result, log or case means");
    outln!("  pathline advise                 what to set instead of defaults, with proof");
    outln!("  pathline advise --job SCRIPT    which settings of a job do nothing or slow it");
    outln!("  pathline place                  GPU, cores and adapter of each rank of a job");
    outln!("  pathline topo                   what this node is made of; -o FILE.svg");
    outln!("  pathline report RUN             a run again; --full, -o FILE.html");
    outln!("  pathline diff BEFORE AFTER      two runs, case by case");
    outln!("  pathline model                  simulated nodes: show, fit, check, predict");
    outln!("  pathline doctor                 libraries for GPUs; -h after any command: help");
    Ok(ExitKind::Fine)
}
