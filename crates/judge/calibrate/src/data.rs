//! The rates and times of paths and sets of flows in the records of runs.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::PathKey;
use pathline_flow::routes::RouteTable;
use pathline_schema::{
    Cadence, Case, CaseTimes, Flow, Journal, LinkEnd, MeasuredCase, MemKind, RunBegin,
};
use pathline_schema::{CaseOutcome, FlowSeries, TimerKind, Topology, Unit, WorldKind};
use pathline_stats::{MedianInterval, SeriesSummary, ascending, interpolated, median_interval};

use crate::model::ModelFlow;

/// A run and its name in messages.
#[derive(Debug, Clone)]
pub struct NamedRun {
    /// Its file or folder.
    pub name: String,
    /// Its records.
    pub journal: Journal,
}

/// Why no twin can be fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalibrateError {
    /// No run was given.
    #[error("no run to calibrate from; expected the folder of at least one run of this node")]
    NoRun,
    /// Two runs of different nodes.
    #[error("{first} and {second} are not runs of one node: {why}; calibrate each by itself")]
    OtherNode {
        /// One run.
        first: String,
        /// The other.
        second: String,
        /// Their difference.
        why: String,
    },
    /// No flow was measured alone.
    #[error(
        "{name} has no path that was measured alone ({left_out}); expected copies of one flow, as \
         `pathline run contention` measures them"
    )]
    NoPaths {
        /// The runs.
        name: String,
        /// The cases of the runs instead.
        left_out: String,
    },
}

/// The ends of a path: the class for groups of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathEnds {
    /// From a NUMA domain into a GPU.
    In {
        /// The NUMA domain.
        numa: u32,
        /// The GPU.
        gpu: u32,
    },
    /// From a GPU to a NUMA domain.
    Out {
        /// The GPU.
        gpu: u32,
        /// The NUMA domain.
        numa: u32,
    },
    /// From GPU to GPU.
    Peer {
        /// The GPU that is read.
        src: u32,
        /// The GPU that is written.
        dst: u32,
    },
    /// Inside one GPU, or between NUMA domains.
    Within,
}

/// A path and its measured rate.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPath {
    /// Its key.
    pub key: PathKey,
    /// Its ends.
    pub ends: PathEnds,
    /// Rate of its largest payload without the start time, GB/s.
    pub gbs: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Time before the first byte, if known from several sizes.
    pub start_ns: Option<f64>,
    /// Payloads of a repetition that were measured alone; empty if it was only measured together
    /// with others, and `gbs` is then the highest rate seen.
    pub sizes: Vec<u64>,
}

impl MeasuredPath {
    /// Whether it was measured alone.
    pub fn alone(&self) -> bool {
        !self.sizes.is_empty()
    }
}

/// Flows that were measured at once.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationSet {
    /// The case.
    pub case: Case,
    /// Its flows, timed ones first.
    pub flows: Vec<ModelFlow>,
    /// Median end of each timed flow, ns. With a choice in a queue, of the samples with the most
    /// common order.
    pub ends: Vec<f64>,
    /// Median over the samples of the end of the last flow, ns.
    pub total: f64,
    /// Ends of each timed flow in each sample, ns.
    pub samples: Vec<Vec<f64>>,
    /// Relative spread of one sample about its median (1.48 times the median deviation).
    pub noise: f64,
}

impl CalibrationSet {
    /// Payload of the timed flows.
    pub fn payload(&self) -> f64 {
        self.flows.iter().filter(|j| !j.background).map(ModelFlow::payload).sum()
    }
}

/// The data of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationData {
    /// Names of the runs.
    pub runs: Vec<String>,
    /// The begin record of the first run.
    pub begin: RunBegin,
    /// The node.
    pub topology: Topology,
    /// Paths, in key order.
    pub paths: Vec<MeasuredPath>,
    /// Sets of two flows or more.
    pub sets: Vec<CalibrationSet>,
    /// Number of cases without rate information, by reason.
    pub left_out: BTreeMap<String, usize>,
    /// Warnings about the runs themselves.
    pub warnings: Vec<String>,
}

/// Times of a repetition of lone paths, ns, by size.
type SoloTimes = BTreeMap<PathKey, BTreeMap<u64, CaseTimes>>;

/// Samples of a case with the same repetitions.
type PooledSamples = BTreeMap<(String, u64), (Case, Vec<FlowSeries>)>;

