//! The variables that a review is about, of the environment or of a job script, and what is known of them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use pathline_advise::{
    Advice, AdviceVerdict, ArmEnv, JobScript, is_setting, script_findings, stated_settings,
};
use pathline_runner::read_text;
use pathline_schema::Topology;

use super::AdviceRun;
use super::answer_files::MAX_FILE;

/// Endings of documents.
const DOCUMENTS: [&str; 6] = ["md", "rst", "adoc", "html", "json", "csv"];

impl AdviceRun<'_> {
    /// The job script, if one is reviewed.
    pub(super) fn script(&self) -> Result<Option<String>> {
        let read = |path: &PathBuf| {
            let what = || format!("--job {}: expected a job script", path.display());
            let text = read_text(path, MAX_FILE).with_context(what)?;
            // A document may quote scripts.
            let is_document = path
                .extension()
                .is_some_and(|end| DOCUMENTS.iter().any(|known| end.eq_ignore_ascii_case(known)));
            if !text.starts_with("#!") && (is_document || !JobScript::read(&text).is_script()) {
                bail!(
                    "--job {}: this is no job script: it has no #! line, and {}; give what sbatch or a \
                     shell runs",
                    path.display(),
                    if is_document {
                        "it is a document by its name"
                    } else {
                        "it sets and launches nothing"
                    }
                );
            }
            Ok(text)
        };
        self.args.job.as_ref().map(read).transpose()
    }

    /// What is known of a script without a trial. Variables that choose devices or print are named only where they are
    /// wrong.
    pub(super) fn stated(&self, job: &JobScript, node: Option<&Topology>) -> Vec<Advice> {
        let names = self.args.review.as_deref().unwrap_or_default();
        let mut stated = stated_settings(job);
        stated.retain(|answer| match names.is_empty() {
            true => answer.verdict != AdviceVerdict::Remove || is_about(answer, is_setting),
            false => is_about(answer, |name| names.iter().any(|asked| asked == name)),
        });
        if names.is_empty() {
            stated.extend(script_findings(job, node));
        }
        stated
    }

    /// Variables to review: those that are set, and named ones that are not. `NAME=VALUE` counts as set.
    ///
    /// # Errors
    /// None is set although `must_have`.
    pub(super) fn reviewed(
        &self,
        job: Option<&JobScript>,
        must_have: bool,
    ) -> Result<(ArmEnv, Vec<String>)> {
        let asked = self.args.review.iter().flatten();
        let given: ArmEnv = asked
            .clone()
            .filter_map(|text| text.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let names: Vec<&str> = asked
            .map(|text| text.split_once('=').map_or(text.as_str(), |(name, _)| name))
            .collect();
        let mut set: ArmEnv = match job {
            Some(job) => job.settings.clone(),
            None => {
                let all = std::env::vars_os();
                all.filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect()
            }
        };
        set.extend(given);
        let is_unset = |name: &&&str| !set.contains_key(**name);
        let unset: Vec<String> =
            names.iter().filter(is_unset).map(|name| (*name).to_owned()).collect();
        let asked = |name: &str| match names.is_empty() {
            true => is_setting(name) && !job.is_some_and(|job| job.is_own_variable(name)),
            false => names.contains(&name),
        };
        let asked: ArmEnv =
            set.into_iter().filter(|(name, value)| asked(name) && !value.is_empty()).collect();
        if asked.is_empty() && unset.is_empty() && must_have {
            bail!(
                "no variable of a GPU runtime, MPI, NCCL, RCCL or UCX is set; name others after --review, or \
                 settings to judge: --review NAME=VALUE"
            );
        }
        Ok((asked, unset))
    }
}

/// Whether an answer is about a variable of this kind.
pub(super) fn is_about(answer: &Advice, is_kind: impl Fn(&str) -> bool) -> bool {
    answer.choice.iter().flat_map(|choice| choice.settings.keys()).any(|name| is_kind(name))
}

/// Whether one of these answers is about a variable.
pub(super) fn is_answered(answers: &[Advice], name: &str) -> bool {
    answers.iter().any(|answer| is_about(answer, |known| known == name))
}

/// The variables of which nothing is answered yet.
pub(super) fn unanswered(variables: &ArmEnv, answers: &[Advice]) -> ArmEnv {
    let rest = variables.iter().filter(|(name, _)| !is_answered(answers, name));
    rest.map(|(name, value)| (name.clone(), value.clone())).collect()
}
