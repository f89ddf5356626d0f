//! The effect of copies on an unrelated thread behind the same last-level cache.
//!
//! A thread repeatedly loads a working set that fits its private cache or the shared one,
//! sequentially or by dependent loads: alone, while a thread of one process copies, and while two
//! processes pass messages. The bystander is timed; the copies are the background, and are timed
//! alone as well, since a slow copy disturbs less.

use std::collections::BTreeSet;

use pathline_schema::{
    Bytes, Case, CoreDistance, CpuHow, CpuOp, Flow, MemKind, MessageOp, Mover, Place, Rank,
    RankMember, ShmCopies, Transport, WireOp,
};

use super::{cpu, widest};
use crate::scope::PlanScope;

/// A message that fits the caches together with the working set.
const SMALL: Bytes = Bytes::mib(1);
/// Maximum message, where a last-level cache is larger still.
const LARGEST: Bytes = Bytes::mib(256);

/// The place of a bystander: a NUMA domain and the caches of its cores.
struct BystanderSpot<'s> {
    scope: &'s PlanScope<'s>,
    ends: (Place, Place),
    numa: u32,
    /// Working sets.
    sets: Vec<Bytes>,
}

/// Bystanders of copies between two processes of one host, and of copies of one process. Not on a
/// model, which does not simulate shared caches.
pub(super) fn cases(scope: &PlanScope<'_>, a: &RankMember, b: &RankMember) -> Vec<Case> {
    if scope.simulated {
        return Vec::new();
    }
    let of_level = |level: u32| {
        let sizes = scope.topology.caches.iter().filter(|c| c.level == level);
        sizes.map(|c| c.size).max().filter(|&size| size > Bytes(0))
    };
    let ends = (a.host_memory(MemKind::Huge), b.host_memory(MemKind::Huge));
    let part = |level, n| of_level(level).map(|size| Bytes(size.0 / n));
    let sets = [part(2, 2), part(3, 8), part(3, 2)].into_iter().flatten().collect();
    let stand = BystanderSpot { scope, ends, numa: a.numa, sets };
    let messages = [SMALL, Bytes(shared_cache(scope).0.min(LARGEST.0))];
    let mut cases = Vec::new();
    for bytes in messages {
        cases.extend(stand.copies(bytes).into_iter().map(|flow| Case::together(vec![flow])));
        cases.extend(stand.messages(bytes).into_iter().map(|flow| Case::together(vec![flow])));
    }
    for watched in stand.watched() {
        cases.push(Case::together(vec![watched]));
        for bytes in messages {
            let flows = stand.copies(bytes).into_iter().chain(stand.messages(bytes));
            cases.extend(
                flows.map(|flow| Case { background: vec![flow], ..Case::together(vec![watched]) }),
            );
        }
    }
    cases
}

/// Largest last-level cache, 32 MiB where none is known.
pub(super) fn shared_cache(scope: &PlanScope<'_>) -> Bytes {
    let sizes = scope.topology.caches.iter().filter(|c| c.level == 3).map(|c| c.size);
    sizes.max().filter(|&b| b > Bytes(0)).unwrap_or(Bytes::mib(32))
}

/// Whether a case times CPU threads while processes copy: nothing else can be timed during
/// messages.
pub(crate) fn is_bystander(case: &Case) -> bool {
    let copies = |flow: &Flow| {
        let wire = flow.by.wire();
        wire.is_some_and(|wire| {
            matches!(wire.via, Transport::Shm | Transport::Cma | Transport::Xpmem)
        })
    };
    let threads = |flow: &Flow| matches!(flow.by, Mover::Cpu { .. });
    case.timed.iter().all(threads) && case.background.iter().all(copies)
}

/// Why such a case cannot be measured; `None` without a known reason.
pub(crate) fn cannot_stand_by(scope: &PlanScope<'_>, case: &Case) -> Option<String> {
    // Ranks of several hosts synchronise at the coordinator, which waits for the threads.
    if scope.ranks.iter().any(|member| member.node != 0) {
        return Some("only processes of one host copy while something else is timed".to_owned());
    }
    let threads: u32 = case.timed.iter().map(|f| f.by.threads()).sum();
    let ends = case.background.iter().flat_map(|flow| [flow.src.rank, flow.dst.rank]);
    let ranks = ends.collect::<BTreeSet<_>>().len();
    let at = case.timed.first().and_then(|flow| flow.by.at().numa())?;
    let domain = scope.topology.numa.iter().find(|domain| domain.id == at)?;
    let (wanted, there) = (threads as usize + ranks, domain.cpus.len());
    (there < wanted).then(|| {
        format!("the bystander and {ranks} processes need {wanted} cores; numa{at} has {there}")
    })
}

