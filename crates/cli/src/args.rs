//! The command line, as one table. Completions and the man page are derived from it.

mod advise;
mod analysis;
mod health;
mod messages;
mod out_file;
mod paste;
mod placement;
mod stores;
mod suite_group;
mod units;
mod watch;
mod way_out;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{
    Arg, ArgMatches, Args as _, CommandFactory, FromArgMatches, Id, Parser, Subcommand, ValueEnum,
    value_parser,
};
use pathline_bench::{GpuRequirement, RandomDraw};
use pathline_gpu::{COMPILE_COMMAND, LibraryOption, library_options};
use pathline_runner::{
    DeviceMemory, HostMachine, LibraryChoice, LibraryProbe, MachineChoice, MachineModel, RankJob,
    RunRequest, WorkerFault,
};
use pathline_schema::{Bytes, CasePattern, CpuSet, Ns, ParseError, RunSettings, SuiteId};

use crate::known_name::KnownName;

pub(crate) use advise::{AdviseArgs, AskedCase};
pub(crate) use analysis::{
    CalibrateArgs, DiffArgs, DoctorArgs, FittedConstants, MachinesArgs, PredictArgs, ReportArgs,
    ReportFormat, ValidateArgs,
};
pub(crate) use health::{HealthArgs, HealthFormat};
pub(crate) use messages::MessageArgs;
pub(crate) use out_file::OutFile;
use out_file::out_file;
pub(crate) use paste::ExplainArgs;
pub(crate) use placement::{AuditArgs, Launcher, MessageCopier, PlaceArgs};
pub(crate) use stores::StoreArgs;
use suite_group::named_suites;
pub(crate) use suite_group::{SUITE_GROUPS, group_suites, suite_group};
use units::{count, gpu_list, memory, millis, noise, percent_points, seconds, size};
pub(crate) use watch::WatchArgs;
use way_out::{note_bare_sizes, unknown_command, with_way_out};

/// Measures, models and explains every path that data takes in a multi-GPU node.
#[derive(Debug, Parser)]
#[command(name = "pathline", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 fine; 1 measured, and something is wrong; 2 unusable arguments or \
                        files; 3 could not judge."
)]
pub(crate) struct Args {
    /// What to do; without it, shows what can be done here.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// When to use colour.
    #[arg(long, global = true, value_enum, default_value_t = ColourChoice::Auto, help_heading = OUTPUT)]
    pub(crate) color: ColourChoice,
    /// Print errors only: no progress, and no summary of a run.
    #[arg(long, short, global = true, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
    /// Print every figure, row, answer and warning, not just the first screen.
    #[arg(long, global = true, conflicts_with = "quiet", help_heading = OUTPUT)]
    pub(crate) full: bool,
}