impl CalibrationData {
    /// Extracts the data from the records.
    ///
    /// # Errors
    /// No run, runs of different nodes, or no path that was measured alone.
    pub fn of(runs: &[NamedRun]) -> Result<Self, CalibrateError> {
        let Some(first) = runs.first() else { return Err(CalibrateError::NoRun) };
        let mut data = Self {
            runs: runs.iter().map(|r| r.name.clone()).collect(),
            begin: first.journal.begin.clone(),
            topology: first.journal.topology.clone(),
            paths: Vec::new(),
            sets: Vec::new(),
            left_out: BTreeMap::new(),
            warnings: Vec::new(),
        };
        let mut alone = SoloTimes::new();
        let mut tiny = SoloTimes::new();
        let mut together = Vec::new();
        for run in runs {
            if let Some(why) = differs(&first.journal, &run.journal) {
                let (first, second) = (first.name.clone(), run.name.clone());
                return Err(CalibrateError::OtherNode { first, second, why });
            }
            data.warn_about(run);
            for (case, series) in data.pool(run).into_values() {
                let alone = if case.cadence == Cadence::Isolated { &mut tiny } else { &mut alone };
                match (case.timed.as_slice(), series.as_slice()) {
                    ([flow], [series]) if case.background.is_empty() => {
                        let reps = series.reps.max(1) as f64;
                        let times = CaseTimes::slowest_flow(std::slice::from_ref(series));
                        let sizes = alone.entry(PathKey::of(flow)).or_default();
                        let all = sizes.entry(flow.bytes.0).or_default();
                        all.ns.extend(times.ns.iter().map(|ns| ns / reps));
                        all.visits.extend(times.visits);
                    }
                    _ => together.push((case, series)),
                }
            }
        }
        if alone.is_empty() {
            let left_out = data.left_out.iter().map(|(why, n)| format!("{n} cases: {why}"));
            let left_out = left_out.collect::<Vec<_>>().join("; ");
            let left_out = if left_out.is_empty() { "it has no case".into() } else { left_out };
            return Err(CalibrateError::NoPaths { name: data.runs.join(", "), left_out });
        }
        data.add_paths(&alone, &tiny, &together);
        data.add_sets(&together);
        Ok(data)
    }

    /// The index of a path.
    pub fn path(&self, key: PathKey) -> Option<usize> {
        self.paths.binary_search_by_key(&key, |p| p.key).ok()
    }

    fn warn_about(&mut self, run: &NamedRun) {
        let journal = &run.journal;
        let unfinished = journal.partial.len();
        if journal.torn || !journal.is_complete() {
            self.warnings.push(format!(
                "{} was cut short ({unfinished} cases unfinished): their results are unknown",
                run.name
            ));
        }
        for broken in &journal.broken {
            self.warnings.push(format!("{}: {broken}; its case is missing here", run.name));
        }
    }

    fn leave_out(&mut self, why: &str) {
        *self.left_out.entry(why.to_owned()).or_default() += 1;
    }

    /// Cases of a run with rates; samples of equal cases are merged.
    fn pool(&mut self, run: &NamedRun) -> PooledSamples {
        let mut pooled = PooledSamples::new();
        for outcome in &run.journal.outcomes {
            match outcome {
                CaseOutcome::Skipped(_) => self.leave_out("skipped"),
                CaseOutcome::Faulted(_) => self.leave_out("failed"),
                CaseOutcome::Measured(m) => match unusable(m) {
                    Some(why) => self.leave_out(why),
                    None => {
                        let reps = m.series.first().map_or(1, |s| s.reps);
                        let key = (m.case.to_string(), reps);
                        pooled.insert(key, (m.case.clone(), m.series.clone()));
                    }
                },
            }
        }
        pooled
    }

    fn add_paths(
        &mut self,
        alone: &SoloTimes,
        tiny: &SoloTimes,
        together: &[(Case, Vec<FlowSeries>)],
    ) {
        let concurrent = together.iter().flat_map(|(case, _)| case.flows().map(PathKey::of));
        let keys: BTreeSet<PathKey> = alone.keys().copied().chain(concurrent).collect();
        for key in keys {
            let path = match alone.get(&key) {
                Some(sizes) => {
                    // A single small copy shows its start time where sizes do not.
                    let smallest = tiny.get(&key).and_then(|t| t.first_key_value());
                    let mut sizes = sizes.clone();
                    if let (Some((&bytes, times)), 1) = (smallest, sizes.len()) {
                        sizes.entry(bytes).or_insert_with(|| times.clone());
                    }
                    MeasuredPath::alone_at(key, &sizes)
                }
                None => MeasuredPath::from_concurrent(key, together),
            };
            self.paths.extend(path);
        }
    }

