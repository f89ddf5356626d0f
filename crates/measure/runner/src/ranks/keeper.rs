//! Keeps a rank that a launcher started in a child process. A library that ends or holds the child
//! while it is opened costs a child, not the process that the launcher watches: the next child goes
//! without that library.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::job::MeetingPlace;
use crate::hooks::ProcessHooks;
use crate::link::LinkRecv;
use crate::machine::HostMachine;
use crate::process::{ProcessOutput, WorkerProcess};

/// Starts of a rank: there are fewer libraries to leave out.
const MAX_STARTS: u32 = 8;

/// A report of a kept rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KeptState {
    /// The coordinator has it open its libraries.
    Entered,
    /// All ranks have opened theirs. A loss after this is the job's.
    Complete,
}

/// How a rank ended that is not started again.
enum RankEnd {
    /// There is nothing more to do.
    Done,
    /// It has reported the reason.
    Failed,
    /// It was killed; the cause.
    Killed(String),
}

/// Looks after the rank whose place in the job this process has.
pub struct RankKeeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RankKeeper {
    /// Starts the rank, and looks after it on another thread until this is dropped.
    ///
    /// # Errors
    /// No process can be started.
    pub fn start(place: &MeetingPlace, host: &HostMachine) -> Result<Self> {
        let (place, args) = (place.clone(), command(host));
        let first = begin(&place, &args, ProcessOutput::Kept)
            .context("rank 0 cannot be started; see `ulimit -u`")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let look_after = move || {
            let again = || begin(&place, &args, ProcessOutput::Kept);
            // The coordinator names a rank that it loses.
            drop(look_after(first, &again, &|| stopped.load(Ordering::SeqCst)));
        };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(look_after)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for RankKeeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing left to look after.
            let _ = thread.join();
        }
    }
}

/// Does the part of a rank other than the first in a launched job. False if it failed and has
/// reported it.
///
/// # Errors
/// It was ended by a signal, or cannot be started.
pub fn keep(place: &MeetingPlace, host: &HostMachine, hooks: ProcessHooks) -> Result<bool> {
    // The coordinator decides when work ends.
    hooks.ignore_interrupts();
    let args = command(host);
    let again = || begin(place, &args, ProcessOutput::Inherited);
    let first = again().context("no rank can be started; see `ulimit -u`")?;
    match look_after(first, &again, &|| false) {
        RankEnd::Done => Ok(true),
        RankEnd::Failed => Ok(false),
        RankEnd::Killed(how) => Err(anyhow!("the process of this rank {how}")),
    }
}

fn command(host: &HostMachine) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["rank".into(), "--kept".into()];
    args.extend(host.flags());
    args
}

/// Starts a rank that comes there. The place is no argument: others may read those, and be there first.
fn begin(
    place: &MeetingPlace,
    args: &[OsString],
    output: ProcessOutput,
) -> io::Result<WorkerProcess> {
    let mut process = WorkerProcess::start_with(args, &BTreeMap::new(), output)?;
    process.link.send(place)?;
    Ok(process)
}

/// Waits for the end of a rank, and starts it again as long as it is lost while libraries are opened.
fn look_after(
    mut process: WorkerProcess,
    again: &dyn Fn() -> io::Result<WorkerProcess>,
    stop: &dyn Fn() -> bool,
) -> RankEnd {
    for start in 1.. {
        let mut state = None;
        loop {
            match process.link.listen() {
                Ok(LinkRecv::Line(now)) => state = Some(now),
                Ok(LinkRecv::Timeout) if stop() => {
                    // One that still looks for its coordinator would do so for a minute; dropping
                    // another one waits until it has given back what it has.
                    if state.is_none() {
                        process.kill();
                    }
                    return RankEnd::Done;
                }
                Ok(LinkRecv::Timeout) if !process.has_ended() => {}
                Ok(LinkRecv::Timeout | LinkRecv::End) | Err(_) => break,
            }
        }
        let exit = process.exit_report();
        if stop() {
            return RankEnd::Done;
        }
        if state != Some(KeptState::Entered) || start >= MAX_STARTS {
            return match exit.code {
                Some(0) => RankEnd::Done,
                Some(_) => RankEnd::Failed,
                None => RankEnd::Killed(exit.text),
            };
        }
        process = match again() {
            Ok(process) => process,
            Err(error) => return RankEnd::Killed(format!("cannot be started again ({error})")),
        };
    }
    RankEnd::Done
}
