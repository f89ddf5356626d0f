//! A topology from the matrix that a vendor's tool prints. What the matrix does not say stays unknown: rates,
//! PCIe links, memory.

use std::collections::{BTreeMap, BTreeSet};

use pathline_schema::{
    CpuSet, Gpu, GpuRoute, Link, LinkEnd, LinkKind, Nic, NumaDomain, Rate, Topology,
};

use crate::assemble::finish;
use crate::error::{TopoError, display_name};
use crate::link_matrix::{LinkMatrix, PEER_STATUSES, nvlinks, read_amd_matrix, read_nvidia_matrix};
use crate::parse::without_colours;
use crate::peaks::{nvidia_arch, nvlink_link};
use crate::warn::warning;

/// NVLinks that a GPU can have (`NVML_NVLINK_MAX_LINKS` of nvml.h). Where pairs add up to more, they pass switches.
const MAX_NVLINKS: u32 = 18;
/// Weight of one xGMI link: `KFD_CRAT_XGMI_WEIGHT` of the Linux driver.
const XGMI_WEIGHT: u32 = 15;
/// Longest line that is read; a row of 512 GPUs has 4 kB.
const MAX_LINE: usize = 32 << 10;
/// Relations of a GPU to an adapter, nearest first.
const NEAREST: [&str; 2] = ["PIX", "PXB"];

