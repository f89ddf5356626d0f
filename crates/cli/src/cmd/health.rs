//! `pathline health`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Parser as _;
use pathline_diagnose::posterior::SURE;
use pathline_diagnose::{
    HealthReport, HealthSettings, NodeFacts, REFERENCE_ERROR, ReferenceComparison, RunDigest,
    TailKind, compare_with_reference, drain_node, gpus_in, measured_in_runs, part_remedy,
    predicted_by_twin,
};
use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_report::health::{
    HealthClass, HealthDocument, HealthPath, HealthPhases, HealthReference, json, junit, nagios,
    prometheus, reframe, text,
};
use pathline_runner::{
    HealthOutcome, HealthRequest, HostMachine, MachineChoice, MachineModel, NodeView, PathTimes,
    PhaseTimes, StorePlaces, TwinReference, examine, hostname, switches,
};
use pathline_schema::{
    Gpu, NodeVerdict, PciAddress, RunBegin, Topology, Unit, WorldKind, shell_word,
};
use pathline_stats::SeriesSummary;

use super::bundle::HealthBundle;
use super::{ExitKind, digest, hide_other_gpus};
use crate::args::{Args, Command, HealthArgs, HealthFormat, with_gpus};
use crate::files;
use crate::say::{errln, out, width};

/// Longest reason, in characters.
const MAX_REASON: usize = 100;

/// Every end of the command has a result in the requested format.
pub(super) fn run(args: &HealthArgs) -> ExitKind {
    let unusable = |error: anyhow::Error| {
        errln!("pathline: {error:#}");
        ExitKind::Unusable
    };
    let bundle = match args.bundle.as_deref().map(HealthBundle::begin).transpose() {
        Ok(bundle) => bundle,
        Err(error) => return unusable(error),
    };
    let finish = |document: Option<&HealthDocument>| {
        bundle.map_or(Ok(()), |bundle| bundle.finish(args, document))
    };
    if let Some(folder) = args.history.as_deref().filter(|_| !args.runs.is_empty()) {
        let judged = digest::judge_runs(args, folder);
        return judged.and_then(|exit| finish(None).map(|()| exit)).unwrap_or_else(unusable);
    }
    let document = check_node(args);
    // People have read why; programs get a result all the same.
    if document.is_unusable() && args.format() == HealthFormat::Text && args.out.is_none() {
        return ExitKind::Unusable;
    }
    let text = render(args, &document);
    match &args.out {
        None => out!("{text}"),
        Some(path) => {
            if let Err(error) = files::write(path, &text) {
                errln!("pathline: {error:#}");
                return ExitKind::Unusable;
            }
        }
    }
    if let Err(error) = finish(Some(&document)) {
        return unusable(error);
    }
    match args.format() {
        HealthFormat::Nagios => ExitKind::Foreign(document.state.nagios_code()),
        _ if document.is_unusable() => ExitKind::Unusable,
        _ => document.state.into(),
    }
}

/// The result of a check of this node, or of a simulated one; an error is a result, too.
pub(super) fn check_node(args: &HealthArgs) -> HealthDocument {
    let started = jiff::Timestamp::now().to_string();
    let document = check(args, &started).and_then(|document| kept(args, document));
    document.unwrap_or_else(|error| {
        let error = format!("{error:#}");
        errln!("pathline: {error}");
        HealthDocument::unusable(env!("CARGO_PKG_VERSION"), &hostname(), &started, &error)
    })
}

/// The result of a check of this node, or of a simulated one, within a budget.
///
/// # Errors
/// The machine's name is none.
pub(super) fn check_machine(machine: Option<&str>, seconds: u64) -> Result<HealthDocument> {
    let budget = format!("{seconds}s");
    let mut words = vec!["pathline", "health", "--budget", &budget];
    words.extend(machine.iter().flat_map(|machine| ["--machine", *machine]));
    match Args::try_parse_from(words)?.command {
        Some(Command::Health(args)) => Ok(check_node(&args)),
        _ => Err(anyhow!("a check takes no such machine")),
    }
}

