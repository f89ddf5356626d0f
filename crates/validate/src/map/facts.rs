//! Rows about the wiring and the parts of a node: nothing is measured for them.

use pathline_flow::routes::InUse;
use pathline_schema::{
    Bytes, Case, CpuHow, CpuOp, CpuWork, LinkEnd, MemKind, Mover, Place, Rate, Topology, Unit,
};

use super::{ParsedRow, RowMapper};
use crate::number::{MachineQuery, RowNumber};
use crate::value::UnitKind;
use crate::words::{PathEnd, RowMetric, UnmappedRow, no, unreadable};

/// The most GPUs whose halves are all tried for the smallest cut: 2^15 of them.
const MOST_GPUS: usize = 16;

impl RowMapper<'_> {
    /// A row of `topology`, `datasheet` or no tool.
    pub(super) fn fact(&self, asked: &ParsedRow<'_>) -> Result<RowNumber, UnmappedRow> {
        let number = match &asked.metric {
            RowMetric::Links => self.links(asked)?,
            RowMetric::Hops => f64::from(self.route_of(asked)?.hops),
            RowMetric::Peak(of) if of == "cpu ddr latency" => return self.ddr_latency(asked),
            RowMetric::Peak(of) => {
                let (value, kind) = self.peak(of)?;
                if kind != asked.kind {
                    return unreadable(format!("'{of}' is not measured in {}", asked.row.unit));
                }
                value
            }
            RowMetric::CutBound => self.cut_bound()?,
            RowMetric::RouteBound => self.route_bound()?,
            _ => return no("a row of no tool is a fact of the node: links, hops, a peak, a bound"),
        };
        Ok(RowNumber::Known(number))
    }

    fn links(&self, asked: &ParsedRow<'_>) -> Result<f64, UnmappedRow> {
        let (a, b) = match (&asked.src, &asked.dst) {
            (PathEnd::Gpus(a), PathEnd::Numa(n)) => (self.gpu(asked, one(a)?)?, LinkEnd::Numa(*n)),
            (PathEnd::Gpus(a), PathEnd::Gpus(b)) => {
                (self.gpu(asked, one(a)?)?, LinkEnd::Gpu(self.gpu(asked, one(b)?)?))
            }
            _ => return no("links are between two GPUs, or a GPU and a NUMA domain"),
        };
        let between = |l: &&pathline_schema::Link| {
            (l.a, l.b) == (LinkEnd::Gpu(a), b) || (l.b, l.a) == (LinkEnd::Gpu(a), b)
        };
        Ok(self.topology.links.iter().filter(between).map(|l| f64::from(l.width)).sum())
    }

    fn route_of(&self, asked: &ParsedRow<'_>) -> Result<&InUse, UnmappedRow> {
        let (PathEnd::Gpus(a), PathEnd::Gpus(b)) = (&asked.src, &asked.dst) else {
            return no("a route is between two GPUs");
        };
        let (a, b) = (self.gpu(asked, one(a)?)?, self.gpu(asked, one(b)?)?);
        self.route(a, b)
    }

    pub(super) fn route(&self, a: u32, b: u32) -> Result<&InUse, UnmappedRow> {
        match self.routes.get(&(a, b)) {
            Some(route) => Ok(route),
            None => no(format!("this machine has no route from gpu{a} to gpu{b}")),
        }
    }

    /// Theoretical peak of the route in one direction, GB/s.
    pub(super) fn route_peak(&self, a: u32, b: u32) -> Result<f64, UnmappedRow> {
        match self.route(a, b)?.peak {
            Some(peak) => Ok(peak.gbs()),
            None => no(format!("the peak from gpu{a} to gpu{b} is not known")),
        }
    }

    /// What a datasheet says, as the description has it.
    fn peak(&self, of: &str) -> Result<(f64, UnitKind), UnmappedRow> {
        const GIB: f64 = (1u64 << 30) as f64;
        let t: &Topology = &self.topology;
        let gpu = t.gpus.first();
        let tier = |width: u32| {
            let mut links = t.links.iter().filter(|l| l.width == width);
            let gpus = |l: &&pathline_schema::Link| {
                matches!((l.a, l.b), (LinkEnd::Gpu(_), LinkEnd::Gpu(_)))
            };
            links.find(gpus)?.peak.map(Rate::gbs)
        };
        let host = || {
            let mut links = t.links.iter();
            let link = links.find(|l| {
                matches!((l.a, l.b), (LinkEnd::Gpu(_), LinkEnd::Numa(_)))
                    || matches!((l.a, l.b), (LinkEnd::Numa(_), LinkEnd::Gpu(_)))
            })?;
            link.peak.map(Rate::gbs)
        };
        let value = match of {
            "hbm2e capacity per gcd" | "hbm capacity per gcd" => {
                gpu.map(|g| g.memory.as_f64() / GIB)
            }
            "hbm2e bandwidth per gcd" | "hbm bandwidth per gcd" => {
                gpu.and_then(|g| g.memory_peak).map(Rate::gbs)
            }
            "xgmi link per direction" => tier(1),
            "single bidirectional" => tier(1).map(|p| 2.0 * p),
            "dual bidirectional" => tier(2).map(|p| 2.0 * p),
            "quad bidirectional" => tier(4).map(|p| 2.0 * p),
            "cpu-gcd link per direction" => host(),
            "cpu ddr4 bandwidth" | "cpu ddr bandwidth" => {
                t.numa.iter().map(|n| n.peak.map(Rate::gbs)).sum()
            }
            "numa domains" => Some(t.numa.len() as f64),
            "ddr4 capacity" | "ddr capacity" => {
                Some(t.numa.iter().map(|n| n.memory.as_f64()).sum::<f64>() / GIB)
            }
            _ => return no(format!("no description has '{of}'")),
        };
        let kind = match of {
            _ if of.contains("capacity") => UnitKind::Capacity,
            "numa domains" => UnitKind::Count,
            _ => UnitKind::Rate,
        };
        match value {
            Some(value) => Ok((value, kind)),
            None => no(format!("this description does not have '{of}'")),
        }
    }

    /// A dependent load from the memory of a domain by one of its own cores: over 1 GiB, which no
    /// cache holds.
    fn ddr_latency(&self, asked: &ParsedRow<'_>) -> Result<RowNumber, UnmappedRow> {
        if asked.kind != UnitKind::Time {
            return unreadable(format!("a latency is not measured in {}", asked.row.unit));
        }
        let Some(domain) = self.topology.numa.first().map(|d| d.id) else {
            return no("this description has no NUMA domain");
        };
        let at = Unit::Numa(domain);
        let work = CpuWork { op: CpuOp::Chase, how: CpuHow::Plain };
        let by = Mover::Cpu { at, work, threads: 1 };
        let (src, dst) = (Place::new(at, MemKind::Huge), Place::new(at, MemKind::Reg));
        Ok(RowNumber::Time(MachineQuery::Case(Case::single(src, dst, by, Bytes::gib(1)))))
    }

    /// Uniform all to all: each GPU sends `r` to each of the n - 1 others. Over a cut with `k` GPUs
    /// on one side pass k (n - k) r each way, which its links bound; the least of all cuts counts,
    /// and a GPU sends (n - 1) r.
    fn cut_bound(&self) -> Result<f64, UnmappedRow> {
        let gpus: Vec<u32> = self.topology.gpus.iter().map(|g| g.index).collect();
        let n = gpus.len();
        if !(2..=MOST_GPUS).contains(&n) {
            return no("the smallest cut is looked for on nodes of 2 to 16 GPUs");
        }
        let mut least = f64::INFINITY;
        // The first GPU stays on one side: the other half of the sides is the same cuts.
        for side in 1u32..1 << (n - 1) {
            let far = |gpu: u32| {
                let at = gpus.iter().position(|g| *g == gpu).unwrap_or(0);
                at > 0 && side >> (at - 1) & 1 == 1
            };
            let crosses = |l: &&pathline_schema::Link| matches!((l.a, l.b), (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) if far(a) != far(b));
            let peaks = self.topology.links.iter().filter(crosses).map(|l| l.peak.map(Rate::gbs));
            let Some(capacity) = peaks.sum::<Option<f64>>() else {
                return no("the peak of a link is not known");
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
            let ends = |l: &&pathline_schema::Link| (l.a, l.b) == (a, b) || (l.b, l.a) == (a, b);
            let peaks = self.topology.links.iter().filter(ends).map(|l| l.peak.map(Rate::gbs));
            match peaks.sum::<Option<f64>>() {
                Some(peak) => least = least.min(peak / flows),
                None => return no("the peak of a link is not known"),
            }
        }
        if least.is_finite() {
            Ok(least * self.topology.gpus.len().saturating_sub(1) as f64)
        } else {
            no("this machine has no routes between GPUs")
        }
    }
}

/// The one number of a list.
fn one(gpus: &[u32]) -> Result<u32, UnmappedRow> {
    match gpus {
        [gpu] => Ok(*gpu),
        _ => no("expected one GPU"),
    }
}
