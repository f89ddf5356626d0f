//! Cuts of a node: the least time in which a collective's bytes cross any of them.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{Network, NoPath};
use pathline_schema::{
    Bytes, Case, Collective, Flow, LinkEnd, MemKind, Mover, Ns, Place, Rate, Topology, Unit,
};

/// All cuts are tried up to this number of GPUs and switches; of more units the cuts around one or two.
const ALL_UNITS: usize = 16;
/// Size of the flows that load a cut.
const CUT_FLOW: Bytes = Bytes::mib(256);

/// The cut that takes longest.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeCut {
    /// Least time of the operation, ns: bytes that must cross over the peak of the links that do.
    pub time: Ns,
    /// GPUs and switches of one side, ascending.
    pub side: Vec<LinkEnd>,
    /// Peak of the links between the sides, one direction.
    pub peak: Rate,
}

/// The cut of a node that bounds an operation over `members`, the first of which is the root. All sets of up
/// to 16 GPUs and switches are tried: a switch on either side of a cut cannot make more of its links. Links
/// to the host count for a side that is not the whole node, as bytes may go through it.
///
/// `None` for operations with uneven parts or without bytes, and where no link's peak is known.
pub fn find_cut(
    topology: &Topology,
    op: Collective,
    members: &[u32],
    bytes: Bytes,
) -> Option<NodeCut> {
    let units = units(topology);
    let links = crossable(topology, &units)?;
    let at = |gpu: u32| units.iter().position(|unit| *unit == LinkEnd::Gpu(gpu));
    let places: Vec<usize> = members.iter().filter_map(|gpu| at(*gpu)).collect();
    let (n, root) = (places.len(), *places.first()?);
    let gpus = topology.gpus.len();
    let mut worst: Option<(f64, f64, UnitSet)> = None;
    for side in sides(units.len()) {
        let held = places.iter().filter(|at| side.has(**at)).count();
        if held == 0 || held == n {
            continue;
        }
        let is_whole = (0..gpus).all(|at| side.has(at));
        let crosses = |link: &&CrossableLink| match link.to {
            Some(to) => side.has(link.from) != side.has(to),
            None => side.has(link.from) && !is_whole,
        };
        let peak: f64 = links.iter().filter(crosses).map(|link| link.gbs).sum();
        let crossing = crossing(op, bytes.as_f64(), (held as f64, n as f64), side.has(root))?;
        let time = crossing / peak;
        if peak > 0.0 && worst.as_ref().is_none_or(|(most, ..)| time > most * (1.0 + 1e-9)) {
            worst = Some((time, peak, side));
        }
    }
    let (time, peak, side) = worst?;
    let chosen = units.iter().enumerate().filter(|(at, _)| side.has(*at));
    let side = chosen.map(|(_, unit)| *unit).collect();
    Some(NodeCut { time: Ns(time), side, peak: Rate(peak) })
}

/// Units of a side by their place in the list of units.
#[derive(Debug, Clone, Copy)]
enum UnitSet {
    /// A bit each.
    Mask(u32),
    /// Those around which a larger node is cut.
    Two(usize, usize),
}

impl UnitSet {
    fn has(self, at: usize) -> bool {
        match self {
            Self::Mask(mask) => mask >> at & 1 == 1,
            Self::Two(a, b) => at == a || at == b,
        }
    }
}

/// A link between units, or to the host.
#[derive(Debug, Clone, Copy)]
struct CrossableLink {
    from: usize,
    /// The other unit; `None` for the host.
    to: Option<usize>,
    gbs: f64,
}

/// GPUs, then switches.
fn units(topology: &Topology) -> Vec<LinkEnd> {
    let ends = || topology.links.iter().flat_map(|link| [link.a, link.b]);
    let switches: BTreeSet<u32> = ends()
        .filter_map(|end| match end {
            LinkEnd::Switch(switch) => Some(switch),
            _ => None,
        })
        .collect();
    let gpus = topology.gpus.iter().map(|gpu| LinkEnd::Gpu(gpu.index));
    gpus.chain(switches.into_iter().map(LinkEnd::Switch)).collect()
}

