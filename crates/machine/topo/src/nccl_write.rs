//! Writes topology files of NCCL and RCCL, for `NCCL_TOPO_FILE`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use pathline_schema::{Gpu, LinkEnd, LinkKind, Nic, NumaDomain, PciDevice, Topology, markup_text};

use crate::nccl::HIDDEN_SWITCH;
use crate::parse::mask_text;
use crate::pci::{MAX_DEPTH, NVIDIA, chain, is_switch_class};

const SWITCH_CLASS: u32 = 0x06_8000;

/// The topology in the format of NCCL and RCCL: CPUs, the PCI tree above GPUs and adapters, links
/// between GPUs. Omits what the format cannot express: caches, disks, memory, peaks, routes. A GPU
/// or adapter of an unknown domain is listed under the first domain, and one below the bridge of
/// another domain with the others of that bridge. GPUs without a PCI address cannot be named and
/// are omitted; GPUs that share an address have no links to each other.
pub fn write_nccl_xml(topology: &Topology) -> String {
    let mut writer = NcclWriter::new(topology);
    let mut out = String::from("<system version=\"1\">\n");
    let none = NumaDomain::default();
    let domains = if topology.numa.is_empty() {
        std::slice::from_ref(&none)
    } else {
        topology.numa.as_slice()
    };
    for domain in domains {
        writer.cpu(&mut out, domain);
    }
    out.push_str("</system>\n");
    out
}

struct NcclWriter<'a> {
    topology: &'a Topology,
    /// PCI functions of GPUs and adapters and of the bridges above them, by address.
    shown: BTreeMap<&'a str, &'a PciDevice>,
    /// Children of each function.
    below: BTreeMap<&'a str, Vec<&'a str>>,
    switches: Vec<&'a str>,
    domains: BTreeSet<u32>,
    first: u32,
    /// Functions already written; each is written once, even if the tree has cycles.
    written: BTreeSet<&'a str>,
}

impl<'a> NcclWriter<'a> {
    fn new(topology: &'a Topology) -> Self {
        let ends = topology.gpus.iter().map(|g| &g.pci).chain(topology.nics.iter().map(|n| &n.pci));
        let mut shown = BTreeMap::new();
        for address in ends {
            for device in chain(&topology.pci, address) {
                shown.insert(device.address.as_str(), device);
            }
        }
        let mut below: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (address, device) in &shown {
            below.entry(device.parent.as_deref().unwrap_or_default()).or_default().push(address);
        }
        let is_switch = |d: &&PciDevice| d.vendor == NVIDIA && is_switch_class(d.class);
        Self {
            topology,
            shown,
            below,
            switches: topology.pci.iter().filter(is_switch).map(|d| d.address.as_str()).collect(),
            domains: topology.numa.iter().map(|domain| domain.id).collect(),
            first: topology.numa.first().map_or(0, |domain| domain.id),
            written: BTreeSet::new(),
        }
    }

    fn cpu(&mut self, out: &mut String, domain: &NumaDomain) {
        let host = &self.topology.host;
        let (vendor, family, model) = cpu_identity(&host.cpu_model);
        let _ = writeln!(
            out,
            "  <cpu numaid=\"{}\" affinity=\"{}\" arch=\"{}\" vendor=\"{}\" familyid=\"{}\" modelid=\"{}\">",
            domain.id,
            mask_text(&domain.cpus),
            short_attribute(&host.arch),
            short_attribute(vendor),
            short_attribute(family),
            short_attribute(model)
        );
        let here = |numa: Option<u32>| {
            numa.filter(|id| self.domains.contains(id)).unwrap_or(self.first) == domain.id
        };
        let topology = self.topology;
        let gpus = topology.gpus.iter().filter(|gpu| here(gpu.numa)).map(|gpu| gpu.pci.as_str());
        let nics = topology.nics.iter().filter(|nic| here(nic.numa)).map(|nic| nic.pci.as_str());
        let ends: BTreeSet<&str> = gpus.chain(nics).filter(|end| !end.is_empty()).collect();
        let alone: Vec<&Nic> =
            topology.nics.iter().filter(|nic| here(nic.numa) && nic.pci.is_empty()).collect();
        let root =
            |end: &'a str| chain(&topology.pci, end).last().map_or(end, |top| top.address.as_str());
        let roots: BTreeSet<&str> = ends.iter().map(|end| root(end)).collect();
        write_nics(out, &alone, 2);
        // An end that is unreachable from its root, because of depth or a cycle, is written without
        // parents.
        for address in roots.into_iter().chain(ends) {
            self.function(out, address, 2);
        }
        out.push_str("  </cpu>\n");
    }

