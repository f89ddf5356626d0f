//! The ends of messages and collectives between processes, and cases of them.

use std::collections::BTreeSet;

use pathline_schema::{
    Bytes, Case, Collective, Flow, MemKind, MessageOp, Mover, Place, Rank, RankMember, Transport,
    Unit, WireOp,
};

use crate::scope::PlanScope;

pub(super) fn wire_mover(at: Unit, wire: MessageOp) -> Mover {
    Mover::Wire { at, wire }
}

/// A flow of one message or window between two places.
pub(super) fn flow(src: Place, dst: Place, via: Transport, op: WireOp, bytes: Bytes) -> Flow {
    Flow { src, dst, by: wire_mover(src.unit, MessageOp::new(via, op)), bytes }
}

pub(super) fn lone_case(flow: Flow) -> Case {
    Case::together(vec![flow])
}

/// Whether all processes have a transport.
pub(super) fn have_transport(scope: &PlanScope<'_>, via: Transport) -> bool {
    !scope.ranks.is_empty() && scope.ranks.iter().all(|m| m.ways.contains_key(&via))
}

/// Kinds of memory that messages are sent from: of the host, and of GPUs where every process has
/// one.
pub(super) fn message_memories(ranks: &[RankMember]) -> Vec<MemKind> {
    let gpus = !ranks.is_empty() && ranks.iter().all(|m| !m.gpus.is_empty());
    let of_gpus = [MemKind::Vram, MemKind::Pinned, MemKind::Managed];
    [MemKind::Paged].into_iter().chain(of_gpus.into_iter().filter(|_| gpus)).collect()
}

/// Memory of a kind for a process.
pub(super) fn place(member: &RankMember, mem: MemKind) -> Option<Place> {
    match mem {
        MemKind::Vram | MemKind::Managed => member.gpu_memory(mem),
        _ => Some(member.host_memory(mem)),
    }
}

/// The first two processes with that memory: a pair that shows the cost of a message.
pub(super) fn first_pair(ranks: &[RankMember], mem: MemKind) -> Option<(Place, Place)> {
    let [a, b, ..] = ranks else { return None };
    Some((place(a, mem)?, place(b, mem)?))
}

/// The first process of each node.
fn first_ranks(ranks: &[RankMember]) -> Vec<&RankMember> {
    let mut nodes = BTreeSet::new();
    ranks.iter().filter(|m| nodes.insert(m.node)).collect()
}

/// Ordered pairs of different processes of one node, and of the first processes of different nodes.
pub(super) fn pairs_of(ranks: &[RankMember]) -> Vec<(&RankMember, &RankMember)> {
    let all = ranks.iter().flat_map(|a| ranks.iter().map(move |b| (a, b)));
    let inside = all.filter(|(a, b)| a.node == b.node && a.rank != b.rank);
    let firsts = first_ranks(ranks);
    let apart = firsts.iter().flat_map(|a| firsts.iter().map(move |b| (*a, *b)));
    inside.chain(apart.filter(|(a, b)| a.node != b.node)).collect()
}

/// For each distance, every node's first process with that of the node that many places on. Two nodes
/// have one such pair in each direction, which is a bidirectional case.
pub(super) fn ring_shifts(ranks: &[RankMember]) -> Vec<Vec<(&RankMember, &RankMember)>> {
    let firsts = first_ranks(ranks);
    let n = firsts.len();
    (1..n).map(|k| (0..n).map(|i| (firsts[i], firsts[(i + k) % n])).collect()).collect()
}

/// The ends of groups of 2, 4 ... and all processes, or GPUs of the one process, with their number.
pub(super) fn group_ends(ranks: &[RankMember], mem: MemKind) -> Vec<(Place, Place, usize)> {
    let all: Vec<Place> = match ranks {
        [alone] => {
            let place = |&gpu: &u32| Place { rank: Rank(0), unit: Unit::Gpu(gpu), mem };
            if mem == MemKind::Vram { alone.gpus.iter().map(place).collect() } else { Vec::new() }
        }
        several => several.iter().filter_map(|m| place(m, mem)).collect(),
    };
    let Some(&first) = all.first() else { return Vec::new() };
    let mut counts: Vec<usize> = (2..=all.len().min(8)).collect();
    counts.extend((4..).map(|n| 1usize << n).take_while(|&n| n < all.len()));
    if all.len() > 8 {
        counts.push(all.len());
    }
    counts.into_iter().filter_map(|n| Some((first, *all.get(n - 1)?, n))).collect()
}

/// The next size with equal parts for `n`, in whole 8-byte elements.
pub(super) fn divisible_bytes(op: Collective, bytes: Bytes, n: usize) -> Bytes {
    let parts = if op.is_split() { n as u64 } else { 1 };
    let unit = match op {
        Collective::Broadcast | Collective::Barrier => return bytes,
        op if op.is_uneven() => return bytes,
        _ => 8 * parts,
    };
    Bytes((bytes.0 / unit).max(1) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32, node: u32) -> RankMember {
        RankMember {
            rank: Rank(rank),
            host: format!("n{node}"),
            node,
            ways: [(Transport::Mpi, String::new())].into(),
            ..RankMember::default()
        }
    }

    #[test]
    fn nodes_are_paired_by_their_first_ranks() {
        // Three nodes of two ranks: 3 x 2 pairs inside, 3 x 2 between nodes, two shifts of three.
        let ranks: Vec<RankMember> = (0..6).map(|rank| member(rank, rank / 2)).collect();
        let pairs: Vec<(u32, u32)> =
            pairs_of(&ranks).iter().map(|(a, b)| (a.rank.0, b.rank.0)).collect();
        let inside = [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)];
        let apart = [(0, 2), (0, 4), (2, 0), (2, 4), (4, 0), (4, 2)];
        assert_eq!(pairs, [inside, apart].concat());
        let shifts: Vec<Vec<(u32, u32)>> = ring_shifts(&ranks)
            .iter()
            .map(|shift| shift.iter().map(|(a, b)| (a.rank.0, b.rank.0)).collect())
            .collect();
        assert_eq!(shifts, [[(0, 2), (2, 4), (4, 0)], [(0, 4), (2, 0), (4, 2)]]);
        assert!(ring_shifts(&ranks[..2]).is_empty());
    }

    #[test]
    fn sizes_have_equal_parts() {
        // 1 MiB over 3: parts of 349520 B = 43690 elements; 8 B over 8: 8 B for each.
        let gathered = divisible_bytes(Collective::AllGather, Bytes::mib(1), 3);
        assert_eq!(gathered, Bytes(3 * 8 * (1_048_576 / 24)));
        assert_eq!(divisible_bytes(Collective::AllToAll, Bytes(8), 8), Bytes(64));
        assert_eq!(divisible_bytes(Collective::AllReduce, Bytes(8), 8), Bytes(8));
    }
}
