//! The engine: binds, calibrates, warms, samples and verifies the cases of a group in turn.

mod calibration;
mod comparison;
#[cfg(test)]
mod tests;
mod visits;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use pathline_hal::{CallError, CallResult, Machine, TeamId, ThreadTeam, pattern};
use pathline_schema::{
    Bytes, Case, CaseTimes, ComparedBlocks, Conditions, CpuSet, FaultedCase, Flow, FlowSeries,
    GpuReadings, JournalRecord, MeasuredCase, Mover, Ns, Place, Rank, RunSettings, SampledCase,
    Severity, SkippedCase, StopInfo, StopReason, TimerKind, Unit,
};
use pathline_stats::median_interval;

use crate::bind::bind;
use crate::known_reps::KnownReps;
use crate::lane::{BoundLane, LaneSample, MAX_REPS};
use crate::message_lanes;
use crate::needs;
use crate::plan::PlannedCase;
use crate::pool::{self, BufferPool};
use crate::start::StartGates;
use crate::task::{CaseTask, EventSink, InterruptCheck, TaskEvent, TaskStep};
use crate::warm_up::WarmUnits;
use crate::watch::GpuWatch;

/// Settings of a run without options, with `memory` for buffers.
pub fn default_settings(memory: Bytes) -> RunSettings {
    RunSettings { memory, ..RunSettings::default() }
}

/// Minimum new samples for a record of unfinished cases after the first visit.
const MIN_NEW_SAMPLES: usize = 4;
/// An operation this long is timed alone: an empty pair of events, 3 us, is 0.3 % of it.
const LONG_ALONE: Ns = Ns(1_000_000.0);
/// Minimum duration of the fewer operations of a difference: NVIDIA's events have a grid of 32 ns, 0.03 %.
const DIFFERENCE: Ns = Ns(100_000.0);
/// Retries of a difference that is not above zero.
const DIFFERENCE_TRIES: u32 = 4;
/// Minimum time for which a reading of the machine's state is valid.
const STATE_KEEPS: Ns = Ns::ms(200.0);
/// A reading stays valid for at least this multiple of the time it took, which limits readings to 0.5 % of a
/// run.
const STATE_COSTS: f64 = 200.0;
/// Samples this long are unaffected by a state reading: refetching the 16 MiB that it streams takes 1 ms.
const NOTICES_CACHES: Ns = Ns::ms(20.0);
/// Ends and mover of a flow, independent of size.
type CopyPath = (Place, Place, Mover);

fn copy_path(flow: &Flow) -> CopyPath {
    (flow.src, flow.dst, flow.by)
}

/// Bytes of each GPU's memory, and of the host's.
type ByGpu = BTreeMap<Option<u32>, u64>;

/// The state that all groups of a run share.
pub(crate) struct CaseEngine<'a> {
    machine: &'a Machine,
    pool: BufferPool<'a>,
    settings: RunSettings,
    /// Samples that cases of this task already have.
    carried: BTreeMap<Case, SampledCase>,
    /// The last reading of the machine's state, and until when it is valid.
    state: Option<(Ns, Ns, Conditions)>,
    /// Whether a reading has streamed through the caches since the last sample.
    caches_spoilt: Cell<bool>,
    /// Reads the state of GPUs.
    watch: GpuWatch<'a>,
    /// Engines and teams that this process has warmed up.
    warm_units: WarmUnits,
    /// Repetitions found by cases of this process.
    known_reps: KnownReps,
    /// Number of the case sampled last.
    sampled_last: u64,
    /// Number of cases bound so far.
    bound: u64,
    /// Paths with every byte compared.
    verified: BTreeSet<CopyPath>,
}

