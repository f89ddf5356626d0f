//! Suite storage: files to host memory and to GPUs.

use pathline_schema::{
    Bytes, Case, CpuSet, Flow, IoCache, IoEngine, IoFiles, IoOp, IoOrder, IoSpec, IoStage, MemKind,
    Mover, Place, StoreFacts, Unit,
};

use super::{dma, gpu, ladder, numa, threads_of};
use crate::scope::PlanScope;

/// Block of random I/O.
pub(super) const PAGE: Bytes = Bytes::kib(4);
/// Block of sequential I/O.
pub(super) const BLOCK: Bytes = Bytes::mib(1);
/// Part of an upload.
const PART: Bytes = Bytes::mib(8);
/// From this depth on, I/Os are submitted and reaped in batches.
const BATCHED_FROM: u32 = 16;
/// Fraction of the depth in one call. On a virtio disk of one queue that was a third less CPU time
/// an I/O than one by one; half the depth took 2 % more off at depth 16, but made the device wait
/// for work: the median latency was 281 us instead of 220.
const BATCHES: u32 = 4;
/// Maximum batch: larger ones save little more.
const LARGEST_BATCH: u32 = 8;
/// Depth of sequential I/O.
const STREAMED: u32 = 8;
/// Maximum workers that a suite uses by default.
const MOST_THREADS: u32 = 8;
/// Percentage of reads in mixed I/O: the usual database mix.
const MIX: u8 = 70;

/// The fastest path through host memory: copies overlap the next I/Os, from blocks that the device
/// gets by one request each.
pub(super) const OVERLAPPED: IoStage =
    IoStage { pipelined: true, through: MemKind::RegisteredHuge };

/// I/Os of one call.
fn batch(depth: u32) -> u32 {
    if depth < BATCHED_FROM { 1 } else { (depth / BATCHES).min(LARGEST_BATCH) }
}

/// Data that the cases of one store share.
#[derive(Clone, Copy)]
pub(super) struct StoreScope {
    pub(super) store: u32,
    /// Domain of the workers' cores.
    pub(super) numa: u32,
    /// Maximum workers.
    pub(super) threads: u32,
    /// Size of each file.
    pub(super) span: Bytes,
    /// Whether it is a bucket of an object store.
    pub(super) objects: bool,
}

/// The NUMA domain next to a store, and the workers that suites use there at most.
pub(super) fn near_domain(scope: &PlanScope<'_>, facts: &StoreFacts) -> (u32, u32) {
    let topology = scope.topology;
    let with_cpus = topology.numa.iter().filter(|d| d.cpus != CpuSet::default());
    let near = with_cpus.clone().find(|d| Some(d.id) == facts.numa);
    let numa = near.or(with_cpus.clone().next()).map_or(0, |d| d.id);
    (numa, threads_of(topology, numa).min(MOST_THREADS))
}

impl StoreScope {
    pub(super) fn of(scope: &PlanScope<'_>, store: u32, facts: &StoreFacts) -> Self {
        let (numa, threads) = near_domain(scope, facts);
        Self { store, numa, threads, span: facts.span, objects: facts.has_objects() }
    }

    fn file(&self) -> Place {
        Place::new(Unit::Store(self.store), MemKind::File)
    }

    /// io_uring, direct I/O, one worker in a shared file. Of a bucket: ranges of an object are read, and
    /// each block is written as an object.
    pub(super) fn plain(&self, op: IoOp, order: IoOrder, depth: u32) -> IoSpec {
        let each = self.objects && op != IoOp::Read;
        IoSpec {
            engine: if self.objects { IoEngine::S3 } else { IoEngine::Uring },
            op,
            order,
            cache: IoCache::Direct,
            files: if each { IoFiles::Each } else { IoFiles::Shared },
            span: self.span,
            depth,
            batch: batch(depth),
            threads: 1,
            rate: None,
            stage: None,
        }
    }

    pub(super) fn flow(&self, memory: Place, io: IoSpec, bytes: Bytes) -> Flow {
        let by = Mover::Io { at: Unit::Numa(self.numa), io };
        match io.op {
            IoOp::Write => Flow { src: memory, dst: self.file(), by, bytes },
            _ => Flow { src: self.file(), dst: memory, by, bytes },
        }
    }

