//! Arguments of `pathline advise`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use pathline_advise::{CommandTask, GuardTask};
use pathline_schema::{Bytes, Case, Collective, CpuSet, ParseError};

use super::units::{count, duration, gpu_list, percent, seed};
use super::{AuditArgs, CASES, FILES, LibraryArgs, OUTPUT, PROCESSES, TIME, size};
use crate::known_name::KnownName;

/// What to ask, and what counts as an answer.
#[derive(Debug, Parser)]
#[command(
    after_help = "Exit codes: 0 answered; 1 a setting of a job should go, or an earlier answer of --check no \
                  longer holds; 2 unusable arguments or files; 3 nothing could be decided."
)]
pub(crate) struct AdviseArgs {
    /// Only the alternatives to this case; repeatable.
    ///
    /// By default copies between the first GPU and its host memory, from it to one peer of each kind,
    /// and, with --ranks, messages. With counts, 'gpu0 > gpu1 x 64KiB x 1000', and --machine also what a setting does
    /// to all of them in sum.
    #[arg(long = "for", value_name = "CASE", value_parser = AskedCase::parse, help_heading = CASES)]
    pub(crate) subject: Vec<AskedCase>,
    /// Simulate this machine instead of measuring this host.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES,
        help_heading = CASES)]
    pub(crate) machine: Option<String>,
    /// Ask about reads of files in this folder too; repeatable.
    #[arg(long, value_name = "DIR", conflicts_with = "machine", help_heading = FILES)]
    pub(crate) store: Vec<PathBuf>,
    /// Size of each file of --store; by default 1 GiB, and at most a quarter of what is free.
    #[arg(long, value_name = "SIZE", requires = "store", help_heading = FILES, value_parser = size, hide = true)]
    pub(crate) span: Option<Bytes>,
    /// Check whether variables that are set gain anything, instead of looking for others.
    ///
    /// Without names all that GPU runtimes, MPI, NCCL, RCCL and UCX read; NAME=VALUE counts as set. What is
    /// known to do nothing, slow down or be unsafe needs no trial; --machine judges for another node, without
    /// trials.
    #[arg(long, value_name = "NAME[=VALUE]", num_args = 0.., help_heading = CASES)]
    pub(crate) review: Option<Vec<String>>,
    /// Review what this job script sets: which settings do nothing, help or slow the job.
    #[arg(long, value_name = "SCRIPT", alias = "script", help_heading = FILES)]
    pub(crate) job: Option<PathBuf>,
    /// Compare collectives with their model and with what the links allow, and name what is lost.
    ///
    /// Of these runs of suite ccl-collectives; without one, what the links of --machine allow. Runs with NCCL_* or
    /// RCCL_* settings count as choices that the library could have made.
    #[arg(long, value_name = "RUN", num_args = 0.., requires = "machine",
        conflicts_with_all = ["subject", "review", "job", "command", "check", "emit", "json"],
        help_heading = CASES)]
    pub(crate) collectives: Option<Vec<PathBuf>>,
    /// Only these operations, comma-separated, such as all_reduce.
    #[arg(long, value_name = "OP", value_delimiter = ',', requires = "collectives", help_heading = CASES)]
    pub(crate) op: Vec<Collective>,
    /// Sizes of the larger buffer of a rank; by default 1MiB,16MiB,256MiB,1GiB.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size, requires = "collectives",
        help_heading = CASES)]
    pub(crate) bytes: Vec<Bytes>,
    /// GPUs that take part in the collectives, such as 0-3; by default all.
    #[arg(long, value_name = "LIST", value_parser = gpu_list, requires = "collectives", help_heading = CASES)]
    pub(crate) gpus: Option<CpuSet>,
    /// Measure the collectives and the copies over the limiting cut, and keep the runs in this new folder.
    #[arg(long, value_name = "DIR", requires = "collectives", help_heading = FILES)]
    pub(crate) measure: Option<PathBuf>,
    /// What --measure measures: `here`, this host, or a simulated machine; by default --machine.
    #[arg(long, value_name = "here|NAME|FILE", requires = "measure", help_heading = CASES)]
    pub(crate) on: Option<String>,
    /// Nodes of the job that is reviewed; by default what the script or Slurm says.
    #[arg(long, value_name = "NUMBER", help_heading = PROCESSES)]
    pub(crate) nodes: Option<u32>,
    /// Prove on this command, which `sh -c` runs, instead of on copies.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["machine", "subject", "ranks"],
        help_heading = CASES)]
    pub(crate) command: Option<String>,
    /// The number in what the command prints: a regular expression, of which the first group counts.
    ///
    /// Of several matches the last counts. Without it, the time that the command takes.
    #[arg(long, value_name = "REGEX", requires = "command", help_heading = CASES)]
    pub(crate) metric: Option<String>,
    /// More of the metric is better, as of GB/s; otherwise less is, as of a time.
    #[arg(long, requires = "metric", conflicts_with = "lower", help_heading = CASES)]
    pub(crate) higher: bool,
    /// Less of the metric is better, though it is named like a rate.
    #[arg(long, requires = "metric", help_heading = CASES, hide = true)]
    pub(crate) lower: bool,
    /// A second figure that the command prints and that must not get worse; less of it is better; repeatable.
    ///
    /// A setting is recommended only if each of them is shown to lose less than 1 %.
    /// The time that the command takes is guarded too if --metric is another figure, and its exit status always.
    #[arg(long, value_name = "REGEX", requires = "command", help_heading = CASES)]
    pub(crate) guard: Vec<String>,
    /// The same of a figure of which more is better, as of GB/s.
    #[arg(long, value_name = "REGEX", requires = "command", help_heading = CASES, hide = true)]
    pub(crate) guard_rate: Vec<String>,
    /// Loss of a guarded figure that counts as none; by default 1 %, of the time 5 %, and 0.1 s always.
    #[arg(long, value_name = "PERCENT", requires = "command", value_parser = percent, help_heading = TIME, hide = true)]
    pub(crate) guard_margin: Option<f64>,
    /// A setting to try with --command or --measure: NAME=VALUE, several separated by blanks; repeatable.
    #[arg(long, value_name = "NAME=VALUE", help_heading = CASES)]
    pub(crate) set: Vec<String>,
    /// Try the placement of `pathline place` for this many ranks of this node.
    ///
    /// $PATHLINE_PLACE in the command, before the program of each rank, is its wrapper then, else empty.
    #[arg(long, value_name = "RANKS", requires = "command", conflicts_with = "review",
        value_parser = count::<1, 1024>, help_heading = CASES)]
    pub(crate) place: Option<u32>,
    /// Keep each run of the command in this file, and continue from the runs in it.
    ///
    /// After Ctrl-C or a kill the same call continues where it stopped, with the same answer as without
    /// the interruption. --budget counts the time of all its runs, and may be raised.
    #[arg(long, value_name = "FILE", requires = "command", help_heading = FILES)]
    pub(crate) trials: Option<PathBuf>,
    /// Time after which a run of the command is ended; by default five times the first, 30 s at least.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "command",
        help_heading = TIME, hide = true)]
    pub(crate) deadline: Option<Duration>,
    /// Measure messages between this many processes of this node too.
    #[arg(long, value_name = "NUMBER", value_parser = count::<2, 1024>,
        help_heading = PROCESSES)]
    pub(crate) ranks: Option<u32>,
    /// Start the processes of --ranks with this MPI launcher.
    #[arg(long, value_name = "PROGRAM", requires = "ranks", conflicts_with = "machine",
        help_heading = PROCESSES)]
    pub(crate) mpirun: Option<PathBuf>,
    /// Time for everything; on a simulated machine, in virtual time.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration,
        help_heading = TIME)]
    pub(crate) budget: Duration,
    /// Smallest gain worth a change.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent,
        help_heading = TIME)]
    pub(crate) min_gain: f64,
    /// Seed of the order of trials and of simulated noise.
    #[arg(long, default_value_t = 1, help_heading = CASES, hide = true, value_parser = seed)]
    pub(crate) seed: u64,
    /// Write the answers into this new folder: advice.json, and advice.env for a shell or a job script.
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    pub(crate) emit: Option<PathBuf>,
    /// Prove again what an earlier --emit wrote into this folder.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["subject", "review", "job", "command", "emit"], help_heading = FILES)]
    pub(crate) check: Option<PathBuf>,
    /// Print the answers as JSON.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) libraries: LibraryArgs,
}

