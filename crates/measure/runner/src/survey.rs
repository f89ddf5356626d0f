//! Knowledge of a machine for read-only commands: no vendor library is opened in this process.

use std::time::Duration;

use pathline_bench::MachineInfo;
use pathline_flow::RuntimeEnv;
use pathline_gpu::chosen_family;
use pathline_schema::{Rank, RankMember, Topology, TopologyWarning, Transport, WorldKind};
use pathline_sim::SimOptions;
use pathline_topo::HostSnapshot;

use crate::choice::LibraryChoice;
use crate::machine::{HostMachine, MachineChoice, MachineModel};
use crate::member::share_of;
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
        let mut survey = Self::of_files(call_timeout);
        survey.add_management(probe::ask(
            LibraryProbe::Management,
            &LibraryChoice::default(),
            survey.limits,
        ));
        survey
    }

    /// The plain files alone: NVML is still to be asked.
    pub fn of_files(call_timeout: Option<Duration>) -> Self {
        let snapshot = pathline_topo::live(Vec::new());
        let topology = pathline_topo::from_snapshot("live", &snapshot);
        let limits = ProbeLimits::for_gpus(call_timeout, topology.gpus.len());
        Self { snapshot, topology, management: Ok(ManagementAnswer::default()), limits }
    }

    /// Adds what NVML shows. Why it was lost is a file of the snapshot too.
    pub fn add_management(&mut self, management: Result<ManagementAnswer, ProbeError>) {
        match &management {
            Ok(answer) => {
                for (path, text) in &answer.files {
                    self.snapshot.insert(path.as_str(), text.as_str());
                }
            }
            Err(error) => {
                self.snapshot.insert("nvml/unread", format!("{error}\n"));
            }
        }
        self.topology = pathline_topo::from_snapshot("live", &self.snapshot);
        if let Err(error) = &management {
            let text = format!(
                "NVML was not read: {error}. Links of NVIDIA GPUs are missing here; `pathline doctor` \
                 looks at every library"
            );
            let (code, subject) = ("nvml-not-read".into(), "gpus".into());
            self.topology.warnings.push(TopologyWarning { code, subject, text });
        }
        self.management = management;
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
        Self::with_ranks(machine, call_timeout, 0, None)
    }

    /// The same with processes that measure together, none of which is started: on a host each is
    /// taken to have every library. `nodes` is for a model, as in [`SimOptions`].
    pub fn with_ranks(
        machine: &MachineChoice,
        call_timeout: Option<Duration>,
        ranks: u32,
        nodes: Option<u32>,
    ) -> Self {
        match machine {
            MachineChoice::Host(host) => {
                let mut survey = Self::host(host, call_timeout);
                if ranks > 0 {
                    survey.about.ranks = planned_members(&survey.about.topology, ranks);
                    let note = "no process was started: each is taken to have every library";
                    survey.notes.push(note.to_owned());
                }
                survey
            }
            MachineChoice::Model(model) => Self::model(model, ranks, nodes),
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

    fn model(model: &MachineModel, ranks: u32, nodes: Option<u32>) -> Self {
        let desc = model.desc();
        let options = SimOptions { ranks, nodes, ..SimOptions::default() };
        let machine = pathline_sim::machine_with(desc, RuntimeEnv::default(), &options).ok();
        let stores = machine.as_ref().and_then(|m| m.storage.as_ref());
        let stores = stores.map_or_else(Vec::new, |storage| storage.stores());
        let ranks = machine.as_ref().and_then(|m| m.ranks.as_ref());
        let ranks = ranks.map_or_else(Vec::new, |ranks| ranks.members().to_vec());
        let world = WorldKind::Simulated(desc.name.clone());
        let about = MachineInfo { stores, ranks, ..MachineInfo::closed(world, desc.topology()) };
        Self { about, notes: Vec::new() }
    }
}

/// Processes of a host as they would be, with every library.
fn planned_members(topology: &Topology, ranks: u32) -> Vec<RankMember> {
    let ways = || Transport::ALL.iter().map(|via| (*via, String::new())).collect();
    let member = |rank| {
        let (gpus, numa) = share_of(topology, rank, ranks);
        let host = topology.host.hostname.to_string();
        RankMember { rank: Rank(rank), host, gpus, numa, ways: ways(), ..RankMember::default() }
    };
    (0..ranks).map(member).collect()
}
