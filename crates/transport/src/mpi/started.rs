//! Operations that are started and waited for: non-blocking collectives with work between the two,
//! and persistent messages and collectives.

use pathline_hal::{CallResult, FlowPart};
use pathline_host::clock::ClockOrigin;
use pathline_schema::{Collective, OverlapWork, WireOp};
use std::ffi::c_int;

use super::one_sided::call;
use super::rank_parts::refused;
use super::steps::{CollectivePart, MpiMessage, MpiOutcome, receive, send, wait_all};
use super::table::{Fns, MpiHandle};
use super::world::{FailedCall, MpiWorld, ok};

/// Tests for completion while a process computes.
const TESTS: u32 = 10;
/// Runs that determine the time of the communication alone: the first ones connect.
const UNCOUNTED: u32 = 5;
const COUNTED: u32 = 20;

/// Whether a collective is measured by non-blocking and persistent calls.
pub(super) const fn has_started_form(op: Collective) -> bool {
    matches!(
        op,
        Collective::Broadcast
            | Collective::Reduce
            | Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
            | Collective::Barrier
    )
}

/// The function of a part that a library lacks; `None` if it has all.
pub(super) fn missing<H: MpiHandle>(f: &Fns<H>, part: &FlowPart) -> Option<&'static str> {
    let starts = f.start.is_some() && f.startall.is_some() && f.request_free.is_some();
    let (has, name) = match part.wire.op {
        WireOp::Overlapped { op, .. } if has_started_form(op) => {
            (has_started(f, op), started_call(op))
        }
        WireOp::PersistentGroup { op } if has_started_form(op) => {
            (starts && has_init(f, op), init_call(op))
        }
        WireOp::PersistentPing | WireOp::PersistentSend { .. } => {
            let has = starts && f.send_init.is_some() && f.recv_init.is_some();
            (has, "MPI_Send_init or a related function")
        }
        _ => return None,
    };
    (!has).then_some(name)
}

fn has_started<H: MpiHandle>(f: &Fns<H>, op: Collective) -> bool {
    match op {
        Collective::Broadcast => f.ibcast.is_some(),
        Collective::Reduce => f.ireduce.is_some(),
        Collective::AllReduce => f.iallreduce.is_some(),
        Collective::ReduceScatter => f.ireduce_scatter_block.is_some(),
        Collective::AllGather => f.iallgather.is_some(),
        Collective::AllToAll => f.ialltoall.is_some(),
        Collective::Barrier => f.ibarrier.is_some(),
        _ => false,
    }
}

fn has_init<H: MpiHandle>(f: &Fns<H>, op: Collective) -> bool {
    match op {
        Collective::Broadcast => f.bcast_init.is_some(),
        Collective::Reduce => f.reduce_init.is_some(),
        Collective::AllReduce => f.allreduce_init.is_some(),
        Collective::ReduceScatter => f.reduce_scatter_block_init.is_some(),
        Collective::AllGather => f.allgather_init.is_some(),
        Collective::AllToAll => f.alltoall_init.is_some(),
        Collective::Barrier => f.barrier_init.is_some(),
        _ => false,
    }
}

/// The non-blocking call of a collective.
pub(super) const fn started_call(op: Collective) -> &'static str {
    match op {
        Collective::Broadcast => "MPI_Ibcast",
        Collective::Reduce => "MPI_Ireduce",
        Collective::AllReduce => "MPI_Iallreduce",
        Collective::ReduceScatter => "MPI_Ireduce_scatter_block",
        Collective::AllGather => "MPI_Iallgather",
        Collective::AllToAll => "MPI_Ialltoall",
        Collective::Barrier => "MPI_Ibarrier",
        _ => "a non-blocking call",
    }
}

/// The call that sets up a persistent collective.
pub(super) const fn init_call(op: Collective) -> &'static str {
    match op {
        Collective::Broadcast => "MPI_Bcast_init",
        Collective::Reduce => "MPI_Reduce_init",
        Collective::AllReduce => "MPI_Allreduce_init",
        Collective::ReduceScatter => "MPI_Reduce_scatter_block_init",
        Collective::AllGather => "MPI_Allgather_init",
        Collective::AllToAll => "MPI_Alltoall_init",
        Collective::Barrier => "MPI_Barrier_init",
        _ => "a persistent call",
    }
}

