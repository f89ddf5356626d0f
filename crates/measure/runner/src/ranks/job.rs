//! The processes of a job, and how they find each other.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result, anyhow};
use pathline_transport::{LaunchedRank, launched};
use serde::{Deserialize, Serialize};

use super::handshake::{Credentials, RankHello, introduce, users_look_alike};
use super::secret::{HOW_TO_GIVE, Secret, SecretFile};
use crate::link::{LineLink, LinkSocket};

/// How long the ranks of a job may take to come. Launchers start hundreds of processes in seconds.
pub(super) const GATHER_TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest and longest time between two visits.
const PAUSES: std::ops::Range<Duration> = Duration::from_millis(10)..Duration::from_millis(250);
/// How long a coordinator that was lost may take to be replaced.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Ports that a job's number chooses among: registered ones that no system hands out by itself
/// (Linux takes 32768 and up). Source: ip-sysctl, ip_local_port_range.
const PORTS: std::ops::Range<u64> = 20_000..32_000;

/// Looks up a variable of the environment.
type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankJob {
    /// Children of the coordinator, on this node; of a simulated machine on one or several nodes.
    Own {
        /// Number of ranks.
        count: u32,
        /// Nodes of a simulated machine that they are spread over; none leaves it to the machine.
        nodes: Option<u32>,
    },
    /// Processes that the coordinator starts by a launcher of MPI on this node, for each environment
    /// and after each loss again.
    Launched {
        /// Number of ranks.
        count: u32,
        /// The launcher: `mpirun`.
        program: PathBuf,
    },
    /// Processes that a launcher started, this run's own among them as rank 0.
    Joined {
        /// Number of ranks.
        count: u32,
        /// Their meeting place.
        at: MeetingPlace,
        /// The launcher, for errors.
        by: String,
    },
}

impl RankJob {
    /// Whether the processes are children of the coordinator.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }
    /// Nodes of a simulated machine, if they were named.
    pub(crate) fn nodes(&self) -> Option<u32> {
        match *self {
            Self::Own { nodes, .. } => nodes,
            Self::Launched { .. } | Self::Joined { .. } => None,
        }
    }
    /// Whether pathline started the processes, or had them started, and can do so again.
    pub fn can_restart(&self) -> bool {
        !matches!(self, Self::Joined { .. })
    }
    /// Number of ranks.
    pub fn count(&self) -> u32 {
        match *self {
            Self::Own { count, .. } | Self::Launched { count, .. } | Self::Joined { count, .. } => {
                count
            }
        }
    }
}

/// The meeting place of a job's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeetingPlace {
    /// An abstract socket of this node, by name.
    Node(String),
    /// A port of the first rank's host.
    Net {
        /// Name or address of that host.
        host: String,
        /// The port.
        port: u16,
    },
}

/// This process's part in a job that a launcher started: its number and the job. None if it was
/// started alone.
///
/// # Errors
/// The job has several hosts and no rendezvous is given.
pub fn joined(rendezvous: Option<&str>) -> Result<Option<(LaunchedRank, RankJob)>> {
    let env = |name: &str| std::env::var(name).ok();
    let Some(found) = launched(&env) else { return Ok(None) };
    let Some(count) = found.size.filter(|&size| size > 1) else { return Ok(None) };
    let mut at = place(&env, &found, rendezvous)?;
    if let (MeetingPlace::Node(name), Some(secret)) = (&mut at, Secret::from_env()?) {
        *name = secret.hidden_name(name);
    }
    let job = RankJob::Joined { count, at, by: found.by.to_owned() };
    Ok(Some((found, job)))
}

/// This process's rank and launcher; `None` if it was started alone.
pub(super) fn me() -> Option<LaunchedRank> {
    launched(&|name| std::env::var(name).ok())
}

fn place(
    env: EnvLookup<'_>,
    found: &LaunchedRank,
    rendezvous: Option<&str>,
) -> Result<MeetingPlace> {
    if let Some(text) = rendezvous {
        let bad = || anyhow!("--rendezvous {text}: expected HOST:PORT, with the host of rank 0");
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        // An address of IPv6 stands in brackets before a port.
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        return Ok(MeetingPlace::Net {
            host: bare.to_owned(),
            port: port.parse().map_err(|_| bad())?,
        });
    }
    let several = match env("SLURM_STEP_NUM_NODES").or_else(|| env("SLURM_NNODES")) {
        Some(nodes) if found.by == "Slurm" => nodes != "1",
        _ => found.local_size.is_some_and(|local| Some(local) != found.size),
    };
    if !several {
        return Ok(MeetingPlace::Node(format!("pathline-{}", name_of(env))));
    }
    let list = env("SLURM_STEP_NODELIST").or_else(|| env("SLURM_JOB_NODELIST"));
    let host = list.as_deref().and_then(first_host).ok_or_else(|| {
        anyhow!(
            "{} started processes on several hosts and does not name rank 0's host: add \
             --rendezvous HOST:PORT, with that host and a free port",
            found.by
        )
    })?;
    let mut hash = DefaultHasher::new();
    name_of(env).hash(&mut hash);
    let port = PORTS.start + hash.finish() % (PORTS.end - PORTS.start);
    Ok(MeetingPlace::Net { host, port: u16::try_from(port).unwrap_or(u16::MAX) })
}

