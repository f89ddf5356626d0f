//! A journal indexed by case: results, and the ceilings and published values to compare them with.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::Network;
use pathline_published::{PublishedMetric, PublishedTable};
use pathline_schema::{
    Bytes, Cadence, Case, CaseOutcome, CaseTimes, ConstantOrigin, CopyAgent, CpuOp, Flow,
    FlowSeries, GpuReadings, Journal, MemKind, Mover, SuiteId, Topology, Transport, Unit,
    VerifyResult, WorldKind, shell_line,
};
use pathline_stats::SeriesSummary;

use crate::beyond_ceiling::{BeyondCeiling, beyond_ceiling};
use crate::busy::{BusyCases, busy_cases};
use crate::exchange_bounds::ExchangeBounds;
use crate::figure::{
    BetterWhen, FigureCell, LossBreakdown, NodeInterval, PublishedValue, Suspicion,
};
use crate::message_records::library_name;
use crate::repeats::RepeatIndex;
use crate::shown_value::ShownValue;

/// A quantity of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseQuantity {
    /// Payload of all its timed flows divided by the time of the slowest, GB/s.
    Payload,
    /// Bytes read and written at the memories, as STREAM counts them, GB/s.
    Traffic,
    /// Time of one dependent step of the slowest flow, ns.
    StepNs,
    /// Time of one dependent step of the slowest flow, us.
    StepUs,
}

impl CaseQuantity {
    /// Unit in figures.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Payload | Self::Traffic => "GB/s",
            Self::StepNs => "ns",
            Self::StepUs => "us",
        }
    }
    /// Its unit, and which values are better.
    pub(crate) fn rating(self) -> (&'static str, BetterWhen) {
        match self {
            Self::Payload | Self::Traffic => (self.unit(), BetterWhen::Higher),
            Self::StepNs | Self::StepUs => (self.unit(), BetterWhen::Lower),
        }
    }
    fn metric(self) -> Option<PublishedMetric> {
        match self {
            Self::Payload => Some(PublishedMetric::Bandwidth),
            Self::Traffic => Some(PublishedMetric::Traffic),
            Self::StepUs => Some(PublishedMetric::Latency),
            Self::StepNs => Some(PublishedMetric::Load),
        }
    }
}

/// Outcome of a case.
#[derive(Debug, Clone, Copy)]
pub enum EntryState<'a> {
    /// Samples, one series per timed flow; an unfinished case may have fewer than planned.
    Sampled(&'a [FlowSeries]),
    /// A skip or a fault, with its reason.
    Absent(&'a str),
}

/// A case of the run.
#[derive(Debug, Clone, Copy)]
pub struct RunEntry<'a> {
    /// The case.
    pub case: &'a Case,
    pub(crate) suites: &'a [String],
    /// Samples, or the reason why there are none.
    pub state: EntryState<'a>,
    /// State of its GPUs.
    pub(crate) gpus: Option<&'a BTreeMap<Unit, GpuReadings>>,
    /// Result of the verification, if it was measured to its stop.
    verdict: Option<&'a VerifyResult>,
    /// The weakest origin of the constants behind a simulated result.
    origin: Option<ConstantOrigin>,
}

