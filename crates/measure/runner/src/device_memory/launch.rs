//! Two separately launched processes that send each other device memory.
//!
//! A library that does not know such memory touches it with the CPU and crashes, and one that
//! claims to know it may lack what it needs. So it is tried where nothing is lost.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use pathline_bench::RankSide;
use pathline_hal::{ExchangeId, NoBarrier, TransportPort};
use pathline_schema::{Case, CpuSet, MemKind, Rank, RankMember};
use pathline_transport::open_mpi;
use rustix::process::{Pid, Signal, kill_process_group};

use super::MemoryClaim;
use crate::choice::LibraryChoice;
use crate::hooks::ProcessHooks;
use crate::machine::HostMachine;
use crate::member::describe;
use crate::process::program;

/// Such a launch takes a second or two; a library that does not know device memory may also hang.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(40);
/// A launcher may take this long to end what it has started, after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Lines of the two processes: the library's claim, that device memory goes out next, and that
/// every byte of it has arrived.
const CLAIMS: &str = "pathline: device memory, the library claims: ";
const SENDS: &str = "pathline: device memory goes out";
const ARRIVED: &str = "pathline: device memory arrived";

/// Variables of a launch that is not this one.
const OF_LAUNCHES: &[&str] =
    &["PMI", "OMPI_", "PRTE_", "HYD", "MPI_LOCAL", "SLURM_", "PALS_", "FLUX_", "MPIEXEC"];

/// A program that launches two processes, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    /// Program and arguments, before those of the processes.
    pub(super) words: Vec<OsString>,
    /// How it is called in a message: `mpirun -n 2`.
    pub(super) name: String,
    /// Variables of this launch that it reads; `*` for all.
    pub(super) keeps: &'static [&'static str],
}

/// The result of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LaunchReport {
    /// The library's claim, if the processes got as far as to ask it.
    pub(super) claim: Option<MemoryClaim>,
    /// Whether device memory went out, and whether it arrived.
    pub(super) sent: bool,
    pub(super) arrived: bool,
    /// How it ended, with its last line.
    pub(super) end: String,
}

impl Launch {
    /// Launches the two with that library of MPI, and waits for them.
    pub(super) fn run(&self, library: &Path) -> LaunchReport {
        let mut command = self.command(library);
        match command.spawn() {
            Ok(child) => watch(child),
            Err(error) => LaunchReport { end: error.to_string(), ..LaunchReport::default() },
        }
    }

    fn command(&self, library: &Path) -> Command {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().cloned().unwrap_or_default());
        command.args(words).arg(program()).args(["rank", "--probe"]).process_group(0);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            // How a user chooses transports is kept.
            let chosen = text.starts_with("OMPI_MCA_") && !text.starts_with("OMPI_MCA_ess");
            let kept = chosen || self.keeps.iter().any(|&keep| keep == "*" || keep == text);
            if OF_LAUNCHES.iter().any(|start| text.starts_with(start)) && !kept {
                command.env_remove(&name);
            }
        }
        // The launcher may be another MPI's, which must not answer for this one.
        command.env("PATHLINE_MPI", library);
        // Open MPI asks twice before it runs as root; the user has confirmed it for the run
        // already.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Reads what the two print until they have ended, or ends them.
fn watch(mut child: Child) -> LaunchReport {
    let (sender, lines) = channel();
    for output in [
        child.stdout.take().map(|o| Box::new(o) as Box<dyn Read + Send>),
        child.stderr.take().map(|o| Box::new(o) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                // The receiver is gone once it has what it needs.
                let _ = sender.send(line);
            }
        });
    }
    drop(sender);
    let (begun, mut seen, mut last) = (Instant::now(), LaunchReport::default(), String::new());
    let ended = loop {
        match lines.recv_timeout(LAUNCH_TIMEOUT.saturating_sub(begun.elapsed())) {
            Ok(line) => seen.read(&line, &mut last),
            Err(RecvTimeoutError::Timeout) => break None,
            Err(RecvTimeoutError::Disconnected) => break child.wait().ok(),
        }
    };
    if ended.is_none() {
        end(&mut child);
    }
    seen.end = how_it_ended(ended, &last);
    seen
}

impl LaunchReport {
    fn read(&mut self, line: &str, last: &mut String) {
        if let Some((_, text)) = line.split_once(CLAIMS) {
            self.claim = self.claim.take().or_else(|| serde_json::from_str(text.trim()).ok());
        } else if line.contains(ARRIVED) {
            self.arrived = true;
        } else if line.contains(SENDS) {
            self.sent = true;
        } else if !line.trim().is_empty() {
            *last = line.trim().chars().take(160).collect();
        }
    }
}

