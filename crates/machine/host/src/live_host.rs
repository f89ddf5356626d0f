//! The host of this process, as a [`pathline_hal::Host`].

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use pathline_hal::{
    CallError, CallResult, GateId, Host, HostDomain, MemoryRegistrar, TeamId, TeamResult, TeamWork,
};
use pathline_schema::{
    Bytes, Conditions, CpuHow, CpuOp, CpuSet, CpuWork, MemKind, Ns, RunNote, Topology,
};

use crate::clock::ClockOrigin;
use crate::conditions::ConditionProbe;
use crate::gate::ThreadBarrier;
use crate::gate_table::GateTable;
use crate::memory::{self, ChaseChain, HostMemory, MappedMemory};
use crate::page_domains;
use crate::stored_check::StoredSpan;
use crate::team::{PinnedTeam, ReadSum, TeamJob, TeamRun, ThreadTask};
use crate::thread_piece::{ThreadPiece, split_bytes};
use crate::{chase, cpus, loops, round_pool, spread, stored_check, thread_clock};

/// CPUs of a domain that this process may use, in the order of assignment to threads.
struct CpuDomain {
    id: u32,
    cpus: Vec<u32>,
}

/// Opens the network adapters of a machine. The error states why there are none.
pub type FindRegistrar = fn(&Topology) -> std::result::Result<Box<dyn MemoryRegistrar>, String>;

/// The host of this process.
pub struct LiveHost {
    origin: ClockOrigin,
    domains: Vec<CpuDomain>,
    /// All buffers.
    pub memory: Rc<HostMemory>,
    teams: RefCell<BTreeMap<TeamId, PinnedTeam>>,
    /// All gates.
    pub gates: Rc<GateTable>,
    made: RefCell<u64>,
    probe: ConditionProbe,
    /// CPUs of each last-level cache.
    l3: Vec<CpuSet>,
    /// What to open adapters with at the first use, and the result.
    topology: Topology,
    find_registrar: FindRegistrar,
    registrar: OnceCell<std::result::Result<Box<dyn MemoryRegistrar>, String>>,
}

impl LiveHost {
    /// A host with the domains and CPUs of a topology; one domain if this process may use none of
    /// them. `find_registrar` runs when memory is first registered with an adapter.
    pub fn new(topology: &Topology, origin: ClockOrigin, find_registrar: FindRegistrar) -> Self {
        let allowed = cpus::allowed().unwrap_or_else(|_| topology.host.cpus.clone());
        let domain = |id: u32, all: &CpuSet| CpuDomain {
            id,
            cpus: cpus::assignment_order(topology, &all.intersect(&allowed)),
        };
        let mut domains: Vec<CpuDomain> =
            topology.numa.iter().map(|d| domain(d.id, &d.cpus)).collect();
        if domains.iter().all(|d| d.cpus.is_empty()) {
            // The topology has none of the CPUs that this process may use: one domain for all.
            let id = domains.first().map_or(0, |d| d.id);
            domains = vec![domain(id, &allowed)];
        }
        domains.sort_by_key(|d| d.id);
        let memory =
            Rc::new(HostMemory::new(domains.iter().map(|d| (d.id, d.cpus.clone())).collect()));
        let first = domains.iter().find(|d| !d.cpus.is_empty());
        let (probed, numa) = first.map_or((&[][..], 0), |d| (d.cpus.as_slice(), d.id));
        let probe = ConditionProbe::new(origin, probed, numa, allowed);
        Self {
            origin,
            domains,
            memory,
            teams: RefCell::default(),
            gates: Rc::default(),
            made: RefCell::new(0),
            probe,
            l3: topology.caches.iter().filter(|c| c.level == 3).map(|c| c.cpus.clone()).collect(),
            topology: topology.clone(),
            find_registrar,
            registrar: OnceCell::new(),
        }
    }

