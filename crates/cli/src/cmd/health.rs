//! `pathline health`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use pathline_flow::{Network, RuntimeEnv};
use pathline_health::HealthSettings;
use pathline_report::health::{
    DocumentState, HealthClass, HealthDocument, HealthPath, HealthPhases, json, junit, nagios,
    prometheus, reframe, text,
};
use pathline_runner::{
    HealthOutcome, HealthRequest, HostMachine, MachineChoice, MachineModel, NodeView, StorePlaces,
    TwinReference, examine, hostname, switches,
};
use pathline_schema::WorldKind;
use pathline_stats::SeriesSummary;

use super::ExitKind;
use crate::args::{HealthArgs, HealthFormat};
use crate::files;
use crate::say::{errln, out};

/// Columns of the summary where nothing says how wide the terminal is.
const WIDTH: usize = 100;

/// Every end of the command has a result in the requested format.
pub(super) fn run(args: &HealthArgs) -> ExitKind {
    let started = jiff::Timestamp::now().to_string();
    let document = check(args, &started).unwrap_or_else(|error| {
        let error = format!("{error:#}");
        errln!("pathline: {error}");
        HealthDocument::unusable(env!("CARGO_PKG_VERSION"), &hostname(), &started, &error)
    });
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
    match (args.format, document.state) {
        (HealthFormat::Nagios, state) => ExitKind::Foreign(state.nagios_code()),
        (_, DocumentState::Pass) => ExitKind::Fine,
        (_, DocumentState::Fail) => ExitKind::Wrong,
        (_, DocumentState::Unusable) => ExitKind::Unusable,
        (_, DocumentState::Unstable | DocumentState::Inconclusive) => ExitKind::CouldNotJudge,
    }
}

fn render(args: &HealthArgs, document: &HealthDocument) -> String {
    match args.format {
        HealthFormat::Text => {
            let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
            text(document, columns.unwrap_or(WIDTH))
        }
        HealthFormat::Json => json(document),
        HealthFormat::Junit => junit(document),
        HealthFormat::Prom => prometheus(document),
        HealthFormat::Reframe => reframe(document),
        HealthFormat::Nagios => nagios(document),
    }
}

/// Examines the node.
///
/// # Errors
/// Arguments or files cannot be used.
fn check(args: &HealthArgs, started: &str) -> Result<HealthDocument> {
    let machine = match &args.machine {
        Some(name) => MachineChoice::Model(Box::new(MachineModel::read(name)?)),
        None => MachineChoice::Host(HostMachine {
            libraries: args.libraries.choice(),
            stores: StorePlaces::default(),
        }),
    };
    let twin = args.against.as_deref().map(twin).transpose()?;
    let request = HealthRequest {
        machine,
        budget: args.budget,
        settings: HealthSettings {
            alpha: args.alpha,
            loss: args.loss,
            ..HealthSettings::default()
        },
        shared: args.shared,
        in_processes: args.worker,
        seed: args.seed,
        noise: args.noise.map(|percent| percent / 100.0),
        faults: args.inject.clone(),
        twin,
    };
    let outcome = examine(&request);
    Ok(document(args, started, outcome))
}

/// The description of the node as it should be.
fn twin(path: &Path) -> Result<TwinReference> {
    let model = MachineModel::read(&path.to_string_lossy()).context("--against")?;
    let network = Network::new(model.desc(), RuntimeEnv::from_env(&switches()))?;
    Ok(TwinReference { topology: model.desc().healthy_topology().clone(), network })
}

fn document(args: &HealthArgs, started: &str, outcome: HealthOutcome) -> HealthDocument {
    let HealthOutcome { view, plan, paths, facts, report, times, processes } = outcome;
    let state = DocumentState::from(report.state);
    let simulated = match view.as_ref().map(|view| &view.world) {
        Some(WorldKind::Simulated(name)) => Some(name.clone()),
        Some(WorldKind::Real) | None => args.machine.clone(),
    };
    let bytes = |class: usize| {
        let of_class = plan.probes.iter().find(|probe| probe.class == class)?;
        of_class.case.timed.first().map(|flow| flow.bytes.as_f64())
    };
    let classes = plan.classes.iter().enumerate().map(|(nth, class)| {
        let share = report.classes.iter().find(|share| share.class == class.label);
        let median_ns = share.and_then(|share| share.median_ns);
        let is_rate = class.tail != pathline_health::TailKind::Latency;
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
    let measured = plan.probes.iter().zip(&paths).map(|(probe, times)| {
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
    HealthDocument {
        simulated,
        node: view.as_ref().map(identity).unwrap_or_default(),
        state,
        reason: report.reason.clone(),
        exit_code: match args.format {
            HealthFormat::Nagios => state.nagios_code(),
            _ => state.exit_code(),
        },
        seconds: HealthPhases {
            budget: args.budget.as_secs_f64(),
            opening: times.opening.as_secs_f64(),
            binding: times.binding.as_secs_f64(),
            total: times.total.as_secs_f64(),
            is_virtual: args.machine.is_some() && !args.worker,
        },
        processes,
        facts,
        classes,
        paths: measured,
        report: Some(report),
        env: switches(),
        ..HealthDocument::unusable(env!("CARGO_PKG_VERSION"), &hostname(), started, "")
    }
}

/// The node in a line: `8 x NVIDIA H200, 18 NVLinks each, NVML 580.95`.
fn identity(view: &NodeView) -> String {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in &view.topology.gpus {
        *names.entry(&gpu.name).or_default() += 1;
    }
    let mut parts: Vec<String> =
        names.into_iter().map(|(name, count)| format!("{count} x {name}")).collect();
    if parts.is_empty() {
        parts.push("no GPU".to_owned());
    }
    let mut sources: Vec<&str> = view.facts.values().map(|f| f.source.as_str()).collect();
    sources.dedup();
    parts.extend(sources.into_iter().filter(|s| !s.is_empty() && *s != "model").map(str::to_owned));
    if !view.topology.host.cpu_model.is_empty() {
        parts.push(view.topology.host.cpu_model.clone());
    }
    parts.join(", ")
}
