//! Labels for the components of a node, shared by text and picture.

use std::collections::BTreeMap;

use pathline_schema::{
    BlockDevice, Bytes, CacheGroup, CpuSet, Gpu, Link, LinkEnd, LinkKind, Nic, NumaDomain,
    PciDevice, PcieLink, Topology, is_steering,
};

/// Components near one NUMA domain, or near none.
pub(super) struct NearParts<'a> {
    pub(super) gpus: Vec<&'a Gpu>,
    pub(super) nics: Vec<&'a Nic>,
    pub(super) blocks: Vec<&'a BlockDevice>,
}

impl<'a> NearParts<'a> {
    pub(super) fn new(topology: &'a Topology, domain: Option<u32>) -> Self {
        let only = match topology.numa.as_slice() {
            [only] => Some(only.id),
            _ => None,
        };
        // On a host with one domain every component is near it, whatever the firmware reports.
        let here = |numa: Option<u32>| {
            let known = numa.filter(|id| topology.numa.iter().any(|d| d.id == *id));
            known.or(only) == domain
        };
        Self {
            gpus: topology.gpus.iter().filter(|gpu| here(gpu.numa)).collect(),
            nics: topology.nics.iter().filter(|nic| here(nic.numa)).collect(),
            blocks: topology.blocks.iter().filter(|block| here(block.numa)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gpus.is_empty() && self.nics.is_empty() && self.blocks.is_empty()
    }
}

/// `1 CPU`, `2 CPUs`.
pub(super) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// External text for one line: without control characters, shortened.
pub(super) fn clean(text: &str) -> String {
    let mut cut: String = text.chars().filter(|c| !is_steering(*c)).take(80).collect();
    if text.chars().nth(80).is_some() {
        cut.push('…');
    }
    cut
}

/// The host in one line: name, processor, size, system.
pub(super) fn host_facts(topology: &Topology) -> Vec<String> {
    let host = &topology.host;
    let mut facts = vec![clean(&host.arch), clean(&host.cpu_model)];
    if host.sockets > 0 {
        facts.push(count(host.sockets as usize, "socket"));
    }
    if !host.cpus.is_empty() {
        facts.push(count(host.cpus.len(), "CPU"));
    }
    if host.memory.0 > 0 {
        facts.push(host.memory.rounded());
    }
    if !host.kernel.is_empty() {
        facts.push(format!("Linux {}", clean(&host.kernel)));
    }
    facts.extend(host.virtualization.as_deref().map(clean));
    facts.retain(|fact| !fact.is_empty());
    facts
}

/// Name of the host, or of its description file.
pub(super) fn title(topology: &Topology) -> String {
    if !topology.host.hostname.is_empty() {
        return clean(&topology.host.hostname);
    }
    let file = topology.source.rsplit('/').next().unwrap_or_default();
    if file.is_empty() { "node".into() } else { clean(file) }
}

/// Product and target, if known.
pub(super) fn gpu_name(gpu: &Gpu) -> String {
    let (name, arch) = (clean(&gpu.name), clean(&gpu.arch));
    match (name.is_empty(), arch.is_empty()) {
        (false, false) => format!("{name} ({arch})"),
        (false, true) => name,
        (true, false) => arch,
        (true, true) => gpu.caps().label.into(),
    }
}

/// The link of a GPU to its domain.
pub(super) fn host_link(topology: &Topology, gpu: u32) -> Option<&Link> {
    topology
        .links
        .iter()
        .find(|link| link.a == LinkEnd::Gpu(gpu) && matches!(link.b, LinkEnd::Numa(_)))
}

/// `PCIe 5.0 x16 63.0 GB/s`, `xGMI 36.0 GB/s`, `on the package`.
pub(super) fn host_link_label(topology: &Topology, gpu: &Gpu) -> Option<String> {
    let link = host_link(topology, gpu.index)?;
    let peak = link.peak.map(|peak| peak.to_string());
    Some(match (link.kind, gpu.host_link, peak) {
        (LinkKind::Cpu, _, None) => "memory shared with the CPU".into(),
        (LinkKind::Pcie, Some(pcie), _) => pcie_label(&pcie),
        (kind, _, Some(peak)) => format!("{} {peak}", kind_name(kind)),
        (kind, _, None) => format!("{}, peak unknown", kind_name(kind)),
    })
}

/// Usual spelling of a kind of link.
pub(super) fn kind_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Xgmi => "xGMI",
        LinkKind::Nvlink => "NVLink",
        LinkKind::Pcie => "PCIe",
        LinkKind::Cpu => "CPU fabric",
    }
}

