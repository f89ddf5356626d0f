//! Records of a run. A journal is one JSON object a line, each a [`JournalRecord`].
//!
//! Raw samples are stored and derived numbers never are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Bytes, CallTally, Case, ConstantOrigin, CpuSet, Flow, GpuFacts, GpuReadings, IoReading, Ns,
    Rank, RankMember, Rate, StoreFacts, Topology, Unit, serde_as_text, words,
};

/// Version of the journal's format. It grows when an older reader would misread a newer file.
pub const SCHEMA_VERSION: u32 = 1;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "kebab-case")]
pub enum JournalRecord {
    /// First line of a run; again, where a run was resumed.
    Begin(Box<RunBegin>),
    /// The topology found before the first measurement.
    Topology(Box<Topology>),
    /// Samples of one visit to a case that is not finished yet. Superseded by the case's
    /// `MeasuredCase`, `Skipped` or `Faulted`; only a run that was cut ends with some.
    Sampled(SampledCase),
    /// A case that was measured to its stop.
    Measured(Box<MeasuredCase>),
    /// A case that cannot be measured here, and why.
    Skipped(SkippedCase),
    /// A case that failed.
    Faulted(FaultedCase),
    /// A warning about the run or the machine.
    Note(RunNote),
    /// Last line. A journal without it is a cut run.
    End(RunEnd),
}

/// Whether the figures come from hardware or from the model. Nothing mixes the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorldKind {
    /// Hardware.
    Real,
    /// The simulator, running this machine description; or stand-ins for vendor libraries, which are real
    /// processes and libraries over simulated devices.
    Simulated(String),
}

impl WorldKind {
    /// Name of the world of stand-in libraries.
    pub const STAND_INS: &str = "stub";

    /// Whether it is a model in virtual time, which has only what the model covers.
    pub fn is_model(&self) -> bool {
        matches!(self, Self::Simulated(name) if name != Self::STAND_INS)
    }
}

/// How a run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunBegin {
    /// Format of this file: [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Version of pathline.
    pub version: String,
    /// Hardware or model.
    pub world: WorldKind,
    /// Name of the host that ran it.
    pub host: String,
    /// The process that wrote it, on that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Which repeat of the run the records after this line belong to; 0 is the first.
    #[serde(default, skip_serializing_if = "is_first")]
    pub repeat: u32,
    /// When, RFC 3339 in UTC.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// SHA-256 of the text that describes a simulated machine, as `sha256sum machine.toml` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_sha256: Option<String>,
    /// Set environment variables that change the behaviour of libraries.
    pub env: BTreeMap<String, String>,
    /// Settings of the engine.
    pub settings: RunSettings,
    /// Overhead of the harness: an empty operation timed like any other, by timer.
    pub overhead_ns: BTreeMap<String, f64>,
    /// Facts of each GPU, read before anything is measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<Unit, GpuFacts>,
    /// The processes that measure together; none in a run of one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankMember>,
    /// The places for files that the run was given, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<StoreFacts>,
}

impl RunBegin {
    /// A run in this format of which nothing else is known.
    pub fn new(world: WorldKind) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            version: String::new(),
            world,
            host: String::new(),
            pid: None,
            repeat: 0,
            started: String::new(),
            command: Vec::new(),
            machine_sha256: None,
            env: BTreeMap::new(),
            settings: RunSettings::default(),
            overhead_ns: BTreeMap::new(),
            gpus: BTreeMap::new(),
            ranks: Vec::new(),
            stores: Vec::new(),
        }
    }
}

/// Settings of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Wanted half width of the 95 % interval of the median, relative: 0.01 is 1 %.
    pub precision: f64,
    /// Fewest samples of a case.
    pub min_samples: u32,
    /// Most samples of a case.
    pub max_samples: u32,
    /// Most time for one case, warm-up included.
    pub case_budget: Ns,
    /// Shortest sample: repetitions are added until one sample lasts this long.
    pub min_sample: Ns,
    /// Most time for the whole run; 0 is no limit.
    pub time_limit: Ns,
    /// Most host memory in use at once for buffers.
    pub memory: Bytes,
    /// Seed of what is drawn: the sets of suite concurrent; a simulated machine's spread of times and
    /// garbage in fresh memory.
    pub seed: u64,
    /// Standard deviation of the time of each operation of a simulated machine, relative, where one
    /// was asked for; 0.002 otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// Number of times that everything is measured, each time in new processes; at least 1.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub repeats: u32,
}

