//! From a row to the queries behind it, and how its number is formed from their answers.

use std::collections::BTreeMap;

use pathline_flow::routes::InUse;
use pathline_flow::{DescError, MachineDesc, Network, RuntimeEnv};
use pathline_message::{ExchangeOp, MessageLibrary};
use pathline_schema::{
    Bytes, Case, Flow, LinkEnd, MemKind, Mover, Place, Rank, RuntimeCall, Topology, Unit,
};

use crate::class::RowClass;
use crate::metric::PublishedMetric;
use crate::number::{MachineQuery, RowNumber};
use crate::row::{ParsedRow, RowBase, RowStatistic, RowSubject, UnmappedRow, unmapped, unreadable};
use crate::table::PublishedRow;
use crate::value::{RowValue, UnitKind, sizes_between};

/// A row that has a prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedRow {
    /// How the number is formed.
    pub number: RowNumber,
    /// The published value, in internal units.
    pub published: RowValue,
    /// Its unit inside.
    pub unit: &'static str,
    /// Its class.
    pub class: RowClass,
    /// The operation of the hardware, for any tool: rows of the same operation can contradict each
    /// other. None where the number is no plain rate or time of one path.
    pub hardware: Option<HardwareOp>,
    /// Whether the description states the figure: with the published value it is carried.
    pub stated: bool,
    /// Stack of the machine that it was measured with; empty where the machine describes none.
    pub stack: String,
}

/// An operation of the hardware, and the value that was published for it.
#[derive(Debug, Clone, PartialEq)]
pub struct HardwareOp {
    /// Engine, path and direction: `copy engine gpu0 > gpu1`.
    pub what: String,
    /// Whether it is a time.
    pub time: bool,
    /// Bytes of one operation.
    pub bytes: u64,
    /// The published value as a rate in GB/s or a time in us; a fraction times its peak.
    pub value: f64,
}

/// Maps rows onto one machine.
pub struct RowMapper<'a> {
    desc: &'a MachineDesc,
    pub(crate) topology: Topology,
    pub(crate) routes: BTreeMap<(u32, u32), InUse>,
    /// Systems that are this machine besides its name.
    systems: Vec<String>,
    /// The stack of every row, whatever the row says.
    forced: Option<String>,
}

impl<'a> RowMapper<'a> {
    /// For rows of a machine. `systems` are names by which tables call it besides its own.
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
        let systems = systems.to_vec();
        Ok(Self { desc, topology, routes, systems, forced: None })
    }

    /// The same, with every row measured with this stack.
    pub fn with_stack(self, stack: Option<&str>) -> Self {
        Self { forced: stack.map(str::to_owned), ..self }
    }

    /// The stack of a row: of those whose texts occur in its system, tool and source the closest, else the
    /// machine's own.
    fn stack_of(&self, row: &PublishedRow) -> String {
        if let Some(forced) = &self.forced {
            return forced.clone();
        }
        let text = [&row.system, &row.tool, &row.source, &row.note].map(String::as_str).join("; ");
        let fits = self.desc.stacks().filter_map(|stack| Some((stack.fit(&text)?, stack)));
        let closest = fits.max_by_key(|(length, _)| *length).map(|(_, stack)| stack.name.as_str());
        closest.or(self.desc.stack()).unwrap_or_default().to_owned()
    }

    fn check_system(&self, row: &PublishedRow) -> Result<(), UnmappedRow> {
        let name = row.system.as_str();
        let is_this = |known: &String| known.eq_ignore_ascii_case(name);
        if !is_this(&self.desc.name) && !self.systems.iter().any(is_this) {
            return unmapped(format!(
                "system '{name}' is not the machine '{}'; --system '{name}' declares that it is",
                self.desc.name
            ));
        }
        Ok(())
    }

    /// Queries and expression of a row that has a case.
    ///
    /// # Errors
    /// The reason why it maps to none.
    pub fn map(&self, row: &PublishedRow) -> Result<WantedRow, UnmappedRow> {
        self.check_system(row)?;
        if !row.left_out.is_empty() {
            return unmapped(&row.left_out);
        }
        let parsed = ParsedRow::parse(row)?;
        let number = match &parsed.subject {
            RowSubject::Queries(queries) => {
                let base = match &parsed.base {
                    RowBase::Queries(base) => base.as_slice(),
                    _ => &[],
                };
                queries.iter().chain(base).try_for_each(|query| self.check_units(query))?;
                number_of(&parsed, queries)?
            }
            _ => self.fact(&parsed)?,
        };
        let class = class(&parsed);
        let stack = self.stack_of(row);
        Ok(WantedRow {
            number,
            published: parsed.value,
            unit: match parsed.kind {
                UnitKind::Rate => "GB/s",
                UnitKind::Time => "us",
                UnitKind::Plain => "x",
                UnitKind::Capacity => "GiB",
                UnitKind::Count => "",
            },
            class,
            hardware: hardware_op(&parsed),
            stated: parsed.metric.is_stated(),
            stack,
        })
    }

    fn check_units(&self, query: &MachineQuery) -> Result<(), UnmappedRow> {
        let MachineQuery::Case(case) = query else { return Ok(()) };
        for flow in case.flows() {
            let shared = flow.by.wire().is_some_and(|wire| wire.via.shares_memory());
            if !shared && [flow.src, flow.dst].iter().any(|place| place.rank != Rank(0)) {
                return unmapped("one process is simulated; write messages as an exchange");
            }
            for unit in [flow.src.unit, flow.dst.unit, flow.by.at()] {
                if !self.has_unit(unit) {
                    return unmapped(format!("this machine has no {unit}"));
                }
            }
        }
        Ok(())
    }

    fn has_unit(&self, unit: Unit) -> bool {
        match unit {
            Unit::Gpu(n) => self.topology.gpus.iter().any(|g| g.index == n),
            Unit::Numa(n) => self.topology.numa.iter().any(|d| d.id == n),
            // Cases of files are skipped with a separate reason where there are none.
            Unit::Store(_) => true,
        }
    }
}

