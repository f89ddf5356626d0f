//! The path of a flow that CPU threads carry: caches, cores, memory of NUMA domains, page faults.

use pathline_schema::{CpuHow, CpuOp, CpuWork, Flow, LinkEnd, MemKind, Place, Unit};

use super::builder::PathBuilder;
use crate::graph::NodeGraph;
use crate::model::CacheLevel;
use crate::operation::{BuiltPath, NoPath};

/// Width of the accesses that the cache rates of a description are stated for.
const RATED_BYTES: f64 = 32.0;
/// ACPI's distance of a domain to itself.
const LOCAL: u32 = 10;

pub(super) struct CpuTeam<'a> {
    pub(super) net: &'a NodeGraph,
    pub(super) at: u32,
    pub(super) work: CpuWork,
    pub(super) threads: f64,
}

/// The flow, with memory that cores and a GPU share in the domain of the cores.
fn of_shared_memory(net: &NodeGraph, flow: &Flow) -> Flow {
    let seen = |place: Place| {
        let gpu = place.unit.gpu().filter(|_| net.model.gpu_memory.unified);
        let home = gpu.and_then(|g| net.gpus.get(&g)?.port.as_ref()?.home);
        home.map_or(place, |home| Place { unit: Unit::Numa(home), ..place })
    };
    Flow { src: seen(flow.src), dst: seen(flow.dst), ..*flow }
}

/// Works out the path of a flow by CPU threads.
pub(crate) fn build(
    net: &NodeGraph,
    flow: &Flow,
    at: Unit,
    work: CpuWork,
    threads: u32,
) -> Result<BuiltPath, NoPath> {
    let team = CpuTeam::new(net, at, work, threads)?;
    let missing =
        |feature: &str| !net.features.is_empty() && !net.features.iter().any(|f| f == feature);
    if let Some(feature) = work.how.feature().filter(|f| missing(f)) {
        return Err(NoPath(format!("the processor has no {feature}")));
    }
    let flow = &of_shared_memory(net, flow);
    let effect = work.effect(flow.bytes);
    let per_byte = |n: u64| n as f64 / flow.bytes.as_f64().max(1.0);
    let (reads, writes) = (per_byte(effect.reads.0), per_byte(effect.writes.0));
    for (place, ratio, verb) in [(flow.src, reads, "loads"), (flow.dst, writes, "stores")] {
        if (ratio > 0.0) == (place.mem == MemKind::Reg) {
            let expected = if ratio > 0.0 { "memory" } else { "registers" };
            return Err(NoPath(format!("a CPU {} {verb} from {expected}", work.op)));
        }
    }
    if flow.src.unit.gpu().or(flow.dst.unit.gpu()).is_some() {
        return team.over_link(flow, reads, writes);
    }
    match work.op {
        CpuOp::Chase => team.chase(flow),
        CpuOp::Touch => team.touch(flow),
        _ => team.stream(flow, reads, writes),
    }
}

impl<'a> CpuTeam<'a> {
    /// A team on the cores of a domain, each thread on its own.
    pub(super) fn new(
        net: &'a NodeGraph,
        at: Unit,
        work: CpuWork,
        threads: u32,
    ) -> Result<Self, NoPath> {
        let Some((at, cpus)) = at.numa().and_then(|n| Some((n, net.numas.get(&n)?.cpus))) else {
            return Err(NoPath(format!("this machine has no {at} with cores")));
        };
        if cpus > 0 && u64::from(threads) > cpus as u64 {
            return Err(NoPath(format!("numa{at} has {cpus} CPUs, not {threads}")));
        }
        Ok(Self { net, at, work, threads: f64::from(threads) })
    }

    /// Threads that keep a fixed number of loads in flight: over a longer path, fewer bytes.
    pub(super) fn slowdown(&self, unit: Unit) -> f64 {
        let here = self.net.numas.get(&self.at);
        let distance = here.zip(unit.numa()).and_then(|(n, to)| n.distances.get(&to).copied());
        f64::from(distance.unwrap_or(LOCAL)) / f64::from(LOCAL)
    }

    /// The smallest cache level that holds `bytes`, all the team's caches of that level together.
    pub(super) fn cache(&self, bytes: f64) -> Option<&CacheLevel> {
        let caches = &self.net.model.cpu.cache;
        caches.iter().find(|c| {
            let number = (self.threads / f64::from(c.shared_by)).ceil();
            bytes <= c.bytes as f64 * number
        })
    }

    /// Whether stores go around the caches.
    pub(super) fn streams(&self, bytes: f64) -> bool {
        let by_size = matches!(self.work.how, CpuHow::Memcpy | CpuHow::Movsb);
        let from = self.net.model.cpu.memcpy_streams_from_bytes as f64;
        self.work.how.is_streaming() || (by_size && bytes >= from)
    }

    /// Traffic of stores with the memory: one that misses the caches first loads the line, and crosses twice.
    pub(super) fn stored_traffic(&self, writes: f64, around: bool) -> f64 {
        if around { writes } else { 2.0 * writes }
    }

