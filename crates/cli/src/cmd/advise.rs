//! `pathline advise`.

mod advice_progress;
mod answer_files;
mod answer_parts;
mod host_memory_table;
mod job_transfers;
mod model_gains;
mod model_limits;
mod mpi_controls;
mod on_command;
mod reviewed_settings;
mod setting_names;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Result, bail};
use pathline_advise::{
    ADVICE_FORMAT, Advice, AdviceFile, AdviceLimits, AdviceOrigin, AdviceScope, AdviceStep,
    AdviceVerdict, ArmEnv, ArmTask, CommandTask, JobScript, SettingScope, TrialArm, TrialRunner,
    advise, answers_text, known_settings, not_reviewed, questions, review, usual_collectives,
    usual_file_subjects, usual_mpi_messages, usual_subjects,
};
use pathline_bench::{Executor, MachineInfo, RunPlan, with_owning_ranks};
use pathline_paste::read_paste;
use pathline_runner::{
    CaseTrials, HostMachine, HostSurvey, MachineChoice, MachineModel, RankJob, RunRequest,
    StorePlaces, half_of_free, hostname, switches,
};
use pathline_schema::{Case, MemKind, MpiControls, Place, RunSettings, Unit, WorldKind};

use self::advice_progress::AdviceProgress;
use self::answer_files::{earlier_answers, write_answers};
use self::answer_parts::{answer_origin, host_parts, machine_parts, name_unanswered};
use self::host_memory_table::host_memory_table;
use self::job_transfers::answer_job;
use self::model_gains::widen_gains;
use self::model_limits::{
    add_rates, ignore_unmodelled, is_modelled, lacking_on, review_by_size, state_kernel_cost,
    state_transfers_by_size, unset_on, without_assumed,
};
use self::mpi_controls::{controls_of_ranks, ignore_missing, judge_settings};
use self::on_command::is_rate;
use self::reviewed_settings::{is_about, is_answered, unanswered};
use self::setting_names::judge_names;
use super::case_machine::{on_machine, plan_cases};
use super::trial_placement::TrialPlacement;
use super::{ExitKind, audit};
use crate::args::AdviseArgs;
use crate::progress::StopRequest;
use crate::say::{self, out, outln, paragraph};

/// Largest probability that --check confirms anything falsely.
const AGAIN_LEVEL: f64 = 0.05;

pub(super) fn run(args: &AdviseArgs) -> Result<ExitKind> {
    if !args.set.is_empty() && args.command.is_none() && args.measure.is_none() {
        bail!("--set names settings to try with --command, or with --collectives and --measure");
    }
    if args.machine.is_none() && args.subject.iter().any(|asked| asked.count.is_some()) {
        bail!(
            "a count behind the size of --for needs --machine: a model has the times that add up"
        );
    }
    if let Some(audited) = args.audit() {
        return audit::run(&audited);
    }
    if let Some(dir) = args.emit.as_deref().filter(|dir| dir.symlink_metadata().is_ok()) {
        bail!("{}: it is there already; name a new folder", dir.display());
    }
    if let Some(metric) = args.metric.as_deref().filter(|text| is_rate(text))
        && !args.higher
        && !args.lower
    {
        bail!(
            "--metric '{metric}' is named like a rate: add --higher, or --lower if less is better"
        );
    }
    if let Some(guard) = args.guard.iter().find(|text| is_rate(text)) {
        bail!("--guard '{guard}' is named like a rate, of which more is better: use --guard-rate");
    }
    let earlier = args.check.as_deref().map(earlier_answers).transpose()?;
    let task = match &earlier {
        Some(file) => file.task.clone(),
        None => args.command.as_deref().map(|command| args.command_task(command)),
    };
    let placement = match (args.place, &args.command) {
        (Some(ranks), Some(command)) => Some(TrialPlacement::new(ranks, command)?),
        _ => None,
    };
    let stopper = StopRequest::new(Instant::now(), None);
    let session = AdviceRun { args, earlier, placement, stopper };
    let (origin, mut answers) = match &task {
        task if args.is_review() => session.on_settings(task.as_ref())?,
        Some(task) => session.on_command(task)?,
        None => session.on_cases()?,
    };
    let model = args.machine.as_deref().map(MachineModel::read).transpose()?;
    if let Some(model) = &model {
        if args.is_review() {
            let topology = model.desc().topology();
            answers.extend(answer_job(&args.subject, model, &topology, args.min_gain)?);
        }
        state_kernel_cost(&mut answers, model);
    }
    let mut file = AdviceFile { format: ADVICE_FORMAT, origin, task, answers };
    if args.json {
        out!("{}", file.text());
    } else {
        show(&file, session.earlier.as_ref(), &session.limits());
        if let (Some(model), false) = (&model, args.subject.is_empty()) {
            out!("{}", host_memory_table(&file.answers, model));
        }
    }
    if let Some(dir) = &args.emit {
        let names = write_answers(dir, &mut file, session.placement.as_ref())?;
        if !args.json {
            outln!("\nWrote into {}: {}.", dir.display(), names.join(", "));
        }
    }
    Ok(verdict(&file.answers, session.earlier.is_some(), args.is_review()))
}