impl Args {
    /// The arguments and variables of this process, which ends here if they are unusable.
    pub(crate) fn of_process() -> Self {
        let mut command = without_empty_variables(Self::command());
        let first = std::env::args().nth(1).unwrap_or_default();
        if let Some((old, new)) = RENAMED.iter().find(|(old, _)| *old == first) {
            let text = format!(
                "`pathline {old}` is now `pathline {new}`; `pathline help` lists the commands"
            );
            command.error(ErrorKind::InvalidSubcommand, text).exit();
        }
        let asked_of = std::env::args().nth(2).filter(|_| first == "help").unwrap_or(first);
        let is_word = !asked_of.is_empty() && !asked_of.starts_with('-');
        if let Some(error) = unknown_command(&mut command, &asked_of).filter(|_| is_word) {
            error.exit();
        }
        note_bare_sizes();
        let asked = command.clone().try_get_matches_from(std::env::args_os());
        let matches = asked.unwrap_or_else(|error| with_way_out(error, &command).exit());
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// A variable without a value counts as not set: a script leaves one where it looked for a library in vain.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let clean =
        |arg: Arg| if arg.get_env().is_some_and(is_empty) { arg.env(None::<&str>) } else { arg };
    command.mut_args(clean).mut_subcommands(without_empty_variables)
}

/// The values of the environment alone; defaults if one is unusable.
fn of_environment<T: Parser + Default>() -> T {
    let matches = without_empty_variables(T::command()).try_get_matches_from(["pathline"]);
    matches.and_then(|matches| T::from_arg_matches(&matches)).unwrap_or_default()
}

/// The commands, in display order.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure: prints a summary, writes a journal and an HTML report.
    Run(RunArgs),
    /// Say in seconds whether a node is healthy, and which of its parts is not.
    Health(HealthArgs),
    /// Show what this node is made of and how its parts are joined.
    Topo(TopoArgs),
    /// Show which libraries a measurement of GPUs needs, where they were found, and what is missing.
    Doctor(DoctorArgs),
    /// Explain a pasted output, a log or a case text: what it means, the limit, the likely cause.
    Explain(ExplainArgs),
    /// Say what to set instead of the default, with proof on fresh trials; review a job script.
    Advise(AdviseArgs),
    /// Give each rank of a job its GPU, cores and network adapter; --check shows where ranks run.
    Place(PlaceArgs),
    /// Show what passes over each path now, as a share of what that path can carry.
    Watch(WatchArgs),
    /// Show a run again: summary, HTML, CSV, JSON.
    Report(ReportArgs),
    /// Compare runs before and after, case by case.
    Diff(DiffArgs),
    /// Simulated nodes: list or show them, fit a twin of a node, check it, predict with it.
    Model(ModelArgs),
    /// Print a completion script for a shell.
    #[command(hide = true)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff), or write one for each command.
    #[command(hide = true)]
    Man {
        /// Write the page of each command into this folder, as `pathline-run.1`.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print the help of a command.
    #[command(hide = true)]
    Help {
        /// The command, such as `run` or `model fit`.
        command: Vec<String>,
    },
}

/// What to do with simulated nodes.
#[derive(Debug, Parser)]
#[command(disable_help_subcommand = true)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

/// The commands of `pathline model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the machines that can be simulated.
    List,
    /// Print the description of a machine, to copy and change, or its constants.
    Show(MachinesArgs),
    /// Fit a twin of a node, a machine file, to the records of its runs.
    Fit(CalibrateArgs),
    /// Compare a machine with published values, each formed as its tool forms it.
    Check(ValidateArgs),
    /// Say how long flows take that start together, and what limits them; or compare with a run.
    Predict(PredictArgs),
}

/// Commands of earlier versions, and what they are now.
const RENAMED: [(&str, &str); 10] = [
    ("plan", "run --dry-run"),
    ("suites", "run --list"),
    ("case", "explain 'CASE'"),
    ("where", "place --check"),
    ("digest", "health --history DIR RUN"),
    ("audit", "advise --collectives RUN"),
    ("machines", "model list or model show NAME"),
    ("calibrate", "model fit"),
    ("validate", "model check"),
    ("predict", "model predict"),
];

/// The commands by which processes of this program start each other. They have a table apart, so that
/// help, manual, completions and suggestions for a typo cannot name them.
#[derive(Debug, Parser)]
#[command(name = "pathline", disable_help_subcommand = true)]
pub(crate) struct InternalArgs {
    /// The task from the process that started this one.
    #[command(subcommand)]
    pub(crate) command: InternalCommand,
}

/// Tasks that one process of this program gives another.
#[derive(Debug, Subcommand)]
pub(crate) enum InternalCommand {
    /// Measure for a run that started this process.
    Worker,
    /// Measure for a health check that started this process.
    HealthWorker,
    /// Be one of several processes that measure together.
    Rank {
        /// The process at standard input is not the coordinator: it sends its address.
        #[arg(long)]
        kept: bool,
        /// Try whether MPI takes device memory, and end.
        #[arg(long, conflicts_with = "kept")]
        probe: bool,
        /// A launcher that the coordinator started has started it.
        #[arg(long, conflicts_with_all = ["kept", "probe"])]
        launched: bool,
        /// The places for files.
        #[arg(long)]
        store: Vec<PathBuf>,
        /// Size of each of their files.
        #[arg(long)]
        span: Option<Bytes>,
        /// Whether what files and devices hold may be lost.
        #[arg(long)]
        overwrite: bool,
        /// Server of buckets.
        #[arg(long)]
        s3_endpoint: Option<String>,
        #[command(flatten)]
        libraries: LibraryArgs,
    },
    /// Open libraries that may crash, for the process that started this one.
    Probe {
        /// Which libraries, and what of them.
        what: LibraryProbe,
        #[command(flatten)]
        libraries: LibraryArgs,
    },
    /// Compile kernels for the process that started this one.
    #[command(name = COMPILE_COMMAND)]
    Compile,
}

