//! What is known of the node: from the user's machine, from the paste, or assumed of the product.

use std::collections::{BTreeMap, BTreeSet};

use pathline_diagnose::{NodePeers, unit_shape};
use pathline_flow::NVLINK_CODING;
use pathline_paste::{NcclLog, PasteContent, PasteContext, PasteReading, find_product, table_rows};
use pathline_schema::{Gpu, Link, LinkEnd, LinkKind, Topology};

use crate::figures::figure;
use crate::processor_facts::{processor_fabric, processor_generation};
use crate::product_facts::{
    FabricKind, ProductFacts, gpus_of_modules, link_gbs, link_peak_gbs, nvlinks, pcie_gbs,
    product_facts,
};
use crate::row_predictor::RowPredictor;

/// Where a fact comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FactSource {
    /// The machine that the user named.
    Machine,
    /// The paste.
    Paste,
    /// The slot of the adapter, which the paste shows to carry less than the port.
    Slot,
    /// The product's data sheet.
    #[default]
    Assumed,
    /// The processor and the GPU that the paste names.
    Pair,
    /// The generation of the processor that the paste names, which is below the product's.
    Processor,
}

impl FactSource {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Machine => "of the machine",
            Self::Paste => "in the paste",
            Self::Slot => "the slot of the adapter, in the paste",
            Self::Assumed => "assumed of the product",
            Self::Pair => "of the processor and the GPU in the paste",
            Self::Processor => "the generation of the processor in the paste, below the GPU's",
        }
    }

    /// `63.0 GB/s each way, PCIe (in the paste)`.
    pub(crate) fn each_way(self, gbs: f64, what: &str) -> String {
        format!("{} GB/s each way, {what} ({})", figure(gbs), self.label())
    }
}

/// What a document is judged by, besides its figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerBasis<'a> {
    pub(crate) limits: Option<&'a NodeLimits>,
    pub(crate) log: Option<&'a NcclLog>,
    pub(crate) context: &'a PasteContext,
    /// The node whose rows are predicted.
    pub(crate) node: Option<&'a RowPredictor>,
}

/// GPUs of a node whose classes of peers are sought.
const MAX_CLASSED: usize = 32;

/// The links of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeLimits {
    /// Product, where one is known.
    pub(crate) product: Option<&'static ProductFacts>,
    pub(crate) fabric: FabricKind,
    /// All links of a GPU, and of its widest pair, per direction, GB/s.
    pub(crate) links_gbs: f64,
    pub(crate) pair_gbs: f64,
    pub(crate) links_source: FactSource,
    /// One NVLink per direction, GB/s.
    pub(crate) link_gbs: f64,
    /// Kind of link of each pair, the lower GPU first, by a matrix of links.
    pub(crate) pair_links: BTreeMap<(u32, u32), String>,
    /// Ordered pairs of GPUs without peer access.
    pub(crate) no_access: BTreeSet<(u32, u32)>,
    /// Whether all GPUs are of one product.
    pub(crate) has_one_product: bool,
    /// Whether P2P over PCIe is refused: the product's driver offers none, and no tool says that there is some.
    pub(crate) no_peer: bool,
    /// GPUs of the product, where the paste lists others too.
    pub(crate) own_gpus: BTreeSet<u32>,
    /// Class of peers of each ordered pair of GPUs, and of each GPU next to the host, where the node is known.
    pub(crate) peer_classes: BTreeMap<(u32, u32), usize>,
    /// Peak of a GPU's memory, where the paste states it.
    pub(crate) memory_gbs: Option<f64>,
    /// One direction of PCIe, or of what stands in its place, GB/s; 0 where it is not known.
    pub(crate) pcie_gbs: f64,
    /// Its name.
    pub(crate) host_link: &'static str,
    pub(crate) pcie_source: FactSource,
    /// NVLink-C2C of a GPU to its processor, GB/s; 0 without.
    pub(crate) c2c_gbs: f64,
    pub(crate) c2c_source: FactSource,
    /// GPUs of a node.
    pub(crate) gpus: Option<u32>,
    /// Adapters that are used, where these are fewer than the node has.
    pub(crate) nics_used: Option<u32>,
    /// Adapters of a node and one's rate, GB/s; 0 where it is not known.
    pub(crate) nics: Option<u32>,
    pub(crate) nic_gbs: f64,
    pub(crate) nic_source: FactSource,
    /// Whether a link is said to run below what it can.
    pub(crate) is_downgraded: bool,
    /// Whether the paste shows the PCIe link of the adapter.
    pub(crate) adapter_slot_known: bool,
    /// Whether every adapter is on another socket than some GPU, by a matrix of links.
    pub(crate) adapters_are_far: bool,
}

