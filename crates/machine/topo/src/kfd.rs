//! Reads AMD's KFD topology from sysfs, or from a table of its io_links.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    Bytes, Gpu, GpuRoute, Link, LinkEnd, LinkKind, NumaDomain, PciAddress, Rate, Topology,
    TopologyWarning,
};

use crate::error::{TopoError, excerpt};
use crate::links::{LinkClaim, LinkClaims, MAX_WIDTH, has_quads, number_packages};
use crate::parse::field_int;
use crate::peaks::{TRENTO_HOST_LINK, amd_product};
use crate::snapshot::HostSnapshot;
use crate::warn::warning;

const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
/// Weight of one xGMI hop: KFD_CRAT_XGMI_WEIGHT of the Linux driver.
const HOP: u64 = 15;
/// Types of io_links (CRAT_IOLINK_TYPE_* of the Linux driver).
const HYPERTRANSPORT: u32 = 1;
const PCIE: u32 = 2;
const XGMI: u32 = 11;
/// What the driver reports for any link from a GCD to the CPU, in MB/s.
const HOST_CLAIM: u64 = 50_000;
const MAX_NODES: usize = 1024;
const MAX_LINKS: usize = 65_536;

/// One direction of a link, as reported by the KFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IoLink {
    kind: u32,
    from: u32,
    to: u32,
    weight: u64,
    min_mbs: u64,
    max_mbs: u64,
}

/// What the KFD reports about a node.
#[derive(Debug, Default)]
pub(crate) struct KfdTopology {
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) links: Vec<Link>,
    pub(crate) routes: Vec<GpuRoute>,
}

impl KfdTopology {
    /// Removes links to domains that do not exist in sysfs.
    pub(crate) fn drop_unknown_domains(
        &mut self,
        numa: &[NumaDomain],
        warnings: &mut Vec<TopologyWarning>,
    ) {
        let known = |node: LinkEnd| match node {
            LinkEnd::Numa(id) => numa.iter().any(|domain| domain.id == id),
            LinkEnd::Gpu(_) | LinkEnd::Switch(_) | LinkEnd::Store(_) => true,
        };
        let before = self.links.len();
        self.links.retain(|link| known(link.a) && known(link.b));
        for gpu in &mut self.gpus {
            gpu.numa = gpu.numa.filter(|&id| known(LinkEnd::Numa(id)));
        }
        if self.links.len() < before {
            let text = format!(
                "the KFD joins CPU nodes by {} links to domains that the system does not show; these \
                 links are left out",
                before - self.links.len()
            );
            warnings.push(warning("numa-disagree", "host", text));
        }
    }
}

/// Units by KFD node number. An APU is both a CPU and a GPU.
#[derive(Debug, Default)]
struct KfdUnits {
    gpus: BTreeMap<u32, u32>,
    domains: BTreeMap<u32, u32>,
}

impl KfdUnits {
    /// The ends of a link. An APU, both GPU and domain, counts as its GPU.
    fn ends(&self, link: &IoLink) -> Option<(LinkEnd, LinkEnd)> {
        let unit = |id: u32| {
            let gpu = self.gpus.get(&id).map(|&n| LinkEnd::Gpu(n));
            gpu.or_else(|| self.domains.get(&id).map(|&n| LinkEnd::Numa(n)))
        };
        Some((unit(link.from)?, unit(link.to)?))
    }
}

/// Reads the KFD tree. The KFD's CPU nodes correspond, in order, to the NUMA domains with CPUs.
pub(crate) fn read(
    snapshot: &HostSnapshot,
    numa: &[NumaDomain],
    warnings: &mut Vec<TopologyWarning>,
) -> KfdTopology {
    let mut units = KfdUnits::default();
    let mut gpus: Vec<Gpu> = Vec::new();
    let mut with_cpus = numa.iter().filter(|domain| !domain.cpus.is_empty());
    let ids: Vec<u32> =
        snapshot.children(NODES).iter().filter_map(|n| n.parse().ok()).take(MAX_NODES).collect();
    for &id in &ids {
        let Some(table) = snapshot.get(&format!("{NODES}/{id}/properties")) else {
            let text = format!(
                "{NODES}/{id}/properties cannot be read (a cgroup without this device?): it is left out"
            );
            warnings.push(warning("kfd-unreadable", format!("KFD node {id}"), text));
            continue;
        };
        let count = |key: &str| field_int(table, key).unwrap_or(0);
        if count("cpu_cores_count") > 0 {
            let domain = with_cpus.next().map_or(units.domains.len() as u32, |d| d.id);
            units.domains.insert(id, domain);
        }
        if count("simd_count") > 0 {
            let index = gpus.len() as u32;
            units.gpus.insert(id, index);
            let mut gpu = gpu(snapshot, id, index, table);
            gpu.numa = units.domains.get(&id).copied();
            gpus.push(gpu);
        }
    }
    let links: Vec<IoLink> = ids.iter().flat_map(|&id| io_links(snapshot, id)).collect();
    assemble_units(gpus, &units, &links, warnings)
}

