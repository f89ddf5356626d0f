//! Suite storage-grid: the same I/O to host memory and to 1, 2, 4 and all GPUs, over workers, depth and
//! sharing of files.
//!
//! A cell is one number of workers, one depth, one kind of I/O: its cases, to host memory and to each set of
//! GPUs, are neighbours, so that a plan samples them in turn. Workers are those of all GPUs together, on
//! the cores that the store is near: cases of a cell differ in where the bytes go and in nothing else.

use pathline_schema::{
    Bytes, Case, CpuSet, Flow, IoCache, IoFiles, IoOp, IoOrder, IoSpec, IoStage, MemKind,
    NumaDomain,
};

use super::storage::{BLOCK, OVERLAPPED, PAGE, StoreScope};
use super::{dma, gpu, ladder, numa, threads_of};
use crate::scope::PlanScope;

/// Workers of a cell, over all of its GPUs.
const WORKERS: [u32; 4] = [1, 2, 4, 8];
/// I/Os in flight per worker.
const DEPTHS: [u32; 5] = [1, 4, 8, 16, 32];
/// The same unless every combination is asked for.
const USUAL_DEPTHS: [u32; 3] = [1, 8, 32];
/// Depth at which the far NUMA domain is compared with the near one.
const FAR_DEPTH: u32 = 8;

const fn blocking(through: MemKind) -> IoStage {
    IoStage { pipelined: false, through }
}
/// Staging that each set of GPUs has: the worker waits for each copy, and copies overlap the next I/Os.
const STAGES: [IoStage; 2] = [OVERLAPPED, blocking(MemKind::Pinned)];
/// elbencho's two kinds, which are added where every combination is asked for: pageable buffers, and
/// the same ones registered (`--cuhostbufreg`).
const ELBENCHO_STAGES: [IoStage; 2] = [blocking(MemKind::Paged), blocking(MemKind::Registered)];

/// A kind of I/O.
#[derive(Clone, Copy)]
struct GridWork {
    order: IoOrder,
    op: IoOp,
    bytes: Bytes,
}

/// The cases of one store.
struct GridScope {
    near: StoreScope,
    /// The same with the cores of the farthest domain; `None` with one domain.
    far: Option<StoreScope>,
    workers: Vec<u32>,
    gpus: Vec<u32>,
    /// Whether every combination is asked for.
    all: bool,
}

impl GridScope {
    fn new(scope: &PlanScope<'_>, near: StoreScope) -> Self {
        let topology = scope.topology;
        let own = topology.numa.iter().find(|d| d.id == near.numa);
        let distance = |d: &NumaDomain| {
            let at = topology.numa.iter().position(|other| other.id == d.id);
            own.zip(at).and_then(|(own, at)| own.distances.get(at).copied()).unwrap_or(0)
        };
        let others =
            topology.numa.iter().filter(|d| d.id != near.numa && d.cpus != CpuSet::default());
        // Of equally far domains the first.
        let far = others.rev().max_by_key(|d| distance(d)).map(|d| {
            let threads = threads_of(topology, d.id).min(near.threads);
            StoreScope { numa: d.id, threads, ..near }
        });
        let gpus = match scope.without_runtime {
            None => topology.gpus.iter().map(|g| g.index).collect(),
            Some(_) => Vec::new(),
        };
        let workers = WORKERS.into_iter().filter(|&n| n <= near.threads).collect();
        Self { near, far, workers, gpus, all: scope.all_pairs }
    }

    /// The first 1, 2, 4 GPUs, and all.
    fn gpu_sets(&self) -> impl Iterator<Item = &[u32]> {
        let counts = if self.gpus.is_empty() { Vec::new() } else { ladder(self.gpus.len() as u32) };
        counts.into_iter().filter_map(|n| self.gpus.get(..n as usize))
    }

    /// I/O of `workers` in all. Files of their own have the span of a shared one together.
    fn io(&self, work: GridWork, files: IoFiles, workers: u32, depth: u32) -> IoSpec {
        let plain = self.near.plain(work.op, work.order, depth);
        let span = match files {
            IoFiles::Shared | IoFiles::Each => plain.span,
            IoFiles::Own => whole(Bytes(plain.span.0 / u64::from(workers.max(1)))),
        };
        // Calls for several blocks at once save CPU time where blocks are small.
        let batch = if work.order == IoOrder::Rand { plain.batch } else { 1 };
        IoSpec { files, span, batch, threads: workers, ..plain }
    }

