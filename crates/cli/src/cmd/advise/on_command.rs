//! `pathline advise --command`: trials on a program of the user.

use anyhow::{Context, Result, bail};
use pathline_advise::{
    Advice, AdviceChoice, AdviceLimits, AdviceOrigin, AdviceScope, ArmEnv, ArmTask, CommandTask,
    KeptTrials, TrialArm, TrialRecord, TrialRunner, arm_keys, is_setting,
};
use pathline_runner::{CommandTrials, TrialFile, TrialSession, hostname};

use super::AdviceRun;
use super::answer_parts::{answer_origin, host_parts};
use super::mpi_controls::controls_for;
use crate::cmd::setting_words::parse_settings;
use crate::cmd::trial_placement::TrialPlacement;
use crate::say::{self, errln};

impl AdviceRun<'_> {
    pub(super) fn on_command(&self, task: &CommandTask) -> Result<(AdviceOrigin, Vec<Advice>)> {
        let scopes = match &self.earlier {
            Some(file) => file.questions_again(),
            None => vec![self.command_scope(&task.command)?],
        };
        let answers = self.command_trials(task, &scopes, &ArmEnv::new(), |runner, limits| {
            self.answers(&scopes, runner, limits)
        })?;
        Ok((answer_origin(&hostname(), host_parts(), false), answers))
    }

    /// Runs the command, and with --trials keeps what it gives.
    pub(super) fn command_trials<T>(
        &self,
        task: &CommandTask,
        scopes: &[AdviceScope],
        reviewed: &ArmEnv,
        run: impl FnOnce(&mut dyn TrialRunner, &AdviceLimits) -> T,
    ) -> Result<T> {
        let interrupt = || self.stopper.reason();
        let runner = CommandTrials::new(task, self.args.deadline, &interrupt);
        let mut runner = runner.map_err(anyhow::Error::msg)?.with_mpi(controls_for(scopes));
        let limits = self.limits();
        let Some(path) = &self.args.trials else {
            let answer = run(&mut runner, &limits);
            report_ended(&runner);
            if self.stopper.reason().is_some() {
                errln!("pathline: no run of the command is kept; --trials FILE keeps them");
            }
            return Ok(answer);
        };
        let (mut file, past) =
            TrialFile::open(path, &self.trial_session(task, scopes, reviewed, &limits)?)?;
        let begun_with = file.begun_with();
        if !reviewed.is_empty() && begun_with != limits.budget {
            bail!(
                "{}: its session was given a --budget of {begun_with:.0} s, which --review shares out among the \
                 variables; repeat it with that, or name another file after --trials",
                path.display()
            );
        }
        if !past.is_empty() && !say::is_quiet() {
            let seconds: f64 = past.iter().map(TrialRecord::seconds).sum();
            errln!(
                "pathline: {} has {} runs of {seconds:.0} s in all; going on after them",
                path.display(),
                past.iter().filter(|record| matches!(record, TrialRecord::Trial { .. })).count()
            );
        }
        let mut runner = runner.marked(Some(file.mark()));
        let mut keep = |record: &TrialRecord| file.keep(record);
        let limits = AdviceLimits { begun_with: Some(begun_with), ..limits };
        let answer = run(&mut KeptTrials::new(&mut runner, past, &mut keep), &limits);
        report_ended(&runner);
        if self.stopper.reason().is_some() {
            let path = path.display();
            errln!(
                "pathline: the runs that ended are kept in {path}; the same call goes on after them"
            );
        }
        Ok(answer)
    }

    fn trial_session(
        &self,
        task: &CommandTask,
        scopes: &[AdviceScope],
        reviewed: &ArmEnv,
        limits: &AdviceLimits,
    ) -> Result<TrialSession> {
        let all = std::env::vars_os();
        let all = all.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let mut set: ArmEnv = all.filter(|(name, _)| is_setting(name)).collect();
        set.extend(reviewed.clone());
        Ok(TrialSession {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: hostname(),
            parts: host_parts(),
            folder: std::env::current_dir().context("the current folder")?,
            task: task.clone(),
            arms: arm_keys(scopes),
            set,
            min_gain: limits.min_gain,
            seed: limits.seed,
            budget: limits.budget,
        })
    }

    /// The question whether one of the settings of --set makes the command better.
    pub(super) fn command_scope(&self, command: &str) -> Result<AdviceScope> {
        let task = || ArmTask::Command;
        let mut choices: Vec<AdviceChoice> =
            self.placement.iter().map(TrialPlacement::choice).collect();
        for words in &self.args.set {
            let env = parse_settings(words)?;
            choices.push(AdviceChoice {
                arm: TrialArm { label: words.clone(), task: task(), env: env.clone() },
                action: format!("Set {words}"),
                cost: String::new(),
                settings: env,
                guards: Vec::new(),
                ignored: None,
                nodes: 1,
            });
        }
        if choices.is_empty() && !self.args.is_review() {
            bail!(
                "nothing to try with --command: add --set NAME=VALUE, --place RANKS, or --review for what is \
                 set"
            );
        }
        Ok(AdviceScope {
            subject: format!("`{command}`"),
            ends: command.to_owned(),
            baseline: TrialArm { label: "default".to_owned(), task: task(), env: ArmEnv::new() },
            choices,
        })
    }
}

/// Says which processes of the command did not end with it.
fn report_ended(trials: &CommandTrials<'_>) {
    let left = trials.left();
    if left > 0 {
        errln!(
            "pathline: the command left {left} processes running, which were ended after each run"
        );
    }
}

/// Whether a metric is named like a rate, of which more is better.
pub(super) fn is_rate(metric: &str) -> bool {
    let metric = metric.to_lowercase();
    let names = [
        "bandwidth",
        "busbw",
        "algbw",
        "throughput",
        "iops",
        "flop",
        "bps",
        "b/s",
        "/sec",
        "per second",
    ];
    names.iter().any(|name| metric.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_split_at_blanks() {
        let env = parse_settings("NCCL_ALGO=Ring  X=a=b").unwrap();
        assert_eq!(
            env,
            ArmEnv::from([("NCCL_ALGO".into(), "Ring".into()), ("X".into(), "a=b".into())])
        );
        for bad in ["", "A", "=1", "A="] {
            assert!(parse_settings(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn metrics_named_like_rates_are_recognised() {
        let rates =
            ["Avg bus bandwidth *: *([0-9.]+)", "busbw ([0-9]+)", "([0-9]+) GB/s", "TFLOPS: (.*)"];
        assert!(rates.iter().all(|metric| is_rate(metric)));
        let times = ["decode ([0-9.]+) ms", "([0-9]+) s", "cost ([0-9])", "latency_us=([0-9.]+)"];
        assert!(!times.iter().any(|metric| is_rate(metric)));
    }
}
