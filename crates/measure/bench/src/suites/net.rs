//! Every node with every other one, all nodes at once.

use pathline_diagnose::tournament;
use pathline_schema::{Bytes, Case, MemKind, Place, RankMember, Transport, WireOp};

use super::rank_flows::{flow, place};
use crate::scope::PlanScope;

/// Messages in flight. Their bytes fill the longest round trip: 16 MiB are 0.3 ms at 50 GB/s.
const WINDOW: u32 = 16;

/// The ranks of each node, by node; the first of each have one rail, the second the next.
pub fn rails_of(ranks: &[RankMember]) -> Vec<Vec<&RankMember>> {
    let nodes = ranks.iter().map(|member| member.node + 1).max().unwrap_or(0) as usize;
    let mut rails: Vec<Vec<&RankMember>> = vec![Vec::new(); nodes];
    for member in ranks {
        rails.get_mut(member.node as usize).into_iter().for_each(|node| node.push(member));
    }
    rails
}

/// A round for each distance of the nodes, with host memory and with that of GPUs: small messages, large ones from
/// the first of each pair of nodes, back, and both ways.
pub(super) fn net(scope: &PlanScope<'_>) -> Vec<Case> {
    let nodes = rails_of(scope.ranks);
    let has_gpus = scope.ranks.iter().all(|member| !member.gpus.is_empty());
    let kinds = [
        (Transport::Mpi, MemKind::Paged),
        (Transport::Mpi, MemKind::Vram),
        (Transport::MpiStaged, MemKind::Vram),
    ];
    let send = WireOp::Send { window: WINDOW };
    let mut cases = Vec::new();
    for (via, mem) in kinds.into_iter().filter(|(_, mem)| *mem == MemKind::Paged || has_gpus) {
        for round in tournament(nodes.len()) {
            let pairs: Vec<(Place, Place)> =
                round.iter().flat_map(|[a, b]| rail_places(&nodes[*a], &nodes[*b], mem)).collect();
            let there = |op, bytes| pairs.iter().map(move |(a, b)| flow(*a, *b, via, op, bytes));
            let back = pairs.iter().map(|(a, b)| flow(*b, *a, via, send, Bytes::mib(1)));
            let back: Vec<_> = back.collect();
            let both = there(send, Bytes::mib(1)).chain(back.iter().cloned()).collect();
            cases.push(Case::together(there(WireOp::Ping, Bytes(8)).collect()));
            cases.push(Case::together(there(send, Bytes::mib(1)).collect()));
            cases.push(Case::together(back));
            cases.push(Case::together(both));
        }
    }
    cases
}

/// Memory of the ranks of two nodes, rail by rail.
fn rail_places(a: &[&RankMember], b: &[&RankMember], mem: MemKind) -> Vec<(Place, Place)> {
    let rails = a.iter().zip(b);
    rails.filter_map(|(a, b)| Some((place(a, mem)?, place(b, mem)?))).collect()
}