impl InternalArgs {
    /// The arguments of this process, if its first is an internal command.
    pub(crate) fn of_process() -> Option<Self> {
        let first = std::env::args_os().nth(1)?;
        Self::command().find_subcommand(&first).is_some().then(Self::parse)
    }
}

/// Headings of the help of `run`.
const CASES: &str = "Cases";
const TIME: &str = "Time";
const PROCESSES: &str = "Processes";
const FILES: &str = "Files";
const LIBRARIES: &str = "Libraries";
const OUTPUT: &str = "Output";

/// Which cases, and on which machine.
#[derive(Debug, Clone, Parser)]
#[command(next_help_heading = CASES)]
pub(crate) struct SelectArgs {
    /// Simulate this machine instead of measuring this host.
    ///
    /// A name from `pathline model list`, or a TOML file.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: Option<String>,
    /// Software stack whose starts and packet sizes the simulated machine has.
    #[arg(long, value_name = "NAME", requires = "machine", hide = true)]
    pub(crate) stack: Option<String>,
    /// Only these suites, suites of a group (gpu, mpi, ccl), or cases; `pathline run --list` says what
    /// suites measure.
    ///
    /// A case is a case text, or a flow with wildcards such as 'gpu0.* > gpu*.vram by dma'. Movers: dma (copy
    /// engine), blit (copy kernel of the runtime), kernel, cpu, migrate, staged, batch, call; between
    /// processes mpi, ccl (NCCL, RCCL), ucx, shm, cma, xpmem; files uring, aio, sync, gds. Memory: vram,
    /// vram-fine, pinned, pinned-nc, pinned-wc, pinned-default, registered, paged, huge, managed, reg (none).
    /// `pathline explain 'TEXT'` explains a text.
    #[arg(value_name = "SUITE|CASE", value_parser = KnownName::SUITES, hide_possible_values = true)]
    pub(crate) named: Vec<String>,
    /// The same as SUITE.
    #[arg(long, short, value_delimiter = ',', value_name = "SUITE", hide = true)]
    pub(crate) suite: Vec<String>,
    /// Only cases that match this text, as CASE does; repeatable.
    #[arg(long, short, value_name = "CASE", hide = true)]
    pub(crate) case: Vec<CasePattern>,
    /// Only these GPUs, such as 0,1 or 0-3.
    #[arg(long, value_name = "LIST", value_parser = gpu_list)]
    pub(crate) gpus: Option<CpuSet>,
    /// Host memory for buffers; by default half of what is free.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<Bytes>,
    /// Use the same plain kernels on every GPU.
    ///
    /// Neither what --tune found here nor what was measured best on other GPUs of the kind.
    #[arg(long, hide = true)]
    pub(crate) standard_kernels: bool,
    /// Seed of random sets and of simulated noise.
    #[arg(long, default_value_t = 1, value_parser = units::seed)]
    pub(crate) seed: u64,
    /// Number of random sets in suite concurrent.
    #[arg(long, value_name = "NUMBER", default_value_t = RandomDraw::default().sets,
        value_parser = count::<1, 100_000>, hide = true)]
    pub(crate) sets: u32,
    /// Measure only those cases of suite contention from which a twin learns enough.
    ///
    /// Paths alone first; then the sets that are expected to reduce the errors of predictions most, chosen
    /// again from the results every 60 cases, until the expected error is that of the samples. The journal
    /// has the reason for each.
    #[arg(long)]
    pub(crate) adaptive: bool,
    /// Suite mpi-peers from every GPU to every other, not from the first alone; suite storage-grid with
    /// every combination.
    #[arg(long)]
    pub(crate) all_pairs: bool,
    #[command(flatten)]
    pub(crate) messages: MessageArgs,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
}