    /// The same I/O to a set of GPUs, among which the workers are shared out.
    fn to_gpus(&self, gpus: &[u32], io: IoSpec, stage: IoStage, bytes: Bytes) -> Option<Case> {
        let count = u32::try_from(gpus.len()).ok()?;
        let threads =
            io.threads.checked_div(count).filter(|n| n * count == io.threads && *n > 0)?;
        let io = IoSpec { threads, stage: Some(stage), ..io };
        let flow = |&index: &u32| self.near.flow(gpu(index, MemKind::Vram), io, bytes);
        Some(Case::together(gpus.iter().map(flow).collect::<Vec<Flow>>()))
    }

    fn to_host(&self, io: IoSpec, bytes: Bytes) -> Case {
        self.near.case(numa(self.near.numa, MemKind::Huge), io, bytes)
    }

    /// All cases of a cell.
    fn cell(&self, work: GridWork, files: IoFiles, workers: u32, depth: u32) -> Vec<Case> {
        let io = self.io(work, files, workers, depth);
        let most = self.workers.last() == Some(&workers);
        let mut cases = vec![self.to_host(io, work.bytes)];
        for gpus in self.gpu_sets().filter(|set| self.all || most || set.len() == 1) {
            let more = ELBENCHO_STAGES.into_iter().filter(|_| self.all);
            let stages = STAGES.into_iter().chain(more);
            // A plan samples at most 16 cases in turn: sets leave out the kind that one GPU shows.
            let stages = stages.filter(|s| !self.all || gpus.len() == 1 || *s != STAGES[1]);
            cases.extend(stages.filter_map(|stage| self.to_gpus(gpus, io, stage, work.bytes)));
        }
        let far = self.far.as_ref().filter(|far| {
            let ends = workers == 1 || most;
            ends && workers <= far.threads && depth == FAR_DEPTH && files == IoFiles::Shared
        });
        if let Some(far) = far {
            cases.push(far.case(numa(far.numa, MemKind::Huge), io, work.bytes));
            let staged = IoSpec { stage: Some(OVERLAPPED), ..io };
            let first = self.gpus.first().map(|&index| gpu(index, MemKind::Vram));
            cases.extend(first.map(|memory| far.case(memory, staged, work.bytes)));
        }
        cases
    }

    fn depths(&self) -> &'static [u32] {
        if self.all { &DEPTHS } else { &USUAL_DEPTHS }
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (order, bytes) in [(IoOrder::Seq, BLOCK), (IoOrder::Rand, PAGE)] {
            for op in [IoOp::Read, IoOp::Write] {
                let work = GridWork { order, op, bytes };
                for files in [IoFiles::Shared, IoFiles::Own] {
                    for &workers in &self.workers {
                        // One worker has one file in either case.
                        let most = self.workers.last() == Some(&workers);
                        if files == IoFiles::Own && (workers == 1 || !(self.all || most)) {
                            continue;
                        }
                        for &depth in self.depths() {
                            cases.extend(self.cell(work, files, workers, depth));
                        }
                    }
                }
            }
        }
        cases.extend(self.cached());
        cases.extend(self.copies());
        cases
    }

    /// Through the page cache, to host memory and to the first GPU, by one worker.
    fn cached(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for op in [IoOp::Read, IoOp::Write] {
            let work = GridWork { order: IoOrder::Seq, op, bytes: BLOCK };
            for &depth in self.depths() {
                let io = self.io(work, IoFiles::Shared, 1, depth);
                let io = IoSpec { cache: IoCache::Cached, ..io };
                cases.push(self.to_host(io, BLOCK));
                let first = self.gpus.get(..1).unwrap_or_default();
                let staged = STAGES.into_iter().filter(|_| !first.is_empty());
                cases.extend(staged.filter_map(|stage| self.to_gpus(first, io, stage, BLOCK)));
            }
        }
        cases
    }

    /// The copy of a block alone: what an engine takes for it.
    fn copies(&self) -> Vec<Case> {
        let Some(&first) = self.gpus.first() else { return Vec::new() };
        let pinned = numa(self.near.numa, MemKind::Pinned);
        let vram = gpu(first, MemKind::Vram);
        let both = |bytes| [(pinned, vram, bytes), (vram, pinned, bytes)];
        let copies = [PAGE, BLOCK].into_iter().flat_map(both);
        copies.map(|(src, dst, bytes)| Case::single(src, dst, dma(first), bytes)).collect()
    }
}

/// Whole MiB, where there is more than one.
fn whole(bytes: Bytes) -> Bytes {
    let unit = Bytes::mib(1).0;
    if bytes.0 > unit { Bytes(bytes.0 / unit * unit) } else { bytes }
}

