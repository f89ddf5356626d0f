//! Suites of concurrent work: fans over host memory, patterns between GPUs, copies during compute.

use pathline_flow::routes::RouteTable;
use pathline_schema::{Case, Flow, Gpu, KernelOp, LinkEnd, MemKind, Mover, Topology};

use super::{BULK, blit, compute, dma, gpu, home, kernel, ladder, numa, ordered_pairs};
use pathline_schema::Bytes;

/// Maximum GPUs for which a ring over links is searched: the search tries every order.
const MOST_IN_RING: usize = 10;

/// For each group of GPUs: copies in, out and in both directions by the copy engines, and STREAM
/// copy over host memory by kernels.
pub(super) fn fan(topology: &Topology) -> Vec<Case> {
    let host = |g: u32, mem| numa(home(topology, g), mem);
    let into = |g: u32| Flow {
        src: host(g, MemKind::Pinned),
        dst: gpu(g, MemKind::Vram),
        by: dma(g),
        bytes: BULK,
    };
    let out = |g: u32| Flow { src: into(g).dst, dst: into(g).src, ..into(g) };
    let stream = |g: u32| {
        let memory = host(g, MemKind::Managed);
        Flow { src: memory, dst: memory, by: kernel(g, KernelOp::Copy), bytes: Bytes::gib(1) }
    };
    let groups = fan_groups(topology);
    let each = |flows: &dyn Fn(u32) -> Vec<Flow>| -> Vec<Case> {
        let case = |group: &Vec<u32>| group.iter().flat_map(|&g| flows(g)).collect();
        groups.iter().map(|group| Case::together(case(group))).collect()
    };
    let mut cases = each(&|g| vec![into(g)]);
    cases.extend(each(&|g| vec![out(g)]));
    cases.extend(each(&|g| vec![into(g), out(g)]));
    cases.extend(each(&|g| vec![stream(g)]));
    cases
}

/// One GPU; two of a package; one a package for 2, 4 ... packages; all.
fn fan_groups(topology: &Topology) -> Vec<Vec<u32>> {
    let package = |g: &Gpu| g.package.unwrap_or(1_000_000 + g.index);
    let mut heads: Vec<(u32, u32)> = Vec::new();
    let mut twins = None;
    for g in &topology.gpus {
        match heads.iter().find(|(p, _)| *p == package(g)) {
            Some(&(_, head)) => twins = twins.or(Some(vec![head, g.index])),
            None => heads.push((package(g), g.index)),
        }
    }
    let heads: Vec<u32> = heads.into_iter().map(|(_, g)| g).collect();
    let mut groups: Vec<Vec<u32>> = ladder(heads.len() as u32)
        .into_iter()
        .map(|n| heads.iter().copied().take(n as usize).collect())
        .collect();
    groups.extend(twins);
    groups.push(topology.gpus.iter().map(|g| g.index).collect());
    groups.sort_by_key(Vec::len);
    groups.dedup();
    groups.retain(|g| !g.is_empty());
    groups
}

/// The pairs of a pattern, and whether a kernel runs on the source GPU.
struct TrafficPattern {
    edges: Vec<(u32, u32)>,
    push: bool,
}

