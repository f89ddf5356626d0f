//! Suite host: CPU threads, caches and memory.

use pathline_schema::{Bytes, Case, CpuHow, CpuOp, MemKind, Mover, NumaDomain, Topology, Unit};

use super::payloads::host_bulk;
use super::{coarse_first, cpu, numa, sizes};

pub(super) fn host(topology: &Topology) -> Vec<Case> {
    let with_cpus = |d: &&NumaDomain| !d.cpus.is_empty();
    let usable = |id: u32| threads_of(topology, id);
    let mut cases = Vec::new();
    let bulk = host_bulk(topology);
    let largest = bulk.max(Bytes::gib(1));
    for (nth, domain) in topology.numa.iter().filter(with_cpus).enumerate() {
        // Every domain has the same processor: the whole sweep runs on the first, its ends on the
        // rest. The sizes of summaries come first and larger ones last, since the first touch of a
        // GiB takes seconds in a virtual machine.
        let mut all = coarse_first(&sizes(Bytes::kib(4), bulk));
        all.extend((largest > bulk).then_some(largest));
        let mut rest = vec![largest, bulk];
        rest.dedup();
        let chosen = if nth == 0 { &all[..] } else { &rest[..] };
        host_sweep(topology, domain.id, usable(domain.id), chosen, &mut cases);
    }
    for memory in &topology.numa {
        for cores in topology.numa.iter().filter(with_cpus).filter(|c| c.id != memory.id) {
            host_pair(topology, memory.id, cores.id, usable(cores.id), &mut cases);
        }
    }
    cases
}

/// Threads that can be pinned in a domain.
pub(super) fn threads_of(topology: &Topology, id: u32) -> u32 {
    let allowed = &topology.host.allowed_cpus;
    let domain = topology.numa.iter().find(|d| d.id == id);
    let cpus = domain.map_or(0, |d| {
        if allowed.is_empty() { d.cpus.len() } else { d.cpus.intersect(allowed).len() }
    });
    u32::try_from(cpus).unwrap_or(u32::MAX).max(1)
}

/// Instruction choices of the processor's architecture. The plan skips the ones that this processor
/// lacks, with the reason. With AVX-512, the narrower temporal loop and the one with prefetch add
/// no information; a pasted case still runs them.
pub(super) fn copies(topology: &Topology) -> &'static [CpuHow] {
    use CpuHow::*;
    if topology.host.arch == "aarch64" {
        &[Memcpy, Plain, Neon, NeonNt]
    } else if widest(topology) == Avx512 {
        &[Memcpy, Movsb, Avx2Nt, Avx2Nt4, Avx512, Avx512Nt, Avx512Nta, Avx512Nt4]
    } else {
        &[Memcpy, Movsb, Avx2, Avx2Nt, Avx2Nta, Avx2Nt4, Avx512Nt]
    }
}

/// The widest plain loads and stores of the processor.
pub(super) fn widest(topology: &Topology) -> CpuHow {
    [CpuHow::Avx512, CpuHow::Avx2, CpuHow::Neon]
        .into_iter()
        .find(|how| {
            how.feature().is_some_and(|f| topology.host.features.iter().any(|have| have == f))
        })
        .unwrap_or(CpuHow::Plain)
}

/// The same with streaming stores.
pub(super) fn streaming(simd: CpuHow) -> Option<CpuHow> {
    match simd {
        CpuHow::Avx512 => Some(CpuHow::Avx512Nt),
        CpuHow::Avx2 => Some(CpuHow::Avx2Nt),
        CpuHow::Neon => Some(CpuHow::NeonNt),
        _ => None,
    }
}

/// Copies that programs use: the C library's, and the widest loads and stores, ordinary and streaming.
fn usual_copies(topology: &Topology) -> Vec<CpuHow> {
    let simd = widest(topology);
    [CpuHow::Memcpy, simd].into_iter().chain(streaming(simd)).collect()
}

