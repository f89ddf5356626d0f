//! Derives links, packages and routes from the reports of both ends of each link.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{Gpu, GpuRoute, Link, LinkEnd, LinkKind, Rate, Topology, TopologyWarning};

use crate::warn::warning;

/// Maximum width of a bundle; the widest real one has 18 links.
pub(crate) const MAX_WIDTH: u32 = 1024;

/// What one end reports about a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinkClaim {
    pub(crate) kind: LinkKind,
    pub(crate) width: u32,
    pub(crate) peak: Option<Rate>,
}

/// Reports by ordered pair of ends.
#[derive(Debug, Default)]
pub(crate) struct LinkClaims(BTreeMap<(LinkEnd, LinkEnd), LinkClaim>);

impl LinkClaims {
    /// Adds a report; several for one pair form a bundle.
    pub(crate) fn add(&mut self, from: LinkEnd, to: LinkEnd, claim: LinkClaim) {
        self.0
            .entry((from, to))
            .and_modify(|all| {
                all.width = all.width.saturating_add(claim.width).min(MAX_WIDTH);
                all.peak = all.peak.zip(claim.peak).map(|(a, b)| a + b);
            })
            .or_insert(claim);
    }

    /// Merges the reports of both ends. If they differ, the smaller value counts.
    pub(crate) fn into_links(self, warnings: &mut Vec<TopologyWarning>) -> Vec<Link> {
        let mut links = Vec::new();
        for (&(a, b), &there) in &self.0 {
            let back = self.0.get(&(b, a)).copied();
            if a == b || (a > b && back.is_some()) {
                continue;
            }
            let mut claim = there;
            let is_gpu = |node: LinkEnd| matches!(node, LinkEnd::Gpu(_));
            match back {
                Some(back) if back.width != there.width => {
                    let text = format!(
                        "{a} reports {} links to {b}, {b} reports {}: a lost link or a wrong file; \
                         the smaller number is used",
                        there.width, back.width
                    );
                    warnings.push(warning("link-asymmetric", format!("{a}-{b}"), text));
                    claim = if back.width < there.width { back } else { there };
                }
                None if is_gpu(a) && is_gpu(b) => {
                    let text = format!("{a} names a link to {b}, but {b} none to {a}");
                    warnings.push(warning("link-asymmetric", format!("{a}-{b}"), text));
                }
                _ => {}
            }
            let (a, b) = if a < b { (a, b) } else { (b, a) };
            links.push(Link { a, b, kind: claim.kind, width: claim.width, peak: claim.peak });
        }
        links.sort_by_key(|link| (link.a, link.b));
        links
    }
}

/// Widths of the xGMI bundles between GPUs.
fn xgmi(links: &[Link]) -> BTreeMap<(u32, u32), u32> {
    let mut widths = BTreeMap::new();
    for link in links.iter().filter(|link| link.kind == LinkKind::Xgmi) {
        if let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (link.a, link.b) {
            widths.insert((a, b), link.width);
            widths.insert((b, a), link.width);
        }
    }
    widths
}

/// Whether bundles of four connect the GPUs in pairs, which only the two GCDs of an MI250(X) have.
pub(crate) fn has_quads(links: &[Link]) -> bool {
    xgmi(links).values().any(|&width| width == 4)
}

/// Numbers the packages that several GPUs share: those joined by bundles of four, one bundle per
/// GPU.
pub(crate) fn number_packages(gpus: &mut [Gpu], links: &[Link]) {
    let widths = xgmi(links);
    let quads = |gpu: u32| -> Vec<u32> {
        let of = widths.iter().filter(|&(&(a, _), &width)| a == gpu && width == 4);
        of.map(|(&(_, b), _)| b).collect()
    };
    let partners: BTreeMap<u32, Vec<u32>> =
        gpus.iter().map(|g| (g.index, quads(g.index))).collect();
    if !partners.values().all(|p| p.len() == 1) {
        return;
    }
    let firsts: BTreeSet<u32> =
        partners.iter().flat_map(|(&gpu, p)| p.first().map(|&other| gpu.min(other))).collect();
    for gpu in gpus {
        let other = partners.get(&gpu.index).and_then(|p| p.first()).copied();
        let first = other.map_or(gpu.index, |other| gpu.index.min(other));
        gpu.package = firsts.iter().position(|&f| f == first).map(|at| at as u32);
    }
}

