//! Arguments of the commands about where ranks run.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use pathline_schema::{Bytes, Collective, CpuSet};

use super::health::duration;
use super::{LibraryArgs, TimeoutArgs, size};
use crate::known_name::KnownName;

/// Which ranks to place, and for which launcher.
#[derive(Debug, Clone, Parser)]
pub(crate) struct PlaceArgs {
    /// Ranks on a node; without it one for each GPU.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=4096))]
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
    #[arg(long, value_enum, default_value_t = MessageCopier::Dma, requires = "pattern")]
    pub(crate) by: MessageCopier,
    /// Measure the phase with ranks in order and with the best mapping, and keep the run in this folder.
    #[arg(long, value_name = "DIR", requires = "pattern", conflicts_with = "from")]
    pub(crate) prove: Option<PathBuf>,
    /// Leave out the first core behind each last-level cache, where the centre reserves it and this
    /// process may use it all the same.
    #[arg(long)]
    pub(crate) skip_first_core: bool,
    /// Nodes of the job, with a pattern and a simulated machine: --ranks are then those of the whole job.
    #[arg(long, value_name = "NUMBER", requires = "pattern", requires = "machine",
        conflicts_with = "prove", value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub(crate) nodes: Option<u32>,
    /// Write the order of ranks over the nodes for MPICH_RANK_ORDER to this file; `-` is standard output.
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub(crate) order: Option<PathBuf>,
    /// Set the network adapter of each rank in the script, too.
    #[arg(long, requires = "format")]
    pub(crate) nics: bool,
    /// Give a rank every hardware thread of its cores.
    #[arg(long)]
    pub(crate) hardware_threads: bool,
    /// Read the node from a file instead, as `pathline topo` does.
    #[arg(long, value_name = "PATH", conflicts_with = "machine")]
    pub(crate) from: Option<PathBuf>,
    /// Place on a simulated machine.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: Option<String>,
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

/// Which collectives to audit.
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Exit codes: 0 the measured times are as modelled, or none were given; 1 a cause of loss is \
                        named, none explains the times, or links are slower than the model; 2 unusable \
                        arguments or files; 3 the machine does not describe the library, so that measured \
                        times have no model."
)]
pub(crate) struct AuditArgs {
    /// Operations such as all_reduce; without any, the operations that the runs measured, else the usual ones.
    #[arg(value_name = "OP")]
    pub(crate) ops: Vec<Collective>,
    /// The node: a machine, or the twin of one.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: String,
    /// GPUs that take part, such as 0-3; without it all.
    #[arg(long, value_name = "LIST")]
    pub(crate) gpus: Option<CpuSet>,
    /// Sizes of the larger buffer of a rank.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size,
        default_values_t = [Bytes::mib(1), Bytes::mib(16), Bytes::mib(256), Bytes::gib(1)])]
    pub(crate) bytes: Vec<Bytes>,
    /// Runs of suite ccl-collectives on that node: journals or folders. Those with NCCL_* or RCCL_* settings
    /// count as choices that the library could have made.
    #[arg(long, value_name = "RUN", num_args = 1..)]
    pub(crate) runs: Vec<PathBuf>,
    /// Measure the collectives, unless --runs has them, and the copies over the binding cut, and keep the
    /// runs in this new folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) measure: Option<PathBuf>,
    /// A choice of the library to compare with its default, in blocks of new processes: NAME=VALUE, several
    /// separated by blanks; repeatable.
    #[arg(long, value_name = "NAME=VALUE", requires = "measure")]
    pub(crate) set: Vec<String>,
    /// Time for the trials of --set; on a simulated machine, in virtual time.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration, requires = "set")]
    pub(crate) budget: Duration,
    /// What --measure measures: `here`, this host, or a simulated machine; without it the one of --machine.
    #[arg(long, value_name = "here|NAME|FILE", requires = "measure")]
    pub(crate) on: Option<String>,
}

/// Which ranks to show.
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Exit codes: 0 fine; 1 the plan is not met, or with --check anything was found; 2 \
                        unusable arguments or files; 3 the ranks could not meet."
)]
pub(crate) struct WhereArgs {
    /// Compare with the script that `pathline place --format` wrote for this job.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 1 if anything is wrong.
    #[arg(long)]
    pub(crate) check: bool,
    /// Show a simulated machine with its ranks where `pathline place` puts them, or where --plan does.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: Option<String>,
    /// Ranks on the simulated machine; without it one for each GPU.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=4096),
        requires = "machine")]
    pub(crate) ranks: Option<u32>,
    /// Where ranks of several hosts meet, as for `pathline run`.
    #[arg(long, value_name = "HOST:PORT", env = "PATHLINE_RENDEZVOUS")]
    pub(crate) rendezvous: Option<String>,
    #[command(flatten)]
    pub(crate) libraries: LibraryArgs,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArgs,
}
