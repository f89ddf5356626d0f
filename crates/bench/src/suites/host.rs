//! Suite host: CPU threads, caches and memory.

use pathline_schema::{Bytes, Case, CpuHow, CpuOp, MemKind, NumaDomain, Topology};

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
pub(crate) fn usual_copies(topology: &Topology) -> Vec<CpuHow> {
    let simd = widest(topology);
    [CpuHow::Memcpy, simd].into_iter().chain(streaming(simd)).collect()
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
