//! The coordinator's side: starts or gathers the ranks, sends them each step, and waits for all answers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use pathline_bench::files_time;
use pathline_hal::{CallError, CallResult, ExchangeId, FlowTime, RankGroup, no_exchange};
use pathline_schema::{
    Case, CpuSet, Flow, IoReading, Ns, Rank, RankMember, RunNote, Severity, VerifyResult,
};

use pathline_transport::BarrierSegment;
use rustix::process::{Signal, getpid, kill_process};

use super::component::{LostLibraries, RankComponent};
use super::door::{self, Gathered};
use super::job::{GATHER_TIMEOUT, MeetingPlace, RankJob, me};
use super::launcher_process::LauncherProcess;
use super::protocol::{RankAnswer, RankEntry, RankFailure, RankOrder};
use super::side::version;
use crate::device_memory::{MemoryClaim, find_out};
use crate::hooks::ProcessHooks;
use crate::link::{LineLink, LinkRecv};
use crate::machine::HostMachine;
use crate::process::WorkerProcess;

/// Opening a machine and its libraries may take this long: MPI on hundreds of ranks, eight GPUs that
/// wake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(90);
/// Any step may take this long, whatever it moves.
const MIN_STEP_TIMEOUT: Duration = Duration::from_secs(15);
/// Share of the user's limit: a rank that hangs is named here before the run gives up on this process.
const LIMIT_SHARE: f64 = 0.6;
/// Slowest rate of a transport that works, bytes per second. As for steps of one process, 0.25 GB/s.
const SLOWEST: f64 = 0.25e9;

/// A message of a rank, or its loss.
enum RankEvent {
    Answer(RankAnswer),
    Ended,
    Garbled(String),
}

/// A rank as its coordinator sees it.
struct RankHandle {
    link: LineLink,
    /// Its process, if this one started it.
    process: Option<WorkerProcess>,
    name: String,
}

/// A case that the ranks have bound, with the CPUs of its other flows.
#[derive(Debug, Clone)]
struct BoundCase {
    case: Case,
    busy_cpus: CpuSet,
}

/// The ranks of a run.
pub(crate) struct RankProcesses {
    members: Vec<RankMember>,
    handles: RefCell<Vec<RankHandle>>,
    events: Receiver<(usize, RankEvent)>,
    bound: RefCell<BTreeMap<ExchangeId, BoundCase>>,
    /// Cases whose connections ended with another case that failed.
    disconnected: RefCell<BTreeSet<ExchangeId>>,
    /// The barrier of ranks of one node.
    room: RefCell<Option<BarrierSegment>>,
    made: Cell<u64>,
    /// Timeout of a step, if the user set one.
    limit: Option<Duration>,
    /// The exchange that all ranks have begun and that is not waited for yet.
    under_way: Cell<Option<ExchangeId>>,
    /// Why no step can be taken any more.
    lost: RefCell<Option<CallError>>,
    /// The ranks that were lost.
    lost_ranks: RefCell<Vec<usize>>,
    /// The ranks that the others go on without.
    gone: RefCell<BTreeSet<usize>>,
    /// The ranks that had not answered when others were lost.
    owing: RefCell<BTreeSet<usize>>,
    /// The component that each rank began to open last.
    opening: RefCell<BTreeMap<usize, RankComponent>>,
    /// The launcher that this process started for them.
    launcher: RefCell<Option<LauncherProcess>>,
    /// Observations while the ranks connected and opened their libraries.
    notes: Vec<RunNote>,
    hooks: ProcessHooks,
}

/// How long ranks may take; none for the usual times.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RankLimits {
    /// For a step of a case, if the user set it; for their start too then.
    pub(crate) step: Option<Duration>,
    /// To come and to open each of their libraries.
    pub(crate) start: Option<Duration>,
}