impl<'a> RunEntry<'a> {
    fn new(case: &'a Case, suites: &'a [String], state: EntryState<'a>) -> Self {
        Self { case, suites, state, gpus: None, verdict: None, origin: None }
    }
    /// The only timed flow, if the case has no background.
    pub fn lone(&self) -> Option<&'a Flow> {
        match self.case.timed.as_slice() {
            [flow] if self.case.background.is_empty() => Some(flow),
            _ => None,
        }
    }
    /// The timed flow and the one that runs meanwhile, of a case of these two.
    pub(crate) fn one_during_one(&self) -> Option<(&'a Flow, &'a Flow)> {
        match (self.case.timed.as_slice(), self.case.background.as_slice()) {
            ([timed], [background]) => Some((timed, background)),
            _ => None,
        }
    }
    /// Whether it is neither skipped nor failed.
    pub(crate) fn is_sampled(&self) -> bool {
        matches!(self.state, EntryState::Sampled(_))
    }
    /// Its samples, one series per timed flow; empty for a skip or a fault.
    pub fn series(&self) -> &'a [FlowSeries] {
        match self.state {
            EntryState::Sampled(series) => series,
            EntryState::Absent(_) => &[],
        }
    }
    /// Numbers of samples by visit.
    pub(crate) fn visits(&self) -> &'a [u32] {
        self.series().first().map_or(&[][..], |series| &series.visits)
    }
    /// Both timed flows, if the case is bidirectional between two units.
    pub fn both_ways(&self) -> Option<(&'a Flow, &'a Flow)> {
        match self.case.timed.as_slice() {
            [there, back]
                if self.case.background.is_empty()
                    && there.src.unit == back.dst.unit
                    && there.dst.unit == back.src.unit
                    && there.src.unit != there.dst.unit =>
            {
                Some((there, back))
            }
            _ => None,
        }
    }
    /// Whether a simulated result rests on an assumed constant of the model.
    pub fn is_assumed(&self) -> bool {
        self.origin == Some(ConstantOrigin::Assumed)
    }
    /// Whether a suite with this name lists it.
    pub fn is_in(&self, suite: SuiteId) -> bool {
        self.suites.iter().any(|s| s == suite.word())
    }
    /// The mover of the first flow, as far as recorded.
    pub fn engine(&self) -> &'a str {
        match self.state {
            EntryState::Sampled([first, ..]) => &first.engine,
            _ => "",
        }
    }
    /// What carried the runtime's copies of the first flow: as recorded, since a setting of the user
    /// (`HSA_ENABLE_SDMA=0`) makes every runtime copy a blit kernel, else as its mover asks. `None` if it
    /// is no copy of the runtime.
    pub fn copy_agent(&self) -> Option<CopyAgent> {
        let asked = self.case.timed.first()?.by.facts().copy_agent?;
        let recorded = CopyAgent::ALL.iter().find(|agent| agent.engine() == self.engine());
        Some(recorded.copied().unwrap_or(asked))
    }
    /// Reason if its bytes were not verified, though it moves some.
    pub fn unverified(&self) -> Option<&'a str> {
        match self.verdict? {
            VerifyResult::Unverified(why) if moves_bytes(self.case) => Some(why),
            _ => None,
        }
    }
    /// The value of a case with its interval; `None` without a usable sample.
    pub fn shown(&self, quantity: CaseQuantity) -> Option<ShownValue> {
        let EntryState::Sampled(series) = self.state else { return None };
        shown_value(series, quantity)
    }
}

/// The value of a case with its interval; `None` without a usable sample.
fn shown_value(series: &[FlowSeries], quantity: CaseQuantity) -> Option<ShownValue> {
    let rate = |per_byte: fn(&Flow) -> f64| {
        let bytes = series.iter().map(|s| s.moved_bytes.as_f64() * per_byte(&s.flow)).sum();
        ShownValue::rate(&CaseTimes::slowest_flow(series), bytes)
    };
    let step = || ShownValue::new(&CaseTimes::slowest_step(series));
    match quantity {
        CaseQuantity::Payload => rate(|_| 1.0),
        CaseQuantity::Traffic => rate(arrays),
        CaseQuantity::StepNs => step(),
        CaseQuantity::StepUs => Some(step()?.plus(start_cost(series)).scaled(1e-3)),
    }
}

/// A cost of starting below this, ns, is within the precision of 1 % of a copy that takes 5 us: a model may have none.
const LEAST_START: f64 = 50.0;

/// What an empty pair of events adds to a single copy, ns: 2.8 us on H200s, where published times include it.
pub(crate) fn start_cost(series: &[FlowSeries]) -> f64 {
    let copies = series.iter().filter(|series| matches!(series.flow.by, Mover::Dma { .. }));
    let costs: Vec<f64> = copies.flat_map(FlowSeries::start_costs).map(|cost| cost.0).collect();
    SeriesSummary::of(&costs).map_or(0.0, |c| if c.median < LEAST_START { 0.0 } else { c.median })
}

/// Whether a case leaves bytes to verify: read-only and write-only loops leave none.
pub(crate) fn moves_bytes(case: &Case) -> bool {
    case.timed.iter().any(|f| {
        let effect = f.by.effect(f.bytes);
        let stored = f.src.mem != MemKind::Reg && f.dst.mem != MemKind::Reg;
        stored && effect.writes.0 > 0 && effect.reads == effect.writes
    })
}

