//! Owners for the plain handles: everything is given back when it goes out of scope.
//!
//! A failed release has nobody to tell and nothing to save; the next call on the device reports it.

use pathline_schema::{Bytes, CpuSet, Mem, MigrateHow, Ns, Place, Severity, Unit, Variant};

use crate::{
    CallError, CopyEngine, Driver, EventId, GateId, KernelId, Launch, Machine, Reaped, Result,
    StreamId, TeamId, Work,
};

impl Machine {
    /// The GPU runtime, or an error that says there is none.
    pub fn driver(&self) -> Result<&dyn Driver> {
        self.driver.as_deref().ok_or_else(|| {
            CallError::unsupported("driver", "this machine", "no GPU runtime is loaded")
        })
    }
    /// A GPU of this machine.
    pub fn gpu(&self, index: u32) -> Result<Gpu<'_>> {
        Ok(Gpu { driver: self.driver()?, index })
    }
    /// Memory at `place`. Pageable kinds come from the host, registered memory from both, all
    /// others from the GPU runtime.
    pub fn buffer(&self, place: Place, bytes: Bytes) -> Result<Buffer<'_>> {
        Buffer::new(self, place, bytes)
    }
    /// A gate, closed.
    pub fn gate(&self) -> Result<Gate<'_>> {
        Gate::new(self)
    }
    /// Threads pinned to cores of `numa`.
    pub fn team(&self, numa: u32, threads: u32) -> Result<Team<'_>> {
        Ok(Team { machine: self, id: self.host.team_create(numa, threads)? })
    }
    /// The same beside another team: on CPUs that it leaves free and behind its last-level cache,
    /// as far as there are such.
    pub fn team_beside(&self, numa: u32, threads: u32, other: TeamId) -> Result<Team<'_>> {
        Ok(Team { machine: self, id: self.host.team_beside(numa, threads, other)? })
    }
}

/// A GPU.
#[derive(Clone, Copy)]
pub struct Gpu<'m> {
    driver: &'m dyn Driver,
    index: u32,
}

impl<'m> Gpu<'m> {
    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }
    /// A new stream.
    pub fn stream(&self) -> Result<Stream<'m>> {
        Ok(Stream { driver: self.driver, id: self.driver.stream_create(self.index)? })
    }
    /// A new event.
    pub fn event(&self) -> Result<Event<'m>> {
        Ok(Event { driver: self.driver, id: self.driver.event_create(self.index)? })
    }
    /// A kernel, compiled and loaded.
    pub fn kernel(&self, variant: &Variant) -> Result<Kernel<'m>> {
        Ok(Kernel { driver: self.driver, id: self.driver.kernel(self.index, variant)? })
    }
}

/// A stream.
pub struct Stream<'m> {
    driver: &'m dyn Driver,
    id: StreamId,
}

impl Stream<'_> {
    /// Enqueues a copy between two addresses.
    pub fn copy(&self, dst: u64, src: u64, bytes: Bytes, engine: CopyEngine) -> Result<()> {
        self.driver.copy(self.id, dst, src, bytes, engine)
    }
    /// Enqueues copies `(dst, src, bytes)` by one call.
    pub fn copy_batch(&self, copies: &[(u64, u64, Bytes)]) -> Result<()> {
        self.driver.copy_batch(self.id, copies)
    }
    /// Enqueues a kernel.
    pub fn launch(&self, kernel: &Kernel<'_>, launch: &Launch) -> Result<()> {
        self.driver.launch(self.id, kernel.id, launch)
    }
    /// Enqueues a migration.
    pub fn migrate(&self, buffer: &Buffer<'_>, to: Place, how: MigrateHow) -> Result<()> {
        self.driver.migrate(self.id, buffer.address, buffer.bytes, to, how)
    }
    /// Enqueues an event.
    pub fn record(&self, event: &Event<'_>) -> Result<()> {
        self.driver.event_record(event.id, self.id)
    }
    /// Enqueues a wait for an event.
    pub fn wait_event(&self, event: &Event<'_>) -> Result<()> {
        self.driver.stream_wait_event(self.id, event.id)
    }
    /// Enqueues a wait for a gate.
    pub fn hold(&self, gate: &Gate<'_>) -> Result<()> {
        gate.on_streams.map_or(Ok(()), |id| self.driver.gate_hold(id, self.id))
    }
    /// Blocks until idle.
    pub fn wait(&self) -> Result<()> {
        self.driver.stream_wait(self.id)
    }
    /// Whether it is idle.
    pub fn is_idle(&self) -> Result<bool> {
        self.driver.stream_idle(self.id)
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let _ = self.driver.stream_destroy(self.id);
    }
}

