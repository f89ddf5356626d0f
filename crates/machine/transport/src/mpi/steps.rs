//! The parts of an exchange and the calls of each in one repetition.

use std::ffi::c_int;

use pathline_hal::LocalMemory;
use pathline_schema::Collective;

use super::table::{MpiAddress, MpiHandle};
use super::world::{FailedCall, MpiWorld, ok};

pub(super) type MpiOutcome = std::result::Result<(), FailedCall>;

/// A buffer and the peer's rank in the world.
#[derive(Debug, Clone, Copy)]
pub(super) struct MpiMessage<H> {
    pub(super) at: MpiAddress,
    pub(super) count: c_int,
    pub(super) kind: H,
    pub(super) peer: c_int,
    pub(super) tag: c_int,
}

/// A collective of one part.
#[derive(Debug, Clone)]
pub(super) struct CollectivePart<H> {
    pub(super) op: Collective,
    pub(super) comm: H,
    pub(super) send: MpiAddress,
    pub(super) recv: MpiAddress,
    /// In units of the type; for each rank where ranks have parts. Of uneven parts this rank's.
    pub(super) count: i64,
    pub(super) kind: H,
    /// The operation of a reduction.
    pub(super) reduce: H,
    pub(super) uneven: UnevenParts,
}

/// Bytes and offsets of the parts of all ranks, in the order of the ranks. Empty unless they differ.
#[derive(Debug, Clone, Default)]
pub(super) struct UnevenParts {
    pub(super) counts: Vec<c_int>,
    pub(super) offsets: Vec<c_int>,
    /// Of the receive buffer of an exchange; elsewhere one buffer alone has parts.
    pub(super) recv_counts: Vec<c_int>,
    pub(super) recv_offsets: Vec<c_int>,
}

pub(super) fn receive_all<H: MpiHandle>(
    world: &MpiWorld<H>,
    all: &[MpiMessage<H>],
    requests: &mut [H],
) -> MpiOutcome {
    let (f, comm) = (&world.fns, world.constants.world);
    for (&MpiMessage { at, count, kind, peer, tag }, request) in all.iter().zip(requests) {
        // SAFETY: the buffer has `count` of the type, as `sound` has checked, and lives until the
        // case is released; the request is waited for before the repetition ends, or closed after an
        // error.
        let code = unsafe { (f.irecv)(at, count, kind, peer, tag, comm, request) };
        ok("MPI_Irecv", code)?;
    }
    Ok(())
}

pub(super) fn send_all<H: MpiHandle>(
    world: &MpiWorld<H>,
    all: &[MpiMessage<H>],
    requests: &mut [H],
) -> MpiOutcome {
    let (f, comm) = (&world.fns, world.constants.world);
    for (&MpiMessage { at, count, kind, peer, tag }, request) in all.iter().zip(requests) {
        // SAFETY: as of receives.
        let code = unsafe { (f.isend)(at, count, kind, peer, tag, comm, request) };
        ok("MPI_Isend", code)?;
    }
    Ok(())
}

pub(super) fn wait_all<H: MpiHandle>(world: &MpiWorld<H>, requests: &mut [H]) -> MpiOutcome {
    let ignore = world.constants.ignore_status;
    match requests {
        [] => Ok(()),
        // A failed wait for one request gives the reason; a failed wait for several refers to their
        // statuses.
        [one] => ok("MPI_Wait", {
            // SAFETY: a request of this library or null.
            unsafe { (world.fns.wait)(one, ignore) }
        }),
        all => {
            let count = c_int::try_from(all.len()).unwrap_or(c_int::MAX);
            // SAFETY: as many requests as the slice has, each of this library or null.
            ok("MPI_Waitall", unsafe { (world.fns.waitall)(count, all.as_mut_ptr(), ignore) })
        }
    }
}

#[inline(always)]
pub(super) fn send<H: MpiHandle>(world: &MpiWorld<H>, m: &MpiMessage<H>) -> MpiOutcome {
    let comm = world.constants.world;
    // SAFETY: as of receives; the call blocks.
    ok("MPI_Send", unsafe { (world.fns.send)(m.at, m.count, m.kind, m.peer, m.tag, comm) })
}

#[inline(always)]
pub(super) fn receive<H: MpiHandle>(world: &MpiWorld<H>, m: &MpiMessage<H>) -> MpiOutcome {
    let (comm, ignore) = (world.constants.world, world.constants.ignore_status);
    // SAFETY: as above.
    let code = unsafe { (world.fns.recv)(m.at, m.count, m.kind, m.peer, m.tag, comm, ignore) };
    ok("MPI_Recv", code)
}

/// Round trips of two processes, without other operations.
pub(super) fn pings<H: MpiHandle>(
    world: &MpiWorld<H>,
    (begins, out, back): (bool, MpiMessage<H>, MpiMessage<H>),
    reps: u64,
) -> MpiOutcome {
    if begins {
        for _ in 0..reps {
            send(world, &out)?;
            receive(world, &back)?;
        }
    } else {
        for _ in 0..reps {
            receive(world, &back)?;
            send(world, &out)?;
        }
    }
    Ok(())
}

