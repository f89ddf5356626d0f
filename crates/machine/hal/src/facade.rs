//! Typed owners of the plain handles: each releases its handle when dropped.
//!
//! A failed release is ignored, since `drop` has no caller to report to; the next call on the
//! device reports it.

use pathline_schema::{
    Bytes, CpuSet, KernelVariant, MemKind, MigrateHow, Ns, Place, Severity, Unit,
};

use crate::{
    CallError, CallResult, ChainPart, CopyChoice, Driver, EventId, GateId, KernelId, KernelLaunch,
    Machine, StreamId, TeamId, TeamResult, TeamWork, pattern,
};

impl Machine {
    /// The GPU runtime, or an error if there is none.
    pub fn driver(&self) -> CallResult<&dyn Driver> {
        self.driver.as_deref().ok_or_else(|| {
            CallError::unsupported("driver", "this machine", "no GPU runtime is loaded")
        })
    }
    /// A GPU of this machine.
    pub fn gpu(&self, index: u32) -> CallResult<GpuDevice<'_>> {
        Ok(GpuDevice { driver: self.driver()?, index })
    }
    /// Allocates memory at `place`: pageable memory from the host, registered memory from both, all
    /// other kinds from the GPU runtime.
    pub fn buffer(&self, place: Place, bytes: Bytes) -> CallResult<MachineBuffer<'_>> {
        MachineBuffer::new(self, place, bytes)
    }
    /// Creates a gate, closed.
    pub fn gate(&self) -> CallResult<StartGate<'_>> {
        StartGate::new(self)
    }
    /// Starts threads pinned to cores of `numa`.
    pub fn team(&self, numa: u32, threads: u32) -> CallResult<ThreadTeam<'_>> {
        Ok(ThreadTeam { machine: self, id: self.host.team_create(numa, threads)? })
    }
    /// Starts a team that works at the same time as `others`; see [`crate::Host::team_near`].
    pub fn team_near(
        &self,
        numa: u32,
        threads: u32,
        others: &[TeamId],
    ) -> CallResult<ThreadTeam<'_>> {
        Ok(ThreadTeam { machine: self, id: self.host.team_near(numa, threads, others)? })
    }
}

/// A GPU.
#[derive(Clone, Copy)]
pub struct GpuDevice<'m> {
    driver: &'m dyn Driver,
    index: u32,
}

impl<'m> GpuDevice<'m> {
    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }
    /// Creates a stream.
    pub fn stream(&self) -> CallResult<GpuStream<'m>> {
        Ok(GpuStream { driver: self.driver, id: self.driver.stream_create(self.index)? })
    }
    /// Creates an event.
    pub fn event(&self) -> CallResult<GpuEvent<'m>> {
        Ok(GpuEvent { driver: self.driver, id: self.driver.event_create(self.index)? })
    }
    /// Compiles and loads a kernel.
    pub fn kernel(&self, variant: &KernelVariant) -> CallResult<GpuKernel<'m>> {
        Ok(GpuKernel { driver: self.driver, id: self.driver.kernel(self.index, variant)? })
    }
    /// Loads the kernel that copies a list of ranges; see [`Driver::block_copies`].
    pub fn block_copies(
        &self,
        copies: &[(u64, u64, Bytes)],
        thread_blocks: u32,
    ) -> CallResult<GpuKernel<'m>> {
        let id = self.driver.block_copies(self.index, copies, thread_blocks)?;
        Ok(GpuKernel { driver: self.driver, id })
    }
}

/// A queue of operations of one GPU.
pub struct GpuStream<'m> {
    driver: &'m dyn Driver,
    id: StreamId,
}