    fn add_sets(&mut self, together: &[(Case, Vec<FlowSeries>)]) {
        for (case, series) in together {
            let flow = |(i, flow): (usize, &Flow)| {
                Some(ModelFlow {
                    path: self.path(PathKey::of(flow))?,
                    bytes: flow.bytes.as_f64(),
                    reps: series.first().map_or(1, |s| s.reps.max(1)),
                    background: i >= case.timed.len(),
                    turn: 0,
                })
            };
            let Some(flows) = case.flows().enumerate().map(flow).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let samples: Vec<Vec<f64>> = series.iter().map(|s| s.samples_ns.clone()).collect();
            let lasts = lasts(&samples);
            let Some(total) = SeriesSummary::of(&lasts) else { continue };
            self.sets.push(CalibrationSet {
                case: case.clone(),
                flows,
                ends: samples.iter().map(|s| median(s)).collect(),
                total: total.median,
                samples,
                noise: 1.4826 * total.mad / total.median,
            });
        }
    }
}

/// The median of times with its interval; with fewer than 6, with minimum and maximum.
fn interval(times: &CaseTimes) -> Option<MedianInterval> {
    median_interval(&times.ns, &times.visits).or_else(|| {
        let s = SeriesSummary::of(&times.ns)?;
        Some(MedianInterval { median: s.median, low: s.min, high: s.max })
    })
}

/// The end of the last flow in each sample.
pub(crate) fn lasts(samples: &[Vec<f64>]) -> Vec<f64> {
    let n = samples.iter().map(Vec::len).min().unwrap_or(0);
    let last = |k: usize| samples.iter().filter_map(|s| s.get(k)).copied().fold(0.0, f64::max);
    (0..n).map(last).collect()
}

/// The median; 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A quantile of the finite values by linear interpolation; 0 without values.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let finite = ascending(values.iter().copied().filter(|v| v.is_finite()));
    interpolated(&finite, q).unwrap_or(0.0)
}

/// Why a case has no rate information; `None` if it has.
fn unusable(m: &MeasuredCase) -> Option<&'static str> {
    let of = |flow: &Flow| {
        let effect = flow.by.effect(flow.bytes);
        if flow.by.facts().not_fitted.is_some() {
            flow.by.facts().not_fitted
        } else if flow.by.is_chase() {
            Some("chains of loads, which have no rate")
        } else if effect.reads.0 == 0 && effect.writes.0 == 0 {
            Some("arithmetic")
        } else {
            let managed = [flow.src.mem, flow.dst.mem].contains(&MemKind::Managed);
            managed.then_some("managed memory")
        }
    };
    if let Some(why) = m.case.flows().find_map(of) {
        return Some(why);
    }
    if m.case.cadence == Cadence::Isolated && !is_start_time(m) {
        return Some("one operation at a time, with what the host adds");
    }
    let bad = |s: &FlowSeries| {
        s.samples_ns.is_empty() || s.samples_ns.iter().any(|t| !t.is_finite() || *t <= 0.0)
    };
    if m.series.len() != m.case.timed.len() || m.series.iter().any(bad) {
        return Some("no usable sample");
    }
    None
}

/// The largest copy whose time is its start time.
const SMALL: u64 = 64 << 10;

/// Whether a case of one operation at a time is a small copy timed by the GPU.
fn is_start_time(m: &MeasuredCase) -> bool {
    let [flow] = m.case.timed.as_slice() else { return false };
    let timed = |s: &FlowSeries| s.timer == TimerKind::DeviceEvents;
    m.case.background.is_empty() && flow.bytes.0 <= SMALL && m.series.iter().all(timed)
}