impl NodeLimits {
    /// Of a paste, or of a machine that takes precedence.
    pub(crate) fn new(reading: &PasteReading, machine: Option<&Topology>) -> Option<Self> {
        let in_file = reading.documents.iter().find_map(|document| match &document.content {
            PasteContent::Topology(topology) => Some(topology.as_ref()),
            _ => None,
        });
        let of_gpus = |topology: &Topology| find_product(&topology.gpus.first()?.name);
        let own_gpus = own_gpus(&reading.context.devices);
        let of_own =
            own_gpus.first().and_then(|gpu| find_product(reading.context.devices.get(gpu)?));
        let product = machine
            .and_then(of_gpus)
            .or(of_own)
            .or_else(|| reading.context.gpus.first().map(String::as_str))
            .or_else(|| in_file.and_then(of_gpus))
            .and_then(product_facts);
        let has_links = machine.or(in_file).is_some_and(|topology| !topology.gpus.is_empty());
        let context = &reading.context;
        let of_log = find_log(reading).is_some_and(|log| log.adapter_gbits.is_some());
        let stated = context.network_gbits.or(context.adapters.map(f64::from));
        let has_adapters = of_log || stated.is_some() || system_adapters(&context.prose).is_some();
        let has_links = has_links
            || has_adapters
            || context.memory_gbs.is_some()
            || context.pcie.or(context.pcie_most).is_some();
        if product.is_none() && !has_links && !names_links(reading) {
            return None;
        }
        let mut facts = Self {
            product,
            fabric: product.map_or(FabricKind::Pcie, |p| p.fabric),
            links_gbs: product.map_or(0.0, |p| p.links_gbs),
            pair_gbs: product.map_or(0.0, |p| p.pair_gbs),
            link_gbs: link_gbs(product),
            no_access: context.no_access.clone(),
            no_peer: !context.has_access && product.is_some_and(|product| !product.pcie_p2p),
            has_one_product: context.gpus.len() <= 1 || !own_gpus.is_empty(),
            own_gpus,
            peer_classes: machine.map(peer_classes).unwrap_or_default(),
            // The maker of a notebook wires 8 lanes or 16, whatever the GPU can.
            pcie_gbs: product.filter(|p| !p.name.contains("Laptop")).map_or(0.0, |p| p.pcie_gbs),
            host_link: "PCIe",
            memory_gbs: context.memory_gbs,
            c2c_gbs: product.map_or(0.0, |p| p.c2c_gbs),
            gpus: context.gpu_count.map(|count| gpus_of_modules(product, count)),
            is_downgraded: context.pcie_downgraded,
            ..Self::default()
        };
        // Bridges of a pair are an option that few nodes have: without a matrix of links there are none.
        if facts.fabric == FabricKind::Pcie {
            (facts.links_gbs, facts.pair_gbs) = (0.0, 0.0);
        }
        facts.take_paste(reading);
        if let Some(topology) = in_file {
            facts.take_topology(topology, FactSource::Paste);
        }
        if let Some(topology) = machine {
            facts.take_topology(topology, FactSource::Machine);
        }
        Some(facts)
    }

