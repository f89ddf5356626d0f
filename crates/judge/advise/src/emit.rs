//! Answers as files: for a shell or a job script, and to be proven again.

use pathline_schema::{UnwritableText, comment_line, plain_line, shell_setting};
use pathline_tuner::{TunerRow, tuner_rows_text};
use serde::{Deserialize, Serialize};

use crate::advice::{Advice, AdviceVerdict};
use crate::gain_text::share_text;

/// Version of the format of [`AdviceFile`]. It grows when a reader of the older one would misread it.
pub const ADVICE_FORMAT: u32 = 1;

/// What the answers hold for. Advice does not travel: what gains on one node may lose on the next, and
/// after an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdviceOrigin {
    /// Name of the host, or of the simulated machine.
    pub node: String,
    /// GPUs with their drivers, and libraries with their versions.
    pub parts: Vec<String>,
    /// Date, RFC 3339 in UTC.
    pub date: String,
    /// Version of pathline.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Whether the node is simulated.
    pub simulated: bool,
}

impl AdviceOrigin {
    /// In what the node differs from another; empty if in nothing.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.node != now.node {
            all.push(format!("it was proven on {}, and this is {}", self.node, now.node));
        }
        let gone = self.parts.iter().filter(|part| !now.parts.contains(part));
        let new = now.parts.iter().filter(|part| !self.parts.contains(part));
        all.extend(gone.map(|part| format!("then: {part}")));
        all.extend(new.map(|part| format!("now: {part}")));
        all
    }
}

/// The answers of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceFile {
    /// [`ADVICE_FORMAT`].
    pub format: u32,
    /// What they hold for.
    pub origin: AdviceOrigin,
    /// The command of the user, if the trials ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<CommandTask>,
    /// The answers, in the order of the questions.
    pub answers: Vec<Advice>,
}

impl Advice {
    /// Makes of the answer that a choice gains nothing, if it was proven earlier, the answer that it must not be
    /// made here.
    pub fn withdraw(&mut self, earlier: &AdviceFile, min_gain: f64) {
        let is_same = |known: &&Self| known.subject == self.subject && known.is_change();
        let Some(choice) = earlier.answers.iter().find(is_same).and_then(|a| a.choice.as_ref())
        else {
            return;
        };
        let (label, AdviceOrigin { node, date, .. }) = (&choice.arm.label, &earlier.origin);
        let margin = share_text(min_gain);
        self.reason =
            format!("{label} was proven on {node} ({date}), and gains less than {margin} % here");
        self.choice = Some(choice.clone());
        self.verdict = AdviceVerdict::Withdrawn;
    }
}

/// A command of the user, and how its cost is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandTask {
    /// For `sh -c`.
    pub command: String,
    /// The regular expression of the metric; none: its time.
    pub metric: Option<String>,
    /// Whether more of the metric is better.
    #[serde(default)]
    pub higher: bool,
    /// Other figures that it prints and that must not get worse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<GuardTask>,
    /// Loss of a guarded figure that counts as none: 0.01 is 1 %. None: as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_margin: Option<f64>,
}

/// A figure that a command prints and that must not get worse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardTask {
    /// A regular expression, as of a metric.
    pub pattern: String,
    /// Whether more of it is better.
    #[serde(default)]
    pub higher: bool,
}

/// Why a file of answers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdviceFileError {
    /// It is no such file.
    #[error("it is no advice.json of `pathline advise --emit`: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of a later version.
    #[error("it has format {0}, and this pathline reads 1; use the version that wrote it")]
    Format(u32),
}