/// Connects each domain with every other, with unknown width and peak, if no source reports their
/// links. NCCL assumes the same.
pub(crate) fn join_domains(topology: &mut Topology) {
    let known = topology.links.iter().any(|link| link.kind == LinkKind::Cpu);
    if known || topology.numa.len() > 64 {
        return;
    }
    let ids: Vec<u32> = topology.numa.iter().map(|domain| domain.id).collect();
    for (at, &a) in ids.iter().enumerate() {
        for &b in ids.iter().skip(at + 1) {
            let (a, b) = (LinkEnd::Numa(a), LinkEnd::Numa(b));
            topology.links.push(Link { a, b, kind: LinkKind::Cpu, width: 1, peak: None });
        }
    }
    topology.links.sort_by_key(|link| (link.a, link.b));
}

/// Adds the routes of an MI250X fabric, which prefers a wider route of three links to a narrower
/// one of two: a KFD dump of a LUMI node has weight 45 = 3 x 15 for exactly the pairs (1-7 and 3-5
/// there) with such a route. For sources that report widths but no routes.
pub(crate) fn add_mi250x_routes(topology: &mut Topology) {
    let widths = xgmi(&topology.links);
    let is_mi250x = topology.gpus.iter().all(|gpu| gpu.arch == "gfx90a" && gpu.package.is_some());
    if !is_mi250x || !topology.routes.is_empty() || widths.values().all(|&w| w == 1) {
        return;
    }
    let gpus: Vec<u32> = topology.gpus.iter().map(|gpu| gpu.index).collect();
    for &a in &gpus {
        for &b in &gpus {
            let (short, wide) = (hops(&widths, a, b, 1), hops(&widths, a, b, 2));
            if a != b && short == Some(2) && wide == Some(3) {
                let (src, dst) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
                topology.routes.push(GpuRoute { src, dst, hops: 3, via: Vec::new() });
            }
        }
    }
}

/// Number of links of the shortest route over bundles of at least `width`.
fn hops(widths: &BTreeMap<(u32, u32), u32>, src: u32, dst: u32, width: u32) -> Option<u32> {
    let mut reached = BTreeSet::from([src]);
    for hops in 0.. {
        if reached.contains(&dst) {
            return Some(hops);
        }
        let next: BTreeSet<u32> = widths
            .iter()
            .filter(|&(&(a, b), &w)| w >= width && reached.contains(&a) && !reached.contains(&b))
            .map(|(&(_, b), _)| b)
            .collect();
        if next.is_empty() {
            return None;
        }
        reached.extend(next);
    }
    None
}

/// Warns of a gfx90a node on which every bundle claims one link: a known error of such files, not a
/// real machine. Removes the peaks, since they would follow from the widths.
pub(crate) fn distrust_flat_counts(topology: &mut Topology) {
    const MI210: &str = "MI210";
    let arch = |wanted: &[&str]| {
        !topology.gpus.is_empty() && topology.gpus.iter().all(|g| wanted.contains(&g.arch.as_str()))
    };
    let names = |part: &str| topology.gpus.iter().any(|gpu| gpu.name.contains(part));
    let widths = xgmi(&topology.links);
    if widths.is_empty() || widths.values().any(|&width| width != 1) {
        return;
    }
    let fact = if arch(&["gfx90a"]) && !names(MI210) && topology.gpus.len() > 2 {
        "the GCDs of an MI250X are joined by 4, 2 or 1 links (200, 100 or 50 GB/s each way)"
    } else if names("MI300A") {
        "MI300A joins each pair by two links (128 GB/s each way)"
    } else {
        return;
    };
    let bundles = widths.len() / 2;
    let text = format!(
        "count = 1 on each of the {bundles} bundles between GPUs, but {fact}: the counts say which \
         pairs are joined and nothing of width, so peaks are left unknown. Take widths from the \
         KFD of the machine (pathline topo there), or measure."
    );
    topology.warnings.push(warning("xgmi-count-flat", "links", text));
    for link in &mut topology.links {
        let between_gpus = matches!((link.a, link.b), (LinkEnd::Gpu(_), LinkEnd::Gpu(_)));
        if link.kind == LinkKind::Xgmi && between_gpus {
            link.peak = None;
        }
    }
}