    fn domain(&self, call: &str, numa: u32) -> CallResult<&CpuDomain> {
        self.domains.iter().find(|d| d.id == numa).ok_or_else(|| {
            let known: Vec<String> = self.domains.iter().map(|d| format!("numa{}", d.id)).collect();
            CallError::unsupported(call, format!("numa{numa}"), "this host has no such NUMA domain")
                .or_try(format!("use {}", known.join(", ")))
        })
    }

    /// Starts threads on the first CPUs of a domain, so that cases with the same number of threads
    /// use the same CPUs: virtual CPUs differ, and so do fast and efficient cores. CPUs behind the
    /// last-level caches of `others` come first, CPUs of `others` last.
    fn team(&self, numa: u32, threads: u32, others: &[TeamId]) -> CallResult<TeamId> {
        let domain = self.domain("team_create", numa)?;
        let usable = domain.cpus.len();
        if threads == 0 || threads as usize > usable {
            let thing = format!("{threads} threads on numa{numa}");
            let reason =
                format!("this process may use {usable} CPUs there, and each thread needs its own");
            let way_out = match usable {
                0 => "run them on another domain, or widen the affinity or cpuset of this process"
                    .to_owned(),
                _ => format!(
                    "use 1 to {usable} threads, or widen the affinity or cpuset of this process"
                ),
            };
            return Err(CallError::unsupported("team_create", thing, reason).or_try(way_out));
        }
        let mut teams = self.teams.borrow_mut();
        let others = others.iter().filter_map(|id| teams.get(id));
        let theirs: Vec<u32> = others.flat_map(|team| team.cpus.iter().copied()).collect();
        let used = |cpu: u32| theirs.iter().filter(|&&c| c == cpu).count();
        let far = |cpu: u32| {
            let shares = |l3: &CpuSet| l3.contains(cpu) && theirs.iter().any(|&c| l3.contains(c));
            !theirs.is_empty() && !self.l3.iter().any(shares)
        };
        let mut cpus = domain.cpus.clone();
        cpus.sort_by_key(|&cpu| (used(cpu), far(cpu)));
        cpus.truncate(threads as usize);
        // Teams of other cases sleep during this one's work.
        let all: usize = self.domains.iter().map(|d| d.cpus.len()).sum();
        let team = PinnedTeam::new(cpus, theirs.len() + (threads as usize) < all)?;
        let id = TeamId(self.id());
        teams.insert(id, team);
        Ok(id)
    }

    fn id(&self) -> u64 {
        *self.made.borrow_mut() += 1;
        *self.made.borrow()
    }

    /// Checks a piece of work against the memory it names and makes a job of it.
    fn job(&self, team: &PinnedTeam, work: &TeamWork) -> CallResult<TeamJob> {
        let threads = team.cpus.len() as u32;
        let mut job = TeamJob {
            task: ThreadTask::Nothing,
            src: work.src,
            other: work.src.wrapping_add(work.bytes.0),
            dst: work.dst,
            bytes: work.bytes.0,
            pieces: split_bytes(0, threads, 64),
            reps: work.reps,
            isolated: work.isolated && threads > 1,
            reads: Vec::new(),
            writes: None,
            steps: work.reps,
            between: ThreadBarrier::new(threads),
            line: OnceLock::new(),
            run: TeamRun::new(self.origin, threads),
        };
        if work.reps == 0 || work.bytes.0 == 0 {
            return Ok(job);
        }
        match work.work.op {
            CpuOp::Chase => self.chase(work, team, &mut job)?,
            CpuOp::Touch => self.touch(work, threads, &mut job)?,
            CpuOp::Read | CpuOp::Write | CpuOp::Copy | CpuOp::Triad => {
                self.pass(work, threads, &mut job)?;
            }
        }
        Ok(job)
    }

