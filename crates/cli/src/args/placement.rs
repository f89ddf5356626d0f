//! Arguments of the commands about where ranks run.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use pathline_schema::{Bytes, Collective, CpuSet};

use super::units::{count, size};
use super::{LibraryArgs, OUTPUT, PROCESSES, TimeoutArgs};
use crate::known_name::KnownName;

/// Which ranks to place, and for which launcher.
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Exit codes: 0 fine; 1 --check found something wrong; 2 unusable arguments or files; 3 the ranks \
                  could not meet."
)]
pub(crate) struct PlaceArgs {
    /// Show where the ranks of this job run and what is wrong with it, under srun, mpirun or flux run; compare with
    /// the script that --format wrote for this job, if it is named.
    #[arg(long, value_name = "SCRIPT", num_args = 0..=1, conflicts_with_all = ["format", "pattern", "from"])]
    pub(crate) check: Option<Option<PathBuf>>,
    /// Ranks on a node; without it one for each GPU.
    #[arg(long, value_name = "NUMBER", value_parser = count::<1, 4096>)]
    pub(crate) ranks: Option<u32>,
    /// Print the wrapper script and the line of this launcher instead of a table.
    #[arg(long, value_enum)]
    pub(crate) format: Option<Launcher>,
    /// Bring ranks that exchange most together: ring, ring both ways, grid AxB or AxBxC (periodic),
    /// all-to-all, exchange, tp=A,pp=B,dp=C, or the file of a matrix of bytes (CSV, Matrix Market).
    #[arg(long, value_name = "PATTERN|FILE", num_args = 1..=3)]
    pub(crate) pattern: Vec<String>,
    /// Size of a message of the pattern.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", requires = "pattern",
        value_parser = size)]
    pub(crate) bytes: Bytes,
    /// What copies the messages.
    #[arg(long, value_enum, default_value_t = MessageCopier::Dma, requires = "pattern", hide = true)]
    pub(crate) by: MessageCopier,
    /// Measure the phase with ranks in order and with the best mapping, and keep the run in this folder.
    #[arg(long, value_name = "DIR", requires = "pattern", conflicts_with = "from")]
    pub(crate) prove: Option<PathBuf>,
    /// Leave out the first core behind each last-level cache, where the centre reserves it and this
    /// process may use it all the same. The default on a simulated node of AMD GPUs and Slingshot.
    #[arg(long)]
    pub(crate) skip_first_core: bool,
    /// Take the first core behind each last-level cache on any node.
    #[arg(long, conflicts_with = "skip_first_core")]
    pub(crate) all_cores: bool,
    /// Nodes of the job, with a pattern and a simulated machine: --ranks are then those of the whole job.
    #[arg(long, value_name = "NUMBER", requires = "pattern", requires = "machine",
        conflicts_with = "prove", value_parser = count::<2, 4096>)]
    pub(crate) nodes: Option<u32>,
    /// Write the order of ranks over the nodes for MPICH_RANK_ORDER to this file; `-` is standard output.
    #[arg(long, value_name = "FILE", requires = "nodes", hide = true)]
    pub(crate) order: Option<PathBuf>,
    /// Set the network adapter of each rank in the script, also where it is no Slingshot or InfiniBand.
    #[arg(long, requires = "format")]
    pub(crate) nics: bool,
    /// Give a rank every hardware thread of its cores.
    #[arg(long, hide = true)]
    pub(crate) hardware_threads: bool,
    /// Read the node from a file instead, as `pathline topo` does.
    #[arg(long, value_name = "PATH", conflicts_with = "machine")]
    pub(crate) from: Option<PathBuf>,
    /// Place on a simulated machine.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: Option<String>,
    /// Where ranks of several hosts meet, as for `pathline run`.
    #[arg(long, value_name = "HOST:PORT", env = "PATHLINE_RENDEZVOUS",
        help_heading = PROCESSES, hide = true)]
    pub(crate) rendezvous: Option<String>,
    /// With --check, print JSON.
    #[arg(long, requires = "check", help_heading = OUTPUT)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) libraries: LibraryArgs,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArgs,
}

/// What copies the messages of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MessageCopier {
    /// The runtime's copy by copy engine.
    Dma,
    /// The runtime's copy kernel.
    Blit,
}

/// The launcher of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Launcher {
    /// srun of Slurm.
    Slurm,
    /// mpirun of Open MPI.
    Openmpi,
    /// A rankfile of Open MPI 5, which binds cores only.
    Rankfile,
    /// mpiexec of MPICH.
    Mpich,
    /// flux run.
    Flux,
    /// The wrapper script alone.
    Env,
}

/// Which collectives to compare with their model and the links.
#[derive(Debug, Clone)]
pub(crate) struct AuditArgs {
    /// Operations; by default those of the runs, else the usual ones.
    pub(crate) ops: Vec<Collective>,
    /// The node: a machine, or the twin of one.
    pub(crate) machine: String,
    /// GPUs that take part; without it all.
    pub(crate) gpus: Option<CpuSet>,
    /// Sizes of the larger buffer of a rank.
    pub(crate) bytes: Vec<Bytes>,
    /// Runs of suite ccl-collectives on that node.
    pub(crate) runs: Vec<PathBuf>,
    /// Folder of what is measured, if anything is.
    pub(crate) measure: Option<PathBuf>,
    /// Choices of the library to compare with its default.
    pub(crate) set: Vec<String>,
    /// Time for their trials.
    pub(crate) budget: Duration,
    /// What is measured: `here`, or a simulated machine.
    pub(crate) on: Option<String>,
}
