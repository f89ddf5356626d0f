//! `pathline explain`.

use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use pathline_advise::{TrialArm, TrialRunner};
use pathline_paste::PasteReading;
use pathline_reason::{
    DecidingProbe, PasteExplanation, ProbeEvidence, RowPredictor, explain_on_node,
    explain_on_preset, explain_paste, other_product, preset_of, whole_node,
};
use pathline_report::health::{json as health_json, text as health_text, worst_path};
use pathline_runner::{
    CaseTrials, HostMachine, HostSurvey, MachineChoice, MachineModel, RunRequest, StorePlaces,
    hostname,
};
use pathline_schema::{Case, RunSettings, SizeEffects, WorldKind, shell_word};

use super::case_machine::{on_machine, plan_cases};
use super::report::{self, SummaryForm};
use super::{ExitKind, case, health, setting};
use crate::args::ExplainArgs;
use crate::files;
use crate::progress::StopRequest;
use crate::say::{self, errln, out, outln, show_labelled, width};

/// Seconds after which a check begins no further copies.
const PROBE_SECS: f64 = 8.0;
/// Seconds of a health check.
const CHECK_SECS: u64 = 10;
/// Copies of a check that are measured in one process.
const PROBE_BLOCK: usize = 64;
/// Answers without `--full`.
const SHOWN: usize = 3;
/// What is read of a paste at most; crate `paste` reads 8 MiB of it and says so.
const MAX_READ: u64 = (8 << 20) + 1;

pub(super) fn run(args: &ExplainArgs) -> Result<ExitKind> {
    let named = args.file.as_deref().map(|file| file.to_string_lossy()).unwrap_or_default();
    // No file has such a name: it is a case, or an exchange.
    let is_text =
        args.file.as_deref().is_some_and(|file| !file.exists()) && named.contains(['>', '→', ' ']);
    // What is neither may be a sentence with a figure.
    let is_paste = is_text
        && Case::parse_with_defaults(&named).is_err()
        && !pathline_paste::read_paste(named.as_bytes()).documents.is_empty();
    if is_text && !is_paste {
        return case::run(&named, args.machine.as_deref());
    }
    let is_file = args.file.as_deref().is_none_or(|file| file.exists());
    if let Some((name, value)) = setting::read_setting(&named).filter(|_| !is_file) {
        return setting::run(name, value, node(args)?, args.json);
    }
    if let Some(run) =
        args.file.as_deref().filter(|file| files::journal_path(file).is_file() && file.is_dir())
    {
        return explain_run(args, run);
    }
    if args.check && args.file.is_none() && std::io::stdin().is_terminal() {
        return check_alone(args);
    }
    let bytes = match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(_) if is_paste => named.into_owned().into_bytes(),
        Some(file) => {
            let open = std::fs::File::open(file);
            let open = open.with_context(|| {
                format!("{} cannot be opened (`pathline explain -` reads a paste)", file.display())
            })?;
            read(open).with_context(|| format!("{} cannot be read", file.display()))?
        }
        None => read(std::io::stdin().lock()).context("standard input cannot be read")?,
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        if args.check && args.file.is_none() {
            return check_alone(args);
        }
        bail!("the input is empty: paste the output of a benchmark, a log or an issue's text");
    }
    if let Some(what) = other_input(&bytes) {
        let file = args.file.as_deref().map_or("FILE".into(), |file| file.to_string_lossy());
        bail!("{}", what.replace("FILE", &shell_word(&file)));
    }
    let reading = pathline_paste::read_paste(&bytes);
    let node = node(args)?;
    if let Some((listed, own)) = node.as_ref().and_then(|n| other_product(&reading, n.topology())) {
        bail!("{}", other_machine(args, listed, own));
    }
    let explained = match &node {
        None => explain_alone(&reading)?,
        Some(node) => {
            let found = explain_on_node(&reading, node, None);
            match args.check {
                true => check(args, &reading, node, found)?,
                false => found,
            }
        }
    };
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&explained)?);
    } else {
        show(&explained, say::is_full());
    }
    Ok(exit(&explained))
}

/// What a run shows, as its report says it; with --check, the same node once more.
fn explain_run(args: &ExplainArgs, run: &Path) -> Result<ExitKind> {
    let (journal, path) = (files::read(run)?, files::journal_path(run));
    let network = report::network(&journal, &path)?;
    let form = SummaryForm { full: say::is_full(), colour: say::colour() };
    let rendered = report::render_run(&journal, &network, &path, form);
    match args.json {
        true => out!("{}", report::json_of_run(&journal, &network, &path)?),
        false if args.check => outln!("run: {}\n", rendered.verdict),
        false => say::page(&rendered.summary),
    }
    if !args.check {
        return Ok(rendered.exit);
    }
    let description = path.with_file_name(files::MACHINE);
    let machine = match &journal.begin.world {
        WorldKind::Simulated(_) if description.is_file() => {
            Some(description.to_string_lossy().into_owned())
        }
        WorldKind::Simulated(name) => Some(name.clone()),
        WorldKind::Real if journal.begin.host != hostname() => bail!(
            "{} is a run of {}: --check measures the node that it was made on",
            shell_word(&run.to_string_lossy()),
            journal.begin.host
        ),
        WorldKind::Real => None,
    };
    let document = health::check_machine(machine.as_deref(), CHECK_SECS)?;
    outln!("{}", health_text(&document, width()).trim_end());
    Ok(rendered.exit.worse(document.state.into()))
}

