//! `pathline run`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use pathline_bench::{About, Crew, Header, Here, Overhead, Plan, Scope, Session, default_settings};
use pathline_flow::Network;
use pathline_schema::{Bytes, End, Ns, Outcome, Settings};

use super::{Exit, colour, plan, report};
use crate::args::{Args, Command, RunArgs};
use crate::progress::{Progress, Stopper};
use crate::say::{out, outln};
use crate::world::{Open, World};
use crate::{env, files};

pub(super) fn run(args: RunArgs) -> Result<Exit> {
    let begun = Instant::now();
    let args = taken_up(args)?;
    let stopper = Stopper::new(begun, args.time_limit);
    let switches = env::switches();
    let world = World::new(args.select.machine.as_deref(), args.nvrtc.as_ref())?;
    let memory = world.memory(args.select.memory);
    let start = Start {
        name: world.name().to_owned(),
        description: world.description().map(str::to_owned),
        settings: settings(&args, memory),
        switches,
        args,
        stopper,
    };
    let Open { machine, without, network } = world.open(&start.switches, start.args.seed)?;
    let about = About::of(&machine, without, Overhead::All);
    let mut crew = Here::new(&machine, about, start.settings);
    go(start, &mut crew, &network)
}

/// What a run is begun with.
struct Start {
    args: RunArgs,
    stopper: Stopper,
    switches: BTreeMap<String, String>,
    /// Name of the machine.
    name: String,
    /// Text of its description, if it is a model.
    description: Option<String>,
    settings: Settings,
}

/// Plans, measures and reports.
fn go(start: Start, crew: &mut dyn Crew, network: &Network) -> Result<Exit> {
    let Start { args, stopper, switches, name, description, settings } = start;
    let plan = plan_for(crew.about(), &args, settings.memory, &switches, &name)?;
    let header = Header {
        host: env::hostname(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(),
        env: switches,
        settings,
    };
    let (folder, session) = open(&args, &crew.about().world, &header.host, &name)?;
    if let Some(text) = description.filter(|_| args.resume.is_none()) {
        files::write(&folder.join(files::MACHINE), &text)?;
    }
    let end = measure(session, crew, &plan, header, &stopper, args.quiet)?;
    let journal = files::read(&folder)?;
    let page = folder.join(files::PAGE);
    let summary = report::write(&journal, network, &page, colour(args.color))?;
    if !args.quiet {
        out!("{summary}");
        outln!("\n{} · {}", page.display(), folder.join(files::JOURNAL).display());
        if !end.complete {
            outln!("this run was cut; `pathline run --resume {}` goes on", folder.display());
        }
    }
    Ok(judge(&journal.outcomes))
}

fn plan_for(
    about: &About,
    args: &RunArgs,
    memory: Bytes,
    switches: &BTreeMap<String, String>,
    name: &str,
) -> Result<Plan> {
    let scope = Scope {
        topology: &about.topology,
        simulated: about.world != pathline_schema::World::Real,
        without_runtime: about.without.as_deref(),
        memory,
        env: switches,
    };
    let plan = plan::make_in(&scope, &args.select)?;
    if plan.entries.is_empty() && !args.select.suite.is_empty() {
        let of = args.select.suite.join(", ");
        return Err(anyhow!(
            "nothing to measure: {of} has no case on {name}; `pathline topo` shows what it is made of"
        ));
    }
    Ok(plan)
}

/// Something failed: 1. Nothing was measured: 3. Else 0, even if a time limit cut the run.
fn judge(outcomes: &[Outcome]) -> Exit {
    let any = |is: fn(&Outcome) -> bool| outcomes.iter().any(is);
    if any(|o| matches!(o, Outcome::Faulted(_))) {
        Exit::Wrong
    } else if any(|o| matches!(o, Outcome::Measured(_))) {
        Exit::Fine
    } else {
        Exit::CouldNotJudge
    }
}

/// With `--resume`, the cases that the run was begun with, on the machine as it was described then;
/// how long and how loud is said anew, and where the compiler is now, if that is said.
fn taken_up(args: RunArgs) -> Result<RunArgs> {
    let Some(run) = &args.resume else { return Ok(args) };
    let begin = files::read(run)?.begin;
    let first = Args::try_parse_from(&begin.command)
        .ok()
        .and_then(|a| if let Some(Command::Run(first)) = a.command { Some(first) } else { None })
        .ok_or_else(|| anyhow!("{}: its command line cannot be read again", run.display()))?;
    let mut select = first.select;
    let description = files::journal_path(run).with_file_name(files::MACHINE);
    if select.machine.is_some() && description.is_file() {
        select.machine = Some(description.to_string_lossy().into_owned());
    }
    Ok(RunArgs {
        select,
        precision: first.precision,
        case_budget: first.case_budget,
        seed: first.seed,
        nvrtc: args.nvrtc.or(first.nvrtc),
        ..args
    })
}

fn command_line() -> Vec<String> {
    let mut words: Vec<String> =
        std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        *program = "pathline".to_owned();
    }
    words
}

fn settings(args: &RunArgs, memory: Bytes) -> Settings {
    Settings {
        precision: args.precision / 100.0,
        case_budget: Ns::ms(args.case_budget),
        time_limit: Ns::secs(args.time_limit.unwrap_or(0.0)),
        seed: args.seed,
        ..default_settings(memory)
    }
}

fn open(
    args: &RunArgs,
    world: &pathline_schema::World,
    host: &str,
    name: &str,
) -> Result<(PathBuf, Session)> {
    if let Some(run) = &args.resume {
        let path = files::journal_path(run);
        if path.extension().is_some_and(|e| e == "gz") {
            return Err(anyhow!("{}: to go on with it, gunzip it first", path.display()));
        }
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        return Ok((folder, Session::resume(&path, world, host)?));
    }
    let folder = files::new_folder(args.out.as_deref(), name)?;
    let path = folder.join(files::JOURNAL);
    if path.exists() {
        return Err(anyhow!(
            "{} holds a run already; --resume {} goes on with it, or name another --out",
            folder.display(),
            folder.display()
        ));
    }
    Ok((folder, Session::create(&path)?))
}

fn measure(
    session: Session,
    crew: &mut dyn Crew,
    plan: &Plan,
    header: Header,
    stopper: &Stopper,
    quiet: bool,
) -> Result<End> {
    let mut progress = Progress::new(plan.entries.len(), session.done(), quiet);
    let end = session
        .run(crew, plan, header, &env::now, &|| stopper.reason(), &mut |event| {
            progress.show(event);
        })
        .context("the run ended early; what was measured is in its journal");
    progress.end();
    end
}
