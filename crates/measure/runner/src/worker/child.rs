//! The worker's side: opens the machine and measures the tasks that its run sends.

use std::cell::Cell;
use std::io;

use anyhow::{Result, anyhow};
use pathline_bench::{CaseTask, Executor, LocalExecutor, MachineInfo, TaskEvent};
use pathline_sim::SimOptions;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::inject;
use crate::env;
use crate::hooks::ProcessHooks;
use crate::link::{LineLink, LinkRecv};
use crate::machine::{MachineChoice, OpenMachine};
use crate::protocol::{MachineOpening, WorkerOrder, WorkerReport};
use crate::ranks::{RankLimits, RankProcesses};

/// Measures until the run closes the socket that is this process's standard input.
///
/// # Errors
/// No process asks over a socket, or the machine cannot be opened.
pub fn serve_worker(hooks: ProcessHooks) -> Result<()> {
    // A signal to all processes of a job must not take the last sample from the run.
    hooks.ignore_interrupts();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut link = LineLink::from_standard_input()?;
    let LinkRecv::Line(WorkerOrder::Open(opening)) = link.listen()? else {
        return Err(anyhow!("expected the order to open a machine"));
    };
    // A parent may have ended before the signal was requested.
    if getppid().is_none_or(|pid| pid.as_raw_pid().cast_unsigned() != opening.parent) {
        return Ok(());
    }
    inject::at_open(&opening, hooks);
    let MachineOpening { request, without, .. } = &*opening;
    let faults = inject::calls(&request.faults);
    let options = SimOptions { faults, ..request.sim_options() };
    let OpenMachine { mut machine, without, .. } =
        request.machine.open(&env::switches(), &options, without.clone())?;
    if let (Some(job), MachineChoice::Host(host)) = (&request.job, &request.machine) {
        // A run that has gone is noticed at the next line.
        let mut retrying = || drop(link.send(&WorkerReport::Retrying));
        let without_gpus = opening.without.as_deref();
        let limits = RankLimits { step: request.limit, start: opening.start_limit };
        let opened = RankProcesses::open(job, host, without_gpus, limits, hooks, &mut retrying);
        match opened {
            Ok(ranks) => machine.ranks = Some(Box::new(ranks)),
            // A new worker starts new children; ranks of a launcher it cannot replace.
            Err(error) if job.can_restart() => return Err(error),
            Err(error) => return Ok(link.send(&WorkerReport::Incomplete(format!("{error:#}")))?),
        }
    }
    let about = MachineInfo::of(&machine, without, opening.overhead);
    link.send(&WorkerReport::Opened(Box::new(about.clone())))?;
    let settings = request.settings_on(&about.topology);
    let mut executor = LocalExecutor::new(&machine, about, settings);
    while let LinkRecv::Line(order) = link.listen()? {
        let WorkerOrder::Measure(task) = order else { return Err(anyhow!("no task is at hand")) };
        measure(&mut executor, &task, &mut link, &opening, hooks)?;
        link.send(&WorkerReport::Done)?;
    }
    Ok(())
}

fn measure(
    executor: &mut LocalExecutor<'_>,
    task: &CaseTask,
    link: &mut LineLink,
    opening: &MachineOpening,
    hooks: ProcessHooks,
) -> io::Result<()> {
    let stop = Cell::new(false);
    let interrupt = || stop.get().then(|| "the supervisor requested it".to_owned());
    let mut send = |event: TaskEvent| {
        let fault = inject::at(opening, &event);
        link.send(&WorkerReport::Event(Box::new(event)))?;
        match link.listen()? {
            LinkRecv::Line(WorkerOrder::Continue) => {}
            LinkRecv::Line(WorkerOrder::Stop) => stop.set(true),
            // The supervisor has gone.
            LinkRecv::Timeout | LinkRecv::End => return Err(io::ErrorKind::BrokenPipe.into()),
            LinkRecv::Line(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
        if let Some(fault) = fault {
            fault.happen(hooks);
        }
        Ok(())
    };
    executor.measure(task, &interrupt, &mut send).map(drop)
}
