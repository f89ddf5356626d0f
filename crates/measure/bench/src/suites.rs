//! The suites, in display order. A suite is a name and a function that makes its cases from a
//! topology.

mod at_once;
pub(crate) mod between;
pub(crate) mod bystander;
mod cache_ring;
mod collective_threads;
mod contention;
mod host;
mod load;
mod memory;
mod metadata;
mod mpi_switches;
mod multipath;
mod net;
mod osu;
mod payloads;
mod peers;
mod rank_flows;
mod rank_storage;
mod shm;
mod shm_methods;
mod storage;
mod storage_grid;

use crate::scope::{PlanScope, RandomDraw};
pub(crate) use contention::queue;
pub(crate) use host::default_cases as default_host_cases;
use host::{copies, host, ladder, streaming, threads_of, widest};
pub use net::rails_of;
use pathline_flow::routes::RouteTable;
use pathline_schema::{
    Bytes, Case, CpuHow, CpuOp, CpuWork, Flow, KernelOp, KernelVariant, LinkEnd, MemKind,
    MigrateHow, Mover, Ns, Place, SizeEffects, SuiteId, Topology, Transport, Unit,
};
use payloads::{BULK, CHASED_FAR, PayloadSizes, chased};
pub(crate) use payloads::{core_bulk, core_cache};

