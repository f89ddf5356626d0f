//! What a command that only looks knows of a machine: no library of a vendor is opened in this process.

use std::collections::BTreeMap;

use anyhow::Result;
use pathline_bench::{PlanScope, RandomDraw, TunedKernels};
use pathline_flow::MachineDesc;
use pathline_gpu::chosen_family;
use pathline_schema::{Bytes, StoreFacts, Topology, TopologyWarning};
use pathline_topo::HostSnapshot;

use crate::args::{LibraryArgs, StoreArgs, TimeoutArgs};
use crate::probe::{self, ManagementAnswer, Probe, ProbeError, ProbeLimits, RuntimeAnswer};
use crate::world::{SimSpread, describe, half_of_free, simulate};

/// This host by its plain files, and by what NVML shows to a process that may be lost over it.
pub(crate) struct HostSurvey {
    /// The plain files.
    pub(crate) snapshot: HostSnapshot,
    /// What they show.
    pub(crate) topology: Topology,
    /// NVML, or how it ended or held the process that asked it.
    pub(crate) management: Result<ManagementAnswer, ProbeError>,
    /// How long its libraries may take.
    pub(crate) limits: ProbeLimits,
}

impl HostSurvey {
    pub(crate) fn new(timeout: &TimeoutArgs) -> Self {
        let mut snapshot = pathline_topo::live(Vec::new());
        let gpus = pathline_topo::from_snapshot("live", &snapshot).gpus.len();
        let limits = timeout.limits(gpus);
        let management: Result<ManagementAnswer, _> =
            probe::ask(Probe::Management, &LibraryArgs::default(), limits);
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
pub(crate) struct Survey {
    /// What the node is made of.
    pub(crate) topology: Topology,
    /// Why nothing on GPUs can be measured; none if nothing is known against it.
    pub(crate) without_gpus: Option<String>,
    /// What is to be known of how GPUs are chosen and numbered here.
    pub(crate) notes: Vec<String>,
    /// The places for files, as far as they can be known before they are opened.
    pub(crate) stores: Vec<StoreFacts>,
    /// Whether it is a model.
    pub(crate) simulated: bool,
}

impl Survey {
    /// This host, or the machine of that name or file.
    pub(crate) fn new(
        machine: Option<&str>,
        libraries: &LibraryArgs,
        timeout: &TimeoutArgs,
        stores: &StoreArgs,
    ) -> Result<Self> {
        match machine {
            None => Ok(Self::host(libraries, timeout, stores)),
            Some(name) => Ok(Self::model(&describe(name)?.0)),
        }
    }

    fn host(libraries: &LibraryArgs, timeout: &TimeoutArgs, stores: &StoreArgs) -> Self {
        let HostSurvey { topology, limits, .. } = HostSurvey::new(timeout);
        let (family, choice) = chosen_family(&topology, &libraries.asked());
        let without_gpus = match probe::ask::<RuntimeAnswer>(Probe::Runtime, libraries, limits) {
            Ok(answer) => answer.without,
            Err(error) => Some(error.to_string()),
        };
        let notes = choice.into_iter().chain(family.numbering_note()).collect();
        let stores = stores.asked().iter().map(pathline_storage::facts).collect();
        Self { topology, without_gpus, notes, stores, simulated: false }
    }

    fn model(desc: &MachineDesc) -> Self {
        let model = simulate(desc, &BTreeMap::new(), SimSpread::default(), Vec::new());
        let stores = model.ok().and_then(|m| m.storage).map_or_else(Vec::new, |s| s.stores());
        let (topology, without_gpus, notes) = (desc.topology(), None, Vec::new());
        Self { topology, without_gpus, notes, stores, simulated: true }
    }

    /// What a plan needs to know. Buffers may take the memory that is asked for, else half of what is
    /// free.
    pub(crate) fn scope<'a>(
        &'a self,
        memory: Option<Bytes>,
        env: &'a BTreeMap<String, String>,
        tuned: &'a TunedKernels,
        draw: RandomDraw,
    ) -> PlanScope<'a> {
        PlanScope {
            topology: &self.topology,
            simulated: self.simulated,
            without_runtime: self.without_gpus.as_deref(),
            memory: memory.unwrap_or_else(|| half_of_free(&self.topology)),
            env,
            tuned,
            draw,
            ranks: &[],
            stores: &self.stores,
        }
    }
}