impl RankProcesses {
    /// Starts or gathers the ranks of a job, and has each open the machine. A library that ends or
    /// holds a rank while it is opened is left out, and the ranks begin again without it, after
    /// `retrying` was called.
    ///
    /// # Errors
    /// Names the rank that did not come or that cannot take part, and the remedy.
    pub(crate) fn open(
        job: &RankJob,
        host: &HostMachine,
        without_gpus: Option<&str>,
        limits: RankLimits,
        hooks: ProcessHooks,
        retrying: &mut dyn FnMut(),
    ) -> anyhow::Result<Self> {
        let step = limits.step.map(|all| all.mul_f64(LIMIT_SHARE));
        let limits = RankLimits { step, start: step.or(limits.start) };
        let mut left_out = LostLibraries::default();
        if let Some(why) = without_gpus {
            left_out.add(RankComponent::Gpus, why);
        }
        if job.is_own() {
            // Those of a launcher may be on other hosts, and try their own.
            let launched = me().is_some();
            left_out.extend(&LostLibraries::broken_transports(&host.libraries, launched, step));
            retrying();
        }
        let mut notes = Vec::new();
        loop {
            let mut processes = Self::begin(job, host, limits, hooks)?;
            processes.notes.splice(0..0, notes.drain(..));
            let Err(error) = processes.open_libraries(job, host, &left_out, limits.start) else {
                return Ok(processes);
            };
            let Some(component) = processes.culprit().filter(|&c| left_out.why(c).is_none()) else {
                return Err(error.into());
            };
            let why = lost_over(component, &error);
            if component == RankComponent::Gpus {
                let text = format!("the ranks go without GPUs: {why}");
                let (code, subject) = ("gpus-left-out".to_owned(), "ranks".to_owned());
                processes.notes.push(RunNote { code, subject, text });
            }
            left_out.add(component, why);
            notes = std::mem::take(&mut processes.notes);
            processes.kill_all();
            drop(processes);
            retrying();
        }
    }

    /// The ranks, with nothing open yet.
    fn begin(
        job: &RankJob,
        host: &HostMachine,
        limits: RankLimits,
        hooks: ProcessHooks,
    ) -> anyhow::Result<Self> {
        let (to, events) = channel();
        let (limit, mut launcher) = (limits.start, None);
        let (handles, notes) = match job {
            RankJob::Own { count, .. } => (start(*count, host, &to, &events)?, Vec::new()),
            RankJob::Launched { count, program } => {
                let (process, at) = LauncherProcess::start(program, *count, host)?;
                let (process, by) = (launcher.insert(process), program.display().to_string());
                gather(*count, &at, &by, limit, &to, &mut || process.end_text())?
            }
            RankJob::Joined { count, at, by } => gather(*count, at, by, limit, &to, &mut || None)?,
        };
        Ok(Self {
            members: Vec::new(),
            handles: RefCell::new(handles),
            events,
            bound: RefCell::default(),
            disconnected: RefCell::default(),
            room: RefCell::new(None),
            made: Cell::new(0),
            limit: limits.step,
            under_way: Cell::new(None),
            lost: RefCell::new(None),
            lost_ranks: RefCell::default(),
            gone: RefCell::default(),
            owing: RefCell::default(),
            opening: RefCell::default(),
            launcher: RefCell::new(launcher),
            notes,
            hooks,
        })
    }

    /// Has each rank open the machine and its libraries.
    fn open_libraries(
        &mut self,
        job: &RankJob,
        host: &HostMachine,
        left_out: &LostLibraries,
        limit: Option<Duration>,
    ) -> CallResult<()> {
        let size = job.count();
        let enter = |rank: u32| {
            let local = job.is_own().then_some((rank, size));
            let (expected, left_out) = (host.libraries.clone(), left_out.clone());
            let stores = host.stores.clone();
            let entry = RankEntry { rank, size, local, expected, stores, left_out };
            RankOrder::Open(Box::new(entry))
        };
        let opening = limit.unwrap_or(OPEN_TIMEOUT);
        let all = self.each(&enter, opening)?;
        let (mut members, claims): (Vec<RankMember>, Vec<Option<MemoryClaim>>) = all
            .into_iter()
            .filter_map(|answer| match answer {
                RankAnswer::Opened(member, claim) => Some((*member, claim)),
                _ => None,
            })
            .unzip();
        let numbers = members.iter().map(|member| member.rank.0);
        if !numbers.eq(0..size) {
            let reason = "a rank answers for another one";
            return Err(CallError::new(Severity::Sticky, "open", "the ranks", reason)
                .or_try("start the same program on all nodes"));
        }
        number_nodes(&mut members);
        find_out(host.libraries.device_memory, &mut members, &claims);
        self.members = members;
        self.send_all(&RankOrder::Know(self.members.clone()), opening)?;
        self.meet()
    }

