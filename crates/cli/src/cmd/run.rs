//! `pathline run`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::Parser as _;
use pathline_bench::{
    BestKernel, CaseChooser, Executor, JournalFile, JournalSession, LocalExecutor, MachineInfo,
    PlanScope, RunHeader, RunPlan, SearchStamp, TimerScope, TunedKernels, searches, tune,
};
use pathline_flow::Network;
use pathline_gpu::RuntimeFamily;
use pathline_runner::{
    CleanupNote, HostMachine, MachineChoice, ModelVariants, NoWorker, OpenMachine, RankJob,
    RankKeeper, RunRequest, StoreCleanup, StorePlaces, WorkerExecutor, find_on_path, hostname,
    joined, keep, switches,
};
use pathline_schema::{Journal, Ns, RunEnd, RunNote, Topology, WorldKind, mask_urls};

use super::report::{RenderedRun, SummaryForm};
use super::{ExitKind, hide_other_gpus, plan, report, resume, suites};
use crate::adaptive::{self, AdaptiveChooser};
use crate::args::{Requirement, RunArgs};
use crate::progress::{RunProgress, StopRequest};
use crate::say::{self, HOOKS, errln, out, outln};
use crate::{files, kernels};

/// Time limit of a quick run, seconds.
const QUICK_LIMIT: f64 = 30.0;

/// Runs cases for another command: shows neither progress nor summary.
pub(super) fn run_silently(words: &[&str]) -> Result<ExitKind> {
    let args = RunArgs::try_parse_from(words)?;
    say::set_silent(true);
    let ended = run(args);
    say::set_silent(false);
    ended
}

pub(super) fn run(args: RunArgs) -> Result<ExitKind> {
    let begun = Instant::now();
    let mut args = resume::arguments(args)?;
    hide_other_gpus(args.select.gpus.as_ref(), args.select.machine.as_ref())?;
    if args.list {
        return suites::run(&args);
    }
    if args.dry_run {
        return plan::run(&args);
    }
    if args.quick {
        // What is left of the time is for opening the machine and the report.
        args.time_limit = args.time_limit.or(Some(QUICK_LIMIT));
    }
    args.select.check_stores()?;
    args.libraries.check_runtime()?;
    let joined = match args.select.machine {
        None => joined(args.rendezvous.as_deref())?,
        Some(_) => None,
    };
    if let Some((launched, RankJob::Joined { at, .. })) = &joined
        && launched.rank > 0
    {
        // Rank 0 has the journal and the last word.
        let done = keep(at, &host_of(&args), HOOKS)?;
        return Ok(if done { ExitKind::Fine } else { ExitKind::Unusable });
    }
    let journal = args.resume.as_deref().map(resume::open_journal).transpose()?;
    if joined.is_some() && args.sampling.repeat > 1 {
        return Err(anyhow!(
            "--repeat starts new processes, and a launcher started these: start it several times \
             without --repeat, and give all journals to `pathline diff BEFORE... -- AFTER...`"
        ));
    }
    let job = job(&args, joined.map(|(_, job)| job))?;
    // It outlives the coordinating process, which may have to be replaced.
    let _first = first_rank(job.as_ref(), &args)?;
    let stopper = StopRequest::new(begun, args.time_limit);
    let request = args.request(job)?;
    if let Some(out) = &args.out {
        files::check_folder(out, request.machine.model().map(|model| model.text()))?;
    }
    let switches = switches();
    let tuned = RefCell::new(None);
    let mut start =
        RunStart { args, stopper, switches, request, journal: Cell::new(journal), tuned };
    let measured = measure_repeats(&mut start)?;
    report(&start.args, &measured)
}

