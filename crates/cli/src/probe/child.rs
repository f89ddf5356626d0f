//! The process that opens libraries, and may be lost over them.

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Result, anyhow};
use pathline_dylib::{Announcement, announce, set_announcement_hook};
use pathline_gpu::{chosen_family, compilers, management, other_runtime, runtime};
use pathline_hal::{Machine, conformance};
use pathline_live::LiveMachine;
use pathline_schema::Topology;
use pathline_storage::direct_library;
use pathline_transport::{mpi_library, rdma_library, ucx_library};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde::Serialize;

use super::{DirectAnswer, MachineAnswer, ManagementAnswer, Probe, ProbeMessage, RuntimeAnswer};
use crate::args::LibraryArgs;
use crate::ranks;
use crate::worker::LineLink;

/// To whoever asked.
static ASKER: OnceLock<Mutex<LineLink>> = OnceLock::new();

/// Answers on its standard input, which is a socket, and ends.
pub(crate) fn run(probe: Probe, libraries: &LibraryArgs) -> Result<()> {
    // A crash is one of the answers: it needs no core file.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = ASKER.set(Mutex::new(LineLink::from_standard_input()?));
    set_announcement_hook(pass_on);
    let asked = libraries.asked();
    match probe {
        Probe::Mpi => answer(&mpi_library(None)),
        Probe::Ucx => answer(&ucx_library()),
        Probe::Rdma => answer(&rdma_library()),
        Probe::Management => {
            let found = management();
            let (files, gpus, warnings) = (found.files(), found.gpus(), found.warnings());
            answer(&ManagementAnswer { report: found.nvml, files, gpus, warnings })
        }
        Probe::Runtime => {
            let found = runtime(&host(), &asked);
            answer(&RuntimeAnswer { driver: found.driver, without: found.without })
        }
        Probe::OtherRuntime => answer(&other_runtime(chosen_family(&host(), &asked).0, &asked)),
        Probe::Compiler => answer(&runtime(&host(), &asked).compilers()),
        Probe::AnyCompiler => answer(&compilers(chosen_family(&host(), &asked).0, &asked)),
        Probe::Direct => {
            let (report, notes) = direct_library(chosen_family(&host(), &asked).0);
            answer(&DirectAnswer { report, notes })
        }
        Probe::DeviceMemory => {
            answer(&ranks::device_memory(libraries.device_memory.unwrap_or_default(), 1))
        }
        Probe::Machine => answer(&machine(libraries, false)?),
        Probe::Conformance => answer(&machine(libraries, true)?),
    }
}

/// This host by its plain files alone: which runtime is looked for follows from its GPUs on the bus.
fn host() -> Topology {
    pathline_topo::from_snapshot("live", &pathline_topo::live(Vec::new()))
}

fn pass_on(announcement: Announcement<'_>) {
    let message = match announcement {
        Announcement::Search(report) => ProbeMessage::Search(report.clone()),
        Announcement::Call { library, name } => {
            ProbeMessage::Call(library.map(Into::into), name.to_owned())
        }
    };
    // Whoever asked may be gone: then nobody waits for an answer either.
    let _ = send(&message);
}

fn send(message: &ProbeMessage) -> Result<()> {
    let asker = ASKER.get().ok_or_else(|| anyhow!("nobody has asked"))?;
    let mut asker = asker.lock().unwrap_or_else(PoisonError::into_inner);
    asker.send(message).map_err(|error| anyhow!("the process that asked has gone: {error}"))
}

fn answer(answer: &impl Serialize) -> Result<()> {
    send(&ProbeMessage::Answer(serde_json::to_value(answer)?))
}

fn line(text: String) -> Result<()> {
    send(&ProbeMessage::Line(text))
}

/// Opens this host as a run does, and sends lines about its GPUs.
fn machine(libraries: &LibraryArgs, check: bool) -> Result<MachineAnswer> {
    let management = management();
    let topology = pathline_topo::live(management.files());
    let topology = pathline_topo::from_snapshot("live", &topology);
    let runtime = runtime(&topology, &libraries.asked());
    let LiveMachine { machine, without } = pathline_live::open(topology, runtime);
    let listed = devices(&machine)?;
    states(&machine)?;
    let failed = check && !conforms(&machine)?;
    Ok(MachineAnswer { listed, without, failed })
}

/// Sends a line for each GPU that the runtime lists; their number.
fn devices(machine: &Machine) -> Result<usize> {
    let Ok(driver) = machine.driver() else { return Ok(0) };
    match driver.devices() {
        Ok(devices) => {
            for d in &devices {
                line(format!(
                    "gpu{}: {} · {} · {} · {} · {} compute units{}",
                    d.index,
                    d.name,
                    d.arch,
                    d.pci,
                    d.memory.rounded(),
                    d.compute_units,
                    d.numa.map(|n| format!(" · numa{n}")).unwrap_or_default(),
                ))?;
            }
            Ok(devices.len())
        }
        Err(error) => {
            line(format!("GPUs: {error}"))?;
            Ok(0)
        }
    }
}

/// Sends each GPU's clocks, power and settings, and how long they take to read.
fn states(machine: &Machine) -> Result<()> {
    let Some(monitor) = &machine.monitor else { return Ok(()) };
    for gpu in &machine.topology.gpus {
        let Some(facts) = monitor.facts(gpu.index) else { continue };
        let begun = machine.clock.now();
        let state = monitor.state(gpu.index).unwrap_or_default();
        let read = machine.clock.now() - begun;
        drop(monitor.counters(gpu.index));
        let counted = machine.clock.now() - begun - read;
        let words = pathline_explain::gpus::words(&machine.topology, gpu.index, &facts, &state);
        line(format!(
            "gpu{}: {words}; read in {read}, its error counters in {counted}",
            gpu.index
        ))?;
    }
    Ok(())
}

/// Runs every check that applies, a line each.
fn conforms(machine: &Machine) -> Result<bool> {
    let mut good = true;
    for (name, check) in conformance::checks(machine) {
        announce(name);
        match check(machine) {
            Ok(()) => line(format!("ok     {name}"))?,
            Err(failure) => {
                good = false;
                line(format!("FAILED {name}: {failure}"))?;
            }
        }
    }
    Ok(good)
}
