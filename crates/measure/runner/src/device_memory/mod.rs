//! Whether an MPI takes memory of GPUs, and how that is known: it is tried by two processes that may
//! die of it, or else the library's own answer counts. A setting of the user comes before both.

mod launch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pathline_hal::DeviceClaim;
use pathline_schema::{RankMember, Transport};
use pathline_transport::{launched, mpi_launchers};
use serde::{Deserialize, Serialize};

use self::launch::{Launch, LaunchReport};
use crate::choice::DeviceMemory;

pub use launch::serve_launch;

/// What a message library reports about memory of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryClaim {
    /// Whether it takes such memory.
    pub(crate) takes: bool,
    /// The call or setting that reports it.
    pub(crate) by: String,
}

impl From<DeviceClaim> for MemoryClaim {
    fn from(claim: DeviceClaim) -> Self {
        Self { takes: claim.is_supported, by: claim.source }
    }
}

/// Support of an MPI for memory of GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeviceFinding {
    /// Whether it takes it.
    takes: bool,
    /// How that is known.
    how: String,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Attempt {
    /// Every byte arrived, by that launch.
    Arrived(String),
    /// Device memory went out, and did not arrive: the launch, and what became of it.
    Lost(String, String),
    /// No launch got as far as to send: the reason, and the library's claim, if one asked it.
    Impossible(String, Option<MemoryClaim>),
}

/// Finds out whether MPI takes device memory, where ranks have both, and notes it with each of them.
pub(crate) fn find_out(
    asked: DeviceMemory,
    members: &mut [RankMember],
    claims: &[Option<MemoryClaim>],
) {
    let has_both = |m: &RankMember| m.ways.contains_key(&Transport::Mpi) && !m.gpus.is_empty();
    if members.len() < 2 || !members.iter().all(has_both) {
        return;
    }
    let finding = decide(asked, common(claims), &mut || attempt(false));
    for member in members {
        let notes = if finding.takes { &mut member.device_memory } else { &mut member.host_only };
        notes.insert(Transport::Mpi, finding.how.clone());
    }
}

/// One line for `doctor`: whether the MPI here takes memory of this machine's GPUs, and how that is
/// known. None without an MPI, and without a GPU that can be measured.
pub(crate) fn describe(asked: DeviceMemory, gpus: usize) -> Option<String> {
    if gpus == 0 {
        return None;
    }
    mpi_launchers()?;
    let DeviceFinding { takes, how } = decide(asked, None, &mut || attempt(true));
    let word = if takes { "takes device memory" } else { "takes host memory only" };
    Some(format!("MPI {word}: {how}"))
}

/// The claim of all ranks' libraries: yes if all claim it, no if one denies it, else `None`.
fn common(claims: &[Option<MemoryClaim>]) -> Option<MemoryClaim> {
    let claims: Option<Vec<&MemoryClaim>> = claims.iter().map(Option::as_ref).collect();
    let claims = claims?;
    claims.iter().find(|claim| !claim.takes).or(claims.first()).map(|&claim| claim.clone())
}

fn decide(
    asked: DeviceMemory,
    claim: Option<MemoryClaim>,
    attempt: &mut dyn FnMut() -> Attempt,
) -> DeviceFinding {
    const OVERRIDE: &str = "--device-memory yes overrides this";
    let finding = |takes, how| DeviceFinding { takes, how };
    match asked {
        DeviceMemory::Yes => return finding(true, "--device-memory yes was given".to_owned()),
        DeviceMemory::No => return finding(false, "--device-memory no was given".to_owned()),
        DeviceMemory::Try => {}
    }
    match attempt() {
        Attempt::Arrived(by) => finding(true, format!("tried with {by}: every byte arrived")),
        Attempt::Lost(by, why) => finding(false, format!("tried with {by}: {why}; {OVERRIDE}")),
        Attempt::Impossible(why, seen) => match claim.or(seen) {
            Some(MemoryClaim { takes: true, by }) => {
                finding(true, format!("{by} reports support; it could not be tried: {why}"))
            }
            Some(MemoryClaim { by, .. }) => finding(
                false,
                format!("{by} reports no support; it could not be tried: {why}; {OVERRIDE}"),
            ),
            None => {
                let how = format!(
                    "the library does not report it, and it could not be tried: {why}; if it takes \
                     device memory, give --device-memory yes"
                );
                finding(false, how)
            }
        },
    }
}

