//! `pathline diff`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use pathline_diagnose::{SlowGroup, compare_run, drain_node, part_remedy, slow_groups};
use pathline_explain::diff::{DiffError, DiffOptions, TopologyChange, diff_runs};
use pathline_explain::run::RunView;
use pathline_explain::run_identity::machine_of;
use pathline_findings::{find_misplaced, unseen_faults};
use pathline_flow::MachineDesc;
use pathline_report::{comparison, html};
use pathline_schema::{Journal, RunBegin, WorldKind, plain_line, shell_word};

use super::ExitKind;
use crate::args::DiffArgs;
use crate::files;
use crate::say::{self, out, outln};

pub(super) fn run(args: &DiffArgs) -> Result<ExitKind> {
    let (before, after) = sides(args)?;
    let file = |path: &PathBuf| files::journal_path(path).canonicalize().ok();
    if let ([one], [other]) = (&before[..], &after[..])
        && file(one).is_some_and(|path| Some(path) == file(other))
    {
        return Err(anyhow!("{} is before and after: name two runs", one.display()));
    }
    let read = |paths: &[PathBuf]| -> Result<Vec<Journal>> {
        paths.iter().map(|path| files::read(path)).collect()
    };
    let (a, b, noise) = (read(&before)?, read(&after)?, read(&args.noise)?);
    let options = DiffOptions { tolerance: args.tolerance / 100.0, noise: noise.iter().collect() };
    let (runs_before, runs_after): (Vec<&Journal>, Vec<&Journal>) =
        (a.iter().collect(), b.iter().collect());
    let mut diff = match diff_runs(&runs_before, &runs_after, &options) {
        Ok(diff) => diff,
        Err(error @ DiffError::Worlds { .. }) => {
            let all = before.iter().zip(&a).chain(after.iter().zip(&b));
            let all: Vec<(&Path, &Journal)> = all.map(|(path, j)| (path.as_path(), j)).collect();
            return Err(anyhow!("{error}{}", advice(&all)));
        }
        Err(error) => return Err(error.into()),
    };
    for (side, paths) in diff.sides.iter_mut().zip([&before, &after]) {
        let more =
            if paths.len() > 1 { format!(" and {} more", paths.len() - 1) } else { String::new() };
        let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        side.files = plain_line(&first).into_owned() + &more;
    }
    if diff.is_worse() {
        let failed = failure(&after, &b).filter(|_| failure(&before, &a).is_none());
        let found = slow_group(&after, &b);
        let known = slow_group(&before, &a).map(|group| group.name());
        let found = found.filter(|group| Some(group.name()) != known);
        diff.part = found.as_ref().map(SlowGroup::name);
        let act = |run: &Journal| action(run, found.as_ref(), diff.main_loss());
        diff.action = b.first().map(act).unwrap_or_default();
        let pages = |runs: &[Journal]| runs.iter().find_map(find_misplaced);
        let pages = pages(&b).filter(|_| pages(&a).is_none() && diff.part.is_none());
        if let (Some((text, action)), None) = (pages, diff.main_loss()) {
            (diff.part, diff.action) = (Some(text), action);
        }
        if let Some((failure, action)) = failed {
            (diff.failure, diff.action) = (Some(failure), action);
        }
    }
    // What neither run can show is not unchanged.
    if let (Some(path), Some(run), false) = (after.first(), b.first(), diff.is_worse()) {
        let network = super::report::network(run, &files::journal_path(path)).ok();
        diff.unseen = unseen_faults(&RunView::new(run, network.as_ref())).unwrap_or_default();
    }
    let json = || serde_json::to_string_pretty(&comparison::json(&diff)).map(|text| text + "\n");
    match args.json {
        true => out!("{}", json()?),
        false => outln!("{}", diff.text(say::is_full(), say::width()).trim_end()),
    }
    for file in &args.out {
        let text = if file.ending == "json" { json()? } else { html::diff::page(&diff) };
        files::write(&file.path, &text)?;
        if !args.json {
            outln!("\n{}", file.path.display());
        }
    }
    Ok(match (diff.is_worse(), diff.missing()) {
        (true, _) => ExitKind::Wrong,
        (false, 0) if diff.undecided().is_none() => ExitKind::Fine,
        _ => ExitKind::CouldNotJudge,
    })
}