/// The difference between the nodes of two journals, if any.
fn differs(a: &Journal, b: &Journal) -> Option<String> {
    let world = |w: &WorldKind| match w {
        WorldKind::Real => "hardware".to_owned(),
        WorldKind::Simulated(name) => format!("the model {name}"),
    };
    if a.begin.world != b.begin.world {
        return Some(format!("{} and {}", world(&a.begin.world), world(&b.begin.world)));
    }
    let gpus = |j: &Journal| -> Vec<(u32, String)> {
        j.topology.gpus.iter().map(|g| (g.index, g.name.clone())).collect()
    };
    if gpus(a) != gpus(b) {
        let gpus_of = |j: &Journal| match j.topology.gpus.first() {
            Some(gpu) => format!("{} x {}", j.topology.gpus.len(), gpu.name),
            None => "no GPU".to_owned(),
        };
        return Some(format!("{} and {}", gpus_of(a), gpus_of(b)));
    }
    let domains = |j: &Journal| -> Vec<u32> { j.topology.numa.iter().map(|n| n.id).collect() };
    if domains(a) != domains(b) {
        return Some(format!("{} and {} NUMA domains", domains(a).len(), domains(b).len()));
    }
    (a.topology.host.cpu_model != b.topology.host.cpu_model)
        .then(|| format!("{:?} and {:?}", a.topology.host.cpu_model, b.topology.host.cpu_model))
}

/// The ends of a path.
pub(crate) fn ends(key: PathKey) -> PathEnds {
    match (key.src.unit, key.dst.unit) {
        (Unit::Numa(numa), Unit::Gpu(gpu)) => PathEnds::In { numa, gpu },
        (Unit::Gpu(gpu), Unit::Numa(numa)) => PathEnds::Out { gpu, numa },
        (Unit::Gpu(src), Unit::Gpu(dst)) if src != dst => PathEnds::Peer { src, dst },
        _ => PathEnds::Within,
    }
}

/// Minimum ratio of the largest to the smallest payload to compute a start time.
const MIN_SIZE_RATIO: f64 = 8.0;

impl MeasuredPath {
    /// From times of a repetition by size. The rate is that of the largest; the time of the
    /// smallest beyond its bytes at that rate is the start. Sizes between are not used: on real
    /// machines they do not lie on one line.
    fn alone_at(key: PathKey, sizes: &BTreeMap<u64, CaseTimes>) -> Option<Self> {
        let of = |(&bytes, times): (&u64, &CaseTimes)| Some((bytes as f64, interval(times)?));
        let (small, first) = sizes.first_key_value().and_then(of)?;
        let (large, last) = sizes.last_key_value().and_then(of)?;
        let mut start_ns = None;
        if large >= MIN_SIZE_RATIO * small {
            // first = a + small / b and last = a + large / b.
            let per_byte = (last.median - first.median) / (large - small);
            start_ns = Some((first.median - small * per_byte).clamp(0.0, first.median));
        }
        let start = start_ns.unwrap_or(0.0);
        let rate = |time: f64| large / (time - start).max(time * 1e-3);
        Some(Self {
            key,
            ends: ends(key),
            gbs: rate(last.median),
            low: rate(last.high),
            high: rate(last.low.max(last.median * 0.5)),
            start_ns,
            sizes: sizes.keys().copied().collect(),
        })
    }

    /// A path that was only measured together with others: the highest rate seen.
    fn from_concurrent(key: PathKey, together: &[(Case, Vec<FlowSeries>)]) -> Option<Self> {
        let rates = together.iter().flat_map(|(case, series)| {
            let of = case.timed.iter().zip(series).filter(|(f, _)| PathKey::of(f) == key);
            of.map(|(_, s)| s.moved_bytes.as_f64() / median(&s.samples_ns)).collect::<Vec<_>>()
        });
        let gbs = rates.fold(0.0, f64::max);
        (gbs > 0.0).then(|| Self {
            key,
            ends: ends(key),
            gbs,
            low: gbs,
            high: gbs,
            start_ns: None,
            sizes: Vec::new(),
        })
    }
}

impl CalibrationData {
    /// Number of links of each path between GPUs; 1 if unknown.
    pub(crate) fn hops(&self) -> Vec<u32> {
        let routes = RouteTable::of(&self.topology);
        let hops = |p: &MeasuredPath| match p.ends {
            PathEnds::Peer { src, dst } => {
                routes.hops(LinkEnd::Gpu(src), LinkEnd::Gpu(dst)).unwrap_or(1)
            }
            _ => 1,
        };
        self.paths.iter().map(hops).collect()
    }
}
