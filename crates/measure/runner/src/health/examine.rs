//! The course of a health check. Nothing here touches a device or waits beyond the budget.

mod separate;

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use pathline_diagnose::{
    CaseFate, FailedParts, HealthMonitor, HealthPlan, HealthProbe, HealthReport, HealthSettings,
    NextStep, NodeFacts, RoundPace,
};
use pathline_flow::Network;
use pathline_hal::pattern;
use pathline_schema::{Case, NodeVerdict, Severity, Topology};

use super::process::{KernelState, ProbeAnswer, ProbeProcess};
use super::protocol::{NodeView, ProbeEvent, ProbeFailure, ProbeFault, ProbeOpening, ProbeOrder};
use super::trained::{self, LinkReadings};
use crate::env;
use crate::machine::MachineChoice;

/// Longest time of an operation of a round, as a share of the budget and at most; it takes milliseconds.
const ROUND_STEP: (f64, Duration) = (0.2, Duration::from_secs(1));
/// Longest time to bind a probe or to compare its bytes, as a share of the budget: kernels may have to be
/// compiled.
const BIND_STEP: f64 = 0.4;
/// A process that does not answer is given up for a hang only after this long.
const HANG_TIME: Duration = Duration::from_millis(500);
/// How long error counters may take to be read beyond what is left of the budget.
const COUNT_TIME: Duration = Duration::from_millis(80);
/// Processes that may be lost before the check ends.
const MAX_INCIDENTS: usize = 2;
/// Processes that a check starts at most.
const MAX_PROCESSES: u32 = 64;

/// What to examine, and how.
pub struct HealthRequest {
    /// The machine.
    pub machine: MachineChoice,
    /// Time until the answer; of a simulated machine that is not measured in a process, virtual time.
    pub budget: Duration,
    /// How sure the verdict must be.
    pub settings: HealthSettings,
    /// Whether to look at trained links and counters only, because others use the GPUs.
    pub shared: bool,
    /// Whether a simulated machine is measured in a process of its own, in real time.
    pub in_processes: bool,
    /// Seed of orders and of a simulated machine.
    pub seed: u64,
    /// Standard deviation of the times of a simulated machine, relative.
    pub noise: Option<f64>,
    /// Faults on order in probe processes.
    pub faults: Vec<ProbeFault>,
    /// The node as it should be, if that is known.
    pub twin: Option<TwinReference>,
}

/// The description of a node as it should be.
#[derive(Debug, Clone)]
pub struct TwinReference {
    /// Its parts.
    pub topology: Topology,
    /// Its paths.
    pub network: Network,
}

/// Times of a probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathTimes {
    /// Time of one operation in ns, round by round, by process.
    pub by_process: Vec<Vec<f64>>,
}

/// Where the time of a check went; of a simulated machine in virtual time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PhaseTimes {
    /// Until the machine was open in the first process.
    pub opening: Duration,
    /// From then on until all probes were bound in the first process.
    pub binding: Duration,
    /// All of it.
    pub total: Duration,
}

/// What a health check found.
#[derive(Debug, Clone)]
pub struct HealthOutcome {
    /// The node as the first process saw it; none if none opened it.
    pub view: Option<NodeView>,
    /// The probes.
    pub plan: HealthPlan,
    /// Their times.
    pub paths: Vec<PathTimes>,
    /// What the node states about itself.
    pub facts: NodeFacts,
    /// The verdict.
    pub report: HealthReport,
    /// Where the time went.
    pub times: PhaseTimes,
    /// Processes that measured.
    pub processes: u32,
}

/// A process that was lost or did not answer.
struct ProbeIncident {
    /// The probe of the plan that was at work.
    probe: Option<usize>,
    /// What happened, as a clause.
    how: String,
    /// Whether the node may be the cause.
    by_node: bool,
}