/// Which cases of the suite a run without `--suite` measures: about 70 on a socket of 32 CPUs, each of
/// which takes its time budget on a machine that is not quiet. Every case is one of the suite, so the two
/// can be compared.
///
/// Load latency has every size, copies and reads every second one, writes and triads the first of these,
/// and all of them the payload past the caches. Sizes above a quarter of that would only repeat it: next to
/// a last cache of 260 MiB the payload is 1280 MiB, and a case of 1 GiB took 0.9 s. Numbers of threads are
/// powers of four. Of other NUMA domains, and between domains, there is what the matrices of domains show.
pub(crate) fn default_cases(topology: &Topology) -> impl Fn(&Case) -> bool {
    let (simd, bulk) = (widest(topology), host_bulk(topology));
    let usual = usual_copies(topology);
    let home = topology.numa.iter().find(|d| !d.cpus.is_empty()).map(|d| Unit::Numa(d.id));
    let all = sizes(Bytes::kib(4), bulk);
    let below = move |bytes: &Bytes| bytes.0 <= bulk.0 / 4;
    let curve: Vec<Bytes> = all.iter().skip(1).step_by(2).copied().filter(below).collect();
    let most = topology.numa.iter().map(|d| (Unit::Numa(d.id), threads_of(topology, d.id)));
    let most: Vec<(Unit, u32)> = most.collect();
    // A curve by threads has three points or more.
    let is_rung = |threads: u32, all: u32| {
        threads == all
            || all <= 4
            || (threads.is_power_of_two() && threads.ilog2().is_multiple_of(2))
    };
    move |case: &Case| {
        case.timed.iter().all(|flow| {
            let Mover::Cpu { at, work, threads } = flow.by else { return false };
            let at_home = Some(at) == home
                && [flow.src, flow.dst].iter().all(|p| p.mem == MemKind::Reg || p.unit == at);
            match work.op {
                CpuOp::Touch => at_home,
                CpuOp::Chase => flow.bytes == bulk || below(&flow.bytes),
                _ if flow.bytes > bulk => false,
                _ if !most.iter().any(|&(unit, all)| unit == at && is_rung(threads, all)) => false,
                _ if !at_home => {
                    let of_matrices = match work.op {
                        CpuOp::Copy => work.how == CpuHow::Memcpy,
                        CpuOp::Read | CpuOp::Write => work.how == simd,
                        _ => false,
                    };
                    of_matrices && most.contains(&(at, threads))
                }
                CpuOp::Copy if !usual.contains(&work.how) => false,
                CpuOp::Copy | CpuOp::Read => flow.bytes == bulk || curve.contains(&flow.bytes),
                CpuOp::Write | CpuOp::Triad => {
                    flow.bytes == bulk || (work.how == simd && curve.first() == Some(&flow.bytes))
                }
            }
        })
    }
}

/// 1, 2, 4 ... and all.
pub(super) fn ladder(all: u32) -> Vec<u32> {
    let mut counts: Vec<u32> =
        std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(|&n| n < all).collect();
    counts.push(all);
    counts
}

/// One thread and all of them.
pub(super) fn ends(all: u32) -> Vec<u32> {
    let mut ends = vec![1, all];
    ends.dedup();
    ends
}

