//! MPI over UCX with each generation of UCX's protocols: a set of processes for each.

use pathline_schema::{
    Bytes, Case, Collective, Flow, MemKind, MessageOp, Mover, Place, Transport, UcxSetting, WireOp,
};

use super::rank_flows::{divisible_bytes, first_pair, group_ends, lone_case, message_memories};
use crate::scope::PlanScope;

/// The two generations. One of them is what UCX takes without a setting: which one depends on its
/// version.
const GENERATIONS: [UcxSetting; 2] = [UcxSetting::ProtoV1, UcxSetting::ProtoV2];

/// Sizes of short and long operations: UCX's eager protocols, the change to rendezvous, and above.
const SIZES: [Bytes; 6] =
    [Bytes(8), Bytes(128), Bytes::kib(1), Bytes::kib(8), Bytes::kib(64), Bytes::mib(1)];

/// Collectives whose cost is that of many short messages.
const COLLECTIVES: [Collective; 5] = [
    Collective::AllReduce,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::AllGather,
    Collective::AllToAll,
];

/// Round trips, windows and collectives by both generations, of host memory and of device memory. By
/// size, so that a run that ends early has both generations of the sizes that it has.
pub(super) fn mpi_switches(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    let kinds = message_memories(scope.ranks).into_iter();
    for mem in kinds.filter(|mem| matches!(mem, MemKind::Paged | MemKind::Vram)) {
        let Some(pair) = first_pair(scope.ranks, mem) else { continue };
        let whole = group_ends(scope.ranks, mem).pop();
        for bytes in SIZES {
            let messages = [WireOp::Ping, WireOp::Send { window: scope.messages.window(bytes) }];
            cases.extend(messages.into_iter().flat_map(|op| both(pair, op, bytes)));
            let Some((src, dst, n)) = whole else { continue };
            cases.extend(
                COLLECTIVES.into_iter().flat_map(|op| {
                    both((src, dst), WireOp::group(op), divisible_bytes(op, bytes, n))
                }),
            );
        }
        if let Some((src, dst, _)) = whole.filter(|_| mem == MemKind::Paged) {
            let [src, dst] = [src, dst].map(|place| Place { mem: MemKind::Reg, ..place });
            cases.extend(both((src, dst), WireOp::group(Collective::Barrier), Bytes(1)));
        }
    }
    cases
}

/// An operation by each generation.
fn both((src, dst): (Place, Place), op: WireOp, bytes: Bytes) -> impl Iterator<Item = Case> {
    GENERATIONS.into_iter().map(move |generation| {
        let wire = MessageOp { switch: Some(generation), ..MessageOp::new(Transport::Mpi, op) };
        lone_case(Flow { src, dst, by: Mover::Wire { at: src.unit, wire }, bytes })
    })
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Rank, RankMember, Topology};

    use super::*;

    /// Host memory alone: 6 sizes of 2 messages and 5 collectives, and the barrier, by 2 generations.
    #[test]
    fn each_operation_is_measured_by_both_generations() {
        let topology = Topology::default();
        let ranks = [0, 1].map(|rank| RankMember { rank: Rank(rank), ..RankMember::default() });
        let scope = PlanScope { ranks: &ranks, ..PlanScope::new(&topology, Bytes::gib(1)) };
        let texts: Vec<String> = mpi_switches(&scope).iter().map(Case::to_string).collect();
        assert_eq!(texts.len(), 2 * (6 * 7 + 1));
        for (generation, other) in [("proto-v1", "proto-v2"), ("proto-v2", "proto-v1")] {
            let of: Vec<_> = texts.iter().filter(|text| text.contains(generation)).collect();
            assert!(of.iter().all(|text| texts.contains(&text.replace(generation, other))));
            assert_eq!(of.len(), 43);
        }
        // Every text is read as the case that it was made from.
        let read = texts.iter().map(|text| text.parse::<Case>().map(|case| case.to_string()));
        assert!(read.zip(&texts).all(|(read, text)| read.as_ref() == Ok(text)));
    }
}