/// A check in progress.
struct HealthCheck<'r> {
    request: &'r HealthRequest,
    begun: Instant,
    /// Virtual time of processes that have ended.
    ended: Duration,
    processes: u32,
    rounds: u64,
    pace: RoundPace,
    incidents: Vec<ProbeIncident>,
    /// Probes that failed, with their errors.
    failures: Vec<(HealthProbe, String)>,
    /// Age of its process when the first of them failed.
    failed_after: Duration,
    /// Cases that ended between the first that failed and a later one.
    ended_between: Vec<Case>,
    facts: NodeFacts,
    /// Who else used the GPUs when a process was opened, if anybody did.
    busy_later: Option<String>,
    readings: LinkReadings,
    times: PhaseTimes,
}

/// After this time without work two H200s state that they are idle: 1 % after 80 ms, 0 after 260.
const UNTIL_IDLE: Duration = Duration::from_millis(400);
/// What a last look at the GPUs takes, with the opening of a process.
const LAST_LOOK: Duration = Duration::from_millis(1500);

/// How readings under load ended.
enum LoadLook {
    Complete,
    /// The budget leaves no time for another one.
    TimeOver,
    /// The process gave another answer than the states.
    Lost(ProbeAnswer),
}

/// How the work of a process ended.
enum ProcessEnding {
    /// The verdict is known, or nothing more can be done.
    Over,
    /// These probes are to be measured in another process.
    Again(Vec<usize>),
}

/// Examines a machine. The answer comes within the budget, whatever probe processes do.
pub fn examine(request: &HealthRequest) -> HealthOutcome {
    let check = HealthCheck {
        request,
        begun: Instant::now(),
        ended: Duration::ZERO,
        processes: 0,
        rounds: 0,
        pace: RoundPace::new(request.budget.as_secs_f64()),
        incidents: Vec::new(),
        failures: Vec::new(),
        failed_after: Duration::ZERO,
        ended_between: Vec::new(),
        facts: NodeFacts::default(),
        busy_later: None,
        readings: LinkReadings::default(),
        times: PhaseTimes::default(),
    };
    check.run()
}

