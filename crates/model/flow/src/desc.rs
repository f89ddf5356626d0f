//! A machine description: a TOML file with the parts of a node and how they perform.

use std::collections::BTreeSet;
use std::ops::Range;

use pathline_schema::{
    Bytes, CacheGroup, ConstantOrigin, CpuSet, Gpu, GpuCache, GpuRoute, HostInfo, HostName, Link,
    LinkEnd, LinkKind, Nic, NumaDomain, PciAddress, PcieLink, Rate, Topology, Unit,
};
use serde::Deserialize;
use toml::{Spanned, Table};

use crate::MessageSoftware;
use crate::cluster::{self, ClusterDesc, RawCluster};
use crate::fault::{self, MachineFault, RawFault};
use crate::measured::{self, MeasuredFlows, RawMeasured, RawParts, RawPath, RawQueue, RawShared};
use crate::model::{
    CallCost, CopyEngineModel, CpuModel, FabricModel, GpuCacheLevel, GpuMemory, HostLink,
    KernelModel, MigrationModel, NodeModel, PageableRegime, TimeModel, bytes, count, gbs, gib,
    maybe_gbs,
};
use crate::origin::{self, GpuNumbering, ModelConstant, OriginError, RawNumbering, RawOrigin};
use crate::presets::PRESETS;
use crate::stack::{self, StackModel, StackProfile};
use crate::storage::{IoCosts, StoreModel};

mod checks;
use checks::{check_joined, check_order, check_sections};

/// The longest description that is read; the presets have 10 KiB.
pub(crate) const MAX_TEXT: usize = 4 << 20;
/// The most GPUs, and the most NUMA domains: predictions of pairs grow with their square.
const MAX_UNITS: usize = 1024;
const MAX_LINKS: usize = 1 << 16;

/// An error in a machine description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct DescError {
    /// File, with line where known: `mi250x.toml:12`.
    pub file: String,
    /// The error and the expected form.
    pub reason: String,
}

