//! `pathline doctor`. No library of a vendor is opened in this process: each is asked in a child that may
//! crash, hang or end.

mod dmabuf;
mod kernel_config;
mod settings;

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use pathline_diagnose::check_settings;
use pathline_dylib::{LibraryReport, TriedPlace};
use pathline_explain::fmt::count;
use pathline_gpu::{RuntimeFamily, cache_base, chosen_family, kernel_cache, writable};
use pathline_runner::{
    AdapterAnswer, DirectAnswer, HostAnswer, HostSurvey, LibraryChoice, LibraryProbe,
    ManagementAnswer, ProbeError, ProbeLimits, RuntimeAnswer, add_versions, ask, ask_and_show,
    ask_versions,
};
use pathline_schema::Topology;
use pathline_storage::without_rings;
use pathline_topo::HostSnapshot;
use pathline_transport::collectives_libraries;

use super::ExitKind;
use crate::args::DoctorArgs;
use crate::say::outln;

/// Marks of lines, of one width.
const OK: &str = "[ok]     ";
const NONE: &str = "[-]      ";
const MISSING: &str = "[missing]";
const BROKEN: &str = "[broken] ";

/// Checks of a machine take seconds, and minutes where a kernel compiles for each.
const CONFORMANCE: ProbeLimits =
    ProbeLimits { call: Duration::from_secs(600), total: Duration::from_secs(7200) };

/// Bytes of stack of a thread that waits for an answer: several run in little memory.
const STACK: usize = 256 << 10;

/// Launches that try device memory have their own timeouts, one after another.
const LAUNCHES: ProbeLimits =
    ProbeLimits { call: Duration::from_secs(300), total: Duration::from_secs(300) };

/// Fine if every GPU that was discovered can be measured by engines and kernels, or there is none;
/// wrong if something is missing, a library ends or holds the process that asks it, or a check fails.
pub(super) fn run(args: &DoctorArgs) -> Result<ExitKind> {
    if let Some(path) = &args.from {
        let snapshot = pathline_topo::snapshot_from_path(path)?;
        let topology = pathline_topo::from_snapshot(&path.display().to_string(), &snapshot);
        return settings::print(&check_settings(&snapshot, &topology), args.json);
    }
    if args.json {
        let HostSurvey { mut snapshot, topology, limits, .. } =
            HostSurvey::new(args.timeout.call());
        add_settings(&mut snapshot);
        ask_versions(&mut snapshot, &args.libraries.choice(), limits);
        return settings::print(&check_settings(&snapshot, &topology), true);
    }
    let mut survey = HostSurvey::of_files(args.timeout.call());
    let libraries = args.libraries.choice();
    let (family, choice) = chosen_family(&survey.topology, &libraries.request());
    let (found, opened) = Findings::collect(&mut survey, family, args);
    let (topology, limits) = (&survey.topology, survey.limits);
    let gpus = topology.gpus.len();
    // Of hardware that is not here, one line is enough.
    let brief = gpus == 0 && !args.libraries.any();
    found.print(topology, brief);
    match without_rings() {
        Some(why) => outln!("{MISSING} io_uring: {why}"),
        None => outln!("{OK} io_uring: supported"),
    }
    library(&found.direct.report, brief);
    found.direct.notes.iter().for_each(|note| outln!("    {note}"));
    // On a host without GPUs and without a runtime for them there is nothing to explain.
    let asked = gpus > 0 || !brief || found.runtime.driver.path.is_some();
    if asked {
        dmabuf::print(&found.runtime.export, found.registers_dmabuf);
    }
    folders();
    let mut snapshot = survey.snapshot.clone();
    add_settings(&mut snapshot);
    add_versions(&mut snapshot, &found.between);
    let slowed = settings::print(&check_settings(&snapshot, topology), false)? != ExitKind::Fine;
    choice.iter().chain(&family.numbering_note()).for_each(|note| outln!("note: {note}"));
    let (machine, lost) = machine(args, &found, opened, limits);
    for (nth, pci) in machine.listed.iter().enumerate() {
        if let Some((_, text)) = found.states.iter().find(|(known, _)| known == pci) {
            outln!("gpu{nth}: {text}");
        }
    }
    let listed = machine.listed.len();
    if listed > 0 && args.conformance {
        device_memory(args);
    } else if found.has_mpi() {
        let why = if listed > 0 { "--conformance tries it" } else { "no GPU can be measured here" };
        outln!("MPI and device memory: not tried: {why}");
    }
    if let Some(why) = machine.without.as_ref().filter(|_| asked) {
        outln!("GPUs: {gpus} on the bus, none can be measured: {why}");
    }
    let wanted = listed > 0 || topology.gpus.iter().any(|g| !g.vendor.is_empty());
    let missing = wanted && (machine.without.is_some() || found.lacks_needed());
    // In a container the bus can hide what the management library lists.
    let gpus = gpus.max(found.managed.as_ref().map_or(0, |(gpus, _)| *gpus));
    let unmeasured = gpus > 0 && listed == 0;
    let named = args.libraries.are_there();
    let wrong = machine.failed || missing || unmeasured || lost || found.lost > 0 || !named;
    outln!("");
    match (wrong, gpus) {
        (true, 0) => outln!("NOT READY: see [missing] and [broken] above"),
        (true, n) => {
            outln!("NOT READY to measure {}: see [missing] and [broken] above", count(n, "GPU"))
        }
        (false, 0) => {
            outln!("READY to measure this host; it has no GPU. Next: pathline run --quick");
        }
        (false, n) => {
            outln!("READY to measure this host and {}. Next: pathline run --quick", count(n, "GPU"))
        }
    }
    Ok(if wrong || slowed { ExitKind::Wrong } else { ExitKind::Fine })
}

