//! The path of I/O: store, memory, the copy to or from a GPU, and the threads that do it all. Each is
//! a bound; their joint effect through queues is simulated, not stated here.

use pathline_schema::{
    Bytes, CpuHow, CpuOp, CpuWork, Flow, IoCache, IoEngine, IoOp, IoSpec, LinkEnd, MemKind, Mover,
    Ns, Place, Rate, Unit,
};

use super::builder::{PathBuilder, measured_or, no};
use super::{copy, cpu};
use crate::graph::NodeGraph;
use crate::graph_units::{PLAIN_REQUEST, StoreNode};
use crate::operation::{BuiltPath, FlowOperation, NoPath};
use crate::storage::{IoCosts, IoCpu, StoreModel, page_of};

/// Resource use of I/O on a described machine, part by part.
#[derive(Debug, Clone, PartialEq)]
pub struct IoParts {
    /// The store.
    pub store: StoreModel,
    /// Size of the pages that blocks are in: it decides how many requests a block becomes.
    pub page: u64,
    /// CPU time of an I/O in its thread.
    pub cpu: IoCpu,
    /// The copy of a block to or from the GPU, if it is staged.
    pub stage: Option<FlowOperation>,
    /// Rate of that copy alone.
    pub stage_rate: Rate,
    /// Rate of one thread between the page cache and memory; `None` past the cache.
    pub cache_rate: Option<Rate>,
}

/// Page of memory that limits no request.
const WHOLE: u64 = 1 << 50;

/// The memory on the host that blocks are in, or pass.
fn host_place(flow: &Flow, io: &IoSpec) -> Place {
    let (_, memory) = flow.io_ends();
    match io.stage {
        Some(stage) => Place { unit: flow.by.at(), mem: stage.through, ..memory },
        None => memory,
    }
}

/// Resource use of I/O on this machine.
pub(crate) fn parts(net: &NodeGraph, flow: &Flow, io: &IoSpec) -> Result<(usize, IoParts), NoPath> {
    let (file, memory) = flow.io_ends();
    let number = file.unit.store().unwrap_or(u32::MAX) as usize;
    let Some(StoreNode { store, .. }) = net.stores.get(number) else {
        return no(format!("this machine has no {}", file.unit));
    };
    let Some(costs) = &net.io else {
        return no("what I/O costs the CPUs of this machine is not known");
    };
    let at = flow.by.at();
    let Some(cpus) = at.numa().and_then(|n| Some(net.numas.get(&n)?.cpus)) else {
        return no(format!("this machine has no {at} with cores"));
    };
    if cpus > 0 && io.threads as usize > cpus {
        return no(format!("{at} has {cpus} CPUs, not {}", io.threads));
    }
    if io.engine == IoEngine::Gds {
        return no("the model has no GPU direct: its drives reach host memory only");
    }
    let through = host_place(flow, io);
    let page = match io.engine {
        IoEngine::S3 => WHOLE,
        _ => page_of(through.mem, net.page as u64, net.huge_page as u64),
    };
    let mut cpu = cpu_time(costs, store, io, flow.bytes, page)?;
    if io.engine == IoEngine::S3 {
        // The kernel copies between sockets and memory as between the page cache and memory.
        cpu.kernel = cpu.kernel + cached(net, io, at, through)?.time(flow.bytes);
    }
    let stage = io.stage.map(|_| staged(net, flow, memory, through)).transpose()?;
    let stage_rate = stage.as_ref().map_or(Rate(f64::INFINITY), |built| alone(net, built));
    let cache_rate = (io.cache != IoCache::Direct).then(|| cached(net, io, at, through));
    let parts = IoParts {
        store: store.clone(),
        page,
        cpu,
        stage: stage.map(|built| built.operation),
        stage_rate,
        cache_rate: cache_rate.transpose()?,
    };
    Ok((number, parts))
}