/// Bytes read and written per byte of payload: 1 for a read, 2 for a copy, 3 for a triad.
pub(crate) fn arrays(flow: &Flow) -> f64 {
    let effect = flow.by.effect(flow.bytes);
    let moved = effect.reads.as_f64() + effect.writes.as_f64();
    if flow.bytes.0 == 0 { 1.0 } else { moved / flow.bytes.as_f64() }
}

/// The best measured rate of a memory, by the cores that used it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BestMemory {
    /// Read + written, GB/s.
    pub(crate) rate: f64,
    /// The case that reached it: `read-avx512, 2 threads, 256MiB`.
    pub(crate) by: String,
    footprint: u64,
    past_caches: bool,
}

/// A journal with its ceilings.
pub struct RunView<'a> {
    /// The journal.
    pub journal: &'a Journal,
    /// Every case with an outcome or with samples.
    pub entries: Vec<RunEntry<'a>>,
    /// Cases that [`Self::sound`] left out since they rest on assumed constants of a model.
    pub(crate) assumed: Vec<RunEntry<'a>>,
    pub(crate) network: Option<&'a Network>,
    pub(crate) exchange_bounds: ExchangeBounds,
    published: Option<&'static PublishedTable>,
    best: BTreeMap<(Unit, Unit), BestMemory>,
    /// Arguments of `pathline run` that affect the figures of this run.
    arguments: Vec<String>,
    /// Results above the limits of the hardware, in descending order of excess.
    pub(crate) beyond: Vec<BeyondCeiling>,
    /// Results that other programs disturbed.
    pub(crate) busy: BusyCases,
    /// Results of each repeat; empty without repeats.
    pub(crate) repeats: RepeatIndex<'a>,
}

