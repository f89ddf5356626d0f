//! Reads topology files of NCCL and RCCL (`NCCL_TOPO_DUMP_FILE`).

use std::collections::BTreeSet;

use pathline_schema::{
    CpuSet, Gpu, Link, LinkEnd, LinkKind, Nic, NumaDomain, PciAddress, PciDevice, PcieLink, Rate,
    Topology, TopologyWarning,
};

use crate::assemble::finish;
use crate::error::{TopoError, excerpt};
use crate::links::{LinkClaim, LinkClaims, MAX_WIDTH, number_packages};
use crate::parse::{cpu_mask, int, leading_float, pci_address};
use crate::pci::{AMD, NVIDIA, is_switch_class};
use crate::peaks::{
    TRENTO_HOST_LINK, amd_product, is_trento, nvidia_product, nvlink_link, xgmi_link,
};
use crate::warn::warning;
use crate::xml::XmlElement;

/// The address that NCCL writes for a switch if a virtual machine hides it.
pub(crate) const HIDDEN_SWITCH: &str = "fffffff:ffff:ff";
const SWITCH_CLASS: u32 = 0x06_8000;
/// No adapter is faster than 3.2 Tbit/s; a higher value is in kbit/s.
const FASTEST_NIC: u64 = 3_200_000;

struct NcclReader<'a> {
    file: &'a str,
    topology: Topology,
    /// Switches by their addresses; the ones hidden by a virtual machine come last.
    switches: Vec<Option<PciAddress>>,
    /// Links of the file: GPU, kind, target (none: a hidden switch), target class, count, line.
    links: Vec<(u32, LinkKind, Option<PciAddress>, u32, u32, usize)>,
    odd_speeds: Vec<String>,
    /// GPUs that several ranks share.
    shared: BTreeSet<u32>,
    /// NVLink-C2C of GPUs: GPU, domain, links, of one each way.
    chip_links: Vec<(u32, u32, u32, Rate)>,
}

/// From the root element `<system>`.
pub(crate) fn read(file: &str, root: &XmlElement) -> Result<Topology, TopoError> {
    let mut reader = NcclReader {
        file,
        topology: Topology::default(),
        switches: Vec::new(),
        links: Vec::new(),
        odd_speeds: Vec::new(),
        shared: BTreeSet::new(),
        chip_links: Vec::new(),
    };
    let host = |cpu: &XmlElement| cpu.get("host_hash").unwrap_or_default().to_owned();
    let first = root.named("cpu").next().map(host).unwrap_or_default();
    for cpu in root.named("cpu").filter(|cpu| host(cpu) == first) {
        reader.cpu(cpu)?;
    }
    if root.named("cpu").any(|cpu| host(cpu) != first) {
        let text = "the file has several hosts, of one NVLink domain: only the first is read";
        reader.topology.warnings.push(warning("more-hosts", "file", text));
    }
    if reader.topology.numa.is_empty() {
        let expected = "<cpu> elements, as NCCL_TOPO_DUMP_FILE writes them";
        return Err(TopoError::at(file, root.line, "a <system> without <cpu>", expected));
    }
    reader.finish()
}