    fn take_paste(&mut self, reading: &PasteReading) {
        let (context, log) = (&reading.context, find_log(reading));
        for document in &reading.documents {
            match &document.content {
                PasteContent::Links(links) if links.has_statuses() => {
                    let is_access =
                        [" -p2p r", " -p2p w"].iter().any(|of| context.prose.contains(of));
                    let is_refused = |status: &str| is_access && !["OK", "U"].contains(&status);
                    let refused = links.pairs.iter().filter(|(_, status)| is_refused(status));
                    self.no_access.extend(refused.map(|(pair, _)| *pair));
                }
                PasteContent::Links(links) => self.take_links(links),
                _ => {}
            }
        }
        let total = (self.links_gbs / self.link_gbs).round();
        let named = context.nvlinks.map(f64::from).filter(|links| *links < total);
        if let Some(links) = named.filter(|_| self.links_source == FactSource::Assumed) {
            // A pair has fewer links than a GPU: the GPUs are joined without switches.
            self.pair_gbs = links * self.link_gbs;
            self.fabric = FabricKind::Meshed;
            self.links_source = FactSource::Paste;
        }
        let generation = processor_generation(&context.processor);
        if let Some((product, generation)) = self.product.zip(generation) {
            let port = pcie_gbs(generation) * product.pcie_lanes / 16.0;
            if port < self.pcie_gbs * 0.9 {
                (self.pcie_gbs, self.pcie_source) = (port, FactSource::Processor);
            }
        }
        if let Some((speed, width)) = context.pcie_most.or(context.pcie) {
            // A slot of a later generation gives a card no more than the card has.
            let gbs = link_peak_gbs((speed, width));
            if self.pcie_gbs <= 0.0 || gbs < self.pcie_gbs * 1.1 {
                (self.pcie_gbs, self.pcie_source) = (gbs, FactSource::Paste);
            }
        } else if let Some(gbs) =
            self.product.and_then(|p| processor_fabric(&context.processor, p.name))
        {
            self.host_link = "Infinity Fabric";
            (self.pcie_gbs, self.pcie_source) = (gbs, FactSource::Pair);
        }
        let gbits = context.network_gbits.or(log.and_then(|log| log.adapter_gbits));
        // The data sheet of a named system, where the text states neither number nor rate.
        let system = system_adapters(&context.prose).filter(|_| gbits.is_none());
        if let Some((nics, gbits)) = system {
            (self.nics, self.nic_gbs, self.nic_source) =
                (Some(nics), gbits / 8.0, FactSource::Assumed);
        }
        if let Some(gbits) = gbits {
            // A slot of fewer lanes carries less than the port.
            let of_adapter =
                context.adapter_pcie.or(context.pcie.filter(|_| is_of_adapter(reading)));
            self.adapter_slot_known = of_adapter.is_some();
            let slot = of_adapter.map_or(f64::INFINITY, link_peak_gbs);
            let source = if slot < gbits / 8.0 { FactSource::Slot } else { FactSource::Paste };
            (self.nic_gbs, self.nic_source) = ((gbits / 8.0).min(slot), source);
        }
        let of_log = log.and_then(|log| log.adapters);
        let listed = Some(context.ports).filter(|ports| *ports > 1);
        // A log names the adapters in use; the text lists all adapters of the node.
        let present = context.adapters.max(listed);
        let counted = of_log.or(context.adapters).or(listed).or(self.nics);
        // `NCCL_IB_HCA=mlx5_0,mlx5_1` allows these and no other.
        let allowed = context.settings.get("NCCL_IB_HCA").and_then(|list| adapters_of_list(list));
        self.nics = match (counted, allowed) {
            (Some(counted), Some(allowed)) => Some(counted.min(allowed)),
            (counted, allowed) => counted.or(allowed),
        };
        // A few ports may be of storage or management; half of them are not.
        let present = present.filter(|listed| self.nics.is_some_and(|used| used * 2 <= *listed));
        if let Some(present) = present {
            self.nics_used = self.nics.replace(present);
        }
    }

