//! Suites after OSU's programs beyond messages, put and get: several round trips at once,
//! non-blocking collectives with overlap, persistent operations, kinds of windows, and atomic
//! operations.

use pathline_schema::{
    AtomicOp, Bytes, Case, Collective, MemKind, MessageOp, OverlapWork, Place, Transport,
    WindowKind, WindowSync, WireOp,
};

use super::ladder;
use super::rank_flows::{
    divisible_bytes, first_pair, flow, group_ends, lone_case, message_memories, place,
};
use crate::scope::PlanScope;

/// Sizes of operations whose cost is of interest rather than their rate.
const SIZES: [Bytes; 4] = [Bytes(8), Bytes::kib(4), Bytes::kib(64), Bytes::mib(1)];

/// The collectives that OSU has with overlap.
const OVERLAPPED: [Collective; 6] = [
    Collective::AllReduce,
    Collective::Broadcast,
    Collective::AllToAll,
    Collective::AllGather,
    Collective::Reduce,
    Collective::Barrier,
];

/// Memories in which these operations are taken: host memory, and GPUs' own.
fn host_and_device(scope: &PlanScope<'_>) -> impl Iterator<Item = MemKind> + use<> {
    let memories = message_memories(scope.ranks).into_iter();
    memories.filter(|mem| matches!(mem, MemKind::Paged | MemKind::Vram))
}

/// 1, 2, 4 ... and all pairs of processes of the two halves ping at once, as osu_multi_lat.
pub(super) fn multi_latency(scope: &PlanScope<'_>) -> Vec<Case> {
    let (first, second) = scope.ranks.split_at(scope.ranks.len() / 2);
    let all = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let mut cases = Vec::new();
    for mem in host_and_device(scope).filter(|_| all > 0) {
        for bytes in SIZES {
            for pairs in ladder(all) {
                let ends = first.iter().zip(second).take(pairs as usize);
                let ping = |(src, dst): (Place, Place)| {
                    flow(src, dst, Transport::Mpi, WireOp::Ping, bytes)
                };
                let flows = ends.filter_map(|(a, b)| place(a, mem).zip(place(b, mem))).map(ping);
                cases.push(Case::together(flows.collect()));
            }
        }
    }
    cases
}

/// A collective of all processes at each size, by operations of the same collective.
fn of_all(
    scope: &PlanScope<'_>,
    ops: &[Collective],
    wires: &dyn Fn(Collective) -> Vec<WireOp>,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for mem in host_and_device(scope) {
        let Some(&(src, dst, n)) = group_ends(scope.ranks, mem).last() else { continue };
        for &op in ops {
            let barrier = op == Collective::Barrier;
            // A barrier is of no memory.
            if barrier && mem != MemKind::Paged {
                continue;
            }
            let of = |place: Place| match barrier {
                true => Place { mem: MemKind::Reg, ..place },
                false => place,
            };
            for bytes in if barrier { &[Bytes(1)][..] } else { &SIZES[..] } {
                for wire in wires(op) {
                    let bytes = divisible_bytes(op, *bytes, n);
                    cases.push(lone_case(flow(of(src), of(dst), Transport::Mpi, wire, bytes)));
                }
            }
        }
    }
    cases
}

/// The communication alone, then with as much work between its start and its end, with and without
/// tests for completion.
pub(super) fn overlap(scope: &PlanScope<'_>) -> Vec<Case> {
    let works = [OverlapWork::Nothing, OverlapWork::Compute, OverlapWork::ComputeTest];
    of_all(scope, &OVERLAPPED, &|op| works.map(|work| WireOp::Overlapped { op, work }).to_vec())
}

/// Persistent messages and collectives, each next to the same that is not.
pub(super) fn persistent(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    let window = crate::message_grid::OSU_WINDOW;
    let messages = [
        WireOp::Ping,
        WireOp::PersistentPing,
        WireOp::Send { window },
        WireOp::PersistentSend { window },
    ];
    for mem in host_and_device(scope) {
        let Some((a, b)) = first_pair(scope.ranks, mem) else { continue };
        for bytes in SIZES {
            cases.extend(messages.map(|op| lone_case(flow(a, b, Transport::Mpi, op, bytes))));
        }
    }
    cases.extend(of_all(scope, Collective::ALL, &|op| {
        vec![WireOp::group(op), WireOp::PersistentGroup { op }]
    }));
    cases
}

/// Put and get, one at a time and in windows, by every kind of window and synchronisation.
pub(super) fn windows(scope: &PlanScope<'_>) -> Vec<Case> {
    let kinds = [None, Some(WindowKind::Allocate), Some(WindowKind::Dynamic)];
    let syncs = [None, Some(WindowSync::Lock), Some(WindowSync::Fence), Some(WindowSync::Pscw)];
    let mut cases = Vec::new();
    for mem in host_and_device(scope) {
        let Some((a, b)) = first_pair(scope.ranks, mem) else { continue };
        // MPI_Win_allocate gives host memory.
        let usable = |kind: &Option<WindowKind>| {
            mem == MemKind::Paged || *kind != Some(WindowKind::Allocate)
        };
        for bytes in SIZES {
            let ops = [
                WireOp::Put { window: 1 },
                WireOp::Get { window: 1 },
                WireOp::Put { window: crate::message_grid::OSU_WINDOW },
            ];
            for op in ops {
                for window in kinds.into_iter().filter(usable) {
                    for sync in syncs {
                        let wire = MessageOp { window, sync, ..MessageOp::new(Transport::Mpi, op) };
                        cases.push(lone_case(pathline_schema::Flow {
                            by: pathline_schema::Mover::Wire { at: a.unit, wire },
                            ..flow(a, b, Transport::Mpi, op, bytes)
                        }));
                    }
                }
            }
        }
    }
    cases
}

/// Sums on the other process's memory, of arrays and of one integer, and swaps.
pub(super) fn atomics(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for mem in host_and_device(scope) {
        let Some((a, b)) = first_pair(scope.ranks, mem) else { continue };
        for &op in AtomicOp::ALL.iter().filter(|&&op| op != AtomicOp::Add) {
            for &bytes in if op.is_of_one_word() { &SIZES[..1] } else { &SIZES[..] } {
                cases.push(lone_case(flow(a, b, Transport::Mpi, WireOp::Atomic(op), bytes)));
            }
        }
    }
    cases
}
