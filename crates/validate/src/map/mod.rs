//! From a row to what must be measured for it, and how its number is formed.

mod facts;
mod messages;
mod ops;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use pathline_flow::routes::InUse;
use pathline_flow::{DescError, MachineDesc, Network, RuntimeEnv};
use pathline_schema::{Bytes, LinkEnd, Topology};

use crate::class::RowClass;
use crate::number::{MachineQuery, RowNumber};
use crate::row::PublishedRow;
use crate::system::SYSTEMS;
use crate::value::{RowValue, SizeRule, UnitKind, unit};
use crate::words::{
    BenchTool, CountedDirection, MoveMeans, PathEnd, RowMetric, UnmappedRow, no, unreadable,
};

/// What a row asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedRow {
    /// How the number is formed.
    pub number: RowNumber,
    /// What was published, in the units used inside.
    pub published: RowValue,
    /// Its unit inside.
    pub unit: &'static str,
    /// Its class.
    pub class: RowClass,
    /// What the hardware is asked, whatever the tool: rows that agree in it can contradict each
    /// other. None where the number is no plain rate or time of one path.
    pub asked: Option<HardwareOp>,
    /// Whether the description carries the figure as data.
    pub data: bool,
}

/// What the hardware is asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HardwareOp {
    /// Engine, path and direction: `copy engine gpu0 > gpu1`.
    pub what: String,
    /// Whether it is a time.
    pub time: bool,
    /// Bytes of one operation.
    pub bytes: u64,
}

/// Maps rows onto one machine.
pub struct RowMapper<'a> {
    desc: &'a MachineDesc,
    topology: Topology,
    routes: BTreeMap<(u32, u32), InUse>,
    /// Systems that are this machine beside the known ones.
    systems: Vec<String>,
    /// Latencies that the description carries.
    latency_data: bool,
}

/// A row, read.
struct ParsedRow<'a> {
    row: &'a PublishedRow,
    tool: BenchTool,
    means: MoveMeans,
    src: PathEnd,
    dst: PathEnd,
    size: SizeRule,
    direction: CountedDirection,
    metric: RowMetric,
    value: RowValue,
    kind: UnitKind,
    numbering: &'a [u32],
}