    fn take_links(&mut self, links: &pathline_paste::LinkMatrix) {
        let gpus = links.pairs.keys().map(|&(a, b)| a.max(b) + 1).max();
        self.gpus = self.gpus.max(gpus);
        let each = self.link_gbs;
        let ordered =
            |(&(a, b), text): (&(u32, u32), &String)| ((a.min(b), a.max(b)), text.clone());
        self.pair_links = links.pairs.iter().map(ordered).collect();
        let width = |text: &String| nvlinks(text);
        let widest = links.pairs.values().filter_map(width).reduce(f64::max);
        let pairs = links.pairs.len();
        let joined = links.pairs.values().filter(|text| width(text).is_some()).count();
        if let Some(widest) = widest {
            self.pair_gbs = widest * each;
            let of_first = links.pairs.iter().filter(|((a, _), _)| *a == 0);
            let first: f64 = of_first.filter_map(|(_, text)| width(text)).sum();
            // Through switches each pair has all links; in a mesh they add up.
            let is_switched = joined == pairs && pairs > 2 && widest >= 6.0;
            self.fabric = if is_switched { FabricKind::Switched } else { FabricKind::Meshed };
            self.links_gbs = if is_switched { self.pair_gbs } else { first * each };
            // A bridge of pairs in a larger node leaves the ring to PCIe.
            if joined < pairs && self.product.is_some_and(|p| p.fabric == FabricKind::Pcie) {
                (self.fabric, self.links_gbs) = (FabricKind::Pcie, 0.0);
            }
            self.links_source = FactSource::Paste;
        } else if links.tool == "nvidia-smi topo" && pairs > 0 {
            (self.fabric, self.links_gbs, self.pair_gbs) = (FabricKind::Pcie, 0.0, 0.0);
            self.links_source = FactSource::Paste;
        }
        // Its matrix has the kind of a link and not its rate: that is the product's.
        if links.tool == "rocm-smi" && links.pairs.values().any(|t| t == "XGMI") {
            self.fabric = FabricKind::Xgmi;
            let rates = self.product.map_or((0.0, 0.0), |p| (p.links_gbs, p.pair_gbs));
            (self.links_gbs, self.pair_gbs) = rates;
        }
        if links.tool == "rocm-smi" && pairs > 0 && links.pairs.values().all(|t| t == "PCIE") {
            (self.fabric, self.links_gbs, self.pair_gbs) = (FabricKind::Pcie, 0.0, 0.0);
            self.links_source = FactSource::Paste;
        }
        if !links.nics.is_empty() {
            let near = |links: &std::collections::BTreeMap<u32, String>| {
                links.values().any(|text| ["PIX", "PXB", "PHB", "NODE"].contains(&text.as_str()))
            };
            let near = links.nics.values().filter(|links| near(links)).count();
            self.adapters_are_far = near == 0;
            self.nics = u32::try_from(near.max(1)).ok();
        }
    }