/// A named set of cases.
#[derive(Debug, Clone, Copy)]
pub struct SuiteSpec {
    /// Its name on the command line and in records.
    pub id: SuiteId,
    /// Its question, in one line.
    pub about: &'static str,
    /// Whether a run without `--suite` includes it.
    pub by_default: fn(&PlanScope<'_>) -> bool,
    /// Its cases on a topology, whether or not they can be measured there.
    pub cases: CaseMaker,
}

/// How a suite makes its cases.
#[derive(Debug, Clone, Copy)]
pub enum CaseMaker {
    /// Each is a separate figure.
    Figures(fn(&Topology) -> Vec<Case>),
    /// Hundreds of cases to fit or test a model. They run only if their suite is named, not by a
    /// pattern, and have [`PROBE_BUDGET`] each.
    Probes(fn(&Topology, RandomDraw) -> Vec<Case>),
    /// Cases that depend on more than the node: processes of the run, file stores.
    Scoped(fn(&PlanScope<'_>) -> Vec<Case>),
}

impl CaseMaker {
    /// The cases of a machine.
    pub fn of(&self, scope: &PlanScope<'_>) -> Vec<Case> {
        match self {
            Self::Figures(cases) => cases(scope.topology),
            Self::Probes(cases) => cases(scope.topology, scope.draw),
            Self::Scoped(cases) => cases(scope),
        }
    }

    /// Whether its cases are probes.
    pub const fn are_probes(&self) -> bool {
        matches!(self, Self::Probes(_))
    }
}

/// Time budget of a probe, unless `--case-budget` sets another: 16 samples of the longest one (four
/// H200s take 3.3 ms for concurrent copies into all of them), 40 of a lone path.
pub const PROBE_BUDGET: Ns = Ns::ms(60.0);

/// The same of a copy of pageable memory: a GiB takes the runtime 0.15 s, and an interval six visits. In 1 s an
/// H200 had three.
const LOAD_BUDGET: Ns = Ns::ms(2000.0);

impl SuiteSpec {
    /// Time budget of each of its cases, where it is not the one of the settings.
    pub(crate) fn budget(&self) -> Option<Ns> {
        match self.id {
            SuiteId::Load => Some(LOAD_BUDGET),
            _ => self.cases.are_probes().then_some(PROBE_BUDGET),
        }
    }
}

/// All suites.
///
/// A run without `--suite` on a node of 8 GPUs must end within 180 s. A bandwidth case takes 60 to
/// 100 ms there (a sample of 0.7 to 5 ms some ten to twenty times, its buffers, its check), one
/// over the host link or of page migration up to three times that, a pointer chase 0.2 s. On 8 GPUs
/// behind NVLink switches with two NUMA domains that makes, in seconds: local 40 x 0.1 + 23 x 0.2 =
/// 9, host-link 120 x 0.15 = 18, pairs 337 x 0.08 = 27, latency 80 x 0.05 + 64 x 0.2 = 17, sweep
/// 107 x 0.2 = 21, fan 16 x 0.4 = 6, patterns 12 x 0.3 = 4, managed 28 x 0.2 = 6, overhead 43 x
/// 0.25 = 11 (as measured on one H200), overlap 27 x 0.15 = 4, numa-gpu 36 x 0.15 = 5: 128 s.
pub const SUITES: &[SuiteSpec] = &[
    SuiteSpec {
        id: SuiteId::Host,
        about: "CPU threads: read, write, copy, triad, load latency, first touch, per NUMA pair",
        by_default: host_by_default,
        cases: CaseMaker::Figures(host),
    },
    SuiteSpec {
        id: SuiteId::Local,
        about: "each GPU's own memory: copy engine, read, write, copy, triad; caches by load latency",
        by_default: has_gpus,
        cases: CaseMaker::Figures(local),
    },
    SuiteSpec {
        id: SuiteId::HostLink,
        about: "H2D, D2H and both: every kind of memory, zero-copy, page migration",
        by_default: has_gpus,
        cases: CaseMaker::Figures(host_link),
    },
    SuiteSpec {
        id: SuiteId::Pairs,
        about: "P2P between every ordered pair of GPUs: copy engine, blit, kernels, staged; both directions",
        by_default: has_gpus,
        cases: CaseMaker::Figures(pairs),
    },
    SuiteSpec {
        id: SuiteId::Latency,
        about: "16 B copies and pointer chases between all GPUs and with the host",
        by_default: has_gpus,
        cases: CaseMaker::Figures(latency),
    },
    SuiteSpec {
        id: SuiteId::Sweep,
        about: "one path of each class over 256 B to 8 GiB",
        by_default: has_gpus,
        cases: CaseMaker::Figures(sweep),
    },
    SuiteSpec {
        id: SuiteId::Fan,
        about: "1, 2, 4, all GPUs at once against host memory: same package and spread",
        by_default: has_gpus,
        cases: CaseMaker::Figures(at_once::fan),
    },
    SuiteSpec {
        id: SuiteId::Patterns,
        about: "GPUs at once: all to one, one to all, ring, halves, all to all",
        by_default: has_gpus,
        cases: CaseMaker::Figures(at_once::patterns),
    },
    SuiteSpec {
        id: SuiteId::Managed,
        about: "managed memory: in place, by page faults, by prefetch, back, GPU to GPU, resident",
        by_default: has_gpus,
        cases: CaseMaker::Figures(memory::managed),
    },
    SuiteSpec {
        id: SuiteId::Overhead,
        about: "cost of runtime calls: allocate, free, pin, launch, synchronise; a batch of copies",
        by_default: has_gpus,
        cases: CaseMaker::Figures(memory::overhead),
    },
    SuiteSpec {
        id: SuiteId::Overlap,
        about: "copies while kernels of the same GPU run: the rate that each keeps",
        by_default: has_gpus,
        cases: CaseMaker::Figures(at_once::overlap),
    },
    SuiteSpec {
        id: SuiteId::NumaGpu,
        about: "pinned memory of every NUMA domain to and from every GPU",
        // With one domain host-link has these cases.
        by_default: |scope| has_gpus(scope) && scope.topology.numa.len() > 1,
        cases: CaseMaker::Figures(memory::numa_gpu),
    },
    SuiteSpec {
        id: SuiteId::Routes,
        about: "links that a routed copy takes, found by loading one of them at the same time",
        by_default: has_gpus,
        cases: CaseMaker::Figures(routes),
    },
    SuiteSpec {
        id: SuiteId::Multipath,
        about: "copies over several paths: relays, and the same bytes to 2, 4, all GPUs; next to plain ones",
        by_default: |_| false,
        cases: CaseMaker::Figures(multipath::multipath),
    },
    SuiteSpec {
        id: SuiteId::Load,
        about: "pageable memory to and from a GPU: the runtime's copy, 1 to n threads, pinned memory",
        by_default: |_| false,
        cases: CaseMaker::Figures(load::load),
    },
    SuiteSpec {
        id: SuiteId::Blocks,
        about: "scattered blocks to and from a GPU: a copy each, one call for many, one kernel",
        by_default: |_| false,
        cases: CaseMaker::Figures(load::blocks),
    },
    SuiteSpec {
        id: SuiteId::Contention,
        about: "input of `model fit`: every copy-engine path alone, and chosen sets at once",
        by_default: |_| false,
        cases: CaseMaker::Probes(contention::contention),
    },
    SuiteSpec {
        id: SuiteId::Concurrent,
        about: "random sets of 2 to 16 concurrent copies, to test predictions",
        by_default: |_| false,
        cases: CaseMaker::Probes(contention::concurrent),
    },
    SuiteSpec {
        id: SuiteId::MpiLatency,
        about: "MPI ping-pong latency, 1 B to 4 MiB, every kind of memory",
        by_default: |scope| {
            scope.ranks.len() >= 2 && rank_flows::have_transport(scope, Transport::Mpi)
        },
        cases: CaseMaker::Scoped(between::mpi_latency),
    },
    SuiteSpec {
        id: SuiteId::MpiBandwidth,
        about: "MPI bandwidth of message windows, 1 B to 1 GiB, every kind of memory",
        by_default: |scope| {
            scope.ranks.len() >= 2 && rank_flows::have_transport(scope, Transport::Mpi)
        },
        cases: CaseMaker::Scoped(between::mpi_bandwidth),
    },
    SuiteSpec {
        id: SuiteId::MpiBothWays,
        about: "MPI bandwidth in both directions at once",
        by_default: |scope| {
            scope.ranks.len() >= 2 && rank_flows::have_transport(scope, Transport::Mpi)
        },
        cases: CaseMaker::Scoped(between::mpi_bidirectional),
    },
    SuiteSpec {
        id: SuiteId::MpiMixed,
        about: "MPI between unlike memories: D H, H D, M D, D M; latency and bandwidth by size",
        by_default: |_| false,
        cases: CaseMaker::Scoped(between::mpi_mixed),
    },
    SuiteSpec {
        id: SuiteId::MpiOneSided,
        about: "MPI put and get",
        by_default: |scope| {
            scope.ranks.len() >= 2 && rank_flows::have_transport(scope, Transport::Mpi)
        },
        cases: CaseMaker::Scoped(between::mpi_one_sided),
    },
    SuiteSpec {
        id: SuiteId::MpiWindows,
        about: "MPI put and get by kind of window (create, allocate, dynamic) and synchronisation",
        by_default: |_| false,
        cases: CaseMaker::Scoped(osu::windows),
    },
    SuiteSpec {
        id: SuiteId::MpiAtomics,
        about: "MPI accumulate, get_accumulate, fetch_and_op, compare_and_swap",
        by_default: |_| false,
        cases: CaseMaker::Scoped(osu::atomics),
    },
    SuiteSpec {
        id: SuiteId::MpiMultiLatency,
        about: "MPI ping-pong of 1, 2, 4 and all pairs at once",
        by_default: |_| false,
        cases: CaseMaker::Scoped(osu::multi_latency),
    },
    SuiteSpec {
        id: SuiteId::MpiOverlap,
        about: "MPI non-blocking collectives: share of the communication that work hides",
        by_default: |_| false,
        cases: CaseMaker::Scoped(osu::overlap),
    },
    SuiteSpec {
        id: SuiteId::MpiPersistent,
        about: "MPI persistent messages and collectives next to plain ones",
        by_default: |_| false,
        cases: CaseMaker::Scoped(osu::persistent),
    },
    SuiteSpec {
        id: SuiteId::MpiPairs,
        about: "MPI between every ordered pair of ranks: 8 B latency, 1 MiB bandwidth",
        by_default: |scope| {
            scope.ranks.len() >= 3 && rank_flows::have_transport(scope, Transport::Mpi)
        },
        cases: CaseMaker::Scoped(between::mpi_pairs),
    },
    SuiteSpec {
        id: SuiteId::MpiPeers,
        about: "MPI from GPU 0 to each peer next to direct copies: 8 B to 1 GiB, SDMA and blit",
        by_default: peers::by_default,
        cases: CaseMaker::Scoped(peers::mpi_peers),
    },
    SuiteSpec {
        id: SuiteId::MpiConcurrent,
        about: "MPI: 1, 2, 4 and all pairs at once",
        by_default: |scope| {
            scope.ranks.len() >= 4 && rank_flows::have_transport(scope, Transport::Mpi)
        },
        cases: CaseMaker::Scoped(between::mpi_concurrent),
    },
    SuiteSpec {
        id: SuiteId::Net,
        about: "MPI between every two nodes, all nodes at once, rail by rail: 8 B, one way, both ways",
        by_default: |_| false,
        cases: CaseMaker::Scoped(net::net),
    },
    SuiteSpec {
        id: SuiteId::MpiSwitches,
        about: "MPI over UCX by each generation of UCX's protocols: messages and collectives",
        by_default: |_| false,
        cases: CaseMaker::Scoped(mpi_switches::mpi_switches),
    },
    SuiteSpec {
        id: SuiteId::MpiCollectives,
        about: "MPI: reduce, broadcast, all_reduce and the others over 2 to all ranks",
        by_default: |scope| {
            scope.ranks.len() >= 2 && rank_flows::have_transport(scope, Transport::Mpi)
        },
        cases: CaseMaker::Scoped(between::mpi_collectives),
    },
    SuiteSpec {
        id: SuiteId::CclCollectives,
        about: "NCCL, RCCL: collectives over 2 to all GPUs, streaming, isolated and as graphs",
        by_default: |scope| {
            !scope.ranks.is_empty() && rank_flows::have_transport(scope, Transport::Ccl)
        },
        cases: CaseMaker::Scoped(between::ccl_collectives),
    },
    SuiteSpec {
        id: SuiteId::CollectiveTypes,
        about: "all_reduce of every element type by every operation: 1 KiB, 1 MiB, 64 MiB",
        by_default: |_| false,
        cases: CaseMaker::Scoped(between::collective_types),
    },
    SuiteSpec {
        id: SuiteId::CclPairs,
        about: "NCCL, RCCL: send and receive between every ordered pair of GPUs",
        by_default: |scope| {
            !scope.ranks.is_empty() && rank_flows::have_transport(scope, Transport::Ccl)
        },
        cases: CaseMaker::Scoped(between::ccl_pairs),
    },
    SuiteSpec {
        id: SuiteId::Ucx,
        about: "UCX: tagged messages, put and get, from every kind of memory",
        by_default: |scope| {
            scope.ranks.len() >= 2 && rank_flows::have_transport(scope, Transport::Ucx)
        },
        cases: CaseMaker::Scoped(between::ucx),
    },
    SuiteSpec {
        id: SuiteId::UcxMixed,
        about: "UCX between unlike memories, of two processes and within one (loop-back)",
        by_default: |_| false,
        cases: CaseMaker::Scoped(between::ucx_mixed),
    },
    SuiteSpec {
        id: SuiteId::UcxSwitches,
        about: "effect of each UCX setting, by size and kind of memory",
        by_default: |_| false,
        cases: CaseMaker::Scoped(between::ucx_switches),
    },
    SuiteSpec {
        id: SuiteId::Registration,
        about: "cost of registering host and GPU memory with an RDMA adapter",
        by_default: |_| false,
        cases: CaseMaker::Scoped(memory::registration),
    },
    SuiteSpec {
        id: SuiteId::Shm,
        about: "processes of one node: shared memory, CMA, xpmem; a bystander's loss",
        by_default: shm_by_default,
        cases: CaseMaker::Scoped(shm::cases),
    },
    SuiteSpec {
        id: SuiteId::Storage,
        about: "I/O on files of --store: engines, queue depth, workers; to and from GPUs",
        by_default: |scope| !is_group(scope) && !scope.simulated && !scope.stores.is_empty(),
        cases: CaseMaker::Scoped(storage::storage),
    },
    SuiteSpec {
        id: SuiteId::StorageGrid,
        about: "I/O to host memory and 1, 2, 4, all GPUs: workers, depth, shared or own files",
        by_default: |_| false,
        cases: CaseMaker::Scoped(storage_grid::storage_grid),
    },
    SuiteSpec {
        id: SuiteId::Metadata,
        about: "create, stat, read and delete many small files and folders of --store",
        by_default: |_| false,
        cases: CaseMaker::Scoped(metadata::metadata),
    },
    SuiteSpec {
        id: SuiteId::StorageRanks,
        about: "all ranks of a run do I/O on --store together: one file, a file each, many files",
        by_default: |_| false,
        cases: CaseMaker::Scoped(rank_storage::storage_ranks),
    },
];

/// Maximum GPUs with which a run without `--suite` measures the host's loops, too: 20 s a socket, where four
/// GPUs take about a minute.
const MAX_GPUS_WITH_HOST: usize = 4;

/// A model's CPU loops only repeat its description: they run on request.
fn host_by_default(scope: &PlanScope<'_>) -> bool {
    if is_group(scope) {
        return false;
    }
    let gpus = if scope.without_runtime.is_some() { 0 } else { scope.topology.gpus.len() };
    match scope.simulated {
        true => scope.topology.gpus.is_empty(),
        false => gpus <= MAX_GPUS_WITH_HOST,
    }
}

/// A model's copies between cores rest on assumed constants: they run on request.
fn shm_by_default(scope: &PlanScope<'_>) -> bool {
    !scope.simulated && scope.ranks.len() >= 2 && rank_flows::have_transport(scope, Transport::Shm)
}

/// Several processes measure the traffic between them, unless a suite of one process is named.
fn is_group(scope: &PlanScope<'_>) -> bool {
    scope.ranks.len() > 1
}

fn has_gpus(scope: &PlanScope<'_>) -> bool {
    !is_group(scope) && !scope.topology.gpus.is_empty()
}

fn gpu(index: u32, mem: MemKind) -> Place {
    Place::new(Unit::Gpu(index), mem)
}
fn numa(id: u32, mem: MemKind) -> Place {
    Place::new(Unit::Numa(id), mem)
}
fn dma(at: u32) -> Mover {
    Mover::Dma { at: Unit::Gpu(at) }
}
fn blit(at: u32) -> Mover {
    Mover::Blit { at: Unit::Gpu(at) }
}
fn chase(at: u32) -> Mover {
    Mover::Kernel { at: Unit::Gpu(at), variant: KernelVariant::chase() }
}
fn compute(at: u32) -> Mover {
    Mover::Kernel { at: Unit::Gpu(at), variant: KernelVariant::compute() }
}
fn kernel(at: u32, op: KernelOp) -> Mover {
    Mover::Kernel { at: Unit::Gpu(at), variant: KernelVariant::standard(op) }
}
fn cpu(at: u32, op: CpuOp, how: CpuHow, threads: u32) -> Mover {
    Mover::Cpu { at: Unit::Numa(at), work: CpuWork { op, how }, threads }
}

/// Sizes of a sweep: powers of four from `from` to `to`, and `to` itself.
fn sizes(from: Bytes, to: Bytes) -> Vec<Bytes> {
    let mut sizes: Vec<Bytes> =
        std::iter::successors(Some(from), |b| b.0.checked_mul(4).map(Bytes))
            .take_while(|&b| b < to)
            .collect();
    sizes.push(to);
    sizes
}

/// The same sizes in another order: the largest, on which summaries rest, then every eighth, then
/// the middle ones between them, and so on. A run with a time limit then covers the whole range
/// coarsely.
fn coarse_first(sizes: &[Bytes]) -> Vec<Bytes> {
    let mut order: Vec<Bytes> = sizes.last().copied().into_iter().collect();
    for step in [8, 4, 2, 1] {
        let next = sizes.iter().step_by(step).filter(|s| !order.contains(*s));
        let next: Vec<Bytes> = next.copied().collect();
        order.extend(next);
    }
    order
}

fn local(topology: &Topology) -> Vec<Case> {
    let payload = PayloadSizes::of(topology).local;
    let mut cases = Vec::new();
    for g in topology.gpus.iter().map(|g| g.index) {
        let (memory, regs) = (gpu(g, MemKind::Vram), gpu(g, MemKind::Reg));
        cases.push(Case::single(memory, memory, dma(g), payload));
        cases.push(Case::single(memory, memory, kernel(g, KernelOp::Copy), payload));
        cases.push(Case::single(memory, regs, kernel(g, KernelOp::Read), payload));
        cases.push(Case::single(regs, memory, kernel(g, KernelOp::Write), payload));
        cases.push(Case::single(memory, memory, kernel(g, KernelOp::Triad), payload));
        cases.push(Case::single(memory, regs, chase(g), chased(topology)));
    }
    // All GPUs of a node have the same caches: the sweep runs on the first.
    if let Some(first) = topology.gpus.first().map(|g| g.index) {
        let (memory, regs) = (gpu(first, MemKind::Vram), gpu(first, MemKind::Reg));
        let spans = cache_spans(chased(topology));
        cases.extend(spans.map(|span| Case::single(memory, regs, chase(first), span)));
    }
    cases
}

/// Spans of chains that show the caches of a GPU: powers of two from 4 KiB to less than the span that no
/// cache holds.
fn cache_spans(past_caches: Bytes) -> impl Iterator<Item = Bytes> {
    let spans = std::iter::successors(Some(Bytes::kib(4)), |b| b.0.checked_mul(2).map(Bytes));
    spans.take_while(move |&span| span < past_caches)
}

/// The NUMA domain whose memory is nearest to a GPU; the first one if unknown.
fn home(topology: &Topology, g: u32) -> u32 {
    let stated = topology.gpus.iter().find(|gpu| gpu.index == g).and_then(|gpu| gpu.numa);
    stated.or_else(|| topology.numa.first().map(|d| d.id)).unwrap_or(0)
}

/// Paths by kind, each for all GPUs: they are compared, and share buffers that take longer to
/// page-lock than to copy (353 ms a GiB on a node of H200s).
fn host_link(topology: &Topology) -> Vec<Case> {
    let gpus = || topology.gpus.iter().map(|g| g.index);
    let each: Vec<Vec<Case>> = gpus().map(|g| host_link_of(topology, g)).collect();
    let kinds = each.first().map_or(0, Vec::len);
    let mut cases: Vec<Case> =
        (0..kinds).flat_map(|nth| each.iter().filter_map(move |of| of.get(nth).cloned())).collect();
    cases.extend(gpus().next().into_iter().flat_map(|g| rare_host_link(topology, g)));
    cases
}

/// The paths of one GPU to and from its nearest host memory. Neighbours share buffers.
fn host_link_of(topology: &Topology, g: u32) -> Vec<Case> {
    let host = |mem| numa(home(topology, g), mem);
    let (vram, regs, pinned) = (gpu(g, MemKind::Vram), gpu(g, MemKind::Reg), host(MemKind::Pinned));
    let single = |src, dst, by| Case::single(src, dst, by, BULK);
    let (read, write, copy) =
        (kernel(g, KernelOp::Read), kernel(g, KernelOp::Write), kernel(g, KernelOp::Copy));
    let both = |by| {
        Case::together(vec![
            Flow { src: pinned, dst: vram, by, bytes: BULK },
            Flow { src: vram, dst: pinned, by, bytes: BULK },
        ])
    };
    let mut cases = Vec::new();
    let unlike = topology.any_gpu(|caps| caps.memory_grains).then_some(MemKind::PinnedNonCoherent);
    for mem in [MemKind::Paged].into_iter().chain(unlike) {
        cases.push(single(host(mem), vram, dma(g)));
        cases.push(single(vram, host(mem), dma(g)));
    }
    cases.extend([
        single(pinned, vram, dma(g)),
        single(pinned, regs, read),
        single(pinned, vram, copy),
        both(dma(g)),
        both(copy),
        single(vram, pinned, dma(g)),
        single(regs, pinned, write),
        single(vram, pinned, copy),
        single(host(MemKind::Managed), regs, read),
        single(regs, host(MemKind::Managed), write),
    ]);
    for how in [MigrateHow::Fault, MigrateHow::Prefetch] {
        let by = Mover::Migrate { at: Unit::Gpu(g), how };
        cases.push(single(host(MemKind::Managed), gpu(g, MemKind::Managed), by));
    }
    cases
}

/// Payload of a kernel that reads host memory several times: half of the smallest L2 cache of the GPUs
/// that this program knows well (8 MiB, MI250X), and more than all first-level caches together.
const REREAD: Bytes = Bytes::mib(4);

/// Differences between kinds of memory do not depend on the GPU: the rarer kinds run once.
fn rare_host_link(topology: &Topology, g: u32) -> Vec<Case> {
    let (vram, regs) = (gpu(g, MemKind::Vram), gpu(g, MemKind::Reg));
    let single = |src, dst, by| Case::single(src, dst, by, BULK);
    let unlike = topology.any_gpu(|caps| caps.memory_grains).then_some(MemKind::PinnedNonCoherent);
    let mut cases = Vec::new();
    for mem in [MemKind::Registered, MemKind::PinnedWc].into_iter().chain(unlike) {
        let host = numa(home(topology, g), mem);
        // Copies of the third kind are among those of every GPU.
        let engine = Some(dma(g)).filter(|_| mem != MemKind::PinnedNonCoherent);
        cases.extend(engine.map(|by| single(host, vram, by)));
        cases.push(single(host, regs, kernel(g, KernelOp::Read)));
        cases.extend(engine.map(|by| single(vram, host, by)));
        cases.push(single(regs, host, kernel(g, KernelOp::Write)));
    }
    let again = Mover::Kernel { at: Unit::Gpu(g), variant: KernelVariant::rereading() };
    for mem in [MemKind::Pinned].into_iter().chain(unlike) {
        cases.push(Case::single(numa(home(topology, g), mem), regs, again, REREAD));
    }
    cases
}

/// Ordered pairs of different GPUs.
fn ordered_pairs(topology: &Topology) -> impl Iterator<Item = (u32, u32)> + '_ {
    let indices = || topology.gpus.iter().map(|g| g.index);
    indices().flat_map(move |a| indices().filter(move |&b| b != a).map(move |b| (a, b)))
}

/// The movers between two GPUs, for the direction `a` to `b`.
fn pair_movers(topology: &Topology, a: u32, b: u32) -> Vec<Mover> {
    // Without a selectable copy kernel, engines differ by the end that issues the copy.
    let other = if topology.any_gpu(|caps| caps.copy_kernel) { blit(b) } else { dma(b) };
    let mut movers = vec![dma(a), other];
    movers.extend([kernel(b, KernelOp::Copy), kernel(a, KernelOp::Copy)]);
    movers
}

fn pairs(topology: &Topology) -> Vec<Case> {
    let payloads = PayloadSizes::of(topology);
    let flow = |a, b, by, bidirectional| {
        let bytes = payloads.between(&by, bidirectional);
        Flow { src: gpu(a, MemKind::Vram), dst: gpu(b, MemKind::Vram), by, bytes }
    };
    let by = |(a, b): (u32, u32), nth: usize| pair_movers(topology, a, b).into_iter().nth(nth);
    let mut cases = Vec::new();
    // By mover first, so that a whole matrix is sampled interleaved.
    for nth in 0..pair_movers(topology, 0, 0).len() {
        let one = |(a, b)| Some(Case::together(vec![flow(a, b, by((a, b), nth)?, false)]));
        cases.extend(ordered_pairs(topology).filter_map(one));
        let both = |(a, b)| {
            let (there, back) = (by((a, b), nth)?, by((b, a), nth)?);
            Some(Case::together(vec![flow(a, b, there, true), flow(b, a, back, true)]))
        };
        cases.extend(ordered_pairs(topology).filter(|(a, b)| a < b).filter_map(both));
    }
    // Through the host all pairs are alike, except for the direct path that they replace.
    for (a, b) in pairs_of_each_class(topology) {
        let via = Unit::Numa(home(topology, a));
        let by = Mover::Staged { at: Unit::Gpu(a), via };
        let staged = Flow { bytes: BULK, ..flow(a, b, by, false) };
        cases.push(Case::together(vec![staged]));
    }
    cases
}

fn latency(topology: &Topology) -> Vec<Case> {
    let indices = || topology.gpus.iter().map(|g| g.index);
    let tiny = |src, dst, at| Case::single(src, dst, dma(at), Bytes(16)).isolated();
    let vram = |g| gpu(g, MemKind::Vram);
    let pinned = |g| numa(home(topology, g), MemKind::Pinned);
    let all = indices().flat_map(|a| indices().map(move |b| (a, b)));
    let mut cases: Vec<Case> = all.map(|(a, b)| tiny(vram(a), vram(b), a)).collect();
    cases.extend(indices().map(|g| tiny(pinned(g), vram(g), g)));
    cases.extend(indices().map(|g| tiny(vram(g), pinned(g), g)));
    let load = |src, g| Case::single(src, gpu(g, MemKind::Reg), chase(g), CHASED_FAR);
    cases.extend(ordered_pairs(topology).map(|(a, b)| load(vram(b), a)));
    cases.extend(indices().map(|g| load(pinned(g), g)));
    cases
}

fn sweep(topology: &Topology) -> Vec<Case> {
    let Some(first) = topology.gpus.first().map(|g| g.index) else { return Vec::new() };
    let h = home(topology, first);
    let vram = |g| gpu(g, MemKind::Vram);
    let copy = kernel(first, KernelOp::Copy);
    let mut paths = vec![
        (numa(h, MemKind::Paged), vram(first), dma(first)),
        (numa(h, MemKind::Pinned), vram(first), dma(first)),
        (vram(first), numa(h, MemKind::Pinned), dma(first)),
        (numa(h, MemKind::Managed), gpu(first, MemKind::Reg), kernel(first, KernelOp::Read)),
        (
            numa(h, MemKind::Managed),
            gpu(first, MemKind::Managed),
            Mover::Migrate { at: Unit::Gpu(first), how: MigrateHow::Fault },
        ),
        (vram(first), vram(first), copy),
    ];
    for peer in peers_of_each_class(topology, first) {
        paths.push((vram(first), vram(peer), dma(first)));
        paths.push((vram(peer), vram(first), copy));
    }
    // Page-locking or faulting in gigabytes takes longer than to copy them.
    let between_gpus =
        |src: Place, dst: Place| src.mem == MemKind::Vram && dst.mem == MemKind::Vram;
    let largest = |src: Place, dst: Place| match between_gpus(src, dst) {
        true => Bytes::gib(8),
        false => Bytes::gib(1),
    };
    // Last, so that the coarse order of the other sizes stays.
    let order = coarse_first(&sizes(Bytes(256), Bytes::gib(8))).into_iter().chain([CROSSOVER]);
    let mut cases = Vec::new();
    for bytes in order {
        let fits = paths.iter().filter(|&&(src, dst, _)| {
            bytes <= largest(src, dst) && (bytes != CROSSOVER || !between_gpus(src, dst))
        });
        cases.extend(fits.map(|&(src, dst, by)| Case::single(src, dst, by, bytes)));
    }
    // The runtime's own kernel, which a setting of a whole job chooses at all sizes, but not for pageable memory.
    if topology.any_gpu(|caps| caps.copy_kernel) {
        for &(src, dst, by) in paths.iter().skip(1).filter(|path| path.2 == dma(first)) {
            let blit = |bytes| Case::together(vec![Flow { src, dst, by, bytes }.by_copy_kernel()]);
            cases.extend(SizeEffects::ALL.map(blit));
        }
    }
    cases
}

/// Size between 16 and 64 MiB at which host paths are swept, too: up to here zero-copy access is as
/// fast as a copy of pinned memory on an MI250X node (arXiv:2410.00801, figure 3).
const CROSSOVER: Bytes = Bytes::mib(32);

/// One peer for each width and length of route from `first`, nearest class first.
fn peers_of_each_class(topology: &Topology, first: u32) -> Vec<u32> {
    let from_first = ordered_pairs(topology).filter(|&(a, _)| a == first);
    first_of_each_class(topology, from_first).into_iter().map(|(_, b)| b).collect()
}

/// One pair for each width and length of route.
fn pairs_of_each_class(topology: &Topology) -> Vec<(u32, u32)> {
    first_of_each_class(topology, ordered_pairs(topology).filter(|(a, b)| a < b))
}

fn first_of_each_class(
    topology: &Topology,
    pairs: impl Iterator<Item = (u32, u32)>,
) -> Vec<(u32, u32)> {
    let routes = RouteTable::of(topology);
    let mut seen = Vec::new();
    let mut firsts = Vec::new();
    for (a, b) in pairs {
        let class = routes.in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b)).map(|r| (r.hops, r.width));
        if !seen.contains(&class) {
            seen.push(class);
            firsts.push((a, b));
        }
    }
    firsts
}