/// Nothing is wrong with a node where defaults are best; an earlier answer that no longer holds is, and a
/// setting of a job that should go.
fn verdict(answers: &[Advice], again: bool, is_review: bool) -> ExitKind {
    let unclear = |a: &Advice| a.verdict == AdviceVerdict::Unclear;
    if answers.iter().all(unclear) {
        return ExitKind::CouldNotJudge;
    }
    let is_dropped = |a: &Advice| matches!(a.verdict.word(), "DROP" | "SUSPECT");
    if again && !answers.iter().all(Advice::is_change)
        || is_review && answers.iter().any(is_dropped)
    {
        return ExitKind::Wrong;
    }
    ExitKind::Fine
}

/// What a review without trials is of.
fn origin_of(model: Option<&MachineModel>) -> AdviceOrigin {
    match model {
        Some(model) => answer_origin(&model.desc().name, Vec::new(), true),
        None => answer_origin(&hostname(), host_parts(), false),
    }
}

/// The nodes of the allocation in which this runs, as Slurm says.
fn slurm_nodes() -> Option<u32> {
    std::env::var("SLURM_JOB_NUM_NODES").ok()?.trim().parse().ok()
}

/// A session, and what it takes from an earlier one.
struct AdviceRun<'a> {
    args: &'a AdviseArgs,
    earlier: Option<AdviceFile>,
    placement: Option<TrialPlacement>,
    stopper: StopRequest,
}

