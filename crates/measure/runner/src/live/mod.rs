//! The machine that a process runs on: host, GPU runtime, storage and adapters put together.

mod listed_gpus;

use std::rc::Rc;

use pathline_gpu::{GpuDriver, GpuRuntime, management};
use pathline_hal::{Driver, FileStorage, Machine, MemoryRegistrar};
use pathline_host::LiveHost;
use pathline_host::clock::{ClockOrigin, LiveClock};
use pathline_schema::{Topology, TopologyWarning, WorldKind};
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
pub fn open_with(topology: Topology, runtime: GpuRuntime, stores: &[StoreRequest]) -> LiveMachine {
    let LiveMachine { mut machine, without } = open_unwatched(topology, runtime, stores);
    if machine.driver.is_some() {
        machine.monitor = management().watch(&machine.topology.gpus);
    }
    LiveMachine { machine, without }
}

/// The same without sensors: no management library is asked.
pub(crate) fn open_unwatched(
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
            let about = gpu.about();
            listed_gpus::merge(&mut topology, &infos, about.vendor, about.visible);
            // A library on top of a stand-in is recognized by the names of its GPUs.
            if stands_in || infos.iter().any(|i| i.name.starts_with(STAND_IN_NAME)) {
                world = WorldKind::Simulated(WorldKind::STAND_INS.into());
            }
            driver = (!infos.is_empty()).then(|| Box::new(gpu) as Box<dyn Driver>);
        }
        Ok(None) => {}
        Err(error) => without = Some(error.to_string()),
    }
    let machine = Machine { world, ..assemble(topology, origin, host, driver, stores) };
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
        traffic: None,
        ranks: None,
        storage,
    }
}

/// The RDMA adapters of a machine.
fn adapters(topology: &Topology) -> Result<Box<dyn MemoryRegistrar>, String> {
    Ok(Box::new(VerbsLibrary::open(topology)?))
}