/// Adds to a snapshot of this host what [`check_settings`] judges.
pub(super) fn add_settings(snapshot: &mut HostSnapshot) {
    let root = Path::new("/");
    snapshot.add_settings(root);
    if let Some(options) = kernel_config::stated_options(root) {
        snapshot.insert("pathline/kernel-options", options);
    }
}

/// Asks on a thread of the scope. The answer is waited for by a call of what is returned, which asks itself if
/// no thread can start.
fn ask_meanwhile<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    ask: impl Fn() -> Result<T, ProbeError> + Send + Copy + 'scope,
) -> impl FnOnce() -> Result<T, ProbeError> {
    let started = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, ask);
    move || match started {
        Ok(thread) => thread
            .join()
            .unwrap_or_else(|_| Err(ProbeError::NotStarted("its thread was lost".to_owned()))),
        Err(_) => ask(),
    }
}

/// Findings about each library, in display order.
struct Findings {
    runtime: RuntimeAnswer,
    compilers: Vec<LibraryReport>,
    management: LibraryReport,
    /// GPUs that NVML opens, and its warnings; none without NVML.
    managed: Option<(usize, Vec<String>)>,
    /// What each GPU's sensors show, by its PCI address.
    states: Vec<(String, String)>,
    others: Vec<LibraryReport>,
    collectives: Vec<LibraryReport>,
    between: [LibraryReport; 3],
    direct: DirectAnswer,
    /// Whether libibverbs registers memory by dma-buf; `None` if it was not opened.
    registers_dmabuf: Option<bool>,
    /// Libraries that ended or held the process that asked them.
    lost: usize,
    /// Whether the GPU runtime is one of them.
    runtime_lost: bool,
}

