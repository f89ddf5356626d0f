//! The process that opens libraries, and may be lost over them.

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Result, anyhow};
use pathline_dylib::{Announcement, announce, set_announcement_hook};
use pathline_gpu::{chosen_family, compilers, management, other_runtimes, runtime};
use pathline_hal::{Machine, conformance};
use pathline_schema::{GpuFacts, GpuState, Topology, WorldKind};
use pathline_storage::direct_library;
use pathline_transport::{mpi_controls, mpi_library, rdma_library, ucx_library};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde::Serialize;

use super::{
    AdapterAnswer, DevicesAnswer, DirectAnswer, HostAnswer, LibraryProbe, ManagementAnswer,
    ProbeMessage, RuntimeAnswer,
};
use crate::choice::LibraryChoice;
use crate::device_memory;
use crate::link::LineLink;
use crate::machine::{HostMachine, OpenMachine};

/// A GPU by its index, its facts and its state, as a text.
type DescribeGpu = fn(&Topology, u32, &GpuFacts, &GpuState) -> String;

/// The link to the process that asked.
static ASKER: OnceLock<Mutex<LineLink>> = OnceLock::new();

/// Answers on its standard input, which is a socket, and ends.
///
/// # Errors
/// No process asks over a socket, or the asking process has gone.
pub fn serve_probe(
    probe: LibraryProbe,
    libraries: &LibraryChoice,
    describe_gpu: DescribeGpu,
) -> Result<()> {
    // A crash is one of the answers: it needs no core file.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = ASKER.set(Mutex::new(LineLink::from_standard_input()?));
    set_announcement_hook(pass_on);
    let asked = libraries.request();
    match probe {
        LibraryProbe::Mpi => answer(&mpi_library(None)),
        LibraryProbe::MpiControls => answer(&mpi_controls(None)),
        LibraryProbe::Ucx => answer(&ucx_library()),
        LibraryProbe::Rdma => {
            let (report, dmabuf) = rdma_library();
            answer(&AdapterAnswer { report, dmabuf })
        }
        LibraryProbe::Management => {
            let found = management();
            let (files, gpus, warnings) = (found.files(), found.gpus(), found.warnings());
            answer(&ManagementAnswer { report: found.nvml, files, gpus, warnings })
        }
        LibraryProbe::Runtime => {
            let found = runtime(&host(), &asked);
            let export = found.export_call().map(str::to_owned);
            let copies = found.copy_rule();
            answer(&RuntimeAnswer { driver: found.driver, without: found.without, export, copies })
        }
        LibraryProbe::OtherRuntimes => {
            answer(&other_runtimes(chosen_family(&host(), &asked).0, &asked))
        }
        LibraryProbe::Compiler => answer(&runtime(&host(), &asked).compilers()),
        LibraryProbe::AnyCompiler => answer(&compilers(chosen_family(&host(), &asked).0, &asked)),
        LibraryProbe::Direct => {
            let (report, notes) = direct_library(chosen_family(&host(), &asked).0);
            answer(&DirectAnswer { report, notes })
        }
        LibraryProbe::DeviceMemory => answer(&device_memory::describe(libraries.device_memory, 1)),
        LibraryProbe::Machine => answer(&machine(libraries, false, describe_gpu)?),
        LibraryProbe::Conformance => answer(&machine(libraries, true, describe_gpu)?),
        LibraryProbe::Devices => {
            let host = HostMachine { libraries: libraries.clone(), ..HostMachine::default() };
            let OpenMachine { machine, without, .. } = host.open();
            let simulated = machine.world != WorldKind::Real;
            answer(&DevicesAnswer { topology: machine.topology, without, simulated })
        }
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
    // The asking process may be gone: then nothing waits for an answer.
    let _ = send(&message);
}

fn send(message: &ProbeMessage) -> Result<()> {
    let asker = ASKER.get().ok_or_else(|| anyhow!("no process has asked"))?;
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
fn machine(
    libraries: &LibraryChoice,
    check: bool,
    describe_gpu: DescribeGpu,
) -> Result<HostAnswer> {
    let host = HostMachine { libraries: libraries.clone(), ..HostMachine::default() };
    let OpenMachine { machine, without, .. } = host.open();
    let listed = devices(&machine)?;
    states(&machine, describe_gpu)?;
    let failed = check && !conforms(&machine)?;
    Ok(HostAnswer { listed, without, failed })
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
fn states(machine: &Machine, describe_gpu: DescribeGpu) -> Result<()> {
    let Some(monitor) = &machine.monitor else { return Ok(()) };
    for gpu in &machine.topology.gpus {
        let Some(facts) = monitor.facts(gpu.index) else { continue };
        let begun = machine.clock.now();
        let state = monitor.state(gpu.index).unwrap_or_default();
        let read = machine.clock.now() - begun;
        drop(monitor.counters(gpu.index));
        let counted = machine.clock.now() - begun - read;
        let text = describe_gpu(&machine.topology, gpu.index, &facts, &state);
        line(format!("gpu{}: {text}; read in {read}, its error counters in {counted}", gpu.index))?;
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