/// The part that fails in one of these runs, and what to do.
fn failure(paths: &[PathBuf], runs: &[Journal]) -> Option<(String, String)> {
    paths.iter().zip(runs).find_map(|(path, journal)| {
        let network = super::report::network(journal, &files::journal_path(path)).ok();
        pathline_findings::find_failure(journal, network.as_ref())
    })
}

/// The paths of the first of these runs that are below their peers, by the part that slows most.
fn slow_group(paths: &[PathBuf], runs: &[Journal]) -> Option<SlowGroup> {
    let (path, journal) = (paths.first()?, runs.first()?);
    let network = super::report::network(journal, &files::journal_path(path)).ok();
    let found = compare_run(journal, network.as_ref());
    slow_groups(found.unlike_paths(&journal.topology)).into_iter().next()
}

/// What to do about a node that became worse: what confirms it, and what follows if it stays. What the node states
/// needs no confirmation. The verdict names the part.
fn action(run: &Journal, group: Option<&SlowGroup>, lost: Option<&TopologyChange>) -> String {
    let RunBegin { world, host, .. } = &run.begin;
    let command = match world {
        WorldKind::Simulated(name) => {
            format!("`pathline health -m {}`", shell_word(machine_of(&run.begin).unwrap_or(name)))
        }
        WorldKind::Real => format!("`pathline health` on {host}"),
    };
    match (lost, group) {
        (Some(TopologyChange { part: (part, gpus), .. }), _) if !gpus.is_empty() => {
            let remedy = part_remedy(&run.topology, part, gpus);
            format!("{}; {remedy}; {command} shows what it slows", drain_node(&run.begin))
        }
        (_, Some(group)) => format!(
            "{command} measures {} in new processes; if that stays: {}",
            if group.part.is_some() { "it" } else { "them" },
            group.remedy(&run.topology)
        ),
        _ => format!("{command} measures all its paths in new processes"),
    }
}

/// Runs before and after: what `--` separates, or two runs.
fn sides(args: &DiffArgs) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    match (args.before.as_slice(), args.after.as_slice()) {
        ([before, after], []) => Ok((vec![before.clone()], vec![after.clone()])),
        (before, []) => Err(anyhow!(
            "{} and none after: name two runs, or put -- between those before and those after: \
             `pathline diff BEFORE... -- AFTER...`",
            if before.len() == 1 { "one run".to_owned() } else { format!("{} runs", before.len()) }
        )),
        (before, after) => Ok((before.to_vec(), after.to_vec())),
    }
}

/// How a real run is compared with a model.
fn advice(runs: &[(&Path, &Journal)]) -> String {
    let is_real = |j: &Journal| j.begin.world == WorldKind::Real;
    let real = runs.iter().find(|(_, j)| is_real(j));
    let model = runs.iter().find(|(_, j)| !is_real(j));
    let (Some((real, _)), Some((path, journal))) = (real, model) else {
        return "; give runs of one machine".to_owned();
    };
    let described = files::journal_path(path).with_file_name(files::MACHINE);
    let machine = match &journal.begin.world {
        WorldKind::Simulated(name) if MachineDesc::preset(name).is_ok() => name.clone(),
        _ => described.to_string_lossy().into_owned(),
    };
    let (machine, real) = (shell_word(&machine).into_owned(), real.to_string_lossy().into_owned());
    let real = shell_word(&real);
    format!(
        ". To compare this hardware with that model, predict its cases: `pathline model predict --machine \
         {machine} --against {real}`; to fit a model to it: `pathline model fit {real} -o machine.toml`"
    )
}
