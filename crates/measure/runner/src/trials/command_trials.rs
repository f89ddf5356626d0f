//! Trials that run the command of a user.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use pathline_advise::{
    ArmEnv, ArmTask, CommandLog, CommandTask, GuardFigure, GuardTask, MpiCommandLog, TrialArm,
    TrialCost, TrialRecord, TrialRunner,
};
use pathline_bench::InterruptCheck;
use pathline_schema::{Bytes, MpiControls};
use regex_lite::Regex;

use super::command_process::{CommandOutput, CommandProcess, EndedCommand};

/// How often a wait for the command looks at its time limit.
const TICK: Duration = Duration::from_millis(5);
/// How long after a failed run an interrupt counts as its cause.
const INTERRUPT_DELAY: Duration = Duration::from_millis(200);
/// Characters of its last line in errors.
const TAIL_CHARS: usize = 200;

/// Loss of wall time that counts as none unless a user says otherwise, and the same in seconds: programs of a
/// fraction of a second differ by their start.
const WALL_TIME_MARGIN: (f64, f64) = (0.05, 0.1);
/// Loss of another guarded figure that counts as none unless a user says otherwise.
const GUARD_MARGIN: f64 = 0.01;

/// Reads a number from what a command printed.
#[derive(Debug, Clone)]
pub struct MetricReader {
    /// The argument that named it, for errors.
    option: &'static str,
    pattern: Regex,
    /// Whether a larger number is better.
    pub higher_is_better: bool,
}

impl MetricReader {
    /// From a regular expression: its first group, or all of it, is the number. Of several matches the
    /// last counts.
    ///
    /// # Errors
    /// It is no regular expression.
    pub fn new(pattern: &str, higher_is_better: bool) -> Result<Self, String> {
        let parsed = Regex::new(pattern);
        let pattern = parsed.map_err(|e| format!("'{pattern}' is no regular expression: {e}"))?;
        Ok(Self { option: "--metric", pattern, higher_is_better })
    }

    /// The same for a guarded figure.
    ///
    /// # Errors
    /// It is no regular expression.
    pub fn of_guard(guard: &GuardTask) -> Result<Self, String> {
        let option = if guard.higher { "--guard-rate" } else { "--guard" };
        Ok(Self { option, ..Self::new(&guard.pattern, guard.higher)? })
    }

    /// The cost: the number, or one over it if more is better. `cut` bytes were printed before `output`.
    ///
    /// # Errors
    /// Nothing matches, or what matches is no number above 0.
    fn cost(&self, output: &str, cut: u64) -> Result<f64, String> {
        let found = self.pattern.captures_iter(output).last();
        let found = found.and_then(|all| all.get(1).or_else(|| all.get(0)));
        let Some(text) = found.map(|m| m.as_str()) else {
            let last = output.lines().next_back().unwrap_or("");
            let last: String = last.chars().take(TAIL_CHARS).collect();
            let part = match cut {
                0 => String::new(),
                cut => format!(" behind the first {}, which are not kept", Bytes(cut).rounded()),
            };
            return Err(format!(
                "{} matches nothing that it printed{part}; its last line: '{last}'",
                self.option
            ));
        };
        let number = text.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
        let number = number.ok_or_else(|| format!("'{text}' is no number above 0"))?;
        Ok(if self.higher_is_better { 1.0 / number } else { number })
    }
}

/// Runs a command by `/bin/sh -c` once for each arm of each block.
pub struct CommandTrials<'a> {
    command: String,
    /// None: the cost is the time that it takes.
    metric: Option<MetricReader>,
    guards: Vec<(GuardFigure, GuardReader)>,
    /// After which it is ended, if a user set one; else from its first run.
    limit: Option<Duration>,
    interrupt: InterruptCheck<'a>,
    begun: Instant,
    /// A variable of each run, by which a later process finds what is left of it.
    mark: Option<(String, String)>,
    /// What the log of an untimed run with each environment shows; none if that run failed.
    logs: BTreeMap<ArmEnv, Option<CommandLog>>,
    /// The same of lists of an MPI, and the MPI of this host.
    mpi_logs: BTreeMap<ArmEnv, Option<MpiCommandLog>>,
    mpi: Option<MpiControls>,
    /// Processes that outlived their run and were ended.
    left: usize,
}

