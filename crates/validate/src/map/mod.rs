//! From a row to what must be measured for it, and how its number is formed.

mod facts;
mod messages;
mod ops;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use pathline_flow::routes::InUse;
use pathline_flow::{DescError, MachineDesc, Network, Switches};
use pathline_schema::{Bytes, Node, Topology};

use crate::class::Class;
use crate::number::{Ask, Number};
use crate::row::Row;
use crate::system::SYSTEMS;
use crate::value::{Kind, Size, Value, unit};
use crate::words::{Direction, End, Means, Metric, Tool, Unmapped, no, unreadable};

/// What a row asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// How the number is formed.
    pub number: Number,
    /// What was published, in the units used inside.
    pub published: Value,
    /// Its unit inside.
    pub unit: &'static str,
    /// Its class.
    pub class: Class,
    /// What the hardware is asked, whatever the tool: rows that agree in it can contradict each
    /// other. None where the number is no plain rate or time of one path.
    pub asked: Option<Hardware>,
    /// Whether the description carries the figure as data.
    pub data: bool,
}

/// What the hardware is asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hardware {
    /// Engine, path and direction: `copy engine gpu0 > gpu1`.
    pub what: String,
    /// Whether it is a time.
    pub time: bool,
    /// Bytes of one operation.
    pub bytes: u64,
}

/// Maps rows onto one machine.
pub struct Mapper<'a> {
    desc: &'a MachineDesc,
    topology: Topology,
    routes: BTreeMap<(u32, u32), InUse>,
    /// Systems that are this machine beside the known ones.
    systems: Vec<String>,
    /// Latencies that the description carries.
    latency_data: bool,
}

/// A row, read.
struct Asked<'a> {
    row: &'a Row,
    tool: Tool,
    means: Means,
    src: End,
    dst: End,
    size: Size,
    direction: Direction,
    metric: Metric,
    value: Value,
    kind: Kind,
    numbering: &'a [u32],
}

