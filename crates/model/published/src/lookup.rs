//! The published value of a case, for reports.
//!
//! A report shows it next to figures of a node like that of the source, real or simulated: numbered
//! and linked alike, or, where a switch makes all GPUs equal, of the same GPUs.

use std::collections::HashMap;

use pathline_message::{ExchangeMember, ExchangeOp, ExchangeSpec};
use pathline_schema::{Case, Flow, LinkEnd, Mover, Unit};

use crate::metric::PublishedMetric;
use crate::number::MachineQuery;
use crate::row::{ParsedRow, RowBase, RowSubject, RowUsage};
use crate::table::PublishedRow;

/// Who published a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// The authors of a paper.
    Paper,
    /// The vendor of the hardware or of the library.
    Vendor,
    /// A computing centre, in its guide or its tests.
    Centre,
    /// Nobody: a run of another tool by this project.
    OwnRun,
    /// Not stated by the table.
    #[default]
    Unstated,
}

impl SourceKind {
    /// As tables write it; none of what they do not state.
    pub fn parse(word: &str) -> Self {
        match word {
            "paper" => Self::Paper,
            "vendor" => Self::Vendor,
            "centre" => Self::Centre,
            "own-run" => Self::OwnRun,
            _ => Self::Unstated,
        }
    }
    /// Before a value: `paper 50.3`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Vendor => "vendor",
            Self::Centre => "centre",
            Self::OwnRun => "own run",
            Self::Unstated => "reference",
        }
    }
}

/// A published value with its source.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedValue {
    /// In the figure's unit.
    pub value: f64,
    /// Who published it.
    pub kind: SourceKind,
    /// Source and figure.
    pub source: String,
}

/// Published values of one kind of node, by case.
#[derive(Debug, Default)]
pub struct PublishedTable {
    rows: HashMap<(String, PublishedMetric), Vec<TableRow>>,
    /// Hops between two GPUs, the lower number first.
    hops: HashMap<(u32, u32), PublishedValue>,
    /// Values of message libraries, by the text of the exchange.
    exchanges: HashMap<(String, PublishedMetric), PublishedValue>,
    naming: UnitNaming,
}

/// Names of units in the key of a case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum UnitNaming {
    /// By their numbers.
    #[default]
    Numbers,
    /// By the order in which a case names them: all units of a kind are equal.
    Order,
}

#[derive(Debug)]
struct TableRow {
    published: PublishedValue,
    engine: String,
}

impl PublishedTable {
    /// The values of a table whose units are found by their numbers.
    pub fn of_rows(rows: &[PublishedRow]) -> Self {
        Self::new(rows, UnitNaming::Numbers)
    }

    pub(crate) fn new(rows: &[PublishedRow], naming: UnitNaming) -> Self {
        let mut table = Self { naming, ..Self::default() };
        for row in rows.iter().filter(|row| row.left_out.is_empty()) {
            let usage = RowUsage::parse(&row.usage);
            let is_for_scores = matches!(usage, Some(RowUsage::Score | RowUsage::HeldOut));
            // Of a range there is nothing to show.
            let (false, Ok(value)) = (is_for_scores, row.value.parse()) else { continue };
            if let Ok(parsed) = ParsedRow::parse(row) {
                table.insert(
                    row,
                    &parsed,
                    PublishedValue {
                        value,
                        kind: SourceKind::parse(&row.kind),
                        source: row.origin(),
                    },
                );
            }
        }
        table
    }

