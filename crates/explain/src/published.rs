//! What others have published for the same paths of the same machine.
//!
//! Facts only, each with its source. The values of single copies between GPUs and the lengths of
//! routes are those that `pathline validate` reads; `data/published/*.csv` has what statements of the
//! sources mean for cases of a run. They are shown beside figures of a node like that of the source,
//! real or simulated: numbered and linked alike, or, where a switch makes all GPUs equal, of the same
//! GPUs.

use std::collections::HashMap;
use std::sync::OnceLock;

use pathline_schema::{
    Bytes, Cadence, Case, Flow, LinkEnd, LinkKind, Mover, Place, Topology, Unit,
};

use crate::figure::PublishedValue;

/// MI250X nodes numbered as LUMI, Frontier and Adastra number them.
const MI250X: &str = include_str!("../data/published/mi250x.csv");

/// What nvbandwidth and a plain program found on nodes of H200s behind NVSwitch. A row of one pair
/// holds for every pair.
const H200: &str = include_str!("../data/published/h200.csv");

/// The links of an MI250X node: GCD, GCD, number of xGMI links (ORNL Frontier user guide; LUMI
/// documentation; KFD dumps of LUMI nodes).
const MI250X_LINKS: [(u32, u32, u32); 12] = [
    (0, 1, 4),
    (0, 2, 1),
    (0, 6, 2),
    (1, 3, 1),
    (1, 5, 1),
    (2, 3, 4),
    (2, 4, 2),
    (3, 7, 1),
    (4, 5, 4),
    (4, 6, 1),
    (5, 7, 1),
    (6, 7, 4),
];

/// Published bandwidths are of large transfers (160 MB and more); smaller ones are not held
/// against them.
const BULK: Bytes = Bytes::mib(64);

/// Published latencies are of 16 B copies.
const TINY: Bytes = Bytes(16);

/// What a published value is a value of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PublishedMetric {
    /// Payload, one way, GB/s.
    Bandwidth,
    /// Bytes read and written at the memory, GB/s.
    Traffic,
    /// Times the rate of one GPU alone.
    Ratio,
    /// Time of one operation, us.
    Latency,
    /// Time of one dependent load, ns.
    Load,
    /// Share of the theoretical peak, 0 to 1.
    Fraction,
}

impl PublishedMetric {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "bandwidth" => Self::Bandwidth,
            "traffic" => Self::Traffic,
            "ratio" => Self::Ratio,
            "latency" => Self::Latency,
            "load" => Self::Load,
            "fraction" => Self::Fraction,
            _ => return None,
        })
    }
    fn fits(self, case: &Case) -> bool {
        let mut sizes = case.timed.iter().map(|f| f.bytes);
        match self {
            Self::Latency => case.cadence == Cadence::Isolated && sizes.all(|b| b == TINY),
            Self::Load => case.timed.iter().all(|f| f.by.is_chase()),
            _ => case.cadence == Cadence::Streaming && sizes.all(|b| b >= BULK),
        }
    }
}

/// Published values of one kind of machine.
#[derive(Debug, Default)]
pub struct PublishedTable {
    rows: HashMap<(String, PublishedMetric), Vec<TableRow>>,
    /// Hops between two GPUs, the lower number first.
    hops: HashMap<(u32, u32), PublishedValue>,
    names: UnitNames,
}

/// What units are called in the key of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UnitNames {
    /// By their numbers.
    #[default]
    Numbers,
    /// By the order in which a case names them: all units of a kind are equal.
    Order,
}

/// Makes the keys under which rows are found.
struct RowKeys {
    names: UnitNames,
    seen: Vec<Unit>,
}

#[derive(Debug)]
struct TableRow {
    value: f64,
    engine: String,
    source: String,
}

