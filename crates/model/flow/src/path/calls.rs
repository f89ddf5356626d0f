//! Paths of several runtime operations, and calls that move nothing.

use pathline_schema::{
    Bytes, Flow, KernelVariant, MemKind, Mover, Ns, Place, Rate, RuntimeCall, STAGED_CHUNK,
    ScatterMethod, Unit,
};

use super::builder::{LegMover, LegSide, PathBuilder, gpu_at, measured_or, no};
use super::{copy, kernel};
use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, FlowOperation, NoPath};

/// Out of one GPU and into another at once: what the slower half lets through, less what each
/// chunk costs to start. The first chunk has nothing to overlap with.
pub(crate) fn staged(net: &NodeGraph, flow: &Flow, via: Unit) -> Result<BuiltPath, NoPath> {
    let host = Place { mem: MemKind::Pinned, unit: via, ..flow.src };
    if via.numa().is_none_or(|n| !net.numas.contains_key(&n)) {
        return no(format!("this machine has no {via}"));
    }
    let (a, out) = gpu_at(net, flow.src.unit)?;
    let (b, into) = gpu_at(net, flow.dst.unit)?;
    let mut path = PathBuilder::new(net, flow);
    path.leg(a, flow.src.unit, LegSide::In, LegMover::Engine, 1.0, 1.0)?;
    path.leg(a, host.unit, LegSide::Out, LegMover::Engine, 1.0, 1.0)?;
    path.leg(b, host.unit, LegSide::In, LegMover::Engine, 1.0, 1.0)?;
    path.leg(b, flow.dst.unit, LegSide::Out, LegMover::Engine, 1.0, 1.0)?;
    path.memories(None);
    path.engine(a, out, false);
    path.engine(b, into, false);
    let time = &net.model.time;
    let chunk = STAGED_CHUNK.as_f64().min(flow.bytes.as_f64());
    let start = time.host_copy_us * 1e3;
    path.cap(chunk / (start + chunk / path.cap), "the start of each chunk");
    let first_us = (start + chunk / path.cap) / 1e3;
    path.finish("copies staged through the host", first_us, time.copy_call_us, false, 0.0)
}

fn no_batch() -> NoPath {
    NoPath("this runtime has no call for a batch of copies".into())
}

/// As one copy of all bytes, enqueued by the call for batches.
pub(crate) fn batch(net: &NodeGraph, flow: &Flow, at: Unit) -> Result<BuiltPath, NoPath> {
    let call_time = net.batch_call().ok_or_else(no_batch)?;
    let mut built = copy::build(net, flow, at, false)?;
    built.operation.call = call_time;
    Ok(built)
}

/// Scattered blocks. A copy engine starts once for each block, whichever call names them; a kernel starts once.
pub(crate) fn blocks(
    net: &NodeGraph,
    flow: &Flow,
    at: Unit,
    (blocks, by): (u32, ScatterMethod),
) -> Result<BuiltPath, NoPath> {
    let each = flow.bytes.0 / u64::from(blocks.max(1));
    let time = &net.model.time;
    let call = match by {
        ScatterMethod::Kernel { units } => {
            return kernel::build(net, flow, at, KernelVariant::scattered(units, Bytes(each)));
        }
        ScatterMethod::Each => Ns::us(time.copy_call_us * f64::from(blocks)),
        ScatterMethod::Batch => net.batch_call().ok_or_else(no_batch)?,
    };
    let built = copy::build(net, flow, at, false)?;
    let (start, each) = (built.operation.alpha, each as f64);
    let cap = Rate(each / (start.0 + each / built.operation.cap.0));
    let operation = FlowOperation { cap, call, alpha: Ns::ZERO, ..built.operation };
    Ok(BuiltPath { operation, limit: "the start of each block".to_owned() })
}

/// Host time only: it takes nothing that others could want.
pub(crate) fn call(net: &NodeGraph, flow: &Flow, call: RuntimeCall) -> Result<BuiltPath, NoPath> {
    let known = || NoPath("what calls of this runtime cost is not known".into());
    let time = match call {
        RuntimeCall::Launch | RuntimeCall::LaunchSync => {
            let (at, variant) = (flow.by.at(), RuntimeCall::KERNEL);
            let by = Mover::Kernel { at, variant };
            let dst = Place { unit: flow.by.at(), mem: MemKind::Vram, ..flow.dst };
            let bytes = RuntimeCall::KERNEL_BYTES;
            let launched = Flow { src: flow.src, dst, by, bytes };
            let model = || kernel::build(net, &launched, at, variant);
            let kernel = measured_or(net, &launched, model)?.operation;
            match call {
                RuntimeCall::Launch => kernel.call,
                _ => kernel.call + kernel.alpha + kernel.cap.time(bytes),
            }
        }
        _ => net.call_time(call, flow.subject().map(|p| p.mem), flow.bytes).ok_or_else(known)?,
    };
    if time.0 <= 0.0 {
        return Err(known());
    }
    let mut path = PathBuilder::new(net, flow);
    path.cap(flow.bytes.as_f64() / time.0, "the call");
    let built = path.finish("runtime call", 0.0, 0.0, true, 0.0)?;
    Ok(BuiltPath { operation: FlowOperation { call: time, ..built.operation }, ..built })
}