impl AdviceFile {
    /// Reads what [`Self::text`] wrote.
    ///
    /// # Errors
    /// It is no such text, or one of a later version.
    pub fn parse(text: &str) -> Result<Self, AdviceFileError> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = serde_json::from_str(text)?;
        if format != ADVICE_FORMAT {
            return Err(AdviceFileError::Format(format));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The answers as JSON.
    pub fn text(&self) -> String {
        // Numbers, strings and lists: nothing of it fails.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    /// Lines for a shell: each variable that a proven answer sets or removes, with its gain; an answer
    /// that a program has to follow is a comment. Two answers that set one variable differently are both
    /// comments. `plugin` is the path of the tuner plugin with the rows next to it, if there is one.
    ///
    /// # Errors
    /// A variable has a name or a value that no shell can set.
    pub fn env_text(&self, plugin: Option<&str>) -> Result<String, UnwritableText> {
        let AdviceOrigin { node, date, version, simulated, parts, .. } = &self.origin;
        let word = if *simulated { "Predicted by the model of" } else { "Proven on" };
        let head = format!("{word} {node} by pathline {version}, {date}.");
        let mut text = comment_line(&head);
        text += &comment_line("Prove it again after an upgrade: pathline advise --check DIR");
        text.extend(parts.iter().map(|part| comment_line(part)));
        let changes: Vec<&Advice> = self.answers.iter().filter(|a| a.is_change()).collect();
        if changes.is_empty() {
            text += &comment_line("Nothing to change.");
        }
        for (at, advice) in changes.iter().enumerate() {
            let gain = advice.gain.map(|gain| format!(": {gain}")).unwrap_or_default();
            text += "\n";
            text += &comment_line(&format!("{}{gain}", advice.subject));
            if let Some(choice) = &advice.choice {
                text += &comment_line(&format!("{}.", advice.action().unwrap_or_default()));
                if advice.only.is_some() {
                    text += &comment_line(&format!("{}.", advice.reason));
                }
                if !choice.cost.is_empty() {
                    text += &comment_line(&format!("It costs {}.", choice.cost));
                }
            }
            for (name, value) in advice.variables() {
                let others = changes.iter().enumerate().filter(|(other, _)| *other != at);
                let differs = others.filter_map(|(_, a)| a.variables().get(&name).cloned());
                let setting = shell_setting(&name, &value)?;
                text += &match differs.into_iter().any(|other| other != value) {
                    true => comment_line(&format!("contradicted: {setting}")),
                    false => setting + "\n",
                };
            }
        }
        if !self.tuner_rows().is_empty() {
            text.push_str(
                "\n# Collectives at the sizes that were measured, as rows of a tuner. Every rank needs the same \
                 file.\n",
            );
            text += &match plugin {
                Some(plugin) => shell_setting("NCCL_TUNER_PLUGIN", plugin)? + "\n",
                None => "# libpathline_tuner.so was not found next to pathline: put it into the folder of this file,\n\
                     # and export NCCL_TUNER_PLUGIN with its path. RCCL with a built-in tuner (rocm-systems#4503)\n\
                     # needs no plugin: export NCCL_TUNER_CONFIG_FILE with the path of tuner.csv.\n"
                    .to_owned(),
            };
        }
        Ok(text)
    }

    /// The rows of a tuner for NCCL and RCCL, one for each proven answer about a collective.
    pub fn tuner_rows(&self) -> Vec<TunerRow> {
        let mut rows: Vec<TunerRow> = Vec::new();
        for row in self.answers.iter().filter_map(Advice::tuner_row) {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// The same as a file, which pathline's tuner, NCCL's example tuner and RCCL read; none without rows.
    pub fn tuner_text(&self) -> Option<String> {
        let rows = self.tuner_rows();
        let AdviceOrigin { node, date, version, .. } = &self.origin;
        let comment = format!("Proven by pathline {version} on {node}, {date}.");
        (!rows.is_empty()).then(|| tuner_rows_text(&plain_line(&comment), &rows))
    }

    /// The questions that are to be proven again: each change with its own default and no other choice.
    pub fn questions_again(&self) -> Vec<crate::AdviceScope> {
        let again = |verdict| matches!(verdict, AdviceVerdict::Proven | AdviceVerdict::Predicted);
        let changes = self.answers.iter().filter(|a| again(a.verdict));
        let scope = |advice: &Advice| {
            Some(crate::AdviceScope {
                subject: advice.subject.clone(),
                ends: advice.subject.clone(),
                baseline: advice.baseline.clone(),
                choices: vec![advice.choice.clone()?],
            })
        };
        changes.filter_map(scope).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdviceChoice, ArmEnv, ArmTask, GainInterval, TrialArm};

    fn answer(settings: &[(&str, &str)], verdict: AdviceVerdict) -> Advice {
        let env: ArmEnv =
            settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let arm = TrialArm { label: "x".to_owned(), task: ArmTask::Command, env: env.clone() };
        let baseline = TrialArm { env: ArmEnv::new(), ..arm.clone() };
        let choice = AdviceChoice::of_setting("Set it".to_owned(), "", "");
        Advice {
            choice: Some(AdviceChoice { arm, settings: env, ..choice }),
            gain: Some(GainInterval { gain: 0.12, low: 0.1, high: 0.15, blocks: 9 }),
            ..Advice::new("the job\nrm -rf".to_owned(), baseline, verdict, String::new())
        }
    }

    fn file(answers: Vec<Advice>) -> AdviceFile {
        AdviceFile { format: 1, origin: AdviceOrigin::default(), task: None, answers }
    }

    #[test]
    fn variables_are_quoted_and_texts_stay_comments() {
        let proven = answer(&[("A", "x y'z"), ("B", "")], AdviceVerdict::Proven);
        let kept = answer(&[("C", "1")], AdviceVerdict::Keep);
        let text = file(vec![proven, kept]).env_text(None).unwrap();
        let commands: Vec<&str> =
            text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
        assert_eq!(commands, [r"export A='x y'\''z'", "unset B"]);
        assert!(text.contains("# the job rm -rf: +12 % [+10, +15]\n"), "{text}");
    }

    /// Every text of the answers ends a comment, a quote or a command in its own way; the shell does what it did.
    #[test]
    fn no_text_of_answers_becomes_a_command() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "x\ntouch canary\n",
            "x\r\n`touch canary`",
            "'; touch canary #",
            "$(touch canary)\n# ;;",
        ] {
            let mut proven = answer(&[("A", text), ("B", "")], AdviceVerdict::Proven);
            proven.subject = text.to_owned();
            let choice = proven.choice.as_mut().unwrap();
            (choice.action, choice.cost) = (text.to_owned(), text.to_owned());
            let mut other = proven.clone();
            other.choice.as_mut().unwrap().settings.insert("A".to_owned(), format!("{text}2"));
            other.choice.as_mut().unwrap().settings.insert("C".to_owned(), text.to_owned());
            let (node, date, version) = (text.to_owned(), text.to_owned(), text.to_owned());
            let origin = AdviceOrigin {
                node,
                date,
                version,
                parts: vec![text.to_owned()],
                ..AdviceOrigin::default()
            };
            let all = AdviceFile { origin, ..file(vec![proven, other]) };
            let script = all.env_text(Some(text)).unwrap() + "printf '%s|' \"$C\" \"${A-none}\"";
            let mut shell = std::process::Command::new("/bin/sh");
            shell.args(["-c", &script]).env_remove("A").current_dir(dir.path());
            let shell = shell.output().unwrap();
            assert_eq!(
                String::from_utf8(shell.stdout).unwrap(),
                format!("{text}|none|"),
                "{script}"
            );
            assert!(shell.stderr.is_empty(), "{script}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let named = file(vec![answer(&[("A;touch canary", "1")], AdviceVerdict::Proven)]);
        let error = named.env_text(None).unwrap_err().to_string();
        assert!(error.contains("A;touch canary"), "{error}");
    }

    #[test]
    fn contradictions_are_not_set() {
        let a = answer(&[("A", "1"), ("B", "1")], AdviceVerdict::Proven);
        let b = answer(&[("A", "2"), ("B", "1")], AdviceVerdict::Proven);
        let text = file(vec![a, b]).env_text(None).unwrap();
        assert!(
            !text.contains("\nexport A") && text.contains("# contradicted: export A=2"),
            "{text}"
        );
        assert_eq!(text.matches("\nexport B=1").count(), 2);
    }

    #[test]
    fn proven_collectives_become_rows_of_a_tuner() {
        let text = "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1MiB";
        let of = |by_row_only: bool, verdict: AdviceVerdict| {
            let mut advice = answer(&[("NCCL_PROTO", "LL")], verdict);
            advice.chosen = Some("ring ll on 16 channels".to_owned());
            advice.by_row_only = by_row_only;
            if let Some(choice) = &mut advice.choice {
                choice.arm.task = ArmTask::Case(text.parse().unwrap());
            }
            advice
        };
        let all = file(vec![of(true, AdviceVerdict::Proven), of(true, AdviceVerdict::Proven)]);
        // 3/4 and 3/2 of 2^20; the channels are the library's.
        let row = "allreduce,786432,1572863,ring,ll,0,1,8";
        let rows = all.tuner_text().unwrap();
        assert!(rows.lines().filter(|line| !line.starts_with('#')).eq([row]), "{rows}");
        // The variable harms elsewhere: it is not set.
        let env = all.env_text(Some("/a b/libpathline_tuner.so")).unwrap();
        assert!(!env.contains("export NCCL_PROTO"), "{env}");
        assert!(env.contains("export NCCL_TUNER_PLUGIN='/a b/libpathline_tuner.so'\n"), "{env}");
        let without = all.env_text(None).unwrap();
        assert!(!without.contains("\nexport") && without.contains("NCCL_TUNER_CONFIG_FILE"));
        let harmless = file(vec![of(false, AdviceVerdict::Proven)]);
        assert!(harmless.env_text(None).unwrap().contains("\nexport NCCL_PROTO=LL\n"));
        assert_eq!(harmless.tuner_rows().len(), 1);
        let kept = file(vec![of(false, AdviceVerdict::Keep)]);
        assert_eq!(
            (kept.tuner_text(), kept.env_text(None).unwrap().contains("tuner")),
            (None, false)
        );
    }

    #[test]
    fn a_file_is_read_back_and_proven_again() {
        let proven = answer(&[("A", "1")], AdviceVerdict::Proven);
        let all = file(vec![proven, answer(&[], AdviceVerdict::Keep)]);
        assert_eq!(AdviceFile::parse(&all.text()).unwrap(), all);
        assert_eq!(all.questions_again().len(), 1);
        let later = all.text().replace("\"format\": 1", "\"format\": 2");
        assert!(matches!(AdviceFile::parse(&later), Err(AdviceFileError::Format(2))));
        assert!(matches!(AdviceFile::parse("{}"), Err(AdviceFileError::Json(_))));
    }

    #[test]
    fn what_changed_on_a_node_is_named() {
        let was =
            AdviceOrigin { node: "a".into(), parts: vec!["driver 1".into()], ..Default::default() };
        let now = AdviceOrigin { parts: vec!["driver 2".into()], ..was.clone() };
        assert_eq!(was.differences(&was), Vec::<String>::new());
        assert_eq!(was.differences(&now), ["then: driver 1", "now: driver 2"]);
    }
}
