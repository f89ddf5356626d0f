//! Suite of messages through shared memory.

use std::collections::BTreeSet;

use pathline_schema::{
    Bytes, Case, CoreDistance, CpuHow, Flow, MemKind, MessageOp, RankMember, ShmCopies, Transport,
    WireOp,
};

use super::rank_flows::{lone_case, wire_mover};
use super::shm_methods::{copy_methods, wants_latency};
use super::{bystander, cache_ring, coarse_first};
use crate::message_grid::MessageGrid;
use crate::scope::PlanScope;

/// Sizes of messages through shared memory: powers of two up to 4 MiB, where methods overtake each other
/// and whose 128 KiB UCX's authors quote; larger ones in powers of four.
fn shm_sizes(messages: MessageGrid, top: Bytes) -> Vec<Bytes> {
    const FINE: Bytes = Bytes::mib(4);
    let from = Bytes::kib(4);
    let fine = std::iter::successors(Some(from), |b| b.0.checked_mul(2).map(Bytes));
    let fine = fine.take_while(|&b| b <= FINE.min(top));
    let mut sizes: BTreeSet<Bytes> = messages.ascending(from, top).into_iter().collect();
    sizes.extend(fine);
    coarse_first(&sizes.into_iter().collect::<Vec<_>>())
}

/// Distances between cores that this node has.
fn distances(scope: &PlanScope<'_>) -> Vec<CoreDistance> {
    let l3: Vec<_> = scope.topology.caches.iter().filter(|c| c.level == 3).collect();
    let mut near = vec![CoreDistance::SameL3];
    near.extend((l3.len() > 1).then_some(CoreDistance::OtherL3));
    near
}

/// Two processes of one node over shared memory: every copy method, the cost of a message, the
/// receiver's cost to load it afterwards; several pairs at once; the effect on a bystander.
pub(super) fn cases(scope: &PlanScope<'_>) -> Vec<Case> {
    let ranks: Vec<&RankMember> = scope.ranks.iter().filter(|m| m.node == 0).collect();
    let [a, b, ..] = ranks[..] else { return Vec::new() };
    let top = Bytes(bystander::shared_cache(scope).0.saturating_mul(4).min(Bytes::gib(1).0));
    let mut cases = Vec::new();
    for near in distances(scope) {
        for bytes in shm_sizes(scope.messages, top) {
            for op in [WireOp::Ping, WireOp::Send { window: 1 }, WireOp::Consume] {
                let covered = |method: &(Transport, ShmCopies)| {
                    op != WireOp::Ping || wants_latency(scope, method)
                };
                for (via, copies) in copy_methods(scope).into_iter().filter(covered) {
                    let (copies, near) = (Some(copies), Some(near));
                    let wire = MessageOp { copies, near, ..MessageOp::new(via, op) };
                    let (src, dst) = (a.host_memory(MemKind::Huge), b.host_memory(MemKind::Huge));
                    cases.push(lone_case(Flow { src, dst, by: wire_mover(src.unit, wire), bytes }));
                }
            }
        }
        let small = ShmCopies::InOut { copy_in: CpuHow::Memcpy, copy_out: CpuHow::Memcpy };
        let (copies, near) = (Some(small), Some(near));
        let wire = MessageOp { copies, near, ..MessageOp::new(Transport::Shm, WireOp::Ping) };
        let (src, dst) = (a.host_memory(MemKind::Huge), b.host_memory(MemKind::Huge));
        cases.push(lone_case(Flow { src, dst, by: wire_mover(src.unit, wire), bytes: Bytes(8) }));
    }
    cases.extend(shm_at_once(scope, &ranks));
    cases.extend(cache_ring::cases(scope, &ranks));
    cases.extend(bystander::cases(scope, a, b));
    cases
}

/// Several pairs at once, by copy methods that differ.
fn shm_at_once(scope: &PlanScope<'_>, ranks: &[&RankMember]) -> Vec<Case> {
    let (first, second) = ranks.split_at(ranks.len() / 2);
    let all = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let mut cases = Vec::new();
    if all < 2 {
        return cases;
    }
    for (via, copies) in copy_methods(scope) {
        for pairs in super::ladder(all).into_iter().filter(|&n| n > 1) {
            let wire = MessageOp {
                copies: Some(copies),
                ..MessageOp::new(via, WireOp::Send { window: 1 })
            };
            let pair = |(a, b): (&&RankMember, &&RankMember)| {
                let (src, dst) = (a.host_memory(MemKind::Huge), b.host_memory(MemKind::Huge));
                Flow { src, dst, by: wire_mover(src.unit, wire), bytes: Bytes::mib(16) }
            };
            cases.push(Case::together(
                first.iter().zip(second).take(pairs as usize).map(pair).collect(),
            ));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_has_every_power_of_two_to_4_mib() {
        // 4 KiB x 2^0..2^10 are 11 sizes; then 16 and 64 MiB, and the largest, 96 MiB.
        let mut sizes = shm_sizes(MessageGrid::default(), Bytes::mib(96));
        sizes.sort();
        let fine = (0..11).map(|n| Bytes::kib(4 << n));
        let rest = [16, 64, 96].map(Bytes::mib);
        assert_eq!(sizes, fine.chain(rest).collect::<Vec<_>>());
        // A small cache ends the row sooner.
        assert_eq!(shm_sizes(MessageGrid::default(), Bytes::kib(8)).len(), 2);
    }
}