/// Starts a collective.
fn start<H: MpiHandle>(
    world: &MpiWorld<H>,
    part: &CollectivePart<H>,
    request: &mut H,
) -> MpiOutcome {
    let f = &world.fns;
    let &CollectivePart { op, comm, send: from, recv: to, count, kind, reduce, .. } = part;
    let n = c_int::try_from(count).unwrap_or(c_int::MAX);
    let name = started_call(op);
    // SAFETY: buffers have as many of the type as `sound` has checked for this position; the
    // communicator is that of the group, all of which comes here; the request is waited for, or the
    // memory is kept.
    unsafe {
        match op {
            Collective::Broadcast => call(f.ibcast, name, |i| i(to, n, kind, 0, comm, request)),
            Collective::Reduce => {
                call(f.ireduce, name, |i| i(from, to, n, kind, reduce, 0, comm, request))
            }
            Collective::AllReduce => {
                call(f.iallreduce, name, |i| i(from, to, n, kind, reduce, comm, request))
            }
            Collective::ReduceScatter => {
                call(f.ireduce_scatter_block, name, |i| i(from, to, n, kind, reduce, comm, request))
            }
            Collective::AllGather => {
                call(f.iallgather, name, |i| i(from, n, kind, to, n, kind, comm, request))
            }
            Collective::AllToAll => {
                call(f.ialltoall, name, |i| i(from, n, kind, to, n, kind, comm, request))
            }
            Collective::Barrier => call(f.ibarrier, name, |i| i(comm, request)),
            // Refused by `sound`.
            _ => Ok(()),
        }
    }
}

/// Sets up a persistent collective.
fn set_up<H: MpiHandle>(
    world: &MpiWorld<H>,
    part: &CollectivePart<H>,
    request: &mut H,
) -> MpiOutcome {
    let (f, k) = (&world.fns, &world.constants);
    let &CollectivePart { op, comm, send: from, recv: to, count, kind, reduce, .. } = part;
    let (n, info) = (c_int::try_from(count).unwrap_or(c_int::MAX), k.no_info);
    let name = init_call(op);
    // SAFETY: as in `start`; the request is freed at the release.
    unsafe {
        match op {
            Collective::Broadcast => {
                call(f.bcast_init, name, |i| i(to, n, kind, 0, comm, info, request))
            }
            Collective::Reduce => {
                call(f.reduce_init, name, |i| i(from, to, n, kind, reduce, 0, comm, info, request))
            }
            Collective::AllReduce => {
                call(f.allreduce_init, name, |i| i(from, to, n, kind, reduce, comm, info, request))
            }
            Collective::ReduceScatter => call(f.reduce_scatter_block_init, name, |i| {
                i(from, to, n, kind, reduce, comm, info, request)
            }),
            Collective::AllGather => {
                call(f.allgather_init, name, |i| i(from, n, kind, to, n, kind, comm, info, request))
            }
            Collective::AllToAll => {
                call(f.alltoall_init, name, |i| i(from, n, kind, to, n, kind, comm, info, request))
            }
            Collective::Barrier => call(f.barrier_init, name, |i| i(comm, info, request)),
            _ => Ok(()),
        }
    }
}

/// Refuses counts that need calls with long counts, which no library has for these.
pub(super) fn short_count<H>(part: &FlowPart, of: &CollectivePart<H>) -> CallResult<()> {
    match c_int::try_from(of.count) {
        Ok(_) => Ok(()),
        Err(_) => Err(refused(part, format!("its count is over {}", c_int::MAX))),
    }
}

/// A collective with work between its start and its end.
#[derive(Debug)]
pub(super) struct OverlapPart<H> {
    collective: CollectivePart<H>,
    work: OverlapWork,
    request: H,
    /// Length of the work.
    compute_ns: u64,
}

impl<H: MpiHandle> OverlapPart<H> {
    /// Collective over the group: the work is as long as the communication alone, on the slowest
    /// rank.
    pub(super) fn new(
        world: &MpiWorld<H>,
        collective: CollectivePart<H>,
        (work, n): (OverlapWork, usize),
    ) -> Result<Self, FailedCall> {
        let request = world.constants.no_request;
        let mut made = Self { collective, work, request, compute_ns: 0 };
        if work == OverlapWork::Nothing {
            return Ok(made);
        }
        let mut begun = ClockOrigin::now();
        for nth in 0..UNCOUNTED + COUNTED {
            if nth == UNCOUNTED {
                begun = ClockOrigin::now();
            }
            start(world, &made.collective, &mut made.request)?;
            made.wait(world)?;
        }
        let mine = begun.ns() / u64::from(COUNTED);
        let mut all = vec![0_u64; n];
        let (f, byte) = (&world.fns, world.constants.byte);
        let (from, to) = ((&raw const mine).cast_mut().cast(), all.as_mut_ptr().cast());
        // SAFETY: one u64 of each rank of the communicator; the call blocks.
        let code = unsafe { (f.allgather)(from, 8, byte, to, 8, byte, made.collective.comm) };
        ok("MPI_Allgather", code)?;
        made.compute_ns = all.into_iter().max().unwrap_or(mine);
        Ok(made)
    }

    fn wait(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        wait_all(world, std::slice::from_mut(&mut self.request))
    }