/// A machine description.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineDesc {
    /// Short name: `mi250x`.
    pub name: String,
    /// A description in one sentence.
    pub about: String,
    /// The file that it was read from.
    pub file: String,
    /// Clocks of its GPUs under load, of compute units and of memory, MHz, where it states them.
    pub clocks_mhz: (Option<u32>, Option<u32>),
    /// Costs of the machine's message libraries.
    pub software: MessageSoftware,
    /// Its measurements, if it states any.
    pub measured: MeasuredFlows,
    /// Whether it describes how its parts work, so that unmeasured flows can be modelled.
    pub modelled: bool,
    /// The places for files that it has, by number.
    pub stores: Vec<StoreModel>,
    /// CPU cost of I/O; present if there are stores.
    pub io: Option<IoCosts>,
    /// Further equal nodes and their network, if it describes several.
    pub cluster: Option<ClusterDesc>,
    pub(crate) topology: Topology,
    pub(crate) model: NodeModel,
    faults: Vec<MachineFault>,
    constants: Vec<ModelConstant>,
    numberings: Vec<GpuNumbering>,
    pub(crate) stacks: Vec<StackModel>,
    stack: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    name: String,
    /// GPUs of the node that the description is of; all if it is left out.
    slice: Option<Spanned<Vec<u32>>>,
    #[serde(default)]
    about: String,
    host: RawHost,
    #[serde(default)]
    numa: Vec<RawNuma>,
    gpus: RawGpus,
    #[serde(default)]
    gpu: Vec<RawGpu>,
    #[serde(default)]
    links: Vec<RawLink>,
    #[serde(default)]
    routes: Vec<RawRoute>,
    #[serde(default)]
    nics: Vec<RawNic>,
    // These are there or `[[path]]` is.
    gpu_memory: Option<GpuMemory>,
    fabric: Option<Spanned<FabricModel>>,
    copy_engine: Option<Spanned<CopyEngineModel>>,
    kernel: Option<KernelModel>,
    host_link: Option<HostLink>,
    #[serde(default)]
    pageable: Vec<PageableRegime>,
    migration: Option<MigrationModel>,
    cpu: Option<CpuModel>,
    time: Option<Spanned<TimeModel>>,
    #[serde(default)]
    calls: Vec<CallCost>,
    measured: Option<RawMeasured>,
    #[serde(default)]
    path: Vec<RawPath>,
    #[serde(default)]
    shared: Vec<RawShared>,
    #[serde(default)]
    queue: Vec<RawQueue>,
    #[serde(default)]
    software: MessageSoftware,
    #[serde(default)]
    store: Vec<Spanned<StoreModel>>,
    io: Option<IoCosts>,
    #[serde(default)]
    fault: Vec<RawFault>,
    #[serde(default)]
    numbering: Vec<RawNumbering>,
    cluster: Option<RawCluster>,
    #[serde(default)]
    origin: RawOrigin,
    /// Stack whose constants count; that of `--stack`.
    default_stack: Option<Spanned<String>>,
    /// Checked as a plain table.
    #[serde(default)]
    stack: Option<Spanned<serde::de::IgnoredAny>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHost {
    cpu_model: String,
    arch: String,
    #[serde(deserialize_with = "count")]
    sockets: u32,
    #[serde(default)]
    features: Vec<String>,
    #[serde(deserialize_with = "bytes")]
    page_bytes: u64,
    #[serde(deserialize_with = "bytes")]
    huge_page_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNuma {
    id: Spanned<u32>,
    cpus: Spanned<CpuSet>,
    #[serde(deserialize_with = "gib")]
    memory_gib: u64,
    /// Theoretical peak; may be left out where `[[path]]` states measurements.
    #[serde(default, deserialize_with = "maybe_gbs")]
    memory_gbs: Option<f64>,
    /// To every domain, in the order of their ids.
    distances: Option<Spanned<Vec<u32>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGpus {
    vendor: String,
    name: String,
    arch: String,
    #[serde(deserialize_with = "count")]
    compute_units: u32,
    #[serde(deserialize_with = "gib")]
    memory_gib: u64,
    #[serde(default, deserialize_with = "maybe_gbs")]
    memory_gbs: Option<f64>,
    /// Clocks under load, for the record; no rate follows from them.
    #[serde(default)]
    sm_clock_mhz: Option<u32>,
    #[serde(default)]
    memory_clock_mhz: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGpu {
    id: Spanned<u32>,
    numa: Spanned<u32>,
    #[serde(default)]
    package: Option<u32>,
    #[serde(default)]
    pci: PciAddress,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    a: Spanned<LinkEnd>,
    b: Spanned<LinkEnd>,
    kind: LinkKind,
    #[serde(deserialize_with = "count")]
    width: u32,
    /// Peak of one physical link per direction.
    #[serde(deserialize_with = "gbs")]
    each_gbs: f64,
    /// For PCIe: speed, for the record.
    #[serde(default)]
    pcie: Option<RawPcie>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPcie {
    #[serde(deserialize_with = "gbs")]
    gts: f64,
    #[serde(deserialize_with = "count")]
    lanes: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    src: Spanned<LinkEnd>,
    dst: LinkEnd,
    via: Vec<LinkEnd>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNic {
    name: String,
    near: Spanned<LinkEnd>,
    #[serde(deserialize_with = "count")]
    gbits: u32,
}

/// Turns places in the text into `file:line`.
pub(crate) struct LineIndex<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl LineIndex<'_> {
    pub(crate) fn error(&self, span: Option<Range<usize>>, reason: impl Into<String>) -> DescError {
        let line = |span: Range<usize>| {
            let upto = self.text.as_bytes().get(..span.start).unwrap_or(self.text.as_bytes());
            1 + upto.iter().filter(|&&b| b == b'\n').count()
        };
        let file = match span {
            Some(span) => format!("{}:{}", self.file, line(span)),
            None => self.file.to_string(),
        };
        DescError { file, reason: reason.into() }
    }
}

impl MachineDesc {
    /// Parses and validates TOML; `file` is named in errors.
    ///
    /// # Errors
    /// No TOML, an unknown or missing key, a number out of range, or an id that does not exist;
    /// with the line and what was expected.
    pub fn parse(file: &str, text: &str) -> Result<Self, DescError> {
        Self::read(file, text, None)
    }

    /// The description that a table states.
    pub(crate) fn of_table(file: &str, table: Table) -> Result<Self, DescError> {
        let error = |e: toml::ser::Error| DescError { file: file.into(), reason: e.to_string() };
        let text = toml::to_string(&table).map_err(error)?;
        Self::read(file, &text, Some(table))
    }

    /// Of a text, and its table where it is known.
    fn read(file: &str, text: &str, table: Option<Table>) -> Result<Self, DescError> {
        let source = LineIndex { file, text };
        if text.len() > MAX_TEXT {
            let reason = format!("{} bytes; expected at most {MAX_TEXT}", text.len());
            return Err(source.error(None, reason));
        }
        let raw: RawFile = toml::from_str(text)
            .map_err(|e| source.error(e.span(), e.message().trim().replace('\n', ", ")))?;
        check(&source, &raw)?;
        let modelled = check_sections(&source, &raw)?;
        // A twin needs no links: what was measured between two places is a path.
        if modelled {
            check_joined(&source, &raw)?;
        }
        let measured = read_measured(&source, &raw)?;
        let misfit = |m: OriginError| source.error(Some(m.span), m.reason);
        // Once more as a plain table: what is listed in [origin] are keys of the file, not fields.
        let table = match table {
            Some(table) => table,
            None => {
                toml::from_str(text).map_err(|e| source.error(e.span(), e.message().to_owned()))?
            }
        };
        let constants = origin::constants(&table, &raw.origin).map_err(misfit)?;
        let gpus: Vec<u32> = raw.gpu.iter().map(|g| *g.id.get_ref()).collect();
        let topology = topology(&raw);
        let faults = read_faults(&source, &raw, &topology)?;
        let numberings = origin::numberings(raw.numbering, &gpus).map_err(misfit)?;
        let cluster = read_cluster(&source, raw.cluster, &topology)?;
        let of_stacks = |reason| source.error(raw.stack.as_ref().map(Spanned::span), reason);
        let stacks = stack::profiles(&table, gpus.len()).map_err(of_stacks)?;
        let stack = raw.default_stack.map(|name| (name.span(), name.into_inner()));
        // A twin leaves out values that are never used, or that are zero: the host time of a call.
        let ideal = NodeModel::ideal();
        let model = NodeModel {
            gpu_memory: raw.gpu_memory.unwrap_or(ideal.gpu_memory),
            fabric: raw.fabric.map_or(ideal.fabric, Spanned::into_inner),
            copy_engine: raw.copy_engine.map_or(ideal.copy_engine, Spanned::into_inner),
            kernel: raw.kernel.unwrap_or(ideal.kernel),
            host_link: raw.host_link.unwrap_or(ideal.host_link),
            pageable: raw.pageable,
            migration: raw.migration.unwrap_or(ideal.migration),
            cpu: raw.cpu.unwrap_or(ideal.cpu),
            time: raw.time.map_or(ideal.time, Spanned::into_inner),
            calls: raw.calls,
        };
        let desc = Self {
            name: raw.name,
            about: raw.about,
            file: file.to_string(),
            clocks_mhz: (raw.gpus.sm_clock_mhz, raw.gpus.memory_clock_mhz),
            software: raw.software,
            measured,
            modelled,
            stores: raw.store.into_iter().map(Spanned::into_inner).collect(),
            io: raw.io,
            cluster,
            topology,
            model,
            faults,
            constants,
            numberings,
            stacks,
            stack: None,
        };
        let desc = match stack {
            Some((span, name)) => desc.with_stack(&name).map_err(|error| {
                source.error(Some(span), format!("default_stack: {}", error.reason))
            })?,
            None => desc,
        };
        let Some(slice) = raw.slice else { return Ok(desc) };
        desc.slice(slice.get_ref()).map_err(|e| source.error(Some(slice.span()), e.reason))
    }

    /// The software stacks that it describes.
    pub fn stacks(&self) -> impl Iterator<Item = &StackProfile> {
        self.stacks.iter().map(|stack| &stack.profile)
    }

    /// Name of the stack whose constants count; none where the file describes none.
    pub fn stack(&self) -> Option<&str> {
        self.stack.as_deref()
    }

    /// The machine under another of its stacks.
    ///
    /// # Errors
    /// It describes no stack of this name.
    pub fn with_stack(&self, name: &str) -> Result<Self, DescError> {
        match self.stacks.iter().find(|stack| stack.profile.name == name) {
            Some(StackModel { model, software, .. }) => Ok(Self {
                model: model.clone(),
                software: software.clone(),
                stack: Some(name.to_owned()),
                ..self.clone()
            }),
            None => {
                let known: Vec<&str> = self.stacks().map(|stack| stack.name.as_str()).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                let reason = format!("no stack '{name}'; this machine describes {known}");
                Err(DescError { file: self.file.clone(), reason })
            }
        }
    }

    /// The description of `text` with every time, rate and share of this origin multiplied by `factor`:
    /// a figure that changes with it rests on constants of that origin. Counts, and sizes at which a
    /// mechanism changes, stay.
    ///
    /// # Errors
    /// As [`MachineDesc::parse`]; a number may also leave its range.
    pub fn parse_scaled(
        file: &str,
        text: &str,
        origin: ConstantOrigin,
        factor: f64,
    ) -> Result<Self, DescError> {
        let known = Self::parse(file, text)?;
        let error = |reason: String| DescError { file: file.to_string(), reason };
        let mut table: Table = toml::from_str(text).map_err(|e| error(e.message().to_owned()))?;
        origin::scale(&mut table, &known.constants, origin, factor);
        Self::of_table(file, table)
    }

    /// Names and texts of the descriptions that come with the program; a text can be saved,
    /// changed and read again.
    pub const fn presets() -> &'static [(&'static str, &'static str)] {
        &PRESETS
    }

    /// A description that comes with the program, by name.
    ///
    /// # Errors
    /// No such preset; the names that there are.
    pub fn preset(name: &str) -> Result<Self, DescError> {
        match PRESETS.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(&format!("{name}.toml"), text),
            None => {
                let known = PRESETS.map(|(name, _)| name).join(", ");
                let reason = format!("no such preset; there are {known}, and any TOML file");
                Err(DescError { file: name.to_string(), reason })
            }
        }
    }

    /// The numbers of the physics and the peaks, with their origins.
    pub fn constants(&self) -> &[ModelConstant] {
        &self.constants
    }

    /// Other numberings of the same GPUs that sources use.
    pub fn numberings(&self) -> &[GpuNumbering] {
        &self.numberings
    }

    pub(crate) fn cut_to(&mut self, faults: Vec<MachineFault>) {
        self.faults = faults;
        self.numberings.clear();
    }

    /// What is wrong with the machine.
    pub fn faults(&self) -> &[MachineFault] {
        &self.faults
    }

    /// The topology of the described node as its driver reports it: with the widths and speeds of faults
    /// that every process has.
    pub fn topology(&self) -> Topology {
        fault::reported(&self.topology, self.faults.iter().filter(|f| f.probability >= 1.0))
    }

    /// The same for a process that has these faults.
    pub fn topology_with(&self, faults: &[MachineFault]) -> Topology {
        fault::reported(&self.topology, faults.iter())
    }

    /// The topology without faults.
    pub fn healthy_topology(&self) -> &Topology {
        &self.topology
    }
}

fn read_cluster(
    source: &LineIndex<'_>,
    raw: Option<RawCluster>,
    topology: &Topology,
) -> Result<Option<ClusterDesc>, DescError> {
    let Some(raw) = raw else { return Ok(None) };
    if let Some(node) = &raw.node {
        let reason = "node names another description, in a file that describes a node itself";
        return Err(source.error(Some(node.span()), reason));
    }
    let adapters = u32::try_from(topology.nics.len()).unwrap_or(u32::MAX);
    let cluster = cluster::read(raw, adapters);
    cluster.map(Some).map_err(|e| source.error(Some(e.span), e.reason))
}

fn check(source: &LineIndex<'_>, raw: &RawFile) -> Result<(), DescError> {
    // It is the name of a host in runs of the model.
    if !(1..=64).contains(&raw.name.len()) || raw.name.parse::<HostName>().is_err() {
        let reason = "name: expected 1 to 64 letters, digits, '.', '_' and '-', the first no '-'";
        return Err(source.error(None, reason));
    }
    for (what, n, max) in [
        ("numa", raw.numa.len(), MAX_UNITS),
        ("gpu", raw.gpu.len(), MAX_UNITS),
        ("links", raw.links.len(), MAX_LINKS),
        ("routes", raw.routes.len(), MAX_LINKS),
        ("nics", raw.nics.len(), MAX_UNITS),
        ("pageable", raw.pageable.len(), 16),
        ("cpu.cache", raw.cpu.as_ref().map_or(0, |cpu| cpu.cache.len()), 8),
        ("kernel.cache", raw.kernel.as_ref().map_or(0, |kernel| kernel.cache.len()), 8),
        ("calls", raw.calls.len(), 256),
        ("numbering", raw.numbering.len(), 16),
        ("fault", raw.fault.len(), 256),
        ("store", raw.store.len(), 64),
        ("io.engine", raw.io.as_ref().map_or(0, |io| io.engine.len()), 16),
    ] {
        if n > max {
            return Err(
                source.error(None, format!("{n} entries of {what}; expected at most {max}"))
            );
        }
    }
    let mut nodes = BTreeSet::new();
    check_units(source, raw, &mut nodes)?;
    if let Some(nic) = raw.nics.iter().find(|nic| !nodes.contains(nic.near.get_ref())) {
        let reason = format!("{} is no [[gpu]] and no [[numa]] of this file", nic.near.get_ref());
        return Err(source.error(Some(nic.near.span()), reason));
    }
    check_stores(source, raw, &nodes)?;
    check_links(source, raw, &mut nodes)?;
    check_order(source, raw)
}

fn check_stores(
    source: &LineIndex<'_>,
    raw: &RawFile,
    nodes: &BTreeSet<LinkEnd>,
) -> Result<(), DescError> {
    if let (Some(store), None) = (raw.store.first(), &raw.io) {
        let reason = "[[store]] without [io]; expected what I/O costs the CPUs";
        return Err(source.error(Some(store.span()), reason));
    }
    for spanned in &raw.store {
        let store = spanned.get_ref();
        let there = store.numa().is_some_and(|n| nodes.contains(&LinkEnd::Numa(n)));
        if let (Some(near), false) = (&store.near, there) {
            let reason = format!("near: {near} is no [[numa]] of this file");
            return Err(source.error(Some(spanned.span()), reason));
        }
        if store.path.is_empty() || store.file_system.is_empty() {
            let reason = "path and file_system: expected a name each";
            return Err(source.error(Some(spanned.span()), reason));
        }
    }
    Ok(())
}

fn check_units(
    source: &LineIndex<'_>,
    raw: &RawFile,
    nodes: &mut BTreeSet<LinkEnd>,
) -> Result<(), DescError> {
    if raw.numa.is_empty() {
        return Err(source.error(None, "no [[numa]]; expected at least one NUMA domain"));
    }
    let mut cpus = BTreeSet::new();
    for numa in &raw.numa {
        let set = numa.cpus.get_ref().as_slice();
        if let Some(cpu) = set.iter().find(|&&cpu| !cpus.insert(cpu)) {
            let reason = format!("cpus: CPU {cpu} is in two domains");
            return Err(source.error(Some(numa.cpus.span()), reason));
        }
        if !nodes.insert(LinkEnd::Numa(*numa.id.get_ref())) {
            let reason = format!("numa {} is there twice", numa.id.get_ref());
            return Err(source.error(Some(numa.id.span()), reason));
        }
        let Some(distances) = &numa.distances else { continue };
        let given = distances.get_ref();
        let fits = given.len() == raw.numa.len() && given.iter().all(|d| (10..=255).contains(d));
        if !fits {
            let reason = format!(
                "distances: expected {} numbers from 10 to 255, in the order of the domains' ids",
                raw.numa.len()
            );
            return Err(source.error(Some(distances.span()), reason));
        }
    }
    for gpu in &raw.gpu {
        if !nodes.insert(LinkEnd::Gpu(*gpu.id.get_ref())) {
            let reason = format!("gpu {} is there twice", gpu.id.get_ref());
            return Err(source.error(Some(gpu.id.span()), reason));
        }
        if !nodes.contains(&LinkEnd::Numa(*gpu.numa.get_ref())) {
            let reason = format!("no [[numa]] has id {}", gpu.numa.get_ref());
            return Err(source.error(Some(gpu.numa.span()), reason));
        }
    }
    Ok(())
}

fn check_links(
    source: &LineIndex<'_>,
    raw: &RawFile,
    nodes: &mut BTreeSet<LinkEnd>,
) -> Result<(), DescError> {
    for link in &raw.links {
        for end in [&link.a, &link.b] {
            match end.get_ref() {
                switch @ LinkEnd::Switch(_) => _ = nodes.insert(*switch),
                node if nodes.contains(node) => {}
                node => {
                    let reason = format!("{node} is no [[gpu]] and no [[numa]] of this file");
                    return Err(source.error(Some(end.span()), reason));
                }
            }
        }
        if link.a.get_ref() == link.b.get_ref() {
            return Err(source.error(Some(link.b.span()), "a link needs two different ends"));
        }
    }
    let mut linked = BTreeSet::new();
    for link in &raw.links {
        let (a, b) = (*link.a.get_ref(), *link.b.get_ref());
        if !linked.insert((a.min(b), a.max(b))) {
            let reason = format!("{a} and {b} are linked twice; give one link its whole width");
            return Err(source.error(Some(link.a.span()), reason));
        }
    }
    for route in &raw.routes {
        let mut path = vec![*route.src.get_ref()];
        path.extend(&route.via);
        path.push(route.dst);
        let missing = path
            .iter()
            .zip(path.iter().skip(1))
            .find(|&(a, b)| !linked.contains(&((*a).min(*b), (*a).max(*b))));
        if let Some((a, b)) = missing {
            let reason = format!("the route passes from {a} to {b}, which no link joins");
            return Err(source.error(Some(route.src.span()), reason));
        }
        if path.iter().collect::<BTreeSet<_>>().len() != path.len() {
            return Err(source.error(Some(route.src.span()), "the route passes a unit twice"));
        }
    }
    Ok(())
}

fn read_measured(source: &LineIndex<'_>, raw: &RawFile) -> Result<MeasuredFlows, DescError> {
    let gpus: BTreeSet<u32> = raw.gpu.iter().map(|g| *g.id.get_ref()).collect();
    let numas: BTreeSet<u32> = raw.numa.iter().map(|n| *n.id.get_ref()).collect();
    let exists = |unit: Unit| match unit {
        Unit::Gpu(g) => gpus.contains(&g),
        Unit::Numa(n) => numas.contains(&n),
        Unit::Store(_) => false,
    };
    let parts = RawParts {
        about: raw.measured.as_ref(),
        paths: &raw.path,
        shared: &raw.shared,
        queues: &raw.queue,
        exists: &exists,
    };
    measured::read(&parts).map_err(|(span, reason)| source.error(span, reason))
}

fn read_faults(
    source: &LineIndex<'_>,
    raw: &RawFile,
    topology: &Topology,
) -> Result<Vec<MachineFault>, DescError> {
    if let (Some(fault), false) = (raw.fault.first(), raw.path.is_empty()) {
        let reason =
            "fault: expected a file without [[path]]; a measured path has no parts to break";
        return Err(source.error(Some(fault.span()), reason));
    }
    let lanes = |a: LinkEnd, b: LinkEnd| {
        let link = raw.links.iter().find(|l| (*l.a.get_ref(), *l.b.get_ref()) == (a, b))?;
        Some(link.pcie.as_ref()?.lanes)
    };
    fault::read(&raw.fault, topology, lanes).map_err(|e| source.error(Some(e.span), e.reason))
}

fn topology(raw: &RawFile) -> Topology {
    let all_cpus = raw.numa.iter().flat_map(|n| n.cpus.get_ref().as_slice().iter().copied());
    let cpus = CpuSet::new(all_cpus);
    let memory = raw.numa.iter().map(|n| n.memory_gib).sum::<u64>();
    let host = HostInfo {
        hostname: raw.name.parse().unwrap_or_default(),
        arch: raw.host.arch.clone(),
        cpu_model: raw.host.cpu_model.clone(),
        sockets: raw.host.sockets,
        allowed_cpus: cpus.clone(),
        cpus,
        features: raw.host.features.clone(),
        memory: Bytes::gib(memory),
        available: Bytes::gib(memory),
        page: Bytes(raw.host.page_bytes),
        huge_pages: vec![Bytes(raw.host.huge_page_bytes)],
        transparent_huge_pages: "madvise".into(),
        ..HostInfo::default()
    };
    let mut numa: Vec<NumaDomain> = raw.numa.iter().map(domain).collect();
    numa.sort_by_key(|n| n.id);
    let mut gpus: Vec<Gpu> = raw.gpu.iter().map(|g| gpu(raw, g)).collect();
    gpus.sort_by_key(|g| g.index);
    let links = raw.links.iter().map(|l| Link {
        a: *l.a.get_ref(),
        b: *l.b.get_ref(),
        kind: l.kind,
        width: l.width,
        peak: Some(Rate(l.each_gbs * f64::from(l.width))),
    });
    let routes = raw.routes.iter().map(|r| GpuRoute {
        src: *r.src.get_ref(),
        dst: r.dst,
        hops: r.via.len() as u32 + 1,
        via: vec![r.via.clone()],
    });
    Topology {
        source: format!("machine {}", raw.name),
        host,
        caches: caches(raw),
        numa,
        gpus,
        links: links.collect(),
        routes: routes.collect(),
        nics: raw.nics.iter().map(|n| nic(raw, n)).collect(),
        ..Topology::default()
    }
}

fn domain(numa: &RawNuma) -> NumaDomain {
    NumaDomain {
        id: *numa.id.get_ref(),
        cpus: numa.cpus.get_ref().clone(),
        memory: Bytes::gib(numa.memory_gib),
        free: Bytes::gib(numa.memory_gib),
        distances: numa.distances.as_ref().map(|d| d.get_ref().clone()).unwrap_or_default(),
        peak: numa.memory_gbs.map(Rate),
    }
}

fn nic(raw: &RawFile, nic: &RawNic) -> Nic {
    let (near_gpu, numa) = match *nic.near.get_ref() {
        LinkEnd::Gpu(g) => {
            let home = raw.gpu.iter().find(|gpu| *gpu.id.get_ref() == g);
            (Some(g), home.map(|gpu| *gpu.numa.get_ref()))
        }
        LinkEnd::Numa(n) => (None, Some(n)),
        LinkEnd::Switch(_) | LinkEnd::Store(_) => (None, None),
    };
    let speed_mbits = Some(u64::from(nic.gbits) * 1000);
    Nic { name: nic.name.clone(), numa, speed_mbits, near_gpu, ..Nic::default() }
}

fn gpu(raw: &RawFile, gpu: &RawGpu) -> Gpu {
    let id = *gpu.id.get_ref();
    let pcie = raw.links.iter().find_map(|l| {
        let ends = [*l.a.get_ref(), *l.b.get_ref()];
        let ours =
            ends.contains(&LinkEnd::Gpu(id)) && ends.iter().any(|e| matches!(e, LinkEnd::Numa(_)));
        l.pcie.as_ref().filter(|_| ours)
    });
    Gpu {
        index: id,
        vendor: raw.gpus.vendor.clone(),
        name: raw.gpus.name.clone(),
        arch: raw.gpus.arch.clone(),
        pci: gpu.pci.clone(),
        numa: Some(*gpu.numa.get_ref()),
        package: gpu.package,
        memory: Bytes::gib(raw.gpus.memory_gib),
        memory_peak: raw.gpus.memory_gbs.map(Rate),
        compute_units: raw.gpus.compute_units,
        host_link: pcie.map(|p| PcieLink {
            speed_gts: p.gts,
            width: p.lanes,
            max_speed_gts: p.gts,
            max_width: p.lanes,
        }),
        caches: raw.kernel.iter().flat_map(|kernel| &kernel.cache).map(gpu_cache).collect(),
    }
}

fn gpu_cache(cache: &GpuCacheLevel) -> GpuCache {
    GpuCache { level: cache.level, size: Bytes(cache.bytes) }
}

/// Cache groups: consecutive CPUs of a domain share a cache.
fn caches(raw: &RawFile) -> Vec<CacheGroup> {
    let mut groups = Vec::new();
    for cache in raw.cpu.iter().flat_map(|cpu| &cpu.cache) {
        for numa in &raw.numa {
            for cpus in numa.cpus.get_ref().as_slice().chunks(cache.shared_by as usize) {
                groups.push(CacheGroup {
                    level: cache.level,
                    kind: if cache.level == 1 { "Data" } else { "Unified" }.into(),
                    size: Bytes(cache.bytes),
                    line: 64,
                    cpus: CpuSet::new(cpus.iter().copied()),
                });
            }
        }
    }
    groups
}
