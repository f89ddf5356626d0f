//! Paths of pathline's GPU kernels.

use pathline_schema::{
    AccessWidth, CHASE_STEPS, Flow, GpuCaps, KernelOp, KernelVariant, MemKind, Unit,
};

use super::builder::{LegMover, LegSide, LoopLimits, PathBuilder, gpu_at, no};
use super::kernel_start::KernelTraffic;
use crate::graph::NodeGraph;
use crate::hard_peak::arithmetic_rate;
use crate::model::GpuCacheLevel;
use crate::operation::{BuiltPath, NoPath};

/// The path of what a kernel moves.
pub(crate) fn build(
    net: &NodeGraph,
    flow: &Flow,
    at: Unit,
    variant: KernelVariant,
) -> Result<BuiltPath, NoPath> {
    let (g, gpu) = gpu_at(net, at)?;
    let effect = variant.effect(flow.bytes);
    let per_byte = |n: u64| n as f64 / flow.bytes.as_f64().max(1.0);
    let (reads, writes) = (per_byte(effect.reads.0), per_byte(effect.writes.0));
    for (place, ratio, verb) in [(flow.src, reads, "loads"), (flow.dst, writes, "stores")] {
        if ratio > 0.0 && place.mem == MemKind::Reg {
            return no(format!("a {} kernel {verb}: expected memory, not registers", variant.op));
        }
        if ratio == 0.0 && place.mem != MemKind::Reg {
            return no(format!("a {} kernel {verb} nothing: expected {at}.reg", variant.op));
        }
        if matches!(place.mem, MemKind::Paged | MemKind::Huge) {
            return no("kernels reach pageable memory only after it is registered");
        }
        let zero_copy = place.mem == MemKind::Managed && place.unit.numa().is_some();
        if zero_copy && gpu.caps.page_fault_env.is_some() && net.switches.xnack == Some(true) {
            return no("with HSA_XNACK=1 managed pages migrate; unset it for zero-copy access");
        }
    }
    let mut path = PathBuilder::new(net, flow);
    let time = &net.model.time;
    if variant.op == KernelOp::Fma {
        let double = matches!(variant.access, AccessWidth::Words { word: 8, .. });
        let efficiency = net.model.kernel.arithmetic_efficiency;
        let of = |double| efficiency * arithmetic_rate(gpu.compute_units, gpu.caps, double);
        path.cap(of(double), "arithmetic");
        path.take(gpu.arithmetic, of(false) / of(double));
        path.grid((g, gpu), &variant);
        return path.finish("kernel", time.kernel_us, time.launch_call_us, false, 0.0);
    }
    let caches = GpuCaches::of(net, flow, at, gpu.caps);
    let passes = f64::from(variant.passes);
    // Of several passes over a payload that the second level holds, the first fetches it.
    let kept = passes > 1.0 && caches.shared_holds();
    if reads > 0.0 {
        let fetched = if kept { reads } else { reads * passes };
        path.leg(g, flow.src.unit, LegSide::In, LegMover::Read, fetched, 1.0)?;
    }
    let read_passed = path.passed;
    if writes > 0.0 {
        path.leg(g, flow.dst.unit, LegSide::Out, LegMover::Write, writes, 1.0)?;
    }
    let traffic = KernelTraffic { reads, writes, at };
    path.memories(traffic.memory_share(net, flow));
    let (unit, ratio) = if reads > 0.0 {
        (flow.src.unit, if kept { reads } else { reads * passes })
    } else {
        (flow.dst.unit, writes)
    };
    let load_ns = load_ns(net, at, unit, if reads > 0.0 { read_passed } else { path.passed });
    let mut step = 0.0;
    if effect.chain > 0 {
        if !net.described {
            return no("the load latency of this machine is not known");
        }
        step = caches.step_ns(effect.chain, load_ns);
        path.cap(flow.bytes.as_f64() / (effect.chain as f64 * step), "load latency");
    } else {
        let store_gbs = store_gbs(net, at, flow.dst.unit).filter(|_| writes > 0.0);
        // Where the rate of stores is unknown, a kernel that only stores has as much in flight as one that loads.
        let reads = if reads <= 0.0 && store_gbs.is_some() { 0.0 } else { ratio };
        path.in_flight_over(gpu, &variant, LoopLimits { reads, load_ns, writes, store_gbs });
        path.grid((g, gpu), &variant);
    }
    if kept {
        // The rate of the cache is not known; that of the memory behind it is the least it has.
        let peak = gpu.memory_peak.map_or(f64::INFINITY, |peak| peak.0);
        let again = (passes - 1.0) / (peak * net.model.gpu_memory.kernel_efficiency);
        path.cap(1.0 / (1.0 / path.cap + again), "passes over a payload in the L2 cache");
    }
    let start_us = match effect.chain {
        0 => traffic.start_us(net, flow, &path),
        _ => time.kernel_us,
    };
    path.finish("kernel", start_us, time.launch_call_us, false, step)
}

