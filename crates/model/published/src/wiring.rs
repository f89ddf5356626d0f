//! Rows about the wiring and the parts of a node: nothing is measured for them.

use pathline_flow::routes::InUse;
use pathline_schema::{
    Bytes, Case, CpuHow, CpuOp, CpuWork, Link, LinkEnd, MemKind, Mover, Place, Rate, Unit,
};

use crate::mapper::RowMapper;
use crate::metric::PublishedMetric;
use crate::number::{MachineQuery, RowNumber};
use crate::row::{ParsedRow, RowSubject, UnmappedRow, unmapped, unreadable};

/// The most GPUs whose halves are all tried for the smallest cut: 2^15 of them.
const MOST_GPUS: usize = 16;
/// Bytes of the chase that a memory's latency is of: no cache holds them.
const BEYOND_CACHES: Bytes = Bytes::gib(1);

impl RowMapper<'_> {
    /// The number of a row that nothing is measured for, from the description.
    pub(crate) fn fact(&self, parsed: &ParsedRow) -> Result<RowNumber, UnmappedRow> {
        use PublishedMetric as M;
        const GIB: f64 = (1u64 << 30) as f64;
        let t = &self.topology;
        let gpu = |n: u32| t.gpus.iter().find(|gpu| gpu.index == n);
        let domain = |n: u32| t.numa.iter().find(|domain| domain.id == n);
        let gbs = |rate: Option<Rate>| rate.map(Rate::gbs);
        let value = match (parsed.metric, &parsed.subject) {
            (M::Links, RowSubject::Path(a, b)) => {
                Some(self.links(*a, *b).map(|l| f64::from(l.width)).sum())
            }
            (M::Hops, RowSubject::Path(LinkEnd::Gpu(a), LinkEnd::Gpu(b))) => {
                Some(f64::from(self.route(*a, *b)?.hops))
            }
            (M::LinkPeak, RowSubject::Path(a, b)) => self.link_peak(*a, *b),
            (M::LinkPeakBoth, RowSubject::Path(a, b)) => {
                self.link_peak(*a, *b).map(|peak| 2.0 * peak)
            }
            (M::Capacity, RowSubject::Part(LinkEnd::Gpu(n))) => {
                gpu(*n).map(|gpu| gpu.memory.as_f64() / GIB)
            }
            (M::Capacity, RowSubject::Part(LinkEnd::Numa(n))) => {
                domain(*n).map(|domain| domain.memory.as_f64() / GIB)
            }
            (M::Capacity, RowSubject::Node) => {
                Some(t.numa.iter().map(|n| n.memory.as_f64()).sum::<f64>() / GIB)
            }
            (M::L1Capacity | M::L2Capacity, RowSubject::Part(LinkEnd::Gpu(n))) => {
                let level = if parsed.metric == M::L1Capacity { 1 } else { 2 };
                let cache = gpu(*n).and_then(|gpu| gpu.caches.iter().find(|c| c.level == level));
                cache.map(|cache| cache.size.as_f64() / GIB)
            }
            (M::MemoryPeak, RowSubject::Part(LinkEnd::Gpu(n))) => {
                gpu(*n).and_then(|gpu| gbs(gpu.memory_peak))
            }
            (M::MemoryPeak, RowSubject::Part(LinkEnd::Numa(n))) => {
                domain(*n).and_then(|domain| gbs(domain.peak))
            }
            (M::MemoryPeak, RowSubject::Node) => t.numa.iter().map(|n| gbs(n.peak)).sum(),
            (M::MemoryLatency, RowSubject::Part(LinkEnd::Numa(n))) => {
                if domain(*n).is_none() {
                    return unmapped(format!("this machine has no numa{n}"));
                }
                return Ok(memory_latency(*n));
            }
            (M::NumaDomains, RowSubject::Node) => Some(t.numa.len() as f64),
            (M::CutBound, RowSubject::Node) => Some(self.cut_bound()?),
            (M::RouteBound, RowSubject::Node) => Some(self.route_bound()?),
            _ => return unreadable("case names no part of a node that the metric is of"),
        };
        match value {
            Some(value) => Ok(RowNumber::Known(value)),
            None => unmapped("the description does not state it"),
        }
    }

    /// Links between two ends, in either order.
    fn links(&self, a: LinkEnd, b: LinkEnd) -> impl Iterator<Item = &Link> {
        self.topology.links.iter().filter(move |l| (l.a, l.b) == (a, b) || (l.b, l.a) == (a, b))
    }

    /// GB/s per direction, of all links between two ends; none if there is none or one's is not
    /// known.
    fn link_peak(&self, a: LinkEnd, b: LinkEnd) -> Option<f64> {
        self.links(a, b).next()?;
        self.links(a, b).map(|link| link.peak.map(Rate::gbs)).sum()
    }

    fn route(&self, a: u32, b: u32) -> Result<&InUse, UnmappedRow> {
        match self.routes.get(&(a, b)) {
            Some(route) => Ok(route),
            None => unmapped(format!("this machine has no route from gpu{a} to gpu{b}")),
        }
    }

    /// Uniform all to all: each GPU sends `r` to each of the n - 1 others. Over a cut with `k` GPUs
    /// on one side pass k (n - k) r per direction, which its links bound; the least of all cuts
    /// counts, and a GPU sends (n - 1) r.
    fn cut_bound(&self) -> Result<f64, UnmappedRow> {
        let gpus: Vec<u32> = self.topology.gpus.iter().map(|g| g.index).collect();
        let n = gpus.len();
        if !(2..=MOST_GPUS).contains(&n) {
            return unmapped("the smallest cut is looked for on nodes of 2 to 16 GPUs");
        }
        let mut least = f64::INFINITY;
        // The first GPU stays on one side: the other half of the sides is the same cuts.
        for side in 1u32..1 << (n - 1) {
            let far = |gpu: u32| {
                let at = gpus.iter().position(|g| *g == gpu).unwrap_or(0);
                at > 0 && side >> (at - 1) & 1 == 1
            };
            let crosses = |l: &&Link| matches!((l.a, l.b), (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) if far(a) != far(b));
            let peaks = self.topology.links.iter().filter(crosses).map(|l| l.peak.map(Rate::gbs));
            let Some(capacity) = peaks.sum::<Option<f64>>() else {
                return unmapped("the peak of a link is not known");
            };
            let far_side = side.count_ones() as usize;
            least = least.min(capacity / (far_side * (n - far_side)) as f64);
        }
        Ok(least * (n - 1) as f64)
    }

    /// The same by routes: the fullest link carries its pairs, equal routes each a part.
    fn route_bound(&self) -> Result<f64, UnmappedRow> {
        let mut load: std::collections::BTreeMap<(LinkEnd, LinkEnd), f64> = Default::default();
        for route in self.routes.values() {
            let part = 1.0 / route.paths.len().max(1) as f64;
            for hop in route.paths.iter().flat_map(|p| p.nodes.windows(2)) {
                if let [a, b] = hop {
                    *load.entry((*a, *b)).or_default() += part;
                }
            }
        }
        let mut least = f64::INFINITY;
        for ((a, b), flows) in load {
            match self.link_peak(a, b) {
                Some(peak) => least = least.min(peak / flows),
                None => return unmapped("the peak of a link is not known"),
            }
        }
        if least.is_finite() {
            Ok(least * self.topology.gpus.len().saturating_sub(1) as f64)
        } else {
            unmapped("this machine has no routes between GPUs")
        }
    }
}

/// A dependent load from the memory of a domain by one of its cores.
fn memory_latency(domain: u32) -> RowNumber {
    let at = Unit::Numa(domain);
    let work = CpuWork { op: CpuOp::Chase, how: CpuHow::Plain };
    let by = Mover::Cpu { at, work, threads: 1 };
    let (src, dst) = (Place::new(at, MemKind::Huge), Place::new(at, MemKind::Reg));
    RowNumber::Time(MachineQuery::Case(Case::single(src, dst, by, BEYOND_CACHES)))
}