/// Measures all repeats, each in new processes (a model: in a new machine), into one journal.
fn measure_repeats(start: &mut RunStart) -> Result<RunResult> {
    let repeats = start.args.sampling.repeat;
    let mut measured: Option<RunResult> = None;
    for repeat in 0..repeats {
        let last = repeat + 1 == repeats;
        if let Some(earlier) = &measured {
            if start.stopper.interrupted() {
                break;
            }
            // From now until its end this repeat has the journal for itself.
            start.journal.set(Some(resume::open_journal(&earlier.journal)?));
        }
        let journal = start.journal.take();
        let is_complete = journal.as_ref().is_some_and(|(_, journal)| {
            journal.repeats.iter().any(|r| r.repeat == repeat && r.complete)
        });
        start.journal.set(journal);
        if is_complete && !last {
            continue;
        }
        start.request.repeat = repeat;
        start.stopper.begin_repeat(repeat, repeats);
        if repeats > 1 && !say::is_quiet() {
            errln!("pathline: repeat {} of {repeats}", repeat + 1);
        }
        let found = measured.take().and_then(|m| m.found);
        let result = measure_once(start)?;
        measured = Some(RunResult { found: found.or(result.found), ..result });
    }
    measured.ok_or_else(|| anyhow!("--repeat 0 measures nothing"))
}

fn measure_once(start: &RunStart) -> Result<RunResult> {
    match &start.request.machine {
        MachineChoice::Model(_) if !start.args.worker => measure_here(start, None),
        MachineChoice::Model(_) => measure_in_worker(start, &StorePlaces::default()),
        MachineChoice::Host(host) => measure_in_worker(start, &host.stores),
    }
}

fn measure_in_worker(start: &RunStart, stores: &StorePlaces) -> Result<RunResult> {
    let interrupt = || start.stopper.reason();
    let (leftovers, notes) = StoreCleanup::of_earlier(stores, &interrupt);
    let print = |notes: Vec<CleanupNote>| {
        for note in notes {
            match note {
                CleanupNote::Removed(text) if !say::is_quiet() => errln!("pathline: {text}"),
                CleanupNote::Removed(_) => {}
                CleanupNote::Failed(text) => errln!("pathline: {text}"),
            }
        }
    };
    print(notes);
    let mut worker = match WorkerExecutor::open(start.request.clone(), &interrupt) {
        Ok(worker) => worker,
        // The host can be measured without another process.
        Err(NoWorker::Spawn(error)) => {
            let why = format!("no worker process can be started ({error}); see `ulimit -u`");
            let is_host = start.request.machine.model().is_none();
            let measured = measure_here(start, is_host.then_some(why));
            print(leftovers.of_this(&interrupt));
            return measured;
        }
        Err(NoWorker::Open(why)) => {
            return Err(anyhow!("this machine cannot be opened: {why}"));
        }
        Err(NoWorker::Interrupted) => {
            return Err(anyhow!("interrupted before anything was measured"));
        }
    };
    let measured = measure(start, &mut worker);
    // It gives back its memory, files and devices before the report is made.
    drop(worker);
    print(leftovers.of_this(&interrupt));
    measured
}

/// Measures in this process: a model, which cannot crash it, or this host without the GPUs.
fn measure_here(start: &RunStart, without: Option<String>) -> Result<RunResult> {
    let OpenMachine { machine, without, .. } = start.request.open(&start.switches, without)?;
    let about = MachineInfo::of(&machine, without, TimerScope::All);
    let settings = start.request.settings_on(&about.topology);
    let variants = ModelVariants::open(&start.request, &start.switches)?;
    let main = LocalExecutor::new(&machine, about.clone(), settings);
    match &variants {
        Some(variants) => measure(start, &mut variants.executor(main, &about, settings)),
        None => measure(start, &mut { main }),
    }
}

/// The inputs of a run.
struct RunStart {
    args: RunArgs,
    stopper: StopRequest,
    switches: BTreeMap<String, String>,
    /// The machine, and how it is measured.
    request: RunRequest,
    /// The journal to continue. No other run can, from before the machine is opened.
    journal: Cell<Option<(JournalFile, Journal)>>,
    /// The kernels of the first repeat, which all others take.
    tuned: RefCell<Option<TunedKernels>>,
}

