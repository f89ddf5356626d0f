//! The machine of a worker, its helpers and its twin, as the options name them.

use std::rc::Rc;

use pathline_gpu::{CompileMode, LibraryRequest};
use pathline_hal::Machine;
use pathline_host::LiveHost;
use pathline_host::clock::{ClockOrigin, LiveClock};
use pathline_host::cpus;
use pathline_schema::{CpuSet, Gpu, GpuSet, Topology, WorldKind};

use crate::copy_error::{CopyError, CopyStatus};
use crate::ends::EndFinder;
use crate::shared_node::{NodeOptions, OpenedNode};
use crate::twin::TwinModel;

/// What a worker has of a node that is open.
pub(crate) struct OpenedMachine {
    pub(crate) machine: Machine,
    /// GPUs that may relay.
    pub(crate) helpers: Vec<u32>,
    pub(crate) node: OpenedNode,
    /// What is known of the node without a probe.
    pub(crate) twin: Option<TwinModel>,
}

/// The request for a runtime's library: of the options, else of the variables that the program reads.
fn library_request(options: &NodeOptions) -> LibraryRequest {
    let request = LibraryRequest::new(CompileMode::InProcess);
    if let Some((name, path)) = &options.library {
        return request.with(name, path);
    }
    let named = pathline_gpu::library_options()
        .filter_map(|option| Some((option.name, std::env::var_os(option.variable)?)));
    named.fold(request, |request, (name, path)| request.with(name, path))
}

/// The CPUs of this process in the domain of a GPU.
fn near_cpus(topology: &Topology, gpu: &Gpu) -> CpuSet {
    let domain = topology.numa.iter().find(|domain| Some(domain.id) == gpu.numa);
    let allowed = cpus::allowed().unwrap_or_default();
    domain.map(|domain| domain.cpus.intersect(&allowed)).unwrap_or_default()
}

/// Opens the machine on the thread that calls this, which owns it.
pub(crate) fn open_machine(
    options: &NodeOptions,
    origin: ClockOrigin,
) -> Result<OpenedMachine, CopyError> {
    let unavailable = |text: String| CopyError::new(CopyStatus::Unavailable, text);
    let topology = pathline_topo::from_snapshot("live", &pathline_topo::live(Vec::new()));
    let runtime = pathline_gpu::runtime(&topology, &library_request(options));
    if let Some(without) = runtime.without.clone() {
        return Err(unavailable(without));
    }
    let calls = runtime.caller_calls().map_err(unavailable)?;
    let host = LiveHost::new(&topology, origin, |_| Err("copies need no adapter".into()));
    let driver = runtime.open(Rc::clone(&host.memory)).map_err(|e| unavailable(e.to_string()))?;
    let driver = driver.ok_or_else(|| unavailable("the runtime cannot be opened".into()))?;
    let (devices, kernels) = (driver.device_numbers(), driver.caller_kernels());
    if devices.is_empty() {
        let text = format!("the runtime lists no GPU; see {}", driver.about().visible);
        return Err(unavailable(text));
    }
    let machine = Machine {
        world: WorldKind::Real,
        topology,
        clock: Box::new(LiveClock::new(origin)),
        host: Box::new(host),
        driver: Some(Box::new(driver)),
        monitor: None,
        traffic: None,
        ranks: None,
        storage: None,
    };
    let domains = machine.host.domains().iter().map(|domain| domain.id).collect();
    let near = machine.topology.gpus.iter().map(|gpu| near_cpus(&machine.topology, gpu)).collect();
    let finder = EndFinder { devices, domains, near };
    let helpers = match &options.helpers {
        None => (0..finder.devices.len() as u32).collect(),
        Some(listed) => listed
            .iter()
            .map(|&device| {
                let text = || format!("no GPU {device} to help: there are {:?}", finder.devices);
                finder.gpu(device).ok_or_else(|| CopyError::invalid(text()))
            })
            .collect::<Result<Vec<u32>, CopyError>>()?,
    };
    let helpers = helpers.into_iter().filter(|&gpu| gpu < GpuSet::CAPACITY).collect();
    let twin = match &options.twin {
        None => None,
        Some(path) => {
            let devices = machine.driver().and_then(|driver| driver.devices());
            let devices = devices.map_err(|error| unavailable(error.to_string()))?;
            Some(TwinModel::read(path, &devices)?)
        }
    };
    Ok(OpenedMachine { machine, helpers, node: OpenedNode { calls, finder, kernels }, twin })
}
