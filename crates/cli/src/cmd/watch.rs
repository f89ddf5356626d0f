//! `pathline watch`.

use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use pathline_diagnose::{CapacitySource, NodeCapacities, NodeTraffic};
use pathline_flow::{Network, RuntimeEnv};
use pathline_report::traffic::{json, page};
use pathline_runner::{HostSurvey, HostTraffic, MachineModel, ModelTraffic, model_steps};
use pathline_schema::{
    Case, Gpu, Ns, ParseError, TrafficCounter, TrafficReading, UncountedPath, WorldKind,
};

use rustix::process::{Pid, Signal, kill_process};

use super::ExitKind;
use super::health::{CheckReference, difference, reference};
use crate::args::WatchArgs;
use crate::progress::StopRequest;
use crate::say::{self, errln, outln};

/// How often it is looked whether the command has ended.
const TICK: Duration = Duration::from_millis(20);

pub(super) fn run(args: &WatchArgs) -> Result<ExitKind> {
    match &args.machine {
        Some(name) => watch_model(args, name),
        None => watch_host(args),
    }
}

/// Adds what --against names to the capacities of a node.
fn with_reference(
    args: &WatchArgs,
    capacities: NodeCapacities,
    world: &WorldKind,
) -> Result<NodeCapacities> {
    let Some(path) = &args.against else { return Ok(capacities) };
    let name = path.display();
    match reference(path).context("--against")? {
        CheckReference::Twin(mut twin) => {
            // The bus knows less of a GPU's name than a runtime, or nothing.
            for gpu in &mut twin.topology.gpus {
                let here = capacities.topology().gpus.iter().find(|here| here.index == gpu.index);
                let is_same =
                    |here: &&Gpu| here.name.contains(&gpu.name) || gpu.name.contains(&here.name);
                if let Some(here) = here.filter(is_same) {
                    gpu.name.clone_from(&here.name);
                }
            }
            if let Some(other) = difference(&twin.topology, capacities.topology()) {
                bail!("the twin {name} is of another node: {other}");
            }
            Ok(capacities.with_network(twin.network, CapacitySource::Twin))
        }
        CheckReference::Run(run) => {
            let other = || anyhow!("{name} is a run of {}, which is another node", run.node_name());
            let is_same = match (world, &run.simulated) {
                (WorldKind::Simulated(machine), Some(simulated)) => machine == simulated,
                (WorldKind::Real, None) => run.host == *capacities.topology().host.hostname,
                _ => false,
            };
            if !is_same {
                return Err(other());
            }
            Ok(capacities.with_run(&run))
        }
        CheckReference::History(_) => bail!("--against {name}: expected a run or a twin"),
    }
}

/// What is printed of the traffic, and where.
struct WatchScreen<'a> {
    args: &'a WatchArgs,
    counters: Vec<TrafficCounter>,
    uncounted: Vec<UncountedPath>,
    capacities: NodeCapacities,
}

impl WatchScreen<'_> {
    fn show(&self, title: &str, readings: (&[TrafficReading], &[TrafficReading])) {
        let traffic =
            NodeTraffic::between(&self.counters, readings, &self.uncounted, &self.capacities);
        let text = match self.args.json {
            true => format!("{}\n", json(&traffic, &jiff::Timestamp::now().to_string(), title)),
            false => page(&traffic, title, say::is_full(), say::width()),
        };
        // A command has standard output to itself.
        if !self.args.command.is_empty() && self.args.machine.is_none() {
            say::eprint(format_args!("{text}"));
        } else if self.args.json {
            say::print(format_args!("{text}"));
        } else {
            if self.redraws() {
                say::clear_screen();
            }
            say::page(&text);
        }
    }

    /// Whether a screen takes the place of the one before.
    fn redraws(&self) -> bool {
        !self.args.once && std::io::stdout().is_terminal() && self.args.machine.is_none()
    }

    fn exit(&self) -> ExitKind {
        if self.counters.is_empty() { ExitKind::CouldNotJudge } else { ExitKind::Fine }
    }
}