    /// The component that the lost ranks were opening, if any.
    fn culprit(&self) -> Option<RankComponent> {
        let opening = self.opening.borrow();
        let lost = self.lost_ranks.borrow();
        let mut opened = lost.iter().filter_map(|nth| opening.get(nth)).copied();
        opened.find(|component| component.is_library())
    }

    /// Ends the ranks that this process has started, at once.
    fn kill_all(&self) {
        for handle in self.handles.borrow_mut().iter_mut() {
            if let Some(process) = &mut handle.process {
                process.kill();
            }
        }
        if let Some(launcher) = self.launcher.borrow_mut().as_mut() {
            launcher.end();
        }
    }

    /// Gives ranks of one node a place to meet. Those of several meet over their links.
    fn meet(&self) -> CallResult<()> {
        let nodes: BTreeSet<u32> = self.members.iter().map(|m| m.node).collect();
        if nodes.len() > 1 {
            return self.send_all(&RankOrder::Meet(None), OPEN_TIMEOUT).map(drop);
        }
        let count = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let room = BarrierSegment::create(count)?;
        self.send_all(&RankOrder::Meet(Some(room.address())), OPEN_TIMEOUT)?;
        self.room.replace(Some(room));
        Ok(())
    }

    /// Gives every rank an order and hears all answers, by rank.
    fn each(
        &self,
        order: &dyn Fn(u32) -> RankOrder,
        timeout: Duration,
    ) -> CallResult<Vec<RankAnswer>> {
        if let Some(id) = self.under_way.take() {
            // An exchange in progress ends before anything else begins.
            self.times(id, self.receive("run", timeout))?;
        }
        let step = self.send(order)?;
        self.receive(step, timeout)
    }

