//! Builds a topology from a snapshot, and completes one from any source.

use std::collections::BTreeSet;

use pathline_schema::{Gpu, HiddenGpus, Link, LinkEnd, LinkKind, PciAddress, Topology};

use crate::error::TopoError;
use crate::links::{MAX_WIDTH, add_mi250x_routes, distrust_flat_counts, join_domains};
use crate::parse::MAX_CPUS;
use crate::pci::{AMD, is_gpu_class, narrowest, near_gpus};
use crate::peaks::{amd_product, has_host_nvlink};
use crate::snapshot::HostSnapshot;
use crate::warn::{numa_distances, numa_memory, pcie_degraded, warning};
use crate::{block, cache, host, kfd, net, numa, nvidia, nvlink, pci, vendors};

/// Maximum number of GPUs, domains and switches of a node.
const MAX_UNITS: usize = 1024;

/// The topology of a snapshot. `source` is recorded in it: `live`, or a file name.
pub fn from_snapshot(source: &str, snapshot: &HostSnapshot) -> Topology {
    let mut warnings = Vec::new();
    if !snapshot.iter().any(|(path, _)| path.starts_with("sys/")) {
        let text = "there is no /sys (a container?): NUMA domains, caches, links and devices \
                    cannot be seen. Mount it, or take a snapshot on the host: pathline topo --save";
        warnings.push(warning("no-sys", "host", text));
    }
    let host = host::read(snapshot, &mut warnings);
    let numa = numa::read(snapshot, &host);
    let caches = cache::read(snapshot, &host, &mut warnings);
    let pci = pci::read(snapshot);
    let mut kfd = kfd::read(snapshot, &numa, &mut warnings);
    if kfd.gpus.is_empty() {
        kfd.gpus = amd_without_kfd(snapshot, &pci);
        if !kfd.gpus.is_empty() {
            let text = "AMD GPUs are on the PCI bus, but there is no KFD (driver amdgpu not loaded, \
                        or hidden by a container): links between them are unknown";
            warnings.push(warning("kfd-missing", "gpus", text));
        }
    }
    kfd.drop_unknown_domains(&numa, &mut warnings);
    for gpu in &mut kfd.gpus {
        let device = pci.iter().find(|device| device.address == gpu.pci);
        kfd::compare_domains(gpu, device.and_then(|d| d.numa), &mut warnings);
    }
    let denied = amd_denied(&pci, &kfd.gpus);
    let mut gpus = kfd.gpus;
    vendors::add_gpus(snapshot, &pci, &mut gpus);
    gpus.truncate(MAX_UNITS);
    let hidden = (gpus.len() as u32..).zip(denied).map(|(index, gpu)| Gpu { index, ..gpu });
    let hidden = HiddenGpus { gpus: hidden.take(MAX_UNITS).collect(), ..HiddenGpus::default() };
    let mut topology = Topology {
        source: source.to_owned(),
        nics: net::read(snapshot, &pci),
        blocks: block::read(snapshot, &pci),
        links: kfd.links,
        routes: kfd.routes,
        host,
        numa,
        caches,
        gpus,
        pci,
        hidden,
        warnings,
    };
    if !nvlink::add(&mut topology, snapshot) {
        nvidia::add_switch_links(&mut topology);
    }
    finish(&mut topology);
    topology
}

/// GPUs for computing that the bus has and the KFD does not show: it denies a process the nodes whose devices its
/// cgroup lacks, as under Slurm's `--gpus-per-task`. Source: `kfd_topology.c` of the Linux driver, `node_show`.
fn amd_denied(pci: &[pathline_schema::PciDevice], shown: &[Gpu]) -> Vec<Gpu> {
    if shown.is_empty() {
        return Vec::new();
    }
    let is_shown = |address: &PciAddress| shown.iter().any(|gpu| gpu.pci == *address);
    pci.iter()
        .filter(|d| d.vendor == AMD && is_gpu_class(d.class) && !is_shown(&d.address))
        .filter_map(|device| {
            let (name, arch) = amd_product(device.device)?;
            Some(Gpu {
                vendor: "amd".into(),
                name: name.into(),
                arch: arch.into(),
                pci: device.address.clone(),
                numa: device.numa,
                ..Gpu::default()
            })
        })
        .collect()
}

