//! `pathline model fit`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pathline_calibrate::{FitStep, NamedRun, NodeTwin, UnlikePart, calibrate};
use pathline_diagnose::compare_run;
use pathline_flow::MachineDesc;
use pathline_runner::MachineModel;

use super::{ExitKind, judge_source};
use crate::args::CalibrateArgs;
use crate::files;
use crate::say::{self, errln, outln};

/// Interval of progress lines.
const EVERY: Duration = Duration::from_secs(2);

pub(super) fn run(args: &CalibrateArgs) -> Result<ExitKind> {
    let out = args.out.as_deref().unwrap_or(Path::new(files::MACHINE));
    // Before the fit, which may take minutes. A file that is named may be replaced.
    if args.out.is_none() && out.symlink_metadata().is_ok() {
        bail!(
            "{}: there is one already, perhaps another twin; `-o {}` replaces it",
            out.display(),
            files::MACHINE
        );
    }
    let read = |path: &std::path::PathBuf| -> Result<NamedRun> {
        Ok(NamedRun { name: path.display().to_string(), journal: files::read(path)? })
    };
    let runs = args.runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    let source = runs.iter().map(|run| judge_source(Path::new(&run.name), &run.journal));
    let source = source.fold(ExitKind::Fine, ExitKind::worse);
    let mut last_line = Instant::now();
    let twin = calibrate(&runs, &mut |step: &FitStep| {
        if !say::is_quiet() && last_line.elapsed() >= EVERY {
            last_line = Instant::now();
            let FitStep { doing, groups, error } = step;
            errln!("{doing}: {groups} shared resources, sets off by {:.2} %", error * 100.0);
        }
    })?;
    let text = twin.toml();
    // A file that cannot be read back must not be written.
    MachineDesc::parse(&out.display().to_string(), &text)
        .context("the twin of these runs is no valid machine file; please report it")?;
    if args.out.is_some() {
        files::write(out, &text)?;
    } else {
        files::create(out, &text)?;
    }
    let is_slow = runs.iter().map(warn_of_unlike_paths).fold(false, |any, one| any | one);
    let compared =
        preset_of(args, &twin)?.map(|preset| twin.compare_preset(&preset)).transpose()?;
    if out != Path::new("-") {
        // The verdict is the first line, before what the twin holds.
        outln!("{}", twin.verdict());
        compared.iter().for_each(|compared| outln!("{compared}"));
        outln!("\n{twin}\nWrote {}.", out.display());
    }
    let is_slow = is_slow || compared.is_some_and(|compared| compared.is_low());
    let unlike = &twin.peers.unlike;
    Ok(source.worse(match is_slow || unlike.iter().any(UnlikePart::is_decided) {
        true => ExitKind::Wrong,
        false if twin.data.sets.is_empty() || !unlike.is_empty() => ExitKind::CouldNotJudge,
        false => ExitKind::Fine,
    }))
}

/// The description to compare with: the one that is named, or the preset with the GPUs of the node, if
/// there is one.
fn preset_of(args: &CalibrateArgs, twin: &NodeTwin) -> Result<Option<MachineDesc>> {
    if let Some(name) = &args.preset {
        return Ok(Some(MachineModel::read(name)?.desc().clone()));
    }
    let gpu = twin.data.topology.gpus.first().map(|gpu| (&gpu.name, &gpu.arch));
    for (name, text) in MachineDesc::presets() {
        let desc = MachineDesc::parse(name, text)?;
        let described = desc.topology().gpus;
        let is_alike = described.first().map(|gpu| (&gpu.name, &gpu.arch)) == gpu;
        if is_alike && described.len() >= twin.data.topology.gpus.len() {
            return Ok(Some(desc));
        }
    }
    Ok(None)
}

/// Names the path that differs most from its peers, if any does: the twin of a sick node holds a fault as it is.
fn warn_of_unlike_paths(NamedRun { name, journal }: &NamedRun) -> bool {
    let network = super::report::network(journal, &files::journal_path(Path::new(name))).ok();
    let unlike = compare_run(journal, network.as_ref()).unlike_paths(&journal.topology);
    // A path alone says more than a set that contains it.
    let alone = unlike.iter().find(|path| path.case.flows().count() == 1);
    let Some(worst) = alone.or(unlike.first()) else { return false };
    let more = match unlike.len() - 1 {
        0 => String::new(),
        1 => ", and 1 more case of the run differs".to_owned(),
        n => format!(", and {n} more cases of the run differ"),
    };
    errln!(
        "pathline: SUSPECT in {name}: {} is {:.1} % below the median of its {} peers{more}; the twin \
         holds it as it is. `pathline health` examines the node.",
        worst.path,
        (1.0 - worst.ratio) * 100.0,
        worst.peers
    );
    true
}