impl AdviceRun<'_> {
    fn limits(&self) -> AdviceLimits {
        let AdviseArgs { budget, min_gain, seed, .. } = self.args;
        let usual = AdviceLimits::default();
        // What was proven once needs less evidence to hold again.
        let level = if self.earlier.is_some() { AGAIN_LEVEL } else { usual.level };
        let usual = AdviceLimits { level, ..usual };
        AdviceLimits { budget: budget.as_secs_f64(), min_gain: *min_gain, seed: *seed, ..usual }
    }

    /// Answers the questions.
    fn answers(
        &self,
        scopes: &[AdviceScope],
        runner: &mut dyn TrialRunner,
        limits: &AdviceLimits,
    ) -> Vec<Advice> {
        let progress = AdviceProgress::new();
        let mut answers = advise(scopes, runner, limits, &mut |step| progress.show(&step));
        progress.end();
        if let Some(earlier) = &self.earlier {
            let lost = answers.iter_mut().filter(|answer| answer.verdict == AdviceVerdict::Keep);
            lost.for_each(|answer| answer.withdraw(earlier, self.limits().min_gain));
        }
        answers
    }

    /// Judges variables that are set: by what is known of them, else by trials.
    fn on_settings(&self, task: Option<&CommandTask>) -> Result<(AdviceOrigin, Vec<Advice>)> {
        let script = self.script()?;
        let job = script.as_deref().map(JobScript::read);
        let model = self.args.machine.as_deref().map(MachineModel::read).transpose()?;
        let topology = match &model {
            Some(model) => model.desc().topology(),
            None => HostSurvey::new(None).topology,
        };
        let node = model.is_some().then_some(&topology);
        let stated = job.as_ref().map(|job| self.stated(job, node)).unwrap_or_default();
        let (variables, unset) = self.reviewed(job.as_ref(), stated.is_empty())?;
        // Where trials are possible, they decide on what a document suspects.
        let is_tried = |name: &str| variables.contains_key(name);
        let (suspects, mut answers): (Vec<Advice>, Vec<Advice>) = stated
            .into_iter()
            .partition(|a| a.verdict == AdviceVerdict::Suspect && is_about(a, is_tried));
        let gpus = self.args.ranks.unwrap_or(topology.gpus.len() as u32);
        // What a script asks for counts before the allocation in which this runs.
        let asked = script.as_ref().and_then(|text| read_paste(text.as_bytes()).context.nodes);
        let nodes = self.args.nodes.or(asked).or_else(slurm_nodes);
        let scope = SettingScope { topology: &topology, gpus, nodes };
        answers.extend(unset_on(&unset, model.as_ref(), &topology, &variables)?);
        let is_whole = task.is_none() && self.args.review.as_deref().is_none_or(<[_]>::is_empty);
        if let (Some(model), Some(_)) = (model.as_ref().filter(|_| is_whole), &job) {
            answers.extend(lacking_on(model, &topology, &variables)?);
        }
        let mut known = known_settings(&unanswered(&variables, &answers), &scope);
        if task.is_some() {
            // Trials of the command decide what nothing states.
            known.retain(|answer| answer.verdict != AdviceVerdict::Unclear);
        }
        answers.extend(known);
        if model.is_none() {
            let rest = unanswered(&variables, &answers);
            // A command may have another MPI than this host.
            if task.is_none() {
                answers.extend(judge_settings(&rest, job.is_some()));
            }
            answers.extend(judge_names(&rest, task.is_none() && job.is_none()));
        }
        let rest = unanswered(&variables, &answers);
        let origin = origin_of(model.as_ref());
        // What else is set acts on nothing that a model has.
        let by_model = model.is_some() && task.is_none();
        let (rest, untried): (ArmEnv, ArmEnv) =
            rest.into_iter().partition(|(name, value)| !by_model || is_modelled(name, value));
        let undecided = |settings: &ArmEnv, why: &str| {
            let why =
                format!("no trial can decide here: {why}; --command runs your program for that");
            let is_suspect = |name: &str| is_answered(&suspects, name);
            let (_, open): (Vec<_>, Vec<_>) =
                not_reviewed(settings, &why).into_iter().partition(|a| is_about(a, is_suspect));
            let named = suspects.iter().filter(|a| is_about(a, |name| settings.contains_key(name)));
            named.cloned().chain(open).collect::<Vec<_>>()
        };
        answers.extend(undecided(&untried, "a simulated machine has no libraries that read them"));
        // Without a question, the model says what each setting does to the usual transfers, by size.
        let on_usual = self.args.subject.is_empty() && by_model;
        if let Some(model) = model.as_ref().filter(|_| on_usual) {
            answers.extend(review_by_size(&rest, model, &topology, &variables));
        }
        let rest = unanswered(&rest, &answers);
        if rest.is_empty() {
            return Ok((origin, answers));
        }
        let set_by = |scope: AdviceScope| AdviceScope {
            // A script's variables are not those of this process.
            baseline: scope.baseline.with_env("as set", variables.clone()),
            ..scope
        };
        let mut trials = |scopes: Vec<AdviceScope>, runner: &mut dyn TrialRunner| {
            let scopes: Vec<AdviceScope> = scopes.into_iter().map(set_by).collect();
            let progress = AdviceProgress::new();
            let show = &mut |step: AdviceStep<'_>| progress.show(&step);
            answers.extend(review(&rest, &scopes, runner, &self.limits(), show));
            progress.end();
        };
        let measured = match task {
            Some(task) => {
                let scopes = vec![self.command_scope(&task.command)?];
                self.command_trials(task, &scopes, &rest, |runner, _| {
                    trials(scopes.clone(), runner);
                    origin.clone()
                })
            }
            None => self.case_trials(|about, runner, scopes, _| {
                trials(scopes, runner);
                Ok(AdviceOrigin { parts: machine_parts(about), ..origin.clone() })
            }),
        };
        match measured {
            Ok(origin) => Ok((origin, answers)),
            Err(why) if task.is_none() => {
                answers.extend(undecided(&rest, &format!("{why:#}")));
                Ok((origin, answers))
            }
            Err(why) => Err(why),
        }
    }

    fn on_cases(&self) -> Result<(AdviceOrigin, Vec<Advice>)> {
        let model = self.args.machine.as_deref().map(MachineModel::read).transpose()?;
        self.case_trials(|about, runner, scopes, withheld| {
            let mut answers = self.answers(&scopes, runner, &self.limits());
            if let Some(model) = &model {
                let is_named = !self.args.subject.is_empty();
                state_transfers_by_size(&mut answers, is_named, model, &about.topology);
                widen_gains(&mut answers, model, self.args.min_gain)?;
                let asked = &self.args.subject;
                answers.extend(answer_job(asked, model, &about.topology, self.args.min_gain)?);
                add_rates(&mut answers, model);
            }
            answers.extend(withheld);
            let node = match &about.world {
                WorldKind::Simulated(name) => name.clone(),
                WorldKind::Real => hostname(),
            };
            Ok((answer_origin(&node, machine_parts(about), about.world.is_model()), answers))
        })
    }

    fn case_trials<T>(
        &self,
        run: impl FnOnce(&MachineInfo, &mut dyn TrialRunner, Vec<AdviceScope>, Vec<Advice>) -> Result<T>,
    ) -> Result<T> {
        let request = self.request()?;
        on_machine(&request, &self.stopper, |executor| self.measure(executor, &request, run))
    }

    fn stores(&self) -> StorePlaces {
        let (paths, span) = (self.args.store.clone(), self.args.span);
        StorePlaces { paths, span, ..StorePlaces::default() }
    }

    fn request(&self) -> Result<RunRequest> {
        let args = self.args;
        let machine = match &args.machine {
            Some(name) => MachineChoice::Model(Box::new(MachineModel::read(name)?)),
            None => {
                let stores = self.stores();
                MachineChoice::Host(HostMachine { libraries: args.libraries.choice(), stores })
            }
        };
        let job = args.ranks().map(|count| match args.mpirun.clone() {
            Some(program) => RankJob::Launched { count, program },
            None => RankJob::Own { count, nodes: None },
        });
        let settings = RunSettings { seed: args.seed, ..RunSettings::default() };
        let (memory, limit, faults, repeat) = (None, None, Vec::new(), 0);
        Ok(RunRequest { machine, settings, memory, job, limit, faults, repeat })
    }

    fn measure<T>(
        &self,
        executor: &mut dyn Executor,
        request: &RunRequest,
        run: impl FnOnce(&MachineInfo, &mut dyn TrialRunner, Vec<AdviceScope>, Vec<Advice>) -> Result<T>,
    ) -> Result<T> {
        let about = executor.about().clone();
        let mpi = controls_of_ranks(&about);
        let scopes = self.scopes(&about, mpi.as_ref())?;
        let plan = plan_of(&about, &scopes, request)?;
        let (scopes, withheld) = without_assumed(scopes, request, &plan, self.args.min_gain)?;
        let interrupt = || self.stopper.reason();
        let mut trials = CaseTrials::new(executor, plan, &interrupt).with_mpi(mpi);
        run(&about, &mut trials, scopes, withheld)
    }

    fn scopes(&self, about: &MachineInfo, mpi: Option<&MpiControls>) -> Result<Vec<AdviceScope>> {
        if let Some(file) = &self.earlier {
            let mut scopes = file.questions_again();
            if let Some(mpi) = mpi {
                scopes.iter_mut().for_each(|scope| ignore_missing(scope, mpi));
            }
            return Ok(scopes);
        }
        let (topology, ranks) = (&about.topology, self.args.ranks().unwrap_or(1));
        let named = !self.args.subject.is_empty();
        let subjects = match named {
            true => {
                let asked = self.args.subject.iter();
                asked.map(|asked| with_owning_ranks(&asked.case, &about.ranks)).collect()
            }
            false => {
                let mut all = usual_subjects(topology, &peers(about), ranks);
                if self.args.is_review() {
                    // What is set may slow copies that the default of programs does not make.
                    all.extend(all.iter().filter_map(pinned).collect::<Vec<_>>());
                }
                all.extend(usual_collectives(&about.ranks));
                all.extend(file_subjects(about));
                all
            }
        };
        let nodes = about.ranks.iter().map(|member| member.node + 1).max().unwrap_or(1);
        // Each trial of an MPI setting restarts the job: unless cases are named, few transfers are asked about.
        let mut scopes = questions(topology, &subjects, nodes, mpi.filter(|_| named));
        name_unanswered(topology, if named && !scopes.is_empty() { &subjects } else { &[] }, mpi);
        if !named && mpi.is_some() {
            scopes.extend(questions(topology, &usual_mpi_messages(&about.ranks), nodes, mpi));
        }
        let set = switches();
        scopes.iter_mut().for_each(|scope| ignore_set(scope, &set));
        if self.args.machine.is_some() {
            scopes.iter_mut().for_each(ignore_unmodelled);
            // Nothing of them can be tried.
            let can_act = |scope: &AdviceScope| scope.choices.iter().any(|c| c.ignored.is_none());
            scopes.retain(|scope| named || can_act(scope));
        }
        if self.args.is_review() && scopes.is_empty() {
            scopes = subjects.iter().map(default_only).collect();
        }
        if scopes.is_empty() && named {
            bail!(
                "no alternative is known for these cases; advice is about copies between host and GPU, \
                 between GPUs, and messages, with the default first: \
                 'numa0.paged > gpu0.vram by dma@gpu0 x 64MiB'"
            );
        }
        if scopes.is_empty() && self.args.is_review() {
            bail!("this machine has no GPU; `-m mi250x` simulates one");
        }
        if scopes.is_empty() {
            bail!(
                "this machine has no GPU, so there is no default to compare: `--machine mi250x` \
                 simulates a node, --command proves settings on a command of yours, and --ranks N --mpirun \
                 mpirun asks about messages by MPI"
            );
        }
        Ok(scopes)
    }
}