/// The processes of a run: started by a launcher, or requested by `--ranks`.
fn job(args: &RunArgs, joined: Option<RankJob>) -> Result<Option<RankJob>> {
    match (joined, args.sampling.ranks) {
        (Some(joined), None) => Ok(Some(joined)),
        (Some(joined), Some(_)) => Err(anyhow!(
            "--ranks and {} processes of a launcher exclude each other: leave one of the two out",
            joined.count()
        )),
        (None, asked) => {
            let count = args.select.own_ranks(asked);
            let nodes = args.sampling.nodes;
            let launcher = args.sampling.mpirun.clone();
            if let Some(name) = launcher.as_ref().filter(|name| !is_program(name)) {
                let name = name.display();
                return Err(anyhow!(
                    "--mpirun {name}: there is no such program; load the module of an MPI, or name the \
                     file of its mpirun (`pathline doctor` lists what is found)"
                ));
            }
            let job = match launcher {
                Some(program) => RankJob::Launched { count, program },
                None => RankJob::Own { count, nodes },
            };
            Ok((count > 0).then_some(job))
        }
    }
}

/// Whether a shell would find a program, by its path or its name alone.
fn is_program(name: &Path) -> bool {
    let is_bare = name.components().count() == 1;
    name.is_file() || (is_bare && find_on_path(&name.to_string_lossy()).is_some())
}

/// The rank of a launched job that has this process's place in it.
fn first_rank(job: Option<&RankJob>, args: &RunArgs) -> Result<Option<RankKeeper>> {
    let Some(RankJob::Joined { at, .. }) = job else { return Ok(None) };
    RankKeeper::start(at, &host_of(args)).map(Some)
}

/// The use of this host by the ranks of a run.
fn host_of(args: &RunArgs) -> HostMachine {
    HostMachine { libraries: args.libraries.choice(), stores: args.select.stores.places() }
}

/// The result of a run: its journal.
struct RunResult {
    journal: PathBuf,
    /// The physics that figures are compared with.
    network: Network,
    /// The result of a search for kernels, and its file.
    found: Option<TuneResult>,
}

/// Winners of a search, and where they are remembered; nowhere if they are a model's.
struct TuneResult {
    best: Vec<BestKernel>,
    kept: Option<Result<PathBuf, String>>,
}

/// The kernels of a run.
struct RunKernels {
    tuned: TunedKernels,
    found: Option<TuneResult>,
}

/// The kernels that suites take: those of the first repeat, of the resumed run, or remembered ones; with
/// `--tune` the result of a new search.
fn kernels_for(start: &RunStart, executor: &mut dyn Executor) -> Result<RunKernels> {
    let RunStart { args, stopper, .. } = start;
    if let Some(tuned) = start.tuned.borrow().clone() {
        return Ok(RunKernels { tuned, found: None });
    }
    let mut tuned = if args.select.standard_kernels {
        TunedKernels::plain()
    } else if let Some(run) = &args.resume {
        kernels::of_run(files::journal_path(run).parent().unwrap_or(Path::new("")))
    } else if start.request.machine.model().is_some() {
        TunedKernels::known()
    } else {
        kernels::remembered()
    };
    if !args.tune {
        return Ok(RunKernels { tuned, found: None });
    }
    let about = executor.about().clone();
    let plain = TunedKernels::plain();
    let scope = scope(start, &about, &plain);
    let stamp = SearchStamp { date: now(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let (all, mut best) = (searches(&scope), Vec::new());
    tune(executor, &scope, &mut tuned, &stamp, &|| stopper.reason(), &mut |found| {
        best.push(found.clone());
        if !say::is_quiet() {
            errln!("{}/{all}  {}", best.len(), kernels::line(found));
        }
    })
    .context("the search for kernels ended early")?;
    // Libraries that stand in for a runtime are a model, too.
    let real = about.world == WorldKind::Real;
    let kept = (real && !best.is_empty()).then(|| kernels::remember(&best));
    Ok(RunKernels { tuned, found: Some(TuneResult { best, kept }) })
}

/// The facts about an open machine that a plan needs.
fn scope<'a>(
    start: &'a RunStart,
    about: &'a MachineInfo,
    tuned: &'a TunedKernels,
) -> PlanScope<'a> {
    let memory = start.request.settings_on(&about.topology).memory;
    let draw = start.args.select.draw();
    let (all_pairs, messages) = (start.args.select.all_pairs, start.args.select.messages.grid());
    PlanScope { env: &start.switches, tuned, draw, all_pairs, messages, ..about.scope(memory) }
}

