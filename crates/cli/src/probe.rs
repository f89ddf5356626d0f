//! Asks libraries that may crash, hang or end their process, in a child process with a deadline.

use std::ffi::OsString;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use pathline_vendor::{mpi_library, ucx_library};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::LibraryArgs;
use crate::worker::{Heard, Link, Process};

/// Opening a library of transports takes a tenth of a second, and seconds on a busy file system.
pub(crate) const TRANSPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a child can be asked; each opens the libraries that its answer needs, and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Probe {
    /// The MPI library that would be taken, not initialised: a `LibraryReport`.
    Mpi,
    /// The UCX library that would be taken: a `LibraryReport`.
    Ucx,
}

impl Probe {
    /// Its name on the command line of the child.
    fn name(self) -> OsString {
        self.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ProbeError {
    /// No child can be started, which says nothing of what it was to be asked.
    NotStarted(String),
    /// The child was lost over it: how, and what it printed last.
    Lost(String),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotStarted(text) | Self::Lost(text)) = self;
        f.write_str(text)
    }
}

/// The answer of a child that is started for it, on the libraries that `libraries` names. The child
/// is gone when this returns.
///
/// # Errors
/// How the child was lost (signal, exit code, or no answer within `timeout`), with what it printed
/// last; or that none could be started.
pub(crate) fn ask<A: DeserializeOwned>(
    probe: Probe,
    libraries: &LibraryArgs,
    timeout: Duration,
) -> Result<A, ProbeError> {
    let mut args: Vec<OsString> = vec!["probe".into(), probe.name()];
    args.extend(libraries.flags());
    let mut process = Process::start(&args, &Default::default()).map_err(|error| {
        ProbeError::NotStarted(format!("no process can be started to try it ({error})"))
    })?;
    let begun = Instant::now();
    let lost = loop {
        match process.link.listen() {
            Ok(Heard::Line(answer)) => {
                // Its last destructors may hang like the rest of it.
                process.kill();
                return Ok(answer);
            }
            Ok(Heard::Nothing) if begun.elapsed() > timeout => {
                let words = process.last_words();
                process.kill();
                let secs = timeout.as_secs_f64();
                break format!("it held a process for {secs:.0} s{words}");
            }
            Ok(Heard::Nothing) => {}
            Ok(Heard::End) => break format!("it cost a process, which {}", process.death().text),
            Err(error) => {
                process.kill();
                break format!("it gave no usable answer ({error})");
            }
        }
    };
    Err(ProbeError::Lost(lost))
}

/// The child's side: answers on its standard input, which is a socket, and ends.
pub(crate) fn run(probe: Probe, _libraries: &LibraryArgs) -> Result<()> {
    // A crash is one of the answers: it needs no core file.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut link = Link::from_standard_input()?;
    match probe {
        Probe::Mpi => reply(&mut link, &mpi_library(None)),
        Probe::Ucx => reply(&mut link, &ucx_library()),
    }
}

fn reply(link: &mut Link, answer: &impl Serialize) -> Result<()> {
    link.send(answer).map_err(|error| anyhow!("whoever asked has gone: {error}"))
}
