//! Collectives of one process with a thread for each GPU, in a run of several processes.
//!
//! On hardware a process of such a run sees its own GPU, so `--ranks 1` measures threads. The first
//! process of a model sees all GPUs of its node, as it does for direct copies, so that one run of a
//! model has threads and processes.

use pathline_schema::{
    Bytes, Case, Collective, Flow, MemKind, MessageOp, Mover, Place, Rank, Transport, Unit, WireOp,
};

use super::rank_flows::divisible_bytes;
use crate::scope::PlanScope;

/// The size of published figures that compare numbers of GPUs.
const SIZE: Bytes = Bytes::mib(1);
/// Most GPUs of these figures.
const MAX_GPUS: usize = 8;

/// Every collective of 1 MiB by NCCL or RCCL over 2 to 8 GPUs of the first process.
pub(super) fn cases(scope: &PlanScope<'_>) -> Vec<Case> {
    if !scope.simulated || scope.ranks.len() < 2 {
        return Vec::new();
    }
    let of_node = scope.ranks.iter().filter(|m| m.node == 0);
    let gpus: Vec<u32> = of_node.filter_map(|m| m.gpus.first().copied()).take(MAX_GPUS).collect();
    let Some(&first) = gpus.first() else { return Vec::new() };
    let place = |gpu| Place { rank: Rank(0), unit: Unit::Gpu(gpu), mem: MemKind::Vram };
    let computing = Collective::ALL.iter().filter(|&&op| op != Collective::Barrier);
    let case = |op: Collective, n: usize, last: u32| {
        let (src, dst) = (place(first), place(last));
        let wire = MessageOp::new(Transport::Ccl, WireOp::group(op));
        let bytes = divisible_bytes(op, SIZE, n);
        Case::together(vec![Flow { src, dst, by: Mover::Wire { at: src.unit, wire }, bytes }])
    };
    computing
        .flat_map(|&op| (2..).zip(gpus.iter().skip(1)).map(move |(n, &last)| case(op, n, last)))
        .collect()
}

/// Whether threads of a model's first process reach all GPUs of a collective.
pub(super) fn has_threads(scope: &PlanScope<'_>, flow: &Flow, wire: &MessageOp) -> bool {
    let here = scope.simulated && wire.via == Transport::Ccl && wire.op.collective().is_some();
    let alone = flow.src.rank == Rank(0) && flow.dst.rank == Rank(0);
    let exists = |unit: Unit| scope.topology.gpus.iter().any(|g| Unit::Gpu(g.index) == unit);
    here && alone && exists(flow.src.unit) && exists(flow.dst.unit)
}

#[cfg(test)]
mod tests {
    use pathline_schema::{RankMember, Topology};

    use super::*;

    #[test]
    fn a_model_has_threads_next_to_its_processes() {
        let ranks: Vec<RankMember> = (0..4)
            .map(|rank| RankMember { rank: Rank(rank), gpus: vec![rank], ..RankMember::default() })
            .collect();
        let topology = Topology::default();
        let scope = PlanScope { ranks: &ranks, ..PlanScope::new(&topology, Bytes::gib(1)) };
        assert_eq!(cases(&scope), []);
        // 2, 3 and 4 GPUs by all operations but the barrier: 12.
        let all = cases(&PlanScope { simulated: true, ..scope });
        assert_eq!(all.len(), 3 * 12);
        let text = "r0.gpu0.vram > r0.gpu2.vram by ccl@gpu0[all_reduce] x 1MiB";
        assert!(all.iter().any(|case| case.to_string() == text), "{all:?}");
    }
}
