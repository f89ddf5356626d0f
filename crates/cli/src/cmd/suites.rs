//! `pathline run --list`.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use pathline_bench::{PlanScope, PlannedCase, RunPlan, SUITES, TunedKernels, plan_time};
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
    let default_plan = RunPlan::new(&scope, &[], &[]).map_err(|e| anyhow!(e))?;
    let mut absent: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut group = None;
    let in_groups = SUITE_GROUPS.into_iter().flat_map(group_suites);
    for suite in in_groups.filter_map(|id| SUITES.iter().find(|suite| suite.id == id)) {
        let name = suite.id.to_string();
        let plan =
            RunPlan::new(&scope, std::slice::from_ref(&name), &[]).map_err(|e| anyhow!(e))?;
        if plan.runnable() == 0 {
            let why = plan.entries.iter().find_map(|entry| entry.skip.clone());
            let missing = plan.missing_suites(&scope, std::slice::from_ref(&name));
            // The clause begins with the name of the suite.
            let missing = || missing.concat().trim_start_matches(&format!("{name}: ")).to_owned();
            absent.entry(why.unwrap_or_else(missing)).or_default().push(name);
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
        let is_of = |entry: &&PlannedCase| entry.skip.is_none() && entry.suites.contains(&name);
        let by_default = default_plan.entries.iter().filter(is_of).count();
        let about = match mark {
            "*" if by_default < plan.runnable() => {
                format!("{} ({by_default} by default)", suite.about)
            }
            _ => suite.about.to_owned(),
        };
        paragraph(&about, lead.chars().count());
    }
    if !absent.is_empty() {
        outln!("\nNot here:");
        for (why, names) in &absent {
            out!("  ");
            paragraph(&format!("{}: {why}", names.join(", ")), 4);
        }
    }
    survey.notes.iter().for_each(|note| outln!("note: {note}"));
    Ok(ExitKind::Fine)
}