    /// Sends every rank an order. The step, for errors.
    fn send(&self, order: &dyn Fn(u32) -> RankOrder) -> CallResult<&'static str> {
        if let Some(error) = self.lost.borrow().clone() {
            return Err(error);
        }
        let count = self.handles.borrow().len();
        let mut step = "";
        for nth in (0..count).filter(|nth| !self.gone.borrow().contains(nth)) {
            let order = order(rank(nth).0);
            step = order.name();
            let sent = self.handles.borrow_mut()[nth].link.send(&order);
            if sent.is_err() {
                *self.owing.borrow_mut() = (0..nth).collect();
                return Err(self.lose(step, &[nth], "has gone"));
            }
        }
        Ok(step)
    }

    /// Waits for an answer of every rank.
    fn receive(&self, step: &str, timeout: Duration) -> CallResult<Vec<RankAnswer>> {
        let count = self.handles.borrow().len();
        let gone = self.gone.borrow().clone();
        let mut answers: BTreeMap<usize, RankAnswer> =
            gone.iter().map(|nth| (*nth, RankAnswer::Done)).collect();
        let mut here: BTreeSet<usize> = BTreeSet::new();
        // A rank that opens one library after the other has its time for each.
        let mut since = vec![Instant::now(); count];
        while answers.len() < count {
            let missing: Vec<usize> = (0..count).filter(|nth| !answers.contains_key(nth)).collect();
            let longest = missing.iter().map(|&nth| since[nth].elapsed()).max();
            let left = timeout.saturating_sub(longest.unwrap_or_default());
            self.owing.borrow_mut().clone_from(&missing.iter().copied().collect());
            match self.events.recv_timeout(left) {
                Ok((nth, _)) if gone.contains(&nth) => {}
                Ok((nth, RankEvent::Answer(RankAnswer::Opening(component)))) => {
                    since[nth] = Instant::now();
                    self.opening.borrow_mut().insert(nth, component);
                }
                Ok((nth, RankEvent::Answer(RankAnswer::Here))) => drop(here.insert(nth)),
                Ok((nth, RankEvent::Answer(answer))) => drop(answers.insert(nth, answer)),
                Ok((nth, RankEvent::Ended)) => return Err(self.lose(step, &[nth], "ended")),
                Ok((nth, RankEvent::Garbled(why))) => {
                    let why = format!("sent what cannot be used ({why})");
                    return Err(self.lose(step, &[nth], &why));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!("did not answer for {:.0} s", timeout.as_secs_f64());
                    let is_late = |nth: &usize| since[*nth].elapsed() >= timeout;
                    let mut late: Vec<usize> = missing.into_iter().filter(is_late).collect();
                    // Those that wait for the others at a barrier are not to blame.
                    if late.iter().any(|nth| !here.contains(nth)) {
                        late.retain(|nth| !here.contains(nth));
                    }
                    return Err(self.lose(step, &late, &why));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.lose(step, &missing, "has gone"));
                }
            }
            self.let_go(&mut here, &answers, count - gone.len());
        }
        self.first_failure(&mut answers)?;
        Ok(answers.into_values().collect())
    }

    /// Lets those go on that wait for each other, once all have come; or stops them, once one will
    /// not.
    fn let_go(
        &self,
        here: &mut BTreeSet<usize>,
        answers: &BTreeMap<usize, RankAnswer>,
        all: usize,
    ) {
        let failed = answers.values().any(|answer| matches!(answer, RankAnswer::Failed(_)));
        let order = if failed { RankOrder::Stop } else { RankOrder::Go };
        if failed || (!here.is_empty() && here.len() == all) {
            for nth in std::mem::take(here) {
                // A rank that has gone is noticed by its link.
                let _ = self.handles.borrow_mut()[nth].link.send(&order);
            }
        }
    }

    fn send_all(&self, order: &RankOrder, timeout: Duration) -> CallResult<Vec<RankAnswer>> {
        self.each(&|_| order.clone(), timeout)
    }

    /// An error of some rank is that of the step; of several the worst, since the others may only
    /// have waited for it in vain. It counts against the ranks whose error is as bad.
    fn first_failure(&self, answers: &mut BTreeMap<usize, RankAnswer>) -> CallResult<()> {
        let failed = |answer: &RankAnswer| matches!(answer, RankAnswer::Failed(_));
        let ranks: Vec<usize> =
            answers.iter().filter(|(_, a)| failed(a)).map(|(&nth, _)| nth).collect();
        let mut errors = Vec::new();
        for nth in ranks {
            if let Some(RankAnswer::Failed(failure)) = answers.remove(&nth) {
                let name = self.handles.borrow()[nth].name.clone();
                errors.push((nth, RankFailure::into_error(failure, &name)));
            }
        }
        let waited = |(_, e): &(usize, CallError)| e.call == "meet";
        errors.sort_by_key(waited);
        let Some((_, first)) = errors.first().cloned() else { return Ok(()) };
        let as_bad = |e: &CallError| {
            e.severity == first.severity && (e.call == "meet") == (first.call == "meet")
        };
        let ranks = errors.iter().filter(|(_, e)| as_bad(e)).map(|(nth, _)| rank(*nth)).collect();
        Err(first.of_ranks(ranks))
    }

    /// Names the ranks that are lost. Nothing can be measured with the rest.
    fn lose(&self, step: &str, ranks: &[usize], why: &str) -> CallError {
        let mut handles = self.handles.borrow_mut();
        let (mut names, mut own) = (Vec::new(), true);
        for &nth in ranks {
            let handle = &mut handles[nth];
            let fate = match handle.process.take() {
                Some(mut process) => {
                    let hung = !process.has_ended() && why.starts_with("did not");
                    if hung {
                        process.kill();
                        ", so it was killed".to_owned()
                    } else {
                        let exit = process.exit_report();
                        own &= exit.own;
                        format!(": it {}", exit.text)
                    }
                }
                None => String::new(),
            };
            names.push(format!("{}{fate}", handle.name));
        }
        if let Some(launcher) = self.launcher.borrow_mut().as_mut() {
            // Most launchers end all ranks after the loss of one, and print its cause.
            names.push(launcher.fate());
        }
        self.lost_ranks.borrow_mut().extend(ranks);
        let way_out = match step {
            "open" => self.culprit().map_or("run it again", RankComponent::way_out),
            _ => "run this case alone to see whether it repeats",
        };
        let error = CallError::new(Severity::Sticky, step, names.join(", "), why)
            .of_ranks(ranks.iter().map(|&nth| rank(nth)).collect())
            .or_try(way_out);
        if !own {
            // A signal from outside is no fault of the machine. The supervisor of this process
            // recognizes an end by such a signal, and continues with a new process.
            (self.hooks.warn)(&error.to_string());
            let _ = kill_process(getpid(), Signal::KILL);
        }
        *self.lost.borrow_mut() = Some(error.clone());
        error
    }

    /// The times of a run by flow, from what all ranks answered.
    fn times(&self, id: ExchangeId, ran: CallResult<Vec<RankAnswer>>) -> CallResult<Vec<FlowTime>> {
        if ran.is_err() && self.lost.borrow().is_none() {
            // A barrier that a rank missed is over for all.
            self.meet()?;
            self.disconnect(id)?;
        }
        let (by_rank, mut readings): (Vec<FlowTimes>, Vec<FlowReadings>) = ran?
            .into_iter()
            .filter_map(|answer| match answer {
                RankAnswer::Ran(times, io) => Some((times, io)),
                // Of a rank that is gone.
                RankAnswer::Done => Some((Vec::new(), Vec::new())),
                _ => None,
            })
            .unzip();
        let carried = |flow: &&Flow| flow.by.wire().is_some() || flow.by.is_on_files();
        let count = |case: &Case| case.flows().filter(carried).count();
        let flows = self.bound.borrow().get(&id).map_or(0, |bound| count(&bound.case));
        let mut reading = |flow: usize| {
            readings.iter_mut().find_map(|io| io.get_mut(flow).and_then(Option::take))
        };
        Ok((0..flows).map(|flow| FlowTime { io: reading(flow), ..took(&by_rank, flow) }).collect())
    }

    /// Continues without these ranks and the ones already lost, and releases every bound case. A rank that
    /// still waits for a lost one after the timeout is lost, too. Returns all lost ranks.
    ///
    /// # Errors
    /// Another rank is lost.
    pub(crate) fn go_on_without(&self, ranks: &[Rank]) -> CallResult<Vec<Rank>> {
        let mut gone = self.gone.take();
        gone.extend(self.lost_ranks.take().into_iter().chain(ranks.iter().map(|r| r.0 as usize)));
        self.lost.replace(None);
        self.under_way.set(None);
        let mut owing = self.owing.take();
        owing.retain(|nth| !gone.contains(nth));
        // One that has gone is noticed by its link.
        let stop = |nth: usize| drop(self.handles.borrow_mut()[nth].link.send(&RankOrder::Stop));
        owing.iter().for_each(|nth| stop(*nth));
        let (begun, limit) = (Instant::now(), self.limit.unwrap_or(MIN_STEP_TIMEOUT));
        while !owing.is_empty() {
            match self.events.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok((nth, RankEvent::Answer(RankAnswer::Here))) => stop(nth),
                Ok((nth, RankEvent::Answer(_))) => drop(owing.remove(&nth)),
                Ok((nth, _)) => {
                    owing.remove(&nth);
                    gone.insert(nth);
                }
                Err(_) => gone.append(&mut owing),
            }
        }
        self.gone.replace(gone.clone());
        self.meet()?;
        for id in self.bound.take().into_keys() {
            self.send_all(&RankOrder::Release(id.0), MIN_STEP_TIMEOUT)?;
        }
        Ok(gone.into_iter().map(rank).collect())
    }

    /// How long a step of a case may take.
    fn timeout(&self, id: ExchangeId) -> Duration {
        if let Some(limit) = self.limit {
            return limit;
        }
        let bound = self.bound.borrow();
        let moved = |case: &Case| -> f64 {
            let of = |flow: &Flow| {
                let window = flow.by.wire().map_or(1, |wire| wire.op.window());
                flow.bytes.as_f64() * f64::from(window)
            };
            case.flows().map(of).sum()
        };
        // Filled and compared, and as often as a sample has it when it is made long enough.
        let passes = 4.0 * self.handles.borrow().len() as f64;
        let secs = bound.get(&id).map_or(0.0, |bound| moved(&bound.case)) * passes / SLOWEST;
        let files = bound.get(&id).map_or(Ns::ZERO, |bound| files_time(&bound.case));
        let all = secs + files.as_secs();
        MIN_STEP_TIMEOUT + Duration::try_from_secs_f64(all).unwrap_or(Duration::ZERO)
    }

    /// Binds a case in all ranks, under a number that they share.
    fn try_bind(&self, id: ExchangeId, bound: &BoundCase) -> CallResult<()> {
        let order = RankOrder::Bind(id.0, Box::new(bound.case.clone()), bound.busy_cpus.clone());
        let timeout = self.timeout(id);
        let offers = self.send_all(&order, timeout).map(|answers| {
            let offer =
                |answer| if let RankAnswer::Bound(offer) = answer { offer } else { Vec::new() };
            answers.into_iter().map(offer).collect()
        });
        let joined =
            offers.and_then(|offers| self.send_all(&RankOrder::Join(id.0, offers), timeout));
        joined.map(drop).inspect_err(|_| {
            // Ranks that could, have bound it. The error of the step is the one that counts.
            let _ = self.disconnect(id);
            let _ = self.send_all(&RankOrder::Release(id.0), timeout);
        })
    }

    /// Has all ranks end the connections of a case that failed in one of them.
    fn disconnect(&self, id: ExchangeId) -> CallResult<()> {
        if self.lost.borrow().is_some() {
            return Ok(());
        }
        for answer in self.send_all(&RankOrder::Disconnect(id.0), self.timeout(id))? {
            if let RankAnswer::Disconnected(ended) = answer {
                let others = ended.into_iter().map(ExchangeId).filter(|other| *other != id);
                self.disconnected.borrow_mut().extend(others);
            }
        }
        Ok(())
    }

    /// Binds a case again whose connections ended with another one's.
    fn reconnect(&self, id: ExchangeId) -> CallResult<()> {
        if !self.disconnected.borrow_mut().remove(&id) {
            return Ok(());
        }
        let Some(bound) = self.bound.borrow().get(&id).cloned() else { return Ok(()) };
        self.send_all(&RankOrder::Release(id.0), self.timeout(id))?;
        self.try_bind(id, &bound)
    }
}

