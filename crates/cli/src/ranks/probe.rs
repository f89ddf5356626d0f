//! Whether an MPI takes device memory. Asking is not enough: a library may take it unasked through
//! one that it is built on, or say yes and not find what it needs. It is tried, in two processes of a
//! launch of its own, since a library that does not know device memory touches it with the CPU and
//! dies.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use pathline_bench::RankSide;
use pathline_hal::{Alone, ExchangeId};
use pathline_schema::{Case, CpuSet, Mem, Member, Rank};
use pathline_vendor::{mpirun, open_mpi};
use rustix::process::{Pid, Signal, kill_process_group};

use super::side::describe;
use crate::args::LibraryArgs;
use crate::env;
use crate::say::outln;
use crate::worker::program;
use crate::world::{Open, Spread, World};

/// Such a launch takes a second or two; a library that does not know device memory may also hang.
const PATIENCE: Duration = Duration::from_secs(40);
/// What a try prints once bytes have come and are right.
const CAME: &str = "pathline: device memory came";
/// Variables of a launch that is not this one.
const OF_LAUNCHES: &[&str] =
    &["PMI", "OMPI_", "PRTE_", "HYD", "MPI_LOCAL", "SLURM_", "PALS_", "FLUX_", "MPIEXEC"];

/// Why the MPI that ranks here have takes no device memory; none if it does.
pub(super) fn no_device_memory() -> Option<String> {
    let Some(mpirun) = mpirun() else {
        return Some("no mpirun is beside it, with which that could be tried".to_owned());
    };
    match attempt(&mpirun) {
        Ok(()) => None,
        Err(why) => Some(format!("tried with {} -n 2: {why}", mpirun.display())),
    }
}

fn attempt(mpirun: &Path) -> std::result::Result<(), String> {
    let mut command = Command::new(mpirun);
    command.args(["-n", "2"]).arg(program()).args(["rank", "--probe"]).process_group(0);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // How a user chooses transports is kept.
        let chosen = text.starts_with("OMPI_MCA_") && !text.starts_with("OMPI_MCA_ess");
        if OF_LAUNCHES.iter().any(|start| text.starts_with(start)) && !chosen {
            command.env_remove(&name);
        }
    }
    // Open MPI asks twice before it runs as root; whoever got this far has been asked.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let (tell, lines) = channel();
    for output in [
        child.stdout.take().map(|o| Box::new(o) as Box<dyn std::io::Read + Send>),
        child.stderr.take().map(|o| Box::new(o) as Box<dyn std::io::Read + Send>),
    ]
    .into_iter()
    .flatten()
    {
        let tell = tell.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                // Nobody hears who has heard enough.
                let _ = tell.send(line);
            }
        });
    }
    drop(tell);
    let (begun, mut came, mut last) = (Instant::now(), false, String::new());
    let ended = loop {
        match lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
            Ok(line) if line.contains(CAME) => came = true,
            Ok(line) if !line.trim().is_empty() => {
                last = line.trim().chars().take(160).collect();
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => break None,
            Err(RecvTimeoutError::Disconnected) => break child.wait().ok(),
        }
    };
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && ended.is_none()
    {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
    }
    judge(came, ended, &last)
}

fn judge(came: bool, ended: Option<ExitStatus>, last: &str) -> std::result::Result<(), String> {
    let said = if last.is_empty() { String::new() } else { format!("; it last said: {last}") };
    match ended {
        _ if came => Ok(()),
        None => Err(format!("nothing came for {:.0} s{said}", PATIENCE.as_secs_f64())),
        Some(status) => Err(format!("the processes that sent it ended with {status}{said}")),
    }
}

/// One of the two: sends device memory to the other and back, and says so once it is right.
pub(crate) fn run() -> Result<()> {
    let world = World::new(None, &LibraryArgs::from_env())?;
    let Open { machine, .. } = world.open(&env::switches(), Spread::default())?;
    let port = open_mpi(None).map_err(|why| anyhow!(why))?;
    let (rank, size) = port.rank_size();
    let members: Vec<Member> =
        (0..size).map(|rank| describe(rank, (rank, size), &machine.topology)).collect();
    let place = |rank: u32| {
        let member = members.get(rank as usize)?;
        member.gpu_memory(Mem::Vram)
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
        side.run(id, 1, &Alone)?;
        side.check(id)?;
        side.release(id)?;
    }
    if rank == 0 {
        outln!("{CAME}");
    }
    Ok(())
}