/// A choice that the environment makes already is the default here.
fn ignore_set(scope: &mut AdviceScope, set: &BTreeMap<String, String>) {
    for choice in scope.choices.iter_mut().filter(|choice| !choice.arm.env.is_empty()) {
        if choice.arm.env.iter().all(|(name, value)| set.get(name) == Some(value)) {
            choice.ignored = Some(format!("{} is set already", choice.arm.label));
        }
    }
}

/// A question about a case without alternatives, for a review of what is set.
fn default_only(case: &Case) -> AdviceScope {
    AdviceScope {
        subject: case.to_string(),
        ends: case.to_string(),
        baseline: TrialArm::of_case("default", case.clone()),
        choices: Vec::new(),
    }
}

/// The same copy from or to pinned memory, of one that is of pageable memory.
fn pinned(case: &Case) -> Option<Case> {
    let mut case = case.clone();
    let flow = case.timed.first_mut()?;
    let is_paged = |place: &Place| place.mem == MemKind::Paged;
    let place = if is_paged(&flow.src) { &mut flow.src } else { &mut flow.dst };
    is_paged(place).then(|| place.mem = MemKind::Pinned)?;
    Some(case)
}

/// Reads of the files of each store, from the first NUMA domain with cores.
fn file_subjects(about: &MachineInfo) -> Vec<Case> {
    let Some(span) = about.stores.iter().map(|store| store.span).min() else { return Vec::new() };
    let numa = about.topology.numa.iter().find(|domain| !domain.cpus.is_empty());
    usual_file_subjects(about.stores.len() as u32, numa.map_or(0, |domain| domain.id), span)
}