/// The suite that needs places for files.
const STORAGE: &str = pathline_schema::SuiteId::Storage.word();
const OF_RANKS: &str = pathline_schema::SuiteId::StorageRanks.word();
const METADATA: &str = pathline_schema::SuiteId::Metadata.word();

impl SelectArgs {
    /// The suites that are named, those of a group each.
    pub(crate) fn suites(&self) -> Vec<String> {
        let named = self.named.iter().filter(|name| !is_case(name));
        let names = named.flat_map(|names| names.split(',')).chain(self.suite.iter().map(|s| &**s));
        names.filter(|name| !name.is_empty()).flat_map(named_suites).collect()
    }

    /// The cases that are named.
    pub(crate) fn cases(&self) -> Result<Vec<CasePattern>, ParseError> {
        let named = self.named.iter().filter(|name| is_case(name)).map(|text| text.parse());
        self.case.iter().cloned().map(Ok).chain(named).collect()
    }

    /// Fails if suite storage is selected on this host without a place for its files, or if a place is named so
    /// that it may hold a key.
    pub(crate) fn check_stores(&self) -> anyhow::Result<()> {
        self.stores.check_names()?;
        self.stores.check_places()?;
        let named = !self.stores.store.is_empty() || self.machine.is_some();
        let on_files = |suite: &&String| [STORAGE, METADATA, OF_RANKS].contains(&suite.as_str());
        let suites = self.suites();
        let Some(suite) = suites.iter().find(on_files).filter(|_| !named) else {
            return Ok(());
        };
        Err(anyhow::anyhow!(
            "suite {suite} needs a place for its files: name a folder, in which they are made and \
             removed again, with --store DIR; --machine NAME simulates one"
        ))
    }

    /// Number of own processes: as asked, and one with a thread for each GPU if only collectives and
    /// messages of NCCL or RCCL are selected, which need nothing else. 0 for a run without ranks.
    pub(crate) fn own_ranks(&self, asked: Option<u32>) -> u32 {
        let by_threads = |suite: &String| {
            [SuiteId::CclCollectives, SuiteId::CclPairs].iter().any(|id| id.word() == suite)
        };
        let suites = self.suites();
        let threads = !suites.is_empty() && suites.iter().all(by_threads);
        asked.unwrap_or(u32::from(threads))
    }

    /// The machine that is chosen: read and parsed, not opened.
    pub(crate) fn machine(&self, libraries: &LibraryArgs) -> anyhow::Result<MachineChoice> {
        Ok(match &self.machine {
            Some(name) => {
                let model = MachineModel::read(&with_gpus(name, self.gpus.as_ref()))?;
                let model = model.with_stack(self.stack.as_deref())?;
                MachineChoice::Model(Box::new(model))
            }
            None => MachineChoice::Host(HostMachine {
                libraries: libraries.choice(),
                stores: self.stores.places(),
            }),
        })
    }

    /// The parameters of random sets.
    pub(crate) fn draw(&self) -> RandomDraw {
        RandomDraw { seed: self.seed, sets: self.sets }
    }
}

/// Whether a word of the command line is the text of a case and no suite.
fn is_case(text: &str) -> bool {
    text.contains(['>', '→', '*', ' '])
}

/// The name of a simulated machine with only these of its GPUs.
pub(crate) fn with_gpus(name: &str, gpus: Option<&CpuSet>) -> String {
    gpus.map_or_else(|| name.to_owned(), |gpus| format!("{name}:{gpus}"))
}

/// Which GPU runtime to use, and where its libraries are.
#[derive(Debug, Clone, Default, Parser)]
#[command(next_help_heading = LIBRARIES)]
pub(crate) struct LibraryArgs {
    #[command(flatten)]
    named: NamedLibraries,
    /// Whether MPI takes memory of GPUs.
    ///
    /// By default two processes that may die of it try; where none can be launched, the library's own
    /// answer counts.
    #[arg(long, value_name = "ANSWER", env = "PATHLINE_DEVICE_MEMORY", hide = true)]
    pub(crate) device_memory: Option<DeviceMemoryAnswer>,
}

