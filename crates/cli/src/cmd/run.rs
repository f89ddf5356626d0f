//! `pathline run`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pathline_bench::{
    BestKernel, Executor, JournalFile, JournalSession, LocalExecutor, MachineInfo, PlanScope,
    RandomDraw, RunHeader, RunPlan, SearchStamp, TimerScope, TunedKernels, default_settings,
    searches, tune,
};
use pathline_explain::judge::judge;
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_hal::Machine;
use pathline_schema::{Bytes, Journal, Ns, RunEnd, RunSettings};

use super::report::RenderedRun;
use super::{ExitKind, colour, plan, report, resume};
use crate::args::{LibraryArgs, Requirement, RunArgs};
use crate::leftovers::StoreCleanup;
use crate::progress::{RunProgress, StopRequest};
use crate::ranks::{self, Keeper, RankJob};
use crate::say::{self, errln, outln};
use crate::worker::{MachineOpening, NoWorker, WorkerExecutor};
use crate::world::{
    CommandWorld, OpenWorld, SimSpread, describe, description_hash, half_of_free, without_gpus,
};
use crate::{env, files, kernels};

pub(super) fn run(args: RunArgs) -> Result<ExitKind> {
    let begun = Instant::now();
    let args = resume::arguments(args)?;
    args.select.check_stores()?;
    let joined = match args.select.machine {
        None => ranks::joined(args.rendezvous.as_deref())?,
        Some(_) => None,
    };
    if let Some((launched, RankJob::Joined { at, .. })) = &joined
        && launched.rank > 0
    {
        // Rank 0 has the journal and the last word.
        let done = ranks::keep(at, &args.libraries)?;
        return Ok(if done { ExitKind::Fine } else { ExitKind::Unusable });
    }
    let journal = args.resume.as_deref().map(resume::open_journal).transpose()?;
    let job = job(&args, joined.map(|(_, job)| job))?;
    // It outlives the process that conducts, which may have to be replaced.
    let _first = first_rank(job.as_ref(), &args.libraries)?;
    let stopper = StopRequest::new(begun, args.time_limit);
    let model = args.select.machine.as_deref().map(describe).transpose()?;
    if let Some(out) = &args.out {
        files::check_folder(out, model.as_ref().map(|(_, text)| text.as_str()))?;
    }
    let journal = Cell::new(journal);
    let start = RunStart { stopper, switches: env::switches(), model, job, journal, args };
    if start.model.is_some() && !start.args.worker {
        return run_here(&start);
    }
    let args = &start.args;
    let leftovers = StoreCleanup::of_earlier(&args.select.stores, args.quiet);
    let opened = WorkerExecutor::open(start.opening(), settings(args), start.limit(), &|| {
        start.stopper.reason()
    });
    let mut worker = match opened {
        Ok(worker) => worker,
        Err(NoWorker::Spawn(error)) => return run_without_worker(&start, &error, leftovers),
        Err(NoWorker::Open(why)) => return Err(anyhow!("this machine cannot be opened: {why}")),
        Err(NoWorker::Interrupted) => {
            return Err(anyhow!("interrupted before anything was measured"));
        }
    };
    let settings = start.settings(worker.about());
    worker.set_memory(settings.memory);
    let network = start.network(worker.about())?;
    let measured = measure(&start, settings, &mut worker);
    // It gives back its memory, files and devices before the report is made.
    drop(worker);
    leftovers.of_this();
    report(&start.args, &measured?, &network)
}

/// A model runs in this process: it cannot crash it, and is done before another one is started.
fn run_here(start: &RunStart) -> Result<ExitKind> {
    let world = CommandWorld::new(start.args.select.machine.as_deref(), &start.args.libraries)?;
    let OpenWorld { machine, without, network } =
        world.open(&start.switches, spread(&start.args))?;
    measure_on(start, &machine, without, &network)
}

/// Where no process can be started, there is still what needs none: the host.
fn run_without_worker(
    start: &RunStart,
    error: &io::Error,
    leftovers: StoreCleanup,
) -> Result<ExitKind> {
    let machine = without_gpus(&start.args.select.stores);
    let why = format!("no worker process can be started ({error}); see `ulimit -u`");
    let network = Network::from_topology(&machine.topology);
    let exit = measure_on(start, &machine, Some(why), &network);
    drop(machine);
    leftovers.of_this();
    exit
}

fn measure_on(
    start: &RunStart,
    machine: &Machine,
    without: Option<String>,
    network: &Network,
) -> Result<ExitKind> {
    let about = MachineInfo::of(machine, without, TimerScope::All);
    let settings = start.settings(&about);
    let mut crew = LocalExecutor::new(machine, about, settings);
    let measured = measure(start, settings, &mut crew)?;
    report(&start.args, &measured, network)
}