/// The number of a row's cases.
fn number_of(parsed: &ParsedRow, queries: &[MachineQuery]) -> Result<RowNumber, UnmappedRow> {
    let one = |(at, query): (usize, &MachineQuery)| {
        let number = over_sizes(parsed, query)?;
        let base = match &parsed.base {
            RowBase::None => return Ok(number),
            RowBase::Peak(peak) => RowNumber::Known(*peak),
            RowBase::Queries(base) => match base.get(at).or(base.first()) {
                Some(query) => over_sizes(parsed, query)?,
                None => return unreadable("base names no case"),
            },
        };
        let ratio = number.over(base);
        Ok(match parsed.metric {
            PublishedMetric::Deficit => RowNumber::Known(1.0).less(ratio),
            _ => ratio,
        })
    };
    let mut numbers: Vec<RowNumber> =
        queries.iter().enumerate().map(one).collect::<Result<_, UnmappedRow>>()?;
    Ok(match (numbers.len(), parsed.statistic) {
        (1, _) => numbers.remove(0),
        (_, Some(RowStatistic::Most)) => RowNumber::Most(numbers),
        (_, Some(RowStatistic::Least)) => RowNumber::Least(numbers),
        _ => RowNumber::Median(numbers),
    })
}

/// The number of one case: at its size, or the best over several sizes.
fn over_sizes(parsed: &ParsedRow, query: &MachineQuery) -> Result<RowNumber, UnmappedRow> {
    let Some(RowStatistic::BestFrom(least)) = parsed.statistic else {
        return plain_number(parsed, query.clone());
    };
    let Some(most) = size_of(query) else {
        return unreadable("'best from' is of flows of one size");
    };
    let sizes = sizes_between(least.0.min(most.0), most.0).into_iter();
    let mut numbers: Vec<RowNumber> =
        sizes.map(|size| plain_number(parsed, with_size(query, size))).collect::<Result<_, _>>()?;
    Ok(match parsed.kind {
        _ if numbers.len() == 1 => numbers.remove(0),
        UnitKind::Time => RowNumber::Least(numbers),
        _ => RowNumber::Most(numbers),
    })
}