fn gpu(snapshot: &HostSnapshot, id: u32, index: u32, table: &str) -> Gpu {
    let number = |key: &str| field_int(table, key).unwrap_or(0);
    let location = number("location_id");
    let device = u32::try_from(number("device_id")).unwrap_or(0);
    let arch = target(number("gfx_target_version"));
    let banks: Vec<&str> = snapshot
        .children(&format!("{NODES}/{id}/mem_banks"))
        .iter()
        .filter_map(|bank| snapshot.get(&format!("{NODES}/{id}/mem_banks/{bank}/properties")))
        // Heaps 1 and 2 are the public and private parts of the frame buffer.
        .filter(|bank| matches!(field_int(bank, "heap_type"), Some(1 | 2)))
        .collect();
    let sizes = banks.iter().filter_map(|bank| field_int(bank, "size_in_bytes"));
    let simds_per_cu = number("simd_per_cu").max(1);
    let name = snapshot.line(&format!("{NODES}/{id}/name")).unwrap_or_default();
    Gpu {
        index,
        vendor: "amd".into(),
        name: amd_product(device).map_or(name, |(product, _)| product).to_owned(),
        pci: PciAddress::new(
            number("domain") as u32,
            (location >> 8) as u8,
            (location >> 3 & 0x1f) as u8,
            (location & 7) as u8,
        ),
        memory: Bytes(sizes.fold(0, u64::saturating_add)),
        memory_peak: banks.first().and_then(|bank| hbm_peak(&arch, bank)),
        arch,
        compute_units: u32::try_from(number("simd_count") / simds_per_cu).unwrap_or(0),
        ..Gpu::default()
    }
}

/// `90010` is gfx90a: major, minor and stepping in two digits each, the last two in hexadecimal.
fn target(version: u64) -> String {
    if version == 0 {
        return String::new();
    }
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100)
}

/// Width x clock x 2 transfers per clock. Only for gfx9 with HBM: other memories count clocks
/// differently.
fn hbm_peak(arch: &str, bank: &str) -> Option<Rate> {
    let (bits, mhz) = (field_int(bank, "width")?, field_int(bank, "mem_clk_max")?);
    let peak = bits as f64 / 8.0 * mhz as f64 * 1e6 * 2.0 / 1e9;
    (arch.starts_with("gfx9") && bits >= 1024 && peak > 0.0).then_some(Rate(peak))
}

fn io_links(snapshot: &HostSnapshot, id: u32) -> Vec<IoLink> {
    let dir = format!("{NODES}/{id}/io_links");
    let read = |name: &str| {
        let table = snapshot.get(&format!("{dir}/{name}/properties"))?;
        let number = |key: &str| field_int(table, key);
        let small = |key: &str| number(key).and_then(|n| u32::try_from(n).ok());
        Some(IoLink {
            kind: small("type")?,
            from: small("node_from")?,
            to: small("node_to")?,
            weight: number("weight")?,
            min_mbs: number("min_bandwidth").unwrap_or(0),
            max_mbs: number("max_bandwidth").unwrap_or(0),
        })
    };
    snapshot.children(&dir).into_iter().take(MAX_NODES).filter_map(read).collect()
}