impl PublishedTable {
    /// The values that hold for a node: those of its kind, if its links are numbered alike.
    pub fn for_node(topology: &Topology) -> Option<&'static Self> {
        static MI250X_TABLE: OnceLock<PublishedTable> = OnceLock::new();
        static H200_TABLE: OnceLock<PublishedTable> = OnceLock::new();
        if is_mi250x(topology) {
            Some(MI250X_TABLE.get_or_init(Self::mi250x))
        } else if is_h200(topology) {
            Some(H200_TABLE.get_or_init(|| Self::parse(H200, UnitNames::Order)))
        } else {
            None
        }
    }

    /// The value for a case, if somebody has published one. `engine` is what moved the bytes, as
    /// the record says it; empty if unknown.
    pub fn lookup(
        &self,
        case: &Case,
        metric: PublishedMetric,
        engine: &str,
    ) -> Option<PublishedValue> {
        if !case.background.is_empty() || !metric.fits(case) {
            return None;
        }
        let key = RowKeys::new(self.names).of_case(case);
        let fits = |row: &&TableRow| {
            row.engine.is_empty()
                || row.engine == engine
                || (engine.is_empty() && row.engine == "copy engine")
        };
        let row = self.rows.get(&(key, metric))?.iter().find(fits)?;
        Some(PublishedValue { value: row.value, source: row.source.clone() })
    }

    /// Hops of the route between two GPUs, either way.
    pub fn hops(&self, a: u32, b: u32) -> Option<&PublishedValue> {
        self.hops.get(&(a.min(b), a.max(b)))
    }

    /// How many values of cases there are.
    pub fn len(&self) -> usize {
        self.rows.values().map(Vec::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn mi250x() -> Self {
        let mut table = Self::parse(MI250X, UnitNames::Numbers);
        // A test holds that the file can be read.
        let rows = pathline_validate::read(pathline_validate::MI250X).unwrap_or_default();
        for row in &rows {
            let _ = table.take_copy(row);
            let _ = table.take_hops(row);
        }
        table
    }

    /// Rows that do not parse are left out; a test counts them.
    fn parse(text: &str, names: UnitNames) -> Self {
        let mut table = Self { names, ..Self::default() };
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        for record in reader.records().flatten() {
            let field = |n: usize| record.get(n).unwrap_or_default();
            let Some(metric) = PublishedMetric::parse(field(1)) else { continue };
            let Ok(value) = field(2).parse() else { continue };
            let Some(key) = RowKeys::new(names).of_row(field(0)) else { continue };
            let source = match field(6) {
                "" => field(5).to_owned(),
                figure => format!("{}, {figure}", field(5)),
            };
            let row = TableRow { value, engine: field(4).to_owned(), source };
            table.rows.entry((key, metric)).or_default().push(row);
        }
        table
    }

    /// A copy between two GPUs, or inside one, issued by its source: what CUDA's sample
    /// p2pBandwidthLatencyTest measures, whose number is that of a case as it is. None of other rows.
    fn take_copy(&mut self, row: &pathline_validate::PublishedRow) -> Option<()> {
        if !row.tool.starts_with("p2pBandwidthLatencyTest") {
            return None;
        }
        let (src, dst) = (gcd(&row.src)?, gcd(&row.dst)?);
        let metric = match (row.metric.as_str(), row.direction.as_str(), row.unit.as_str()) {
            ("latency", "uni" | "local", "us") => PublishedMetric::Latency,
            ("bandwidth", "uni", "GB/s") => PublishedMetric::Bandwidth,
            ("bandwidth", "local_2N", "GB/s") => PublishedMetric::Traffic,
            _ => return None,
        };
        let case = format!("gpu{src}.vram > gpu{dst}.vram by dma@gpu{src}");
        let key = RowKeys::new(self.names).of_row(&case)?;
        let engine = if row.interface.starts_with("SDMA") { "copy engine" } else { "" };
        let published = published(row)?;
        let row = TableRow {
            value: published.value,
            engine: engine.to_owned(),
            source: published.source,
        };
        self.rows.entry((key, metric)).or_default().push(row);
        Some(())
    }

    /// The length of a route; of GPUs that links join it is one. None of other rows.
    fn take_hops(&mut self, row: &pathline_validate::PublishedRow) -> Option<()> {
        let (a, b) = (gcd(&row.src)?, gcd(&row.dst)?);
        let mut hops = published(row)?;
        match row.metric.as_str() {
            "hops" => {}
            "links" => hops.value = 1.0,
            _ => return None,
        }
        self.hops.insert((a.min(b), a.max(b)), hops);
        Some(())
    }
}

/// The number of a GPU in a row.
fn gcd(text: &str) -> Option<u32> {
    text.strip_prefix("GCD")?.parse().ok()
}

/// A row's value, if it is one number, and where it is from.
fn published(row: &pathline_validate::PublishedRow) -> Option<PublishedValue> {
    let source = match row.figure.as_str() {
        "" => row.source.clone(),
        figure => format!("{}, {figure}", row.source),
    };
    Some(PublishedValue { value: row.value.parse().ok()?, source })
}

impl RowKeys {
    fn new(names: UnitNames) -> Self {
        Self { names, seen: Vec::new() }
    }

    /// The key of a row's case text, in which a kernel's variant is cut to its operation: `[copy-*]`.
    fn of_row(&mut self, case: &str) -> Option<String> {
        let case = case.strip_suffix(" isolated").unwrap_or(case);
        let mut flows = Vec::new();
        for flow in case.split(" & ") {
            let (way, by) = flow.split_once(" by ")?;
            let (src, dst) = way.split_once(" > ")?;
            let (kind, at) = by.split_once('@')?;
            let (at, how) = at.split_once('[').unwrap_or((at, ""));
            let how = how.trim_end_matches(']').split('-').next().unwrap_or_default();
            let ends = (src.parse().ok()?, dst.parse().ok()?);
            flows.push(self.flow(ends, kind, at.parse().ok()?, how));
        }
        Some(flows.join(" & "))
    }

    fn of_case(&mut self, case: &Case) -> String {
        let mut flows = Vec::new();
        for Flow { src, dst, by, .. } in &case.timed {
            let how = match by {
                Mover::Kernel { variant, .. } => variant.op.word(),
                Mover::Cpu { work, .. } => work.op.word(),
                Mover::Migrate { how, .. } => how.word(),
                Mover::Call { call, .. } => call.word(),
                Mover::Dma { .. }
                | Mover::Blit { .. }
                | Mover::Staged { .. }
                | Mover::Batch { .. }
                | Mover::Wire { .. }
                | Mover::Io { .. } => "",
            };
            flows.push(self.flow((*src, *dst), by.kind(), by.at(), how));
        }
        flows.join(" & ")
    }

    fn flow(&mut self, (src, dst): (Place, Place), kind: &str, at: Unit, how: &str) -> String {
        let (from, to) = (self.unit(src.unit), self.unit(dst.unit));
        let at = self.unit(at);
        format!("{from}.{}>{to}.{} {kind}@{at} {how}", src.mem, dst.mem)
    }

    fn unit(&mut self, unit: Unit) -> String {
        if self.names == UnitNames::Numbers {
            return unit.to_string();
        }
        let nth = self.seen.iter().position(|u| *u == unit).unwrap_or_else(|| {
            self.seen.push(unit);
            self.seen.len() - 1
        });
        match unit {
            Unit::Gpu(_) => format!("gpu {nth}"),
            Unit::Numa(_) => format!("numa {nth}"),
            Unit::Store(_) => format!("store {nth}"),
        }
    }
}

/// H200s that reach each other through NVSwitch, where every pair is like every other, or one H200.
fn is_h200(topology: &Topology) -> bool {
    let ours = |gpu: &pathline_schema::Gpu| gpu.name.contains("H200");
    !topology.gpus.is_empty() && topology.gpus.iter().all(ours)
}

fn is_mi250x(topology: &Topology) -> bool {
    let mut links: Vec<(u32, u32, u32)> = topology
        .links
        .iter()
        .filter(|link| link.kind == LinkKind::Xgmi)
        .filter_map(|link| match (link.a, link.b) {
            (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some((a.min(b), a.max(b), link.width)),
            _ => None,
        })
        .collect();
    links.sort_unstable();
    links.dedup();
    topology.gpus.len() == 8
        && topology.gpus.iter().all(|gpu| gpu.arch == "gfx90a")
        && links == MI250X_LINKS
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Gpu, Link};

    use super::*;

    fn node() -> Topology {
        let gpu = |index| Gpu { index, arch: "gfx90a".into(), ..Gpu::default() };
        let link = |&(a, b, width): &(u32, u32, u32)| Link {
            a: LinkEnd::Gpu(b),
            b: LinkEnd::Gpu(a),
            kind: LinkKind::Xgmi,
            width,
            peak: None,
        };
        Topology {
            gpus: (0..8).map(gpu).collect(),
            links: MI250X_LINKS.iter().rev().map(link).collect(),
            ..Topology::default()
        }
    }

    fn value(case: &str, metric: PublishedMetric, engine: &str) -> Option<f64> {
        let table =
            PublishedTable::for_node(&node()).expect("the node is numbered as in the sources");
        table.lookup(&case.parse().unwrap(), metric, engine).map(|p| p.value)
    }

    #[test]
    fn every_row_is_read() {
        assert_eq!(
            PublishedTable::parse(MI250X, UnitNames::Numbers).len(),
            MI250X.lines().count() - 1
        );
        assert_eq!(PublishedTable::parse(H200, UnitNames::Order).len(), H200.lines().count() - 1);
        pathline_validate::read(pathline_validate::MI250X).expect("rows that come with it");
        let table = PublishedTable::mi250x();
        // 8 x 7 / 2 pairs of GCDs; a bandwidth and a latency from each of 8 GCDs to each of 8.
        assert_eq!(table.hops.len(), 28);
        assert_eq!(table.len(), MI250X.lines().count() - 1 + 2 * 64);
        let hops = |a, b| table.hops(a, b).map(|hops| hops.value);
        assert_eq!([hops(1, 0), hops(0, 3), hops(1, 7)], [1.0, 2.0, 3.0].map(Some));
    }

    #[test]
    fn behind_a_switch_a_row_of_one_pair_holds_for_all() {
        let gpu = |index| Gpu {
            index,
            vendor: "nvidia".into(),
            name: "NVIDIA H200".into(),
            ..Gpu::default()
        };
        let node = Topology { gpus: (0..4).map(gpu).collect(), ..Topology::default() };
        let table = PublishedTable::for_node(&node).unwrap();
        let value = |case: &str, metric| {
            table.lookup(&case.parse().unwrap(), metric, "copy engine").map(|p| p.value)
        };
        let (there, back) = ("gpu3.vram > gpu2.vram by dma", "gpu2.vram > gpu3.vram by dma");
        let bandwidth = |case: &str| value(case, PublishedMetric::Bandwidth);
        assert_eq!(bandwidth(&format!("{there}@gpu3 x 2GiB")), Some(396.12));
        assert_eq!(bandwidth(&format!("{there}@gpu2 x 2GiB")), Some(393.8));
        let both = format!("{there}@gpu3 x 2GiB & {back}@gpu2 x 2GiB");
        assert_eq!(bandwidth(&both), Some(783.56));
        assert_eq!(bandwidth("gpu3.vram > gpu3.vram by dma@gpu3 x 2GiB"), None);
        let chase = "gpu1.vram > gpu3.reg by kernel@gpu3[chase-w8-u1-b1-g1] x 16MiB";
        assert_eq!(value(chase, PublishedMetric::Load), Some(827.0));
        assert_eq!(value(chase, PublishedMetric::Bandwidth), None);
    }

    #[test]
    fn a_value_belongs_to_its_path_engine_and_size() {
        let case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB";
        assert_eq!(value(case, PublishedMetric::Bandwidth, "copy engine"), Some(50.3));
        assert_eq!(value(case, PublishedMetric::Bandwidth, "blit kernel"), Some(177.0));
        assert_eq!(
            value("gpu0.vram > gpu1.vram by dma@gpu0 x 4KiB", PublishedMetric::Bandwidth, ""),
            None
        );
        let tiny = "gpu1.vram > gpu7.vram by dma@gpu1 x 16B isolated";
        assert_eq!(value(tiny, PublishedMetric::Latency, "copy engine"), Some(18.23));
        assert_eq!(
            value("gpu0.vram > gpu1.vram by dma@gpu1 x 256MiB", PublishedMetric::Bandwidth, ""),
            None
        );
    }

    #[test]
    fn any_variant_of_the_operation_is_meant() {
        for variant in ["copy-w16-u4-b256-g2sm", "copy-w8-u1-nt-b64-g9"] {
            let case = format!("gpu6.vram > gpu0.vram by kernel@gpu0[{variant}] x 1GiB");
            assert_eq!(value(&case, PublishedMetric::Bandwidth, ""), Some(87.0));
        }
    }

    #[test]
    fn a_fan_is_found_as_a_whole() {
        let one = |h: u32, g: u32| {
            format!(
                "numa{h}.managed > numa{h}.managed by kernel@gpu{g}[copy-w16-u4-b256-g2sm] x 1GiB"
            )
        };
        assert_eq!(
            value(&[one(3, 0), one(3, 1)].join(" & "), PublishedMetric::Ratio, ""),
            Some(1.0)
        );
        assert_eq!(
            value(&[one(3, 0), one(1, 2)].join(" & "), PublishedMetric::Ratio, ""),
            Some(2.0)
        );
    }

    #[test]
    fn a_node_that_is_numbered_otherwise_has_none() {
        let mut other = node();
        // AMD's MI250 reference servers: the dual links are 0-4 and 2-6.
        other.links.iter_mut().filter(|l| l.width == 2).for_each(|l| l.width = 1);
        assert!(PublishedTable::for_node(&other).is_none());
        assert!(PublishedTable::for_node(&Topology::default()).is_none());
    }
}