impl<'a> RowMapper<'a> {
    /// For rows of a machine. `systems` are names under which sources know it, beside the ones of
    /// the shipped tables and its own.
    ///
    /// # Errors
    /// A description that makes no network.
    pub fn new(desc: &'a MachineDesc, systems: &[String]) -> Result<Self, DescError> {
        let network = Network::new(desc, RuntimeEnv::default())?;
        let topology = desc.topology();
        let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).collect();
        let mut routes = BTreeMap::new();
        for &a in &gpus {
            for &b in gpus.iter().filter(|&&b| b != a) {
                if let Some(route) = network.routes().in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b)) {
                    routes.insert((a, b), route);
                }
            }
        }
        let latency_data = network.carries_latencies();
        Ok(Self { desc, topology, routes, systems: systems.to_vec(), latency_data })
    }

    /// What a row asks for.
    ///
    /// # Errors
    /// Why there is nothing to ask.
    pub fn map(&self, row: &PublishedRow) -> Result<WantedRow, UnmappedRow> {
        let (numbering, pairs_only) = self.system(&row.system)?;
        let asked = read(row, numbering)?;
        let one_gpu_end = |end: &PathEnd| matches!(end, PathEnd::Host | PathEnd::Numa(_));
        if let Some(why) = pairs_only
            && (one_gpu_end(&asked.src) || one_gpu_end(&asked.dst))
        {
            return no(why);
        }
        let number = self.number(&asked)?;
        let unit = match asked.kind {
            UnitKind::Rate => "GB/s",
            UnitKind::Time => "us",
            UnitKind::Plain => "x",
            UnitKind::Capacity => "GiB",
            UnitKind::Count => "",
        };
        let class = self.class(&asked);
        Ok(WantedRow {
            number,
            published: asked.value,
            unit,
            class,
            asked: self.hardware(&asked),
            data: class == RowClass::LatencyMatrix && self.latency_data,
        })
    }

    /// The numbering of a system (none if it is the description's own), and why only its pairs
    /// count, if so.
    fn system(&self, name: &str) -> Result<(&'a [u32], Option<&'static str>), UnmappedRow> {
        let lower = name.to_lowercase();
        let numberings = self.desc.numberings().iter();
        let numbering = numberings.filter(|n| lower.contains(&n.name.to_lowercase()));
        let numbering = numbering.map(|n| n.gpus.as_slice()).next().unwrap_or_default();
        let mine = |known: &String| known.eq_ignore_ascii_case(name);
        if self.desc.name.eq_ignore_ascii_case(name) || self.systems.iter().any(mine) {
            return Ok((numbering, None));
        }
        let known = SYSTEMS.iter().find(|s| {
            s.machine == self.desc.name && lower.starts_with(s.begins) && lower.contains(s.holds)
        });
        match known {
            Some(system) => Ok((numbering, system.pairs_only)),
            None => no(format!(
                "system '{name}' is not the machine '{}'; --system '{name}' says that it is",
                self.desc.name
            )),
        }
    }

    fn number(&self, asked: &ParsedRow<'_>) -> Result<RowNumber, UnmappedRow> {
        match (asked.tool, &asked.means) {
            (BenchTool::Pathline, _) => self.own(asked),
            (BenchTool::Topology | BenchTool::Datasheet, _) => self.fact(asked),
            (BenchTool::Nothing, _) if asked.metric != RowMetric::EngineLimit => self.fact(asked),
            (_, MoveMeans::Message(library)) => self.message(asked, *library),
            _ => self.path(asked),
        }
    }

    /// A GPU of the row, as the description numbers it.
    fn gpu(&self, asked: &ParsedRow<'_>, number: u32) -> Result<u32, UnmappedRow> {
        let numbering = asked.numbering;
        let gpu = match numbering.get(number as usize) {
            Some(gpu) => *gpu,
            None if numbering.is_empty() => number,
            None => return no(format!("this machine has no GPU {number}")),
        };
        match self.topology.gpus.iter().any(|g| g.index == gpu) {
            true => Ok(gpu),
            false => no(format!("this machine has no GPU {number}")),
        }
    }

    /// The pairs of GPUs that a row is about, in the numbers of the description.
    fn pairs(&self, asked: &ParsedRow<'_>) -> Result<Vec<(u32, u32)>, UnmappedRow> {
        let PathEnd::Gpus(from) = &asked.src else {
            return no(format!("from '{}' is no GPU", asked.row.src));
        };
        let from: Vec<u32> = from.iter().map(|g| self.gpu(asked, *g)).collect::<Result<_, _>>()?;
        let to = |a: u32| -> Result<Vec<u32>, UnmappedRow> {
            let all = self.topology.gpus.iter().map(|g| g.index).filter(|g| *g != a);
            match &asked.dst {
                PathEnd::Gpus(to) => to.iter().map(|g| self.gpu(asked, *g)).collect(),
                PathEnd::Each => Ok(all.collect()),
                PathEnd::Tier(width) => {
                    let direct = |b: &u32| {
                        self.routes.get(&(a, *b)).is_some_and(|r| r.hops == 1 && r.width == *width)
                    };
                    Ok(all.filter(direct).collect())
                }
                _ => no(format!("to '{}' is no GPU", asked.row.dst)),
            }
        };
        let mut pairs = Vec::new();
        for a in from {
            pairs.extend(to(a)?.into_iter().map(|b| (a, b)));
        }
        if pairs.is_empty() {
            return no(format!("no pair of GPUs is '{}' to '{}'", asked.row.src, asked.row.dst));
        }
        Ok(pairs)
    }

    fn class(&self, asked: &ParsedRow<'_>) -> RowClass {
        let host = |end: &PathEnd| matches!(end, PathEnd::Host | PathEnd::Numa(_));
        let local = matches!(asked.direction, CountedDirection::Local | CountedDirection::Local2N);
        match (&asked.metric, asked.tool) {
            (_, BenchTool::Topology | BenchTool::Datasheet) => RowClass::Fact,
            (RowMetric::Links | RowMetric::Hops | RowMetric::Peak(_), _) => RowClass::Fact,
            (RowMetric::CutBound | RowMetric::RouteBound, _) => RowClass::Fact,
            (_, BenchTool::Collective { .. }) => RowClass::Collective,
            _ if matches!(asked.means, MoveMeans::Message(..)) => RowClass::Message,
            (RowMetric::RatioTo(_), _) => RowClass::Ratio,
            (RowMetric::Latency, BenchTool::P2p) => RowClass::LatencyMatrix,
            _ if asked.kind == UnitKind::Time => RowClass::Latency,
            _ if local => RowClass::Local,
            _ if asked.size.most(crate::BULK) < crate::BULK => RowClass::Sweep,
            _ if host(&asked.src) || host(&asked.dst) => RowClass::HostBandwidth,
            _ => RowClass::GpuBandwidth,
        }
    }

    /// A number of cases of this program: the interface is the case text.
    fn own(&self, asked: &ParsedRow<'_>) -> Result<RowNumber, UnmappedRow> {
        let case = match asked.row.interface.parse() {
            Ok(case) => case,
            Err(error) => return unreadable(format!("interface: {error}")),
        };
        match asked.kind {
            UnitKind::Rate => Ok(RowNumber::Rate(MachineQuery::Case(case))),
            UnitKind::Time => Ok(RowNumber::Time(MachineQuery::Case(case))),
            _ => no("a case gives a rate or a time"),
        }
    }
}