impl GpuStream<'_> {
    /// Enqueues a copy between two addresses.
    pub fn copy(&self, dst: u64, src: u64, bytes: Bytes, engine: CopyChoice) -> CallResult<()> {
        self.driver.copy(self.id, dst, src, bytes, engine)
    }
    /// Enqueues copies `(dst, src, bytes)` by one call of the runtime.
    pub fn copy_batch(&self, copies: &[(u64, u64, Bytes)]) -> CallResult<()> {
        self.driver.copy_batch(self.id, copies)
    }
    /// Copies pageable memory `(dst, src, bytes)`; see [`Driver::copy_by_threads`].
    pub fn copy_by_threads(&self, threads: u32, copy: (u64, u64, Bytes)) -> Option<CallResult<()>> {
        self.driver.copy_by_threads(self.id, threads, copy)
    }
    /// Enqueues a kernel.
    pub fn launch(&self, kernel: &GpuKernel<'_>, launch: &KernelLaunch) -> CallResult<()> {
        self.driver.launch(self.id, kernel.id, launch)
    }
    /// Enqueues all copies of a list as one kernel.
    pub fn copy_blocks(&self, list: &GpuKernel<'_>) -> CallResult<()> {
        self.driver.copy_blocks(self.id, list.id)
    }
    /// Enqueues a chase over one part of a chain; see [`Driver::follow`].
    pub fn follow(
        &self,
        kernel: &GpuKernel<'_>,
        launch: &KernelLaunch,
        part: ChainPart,
    ) -> CallResult<()> {
        self.driver.follow(self.id, kernel.id, launch, part)
    }
    /// Enqueues a migration.
    pub fn migrate(
        &self,
        buffer: &MachineBuffer<'_>,
        to: Place,
        how: MigrateHow,
    ) -> CallResult<()> {
        self.driver.migrate(self.id, buffer.address, buffer.bytes, to, how)
    }
    /// Records an event.
    pub fn record(&self, event: &GpuEvent<'_>) -> CallResult<()> {
        self.driver.event_record(event.id, self.id)
    }
    /// Makes the stream wait for an event.
    pub fn wait_event(&self, event: &GpuEvent<'_>) -> CallResult<()> {
        self.driver.stream_wait_event(self.id, event.id)
    }
    /// Records an event that other code owns.
    pub fn record_id(&self, event: EventId) -> CallResult<()> {
        self.driver.event_record(event, self.id)
    }
    /// Makes the stream wait for an event that other code owns.
    pub fn wait_event_id(&self, event: EventId) -> CallResult<()> {
        self.driver.stream_wait_event(self.id, event)
    }
    /// Makes the stream wait for a gate.
    pub fn hold(&self, gate: &StartGate<'_>) -> CallResult<()> {
        gate.on_streams.map_or(Ok(()), |id| self.driver.gate_hold(id, self.id))
    }
    /// Blocks until the stream is idle.
    pub fn wait(&self) -> CallResult<()> {
        self.driver.stream_wait(self.id)
    }
    /// Whether the stream is idle.
    pub fn is_idle(&self) -> CallResult<bool> {
        self.driver.stream_idle(self.id)
    }
}

impl Drop for GpuStream<'_> {
    fn drop(&mut self) {
        let _ = self.driver.stream_destroy(self.id);
    }
}

/// A point in a stream, with its time.
pub struct GpuEvent<'m> {
    driver: &'m dyn Driver,
    id: EventId,
}

impl GpuEvent<'_> {
    /// Its number for the driver.
    pub fn id(&self) -> EventId {
        self.id
    }
    /// Whether it has completed since it was last recorded; does not block.
    pub fn is_done(&self) -> CallResult<bool> {
        self.driver.event_done(self.id)
    }
    /// Time since an earlier event; both must have completed.
    pub fn since(&self, start: &GpuEvent<'_>) -> CallResult<Ns> {
        self.driver.event_elapsed(start.id, self.id)
    }
}

impl Drop for GpuEvent<'_> {
    fn drop(&mut self) {
        let _ = self.driver.event_destroy(self.id);
    }
}

/// A loaded kernel.
pub struct GpuKernel<'m> {
    driver: &'m dyn Driver,
    id: KernelId,
}

impl GpuKernel<'_> {
    /// Runs a read kernel once over memory that holds a pattern, and verifies the checksum of the
    /// loaded bytes.
    ///
    /// # Errors
    /// The checksum is wrong, or the kernel does not run.
    pub fn check_read(&self, launch: &KernelLaunch, seed: u64) -> CallResult<()> {
        if self.driver.check_read(self.id, launch, seed)? {
            return Ok(());
        }
        let thing = format!("{} at {:#x}", launch.bytes, launch.src);
        Err(corrupt(thing, "the sum of what a kernel read is not that of what lies there"))
    }
    /// Compares the destination of a write or triad kernel with what it stores; a wrong byte is an error.
    ///
    /// # Errors
    /// As [`Driver::check_stored`].
    pub fn check_stored(&self, launch: &KernelLaunch) -> CallResult<()> {
        match self.driver.check_stored(self.id, launch)? {
            None => Ok(()),
            Some(at) => {
                let thing = format!("{} at {:#x}", launch.bytes, launch.dst);
                Err(wrong_byte(thing, at, "stored"))
            }
        }
    }
}