impl HealthCheck<'_> {
    fn is_virtual(&self) -> bool {
        self.request.machine.model().is_some() && !self.request.in_processes
    }

    fn elapsed(&self, process: Option<&ProbeProcess>) -> Duration {
        match self.is_virtual() {
            true => self.ended + process.map_or(Duration::ZERO, ProbeProcess::elapsed),
            false => self.begun.elapsed(),
        }
    }

    fn left(&self, process: Option<&ProbeProcess>) -> Duration {
        self.request.budget.saturating_sub(self.elapsed(process))
    }

    fn run(mut self) -> HealthOutcome {
        let mut opened = self.open_any();
        let Some((process, view)) = opened.take() else {
            let plan = HealthPlan::default();
            return self.outcome(None, plan, Vec::new(), None);
        };
        self.times.opening = self.elapsed(Some(&process));
        self.facts.busy = trained::other_users(&view);
        self.facts.limits = trained::peculiarities(&view, &env::switches());
        self.facts.failed.extend(trained::refusal(&view));
        if let Some(why) = nothing_to_judge(&view) {
            process.end(Duration::ZERO);
            return self.outcome(Some(view), HealthPlan::default(), Vec::new(), Some(why));
        }
        let Some(plan) = self.plan(&view, &process) else {
            self.ended += process.elapsed();
            process.end(Duration::ZERO);
            let why =
                "nothing to judge: the budget ended before the probes were planned".to_owned();
            return self.outcome(Some(view), HealthPlan::default(), Vec::new(), Some(why));
        };
        let mut monitor = HealthMonitor::new(&plan, self.request.settings);
        let mut paths = vec![PathTimes::default(); plan.probes.len()];
        let unmeasured = self.request.shared || self.facts.busy.is_some();
        let network = self.network(&view);
        if plan.probes.is_empty() && !unmeasured {
            self.finish_process(process);
            self.link_facts(&view);
            let gpus = view.topology.gpus.len();
            let why = format!("nothing to judge: how the {gpus} GPUs are joined is not known here");
            return self.outcome(Some(view), HealthPlan::default(), Vec::new(), Some(why));
        }
        if unmeasured {
            if self.request.shared {
                self.facts.stopped = Some("--shared measures no times".to_owned());
            }
            self.finish_process(process);
        } else {
            self.measure(process, &plan, &mut monitor, &mut paths);
            self.separate(&view.topology, &plan, network.as_ref());
            self.conclude_incidents(&plan, &view.topology);
        }
        self.conclude_failures(&view.topology, network.as_ref());
        self.link_facts(&view);
        let mut report = monitor.report(&self.facts);
        // Who came after the first process was open can be what is slow.
        if matches!(report.state, NodeVerdict::Fail | NodeVerdict::Suspect) {
            self.look_for_users();
            if self.busy_later.is_some() {
                self.facts.busy = self.busy_later.take();
                report = monitor.report(&self.facts);
            }
        }
        let mut outcome = self.outcome(Some(view), plan.clone(), paths, None);
        outcome.report = report;
        outcome
    }

    /// Opens the machine once more, idle, to see who else uses it.
    fn look_for_users(&mut self) {
        if self.is_virtual() || self.busy_later.is_some() || self.left(None) < LAST_LOOK {
            return;
        }
        std::thread::sleep(UNTIL_IDLE);
        if let Some((process, _)) = self.open() {
            process.end(Duration::ZERO);
            self.processes -= 1;
        }
    }

    /// The plan, if it is made within the budget: symmetries of large nodes take time.
    fn plan(&self, view: &NodeView, process: &ProbeProcess) -> Option<HealthPlan> {
        let (topology, network) = (view.topology.clone(), self.network(view));
        let loss = self.request.settings.loss;
        let make = move || {
            let plan = HealthPlan::new(&topology, network.as_ref(), loss);
            // A node whose links are not known has GPUs all the same, which can be compared.
            if plan.probes.is_empty() { HealthPlan::new(&topology, None, loss) } else { plan }
        };
        if self.is_virtual() {
            return Some(make());
        }
        let (send, receive) = channel();
        let thread = std::thread::Builder::new().name("health-plan".into());
        // One that is late sends to nobody.
        let started = thread.spawn(move || drop(send.send(make())));
        started.ok().and_then(|_| receive.recv_timeout(self.left(Some(process))).ok())
    }

    /// Trained links and missing parts.
    fn link_facts(&mut self, view: &NodeView) {
        let twin = self.request.twin.as_ref().map(|twin| &twin.topology);
        let network = self.network(view);
        let (links, limits) = trained::trained_links(view, &self.readings, network.as_ref(), twin);
        self.facts.links = links;
        self.facts.limits.extend(limits);
        self.facts.limits.extend(trained::not_offered(view));
        let (faults, notes) = trained::memory_errors(view, &self.readings);
        self.facts.failed.extend(faults);
        self.facts.notes.extend(notes);
        self.facts.unread.extend(trained::unread(view, &self.readings, &env::switches()));
        if let Some(twin) = twin {
            self.facts.missing = trained::missing_parts(&view.topology, twin);
        }
    }

    /// The node without faults: its twin, or the description of a simulated one, or what it shows.
    fn network(&self, view: &NodeView) -> Option<Network> {
        if let Some(twin) = &self.request.twin {
            return Some(twin.network.clone());
        }
        self.request.machine.network(&view.topology, &env::switches()).ok()
    }

    /// A process that has opened the machine, and what it saw.
    fn open_any(&mut self) -> Option<(ProbeProcess, NodeView)> {
        while self.incidents.len() < MAX_INCIDENTS {
            if let Some(opened) = self.open() {
                return Some(opened);
            }
            if self.left(None).is_zero() || self.facts.stopped.is_some() {
                break;
            }
        }
        self.conclude_incidents(&HealthPlan::default(), &Topology::default());
        None
    }

    /// Starts a process and opens the machine; none after an incident, or if none can be started.
    fn open(&mut self) -> Option<(ProbeProcess, NodeView)> {
        let started = match self.is_virtual() {
            true => ProbeProcess::simulate(),
            false => ProbeProcess::start(),
        };
        let mut process = match started {
            Ok(process) => process,
            Err(error) => {
                self.facts.stopped = Some(format!("no process can be started: {error}"));
                return None;
            }
        };
        let request = self.request;
        let opening = ProbeOpening {
            parent: std::process::id(),
            machine: request.machine.clone(),
            process: self.processes,
            seed: pattern::word(request.seed | 1, u64::from(self.processes)),
            noise: request.noise,
            faults: request.faults.clone(),
        };
        self.processes += 1;
        match process.open(opening, self.left(Some(&process))) {
            ProbeAnswer::Event(ProbeEvent::Opened(view)) => {
                if self.busy_later.is_none() {
                    self.busy_later = trained::other_users(&view);
                }
                Some((process, *view))
            }
            ProbeAnswer::Late { .. } => {
                let budget = seconds(request.budget);
                self.facts.stopped = Some(format!(
                    "the GPUs were not open within the budget of {budget}; give more by --budget"
                ));
                process.end(Duration::ZERO);
                None
            }
            other => {
                self.incident(process, other, &[], Duration::ZERO);
                None
            }
        }
    }

    fn measure(
        &mut self,
        first: ProbeProcess,
        plan: &HealthPlan,
        monitor: &mut HealthMonitor<'_>,
        paths: &mut [PathTimes],
    ) {
        let mut which: Vec<usize> = (0..plan.standing).collect();
        let mut next = Some(first);
        while self.processes <= MAX_PROCESSES {
            let Some(process) = next.take().or_else(|| self.open_again()) else { break };
            match self.measure_in(process, &which, plan, monitor, paths) {
                ProcessEnding::Over => break,
                ProcessEnding::Again(probes) => which = probes,
            }
        }
    }

    /// Another process, if it can be open before the budget is over.
    fn open_again(&mut self) -> Option<ProbeProcess> {
        if self.incidents.len() >= MAX_INCIDENTS {
            return None;
        }
        if self.left(None) < self.times.opening + self.times.opening / 4 {
            let (budget, opening) = (seconds(self.request.budget), seconds(self.times.opening));
            self.facts.stopped.get_or_insert(format!(
                "the budget of {budget} leaves no time for another process ({opening} to open)"
            ));
            return None;
        }
        self.open().map(|(process, _)| process)
    }

    /// Reads the sensors of each GPU under load, as long as the budget leaves time for one more.
    fn look_under_load(
        &mut self,
        process: &mut ProbeProcess,
        looks: Vec<(u32, usize)>,
        which: &[usize],
        plan: &HealthPlan,
        limit: Duration,
    ) -> LoadLook {
        let mut longest = Duration::ZERO;
        for look in looks {
            let before = self.left(Some(process));
            if before <= longest {
                let budget = seconds(self.request.budget);
                self.facts.stopped.get_or_insert(format!("the budget of {budget} is over"));
                return LoadLook::TimeOver;
            }
            match self.ask(process, &ProbeOrder::Look(vec![look]), limit) {
                ProbeAnswer::Event(ProbeEvent::Looked(states, failed)) => {
                    self.readings.loaded.extend(states);
                    self.note_failures(failed, which, plan);
                }
                other => return LoadLook::Lost(other),
            }
            longest = longest.max(before.saturating_sub(self.left(Some(process))));
        }
        LoadLook::Complete
    }

    /// Rounds in one process until something else is to be done.
    fn measure_in(
        &mut self,
        mut process: ProbeProcess,
        which: &[usize],
        plan: &HealthPlan,
        monitor: &mut HealthMonitor<'_>,
        paths: &mut [PathTimes],
    ) -> ProcessEnding {
        let number = (self.processes - 1) as usize;
        let first = self.times.binding.is_zero();
        let cases = which.iter().map(|&n| plan.probes[n].case.clone()).collect();
        let limit = self.request.budget.mul_f64(BIND_STEP);
        let unbound = match self.ask(&mut process, &ProbeOrder::Bind(cases), limit) {
            ProbeAnswer::Event(ProbeEvent::Bound(failed)) => failed,
            other => return self.lost(process, other, which, limit),
        };
        let unbound_probes: Vec<usize> =
            unbound.iter().filter_map(|&(nth, _)| which.get(nth).copied()).collect();
        if self.note_failures(unbound, which, plan) {
            return self.stop_at_failure(process);
        }
        monitor.leave_out(&unbound_probes);
        if first {
            let all = self.elapsed(Some(&process));
            self.times.binding = all.saturating_sub(self.times.opening);
            let looks = looks(plan, which, &unbound_probes);
            match self.look_under_load(&mut process, looks, which, plan, limit) {
                LoadLook::Complete => {}
                LoadLook::TimeOver => {
                    self.finish_process(process);
                    return ProcessEnding::Over;
                }
                LoadLook::Lost(other) => return self.lost(process, other, which, limit),
            }
        }
        self.pace.begin_process(
            self.elapsed(Some(&process)).as_secs_f64(),
            2 * which.len() > plan.standing,
        );
        let mut rounds_here = 0;
        loop {
            let (step, wait) = match rounds_here == 0 && !first {
                true => (NextStep::MoreRounds(which.to_vec()), Duration::ZERO),
                false => self.paced(monitor, &process),
            };
            let probes = match step {
                NextStep::Decided => {
                    self.finish_process(process);
                    return ProcessEnding::Over;
                }
                NextStep::FreshProcess(probes) if rounds_here > 0 => {
                    self.finish_process(process);
                    return ProcessEnding::Again(probes);
                }
                NextStep::MoreRounds(probes)
                | NextStep::Watch(probes)
                | NextStep::FreshProcess(probes) => probes,
            };
            if self.left(Some(&process)).is_zero() {
                let budget = seconds(self.request.budget);
                self.facts.stopped.get_or_insert(format!("the budget of {budget} is over"));
                self.finish_process(process);
                return ProcessEnding::Over;
            }
            let numbers: Vec<usize> =
                (0..which.len()).filter(|&nth| probes.contains(&which[nth])).collect();
            self.rounds += 1;
            let seed = pattern::word(self.request.seed | 1, self.rounds << 8);
            // The first round of a process also compares bytes.
            let compare = rounds_here == 0;
            let order = ProbeOrder::Round { probes: numbers, seed, wait, compare };
            let limit = self.round_limit(compare, wait);
            let (times, failed) = match self.ask(&mut process, &order, limit) {
                ProbeAnswer::Event(ProbeEvent::Round { times, failed }) => (times, failed),
                other => return self.lost(process, other, which, limit),
            };
            if times.is_empty() && failed.is_empty() {
                self.facts.stopped.get_or_insert("no probe could be measured".to_owned());
                self.finish_process(process);
                return ProcessEnding::Over;
            }
            let mut round = vec![None; plan.probes.len()];
            for (nth, time) in times {
                let Some(&probe) = which.get(nth) else { continue };
                if let (Some(slot), Some(path)) = (round.get_mut(probe), paths.get_mut(probe)) {
                    *slot = Some(time).filter(|t| t.is_finite() && *t > 0.0);
                    path.by_process.resize(path.by_process.len().max(number + 1), Vec::new());
                    path.by_process[number].extend(*slot);
                }
            }
            monitor.add_round(number, &round);
            self.pace.end_round();
            rounds_here += 1;
            if self.note_failures(failed, which, plan) {
                return self.stop_at_failure(process);
            }
        }
    }

    /// Longest time of a step of a round, with the wait before it.
    fn round_limit(&self, compares: bool, wait: Duration) -> Duration {
        let budget = self.request.budget;
        if compares {
            return budget.mul_f64(BIND_STEP);
        }
        budget.mul_f64(ROUND_STEP.0).min(ROUND_STEP.1) + wait
    }

    /// What comes next, and how long to wait before it: rounds that only help are spread over the time.
    fn paced(&self, monitor: &HealthMonitor<'_>, process: &ProbeProcess) -> (NextStep, Duration) {
        let step = monitor.next_step();
        let NextStep::Watch(_) = step else { return (step, Duration::ZERO) };
        let now = self.elapsed(Some(process)).as_secs_f64();
        let random = pattern::word(self.request.seed | 1, (self.rounds << 8) + 1) >> 11;
        match self.pace.next_round(now, random as f64 / (1_u64 << 53) as f64) {
            Some(at) => (step, Duration::from_secs_f64((at - now).max(0.0))),
            None => (monitor.after_watch(), Duration::ZERO),
        }
    }

    fn ask(&self, process: &mut ProbeProcess, order: &ProbeOrder, step: Duration) -> ProbeAnswer {
        let left = self.left(Some(process));
        process.ask(order, left, step)
    }

    /// Records failed probes. Whether the check is over: a part of the node has failed.
    fn note_failures(
        &mut self,
        failures: Vec<(usize, ProbeFailure)>,
        which: &[usize],
        plan: &HealthPlan,
    ) -> bool {
        let mut faults = Vec::new();
        for (nth, ProbeFailure { error, severity }) in failures {
            let Some(probe) = which.get(nth).and_then(|&n| plan.probes.get(n)) else { continue };
            match severity {
                Severity::Unsupported | Severity::Exhausted => {
                    let text = format!("{} was not measured: {error}", probe.label);
                    self.facts.unread.extend((!self.facts.unread.contains(&text)).then_some(text));
                }
                Severity::Transient | Severity::Sticky | Severity::Corrupt => {
                    faults.push((probe.clone(), error));
                }
            }
        }
        let is_fault = !faults.is_empty();
        self.failures.extend(faults);
        is_fault
    }

    /// The process did not answer as it should: the same probes again in another one.
    fn lost(
        &mut self,
        process: ProbeProcess,
        answer: ProbeAnswer,
        which: &[usize],
        step: Duration,
    ) -> ProcessEnding {
        self.incident(process, answer, which, step);
        match self.incidents.len() < MAX_INCIDENTS && self.facts.stopped.is_none() {
            true => ProcessEnding::Again(which.to_vec()),
            false => ProcessEnding::Over,
        }
    }

    /// Records what became of a process, and leaves it alone. `step` is the time that its step had.
    fn incident(
        &mut self,
        process: ProbeProcess,
        answer: ProbeAnswer,
        which: &[usize],
        step: Duration,
    ) {
        let probe = |at: Option<usize>| at.and_then(|nth| which.get(nth)).copied();
        let over = self.left(Some(&process)).is_zero();
        let incident = match answer {
            ProbeAnswer::Late { at, state } => {
                let long = step >= HANG_TIME;
                let how = match state {
                    Some(KernelState::Stopped) => "was stopped by a signal (state T)".to_owned(),
                    Some(KernelState::Uninterruptible) => {
                        "hangs in the kernel (state D)".to_owned()
                    }
                    _ => format!("did not end in {}", seconds(step)),
                };
                let by_node = long && state != Some(KernelState::Stopped);
                ProbeIncident { probe: probe(at), how, by_node }
            }
            ProbeAnswer::Lost { at, how, crashed } => {
                let how = format!("its process {how}");
                ProbeIncident { probe: probe(at), how, by_node: crashed }
            }
            ProbeAnswer::Event(_) => {
                let how = "its process sent another answer than expected".to_owned();
                ProbeIncident { probe: None, how, by_node: false }
            }
        };
        self.incidents.push(incident);
        if over {
            let budget = seconds(self.request.budget);
            self.facts.stopped.get_or_insert(format!("the budget of {budget} is over"));
        }
        self.ended += process.elapsed();
        process.end(Duration::ZERO);
    }

    fn stop_at_failure(&mut self, process: ProbeProcess) -> ProcessEnding {
        self.failed_after = process.elapsed();
        self.finish_process(process);
        ProcessEnding::Over
    }

    /// One fault of all probes that failed, if few parts explain them.
    fn conclude_failures(&mut self, topology: &Topology, network: Option<&Network>) {
        let Some(failed) = self.failed_parts(topology, network) else {
            let texts = self.failures.iter();
            let texts = texts.map(|(probe, error)| format!("{}: {error}", probe.label));
            self.facts.failed.extend(texts);
            return;
        };
        if let Some((probe, _)) = self.failures.first().filter(|_| failed.hangs) {
            self.facts.notes.push(format!("first: {}: {}", probe.label, failed.error));
        }
        self.facts.failed.push(failed.sentence("path"));
        self.facts.failed_remedy = failed.remedy(topology);
    }

    /// What happened in two processes is a fault of the node; once, it may have been anything.
    fn conclude_incidents(&mut self, plan: &HealthPlan, topology: &Topology) {
        let label = |incident: &ProbeIncident| match incident.probe {
            Some(probe) => plan.probes.get(probe).map_or("a probe", |p| p.label.as_str()),
            None => "opening the GPUs",
        };
        match self.incidents.as_slice() {
            [first, second, ..] if first.by_node && second.by_node => {
                let cases = [first, second].into_iter().filter_map(|incident| {
                    let probe = plan.probes.get(incident.probe?)?;
                    Some((&probe.case, CaseFate::Failed(incident.how.as_str())))
                });
                let cases: Vec<_> = cases.collect();
                let found = FailedParts::new(&cases, topology, None);
                let found = found.filter(|found| found.gpus.len() == 1);
                self.facts.failed_remedy = found.map_or_else(String::new, |f| f.remedy(topology));
                let text = format!("{} {}, twice", label(second), second.how);
                self.facts.failed.push(text);
            }
            [.., last] => {
                let text = format!("{} {}", label(last), last.how);
                let so_far = self.facts.stopped.take();
                self.facts.stopped =
                    Some(so_far.map_or(text.clone(), |stopped| format!("{text}; {stopped}")));
            }
            [] => {}
        }
    }

    /// Reads the error counters a last time, and ends a process.
    fn finish_process(&mut self, mut process: ProbeProcess) {
        let limit = self.left(Some(&process)).clamp(COUNT_TIME, 4 * COUNT_TIME);
        if let ProbeAnswer::Event(ProbeEvent::Counted(counters, warnings)) =
            process.ask(&ProbeOrder::Count, limit, limit)
        {
            self.readings.after = counters;
            self.readings.warnings.extend(warnings);
        }
        self.ended += process.elapsed();
        let left = self.left(None);
        process.end(left);
    }

    fn outcome(
        mut self,
        view: Option<NodeView>,
        plan: HealthPlan,
        paths: Vec<PathTimes>,
        nothing: Option<String>,
    ) -> HealthOutcome {
        self.times.total = self.elapsed(None);
        let mut report =
            HealthMonitor::new(&HealthPlan::default(), self.request.settings).report(&self.facts);
        if let Some(why) = nothing {
            report.state = NodeVerdict::Undecided;
            report.reason = why.chars().take(MAX_REASON).collect();
        }
        let Self { facts, times, processes, .. } = self;
        HealthOutcome { view, plan, paths, facts, report, times, processes }
    }
}

