//! The side that measures: opens a machine, binds probes and answers orders.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Result, anyhow};
use pathline_bench::{ProbeRounds, drawn_order};
use pathline_hal::{CallError, Machine};
use pathline_schema::{Case, GpuState, Ns, Severity};
use pathline_sim::SimOptions;
use rustix::process::{Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

use super::protocol::{
    NodeView, ProbeEvent, ProbeFailure, ProbeFaultKind, ProbeOpening, ProbeOrder,
};
use crate::env;
use crate::hooks::ProcessHooks;
use crate::link::{LineLink, LinkRecv};
use crate::machine::OpenMachine;

/// How long bytes move at least while a GPU is read: links at rest lower their speed and width, and take
/// some milliseconds to rise.
const LOOK_TIME: Ns = Ns::ms(10.0);

/// Takes events; its error ends the work.
pub(super) type ProbeSink<'t> = &'t mut dyn FnMut(ProbeEvent) -> io::Result<()>;

/// An open machine and its probes.
pub(super) struct ProbeServer<'m> {
    machine: &'m Machine,
    rounds: ProbeRounds<'m>,
    /// Numbers of the bound probes in `rounds`, by their number in the order to bind.
    bound: Vec<Option<usize>>,
}

/// Opens the machine of a process.
pub(super) fn open(opening: &ProbeOpening) -> Result<OpenMachine> {
    let usual = SimOptions::default();
    let jitter = opening.noise.unwrap_or(usual.jitter);
    let options = SimOptions { seed: opening.seed, jitter, ..usual };
    opening.machine.open(&env::switches(), &options, None)
}

/// The node as this process sees it.
pub(super) fn view(open: &OpenMachine) -> NodeView {
    let OpenMachine { machine, without, unmanaged } = open;
    let monitor = machine.monitor.as_ref();
    let gpus = || machine.topology.gpus.iter().map(|gpu| gpu.index);
    NodeView {
        world: machine.world.clone(),
        topology: machine.topology.clone(),
        without: without.clone(),
        facts: gpus().filter_map(|gpu| Some((gpu, monitor?.facts(gpu)?))).collect(),
        states: gpus().filter_map(|gpu| Some((gpu, monitor?.state(gpu)?))).collect(),
        counters: counters(machine),
        unmanaged: unmanaged.clone(),
    }
}

fn warnings(machine: &Machine) -> Vec<String> {
    machine.monitor.as_ref().map(|monitor| monitor.warnings()).unwrap_or_default()
}

fn counters(machine: &Machine) -> BTreeMap<u32, GpuState> {
    let monitor = machine.monitor.as_ref();
    let gpus = machine.topology.gpus.iter().map(|gpu| gpu.index);
    gpus.filter_map(|gpu| Some((gpu, monitor?.counters(gpu)?))).collect()
}

fn failure(error: &CallError) -> ProbeFailure {
    ProbeFailure { error: error.to_string(), severity: error.severity }
}

impl<'m> ProbeServer<'m> {
    pub(super) fn new(machine: &'m Machine) -> Self {
        Self { machine, rounds: ProbeRounds::new(machine), bound: Vec::new() }
    }

    /// Answers an order.
    pub(super) fn serve(&mut self, order: ProbeOrder, send: ProbeSink<'_>) -> io::Result<()> {
        let answer = match order {
            ProbeOrder::Open(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the machine is open"));
            }
            ProbeOrder::Bind(cases) => self.bind(&cases, send)?,
            ProbeOrder::Round { probes, seed, wait, compare } => {
                self.machine.clock.sleep(Ns(wait.as_nanos() as f64));
                self.round(&probes, seed, compare, send)?
            }
            ProbeOrder::Look(looks) => self.look(&looks, send)?,
            ProbeOrder::Count => {
                ProbeEvent::Counted(counters(self.machine), warnings(self.machine))
            }
        };
        send(answer)
    }

    fn bind(&mut self, cases: &[Case], send: ProbeSink<'_>) -> io::Result<ProbeEvent> {
        let mut failed = Vec::new();
        for (nth, case) in cases.iter().enumerate() {
            send(ProbeEvent::Started(nth))?;
            match self.rounds.bind(case) {
                Ok(bound) => self.bound.push(Some(bound)),
                Err(error) => {
                    self.bound.push(None);
                    failed.push((nth, failure(&error)));
                    if error.severity == Severity::Sticky {
                        break;
                    }
                }
            }
        }
        Ok(ProbeEvent::Bound(failed))
    }