/// Reads the first matrix of a text; `None` if it has none.
pub(crate) fn read(file: &str, text: &str) -> Result<Option<Topology>, TopoError> {
    let line = |line: &str| {
        let end = line.char_indices().nth(MAX_LINE).map_or(line.len(), |(at, _)| at);
        without_colours(line.get(..end).unwrap_or(line))
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    let mut matrices = Vec::new();
    let mut at = 0;
    while at < lines.len() && matrices.len() < 4 {
        let found = read_nvidia_matrix(&lines, at).or_else(|| read_amd_matrix(&lines, at));
        at = found.as_ref().map_or(at, |(_, next)| *next).max(at + 1);
        matrices.extend(found.map(|(matrix, _)| matrix));
    }
    let (statuses, links): (Vec<_>, Vec<_>) =
        matrices.into_iter().partition(LinkMatrix::has_statuses);
    let Some(first) = links.first().or(statuses.first()) else { return Ok(None) };
    check_rows(file, first)?;
    let mut topology = topology(first, &products(&lines));
    if let Some(status) = statuses.first() {
        peer_status(&mut topology, status);
    }
    if links.is_empty() {
        let text = "a matrix of peer access says nothing of links: nvidia-smi topo -m shows them";
        topology.warnings.push(warning("links-not-read", "links", text));
    }
    if let Some(second) = links.get(1) {
        let text = format!(
            "line {} begins another matrix: only the first one, of line {}, is read",
            second.lines.0 + 1,
            first.lines.0 + 1
        );
        topology.warnings.push(warning("more-matrices", "file", text));
    }
    Ok(Some(topology))
}

/// An error if the matrix ends before its last GPU.
fn check_rows(file: &str, matrix: &LinkMatrix) -> Result<(), TopoError> {
    let has_pair = |a, b| {
        matrix.pairs.contains_key(&(a, b))
            || matrix.pairs.contains_key(&(b, a))
            || matrix.weights.contains_key(&(a, b))
    };
    let gpus = &matrix.gpus;
    let lacks = |a: u32| gpus.iter().any(|&b| a != b && !has_pair(a, b));
    let is_table = !matrix.pairs.is_empty() || !matrix.weights.is_empty();
    match gpus.iter().rev().find(|&&gpu| is_table && lacks(gpu)) {
        Some(gpu) => {
            let what = format!("the table of {} GPUs ends without a cell of GPU{gpu}", gpus.len());
            let expected = "a row for each GPU; is it cut off?";
            Err(TopoError::at(file, matrix.lines.1 + 1, what, expected))
        }
        None => Ok(()),
    }
}

/// Products by GPU: `GPU 0: NVIDIA H100 80GB HBM3 (UUID: ...)` of `nvidia-smi -L`.
fn products(lines: &[String]) -> BTreeMap<u32, String> {
    let product = |line: &String| {
        let (number, name) = line.split_once("GPU ")?.1.split_once(": ")?;
        let name = name.split(" (").next()?.trim();
        Some((number.parse().ok()?, display_name(name))).filter(|_| !name.is_empty())
    };
    lines.iter().filter_map(product).take(1024).collect()
}

fn topology(matrix: &LinkMatrix, products: &BTreeMap<u32, String>) -> Topology {
    let is_named = matrix.gpus.iter().all(|gpu| products.contains_key(gpu));
    let is_nvidia = matrix.tool == "nvidia-smi topo";
    let mut topology = Topology::default();
    let numa = domains(matrix, &mut topology);
    for &index in &matrix.gpus {
        let name = products.get(&index).filter(|_| is_named).cloned().unwrap_or_default();
        topology.gpus.push(Gpu {
            index,
            vendor: if is_nvidia { "nvidia" } else { "amd" }.into(),
            arch: nvidia_arch(&name).unwrap_or_default().into(),
            name,
            pci: matrix.addresses.get(&index).cloned().unwrap_or_default(),
            numa: numa.get(&index).copied(),
            ..Gpu::default()
        });
    }
    // Nothing below reaches the order of links: `finish` sorts them.
    if is_nvidia {
        nvidia_links(matrix, &mut topology);
        topology.nics =
            matrix.nics.iter().map(|(label, near)| nic(matrix, label, near, &numa)).collect();
        topology.nics.sort_by_key(|nic| (nic.numa, natural_key(&nic.name)));
    } else {
        xgmi_links(matrix, &mut topology);
    }
    let near: Vec<Option<u32>> = topology.nics.iter().map(|nic| nic.near_gpu).collect();
    let shown: BTreeSet<u32> =
        matrix.pairs.iter().filter(|(_, word)| is_pcie(word)).map(|((a, _), _)| *a).collect();
    finish(&mut topology);
    // Which link a GPU has to its host follows from its pairs alone.
    topology.links.retain(|link| match (link.a, link.b, link.kind) {
        (LinkEnd::Gpu(gpu), LinkEnd::Numa(_), LinkKind::Pcie) => shown.contains(&gpu),
        _ => true,
    });
    topology.nics.iter_mut().zip(near).for_each(|(nic, near)| nic.near_gpu = near);
    topology
}

fn is_pcie(word: &str) -> bool {
    matches!(word, "PIX" | "PXB" | "PHB" | "NODE" | "SYS" | "SOC" | "PCIE")
}

/// The domain of each GPU; adds them with their CPUs.
fn domains(matrix: &LinkMatrix, topology: &mut Topology) -> BTreeMap<u32, u32> {
    let mut numa = matrix.numa.clone();
    if numa.is_empty() {
        // Drivers before 450, and systems without domains, show CPUs alone.
        let mut sets: Vec<&CpuSet> = matrix.cpus.values().collect();
        sets.sort_by_key(|cpus| cpus.as_slice());
        sets.dedup();
        let number = |cpus: &CpuSet| sets.iter().position(|set| *set == cpus);
        numa = matrix.cpus.iter().filter_map(|(&g, c)| Some((g, number(c)? as u32))).collect();
        if sets.len() > 1 {
            let text = "the matrix has no NUMA numbers: domains are numbered by their CPUs, which may differ from \
                        the numbers of the system";
            topology.warnings.push(warning("numa-numbered", "host", text));
        }
    }
    let mut domains: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (gpu, &id) in &numa {
        let cpus = domains.entry(id).or_default();
        *cpus = matrix.cpus.get(gpu).map_or_else(|| cpus.clone(), |more| cpus.union(more));
    }
    let all = domains.values().flat_map(|cpus| cpus.as_slice().iter().copied());
    topology.host.cpus = CpuSet::new(all);
    let domain = |(id, cpus)| NumaDomain { id, cpus, ..NumaDomain::default() };
    topology.numa = domains.into_iter().map(domain).collect();
    numa
}

/// An adapter with its nearest GPU. It is in the domain of a GPU to which it has a path within one.
fn nic(
    matrix: &LinkMatrix,
    label: &str,
    near: &BTreeMap<u32, String>,
    numa: &BTreeMap<u32, u32>,
) -> Nic {
    let at = |word: &str| near.iter().filter(|(_, w)| *w == word).map(|(&gpu, _)| gpu).collect();
    let nearest: Vec<u32> = NEAREST
        .iter()
        .map(|word| at(word))
        .find(|gpus: &Vec<u32>| !gpus.is_empty())
        .unwrap_or_default();
    let inside =
        near.iter().filter(|(_, word)| is_pcie(word) && !matches!(word.as_str(), "SYS" | "SOC"));
    let domains: BTreeSet<u32> = inside.filter_map(|(gpu, _)| numa.get(gpu).copied()).collect();
    let mut domains = domains.into_iter();
    Nic {
        name: display_name(matrix.nic_names.get(label).map_or(label, String::as_str)),
        numa: domains.next().filter(|_| domains.next().is_none()),
        near_gpu: if let [only] = nearest.as_slice() { Some(*only) } else { None },
        ..Nic::default()
    }
}

/// `mlx5_10` behind `mlx5_9`.
fn natural_key(name: &str) -> (String, u64) {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (prefix.to_owned(), name.get(prefix.len()..).and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// Sets of GPUs that pairs of a kind join, each with at least two.
fn groups(matrix: &LinkMatrix, joins: impl Fn(&str) -> bool) -> Vec<Vec<u32>> {
    let mut first: BTreeMap<u32, u32> = matrix.gpus.iter().map(|&gpu| (gpu, gpu)).collect();
    for ((a, b), _) in matrix.pairs.iter().filter(|(_, word)| joins(word)) {
        let (Some(&a), Some(&b)) = (first.get(a), first.get(b)) else { continue };
        first.values_mut().filter(|f| **f == a.max(b)).for_each(|f| *f = a.min(b));
    }
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (gpu, first) in first {
        groups.entry(first).or_default().push(gpu);
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

fn nvidia_links(matrix: &LinkMatrix, topology: &mut Topology) {
    let width = |a: u32, b: u32| matrix.pairs.get(&(a, b)).and_then(|word| nvlinks(word));
    let arch = |gpu: u32| topology.gpus.iter().find(|g| g.index == gpu).map_or("", |g| &g.arch);
    let peak =
        |gpu: u32, width: u32| nvlink_link(arch(gpu)).map(|each: Rate| each * f64::from(width));
    let mut links = Vec::new();
    let mut warnings = Vec::new();
    let (mut switches, kind) = (0, LinkKind::Nvlink);
    for group in groups(matrix, |word| nvlinks(word).is_some()) {
        let pairs = || group.iter().flat_map(|&a| group.iter().map(move |&b| (a, b)));
        let links_of = |a: u32| group.iter().filter_map(move |&b| width(a, b));
        let is_full = pairs().all(|(a, b)| a == b || width(a, b).is_some());
        if is_full && group.iter().any(|&gpu| links_of(gpu).sum::<u32>() > MAX_NVLINKS) {
            // A pair has as many links as the GPU with fewer of them has to the switches.
            for &gpu in &group {
                let width = links_of(gpu).max().unwrap_or(1);
                let (a, b) = (LinkEnd::Gpu(gpu), LinkEnd::Switch(switches));
                links.push(Link { a, b, kind, width, peak: peak(gpu, width) });
            }
            let text = "pairs have more links than a GPU: they pass switches, whose number the matrix does not show";
            warnings.push(warning("nvlink-switches-unseen", "links", text));
            switches += 1;
            continue;
        }
        for (a, b) in pairs().filter(|(a, b)| a < b) {
            let (there, back) = (width(a, b), width(b, a));
            let Some(width) = there.into_iter().chain(back).min() else { continue };
            let (a, b, peak) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b), peak(a, width));
            links.push(Link { a, b, kind, width, peak });
            if there.zip(back).is_some_and(|(there, back)| there != back) {
                let text =
                    format!("{a} and {b} show different numbers of links: the smaller is used");
                warnings.push(warning("link-asymmetric", format!("{a}-{b}"), text));
            }
        }
        if let &[a, b] = group.as_slice()
            && width(a, b).is_some_and(|width| width >= 6)
        {
            let text = "a matrix does not say if the links of two GPUs are direct or pass switches";
            warnings.push(warning("nvlink-end-unknown", format!("gpu{a}-gpu{b}"), text));
        }
    }
    // GPUs below the same PCIe bridges, by way of which they reach each other without the host.
    for group in groups(matrix, |word| NEAREST.contains(&word)) {
        links.extend(group.into_iter().map(|gpu| Link {
            a: LinkEnd::Gpu(gpu),
            b: LinkEnd::Switch(switches),
            kind: LinkKind::Pcie,
            width: 1,
            peak: None,
        }));
        switches += 1;
    }
    // Memory of a GPU is a domain of the host where NVLink-C2C joins them.
    for gpu in matrix.memory_numa.keys() {
        let domain = topology.gpus.iter().find(|g| g.index == *gpu).and_then(|g| g.numa);
        links.extend(domain.map(|domain| Link {
            a: LinkEnd::Gpu(*gpu),
            b: LinkEnd::Numa(domain),
            kind,
            width: 1,
            peak: None,
        }));
    }
    topology.links.append(&mut links);
    topology.warnings.append(&mut warnings);
}

/// Links between AMD GPUs: the driver's weights say which pairs have some, nothing says how many.
fn xgmi_links(matrix: &LinkMatrix, topology: &mut Topology) {
    let is_xgmi = |pair| matrix.pairs.get(pair).is_none_or(|word| word == "XGMI");
    let mut joined: BTreeSet<(u32, u32)> = BTreeSet::new();
    for (&(a, b), &weight) in matrix.weights.iter().filter(|(pair, _)| is_xgmi(pair)) {
        let (src, dst) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
        match weight {
            XGMI_WEIGHT => {
                joined.insert((a.min(b), a.max(b)));
            }
            _ if weight % XGMI_WEIGHT == 0 && matrix.pairs.contains_key(&(a, b)) => {
                let (hops, via) = (weight / XGMI_WEIGHT, Vec::new());
                topology.routes.push(GpuRoute { src, dst, hops, via });
            }
            _ => {}
        }
    }
    let claimed: Vec<_> = matrix.pairs.iter().filter(|(_, word)| *word == "XGMI").collect();
    if matrix.weights.is_empty() && !claimed.is_empty() {
        joined.extend(claimed.iter().map(|((a, b), _)| (*a.min(b), *a.max(b))));
        let text = "the file says which GPUs xGMI joins, not which of them directly: it counts 1 hop for all. \
                    rocm-smi --showtopoweight shows it: 15 is a direct link";
        topology.warnings.push(warning("xgmi-hops-unknown", "links", text));
    }
    if !joined.is_empty() {
        let text = "the file does not say how many xGMI links a pair has: widths and peaks are left unknown. \
                    pathline topo on the machine reads them from the driver";
        topology.warnings.push(warning("xgmi-width-unknown", "links", text));
    }
    topology.links.extend(joined.iter().map(|&(a, b)| Link {
        a: LinkEnd::Gpu(a),
        b: LinkEnd::Gpu(b),
        kind: LinkKind::Xgmi,
        width: 1,
        peak: None,
    }));
    let is_known = |word: &str| ["XGMI", "PCIE"].contains(&word);
    let unknown = matrix.pairs.iter().find(|(_, word)| !is_known(word));
    if matrix.pairs.is_empty() && matrix.weights.is_empty() && matrix.gpus.len() > 1 {
        let text = "the file has domains alone: rocm-smi --showtopo shows how the GPUs are joined";
        topology.warnings.push(warning("links-not-read", "links", text));
    } else if let Some(((a, b), word)) = unknown {
        let text = format!(
            "the tool could not read how gpu{a} and gpu{b} are joined ({}): pairs without a link here may have one",
            display_name(word)
        );
        topology.warnings.push(warning("links-unreadable", "links", text));
    }
}

/// Adds what a matrix of peer access says.
fn peer_status(topology: &mut Topology, matrix: &LinkMatrix) {
    let mut by_status: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((a, b), word) in matrix.pairs.iter().filter(|((a, b), _)| a < b) {
        by_status.entry(word).or_default().push(format!("gpu{a}-gpu{b}"));
    }
    let count = by_status.values().map(Vec::len).sum::<usize>();
    let part = |(word, pairs): (&&str, &Vec<String>)| {
        let named = match pairs.len() {
            all if all == count && all > 1 => format!("all {all} pairs"),
            few @ ..=8 => pairs[..few].join(", "),
            many => format!("{many} pairs"),
        };
        let meaning = PEER_STATUSES.iter().find(|(status, _)| status == word);
        format!("{named}: {word}, {}", meaning.map_or("unknown", |status| status.1))
    };
    let parts: Vec<String> = by_status.iter().map(part).collect();
    let text = format!("access of GPUs to each other's memory: {}", parts.join("; "));
    topology.warnings.push(warning("peer-access", "gpus", text));
}
