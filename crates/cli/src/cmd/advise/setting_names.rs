//! Names of variables in the files of this host's GPU libraries.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use pathline_advise::{Advice, ArmEnv, NamingLibrary, has_naming_library, judge_setting_name};
use pathline_dylib::{LibraryReport, names_with_needed};
use pathline_runner::{LibraryChoice, LibraryProbe, ProbeLimits, RuntimeAnswer, ask};
use pathline_transport::collectives_libraries;

/// To find and load a runtime takes a tenth of a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the libraries of this host say of the names of variables that are set. Nothing where a library is not here.
/// `is_used` says whether what is measured loads these files, and no other copies of the libraries.
pub(super) fn judge_names(variables: &ArmEnv, is_used: bool) -> Vec<Advice> {
    let asked: Vec<NamingLibrary> = NamingLibrary::ALL
        .into_iter()
        .filter(|library| has_naming_library(variables, *library))
        .collect();
    if asked.is_empty() {
        return Vec::new();
    }
    let limits = ProbeLimits::within(PROBE_TIMEOUT);
    let libraries = LibraryChoice::default();
    let used = ask::<RuntimeAnswer>(LibraryProbe::Runtime, &libraries, limits);
    // On a login node without GPUs the runtime of the compute nodes is one of the others.
    let others = ask::<Vec<LibraryReport>>(LibraryProbe::OtherRuntimes, &libraries, limits);
    let reports =
        used.ok().map(|answer| answer.driver).into_iter().chain(others.into_iter().flatten());
    let runtimes: Vec<PathBuf> = reports.filter_map(|report| report.path).collect();
    asked.into_iter().flat_map(|library| judge_by(library, &runtimes, variables, is_used)).collect()
}

fn judge_by(
    library: NamingLibrary,
    runtimes: &[PathBuf],
    variables: &ArmEnv,
    is_used: bool,
) -> Vec<Advice> {
    let files: BTreeSet<PathBuf> = match library {
        NamingLibrary::Collectives => {
            let found = collectives_libraries(runtimes.first().map(PathBuf::as_path));
            found.into_iter().filter_map(|found| found.path).collect()
        }
        // What HIP needs has ROCr among it.
        NamingLibrary::Rocr | NamingLibrary::Hip => runtimes.iter().cloned().collect(),
    };
    // Of two libraries either may be meant.
    let (mut names, mut holders) = (BTreeSet::new(), Vec::new());
    for file in &files {
        // A file that cannot be read tells nothing about names.
        let Ok(found) = names_with_needed(file, library.prefixes()) else { return Vec::new() };
        if !found.is_empty() {
            holders.push(file.display().to_string());
        }
        names.extend(found.into_keys());
    }
    let files = holders.join(", ");
    let judge = |(name, value): (&String, &String)| {
        judge_setting_name((name, value), library, &files, &names, is_used)
    };
    variables.iter().filter_map(judge).collect()
}