/// A case during sampling.
struct RunningCase<'m> {
    entry: PlannedCase,
    /// Its number in this process.
    number: u64,
    lanes: Vec<Box<dyn BoundLane + 'm>>,
    /// Number of timed lanes; the rest are background.
    timed: usize,
    reps: u64,
    background_reps: u64,
    /// Whether a sample is the time of additional operations, see [`CaseEngine::difference`].
    differs: bool,
    series: Vec<FlowSeries>,
    /// Samples of each series that the journal already has.
    written: usize,
    /// Visits of each series that the journal already has.
    written_visits: usize,
    warmup: u32,
    /// Time spent on warming up units that were used for the first time.
    load: Ns,
    spent: Ns,
    /// When the next visit may begin.
    due: Ns,
    /// Its visits begin at a random moment of one such stretch of time each.
    stretch: Ns,
    before: Conditions,
    gpus: BTreeMap<Unit, GpuReadings>,
    /// Seed of the compared blocks, if not every byte is compared.
    sampled: Option<u64>,
}

impl<'a> CaseEngine<'a> {
    pub(crate) fn new(machine: &'a Machine, settings: RunSettings) -> Self {
        let (pool, carried) = (BufferPool::new(machine), BTreeMap::new());
        let watch = GpuWatch::new(machine);
        Self {
            machine,
            pool,
            settings,
            carried,
            state: None,
            caches_spoilt: Cell::new(false),
            watch,
            warm_units: WarmUnits::default(),
            known_reps: KnownReps::default(),
            sampled_last: 0,
            bound: 0,
            verified: BTreeSet::new(),
        }
    }

    /// Measures cases in turn. The error is the sink's; a case's own error is its outcome. Ends
    /// early, with the samples so far, when `interrupt` returns a reason.
    pub(crate) fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<()> {
        self.carried = task.carried.iter().map(|s| (s.case.clone(), s.clone())).collect();
        let mut waiting = task.waiting(self.settings.time_limit > Ns::ZERO);
        while !waiting.is_empty() && interrupt().is_none() {
            let batch = self.take_batch(&mut waiting);
            let short = self.measure_batch(batch, interrupt, sink)?;
            // Alone, a case can use all memory.
            for entry in short {
                self.measure_alone(entry, interrupt, sink)?;
            }
        }
        Ok(())
    }

    /// Takes as many cases as fit into memory together, at least one.
    fn take_batch(&self, waiting: &mut VecDeque<PlannedCase>) -> Vec<PlannedCase> {
        let mut batch = Vec::new();
        let (mut buffers, mut between) = (BTreeMap::new(), BTreeMap::new());
        while let Some(entry) = waiting.front() {
            let mut with = buffers.clone();
            with.extend(pool::buffers(&entry.case));
            let mut ranks = between.clone();
            add_ranks(&mut ranks, entry);
            // A run that may be cut has a figure once its first case has ended: alone.
            let alone = self.bound == 0 && self.settings.time_limit > Ns::ZERO;
            let fit = !alone && fits(self.machine, self.settings.memory, &with, &ranks);
            if !batch.is_empty() && !fit {
                break;
            }
            (buffers, between) = (with, ranks);
            batch.extend(waiting.pop_front());
        }
        batch
    }