/// Tries it with each launcher until one gets as far as to send. `alone`: as the last one this process
/// itself, which its launcher may have started, asks the library in a child.
fn attempt(alone: bool) -> Attempt {
    let Some((library, programs)) = mpi_launchers() else {
        return Attempt::Impossible("no MPI library is found here".to_owned(), None);
    };
    let env = |name: &str| std::env::var(name).ok();
    let by = launched(&env).map_or("", |l| l.by);
    let on_path = |name: &str| find_on_path(name);
    let mut launches = launches(by, &programs, &env, &on_path);
    if alone && !by.is_empty() {
        let (words, keeps) = (vec!["env".into()], ALL);
        launches.push(Launch { words, name: "a separate process".to_owned(), keeps });
    }
    try_each(&launches, &mut |launch| launch.run(&library))
}

fn try_each(launches: &[Launch], run: &mut dyn FnMut(&Launch) -> LaunchReport) -> Attempt {
    let (mut reasons, mut claim) = (Vec::new(), None);
    for launch in launches {
        let seen = run(launch);
        let name = launch.name.clone();
        if seen.arrived {
            return Attempt::Arrived(name);
        } else if seen.sent {
            return Attempt::Lost(name, seen.end);
        }
        claim = claim.or(seen.claim);
        reasons.push(format!("with {name} {}", seen.end));
    }
    if reasons.is_empty() {
        reasons.push("there is no mpirun of this library, and no srun of this job".to_owned());
    }
    Attempt::Impossible(reasons.join("; "), claim)
}

/// Variables that name this job to Slurm, and how its processes find each other.
const OF_SLURM: &[&str] = &["SLURM_CONF", "SLURM_MPI_TYPE", "SLURM_CLUSTER_NAME"];
/// Everything: what a child needs to take its parent's place in a launch.
const ALL: &[&str] = &["*"];

/// How two processes can be launched here: by the launcher of this job if that is Slurm, which knows the
/// GPUs and the network that the job has; by programs of MPI installations.
fn launches(
    by: &str,
    programs: &[PathBuf],
    env: &dyn Fn(&str) -> Option<String>,
    on_path: &dyn Fn(&str) -> Option<PathBuf>,
) -> Vec<Launch> {
    let of_slurm = || -> Option<Launch> {
        let job = env("SLURM_JOB_ID").filter(|_| by == "Slurm")?;
        let srun = on_path("srun")?;
        // A step next to the one that this process is in, on the same resources; one that cannot
        // begin is given up.
        let mut words = vec![srun.clone().into_os_string()];
        let arguments =
            ["--overlap", "--nodes=1", "--ntasks=2", "--immediate=15", "--kill-on-bad-exit=1"];
        words.extend(arguments.map(OsString::from));
        words.push(format!("--jobid={job}").into());
        words.extend(env("SLURMD_NODENAME").map(|node| format!("--nodelist={node}").into()));
        let name = format!("{} --overlap -n 2", srun.display());
        Some(Launch { words, name, keeps: OF_SLURM })
    };
    let of_mpi = |program: &PathBuf| Launch {
        words: vec![program.clone().into_os_string(), "-n".into(), "2".into()],
        name: format!("{} -n 2", program.display()),
        keeps: &[],
    };
    of_slurm().into_iter().chain(programs.iter().take(3).map(of_mpi)).collect()
}