/// The caches between a kernel's loads and the memory of their payload.
struct GpuCaches<'a> {
    /// Levels that hold the payload, the nearest first; none where the GPU does not cache this memory.
    holding: &'a [GpuCacheLevel],
    /// Whether an operation starts without the payload in any cache.
    cold: bool,
}

impl<'a> GpuCaches<'a> {
    /// Of the loads of a flow by a kernel at `at`. A GPU caches its own memory, and pinned host memory
    /// unless it is coherent memory of a runtime that has both kinds: that is "not cached by the GPU" (HIP
    /// programming guide, zero-copy access). With one kind, three passes over 4 MiB take 86 and 87 us on
    /// H200s and H100s, of which one crossing takes 81. Host memory is dropped from the caches where a
    /// kernel starts, since the host may have written it.
    fn of(net: &'a NodeGraph, flow: &Flow, at: Unit, caps: &GpuCaps) -> Self {
        let levels = net.model.kernel.cache.as_slice();
        let local = flow.src.unit == at;
        let cached = match flow.src.mem {
            MemKind::PinnedNonCoherent => true,
            MemKind::Pinned => local || !caps.memory_grains,
            _ => local,
        };
        let first = levels.iter().position(|c| flow.bytes.0 <= c.bytes).filter(|_| cached);
        let holding = first.and_then(|first| levels.get(first..)).unwrap_or_default();
        Self { holding, cold: !local }
    }

    /// Whether a cache that all compute units share holds the payload.
    fn shared_holds(&self) -> bool {
        self.holding.iter().any(|cache| cache.level > 1)
    }

    /// Mean time of a load of a chain, which an operation follows for [`CHASE_STEPS`] loads on another
    /// compute unit than the one before: each element is loaded once from the memory or the level behind,
    /// and from then on from the cache.
    fn step_ns(&self, chain: u64, memory_ns: f64) -> f64 {
        let Some(cache) = self.holding.first() else { return memory_ns };
        let first_ns = match cache.level {
            _ if self.cold => memory_ns,
            1 => self.holding.get(1).map_or(memory_ns, |behind| behind.load_ns),
            _ => cache.load_ns,
        };
        let share = (chain as f64 / CHASE_STEPS as f64).min(1.0);
        share * first_ns + (1.0 - share) * cache.load_ns
    }
}

/// What one compute unit of `at` stores to memory of `unit`, GB/s, if that limits it.
fn store_gbs(net: &NodeGraph, at: Unit, unit: Unit) -> Option<f64> {
    let kernel = &net.model.kernel;
    match unit {
        _ if unit == at => kernel.local_store_gbs,
        Unit::Gpu(_) => kernel.peer_store_gbs,
        Unit::Numa(_) | Unit::Store(_) => kernel.host_store_gbs,
    }
}

/// Latency of a load by a kernel at `at` from memory of `unit`.
fn load_ns(net: &NodeGraph, at: Unit, unit: Unit, passed: u32) -> f64 {
    let kernel = &net.model.kernel;
    match unit {
        _ if unit == at => kernel.local_load_ns,
        Unit::Gpu(_) => kernel.peer_load_ns + kernel.hop_load_ns * f64::from(passed),
        Unit::Numa(_) | Unit::Store(_) => kernel.host_load_ns,
    }
}
