//! The host of a simulated machine: its memory and its threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pathline_hal::{CallError, CallResult, GateId, Host, HostDomain, TeamId, TeamResult, TeamWork};
use pathline_schema::{
    Bytes, Conditions, CpuHow, CpuOp, Flow, MemKind, Mover, Ns, Place, Rank, Severity, Unit,
};

use crate::driver::{is_chain, out_of_memory};
use crate::memory::{self, BufferSpot, SimBuffer, StoredForm};
use crate::timeline::{LaneOp, LaneOwner};
use crate::world::{EffectKind, MemoryEffect, SimWorld, TeamTask, TransferLoad, no_such};

/// Loops store bytes, and triads of doubles.
const WRITTEN: StoredForm = StoredForm::Constant { word: 1 };
/// See [`WRITTEN`].
const TRIAD: StoredForm = StoredForm::Triad { word: 8 };

/// The host as one rank sees it.
pub(crate) struct SimHost {
    pub(crate) world: Rc<RefCell<SimWorld>>,
    pub(crate) rank: Rank,
}

/// Pages where the description names no size.
const PAGE: u64 = 4 << 10;
const HUGE_PAGE: u64 = 2 << 20;

fn instructions(world: &SimWorld) -> impl Iterator<Item = CpuHow> + '_ {
    let has = |feature: &str| world.topology.host.features.iter().any(|f| f == feature);
    CpuHow::ALL.iter().copied().filter(move |how| how.feature().is_none_or(has))
}

fn page(world: &SimWorld, mem: MemKind) -> u64 {
    let host = &world.topology.host;
    let (size, usual) = match mem {
        MemKind::Huge => (host.huge_pages.first().map_or(0, |size| size.0), HUGE_PAGE),
        _ => (host.page.0, PAGE),
    };
    if size == 0 { usual } else { size }
}

/// The threads of a team and their domain.
fn team_of(world: &SimWorld, call: &'static str, team: TeamId) -> CallResult<(u32, u32)> {
    match world.timeline.lane_owner(team.0) {
        Some(LaneOwner::Team(numa, threads)) => Ok((numa, threads)),
        _ => Err(no_such(call, &format!("team {}", team.0))),
    }
}

/// The stretches of memory that submitted work touches.
struct WorkEnds {
    src: Option<BufferSpot>,
    dst: Option<BufferSpot>,
    from: Place,
    to: Place,
}

impl SimHost {
    /// The error unless `address` is the start of a buffer of the host.
    fn own(world: &SimWorld, call: &'static str, address: u64) -> CallResult<()> {
        let owned = |b: &SimBuffer| b.owner == memory::BufferOwner::Host;
        let known = world.memory.buffer(address).is_some_and(owned);
        known.then_some(()).ok_or_else(|| no_such(call, &format!("buffer {address:#x}")))
    }

    fn ends(&self, world: &SimWorld, numa: u32, work: &TeamWork) -> CallResult<WorkEnds> {
        let run = work.work.effect(work.bytes);
        let stretch = |address, bytes: Bytes| -> CallResult<(Option<BufferSpot>, Place)> {
            if bytes.0 == 0 {
                return Ok((
                    None,
                    Place { rank: self.rank, unit: Unit::Numa(numa), mem: MemKind::Reg },
                ));
            }
            let spot = world.find("host.submit", address, bytes)?;
            Ok((Some(spot), world.place(spot)))
        };
        let (src, from) = stretch(work.src, run.reads)?;
        let (dst, to) = stretch(work.dst, run.writes)?;
        if run.chain > 0 {
            is_chain(world, "host.submit", src, run.reads)?;
        }
        Ok(WorkEnds { src, dst, from, to })
    }

    /// How much work moves, and the steps that it is made of.
    fn load(
        world: &SimWorld,
        threads: u32,
        work: &TeamWork,
        ends: &WorkEnds,
    ) -> (TransferLoad, u64) {
        let reps = work.reps as f64;
        // Threads start once and then loop, unless they wait for each other before every pass.
        let starts = if work.isolated { reps } else { 1.0 };
        let whole = TransferLoad { passes: starts, amount: work.bytes.as_f64() * reps, steps: 0.0 };
        match work.work.op {
            CpuOp::Chase => {
                let chain = work.work.effect(work.bytes).chain;
                let steps = work.chase_steps.unwrap_or(chain).saturating_mul(work.reps);
                let each = steps as f64 / f64::from(threads);
                (TransferLoad { amount: 0.0, steps: each, ..whole }, steps)
            }
            CpuOp::Touch => {
                // Pages that are backed already cost a store, which is negligible compared with a
                // fault.
                let fresh = ends.dst.and_then(|at| {
                    world.memory.buffer(at.base).map(|b| b.unbacked(at.offset, work.bytes.0))
                });
                let amount = fresh.unwrap_or_default() as f64;
                let pages = work.bytes.0.div_ceil(page(world, ends.to.mem));
                (TransferLoad { amount, ..whole }, pages.saturating_mul(work.reps))
            }
            _ => (whole, work.reps),
        }
    }
}