/// For every routed pair, its copy alone and with a copy over each link of each possible route:
/// links that slow it are on its route.
fn routes(topology: &Topology) -> Vec<Case> {
    let flow = |a: u32, b: u32| Flow {
        src: gpu(a, MemKind::Vram),
        dst: gpu(b, MemKind::Vram),
        by: kernel(b, KernelOp::Copy),
        bytes: BULK,
    };
    let known = RouteTable::of(topology);
    let mut cases = Vec::new();
    for (a, b) in ordered_pairs(topology).filter(|(a, b)| a < b) {
        let timed = flow(a, b);
        let links = candidate_links(&known, a, b);
        if !links.is_empty() {
            cases.push(Case::together(vec![timed]));
        }
        for (c, d) in links {
            let mut case = Case::together(vec![timed]);
            case.background = vec![flow(c, d)];
            cases.push(case);
        }
    }
    cases
}

/// Links between GPUs, as directed pairs, of the routes in use from `a` to `b`, shortest or widest;
/// empty if no GPU lies between.
fn candidate_links(routes: &RouteTable, a: u32, b: u32) -> Vec<(u32, u32)> {
    let (src, dst) = (LinkEnd::Gpu(a), LinkEnd::Gpu(b));
    let in_use = routes.in_use(src, dst).map(|r| r.paths).unwrap_or_default();
    let paths = in_use.into_iter().chain(routes.shortest(src, dst)).chain(routes.widest(src, dst));
    let mut links = Vec::new();
    for path in paths.filter(|p| p.nodes.len() > 2) {
        for hop in path.nodes.windows(2) {
            if let [LinkEnd::Gpu(c), LinkEnd::Gpu(d)] = *hop
                && !links.contains(&(c, d))
            {
                links.push((c, d));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_in_the_table_once() {
        let ids: Vec<SuiteId> = SUITES.iter().map(|suite| suite.id).collect();
        assert_eq!(ids, SuiteId::ALL);
    }

    #[test]
    fn an_interrupted_sweep_covers_the_whole_range_coarsely() {
        let all = sizes(Bytes::kib(4), Bytes::gib(1));
        let order = coarse_first(&all);
        let (first, mut sorted) = (order[..4].to_vec(), order.clone());
        // The largest; positions 0 and 8 of ten, then 4: 4 KiB x 4^8 = 256 MiB, 4 KiB x 4^4 = 1 MiB.
        assert_eq!(first, [Bytes::gib(1), Bytes::kib(4), Bytes::mib(256), Bytes::mib(1)]);
        sorted.sort();
        assert_eq!(sorted, all);
    }
}
