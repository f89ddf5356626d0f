//! Suites of memory kinds and runtime calls: managed memory, costs of calls, every NUMA domain.

use pathline_schema::{
    Bytes, Case, Flow, KernelOp, MemKind, MigrateHow, Mover, Place, RuntimeCall, Topology, Unit,
};

use crate::scope::PlanScope;

use super::{BULK, dma, gpu, home, kernel, numa};

/// Sizes of managed memory: a page, a fault's block of CUDA, a huge page, and bulk.
const MANAGED: [Bytes; 4] = [Bytes::kib(4), Bytes::kib(64), Bytes::mib(2), BULK];

/// Sizes to allocate, free and page-lock.
const ALLOCATED: [Bytes; 3] = [Bytes::kib(4), Bytes::mib(2), BULK];

/// Copies of a batch, and bytes of each.
const BATCHES: [(u32, Bytes); 2] = [(256, Bytes::kib(4)), (256, Bytes::kib(64))];

/// The first GPU and managed memory: in place, migrated by faults and by prefetch, to the host and
/// to another GPU, and once resident.
pub(super) fn managed(topology: &Topology) -> Vec<Case> {
    let mut gpus = topology.gpus.iter().map(|g| g.index);
    let Some(first) = gpus.next() else { return Vec::new() };
    let (here, regs) = (gpu(first, MemKind::Managed), gpu(first, MemKind::Reg));
    let host = numa(home(topology, first), MemKind::Managed);
    let to = |place: Place, how| Mover::Migrate { at: place.unit, how };
    let (fault, prefetch) = (MigrateHow::Fault, MigrateHow::Prefetch);
    let mut transfers = vec![
        (host, regs, kernel(first, KernelOp::Read)),
        (here, regs, kernel(first, KernelOp::Read)),
        (host, here, to(here, fault)),
        (host, here, to(here, prefetch)),
        (here, host, to(host, prefetch)),
    ];
    if let Some(peer) = gpus.next() {
        let there = gpu(peer, MemKind::Managed);
        transfers.extend([(there, here, to(here, fault)), (there, here, to(here, prefetch))]);
    }
    let cases_of = |&(src, dst, by): &(Place, Place, Mover)| {
        MANAGED.map(|bytes| Case::single(src, dst, by, bytes))
    };
    transfers.iter().flat_map(cases_of).collect()
}

/// Costs of runtime calls for the first GPU, and many small copies by one call next to the same
/// ones one by one.
pub(super) fn overhead(topology: &Topology) -> Vec<Case> {
    let Some(first) = topology.gpus.first().map(|g| g.index) else { return Vec::new() };
    let (regs, h) = (gpu(first, MemKind::Reg), home(topology, first));
    let call = |call| Mover::Call { at: Unit::Gpu(first), call };
    let one = |src, dst, what, bytes| Case::single(src, dst, call(what), bytes).isolated();
    let about_nothing = [
        RuntimeCall::Launch,
        RuntimeCall::LaunchSync,
        RuntimeCall::Sync,
        RuntimeCall::Event,
        RuntimeCall::Stream,
    ];
    let mut cases: Vec<Case> =
        about_nothing.map(|what| one(regs, regs, what, Bytes(1))).into_iter().collect();
    let mut given = vec![
        gpu(first, MemKind::Vram),
        numa(h, MemKind::Pinned),
        numa(h, MemKind::PinnedWc),
        // At the GPU, which touches it before it is freed; a core would take seconds for that.
        gpu(first, MemKind::Managed),
    ];
    if topology.any_gpu(|caps| caps.memory_grains) {
        given.extend([gpu(first, MemKind::VramFine), numa(h, MemKind::PinnedNonCoherent)]);
    }
    for (place, bytes) in given.iter().flat_map(|&p| ALLOCATED.map(|bytes| (p, bytes))) {
        cases.push(one(regs, place, RuntimeCall::Alloc, bytes));
        cases.push(one(place, regs, RuntimeCall::Free, bytes));
    }
    let locked = numa(h, MemKind::Registered);
    for (mem, bytes) in
        [MemKind::Paged, MemKind::Huge].iter().flat_map(|&m| ALLOCATED.map(|b| (m, b)))
    {
        // Less than a huge page gets none.
        if mem == MemKind::Paged || bytes >= Bytes::mib(2) {
            cases.push(one(numa(h, mem), locked, RuntimeCall::Register, bytes));
            cases.push(one(locked, numa(h, mem), RuntimeCall::Unregister, bytes));
        }
    }
    let (pinned, vram) = (numa(h, MemKind::Pinned), gpu(first, MemKind::Vram));
    for (copies, each) in BATCHES {
        let by = Mover::Batch { at: Unit::Gpu(first), copies };
        cases.push(Case::single(pinned, vram, dma(first), each));
        cases.push(Case::single(pinned, vram, by, Bytes(each.0 * u64::from(copies))));
    }
    cases
}

