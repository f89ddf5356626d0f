//! NCCL and RCCL, bound at run time, as a transport between processes.
//!
//! Each group of GPUs that a case names gets a communicator, kept for later cases. The process of
//! the group's first GPU creates the identifier; the coordinator that distributes the case
//! distributes it too, so neither MPI nor an environment variable is needed. A process with several
//! GPUs drives each by a thread.
//!
//! Repetitions are queued back to back on one stream of each GPU with one wait at the end, timed by
//! the host's clock, as nccl-tests does; or they are isolated; or they are recorded as graphs of up
//! to 64 repetitions. A message needs no reply for its timing: the receiver's stream ends when the
//! message has arrived, and the longest time of all ranks counts.

mod api;
mod comm_stream;
mod gpu_thread;
mod gpu_threads;
mod library_log;
mod plan;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pathline_hal::{
    CallError, CallResult, ExchangeId, ExchangeTable, FlowPart, NoBarrier, RankBarrier, RepeatMode,
    TransportPort,
};
use pathline_schema::{Severity, Transport};

use api::{CclApi, CclUniqueId};
use gpu_thread::{CclConfig, GpuThread, SampleMode};
use gpu_threads::{GpuThreads, ThreadRequest};
use library_log::LogCapture;
use pathline_gpu::search::driver;
use pathline_gpu::{GpuRuntime, device};
use plan::{CclPlan, CommGroup, named};
pub use search::collectives_libraries;

/// What a user can set for the library.
#[derive(Debug, Clone)]
pub struct CclAsked {
    /// The library: a file or folder. `None` starts a search.
    pub library: Option<PathBuf>,
    /// Timeout of a step beyond the time of its bytes at 1 GB/s.
    pub timeout: Duration,
    /// Whether buffers are registered with communicators, where the library has a call for it.
    pub register: bool,
}

impl Default for CclAsked {
    fn default() -> Self {
        Self { library: None, timeout: Duration::from_secs(60), register: true }
    }
}

/// Number of unused communicators to keep.
const MAX_IDLE_GROUPS: usize = 8;

/// Opens the library of a GPU runtime, for all GPUs that the runtime lists.
///
/// # Errors
/// Why the library cannot be used, and what to do.
pub fn open_ccl(
    runtime: &GpuRuntime,
    asked: &CclAsked,
) -> std::result::Result<Box<dyn TransportPort>, String> {
    let family = runtime.family;
    let Some(collectives) = &family.description().collectives else {
        return Err(format!("no collectives library is known for {}", family.label));
    };
    if let Some(why) = &runtime.without {
        return Err(format!("no GPU runtime: {why}; `pathline doctor` shows what is missing"));
    }
    let Some(file) = &runtime.driver.path else {
        return Err("no GPU runtime was found; `pathline doctor` shows what is missing".to_owned());
    };
    // RCCL is linked against the runtime, which must be loaded before it.
    let (bound, _) = driver(family, Some(file));
    let Some(driver) = bound else {
        return Err(format!("{} cannot be opened again", file.display()));
    };
    // SAFETY: the first call of the library; it may be made again.
    let code = unsafe { (driver.api.init.at)(0) };
    let status = (driver.api.init.name, code);
    pathline_gpu::error::outcome(&*driver.dialect, status, &|| "this machine".into())
        .map_err(|e| e.to_string())?;
    let devices = device::all(&driver.api, &*driver.dialect).map_err(|e| e.to_string())?;
    if devices.is_empty() {
        return Err("the GPU runtime lists no GPU".to_owned());
    }
    let library = asked.library.as_deref();
    let (calls, found) = search::collectives(collectives, library, Some(file), |library| {
        let calls = api::load(library, collectives)?;
        Ok((calls, calls.version()))
    });
    let (Some(calls), Some(path)) = (calls, found.path.as_ref()) else {
        let tried = found.tried.iter().map(|t| format!("{}: {}", t.place.display(), t.why));
        let tried = tried.collect::<Vec<_>>().join("; ");
        let tried = if tried.is_empty() { "it was not found".to_owned() } else { tried };
        return Err(format!("no {} ({tried}); {}", found.what, found.way_out));
    };
    let short = format!("{} {}", collectives.name, calls.version());
    let config = CclConfig { family, runtime: file.clone(), calls, register: asked.register };
    let devices = devices.iter().map(|d| d.handle).collect();
    Ok(Box::new(CclPort {
        library: format!("{short} ({})", path.display()),
        short,
        log: LogCapture::new(&calls),
        calls,
        threads: GpuThreads::new(devices, asked.timeout, config),
        known: Vec::new(),
        exchanges: ExchangeTable::default(),
    }))
}

