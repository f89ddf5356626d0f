//! Reads XML files of hwloc (`lstopo --of xml`), versions 1 and 2.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    BlockDevice, Bytes, CacheGroup, CpuSet, Gpu, Nic, NumaDomain, PciAddress, PciDevice, Topology,
};

use crate::assemble::finish;
use crate::error::{TopoError, excerpt};
use crate::parse::{cpu_mask, int, pci_address};
use crate::pci::{AMD, NVIDIA, is_gpu_class};
use crate::peaks::amd_product;
use crate::vendors::gpu_product;
use crate::xml::XmlElement;

/// Kinds of an operating system device.
#[derive(Clone, Copy, Default)]
struct HwlocKinds {
    is_block: bool,
    is_gpu: bool,
    is_network: bool,
    is_rdma: bool,
    is_processor: bool,
}

impl HwlocKinds {
    /// From `osdev_type`: a number in versions 1 and 2, bits in version 3 (`hwloc_obj_osdev_types_e`).
    fn parse(text: &str, version: u32) -> Self {
        let number: u64 = text.trim().parse().unwrap_or(u64::MAX);
        let of = |old: u64, bit: u32| match version {
            3.. => number != u64::MAX && number >> bit & 1 == 1,
            _ => number == old,
        };
        let is_rdma = of(3, 5);
        Self {
            is_block: of(0, 0),
            is_gpu: of(1, 2),
            is_network: of(2, 4) && !is_rdma,
            is_rdma,
            is_processor: of(5, 3),
        }
    }
}

pub(crate) struct HwlocReader<'a> {
    file: &'a str,
    /// Main version of the format.
    version: u32,
    /// Objects that a table of distances may name, by `gp_index`: PCI address, CPUs of a package.
    pub(crate) objects: BTreeMap<u64, (PciAddress, CpuSet)>,
    pub(crate) topology: Topology,
    packages: BTreeSet<String>,
    /// PCI link speeds in GB/s; hwloc records nothing else about a link.
    pub(crate) speeds: Vec<(PciAddress, f64)>,
    /// Operating system devices: kind, name, subtype, size in KiB, PCI address, domain.
    devices: Vec<HwlocDevice>,
}

struct HwlocDevice {
    kinds: HwlocKinds,
    name: String,
    subtype: String,
    model: String,
    size_kib: u64,
    pci: PciAddress,
    numa: Option<u32>,
}

/// The position of an object in the tree.
#[derive(Clone, Copy, Default)]
struct ObjectPlace<'a> {
    pci: Option<&'a PciAddress>,
    numa: Option<u32>,
}

/// From the root element `<topology>`.
pub(crate) fn read(file: &str, root: &XmlElement) -> Result<Topology, TopoError> {
    let version = root.get("version").and_then(|v| v.split('.').next()?.parse().ok());
    let mut reader = HwlocReader {
        file,
        version: version.unwrap_or(1),
        objects: BTreeMap::new(),
        topology: Topology::default(),
        packages: BTreeSet::new(),
        speeds: Vec::new(),
        devices: Vec::new(),
    };
    let Some(machine) = root.named("object").next() else {
        let expected = "the <object type=\"Machine\"> that lstopo --of xml writes";
        return Err(TopoError::at(file, root.line, "a <topology> without <object>", expected));
    };
    reader.object(machine, ObjectPlace::default())?;
    reader.finish(root, machine)
}

