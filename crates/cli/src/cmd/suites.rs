//! `pathline run --list`.

use anyhow::{Result, anyhow};
use pathline_bench::{PlanScope, RunPlan, SUITES, TunedKernels, plan_time};
use pathline_runner::{MachineSurvey, half_of_free, switches};

use super::ExitKind;
use super::plan::duration;
use crate::args::{RunArgs, SUITE_GROUPS, group_suites, suite_group};
use crate::say::{out, outln, paragraph};

pub(super) fn run(args: &RunArgs) -> Result<ExitKind> {
    let machine = args.select.machine(&args.libraries)?;
    let (limit, ranks) = (args.timeout.call(), args.sampling.ranks.unwrap_or(0));
    let survey = MachineSurvey::with_ranks(&machine, limit, ranks, args.sampling.nodes);
    let (about, env, tuned) = (&survey.about, switches(), TunedKernels::known());
    let scope = about.scope(half_of_free(&about.topology));
    let scope = PlanScope { env: &env, tuned: &tuned, ..scope };
    outln!("  suite               cases     time  what it measures (* by default)");
    let mut absent = Vec::new();
    let mut group = None;
    let in_groups = SUITE_GROUPS.into_iter().flat_map(group_suites);
    for suite in in_groups.filter_map(|id| SUITES.iter().find(|suite| suite.id == id)) {
        let name = suite.id.to_string();
        let plan =
            RunPlan::new(&scope, std::slice::from_ref(&name), &[]).map_err(|e| anyhow!(e))?;
        if plan.runnable() == 0 {
            let why = plan.entries.iter().find_map(|entry| entry.skip.clone());
            let missing = plan.missing_suites(&scope, std::slice::from_ref(&name));
            absent.push(match why {
                Some(why) => format!("{name}: {why}"),
                None => missing.concat(),
            });
            continue;
        }
        let time = match scope.simulated {
            true => "virtual".to_owned(),
            false => duration(plan_time(&plan, &about.topology)),
        };
        let of = suite_group(suite.id);
        if group.replace(of) != Some(of) {
            outln!("{of}");
        }
        let mark = if (suite.by_default)(&scope) { "*" } else { " " };
        let lead = format!("  {name:<18}{mark} {:>5} {time:>8}  ", plan.runnable());
        out!("{lead}");
        paragraph(suite.about, lead.chars().count());
    }
    if !absent.is_empty() {
        outln!("\nNot here:");
        absent.iter().for_each(|why| outln!("  {why}"));
    }
    survey.notes.iter().for_each(|note| outln!("note: {note}"));
    Ok(ExitKind::Fine)
}
