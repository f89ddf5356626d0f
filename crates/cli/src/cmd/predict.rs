//! `pathline predict`.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use pathline_explain::model_agreement;
use pathline_flow::{MachineDesc, Network, RuntimeEnv, SetPredictor};
use pathline_message::{ExchangeSpec, MessageLayer};
use pathline_report::{csv, html, predicted, terminal};
use pathline_runner::MachineModel;
use pathline_schema::{Case, WorldKind as Recorded};

use super::{ExitKind, colour};
use crate::args::PredictArgs;
use crate::files;
use crate::say::{self, out, outln};

pub(super) fn run(args: &PredictArgs) -> Result<ExitKind> {
    let model = MachineModel::read(&args.machine)?;
    match &args.against {
        Some(run) => against(args, model.desc(), run),
        None => cases(args, &model),
    }
}

/// Predicts the cases and exchanges that are named.
fn cases(args: &PredictArgs, model: &MachineModel) -> Result<ExitKind> {
    let desc = model.desc();
    let network = Network::new(desc, RuntimeEnv::default())?;
    let mut predictor = SetPredictor::new(&network);
    if args.any_order {
        predictor = predictor.any_order();
    }
    let (mut texts, mut values) = (Vec::new(), Vec::new());
    for text in &args.case {
        let case = Case::parse_with_defaults(text).map_err(|e| anyhow!("{text}: {e}"))?;
        let durations = predictor
            .durations(&case)
            .map_err(|why| anyhow!("{} cannot predict '{text}': {why}", desc.name))?;
        let origin = model.origin_of(|desc| {
            let network = Network::new(desc, RuntimeEnv::default())?;
            Ok(SetPredictor::new(&network).durations(&case)?.set.typical.0)
        })?;
        texts.push(predicted::table(&case, &durations, origin));
        values.push(predicted::json(&network, &case, &durations, origin));
    }
    if !args.exchange.is_empty() {
        let layer = MessageLayer::new(desc)?;
        for text in &args.exchange {
            let exchange: ExchangeSpec = text.parse().map_err(|e| anyhow!("{text}: {e}"))?;
            let outcome = layer
                .time(&exchange)
                .map_err(|why| anyhow!("{} cannot predict '{text}': {why}", desc.name))?;
            let origin =
                model.origin_of(|desc| Ok(MessageLayer::new(desc)?.time(&exchange)?.time.0))?;
            texts.push(predicted::exchange(&exchange, &outcome, origin));
            values.push(predicted::exchange_json(&exchange, &outcome, origin));
        }
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&values)?);
    } else {
        out!("{}", texts.join("\n"));
    }
    Ok(ExitKind::Fine)
}

/// Holds the machine against a run.
fn against(args: &PredictArgs, desc: &MachineDesc, run: &Path) -> Result<ExitKind> {
    let journal = files::read(run)?;
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
    let gpus = desc.topology().gpus.len();
    let held = model_agreement::hold(&desc.name, &network, gpus, &journal, &seen, args.any_order)
        .with_context(|| run.display().to_string())?;
    let name = run.display().to_string();
    if let Some(file) = &args.csv {
        files::write(file, &csv::export_agreement(&held))?;
    }
    if let Some(file) = &args.html {
        let world = match &journal.begin.world {
            Recorded::Real => "on hardware".to_owned(),
            Recorded::Simulated(machine) => format!("on the simulator, as {machine}"),
        };
        files::write(file, &html::model_agreement::page(&held, &name, &world))?;
    }
    let piped = [&args.csv, &args.html].into_iter().flatten().any(|f| f == Path::new("-"));
    if !piped {
        let colour = colour(args.color);
        say::page(
            &terminal::model_agreement::summary(&held, &name, args.all, say::width(), colour),
            colour,
        );
        if let Some(file) = &args.html {
            outln!("\n{}", file.display());
        }
    }
    Ok(ExitKind::Fine)
}
