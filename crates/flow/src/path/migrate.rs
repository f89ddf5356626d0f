//! Migration of managed pages.

use pathline_schema::{Flow, MemKind, MigrateHow, Unit};

use super::builder::{LegMover, LegSide, PathBuilder, gpu_at, no};
use crate::graph::NodeGraph;
use crate::operation::{BuiltPath, NoPath};

/// The path of migrating pages.
pub(crate) fn build(
    net: &NodeGraph,
    flow: &Flow,
    at: Unit,
    how: MigrateHow,
) -> Result<BuiltPath, NoPath> {
    let (src, dst) = (flow.src, flow.dst);
    if src.mem != MemKind::Managed || dst.mem != MemKind::Managed {
        return no("only managed memory migrates");
    }
    if src.unit == dst.unit || dst.unit != at {
        return no(format!("expected pages that go to {at} from another unit"));
    }
    let mover = if at.gpu().is_some() { at } else { src.unit };
    let Ok((g, gpu)) = gpu_at(net, mover) else {
        return no("pages migrate between a GPU and another unit");
    };
    if how == MigrateHow::Fault
        && gpu.caps.page_fault_env.is_some()
        && net.switches.xnack == Some(false)
    {
        return no("with HSA_XNACK=0 no page fault can be served; unset it or set it to 1");
    }
    let mut path = PathBuilder::new(net, flow);
    path.leg(g, src.unit, LegSide::In, LegMover::Engine, 1.0, 1.0)?;
    path.leg(g, dst.unit, LegSide::Out, LegMover::Engine, 1.0, 1.0)?;
    path.memories(None);
    let model = &net.model.migration;
    let (bytes, cost_us, name) = match how {
        MigrateHow::Fault => (model.fault_bytes, model.fault_us, "page faults"),
        MigrateHow::Prefetch => (model.prefetch_bytes, model.prefetch_us, "prefetch"),
    };
    let bytes = bytes as f64;
    path.cap(bytes / (cost_us * 1e3 + bytes / path.cap), &format!("{name} of {bytes} B"));
    let time = &net.model.time;
    let first_us = match how {
        MigrateHow::Fault if src.unit.gpu().is_some() && dst.unit.gpu().is_some() => {
            model.peer_start_us
        }
        MigrateHow::Fault => model.start_us,
        MigrateHow::Prefetch => 0.0,
    };
    path.finish(name, time.kernel_us.max(first_us), time.launch_call_us, false, 0.0)
}