impl Findings {
    /// Probes all libraries concurrently: several that hang take no longer than one. The second is what
    /// came of opening this host meanwhile, unless checks are to run on it.
    fn collect(
        survey: &mut HostSurvey,
        family: RuntimeFamily,
        args: &DoctorArgs,
    ) -> (Self, Option<OpenedHost>) {
        let (limits, libraries) = (survey.limits, &args.libraries.choice());
        let one = |probe| ask::<LibraryReport>(probe, libraries, limits);
        thread::scope(|scope| {
            let management = ask_meanwhile(scope, || {
                ask::<ManagementAnswer>(LibraryProbe::Management, &LibraryChoice::default(), limits)
            });
            let opened = (!args.conformance).then(|| {
                ask_meanwhile(scope, || {
                    let mut lines = Vec::new();
                    let mut keep = |line: &str| lines.push(line.to_owned());
                    let answer = ask_and_show(LibraryProbe::Machine, libraries, limits, &mut keep);
                    Ok((answer, lines))
                })
            });
            let [mpi, ucx] = [LibraryProbe::Mpi, LibraryProbe::Ucx]
                .map(|probe| ask_meanwhile(scope, move || one(probe)));
            let rdma = ask_meanwhile(scope, || {
                ask::<AdapterAnswer>(LibraryProbe::Rdma, libraries, limits)
            });
            let others = ask_meanwhile(scope, || {
                ask::<Vec<LibraryReport>>(LibraryProbe::OtherRuntimes, libraries, limits)
            });
            let direct = ask_meanwhile(scope, || {
                ask::<DirectAnswer>(LibraryProbe::Direct, libraries, limits)
            });
            let compilers = ask_meanwhile(scope, || {
                ask::<Vec<LibraryReport>>(LibraryProbe::Compiler, libraries, limits)
            });
            let runtime = ask::<RuntimeAnswer>(LibraryProbe::Runtime, libraries, limits);
            let compilers = match runtime {
                Ok(_) => compilers(),
                Err(_) => ask::<Vec<LibraryReport>>(LibraryProbe::AnyCompiler, libraries, limits),
            };
            let (mut lost, runtime_lost) = (0, runtime.is_err());
            let mut known = |answer: Result<LibraryReport, ProbeError>, what| {
                answer.unwrap_or_else(|error| {
                    lost += 1;
                    error.report(what)
                })
            };
            let runtime = match runtime {
                Ok(answer) => answer,
                Err(error) => {
                    let without = Some(error.to_string());
                    let export = Err(error.to_string());
                    let driver = known(Err(error), "GPU runtime");
                    RuntimeAnswer { driver, without, export, copies: None }
                }
            };
            let compilers =
                compilers.unwrap_or_else(|error| vec![known(Err(error), "run-time compiler")]);
            let direct = direct().unwrap_or_else(|error| {
                let what = family.caps().direct_library;
                DirectAnswer { report: known(Err(error), what), notes: Vec::new() }
            });
            survey.add_management(management());
            let states =
                survey.management.iter().flat_map(|answer| answer.states.clone()).collect();
            let (management, managed) = match &survey.management {
                Ok(answer) => {
                    let managed = (answer.gpus, answer.warnings.clone());
                    (answer.report.clone(), answer.report.path.is_some().then_some(managed))
                }
                Err(error) => (known(Err(error.clone()), "GPU management (NVML)"), None),
            };
            let others =
                others().unwrap_or_else(|error| vec![known(Err(error), "the other GPU runtime")]);
            let (rdma, registers_dmabuf) = match rdma() {
                Ok(AdapterAnswer { report, dmabuf }) => (Ok(report), dmabuf),
                Err(error) => (Err(error), None),
            };
            let between = [known(mpi(), "MPI"), known(ucx(), "UCX"), known(rdma, "libibverbs")];
            let collectives = collectives_libraries(runtime.driver.path.as_deref());
            let found = Self {
                runtime,
                compilers,
                management,
                managed,
                states,
                others,
                collectives,
                between,
                direct,
                registers_dmabuf,
                lost,
                runtime_lost,
            };
            (found, opened.and_then(|wait| wait().ok()))
        })
    }

    /// Whether something is missing that GPUs need to be measured by engines and kernels.
    fn lacks_needed(&self) -> bool {
        let mut needed = std::iter::once(&self.runtime.driver).chain(&self.compilers);
        needed.any(|library| library.path.is_none())
    }

    fn has_mpi(&self) -> bool {
        let [mpi, ..] = &self.between;
        mpi.path.is_some()
    }

    fn print(&self, topology: &Topology, brief: bool) {
        library(&self.runtime.driver, brief);
        self.runtime.copies.iter().for_each(|rule| outln!("    {rule}"));
        self.compilers.iter().for_each(|found| library(found, brief));
        // Nothing is unmeasured without it: it is shown and does not decide.
        library(&self.management, !topology.any_gpu(|caps| caps.management_library.is_some()));
        if let Some((gpus, warnings)) = &self.managed {
            outln!("    reads {}", count(*gpus, "GPU"));
            warnings.iter().for_each(|warning| outln!("    warning: {warning}"));
        }
        self.others.iter().for_each(library_of_others);
        // Runs of one process need none of these.
        for found in self.collectives.iter().chain(&self.between) {
            let lost =
                if found.path.is_none() { format!(": {}", found.costs) } else { String::new() };
            print_library(found, true, &lost);
        }
    }
}

/// The answer of the child that opened this host, and its lines.
type OpenedHost = (Result<HostAnswer, ProbeError>, Vec<String>);

