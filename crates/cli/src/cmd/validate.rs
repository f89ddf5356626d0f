//! `pathline validate`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use pathline_bench::{
    CaseTask, Executor, LocalExecutor, MachineInfo, PlannedCase, RunPlan, TaskEvent, TimerScope,
    default_settings,
};
use pathline_explain::agreement;
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_message::MessageLayer;
use pathline_runner::{MachineModel, read_text};
use pathline_schema::{
    Bytes, Case, Flow, JournalRecord, MeasuredCase, MigrateHow, Mover, Rate, RunSettings, Unit,
};
use pathline_sim::SimOptions;
use pathline_stats::SeriesSummary;
use pathline_validate::score::ErrorTarget;
use pathline_validate::{
    MachineAnswer, MachineQuery, TARGETS, ValidationPlan as Table, ValidationReport,
};

use super::{ExitKind, colour};
use crate::args::ValidateArgs;
use crate::files;
use crate::say::{self, outln};

/// Columns of the summary.
const WIDTH: usize = 100;
/// Largest table that is read.
const MAX_TABLE: u64 = 64 << 20;

/// Answers by what was asked.
type AnswerMap = BTreeMap<MachineQuery, Result<MachineAnswer, String>>;

pub(super) fn run(args: &ValidateArgs) -> Result<ExitKind> {
    let model = MachineModel::read(&args.machine)?;
    let desc = model.desc();
    let (name, text) = table(args, desc)?;
    let rows = pathline_validate::read(&text).map_err(|e| anyhow!("{name}: {e}"))?;
    let table = Table::new(rows, desc, &args.system)?;
    let answers = answers(desc, &table.asks())?;
    let of = |ask: &MachineQuery| {
        answers.get(ask).cloned().unwrap_or_else(|| Err(format!("{ask} was not asked")))
    };
    let report = table.score(&desc.name, &targets(&args.within)?, &of);
    if let Some(file) = &args.csv {
        files::write(file, &agreement::csv(&report))?;
    }
    if let Some(file) = &args.html {
        files::write(file, &agreement::page(&report, &name))?;
    }
    let piped = [&args.csv, &args.html].into_iter().flatten().any(|f| f == Path::new("-"));
    if !piped {
        let colour = colour(args.color);
        say::page(&agreement::summary(&report, &name, args.all, WIDTH, colour), colour);
        if let Some(file) = &args.html {
            outln!("\n{}", file.display());
        }
    }
    Ok(judge(&report))
}

/// A target is missed: 1. No row has a prediction: 3.
fn judge(report: &ValidationReport) -> ExitKind {
    if report.compared.is_empty() {
        ExitKind::CouldNotJudge
    } else if report.met() {
        ExitKind::Fine
    } else {
        ExitKind::Wrong
    }
}

/// The table that is named, or the one that comes with the machine.
fn table(args: &ValidateArgs, desc: &MachineDesc) -> Result<(String, String)> {
    let Some(path) = &args.against else {
        let shipped = (desc.name == "mi250x").then_some(pathline_validate::MI250X);
        let name = format!("the published values of {}", desc.name);
        return shipped.map(|text| (name, text.to_owned())).ok_or_else(|| {
            anyhow!(
                "no published values of '{}' come with pathline; name a table with --against",
                desc.name
            )
        });
    };
    let name = path.display().to_string();
    let text = read_text(path, MAX_TABLE)
        .with_context(|| format!("{name}: cannot be read as a table of published values"))?;
    Ok((name, text))
}

/// The targets, with what `--within TARGET=MEDIAN[,P95]` says in percent.
fn targets(within: &[String]) -> Result<Vec<ErrorTarget>> {
    let mut targets = TARGETS.to_vec();
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
        let percent = |text: &str| {
            let value = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
            value.filter(|v| (0.0..=1e6).contains(v)).map(|v| v / 100.0).ok_or_else(bad)
        };
        (target.median, target.p95) = match bounds.split_once(',') {
            Some((median, p95)) => (percent(median)?, Some(percent(p95)?)),
            None => (percent(bounds)?, None),
        };
    }
    Ok(targets)
}