    fn take_topology(&mut self, topology: &Topology, source: FactSource) {
        self.gpus = u32::try_from(topology.gpus.len()).ok();
        let has = |link: &Link, is: fn(LinkEnd) -> bool| is(link.a) || is(link.b);
        let to_host = |link: &Link| has(link, |end| matches!(end, LinkEnd::Numa(_)));
        let of_fabric =
            |link: &&Link| matches!(link.kind, LinkKind::Nvlink | LinkKind::Xgmi) && !to_host(link);
        let links_of = |gpu: u32| {
            let mine =
                topology.links.iter().filter(|link| [link.a, link.b].contains(&LinkEnd::Gpu(gpu)));
            mine.filter(of_fabric).collect::<Vec<_>>()
        };
        // Some sources have the rate of the data sheet.
        let rate = |link: &Link| {
            let width = f64::from(link.width);
            let gbs = link.peak.map_or(25.0 * width, |peak| peak.gbs());
            let is_sheet = gbs * NVLINK_CODING == self.link_gbs * width;
            if is_sheet && link.kind == LinkKind::Nvlink { self.link_gbs * width } else { gbs }
        };
        // A collective passes the GPU with the fewest links, too; one without any goes through the host.
        let total = |gpu: u32| links_of(gpu).iter().map(|link| rate(link)).sum::<f64>();
        let fewest = |a: &&Gpu, b: &&Gpu| total(a.index).total_cmp(&total(b.index));
        let linked = topology.gpus.iter().filter(|gpu| total(gpu.index) > 0.0);
        let Some(first) = linked.min_by(fewest).or(topology.gpus.first()) else { return };
        let (fabric, total) = (links_of(first.index), total(first.index));
        let to_switch = |link: &&Link| has(link, |end| matches!(end, LinkEnd::Switch(_)));
        let switched = fabric.iter().any(to_switch);
        if total > 0.0 {
            let widest = fabric.iter().map(|link| rate(link)).fold(0.0, f64::max);
            self.fabric = match (switched, fabric.first().map(|link| link.kind)) {
                (true, _) => FabricKind::Switched,
                (_, Some(LinkKind::Xgmi)) => FabricKind::Xgmi,
                _ => FabricKind::Meshed,
            };
            (self.links_gbs, self.pair_gbs) = (total, if switched { total } else { widest });
        } else {
            (self.fabric, self.links_gbs, self.pair_gbs) = (FabricKind::Pcie, 0.0, 0.0);
        }
        self.links_source = source;
        let host = first.host_link.map(|link| link.max_peak().gbs().max(link.peak().gbs()));
        if let Some(host) = host.filter(|gbs| *gbs > 0.0) {
            (self.pcie_gbs, self.pcie_source) = (host, source);
        }
        let is_c2c = |link: &&Link| {
            let to_gpu = has(link, |end| matches!(end, LinkEnd::Gpu(_)));
            link.kind == LinkKind::Nvlink && to_host(link) && to_gpu
        };
        let c2c = topology.links.iter().find(is_c2c);
        if let Some(peak) = c2c.and_then(|link| link.peak) {
            (self.c2c_gbs, self.c2c_source) = (peak.gbs(), source);
        }
        let speeds = topology.nics.iter().filter_map(|nic| nic.speed_mbits);
        if let Some(slowest) = speeds.min() {
            self.nics = u32::try_from(topology.nics.len()).ok();
            (self.nic_gbs, self.nic_source) = (slowest as f64 / 8000.0, source);
        }
    }

    /// The share of the links' line rate that is data, as the data sheet counts.
    pub(crate) fn data_share(&self) -> f64 {
        let is_coded = [25.0, 50.0].contains(&(self.link_gbs / NVLINK_CODING));
        if is_coded { 1.0 / NVLINK_CODING } else { 1.0 }
    }

    /// The rate that bounds traffic between GPUs.
    pub(crate) fn fabric_gbs(&self) -> f64 {
        if self.links_gbs > 0.0 { self.links_gbs } else { self.pcie_gbs }
    }

    /// `18 x NVLink of an H100, 478 GB/s each way (assumed of the product)`.
    pub(crate) fn link_text(&self) -> String {
        let is_open = self.links_source == FactSource::Assumed || self.fabric_gbs() <= 0.0;
        if self.product.is_none() && is_open {
            return "unknown: the paste names no GPU product".to_owned();
        }
        let name = self.product.map_or("GPU", |product| product.name);
        let (kind, gbs, source) = match self.fabric {
            FabricKind::Switched | FabricKind::Meshed => {
                ("NVLink", self.links_gbs, self.links_source)
            }
            FabricKind::Xgmi => ("xGMI", self.links_gbs, self.links_source),
            FabricKind::Pcie => ("PCIe", self.pcie_gbs, self.pcie_source),
        };
        if gbs <= 0.0 {
            return format!(
                "unknown: {kind} joins the GPUs, its rate is the product's, which the paste does not name"
            );
        }
        format!("{} GB/s each way, {kind} of {name} ({})", figure(gbs), source.label())
    }