impl Drop for GpuKernel<'_> {
    fn drop(&mut self) {
        let _ = self.driver.kernel_unload(self.id);
    }
}

/// Holds streams and teams, and starts all of them at once.
pub struct StartGate<'m> {
    machine: &'m Machine,
    on_streams: Option<GateId>,
    pub(crate) on_teams: GateId,
}

impl<'m> StartGate<'m> {
    fn new(machine: &'m Machine) -> CallResult<Self> {
        let on_teams = machine.host.gate_create()?;
        let mut gate = Self { machine, on_streams: None, on_teams };
        gate.on_streams = machine.driver.as_deref().map(Driver::gate_create).transpose()?;
        Ok(gate)
    }
    /// Opens the gate.
    pub fn release(&self) -> CallResult<()> {
        if let (Some(driver), Some(id)) = (self.machine.driver.as_deref(), self.on_streams) {
            driver.gate_release(id)?;
        }
        self.machine.host.gate_release(self.on_teams)
    }
}

impl Drop for StartGate<'_> {
    fn drop(&mut self) {
        if let (Some(driver), Some(id)) = (self.machine.driver.as_deref(), self.on_streams) {
            let _ = driver.gate_destroy(id);
        }
        let _ = self.machine.host.gate_destroy(self.on_teams);
    }
}

/// A team of pinned threads.
pub struct ThreadTeam<'m> {
    machine: &'m Machine,
    id: TeamId,
}

impl ThreadTeam<'_> {
    /// Submits work that starts when the gate opens.
    pub fn submit(&self, gate: &StartGate<'_>, work: &TeamWork) -> CallResult<()> {
        self.machine.host.submit(self.id, gate.on_teams, work)
    }
    /// Verifies the destination of a write or a triad; a wrong byte is an error. Returns false if
    /// the machine cannot verify it.
    pub fn check_stored(&self, work: &TeamWork) -> CallResult<bool> {
        match self.machine.host.check_stored(work) {
            Ok(None) => Ok(true),
            Ok(Some(offset)) => {
                Err(wrong_byte(format!("{} of {}", work.bytes, work.work), offset, "stored"))
            }
            Err(error) if error.severity == Severity::Unsupported => Ok(false),
            Err(error) => Err(error),
        }
    }
    /// Verifies the sum of all that the team has read from the source of `work`, which holds a pattern.
    ///
    /// # Errors
    /// The sum is wrong, or the team has read nothing there.
    pub fn check_read(&self, work: &TeamWork, seed: u64) -> CallResult<()> {
        if self.machine.host.check_read(self.id, work, seed)? {
            return Ok(());
        }
        let thing = format!("{} of {}", work.bytes, work.work);
        Err(corrupt(thing, "the sum of what threads read is not that of what was written there"))
    }
    /// Handle for [`crate::Host::team_near`].
    pub fn id(&self) -> TeamId {
        self.id
    }
    /// CPUs of the threads. Empty if the machine has no real CPUs.
    pub fn cpus(&self) -> CpuSet {
        self.machine.host.team_cpus(self.id)
    }
    /// Waits for the submitted work.
    pub fn reap(&self) -> CallResult<TeamResult> {
        self.machine.host.reap(self.id)
    }
}

impl Drop for ThreadTeam<'_> {
    fn drop(&mut self) {
        let _ = self.machine.host.team_destroy(self.id);
    }
}

/// A buffer in host or GPU memory; freed when dropped.
pub struct MachineBuffer<'m> {
    machine: &'m Machine,
    place: Place,
    address: u64,
    bytes: Bytes,
}