/// Prints what a child finds that opens this host with its GPUs, unless the runtime is known to be lost: one that
/// has answered, or one that runs checks now. What came of it, and whether the child was lost.
fn machine(
    args: &DoctorArgs,
    found: &Findings,
    opened: Option<OpenedHost>,
    limits: ProbeLimits,
) -> (HostAnswer, bool) {
    let without = |why: String| HostAnswer { without: Some(why), ..HostAnswer::default() };
    if let Some(why) = found.runtime.without.as_ref().filter(|_| found.runtime_lost) {
        return (without(why.clone()), true);
    }
    let (probe, limits) = match args.conformance {
        true => (LibraryProbe::Conformance, CONFORMANCE),
        false => (LibraryProbe::Machine, limits),
    };
    let (answer, lines) = opened.unwrap_or_else(|| {
        let mut show = |line: &str| outln!("{line}");
        (ask_and_show(probe, &args.libraries.choice(), limits, &mut show), Vec::new())
    });
    lines.iter().for_each(|line| outln!("{line}"));
    match answer {
        Ok(answer) => (answer, false),
        Err(error) => (without(error.to_string()), true),
    }
}

/// Prints whether the MPI here takes memory of this machine's GPUs, and how that is known.
fn device_memory(args: &DoctorArgs) {
    match ask::<Option<String>>(LibraryProbe::DeviceMemory, &args.libraries.choice(), LAUNCHES) {
        Ok(line) => line.iter().for_each(|line| outln!("{line}")),
        Err(error) => outln!("MPI: whether it takes device memory is unknown: {error}"),
    }
}

/// A library that this machine's GPUs have no use for.
fn library_of_others(found: &LibraryReport) {
    print_library(found, true, "; not needed here");
}

fn library(found: &LibraryReport, brief: bool) {
    print_library(found, brief, "");
}

/// `more` ends the first line.
fn print_library(found: &LibraryReport, brief: bool, more: &str) {
    let absent = |tried: &TriedPlace| tried.why.contains("No such file");
    let what = &found.what;
    match &found.path {
        Some(path) if found.version.is_empty() => {
            outln!("{OK} {what}: {}{more}", path.display());
        }
        Some(path) => outln!("{OK} {what}: {} ({}){more}", found.version, path.display()),
        // What this machine has no use for is not missing.
        None if found.tried.iter().all(absent) && brief => outln!("{NONE} {what}: not found{more}"),
        None if found.tried.iter().all(absent) => outln!("{MISSING} {what}: not found{more}"),
        None => outln!("{BROKEN} {what}: unusable{more}"),
    }
    found.notes.iter().for_each(|note| outln!("    {note}"));
    if found.path.is_none() && !brief {
        outln!("    so:      {}", found.costs);
        outln!("    do this: {}", found.way_out);
    }
    // Names that the linker does not know are of no interest once another is found.
    let (names, files): (Vec<_>, Vec<_>) =
        found.tried.iter().partition(|tried| !tried.place.is_absolute() && absent(tried));
    for tried in files {
        outln!("    not {}: {}", tried.place.display(), tried.why);
    }
    let names: Vec<String> = names.iter().map(|tried| tried.place.display().to_string()).collect();
    if found.path.is_none() && !brief && !names.is_empty() {
        outln!("    the linker does not find {}", names.join(", "));
    }
}

/// Prints the folders for files. Makes none.
fn folders() {
    match kernel_cache() {
        Some(folder) => outln!("{}", kernel_folder(&folder)),
        None => outln!("compiled kernels are not kept: neither HOME nor XDG_CACHE_HOME is set"),
    }
    match writable(&std::env::temp_dir()) {
        Ok(()) => outln!("temporary files go to {}", std::env::temp_dir().display()),
        Err(why) => outln!("TMPDIR: {why}; hipRTC needs it to compile"),
    }
}

/// Whether compiled kernels can be kept in a folder, which the first of them makes.
fn kernel_folder(folder: &Path) -> String {
    let not_kept =
        |why: &str| format!("compiled kernels are not kept: {why}; each run compiles them again");
    if folder.is_dir() {
        return match writable(folder) {
            Ok(()) => {
                format!("compiled kernels are kept in {}{}", folder.display(), kept(folder))
            }
            Err(why) => not_kept(&why),
        };
    }
    let Some(base) = cache_base(folder).filter(|base| base.is_dir()) else {
        let base = cache_base(folder).unwrap_or(folder).display();
        return not_kept(&format!("{base} is not there (HOME or XDG_CACHE_HOME names it)"));
    };
    let nearest = folder.ancestors().find(|f| f.exists()).unwrap_or(base);
    match rustix::fs::access(nearest, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        Ok(()) => format!("compiled kernels will be kept in {}", folder.display()),
        Err(error) => not_kept(&format!("{} cannot be written: {error}", nearest.display())),
    }
}

/// Number of files in a folder.
fn kept(folder: &Path) -> String {
    match std::fs::read_dir(folder).map(Iterator::count) {
        Ok(files) => format!(" ({files} so far)"),
        Err(_) => String::new(),
    }
}
