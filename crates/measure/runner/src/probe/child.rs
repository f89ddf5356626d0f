//! The process that opens libraries, and may be lost over them.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};
use pathline_dylib::{Announcement, announce, set_announcement_hook};
use pathline_gpu::{chosen_family, compilers, management, other_runtimes, runtime};
use pathline_hal::{DeviceInfo, Machine, PeerAccess, conformance};
use pathline_schema::{Gpu, GpuFacts, GpuState, Ns, Topology, WorldKind};
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

/// Maximum number of GPUs whose pairs are asked for.
const MOST_PEERS: usize = 64;

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
        LibraryProbe::Management => answer(&managed(describe_gpu)),
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
        LibraryProbe::Machine => answer(&machine(libraries, false)?),
        LibraryProbe::Conformance => answer(&machine(libraries, true)?),
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

/// The management library, and what it and the drivers' files show of each GPU now.
fn managed(describe_gpu: DescribeGpu) -> ManagementAnswer {
    let found = management();
    let (files, opened, report) = (found.files(), found.addresses(), found.nvml.clone());
    let early = found.warnings();
    let mut topology = pathline_topo::from_snapshot("live", &pathline_topo::live(files.clone()));
    // In a container the bus can hide what the library opens.
    for pci in &opened {
        if topology.gpus.iter().all(|gpu| gpu.pci != **pci) {
            let index = topology.gpus.len() as u32;
            let (vendor, pci) = ("nvidia".into(), pci.parse().unwrap_or_default());
            topology.gpus.push(Gpu { index, vendor, pci, ..Gpu::default() });
        }
    }
    let gpus = opened.len();
    let monitor = found.watch(&topology.gpus);
    let state = |gpu: &Gpu| {
        let monitor = monitor.as_ref()?;
        let (facts, begun) = (monitor.facts(gpu.index)?, Instant::now());
        let state = monitor.state(gpu.index).unwrap_or_default();
        let read = begun.elapsed();
        drop(monitor.counters(gpu.index));
        let counted = begun.elapsed().saturating_sub(read);
        let [read, counted] = [read, counted].map(|took| Ns(took.as_nanos() as f64));
        let text = describe_gpu(&topology, gpu.index, &facts, &state);
        let text = format!("{text}; read in {read}, its error counters in {counted}");
        Some((gpu.pci.to_string(), text))
    };
    let states = topology.gpus.iter().filter_map(state).collect();
    let warnings = monitor.as_ref().map_or(early, |monitor| monitor.warnings());
    ManagementAnswer { report, files, gpus, warnings, states }
}

/// Opens this host as a run does, for checks with its sensors, and sends lines about its GPUs.
fn machine(libraries: &LibraryChoice, check: bool) -> Result<HostAnswer> {
    let host = HostMachine { libraries: libraries.clone(), ..HostMachine::default() };
    let OpenMachine { machine, without, .. } =
        if check { host.open() } else { host.open_unwatched() };
    let listed = devices(&machine)?;
    let failed = check && !conforms(&machine)?;
    Ok(HostAnswer { listed, without, failed })
}

/// Sends a line for each GPU that the runtime lists; their PCI addresses.
fn devices(machine: &Machine) -> Result<Vec<String>> {
    let Ok(driver) = machine.driver() else { return Ok(Vec::new()) };
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
            peers(machine, &devices)?;
            Ok(devices.into_iter().map(|device| device.pci.to_string()).collect())
        }
        Err(error) => {
            line(format!("GPUs: {error}"))?;
            Ok(Vec::new())
        }
    }
}

/// Sends how many pairs of GPUs the runtime allows to reach each other, and the first that it does not.
fn peers(machine: &Machine, devices: &[DeviceInfo]) -> Result<()> {
    let Ok(driver) = machine.driver() else { return Ok(()) };
    let gpus = || devices.iter().take(MOST_PEERS).map(|device| device.index);
    let pairs = || gpus().flat_map(|a| gpus().filter(move |b| a != *b).map(move |b| (a, b)));
    let is_direct =
        |(a, b)| driver.peer_access(a, b).is_ok_and(|access| access == PeerAccess::Direct);
    let denied: Vec<(u32, u32)> = pairs().filter(|pair| !is_direct(*pair)).collect();
    let all = pairs().count();
    let first = denied.first().map_or(String::new(), |(a, b)| format!(", not gpu{a} to gpu{b}"));
    match all {
        0 => Ok(()),
        _ => line(format!("direct access: {} of {all} pairs of GPUs{first}", all - denied.len())),
    }
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