fn once() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_once(repeats: &u32) -> bool {
    *repeats == 1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(repeat: &u32) -> bool {
    *repeat == 0
}

impl Default for RunSettings {
    /// A run without options: 1 % precision, at most a quarter of a second a case, no memory yet.
    fn default() -> Self {
        Self {
            precision: 0.01,
            min_samples: 6,
            max_samples: 100,
            case_budget: Ns::ms(250.0),
            min_sample: Ns::us(500.0),
            time_limit: Ns::ZERO,
            memory: Bytes(0),
            seed: 1,
            noise: None,
            repeats: 1,
        }
    }
}

/// The clock that timed a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// The host's clock around issue and completion; the number that a synchronous call costs.
    Host,
    /// Device events on the stream of the flow.
    DeviceEvents,
    /// The earliest start to the latest end of the threads of a team.
    Threads,
}
words!(TimerKind, "timer", { Host => "host", DeviceEvents => "device-events", Threads => "threads" });
serde_as_text!(TimerKind);

/// Raw samples of one flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowSeries {
    /// The flow.
    pub flow: Flow,
    /// The rank that measured it.
    pub rank: Rank,
    /// With which clock.
    pub timer: TimerKind,
    /// The engine that really moved the bytes, where it is known: `copy engine`, `blit kernel`,
    /// `avx512-nt`.
    #[serde(default)]
    pub engine: String,
    /// CPUs that its threads were pinned to, in Linux's list form. Absent where it has no threads, and in
    /// older journals.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// Share of its `huge` memory that the kernel backed with huge pages, 0 to 1. Absent where all of it
    /// is, where the kernel does not say, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_share: Option<f64>,
    /// Pages of its `pinned-default` memory, or of memory that lies on another NUMA domain than its own, by the domain
    /// where they lie, of up to 256 that were looked at. Absent without such memory, where the kernel does not
    /// say, and in older journals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pages: BTreeMap<u32, u64>,
    /// Repetitions of the operation in one sample.
    pub reps: u64,
    /// Dependent steps in one sample: loads of a chain, pages touched, else operations.
    pub steps: u64,
    /// Payload delivered in one sample, in one direction.
    pub moved_bytes: Bytes,
    /// Duration of each sample. Where there is `start_ns`, what `reps` more operations take.
    pub samples_ns: Vec<f64>,
    /// Of each sample that is a difference: the duration of `reps` operations with all that starting and
    /// timing them adds. Twice as many took `start_ns + samples_ns`; `start_ns - samples_ns` is what is
    /// added. Empty where nothing was subtracted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start_ns: Vec<f64>,
    /// Number of samples of each visit, in order; the samples of a visit follow each other at once.
    /// Empty in older journals, whose visits had 4 samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visits: Vec<u32>,
    /// Longest time in each sample, ns, for which one of its threads was ready to run and had no CPU:
    /// preempted, stolen by the hypervisor, or started later than the first thread. Empty where no
    /// thread of the host was timed, and in older journals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_cpu_ns: Vec<u64>,
    /// Duration of each sample by each of several ranks that took part. The sample itself is the sum
    /// over repetitions of the latest rank's time, so it is no less than any of these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_rank: BTreeMap<Rank, Vec<f64>>,
    /// Records of each sample of I/O apart from its duration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<IoReading>,
    /// Calls before the first sample and after the last, by name: files opened, memory registered
    /// and let go.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub setup: BTreeMap<String, CallTally>,
}

impl FlowSeries {
    /// A series of rank 0 without a sample: one operation of one step, which moves nothing yet.
    pub fn new(flow: Flow, timer: TimerKind) -> Self {
        Self {
            flow,
            rank: Rank(0),
            timer,
            engine: String::new(),
            cpus: CpuSet::default(),
            huge_share: None,
            pages: BTreeMap::new(),
            reps: 1,
            steps: 1,
            moved_bytes: Bytes(0),
            samples_ns: Vec::new(),
            start_ns: Vec::new(),
            visits: Vec::new(),
            off_cpu_ns: Vec::new(),
            by_rank: BTreeMap::new(),
            io: Vec::new(),
            setup: BTreeMap::new(),
        }
    }

    /// Adds what samples that are added next record of time without a CPU. Samples before them that
    /// record none count as clean.
    pub fn extend_off_cpu(&mut self, off_cpu_ns: impl IntoIterator<Item = u64>) {
        let before = self.samples_ns.len();
        let mut new = off_cpu_ns.into_iter().peekable();
        if new.peek().is_some() {
            self.off_cpu_ns.resize(before, 0);
            self.off_cpu_ns.extend(new);
        }
    }

