//! The worker's side: opens the machine and measures what it is told.

use std::cell::Cell;
use std::io;

use anyhow::{Result, anyhow};
use pathline_bench::{CaseTask, LocalExecutor, MachineInfo, TaskEvent};
use pathline_flow::MachineDesc;
use pathline_hal::Machine;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::inject::{self, WorkerFault};
use super::link::{LineLink, LinkRecv, MachineOpening, WorkerOrder, WorkerReply, WorkerReport};
use crate::env;
use crate::ranks::RankProcesses;
use crate::say::errln;
use crate::world::{self, CommandWorld, OpenWorld};

/// Works until its supervisor closes the socket.
pub(crate) fn run() -> Result<()> {
    // The supervisor decides when work ends; who ends all processes of a job at once must not take
    // the last sample from it.
    if let Err(error) = ctrlc::set_handler(|| {}) {
        errln!("cannot leave signals to the supervisor: {error}");
    }
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut link = LineLink::from_standard_input()?;
    let LinkRecv::Line(WorkerOrder::Open(opening)) = link.listen()? else {
        return Err(anyhow!("expected the order to open a machine"));
    };
    // A parent that ended before the signal was asked for is gone unnoticed.
    if getppid().is_none_or(|pid| pid.as_raw_pid().cast_unsigned() != opening.parent) {
        return Ok(());
    }
    inject::at_open(&opening);
    let (mut machine, without) = open(&opening)?;
    if let Some(job) = opening.job.as_ref().filter(|_| machine.ranks.is_none()) {
        let without_gpus = opening.without.as_deref();
        // A supervisor that has gone is noticed at the next line.
        let mut retrying = || drop(link.send(&WorkerReport::Retrying));
        let opened = RankProcesses::open(
            job,
            &opening.libraries,
            without_gpus,
            opening.limit,
            &mut retrying,
        );
        match opened {
            Ok(ranks) => machine.ranks = Some(Box::new(ranks)),
            // Children that were lost can be had anew; those of a launcher cannot.
            Err(error) if job.is_own() => return Err(error),
            Err(error) => return Ok(link.send(&WorkerReport::Incomplete(format!("{error:#}")))?),
        }
    }
    let about = MachineInfo::of(&machine, without, opening.overhead);
    link.send(&WorkerReport::Opened(Box::new(about.clone())))?;
    let mut here: Option<LocalExecutor<'_>> = None;
    while let LinkRecv::Line(order) = link.listen()? {
        let WorkerOrder::Measure(order) = order else { return Err(anyhow!("a machine is open")) };
        let (task, settings) = *order;
        let here =
            here.get_or_insert_with(|| LocalExecutor::new(&machine, about.clone(), settings));
        measure(here, &task, &mut link, &opening)?;
        link.send(&WorkerReport::Done)?;
    }
    Ok(())
}

fn open(opening: &MachineOpening) -> Result<(Machine, Option<String>)> {
    let switches = env::switches();
    if let Some((name, text)) = &opening.model {
        let desc = MachineDesc::parse(name, text)?;
        let faults = opening.inject.iter().filter_map(fault).collect();
        let mut machine = world::simulate(&desc, &switches, opening.spread, faults)?;
        if opening.without.is_some() {
            machine.driver = None;
        }
        return Ok((machine, opening.without.clone()));
    }
    if let Some(why) = &opening.without {
        return Ok((world::without_gpus(&opening.stores), Some(why.clone())));
    }
    let world = CommandWorld::new(None, &opening.libraries)?.with_stores(&opening.stores);
    let OpenWorld { machine, without, .. } = world.open(&switches, opening.spread)?;
    Ok((machine, without))
}

fn fault(inject: &WorkerFault) -> Option<pathline_sim::FaultOrder> {
    let WorkerFault::Call { call, nth, severity, gpu } = inject else { return None };
    let fault = pathline_sim::FaultOrder::fails(call, *nth, *severity);
    Some(gpu.map_or(fault.clone(), |gpu| fault.on(gpu)))
}

fn measure(
    here: &mut LocalExecutor<'_>,
    task: &CaseTask,
    link: &mut LineLink,
    opening: &MachineOpening,
) -> io::Result<()> {
    let stop = Cell::new(false);
    let interrupt = || stop.get().then(|| "the supervisor said so".to_owned());
    here.work(task, &interrupt, &mut |word: TaskEvent| {
        let mishap = inject::at(opening, &word);
        link.send(&WorkerReport::Word(Box::new(word)))?;
        match link.listen()? {
            LinkRecv::Line(WorkerReply::Go) => {}
            LinkRecv::Line(WorkerReply::Stop) => stop.set(true),
            // Nobody reads any more.
            LinkRecv::Nothing | LinkRecv::End => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        if let Some(mishap) = mishap {
            mishap.happen();
        }
        Ok(())
    })
}
