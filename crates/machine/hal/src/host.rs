//! The host's memory, and the threads that copy it.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, Conditions, CpuHow, CpuSet, CpuWork, MemKind, Ns, RunNote};

use crate::{CallError, CallResult, GateId, MemoryRegistrar};

/// A team of threads, each pinned to its own core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TeamId(pub u64);

/// A NUMA domain that can hold buffers or run threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDomain {
    /// Number of the domain in the kernel.
    pub id: u32,
    /// Number of threads that can be pinned to its cores.
    pub threads: u32,
    /// Free memory, in bytes.
    pub free: Bytes,
}

/// Work of a team: `reps` passes of a loop over `bytes`, split evenly over its threads. Zero bytes
/// or passes only start and end the team, which shows its overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeamWork {
    /// The loop.
    pub work: CpuWork,
    /// Source address; 0 if the loop loads nothing. A triad loads `bytes` from here and `bytes`
    /// from `src + bytes`.
    pub src: u64,
    /// Destination address; 0 if the loop stores nothing.
    pub dst: u64,
    /// Payload of one pass, in bytes.
    pub bytes: Bytes,
    /// Number of passes.
    pub reps: u64,
    /// Whether all threads wait for each other between passes.
    pub isolated: bool,
    /// Dependent loads of one pass of a chase: it follows only this part of the chain, and continues where
    /// the last chase of this team over the same chain ended. None follows the whole chain.
    pub chase_steps: Option<u64>,
}

/// The result of a team.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TeamResult {
    /// Time from the first thread's start behind the gate to the last thread's end.
    pub elapsed: Ns,
    /// Dependent steps: loads of a chain, or pages touched; otherwise passes.
    pub steps: u64,
    /// Longest time within `elapsed` for which one of the threads had no CPU: preempted, stolen by
    /// the hypervisor, or started late. `None` if unknown.
    pub off_cpu: Option<Ns>,
}

/// The host's memory and its threads.
pub trait Host {
    /// Its NUMA domains, by number.
    fn domains(&self) -> Vec<HostDomain>;
    /// Instruction variants that this processor supports.
    fn instructions(&self) -> Vec<CpuHow>;
    /// Allocates pageable memory (`Paged` or `Huge`) on a NUMA domain, page-aligned. Pages are
    /// allocated by the first write of `fill` or of a team.
    fn alloc(&self, numa: u32, mem: MemKind, bytes: Bytes) -> CallResult<u64>;
    /// Frees memory of [`Host::alloc`].
    fn free(&self, address: u64) -> CallResult<()>;
    /// Returns the pages of a buffer to the kernel, so that the next store is a first touch.
    fn discard(&self, address: u64) -> CallResult<()>;
    /// Bytes of a buffer in huge pages. `None` if unknown.
    fn huge_bytes(&self, address: u64) -> Option<Bytes>;
    /// Pages of a range of this process by the NUMA domain where they lie, of up to 256 that are looked
    /// at; `None` where the kernel does not say.
    fn page_domains(&self, address: u64, bytes: Bytes) -> Option<BTreeMap<u32, u64>>;
    /// Writes the pattern `seed` (see [`crate::pattern`]), counted from `address`, which may lie
    /// anywhere inside a buffer. `chain` writes a random cycle of dependent pointers instead, one
    /// in each 128 B.
    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()>;
    /// Offset from `address`, which may lie anywhere inside a buffer, of the first byte that
    /// differs from the pattern `seed`.
    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>>;

    /// Offset of the first byte in the destination of a write or a triad that differs from what the
    /// work stores.
    ///
    /// # Errors
    /// The work is neither a write nor a triad.
    fn check_stored(&self, work: &TeamWork) -> CallResult<Option<u64>>;
    /// Whether the words that all reads of this work's source by this team have loaded add up to those of
    /// the pattern `seed`, which the source must have held since the team began. Wrong, missing or repeated
    /// words show with probability 1 - 2^-44 or better after up to 2^20 passes, another order does not.
    ///
    /// # Errors
    /// The team has read nothing, or other memory since.
    fn check_read(&self, team: TeamId, work: &TeamWork, seed: u64) -> CallResult<bool>;

    /// Starts `threads` threads pinned to different cores of `numa`. Teams of the same size use the
    /// same cores.
    fn team_create(&self, numa: u32, threads: u32) -> CallResult<TeamId>;
    /// Starts a team that works at the same time as `others`, on CPUs that these leave free and
    /// that share their last-level caches, as far as possible.
    fn team_near(&self, numa: u32, threads: u32, others: &[TeamId]) -> CallResult<TeamId> {
        let _ = others;
        self.team_create(numa, threads)
    }
    /// CPUs of a team's threads. Empty if the machine has no real CPUs.
    fn team_cpus(&self, team: TeamId) -> CpuSet {
        let _ = team;
        CpuSet::default()
    }
    /// Ends the threads of a team.
    fn team_destroy(&self, team: TeamId) -> CallResult<()>;
    /// Submits work that starts when the gate opens. Returns at once.
    fn submit(&self, team: TeamId, gate: GateId, work: &TeamWork) -> CallResult<()>;
    /// Waits for the submitted work.
    fn reap(&self, team: TeamId) -> CallResult<TeamResult>;

    /// Creates a gate for teams, closed.
    fn gate_create(&self) -> CallResult<GateId>;
    /// Opens a gate.
    fn gate_release(&self, gate: GateId) -> CallResult<()>;
    /// Destroys a gate, opening it first if it is closed.
    fn gate_destroy(&self, gate: GateId) -> CallResult<()>;

    /// Registers memory with the network adapters.
    ///
    /// # Errors
    /// The machine has no adapter, or no library to access one.
    fn registrar(&self) -> CallResult<&dyn MemoryRegistrar> {
        let why = "a model has no network adapters to register memory with";
        Err(CallError::unsupported("registrar", "this machine", why)
            .or_try("measure it on a node with an RDMA device"))
    }

    /// Measures the machine's state, such as clock rate and core-to-core latency. Takes at most a
    /// few milliseconds.
    fn conditions(&self) -> Conditions;
    /// Recent use of the CPUs, by names that differ from those of [`conditions`](Self::conditions):
    /// means over at least a second. Readings are limited to 0.25 % of the time, so that it may be
    /// called often.
    fn cpu_use(&self) -> Conditions {
        Conditions::default()
    }
    /// Time since its start for which the calling thread was ready to run but had no CPU. `None` if
    /// unknown.
    fn run_delay(&self) -> Option<Ns> {
        None
    }
    /// Observations since the last call that can disturb a measurement, such as the load of other
    /// processes.
    fn new_notes(&self) -> Vec<RunNote> {
        Vec::new()
    }
}