/// A case that is asked about, and how often a job does it, if that is known.
#[derive(Debug, Clone)]
pub(crate) struct AskedCase {
    pub(crate) case: Case,
    pub(crate) count: Option<u64>,
}

impl AskedCase {
    /// `gpu0 > gpu1 x 64KiB`, with a count behind the size: `gpu0 > gpu1 x 64KiB x 1000`.
    fn parse(text: &str) -> Result<Self, ParseError> {
        let (case, count) = split_count(text).unzip();
        Ok(Self { case: Case::parse_with_defaults(case.unwrap_or(text))?, count })
    }
}

/// A case and the count behind its size.
pub(super) fn split_count(text: &str) -> Option<(&str, u64)> {
    let (case, count) = text.rsplit_once(" x ")?;
    let last = case.rsplit(['&', '>']).next()?;
    let count: u64 = count.trim().parse().ok()?;
    (last.contains(" x ") && count > 0).then_some((case, count))
}

impl AdviseArgs {
    /// What is asked about collectives, if anything is.
    pub(crate) fn audit(&self) -> Option<AuditArgs> {
        let usual = || vec![Bytes::mib(1), Bytes::mib(16), Bytes::mib(256), Bytes::gib(1)];
        Some(AuditArgs {
            runs: self.collectives.clone()?,
            machine: self.machine.clone()?,
            ops: self.op.clone(),
            gpus: self.gpus.clone(),
            bytes: if self.bytes.is_empty() { usual() } else { self.bytes.clone() },
            measure: self.measure.clone(),
            set: self.set.clone(),
            budget: self.budget,
            on: self.on.clone(),
        })
    }