impl BystanderSpot<'_> {
    /// Loads of half of each cache, and of an eighth of the shared one, of which other processes
    /// may occupy a part: sequential, and each dependent on the last.
    fn watched(&self) -> Vec<Flow> {
        let place = |mem| Place { rank: Rank(0), mem, ..self.ends.0 };
        let ops = [(CpuOp::Read, widest(self.scope.topology)), (CpuOp::Chase, CpuHow::Plain)];
        let flow = |bytes: Bytes, (op, how)| Flow {
            src: place(MemKind::Huge),
            dst: place(MemKind::Reg),
            by: cpu(self.numa, op, how, 1),
            // Whole pages.
            bytes: Bytes(bytes.0.next_multiple_of(4096)),
        };
        self.sets.iter().flat_map(|&set| ops.map(|op| flow(set, op))).collect()
    }

    /// Loops that differ in their effect on caches.
    fn loops(&self) -> Vec<CpuHow> {
        use CpuHow::{Avx2, Avx2Nt, Avx2Ntl, Avx512, Avx512Nt, Avx512Ntl};
        let wide: &[CpuHow] = match widest(self.scope.topology) {
            Avx512 => &[Avx512, Avx512Nt, Avx512Ntl],
            Avx2 => &[Avx2, Avx2Nt, Avx2Ntl],
            CpuHow::Neon => &[CpuHow::Neon, CpuHow::NeonNt],
            _ => &[],
        };
        [CpuHow::Memcpy].into_iter().chain(wide.iter().copied()).collect()
    }

    /// One copy by a thread of one process: a process with the other's memory mapped does the same.
    fn copies(&self, bytes: Bytes) -> Vec<Flow> {
        let memory = Place { rank: Rank(0), ..self.ends.0 };
        let flow =
            |how| Flow { src: memory, dst: memory, by: cpu(self.numa, CpuOp::Copy, how, 1), bytes };
        self.loops().into_iter().map(flow).collect()
    }

    /// Messages through the ring, with the same loop on both sides, and by one call of the kernel.
    fn messages(&self, bytes: Bytes) -> Vec<Flow> {
        let both = |how| (Transport::Shm, ShmCopies::InOut { copy_in: how, copy_out: how });
        let methods = self.loops().into_iter().map(both).chain([(Transport::Cma, ShmCopies::Read)]);
        let (src, dst) = self.ends;
        let op = WireOp::Send { window: 1 };
        methods
            .map(|(via, copies)| {
                let near = Some(CoreDistance::SameL3);
                let wire = MessageOp { copies: Some(copies), near, ..MessageOp::new(via, op) };
                Flow { src, dst, by: Mover::Wire { at: src.unit, wire }, bytes }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {

    use pathline_schema::{CacheGroup, HostInfo, NumaDomain, Topology};

    use super::*;
    use crate::RunPlan;

    /// One domain of `cpus` CPUs with 1 MiB each behind 32 MiB.
    fn topology(cpus: u32) -> Topology {
        let all: pathline_schema::CpuSet = format!("0-{}", cpus - 1).parse().unwrap_or_default();
        let cache = |level, size, cpus: &str| CacheGroup {
            level,
            size,
            cpus: cpus.parse().unwrap_or_default(),
            ..CacheGroup::default()
        };
        Topology {
            source: "live".to_owned(),
            host: HostInfo {
                arch: "x86_64".to_owned(),
                features: vec!["avx2".to_owned()],
                allowed_cpus: all.clone(),
                ..HostInfo::default()
            },
            numa: vec![NumaDomain { id: 0, cpus: all, ..NumaDomain::default() }],
            caches: vec![cache(2, Bytes::mib(1), "0"), cache(3, Bytes::mib(32), "0-3")],
            ..Topology::default()
        }
    }

    fn member(rank: u32) -> RankMember {
        let transports = [Transport::Shm, Transport::Cma].map(|via| (via, String::new()));
        RankMember {
            rank: Rank(rank),
            host: "here".to_owned(),
            ways: transports.into(),
            ..RankMember::default()
        }
    }

    /// Cases of the suite that have a background, and why they are skipped.
    fn planned(topology: &Topology, ranks: &[RankMember]) -> Vec<(Case, Option<String>)> {
        let scope = PlanScope { ranks, ..PlanScope::new(topology, Bytes::gib(8)) };
        let plan = RunPlan::new(&scope, &["shm".to_owned()], &[]).expect("a plan");
        let entries = plan.entries.into_iter().filter(|e| !e.case.background.is_empty());
        entries.map(|e| (e.case, e.skip)).collect()
    }

    #[test]
    fn each_working_set_is_loaded_during_each_copy() {
        let all = planned(&topology(4), &[member(0), member(1)]);
        // Two operations over 512 KiB, 4 MiB and 16 MiB; messages of 1 and 32 MiB; four loops
        // (memcpy, AVX2 plain, streaming, loading past the caches) of one thread and of two
        // processes, and one call of the kernel.
        assert_eq!(all.len(), 2 * 3 * 2 * (4 + 4 + 1));
        assert!(all.iter().all(|(_, skip)| skip.is_none()), "{:?}", all[0]);
        let text = "r0.numa0.huge > r0.numa0.reg by cpu@numa0[chase-plain-t1] x 4MiB while \
                    r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,avx2-nt+avx2-nt,same-l3] x 32MiB";
        assert!(all.iter().any(|(case, _)| case.to_string() == text));
    }

    #[test]
    fn two_processes_and_a_bystander_need_three_cores() {
        let skips = |cpus| {
            let all = planned(&topology(cpus), &[member(0), member(1)]);
            all.into_iter().filter_map(|(_, skip)| skip).collect::<Vec<_>>()
        };
        // With two, 2 x 3 x 2 times five methods of two processes.
        let two = skips(2);
        assert_eq!(two.len(), 60);
        assert!(two[0].contains("need 3 cores; numa0 has 2"), "{}", two[0]);
        assert!(skips(3).is_empty());
        // With one, also those of one process: each thread needs a CPU.
        let one = skips(1);
        assert_eq!(one.len(), 108);
        assert!(one[0].contains("2 threads on numa0: this process may use 1"), "{}", one[0]);
    }

    #[test]
    fn ranks_of_another_host_would_wait_for_the_timed_threads() {
        let far = RankMember { node: 1, ..member(2) };
        let all = planned(&topology(4), &[member(0), member(1), far]);
        let needs_one_host =
            |skip: &Option<String>| skip.as_ref().is_some_and(|w| w.contains("one host"));
        assert_eq!(all.iter().filter(|(_, skip)| needs_one_host(skip)).count(), 60);
    }
}
