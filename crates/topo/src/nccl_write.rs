//! Topology files of NCCL and RCCL: writing, for `NCCL_TOPO_FILE`.

use std::collections::BTreeSet;
use std::fmt::Write;

use pathline_schema::{Gpu, LinkKind, Nic, Node, NumaDomain, PciDevice, Topology};

use crate::nccl::HIDDEN_SWITCH;
use crate::parse::mask_text;
use crate::pci::{NVIDIA, chain, is_switch_class};
use crate::xml::escape;

const SWITCH_CLASS: u32 = 0x06_8000;

/// The topology as NCCL and RCCL read it: CPUs, the PCI tree above GPUs and adapters, links
/// between GPUs. What the format has no place for (caches, disks, memory, peaks, routes) is left
/// out; a GPU or adapter of no known domain is put under the first one.
pub fn write_nccl_xml(topology: &Topology) -> String {
    let writer = Writer::of(topology);
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

struct Writer<'a> {
    topology: &'a Topology,
    /// PCI functions above and of GPUs and adapters, by address.
    shown: Vec<&'a PciDevice>,
    switches: Vec<&'a str>,
    first: u32,
}

impl<'a> Writer<'a> {
    fn of(topology: &'a Topology) -> Self {
        let ends = topology.gpus.iter().map(|g| &g.pci).chain(topology.nics.iter().map(|n| &n.pci));
        let mut seen = BTreeSet::new();
        let mut shown: Vec<&PciDevice> = ends
            .flat_map(|address| chain(&topology.pci, address))
            .filter(|device| seen.insert(device.address.as_str()))
            .collect();
        shown.sort_by(|a, b| a.address.cmp(&b.address));
        let is_switch = |d: &&PciDevice| d.vendor == NVIDIA && is_switch_class(d.class);
        let switches = topology.pci.iter().filter(is_switch).map(|d| d.address.as_str()).collect();
        let first = topology.numa.first().map_or(0, |domain| domain.id);
        Self { topology, shown, switches, first }
    }

    fn cpu(&self, out: &mut String, domain: &NumaDomain) {
        let host = &self.topology.host;
        let (vendor, family, model) = cpu_words(&host.cpu_model);
        let _ = writeln!(
            out,
            "  <cpu numaid=\"{}\" affinity=\"{}\" arch=\"{}\" vendor=\"{}\" familyid=\"{}\" modelid=\"{}\">",
            domain.id,
            mask_text(&domain.cpus),
            escape(&host.arch),
            escape(vendor),
            escape(family),
            escape(model)
        );
        let here = |numa: Option<u32>| numa.unwrap_or(self.first) == domain.id;
        let mut roots: Vec<&str> = Vec::new();
        let gpus = self.topology.gpus.iter().filter(|gpu| here(gpu.numa)).map(|gpu| &gpu.pci);
        let nics = self.topology.nics.iter().filter(|nic| here(nic.numa)).map(|nic| &nic.pci);
        for address in gpus.chain(nics) {
            match chain(&self.topology.pci, address).last() {
                Some(top) => roots.push(&top.address),
                None => roots.push(address),
            }
        }
        roots.sort_unstable();
        roots.dedup();
        for root in roots {
            self.function(out, root, 2);
        }
        out.push_str("  </cpu>\n");
    }

    /// A PCI function with what is on it and below it. An adapter without one stands alone.
    fn function(&self, out: &mut String, address: &str, depth: usize) {
        let pad = "  ".repeat(depth);
        let nics: Vec<(usize, &Nic)> =
            self.topology.nics.iter().enumerate().filter(|(_, nic)| nic.pci == address).collect();
        let device = self.shown.iter().find(|device| device.address == address);
        if address.is_empty() {
            return self.nics(out, &nics, depth);
        }
        let unknown = PciDevice { address: address.to_owned(), ..PciDevice::default() };
        let device = device.copied().unwrap_or(&unknown);
        let link = device.link.unwrap_or_default();
        let speed = if device.link.is_some() {
            format!("{:.1} GT/s PCIe", link.speed_gts)
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "{pad}<pci busid=\"{}\" class=\"0x{:06x}\" vendor=\"0x{:04x}\" device=\"0x{:04x}\" link_speed=\"{speed}\" link_width=\"{}\">",
            escape(address),
            device.class,
            device.vendor,
            device.device,
            link.width
        );
        for gpu in self.topology.gpus.iter().filter(|gpu| gpu.pci == address) {
            self.gpu(out, gpu, depth + 1);
        }
        self.nics(out, &nics, depth + 1);
        for below in self.shown.iter().filter(|d| d.parent.as_deref() == Some(address)) {
            if depth < 32 {
                self.function(out, &below.address, depth + 1);
            }
        }
        let _ = writeln!(out, "{pad}</pci>");
    }

    fn gpu(&self, out: &mut String, gpu: &Gpu, depth: usize) {
        let pad = "  ".repeat(depth);
        let is_amd = gpu.vendor == "amd";
        let sm = match gpu.arch.strip_prefix("sm_") {
            Some(capability) => capability.to_owned(),
            None => gpu.compute_units.to_string(),
        };
        let gcn = if is_amd { format!(" gcn=\"{}\"", escape(&gpu.arch)) } else { String::new() };
        let index = gpu.index;
        let _ = writeln!(
            out,
            "{pad}<gpu dev=\"{index}\" sm=\"{}\"{gcn} rank=\"{index}\" gdr=\"1\">",
            escape(&sm)
        );
        let me = Node::Gpu(index);
        for link in &self.topology.links {
            let other = match (link.a == me, link.b == me) {
                (true, false) => link.b,
                (false, true) => link.a,
                _ => continue,
            };
            let word = match link.kind {
                LinkKind::Xgmi => "xgmi",
                LinkKind::Nvlink => "nvlink",
                LinkKind::Pcie | LinkKind::Cpu => continue,
            };
            if let Some((target, class)) = self.target(other) {
                let _ = writeln!(
                    out,
                    "{pad}  <{word} target=\"{}\" count=\"{}\" tclass=\"0x{class:06x}\"/>",
                    escape(target),
                    link.width
                );
            }
        }
        let _ = writeln!(out, "{pad}</gpu>");
    }

    /// Bus id and class of a link's other end. The format has no link to a domain.
    fn target(&self, node: Node) -> Option<(&'a str, u32)> {
        match node {
            Node::Gpu(n) => {
                let gpu = self.topology.gpus.iter().find(|gpu| gpu.index == n)?;
                let class = self.topology.pci.iter().find(|d| d.address == gpu.pci)?.class;
                Some((gpu.pci.as_str(), class))
            }
            Node::Switch(n) => {
                let address = self.switches.get(n as usize).copied().unwrap_or(HIDDEN_SWITCH);
                Some((address, SWITCH_CLASS))
            }
            Node::Numa(_) => None,
        }
    }

    fn nics(&self, out: &mut String, nics: &[(usize, &Nic)], depth: usize) {
        if nics.is_empty() {
            return;
        }
        let pad = "  ".repeat(depth);
        let _ = writeln!(out, "{pad}<nic>");
        for (number, nic) in nics {
            let _ = writeln!(
                out,
                "{pad}  <net name=\"{}\" dev=\"{number}\" speed=\"{}\" port=\"1\"/>",
                escape(&nic.name),
                nic.speed_mbits.unwrap_or(0)
            );
        }
        let _ = writeln!(out, "{pad}</nic>");
    }
}

/// Vendor, family and model of a processor: as read from such a file, or by its name.
fn cpu_words(model: &str) -> (&str, &str, &str) {
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