    /// The share of its `huge` memory that is in huge pages, if that is so low (below 95 %) that its figure
    /// is one of other memory.
    pub fn small_pages(&self) -> Option<f64> {
        self.huge_share.filter(|&share| share < 0.95)
    }
    /// Payload rate of each sample.
    pub fn rates(&self) -> impl Iterator<Item = Rate> + '_ {
        self.samples_ns.iter().map(|&ns| Rate::of(self.moved_bytes, Ns(ns)))
    }
    /// Time of one step in each sample.
    pub fn latencies(&self) -> impl Iterator<Item = Ns> + '_ {
        self.samples_ns.iter().map(|&ns| Ns(ns / self.steps.max(1) as f64))
    }
    /// What starting and timing added to each sample from which it was subtracted: for a GPU, the time
    /// of an empty pair of events.
    pub fn start_costs(&self) -> impl Iterator<Item = Ns> + '_ {
        self.start_ns.iter().zip(&self.samples_ns).map(|(start, more)| Ns(start - more))
    }
}

/// Why sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The interval of the median is within the wanted precision.
    Precise,
    /// The visits are made, or the case's time or number of samples is spent; the interval is wider than
    /// wanted, or there is none.
    Budget,
}
words!(StopReason, "stop reason", {
    Precise => "precise", Budget => "budget",
});
serde_as_text!(StopReason);

/// How sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StopInfo {
    /// Why.
    pub reason: StopReason,
    /// Samples that were thrown away while the machine was still changing.
    pub warmup: u32,
    /// Relative half width of the 95 % interval of the median that the case is shown with; of journals
    /// without visits, that of the widest flow. 1 for fewer than 6 samples.
    pub half_width: f64,
    /// Wall time of the case from its first sample to its last, without `load`.
    pub elapsed: Ns,
    /// Time of samples that were discarded because the case used engines or CPUs that the process had
    /// not used before: their clocks rise under load.
    #[serde(default, skip_serializing_if = "is_none")]
    pub load: Ns,
}

fn is_none(time: &Ns) -> bool {
    *time == Ns::ZERO
}

/// Blocks of the destinations that stand for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedBlocks {
    /// Bytes that were read back, of all destinations.
    pub bytes: Bytes,
    /// Seed of the choice of blocks.
    pub seed: u64,
}

/// Whether the bytes arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifyResult {
    /// Every byte of every destination was read back and is right.
    Verified,
    /// There is nothing to compare, and why.
    Unverified(String),
}

/// Readings of the machine's state around a case, by name with its unit:
/// `core_to_core_ns`, `cpu_mhz`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Conditions(pub BTreeMap<String, f64>);

/// Part of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledCase {
    /// The case.
    pub case: Case,
    /// Suites that list it.
    pub suites: Vec<String>,
    /// This visit's samples only, one series a timed flow.
    pub series: Vec<FlowSeries>,
}

impl SampledCase {
    /// Adds the samples of a later visit. A visit with other repetitions starts the case again: its
    /// samples cannot be pooled.
    pub fn add(&mut self, visit: Self) {
        let same = |a: &FlowSeries, b: &FlowSeries| {
            a.flow == b.flow
                && a.reps == b.reps
                && a.timer == b.timer
                && a.start_ns.is_empty() == b.start_ns.is_empty()
        };
        let fits = self.series.len() == visit.series.len()
            && self.series.iter().zip(&visit.series).all(|(a, b)| same(a, b));
        if fits {
            for (all, new) in self.series.iter_mut().zip(visit.series) {
                all.extend_off_cpu(new.off_cpu_ns);
                all.cpus = all.cpus.union(&new.cpus);
                all.samples_ns.extend(new.samples_ns);
                all.start_ns.extend(new.start_ns);
                all.visits.extend(new.visits);
                all.io.extend(new.io);
                for (call, tally) in new.setup {
                    all.setup.entry(call).or_default().add(tally);
                }
                for (rank, samples) in new.by_rank {
                    all.by_rank.entry(rank).or_default().extend(samples);
                }
            }
        } else {
            *self = visit;
        }
    }
}

/// A case that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCase {
    /// The case.
    pub case: Case,
    /// Suites that list it.
    pub suites: Vec<String>,
    /// One series a timed flow, in the case's order.
    pub series: Vec<FlowSeries>,
    /// How sampling ended.
    pub stop: StopInfo,
    /// Whether the bytes arrived.
    pub verdict: VerifyResult,
    /// What was read back, where it was not every byte: of a set of paths each of which was verified
    /// whole in the same run. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<ComparedBlocks>,
    /// The machine's state before.
    pub before: Conditions,
    /// The machine's state after.
    pub after: Conditions,
    /// Environment variables that pathline set for this case, since runtimes read them at their
    /// start; variables set for all cases are in [`RunBegin::env`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// State of the GPUs that the case names, where they can be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<Unit, GpuReadings>,
    /// The weakest origin of the constants that a simulated result rests on; absent of hardware and of
    /// a description that states no origins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<ConstantOrigin>,
}