/// The file of a program that is called by its name alone, as a shell finds it.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_file(file))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(takes: bool) -> Option<MemoryClaim> {
        Some(MemoryClaim { takes, by: "MPIX_GPU_query_support".to_owned() })
    }

    fn impossible() -> Attempt {
        Attempt::Impossible("there is no mpirun".to_owned(), None)
    }

    #[test]
    fn a_setting_comes_before_all_else() {
        // Neither is it tried then.
        let mut never = || panic!("it is tried");
        for (asked, takes, word) in
            [(DeviceMemory::Yes, true, "yes"), (DeviceMemory::No, false, "no")]
        {
            for claim in [None, claim(true), claim(false)] {
                let found = decide(asked, claim, &mut never);
                assert_eq!(
                    found,
                    DeviceFinding { takes, how: format!("--device-memory {word} was given") }
                );
            }
        }
    }

    #[test]
    fn an_attempt_overrides_the_claim_of_the_library() {
        // Open MPI over UCX takes device memory and denies it; a library may claim it and die.
        let (arrived, lost) = (
            Attempt::Arrived("mpirun -n 2".to_owned()),
            Attempt::Lost("mpirun -n 2".to_owned(), "signal 11".to_owned()),
        );
        for claim in [None, claim(true), claim(false)] {
            let found = decide(DeviceMemory::Try, claim.clone(), &mut || arrived.clone());
            assert_eq!(found.how, "tried with mpirun -n 2: every byte arrived");
            assert!(found.takes);
            let found = decide(DeviceMemory::Try, claim, &mut || lost.clone());
            assert!(!found.takes && found.how.contains("signal 11"), "{}", found.how);
        }
    }

    #[test]
    fn without_a_launcher_the_librarys_own_answer_counts() {
        let found = |claim| decide(DeviceMemory::Try, claim, &mut impossible);
        let yes = found(claim(true));
        assert!(
            yes.takes && yes.how.starts_with("MPIX_GPU_query_support reports support;"),
            "{}",
            yes.how
        );
        let no = found(claim(false));
        assert!(
            !no.takes && no.how.starts_with("MPIX_GPU_query_support reports no support;"),
            "{}",
            no.how
        );
        assert!(no.how.contains("--device-memory yes"), "{}", no.how);
        let none = found(None);
        assert!(!none.takes && none.how.contains("does not report"), "{}", none.how);
        assert!(
            none.how.contains("there is no mpirun") && none.how.contains("--device-memory yes")
        );
        // A claim from the processes of a failed launch counts where ranks have none.
        let mut claimed = || Attempt::Impossible("one rank".to_owned(), claim(true));
        assert!(decide(DeviceMemory::Try, None, &mut claimed).takes);
    }

    #[test]
    fn all_ranks_have_to_say_yes() {
        let (yes, no) = (claim(true), claim(false));
        assert_eq!(common(&[yes.clone(), yes.clone()]), yes);
        assert_eq!(common(&[yes.clone(), no.clone()]), no);
        assert_eq!(common(&[yes, None]), None);
        assert_eq!(common(&[]), None);
    }

    #[test]
    fn a_launch_that_sends_nothing_decides_nothing() {
        let launch = |name: &str| Launch { words: Vec::new(), name: name.to_owned(), keeps: &[] };
        let all = [launch("another MPI's"), launch("ours")];
        // The first cannot launch this library; the second sends, and what it sends is lost.
        let mut run = |launch: &Launch| match launch.name.as_str() {
            "ours" => {
                LaunchReport { sent: true, end: "signal 11".to_owned(), ..LaunchReport::default() }
            }
            _ => LaunchReport { end: "exit 1".to_owned(), ..LaunchReport::default() },
        };
        let lost = Attempt::Lost("ours".to_owned(), "signal 11".to_owned());
        assert_eq!(try_each(&all, &mut run), lost);
        let why = "with another MPI's exit 1".to_owned();
        assert_eq!(try_each(&all[..1], &mut run), Attempt::Impossible(why, None));
        let Attempt::Impossible(why, None) = try_each(&[], &mut run) else { panic!("tried") };
        assert!(why.contains("no mpirun") && why.contains("no srun"), "{why}");
    }

    #[test]
    fn a_job_of_slurm_tries_it_in_a_step_of_its_own() {
        let env = |name: &str| match name {
            "SLURM_JOB_ID" => Some("77".to_owned()),
            "SLURMD_NODENAME" => Some("nid001".to_owned()),
            _ => None,
        };
        let srun = |name: &str| (name == "srun").then(|| PathBuf::from("/usr/bin/srun"));
        let none = |_: &str| None;
        let found = launches("Slurm", &[], &env, &srun);
        let words: Vec<&str> = found[0].words.iter().filter_map(|w| w.to_str()).collect();
        let expected = [
            "/usr/bin/srun",
            "--overlap",
            "--nodes=1",
            "--ntasks=2",
            "--immediate=15",
            "--kill-on-bad-exit=1",
            "--jobid=77",
            "--nodelist=nid001",
        ];
        assert_eq!((words, found.len()), (expected.to_vec(), 1));
        // A machine without srun, and a launcher that is not Slurm.
        assert_eq!(launches("Slurm", &[], &env, &none), []);
        assert_eq!(launches("Hydra", &[], &env, &srun), []);
        let mpirun = [PathBuf::from("/opt/bin/mpirun")];
        assert_eq!(launches("Hydra", &mpirun, &env, &srun)[0].name, "/opt/bin/mpirun -n 2");
    }
}
