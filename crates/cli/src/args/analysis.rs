//! Arguments of the commands that read runs and models.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::known_name::KnownName;

use super::units::{count, percent_points};
use super::{LibraryArgs, OutFile, RUN_EXIT_CODES, TimeoutArgs, out_file};

/// Which run to show, and how.
#[derive(Debug, Clone, Parser)]
#[command(after_help = RUN_EXIT_CODES)]
pub(crate) struct ReportArgs {
    /// The run: its folder or journal. Of several runs the page shows all side by side.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Write the page (.html), one row per series (.csv), one row per sample (.raw.csv), or verdict, findings and
    /// figures (.json); repeatable.
    ///
    /// By default a page is written next to a journal called run.jsonl. Several runs need a name for it.
    #[arg(long, short, value_name = "FILE", value_parser = out_file(&["html", "raw.csv", "csv", "json"]))]
    pub(crate) out: Vec<OutFile>,
    /// Print verdict, findings and figures as JSON, for tools (docs/understand/findings.md), and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print conclusions for a ticket, a table, or messages, collectives and I/O as other tools do, and nothing else.
    #[arg(long, value_enum, conflicts_with_all = ["out", "json"])]
    pub(crate) format: Option<ReportFormat>,
}

/// Whose columns are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// OSU micro-benchmarks: osu_latency, osu_bw, osu_allreduce -f and the others, for MPI.
    Osu,
    /// nccl-tests and rccl-tests: all_reduce_perf and the others, for NCCL and RCCL.
    NcclTests,
    /// elbencho: its table of first done and last done, for I/O of files.
    Elbencho,
    /// A ticket or a merge request: identity, verdict, findings and values.
    Markdown,
    /// A table with one row per series.
    Csv,
    /// A table with one row per sample.
    RawCsv,
}

/// Which runs to compare.
///
/// With one run a side the noise between runs is what ships with pathline or what --noise shows; with
/// three or more it is that of the runs.
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Exit codes: 0 nothing is worse; 1 a case is slower, lost, unverified or beyond what \
                  hardware can carry; 2 runs cannot be compared (real with simulated, no common case) or \
                  read; 3 UNDECIDED."
)]
pub(crate) struct DiffArgs {
    /// Runs before, folders or journals; each repeat of a journal counts as a run. Of two runs without
    /// -- the second is the run after.
    #[arg(required = true, value_name = "BEFORE")]
    pub(crate) before: Vec<PathBuf>,
    /// Runs after the change, following `--`.
    #[arg(last = true, value_name = "AFTER")]
    pub(crate) after: Vec<PathBuf>,
    /// Differences below this count as none.
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = percent_points)]
    pub(crate) tolerance: f64,
    /// Learn the noise between runs from this run of an unchanged machine: a journal made with --repeat,
    /// or at least three runs of one host. May be given several times.
    #[arg(long, value_name = "RUN")]
    pub(crate) noise: Vec<PathBuf>,
    /// Write the comparison as a page (.html), or every case and group of changes (.json); repeatable.
    #[arg(long, short, value_name = "FILE", value_parser = out_file(&["html", "json"]))]
    pub(crate) out: Vec<OutFile>,
    /// Print every case and group of changes as JSON instead of the text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where to look.
#[derive(Debug, Clone, Parser)]
pub(crate) struct DoctorArgs {
    /// Also run the checks that every machine must pass, on the host and its GPUs, and try whether the MPI takes
    /// memory of GPUs; seconds.
    #[arg(long)]
    pub(crate) conformance: bool,
    /// Check the settings of a node that `pathline topo --save` wrote, instead of this host.
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "conformance")]
    pub(crate) from: Option<PathBuf>,
    /// Print the settings alone, as JSON.
    #[arg(long, conflicts_with = "conformance")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) libraries: LibraryArgs,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArgs,
}

/// Which runs to fit to, and where the twin goes.
#[derive(Debug, Clone, Parser)]
pub(crate) struct CalibrateArgs {
    /// Runs of one node, folders or journals; suite contention measures what a twin needs.
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Write the machine file here and overwrite an existing one; - is standard output, which then
    /// has no report. By default machine.toml, which must not be there yet.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Compare the twin with this machine: a name from `pathline model list`, or a TOML file. By default the
    /// preset with the GPUs of the node. The node may have only the first of the described GPUs.
    #[arg(long, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) preset: Option<String>,
}

/// What `model check --fit` refits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FittedConstants {
    /// The time of an operation besides its bytes.
    Starts,
}