fn cpu_time(
    costs: &IoCosts,
    store: &StoreModel,
    io: &IoSpec,
    block: Bytes,
    page: u64,
) -> Result<IoCpu, NoPath> {
    if io.engine == IoEngine::UringPoll && !(store.polls && io.cache == IoCache::Direct) {
        let why =
            if store.polls { "polling is past the page cache only" } else { "no poll queues" };
        return no(format!("{}: {why}", store.path));
    }
    let requests = store.requests(0, block.0, page).count();
    costs.io_cpu(io, block, requests, page).ok_or_else(|| {
        NoPath(format!("what an I/O by {} costs is not known: [[io.engine]]", io.engine))
    })
}

/// The copy between host memory and the GPU.
fn staged(
    net: &NodeGraph,
    flow: &Flow,
    memory: Place,
    through: Place,
) -> Result<BuiltPath, NoPath> {
    let into = flow.dst == memory;
    let (src, dst) = if into { (through, memory) } else { (memory, through) };
    let by = Mover::Dma { at: memory.unit };
    copy::build(net, &Flow { src, dst, by, bytes: flow.bytes }, memory.unit, false)
}

fn alone(net: &NodeGraph, built: &BuiltPath) -> Rate {
    net.solve(std::slice::from_ref(built)).first().copied().unwrap_or(built.operation.cap)
}

/// Rate of a thread between the pages of a file and memory: the kernel's copy, of a file that no
/// cache holds.
fn cached(net: &NodeGraph, io: &IoSpec, at: Unit, memory: Place) -> Result<Rate, NoPath> {
    let place = |mem| Place { unit: memory.unit, mem, ..memory };
    let work = CpuWork { op: CpuOp::Copy, how: CpuHow::Plain };
    let by = Mover::Cpu { at, work, threads: 1 };
    let flow = Flow { src: place(MemKind::Paged), dst: place(MemKind::Paged), by, bytes: io.span };
    Ok(alone(net, &measured_or(net, &flow, || cpu::build(net, &flow, at, work, 1))?))
}

/// Works out the bounds of I/O.
pub(crate) fn build(net: &NodeGraph, flow: &Flow, io: &IoSpec) -> Result<BuiltPath, NoPath> {
    let (number, parts) = parts(net, flow, io)?;
    let host = host_place(flow, io);
    let mut path = PathBuilder::new(net, flow);
    let (file, memory) = flow.io_ends();
    let mut nodes =
        [LinkEnd::from(file.unit), LinkEnd::from(host.unit), LinkEnd::from(memory.unit)];
    if io.op == IoOp::Write {
        nodes.reverse();
    }
    nodes.iter().for_each(|node| path.pass(std::slice::from_ref(node)));
    device(net, &mut path, number, flow, io, &parts);
    if let Some(stage) = &parts.stage {
        stage.uses.iter().for_each(|u| path.take(Some(u.resource), u.weight));
        path.rated("copies between host memory and the GPU", parts.stage_rate.0);
    }
    // Bytes that the drive's engine writes into memory or reads; through the cache, a core does.
    if host.unit.numa().is_some() {
        let passes = if io.cache == IoCache::Direct { 1.0 } else { 2.0 };
        path.demand(LinkEnd::from(host.unit), passes);
        path.memories(None);
    }
    threads(&mut path, flow, io, &parts);
    let engine = match &parts.stage {
        Some(stage) => format!("{}, {}; a model", name(io), stage.engine),
        None => format!("{}; a model", name(io)),
    };
    path.finish(&engine, 0.0, 0.0, false, 0.0)
}

/// Name of the I/O engine, for people.
fn name(io: &IoSpec) -> &'static str {
    match io.engine {
        IoEngine::Uring => "io_uring, registered buffers and files",
        IoEngine::UringPlain => "io_uring",
        IoEngine::UringPoll => "io_uring, polled, registered buffers and files",
        IoEngine::Aio => "io_submit",
        IoEngine::Sync => "pread and pwrite",
        IoEngine::Gds => "GPU direct",
        IoEngine::Mmap => "mmap",
        IoEngine::MmapPlain => "mmap without advice",
        IoEngine::MmapPopulate => "mmap, populated",
        IoEngine::S3 => "S3",
    }
}