fn host_sweep(topology: &Topology, id: u32, threads: u32, sizes: &[Bytes], cases: &mut Vec<Case>) {
    let (memory, regs) = (numa(id, MemKind::Huge), numa(id, MemKind::Reg));
    let (simd, bulk) = (widest(topology), host_bulk(topology));
    let mut stores = vec![simd];
    stores.extend(streaming(simd));
    let ends = ends(threads);
    for &bytes in sizes {
        // By operation first: compared cases are sampled in turn, in the same buffers.
        for &how in copies(topology) {
            for &t in &ends {
                cases.push(Case::single(memory, memory, cpu(id, CpuOp::Copy, how, t), bytes));
            }
        }
        for &t in &ends {
            cases.push(Case::single(memory, regs, cpu(id, CpuOp::Read, simd, t), bytes));
        }
        for (how, &t) in stores.iter().flat_map(|&how| ends.iter().map(move |t| (how, t))) {
            cases.push(Case::single(regs, memory, cpu(id, CpuOp::Write, how, t), bytes));
        }
        for (how, &t) in stores.iter().flat_map(|&how| ends.iter().map(move |t| (how, t))) {
            cases.push(Case::single(memory, memory, cpu(id, CpuOp::Triad, how, t), bytes));
        }
        let chase = cpu(id, CpuOp::Chase, CpuHow::Plain, 1);
        cases.push(Case::single(memory, regs, chase, bytes));
    }
    for t in ladder(threads).into_iter().filter(|t| !ends.contains(t)) {
        for how in [CpuHow::Memcpy].into_iter().chain(streaming(simd)) {
            cases.push(Case::single(memory, memory, cpu(id, CpuOp::Copy, how, t), bulk));
        }
        cases.push(Case::single(memory, regs, cpu(id, CpuOp::Read, simd, t), bulk));
    }
    let touch = cpu(id, CpuOp::Touch, CpuHow::Plain, 1);
    for mem in [MemKind::Paged, MemKind::Huge] {
        cases.push(Case::single(regs, numa(id, mem), touch, Bytes::mib(64)));
    }
}