/// The machine and the table to compare, and the errors that are allowed.
#[derive(Debug, Clone, Parser)]
pub(crate) struct ValidateArgs {
    /// The machine: a name from `pathline model list`, or a TOML file.
    #[arg(long, short, value_name = "NAME|FILE", default_value = "mi250x",
        value_parser = KnownName::MACHINES)]
    pub(crate) machine: String,
    /// A table of published values (CSV; docs/understand/validate.md has its columns). By default the one that
    /// comes with the machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Rows of this system are of this machine, too. May be given several times.
    #[arg(long, value_name = "SYSTEM", hide = true)]
    pub(crate) system: Vec<String>,
    /// Take every row as measured with this stack of the machine, whatever its tool and source.
    #[arg(long, value_name = "NAME")]
    pub(crate) stack: Option<String>,
    /// Refit the starts, of each stack and kind of path, to a few rows and report the errors and
    /// intervals of the others. For tools and versions that no stack describes.
    #[arg(long, value_name = "WHAT", requires = "hold_out", hide = true)]
    pub(crate) fit: Option<FittedConstants>,
    /// Rows of each class that --fit is done with, the smallest size first and others evenly spread; all
    /// other rows are held out and predicted.
    #[arg(long, value_name = "ROWS", requires = "fit",
        value_parser = count::<1, 1000>, hide = true)]
    pub(crate) hold_out: Option<u32>,
    /// What is allowed, in percent: TARGET=MEDIAN[,P95] such as bandwidth=2,6. Targets are bandwidth,
    /// sweeps, messages, topology. One that is missed ends with exit code 1.
    #[arg(long, value_name = "TARGET=MEDIAN[,P95]")]
    pub(crate) within: Vec<String>,
    /// Change each constant of the machine by 30 % and show which rows move: first the constants that no
    /// row holds. Judges no target. Its table has a row a constant.
    #[arg(long, conflicts_with = "within")]
    pub(crate) sensitivity: bool,
    /// Change only constants whose key begins so, such as fabric or time.blit_us. May be given several
    /// times.
    #[arg(long, value_name = "KEY", requires = "sensitivity", hide = true)]
    pub(crate) constant: Vec<String>,
    /// Write a page with pictures of predicted over published values (.html), or a row a value (.csv); repeatable.
    #[arg(long, short, value_name = "FILE", value_parser = out_file(&["html", "csv"]))]
    pub(crate) out: Vec<OutFile>,
}

/// Which flows to predict, or which run to hold predictions against.
#[derive(Debug, Clone, Default, Parser)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["texts", "case", "file", "against"]))]
pub(crate) struct PredictArgs {
    /// The machine: a name from `pathline model list`, or a TOML file, such as one of `model fit`.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: String,
    /// Software stack of the machine; `pathline model show NAME` shows which it describes.
    #[arg(long, value_name = "NAME")]
    pub(crate) stack: Option<String>,
    /// Flows that start together, joined by ' & ', such as 'gpu0 > gpu1 x 1MiB'; flows that run
    /// throughout after ' while '. Or an exchange: 'all_reduce over gpu0-gpu7 by rccl x 1MiB'.
    #[arg(value_name = "CASE|EXCHANGE")]
    pub(crate) texts: Vec<String>,
    /// The same as CASE.
    #[arg(long, short, alias = "exchange", value_name = "CASE", hide = true)]
    pub(crate) case: Vec<String>,
    /// Cases and exchanges of a file, one a line; `-` is standard input. Empty lines and lines that
    /// start with # are left out.
    #[arg(long, aliases = ["case-file", "exchange-file"], value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Write what each link, adapter and engine carries during exchanges (.csv or .json); with --against a page with
    /// pictures of predicted over measured durations (.html), or a row a set (.csv). Repeatable.
    #[arg(long, short, value_name = "FILE", value_parser = out_file(&["html", "csv", "json"]))]
    pub(crate) out: Vec<OutFile>,
    /// Predict the cases of this run and compare: its folder or journal.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["texts", "case", "file"])]
    pub(crate) against: Option<PathBuf>,
    /// Leave out the cases that this run has, too: that which the machine was fitted to. May be
    /// given several times.
    #[arg(long, value_name = "RUN", requires = "against", hide = true)]
    pub(crate) only_unseen: Vec<PathBuf>,
    /// Engines that serve one copy at a time may do so in any order, as they do for a program that
    /// has all copies ready at one instant. By default they serve in the order of the case.
    #[arg(long, hide = true)]
    pub(crate) any_order: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "against")]
    pub(crate) json: bool,
}

impl PredictArgs {
    /// The arguments that predict a case or an exchange on a machine.
    pub(crate) fn of_text(machine: &str, text: String) -> Self {
        Self { machine: machine.to_owned(), texts: vec![text], ..Self::default() }
    }
}

/// Which description to print.
#[derive(Debug, Clone, Parser)]
pub(crate) struct MachinesArgs {
    /// The machine, of which the description is printed, to copy and change.
    #[arg(value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) name: String,
    /// Print its constants instead, by origin, and how many of them are free.
    #[arg(long)]
    pub(crate) constants: bool,
    /// Print the description with this software stack as its default.
    #[arg(long, value_name = "STACK")]
    pub(crate) stack: Option<String>,
}
