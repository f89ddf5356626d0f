//! Which processes measure together, and how they find each other.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use std::{fs, io};

use pathline_vendor::{Launched, launched};
use serde::{Deserialize, Serialize};

use crate::worker::Socket;

/// How long the ranks of a job may take to come. Launchers start hundreds of processes in seconds.
const GATHERED: Duration = Duration::from_secs(60);

/// How long a conductor that was lost may take to be replaced.
const REPLACED: Duration = Duration::from_secs(10);

/// The processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Job {
    /// So many children of the conductor, on this node.
    Own {
        /// How many.
        count: u32,
    },
    /// Processes that a launcher started, this run's own among them as rank 0.
    Joined {
        /// How many.
        count: u32,
        /// Where they meet.
        at: Place,
        /// Who started them, for errors.
        by: String,
    },
}

impl Job {
    /// How many ranks.
    pub(crate) fn count(&self) -> u32 {
        match *self {
            Self::Own { count } | Self::Joined { count, .. } => count,
        }
    }
}

/// Where the processes of a job meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// An abstract socket of this node, by name.
    Node(String),
}

/// This process's part in a job that a launcher started: its number and the job. None if it was
/// started alone.
pub(crate) fn joined() -> Option<(Launched, Job)> {
    let found = launched(&|name| std::env::var(name).ok())?;
    let count = found.size.filter(|&size| size > 1)?;
    let at = Place::Node(format!("pathline-{}", name_of(&|name| std::env::var(name).ok())));
    let job = Job::Joined { count, at, by: found.by.to_owned() };
    Some((found, job))
}

/// What is the same in all processes of a job on this node, and in no other: the job's name where
/// its launcher gives one, else its launcher's process.
fn name_of(env: &dyn Fn(&str) -> Option<String>) -> String {
    let user = rustix::process::getuid().as_raw();
    let named = [
        &["SLURM_JOB_ID", "SLURM_STEP_ID"][..],
        &["PMIX_NAMESPACE"],
        &["OMPI_MCA_ess_base_jobid"],
        &["FLUX_JOB_ID"],
        &["PALS_APID"],
    ];
    let text = |names: &[&str]| -> Option<String> {
        names.iter().map(|name| env(name)).collect::<Option<Vec<_>>>().map(|all| all.join("."))
    };
    let job = named.iter().find_map(|names| text(names)).unwrap_or_else(|| {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid());
        format!("{parent}.{}", begun(parent).unwrap_or_default())
    });
    format!("{user}-{job}")
}

/// When a process began, in clock ticks since the system did: its number alone may come again.
fn begun(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the second one is in brackets and may hold anything. Source: proc(5).
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

impl Place {
    fn address(name: &str) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(name)
    }

    /// Waits for `count` processes to come.
    ///
    /// # Errors
    /// Nobody can meet there, or some did not come in time.
    pub(super) fn gather(
        &self,
        count: u32,
        limit: Option<Duration>,
        come: &mut dyn FnMut(Socket) -> io::Result<bool>,
    ) -> io::Result<()> {
        let Self::Node(name) = self;
        let listener = UnixListener::bind_addr(&Self::address(name)?)?;
        listener.set_nonblocking(true)?;
        let (begun, mut here) = (Instant::now(), 0);
        while here < count {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    here += u32::from(come(Socket::Unix(stream))?);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if begun.elapsed() > limit.unwrap_or(GATHERED) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Comes there, for the first time or again.
    ///
    /// # Errors
    /// Nobody conducts there in time.
    pub(super) fn come(&self, first: bool) -> io::Result<Socket> {
        let Self::Node(name) = self;
        let (begun, patience) = (Instant::now(), if first { GATHERED } else { REPLACED });
        loop {
            match UnixStream::connect_addr(&Self::address(name)?) {
                Ok(stream) => return Ok(Socket::Unix(stream)),
                Err(_) if begun.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_name_that_its_launcher_gives() {
        let env = |name: &str| match name {
            "SLURM_JOB_ID" => Some("77".to_owned()),
            "SLURM_STEP_ID" => Some("3".to_owned()),
            _ => None,
        };
        assert!(name_of(&env).ends_with("-77.3"), "{}", name_of(&env));
        let own = name_of(&|_| None);
        assert_eq!(own, name_of(&|_| None));
        assert!(own.split('-').nth(1).is_some_and(|job| job.contains('.')), "{own}");
    }
}
