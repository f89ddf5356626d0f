//! Knowledge of a machine for read-only commands: no vendor library is opened in this process.

use std::time::Duration;

use pathline_bench::MachineInfo;
use pathline_flow::RuntimeEnv;
use pathline_gpu::chosen_family;
use pathline_schema::{Topology, TopologyWarning, WorldKind};
use pathline_sim::SimOptions;
use pathline_topo::HostSnapshot;

use crate::choice::LibraryChoice;
use crate::machine::{HostMachine, MachineChoice, MachineModel};
use crate::probe::{self, LibraryProbe, ManagementAnswer, ProbeError, ProbeLimits, RuntimeAnswer};

/// This host by its plain files, and by what NVML shows to a process that may be lost over it.
pub struct HostSurvey {
    /// The plain files.
    pub snapshot: HostSnapshot,
    /// The resulting topology.
    pub topology: Topology,
    /// NVML, or how it ended or held the process that asked it.
    pub management: Result<ManagementAnswer, ProbeError>,
    /// How long its libraries may take.
    pub limits: ProbeLimits,
}

impl HostSurvey {
    /// Looks at this host. `call_timeout` is for one call of a library; by default it grows with the
    /// number of GPUs.
    pub fn new(call_timeout: Option<Duration>) -> Self {
        let mut snapshot = pathline_topo::live(Vec::new());
        let gpus = pathline_topo::from_snapshot("live", &snapshot).gpus.len();
        let limits = ProbeLimits::for_gpus(call_timeout, gpus);
        let management: Result<ManagementAnswer, _> =
            probe::ask(LibraryProbe::Management, &LibraryChoice::default(), limits);
        for (path, text) in management.iter().flat_map(|answer| &answer.files) {
            snapshot.insert(path.as_str(), text.as_str());
        }
        let mut topology = pathline_topo::from_snapshot("live", &snapshot);
        if let Err(error) = &management {
            let text = format!(
                "NVML was not read: {error}. Links of NVIDIA GPUs are missing here; `pathline doctor` \
                 looks at every library"
            );
            let (code, subject) = ("nvml-not-read".into(), "gpus".into());
            topology.warnings.push(TopologyWarning { code, subject, text });
        }
        Self { snapshot, topology, management, limits }
    }
}

/// A machine as a plan needs it.
pub struct MachineSurvey {
    /// Facts about it before it is opened.
    pub about: MachineInfo,
    /// How GPUs are chosen and numbered here, a line each.
    pub notes: Vec<String>,
}

impl MachineSurvey {
    /// Looks at a machine. `call_timeout` is for one call of a library.
    pub fn new(machine: &MachineChoice, call_timeout: Option<Duration>) -> Self {
        match machine {
            MachineChoice::Host(host) => Self::host(host, call_timeout),
            MachineChoice::Model(model) => Self::model(model),
        }
    }

    fn host(host: &HostMachine, call_timeout: Option<Duration>) -> Self {
        let HostSurvey { topology, limits, .. } = HostSurvey::new(call_timeout);
        let HostMachine { libraries, stores } = host;
        let (family, choice) = chosen_family(&topology, &libraries.request());
        let runtime = probe::ask::<RuntimeAnswer>(LibraryProbe::Runtime, libraries, limits);
        let without = runtime.map_or_else(|error| Some(error.to_string()), |found| found.without);
        let stores = stores.requests().iter().map(pathline_storage::facts).collect();
        let about =
            MachineInfo { without, stores, ..MachineInfo::closed(WorldKind::Real, topology) };
        Self { about, notes: choice.into_iter().chain(family.numbering_note()).collect() }
    }

    fn model(model: &MachineModel) -> Self {
        let desc = model.desc();
        let machine =
            pathline_sim::machine_with(desc, RuntimeEnv::default(), &SimOptions::default());
        let stores = machine.ok().and_then(|m| m.storage).map_or_else(Vec::new, |s| s.stores());
        let world = WorldKind::Simulated(desc.name.clone());
        let about = MachineInfo { stores, ..MachineInfo::closed(world, desc.topology()) };
        Self { about, notes: Vec::new() }
    }
}
