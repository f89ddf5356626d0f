//! The MPI library of this host, asked for its variables.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pathline_advise::{
    Advice, AdviceScope, ArmEnv, MpiSettingReading, is_mpi_setting, judge_mpi_setting,
    missing_mpi_setting,
};
use pathline_bench::MachineInfo;
use pathline_runner::{ProbeLimits, mpi_controls_with};
use pathline_schema::{MpiControls, Transport};

/// To load a library and list its variables takes a tenth of a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Names a library's file or folder.
const LIBRARY: &str = "PATHLINE_MPI";

/// The variables of the MPI library of this host, or of the file `library`, with these variables and no others of
/// an MPI. None if there is no library, or if it cannot be asked.
pub(super) fn mpi_controls(library: Option<&Path>, settings: &ArmEnv) -> Option<MpiControls> {
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut env: BTreeMap<String, String> =
        set.filter(|name| is_mpi_setting(name)).map(|name| (name, String::new())).collect();
    env.extend(settings.clone());
    env.extend(library.map(|path| (LIBRARY.to_owned(), path.display().to_string())));
    mpi_controls_with(&env, ProbeLimits::within(PROBE_TIMEOUT)).ok()?.ok()
}

/// The variables of the MPI that the ranks of a real machine have.
pub(super) fn controls_of_ranks(about: &MachineInfo) -> Option<MpiControls> {
    let first = about.ranks.first().filter(|_| !about.world.is_model())?;
    // `MPICH 4.0.2, /usr/lib/libmpich.so.12, MPICH's ABI`
    let library = first.ways.get(&Transport::Mpi)?;
    let path = library.split(", ").find(|part| part.starts_with('/'))?;
    mpi_controls(Some(Path::new(path)), &ArmEnv::new())
}

/// The variables of the MPI of this host, if a choice of these questions sets one of an MPI.
pub(super) fn controls_for(scopes: &[AdviceScope]) -> Option<MpiControls> {
    let mut choices = scopes.iter().flat_map(|scope| &scope.choices);
    let of_mpi = choices.any(|choice| choice.arm.env.keys().any(|name| is_mpi_setting(name)));
    of_mpi.then(|| mpi_controls(None, &ArmEnv::new())).flatten()
}

/// Settings of earlier answers that this MPI does not have cannot act.
pub(super) fn ignore_missing(scope: &mut AdviceScope, library: &MpiControls) {
    for choice in &mut scope.choices {
        let why = choice.arm.env.keys().find_map(|name| missing_mpi_setting(name, library));
        let at = || format!(" ({}, {})", library.version, library.path);
        choice.ignored = choice.ignored.take().or(why.map(|why| why + &at()));
    }
}

/// What the MPI library of this host says of variables that are set. A script is for another library, unless the
/// environment names it.
pub(super) fn judge_settings(variables: &ArmEnv, is_script: bool) -> Vec<Advice> {
    if is_script && std::env::var_os(LIBRARY).is_none() {
        return Vec::new();
    }
    let mut asked = variables.iter().filter(|(name, _)| is_mpi_setting(name)).peekable();
    if asked.peek().is_none() {
        return Vec::new();
    }
    let Some(without) = mpi_controls(None, &ArmEnv::new()) else { return Vec::new() };
    let judge = |(name, value): (&String, &String)| {
        // A library that ends the process over a value is not judged: trials show what it does.
        let with = mpi_controls(None, &ArmEnv::from([(name.clone(), value.clone())]))?;
        let reading = MpiSettingReading { without: &without, with: &with, all: variables };
        judge_mpi_setting(name, value, &reading)
    };
    asked.filter_map(judge).collect()
}