/// Paths of libraries by the options that name them, which the descriptions of the GPU runtimes list.
#[derive(Debug, Clone, Default)]
struct NamedLibraries(BTreeMap<String, PathBuf>);

impl NamedLibraries {
    fn argument(option: &'static LibraryOption) -> Arg {
        Arg::new(option.name)
            .long(option.name)
            .value_name("PATH")
            .env(option.variable)
            .value_parser(value_parser!(PathBuf))
            .help(option.help)
            .long_help(format!("{}.\n\n{}.", option.help, option.value))
            .hide(true)
    }
}

impl clap::Args for NamedLibraries {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(library_options().map(Self::argument))
    }
    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NamedLibraries {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let path = |option: &LibraryOption| {
            Some((option.name.to_owned(), matches.get_one::<PathBuf>(option.name)?.clone()))
        };
        Ok(Self(library_options().filter_map(path).collect()))
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// Whether an MPI takes memory of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceMemoryAnswer {
    /// It does; nothing is tried.
    Yes,
    /// It does not; pathline stages such messages through the host.
    No,
    /// Find out.
    Try,
}

impl LibraryArgs {
    /// The values of the environment.
    pub(crate) fn from_env() -> Self {
        of_environment()
    }

    /// Whether a library is named.
    pub(crate) fn any(&self) -> bool {
        !self.named.0.is_empty()
    }

    /// These values, and those of `other` where they are missing.
    pub(crate) fn or(self, other: Self) -> Self {
        let mut named = other.named;
        named.0.extend(self.named.0);
        Self { named, device_memory: self.device_memory.or(other.device_memory) }
    }

    /// Whether each library that is named by a path is there.
    pub(crate) fn are_there(&self) -> bool {
        self.named.0.values().all(|path| path.components().count() < 2 || path.exists())
    }

    /// Fails if the GPU runtime is named where there is nothing: the host alone would be measured.
    pub(crate) fn check_runtime(&self) -> anyhow::Result<()> {
        let missing = |name: &&str| self.named.0.get(*name).is_some_and(|path| !path.exists());
        match ["cuda", "hip"].into_iter().find(missing) {
            Some(name) => Err(anyhow::anyhow!(
                "--{name}: there is no such file or folder; without the option the usual places are searched"
            )),
            None => Ok(()),
        }
    }

    /// The same for the crate that opens them.
    pub(crate) fn choice(&self) -> LibraryChoice {
        let device_memory = match self.device_memory {
            Some(DeviceMemoryAnswer::Yes) => DeviceMemory::Yes,
            Some(DeviceMemoryAnswer::No) => DeviceMemory::No,
            Some(DeviceMemoryAnswer::Try) | None => DeviceMemory::Try,
        };
        LibraryChoice { named: self.named.0.clone(), device_memory }
    }
}

/// Requirements of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Requirement {
    /// GPUs, also where none is on the bus.
    Gpus,
    /// The host alone.
    Host,
}

impl Requirement {
    /// The requirement for the planner.
    pub(crate) fn to_planner(asked: Option<Self>) -> GpuRequirement {
        match asked {
            None => GpuRequirement::Discovered,
            Some(Self::Gpus) => GpuRequirement::Always,
            Some(Self::Host) => GpuRequirement::Never,
        }
    }
}

/// How long libraries may take.
#[derive(Debug, Clone, Default, Parser)]
pub(crate) struct TimeoutArgs {
    /// Give up on a library if one of its calls takes longer than this.
    ///
    /// By default 10s, and 5s more for each GPU on the bus.
    #[arg(long, value_name = "TIME", value_parser = seconds, env = "PATHLINE_LIBRARY_TIMEOUT", hide = true,
        help_heading = LIBRARIES)]
    pub(crate) library_timeout: Option<f64>,
}

impl TimeoutArgs {
    /// The values of the environment.
    pub(crate) fn from_env() -> Self {
        of_environment()
    }

    /// Timeout of one library call, if the user set one.
    pub(crate) fn call(&self) -> Option<Duration> {
        self.library_timeout.map(|secs| Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX))
    }
}