impl NcclReader<'_> {
    fn bad<T>(&self, line: usize, what: String, expected: &str) -> Result<T, TopoError> {
        Err(TopoError::at(self.file, line, what, expected))
    }

    /// An optional number.
    fn number(&self, element: &XmlElement, name: &str) -> Result<Option<u32>, TopoError> {
        let Some(text) = element.get(name).filter(|text| !text.trim().is_empty()) else {
            return Ok(None);
        };
        match int(text).and_then(|n| u32::try_from(n).ok()) {
            Some(number) => Ok(Some(number)),
            None => {
                let what = format!("{} as {name} of <{}>", excerpt(text), element.name);
                self.bad(element.line, what, "a number")
            }
        }
    }

    /// The PCI address that an attribute names.
    fn address(&self, element: &XmlElement, name: &str) -> Result<PciAddress, TopoError> {
        let text = element.get(name).unwrap_or_default();
        pci_address(text).ok_or_else(|| {
            let what = format!("{} as {name} of <{}>", excerpt(text), element.name);
            TopoError::at(self.file, element.line, what, "a PCI address such as 0000:c1:00.0")
        })
    }

    fn cpu(&mut self, cpu: &XmlElement) -> Result<(), TopoError> {
        // NCCL writes -1 if the system has no domain numbers; there is then one domain.
        let id = match cpu.get("numaid").map(str::trim) {
            Some("-1") => 0,
            _ => match self.number(cpu, "numaid")? {
                Some(id) => id,
                None => return self.bad(cpu.line, "a <cpu> without numaid".into(), "its number"),
            },
        };
        if self.topology.numa.iter().any(|domain| domain.id == id) {
            return self.bad(cpu.line, format!("numaid {id} twice"), "each once");
        }
        let affinity = cpu.get("affinity").unwrap_or_default();
        let cpus = match cpu_mask(affinity) {
            Some(cpus) => cpus,
            None if affinity.trim().is_empty() => Default::default(),
            None => {
                let what = format!("{} as affinity", excerpt(affinity));
                return self.bad(cpu.line, what, "a mask such as 0000ffff,00000000");
            }
        };
        self.topology.numa.push(NumaDomain { id, cpus, ..NumaDomain::default() });
        let host = &mut self.topology.host;
        if host.cpu_model.is_empty() {
            let get = |name: &str| cpu.get(name).unwrap_or_default();
            host.arch = get("arch").to_owned();
            let [vendor, family, model] = ["vendor", "familyid", "modelid"].map(get);
            if !vendor.is_empty() {
                host.cpu_model = format!("{vendor} family {family} model {model}");
            }
        }
        for child in &cpu.children {
            match child.name.as_str() {
                "pci" => self.pci(child, id, None)?,
                "nic" => self.nic(child, id, &PciAddress::default())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn pci(
        &mut self,
        pci: &XmlElement,
        domain: u32,
        parent: Option<&PciAddress>,
    ) -> Result<(), TopoError> {
        let address = self.address(pci, "busid")?;
        let link = PcieLink {
            speed_gts: pci.get("link_speed").and_then(leading_float).unwrap_or(0.0),
            width: self.number(pci, "link_width")?.unwrap_or(0),
            ..PcieLink::default()
        };
        let device = PciDevice {
            address: address.clone(),
            class: self.number(pci, "class")?.unwrap_or(0),
            vendor: self.number(pci, "vendor")?.unwrap_or(0),
            device: self.number(pci, "device")?.unwrap_or(0),
            numa: Some(domain),
            link: (link.speed_gts > 0.0 && link.width > 0).then_some(link),
            parent: parent.cloned(),
        };
        for child in &pci.children {
            match child.name.as_str() {
                "pci" => self.pci(child, domain, Some(&address))?,
                "gpu" => self.gpu(child, domain, &device)?,
                "nic" => self.nic(child, domain, &address)?,
                _ => {}
            }
        }
        self.topology.pci.push(device);
        Ok(())
    }

    fn gpu(&mut self, gpu: &XmlElement, domain: u32, pci: &PciDevice) -> Result<(), TopoError> {
        let Some(index) = self.number(gpu, "dev")? else {
            return self.bad(gpu.line, "a <gpu> without dev".into(), "its number");
        };
        if let Some(other) = self.topology.gpus.iter().find(|other| other.index == index) {
            if other.pci != pci.address {
                return self.bad(gpu.line, format!("GPU {index} twice"), "each once");
            }
            // Several ranks share it, as with MLOPart.
            self.shared.insert(index);
            return Ok(());
        }
        let sm = self.number(gpu, "sm")?;
        let gcn = gpu.get("gcn").map(gcn_target);
        let is_amd = gcn.is_some() || pci.vendor == AMD;
        // Templates have no vendors; files of RCCL ports name the vendor of their GPUs.
        let is_known = [0, AMD, NVIDIA].contains(&pci.vendor) || !is_amd;
        let product = if is_amd { amd_product(pci.device) } else { nvidia_product(pci.device) };
        let stated = gcn.or_else(|| sm.filter(|_| !is_amd).map(|sm| format!("sm_{sm}")));
        let stated = stated.filter(|_| is_known);
        self.topology.gpus.push(Gpu {
            index,
            vendor: match (is_known, is_amd) {
                (false, _) => "",
                (_, true) => "amd",
                _ => "nvidia",
            }
            .into(),
            name: product.map_or("", |(name, _)| name).into(),
            arch: stated.or(product.map(|(_, arch)| arch.into())).unwrap_or_default(),
            pci: pci.address.clone(),
            numa: Some(domain),
            // RCCL writes the number of compute units where NCCL writes the compute capability.
            compute_units: sm.filter(|_| is_amd).unwrap_or(0),
            ..Gpu::default()
        });
        for link in &gpu.children {
            if link.name == "c2c" {
                // Of one link, in MB/s.
                let (mbs, count) = (self.number(link, "bw")?, self.number(link, "count")?);
                let (Some(mbs), Some(count @ 1..=MAX_WIDTH)) = (mbs, count) else { continue };
                self.chip_links.push((index, domain, count, Rate(f64::from(mbs) / 1e3)));
                continue;
            }
            let kind = match link.name.as_str() {
                "xgmi" => LinkKind::Xgmi,
                "nvlink" => LinkKind::Nvlink,
                _ => continue,
            };
            let target = match link.get("target") {
                Some(HIDDEN_SWITCH) => None,
                _ => Some(self.address(link, "target")?),
            };
            let class = self.number(link, "tclass")?.unwrap_or(0);
            let count = self.number(link, "count")?.unwrap_or(1);
            if count == 0 || count > MAX_WIDTH {
                return self.bad(link.line, format!("count {count}"), "1 to 1024 links");
            }
            self.links.push((index, kind, target, class, count, link.line));
        }
        Ok(())
    }

    fn nic(
        &mut self,
        nic: &XmlElement,
        domain: u32,
        address: &PciAddress,
    ) -> Result<(), TopoError> {
        for net in nic.named("net") {
            let name = net.get("name").unwrap_or_default().to_owned();
            let speed = match net.get("speed").map(int) {
                Some(None) => {
                    let what =
                        format!("{} as speed", excerpt(net.get("speed").unwrap_or_default()));
                    return self.bad(net.line, what, "Mbit/s");
                }
                speed => speed.flatten().filter(|&mbits| mbits > 0),
            };
            let odd = speed.filter(|&mbits| mbits > FASTEST_NIC);
            self.odd_speeds.extend(odd.map(|mbits| format!("{name}: {mbits}")));
            self.topology.nics.push(Nic {
                name,
                pci: address.clone(),
                numa: Some(domain),
                speed_mbits: odd.map(|kbits| kbits / 1000).or(speed),
                ..Nic::default()
            });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Topology, TopoError> {
        let mut claims = LinkClaims::default();
        self.take_template();
        self.number_switches();
        let mut own = Vec::new();
        for (gpu, kind, target, class, width, line) in std::mem::take(&mut self.links) {
            let node = self.target(target.as_ref(), class, line)?;
            let arch = self.topology.gpus.iter().find(|g| g.index == gpu);
            let arch = arch.map_or("", |g| g.arch.as_str());
            let link = if kind == LinkKind::Xgmi { xgmi_link(arch) } else { nvlink_link(arch) };
            let peak = link.map(|link| link * f64::from(width));
            // Some virtual machines give a GPU's own address for the switch that they hide.
            if node == LinkEnd::Gpu(gpu) {
                own.push(format!("gpu{gpu}"));
                continue;
            }
            claims.add(LinkEnd::Gpu(gpu), node, LinkClaim { kind, width, peak });
        }
        for (gpu, domain, width, each) in std::mem::take(&mut self.chip_links) {
            let (kind, peak) = (LinkKind::Nvlink, Some(each * f64::from(width)));
            claims.add(LinkEnd::Gpu(gpu), LinkEnd::Numa(domain), LinkClaim { kind, width, peak });
        }
        let mut topology = self.topology;
        topology.links = claims.into_links(&mut topology.warnings);
        if !own.is_empty() {
            let text = format!(
                "{} named as joined to itself, as virtual machines show it: where these links end is unknown",
                own.join(", ")
            );
            topology.warnings.push(warning("link-to-itself", "links", text));
        }
        if !self.shared.is_empty() {
            let gpus: Vec<String> = self.shared.iter().map(|gpu| format!("gpu{gpu}")).collect();
            let text = "listed once for each rank that shares it, and counted once".to_owned();
            topology.warnings.push(warning("gpu-shared", gpus.join(", "), text));
        }
        number_packages(&mut topology.gpus, &topology.links);
        trento_host_links(&mut topology);
        warn_speeds(&self.odd_speeds, &mut topology.warnings);
        topology.numa.sort_by_key(|domain| domain.id);
        topology.gpus.sort_by_key(|gpu| gpu.index);
        topology.pci.sort_by(|a, b| a.address.cmp(&b.address));
        topology.nics.sort_by(|a, b| (a.numa, &a.pci, &a.name).cmp(&(b.numa, &b.pci, &b.name)));
        topology.host.cpus = CpuSet::new(
            topology.numa.iter().flat_map(|domain| domain.cpus.as_slice().iter().copied()),
        );
        finish(&mut topology);
        Ok(topology)
    }

    /// Takes GPUs and adapters by the classes of their PCI functions, where a file names none: templates of
    /// clouds, which NCCL completes when it starts.
    fn take_template(&mut self) {
        let is_gpu = |class: u32| matches!(class >> 8, 0x0302 | 0x0380 | 0x1200);
        let is_nic = |class: u32| matches!(class >> 8, 0x0200 | 0x0207);
        let functions: Vec<PciDevice> = self
            .topology
            .pci
            .iter()
            .filter(|d| is_gpu(d.class) || is_nic(d.class))
            .cloned()
            .collect();
        let unknown = self.topology.pci.iter().filter(|d| d.class == 0).count();
        let (no_gpus, no_nics) = (self.topology.gpus.is_empty(), self.topology.nics.is_empty());
        if no_gpus && (unknown > 0 || functions.iter().any(|d| is_gpu(d.class))) {
            let mut text = String::from(
                "a template without <gpu>: NCCL completes it when it starts, and adds the NVLinks that GPUs have",
            );
            if unknown > 0 {
                text += &format!("; {unknown} PCI functions have no class: GPUs or adapters");
            }
            self.topology.warnings.push(warning(TopologyWarning::NVLINK_NOT_READ, "links", text));
        }
        for device in functions {
            let product = nvidia_product(device.device).filter(|_| device.vendor == NVIDIA);
            if is_gpu(device.class) && no_gpus {
                self.topology.gpus.push(Gpu {
                    index: self.topology.gpus.len() as u32,
                    vendor: if device.vendor == AMD { "amd" } else { "nvidia" }.into(),
                    name: product.map_or("", |p| p.0).into(),
                    arch: product.map_or("", |p| p.1).into(),
                    pci: device.address.clone(),
                    numa: device.numa,
                    ..Gpu::default()
                });
            } else if is_nic(device.class) && no_nics {
                self.topology.nics.push(Nic {
                    name: device.address.to_string(),
                    pci: device.address.clone(),
                    numa: device.numa,
                    ..Nic::default()
                });
            }
        }
    }

    /// The unit that a link's target names: a GPU or switch by PCI address, a CPU by class.
    fn target(
        &self,
        target: Option<&PciAddress>,
        class: u32,
        line: usize,
    ) -> Result<LinkEnd, TopoError> {
        if let Some(gpu) = self.topology.gpus.iter().find(|gpu| Some(&gpu.pci) == target) {
            return Ok(LinkEnd::Gpu(gpu.index));
        }
        if let Some(target) = target.filter(|_| !is_switch_class(class)) {
            let expected = "the busid of a GPU of this file, or the class of a switch";
            return self.bad(line, format!("link to {target}"), expected);
        }
        let at = self.switches.iter().position(|known| known.as_ref() == target).unwrap_or(0);
        Ok(LinkEnd::Switch(at as u32))
    }

    /// Numbers switches by address; those hidden by a virtual machine come last.
    fn number_switches(&mut self) {
        for (_, _, target, class, _, _) in &self.links {
            let is_gpu = self.topology.gpus.iter().any(|gpu| Some(&gpu.pci) == target.as_ref());
            if !is_gpu && (is_switch_class(*class) || target.is_none()) {
                self.switches.push(target.clone());
            }
        }
        self.switches.sort_by_key(|target| (target.is_none(), target.clone()));
        self.switches.dedup();
        for target in self.switches.iter().flatten() {
            if !self.topology.pci.iter().any(|device| device.address == *target) {
                self.topology.pci.push(PciDevice {
                    address: target.clone(),
                    class: SWITCH_CLASS,
                    vendor: NVIDIA,
                    ..PciDevice::default()
                });
            }
        }
    }
}

/// `910` of early RCCL is gfx90a; later files contain the target itself.
fn gcn_target(gcn: &str) -> String {
    match gcn.trim() {
        "910" => "gfx90a".into(),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => format!("gfx{digits}"),
        target => target.split(':').next().unwrap_or(target).to_owned(),
    }
}

/// On a Trento host the GCDs are attached by xGMI, whatever their PCI functions report.
fn trento_host_links(topology: &mut Topology) {
    if !is_trento(&topology.host.cpu_model) {
        return;
    }
    let gcds: Vec<(u32, u32)> = topology
        .gpus
        .iter()
        .filter(|gpu| gpu.arch == "gfx90a")
        .filter_map(|gpu| Some((gpu.index, gpu.numa?)))
        .collect();
    let joined = topology.links.iter().any(|link| matches!(link.b, LinkEnd::Numa(_)));
    if gcds.is_empty() || joined {
        return;
    }
    for &(gpu, domain) in &gcds {
        topology.links.push(Link {
            a: LinkEnd::Gpu(gpu),
            b: LinkEnd::Numa(domain),
            kind: LinkKind::Xgmi,
            width: 1,
            peak: Some(TRENTO_HOST_LINK),
        });
    }
    let link = gcds
        .first()
        .and_then(|(gpu, _)| topology.gpus.iter().find(|g| g.index == *gpu))
        .and_then(|gpu| topology.pci.iter().find(|d| d.address == gpu.pci)?.link);
    let Some(link) = link else { return };
    let text = format!(
        "the file gives the {} GCDs a PCIe link of {} GT/s x{} ({}), as their PCI functions do; on \
         this CPU (AMD Trento) they hang on xGMI of 36 GB/s each way, and that is used",
        gcds.len(),
        link.speed_gts,
        link.width,
        link.peak()
    );
    topology.warnings.push(warning("host-link-claim", "links", text));
}

fn warn_speeds(odd: &[String], warnings: &mut Vec<TopologyWarning>) {
    if let Some(first) = odd.first() {
        let text = format!(
            "{} adapters with a speed beyond any that exists ({first} Mbit/s): taken as kbit/s",
            odd.len()
        );
        warnings.push(warning("nic-speed", "nics", text));
    }
}