/// The first host of a list as Slurm writes it: `node[003-007,9],login1` begins with node003.
/// Source: scontrol(1), hostlist expressions.
fn first_host(list: &str) -> Option<String> {
    let first = list.trim();
    let end = first.find([',', '[']).unwrap_or(first.len());
    let (name, rest) = first.split_at(end);
    let Some(range) = rest.strip_prefix('[') else {
        return (!name.is_empty()).then(|| name.to_owned());
    };
    let inside = range.split(']').next()?;
    let number = inside.split([',', '-']).next()?;
    let after = range.split_once(']')?.1;
    let tail = &after[..after.find(',').unwrap_or(after.len())];
    Some(format!("{name}{number}{tail}"))
}

/// A name that is equal in all processes of a job on this node, and in no others: the job's name
/// where its launcher gives one, else its launcher's process.
fn name_of(env: EnvLookup<'_>) -> String {
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
pub(super) fn begun(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the second one is in brackets and may hold anything. Source: proc(5).
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

impl MeetingPlace {
    /// Comes there, for the first time or again, to a coordinator that proves that it is this job's.
    ///
    /// # Errors
    /// None listens there in time: what was found instead.
    pub(super) fn come(&self, first: bool, hello: &RankHello) -> Result<LineLink> {
        let (begun, timeout) =
            (Instant::now(), if first { GATHER_TIMEOUT } else { REPLACE_TIMEOUT });
        loop {
            match self.visit(hello) {
                Ok(socket) => return Ok(LineLink::over(socket, None)?),
                Err(_) if begun.elapsed() < timeout => {
                    // Soon at first; a long wait must not hammer at the door of others.
                    let pause = begun.elapsed() / 10;
                    std::thread::sleep(pause.clamp(PAUSES.start, PAUSES.end));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn visit(&self, hello: &RankHello) -> Result<LinkSocket> {
        let given = Secret::from_env()?;
        let secret = match self {
            Self::Node(_) if given.is_none() && users_look_alike() => {
                return Err(anyhow!(
                    "this user namespace does not distinguish users; {HOW_TO_GIVE}"
                ));
            }
            Self::Node(_) => given,
            // Read for each visit: one that an earlier run left is replaced when this one begins. It is
            // there once the coordinator listens.
            Self::Net { host, port } => Some(match given {
                Some(secret) => secret,
                None => SecretFile::read(host, *port).with_context(|| {
                    format!(
                        "no secret of this job; if the hosts share no home folder, {HOW_TO_GIVE}"
                    )
                })?,
            }),
        };
        let mut socket = self.knock()?;
        introduce(&mut socket, hello.clone(), &Credentials { secret })?;
        Ok(socket)
    }

    fn knock(&self) -> io::Result<LinkSocket> {
        match self {
            Self::Node(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
                .map(LinkSocket::Unix),
            Self::Net { host, port } => {
                let mut last = io::Error::from(io::ErrorKind::NotFound);
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
                        Ok(stream) => return Ok(LinkSocket::Tcp(stream)),
                        Err(error) => last = error,
                    }
                }
                Err(last)
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

    #[test]
    fn the_first_host_of_a_list_is_rank_0s() {
        for (list, first) in [
            ("node1", "node1"),
            ("node[003-007,9],login1", "node003"),
            ("a,b", "a"),
            ("rack[2]n-x,other", "rack2n-x"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        assert_eq!(first_host(""), None);
        assert_eq!(first_host("node[3"), None);
    }

    #[test]
    fn several_hosts_meet_at_rank_0s() {
        let slurm = |nodes: &'static str| {
            move |name: &str| match name {
                "SLURM_PROCID" => Some("5".to_owned()),
                "SLURM_STEP_NUM_TASKS" => Some("16".to_owned()),
                "SLURM_JOB_ID" => Some("77".to_owned()),
                "SLURM_STEP_ID" => Some("0".to_owned()),
                "SLURM_STEP_NUM_NODES" => Some(nodes.to_owned()),
                "SLURM_STEP_NODELIST" => Some("nid[001-002]".to_owned()),
                _ => None,
            }
        };
        let place_of = |nodes| {
            let env = slurm(nodes);
            place(&env, &launched(&env).unwrap(), None).unwrap()
        };
        assert!(matches!(place_of("1"), MeetingPlace::Node(_)));
        let MeetingPlace::Net { host, port } = place_of("2") else { panic!("one host") };
        assert_eq!(host, "nid001");
        assert!(PORTS.contains(&u64::from(port)));
        let env = slurm("2");
        let found = launched(&env).unwrap();
        assert!(place(&env, &found, Some("nid001")).is_err());
        let asked = place(&env, &found, Some("10.0.0.1:4000")).unwrap();
        assert_eq!(asked, MeetingPlace::Net { host: "10.0.0.1".to_owned(), port: 4000 });
        let asked = place(&env, &found, Some("[::1]:4000")).unwrap();
        assert_eq!(asked, MeetingPlace::Net { host: "::1".to_owned(), port: 4000 });
    }
}
