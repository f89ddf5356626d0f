//! The commands. Each takes its arguments and returns the exit code.

mod advise;
mod audit;
mod audit_choices;
mod bundle;
mod calibrate;
mod case;
mod case_machine;
mod diff;
mod digest;
mod doctor;
mod explain;
mod fleet;
mod health;
mod hello;
mod machines;
mod message_cases;
mod net;
mod place;
mod place_cluster;
mod place_pattern;
mod plan;
mod predict;
mod rank_sites;
mod repeat;
mod report;
mod resume;
mod run;
mod setting;
mod setting_words;
mod suites;
mod topo;
mod trial_placement;
mod validate;
mod watch;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use pathline_findings::RunAnswer;
use pathline_runner::{
    HostMachine, StorePlaces, keep_launched, serve_health, serve_launch, serve_probe, serve_rank,
    serve_worker,
};
use pathline_schema::{
    CaseOutcome, CpuSet, FaultedCase, Journal, NodeVerdict, Severity, plain_line,
};

use crate::args::{Args, Command, InternalArgs, InternalCommand, ModelArgs, ModelCommand};
use crate::say::{self, HOOKS, errln, out};

/// How a command went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// All is well.
    Fine,
    /// Measured or compared, and something is wrong.
    Wrong,
    /// Arguments or files cannot be used.
    Unusable,
    /// There was nothing to judge by.
    CouldNotJudge,
    /// The code of another program's convention.
    Foreign(u8),
}

impl ExitKind {
    /// The more serious of two: what is wrong is so even if other parts could not be judged.
    pub(crate) fn worse(self, other: Self) -> Self {
        let order = [Self::Wrong, Self::CouldNotJudge];
        order.into_iter().find(|kind| [self, other].contains(kind)).unwrap_or(self)
    }
}

/// The code of a verdict that was asked for.
impl From<NodeVerdict> for ExitKind {
    fn from(verdict: NodeVerdict) -> Self {
        match verdict {
            NodeVerdict::Ok => Self::Fine,
            NodeVerdict::Suspect | NodeVerdict::Fail => Self::Wrong,
            NodeVerdict::Undecided => Self::CouldNotJudge,
        }
    }
}

/// The code of a run and of its report: nobody asked for a verdict, so a sound run without peers is fine.
impl From<&RunAnswer> for ExitKind {
    fn from(answer: &RunAnswer) -> Self {
        answer.state.map_or(Self::Fine, Self::from)
    }
}

impl From<ExitKind> for ExitCode {
    fn from(exit: ExitKind) -> Self {
        Self::from(match exit {
            ExitKind::Fine => 0,
            ExitKind::Wrong => 1,
            ExitKind::Unusable => 2,
            ExitKind::CouldNotJudge => 3,
            ExitKind::Foreign(code) => code,
        })
    }
}

/// Runs the command of the command line.
pub(crate) fn run(args: Args) -> Result<ExitKind> {
    say::set_form(&args);
    match args.command {
        None => hello::run(),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Health(args)) if !args.fleet.is_empty() => fleet::judge(&args),
        Some(Command::Health(args)) if args.net => net::check(&args),
        Some(Command::Health(args)) if args.gather.is_some() => fleet::gather(&args),
        Some(Command::Health(args)) => Ok(health::run(&args)),
        Some(Command::Topo(args)) => topo::run(&args),
        Some(Command::Advise(args)) => advise::run(&args),
        Some(Command::Place(args)) if args.check.is_some() => rank_sites::run(&args),
        Some(Command::Place(args)) => place::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Watch(args)) => watch::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Diff(args)) => diff::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Model(ModelArgs { command })) => match command {
            ModelCommand::List => machines::list(),
            ModelCommand::Show(args) => machines::show(&args),
            ModelCommand::Fit(args) => calibrate::run(&args),
            ModelCommand::Check(args) => validate::run(&args),
            ModelCommand::Predict(args) => predict::run(&args),
        },
        Some(Command::Help { command }) => {
            let words = ["pathline".to_owned()].into_iter().chain(command);
            let asked = words.chain(["--help".to_owned()]);
            Args::command().get_matches_from(asked);
            Ok(ExitKind::Fine)
        }
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(), "pathline", &mut script);
            out!("{}", String::from_utf8_lossy(&script));
            Ok(ExitKind::Fine)
        }
        Some(Command::Man { dir: Some(dir) }) => {
            std::fs::create_dir_all(&dir)
                .and_then(|()| clap_mangen::generate_to(visible(), &dir))
                .with_context(|| format!("manual pages cannot be written to {}", dir.display()))?;
            Ok(ExitKind::Fine)
        }
        Some(Command::Man { dir: None }) => {
            let mut page = Vec::new();
            clap_mangen::Man::new(visible()).render(&mut page)?;
            out!("{}", String::from_utf8_lossy(&page));
            Ok(ExitKind::Fine)
        }
    }
}

