//! The machine that a process runs on: host, GPU runtime, storage and adapters put together.

use std::rc::Rc;

use pathline_gpu::{GpuDriver, GpuRuntime, RuntimeHints, management};
use pathline_hal::{DeviceInfo, Driver, FileStorage, Machine, MemoryRegistrar};
use pathline_host::LiveHost;
use pathline_host::clock::{ClockOrigin, LiveClock};
use pathline_schema::{Gpu, Link, LinkEnd, Topology, TopologyWarning, WorldKind};
use pathline_storage::{LiveStorage, StoreRequest};
use pathline_transport::VerbsLibrary;

/// A live machine, and why it has no GPU runtime if it has none.
#[derive(Debug)]
pub struct LiveMachine {
    /// The machine. Its topology has the GPUs that the runtime lists, in the runtime's words.
    pub machine: Machine,
    /// Why nothing on GPUs can be measured.
    pub without: Option<String>,
}

/// How the names of GPUs begin that are none: figures from them are a model's.
const STAND_IN_NAME: &str = "stub ";

/// The machine that this process runs on, with its GPU runtime if that starts.
pub fn open(topology: Topology, runtime: GpuRuntime) -> LiveMachine {
    open_with(topology, runtime, &[])
}

/// The same with places for files.
pub fn open_with(
    mut topology: Topology,
    runtime: GpuRuntime,
    stores: &[StoreRequest],
) -> LiveMachine {
    let mut without = runtime.without.clone();
    if let Some(text) = runtime.note.clone() {
        let (code, subject) = ("two-runtimes".into(), "gpus".into());
        topology.warnings.push(TopologyWarning { code, subject, text });
    }
    let origin = ClockOrigin::now();
    let host = LiveHost::new(&topology, origin, adapters);
    let mut driver: Option<Box<dyn Driver>> = None;
    let mut world = WorldKind::Real;
    let stands_in = runtime.stands_in;
    match runtime.open(Rc::clone(&host.memory)) {
        Ok(Some(gpu)) => {
            let infos = gpu.infos();
            if infos.is_empty() {
                // A driver of no devices would be asked for gates, which the host has as well.
                without = Some(no_device(&gpu));
            }
            complete(&mut topology, &infos, gpu.about());
            // A library on top of a stand-in is recognized by the names of its GPUs.
            if stands_in || infos.iter().any(|i| i.name.starts_with(STAND_IN_NAME)) {
                world = WorldKind::Simulated(WorldKind::STAND_INS.into());
            }
            driver = (!infos.is_empty()).then(|| Box::new(gpu) as Box<dyn Driver>);
        }
        Ok(None) => {}
        Err(error) => without = Some(error.to_string()),
    }
    let watch = || management().watch(&topology.gpus);
    let monitor = driver.as_ref().and_then(|_| watch());
    let machine = Machine { world, monitor, ..assemble(topology, origin, host, driver, stores) };
    LiveMachine { machine, without }
}

/// That a runtime works and has nothing to work with.
fn no_device(gpu: &GpuDriver) -> String {
    let (count, visible) = (gpu.count_call(), gpu.about().visible);
    format!("{count} succeeds and lists no GPU; see {visible}")
}

/// The machine that this process runs on, without its GPUs. `topology` assigns CPUs to NUMA
/// domains; without any, the host is one domain.
pub fn live(topology: Topology) -> Machine {
    live_with(topology, &[])
}

/// The same with places for files.
pub fn live_with(topology: Topology, stores: &[StoreRequest]) -> Machine {
    let origin = ClockOrigin::now();
    let host = LiveHost::new(&topology, origin, adapters);
    assemble(topology, origin, host, None, stores)
}

fn assemble(
    topology: Topology,
    origin: ClockOrigin,
    host: LiveHost,
    driver: Option<Box<dyn Driver>>,
    stores: &[StoreRequest],
) -> Machine {
    let storage: Option<Box<dyn FileStorage>> = (!stores.is_empty()).then(|| {
        let (memory, gates) = (Rc::clone(&host.memory), Rc::clone(&host.gates));
        let runtime = driver.as_deref().map(Driver::name);
        Box::new(LiveStorage::new(stores, runtime, origin, memory, gates)) as Box<dyn FileStorage>
    });
    Machine {
        world: WorldKind::Real,
        topology,
        clock: Box::new(LiveClock::new(origin)),
        host: Box::new(host),
        driver,
        monitor: None,
        ranks: None,
        storage,
    }
}

/// Puts the GPUs that a runtime lists in place of all that discovery found: it may use fewer
/// (`RuntimeHints::visible`), and it knows their memory and targets.
fn complete(topology: &mut Topology, infos: &[DeviceInfo], about: &RuntimeHints) {
    if infos.is_empty() {
        return;
    }
    let found = std::mem::take(&mut topology.gpus);
    let hidden = found.iter().filter(|g| infos.iter().all(|i| i.pci != g.pci)).count();
    topology.gpus = infos
        .iter()
        .map(|info| {
            let known = found.iter().find(|g| g.pci == info.pci).cloned();
            let known =
                known.unwrap_or_else(|| Gpu { vendor: about.vendor.into(), ..Gpu::default() });
            Gpu {
                index: info.index,
                name: info.name.clone(),
                arch: info.arch.clone(),
                pci: info.pci.clone(),
                numa: known.numa.or(info.numa),
                memory: info.memory,
                memory_peak: known.memory_peak.or(info.memory_peak),
                compute_units: info.compute_units,
                ..known
            }
        })
        .collect();
    renumber(&mut topology.links, &found, &topology.gpus);
    if hidden > 0 {
        topology.warnings.push(TopologyWarning {
            code: "gpus-not-listed".into(),
            subject: "gpus".into(),
            text: format!(
                "GPUs on the bus that the runtime does not list: {hidden}; see {}",
                about.visible
            ),
        });
    }
}

/// Gives links the numbers that their GPUs now have; links of GPUs that are gone go with them.
fn renumber(links: &mut Vec<Link>, before: &[Gpu], after: &[Gpu]) {
    let now = |node: LinkEnd| match node {
        LinkEnd::Gpu(old) => {
            let pci = &before.iter().find(|g| g.index == old)?.pci;
            Some(LinkEnd::Gpu(after.iter().find(|g| g.pci == *pci)?.index))
        }
        other => Some(other),
    };
    links.retain_mut(|link| match (now(link.a), now(link.b)) {
        (Some(a), Some(b)) => {
            (link.a, link.b) = (a, b);
            true
        }
        _ => false,
    });
}

/// The RDMA adapters of a machine.
fn adapters(topology: &Topology) -> Result<Box<dyn MemoryRegistrar>, String> {
    Ok(Box::new(VerbsLibrary::open(topology)?))
}