/// Keeps a result, if --history asks for it, unless the node is slow or may be.
fn kept(args: &HealthArgs, document: HealthDocument) -> Result<HealthDocument> {
    if let (Some(folder), Some(digest)) = (&args.history, &document.digest)
        && ![NodeVerdict::Suspect, NodeVerdict::Fail].contains(&document.state)
    {
        digest::keep(folder, digest.clone())?;
    }
    Ok(document)
}

fn render(args: &HealthArgs, document: &HealthDocument) -> String {
    match args.format() {
        HealthFormat::Text => text(document, width()),
        HealthFormat::Json => json(document),
        HealthFormat::Junit => junit(document),
        HealthFormat::Prom => prometheus(document),
        HealthFormat::Reframe => reframe(document),
        HealthFormat::Nagios => nagios(document),
    }
}

/// What a node is compared with besides itself.
pub(super) enum CheckReference {
    /// The node as it should be.
    Twin(Box<TwinReference>),
    /// One earlier run, with all of its samples.
    Run(Box<RunDigest>),
    /// What was kept of earlier runs.
    History(Vec<RunDigest>),
}

/// What a comparison says about a node.
enum Judgement {
    /// It took place and found nothing.
    Fine,
    /// The node is slower, as this sentence says.
    Slower(String),
    /// It could not judge the node, for this reason.
    TooLittle(String),
}

impl Judgement {
    fn state(&self) -> NodeVerdict {
        match self {
            Self::Fine => NodeVerdict::Ok,
            Self::Slower(_) => NodeVerdict::Fail,
            Self::TooLittle(_) => NodeVerdict::Undecided,
        }
    }
}

/// Examines the node.
///
/// # Errors
/// Arguments or files cannot be used.
fn check(args: &HealthArgs, started: &str) -> Result<HealthDocument> {
    let begun = Instant::now();
    hide_other_gpus(args.gpus.as_ref(), args.machine.as_ref())?;
    let machine = match &args.machine {
        Some(name) => {
            let name = with_gpus(name, args.gpus.as_ref());
            MachineChoice::Model(Box::new(MachineModel::read(&name)?))
        }
        None => MachineChoice::Host(HostMachine {
            libraries: args.libraries.choice(),
            stores: StorePlaces::default(),
        }),
    };
    let reference = match (&args.against, &args.history) {
        (Some(path), _) => Some(reference(path).context("--against")?),
        (None, Some(folder)) => Some(CheckReference::History(digest::earlier(folder, started)?)),
        (None, None) => None,
    };
    let reference =
        reference.filter(|r| !matches!(r, CheckReference::History(runs) if runs.is_empty()));
    let settings =
        HealthSettings { alpha: args.alpha, loss: args.loss, ..HealthSettings::default() };
    let is_virtual = args.machine.is_some() && !args.worker;
    let spent = if is_virtual { Duration::ZERO } else { begun.elapsed() };
    let request = HealthRequest {
        machine,
        budget: args.budget.saturating_sub(spent),
        settings,
        shared: args.shared,
        in_processes: args.worker,
        seed: args.seed,
        noise: args.noise.map(|percent| percent / 100.0),
        faults: args.inject.clone(),
        twin: match &reference {
            Some(CheckReference::Twin(twin)) => Some(twin.as_ref().clone()),
            Some(CheckReference::Run(_) | CheckReference::History(_)) | None => None,
        },
    };
    let outcome = examine(&request);
    let digest = digest_of(&request.machine, started, &outcome);
    let against = reference.map(|reference| compare(args, &reference, &outcome, digest.as_ref()));
    let mut document = document(args, started, outcome);
    document.digest = digest;
    if let Some((against, judgement)) = against.transpose()? {
        let decides = match judgement {
            Judgement::Slower(_) => document.state != NodeVerdict::Fail,
            // A history that is too short yet is no fault of the node.
            Judgement::TooLittle(_) if args.history.is_some() => false,
            _ => document.state == NodeVerdict::Ok,
        };
        let state = judgement.state();
        if let (Judgement::Slower(why) | Judgement::TooLittle(why), true) = (judgement, decides) {
            document.reason = why.chars().take(MAX_REASON).collect();
            document.set_state(state, args.format() == HealthFormat::Nagios);
        }
        document.against = Some(against);
    }
    Ok(document)
}