fn watch_model(args: &WatchArgs, name: &str) -> Result<ExitKind> {
    let model = MachineModel::read(name)?;
    let desc = model.desc();
    let case = |text: &std::ffi::OsString| {
        let text = text.to_string_lossy();
        Case::parse_with_defaults(&text).map(Some).map_err(|e: ParseError| anyhow!("{text}: {e}"))
    };
    let mut steps = args.command.iter().map(case).collect::<Result<Vec<_>>>()?;
    if steps.is_empty() {
        steps = model_steps(&desc.topology());
    }
    let traffic = ModelTraffic::open(&model)?;
    let world = WorldKind::Simulated(desc.name.clone());
    let own = Network::new(desc, RuntimeEnv::default())?;
    let own = NodeCapacities::new(desc.topology()).with_network(own, CapacitySource::Model);
    let capacities = with_reference(args, own, &world)?;
    let (counters, uncounted) = (traffic.counters().to_vec(), traffic.uncounted().to_vec());
    let screen = WatchScreen { args, counters, uncounted, capacities };
    let interval = Ns(args.interval.as_secs_f64() * 1e9);
    let shown = if args.once { 1 } else { steps.len() };
    for (nth, step) in steps.iter().take(shown).enumerate() {
        let [before, after] = traffic.play(step.as_ref(), interval)?;
        let what = step.as_ref().map_or_else(|| "nothing runs".to_owned(), describe);
        let title = format!("{} (SIMULATED), {} of virtual time: {what}", desc.name, interval);
        if nth > 0 && !args.json {
            outln!("");
        }
        screen.show(&title, (&before, &after));
    }
    Ok(screen.exit())
}

/// A case in short: the first of its flows.
fn describe(case: &Case) -> String {
    let first = case.timed.first().map(ToString::to_string).unwrap_or_default();
    match case.timed.len() {
        0 | 1 => first,
        n => format!("{first} and {} more", n - 1),
    }
}

fn watch_host(args: &WatchArgs) -> Result<ExitKind> {
    let HostSurvey { topology, management, .. } = HostSurvey::new(args.timeout.call());
    let capacities = with_reference(args, NodeCapacities::new(topology.clone()), &WorldKind::Real)?;
    let host = topology.host.hostname.to_string();
    if let Err(error) = &management {
        errln!("pathline: no counters of NVIDIA GPUs: NVML was not read: {error}");
    }
    let traffic = HostTraffic::start(topology, management.is_err(), args.interval)?;
    let (counters, uncounted) = (traffic.counters.clone(), traffic.uncounted.clone());
    let screen = WatchScreen { args, counters, uncounted, capacities };
    match args.command.split_first() {
        None => watch_until_ended(&screen, &traffic, &host),
        Some((program, arguments)) => {
            let first = traffic.next_reading()?;
            let stopper = StopRequest::new(Instant::now(), None);
            let child = Command::new(program).args(arguments).spawn();
            let child = child.with_context(|| program.to_string_lossy().into_owned())?;
            watch_command(&screen, &traffic, &host, (child, first), &stopper)
        }
    }
}

/// A screen each interval.
fn watch_until_ended(
    screen: &WatchScreen<'_>,
    traffic: &HostTraffic,
    host: &str,
) -> Result<ExitKind> {
    let is_single = screen.args.once || !(screen.args.json || std::io::stdout().is_terminal());
    let mut before = (traffic.next_reading()?, Instant::now());
    loop {
        let after = (traffic.next_reading()?, Instant::now());
        let seconds = after.1.duration_since(before.1).as_secs_f64();
        screen.show(&format!("{host}: {seconds:.1} s"), (&before.0, &after.0));
        if is_single || say::has_ended() {
            return Ok(screen.exit());
        }
        before = after;
    }
}

/// Waits for a command, and shows what passed from its start to its end; with --json each interval instead. Where
/// counters fall silent, the command goes on without them. Ctrl-C reaches the command too, whose status and traffic
/// follow; a signal without a terminal is passed on.
fn watch_command(
    screen: &WatchScreen<'_>,
    traffic: &HostTraffic,
    host: &str,
    (mut child, first): (Child, Vec<TrafficReading>),
    stopper: &StopRequest,
) -> Result<ExitKind> {
    let begun = Instant::now();
    let mut last = first.clone();
    let mut silent = None;
    let mut is_passed_on = std::io::stdin().is_terminal();
    let status = loop {
        if stopper.interrupted() && !std::mem::replace(&mut is_passed_on, true) {
            // It may have ended by itself.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        match traffic.next_within(TICK) {
            Ok(None) => {}
            Ok(Some(reading)) => {
                if screen.args.json {
                    screen.show(&format!("{host}: interval"), (&last, &reading));
                }
                last = reading;
            }
            Err(error) => {
                silent = Some(error);
                break child.wait()?;
            }
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
    };
    let end = match silent {
        Some(error) => Err(error),
        None => traffic.last_reading(),
    };
    match end {
        Ok(end) => {
            let seconds = begun.elapsed().as_secs_f64();
            let (title, from) = match screen.args.json {
                true => (format!("{host}: interval"), &last),
                false => (format!("{host}: {seconds:.1} s of the command"), &first),
            };
            screen.show(&title, (from, &end));
        }
        Err(error) => errln!("pathline: {error:#}"),
    }
    Ok(exit_of(status))
}

/// The command's status as a shell has it: 128 and the signal.
fn exit_of(status: ExitStatus) -> ExitKind {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitKind::Foreign(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