impl<'a> RunView<'a> {
    /// `network` is the machine in the model, for ceilings.
    pub fn new(journal: &'a Journal, network: Option<&'a Network>) -> Self {
        let entry = |outcome: &'a CaseOutcome| match outcome {
            CaseOutcome::Measured(m) => RunEntry {
                gpus: Some(&m.gpus),
                verdict: Some(&m.verdict),
                origin: m.origin,
                ..RunEntry::new(&m.case, &m.suites, EntryState::Sampled(&m.series))
            },
            CaseOutcome::Skipped(s) => {
                RunEntry::new(&s.case, &s.suites, EntryState::Absent(&s.why))
            }
            CaseOutcome::Faulted(f) => {
                RunEntry::new(&f.case, &f.suites, EntryState::Absent(&f.error))
            }
        };
        let partial = journal.partial.iter();
        let partial =
            partial.map(|p| RunEntry::new(&p.case, &p.suites, EntryState::Sampled(&p.series)));
        let mut run = Self {
            journal,
            entries: journal.outcomes.iter().map(entry).chain(partial).collect(),
            assumed: Vec::new(),
            network,
            exchange_bounds: ExchangeBounds::default(),
            published: PublishedTable::for_node(&journal.topology),
            best: BTreeMap::new(),
            arguments: usual_arguments(journal),
            beyond: beyond_ceiling(journal),
            busy: busy_cases(journal),
            repeats: RepeatIndex::from_journal(journal),
        };
        run.best = run.find_best();
        run
    }

    /// The run without impossible results, disturbed ones, and ones that rest on assumed constants of
    /// a model: no sentence rests on these.
    pub fn sound(&self) -> Self {
        let is_sound = |entry: &&RunEntry| {
            self.busy.reason(entry.case).is_none()
                && !entry.is_assumed()
                && self.beyond.iter().all(|b| b.case != *entry.case)
        };
        let entries = self.entries.iter().filter(is_sound).copied().collect();
        let assumed = self.entries.iter().filter(|entry| entry.is_assumed()).copied().collect();
        let mut run = Self {
            entries,
            assumed,
            exchange_bounds: ExchangeBounds::default(),
            best: BTreeMap::new(),
            arguments: self.arguments.clone(),
            beyond: self.beyond.clone(),
            busy: self.busy.clone(),
            repeats: self.repeats.clone(),
            ..*self
        };
        run.best = run.find_best();
        run
    }

    /// The same with the arguments of its command line, for commands that repeat parts of it.
    pub(crate) fn with_arguments(mut self, arguments: Option<&[String]>) -> Self {
        if let Some(arguments) = arguments {
            self.arguments = arguments.to_vec();
        }
        self
    }

    /// The topology of the node.
    pub fn topology(&self) -> &'a Topology {
        &self.journal.topology
    }

    /// Name and version of the library behind a transport.
    pub fn library(&self, via: Transport) -> String {
        library_name(self.journal, via)
    }

    /// Published hops between two GPUs.
    pub(crate) fn published_hops(&self, a: u32, b: u32) -> Option<PublishedValue> {
        self.published?.hops(a, b).cloned()
    }

    /// Whether the model of a simulated machine contains the value of a case as data: the time of a
    /// smallest copy between GPUs.
    pub(crate) fn carries(&self, case: &Case) -> bool {
        let smallest = |f: &Flow| {
            let of_gpus = f.src.unit.gpu().is_some() && f.dst.unit.gpu().is_some();
            f.bytes == Bytes(16) && matches!(f.by, Mover::Dma { .. }) && of_gpus
        };
        let alone = case.cadence == Cadence::Isolated && case.timed.len() == 1;
        let model = self.network.filter(|_| self.simulated().is_some());
        alone && case.timed.iter().all(smallest) && model.is_some_and(Network::carries_latencies)
    }

    /// Name of the simulated machine; `None` for hardware.
    pub fn simulated(&self) -> Option<&'a str> {
        match &self.journal.begin.world {
            WorldKind::Real => None,
            WorldKind::Simulated(name) => Some(name),
        }
    }

    /// Outcome of a case.
    pub fn entry(&self, case: &Case) -> Option<&RunEntry<'a>> {
        self.entries.iter().find(|e| e.case == case)
    }

    /// Cases of a suite.
    pub fn suite<'b>(&'b self, name: SuiteId) -> impl Iterator<Item = &'b RunEntry<'a>> + 'b {
        self.entries.iter().filter(move |e| e.is_in(name))
    }

    /// Median of a case.
    pub fn value(&self, entry: &RunEntry, quantity: CaseQuantity) -> Option<f64> {
        entry.shown(quantity).map(|shown| shown.value)
    }

    /// Value of a case with ceilings, uncertainty and warnings.
    pub fn cell(&self, entry: &RunEntry, quantity: CaseQuantity) -> FigureCell {
        let shown = entry.shown(quantity);
        let absent = match (entry.state, &shown) {
            (EntryState::Absent(why), _) => Some(why.to_owned()),
            (EntryState::Sampled(_), None) => Some("no usable sample".to_owned()),
            (EntryState::Sampled(_), Some(_)) => None,
        };
        let message = self.message_limits(entry, quantity);
        let (ceiling, bound) = match &message {
            Some(limits) => (limits.ceiling, limits.bound),
            None if entry.case.flows().any(|flow| flow.by.wire().is_some()) => (None, None),
            None => self.limits(entry.case, quantity),
        };
        FigureCell {
            value: shown.map(|s| s.value),
            half_width: match entry.origin {
                // The spread of times is the simulator's and shows nothing about the constant.
                Some(ConstantOrigin::Assumed) => shown.map_or(0.0, |s| s.value),
                _ => shown.map_or(0.0, |s| s.half_width()),
            },
            few: shown.and_then(|s| s.few_samples()),
            node: self.node_interval(entry.case, quantity),
            ceiling,
            bound,
            path: match message {
                Some(limits) => Some(limits.path),
                None => self.path(entry.case, quantity, ceiling),
            },
            published: self
                .published(entry, quantity.metric())
                .or_else(|| self.published_message(entry, quantity)),
            absent,
            case: Some(entry.case.clone()),
            gpus: entry.gpus.map(crate::gpus::during).unwrap_or_default(),
            suspect: self.suspicion(entry),
            origin: entry.origin,
        }
    }

    /// Value of one flow of a case, with uncertainty and warnings.
    pub(crate) fn flow_cell(
        &self,
        entry: &RunEntry,
        series: &FlowSeries,
        quantity: CaseQuantity,
    ) -> FigureCell {
        let shown = shown_value(std::slice::from_ref(series), quantity);
        FigureCell {
            value: shown.map(|s| s.value),
            half_width: shown.map_or(0.0, |s| s.half_width()),
            few: shown.and_then(|s| s.few_samples()),
            case: Some(entry.case.clone()),
            suspect: self.suspicion(entry),
            origin: entry.origin,
            ..FigureCell::default()
        }
    }

    /// The interval of a value between processes, of a run with at least 3 repeats.
    pub fn node_interval(&self, case: &Case, quantity: CaseQuantity) -> Option<NodeInterval> {
        self.repeats.interval(case, |series| shown_value(series, quantity))
    }

    /// Reason if results of a case are suspect. Messages of a simulated machine carry no bytes,
    /// which does not make each of them suspect.
    pub fn suspicion(&self, entry: &RunEntry) -> Option<Suspicion> {
        let beyond = self.beyond.iter().find(|b| b.case == *entry.case);
        let unverified = entry.unverified().filter(|_| self.simulated().is_none());
        let busy = self.busy.reason(entry.case);
        beyond
            .map(|b| Suspicion::BeyondCeiling(b.text()))
            .or_else(|| busy.map(|why| Suspicion::Busy(why.to_owned())))
            .or_else(|| unverified.map(|why| Suspicion::Unverified(why.to_owned())))
            .or_else(|| entry.is_assumed().then_some(Suspicion::Assumed))
    }

    /// Route of a case; with losses if its ceiling is the network's.
    fn path(
        &self,
        case: &Case,
        quantity: CaseQuantity,
        ceiling: Option<f64>,
    ) -> Option<LossBreakdown> {
        let factor = if quantity == CaseQuantity::Traffic { weighted(case)? } else { 1.0 };
        let mut path = crate::loss_breakdown::loss_breakdown(self.network?, case, factor)?;
        let top = path.losses.first().map(|l| l.from).or(ceiling);
        let same = |(a, b): (f64, f64)| (a / b - 1.0).abs() < 1e-3;
        if !top.zip(ceiling).is_some_and(same) {
            path.losses.clear();
        }
        Some(path)
    }

    /// Published values of nodes like this one.
    pub(crate) fn published_table(&self) -> Option<&'static PublishedTable> {
        self.published
    }

    /// Published value for a case.
    pub(crate) fn published(
        &self,
        entry: &RunEntry,
        metric: Option<PublishedMetric>,
    ) -> Option<PublishedValue> {
        self.published?.lookup(entry.case, metric?, entry.engine())
    }

    /// The ceiling of a case, and a tighter bound if known.
    pub(crate) fn limits(&self, case: &Case, quantity: CaseQuantity) -> (Option<f64>, Option<f64>) {
        let factor = match quantity {
            CaseQuantity::StepNs | CaseQuantity::StepUs => return (None, None),
            CaseQuantity::Payload => 1.0,
            CaseQuantity::Traffic => match weighted(case) {
                Some(factor) => factor,
                None => return (None, None),
            },
        };
        if let Some(ceiling) = self.own_memory_peak(case) {
            return (Some(ceiling * factor), None);
        }
        let (ceiling, bound) = match self.network_limits(case) {
            (None, _) => (self.measured_limit(case), None),
            limits => limits,
        };
        (ceiling.map(|c| c * factor), bound.map(|b| b * factor))
    }

    /// Limits by the network: the sum of the flows' peaks, and their joint rate.
    pub(crate) fn network_limits(&self, case: &Case) -> (Option<f64>, Option<f64>) {
        let Some(network) = self.network else { return (None, None) };
        let mut peak = 0.0;
        let mut alone = None;
        for flow in &case.timed {
            let Ok(explanation) = network.explain(flow) else { return (None, None) };
            peak += explanation.peak.gbs();
            alone = explanation.bound.map(|(rate, _)| rate.gbs());
        }
        if !peak.is_finite() || peak <= 0.0 {
            return (None, None);
        }
        let bound = if case.flows().count() == 1 {
            alone
        } else {
            network.predict(case).ok().map(|flows| flows.iter().map(|p| p.rate.gbs()).sum())
        };
        (Some(peak), bound.filter(|b| b.is_finite() && *b > 0.0 && *b < peak * 0.9999))
    }

    /// Rate of a single flow in the machine description, GB/s, and its limit.
    pub fn bound(&self, flow: &Flow) -> Option<(f64, String)> {
        let ceiling = self.network?.explain(flow).ok()?;
        let (rate, why) = ceiling.bound.unwrap_or((ceiling.peak, ceiling.narrowest));
        Some((rate.gbs(), why))
    }

    /// Rate of flows that all last equally long, by the peaks of the links alone and by all known
    /// limits: number of flows times the slowest flow.
    pub(crate) fn slowest_limits(&self, case: &Case) -> (Option<f64>, Option<f64>) {
        let all = |network: &Network| {
            let flows = network.predict(case).ok()?;
            let slowest = flows.iter().map(|p| p.rate.gbs()).reduce(f64::min)?;
            Some(slowest * flows.len() as f64).filter(|rate| rate.is_finite() && *rate > 0.0)
        };
        let peak = all(&Network::from_topology(&self.topology().whole_node()));
        let bound = self.network.and_then(all);
        (peak, bound.filter(|b| peak.is_none_or(|peak| *b < peak * 0.9999)))
    }

    /// Payload that the peak of a GPU's own memory permits, for a case inside it.
    fn own_memory_peak(&self, case: &Case) -> Option<f64> {
        let [flow] = case.timed.as_slice() else { return None };
        let at = flow.by.at();
        let inside = |unit| unit == at;
        if !inside(flow.src.unit) || !inside(flow.dst.unit) || flow.by.is_chase() {
            return None;
        }
        let gpu = self.topology().gpus.iter().find(|g| Some(g.index) == at.gpu())?;
        let peak = gpu.memory_peak?.gbs();
        (peak.is_finite() && peak > 0.0).then(|| peak / arrays(flow))
    }

    /// Payload that the best measured rate of host memory permits, for a case of the processor with
    /// data larger than the caches.
    fn measured_limit(&self, case: &Case) -> Option<f64> {
        let [flow] = case.timed.as_slice() else { return None };
        let at = flow.by.at();
        let (src, dst) = memories(flow);
        let (from, to) = (self.best.get(&(src, at))?, self.best.get(&(dst, at))?);
        let enough = (2 * self.last_cache(at)).min(from.footprint).min(to.footprint);
        if !is_stream(flow) || footprint(flow) < enough {
            return None;
        }
        Some(if src == dst { from.rate / arrays(flow) } else { from.rate.min(to.rate) })
    }

    /// The best measured rate of a domain's memory by its own cores.
    pub(crate) fn best_of(&self, memory: Unit, cores: Unit) -> Option<&BestMemory> {
        self.best.get(&(memory, cores))
    }

    fn find_best(&self) -> BTreeMap<(Unit, Unit), BestMemory> {
        let mut best: BTreeMap<(Unit, Unit), BestMemory> = BTreeMap::new();
        for entry in &self.entries {
            let Some(flow) = entry.lone().filter(|f| is_stream(f)) else { continue };
            let (src, dst) = memories(flow);
            let Some(rate) = self.value(entry, CaseQuantity::Traffic) else { continue };
            if src != dst {
                continue;
            }
            let footprint = footprint(flow);
            let past_caches = footprint >= 2 * self.last_cache(flow.by.at());
            let new = BestMemory { rate, by: stream_name(flow), footprint, past_caches };
            let better = |old: &BestMemory| match (old.past_caches, past_caches) {
                (true, false) => false,
                (false, true) => true,
                (true, true) => rate > old.rate,
                (false, false) => (footprint, rate) > (old.footprint, old.rate),
            };
            let key = (src, flow.by.at());
            if best.get(&key).is_none_or(better) {
                best.insert(key, new);
            }
        }
        best
    }

    /// Whether the arrays of a flow exceed the caches of its cores: twice as large, or as large as
    /// those of the best case if the run has none so large.
    pub fn past_caches(&self, flow: &Flow) -> bool {
        let best = self.best.get(&(memories(flow).0, flow.by.at())).map_or(0, |b| b.footprint);
        footprint(flow) >= (2 * self.last_cache(flow.by.at())).min(best)
    }

    /// All last-level cache of a domain's cores; 0 if unknown.
    pub(crate) fn last_cache(&self, cores: Unit) -> u64 {
        let topology = self.topology();
        let last = topology.caches.iter().map(|c| c.level).max().unwrap_or(0);
        let domain = topology.numa.iter().find(|d| Some(d.id) == cores.numa());
        topology
            .caches
            .iter()
            .filter(|c| c.level == last && c.kind != "Instruction")
            .filter(|c| domain.is_none_or(|d| !d.cpus.intersect(&c.cpus).is_empty()))
            .fold(0, |sum, c| c.size.0.saturating_add(sum))
            .min(u64::MAX / 4)
    }

    /// Data sizes of the caches that one core sees, by level.
    pub(crate) fn cache_levels(&self) -> Vec<(u32, Bytes)> {
        let mut levels: BTreeMap<u32, Bytes> = BTreeMap::new();
        for cache in &self.topology().caches {
            if cache.kind != "Instruction" && cache.size.0 > 0 {
                let size = levels.entry(cache.level).or_insert(cache.size);
                *size = (*size).max(cache.size);
            }
        }
        levels.into_iter().collect()
    }

    /// The command that repeats part of this run.
    pub fn command(&self, suite: SuiteId, pattern: &str) -> String {
        let given = self.arguments.iter().map(String::as_str);
        let mut arguments: Vec<&str> = ["pathline", "run"].into_iter().chain(given).collect();
        arguments.push(suite.word());
        if !pattern.is_empty() {
            arguments.push(pattern);
        }
        let command = shell_line(arguments);
        // Ranks that pathline did not start have an unknown launcher.
        let ranks = self.journal.begin.ranks.len();
        let launched = ranks > 0 && !self.arguments.iter().any(|argument| argument == "--ranks");
        if launched { format!("mpirun -n {ranks} {command}") } else { command }
    }

    /// GPUs of the cases, ascending.
    pub(crate) fn gpus<'b>(&self, entries: impl Iterator<Item = &'b RunEntry<'b>>) -> Vec<u32> {
        let units = entries.flat_map(|e| e.case.timed.iter());
        let units = units.flat_map(|f| [f.src.unit, f.dst.unit, f.by.at()]);
        units.filter_map(Unit::gpu).collect::<BTreeSet<u32>>().into_iter().collect()
    }
}