/// The grid of every store.
pub(super) fn storage_grid(scope: &PlanScope<'_>) -> Vec<Case> {
    let stores = (0..).zip(scope.stores);
    let grids = stores.map(|(n, facts)| GridScope::new(scope, StoreScope::of(scope, n, facts)));
    grids.flat_map(|grid| grid.cases()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pathline_flow::MachineDesc;
    use pathline_schema::{StoreFacts, Topology, Unit};

    use super::*;
    use crate::plan::tests::disk;
    use crate::plan::{PlannedCase, RunPlan};

    /// Two GPUs, and one NUMA domain of which two CPUs may be used.
    fn small() -> Topology {
        let mut topology = MachineDesc::preset("mi250x").unwrap().topology();
        topology.gpus.truncate(2);
        topology.numa.truncate(1);
        topology.host.allowed_cpus = "0-1".parse().unwrap();
        topology
    }

    /// 2 CPUs and 2 GPUs. A cell with 1 worker has the host and gpu0 by 2 stages (a worker serves one GPU),
    /// with 2 workers also both GPUs. Each is taken at 3 depths; the data of 1 and 2 workers in one file and
    /// of 2 in their own; 2 blocks, reads and writes. Cached: 2 operations, 3 depths, host and gpu0.
    #[test]
    fn grid_of_two_cpus_and_two_gpus() {
        let grid = |all_pairs| {
            let (topology, stores) = (small(), [disk()]);
            let scope = PlanScope {
                stores: &stores,
                all_pairs,
                ..PlanScope::new(&topology, Bytes::gib(64))
            };
            RunPlan::new(&scope, &["storage-grid".to_owned()], &[]).unwrap().entries
        };
        let (one, two) = (1 + 2, 1 + 2 + 2);
        let usual = grid(false);
        assert_eq!(usual.len(), 4 * 3 * (one + two + two) + 2 * 3 * 3 + 4);
        // With elbencho's 2 stages; both GPUs then lack the one that gpu0 shows. 5 depths.
        let (one, two) = (1 + 4, 1 + 4 + 3);
        assert_eq!(grid(true).len(), 4 * 5 * (one + two + two) + 2 * 5 * 3 + 4);
        assert_eq!(usual.iter().filter_map(|e| e.skip.as_ref()).next(), None);
        // A cell is sampled in turn: the host first, then GPUs with as many workers in all.
        let cell: Vec<String> = usual
            .iter()
            .filter(|e| e.group == usual[9].group)
            .map(|e| e.case.to_string())
            .collect();
        let read = |to: &str, threads: u32, stage: &str| {
            format!(
                "r0.store0.file > r0.{to} by uring@numa0[seq-read,direct,shared,1GiB,q1,n1,t{threads}{stage}] x 1MiB"
            )
        };
        let both =
            |stage: &str| [read("gpu0.vram", 1, stage), read("gpu1.vram", 1, stage)].join(" & ");
        let (piped, waits) = (",pipelined-registered-huge", ",blocking-pinned");
        assert_eq!(
            cell,
            [
                read("numa0.huge", 2, ""),
                read("gpu0.vram", 2, piped),
                read("gpu0.vram", 2, waits),
                both(piped),
                both(waits)
            ]
        );
        // Two workers with files of their own have half of the span each.
        let own = usual.iter().filter_map(|e| e.case.timed[0].by.io());
        let spans: BTreeSet<Bytes> =
            own.filter(|io| io.files == pathline_schema::IoFiles::Own).map(|io| io.span).collect();
        assert_eq!(spans, BTreeSet::from([Bytes::mib(512)]));
    }

    /// With a second NUMA domain the ends of the workers have an arm on its cores, in the same group.
    #[test]
    fn the_grid_has_an_arm_on_the_far_domain() {
        let machine = pathline_flow::MachineDesc::preset("mi250x").unwrap().topology();
        let stores = [StoreFacts { numa: Some(0), ..disk() }];
        let scope = PlanScope { stores: &stores, ..PlanScope::new(&machine, Bytes::gib(512)) };
        let plan = RunPlan::new(&scope, &["storage-grid".to_owned()], &[]).unwrap();
        let far: Vec<&PlannedCase> =
            plan.entries.iter().filter(|e| e.case.timed[0].by.at() == Unit::Numa(1)).collect();
        // 1 and 8 workers; host and gpu0; 2 blocks; reads and writes.
        assert_eq!(far.len(), 2 * 2 * 4);
        for entry in far {
            let near = entry.case.to_string().replace("numa1", "numa0");
            let near = plan.entries.iter().find(|e| e.case.to_string() == near).unwrap();
            assert_eq!(near.group, entry.group, "{}", entry.case);
        }
        // 8 GPUs at once share 8 workers.
        let all = plan.entries.iter().filter(|e| e.case.timed.len() == 8).count();
        assert_eq!(all, 4 * 2 * 3 * 2);
    }
}