/// What `--against` names: a twin, a run, a digest, or a folder of digests.
pub(super) fn reference(path: &Path) -> Result<CheckReference> {
    let name = path.to_string_lossy();
    let is_preset = MachineDesc::presets().iter().any(|(preset, _)| *preset == name);
    if is_preset || path.extension().is_some_and(|extension| extension == "toml") {
        let model = MachineModel::read(&name)?;
        let network = Network::new(model.desc(), RuntimeEnv::from_env(&switches()))?;
        let mut topology = model.desc().healthy_topology().clone();
        if is_preset {
            // A preset is of no certain node: its places on the bus are examples.
            topology.gpus.iter_mut().for_each(|gpu| gpu.pci = PciAddress::default());
        }
        return Ok(CheckReference::Twin(Box::new(TwinReference { topology, network })));
    }
    if path.is_dir() && !files::journal_path(path).exists() {
        let history = digest::read_folder(path)?;
        if history.is_empty() {
            return Err(anyhow!(
                "{name}: neither a run nor a kept result is there; `pathline health --history {}` keeps one",
                shell_word(&name)
            ));
        }
        return Ok(CheckReference::History(history));
    }
    Ok(match digest::is_digest(path) {
        true => CheckReference::History(vec![digest::read(path)?]),
        false => CheckReference::Run(Box::new(RunDigest::of(&files::read(path)?))),
    })
}

/// What makes a twin that of another node: other GPUs, more than it has, or other places on the bus. A GPU
/// that the node lacks is a fault.
pub(super) fn difference(twin: &Topology, node: &Topology) -> Option<String> {
    for gpu in &node.gpus {
        let number = gpu.index;
        let Some(known) = twin.gpus.iter().find(|known| known.index == number) else {
            return Some(format!("it has no gpu{number}"));
        };
        if known.name != gpu.name {
            return Some(format!("its gpu{number} is a {}, here a {}", known.name, gpu.name));
        }
        let (there, here) = (&*known.pci, &*gpu.pci);
        if !there.is_empty() && !here.is_empty() && there != here {
            return Some(format!("its gpu{number} is at {there}, here at {here}"));
        }
    }
    None
}

