//! `pathline plan`.

use std::collections::BTreeMap;

use anyhow::Result;
use pathline_bench::{PlanScope, PlannedCase, RunPlan, TunedKernels, time_of_probes};
use pathline_runner::{MachineSurvey, half_of_free, switches};
use pathline_schema::{Ns, WorldKind};
use serde_json::json;

use super::ExitKind;
use crate::args::{PlanArgs, SelectArgs};
use crate::kernels;
use crate::say::outln;

/// The cases that the arguments choose on a machine.
pub(super) fn make(
    survey: &MachineSurvey,
    select: &SelectArgs,
    env: &BTreeMap<String, String>,
) -> Result<RunPlan> {
    let about = &survey.about;
    let tuned = match about.world {
        _ if select.standard_kernels => TunedKernels::plain(),
        WorldKind::Real => kernels::remembered(),
        WorldKind::Simulated(_) => TunedKernels::known(),
    };
    let memory = select.memory.unwrap_or_else(|| half_of_free(&about.topology));
    let (tuned, draw) = (&tuned, select.draw());
    make_in(&PlanScope { env, tuned, draw, ..about.scope(memory) }, select)
}

/// The same in a scope.
pub(super) fn make_in(scope: &PlanScope<'_>, select: &SelectArgs) -> Result<RunPlan> {
    RunPlan::new(scope, &select.suite, &select.case).map_err(anyhow::Error::msg)
}

pub(super) fn run(args: &PlanArgs) -> Result<ExitKind> {
    args.select.check_stores()?;
    let machine = args.select.machine(&args.libraries)?;
    let survey = MachineSurvey::new(&machine, args.timeout.call());
    let plan = make(&survey, &args.select, &switches())?;
    if args.json {
        for entry in &plan.entries {
            let PlannedCase { case, suites, skip, .. } = entry;
            outln!("{}", json!({ "case": case, "suites": suites, "skip": skip }));
        }
        return Ok(ExitKind::Fine);
    }
    for entry in &plan.entries {
        match &entry.skip {
            None => outln!("{:<10} {}", suite(entry), entry.case),
            Some(why) => outln!("{:<10} {}  -- skipped: {why}", suite(entry), entry.case),
        }
    }
    outln!("");
    for (suite, cases) in plan.suites() {
        outln!("{:<10} {cases:>5} cases  {}", suite.id, suite.about);
    }
    let probes = time_of_probes(&plan, &survey.about.topology);
    if probes > Ns::ZERO {
        outln!("{:<10} about {:.0} s of the probes on hardware", "", probes.as_secs());
    }
    survey.notes.iter().for_each(|note| outln!("note: {note}"));
    let (all, runnable) = (plan.entries.len(), plan.runnable());
    outln!("{:<10} {all:>5} cases, {runnable} to measure, {} skipped", "in all", all - runnable);
    Ok(ExitKind::Fine)
}

fn suite(entry: &PlannedCase) -> &str {
    entry.suites.first().map_or("-", String::as_str)
}
