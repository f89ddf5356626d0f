//! The machine that a command works on: this one, or a simulated one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use pathline_bench::Scope;
use pathline_flow::{MachineDesc, Network, Switches};
use pathline_hal::Machine;
use pathline_schema::{Bytes, Topology};

/// Largest machine description that is read.
const MAX_DESCRIPTION: u64 = 4 << 20;

/// What a command works on, before anything is opened.
pub(crate) enum World {
    /// This host.
    Real(Topology),
    /// A machine description with its text, and the node that it describes.
    Simulated(Box<(MachineDesc, String)>, Topology),
}

impl World {
    /// This host, or the machine of that name or file.
    pub(crate) fn new(machine: Option<&str>) -> Result<Self> {
        match machine {
            None => Ok(Self::Real(pathline_topo::live())),
            Some(name) => {
                let (desc, text) = describe(name)?;
                let topology = desc.topology();
                Ok(Self::Simulated(Box::new((desc, text)), topology))
            }
        }
    }

    /// What the node is made of.
    pub(crate) fn topology(&self) -> &Topology {
        match self {
            Self::Real(topology) | Self::Simulated(_, topology) => topology,
        }
    }

    /// Short name, for files and titles.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Real(topology) => &topology.host.hostname,
            Self::Simulated(desc, _) => &desc.0.name,
        }
    }

    /// The physics that figures are held against.
    pub(crate) fn network(&self, env: &BTreeMap<String, String>) -> Result<Network> {
        match self {
            Self::Real(topology) => Ok(Network::from_topology(topology)),
            Self::Simulated(desc, _) => Ok(Network::new(&desc.0, Switches::from_env(env))?),
        }
    }

    /// The text of the machine description, to keep with the run; none for this host.
    pub(crate) fn description(&self) -> Option<&str> {
        match self {
            Self::Real(_) => None,
            Self::Simulated(desc, _) => Some(&desc.1),
        }
    }

    /// Memory that buffers may take: as asked, else half of what is free.
    pub(crate) fn memory(&self, asked: Option<Bytes>) -> Bytes {
        let topology = self.topology();
        let described = || topology.numa.iter().map(|d| d.memory.0).sum();
        let free = Some(topology.host.available.0).filter(|&a| a > 0).unwrap_or_else(described);
        asked.unwrap_or(Bytes(free / 2))
    }

    /// What a plan needs to know.
    pub(crate) fn scope<'a>(
        &'a self,
        memory: Bytes,
        env: &'a BTreeMap<String, String>,
    ) -> Scope<'a> {
        let simulated = matches!(self, Self::Simulated(..));
        Scope { topology: self.topology(), simulated, has_runtime: simulated, memory, env }
    }

    /// Opens the machine.
    pub(crate) fn open(self, env: &BTreeMap<String, String>, seed: u64) -> Result<Machine> {
        match self {
            Self::Real(topology) => Ok(pathline_vendor::live(topology)),
            Self::Simulated(desc, _) => {
                Ok(pathline_sim::machine(&desc.0, Switches::from_env(env), seed)?)
            }
        }
    }
}

/// A preset by name, or a description in a file; with its text.
pub(crate) fn describe(name: &str) -> Result<(MachineDesc, String)> {
    if let Some((_, text)) = MachineDesc::presets().iter().find(|(known, _)| *known == name) {
        return Ok((MachineDesc::preset(name)?, (*text).to_owned()));
    }
    let path = Path::new(name);
    let known: Vec<&str> = MachineDesc::presets().iter().map(|(name, _)| *name).collect();
    let size = fs::metadata(path).map_err(|error| {
        anyhow!(
            "no machine is called '{name}' (there are {}), and as a file: {error}",
            known.join(", ")
        )
    })?;
    if size.len() > MAX_DESCRIPTION {
        return Err(anyhow!("{name}: {} bytes are too many for a machine description", size.len()));
    }
    let text = fs::read_to_string(path).with_context(|| name.to_owned())?;
    Ok((MachineDesc::parse(name, &text)?, text))
}
