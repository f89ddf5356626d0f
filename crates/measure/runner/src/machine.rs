//! The machine that a command works on: this host, or a simulated one. Chosen once, then handed on, to
//! the worker too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use pathline_flow::{DescError, MachineDesc, Network, RuntimeEnv, join_node};
use pathline_gpu::management;
use pathline_hal::Machine;
use pathline_schema::{Bytes, Topology, did_you_mean};
use pathline_sim::{SimOptions, ranks_of_nodes};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::choice::{LibraryChoice, StorePlaces};
use crate::live::{self, LiveMachine};
use crate::text_file::read_text;

/// Largest machine description that is read.
const MAX_DESCRIPTION: u64 = 4 << 20;

/// The machine of a command, not opened yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineChoice {
    /// This host.
    Host(HostMachine),
    /// A simulated machine.
    Model(Box<MachineModel>),
}

/// Options for the use of this host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HostMachine {
    /// The GPU runtime, and the paths of its libraries.
    pub libraries: LibraryChoice,
    /// The places for files.
    pub stores: StorePlaces,
}

/// A machine description, with the text that it was parsed from.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "(String, String)", into = "(String, String)")]
pub struct MachineModel {
    /// The user's name for it: a preset or a file.
    source: String,
    text: String,
    desc: MachineDesc,
}

impl TryFrom<(String, String)> for MachineModel {
    type Error = anyhow::Error;
    fn try_from((source, text): (String, String)) -> Result<Self> {
        let desc = MachineDesc::parse(&source, &text)?;
        Ok(Self { source, text, desc })
    }
}

impl From<MachineModel> for (String, String) {
    fn from(model: MachineModel) -> Self {
        (model.source, model.text)
    }
}

/// An open machine.
pub struct OpenMachine {
    /// The machine.
    pub machine: Machine,
    /// Why nothing on GPUs can be measured; none if a runtime is bound.
    pub without: Option<String>,
    /// Why the management library of NVIDIA reads nothing, with the remedy, and whether it is there and
    /// refuses to start; none if it reads, or if nobody asked it.
    pub unmanaged: Option<(String, bool)>,
}

impl MachineModel {
    /// A preset by name, or a description in a file; `mi300x:0,1` and `node.toml:0-3` are some of the GPUs
    /// of either ([`MachineDesc::slice`]). A cluster whose file names its node, by preset or by a path
    /// from its own folder, becomes one description.
    ///
    /// # Errors
    /// There is no such preset or file, or it describes no machine.
    pub fn read(name: &str) -> Result<Self> {
        if let Some((node, gpus)) = slice_of(name).filter(|_| !Path::new(name).exists()) {
            let text = format!("slice = {gpus:?}\n{}", read_description(node)?);
            let made: Result<Self> = (name.to_owned(), text).try_into();
            return made.map_err(|error| match error.downcast::<DescError>() {
                // Its line would be that of a text that nobody wrote.
                Ok(error) => anyhow!("{name}: {}", error.reason),
                Err(error) => error,
            });
        }
        let text = read_description(name)?;
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let read_node = |node: &str| {
            let is_preset = MachineDesc::presets().iter().any(|(known, _)| *known == node);
            let file = if is_preset { node.into() } else { folder.join(node) };
            read_description(&file.to_string_lossy()).map_err(|error| DescError {
                file: file.to_string_lossy().into_owned(),
                reason: format!("{error:#}"),
            })
        };
        let joined = join_node(name, &text, read_node)?;
        (name.to_owned(), joined.unwrap_or(text)).try_into()
    }

    /// The same machine with another of its software stacks as the default; itself without a name.
    ///
    /// # Errors
    /// It describes no such stack.
    pub fn with_stack(self, stack: Option<&str>) -> Result<Self> {
        const KEY: &str = "default_stack";
        let Some(stack) = stack else { return Ok(self) };
        self.desc.with_stack(stack)?;
        let is_default = |line: &&str| line.split('=').next().is_some_and(|key| key.trim() == KEY);
        let kept: String =
            self.text.split_inclusive('\n').filter(|line| !is_default(line)).collect();
        (self.source, format!("{KEY} = \"{stack}\"\n{kept}")).try_into()
    }