/// `PCIe 4.0 x8, 15.8 GB/s`, and its maximum if trained below.
pub(super) fn pcie_label(link: &PcieLink) -> String {
    let mut label = format!("{} x{}, {}", generation(link.speed_gts), link.width, link.peak());
    let slow = link.max_speed_gts > link.speed_gts;
    if slow || link.max_width > link.width {
        label += &format!(" (of {} x{})", generation(link.max_speed_gts), link.max_width);
    }
    label
}

/// PCI Express generation by transfer rate.
fn generation(gts: f64) -> String {
    const RATES: [(f64, u32); 7] =
        [(2.5, 1), (5.0, 2), (8.0, 3), (16.0, 4), (32.0, 5), (64.0, 6), (128.0, 7)];
    match RATES.iter().find(|(rate, _)| (gts - rate).abs() < 0.1) {
        Some((_, generation)) => format!("PCIe {generation}.0"),
        None => format!("PCIe {gts} GT/s"),
    }
}

/// The PCI function of an address.
pub(super) fn function<'a>(topology: &'a Topology, address: &str) -> Option<&'a PciDevice> {
    topology.pci.iter().find(|device| device.address == *address)
}

/// `mlx5_0 400 Gbit/s`.
pub(super) fn nic_label(nic: &Nic) -> String {
    let speed = match nic.speed_mbits {
        Some(mbits) if mbits % 1000 == 0 => format!(" {} Gbit/s", mbits / 1000),
        Some(mbits) => format!(" {mbits} Mbit/s"),
        None => String::new(),
    };
    format!("{}{speed}", clean(&nic.name))
}

/// `nvme0n1 1.7TiB`.
pub(super) fn block_label(block: &BlockDevice) -> String {
    let size = if block.size.0 > 0 { format!(" {}", block.size.rounded()) } else { String::new() };
    format!("{}{size}", clean(&block.name))
}

/// List of CPUs, shortened if long.
pub(super) fn cpu_ranges(cpus: &CpuSet) -> String {
    let text = cpus.to_string();
    if text.len() <= 48 { text } else { count(cpus.len(), "CPU") }
}

/// `128GiB`, or `128GiB, 120GiB free`.
pub(super) fn memory_label(domain: &NumaDomain) -> Option<String> {
    if domain.memory.0 == 0 {
        return None;
    }
    let free =
        if domain.free.0 > 0 { format!(", {} free", domain.free.rounded()) } else { String::new() };
    Some(format!("{}{free}", domain.memory.rounded()))
}

/// The caches of a domain, smallest first: `L1d 32KiB x16`; with the sharing CPUs of the last
/// level.
pub(super) fn cache_labels(topology: &Topology, cpus: &CpuSet) -> Vec<String> {
    let mut kinds: BTreeMap<(u32, &str, Bytes), Vec<&CacheGroup>> = BTreeMap::new();
    for group in &topology.caches {
        if cpus.is_empty() || !group.cpus.intersect(cpus).is_empty() {
            kinds.entry((group.level, group.kind.as_str(), group.size)).or_default().push(group);
        }
    }
    let last = kinds.keys().map(|key| key.0).max();
    let labels = kinds.iter().map(|(&(level, kind, size), groups)| {
        let suffix = match (level, kind) {
            (1, "Data") => "d",
            (1, "Instruction") => "i",
            _ => "",
        };
        let mut text = format!("L{level}{suffix} {}", size.rounded());
        if groups.len() > 1 {
            text += &format!(" x{}", groups.len());
        }
        let shared: Vec<String> = groups.iter().map(|group| group.cpus.to_string()).collect();
        let list = shared.join(" | ");
        if Some(level) == last && level > 1 && list.len() <= 30 && !list.is_empty() {
            text += &format!(" ({list})");
        } else if Some(level) == last && level > 1 && !list.is_empty() {
            let most = groups.iter().map(|group| group.cpus.len()).max().unwrap_or(0);
            text += &format!(" ({} each)", count(most, "CPU"));
        }
        text
    });
    labels.collect()
}

/// Whether another GPU is in the same package.
pub(super) fn shares_package(topology: &Topology, gpu: u32) -> bool {
    let package = topology.gpus.iter().find(|g| g.index == gpu).and_then(|g| g.package);
    let of_package = |g: &&Gpu| g.package.is_some() && g.package == package;
    topology.gpus.iter().filter(of_package).count() > 1
}

/// Breaks a text at blanks into lines of at most `columns` characters.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > columns {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