/// Now, RFC 3339 in UTC, to the second.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Plans and measures.
fn measure(start: &RunStart, executor: &mut dyn Executor) -> Result<RunResult> {
    let RunStart { args, stopper, switches, request, .. } = start;
    let about = executor.about().clone();
    let name = request.machine.name(&about.topology);
    let network = request.machine.network(&about.topology, switches)?;
    let RunKernels { tuned, found } = kernels_for(start, executor)?;
    start.tuned.replace(Some(tuned.clone()));
    let mut plan = plan_for(&scope(start, executor.about(), &tuned), args, name)?;
    let stated = args.sampling.case_budget.map(Ns::ms);
    if let Some(budget) = stated.or(args.select.adaptive.then_some(adaptive::CASE_BUDGET)) {
        plan = plan.with_probe_budget(budget);
    }
    let model = request.machine.model();
    if model.is_some() {
        // A model gives each case what it needs, except what the user has set.
        plan = plan.with_refused_settings(&executor.about().topology, switches);
    } else {
        plan = plan.with_environments(&executor.about().topology, switches);
        if let Some(RankJob::Joined { count, by, .. }) = &request.job {
            plan = plan.with_launched_ranks(&launch_command(by, *count), &command_line());
        }
    }
    let header = RunHeader {
        host: hostname(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        repeat: request.repeat,
        command: command_line(),
        machine_sha256: model.map(|model| model.sha256()),
        env: switches.clone(),
        settings: request.settings_on(&about.topology),
    };
    let named = !args.select.suites().is_empty() || !args.select.cases()?.is_empty();
    let unmet = Requirement::to_planner(args.require).unmet(executor.about(), &plan, named);
    // Of a default run the report names what this machine lacks.
    let is_first = args.resume.is_none() && request.repeat == 0 && unmet.is_none();
    if let Some(why) = plan.why_nothing().filter(|_| named && is_first) {
        return Err(anyhow!("nothing can be measured on {name}: {why}"));
    }
    let (session, is_new) = open(start, executor.about(), &header.host, name)?;
    let session = session.with_note(unmet.filter(|_| request.repeat == 0));
    let ignored = model.and_then(|_| ignored_setting(&about.topology, switches));
    let session = session.with_note(ignored.filter(|_| is_new && request.repeat == 0));
    let chooser = args.select.adaptive.then(|| -> Box<dyn CaseChooser> {
        Box::new(AdaptiveChooser::new(&plan, &scope(start, executor.about(), &tuned)))
    });
    let session = session.with_chooser(chooser);
    let journal = session.path().to_owned();
    if session.has_nothing_left(&plan) {
        errln!("pathline: {}: complete, nothing to resume", journal.display());
        return Ok(RunResult { journal, network, found });
    }
    if let Some(why) = session.unlocked() {
        errln!(
            "pathline: {}: this file system has no locks ({why}): see that no other run goes on with \
             this journal meanwhile",
            journal.display()
        );
    }
    if let Some(model) = model.filter(|_| is_new) {
        files::create(&journal.with_file_name(files::MACHINE), model.text())?;
    }
    if is_new && !tuned.best().is_empty() {
        files::create(&journal.with_file_name(kernels::KERNELS), &tuned.text())?;
    }
    let mut progress = RunProgress::new(plan.entries.len(), session.done(), say::is_quiet());
    let end: Result<RunEnd> = session
        .run(executor, &plan, header, &now, &|| stopper.reason(), &mut |event| {
            progress.show(event);
        })
        .context("the run ended early; what was measured is in its journal");
    progress.end();
    end?;
    Ok(RunResult { journal, network, found })
}

/// That variables which choose GPUs are set, and a model has all GPUs of its description.
fn ignored_setting(topology: &Topology, set: &BTreeMap<String, String>) -> Option<RunNote> {
    let here = |family: &RuntimeFamily| topology.gpus.iter().any(|gpu| gpu.vendor == family.vendor);
    let hiding = RuntimeFamily::ALL.into_iter().filter(here).flat_map(|family| family.hiding);
    let names: Vec<&str> = hiding.copied().filter(|name| set.contains_key(*name)).collect();
    let names = names.join(", ");
    (!names.is_empty()).then(|| RunNote {
        code: "ignored-setting".to_owned(),
        subject: "run".to_owned(),
        text: format!("{names}: a simulated machine has all GPUs of its description"),
    })
}

fn report(args: &RunArgs, measured: &RunResult) -> Result<ExitKind> {
    let RunResult { journal: path, network, found } = measured;
    let journal = files::read(path)?;
    let page = files::page_path(path);
    let form = SummaryForm { full: say::is_full(), colour: say::colour() };
    let RenderedRun { page: html, summary, verdict, exit } =
        report::render_run(&journal, network, path, form);
    files::write_page(&page, &html).context(
        "the run is in its journal, its report is not written; `pathline report` or another --out writes it",
    )?;
    if args.json {
        out!("{}", report::json_of_run(&journal, network, path)?);
    } else if say::is_quiet() && exit != ExitKind::Fine {
        errln!("pathline: {verdict} ({})", page.display());
    } else if !say::is_quiet() {
        say::page(&summary);
        if let Some(TuneResult { best, kept }) = found {
            kernels::summary(best, kept.as_ref());
        }
        outln!("\n{} · {}", page.display(), path.display());
        if !journal.is_complete() {
            outln!("this run was cut; `pathline run --resume {}` goes on", resume::name_of(path));
        }
    }
    Ok(exit)
}

fn plan_for(scope: &PlanScope<'_>, args: &RunArgs, name: &str) -> Result<RunPlan> {
    let mut plan = plan::make_in(scope, &args.select)?;
    if args.quick {
        plan = plan.quick();
        if plan.entries.is_empty() {
            let taken = "copies between the memories of one process";
            return Err(anyhow!("--quick takes {taken}, and this run has none: leave it out"));
        }
    }
    let suites = args.select.suites();
    if plan.entries.is_empty() && !suites.is_empty() {
        let why = plan.missing_suites(scope, &suites).join("; ");
        return Err(anyhow!("nothing to measure on {name}: {why}"));
    }
    Ok(plan)
}

/// How processes of a launcher are started, for commands that a user may copy.
fn launch_command(by: &str, ranks: u32) -> String {
    let program = match by {
        "Slurm" => "srun",
        "Flux" => "flux run",
        "JSM" => "jsrun",
        "PALS" => "mpiexec",
        _ => "mpirun",
    };
    format!("{program} -n {ranks}")
}

/// The words of this command as they are recorded.
pub(super) fn command_line() -> Vec<String> {
    let mut words: Vec<String> =
        std::env::args_os().map(|a| mask_urls(&a.to_string_lossy()).into_owned()).collect();
    if let Some(program) = words.first_mut() {
        *program = "pathline".to_owned();
    }
    words
}

/// The journal to write to, and whether it is a new one.
fn open(
    start: &RunStart,
    about: &MachineInfo,
    host: &str,
    name: &str,
) -> Result<(JournalSession, bool)> {
    if let Some((file, journal)) = start.journal.take() {
        let repeat = start.request.repeat;
        return Ok((JournalSession::resume(file, journal, about, host, repeat)?, false));
    }
    let folder = files::new_folder(start.args.out.as_deref(), name)?;
    Ok((JournalSession::create(&folder.join(files::JOURNAL))?, true))
}