/// Longest reason, in characters: a scheduler shows as much.
const MAX_REASON: usize = 100;

/// Why a node has nothing to judge, if it has not.
fn nothing_to_judge(view: &NodeView) -> Option<String> {
    match &view.without {
        _ if view.topology.gpus.is_empty() => {
            Some("nothing to judge: this node shows no GPU".to_owned())
        }
        Some(why) => Some(format!("nothing to judge: no GPU runtime is bound: {why}")),
        None => None,
    }
}

/// For each GPU a probe that moves bytes over its link to the host, or else any that it is in.
fn looks(plan: &HealthPlan, which: &[usize], unbound: &[usize]) -> Vec<(u32, usize)> {
    let mut best: BTreeMap<u32, (bool, usize)> = BTreeMap::new();
    for (nth, &probe) in which.iter().enumerate().filter(|(_, probe)| !unbound.contains(probe)) {
        for flow in plan.probes[probe].case.flows() {
            let units = [flow.src.unit, flow.dst.unit];
            let of_host = units.iter().any(|unit| unit.numa().is_some());
            for gpu in units.iter().filter_map(|unit| unit.gpu()) {
                let known = best.entry(gpu).or_insert((of_host, nth));
                if of_host && !known.0 {
                    *known = (true, nth);
                }
            }
        }
    }
    best.into_iter().map(|(gpu, (_, nth))| (gpu, nth)).collect()
}

/// `5 s`, `0.25 s`.
fn seconds(time: Duration) -> String {
    let text = format!("{:.2}", time.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}