    fn insert(&mut self, row: &PublishedRow, parsed: &ParsedRow, mut published: PublishedValue) {
        match &parsed.subject {
            RowSubject::Path(LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => {
                match parsed.metric {
                    PublishedMetric::Hops => {}
                    // The route of GPUs that links join.
                    PublishedMetric::Links => published.value = 1.0,
                    _ => return,
                }
                self.hops.insert((*a.min(b), *a.max(b)), published);
            }
            RowSubject::Queries(queries) => {
                let case = match queries.as_slice() {
                    [MachineQuery::Case(case)] => case,
                    [MachineQuery::Exchange(exchange)] if parsed.base == RowBase::None => {
                        if parsed.metric.exchange_unit() == Some(row.unit.as_str()) {
                            let key = (exchange_key(exchange, self.naming), parsed.metric);
                            self.exchanges.entry(key).or_insert(published);
                        }
                        return;
                    }
                    _ => return,
                };
                let in_unit = parsed.metric.report_unit() == Some(row.unit.as_str());
                let sized = parsed.metric.is_sized_for_reports(case) && case.background.is_empty();
                if in_unit && sized && is_of_one_gpu(&parsed.base) {
                    let rows = self.rows.entry((key(case, self.naming), parsed.metric));
                    let engine = row.engine.clone();
                    rows.or_default().push(TableRow { published, engine });
                }
            }
            _ => {}
        }
    }

    /// The value for a case, if one was published. `engine` names what moved the bytes, as
    /// recorded; empty if unknown.
    pub fn lookup(
        &self,
        case: &Case,
        metric: PublishedMetric,
        engine: &str,
    ) -> Option<PublishedValue> {
        if !case.background.is_empty() || !metric.is_comparable(case) {
            return None;
        }
        let fits = |row: &&TableRow| {
            row.engine.is_empty()
                || row.engine == engine
                || (engine.is_empty() && row.engine == "copy engine")
        };
        let rows = self.rows.get(&(key(case, self.naming), metric))?;
        rows.iter().find(fits).map(|row| row.published.clone())
    }

    /// The value of a message library for an exchange of exactly this size and window, if one was
    /// published: in GB/s or us.
    pub fn lookup_exchange(
        &self,
        exchange: &ExchangeSpec,
        metric: PublishedMetric,
    ) -> Option<PublishedValue> {
        self.exchanges.get(&(exchange_key(exchange, self.naming), metric)).cloned()
    }

    /// Hops of the route between two GPUs, in either order.
    pub fn hops(&self, a: u32, b: u32) -> Option<&PublishedValue> {
        self.hops.get(&(a.min(b), a.max(b)))
    }

    /// Number of values of cases.
    pub fn len(&self) -> usize {
        self.rows.values().map(Vec::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Reports show ratios to what one GPU does alone.
fn is_of_one_gpu(base: &RowBase) -> bool {
    match base {
        RowBase::None | RowBase::Peak(_) => true,
        RowBase::Queries(base) => {
            matches!(base.as_slice(), [MachineQuery::Case(case)] if case.timed.len() == 1)
        }
    }
}

/// The key of an exchange: its text, with its GPUs numbered by their order where all are equal.
fn exchange_key(exchange: &ExchangeSpec, naming: UnitNaming) -> String {
    if naming == UnitNaming::Numbers {
        return exchange.to_string();
    }
    let mut seen: Vec<ExchangeMember> = Vec::new();
    let mut rename = |member: &mut ExchangeMember| {
        let nth = seen.iter().position(|known| known == member).unwrap_or_else(|| {
            seen.push(*member);
            seen.len() - 1
        });
        member.gpu = u32::try_from(nth).unwrap_or(u32::MAX);
    };
    let mut renamed = exchange.clone();
    match &mut renamed.what {
        ExchangeOp::Send { pairs, .. } | ExchangeOp::Ping { pairs } => {
            pairs.iter_mut().flat_map(|(a, b)| [a, b]).for_each(&mut rename);
        }
        ExchangeOp::Collective { over, .. } => over.iter_mut().for_each(&mut rename),
    }
    renamed.to_string()
}

/// The key of a case: its flows without sizes, a kernel's variant cut to its operation.
fn key(case: &Case, naming: UnitNaming) -> String {
    let mut seen = Vec::new();
    let mut name = |unit: Unit| match naming {
        UnitNaming::Numbers => unit.to_string(),
        UnitNaming::Order => {
            let nth = seen.iter().position(|u| *u == unit).unwrap_or_else(|| {
                seen.push(unit);
                seen.len() - 1
            });
            let number = |c: char| c.is_ascii_digit();
            format!("{} {nth}", unit.to_string().trim_end_matches(number))
        }
    };
    let mut flows = Vec::new();
    for Flow { src, dst, by, .. } in &case.timed {
        let (from, to, at) = (name(src.unit), name(dst.unit), name(by.at()));
        let text = by.to_string();
        let how = match by {
            Mover::Kernel { variant, .. } => variant.op.word(),
            Mover::Cpu { work, .. } => work.op.word(),
            _ => text.split_once('[').map_or("", |(_, how)| how),
        };
        flows.push(format!("{from}.{}>{to}.{} {}@{at} {how}", src.mem, dst.mem, by.kind()));
    }
    flows.join(" & ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pathline_flow::MachineDesc;
    use pathline_schema::{Gpu, Topology};

    use super::*;
    use crate::shipped::SHIPPED;

    fn node() -> Topology {
        MachineDesc::preset("mi250x").expect("the preset").topology()
    }

    fn value(case: &str, metric: PublishedMetric, engine: &str) -> Option<f64> {
        let table =
            PublishedTable::for_node(&node()).expect("the node is numbered as in the sources");
        table.lookup(&case.parse().unwrap(), metric, engine).map(|p| p.value)
    }

    #[test]
    fn rows_for_reports_are_found() {
        let [mi250x, h200, ..] = &SHIPPED;
        let table = mi250x.lookup();
        // 8 x 7 / 2 pairs of GCDs. A bandwidth and a latency from each of 8 GCDs to each of 8; of
        // copies with the host 3 kinds by 8 GCDs; 4 fans, 1 + 3 + 3 kernels, 3 copies by kernel.
        assert_eq!(table.hops.len(), 28);
        assert_eq!(table.len(), 2 * 64 + 3 * 8 + 4 + 1 + 3 + 3 + 3);
        let hops = |a, b| table.hops(a, b).map(|hops| hops.value);
        assert_eq!([hops(1, 0), hops(0, 3), hops(1, 7)], [1.0, 2.0, 3.0].map(Some));
        assert_eq!(h200.lookup().len(), 15);
        // Two values of one key and engine would leave open which is shown.
        for rows in SHIPPED.iter().flat_map(|table| table.lookup().rows.values()) {
            let engines: BTreeSet<&str> = rows.iter().map(|row| row.engine.as_str()).collect();
            assert_eq!(engines.len(), rows.len(), "{rows:?}");
        }
    }

    /// 142 GB/s is an MPI message of 16 MiB by blit kernels; the runtime's blit copy of 1 GiB without a
    /// library is another operation, for which no source has a figure.
    #[test]
    fn a_direct_copy_does_not_have_the_value_of_a_message() {
        for size in ["16MiB", "256MiB", "1GiB"] {
            let copy = format!("gpu0.vram > gpu1.vram by blit@gpu0 x {size}");
            assert_eq!(value(&copy, PublishedMetric::Bandwidth, "blit kernel"), None, "{size}");
        }
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
    fn a_message_has_the_value_of_its_library_setting_and_size() {
        let table = PublishedTable::for_node(&node()).unwrap();
        let value = |text: &str, metric| {
            table.lookup_exchange(&text.parse().unwrap(), metric).map(|p| p.value)
        };
        let bandwidth = |text: &str| value(text, PublishedMetric::Bandwidth);
        let send = "send over gpu0>gpu1 by cray-mpich";
        assert_eq!(bandwidth(&format!("{send} x 16MiB window 64")), Some(49.0));
        assert_eq!(bandwidth(&format!("{send}[blit] x 16MiB window 64")), Some(142.0));
        // Neither another size, window, pair nor library.
        for text in [
            "send over gpu0>gpu1 by cray-mpich x 1GiB window 64",
            "send over gpu0>gpu1 by cray-mpich x 16MiB window 4",
            "send over gpu1>gpu0 by cray-mpich x 16MiB window 64",
            "send over gpu0>gpu1 by rccl x 16MiB window 64",
        ] {
            assert_eq!(bandwidth(text), None, "{text}");
        }
        let over = "all_reduce over gpu0-gpu7 by cray-mpich x 8B";
        assert_eq!(value(over, PublishedMetric::MeanLatency), Some(1.24));
        assert_eq!(value(over, PublishedMetric::Latency), None);
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