/// An event.
pub struct Event<'m> {
    driver: &'m dyn Driver,
    id: EventId,
}

impl Event<'_> {
    /// Time since an earlier event; both must have completed.
    pub fn since(&self, start: &Event<'_>) -> Result<Ns> {
        self.driver.event_elapsed(start.id, self.id)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        let _ = self.driver.event_destroy(self.id);
    }
}

/// A loaded kernel.
pub struct Kernel<'m> {
    driver: &'m dyn Driver,
    id: KernelId,
}

impl Drop for Kernel<'_> {
    fn drop(&mut self) {
        let _ = self.driver.kernel_unload(self.id);
    }
}

/// Holds streams and teams, and lets all of them go at once.
pub struct Gate<'m> {
    machine: &'m Machine,
    on_streams: Option<GateId>,
    pub(crate) on_teams: GateId,
}

impl<'m> Gate<'m> {
    fn new(machine: &'m Machine) -> Result<Self> {
        let on_teams = machine.host.gate_create()?;
        let mut gate = Self { machine, on_streams: None, on_teams };
        gate.on_streams = machine.driver.as_deref().map(Driver::gate_create).transpose()?;
        Ok(gate)
    }
    /// Opens it.
    pub fn release(&self) -> Result<()> {
        if let (Some(driver), Some(id)) = (self.machine.driver.as_deref(), self.on_streams) {
            driver.gate_release(id)?;
        }
        self.machine.host.gate_release(self.on_teams)
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        if let (Some(driver), Some(id)) = (self.machine.driver.as_deref(), self.on_streams) {
            let _ = driver.gate_destroy(id);
        }
        let _ = self.machine.host.gate_destroy(self.on_teams);
    }
}

/// Pinned threads.
pub struct Team<'m> {
    machine: &'m Machine,
    id: TeamId,
}

impl Team<'_> {
    /// Gives it work that starts when the gate opens.
    pub fn submit(&self, gate: &Gate<'_>, work: &Work) -> Result<()> {
        self.machine.host.submit(self.id, gate.on_teams, work)
    }
    /// Its handle.
    pub fn id(&self) -> TeamId {
        self.id
    }
    /// The CPUs that its threads are pinned to; none where that means nothing.
    pub fn cpus(&self) -> CpuSet {
        self.machine.host.team_cpus(self.id)
    }
    /// Waits for the work to end.
    pub fn reap(&self) -> Result<Reaped> {
        self.machine.host.reap(self.id)
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        let _ = self.machine.host.team_destroy(self.id);
    }
}

/// Memory.
pub struct Buffer<'m> {
    machine: &'m Machine,
    place: Place,
    address: u64,
    bytes: Bytes,
}