impl RankGroup for RankProcesses {
    fn members(&self) -> &[RankMember] {
        &self.members
    }

    fn notes(&self) -> Vec<RunNote> {
        self.notes.clone()
    }

    fn bind(&self, case: &Case, reserved: &CpuSet) -> CallResult<ExchangeId> {
        self.made.set(self.made.get() + 1);
        let id = ExchangeId(self.made.get());
        let bound = BoundCase { case: case.clone(), busy_cpus: reserved.clone() };
        self.bound.borrow_mut().insert(id, bound.clone());
        let outcome = match self.try_bind(id, &bound) {
            // Ranks that outlived their coordinator may not all have the connections of the case at
            // which it was lost. They have seen so at joining, and now none has them.
            Err(error)
                if error.severity == Severity::Transient
                    && error.call == RankOrder::JOIN
                    && self.lost.borrow().is_none() =>
            {
                self.try_bind(id, &bound)
            }
            outcome => outcome,
        };
        if outcome.is_err() {
            self.bound.borrow_mut().remove(&id);
        }
        outcome.map(|()| id)
    }

    fn run(&self, id: ExchangeId, reps: u64) -> CallResult<Vec<FlowTime>> {
        self.reconnect(id)?;
        self.times(id, self.send_all(&RankOrder::Run(id.0, reps), self.timeout(id)))
    }