/// The links of the units; `None` if the peak of one is unknown.
fn crossable(topology: &Topology, units: &[LinkEnd]) -> Option<Vec<CrossableLink>> {
    let at = |end: LinkEnd| units.iter().position(|unit| *unit == end);
    let mut links = Vec::new();
    let mut hosted = BTreeSet::new();
    for link in &topology.links {
        let (a, b) = (at(link.a), at(link.b));
        let Some(from) = a.or(b) else { continue };
        let to = a.and(b);
        if to.is_none() {
            hosted.insert(from);
        }
        links.push(CrossableLink { from, to, gbs: link.peak?.0 });
    }
    // A link to the host that the topology states with its GPU.
    for (from, gpu) in topology.gpus.iter().enumerate() {
        if let (Some(link), false) = (gpu.host_link, hosted.contains(&from)) {
            links.push(CrossableLink { from, to: None, gbs: link.peak().0 });
        }
    }
    Some(links)
}

fn sides(units: usize) -> Vec<UnitSet> {
    if units <= ALL_UNITS {
        return (1..1u32 << units).map(UnitSet::Mask).collect();
    }
    (0..units).flat_map(|a| (a..units).map(move |b| UnitSet::Two(a, b))).collect()
}

/// Bytes that must cross in the busier direction, where `k` of `n` members are on the side. Of a reduction
/// each side's sum has to reach the other.
fn crossing(op: Collective, bytes: f64, (k, n): (f64, f64), has_root: bool) -> Option<f64> {
    let own = k / n * bytes;
    let most = |out: f64, into: f64| Some(out.max(into));
    match op {
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce => Some(bytes),
        Collective::AllGather | Collective::ReduceScatter => most(own, bytes - own),
        Collective::Gather | Collective::Scatter => Some(if has_root { bytes - own } else { own }),
        Collective::AllToAll => Some(k * (n - k) / n * bytes),
        _ => None,
    }
}

/// The runtime's copy that uses all links to a neighbour: its copy kernel, where there is one.
pub(crate) fn fastest_copy(topology: &Topology, from: u32) -> Mover {
    let at = Unit::Gpu(from);
    let gpu = topology.gpus.iter().find(|gpu| gpu.index == from);
    if gpu.is_some_and(|gpu| gpu.caps().copy_kernel) {
        Mover::Blit { at }
    } else {
        Mover::Dma { at }
    }
}

impl NodeCut {
    /// `gpu0 gpu1`, or the other side where it is smaller.
    pub fn text(&self) -> String {
        self.side.iter().map(LinkEnd::to_string).collect::<Vec<_>>().join(" ")
    }

    /// All flows over the cut at once, out of the side: an ordinary case, whose rate certifies the bound
    /// without any collective. GPUs with a link between them send over it; over switches each GPU of the
    /// side sends to one of the other side.
    pub fn case(&self, topology: &Topology) -> Option<Case> {
        let side: BTreeSet<LinkEnd> = self.side.iter().copied().collect();
        let mut pairs: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for link in &topology.links {
            for (from, to) in [(link.a, link.b), (link.b, link.a)] {
                if let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (from, to)
                    && side.contains(&from)
                    && !side.contains(&to)
                {
                    *pairs.entry((a, b)).or_default() += link.peak.map_or(1.0, |peak| peak.0);
                }
            }
        }
        if pairs.is_empty() {
            let gpus = |inside: bool| {
                let all = topology.gpus.iter().map(|gpu| gpu.index);
                all.filter(|gpu| side.contains(&LinkEnd::Gpu(*gpu)) == inside).collect::<Vec<_>>()
            };
            let (own, others) = (gpus(true), gpus(false));
            // The smaller side's links bind; the larger one takes turns.
            let count = own.len().min(others.len());
            pairs.extend(own.iter().zip(&others).take(count).map(|(a, b)| ((*a, *b), 1.0)));
        }
        let place = |gpu| Place::new(Unit::Gpu(gpu), MemKind::Vram);
        // Bytes as the links are wide, so that all flows end together.
        let least = pairs.values().copied().fold(f64::INFINITY, f64::min);
        let flow = |((from, to), width): ((u32, u32), f64)| Flow {
            src: place(from),
            dst: place(to),
            by: fastest_copy(topology, from),
            bytes: Bytes(CUT_FLOW.0 * (width / least).round().clamp(1.0, 64.0) as u64),
        };
        let flows: Vec<Flow> = pairs.into_iter().map(flow).collect();
        (!flows.is_empty()).then(|| Case::together(flows))
    }