/// Arguments from the records alone, if the command line cannot be parsed: the machine and the
/// processes that pathline started.
fn usual_arguments(journal: &Journal) -> Vec<String> {
    let mut arguments = Vec::new();
    if let WorldKind::Simulated(machine) = &journal.begin.world {
        arguments.extend(["--machine".to_owned(), machine.clone()]);
    }
    let ranks = journal.begin.ranks.len();
    if ranks > 0 && journal.begin.command.iter().any(|argument| argument.starts_with("--ranks")) {
        arguments.extend(["--ranks".to_owned(), ranks.to_string()]);
    }
    arguments
}

/// Traffic per byte of payload, if equal for all timed flows.
fn weighted(case: &Case) -> Option<f64> {
    let factor = arrays(case.timed.first()?);
    case.timed.iter().all(|f| arrays(f) == factor).then_some(factor)
}

/// Whether a flow is a CPU loop over memory, as in STREAM.
pub(crate) fn is_stream(flow: &Flow) -> bool {
    match &flow.by {
        Mover::Cpu { work, .. } => !matches!(work.op, CpuOp::Chase | CpuOp::Touch),
        _ => false,
    }
}

/// The memories of a flow; registers replace the other end.
pub(crate) fn memories(flow: &Flow) -> (Unit, Unit) {
    match (flow.src.mem, flow.dst.mem) {
        (MemKind::Reg, _) => (flow.dst.unit, flow.dst.unit),
        (_, MemKind::Reg) => (flow.src.unit, flow.src.unit),
        _ => (flow.src.unit, flow.dst.unit),
    }
}

/// Bytes of all arrays of a flow.
fn footprint(flow: &Flow) -> u64 {
    (flow.bytes.as_f64() * arrays(flow)) as u64
}

/// `copy-memcpy, 1 thread, 1GiB`.
pub(crate) fn stream_name(flow: &Flow) -> String {
    match &flow.by {
        Mover::Cpu { work, threads, .. } => {
            format!("{work}, {}, {}", crate::fmt::threads(*threads), flow.bytes)
        }
        other => other.kind().to_owned(),
    }
}

/// Whether every planned case has an outcome and the run was not stopped.
pub(crate) fn complete(journal: &Journal) -> bool {
    journal.partial.is_empty() && journal.is_complete()
}