impl HwlocReader<'_> {
    fn object(
        &mut self,
        object: &XmlElement,
        mut around: ObjectPlace<'_>,
    ) -> Result<(), TopoError> {
        let kind = object.get("type").unwrap_or_default();
        around.numa = domain_of(object).or(around.numa);
        let address = object.get("pci_busid").and_then(pci_address);
        match kind {
            "Machine" => self.machine(object)?,
            "Package" | "Socket" => self.package(object),
            "NUMANode" => around.numa = Some(self.domain(object)?),
            "Cache" | "L1Cache" | "L2Cache" | "L3Cache" | "L4Cache" | "L1iCache" => {
                self.cache(object, kind)?;
            }
            "PCIDev" | "Bridge" => {
                if let Some(address) = &address {
                    self.function(object, address, around)?;
                }
            }
            "OSDev" => self.device(object, around),
            _ => {}
        }
        if let Some(index) = object.get("gp_index").and_then(int) {
            let pci = address.as_ref().or(around.pci).cloned().unwrap_or_default();
            if kind == "Package" || !pci.is_empty() {
                self.objects.insert(index, (pci, self.cpuset(object)?));
            }
        }
        let around = ObjectPlace { pci: address.as_ref().or(around.pci), ..around };
        for child in object.named("object") {
            self.object(child, around)?;
        }
        Ok(())
    }

    fn cpuset(&self, object: &XmlElement) -> Result<CpuSet, TopoError> {
        let Some(text) = object.get("cpuset") else { return Ok(CpuSet::default()) };
        cpu_mask(text).ok_or_else(|| {
            let what = format!("{} as cpuset", excerpt(text));
            TopoError::at(self.file, object.line, what, "a mask such as 0x0000ffff,0x00000000")
        })
    }

    fn number(&self, object: &XmlElement, name: &str) -> Result<Option<u64>, TopoError> {
        let Some(text) = object.get(name) else { return Ok(None) };
        int(text).map(Some).ok_or_else(|| {
            let what = format!("{} as {name}", excerpt(text));
            TopoError::at(self.file, object.line, what, "a number")
        })
    }

    fn machine(&mut self, object: &XmlElement) -> Result<(), TopoError> {
        let host = &mut self.topology.host;
        host.hostname = info(object, "HostName").parse().unwrap_or_default();
        host.arch = info(object, "Architecture").to_owned();
        host.kernel = info(object, "OSRelease").to_owned();
        host.cpu_model = info(object, "CPUModel").trim().to_owned();
        self.topology.host.cpus = self.cpuset(object)?;
        if let Some(allowed) = object.get("allowed_cpuset").and_then(cpu_mask) {
            self.topology.host.allowed_cpus = allowed;
        }
        Ok(())
    }

    fn package(&mut self, object: &XmlElement) {
        self.packages.insert(object.get("os_index").unwrap_or_default().to_owned());
        if self.topology.host.cpu_model.is_empty() {
            self.topology.host.cpu_model = info(object, "CPUModel").trim().to_owned();
        }
    }

    fn domain(&mut self, object: &XmlElement) -> Result<u32, TopoError> {
        let id = self.number(object, "os_index")?.unwrap_or(0);
        let id = u32::try_from(id).map_err(|_| {
            TopoError::at(self.file, object.line, format!("os_index {id}"), "a small number")
        })?;
        let cpus = self.cpuset(object)?;
        let memory = Bytes(self.number(object, "local_memory")?.unwrap_or(0));
        self.topology.numa.push(NumaDomain { id, cpus, memory, ..NumaDomain::default() });
        Ok(id)
    }

    fn cache(&mut self, object: &XmlElement, kind: &str) -> Result<(), TopoError> {
        let named = kind.strip_prefix('L').and_then(|rest| rest.get(..1)?.parse().ok());
        let level = match named {
            Some(level) => level,
            None => self.number(object, "depth")?.unwrap_or(0) as u32,
        };
        let kind = match object.get("cache_type") {
            Some("1") => "Data",
            Some("2") => "Instruction",
            _ if kind == "L1iCache" => "Instruction",
            _ => "Unified",
        };
        let size = Bytes(self.number(object, "cache_size")?.unwrap_or(0));
        let line = self.number(object, "cache_linesize")?.unwrap_or(0) as u32;
        let cpus = self.cpuset(object)?;
        self.topology.caches.push(CacheGroup { level, kind: kind.into(), size, line, cpus });
        Ok(())
    }

    fn function(
        &mut self,
        object: &XmlElement,
        address: &PciAddress,
        around: ObjectPlace<'_>,
    ) -> Result<(), TopoError> {
        // Class, device, subsystem and revision: `0302 [10de:2330] [10de:16c1] a1`.
        let text = object.get("pci_type").unwrap_or_default();
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let class = text.get(..4).and_then(hex).unwrap_or(0);
        let ids =
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(ids, _)| ids);
        let (vendor, device) = ids
            .and_then(|ids| ids.split_once(':'))
            .and_then(|(vendor, device)| Some((hex(vendor)?, hex(device)?)))
            .unwrap_or_default();
        let speed = object.get("pci_link_speed").and_then(|speed| speed.parse::<f64>().ok());
        if let Some(speed) = speed.filter(|speed| speed.is_finite() && *speed > 0.0) {
            self.speeds.push((address.clone(), speed));
        }
        self.topology.pci.push(PciDevice {
            address: address.clone(),
            class: class << 8,
            vendor,
            device,
            numa: around.numa,
            link: None,
            parent: around.pci.cloned(),
        });
        Ok(())
    }

    fn device(&mut self, object: &XmlElement, around: ObjectPlace<'_>) {
        let get = |name: &str| object.get(name).unwrap_or_default().to_owned();
        let subtype = match object.get("subtype") {
            Some(subtype) => subtype.to_owned(),
            None => info(object, "CoProcType").to_owned(),
        };
        self.devices.push(HwlocDevice {
            kinds: HwlocKinds::parse(&get("osdev_type"), self.version),
            name: get("name"),
            subtype,
            model: [info(object, "GPUModel"), info(object, "Model")].concat(),
            size_kib: info(object, "Size").parse().unwrap_or(0),
            pci: around.pci.cloned().unwrap_or_default(),
            numa: around.numa,
        });
    }

    fn finish(mut self, root: &XmlElement, machine: &XmlElement) -> Result<Topology, TopoError> {
        self.topology.numa.sort_by_key(|domain| domain.id);
        if self.topology.numa.is_empty() {
            // hwloc 1 writes no NUMANode if the machine has one domain.
            let cpus = self.topology.host.cpus.clone();
            let memory = Bytes(self.number(machine, "local_memory")?.unwrap_or(0));
            self.topology.numa.push(NumaDomain { cpus, memory, ..NumaDomain::default() });
        }
        let topology = &mut self.topology;
        topology.host.sockets = self.packages.len() as u32;
        let memory = topology.numa.iter().map(|domain| domain.memory.0);
        topology.host.memory = Bytes(memory.fold(0, u64::saturating_add));
        topology.caches.sort_by_key(|c| (c.level, c.cpus.as_slice().first().copied()));
        topology.pci.sort_by(|a, b| a.address.cmp(&b.address));
        topology.gpus = gpus(&topology.pci, &self.devices);
        for device in &self.devices {
            self.topology.nics.extend(nic(device));
            self.topology.blocks.extend(block(device));
        }
        // An RDMA adapter is also a network interface; its RDMA name takes precedence.
        let rdma: BTreeSet<PciAddress> = self
            .devices
            .iter()
            .filter(|device| device.kinds.is_rdma)
            .map(|device| device.pci.clone())
            .collect();
        let is_rdma = |name: &str| self.devices.iter().any(|d| d.kinds.is_rdma && d.name == name);
        self.topology.nics.retain(|nic| !rdma.contains(&nic.pci) || is_rdma(&nic.name));
        self.distances(root, machine);
        self.gpu_links(root);
        finish(&mut self.topology);
        self.trained_rates();
        Ok(self.topology)
    }

    /// Distances: `<distances2>` below the root in version 2; `<distances>` with a factor below the
    /// machine in version 1. Ignores a table whose size differs from the number of domains.
    fn distances(&mut self, root: &XmlElement, machine: &XmlElement) {
        let size = self.topology.numa.len();
        let mut values: Vec<u32> = Vec::new();
        for table in root.named("distances2").filter(|t| t.get("name") == Some("NUMALatency")) {
            values = split_attribute(table, "u64values")
                .filter_map(|value| value.parse().ok())
                .collect();
        }
        for table in machine.named("distances") {
            let base = table.get("latency_base").and_then(|b| b.parse::<f64>().ok());
            let value = |latency: &XmlElement| {
                let factor = latency.get("value")?.parse::<f64>().ok()?;
                Some((factor * base?).round().clamp(0.0, 1e6) as u32)
            };
            values = table.named("latency").filter_map(value).collect();
        }
        if size > 0 && values.len() == size * size {
            for (domain, row) in self.topology.numa.iter_mut().zip(values.chunks(size)) {
                domain.distances = row.to_vec();
            }
        }
    }
}