    /// Writes a PCI function with its devices and children, unless it is already written.
    fn function(&mut self, out: &mut String, address: &'a str, depth: usize) {
        if depth > MAX_DEPTH || !self.written.insert(address) {
            return;
        }
        let pad = "  ".repeat(depth);
        let unknown = PciDevice::default();
        let device = self.shown.get(address).copied().unwrap_or(&unknown);
        let link = device.link.unwrap_or_default();
        let speed = if device.link.is_some() {
            format!("{:.1} GT/s PCIe", link.speed_gts)
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "{pad}<pci busid=\"{}\" class=\"0x{:06x}\" vendor=\"0x{:04x}\" device=\"0x{:04x}\" link_speed=\"{speed}\" link_width=\"{}\">",
            address, device.class, device.vendor, device.device, link.width
        );
        let topology = self.topology;
        for gpu in topology.gpus.iter().filter(|gpu| gpu.pci == *address) {
            self.gpu(out, gpu, depth + 1);
        }
        let nics: Vec<&Nic> = topology.nics.iter().filter(|nic| nic.pci == *address).collect();
        write_nics(out, &nics, depth + 1);
        for below in self.below.get(address).cloned().unwrap_or_default() {
            self.function(out, below, depth + 1);
        }
        let _ = writeln!(out, "{pad}</pci>");
    }

    fn gpu(&self, out: &mut String, gpu: &Gpu, depth: usize) {
        let pad = "  ".repeat(depth);
        let is_amd = gpu.vendor == "amd";
        let sm = match gpu.arch.strip_prefix("sm_") {
            // `sm_90a` has the same compute capability as `sm_90`.
            Some(target) => leading_number(target).to_string(),
            None => gpu.compute_units.to_string(),
        };
        let gcn =
            if is_amd { format!(" gcn=\"{}\"", short_attribute(&gpu.arch)) } else { String::new() };
        let index = gpu.index;
        let _ =
            writeln!(out, "{pad}<gpu dev=\"{index}\" sm=\"{sm}\"{gcn} rank=\"{index}\" gdr=\"1\">");
        let me = LinkEnd::Gpu(index);
        for link in &self.topology.links {
            let other = match (link.a == me, link.b == me) {
                (true, false) => link.b,
                (false, true) => link.a,
                _ => continue,
            };
            if let (LinkKind::Nvlink, LinkEnd::Numa(_), Some(peak)) = (link.kind, other, link.peak)
            {
                // NVLink-C2C: MB/s of one of its links.
                let each = peak.gbs() * 1e3 / f64::from(link.width.max(1));
                let _ = writeln!(out, "{pad}  <c2c bw=\"{each:.0}\" count=\"{}\"/>", link.width);
                continue;
            }
            let element = match link.kind {
                LinkKind::Xgmi => "xgmi",
                LinkKind::Nvlink => "nvlink",
                LinkKind::Pcie | LinkKind::Cpu => continue,
            };
            let target = self.target(other).filter(|(target, _)| gpu.pci != **target);
            if let Some((target, class)) = target {
                let _ = writeln!(
                    out,
                    "{pad}  <{element} target=\"{}\" count=\"{}\" tclass=\"0x{class:06x}\"/>",
                    target, link.width
                );
            }
        }
        let _ = writeln!(out, "{pad}</gpu>");
    }

    /// Bus address and class of a link's other end; links to NUMA domains have none.
    fn target(&self, node: LinkEnd) -> Option<(&'a str, u32)> {
        match node {
            LinkEnd::Gpu(n) => {
                let gpu = self.topology.gpus.iter().find(|gpu| gpu.index == n)?;
                Some((gpu.pci.as_str(), self.shown.get(gpu.pci.as_str())?.class))
            }
            LinkEnd::Switch(n) => {
                let address = self.switches.get(n as usize).copied().unwrap_or(HIDDEN_SWITCH);
                Some((address, SWITCH_CLASS))
            }
            LinkEnd::Numa(_) | LinkEnd::Store(_) => None,
        }
    }
}

fn write_nics(out: &mut String, nics: &[&Nic], depth: usize) {
    if nics.is_empty() {
        return;
    }
    let pad = "  ".repeat(depth);
    let _ = writeln!(out, "{pad}<nic>");
    for (number, nic) in nics.iter().enumerate() {
        let _ = writeln!(
            out,
            "{pad}  <net name=\"{}\" dev=\"{number}\" speed=\"{}\" port=\"1\"/>",
            markup_text(&nic.name),
            nic.speed_mbits.unwrap_or(0)
        );
    }
    let _ = writeln!(out, "{pad}</nic>");
}

/// Shortens a text that the file repeats many times to the length of real ones.
fn short_attribute(text: &str) -> String {
    markup_text(&text.chars().take(64).collect::<String>())
}

/// The number at the start of a text; 0 if there is none.
fn leading_number(text: &str) -> u32 {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Vendor, family and model of a processor, from a topology file or from its name.
fn cpu_identity(model: &str) -> (&str, &str, &str) {
    if let [vendor, "family", family, "model", number] =
        model.split(' ').collect::<Vec<_>>().as_slice()
    {
        return (vendor, family, number);
    }
    let vendor = match model {
        m if m.contains("Intel") => "GenuineIntel",
        m if m.contains("AMD") => "AuthenticAMD",
        _ => "",
    };
    (vendor, "0", "0")
}
