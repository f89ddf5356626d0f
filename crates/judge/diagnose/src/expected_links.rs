//! Links that a node should have, compared with those that it reports. Peer classes and expected rates use the links
//! that it should have, and each difference is reported as a fact.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::routes::LinkBundle;
use pathline_flow::{MachineDesc, Network};
use pathline_schema::{
    Case, Flow, Gpu, GpuFacts, GpuState, Link, LinkEnd, LinkKind, PcieLink, Rate, Topology,
};
use pathline_stats::{ascending, interpolated};

use crate::health::facts::TrainedLink;
use crate::peers::peer_classes;

/// A board is known by its links if at most this share of them is narrower than it has them.
const NARROWER_SHARE: f64 = 0.25;
/// Links of one kind whose reported rates differ by less are equal.
const SAME_RATE: f64 = 0.01;

type Ends = (LinkEnd, LinkEnd);

/// Expected links between GPUs, or between a GPU and its switch or socket. A description states what it was given: few
/// links that are narrower than those of its board, or slower than the others of their kind, are expected to be like
/// them.
fn expected_bundles(topology: &Topology, network: Option<&Network>) -> BTreeMap<Ends, LinkBundle> {
    let of_board = board(topology).as_ref().map(between_gpus).unwrap_or_default();
    let mut expected = match network.filter(|network| network.is_described()) {
        None => of_board,
        Some(network) => {
            let known = |link: &Link| {
                let ends = (link.a.min(link.b), link.a.max(link.b));
                let described = network.routes().direct(link.a, link.b)?;
                let wider = of_board.get(&ends).filter(|board| board.width > described.width);
                Some((ends, wider.cloned().unwrap_or(described)))
            };
            fabric(topology).filter_map(known).collect()
        }
    };
    for kind in [LinkKind::Xgmi, LinkKind::Nvlink] {
        let Some(usual) = usual_rate(topology, kind) else { continue };
        let known = expected.iter_mut().filter(|(ends, l)| l.kind == kind && !is_of_host(**ends));
        for (_, bundle) in known.filter(|(_, l)| each_gbs(l.peak, l.width) < usual) {
            bundle.peak = Some(Rate(usual * f64::from(bundle.width)));
        }
    }
    expected
}

/// NVLink-C2C and Infinity Fabric between a GPU and its host have rates of their own.
fn is_of_host((a, b): Ends) -> bool {
    [a, b].iter().any(|end| matches!(end, LinkEnd::Numa(_)))
}

/// Rate of one link of a bundle, GB/s; 0 where none is stated.
fn each_gbs(peak: Option<Rate>, width: u32) -> f64 {
    peak.map_or(0.0, |peak| peak.0 / f64::from(width.max(1)))
}

/// Rate of one link of a kind, GB/s, that all but a few state.
fn usual_rate(topology: &Topology, kind: LinkKind) -> Option<f64> {
    let is_compared =
        |l: &&Link| l.kind == kind && is_of_host((l.a, l.b)) == (kind == LinkKind::Pcie);
    let links = topology.links.iter().filter(is_compared);
    let rates: Vec<f64> = links.map(|l| each_gbs(l.peak, l.width)).collect();
    let usual = interpolated(&ascending(rates.iter().copied()), 0.5).filter(|gbs| *gbs > 0.0)?;
    let is_slower = |gbs: &&f64| **gbs < usual * (1.0 - SAME_RATE);
    let slower = rates.iter().filter(is_slower).count() as f64;
    (slower <= NARROWER_SHARE * rates.len() as f64).then_some(usual)
}

fn fabric(topology: &Topology) -> impl Iterator<Item = &Link> {
    topology.links.iter().filter(|l| matches!(l.kind, LinkKind::Xgmi | LinkKind::Nvlink))
}

/// Links between GPUs, and between GPUs and switches.
fn between_gpus(topology: &Topology) -> BTreeMap<Ends, LinkBundle> {
    let of_gpus = fabric(topology).filter(|l| !is_of_host((l.a, l.b)));
    let bundle = |l: &Link| LinkBundle { kind: l.kind, width: l.width, peak: l.peak };
    of_gpus.map(|l| ((l.a.min(l.b), l.a.max(l.b)), bundle(l))).collect()
}