/// What a run is begun with.
struct RunStart {
    args: RunArgs,
    stopper: StopRequest,
    switches: BTreeMap<String, String>,
    /// Description of a model, with its text.
    model: Option<(MachineDesc, String)>,
    /// The processes that measure together, if there are several.
    job: Option<RankJob>,
    /// The journal to go on with. No other run can, from before the machine is opened.
    journal: Cell<Option<(JournalFile, Journal)>>,
}

/// The processes of a run: those that a launcher started, or those that are asked for.
fn job(args: &RunArgs, joined: Option<RankJob>) -> Result<Option<RankJob>> {
    match (joined, args.ranks) {
        (Some(joined), None) => Ok(Some(joined)),
        (Some(joined), Some(_)) => Err(anyhow!(
            "--ranks beside {} processes that a launcher started: leave one of the two out",
            joined.count()
        )),
        (None, asked) => Ok(asked.map(|count| RankJob::Own { count })),
    }
}

/// The rank of a launched job that has this process's place in it.
fn first_rank(job: Option<&RankJob>, libraries: &LibraryArgs) -> Result<Option<Keeper>> {
    let Some(RankJob::Joined { at, .. }) = job else { return Ok(None) };
    Keeper::start(at, libraries).map(Some)
}

impl RunStart {
    /// Name of the machine.
    fn name(&self, about: &MachineInfo) -> String {
        match &self.model {
            Some((desc, _)) => desc.name.clone(),
            None => about.topology.host.hostname.clone(),
        }
    }

    fn settings(&self, about: &MachineInfo) -> RunSettings {
        let memory = self.args.select.memory.unwrap_or_else(|| half_of_free(&about.topology));
        RunSettings { memory, ..settings(&self.args) }
    }

    /// How long a step may take, if that was said.
    fn limit(&self) -> Option<Duration> {
        self.args.case_deadline.map(Duration::from_secs_f64)
    }

    /// The physics that figures are held against.
    fn network(&self, about: &MachineInfo) -> Result<Network> {
        match &self.model {
            Some((desc, _)) => Ok(Network::new(desc, RuntimeEnv::from_env(&self.switches))?),
            None => Ok(Network::from_topology(&about.topology)),
        }
    }

    fn opening(&self) -> MachineOpening {
        let name = self.args.select.machine.clone().unwrap_or_default();
        MachineOpening {
            parent: std::process::id(),
            model: self.model.as_ref().map(|(_, text)| (name, text.clone())),
            spread: spread(&self.args),
            job: self.job.clone(),
            limit: self.limit(),
            stores: self.args.select.stores.clone(),
            libraries: self.args.libraries.clone(),
            without: None,
            // Where ranks have the GPUs, this process touches one only for a case that needs it.
            overhead: if self.job.is_some() { TimerScope::Host } else { TimerScope::All },
            inject: self.args.inject.clone(),
        }
    }
}