/// Compares with a reference.
///
/// # Errors
/// It is of another node, or knows none of the paths.
fn compare(
    args: &HealthArgs,
    reference: &CheckReference,
    outcome: &HealthOutcome,
    digest: Option<&RunDigest>,
) -> Result<(HealthReference, Judgement)> {
    let path =
        args.against.as_deref().or(args.history.as_deref()).unwrap_or(Path::new("")).display();
    if let (CheckReference::Twin(twin), Some(view)) = (reference, &outcome.view)
        && let Some(other) = difference(&twin.topology, &view.topology)
    {
        return Err(anyhow!("the twin {path} is of another node: {other}"));
    }
    let Some(digest) = digest else {
        let result = format!("not compared with {path}: nothing was measured");
        let judgement = Judgement::TooLittle(result.clone());
        let (name, state, slower) = (path.to_string(), judgement.state(), Vec::new());
        return Ok((HealthReference { name, state, result, slower }, judgement));
    };
    let medians: Vec<Option<f64>> = outcome.paths.iter().map(median).collect();
    let plan = &outcome.plan;
    let of_runs = |runs: &[RunDigest]| measured_in_runs(plan, runs);
    let (reference_ns, history) = match reference {
        CheckReference::Twin(twin) => (predicted_by_twin(plan, &twin.network), None),
        CheckReference::Run(run) => {
            let one = std::slice::from_ref(run.as_ref());
            digest.against(one, args.loss, args.alpha).with_context(|| path.to_string())?;
            (of_runs(one), None)
        }
        CheckReference::History(runs) => {
            let compared = digest.against(runs, args.loss, args.alpha);
            (of_runs(runs), Some(compared.with_context(|| path.to_string())?))
        }
    };
    let found = compare_with_reference(plan, &medians, &reference_ns, args.loss);
    if found.compared == 0 {
        return Err(anyhow!(
            "{path} has none of these paths; keep results of health: `pathline health --format json --out \
             DIR/NAME.digest.json`"
        ));
    }
    let mut judgement = judge(&found, plan.standing, &path.to_string());
    let mut result = format!(
        "{} of {} paths are more than {} % slower than {path}, after division by their class",
        found.slower.len(),
        found.compared,
        args.loss * 100.0
    );
    if !found.missing.is_empty() {
        result = format!("{result}; it does not know {}", found.missing.join("; "));
    }
    let mut slower = found.slower;
    if let Some(compared) = history {
        result = digest::sentence(&compared);
        let worse = compared.significant || compared.slow_class.is_some();
        if worse && !matches!(judgement, Judgement::Slower(_)) {
            let case = compared.slower.first().map(|case| (&case.case, case.loss));
            let class = compared.slow_class.as_ref().map(|(class, loss)| (class, *loss));
            let worst = if compared.significant { case } else { class };
            let worst =
                worst.map_or(String::new(), |(what, l)| format!(": {what} by {:.1} %", l * 100.0));
            judgement = Judgement::Slower(format!("slower than in earlier runs{worst}"));
        } else if let (Some(why), Judgement::Fine) = (&compared.undecided, &judgement) {
            judgement = Judgement::TooLittle(format!("{} earlier runs: {why}", compared.runs));
        }
        slower = compared.slower.into_iter().map(|case| (case.case, case.loss)).collect();
    }
    if let Judgement::Slower(why) = &judgement {
        result = format!("{why}; {result}");
        // A class that is slower as a whole has no path that is slower than its class.
        let worst = found.worst.filter(|(what, _)| slower.iter().all(|(path, _)| path != what));
        slower.splice(0..0, worst);
    }
    let (name, state) = (path.to_string(), judgement.state());
    Ok((HealthReference { name, state, result, slower }, judgement))
}

/// A reference that knows less than half of the paths does not judge a node.
fn judge(found: &ReferenceComparison, paths: usize, path: &str) -> Judgement {
    match &found.worst {
        Some((what, lost)) => Judgement::Slower(format!(
            "{what}: {:.1} % slower than {path} says, of {:.0} % allowed",
            lost * 100.0,
            REFERENCE_ERROR * 100.0
        )),
        None if 2 * found.compared < paths => {
            Judgement::TooLittle(format!("{path} knows {} of {paths} paths", found.compared))
        }
        None => Judgement::Fine,
    }
}

/// Median time of one operation over all rounds, ns.
fn median(times: &PathTimes) -> Option<f64> {
    Some(SeriesSummary::of(&times.by_process.concat())?.median)
}

/// What is kept of a check; none if nothing was measured.
fn digest_of(machine: &MachineChoice, started: &str, outcome: &HealthOutcome) -> Option<RunDigest> {
    let view = outcome.view.as_ref()?;
    let facts = view.facts.iter().map(|(gpu, facts)| (Unit::Gpu(*gpu), facts.clone()));
    let begin = RunBegin {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: hostname(),
        started: started.to_owned(),
        machine_sha256: machine.model().map(MachineModel::sha256),
        env: switches(),
        gpus: facts.collect(),
        ..RunBegin::new(view.world.clone())
    };
    let mut digest = RunDigest::empty(&begin, &view.topology);
    for (probe, times) in outcome.plan.probes.iter().zip(&outcome.paths) {
        digest.add(&probe.case, &times.by_process.concat(), 1, "rounds".to_owned());
    }
    (!digest.cases.is_empty()).then_some(digest)
}