/// The preset that matches this node: as many GPUs of the same architecture, all of its links, none wider, and at most
/// a quarter of the preset's narrower or missing.
fn board(topology: &Topology) -> Option<Topology> {
    let gpu = topology.gpus.first()?;
    let own = between_gpus(topology);
    let is_it = |node: &Topology| {
        let board = between_gpus(node);
        let whole =
            own.iter().filter(|(ends, l)| board.get(ends).is_some_and(|b| l.width == b.width));
        let alike = |(ends, l): (&Ends, &LinkBundle)| {
            board.get(ends).is_some_and(|b| b.kind == l.kind && l.width <= b.width)
        };
        let less = board.len() - whole.count().min(board.len());
        own.iter().all(alike) && less as f64 <= NARROWER_SHARE * board.len() as f64
    };
    let named = MachineDesc::presets().iter().filter(|(_, text)| text.contains(&*gpu.arch));
    let mut nodes = named.filter_map(|(name, _)| MachineDesc::preset(name).ok());
    nodes.find_map(|desc| {
        let node = desc.healthy_topology();
        let alike = node.gpus.len() == topology.gpus.len()
            && !own.is_empty()
            && node.gpus.iter().zip(&topology.gpus).all(|(a, b)| a.arch == b.arch);
        (alike && is_it(node)).then(|| node.clone())
    })
}

/// Links between two GPUs of the node as it should be, its board or what is known of it, that it does not show.
fn missing_links(topology: &Topology, twin: Option<&Topology>) -> Vec<Link> {
    let Some(known) = twin.cloned().or_else(|| board(topology)) else { return Vec::new() };
    let own = between_gpus(topology);
    let is_gpu = |end: LinkEnd| topology.gpus.iter().any(|gpu| LinkEnd::Gpu(gpu.index) == end);
    let is_missing = |l: &&Link| {
        // A source that shows no link of a kind knows none.
        let is_shown = own.values().any(|shown| shown.kind == l.kind);
        is_shown && is_gpu(l.a) && is_gpu(l.b) && !own.contains_key(&(l.a.min(l.b), l.a.max(l.b)))
    };
    fabric(&known).filter(is_missing).cloned().collect()
}

/// The node with its links as they should be.
pub(crate) fn expected_topology(topology: &Topology, network: Option<&Network>) -> Topology {
    let expected = expected_bundles(topology, network);
    let usual = [LinkKind::Xgmi, LinkKind::Nvlink].map(|kind| (kind, usual_rate(topology, kind)));
    let usual_rate_of = |kind| usual.iter().find(|(of, _)| *of == kind).and_then(|of| of.1);
    let mut topology = topology.clone();
    for link in &mut topology.links {
        let Some(bundle) = expected.get(&(link.a.min(link.b), link.a.max(link.b))) else {
            continue;
        };
        let (now, ends) = (each_gbs(link.peak, link.width), (link.a, link.b));
        let usual = usual_rate_of(link.kind).filter(|_| !is_of_host(ends));
        let each = usual.filter(|usual| now < usual * (1.0 - SAME_RATE)).unwrap_or(now);
        link.width = link.width.max(bundle.width);
        link.peak = link.peak.map(|_| Rate(each * f64::from(link.width)));
    }
    topology.links.extend(missing_links(&topology, None));
    topology
}

/// The class of peers of each case on the node as it should be. Around a missing link, copies between GPUs that no link
/// joins take other routes than their peers: they stay peers only where a symmetry of the node as it is exchanges them.
pub(crate) fn expected_classes(
    reported: &Topology,
    expected: &Topology,
    cases: &[&Case],
) -> Vec<usize> {
    let classes = peer_classes(expected, cases);
    if expected.links.len() == reported.links.len() {
        return classes;
    }
    let is_forwarded = |flow: &Flow| {
        let ends = [LinkEnd::from(flow.src.unit), flow.dst.unit.into()];
        let is_joined = |link: &Link| ends == [link.a, link.b] || ends == [link.b, link.a];
        let is_pair = ends[0] != ends[1] && ends.iter().all(|end| matches!(end, LinkEnd::Gpu(_)));
        is_pair && !reported.links.iter().any(is_joined)
    };
    let mut numbers = BTreeMap::new();
    let classes = classes.into_iter().zip(peer_classes(reported, cases)).zip(cases);
    let number = |((class, now), case): ((usize, usize), &&Case)| {
        let next = numbers.len();
        let now = case.flows().any(is_forwarded).then_some(now);
        *numbers.entry((class, now)).or_insert(next)
    };
    classes.map(number).collect()
}