/// How commands end that show a run.
const RUN_EXIT_CODES: &str = "Exit codes: 0 measured, and nothing is wrong; 1 SUSPECT or FAIL; 2 unusable \
                              arguments or files; 3 UNDECIDED, or nothing could be measured.";

/// How to measure.
#[derive(Debug, Clone, Parser)]
#[command(after_help = RUN_EXIT_CODES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Folder to write into; by default a new one under runs/.
    #[arg(long, short, value_name = "DIR", conflicts_with = "resume", help_heading = FILES)]
    pub(crate) out: Option<PathBuf>,
    /// Continue a run that was cut: its folder or journal.
    ///
    /// Cases that are done stay as they are. Which cases there are and how they are measured is taken
    /// from that run.
    #[arg(long, value_name = "RUN", conflicts_with_all = kept_by_resume(), help_heading = FILES)]
    pub(crate) resume: Option<PathBuf>,
    /// Measure only the main paths, in half a minute: H2D, D2H, GPU to GPU, latency; host memory.
    #[arg(long, conflicts_with_all = ["resume", "named", "suite", "case", "tune"],
        help_heading = CASES)]
    pub(crate) quick: bool,
    /// Measure nothing: list the suites, how many cases each has here and how long it takes.
    #[arg(long, conflicts_with_all = ["resume", "dry_run", "named", "suite", "case"], help_heading = CASES)]
    pub(crate) list: bool,
    /// Measure nothing: show the cases, what would be skipped and why, and how long it would take.
    #[arg(long, conflicts_with = "resume", help_heading = CASES)]
    pub(crate) dry_run: bool,
    /// Find the fastest kernel for each path first.
    ///
    /// On one GPU of each kind. Later runs use what was found.
    #[arg(long, conflicts_with_all = ["resume", "standard_kernels"], help_heading = CASES)]
    pub(crate) tune: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Address at which ranks of several hosts meet.
    ///
    /// An address of the host of rank 0, and a free port. Under Slurm, and on one host, ranks find
    /// each other by themselves. They prove that they are of one job by PATHLINE_SECRET, or by a file
    /// in a home folder that their hosts share.
    #[arg(long, value_name = "HOST:PORT", env = "PATHLINE_RENDEZVOUS", help_heading = PROCESSES, hide = true)]
    pub(crate) rendezvous: Option<String>,
    /// What must be usable for exit code 0.
    ///
    /// By default, all GPUs on the bus, unless the named suites and cases use no GPU.
    #[arg(long, value_enum, value_name = "WHAT", help_heading = OUTPUT)]
    pub(crate) require: Option<Requirement>,
    /// Stop after this time, such as 30s or 5min, and report what was measured.
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = TIME)]
    pub(crate) time_limit: Option<f64>,
    /// Kill a worker that makes no progress for this long.
    ///
    /// By default the limit of a step follows from the size of its case and is 20s or more; that of
    /// opening the machine is 120s.
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = TIME, hide = true)]
    pub(crate) case_deadline: Option<f64>,
    /// Measure a simulated machine in a worker process, too.
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
    /// Let something go wrong in the worker process.
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Vec<WorkerFault>,
    #[command(flatten)]
    pub(crate) libraries: LibraryArgs,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArgs,
    /// Print JSON: verdict, findings and figures; with --dry-run one line per case.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
}

