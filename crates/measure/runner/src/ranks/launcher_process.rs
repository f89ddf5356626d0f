//! A launcher of MPI that the coordinator starts for its ranks: mpirun, with the environment that the
//! next cases need, and again after a rank was lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::job::{MeetingPlace, begun};
use super::keeper::keep;
use crate::hooks::ProcessHooks;
use crate::machine::HostMachine;
use crate::process::{ProcessOutput, WorkerProcess, program};

/// The variable by which launched ranks know where to meet. Arguments could be read by other users, who
/// might be there first.
const PLACE: &str = "PATHLINE_MEETING_PLACE";
/// A launcher may take this long to end its processes after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// A running launcher with the ranks that it has started.
pub(super) struct LauncherProcess {
    process: Option<WorkerProcess>,
    name: String,
}

impl LauncherProcess {
    /// Starts `count` ranks with `launcher`, and where they meet.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub(super) fn start(
        launcher: &Path,
        count: u32,
        host: &HostMachine,
    ) -> Result<(Self, MeetingPlace)> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let nth = STARTED.fetch_add(1, Ordering::Relaxed);
        let (user, pid) = (rustix::process::getuid().as_raw(), rustix::process::getpid());
        let since = begun(pid.as_raw_pid()).unwrap_or_default();
        let place = format!("pathline-{user}-{}.{since}.{nth}", pid.as_raw_pid());
        let mut command = Command::new(launcher);
        command.arg("-n").arg(count.to_string()).arg(program()).args(["rank", "--launched"]);
        command.args(host.flags());
        let text = |value: &str| value.to_owned();
        let env = BTreeMap::from([
            (text(PLACE), place.clone()),
            // As many ranks as `--ranks` says, for any user, as without a launcher. Open MPI asks for
            // these settings.
            (text("OMPI_ALLOW_RUN_AS_ROOT"), text("1")),
            (text("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), text("1")),
            (text("PRTE_MCA_rmaps_default_mapping_policy"), text(":oversubscribe")),
        ]);
        let unset = |name: &String| std::env::var_os(name).is_none();
        let env = env.into_iter().filter(|(name, _)| unset(name)).collect();
        let process = WorkerProcess::start_command(command, &env, ProcessOutput::Kept)
            .with_context(|| {
                format!("{} cannot be started: name another one with --mpirun", launcher.display())
            })?;
        let name = launcher.display().to_string();
        Ok((Self { process: Some(process), name }, MeetingPlace::Node(place)))
    }

    /// Why no further rank will come, if the launcher has ended.
    pub(super) fn end_text(&mut self) -> Option<String> {
        let ended = self.process.as_mut().is_none_or(WorkerProcess::has_ended);
        ended.then(|| self.fate())
    }

    /// How it ended, with the last line that it printed, within the time that a launcher takes to
    /// notice a lost rank.
    pub(super) fn fate(&mut self) -> String {
        match &mut self.process {
            Some(process) => format!("{} {}", self.name, process.end_text(END_TIMEOUT).0),
            None => format!("{} has ended", self.name),
        }
    }

    /// Ends it and its ranks.
    pub(super) fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate(END_TIMEOUT);
        }
    }
}

/// Does the part of a rank that a launcher of the coordinator started. False if it failed and has
/// reported it.
///
/// # Errors
/// No coordinator started it, it was ended by a signal, or it cannot be started.
pub fn keep_launched(host: &HostMachine, hooks: ProcessHooks) -> Result<bool> {
    let place = std::env::var(PLACE).map_err(|_| {
        anyhow!("{PLACE} is not set: `pathline run --mpirun` starts such processes")
    })?;
    keep(&MeetingPlace::Node(place), host, hooks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_that_ends_says_why() {
        let host = HostMachine::default();
        let (mut launcher, place) =
            LauncherProcess::start(Path::new("/bin/false"), 2, &host).unwrap();
        assert!(matches!(place, MeetingPlace::Node(name) if name.starts_with("pathline-")));
        assert_eq!(launcher.fate(), "/bin/false ended with code 1");
        assert_eq!(launcher.end_text().as_deref(), Some("/bin/false ended with code 1"));
        let missing = LauncherProcess::start(Path::new("/no/mpirun"), 2, &host);
        let text = missing.err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(text.starts_with("/no/mpirun cannot be started: name another one"), "{text}");
    }
}