    /// Processes that take part: as many as the cases of --for name, unless --ranks says more.
    pub(crate) fn ranks(&self) -> Option<u32> {
        let places = self
            .subject
            .iter()
            .flat_map(|asked| asked.case.flows())
            .flat_map(|flow| [flow.src, flow.dst]);
        let last = places.map(|place| place.rank.0).max().filter(|last| (1..1024).contains(last));
        self.ranks.or(last.map(|last| last + 1))
    }

    /// Whether settings are reviewed.
    pub(crate) fn is_review(&self) -> bool {
        self.review.is_some() || self.job.is_some()
    }

    /// The command and how its figures are read.
    pub(crate) fn command_task(&self, command: &str) -> CommandTask {
        let guard = |higher| move |pattern: &String| GuardTask { pattern: pattern.clone(), higher };
        let (costs, rates) =
            (self.guard.iter().map(guard(false)), self.guard_rate.iter().map(guard(true)));
        CommandTask {
            command: command.to_owned(),
            metric: self.metric.clone(),
            higher: self.higher,
            guards: costs.chain(rates).collect(),
            guard_margin: self.guard_margin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_stands_behind_the_size() {
        let read = |text: &str| {
            let asked = AskedCase::parse(text).unwrap();
            (asked.case.timed.last().unwrap().bytes.0, asked.count)
        };
        assert_eq!(read("gpu0 > gpu1 x 4KiB x 1000"), (4096, Some(1000)));
        assert_eq!(read("gpu0 > gpu1 x 4096"), (4096, None));
        assert_eq!(read("gpu0 > gpu1 x 4KiB & gpu2 to gpu3 x 4096"), (4096, None));
        assert_eq!(read("gpu0 to gpu1 x 4KiB & gpu2 to gpu3 x 8KiB x 5"), (8192, Some(5)));
        assert!(AskedCase::parse("gpu0 > gpu1 x 4KiB x 0").is_err());
    }
}