/// The bytes of a query's flows; none if they differ.
fn size_of(query: &MachineQuery) -> Option<Bytes> {
    match query {
        MachineQuery::Exchange(exchange) => Some(exchange.bytes),
        MachineQuery::Case(case) => {
            let first = case.timed.first()?.bytes;
            case.timed.iter().all(|flow| flow.bytes == first).then_some(first)
        }
    }
}

fn with_size(query: &MachineQuery, size: u64) -> MachineQuery {
    let mut query = query.clone();
    match &mut query {
        MachineQuery::Exchange(exchange) => exchange.bytes = Bytes(size),
        MachineQuery::Case(case) => {
            for flow in &mut case.timed {
                // Kernels work on words of 16 B.
                let by_kernel = matches!(flow.by, Mover::Kernel { .. });
                flow.bytes = Bytes(if by_kernel { size.div_ceil(16) * 16 } else { size });
            }
        }
    }
    query
}

fn plain_number(parsed: &ParsedRow, query: MachineQuery) -> Result<RowNumber, UnmappedRow> {
    use PublishedMetric as M;
    let is_collective = matches!(
        &query,
        MachineQuery::Exchange(exchange) if matches!(exchange.what, ExchangeOp::Collective { .. })
    );
    if matches!(parsed.metric, M::BusBandwidth | M::MeanLatency) && !is_collective {
        return unreadable("busbw and mean-latency are of collectives");
    }
    let counted = match (&query, parsed.metric) {
        (MachineQuery::Case(case), M::Traffic) => moved_per_byte(case),
        (MachineQuery::Exchange(_), M::Traffic | M::Load) => {
            return unreadable("traffic and load are of cases");
        }
        _ => 1.0,
    };
    match query {
        MachineQuery::Case(case) if parsed.host_clock => {
            let time = host_clock_time(&case)?;
            let payload: f64 = case.timed.iter().map(|f| f.bytes.as_f64()).sum();
            Ok(match parsed.kind {
                UnitKind::Time => time,
                // Bytes over us are MB/s.
                _ => RowNumber::Known(counted * payload / 1e3).over(time),
            })
        }
        MachineQuery::Exchange(_) if parsed.host_clock => unreadable("the clock is that of cases"),
        query => Ok(match parsed.metric {
            M::BusBandwidth => RowNumber::Bus(query),
            M::MeanLatency => RowNumber::Mean(query),
            M::Latency | M::Load => RowNumber::Time(query),
            _ => RowNumber::Rate(query).times(counted),
        }),
    }
}

/// Bytes read and written for a byte of payload.
fn moved_per_byte(case: &Case) -> f64 {
    let (mut moved, mut payload) = (0.0, 0.0);
    for flow in &case.timed {
        let effect = flow.by.effect(flow.bytes);
        moved += effect.reads.as_f64() + effect.writes.as_f64();
        payload += flow.bytes.as_f64();
    }
    if payload > 0.0 { moved / payload } else { 1.0 }
}

/// The host's clock sees a launch that is waited for around the kernel's own time. A launch of a
/// kernel that does next to nothing is measured as such, less that kernel's device time.
fn host_clock_time(case: &Case) -> Result<RowNumber, UnmappedRow> {
    let kernel = case.timed.first().map(|flow| flow.by);
    let Some(Mover::Kernel { at, .. }) = kernel else {
        return unreadable("clock 'host' is for kernels");
    };
    let call = Mover::Call { at, call: RuntimeCall::LaunchSync };
    let regs = Place::new(at, MemKind::Reg);
    let nothing = Mover::Kernel { at, variant: RuntimeCall::KERNEL };
    let vram = Place::new(at, MemKind::Vram);
    let time = |case: Case| RowNumber::Time(MachineQuery::Case(case));
    let around = time(Case::single(regs, regs, call, Bytes(1)))
        .less(time(Case::single(regs, vram, nothing, RuntimeCall::KERNEL_BYTES).isolated()));
    Ok(RowNumber::Sum(vec![time(case.clone().isolated()), around]))
}

