//! The machine that a command works on: this one, or a simulated one.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use anyhow::{Result, anyhow};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_gpu::{GpuRuntime, management};
use pathline_hal::Machine;
use pathline_live::LiveMachine;
use pathline_schema::{Bytes, Topology};
use pathline_sim::{FaultOrder, SimOptions};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::args::{LibraryArgs, StoreArgs};
use crate::files;

/// Largest machine description that is read.
const MAX_DESCRIPTION: u64 = 4 << 20;

/// What a command works on, before anything is opened.
pub(crate) enum CommandWorld {
    /// This host.
    Real(Topology, Box<GpuRuntime>, StoreArgs),
    /// A machine description with its text, and the node that it describes.
    Simulated(Box<(MachineDesc, String)>, Topology),
}

/// What a model draws its times from, and how many processes it has.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct SimSpread {
    /// The same seed gives the same times.
    pub(crate) seed: u64,
    /// Standard deviation of each operation's time, relative, if it is asked for.
    #[serde(default)]
    pub(crate) noise: Option<f64>,
    /// How many processes measure together; 0 if none is asked for.
    #[serde(default)]
    pub(crate) ranks: u32,
}

/// An open machine.
pub(crate) struct OpenWorld {
    /// The machine.
    pub(crate) machine: Machine,
    /// Why nothing on GPUs can be measured; none if a runtime is bound.
    pub(crate) without: Option<String>,
    /// The physics that figures are held against.
    pub(crate) network: Network,
}

impl CommandWorld {
    /// This host, or the machine of that name or file. Libraries of vendors are opened in this process:
    /// for one that may be lost over them.
    pub(crate) fn new(machine: Option<&str>, libraries: &LibraryArgs) -> Result<Self> {
        match machine {
            None => {
                let snapshot = pathline_topo::live(management().files());
                let topology = pathline_topo::from_snapshot("live", &snapshot);
                let runtime = pathline_gpu::runtime(&topology, &libraries.asked());
                Ok(Self::Real(topology, Box::new(runtime), StoreArgs::default()))
            }
            Some(name) => {
                let (desc, text) = describe(name)?;
                let topology = desc.topology();
                Ok(Self::Simulated(Box::new((desc, text)), topology))
            }
        }
    }

    /// The same host with places for files; a model has its own.
    pub(crate) fn with_stores(self, stores: &StoreArgs) -> Self {
        match self {
            Self::Real(topology, runtime, _) => Self::Real(topology, runtime, stores.clone()),
            model @ Self::Simulated(..) => model,
        }
    }

    /// What the node is made of.
    pub(crate) fn topology(&self) -> &Topology {
        match self {
            Self::Real(topology, ..) | Self::Simulated(_, topology) => topology,
        }
    }

    /// Opens the machine. The GPU runtime completes what discovery knew of the node, so the plan
    /// and the physics of a run are made of what this gives.
    pub(crate) fn open(
        self,
        env: &BTreeMap<String, String>,
        spread: SimSpread,
    ) -> Result<OpenWorld> {
        match self {
            Self::Real(topology, runtime, stores) => {
                let LiveMachine { machine, without } =
                    pathline_live::open_with(topology, *runtime, &stores.asked());
                let network = Network::from_topology(&machine.topology);
                Ok(OpenWorld { machine, without, network })
            }
            Self::Simulated(desc, _) => {
                let network = Network::new(&desc.0, RuntimeEnv::from_env(env))?;
                let machine = simulate(&desc.0, env, spread, Vec::new())?;
                Ok(OpenWorld { machine, without: None, network })
            }
        }
    }
}

/// Memory that buffers may take where nobody says how much: half of what is free.
pub(crate) fn half_of_free(topology: &Topology) -> Bytes {
    let described = || topology.numa.iter().map(|d| d.memory.0).sum();
    let free = Some(topology.host.available.0).filter(|&a| a > 0).unwrap_or_else(described);
    Bytes(free / 2)
}

/// A model in virtual time, with mishaps on order.
pub(crate) fn simulate(
    desc: &MachineDesc,
    env: &BTreeMap<String, String>,
    spread: SimSpread,
    faults: Vec<FaultOrder>,
) -> Result<Machine> {
    let SimSpread { seed, noise, ranks } = spread;
    let usual = SimOptions::default();
    let options =
        SimOptions { seed, faults, jitter: noise.unwrap_or(usual.jitter), ranks, files: true };
    Ok(pathline_sim::machine_with(desc, RuntimeEnv::from_env(env), &options)?)
}

/// This host, with no library of GPUs opened or asked.
pub(crate) fn without_gpus(stores: &StoreArgs) -> Machine {
    let snapshot = pathline_topo::live(Vec::new());
    let topology = pathline_topo::from_snapshot("live", &snapshot);
    pathline_live::live_with(topology, &stores.asked())
}

/// By this a run knows the description of its machine again: what `sha256sum` prints.
pub(crate) fn description_hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A preset by name, or a description in a file; with its text.
pub(crate) fn describe(name: &str) -> Result<(MachineDesc, String)> {
    if let Some((_, text)) = MachineDesc::presets().iter().find(|(known, _)| *known == name) {
        return Ok((MachineDesc::preset(name)?, (*text).to_owned()));
    }
    let path = Path::new(name);
    let known: Vec<&str> = MachineDesc::presets().iter().map(|(name, _)| *name).collect();
    let text = files::read_text(path, MAX_DESCRIPTION).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => anyhow!(
            "no machine is called '{name}' (there are {}), and as a file: {error}",
            known.join(", ")
        ),
        _ => anyhow!("{name}: cannot be read as a machine description: {error}"),
    })?;
    Ok((MachineDesc::parse(name, &text)?, text))
}