/// Where a guarded figure comes from.
#[derive(Debug, Clone)]
enum GuardReader {
    WallTime,
    Printed(MetricReader),
}

/// A run of the command that ended well.
struct CommandRun {
    output: CommandOutput,
    took: Duration,
}

/// Least time limit that follows from a first run.
const LEAST_LIMIT: Duration = Duration::from_secs(30);
/// The same as a factor of the first run.
const LIMIT_FACTOR: u32 = 5;

impl<'a> CommandTrials<'a> {
    /// Of a command. `limit` is the time after which a run is ended; by default five times the first
    /// run, 30 s at least. Where its cost is not its time, its time is guarded.
    ///
    /// # Errors
    /// A metric is no regular expression.
    pub fn new(
        task: &CommandTask,
        limit: Option<Duration>,
        interrupt: InterruptCheck<'a>,
    ) -> Result<Self, String> {
        let metric = task.metric.as_deref().map(|text| MetricReader::new(text, task.higher));
        let metric = metric.transpose()?;
        let mut guards = Vec::new();
        if metric.is_some() {
            let (allowed, floor) = WALL_TIME_MARGIN;
            let allowed = task.guard_margin.unwrap_or(allowed);
            let label = "wall time".to_owned();
            guards.push((GuardFigure { label, allowed, floor }, GuardReader::WallTime));
        }
        for guard in &task.guards {
            let (label, floor) = (format!("'{}'", guard.pattern), 0.0);
            let allowed = task.guard_margin.unwrap_or(GUARD_MARGIN);
            let reader = GuardReader::Printed(MetricReader::of_guard(guard)?);
            guards.push((GuardFigure { label, allowed, floor }, reader));
        }
        Ok(Self {
            command: task.command.clone(),
            metric,
            guards,
            limit,
            interrupt,
            begun: Instant::now(),
            mark: None,
            logs: BTreeMap::new(),
            mpi_logs: BTreeMap::new(),
            mpi: None,
            left: 0,
        })
    }

    /// How many processes outlived their run and were ended.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The same on a host with this MPI, without any setting.
    #[must_use]
    pub fn with_mpi(self, mpi: Option<MpiControls>) -> Self {
        Self { mpi, ..self }
    }

    /// The same, each run with this variable.
    #[must_use]
    pub fn marked(self, mark: Option<(String, String)>) -> Self {
        Self { mark, ..self }
    }

    fn set_limit(&mut self, first: Duration) {
        self.limit.get_or_insert((first * LIMIT_FACTOR).max(LEAST_LIMIT));
    }

    fn measure(&mut self, arm: &TrialArm) -> Result<TrialCost, String> {
        if arm.task != ArmTask::Command {
            return Err("a case is no command".to_owned());
        }
        let CommandRun { output, took } = self.run(&arm.env, false)?;
        self.set_limit(took);
        let (took, text, cut) = (took.as_secs_f64(), output.last(), output.cut());
        let cost = self.metric.as_ref().map_or(Ok(took), |metric| metric.cost(&text, cut))?;
        let guarded = self.guards.iter().map(|(_, reader)| match reader {
            GuardReader::WallTime => Ok(took),
            GuardReader::Printed(metric) => metric.cost(&text, cut),
        });
        Ok(TrialCost { cost, guarded: guarded.collect::<Result<_, String>>()? })
    }

    /// Runs the command once.
    fn run(&mut self, env: &ArmEnv, is_logged: bool) -> Result<CommandRun, String> {
        let mark = &self.mark;
        let set = |command: &mut Command| {
            command.envs(mark.iter().map(|(name, value)| (name, value)));
            for (name, value) in env {
                match value.as_str() {
                    "" => command.env_remove(name),
                    value => command.env(name, value),
                };
            }
        };
        let begun = Instant::now();
        let process = CommandProcess::start(&self.command, set, is_logged);
        let process = process.map_err(|e: io::Error| format!("`sh -c` cannot be started: {e}"))?;
        let stopped = self.wait(&process, begun);
        let took = begun.elapsed();
        let EndedCommand { status, output, left } = process.end();
        self.left += left;
        if let Some(why) = stopped {
            return Err(why);
        }
        let status = status.ok_or("its end is unknown")?;
        if !status.success() {
            // What ends a job step sends its signal to all processes; the command may die of it before this
            // process knows, and has not failed by itself.
            if let Some(why) = self.interrupt_within(INTERRUPT_DELAY) {
                return Err(why);
            }
            let text = output.last();
            let last: String =
                text.lines().next_back().unwrap_or("").chars().take(TAIL_CHARS).collect();
            let ending = ending(status);
            return Err(match last.trim() {
                "" => format!("it ended with {ending}"),
                last => format!("it ended with {ending}: {last}"),
            });
        }
        Ok(CommandRun { output, took })
    }