fn class(parsed: &ParsedRow) -> RowClass {
    let RowSubject::Queries(queries) = &parsed.subject else { return RowClass::Fact };
    let mut flows = Vec::new();
    for query in queries {
        match query {
            MachineQuery::Exchange(exchange) => {
                return match exchange.what {
                    ExchangeOp::Collective { .. } => RowClass::Collective,
                    _ => RowClass::Message,
                };
            }
            MachineQuery::Case(case) => flows.extend(&case.timed),
        }
    }
    let on_host = |flow: &&Flow| [flow.src, flow.dst].iter().any(|p| p.unit.numa().is_some());
    match parsed.metric {
        PublishedMetric::Ratio | PublishedMetric::Deficit => RowClass::Ratio,
        PublishedMetric::Latency if is_smallest_copy(&flows) => RowClass::LatencyMatrix,
        _ if parsed.kind == UnitKind::Time => RowClass::Latency,
        _ if flows.iter().any(on_host) => match is_small(&flows) {
            true => RowClass::Sweep,
            false => RowClass::HostBandwidth,
        },
        _ if flows.iter().all(|f| f.src.unit == f.dst.unit) => RowClass::Local,
        _ if is_small(&flows) => RowClass::Sweep,
        _ => RowClass::GpuBandwidth,
    }
}

fn is_small(flows: &[&Flow]) -> bool {
    flows.iter().all(|flow| flow.bytes.0 < crate::BULK)
}

/// A runtime copy of 16 B between GPUs or within one, of which a description may carry the times.
fn is_smallest_copy(flows: &[&Flow]) -> bool {
    let [flow] = flows else { return false };
    let on_gpu = |place: Place| place.unit.gpu().is_some() && place.mem == MemKind::Vram;
    matches!(flow.by, Mover::Dma { .. })
        && flow.bytes == Bytes(16)
        && on_gpu(flow.src)
        && on_gpu(flow.dst)
}

/// The operation of the hardware, for rows about one path between GPUs at one size.
fn hardware_op(parsed: &ParsedRow) -> Option<HardwareOp> {
    let scale = match (parsed.metric, &parsed.base) {
        (PublishedMetric::Bandwidth | PublishedMetric::Latency, _) => 1.0,
        (PublishedMetric::Fraction, RowBase::Peak(peak)) => *peak,
        _ => return None,
    };
    // The best over sizes is that of a large one.
    if !matches!(parsed.statistic, None | Some(RowStatistic::BestFrom(_))) {
        return None;
    }
    let RowSubject::Queries(queries) = &parsed.subject else { return None };
    let [query] = queries.as_slice() else { return None };
    let (who, (a, b), both) =
        match query {
            MachineQuery::Exchange(exchange) => {
                let ExchangeOp::Send { pairs, .. } = &exchange.what else { return None };
                let [(a, b)] = pairs.as_slice() else { return None };
                // The operation behind MPI's copies.
                let who =
                    match exchange.by {
                        MessageLibrary::CrayMpich { sdma } | MessageLibrary::Ucx { sdma } => {
                            if sdma { "copy engine" } else { "kernel that pushes" }
                        }
                        MessageLibrary::Rccl | MessageLibrary::Nccl { .. } => return None,
                    };
                (a.node == b.node).then_some((who, (a.gpu, b.gpu), ""))?
            }
            MachineQuery::Case(case) => {
                let (first, both) = match case.timed.as_slice() {
                    [flow] => (flow, ""),
                    [flow, back] if (flow.src, flow.dst) == (back.dst, back.src) => {
                        (flow, ", both ways")
                    }
                    _ => return None,
                };
                let pair = (first.src.unit.gpu()?, first.dst.unit.gpu()?);
                let who = match first.by {
                    _ if pair.0 == pair.1 => return None,
                    Mover::Dma { .. } => "copy engine",
                    Mover::Blit { at } if at == first.src.unit => "kernel that pushes",
                    Mover::Blit { .. } => "kernel that pulls",
                    _ => return None,
                };
                (who, pair, both)
            }
        };
    let value = parsed.value.middle() * scale;
    Some(HardwareOp {
        what: format!("{who} gpu{a} > gpu{b}{both}"),
        time: parsed.kind == UnitKind::Time,
        bytes: size_of(query)?.0,
        value: Some(value).filter(|v| v.is_finite() && *v > 0.0)?,
    })
}

#[cfg(test)]
mod tests;