impl<'m> Buffer<'m> {
    fn new(machine: &'m Machine, place: Place, bytes: Bytes) -> Result<Self> {
        let address = match (place.mem, place.unit) {
            (Mem::Paged | Mem::Huge, Unit::Numa(numa)) => {
                machine.host.alloc(numa, place.mem, bytes)?
            }
            (mem, Unit::Numa(numa)) if mem.is_registered() => {
                let driver = machine.driver()?;
                let address = machine.host.alloc(numa, mem.before_registration(), bytes)?;
                if let Err(error) = driver.register(address, bytes) {
                    let _ = machine.host.free(address);
                    return Err(error);
                }
                address
            }
            (Mem::Paged | Mem::Huge | Mem::Registered | Mem::RegisteredHuge, Unit::Gpu(_))
            | (Mem::Reg, _) => {
                let reason = "no such memory there";
                return Err(CallError::unsupported("alloc", place.to_string(), reason));
            }
            _ => machine.driver()?.alloc(place, bytes)?,
        };
        Ok(Self { machine, place, address, bytes })
    }
    /// Where it lies.
    pub fn place(&self) -> Place {
        self.place
    }
    /// Its address.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Its size.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }
    fn is_the_hosts(&self) -> bool {
        matches!(self.place.mem.before_registration(), Mem::Paged | Mem::Huge)
    }
    /// Writes a pattern, or a pointer chain.
    pub fn fill(&self, seed: u64, chain: bool) -> Result<()> {
        if self.is_the_hosts() {
            self.machine.host.fill(self.address, self.bytes, seed, chain)
        } else {
            self.machine.driver()?.fill(self.address, self.bytes, seed, chain)
        }
    }
    /// Writes a pattern, counted from there, to a part of it.
    pub fn fill_part(&self, offset: u64, bytes: Bytes, seed: u64) -> Result<()> {
        let address = self.part("fill", offset, bytes)?;
        if self.is_the_hosts() {
            self.machine.host.fill(address, bytes, seed, false)
        } else {
            self.machine.driver()?.fill(address, bytes, seed, false)
        }
    }
    /// The address of a part of it, which must lie inside.
    fn part(&self, call: &str, offset: u64, bytes: Bytes) -> Result<u64> {
        let inside = offset.checked_add(bytes.0).is_some_and(|end| end <= self.bytes.0);
        inside.then_some(self.address + offset).ok_or_else(|| {
            let thing = format!("{bytes} at offset {offset} of {} at {}", self.bytes, self.place);
            CallError::unsupported(call, thing, "that is beyond its end")
        })
    }
    /// Reads the first `bytes` of a pattern back; a wrong byte is an error.
    pub fn check(&self, seed: u64, bytes: Bytes) -> Result<()> {
        self.check_part(0, bytes, seed)
    }
    /// Reads a pattern back that was counted from `offset`; a wrong byte is an error.
    pub fn check_part(&self, offset: u64, bytes: Bytes, seed: u64) -> Result<()> {
        let address = self.part("verify", offset, bytes)?;
        let wrong = if self.is_the_hosts() {
            self.machine.host.check(address, bytes, seed)?
        } else {
            self.machine.driver()?.check(address, bytes, seed)?
        };
        match wrong.map(|at| offset + at) {
            None => Ok(()),
            Some(offset) => Err(CallError::new(
                Severity::Corrupt,
                "verify",
                format!("{bytes} at {}", self.place),
                format!("the byte at offset {offset} is not the one that was sent"),
            )
            .or_try("rerun this case alone; if it repeats, suspect the memory or link it names")),
        }
    }
    /// Gives its pages back, so that the next store is a first touch. Pageable memory only.
    pub fn discard(&self) -> Result<()> {
        self.machine.host.discard(self.address)
    }
    /// Advises zero-copy access from `gpu`. Managed memory only.
    pub fn advise_zero_copy(&self, gpu: u32) -> Result<()> {
        self.machine.driver()?.advise_zero_copy(self.address, self.bytes, gpu)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if self.is_the_hosts() {
            if self.place.mem.is_registered()
                && let Some(driver) = self.machine.driver.as_deref()
            {
                let _ = driver.unregister(self.address);
            }
            let _ = self.machine.host.free(self.address);
        } else if let Some(driver) = self.machine.driver.as_deref() {
            let _ = driver.free(self.address);
        }
    }
}
