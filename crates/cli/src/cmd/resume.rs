//! Arguments that `pathline run --resume` takes from the earlier run.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::Parser;
use pathline_bench::JournalFile;
use pathline_flow::MachineDesc;
use pathline_runner::MachineModel;
use pathline_schema::{Journal, RunBegin, WorldKind as Recorded, shell_word};

use crate::args::{Args, Command, RunArgs};
use crate::files;

/// With `--resume`, the cases that the run was begun with, on the machine as it was described then;
/// time limit and verbosity come from this command line, and so does the compiler's path if given.
pub(super) fn arguments(args: RunArgs) -> Result<RunArgs> {
    let Some(run) = &args.resume else { return Ok(args) };
    let begin = files::read(run)?.begin;
    let first = Args::try_parse_from(&begin.command)
        .ok()
        .and_then(|a| if let Some(Command::Run(first)) = a.command { Some(first) } else { None })
        .ok_or_else(|| anyhow!("{}: its command line cannot be read again", run.display()))?;
    let mut select = first.select;
    if select.machine.is_some() {
        select.machine = Some(same_machine(run, &begin)?);
    }
    // Earlier versions took the current folder if none was named. A store that is gone is not replaced by it.
    if select.stores.store.is_empty() && select.check_stores().is_err() {
        select.stores.store.push(PathBuf::from("."));
    }
    Ok(RunArgs {
        select,
        sampling: first.sampling,
        require: args.require.or(first.require),
        libraries: args.libraries.or(first.libraries),
        ..args
    })
}

/// The file that describes the machine of a simulated run, if it still does so as when the run began.
fn same_machine(run: &Path, begin: &RunBegin) -> Result<String> {
    let path = files::journal_path(run).with_file_name(files::MACHINE);
    let name = path.to_string_lossy().into_owned();
    let way_out = "put the description that this run was begun with back there, or begin a new run";
    match path.symlink_metadata() {
        Ok(kind) if kind.is_file() => {}
        Ok(_) => return Err(anyhow!("{name} is no plain file; {way_out}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let presets = MachineDesc::presets();
            let preset = presets
                .iter()
                .find(|(known, _)| begin.world == Recorded::Simulated((*known).to_owned()));
            let hint = preset.map_or(String::new(), |(preset, _)| {
                let file = shell_word(&name);
                format!(
                    "; if that was the preset, `pathline model show {preset} > {file}` writes it"
                )
            });
            return Err(anyhow!("{name}: there is no such file; {way_out}{hint}"));
        }
        Err(error) => return Err(anyhow!("{name}: {error}; {way_out}")),
    }
    let hash = MachineModel::read(&name)?.sha256();
    match &begin.machine_sha256 {
        Some(was) if *was != hash => Err(anyhow!(
            "{name} was changed since this run began, and figures of two machines do not belong into \
             one journal: {way_out} with --machine (its SHA-256 is {hash}, and was {was})"
        )),
        _ => Ok(name),
    }
}

/// Opens the journal of a run to resume, with an exclusive lock.
pub(super) fn open_journal(run: &Path) -> Result<(JournalFile, Journal)> {
    let path = files::journal_path(run);
    if path.extension().is_some_and(|e| e == "gz") {
        return Err(anyhow!("{}: to go on with it, gunzip it first", path.display()));
    }
    Ok(JournalFile::open(&path)?)
}

/// The argument of `--resume` for a journal: its folder, if it has the usual name there.
pub(super) fn name_of(journal: &Path) -> String {
    let folder = journal.parent().filter(|p| p.join(files::JOURNAL) == journal);
    shell_word(&folder.unwrap_or(journal).to_string_lossy()).into_owned()
}
