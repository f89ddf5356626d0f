//! The host's memory and the threads that move it.

use pathline_schema::{Bytes, Conditions, CpuHow, CpuSet, CpuWork, MemKind, Ns, RunNote};

use crate::{CallError, CallResult, GateId, MemoryRegistrar};

/// Threads that are pinned, one to a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TeamId(pub u64);

/// A NUMA domain that can hold buffers or run threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDomain {
    /// Its number.
    pub id: u32,
    /// Number of threads that can be pinned to its cores.
    pub threads: u32,
    /// Memory that can be allocated on it now.
    pub free: Bytes,
}

/// Work of a team: `reps` passes of a loop over `bytes`, split evenly over its threads. With no
/// bytes or no passes the team only starts and ends, which shows its overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeamWork {
    /// The loop.
    pub work: CpuWork,
    /// Address of what is loaded; 0 if nothing is. A triad loads `bytes` from here and `bytes`
    /// from `src + bytes`.
    pub src: u64,
    /// Address of what is stored; 0 if nothing is.
    pub dst: u64,
    /// Payload of one pass.
    pub bytes: Bytes,
    /// Passes.
    pub reps: u64,
    /// Whether all threads meet between passes.
    pub isolated: bool,
}

/// The result of a team.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TeamResult {
    /// From the first thread's start behind the gate to the last thread's end.
    pub elapsed: Ns,
    /// Dependent steps done: loads of a chain, pages touched; else passes.
    pub steps: u64,
    /// Longest time within `elapsed` for which one of its threads had no CPU, whether it was preempted,
    /// stolen or started late. None where that cannot be known.
    pub off_cpu: Option<Ns>,
}

/// The host's memory and its threads.
pub trait Host {
    /// Its NUMA domains, by number.
    fn domains(&self) -> Vec<HostDomain>;
    /// Instruction choices that this processor has.
    fn instructions(&self) -> Vec<CpuHow>;
    /// Allocates pageable memory (`Paged` or `Huge`) on a NUMA domain. Page-aligned; backed by
    /// pages only where `fill` or a team has written.
    fn alloc(&self, numa: u32, mem: MemKind, bytes: Bytes) -> CallResult<u64>;
    /// Frees what `alloc` gave.
    fn free(&self, address: u64) -> CallResult<()>;
    /// Gives the pages of a buffer back, so that the next store is a first touch.
    fn discard(&self, address: u64) -> CallResult<()>;
    /// Bytes of a buffer in huge pages, where that can be known.
    fn huge_bytes(&self, address: u64) -> Option<Bytes>;
    /// Writes the pattern `seed` (see [`crate::pattern`]), counted from `address`, which may lie
    /// anywhere inside a buffer; with `chain`, a random cycle of dependent pointers, one in each
    /// 128 B, instead.
    fn fill(&self, address: u64, bytes: Bytes, seed: u64, chain: bool) -> CallResult<()>;
    /// The offset from `address`, which may lie anywhere inside a buffer, of the first byte that
    /// differs from the pattern `seed`, if any.
    fn check(&self, address: u64, bytes: Bytes, seed: u64) -> CallResult<Option<u64>>;

    /// The offset of the first byte of the destination of a write or a triad that the work would not have
    /// stored, if any.
    ///
    /// # Errors
    /// The machine stores no such bytes, or the work is another one.
    fn check_stored(&self, work: &TeamWork) -> CallResult<Option<u64>> {
        let why = "a model computes nothing of what loops store";
        Err(CallError::unsupported("check_stored", work.work.to_string(), why))
    }

    /// Starts `threads` threads pinned to different cores of `numa`, which are the same for every team of
    /// that many.
    fn team_create(&self, numa: u32, threads: u32) -> CallResult<TeamId>;
    /// The same for a team that works at the same time as `others`: on CPUs that they leave free and
    /// behind their last-level caches, as far as there are such.
    fn team_near(&self, numa: u32, threads: u32, others: &[TeamId]) -> CallResult<TeamId> {
        let _ = others;
        self.team_create(numa, threads)
    }
    /// The CPUs that a team's threads are pinned to; none where that means nothing.
    fn team_cpus(&self, team: TeamId) -> CpuSet {
        let _ = team;
        CpuSet::default()
    }
    /// Ends them.
    fn team_destroy(&self, team: TeamId) -> CallResult<()>;
    /// Gives the team work that starts when the gate opens. Returns at once.
    fn submit(&self, team: TeamId, gate: GateId, work: &TeamWork) -> CallResult<()>;
    /// Waits for the work to end.
    fn reap(&self, team: TeamId) -> CallResult<TeamResult>;

    /// A new gate for teams, closed.
    fn gate_create(&self) -> CallResult<GateId>;
    /// Opens a gate.
    fn gate_release(&self, gate: GateId) -> CallResult<()>;
    /// Destroys a gate, opening it first if it is closed.
    fn gate_destroy(&self, gate: GateId) -> CallResult<()>;

    /// The registrar of memory with network adapters.
    ///
    /// # Errors
    /// There are none here, or nothing to reach them by.
    fn registrar(&self) -> CallResult<&dyn MemoryRegistrar> {
        let why = "a model has no network adapters to register memory with";
        Err(CallError::unsupported("registrar", "this machine", why)
            .or_try("measure it on a node with an RDMA device"))
    }

    /// Reads the machine's state: clock rate, core-to-core latency, and the like. Takes at most a
    /// few milliseconds.
    fn conditions(&self) -> Conditions;
    /// Who used the CPUs lately, by names that [`conditions`](Self::conditions) does not use: means over
    /// a second or more. Cheap to ask for, as it looks again only where that costs 0.25 % of the time.
    fn cpu_use(&self) -> Conditions {
        Conditions::default()
    }
    /// How long the calling thread has been ready to run without a CPU since it began. None where that
    /// is not known.
    fn run_delay(&self) -> Option<Ns> {
        None
    }
    /// What was seen of this host since the last call that disturbs a measurement, such as the load of
    /// other processes.
    fn new_notes(&self) -> Vec<RunNote> {
        Vec::new()
    }
}