fn document(args: &HealthArgs, started: &str, outcome: HealthOutcome) -> HealthDocument {
    let HealthOutcome { view, plan, paths, facts, report, times, processes } = outcome;
    let state = report.state;
    let simulated = match view.as_ref().map(|view| &view.world) {
        Some(WorldKind::Simulated(name)) => Some(name.clone()),
        Some(WorldKind::Real) | None => args.machine.clone(),
    };
    let bytes = |class: usize| {
        let of_class = plan.probes.iter().find(|probe| probe.class == class)?;
        Some(of_class.case.timed.iter().map(|flow| flow.bytes.as_f64()).sum::<f64>())
    };
    // What no round has and no fault asked for is no part of the check.
    let is_part = |nth: usize| {
        nth < plan.standing || paths.get(nth).is_some_and(|times| !times.by_process.is_empty())
    };
    let shown = plan.probes.iter().enumerate().filter(|(nth, _)| is_part(*nth));
    let shown = shown.map(|(_, probe)| probe.class + 1).max().unwrap_or(0);
    let classes = plan.classes.iter().enumerate().take(shown);
    let classes = classes.map(|(nth, class)| {
        let share = report.classes.iter().find(|share| share.class == class.label);
        let median_ns = share.and_then(|share| share.median_ns);
        let is_rate = class.tail != TailKind::Latency;
        let rate = median_ns.zip(bytes(nth)).map(|(ns, bytes)| bytes / ns * 1e9);
        HealthClass {
            label: class.label.clone(),
            paths: class.paths,
            median_seconds: median_ns.map(|ns| ns / 1e9),
            bytes_per_second: rate.filter(|_| is_rate),
            of_ceiling: share.and_then(|share| share.of_ceiling),
        }
    });
    let classes = classes.collect();
    let measured = plan.probes.iter().zip(&paths).enumerate();
    let measured = measured.filter(|(nth, _)| is_part(*nth)).map(|(_, (probe, times))| {
        let medians = times
            .by_process
            .iter()
            .filter_map(|rounds| Some((SeriesSummary::of(rounds)?.median, rounds.len())));
        HealthPath {
            label: probe.label.clone(),
            case: probe.case.to_string(),
            class: probe.class,
            medians_ns: medians.collect(),
        }
    });
    let measured = measured.collect();
    let action = match view.as_ref() {
        Some(_) if state == NodeVerdict::Undecided && is_short(&facts) => {
            more_time(args, &times, &report)
        }
        Some(view) => {
            let short = is_short(&facts).then(|| more_time(args, &times, &report));
            action(view, &facts, &report, short)
        }
        None => String::new(),
    };
    let mut document = HealthDocument {
        simulated,
        action,
        node: view.as_ref().map(identity).unwrap_or_default(),
        reason: report.reason.clone(),
        seconds: HealthPhases {
            budget: args.budget.as_secs_f64(),
            opening: times.opening.as_secs_f64(),
            binding: times.binding.as_secs_f64(),
            total: times.total.as_secs_f64(),
            is_virtual: args.machine.is_some() && !args.worker,
        },
        processes,
        parts: view.as_ref().map(parts).unwrap_or_default(),
        facts,
        classes,
        paths: measured,
        report: Some(report),
        env: switches(),
        ..HealthDocument::unusable(env!("CARGO_PKG_VERSION"), &hostname(), started, "")
    };
    document.set_state(state, args.format() == HealthFormat::Nagios);
    document
}

/// Whether the budget ended a check, and nothing else.
fn is_short(facts: &NodeFacts) -> bool {
    facts.busy.is_none()
        && facts.stopped.as_ref().is_some_and(|why| why.starts_with("the budget of"))
}

/// The budget that decides: as long as the rounds and processes of a node that passes take at the pace of this check,
/// with a quarter to spare, and at least the usual one.
fn more_time(args: &HealthArgs, times: &PhaseTimes, report: &HealthReport) -> String {
    let setup = (times.opening + times.binding).as_secs_f64();
    let (total, rounds) = (times.total.as_secs_f64(), report.power.rounds as f64);
    let processes = report.power.processes.max(1) as f64;
    let round = (total - processes * setup).max(0.0) / rounds.max(1.0);
    // One round alone is no pace.
    let needed = if rounds < 3.0 { 0.0 } else { PASSING.0 * setup + PASSING.1 * round };
    let seconds = (1.25 * needed).max(2.0 * args.budget.as_secs_f64()).max(USUAL_BUDGET).ceil();
    let machine =
        args.machine.as_ref().map_or(String::new(), |name| format!(" -m {}", shell_word(name)));
    format!(
        "`pathline health{machine} --budget {seconds}s` has the time for {} rounds in {} processes, which a verdict \
         takes",
        PASSING.1, PASSING.0
    )
}