/// Links of the fabric whose expected width and rate are known, and links that the node should have and does not show.
fn fabric_links(
    topology: &Topology,
    network: Option<&Network>,
    twin: Option<&Topology>,
    is_counted: &dyn Fn(&Link) -> bool,
) -> Vec<TrainedLink> {
    let expected = expected_bundles(topology, network);
    let is_described = network.is_some_and(Network::is_described);
    let known = fabric(topology).filter(|link| is_described || !is_counted(link));
    let known = known.filter_map(|link| {
        let known = expected.get(&(link.a.min(link.b), link.a.max(link.b)))?;
        let (now, full) = (each_gbs(link.peak, link.width), each_gbs(known.peak, known.width));
        // A driver that counts links states their number, a description their rate.
        let width = if is_counted(link) { link.width } else { known.width };
        Some((link, width, now, full))
    });
    let known: Vec<_> = known.collect();
    // Sources count coding and error correction or not: what most links of a kind lack is theirs.
    let share =
        |(_, _, now, full): &(&Link, u32, f64, f64)| if *full > 0.0 { now / full } else { 0.0 };
    let usual = |kind| {
        let of_kind = known.iter().filter(|row| row.0.kind == kind);
        interpolated(&ascending(of_kind.map(share)), 0.5).unwrap_or(0.0)
    };
    let link = |row: &(&Link, u32, f64, f64)| {
        let &(link, max_width, now, full) = row;
        let max_speed = full * usual(link.kind);
        let is_slower = now > 0.0 && now < max_speed * (1.0 - SAME_RATE);
        TrainedLink {
            name: format!("{} {}-{}", link.kind.name(), link.a, link.b),
            kind: link.kind,
            width: link.width,
            max_width,
            speed: if is_slower { now } else { 0.0 },
            max_speed: if is_slower { max_speed } else { 0.0 },
            // A driver states what it is trained at, not a state that it rests in.
            under_load: is_slower,
            errors: None,
            is_missing: false,
        }
    };
    let missing = missing_links(topology, twin).into_iter().map(|link| TrainedLink {
        name: format!("{} {}-{}", link.kind.name(), link.a, link.b),
        kind: link.kind,
        width: 0,
        max_width: link.width,
        speed: 0.0,
        max_speed: 0.0,
        under_load: false,
        errors: None,
        is_missing: true,
    });
    // What a driver counts has a row of its GPU already.
    let is_row = |(link, row): &(&Link, TrainedLink)| row.under_load || !is_counted(link);
    let of_fabric = known.iter().map(|row| (row.0, link(row))).filter(is_row).map(|(_, row)| row);
    let of_hosts = if is_described { slower_host_links(topology) } else { Vec::new() };
    of_fabric.chain(missing).chain(of_hosts).collect()
}

/// PCIe links of a description that are slower than most.
fn slower_host_links(topology: &Topology) -> Vec<TrainedLink> {
    let Some(usual) = usual_rate(topology, LinkKind::Pcie) else { return Vec::new() };
    let slower = |link: &Link| {
        let (ends, speed) = ((link.a, link.b), each_gbs(link.peak, link.width));
        let is_slower = speed > 0.0 && speed < usual * (1.0 - SAME_RATE);
        (link.kind == LinkKind::Pcie && is_of_host(ends) && is_slower).then(|| TrainedLink {
            name: format!("{} {}-{}", link.kind.name(), link.a, link.b),
            kind: link.kind,
            width: 0,
            max_width: 0,
            speed,
            max_speed: usual,
            under_load: true,
            errors: None,
            is_missing: false,
        })
    };
    topology.links.iter().filter_map(slower).collect()
}

/// What was read of the GPUs of a node: by number.
#[derive(Debug, Clone, Copy)]
pub struct NodeReadings<'a> {
    /// What does not change.
    pub facts: &'a BTreeMap<u32, GpuFacts>,
    /// States before anything moved.
    pub idle: &'a BTreeMap<u32, GpuState>,
    /// States while bytes moved.
    pub loaded: &'a BTreeMap<u32, GpuState>,
    /// Error counters before and after.
    pub counters: (&'a BTreeMap<u32, GpuState>, &'a BTreeMap<u32, GpuState>),
}

/// Trained and expected width and speed of each link, and what could not be known about them. `network` describes the
/// node without faults, `twin` the parts that it should have.
pub fn trained_links(
    topology: &Topology,
    network: Option<&Network>,
    twin: Option<&Topology>,
    readings: &NodeReadings<'_>,
) -> (Vec<TrainedLink>, Vec<String>) {
    let (mut links, mut limits) = (Vec::new(), Vec::new());
    pcie_links(topology, readings, &mut links, &mut limits);
    nvlinks(topology, readings, &mut links, &mut limits);
    // A driver that counts the NVLinks of a GPU counts those to each switch, and NVLink-C2C not.
    let counts = |end: LinkEnd| match end {
        LinkEnd::Gpu(gpu) => readings.facts.get(&gpu).is_some_and(|facts| facts.nvlinks.is_some()),
        _ => false,
    };
    let is_counted = |link: &Link| {
        let is_c2c = [link.a, link.b].iter().any(|end| matches!(end, LinkEnd::Numa(_)));
        link.kind == LinkKind::Nvlink && !is_c2c && (counts(link.a) || counts(link.b))
    };
    links.extend(fabric_links(topology, network, twin, &is_counted));
    (links, limits)
}