/// Sizes to register with network adapters.
const REGISTERED: [Bytes; 6] =
    [Bytes::kib(4), Bytes::kib(64), Bytes::mib(2), Bytes::mib(32), BULK, Bytes::gib(1)];

/// Cost of registering memory with an adapter, and of undoing it: memory of the host next to the
/// first adapter, and of the first GPU, by its address and by an exported file.
pub(super) fn registration(scope: &PlanScope<'_>) -> Vec<Case> {
    let topology = scope.topology;
    let adapter = topology.nics.iter().find_map(|nic| nic.numa);
    let domains = || topology.numa.iter().map(|d| d.id);
    let h = adapter.filter(|&n| domains().any(|d| d == n)).or_else(|| domains().next());
    let of = |place: Place, call: RuntimeCall, bytes: Bytes| {
        let regs = Place { mem: MemKind::Reg, ..place };
        Case::single(place, regs, Mover::Call { at: place.unit, call }, bytes).isolated()
    };
    let first = topology.gpus.first().map(|g| g.index);
    let mut cases = Vec::new();
    let by_address = [RuntimeCall::NicRegister, RuntimeCall::NicDeregister];
    for mem in [MemKind::Paged, MemKind::Huge, MemKind::Pinned] {
        let Some(h) = h.filter(|_| mem != MemKind::Pinned || first.is_some()) else { continue };
        // Less than a huge page gets none.
        let sizes = REGISTERED.into_iter().filter(|&b| mem != MemKind::Huge || b >= Bytes::mib(2));
        cases.extend(sizes.flat_map(|b| by_address.map(|call| of(numa(h, mem), call, b))));
    }
    let by_file = [
        RuntimeCall::ExportDmabuf,
        RuntimeCall::NicRegisterDmabuf,
        RuntimeCall::NicDeregisterDmabuf,
    ];
    if let Some(first) = first {
        let vram = gpu(first, MemKind::Vram);
        // Smaller blocks share a page of the GPU with others.
        let sizes = || REGISTERED.into_iter().filter(|&b| b >= Bytes::mib(2));
        cases.extend(sizes().flat_map(|b| by_address.map(|call| of(vram, call, b))));
        cases.extend(sizes().flat_map(|b| by_file.map(|call| of(vram, call, b))));
    }
    cases
}

/// Pinned memory of every NUMA domain and every GPU, in and out by the copy engine. For the first
/// GPU also pageable memory that was placed by page and page-locked afterwards: the other method to
/// get pinned memory in a chosen domain. And pinned memory whose domain the runtime chooses for each
/// GPU, as programs get it that ask for nothing.
pub(super) fn numa_gpu(topology: &Topology) -> Vec<Case> {
    let mut cases = Vec::new();
    let domains = || topology.numa.iter().map(|d| d.id);
    let gpus = || topology.gpus.iter().map(|g| g.index);
    let case = |d: u32, g: u32, mem: MemKind, inward: bool| {
        let (host, vram) = (numa(d, mem), gpu(g, MemKind::Vram));
        let (src, dst) = if inward { (host, vram) } else { (vram, host) };
        Case::together(vec![Flow { src, dst, by: dma(g), bytes: BULK }])
    };
    // Domain after domain: page-locking a buffer takes longer than copying it, and the GPUs share
    // it.
    for inward in [true, false] {
        cases.extend(
            domains().flat_map(|d| gpus().map(move |g| case(d, g, MemKind::Pinned, inward))),
        );
    }
    if let Some(first) = gpus().next().filter(|_| topology.numa.len() > 1) {
        for inward in [true, false] {
            cases.extend(domains().map(|d| case(d, first, MemKind::Registered, inward)));
        }
        for inward in [true, false] {
            let chosen = |g| case(home(topology, g), g, MemKind::PinnedDefault, inward);
            cases.extend(gpus().map(chosen));
        }
    }
    cases
}
