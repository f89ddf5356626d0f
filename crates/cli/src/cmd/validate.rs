//! `pathline model check`.

mod sensitivity;

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use pathline_bench::measure_cases;
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_published::score::ErrorTarget;
use pathline_published::{
    AnswerMap, MachineAnswer, MachineQuery, SHIPPED, ShippedTable, TARGETS, ValidationPlan,
    ValidationReport, find_carried,
};
use pathline_report::{csv, html, terminal};
use pathline_runner::{MachineModel, read_text};
use pathline_sim::{SimOptions, machine_with};

use super::ExitKind;
use crate::args::{FittedConstants, ValidateArgs};
use crate::files;
use crate::say::{self, errln};

/// Largest table that is read.
const MAX_TABLE: u64 = 64 << 20;

pub(super) fn run(args: &ValidateArgs) -> Result<ExitKind> {
    let model = MachineModel::read(&args.machine)?;
    let desc = model.desc();
    let shipped = ShippedTable::for_machine(desc);
    let (name, text) = table(args, desc, shipped)?;
    let rows = pathline_published::read(&text).map_err(|e| anyhow!("{name}: {e}"))?;
    let like = shipped.map(|table| table.system.to_owned());
    let systems: Vec<String> = args.system.iter().cloned().chain(like).collect();
    let plan = ValidationPlan::of_stack(rows, desc, &systems, args.stack.as_deref())?;
    let answers = answers(desc, &plan)?;
    let carried = find_carried(desc, model.text(), &plan, &answers, &answer_plan)?;
    let plan = plan.with_carried(carried);
    if args.sensitivity {
        return sensitivity::run(args, &model, &plan, &name);
    }
    let of = |stack: &str, query: &MachineQuery| {
        let answer = answers.get(stack).and_then(|answers| answers.get(query));
        answer.cloned().unwrap_or_else(|| Err(format!("{query} was not asked")))
    };
    if let (Some(FittedConstants::Starts), Some(rows)) = (args.fit, args.hold_out) {
        let fit = plan.fit_starts(rows as usize, &of);
        say::page(&terminal::scores::start_fit(
            &fit,
            &desc.name,
            &name,
            say::width(),
            say::colour(),
        ));
        let fitted = !fit.classes.is_empty();
        return Ok(if fitted { ExitKind::Fine } else { ExitKind::CouldNotJudge });
    }
    let (targets, asked) = targets(&args.within)?;
    let report = plan.score_by_stack(&desc.name, &targets, &of);
    say::page(&terminal::scores::summary(
        &report,
        &name,
        say::is_full(),
        say::width(),
        say::colour(),
    ));
    files::write_each(&args.out, |ending| match ending {
        "csv" => Ok(csv::export_scores(&report)),
        _ => Ok(html::scores::page(&report, &name)),
    })?;
    Ok(judge(&report, &asked))
}

/// A target is missed: 1. No row has a prediction, or a target that was asked for, or all, have no row: 3.
fn judge(report: &ValidationReport, asked: &[&str]) -> ExitKind {
    if !report.met() {
        return ExitKind::Wrong;
    }
    let without: Vec<&str> =
        report.judged.iter().filter(|j| j.got.is_none()).map(|j| j.target.name).collect();
    let unseen: Vec<&str> = asked.iter().copied().filter(|name| without.contains(name)).collect();
    if !unseen.is_empty() {
        errln!("pathline: no row of the table counts for --within {}", unseen.join(", "));
    }
    let judges = without.len() < report.judged.len() && unseen.is_empty();
    if judges && !report.compared.is_empty() { ExitKind::Fine } else { ExitKind::CouldNotJudge }
}

/// The table that is named, or the one that comes with the machine.
fn table(
    args: &ValidateArgs,
    desc: &MachineDesc,
    shipped: Option<&ShippedTable>,
) -> Result<(String, String)> {
    let Some(path) = &args.against else {
        let name = format!("the published values of {}", desc.name);
        return shipped.map(|table| (name, table.text.to_owned())).ok_or_else(|| {
            let known: Vec<&str> = SHIPPED.iter().map(|table| table.system).collect();
            anyhow!(
                "no published values of '{}' come with pathline (there are those of {}); name a table \
                 with --against",
                desc.name,
                known.join(", ")
            )
        });
    };
    let name = path.display().to_string();
    let text = read_text(path, MAX_TABLE)
        .with_context(|| format!("{name}: cannot be read as a table of published values"))?;
    Ok((name, text))
}

/// The targets, with the percentages of `--within TARGET=MEDIAN[,P95]`, and the names that it has.
fn targets(within: &[String]) -> Result<(Vec<ErrorTarget>, Vec<&'static str>)> {
    let mut targets = TARGETS.to_vec();
    let mut asked = Vec::new();
    for text in within {
        let bad = || {
            let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            anyhow!(
                "--within '{text}': expected TARGET=MEDIAN[,P95] in percent, such as bandwidth=2,6; \
                 targets are {}",
                names.join(", ")
            )
        };
        let (name, bounds) = text.split_once('=').ok_or_else(bad)?;
        let target = targets.iter_mut().find(|t| t.name == name.trim()).ok_or_else(bad)?;
        asked.push(target.name);
        let percent = |text: &str| {
            let value = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
            value.filter(|v| (0.0..=1e6).contains(v)).map(|v| v / 100.0).ok_or_else(bad)
        };
        (target.median, target.p95) = match bounds.split_once(',') {
            Some((median, p95)) => (percent(median)?, Some(percent(p95)?)),
            None => (percent(bounds)?, None),
        };
    }
    Ok((targets, asked))
}

/// Answers every query of a plan, stack by stack. The spread that a simulated run has is left out: what is
/// judged is the model, not a draw.
fn answers(desc: &MachineDesc, plan: &ValidationPlan) -> Result<BTreeMap<String, AnswerMap>> {
    let of = |stack: &str| match stack {
        "" => stack_answers(desc, plan, stack),
        _ => stack_answers(&desc.with_stack(stack)?, plan, stack),
    };
    plan.stacks().into_iter().map(|stack| Ok((stack.to_owned(), of(stack)?))).collect()
}

/// The same, with the reason of a failure as text.
fn answer_plan(
    desc: &MachineDesc,
    plan: &ValidationPlan,
) -> Result<BTreeMap<String, AnswerMap>, String> {
    answers(desc, plan).map_err(|e| format!("{e:#}"))
}

fn stack_answers(desc: &MachineDesc, plan: &ValidationPlan, stack: &str) -> Result<AnswerMap> {
    let (mut answers, cases) = plan.answer_by_physics(desc, stack)?;
    let options = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let figures = measure_cases(cases, &desc.topology(), |env| {
        machine_with(desc, RuntimeEnv::from_env(env), &options)
    })?;
    answers.extend(figures.into_iter().map(|(case, figures)| {
        let answer = figures.map(|f| MachineAnswer::of_case(f.rate.gbs(), f.time.0 / 1e3));
        (MachineQuery::Case(case), answer)
    }));
    Ok(answers)
}