/// A group that an exchange has named.
struct KnownGroup {
    group: CommGroup,
    /// The identity of its communicator; 0 if this process has none.
    mark: u64,
    /// Number of exchanges bound on it.
    users: u32,
    via: BTreeSet<String>,
}

struct CclExchange {
    plan: CclPlan,
    pace: RepeatMode,
    how: BTreeSet<String>,
    registered: Option<bool>,
    joined: bool,
}

struct CclPort {
    library: String,
    short: String,
    calls: CclApi,
    log: Option<LogCapture>,
    threads: GpuThreads,
    /// Groups, least recently used first. All processes hold the same list, so all drop the same
    /// group.
    known: Vec<KnownGroup>,
    exchanges: ExchangeTable<CclExchange>,
}

/// What a process announces about one group.
struct CclOffer {
    /// The mark of its communicator's identifier; 0 if it has none.
    mark: u64,
    /// Identifier for a new communicator, from the process of the group's first GPU.
    identity: Option<CclUniqueId>,
}

const OFFER: usize = 8 + 1 + CclUniqueId::BYTES;

impl CclOffer {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.mark.to_le_bytes());
        to.push(self.identity.is_some().into());
        to.extend(self.identity.map_or([0; CclUniqueId::BYTES], |id| id.0));
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let mark = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let identity = bytes.get(9..OFFER)?.try_into().ok().map(CclUniqueId);
        Some(Self { mark, identity: identity.filter(|_| bytes[8] == 1) })
    }
}

impl CclPort {
    fn alive(&self, call: &str) -> CallResult<()> {
        match self.threads.lost() {
            None => Ok(()),
            Some(why) => Err(CallError::new(Severity::Sticky, call, &self.short, why)
                .or_try("a new process is needed")),
        }
    }

    /// Adds a group to the list, or moves it to the end.
    fn meet_group(&mut self, group: &CommGroup) {
        let known = match self.known.iter().position(|k| k.group == *group) {
            Some(at) => self.known.remove(at),
            None => KnownGroup { group: group.clone(), mark: 0, users: 0, via: BTreeSet::new() },
        };
        self.known.push(known);
    }

    fn known(&mut self, group: &CommGroup) -> Option<&mut KnownGroup> {
        self.known.iter_mut().find(|k| k.group == *group)
    }

    /// Closes the least recently used communicators beyond `MAX_IDLE_GROUPS`.
    fn forget(&mut self) -> CallResult<()> {
        let idle = self.known.iter().filter(|k| k.users == 0).count();
        for _ in MAX_IDLE_GROUPS..idle {
            let Some(at) = self.known.iter().position(|k| k.users == 0) else { break };
            let known = self.known.remove(at);
            if known.mark != 0 {
                self.threads.ask_all("ncclCommDestroy", known.group, GpuThread::close)?;
            }
        }
        Ok(())
    }

    /// Aborts the communicator of a group after an error.
    fn give_up(&mut self, group: &CommGroup) {
        if let Some(known) = self.known(group) {
            known.mark = 0;
        }
        if self.threads.lost().is_none() {
            // On failure `lose` blocks every later call.
            let _ = self.threads.ask_all("ncclCommAbort", group.clone(), GpuThread::give_up);
        }
    }

    fn identity(&self) -> CallResult<CclUniqueId> {
        let (calls, mut identity) = (&self.calls, CclUniqueId([0; CclUniqueId::BYTES]));
        let call = calls.ccl.unique_id;
        // SAFETY: stores 128 bytes.
        let code = unsafe { (call.at)(&raw mut identity) };
        calls.outcome((call.name, code), 0, &|| "this host".to_owned())?;
        Ok(identity)
    }

    /// The new identifier of a group; `None` if all its processes have the same communicator.
    fn agree(
        &mut self,
        group: &CommGroup,
        offers: &[Option<CclOffer>],
    ) -> CallResult<Option<CclUniqueId>> {
        let thing = || named(group);
        let members: BTreeSet<usize> = group.iter().map(|(rank, _)| rank.0 as usize).collect();
        let mut of_members = Vec::new();
        for &rank in &members {
            let offer = offers.get(rank).and_then(Option::as_ref).ok_or_else(|| {
                let why = format!("rank {rank} sent no offer for it");
                CallError::new(Severity::Transient, "join", thing(), why)
                    .or_try("all ranks must run the same version of this program")
            })?;
            of_members.push(offer);
        }
        let mine = self.known(group).map_or(0, |k| k.mark);
        if mine != 0 && of_members.iter().all(|o| o.mark == mine) {
            return Ok(None);
        }
        let first = group.first().and_then(|(rank, _)| offers.get(rank.0 as usize));
        let identity = first.and_then(Option::as_ref).and_then(|o| o.identity);
        match identity.filter(|_| of_members.iter().all(|o| o.mark == 0)) {
            Some(identity) => Ok(Some(identity)),
            None => {
                self.give_up(group);
                let why = "not all its ranks still have the communicator";
                Err(CallError::new(Severity::Transient, "join", thing(), why)
                    .or_try("the next case makes a new one"))
            }
        }
    }

