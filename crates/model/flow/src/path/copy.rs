//! Copies of the GPU runtime.

use pathline_schema::{AccessWidth, Flow, GridSize, KernelOp, KernelVariant, MemKind, Unit};

use super::builder::{LegMover, LegSide, PathBuilder, gpu_at, no};
use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, NoPath};

/// The copy kernel of AMD's runtime: 64 x 4 work-items for each compute unit in groups of 64, each with one
/// load of 16 B in flight (ROCR-Runtime, `amd_blit_kernel.cpp`, `SubmitLinearCopyCommand`). Of the 32
/// wavefronts that a unit holds it takes 4, so kernels of up to 28 others run next to it.
const BLIT: KernelVariant = KernelVariant {
    access: AccessWidth::Words { word: 16, unroll: 1 },
    block: 64,
    grid: GridSize::PerSm(4),
    ..KernelVariant::standard(KernelOp::Copy)
};

/// The runtime's copy: by engine, or by its kernel where the case or the settings select it.
pub(crate) fn build(
    net: &NodeGraph,
    flow: &Flow,
    at: Unit,
    blit: bool,
) -> Result<BuiltPath, NoPath> {
    let (g, gpu) = gpu_at(net, at)?;
    let (src, dst) = (flow.src.unit, flow.dst.unit);
    if blit && !gpu.caps.copy_kernel {
        return no("this runtime has no copy kernel that can be selected");
    }
    let local = src == at && dst == at;
    let between_gpus = src.gpu().is_some() && dst.gpu().is_some();
    let chooses = gpu.caps.copy_engine_env.is_some();
    let off = |setting: Option<bool>| chooses && setting == Some(false);
    let by_kernel = if local {
        blit || net.model.gpu_memory.local_copy_by_kernel
    } else {
        blit || off(net.switches.sdma) || (between_gpus && off(net.switches.peer_sdma))
    };
    // hipMemcpyPeerAsync issued at the source with HSA_ENABLE_SDMA=0 reaches 177, 88 and 44 GB/s
    // (Lumi-supercomputer/lumi-reframe-tests): 88 % of the links, which loads get and stores do not.
    let (g, gpu) = match by_kernel && !blit && !local {
        true => gpu_at(net, flow.by_copy_kernel().by.at())?,
        false => (g, gpu),
    };
    let pageable =
        [flow.src, flow.dst].iter().any(|p| matches!(p.mem, MemKind::Paged | MemKind::Huge));
    let regime = net.model.pageable.iter().find(|r| flow.bytes.0 <= r.up_to_bytes);
    let regime = regime.or(net.model.pageable.last()).filter(|_| pageable);
    let passes = regime.map_or(1.0, |r| f64::from(r.memory_passes));

    let mut path = PathBuilder::new(net, flow);
    let hands = if by_kernel {
        (LegMover::Read, LegMover::Write)
    } else {
        (LegMover::Engine, LegMover::Engine)
    };
    path.leg(g, src, LegSide::In, hands.0, 1.0, passes)?;
    path.leg(g, dst, LegSide::Out, hands.1, 1.0, passes)?;
    if local {
        let peak = gpu.memory_peak.map_or(f64::INFINITY, |p| p.0);
        let share = net.model.gpu_memory.local_copy_gbs / peak;
        path.memories(Some(if share.is_finite() { share.min(1.0) } else { 1.0 }));
    } else {
        path.memories(None);
    }
    if !by_kernel && !local {
        path.engine(g, gpu, between_gpus);
    }
    if by_kernel && !local {
        path.in_flight(gpu, &BLIT, 1.0);
    }
    if by_kernel {
        path.grid((g, gpu), &BLIT);
    }
    if let Some(regime) = regime {
        path.pageable(regime, src.numa().is_some());
    }
    let time = &net.model.time;
    let alpha_us = match regime {
        Some(regime) => regime.start_us + regime.ramp.added_us(flow.bytes.0),
        None if by_kernel && (blit || !local) => {
            let of_local = time.local_blit_us.filter(|_| local);
            of_local.or(time.blit_us).unwrap_or(time.kernel_us)
        }
        None if local => copy_latency_us(net, src, dst, 0) + time.local_ramp.added_us(flow.bytes.0),
        None if between_gpus => copy_latency_us(net, src, dst, path.passed),
        None => time.host_copy_us,
    };
    let engine = match (pageable, by_kernel) {
        (true, _) => "staged copy",
        (_, true) => "blit kernel",
        (_, false) => "copy engine",
    };
    let mut built = path.finish(engine, alpha_us, time.copy_call_us, pageable, 0.0)?;
    built.operation.spread = regime.map_or(0.0, |regime| regime.spread);
    if let Some([peers, inward, outward]) = gpu.queues.filter(|_| !by_kernel && !local) {
        let of_host = if dst == at { inward } else { outward };
        built.operation.queue = Some(if between_gpus { peers } else { of_host });
    }
    Ok(built)
}

/// The measured latency of the pair, if there is a matrix; else that of its class.
fn copy_latency_us(net: &NodeGraph, src: Unit, dst: Unit, passed: u32) -> f64 {
    let time = &net.model.time;
    let order = |unit: Unit| unit.gpu().and_then(|g| net.gpus.get(&g)).map(|gpu| gpu.order);
    let measured =
        order(src).zip(order(dst)).and_then(|(a, b)| time.copy_us_matrix.get(a)?.get(b).copied());
    measured.unwrap_or(if src == dst {
        time.local_copy_us
    } else {
        time.peer_copy_us + time.hop_copy_us * f64::from(passed)
    })
}