/// Items in the texts of a table's children with one name.
pub(crate) fn split_attribute<'a>(
    table: &'a XmlElement,
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    table.named(name).flat_map(|child| child.text.split_whitespace())
}

/// The value of an `<info>` element of an object.
fn info<'a>(object: &'a XmlElement, name: &str) -> &'a str {
    let found = object.named("info").find(|info| info.get("name") == Some(name));
    found.and_then(|info| info.get("value")).unwrap_or_default()
}

/// The domain of an object, if its node set names exactly one: memory is a leaf in version 2, a
/// sibling of the domain's devices.
fn domain_of(object: &XmlElement) -> Option<u32> {
    let nodes = cpu_mask(object.get("nodeset")?)?;
    if let [only] = nodes.as_slice() { Some(*only) } else { None }
}

fn gpus(pci: &[PciDevice], devices: &[HwlocDevice]) -> Vec<Gpu> {
    let computes = |device: &&PciDevice| {
        let on = || devices.iter().filter(|d| d.pci == device.address);
        let listed =
            on().any(|d| d.kinds.is_processor || (d.kinds.is_gpu && !d.subtype.is_empty()));
        listed && is_gpu_class(device.class)
            || device.vendor == NVIDIA && is_gpu_class(device.class)
            || device.vendor == AMD && amd_product(device.device).is_some()
    };
    pci.iter()
        .filter(computes)
        .zip(0..)
        .map(|(device, index)| {
            let (vendor, product) = gpu_product(device.vendor, device.device);
            let model = devices.iter().find(|d| d.pci == device.address && !d.model.is_empty());
            Gpu {
                index,
                vendor: vendor.into(),
                name: model
                    .map(|d| d.model.as_str())
                    .or(product.map(|p| p.0))
                    .unwrap_or_default()
                    .to_owned(),
                arch: product.map_or("", |p| p.1).to_owned(),
                pci: device.address.clone(),
                numa: device.numa,
                ..Gpu::default()
            }
        })
        .collect()
}

fn nic(device: &HwlocDevice) -> Option<Nic> {
    let is_nic = (device.kinds.is_network || device.kinds.is_rdma) && !device.pci.is_empty();
    is_nic.then(|| Nic {
        name: device.name.clone(),
        pci: device.pci.clone(),
        numa: device.numa,
        ..Nic::default()
    })
}

fn block(device: &HwlocDevice) -> Option<BlockDevice> {
    (device.kinds.is_block && !device.pci.is_empty()).then(|| BlockDevice {
        name: device.name.clone(),
        model: device.model.clone(),
        pci: device.pci.clone(),
        numa: device.numa,
        size: Bytes(device.size_kib.saturating_mul(1024)),
        rotational: false,
    })
}