    /// Takes a sample; the times of each part in ns.
    fn sample(
        &mut self,
        sample: SampleMode,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        let exchange = self.exchanges.bound("run", sample.id)?;
        let parts = exchange.plan.parts.clone();
        let gpus: Vec<u32> = exchange.plan.seats.iter().map(|s| s.gpu).collect();
        let times = self.threads.take_sample(&gpus, sample, barrier)?;
        // The slowest GPU of this process counts.
        let slowest = |seats_of: &Vec<usize>| -> Vec<f64> {
            if seats_of.is_empty() {
                return Vec::new();
            }
            let at =
                |round: &Vec<u64>| seats_of.iter().filter_map(|&s| round.get(s)).max().copied();
            times.iter().filter_map(at).map(|ns| ns as f64).collect()
        };
        Ok(parts.iter().map(slowest).collect())
    }

    fn limit(&self, bytes: u64, reps: u64) -> u64 {
        let timeout = u64::try_from(self.threads.timeout().as_nanos()).unwrap_or(u64::MAX);
        timeout.saturating_add(bytes.saturating_mul(reps))
    }

    /// Connects an exchange: makes communicators, registers buffers, and runs one untimed
    /// repetition in which the library connects.
    fn connect(&mut self, id: ExchangeId, plan: &CclPlan, offers: &[Vec<u8>]) -> CallResult<()> {
        let used: BTreeSet<usize> = plan.seats.iter().map(|s| s.group).collect();
        let mut identities = BTreeMap::new();
        for &at in &used {
            let of = |bytes: &Vec<u8>| {
                CclOffer::read(bytes.get(at * OFFER..at.saturating_add(1) * OFFER)?)
            };
            let offers: Vec<Option<CclOffer>> = offers.iter().map(of).collect();
            let group = &plan.groups[at];
            identities.insert(at, self.agree(group, &offers)?);
        }
        let jobs = plan.seats.iter().map(|seating| {
            let (seating, group) = (seating.clone(), plan.groups[seating.group].clone());
            let identity = identities.get(&seating.group).copied().flatten();
            let gpu = seating.gpu;
            let job: ThreadRequest<CallResult<Option<bool>>> =
                Box::new(move |seat| seat.bind(id, &group, &seating, identity));
            (gpu, job)
        });
        let bound = self.threads.ask("ncclCommInitRank", jobs.collect())?;
        let failed = bound.iter().find_map(|b| b.as_ref().err().cloned());
        if let Some(error) = failed {
            used.iter().for_each(|&at| self.give_up(&plan.groups[at]));
            return Err(error);
        }
        for (at, identity) in identities {
            if let (Some(identity), Some(known)) = (identity, self.known(&plan.groups[at])) {
                known.mark = identity.mark();
            }
        }
        let registered: Vec<bool> = bound.into_iter().flatten().flatten().collect();
        self.log.iter().for_each(LogCapture::begin);
        let limit = self.limit(plan.bytes, 1);
        let first = SampleMode { id, reps: 1, pace: RepeatMode::Streaming, limit };
        let outcome = self.sample(first, &NoBarrier);
        let log = self.log.as_ref().map(LogCapture::end).unwrap_or_default();
        for &at in &used {
            if outcome.is_err() {
                self.give_up(&plan.groups[at]);
            } else if let Some(known) = self.known(&plan.groups[at]) {
                known.via.extend(log.via.iter().cloned());
            }
        }
        outcome?;
        let exchange = self.exchanges.bound("join", id)?;
        exchange.how = log.how;
        let all = registered.iter().all(|whole| *whole);
        exchange.registered = (!registered.is_empty()).then_some(all);
        exchange.joined = true;
        Ok(())
    }
}

impl TransportPort for CclPort {
    fn via(&self) -> Transport {
        Transport::Ccl
    }