impl Host for SimHost {
    fn domains(&self) -> Vec<HostDomain> {
        let world = self.world.borrow();
        let domain = |d: &pathline_schema::NumaDomain| {
            let free = world.memory.room(Unit::Numa(d.id)).map_or(0, |(free, _)| free);
            HostDomain { id: d.id, threads: d.cpus.len() as u32, free: Bytes(free) }
        };
        world.topology.numa.iter().map(domain).collect()
    }

    fn instructions(&self) -> Vec<CpuHow> {
        instructions(&self.world.borrow()).collect()
    }

    fn alloc(&self, numa: u32, mem: MemKind, bytes: Bytes) -> CallResult<u64> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.alloc", None)?;
        let unit = Unit::Numa(numa);
        let place = Place { rank: self.rank, unit, mem };
        let thing = || format!("{bytes} at {place}");
        if !matches!(mem, MemKind::Paged | MemKind::Huge) {
            let reason = "the host gives pageable memory only";
            return Err(CallError::unsupported("host.alloc", thing(), reason)
                .or_try("ask for paged or huge"));
        }
        if bytes.0 == 0 {
            let reason = "an empty buffer";
            return Err(CallError::new(Severity::Transient, "host.alloc", thing(), reason)
                .or_try("allocate at least 1 byte"));
        }
        let room = world.memory.room(unit);
        if room.is_none() {
            return Err(no_such("host.alloc", &unit.to_string()));
        }
        let address = world.memory.alloc(place, bytes.0, memory::BufferOwner::Host);
        address.ok_or_else(|| out_of_memory("host.alloc", bytes, unit, room))
    }

    fn free(&self, address: u64) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let struck = world.enter(self.rank, "host.free", None);
        Self::own(&world, "host.free", address)?;
        world.free(self.rank, "host.free", address)?;
        struck.map(|_| ())
    }

    fn discard(&self, address: u64) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.discard", None)?;
        Self::own(&world, "host.discard", address)?;
        if world.memory.buffer(address).is_some_and(|b| b.registered) {
            let thing = format!("buffer {address:#x}");
            let reason = "registered pages cannot be given back";
            return Err(
                CallError::unsupported("host.discard", thing, reason).or_try("unregister it first")
            );
        }
        world.catch_up(self.rank);
        world.memory.discard(address);
        Ok(())
    }

    fn huge_bytes(&self, address: u64) -> Option<Bytes> {
        let world = self.world.borrow();
        let buffer = world.memory.buffer(address)?;
        let backed = buffer.bytes - buffer.unbacked(0, buffer.bytes);
        let whole = backed.next_multiple_of(page(&world, MemKind::Huge));
        Some(Bytes(if buffer.place.mem == MemKind::Huge { whole } else { 0 }))
    }

    fn page_domains(&self, address: u64, bytes: Bytes) -> Option<BTreeMap<u32, u64>> {
        let world = self.world.borrow();
        let place = world.memory.buffer(address)?.place;
        let home = world.faults.page_home(place).unit.numa()?;
        Some(BTreeMap::from([(home, bytes.0.div_ceil(4096).clamp(1, 256))]))
    }

    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.fill", None)?;
        let spot = world.find("host.fill", address, bytes)?;
        world.fill(self.rank, spot, bytes, seed, chain);
        Ok(())
    }

    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.check", None)?;
        let spot = world.find("host.check", address, bytes)?;
        Ok(world.check(self.rank, spot, bytes, seed))
    }

    fn check_stored(&self, work: &TeamWork) -> CallResult<Option<u64>> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.check_stored", None)?;
        let dst = world.find("host.check_stored", work.dst, work.bytes)?;
        let (form, src) = match work.work.op {
            CpuOp::Write => (WRITTEN, None),
            CpuOp::Triad => {
                let reads = work.work.effect(work.bytes).reads;
                (TRIAD, Some(world.find("host.check_stored", work.src, reads)?))
            }
            _ => {
                let why = "only writes and triads store what they compute";
                let thing = work.work.to_string();
                return Err(CallError::unsupported("host.check_stored", thing, why));
            }
        };
        Ok(world.check_stored(self.rank, (dst, src), work.bytes, form))
    }

    fn check_read(&self, team: TeamId, work: &TeamWork, seed: u64) -> CallResult<bool> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.check_read", None)?;
        team_of(&world, "host.check_read", team)?;
        let spot = world.find("host.check_read", work.src, work.bytes)?;
        let holds = world.check(self.rank, spot, work.bytes, seed).is_none();
        Ok(holds && !world.misread.contains(&team.0))
    }

    fn team_create(&self, numa: u32, threads: u32) -> CallResult<TeamId> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.team_create", None)?;
        let domain = world.topology.numa.iter().find(|d| d.id == numa);
        let Some(domain) = domain else {
            return Err(no_such("host.team_create", &format!("numa{numa}")));
        };
        let cores = domain.cpus.len();
        if threads == 0 || threads as usize > cores {
            let thing = format!("{threads} threads on numa{numa}");
            let reason = format!("it has {cores} cores, one for each thread");
            return Err(CallError::new(Severity::Exhausted, "host.team_create", thing, reason)
                .or_try(format!("use 1 to {cores} threads")));
        }
        Ok(TeamId(world.timeline.lane_create(LaneOwner::Team(numa, threads))))
    }

    fn team_destroy(&self, team: TeamId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        team_of(&world, "host.team_destroy", team)?;
        let struck = world.enter(self.rank, "host.team_destroy", None);
        world.tasks.remove(&team.0);
        world.misread.remove(&team.0);
        let thing = format!("team {}", team.0);
        world.lane_end(self.rank, "host.team_destroy", &thing, team.0)?;
        struck.map(|_| ())
    }

    fn submit(&self, team: TeamId, gate: GateId, work: &TeamWork) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        let damages = world.enter(self.rank, "host.submit", None)?;
        let (numa, threads) = team_of(&world, "host.submit", team)?;
        world.gate_known("host.submit", gate.0)?;
        let thing = || format!("{} of {} on team {}", work.work, work.bytes, team.0);
        let refuse = |reason: &str, way_out: &str| {
            Err(CallError::new(Severity::Transient, "host.submit", thing(), reason).or_try(way_out))
        };
        if world.tasks.contains_key(&team.0) {
            return refuse("the team has work that was not reaped", "reap first");
        }
        world.bytes_fit("host.submit", work.bytes)?;
        if !instructions(&world).any(|how| how == work.work.how) {
            let reason = "this processor has no such instructions";
            return Err(CallError::unsupported("host.submit", thing(), reason)
                .or_try("choose one of the instructions that the host offers"));
        }
        let issued = world.clock(self.rank);
        if work.bytes.0 == 0 || work.reps == 0 {
            world.timeline.push(team.0, issued, LaneOp::Hold(gate.0));
            world.tasks.insert(team.0, TeamTask { steps: work.reps, empty: true });
            return Ok(());
        }
        let ends = self.ends(&world, numa, work)?;
        let by = Mover::Cpu { at: Unit::Numa(numa), work: work.work, threads };
        let flow = Flow { src: ends.from, dst: ends.to, by, bytes: work.bytes };
        let operation = world.operation("host.submit", flow)?;
        let (load, steps) = Self::load(&world, threads, work, &ends);
        if damages && work.work.op == CpuOp::Read {
            world.misread.insert(team.0);
        }
        let does = match work.work.op {
            CpuOp::Read | CpuOp::Chase => EffectKind::Read,
            CpuOp::Copy => EffectKind::Copy,
            CpuOp::Write => EffectKind::Store(WRITTEN),
            CpuOp::Triad => EffectKind::Store(TRIAD),
            CpuOp::Touch => EffectKind::Scramble,
        };
        let effect =
            MemoryEffect { src: ends.src, dst: ends.dst, bytes: work.bytes.0, does, damages };
        world.charge(self.rank, operation.call.0);
        let issued = world.clock(self.rank);
        world.timeline.push(team.0, issued, LaneOp::Hold(gate.0));
        world.enqueue(self.rank, team.0, operation, load, effect);
        world.tasks.insert(team.0, TeamTask { steps, empty: false });
        Ok(())
    }

    fn reap(&self, team: TeamId) -> CallResult<TeamResult> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.reap", None)?;
        team_of(&world, "host.reap", team)?;
        let thing = format!("team {}", team.0);
        let Some(TeamTask { steps, empty }) = world.tasks.get(&team.0).copied() else {
            let reason = "it was given no work";
            return Err(CallError::new(Severity::Transient, "host.reap", thing, reason)
                .or_try("submit first"));
        };
        world.block(self.rank, "host.reap", &thing, |w| w.timeline.lane_idle(team.0))?;
        world.tasks.remove(&team.0);
        // The model's threads start together and cost nothing.
        let elapsed = if empty { 0.0 } else { world.timeline.lane_busy_time(team.0) };
        Ok(TeamResult { elapsed: Ns(elapsed), steps, off_cpu: None })
    }

    fn gate_create(&self) -> CallResult<GateId> {
        let mut world = self.world.borrow_mut();
        world.enter(self.rank, "host.gate_create", None)?;
        Ok(GateId(world.timeline.gate_create()))
    }

    fn gate_release(&self, gate: GateId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.gate_release(self.rank, "host.gate_release", gate.0)
    }

    fn gate_destroy(&self, gate: GateId) -> CallResult<()> {
        let mut world = self.world.borrow_mut();
        world.gate_destroy(self.rank, "host.gate_destroy", gate.0)
    }

    /// A model has no clock rate, temperature or neighbours.
    fn conditions(&self) -> Conditions {
        Conditions::default()
    }
}