    /// The links between GPUs, to the host and to the network, each with its rate.
    pub(crate) fn wiring_text(&self) -> String {
        let mut parts = Vec::new();
        let mut kinds: Vec<&str> = self.pair_links.values().map(String::as_str).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in &kinds {
            let gbs = nvlinks(kind).map(|links| links * self.link_gbs).filter(|gbs| *gbs > 0.0);
            parts.extend(gbs.map(|gbs| format!("{kind} {} GB/s each way a pair", figure(gbs))));
        }
        if parts.is_empty() {
            parts.push(self.link_text());
        }
        if self.fabric == FabricKind::Xgmi && self.pair_gbs > 0.0 {
            parts.push(format!("{} GB/s each way a pair", figure(self.pair_gbs)));
        }
        if self.pcie_gbs > 0.0 && !parts.iter().any(|part| part.contains("PCIe")) {
            parts.push(format!(
                "PCIe {} GB/s each way ({})",
                figure(self.pcie_gbs),
                self.pcie_source.label()
            ));
        }
        if let Some(nics) = self.nics.filter(|_| self.nic_gbs > 0.0) {
            parts.push(format!("{nics} adapters of {} GB/s each way", figure(self.nic_gbs)));
        }
        parts.join("; ")
    }
}

/// The class of peers of each ordered pair of GPUs; of a GPU with itself that of its copies with the host.
fn peer_classes(topology: &Topology) -> BTreeMap<(u32, u32), usize> {
    let gpus: Vec<u32> = topology.gpus.iter().map(|gpu| gpu.index).take(MAX_CLASSED).collect();
    let pairs: Vec<(u32, u32)> =
        gpus.iter().flat_map(|a| gpus.iter().map(move |b| (*a, *b))).collect();
    let shapes = pairs.iter().map(|(a, b)| unit_shape(&format!("gpu{a}.vram > gpu{b}.vram")));
    let classes = NodePeers::new(topology).classes(shapes);
    pairs.into_iter().zip(classes).collect()
}

/// The GPUs of the name that most have, a known product before others, where a list has several names.
fn own_gpus(devices: &BTreeMap<u32, String>) -> BTreeSet<u32> {
    let mut names: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (gpu, name) in devices {
        names.entry(name).or_default().insert(*gpu);
    }
    let is_mixed = names.len() > 1;
    let weight = |(name, gpus): &(&str, BTreeSet<u32>)| (find_product(name).is_some(), gpus.len());
    let most = names.into_iter().filter(|_| is_mixed).max_by_key(weight);
    most.map(|(_, gpus)| gpus).unwrap_or_default()
}

/// Adapters of a node, and the rate of one in Gbit/s, of a system that a text in lower case names.
fn system_adapters(prose: &str) -> Option<(u32, f64)> {
    let is_named = |row: &[&str; 3]| prose.contains(&row[0].to_lowercase());
    let [_, nics, gbits] = table_rows(include_str!("../data/systems.tsv")).find(is_named)?;
    Some((nics.parse().ok()?, gbits.parse().ok()?))
}

/// Whether a link of PCIe in the paste can only be that of an adapter.
fn is_of_adapter(reading: &PasteReading) -> bool {
    reading.context.gpus.is_empty()
        && reading.documents.iter().any(|one| matches!(one.content, PasteContent::Network(_)))
}

/// Adapters that `NCCL_IB_HCA` names one by one: a prefix stands for any number of them.
fn adapters_of_list(list: &str) -> Option<u32> {
    let names: Vec<&str> = list.trim_start_matches('=').split(',').collect();
    let is_one = |name: &&str| {
        let name = name.split(':').next().unwrap_or(name);
        !name.starts_with('^') && name.ends_with(|c: char| c.is_ascii_digit()) && name.contains('_')
    };
    names.iter().all(is_one).then(|| u32::try_from(names.len()).ok())?
}

fn names_links(reading: &PasteReading) -> bool {
    reading.documents.iter().any(|document| matches!(document.content, PasteContent::Links(_)))
}

/// The log of the paste.
pub(crate) fn find_log(reading: &PasteReading) -> Option<&NcclLog> {
    reading.documents.iter().find_map(|document| match &document.content {
        PasteContent::NcclLog(log) => Some(log.as_ref()),
        _ => None,
    })
}

/// Whether the paste sets a variable to this value.
pub(crate) fn is_set(context: &PasteContext, name: &str, value: &str) -> bool {
    context.settings.get(name).is_some_and(|v| v.eq_ignore_ascii_case(value))
}