    /// Measures cases that fit together. Returns the cases for which memory ran out nevertheless,
    /// since other programs use the machine too.
    fn measure_batch(
        &mut self,
        batch: Vec<PlannedCase>,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<Vec<PlannedCase>> {
        let needed: BTreeMap<_, _> = batch.iter().flat_map(|e| pool::buffers(&e.case)).collect();
        let mut ranks = ByGpu::new();
        batch.iter().for_each(|entry| add_ranks(&mut ranks, entry));
        let (machine, memory) = (self.machine, self.settings.memory);
        self.pool.begin(&needed, |buffers| fits(machine, memory, buffers, &ranks));
        let (mut open, mut short) = (Vec::new(), Vec::new());
        for entry in batch {
            now(&entry, TaskStep::Bind, sink)?;
            if interrupt().is_some() {
                break;
            }
            match self.bind(&entry) {
                Ok(case) => open.extend(self.take_turn(case, interrupt, sink)?),
                Err(error) if error.severity == Severity::Exhausted => short.push(entry),
                Err(error) => failed(entry, &error, sink)?,
            }
        }
        self.take_turns(open, interrupt, sink)?;
        Ok(short)
    }

    /// Measures one case with no other buffers in memory.
    fn measure_alone(
        &mut self,
        entry: PlannedCase,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<()> {
        now(&entry, TaskStep::Bind, sink)?;
        if interrupt().is_some() {
            return Ok(());
        }
        self.pool.free_all();
        match self.bind(&entry) {
            Ok(case) => {
                let open = self.take_turn(case, interrupt, sink)?;
                self.take_turns(open.into_iter().collect(), interrupt, sink)
            }
            Err(error) => failed(entry, &error, sink),
        }
    }

    /// Visits a case, unless the run is to end; returns the case if it needs another visit.
    fn take_turn(
        &mut self,
        mut case: RunningCase<'a>,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<Option<RunningCase<'a>>> {
        now(&case.entry, TaskStep::Visit, sink)?;
        // Its samples are in the journal, and a resumed run continues from there. Finishing it now
        // would compare its bytes first: seconds, for gigabytes of every open case.
        if interrupt().is_some() {
            if case.samples() > case.written {
                sink(TaskEvent::Record(JournalRecord::Sampled(case.unwritten())))?;
            }
            return Ok(None);
        }
        match self.visit_to_compare(&mut case) {
            Err(error) => failed(case.entry, &error, sink).map(|()| None),
            Ok(Some(reason)) => self.finish(case, reason, sink).map(|()| None),
            Ok(None) => {
                let more = case.samples() - case.written.min(case.samples());
                if case.written == 0 || more >= MIN_NEW_SAMPLES {
                    sink(TaskEvent::Record(JournalRecord::Sampled(case.unwritten())))?;
                }
                Ok(Some(case))
            }
        }
    }

    /// Binds, calibrates and warms a case.
    fn bind(&mut self, entry: &PlannedCase) -> CallResult<RunningCase<'a>> {
        let before = self.conditions();
        let lanes = self.lanes(&entry.case)?;
        self.bound += 1;
        let mut case = RunningCase {
            number: self.bound,
            timed: entry.case.timed.len(),
            entry: entry.clone(),
            lanes,
            reps: 1,
            background_reps: 1,
            differs: false,
            series: Vec::new(),
            written: 0,
            written_visits: 0,
            warmup: 0,
            load: Ns::ZERO,
            spent: Ns::ZERO,
            due: Ns::ZERO,
            stretch: Ns::ZERO,
            before,
            gpus: self.watch.before(&entry.case),
            sampled: None,
        };
        let known = |flow: &Flow| self.verified.contains(&copy_path(flow));
        if case.timed > 1 && entry.case.timed.iter().all(known) && case.has_blocks() {
            case.sampled = Some(pattern::word(self.settings.seed, case.number));
        }
        // Allocation and first touch are charged to no case; only repeated work counts.
        let bound = self.machine.clock.now();
        let (sample, taken) = self.calibrate(&mut case)?;
        self.load_units(&mut case, bound)?;
        let sample = self.warm(&mut case, sample, taken)?;
        // Repetitions from another case, or from before a clock rose, may be too few here.
        if sample.0 < self.shortest(&case) / 2.0 && case.reps < case.most_timed() {
            let sample = self.find_reps(&mut case)? * case.reps as f64;
            self.warm(&mut case, sample, false)?;
        }
        self.find_difference(&mut case, sample);
        case.spent = self.since(bound, 0.0) - case.load;
        self.sampled_last = case.number;
        case.open_series();
        for (nth, series) in case.series.iter_mut().enumerate() {
            series.huge_share = self.pool.huge_share(&series.flow, nth);
            series.pages = self.pool.page_domains(&series.flow, nth);
        }
        if let Some(earlier) = self.carried.get(&entry.case) {
            case.carry(earlier);
        }
        self.spread_visits(&mut case);
        Ok(case)
    }

    /// A lane for each flow of a case.
    fn lanes(&mut self, case: &Case) -> CallResult<Vec<Box<dyn BoundLane + 'a>>> {
        let mut lanes: Vec<Box<dyn BoundLane + 'a>> = Vec::new();
        let of_ranks = message_lanes::is_of_ranks(self.machine, case);
        let here = |f: &Flow| f.by.wire().is_none() && !(of_ranks && case.is_rank_io());
        for (nth, _) in case.flows().enumerate().filter(|(_, f)| here(f)) {
            let teams = lanes.iter().filter_map(|lane| lane.team()).map(ThreadTeam::id);
            let others: Vec<TeamId> = teams.collect();
            lanes.push(bind(&mut self.pool, case, nth, &others)?);
        }
        if of_ranks {
            // Of cases with messages, the plan allows only ones without other flows or with
            // messages as background: the message flows come first.
            let cpus = lanes.iter().filter_map(|lane| lane.team()).map(ThreadTeam::cpus);
            let cpus: CpuSet = CpuSet::new(cpus.flat_map(|c| c.as_slice().to_vec()));
            lanes.extend(message_lanes::bind(self.machine, case, &cpus)?);
        }
        Ok(lanes)
    }

    /// The machine's state, read again if the last reading has expired: a reading uses memory and
    /// cores for milliseconds, many times the duration of a short case.
    fn conditions(&mut self) -> Conditions {
        let now = self.machine.clock.now();
        let mut state = match &self.state {
            Some((read, until, state)) if (*read..*until).contains(&now) => state.clone(),
            _ => {
                let state = self.machine.host.conditions();
                let read = self.machine.clock.now();
                let keeps = Ns(((read - now) * STATE_COSTS).0.max(STATE_KEEPS.0));
                self.state = Some((read, read + keeps, state.clone()));
                self.caches_spoilt.set(!state.0.is_empty());
                state
            }
        };
        // Memory and core probes of a busy host take long and are rare there, but its CPU use must
        // be known.
        state.0.extend(self.machine.host.cpu_use().0);
        state
    }

    /// The time of a case, warm-up included.
    fn budget(&self, case: &RunningCase<'_>) -> Ns {
        let budgets = case.lanes.iter().map(|lane| lane.budgets()).reduce(f64::max).unwrap_or(1.0);
        case.entry.budget.unwrap_or(self.settings.case_budget * budgets)
    }

    /// Takes one sample: queues all operations behind gates and releases them together.
    fn sample(&self, case: &mut RunningCase<'_>) -> CallResult<Vec<LaneSample>> {
        self.caches_spoilt.set(false);
        sample_while(self.machine, case, &mut || ())
    }

    /// Chooses how many operations to compare with twice as many, if one operation is so short that
    /// an empty pair of events is a notable part of its time: 2.8 of 5.0 us for a copy of 16 B
    /// between H200s.
    fn find_difference(&self, case: &mut RunningCase<'_>, one: Ns) {
        let (timed, background) = case.lanes.split_at(case.timed);
        let adds_up = background.is_empty() && timed.iter().all(|lane| lane.adds_up());
        if !adds_up || one >= LONG_ALONE {
            return;
        }
        let most = timed.iter().map(|lane| lane.most()).fold(MAX_REPS, u64::min);
        let wanted = (DIFFERENCE.0 / one.0.max(1.0)).ceil() as u64;
        case.reps = wanted.min(most / 2).max(1);
        case.differs = true;
    }

    /// A sample without the cost of starting and timing: the time of twice the operations less the
    /// time of half of them. Also returns the time of the fewer ones.
    fn difference(&self, case: &mut RunningCase<'_>) -> CallResult<(Vec<LaneSample>, Vec<Ns>)> {
        // Other load on the machine may make the fewer operations take longer.
        for _ in 0..DIFFERENCE_TRIES {
            let fewer = self.sample(case)?;
            let twice = case.reps * 2;
            let more = once(self.machine, case, twice, &mut || ())?;
            let longer = more.iter().zip(&fewer).all(|(more, fewer)| more.elapsed > fewer.elapsed);
            if longer {
                let start = fewer.iter().map(|lap| lap.elapsed).collect();
                let rest = |(more, fewer): (&LaneSample, &LaneSample)| {
                    LaneSample::of(more.elapsed - fewer.elapsed, fewer.steps)
                };
                return Ok((more.iter().zip(&fewer).map(rest).collect(), start));
            }
        }
        let what = format!("{} operations", case.reps * 2);
        let why = format!("twice the operations took no longer, {DIFFERENCE_TRIES} times");
        Err(CallError::new(Severity::Transient, "time", what, why)
            .or_try("something else may use this GPU; run the case again"))
    }

    /// Verifies the case and writes its record.
    fn finish(
        &mut self,
        mut case: RunningCase<'_>,
        reason: StopReason,
        sink: EventSink<'_>,
    ) -> io::Result<()> {
        now(&case.entry, TaskStep::Verify, sink)?;
        let verdict = match self.verify(&mut case) {
            Ok(verdict) => verdict,
            Err(error) => return failed(case.entry, &error, sink),
        };
        for (series, lane) in case.series.iter_mut().zip(&mut case.lanes) {
            match lane.close() {
                Ok(calls) => series.setup.extend(calls),
                Err(error) => return failed(case.entry, &error, sink),
            }
        }
        self.watch.after(&mut case.gpus);
        for note in self.watch.new_notes() {
            sink(TaskEvent::Record(JournalRecord::Note(note)))?;
        }
        let compared = case.sampled.map(|seed| ComparedBlocks {
            bytes: Bytes(case.blocks(seed).into_iter().flatten().map(|(_, len)| len).sum()),
            seed,
        });
        let stop = StopInfo {
            reason,
            warmup: case.warmup,
            half_width: case.half_width(),
            elapsed: case.spent,
            load: case.load,
        };
        let measured = MeasuredCase {
            case: case.entry.case,
            suites: case.entry.suites,
            series: case.series,
            stop,
            verdict,
            compared,
            before: case.before,
            after: self.conditions(),
            env: BTreeMap::new(),
            gpus: case.gpus,
            origin: None,
        };
        sink(TaskEvent::Record(JournalRecord::Measured(Box::new(measured))))
    }

    /// Repetitions that last as long as reading the case's GPUs. `None` if nothing reads them, or
    /// no stream of theirs is busy while the host is free.
    fn reps_to_look(&self, case: &RunningCase<'_>) -> Option<u64> {
        let timed = || case.lanes.iter().take(case.timed).zip(&case.series);
        let each = timed()
            .filter(|(lane, _)| lane.timer() == TimerKind::DeviceEvents)
            .filter_map(|(_, s)| Some(s.samples_ns.last()? / s.reps.max(1) as f64))
            .reduce(f64::min)?;
        if case.gpus.is_empty() {
            return None;
        }
        let wanted = (self.watch.needs(case.gpus.len()).0 / each.max(1.0)).ceil().max(1.0) as u64;
        let most = timed().map(|(lane, _)| if lane.repeats() { lane.most() } else { 1 }).min()?;
        Some(wanted.min(most).max(1))
    }

    /// Takes a discarded sample during which the GPUs are read. A reading that took longer than the
    /// operations is dropped.
    fn look(&mut self, case: &mut RunningCase<'_>, reps: u64) -> CallResult<()> {
        let units: Vec<Unit> = case.gpus.keys().copied().collect();
        let mut read = None;
        let laps = once(self.machine, case, reps, &mut || read = Some(self.watch.now(&units)))?;
        let device =
            case.lanes.iter().zip(laps).filter(|(l, _)| l.timer() == TimerKind::DeviceEvents);
        let shortest = device.map(|(_, lap)| lap.elapsed.0).reduce(f64::min);
        if let (Some((states, took)), Some(shortest)) = (read, shortest)
            && took.0 < shortest
        {
            for (readings, state) in case.gpus.values_mut().zip(states) {
                readings.during = state;
            }
        }
        Ok(())
    }
}

/// Whether buffers of this process and of ranks fit into memory: `memory` of the host, and half of
/// each GPU's.
fn fits(
    machine: &Machine,
    memory: Bytes,
    buffers: &BTreeMap<pool::BufferKey, Bytes>,
    ranks: &ByGpu,
) -> bool {
    let mut used = ranks.clone();
    for (key, bytes) in buffers {
        let sum = used.entry(key.place.unit.gpu()).or_default();
        *sum = sum.saturating_add(bytes.0);
    }
    used.into_iter().all(|(gpu, bytes)| match gpu {
        None => bytes <= memory.0,
        Some(index) => {
            let gpu = machine.topology.gpus.iter().find(|g| g.index == index);
            let memory = gpu.map_or(0, |g| g.memory.0);
            memory == 0 || bytes <= memory / 2
        }
    })
}

/// Adds the memory that the ranks of a case hold outside this process.
fn add_ranks(used: &mut ByGpu, entry: &PlannedCase) {
    for flow in entry.case.flows() {
        let Some(wire) = flow.by.wire() else { continue };
        for (unit, bytes) in needs::of_wire(flow, wire) {
            let sum = used.entry(unit.gpu()).or_default();
            *sum = sum.saturating_add(bytes.0);
        }
    }
}

fn now(entry: &PlannedCase, step: TaskStep, sink: EventSink<'_>) -> io::Result<()> {
    sink(TaskEvent::StepStarted { case: entry.case.clone(), step })
}

/// The record of a failed case: a skip if it is not supported here, else a fault.
fn failed(entry: PlannedCase, error: &CallError, sink: EventSink<'_>) -> io::Result<()> {
    let PlannedCase { case, suites, .. } = entry;
    let (severity, ranks) = (error.severity, error.failed_ranks().to_vec());
    let error = error.to_string();
    sink(TaskEvent::Record(match severity {
        Severity::Unsupported | Severity::Exhausted => {
            JournalRecord::Skipped(SkippedCase { case, suites, why: error })
        }
        Severity::Transient | Severity::Sticky | Severity::Corrupt => {
            JournalRecord::Faulted(FaultedCase { case, suites, error, severity, ranks })
        }
    }))
}

/// Takes one sample; calls a function between its release and its end.
fn sample_while(
    machine: &Machine,
    case: &mut RunningCase<'_>,
    meanwhile: &mut dyn FnMut(),
) -> CallResult<Vec<LaneSample>> {
    for lane in &mut case.lanes {
        lane.prepare()?;
    }
    let mut starts = StartGates::new(machine, case.entry.case.flows())?;
    for (nth, (lane, gate)) in case.lanes.iter_mut().zip(starts.gates()).enumerate() {
        let reps = if nth < case.timed { case.reps } else { case.background_reps };
        lane.issue(gate, reps)?;
    }
    starts.release()?;
    meanwhile();
    let mut laps = wait_for_all(&mut case.lanes)?;
    starts.count_waits(&case.lanes, &mut laps)?;
    Ok(laps)
}

/// Waits for all lanes: for those first that advance only meanwhile. Samples are in the order of the lanes.
fn wait_for_all(lanes: &mut [Box<dyn BoundLane + '_>]) -> CallResult<Vec<LaneSample>> {
    let mut polled = Vec::new();
    for (nth, lane) in lanes.iter_mut().enumerate().filter(|(_, lane)| lane.is_polled()) {
        polled.push((nth, lane.wait()?));
    }
    let mut polled = polled.into_iter().peekable();
    let mut samples = Vec::with_capacity(lanes.len());
    for (nth, lane) in lanes.iter_mut().enumerate() {
        match polled.next_if(|(of, _)| *of == nth) {
            Some((_, sample)) => samples.push(sample),
            None => samples.push(lane.wait()?),
        }
    }
    Ok(samples)
}

/// Takes an unrecorded sample of `reps` repetitions, with a background to match.
fn once(
    machine: &Machine,
    case: &mut RunningCase<'_>,
    reps: u64,
    meanwhile: &mut dyn FnMut(),
) -> CallResult<Vec<LaneSample>> {
    let kept = (case.reps, case.background_reps);
    case.repeat(reps);
    let laps = sample_while(machine, case, meanwhile);
    (case.reps, case.background_reps) = kept;
    laps
}

impl RunningCase<'_> {
    /// Sets the repetitions of a sample; extends a background that would become too short.
    fn repeat(&mut self, reps: u64) {
        let most = self.lanes.iter().skip(self.timed).map(|l| l.most()).min().unwrap_or(1);
        let longer = (reps as f64 / self.reps.max(1) as f64).max(1.0);
        let wanted = (self.background_reps as f64 * longer).ceil() as u64;
        self.background_reps = wanted.min(most.max(self.background_reps));
        self.reps = reps;
    }

    fn samples(&self) -> usize {
        self.series.first().map_or(0, |s| s.samples_ns.len())
    }

    fn visits(&self) -> usize {
        self.series.first().map_or(0, |s| s.visits.len())
    }

    /// Duration of its last sample; zero before the first.
    fn last_sample(&self) -> Ns {
        let last = self.series.iter().filter_map(|s| s.samples_ns.last());
        Ns(last.copied().fold(0.0, f64::max))
    }

    /// Relative half width of the interval of the shown figure; 1 without an interval.
    fn half_width(&self) -> f64 {
        let times = CaseTimes::slowest_flow(&self.series);
        median_interval(&times.ns, &times.visits).map_or(1.0, |i| i.half_width_rel())
    }

    fn open_series(&mut self) {
        let reps = self.reps;
        let own_ranks = self.entry.case.is_rank_io();
        let flows = self.entry.case.timed.iter().zip(&self.lanes);
        let open = flows.map(|(flow, lane)| {
            let each = lane.payload().unwrap_or(flow.bytes).0.saturating_mul(lane.messages());
            FlowSeries {
                rank: if own_ranks { flow.src.rank } else { Rank(0) },
                engine: lane.engine(),
                cpus: lane.team().map(ThreadTeam::cpus).unwrap_or_default(),
                reps,
                steps: reps,
                moved_bytes: Bytes(each.saturating_mul(reps)),
                ..FlowSeries::new(*flow, lane.timer())
            }
        });
        self.series = open.collect();
    }

    /// Takes over the samples and repetitions of an interrupted run.
    fn carry(&mut self, earlier: &SampledCase) {
        let fits = earlier.series.len() == self.series.len()
            && earlier
                .series
                .iter()
                .zip(&self.series)
                .all(|(a, b)| a.timer == b.timer && a.start_ns.is_empty() != self.differs);
        if let (true, Some(first)) = (fits, earlier.series.first()) {
            self.repeat(first.reps);
            self.written = first.samples_ns.len();
            self.written_visits = first.visits.len();
            for (new, old) in self.series.iter_mut().zip(&earlier.series) {
                let cpus = old.cpus.union(&new.cpus);
                let (huge_share, pages) = (new.huge_share, std::mem::take(&mut new.pages));
                *new = FlowSeries { cpus, huge_share, pages, ..old.clone() };
            }
        }
    }

    /// The samples that the journal does not have yet.
    fn unwritten(&mut self) -> SampledCase {
        let all = self.samples();
        let from = std::mem::replace(&mut self.written, all);
        let visits = self.series.first().map_or(0, |s| s.visits.len());
        let from_visit = std::mem::replace(&mut self.written_visits, visits);
        let tail = |s: &FlowSeries| FlowSeries {
            samples_ns: s.samples_ns.iter().skip(from).copied().collect(),
            start_ns: s.start_ns.iter().skip(from).copied().collect(),
            visits: s.visits.iter().skip(from_visit).copied().collect(),
            by_rank: s
                .by_rank
                .iter()
                .map(|(&rank, all)| (rank, all.iter().skip(from).copied().collect()))
                .collect(),
            io: s.io.iter().skip(from).cloned().collect(),
            off_cpu_ns: s.off_cpu_ns.iter().skip(from).copied().collect(),
            ..s.clone()
        };
        SampledCase {
            case: self.entry.case.clone(),
            suites: self.entry.suites.clone(),
            series: self.series.iter().map(tail).collect(),
        }
    }
}