/// Processes and rounds after which a node passes.
const PASSING: (f64, f64) = (3.0, 30.0);
/// The budget without `--budget`, s.
const USUAL_BUDGET: f64 = 10.0;

/// What to do about a node: by its parts, if some are named.
fn action(
    view: &NodeView,
    facts: &NodeFacts,
    report: &HealthReport,
    more_time: Option<String>,
) -> String {
    let topology = &view.topology;
    let drain = drain_node(&RunBegin { host: hostname(), ..RunBegin::new(view.world.clone()) });
    let (first, again) = match report.state {
        NodeVerdict::Fail => (drain, "; check again"),
        NodeVerdict::Suspect => {
            let again = more_time.unwrap_or_else(|| "check the empty node again".to_owned());
            (format!("{again}; if it is SUSPECT again, {drain}"), "")
        }
        // A note is the reason where paths are alike and all far below their link: another node shows what is usual.
        NodeVerdict::Undecided if report.notes.contains(&report.reason) => {
            return "compare it with a sound node of its kind: `pathline health --history DIR` there, `pathline health \
                    --against DIR` here"
                .to_owned();
        }
        NodeVerdict::Ok | NodeVerdict::Undecided => return String::new(),
    };
    let best = report.culprits.first().map_or(0.0, |culprit| culprit.probability);
    let likely = report.culprits.iter().filter(|culprit| culprit.probability * SURE > best);
    let mut names: Vec<&str> = facts.reduced_links().map(|link| link.name.as_str()).collect();
    if names.is_empty() {
        names.extend(likely.map(|culprit| culprit.element.as_str()));
    }
    let names = names.join(" or ");
    let gpus: Vec<u32> = gpus_in(&names).into_iter().collect();
    let mut parts = vec![facts.failed_remedy.clone()];
    parts.retain(|part| !part.is_empty());
    if !names.is_empty() && parts.is_empty() {
        parts.push(part_remedy(topology, &names, &gpus));
    }
    let parts: String = parts.iter().map(|part| format!("; {part}")).collect();
    format!("{first}{parts}{again} (docs/use/operators.md)")
}

/// Which board each GPU is, in short.
fn parts(view: &NodeView) -> BTreeMap<String, String> {
    let part = |gpu: &Gpu| {
        let identity = view.facts.get(&gpu.index).map(|facts| facts.identity.text(true));
        let known = [identity.unwrap_or_default(), gpu.pci.to_string()];
        let known: Vec<String> = known.into_iter().filter(|text| !text.is_empty()).collect();
        (!known.is_empty()).then(|| (format!("gpu{}", gpu.index), known.join(", ")))
    };
    let gpus = view.topology.gpus.iter().filter(|_| !view.world.is_model());
    gpus.filter_map(part).collect()
}

/// The node in a line: `8 x NVIDIA H200, 18 NVLinks each, NVML 580.95`.
fn identity(view: &NodeView) -> String {
    let mut parts = view.topology.gpus_in_words(|gpu| (gpu.name.clone(), String::new()));
    if parts.is_empty() {
        parts.push("no GPU".to_owned());
    }
    let mut sources: Vec<&str> = view.facts.values().map(|f| f.source.as_str()).collect();
    sources.dedup();
    parts.extend(sources.into_iter().filter(|s| !s.is_empty() && *s != "model").map(str::to_owned));
    if !view.topology.host.cpu_model.is_empty() {
        parts.push(view.topology.host.cpu_model.clone());
    }
    parts.extend(view.topology.renumbered_gpus());
    parts.join(", ")
}