/// Shares of I/Os that read and that write.
fn shares(io: &IoSpec) -> [(f64, bool); 2] {
    let reads = match io.op {
        IoOp::Read => 1.0,
        IoOp::Write => 0.0,
        IoOp::Mix { reads } => f64::from(reads) / 100.0,
    };
    [(reads, false), (1.0 - reads, true)]
}

/// The store's part: bytes and requests, unless the page cache has them.
fn device(
    net: &NodeGraph,
    path: &mut PathBuilder<'_>,
    number: usize,
    flow: &Flow,
    io: &IoSpec,
    parts: &IoParts,
) {
    let store = &parts.store;
    let Some(node) = net.stores.get(number) else { return };
    let block = flow.bytes.as_f64().max(1.0);
    let requests = store.requests(0, flow.bytes.0, parts.page).count() as f64;
    let (mut bytes, mut asked) = (0.0, 0.0);
    let mut why = (store.ceiling(io.writes()).1, store.most_requests(io.writes()).1);
    for (share, writes) in shares(io) {
        let from_cache = io.cache == IoCache::Cached && !writes;
        if share == 0.0 || from_cache {
            continue;
        }
        bytes += share / store.ceiling(writes).0.0;
        // The cache writes back in requests as large as they may be.
        if io.cache == IoCache::Direct || !writes {
            asked += share * requests / store.most_requests(writes).0 * 1e9 / block;
        }
        why = (store.ceiling(writes).1, store.most_requests(writes).1);
    }
    if bytes > 0.0 {
        path.take(node.bytes, bytes * store.ceiling(false).0.0);
        path.rated(&format!("store{number}: {}", why.0), 1.0 / bytes);
    }
    if asked > 0.0 {
        path.take(node.requests, asked * store.most_requests(false).0 * PLAIN_REQUEST / 1e9);
        path.rated(&format!("store{number}: {}", why.1), 1.0 / asked);
    }
}

/// Limits of the workers: their CPU time, and their I/Os in flight.
fn threads(path: &mut PathBuilder<'_>, flow: &Flow, io: &IoSpec, parts: &IoParts) {
    let block = flow.bytes.as_f64();
    let own = |each: Ns| f64::from(io.threads) * block / each.0.max(1e-3);
    let mut each = parts.cpu.each(io.batch);
    if let Some(rate) = parts.cache_rate {
        each = each + rate.time(flow.bytes);
    }
    let mut alone = each + parts.cpu.wake + device_time(io, parts, flow.bytes);
    if let Some(stage) = &parts.stage {
        each = each + stage.call;
        let copying = stage.alpha + parts.stage_rate.time(flow.bytes);
        if io.stage.is_some_and(|s| !s.pipelined) || stage.blocking {
            each = each + copying;
        }
        alone = alone + stage.call + copying;
    }
    if let Some(rate) = io.rate {
        path.cap(f64::from(io.threads) * rate.as_f64() / 1e9, "the limit of the case");
    }
    path.cap(own(each), "CPU time of the workers");
    path.cap(io.slots() as f64 * block / alone.0, "I/Os in flight over the time of one");
}

/// Mean time of a block on a store that does nothing else.
fn device_time(io: &IoSpec, parts: &IoParts, block: Bytes) -> Ns {
    let store = &parts.store;
    let of = |(share, writes): (f64, bool)| {
        let in_cache = io.cache == IoCache::Cached || (io.cache == IoCache::Cold && writes);
        if share == 0.0 || in_cache {
            return 0.0;
        }
        let requests: Vec<_> = store.requests(0, block.0, parts.page).collect();
        let targets = requests.iter().map(|r| r.target).max().map_or(1, |_| {
            let mut all: Vec<u32> = requests.iter().map(|r| r.target).collect();
            all.sort_unstable();
            all.dedup();
            all.len()
        });
        let moving = block.as_f64() / (store.rate(writes).0 * targets as f64);
        let link = store.client_gbs.map_or(0.0, |gbs| block.as_f64() / gbs);
        let latency = store.network_us * 1e3 + store.turn(writes).0 + store.latency(writes).0;
        share * (latency + moving.max(link))
    };
    Ns(shares(io).map(of).iter().sum())
}