/// Options of a run rather than of one session of it: `--resume` takes them from the run that is
/// continued, as it takes [`SelectArgs`].
#[derive(Debug, Clone, Parser)]
pub(crate) struct SamplingArgs {
    /// Measure between this many processes of this node.
    ///
    /// pathline starts them: shared memory, UCX, NCCL or RCCL. For MPI add --mpirun, or start pathline
    /// itself under mpirun or srun.
    #[arg(long, value_name = "NUMBER", value_parser = count::<1, 1024>,
        help_heading = PROCESSES)]
    pub(crate) ranks: Option<u32>,
    /// Spread the processes over this many nodes of a simulated machine, as `srun --nodes` does.
    #[arg(long, value_name = "NUMBER", value_parser = count::<1, 1024>,
        requires = "machine", requires = "ranks", help_heading = PROCESSES)]
    pub(crate) nodes: Option<u32>,
    /// Start the processes of --ranks with this MPI launcher, on this node.
    ///
    /// It runs once for each environment that cases need, and again after a process is lost.
    #[arg(long, value_name = "PROGRAM", requires = "ranks", conflicts_with = "machine",
        help_heading = PROCESSES)]
    pub(crate) mpirun: Option<PathBuf>,
    /// Target half width of the 95 % interval of the median.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent_points,
        help_heading = TIME)]
    pub(crate) precision: f64,
    /// Time for one case; by default 250ms.
    ///
    /// Cases of contention and concurrent have 60ms by default, with `--adaptive` 20ms.
    #[arg(long, value_name = "TIME", value_parser = millis, help_heading = TIME)]
    pub(crate) case_budget: Option<f64>,
    /// Standard deviation of a simulated machine's times; by default 0.2%.
    ///
    /// Of each operation; at most 20%, and 0 for none.
    #[arg(long, value_name = "PERCENT", value_parser = noise, requires = "machine",
        help_heading = CASES)]
    pub(crate) noise: Option<f64>,
    /// Measure everything this many times, each time in new processes, into one journal.
    ///
    /// New processes have new buffers, clocks and contexts, by which figures differ more than their
    /// samples do. From 3 on the report has an interval of this node next to that of a run. A time
    /// limit is shared equally.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = count::<1, 30>, help_heading = TIME)]
    pub(crate) repeat: u32,
}

/// Options that cannot be given with `--resume`, since it takes them from the run that it continues.
fn kept_by_resume() -> Vec<Id> {
    let table = SamplingArgs::augment_args(SelectArgs::augment_args(clap::Command::new("run")));
    table.get_arguments().map(|arg| arg.get_id().clone()).collect()
}

impl RunArgs {
    /// The request for the process that measures.
    pub(crate) fn request(&self, job: Option<RankJob>) -> anyhow::Result<RunRequest> {
        Ok(RunRequest {
            machine: self.select.machine(&self.libraries)?,
            settings: self.settings(),
            memory: self.select.memory,
            job,
            limit: self.case_deadline.map(Duration::from_secs_f64),
            faults: self.inject.clone(),
            repeat: 0,
        })
    }

    /// The settings of the engine, which the journal records. The memory follows from the machine.
    fn settings(&self) -> RunSettings {
        let SamplingArgs { precision, case_budget, noise, repeat, ranks: _, nodes: _, mpirun: _ } =
            self.sampling;
        let usual = RunSettings::default();
        RunSettings {
            precision: precision / 100.0,
            case_budget: case_budget.map_or(usual.case_budget, Ns::ms),
            time_limit: Ns::secs(self.time_limit.unwrap_or(0.0)),
            seed: self.select.seed,
            noise: noise.map(|percent| percent / 100.0),
            repeats: repeat,
            ..usual
        }
    }
}

/// When to use colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColourChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to show of a node, and from where.
#[derive(Debug, Clone, Parser)]
pub(crate) struct TopoArgs {
    /// Read it from a file instead: a saved snapshot, an NCCL/RCCL or hwloc XML file, a KFD link
    /// table, a topology in JSON, or what `nvidia-smi topo -m`, `rocm-smi --showtopo` or `amd-smi
    /// topology` print.
    #[arg(long, value_name = "PATH", conflicts_with = "machine")]
    pub(crate) from: Option<PathBuf>,
    /// Show a simulated machine.
    #[arg(long, short, value_name = "NAME|FILE", value_parser = KnownName::MACHINES)]
    pub(crate) machine: Option<String>,
    /// Save the plain files that were looked at: into a folder, or into one file if the name ends
    /// in .json.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["from", "machine"])]
    pub(crate) save: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, conflicts_with = "out")]
    pub(crate) json: bool,
    /// Write a picture of the node (.svg), or NCCL/RCCL topology XML (.xml), as NCCL_TOPO_FILE takes it.
    #[arg(long, short, value_name = "FILE", value_parser = out_file(&["svg", "xml"]))]
    pub(crate) out: Vec<OutFile>,
    #[command(flatten)]
    pub(crate) timeout: TimeoutArgs,
}
