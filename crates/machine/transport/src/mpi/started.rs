//! Operations that are started and waited for: non-blocking collectives with work between the two,
//! and persistent messages and collectives.

use pathline_hal::{CallResult, FlowPart};
use pathline_host::clock::ClockOrigin;
use pathline_schema::{Collective, OverlapWork, WireOp};
use std::ffi::c_int;

use super::one_sided::call;
use super::rank_parts::refused;
use super::steps::{
    CollectivePart, MpiMessage, MpiOutcome, collective_calls, receive, send, wait_all,
};
use super::table::{Fns, MpiHandle};
use super::world::{FailedCall, MpiWorld, ok};

/// Tests for completion while a process computes.
const TESTS: u32 = 10;
/// Runs that determine the time of the communication alone: the first ones connect.
const UNCOUNTED: u32 = 5;
const COUNTED: u32 = 20;

/// The function of a part that a library lacks; `None` if it has all.
pub(super) fn missing<H: MpiHandle>(f: &Fns<H>, part: &FlowPart) -> Option<&'static str> {
    const STARTS: [&str; 3] = ["MPI_Start", "MPI_Startall", "MPI_Request_free"];
    let first: &[&'static str] = match part.wire.op {
        WireOp::Overlapped { op, .. } => return f.first_missing(&[collective_calls(op)[1]]),
        WireOp::PersistentGroup { op } => &[collective_calls(op)[2]],
        WireOp::PersistentPing | WireOp::PersistentSend { .. } => {
            &["MPI_Send_init", "MPI_Recv_init"]
        }
        _ => return None,
    };
    f.first_missing(&[first, &STARTS].concat())
}

/// Makes a function that calls one form of the collectives, by its place in [`collective_calls`];
/// `more` are the arguments that the form adds.
macro_rules! collective_form {
    ($(#[$meta:meta])* $name:ident, $form:literal, |$k:ident, $request:ident| ($($more:expr),*),
        $bcast:ident $reduce:ident $allreduce:ident $reduce_scatter:ident $allgather:ident
        $alltoall:ident $barrier:ident) => {
        $(#[$meta])*
        fn $name<H: MpiHandle>(
            world: &MpiWorld<H>,
            part: &CollectivePart<H>,
            $request: &mut H,
        ) -> MpiOutcome {
            let (f, $k) = (&world.fns, &world.constants);
            let _ = $k;
            let &CollectivePart { op, comm, send: from, recv: to, count, kind, reduce, .. } = part;
            let n = c_int::try_from(count).unwrap_or(c_int::MAX);
            let name = collective_calls(op)[$form];
            // SAFETY: buffers have as many of the type as `sound` has checked for this position; the
            // communicator is that of the group, all of which comes here; the request is waited for
            // or freed at the release, or the memory is kept.
            unsafe {
                match op {
                    Collective::Broadcast => {
                        call(f.$bcast, name, |i| i(to, n, kind, 0, comm, $($more),*))
                    }
                    Collective::Reduce => {
                        call(f.$reduce, name, |i| i(from, to, n, kind, reduce, 0, comm, $($more),*))
                    }
                    Collective::AllReduce => {
                        call(f.$allreduce, name, |i| i(from, to, n, kind, reduce, comm, $($more),*))
                    }
                    Collective::ReduceScatter => call(f.$reduce_scatter, name, |i| {
                        i(from, to, n, kind, reduce, comm, $($more),*)
                    }),
                    Collective::AllGather => {
                        call(f.$allgather, name, |i| i(from, n, kind, to, n, kind, comm, $($more),*))
                    }
                    Collective::AllToAll => {
                        call(f.$alltoall, name, |i| i(from, n, kind, to, n, kind, comm, $($more),*))
                    }
                    Collective::Barrier => call(f.$barrier, name, |i| i(comm, $($more),*)),
                    // Refused by `sound`.
                    _ => Ok(()),
                }
            }
        }
    };
}

collective_form!(
    /// Starts a collective.
    start_collective, 1, |_k, request| (request),
    ibcast ireduce iallreduce ireduce_scatter_block iallgather ialltoall ibarrier
);
collective_form!(
    /// Sets up a persistent collective.
    set_up_collective, 2, |k, request| (k.no_info, request),
    bcast_init reduce_init allreduce_init reduce_scatter_block_init allgather_init alltoall_init
    barrier_init
);

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
            start_collective(world, &made.collective, &mut made.request)?;
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
        start_collective(world, &self.collective, &mut self.request)?;
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
        set_up_collective(world, of, &mut request)?;
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
