//! `pathline model predict`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use pathline_diagnose::{MAX_TRUST_FIGURES, MAX_TRUST_RANKS, PredictedFigure, find_figure_trust};
use pathline_explain::model_agreement::{self, AgreementSet};
use pathline_flow::{MachineDesc, Network, PredictionTrust, RuntimeEnv, SetPredictor};
use pathline_message::{ExchangeSpec, LinkLoad, MessageLayer};
use pathline_report::{csv, html, link_loads, predicted, terminal};
use pathline_runner::MachineModel;
use pathline_schema::{Case, ParseError, WorldKind as Recorded};

use super::message_cases::exchange_of_messages;
use super::{ExitKind, judge_source};
use crate::args::PredictArgs;
use crate::files;
use crate::say::{self, outln};

pub(super) fn run(args: &PredictArgs) -> Result<ExitKind> {
    let model = MachineModel::read(&args.machine)?.with_stack(args.stack.as_deref())?;
    match &args.against {
        Some(run) => against(args, &model, run),
        None => cases(args, &model),
    }
}

/// The longest line of a file of cases or exchanges, and the most lines: 10,000 single GPUs of as many
/// nodes take 140 kB.
const MAX_LINE: u64 = 4 << 20;
const MAX_LINES: usize = 100_000;

/// A text to predict, with its place in a file.
struct NamedText {
    text: String,
    place: String,
}

/// Texts of the command line, then those of a file.
fn texts<'t>(
    named: impl Iterator<Item = &'t String>,
    file: Option<&Path>,
) -> Result<Vec<NamedText>> {
    let own = named.map(|text| NamedText { text: text.clone(), place: String::new() });
    let mut all: Vec<NamedText> = own.collect();
    let Some(file) = file else { return Ok(all) };
    let (name, mut input) = open_input(file)?;
    for number in 1usize.. {
        let mut line = Vec::new();
        let read = input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
        let place = format!("{name}:{number}: ");
        if read.with_context(|| place.clone())? == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE {
            bail!(
                "{place}a line of more than {MAX_LINE} bytes; expected one case or exchange a line"
            );
        }
        let text = String::from_utf8(line).map_err(|_| anyhow!("{place}it is not UTF-8"))?;
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if all.len() >= MAX_LINES {
            bail!("{place}more than {MAX_LINES} lines; split the file");
        }
        all.push(NamedText { text: text.to_owned(), place });
    }
    Ok(all)
}

/// A file, or standard input for `-`, with its name in errors.
fn open_input(file: &Path) -> Result<(String, Box<dyn BufRead>)> {
    if file == Path::new("-") {
        return Ok(("standard input".to_owned(), Box::new(io::stdin().lock())));
    }
    let name = file.to_string_lossy().into_owned();
    let open = File::open(file).with_context(|| name.clone())?;
    Ok((name, Box::new(BufReader::new(open))))
}

/// At most as much of a text as an error shows.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(120).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// ` of FILE:LINE` in an error, or nothing for a text of the command line.
fn at(place: &str) -> String {
    match place.strip_suffix(": ") {
        Some(place) => format!(" of {place}"),
        None => String::new(),
    }
}

/// The cases and exchanges that are named, each with its text as errors show it.
#[derive(Default)]
struct NamedFigures {
    cases: Vec<(Case, String)>,
    exchanges: Vec<(ExchangeSpec, String)>,
    /// The constants that decide each, cases before exchanges; empty where they are unknown.
    trust: Vec<PredictionTrust>,
}

impl NamedFigures {
    fn read(args: &PredictArgs, model: &MachineModel) -> Result<Self> {
        let texts = texts(args.texts.iter().chain(&args.case), args.file.as_deref())?;
        let mut named = Self::default();
        for NamedText { text, place } in texts {
            let short = shortened(&text);
            let name = format!("'{short}'{}", at(&place));
            if text.split_whitespace().nth(1) == Some("over") {
                let exchange = text.parse().map_err(|e: ParseError| anyhow!("{place}{e}"))?;
                named.exchanges.push((exchange, name));
            } else {
                let case = Case::parse_with_defaults(&text);
                let case = case.map_err(|e| anyhow!("{place}{short}: {e}"))?;
                let desc = model.desc();
                match exchange_of_messages(&case, desc) {
                    Some(exchange) => {
                        let exchange = exchange
                            .map_err(|why| anyhow!("{} cannot predict {name}: {why}", desc.name))?;
                        named.exchanges.push((exchange, name));
                    }
                    None => named.cases.push((case, name)),
                }
            }
        }
        named.trust = named.find_trust(model)?;
        Ok(named)
    }

    /// The constants that decide each figure.
    fn find_trust(&self, model: &MachineModel) -> Result<Vec<PredictionTrust>> {
        let cases = self.cases.iter().map(|(case, _)| PredictedFigure::Case(case));
        let exchanges = self.exchanges.iter().map(|(e, _)| PredictedFigure::Exchange(e));
        let figures: Vec<_> = cases.chain(exchanges).collect();
        Ok(find_figure_trust(model.desc(), model.text(), &figures)?)
    }
}

/// Predictions as text, as JSON, and the loads of links of each.
#[derive(Default)]
struct Predictions {
    shown: Vec<String>,
    values: Vec<serde_json::Value>,
    links: Vec<(String, Vec<LinkLoad>)>,
}