    fn begin(&self, id: ExchangeId, reps: u64) -> CallResult<()> {
        self.reconnect(id)?;
        self.send_all(&RankOrder::Begin(id.0, reps), self.timeout(id))?;
        self.under_way.set(Some(id));
        Ok(())
    }

    fn end(&self, id: ExchangeId) -> CallResult<Vec<FlowTime>> {
        if self.under_way.take() != Some(id) {
            return Err(no_exchange("end", id));
        }
        self.times(id, self.receive("run", self.timeout(id)))
    }

    fn spoil(&self, id: ExchangeId) -> CallResult<()> {
        self.reconnect(id)?;
        self.send_all(&RankOrder::Spoil(id.0), self.timeout(id)).map(drop)
    }

    fn check(&self, id: ExchangeId) -> CallResult<VerifyResult> {
        let answers = self.send_all(&RankOrder::Check(id.0), self.timeout(id))?;
        let unverified = answers.into_iter().find_map(|answer| match answer {
            RankAnswer::Checked(verdict) if verdict != VerifyResult::Verified => Some(verdict),
            _ => None,
        });
        Ok(unverified.unwrap_or(VerifyResult::Verified))
    }

    fn engine(&self, id: ExchangeId) -> String {
        let answers = self.send_all(&RankOrder::Engine(id.0), MIN_STEP_TIMEOUT).unwrap_or_default();
        let texts: BTreeSet<String> = answers
            .into_iter()
            .filter_map(|a| if let RankAnswer::Engine(text) = a { Some(text) } else { None })
            .filter(|text| !text.is_empty())
            .collect();
        // A rank may know less of it than another.
        let parts = |text: &str| text.split(", ").map(str::to_owned).collect::<BTreeSet<_>>();
        let is_part = |less: &String| {
            texts.iter().any(|more| more != less && parts(more).is_superset(&parts(less)))
        };
        texts.iter().filter(|text| !is_part(text)).cloned().collect::<Vec<_>>().join(" | ")
    }