    fn pass(&self, work: &TeamWork, threads: u32, job: &mut TeamJob) -> CallResult<()> {
        let body = loops::find(work.work).ok_or_else(|| no_loop(work.work))?;
        let effect = work.work.effect(work.bytes);
        if effect.reads.0 > 0 {
            job.reads.push(self.source(work.src, effect.reads.0)?);
        }
        if effect.writes.0 > 0 {
            let (src, dst) = (work.src, work.dst);
            if src < dst.saturating_add(effect.writes.0) && dst < src.saturating_add(effect.reads.0)
            {
                let thing = format!("{} at {src:#x} to {dst:#x}", work.bytes);
                return Err(CallError::unsupported(
                    "submit",
                    thing,
                    "source and destination overlap",
                ));
            }
            job.will_write(self.target(dst, effect.writes.0)?);
        }
        // Whole pages if there are enough of them: two threads then never touch the same page.
        let pages = work.bytes.0 / u64::from(threads) >= 16 * self.memory.page() as u64;
        let grain = if pages { self.memory.page() as u64 } else { 64 };
        job.pieces = split_bytes(work.bytes.0, threads, grain);
        job.task = ThreadTask::Pass(body);
        Ok(())
    }

    fn chase(&self, work: &TeamWork, team: &PinnedTeam, job: &mut TeamJob) -> CallResult<()> {
        let thing = format!("{} over {}", work.work, work.bytes);
        let refuse = |reason: &str, way_out: &str| {
            Err(CallError::unsupported("submit", thing.as_str(), reason).or_try(way_out))
        };
        if work.work.how != CpuHow::Plain {
            return Err(no_loop(work.work));
        }
        if team.cpus.len() != 1 {
            return refuse("a chain is followed by one thread", "use -t1");
        }
        let mapping = self.source(work.src, work.bytes.0)?;
        let wanted = ChaseChain { address: work.src, bytes: work.bytes.0 };
        if mapping.chain() != Some(wanted) || mapping.writers.load(Ordering::Acquire) > 0 {
            return refuse(
                "no chain of that span lies there",
                "fill the buffer with a chain first",
            );
        }
        let each = work.chase_steps.unwrap_or_else(|| chase::elements(work.bytes));
        let steps = each.saturating_mul(work.reps);
        // Every chain of this span has its elements at the same addresses, so the end is one of them.
        let ended = team.chase_end.get().filter(|end| end.chain == wanted);
        let start = ended.filter(|_| work.chase_steps.is_some()).map_or(work.src, |end| end.at);
        job.pieces = vec![ThreadPiece { offset: 0, len: work.bytes.0 }];
        job.task = ThreadTask::Chase { chain: wanted, start, steps };
        job.steps = steps;
        job.reads.push(mapping);
        Ok(())
    }

    fn touch(&self, work: &TeamWork, threads: u32, job: &mut TeamJob) -> CallResult<()> {
        if work.work.how != CpuHow::Plain {
            return Err(no_loop(work.work));
        }
        let page = self.memory.page();
        let mapping = self.target(work.dst, work.bytes.0)?;
        if mapping.lent {
            let thing = format!("{} at {:#x}", work.work, work.dst);
            let reason = "memory of a GPU's runtime has no first touch";
            return Err(
                CallError::unsupported("submit", thing, reason).or_try("touch paged or huge")
            );
        }
        // The pages are discarded first: no other job may read them.
        memory::check_idle("submit", &mapping)?;
        if !(work.dst - mapping.base as u64).is_multiple_of(mapping.grain as u64) {
            let thing = format!("{} at {:#x}", work.work, work.dst);
            return Err(CallError::unsupported("submit", thing, "a first touch starts on a page"));
        }
        job.pieces = split_bytes(work.bytes.0, threads, mapping.grain as u64);
        job.task = ThreadTask::Touch { page };
        job.steps = work.bytes.0.div_ceil(page as u64).saturating_mul(work.reps);
        job.will_write(mapping);
        Ok(())
    }

    fn source(&self, address: u64, bytes: u64) -> CallResult<Arc<MappedMemory>> {
        let mapping = self.memory.range("submit", address, bytes)?;
        if mapping.is_backed(address + bytes) {
            return Ok(mapping);
        }
        let thing = format!("{} at {address:#x}", Bytes(bytes));
        Err(CallError::unsupported(
            "submit",
            thing,
            "the source was never written: its pages are all the kernel's zero page",
        )
        .or_try("fill the buffer first"))
    }

