//! Arguments of the commands that judge a node.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use pathline_runner::ProbeFault;
use pathline_schema::CpuSet;

use super::LibraryArgs;
use super::units::{duration, gpu_list, noise, percent, seed};

/// What to examine, and how sure the verdict must be.
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Exit codes: 0 OK; 1 SUSPECT or FAIL; 2 unusable arguments or files, or a reference of another node; 3 \
                  UNDECIDED. With --format nagios: 0 OK; 1 SUSPECT; 2 FAIL; 3 UNDECIDED."
)]
pub(crate) struct HealthArgs {
    /// Examine a simulated machine instead of this host.
    ///
    /// A name from `pathline model list`, or a TOML file, which may have [[fault]] tables (docs/extend/add-a-machine.md).
    #[arg(long, short, value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,
    /// Only these GPUs, such as 0,1 or 0-3.
    #[arg(long, value_name = "LIST", value_parser = gpu_list)]
    pub(crate) gpus: Option<CpuSet>,
    /// Answer within this time, such as 5s or 500ms.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) budget: Duration,
    /// Judge these runs by --history instead of measuring: folders or journals.
    #[arg(value_name = "RUN", requires = "history")]
    pub(crate) runs: Vec<PathBuf>,
    /// Keep 20 KB of the result in this folder, and compare it with what was kept of earlier ones.
    ///
    /// Of the same node and software; 5 earlier results are needed to judge. What is SUSPECT or FAIL is not kept.
    #[arg(long, value_name = "DIR", conflicts_with = "against")]
    pub(crate) history: Option<PathBuf>,
    /// Judge many nodes by each other instead of measuring: results that --history or --json kept, runs, and folders
    /// of them.
    ///
    /// A node is compared place by place with at least 4 others of the same parts, and with its earlier results.
    /// Two results of a node that agree are FAIL, one is SUSPECT. -o FILE.html is a page, FILE.csv a row a node.
    #[arg(long, value_name = "DIR|FILE", num_args = 1.., conflicts_with_all = ["history", "against", "machine", "runs"])]
    pub(crate) fleet: Vec<PathBuf>,
    /// Under srun, flux run or mpirun, a task a node: check each node, and judge them by each other.
    ///
    /// Results go through this folder, which all nodes share. Rank 0 answers 2 s after the budget at the latest.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["history", "runs", "fleet"])]
    pub(crate) gather: Option<PathBuf>,
    /// Under srun, flux run or mpirun: find the slow node, adapter, cable or leaf of the network between the nodes.
    ///
    /// A rank a node, or a rank a GPU, of at least 5 nodes. Pairs of nodes exchange messages of MPI, all at once, in 6
    /// to 12 rounds; what is slow is measured again with other partners. --json has all that was found.
    #[arg(long, conflicts_with_all = ["gather", "history", "runs", "fleet", "against", "machine", "shared", "bundle"])]
    pub(crate) net: bool,
    /// With --net, the leaf switch of each node: a file with a line `HOST LEAF` each.
    #[arg(long, value_name = "FILE", requires = "net")]
    pub(crate) leaves: Option<PathBuf>,
    /// With --net, where ranks of several hosts meet: an address of the host of rank 0, and a free port.
    #[arg(long, value_name = "HOST:PORT", env = "PATHLINE_RENDEZVOUS", hide_env = true)]
    pub(crate) rendezvous: Option<String>,
    /// Compare with this, too: a twin (machine file), a run, or a folder of --history.
    ///
    /// A path, or all of a class, that is 10 % slower fails.
    #[arg(long, value_name = "RUN|TWIN|DIR")]
    pub(crate) against: Option<PathBuf>,
    /// Probability at most that a healthy node fails by its times, under an assumption on processes.
    ///
    /// Assumed: a healthy path is slow in at most 0.4 % of processes between GPUs, in 5 % to the host (2 % for a
    /// loss above 20 %). On hosts with more slow processes more healthy nodes fail.
    #[arg(long, value_name = "PROBABILITY", default_value_t = 1e-5, value_parser = alpha, hide = true)]
    pub(crate) alpha: f64,
    /// Share of its speed that a path may lose on a node that passes, such as 3%.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = percent)]
    pub(crate) loss: f64,
    /// How the result is written.
    #[arg(long, value_enum, default_value_t = HealthFormat::Text)]
    pub(crate) format: HealthFormat,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Write the result to this file, atomically, instead of to standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write what a ticket needs to this new .tar.gz: result, doctor, topology, runs, kernel log, without secrets.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fleet", "gather"])]
    pub(crate) bundle: Option<PathBuf>,
    /// Others use the GPUs: look at links and counters only, and measure nothing.
    #[arg(long)]
    pub(crate) shared: bool,
    /// Seed of the order of probes, and of a simulated machine.
    #[arg(long, default_value_t = 1, hide = true, value_parser = seed)]
    pub(crate) seed: u64,
    /// Standard deviation of the times of a simulated machine; by default 0.2%.
    #[arg(long, value_name = "PERCENT", value_parser = noise, requires = "machine", hide = true)]
    pub(crate) noise: Option<f64>,
    /// Measure a simulated machine in processes, in real time.
    #[arg(long, hide = true, requires = "machine")]
    pub(crate) worker: bool,
    /// Let something go wrong in a probe process: WHAT STEP[@PROCESS] [FILE].
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Vec<ProbeFault>,
    #[command(flatten)]
    pub(crate) libraries: LibraryArgs,
}

impl HealthArgs {
    /// The format that was asked for, in either way.
    pub(crate) fn format(&self) -> HealthFormat {
        if self.json { HealthFormat::Json } else { self.format }
    }
}

/// Who reads the result of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HealthFormat {
    /// For people.
    Text,
    /// For programs: everything that is known.
    Json,
    /// Test systems: a suite for the node, a case for each class of paths.
    Junit,
    /// The textfile collector of Prometheus' node exporter.
    Prom,
    /// ReFrame: `verdict:` and `perf` lines.
    Reframe,
    /// Nagios and Icinga: one line, and their exit codes.
    Nagios,
}

fn alpha(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (1e-12..=0.1).contains(&number) => Ok(number),
        _ => Err("a probability from 1e-12 to 0.1".to_owned()),
    }
}