fn assemble_units(
    mut gpus: Vec<Gpu>,
    units: &KfdUnits,
    io_links: &[IoLink],
    warnings: &mut Vec<TopologyWarning>,
) -> KfdTopology {
    let mut claims = LinkClaims::default();
    let mut routes = Vec::new();
    let mut widthless = 0;
    for link in io_links {
        let Some((from, to)) = units.ends(link) else { continue };
        let kind = match link.kind {
            XGMI => LinkKind::Xgmi,
            PCIE => LinkKind::Pcie,
            HYPERTRANSPORT => LinkKind::Cpu,
            _ => continue,
        };
        if let (LinkEnd::Gpu(_), LinkEnd::Gpu(_), LinkKind::Xgmi) = (from, to, kind) {
            let hops = u32::try_from(link.weight / HOP).unwrap_or(u32::MAX);
            routes.extend((hops > 0).then(|| GpuRoute {
                src: from,
                dst: to,
                hops,
                via: Vec::new(),
            }));
            if link.max_mbs == 0 && hops != 1 {
                continue;
            }
            widthless += usize::from(link.max_mbs == 0);
        }
        if kind == LinkKind::Pcie && matches!((from, to), (LinkEnd::Gpu(_), LinkEnd::Gpu(_))) {
            continue;
        }
        let width =
            link.max_mbs.checked_div(link.min_mbs).unwrap_or(1).clamp(1, u64::from(MAX_WIDTH))
                as u32;
        let peak = (link.max_mbs > 0).then_some(Rate(link.max_mbs as f64 / 1e3));
        claims.add(from, to, LinkClaim { kind, width, peak });
        if let (LinkEnd::Gpu(gpu), LinkEnd::Numa(domain)) = (from, to)
            && let Some(gpu) = gpus.get_mut(gpu as usize)
        {
            gpu.numa = gpu.numa.or(Some(domain));
        }
    }
    if widthless > 0 {
        let text = format!(
            "the driver gives no bandwidth for {widthless} direct xGMI links (an older kernel): which \
             pairs are joined is known, how wide they are is not"
        );
        warnings.push(warning("xgmi-width-unknown", "links", text));
    }
    let mut links = claims.into_links(warnings);
    number_packages(&mut gpus, &links);
    correct_host_links(&gpus, &mut links, warnings);
    KfdTopology { gpus, links, routes }
}

/// Corrects the peak of GCD to CPU links: the driver reports 50 GB/s, the link carries 36.
fn correct_host_links(gpus: &[Gpu], links: &mut [Link], warnings: &mut Vec<TopologyWarning>) {
    let quads = has_quads(links);
    let mut wrong = Vec::new();
    for link in links {
        let (LinkEnd::Gpu(gpu), LinkEnd::Numa(domain)) = (link.a, link.b) else { continue };
        let arch = gpus.iter().find(|g| g.index == gpu).map_or("", |g| g.arch.as_str());
        let is_gcd = arch == "gfx90a" || (arch.is_empty() && quads);
        if is_gcd && link.kind == LinkKind::Xgmi && link.peak == Some(Rate(HOST_CLAIM as f64 / 1e3))
        {
            link.peak = Some(TRENTO_HOST_LINK);
            wrong.push(format!("gpu{gpu}-numa{domain}"));
        }
    }
    if let Some(first) = wrong.first() {
        let text = format!(
            "the KFD claims 50 GB/s for {} links between CPU and GCD ({first}, ...), which is its \
             figure for any xGMI link; this one carries 36 GB/s each way, and that is used",
            wrong.len()
        );
        warnings.push(warning("host-link-claim", "links", text));
    }
}

/// Reads a table of io_links, one row per link, with a header line of the KFD's column names. GPUs
/// and domains are numbered in the order of their KFD nodes.
pub(crate) fn read_csv(file: &str, text: &str) -> Result<Topology, TopoError> {
    let links = csv_links(file, text)?;
    let ids: BTreeSet<u32> = links.iter().flat_map(|l| [l.from, l.to]).collect();
    // HyperTransport connects CPU nodes; a single one is node 0, since the KFD lists CPUs first.
    let mut cpus: BTreeSet<u32> = links
        .iter()
        .filter(|link| link.kind == HYPERTRANSPORT)
        .flat_map(|link| [link.from, link.to])
        .collect();
    if cpus.is_empty() {
        cpus.extend(ids.first());
    }
    if ids.len() > MAX_NODES {
        return Err(TopoError::new(file, format!("{} KFD nodes", ids.len()), "at most 1024"));
    }
    let number = |ids: Vec<u32>| ids.into_iter().zip(0..).collect::<BTreeMap<u32, u32>>();
    let units = KfdUnits {
        gpus: number(ids.difference(&cpus).copied().collect()),
        domains: number(cpus.into_iter().collect()),
    };
    let gpu = |&index: &u32| Gpu { index, vendor: "amd".into(), ..Gpu::default() };
    let mut warnings = Vec::new();
    if !text.ends_with('\n') {
        let text = "the table has no end of its last line: it may be cut, and links may be missing";
        warnings.push(warning("kfd-cut", file, text));
    }
    let gpus = units.gpus.values().map(gpu).collect();
    let mut kfd = assemble_units(gpus, &units, &links, &mut warnings);
    if kfd.gpus.iter().all(|gpu| gpu.package.is_some()) {
        for gpu in &mut kfd.gpus {
            gpu.arch = "gfx90a".into();
        }
    }
    let domain = |&id: &u32| NumaDomain { id, ..NumaDomain::default() };
    Ok(Topology {
        numa: units.domains.values().map(domain).collect(),
        gpus: kfd.gpus,
        links: kfd.links,
        routes: kfd.routes,
        warnings,
        ..Topology::default()
    })
}