    fn target(&self, address: u64, bytes: u64) -> CallResult<Arc<MappedMemory>> {
        let mapping = self.memory.range("submit", address, bytes)?;
        if mapping.chain().is_some() {
            // A chase over it would follow the overwritten pointers.
            memory::check_idle("submit", &mapping)?;
        }
        Ok(mapping)
    }
}

const NO_CONTENT: &str = "what it stores is no function of what it loads";

fn no_loop(work: CpuWork) -> CallError {
    let choices = loops::supported_variants(work.op);
    CallError::unsupported(
        "submit",
        work.to_string(),
        "this processor or operation has no such loop",
    )
    .or_try(format!("{} can be done here with {choices}", work.op))
}

fn no_such(call: &str, thing: &str) -> CallError {
    CallError::unsupported(call, thing, "there is none of that number")
}

impl Host for LiveHost {
    fn registrar(&self) -> CallResult<&dyn MemoryRegistrar> {
        match self.registrar.get_or_init(|| (self.find_registrar)(&self.topology)) {
            Ok(registrar) => Ok(&**registrar),
            Err(why) => Err(CallError::unsupported("registrar", "this machine", why)),
        }
    }

    fn domains(&self) -> Vec<HostDomain> {
        let domain = |d: &CpuDomain| HostDomain {
            id: d.id,
            threads: d.cpus.len() as u32,
            free: self.memory.free(d.id),
        };
        self.domains.iter().map(domain).collect()
    }

    fn instructions(&self) -> Vec<CpuHow> {
        CpuHow::ALL.iter().copied().filter(|&how| loops::available(how)).collect()
    }

    fn alloc(&self, numa: u32, mem: MemKind, bytes: Bytes) -> CallResult<u64> {
        self.domain("alloc", numa)?;
        self.memory.alloc(numa, mem, bytes)
    }

    fn free(&self, address: u64) -> CallResult<()> {
        self.memory.free_buffer(address)
    }

    fn discard(&self, address: u64) -> CallResult<()> {
        self.memory.discard(address)
    }

    fn huge_bytes(&self, address: u64) -> Option<Bytes> {
        self.memory.huge_bytes(address)
    }

    fn page_domains(&self, address: u64, bytes: Bytes) -> Option<BTreeMap<u32, u64>> {
        page_domains::page_domains(address, bytes)
    }

    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()> {
        let mapping = self.memory.range("fill", address, bytes.0)?;
        memory::check_idle("fill", &mapping)?;
        mapping.note_written(address + bytes.0);
        if !chain {
            let grain = mapping.grain as u64;
            // SAFETY: the range lies in a mapping that is held and not used by a job.
            unsafe { spread::fill(self.memory.cpus(mapping.numa), address, bytes.0, grain, seed) };
            return Ok(());
        }
        let refuse = |reason| {
            Err(CallError::unsupported(
                "fill",
                format!("a chain over {bytes} at {address:#x}"),
                reason,
            ))
        };
        if bytes.0 < 8 || !address.is_multiple_of(8) {
            return refuse("a chain needs 8 bytes on a boundary of 8");
        }
        let (cpus, grain) = (self.memory.cpus(mapping.numa), mapping.grain as u64);
        // SAFETY: the range lies in a mapping that is held and not used by a job; aligned and long
        // enough. A page is a multiple of an element.
        if !unsafe { chase::write_chain(cpus, address, bytes, grain, seed) } {
            return refuse("a chain covers at most 512 GiB");
        }
        mapping.set_chain(Some(ChaseChain { address, bytes: bytes.0 }));
        Ok(())
    }

    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>> {
        let mapping = self.memory.range("check", address, bytes.0)?;
        memory::check_not_written("check", &mapping)?;
        let (cpus, grain) = (self.memory.cpus(mapping.numa), mapping.grain as u64);
        // SAFETY: the range lies in a mapping that is held, and no running job stores to it.
        Ok(unsafe { spread::check(cpus, address, bytes.0, grain, seed) })
    }

