//! A process behind each last-level cache, as programs with threads are started (`--map-by l3cache`): each
//! sends to the next one at the same time.

use pathline_schema::{
    Bytes, CacheGroup, Case, CoreDistance, Flow, MemKind, MessageOp, Mover, RankMember, ShmCopies,
    Transport, WireOp,
};

use super::rank_flows::lone_case;
use super::shm_methods::copy_methods;
use crate::scope::PlanScope;

/// A message that stays in the caches, and one that does not.
const SIZES: [Bytes; 2] = [Bytes::mib(1), Bytes::mib(16)];

/// Sends around a ring of as many processes as there are last-level caches, by every copy method whose both
/// sides copy alike; and its first pair alone. None for fewer than three: two are a pair of the suite.
pub(super) fn cases(scope: &PlanScope<'_>, ranks: &[&RankMember]) -> Vec<Case> {
    let caches: Vec<&CacheGroup> = scope.topology.caches.iter().filter(|c| c.level == 3).collect();
    let members = &ranks[..ranks.len().min(caches.len())];
    if members.len() < 3 {
        return Vec::new();
    }
    let alike = |copies: &ShmCopies| match copies {
        ShmCopies::InOut { copy_in, copy_out } => copy_in == copy_out,
        _ => true,
    };
    let methods = copy_methods(scope).into_iter().filter(|(_, copies)| alike(copies));
    let mut cases = Vec::new();
    for (bytes, method) in methods.flat_map(|method| SIZES.map(|bytes| (bytes, method))) {
        let next = members.iter().cycle().skip(1);
        let flows: Vec<Flow> =
            members.iter().zip(next).map(|(a, b)| flow((a, b), method, bytes)).collect();
        cases.extend(flows.first().copied().map(lone_case));
        cases.push(Case::together(flows));
    }
    cases
}

fn flow(
    (a, b): (&RankMember, &RankMember),
    (via, copies): (Transport, ShmCopies),
    bytes: Bytes,
) -> Flow {
    let near = Some(CoreDistance::OtherL3);
    let wire =
        MessageOp { copies: Some(copies), near, ..MessageOp::new(via, WireOp::Send { window: 1 }) };
    let (src, dst) = (a.host_memory(MemKind::Huge), b.host_memory(MemKind::Huge));
    Flow { src, dst, by: Mover::Wire { at: src.unit, wire }, bytes }
}

#[cfg(test)]
mod tests {
    use pathline_schema::{Rank, Topology};

    use super::*;

    /// Three caches and five processes: a ring of three, by memcpy, by the kernel's two calls and by
    /// xpmem, at two sizes, each next to its first pair.
    #[test]
    fn a_ring_has_as_many_processes_as_caches() {
        let cache = |level| CacheGroup { level, ..CacheGroup::default() };
        let caches = vec![cache(2), cache(3), cache(3), cache(3)];
        let topology = Topology { caches, ..Topology::default() };
        let members: Vec<RankMember> =
            (0..5).map(|r| RankMember { rank: Rank(r), ..RankMember::default() }).collect();
        let ranks: Vec<&RankMember> = members.iter().collect();
        let scope = PlanScope::new(&topology, Bytes::gib(1));
        let all = cases(&scope, &ranks);
        let methods = all.len() / (2 * SIZES.len());
        assert!(methods >= 4, "{methods}");
        assert_eq!(all.iter().filter(|case| case.timed.len() == 3).count(), all.len() / 2);
        let text = "r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,memcpy+memcpy,other-l3] x 1MiB & \
                    r1.numa0.huge > r2.numa0.huge by shm@numa0[send-w1,memcpy+memcpy,other-l3] x 1MiB & \
                    r2.numa0.huge > r0.numa0.huge by shm@numa0[send-w1,memcpy+memcpy,other-l3] x 1MiB";
        assert!(all.iter().any(|case| case.to_string() == text), "{}", all[1]);
        assert!(cases(&scope, &ranks[..2]).is_empty());
    }
}