/// Options for work on pathline itself.
const IN_WORK: [&str; 2] = ["worker", "inject"];

/// The command table without the options that are for work on pathline itself, which scripts of
/// completions would list.
fn visible() -> clap::Command {
    let shown = |name: &'static str| {
        move |command: clap::Command| {
            let about = command.get_about().cloned().unwrap_or_default();
            let args = command
                .get_arguments()
                .filter(|arg| !IN_WORK.contains(&arg.get_id().as_str()))
                .cloned();
            clap::Command::new(name).about(about).args(args.collect::<Vec<_>>())
        }
    };
    ["run", "health"]
        .into_iter()
        .fold(Args::command(), |all, name| all.mut_subcommand(name, shown(name)))
}

/// Does what another process of this program wants.
pub(crate) fn serve(args: InternalArgs) -> Result<ExitKind> {
    match args.command {
        InternalCommand::Worker => serve_worker(HOOKS)?,
        InternalCommand::HealthWorker => serve_health(HOOKS)?,
        InternalCommand::Rank { probe: true, libraries, .. } => {
            serve_launch(&libraries.choice(), HOOKS)?;
        }
        InternalCommand::Rank {
            launched: true,
            store,
            span,
            overwrite,
            s3_endpoint: endpoint,
            libraries,
            ..
        } => {
            let stores = StorePlaces { paths: store, span, overwrite, endpoint };
            let host = HostMachine { libraries: libraries.choice(), stores };
            let done = keep_launched(&host, HOOKS)?;
            return Ok(if done { ExitKind::Fine } else { ExitKind::Wrong });
        }
        InternalCommand::Rank {
            kept,
            store,
            span,
            overwrite,
            s3_endpoint: endpoint,
            libraries,
            ..
        } => {
            let stores = StorePlaces { paths: store, span, overwrite, endpoint };
            serve_rank(kept, &HostMachine { libraries: libraries.choice(), stores }, HOOKS)?;
        }
        InternalCommand::Probe { what, libraries } => {
            serve_probe(what, &libraries.choice(), pathline_explain::gpus::describe_gpu)?;
        }
        InternalCommand::Compile => pathline_gpu::serve_compilations()?,
    }
    Ok(ExitKind::Fine)
}

/// Names what a run lacks that figures are taken from: cases that failed, and its end. Wrong bytes are a fault.
fn judge_source(path: &Path, journal: &Journal) -> ExitKind {
    let faults = journal.outcomes.iter().filter_map(|outcome| match outcome {
        CaseOutcome::Faulted(fault) => Some(fault),
        _ => None,
    });
    let (corrupt, other): (Vec<&FaultedCase>, Vec<&FaultedCase>) =
        faults.partition(|fault| fault.severity == Severity::Corrupt);
    let (name, all) = (path.display(), journal.outcomes.len());
    for (faults, what) in [(&corrupt, "have wrong bytes"), (&other, "failed")] {
        if let Some(FaultedCase { case, error, .. }) = faults.first() {
            let (count, error) = (faults.len(), plain_line(error));
            errln!("pathline: {name}: {count} of {all} cases {what}, the first {case}: {error}");
        }
    }
    if journal.end.is_none() {
        errln!("pathline: {name}: the run did not end: {all} cases so far");
    }
    match (corrupt.is_empty(), journal.end.is_none() || !journal.broken.is_empty()) {
        (false, _) => ExitKind::Wrong,
        (true, true) => ExitKind::CouldNotJudge,
        (true, false) => ExitKind::Fine,
    }
}

/// Shows the GPU runtimes of this host only these GPUs: starts the program again with the variable that hides the
/// others.
fn hide_other_gpus(gpus: Option<&CpuSet>, machine: Option<&String>) -> Result<()> {
    let (Some(gpus), None) = (gpus, machine) else { return Ok(()) };
    let variable = match Path::new("/dev/kfd").exists() {
        true => "ROCR_VISIBLE_DEVICES",
        false => "CUDA_VISIBLE_DEVICES",
    };
    let list: Vec<String> = gpus.as_slice().iter().map(u32::to_string).collect();
    let list = list.join(",");
    match std::env::var(variable) {
        Ok(set) if set == list => return Ok(()),
        Ok(set) => {
            bail!("--gpus {gpus} and {variable}={set} both choose GPUs: leave out one of them")
        }
        Err(_) => {}
    }
    let mut again = std::process::Command::new(std::env::current_exe()?);
    // The numbers are those of `nvidia-smi` and `pathline topo`, in the order of the bus.
    again
        .args(std::env::args_os().skip(1))
        .env(variable, &list)
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    Err(again.exec())
        .with_context(|| format!("the program cannot be started with {variable}={list}"))
}