    pub(super) fn case(&self, memory: Place, io: IoSpec, bytes: Bytes) -> Case {
        Case::together(vec![self.flow(memory, io, bytes)])
    }

    /// Random reads over depth and workers: to host memory, and next to each the same to a GPU, so
    /// that they are sampled in turn.
    fn random_reads(&self, gpu_index: Option<u32>, cases: &mut Vec<Case>) {
        for threads in ladder(self.threads) {
            for depth in [1, 4, 16, 32] {
                let io = IoSpec { threads, ..self.plain(IoOp::Read, IoOrder::Rand, depth) };
                cases.push(self.case(numa(self.numa, MemKind::Paged), io, PAGE));
                cases.extend(gpu_index.into_iter().flat_map(|index| self.staged(index, io, PAGE)));
            }
        }
    }

    /// Paths through host memory to a GPU, or from it: overlapped, and as elbencho does, from
    /// pageable and from registered buffers.
    fn staged(&self, index: u32, io: IoSpec, bytes: Bytes) -> Vec<Case> {
        [(true, MemKind::Pinned), (false, MemKind::Paged), (false, MemKind::Registered)]
            .map(|(pipelined, through)| {
                let stage = Some(IoStage { pipelined, through });
                self.case(gpu(index, MemKind::Vram), IoSpec { stage, ..io }, bytes)
            })
            .into()
    }

    /// Engines, writes, mixes and sharing of files at 4 KiB.
    fn random_others(&self, cases: &mut Vec<Case>) {
        let paged = numa(self.numa, MemKind::Paged);
        let mut push = |io: IoSpec| cases.push(self.case(paged, io, PAGE));
        push(self.plain(IoOp::Read, IoOrder::Rand, 128));
        for engine in [IoEngine::UringPlain, IoEngine::UringPoll, IoEngine::Aio] {
            for depth in [1, 32, 128] {
                push(IoSpec { engine, ..self.plain(IoOp::Read, IoOrder::Rand, depth) });
            }
        }
        // One call an I/O: shows the gain of batching.
        push(IoSpec { batch: 1, ..self.plain(IoOp::Read, IoOrder::Rand, 32) });
        for threads in ladder(self.threads) {
            let engine = IoEngine::Sync;
            push(IoSpec { engine, threads, ..self.plain(IoOp::Read, IoOrder::Rand, 1) });
        }
        for op in [IoOp::Write, IoOp::Mix { reads: MIX }] {
            for depth in [1, 32] {
                push(self.plain(op, IoOrder::Rand, depth));
            }
        }
        if self.threads > 1 {
            let (files, threads) = (IoFiles::Own, self.threads);
            push(IoSpec { files, threads, ..self.plain(IoOp::Read, IoOrder::Rand, 32) });
        }
        let sync = IoSpec { engine: IoEngine::Sync, ..self.plain(IoOp::Read, IoOrder::Rand, 1) };
        push(IoSpec { cache: IoCache::Cached, ..sync });
    }

    /// Whole blocks in order: pages and huge pages, engines, the page cache.
    fn sequential(&self, cases: &mut Vec<Case>) {
        let at = |mem: MemKind| numa(self.numa, mem);
        for op in [IoOp::Read, IoOp::Write] {
            let io = self.plain(op, IoOrder::Seq, STREAMED);
            for mem in [MemKind::Paged, MemKind::Huge] {
                cases.push(self.case(at(mem), io, BLOCK));
                cases.push(self.case(at(mem), IoSpec { engine: IoEngine::Aio, ..io }, BLOCK));
            }
            let sync = IoSpec { engine: IoEngine::Sync, depth: 1, ..io };
            cases.push(self.case(at(MemKind::Huge), sync, BLOCK));
            cases.push(self.case(
                at(MemKind::Huge),
                IoSpec { cache: IoCache::Cached, ..sync },
                BLOCK,
            ));
            if op == IoOp::Read {
                cases.push(self.case(
                    at(MemKind::Huge),
                    IoSpec { cache: IoCache::Cold, ..sync },
                    BLOCK,
                ));
            }
            if self.threads > 1 {
                for files in [IoFiles::Shared, IoFiles::Own] {
                    let io = IoSpec { files, threads: self.threads, ..io };
                    cases.push(self.case(at(MemKind::Huge), io, BLOCK));
                }
            }
        }
    }