    fn check_stored(&self, work: &TeamWork) -> CallResult<Option<u64>> {
        let (op, bytes) = (work.work.op, work.bytes.0);
        let sources = match op {
            CpuOp::Write => 0,
            CpuOp::Triad => 2,
            _ => {
                return Err(CallError::unsupported(
                    "check_stored",
                    work.work.to_string(),
                    NO_CONTENT,
                ));
            }
        };
        let mapping = self.memory.range("check_stored", work.dst, bytes)?;
        memory::check_not_written("check_stored", &mapping)?;
        let read = (sources > 0)
            .then(|| self.memory.range("check_stored", work.src, bytes.saturating_mul(sources)))
            .transpose()?;
        if let Some(read) = &read {
            memory::check_not_written("check_stored", read)?;
        }
        let span = StoredSpan { dst: work.dst, src: work.src, other: work.src + bytes, bytes };
        let (cpus, grain) = (self.memory.cpus(mapping.numa), mapping.grain as u64);
        // SAFETY: the ranges lie in mappings that are held, and no running job stores to them.
        Ok(unsafe { stored_check::first_wrong(cpus, op, span, grain) })
    }

    fn check_read(&self, team: TeamId, work: &TeamWork, seed: u64) -> CallResult<bool> {
        let teams = self.teams.borrow();
        let team = teams.get(&team).ok_or_else(|| no_such("check_read", "team"))?;
        let same = |sum: &ReadSum| (sum.src, sum.bytes) == (work.src, work.bytes.0);
        let Some(read) = team.read_sum.get().filter(same) else {
            let thing = format!("{} of {:#x}", work.work, work.src);
            return Err(CallError::unsupported("check_read", thing, "this team has not read it"));
        };
        let each = spread::sum(&team.cpus, read.bytes, seed);
        Ok(read.sum == each.wrapping_mul(read.passes))
    }

    fn team_create(&self, numa: u32, threads: u32) -> CallResult<TeamId> {
        self.team(numa, threads, &[])
    }

    fn team_near(&self, numa: u32, threads: u32, others: &[TeamId]) -> CallResult<TeamId> {
        self.team(numa, threads, others)
    }

    fn team_cpus(&self, team: TeamId) -> CpuSet {
        let teams = self.teams.borrow();
        teams.get(&team).map_or_else(CpuSet::default, |t| CpuSet::new(t.cpus.iter().copied()))
    }

    fn team_destroy(&self, team: TeamId) -> CallResult<()> {
        let gone = self.teams.borrow_mut().remove(&team);
        let gone = gone.ok_or_else(|| no_such("team_destroy", "team"))?;
        self.gates.release(&gone.pool);
        Ok(())
    }

    fn submit(&self, team: TeamId, gate: GateId, work: &TeamWork) -> CallResult<()> {
        self.gates.find("submit", gate)?;
        let teams = self.teams.borrow();
        let team = teams.get(&team).ok_or_else(|| no_such("submit", "team"))?;
        if team.pool.is_busy() {
            return Err(round_pool::not_reaped_error("team"));
        }
        let mut job = self.job(team, work)?;
        if let Some(mapping) = job.writes.as_ref() {
            mapping.note_written(work.dst + work.bytes.0);
        }
        job.isolated &= job.reps > 1;
        team.pool.submit("team", job)?;
        self.gates.hold(gate, &team.pool)
    }

    fn reap(&self, team: TeamId) -> CallResult<TeamResult> {
        self.teams.borrow().get(&team).ok_or_else(|| no_such("reap", "team"))?.reap()
    }

    fn gate_create(&self) -> CallResult<GateId> {
        let id = GateId(self.id());
        self.gates.create(id);
        Ok(id)
    }

    fn gate_release(&self, gate: GateId) -> CallResult<()> {
        self.gates.open(gate)
    }

    fn gate_destroy(&self, gate: GateId) -> CallResult<()> {
        self.gates.destroy(gate)
    }