/// Links that the topology or the GPUs report below their expected width or speed; speeds of PCIe while bytes moved.
pub fn reduced_links(
    topology: &Topology,
    network: Option<&Network>,
    facts: &BTreeMap<u32, GpuFacts>,
    loaded: &BTreeMap<u32, GpuState>,
) -> Vec<TrainedLink> {
    let none = BTreeMap::new();
    let readings = NodeReadings { facts, idle: &none, loaded, counters: (&none, &none) };
    let (mut links, _) = trained_links(topology, network, None, &readings);
    links.retain(|link| link.loss().is_some());
    links
}

/// What both ends of a GPU's PCIe link can have. The GPU states its own; of the port above it only the PCI
/// tree knows, and a virtual machine hides that: then equal GPUs show what the ports can.
fn both_ends(
    topology: &Topology,
    gpu: &Gpu,
    own: PcieLink,
    peers: &[PcieLink],
) -> (u32, f64, bool) {
    let pci = &topology.pci;
    let device = pci.iter().find(|device| device.address == gpu.pci);
    let port = device.and_then(|d| d.parent.as_ref()).and_then(|p| {
        pci.iter().find(|device| device.address == *p)?.link.filter(|link| link.max_width > 0)
    });
    match port {
        Some(port) => {
            (own.max_width.min(port.max_width), own.max_speed_gts.min(port.max_speed_gts), true)
        }
        None => {
            let width = peers.iter().map(|link| link.width).max().unwrap_or(own.width);
            let speed = peers.iter().map(|link| link.speed_gts).fold(0.0, f64::max);
            (width, speed, false)
        }
    }
}

fn pcie_links(
    topology: &Topology,
    readings: &NodeReadings<'_>,
    links: &mut Vec<TrainedLink>,
    limits: &mut Vec<String>,
) {
    let now = |gpu: &Gpu| {
        let read = readings.loaded.get(&gpu.index).and_then(|state| state.pcie);
        let link = read.or(readings.idle.get(&gpu.index).and_then(|s| s.pcie)).or(gpu.host_link)?;
        (link.width > 0).then_some((link, read.is_some()))
    };
    let mut limited = BTreeSet::new();
    for gpu in &topology.gpus {
        let Some((link, under_load)) = now(gpu) else { continue };
        let peers: Vec<PcieLink> = topology
            .gpus
            .iter()
            .filter(|peer| peer.name == gpu.name)
            .filter_map(|peer| Some(now(peer)?.0))
            .collect();
        let (max_width, max_speed, known) = both_ends(topology, gpu, link, &peers);
        if !known && (link.max_width > max_width || link.max_speed_gts > max_speed + 0.1) {
            limited.insert(format!(
                "every {} has PCIe x{max_width} at {max_speed} of x{} at {} GT/s; what its port can is \
                 not visible here",
                gpu.name, link.max_width, link.max_speed_gts
            ));
        }
        let errors = |states: &BTreeMap<u32, GpuState>| states.get(&gpu.index)?.pcie_replays;
        links.push(TrainedLink {
            name: format!("gpu{} PCIe", gpu.index),
            kind: LinkKind::Pcie,
            width: link.width,
            max_width,
            speed: link.speed_gts,
            max_speed,
            under_load,
            errors: errors(readings.counters.0).zip(errors(readings.counters.1)),
            is_missing: false,
        });
    }
    limits.extend(limited);
}

/// NVLinks of each GPU. How many a board connects is known from its best GPU: bridges and partitions of
/// virtual machines connect fewer than the product has.
fn nvlinks(
    topology: &Topology,
    readings: &NodeReadings<'_>,
    links: &mut Vec<TrainedLink>,
    limits: &mut Vec<String>,
) {
    let count = |gpu: &Gpu| readings.facts.get(&gpu.index)?.nvlinks;
    let mut limited = BTreeSet::new();
    for gpu in &topology.gpus {
        let Some((active, product)) = count(gpu) else { continue };
        let peers = topology.gpus.iter().filter(|peer| peer.name == gpu.name);
        let most = peers.filter_map(count).map(|(active, _)| active).max().unwrap_or(active);
        if most < product {
            limited.insert(format!("no {} uses more than {most} of {product} NVLinks", gpu.name));
        }
        let errors = |states: &BTreeMap<u32, GpuState>| states.get(&gpu.index)?.link_errors;
        // A driver that counts none at first may count some later.
        let after = errors(readings.counters.1);
        let before = errors(readings.counters.0).or(after.map(|_| 0));
        links.push(TrainedLink {
            name: format!("gpu{} NVLink", gpu.index),
            kind: LinkKind::Nvlink,
            width: active,
            max_width: most,
            speed: 0.0,
            max_speed: 0.0,
            under_load: readings.loaded.contains_key(&gpu.index),
            errors: before.zip(after),
            is_missing: false,
        });
    }
    limits.extend(limited);
}

#[cfg(test)]
mod tests;