/// Without an output to explain, a check says whether the node is sound.
fn check_alone(args: &ExplainArgs) -> Result<ExitKind> {
    node(args)?;
    let document = health::check_machine(args.machine.as_deref(), CHECK_SECS)?;
    match args.json {
        true => out!("{}", health_json(&document)),
        false => outln!("{}", health_text(&document, width()).trim_end()),
    }
    Ok(document.state.into())
}

fn read(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Without a node of the user: on the described node that the paste names whole, if it does.
fn explain_alone(reading: &PasteReading) -> Result<PasteExplanation> {
    let named = whole_node(reading);
    let preset = named.and_then(|(product, gpus)| preset_of(product, Some(gpus)));
    let Some(((product, gpus), preset)) = named.zip(preset) else {
        return Ok(explain_paste(reading, None));
    };
    let model = MachineModel::read(preset)?;
    let node = RowPredictor::from_desc(model.desc())?.with_text(model.text());
    let because = format!(", assumed since the paste names {gpus} x {product}");
    Ok(explain_on_preset(reading, &node.assumed(because)))
}

/// An error if the paste lists other GPUs than the machine of the user has.
fn other_machine(args: &ExplainArgs, listed: &str, own: &str) -> String {
    let here = match (&args.machine, &args.from) {
        (Some(name), _) => format!("-m {name}"),
        (_, Some(file)) => format!("--from {}", file.display()),
        _ => "this node".to_owned(),
    };
    let instead = match preset_of(listed, None) {
        Some(preset) => format!("-m {preset} describes such a node"),
        None => "leave the node out, or describe it (`pathline model show` writes one to edit)"
            .to_owned(),
    };
    format!("the paste lists {listed}, {here} has {own}: {instead}")
}

/// The node whose figures a paste has, if one is named.
fn node(args: &ExplainArgs) -> Result<Option<RowPredictor>> {
    if args.check && args.from.is_some() {
        bail!("--check measures this node (--here) or a simulated one (--machine), not a file");
    }
    if let Some(path) = &args.from {
        return Ok(Some(RowPredictor::from_topology(pathline_topo::from_path(path)?)));
    }
    if let Some(name) = &args.machine {
        let model = MachineModel::read(name)?;
        return Ok(Some(RowPredictor::from_desc(model.desc())?.with_text(model.text())));
    }
    if args.check && !args.here {
        bail!("--check measures a node: name this one (--here) or a simulated one (--machine)");
    }
    let here = || RowPredictor::from_topology(HostSurvey::new(args.timeout.call()).topology);
    Ok(args.here.then(here))
}

/// Measures the probe of the first answer that has one, and explains the paste again.
fn check(
    args: &ExplainArgs,
    reading: &PasteReading,
    node: &RowPredictor,
    found: PasteExplanation,
) -> Result<PasteExplanation> {
    let Some(probe) = found.answers.iter().find_map(|answer| DecidingProbe::new(node, answer))
    else {
        errln!("! nothing to check: no copy of this node decides between these causes");
        return Ok(found);
    };
    let machine = match &args.machine {
        Some(name) => MachineChoice::Model(Box::new(MachineModel::read(name)?)),
        None => {
            let (libraries, stores) = (args.libraries.choice(), StorePlaces::default());
            MachineChoice::Host(HostMachine { libraries, stores })
        }
    };
    let settings = RunSettings::default();
    let (memory, limit, faults, repeat) = (None, None, Vec::new(), 0);
    let request = RunRequest { machine, settings, memory, job: None, limit, faults, repeat };
    let begun = Instant::now();
    let stopper = StopRequest::new(begun, None);
    let rates = on_machine(&request, &stopper, |executor| {
        let about = executor.about().clone();
        let plan = plan_cases(&about, probe.cases().iter().cloned(), &request)?;
        let interrupt = || stopper.reason();
        let mut trials = CaseTrials::new(executor, plan, &interrupt);
        Ok(measure(&probe, &mut trials))
    })?;
    let mut checked = match ProbeEvidence::new(node, &probe, &rates) {
        Ok(evidence) => explain_on_node(reading, node, Some(&evidence)),
        Err(why) => {
            errln!("! no copy decides between the causes: {why}");
            found
        }
    };
    // The verdict on the node is that of the health check.
    let left = CHECK_SECS.saturating_sub(begun.elapsed().as_secs()).max(2);
    let document = health::check_machine(args.machine.as_deref(), left)?;
    let worst = worst_path(&document).map_or(String::new(), |path| format!("; {path}"));
    let reason = format!("{}{worst}", document.reason);
    checked.add_node(document.state, &reason, &document.action);
    Ok(checked)
}

/// The rates of a probe's cases in GB/s, until its time is over.
fn measure(probe: &DecidingProbe, trials: &mut dyn TrialRunner) -> Vec<Result<f64, String>> {
    let arms: Vec<TrialArm> =
        probe.cases().iter().map(|case| TrialArm::of_case("probe", case.clone())).collect();
    let mut rates = Vec::new();
    // A GPU's cases at a time: a driver that answers slowly must not cost more than the time limit.
    for part in arms.chunks(PROBE_BLOCK) {
        if trials.elapsed() > PROBE_SECS || trials.interrupted().is_some() {
            rates.extend(part.iter().map(|_| Err("the time of the check is over".to_owned())));
            continue;
        }
        // Nanoseconds for a byte: their inverse is GB/s.
        let costs = trials.block(&part.iter().collect::<Vec<_>>());
        rates.extend(costs.into_iter().map(|cost| cost.map(|cost| 1.0 / cost.cost)));
    }
    rates
}

/// What an input is that no tool of the field printed, and what to do with it.
fn other_input(bytes: &[u8]) -> Option<&'static str> {
    let starts = |start: &[u8]| bytes.starts_with(start);
    if starts(b"{\"type\":\"begin\"") {
        return Some("a journal of pathline: `pathline report FILE`");
    }
    if pathline_report::html::is_page(bytes.get(..4096).unwrap_or(bytes)) {
        return Some("a page of pathline: `pathline report` with the folder that it is in");
    }
    if starts(b"\x1f\x8b") {
        return Some("a gzip file: gunzip it, or if it is a journal: `pathline report FILE`");
    }
    if [&b"\x89PNG"[..], b"\xff\xd8\xff", b"GIF8"].into_iter().any(starts) {
        return Some("a picture: paste the text of the output");
    }
    let head = bytes.get(..1024).unwrap_or(bytes);
    let is_wide = starts(b"\xff\xfe") || starts(b"\xfe\xff");
    (head.contains(&0) && !is_wide)
        .then_some("a binary file: paste the text of an output, a log or a topology")
}

