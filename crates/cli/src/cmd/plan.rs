//! `pathline run --dry-run`.

use anyhow::{Result, bail};
use pathline_bench::{PlanScope, PlannedCase, RunPlan, TunedKernels, plan_time, time_of_probes};
use pathline_flow::MachineDesc;
use pathline_runner::{MachineSurvey, half_of_free, switches};
use pathline_schema::{Collective, Ns, SuiteId, Unit, WorldKind, nearest_name};
use serde_json::json;

use super::ExitKind;
use crate::args::{RunArgs, SelectArgs};
use crate::kernels;
use crate::say::outln;

/// The kernels that suites take.
fn tuned(is_real: bool, select: &SelectArgs) -> TunedKernels {
    match is_real {
        _ if select.standard_kernels => TunedKernels::plain(),
        true => kernels::remembered(),
        false => TunedKernels::known(),
    }
}

/// The cases that the arguments choose in a scope.
pub(super) fn make_in(scope: &PlanScope<'_>, select: &SelectArgs) -> Result<RunPlan> {
    for name in select.suites() {
        if name == "quick" {
            bail!("no suite is called 'quick'; did you mean --quick?");
        }
        if name.parse::<Unit>().is_ok() {
            bail!("'{name}' is a place, no suite; a case is 'gpu0 > gpu1 by dma'");
        }
        if MachineDesc::presets().iter().any(|(preset, _)| *preset == name) {
            bail!("'{name}' is a simulated machine, no suite: write -m {name}");
        }
        let operations = Collective::ALL.iter().map(|operation| operation.word());
        let is_suite = SuiteId::ALL.iter().any(|suite| suite.word() == name);
        if let Some(operation) = nearest_name(&name, operations).filter(|_| !is_suite) {
            bail!(
                "{operation} is measured by suite ccl-collectives (NCCL, RCCL) and by mpi-collectives \
                 (under mpirun)"
            );
        }
    }
    RunPlan::new(scope, &select.suites(), &select.cases()?).map_err(anyhow::Error::msg)
}

pub(super) fn run(args: &RunArgs) -> Result<ExitKind> {
    args.select.check_stores()?;
    let machine = args.select.machine(&args.libraries)?;
    let ranks = args.select.own_ranks(args.sampling.ranks);
    let survey =
        MachineSurvey::with_ranks(&machine, args.timeout.call(), ranks, args.sampling.nodes);
    let (about, env) = (&survey.about, switches());
    let tuned = tuned(about.world == WorldKind::Real, &args.select);
    let memory = args.select.memory.unwrap_or_else(|| half_of_free(&about.topology));
    let (tuned, draw) = (&tuned, args.select.draw());
    let (all_pairs, messages) = (args.select.all_pairs, args.select.messages.grid());
    let scope = PlanScope { env: &env, tuned, draw, all_pairs, messages, ..about.scope(memory) };
    let mut plan = make_in(&scope, &args.select)?;
    if args.quick {
        plan = plan.quick();
    }
    if args.json {
        for entry in &plan.entries {
            let PlannedCase { case, suites, skip, .. } = entry;
            outln!("{}", json!({ "case": case, "suites": suites, "skip": skip }));
        }
        return Ok(ExitKind::Fine);
    }
    let (all, runnable) = (plan.entries.len(), plan.runnable());
    let time = match about.world {
        WorldKind::Simulated(_) => "in virtual time, a second or so".to_owned(),
        WorldKind::Real => format!("about {}", duration(plan_time(&plan, &about.topology))),
    };
    outln!("{runnable} cases to measure, {time}; {} skipped", all - runnable);
    for (suite, cases) in plan.suites() {
        outln!("  {:<15} {cases:>5} cases  {}", suite.id.word(), suite.about);
    }
    let probes = time_of_probes(&plan, &about.topology);
    if probes > Ns::ZERO {
        outln!("  about {:.0} s of the probes on hardware", probes.as_secs());
    }
    for why in plan.missing_suites(&scope, &args.select.suites()) {
        outln!("  no case of {why}");
    }
    survey.notes.iter().for_each(|note| outln!("note: {note}"));
    outln!("");
    for entry in &plan.entries {
        match &entry.skip {
            None => outln!("{:<10} {}", suite(entry), entry.case),
            Some(why) => outln!("{:<10} {}  -- skipped: {why}", suite(entry), entry.case),
        }
    }
    Ok(ExitKind::Fine)
}

/// `40 s`, `4 min`.
pub(super) fn duration(time: Ns) -> String {
    match time.as_secs() {
        seconds if seconds < 1.0 => "1 s".to_owned(),
        seconds if seconds < 99.5 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}

fn suite(entry: &PlannedCase) -> &str {
    entry.suites.first().map_or("-", String::as_str)
}