    fn conditions(&self) -> Conditions {
        self.probe.read(&self.memory)
    }

    fn cpu_use(&self) -> Conditions {
        self.probe.cpu_use()
    }

    fn new_notes(&self) -> Vec<RunNote> {
        self.probe.new_notes()
    }

    fn run_delay(&self) -> Option<Ns> {
        thread_clock::run_delay()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Four samples of two passes by two threads, over memory with a tail of 5 B: all is right, then one
    /// thread skips the last line of its piece in one sample, which no sample after it hides.
    #[test]
    fn reads_that_skip_a_line_and_wrong_bytes_are_found() {
        const BYTES: u64 = (64 << 10) + 5;
        let none: FindRegistrar = |_| Err("not in this test".to_owned());
        let host = LiveHost::new(&Topology::default(), ClockOrigin::now(), none);
        let src = host.alloc(0, MemKind::Paged, Bytes(BYTES)).unwrap();
        host.fill(src, Bytes(BYTES), 5, false).unwrap();
        for how in host.instructions() {
            let work = CpuWork { op: CpuOp::Read, how };
            if loops::find(work).is_none() {
                continue;
            }
            let work = TeamWork {
                work,
                src,
                dst: 0,
                bytes: Bytes(BYTES),
                reps: 2,
                isolated: false,
                chase_steps: None,
            };
            let threads = host.domains()[0].threads.min(2);
            let sample = |team: TeamId, skipped: u64| {
                let gate = host.gate_create().unwrap();
                {
                    let teams = host.teams.borrow();
                    let mut job = host.job(&teams[&team], &work).unwrap();
                    job.pieces[0].len -= skipped;
                    teams[&team].pool.submit("team", job).unwrap();
                    host.gates.hold(gate, &teams[&team].pool).unwrap();
                }
                host.gate_release(gate).unwrap();
                host.reap(team).unwrap();
                host.check_read(team, &work, 5)
            };
            let team = host.team_create(0, threads).unwrap();
            assert!(host.check_read(team, &work, 5).is_err(), "{how}: not read");
            assert!((0..3).all(|_| sample(team, 0) == Ok(true)), "{how}");
            assert_eq!(sample(team, 64), Ok(false), "{how}: a line is not read");
            assert_eq!(sample(team, 0), Ok(false), "{how}: a later sample hides it");
        }
    }

    /// A chain of 8 elements, followed by 3 loads at a time: 3 has no divisor in common with 8, so 8 parts
    /// that follow each other end at 8 elements, and at one if each starts where the chain does.
    #[test]
    fn parts_of_a_chain_follow_each_other() {
        let none: FindRegistrar = |_| Err("not in this test".to_owned());
        let host = LiveHost::new(&Topology::default(), ClockOrigin::now(), none);
        let bytes = Bytes(8 * chase::STRIDE);
        let src = host.alloc(0, MemKind::Paged, bytes).unwrap();
        host.fill(src, bytes, 1, true).unwrap();
        let work = CpuWork { op: CpuOp::Chase, how: CpuHow::Plain };
        let part =
            TeamWork { work, src, dst: 0, bytes, reps: 1, isolated: false, chase_steps: Some(3) };
        let team = host.team_near(0, 1, &[]).unwrap();
        let end = |work: &TeamWork| {
            let gate = host.gate_create().unwrap();
            host.submit(team, gate, work).unwrap();
            host.gate_release(gate).unwrap();
            let steps = host.reap(team).unwrap().steps;
            (steps, host.teams.borrow()[&team].chase_end.get().unwrap().at)
        };
        let ends: BTreeSet<(u64, u64)> = (0..8).map(|_| end(&part)).collect();
        assert_eq!(ends.len(), 8);
        assert!(
            ends.iter().all(|&(steps, at)| steps == 3 && (at - src).is_multiple_of(chase::STRIDE))
        );
        // All of it starts at the first element and ends there.
        assert_eq!(end(&TeamWork { chase_steps: None, ..part }), (8, src));
    }
}