impl MeasuredCase {
    /// Series that were precise at once and whose bytes were right, with no conditions recorded.
    pub fn of_series(case: Case, series: Vec<FlowSeries>) -> Self {
        Self {
            case,
            suites: Vec::new(),
            series,
            stop: StopInfo {
                reason: StopReason::Precise,
                warmup: 0,
                half_width: 0.0,
                elapsed: Ns::ZERO,
                load: Ns::ZERO,
            },
            verdict: VerifyResult::Verified,
            compared: None,
            before: Conditions::default(),
            after: Conditions::default(),
            env: BTreeMap::new(),
            gpus: BTreeMap::new(),
            origin: None,
        }
    }
}

/// A case that cannot be measured here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedCase {
    /// The case.
    pub case: Case,
    /// Suites that list it.
    pub suites: Vec<String>,
    /// Why, and what would change that.
    pub why: String,
}

/// How bad a failed call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// This machine or library cannot do it; asking again is no use.
    Unsupported,
    /// Something ran out: memory, handles, locked pages.
    Exhausted,
    /// It failed this once.
    Transient,
    /// The device or process is unusable from here on.
    Sticky,
    /// The bytes that arrived are not the bytes that were sent.
    Corrupt,
}
words!(Severity, "severity", {
    Unsupported => "unsupported", Exhausted => "exhausted", Transient => "transient",
    Sticky => "sticky", Corrupt => "corrupt",
});
serde_as_text!(Severity);

/// A case that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultedCase {
    /// The case.
    pub case: Case,
    /// Suites that list it.
    pub suites: Vec<String>,
    /// The call, its object, the reason and the remedy.
    pub error: String,
    /// How bad it is.
    pub severity: Severity,
    /// Ranks whose processes failed, where only some did: it counts against their GPUs alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Rank>,
}

impl FaultedCase {
    /// The remedy of a case that was not started since its GPU, or two GPUs together, had failed twice.
    pub const RETIRED_UNIT: &str =
        "the unit was retired from this run after it failed again; run its cases alone";
    /// The same since the library had failed twice in its operation.
    pub const RETIRED_LIBRARY: &str =
        "the library failed twice in it while the GPU still copied; run its cases alone";

    /// Whether it was started, and not left out since its part had failed before.
    pub fn was_started(&self) -> bool {
        ![Self::RETIRED_UNIT, Self::RETIRED_LIBRARY].iter().any(|why| self.error.ends_with(why))
    }
}

/// A warning about the run or the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNote {
    /// Short stable name: `bimodal`, `drift`, `overhead`, `clock-step`.
    pub code: String,
    /// Its subject: a case text, a device, `run`.
    pub subject: String,
    /// The observation and its consequence.
    pub text: String,
}

impl RunNote {
    /// Code of the note that GPUs which the run must have cannot be used: the run is not fine.
    pub const GPUS_UNUSABLE: &str = "gpus-unusable";
    /// Code of the note that no GPU can be used any more, though one could when the run began.
    pub const WITHOUT_GPUS: &str = "without-gpus";
    /// Code of the note why an adaptive run measures a case.
    pub const CHOSEN: &str = "chosen";
    /// Code of the note that a case differed from its peers, and in a new process did not.
    pub const REMEASURED: &str = "remeasured";
    /// Code of the note that a case differs from its peers in two processes.
    pub const UNLIKE_EQUALS: &str = "unlike-equals";
    /// Code of the note that a case disagrees with the next sizes of its path in two processes.
    pub const UNLIKE_NEIGHBOURS: &str = "unlike-neighbours";
    /// Code of the note that memory of a NUMA domain lies on another one.
    pub const OTHER_DOMAIN: &str = "other-domain";

    /// Whether the run lacks GPUs that it must have.
    pub fn lacks_gpus(&self) -> bool {
        [Self::GPUS_UNUSABLE, Self::WITHOUT_GPUS].contains(&self.code.as_str())
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// When, RFC 3339 in UTC.
    pub ended: String,
    /// Wall time since the (last) begin.
    pub elapsed: Ns,
    /// Whether every planned case has its outcome.
    pub complete: bool,
    /// Why it ended early, if it did.
    #[serde(default)]
    pub why: Option<String>,
    /// Planned cases without an outcome, by the first suite that lists them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, usize>,
}
impl RunEnd {
    /// Why a run ended that a person or a scheduler ended.
    pub const INTERRUPTED: &str = "interrupted";
}

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq)]
pub enum CaseOutcome {
    /// Figures.
    Measured(Box<MeasuredCase>),
    /// A reason.
    Skipped(SkippedCase),
    /// An error.
    Faulted(FaultedCase),
}

impl CaseOutcome {
    /// The case it is about.
    pub fn case(&self) -> &Case {
        match self {
            Self::Measured(m) => &m.case,
            Self::Skipped(s) => &s.case,
            Self::Faulted(f) => &f.case,
        }
    }
}
