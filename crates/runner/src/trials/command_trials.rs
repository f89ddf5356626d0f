//! Trials that run the command of a user.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pathline_advise::{ArmEnv, ArmTask, CommandLog, TrialArm, TrialRecord, TrialRunner};
use pathline_bench::InterruptCheck;
use regex_lite::Regex;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often a wait for the command looks at its time limit.
const TICK: Duration = Duration::from_millis(5);
/// How long after a failed run an interrupt counts as its cause.
const INTERRUPT_DELAY: Duration = Duration::from_millis(200);
/// Bytes at the end of its output in which the metric is looked for.
const MAX_OUTPUT: u64 = 4 << 20;
/// Bytes at the beginning of its output in which the log of a library is looked for.
const MAX_LOG: u64 = 16 << 20;
/// Characters of its last line in errors.
const TAIL_CHARS: usize = 200;

/// Reads a number from what a command printed.
#[derive(Debug, Clone)]
pub struct MetricReader {
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
        Ok(Self { pattern, higher_is_better })
    }

    /// The cost: the number, or one over it if more is better.
    ///
    /// # Errors
    /// Nothing matches, or what matches is no number above 0.
    pub fn cost(&self, output: &str) -> Result<f64, String> {
        let found = self.pattern.captures_iter(output).last();
        let found = found.and_then(|all| all.get(1).or_else(|| all.get(0)));
        let Some(text) = found.map(|m| m.as_str()) else {
            let last = output.lines().next_back().unwrap_or("");
            let last: String = last.chars().take(TAIL_CHARS).collect();
            return Err(format!(
                "--metric matches nothing that it printed; its last line: '{last}'"
            ));
        };
        let number = text.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
        let number = number.ok_or_else(|| format!("'{text}' is no number above 0"))?;
        Ok(if self.higher_is_better { 1.0 / number } else { number })
    }
}

/// Runs a command by `sh -c` once for each arm of each block.
pub struct CommandTrials<'a> {
    command: String,
    /// None: the cost is the time that it takes.
    metric: Option<MetricReader>,
    /// After which it is ended, if a user set one; else from its first run.
    limit: Option<Duration>,
    interrupt: InterruptCheck<'a>,
    begun: Instant,
    /// A variable of each run, by which a later process finds what is left of it.
    mark: Option<(String, String)>,
    /// What the log of an untimed run with each environment shows; none if that run failed.
    logs: BTreeMap<ArmEnv, Option<CommandLog>>,
}

/// A run of the command that ended well.
struct CommandRun {
    output: File,
    took: Duration,
}

/// Least time limit that follows from a first run.
const LEAST_LIMIT: Duration = Duration::from_secs(30);
/// The same as a factor of the first run.
const LIMIT_FACTOR: u32 = 5;

impl<'a> CommandTrials<'a> {
    /// Of a command. `limit` is the time after which a run is ended; by default five times the first
    /// run, 30 s at least.
    pub fn new(
        command: String,
        metric: Option<MetricReader>,
        limit: Option<Duration>,
        interrupt: InterruptCheck<'a>,
    ) -> Self {
        let logs = BTreeMap::new();
        Self { command, metric, limit, interrupt, begun: Instant::now(), mark: None, logs }
    }

    /// The same, each run with this variable.
    #[must_use]
    pub fn marked(self, mark: Option<(String, String)>) -> Self {
        Self { mark, ..self }
    }

    fn set_limit(&mut self, first: Duration) {
        self.limit.get_or_insert((first * LIMIT_FACTOR).max(LEAST_LIMIT));
    }

    fn measure(&mut self, arm: &TrialArm) -> Result<f64, String> {
        if arm.task != ArmTask::Command {
            return Err("a case is no command".to_owned());
        }
        let CommandRun { mut output, took } = self.run(&arm.env)?;
        self.set_limit(took);
        match &self.metric {
            Some(metric) => metric.cost(&output_tail(&mut output)?),
            None => Ok(took.as_secs_f64()),
        }
    }