fn host_pair(topology: &Topology, memory: u32, cores: u32, threads: u32, cases: &mut Vec<Case>) {
    let (far, near, regs) =
        (numa(memory, MemKind::Huge), numa(cores, MemKind::Huge), numa(cores, MemKind::Reg));
    let (simd, bulk) = (widest(topology), host_bulk(topology));
    let streaming = streaming(simd);
    for t in ends(threads) {
        cases.push(Case::single(far, regs, cpu(cores, CpuOp::Read, simd, t), bulk));
        cases.push(Case::single(regs, far, cpu(cores, CpuOp::Write, simd, t), bulk));
        cases.push(Case::single(far, near, cpu(cores, CpuOp::Copy, CpuHow::Memcpy, t), bulk));
        if let Some(how) = streaming {
            cases.push(Case::single(far, near, cpu(cores, CpuOp::Copy, how, t), bulk));
        }
        cases.push(Case::single(far, far, cpu(cores, CpuOp::Triad, simd, t), bulk));
    }
    let chase = cpu(cores, CpuOp::Chase, CpuHow::Plain, 1);
    cases.push(Case::single(far, regs, chase, bulk));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pathline_schema::{CacheGroup, Flow, HostInfo};

    use super::*;

    /// Domains of 32 CPUs with AVX-512 and a last cache of `mib` MiB.
    fn topology(domains: u32, mib: u64) -> Topology {
        let cpus = |id: u32| format!("{}-{}", id * 32, id * 32 + 31).parse().unwrap();
        let cache = |id: u32| CacheGroup {
            level: 3,
            kind: "Unified".to_owned(),
            size: Bytes::mib(mib),
            line: 64,
            cpus: cpus(id),
        };
        let features = ["avx2", "avx512f", "erms"].map(str::to_owned).to_vec();
        Topology {
            host: HostInfo { arch: "x86_64".to_owned(), features, ..HostInfo::default() },
            caches: (0..domains).map(cache).collect(),
            numa: (0..domains)
                .map(|id| NumaDomain { id, cpus: cpus(id), ..NumaDomain::default() })
                .collect(),
            ..Topology::default()
        }
    }

    fn chosen(topology: &Topology) -> Vec<Flow> {
        let is_chosen = default_cases(topology);
        host(topology).into_iter().filter(is_chosen).map(|case| case.timed[0]).collect()
    }

    /// On 16 CPUs with a last cache of 260 MiB 75 cases took 21.9 s; of these 6 of 2 and 8 threads and one of
    /// 1 GiB, 3.3 s, are left out since.
    #[test]
    fn a_default_run_spends_twenty_seconds_on_a_socket() {
        for cache in [32, 260] {
            let node = topology(1, cache);
            let flows = chosen(&node);
            assert!((60..=72).contains(&flows.len()), "{}", flows.len());
            assert!(flows.len() * 3 < host(&node).len(), "{}", host(&node).len());
            assert_eq!(flows.iter().map(|f| f.bytes).max(), Some(host_bulk(&node)));
        }
        let two = topology(2, 32);
        assert!(chosen(&two).len() <= 85, "{}", chosen(&two).len());
        // 1, 2 and 4 threads of 4 CPUs.
        let mut small = topology(1, 32);
        small.numa[0].cpus = "0-3".parse().unwrap();
        let threads: BTreeSet<u32> = chosen(&small).iter().map(|f| f.by.threads()).collect();
        assert_eq!(threads, BTreeSet::from([1, 2, 4]));
    }

    /// Figures of the report: latency by size, copies of three kinds by size and number of threads, a ladder
    /// of threads, reads, writes and triads past the caches, first touch.
    #[test]
    fn a_default_run_has_what_each_figure_shows() {
        let topology = topology(1, 32);
        let flows = chosen(&topology);
        let bulk = host_bulk(&topology);
        let sizes = |op: CpuOp, how: Option<CpuHow>, threads: u32| {
            let of = |f: &&Flow| match f.by {
                Mover::Cpu { work, threads: t, .. } => {
                    work.op == op && how.is_none_or(|how| how == work.how) && t == threads
                }
                _ => false,
            };
            flows.iter().filter(of).map(|f| f.bytes).collect::<BTreeSet<_>>()
        };
        assert_eq!(sizes(CpuOp::Chase, None, 1).len(), 9);
        for how in [CpuHow::Memcpy, CpuHow::Avx512, CpuHow::Avx512Nt] {
            for threads in [1, 32] {
                let sizes = sizes(CpuOp::Copy, Some(how), threads);
                let curve = [Bytes::kib(16), Bytes::kib(256), Bytes::mib(4), Bytes::mib(64), bulk];
                assert_eq!(sizes, BTreeSet::from(curve), "{how} {threads}");
            }
        }
        assert!(sizes(CpuOp::Copy, Some(CpuHow::Movsb), 1).is_empty());
        for op in [CpuOp::Copy, CpuOp::Read] {
            for threads in [4, 16] {
                assert_eq!(sizes(op, None, threads), BTreeSet::from([bulk]), "{op} {threads}");
            }
            assert!(sizes(op, None, 8).is_empty(), "{op}");
        }
        for op in [CpuOp::Write, CpuOp::Triad] {
            for how in [CpuHow::Avx512, CpuHow::Avx512Nt] {
                for threads in [1, 32] {
                    assert!(sizes(op, Some(how), threads).contains(&bulk), "{op} {how}");
                }
            }
            assert_eq!(sizes(op, Some(CpuHow::Avx512), 1).len(), 2);
        }
        assert_eq!(sizes(CpuOp::Touch, None, 1).len(), 1);
    }

    /// The matrices of domains have reads, writes and load latency in each of their 16 cells.
    #[test]
    fn a_default_run_has_every_pair_of_domains() {
        let topology = topology(4, 32);
        for op in [CpuOp::Read, CpuOp::Write, CpuOp::Chase] {
            let cells: BTreeSet<(Unit, Unit)> = chosen(&topology)
                .iter()
                .filter_map(|flow| match flow.by {
                    Mover::Cpu { at, work, .. } if work.op == op => {
                        let memory = if op == CpuOp::Write { flow.dst } else { flow.src };
                        Some((memory.unit, at))
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(cells.len(), 16, "{op}");
        }
    }
}
