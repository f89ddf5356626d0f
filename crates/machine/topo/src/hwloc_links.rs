//! Links between GPUs in files of hwloc, and what such a file cannot show.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Gpu, LinkEnd, LinkKind, NumaDomain, Rate};

use crate::hwloc::{HwlocReader, split_attribute};
use crate::links::{LinkClaim, LinkClaims, MAX_WIDTH, number_packages};
use crate::peaks::{nvlink_link, nvlinks_of, xgmi_link};
use crate::warn::warning;
use crate::xml::XmlElement;

/// Objects of a table of distances.
const MAX_TABLE: usize = 1024;

impl HwlocReader<'_> {
    /// Bandwidth tables in MB/s, which hwloc 2 gets from NVML, ROCm SMI and AMD SMI. Their objects are GPUs, and
    /// NVSwitches and packages where a GPU is joined to them.
    pub(crate) fn gpu_links(&mut self, root: &XmlElement) {
        let mut claims = LinkClaims::default();
        let mut kinds = BTreeSet::new();
        let tables =
            ["distances2", "distances2hetero"].into_iter().flat_map(|name| root.named(name));
        for table in tables {
            let kind = match table.get("name") {
                Some("XGMIBandwidth") => LinkKind::Xgmi,
                Some("NVLinkBandwidth") => LinkKind::Nvlink,
                _ => continue,
            };
            kinds.insert(kind);
            let names: Vec<&str> = split_attribute(table, "indexes").take(MAX_TABLE + 1).collect();
            let values: Vec<u64> = split_attribute(table, "u64values")
                .filter_map(|value| value.parse().ok())
                .collect();
            let size = names.len();
            if size == 0 || size > MAX_TABLE || values.len() != size * size {
                continue;
            }
            let ends: Vec<Option<LinkEnd>> =
                names.iter().zip(0..).map(|(name, at)| self.link_end(name, at)).collect();
            let joins = |at: usize| {
                let (a, b) = (*ends.get(at / size)?, *ends.get(at % size)?);
                a.zip(b).filter(|(a, b)| a < b)
            };
            // The diagonal has a million.
            let joined: Vec<(LinkEnd, LinkEnd, u64)> = values
                .iter()
                .enumerate()
                .filter(|&(_, &mbs)| (1..1_000_000).contains(&mbs))
                .filter_map(|(at, &mbs)| joins(at).map(|(a, b)| (a, b, mbs)))
                .collect();
            let is_tier = has_one_tier(&joined);
            for (a, b, mbs) in joined {
                let b = if is_tier || !matches!(b, LinkEnd::Switch(_)) {
                    b
                } else {
                    LinkEnd::Switch(0)
                };
                let claim = self.link_claim(kind, a, mbs);
                claims.add(a, b, claim);
                claims.add(b, a, claim);
            }
        }
        let mut links = claims.into_links(&mut self.topology.warnings);
        number_packages(&mut self.topology.gpus, &links);
        self.topology.links.append(&mut links);
        self.warn_unread(&kinds);
    }

    /// The links of a rate in a table: as many as the product's make it.
    fn link_claim(&self, kind: LinkKind, end: LinkEnd, mbs: u64) -> LinkClaim {
        let gbs = mbs as f64 / 1e3;
        let gpu = self.topology.gpus.iter().find(|gpu| LinkEnd::Gpu(gpu.index) == end);
        let each = gpu.and_then(|gpu| match kind {
            LinkKind::Nvlink => nvlink_link(&gpu.arch),
            _ => None,
        });
        let width = each.map_or(1, |each| ((gbs / each.gbs()).round() as u32).clamp(1, MAX_WIDTH));
        // ROCm SMI's part writes 100 GB/s for any xGMI (hwloc's `topology-rsmi.c`).
        let peak = (kind != LinkKind::Xgmi || mbs != 100_000).then_some(Rate(gbs));
        LinkClaim { kind, width, peak }
    }

    /// The unit that an index of a table names: `OSDev:802` or its number alone. A PCI function that is no GPU
    /// is a switch, by its place in the table.
    fn link_end(&self, name: &str, at: u32) -> Option<LinkEnd> {
        let index = name.rsplit(':').next()?.parse::<u64>().ok()?;
        let (pci, cpus) = self.objects.get(&index)?;
        if pci.is_empty() {
            let inside = |domain: &&NumaDomain| !domain.cpus.intersect(cpus).is_empty();
            return self.topology.numa.iter().find(inside).map(|domain| LinkEnd::Numa(domain.id));
        }
        let gpu = self.topology.gpus.iter().find(|gpu| gpu.pci == *pci);
        Some(gpu.map_or(LinkEnd::Switch(at), |gpu| LinkEnd::Gpu(gpu.index)))
    }

    /// Warns of links between GPUs that the file cannot show.
    fn warn_unread(&mut self, read: &BTreeSet<LinkKind>) {
        let gpus = &self.topology.gpus;
        if gpus.len() < 2 {
            return;
        }
        let has_nvlink = gpus.iter().any(|gpu| nvlinks_of(&gpu.name).is_some());
        let has_xgmi = gpus.iter().any(|gpu| xgmi_link(&gpu.arch).is_some());
        let tools = [
            (has_nvlink, LinkKind::Nvlink, "NVLink", "NVML"),
            (has_xgmi, LinkKind::Xgmi, "xGMI", "ROCm SMI or AMD SMI"),
        ];
        for (_, _, name, tool) in
            tools.iter().filter(|(has, kind, ..)| *has && !read.contains(kind))
        {
            let text = format!(
                "GPUs of this product have {name}, and this file does not show it: hwloc does if it was built with \
                 {tool}. How the GPUs are joined is unknown here"
            );
            self.topology.warnings.push(warning("links-not-read", "links", text));
        }
    }

    /// Says at which rate the PCIe links above GPUs were trained: hwloc records no other, and an idle GPU trains
    /// down, so it is no peak.
    pub(crate) fn trained_rates(&mut self) {
        let by_pcie = |gpu: &&Gpu| {
            let mut links = self.topology.links.iter().filter(|l| l.a == LinkEnd::Gpu(gpu.index));
            links.any(|link| link.kind == LinkKind::Pcie)
        };
        let mut by_rate: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for gpu in self.topology.gpus.iter().filter(by_pcie) {
            let chain = crate::pci::chain(&self.topology.pci, &gpu.pci);
            let speeds = chain.iter().filter_map(|device| {
                self.speeds.iter().find(|(address, _)| *address == device.address).map(|s| s.1)
            });
            let Some(slowest) = speeds.reduce(f64::min) else { continue };
            by_rate.entry((slowest * 1e3) as u64).or_default().push(format!("gpu{}", gpu.index));
        }
        if by_rate.is_empty() {
            return;
        }
        let part = |(mbs, gpus): (&u64, &Vec<String>)| {
            let named = if by_rate.len() == 1 { "all".into() } else { gpus.join(", ") };
            format!("{} ({named})", Rate(*mbs as f64 / 1e3))
        };
        let parts: Vec<String> = by_rate.iter().map(part).collect();
        let text = format!(
            "PCIe of the GPUs was trained to {} when the file was written. An idle GPU trains down, and the file does \
             not say what the links could have: peaks to the host are left unknown",
            parts.join(", ")
        );
        self.topology.warnings.push(warning("pcie-trained", "gpus", text));
    }
}

/// Whether all GPUs are joined to the same switches. Else links between switches join them, which no table has,
/// and they count as one.
fn has_one_tier(joined: &[(LinkEnd, LinkEnd, u64)]) -> bool {
    let mut of_gpu: BTreeMap<LinkEnd, BTreeSet<LinkEnd>> = BTreeMap::new();
    for (gpu, switch, _) in joined.iter().filter(|(_, b, _)| matches!(b, LinkEnd::Switch(_))) {
        of_gpu.entry(*gpu).or_default().insert(*switch);
    }
    let mut sets = of_gpu.values();
    let first = sets.next();
    sets.all(|set| Some(set) == first)
}
