//! Arguments of `pathline watch`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::TimeoutArgs;
use super::units::duration;
use crate::known_name::KnownName;

/// What to watch, and what its paths can carry.
#[derive(Debug, Clone, Parser)]
#[command(
    after_help = "Prints a screen every second on a terminal, one screen in a pipe or with --once; --interval 500ms changes \
                  the time between readings. With -m, arguments are cases, which the machine plays one after the \
                  other: pathline watch -m mi250x 'gpu0.vram > gpu1.vram by dma x 1GiB'.\n\n\
                  Exit codes: that of the command; else 0 fine; 2 unusable arguments or files; 3 nothing is counted."
)]
pub(crate) struct WatchArgs {
    /// Watch a simulated machine that plays cases in virtual time.
    ///
    /// A name from `pathline model list`, or a TOML file. Without a case it plays three steps: a copy between two
    /// GPUs, copies from the host to all GPUs, nothing.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES, hide_possible_values = true)]
    pub(crate) machine: Option<String>,
    /// Compare with what this run or twin of this node reached, instead of with the theoretical peak.
    #[arg(long, value_name = "RUN|TWIN")]
    pub(crate) against: Option<PathBuf>,
    /// Print one JSON object per interval, each on its line, instead of the text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one screen and end.
    #[arg(long, hide = true)]
    pub(crate) once: bool,
    /// Time between two readings.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, hide = true)]
    pub(crate) interval: Duration,
    /// Run this command, given after --; when it ends, print to standard error what passed meanwhile.
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArgs,
}

/// From 100 ms to 10 s: reading all counters of a node takes some milliseconds.
fn interval(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(100)..=Duration::from_secs(10);
    let asked = duration(text).ok().filter(|asked| allowed.contains(asked));
    asked.ok_or_else(|| "a time from 100ms to 10s".to_owned())
}