impl<'m> MachineBuffer<'m> {
    fn new(machine: &'m Machine, place: Place, bytes: Bytes) -> CallResult<Self> {
        let address = match (place.mem, place.unit) {
            (MemKind::Paged | MemKind::Huge, Unit::Numa(numa)) => {
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
            (
                MemKind::Paged | MemKind::Huge | MemKind::Registered | MemKind::RegisteredHuge,
                Unit::Gpu(_),
            )
            | (MemKind::Reg, _) => {
                let reason = "no such memory there";
                return Err(CallError::unsupported("alloc", place.to_string(), reason));
            }
            _ => machine.driver()?.alloc(place, bytes)?,
        };
        Ok(Self { machine, place, address, bytes })
    }
    /// Unit and kind of memory.
    pub fn place(&self) -> Place {
        self.place
    }
    /// Start address.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Size in bytes.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }
    fn is_pageable(&self) -> bool {
        matches!(self.place.mem.before_registration(), MemKind::Paged | MemKind::Huge)
    }
    /// Writes the pattern `seed`, or with `chain` a cycle of dependent pointers.
    pub fn fill(&self, seed: u64, chain: bool) -> CallResult<()> {
        if self.is_pageable() {
            self.machine.host.fill(self.address, self.bytes, seed, chain)
        } else {
            self.machine.driver()?.fill(self.address, self.bytes, seed, chain)
        }
    }
    /// Writes a pattern to a part of the buffer. The pattern counts from the start of that part.
    pub fn fill_part(&self, offset: u64, bytes: Bytes, seed: u64) -> CallResult<()> {
        let address = self.part("fill", offset, bytes)?;
        if self.is_pageable() {
            self.machine.host.fill(address, bytes, seed, false)
        } else {
            self.machine.driver()?.fill(address, bytes, seed, false)
        }
    }
    /// The address of a part, which must lie inside the buffer.
    fn part(&self, call: &str, offset: u64, bytes: Bytes) -> CallResult<u64> {
        let inside = offset.checked_add(bytes.0).is_some_and(|end| end <= self.bytes.0);
        inside.then_some(self.address + offset).ok_or_else(|| {
            let thing = format!("{bytes} at offset {offset} of {} at {}", self.bytes, self.place);
            CallError::unsupported(call, thing, "that is beyond its end")
        })
    }
    /// Verifies the first `bytes` of a pattern; a wrong byte is an error.
    pub fn check(&self, seed: u64, bytes: Bytes) -> CallResult<()> {
        self.check_part(0, bytes, seed)
    }
    /// Verifies a pattern that counts from `offset`; a wrong byte is an error.
    pub fn check_part(&self, offset: u64, bytes: Bytes, seed: u64) -> CallResult<()> {
        let address = self.part("verify", offset, bytes)?;
        let wrong = if self.is_pageable() {
            self.machine.host.check(address, bytes, seed)?
        } else {
            self.machine.driver()?.check(address, bytes, seed)?
        };
        match wrong.map(|at| offset + at) {
            None => Ok(()),
            Some(at) => Err(wrong_byte(format!("{bytes} at {}", self.place), at, "sent")),
        }
    }
    /// Verifies the bytes from `offset` on of a pattern that counts from the start of the buffer;
    /// `offset` is a multiple of 8. A wrong byte is an error.
    pub fn check_block(&self, offset: u64, bytes: Bytes, seed: u64) -> CallResult<()> {
        let words = i64::try_from(offset / 8).unwrap_or(i64::MAX);
        self.check_part(offset, bytes, pattern::seed_at(seed, words))
    }
    /// Returns the pages to the kernel, so that the next store is a first touch. Pageable memory
    /// only.
    pub fn discard(&self) -> CallResult<()> {
        self.machine.host.discard(self.address)
    }
    /// Advises zero-copy access from `gpu`. Managed memory only.
    pub fn advise_zero_copy(&self, gpu: u32) -> CallResult<()> {
        self.machine.driver()?.advise_zero_copy(self.address, self.bytes, gpu)
    }
}

fn wrong_byte(thing: String, offset: u64, what: &str) -> CallError {
    corrupt(thing, format!("the byte at offset {offset} is not the one that was {what}"))
}

fn corrupt(thing: String, reason: impl Into<String>) -> CallError {
    CallError::new(Severity::Corrupt, "verify", thing, reason)
        .or_try("rerun this case alone; if it repeats, suspect the memory or link it names")
}

impl Drop for MachineBuffer<'_> {
    fn drop(&mut self) {
        if self.is_pageable() {
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