    fn round(
        &mut self,
        probes: &[usize],
        seed: u64,
        compare: bool,
        send: ProbeSink<'_>,
    ) -> io::Result<ProbeEvent> {
        let (mut times, mut failed) = (Vec::new(), Vec::new());
        for nth in drawn_order(probes.len(), seed) {
            let Some(&probe) = probes.get(nth) else { continue };
            let Some(bound) = self.bound.get(probe).copied().flatten() else { continue };
            send(ProbeEvent::Started(probe))?;
            // The first operation after a rest is slow: links and clocks have to wake. Between two H200s a copy
            // of 416 MiB then takes 16 % longer. It is not timed.
            let rested = self.rounds.measure(bound);
            let measured = rested.and_then(|_| self.rounds.measure(bound)).and_then(|time| {
                if compare {
                    self.rounds.compare(bound)?;
                }
                Ok(time)
            });
            match measured {
                Ok(time) => times.push((probe, time.0)),
                Err(error) => {
                    failed.push((probe, failure(&error)));
                    if error.severity == Severity::Sticky {
                        break;
                    }
                }
            }
        }
        Ok(ProbeEvent::Round { times, failed })
    }

    fn look(&mut self, looks: &[(u32, usize)], send: ProbeSink<'_>) -> io::Result<ProbeEvent> {
        let (mut states, mut failed) = (BTreeMap::new(), Vec::new());
        for &(gpu, probe) in looks {
            let Some(bound) = self.bound.get(probe).copied().flatten() else { continue };
            send(ProbeEvent::Started(probe))?;
            let monitor = self.machine.monitor.as_ref();
            let mut state = None;
            let mut read = || state = monitor.and_then(|monitor| monitor.state(gpu));
            match self.rounds.measure_while(bound, LOOK_TIME, &mut read) {
                Ok(_) => states.extend(state.map(|state| (gpu, state))),
                Err(error) => failed.push((probe, failure(&error))),
            }
        }
        Ok(ProbeEvent::Looked(states, failed))
    }
}

/// Measures for a health check until it closes the socket that is this process's standard input.
///
/// # Errors
/// No process asks over a socket, or the machine cannot be opened.
pub fn serve_health(hooks: ProcessHooks) -> Result<()> {
    hooks.ignore_interrupts();
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut link = LineLink::from_standard_input()?;
    let LinkRecv::Line(ProbeOrder::Open(opening)) = link.listen()? else {
        return Err(anyhow!("expected the order to open a machine"));
    };
    if getppid().is_none_or(|pid| pid.as_raw_pid().cast_unsigned() != opening.parent) {
        return Ok(());
    }
    let mut step = 0;
    inject(&opening, step, &mut link, hooks)?;
    let open = open(&opening)?;
    link.send(&ProbeEvent::Opened(Box::new(view(&open))))?;
    let mut server = ProbeServer::new(&open.machine);
    while let LinkRecv::Line(order) = link.listen()? {
        let mut send = |event: ProbeEvent| {
            let starts = matches!(event, ProbeEvent::Started(_));
            link.send(&event)?;
            if starts {
                step += 1;
                inject(&opening, step, &mut link, hooks)?;
            }
            Ok(())
        };
        server.serve(order, &mut send)?;
    }
    Ok(())
}

/// Lets the fault of a step happen, if one is on order.
fn inject(
    opening: &ProbeOpening,
    step: u64,
    link: &mut LineLink,
    hooks: ProcessHooks,
) -> io::Result<()> {
    let Some((fault, file)) = opening.fault_at(step) else { return Ok(()) };
    (hooks.warn)("pathline: a fault on order");
    match fault {
        ProbeFaultKind::Crash => (hooks.abort)(),
        ProbeFaultKind::Exit => (hooks.exit)(3),
        ProbeFaultKind::Hang => loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        },
        ProbeFaultKind::Stop => Ok(kill_process(getpid(), Signal::STOP)?),
        ProbeFaultKind::Garbage => link.send_bytes(b"\x00{]garbage\n"),
        ProbeFaultKind::Drip => loop {
            link.send_bytes(b"{")?;
            std::thread::sleep(std::time::Duration::from_millis(2));
        },
        ProbeFaultKind::Block => std::fs::File::open(file).map(drop),
    }
}