/// One peer of the first GPU for each kind of path between them, as suite sweep takes them.
fn peers(about: &MachineInfo) -> Vec<u32> {
    let scope = about.scope(half_of_free(&about.topology));
    let Ok(plan) = RunPlan::new(&scope, &["sweep".to_owned()], &[]) else { return Vec::new() };
    let first = about.topology.gpus.first().map(|gpu| Unit::Gpu(gpu.index));
    let of = |case: &Case| {
        let [flow] = case.timed.as_slice() else { return None };
        let gpu = flow.dst.unit.gpu()?;
        (Some(flow.src.unit) == first && flow.src.unit != flow.dst.unit).then_some(gpu)
    };
    let found: BTreeSet<u32> = plan.entries.iter().filter_map(|entry| of(&entry.case)).collect();
    found.into_iter().collect()
}

/// Each case of the questions, with what it needs on this machine.
fn plan_of(about: &MachineInfo, scopes: &[AdviceScope], request: &RunRequest) -> Result<RunPlan> {
    let mut cases = BTreeSet::new();
    for scope in scopes {
        let choices = scope.choices.iter();
        let guards = choices.clone().flat_map(|c| c.guards.iter()).flat_map(|(a, b)| [a, b]);
        for arm in choices.map(|c| &c.arm).chain([&scope.baseline]).chain(guards) {
            if let ArmTask::Case(case) = &arm.task {
                cases.insert(case.clone());
            }
        }
    }
    plan_cases(about, cases, request)
}

/// Prints the answers: changes first.
fn show(file: &AdviceFile, earlier: Option<&AdviceFile>, limits: &AdviceLimits) {
    let AdviceOrigin { node, parts, simulated, .. } = &file.origin;
    let simulated = if *simulated { " (simulated)" } else { "" };
    let parts: String = parts.iter().map(|part| format!(" · {part}")).collect();
    paragraph(&format!("{node}{simulated}{parts}"), 2);
    for difference in
        earlier.iter().flat_map(|file_then| file_then.origin.differences(&file.origin))
    {
        outln!("! {difference}");
    }
    out!("\n{}", answers_text(&file.answers, limits, say::width()));
}
