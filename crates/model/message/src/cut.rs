//! The cut of a node that bounds a collective, and the flows that load it.

use std::collections::BTreeMap;

use pathline_flow::{Network, NoPath};
use pathline_schema::{
    Bytes, Case, Flow, LinkEnd, MemKind, Mover, Ns, Place, Rate, Topology, Unit,
};

/// Size of the flows that load a cut.
const CUT_FLOW: Bytes = Bytes::mib(256);

/// GPUs of a node, cut off from all else.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeCut {
    /// Least time of the operation, ns: bytes that must cross over the peak of the links that do.
    pub time: Ns,
    /// Peak of the links out of the cut, one direction; those to the host included.
    pub peak: Rate,
    pub(crate) node: u32,
    pub(crate) gpus: Vec<u32>,
}

/// The runtime's copy that uses all links to a neighbour: its copy kernel, where there is one.
pub fn fastest_copy(topology: &Topology, from: u32) -> Mover {
    let at = Unit::Gpu(from);
    let gpu = topology.gpus.iter().find(|gpu| gpu.index == from);
    if gpu.is_some_and(|gpu| gpu.caps().copy_kernel) {
        Mover::Blit { at }
    } else {
        Mover::Dma { at }
    }
}

impl NodeCut {
    /// `gpu0 gpu1`
    pub fn text(&self) -> String {
        self.gpus.iter().map(|gpu| format!("gpu{gpu}")).collect::<Vec<_>>().join(" ")
    }

    /// All flows over the cut at once, out of the side: an ordinary case, whose rate certifies the bound
    /// without any collective. GPUs with a link between them send over it; over switches each GPU of the
    /// side sends to one of the other side.
    pub fn case(&self, topology: &Topology) -> Option<Case> {
        let mut pairs: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for link in &topology.links {
            for (from, to) in [(link.a, link.b), (link.b, link.a)] {
                if let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (from, to)
                    && self.gpus.contains(&a)
                    && !self.gpus.contains(&b)
                {
                    *pairs.entry((a, b)).or_default() += link.peak.map_or(1.0, |peak| peak.0);
                }
            }
        }
        if pairs.is_empty() {
            let gpus = |inside: bool| {
                let all = topology.gpus.iter().map(|gpu| gpu.index);
                all.filter(|gpu| self.gpus.contains(gpu) == inside).collect::<Vec<_>>()
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
    use pathline_schema::Collective;

    use super::*;
    use crate::{ExchangeSpec, MachinePeaks, MessageLibrary};

    fn find_cut(
        topology: &Topology,
        op: Collective,
        gpus: impl IntoIterator<Item = u32>,
        bytes: Bytes,
    ) -> NodeCut {
        let peaks = MachinePeaks::new(topology, &Network::from_topology(topology));
        let exchange = ExchangeSpec::collective(op, gpus, MessageLibrary::Rccl, bytes);
        peaks.find_cut(&exchange).unwrap()
    }

    /// All 2^8 - 1 - 8 = 247 sets of two GCDs and more have a bound, also those without a link between them, whose
    /// bytes pass idle GCDs. Of all_reduce, for which all bytes cross each cut, more GCDs have at least the
    /// cuts of fewer, so their bound is no shorter.
    #[test]
    fn all_subsets_of_eight_gcds_are_bounded() {
        let topology = MachineDesc::preset("mi250x").unwrap().topology();
        let peaks = MachinePeaks::new(&topology, &Network::from_topology(&topology));
        let bound = |set: u32, op| {
            let (gpus, by) = ((0..8).filter(|gpu| set >> gpu & 1 == 1), MessageLibrary::Rccl);
            let exchange = ExchangeSpec::collective(op, gpus, by, Bytes::mib(256));
            peaks.find_cut(&exchange).unwrap().time.0
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
        let cut = find_cut(&topology, Collective::AllGather, [0, 1], bytes);
        assert_eq!((cut.time, cut.peak), (Ns(80e6), Rate(50.0)));
    }

    /// On the twin the flows over the binding cut reach what its packets leave of the peak.
    #[test]
    fn the_binding_cut_can_be_loaded() {
        for (name, least) in [("mi250x", 0.75), ("hgx-h200", 0.75)] {
            let desc = MachineDesc::preset(name).unwrap();
            let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
            let topology = desc.topology();
            let cut = find_cut(&topology, Collective::AllReduce, 0..8, Bytes::mib(256));
            let reached = cut.reached(&topology, &network).unwrap();
            let is_in = |end| matches!(end, LinkEnd::Gpu(gpu) if cut.gpus.contains(&gpu));
            let links: f64 = topology
                .links
                .iter()
                .filter(|l| is_in(l.a) != is_in(l.b))
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
            for op in [Collective::AllGather, Collective::ReduceScatter] {
                let cut = find_cut(node, op, 0..n, bytes);
                let algbw = bytes.as_f64() / cut.time.0;
                assert!((algbw / least - 1.0).abs() < 1e-9, "{n} {op}: {algbw}, {cut:?}");
            }
        }
    }
}