    /// What the log of the command shows with these settings, from an untimed run: writing a log takes time.
    fn log(&mut self, env: &ArmEnv) -> Option<&CommandLog> {
        if !self.logs.contains_key(env) {
            let text = self.log_text(env, CommandLog::variables());
            self.logs.insert(env.clone(), text.map(|text| CommandLog::read(&text)));
        }
        self.logs.get(env)?.as_ref()
    }

    /// The same of the list that its MPI prints.
    fn mpi_log(&mut self, env: &ArmEnv) -> Option<&MpiCommandLog> {
        if !self.mpi_logs.contains_key(env) {
            let text = self.log_text(env, MpiCommandLog::variables());
            self.mpi_logs.insert(env.clone(), text.map(|text| MpiCommandLog::read(&text)));
        }
        self.mpi_logs.get(env)?.as_ref()
    }

    /// What an untimed run with these settings and variables for a log prints; none if it fails.
    fn log_text(&mut self, env: &ArmEnv, variables: ArmEnv) -> Option<String> {
        let mut all = env.clone();
        all.extend(variables);
        Some(self.run(&all, true).ok()?.output.first())
    }

    fn interrupt_within(&self, time: Duration) -> Option<String> {
        let begun = Instant::now();
        loop {
            let why = (self.interrupt)();
            if why.is_some() || begun.elapsed() >= time {
                return why;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Waits for the end of a run, or for the reason to end it.
    fn wait(&self, process: &CommandProcess, begun: Instant) -> Option<String> {
        loop {
            match process.has_ended() {
                Ok(true) => return None,
                Ok(false) => {}
                Err(error) => return Some(format!("cannot be waited for: {error}")),
            }
            let late = self.limit.filter(|limit| begun.elapsed() >= *limit);
            let why = late.map(|limit| format!("it was ended after {:.0} s", limit.as_secs_f64()));
            if let Some(why) = why.or_else(|| (self.interrupt)()) {
                return Some(why);
            }
            std::thread::sleep(TICK);
        }
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    }
}

impl TrialRunner for CommandTrials<'_> {
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<TrialCost, String>> {
        arms.iter().map(|arm| self.measure(arm)).collect()
    }
    fn guard_figures(&self) -> Vec<GuardFigure> {
        self.guards.iter().map(|(figure, _)| figure.clone()).collect()
    }
    fn elapsed(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
    fn interrupted(&self) -> Option<String> {
        (self.interrupt)()
    }
    fn repeat(&mut self, record: &TrialRecord) {
        // The first run that ends well sets the limit; a failed one may have ended at once.
        if let TrialRecord::Trial { seconds, cost: Ok(_), .. } = record {
            self.set_limit(Duration::try_from_secs_f64(*seconds).unwrap_or(LEAST_LIMIT));
        }
    }
    fn honoured(&mut self, baseline: &TrialArm, arm: &TrialArm) -> Option<Result<String, String>> {
        let differs = |(name, value): &(&String, &String)| baseline.env.get(*name) != Some(*value);
        let changed: ArmEnv =
            arm.env.iter().filter(differs).map(|(n, v)| (n.clone(), v.clone())).collect();
        if MpiCommandLog::shows(&changed) {
            let library = self.mpi.clone();
            return self.mpi_log(&arm.env)?.judge(&changed, library.as_ref());
        }
        if !CommandLog::shows(&changed) {
            return None;
        }
        let default = self.log(&baseline.env)?.clone();
        self.log(&arm.env)?.judge(&default, &changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_advise::ArmEnv;

    fn task(command: &str, metric: Option<&str>, higher: bool) -> CommandTask {
        let metric = metric.map(str::to_owned);
        let (command, guards) = (command.to_owned(), Vec::new());
        CommandTask { command, metric, higher, guards, guard_margin: None }
    }

    fn measure(task: &CommandTask, env: &[(&str, &str)]) -> Result<TrialCost, String> {
        let env: ArmEnv = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let arm = TrialArm { label: String::new(), task: ArmTask::Command, env };
        let limit = Some(Duration::from_millis(600));
        CommandTrials::new(task, limit, &|| None)?.measure(&arm)
    }

    /// The cost, of which less is better.
    fn run(text: &str, metric: Option<&str>, env: &[(&str, &str)]) -> Result<f64, String> {
        measure(&task(text, metric, false), env).map(|cost| cost.cost)
    }

    #[test]
    fn the_metric_is_read_from_either_stream() {
        let text = "echo 10 GB/s; echo $X GB/s >&2";
        let rate = task(text, Some(r"([0-9.]+) GB/s"), true);
        // The last match counts, and more is better: 1 / 40.
        assert_eq!(measure(&rate, &[("X", "40")]).map(|cost| cost.cost), Ok(0.025));
        let nothing = CommandTask { command: "echo nothing".to_owned(), ..rate.clone() };
        let missing = measure(&nothing, &[]).unwrap_err();
        assert!(missing.contains("matches nothing") && missing.contains("'nothing'"), "{missing}");
        assert!(measure(&rate, &[("X", "-0")]).is_err());
        assert!(MetricReader::new("(", false).is_err());
    }

    #[test]
    fn wall_time_and_printed_figures_are_guarded() {
        let guard = |pattern: &str, higher| GuardTask { pattern: pattern.to_owned(), higher };
        let guards = vec![guard("mem ([0-9]+)", false), guard("acc ([0-9.]+)", true)];
        let all = CommandTask {
            guards,
            ..task("echo rate 5 mem 7 acc 0.5", Some("rate ([0-9]+)"), true)
        };
        let cost = measure(&all, &[]).unwrap();
        // A fifth; a time; 7; and 1 / 0.5.
        assert_eq!(
            (cost.cost, cost.guarded.len(), cost.guarded[1..].to_vec()),
            (0.2, 3, vec![7.0, 2.0])
        );
        assert!(cost.guarded[0] > 0.0 && cost.guarded[0] < 0.6);
        let trials = CommandTrials::new(&all, None, &|| None).unwrap();
        let shown: Vec<String> =
            trials.guard_figures().iter().map(GuardFigure::to_string).collect();
        let wall = "wall time loses less than 5 % or 0.1 s";
        assert_eq!(
            shown,
            [wall, "'mem ([0-9]+)' loses less than 1 %", "'acc ([0-9.]+)' loses less than 1 %"]
        );
        // The time is the cost: nothing else is guarded.
        let time = CommandTrials::new(&task("true", None, false), None, &|| None).unwrap();
        assert_eq!(time.guard_figures(), []);
        let lost = CommandTask { command: "echo rate 5 mem 7".to_owned(), ..all };
        let why = measure(&lost, &[]).unwrap_err();
        assert!(why.starts_with("--guard-rate matches nothing"), "{why}");
    }

    #[test]
    fn an_empty_value_removes_a_variable() {
        let count = || Some("([0-9]+)");
        assert_eq!(run("echo ${PATH+1}2", count(), &[("PATH", "/bin:/usr/bin")]), Ok(12.0));
        assert_eq!(run("echo ${HOME+1}2", count(), &[("HOME", "")]), Ok(2.0));
    }

    #[test]
    fn commands_that_fail_or_hang_have_no_cost() {
        assert_eq!(
            run("echo why; exit 3", None, &[]).unwrap_err(),
            "it ended with exit code 3: why"
        );
        assert_eq!(run("exit 3", None, &[]).unwrap_err(), "it ended with exit code 3");
        assert!(run("kill -9 $$", None, &[]).unwrap_err().contains("signal 9"));
        // The sleep is a child of the shell, and must not outlive the limit either.
        let begun = Instant::now();
        assert!(run("sleep 20; true", None, &[]).unwrap_err().contains("ended after"));
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(run("true", None, &[]).unwrap() > 0.0);
    }
}