impl<'a> Mapper<'a> {
    /// For rows of a machine. `systems` are names under which sources know it, beside the ones of
    /// the shipped tables and its own.
    ///
    /// # Errors
    /// A description that makes no network.
    pub fn new(desc: &'a MachineDesc, systems: &[String]) -> Result<Self, DescError> {
        let network = Network::new(desc, Switches::default())?;
        let topology = desc.topology();
        let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).collect();
        let mut routes = BTreeMap::new();
        for &a in &gpus {
            for &b in gpus.iter().filter(|&&b| b != a) {
                if let Some(route) = network.routes().in_use(Node::Gpu(a), Node::Gpu(b)) {
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
    pub fn map(&self, row: &Row) -> Result<Wanted, Unmapped> {
        let (numbering, pairs_only) = self.system(&row.system)?;
        let asked = read(row, numbering)?;
        let one_gpu_end = |end: &End| matches!(end, End::Host | End::Numa(_));
        if let Some(why) = pairs_only
            && (one_gpu_end(&asked.src) || one_gpu_end(&asked.dst))
        {
            return no(why);
        }
        let number = self.number(&asked)?;
        let unit = match asked.kind {
            Kind::Rate => "GB/s",
            Kind::Time => "us",
            Kind::Plain => "x",
            Kind::Capacity => "GiB",
            Kind::Count => "",
        };
        let class = self.class(&asked);
        Ok(Wanted {
            number,
            published: asked.value,
            unit,
            class,
            asked: self.hardware(&asked),
            data: class == Class::LatencyMatrix && self.latency_data,
        })
    }

    /// The numbering of a system (none if it is the description's own), and why only its pairs
    /// count, if so.
    fn system(&self, name: &str) -> Result<(&'a [u32], Option<&'static str>), Unmapped> {
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

    fn number(&self, asked: &Asked<'_>) -> Result<Number, Unmapped> {
        match (asked.tool, &asked.means) {
            (Tool::Pathline, _) => self.own(asked),
            (Tool::Topology | Tool::Datasheet, _) => self.fact(asked),
            (Tool::Nothing, _) if asked.metric != Metric::EngineLimit => self.fact(asked),
            (_, Means::Message(library)) => self.message(asked, *library),
            _ => self.path(asked),
        }
    }

    /// A GPU of the row, as the description numbers it.
    fn gpu(&self, asked: &Asked<'_>, number: u32) -> Result<u32, Unmapped> {
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
    fn pairs(&self, asked: &Asked<'_>) -> Result<Vec<(u32, u32)>, Unmapped> {
        let End::Gpus(from) = &asked.src else {
            return no(format!("from '{}' is no GPU", asked.row.src));
        };
        let from: Vec<u32> = from.iter().map(|g| self.gpu(asked, *g)).collect::<Result<_, _>>()?;
        let to = |a: u32| -> Result<Vec<u32>, Unmapped> {
            let all = self.topology.gpus.iter().map(|g| g.index).filter(|g| *g != a);
            match &asked.dst {
                End::Gpus(to) => to.iter().map(|g| self.gpu(asked, *g)).collect(),
                End::Each => Ok(all.collect()),
                End::Tier(width) => {
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

    fn class(&self, asked: &Asked<'_>) -> Class {
        let host = |end: &End| matches!(end, End::Host | End::Numa(_));
        let local = matches!(asked.direction, Direction::Local | Direction::Local2N);
        match (&asked.metric, asked.tool) {
            (_, Tool::Topology | Tool::Datasheet) => Class::Fact,
            (Metric::Links | Metric::Hops | Metric::Peak(_), _) => Class::Fact,
            (Metric::CutBound | Metric::RouteBound, _) => Class::Fact,
            (_, Tool::Collective { .. }) => Class::Collective,
            _ if matches!(asked.means, Means::Message(..)) => Class::Message,
            (Metric::RatioTo(_), _) => Class::Ratio,
            (Metric::Latency, Tool::P2p) => Class::LatencyMatrix,
            _ if asked.kind == Kind::Time => Class::Latency,
            _ if local => Class::Local,
            _ if asked.size.most(crate::BULK) < crate::BULK => Class::Sweep,
            _ if host(&asked.src) || host(&asked.dst) => Class::HostBandwidth,
            _ => Class::GpuBandwidth,
        }
    }

    /// A number of cases of this program: the interface is the case text.
    fn own(&self, asked: &Asked<'_>) -> Result<Number, Unmapped> {
        let case = match asked.row.interface.parse() {
            Ok(case) => case,
            Err(error) => return unreadable(format!("interface: {error}")),
        };
        match asked.kind {
            Kind::Rate => Ok(Number::Rate(Ask::Case(case))),
            Kind::Time => Ok(Number::Time(Ask::Case(case))),
            _ => no("a case gives a rate or a time"),
        }
    }
}

/// Reads the cells of a row.
fn read<'a>(row: &'a Row, numbering: &'a [u32]) -> Result<Asked<'a>, Unmapped> {
    let Some(of) = unit(&row.unit) else {
        return unreadable(format!("unit '{}' is not in the vocabulary", row.unit));
    };
    let Some(value) = Value::parse(&row.value) else {
        return unreadable(format!("value '{}' is no figure, range or bound", row.value));
    };
    let Some(tool) = Tool::parse(&row.tool) else {
        return no(format!("tool '{}' is not in the vocabulary", row.tool));
    };
    let Some(size) = Size::parse(&row.size) else {
        return unreadable(format!("size '{}' is no number of bytes or range", row.size));
    };
    let metric = Metric::parse(&row.metric);
    let factual = match tool {
        Tool::Topology | Tool::Datasheet | Tool::Pathline => true,
        Tool::Nothing => metric != Ok(Metric::EngineLimit),
        _ => false,
    };
    // What moved the bytes is the better reason, where neither is known.
    let means = if factual { Means::Default } else { Means::parse(&row.interface)? };
    let metric = metric?;
    let direction = Direction::parse(&row.direction)?;
    let expected = match &metric {
        Metric::Bandwidth
        | Metric::BusBandwidth
        | Metric::EngineLimit
        | Metric::CutBound
        | Metric::RouteBound => Some(Kind::Rate),
        Metric::Latency | Metric::TwoPassLatency => Some(Kind::Time),
        Metric::OfOneWayPeak | Metric::OfTwoWayPeak | Metric::RatioTo(_) | Metric::Deficit => {
            Some(Kind::Plain)
        }
        Metric::Links | Metric::Hops => Some(Kind::Count),
        Metric::UpperBound | Metric::LowerBound | Metric::Peak(_) => None,
    };
    if expected.is_some_and(|kind| kind != of.kind) {
        return unreadable(format!("'{}' is not measured in {}", row.metric, row.unit));
    }
    let mut value = value.scaled(of.factor);
    match metric {
        Metric::UpperBound => value.low = f64::NEG_INFINITY,
        Metric::LowerBound => value.high = f64::INFINITY,
        _ => {}
    }
    Ok(Asked {
        row,
        tool,
        means,
        src: if factual_ends(tool) { End::Nothing } else { End::parse(&row.src)? },
        dst: if factual_ends(tool) { End::Nothing } else { End::parse(&row.dst)? },
        size,
        direction,
        metric,
        value,
        kind: of.kind,
        numbering,
    })
}

/// Whether the ends of a row say nothing: its case text does.
fn factual_ends(tool: Tool) -> bool {
    tool == Tool::Pathline
}

/// Bytes that kernels can work on: a multiple of 16.
fn whole_words(bytes: u64) -> Bytes {
    Bytes(bytes.max(1).div_ceil(16) * 16)
}
