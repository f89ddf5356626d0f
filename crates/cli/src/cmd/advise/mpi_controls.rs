//! The MPI library of this host, asked for its variables.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pathline_advise::{Advice, ArmEnv, MpiSettingReading, is_mpi_setting, judge_mpi_setting};
use pathline_runner::{ProbeLimits, mpi_controls_with};
use pathline_schema::MpiControls;

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

/// What the MPI library of this host says of variables that are set.
pub(super) fn judge_settings(variables: &ArmEnv) -> Vec<Advice> {
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