    /// The description.
    pub fn desc(&self) -> &MachineDesc {
        &self.desc
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// By this a run recognises the description of its machine: what `sha256sum` prints of the text.
    pub fn sha256(&self) -> String {
        Sha256::digest(&self.text).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The text of a preset or of a file.
fn read_description(name: &str) -> Result<String> {
    let presets = MachineDesc::presets();
    if let Some((_, text)) = presets.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    let known: Vec<&str> = presets.iter().map(|(name, _)| *name).collect();
    let read = read_text(Path::new(name), MAX_DESCRIPTION).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            let files = machine_files(Path::new(name));
            let all = || known.iter().copied().chain(files.iter().map(String::as_str));
            let stem = name.strip_suffix(".toml").unwrap_or(name);
            let part = all().find(|known| stem.len() > 2 && known.contains(stem));
            let near = part.map_or_else(
                || did_you_mean(name, all()),
                |known| format!("; did you mean '{known}'?"),
            );
            let known = known.join(", ");
            match name.contains(['.', '/']) {
                true => {
                    anyhow!(
                        "{name}: there is no such file; machines that need none are {known}{near}"
                    )
                }
                false => {
                    anyhow!("no machine and no file is called '{name}'; there are {known}{near}")
                }
            }
        }
        _ => anyhow!("{name}: cannot be read as a machine description: {error}"),
    });
    let is_section = |line: &str| {
        let key = line.trim_start_matches('[').trim_start();
        let is_numa = ["numa", "cluster"].iter().any(|name| key.starts_with(name));
        line.starts_with('[') && is_numa || line.starts_with("name =")
    };
    read.and_then(|text| match text.lines().any(|line| is_section(line.trim_start())) {
        true => Ok(text),
        false => Err(anyhow!(
            "{name} is no machine file, which has [[numa]] or [cluster]; a machine is one of {}, or a file \
             such as `pathline model show mi250x` prints",
            known.join(", ")
        )),
    })
}

/// The machine files in the folder of a path, as paths that would open them.
fn machine_files(path: &Path) -> Vec<String> {
    const MOST: usize = 1000;
    let folder = path.parent().unwrap_or(Path::new(""));
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(here).into_iter().flatten().flatten().take(MOST);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut files: Vec<String> = names
        .filter(|name| name.ends_with(".toml"))
        .map(|name| folder.join(name).display().to_string())
        .collect();
    files.sort();
    files
}

/// A machine's name and the GPUs after its last colon: `0,1` or `0-3`, in the order that is written.
fn slice_of(name: &str) -> Option<(&str, Vec<u32>)> {
    const MOST: usize = 1024;
    let (node, list) = name.rsplit_once(':')?;
    let mut gpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        gpus.extend((first..=last).take(MOST + 1));
        if gpus.len() > MOST || first > last {
            return None;
        }
    }
    Some((node, gpus))
}

impl MachineChoice {
    /// The simulated machine, if it is one.
    pub fn model(&self) -> Option<&MachineModel> {
        match self {
            Self::Host(_) => None,
            Self::Model(model) => Some(model),
        }
    }

    /// Name of the machine, by which folders of runs are called.
    pub fn name<'a>(&'a self, topology: &'a Topology) -> &'a str {
        match self {
            Self::Host(_) => &topology.host.hostname,
            Self::Model(model) => &model.desc.name,
        }
    }

    /// The physics that figures are compared with: of a model as it behaves under the switches `env`,
    /// of this host what `topology` shows.
    ///
    /// # Errors
    /// The description makes no network.
    pub fn network(&self, topology: &Topology, env: &BTreeMap<String, String>) -> Result<Network> {
        Ok(match self {
            Self::Host(_) => Network::from_topology(&topology.whole_node()),
            Self::Model(model) => Network::new(&model.desc, RuntimeEnv::from_env(env))?,
        })
    }

    /// Opens the machine. Libraries of vendors are opened in this process, unless `without` has a
    /// reason to leave GPUs alone: for a process that may be lost over them. The GPU runtime
    /// completes what discovery knows of the node.
    ///
    /// # Errors
    /// The description makes no network, or a model has fewer GPUs than ranks.
    pub(crate) fn open(
        &self,
        env: &BTreeMap<String, String>,
        options: &SimOptions,
        without: Option<String>,
    ) -> Result<OpenMachine> {
        match (self, without) {
            (Self::Model(model), without) => {
                check_ranks(&model.desc, options)?;
                let env = RuntimeEnv::from_env(env);
                let mut machine = pathline_sim::machine_with(&model.desc, env, options)?;
                if without.is_some() {
                    machine.driver = None;
                }
                Ok(OpenMachine { machine, without, unmanaged: None })
            }
            (Self::Host(host), None) => Ok(host.open()),
            (Self::Host(host), without) => {
                Ok(OpenMachine { machine: host.without_gpus(), without, unmanaged: None })
            }
        }
    }
}