/// AMD GPUs from PCI devices alone.
fn amd_without_kfd(snapshot: &HostSnapshot, pci: &[pathline_schema::PciDevice]) -> Vec<Gpu> {
    let drawn: BTreeSet<PciAddress> = snapshot
        .children("sys/class/drm")
        .iter()
        .filter_map(|card| pci::owner_in(snapshot.target(&format!("sys/class/drm/{card}"))?))
        .collect();
    pci.iter()
        .filter(|d| d.vendor == AMD && is_gpu_class(d.class))
        .filter(|d| amd_product(d.device).is_some() || drawn.contains(&d.address))
        .zip(0..)
        .map(|(device, index)| {
            let (name, arch) = amd_product(device.device).unwrap_or_default();
            Gpu {
                index,
                vendor: "amd".into(),
                name: name.into(),
                arch: arch.into(),
                pci: device.address.clone(),
                numa: device.numa,
                ..Gpu::default()
            }
        })
        .collect()
}

/// Derives facts that no source contains: host links, nearest GPUs, links between domains, routes,
/// warnings.
pub(crate) fn finish(topology: &mut Topology) {
    join_host_links(topology);
    let on_bus: Vec<Gpu> = topology.gpus.iter().chain(&topology.hidden.gpus).cloned().collect();
    near_gpus(&topology.pci, &on_bus, &mut topology.nics);
    join_domains(topology);
    add_mi250x_routes(topology);
    distrust_flat_counts(topology);
    numa_distances(&topology.numa, &mut topology.warnings);
    numa_memory(topology);
    pcie_degraded(topology);
    topology.links.sort_by_key(|link| (link.a, link.b));
}

/// Links every GPU to its domain over PCIe, unless its source has another link.
fn join_host_links(topology: &mut Topology) {
    let domains: Vec<u32> = topology.numa.iter().map(|domain| domain.id).collect();
    let (mut apus, mut chips) = (Vec::new(), Vec::new());
    for gpu in &mut topology.gpus {
        let node = LinkEnd::Gpu(gpu.index);
        let is_apu = gpu.name.contains("MI300A");
        let by_nvlink = has_host_nvlink(&gpu.name, &topology.host);
        let host_link = |link: &&mut Link| {
            link.a == node && matches!(link.b, LinkEnd::Numa(_)) && link.kind != LinkKind::Cpu
        };
        let peak = |gpu: &Gpu| gpu.host_link.map(|link| link.peak());
        let known = topology.links.iter_mut().find(host_link);
        if known.as_ref().is_none_or(|link| link.kind != LinkKind::Xgmi) {
            let link = narrowest(&topology.pci, &gpu.pci).or(gpu.host_link);
            apus.extend(link.filter(|_| is_apu).map(|_| gpu.index));
            let is_stated = known.as_ref().is_some_and(|link| link.kind == LinkKind::Nvlink);
            chips.extend(link.filter(|_| by_nvlink && !is_stated).map(|_| gpu.index));
            gpu.host_link = link.filter(|_| !is_apu && !by_nvlink);
        }
        if let Some(link) = known {
            if by_nvlink && link.kind == LinkKind::Pcie {
                (link.kind, link.peak) = (LinkKind::Nvlink, None);
            } else if link.kind == LinkKind::Pcie {
                (link.width, link.peak) = (1, peak(gpu).or(link.peak));
            }
            continue;
        }
        if gpu.numa.is_none_or(|domain| !domains.contains(&domain)) {
            let claimed = gpu.numa;
            gpu.numa = if let [only] = domains.as_slice() { Some(*only) } else { None };
            // A source without domains says nothing of any GPU's.
            if gpu.numa.is_none() && !domains.is_empty() {
                let claimed = claimed.map_or("no NUMA domain".into(), |n| format!("domain {n}"));
                let text = format!(
                    "the system names {claimed} for it on a host of {} domains: which memory is near \
                     is unknown. The firmware should report it; set numactl --cpunodebind by hand",
                    domains.len()
                );
                topology.warnings.push(warning("gpu-no-numa", format!("gpu{}", gpu.index), text));
            }
        }
        if let Some(domain) = gpu.numa {
            let b = LinkEnd::Numa(domain);
            let kind = match (is_apu, by_nvlink) {
                (true, _) => LinkKind::Cpu,
                (_, true) => LinkKind::Nvlink,
                _ => LinkKind::Pcie,
            };
            topology.links.push(Link { a: node, b, kind, width: 1, peak: peak(gpu) });
        }
    }
    if !chips.is_empty() {
        let text = "NVLink joins this product to its CPU: the PCIe link that its function shows is not its way to \
                    memory of the host";
        let gpus: Vec<String> = chips.iter().map(|gpu| format!("gpu{gpu}")).collect();
        topology.warnings.push(warning("host-link-claim", gpus.join(", "), text));
    }
    if let Some(first) = apus.first() {
        let text = format!(
            "{} APUs (gpu{first}, ...) show a PCIe link, but CPU and GPU of an MI300A share one memory \
             on the package: that link carries none of it, and the peak is left unknown",
            apus.len()
        );
        topology.warnings.push(warning("host-link-claim", "links", text));
    }
}