    /// One repetition.
    pub(super) fn once(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        start(world, &self.collective, &mut self.request)?;
        match self.work {
            OverlapWork::Nothing => {}
            OverlapWork::Compute => compute(self.compute_ns),
            OverlapWork::ComputeTest => {
                for _ in 0..TESTS {
                    compute(self.compute_ns / u64::from(TESTS));
                    let mut done = 0;
                    let ignore = world.constants.ignore_status;
                    // SAFETY: a request of this library, or null once it has ended.
                    let code =
                        unsafe { (world.fns.test)(&raw mut self.request, &raw mut done, ignore) };
                    ok("MPI_Test", code)?;
                }
            }
        }
        self.wait(world)
    }

    /// The work, for the record.
    pub(super) fn describe(&self) -> Option<String> {
        let tests = match self.work {
            OverlapWork::Nothing => return None,
            OverlapWork::Compute => String::new(),
            OverlapWork::ComputeTest => format!(", {TESTS} tests"),
        };
        Some(format!("{}{tests}", OverlapWork::compute_text(self.compute_ns as f64)))
    }
}

/// Keeps the core busy for a time in ns.
fn compute(ns: u64) {
    let begun = ClockOrigin::now();
    while begun.ns() < ns {
        std::hint::spin_loop();
    }
}

/// Requests that are set up once.
#[derive(Debug)]
pub(super) enum PersistentPart<H> {
    /// Whether this process starts; its send and its receive.
    Ping(bool, [H; 2]),
    /// Whether this process sends; the window, and the reply to it.
    Window(bool, Vec<H>, MpiMessage<H>),
    Group([H; 1]),
}

impl<H: MpiHandle> PersistentPart<H> {
    /// A ping of a message out and one back.
    pub(super) fn ping(
        world: &MpiWorld<H>,
        begins: bool,
        (out, back): (&MpiMessage<H>, &MpiMessage<H>),
    ) -> Result<Self, FailedCall> {
        Ok(Self::Ping(begins, [message(world, out, true)?, message(world, back, false)?]))
    }

    /// A window of messages.
    pub(super) fn window(
        world: &MpiWorld<H>,
        sends: bool,
        (of, count, answer): (&MpiMessage<H>, usize, MpiMessage<H>),
    ) -> Result<Self, FailedCall> {
        let requests: Result<Vec<H>, FailedCall> =
            (0..count).map(|_| message(world, of, sends)).collect();
        Ok(Self::Window(sends, requests?, answer))
    }

    /// A collective.
    pub(super) fn group(world: &MpiWorld<H>, of: &CollectivePart<H>) -> Result<Self, FailedCall> {
        let mut request = world.constants.no_request;
        set_up(world, of, &mut request)?;
        Ok(Self::Group([request]))
    }

    /// One repetition.
    pub(super) fn once(&mut self, world: &MpiWorld<H>) -> MpiOutcome {
        match self {
            Self::Ping(begins, [out, back]) => {
                let order = if *begins { [out, back] } else { [back, out] };
                order.into_iter().try_for_each(|request| run(world, std::slice::from_mut(request)))
            }
            Self::Window(sends, requests, answer) => {
                run(world, requests)?;
                if *sends { receive(world, answer) } else { send(world, answer) }
            }
            Self::Group(request) => run(world, request),
        }
    }

    /// Frees the requests.
    pub(super) fn free(self, world: &MpiWorld<H>) -> MpiOutcome {
        let requests = match self {
            Self::Ping(_, both) => both.to_vec(),
            Self::Window(_, requests, _) => requests,
            Self::Group(one) => one.to_vec(),
        };
        for mut request in requests {
            // SAFETY: made by this library, in no repetition, and dropped here.
            unsafe {
                call(world.fns.request_free, "MPI_Request_free", |free| free(&raw mut request))?;
            }
        }
        Ok(())
    }
}

/// Starts requests and waits for all.
fn run<H: MpiHandle>(world: &MpiWorld<H>, requests: &mut [H]) -> MpiOutcome {
    let f = &world.fns;
    // SAFETY: requests that were set up and have ended; they end before this returns.
    unsafe {
        match &mut *requests {
            [one] => call(f.start, "MPI_Start", |start| start(one))?,
            all => {
                let count = c_int::try_from(all.len()).unwrap_or(c_int::MAX);
                call(f.startall, "MPI_Startall", |start| start(count, all.as_mut_ptr()))?;
            }
        }
    }
    wait_all(world, requests)
}

/// A persistent send or receive.
fn message<H: MpiHandle>(
    world: &MpiWorld<H>,
    of: &MpiMessage<H>,
    sends: bool,
) -> Result<H, FailedCall> {
    let f = &world.fns;
    let (init, name) =
        if sends { (f.send_init, "MPI_Send_init") } else { (f.recv_init, "MPI_Recv_init") };
    let mut request = world.constants.no_request;
    let (comm, &MpiMessage { at, count, kind, peer, tag }) = (world.constants.world, of);
    // SAFETY: the buffer has `count` of the type and lives until the release, which frees the
    // request first.
    unsafe {
        call(init, name, |init| init(at, count, kind, peer, tag, comm, &raw mut request))?;
    }
    Ok(request)
}