/// What was measured: the journal of the run, and how it ended.
struct RunResult {
    journal: PathBuf,
    end: RunEnd,
    /// What was searched for, and where it is remembered.
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

/// The kernels that suites take: those of the run that is gone on with, or what is remembered,
/// searched for anew if that is asked for.
fn kernels_for(start: &RunStart, memory: Bytes, crew: &mut dyn Executor) -> Result<RunKernels> {
    let RunStart { args, stopper, switches, model, .. } = start;
    let mut tuned = if args.select.standard_kernels {
        TunedKernels::plain()
    } else if let Some(run) = &args.resume {
        kernels::of_run(files::journal_path(run).parent().unwrap_or(Path::new("")))
    } else if model.is_some() {
        TunedKernels::known()
    } else {
        kernels::remembered()
    };
    if !args.tune {
        return Ok(RunKernels { tuned, found: None });
    }
    let about = crew.about().clone();
    let plain = TunedKernels::plain();
    let scope = scope(&about, memory, switches, &plain, args.select.draw());
    let stamp = SearchStamp { date: env::now(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let (all, mut best) = (searches(&scope), Vec::new());
    tune(crew, &scope, &mut tuned, &stamp, &|| stopper.reason(), &mut |found| {
        best.push(found.clone());
        if !args.quiet {
            errln!("{}/{all}  {}", best.len(), kernels::line(found));
        }
    })
    .context("the search for kernels ended early")?;
    // Libraries that stand in for a runtime are a model, too.
    let real = about.world == pathline_schema::WorldKind::Real;
    let kept = (real && !best.is_empty()).then(|| kernels::remember(&best));
    Ok(RunKernels { tuned, found: Some(TuneResult { best, kept }) })
}

/// What a plan needs to know of an open machine.
fn scope<'a>(
    about: &'a MachineInfo,
    memory: Bytes,
    switches: &'a BTreeMap<String, String>,
    tuned: &'a TunedKernels,
    draw: RandomDraw,
) -> PlanScope<'a> {
    PlanScope {
        topology: &about.topology,
        simulated: about.world != pathline_schema::WorldKind::Real,
        without_runtime: about.without.as_deref(),
        memory,
        env: switches,
        tuned,
        draw,
        ranks: &about.ranks,
        stores: &about.stores,
    }
}

/// Plans and measures.
fn measure(start: &RunStart, settings: RunSettings, crew: &mut dyn Executor) -> Result<RunResult> {
    let RunStart { args, stopper, switches, model, .. } = start;
    let name = start.name(crew.about());
    let RunKernels { tuned, found } = kernels_for(start, settings.memory, crew)?;
    let mut plan = {
        let scope = scope(crew.about(), settings.memory, switches, &tuned, args.select.draw());
        plan_for(&scope, args, &name)?
    };
    if let Some(budget) = args.case_budget {
        plan = plan.with_probe_budget(Ns::ms(budget));
    }
    if model.is_none() {
        // A model gives each case what it needs.
        plan = plan.with_environments(&crew.about().topology, switches);
    }
    let header = RunHeader {
        host: env::hostname(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        command: command_line(),
        machine_sha256: model.as_ref().map(|(_, text)| description_hash(text)),
        env: switches.clone(),
        settings,
    };
    let named = !args.select.suite.is_empty() || !args.select.case.is_empty();
    let unmet = Requirement::of(args.require).unmet(crew.about(), &plan, named);
    let session = open(start, crew.about(), &header.host, &name)?.with_note(unmet);
    let journal = session.path().to_owned();
    if let Some(why) = session.unlocked() {
        errln!(
            "pathline: {}: this file system has no locks ({why}): see that no other run goes on with \
             this journal meanwhile",
            journal.display()
        );
    }
    if let Some((_, text)) = model.as_ref().filter(|_| args.resume.is_none()) {
        files::create(&journal.with_file_name(files::MACHINE), text)?;
    }
    if args.resume.is_none() && !tuned.best().is_empty() {
        files::create(&journal.with_file_name(kernels::KERNELS), &tuned.text())?;
    }
    let mut progress = RunProgress::new(plan.entries.len(), session.done(), args.quiet);
    let end = session
        .run(crew, &plan, header, &env::now, &|| stopper.reason(), &mut |event| {
            progress.show(event);
        })
        .context("the run ended early; what was measured is in its journal");
    progress.end();
    Ok(RunResult { journal, end: end?, found })
}

fn report(args: &RunArgs, measured: &RunResult, network: &Network) -> Result<ExitKind> {
    let RunResult { journal: path, end, found } = measured;
    let journal = files::read(path)?;
    let page = files::page_path(path);
    let colour = colour(args.color);
    let RenderedRun { page: html, summary } = report::render_run(&journal, network, colour);
    files::write_page(&page, &html).context(
        "the run is in its journal, its report is not written; `pathline report` or another --out writes it",
    )?;
    if !args.quiet {
        say::page(&summary, colour);
        if let Some(TuneResult { best, kept }) = found {
            kernels::summary(best, kept.as_ref());
        }
        outln!("\n{} · {}", page.display(), path.display());
        if !end.complete {
            outln!("this run was cut; `pathline run --resume {}` goes on", resume::name_of(path));
        }
    }
    Ok(judge(&journal).into())
}

fn plan_for(scope: &PlanScope<'_>, args: &RunArgs, name: &str) -> Result<RunPlan> {
    let plan = plan::make_in(scope, &args.select)?;
    if plan.entries.is_empty() && !args.select.suite.is_empty() {
        let of = args.select.suite.join(", ");
        return Err(anyhow!(
            "nothing to measure: {of} has no case on {name}; `pathline topo` shows what it is made of"
        ));
    }
    Ok(plan)
}

fn command_line() -> Vec<String> {
    let mut words: Vec<String> =
        std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        *program = "pathline".to_owned();
    }
    words
}

/// What a model's times are drawn from, and its processes.
fn spread(args: &RunArgs) -> SimSpread {
    SimSpread {
        seed: args.select.seed,
        noise: args.noise.map(|percent| percent / 100.0),
        ranks: args.ranks.unwrap_or(0),
    }
}

/// Settings without the memory that buffers may take, which follows from the machine.
fn settings(args: &RunArgs) -> RunSettings {
    let usual = default_settings(Bytes(0));
    RunSettings {
        precision: args.precision / 100.0,
        case_budget: args.case_budget.map_or(usual.case_budget, Ns::ms),
        time_limit: Ns::secs(args.time_limit.unwrap_or(0.0)),
        seed: args.select.seed,
        noise: spread(args).noise,
        ..usual
    }
}

fn open(start: &RunStart, about: &MachineInfo, host: &str, name: &str) -> Result<JournalSession> {
    if let Some((file, journal)) = start.journal.take() {
        return Ok(JournalSession::resume(file, journal, about, host)?);
    }
    let folder = files::new_folder(start.args.out.as_deref(), name)?;
    Ok(JournalSession::create(&folder.join(files::JOURNAL))?)
}