const COLUMNS: [&str; 6] =
    ["type", "node_from", "node_to", "weight", "min_bandwidth", "max_bandwidth"];

/// Whether a line is the header of such a table.
pub(crate) fn is_csv_header(line: &str) -> bool {
    let columns: Vec<&str> = line.trim().split(',').map(str::trim).collect();
    COLUMNS.iter().take(4).all(|column| columns.contains(column))
}

fn csv_links(file: &str, text: &str) -> Result<Vec<IoLink>, TopoError> {
    let header: Vec<&str> =
        text.lines().next().unwrap_or_default().split(',').map(str::trim).collect();
    let mut at = [0; 6];
    for (column, place) in COLUMNS.iter().zip(&mut at) {
        *place = header.iter().position(|name| name == column).ok_or_else(|| {
            TopoError::at(file, 1, format!("no column '{column}'"), COLUMNS.join(","))
        })?;
    }
    let mut links = Vec::new();
    for (row, line) in text.lines().enumerate().skip(1).filter(|(_, l)| !l.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let mut numbers = [0u64; 6];
        for ((&at, column), number) in at.iter().zip(COLUMNS).zip(&mut numbers) {
            let text = fields.get(at).copied().unwrap_or_default();
            *number = text.parse().map_err(|_| {
                TopoError::at(file, row + 1, format!("{} as {column}", excerpt(text)), "a number")
            })?;
        }
        let [kind, from, to, weight, min_mbs, max_mbs] = numbers;
        let small = |n: u64| {
            u32::try_from(n).map_err(|_| {
                TopoError::at(file, row + 1, format!("number {n}"), "numbers of types and nodes")
            })
        };
        let (kind, from, to) = (small(kind)?, small(from)?, small(to)?);
        links.push(IoLink { kind, from, to, weight, min_mbs, max_mbs });
        if links.len() > MAX_LINKS {
            return Err(TopoError::at(file, row + 1, "too many links", "at most 65536"));
        }
    }
    if links.is_empty() {
        return Err(TopoError::at(file, 2, "no row", "one row for each link"));
    }
    Ok(links)
}

/// Compares the GPUs' domains in the KFD and the PCI tree. If they differ, the KFD's counts, since
/// it reports the link.
pub(crate) fn compare_domains(
    gpu: &mut Gpu,
    pci_domain: Option<u32>,
    warnings: &mut Vec<TopologyWarning>,
) {
    match (gpu.numa, pci_domain) {
        (Some(kfd), Some(pci)) if kfd != pci && !gpu.pci.is_empty() => {
            let text = format!(
                "the KFD joins it to numa{kfd}, but {} is at numa{pci} in the PCI tree; numa{kfd} is \
                 used",
                gpu.pci
            );
            warnings.push(warning("numa-disagree", format!("gpu{}", gpu.index), text));
        }
        (None, _) => gpu.numa = pci_domain,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(target(90_010), "gfx90a");
        assert_eq!(target(90_402), "gfx942");
        assert_eq!(target(110_000), "gfx1100");
        assert_eq!(target(0), "");
    }

    #[test]
    fn hbm_of_a_gcd() {
        // 4096 bit / 8 x 1600 MHz x 2 = 1638.4 GB/s
        let bank = "heap_type 1\nwidth 4096\nmem_clk_max 1600\n";
        assert_eq!(hbm_peak("gfx90a", bank), Some(Rate(1638.4)));
        assert_eq!(hbm_peak("gfx1100", bank), None);
    }

    #[test]
    fn broken_tables_name_the_line() {
        let bad = |text: &str| csv_links("f.csv", text).unwrap_err().to_string();
        assert!(bad("type,node_from\n").starts_with("f.csv:1: no column 'node_to'"));
        let header = COLUMNS.join(",");
        assert!(bad(&format!("{header}\n11,0,x,15,0,0\n")).starts_with("f.csv:2: 'x' as node_to"));
        assert!(bad(&format!("{header}\n11,0\n")).starts_with("f.csv:2: '' as node_to"));
        assert!(bad(&header).starts_with("f.csv:2: no row"));
        assert!(
            bad(&format!("{header}\n11,0,99999999999,15,0,0\n")).starts_with("f.csv:2: number")
        );
    }
}