    pub(super) fn size(&self) -> String {
        let plural = if self.threads == 1.0 { "" } else { "s" };
        format!("{} thread{plural}", self.threads)
    }

    pub(super) fn width(&self) -> f64 {
        match self.work.how {
            CpuHow::Plain => 8.0,
            CpuHow::Neon | CpuHow::NeonNt => 16.0,
            CpuHow::Memcpy
            | CpuHow::Movsb
            | CpuHow::Avx2
            | CpuHow::Avx2Nt
            | CpuHow::Avx2Nta
            | CpuHow::Avx2Nt4
            | CpuHow::Avx2Ntl => 32.0,
            CpuHow::Avx512
            | CpuHow::Avx512Nt
            | CpuHow::Avx512Nta
            | CpuHow::Avx512Nt4
            | CpuHow::Avx512Ntl => 64.0,
        }
    }

    /// Traffic with the memory of a domain.
    pub(super) fn memory(
        &self,
        path: &mut PathBuilder<'_>,
        place: Place,
        traffic: f64,
        into_cores: bool,
    ) {
        let (Some(n), here) = (place.unit.numa(), LinkEnd::Numa(self.at)) else { return };
        let node = LinkEnd::Numa(n);
        if node != here {
            let (a, b) = if into_cores { (node, here) } else { (here, node) };
            path.cpu_link(a, b, traffic);
        }
        path.demand(node, traffic);
    }

    pub(super) fn stream(&self, flow: &Flow, reads: f64, writes: f64) -> Result<BuiltPath, NoPath> {
        let model = &self.net.model.cpu;
        let bytes = flow.bytes.as_f64();
        let mut path = PathBuilder::new(self.net, flow);
        let held = self.cache(bytes * (reads + writes));
        let around = writes > 0.0 && self.streams(bytes);
        let (mut from_memory, mut to_memory) = (0.0, 0.0);
        if held.is_none() {
            from_memory = reads;
            to_memory = self.stored_traffic(writes, around);
        } else if around {
            to_memory = writes;
        }
        if let Some(cache) = held {
            if !self.net.described {
                let level = cache.level;
                return Err(NoPath(format!("not known: the peak of the L{level} caches")));
            }
            let rate = cache.core_gbs * (self.width() / RATED_BYTES).min(1.0);
            let name = format!("L{} cache, {}", cache.level, self.size());
            path.rated(&name, self.threads * rate / (reads + writes));
        }
        let slow =
            from_memory * self.slowdown(flow.src.unit) + to_memory * self.slowdown(flow.dst.unit);
        if slow > 0.0 {
            let name = format!("memory traffic of {}", self.size());
            path.cap(self.threads * model.core_gbs / slow, &name);
        }
        if from_memory > 0.0 {
            self.memory(&mut path, flow.src, from_memory, true);
        }
        if to_memory > 0.0 {
            self.memory(&mut path, flow.dst, to_memory, false);
        }
        self.finish(path, flow, 0.0)
    }

    pub(super) fn chase(&self, flow: &Flow) -> Result<BuiltPath, NoPath> {
        if !self.net.described {
            return Err(NoPath("the load latency of this machine is not known".into()));
        }
        let far = self.net.model.cpu.memory_ns * self.slowdown(flow.src.unit);
        let mut path = PathBuilder::new(self.net, flow);
        let step = match self.cache(flow.bytes.as_f64()) {
            Some(cache) => {
                let chain = self.work.effect(flow.bytes).chain.max(1) as f64;
                let rate = self.threads * flow.bytes.as_f64() / (chain * cache.load_ns);
                path.rated(&format!("L{} cache, load latency", cache.level), rate);
                cache.load_ns
            }
            None => {
                self.memory(&mut path, flow.src, 1.0, true);
                far
            }
        };
        let chain = self.work.effect(flow.bytes).chain.max(1) as f64;
        path.cap(self.threads * flow.bytes.as_f64() / (chain * step), "load latency");
        self.finish(path, flow, step)
    }

    fn touch(&self, flow: &Flow) -> Result<BuiltPath, NoPath> {
        let model = &self.net.model.cpu;
        let (page, fault_us) = match flow.dst.mem {
            MemKind::Huge => (self.net.huge_page, model.huge_fault_us),
            _ => (self.net.page, model.page_fault_us),
        };
        let mut path = PathBuilder::new(self.net, flow);
        path.cap(self.threads * page / (fault_us * 1e3), "page faults");
        self.memory(&mut path, flow.dst, 1.0, false);
        self.finish(path, flow, 0.0)
    }

    pub(super) fn finish(
        &self,
        mut path: PathBuilder<'_>,
        flow: &Flow,
        step_ns: f64,
    ) -> Result<BuiltPath, NoPath> {
        path.memories_at(None, self.net.model.cpu.memory_efficiency);
        let ends =
            [LinkEnd::from(flow.src.unit), LinkEnd::Numa(self.at), LinkEnd::from(flow.dst.unit)];
        ends.iter().for_each(|end| path.pass(std::slice::from_ref(end)));
        path.finish("CPU threads", self.net.model.cpu.start_us, 0.0, false, step_ns)
    }
}