impl HostMachine {
    /// The options of a child that uses this host in the same manner.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags = self.libraries.flags();
        flags.extend(self.stores.flags());
        flags
    }

    /// Opens this host with its GPUs.
    pub(crate) fn open(&self) -> OpenMachine {
        let management = management();
        let unmanaged = management.absence();
        let snapshot = pathline_topo::live(management.files());
        let topology = pathline_topo::from_snapshot("live", &snapshot);
        let runtime = pathline_gpu::runtime(&topology, &self.libraries.request());
        let LiveMachine { machine, without } =
            live::open_with(topology, runtime, &self.stores.requests());
        OpenMachine { machine, without, unmanaged }
    }

    /// This host with its GPUs and without their sensors and NVLinks: the management library is not asked, which
    /// may take as long to start as the runtime.
    pub(crate) fn open_unwatched(&self) -> OpenMachine {
        let topology = pathline_topo::from_snapshot("live", &pathline_topo::live(Vec::new()));
        let runtime = pathline_gpu::runtime(&topology, &self.libraries.request());
        let LiveMachine { machine, without } =
            live::open_unwatched(topology, runtime, &self.stores.requests());
        OpenMachine { machine, without, unmanaged: None }
    }

    /// This host, with no library of GPUs opened or asked.
    pub fn without_gpus(&self) -> Machine {
        let snapshot = pathline_topo::live(Vec::new());
        let topology = pathline_topo::from_snapshot("live", &snapshot);
        live::live_with(topology, &self.stores.requests())
    }
}

/// Messages of a model go from GPU to GPU, so a rank without one would measure nothing.
fn check_ranks(desc: &MachineDesc, options: &SimOptions) -> Result<()> {
    let SimOptions { ranks, nodes, .. } = *options;
    let (name, gpus) = (&desc.name, desc.topology().gpus.len());
    if let Some(nodes) = nodes
        && nodes > ranks
    {
        bail!(
            "--nodes {nodes} with {ranks} ranks: each node needs a rank; use --ranks {nodes} or more"
        );
    }
    let of_nodes = ranks_of_nodes(desc, options);
    if let Some(cluster) = desc.cluster.as_ref().filter(|c| of_nodes.len() > c.nodes as usize) {
        bail!(
            "--ranks {ranks} takes {} nodes and {name} has {}; use fewer",
            of_nodes.len(),
            cluster.nodes
        );
    }
    let most = of_nodes.into_iter().max().unwrap_or(0) as usize;
    if gpus == 0 || most <= gpus {
        return Ok(());
    }
    let enough = (ranks as usize).div_ceil(gpus);
    match nodes {
        None => bail!(
            "--ranks {ranks}: {name} has {gpus} GPUs, and the model has one rank on each; use --ranks \
             {gpus} or fewer, or --nodes {enough}"
        ),
        Some(nodes) => bail!(
            "--ranks {ranks} --nodes {nodes}: a node of {name} has {gpus} GPUs, and the model has one \
             rank on each; use --nodes {enough} or more"
        ),
    }
}

/// Default limit of memory for buffers: half of the free memory.
pub fn half_of_free(topology: &Topology) -> Bytes {
    let described = || topology.numa.iter().map(|d| d.memory.0).sum();
    let free = Some(topology.host.available.0).filter(|&a| a > 0).unwrap_or_else(described);
    Bytes(free / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_after_a_colon_are_the_machine() {
        assert_eq!(slice_of("mi300x:0,2-4"), Some(("mi300x", vec![0, 2, 3, 4])));
        assert_eq!(slice_of("a:b.toml:7"), Some(("a:b.toml", vec![7])));
        for whole in ["mi300x", "a:b", "mi300x:", "mi300x:1-", "mi300x:3-1", "mi300x:0-4294967295"]
        {
            assert_eq!(slice_of(whole), None, "{whole}");
        }
        let pair = MachineModel::read("mi250x:4,5").expect("a slice of a preset");
        let gpus = pair.desc().topology().gpus;
        let pci: Vec<&str> = gpus.iter().map(|gpu| gpu.pci.as_str()).collect();
        assert_eq!(pci, ["0000:d1:00.0", "0000:d6:00.0"]);
        // Its text is the whole description, so that what a run keeps can be read again.
        let again = MachineDesc::parse("kept.toml", pair.text()).expect("its own text");
        assert_eq!(again.topology(), pair.desc().topology());
        let reason =
            |name: &str| MachineModel::read(name).map(drop).expect_err("no slice").to_string();
        assert!(
            reason("mi250x:1,7").contains("pass gpu0, which is left out"),
            "{}",
            reason("mi250x:1,7")
        );
        assert!(reason("mi250:0").contains("did you mean"), "{}", reason("mi250:0"));
    }
}
