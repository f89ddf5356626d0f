//! Arguments of `pathline explain`.

use std::path::PathBuf;

use clap::Parser;

use super::{LibraryArgs, TimeoutArgs};
use crate::known_name::KnownName;

/// What to explain, and of which node.
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Exit codes: 0 OK; 1 SUSPECT or FAIL; 2 unusable arguments or files; 3 UNDECIDED, or \
                  no output of a known tool."
)]
pub(crate) struct ExplainArgs {
    /// Output of a benchmark, a log, a topology or a whole issue text; `-` or nothing is standard input. Or the text of
    /// a case, such as 'gpu0 > gpu1 by dma', a setting, such as HSA_ENABLE_SDMA=0, or a run.
    #[arg(value_name = "FILE|CASE|SETTING|RUN")]
    pub(crate) file: Option<PathBuf>,
    /// Take the limits from this simulated machine.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: Option<String>,
    /// Take the limits from a file that describes the node, as `pathline topo` reads them.
    #[arg(long, value_name = "PATH", conflicts_with = "machine")]
    pub(crate) from: Option<PathBuf>,
    /// Take the limits from this node, where the output was made.
    #[arg(long, conflicts_with_all = ["machine", "from"])]
    pub(crate) here: bool,
    /// Measure the copies that decide between the causes, at most 10 s, and answer again: on this node,
    /// or on the simulated machine with the faults of its file.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print all answers with all causes as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) libraries: LibraryArgs,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArgs,
}