    /// Runs the command once.
    fn run(&self, env: &ArmEnv) -> Result<CommandRun, String> {
        let started = |error: io::Error| format!("`sh -c` cannot be started: {error}");
        let output = memfd_create("pathline-output", MemfdFlags::CLOEXEC);
        let mut output = File::from(output.map_err(|e| started(e.into()))?);
        let both =
            (output.try_clone().and_then(|out| Ok((out, output.try_clone()?)))).map_err(started)?;
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).stdin(Stdio::null()).stdout(both.0).stderr(both.1);
        command.envs(self.mark.iter().map(|(name, value)| (name, value)));
        for (name, value) in env {
            match value.as_str() {
                "" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        let begun = Instant::now();
        // Its own group, so that whatever it starts is ended with it.
        let mut child = command.process_group(0).spawn().map_err(started)?;
        let status = self.wait(&mut child, begun)?;
        let took = begun.elapsed();
        if !status.success() {
            // What ends a job step sends its signal to all processes; the command may die of it before this
            // process knows, and has not failed by itself.
            if let Some(why) = self.interrupt_within(INTERRUPT_DELAY) {
                return Err(why);
            }
            let text = output_tail(&mut output)?;
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
            let mut all = env.clone();
            all.extend(CommandLog::variables());
            let read = |mut run: CommandRun| {
                let text = read_from(&mut run.output, 0, MAX_LOG).ok()?;
                Some(CommandLog::read(&text))
            };
            let log = self.run(&all).ok().and_then(read);
            self.logs.insert(env.clone(), log);
        }
        self.logs.get(env)?.as_ref()
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

    /// Waits for the end of a run, and ends it if it takes too long or the session ends.
    fn wait(&self, child: &mut Child, begun: Instant) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) =
                child.try_wait().map_err(|e| format!("cannot be waited for: {e}"))?
            {
                return Ok(status);
            }
            let late = self.limit.filter(|limit| begun.elapsed() >= *limit);
            let why = late.map(|limit| format!("it was ended after {:.0} s", limit.as_secs_f64()));
            if let Some(why) = why.or_else(|| (self.interrupt)()) {
                end_group(child);
                return Err(why);
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Kills a process and all that it started in its group.
fn end_group(child: &mut Child) {
    // A process that is already gone needs no signal.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    }
}

/// The end of what a command printed.
fn output_tail(file: &mut File) -> Result<String, String> {
    let length = file.metadata().map(|about| about.len());
    let text =
        length.and_then(|length| read_from(file, length.saturating_sub(MAX_OUTPUT), MAX_OUTPUT));
    text.map_err(|e| format!("its output cannot be read: {e}"))
}

/// Up to `most` bytes of a file, as text.
fn read_from(file: &mut File, from: u64, most: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl TrialRunner for CommandTrials<'_> {
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<f64, String>> {
        arms.iter().map(|arm| self.measure(arm)).collect()
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

    fn run(text: &str, metric: Option<MetricReader>, env: &[(&str, &str)]) -> Result<f64, String> {
        let env: ArmEnv = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let arm = TrialArm { label: String::new(), task: ArmTask::Command, env };
        let limit = Some(Duration::from_millis(600));
        CommandTrials::new(text.to_owned(), metric, limit, &|| None).measure(&arm)
    }

    #[test]
    fn the_metric_is_read_from_either_stream() {
        let bandwidth = || MetricReader::new(r"([0-9.]+) GB/s", true).ok();
        let text = "echo 10 GB/s; echo $X GB/s >&2";
        // The last match counts, and more is better: 1 / 40.
        assert_eq!(run(text, bandwidth(), &[("X", "40")]), Ok(0.025));
        let missing = run("echo nothing", bandwidth(), &[]).unwrap_err();
        assert!(missing.contains("matches nothing") && missing.contains("'nothing'"), "{missing}");
        assert!(run(text, bandwidth(), &[("X", "-0")]).is_err());
        assert!(MetricReader::new("(", false).is_err());
    }

    #[test]
    fn an_empty_value_removes_a_variable() {
        let count = || MetricReader::new(r"([0-9]+)", false).ok();
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