/// The blocking, the non-blocking and the persistent call of a collective; empty where it is not
/// measured by them.
pub(super) const fn collective_calls(op: Collective) -> [&'static str; 3] {
    match op {
        Collective::Broadcast => ["MPI_Bcast", "MPI_Ibcast", "MPI_Bcast_init"],
        Collective::Reduce => ["MPI_Reduce", "MPI_Ireduce", "MPI_Reduce_init"],
        Collective::AllReduce => ["MPI_Allreduce", "MPI_Iallreduce", "MPI_Allreduce_init"],
        Collective::ReduceScatter => [
            "MPI_Reduce_scatter_block",
            "MPI_Ireduce_scatter_block",
            "MPI_Reduce_scatter_block_init",
        ],
        Collective::AllGather => ["MPI_Allgather", "MPI_Iallgather", "MPI_Allgather_init"],
        Collective::AllToAll => ["MPI_Alltoall", "MPI_Ialltoall", "MPI_Alltoall_init"],
        Collective::Barrier => ["MPI_Barrier", "MPI_Ibarrier", "MPI_Barrier_init"],
        Collective::Gather => ["MPI_Gather", "", ""],
        Collective::Scatter => ["MPI_Scatter", "", ""],
        Collective::AllGatherV => ["MPI_Allgatherv", "", ""],
        Collective::AllToAllV => ["MPI_Alltoallv", "", ""],
        Collective::GatherV => ["MPI_Gatherv", "", ""],
        Collective::ScatterV => ["MPI_Scatterv", "", ""],
    }
}

/// Runs a collective.
pub(super) fn run_collective<H: MpiHandle>(
    world: &MpiWorld<H>,
    group: &CollectivePart<H>,
) -> MpiOutcome {
    let f = &world.fns;
    let &CollectivePart { op, comm, send, recv, count, kind, reduce, ref uneven } = group;
    let (counts, offsets) = (uneven.counts.as_ptr(), uneven.offsets.as_ptr());
    let (into, places) = (uneven.recv_counts.as_ptr(), uneven.recv_offsets.as_ptr());
    let short = c_int::try_from(count);
    let int = short.unwrap_or(c_int::MAX);
    // SAFETY: buffers have as many of the type as `sound` has checked for this position, or are
    // MPI's own mark for in place; uneven parts have a count and an offset for each rank, within the
    // buffer that was checked; the communicator is that of the group, all of which comes here.
    let code = unsafe {
        match op {
            Collective::Broadcast => (f.bcast)(recv, int, kind, 0, comm),
            Collective::Reduce => match (short, f.reduce_c) {
                (Err(_), Some(long)) => long(send, recv, count, kind, reduce, 0, comm),
                _ => (f.reduce)(send, recv, int, kind, reduce, 0, comm),
            },
            Collective::AllReduce => match (short, f.allreduce_c) {
                (Err(_), Some(long)) => long(send, recv, count, kind, reduce, comm),
                _ => (f.allreduce)(send, recv, int, kind, reduce, comm),
            },
            Collective::ReduceScatter => match (short, f.reduce_scatter_block_c) {
                (Err(_), Some(long)) => long(send, recv, count, kind, reduce, comm),
                _ => (f.reduce_scatter_block)(send, recv, int, kind, reduce, comm),
            },
            Collective::AllGather => (f.allgather)(send, int, kind, recv, int, kind, comm),
            Collective::AllToAll => (f.alltoall)(send, int, kind, recv, int, kind, comm),
            Collective::Gather => (f.gather)(send, int, kind, recv, int, kind, 0, comm),
            Collective::Scatter => (f.scatter)(send, int, kind, recv, int, kind, 0, comm),
            Collective::AllGatherV => {
                (f.allgatherv)(send, int, kind, recv, counts, offsets, kind, comm)
            }
            Collective::GatherV => {
                (f.gatherv)(send, int, kind, recv, counts, offsets, kind, 0, comm)
            }
            Collective::ScatterV => {
                (f.scatterv)(send, counts, offsets, kind, recv, int, kind, 0, comm)
            }
            Collective::AllToAllV => {
                (f.alltoallv)(send, counts, offsets, kind, recv, into, places, kind, comm)
            }
            Collective::Barrier => (f.barrier)(comm),
        }
    };
    ok(collective_calls(op)[0], code)
}

/// Loads every byte of received memory.
pub(super) fn load(span: LocalMemory) {
    let at = std::ptr::with_exposed_provenance::<u8>(span.address as usize);
    let length = usize::try_from(span.bytes).unwrap_or(0);
    // SAFETY: the span is memory of the host, filled, which nobody writes between two messages.
    let bytes = unsafe { std::slice::from_raw_parts(at, length) };
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    let rest = rest.iter().fold(0u64, |sum, &byte| sum.wrapping_add(byte.into()));
    std::hint::black_box(sum.wrapping_add(rest));
}

/// Whether a collective is measured by non-blocking and persistent calls.
pub(super) const fn has_started_form(op: Collective) -> bool {
    !collective_calls(op)[1].is_empty()
}