    /// All bytes of [`Self::case`] over the time in which a network moves them.
    ///
    /// # Errors
    /// A flow that the network does not carry.
    pub fn reached(&self, topology: &Topology, network: &Network) -> Result<Rate, NoPath> {
        let case = self.case(topology).ok_or_else(|| NoPath("no flow crosses the cut".into()))?;
        let time = network.durations(&case)?.set.typical;
        let bytes = case.timed.iter().map(|flow| flow.bytes.0).sum();
        Ok(Rate::of(Bytes(bytes), time))
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_message::{ExchangeSpec, MessageLayer, MessageLibrary};

    use super::*;

    const OPS: [Collective; 5] = [
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllReduce,
        Collective::Broadcast,
        Collective::AllToAll,
    ];

    /// Cuts agree with the bounds that the message layer computes on its own, for subsets of the GPUs, too.
    /// Its bound of all_to_all is over routes, which is at least as long.
    #[test]
    fn cuts_are_those_of_the_message_layer() {
        let desc = MachineDesc::preset("mi250x").unwrap();
        let layer = MessageLayer::new(&desc).unwrap();
        let topology = desc.topology();
        let bytes = Bytes::mib(256);
        for set in [0b1111_1111u32, 0b1111, 0b101_0101, 0b11, 0b1100_0011, 0b111_0110] {
            let gpus: Vec<u32> = (0..8).filter(|gpu| set >> gpu & 1 == 1).collect();
            for op in OPS {
                let by = MessageLibrary::Rccl;
                let time = layer.time(&ExchangeSpec::collective(op, gpus.clone(), by, bytes));
                let bounds = time.unwrap().bounds;
                let cut = find_cut(&topology, op, &gpus, bytes).unwrap();
                let ratio = bounds.flow.0 / cut.time.0;
                // So is that of all_reduce by what all of its sums send.
                let is_cut = !matches!(op, Collective::AllToAll | Collective::AllReduce);
                let most = if is_cut { 1.0 + 1e-9 } else { f64::INFINITY };
                assert!((1.0 - 1e-9..=most).contains(&ratio), "{op} {gpus:?}: {ratio} {cut:?}");
            }
        }
    }

    /// All 2^8 - 1 - 8 = 247 sets of two GCDs and more have a bound, also those without a link between them, whose
    /// bytes pass idle GCDs. Of all_reduce, for which all bytes cross each cut, more GCDs have at least the
    /// cuts of fewer, so their bound is no shorter.
    #[test]
    fn all_subsets_of_eight_gcds_are_bounded() {
        let topology = MachineDesc::preset("mi250x").unwrap().topology();
        let bound = |set: u32, op| {
            let gpus: Vec<u32> = (0..8).filter(|gpu| set >> gpu & 1 == 1).collect();
            find_cut(&topology, op, &gpus, Bytes::mib(256)).unwrap().time.0
        };
        let sets: Vec<u32> = (1..256).filter(|set: &u32| set.count_ones() > 1).collect();
        assert_eq!(sets.len(), 247);
        let reduce: Vec<f64> = sets.iter().map(|set| bound(*set, Collective::AllReduce)).collect();
        for (a, less) in sets.iter().zip(&reduce) {
            for (_, more) in sets.iter().zip(&reduce).filter(|(b, _)| a & *b == *a) {
                assert!(*more >= less * (1.0 - 1e-9), "{a:08b}: {less} {more}");
            }
        }
    }

    /// Two GPUs on a switch, links of 100 and 50 GB/s: all_gather of 8 GB moves 4 GB into each, 80 ms by
    /// the narrower link; and the same whether the switch is on one side or the other.
    #[test]
    fn a_switch_adds_no_bytes() {
        let link = |gpu: u32, gbs: f64| pathline_schema::Link {
            a: LinkEnd::Gpu(gpu),
            b: LinkEnd::Switch(0),
            kind: pathline_schema::LinkKind::Nvlink,
            width: 1,
            peak: Some(Rate(gbs)),
        };
        let gpu = |index| pathline_schema::Gpu { index, ..pathline_schema::Gpu::default() };
        let topology = Topology {
            gpus: vec![gpu(0), gpu(1)],
            links: vec![link(0, 100.0), link(1, 50.0)],
            ..Topology::default()
        };
        let bytes = Bytes(8_000_000_000);
        let cut = find_cut(&topology, Collective::AllGather, &[0, 1], bytes).unwrap();
        assert_eq!((cut.time, cut.peak), (Ns(80e6), Rate(50.0)));
    }

    /// On the twin the flows over the binding cut reach what its packets leave of the peak.
    #[test]
    fn the_binding_cut_can_be_loaded() {
        for (name, least) in [("mi250x", 0.75), ("hgx-h200", 0.75)] {
            let desc = MachineDesc::preset(name).unwrap();
            let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
            let topology = desc.topology();
            let gpus: Vec<u32> = (0..8).collect();
            let cut = find_cut(&topology, Collective::AllReduce, &gpus, Bytes::mib(256)).unwrap();
            let reached = cut.reached(&topology, &network).unwrap();
            let links: f64 = topology
                .links
                .iter()
                .filter(|l| cut.side.contains(&l.a) != cut.side.contains(&l.b))
                .filter(|l| ![l.a, l.b].iter().any(|end| matches!(end, LinkEnd::Numa(_))))
                .filter_map(|link| link.peak)
                .map(|peak| peak.0)
                .sum();
            let share = reached.0 / links;
            assert!((least..=1.0).contains(&share), "{name}: {share} of {cut:?}");
        }
    }

    /// The optimum of all_gather by ForestColl (arXiv:2402.06787) is M/N times the most members of a side over the
    /// links out of it. Its node of 16 GCDs of MI250 has seven links of 50 GB/s each, four of them between the GCDs of a
    /// package: 14 members for the 6 links of a package are more than 15 for the 7 of a GCD, so M is gathered
    /// at 16 * 300 / 14 GB/s. Its A100 node: 7 members for 300 GB/s of a GPU, 8 * 300 / 7. Links: `topologies.py` of
    /// liangyuRain/ForestColl.
    #[test]
    fn optima_of_forestcoll_are_the_bounds() {
        let pairs = "0-1:4 0-4:2 0-8:1 1-5:1 1-9:1 1-10:1 2-3:4 2-6:1 2-9:1 2-10:1 3-7:2 3-11:1 4-5:4 4-6:1 \
                     5-6:1 5-7:1 6-7:4 8-9:4 8-12:2 9-13:1 10-11:4 10-14:1 11-15:2 12-13:4 12-14:1 13-14:1 \
                     13-15:1 14-15:4";
        let link = |a: u32, b: LinkEnd, width: u32, each: f64| pathline_schema::Link {
            a: LinkEnd::Gpu(a),
            b,
            kind: pathline_schema::LinkKind::Xgmi,
            width,
            peak: Some(Rate(each * f64::from(width))),
        };
        let xgmi = |text: &str| {
            let (ends, width) = text.split_once(':').unwrap();
            let (a, b) = ends.split_once('-').unwrap();
            let b = LinkEnd::Gpu(b.parse().unwrap());
            link(a.parse().unwrap(), b, width.parse().unwrap(), 50.0)
        };
        let gpu = |index| pathline_schema::Gpu { index, ..pathline_schema::Gpu::default() };
        let node = |gpus: u32, links: Vec<pathline_schema::Link>| Topology {
            gpus: (0..gpus).map(gpu).collect(),
            links,
            ..Topology::default()
        };
        let mi250 = node(16, pairs.split_whitespace().map(xgmi).collect());
        let a100 = node(8, (0..8).map(|gpu| link(gpu, LinkEnd::Switch(0), 12, 25.0)).collect());
        let bytes = Bytes(16_000_000_000);
        for (node, n, least) in [(&mi250, 16, 16.0 * 300.0 / 14.0), (&a100, 8, 8.0 * 300.0 / 7.0)] {
            let members: Vec<u32> = (0..n).collect();
            for op in [Collective::AllGather, Collective::ReduceScatter] {
                let cut = find_cut(node, op, &members, bytes).unwrap();
                let algbw = bytes.as_f64() / cut.time.0;
                assert!((algbw / least - 1.0).abs() < 1e-9, "{n} {op}: {algbw}, {cut:?}");
            }
        }
    }
}