/// The worst verdict decides; without a figure, a log, a setting or a text of a library nothing could be judged.
fn exit(explained: &PasteExplanation) -> ExitKind {
    let verdicts = explained.answers.iter().map(|answer| answer.verdict.into());
    match explained.answers.is_empty() && explained.settings.is_empty() {
        true => ExitKind::CouldNotJudge,
        false => verdicts.fold(ExitKind::Fine, ExitKind::worse),
    }
}

fn show(explained: &PasteExplanation, all: bool) {
    let columns = width().clamp(60, 100);
    let shown = if all { explained.answers.len() } else { SHOWN };
    for answer in explained.answers.iter().take(shown) {
        outln!("{}, lines {} to {}", answer.tool, answer.first_line, answer.last_line);
        for (label, text) in answer.lines() {
            show_labelled(label, &text, columns);
        }
        outln!("");
    }
    for known in &explained.settings {
        let text = format!("{}: {} ({})", known.setting, known.meaning, known.source);
        show_labelled("set", &text, columns);
        match known.by_size.as_ref().and_then(SizeEffects::answer) {
            Some((verdict, table)) => {
                show_labelled("do", &format!("{verdict}."), columns);
                table.iter().for_each(|line| outln!("  {line}"));
            }
            None if known.action.is_empty() => (),
            None => show_labelled("do", known.action, columns),
        }
    }
    if explained.answers.is_empty() && explained.settings.is_empty() {
        outln!(
            "No output of a known tool, log or topology in {} lines: paste all of it, with its header.",
            explained.lines
        );
    }
    let more = explained.answers.len().saturating_sub(shown);
    if more > 0 {
        errln!("{more} more answers: --full");
    }
    if explained.is_cut {
        errln!("! only the first 8 MiB were read");
    }
    let unread: u32 = explained.unread.iter().map(|&(first, last)| last + 1 - first).sum();
    if unread > 0 {
        let ranges: Vec<String> = explained
            .unread
            .iter()
            .take(4)
            .map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
            .collect();
        let more = if explained.unread.len() > 4 { ", ..." } else { "" };
        errln!(
            "{unread} of {} lines are in no known output (lines {}{more})",
            explained.lines,
            ranges.join(", ")
        );
    }
}
