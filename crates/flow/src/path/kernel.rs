//! Paths of pathline's GPU kernels.

use pathline_schema::{AccessWidth, FMA_PER_BYTE, Flow, KernelOp, KernelVariant, MemKind, Unit};

use super::builder::{LegMover, LegSide, PathBuilder, gpu_at, no};
use crate::graph::{GpuNode, NodeGraph};
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
        path.cap(arithmetic(gpu, &variant), "arithmetic");
        return path.finish("kernel", time.kernel_us, time.launch_call_us, false, 0.0);
    }
    if reads > 0.0 {
        path.leg(g, flow.src.unit, LegSide::In, LegMover::Read, reads, 1.0)?;
    }
    let read_passed = path.passed;
    if writes > 0.0 {
        path.leg(g, flow.dst.unit, LegSide::Out, LegMover::Write, writes, 1.0)?;
    }
    path.memories(None);
    let (unit, ratio) = if reads > 0.0 { (flow.src.unit, reads) } else { (flow.dst.unit, writes) };
    let load_ns = load_ns(net, at, unit, if reads > 0.0 { read_passed } else { path.passed });
    let mut step = 0.0;
    if effect.chain > 0 {
        if !net.described {
            return no("the load latency of this machine is not known");
        }
        step = load_ns;
        path.cap(flow.bytes.as_f64() / (effect.chain as f64 * step), "load latency");
    } else {
        path.in_flight_over(gpu, &variant, ratio, load_ns);
    }
    path.finish("kernel", time.kernel_us, time.launch_call_us, false, step)
}

/// Payload of a compute kernel in bytes per ns, where nothing else runs on the GPU.
fn arithmetic(gpu: &GpuNode, variant: &KernelVariant) -> f64 {
    let double = matches!(variant.access, AccessWidth::Words { word: 8, .. });
    let each = gpu.caps.fma_per_cycle[usize::from(double)] * gpu.caps.clock_ghz;
    f64::from(gpu.compute_units.max(1)) * each / FMA_PER_BYTE as f64
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