/// All GPUs at once, in the patterns of collectives. Two GPUs have none: it would be a pair.
pub(super) fn patterns(topology: &Topology) -> Vec<Case> {
    let gpus: Vec<u32> = topology.gpus.iter().map(|g| g.index).collect();
    let Some((&first, others)) = gpus.split_first().filter(|(_, rest)| rest.len() > 1) else {
        return Vec::new();
    };
    let back = |edges: &[(u32, u32)]| edges.iter().map(|&(a, b)| (b, a)).collect::<Vec<_>>();
    let gather: Vec<(u32, u32)> = others.iter().map(|&g| (g, first)).collect();
    let order = ring(topology, &gpus);
    let next = order.iter().skip(1).chain(order.first());
    let round: Vec<(u32, u32)> = order.iter().copied().zip(next.copied()).collect();
    let both_round = [round.clone(), back(&round)].concat();
    let (low, high) = gpus.split_at(gpus.len() / 2);
    let across: Vec<(u32, u32)> = low.iter().copied().zip(high.iter().copied()).collect();
    let halves = [across.clone(), back(&across)].concat();
    // Kernels of a gather run on the source GPU, so that no GPU runs seven of them.
    let patterns = [
        TrafficPattern { push: true, edges: gather.clone() },
        TrafficPattern { push: false, edges: back(&gather) },
        TrafficPattern { push: false, edges: round },
        TrafficPattern { push: false, edges: both_round },
        TrafficPattern { push: false, edges: halves },
        TrafficPattern { push: false, edges: ordered_pairs(topology).collect() },
    ];
    let case = |pattern: &TrafficPattern, by: &dyn Fn(u32, u32, bool) -> Mover| {
        let flow = |&(a, b): &(u32, u32)| Flow {
            src: gpu(a, MemKind::Vram),
            dst: gpu(b, MemKind::Vram),
            by: by(a, b, pattern.push),
            bytes: BULK,
        };
        Case::together(pattern.edges.iter().map(flow).collect())
    };
    let engine = |a, _, _| dma(a);
    let by_kernel = |a, b, push| kernel(if push { a } else { b }, KernelOp::Copy);
    let mut cases: Vec<Case> = patterns.iter().map(|p| case(p, &engine)).collect();
    cases.extend(patterns.iter().map(|p| case(p, &by_kernel)));
    cases
}

/// A ring over direct links, if one exists and is found quickly; else in the order of numbers.
fn ring(topology: &Topology, gpus: &[u32]) -> Vec<u32> {
    let routes = RouteTable::of(topology);
    let linked = |a: u32, b: u32| routes.link_count(LinkEnd::Gpu(a), LinkEnd::Gpu(b)) > 0;
    let found = gpus.split_first().filter(|_| gpus.len() <= MOST_IN_RING);
    let found = found.and_then(|(&first, rest)| close(&mut vec![first], rest, &linked));
    found.unwrap_or_else(|| gpus.to_vec())
}

/// Extends `ring` from its last GPU through all of `rest` and back to its first.
fn close(ring: &mut Vec<u32>, rest: &[u32], linked: &dyn Fn(u32, u32) -> bool) -> Option<Vec<u32>> {
    let (&first, &last) = (ring.first()?, ring.last()?);
    if rest.is_empty() {
        return linked(last, first).then(|| ring.clone());
    }
    for &next in rest.iter().filter(|&&next| linked(last, next)) {
        let left: Vec<u32> = rest.iter().copied().filter(|&g| g != next).collect();
        ring.push(next);
        let closed = close(ring, &left, linked);
        ring.pop();
        if closed.is_some() {
            return closed;
        }
    }
    None
}

/// Copies of the first GPU during its kernels, one that only computes and one that only waits for
/// memory: each alone, the copy while the kernel runs, and the kernel while the copy runs.
pub(super) fn overlap(topology: &Topology) -> Vec<Case> {
    let Some(first) = topology.gpus.first().map(|g| g.index) else { return Vec::new() };
    let (vram, regs) = (gpu(first, MemKind::Vram), gpu(first, MemKind::Reg));
    let pinned = numa(home(topology, first), MemKind::Pinned);
    let flow = |src, dst, by| Flow { src, dst, by, bytes: BULK };
    let mut copies = vec![flow(pinned, vram, dma(first)), flow(vram, pinned, dma(first))];
    copies.push(flow(vram, pinned, kernel(first, KernelOp::Copy)));
    if let Some((_, peer)) = ordered_pairs(topology).find(|&(a, _)| a == first) {
        let there = gpu(peer, MemKind::Vram);
        copies.push(flow(vram, there, dma(first)));
        copies.push(flow(vram, there, kernel(first, KernelOp::Copy)));
        if topology.any_gpu(|caps| caps.copy_kernel) {
            copies.push(flow(vram, there, blit(first)));
        }
    }
    let work = [flow(regs, regs, compute(first)), flow(vram, vram, kernel(first, KernelOp::Triad))];
    let with_background = |timed: Flow, background: Flow| {
        let mut case = Case::together(vec![timed]);
        case.background = vec![background];
        case
    };
    let mut cases: Vec<Case> =
        copies.iter().chain(&work).map(|&f| Case::together(vec![f])).collect();
    for (&copy, &work) in copies.iter().flat_map(|c| work.iter().map(move |w| (c, w))) {
        cases.push(with_background(copy, work));
        cases.push(with_background(work, copy));
    }
    cases
}