/// Predicts the cases and exchanges that are named.
fn cases(args: &PredictArgs, model: &MachineModel) -> Result<ExitKind> {
    let named = NamedFigures::read(args, model)?;
    let mut found = Predictions::default();
    found.add_cases(args, &named, model.desc())?;
    found.add_exchanges(args, &named, model.desc())?;
    let Predictions { shown, values, links } = found;
    match args.json {
        true => outln!("{}", serde_json::to_string_pretty(&values)?),
        false => say::print_prose(format_args!("{}\n", shown.join("\n").trim_end())),
    }
    files::write_each(&args.out, |ending| match ending {
        "json" => Ok(serde_json::to_string_pretty(&link_loads::json(&links))?),
        "csv" => Ok(link_loads::csv(&links)?),
        _ => bail!("a page compares with a run: --against RUN; link loads are .csv or .json"),
    })?;
    Ok(ExitKind::Fine)
}

impl Predictions {
    fn add_cases(
        &mut self,
        args: &PredictArgs,
        named: &NamedFigures,
        desc: &MachineDesc,
    ) -> Result<()> {
        let network = Network::new(desc, RuntimeEnv::default())?;
        let mut predictor = SetPredictor::new(&network);
        if args.any_order {
            predictor = predictor.any_order();
        }
        for (nth, (case, text)) in named.cases.iter().enumerate() {
            let durations = predictor
                .durations(case)
                .map_err(|why| anyhow!("{} cannot predict {text}: {why}", desc.name))?;
            let trust = named.trust.get(nth);
            let durations = match trust {
                Some(trust) => durations.widened(trust),
                None => durations,
            };
            self.shown.push(predicted::table(case, &durations, trust));
            self.values.push(predicted::json(&network, case, &durations, trust));
        }
        Ok(())
    }

    fn add_exchanges(
        &mut self,
        args: &PredictArgs,
        named: &NamedFigures,
        desc: &MachineDesc,
    ) -> Result<()> {
        if named.exchanges.is_empty() {
            return Ok(());
        }
        let layer = MessageLayer::new(desc)?;
        for (nth, (exchange, text)) in named.exchanges.iter().enumerate() {
            let members = exchange.members();
            let several = members.iter().any(|m| Some(m.node) != members.first().map(|m| m.node));
            let outcome = match several || !args.out.is_empty() {
                true => layer.time_and_links(exchange),
                false => layer.time(exchange),
            };
            let mut outcome =
                outcome.map_err(|why| anyhow!("{} cannot predict {text}: {why}", desc.name))?;
            let few = members.len() <= MAX_TRUST_RANKS;
            let trust = named.trust.get(named.cases.len() + nth).filter(|_| few);
            self.shown.push(predicted::exchange(exchange, &outcome, trust));
            self.values.push(predicted::exchange_json(exchange, &outcome, trust));
            if !args.out.is_empty() {
                self.links.push((exchange.to_string(), std::mem::take(&mut outcome.links)));
            }
        }
        Ok(())
    }
}

/// The constants that decide each of the sets that are shown.
fn trust_of_shown(
    sets: &[AgreementSet],
    all: bool,
    model: &MachineModel,
) -> Result<Vec<PredictionTrust>> {
    let most = if all { MAX_TRUST_FIGURES } else { terminal::model_agreement::FARTHEST };
    let cases = sets.iter().take(most).map(|set| (set.case.clone(), String::new())).collect();
    NamedFigures { cases, exchanges: Vec::new(), trust: Vec::new() }.find_trust(model)
}

/// Compares the predictions for a machine with a run.
fn against(args: &PredictArgs, model: &MachineModel, run: &Path) -> Result<ExitKind> {
    let desc = model.desc();
    let journal = files::read(run)?;
    let source = judge_source(run, &journal);
    let seen = args.only_unseen.iter().map(|run| files::read(run)).collect::<Result<Vec<_>>>()?;
    if let Some(other) = seen.iter().position(|s| s.begin.world != journal.begin.world) {
        let other = args.only_unseen.get(other).map(|p| p.display().to_string());
        bail!(
            "{} is a run of another world than {}; real and simulated figures cannot be mixed",
            other.unwrap_or_default(),
            run.display()
        );
    }
    let network = Network::new(desc, RuntimeEnv::from_env(&journal.begin.env))?;
    let gpus = desc.topology().gpus;
    let mut held =
        model_agreement::compare_run(&desc.name, &network, &gpus, &journal, &seen, args.any_order)
            .with_context(|| run.display().to_string())?;
    held.trust = trust_of_shown(&held.sets, say::is_full(), model)?;
    let name = run.display().to_string();
    let world = match &journal.begin.world {
        Recorded::Real => "on hardware".to_owned(),
        Recorded::Simulated(machine) => format!("on the simulator, as {machine}"),
    };
    let (width, colour) = (say::width(), say::colour());
    say::page(&terminal::model_agreement::summary(&held, &name, say::is_full(), width, colour));
    files::write_each(&args.out, |ending| match ending {
        "csv" => Ok(csv::export_agreement(&held)),
        "html" => Ok(html::model_agreement::page(&held, &name, &world)),
        _ => bail!("a comparison with a run is .html or .csv"),
    })?;
    Ok(source)
}