    /// Whole blocks to and from a GPU, and each stage of that alone.
    fn streamed(&self, index: u32, cases: &mut Vec<Case>) {
        let pinned = numa(self.numa, MemKind::Pinned);
        for op in [IoOp::Read, IoOp::Write] {
            let io = self.plain(op, IoOrder::Seq, STREAMED);
            cases.push(self.case(numa(self.numa, MemKind::Huge), io, BLOCK));
            let stage = Some(OVERLAPPED);
            cases.push(self.case(gpu(index, MemKind::Vram), IoSpec { stage, ..io }, BLOCK));
            cases.push(self.case(pinned, io, BLOCK));
            cases.extend(self.staged(index, io, BLOCK));
        }
        for op in [IoOp::Read, IoOp::Write] {
            for threads in [1, self.threads] {
                let io = self.plain(op, IoOrder::Seq, 1);
                let io = IoSpec { engine: IoEngine::Gds, threads, ..io };
                let case = self.case(gpu(index, MemKind::Vram), io, BLOCK);
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
        let vram = gpu(index, MemKind::Vram);
        for bytes in [PAGE, BLOCK] {
            cases.push(Case::single(pinned, vram, dma(index), bytes));
            cases.push(Case::single(vram, pinned, dma(index), bytes));
        }
    }

    /// A bucket: ranges, whole objects and parts of an upload, over workers and requests in flight, to host
    /// memory and to a GPU.
    fn bucket(&self, gpu_index: Option<u32>, cases: &mut Vec<Case>) {
        let host = numa(self.numa, MemKind::Huge);
        let mut push =
            |io: IoSpec, block: Bytes| {
                cases.push(self.case(host, io, block));
                let stage = Some(OVERLAPPED);
                cases.extend(gpu_index.map(|index| {
                    self.case(gpu(index, MemKind::Vram), IoSpec { stage, ..io }, block)
                }));
            };
        for threads in ladder(self.threads) {
            for depth in [1, 4, 16] {
                let (seq, rand) = (IoOrder::Seq, IoOrder::Rand);
                let of = |op, order| IoSpec { threads, batch: 1, ..self.plain(op, order, depth) };
                push(of(IoOp::Read, rand), PAGE);
                push(of(IoOp::Read, seq), BLOCK);
                push(IoSpec { files: IoFiles::Each, ..of(IoOp::Read, seq) }, BLOCK);
                push(of(IoOp::Write, seq), BLOCK);
                push(IoSpec { files: IoFiles::Shared, ..of(IoOp::Write, seq) }, PART);
            }
        }
    }

    /// One of the flows that read at once.
    fn flow_with(&self, memory: Place, stage: Option<IoStage>) -> Flow {
        let io = self.plain(IoOp::Read, IoOrder::Seq, STREAMED);
        self.flow(memory, IoSpec { stage, ..io }, BLOCK)
    }
}

/// Every store to host memory and to the first GPU, then all GPUs at once, then all stores at once.
pub(super) fn storage(scope: &PlanScope<'_>) -> Vec<Case> {
    // Includes unusable stores, whose cases give the reason.
    let stores: Vec<StoreScope> =
        (0..).zip(scope.stores).map(|(store, facts)| StoreScope::of(scope, store, facts)).collect();
    let gpus: Vec<u32> = match scope.without_runtime {
        None => scope.topology.gpus.iter().map(|g| g.index).collect(),
        Some(_) => Vec::new(),
    };
    let first = gpus.first().copied();
    let mut cases = Vec::new();
    for at in &stores {
        if at.objects {
            at.bucket(first, &mut cases);
            continue;
        }
        at.random_reads(first, &mut cases);
        at.random_others(&mut cases);
        if let Some(index) = first {
            at.streamed(index, &mut cases);
        }
        at.sequential(&mut cases);
        if gpus.len() > 1 {
            let stage = Some(OVERLAPPED);
            let each = gpus.iter().map(|&index| at.flow_with(gpu(index, MemKind::Vram), stage));
            cases.push(Case::together(each.collect()));
        }
    }
    if stores.len() > 1 {
        let each = stores.iter().map(|at| at.flow_with(numa(at.numa, MemKind::Huge), None));
        cases.push(Case::together(each.collect()));
    }
    cases
}