/// Reads the cells of a row.
fn read<'a>(row: &'a PublishedRow, numbering: &'a [u32]) -> Result<ParsedRow<'a>, UnmappedRow> {
    let Some(of) = unit(&row.unit) else {
        return unreadable(format!("unit '{}' is not in the vocabulary", row.unit));
    };
    let Some(value) = RowValue::parse(&row.value) else {
        return unreadable(format!("value '{}' is no figure, range or bound", row.value));
    };
    let Some(tool) = BenchTool::parse(&row.tool) else {
        return no(format!("tool '{}' is not in the vocabulary", row.tool));
    };
    let Some(size) = SizeRule::parse(&row.size) else {
        return unreadable(format!("size '{}' is no number of bytes or range", row.size));
    };
    let metric = RowMetric::parse(&row.metric);
    let factual = match tool {
        BenchTool::Topology | BenchTool::Datasheet | BenchTool::Pathline => true,
        BenchTool::Nothing => metric != Ok(RowMetric::EngineLimit),
        _ => false,
    };
    // What moved the bytes is the better reason, where neither is known.
    let means = if factual { MoveMeans::Default } else { MoveMeans::parse(&row.interface)? };
    let metric = metric?;
    let direction = CountedDirection::parse(&row.direction)?;
    let expected = match &metric {
        RowMetric::Bandwidth
        | RowMetric::BusBandwidth
        | RowMetric::EngineLimit
        | RowMetric::CutBound
        | RowMetric::RouteBound => Some(UnitKind::Rate),
        RowMetric::Latency | RowMetric::TwoPassLatency => Some(UnitKind::Time),
        RowMetric::OfOneWayPeak
        | RowMetric::OfTwoWayPeak
        | RowMetric::RatioTo(_)
        | RowMetric::Deficit => Some(UnitKind::Plain),
        RowMetric::Links | RowMetric::Hops => Some(UnitKind::Count),
        RowMetric::UpperBound | RowMetric::LowerBound | RowMetric::Peak(_) => None,
    };
    if expected.is_some_and(|kind| kind != of.kind) {
        return unreadable(format!("'{}' is not measured in {}", row.metric, row.unit));
    }
    let mut value = value.scaled(of.factor);
    match metric {
        RowMetric::UpperBound => value.low = f64::NEG_INFINITY,
        RowMetric::LowerBound => value.high = f64::INFINITY,
        _ => {}
    }
    Ok(ParsedRow {
        row,
        tool,
        means,
        src: if factual_ends(tool) { PathEnd::Nothing } else { PathEnd::parse(&row.src)? },
        dst: if factual_ends(tool) { PathEnd::Nothing } else { PathEnd::parse(&row.dst)? },
        size,
        direction,
        metric,
        value,
        kind: of.kind,
        numbering,
    })
}

/// Whether the ends of a row say nothing: its case text does.
fn factual_ends(tool: BenchTool) -> bool {
    tool == BenchTool::Pathline
}

/// Bytes that kernels can work on: a multiple of 16.
fn whole_words(bytes: u64) -> Bytes {
    Bytes(bytes.max(1).div_ceil(16) * 16)
}