    fn library(&self) -> String {
        self.library.clone()
    }

    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)> {
        self.alive("bind")?;
        if !parts.iter().all(plan::registers) && self.calls.ccl.register.is_none() {
            let why = "this library registers no buffers";
            return Err(CallError::unsupported("bind", &self.short, why)
                .or_try("the case without -unregistered is the same here"));
        }
        let misfit = |part: &FlowPart| self.calls.misfit(part.wire.op.reduced());
        if let Some(why) = parts.iter().find_map(misfit) {
            return Err(CallError::unsupported("bind", &self.short, why)
                .or_try("use a newer library, or half, bf16 or float"));
        }
        if let Some(why) = parts.iter().find_map(FlowPart::short_buffer) {
            return Err(CallError::unsupported("bind", &self.short, why));
        }
        let plan = plan::build(parts)?;
        for seat in &plan.seats {
            self.threads.thread_of(seat.gpu)?;
        }
        let mut offers = Vec::new();
        for (group, &leads) in plan.groups.iter().zip(&plan.leads) {
            self.meet_group(group);
            let mark = self.known(group).map_or(0, |k| k.mark);
            let identity = if leads && mark == 0 { Some(self.identity()?) } else { None };
            CclOffer { mark, identity }.write(&mut offers);
        }
        for group in &plan.groups {
            if let Some(known) = self.known(group) {
                known.users += 1;
            }
        }
        let (how, registered, joined) = (BTreeSet::new(), None, false);
        let exchange = CclExchange { plan, pace, how, registered, joined };
        Ok((self.exchanges.insert(exchange), offers))
    }

    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()> {
        self.alive("join")?;
        self.forget()?;
        let plan = self.exchanges.bound("join", id)?.plan.clone();
        if plan.seats.is_empty() { Ok(()) } else { self.connect(id, &plan, offers) }
    }

    fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        self.alive("run")?;
        let exchange = self.exchanges.bound("run", id)?;
        let pace = exchange.pace;
        if exchange.plan.seats.is_empty() {
            return pace.idle_sample(exchange.plan.parts.len(), reps, barrier);
        }
        if !exchange.joined {
            return Err(CallError::unsupported("run", format!("exchange {}", id.0), "not joined"));
        }
        let (groups, bytes) = (exchange.plan.groups.clone(), exchange.plan.bytes);
        let limit = self.limit(bytes, reps);
        let outcome = self.sample(SampleMode { id, reps, pace, limit }, barrier);
        if outcome.is_err() {
            groups.iter().for_each(|group| self.give_up(group));
        }
        outcome
    }

    fn disconnect(&mut self, id: ExchangeId) -> Vec<ExchangeId> {
        let groups = self.exchanges.get(id).map(|e| e.plan.groups.clone()).unwrap_or_default();
        groups.iter().for_each(|group| self.give_up(group));
        let uses = |e: &CclExchange| e.plan.groups.iter().any(|group| groups.contains(group));
        self.exchanges.iter().filter(|(_, e)| uses(e)).map(|(id, _)| id).collect()
    }

    fn engine(&self, id: ExchangeId) -> String {
        let Some(exchange) = self.exchanges.get(id) else { return self.short.clone() };
        let mut text = self.short.clone();
        if !exchange.how.is_empty() {
            let how: Vec<&str> = exchange.how.iter().map(String::as_str).collect();
            text.push_str(&format!(", {}", how.join(" and ")));
        }
        let used = exchange.plan.seats.iter().map(|s| &exchange.plan.groups[s.group]);
        let known = used.filter_map(|group| self.known.iter().find(|k| k.group == *group));
        let via: BTreeSet<&str> = known.flat_map(|k| &k.via).map(String::as_str).collect();
        if !via.is_empty() {
            text.push_str(&format!(", via {}", via.into_iter().collect::<Vec<_>>().join(" and ")));
        }
        match exchange.registered {
            Some(true) => text.push_str(", buffers registered"),
            Some(false) => text.push_str(", not all buffers registered"),
            // Reported only where the library has a call to register.
            None if self.calls.ccl.register.is_some() && !exchange.plan.seats.is_empty() => {
                text.push_str(", buffers not registered");
            }
            None => {}
        }
        text
    }

    fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        let exchange = self.exchanges.remove(id)?;
        for group in &exchange.plan.groups {
            if let Some(known) = self.known(group) {
                known.users = known.users.saturating_sub(1);
            }
        }
        self.alive("release")?;
        let gpus = exchange.plan.seats.iter().map(|s| s.gpu);
        let job = |gpu: u32| {
            let job: ThreadRequest<CallResult<()>> = Box::new(move |seat| seat.release(id));
            (gpu, job)
        };
        let jobs = gpus.map(job).collect();
        self.threads.ask("release", jobs)?.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_survive_encoding() {
        let mut bytes = Vec::new();
        CclOffer { mark: 0, identity: Some(CclUniqueId([9; 128])) }.write(&mut bytes);
        CclOffer { mark: 77, identity: None }.write(&mut bytes);
        assert_eq!(bytes.len(), 2 * OFFER);
        let first = CclOffer::read(&bytes[..OFFER]).unwrap();
        assert_eq!((first.mark, first.identity), (0, Some(CclUniqueId([9; 128]))));
        let second = CclOffer::read(&bytes[OFFER..]).unwrap();
        assert_eq!((second.mark, second.identity), (77, None));
        assert!(CclOffer::read(&bytes[..100]).is_none());
    }
}