    fn release(&self, id: ExchangeId) -> CallResult<()> {
        let timeout = self.timeout(id);
        self.bound.borrow_mut().remove(&id);
        self.disconnected.borrow_mut().remove(&id);
        self.send_all(&RankOrder::Release(id.0), timeout).map(drop)
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        // Dropping a process waits for its end.
        for handle in self.handles.borrow_mut().iter_mut() {
            // One that has gone needs no telling.
            let _ = handle.link.send(&RankOrder::End);
            handle.link.close();
        }
        // A launcher ends after its last rank. One whose ranks are lost may not.
        let lost = self.lost.borrow().is_some();
        if let Some(launcher) = self.launcher.borrow_mut().as_mut().filter(|_| lost) {
            launcher.end();
        }
    }
}

fn rank(nth: usize) -> Rank {
    Rank(u32::try_from(nth).unwrap_or(u32::MAX))
}

/// The latest rank of each repetition, summed; and each rank's own sum.
fn took(by_rank: &[Vec<Vec<f64>>], flow: usize) -> FlowTime {
    let times = || by_rank.iter().map(|flows| flows.get(flow).map_or(&[][..], Vec::as_slice));
    let most = times().map(<[f64]>::len).max().unwrap_or(0);
    let latest =
        |nth: usize| times().filter_map(|all| all.get(nth)).copied().fold(0.0_f64, f64::max);
    let own = times().enumerate().filter(|(_, all)| !all.is_empty());
    let by_rank = own.map(|(nth, all)| (rank(nth), Ns(all.iter().sum()))).collect();
    FlowTime { elapsed: Ns((0..most).map(latest).sum()), by_rank, io: None }
}

/// Times of a rank, by flow and repetition.
type FlowTimes = Vec<Vec<f64>>;
/// Readings of a rank's I/O, by flow.
type FlowReadings = Vec<Option<IoReading>>;

/// Numbers the hosts in the order of their first ranks.
fn number_nodes(members: &mut [RankMember]) {
    let mut hosts: Vec<String> = Vec::new();
    for member in members {
        let known = hosts.iter().position(|host| *host == member.host);
        let node = known.unwrap_or_else(|| {
            hosts.push(member.host.clone());
            hosts.len() - 1
        });
        member.node = u32::try_from(node).unwrap_or(u32::MAX);
    }
}