/// Asks the machine, each thing once.
fn answers(desc: &MachineDesc, asks: &BTreeSet<&MachineQuery>) -> Result<AnswerMap> {
    let mut answers = AnswerMap::new();
    let mut entries = Vec::new();
    let layer = MessageLayer::new(desc)?;
    let network = Network::new(desc, RuntimeEnv::default())?;
    for ask in asks {
        match ask {
            MachineQuery::Case(case) if by_cpu_fault(case) => {
                answers.insert((*ask).clone(), predicted(&network, case));
            }
            MachineQuery::Case(case) => entries.push(entry(case)),
            MachineQuery::Exchange(exchange) => {
                let told = layer.time(exchange).map(|told| MachineAnswer {
                    rate: told.algbw.gbs(),
                    time_us: told.time.0 / 1e3,
                    mean_us: told.mean.0 / 1e3,
                    bus: told.busbw.gbs(),
                });
                answers.insert((*ask).clone(), told.map_err(|why| why.to_string()));
            }
        }
    }
    // What the runtime must be started with is known by case; here no process has to be.
    let plan = RunPlan { entries }.with_environments(&desc.topology(), &BTreeMap::new());
    for entry in plan.entries.iter().filter(|e| e.skip.is_some()) {
        let why = entry.skip.clone().unwrap_or_default();
        answers.insert(MachineQuery::Case(entry.case.clone()), Err(why));
    }
    let todo: Vec<PlannedCase> = plan.entries.into_iter().filter(|e| e.skip.is_none()).collect();
    for of_env in todo.chunk_by(|a, b| a.env == b.env) {
        measure(desc, of_env, &mut answers)?;
    }
    Ok(answers)
}

fn entry(case: &Case) -> PlannedCase {
    PlannedCase {
        case: case.clone(),
        suites: Vec::new(),
        skip: None,
        group: 0,
        env: BTreeMap::new(),
        budget: None,
    }
}

/// Whether CPU threads fetch pages from a GPU by touching them. No case of the engine does that:
/// pages fault on GPUs there. The physics knows what a fault costs, whoever has it.
fn by_cpu_fault(case: &Case) -> bool {
    let faults =
        |f: &Flow| matches!(f.by, Mover::Migrate { at: Unit::Numa(_), how: MigrateHow::Fault });
    case.timed.iter().any(faults)
}

/// The figures of a case by the physics alone.
fn predicted(network: &Network, case: &Case) -> Result<MachineAnswer, String> {
    let flows = network.predict(case).map_err(|why| why.to_string())?;
    let mut all = MachineAnswer { rate: 0.0, time_us: 0.0, mean_us: 0.0, bus: 0.0 };
    for (flow, told) in case.timed.iter().zip(flows) {
        all.rate += Rate::of(flow.bytes, told.time).gbs();
        all.time_us = all.time_us.max(told.time.0 / 1e3);
    }
    (all.bus, all.mean_us) = (all.rate, all.time_us);
    Ok(all)
}

/// Measures cases of one environment by the engine of `pathline run`. The spread that a simulated
/// run has is left out: what is judged is the model, not a draw.
fn measure(desc: &MachineDesc, entries: &[PlannedCase], answers: &mut AnswerMap) -> Result<()> {
    let Some(first) = entries.first() else { return Ok(()) };
    let options = SimOptions { jitter: 0.0, ..SimOptions::default() };
    let machine = pathline_sim::machine_with(desc, RuntimeEnv::from_env(&first.env), &options)?;
    let about = MachineInfo::of(&machine, None, TimerScope::Known);
    let memory = Bytes(machine.topology.numa.iter().map(|n| n.memory.0).sum());
    // Without a spread the samples are alike.
    let settings = RunSettings { min_samples: 3, ..default_settings(memory) };
    let mut crew = LocalExecutor::new(&machine, about, settings);
    for group in entries.chunk_by(|a, b| a.group == b.group) {
        let task = CaseTask { entries: group.to_vec(), carried: Vec::new() };
        crew.measure(&task, &|| None, &mut |event| {
            let TaskEvent::Record(record) = event else { return Ok(()) };
            let (case, answer) = match record {
                JournalRecord::Measured(measured) => {
                    let answer = got(&measured);
                    (measured.case, answer)
                }
                JournalRecord::Skipped(skip) => (skip.case, Err(skip.why)),
                JournalRecord::Faulted(fault) => (fault.case, Err(fault.error)),
                _ => return Ok(()),
            };
            answers.insert(MachineQuery::Case(case), answer);
            Ok(())
        })?;
    }
    Ok(())
}

/// The figures of a case: the sum of its flows' rates, the time of the slowest.
fn got(measured: &MeasuredCase) -> Result<MachineAnswer, String> {
    let mut all = MachineAnswer { rate: 0.0, time_us: 0.0, mean_us: 0.0, bus: 0.0 };
    for series in &measured.series {
        let Some(SeriesSummary { median: middle, .. }) = SeriesSummary::of(&series.samples_ns)
        else {
            return Err("it has no sample".to_owned());
        };
        all.rate += Rate::of(series.moved_bytes, pathline_schema::Ns(middle)).gbs();
        all.time_us = all.time_us.max(middle / series.steps.max(1) as f64 / 1e3);
    }
    (all.bus, all.mean_us) = (all.rate, all.time_us);
    Ok(all)
}