/// Ends a launcher with all that it has started: asked first, since `srun` leaves what runs on other
/// nodes alone if it is killed.
fn end(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::TERM);
    let begun = Instant::now();
    while begun.elapsed() < END_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

fn how_it_ended(status: Option<ExitStatus>, last: &str) -> String {
    let line = if last.is_empty() { String::new() } else { format!("; last line: {last}") };
    match status {
        None => format!("no answer for {:.0} s{line}", LAUNCH_TIMEOUT.as_secs_f64()),
        Some(status) => format!("the processes ended with {status}{line}"),
    }
}

/// One of the two: sends device memory to the other and back, and prints a line once it is right.
///
/// # Errors
/// No MPI can be opened, there are not two ranks with a GPU each, or bytes do not arrive.
pub fn serve_launch(libraries: &LibraryChoice, hooks: ProcessHooks) -> Result<()> {
    let host = HostMachine { libraries: libraries.clone(), ..HostMachine::default() };
    let machine = host.open().machine;
    let port = open_mpi(None).map_err(|why| anyhow!(why))?;
    let (rank, size) = port.rank_size();
    let members: Vec<RankMember> =
        (0..size).map(|rank| describe(rank, (rank, size), &machine.topology)).collect();
    let vendor = machine.topology.gpus.first().map_or("", |gpu| gpu.vendor.as_str());
    if let Some(claim) = port.device_claim(vendor).map(MemoryClaim::from)
        && rank == 0
    {
        (hooks.warn)(&format!("{CLAIMS}{}", serde_json::to_string(&claim)?));
    }
    let place = |rank: u32| {
        let member = members.get(rank as usize)?;
        member.gpu_memory(MemKind::Vram)
    };
    let (Some(a), Some(b)) = (place(0), place(1)) else {
        return Err(anyhow!("this takes two ranks with a GPU each"));
    };
    let mut side = RankSide::new(&machine, Rank(rank), vec![Box::new(port)]);
    side.know(members.clone());
    for (nth, bytes) in ["8B", "1MiB"].into_iter().enumerate() {
        let case: Case = format!("{a} > {b} by mpi@{}[ping] x {bytes}", a.unit).parse()?;
        let id = ExchangeId(nth as u64);
        let offer = side.bind(id, &case, &CpuSet::default())?;
        side.join(id, &vec![offer; size as usize])?;
        side.spoil(id)?;
        // Standard error has no buffer, so that it comes out before this process may die.
        (hooks.warn)(SENDS);
        side.run(id, 1, &NoBarrier)?;
        side.check(id)?;
        side.release(id)?;
    }
    if rank == 0 {
        (hooks.warn)(ARRIVED);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of a shell that stands in for a launcher.
    fn report_of(script: &str) -> LaunchReport {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        watch(command.spawn().unwrap())
    }

    #[test]
    fn lines_of_the_two_processes_are_read_wherever_they_are_printed() {
        let seen = report_of(
            r#"
            echo 'noise'
            echo 'pathline: device memory, the library claims: {"takes":true,"by":"MPIX_x"}' >&2
            echo '[1,1]<stderr>:pathline: device memory goes out' >&2
            echo 'Segmentation fault' >&2
            exit 11"#,
        );
        let claim = MemoryClaim { takes: true, by: "MPIX_x".to_owned() };
        assert_eq!((seen.claim, seen.sent, seen.arrived), (Some(claim), true, false));
        let end = "the processes ended with exit status: 11; last line: ";
        assert!(seen.end.starts_with(end), "{}", seen.end);
        assert!(report_of("echo 'pathline: device memory arrived'").arrived);
    }

    #[test]
    fn variables_of_this_launch_do_not_reach_the_next_one() {
        let words = ["srun", "-n2"].map(OsString::from).to_vec();
        let keeps = &["SLURM_CONF"];
        let launch = Launch { words, name: "srun".to_owned(), keeps };
        let command = launch.command(Path::new("/opt/libmpi.so.12"));
        let args: Vec<_> = command.get_args().collect();
        assert_eq!((args[0].to_str(), args.len()), (Some("-n2"), 4));
        let library = command.get_envs().find(|(name, _)| *name == "PATHLINE_MPI").unwrap().1;
        assert_eq!(library.and_then(|l| l.to_str()), Some("/opt/libmpi.so.12"));
    }
}