/// Listens to a rank until it ends.
fn listen(mut link: LineLink, nth: usize, to: Sender<(usize, RankEvent)>) -> std::io::Result<()> {
    std::thread::Builder::new().name(format!("rank-{nth}")).spawn(move || {
        loop {
            let event = match link.listen() {
                Ok(LinkRecv::Line(answer)) => RankEvent::Answer(answer),
                Ok(LinkRecv::Timeout) => continue,
                Ok(LinkRecv::End) => RankEvent::Ended,
                Err(error) => RankEvent::Garbled(error.to_string()),
            };
            let last = !matches!(event, RankEvent::Answer(_));
            if to.send((nth, event)).is_err() || last {
                return;
            }
        }
    })?;
    Ok(())
}

/// Starts ranks as children of this process.
fn start(
    count: u32,
    host: &HostMachine,
    to: &Sender<(usize, RankEvent)>,
    events: &Receiver<(usize, RankEvent)>,
) -> anyhow::Result<Vec<RankHandle>> {
    let mut args: Vec<OsString> = vec!["rank".into()];
    args.extend(host.flags());
    let mut handles = Vec::new();
    for rank in 0..count {
        let process = WorkerProcess::start(&args, &BTreeMap::new())
            .map_err(|e| anyhow::anyhow!("rank {rank} cannot be started: {e}; see `ulimit -u`"))?;
        listen(process.link.twin()?, rank as usize, to.clone())?;
        let link = process.link.twin()?;
        let name = format!("rank {rank}, process {}", process.id());
        handles.push(RankHandle { link, process: Some(process), name });
    }
    let mut hello = BTreeSet::new();
    let begun = Instant::now();
    while hello.len() < handles.len() {
        match events.recv_timeout(OPEN_TIMEOUT.saturating_sub(begun.elapsed())) {
            Ok((nth, RankEvent::Answer(RankAnswer::Begins))) => drop(hello.insert(nth)),
            Ok((nth, _)) => return Err(anyhow::anyhow!("{} ended at once", handles[nth].name)),
            Err(_) => {
                let missing = (0..handles.len()).find(|nth| !hello.contains(nth)).unwrap_or(0);
                return Err(anyhow::anyhow!("{} does not answer", handles[missing].name));
            }
        }
    }
    Ok(handles)
}

/// Waits for the ranks that a launcher started; and notes on strangers that came.
fn gather(
    count: u32,
    at: &MeetingPlace,
    by: &str,
    limit: Option<Duration>,
    to: &Sender<(usize, RankEvent)>,
    lost: &mut dyn FnMut() -> Option<String>,
) -> anyhow::Result<(Vec<RankHandle>, Vec<RunNote>)> {
    let gathered = door::gather(at, count, &version(), limit.unwrap_or(GATHER_TIMEOUT), lost);
    let Gathered { ranks, notes } = gathered.map_err(|error| {
        anyhow::anyhow!("of the {count} processes that {by} started: {error:#}")
    })?;
    let mut handles = Vec::new();
    for (rank, (link, hello)) in ranks {
        listen(link.twin()?, rank as usize, to.clone())?;
        let name = format!("rank {rank}, process {} on {}", hello.pid, hello.host);
        handles.push(RankHandle { link, process: None, name });
    }
    Ok((handles, notes))
}

/// Why a component is left out whose opening cost ranks.
fn lost_over(component: RankComponent, error: &CallError) -> String {
    let CallError { thing, reason, .. } = error;
    // The cause of a process's end is more useful than the fact.
    let how = if reason == "ended" { thing.clone() } else { format!("{thing}: {reason}") };
    let (name, way_out) = (component.name(), component.way_out());
    format!("opening {name} cost a process ({how}); {way_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_rank_of_each_repetition_counts() {
        // Repetition 1: ranks take 3 and 5; repetition 2: 4 and 1. 5 + 4 = 9, though neither rank
        // took more than 7 by itself. Rank 2 has no part.
        let by_rank = vec![vec![vec![3.0, 4.0]], vec![vec![5.0, 1.0]], vec![vec![]]];
        let took = took(&by_rank, 0);
        assert_eq!(took.elapsed, Ns(9.0));
        assert_eq!(took.by_rank, BTreeMap::from([(Rank(0), Ns(7.0)), (Rank(1), Ns(6.0))]));
    }
}