/// Checks that a topology is consistent: unique numbers, links and routes only between existing
/// units, positive and finite widths and rates, bounded sizes.
pub fn validate(file: &str, topology: &Topology) -> Result<(), TopoError> {
    let bad = |what: String, expected: &str| Err(TopoError::new(file, what, expected));
    let gpus: BTreeSet<u32> = topology.gpus.iter().map(|gpu| gpu.index).collect();
    let domains: BTreeSet<u32> = topology.numa.iter().map(|domain| domain.id).collect();
    if gpus.len() != topology.gpus.len() {
        return bad("a GPU number twice".into(), "each once");
    }
    if domains.len() != topology.numa.len() {
        return bad("a NUMA domain twice".into(), "each once");
    }
    let counts = [
        ("GPUs", topology.gpus.len(), MAX_UNITS),
        ("NUMA domains", topology.numa.len(), MAX_UNITS),
        ("links", topology.links.len(), MAX_UNITS * 32),
        ("routes", topology.routes.len(), MAX_UNITS * MAX_UNITS),
        ("PCI functions", topology.pci.len(), MAX_UNITS * 64),
        ("network adapters", topology.nics.len(), MAX_UNITS * 8),
        ("block devices", topology.blocks.len(), MAX_UNITS * 64),
        ("caches", topology.caches.len(), MAX_UNITS * 32),
    ];
    if let Some((name, count, most)) = counts.iter().find(|(_, count, most)| count > most) {
        return bad(format!("{count} {name}"), &format!("at most {most}"));
    }
    if let Some(cpu) = topology.numa.iter().filter_map(|d| d.cpus.as_slice().last()).max()
        && *cpu >= MAX_CPUS
    {
        return bad(format!("CPU {cpu} in a NUMA domain"), "numbers below 8192");
    }
    let exists = |node: &LinkEnd| match node {
        LinkEnd::Gpu(n) => gpus.contains(n),
        LinkEnd::Numa(n) => domains.contains(n),
        LinkEnd::Switch(n) => (*n as usize) < MAX_UNITS,
        LinkEnd::Store(_) => false,
    };
    for link in &topology.links {
        if !exists(&link.a) || !exists(&link.b) {
            return bad(format!("link {}-{}", link.a, link.b), "a link between listed units");
        }
        if !(1..=MAX_WIDTH).contains(&link.width) {
            let what = format!("width {} of link {}-{}", link.width, link.a, link.b);
            return bad(what, "1 to 1024 links");
        }
        if link.peak.is_some_and(|peak| !peak.gbs().is_finite() || peak.gbs() <= 0.0) {
            return bad(format!("peak of link {}-{}", link.a, link.b), "a rate above 0 GB/s");
        }
    }
    for route in &topology.routes {
        let mut nodes = route.via.iter().flatten().chain([&route.src, &route.dst]);
        if !nodes.all(exists) {
            let what = format!("route {}-{}", route.src, route.dst);
            return bad(what, "a route between listed units");
        }
    }
    Ok(())
}
