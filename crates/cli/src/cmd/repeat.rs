//! The arguments by which part of a run can be measured again.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap::parser::ValueSource;
use pathline_gpu::{LibraryOption, library_options};
use pathline_schema::RunBegin;

use crate::args::Args;

/// Options that do not affect a single figure: selection of cases, output, display, total time.
const LEFT_OUT: &[&str] = &[
    "named",
    "suite",
    "case",
    "out",
    "resume",
    "time_limit",
    "tune",
    "quick",
    "json",
    "list",
    "dry_run",
    "worker",
    "inject",
    "repeat",
];

/// Arguments of a run, as it was begun, that figures of it depend on. None if its command line cannot
/// be read.
pub(super) fn arguments(begin: &RunBegin) -> Option<Vec<String>> {
    let table = Args::command();
    let table = table.find_subcommand("run")?;
    let whole = Args::command().try_get_matches_from(&begin.command).ok()?;
    let given = whole.subcommand_matches("run")?;
    let (mut words, mut given_options) = (Vec::new(), BTreeSet::new());
    for arg in table.get_arguments() {
        let id = arg.get_id().as_str();
        // The environment of this process does not concern that run.
        if LEFT_OUT.contains(&id) || given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let Some(long) = arg.get_long() else { continue };
        given_options.insert(long);
        if !arg.get_action().takes_values() {
            words.push(format!("--{long}"));
            continue;
        }
        for value in given.get_raw(id).into_iter().flatten() {
            words.extend([format!("--{long}"), value.to_string_lossy().into_owned()]);
        }
    }
    for LibraryOption { name, variable, .. } in library_options() {
        if let (Some(path), false) = (begin.env.get(*variable), given_options.contains(name)) {
            words.extend([format!("--{name}"), path.clone()]);
        }
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments_of(line: &str) -> Option<Vec<String>> {
        let text = format!(
            "{{\"schema\":1,\"version\":\"0\",\"world\":\"real\",\"host\":\"h\",\"started\":\"\",\
             \"command\":{line},\"env\":{{\"PATHLINE_HIP\":\"/opt/a b\"}},\"overhead_ns\":{{}},\
             \"settings\":{{\"precision\":0.01,\"min_samples\":1,\"max_samples\":1,\"case_budget\":1.0,\
             \"min_sample\":1.0,\"time_limit\":0.0,\"memory\":1,\"seed\":1}}}}"
        );
        arguments(&serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn only_options_that_affect_figures_are_kept() {
        let line = r#"["pathline","run","-qs","host,pairs","-m=x y.toml","--noise=0.5","--seed","7","--sets","9",
            "--ranks","2","--memory","1GiB","--time-limit","60","--out","o","--cuda","/c","--precision","2",
            "--standard-kernels","-c","* > *","--color","never","--case-deadline","9","--case-budget","5"]"#;
        let words = arguments_of(line).unwrap();
        let mut pairs: Vec<String> =
            words.chunk_by(|_, b| !b.starts_with("--")).map(|option| option.join(" ")).collect();
        pairs.sort();
        assert_eq!(
            pairs,
            [
                "--case-budget 5",
                "--case-deadline 9",
                "--cuda /c",
                "--hip /opt/a b",
                "--machine x y.toml",
                "--memory 1GiB",
                "--noise 0.5",
                "--precision 2",
                "--ranks 2",
                "--seed 7",
                "--sets 9",
                "--standard-kernels",
            ]
        );
    }

    #[test]
    fn places_for_files_come_back_one_by_one() {
        let line = r#"["pathline","run","--store","/a","--store=/b c","--span","1GiB","--overwrite","--hip","search"]"#;
        let words = arguments_of(line).unwrap();
        let expected = [
            "--store",
            "/a",
            "--store",
            "/b c",
            "--span",
            "1GiB",
            "--overwrite",
            "--hip",
            "search",
        ];
        let (mut words, mut expected) = (words, expected.map(str::to_owned).to_vec());
        words.sort();
        expected.sort();
        assert_eq!(words, expected);
    }

    #[test]
    fn another_command_or_option_gives_none() {
        assert_eq!(arguments_of(r#"["pathline","run","--of-tomorrow"]"#), None);
        assert_eq!(arguments_of(r#"["pathline","plan"]"#), None);
        assert_eq!(arguments_of("[]"), None);
    }
}
